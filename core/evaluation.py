"""core/evaluation.py: read problem sets, count solved rollouts and build the log's eval records."""
from pathlib import Path

import numpy as np

import verifier
from config import BadInput, files
from core import engine
from core.models import notify
from core.problems import at_k, copies, read_problems, set_hash


def read_sets(paths, first=""):
    """Return {name: problems} for problem files with commas between. A set is named after its file,
    or after its folder if the file is called problems.jsonl; the first may be named `first`. Of
    problems that are the same (AIME comes 16 times in some files) only the first is left, because
    errors are over independent problems. Raise BadInput if two sets have the same name."""
    sets = {}
    for path in files(paths):
        name = Path(path).stem
        if name == "problems":
            name = Path(path).resolve().parent.name
        if first and not sets:
            name = first
        if name in sets:
            raise BadInput(f"--val_set={paths}: two sets are called {name}; rename one file")
        problems = read_problems(path)
        sets[name] = [problems[i] for i in dict.fromkeys(copies(problems))]
        if repeated := len(problems) - len(sets[name]):
            notify(f"{path}: {repeated} problems are there twice or more often, so they count once")
    if not sets:
        raise BadInput(f"--val_set={paths}: expected a problem file")
    return sets


def count_solved(problems, prompts, generator, cfg, key, rows=None, progress=None):
    """Draw cfg["samples"] rollouts of each problem, grade them, return (correct, total, faults).

    correct: solved rollouts of each problem. total: the sum of all rewards. faults: see
    verifier.grade. rows: indices of the problems, None = all. key: a tuple that seeds this
    evaluation, such as (seed, "val", step).
    """
    rows = range(len(problems)) if rows is None else rows
    seeds = [engine.rollout_seed(*key, j) for j in rows]
    rollouts = generator.generate([prompts[j] for j in rows], cfg["samples"], seeds, progress)
    graded = [problems[j] for j in rows]
    rewards, faults = verifier.grade(graded, rollouts, generator.tokenizer, cfg)
    return verifier.solved(rewards).sum(1).tolist(), rewards.double().sum().item(), faults


def mean_reward(total, correct, rollouts):
    """Return {"reward": the mean} if some rewards are fractions, so that avg@k is not the mean."""
    return {} if total == sum(correct) else dict(reward=total / rollouts)


def error_of_mean(values):
    """Return the standard error of the mean of `values` (P,), one per problem; NaN for one."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def summary(correct, samples, k):
    """Return {metric: {"mean", "se"}} for avg@k, best@k and worst@k. correct: solved rollouts of
    each problem, of `samples`. The standard error `se` covers problems and rollouts, not the seed
    of training."""
    stats = {}
    for kind in ("avg", "best", "worst"):
        values = np.array(at_k(f"{kind}@{k}", samples))[correct]  # (P,)
        stats[f"{kind}@{k}"] = dict(mean=float(values.mean()), se=error_of_mean(values))
    return stats


def eval_record(problems, correct, total, faults, cfg, name="val"):
    """Return the fields of an evaluation of the set `name`. correct, total and faults are from
    `count_solved`."""
    stats, samples = summary(correct, cfg["samples"], cfg["k"]), cfg["samples"]
    return dict(set=name, k=cfg["k"], samples=samples,
                **{metric: stat["mean"] for metric, stat in stats.items()},
                **mean_reward(total, correct, samples * len(problems)),
                set_hash=set_hash(problems), correct=correct, **faults)
