"""core/stats.py on planted sweeps: a cell's value at a budget, its errors, ties, the law test."""
import math

import numpy as np
import pytest
from scipy.interpolate import make_smoothing_spline

from core import stats
from core.stats import (SMOOTH, best, cells_of, ci_half_width, difference, heldout_reward,
                        last_value, nearest, tied_with_best, verdict_of)
from simulate import constant, paper, plain_run, sweep

FALL = [.10, .20, .28, .34, .38, .41, .43, .44, .445, .45, .45, .45, .30, .20, .12, .11]
SLOW = [.10, .14, .18, .22, .25, .28, .30, .32, .335, .345, .355, .365, .37, .375, .38, .38]


def counted(rng, n, seed, rewards, C=9600, P=300, **more):
    """Make a run with counts of 4 samples on P problems, whose means are about `rewards`."""
    counts = rng.binomial(4, np.array(rewards)[:, None], (len(rewards), P)).astype(np.uint8)
    budgets = np.linspace(0, C, len(rewards))
    return plain_run(n, seed, budgets, counts.mean(1) / 4, counts, 4, B_p=8, **more)


def falling(seeds=(0, 1, 2)):
    rng = np.random.default_rng(0)
    return [counted(rng, n, s, y) for n, y in ((4, FALL), (8, SLOW)) for s in seeds]


@pytest.mark.parametrize("E", [1, 2, 3, 4, 5, 9, 40])
def test_last_value_equals_the_smoothing_spline(E):
    rng = np.random.default_rng(E)
    x = np.sort(rng.uniform(0, 5, E))
    w, y = last_value(x), rng.standard_normal(E)
    assert w.sum() == pytest.approx(1) and w @ (2 * x + 1) == pytest.approx(2 * x[-1] + 1)
    if E > 4:
        assert w @ y == pytest.approx(make_smoothing_spline(x, y, lam=SMOOTH)(x[-1]))
    if E < 3:
        assert w @ y == y[-1]


def test_a_value_at_C_does_not_depend_on_later_evaluations():
    run = sweep(1, paper(), ns=(32,), seeds=1)[0]
    grid = run["C"][[20, 40, 60]]
    before, _ = stats.values_of(run, "avg@4", grid)
    later = run | dict(counts=np.where(np.arange(len(run["C"]))[:, None] > 61, 0, run["counts"]))
    after, _ = stats.values_of(later, "avg@4", grid)
    assert (before == after).all() and before.shape == (3, 300)
    # also if some evaluations count as jumps, because this checkpoint_sd is small
    for checkpoints in (0.002, 0.01):
        values = [stats.values_of(r, "avg@4", grid, checkpoints)[0] for r in (run, later)]
        assert (values[0] == values[1]).all()


@pytest.mark.parametrize("metric, end", [("avg@4", .11), ("best@4", 1 - .89 ** 4),
                                         ("worst@4", .11 ** 4)])
def test_the_value_of_a_run_falls_with_the_run(metric, end):
    """This holds for every metric, even if the run falls faster than a spline bends."""
    grid, cells = cells_of(falling(), metric)
    assert cells[0].mean[-1] == pytest.approx(end, abs=0.03)
    peak = dict(zip(("avg@4", "best@4", "worst@4"), (.45, 1 - .55 ** 4, .45 ** 4)))[metric]
    assert np.nanmax(cells[0].mean) == pytest.approx(peak, abs=0.04)


@pytest.mark.parametrize("evals", [3, 4, 30])
def test_checkpoints_have_noise_also_with_few_evaluations(evals):
    """If a run has three or four evaluations, the last three are used, because the later half is
    too short for a second difference."""
    runs = sweep(0, paper(), ns=(8, 32, 128), seeds=3, evals=evals, run_sd=.015, drift=.009)
    assert 0.007 < stats.checkpoint_sd(runs, "avg@4") < 0.03


