"""noise.py: curves with noise, intervals, the winner's curse and contrasts on planted truth."""
import math

import numpy as np
import pytest
from scipy.interpolate import make_smoothing_spline

import frontier
import noise
import simulate as sim
from config import at_k
from fit_sigmoid import law_of_panel, verdict_of
from simulate import CFG, cells, crossing, plain_run


# --------------------------------------------------------------------------------------------------
# Intervals

def test_invert_is_the_interval_of_a_straight_line_and_leaves_ends_open():
    x = np.linspace(0, 10, 101)
    got = noise.invert(x, 4.53 - x, np.full(101, 1.3), 4.53)
    assert got == pytest.approx((3.23, 5.83))
    # twice the slope halves the interval, and the half width may change along the way
    assert noise.invert(x, 2 * (4.5 - x), np.full(101, 1.0), 4.5) == pytest.approx((4.0, 5.0))
    lo, hi = noise.invert(x, 5 - x, 0.2 * x, 5.0)
    assert lo == pytest.approx(5 / 1.2, abs=0.01) and hi == pytest.approx(5 / 0.8, abs=0.02)
    assert noise.invert(x, 4.5 - x, np.full(101, 100.0), 4.5) == (None, None)
    lo, hi = noise.invert(x, 4.5 - x, np.full(101, 5.0), 4.5)
    assert lo is None and hi == pytest.approx(9.5)  # nothing below is rejected
    # rejected at its own place already: an interval of next to no width, and not one that leaves
    # the point out
    lo, hi = noise.invert(x, np.where(x < 5, 9.0, -9.0), np.full(101, 1.0), 5.0)
    assert 4.8 < lo <= 5.0 <= hi < 5.2


def test_the_set_that_is_indistinguishable_from_the_best():
    Y, none = np.array([.5, .6, .55]), np.zeros((0, 3))
    assert noise.indistinguishable(Y, none).all()  # without draws nothing is told apart
    rng = np.random.default_rng(0)
    quiet, loud = (rng.normal(0, sd, (200, 3)) for sd in (1e-4, 1))
    assert noise.indistinguishable(Y, quiet).tolist() == [False, True, False]
    assert noise.indistinguishable(Y, loud).all()
    assert noise.indistinguishable(np.full(3, .5), rng.normal(0, .01, (200, 3))).all()  # ties
    one = noise.indistinguishable(np.array([.5]), rng.normal(0, .01, (200, 1)))
    assert one.tolist() == [True]
    # noise that all share tells nothing apart and must not hide a difference
    shared = rng.normal(0, 1, (200, 1)) + rng.normal(0, 1e-4, (200, 3))
    assert noise.indistinguishable(Y, shared).tolist() == [False, True, False]


@pytest.mark.parametrize("means", [np.zeros(6), np.array([0, 0, 0, -1, -2, -3.0]),
                                   np.linspace(0, -1, 6)])
def test_the_best_is_in_its_set_in_nine_of_ten_draws(means):
    rng, kept, size = np.random.default_rng(0), [], []
    sd = np.array([1, .5, 1, 2, 1, .7])
    for _ in range(1500):
        together = rng.normal(0, 1, 1)
        drawn = sd * rng.normal(0, 1, (200, 6)) + rng.normal(0, 1, (200, 1))
        mask = noise.indistinguishable(means + sd * rng.normal(0, 1, 6) + together, drawn)
        kept.append(mask[0])  # the first is a best one
        size.append(mask.sum())
    # 0.90 less three standard errors of 1500 draws; with 200 draws of the noise the percentile
    # itself errs a little
    assert 0.875 < np.mean(kept) and np.mean(size) < 6


# --------------------------------------------------------------------------------------------------
# Curves

def test_the_curve_is_scipys_smoothing_spline_of_averaged_data():
    rng = np.random.default_rng(0)
    C = np.r_[0, np.geomspace(1e4, 1e6, 25), np.geomspace(1e4, 1e6, 25)[::3]]  # seeds coincide
    w, R, at = rng.uniform(0.2, 3, C.size), rng.random(C.size), np.geomspace(1e4, 1e6, 40)
    budgets = np.unique(np.round(np.log(C[C > 0]), 4))
    mean, weight = [], []
    for x in budgets:
        here = (C > 0) & (np.abs(np.log(np.maximum(C, 1)) - x) < 1e-3)
        mean.append(np.average(R[here], weights=w[here]))
        weight.append(w[here].sum())
    x = np.clip(np.log(at), budgets[0], budgets[-1])
    assert len(budgets) == 25 < C.size - 1
    for lam in (1e-4, 0.1, 100.0):
        want = make_smoothing_spline(budgets, np.array(mean), np.array(weight), lam)(x)
        H = noise.spline_map(C, w, at, lam)
        assert H.shape == (40, C.size) and H @ R == pytest.approx(want, abs=1e-8)
        # all rewards higher by one amount lift the curve by that amount; the base model, which has
        # no place on a logarithmic axis, has no weight
        assert H.sum(1) == pytest.approx(np.ones(40)) and (H[:, 0] == 0).all()


