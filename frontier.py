"""frontier.py: the logs of a sweep -> a curve for each (B_p, n), the frontier, n*(C), and how sure one may be of it.

    python frontier.py --runs=runs/easy                                 # avg@4 over rollouts, a panel for each B_p
    python frontier.py --runs=runs/easy --metric=worst@4 --unit=tokens  # another reward, another unit of compute
    python frontier.py --runs=runs/easy --view=joint                    # best over (B_p, n); or fixed_B, best_worst, ...
    python frontier.py --runs="runs/easy runs/easy:train runs/hard" --view=compare

Reads `log.jsonl` or `log.jsonl.gz` in every subfolder of `runs`, and `sweep.json` there if there is one, to say which of
the planned runs are missing. Writes `frontier.json` and `frontier.png` (`frontier_VIEW.*` for another view than fixed_Bp) to
`out`, or else to `runs`. Next: fit_sigmoid.py.

Views: `fixed_Bp` n against M, a panel for each B_p. `fixed_B` B_p n <= B, over M, a panel for each B. `joint` best over
(B_p, n). `best_worst` best n by metric. `sensitivity` reward over n and over B_p. `pass1` pass rates of the training
problems. `compare` several sweeps, or folder:train and folder:SET of one. `all` all but compare, the logs read once.

1. Runs that can be compared: one config apart from B_p, n and seed, one validation file. What is left out is listed with
   the reason. The reward of an evaluation comes from its counts of right answers per problem.
2. One curve for each (B_p, n) through all evaluations of all its seeds. Not through the record-breaking ones: the maximum
   of noisy evaluations lies above the truth. `reward` is monotone, the best so far; `last` is not, the last checkpoint.
3. The frontier is the highest curve at each C, among the runs that reached C. Choosing it on the data that score it makes
   it look better than it is, so it is chosen on all seeds but one and scored on that one, or with one seed on half of the
   samples. Two estimators of n*(C): `envelope` is the n of the highest curve; `records` is the paper's.
4. Noise, in three parts. Problems: all runs share them, so each draw moves all curves together; it holds the rollouts too.
   Seeds: the deviations of runs from their cell's curve, pooled over cells, with Student's t for their number. Without
   counts per problem: the binomial noise of the evaluations. The interval of a crossing is the stretch around it
   where the difference of the two curves is not told from zero.

To use it elsewhere copy it with config.py and fit_sigmoid.py. Needs numpy, scipy; matplotlib for the figures.
"""
import math
from collections import Counter
from pathlib import Path

import numpy as np

from config import BadInput, aside, at_k, complete, derive, entry, experiment, parse, read_log, save_json
from fit_sigmoid import (RULES, at_bounds, budget_ticks, choose_form, curve, fit_curve, half_width, invert, linear_fit,
                         monotone, shape, si, simplest,
                         smoother, told_apart, wrap)

GRID = 81  # budgets at which curves are compared, evenly spaced in log C; crossings are interpolated between them
BINS = 64  # a run's evaluations are averaged in this many bins of log C, so that the work grows with the runs alone


# ---------------------------------------------------------------------------------------------------------------------
# Logs -> runs

def gpu_hours(steps, ranks):
    """GPU-hours of training up to each update: {step: hours}, evaluations left out where the log has the parts' times."""
    hours, total = {0: 0.0}, 0.0
    for r in steps:
        if "gen_s" in r and "train_s" in r:
            total += (r["gen_s"] + r["train_s"]) * ranks / 3600
        elif isinstance(r.get("wall_s"), (int, float)):
            total = r["wall_s"] * ranks / 3600
        else:
            return {}
        hours[r["step"]] = total
    return hours


