"""frontier.py: the logs of a sweep -> record-breaking points, a curve for each n, the frontier and n*(C).

    python frontier.py --runs=runs/easy                                 # avg@4 over rollouts, a panel for each B_p
    python frontier.py --runs=runs/easy --metric=worst@4 --unit=tokens  # another reward, another unit of compute

Reads `log.jsonl` or `log.jsonl.gz` in every subfolder of `runs`, and `sweep.json` there if there is one, to say which of
the planned runs are missing. Writes `frontier.json` and `frontier.png` to `out`, or else to `runs`. Next: fit_sigmoid.py.

1. Runs that can be compared: one config apart from B_p, n and seed, one validation file. What is left out is listed with
   the reason. The reward of an evaluation comes from its counts of right answers per problem.
2. At fixed B_p one monotone curve for each n, through all evaluations of all its seeds. Not through the record-breaking
   ones: the maximum of noisy evaluations lies above the truth, and the more so the more evaluations a run has.
3. The frontier is the highest curve at each C, among the runs that reached C. Two estimators of n*(C): `envelope` is the n
   of that curve; `records` is the paper's, the n of the record-breaking points of all runs taken together.
4. Intervals from a bootstrap: validation problems are drawn anew, the same for all runs since they share them, seeds too
   where there are two or more, and every curve is fitted again.

To use it elsewhere copy it with config.py and fit_sigmoid.py. Needs numpy; matplotlib for the figure.
"""
import math
from collections import Counter
from pathlib import Path

import numpy as np

from config import BadInput, aside, at_k, cast, cells, config, entry, identity, parse, read_json, read_log, save_json
from fit_sigmoid import LEVEL, THIN, at_bounds, budget_ticks, choose_form, curve, fit_curve, shape, si, wrap

GRID = 121  # budgets at which curves are compared, evenly spaced in log C; crossings are interpolated between them


# ---------------------------------------------------------------------------------------------------------------------
# Logs -> runs