def test_the_curve_follows_a_straight_line_and_is_flat_beyond_the_data():
    rng = np.random.default_rng(0)
    C, w = np.r_[0, 0, np.sort(10 ** rng.uniform(4, 6, 60))], rng.uniform(0.1, 3, 62)
    at = np.geomspace(C[2], C[-1], 21)
    line = np.where(C > 0, 2 - 0.7 * np.log10(np.maximum(C, 1)), 99)
    for lam in noise.LAMBDAS[[0, -1]]:  # a line has no curvature to be smoothed
        got = noise.spline_map(C, w, at, lam) @ line
        assert got == pytest.approx(2 - 0.7 * np.log10(at), abs=1e-4)
    inside, before, behind = noise.spline_map(C, w, [C[2], C[2] / 9, C[-1] * 9], 0.1) @ line
    assert before == pytest.approx(inside) and behind == pytest.approx(line[-1], abs=1e-4)
    # a point without weight has no say
    H = noise.spline_map(C, np.where(np.arange(62) == 30, 1e-12, w), at, 0.1)
    assert np.abs(H[:, 30]).max() < 1e-9


def test_few_budgets_are_joined_by_straight_lines():
    for budgets in ([1e4, 1e6], [1e4, 1e5, 3e5, 1e6], [1e5]):
        C = np.r_[0.0, budgets, budgets[-1]]  # two seeds at the last
        R = np.r_[9.0, np.arange(len(budgets)), len(budgets)]
        at = np.geomspace(5e3, 2e6, 30)
        H = noise.spline_map(C, np.ones(C.size), at, 1.0)
        want = np.r_[np.arange(len(budgets) - 1), len(budgets) - 0.5]
        assert H @ R == pytest.approx(np.interp(np.log(at), np.log(budgets), want), abs=1e-4)
        assert H.sum(1) == pytest.approx(np.ones(30)) and (H[:, 0] == 0).all()


def test_one_smoothness_is_chosen_that_recovers_a_smooth_truth():
    """Better than the least and the largest, and next to as good as the one that knows the truth,
    on data of two kinds."""
    C, at = np.r_[0, np.geomspace(2e4, 4e6, 60)], np.geomspace(2e4, 4e6, 50)

    def smooth(n, C):
        return sim.sigmoids(32, n, C)

    def waves(n, C):
        return 0.4 + 0.1 * np.sin(4 * np.log(np.maximum(C, 2e4)) + n)
    chosen = {}
    for name, sd, curve in (("smooth", 0.02, smooth), ("waves", 0.02, waves)):
        rng, data = np.random.default_rng(0), []
        for n in (8, 32, 128, 512):
            data.append((C, curve(n, C) + rng.normal(0, sd, C.size), np.ones(C.size)))
        error = {}
        for lam in noise.LAMBDAS:
            off = [noise.spline_map(C, w, at, lam) @ R - curve(n, at)
                   for n, (C, R, w) in zip((8, 32, 128, 512), data)]
            error[lam] = np.sqrt(np.mean(np.square(off)))
        lam = chosen[name] = noise.choose_lambda(data)
        assert error[lam] < 0.8 * error[noise.LAMBDAS[0]], (name, lam, error)
        assert error[lam] < 0.8 * error[noise.LAMBDAS[-1]], (name, lam, error)
        assert error[lam] < 1.25 * min(error.values()), (name, lam, error)
    assert chosen["waves"] < chosen["smooth"] / 50, chosen
    # too few budgets to say: any will do
    few = [(C[:4], C[:4] / 1e6, np.ones(4))]
    assert noise.choose_lambda(few) in noise.LAMBDAS


def test_the_curves_of_a_sweep_are_closer_to_the_truth_than_the_papers_sigmoid():
    """On curves that no sigmoid has; on sigmoids they lose next to nothing."""
    for truth, most in ((sim.paper(2), 1.0), (sim.sigmoids, 1.15)):
        ours, theirs = [], []
        for draw in range(6):
            runs = sim.sweep(draw, truth, ns=(8, 64, 512), seeds=3, evals=60, run_sd=0, drift=0,
                             inter=0, P=2000)
            grid, found = cells(runs, boot=0)
            for c in found:
                want, ok = truth(32, c["n"], grid), c["inside"] & (grid > 6e4)
                seen = c["C"] > 0
                fit = frontier.fit_curve(c["C"][seen], c["R"][seen])
                ours.append(np.mean((c["last"] - want)[ok] ** 2))
                theirs.append(np.mean((frontier.sigmoid(np.log10(grid), *fit) - want)[ok] ** 2))
        assert np.sqrt(np.mean(ours)) < most * np.sqrt(np.mean(theirs)), truth


def test_monotone_is_the_closest_rising_sequence():
    rng = np.random.default_rng(0)
    for _ in range(20):
        y = rng.normal(size=12)
        want = [max(min(np.mean(y[a:b + 1]) for b in range(i, 12)) for a in range(i + 1))
                for i in range(12)]  # the max-min formula
        assert noise.monotone(y) == pytest.approx(want)
    assert noise.monotone(np.arange(5.0)).tolist() == [0, 1, 2, 3, 4]


