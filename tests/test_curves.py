"""core/curves.py on planted sweeps: the value of a cell at a budget, its errors, the best cell."""
import math

import numpy as np
import pytest
from scipy.interpolate import make_smoothing_spline

from core import curves
from core.curves import SMOOTH, alike, best, cells_of, fair, half_width, last_value, nearest
from simulate import constant, paper, plain_run, sweep

FALL = [.10, .20, .28, .34, .38, .41, .43, .44, .445, .45, .45, .45, .30, .20, .12, .11]
SLOW = [.10, .14, .18, .22, .25, .28, .30, .32, .335, .345, .355, .365, .37, .375, .38, .38]


def counted(rng, n, seed, rewards, C=9600, P=300, **more):
    """A run with counts of 4 samples on P problems, whose means are about `rewards`."""
    counts = rng.binomial(4, np.array(rewards)[:, None], (len(rewards), P)).astype(np.uint8)
    budgets = np.linspace(0, C, len(rewards))
    return plain_run(n, seed, budgets, counts.mean(1) / 4, counts, 4, B_p=8, **more)


def falling(seeds=(0, 1, 2)):
    rng = np.random.default_rng(0)
    return [counted(rng, n, s, y) for n, y in ((4, FALL), (8, SLOW)) for s in seeds]


@pytest.mark.parametrize("E", [1, 2, 3, 4, 5, 9, 40])
def test_the_last_value_is_that_of_the_smoothing_spline(E):
    rng = np.random.default_rng(E)
    x = np.sort(rng.uniform(0, 5, E))
    w, y = last_value(x), rng.standard_normal(E)
    assert w.sum() == pytest.approx(1) and w @ (2 * x + 1) == pytest.approx(2 * x[-1] + 1)
    if E > 4:
        assert w @ y == pytest.approx(make_smoothing_spline(x, y, lam=SMOOTH)(x[-1]))
    if E < 3:
        assert w @ y == y[-1]


def test_a_value_at_C_knows_nothing_of_what_came_later():
    run = sweep(1, paper(), ns=(32,), seeds=1)[0]
    grid = run["C"][[20, 40, 60]]
    before, _ = curves.values_of(run, "avg@4", grid)
    later = run | dict(counts=np.where(np.arange(len(run["C"]))[:, None] > 61, 0, run["counts"]))
    after, _ = curves.values_of(later, "avg@4", grid)
    assert (before == after).all() and before.shape == (3, 300)
    # but for the scatter of checkpoints, a number of the whole sweep, so too with the jumps
    for checkpoints in (0.002, 0.01):
        values = [curves.values_of(r, "avg@4", grid, checkpoints)[0] for r in (run, later)]
        assert (values[0] == values[1]).all()


@pytest.mark.parametrize("metric, end", [("avg@4", .11), ("best@4", 1 - .89 ** 4),
                                         ("worst@4", .11 ** 4)])
def test_a_run_that_falls_is_worth_what_it_fell_to(metric, end):
    """By every metric, also where it falls at once, which no spline does."""
    grid, cells = cells_of(falling(), metric)
    assert cells[0]["Y"][-1] == pytest.approx(end, abs=0.03)
    peak = dict(zip(("avg@4", "best@4", "worst@4"), (.45, 1 - .55 ** 4, .45 ** 4)))[metric]
    assert np.nanmax(cells[0]["Y"]) == pytest.approx(peak, abs=0.04)


def test_the_stop_of_a_falling_run_is_offered_and_none_to_steady_runs():
    grid, cells = cells_of(falling(), "avg@4")
    assert cells[best(cells, -1)]["n"] == 8
    stop = curves.stop_before(cells, len(grid) - 1)
    assert cells[stop["cell"]]["n"] == 4 and stop["reward"] == pytest.approx(.45, abs=.03)
    assert 9600 / 2 <= grid[stop["j"]] <= 9600 * 11 / 15 and stop["gain"] > .05
    for draw in range(20):
        grid, cells = cells_of(sweep(draw, paper(), ns=(8, 32, 128), seeds=1 + draw % 3, evals=30,
                                     run_sd=.015, drift=.009), "avg@4")
        assert curves.stop_before(cells, len(grid) - 1) is None


def test_what_diverged_or_ended_early_does_not_compete_behind_its_end():
    rng = np.random.default_rng(0)
    dead = [counted(rng, 4, s, FALL[:12], 6600, status="diverged") for s in (0, 1)]
    short = [counted(rng, 16, s, FALL[:12], 6600) for s in (0, 1)]
    grid, cells = cells_of([*dead, *short, *(counted(rng, 8, s, SLOW) for s in (0, 1))], "avg@4")
    by_n = {c["n"]: c for c in cells}
    for n in (4, 16):
        assert np.isnan(by_n[n]["Y"][-1]) and not by_n[n]["inside"][-1]
        assert by_n[n]["Y"][nearest(grid, 6000)] > by_n[8]["Y"][nearest(grid, 6000)]
    assert cells[best(cells, -1)]["n"] == 8 and alike(cells, -1).tolist() == [False, True, False]


