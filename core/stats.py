"""core/stats.py: every statistic of the analysis, on the plain arrays of core/runs.py.

    sweep = table(runs)                                # cells, budgets, rewards and their noise
    best(sweep, j, of), tied(sweep, j, of)             # the best cell at budget j, and its ties
    verdict(sweep, of=[0, 1, 2])                       # does the best n rise with the budget?

One noise model serves all of it: reward = cell + seed + run + problem. Cells are compared by seed
and by problem. The variance of runs is pooled over cells, with a prior. Rollout noise shows in runs
and in problems, and is counted once.
"""
import math
from types import SimpleNamespace

import numpy as np
from scipy import stats

RUN_SD, RUN_DF = 0.012, 3  # prior for the standard deviation of runs, and its degrees of freedom
LAW_SD = 0.015           # the same in the test of a law, where a false law is the larger harm
GRID = 41                # budgets, evenly spaced in log C
PULL = 1 / 3             # weight of the quadratic in the choice of a cell, see `smooth`
Z = 1.645                # for 90% intervals
TIE, DRAWS, ALPHA = 2, 4000, 0.05  # of the test, see `law_test`


# ---- One run -------------------------------------------------------------------------------------

def on_grid(run, grid, base):
    """Return (G, P): the run's reward at each budget, NaN where it has none. Between two
    evaluations the reward is interpolated in ln C. A run counts for one update, or evaluation,
    beyond its last. After a diverged run comes `base` (P,)."""
    trained = run["C"] > 0
    C = run["C"][trained]
    V = np.apply_along_axis(lambda y: np.interp(np.log(grid), np.log(C), y), 0,
                            run["reward"][trained])
    update = C[-1] / max(run["step"][-1], 1)
    V[grid < C[0] * (1 - 1e-9)] = np.nan
    if run["status"] == "diverged":
        V[grid > C[-1] * (1 + 1e-9)] = base
    else:
        V[grid > (C[-1] + max(update, np.median(np.diff(C)))) * (1 + 1e-9)] = np.nan
    return V


def budget_of(run):
    """Return the run's planned budget if it ended because of it, in the unit of C, else 0."""
    cfg, last = run["config"], max(run["rollouts"][-1], 1)
    whole = run["status"] == "budget" and last <= cfg.get("C", 0) < last + cfg["B_p"] * cfg["n"]
    return cfg["C"] * run["C"][-1] / last if whole else 0


# ---- All runs: one linear model ------------------------------------------------------------------

def fit_cells(A, cell, seed):
    """Fit reward = cell + seed to A (R, W, P), runs x budgets x problems. Return a namespace:

      each (N, W, P)  the reward of each cell;  H (N, N): its covariance over runs / that of a run
      runs (W, W)     sums of squares of the runs' residuals, with df degrees of freedom
      rolls (W, W)    the part of a problem's variance that is rollout noise (0 if df = 0)

    Seed effects sum to 0. They are left out if cells and seeds cannot be separated.
    """
    X = (np.asarray(cell)[:, None] == np.unique(cell)).astype(float)
    U = (np.asarray(seed)[:, None] == np.unique(seed)).astype(float)
    N, both = X.shape[1], np.hstack([X, U[:, :-1] - U[:, -1:]])
    X = both if np.linalg.matrix_rank(both) == both.shape[1] else X
    G, P = np.linalg.pinv(X), A.shape[2]
    rest, df = A - np.einsum("rq,qwp->rwp", X @ G, A), len(A) - X.shape[1]
    of_runs = rest.mean(2)
    e = rest - of_runs[..., None]
    rolls = np.einsum("rwp,rvp->wv", e, e) / max(df * (P - 1), 1) * bool(df)
    return SimpleNamespace(each=np.einsum("nr,rwp->nwp", G[:N], A), H=(G @ G.T)[:N, :N],
                           runs=of_runs.T @ of_runs, df=df, rolls=rolls)


