"""data/aime24/prepare.py: the 30 problems of AIME 2024 as a problem file.

    python data/aime24/prepare.py
    python data/aime24/prepare.py --source=Maxwell-Jia/AIME_2024:aime_2024_problems.parquet
    python data/aime24/prepare.py \\
        --source=LLM360/guru-RL-92k:online_eval/math__aime_repeated_8x_240.parquet  # drops copies
    python evaluate.py --model=MODEL --val_set=data/aime24/problems.jsonl

Use it to evaluate, and to remove these problems from training sets. This is
data/guru_math/prepare.py with another source; its docstring describes what is read, written and
left out.
"""
import importlib.util
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))
from config import entry  # noqa: E402

path = HERE.parent / "guru_math/prepare.py"
spec = importlib.util.spec_from_file_location("guru_math_prepare", path)
guru = importlib.util.module_from_spec(spec)
spec.loader.exec_module(guru)

AIME24 = dict(guru.GURU, name="aime24",
              source="HuggingFaceH4/aime_2024:data/train-00000-of-00001.parquet",
              revision="2fe88a2f1091d5048c0f36abc874fb997b3dd99a", ids=("id", "ID"),
              words=(f"--data={os.path.relpath(HERE)}", "--against=none"))


def main(argv):
    return guru.main(argv, AIME24, __doc__)


if __name__ == "__main__":
    entry(main)
