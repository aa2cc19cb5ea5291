r"""data/guru_math/prepare.py: Guru's math part, or another data set, as a problem file.

    python data/guru_math/prepare.py              # downloads Guru's file, and AIME24's first
    python data/guru_math/prepare.py --model=Qwen/Qwen3-4B-Instruct-2507  # the tokenizer for prompt
                                                  # lengths; none = do not measure them
    python data/guru_math/prepare.py --data=data/mine --source=mine.jsonl \
        --question_key=problem --answer_key=solution.final  # any two columns of a file

--source is a .parquet, .jsonl or .jsonl.gz file, or OWNER/NAME:FILE, a file of a data set on the
hub, read at --revision. If the data folder already has a file named FILE, nothing is downloaded.
Writes into the data folder, by default the folder of this script
- `problems.jsonl`: {"id", "prompt", "answer"} per line. The prompt is the question and a sentence
  that asks for \boxed{}.
- `manifest.json`: the source, how many rows were left out and why, and hashes.

A table cell may hold text, bytes, chat turns (the last user turn is the question) or parts of a
message. --question_key may name several columns, separated by commas. The gold is only the final
part of an answer: 18 for "9 * 2 = 18\n#### 18". Golds with doubled backslashes (\\frac) are
repaired. Sentences that ask for a form of the answer other than \boxed{} are removed. If no
sentence asks for \boxed{}, one that does is added.

Rows are left out and counted for these reasons, in this order:
- The question or the answer is missing or not text.
- There are several answers, such as several different boxes.
- A sentence about the form of the answer cannot be removed safely, because it may also be part of
  the question.
- The verifier cannot read the gold.
- The problem contains a problem of the file --against (AIME24).
- The problem is a duplicate of an earlier problem (rules in core/duplicates.py).

Because leaks and duplicates are left out, the training problems, the validation problems (split
off by sample.py) and AIME24 have no problem in common.
"""
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))
from config import entry  # noqa: E402
from core.questions import prepare  # noqa: E402

GURU = dict(name="guru", source="LLM360/guru-RL-92k:train/math__combined_54.4k.parquet",
            revision="2e2790a962a3c099bfb5ea61389cbf98a5ea439b")


def main(argv):
    prepare([f"--data={os.path.relpath(HERE)}", *argv], GURU, __doc__)


if __name__ == "__main__":
    entry(main)