def table(runs, also=()):
    """Return the sweep as a namespace of arrays: N cells, G budgets, P problems, R runs.

      runs, cells   the runs; [(B_p, n, lr_base)], sorted
      grid (G,)     the budgets: GRID of them, the largest halved up to three times, and `also`
      V             (R, G, P) the runs' rewards;  cell, seed (R,);  reached (R, G): V is the run's
                    own, not carried on from a smaller budget
      each          (N, G, P) the cells' rewards, NaN where a cell has none;  mean (N, G)
      choice        (N, G) the rewards by which a cell is chosen, see `smooth`
      alive         (N, G) whether a run of the cell reached the budget
      H             (G, N, N) covariance of the cells' means over runs, in units of var (G,), which
                    has df (G,) degrees of freedom
      within        (G,) the variance of runs of a cell, seeds included;  rolls (G,) see `fit_cells`
    """
    of_run = [(r["B_p"], r["n"], r["lr_base"]) for r in runs]
    cells = sorted(set(of_run))
    cell = np.array([cells.index(of) for of in of_run])
    seed = np.array([r["seed"] for r in runs])
    high = max(max(r["C"][-1], budget_of(r)) for r in runs)
    low = min(r["C"][r["C"] > 0][0] for r in runs)
    grid = np.unique([*np.geomspace(low, high, GRID),
                      *(high / 2 ** i for i in range(4) if high / 2 ** i >= low),
                      *also])
    base = np.mean([r["reward"][0] for r in [r for r in runs if r["C"][0] == 0] or runs], 0)
    V = np.array([on_grid(r, grid, base) for r in runs])
    reached, N, (_, G, P) = ~np.isnan(V[..., 0]), len(cells), V.shape
    alive = np.array([reached[cell == i].any(0) for i in range(N)])
    for i in range(N):  # it may stop below its budget, so it keeps the value of its longest runs
        if alive[i].any():
            end = np.flatnonzero(alive[i])[-1]
            for r in np.flatnonzero((cell == i) & reached[:, end]):
                V[r, end:] = V[r, end]
    t = SimpleNamespace(runs=runs, cells=cells, grid=grid, V=V, cell=cell, seed=seed, alive=alive,
                        reached=reached, each=np.full((N, G, P), np.nan), rolls=np.zeros(G),
                        H=np.full((G, N, N), np.nan), df=np.zeros(G))
    defined, squares, spread, spread_df = ~np.isnan(V[..., 0]), np.zeros(G), 0.0, 0
    for j in np.flatnonzero(defined.any(0)):
        rows = np.flatnonzero(defined[:, j])
        present, A = np.unique(cell[rows]), V[rows, j:j + 1]
        f = fit_cells(A, cell[rows], seed[rows])
        t.each[present, j], t.H[j][np.ix_(present, present)] = f.each[:, 0], f.H
        squares[j], t.df[j], t.rolls[j] = f.runs[0, 0], f.df, f.rolls[0, 0]
        g = fit_cells(A.mean(2, keepdims=True), cell[rows], np.zeros(len(rows)))
        spread, spread_df = spread + g.runs[0, 0], spread_df + g.df
    t.var = (RUN_DF * RUN_SD ** 2 + squares) / (RUN_DF + t.df)
    # runs of a cell vary at least as much as runs beyond their seed
    seeds = spread / max(spread_df, 1) - squares.sum() / max(t.df.sum(), 1)
    t.within, t.df, t.mean = t.var + max(seeds, 0), t.df + RUN_DF, t.each.mean(2)
    t.choice = smooth(t, t.mean, range(N))
    return t


