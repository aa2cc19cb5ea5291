"""core/gym_problems.py: draw problems from reasoning-gym and write those that it can grade.

    for one in draw("countdown", {}, 100, seed=0):
        problem = problem_from(one, "countdown", {}, number)
"""
import json
import random

from config import BadInput
from core import sandbox
from core.log import save_json
from core.probe import first_line
from core.problems import set_hash, write_problems

INSTRUCTION = "\n\nGive your final answer between <answer> and </answer>."
NO_ANSWER = "(any that fits)"  # the field `answer` of a problem with several right answers
SETTINGS = "task task_args size n_val seed".split()
# The verifiers of the first two accept wrong answers; composite only joins other tasks
LEFT_OUT = {"coin_flip", "game_of_life_halting", "composite"}
STALE = 1000  # after this many draws without a new problem, the task has no more


def tasks():
    """Return the tasks that can be graded. Raise BadInput if reasoning-gym is missing."""
    try:
        from reasoning_gym.factory import DATASETS
    except ImportError:
        raise sandbox.missing_library("reasoning_gym") from None
    return sorted(DATASETS.keys() - LEFT_OUT)


def draw(name, args, count, seed, key=lambda entry: entry["question"]):
    """Return `count` entries of a task with different key(entry), or all there are. An entry whose
    key is "" is left out. Raise BadInput if the library refuses the parameters."""
    import reasoning_gym
    from tqdm import tqdm
    entries, stale = {}, 0
    # most tasks make problem i from seed + i, so seeds 0 and 1 would share almost all problems
    rng = random.Random(f"{seed} {name} {json.dumps(args, sort_keys=True)}")

    def stream():
        # some tasks refuse a size above 1,000 or keep all entries in memory
        while count:
            yield from reasoning_gym.create_dataset(name, **args, size=min(count, 1000),
                                                    seed=rng.getrandbits(31))
    try:
        with tqdm(total=count, desc=name, unit="problem", mininterval=1, delay=2) as bar:
            for one in stream():
                label, stale = key(one), stale + 1
                if label and label not in entries:
                    entries[label], stale = one, 0
                    bar.update()
                if len(entries) == count or stale == STALE:
                    break
    except Exception as e:
        raise BadInput(f"--task={name} --task_args={json.dumps(args)}: reasoning-gym refuses "
                       f"these parameters ({first_line(e)})") from None
    return list(entries.values())


def problem_from(one, name, args, number, instruction=INSTRUCTION):
    """Return the problem, a dict, of `one`, an entry of reasoning-gym."""
    # default=str, because the metadata of some tasks have fractions. `gradable` tests the result
    metadata = json.loads(json.dumps(one["metadata"], default=str))
    grading = dict(task=name, args=args, metadata=metadata)
    answer = one["answer"]
    if not isinstance(answer, str) or not answer.strip():
        grading["answer"], answer = one["answer"], NO_ANSWER
    return dict(id=f"{name}-{number:05d}", prompt=one["question"] + instruction, answer=answer,
                reasoning_gym=grading)


def gradable(problems, cfg):
    """Return the problems whose own answer scores 1, and those with several right answers."""
    pairs = [(p, f"<answer>{p['answer']}</answer>") for p in problems]
    verdicts = sandbox.check("reasoning_gym", pairs, cfg)
    return [p for p, verdict in zip(problems, verdicts)
            if verdict == 1 or p["answer"] == NO_ANSWER]


def write(folder, problems, cfg, **facts):
    """Write n_val of the problems, drawn at random, to val.jsonl and the rest to problems.jsonl,
    which is written last. manifest.json holds the settings and `facts`."""
    order = random.Random(f"val {cfg['seed']}").sample(problems, len(problems))
    if len(order) <= cfg["n_val"]:
        raise BadInput(f"--n_val={cfg['n_val']}: there are only {len(order)} problems; give a "
                       "smaller --n_val")
    kept = {p["id"] for p in order[cfg["n_val"]:]}
    train = [p for p in problems if p["id"] in kept]
    write_problems(folder / "val.jsonl", order[:cfg["n_val"]])
    save_json(folder / "manifest.json", dict(
        settings={key: cfg[key] for key in SETTINGS if key in cfg}, problems=len(train),
        set_hash=set_hash(train), **facts))
    write_problems(folder / "problems.jsonl", train)
    print(f"{folder}/problems.jsonl: {len(train):,} problems, and {cfg['n_val']} in val.jsonl")
