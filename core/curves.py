"""core/curves.py: what the model of a cell gets at a budget, how sure that is, which cell is best.

    grid, cells = cells_of(runs, "avg@4")     # runs: of core/runs.py
    j = nearest(grid, 1e5)
    cells[best(cells, j)], alike(cells, j)    # the best (B_p, n, lr_base) there, and its equals

A cell is one (B_p, n, lr_base) with all its seeds. One estimate has one meaning: its value at C is
what its model at C gets, a smoothing spline in log C through its own evaluations up to C, read off
at the last of them (and a line to the next). It is not monotone: a run that falls is worth what it
fell to. A cell counts at C where a run of it is alive there, within an evaluation; a diverged run
counts as what it got.

Errors have two parts, both without draws. Problems: all runs share the validation problems, so a
difference is taken problem by problem. Runs: how seeds scatter within their cells, pooled over
cells (Student's t); with one seed the scatter of checkpoints plus RUN_SD, which is stated.
Needs config.py, core/runs.py, numpy and scipy.
"""
import math

import numpy as np
from scipy import stats
from scipy.linalg import solveh_banded

from core.runs import right

SMOOTH = 0.3    # the spline's penalty on curvature over ln C; from 0.03 to 3 nothing changes
JUMP = 3        # scatters of checkpoints: an evaluation farther from the spline stands for itself
RUN_SD = 0.015  # how far a run lies from its cell, where no second seed tells: the median of ours
GRID = 81       # budgets at which curves are compared, evenly spaced in log C
Z = 1.645       # 90% intervals


# --------------------------------------------------------------------------------------------------
# One run

def last_value(x, smooth=SMOOTH):
    """The smoothing spline's value at its last point as weights of the data: x (E,) -> (E,).

    The natural cubic spline with the least sum of squares + smooth * integral of f''^2 (Reinsch
    1967): f = y - smooth Q g, where (R + smooth Q'Q) g = Q'y has five diagonals. The smoother is
    symmetric, so its last row is what it makes of y = (0, ..., 0, 1). Below three points: the last.
    """
    w = np.zeros(len(x))
    w[-1] = 1
    if len(x) < 3:
        return w
    h = np.diff(x)
    q = np.array([1 / h[:-1], -1 / h[:-1] - 1 / h[1:], 1 / h[1:]])  # (3, E - 2), columns of Q
    band = np.zeros((3, len(x) - 2))  # upper diagonals of R + smooth Q'Q
    band[2] = (h[:-1] + h[1:]) / 3 + smooth * (q ** 2).sum(0)
    band[1, 1:] = h[1:-1] / 6 + smooth * (q[1, :-1] * q[0, 1:] + q[2, :-1] * q[1, 1:])
    band[0, 2:] = smooth * q[2, :-2] * q[0, 2:]
    g = solveh_banded(band, np.append(np.zeros(len(x) - 3), q[2, -1]))
    for i in range(3):
        w[i:i + len(g)] -= smooth * q[i] * g
    return w