def test_falling_runs_have_an_earlier_stop_and_steady_runs_have_none():
    grid, cells = cells_of(falling(), "avg@4")
    assert cells[best(cells, -1)].n == 8
    stop = stats.stop_before(cells, len(grid) - 1)
    assert cells[stop["cell"]].n == 4 and stop["reward"] == pytest.approx(.45, abs=.03)
    assert 9600 / 2 <= grid[stop["j"]] <= 9600 * 11 / 15 and stop["gain"] > .05
    for draw in range(20):
        grid, cells = cells_of(sweep(draw, paper(), ns=(8, 32, 128), seeds=1 + draw % 3, evals=30,
                                     run_sd=.015, drift=.009), "avg@4")
        assert stats.stop_before(cells, len(grid) - 1) is None


def test_a_diverged_cell_has_no_value_and_an_ended_cell_keeps_its_last():
    """The budget is a limit, so a run that ended early keeps its reward."""
    rng = np.random.default_rng(0)
    dead = [counted(rng, 4, s, FALL[:12], 6600, status="diverged") for s in (0, 1)]
    short = [counted(rng, 16, s, FALL[:12], 6600) for s in (0, 1)]
    grid, cells = cells_of([*dead, *short, *(counted(rng, 8, s, SLOW) for s in (0, 1))], "avg@4")
    four, eight, sixteen = cells
    assert np.isnan(four.mean[-1]) and not four.alive[-1]
    assert sixteen.mean[-1] == sixteen.mean[sixteen.alive][-1] and not sixteen.alive[-1]
    for c in (four, sixteen):
        assert c.mean[nearest(grid, 6000)] > eight.mean[nearest(grid, 6000)]
    assert cells[best(cells, -1)] is sixteen
    assert tied_with_best(cells, -1).tolist() == [False, False, True]


def test_a_diverged_seed_counts_with_its_last_reward():
    rng = np.random.default_rng(0)
    dead = counted(rng, 8, 2, [*SLOW[:5], .05], 3000, status="diverged")
    grid, (c,) = cells_of([counted(rng, 8, 0, SLOW), counted(rng, 8, 1, SLOW), dead], "avg@4")
    assert c.alive.all() and c.mean[-1] == pytest.approx((.38 + .38 + .05) / 3, abs=.02)
    grid, (c,) = cells_of([counted(rng, 8, 0, SLOW), dead | dict(status="stopped")], "avg@4")
    assert c.mean[-1] == pytest.approx(.38, abs=.03)  # a stopped run does not count


def test_a_diverged_seed_does_not_widen_the_intervals_of_other_cells():
    rng = np.random.default_rng(1)
    runs = [counted(rng, n, s, [.6 + .02 * (n == 4)] * 16) for n in (4, 16, 64) for s in (0, 1, 2)]
    _, cells = cells_of(runs, "avg@4")
    dead = [run for run in runs if (run["n"], run["seed"]) != (16, 2)]
    dead.append(counted(rng, 16, 2, [.6] * 5 + [.05], 3000, status="diverged"))
    _, after = cells_of(dead, "avg@4")
    assert ci_half_width(after[0], -1) < 1.3 * ci_half_width(cells[0], -1)
    assert heldout_reward(after)[-1] == pytest.approx(.61, abs=.03)


def test_the_effect_of_a_seed_cancels_in_differences():
    """Seeds that are 5 points apart neither hide a difference of 3 points nor widen its error."""
    rng, seen = np.random.default_rng(2), [(4, 0), (4, 1), (4, 2), (16, 0), (16, 1), (16, 2)]
    for pairs in (seen, seen[:-1]):  # also if one cell lacks a seed
        runs = [counted(rng, n, s, [.5 + .05 * s + .03 * (n == 16)] * 16) for n, s in pairs]
        _, (a, b) = cells_of(runs, "avg@4")
        gap, problems, of_runs = difference(b, a, -1)
        assert gap == pytest.approx(.03, abs=.012) and of_runs < .02
        assert ci_half_width(a, -1) > 3 * of_runs  # one cell's reward keeps the full variance
        assert a.noise.seed_ratio > 2


