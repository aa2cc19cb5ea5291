"""Kill runs at 20 random moments and check that their logs equal the log of an undisturbed run.

    python tests/bench/kills.py            # 20 kills; five minutes
    python tests/bench/kills.py 5 7        # 5 kills, seed 7 of the moments

A run of data/arithmetic (made by `bash run_sweep.sh easy`) is started again after every kill. If a
run ends, its log is compared with the log of an undisturbed run, without times, and a new run
begins. For each kill, the updates in the log and the checkpoints are printed. The script exits with
1 if a log differs.
"""
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORDS = ["--B_p=4", "--n=8", "--C=640", "--eval_every=160", "--save_every=96", "--samples=4",
         "--lr_base=2e-3", "--sample_every=3"]
ENV = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive")
TIMES = ("wall_s", "gen_s", "train_s", "time", "loading_s", "commit")


def start(folder):
    return subprocess.Popen([sys.executable, "train_grpo.py", *WORDS, f"--out={folder}"], cwd=ROOT,
                            env=ENV, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)


def records(folder):
    """Return (records of the log without times and folders, bytes of samples.jsonl) of a run."""
    log = [json.loads(line) for line in open(folder / "log.jsonl")]
    log[0]["config"].pop("out")
    records = [{k: v for k, v in r.items() if k not in TIMES} for r in log]
    return records, (folder / "samples.jsonl").read_bytes()


def main(kills=20, seed=0):
    rng, done, runs = random.Random(seed), 0, 0
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        begun = time.time()
        child = start(tmp / "reference")
        assert child.wait() == 0, child.stderr.read()
        span, reference = time.time() - begun, records(tmp / "reference")
        while done < kills:
            runs, folder = runs + 1, tmp / str(runs)
            while True:
                child = start(folder)
                try:
                    wait = rng.uniform(0.3 * span, 1.1 * span) if done < kills else None
                    child.wait(timeout=wait)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()
                    done += 1
                    log = folder / "log.jsonl"
                    steps = log.read_bytes().count(b'"type": "step"') if log.exists() else 0
                    left = sorted(p.name for p in (folder / "ckpt").glob("*"))
                    print(f"kill {done}: {steps} updates in the log, checkpoints {left}",
                          flush=True)
                    continue
                assert child.returncode == 0, child.stderr.read()
                break
            same = records(folder) == reference
            print(f"run {runs} has ended: its log is {'equal' if same else 'NOT equal'} to the "
                  "reference", flush=True)
            if not same:
                return 1
    print(f"{done} kills, {runs} runs, all logs equal the reference")
    return 0


if __name__ == "__main__":
    if "--help" in sys.argv:
        sys.exit(print(__doc__))
    sys.exit(main(*map(int, sys.argv[1:])))