def test_the_best_so_far_is_carried_on_and_nothing_stands_before_the_first():
    inside = np.array([False, True, True, True, False, False])
    a = np.arange(12.0).reshape(2, 6)
    got = noise.carry(a, inside)
    assert np.isnan(got[:, 0]).all() and (got[:, 1:4] == a[:, 1:4]).all()
    assert (got[:, 4:] == a[:, [3]]).all() and a[0, 0] == 0  # the argument stays as it was


def test_evaluations_are_averaged_in_bins_exactly():
    rng = np.random.default_rng(0)
    C = np.r_[0, np.cumsum(rng.integers(1, 4000, 700))].astype(float)
    counts = rng.integers(0, 5, (701, 30)).astype(np.uint8)
    e = noise.evaluations(plain_run(8, 0, C, counts.mean(1) / 4, counts), "avg@4")
    x = np.log(np.maximum(C, 1))
    place = np.minimum((x - x[1]) / (x[-1] - x[1]) * noise.BINS, noise.BINS - 1).astype(int)
    place[0] = -1  # the base model stands alone
    parts = [np.flatnonzero(place == p) for p in np.unique(place)]
    assert len(e["C"]) == len(parts) <= noise.BINS + 1
    for j, i in enumerate(parts):
        assert e["C"][j] == pytest.approx(C[i].mean())
        assert e["R"][j] == pytest.approx(counts[i].mean() / 4)
        assert e["V"][j] == pytest.approx(counts[i].mean(0) / 4)
        assert e["w"][j] == pytest.approx(1 / (1 / len(i) + 1 / 10))
    widths = [math.log(C[i[-1]] / C[i[0]]) for i in parts[1:]]
    assert max(widths) <= math.log(C[-1] / C[1]) / noise.BINS + 1e-9
    # few evaluations stay as they are, and so does the metric
    few = plain_run(8, 0, C[:20], counts[:20].mean(1) / 4, counts[:20])
    few = noise.evaluations(few, "best@2")
    assert few["C"].tolist() == C[:20].tolist() and set(few["w"]) == {1 / 1.1}
    want = [at_k("best@2", 4)[c] for c in counts[3]]
    assert few["V"][3] == pytest.approx(want, abs=1e-6) and few["V2"] is None


def test_halves_of_the_samples_add_up_to_the_counts():
    rng = np.random.default_rng(0)
    for samples, metric in ((4, "avg@4"), (5, "avg@4"), (8, "best@4")):
        counts = rng.integers(0, samples + 1, (9, 40)).astype(np.uint8)
        run = plain_run(8, 0, np.arange(9) * 1e4, counts.mean(1) / samples, counts, samples)
        draws = [noise.evaluations(run, metric, np.random.default_rng(s)) for s in range(300)]
        V2 = np.array([e["V2"] for e in draws])  # (draws, 2, E, P)
        if metric == "avg@4":
            a = samples // 2
            total = (a * V2[:, 0] + (samples - a) * V2[:, 1]) / samples
            assert np.abs(total - draws[0]["V"]).max() < 1e-6
        # over many splits each half has the metric's own mean, so neither is biased
        want = np.array([at_k(metric, samples)[c] for c in range(samples + 1)])[counts]
        assert V2.mean((0, 2, 3)) == pytest.approx(want.mean() * np.ones(2), abs=0.004)
        assert np.abs(V2.mean(0) - want).max() < 0.15 and V2[:, 0].std(0).max() > 0.1
    few = plain_run(8, 0, np.arange(9) * 1e4, np.zeros(9), counts % 5, 4)
    # four samples do not make best@4 twice
    assert noise.evaluations(few, "best@4", rng)["V2"] is None


def test_evaluations_without_counts_have_the_binomial_noise():
    C = np.r_[0, np.cumsum(np.full(200, 1000.0))]
    e = noise.evaluations(plain_run(8, 0, C, np.full(201, 0.3), trials=1200), "avg@4")
    m = 1 / (1 / e["w"] - 1 / 10)  # evaluations in a bin
    assert m.sum() == pytest.approx(201) and m.max() > 5
    assert e["V"] is None and e["sd"] == pytest.approx(np.sqrt(0.3 * 0.7 / 1200 / m))


# --------------------------------------------------------------------------------------------------
# The noise of curves