def reach(run):
    """The range of C that a run stands for: its first evaluation of training to its last.

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


def scatter(runs):
    """How checkpoints scatter around their runs' curves: a standard deviation of the reward.

    From the median of second differences over the later half of the evaluations: a trend cancels in
    them, and a run that collapses does not count much. The noise of the rollouts is in it.
    """
    bends = np.concatenate([np.diff(run["reward"][len(run["C"]) // 2:], 2) for run in runs])
    return 1.4826 * float(np.median(np.abs(bends))) / math.sqrt(6) if len(bends) else 0.0


def values_of(run, metric, grid, checkpoints=math.inf):
    """What a run's model gets at each budget: ((G, P) by problem, or (G, 1) without counts; (G,) 1
    where it is alive, 0 where it diverged before, NaN elsewhere). checkpoints: of `scatter`.

    A run that falls at once falls faster than a spline bends, so an evaluation more than JUMP
    scatters from the spline is taken as it is. The scatter, one number, is of whole runs: here
    alone evaluations after C count.
    """
    seen = run["C"] > 0
    x, (lo, hi) = np.log(run["C"][seen]), reach(run)
    data = run["reward"][seen, None]
    if run["counts"] is not None:
        data = right(run["counts"][seen], metric, run["samples"])
    R = data.mean(1)
    # as each evaluation came, what it and those before it say; straight lines between them
    place = np.interp(np.log(grid), x, np.arange(len(x)))
    rows, at = np.zeros((len(grid), len(x)), np.float32), np.floor(place).astype(int)
    for i in np.unique([at, np.minimum(at + 1, len(x) - 1)]):
        w = last_value(x[:i + 1])
        if abs(w @ R[:i + 1] - R[i]) > JUMP * checkpoints:
            w = np.eye(i + 1)[i]
        rows[:, :i + 1] += np.maximum(1 - np.abs(place - i), 0)[:, None] * w  # its share, (G, 1)
    slack = 0.0  # alive: within an evaluation of its end
    if run["status"] not in ("diverged", "pruned") and len(x) > 1:
        slack = float(np.median(np.diff(run["C"][seen])))
    state = np.where((grid >= lo * (1 - 1e-9)) & (grid <= (hi + slack) * (1 + 1e-9)), 1, np.nan)
    if run["status"] == "diverged":
        state[grid > hi * (1 + 1e-9)] = 0
    return rows @ data.astype(np.float32), state


# --------------------------------------------------------------------------------------------------
# Cells

def cells_of(runs, metric):
    """(grid (G,), cells), a cell a dict(B_p, n, lr, runs, V, halves, Y, inside, reach, seeds, se,
    run_sd, t, checkpoints).

    V (S, G, P): by run, budget and problem; NaN where a run has no say. halves (S, H, G): its means
    over every second problem, H = 1 without counts. inside (G,): where a run of
    it is alive. Y (G,): the mean over its runs, NaN outside. se (G,): the error over problems.
    run_sd, t (G,): how far runs lie from their cell and Student's factor, the same for all cells.
    """
    ends = [reach(run) for run in runs]
    low, high = min(lo for lo, _ in ends), max(hi for _, hi in ends)
    grid = np.geomspace(low, high, GRID)
    # the budgets of the page, exactly
    grid = np.unique([low, *grid[1:-1], *(high / 2 ** i for i in range(4) if high / 2 ** i > low)])
    groups = {}
    for run in sorted(runs, key=lambda run: (run["B_p"], run["n"], run["lr"], run["seed"])):
        groups.setdefault((run["B_p"], run["n"], run["lr"]), []).append(run)
    cells, checkpoints = [], scatter(runs)
    for (B_p, n, lr), same in groups.items():
        V, state = map(np.array, zip(*(values_of(run, metric, grid, checkpoints)
                                       for run in same)))
        V[np.isnan(state)] = np.nan
        inside = (state == 1).any(0)
        V[:, ~inside] = np.nan
        cells.append(dict(B_p=B_p, n=n, lr=lr, runs=same, V=V, inside=inside,
                          reach=(min(reach(r)[0] for r in same), max(reach(r)[1] for r in same))))
    add_errors(cells, grid, checkpoints)
    return grid, cells


def add_errors(cells, grid, checkpoints):
    """Adds halves, Y, se, seeds, run_sd, t and checkpoints to each cell, see `cells_of`."""
    total, df = np.zeros(len(grid)), np.zeros(len(grid))
    for c in cells:
        means = c["V"].mean(2)  # (S, G)
        there = ~np.isnan(means)
        c["seeds"] = there.sum(0)  # (G,)
        c["Y"] = over_runs(means)
        total += np.where(there, (means - c["Y"]) ** 2, 0).sum(0)
        df += np.maximum(c["seeds"] - 1, 0)
        P, H = c["V"].shape[2], min(c["V"].shape[2], 2)
        c["halves"] = np.array([c["V"][..., h::H].mean(2) for h in range(H)]).swapaxes(0, 1)
        each = over_runs(c["V"])  # (G, P)
        c["se"] = each.std(1, ddof=1) / math.sqrt(P) if P > 1 else np.zeros(len(grid))
    stated = math.hypot(RUN_SD, checkpoints)
    run_sd = np.where(df > 0, np.sqrt(total / np.maximum(df, 1)), stated)
    t = np.where(df > 0, stats.t.ppf(0.95, np.maximum(df, 1)), Z)
    for c in cells:
        c.update(run_sd=run_sd, t=t, checkpoints=checkpoints)


def over_runs(a):
    """The mean over the first axis of what is there, NaN where nothing is."""
    there = ~np.isnan(a)
    mean = np.where(there, a, 0).sum(0) / np.maximum(there.sum(0), 1)
    return np.where(there.any(0), mean, np.nan)


def nearest(grid, C):
    """The index of the budget of grid (G,) nearest to C."""
    return int(np.abs(np.log(grid / C)).argmin())


def half_width(c):
    """Half of the 90% interval of a cell's reward (G,): the wider of what another run of it gets on
    these problems, and what these runs get on other problems of the kind."""
    S = np.maximum(c["seeds"], 1)
    other_run = c["t"] * c["run_sd"] * np.sqrt(1 + 1 / S)
    return np.maximum(other_run, np.hypot(Z * c["se"], c["t"] * c["run_sd"] / np.sqrt(S)))


def difference(a, b, js):
    """Cell a less cell b, the mean over the budgets js: (gap, its standard error over problems,
    over runs)."""
    each = []
    for c in (a, b):
        V = c["V"][:, js].mean(1)  # (S, P)
        each.append(V[~np.isnan(V[:, 0])])
    gap = each[0].mean(0) - each[1].mean(0)  # (P,)
    problems = gap.std(ddof=1) / math.sqrt(len(gap)) if len(gap) > 1 else 0.0
    runs = float(a["run_sd"][js].mean()) * math.sqrt(sum(1 / len(V) for V in each))
    return float(gap.mean()), problems, runs


def best(cells, js):
    """The index of the cell with the highest mean at the budget js, or over several: None where no
    cell is alive."""
    Y = np.array([c["Y"][js].mean() for c in cells])
    return None if np.isnan(Y).all() else int(np.nanargmax(Y))


def alike(cells, js):
    """Which cells are indistinguishable from the best at the budgets js: mask (N,).

    One is out where it lies below the best by more than its error, at 90% for all comparisons
    together (Sidak). A cell that is not alive there is out.
    """
    js = np.atleast_1d(js)
    top = best(cells, js)
    there = [i for i, c in enumerate(cells) if not np.isnan(c["Y"][js]).any()]
    level = 0.9 ** (1 / max(len(there) - 1, 1))
    wider = stats.norm.ppf(level) / Z  # t's quantiles grow alike
    out = np.zeros(len(cells), bool)
    for i in there:
        gap, problems, runs = difference(cells[top], cells[i], js)
        error = wider * math.hypot(Z * problems, float(cells[i]["t"][js].mean()) * runs)
        out[i] = i == top or gap <= error + 1e-12
    return out


def folds_of(cells):
    """Means by cell, seed and half of the problems: (N, S, H, G), NaN where there is none."""
    seeds = sorted({run["seed"] for c in cells for run in c["runs"]})
    out = np.full((len(cells), len(seeds), *cells[0]["halves"].shape[1:]), np.nan)
    for i, c in enumerate(cells):
        for run, halves in zip(c["runs"], c["halves"]):
            out[i, seeds.index(run["seed"])] = halves
    return out


def held_out(folds):
    """What chose and what it is scored on, for each fold: (chosen (N, F, G), scored (N, F, G)).

    A fold is one seed on one half of the problems: the choice sees the other seeds on the other
    half. With one seed, that seed on the other half.
    """
    N, S, H, G = folds.shape
    chose, scored = [], []
    for s in range(S):
        rest = np.delete(folds, s, 1) if S > 1 else folds
        for h in range(H):
            chose.append(np.array([over_runs(rest[i, :, (h + 1) % H]) for i in range(N)]))
            scored.append(folds[:, s, h])
    return np.array(chose).swapaxes(0, 1), np.array(scored).swapaxes(0, 1)


def fair(cells):
    """What choosing the best cell brings at each budget, without the winner's curse: (G,).

    Chosen on some runs and problems and scored on others, see `held_out`; so some folds may score
    another cell than `best`. With one seed the luck of the run that was chosen stays in it.
    """
    chose, scored = held_out(folds_of(cells))
    chose = np.where(np.isnan(chose) | np.isnan(scored), -np.inf, chose)
    pick = chose.argmax(0)  # (F, G)
    got = np.take_along_axis(scored, pick[None], 0)[0]
    plain = np.array([c["Y"] for c in cells])
    top = np.where(np.isnan(plain), -np.inf, plain).max(0)
    got = over_runs(np.where(np.isneginf(chose.max(0)), np.nan, got))
    return np.where(np.isnan(got), top, got)


def stop_before(cells, j):
    """An earlier stop that is better than the best cell at budget j: dict(cell, j, reward, gain),
    None where more rollouts did no harm.

    The stop, a cell and a budget, is chosen and scored on different runs and problems. It counts
    where it is above the best at j by two standard errors, of problems and of checkpoints.
    """
    top = best(cells, j)
    if top is None or j == 0:
        return None
    Y = np.array([c["Y"][:j] for c in cells])
    if np.isnan(Y).all():
        return None
    i, at = np.unravel_index(np.nanargmax(Y), Y.shape)
    chose, scored = held_out(folds_of(cells)[..., :j + 1])
    N, F, G = chose.shape
    chose = np.where(np.isnan(chose) | np.isnan(scored), -np.inf, chose)[..., :j]
    flat = chose.transpose(1, 0, 2).reshape(F, -1).argmax(1)  # (F,)
    got = np.array([[scored[p // j, f, p % j], scored[top, f, j]] for f, p in enumerate(flat)])
    if np.isnan(got).any(1).all():
        return None
    stop, end = np.nanmean(got[~np.isnan(got).any(1)], 0)
    a, b = cells[i], cells[top]
    gap = over_runs(a["V"][:, at]) - over_runs(b["V"][:, j])  # (P,)
    problems = gap.std(ddof=1) / math.sqrt(len(gap)) if len(gap) > 1 else 0.0
    # a run's own luck is in both of its checkpoints
    sd = b["checkpoints"] if i == top else float(b["run_sd"][j])
    if stop - end <= 2 * math.hypot(problems, sd * math.sqrt(2 / b["seeds"][j])):
        return None
    return dict(cell=int(i), j=int(at), reward=float(stop), gain=float(stop - end))


# --------------------------------------------------------------------------------------------------
# The frontier of some cells

def crossings(x, ahead):
    """Where a difference of two curves turns positive: ahead (G,) on x (G,), NaN where undefined.

    Returns the list of upward crossings, interpolated linearly in x.
    """
    a, b = ahead[:-1], ahead[1:]
    at = np.flatnonzero((a <= 0) & (b > 0))  # NaN compares false
    return [float(x[i] - a[i] * (x[i + 1] - x[i]) / (b[i] - a[i])) for i in at]


def where_zero(x, gap, half, at):
    """The interval around `at` in which gap (G,) on x (G,), which rises through zero there, is
    within `half` (G,) of it: (lo, hi), None for an end that the data leave open."""
    below = np.flatnonzero((x <= at) & (gap < -half))
    above = np.flatnonzero((x >= at) & (gap > half))
    return (float(x[below[-1]]) if len(below) else None,
            float(x[above[0]]) if len(above) else None)


def overtakes(a, b, grid, at):
    """Where cell b overtakes cell a, at log C = at: dict(C, from, to, M, reward, lo, hi)."""
    js = np.flatnonzero(~np.isnan(a["Y"] + b["Y"]))
    x, gaps, halves = np.log(grid[js]), [], []
    for j in js:
        gap, problems, runs = difference(b, a, np.array([j]))
        gaps.append(gap)
        halves.append(math.hypot(Z * problems, b["t"][j] * runs))
    lo, hi = where_zero(x, np.array(gaps), np.array(halves), at)
    cost = np.mean([run["per_rollout"] for run in b["runs"]])
    return {"C": math.exp(at), "from": a["n"], "to": b["n"],
            "M": math.exp(at) / cost / (b["B_p"] * b["n"]),
            "reward": float(b["Y"][nearest(grid, math.exp(at))]),
            "lo": lo and math.exp(lo), "hi": hi and math.exp(hi)}


def panel_of(cells, grid):
    """One panel of frontier.json: the frontier of cells, its switches of n and its equals.

    envelope: at each budget where a cell is alive the (B_p, n, lr) on top, its value `highest`, the
    `reward` that is fair to tell, and lo, hi. near: at every fourth budget the (B_p, n) that are
    indistinguishable. why of a switch: crossing; begins, where the new n has no runs before; ends,
    where the old n has none behind.
    """
    Y = np.array([c["Y"] for c in cells])  # (N, G)
    some = np.flatnonzero(~np.isnan(Y).all(0))
    top = np.where(np.isnan(Y), -np.inf, Y).argmax(0)
    shown, x, turns, near = fair(cells), np.log(grid), [], []
    half = np.array([half_width(cells[top[j]])[j] for j in some])
    for i, j in zip(some[:-1], some[1:]):
        a, b = cells[top[i]], cells[top[j]]
        if a["n"] == b["n"]:
            continue
        at = crossings(x[[i, j]], (b["Y"] - a["Y"])[[i, j]])
        why = "crossing" if at else "begins" if np.isnan(b["Y"][i]) else "ends"
        turns.append(overtakes(a, b, grid, at[0] if at else x[j]) | dict(why=why))
        if why != "crossing":
            turns[-1].update(lo=None, hi=None)
    for j in sorted({*some[::4], some[-1]}):
        near.append(dict(C=grid[j], set=[(c["B_p"], c["n"]) for c, same in
                                         zip(cells, alike(cells, j)) if same]))
    runs = [run for c in cells for run in c["runs"]]
    sizes = {c["B_p"] for c in cells}
    return dict(
        ns=sorted({c["n"] for c in cells}), range=[grid[some[0]], grid[some[-1]]],
        B_p=sizes.pop() if len(sizes) == 1 else None, switches=turns, near=near,
        runs_used=[run["run"] for run in runs], seeds=sorted({run["seed"] for run in runs}),
        envelope=dict(C=grid[some], highest=Y[top[some], some], reward=shown[some],
                      lo=shown[some] - half, hi=shown[some] + half,
                      **{key: [cells[top[j]][key] for j in some] for key in ("n", "B_p", "lr")}))
