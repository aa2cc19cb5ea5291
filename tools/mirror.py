"""tools/mirror.py: copy a run's log.jsonl to W&B (pip install wandb) until the run ends.

    python tools/mirror.py runs/easy/RUN

Fields of updates are called train/NAME, fields of evaluations SET/NAME. W&B's step is `rollouts`,
its project WANDB_PROJECT (default isocompute), its run SWEEP_RUN. The same command continues that
run after the last point it has, even if the trainer went back to a checkpoint.
"""
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, sys.path[0] + "/..")
from config import entry  # noqa: E402
from core.log import read_log  # noqa: E402


def main(argv):
    if {"-h", "--help"} & set(argv):
        return print(__doc__)
    os.chdir(Path(*argv))  # W&B writes its files here
    try:
        import wandb
    except ImportError:
        sys.exit("mirror.py: pip install wandb")
    name, r = "_".join(Path.cwd().parts[-2:]), {}  # two sweeps may have runs of the same name
    # no header is there yet while the trainer loads its model
    run = wandb.init(project=os.environ.get("WANDB_PROJECT", "isocompute"), id=name, name=name,
                     config=dict(*read_log("log.jsonl")[:1]).get("config"), resume="allow")
    while "status" not in r:
        time.sleep(5)
        last = run.step
        for r in read_log("log.jsonl"):
            if r["type"] in ("step", "eval") and r["rollouts"] >= last:
                run.log({f"{r.get('set', 'train')}/{key}": x for key, x in r.items()
                         if type(x) in (int, float)}, step=r["rollouts"])


if __name__ == "__main__":
    entry(main)