def test_a_diverged_seed_beside_living_ones_counts_as_what_it_got():
    rng = np.random.default_rng(0)
    dead = counted(rng, 8, 2, [*SLOW[:5], .05], 3000, status="diverged")
    grid, (c,) = cells_of([counted(rng, 8, 0, SLOW), counted(rng, 8, 1, SLOW), dead], "avg@4")
    assert c["inside"].all() and c["Y"][-1] == pytest.approx((.38 + .38 + .05) / 3, abs=.02)
    grid, (c,) = cells_of([counted(rng, 8, 0, SLOW), dead | dict(status="stopped")], "avg@4")
    assert c["Y"][-1] == pytest.approx(.38, abs=.03)  # one that was stopped has no say


def test_the_fair_reward_of_equal_cells_is_not_the_highest_of_them():
    """Three seeds: five cells of one truth, in 30 sweeps. The highest curve is a point too high."""
    off, plain = [], []
    for draw in range(30):
        grid, cells = cells_of(sweep(draw, constant(size=0), evals=20, run_sd=.015, drift=.009),
                               "avg@4")
        true = constant(size=0)(32, 8, grid[-1])
        off.append(fair(cells)[-1] - true)
        plain.append(max(c["Y"][-1] for c in cells) - true)
    assert np.mean(plain) > 0.007 and abs(np.mean(off)) < np.mean(plain) / 2


@pytest.mark.parametrize("seeds", [1, 3])
def test_sets_hold_the_best_and_intervals_the_truth(seeds):
    held, inside = [], []
    for draw in range(40):
        truth = paper(1)
        grid, cells = cells_of(sweep(draw, truth, seeds=seeds, evals=20, run_sd=.015, drift=.009),
                               "avg@4")
        true = [truth(32, c["n"], grid[-1]) for c in cells]
        held.append(alike(cells, -1)[int(np.argmax(true))])
        inside += [abs(c["Y"][-1] - want) < half_width(c)[-1] for c, want in zip(cells, true)]
    assert np.mean(held) >= 0.9 and 0.84 <= np.mean(inside) <= 0.99


@pytest.mark.parametrize("seeds", [1, 3])
def test_cells_of_one_truth_are_alike(seeds):
    """Of five equal cells nine in ten are in the set; with half the error two in three would be."""
    held = []
    for draw in range(25):
        _, cells = cells_of(sweep(draw, constant(size=0), seeds=seeds, evals=20, run_sd=.015,
                                  drift=.009), "avg@4")
        held.append(alike(cells, -1))
    assert 0.85 < np.mean(held) < 0.99


def test_errors_of_runs_come_from_the_seeds_or_are_stated():
    one = sweep(0, constant(size=0), seeds=1, evals=40, run_sd=.03, drift=0)
    three = sweep(0, constant(size=0), seeds=3, evals=40, run_sd=.03, drift=0)
    _, alone = cells_of(one, "avg@4")
    _, cells = cells_of(three, "avg@4")
    assert alone[0]["run_sd"][-1] == pytest.approx(math.hypot(.015, curves.scatter(one)))
    assert 0.015 < cells[0]["run_sd"][-1] < 0.06 and cells[0]["t"][-1] > 1.8
    assert (half_width(cells[0]) > 0).all() and cells[0]["seeds"].max() == 3


def test_logs_without_counts_have_one_number_a_run():
    C = np.arange(0, 41) * 1000
    runs = [plain_run(n, s, C, .3 + n / 1000 + .001 * s + C * 0) for n in (8, 32) for s in (0, 1)]
    grid, cells = cells_of(runs, "avg@4")
    assert cells[0]["V"].shape[2] == 1 and (cells[0]["se"] == 0).all()
    assert cells[1]["Y"][-1] == pytest.approx(.3325) and fair(cells)[-1] == pytest.approx(.3325)


def test_the_grid_has_the_budgets_of_the_page():
    grid, cells = cells_of(sweep(0, paper(), ns=(8, 32), evals=40), "avg@4")
    for share in (1, 2, 4, 8):
        assert np.isclose(grid, 4e6 / share).any()
    assert grid[0] == pytest.approx(1e5) and len(grid) <= curves.GRID + 4


def test_both_ends_of_a_run_are_widened_by_one_update():
    """A due evaluation comes up to B late, and M = floor(C / B) leaves up to B unspent."""
    cfg = dict(eval_every=1000, C=10_000)
    run = plain_run(4, 0, [0, 1024, 4096, 9984], [.1, .2, .3, .4], config=cfg)
    assert curves.reach(run) == (1000, 10_000)
    assert curves.reach(run | dict(status="diverged")) == (1000, 9984)


def test_crossings_and_where_the_difference_may_be_zero():
    x = np.linspace(0, 1, 11)
    assert curves.crossings(x, x - 0.25) == pytest.approx([0.25])
    assert curves.crossings(x, np.where(x < .5, np.nan, x)) == []
    assert curves.where_zero(x, x - 0.5, np.full(11, 0.15), 0.5) == pytest.approx((0.3, 0.7))
    assert curves.where_zero(x, x - 0.5, np.full(11, 9), 0.5) == (None, None)
