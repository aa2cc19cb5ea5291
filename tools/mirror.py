"""tools/mirror.py: copy a run's log.jsonl to TensorBoard or W&B during the run.

    python tools/mirror.py runs/easy/RUN --to=tensorboard    # pip install tensorboard
    WANDB_MODE=offline python tools/mirror.py runs/easy/RUN --to=wandb    # pip install wandb

Copying ends when the run ends, or on Ctrl-C. A field of an update is called train/NAME, a field of
an evaluation SET/NAME. The x axis is rollouts. If the trainer cuts a resumed log back, all numbers
are written again. Files are written to the run's folder. WANDB_PROJECT names the W&B project
(default isocompute), and the run there is called SWEEP_RUN.
"""
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from config import BadInput, entry  # noqa: E402
from core.log import read_log  # noqa: E402


def scalars(record):
    """Return the numbers of one log record as {name: number}, with names such as val/avg@4."""
    part = dict(step="train", eval=record.get("set", "val")).get(record["type"])
    return {f"{part}/{key}": value for key, value in record.items()
            if part and key not in ("step", "rollouts", "samples", "k")
            and isinstance(value, (int, float))}


def to_tensorboard(folder, config):
    """Return a function write(numbers, rollouts) for TensorBoard's files in `folder`."""
    from torch.utils.tensorboard import SummaryWriter
    writer = SummaryWriter(str(folder), purge_step=0)

    def write(numbers, rollouts):
        for name, value in numbers.items():
            writer.add_scalar(name, value, rollouts)
        writer.flush()
    return write


def to_wandb(folder, config):
    """Return a function write(numbers, rollouts) for a run of W&B."""
    import wandb
    # two sweeps may have runs of the same name
    sweep, run = folder.resolve().parts[-2:]
    run = wandb.init(project=os.environ.get("WANDB_PROJECT", "isocompute"), group=sweep,
                     id=f"{sweep}_{run}", name=f"{sweep}_{run}", dir=str(folder), config=config,
                     allow_val_change=True, resume="allow")
    run.define_metric("*", step_metric="rollouts")
    return lambda numbers, rollouts: run.log(numbers | dict(rollouts=rollouts))


def follow(folder, to, every=5.0):
    """Copy the numbers of a run until it ends, to `to_tensorboard` or `to_wandb`.

    every: seconds between two reads of the log.
    """
    sent = []
    while not sent or sent[-1]["type"] != "end":
        time.sleep(every if sent else 1)
        log = read_log(folder / "log.jsonl")
        if log and (not sent or log[:len(sent)] != sent):
            sent, write = [], to(folder, log[0].get("config"))
        for record in log[len(sent):]:
            if numbers := scalars(record):
                write(numbers, record["rollouts"])
        sent = log


def main(argv):
    if not argv or {"-h", "--help"} & set(argv):
        return print(__doc__.strip())
    if len(argv) != 2 or argv[1] not in ("--to=tensorboard", "--to=wandb"):
        raise BadInput(f"{' '.join(argv)}: expected RUN --to=tensorboard or RUN --to=wandb")
    folder, name = Path(argv[0]), argv[1].removeprefix("--to=")
    if not (folder / "log.jsonl").exists():
        raise BadInput(f"{folder}: has no log.jsonl; expected the folder of a run, such as "
                       "runs/easy/Bp6_n4_seed0_...")
    try:
        follow(folder, dict(tensorboard=to_tensorboard, wandb=to_wandb)[name])
    except ImportError as e:
        raise BadInput(f"--to={name}: not installed ({e}); `pip install {name}`") from None


if __name__ == "__main__":
    entry(main)