def test_seeds_that_only_one_cell_has_still_count():
    rng = np.random.default_rng(3)
    runs = [counted(rng, n, s, [.5] * 16) for n, seeds in ((4, (0, 1)), (16, (2, 3)))
            for s in seeds]
    _, (a, b) = cells_of(runs, "avg@4")
    assert np.isfinite(difference(a, b, -1)).all() and np.isfinite(ci_half_width(b, -1))


def test_the_heldout_reward_of_equal_cells_is_not_the_highest_of_them():
    """In 30 sweeps of five equal cells, the highest curve is about a point above the truth."""
    off, plain = [], []
    for draw in range(30):
        grid, cells = cells_of(sweep(draw, constant(size=0), evals=20, run_sd=.015, drift=.009),
                               "avg@4")
        true = constant(size=0)(32, 8, grid[-1])
        off.append(heldout_reward(cells)[-1] - true)
        plain.append(max(c.mean[-1] for c in cells) - true)
    assert np.mean(plain) > 0.007 and abs(np.mean(off)) < np.mean(plain) / 2


@pytest.mark.parametrize("seeds", [1, 3])
def test_the_best_cell_is_tied_and_intervals_contain_the_truth(seeds):
    held, inside = [], []
    for draw in range(40):
        truth = paper(1)
        grid, cells = cells_of(sweep(draw, truth, seeds=seeds, evals=20, run_sd=.015, drift=.009),
                               "avg@4")
        true = [truth(32, c.n, grid[-1]) for c in cells]
        held.append(tied_with_best(cells, -1)[int(np.argmax(true))])
        inside += [abs(c.mean[-1] - want) < ci_half_width(c, -1) for c, want in zip(cells, true)]
    assert np.mean(held) >= 0.9 and 0.84 <= np.mean(inside)


@pytest.mark.parametrize("noise", [dict(run_sd=.015, drift=.009),
                                   dict(run_sd=.0066, drift=.004, seed_sd=.01)])
def test_cells_of_one_truth_are_tied(noise):
    """90% of equal cells are tied with the best. With half of the error it would be two thirds."""
    held = []
    for draw in range(25):
        _, cells = cells_of(sweep(draw, constant(size=0), seeds=3, evals=20, **noise), "avg@4")
        held.append(tied_with_best(cells, -1))
    assert 0.85 < np.mean(held) < 0.995


def test_run_noise_comes_from_the_seeds_or_from_the_prior():
    _, alone = cells_of(sweep(0, constant(size=0), seeds=1, evals=40, run_sd=.03, drift=0), "avg@4")
    _, cells = cells_of(sweep(0, constant(size=0), seeds=3, evals=40, run_sd=.03, drift=0), "avg@4")
    assert alone[0].noise.run_var[-1] == pytest.approx(stats.RUN_SD ** 2)
    assert 0.015 < math.sqrt(cells[0].noise.run_var[-1]) < 0.06
    assert (alone[0].noise.df[-1], cells[0].noise.df[-1]) == (3, 3 + 8)


def test_logs_without_counts_take_the_noise_of_problems_as_binomial():
    C = np.arange(0, 41) * 1000
    runs = [plain_run(n, s, C, .3 + n / 1000 + .001 * s + C * 0, task=("", 4, 0, 30))
            for n in (8, 32) for s in (0, 1)]
    grid, cells = cells_of(runs, "avg@4")
    assert cells[0].values.shape[2] == 1
    assert cells[1].mean[-1] == pytest.approx(.3325) == heldout_reward(cells)[-1]
    assert ci_half_width(cells[1], -1) >= 1.645 * math.sqrt(.3325 * .6675 / 30)


