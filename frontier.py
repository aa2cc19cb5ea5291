"""frontier.py: the logs of a sweep -> the best n at every budget, n*(C), the paper's way.

    python frontier.py --runs=runs/easy                                 # a panel for each B_p
    python frontier.py --runs=runs/easy --metric=worst@4 --unit=tokens  # other reward, other axis
    python frontier.py --runs=runs/easy --view=joint                    # other figures: views.py
    python frontier.py --runs=runs/easy --watch                         # again and again, live

The paper's path is the first section, whole: log -> record-breaking points -> one sigmoid for each
n -> the highest curve at each C -> n*(C). Below it: reading and checking logs, where the frontier
changes hands, the figure. How sure all that is stands in noise.py and can be left out: to use the
paper's path elsewhere copy this file and config.py. Needs numpy and scipy; matplotlib to draw.

Reads `log.jsonl` or `log.jsonl.gz` in every subfolder of `runs`, and `sweep.json` there if there is
one. Folders with spaces between, "A B", are one sweep where their experiment is one. As a script it
runs views.py, which writes `frontier.json` and `frontier.png` (`frontier_VIEW.*` for another view)
to `out`, or else to the first of `runs`. Next: fit_sigmoid.py.
"""
import math
from collections import Counter
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from config import (BadInput, aside, at_k, complete, entry, experiment, lrs_of, read_log,
                    read_plan)
from config import config as CONFIG

GRID = 81  # budgets at which curves are compared, evenly spaced in log C


# --------------------------------------------------------------------------------------------------
# The paper's path (section 4, "Data analysis workflow")

def record_breaking(reward, width):
    """(E,) rewards of a run in order of C -> mask (E,) of the points above all points before them.

    Rewards are compared in bins of `width`, the paper's thinning of noisy runs; the first counts.
    Example: .501 .504 .512 .508 .516 in bins of .005 -> True False True False True.
    """
    bins = np.floor(np.asarray(reward) / width + 1e-9)  # 0.57 / 0.005 is 113.99999999999999
    return bins > np.concatenate([[-np.inf], np.maximum.accumulate(bins)[:-1]])


def sigmoid(x, low, rise, k, x0):
    """The paper's curve: reward over x = log10 C, from `low` to `low + rise`, steepest at x0."""
    return low + rise / (1 + np.exp(-np.clip(k * (x - x0), -60, 60)))


def fit_curve(C, reward, top=1.0):
    """The sigmoid through points C (E,) > 0, reward (E,), by least squares: (low, rise, k, x0).

    It rises or is flat, up to `top` at most; it bends within half a decade of the data.
    """
    x = np.log10(C)

    def curve(p):  # p: the height it ends at in place of the rise, so that a bound can hold it
        return p[0], max(p[1] - p[0], 0.0), p[2], p[3]
    lower = np.array([-1.0, 0.0, 0.5, x.min() - 0.5])
    upper = np.array([top, top, 50.0, x.max() + 0.5])
    start = np.clip([reward.min(), max(reward.max(), reward.min() + 1e-3), 3.0, x.mean()], lower,
                    upper)
    return np.array(curve(least_squares(lambda p: sigmoid(x, *curve(p)) - reward, start,
                                        bounds=(lower, upper)).x))


def running_mean(values, window=5):
    """Means over `window` neighbours, fewer at the ends: (E,) -> (E,)."""
    half = window // 2
    return np.array([np.mean(values[max(i - half, 0):i + half + 1]) for i in range(len(values))])


def pooled_records(runs, width):
    """The record-breaking points of all runs taken together: dict(C, n, reward, log2_n_mean), (E,).

    log2_n_mean is their running average of log2 n, to which the paper fits its law. The base model
    at C = 0 only sets the mark to beat.
    """
    points = []
    for run in runs:
        keep = record_breaking(run["reward"], width)
        points += [(C, -reward, run["n"]) for C, reward in zip(run["C"][keep], run["reward"][keep])]
    points = np.array(sorted(points), float).reshape(-1, 3)  # at equal C the highest first
    C, reward, n = points[:, 0], -points[:, 1], points[:, 2].astype(int)
    keep = record_breaking(reward, width) & (C > 0)
    C, reward, n = C[keep], reward[keep], n[keep]
    return dict(C=C, n=n, reward=reward, log2_n_mean=running_mean(np.log2(n)))