def smooth(t, y, of):
    """Return y (N, G), rewards of the cells `of`, made smoother to choose the best cell by them:
    means over the last half octave of C, and the cells of a budget are pulled by PULL towards a
    quadratic in log n, log B_p and log lr_base, fitted to all cells."""
    near = ((t.grid > t.grid[:, None] / 2 ** 0.5) & (t.grid <= t.grid[:, None])).astype(float)
    defined = ~np.isnan(y)
    recent = np.where(defined, y, 0) @ near.T / np.maximum(defined @ near.T, 1)
    y, X, us = np.where(defined, recent, np.nan), [np.ones(len(y))], []
    for values in np.log(np.maximum([t.cells[i] for i in of], 1e-12)).T:
        u = values - values.mean()
        X += [u ** power for power in range(1, min(len(set(values)), 3))]
        X += [u * v for v in us]
        us += [u] if u.any() else []
    X = np.array(X).T
    for j in np.flatnonzero(defined.sum(0) > X.shape[1]):
        ok = defined[:, j]
        y[ok, j] -= PULL * (y[ok, j] - X[ok] @ np.linalg.lstsq(X[ok], y[ok, j], rcond=None)[0])
    return y


# ---- Cells at one budget -------------------------------------------------------------------------

def difference(t, a, b, j):
    """Return (gap, problems, runs): cell a minus cell b at budget j, and two standard errors."""
    gap, H, P = t.each[a, j] - t.each[b, j], t.H[j], t.each.shape[2]
    h = max(np.nan_to_num(H[a, a] + H[b, b] - 2 * H[a, b]), 0)
    problems = max(over_problems(t, gap, t.mean[[a, b], j]) - t.rolls[j] * h / P, 0)
    return gap.mean(), math.sqrt(problems), math.sqrt(t.var[j] * h)


def over_problems(t, y, means):
    """Return the variance over problems of the mean of y (P,). For logs with only means, P = 1, it
    is the binomial variance of the rewards `means`, or 0 if the number of problems is unknown."""
    if len(y) > 1:
        return y.var(ddof=1) / len(y)
    asked, means = max(r["problems"] for r in t.runs), np.clip(means, 0, 1)
    return (means * (1 - means)).sum() / asked if asked else 0.0


def best(t, j, of):
    """Return the best cell at budget j, of the cells `of`, or None if none has a reward."""
    y = t.choice[of, j]
    return None if np.isnan(y).all() else of[np.nanargmax(y)]


def tied(t, j, of):
    """Return the cells tied with the best at budget j: their gaps are within the error, with 90%
    confidence for all comparisons together (Sidak; Hsu 1981)."""
    top, of = best(t, j, of), [i for i in of if not np.isnan(t.mean[i, j])]
    level = 0.9 ** (1 / max(len(of) - 1, 1))
    q, z = stats.t.ppf(level, t.df[j]), stats.norm.ppf(level)
    gaps = {i: difference(t, top, i, j) for i in of}
    return [i for i, (gap, problems, runs) in gaps.items()
            if gap <= math.hypot(z * problems, q * runs)]


def half_width(t, i, j):
    """Return half of a 90% interval of cell i's reward at budget j, the wider of two: for another
    run of the cell on these problems, and for these runs on other problems of the kind."""
    q, h, y = stats.t.ppf(0.95, t.df[j]), np.nan_to_num(t.H[j, i, i], nan=1.0), t.each[i, j]
    another = q * math.sqrt(t.within[j] + t.var[j] * h)
    of_problems = over_problems(t, y, y)
    return max(another, math.sqrt(Z ** 2 * of_problems + q ** 2 * t.var[j] * h))


def heldout_reward(t, of):
    """Return (G,): what the choice of the best cell earns, without the winner's curse. For each
    seed (`own`) and half of the problems, the other seeds choose a cell on the other half, hence
    the [::-1], by `smooth`, and this seed scores it on this half; the mean of all scores. A cell
    with one seed is chosen by it as well (`fallback`), so the luck of its run remains."""
    halves, scores = min(t.V.shape[2], 2), []
    for s in np.unique(t.seed):
        own, others = ([cell_means(t, of, runs, slice(h, None, halves)) for h in range(halves)]
                       for runs in (t.seed == s, t.seed != s))
        for score, fallback, voters in zip(own, own[::-1], others[::-1]):
            choice = smooth(t, np.where(np.isnan(voters), fallback, voters), of)
            chosen = np.nan_to_num(choice, nan=-1).argmax(0)
            scores.append(np.take_along_axis(score, chosen[None], 0)[0])
    held_out = nan_mean(scores)
    return np.where(np.isnan(held_out), np.fmax.reduce(t.mean[of]), held_out)


