"""core/evaluation.py: read problem sets, count solved rollouts, make the record of an evaluation.

evaluate.py and the trainer draw `samples` rollouts of each problem, and log how many were solved.
"""
from pathlib import Path

import numpy as np

import verifier
from config import BadInput, at_k, files
from core import engine
from core.problems import copies, read_problems, set_hash
from core.runs import over_distinct


def read_sets(paths, first=""):
    """Return {name: problems} of problem files, whose paths are separated by commas.

    The name of a set is the name of its file, or of its folder if the file is a problems.jsonl.
    first: the name of the first set, if it is not empty. Raises BadInput if two sets have the same
    name.
    """
    sets = {}
    for path in files(paths):
        name = Path(path).stem
        if name == "problems":
            name = Path(path).resolve().parent.name
        if first and not sets:
            name = first
        if name in sets:
            raise BadInput(f"--val_set={paths}: two sets are called {name}; rename one file")
        sets[name] = read_problems(path)
    if not sets:
        raise BadInput(f"--val_set={paths}: expected a problem file")
    return sets


def count_solved(problems, prompts, generator, cfg, key, rows=None, progress=None):
    """Draw cfg["samples"] rollouts of each problem and grade them: (correct, total, faults).

    correct: the number of solved rollouts of each problem, a list. total: the sum of all rewards.
    faults: the verifier's faults, as in verifier.grade. key: the name of the evaluation, such as
    (seed, "val", step), which seeds the rollouts. rows: the indices of the problems to use, or None
    for all; a problem gets the same random numbers with any `rows`.
    """
    rows = range(len(problems)) if rows is None else rows
    seeds = [engine.rollout_seed(*key, j) for j in rows]
    rollouts = generator.generate([prompts[j] for j in rows], cfg["samples"], seeds, progress)
    graded = [problems[j] for j in rows]
    rewards, faults = verifier.grade(graded, rollouts, generator.tokenizer, cfg)
    return verifier.solved(rewards).sum(1).tolist(), rewards.double().sum().item(), faults


def mean_reward(total, correct, rollouts):
    """Return {"reward": mean reward} if a reward is neither 0 nor 1, else {}.

    total, correct: from `count_solved`. If all rewards are 0 or 1, total is the number of solved
    rollouts.
    """
    return {} if total == sum(correct) else dict(reward=total / rollouts)


def error_of_mean(values, same=None):
    """Return the standard error of the mean of values (P,) over problems, or NaN for one problem.

    same: from core.problems.copies. Copies of a problem count as one problem.
    """
    each = over_distinct(np.asarray(values), same)
    return float(each.std(ddof=1) / np.sqrt(len(each))) if len(each) > 1 else float("nan")


def summary(correct, samples, k, same=None):
    """Return {metric: (mean, standard error)} over problems, for avg@k, best@k and worst@k.

    correct: how many of `samples` rollouts of each problem were solved. same: from
    core.problems.copies. best@k and worst@k are unbiased. The error is the standard deviation over
    distinct problems, divided by the square root of their number. It covers the choice of problems
    and the noise of the rollouts, but not the seed of training.
    """
    stats = {}
    for kind in ("avg", "best", "worst"):
        values = np.array(at_k(f"{kind}@{k}", samples))[correct]  # (P,)
        stats[f"{kind}@{k}"] = float(values.mean()), error_of_mean(values, same)
    return stats


def eval_record(problems, correct, total, faults, cfg, step, rollouts, tokens, name="val"):
    """Return the log's record of an evaluation. correct, total, faults: from `count_solved`."""
    stats, samples = summary(correct, cfg["samples"], cfg["k"]), cfg["samples"]
    same = copies(problems)
    repeated = dict(copies=same) if len(set(same)) < len(same) else {}
    return dict(type="eval", step=step, rollouts=rollouts, tokens=tokens, set=name, k=cfg["k"],
                **{metric: mean for metric, (mean, _) in stats.items()}, samples=samples,
                **mean_reward(total, correct, samples * len(problems)),
                set_hash=set_hash(problems), correct=correct, **repeated, **faults)