def n_star(runs, width=0.005, C=None):
    """n*(C) of the runs of one B_p, the paper's way.

    Returns dict(C (G,), ns (N,), curves (N, G), n (G,)): at each budget the n of the highest curve.
    C: the budgets, by default those that every n has reached to those that any has.
    """
    ns = sorted({run["n"] for run in runs})
    if C is None:
        C = np.geomspace(max(run["C"][run["C"] > 0][0] for run in runs),
                         max(run["C"][-1] for run in runs), GRID)
    curves = np.full((len(ns), len(C)), np.nan)
    for i, n in enumerate(ns):
        # 1. the record-breaking points of each run with this n, all seeds together
        points = []
        for run in runs:
            if run["n"] == n:
                keep = record_breaking(run["reward"], width) & (run["C"] > 0)
                points += zip(run["C"][keep], run["reward"][keep])
        if len({x for x, _ in points}) < 2:  # nothing to put a curve through
            continue
        # 2. one sigmoid through them
        x, y = np.array(sorted(points)).T
        curves[i] = sigmoid(np.log10(C), *fit_curve(x, y))
    # 3. the highest curve at each budget, and 4. its n
    top = np.argmax(np.where(np.isnan(curves), -np.inf, curves), axis=0)
    return dict(C=C, ns=ns, curves=curves, n=np.array(ns)[top])


# --------------------------------------------------------------------------------------------------
# Logs -> runs

def timed(steps):
    """Whether every record of an update has the seconds of its parts, gen_s and train_s."""
    return all(r.get(key) is not None for r in steps for key in ("gen_s", "train_s"))


def gpu_hours(steps, ranks):
    """{step: hours up to it, of all ranks}: of training where the steps are `timed`, else by the
    clock, evaluations and all; {} without either. A record stands for the updates since the one
    before: of those a thinned log has means. Raises BadInput where a time is no number."""
    keys, hours, total, before = ("gen_s", "train_s"), {0: 0.0}, 0.0, 0
    keys = keys if timed(steps) else ("wall_s",)
    for r in steps:
        times = [r.get(key) for key in keys]
        if None in times:
            return {}
        for key, x in zip(keys, times):
            if not isinstance(x, (int, float)) or not math.isfinite(x):
                raise BadInput(f"its {key} at step {r['step']} is not a number")
        total = times[0] if keys == ("wall_s",) else total + sum(times) * (r["step"] - before)
        hours[r["step"]], before = total * ranks / 3600, r["step"]
    return hours


def spender(unit, hours):
    """A function (record, step) -> what had been spent then in `unit`, None where unknown.

    hours: of `gpu_hours`.
    """
    def spent(record, step):
        x = dict(updates=step, gpu_hours=hours.get(step)).get(unit, record.get(unit))
        return x if isinstance(x, (int, float)) and math.isfinite(x) else None
    return spent


def right(counts, metric, samples):
    """Solved rollouts of `samples` (any shape) -> the metric of each problem (same shape)."""
    return np.array(at_k(metric, samples), np.float32)[counts]


