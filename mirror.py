"""mirror.py: the records of a run's log to TensorBoard or W&B too, for those who look there.

    pip install tensorboard; python train_grpo.py --log_to=tensorboard; tensorboard --logdir runs
    pip install wandb; WANDB_MODE=offline python train_grpo.py --log_to=wandb

Off by default, through their own packages, which requirements.txt leaves out. log.jsonl stays the
log: the analysis reads that alone. A number of a step is train/NAME and one of an evaluation
SET/NAME, over rollouts. TensorBoard's files lie in the run's folder. W&B gets a run of the folder's
name, in the project of WANDB_PROJECT or else isocompute; a resumed run goes on in it.
"""
import importlib.util
import os
import sys

from config import BadInput


def check(cfg):
    """Raise BadInput where the package that `log_to` wants is not installed."""
    package = cfg["log_to"]
    if package and importlib.util.find_spec(package) is None:
        raise BadInput(f"--log_to={package}: the package is not installed; `pip install {package}` "
                       "in this environment, or leave log_to empty: log.jsonl has all of it")


def scalars(record):
    """The numbers of a record of the log as {name: number}: train/reward, val/avg@4, ..."""
    part = dict(step="train", eval=record.get("set", "val")).get(record["type"])
    if part is None:
        return {}
    axes = ("step", "rollouts", "samples", "k")
    return {f"{part}/{key}": value for key, value in record.items() if key not in axes
            and isinstance(value, (int, float)) and not isinstance(value, bool)}


def open_mirror(cfg, folder):
    """A function that takes each record of the log of the run in `folder`; None where `log_to` is
    empty. What a resumed run writes again replaces what was there. Where the package fails (no key,
    no network, a full disk) that is said once, and the run goes on without it."""
    make, on = dict(tensorboard=to_tensorboard, wandb=to_wandb).get(cfg["log_to"]), True

    def guarded(call, *args):
        nonlocal on
        try:
            return call(*args) if on else None
        except Exception as e:  # whatever the package raises: its own log is no reason to end a run
            on = False
            why = " ".join(f"{type(e).__name__}: {e}".split())[:300]
            print(f"{folder}: --log_to={cfg['log_to']} failed ({why}); the run goes on without it, "
                  "log.jsonl has all of it", file=sys.stderr)
    if make is None:
        return None
    write = guarded(make, cfg, folder)
    return lambda record: guarded(write, record)


def to_tensorboard(cfg, folder):
    from torch.utils.tensorboard import SummaryWriter
    writer = None

    def write(record):
        nonlocal writer
        if writer is None:  # of a resumed run, what comes after its checkpoint is purged
            again = record.get("rollouts") if record["type"] != "header" else None
            writer = SummaryWriter(str(folder), purge_step=again)
        if record["type"] == "header":
            text = "\n".join(f"    {key} = {value}" for key, value in record["config"].items())
            writer.add_text("config", text)
        for name, value in scalars(record).items():
            writer.add_scalar(name, value, record["rollouts"])
        if record["type"] in ("eval", "end"):
            writer.flush()
    return write


def to_wandb(cfg, folder):
    import wandb
    # the folder's name is the run's identity, and with the sweep's no two runs meet
    name = f"{folder.parent.name}_{folder.name}"
    run = wandb.init(project=os.environ.get("WANDB_PROJECT", "isocompute"), id=name, name=name,
                     group=folder.parent.name, config=cfg, dir=str(folder), resume="allow")
    run.define_metric("rollouts")
    run.define_metric("*", step_metric="rollouts")

    def write(record):
        found = scalars(record)
        if found:
            run.log(found | dict(rollouts=record["rollouts"]))
        if record["type"] == "end":
            run.finish(exit_code=0 if record["status"] in ("budget", "stopped", "pruned") else 1)
    return write