def cell_means(t, of, runs, problems):
    """Return the mean reward (N, G) of the cells `of` over runs (a mask) and problems (a slice)."""
    y = t.V[:, :, problems].mean(2)
    return np.array([nan_mean(y[runs & (t.cell == i)]) for i in of])


def nan_mean(y):
    """Return np.nanmean(y, 0), but without a warning where there is nothing to average."""
    return np.ma.masked_invalid(y).mean(0).filled(np.nan)


# ---- Does the best n rise with the budget? -------------------------------------------------------

def windows(t, of):
    """Return (A (R, W, P), n (R,), seed (R,), C [(first, last)]), rewards by n, seed and window, or
    None if the budgets span less than a factor of 4, or if only one n is left. There are two to six
    windows of log C, about octaves, over the budgets that all runs of the cells `of` reached; a run
    that ended before 0.8 of the longest is left out. Each n has in each window the lr_base that is
    best for it on the other seeds."""
    rows = np.flatnonzero(np.isin(t.cell, of))
    ends = np.array([t.grid[t.reached[r]].max(initial=0) for r in rows])
    rows = rows[ends >= 0.8 * ends.max(initial=0)]
    js = np.flatnonzero(t.reached[rows].all(0))
    n_of = np.array([t.cells[i][1] for i in t.cell])
    if len(set(n_of[rows])) < 2 or len(js) < 3 or t.grid[js[-1]] < 4 * t.grid[js[0]]:
        return None
    W = min(max(round(math.log2(t.grid[js[-1]] / t.grid[js[0]])), 2), 6)
    parts = np.array_split(js, W)
    V = np.array([[curve[part].mean(0) for part in parts] for curve in t.V])  # (R, W, P)
    A, keys = [], sorted({(n_of[r], t.seed[r]) for r in rows})
    for n, s in keys:
        mine, scores = [r for r in rows if (n_of[r], t.seed[r]) == (n, s)], []
        for r in mine:
            others = [o for o in rows if t.cell[o] == t.cell[r] and t.seed[o] != s]
            scores.append(V[others or [r]].mean(2).mean(0))
        A.append(V[np.take(mine, np.argmax(scores, 0)), range(W)])
    n, seed = np.array(keys).T
    return np.array(A), n, seed, [t.grid[part[[0, -1]]] for part in parts]