def training_rewards(steps, cfg, unit, spent):
    """The training reward as evaluations, {C: record}: one for the updates between two evaluations.

    Their rollouts come from the policy before each update, so the spending before it counts.
    """
    width, windows = max(cfg.get("eval_every", 1), cfg["B_p"] * cfg["n"]), {}
    before = dict(step=0, rollouts=0, tokens=0)
    for r in steps:
        x = spent(before, before["step"])
        if isinstance(r.get("reward"), (int, float)) and x is not None:
            done = before.get("rollouts", 0)
            point = x, r["reward"], before["step"], done, r.get("rollouts", 0)
            windows.setdefault(done // width, []).append(point)
        before = r
    evals = {}
    for i, window in windows.items():
        if window[-1][-1] < (i + 0.5) * width:  # the run ended in the first half of this window
            continue
        x, reward, step, rollouts, _ = (float(np.mean(v)) for v in zip(*window))
        if not rollouts:  # the base model's update alone: a rollout's cost is that of the whole run
            x, rollouts = spent(before, before["step"]), before["rollouts"]
        middle = (i + 0.5) * width  # the same for every B
        x = middle if unit == "rollouts" else x * middle / rollouts
        # the rollouts of a problem share its pass rate: taken as one, an upper bound of the noise
        evals[x] = dict(train=reward, step=step, rollouts=middle, trials=cfg["B_p"] * len(window))
    return evals


def metrics_in(records):
    """The metrics of the evaluations of a log, as text, for an error that names what there is."""
    found = {key for r in records if r.get("type") == "eval" for key in r if "@" in key}
    return ", ".join(sorted(found)) or "none"


def read_evals(evals, metric):
    """Evaluations in order of C -> (counts (E, P) or None, samples, reward (E,), trials (E,)), or a
    text that says why they cannot be used. trials: the rollouts behind each, for noise without
    counts; best@k and worst@k of k rollouts are one draw for a problem."""
    try:
        tasks = {(r.get("set_hash"), r.get("samples"), len(r.get("correct", ())), r.get("problems"))
                 for r in evals}
    except TypeError:
        return "an evaluation whose `correct`, `samples` or `problems` is not of the log's format"
    if len(tasks) > 1:
        return "its evaluations differ in problem file or samples"
    samples, counts = evals[0].get("samples"), None
    if "correct" in evals[0]:
        try:
            counts = np.array([r["correct"] for r in evals])
            if (counts.dtype.kind not in "iu" or counts.ndim != 2 or counts.min() < 0
                    or counts.max() > samples):
                raise ValueError
        except (TypeError, ValueError):
            return f"its counts of solved rollouts are not numbers from 0 to samples = {samples}"
        counts = counts.astype(np.uint8 if samples < 256 else np.int32)
    plain = metric.startswith(("avg", "train"))
    each = (samples or 0) / (1 if plain else int(metric.split("@")[1]))
    try:
        trials = [r.get("trials") or (r.get("problems") or 0) * each for r in evals]
        trials = np.array(trials, float)
        reward = (np.array([r[metric] for r in evals], float) if counts is None
                  else right(counts, metric, samples).mean(1))
    except BadInput:  # k above the samples: all runs have as few
        raise
    except (KeyError, TypeError, ValueError):
        reward = np.array([math.nan])
    if not (np.isfinite(reward).all() and reward.min() >= 0 and reward.max() <= 1):
        return f"its {metric} is not a number from 0 to 1 somewhere"
    return counts, samples, reward, trials


def read_run(folder, metric="avg@4", unit="rollouts", part="val"):
    """One run folder -> dict(run, config, B_p, n, lr, seed, C, reward, ...), or why not, a str.

    lr: its lr_base. C (E,) in `unit`, strictly rising; rollouts, step (E,). counts (E, P): solved
    rollouts of `samples` for each problem, None where the log has none; then reward (E,) is the
    stored field and trials (E,) the rollouts behind each. part: the `set` of the evaluations, or
    "train" for the reward of the updates. status: that of the end record, "" without one.
    """
    names = (folder / "log.jsonl", folder / "log.jsonl.gz")
    try:
        records = read_log(next(path for path in names if path.exists()))
    except BadInput as e:
        return str(e)
    headers = [r for r in records
               if r.get("type") == "header" and isinstance(r.get("config"), dict)]
    if not headers:
        return "no header"
    header, cfg = headers[-1], headers[-1]["config"]
    if not all(isinstance(cfg.get(key), int) and cfg[key] > 0 for key in ("B_p", "n")):
        return "its header names no B_p and n"
    steps = [r for r in records if r.get("type") == "step" and isinstance(r.get("step"), int)]
    try:
        hours = gpu_hours(steps, header.get("ranks", 1))
    except BadInput as e:
        return str(e)
    spent, evals = spender(unit, hours), {}
    if part == "train":
        evals, metric = training_rewards(steps, cfg, unit, spent), "train"
    else:
        for r in records:
            if r.get("type") == "eval" and r.get("set", "val") == part:
                x = spent(r, r.get("step", 0))
                if x is not None and ("correct" in r or r.get(metric) is not None):
                    evals[x] = r  # equal C (a log written by hand): the later record counts
    if len(evals) < 3:
        text = f"too few evaluations of {part} with {unit} and {metric} or counts: {len(evals)}"
        text += ", 3 are needed"
        there = f" (--metric: this log has {metrics_in(records)})"
        return text + ("" if part == "train" else there)
    C = sorted(evals)
    evals = [evals[c] for c in C]
    found = read_evals(evals, metric)
    if isinstance(found, str):
        return found
    counts, samples, reward, trials = found
    passes = [r for r in records if r.get("type") == "train_pass" and r.get("samples")
              and (r.get("rollouts") or r.get("fresh"))
              and len(r["samples"]) == len(r.get("ids", ())) == len(r.get("correct", ()))]
    end = [r for r in records if r.get("type") == "end"]
    rollouts, step = (np.array([r.get(key) or 0 for r in evals], float)
                      for key in ("rollouts", "step"))
    first = evals[0]
    task = first.get("set_hash"), samples, len(first.get("correct", ())), first.get("problems")
    return dict(
        run=folder.name, config=cfg, B_p=cfg["B_p"], n=cfg["n"], seed=cfg.get("seed", 0),
        lr=cfg.get("lr_base", CONFIG["lr_base"]), task=task, data=header.get("train_set_hash"),
        C=np.array(C, float), rollouts=rollouts, step=step,
        counts=counts, reward=reward, samples=samples, trials=trials, passes=passes,
        status=end[-1].get("status", "") if end else "",
        hours=max(hours.values()) if hours and timed(steps) else None,
        device=str(header.get("device", "")),
        per_rollout=1.0 if unit == "rollouts" else C[-1] / max(rollouts[-1], 1),
        biased=metric in header.get("biased", ()), source=header.get("source", ""))


def science(cfg):
    """What all runs of one sweep have in common, in a form that can be compared."""
    return tuple((key, str(value)) for key, value in sorted(experiment(cfg).items()))


def comparable(runs, plans):
    """(runs of one experiment on the same problems, dropped: a list of dict(run, why, B_p, ...)).

    The experiment is that of sweep.json, the sweep that was asked, also where it has no run yet;
    without the file that of most runs. plans: that of each folder, the first one's counts, and the
    lr_base of all. Of two runs of one cell and seed the longer stays.
    """
    dropped, keep, plan = [], list(runs), plans[0]

    def drop(test, **more):
        for run in list(keep):
            why = test(run)
            if why:
                keep.remove(run)
                dropped.append(dict(run=run["run"], why=why, B_p=run["B_p"], **more))

    present = Counter(science(run["config"]) for run in keep)
    usual, whose = science(plan["config"]) if plan else None, "the sweep's"
    if usual is None and present:
        usual, whose = present.most_common(1)[0][0], "most runs'"

    lrs = [lr for p in plans if p for lr in lrs_of(complete(p["config"]))]
    lrs = lrs if plan else {run["lr"] for run in keep}

    def another(run):
        own = science(run["config"])
        if own == usual and run["lr"] in lrs:
            return ""
        wanted = dict(usual)  # it lacks the keys that this experiment does not use
        differ = [f"{key}={a} for {wanted[key]}" for key, a in own if a != wanted.get(key, a)]
        if run["lr"] not in lrs:
            differ.insert(0, f"lr_base={run['lr']:g} for {' or '.join(f'{x:g}' for x in lrs)}")
        return f"another config than {whose}: {', '.join(differ)}"
    drop(another, other=True)
    if keep:
        task = Counter(run["task"] for run in keep).most_common(1)[0][0]
        drop(lambda run: "" if run["task"] == task else
             "other validation problems or number of samples than most runs")
        data = {}
        for seed in {run["seed"] for run in keep}:
            hashes = Counter(run["data"] for run in keep if run["seed"] == seed)
            data[seed] = hashes.most_common(1)[0][0]
        drop(lambda run: "" if run["data"] == data[run["seed"]] else
             "other training problems than most runs of its seed")
    longest = {}
    for run in sorted(keep, key=lambda run: -run["C"][-1]):
        longest.setdefault((run["B_p"], run["n"], run["lr"], run["seed"]), run["run"])

    def shorter(run):
        other = longest[run["B_p"], run["n"], run["lr"], run["seed"]]
        same = f"the same B_p, n and seed as {other}, which goes at least as far"
        return "" if other == run["run"] else same
    drop(shorter)
    return keep, dropped


def folders_of(text):
    """The folders of `runs`: one, or several with spaces between. Raises BadInput where one is not
    there."""
    words = [str(text)] if Path(text).is_dir() else str(text).split()
    for word in words:
        if not Path(word).is_dir():
            raise BadInput(f"--runs={word}: no such folder; run a sweep first, as in "
                           "`bash run_sweep.sh easy`, or name another folder")
    return [Path(word) for word in words]


def read_runs(folder, metric="avg@4", unit="rollouts", part="val", tag="", going=False):
    """All runs of a sweep that can be compared: (runs, dropped), dropped a list of dict(run, why).

    folder: as in `folders_of`. tag: runs of this tag, in place of the one that sweep.json asks for.
    going: also where no run has ended yet. Raises BadInput where nothing can be used.
    """
    found, dropped, folders = [], [], folders_of(folder)
    for path in (path for each in folders for path in sorted(each.iterdir())):
        if (path / "log.jsonl").exists() or (path / "log.jsonl.gz").exists():
            run = read_run(path, metric, unit, part)
            if isinstance(run, str):
                dropped.append(dict(run=path.name, why=run))
            else:
                found.append(run)
    plans = [read_plan(each) for each in folders]
    if tag:
        other = [run for run in found if run["config"].get("tag", "") != tag]
        if len(other) == len(found):
            raise BadInput(f"--tag={tag}: no run in {folder} has this tag")
        dropped += [dict(run=run["run"], why=f"another tag than {tag}", B_p=run["B_p"], other=True)
                    for run in other]
        found = [run for run in found if run["config"].get("tag", "") == tag]
        plans = [plan and dict(plan, config=plan["config"] | dict(tag=tag)) for plan in plans]
    runs, others = comparable(found, plans)
    dropped += others
    if not runs:
        others = sum("other" in d for d in dropped)
        if others:
            raise BadInput(f"--runs={folder}: no run of the sweep that its sweep.json asks for can "
                           f"be read yet; {others} runs there are of another experiment")
        first = f"; {dropped[0]['run']}: {dropped[0]['why']}" if dropped else ""
        if any((folders[0] / name).exists() for name in ("log.jsonl", "log.jsonl.gz")):
            first = f"; it is one run itself: name the folder above, --runs={folders[0].parent}"
        raise BadInput(f"--runs={folder}: no run to analyse{first}")
    if not going and not any(ended(run) for run in runs):
        raise BadInput(f"--runs={folder}: no finished run to analyse ({len(runs)} unfinished)")
    for run in runs:  # one that a larger C continued keeps its first header
        B = run["B_p"] * run["n"]
        for C in (plan["config"].get("C", -1) for plan in plans if plan):
            if run["rollouts"][-1] <= C < run["rollouts"][-1] + B:
                run["config"] = run["config"] | dict(C=C)
    if runs[0]["counts"] is None and not runs[0]["trials"].all():
        raise BadInput(f"--runs={folder}: {runs[0]['run']}: its evaluations have neither counts per"
                       " problem nor `problems` and `samples`, so their noise is not known")
    return sorted(runs, key=lambda run: (run["B_p"], run["n"], run["lr"], run["seed"])), dropped


def ended(run):
    """True where the run will not go on: a run that was stopped can be resumed."""
    return run["status"] not in ("", "stopped")


def missing_cells(folder, runs, dropped):
    """The planned cells of sweep.json without a finished run: a list of dict(B_p, n, seed, why)."""
    have = {(run["B_p"], run["n"], run["lr"], run["seed"]): run for run in runs}
    tag, out = runs[0]["config"].get("tag", "") if runs else "", []
    plans = [plan for plan in map(read_plan, folders_of(folder))
             if plan and plan["config"].get("tag", "") == tag]  # not that of other runs than --tag
    for plan, cell in ((plan, cell) for plan in plans for cell in plan.get("cells", ())):
        lr = cell.get("lr_base", plan["config"].get("lr_base"))
        run = have.get((cell["B_p"], cell["n"], lr, cell["seed"]))
        if run is None or not ended(run):
            why = "unfinished" if run else "dropped or no log" if dropped else "no log"
            out.append(dict(B_p=cell["B_p"], n=cell["n"], lr=lr, seed=cell["seed"], why=why))
    return out


def reach(run):
    """The range of C that a run's curve stands for: its first evaluation of training to its last.

    Evaluations come after whole updates of B = B_p n rollouts, so one that is due at `eval_every`
    comes up to B late, and M = floor(C / B) leaves up to B of the budget unspent. Both ends are
    widened by that much and no more: otherwise the n whose B happens to divide best would stand on
    the frontier alone, at either end.
    """
    B, x, cfg = run["B_p"] * run["n"], run["rollouts"], run["config"]
    first, last = (i for i in np.flatnonzero(run["C"] > 0)[[0, -1]])
    due, budget, lo, hi = cfg.get("eval_every", 0), cfg.get("C", 0), x[first], x[last]
    if due <= lo < due + B:
        lo = max(due, min(B, lo))
    if run["status"] == "budget" and hi <= budget < hi + B:
        hi = budget
    return run["C"][first] * lo / max(x[first], 1), run["C"][last] * hi / max(x[last], 1)


# --------------------------------------------------------------------------------------------------
# Where the frontier changes hands

def crossings(x, ahead):
    """Where a difference of two curves turns positive: ahead (G,) on x (G,), NaN where undefined.

    Returns the list of upward crossings, interpolated linearly in x.
    """
    a, b = ahead[:-1], ahead[1:]
    at = np.flatnonzero((a <= 0) & (b > 0))  # NaN compares false
    return [float(x[i] - a[i] * (x[i + 1] - x[i]) / (b[i] - a[i])) for i in at]


def switches(x, Y):
    """Where the highest curve changes: Y (N, G) on x = log C, NaN before its first evaluation.

    Returns (on_top (G,) index into Y, [dict(x, a, b, why)]), a and b the indices before and after.
    why: `crossing`, or `begins` where the new curve's runs begin above the old one.
    """
    on_top, out = np.nanargmax(Y, axis=0), []
    for i in np.flatnonzero(np.diff(on_top)):
        a, b = on_top[i], on_top[i + 1]
        why = "begins" if np.isnan(Y[b, i]) else "crossing"
        at = crossings(x[i:i + 2], (Y[b] - Y[a])[i:i + 2]) if why == "crossing" else []
        out.append(dict(x=at[0] if at else float(x[i + 1]), a=int(a), b=int(b), why=why))
    return on_top, out


# --------------------------------------------------------------------------------------------------
# The figure

AXIS = dict(rollouts="rollouts C = $B_p\\,n\\,M$", tokens="training tokens C",
            gpu_hours="GPU-hours of training C", updates="updates M")
# dark to bright, neighbours that differ on a projector and to the colour-blind
SHADES = "#1b1f6b #2f7fd1 #17a39a #74b72e #c9a400 #f07f1a #d62f3a #9b1b8f #6b4a2b #7f7f7f".split()


def si(x):
    """1270000 -> 1.27M: three digits and a suffix."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(x) >= 0.9995 * size:
            return f"{x / size:.3g}{letter}"
    return f"{x:.3g}"


def many(k, what):
    """1 run, 2 runs."""
    return f"{k} {what}" + "s" * (k != 1)


def wrap(text, width):
    import textwrap
    return "\n".join(textwrap.wrap(text, width))


def colours(ns):
    """{n: colour} in order of n."""
    ns = sorted(ns)
    return {n: SHADES[i * (len(SHADES) - 3) // max(len(ns) - 1, 1) if len(ns) < 8 else
                      i % len(SHADES)] for i, n in enumerate(ns)}


def budget_ticks(ax, low, high):
    """Ticks of a log axis of budgets, written 10k, 20k, 50k: three a decade if decades are few."""
    from matplotlib.ticker import LogLocator
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 2000 else (1,)))
    ax.xaxis.set_major_formatter(lambda C, _: si(C))


def end_labels(ax, ends, height):
    """Names of lines behind their right ends, moved apart: ends [(x, y, text, colour)]."""
    at, ends = math.inf, [end for end in ends if math.isfinite(end[1])]
    for x, y, text, colour in sorted(ends, key=lambda end: -end[1]):
        at = min(y, at - 0.045 * height)
        line = dict(arrowstyle="-", color=colour, lw=0.8, shrinkA=0, shrinkB=1, relpos=(0, 0.5))
        ax.annotate(text, (x, y), (x * 1.12, at), color=colour, fontsize=9, fontweight="bold",
                    va="center", annotation_clip=False, zorder=7, arrowprops=line)


def draw_curves(ax, panel, colour, unit_label):
    """The curves of a panel, the frontier over them and where it changes hands."""
    import matplotlib.patheffects as effects
    env = {key: np.array(v) for key, v in panel["envelope"].items() if v is not None}
    edged = [effects.Stroke(linewidth=6.5, foreground="black"), effects.Normal()]
    y = [p["reward"] for p in panel.get("points", ()) if p["C"] > 0]
    y = y or [*env["highest"], *env["reward"]]
    y += [panel["base"]] if panel.get("base") is not None else []
    y += [*env["lo"], *env["hi"]] if "lo" in env else []
    span, ends = max(y) - min(y) or 0.01, []
    for i, c in enumerate(panel.get("curves", ())):
        points = [(p["C"], p["reward"]) for p in panel["points"] if p["n"] == c["n"] and p["C"] > 0]
        ax.plot(*zip(*points), ".", color=colour[c["n"]], ms=5, alpha=0.4, mew=0, zorder=2)
        ax.plot(c["C"], c["reward"], color=colour[c["n"]], lw=1.6, ls=("-", (0, (5, 1)))[i % 2])
        ends.append((c["C"][-1], c["reward"][-1], f"n = {c['n']}", colour[c["n"]]))
    if "lo" in env:
        ax.fill_between(env["C"], env["lo"], env["hi"], color="0.86", lw=0, zorder=0,
                        label="90% interval of the frontier")
    # pieces of one (B_p, n): solid where its runs are, dashed where its best so far is carried on
    key = np.stack([env["n"], env["B_p"], env["carried"]])
    cuts = np.flatnonzero((np.diff(key) != 0).any(0)) + 1
    for piece in np.split(np.arange(len(env["n"])), cuts):
        some = slice(piece[0], piece[-1] + 2)  # to the next piece, so that there is no gap
        n, carried = env["n"][piece[0]], env["carried"][piece[0]]
        ax.plot(env["C"][some], env["highest"][some], color=colour[n], lw=5 if not carried else 2.5,
                ls="--" if carried else "-", solid_capstyle="butt", zorder=4,
                path_effects=None if carried else edged)
        if "curves" not in panel and not carried:
            pair = f"({env['B_p'][piece[0]]}, {n})" if "segments" in panel else f"n = {n}"
            ends.append((env["C"][piece[-1]], env["highest"][piece[-1]], pair, colour[n]))
    name = "frontier, its ($B_p$, n) at the end of each piece"
    name = name if "segments" in panel else "frontier, coloured by its n"
    ax.plot([], [], color="0.6", lw=5, path_effects=edged, label=name)
    if env["carried"].any():
        ax.plot([], [], color="0.6", lw=2.5, ls="--", label="its best so far: its runs ended")
    if "records" in panel:
        ax.plot(env["C"], panel["records"]["frontier"], color="k", lw=1.1, ls=":", zorder=3,
                label="frontier, the paper's way")
    if panel.get("base") is not None:
        ax.axhline(panel["base"], color="0.3", ls=":", lw=1.3)
        ax.annotate("base model", (0.99, panel["base"]), xycoords=("axes fraction", "data"),
                    fontsize=9, ha="right", va="bottom", color="0.3")
    end_labels(ax, ends, 1.17 * span)
    for i, s in enumerate(panel["switches"] if "segments" not in panel else ()):
        ax.annotate(f"{s['from']}→{s['to']} at {si(s['C'])}", (s["C"], 0.02 + 0.16 * (i % 3)),
                    xycoords=("data", "axes fraction"), rotation=90, fontsize=9, ha="right",
                    va="bottom", color="0.15", zorder=6,
                    bbox=dict(fc="white", ec="none", alpha=0.7, pad=0.6))
    if "curves" in panel and unit_label:
        unit_label += " (dots: evaluations; lines: smoothed)"
    ax.set(xscale="log", ylabel=unit_label, ylim=(min(y) - 0.12 * span, max(y) + 0.05 * span))
    ax.tick_params(labelbottom=False)


def draw_n_star(ax, panel, unit, both):
    """n*(C) of a panel below its curves; with `both`, B_p of the best pair too."""
    env = {key: np.array(v) for key, v in panel["envelope"].items() if v is not None}
    near = [(a["C"], n) for a in panel["near"] for n in a["set"]]
    ax.plot(*zip(*near), "s", color="0.6", ms=5, zorder=1,
            label="n indistinguishable from the best")
    ax.step(env["C"], env["n"], where="post", color="black", lw=2.2, zorder=3, label="n*(C)")
    if "records" in panel:
        records = panel["records"]
        ax.plot(records["C"], 2 ** np.array(records["log2_n_mean"]), "DC1", ms=3.5, mfc="none",
                label="paper's way: record-breaking points, running average")
        if records.get("law"):
            ax.plot(records["law"]["C"], records["law"]["n"], "C3--", lw=1.1,
                    label="paper's way: the law through them")
    ends = [panel["ns"][0], panel["ns"][-1]]
    if both:
        ax.step(env["C"], env["B_p"], where="post", color="C3", lw=1.6, ls="-.", zorder=2,
                label="$B_p$ of the best pair")
        ends += [env["B_p"].min(), env["B_p"].max()]
    name = "n*(M), $B_p$*(M)" if unit == "updates" else "n*(C), $B_p$" if both else "n*(C)"
    ax.set(yscale="log", ylabel=name,
           xlabel=AXIS[unit], ylim=(min(ends) / 1.5, max(ends) * 1.5))
    budget_ticks(ax, *panel["range"])
    ticks = sorted({*panel["ns"], *(int(e) for e in ends)})
    ax.set_yticks(ticks, [str(n) for n in ticks])
    ax.minorticks_off()
    ax.grid(alpha=0.25, axis="y")


def figure(front, path):
    """For each panel of a frontier.json its curves and frontier, and below them n*(C)."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    panels, unit = front["panels"], front["unit"]
    cols = min(len(panels), 3)
    rows = -(-len(panels) // cols)
    fig, axes = plt.subplots(2 * rows, cols, figsize=(10.7, 1.3 + 7.2 * rows), squeeze=False,
                             layout="constrained", height_ratios=[2, 1.15] * rows)
    for ax in axes.flat:
        ax.set_visible(False)
    colour = colours({n for p in panels.values() for n in p["ns"]})
    for index, (name, panel) in enumerate(panels.items()):
        top, low = (axes[2 * (index // cols) + i, index % cols] for i in (0, 1))
        top.set_visible(True), low.set_visible(True), low.sharex(top)
        draw_curves(top, panel, colour, panel.get("metric") or front["label"])
        draw_n_star(low, panel, unit, front["view"] in ("fixed_B", "joint"))
        for s in panel["switches"]:
            for ax in (top, low):
                ax.axvline(s["C"], color="0.25", lw=0.8, zorder=1,
                           ls="--" if s["why"] == "crossing" else ":")
            if s["why"] == "crossing" and panel["envelope"]["lo"] is not None:
                low.axvspan(s["lo"] or panel["range"][0], s["hi"] or panel["range"][1],
                            color="C0", alpha=0.13, lw=0, zorder=0,
                            label="90% interval of a switch of n*(C) (two: darker)")
        lo, hi = panel["range"]
        top.set_xlim(lo / 1.1, hi * (hi / lo) ** (0.16 + 0.06 * (cols - 1)))  # room for the names
        title = (f"{name.replace('B_p', '$B_p$')}: {many(len(panel['runs_used']), 'run')}, "
                 f"{many(len(panel['seeds']), 'seed')}")
        top.set_title(wrap(title, 100 // cols), fontsize=10)
    # one legend for all panels; the lines carry their n themselves
    named = {label: handle for ax in axes.flat
             for handle, label in zip(*ax.get_legend_handles_labels())}
    fig.legend(named.values(), named.keys(), loc="outside lower center", fontsize=9,
               ncols=min(len(named), 3))
    what = dict(joint="which (B_p, n) is best", fixed_B="which n is best with $B_p n \\leq B$",
                compare="several sweeps").get(front["view"], "which n is best")
    over = "updates" if unit == "updates" else "compute"
    save(fig, path, front, f"{front['label'].capitalize()} against {over}: {what}")


def save(fig, path, front, title):
    """Write a figure aside and rename it; its title says which runs and what intervals cover."""
    import matplotlib.pyplot as plt
    runs = ", ".join(f"{len(front[f'runs_{what}'])} {what}" for what in ("used", "dropped"))
    letters = int(11.5 * fig.get_figwidth())  # of a line
    fig.suptitle(wrap(f"{title} (runs: {runs}, {len(front['missing'])} missing)", letters) + "\n"
                 + wrap("Intervals: " + front["covers"], letters), fontsize=10.5)
    with aside(path) as part:
        fig.savefig(part, dpi=110)
    plt.close(fig)


if __name__ == "__main__":
    import views  # the command line of all figures; only the script looks up, not the module
    entry(views.main)