def test_the_noise_has_the_width_of_many_sweeps():
    """Brute force: how far the curves of 45 sweeps with one truth lie apart, against what each says
    of itself."""
    kind = dict(ns=(8, 64, 256), seeds=3, P=200, evals=16, C=2_000_000)
    last, half, inside, cross, cross_half = [], [], [], [], []
    for draw in range(45):
        grid, found = cells(sim.sweep(draw, sim.sigmoids, **kind))
        at = [np.abs(grid - C).argmin() for C in (4e5, 1e6, 1.9e6)]
        Y = np.array([c["last"][at] for c in found])  # (cells, budgets)
        drawn = np.array([c["noise"][:, at] for c in found])  # (cells, draws, budgets)
        last.append(Y)
        half.append(noise.half_width(np.swapaxes(drawn, 0, 1)))
        cross.append(Y[1:] - Y[0])
        cross_half.append(noise.half_width(np.swapaxes(drawn[1:] - drawn[0], 0, 1)))
        want = np.array([sim.sigmoids(32, c["n"], grid[at]) for c in found])
        inside.append(np.abs(Y - want) <= half[-1])
    last, half, cross, cross_half = map(np.array, (last, half, cross, cross_half))
    wide = np.sqrt(last.var(0, ddof=1).mean(1))  # a cell, over budgets
    # 1.645 standard deviations; Student's t with 6 degrees of freedom makes the part of the seeds
    # 18% wider, and the spread of 45 sweeps is known to about 8%
    assert half.mean((0, 2)) == pytest.approx(1.645 * 1.08 * wide, rel=0.25)
    apart = np.sqrt(cross.var(0, ddof=1).mean())
    assert cross_half.mean() == pytest.approx(1.645 * 1.1 * apart, rel=0.25)
    assert 0.80 < np.mean(inside) < 0.98
    # problems are shared: not the sqrt(2) of two curves that err on their own
    assert cross_half.mean() < half.mean() * 1.1


def test_the_difference_of_two_cells_on_the_same_problems_is_surer_than_either():
    runs = sim.sweep(0, sim.constant(size=0), ns=(8, 32), seeds=1, run_sd=0, drift=0, inter=0,
                     evals=20)
    _, (a, b) = cells(runs, boot=2000)
    each = (a["noise"].std(0).mean() + b["noise"].std(0).mean()) / 2
    assert (a["noise"] - b["noise"]).std(0).mean() < 0.5 * each
    # two sets of problems of their own: nothing is shared, and the difference is less sure than
    # either
    far = [dict(r, counts=np.random.default_rng(r["n"]).permutation(r["counts"].T).T)
           for r in runs]
    _, (a, b) = cells(far, boot=2000)
    apart = (a["noise"] - b["noise"]).std(0).mean()
    assert apart == pytest.approx(math.sqrt(2) * each, rel=0.15)


def test_the_variance_of_seeds_is_pooled_and_gets_students_t():
    C, d = np.r_[0, np.geomspace(1e4, 1e6, 20)], 0.01
    base = 0.3 + 0.2 / (1 + np.exp(-3 * (np.log10(np.maximum(C, 1)) - 5)))
    runs = [plain_run(n, seed, C, base + (n == 32) * d * (seed - 1))
            for n in (8, 32) for seed in range(3)]
    _, found = cells(runs, boot=4000)
    # squared deviations 0, 0, 0 of n = 8 and d, 0, d of n = 32 over 4 degrees of freedom; each cell
    # is the mean of 3
    want = 2.132 * math.sqrt(2 * d ** 2 / 4 / 3)
    for c in found:
        half = noise.half_width(c["noise"])[5:75]
        assert half == pytest.approx(np.full(70, want), rel=0.12), c["n"]
        assert c["folds"].shape == (3, frontier.GRID)
        assert c["folds"].mean(0) == pytest.approx(c["last"], abs=1e-6)
    apart = found[1]["folds"][2] - found[1]["folds"][0]
    assert apart == pytest.approx(np.full(81, 2 * d), abs=2e-3)
    # seeds of one cell err on their own: nothing of that is shared
    a, b = (c["noise"][:, 40] for c in found)
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.3
    _, alone = cells([r for r in runs if r["seed"] == 1])
    # one seed: no more than the evaluations' noise
    assert max(noise.half_width(c["noise"]).max() for c in alone) < 1e-4


def test_curves_without_noise_draws():
    runs = sim.sweep(0, sim.paper(), ns=(8, 32), seeds=2, evals=12)
    grid, found = cells(runs, boot=0)
    assert found[0]["noise"].shape == (0, frontier.GRID)
    panel = noise.panel_of(found, grid, dict(CFG, boot=0), "rollouts")
    assert panel["envelope"]["lo"] is None
    assert all(s["lo"] is s["hi"] is None for s in panel["switches"])


def test_the_grid_ends_where_the_runs_do():
    """To the last digit: at 512 updates, where 512.0000000000001 has no run."""
    runs = [plain_run(n, 0, [0, 64, 128, 256, 512], [.3, .4, .5, .6, .6 + n / 1000])
            for n in (4, 8)]
    grid, found = cells(runs, boot=0)
    assert grid[0] == 64 and grid[-1] == 512 and all(c["inside"].all() for c in found)


