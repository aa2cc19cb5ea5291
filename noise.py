"""noise.py: how sure the frontier is. Curves through all evaluations, with the noise of each.

Nothing here is a script; frontier.py has the paper's path without it, views.py shows both.

1. One curve for each (B_p, n, lr_base): a smoothing spline in log C through all evaluations of all
   its seeds. Not through the record-breaking ones: the maximum of noisy evaluations lies above the
   truth. `Y` is monotone (the best so far, carried on behind the last evaluation, since a budget
   can be spent in part), `last` is not (the last checkpoint).
2. A spline is linear in its data, Y = H R. So every noise goes through the same matrix H: that of
   the problems (all runs share them, so one draw moves all curves together; it holds the rollouts
   too) and that of the seeds (pooled over cells, Student's t). Without counts per problem: the
   binomial noise of the evaluations.
3. The best of several noisy curves looks better than it is. So the best n is chosen on all seeds
   but one and scored on that one, or with one seed on half of the samples.
4. Contrasts, the last section, compare means over a window of C within seeds, as the rows of
   results/README.md do: tables {key: (S, P)}, a cell -> S runs, one a seed, by P problems.

To use it elsewhere copy it with config.py and frontier.py. Needs numpy and scipy.
"""
import math
from collections import Counter

import numpy as np
from scipy import stats
from scipy.interpolate import make_smoothing_spline
from scipy.special import chdtri

from frontier import GRID, crossings, n_star, pooled_records, reach, right, si, switches

SMALL = 0.03  # a difference that does not matter, as a share of what training gained
ALIKE = 0.06  # what a claim calls no difference, likewise: 2 points where training gained 33
BINS = 64   # a run's evaluations are averaged in so many bins of log C: work grows with runs alone
LEVEL = 90  # percent of every interval
LAMBDAS = 10.0 ** np.arange(-4, 2.1, 0.5)  # how smooth: penalties on the curvature over ln C


class Missing(Exception):
    """A comparison lacks runs; the message says which."""


# --------------------------------------------------------------------------------------------------
# Intervals

def half_width(noise):
    """Noise (K, ...) around an estimate -> half the width of its 90% interval (...), symmetric."""
    return np.percentile(np.abs(noise), LEVEL, axis=0)


def invert(values, statistic, half, at):
    """The interval of values (V,) around `at` whose statistic (V,) is within `half` (V,) of zero.

    The statistic falls from positive to negative. Returns (lo, hi), None for an end that the data
    leave open.
    """
    t = statistic / np.maximum(half, 1e-12)
    lo, hi = np.flatnonzero((values <= at) & (t > 1)), np.flatnonzero((values >= at) & (t < -1))

    def edge(i, j, level):  # where t passes `level` between i (outside) and j (inside)
        share = np.clip((t[i] - level) / ((t[i] - t[j]) or 1), 0, 1)
        return float(values[i] + (values[j] - values[i]) * share)
    low = min(float(at), edge(lo[-1], min(lo[-1] + 1, len(t) - 1), 1)) if len(lo) else None
    high = max(float(at), edge(hi[0], max(hi[0] - 1, 0), -1)) if len(hi) else None
    return low, high


def indistinguishable(Y, noise):
    """The model confidence set: estimates Y (N,), noise (K, N) -> mask (N,) of those like the best.

    One is out where it lies below the highest by more than c standard errors of that difference; c
    is the 90th percentile of the largest such ratio that noise alone makes, so it counts how many
    were compared.
    """
    top = int(np.argmax(Y))
    if not len(noise) or len(Y) == 1:
        return np.full(len(Y), True)
    gap = noise - noise[:, [top]]
    error = np.maximum(gap.std(0), 1e-12)
    others = np.arange(len(Y)) != top
    c = np.percentile((gap / error)[:, others].max(1), LEVEL)
    return (Y[top] - Y <= c * error) | ~others


def mean_of(a, axis):
    """The mean over an axis without its NaNs, NaN where there is nothing else."""
    seen = ~np.isnan(a)
    return np.where(seen.any(axis), np.nansum(a, axis) / np.maximum(seen.sum(axis), 1), np.nan)


# --------------------------------------------------------------------------------------------------
# Curves

