"""data/reasoning_gym/prepare.py: problems of reasoning-gym, a hundred tasks with verifiers.

    pip install reasoning-gym==0.1.25           # one of its parts is built by a C compiler
    python data/reasoning_gym/prepare.py --task=countdown
    python data/reasoning_gym/prepare.py --task=chain_sum --task_args='{"max_terms": 3}' --size=6000
    python data/reasoning_gym/prepare.py --data=data/two --task="countdown:2 gcd:1" \
        --task_args='[{"min_numbers": 3}, {}]'
    python data/reasoning_gym/prepare.py tasks  # their names; `tasks NAME` prints its parameters

Writes into the data folder, by default that of this script
- `problems.jsonl`: {"id", "prompt", "answer", "reasoning_gym"} per line. The prompt is the task's
  question and a line that asks for <answer> tags; `--verifier=reasoning_gym` grades by the last
  field;
- `val.jsonl`: n_val more problems, to validate on if you train without splits by difficulty;
- `manifest.json`: the settings, and how many problems were left out.

`--task` is one name, or several with their shares. `--task_args` holds its parameters as a JSON
object, or a list with an object for each task. The problems depend only on these and on `--seed`,
and no prompt occurs twice. A problem is left out if its verifier does not grade it: the task's
answer, as written to the file, scores less than 1, or a wrong answer ("?", "0", "nan") scores 1.
"""
import dataclasses
import difflib
import itertools
import json
import os
import re
import sys
from fractions import Fraction
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))
from config import BadInput, entry, parse
from core.gym_problems import INSTRUCTION, SETTINGS, draw, gradable, problem_from, tasks, write
from core.problems import is_made


def parse_tasks(cfg):
    """Return [(task, share, parameters), ...] of --task and --task_args. Raise BadInput."""
    known, words = tasks(), cfg["task"].split()
    if not words:
        raise BadInput("--task=: expected a task of reasoning-gym, as in --task=countdown "
                       "(data/reasoning_gym/prepare.py tasks lists them)")
    try:
        args = json.loads(cfg["task_args"] or "{}")
    except (ValueError, RecursionError) as e:
        raise BadInput(f"--task_args={cfg['task_args'][:80]}: not JSON ({e})") from None
    args = args if isinstance(args, list) else [args] * len(words)
    if len(args) != len(words) or not all(isinstance(a, dict) for a in args):
        raise BadInput(f"--task_args={cfg['task_args']}: expected one JSON object, or a list of "
                       f"{len(words)}, one for each of --task={cfg['task']}")
    parts = []
    for word, a in zip(words, args):
        name, _, share = word.partition(":")
        if name not in known:
            raise unknown_task(f"--task={word}", name, known)
        try:
            share = Fraction(share or 1) if re.fullmatch(r"[\d./]{0,12}", share) else 0
        except (ValueError, ZeroDivisionError):
            share = 0
        if not share:
            raise BadInput(f"--task={word}: expected NAME or NAME:SHARE, with a share above 0")
        for key in ("seed", "size"):
            if key in a:
                raise BadInput(f"--task_args={cfg['task_args']}: give {key} as --{key}=")
        if any((name, a) == (other, b) for other, _, b in parts):
            raise BadInput(f"--task={cfg['task']}: names {name} twice with equal --task_args")
        parts.append((name, share, a))
    return parts


def unknown_task(words, name, known):
    """Return the BadInput for a task that reasoning-gym does not have."""
    near = difflib.get_close_matches(name, known, 1, 0)[0]
    return BadInput(f"{words}: reasoning-gym has no such task; the nearest is {near}")


def main(argv):
    if argv[:1] == ["tasks"]:
        return list_tasks(argv[1:])
    cfg = parse([f"--data={os.path.relpath(HERE)}", *argv], __doc__)
    folder, cfg["n_val"] = Path(cfg["data"]), cfg["n_val"] or 300
    parts = parse_tasks(cfg)
    if is_made(folder, cfg, SETTINGS):
        print(f"{folder}/problems.jsonl: exists already, nothing to do")
        return
    problems, left_out, numbers = {}, {}, itertools.count()
    shares = [*itertools.accumulate(share for _, share, _ in parts)]
    stops = [round((cfg["size"] + cfg["n_val"]) * share / shares[-1]) for share in shares]
    for (name, _, args), start, stop in zip(parts, [0, *stops], stops):
        count = stop - start
        if not count:
            raise BadInput(f"--task={cfg['task']}: the share of {name} in --size={cfg['size']} is "
                           "less than one problem; give a larger --size or share")
        made = draw(name, args, count, cfg["seed"],
                    lambda one: one["question"] + INSTRUCTION not in problems)
        try:
            made = [problem_from(one, name, args, next(numbers)) for one in made]
        except (TypeError, ValueError) as e:
            raise BadInput(f"--task={name}: its problems cannot be written as JSON ({e})") from None
        good = gradable(made, cfg)
        if not good:
            raise BadInput(f"--task={name}: its verifier grades none of {len(made)} problems when "
                           "they are written to a file; choose another task")
        if len(good) < count:
            left_out[name] = left_out.get(name, 0) + len(made) - len(good)
            print(f"--task={name}: {len(good)} of {count} problems, since only {len(made)} differ "
                  f"and its verifier does not grade {len(made) - len(good)}", file=sys.stderr)
        problems |= {p["prompt"]: p for p in good}
    write(folder, list(problems.values()), cfg, left_out=left_out)


def list_tasks(names):
    """Print all tasks, or the parameters of the named tasks with their defaults."""
    known = tasks()
    for name in names:
        if name not in known:
            raise unknown_task(name, name, known)
        for field in dataclasses.fields(known[name][1]):
            if field.name not in ("seed", "size"):
                print(f"  {field.name} = {field.default!r}")
    if not names:
        print(" ".join(sorted(known)))


if __name__ == "__main__":
    entry(main)