@pytest.mark.parametrize("F", [2, 3])
def test_choosing_and_scoring_on_one_fold_is_the_winners_curse(F):
    rng = np.random.default_rng(0)
    folds = rng.normal(0, 1, (6, F, 4000))  # 6 equal curves, noise alone

    def honest(Y):
        return noise.honest([dict(Y=y, folds=f) for y, f in zip(Y, folds)])
    Y = folds.mean(1)
    fair = honest(Y)
    assert abs(fair.mean()) < 4 / math.sqrt(4000) < 0.5 < Y.max(0).mean()
    # a clear winner keeps its reward
    folds[2] += 50
    assert honest(folds.mean(1)) == pytest.approx(folds.mean(1)[2])
    # by a slow loop, with a curve that is not defined somewhere, and a fold that ended early
    folds[2] -= 49.8
    Y = folds.mean(1)
    Y[2, :10] = np.nan
    folds[4, 0, 5:15] = np.nan
    fair = honest(Y)
    for g in range(20):
        got = []
        for f in range(F):
            others = []
            for i in range(6):
                rest = [folds[i, j, g] for j in range(F) if j != f]
                ok = np.isfinite([Y[i, g], folds[i, f, g]]).all() and np.isfinite(rest).any()
                others.append(np.nanmean(rest) if ok else -math.inf)
            got.append(folds[int(np.argmax(others)), f, g])
        assert fair[g] == pytest.approx(np.mean(got))
    assert noise.honest([dict(Y=Y[0], folds=None)] * 2) is None


def test_best_of_takes_at_each_budget_the_best_B_p():
    rng, nan = np.random.default_rng(0), np.nan

    def cell(B_p, n, Y):
        Y = np.array(Y, float)
        return dict(B_p=B_p, n=n, lr=B_p / 8, Y=Y, last=Y - .01, noise=rng.normal(size=(7, 4)),
                    folds=None, split="samples", inside=~np.isnan(Y), runs=[B_p],
                    reach=(B_p, 10 * B_p))
    a, b = cell(8, 4, [.1, .2, .3, nan]), cell(32, 4, [nan, .3, .2, nan])
    c = cell(8, 16, [.5, .5, .5, .5])
    g, other = noise.best_of([c, a, b])
    assert (g["n"], other["n"]) == (4, 16)
    assert g["Y"][:3].tolist() == [.1, .3, .3] and np.isnan(g["Y"][3])
    assert g["B_p"][:3].tolist() == [8, 32, 8] and g["lr"][:3].tolist() == [1, 4, 1]
    for j, source in enumerate((a, b, a)):
        assert (g["noise"][:, j] == source["noise"][:, j]).all()
        assert g["last"][j] == source["last"][j]
    assert g["inside"].tolist() == [True, True, True, False]
    assert g["reach"] == (8, 320) and g["runs"] == [8, 32]


# --------------------------------------------------------------------------------------------------
# Panels

def two(C_end=50_000, late=0.0):
    """n = 64 with 0.591 where its runs end at `C_end`, n = 5 with 0.546 there and up to 400k;
    `late`: what n = 5 gains after that."""
    C = np.arange(0, 400_001, 3200.0)
    reward = 0.3 + 0.246 * np.minimum(C / 51_000, 1) + late * np.maximum(C - 51_000, 0) / 349_000
    mine = C <= C_end
    return [plain_run(5, 0, C, reward, trials=1e5),
            plain_run(64, 0, C[mine], 0.3 + 0.291 * np.minimum(C[mine] / 40_000, 1), trials=1e5)]


def test_the_frontier_does_not_fall_where_the_best_ns_runs_end():
    """A budget can be spent in part, so the best so far is carried on: no switch goes down."""
    grid, found = cells(two())
    panel = noise.panel_of(found, grid, CFG, "rollouts")
    env = panel["envelope"]
    assert panel["switches"] == [] and set(env["n"]) == {64}
    assert (np.diff(env["highest"]) >= 0).all()
    assert env["highest"][-1] == pytest.approx(.591, abs=3e-3)
    # the last evaluation of n = 64 is that at 48k
    assert env["carried"].tolist() == (env["C"] > 48_000).tolist() and env["carried"][-1]
    # the last checkpoint of n = 64 is not carried on: there is none
    assert panel["last"]["n"][-1] == 5 and panel["last"]["n"][20] == 64


def test_the_papers_frontier_beside_it_does_not_fall_there_either():
    grid, found = cells(two(late=0.02))
    panel = noise.panel_of(found, grid, CFG, "rollouts")
    paper = noise.add_points(panel, found, grid, CFG)["records"]["frontier"]
    assert (np.diff(paper) >= 0).all() and paper[-1] == pytest.approx(.591, abs=0.03)


def test_two_n_that_overlap_are_not_one_n_only():
    """Over a factor of 8, though the runs of one end early."""
    grid, found = cells(two())
    panel = noise.panel_of(found, grid, CFG, "rollouts")
    assert panel["surface"]["ns"] == [5, 64] and panel["surface"]["left_out"] == []
    C = panel["surface"]["C"]
    assert C[-1] <= 50_000 < 16 * C[0] and C[-1] >= 7 * C[0]
    law = law_of_panel(panel, 0.01)
    assert "one n only" not in law["reason"] and law["constant"] == 64
    # two that share less than a factor of 4 cannot be compared, and that is what is said
    grid, found = cells(two(C_end=9_600))
    law = law_of_panel(noise.panel_of(found, grid, CFG, "rollouts"), 0.01)
    assert law["verdict"] == "undetermined" and "share less than a factor 4" in law["reason"]


