"""data/reasoning_gym/prepare.py: problems of reasoning-gym, a hundred kinds with verifiers.

    pip install reasoning-gym==0.1.25           # one of its parts is built by a C compiler
    python data/reasoning_gym/prepare.py --task=countdown
    python data/reasoning_gym/prepare.py --task=chain_sum --task_args='{"max_terms": 3}' --size=6000
    python data/reasoning_gym/prepare.py --data=data/two --task="countdown:2 gcd:1" \
        --task_args='[{"min_numbers": 3}, {}]'
    python data/reasoning_gym/prepare.py tasks  # the names; one of them: its parameters

Writes to `data`, by default beside this file,
- `problems.jsonl`: {"id", "prompt", "answer", "reasoning_gym": what `--verifier=reasoning_gym`
  grades by} a line. The prompt is the task's question and a line that asks for <answer> tags;
- `val.jsonl`: n_val further ones, for who trains without splits by difficulty;
- `manifest.json`: the settings, and how many were left out.

`--task` is one name, or several with their shares; `--task_args` the parameters of that one, as a
JSON object, or a list of such. They depend on `--seed` alone, and no prompt stands twice. Left out
are problems that their own verifier does not grade: where the task's own answer, as written to the
file, gets less than 1, or an answer that is not it ("?", "0", "nan") gets 1. Needs reward.py beside
it, config.py, verifier.py, core/engine.py, core/problems.py.
"""
import dataclasses
import difflib
import itertools
import json
import os
import random
import re
import sys
from fractions import Fraction
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))
from core.problems import set_hash, write_problems
from core import sandbox
from config import BadInput, entry, parse, read_json
from core.log import save_json

INSTRUCTION = "\n\nGive your final answer between <answer> and </answer>."
NO_ANSWER = "(any that fits)"  # of tasks whose verifier knows no single answer
SETTINGS = "task task_args size n_val seed".split()
VERSION = "0.1.25"
PROBES = ["?", "0", "nan"]  # "0" is right for every coin_flip of version 0.1.25
STALE = 1000  # draws in a row without a new problem, after which there are no more


def library():
    """{task: (its class, the class of its parameters)}. Raises BadInput where it is missing."""
    try:
        from reasoning_gym.factory import DATASETS
    except ImportError:
        raise sandbox.missing("reasoning_gym") from None
    return {name: classes for name, classes in DATASETS.items() if name != "composite"}


def wanted(cfg):
    """[(task, share, parameters), ...] of --task and --task_args. Raises BadInput."""
    known, words = library(), cfg["task"].split()
    if not words:
        raise BadInput("--task=: names no task of reasoning-gym, as in --task=countdown "
                       "(data/reasoning_gym/prepare.py tasks lists them)")
    try:
        args = json.loads(cfg["task_args"] or "{}")
    except (ValueError, RecursionError) as e:
        raise BadInput(f"--task_args={cfg['task_args'][:80]}: not JSON ({e})") from None
    args = args if isinstance(args, list) else [args] * len(words)
    if len(args) != len(words) or not all(isinstance(a, dict) for a in args):
        raise BadInput(f"--task_args={cfg['task_args']}: expected one JSON object, or a list of "
                       f"{len(words)}, one for each of --task={cfg['task']}")
    out = []
    for word, a in zip(words, args):
        name, _, share = word.partition(":")
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0)[0]
            raise BadInput(f"--task={word}: reasoning-gym has no such task, the nearest is {near}")
        try:
            share = Fraction(share or 1) if re.fullmatch(r"[\d./]{0,12}", share) else 0
        except (ValueError, ZeroDivisionError):
            share = 0
        if not share:
            raise BadInput(f"--task={word}: expected NAME or NAME:SHARE, with a share above 0")
        for key in ("seed", "size"):
            if key in a:
                raise BadInput(f"--task_args={cfg['task_args']}: give {key} as --{key}=")
        if any((name, a) == (other, b) for other, _, b in out):
            raise BadInput(f"--task={cfg['task']}: {name} stands there twice, with one --task_args")
        out.append((name, share, a))
    return out


def draw(name, args, count, seed, keep=lambda entry: True):
    """`count` distinct problems of one task as reasoning-gym makes them, fewer where it has none.

    keep: which of them to take. Raises BadInput with the library's own words where it refuses.
    """
    import reasoning_gym
    from tqdm import tqdm
    found, stale = {}, 0
    # most tasks make problem i from seed + i, so neighbouring seeds would share problems
    rng = random.Random(f"{seed} {name} {json.dumps(args, sort_keys=True)}")

    def stream():
        while count:  # some tasks refuse a larger size, or store it
            yield from reasoning_gym.create_dataset(name, **args, size=min(count, 1000),
                                                    seed=rng.getrandbits(31))
    try:
        with tqdm(total=count, desc=name, unit="problem", mininterval=1, delay=2) as bar:
            for one in stream():
                new = one["question"] not in found and keep(one)
                stale = 0 if new else stale + 1
                if new:
                    found[one["question"]] = one
                    bar.update()
                if len(found) == count or stale == STALE:
                    break
    except Exception as e:
        reason = " ".join(str(e).split()) or type(e).__name__
        raise BadInput(f"--task={name} --task_args={json.dumps(args)}: reasoning-gym refuses "
                       f"({reason[:200]})") from None
    return list(found.values())


