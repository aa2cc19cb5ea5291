"""data/reasoning_gym/prepare.py: problems of reasoning-gym, a hundred tasks with verifiers.

    pip install reasoning-gym==0.1.25           # one of its parts is built by a C compiler
    python data/reasoning_gym/prepare.py --task=countdown
    python data/reasoning_gym/prepare.py --task=chain_sum --task_args='{"max_terms": 3}' --size=6000
    python data/reasoning_gym/prepare.py        # prints the names of the tasks

Writes into the data folder, by default the folder of this script
- `problems.jsonl`: {"id", "prompt", "answer", "reasoning_gym"} per line. The prompt is the task's
  question and a line that asks for <answer> tags. `--verifier=reasoning_gym` grades with the field
  `reasoning_gym`.
- `val.jsonl`: n_val more problems, for validation if you train without splits by difficulty.
- `manifest.json`: the settings, and how many problems were left out.

`--task_args` gives the parameters of the task as a JSON object. GALLERY.md in the repository of
reasoning-gym lists them. The problems depend only on the task, its parameters and `--seed`, and no
prompt occurs twice. A problem with only one right answer is left out if this answer, as written to
the file, scores less than 1. The tasks coin_flip and game_of_life_halting cannot be used at all,
because their verifiers accept wrong answers. For problems of two tasks, make two folders and join
their files with `cat`.
"""
import json
import math
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))
from config import BadInput, choose, entry, expect_limits, parse
from core.gym_problems import SETTINGS, draw, gradable, problem_from, tasks, write
from core.problems import is_made


def main(argv):
    own = dict(task=(os.environ.get("TASK", ""), "task, as in countdown; default: $TASK"),
               task_args=("", "the task's parameters as JSON, as in {\"min_terms\": 2}"),
               size=(9000, "how many problems to make"))
    cfg = parse([f"--data={os.path.relpath(HERE)}", *argv], __doc__, own)
    choose("task", cfg["task"], tasks())
    expect_limits(cfg, dict(size=(1, math.inf)))
    folder, cfg["n_val"], name = Path(cfg["data"]), cfg["n_val"] or 300, cfg["task"]
    count = cfg["size"] + cfg["n_val"]
    try:
        args = json.loads(cfg["task_args"] or "{}")
    except (ValueError, RecursionError) as e:
        raise BadInput(f"--task_args={cfg['task_args'][:80]}: expected a JSON object, as in "
                       f"--task_args='{{\"max_terms\": 3}}' ({e})") from None
    if is_made(folder, cfg, SETTINGS):
        print(f"{folder}/problems.jsonl: exists already, nothing to do")
        return
    drawn = draw(name, args, count, cfg["seed"])
    made = [problem_from(one, name, args, i) for i, one in enumerate(drawn)]
    good = gradable(made, cfg)
    if not good:
        raise BadInput(f"--task={name}: its verifier grades none of {len(made)} problems when "
                       "they are written to a file; choose another task")
    left_out = len(made) - len(good)
    if len(good) < count:
        print(f"--task={name}: {len(good)} of {count} problems, since only {len(made)} differ "
              f"and its verifier does not grade {left_out}", file=sys.stderr)
    write(folder, good, cfg, left_out=left_out)


if __name__ == "__main__":
    entry(main)
