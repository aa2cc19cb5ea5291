"""core/stats.py: every statistic of the analysis: the reward of a cell's model at a budget, its
interval, the cells tied with the best, and a test of whether the best n rises with the budget.

    grid, cells = cells_of(runs, "avg@4")            # runs: from core/runs.py
    j = nearest(grid, 1e5)
    cells[best(cells, j)], tied_with_best(cells, j)  # the best (B_p, n, lr_base) and its ties

A cell is one (B_p, n, lr_base) with all its seeds. A cell's value at C is the reward of its model
at C, from a smoothing spline in log C through the evaluations up to C. docs/analysis.md ("How
sure") has the noise model, the intervals and what happens beyond the end of a run. The sections
follow the order of use: runs, cells, the frontier, the test for a law, and contrasts of labelled
arms. results/ judges claims by these contrasts.
"""
import itertools
import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
from scipy import stats
from scipy.linalg import solveh_banded

from core.runs import metric_per_problem, over_distinct

# The spline's penalty on curvature over ln C. Any value from 0.03 to 3 gives the same results
SMOOTH = 0.3
# If an evaluation is more than JUMP standard deviations off the spline, it is not smoothed
JUMP = 3
# The prior for the standard deviation between runs is RUN_SD, with the weight of RUN_DF degrees of
# freedom. In our sweeps the standard deviation is 0.002 to 0.034, with a median of 0.009. With
# RUN_SD = 0.012, 90% of one-seed intervals contain the true value
RUN_SD, RUN_DF = 0.012, 3
# The number of budgets at which curves are compared. They are evenly spaced in log C
GRID = 81
# The normal quantile of two-sided 90% intervals
Z = 1.645


# --------------------------------------------------------------------------------------------------
# One run

def last_value(x, smooth=SMOOTH):
    """Return weights (E,) such that weights @ y is the smoothing spline's value at its last point.

    x, y (E,): the coordinates of the points to smooth. The weights do not depend on y.

    The natural cubic spline minimises sum of squares + smooth * integral of f''^2 (Reinsch 1967).
    The solution is f = y - smooth Q g, where (R + smooth Q'Q) g = Q'y has five diagonals. The
    map from y to f is a symmetric matrix. So its last row, which has the weights, is f for
    y = (0, ..., 0, 1). If there are fewer than three points, all weight is on the last point.
    """
    w = np.zeros(len(x))
    w[-1] = 1
    if len(x) < 3:
        return w
    h = np.diff(x)
    # q (3, E - 2): the three nonzero entries in each column of Q
    q = np.array([1 / h[:-1], -1 / h[:-1] - 1 / h[1:], 1 / h[1:]])
    # band: the upper diagonals of R + smooth Q'Q
    band = np.zeros((3, len(x) - 2))
    band[2] = (h[:-1] + h[1:]) / 3 + smooth * (q ** 2).sum(0)
    band[1, 1:] = h[1:-1] / 6 + smooth * (q[1, :-1] * q[0, 1:] + q[2, :-1] * q[1, 1:])
    band[0, 2:] = smooth * q[2, :-2] * q[0, 2:]
    g = solveh_banded(band, np.append(np.zeros(len(x) - 3), q[2, -1]))
    for i in range(3):
        w[i:i + len(g)] -= smooth * q[i] * g
    return w


def reach(run):
    """Return the range (lo, hi) of C that a run covers: from its first to its last evaluation, not
    counting the evaluation of the base model.

    Evaluations come after whole updates of B = B_p n rollouts. So the first evaluation comes up to
    B rollouts later than `eval_every`, and the last update leaves up to B rollouts of the budget
    unspent. Therefore lo is lowered to `eval_every` (or to B, if B is larger). If the run ended
    because its budget was spent, hi is raised to the full budget. Without this, only an n whose B
    divides `eval_every` and the budget would have values at the first and the last budget of the
    grid, so it would win there without a competitor.
    """
    B, x, cfg = run["B_p"] * run["n"], run["rollouts"], run["config"]
    first, last = (i for i in np.flatnonzero(run["C"] > 0)[[0, -1]])
    due, budget, lo, hi = cfg.get("eval_every", 0), cfg.get("C", 0), x[first], x[last]
    if due <= lo < due + B:
        lo = max(due, min(B, lo))
    if run["status"] == "budget" and hi <= budget < hi + B:
        hi = budget
    return run["C"][first] * lo / max(x[first], 1), run["C"][last] * hi / max(x[last], 1)


def per_problem(run, metric):
    """Return the metric (E, P) of each distinct problem at each evaluation. If the log has only the
    mean over problems, return this mean (E, 1)."""
    if run["counts"] is None or metric == "reward":
        return run["reward"][:, None]
    return over_distinct(metric_per_problem(run["counts"], metric, run["samples"]),
                         run.get("copies"))