def law_test(W, y, runs, problems, df):
    """Return (p, i, a, w) of the null hypothesis that one n is best in every window. y (N W,): the
    rewards by n and window, with covariances over runs (df) and over problems. The hypothesis falls
    if every n is beaten, by a smaller one early or by a larger one late (the middle window is both,
    so that a fall is no rise). Near-ties are ties (Hansen 2005). i: the n that comes closest; the
    a-th n beats it most, in window w."""
    N = len(y) // W
    K = [(i, a, w) for i in range(N) for a in range(N) for w in range(W)
         if (a < i and w <= W // 2) or (a > i and w >= W // 2)]
    i0, better, worse = np.array([(i, a * W + w, i * W + w) for i, a, w in K]).T
    D = np.eye(N * W)[better] - np.eye(N * W)[worse]
    v_runs, v_problems = variances(D, runs, problems)
    T = D @ y / np.sqrt(v_runs + v_problems)
    beaten = np.array([T[i0 == i].max() for i in range(N)])
    where = K[np.where(i0 == beaten.argmin(), T, -np.inf).argmax()]
    if beaten.min() <= 0:
        return 1.0, *where
    rng = np.random.default_rng(0)
    value, vector = np.linalg.eigh(runs + problems)
    draws = rng.standard_normal((DRAWS, N * W)) * np.sqrt(np.maximum(value, 0))
    noise, u = draws @ vector.T @ D.T, rng.chisquare(df, (DRAWS, 1)) / df
    scale, p = np.sqrt(np.maximum(u * v_runs + v_problems, 0.2 * u * v_runs)), []
    for i in range(N):  # a sweep in which the i-th n is never beaten
        null, raised = y.copy(), (i0 == i) & (T > -TIE)
        null[better[raised]] = y[worse[raised]]
        drawn = (D @ null + noise) / scale
        p.append((np.min([drawn[:, i0 == h].max(1) for h in range(N)], 0) >= beaten.min()).mean())
    return float(max(*p, 1 / DRAWS)), *where


def variances(D, runs, problems):
    """Return the variances over runs and over problems of contrasts D (K, N W)."""
    a, b = (np.einsum("ka,ab,kb->k", D, v, D) for v in (runs, problems))
    return a, np.maximum(b, -0.8 * a)  # b is a difference of two estimates


def verdict(t, of):
    """Return dict(verdict, p, ...) for the cells `of`, all of one B_p. p is None without a test.
    verdict is "rises" or "falls" if only this test is significant, with this p, and the n that are
    best or tied change from the first window to the last. Else it is "undecided", with p of a rise.
    ended: the n without a run that came near the largest budget; they are not tested. ahead: how
    the first best n is beaten by the last one late, or, if undecided, how the n that comes closest
    to serving every budget is beaten: n, by, gap, half (points of reward, half of a 90% interval),
    C (first, last). sets: the n tied with each window's best."""
    found = windows(t, of)
    if found is None:
        return dict(verdict="undecided", p=None)
    A, of_run, seed, C = found
    n, (_, W, P) = np.unique(of_run), A.shape
    N, f = len(n), fit_cells(A, of_run, seed)
    prior, df = LAW_SD ** 2 * (0.5 + 0.5 * np.eye(W)), RUN_DF + f.df
    runs = np.kron(f.H, (RUN_DF * prior + f.runs) / df)
    problems = 0 * runs
    if P > 1:
        problems = (np.cov(f.each.reshape(N * W, P)) - np.kron(f.H, f.rolls)) / P
    y = f.each.mean(2).ravel()
    back = np.arange(N * W).reshape(N, W)[::-1].ravel()
    p, i, a, at = law_test(W, y, runs, problems, df)
    p_falls, *_ = law_test(W, y[back], runs[np.ix_(back, back)], problems[np.ix_(back, back)], df)
    # gap[b, a, w]: how much the b-th n is ahead of the a-th in window w; half of its 90% interval
    I, Y = np.eye(N * W).reshape(N, W, -1), y.reshape(N, W)
    v_runs, v_problems = variances((I[:, None] - I[None]).reshape(-1, N * W), runs, problems)
    half = np.sqrt(np.maximum(stats.t.ppf(0.95, df) ** 2 * v_runs + Z ** 2 * v_problems, 0))
    gap, half, top = Y[:, None] - Y[None], half.reshape(N, N, W), Y.argmax(0)
    sets = [[int(n[b]) for b in range(N) if gap[top[w], b, w] <= half[top[w], b, w]]
            for w in range(W)]
    said = "undecided"
    if (p <= ALPHA) != (p_falls <= ALPHA) and sets[0] != sets[-1]:
        said, p = ("rises", p) if p <= ALPHA else ("falls", p_falls)
        if top[0] != top[-1]:
            i, a, at = top[0], top[-1], W - 1
    return dict(verdict=said, p=p, sets=sets, windows=C,
                seeds=len(np.unique(seed)), ended=sorted({t.cells[i][1] for i in of} - set(n)),
                ahead=dict(n=int(n[i]), by=int(n[a]), gap=gap[a, i, at], half=half[a, i, at],
                           C=C[at]))
