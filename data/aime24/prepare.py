"""data/aime24/prepare.py: the 30 problems of AIME 2024 as a problem file.

    python data/aime24/prepare.py
    python data/aime24/prepare.py --source=Maxwell-Jia/AIME_2024:aime_2024_problems.parquet
    python data/aime24/prepare.py \\
        --source=LLM360/guru-RL-92k:online_eval/math__aime_repeated_8x_240.parquet  # drops copies
    python evaluate.py --model=MODEL --val_set=data/aime24/problems.jsonl

Use the file to evaluate models, and to remove its problems from training sets. The docstring of
data/guru_math/prepare.py describes what is read, written and left out.
"""
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))
from config import entry  # noqa: E402
from core.questions import prepare  # noqa: E402

AIME24 = dict(name="aime24", source="HuggingFaceH4/aime_2024:data/train-00000-of-00001.parquet",
              revision="2fe88a2f1091d5048c0f36abc874fb997b3dd99a")


def main(argv):
    # no length limit, because only test problems in the file are kept out of training sets
    words = f"--data={os.path.relpath(HERE)}", "--against=none", "--model=none"
    prepare([*words, *argv], AIME24, __doc__)


if __name__ == "__main__":
    entry(main)