def read_run(folder, metric="avg@4", unit="rollouts", part="val"):
    """One run folder -> dict(run, config, B_p, n, seed, C, counts, reward, ...), or the reason why not (a str).

    C (E,) in `unit`, strictly rising; rollouts, step (E,). counts (E, P): right answers of `samples` for each problem, None
    where the log has none; then reward (E,) is the stored field and trials (E,) the rollouts behind each. part: the `set` of
    the evaluations, or "train" for the reward of the updates. status: that of the end record, "" without one.
    """
    path = next((folder / name for name in ("log.jsonl", "log.jsonl.gz") if (folder / name).exists()), None)
    try:
        records = read_log(path)
    except BadInput as e:
        return str(e)
    headers = [r for r in records if r.get("type") == "header" and isinstance(r.get("config"), dict)]
    if not headers:
        return "no header"
    cfg, evals = headers[-1]["config"], {}
    if not all(isinstance(cfg.get(key), int) and cfg[key] > 0 for key in ("B_p", "n")):
        return "its header names no B_p and n"
    steps = [r for r in records if r.get("type") == "step" and isinstance(r.get("step"), int)]
    hours = gpu_hours(steps, headers[-1].get("ranks", 1)) if unit == "gpu_hours" else {}
    B = cfg["B_p"] * cfg["n"]

    def spent(r, step):
        x = dict(updates=step, gpu_hours=hours.get(step)).get(unit, r.get(unit))
        return x if isinstance(x, (int, float)) and math.isfinite(x) else None
    if part == "train":  # one point for the updates between two evaluations; their rollouts come from the policy before
        windows, before, width = {}, dict(step=0, rollouts=0, tokens=0), max(cfg.get("eval_every", 1), B)
        for r in steps:
            x = spent(before, before["step"])
            if isinstance(r.get("reward"), (int, float)) and x is not None:
                window = windows.setdefault(before.get("rollouts", 0) // width, [])
                window.append((x, r["reward"], before["step"], before.get("rollouts", 0), r.get("rollouts", 0)))
            before = r
        for i, window in windows.items():
            x, reward, step, rollouts, _ = (float(np.mean(v)) for v in zip(*window))
            if window[-1][-1] < (i + 0.5) * width:  # the run ended in the first half of this window
                continue
            if not rollouts:  # the base model's update alone: what a rollout costs is known from the whole run
                x, rollouts = spent(before, before["step"]), before["rollouts"]
            middle = (i + 0.5) * width  # the same for every B
            x = middle if unit == "rollouts" else x * middle / rollouts
            # the rollouts of a problem have its pass rate in common: taken as one, which gives the noise an upper bound
            evals[x] = dict(train=reward, step=step, rollouts=middle, trials=cfg["B_p"] * len(window))
        metric = "train"
    else:
        for r in records:
            # equal C (a log written by hand): the later record counts
            if r.get("type") == "eval" and r.get("set", "val") == part and spent(r, r.get("step", 0)) is not None:
                if "correct" in r or r.get(metric) is not None:
                    evals[spent(r, r.get("step", 0))] = r
    if len(evals) < 3:
        return f"too few evaluations of {part} with {unit} and {metric} or counts: {len(evals)}, 3 are needed"
    C = sorted(evals)
    evals = [evals[c] for c in C]
    try:
        task = {(r.get("set_hash"), r.get("samples"), len(r.get("correct", ())), r.get("problems")) for r in evals}
    except TypeError:
        return "an evaluation whose `correct`, `samples` or `problems` is not of the log's format"
    if len(task) > 1:
        return "its evaluations differ in problem file or samples"
    samples, counts = evals[0].get("samples"), None
    if "correct" in evals[0]:
        try:
            counts = np.array([r["correct"] for r in evals])
            if counts.dtype.kind not in "iu" or counts.ndim != 2 or counts.min() < 0 or counts.max() > samples:
                raise ValueError
        except (TypeError, ValueError):
            return f"its counts of right answers are not numbers from 0 to samples = {samples}"
        counts = counts.astype(np.uint8 if samples < 256 else np.int32)
    try:
        # best@k and worst@k of k rollouts are one draw for a problem
        each = (samples or 0) / (1 if metric.startswith(("avg", "train")) else int(metric.split("@")[1]))
        trials = np.array([r.get("trials") or (r.get("problems") or 0) * each for r in evals], float)

        reward = np.array([r[metric] for r in evals], float) if counts is None else right(counts, metric, samples).mean(1)
    except BadInput:  # k above the samples: all runs have as few
        raise
    except (KeyError, TypeError, ValueError):
        reward = np.array([math.nan])
    if not (np.isfinite(reward).all() and reward.min() >= 0 and reward.max() <= 1):
        return f"its {metric} is not a number from 0 to 1 somewhere"
    end = [r for r in records if r.get("type") == "end"]
    rollouts, step = (np.array([r.get(key) or 0 for r in evals], float) for key in ("rollouts", "step"))
    return dict(
        run=folder.name, config=cfg, B_p=cfg["B_p"], n=cfg["n"], seed=cfg.get("seed", 0), task=task.pop(), data=headers[-1].get("train_set_hash"),
        C=np.array(C, float), rollouts=rollouts, step=step, counts=counts, reward=reward, samples=samples, trials=trials,
        status=end[-1].get("status", "") if end else "",
        per_rollout=1.0 if unit == "rollouts" else C[-1] / max(rollouts[-1], 1),
        passes=[r for r in records if r.get("type") == "train_pass" and r.get("samples") and (r.get("rollouts") or r.get("fresh"))
                and len(r["samples"]) == len(r.get("ids", ())) == len(r.get("correct", ()))],
        biased=metric in headers[-1].get("biased", ()), source=headers[-1].get("source", ""))


def read_runs(folder, metric="avg@4", unit="rollouts", part="val"):
    """All runs of a sweep that can be compared: (runs, dropped), dropped a list of dict(run, why[, B_p]).

    Raises BadInput where the folder does not exist or nothing in it can be used.
    """
    if not Path(folder).is_dir():
        raise BadInput(f"--runs={folder}: no such folder")
    runs, dropped = [], []
    for path in sorted(p for p in Path(folder).iterdir() if (p / "log.jsonl").exists() or (p / "log.jsonl.gz").exists()):
        run = read_run(path, metric, unit, part)
        if isinstance(run, str):
            dropped.append(dict(run=path.name, why=run))
        else:
            runs.append(run)

    def keep(test):
        for run in list(runs):
            why = test(run)
            if why:
                runs.remove(run)
                dropped.append(dict(run=run["run"], why=why, B_p=run["B_p"]))

    def science(run):
        return tuple((key, str(value)) for key, value in sorted(experiment(run["config"]).items()))
    if runs:
        most = Counter(map(science, runs)).most_common(1)[0][0]
        keep(lambda run: "another config than most runs: " + ", ".join(
            f"{key}={a} for {b}" for (key, a), (_, b) in zip(science(run), most) if a != b) if science(run) != most else "")
    if runs:
        usual = Counter(run["task"] for run in runs).most_common(1)[0][0]
        keep(lambda run: "" if run["task"] == usual else "other validation problems or number of samples than most runs")
        data = {s: Counter(run["data"] for run in runs if run["seed"] == s).most_common(1)[0][0] for s in {run["seed"] for run in runs}}
        keep(lambda run: "" if run["data"] == data[run["seed"]] else "other training problems than most runs of its seed")
        longest = {}
        for run in sorted(runs, key=lambda run: -run["C"][-1]):
            longest.setdefault((run["B_p"], run["n"], run["seed"]), run["run"])
        keep(lambda run: "" if longest[run["B_p"], run["n"], run["seed"]] == run["run"] else
             f"the same B_p, n and seed as {longest[run['B_p'], run['n'], run['seed']]}, which goes at least as far")
    if not runs:
        first = f"; {dropped[0]['run']}: {dropped[0]['why']}" if dropped else ""
        raise BadInput(f"--runs={folder}: no run to analyse{first}")
    if not any(ended(run) for run in runs):
        raise BadInput(f"--runs={folder}: no finished run to analyse ({len(runs)} unfinished)")
    from sweep import planned
    plan = planned(folder)[0]
    for run in runs:  # one that a larger C continued keeps its first header: the sweep's C is its budget where it made all of its updates
        if plan and run["rollouts"][-1] <= plan["C"] < run["rollouts"][-1] + run["B_p"] * run["n"]:
            run["config"] = run["config"] | dict(C=plan["C"])
    if runs[0]["counts"] is None and not runs[0]["trials"].all():
        raise BadInput(f"--runs={folder}: {runs[0]['run']}: its evaluations have neither counts per problem nor `problems` "
                       "and `samples`, so their noise is not known")
    return sorted(runs, key=lambda run: (run["B_p"], run["n"], run["seed"])), dropped


def right(counts, metric, samples):
    """Right answers of `samples` (any shape) -> the metric of each problem (same shape)."""
    return np.array(at_k(metric, samples), np.float32)[counts]


def ended(run):
    """True where the run will not go on: a run that was stopped can be resumed."""
    return run["status"] not in ("", "stopped")


def missing_cells(folder, runs, dropped):
    """The cells of sweep.json, less the pruned, that have no finished run: a list of dict(B_p, n, seed, why); empty without the file."""
    have = {(run["B_p"], run["n"], run["seed"]): run for run in runs}
    from sweep import planned
    out = []
    for cell in planned(folder)[1]:
        run = have.get((cell["B_p"], cell["n"], cell["seed"]))
        if run is None or not ended(run):
            why = "unfinished" if run else "dropped or no log" if dropped else "no log"
            out.append(dict(B_p=cell["B_p"], n=cell["n"], seed=cell["seed"], why=why))
    return out


def reach(run):
    """The range of C that a run's curve stands for: from its first evaluation after the base model to its last.

    Evaluations come after whole updates of B = B_p n rollouts, so one that is due at `eval_every` comes up to B late, and
    M = floor(C / B) leaves up to B of the budget unspent. Both ends are widened by that much and no more: otherwise the n
    whose B happens to divide best would stand on the frontier alone, at either end.
    """
    B, x, cfg = run["B_p"] * run["n"], run["rollouts"], run["config"]
    first, last = (i for i in np.flatnonzero(run["C"] > 0)[[0, -1]])
    due, budget, lo, hi = cfg.get("eval_every", 0), cfg.get("C", 0), x[first], x[last]
    if due <= lo < due + B:
        lo = max(due, min(B, lo))
    if run["status"] == "budget" and hi <= budget < hi + B:
        hi = budget
    return run["C"][first] * lo / max(x[first], 1), run["C"][last] * hi / max(x[last], 1)


# ---------------------------------------------------------------------------------------------------------------------
# Record-breaking points and crossings: pure functions of arrays

def record_breaking(reward, width):
    """The paper's thinning of a run: (E,) rewards in order of C -> mask (E,) of the points whose reward, in bins of `width`,
    is above that of all points before (section 4, "Data analysis workflow"; the first point counts).

    Example: rewards .501 .504 .512 .508 .516 in bins of .005 -> True False True False True.
    """
    bins = np.floor(np.asarray(reward) / width + 1e-9)  # 0.57 / 0.005 is 113.99999999999999
    return bins > np.concatenate([[-np.inf], np.maximum.accumulate(bins)[:-1]])


def pooled_records(C, reward, n, width, window=5):
    """The estimator `records`: the record-breaking points of all runs taken together, and the running average of log2 n.

    C, reward, n (E,): the record-breaking points of every run, those of the base model at C = 0 included, which only set
    the mark to beat. Returns dict(C, n, reward, log2_n_mean) in order of C; the average is over `window` neighbours.
    """
    order = np.lexsort((-reward, C))  # at equal C the highest first, so that no lower one counts as a record
    C, reward, n = C[order], reward[order], n[order]
    keep = record_breaking(reward, width) & (C > 0)
    C, reward, n, half = C[keep], reward[keep], n[keep], window // 2
    mean = [float(np.mean(np.log2(n[max(i - half, 0):i + half + 1]))) for i in range(len(n))]
    return dict(C=C, n=n, reward=reward, log2_n_mean=mean)


def crossings(x, ahead):
    """Where a difference of two curves turns positive: ahead (G,) on the grid x (G,), NaN where either is not defined.

    Returns the list of upward crossings, interpolated linearly in x.
    """
    a, b = ahead[:-1], ahead[1:]
    at = np.flatnonzero((a <= 0) & (b > 0))  # NaN compares false
    return [float(x[i] - a[i] * (x[i + 1] - x[i]) / (b[i] - a[i])) for i in at]


def switches(x, Y):
    """Where the frontier changes hands: Y (N, G) curves on x = log C, NaN outside their runs.

    Returns (on_top (G,) index into Y, [dict(x, a, b, why)]), a and b the indices before and after. why: `crossing`;
    `begins`, the new curve's runs begin above the old one; `ends`, the old curve's runs end, and nothing was overtaken.
    """
    on_top, out = np.nanargmax(Y, axis=0), []
    for i in np.flatnonzero(np.diff(on_top)):
        a, b = on_top[i], on_top[i + 1]
        why = "ends" if np.isnan(Y[a, i + 1]) else "begins" if np.isnan(Y[b, i]) else "crossing"
        at = crossings(x[i:i + 2], (Y[b] - Y[a])[i:i + 2]) if why == "crossing" else []
        out.append(dict(x=at[0] if at else float(x[i + 1]), a=int(a), b=int(b), why=why))
    return on_top, out


def decline(C, values):
    """How far a run's last evaluation lies below its best: (from C, fall, standard error of it); values (E, P).

    The best of many noisy evaluations looks better than it is. So the best is chosen on every second problem and the fall
    measured on the others, both ways round, which takes that bias out. The error is over problems.
    """
    fall, at = np.zeros(values.shape[1]), 0
    for half in (0, 1):
        at = values[:, half::2].mean(1).argmax()
        fall[1 - half::2] = (values[at] - values[-1])[1 - half::2]
    return C[at], fall.mean(), fall.std(ddof=1) / math.sqrt(len(fall))


# ---------------------------------------------------------------------------------------------------------------------
# Runs -> curves with their noise

def evaluations(run, metric, halves=None):
    """A run's evaluations, averaged in bins of log C: dict(C (E,), R (E,), w (E,), V (E, P) or None, sd (E,) or None).

    V: the metric of each problem; w: the weight of a bin of m evaluations, 1 / (1/m + 1/10), since a run drifts and those
    of one bin err together; sd: the binomial error of R, where there are no counts. halves: a generator that splits the
    samples of each problem at random into two halves; then V2 (2, E, P) is the metric of each, None where k is too large.
    start (E,): the first evaluation of each bin.
    """
    C, seen = run["C"], run["C"] > 0
    x = np.log(np.where(seen, C, 1))
    lo, hi = x[seen].min(), x[seen].max()
    place = np.where(seen, 1 + np.minimum((x - lo) / max(hi - lo, 1e-9) * BINS, BINS - 1).astype(int), 0)
    if len(C) <= BINS:
        place = np.arange(len(C))
    _, start, m = np.unique(place, return_index=True, return_counts=True)

    def mean(a):
        return np.add.reduceat(a, start, axis=0, dtype=float) / m.reshape(-1, *[1] * (a.ndim - 1))
    out = dict(C=mean(C), w=1 / (1 / m + 1 / 10), V=None, V2=None, sd=None, start=start)
    if run["counts"] is None:
        R = mean(run["reward"])
        return out | dict(R=R, sd=np.sqrt(np.maximum(R * (1 - R), 1e-4) / mean(run["trials"]) / m))
    s = run["samples"]
    out["V"] = mean(right(run["counts"], metric, s))
    k = 1 if metric.startswith("avg") else int(metric.split("@")[1])  # avg@k is one number for every k
    if halves is not None and s >= 2 * k:
        first = halves.hypergeometric(run["counts"], s - run["counts"], s // 2)
        parts = (first, s // 2), (run["counts"] - first, s - s // 2)
        out["V2"] = np.array([mean(right(c, "avg@1" if k == 1 else metric, size)) for c, size in parts])
    return out | dict(R=out["V"].mean(1))


def mean_of(a, axis):
    """The mean over an axis without its NaNs, NaN where there is nothing else."""
    seen = ~np.isnan(a)
    return np.where(seen.any(axis), np.nansum(a, axis) / np.maximum(seen.sum(axis), 1), np.nan)


def curves_of(runs, metric, cfg):
    """The curve of each (B_p, n) with its noise: (grid (G,), form, held-out errors, list of dicts, one for each cell).

    Each cell: Y (G,) monotone, last (G,) not, inside (G,) where its runs reached, noise (K, G) draws of its error, folds
    (F, G) curves whose errors are independent (of its seeds, or of the halves of its samples; None with neither), and the
    fit. Draws k of all cells belong together: a draw of the problems moves all of them.
    """
    rng, K = np.random.default_rng(cfg["seed"]), cfg["boot"]
    names = sorted({(run["B_p"], run["n"]) for run in runs})
    groups = [[run for run in runs if (run["B_p"], run["n"]) == name] for name in names]
    F = min(map(len, groups))  # folds: of the seeds, or with one seed of the samples
    by_seed = F > 1
    data = [[evaluations(run, metric, None if by_seed else rng) for run in g] for g in groups]
    ranges = [(min(lo), max(hi)) for lo, hi in (zip(*map(reach, g)) for g in groups)]
    ends = min(lo for lo, _ in ranges), max(hi for _, hi in ranges)
    grid = np.geomspace(*ends, GRID)
    grid[[0, -1]] = ends  # exactly, not to rounding
    joined = [{key: np.concatenate([e[key] for e in d]) for key in ("C", "R", "w")} for d in data]
    form, local, held_out = choose_form([(j["C"], j["R"], j["w"]) for j in joined])
    P = 0 if runs[0]["counts"] is None else runs[0]["counts"].shape[1]
    draw = rng.standard_normal((K, P)) / math.sqrt(max(P * (P - 1), 1))
    out, spread, shared = [], [], []
    for name, group, d, j, (lo, hi) in zip(names, groups, data, joined, ranges):
        p, Y, H = linear_fit(j["C"], j["R"], j["w"], grid, form, local)
        inside, S = (grid >= lo) & (grid <= hi), len(group)
        parts = np.split(np.arange(len(j["C"])), np.cumsum([len(e["C"]) for e in d])[:-1])  # a run's columns of H
        # each seed's own curve, as a deviation; a seed that ended early has no weight beyond its end, and no deviation there
        weight = np.array([H[:, c].sum(1) for c in parts])  # (S, G), sums to 1
        there = (weight > 0.3 / S) & inside
        weight = np.where(there, weight, np.nan)
        own = np.array([H[:, c] @ (j["R"] - curve(p, j["C"]))[c] for c in parts]) / weight
        own, seeds = own - mean_of(own, 0), there.sum(0)
        noise, folds = np.zeros((K, GRID)), Y + np.array([mean_of(own[i::F], 0) for i in range(F)]) if by_seed else None
        if P:
            each = np.array([H[:, c] @ (e["V"] - e["R"][:, None]) for c, e in zip(parts, d)])  # (S, G, P), of problems
            noise += draw @ each.sum(0).T
            if S > 1:  # what problems and seeds hold together is in the problems' part already
                shared.append(np.nansum(((each / weight[:, :, None] - each.sum(0)) / P) ** 2, (0, 2)) * (seeds > 1))
        else:
            sd = np.concatenate([e["sd"] for e in d])
            noise += rng.standard_normal((K, len(sd))) @ (H * sd).T
        if S > 1:
            spread.append((np.where(there & (seeds > 1), own, 0), np.maximum(seeds - 1, 0)))
        if not by_seed and all(e["V2"] is not None for e in d):
            folds = np.array([Y + sum(H[:, c] @ (e["V2"][h].mean(1) - e["R"]) for c, e in zip(parts, d)) for h in (0, 1)])
        last = Y if local else curve(p, grid) + smoother(j["C"], j["w"], grid) @ (j["R"] - curve(p, j["C"]))
        best = np.where(inside, Y, np.nan)
        best[inside] = monotone(Y[inside])
        out.append(dict(B_p=name[0], n=name[1], runs=group, p=p, C=j["C"], R=j["R"], Y=best, last=last, inside=inside,
                        reach=(lo, hi), noise=noise, folds=folds, points=[(e["C"], e["R"]) for e in d],
                        seeds=np.maximum(seeds, 1), split="seeds" if by_seed else "samples"))
    if spread and K:
        from scipy.special import chdtri
        df = np.maximum(sum(nu for _, nu in spread), 1)  # (G,), pooled over cells
        pool = np.concatenate([own for own, _ in spread]) / np.sqrt(df)  # (runs, G)
        total = np.maximum((pool ** 2).sum(0), 1e-12)
        pool *= np.sqrt(np.clip(1 - sum(shared) / df / total, 0, 1)) if shared else 1
        t = np.sqrt(df / chdtri(df, rng.random((K, 1))))  # (K, G), Student's t: one quantile of chi-square along C
        for cell in out:
            cell["noise"] += t * (rng.standard_normal((K, len(pool))) @ pool) / np.sqrt(cell["seeds"])
    if any(c["folds"] is None for c in out):
        for c in out:
            c["folds"] = None
    return grid, form + " + local" * local, held_out, out


def best_of(several):
    """Cells of several B_p -> one curve for each n, that of its best B_p at each budget, named by B_p (G,).

    The noise is that of the cell on top, so the small bias of choosing it is not in the interval.
    """
    out = []
    for n in sorted({c["n"] for c in several}):
        same = [c for c in several if c["n"] == n]
        Y = np.array([c["Y"] for c in same])
        top, some = np.where(np.isnan(Y), -np.inf, Y).argmax(0), ~np.isnan(Y).all(0)

        def pick(a):  # (cells, ..., G) -> (..., G), of the cell on top
            return np.take_along_axis(a, top.reshape(1, *[1] * (a.ndim - 2), -1), 0)[0]
        out.append(dict(n=n, Y=np.where(some, pick(Y), np.nan), inside=some, split=same[0]["split"],
                        last=pick(np.array([c["last"] for c in same])), noise=pick(np.array([c["noise"] for c in same])),
                        B_p=np.array([c["B_p"] for c in same])[top], runs=[run for c in same for run in c["runs"]],
                        reach=(min(c["reach"][0] for c in same), max(c["reach"][1] for c in same))))
    return out


def honest(several):
    """The frontier's reward without the winner's curse, over cells: (G,), or None where they have no folds.

    On each fold the cell is taken that is on top of the mean of the other folds, and scored on this one.
    """
    if several[0]["folds"] is None:
        return None
    Y = np.array([c["Y"] for c in several])  # (N, G)
    folds = np.where(np.isnan(Y)[:, None], np.nan, np.array([c["folds"] for c in several]))  # (N, F, G)
    count = (~np.isnan(folds)).sum(1, keepdims=True)
    others = (np.nansum(folds, 1, keepdims=True) - folds) / np.where(count > 1, count - 1, np.nan)
    pick = np.where(np.isnan(others), -np.inf, others).argmax(0)  # (F, G)
    fair = mean_of(np.take_along_axis(np.where(np.isnan(others), np.nan, folds), pick[None], 0)[0], 0)
    return np.where(np.isnan(fair), np.where(np.isnan(Y), -np.inf, Y).max(0), fair)


def panel_of(cs, grid, cfg, unit, several=None):
    """One panel of frontier.json: cs, one curve for each n, cells of curves_of or best_of `several` cells, on `grid` (G,).

    Shapes below: N values of n, G budgets, K draws of the noise. NaN stands where no run of that n reached that budget.
    """
    ns = [c["n"] for c in cs]
    Y, noise = np.array([c["Y"] for c in cs]), np.array([c["noise"] for c in cs])  # (N, G), (N, K, G)
    some = ~np.isnan(Y).all(0)
    grid, Y, noise, x = grid[some], Y[:, some], noise[:, :, some], np.log(grid[some])
    last = np.where(np.isnan(Y), np.nan, np.array([c["last"] for c in cs])[:, some])
    B_p = np.array([np.broadcast_to(c["B_p"], len(some))[some] for c in cs])  # (N, G)
    on_top, found = switches(x, Y)
    columns, spent = np.arange(len(grid)), {c["n"]: float(np.mean([run["per_rollout"] for run in c["runs"]])) for c in cs}
    best, fair = Y[on_top, columns], honest(several or cs)
    fair = None if fair is None else fair[some]
    half = half_width(noise[on_top, :, columns].T) if len(noise[0]) else None

    def crossing(a, b, at):  # where the curve of b overtakes that of a: those C at which their difference is not told from 0
        ok = ~np.isnan(Y[a] + Y[b])
        gap = Y[a] - Y[b], noise[b] - noise[a]
        lo, hi = invert(x[ok], gap[0][ok], half_width(gap[1][:, ok]), at) if half is not None else (None, None)
        B = B_p[b][np.searchsorted(x, at).clip(0, len(x) - 1)] * ns[b]
        M = math.exp(at) if unit == "updates" else math.exp(at) / spent[ns[b]] / B
        return {"C": math.exp(at), "from": ns[a], "to": ns[b], "reward": float(np.interp(at, x, Y[b])),
                "lo": None if lo is None else math.exp(lo), "hi": None if hi is None else math.exp(hi), "M": M}
    turns = [crossing(s["a"], s["b"], s["x"]) | dict(why=s["why"]) for s in found]
    for s in turns:
        if s["why"] != "crossing":
            s.update(lo=None, hi=None)
    pairs = [crossing(a, b, at) for a in range(len(ns)) for b in range(a + 1, len(ns)) for at in crossings(x, Y[b] - Y[a])]

    # the law's surface: budgets that the runs of all n cover, without those n whose runs stop early. Pruned cells stay as far below the best as
    # at their end, as surely as there: that pruning gave up on a cell, often for the budget alone, is no evidence against it
    gone = {i for i, c in enumerate(cs) if not stayed([c])}
    S, D = Y.copy(), noise.copy()
    for i in gone:
        end = np.flatnonzero(~np.isnan(Y[i]))[-1]
        S[i, end + 1:] = best[end + 1:] - (best[end] - Y[i, end])
        D[i, :, end + 1:] = noise[on_top[end + 1:], :, columns[end + 1:]].T + (noise[i, :, end] - noise[on_top[end], :, end])[:, None]
    full = [i for i, c in enumerate(cs) if i in gone or c["reach"][1] >= 0.8 * max(c["reach"][1] for c in cs)]
    both = np.flatnonzero(~np.isnan(S[full]).any(0))
    left = [ns[i] for i in range(len(ns)) if i not in full]
    surface = None
    if len(both) and grid[both[-1]] >= 4 * grid[both[0]]:
        pick = both[np.unique(np.linspace(0, len(both) - 1, 31).round().astype(int))]
        surface = dict(C=grid[pick], ns=[ns[i] for i in full], Y=np.round(S[np.ix_(full, pick)], 5), left_out=left,
                       noise=np.round(D[full][:, :, pick].swapaxes(0, 1), 5))
    runs, shown, near = [run for c in cs for run in c["runs"]], best if fair is None else fair, []
    for j in sorted({*range(0, len(grid), 4), len(grid) - 1}):
        ok = np.flatnonzero(~np.isnan(Y[:, j]))
        same = told_apart(Y[ok, j], noise[ok, :, j].T)
        near.append(dict(C=grid[j], set=[ns[i] for i, yes in zip(ok, same) if yes]))
    last_top = np.nanargmax(last, 0)
    return dict(
        ns=ns, range=[grid[0], grid[-1]], runs_used=[r["run"] for r in runs], seeds=sorted({r["seed"] for r in runs}),
        B_p=int(B_p[0, 0]) if (B_p == B_p[0, 0]).all() else None, per_rollout=spent,
        switches=turns, crossings=pairs, near=near, surface=surface,
        envelope=dict(C=grid, n=[ns[i] for i in on_top], B_p=B_p[on_top, columns], reward=shown, highest=best,
                      lo=None if half is None else shown - half, hi=None if half is None else shown + half),
        curse="not removed: a cell with one seed, and fewer than 2k samples for each problem" if fair is None else
        "removed: chosen on the other seeds, scored on one" if cs[0]["split"] == "seeds" else
        "removed: chosen on half of the samples, scored on the other half",
        last=dict(n=[ns[i] for i in last_top], reward=last[last_top, columns]),
        edge=grid_edge(ns, ns[on_top[-1]], int(B_p[on_top[-1], -1]), grid[-1], cfg))


def add_points(panel, cs, grid, cfg):
    """Adds to a panel with one B_p what needs its runs: curves with parameters and bands, points, records, declines."""
    runs = [run for c in cs for run in c["runs"]]

    def records_of(runs):  # C, reward, n of their record-breaking points, three arrays
        masks = [record_breaking(run["reward"], cfg["bin"]) for run in runs]
        return [np.concatenate([np.broadcast_to(run[key], run["C"].shape)[m] for run, m in zip(runs, masks)])
                for key in ("C", "reward", "n")]
    base = [run["reward"][0] for run in runs if run["C"][0] == 0]
    curves, biased = [], []
    for c in cs:
        ok, p = c["inside"], c["p"]
        flags, half = at_bounds(p, c["C"]), half_width(c["noise"][:, ok]) if len(c["noise"]) else None
        if shape(p, c["C"].max()[None])[0] < 0.75:
            flags.append("asymptote not seen: the runs end on the rise")
        curves.append(dict(
            n=c["n"], **p, asymptote=p["base"] + p["amp"], flags=flags, reached=c["reach"],
            seeds=[r["seed"] for r in c["runs"]],
            C=grid[ok], reward=c["Y"][ok], last=c["last"][ok], lo=None if half is None else c["Y"][ok] - half,
            hi=None if half is None else c["Y"][ok] + half, end=np.mean([r["reward"][-1] for r in c["runs"]]),
            best_so_far=np.mean([r["reward"].max() for r in c["runs"]])))
        C, R, _ = records_of(c["runs"])
        seen = ok & (len(np.unique(C)) > 1)
        biased.append(np.where(seen, curve(fit_curve(C, R, form=p["form"]), grid) if seen.any() else 0, np.nan))
    env, biased = panel["envelope"], np.array(biased)[:, np.isin(grid, panel["envelope"]["C"])]
    top = np.nanmax(np.where(np.isnan(biased), -np.inf, biased), 0)
    records = pooled_records(*records_of(runs), cfg["bin"])
    seen = np.isfinite(top)
    records |= dict(frontier=top, above=float(np.mean((top - env["reward"])[seen])) if seen.any() else None)
    return panel | dict(curves=curves, records=records, base=np.mean(base) if base else None, declines=declining(runs),
                        points=[dict(n=c["n"], seed=run["seed"], C=C, reward=round(R, 5)) for c in cs
                                for run, (Cs, Rs) in zip(c["runs"], c["points"]) for C, R in zip(Cs.tolist(), Rs.tolist())])


def predict(cs, grid):
    """How well each rule for n*(C), fitted to budgets up to C/2, C/4, C/8, picks n at C: dict(rows, recommended, why).

    With two seeds or more the rule sees all but one, and its n is scored on that one against the n on top of the others with
    all their budgets; else on the same runs. Regret is in reward, averaged over targets C evenly spaced in log C, error in
    octaves of n. Cs: the cells of one B_p.
    """
    F = len(cs[0]["folds"]) if cs[0]["split"] == "seeds" else 1
    ns, Y = np.log2([c["n"] for c in cs]), np.array([c["Y"] for c in cs])  # (N,), (N, G)
    test = np.array([c["folds"] for c in cs]) if F > 1 else Y[:, None]  # (N, F, G)
    test = np.where(np.isnan(test) | np.isnan(Y)[:, None], Y[:, None], test)  # a seed that ended early: the others' curve
    others = (F * test.mean(1, keepdims=True) - test) / (F - 1) if F > 1 else test
    full = np.where(np.isnan(test), -np.inf, others).argmax(0)  # (F, G), the best n by all budgets of the other seeds
    hi = np.nanmax(np.where(np.isnan(Y), np.nan, grid))
    losses = {name: {} for name in RULES}
    for cut in hi / 2 ** (np.arange(2, 40) / 2):
        past = np.flatnonzero(grid <= cut * (1 + 1e-9))
        if len(past) < 5:
            break
        seen = np.full((len(cs), F, len(past)), -np.inf)
        for i, c in enumerate(cs):
            seed = np.repeat(np.arange(len(c["points"])), [len(C) for C, _ in c["points"]])
            w = np.array([(c["C"] <= cut) & ((F == 1) | (seed % F != f)) for f in range(F)], float)
            if w.sum(1).min() >= 4 and (c["C"][c["C"] <= cut] > 0).sum() >= 3:
                p = fit_curve(c["C"], np.tile(c["R"], (F, 1)), w, form=c["p"]["form"])
                seen[i] = np.where(np.isnan(Y[i, past]), -np.inf, curve(p, grid[past]))
        some = np.isfinite(seen).any((0, 1))
        if np.isfinite(seen).all(2).any(1).sum() < 2 and some.sum() < 5:
            continue
        for factor in (2, 4, 8):
            j = int(np.abs(np.log(grid / (cut * factor))).argmin())
            if cut * factor > hi * 1.01 or some.sum() < 5:
                continue
            there = np.flatnonzero(~np.isnan(Y[:, j]))
            for f in range(F):
                path = ns[seen[:, f][:, some].argmax(0)]
                want = full[f, j]
                for name, rule in RULES.items():
                    guess = np.clip(rule(grid[past][some], path)(grid[[j]])[0], ns[there[0]], ns[there[-1]])
                    got = there[np.abs(ns[there] - guess).argmin()]
                    loss = test[want, f, j] - test[got, f, j], abs(guess - ns[want])
                    losses[name].setdefault((factor, f), []).append(loss)
    if not losses["last n"]:
        return dict(rows=[], recommended=None, why="too few budgets to predict any from those at half of them")
    rows = [dict(rule=name, factor=factor, **{key: float(np.mean([v[i] for f in range(F) for v in by.get((factor, f), [])]))
                                              for i, key in enumerate(("regret", "octaves"))})
            for name, by in losses.items() for factor in sorted({factor for factor, _ in by})]
    # the units of the error: seeds, or with one the targets, which err together
    units = {name: [np.mean([v[0] for (_, f), vs in by.items() if f == u for v in vs]) for u in range(F)] if F > 1 else
             [v[0] for vs in by.values() for v in vs] for name, by in losses.items()}
    error = f"over {F} seeds" if F > 1 else "over budgets of the same runs, which err together"
    name, why = simplest(units, error)
    return dict(rows=rows, recommended=name, why=why, seeds=F, regret={key: float(np.mean(v)) for key, v in units.items()},
                judged="on a seed that the rule did not see" if F > 1 else "on the same runs, one seed")


def values_at(cs, j):
    """Curves at one budget, index j of the grid: Y (N,) and their noise (K, N)."""
    return np.array([c["Y"][j] for c in cs]), np.array([c["noise"][:, j] for c in cs]).T


def options(all_cells, grid, cfg):
    """A practitioner's table: at the largest budget and 1/2, 1/4, 1/8 of it, every (B_p, n) that is within delta of the
    best or not told from it: a list of dict(C, rows), a row with B_p, n, M, lr, reward, gap to the best and its half width.
    """
    out = []
    for C in grid[-1] / 2.0 ** np.arange(4):
        j = int(np.abs(np.log(grid / C)).argmin())
        here = [c for c in all_cells if not np.isnan(c["Y"][j])]
        if not here or C < grid[0]:
            continue
        Y, noise = values_at(here, j)
        same, top = told_apart(Y, noise), int(Y.argmax())
        rows = []
        for i, c in enumerate(here):
            if same[i] or Y[top] - Y[i] <= cfg["delta"]:
                rollouts = int(grid[j] / np.mean([r["per_rollout"] for r in c["runs"]]))
                d = derive(dict(cfg["head"], B_p=c["B_p"], n=c["n"], C=rollouts))
                half = float(half_width(noise[:, top] - noise[:, i])) if len(noise) and i != top else None
                rows.append(dict(B_p=c["B_p"], n=c["n"], M=d["M"], lr=d["lr"], reward=Y[i], gap=Y[top] - Y[i], half=half,
                                 told=not same[i]))
        out.append(dict(C=grid[j], rows=sorted(rows, key=lambda r: r["gap"])))
    return out


def gain(run, metric):
    """What a run gained: dict(last, gain, lo, hi), its last evaluation and that less the base model's, with a 90% interval.

    Paired by problem, normal over problems, which covers the rollouts' noise and not another seed of training.
    """
    last = dict(last=run["reward"][-1], gain=None, lo=None, hi=None)
    if run["C"][0] == 0 and run["counts"] is not None and run["counts"].shape[1] > 1:
        each = np.subtract(*right(run["counts"][[-1, 0]], metric, run["samples"]))
        half = 1.645 * each.std(ddof=1) / math.sqrt(len(each))
        last.update(gain=each.mean(), lo=each.mean() - half, hi=each.mean() + half)
    return last


def declining(runs):
    """The runs whose last evaluation lies more than 2 standard errors below their best, which a monotone curve hides."""
    falls = [(run, *decline(run["C"], run["counts"] / run["samples"])) for run in runs
             if run["counts"] is not None and run["counts"].shape[1] > 3]
    return [dict(run=run["run"], n=run["n"], seed=run["seed"], since=C, fall=fall, se=se) for run, C, fall, se in falls
            if fall > 2 * se > 0]


def grid_edge(values, value, other, C, cfg, axis="n"):
    """dict(n, side, add, text) where the best n at the largest budget is the panel's smallest or largest, else None.

    values: all n at the B_p `other`; with axis="B_p" all B_p at the n `other`.
    """
    if len(values) < 2 or value not in (values[0], values[-1]):
        return None
    side, more = ("largest", 2 * value) if value == values[-1] else ("smallest", value // 2)
    out = {axis: value, "side": side, "add": None}
    text = f"{axis} = {value} is the {side} of the grid and on top at C = {si(C)}, so {axis}* may lie beyond"
    if more < (2 if axis == "n" else 1) or cfg["B_max"] and other * more > cfg["B_max"]:
        why = f"B_max allows no larger {axis}" if side == "largest" else f"no smaller {axis} exists"
        return out | dict(text=f"{text}; {why}")
    add = dict(B_p=other, n=more) if axis == "n" else dict(B_p=more, n=other)
    return out | dict(add=add, text=f"{text}; add B_p = {add['B_p']}, n = {add['n']} next")


# ---------------------------------------------------------------------------------------------------------------------
# Views: cells -> the content of frontier_VIEW.json

def view_fixed_Bp(sweep, cfg):
    """A panel for each B_p: n against M (paper, section 4.1)."""
    panels = {}
    for B_p in sorted({c["B_p"] for c in sweep["cells"]}):
        cs = [c for c in sweep["cells"] if c["B_p"] == B_p]
        panel = panel_of(cs, sweep["grid"], cfg, cfg["unit"])
        panels[f"B_p={B_p}"] = add_points(panel, cs, sweep["grid"], cfg) | dict(
            form=sweep["form"], held_out=sweep["held_out"], prediction=predict(cs, sweep["grid"]),
            runs_dropped=[d for d in sweep["dropped"] if d.get("B_p") == B_p])
    return dict(panels=panels)


def view_joint(sweep, cfg):
    """One panel, best over (B_p, n) at each budget, with the pair, B*(C), and the smallest stable B_p (section 4.3)."""
    panel = panel_of(best_of(sweep["cells"]), sweep["grid"], cfg, cfg["unit"], sweep["cells"])
    env = panel["envelope"]
    B_p, n = int(env["B_p"][-1]), env["n"][-1]
    edges = [grid_edge(sorted({c["n"] for c in sweep["cells"] if c["B_p"] == B_p}), n, B_p, env["C"][-1], cfg),
             grid_edge(sorted({c["B_p"] for c in sweep["cells"] if c["n"] == n}), B_p, n, env["C"][-1], cfg, "B_p")]
    panel["edge"] = next((e for e in edges if e and e["add"]), edges[0] or edges[1])
    pairs = [(int(b), int(n)) for b, n in zip(env["B_p"], env["n"])]
    starts = [0] + [i for i in range(1, len(pairs)) if pairs[i] != pairs[i - 1]]
    runs = [run for c in sweep["cells"] for run in c["runs"]]
    fallen = Counter(run["B_p"] for run in runs if run["status"] == "diverged" or declining([run]))
    # 1 steady run in 40 seems to decline by chance
    stable = [b for b, m in Counter(run["B_p"] for run in runs).items() if fallen[b] <= m / 10]
    panel["segments"] = [dict(C=env["C"][i], B_p=pairs[i][0], n=pairs[i][1], B=pairs[i][0] * pairs[i][1],
                              reward=env["highest"][i]) for i in starts]
    panel["B_star"], panel["stable_B_p"] = [b * n for b, n in pairs], min(stable, default=None)
    return dict(panels={"joint": panel})


def view_fixed_B(sweep, cfg):
    """A panel for each B with two cells or more of B_p n = B: the best with B_p n <= B after M updates (section 4.2).

    Budgets are updates here. n*(M) is fitted; at a full batch B_p*(M) = B / n*(M) is the same law.
    """
    full = Counter(c["B_p"] * c["n"] for c in sweep["cells"])
    sizes = sorted(sorted((B for B in full if full[B] > 1), key=lambda B: -full[B])[:3])
    if not sizes:
        raise BadInput(f"--view=fixed_B: {cfg['runs']} has no two cells with one B = B_p n, so there is nothing to trade")
    panels = {}
    for B in sizes:
        several = [dict(c) for c in sweep["cells"] if c["B_p"] * c["n"] <= B]
        # smaller batches make more updates of a budget; the question ends where the full batches do
        end = max(c["reach"][1] for c in sweep["cells"] if c["B_p"] * c["n"] == B)
        for c in several:
            c["Y"] = np.where(sweep["grid"] <= end * (1 + 1e-9), c["Y"], np.nan)
            c["reach"] = c["reach"][0], min(c["reach"][1], end)
        several = [c for c in several if not np.isnan(c["Y"]).all()]
        panel = panel_of(best_of(several), sweep["grid"], cfg, "updates", several) | dict(B=B)
        if panel["edge"] and panel["edge"]["add"]:  # at a full batch another n is another B_p
            n, text = panel["edge"]["add"]["n"], panel["edge"]["text"].split(";")[0].replace("C =", "M =")
            panel["edge"].update(add=None, text=text)
            if n <= B:
                panel["edge"].update(add=dict(B_p=B // n, n=n), text=f"{text}; add B_p = {B // n}, n = {n} next")
        panels[f"B={B}"] = panel
    return dict(panels=panels, unit="updates", budget=max(p["range"][1] for p in panels.values()))


def stayed(cs):
    """The cells that were not pruned: a pruned sweep's others end early, so nothing is read off where all of its cells still ran."""
    return [c for c in cs if any(run["status"] != "pruned" for run in c["runs"])]


def at_end(cs, grid):
    """The largest budget that the runs of these cells share: its index on the grid, or None where they share none."""
    ok = np.flatnonzero(~np.isnan([c["Y"] for c in cs]).any(0))
    return int(ok[-1]) if len(ok) else None


def view_best_worst(sweep, cfg):
    """The best n at the largest shared budget by metric, avg@k, best@k and worst@k, and B_p (section 4.1, observation 4)."""
    if sweep["runs"][0]["counts"] is None:
        raise BadInput(f"--view=best_worst: {cfg['runs']}: needs counts per problem, as evaluations of our trainer have")
    bars = []
    for kind in ("avg", "best", "worst"):
        metric = f"{kind}@{cfg['k']}"
        grid, _, _, found = curves_of(sweep["runs"], metric, cfg)
        for B_p in sorted({c["B_p"] for c in found}):
            cs = stayed([c for c in found if c["B_p"] == B_p])
            j = at_end(cs, grid)
            if cs and j is not None:
                Y, noise = values_at(cs, j)
                bars.append(dict(metric=metric, B_p=B_p, C=grid[j], n=cs[int(Y.argmax())]["n"], reward=Y.max(),
                                 ns=[c["n"] for c in cs], rewards=Y,
                                 near=[c["n"] for c, ok in zip(cs, told_apart(Y, noise)) if ok]))
    return dict(bars=bars)


def spread(Y, noise):
    """Largest less smallest of rewards Y (N,), and the 95th percentile of what noise (K, N) alone makes of it."""
    return dict(spread=float(np.ptp(Y)), by_noise=float(np.percentile(np.ptp(noise, axis=1), 95)) if len(noise) else None)


def view_sensitivity(sweep, cfg):
    """Best reward over n at fixed B_p and over B_p at fixed n, at the largest shared budget, with spreads (section 4.2)."""
    grid, lines = sweep["grid"], []
    for over, fixed in (("n", "B_p"), ("B_p", "n")):
        for value in sorted({c[fixed] for c in sweep["cells"]}):
            cs = sorted((c for c in stayed(sweep["cells"]) if c[fixed] == value), key=lambda c: c[over])
            j = at_end(cs, grid)
            if len(cs) > 1 and j is not None:
                Y, noise = values_at(cs, j)
                half = half_width(noise) if len(noise) else np.full(len(cs), np.nan)
                lines.append({"over": over, fixed: value, "C": grid[j], "x": [c[over] for c in cs], "reward": Y,
                              "half": half} | spread(Y, noise))
    if not lines:
        raise BadInput(f"--view=sensitivity: {cfg['runs']} has one cell for each n and each B_p, there is nothing to vary")
    return dict(lines=lines)


def thin(samples, correct, k):
    """Pass rates of problems as if each had k rollouts: samples, correct (P,) -> (k + 1,), the share with c = 0..k right.

    Runs differ in n, so in rollouts per problem, and the share at 0 falls with them; k drawn without replacement makes them
    equal, exactly and without drawing: the hypergeometric mean. Problems with fewer than k are left out.
    """
    comb, out = math.comb, np.zeros(k + 1)
    tally = Counter((s, c) for s, c in zip(samples, correct) if s >= k)
    for (s, c), m in tally.items():
        out += m * np.array([comb(c, j) * comb(s - c, k - j) / comb(s, k) for j in range(k + 1)])
    return out / max(sum(tally.values()), 1)


def polarisation(samples, correct):
    """1 - E[p (1 - p)] / (mean p (1 - mean p)) over problems, from unbiased estimates of p (1 - p): 0 where all problems
    have one pass rate, 1 where each is always or never solved. samples, correct (P,), NaN where the mean is 0 or 1.
    """
    s, c = np.asarray(samples, float), np.asarray(correct, float)
    s, c = s[s > 1], c[s > 1]
    mean = (c / s).mean() if len(s) else math.nan
    return 1 - (c * (s - c) / (s * (s - 1))).mean() / (mean * (1 - mean)) if 0 < mean < 1 else math.nan


def view_pass1(sweep, cfg):
    """Pass rates of the training problems, from the rollouts of training, for all n of one B_p at matched n M (section 5.1).

    The B_p is the one with most n. A record covers the updates between two evaluations, or, where all runs have such records
    (--pass_at), it is of the policy at one update.
    """
    with_passes = [run for run in sweep["runs"] if run["passes"]]
    fresh = all(any(r.get("fresh") and r["rollouts"] for r in run["passes"]) for run in with_passes)
    with_passes = [dict(run, passes=[r for r in run["passes"] if bool(r.get("fresh")) == fresh]) for run in with_passes]
    if len(with_passes) < 2:
        raise BadInput(f"--view=pass1: {cfg['runs']}: needs two runs or more with train_pass records, {len(with_passes)} "
                       "have any")
    B_p = max({run["B_p"] for run in with_passes}, key=lambda b: len({run["n"] for run in with_passes if run["B_p"] == b}))
    runs = [run for run in with_passes if run["B_p"] == B_p]
    k = int(min(16, max(2, min(np.quantile(r["samples"], 0.1) for run in runs for r in run["passes"][-1:]))))
    end = min(run["passes"][-1]["rollouts"] for run in runs)
    out = []
    for run in runs:
        moments = []
        for r in run["passes"]:
            h = thin(r["samples"], r["correct"], k)
            moments.append(dict(C=r["rollouts"], problems=len(r["ids"]), zero=h[0], one=h[-1], share=h,
                                polarisation=polarisation(r["samples"], r["correct"])))
        at = min(moments, key=lambda m: abs(m["C"] - end))
        out.append(dict(run=run["run"], n=run["n"], seed=run["seed"], matched=at, moments=moments))
    return dict(B_p=B_p, k=k, nM=end / B_p, fresh=fresh, passes=out)


VIEWS = dict(fixed_Bp=view_fixed_Bp, fixed_B=view_fixed_B, joint=view_joint, best_worst=view_best_worst,
             sensitivity=view_sensitivity, pass1=view_pass1)


def view_compare(cfg):
    """The same frontier for several sweeps side by side: --runs="A B:train C:SET C:best@4", each analysed on its own."""
    entries, sweeps = [], []
    for word in cfg["runs"].split():
        folder, *rest = word.split(":")
        part, metric = "", cfg["metric"]
        for r in rest:
            metric, part = (r, part) if "@" in r else (metric, r)
        sweep = analyse(dict(cfg, runs=folder, metric=metric), part)
        B_p = max({c["B_p"] for c in sweep["cells"]}, key=lambda b: (len([c for c in sweep["cells"] if c["B_p"] == b]), -b))
        cs = [c for c in sweep["cells"] if c["B_p"] == B_p]
        panel = add_points(panel_of(cs, sweep["grid"], sweep["cfg"], cfg["unit"]), cs, sweep["grid"], cfg)
        sweeps.append(sweep)
        entries.append((f"{word}, B_p={B_p}", panel | dict(metric=sweep["label"], covers=sweep["covers"])))
    if len(entries) < 2:
        raise BadInput(f'--runs={cfg["runs"]}: --view=compare wants two sweeps, with a space between, as in --runs="A B"')
    covers = dict.fromkeys(part for s in sweeps for part in s["covers"].split("; "))
    return sweeps[0] | {key: [x for s in sweeps for x in s[key]] for key in ("runs", "dropped", "cells")} | dict(
        label="reward", covers="; ".join(covers)), dict(panels=dict(entries))


# ---------------------------------------------------------------------------------------------------------------------
# Figures

def colours(ns):
    """{n: colour}, by log2 n from dark to light; the yellow end of the map is too faint on white."""
    import matplotlib
    at = np.log2(ns)
    span = max(at.max() - at.min(), 1)
    return {n: matplotlib.colormaps["viridis"](0.92 * (a - at.min()) / span) for n, a in zip(ns, at)}


AXIS = dict(rollouts="rollouts C = $B_p\\,n\\,M$", tokens="training tokens C", gpu_hours="GPU-hours of training C",
            updates="updates M")


def save(fig, path, front, title):
    import matplotlib.pyplot as plt
    runs = f"{len(front['runs_used'])} runs used, {len(front['runs_dropped'])} dropped, {len(front['missing'])} missing"
    fig.suptitle(f"{title} ({runs})\n" + wrap("Intervals: " + front["covers"], 125), fontsize=10.5)
    with aside(path) as part:
        fig.savefig(part, dpi=150)
    plt.close(fig)


def figure_panels(front, path):
    """For each panel the curves and their frontier, below it n*(C)."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.patheffects as effects
    import matplotlib.pyplot as plt
    panels, unit = front["panels"], front["unit"]
    edged = [effects.Stroke(linewidth=6.5, foreground="black"), effects.Normal()]
    cols = min(len(panels), 3)
    rows = -(-len(panels) // cols)
    fig, axes = plt.subplots(2 * rows, cols, figsize=(10.7, 1.3 + 7.2 * rows), squeeze=False, layout="constrained",
                             height_ratios=[2, 1.15] * rows)
    for ax in axes.flat:
        ax.set_visible(False)
    colour = colours(sorted({n for p in panels.values() for n in p["ns"]}))
    for index, (name, panel) in enumerate(panels.items()):
        top, low = axes[2 * (index // cols), index % cols], axes[2 * (index // cols) + 1, index % cols]
        top.set_visible(True), low.set_visible(True), low.sharex(top)
        env = {key: np.array(v) for key, v in panel["envelope"].items() if v is not None}
        for c in panel.get("curves", ()):
            points = [(p["C"], p["reward"]) for p in panel["points"] if p["n"] == c["n"] and p["C"] > 0]
            top.plot(*zip(*points), ".", color=colour[c["n"]], ms=5, alpha=0.5, mew=0, zorder=2)
            top.plot(c["C"], c["reward"], color=colour[c["n"]], lw=1.4, label=f"n = {c['n']}")
            if c["lo"] is not None:
                top.fill_between(c["C"], c["lo"], c["hi"], color=colour[c["n"]], alpha=0.06, lw=0, zorder=0)
        for n in panel["ns"]:
            if "curves" not in panel:
                top.plot([], [], color=colour[n], lw=5, label=f"n = {n}")
        if "lo" in env:
            top.fill_between(env["C"], env["lo"], env["hi"], color="0.88", lw=0, zorder=0, label="90% band of the frontier")
        if "records" in panel:
            top.plot(env["C"], panel["records"]["frontier"], color="C1", lw=1.2, zorder=3,
                     label="frontier by record-breaking points")
        if panel["curse"].startswith("removed"):
            top.plot(env["C"], env["reward"], "--k", lw=1.1, zorder=5, label="frontier, winner's curse removed")
        cuts = np.flatnonzero((np.diff(env["n"]) != 0) | (np.diff(env["B_p"]) != 0)) + 1
        for piece in np.split(np.arange(len(env["n"])), cuts):
            span = slice(piece[0], piece[-1] + 2)  # to the next piece, so that the frontier has no gap
            top.plot(env["C"][span], env["highest"][span], color=colour[env["n"][piece[0]]], lw=5, solid_capstyle="butt",
                     zorder=4, path_effects=edged)
        top.plot([], [], color="0.6", lw=5, path_effects=edged, label="frontier, coloured by n")
        if panel.get("base") is not None:
            top.axhline(panel["base"], color="0.3", ls=":", lw=1.3, label="base model")
        for s in panel["switches"]:
            for ax in (top, low):
                ax.axvline(s["C"], color="0.25", lw=0.8, ls="--" if s["why"] == "crossing" else ":", zorder=1)
            if s["why"] == "crossing" and panel["envelope"]["lo"] is not None:
                low.axvspan(s["lo"] or env["C"][0], s["hi"] or env["C"][-1], color="0.4", alpha=0.07, lw=0,
                            zorder=0, label="90% interval of a switch")
        marks = panel["switches"] if "segments" not in panel else panel["segments"][1:]
        for i, s in enumerate(marks):
            text = f"{s['from']}→{s['to']} at {si(s['C'])}" if "from" in s else f"({s['B_p']}, {s['n']})"
            top.annotate(text, (s["C"], 0.02 + 0.16 * (i % 3)), xycoords=("data", "axes fraction"), rotation=90, fontsize=8,
                         ha="right", va="bottom", color="0.15", zorder=6,
                         bbox=dict(fc="white", ec="none", alpha=0.7, pad=0.6))
        y = [p["reward"] for p in panel.get("points", ()) if p["C"] > 0] or [*env["highest"], *env["reward"]]
        y += [panel["base"]] if panel.get("base") is not None else []
        span = max(y) - min(y) or 0.01
        seeds = f"{len(panel['seeds'])} seed{'s' if len(panel['seeds']) > 1 else ''}"
        top.set(xscale="log", ylabel=panel.get("metric") or front["label"],
                ylim=(min(y) - 0.12 * span, max(y) + 0.05 * span))
        title = f"{name.replace('B_p', '$B_p$')}: {len(panel['runs_used'])} runs, {seeds}"
        top.set_title(wrap(title, 100 // cols), fontsize=10)
        top.tick_params(labelbottom=False)

        low.plot(*zip(*[(a["C"], n) for a in panel["near"] for n in a["set"]]), "s", color="0.62", ms=5, zorder=1,
                 label="n not told from the best")
        low.step(env["C"], env["n"], where="post", color="black", lw=2.2, label="envelope: n on top", zorder=3)
        if "records" in panel:
            records = panel["records"]
            low.plot(records["C"], records["n"], "DC1", ms=3.5, mfc="none", alpha=0.8, label="records: n", zorder=2)
            low.plot(records["C"], 2 ** np.array(records["log2_n_mean"]), "C1", lw=1.5, label="records: running average")
        ends = [panel["ns"][0], panel["ns"][-1]]
        if front["view"] in ("fixed_B", "joint"):
            low.step(env["C"], env["B_p"], where="post", color="C3", lw=1.6, ls="-.", label="$B_p$ on top", zorder=2)
            ends += [env["B_p"].min(), env["B_p"].max()]
        low.set(yscale="log", ylabel="n*(M), $B_p$*(M)" if unit == "updates" else "n*(C)", xlabel=AXIS[unit],
                ylim=(min(ends) / 1.5, max(ends) * 1.5))
        budget_ticks(low, *panel["range"])
        ticks = sorted({*panel["ns"], *(int(e) for e in ends)})
        low.set_yticks(ticks, [str(n) for n in ticks])
        low.minorticks_off()
        low.grid(alpha=0.25, axis="y")
    # one legend for all panels, n in order first
    named = {label: handle for ax in axes.flat for handle, label in zip(*ax.get_legend_handles_labels())}
    order = [f"n = {n}" for n in colour if f"n = {n}" in named] + [label for label in named if not label.startswith("n = ")]
    fig.legend([named[label] for label in order], order, loc="outside lower center", fontsize=9, ncols=min(len(order), 5))
    what = dict(joint="which (B_p, n) is on top", fixed_B="which n is on top with $B_p n \\leq B$",
                compare="the same frontier for several sweeps").get(front["view"], "which n is on top")
    save(fig, path, front, f"{front['label'].capitalize()} against {'updates' if unit == 'updates' else 'compute'}: {what}")


def figure_simple(front, path):
    """The figures of best_worst, sensitivity and pass1."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    view = front["view"]
    if view == "best_worst":
        fig, ax = plt.subplots(figsize=(10.7, 4.6), layout="constrained")
        axes, title = [ax], "The best n by metric"
        metrics, sizes = (list(dict.fromkeys(b[key] for b in front["bars"])) for key in ("metric", "B_p"))
        for b in front["bars"]:
            i = metrics.index(b["metric"])
            x = sizes.index(b["B_p"]) + 0.27 * (i - 1)
            ax.bar(x, b["n"], width=0.24, color=("0.55", "C0", "C1")[i], label=b["metric"])
            ax.plot([x] * len(b["near"]), b["near"], "s-k", lw=1.3, ms=4, label="n not told from the best")
            ax.text(x, b["n"] * 1.12, f"n = {b['n']}", ha="center", fontsize=9)
        ns = sorted({n for b in front["bars"] for n in b["ns"]})
        ax.set(yscale="log", ylim=(ns[0] / 2, ns[-1] * 2), ylabel="best n", xlabel="$B_p$, at its runs' largest budget")
        ax.set_yticks(ns, map(str, ns))
        first = [b for b in front["bars"] if b["metric"] == metrics[0]]
        ax.set_xticks(range(len(sizes)), [f"{b['B_p']}\n(C = {si(b['C'])})" for b in first])
        ax.minorticks_off()
    elif view == "sensitivity":
        fig, axes = plt.subplots(1, 2, figsize=(10.7, 5.2), sharey=True, layout="constrained")
        title = "How much the reward varies with n at fixed $B_p$, and with $B_p$ at fixed n"
        for ax, over, fixed in zip(axes, ("n", "B_p"), ("B_p", "n")):
            lines = [line for line in front["lines"] if line["over"] == over]
            for line, colour in zip(lines, colours([line[fixed] for line in lines]).values() if lines else ()):
                label = f"{fixed} = {line[fixed]}: spread {100 * line['spread']:.1f} points"
                label += "" if line["by_noise"] is None else f", noise alone {100 * line['by_noise']:.1f}"
                ax.errorbar(line["x"], line["reward"], line["half"], color=colour, marker="o", ms=4, capsize=2, lw=1.4,
                            label=label.replace("B_p", "$B_p$"))
            ticks = sorted({x for line in lines for x in line["x"]})
            ax.set_xscale("log", base=2)
            ax.set_xticks(ticks, map(str, ticks))
            ax.set(xlabel=over.replace("B_p", "$B_p$"), ylabel=f"{front['label']}, largest budget" if over == "n" else "")
            if lines:
                ax.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.13))
    else:
        fig, axes = plt.subplots(1, 4, figsize=(10.7, 4.4), layout="constrained", width_ratios=[1.6, 1, 1, 1])
        title = f"pass@1 of the training problems, $B_p$ = {front['B_p']}, " + (
            "from rollouts of their own" if front["fresh"] else "from the rollouts of training")
        k, colour = front["k"], colours(sorted({r["n"] for r in front["passes"]}))
        wide = 0.8 / k / len(colour)
        for i, n in enumerate(colour):
            same, style = [r for r in front["passes"] if r["n"] == n], dict(color=colour[n], label=f"n = {n}")
            share = np.mean([r["matched"]["share"] for r in same], 0)
            axes[0].bar(np.arange(k + 1) / k + (i - (len(colour) - 1) / 2) * wide, share, width=wide, **style)
            for ax, key in zip(axes[1:], ("zero", "one", "polarisation")):
                for r in same:
                    later = [m for m in r["moments"] if m["C"]]
                    ax.plot([m["C"] for m in later], [m[key] for m in later], ".-", lw=1.4, ms=4, **style)
                    for m in r["moments"][:len(r["moments"]) - len(later)]:  # C = 0 has no place on a logarithmic axis
                        ax.axhline(m[key], color="0.6", lw=1, ls=":", label="before training")
        axes[0].set(xlabel=f"right answers of {k}, as a share", ylabel="share of the training problems",
                    title=f"at n M = {si(front['nM'])}")
        for ax, name in zip(axes[1:], (f"share with 0 of {k} right", f"share with {k} of {k} right", "polarisation")):
            ax.set(xscale="log", xlabel="rollouts C", title=name)
            budget_ticks(ax, *ax.get_xlim())
            ax.minorticks_off()
        for ax in axes:
            ax.title.set_fontsize(10)
    named = {label: handle for ax in axes for handle, label in zip(*ax.get_legend_handles_labels())}
    if view != "sensitivity":
        fig.legend(named.values(), named.keys(), loc="outside lower center", fontsize=9, ncols=min(6, len(named)))
    save(fig, path, front, title)


# ---------------------------------------------------------------------------------------------------------------------
# The report

def coverage(runs, cfg):
    """What the intervals of this sweep cover, in words."""
    if not cfg["boot"]:
        return "none (boot=0)"
    text = "90% over validation problems and rollouts"
    if any(run["counts"] is None for run in runs):
        text = "90% over the binomial noise of rewards without counts per problem"
    seeds = Counter((run["B_p"], run["n"]) for run in runs).values()
    if any(run["biased"] for run in runs):
        text += "; the source's estimate of this metric is biased, as its log says"
    if max(seeds) == 1:
        return text + "; one seed: the variation from run to run is not covered"
    many = " to ".join(map(str, sorted({min(seeds), max(seeds)})))
    return text + f" and over seeds, {many} for each cell, their variance pooled over cells (Student's t)"


def report_panel(name, panel, front):
    """A panel as text: switches, the end of the frontier, what is not told apart, what the grid leaves open, predictions."""
    if "held_out" in panel:
        errors = ", ".join(f"{form} {error:.4f}" for form, error in panel["held_out"].items())
        errors = f"held-out error {errors}" if errors else "too few evaluations to compare forms"
        print(f"\n{name}: curves are {panel['form']} ({errors})")
    else:
        print(f"\n{name}:")
    print(f"  {'C':>8}  {'n':>12}  {'M':>7}  {panel.get('metric') or front['metric']:>9}  90% interval of C")
    for s in panel["switches"]:
        lo, hi = ("open" if s[end] is None else si(s[end]) for end in ("lo", "hi"))
        interval = f"{lo} to {hi}" if s["why"] == "crossing" and panel["envelope"]["lo"] is not None else "none"
        note = dict(crossing="", begins="  (its runs begin here)", ends="  (the old n's runs end here)")[s["why"]]
        print(f"  {si(s['C']):>8}  {s['from']:>4} -> {s['to']:<4}  {si(s['M']):>7}  {s['reward']:>9.3f}  {interval}{note}")
    if not panel["switches"]:
        print(f"  none: n = {panel['envelope']['n'][0]} is on top at every budget")
    for s in panel.get("segments", ()):
        print(f"  from C = {si(s['C'])}: B_p = {s['B_p']}, n = {s['n']}, B = {s['B']}, {s['reward']:.3f}")
    if "stable_B_p" in panel:
        print(f"  smallest B_p of which at most one run in ten diverged or declines: {panel['stable_B_p'] or 'none'}")
    for r in front["runs_used"]:
        if "records" in panel and r["B_p"] == panel["B_p"] and r["gain"] is not None and front["view"] == "fixed_Bp":
            print(f"  n = {r['n']:<4} seed {r['seed']}: {r['last']:.3f} at C = {si(r['C'])}, {r['gain']:+.3f} "
                  f"[{r['lo']:+.3f}, {r['hi']:+.3f}] over the base model")
    env, near = panel["envelope"], panel["near"][-1]["set"]
    others = [n for n in near if n != env["n"][-1]]
    print(f"  at C = {si(env['C'][-1])}: n = {env['n'][-1]}, {env['reward'][-1]:.3f}"
          + (f" [{env['lo'][-1]:.3f}, {env['hi'][-1]:.3f}]" if env["lo"] is not None else "")
          + (f", base model {panel['base']:.3f}" if panel.get("base") is not None else "")
          + (f"; not told from it: n = {', '.join(map(str, others))}" if others else ""))
    print(f"  winner's curse {panel['curse']}")
    print(f"  by the last checkpoint, not the best so far: n = {panel['last']['n'][-1]}, {panel['last']['reward'][-1]:.3f}")
    if "records" in panel and panel["records"]["above"] is not None:
        print(f"  curves through record-breaking points alone lie {100 * panel['records']['above']:+.1f} points from this "
              "frontier, on average over log C")
    if panel["edge"]:
        print(f"  edge: {panel['edge']['text']}")
    for c in panel.get("curves", ()):
        if c["flags"]:
            print(f"  curve n = {c['n']}: {', '.join(c['flags'])}")
    for d in panel.get("declines", ()):
        print(f"  {d['run']} declines: {d['fall']:.3f} +- {d['se']:.3f} below its best at C = {si(d['since'])}, which "
              "its monotone curve hides (beyond 2 standard errors, as 1 steady run in 40 is by chance)")


def report(front):
    """The analysis as text."""
    print(f"{front['runs']}, {front['view']}: {len(front['runs_used'])} runs used, {len(front['runs_dropped'])} dropped, "
          f"{front['label']} over {front['unit']}" + (", which is C below" if front["unit"] == "updates" else ""))
    for d in front["runs_dropped"]:
        print(f"  dropped {d['run']}: {d['why']}")
    for note in front["notes"]:
        print(f"  {note}")
    if front["missing"]:
        cells = (f"B_p={m['B_p']} n={m['n']} seed={m['seed']} ({m['why']})" for m in front["missing"])
        print(f"  missing {len(front['missing'])}: " + "; ".join(cells))
    for name, panel in front.get("panels", {}).items():
        report_panel(name, panel, front)
    for b in front.get("bars", ()):
        near = ", ".join(map(str, b["near"]))
        print(f"  B_p = {b['B_p']:<4} {b['metric']:>8}: n = {b['n']:<4} {b['reward']:.3f} at C = {si(b['C'])}; "
              f"not told from the best: {near}")
    for line in front.get("lines", ()):
        fixed = "B_p" if line["over"] == "n" else "n"
        noise = "" if line["by_noise"] is None else f" (noise alone makes up to {100 * line['by_noise']:.1f}, 95%)"
        print(f"  over {line['over']} at {fixed} = {line[fixed]}: spread {100 * line['spread']:.1f} points{noise}, "
              f"C = {si(line['C'])}")
    for r in front.get("passes", ()):
        m = r["matched"]
        print(f"  n = {r['n']:<4} seed {r['seed']}: at C = {si(m['C'])} {m['problems']} problems, none of {front['k']} "
              f"right {m['zero']:.3f}, all {m['one']:.3f}, polarisation {m['polarisation']:.3f}")
    for at in front.get("options", ())[:1]:
        print(f"\nwithin delta = {front['delta']:g} of the best at C = {si(at['C'])}, or not told from it:")
        print(f"  {'B_p':>5} {'n':>5} {'M':>7} {'lr':>9}  {'reward':>6}  below the best")
        for r in at["rows"]:
            print(f"  {r['B_p']:>5} {r['n']:>5} {r['M']:>7} {r['lr']:>9.3g}  {r['reward']:.3f}  {r['gap']:.3f}"
                  + ("" if r["half"] is None else f" +- {r['half']:.3f}") + (", told from it" if r["told"] else ""))
    print(f"\nintervals: {front['covers']}")


def analyse(cfg, part="", runs=None, dropped=()):
    """A sweep's folder, or its runs -> dict(runs, dropped, grid, form, cells, cfg, ...), from which every view starts."""
    part = part or ("train" if cfg["metric"] == "train" else cfg["eval_set"])
    if runs is None:
        runs, dropped = read_runs(cfg["runs"], cfg["metric"], cfg["unit"], part)
    grid, form, held_out, found = curves_of(runs, cfg["metric"], cfg)
    head = max((run["config"] for run in runs), key=lambda c: c.get("C", 0))
    head = complete(head)
    label = "training reward" if part == "train" else f"{'validation' if part == 'val' else part} {cfg['metric']}"
    return dict(runs=runs, dropped=dropped, grid=grid, form=form, held_out=held_out, cells=found, covers=coverage(runs, cfg),
                label=label, head=head, cfg=cfg | dict(B_max=head["B_max"], head=head))


def written(sweep, view, content, cfg):
    """Write frontier.json and its figure (frontier_VIEW for another view than fixed_Bp), and say what is in them."""
    runs, head = sweep["runs"], sweep["head"]
    missing = [] if view == "compare" else missing_cells(cfg["runs"], runs, sweep["dropped"])
    unfinished = [run["run"] for run in runs if not ended(run)]
    notes = [f"unfinished {name}: used up to its last evaluation" for name in unfinished]
    notes += [f"diverged {run['run']}: used up to C = {si(run['C'][-1])}" for run in runs if run["status"] == "diverged"]
    seeds = {(c["B_p"], c["n"]): len(c["runs"]) for c in sweep["cells"]}
    most = max(seeds.values())
    notes += [f"B_p={B_p} n={n}: {m} of {most} seeds" for (B_p, n), m in seeds.items() if m < most]
    if any(run["counts"] is None for run in runs):
        notes.append("no counts per problem: the noise of a reward is taken as binomial over its rollouts, of a training "
                     "reward over its problems" + (f" ({runs[0]['source']})" if runs[0]["source"] else ""))
    notes += [f"pruned B_p={B_p} n={n} at C = {si(C)}" for (B_p, n), C in
              {(run["B_p"], run["n"]): run["rollouts"][-1] for run in runs if run["status"] == "pruned"}.items()]
    # a run that a larger C continued keeps its first header, so the budget is what was reached, if that is more
    reached = max(run["rollouts"][-1] for run in runs)
    front = {key: cfg[key] for key in ("runs", "metric", "unit", "bin", "boot", "delta")} | dict(
        view=view, label=sweep["label"], config=head,
        budget=max(head["C"], reached) if cfg["unit"] == "rollouts" else sweep["grid"][-1], covers=sweep["covers"],
        missing=missing, notes=notes, runs_dropped=sweep["dropped"], runs_unfinished=unfinished,
        options=options(sweep["cells"], sweep["grid"], sweep["cfg"]) if view in ("fixed_Bp", "joint") else [],
        runs_used=[{key: run[key] for key in ("run", "B_p", "n", "seed", "status")}
                   | dict(evals=len(run["C"]), C=run["C"][-1]) | gain(run, cfg["metric"]) for run in runs])
    if view == "pass1":
        front["covers"] = "none"
    front |= content
    out = Path(cfg["out"] or cfg["runs"])
    name = out / ("frontier" if view == "fixed_Bp" else f"frontier_{view}")
    save_json(f"{name}.json", front, indent=None)
    (figure_panels if "panels" in front else figure_simple)(front, f"{name}.png")
    report(front)
    print(f"figure: {name}.png   numbers: {name}.json\n")


def main(argv):
    cfg = parse(argv, __doc__)
    view = cfg["view"]
    if view == "compare":
        sweep, content = view_compare(cfg)
        first = cfg["runs"].split()[0].split(":")[0]
        return written(sweep, view, content, dict(cfg, runs=first, out=cfg["out"] or first))
    sweep, failed = None, []
    for name in VIEWS if view == "all" else [view]:
        sweep = now = sweep or analyse(cfg)
        if name == "fixed_B":
            by_updates = [run | dict(C=run["step"], per_rollout=1 / (run["B_p"] * run["n"])) for run in sweep["runs"]]
            now = analyse(cfg, runs=by_updates, dropped=sweep["dropped"])
        try:
            written(now, name, VIEWS[name](now, now["cfg"]), cfg)
        except BadInput as e:
            if view != "all":
                raise
            failed.append(str(e))
    for line in failed:
        print(f"not drawn: {line}")


if __name__ == "__main__":
    entry(main)
