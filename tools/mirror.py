"""tools/mirror.py: follows a run's log.jsonl to TensorBoard or W&B, for those who look there.

    python tools/mirror.py runs/easy/RUN --to=tensorboard    # pip install tensorboard
    WANDB_MODE=offline python tools/mirror.py runs/easy/RUN --to=wandb    # pip install wandb

Goes on until the log has its end record, or Ctrl-C. A number of a step is train/NAME and one of an
evaluation SET/NAME, over rollouts; what a resumed run writes again replaces what was there. The
files lie in the run's folder. W&B gets a run of the folder's name (WANDB_PROJECT: isocompute).
"""
import importlib.util
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from config import BadInput, choose, entry, read_log  # noqa: E402


def scalars(record):
    """The numbers of a record of the log as {name: number}: train/reward, val/avg@4, ..."""
    part = dict(step="train", eval=record.get("set", "val")).get(record["type"])
    axes = ("step", "rollouts", "samples", "k")
    return {f"{part}/{key}": value for key, value in record.items() if part and key not in axes
            and isinstance(value, (int, float)) and not isinstance(value, bool)}


def to_tensorboard(folder):
    """A function that takes a record, and whether it goes back: then what came later is purged."""
    from torch.utils.tensorboard import SummaryWriter
    writer = SummaryWriter(str(folder), purge_step=0)

    def write(record, back):
        nonlocal writer
        if back:
            writer = SummaryWriter(str(folder), purge_step=record.get("rollouts", 0))
        for name, value in scalars(record).items():
            writer.add_scalar(name, value, record["rollouts"])
        writer.flush()
    return write


def to_wandb(folder):
    """As `to_tensorboard`. With the sweep's name no two runs meet."""
    import wandb
    name = f"{folder.resolve().parent.name}_{folder.resolve().name}"
    run = wandb.init(project=os.environ.get("WANDB_PROJECT", "isocompute"), id=name, name=name,
                     group=folder.resolve().parent.name, dir=str(folder), resume="allow")
    run.define_metric("rollouts")
    run.define_metric("*", step_metric="rollouts")

    def write(record, back):
        if record["type"] == "header":
            run.config.update(record["config"], allow_val_change=True)
        elif record["type"] == "end":
            run.finish()
        elif scalars(record):
            run.log(scalars(record) | dict(rollouts=record["rollouts"]))
    return write


def follow(folder, write, every=5.0):
    """Hand each record of the log of the run in `folder` to `write`, until its end record."""
    sent = []
    while not sent or sent[-1]["type"] != "end":
        time.sleep(every if sent else 0)
        log = read_log(folder / "log.jsonl")
        same = 0  # a resumed run has cut its log back: what differs is handed over again
        while same < min(len(sent), len(log)) and sent[same] == log[same]:
            same += 1
        for i in range(same, len(log)):
            write(log[i], back=i == same < len(sent))
        sent = log


def main(argv):
    words = [word for word in argv if not word.startswith("--to=")]
    if {"-h", "--help"} & set(argv) or not argv:
        print(__doc__.strip())
        return
    if len(words) != 1 or len(argv) != 2:
        raise BadInput(f"{' '.join(argv)}: expected RUN --to=tensorboard or RUN --to=wandb")
    folder, to = Path(words[0]), next(word for word in argv if word not in words)[5:]
    choose("to", to, ("tensorboard", "wandb"))
    if not (folder / "log.jsonl").exists():
        raise BadInput(f"{folder}: no run, it has no log.jsonl")
    if importlib.util.find_spec(to) is None:
        raise BadInput(f"--to={to}: the package is not installed; `pip install {to}`")
    follow(folder, dict(tensorboard=to_tensorboard, wandb=to_wandb)[to](folder))


if __name__ == "__main__":
    entry(main)