def checkpoint_sd(runs, metric):
    """Return the standard deviation of an evaluation around the smooth curve of its run. It
    includes the sampling noise of the rollouts.

    The estimate is from the median of second differences over the later half of the evaluations. A
    trend cancels in second differences, and the median ignores a run that collapses. A second
    difference needs three evaluations, so a run with three or four evaluations uses its last
    three. These may include the bend of the early rise, which makes the estimate too large.
    """
    bends = []
    for run in runs:
        reward = per_problem(run, metric).mean(1)
        bends.append(np.diff(reward[min(len(reward) // 2, len(reward) - 3):], 2))
    return 1.4826 * float(np.median(np.abs(np.concatenate(bends)))) / math.sqrt(6)


def values_of(run, metric, grid, checkpoints=math.inf):
    """Return (values, state): the reward of a run's model at each budget of grid (G,), and whether
    the run is alive at this budget.

    values: (G, P), or (G, 1) if the log has no counts. state (G,): 1 if the run is alive, 0 if it
    diverged at a smaller budget, else NaN. checkpoints: the standard deviation of an evaluation
    around the smooth curve of its run, from `checkpoint_sd`.

    The value at C is interpolated between the smoothed rewards of two evaluations: the last one
    before C and the first one after C. The smoothed reward of an evaluation comes from a spline
    through this evaluation and all earlier ones. A spline cannot follow the sudden fall of a run
    that collapses. So an evaluation more than JUMP * checkpoints away from its spline is not
    smoothed.
    """
    trained = run["C"] > 0
    x, (lo, hi) = np.log(run["C"][trained]), reach(run)
    data = per_problem(run, metric)[trained]  # (E, P)
    reward = data.mean(1)
    # Fit the spline up to each evaluation in turn, and interpolate linearly between the smoothed
    # values. A budget at position 2.3 is between evaluations 2 and 3
    position = np.interp(np.log(grid), x, np.arange(len(x)))
    before = np.floor(position).astype(int)
    weights = np.zeros((len(grid), len(x)), np.float32)
    for i in np.unique([before, np.minimum(before + 1, len(x) - 1)]):
        smooth = last_value(x[:i + 1])
        if abs(smooth @ reward[:i + 1] - reward[i]) > JUMP * checkpoints:
            smooth = np.eye(i + 1)[i]
        weights[:, :i + 1] += np.maximum(1 - np.abs(position - i), 0)[:, None] * smooth
    # slack: a run counts as alive for one more evaluation interval after its last evaluation
    slack = 0.0
    if run["status"] not in ("diverged", "pruned") and len(x) > 1:
        slack = float(np.median(np.diff(run["C"][trained])))
    state = np.where((grid >= lo * (1 - 1e-9)) & (grid <= (hi + slack) * (1 + 1e-9)), 1, np.nan)
    if run["status"] == "diverged":
        state[grid > hi * (1 + 1e-9)] = 0
    return weights @ data.astype(np.float32), state


# --------------------------------------------------------------------------------------------------
# Cells and their noise

@dataclass
class Noise:
    """The variance of runs around the mean of their cell, pooled over all cells of a sweep.

      run_var      (G,) variance between runs, after the effects of cell and seed are removed
      df           (G,) degrees of freedom of run_var, including RUN_DF of the prior
      seed_ratio   variance between seeds, divided by run_var
      cov          (G, N, N) covariance of the cells' means, divided by run_var
      rollouts     (G,) variance of one problem's reward that comes from its evaluation rollouts
      checkpoints  the result of `checkpoint_sd`

    cov is NaN for a cell that has no run at a budget. The noise of the evaluation rollouts is in
    run_var, and it is also in the variance over problems. `difference` therefore subtracts
    `rollouts` from the variance over problems, so that this noise counts only once.
    """
    run_var: np.ndarray
    df: np.ndarray
    seed_ratio: float
    cov: np.ndarray
    rollouts: np.ndarray
    checkpoints: float


@dataclass(eq=False)
class Cell:
    """One (B_p, n, lr_base) with its runs, on a grid of G budgets.

      index        the cell's position in the list of `cells_of` and in Noise.cov
      values       (S, G, P) reward of each run on each problem, NaN outside the run
      died         (S, G) whether the run diverged at a smaller budget
      alive        (G,) whether any run of the cell is alive, see `values_of`
      reach        the range of budgets (lo, hi) that the cell's runs cover
      per_problem  (G, P) the reward estimated from all seeds, NaN if no run has a value
      mean         (G,) the mean of per_problem over problems
    """
    B_p: int
    n: int
    lr: float
    runs: list
    index: int
    values: np.ndarray
    died: np.ndarray
    alive: np.ndarray
    reach: tuple
    per_problem: np.ndarray = None
    mean: np.ndarray = None
    noise: Noise = None


def cells_of(runs, metric):
    """Return (grid (G,), [Cell, ...]) for runs of core/runs.py, in order of (B_p, n, lr)."""
    ends = [reach(run) for run in runs]
    low, high = min(lo for lo, _ in ends), max(hi for _, hi in ends)
    grid = np.geomspace(low, high, GRID)
    # the grid includes the exact budgets of the report: the largest, and 1/2, 1/4 and 1/8 of it
    grid = np.unique([low, *grid[1:-1], *(high / 2 ** i for i in range(4) if high / 2 ** i > low)])
    groups = {}
    for run in sorted(runs, key=lambda run: (run["B_p"], run["n"], run["lr"], run["seed"])):
        groups.setdefault((run["B_p"], run["n"], run["lr"]), []).append(run)
    cells, checkpoints = [], checkpoint_sd(runs, metric)
    for (B_p, n, lr), of_cell in groups.items():
        values, state = map(np.array, zip(*(values_of(run, metric, grid, checkpoints)
                                            for run in of_cell)))
        alive = (state == 1).any(0)
        values[np.isnan(state)] = np.nan
        survivors = np.array([run["status"] != "diverged" for run in of_cell])
        if alive.any() and survivors.any():
            end = np.flatnonzero((state[survivors] == 1).any(0))[-1]
            last = survivors & (state[:, end] == 1)
            # a budget C is an upper limit, so a cell whose runs ended before C keeps its last value
            values[last, end + 1:] = values[last, end:end + 1]
            values[:, :alive.argmax()] = np.nan
        else:
            values[:, ~alive] = np.nan
        lows, highs = zip(*(reach(run) for run in of_cell))
        cells.append(Cell(B_p, n, lr, of_cell, len(cells), values, state == 0, alive,
                          (min(lows), max(highs))))
    add_estimates(cells, len(grid), checkpoints)
    return grid, cells


def design(cell, seed):
    """Return the design matrix (R, K) of the linear model reward = cell + seed for R runs. The
    columns of the cells come first.

    cell, seed (R,): the cell and the seed of each run. If the seeds are not crossed with the cells,
    there are no columns for seeds, because they would absorb differences between cells.
    """
    cells = np.unique(cell)
    X = (np.asarray(cell)[:, None] == cells).astype(float)
    both = np.hstack([X, np.asarray(seed)[:, None] == np.unique(seed)])
    crossed = np.linalg.matrix_rank(both) == len(cells) + len(np.unique(seed)) - 1
    return both if crossed else X


def residuals(X, A):
    """Return the residuals of A (R, ...) after a least-squares fit to X (R, K), and their degrees
    of freedom."""
    flat = A.reshape(len(A), -1)
    rest = flat - X @ (np.linalg.pinv(X) @ flat)
    return rest.reshape(A.shape), len(A) - np.linalg.matrix_rank(X)


def split_noise(X, A):
    """Return the residuals of A (R, W, P) after a least-squares fit to X (R, K), split into two
    parts, and their degrees of freedom: (means, rest, df).

    means (R, W): the residuals' means over problems. rest (R, W, P): the residuals minus `means`.
    """
    rest, df = residuals(X, A)
    runs = rest.mean(2)
    return runs, rest - runs[..., None], df


def add_estimates(cells, G, checkpoints):
    """Set per_problem, mean and noise of each cell, see `Cell` and `Noise`.

    G: the number of budgets. checkpoints: the result of `checkpoint_sd`.
    """
    values = np.concatenate([c.values for c in cells])  # (R, G, P)
    died = np.concatenate([c.died for c in cells])
    cell = np.concatenate([[c.index] * len(c.runs) for c in cells])
    seed = np.array([run["seed"] for run in runs_of(cells)])
    P, N = values.shape[2], len(cells)
    # the noise is estimated without diverged runs, because divergence is not noise
    usable = ~np.isnan(values[..., 0]) & ~died

    # budgets at which the same runs are usable form one part. A part is a pair: the indices of
    # these runs, and the indices of the budgets
    patterns, which = np.unique(usable, axis=1, return_inverse=True)
    parts = [(np.flatnonzero(pattern), np.flatnonzero(which.ravel() == i))
             for i, pattern in enumerate(patterns.T) if pattern.any()]

    # sums of squared residuals of the runs: `within` after the effects of cells are removed, and
    # `run_sum` after the effects of cells and seeds are removed
    run_sum, df, rollouts, within, within_df = np.zeros(G), np.zeros(G), np.zeros(G), 0.0, 0
    for runs, js in parts:
        A = values[runs][:, js].astype(float)
        rest, rest_df = residuals((cell[runs, None] == np.unique(cell[runs])).astype(float),
                                  A.mean(2))
        within, within_df = within + (rest ** 2).sum(), within_df + rest_df * len(js)
        of_runs, of_problems, df[js] = split_noise(design(cell[runs], seed[runs]), A)
        run_sum[js] = (of_runs ** 2).sum(0)
        if df[js[0]] and P > 1:
            rollouts[js] = (of_problems ** 2).sum((0, 2)) / df[js] / (P - 1)
    run_var = (RUN_DF * RUN_SD ** 2 + run_sum) / (RUN_DF + df)
    seed_var = within / within_df - run_sum.sum() / df.sum() if df.any() else 0.0
    ratio = max(seed_var, 0.0) / run_var.mean()

    # Generalised least squares for the means of the cells: a seed that two cells share cancels in
    # their difference, and a seed that only one cell has is still used
    cov = np.full((G, N, N), np.nan)
    estimate = np.full((N, G, P), np.nan, np.float32)
    for runs, js in parts:
        # present: the cells with usable runs. X (R, cells) and U (R, seeds): the cell and the seed
        # of each run, one-hot
        present, column = np.unique(cell[runs], return_inverse=True)
        X = np.eye(len(present))[column]
        U = (seed[runs, None] == np.unique(seed[runs])).astype(float)
        shrink = ratio / (1 + ratio * U.sum(0))

        # `weights` is X' V^-1, where V = 1 + ratio * U U'
        weights = X.T - ((X.T @ U) * shrink) @ U.T
        H = np.linalg.inv(weights @ X)
        cov[np.ix_(js, present, present)] = H
        estimate[np.ix_(present, js)] = np.einsum("nr,rgp->ngp", H @ weights, values[runs][:, js])
    noise = Noise(run_var, RUN_DF + df, ratio, cov, rollouts, checkpoints)
    for c in cells:
        c.per_problem, c.noise = estimate[c.index], noise
        if c.died.any():  # diverged runs count with their last reward
            defined = ~np.isnan(c.values[..., 0])
            share = ((c.died & defined).sum(0) / np.maximum(defined.sum(0), 1))[:, None]  # (G, 1)
            diverged = mean_over_runs(np.where((c.died & defined)[..., None], c.values, np.nan))
            c.per_problem = np.where(share > 0, (1 - share) * c.per_problem + share * diverged,
                                     c.per_problem)
        c.mean = c.per_problem.mean(1).astype(float)


def mean_over_runs(a):
    """Return the mean over the first axis, ignoring NaN. The mean is NaN if all values are NaN."""
    defined = ~np.isnan(a)
    mean = np.where(defined, a, 0).sum(0) / np.maximum(defined.sum(0), 1)
    return np.where(defined.any(0), mean, np.nan)


def runs_of(cells):
    """Return the runs of the cells, in the order of the cells."""
    return [run for c in cells for run in c.runs]


def by_B_p(cells):
    """Return {B_p: its cells}, the smallest B_p first."""
    return {B_p: [c for c in cells if c.B_p == B_p] for B_p in sorted({c.B_p for c in cells})}


def nearest(grid, C):
    """Return the index of the budget of grid (G,) nearest to C."""
    return int(np.abs(np.log(grid / C)).argmin())


def combined_half_width(problems, runs, df):
    """Return the half-width of a 90% interval.

    problems: standard error over problems. runs: standard error over runs, with df degrees of
    freedom.
    """
    return math.hypot(Z * problems, stats.t.ppf(0.95, df) * runs)


def level_error(c, j):
    """Return the standard error over problems of a cell's mean at budget j.

    If the log has only the mean over problems, each problem's reward is assumed to be 0 or 1, which
    gives the largest possible error.
    """
    each, run = c.per_problem[j], c.runs[0]
    if len(each) > 1:
        return float(each.std(ddof=1)) / math.sqrt(len(each))
    *_, counted, stated = run.get("task", (0, 0))
    problems = len(set(run.get("copies") or ())) or counted or stated
    return math.sqrt(max(c.mean[j] * (1 - c.mean[j]), 0) / problems) if problems else 0.0


def ci_half_width(c, j):
    """Return half of the 90% interval of a cell's reward at budget j.

    The interval is the wider of two. The first is for the reward of another run of the cell on
    these problems. The second is for the reward of these runs on other problems of the same kind.
    """
    var, noise = c.noise.run_var[j], c.noise
    of_mean = var * noise.cov[j, c.index, c.index]
    other_run = math.sqrt(var * (1 + noise.seed_ratio) + of_mean)
    return max(combined_half_width(0, other_run, noise.df[j]),
               combined_half_width(level_error(c, j), math.sqrt(of_mean), noise.df[j]))


def covers(cells):
    """Return a text that says what the 90% intervals of the rewards of `cells` cover."""
    runs = runs_of(cells)
    seeds = Counter((run["B_p"], run["n"], run["lr"]) for run in runs).values()
    text = "90%, for one more run of the same command and for other problems of the kind"
    if cells[0].values.shape[2] == 1:
        text += " (binomial, because the log has only the mean over problems)"
    if any(run["biased"] for run in runs):
        text += "; the source's estimate of this metric is biased"
    if max(seeds) > 1:
        return f"{text}; {' to '.join(map(str, sorted({min(seeds), max(seeds)})))} seeds per cell"
    return f"{text}; one seed, so the standard deviation between runs is assumed to be {RUN_SD}"


def difference(a, b, j):
    """Return (gap, problems, runs): cell a minus cell b at budget j, with two standard errors.

    gap: the difference in reward. problems, runs: the standard errors of gap over problems and over
    runs. The difference is paired by problem, and by seed for the seeds that both cells have.
    """
    gap, cov = a.per_problem[j] - b.per_problem[j], a.noise.cov[j]
    h = cov[a.index, a.index] + cov[b.index, b.index] - 2 * cov[a.index, b.index]
    problems = gap.var(ddof=1) - a.noise.rollouts[j] * h if len(gap) > 1 else 0.0
    runs = math.sqrt(a.noise.run_var[j] * max(h, 0))
    return float(gap.mean()), math.sqrt(max(problems, 0) / len(gap)), runs


def gap_between(a, b, j):
    """Return cell a minus cell b at budget j: (gap, half of its 90% interval)."""
    gap, problems, runs = difference(a, b, j)
    return gap, combined_half_width(problems, runs, a.noise.df[j])


def best(cells, j):
    """Return the index of the cell with the highest mean at budget j, or None if no cell has one.
    """
    means = np.array([c.mean[j] for c in cells])
    return None if np.isnan(means).all() else int(np.nanargmax(means))


def best_cell(cells, j):
    """Return the cell with the highest mean at budget j, or the first cell if no cell has one."""
    top = best(cells, j)
    return cells[0 if top is None else top]


def tied_with_best(cells, j):
    """Return the mask (N,) of the cells tied with the best at budget j.

    A cell is tied if its gap to the best is at most the error of the gap. All comparisons together
    have 90% confidence (Sidak; Hsu's multiple comparisons with the best).
    """
    top = best(cells, j)
    defined = [i for i, c in enumerate(cells) if not np.isnan(c.mean[j])]
    level, out = 0.9 ** (1 / max(len(defined) - 1, 1)), np.zeros(len(cells), bool)
    t, z = stats.t.ppf(level, cells[top].noise.df[j]), stats.norm.ppf(level)
    for i in defined:
        gap, problems, runs = difference(cells[top], cells[i], j)
        out[i] = i == top or gap <= math.hypot(z * problems, t * runs) + 1e-12
    return out


def folds(S, H):
    """Return the folds in which a cell is chosen on one part of the data and scored on another.

    A fold is (chosen, scored), two masks (S, H) over S seeds and H halves of the problems. A fold
    scores one seed on one half, and chooses by the other seeds on the other half. If S = 1, the
    only seed is used for both. If H = 1, all problems are used for both.
    """
    out = []
    for s in range(S):
        for h in range(H):
            seeds, halves = np.arange(S) == s, np.arange(H) == h
            others = ~seeds if S > 1 else seeds, ~halves if H > 1 else halves
            out.append((np.outer(*others), np.outer(seeds, halves)))
    return out


def held_out(cells):
    """Return two arrays (N, F, G): the rewards used to choose a cell and the rewards used to score
    the chosen cell, in each of the `folds`.

    Diverged runs count in the choice. They are left out of the score, because the report names them
    anyway. If a cell has no score in a fold, its score is NaN and its reward for the choice is
    -inf.
    """
    seeds = sorted({run["seed"] for run in runs_of(cells)})
    # if the logs have no counts for each problem, the problems cannot be halved
    H = min(cells[0].values.shape[2], 2)
    masks, choice, score = folds(len(seeds), H), [], []
    for c in cells:
        # the means of a seed that the cell lacks stay NaN
        means = np.full((len(seeds), H, len(c.mean)), np.nan)
        survived = means.copy()
        for run, values, died in zip(c.runs, c.values, c.died):
            s = seeds.index(run["seed"])
            means[s] = [values[:, half::H].mean(1) for half in range(H)]
            survived[s] = np.where(died, np.nan, means[s])
        choice.append([mean_over_runs(means[chosen]) for chosen, _ in masks])
        score.append([survived[scored][0] for _, scored in masks])
    choice, score = np.array(choice), np.array(score)
    return np.where(np.isnan(choice) | np.isnan(score), -np.inf, choice), score


def heldout_reward(cells, held=None):
    """Return the reward (G,) of the best cell at each budget, without the winner's curse.

    In each fold, a cell is chosen on some runs and problems and scored on others (`held_out`). The
    reward is the mean score of the folds. The folds may choose different cells. If there is only
    one seed, the luck of the chosen run remains. held: a result of `held_out`, if the caller has
    one already.
    """
    choice, scored = held or held_out(cells)
    rewards = np.take_along_axis(scored, choice.argmax(0)[None], 0)[0]  # (F, G)
    rewards = mean_over_runs(np.where(np.isneginf(choice.max(0)), np.nan, rewards))
    means = np.array([c.mean for c in cells])
    highest = np.where(np.isnan(means), -np.inf, means).max(0)
    return np.where(np.isnan(rewards), highest, rewards)


def stop_before(cells, j, held=None):
    """Return a stop that beats the best cell at budget j, or None if there is no such stop.

    held: a result of `held_out`, if the caller has one already. A stop is a cell at a budget
    smaller than budget j. Returns dict
      cell, j  the indices of the cell and the budget of the stop with the highest mean reward
      reward   the held-out reward of stopping: each of the `folds` chooses and scores a stop
      gain     this reward minus the held-out reward of the best cell at budget j

    The result is None unless gain is more than two standard errors. The standard error covers
    problems and runs. If the stop is the best cell itself at a smaller budget, it covers problems
    and checkpoints.
    """
    top = best(cells, j)
    if top is None or j == 0:
        return None
    means = np.array([c.mean[:j] for c in cells])
    if np.isnan(means).all():
        return None
    i, at = np.unravel_index(np.nanargmax(means), means.shape)
    choice, scored = held or held_out(cells)
    F = choice.shape[1]
    # stops (F,): the stop chosen in each fold, as a number. The stop of cell c at the budget with
    # index g has the number c * j + g, because each cell has j stops
    stops = choice[..., :j].transpose(1, 0, 2).reshape(F, -1).argmax(1)
    rewards = np.array([[scored[p // j, f, p % j], scored[top, f, j]] for f, p in enumerate(stops)])
    # use only the folds that score both the stop and the best cell at j
    rewards = rewards[~np.isnan(rewards).any(1)]
    if not len(rewards):
        return None
    stop, end = rewards.mean(0)
    a, b = cells[i], cells[top]
    gap = a.per_problem[at] - b.per_problem[j]
    problems = gap.std(ddof=1) / math.sqrt(len(gap)) if len(gap) > 1 else 0.0
    # if the stop and the end are of one cell, they have the same runs. The noise of these runs
    # cancels in the gap, and only the noise of single checkpoints is left
    sd = b.noise.checkpoints if i == top else math.sqrt(b.noise.run_var[j])
    if stop - end <= 2 * math.hypot(problems, sd * math.sqrt(2 / len(b.runs))):
        return None
    return dict(cell=int(i), j=int(at), reward=float(stop), gain=float(stop - end))


# --------------------------------------------------------------------------------------------------
# The frontier of some cells

def overtakes(a, b, grid, C):
    """Return the switch from cell a to cell b at C: dict(C, from, to, M, reward, lo, hi).

    lo: the last budget below C at which a is better than b by more than the error, or None. hi: the
    first budget above C at which b is better than a by more than the error, or None.
    """
    js = np.flatnonzero(~np.isnan(a.mean + b.mean))
    gap, half = np.array([gap_between(b, a, j) for j in js]).T
    budgets = grid[js]
    below, above = budgets[(budgets <= C) & (gap < -half)], budgets[(budgets >= C) & (gap > half)]
    cost = np.mean([run["per_rollout"] for run in b.runs])
    return {"C": C, "from": a.n, "to": b.n, "M": C / cost / (b.B_p * b.n),
            "reward": float(b.mean[nearest(grid, C)]),
            "lo": float(below[-1]) if len(below) else None,
            "hi": float(above[0]) if len(above) else None}


def panel_of(cells, grid, end=math.inf):
    """Return one panel of frontier.json: the frontier of cells, its switches of n and its ties.

      envelope  dict(C, B_p, n, lr, highest, reward, lo, hi), the best cell at each budget
      near      at every fourth budget and the last, the (B_p, n) that are tied with the best
      switches  the changes of the best n, dicts of `overtakes` with why and clear

    highest: the mean of the best cell. reward: the held-out reward that the report prints, with its
    interval from lo to hi. end: the last budget.

    why: "begins" if the new n has no runs before the switch, "ends" if the old n has no runs after
    it, else "crossing". clear: False if an earlier clear switch has the same `from` and `to`.
    Otherwise, "begins" and "ends" are clear, and a "crossing" is clear if its `lo` or `hi` is
    not None. The gap exceeds its error at that budget.
    """
    means = np.array([c.mean for c in cells])  # (N, G)
    js = np.flatnonzero(~np.isnan(means).all(0) & (grid <= end))
    top = np.where(np.isnan(means), -np.inf, means).argmax(0)
    shown, x, turns, near = heldout_reward(cells), np.log(grid), [], []
    half = np.array([ci_half_width(cells[top[j]], j) for j in js])
    for i, j in zip(js[:-1], js[1:]):
        a, b = cells[top[i]], cells[top[j]]
        if a.n == b.n:
            continue
        before, after = (b.mean - a.mean)[[i, j]]
        # a comparison with NaN is false, so a cell without a value cannot make a crossing
        if before <= 0 < after:
            why, at = "crossing", float(x[i] - before * (x[j] - x[i]) / (after - before))
        else:
            why, at = "begins" if np.isnan(b.mean[i]) else "ends", x[j]
        turn = overtakes(a, b, grid, math.exp(at)) | dict(why=why)
        if why != "crossing":
            turn.update(lo=None, hi=None)
        seen = any(t["clear"] and (t["from"], t["to"]) == (a.n, b.n) for t in turns)
        clear = why != "crossing" or bool(turn["lo"] or turn["hi"])
        turns.append(turn | dict(clear=clear and not seen))
    for j in sorted({*js[::4], js[-1]}):
        near.append(dict(C=grid[j], set=[(c.B_p, c.n) for c, tied in
                                         zip(cells, tied_with_best(cells, j)) if tied]))
    sizes = {c.B_p for c in cells}
    runs = runs_of(cells)
    return dict(
        ns=sorted({c.n for c in cells}), range=[grid[js[0]], grid[js[-1]]],
        B_p=sizes.pop() if len(sizes) == 1 else None, switches=turns, near=near,
        runs_used=[run["run"] for run in runs], seeds=sorted({run["seed"] for run in runs}),
        envelope=dict(C=grid[js], highest=means[top[js], js], reward=shown[js],
                      lo=np.maximum(shown[js] - half, 0), hi=np.minimum(shown[js] + half, 1),
                      **{key: [getattr(cells[top[j]], key) for j in js]
                         for key in ("n", "B_p", "lr")}))


# --------------------------------------------------------------------------------------------------
# A test of whether the best n rises with the budget

# The prior for the standard deviation between runs in this test. It must not be smaller: with
# 0.010, up to 15% of sweeps without a rise would get the verdict "law"
LAW_SD = 0.015
# In the null distribution, an n counts as tied with the best n if its reward is less than TIE
# standard errors lower (Hansen 2005)
TIE = 2
# The number of samples of the null distribution
DRAWS = 4000
# The verdict "law" needs a p-value of ALPHA or less
ALPHA = 0.05
# The test needs budgets that span a factor of SPAN
SPAN = 4


def windows_of(cells, grid):
    """Return the rewards of all runs in two to six windows of log C, each about an octave wide. The
    windows cover the budgets that all n reached.

    Returns dict(A, n, seed, C, left_out), or None if the budgets span less than a factor of SPAN.
      A         (R, W, P) the reward of each run on each problem in each window
      n, seed   (R,) the n and the seed of each run
      C         the first and the last budget of each window
      left_out  the n whose runs end early or diverge. A and n lack them, unless fewer than two n
                would remain: then all n count, at the budgets that all of them reached
    """
    longest = max(c.reach[1] for c in cells)
    full = [c for c in cells if c.alive.any()
            and c.reach[1] >= 0.8 * longest and c.alive[grid >= 0.8 * longest].any()]
    left_out = sorted({c.n for c in cells} - {c.n for c in full})
    full = full if len(full) > 1 else cells
    js = np.flatnonzero(np.all([c.alive for c in full], 0))
    if len(full) < 2 or len(js) < 3 or grid[js[-1]] < SPAN * grid[js[0]]:
        return None
    W = min(max(round(math.log2(grid[js[-1]] / grid[js[0]])), 2), 6)
    parts, A, ns, seeds = np.array_split(js, W), [], [], []
    for c in full:
        for run, values in zip(c.runs, c.values):
            of_windows = np.array([values[part].mean(0) for part in parts])
            if not np.isnan(of_windows).any():
                A.append(of_windows)
                ns.append(c.n)
                seeds.append(run["seed"])
    if set(ns) != {c.n for c in full}:
        return None
    return dict(A=np.array(A, float), n=np.array(ns), seed=np.array(seeds), left_out=left_out,
                C=[[float(grid[part[0]]), float(grid[part[-1]])] for part in parts])


def window_estimates(A, n, seed):
    """Return the mean reward of each n in each window, with its covariances.

    A, n, seed: from `windows_of`. Returns dict
      n         (N,) the n, in rising order
      mean      (N W,) the rewards in the W windows of the first n, then of the second n, ...
      runs      (N W, N W) the covariance of `mean` over runs, with df degrees of freedom
      problems  (N W, N W) the covariance of `mean` over problems
      W         the number of windows

    Both covariances contain the noise of the rollouts. So that it counts only once, it is
    subtracted from `problems`.
    """
    (_, W, P), ns = A.shape, np.unique(n)
    X, N = design(n, seed), len(ns)
    G = np.linalg.pinv(X)
    H, each = (G @ G.T)[:N, :N], np.einsum("nr,rwp->nwp", G[:N], A)
    of_runs, e, df = split_noise(X, A)
    # in the prior, half of a run's variance is common to all of its windows
    prior = LAW_SD ** 2 * (0.5 + 0.5 * np.eye(W))
    runs = np.kron(H, (RUN_DF * prior + of_runs.T @ of_runs) / (RUN_DF + df))
    problems = np.cov(each.reshape(N * W, P)) / P if P > 1 else 0 * runs
    if df and P > 1:
        problems = problems - np.kron(H, np.einsum("rwp,rvp->wv", e, e) / df / (P - 1) / P)
    return dict(n=ns, mean=each.mean(2).ravel(), runs=runs, problems=problems, df=RUN_DF + df, W=W)


def errors_of(D, e):
    """Return (variance over runs (K,), variance over problems (K,)) of K contrasts of rewards.

    e: the result of `window_estimates`. D (K, N W): the weights of the contrasts D @ e["mean"].
    """
    runs, problems = (np.einsum("ka,ab,kb->k", D, e[key], D) for key in ("runs", "problems"))
    # the variance over problems is a difference of two estimates, so it can be negative and needs a
    # lower limit
    return runs, np.maximum(problems, -0.8 * runs)


def law_test(e):
    """Return a test of whether the best n rises with the budget. The null hypothesis is that one n
    is best in every window.

    e: the result of `window_estimates`. The null hypothesis is rejected if every n is beaten,
    either by a smaller n in an early window or by a larger n in a late window. So a fall of n* does
    not count as a rise. Windows 0 to W // 2 are early, and windows W // 2 to W - 1 are late. So
    window W // 2 is both. Returns dict
      p          the p-value, from simulated sweeps in which the best n is constant
      n_closest  the n that comes closest to being best in all windows
      by         the n that beats n_closest most clearly
      window     the index of the window in which `by` beats n_closest
      gap        the reward of `by` minus the reward of n_closest in this window
    """
    ns, W, means = e["n"], e["W"], e["mean"]
    N = len(ns)
    # (i, a, w): the test asks whether the a-th n beats the i-th n in window w
    comparisons = [(i, a, w) for i in range(N) for a in range(N) for w in range(W)
                   if (a < i and w <= W // 2) or (a > i and w >= W // 2)]
    beaten, _, _ = np.array(comparisons).T
    better, worse = np.array([(a * W + w, i * W + w) for i, a, w in comparisons]).T
    D = np.eye(N * W)[better] - np.eye(N * W)[worse]
    run_var, problem_var = errors_of(D, e)
    t = D @ means / np.sqrt(run_var + problem_var)
    largest_t = np.array([t[beaten == i].max() for i in range(N)])
    closest = int(largest_t.argmin())
    k = np.flatnonzero(beaten == closest)[t[beaten == closest].argmax()]
    _, by, window = comparisons[k]
    out = dict(p=1.0, n_closest=int(ns[closest]), by=int(ns[by]), window=window,
               gap=float(D[k] @ means))
    if largest_t.min() <= 0:
        return out
    rng = np.random.default_rng(0)  # a fixed seed, so that the same logs always give the same p
    val, vec = np.linalg.eigh(e["runs"] + e["problems"])
    noise = (rng.standard_normal((DRAWS, N * W)) * np.sqrt(np.maximum(val, 0))) @ vec.T
    # u: random draws of the estimated variance over runs divided by the true variance
    u = rng.chisquare(e["df"], (DRAWS, 1)) / e["df"]
    se = np.sqrt(np.maximum(u * run_var + problem_var, 0.2 * u * run_var))
    for_each_n = []
    for i in range(N):
        # `null` has the rewards of a sweep in which the i-th n is never beaten. For each comparison
        # (i, a, w), the a-th n gets the reward of the i-th n in window w, unless the a-th n is
        # worse by TIE standard errors or more
        null, raised = means.copy(), (beaten == i) & (t > -TIE)
        null[better[raised]] = means[worse[raised]]
        drawn = (D @ null + noise @ D.T) / se
        smallest = np.min([drawn[:, beaten == h].max(1) for h in range(N)], 0)
        for_each_n.append(float((smallest >= largest_t.min()).mean()))
    return out | dict(p=max(for_each_n))


def verdict_of(cells, grid, delta):
    """Return the verdict on whether n* rises with the budget, for cells of one B_p and one lr_base.

    Returns the dict of `law_test` with
      verdict      "law", "flat" or "undetermined"
      reason       why there was no test, else ""
      p_falls      the p of `law_test` for a fall of n*
      half         half of the 90% interval of `gap`
      n_flat       the n with the smallest `regret`
      regret       the most by which another n may be better than n_flat in any window
      regret_of_n  the regret of n_closest
      rising       an n that gains on n_flat between the last two windows, or None
      sets         the n tied with the best in each window
      windows      the first and the last budget of each window
      left_out     as in `windows_of`

    The verdict is the first of these that holds:
      (1) "flat", if regret is below delta, every n has two seeds or more, and left_out is [];
      (2) "law", if `law_test` shows a rise of n* at ALPHA and no fall;
      (3) "undetermined".

    "flat" comes before "law" because n_flat is then good enough. regret is the upper end of a
    one-sided 95% interval. If `rising` is not None, "flat" holds only up to the largest budget,
    because the n in `rising` may overtake n_flat later. If there can be no test, p is None,
    `reason` says why, and most keys are missing.
    """
    w = windows_of(cells, grid) if len({c.n for c in cells}) > 1 else None
    if w is None:
        why = ("no run has this lr_base" if not cells else
               "the runs have only one n" if len({c.n for c in cells}) == 1 else
               f"the budgets that all n reached span less than a factor of {SPAN}")
        return dict(verdict="undetermined", reason=why, p=None, sets=[], regret=None, left_out=[])
    e = window_estimates(w["A"], w["n"], w["seed"])
    W, N = e["W"], len(e["n"])
    y = e["mean"].reshape(N, W)
    # to test for a fall, reverse the order of the n
    order = np.arange(N * W).reshape(N, W)[::-1].ravel()
    rise, fall = law_test(e), law_test(e | dict(
        n=-e["n"][::-1], mean=e["mean"][order],
        **{key: e[key][np.ix_(order, order)] for key in ("runs", "problems")}))
    t = stats.t.ppf(0.95, e["df"])

    def gap_of(a, b, at, before=None):
        """Return (gap, half of its 90% interval).

        gap: the reward of the a-th n minus the reward of the b-th n in window `at`. If `before` is
        an earlier window, gap is the change of this difference from window `before` to `at`.
        """
        D = np.zeros((1, N * W))
        D[0, a * W + at], D[0, b * W + at] = 1, -1
        if before is not None:
            D[0, a * W + before], D[0, b * W + before] = -1, 1
        run_var, problem_var = (float(v[0]) for v in errors_of(D, e))
        return float(D[0] @ e["mean"]), math.sqrt(max(t * t * run_var + Z * Z * problem_var, 0))
    # for each n, the most by which another n may be better in any window
    regret = [max(0.0, *(sum(gap_of(b, a, at)) for b in range(N) if b != a for at in range(W)))
              for a in range(N)]
    flat = int(np.argmin(regret))
    sets = []
    for at in range(W):
        top = int(y[:, at].argmax())
        sets.append([int(e["n"][i]) for i in range(N)
                     if i == top or gap_of(top, i, at)[0] <= gap_of(top, i, at)[1]])
    seeds = min(len({*w["seed"][w["n"] == n]}) for n in e["n"])
    gains = {int(e["n"][b]): gap_of(b, flat, W - 1, W - 2) for b in range(N) if b != flat}
    rising = max(gains, key=lambda n: gains[n][0] - gains[n][1])
    verdict = "undetermined"
    if regret[flat] < delta and seeds > 1 and not w["left_out"]:
        verdict = "flat"
    elif rise["p"] <= ALPHA < fall["p"]:
        verdict = "law"
    closest, by = (int(np.flatnonzero(e["n"] == rise[key])[0]) for key in ("n_closest", "by"))
    return rise | dict(
        half=gap_of(by, closest, rise["window"])[1], regret_of_n=regret[closest],
        verdict=verdict, p_falls=fall["p"], n_flat=int(e["n"][flat]), regret=regret[flat],
        # `rising` is only a hint, so its gain need not be significant: the gain must be above a
        # quarter of the length of its 90% interval, not above half of the length
        rising=rising if gains[rising][0] > gains[rising][1] / 2 else None,
        sets=sets, windows=w["C"], left_out=w["left_out"], reason="")


# --------------------------------------------------------------------------------------------------
# Contrasts of labelled arms, and verdicts on claims
#
# A table is {key: (S, P)}: for each cell the reward of S seeds on P problems, averaged over a
# window of C. All cells of a table have the same seeds and problems.

# A difference below this share of the gain of training does not matter
SMALL = 0.03
# The largest difference that the claim "alike" allows, as a share of the gain of training. It is
# 2 points if training gained 33 points
ALIKE = 0.06


class Missing(Exception):
    """A comparison cannot be made without more runs. The message names the missing runs."""


def mean_with_error(d, sd, df):
    """Return the mean of d with its error: dict(gain, half).

    d (S, P): a difference of rewards for each seed and problem. sd: the standard deviation of a
    seed's mean over problems, with df degrees of freedom. gain: the mean of d. half: half of the
    90% interval of this mean, over seeds and problems.
    """
    each = d.mean(0)
    problems = each.std(ddof=1) / math.sqrt(len(each)) if len(each) > 1 else 0.0
    half = combined_half_width(problems, sd / math.sqrt(len(d)), max(df, 1))
    return dict(gain=each.mean(), half=half)


def change(now, before):
    """Return the mean change from `before` to `now` with its error, in the form of
    `mean_with_error`.

    before, now (S, P): the rewards of the same runs at two times.
    """
    of_seeds = (now - before).mean(1)
    sd = of_seeds.std(ddof=1) if len(of_seeds) > 1 else 0.0
    return mean_with_error(now - before, sd, len(of_seeds) - 1)


def seed_noise(table):
    """Return (standard deviation, degrees of freedom) of the runs in a table, after the effects of
    cell and seed are removed."""
    means = np.array([t.mean(1) for t in table.values()])  # (cells, S)
    cell, seed = np.indices(means.shape)
    rest, df = residuals(design(cell.ravel(), seed.ravel()), means.ravel())
    return math.sqrt((rest ** 2).sum() / max(df, 1)), df


def contrast(table, weights):
    """Return the mean of the sum of weights[key] * table[key] over the keys, with its error, in the
    form of `mean_with_error`. The weights sum to 0."""
    sd, df = seed_noise(table)
    d = sum(w * table[key] for key, w in weights.items())
    return mean_with_error(d, sd * math.hypot(*weights.values()), df)


def fold_masks(S, P):
    """Return the result of `folds` for S seeds, but with masks (S, P). A mask has a column for each
    of the P problems, not for each half of the problems."""
    H = min(P, 2)
    return [(chosen[:, np.arange(P) % H], scored[:, np.arange(P) % H])
            for chosen, scored in folds(S, H)]


def best_key(table, chosen, keys=None):
    """Return the key of `table` with the highest mean reward over the mask `chosen` (S, P).

    keys: choose only from these keys. The default is all keys.
    """
    return max(keys or table, key=lambda key: table[key][chosen].mean())


def heldout_gap(table, *pairs):
    """Return (winners, contrast) for two groups of keys. The contrast is the reward of the best key
    of the first group minus the reward of the best key of the second group.

    pairs: (first group, second group), either one pair for all folds or one pair for each fold. In
    each of the `folds`, the two best keys are chosen on some runs and problems and scored on
    others. winners: the best key of the first group in each fold. contrast: the mean difference
    with its error, in the form of `mean_with_error`.
    """
    sd, df = seed_noise(table)
    d, winners = np.empty_like(next(iter(table.values()))), []
    for (chosen, scored), pair in zip(fold_masks(*d.shape), itertools.cycle(pairs)):
        a, b = (best_key(table, chosen, keys) for keys in pair)
        winners.append(a)
        d[scored] = (table[a] - table[b])[scored]
    return winners, mean_with_error(d, sd * math.sqrt(2), df)


def judge(c, claim, gained):
    """Return (verdict, times) for a contrast and a claim about its gain.

    gained: the gain of training, which sets the scale. times: the factor by which the number of
    seeds must increase to decide the claim. The claims are
      larger      confirmed if the interval is above 0, contradicted if below SMALL x gained
      smaller     confirmed if the interval is below 0, contradicted if above -SMALL x gained
      not larger  confirmed if the interval is below SMALL x gained, contradicted if above 0
      alike       confirmed if the interval is within +-ALIKE x gained, contradicted if outside

    The interval is the 90% interval of the contrast, and a condition must hold for all of it. If
    both conditions of a claim hold, the verdict is confirmed. If neither holds, it is underpowered.
    """
    gain, half = -c["gain"] if claim == "smaller" else c["gain"], c["half"]
    if claim == "alike":
        allowed = ALIKE * gained
        yes, no = abs(gain) + half < allowed, abs(gain) - half > allowed
        needed = abs(allowed - abs(gain))
    else:
        yes, no = gain - half > 0, gain + half < SMALL * gained
        needed = max(gain, SMALL * gained - gain)
    if claim == "not larger":
        yes, no = no, yes
    if yes or no:
        return "confirmed" if yes else "contradicted", 1
    return "underpowered", (half / max(needed, 1e-9)) ** 2


def judged(*parts):
    """Return dict(verdict, times) for a claim that consists of several parts.

    parts: for each part a tuple, the arguments of `judge`.

    verdict: confirmed if all parts are confirmed, contradicted if any part is contradicted, else
    underpowered. times: the factor by which the number of seeds must increase to decide all parts.
    """
    verdicts, times = zip(*(judge(*part) for part in parts))
    verdict = next((v for v in ("contradicted", "underpowered") if v in verdicts), "confirmed")
    return dict(verdict=verdict, times=max(times))


def constant_n(tables, groups):
    """Return (n, cost): the one n to use in all `tables`, and what this may cost in reward.

    cost: the most by which another n may be better than this n in any table (the upper end of the
    90% interval). The n with the smallest cost is returned. The largest n is not a candidate,
    because the tables cannot show whether a still larger n is better. groups: {n: its keys in a
    table}. For each n, the best of its keys in a table counts.
    """
    costs = dict.fromkeys(list(groups)[:-1], -math.inf)
    for table in tables:
        everywhere = np.ones_like(next(iter(table.values())), bool)
        top = {n: best_key(table, everywhere, keys) for n, keys in groups.items()}
        for n in costs:
            for other in set(groups) - {n}:
                c = contrast(table, {top[other]: 1, top[n]: -1})
                costs[n] = max(costs[n], c["gain"] + c["half"])
    n = min(costs, key=costs.get)
    return n, costs[n]


def shift(first, second, gained, n_of=int):
    """Return a verdict on whether the best n is larger in the table `second` than in `first`.

    Both tables have the same runs, for example early and late in training. n_of(key): the n of a
    key. If an n has several keys, such as several lr, the best key counts. gained: as in `judge`.
    Raises Missing if there are fewer than three n. Returns dict
      a         the best n in `first`, in each of the `folds`
      b         the best n in `second`, in each of the `folds`
      loses     the reward of a minus the reward of b in `first`, with its error
      gains     the reward of b minus the reward of a in `second`, with its error
      flat      the n of `constant_n` for the two tables
      worst     the cost of `constant_n` for the two tables
      censored  whether flat is the smallest n in the tables, although a smaller n is possible
      verdict   confirmed, contradicted or underpowered

    The best n differs between the tables if the intervals of both loses and gains are above 0. The
    verdict is the first of these that holds:
      (1) confirmed, if the best n differs and b >= a in every fold;
      (2) contradicted, if the best n differs and b <= a in every fold;
      (3) contradicted, if worst is below SMALL x gained and censored is false;
      (4) underpowered.
    """
    groups = {n: [key for key in first if n_of(key) == n] for n in sorted(set(map(n_of, first)))}
    if len(groups) < 3:
        raise Missing("three n or more")
    masks = fold_masks(*next(iter(first.values())).shape)
    a, b = ([n_of(best_key(table, chosen)) for chosen, _ in masks] for table in (first, second))
    loses = heldout_gap(first, *((groups[x], groups[y]) for x, y in zip(a, b)))[1]
    gains = heldout_gap(second, *((groups[y], groups[x]) for x, y in zip(a, b)))[1]
    flat, worst = constant_n((first, second), groups)
    # if flat is the smallest n in the tables, the best n may have risen to flat from a smaller n,
    # which the tables lack. No n is smaller than 2, because a group has two rollouts or more
    censored = flat == min(groups) and flat > 2
    verdict = "contradicted" if worst < SMALL * gained and not censored else "underpowered"
    if loses["gain"] > loses["half"] and gains["gain"] > gains["half"]:
        if all(y >= x for x, y in zip(a, b)):
            verdict = "confirmed"
        elif all(y <= x for x, y in zip(a, b)):
            verdict = "contradicted"
    return dict(a=a, b=b, loses=loses, gains=gains, verdict=verdict, flat=flat, worst=worst,
                censored=censored)


def mean_shift(shifts):
    """Return one verdict for several groups, such as one group for each B_p, as a dict with the
    keys of `shift`.

    shifts: for each group, the result of `shift`. loses, gains: the means over groups. Their `half`
    is the mean of the groups' `half`. More groups do not make `half` smaller, because the groups
    share problems. worst: the largest `worst` of the groups. a, b, flat and censored are those of
    the first group. The verdict is the first of these that holds:
      (1) confirmed, if n decreases in no group and both means exceed their `half`;
      (2) contradicted, if the verdict of any group is contradicted;
      (3) underpowered.
    """
    mean = {key: {part: np.mean([c[key][part] for c in shifts]) for part in ("gain", "half")}
            for key in ("loses", "gains")}
    rises = all(y >= x for c in shifts for x, y in zip(c["a"], c["b"]))
    verdict = ("confirmed" if rises and all(c["gain"] > c["half"] for c in mean.values()) else
               "contradicted" if any(c["verdict"] == "contradicted" for c in shifts) else
               "underpowered")
    return shifts[0] | mean | dict(verdict=verdict, worst=max(c["worst"] for c in shifts))