def test_copies_of_a_problem_are_one_problem():
    """Thirty problems, each 16 times, have the intervals, ties and held-out halves of 30 problems
    with 64 samples each."""
    rng = np.random.default_rng(0)
    once = [counted(rng, n, s, np.linspace(.2, .4 + n / 100, 9), P=30) for n in (4, 8)
            for s in (0, 1)]
    plain = cells_of(once, "avg@4")[1]
    for order in (np.tile(np.arange(30), 16), np.repeat(np.arange(30), 16)):
        first = [int(np.argmax(order == i)) for i in order]
        many = [run | dict(counts=run["counts"][:, order], copies=first) for run in once]
        cells = cells_of(many, "avg@4")[1]
        assert cells[0].values.shape[2] == 30
        assert ci_half_width(cells[1], -1) == pytest.approx(ci_half_width(plain[1], -1), rel=1e-4)
        assert difference(*cells, -1) == pytest.approx(difference(*plain, -1), abs=1e-5)
    apart = cells_of([run | dict(copies=None) for run in many], "avg@4")[1]
    assert stats.level_error(apart[1], -1) < 0.3 * stats.level_error(plain[1], -1)


def test_the_grid_has_the_budgets_of_the_report():
    grid, cells = cells_of(sweep(0, paper(), ns=(8, 32), evals=40), "avg@4")
    for share in (1, 2, 4, 8):
        assert np.isclose(grid, 4e6 / share).any()
    assert grid[0] == pytest.approx(1e5) and len(grid) <= stats.GRID + 4


def test_both_ends_of_a_run_are_widened_by_one_update():
    """An evaluation comes up to B late, and M = floor(C / B) leaves up to B unspent."""
    cfg = dict(eval_every=1000, C=10_000)
    run = plain_run(4, 0, [0, 1024, 4096, 9984], [.1, .2, .3, .4], config=cfg)
    assert stats.reach(run) == (1000, 10_000)
    assert stats.reach(run | dict(status="diverged")) == (1000, 9984)


# --------------------------------------------------------------------------------------------------
# Does the best n rise?

def verdict(runs, delta=0.01):
    grid, cells = cells_of(runs, "avg@4")
    return verdict_of(cells, grid, delta)


def steep(B_p, n, C):
    """Return a reward by which n = 8 is clearly the best early, and n = 128 late."""
    x = np.log10(np.maximum(C, 1) / 4e5)
    return 0.5 + (C > 0) * 0.1 * x * np.log2(n / 32) / 2


QUIET = dict(ns=(8, 32, 128), seeds=3, evals=40, run_sd=.002, drift=.001, inter=0.0)


def test_a_switch_has_an_interval_of_budgets():
    """n = 128 overtakes n = 8 at 400k. If all n are equal, the interval is open at both ends."""
    grid, cells = cells_of(sweep(1, steep, **QUIET), "avg@4")
    switches = [s for s in stats.panel_of(cells, grid)["switches"] if s["clear"]]
    assert switches[0]["from"] == 8 and switches[-1]["to"] == 128
    assert all(s["lo"] < s["C"] < s["hi"] and s["lo"] < 4e5 < s["hi"] for s in switches)
    grid, cells = cells_of(sweep(4, constant(size=0), **QUIET | dict(run_sd=.03)), "avg@4")
    switch = stats.overtakes(cells[0], cells[2], grid, 4e5)
    assert switch["lo"] is None and switch["hi"] is None


