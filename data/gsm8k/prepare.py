"""data/gsm8k/prepare.py: GSM8K, 7,473 problems of grade-school mathematics, as a problem file.

    DATA=data/gsm8k bash run_sweep.sh easy      # one night on one GPU; it starts this script
    python data/gsm8k/prepare.py                # only the problem files
    python evaluate.py --model=runs/SWEEP/RUN --val_set=data/gsm8k/test/problems.jsonl

Writes `problems.jsonl` from the data set's training file, and `test/problems.jsonl` from its test
file. The 1,319 test problems are never used for training or to choose a model. Training
problems that contain or nearly equal a test problem are left out. If --source is given, only that
file is read, and no test file is made.
The docstring of data/guru_math/prepare.py describes what is read, written and left out.
"""
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))
from config import entry, parse  # noqa: E402
from core.questions import OWN, prepare  # noqa: E402

# The column `answer` has a worked solution. Its last line is "#### 1,234", and 1,234 is the gold
GSM8K = dict(name="gsm8k", revision="e53f048856ff4f594e959d75785d2c2d37b678ee")
FILE = "openai/gsm8k:main/{}-00000-of-00001.parquet"


def main(argv):
    cfg = parse([f"--data={os.path.relpath(HERE)}", *argv], __doc__, OWN)
    test, against = Path(cfg["data"]) / "test", []
    if not cfg["source"]:
        # --model again, because the folder of the test problems has no defaults.json
        prepare([f"--model={cfg['model'] or 'none'}", *argv, f"--data={test}", "--against=none"],
                dict(GSM8K, name="gsm8k-test", source=FILE.format("test")), __doc__)
        against = [f"--against={test / 'problems.jsonl'}"]
    prepare([f"--data={cfg['data']}", *against, *argv], dict(GSM8K, source=FILE.format("train")),
            __doc__)


if __name__ == "__main__":
    entry(main)