def problem_of(one, name, args, number, instruction=INSTRUCTION):
    """A problem file's line from one of reasoning-gym's problems. Raises TypeError or ValueError
    where its metadata are no JSON."""
    grading = dict(task=name, args=args, metadata=json.loads(json.dumps(one["metadata"])))
    answer = one["answer"]
    if not isinstance(answer, str) or not answer.strip():
        grading["answer"], answer = one["answer"], NO_ANSWER
    return dict(id=f"{name}-{number:05d}", prompt=one["question"] + instruction, answer=answer,
                reasoning_gym=grading)


def gradable(problems, cfg):
    """Those that their verifier can grade: its own answer is right, none of PROBES is."""
    def right(answers):
        pairs = [(p, f"<answer>{answer}</answer>") for p, answer in zip(problems, answers)]
        return [verdict == 1 for verdict in sandbox.check("reasoning_gym", pairs, cfg)]
    own = right([p["answer"] for p in problems])
    free = [False] * len(problems)
    for probe in PROBES:
        for i, it_is in enumerate(right([probe] * len(problems))):
            free[i] |= it_is and not same(probe, problems[i]["answer"])
    return [p for p, good, bad in zip(problems, own, free)
            if not bad and (good or p["answer"] == NO_ANSWER)]


def same(one, other):
    """Whether two answers are one text, or one number."""
    if one.strip() == other.strip():
        return True
    try:
        return float(one) == float(other)
    except ValueError:
        return False


def is_made(folder, cfg):
    """True where problems.jsonl is there already, by these settings; by others raises BadInput."""
    out, manifest = folder / "problems.jsonl", folder / "manifest.json"
    if not out.exists():
        return False
    before = read_json(manifest).get("settings") if manifest.exists() else {}
    if not isinstance(before, dict):
        raise BadInput(f"{manifest}: expected an object under `settings`")
    for key in SETTINGS:
        if before.get(key) != cfg[key]:
            raise BadInput(f"--{key}={cfg[key]}: {out} was made with {key}={before.get(key)}; give "
                           "another --data, as splits and runs are of these problems")
    return True


def write(folder, problems, cfg, **facts):
    """problems.jsonl, val.jsonl (n_val of them, drawn) and manifest.json, problems.jsonl last."""
    order = random.Random(f"val {cfg['seed']}").sample(problems, len(problems))
    if len(order) <= cfg["n_val"]:
        raise BadInput(f"--task={cfg['task']}: there are only {len(order)} problems, --n_val="
                       f"{cfg['n_val']} are to validate on")
    kept = {p["id"] for p in order[cfg["n_val"]:]}
    train = [p for p in problems if p["id"] in kept]
    write_problems(folder / "val.jsonl", order[:cfg["n_val"]])
    save_json(folder / "manifest.json", dict(
        settings={key: cfg[key] for key in SETTINGS}, version=VERSION, problems=len(train),
        set_hash=set_hash(train), **facts))
    write_problems(folder / "problems.jsonl", train)
    print(f"{folder}/problems.jsonl: {len(train):,} problems, and {cfg['n_val']} in val.jsonl")


def main(argv):
    if argv[:1] == ["tasks"]:
        return list_tasks(argv[1:])
    cfg = parse([f"--data={os.path.relpath(HERE)}", *argv], __doc__)
    folder, cfg["n_val"] = Path(cfg["data"]), cfg["n_val"] or 300
    parts = wanted(cfg)
    if is_made(folder, cfg):
        print(f"{folder}/problems.jsonl: is there already, nothing to do")
        return
    problems, left_out, numbers = {}, {}, itertools.count()
    shares = [*itertools.accumulate(share for _, share, _ in parts)]
    stops = [round((cfg["size"] + cfg["n_val"]) * share / shares[-1]) for share in shares]
    for (name, _, args), start, stop in zip(parts, [0, *stops], stops):
        count = stop - start
        if not count:
            raise BadInput(f"--task={cfg['task']}: the share of {name} in --size={cfg['size']} is "
                           "no problem at all")
        made = draw(name, args, count, cfg["seed"],
                    lambda one: one["question"] + INSTRUCTION not in problems)
        try:
            made = [problem_of(one, name, args, next(numbers)) for one in made]
        except (TypeError, ValueError) as e:
            raise BadInput(f"--task={name}: its problems cannot be written as JSON ({e})") from None
        good = gradable(made, cfg)
        if not good:
            raise BadInput(f"--task={name}: its verifier grades none of {len(made)} problems as "
                           "they are written to a file")
        if len(good) < count:
            left_out[name] = left_out.get(name, 0) + len(made) - len(good)
            print(f"--task={name}: {len(good)} of {count} problems: it has {len(made)} that "
                  f"differ, its verifier does not grade {len(made) - len(good)}", file=sys.stderr)
        problems |= {p["prompt"]: p for p in good}
    write(folder, list(problems.values()), cfg, left_out=left_out)


def list_tasks(names):
    """Print the tasks, or of those that are named their parameters with their values."""
    known = library()
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0)[0]
            raise BadInput(f"{name}: reasoning-gym has no such task, the nearest is {near}")
        for field in dataclasses.fields(known[name][1]):
            if field.name not in ("seed", "size"):
                print(f"  {field.name} = {field.default!r}")
    if not names:
        print(" ".join(sorted(known)))


if __name__ == "__main__":
    entry(main)