def test_three_verdicts_on_planted_sweeps():
    rises = verdict(sweep(1, steep, **QUIET))
    assert rises["verdict"] == "law" and rises["p"] < 0.01 < rises["p_falls"]
    assert rises["sets"][0] == [8] and rises["sets"][-1] == [128]
    flat = verdict(sweep(1, constant(32), **QUIET), delta=0.03)
    assert flat["verdict"] == "flat" and flat["n_flat"] == 32 and flat["regret"] < 0.03
    falls = verdict(sweep(1, lambda B_p, n, C: steep(B_p, 1024 // n, C), **QUIET))
    assert falls["verdict"] == "undetermined" and falls["p_falls"] < 0.01 and falls["p"] > 0.5
    noisy = verdict(sweep(4, constant(size=0), ns=(8, 32), seeds=3, evals=40, run_sd=.03))
    assert noisy["verdict"] == "undetermined"


def test_the_effect_of_a_seed_does_not_hide_a_law():
    """Two seeds are 8 points apart, so without pairing no difference of cells is significant."""
    found = verdict(sweep(4, steep, **QUIET | dict(seeds=2, run_sd=.004, seed_sd=.05)))
    assert found["verdict"] == "law"


def test_an_n_that_still_gains_is_named_under_a_flat_verdict():
    """n = 32 catches up with n = 8 in the last octave, and would overtake it after C."""
    def level(B_p, n, C):
        rise = np.clip(np.log2(np.maximum(C, 1) / 1e6) / 2, 0, 1)  # over the last two octaves
        return 0.5 + (C > 0) * (n == 32) * (0.025 * rise - 0.02)
    quiet = QUIET | dict(ns=(8, 32), run_sd=.001, drift=.0)
    found = verdict(sweep(1, level, **quiet), delta=0.03)
    assert found["verdict"] == "flat" and found["n_flat"] == 8 and found["rising"] == 32
    assert verdict(sweep(1, constant(size=0), **quiet), delta=0.03)["rising"] is None


def test_flat_needs_two_seeds_and_every_n():
    quiet = QUIET | dict(seeds=1)
    assert verdict(sweep(1, constant(32), **quiet), delta=.5)["verdict"] != "flat"
    runs = sweep(1, constant(32), **quiet | dict(seeds=2))
    assert verdict(runs, delta=.5)["verdict"] == "flat"
    for run in (run for run in runs if run["n"] == 128):
        run.update({key: run[key][:15] for key in ("C", "rollouts", "step", "counts", "reward")},
                   status="diverged")
    early = verdict(runs, delta=.5)
    assert early["verdict"] == "undetermined" and early["left_out"] == [128]


def test_one_n_and_few_shared_budgets_are_undetermined():
    assert "only one n" in verdict(sweep(1, paper(), ns=(8,), evals=20))["reason"]
    runs = sweep(1, paper(), ns=(8, 32), evals=20)
    for run in runs:
        keep = (run["C"] < 1e6) if run["n"] == 8 else (run["C"] > 9e5) | (run["C"] == 0)
        run.update({key: run[key][keep] for key in ("C", "rollouts", "step", "counts", "reward")})
    assert "less than a factor of 4" in verdict(runs)["reason"]


@pytest.mark.parametrize("seeds", [2, 3])
def test_no_law_if_one_n_is_always_best(seeds):
    """At most 5% of sweeps without a rise say law. Two of 20 may be chance, three are too many."""
    for truth in (constant(128, 2), constant(size=0)):
        laws = [verdict(sweep(draw, truth, ns=(8, 32, 128, 512), seeds=seeds, evals=20,
                              run_sd=.0066, drift=.004, seed_sd=.01))["verdict"] == "law"
                for draw in range(20)]
        assert sum(laws) <= 2


def test_seeds_that_cover_different_budgets_have_a_verdict():
    """One seed of n = 32 ends at C / 2, and the other seed begins at C / 2."""
    runs = sweep(1, paper(), ns=(8, 32), seeds=2, evals=40)
    for run in runs:
        if run["n"] == 32:
            keep = (run["C"] <= 2e6) if run["seed"] else (run["C"] > 1.9e6) | (run["C"] == 0)
            run.update({k: run[k][keep] for k in ("C", "rollouts", "step", "counts", "reward")})
    grid, cells = cells_of(runs, "avg@4")
    assert np.isfinite([difference(cells[0], cells[1], j)
                        for j in np.flatnonzero(cells[1].alive)]).all()
    assert verdict(runs)["verdict"] in ("law", "flat", "undetermined")