def test_a_later_n_takes_over_from_a_carried_one_where_it_is_better():
    grid, found = cells(two(late=0.2))
    panel = noise.panel_of(found, grid, CFG, "rollouts")
    s, = panel["switches"]
    # 0.546 + 0.2 (C - 51k) / 349k reaches 0.591 at 129.5k
    assert (s["from"], s["to"], s["why"]) == (64, 5, "crossing")
    assert s["C"] == pytest.approx(129_500, rel=0.06) and s["lo"] < s["C"] < s["hi"]
    assert s["reward"] == pytest.approx(.591, abs=4e-3) and not panel["envelope"]["carried"][-1]


def test_edges_of_the_grid():
    edge = noise.grid_edge([2, 4, 8], 8, 32, 1e6, dict(B_max=0))
    assert (edge["side"], edge["add"]) == ("largest", dict(B_p=32, n=16))
    edge = noise.grid_edge([4, 8], 4, 32, 1e6, dict(B_max=0))
    assert (edge["side"], edge["add"]) == ("smallest", dict(B_p=32, n=2))
    assert noise.grid_edge([2, 4], 4, 32, 1e6, dict(B_max=128))["add"] is None
    assert noise.grid_edge([2, 4], 2, 32, 1e6, dict(B_max=0))["add"] is None
    assert noise.grid_edge([2, 4, 8], 4, 32, 1e6, dict(B_max=0)) is None
    assert noise.grid_edge([4], 4, 32, 1e6, dict(B_max=0)) is None


# --------------------------------------------------------------------------------------------------
# Of one run

def test_decline_is_found_and_noise_is_not_taken_for_one():
    rng = np.random.default_rng(0)
    skill, C = 1 / (1 + np.exp(-rng.normal(0, 1.5, 300))), np.arange(20.0)

    def z(rate):
        _, fall, se = noise.decline(C, rng.binomial(4, rate) / 4)
        return fall / se
    steady = [z(np.tile(skill, (20, 1))) for _ in range(200)]
    assert abs(np.mean(steady)) < 0.3 and np.mean(np.array(steady) > 2) < 0.06
    assert z(skill * np.linspace(1, 0.85, 20)[:, None]) > 2


def test_what_a_run_gained_is_paired_by_problem():
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 5, (6, 200)).astype(np.uint8)
    run = plain_run(8, 0, np.arange(6) * 1e4, counts.mean(1) / 4, counts)
    got = noise.gain(run, "avg@4")
    d = (counts[-1].astype(float) - counts[0]) / 4
    half = 1.645 * d.std(ddof=1) / math.sqrt(200)
    want = d.mean(), d.mean() - half, d.mean() + half
    assert (got["gain"], got["lo"], got["hi"]) == pytest.approx(want, abs=1e-6)
    worst = noise.gain(run, "worst@4")["gain"]
    want = np.mean(counts[-1] == 4) - np.mean(counts[0] == 4)
    assert worst == pytest.approx(want, abs=1e-6)
    # no evaluation of the base model
    late = plain_run(8, 0, 1e4 + np.arange(6) * 1e4, counts.mean(1) / 4, counts)
    assert noise.gain(late, "avg@4")["gain"] is None


# --------------------------------------------------------------------------------------------------
# Many sweeps of planted truth

def test_intervals_bias_and_verdicts_over_25_planted_sweeps():
    """tests/bench/coverage.py has the numbers, from 200 sweeps. Bounds leave room for what 25 can
    be off by chance."""
    inside, wide, fair, highest, paper_way, verdicts = ([] for _ in range(6))
    truth = sim.paper()
    for draw in range(25):
        grid, found = cells(sim.sweep(draw, truth, ns=(8, 32, 128, 512), evals=30, seeds=3))
        panel = noise.panel_of(found, grid, CFG, "rollouts")
        panel = noise.add_points(panel, found, grid, CFG)
        want = np.array([truth(32, c["n"], grid) for c in found])
        # the 300 problems that a sweep happened to draw are easier or harder for all n alike, by
        # 1.2 points: no bias
        shift = np.mean([(c["last"] - w)[c["inside"]].mean() for c, w in zip(found, want)])
        best = np.where([c["inside"] for c in found], want, -1).max(0) + shift
        env = panel["envelope"]
        for out, series in ((fair, env["reward"]), (highest, env["highest"]),
                            (paper_way, panel["records"]["frontier"])):
            out.append(np.mean(series - best))
        for s in panel["switches"]:
            want = crossing(truth, 32, s["from"], s["to"], near=s["C"])
            if s["why"] == "crossing" and s["to"] > s["from"] and want:
                inside.append((s["lo"] or 0) <= want <= (s["hi"] or math.inf))
                wide += [s["hi"] / s["lo"]] if s["lo"] and s["hi"] else []
        verdicts.append(verdict_of(panel["surface"], 0.01)["verdict"])
    # 90%: of 60 switches 47 or fewer are covered with probability 0.01; and always-open intervals
    # would be no merit
    assert len(inside) >= 45 and np.mean(inside) > 0.78, (np.mean(inside), len(inside))
    assert len(wide) > 20 and np.median(wide) < 6
    # the promised 0.3 points; record-breaking is off by more, though less with 30 evaluations than
    # with the bench's 60. Choosing on two seeds of three errs a little more often, so `reward`
    # leans low; that it beats `highest` where the curse is at its worst is the next test's
    fair, highest, paper_way = (np.mean(x) for x in (fair, highest, paper_way))
    said = fair, highest, paper_way
    assert fair < highest < paper_way and abs(fair) < 0.003 < 0.004 < paper_way, said
    assert verdicts.count("law") >= 8 and verdicts.count("flat") <= 2, verdicts