def read_run(folder, metric, unit):
    """One run folder -> dict(run, config, B_p, n, seed, C, values, reward, status, ...), or the reason why not (a str).

    C (E,) in `unit`, strictly rising. values (E, P): the reward of each problem at each evaluation, None where the log
    has no counts; then reward (E,) is the stored field. status: that of the end record, "" without one.
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
    for r in records:
        # equal C (a log written by hand): the later record counts
        if r.get("type") == "eval" and r.get("set", "val") == "val" and isinstance(r.get(unit), (int, float)):
            if "correct" in r or r.get(metric) is not None:
                evals[r[unit]] = r
    if len(evals) < 3:
        return f"too few evaluations with {unit} and {metric} or counts: {len(evals)}, 3 are needed"
    evals = [evals[C] for C in sorted(evals)]
    task = {(r.get("set_hash"), r.get("samples"), len(r.get("correct", ()))) for r in evals}
    if len(task) > 1:
        return "its evaluations differ in problem file or samples"
    samples, values = evals[0].get("samples"), None
    if "correct" in evals[0]:
        try:
            counts = np.array([r["correct"] for r in evals]).astype(int)
            values = np.array(at_k(metric, samples))[np.where(counts < 0, samples + 1, counts)]
        except (IndexError, TypeError, ValueError) as e:
            if isinstance(e, BadInput):
                raise
            return f"its counts of right answers are not numbers from 0 to samples = {samples}"
        if not counts.shape[1]:
            return "its evaluations hold no problem"
    reward = values.mean(1) if values is not None else np.array([r[metric] for r in evals], float)
    if not np.isfinite(reward).all():
        return f"its {metric} is not a number somewhere"
    end, x = [r for r in records if r.get("type") == "end"], [r.get("rollouts") or 0 for r in evals]
    C = np.array([r[unit] for r in evals], float)
    return dict(run=folder.name, config=cfg, B_p=cfg["B_p"], n=cfg["n"], seed=cfg.get("seed", 0), task=task.pop(),
                C=C, rollouts=np.array(x, float), values=values, reward=reward,
                status=end[-1].get("status", "") if end else "",
                per_rollout=1.0 if unit == "rollouts" else C[-1] / max(x[-1], 1))


def read_runs(folder, metric, unit):
    """All runs of a sweep that can be compared: (runs, dropped), dropped a list of dict(run, why[, B_p]).

    Raises BadInput where the folder does not exist or nothing in it can be used.
    """
    if not Path(folder).is_dir():
        raise BadInput(f"--runs={folder}: no such folder")
    runs, dropped = [], []
    for path in sorted(p for p in Path(folder).iterdir() if (p / "log.jsonl").exists() or (p / "log.jsonl.gz").exists()):
        run = read_run(path, metric, unit)
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
        own = identity(run["config"])
        return tuple((key, str(own[key])) for key in sorted(own) if key not in ("B_p", "n", "seed"))
    if runs:
        most = Counter(map(science, runs)).most_common(1)[0][0]
        keep(lambda run: "another config than most runs: " + ", ".join(
            f"{key}={a} for {b}" for (key, a), (_, b) in zip(science(run), most) if a != b) if science(run) != most else "")
    if runs:
        usual = Counter(run["task"] for run in runs).most_common(1)[0][0]
        keep(lambda run: "" if run["task"] == usual else "other validation problems or number of samples than most runs")
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
    return runs, dropped


def ended(run):
    """True where the run will not go on: a run that was stopped can be resumed."""
    return run["status"] not in ("", "stopped")


def missing_cells(folder, runs, dropped):
    """The cells of sweep.json that have no finished run: a list of dict(B_p, n, seed, why); empty without the file."""
    if not (Path(folder) / "sweep.json").exists():
        return []
    plan = read_json(Path(folder) / "sweep.json").get("config")
    if not isinstance(plan, dict):
        raise BadInput(f"{Path(folder) / 'sweep.json'}: expected the sweep's flat dict under `config`")
    cfg = config | {key: cast(key, value) for key, value in plan.items() if key in config}
    have = {(run["B_p"], run["n"], run["seed"]): run for run in runs}
    out = []
    for cell in cells(cfg):
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
# Record-breaking points, curves, the frontier: pure functions of arrays

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


def crossing(x, ahead, near):
    """Where a difference of two curves turns positive: ahead (K, G) on the grid x (G,), NaN where either is not defined.

    Returns (K,): the upward crossing nearest to `near`, interpolated linearly in x; NaN where there is none.
    """
    a, b = ahead[:, :-1], ahead[:, 1:]
    with np.errstate(invalid="ignore", divide="ignore"):
        at = np.where((a <= 0) & (b > 0), x[:-1] - a * np.diff(x) / (b - a), np.nan)
    distance = np.where(np.isnan(at), np.inf, np.abs(at - near))
    best = distance.argmin(1)
    return at[np.arange(len(at)), best]


def switches(x, Y, ns):
    """Where the frontier changes hands: Y (N, G) curves on x = log C, NaN outside their runs; ns the N values of n.

    Returns (on_top (G,) index into ns, [dict(x, from, to, why)]). why: `crossing`; `begins`, the new curve's runs begin
    above the old one; `ends`, the old curve's runs end, and nothing was overtaken.
    """
    on_top, out = np.nanargmax(Y, axis=0), []
    for i in np.flatnonzero(np.diff(on_top)):
        a, b = on_top[i], on_top[i + 1]
        why = "ends" if np.isnan(Y[a, i + 1]) else "begins" if np.isnan(Y[b, i]) else "crossing"
        at = crossing(x[i:i + 2], (Y[b] - Y[a])[None, i:i + 2], x[i])[0] if why == "crossing" else x[i + 1]
        out.append({"x": float(at), "from": int(ns[a]), "to": int(ns[b]), "why": why})
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
# A panel: all n at one B_p

def resample(runs, draws, rng):
    """Resampled rewards and weights of the runs of one n: R, w (K, E) for all their evaluations in a row.

    draws (K, P): how often replicate k holds problem p, over P. Rollout noise is in there too: a problem's count is drawn
    anew at each evaluation, so its spread over problems holds both. Seeds are drawn with replacement, 2 or more given.
    """
    K = len(draws)
    R = [draws @ run["values"].T if run["values"] is not None else np.repeat(run["reward"][None], K, 0) for run in runs]
    times = rng.multinomial(len(runs), np.full(len(runs), 1 / len(runs)), K) if len(runs) > 1 else np.ones((K, 1))
    return np.concatenate(R, 1), np.concatenate([np.repeat(times[:, [i]], r.shape[1], 1) for i, r in enumerate(R)], 1)


def band(samples):
    """(K, ...) -> the ends of the 90% interval over replicates, (None, None) without any."""
    return np.percentile(samples, LEVEL, axis=0) if len(samples) else (None, None)


def panel_of(runs, cfg, draws, rng):
    """Everything about the runs of one B_p, as it goes into frontier.json. draws (K, P), K = 0 for no intervals.

    Shapes below: N values of n, G budgets, K resampled sweeps. NaN stands where no run of that n reached that budget.
    """
    ns, K = sorted({run["n"] for run in runs}), len(draws)
    groups = [[run for run in runs if run["n"] == n] for n in ns]
    data = [(np.concatenate([r["C"] for r in g]), np.concatenate([r["reward"] for r in g])) for g in groups]
    form, held_out = choose_form(data)
    ranges = [(min(lo), max(hi)) for lo, hi in (zip(*map(reach, g)) for g in groups)]
    ends = min(lo for lo, _ in ranges), max(hi for _, hi in ranges)
    grid = np.geomspace(*ends, GRID)
    grid[[0, -1]] = ends  # exactly, not to rounding
    inside = np.array([(grid >= lo) & (grid <= hi) for lo, hi in ranges])  # (N, G)
    grid, inside = grid[inside.any(0)], inside[:, inside.any(0)]

    fits = [fit_curve(C, R, form=form) for C, R in data]
    Y = np.where(inside, [curve(p, grid) for p in fits], np.nan)  # (N, G)
    Yk = np.zeros((0, *Y.shape))  # (K, N, G)
    if K:
        again = [fit_curve(C, *resample(g, draws, rng), form=form) for (C, _), g in zip(data, groups)]
        Yk = np.where(inside, np.stack([curve(p, grid) for p in again], 1), np.nan)
    on_top, found = switches(np.log(grid), Y, ns)
    best, best_k = np.nanmax(Y, 0), np.nanmax(Yk, axis=1)  # (G,), (K, G)
    octave_k, (lo, hi) = np.log2(ns)[np.nanargmax(Yk, axis=1)], band(best_k)  # (K, G)
    masks = [record_breaking(run["reward"], cfg["bin"]) for run in runs]
    pooled = [np.concatenate([np.broadcast_to(r[key], r["C"].shape)[m] for r, m in zip(runs, masks)])
              for key in ("C", "reward", "n")]
    base = [run["reward"][0] for run in runs if run["C"][0] == 0]
    return dict(
        B_p=runs[0]["B_p"], ns=ns, seeds=sorted({run["seed"] for run in runs}), runs_used=[run["run"] for run in runs],
        form=form, held_out=held_out, range=[grid[0], grid[-1]], base=np.mean(base) if base else None,
        per_rollout=np.mean([run["per_rollout"] for run in runs]),
        points=[dict(n=r["n"], seed=r["seed"], C=C, reward=round(R, 5), record=bool(m)) for r, mask in zip(runs, masks)
                for C, R, m in zip(r["C"].tolist(), r["reward"].tolist(), mask)],
        curves=[curve_record(n, g, p, C, reached, grid[ok], y[ok], Yk[:, i, ok]) for i, (n, g, p, (C, _), reached, ok, y)
                in enumerate(zip(ns, groups, fits, data, ranges, inside, Y))],
        switches=[switch_record(s, np.log(grid), best, Yk[:, ns.index(s["to"])] - Yk[:, ns.index(s["from"])])
                  for s in found],
        envelope=dict(C=grid, n=[ns[i] for i in on_top], reward=best, lo=lo, hi=hi),
        records=pooled_records(*pooled, cfg["bin"]),
        near=[near_best(grid[j], ns, on_top[j], Yk[:, :, j]) for j in range(0, len(grid), 5)],
        edge=grid_edge(ns, ns[on_top[-1]], runs[0]["B_p"], grid[-1], cfg), declines=declining(runs),
        # what fit_sigmoid.py needs of the resampled sweeps
        resampled=dict(C=grid[::THIN], log2_n=np.round(octave_k, 3)[:, ::THIN], reward=np.round(best_k, 4)[:, ::THIN])
        if K else None)


def curve_record(n, group, p, seen, reached, C, reward, replicates):
    """One curve for frontier.json: parameters, flags, the curve with its band at budgets C, last and best evaluations.

    seen: the C of the evaluations behind it. last and best_so_far are means over seeds; the second, a maximum of noisy
    evaluations, is too high.
    """
    flags, (lo, hi) = at_bounds(p, seen), band(replicates)
    if shape(p, seen.max()[None])[0] < 0.75:
        flags.append("asymptote not seen: the runs end on the rise")
    return dict(n=n, **p, asymptote=p["base"] + p["amp"], flags=flags, reached=reached, seeds=[r["seed"] for r in group],
                C=C, reward=reward, lo=lo, hi=hi, last=np.mean([r["reward"][-1] for r in group]),
                best_so_far=np.mean([r["reward"].max() for r in group]))


def switch_record(s, x, best, ahead):
    """One switch for frontier.json. ahead (K, G): resampled curve of the new n less that of the old, on x = log C.

    The interval is that of the crossing of these two curves, given that they cross, which 80% of the replicates must.
    """
    record = {"C": math.exp(s["x"]), "from": s["from"], "to": s["to"], "reward": float(np.interp(s["x"], x, best)),
              "lo": None, "hi": None, "share": None, "why": s["why"]}
    if len(ahead) and s["why"] == "crossing":
        at = crossing(x, ahead, s["x"])
        record["share"] = float(np.isfinite(at).mean())
        if record["share"] >= 0.8:
            record["lo"], record["hi"] = np.exp(np.nanpercentile(at, LEVEL))
    return record


def near_best(C, ns, top, Y):
    """At one budget: the set of n that the noise does not tell from the one on top, and how often each was on top.

    Y (K, N). Not told from it: at least as good in 5% or more of the replicates.
    """
    as_good = [n for i, n in enumerate(ns) if i == top or len(Y) and (Y[:, i] >= Y[:, top]).mean() >= LEVEL[0] / 100]
    share = np.bincount(np.nanargmax(Y, axis=1), minlength=len(ns)) / len(Y) if len(Y) else [None] * len(ns)
    return dict(C=C, set=as_good, share=dict(zip(ns, share)))


def gain(run):
    """What a run gained: dict(last, gain, lo, hi), its last evaluation and that less the base model's, with a 90% interval.

    Paired by problem, normal over problems, which covers the rollouts' noise and not another seed of training.
    """
    last = dict(last=run["reward"][-1], gain=None, lo=None, hi=None)
    if run["C"][0] == 0 and run["values"] is not None and run["task"][2] > 1:
        each = run["values"][-1] - run["values"][0]
        half = 1.645 * each.std(ddof=1) / math.sqrt(len(each))
        last.update(gain=each.mean(), lo=each.mean() - half, hi=each.mean() + half)
    return last


def declining(runs):
    """The runs whose last evaluation lies more than 2 standard errors below their best, which a monotone curve hides."""
    falls = [(run, *decline(run["C"], run["values"])) for run in runs if run["values"] is not None and run["task"][2] > 3]
    return [dict(run=run["run"], n=run["n"], seed=run["seed"], since=C, fall=fall, se=se) for run, C, fall, se in falls
            if fall > 2 * se > 0]


def grid_edge(ns, n, B_p, C, cfg):
    """dict(n, side, add, text) where the best n at the largest budget is the panel's smallest or largest, else None."""
    if len(ns) < 2 or n not in (ns[0], ns[-1]):
        return None
    side, more = ("largest", 2 * n) if n == ns[-1] else ("smallest", n // 2)
    text = f"n = {n} is the {side} of the grid and on top at C = {si(C)}, so n* may lie beyond"
    if more < 2 or cfg["B_max"] and B_p * more > cfg["B_max"]:
        why = "no smaller n exists" if more < 2 else "B_max allows no larger n"
        return dict(n=n, side=side, add=None, text=f"{text}; {why}")
    return dict(n=n, side=side, add=dict(B_p=B_p, n=more), text=f"{text}; add B_p = {B_p}, n = {more} next")


# ---------------------------------------------------------------------------------------------------------------------
# The figure and the report

def colours(ns):
    """{n: colour}, by log2 n from dark to light; the yellow end of the map is too faint on white."""
    import matplotlib
    at = np.log2(ns)
    span = max(at.max() - at.min(), 1)
    return {n: matplotlib.colormaps["viridis"](0.92 * (a - at.min()) / span) for n, a in zip(ns, at)}


def figure(front, path):
    """frontier.png from the content of frontier.json: for each panel the curves and their frontier, below it n*(C)."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.patheffects as effects
    import matplotlib.pyplot as plt
    panels, metric = front["panels"], front["metric"]
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
        for c in panel["curves"]:
            points = [(p["C"], p["reward"]) for p in panel["points"] if p["n"] == c["n"] and p["C"] > 0]
            top.plot(*zip(*points), ".", color=colour[c["n"]], ms=5, alpha=0.5, mew=0, zorder=2)
            top.plot(c["C"], c["reward"], color=colour[c["n"]], lw=1.4, label=f"n = {c['n']}")
        if "lo" in env:
            top.fill_between(env["C"], env["lo"], env["hi"], color="0.88", lw=0, zorder=0, label="90% band of the frontier")
        cuts = np.flatnonzero(np.diff(env["n"])) + 1
        for piece in np.split(np.arange(len(env["n"])), cuts):
            span = slice(piece[0], piece[-1] + 2)  # to the next piece, so that the frontier has no gap
            top.plot(env["C"][span], env["reward"][span], color=colour[env["n"][piece[0]]], lw=5, solid_capstyle="butt",
                     zorder=4, path_effects=edged)
        top.plot([], [], color="0.6", lw=5, path_effects=edged, label="frontier, coloured by n")
        if panel["base"] is not None:
            top.axhline(panel["base"], color="0.3", ls=":", lw=1.3, label="base model")
        for s in panel["switches"]:
            for ax in (top, low):
                ax.axvline(s["C"], color="0.25", lw=0.8, ls="--" if s["why"] == "crossing" else ":", zorder=1)
            top.annotate(f"{s['from']}→{s['to']} at {si(s['C'])}" + ("" if s["why"] == "crossing" else f" ({s['why']})"),
                         (s["C"], 0.02), xycoords=("data", "axes fraction"), rotation=90, fontsize=9, ha="right",
                         va="bottom", color="0.15", bbox=dict(fc="white", ec="none", alpha=0.7, pad=0.6), zorder=5)
            if s["lo"] is not None:
                low.axvspan(s["lo"], s["hi"], color="0.4", alpha=0.13, lw=0, label="90% interval of a switch")
        y = [p["reward"] for p in panel["points"] if p["C"] > 0] + [v for v in (panel["base"],) if v is not None]
        span = max(y) - min(y) or 0.01
        seeds = f"{len(panel['seeds'])} seed{'s' if len(panel['seeds']) > 1 else ''}"
        base = "" if panel["base"] is None else f", base model {panel['base']:.3f}"
        top.set(xscale="log", ylabel=f"validation {metric}", ylim=(min(y) - 0.08 * span, max(y) + 0.05 * span))
        top.set_title(f"{name.replace('B_p', '$B_p$')}: {len(panel['runs_used'])} runs, {seeds}{base}", fontsize=10)
        top.tick_params(labelbottom=False)

        shares = [(a["C"], n) for a in panel["near"] for n in a["set"]]
        low.plot(*zip(*shares), "s", color="0.8", ms=5, label="n not told from the best", zorder=1)
        low.step(env["C"], env["n"], where="post", color="black", lw=2.2, label="envelope: n on top", zorder=3)
        records = panel["records"]
        low.plot(records["C"], records["n"], "D", color="C1", ms=3.5, mfc="none", alpha=0.8, label="records: n", zorder=2)
        low.plot(records["C"], 2 ** np.array(records["log2_n_mean"]), color="C1", lw=1.5, label="records: running average")
        low.set(yscale="log", ylabel="compute-optimal n*(C)", ylim=(panel["ns"][0] / 1.5, panel["ns"][-1] * 1.5),
                xlabel="rollouts C = $B_p\\,n\\,M$" if front["unit"] == "rollouts" else "training tokens C")
        budget_ticks(low, *panel["range"])
        low.set_yticks(panel["ns"], [str(n) for n in panel["ns"]])
        low.minorticks_off()
        low.grid(alpha=0.25, axis="y")
    # one legend for all panels, n in order first
    named = {label: handle for ax in axes.flat for handle, label in zip(*ax.get_legend_handles_labels())}
    order = [f"n = {n}" for n in colour] + [label for label in named if not label.startswith("n = ")]
    fig.legend([named[label] for label in order], order, loc="outside lower center", fontsize=9, ncols=min(len(order), 5))
    used, out = len(front["runs_used"]), len(front["runs_dropped"])
    fig.suptitle(f"Validation {metric} against compute: which n is on top at each budget ({used} runs used, {out} dropped, "
                 f"{len(front['missing'])} missing)\n" + wrap("Intervals: " + front["covers"], 125), fontsize=10.5)
    with aside(path) as part:
        fig.savefig(part, dpi=150)
    plt.close(fig)


def coverage(runs, K):
    """What the intervals of this sweep cover, in words."""
    if not K:
        return "none (boot=0)"
    text = "90% over validation problems and rollouts"
    if any(run["values"] is None for run in runs):
        text = "90%, but not over problems and rollouts where evaluations have no counts"
    seeds = Counter((run["B_p"], run["n"]) for run in runs).values()
    if max(seeds) == 1:
        return text + "; one seed: the variation from run to run is not covered"
    many = " to ".join(map(str, sorted({min(seeds), max(seeds)})))
    return text + f" and over seeds, {many} for each n: a bootstrap of so few is too narrow"


def report(front):
    """The analysis as text: runs, a table of switches for each panel, what the grid leaves open."""
    print(f"{front['runs']}: {len(front['runs_used'])} runs used, {len(front['runs_dropped'])} dropped, "
          f"{front['metric']} over {front['unit']}")
    for d in front["runs_dropped"]:
        print(f"  dropped {d['run']}: {d['why']}")
    for note in front["notes"]:
        print(f"  {note}")
    if front["missing"]:
        cells = (f"B_p={m['B_p']} n={m['n']} seed={m['seed']} ({m['why']})" for m in front["missing"])
        print(f"  missing {len(front['missing'])}: " + "; ".join(cells))
    for name, panel in front["panels"].items():
        errors = ", ".join(f"{form} {error:.4f}" for form, error in panel["held_out"].items())
        errors = f"held-out error {errors}" if errors else "too few evaluations to compare forms"
        print(f"\n{name}: curves are {panel['form']} ({errors})")
        print(f"  {'C':>8}  {'n':>12}  {front['metric']:>9}  90% interval of C")
        for s in panel["switches"]:
            interval = f"{si(s['lo'])} to {si(s['hi'])}" if s["lo"] is not None else "none" + (
                f", the curves cross in {100 * s['share']:.0f}% of the resampled sweeps" if s["share"] is not None else "")
            note = dict(crossing="", begins="  (its runs begin here)", ends="  (the old n's runs end here)")[s["why"]]
            print(f"  {si(s['C']):>8}  {s['from']:>4} -> {s['to']:<4}  {s['reward']:>9.3f}  {interval}{note}")
        if not panel["switches"]:
            print(f"  none: n = {panel['envelope']['n'][0]} is on top at every budget")
        for r in front["runs_used"]:
            if r["B_p"] == panel["B_p"] and r["gain"] is not None:
                print(f"  n = {r['n']:<4} seed {r['seed']}: {r['last']:.3f} at C = {si(r['C'])}, {r['gain']:+.3f} [{r['lo']:+.3f}, {r['hi']:+.3f}] "
                      "over the base model")
        env, near = panel["envelope"], panel["near"][-1]["set"]
        others = [n for n in near if n != env["n"][-1]]
        print(f"  at C = {si(env['C'][-1])}: n = {env['n'][-1]}, {front['metric']} {env['reward'][-1]:.3f}"
              + (f" [{env['lo'][-1]:.3f}, {env['hi'][-1]:.3f}]" if env["lo"] is not None else "")
              + (f", base model {panel['base']:.3f}" if panel["base"] is not None else "")
              + (f"; not told from it: n = {', '.join(map(str, others))}" if others else ""))
        if panel["edge"]:
            print(f"  edge: {panel['edge']['text']}")
        for c in panel["curves"]:
            if c["flags"]:
                print(f"  curve n = {c['n']}: {', '.join(c['flags'])}")
        for d in panel["declines"]:
            print(f"  {d['run']} declines: {d['fall']:.3f} +- {d['se']:.3f} below its best at C = {si(d['since'])}, which "
                  "its monotone curve hides (beyond 2 standard errors, as 1 steady run in 40 is by chance)")
    print(f"\nintervals: {front['covers']}")


def main(argv):
    cfg = parse(argv, __doc__)
    runs, dropped = read_runs(cfg["runs"], cfg["metric"], cfg["unit"])
    runs.sort(key=lambda run: (run["B_p"], run["n"], run["seed"]))
    missing = missing_cells(cfg["runs"], runs, dropped)
    rng, P = np.random.default_rng(cfg["seed"]), runs[0]["task"][2]
    # one draw of problems for all runs of all panels: they were evaluated on the same ones
    draws = rng.multinomial(P, np.full(P, 1 / P), cfg["boot"]) / P if P else np.ones((cfg["boot"], 0))
    head = max((run["config"] for run in runs), key=lambda c: c.get("C", 0))
    head = {key: head.get(key, config[key]) for key in config}
    panels = {}
    for B_p in sorted({run["B_p"] for run in runs}):
        panel = panel_of([run for run in runs if run["B_p"] == B_p], cfg | dict(B_max=head["B_max"]), draws, rng)
        panels[f"B_p={B_p}"] = panel | dict(runs_dropped=[d for d in dropped if d.get("B_p") == B_p])
    unfinished = [run["run"] for run in runs if not ended(run)]
    notes = [f"unfinished {name}: used up to its last evaluation" for name in unfinished]
    notes += [f"diverged {run['run']}: used up to C = {si(run['C'][-1])}" for run in runs if run["status"] == "diverged"]
    front = {key: cfg[key] for key in ("runs", "view", "metric", "unit", "bin", "boot")} | dict(
        # a run that a larger C continued keeps its first header, so the budget is what was reached, if that is more
        config=head, budget=max(head["C"], max(run["rollouts"][-1] for run in runs)) if cfg["unit"] == "rollouts" else max(p["range"][1] for p in panels.values()),
        covers=coverage(runs, cfg["boot"]), problems=P, panels=panels, missing=missing, notes=notes,
        runs_used=[{key: run[key] for key in ("run", "B_p", "n", "seed", "status")}
                   | dict(evals=len(run["C"]), C=run["C"][-1]) | gain(run) for run in runs],
        runs_dropped=dropped, runs_unfinished=unfinished)
    out = Path(cfg["out"] or cfg["runs"])
    save_json(out / "frontier.json", front, indent=None)
    figure(front, out / "frontier.png")
    report(front)
    print(f"figure: {out / 'frontier.png'}   numbers: {out / 'frontier.json'}")


if __name__ == "__main__":
    entry(main)
