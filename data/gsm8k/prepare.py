r"""data/gsm8k/prepare.py: GSM8K, 7,473 problems of grade-school mathematics, as a problem file.

    DATA=data/gsm8k bash run_sweep.sh easy      # the evening on one GPU; it starts this script
    python data/gsm8k/prepare.py                # the problem files alone
    python evaluate.py --model=runs/SWEEP/RUN --val_set=data/gsm8k/test/problems.jsonl

Writes `problems.jsonl` from the training half of the data set, and `test/problems.jsonl` from its
test half: 1,319 problems, on which nothing is trained or chosen. Training problems that are like a
test problem are left out. Everything else is data/guru_math/prepare.py with another source: it
downloads, reads, checks and writes, and its head describes how. Without a network it says which
files to get into which folder.
"""
import importlib.util
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))
from config import entry, parse  # noqa: E402

path = HERE.parent / "guru_math/prepare.py"
spec = importlib.util.spec_from_file_location("guru_math_prepare", path)
guru = importlib.util.module_from_spec(spec)
spec.loader.exec_module(guru)

# An answer is a solution whose last line is "#### 1,234"; the number is what is matched
GSM8K = dict(guru.GURU, name="gsm8k", revision="e53f048856ff4f594e959d75785d2c2d37b678ee",
             columns=(("question", "answer"),))
FILE = "openai/gsm8k:main/{}-00000-of-00001.parquet"


def main(argv):
    cfg = parse([f"--data={os.path.relpath(HERE)}", *argv], __doc__)
    test = Path(cfg["data"]) / "test"
    if not cfg["source"]:
        held_out = dict(GSM8K, name="gsm8k-test", source=FILE.format("test"),
                        words=(f"--data={test}",))
        of_test = [w for w in argv if not w.startswith(("--data=", "--against="))]
        guru.main([*of_test, f"--data={test}", "--against=none"], held_out, __doc__)
    # with --source it reads that file alone, a part of the data set or another one
    against = [f"--against={test / 'problems.jsonl'}"] * (not cfg["source"])
    train = dict(GSM8K, source=FILE.format("train"), words=(f"--data={cfg['data']}", *against))
    return guru.main(argv, train, __doc__)


if __name__ == "__main__":
    entry(main)