@pytest.mark.parametrize("size", [0, 1])
def test_flat_sweeps_are_seldom_called_a_law_and_their_frontier_is_fair(size):
    said, fair, highest, truth = [], [], [], sim.constant(32, size)
    for draw in range(25):
        grid, found = cells(sim.sweep(1000 + draw, truth, ns=(8, 32, 128, 512), evals=20, seeds=3,
                                      P=200))
        panel = noise.panel_of(found, grid, CFG, "rollouts")
        said.append(verdict_of(panel["surface"], 0.01)["verdict"])
        want = np.array([truth(32, c["n"], grid) for c in found])
        # of the problems, see above
        shift = np.mean([(c["last"] - w)[c["inside"]].mean() for c, w in zip(found, want)])
        fair.append(np.mean(panel["envelope"]["reward"] - want.max(0) - shift))
        highest.append(np.mean(panel["envelope"]["highest"] - want.max(0) - shift))
    # 5% promised: 4 or more of 25 has probability 0.03
    assert said.count("law") <= 3, said
    if size == 0:  # all n are equal, so whatever is on top is there by chance
        # a third of the curse is left, 0.2 points in many sweeps: seeds share the problems, and so
        # what these problems happen to like of an n. The promise is 0.3
        means = np.mean(fair), np.mean(highest)
        assert abs(means[0]) < 0.003 < 0.004 < means[1] and means[0] < means[1] / 2, means


# --------------------------------------------------------------------------------------------------
# Contrasts within seeds

def planted(rng, means, S=3, P=300, spread=0.01):
    """A table (S, P) for each mean: problems' pass rates lie around it, the same problems in all;
    a seed moves a run by `spread`."""
    skill = rng.normal(0, 1, P)
    out = []
    for mean in means:
        logit = np.log(mean / (1 - mean)) + skill + rng.normal(0, 0.3, P)
        rate = np.clip(1 / (1 + np.exp(-logit)) + rng.normal(0, spread, (S, 1)), 0, 1)
        out.append(rng.binomial(16, rate) / 16)
    return out


def paired(rng, means, S=3, P=300, spread=0.01, seed=0.015):
    """`planted` as {0: (S, P), 1: ...}, with what the runs of one seed have in common added."""
    common = rng.normal(0, seed, (S, 1))
    return {i: t + common for i, t in enumerate(planted(rng, means, S, P, spread))}


def test_contrast_covers():
    """90% intervals of a difference hold the true one in 85 to 98% of 300 studies of four cells,
    and what seeds have in common does not widen them."""
    differences = []
    for k in range(5):
        one, other = planted(np.random.default_rng(k), (0.6, 0.55), S=200, P=2000, spread=0)
        differences.append(one.mean() - other.mean())
    true = np.mean(differences)
    halves = {}
    for seed in (0, 0.05):
        rng, hits, wide = np.random.default_rng(0), [], []
        for _ in range(300):
            table = paired(rng, (0.6, 0.55, 0.5, 0.45), seed=seed)
            c = noise.contrast(table, {0: 1, 1: -1})
            hits.append(abs(c["gain"] - true) <= c["half"])
            wide.append(c["half"])
        assert 0.85 <= np.mean(hits) <= 0.98 and c["sees"] > c["half"]
        halves[seed] = np.median(wide)
    assert halves[0] < 0.04 and halves[0.05] < 1.05 * halves[0]


def test_what_is_chosen_is_measured_on_other_seeds():
    """Of five arms that are alike the best less another: nothing on average, where the one that is
    best on all seeds lies above."""
    fair, naive, hits = [], [], []
    for k in range(100):
        table = paired(np.random.default_rng(k), (0.6,) * 5, P=100, spread=0.03)
        chosen, c = noise.best_less(table, [0, 1, 2, 3], [4])
        assert len(chosen) == 3 and set(chosen) <= {0, 1, 2, 3}
        fair.append(c["gain"])
        hits.append(abs(c["gain"]) <= c["half"])
        naive.append(max(table[i].mean() for i in range(4)) - table[4].mean())
    assert abs(np.mean(fair)) < 0.006 < 0.015 < np.mean(naive) and np.mean(hits) >= 0.85