def evaluations(run, metric, halves=None):
    """A run's evaluations, averaged in bins of log C: dict(C (E,), R (E,), w (E,), V, sd).

    V (E, P): the metric of each problem, None without counts; sd (E,): then the binomial error of
    R. w: the weight of a bin of m evaluations, 1 / (1/m + 1/10), since a run drifts and those of
    one bin err together. halves: a generator that splits the samples of each problem at random into
    two halves; then V2 (2, E, P) is the metric of each, None where k is too large.
    """
    C, seen = run["C"], run["C"] > 0
    place = np.arange(len(C))
    if len(C) > BINS:
        x = np.log(np.where(seen, C, 1))
        lo, hi = x[seen].min(), x[seen].max()
        bins = np.minimum((x - lo) / (hi - lo) * BINS, BINS - 1).astype(int)
        place = np.where(seen, 1 + bins, 0)  # the base model, C = 0, is a bin of its own
    _, start, m = np.unique(place, return_index=True, return_counts=True)

    def mean(a):
        total = np.add.reduceat(a, start, axis=0, dtype=float)
        return total / m.reshape(-1, *[1] * (a.ndim - 1))
    out = dict(C=mean(C), w=1 / (1 / m + 1 / 10), V=None, V2=None, sd=None)
    if run["counts"] is None:
        R = mean(run["reward"])
        return out | dict(R=R, sd=np.sqrt(np.maximum(R * (1 - R), 1e-4) / mean(run["trials"]) / m))
    s = run["samples"]
    out["V"] = mean(right(run["counts"], metric, s))
    k = 1 if metric.startswith("avg") else int(metric.split("@")[1])  # avg@k is one for every k
    if halves is not None and s >= 2 * k:
        first = halves.hypergeometric(run["counts"], s - run["counts"], s // 2)
        parts = (first, s // 2), (run["counts"] - first, s - s // 2)
        name = "avg@1" if k == 1 else metric
        out["V2"] = np.array([mean(right(c, name, size)) for c, size in parts])
    return out | dict(R=out["V"].mean(1))


def spline_map(C, w, at, lam):
    """The smoothing spline in ln C as a matrix: data (E,) at C with weights w -> (G,) at `at`.

    Points at one C are averaged first. C = 0 has no weight; behind the data the curve is flat.
    Fewer than five budgets are joined by straight lines.
    """
    seen = C > 0
    x, place = np.unique(np.round(np.log(C[seen]), 4), return_inverse=True)
    weight = np.bincount(place, w[seen])
    x_at = np.clip(np.log(at), x[0], x[-1])
    if len(x) < 5:
        S = np.array([np.interp(x_at, x, unit) for unit in np.eye(len(x))]).T
    else:
        S = make_smoothing_spline(x, np.eye(len(x)), weight, lam)(x_at)  # (G, U)
    H = np.zeros((len(at), len(C)))
    H[:, seen] = S[:, place] * (w[seen] / weight[place])
    return H


def choose_lambda(data):
    """One smoothness for all curves of a sweep, by generalised cross-validation: the least of
    sum of squares / (1 - degrees of freedom / points)^2 over all of them (Wahba 1990).

    data: a list of (C (E,), R (E,), w (E,)). One for the sweep: chosen for each curve alone it
    follows the noise of some. Seeds at one budget count as one point, and the next smoother one of
    LAMBDAS is taken: the score takes the evaluations of a run for independent, but a run drifts.
    Held-out errors on results/atlas are the same, and verdicts come from fewer sweeps.
    """
    def score(lam):
        rss = points = freedom = 0.0
        for C, R, w in data:
            budgets, place = np.unique(np.round(np.log(C[C > 0]), 4), return_inverse=True)
            if len(budgets) < 5:
                continue
            weight = np.bincount(place, w[C > 0])
            mean = np.bincount(place, (w * R)[C > 0]) / weight
            H = spline_map(np.exp(budgets), weight, np.exp(budgets), lam)
            rss += (weight * (mean - H @ mean) ** 2).sum()
            points, freedom = points + len(budgets), freedom + np.trace(H)
        return rss / (1 - freedom / points) ** 2 if points else 0.0
    scores = [score(lam) for lam in LAMBDAS]
    return LAMBDAS[min(int(np.argmin(scores)) + 1, len(LAMBDAS) - 1)]


def monotone(y):
    """The closest rising sequence to y (G,), by least squares: isotonic regression."""
    from scipy.optimize import isotonic_regression
    return isotonic_regression(y).x


def carry(a, inside):
    """Values (..., G) kept at their last one behind the budgets `inside` (G,), NaN before them."""
    first, end = np.flatnonzero(inside)[[0, -1]]
    a = np.array(a, float)
    a[..., :first] = np.nan
    a[..., end + 1:] = a[..., [end]]
    return a


def own_curves(H, parts, residual, inside):
    """Each seed's own curve less the cell's, (S, G), and its weight there; NaN where it has no say.

    parts: the columns of H (G, E) that are a seed's; residual (E,): its data less the cell's curve.
    A seed's weight at a budget is the sum of its columns, all seeds' sum to 1; one that ended early
    has none beyond its end.
    """
    weight = np.array([H[:, columns].sum(1) for columns in parts])  # (S, G)
    weight = np.where((weight > 0.3 / len(parts)) & inside, weight, np.nan)
    own = np.array([H[:, columns] @ residual[columns] for columns in parts]) / weight
    return own - mean_of(own, 0), weight


def cells_of(runs, metric, cfg):
    """The curve of each (B_p, n, lr) with its noise: (grid (G,), lam, list of dicts, one a cell).

    Each cell: Y (G,) monotone and carried on, last (G,) neither, inside (G,) where its runs
    reached, noise (K, G) draws of its error, folds (F, G) curves whose errors are independent (of
    its seeds, or of the halves of its samples; None with neither). Draws k of all cells belong
    together: a draw of the problems moves all of them.
    """
    rng, K = np.random.default_rng(cfg["seed"]), cfg["boot"]
    groups = {}
    for run in sorted(runs, key=lambda run: (run["B_p"], run["n"], run["lr"])):
        groups.setdefault((run["B_p"], run["n"], run["lr"]), []).append(run)
    F = min(map(len, groups.values()))  # folds: of the seeds, or with one seed of the samples
    by_seed = F > 1
    data = {name: [evaluations(run, metric, None if by_seed else rng) for run in group]
            for name, group in groups.items()}
    ends = {name: [reach(run) for run in group] for name, group in groups.items()}
    ranges = {name: (min(lo for lo, _ in e), max(hi for _, hi in e)) for name, e in ends.items()}
    limits = min(lo for lo, _ in ranges.values()), max(hi for _, hi in ranges.values())
    grid = np.geomspace(*limits, GRID)
    grid[[0, -1]] = limits  # exactly, not to rounding
    joined = {name: [np.concatenate([e[key] for e in d]) for key in ("C", "R", "w")]
              for name, d in data.items()}
    lam = choose_lambda(list(joined.values()))
    counts = next(iter(groups.values()))[0]["counts"]
    P = 0 if counts is None else counts.shape[1]
    draw = rng.standard_normal((K, P)) / math.sqrt(max(P * (P - 1), 1))  # of the problems

    out, spread, shared = [], [], []
    for name, group in groups.items():
        (C, R, w), d, (lo, hi) = joined[name], data[name], ranges[name]
        S, inside = len(group), (grid >= lo * (1 - 1e-9)) & (grid <= hi * (1 + 1e-9))
        H = spline_map(C, w, grid, lam)  # (G, E)
        Y = H @ R
        parts = np.split(np.arange(len(C)), np.cumsum([len(e["C"]) for e in d])[:-1])
        fitted = np.interp(np.log(np.maximum(C, grid[0])), np.log(grid), Y)
        own, weight = own_curves(H, parts, R - fitted, inside)
        seeds = (~np.isnan(weight)).sum(0)
        noise, folds = np.zeros((K, GRID)), None
        if by_seed:
            folds = Y + np.array([mean_of(own[i::F], 0) for i in range(F)])
        elif all(e["V2"] is not None for e in d):
            folds = np.array([Y + sum(H[:, columns] @ (e["V2"][h].mean(1) - e["R"])
                                      for columns, e in zip(parts, d)) for h in (0, 1)])
        if P:
            each = np.array([H[:, columns] @ (e["V"] - e["R"][:, None])
                             for columns, e in zip(parts, d)])  # (S, G, P), of the problems
            noise += draw @ each.sum(0).T
            if S > 1:  # what problems and seeds hold together is in the problems' part already
                apart = (each / weight[:, :, None] - each.sum(0)) / P
                shared.append(np.nansum(apart ** 2, (0, 2)) * (seeds > 1))
        else:
            sd = np.concatenate([e["sd"] for e in d])
            noise += rng.standard_normal((K, len(sd))) @ (H * sd).T
        if S > 1:
            there = ~np.isnan(own) & (seeds > 1)
            spread.append((np.where(there, own, 0), np.maximum(seeds - 1, 0)))
        best = Y.copy()
        best[inside] = monotone(Y[inside])
        out.append(dict(zip(("B_p", "n", "lr"), name), runs=group, C=C, R=R, w=w, inside=inside,
                        Y=carry(best, inside), last=Y, reach=(lo, hi), noise=noise, folds=folds,
                        points=[(e["C"], e["R"]) for e in d], seeds=np.maximum(seeds, 1),
                        split="seeds" if by_seed else "samples"))
    if spread and K:
        add_seed_noise(out, spread, shared, rng)
    whole = all(c["folds"] is not None for c in out)
    for c in out:
        c["noise"] = np.nan_to_num(carry(c["noise"], c["inside"]))  # 0 where there is no curve
        c["folds"] = carry(c["folds"], c["inside"]) if whole else None
    return grid, lam, out


def add_seed_noise(cells, spread, shared, rng):
    """Adds to each cell's noise that of its seeds: their deviations, pooled over cells.

    spread: for each cell with several seeds (deviations (S, G), degrees of freedom (G,)); shared:
    the part of their variance that the problems' noise holds already. One quantile of chi-square
    along C makes it Student's t: a bootstrap over three seeds would cover 61%.
    """
    df = np.maximum(sum(nu for _, nu in spread), 1)  # (G,)
    pool = np.concatenate([own for own, _ in spread]) / np.sqrt(df)  # (runs, G)
    if shared:
        total = np.maximum((pool ** 2).sum(0), 1e-12)
        pool = pool * np.sqrt(np.clip(1 - sum(shared) / df / total, 0, 1))
    for_all = np.sqrt(df / chdtri(df, rng.random((len(cells[0]["noise"]), 1))))  # (K, G)
    for cell in cells:
        drawn = rng.standard_normal((len(for_all), len(pool))) @ pool
        cell["noise"] += for_all * drawn / np.sqrt(cell["seeds"])


def best_of(cells):
    """Cells of several B_p or lr -> one for each n: at each budget its best, named by B_p, lr (G,).

    The noise is that of the cell on top, so the small bias of choosing it is not in the interval.
    """
    out = []
    for n in sorted({c["n"] for c in cells}):
        same = [c for c in cells if c["n"] == n]
        Y = np.array([c["Y"] for c in same])
        top = np.where(np.isnan(Y), -np.inf, Y).argmax(0)

        def pick(a):  # (cells, ..., G) -> (..., G), of the cell on top
            return np.take_along_axis(a, top.reshape(1, *[1] * (a.ndim - 2), -1), 0)[0]
        picked = {key: pick(np.array([c[key] for c in same]))
                  for key in ("Y", "last", "inside", "noise")}
        ranges = [c["reach"] for c in same]
        out.append(dict(picked, n=n, split=same[0]["split"],
                        B_p=np.array([c["B_p"] for c in same])[top],
                        lr=np.array([c["lr"] for c in same])[top],
                        runs=[run for c in same for run in c["runs"]],
                        reach=(min(lo for lo, _ in ranges), max(hi for _, hi in ranges))))
    return out


def honest(cells):
    """The frontier's reward without the winner's curse, over cells: (G,), None without folds.

    On each fold the cell is taken that is on top of the mean of the other folds, and scored on this
    one.
    """
    if cells[0]["folds"] is None:
        return None
    Y = np.array([c["Y"] for c in cells])  # (N, G)
    folds = np.array([c["folds"] for c in cells])  # (N, F, G)
    folds = np.where(np.isnan(Y)[:, None], np.nan, folds)
    count = (~np.isnan(folds)).sum(1, keepdims=True)
    others = (np.nansum(folds, 1, keepdims=True) - folds) / np.where(count > 1, count - 1, np.nan)
    pick = np.where(np.isnan(others), -np.inf, others).argmax(0)  # (F, G)
    scored = np.where(np.isnan(others), np.nan, folds)
    fair = mean_of(np.take_along_axis(scored, pick[None], 0)[0], 0)
    return np.where(np.isnan(fair), np.where(np.isnan(Y), -np.inf, Y).max(0), fair)


# --------------------------------------------------------------------------------------------------
# A panel: one frontier with all that is known of its noise

def unpruned(cells):
    """The cells that were not pruned: the others end early, so nothing is read off where all of a
    pruned sweep's cells still ran."""
    return [c for c in cells if any(run["status"] != "pruned" for run in c["runs"])]


def panel_of(cs, grid, cfg, unit, several=None):
    """One panel of frontier.json. cs: one curve for each n, cells of cells_of or best_of `several`.

    Shapes below: N values of n, G budgets, K draws of the noise. NaN stands where no run of that n
    had begun.
    """
    ns = [c["n"] for c in cs]
    some = ~np.isnan([c["Y"] for c in cs]).all(0)
    grid, x = grid[some], np.log(grid[some])
    Y, noise, last, inside = (np.array([c[key] for c in cs])[..., some]
                              for key in ("Y", "noise", "last", "inside"))  # (N, G), (N, K, G), ...
    last = np.where(inside, last, np.nan)
    B_p = np.array([np.broadcast_to(c["B_p"], len(some))[some] for c in cs])  # (N, G)
    on_top, found = switches(x, Y)
    columns = np.arange(len(grid))
    best, fair = Y[on_top, columns], honest(several or cs)
    shown = best if fair is None else fair[some]
    half = half_width(noise[on_top, :, columns].T) if noise.shape[1] else None
    spent = {c["n"]: float(np.mean([run["per_rollout"] for run in c["runs"]])) for c in cs}

    def crossing(a, b, at):
        """b overtakes a at `at`; the interval is where their difference may be zero."""
        ok = ~np.isnan(Y[a] + Y[b])
        lo = hi = None
        if half is not None:
            error = half_width((noise[b] - noise[a])[:, ok])
            lo, hi = invert(x[ok], (Y[a] - Y[b])[ok], error, at)
        B = B_p[b][np.searchsorted(x, at).clip(0, len(x) - 1)] * ns[b]
        M = math.exp(at) if unit == "updates" else math.exp(at) / spent[ns[b]] / B
        return {"C": math.exp(at), "from": ns[a], "to": ns[b], "M": M,
                "reward": float(np.interp(at, x, Y[b])),
                "lo": None if lo is None else math.exp(lo),
                "hi": None if hi is None else math.exp(hi)}
    turns = []
    for s in found:
        turns.append(crossing(s["a"], s["b"], s["x"]) | dict(why=s["why"]))
        if s["why"] != "crossing":
            turns[-1].update(lo=None, hi=None)
    pairs = [crossing(a, b, at) for a in range(len(ns)) for b in range(a + 1, len(ns))
             for at in crossings(x, Y[b] - Y[a])]

    near = []  # every fourth budget: the n that are indistinguishable from the best
    for j in sorted({*range(0, len(grid), 4), len(grid) - 1}):
        there = inside[:, j].copy()
        there[on_top[j]] = True
        ok = np.flatnonzero(there)
        same = indistinguishable(Y[ok, j], noise[ok, :, j].T)
        near.append(dict(C=grid[j], set=[ns[i] for i, yes in zip(ok, same) if yes]))
    last_top = np.argmax(np.where(np.isnan(last), -np.inf, last), 0)
    runs = [run for c in cs for run in c["runs"]]
    curse = "removed: chosen on the other seeds, scored on one"
    if cs[0]["split"] == "samples":
        curse = "removed: chosen on half of the samples, scored on the other half"
    if fair is None:
        curse = "not removed: a cell with one seed, and fewer than 2k samples for each problem"
    return dict(
        ns=ns, range=[grid[0], grid[-1]], runs_used=[r["run"] for r in runs],
        seeds=sorted({r["seed"] for r in runs}), curse=curse, per_rollout=spent,
        B_p=int(B_p[0, 0]) if (B_p == B_p[0, 0]).all() else None,
        switches=turns, crossings=pairs, near=near,
        surface=surface_of_cells(cs, grid, Y, noise, inside, on_top),
        envelope=dict(C=grid, n=[ns[i] for i in on_top], B_p=B_p[on_top, columns], reward=shown,
                      highest=best, carried=~inside[on_top, columns],
                      lo=None if half is None else shown - half,
                      hi=None if half is None else shown + half),
        last=dict(n=[ns[i] for i in last_top], reward=last[last_top, columns]),
        edge=grid_edge(ns, ns[on_top[-1]], int(B_p[on_top[-1], -1]), grid[-1], cfg))


def surface_of_cells(cs, grid, Y, noise, inside, on_top):
    """What the law is fitted to: reward over (n, C) at budgets that the runs of all n reached.

    Without those n whose runs stop early, as long as two n are left. Pruned cells stay as far below
    the best as at their end, as surely as there: that pruning gave up on a cell, often for the
    budget alone, is no evidence against it. None where the budgets span less than a factor of 4.
    """
    ns, columns = [c["n"] for c in cs], np.arange(len(grid))
    best, S, D, valid = Y[on_top, columns], Y.copy(), noise.copy(), inside.copy()
    gone = {i for i, c in enumerate(cs) if not unpruned([c])}
    for i in gone:
        end = np.flatnonzero(inside[i])[-1]
        after = slice(end + 1, None)
        S[i, after] = best[after] - (best[end] - Y[i, end])
        below = noise[i, :, end] - noise[on_top[end], :, end]
        D[i, :, after] = noise[on_top[after], :, columns[after]].T + below[:, None]
        valid[i, after] = True
    longest = max(c["reach"][1] for c in cs)
    full = [i for i, c in enumerate(cs) if i in gone or c["reach"][1] >= 0.8 * longest]
    full = full if len(full) > 1 else list(range(len(cs)))
    both = np.flatnonzero(valid[full].all(0))
    if not len(both) or grid[both[-1]] < 4 * grid[both[0]]:
        return None
    pick = both[np.unique(np.linspace(0, len(both) - 1, 31).round().astype(int))]
    return dict(C=grid[pick], ns=[ns[i] for i in full], Y=np.round(S[np.ix_(full, pick)], 5),
                left_out=[n for i, n in enumerate(ns) if i not in full],
                noise=np.round(D[full][:, :, pick].swapaxes(0, 1), 5))


def add_points(panel, cs, grid, cfg):
    """Adds to a panel of one B_p what needs its runs: curves, points, the paper's way."""
    runs = [run for c in cs for run in c["runs"]]
    found = n_star(runs, cfg["bin"], grid)
    curves, paper, sigmoids = [], [], dict(zip(found["ns"], found["curves"]))
    for c in cs:
        ok = c["inside"]
        half = half_width(c["noise"][:, ok]) if len(c["noise"]) else None
        curves.append(dict(
            n=c["n"], reached=c["reach"], seeds=[r["seed"] for r in c["runs"]], C=grid[ok],
            reward=c["Y"][ok], last=c["last"][ok], lo=None if half is None else c["Y"][ok] - half,
            hi=None if half is None else c["Y"][ok] + half,
            end=np.mean([r["reward"][-1] for r in c["runs"]]),
            best_so_far=np.mean([r["reward"].max() for r in c["runs"]])))
        paper.append(carry(sigmoids[c["n"]], ok))
    env = panel["envelope"]
    paper = np.array(paper)[:, np.isin(grid, env["C"])]
    top = np.max(np.where(np.isnan(paper), -np.inf, paper), 0)
    top[np.isinf(top)] = np.nan
    seen = np.isfinite(top)
    above = float(np.mean((top - env["reward"])[seen])) if seen.any() else None
    base = [run["reward"][0] for run in runs if run["C"][0] == 0]
    points = [dict(n=c["n"], seed=run["seed"], C=C, reward=round(R, 5)) for c in cs
              for run, (Cs, Rs) in zip(c["runs"], c["points"])
              for C, R in zip(Cs.tolist(), Rs.tolist())]
    return panel | dict(
        curves=curves, points=points, base=np.mean(base) if base else None,
        records=pooled_records(runs, cfg["bin"]) | dict(frontier=top, above=above),
        declines=declining(runs))


def grid_edge(values, value, other, C, cfg, axis="n"):
    """dict(n, side, add, text) where the best n at the largest budget is the panel's smallest or
    largest, else None.

    values: all n at the B_p `other`; with axis="B_p" all B_p at the n `other`.
    """
    if len(values) < 2 or value not in (values[0], values[-1]):
        return None
    largest = value == values[-1]
    side, more = ("largest", 2 * value) if largest else ("smallest", value // 2)
    out = {axis: value, "side": side, "add": None}
    text = f"{axis} = {value} is the {side} of the grid and the best at C = {si(C)}, so {axis}* may"
    text += " lie beyond"
    if more < (2 if axis == "n" else 1) or cfg["B_max"] and other * more > cfg["B_max"]:
        why = f"B_max allows no larger {axis}" if largest else f"no smaller {axis} exists"
        return out | dict(text=f"{text}; {why}")
    add = dict(B_p=other, n=more) if axis == "n" else dict(B_p=more, n=other)
    return out | dict(add=add, text=f"{text}; add B_p = {add['B_p']}, n = {add['n']} next")


def at_end(cs):
    """The largest budget that the runs of these cells share: its index on the grid, or None."""
    ok = np.flatnonzero(np.all([c["inside"] for c in cs], 0))
    return int(ok[-1]) if len(ok) else None


def cells_at(cells, grid, C):
    """The cells that count at the budget of `grid` nearest to C: (its index, those cells).

    Each does up to where its runs ended, and beyond that with its best so far, unless it was
    pruned.
    """
    j = int(np.abs(np.log(grid / C)).argmin())
    return j, [c for c in cells if c["inside"][j] or unpruned([c]) and not np.isnan(c["Y"][j])]


def values_at(cs, j):
    """Curves at one budget, index j of the grid: Y (N,) and their noise (K, N)."""
    return np.array([c["Y"][j] for c in cs]), np.array([c["noise"][:, j] for c in cs]).T


# --------------------------------------------------------------------------------------------------
# Of one run

def decline(C, values):
    """How far a run's last evaluation lies below its best: (from C, fall, its standard error).

    values (E, P). The best of many noisy evaluations looks better than it is. So the best is chosen
    on every second problem and the fall measured on the others, both ways round, which takes that
    bias out. The error is over problems.
    """
    fall, at = np.zeros(values.shape[1]), 0
    for half in (0, 1):
        at = values[:, half::2].mean(1).argmax()
        fall[1 - half::2] = (values[at] - values[-1])[1 - half::2]
    return C[at], fall.mean(), fall.std(ddof=1) / math.sqrt(len(fall))


def declining(runs):
    """The runs whose last evaluation lies over 2 standard errors below their best."""
    out = []
    for run in runs:
        if run["counts"] is not None and run["counts"].shape[1] > 3:
            C, fall, se = decline(run["C"], run["counts"] / run["samples"])
            if fall > 2 * se > 0:
                out.append(dict(run=run["run"], n=run["n"], seed=run["seed"], since=C, fall=fall,
                                se=se))
    return out


def gain(run, metric):
    """What a run gained: dict(last, gain, lo, hi), its last evaluation and that less the base
    model's, with a 90% interval.

    Paired by problem, normal over problems, which covers the rollouts' noise and not another seed
    of training.
    """
    out = dict(last=run["reward"][-1], gain=None, lo=None, hi=None)
    if run["C"][0] == 0 and run["counts"] is not None and run["counts"].shape[1] > 1:
        each = np.subtract(*right(run["counts"][[-1, 0]], metric, run["samples"]))
        half = 1.645 * each.std(ddof=1) / math.sqrt(len(each))
        out.update(gain=each.mean(), lo=each.mean() - half, hi=each.mean() + half)
    return out


def coverage(runs, cfg):
    """What the intervals of this sweep cover, in words."""
    if not cfg["boot"]:
        return "none (boot=0)"
    text = "90% over validation problems and rollouts"
    if any(run["counts"] is None for run in runs):
        text = "90% over the binomial noise of rewards without counts per problem"
    if any(run["biased"] for run in runs):
        text += "; the source's estimate of this metric is biased, as its log says"
    seeds = Counter((run["B_p"], run["n"], run["lr"]) for run in runs).values()
    if max(seeds) == 1:
        return text + "; one seed: the variation from run to run is not covered"
    many = " to ".join(map(str, sorted({min(seeds), max(seeds)})))
    return (f"{text} and over seeds, {many} for each cell, their variance pooled over cells "
            "(Student's t)")


# --------------------------------------------------------------------------------------------------
# Contrasts within seeds. Runs of one seed have their training problems in common, so a difference
# is taken seed by seed: what the problems of a seed do to all of its runs drops out, and intervals
# are narrower.

def seed_noise(table):
    """How a run of {key: (S, P)} scatters beyond its cell and its seed: (std of its mean, df)."""
    m = np.array([t.mean(1) for t in table.values()])  # (cells, S)
    cells, S = m.shape
    rest = m - m.mean(0) - m.mean(1, keepdims=True) + m.mean()
    df = (cells - 1) * (S - 1)
    return math.sqrt((rest ** 2).sum() / max(df, 1)), df


def bounded(each, error, df):
    """The mean of one value a problem (P,) with its noise: dict(gain, half, sees).

    error: its standard error over seeds, with df degrees of freedom. half: half of the 90% interval
    over seeds and problems. sees: the effect that such runs would show in four of five repetitions.
    """
    problems = each.std(ddof=1) / math.sqrt(len(each))
    # few seeds want Student's t, hundreds of problems the normal distribution
    half = math.hypot(stats.t.ppf(0.95, max(df, 1)) * error, 1.645 * problems)
    return dict(gain=each.mean(), half=half, sees=half + 0.84 * math.hypot(error, problems))


def contrast(table, weights, noise=None):
    """The sum of weights[key], which sum to 0, times cell key of {key: (S, P)}, as in `bounded`.

    noise: `seed_noise` of a larger study of the same kind, which has more degrees of freedom.
    """
    spread, df = noise or seed_noise(table)
    S = len(next(iter(table.values())))
    each = sum(w * table[key].mean(0) for key, w in weights.items())  # (P,)
    return bounded(each, spread * math.sqrt(sum(w * w for w in weights.values()) / S), df)


def best_but(cells, out):
    """The key of {key: (S, P)} with the highest mean over the seeds but `out`, one or a list of
    them."""
    return max(cells, key=lambda key: np.delete(cells[key], out, 0).mean())


def best_less(table, among, others):
    """The best of the keys `among` less the best of `others`: (the former of each seed, `bounded`).

    A best is chosen on all seeds but one and measured on that one: the maximum of noisy means is
    too high (the winner's curse).
    """
    spread, df = seed_noise(table)
    S = len(table[among[0]])
    best, each = [], []
    for seed in range(S):
        a, b = (best_but({key: table[key] for key in keys}, seed) for keys in (among, others))
        best.append(a)
        each.append(table[a][seed] - table[b][seed])
    return best, bounded(np.mean(each, 0), spread * math.sqrt(2 / S), df)


def change(now, before):
    """The mean of now (S, P) less before (S, P), the same runs earlier, as in `bounded`."""
    d = (now - before).mean(1)  # one difference a seed, so S - 1 degrees of freedom
    return bounded((now - before).mean(0), d.std(ddof=1) / math.sqrt(len(d)), len(d) - 1)


def over_sweeps(values):
    """The mean of one number a sweep, as in `bounded`, with a 90% interval over sweeps."""
    half = stats.t.ppf(0.95, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values))
    return dict(gain=np.mean(values), half=half, sees=1.5 * half)


# ---- verdicts: agree, disagree, or undecided where the interval leaves both open

def judge(c, claim=+1, gained=1 / 3):
    """What a contrast says of a claim: "is larger" (+1), "is smaller" (-1) or "makes no difference"
    (0).

    gained: what training gained, which sets the scale. agree: the whole interval is on the claim's
    side. disagree: it leaves out an effect of SMALL x gained on that side. For 0, the interval lies
    within ALIKE x gained of 0, or wholly beyond it.
    """
    lo, hi = c["gain"] - c["half"], c["gain"] + c["half"]
    small, alike = SMALL * gained, ALIKE * gained
    if claim == 0:
        agree, disagree = -alike < lo and hi < alike, lo > alike or hi < -alike
    elif claim > 0:
        agree, disagree = lo > 0, hi < small
    else:
        agree, disagree = hi < 0, lo > -small
    if agree:
        return "agree"
    return "disagree" if disagree else "undecided"


def denied(verdict):
    """The verdict on the opposite of a claim."""
    return dict(agree="disagree", disagree="agree").get(verdict, verdict)


def both(verdicts):
    """One verdict of several that a claim needs: agree if all do, disagree if one does."""
    if set(verdicts) == {"agree"}:
        return "agree"
    return "disagree" if "disagree" in verdicts else "undecided"


# ---- does the best n move?

def best_lr(tables, out):
    """The one of an n's tables [(S, P) for each lr] that is best on the seeds but `out`."""
    return tables[best_but(dict(enumerate(tables)), out)]


def best_n(condition, out):
    """The n of {n: [(S, P) for each lr]} that is best on the seeds but `out`, each n at its best lr
    there."""
    return best_but({n: best_lr(condition[n], out) for n in sorted(condition)}, out)


def constant_n(conditions, noises):
    """The n that could serve in all conditions: (n, what another n is better than it at most, in
    any condition).

    At most: the upper end of the interval, each n at its best lr. The largest n is not asked:
    constant there would say nothing of a rise.
    """
    ns = sorted(conditions[0])
    costs = {}
    for n in ns[:-1]:
        ends = []
        for condition, noise in zip(conditions, noises):
            own = best_lr(condition[n], [])
            for other in set(ns) - {n}:
                pair = dict(own=own, other=best_lr(condition[other], []))
                c = contrast(pair, dict(own=-1, other=1), noise)
                ends.append(c["gain"] + c["half"])
        costs[n] = max(ends)
    n = min(costs, key=costs.get)
    return n, costs[n]


def shift(first, second, gained=1 / 3):
    """Does the best n move up from one condition to another? Both {n: [(S, P) for each lr]}, of the
    same runs.

    For each seed the best n of each condition is chosen on the other seeds, each n at its best lr
    there. gained: as in `judge`. Raises Missing below three n. -> dict
      a, b: the n chosen in the first and in the second condition, one a seed
      loses, gains: what those of b lose on those of a in the first condition, and gain in the
        second
      flat, worst: `constant_n` of the two conditions
      censored: flat is the smallest n tried, so that a rise below it would not show
      verdict: agree if b > a for every seed and both contrasts are above 0; disagree if b < a for
        every seed and both are, or if one n, not censored, costs less than SMALL x gained in both
      sees: the effect that such runs would show
    """
    ns = sorted(first)
    if len(ns) < 3:
        raise Missing("three n or more")
    noises = []
    for condition in (first, second):
        noises.append(seed_noise({(n, i): t for n in ns for i, t in enumerate(condition[n])}))

    S = len(first[ns[0]][0])
    a, b, lost, won = [], [], [], []
    for seed in range(S):
        a.append(best_n(first, seed))
        b.append(best_n(second, seed))
        lost.append(best_lr(first[a[-1]], seed)[seed] - best_lr(first[b[-1]], seed)[seed])
        won.append(best_lr(second[b[-1]], seed)[seed] - best_lr(second[a[-1]], seed)[seed])
    loses, gains = (bounded(np.mean(each, 0), spread * math.sqrt(2 / S), df)
                    for each, (spread, df) in zip((lost, won), noises))

    flat, worst = constant_n((first, second), noises)
    censored = flat == ns[0] and flat > 2  # below n = 2 there is no group, so no rise to miss
    clear = loses["gain"] > loses["half"] and gains["gain"] > gains["half"]
    if clear and all(y > x for x, y in zip(a, b)):
        verdict = "agree"
    elif clear and all(y < x for x, y in zip(a, b)):
        verdict = "disagree"
    else:
        verdict = "disagree" if worst < SMALL * gained and not censored else "undecided"
    return dict(a=a, b=b, loses=loses, gains=gains, sees=max(loses["sees"], gains["sees"]),
                verdict=verdict, flat=flat, worst=worst, censored=censored)
