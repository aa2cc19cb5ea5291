"""core/evaluation.py: problem sets, rollouts counted on them, and the record of an evaluation.

What evaluate.py and the trainer share: both draw `samples` rollouts of each problem and log how
many were solved.
"""
from pathlib import Path

import numpy as np

import verifier
from config import BadInput, at_k, files
from core import engine
from core.problems import copies, read_problems, set_hash
from core.runs import over_distinct


def read_sets(paths, first=""):
    """Problem files, commas between -> {name: problems}.

    The name is the file's, or for a problems.jsonl the folder's; that of the first is `first` where
    this is given. Raises BadInput where two have one name.
    """
    sets = {}
    for path in files(paths):
        name = Path(path).stem
        if name == "problems":
            name = Path(path).resolve().parent.name
        if first and not sets:
            name = first
        if name in sets:
            raise BadInput(f"--val_set={paths}: two sets are called {name}; "
                           "copy one to a file of another name")
        sets[name] = read_problems(path)
    if not sets:
        raise BadInput(f"--val_set={paths}: names no problem file")
    return sets


def count_solved(problems, prompts, generator, cfg, key, rows=None, progress=None):
    """Draw cfg["samples"] rollouts of each problem, or of those in `rows`, and grade them.

    Returns how many were solved of each, a list in order; the sum of all rewards; and the
    verifier's faults, as from `grade`. `key` names the evaluation, such as (seed, "val", step);
    problem j of it has its own noise, whatever `rows` are.
    """
    rows = range(len(problems)) if rows is None else rows
    seeds = [engine.rollout_seed(*key, j) for j in rows]
    rollouts = generator.generate([prompts[j] for j in rows], cfg["samples"], seeds, progress)
    asked = [problems[j] for j in rows]
    rewards, faults = verifier.grade(asked, rollouts, generator.tokenizer, cfg)
    return verifier.solved(rewards).sum(1).tolist(), rewards.double().sum().item(), faults


def mean_reward(total, correct, rollouts):
    """{"reward": the mean} where some of the rewards lie between 0 and 1, else nothing.

    Where all are 0 or 1, their sum `total` is the number of solved rollouts.
    """
    return {} if total == sum(correct) else dict(reward=total / rollouts)


def error_of_mean(values, same=None):
    """Return the standard error over problems of the mean of values (P,); NaN for one problem.

    same: of core.problems.copies. Copies of a problem are one problem.
    """
    each = over_distinct(np.asarray(values), same)
    return float(each.std(ddof=1) / np.sqrt(len(each))) if len(each) > 1 else float("nan")


def summary(correct, samples, k, same=None):
    """{"avg@k": (mean, standard error), ...} over problems; best@k and worst@k are unbiased.

    correct: how many of `samples` rollouts of each problem were solved. The error is the spread
    over distinct problems (`same`: of core.problems.copies) divided by the root of their number: it
    covers the choice of problems and the noise of the rollouts together, and not the seed of
    training.
    """
    stats = {}
    for kind in ("avg", "best", "worst"):
        values = np.array(at_k(f"{kind}@{k}", samples))[correct]  # (P,)
        stats[f"{kind}@{k}"] = float(values.mean()), error_of_mean(values, same)
    return stats


def eval_record(problems, correct, total, faults, cfg, step, rollouts, tokens, name="val"):
    """An evaluation's record in the log; arguments as from `count_solved`."""
    stats, samples = summary(correct, cfg["samples"], cfg["k"]), cfg["samples"]
    same = copies(problems)
    repeated = dict(copies=same) if len(set(same)) < len(same) else {}
    return dict(type="eval", step=step, rollouts=rollouts, tokens=tokens, set=name, k=cfg["k"],
                **{metric: mean for metric, (mean, _) in stats.items()}, samples=samples,
                **mean_reward(total, correct, samples * len(problems)),
                set_hash=set_hash(problems), correct=correct, **repeated, **faults)