def conditions(rng, means, spread=0.006):
    """{n: (early mean, late mean)} -> the two arguments of `shift`, one lr."""
    out = []
    for t in (0, 1):
        table = paired(rng, [m[t] for m in means.values()], spread=spread)
        out.append({n: [table[i]] for i, n in enumerate(means)})
    return out


CASES = {  # {n: (early mean, late mean)}; of 100 studies, how many may say agree and disagree
    "all alike": ({2: (0.5, 0.6), 8: (0.5, 0.6), 32: (0.5, 0.6), 128: (0.5, 0.6)},
                  dict(agree=(0, 3))),
    "n* rises": ({2: (0.58, 0.6), 8: (0.53, 0.62), 32: (0.5, 0.7), 128: (0.4, 0.6)},
                 dict(agree=(90, 100), disagree=(0, 0))),
    "alike early, 32 late": ({2: (0.5, 0.6), 8: (0.5, 0.6), 32: (0.5, 0.65)},
                             dict(agree=(0, 15), disagree=(0, 3))),
    "the largest n at both ends: censored": ({2: (0.5, 0.6), 8: (0.5, 0.6), 32: (0.55, 0.65)},
                                             dict(agree=(0, 2), disagree=(0, 2))),
    "8 throughout": ({2: (0.4, 0.5), 8: (0.55, 0.65), 32: (0.45, 0.5)},
                     dict(agree=(0, 2), disagree=(85, 100))),
    "n* falls": ({2: (0.4, 0.7), 8: (0.5, 0.6), 32: (0.55, 0.5)},
                 dict(agree=(0, 0), disagree=(90, 100)))}


@pytest.mark.parametrize("case", CASES)
def test_verdicts_on_n(case):
    means, allowed = CASES[case]
    said = []
    for k in range(100):
        said.append(noise.shift(*conditions(np.random.default_rng(k), means))["verdict"])
    for verdict, (least, most) in allowed.items():
        assert least <= said.count(verdict) <= most, {v: said.count(v) for v in set(said)}


def test_the_smallest_n_throughout_is_censored():
    """A constant best n denies a rise, but not where it is the smallest tried and another n fits
    below it."""
    means = {4: (0.6, 0.7), 16: (0.5, 0.6), 64: (0.4, 0.5)}
    four = noise.shift(*conditions(np.random.default_rng(0), means))
    two = noise.shift(*conditions(np.random.default_rng(0), dict(zip((2, 8, 32), means.values()))))
    assert four["censored"] and four["verdict"] == "undecided"
    assert not two["censored"] and two["verdict"] == "disagree"


def test_a_shift_wants_three_n():
    with pytest.raises(noise.Missing, match="three n"):
        noise.shift(*conditions(np.random.default_rng(0), {2: (0.5, 0.6), 8: (0.5, 0.6)}))


def test_an_lr_that_suits_one_n_is_no_rise():
    """n = 4 falls behind n = 64 at one lr and is level with it at another: a rise at the first,
    none with the lr control."""
    rises = {4: (0.6, 0.6), 16: (0.5, 0.6), 64: (0.5, 0.66)}
    level = {4: (0.6, 0.67), 16: (0.5, 0.6), 64: (0.5, 0.6)}
    one = conditions(np.random.default_rng(2), rises, 0.002)
    other = conditions(np.random.default_rng(3), level, 0.002)
    two = [{n: a[n] + b[n] for n in a} for a, b in zip(one, other)]
    assert noise.shift(*one)["verdict"] == "agree" and noise.shift(*two)["verdict"] != "agree"


@pytest.mark.parametrize("gain, half, claim, verdict", [
    (0.05, 0.02, +1, "agree"), (-0.05, 0.02, +1, "disagree"), (0.01, 0.02, +1, "undecided"),
    (0.001, 0.005, +1, "disagree"), (-0.05, 0.02, -1, "agree"), (0.05, 0.02, -1, "disagree"),
    (-0.01, 0.02, -1, "undecided"), (-0.001, 0.005, -1, "disagree"), (0.001, 0.01, 0, "agree"),
    (0.05, 0.02, 0, "disagree"), (0.01, 0.03, 0, "undecided")])
def test_verdicts(gain, half, claim, verdict):
    assert noise.judge(dict(gain=gain, half=half), claim) == verdict


def test_margins_follow_what_training_gained():
    """An effect of 0.6 points is nothing where training gained 33, and a lot where it gained 1."""
    small = dict(gain=0.002, half=0.004)
    assert noise.judge(small, +1) == "disagree" and noise.judge(small, 0) == "agree"
    assert {noise.judge(small, claim, gained=0.01) for claim in (+1, 0)} == {"undecided"}


@pytest.mark.parametrize("verdicts, together", [
    (["agree", "agree"], "agree"), (["agree", "disagree", "undecided"], "disagree"),
    (["agree", "undecided"], "undecided")])
def test_both(verdicts, together):
    """A claim with several parts holds if all do, not if one does not; denying swaps the two."""
    assert noise.both(verdicts) == together
    assert noise.denied(noise.denied(together)) == together
    assert (noise.denied(together) == together) == (together == "undecided")
