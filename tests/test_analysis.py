"""frontier.py and fit_sigmoid.py against planted truth, brute force and everything a folder of logs can get wrong."""
import contextlib
import csv
import gzip
import io
import itertools
import json
import math
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import fit_sigmoid as fit  # noqa: E402
import frontier  # noqa: E402
import simulate as sim  # noqa: E402
from config import BadInput, at_k, config, derive, finite, identity, parse, run_name  # noqa: E402
from simulate import crossing, simulate, truth  # noqa: E402

PAPER = {"easy": (6.09, 4.75, 5.84, 2.73), "hard": (4.47, 7.23, 5.84, 2.79), "tokens": (6.62, 3.47, 9.18, 2.64),
         "joint": (5.67, 8.84, 6.08, 3.08)}  # L, k, log10 C0, b, as printed on the paper's figures
CFG = dict(config, boot=200, B_max=0, seed=0)
CFG["head"] = CFG


def analyse(folder, *words, view="fixed_Bp"):
    """frontier.py in this process: the content of the view's JSON, its PNG being there too."""
    frontier.main([f"--runs={folder}", "--boot=40", f"--view={view}", *words])
    name = Path(folder) / ("frontier" if view == "fixed_Bp" else f"frontier_{view}")
    assert Path(f"{name}.png").stat().st_size > 15_000
    return json.loads(Path(f"{name}.json").read_text())


def law(folder, *words):
    fit.main([f"--runs={folder}", *words])
    return json.loads((Path(folder) / "law.json").read_text())


def shell(*words, cwd=ROOT):
    return subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, cwd=cwd)


def refused(*words):
    """A script that must end with exit code 2 and one line: that line."""
    done = shell(*words)
    assert done.returncode == 2, done
    assert done.stdout == "" and done.stderr.count("\n") == 1, done
    return done.stderr


def bad(module, *words):
    """The same in this process, where config.entry is not asked: the line."""
    with pytest.raises(BadInput) as e:
        module.main([str(word) for word in words])
    assert "\n" not in str(e.value)
    return str(e.value)


def edit(log, change):
    """Rewrite a log, record by record; `change` gets a record and returns one, or None to leave it out."""
    records = [change(json.loads(line)) for line in log.read_text().splitlines()]
    log.write_text("".join(json.dumps(r) + "\n" for r in records if r is not None))


def add_passes(logs, seed=0):
    """Append what the trainer writes of its training problems: 3 records a run; the larger n, the more are never solved."""
    rng = np.random.default_rng(seed)
    for (_, n, _), log in logs.items():
        with open(log, "a") as file:
            for C in (400_000, 800_000, 1_600_000):
                p = rng.beta(0.5 * 8 / n + C / 4e6, 0.5, 60)
                samples = np.full(60, 4 * n)
                record = dict(type="train_pass", step=C // 32 // n, rollouts=C, ids=[f"p{i}" for i in range(60)],
                              samples=samples, correct=rng.binomial(samples, p))
                file.write(json.dumps(finite(record)) + "\n")


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """Two panels with a law, analysed once; tests that change logs make their own."""
    folder = tmp_path_factory.mktemp("sweep") / "easy"
    add_passes(simulate(folder, ns=(4, 8, 16, 32, 64), B_ps=(8, 32), evals=80, draw=2))
    with contextlib.redirect_stdout(io.StringIO()) as said:
        frontier.main([f"--runs={folder}", "--view=all"])
        laws = law(folder, "--C=3e5")
    (folder.parent / "said.txt").write_text(said.getvalue())
    return folder, json.loads((folder / "frontier.json").read_text()), laws


def memory(draw, truth, **kind):
    """A sweep in memory analysed as the script does: (panel of frontier.json, its cells, grid)."""
    grid, _, _, cells = frontier.curves_of(sim.sweep(draw, truth, **kind), "avg@4", CFG)
    return frontier.add_points(frontier.panel_of(cells, grid, CFG, "rollouts"), cells, grid, CFG), cells, grid


def plain_run(n, seed, C, reward, counts=None, samples=4, trials=10 ** 12, B_p=32, **more):
    """A run as read_run returns it, with rewards of one's own and, without counts, next to no noise of evaluations."""
    C = np.asarray(C, float)
    return dict(run=f"n{n}_seed{seed}", config=dict(eval_every=1, C=int(C[-1])), B_p=B_p, n=n, seed=seed,
                samples=samples, C=C, rollouts=C, step=C / (B_p * n), counts=counts, reward=np.asarray(reward, float),
                trials=np.full(len(C), float(trials)), status="budget", biased=False, passes=[],
                source="", per_rollout=1.0) | more


# ---------------------------------------------------------------------------------------------------------------------
# Pure functions against brute force

@pytest.mark.parametrize("kind", ["avg", "best", "worst"])
def test_reward_is_the_mean_over_all_draws_of_k_rollouts(kind):
    score = dict(avg=lambda d: sum(d) / len(d), best=max, worst=min)[kind]
    for samples, k in ((4, 1), (4, 4), (6, 2), (7, 3)):
        table = at_k(f"{kind}@{k}", samples)
        for c in range(samples + 1):
            draws = list(itertools.combinations([1] * c + [0] * (samples - c), k))
            assert table[c] == pytest.approx(sum(map(score, draws)) / len(draws))
        counts = np.arange(samples + 1, dtype=np.uint8).reshape(1, -1)
        assert frontier.right(counts, f"{kind}@{k}", samples)[0] == pytest.approx(table)
    assert at_k("best@64", 512)[300] == pytest.approx(
        1 - math.comb(212, 64) / math.comb(512, 64), rel=1e-12)  # large counts do not overflow


def test_k_above_samples_is_refused(tmp_path):
    with pytest.raises(BadInput, match="best@8.*has 4"):
        at_k("best@8", 4)
    simulate(tmp_path, ns=(4, 8), evals=8)
    assert "an evaluation here has 4" in bad(frontier, f"--runs={tmp_path}", "--metric=best@8")


def slow_records(reward, width):
    best, out = -math.inf, []
    for r in reward:
        out.append(math.floor(round(r / width, 6)) > best)
        best = max(best, math.floor(round(r / width, 6)))
    return out


def test_record_breaking_against_a_slow_loop():
    rng = np.random.default_rng(0)
    assert frontier.record_breaking([.501, .504, .512, .508, .516], .005).tolist() == [True, False, True, False, True]
    assert frontier.record_breaking(np.arange(201) / 200, .005).all()  # each exactly on the edge of a bin of its own
    for _ in range(50):
        reward = rng.integers(0, 1201, 40) / 1200
        assert frontier.record_breaking(reward, .005).tolist() == slow_records(reward, .005)


def test_pooled_records_against_a_slow_loop():
    rng = np.random.default_rng(1)
    C, n = rng.integers(0, 12, 60) * 100.0, 2.0 ** rng.integers(1, 5, 60)
    reward = rng.random(60)
    got = frontier.pooled_records(C, reward, n, .005)
    best, want = -1, []
    for c, r, m in sorted(zip(C, reward, n), key=lambda p: (p[0], -p[1])):
        if math.floor(r / .005) > best:
            best = math.floor(r / .005)
            want += [(c, r, m)] if c > 0 else []
    assert list(zip(got["C"], got["reward"], got["n"])) == want
    assert len(want) > 3 or (C == 0).sum()
    logs = [math.log2(m) for _, _, m in want]
    assert got["log2_n_mean"] == pytest.approx([np.mean(logs[max(i - 2, 0):i + 3]) for i in range(len(logs))])


def test_crossings_are_the_upward_ones_and_pass_over_gaps():
    x = np.arange(6.0)
    assert frontier.crossings(x, np.array([-1, 1, -1, -1, 3, 3.0])) == pytest.approx([0.5, 3.25])
    assert frontier.crossings(x, np.array([1, 1, 1, -1, -1, -1.0])) == []
    assert frontier.crossings(x, np.array([np.nan, -1, np.nan, 1, 1, 1.0])) == []
    rng = np.random.default_rng(0)
    for _ in range(30):
        ahead = rng.normal(size=6)
        fine = np.interp(np.linspace(0, 5, 50_001), x, ahead)
        want = np.linspace(0, 5, 50_001)[1:][(fine[:-1] <= 0) & (fine[1:] > 0)]
        assert frontier.crossings(x, ahead) == pytest.approx(want, abs=2e-4)


def test_switches_tell_an_overtaking_from_runs_that_begin_or_end():
    nan, x = np.nan, np.log([1, 2, 4, 8, 16.0])
    Y = np.array([[.2, .3, .32, nan, nan], [.1, .2, .40, .40, .41], [nan, nan, nan, nan, .5]])
    on_top, out = frontier.switches(x, Y)
    assert on_top.tolist() == [0, 0, 1, 1, 2]
    assert [(s["a"], s["b"], s["why"]) for s in out] == [(0, 1, "crossing"), (1, 2, "begins")]
    # the difference goes from -.1 to .08 between C = 2 and 4
    assert out[0]["x"] == pytest.approx(x[1] + (x[2] - x[1]) * .1 / .18) and out[1]["x"] == x[4]
    Y[1, 2] = .31
    assert [(s["a"], s["b"], s["why"], s["x"]) for s in frontier.switches(x, Y)[1]][0] == (0, 1, "ends", x[3])


def test_invert_is_the_interval_of_a_straight_line_and_leaves_ends_open():
    x = np.linspace(0, 10, 101)
    assert fit.invert(x, 4.53 - x, np.full(101, 1.3), 4.53) == pytest.approx((3.23, 5.83))
    # twice the slope halves the interval, and the half width may change along the way
    assert fit.invert(x, 2 * (4.5 - x), np.full(101, 1.0), 4.5) == pytest.approx((4.0, 5.0))
    lo, hi = fit.invert(x, 5 - x, 0.2 * x, 5.0)
    assert lo == pytest.approx(5 / 1.2, abs=0.01) and hi == pytest.approx(5 / 0.8, abs=0.02)
    assert fit.invert(x, 4.5 - x, np.full(101, 100.0), 4.5) == (None, None)
    lo, hi = fit.invert(x, 4.5 - x, np.full(101, 5.0), 4.5)
    assert lo is None and hi == pytest.approx(9.5)  # nothing below is rejected
    # rejected at its own place already: an interval of next to no width, and not one that leaves the point out
    lo, hi = fit.invert(x, np.where(x < 5, 9.0, -9.0), np.full(101, 1.0), 5.0)
    assert 4.8 < lo <= 5.0 <= hi < 5.2


def test_decline_is_found_and_noise_is_not_taken_for_one():
    rng = np.random.default_rng(0)
    skill, C = 1 / (1 + np.exp(-rng.normal(0, 1.5, 300))), np.arange(20.0)

    def z(rate):
        _, fall, se = frontier.decline(C, rng.binomial(4, rate) / 4)
        return fall / se
    steady = [z(np.tile(skill, (20, 1))) for _ in range(200)]
    assert abs(np.mean(steady)) < 0.3 and np.mean(np.array(steady) > 2) < 0.06
    assert z(skill * np.linspace(1, 0.85, 20)[:, None]) > 2


def test_thin_is_the_mean_over_all_draws_of_k_rollouts():
    rng = np.random.default_rng(0)
    samples, correct, k = [2, 3, 5, 7, 7, 7, 7], [1, 3, 0, 7, 2, 2, 4], 3
    want = np.zeros(k + 1)
    for s, c in zip(samples, correct):
        if s >= k:  # a problem with fewer rollouts than k is left out
            draws = list(itertools.combinations([1] * c + [0] * (s - c), k))
            want += np.bincount([sum(d) for d in draws], minlength=k + 1) / len(draws) / 6
    assert frontier.thin(samples, correct, k) == pytest.approx(want) and want.sum() == pytest.approx(1)
    # so the share at 0 does not fall with n: one set of problems, thinned from 16 and from 256 rollouts, looks the same
    p = rng.beta(0.3, 0.6, 20_000)
    few, many = (frontier.thin(np.full(p.size, s), rng.binomial(s, p), 8) for s in (16, 256))
    assert few == pytest.approx(many, abs=0.012) and few[0] > 0.3
    assert (frontier.thin([1], [1], 2) == 0).all()


def test_polarisation_is_what_unbiased_pairs_of_rollouts_say():
    rng = np.random.default_rng(0)
    samples, correct = [4, 5, 2, 3, 1], [1, 4, 1, 3, 1]  # the last has one rollout, which says nothing of p (1 - p)
    between = [np.mean([a * (1 - b) for a, b in itertools.permutations([1] * c + [0] * (s - c), 2)])
               for s, c in zip(samples, correct) if s > 1]
    mean = np.mean([c / s for s, c in zip(samples, correct) if s > 1])
    assert frontier.polarisation(samples, correct) == pytest.approx(1 - np.mean(between) / (mean * (1 - mean)))
    assert frontier.polarisation([8, 8, 8], [0, 8, 8]) == 1
    assert frontier.polarisation(np.full(50_000, 4), rng.binomial(4, 0.3, 50_000)) == pytest.approx(0, abs=0.02)
    p = rng.choice([0.1, 0.9], 50_000)  # the variance of p over the largest that mean .5 allows, 0.16 of 0.25, from any s
    for s in (2, 16):
        assert frontier.polarisation(np.full(p.size, s), rng.binomial(s, p)) == pytest.approx(0.64, abs=0.02)
    assert all(math.isnan(frontier.polarisation(s, c)) for s, c in (([4, 4], [0, 0]), ([4, 4], [4, 4]), ([], [])))


# ---------------------------------------------------------------------------------------------------------------------
# Fits

@pytest.mark.parametrize("form", fit.FORMS)
def test_curves_are_monotone_whatever_the_data(form):
    rng, C = np.random.default_rng(0), np.r_[0, np.geomspace(1e3, 1e6, 25)]
    R = rng.random((20, 26))
    R[0] = np.linspace(0.9, 0.1, 26)  # a run that only declines
    many = fit.fit_curve(C, R, form=form)
    fine = fit.curve(many, np.r_[0, np.geomspace(1e2, 1e7, 500)])
    assert (np.diff(fine) >= -1e-12).all() and fine.max() <= 1 + 1e-9
    assert np.ptp(fine[0]) == pytest.approx(0, abs=1e-9)
    for i in range(20):  # fitted together or one by one is the same
        alone = fit.fit_curve(C, R[i], form=form)
        assert alone["rss"] == pytest.approx(many["rss"][i], rel=1e-9)
        assert alone["rss"] == pytest.approx(((fit.curve(alone, C) - R[i]) ** 2).sum(), abs=1e-9)


PLANTED = [("sigmoid", 5e4, 3.0), ("logistic", 2e5, 2e-5), ("exponential", 0, 8e-6)]


@pytest.mark.parametrize("form,C0,k", PLANTED)
def test_planted_curve_is_recovered(form, C0, k):
    C = np.r_[0, np.linspace(2e4, 1e6, 40)]
    want = dict(form=form, base=0.3, amp=0.25, C0=C0, k=k)
    got = fit.fit_curve(C, fit.curve(want, C), form=form)
    for key in ("base", "amp", "C0", "k"):
        assert got[key] == pytest.approx(want[key], rel=0.01), key
    assert fit.at_bounds(got, C) == []


def test_the_fit_is_the_best_that_many_starts_of_another_optimizer_find():
    from scipy.optimize import least_squares
    rng, C = np.random.default_rng(4), np.linspace(2e4, 1e6, 25)
    for _ in range(5):
        R = np.asarray(truth(32, 16, C)) + rng.normal(0, 0.02, 25)
        (lo_u, hi_u, _), (lo_v, hi_v, _) = fit.search_box("sigmoid", C)
        ours, low, high = fit.fit_curve(C, R)["rss"], [-5, 0, lo_u, lo_v], [1, 9, hi_u, hi_v]

        def residual(p):
            at = fit.curve(dict(form="sigmoid", base=p[0], amp=p[1], C0=10 ** p[2], k=np.exp(p[3])), C) - R
            return np.r_[at, 1e3 * max(p[0] + p[1] - 1, 0)]  # the asymptote stays below 1
        starts = [[.3, .2, *rng.uniform(low[2:], high[2:])] for _ in range(15)]
        theirs = min(2 * least_squares(residual, start, bounds=(low, high)).cost for start in starts)
        assert ours <= theirs * 1.001


def test_weights_leave_points_out_and_bounds_are_named():
    C = np.geomspace(1e3, 1e6, 20)
    R = fit.curve(dict(form="sigmoid", base=.2, amp=.3, C0=3e4, k=4), C)
    R[5], w = 0.99, np.where(np.arange(20) == 5, 0, 1)
    assert fit.fit_curve(C, R, w)["C0"] == pytest.approx(3e4, rel=0.01)
    step = fit.fit_curve(C, np.where(C > 3e4, .6, .2))
    assert any("k at its upper bound" in f for f in fit.at_bounds(step, C))
    rising = fit.fit_curve(C, np.linspace(.5, .99, 20) ** 0.5)
    assert any("asymptote" in f for f in fit.at_bounds(rising, C))


def central(C, R, w, grid, form, local, move):
    """What the fit itself does when the data move, by finite differences."""
    up, down = (fit.linear_fit(C, R + sign * move, w, grid, form, local)[1] for sign in (1, -1))
    return (up - down) / 2


@pytest.mark.parametrize("local", [False, True])
@pytest.mark.parametrize("form,C0,k", PLANTED)
def test_the_linear_map_is_the_derivative_of_the_curve_by_the_data(form, C0, k, local):
    rng, C = np.random.default_rng(0), np.r_[0, np.linspace(2e4, 1e6, 40)]
    grid, w = np.geomspace(3e4, 1e6, 30), rng.uniform(0.2, 2, 41)
    w[7] = 0
    R = fit.curve(dict(form=form, base=0.3, amp=0.25, C0=C0, k=k), C)
    _, Y, H = fit.linear_fit(C, R, w, grid, form, local)
    assert Y == pytest.approx(fit.curve(dict(form=form, base=0.3, amp=0.25, C0=C0, k=k), grid), abs=2e-4)
    assert H.shape == (30, 41) and (H[:, 7] == 0).all()
    for _ in range(6):
        move = rng.normal(0, 0.005, 41)
        want = central(C, R, w, grid, form, local, move)
        assert np.linalg.norm(H @ move - want) < 0.05 * np.linalg.norm(want)
    # all rewards higher by one amount lift the curve by that amount
    assert H @ np.ones(41) == pytest.approx(np.ones(30), abs=1e-6)
    # noisy data: the map is Gauss-Newton's, which leaves out that the curvature of the form bends the residuals
    noisy = R + rng.normal(0, 0.01, 41)
    H = fit.linear_fit(C, noisy, w, grid, form, local)[2]
    move = rng.normal(0, 0.005, 41)
    want = central(C, noisy, w, grid, form, local, move)
    assert np.linalg.norm(H @ move - want) < 0.25 * np.linalg.norm(want)


def test_a_parameter_at_its_bound_does_not_move():
    rng, C = np.random.default_rng(0), np.geomspace(1e3, 1e6, 30)
    R, w, grid = np.where(C > 3e4, .6, .2), np.ones(30), np.geomspace(1e3, 1e6, 13)
    p, _, H = fit.linear_fit(C, R, w, grid, "sigmoid", False)
    assert fit.at_bounds(p, C) == ["k at its upper bound 20"]
    u, v, move = math.log10(p["C0"]), math.log(p["k"]), rng.normal(0, 0.01, 30)
    # k stands still: least squares in base, amp and C0 alone
    slope = (fit.basis("sigmoid", C, u + 1e-5, v) - fit.basis("sigmoid", C, u - 1e-5, v)) / 2e-5
    at_grid = (fit.basis("sigmoid", grid, u + 1e-5, v) - fit.basis("sigmoid", grid, u - 1e-5, v)) / 2e-5
    J = np.stack([np.ones(30), fit.basis("sigmoid", C, u, v), p["amp"] * slope], 1)
    G = np.stack([np.ones(13), fit.basis("sigmoid", grid, u, v), p["amp"] * at_grid], 1)
    assert H @ move == pytest.approx(G @ np.linalg.lstsq(J, move, rcond=None)[0], abs=1e-5)


def test_the_smoother_follows_a_straight_line_and_gives_the_base_model_no_weight():
    rng = np.random.default_rng(0)
    C, grid = np.r_[0, 0, np.sort(10 ** rng.uniform(4, 6, 60))], np.geomspace(1e4, 1e6, 21)
    w = rng.uniform(0.1, 3, 62)
    K = fit.smoother(C, w, grid)
    assert (K[:, :2] == 0).all() and K.sum(1) == pytest.approx(np.ones(21))
    line = np.where(C > 0, 2 - 0.7 * np.log10(np.maximum(C, 1)), 99)
    # its ridge, a thousandth of the squared width, pulls the ends towards the local mean by that little
    assert K @ line == pytest.approx(2 - 0.7 * np.log10(grid), abs=5e-4)
    assert K == pytest.approx(fit.smoother(C, 5 * w, grid))
    assert np.abs(fit.smoother(C, np.where(np.arange(62) == 30, 0, w), grid)[:, 30]).max() == 0
    lone = fit.smoother(np.array([0, 1e4, 1e6]), np.ones(3), np.array([1e4, 1e5, 1e6]))  # two evaluations: no division by 0
    assert np.isfinite(lone).all() and lone.sum(1) == pytest.approx(np.ones(3))


def test_monotone_is_the_closest_rising_sequence():
    rng = np.random.default_rng(0)
    for _ in range(20):
        y, w = rng.normal(size=12), rng.uniform(0.2, 3, 12)
        mean = np.array([[np.average(y[a:b + 1], weights=w[a:b + 1]) if b >= a else np.nan for b in range(12)]
                         for a in range(12)])
        want = [max(min(mean[a, i:]) for a in range(i + 1)) for i in range(12)]  # the max-min formula
        assert fit.monotone(y, w) == pytest.approx(want)
    assert fit.monotone(np.arange(5.0)).tolist() == [0, 1, 2, 3, 4]


def test_form_is_the_papers_unless_another_is_clearly_better():
    rng, C = np.random.default_rng(0), np.r_[0, np.linspace(2.5e4, 1e6, 40)]

    def noisy(form, sd, **p):
        R = fit.curve(dict(form=form, base=.3, amp=.3, **p), C)
        return [(C, R + rng.normal(0, sd, 41), np.ones(41)) for _ in range(4)]
    assert fit.choose_form(noisy("sigmoid", .01, C0=1e5, k=3))[0] == "sigmoid"
    form, local, error = fit.choose_form(noisy("logistic", .002, C0=5e5, k=1e-5))
    assert form == "logistic" and error["logistic"] == pytest.approx(.002, rel=.3) and error["isotonic"] > error["logistic"]
    assert set(error) == {*fit.FORMS, "isotonic", *(f"{f} + local" for f in fit.FORMS)}
    # a curve that no form has: the residuals are followed too
    wave = [(C, .4 + .1 * np.sin(4 * np.log10(np.maximum(C, 2e4))) + rng.normal(0, .005, 41), np.ones(41)) for _ in range(4)]
    assert fit.choose_form(wave)[1] is True
    assert fit.choose_form([(C[:6], C[:6] / 1e6, np.ones(6))]) == ("exponential", False, {})



# ---------------------------------------------------------------------------------------------------------------------
# The law from points

def staircase(folder, numbers, C, name="points.csv", octaves=0.0):
    """A CSV of n*(C) that follows a printed law; octaves: rounded to such a grid of log2 n, as a sweep would see it."""
    y = sim.law(np.asarray(C), numbers)
    y = np.round(y / octaves) * octaves if octaves else y
    with open(folder / name, "w", newline="") as file:
        csv.writer(file).writerows([("C", "n"), *zip(C, 2 ** y)])
    return folder / name


def of_points(file, out, *words):
    fit.main([f"--points={file}", f"--out={out}", *words])
    return json.loads((out / "law.json").read_text())


@pytest.mark.parametrize("name", PAPER)
def test_printed_laws_come_back_from_their_points(tmp_path, name):
    L, k, log10_C0, b = PAPER[name]
    C = np.geomspace(10 ** (log10_C0 - 1), 10 ** (log10_C0 + 1), 40)
    assert fit.law_at(dict(zip(fit.NUMBERS, PAPER[name])), C) == pytest.approx(sim.law(C, PAPER[name]))
    got = of_points(staircase(tmp_path, PAPER[name], C), tmp_path)["law"]
    assert got["verdict"] == "law" and got["flags"] == []
    for key, want in dict(L=L, k=k, log10_C0=log10_C0, b=b).items():
        assert got[key]["value"] == pytest.approx(want, rel=0.01), key
        assert got[key]["lo"] is None  # points alone do not say how sure they are
    assert got["plateau"]["value"] == pytest.approx(2 ** (L + b), rel=0.01)
    assert (tmp_path / "law.png").stat().st_size > 10_000


def test_a_law_seen_through_a_grid_of_powers_of_two(tmp_path):
    got = of_points(staircase(tmp_path, PAPER["easy"], np.geomspace(1e5, 1e7, 60), octaves=1), tmp_path)["law"]
    assert got["verdict"] == "law"
    assert got["log10_C0"]["value"] == pytest.approx(5.84, abs=0.05) and 400 < got["plateau"]["value"] < 600


@pytest.mark.parametrize("octaves", [0.0, 1.0])
@pytest.mark.parametrize("numbers,C,why", [
    (PAPER["easy"], np.geomspace(1e5, 10 ** 5.75, 30), "n\\*|plateau|bend"),      # cut before the bend
    (PAPER["easy"], np.geomspace(10 ** 6.1, 1e8, 30), "C0|bend|values of n|k at"),   # begins past it
    ((3.97, 500.0, 6.13, 3.04), np.geomspace(1e5, 1e7, 40), "k at its upper bound 50|values of n")])
def test_points_that_do_not_determine_a_law_give_none(tmp_path, numbers, C, why, octaves):
    got = of_points(staircase(tmp_path, numbers, C, octaves=octaves), tmp_path)
    assert got["law"]["verdict"] == "undetermined"
    assert all(got["law"][key]["value"] is None for key in fit.NUMBERS)
    assert re.search(why, got["law"]["reason"]), got["law"]["reason"]
    far = got["prescriptions"][-1]
    assert far["status"] == "extrapolated" and any("no law" in c for c in far["caveat"]) and math.log2(far["n"]) % 1 == 0


def test_the_papers_k_of_50_is_named_as_unseen():
    C = np.geomspace(10 ** 5.1, 10 ** 7.1, 40)
    got = fit.law_of_points(C, sim.law(C, (3.97, 50.0, 6.13, 3.04)))
    assert got["verdict"] == "undetermined" and "k at its upper bound 50" in got["flags"] and got["k"]["value"] is None


@pytest.mark.parametrize("path,verdict,why", [
    ([8] * 30, "flat", "n = 8 at every budget"),
    ([32] * 15 + [8] * 15, "undetermined", "below half an octave up: 32 at .*, 8 at"),
    ([8] * 15 + [32] * 15, "undetermined", "only 2 values"),
    ([8, 4, 16, 8, 4, 4] * 5, "undetermined", "below half an octave")])
def test_verdicts_on_points_without_a_law(path, verdict, why):
    got = fit.law_of_points(np.geomspace(1e4, 1e6, 30), np.log2(path))
    assert got["verdict"] == verdict and re.search(why, got["reason"]), got["reason"]
    assert all(got[name] == dict(value=None, lo=None, hi=None) for name in fit.NUMBERS)


# ---------------------------------------------------------------------------------------------------------------------
# The law from the surface

@pytest.mark.parametrize("N", [2, 3, 4, 9])
def test_the_surface_is_a_natural_spline_through_all_n(N):
    from scipy.interpolate import CubicSpline
    rng, z = np.random.default_rng(0), np.arange(3, 3 + 2 * N, 2.0)
    Y = rng.normal(size=(5, N, 6))  # five sets of N curves on 6 budgets
    T = fit.surface_of(Y, z)
    fine = np.linspace(z[0], z[-1], 16 * (N - 1) + 1)
    assert T.shape == (5, 6, len(fine)) and T[..., ::16] == pytest.approx(np.swapaxes(Y, 1, 2))
    for i, g in ((0, 0), (4, 5)):
        want = CubicSpline(z, Y[i, :, g], bc_type="natural")(fine) if N > 2 else np.interp(fine, z, Y[i, :, g])
        assert T[i, g] == pytest.approx(want, abs=1e-8)
    assert fit.surface_of(Y[0], z) == pytest.approx(T[0])


FINE = np.linspace(2, 11, 73)  # log2 n, 8 to an octave, from below b to above the plateau of the paper's law
X = np.linspace(4.2, 7.2, 61)


def planted(size=1.0, numbers=sim.EASY):
    return np.stack([sim.paper(size, numbers)(32, 2 ** z, 10 ** X) for z in FINE], 1)  # (G, Z), no noise


def mean_reward(T, c):
    """What best_law maximises, by a slow loop."""
    y = [c[0] + (c[1] - c[0]) / (1 + math.exp(-math.exp(c[3]) * (x - c[2]))) for x in X]
    return np.mean([np.interp(a, FINE, row) for a, row in zip(y, T)])


@pytest.mark.parametrize("name", ["easy", "hard", "joint"])
def test_best_law_finds_a_planted_law(name):
    L, k, u, b = PAPER[name]
    T, want = planted(numbers=PAPER[name]), [b, L + b, u, math.log(k)]
    got = fit.best_law(T, FINE, X)[:, 0]
    # the surface is flat at its top, so what counts is that no law earns more: not the planted one, nor any of 300
    rng = np.random.default_rng(0)
    others = [want, *rng.uniform([2, 2, 4, 0], [11, 11, 7.5, 3.9], (300, 4))]
    assert mean_reward(T, got) >= max(mean_reward(T, c) for c in others if c[1] >= c[0]) - 1e-6
    assert got == pytest.approx(want, abs=0.06)


def test_best_law_with_a_number_held():
    T, (L, k, u, b) = planted(), PAPER["easy"]
    want, free = np.array([b, L + b, u, math.log(k)]), mean_reward(planted(), fit.best_law(planted(), FINE, X)[:, 0])
    for name, true, off, read in (("b", b, 4.0, lambda c: c[0]), ("plateau", L + b, 7.0, lambda c: c[1]),
                                  ("L", L, 4.0, lambda c: c[1] - c[0]), ("log10_C0", u, 5.2, lambda c: c[2]),
                                  ("k", math.log(k), 0.5, lambda c: c[3])):
        c = fit.best_law(T, FINE, X, name, np.array([true, off]))
        assert c.shape == (4, 2) and (read(c[:, 0]), read(c[:, 1])) == pytest.approx((true, off)), name
        assert c[:, 0] == pytest.approx(want, abs=0.1), name
        rewards = [mean_reward(T, a) for a in c.T]
        assert rewards[0] == pytest.approx(free, abs=1e-5) and rewards[1] < free - 1e-4, name
        # among laws with the number held there, none of those near by earns more
        rng = np.random.default_rng(0)
        for d in rng.normal(0, 0.05, (60, 4)):
            other = c[:, 1] + d
            held = dict(b=0, plateau=1, log10_C0=2, k=3).get(name)
            if held is None:
                other[1] = other[0] + off
            else:
                other[held] = off
            if 2 <= other[0] <= other[1] <= 11:
                assert mean_reward(T, other) <= rewards[1] + 2e-5, name


def a_surface(truth, sd, ns=(8, 16, 32, 64, 128, 256, 512, 1024, 2048), K=200, C=None, draw=None):
    """A surface as frontier.json has it: curves on 31 budgets whose errors of size `sd` are one smooth curve for each n.

    draw: a generator whose errors are added to the truth, None for the truth itself.
    """
    C = np.geomspace(2e4, 4e6, 31) if C is None else C
    rng, (u, v) = np.random.default_rng(0), (np.linspace(0, 1, len(C)) ** p for p in (0, 1))

    def error(rng, K):
        a, b = rng.normal(0, sd, (2, K, len(ns), 1))
        return a * u + b * (v - 0.5)
    Y = np.array([truth(32, n, C) for n in ns]) + (0 if draw is None else error(draw, 1)[0])
    return dict(C=C, ns=list(ns), Y=Y, noise=error(rng, K) if K else [], left_out=[])


INSIDE = (4.5, 4.75, 5.4, 3.6)  # a law whose start, n = 12, and plateau, 274, lie inside the grid of n


def parabolas(B_p, n, C):
    """Reward that falls with the squared distance from INSIDE's n*."""
    return 0.5 - 0.004 * (math.log2(n) - sim.law(C, INSIDE)) ** 2


def holds(p, value):
    return (p["lo"] or -math.inf) <= value <= (p["hi"] or math.inf)


def test_intervals_of_the_law_hold_the_point_and_are_open_where_nothing_is_rejected():
    wants = dict(zip(fit.NUMBERS, (*INSIDE, 2 ** (4.5 + 3.6))))
    quiet, loud, lost, none = (fit.law_of_surface(a_surface(parabolas, sd, K=K))
                               for sd, K in ((0.002, 200), (0.006, 200), (0.5, 200), (1, 0)))
    for name in fit.NUMBERS:
        assert not quiet[name]["flag"] and holds(quiet[name], quiet[name]["value"]), (name, quiet[name])
        assert holds(loud[name], wants[name]), (name, loud[name], wants[name])
        assert (loud[name]["lo"] or -math.inf) <= (quiet[name]["lo"] or -math.inf), name  # more noise, wider
        assert (loud[name]["hi"] or math.inf) >= (quiet[name]["hi"] or math.inf), name
        assert lost[name]["lo"] is lost[name]["hi"] is none[name]["lo"] is none[name]["hi"] is None
        assert none[name]["value"] == pytest.approx(quiet[name]["value"])  # the point does not depend on the noise
    # above, a later and slower law may take over as the plateau is held higher, so that end can be open
    assert 100 < quiet["plateau"]["lo"] < 274 and loud["plateau"]["lo"] < quiet["plateau"]["lo"]
    some = fit.law_of_surface(a_surface(parabolas, 0.002), ("plateau",))
    assert some["plateau"] == quiet["plateau"] and some["L"]["lo"] is None


def test_the_plateaus_interval_covers_it_in_most_draws():
    want, rng, inside = 2 ** (6.09 + 2.73), np.random.default_rng(1), []
    for _ in range(16):
        p = fit.law_of_surface(a_surface(sim.paper(), 0.003, ns=(8, 32, 128, 512, 2048), draw=rng), ("plateau",))["plateau"]
        inside.append(holds(p, want))
        assert holds(p, p["value"]), p  # an interval that leaves its own point out
    # 90%: 11 or fewer of 16 has probability 0.02; the cubic through 5 values of n has a small bias of its own
    assert sum(inside) >= 12


def test_a_law_at_the_end_of_the_grid_is_named():
    found = fit.law_of_surface(a_surface(sim.paper(), 0.001, ns=(8, 16, 32, 64)))  # the plateau, 451, was not run
    assert found["plateau"]["flag"] == "plateau at its upper bound 64"
    assert found["b"]["flag"] == "b at its lower bound 3"


# ---------------------------------------------------------------------------------------------------------------------
# What noise can tell, and verdicts

def test_the_set_that_is_not_told_from_the_best():
    Y, none = np.array([.5, .6, .55]), np.zeros((0, 3))
    assert fit.told_apart(Y, none).all()  # without draws nothing is told apart
    rng = np.random.default_rng(0)
    assert fit.told_apart(Y, rng.normal(0, 1e-4, (200, 3))).tolist() == [False, True, False]
    assert fit.told_apart(Y, rng.normal(0, 1, (200, 3))).all()
    assert fit.told_apart(np.full(3, .5), rng.normal(0, .01, (200, 3))).all()  # ties
    assert fit.told_apart(np.array([.5]), rng.normal(0, .01, (200, 1))).tolist() == [True]
    # noise that all share tells nothing apart and must not hide a difference
    shared = rng.normal(0, 1, (200, 1)) + rng.normal(0, 1e-4, (200, 3))
    assert fit.told_apart(Y, shared).tolist() == [False, True, False]


@pytest.mark.parametrize("means", [np.zeros(6), np.array([0, 0, 0, -1, -2, -3.0]), np.linspace(0, -1, 6)])
def test_the_best_is_in_its_set_in_nine_of_ten_draws(means):
    rng, kept, size = np.random.default_rng(0), [], []
    sd = np.array([1, .5, 1, 2, 1, .7])
    for _ in range(1500):
        together = rng.normal(0, 1, 1)
        noise = sd * rng.normal(0, 1, (200, 6)) + rng.normal(0, 1, (200, 1))
        mask = fit.told_apart(means + sd * rng.normal(0, 1, 6) + together, noise)
        kept.append(mask[0])  # the first is a best one
        size.append(mask.sum())
    # 0.90 less three standard errors of 1500 draws; with 200 draws of the noise the percentile itself errs a little
    assert 0.875 < np.mean(kept) and np.mean(size) < 6


def test_three_verdicts_on_planted_surfaces():
    said = fit.verdict_of(a_surface(sim.paper(), 0.001), 0.01)
    assert said["verdict"] == "law" and len(said["sets"]) == 3 and "n* rises" in said["reason"]
    assert max(said["sets"][0]["ns"]) < min(said["sets"][2]["ns"]) and said["regret"] > 0.01
    flat = fit.verdict_of(a_surface(sim.constant(32), 0.001), 0.01)
    assert (flat["verdict"], flat["constant"]) == ("flat", 32) and flat["regret"] < 1e-9 and flat["regret_upper"] < 0.01
    equal = fit.verdict_of(a_surface(sim.constant(size=0), 0.001), 0.01)
    assert equal["verdict"] == "flat" and all(len(s["ns"]) == 9 for s in equal["sets"])
    for truth_ in (sim.paper(), sim.constant(32), sim.constant(size=0)):
        vague = fit.verdict_of(a_surface(truth_, 0.2), 0.01)
        assert vague["verdict"] == "undetermined" and vague["regret_upper"] > 0.01, vague
    # n* rises, but a delta that is large enough makes one n do all the same
    both = fit.verdict_of(a_surface(sim.paper(), 0.001), 0.9)
    assert both["verdict"] == "flat" and "n* does rise" in both["reason"]
    one = fit.verdict_of(a_surface(sim.paper(), 0.001, ns=(32,)), 0.01)
    assert one["verdict"] == "undetermined" and "one n only" in one["reason"]
    dry = fit.verdict_of(a_surface(sim.paper(), 0.001, K=0), 0.01)
    assert dry["verdict"] == "undetermined" and "no intervals (boot=0)" in dry["reason"] and dry["regret_upper"] is None


def test_n_that_falls_is_no_law():
    C = np.geomspace(2e4, 4e6, 31)
    falls = a_surface(lambda B_p, n, C: sim.beside(n, C, 12 - sim.law(C)), 0.001, C=C)
    said = fit.verdict_of(falls, 0.01)
    assert said["verdict"] == "undetermined" and said["reason"].startswith("n* falls")


def test_regret_of_the_best_constant_n_by_brute_force():
    s = a_surface(sim.paper(), 0.001)
    loss = s["Y"].max(0) - s["Y"]
    worst = [max(np.mean(part) for part in np.array_split(row, 3)) for row in loss]
    said = fit.verdict_of(s, 0.0001)
    assert said["constant"] == s["ns"][int(np.argmin(worst))] and said["regret"] == pytest.approx(min(worst))


# ---------------------------------------------------------------------------------------------------------------------
# Rules and how they predict

@pytest.mark.parametrize("rule,path", [
    ("constant n", lambda C: np.full(len(C), 5.0)), ("last n", lambda C: np.full(len(C), 5.0)),
    ("constant M", lambda C: np.log2(C) - 12), ("log-linear", lambda C: 0.4 * np.log2(C) - 2),
    ("isotonic", lambda C: np.minimum(np.log2(C) - 10, 5.5)), ("sigmoid", lambda C: sim.law(C, PAPER["easy"]))])
def test_each_rule_continues_its_own_path(rule, path):
    C, far = np.geomspace(1e5, 2e6, 40), np.geomspace(3e6, 2e7, 7)
    assert fit.RULES[rule](C, path(C))(far) == pytest.approx(path(far), abs=0.05)


def test_rules_on_paths_that_tell_them_apart():
    C, y = np.geomspace(1e5, 1e6, 8), np.array([2, 3, 3, 3, 4, 5, 4, 6.0])
    at = np.array([4e6, 8e6])
    assert fit.RULES["constant n"](C, y)(at).tolist() == [3, 3]  # the most frequent
    assert fit.RULES["last n"](C, y)(at).tolist() == [6, 6]
    assert np.diff(fit.RULES["constant M"](C, y)(at)) == pytest.approx(1)  # an octave of n for an octave of C
    assert fit.RULES["constant M"](C, y)(C).mean() == pytest.approx(y.mean())
    assert fit.RULES["isotonic"](C, y)(C)[5:7] == pytest.approx([4.5, 4.5])  # 5 then 4, pooled


def test_the_simplest_rule_within_one_standard_error_of_the_best():
    a, b = np.array([.10, .12, .08, .10]), np.array([.10, .10, .09, .09])
    name, why = fit.simplest(dict(simple=a, other=b, clever=b - .00001), "over 4 seeds")
    gap = a - (b - .00001)
    assert 0 < gap.mean() <= gap.std(ddof=1) / 2 and name == "simple"
    assert "simplest within one standard error" in why and "over 4 seeds" in why and "clever" in why
    assert fit.simplest(dict(simple=a + .05, clever=b), "x")[0] == "clever"
    assert fit.simplest(dict(simple=[.2], clever=[.2]), "x")[0] == "simple"  # one unit: ties go to the simple one
    assert fit.simplest(dict(simple=[.3], clever=[.2]), "x")[0] == "clever"


def octaves(rows):
    return {(r["rule"], r["factor"]): r["octaves"] for r in rows}


def miss(C, y, law_, factor):
    """Each rule's error in octaves at `factor` times the largest budget of the points."""
    far = np.array([C[-1] * factor])
    return {name: float(abs(rule(C, y)(far) - sim.law(far, law_))[0]) for name, rule in fit.RULES.items()}


@pytest.mark.parametrize("name", PAPER)
def test_printed_laws_are_predicted_once_the_bend_is_seen_and_not_before(name):
    numbers = PAPER[name]
    u = numbers[2]
    C = np.geomspace(10 ** (u - 1.5), 10 ** (u + 0.6), 40)
    seen = miss(C, sim.law(C, numbers), numbers, 2)
    assert seen["sigmoid"] < 0.05 and seen["sigmoid"] == min(seen.values())
    # cut before the bend: every rule that looks at n alone is off by more than an octave, the sigmoid too
    C = np.geomspace(10 ** (u - 1.5), 10 ** (u - 0.1), 40)
    cut = miss(C, sim.law(C, numbers), numbers, 4)
    assert min(error for rule, error in cut.items() if rule != "constant M") > 1.5 and cut["constant M"] < 1.2
    assert fit.law_of_points(C, sim.law(C, numbers))["verdict"] == "undetermined"


def test_predictions_of_points_are_a_loop_over_what_was_seen():
    rng = np.random.default_rng(0)
    C, y = np.geomspace(1e5, 1e7, 25), np.sort(rng.integers(2, 8, 25)).astype(float)
    rows, name, why = fit.predict_points(C, y)
    got = octaves(rows)
    for factor in (2, 4, 8):
        errors = []
        for c, want in zip(C, y):
            past = [b for a, b in zip(C, y) if a <= c / factor * (1 + 1e-9)]
            if len(past) >= 3:
                errors.append(abs(past[-1] - want))
        assert got["last n", factor] == pytest.approx(np.mean(errors)) and len(errors) > 3
    assert set(got) == {(rule, factor) for rule in fit.RULES for factor in (2, 4, 8)} and name in fit.RULES and why
    assert fit.predict_points(C[:4], y[:4])[:2] == ([], None)


def test_the_papers_own_switches_favour_constant_M(tmp_path):
    C = np.geomspace(5e4, 4.09e6, 60)
    y = np.log2(np.array([8, 32, 128, 256, 512])[np.searchsorted([.27e6, .86e6, 1.27e6, 2.69e6], C, side="right")])
    rows, name, why = fit.predict_points(C, y)
    got = octaves(rows)
    assert (name, why) == ("constant M", "the best")
    for factor in (2, 4, 8):
        assert got["constant M", factor] < 0.75 * min(got[rule, factor] for rule in fit.RULES if rule != "constant M")
    assert got["sigmoid", 2] > 1 and got["sigmoid", 4] > 2  # the paper's form, from what was known then


def test_the_sigmoid_wins_where_most_budgets_lie_past_the_bend():
    C = np.geomspace(10 ** 5.2, 1e9, 60)
    rows, name, _ = fit.predict_points(C, sim.law(C))
    assert octaves(rows)["sigmoid", 2] < octaves(rows)["constant M", 2] / 4 and name != "constant M"


# ---------------------------------------------------------------------------------------------------------------------
# Runs -> evaluations -> curves

def test_evaluations_are_averaged_in_bins_exactly():
    rng = np.random.default_rng(0)
    C = np.r_[0, np.cumsum(rng.integers(1, 4000, 700))].astype(float)
    counts = rng.integers(0, 5, (701, 30)).astype(np.uint8)
    run = plain_run(8, 0, C, counts.mean(1) / 4, counts)
    e = frontier.evaluations(run, "avg@4")
    parts = np.split(np.arange(701), e["start"][1:])
    assert len(parts) <= frontier.BINS + 1 and parts[0].tolist() == [0]  # the base model stands alone
    for j, i in enumerate(parts):
        assert e["C"][j] == pytest.approx(C[i].mean()) and e["R"][j] == pytest.approx(counts[i].mean() / 4)
        assert e["V"][j] == pytest.approx(counts[i].mean(0) / 4) and e["w"][j] == pytest.approx(1 / (1 / len(i) + 1 / 10))
    widths = [math.log(C[i[-1]] / C[i[0]]) for i in parts[1:]]
    assert max(widths) <= math.log(C[-1] / C[1]) / frontier.BINS + 1e-9
    # few evaluations stay as they are, and so does the metric
    few = frontier.evaluations(plain_run(8, 0, C[:20], counts[:20].mean(1) / 4, counts[:20]), "best@2")
    assert few["C"].tolist() == C[:20].tolist() and set(few["w"]) == {1 / 1.1}
    assert few["V"][3] == pytest.approx([at_k("best@2", 4)[c] for c in counts[3]], abs=1e-6) and few["V2"] is None


def test_halves_of_the_samples_add_up_to_the_counts():
    rng = np.random.default_rng(0)
    for samples, metric in ((4, "avg@4"), (5, "avg@4"), (8, "best@4")):
        counts = rng.integers(0, samples + 1, (9, 40)).astype(np.uint8)
        run = plain_run(8, 0, np.arange(9) * 1e4, counts.mean(1) / samples, counts, samples)
        draws = [frontier.evaluations(run, metric, np.random.default_rng(s)) for s in range(300)]
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
    assert frontier.evaluations(few, "best@4", rng)["V2"] is None  # four samples do not make best@4 twice


def test_evaluations_without_counts_have_the_binomial_noise():
    C = np.r_[0, np.cumsum(np.full(200, 1000.0))]
    e = frontier.evaluations(plain_run(8, 0, C, np.full(201, 0.3), trials=1200), "avg@4")
    m = np.diff(np.r_[e["start"], 201])
    assert e["V"] is None and e["sd"] == pytest.approx(np.sqrt(0.3 * 0.7 / 1200 / m)) and m.max() > 5


def curves(runs, **kind):
    grid, form, _, cells = frontier.curves_of(runs, "avg@4", dict(CFG, **kind))
    return grid, cells


def test_the_noise_has_the_width_of_many_sweeps():
    """Brute force: how far the curves of 45 sweeps with one truth lie apart, against what each says of itself."""
    kind = dict(ns=(8, 64, 256), seeds=3, P=200, evals=16, C=2_000_000)
    last, half, inside, cross, cross_half = [], [], [], [], []
    for draw in range(45):
        grid, cells = curves(sim.sweep(draw, sim.sigmoids, **kind))
        at = [np.abs(grid - C).argmin() for C in (4e5, 1e6, 1.9e6)]
        Y = np.array([c["last"][at] for c in cells])  # (cells, budgets)
        noise = np.array([c["noise"][:, at] for c in cells])  # (cells, draws, budgets)
        last.append(Y), half.append(fit.half_width(np.swapaxes(noise, 0, 1)))
        cross.append(Y[1:] - Y[0]), cross_half.append(fit.half_width(np.swapaxes(noise[1:] - noise[0], 0, 1)))
        want = np.array([sim.sigmoids(32, c["n"], grid[at]) for c in cells])
        inside.append(np.abs(Y - want) <= half[-1])
    last, half, cross, cross_half = map(np.array, (last, half, cross, cross_half))
    wide = np.sqrt(last.var(0, ddof=1).mean(1))  # a cell, over budgets
    # 1.645 standard deviations; Student's t with 6 degrees of freedom makes the part of the seeds 18% wider, and the
    # spread of 45 sweeps is known to about 8%
    assert half.mean((0, 2)) == pytest.approx(1.645 * 1.08 * wide, rel=0.25)
    assert cross_half.mean() == pytest.approx(1.645 * 1.1 * np.sqrt(cross.var(0, ddof=1).mean()), rel=0.25)
    assert 0.80 < np.mean(inside) < 0.98
    assert cross_half.mean() < half.mean() * 1.1  # problems are shared: not the sqrt(2) of two curves that err on their own


def test_the_difference_of_two_cells_on_the_same_problems_is_surer_than_either():
    runs = sim.sweep(0, sim.constant(size=0), ns=(8, 32), seeds=1, run_sd=0, drift=0, inter=0, evals=20)
    _, (a, b) = curves(runs, boot=2000)
    each, apart = (a["noise"].std(0).mean() + b["noise"].std(0).mean()) / 2, (a["noise"] - b["noise"]).std(0).mean()
    assert apart < 0.5 * each
    # two sets of problems of their own: nothing is shared, and the difference is less sure than either
    far = [dict(r, counts=np.random.default_rng(r["n"]).permutation(r["counts"].T).T) for r in runs]
    _, (a, b) = curves(far, boot=2000)
    assert (a["noise"] - b["noise"]).std(0).mean() == pytest.approx(math.sqrt(2) * each, rel=0.15)


def test_the_variance_of_seeds_is_pooled_and_gets_students_t():
    C, d = np.r_[0, np.geomspace(1e4, 1e6, 20)], 0.01
    base = 0.3 + 0.2 / (1 + np.exp(-3 * (np.log10(np.maximum(C, 1)) - 5)))
    runs = [plain_run(n, seed, C, base + (n == 32) * d * (seed - 1)) for n in (8, 32) for seed in range(3)]
    _, cells = curves(runs, boot=4000)
    # squared deviations 0, 0, 0 of n = 8 and d, 0, d of n = 32 over 4 degrees of freedom; each cell is the mean of 3
    want = 2.132 * math.sqrt(2 * d ** 2 / 4 / 3)
    for c in cells:
        assert fit.half_width(c["noise"])[5:75] == pytest.approx(np.full(70, want), rel=0.12), c["n"]
        assert c["folds"].shape == (3, frontier.GRID)
        assert c["folds"].mean(0) == pytest.approx(c["last"], abs=1e-6)
    assert cells[1]["folds"][2] - cells[1]["folds"][0] == pytest.approx(np.full(81, 2 * d), abs=2e-3)
    # seeds of one cell err on their own: nothing of that is shared
    assert abs(np.corrcoef(cells[0]["noise"][:, 40], cells[1]["noise"][:, 40])[0, 1]) < 0.3
    _, alone = curves([r for r in runs if r["seed"] == 1])
    assert max(fit.half_width(c["noise"]).max() for c in alone) < 1e-4  # one seed: no more than the evaluations' noise


def test_curves_without_noise_draws():
    runs = sim.sweep(0, sim.paper(), ns=(8, 32), seeds=2, evals=12)
    grid, cells = curves(runs, boot=0)
    assert cells[0]["noise"].shape == (0, frontier.GRID)
    panel = frontier.panel_of(cells, grid, dict(CFG, boot=0), "rollouts")
    assert panel["envelope"]["lo"] is None and all(s["lo"] is s["hi"] is None for s in panel["switches"])


@pytest.mark.parametrize("F", [2, 3])
def test_choosing_and_scoring_on_one_fold_is_the_winners_curse(F):
    rng = np.random.default_rng(0)
    folds = rng.normal(0, 1, (6, F, 4000))  # 6 equal curves, noise alone
    def honest(Y):
        return frontier.honest([dict(Y=y, folds=f) for y, f in zip(Y, folds)])
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
            rest = [[folds[i, j, g] for j in range(F) if j != f] for i in range(6)]
            others = [np.nanmean(r) if np.isfinite([Y[i, g], folds[i, f, g]]).all() and np.isfinite(r).any() else -math.inf
                      for i, r in enumerate(rest)]
            got.append(folds[int(np.argmax(others)), f, g])
        assert fair[g] == pytest.approx(np.mean(got))
    assert frontier.honest([dict(Y=Y[0], folds=None)] * 2) is None


def test_best_of_takes_at_each_budget_the_best_B_p():
    rng, nan = np.random.default_rng(0), np.nan
    def cell(B_p, n, Y):
        Y = np.array(Y, float)
        return dict(B_p=B_p, n=n, Y=Y, last=Y - .01, noise=rng.normal(size=(7, 4)), folds=None, split="samples",
                    inside=~np.isnan(Y), runs=[B_p], reach=(B_p, 10 * B_p))
    a, b, c = cell(8, 4, [.1, .2, .3, nan]), cell(32, 4, [nan, .3, .2, nan]), cell(8, 16, [.5, .5, .5, .5])
    got = frontier.best_of([c, a, b])
    assert [g["n"] for g in got] == [4, 16]
    g = got[0]
    assert g["Y"][:3].tolist() == [.1, .3, .3] and np.isnan(g["Y"][3]) and g["B_p"][:3].tolist() == [8, 32, 8]
    for j, source in enumerate((a, b, a)):
        assert (g["noise"][:, j] == source["noise"][:, j]).all()
        assert g["last"][j] == source["last"][j]
    assert g["inside"].tolist() == [True, True, True, False] and g["reach"] == (8, 320) and g["runs"] == [8, 32]


def test_options_are_the_cells_within_delta_or_not_told_from_the_best():
    runs = sim.sweep(1, sim.paper(2), ns=(8, 32, 128, 512, 2048), seeds=2, evals=30)
    grid, cells = curves(runs)
    table = frontier.options(cells, grid, dict(CFG, delta=0.02))
    assert [o["C"] / grid[-1] for o in table] == pytest.approx([1, .5, .25, .125], rel=0.05)
    for o in table:
        j = int(np.abs(grid - o["C"]).argmin())
        Y = {c["n"]: c["Y"][j] for c in cells}
        top = max(Y.values())
        assert [r["gap"] for r in o["rows"]] == sorted(r["gap"] for r in o["rows"]) and o["rows"][0]["gap"] == 0
        for r in o["rows"]:
            d = derive(dict(CFG, B_p=32, n=r["n"], C=int(grid[j])))
            assert (r["M"], r["lr"]) == (d["M"], d["lr"]) and r["gap"] == pytest.approx(top - Y[r["n"]])
            assert r["gap"] <= 0.02 or not r["told"]
        assert {n for n, y in Y.items() if top - y <= 0.02} <= {r["n"] for r in o["rows"]}
    assert any(len(o["rows"]) < 5 for o in table)


def test_constant_M_is_found_where_it_is_the_truth():
    def truth_(B_p, n, C):  # the best n has 150 updates at every budget
        return sim.beside(n, C, np.log2(np.maximum(C, 1) / 32 / 150), 1.5)
    ns = (8, 16, 32, 64, 128, 256, 512)
    grid, cells = curves(sim.sweep(0, truth_, ns=ns, seeds=3, evals=40, run_sd=.002, drift=.001, inter=0))
    got = frontier.predict(cells, grid)
    assert got["recommended"] == "constant M" and got["seeds"] == 3 and "did not see" in got["judged"], got["why"]
    rows = {(r["rule"], r["factor"]): r for r in got["rows"]}
    assert set(rows) == {(rule, factor) for rule in fit.RULES for factor in (2, 4, 8)}
    for factor in (4, 8):
        assert rows["constant M", factor]["octaves"] < 0.6 * rows["last n", factor]["octaves"]
        assert rows["constant M", factor]["regret"] < rows["last n", factor]["regret"]
    assert got["regret"]["constant M"] == min(got["regret"].values()) < 0.01


def test_constant_n_is_recommended_where_one_n_is_best():
    grid, cells = curves(sim.sweep(0, sim.constant(32, 2), ns=(8, 32, 128, 512), seeds=3, evals=40))
    got = frontier.predict(cells, grid)
    assert got["recommended"] == "constant n" and got["regret"]["constant n"] < 0.005 < got["regret"]["constant M"], got
    one = frontier.predict(*reversed(curves(sim.sweep(0, sim.constant(32, 2), ns=(8, 32), seeds=1, evals=40))))
    assert one["seeds"] == 1 and one["judged"] == "on the same runs, one seed"
    assert one["why"] == "the best" or "err together" in one["why"]
    grid, cells = curves(sim.sweep(0, sim.paper(), ns=(8, 32), seeds=1, evals=3))
    few = frontier.predict(cells, grid)
    assert few["recommended"] is None and few["rows"] == [] and "too few" in few["why"]


def test_what_a_run_gained_is_paired_by_problem():
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 5, (6, 200)).astype(np.uint8)
    got = frontier.gain(plain_run(8, 0, np.arange(6) * 1e4, counts.mean(1) / 4, counts), "avg@4")
    d = (counts[-1].astype(float) - counts[0]) / 4
    half = 1.645 * d.std(ddof=1) / math.sqrt(200)
    assert (got["gain"], got["lo"], got["hi"]) == pytest.approx((d.mean(), d.mean() - half, d.mean() + half), abs=1e-6)
    worst = frontier.gain(plain_run(8, 0, np.arange(6) * 1e4, counts.mean(1) / 4, counts), "worst@4")
    assert worst["gain"] == pytest.approx(np.mean(counts[-1] == 4) - np.mean(counts[0] == 4), abs=1e-6)
    late = plain_run(8, 0, 1e4 + np.arange(6) * 1e4, counts.mean(1) / 4, counts)  # no evaluation of the base model
    assert frontier.gain(late, "avg@4")["gain"] is None


# ---------------------------------------------------------------------------------------------------------------------
# Planted truth: many sweeps

def test_intervals_bias_and_verdicts_over_25_planted_sweeps():
    """tests/bench/coverage.py has the numbers, from 200 sweeps. Bounds leave room for what 25 can be off by chance."""
    inside, wide, fair, highest, paper_way, verdicts, truth_ = [], [], [], [], [], [], sim.paper()
    for draw in range(25):
        panel, cells, grid = memory(draw, truth_, ns=(8, 32, 128, 512), evals=30, seeds=3)
        want = np.array([truth_(32, c["n"], grid) for c in cells])
        # the 300 problems that a sweep happened to draw are easier or harder for all n alike, by 1.2 points: no bias
        shift = np.mean([(c["last"] - w)[c["inside"]].mean() for c, w in zip(cells, want)])
        best = np.where([c["inside"] for c in cells], want, -1).max(0) + shift
        env = panel["envelope"]
        for out, series in ((fair, env["reward"]), (highest, env["highest"]), (paper_way, panel["records"]["frontier"])):
            out.append(np.mean(series - best))
        for s in panel["switches"]:
            want = crossing(truth_, 32, s["from"], s["to"], near=s["C"])
            if s["why"] == "crossing" and s["to"] > s["from"] and want:
                inside.append((s["lo"] or 0) <= want <= (s["hi"] or math.inf))
                wide += [s["hi"] / s["lo"]] if s["lo"] and s["hi"] else []
        verdicts.append(fit.verdict_of(panel["surface"], 0.01)["verdict"])
    # 90%: of 60 switches 47 or fewer are covered with probability 0.01; and always-open intervals would be no merit
    assert len(inside) >= 45 and np.mean(inside) > 0.78, (np.mean(inside), len(inside))
    assert len(wide) > 20 and np.median(wide) < 6
    # the promised 0.3 points; record-breaking is off by more, though less with 30 evaluations than with the bench's 60.
    # Choosing on two seeds of three errs a little more often, so `reward` leans low; that it beats `highest` where the
    # curse is at its worst is the next test's
    fair, highest, paper_way = (np.mean(x) for x in (fair, highest, paper_way))
    assert fair < highest < paper_way and abs(fair) < 0.003 < 0.004 < paper_way, (fair, highest, paper_way)
    assert verdicts.count("law") >= 8 and verdicts.count("flat") <= 2, verdicts


@pytest.mark.parametrize("size", [0, 1])
def test_flat_sweeps_are_seldom_called_a_law_and_their_frontier_is_fair(size):
    said, fair, highest, truth_ = [], [], [], sim.constant(32, size)
    for draw in range(25):
        grid, cells = curves(sim.sweep(1000 + draw, truth_, ns=(8, 32, 128, 512), evals=20, seeds=3, P=200))
        panel = frontier.panel_of(cells, grid, CFG, "rollouts")
        said.append(fit.verdict_of(panel["surface"], 0.01)["verdict"])
        want = np.array([truth_(32, c["n"], grid) for c in cells])
        shift = np.mean([(c["last"] - w)[c["inside"]].mean() for c, w in zip(cells, want)])  # of the problems, see above
        fair.append(np.mean(panel["envelope"]["reward"] - want.max(0) - shift))
        highest.append(np.mean(panel["envelope"]["highest"] - want.max(0) - shift))
    assert said.count("law") <= 3, said  # 5% promised: 4 or more of 25 has probability 0.03
    if size == 0:  # all n are equal, so whatever is on top is there by chance
        assert abs(np.mean(fair)) < 0.002 < 0.003 < np.mean(highest), (np.mean(fair), np.mean(highest))


# ---------------------------------------------------------------------------------------------------------------------
# A sweep with planted truth, whole

def test_planted_switches_are_found_with_intervals(sweep):
    _, front, _ = sweep
    assert set(front["panels"]) == {"B_p=8", "B_p=32"} and len(front["runs_used"]) == 10 and front["runs_dropped"] == []
    for panel in front["panels"].values():
        up = [s for s in panel["switches"] if s["to"] > s["from"]]
        assert up and up[-1]["to"] == 32 and all(s["why"] == "crossing" for s in up)
        for s in up:
            want = crossing(truth, panel["B_p"], s["from"], s["to"])
            assert abs(math.log10(s["C"] / want)) < 0.3, (s, want)
            assert s["reward"] == pytest.approx(float(truth(32, s["to"], want)), abs=0.06)
            assert (s["lo"] or 0) < s["C"] < (s["hi"] or math.inf)
            assert s["M"] == pytest.approx(s["C"] / panel["B_p"] / s["to"])
        assert any(s["lo"] and s["hi"] and s["hi"] / s["lo"] < 8 for s in up)
        assert panel["edge"] is None  # n = 64 was run and is not on top
        pairs = {(s["from"], s["to"]) for s in panel["crossings"]}
        assert {(s["from"], s["to"]) for s in up} <= pairs and all(a < b for a, b in pairs)


def test_the_json_holds_what_is_promised(sweep):
    _, front, laws = sweep
    assert {"runs_used", "runs_dropped", "missing", "notes", "covers", "options", "config", "budget"} <= set(front)
    for r in front["runs_used"]:
        assert r["lo"] < r["gain"] < r["hi"] and r["evals"] == 81 and r["status"] == "budget"
        assert 2_000_000 - 32 * 64 < r["C"] <= 2_000_000
    panel = front["panels"]["B_p=32"]
    assert {"points", "curves", "switches", "runs_used", "runs_dropped", "records", "envelope", "last", "near", "edge",
            "range", "crossings", "surface", "prediction"} <= set(panel)
    assert [c["n"] for c in panel["curves"]] == [4, 8, 16, 32, 64] and panel["range"][1] == 2_000_000
    for s in panel["switches"]:
        assert {"C", "from", "to", "reward", "lo", "hi", "M"} <= set(s)
    for c in panel["curves"]:
        assert {"form", "base", "amp", "C0", "k", "asymptote", "flags", "reached", "seeds"} <= set(c)
        assert (np.diff(c["reward"]) >= 0).all() and (np.array(c["lo"]) <= c["reward"]).mean() > 0.9
        assert len(c["lo"]) == len(c["hi"]) == len(c["last"]) == len(c["reward"]) == len(c["C"])
        assert c["end"] <= c["best_so_far"]  # the last evaluation and the best one
    # a run's points are its evaluations, averaged in bins of log C
    assert {p["n"] for p in panel["points"]} == {4, 8, 16, 32, 64} and 5 * 30 < len(panel["points"]) <= 5 * 81
    env = panel["envelope"]
    top = np.array([np.interp(env["C"], c["C"], c["reward"]) for c in panel["curves"]])
    assert np.array(env["highest"]) == pytest.approx(top.max(0), abs=1e-6)
    assert env["n"] == [panel["ns"][i] for i in top.argmax(0)]
    assert (np.array(env["lo"]) < env["reward"]).all() and (np.array(env["hi"]) > env["reward"]).all()
    assert np.mean(np.array(env["highest"]) - env["reward"]) > 0  # chosen on one half of the samples, scored on the other
    assert "half of the samples" in panel["curse"] and "seeds" not in panel["curse"]
    assert all(a["set"] and set(a["set"]) <= set(panel["ns"]) for a in panel["near"])
    assert all(env["n"][int(np.argmin(np.abs(np.array(env["C"]) - a["C"])))] in a["set"] for a in panel["near"])
    assert "one seed" in front["covers"] and front["budget"] == 2_000_000
    assert panel["records"]["above"] > 0 and len(panel["records"]["frontier"]) == len(env["C"])
    assert {"L", "k", "log10_C0", "b", "plateau", "flags", "verdict"} <= set(laws["law"])
    assert set(laws["panels"]) == set(front["panels"])
    assert set(laws["panels"]["B_p=8"]) == {"envelope", "records", "prediction"}


def test_planted_law_and_its_prescriptions(sweep):
    folder, front, laws = sweep
    assert laws["law"]["verdict"] == "law"
    asked, own, far = laws["prescriptions"]
    assert (asked["C"], own["C"], far["C"]) == (3e5, 2e6, 8e6)
    assert [p["status"] for p in (asked, own, far)] == ["observed", "observed", "extrapolated"]
    assert own["n"] in own["near"] and asked["n"] in asked["near"] and 32 in own["near"]
    assert far["reward"] is None and far["interval"] is None and far["near"] is None and far["regret"] is None
    assert "extrapolated" in far["caveat"][0] and any(f"`{rule}`" in far["by"] for rule in fit.RULES)
    for p in (asked, own):
        assert p["interval"][0] < p["reward"] < p["interval"][1] and 0 <= p["regret"] < 0.05 and p["caveat"] == []
    assert own["B_p"] == 8 and "smallest" in own["why_B_p"]  # both panels have one truth: noise alone separates them
    assert "a second and third seed" in own["next"]
    for p in (asked, own, far):
        words = shlex.split(p["command"])
        assert words[:2] == ["python", "train_grpo.py"]
        run = parse(words[2:])
        assert identity(run) == identity(dict(front["config"], B_p=p["B_p"], n=p["n"]))
        d = derive(run)
        assert (p["M"], p["lr"]) == (d["M"], d["lr"]) and run["C"] == p["C"] and p["recipe"] == run["recipe"]
        assert p["lr"] == pytest.approx(1e-6 * math.sqrt(p["B_p"] * p["n"] / 1024))
    assert (folder / "frontier.png").stat().st_size > 50_000 and (folder / "law.png").stat().st_size > 20_000


def test_what_to_run_next_is_about_the_budget_that_was_asked(tmp_path):
    """At 1/8 of the budget the grid's edge, where the best n of the largest budget lies, is not what is unsure."""
    simulate(tmp_path, ns=(8, 32, 128), C=4_000_000, evals=40, truth=sim.paper(2), seeds=(0, 1, 2))
    front = analyse(tmp_path)
    C = next(a["C"] for a in front["panels"]["B_p=32"]["near"] if a["set"] == [8, 32] and a["C"] < 1e6)
    laws = {name: fit.law_of_panel(panel, 0.01) for name, panel in front["panels"].items()}
    asked, own = (fit.prescribe(c, front, laws) for c in (C, 4e6))
    assert own["next"].startswith("add B_p = 32, n = 256")
    assert asked["near"] == [8, 32] and "256" not in asked["next"], asked["next"]
    assert "seeds of n = 8, 32" in asked["next"] or "8, 32 are too close" in asked["next"]


def test_the_text_names_switches_missing_and_extrapolation(sweep):
    folder, front, _ = sweep
    said = (folder.parent / "said.txt").read_text()
    s = front["panels"]["B_p=8"]["switches"][-1]
    assert f"{s['from']:>4} -> {s['to']}" in said and f"{s['reward']:.3f}" in said and "10 runs used, 0 dropped" in said
    assert "extrapolated" in said and "python train_grpo.py" in said and "plateau n* = " in said
    assert "predicting n* from budgets up to C/2, C/4, C/8" in said and "recommended: " in said
    assert "by the paper's way (records, maxima of noisy evaluations, no interval)" in said
    assert "winner's curse removed" in said and "90% over validation problems and rollouts; one seed" in said
    assert "Traceback" not in said and "nan" not in re.findall(r"[a-z]+", said)


def test_every_view_writes_its_json_and_figure(sweep):
    folder, front, _ = sweep
    got = {}
    for view in ("fixed_B", "joint", "best_worst", "sensitivity", "pass1"):
        assert (folder / f"frontier_{view}.png").stat().st_size > 15_000, view
        got[view] = json.loads((folder / f"frontier_{view}.json").read_text())
        assert {"runs_used", "runs_dropped", "missing", "covers", "notes"} <= set(got[view]) and got[view]["view"] == view
    joint = got["joint"]["panels"]["joint"]
    both = [front["panels"][name]["envelope"] for name in ("B_p=8", "B_p=32")]
    top = np.max([np.interp(joint["envelope"]["C"], e["C"], e["highest"], left=0) for e in both], 0)
    assert np.array(joint["envelope"]["highest"]) == pytest.approx(top, abs=2e-3)
    assert {s["B_p"] for s in joint["segments"]} <= {8, 32} and all(s["B"] == s["B_p"] * s["n"] for s in joint["segments"])
    assert joint["B_star"] == [b * n for b, n in zip(joint["envelope"]["B_p"], joint["envelope"]["n"])]
    assert joint["stable_B_p"] == 8
    assert joint["segments"][0]["C"] == joint["envelope"]["C"][0]
    fixed = got["fixed_B"]["panels"]
    assert fixed and all(p["B"] in (128, 256, 512) for p in fixed.values())  # the B that both B_p have
    for p in fixed.values():
        assert all(b * n <= p["B"] for b, n in zip(p["envelope"]["B_p"], p["envelope"]["n"]))
        assert p["range"][1] <= 2_000_000 / p["B"] * 1.01 and all(s["M"] == s["C"] for s in p["switches"])
    bars = got["best_worst"]["bars"]
    assert len(bars) == 6 and {b["metric"] for b in bars} == {"avg@4", "best@4", "worst@4"}
    assert all(b["n"] in b["near"] for b in bars)
    for B_p in (8, 32):
        of = {b["metric"]: b["reward"] for b in bars if b["B_p"] == B_p}
        worst, avg, best = (of[f"{m}@4"] for m in ("worst", "avg", "best"))
        assert worst < avg < best
    lines = got["sensitivity"]["lines"]
    assert [line["over"] for line in lines] == ["n"] * 2 + ["B_p"] * 5 and all(line["by_noise"] > 0 for line in lines)
    assert all(line["spread"] == pytest.approx(np.ptp(line["reward"])) for line in lines)
    over_n, over_B_p = ([line["spread"] for line in lines if line["over"] == over] for over in ("n", "B_p"))
    assert min(over_n) > 0.04 and np.mean(over_n) > 2 * np.mean(over_B_p)  # the truth depends on n and not on B_p
    passes = got["pass1"]
    assert passes["B_p"] in (8, 32) and passes["nM"] == 1_600_000 / passes["B_p"] and len(passes["passes"]) == 5
    for r in passes["passes"]:
        assert len(r["moments"]) == 3 and r["matched"]["C"] == 1_600_000 and len(r["matched"]["share"]) == passes["k"] + 1
        assert sum(r["matched"]["share"]) == pytest.approx(1) and 0 < r["matched"]["polarisation"] < 1
    zero = {r["n"]: r["matched"]["zero"] for r in passes["passes"]}
    assert zero[64] > zero[4]  # as planted


def test_measured_pass_rates_come_before_those_of_training(tmp_path):
    """Where every run has records of the policy at one update (--pass_at), pass1 is of these, from before training on."""
    logs = simulate(tmp_path, ns=(8, 16), evals=10)
    add_passes(logs)
    for i, log in enumerate(logs.values()):
        with open(log, "a") as file:
            for C, right in ((0, 2), (800_000, 8 + 4 * i)):
                file.write(json.dumps(dict(type="train_pass", step=C // 512, rollouts=C, fresh=True, ids=[f"p{j}" for j in range(60)],
                                           samples=[16] * 60, correct=[right if j % 2 else 0 for j in range(60)])) + "\n")
        if i == 0:
            frontier.main([f"--runs={tmp_path}", "--view=pass1", "--boot=40"])  # one run has none
            front = json.loads((tmp_path / "frontier_pass1.json").read_text())
            assert not front["fresh"] and all(len(r["moments"]) == 3 for r in front["passes"])
    frontier.main([f"--runs={tmp_path}", "--view=pass1", "--boot=40"])
    front = json.loads((tmp_path / "frontier_pass1.json").read_text())
    assert front["fresh"] and [[m["C"] for m in r["moments"]] for r in front["passes"]] == [[0, 800_000]] * 2 and front["k"] == 16
    for i, r in enumerate(sorted(front["passes"], key=lambda r: r["n"])):
        assert r["matched"]["C"] == 800_000 and r["matched"]["zero"] == 0.5 and r["matched"]["share"][8 + 4 * i] == 0.5
        assert r["moments"][0]["share"][2] == 0.5


def test_views_that_have_nothing_to_compare_say_so(tmp_path, capsys):
    simulate(tmp_path, ns=(8, 16), evals=10)
    assert "no two cells with one B" in bad(frontier, f"--runs={tmp_path}", "--view=fixed_B")
    assert "two runs or more with train_pass records" in bad(frontier, f"--runs={tmp_path}", "--view=pass1")
    assert "wants two sweeps" in bad(frontier, f"--runs={tmp_path}", "--view=compare")
    frontier.main([f"--runs={tmp_path}", "--view=all", "--boot=40"])  # all: the others are drawn and these named
    said = capsys.readouterr().out
    assert len(re.findall(r"^not drawn: --view=(fixed_B|pass1)", said, re.M)) == 2
    drawn = {f"frontier{v}.png" for v in ("", "_joint", "_best_worst", "_sensitivity")}
    assert {p.name for p in tmp_path.glob("*.png")} == drawn


def test_several_sweeps_side_by_side(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    simulate(a, ns=(4, 16, 64), evals=30)
    logs = simulate(b, ns=(4, 16, 64), evals=30, draw=1, truth=sim.constant(16))
    logs[32, 4, 0].write_text("{}\n")
    frontier.main([f"--runs={a} {b} {a}:train {a}:best@4", "--view=compare", f"--out={tmp_path}", "--boot=40"])
    got = json.loads((tmp_path / "frontier_compare.json").read_text())
    assert (tmp_path / "frontier_compare.png").stat().st_size > 50_000
    assert list(got["panels"]) == [f"{w}, B_p=32" for w in (a, b, f"{a}:train", f"{a}:best@4")]
    val, other, train, best = got["panels"].values()
    assert (val["ns"], other["ns"]) == ([4, 16, 64], [16, 64])
    assert "training" in train["metric"] and "best@4" in best["metric"]
    assert min(best["envelope"]["highest"]) > max(val["envelope"]["highest"][:20])
    assert "counts" in train["covers"] and "counts" not in val["covers"]
    # what was left out is said of every sweep, not only of the first
    assert logs[32, 4, 0].parent.name in json.dumps([got["runs_dropped"], other.get("runs_dropped")])


def test_more_seeds_are_pooled_and_the_intervals_say_so(tmp_path):
    simulate(tmp_path, ns=(4, 32), seeds=(0, 1, 2), run_sd=0.02, evals=12)
    front = analyse(tmp_path, "--metric=worst@4", "--unit=tokens")
    panel = front["panels"]["B_p=32"]
    assert "seeds, 3 for each cell" in front["covers"] and panel["curves"][0]["seeds"] == [0, 1, 2]
    assert front["unit"] == "tokens" and panel["range"][1] == pytest.approx(2e8, rel=1e-3)
    assert panel["curse"] == "removed: chosen on the other seeds, scored on one"
    assert law(tmp_path)["prescriptions"][0]["M"] == 2_000_000 // (32 * panel["envelope"]["n"][-1])  # tokens become rollouts
    start = [p["reward"] for p in panel["points"] if p["C"] == 0]
    assert len(start) == 6 and max(start) < 0.2 < frontier.read_runs(tmp_path, "avg@4", "tokens")[0][0]["reward"][0]


def test_the_seeds_noise_widens_the_intervals(tmp_path):
    wide = {}
    for run_sd in (0, 0.03):
        simulate(tmp_path / str(run_sd), ns=(4, 32), seeds=(0, 1, 2), run_sd=run_sd, evals=12)
        env = analyse(tmp_path / str(run_sd))["panels"]["B_p=32"]["envelope"]
        wide[run_sd] = np.median(np.subtract(env["hi"], env["lo"]))
    assert wide[0.03] > 1.3 * wide[0]


def test_a_missing_seed_is_noted_and_the_curse_is_not_blamed_on_one_seed(tmp_path):
    logs = simulate(tmp_path, ns=(4, 16, 64), seeds=(0, 1, 2), run_sd=.01, evals=16)
    shutil.rmtree(logs[32, 16, 1].parent)
    front = analyse(tmp_path)
    panel = front["panels"]["B_p=32"]
    assert "B_p=32 n=16: 2 of 3 seeds" in front["notes"] and "seeds, 2 to 3 for each cell" in front["covers"]
    assert [len(c["seeds"]) for c in panel["curves"]] == [3, 2, 3] and "one seed" not in panel["curse"]
    shutil.rmtree(logs[32, 16, 2].parent)
    # one cell with one seed among others with three: 4 samples have halves for avg@4
    panel = analyse(tmp_path)["panels"]["B_p=32"]
    assert [len(c["seeds"]) for c in panel["curves"]] == [3, 1, 3] and panel["curse"].startswith("removed"), panel["curse"]


def test_joint_view_names_how_the_curse_was_removed(tmp_path):
    simulate(tmp_path, ns=(4, 16), B_ps=(8, 32), evals=12)
    assert "half of the samples" in analyse(tmp_path, view="joint")["panels"]["joint"]["curse"]


def test_a_budget_that_some_batches_do_not_divide_leaves_no_n_alone_at_the_end(tmp_path):
    simulate(tmp_path, ns=(4, 24, 96), C=1_000_000, evals=10)
    panel = analyse(tmp_path, "--boot=0")["panels"]["B_p=32"]
    assert [c["reached"] for c in panel["curves"]] == [[100_000, 1_000_000]] * 3
    assert all(s["why"] == "crossing" for s in panel["switches"])


# ---------------------------------------------------------------------------------------------------------------------
# Units and the training reward

def test_gpu_hours_count_training_alone(tmp_path):
    logs = simulate(tmp_path, ns=(4, 16), evals=10)
    runs, _ = frontier.read_runs(tmp_path, "avg@4", "gpu_hours")
    for run in runs:  # 3.6 s an update, as simulate writes it
        assert run["C"] == pytest.approx(run["step"] / 1000)
        assert run["rollouts"] == pytest.approx(run["step"] * 32 * run["n"])
    edit(logs[32, 4, 0], lambda r: dict(r, ranks=4) if r["type"] == "header" else r)
    four = frontier.read_run(logs[32, 4, 0].parent, unit="gpu_hours")
    assert four["C"] == pytest.approx(four["step"] * 4 / 1000)
    # without the parts' times the wall clock, and without that the run is left out
    edit(logs[32, 16, 0], lambda r: {k: v for k, v in r.items() if k != "gen_s"} | (
        dict(wall_s=7.2 * r["step"]) if r["type"] == "step" else {}))
    wall = frontier.read_run(logs[32, 16, 0].parent, unit="gpu_hours")
    assert wall["C"] == pytest.approx(wall["step"] * 7.2 / 3600)
    edit(logs[32, 16, 0], lambda r: {k: v for k, v in r.items() if k != "wall_s"})
    assert "too few evaluations of val with gpu_hours" in frontier.read_run(logs[32, 16, 0].parent, unit="gpu_hours")
    edit(logs[32, 4, 0], lambda r: dict(r, ranks=1) if r["type"] == "header" else r)
    front = analyse(tmp_path, "--unit=gpu_hours")
    assert front["panels"]["B_p=32"]["range"][1] == pytest.approx(2_000_000 // 128 / 1000)
    assert len(front["runs_dropped"]) == 1


def test_tokens_are_read_and_switches_have_the_same_M(tmp_path):
    simulate(tmp_path, ns=(4, 16, 64), evals=30)
    plain, tokens = (analyse(tmp_path, f"--unit={unit}")["panels"]["B_p=32"] for unit in ("rollouts", "tokens"))
    assert [s["C"] for s in tokens["switches"]] == pytest.approx([100 * s["C"] for s in plain["switches"]], rel=0.02)
    assert [s["M"] for s in tokens["switches"]] == pytest.approx([s["M"] for s in plain["switches"]], rel=0.02)


def with_steps(logs):
    """Give each run a step record for every update, with a reward that rises with C, and none of the old ones."""
    for (B_p, n, _), log in logs.items():
        records = [r for r in map(json.loads, log.read_text().splitlines()) if r["type"] != "step"]
        B, C = B_p * n, records[0]["config"]["C"]
        steps = [dict(type="step", step=m, rollouts=m * B, reward=0.2 + 0.3 * ((m - 1) * B / C) + 0.01 * (n == 32))
                 for m in range(1, C // B + 1)]
        log.write_text("".join(json.dumps(r) + "\n" for r in [*records[:-1], *steps, records[-1]]))


def test_the_training_reward_is_that_of_the_policy_before_the_update(tmp_path):
    logs = simulate(tmp_path, ns=(4, 32), C=2 ** 17, evals=16)
    with_steps(logs)
    runs, dropped = frontier.read_runs(tmp_path, "train", "rollouts", "train")
    assert [r["n"] for r in runs] == [4, 32] and dropped == []
    # one point between two evaluations, for any B
    assert runs[0]["C"] == pytest.approx(runs[1]["C"]) and len(runs[0]["C"]) == 16
    for run in runs:
        # linear in C, so that an average over updates lies on the line too, but for the half update that each comes late
        late = 0.3 * run["n"] * 32 / 2 / 2 ** 17
        assert run["reward"] == pytest.approx(0.2 + 0.3 * run["C"] / 2 ** 17 + 0.01 * (run["n"] == 32) - late, abs=1e-9)
        # every problem of training once: its n rollouts share a pass rate, so they count as one
        assert run["counts"] is None and run["trials"].sum() == 2 ** 17 / run["n"] and (np.diff(run["C"]) > 0).all()
        assert run["C"][0] < 2 ** 17 / 16 < 0.85 * 2 ** 17 < run["C"][-1] < 2 ** 17
    front = analyse(tmp_path, "--metric=train")
    assert front["label"] == "training reward" and "binomial" in front["covers"]
    panel = front["panels"]["B_p=32"]
    assert panel["envelope"]["n"][-1] == 32
    # as with evaluations, no n stands alone at the end because its B divides the budget better
    assert all(s["why"] != "ends" for s in panel["switches"]), panel["switches"]


def test_a_run_that_ends_between_two_evaluations_has_no_training_reward_beyond_its_end(tmp_path):
    logs = simulate(tmp_path, ns=(4, 32), C=2 ** 17, evals=8)
    with_steps(logs)
    end = 2 ** 16 + 2048  # a quarter of the way from one evaluation to the next
    edit(logs[32, 4, 0], lambda r: None if r["type"] == "step" and r["rollouts"] > end else r | (
        dict(status="diverged", rollouts=end) if r["type"] == "end" else {}))
    run = frontier.read_run(logs[32, 4, 0].parent, "train", "rollouts", "train")
    assert run["C"][-1] <= end, (run["C"][-1], end)


def without_counts(r):
    """An evaluation as other trainers write it: the metric and the number of problems."""
    return {k: v for k, v in r.items() if k != "correct"} | (dict(problems=300) if r["type"] == "eval" else {})


def test_best_and_worst_are_not_drawn_from_another_metric(tmp_path):
    """Logs that have one metric and no counts: its bar alone, or one line."""
    logs = simulate(tmp_path, ns=(4, 32), evals=12)
    for log in logs.values():
        edit(log, without_counts)
    for words in ((), ("--metric=train",)):
        try:
            bars = analyse(tmp_path, *words, view="best_worst")["bars"]
        except BadInput:
            continue
        assert not {"best@4", "worst@4"} & {b["metric"] for b in bars}, words


# ---------------------------------------------------------------------------------------------------------------------
# Sweeps with less in them

def test_one_n_is_no_law(tmp_path):
    simulate(tmp_path, ns=(8,), evals=10)
    front, laws = analyse(tmp_path), law(tmp_path)
    assert front["panels"]["B_p=32"]["switches"] == [] and front["panels"]["B_p=32"]["edge"] is None
    assert len(front["runs_used"]) == 1  # a single run
    assert laws["law"]["verdict"] == "undetermined" and "one n only" in laws["law"]["reason"]
    assert laws["law"]["L"]["value"] is None and laws["prescriptions"][1]["n"] == 8
    for view in ("joint", "best_worst"):
        assert analyse(tmp_path, view=view)["view"] == view
    assert "nothing to vary" in bad(frontier, f"--runs={tmp_path}", "--view=sensitivity")


def test_small_n_always_on_top_is_flat_with_an_edge(tmp_path):
    simulate(tmp_path, ns=(4, 8, 32), evals=12, truth=lambda B_p, n, C: 0.3 + 0.2 * (C > 0) * (1 - 0.15 * math.log2(n / 4)))
    front, laws = analyse(tmp_path), law(tmp_path)
    edge = front["panels"]["B_p=32"]["edge"]
    assert (edge["n"], edge["side"], edge["add"]) == (4, "smallest", dict(B_p=32, n=2))
    assert laws["law"]["verdict"] == "flat" and laws["law"]["plateau"]["value"] is None
    far = laws["prescriptions"][1]
    assert far["status"] == "extrapolated" and far["n"] == 4 and any("add B_p = 32, n = 2" in c for c in far["caveat"])
    assert far["by"] == "the verdict flat: one n at every budget"


def test_largest_n_on_top_is_an_edge_and_no_plateau(tmp_path):
    simulate(tmp_path, ns=(2, 4, 8, 16), evals=25)
    front, laws = analyse(tmp_path), law(tmp_path)
    edge = front["panels"]["B_p=32"]["edge"]
    assert edge["add"] == dict(B_p=32, n=32) and edge["side"] == "largest"
    # n* may well rise; how far is not determined by a grid that ends there
    assert laws["law"]["plateau"]["value"] is None and laws["law"]["plateau"]["hi"] is None
    assert frontier.grid_edge([2, 4], 4, 32, 1e6, dict(B_max=128))["add"] is None
    assert frontier.grid_edge([2, 4], 2, 32, 1e6, dict(B_max=0))["add"] is None
    assert frontier.grid_edge([2, 4, 8], 4, 32, 1e6, dict(B_max=0)) is None
    assert frontier.grid_edge([4], 4, 32, 1e6, dict(B_max=0)) is None


def test_runs_that_end_early_are_no_crossing(tmp_path):
    logs = simulate(tmp_path, ns=(4, 64), evals=20, truth=lambda B_p, n, C: 0.3 + 0.3 * (C > 0) * (n == 4) + 1e-8 * C)
    edit(logs[32, 4, 0], lambda r: None if r.get("rollouts", 0) > 6e5 and r["type"] != "end" else
         dict(r, status="diverged", rollouts=6e5) if r["type"] == "end" else r)
    front = analyse(tmp_path)
    assert [s["why"] for s in front["panels"]["B_p=32"]["switches"]] == ["ends"]
    assert all(s["lo"] is s["hi"] is None for s in front["panels"]["B_p=32"]["switches"])
    assert any("diverged" in note for note in front["notes"]) and front["runs_unfinished"] == []
    laws = law(tmp_path)
    assert laws["law"]["verdict"] == "undetermined" and any("left out" in f for f in laws["law"]["flags"])
    assert analyse(tmp_path, view="joint")["panels"]["joint"]["stable_B_p"] is None  # one run of two diverged


def test_evaluations_without_counts_use_the_stored_field(tmp_path):
    logs = simulate(tmp_path, ns=(4, 32), evals=10)
    want = analyse(tmp_path)["panels"]["B_p=32"]["curves"]
    for log in logs.values():
        edit(log, lambda r: {key: v for key, v in r.items() if key != "correct"})
    line = bad(frontier, f"--runs={tmp_path}")  # nothing says of how many rollouts the field is the mean
    assert "neither counts per problem nor `problems`" in line and "Bp32_n" in line
    for log in logs.values():
        edit(log, lambda r: dict(r, problems=300) if r["type"] == "eval" else r)
    front = analyse(tmp_path)
    assert "binomial" in front["covers"] and any("no counts per problem" in note for note in front["notes"])
    assert len(front["panels"]["B_p=32"]["points"]) == 22 and all(r["gain"] is None for r in front["runs_used"])
    for a, b in zip(front["panels"]["B_p=32"]["curves"], want):
        assert a["reward"] == pytest.approx(b["reward"], abs=1e-4)
        # 1200 rollouts, their variance without that of the problems
        assert np.median(np.subtract(a["hi"], a["lo"])) < np.median(np.subtract(b["hi"], b["lo"]))
    assert "best@4" in bad(frontier, f"--runs={tmp_path}", "--metric=best@4")
    for log in logs.values():
        edit(log, lambda r: dict(r, biased=["avg@4"], source="veRL") if r["type"] == "header" else r)
    front = analyse(tmp_path)
    assert "biased" in front["covers"] and any("veRL" in note for note in front["notes"])


# ---------------------------------------------------------------------------------------------------------------------
# Logs as they come

def same(a, b):
    return len(a) == len(b) and all(
        x["run"] == y["run"] and (x["C"] == y["C"]).all() and (x["counts"] == y["counts"]).all() for x, y in zip(a, b))


def test_gz_torn_lines_and_unknown_records(tmp_path):
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    logs = simulate(plain, ns=(4, 16), evals=10)
    want, _ = frontier.read_runs(plain)
    for folder, log in ((packed / log.parent.name, log) for log in logs.values()):
        folder.mkdir(parents=True)
        (folder / "log.jsonl.gz").write_bytes(gzip.compress(log.read_bytes()))
    assert same(frontier.read_runs(packed)[0], want)
    with open(logs[32, 4, 0], "a") as file:
        file.write('{"type": "dream", "rollouts": 5}\n{"type": "eval", "set": "ood", "rollouts": 1, "correct": [1]}\n')
        file.write('{"type": "eval", "roll')
    assert same(frontier.read_runs(plain)[0], want)
    head = json.loads(logs[32, 4, 0].read_text().split("\n")[0])
    head["config"]["C"] = 3_000_000  # as a run that goes on with a larger budget may write it
    with open(logs[32, 16, 0], "a") as file:
        file.write(json.dumps(dict(head, config=head["config"] | dict(n=16))) + "\n")
    assert analyse(plain, "--boot=0")["budget"] == 3_000_000
    lines = logs[32, 4, 0].read_text().split("\n")
    logs[32, 4, 0].write_text("\n".join([*lines[:3], lines[3][:20], *lines[4:]]))
    # a log that is broken inside is left out and named, the others are analysed
    front = analyse(plain, "--boot=0")
    assert [d["why"] for d in front["runs_dropped"]] == [f"{logs[32, 4, 0]}:4: not a line of JSON"]
    assert front["panels"]["B_p=32"]["ns"] == [16]


def test_another_set_of_evaluations(tmp_path):
    logs = simulate(tmp_path, ns=(4, 16), evals=10)
    for log in logs.values():
        with open(log, "a") as file:
            for i in range(6):
                file.write(json.dumps({"type": "eval", "set": "ood", "step": i * 100, "rollouts": i * 300_000, "samples": 4,
                                       "correct": [1, 2, 0, i % 4], "avg@4": 0.3}) + "\n")
    front = analyse(tmp_path, "--eval_set=ood")
    assert front["label"] == "ood avg@4" and len(front["panels"]["B_p=32"]["points"]) == 12
    assert "too few evaluations of aime" in bad(frontier, f"--runs={tmp_path}", "--eval_set=aime")


def header(**changes):
    return lambda r: dict(r, config=r["config"] | changes) if r["type"] == "header" else r


def evals(**changes):
    return lambda r: dict(r, **changes) if r["type"] == "eval" else r


def later(**changes):
    return lambda r: dict(r, **changes) if r["type"] == "eval" and r["step"] else r


def test_runs_that_cannot_be_compared_are_dropped_with_the_reason(tmp_path):
    logs = simulate(tmp_path, ns=(4, 8, 16, 32), seeds=(0, 1, 2), evals=8)

    def spoil(key, change):
        edit(logs[key], change)
        return logs[key].parent.name
    why = {
        spoil((32, 4, 0), lambda r: None if r["type"] == "header" else r): "no header",
        spoil((32, 4, 1), lambda r: None if r.get("step", 0) > 500 else r): "too few evaluations",
        spoil((32, 8, 0), header(lr_base=3e-6, kl_coef=0.5)): "kl_coef=0.5 for 0.001, lr_base=3e-06 for 1e-06",
        spoil((32, 8, 1), evals(set_hash="other")): "other validation problems",
        spoil((32, 16, 0), evals(samples=8)): "number of samples than most runs",
        spoil((32, 16, 1), header(seed=2)): "the same B_p, n and seed as",
        spoil((32, 32, 0), later(correct=[9] * 300)): "not numbers from 0 to",
        spoil((32, 32, 1), later(set_hash="x")): "differ in problem file",
        spoil((32, 8, 2), lambda r: dict(r, train_set_hash="another") if r["type"] == "header" else r): "other training problems"}
    runs, dropped = frontier.read_runs(tmp_path)
    got = {d["run"]: d["why"] for d in dropped}
    # of two runs of one cell either may stay
    twin = [name for name in got if "the same B_p, n and seed as" in got[name]]
    assert len(twin) == 1 and len(got) == len(why) == 9
    for name, part in why.items():
        assert name in got and part in got[name] or "the same" in part, (name, part, got.get(name))
    assert {r["run"] for r in runs} == {log.parent.name for log in logs.values()} - set(got)


@pytest.mark.parametrize("change,why", [
    (dict(correct=[1.5] * 300), "counts"), (dict(correct=[-1] * 300), "counts"), (dict(correct=[True] * 300), "counts"),
    (dict(correct=["1"] * 300), "counts"), (dict(correct=[[1]] * 300), "counts"), (dict(correct=[]), "counts"),
    (dict(correct=None), "`correct`"), (dict(correct=7), "`correct`"),
    (dict(correct=[None] * 300), "counts"),
    (dict(samples=None), "counts|samples"), (dict(samples=[4]), "samples"), (dict(samples="4"), "counts|samples"),
    (dict(samples=0), "counts|samples"), (dict(rollouts="many"), "too few evaluations"),
    (dict(rollouts=-5), "too few evaluations")])
def test_a_run_with_nonsense_in_it_is_dropped_and_named(tmp_path, change, why):
    logs = simulate(tmp_path, ns=(4, 16, 32), evals=8)
    edit(logs[32, 4, 0], evals(**change))
    runs, (drop,) = frontier.read_runs(tmp_path)
    assert drop["run"] == logs[32, 4, 0].parent.name and re.search(why, drop["why"]), drop
    assert [run["n"] for run in runs] == [16, 32]


@pytest.mark.parametrize("value", [math.nan, math.inf, 1.5, -0.1, "high"])
def test_rewards_that_are_no_rewards_in_logs_without_counts(tmp_path, value):
    logs = simulate(tmp_path, ns=(4, 16, 32), evals=8)
    for log in logs.values():
        edit(log, without_counts)
    edit(logs[32, 16, 0], lambda r: dict(r, **{"avg@4": value}) if r.get("rollouts", 0) > 1e6 and r["type"] == "eval" else r)
    runs, dropped = frontier.read_runs(tmp_path)
    assert dropped == [dict(run=logs[32, 16, 0].parent.name, why="its avg@4 is not a number from 0 to 1 somewhere")]
    assert [run["n"] for run in runs] == [4, 32]


def test_folders_that_are_no_runs(tmp_path):
    logs = simulate(tmp_path, ns=(4, 16), evals=8)
    for name, text in (("a", "[1]\n"), ("b", '{"type": "header", "config": {"B_p": 0, "n": 8}}\n'), ("c", ""),
                       ("d", '{"type": "header", "config": {"B_p": "x"}}\n')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "log.jsonl").write_text(text)
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "log.jsonl.gz").write_bytes(b"\x1f\x8b torn")
    (tmp_path / "notes").mkdir()
    runs, dropped = frontier.read_runs(tmp_path)
    got = {d["run"]: d["why"] for d in dropped}
    assert set(got) == set("abcde") and "gzip" in got["e"] and got["a"] == got["c"] == "no header"
    assert "B_p and n" in got["b"] and "B_p and n" in got["d"]
    assert len(runs) == len(logs)


def test_missing_and_unfinished_cells_are_named(tmp_path, capsys):
    simulate(tmp_path, ns=(4, 16), evals=8, unfinished=[(32, 16, 0)])
    plan = dict(ns="4 16 64", bps="32", seeds="0", B_max=0, C=2_000_000)
    (tmp_path / "sweep.json").write_text(json.dumps(dict(config=plan, made="by run_sweep.sh")))
    front = analyse(tmp_path, "--boot=0")
    assert [(m["n"], m["why"]) for m in front["missing"]] == [(64, "no log"), (16, "unfinished")]
    said = capsys.readouterr().out
    assert "missing 2: B_p=32 n=64 seed=0 (no log); B_p=32 n=16 seed=0 (unfinished)" in said
    assert len(front["runs_unfinished"]) == 1 and len(front["runs_used"]) == 2
    assert any(note.startswith("unfinished Bp32_n16") for note in front["notes"])
    (tmp_path / "sweep.json").write_text('{"config": {"ns": 5}}')
    assert "--ns=5" in bad(frontier, f"--runs={tmp_path}")


def test_bad_input_is_one_line_and_leaves_nothing_behind(tmp_path):
    assert "no such folder" in refused("frontier.py", f"--runs={tmp_path / 'none'}")
    assert "no run to analyse" in bad(frontier, f"--runs={tmp_path}")
    simulate(tmp_path / "half", ns=(4, 8), evals=8, unfinished=[(32, 4, 0), (32, 8, 0)])
    assert "no finished run" in bad(frontier, f"--runs={tmp_path / 'half'}")
    assert "nearest is best_worst" in refused("frontier.py", "--view=best_wurst")
    assert "no frontier.json" in refused("fit_sigmoid.py", f"--runs={tmp_path}")
    assert "no frontier_joint.json there, run frontier.py" in bad(fit, f"--runs={tmp_path}", "--view=joint")
    assert "a law is fitted to fixed_Bp, joint or fixed_B" in bad(fit, f"--runs={tmp_path}", "--view=pass1")
    csvs = {"a.csv": ("rollouts,n\n1,2\n", "expected the columns C and n, found rollouts, n"),
            "b.csv": ("C,n\n", "5 or more"), "c.csv": ("C,n\n1e5,8\nlots,16\n", "line 3"),
            "d.csv": ("C,n\n1e5,8\n1e6,16\n1e6,17\n2e6,32\n", "3 different budgets"),
            "e.csv": ("C,n\n1e5,8\n1e6\n", "line 3"), "f.csv": ("C,n\n1e5,8\n-1,4\n", "line 3"),
            "h.csv": ("C,n\n1e5,8\n1e6,nan\n", "line 3"), "i.csv": ("C,n\n1e5,0.5\n", "line 2")}
    for name, (text, message) in csvs.items():
        (tmp_path / name).write_text(text)
        assert message in bad(fit, f"--points={tmp_path / name}") and name in bad(fit, f"--points={tmp_path / name}")
    assert "g.csv" in refused("fit_sigmoid.py", f"--points={tmp_path / 'g.csv'}")
    assert not [f for name in ("*.png", "frontier*.json", "law.json", ".*part*") for f in tmp_path.rglob(name)]


def test_a_frontier_of_an_older_version_is_refused(tmp_path):
    (tmp_path / "frontier.json").write_text(json.dumps(dict(panels={"B_p=32": dict(envelope={}, switches=[])})))
    assert "not from this version" in bad(fit, f"--runs={tmp_path}")


# ---------------------------------------------------------------------------------------------------------------------
# fit_sigmoid.py as a script

def test_a_budget_below_one_update_is_refused(sweep):
    assert "below one update" in bad(fit, f"--runs={sweep[0]}", "--C=10")


def test_laws_of_the_other_views(sweep, tmp_path):
    folder, front, _ = sweep
    got = {}
    for view in ("joint", "fixed_B"):
        fit.main([f"--runs={folder}", f"--view={view}", f"--out={tmp_path}"])
        got[view] = json.loads((tmp_path / f"law_{view}.json").read_text())
        assert (tmp_path / f"law_{view}.png").stat().st_size > 20_000
        assert all(p["envelope"]["verdict"] in ("law", "flat", "undetermined") for p in got[view]["panels"].values())
    joint = got["joint"]
    own, far = joint["prescriptions"]
    assert own["status"] == "observed" and far["status"] == "extrapolated" and own["B_p"] in (8, 32)
    pair = json.loads((folder / "frontier_joint.json").read_text())["panels"]["joint"]["segments"][-1]
    assert (own["B_p"], own["n"]) == (pair["B_p"], pair["n"])
    assert parse(shlex.split(own["command"])[2:])["n"] == own["n"]
    assert got["fixed_B"]["prescriptions"] == []  # updates are no budget


def test_other_budgets_of_one_sweep(sweep):
    _, front, _ = sweep
    laws = {name: fit.law_of_panel(panel, 0.01) for name, panel in front["panels"].items()}
    below = fit.prescribe(front["panels"]["B_p=32"]["range"][0] / 4, front, laws)
    assert below["status"] == "extrapolated" and "smallest budget observed" in below["by"]
    far = fit.prescribe(1e9, front, laws)
    assert far["status"] == "extrapolated" and math.log2(far["n"]) % 1 == 0
    capped = fit.prescribe(1e9, dict(front, config=dict(front["config"], B_max=128)), laws)
    assert capped["B_p"] * capped["n"] <= 128 and any("capped by B_max" in c for c in capped["caveat"])
    tiny = fit.prescribe(24, front, laws)  # B_p n <= C
    assert tiny["B_p"] * tiny["n"] <= 24 and any("capped by the budget" in c for c in tiny["caveat"])
    # without predictions the law speaks where there is one, else the last observed n* stands in
    mute = {name: dict(p, prediction=dict(rows=[], recommended=None, why="")) for name, p in front["panels"].items()}
    assert "the law" in fit.prescribe(8e6, dict(front, panels=mute), laws)["by"]
    open_ = {name: dict(law, verdict="undetermined") for name, law in laws.items()}
    last = fit.prescribe(8e6, dict(front, panels=mute), open_)
    assert last["n"] == front["panels"][last["panel"]]["envelope"]["n"][-1] and "last observed" in last["by"]


def test_points_and_a_budget_make_a_command(tmp_path):
    file = staircase(tmp_path, PAPER["easy"], np.geomspace(1e5, 1e7, 40))
    got = of_points(file, tmp_path, f"--data={tmp_path}", "--B_p=16", "--C=1e6")  # no folder with defaults of its own
    asked, own, far = got["prescriptions"]
    assert asked["n"] == 2 ** round(float(sim.law(1e6))) and own["n"] == 512 and asked["by"] == own["by"] == "the law"
    assert [p["status"] for p in (asked, own, far)] == ["observed", "observed", "extrapolated"] and far["n"] >= 512
    assert parse(shlex.split(asked["command"])[2:])["B_p"] == 16 and asked["next"] is None and asked["near"] is None
    assert asked["reward"] is None and got["estimator"] == "points"
    assert got["panels"]["B_p=16"]["prediction"]["recommended"] in fit.RULES
    assert of_points(file, tmp_path, "--unit=tokens")["prescriptions"] == []  # points do not say what a rollout spent


def test_no_torch_and_no_matplotlib_on_import():
    heavy = ("torch", "transformers", "matplotlib", "scipy")
    done = shell("-c", f"import frontier, fit_sigmoid, sys; print([m for m in {heavy} if m in sys.modules])")
    assert done.stdout.strip() == "[]", done


def test_every_run_is_named_as_the_trainer_names_it(tmp_path):
    folders = simulate(tmp_path, ns=(4,), evals=4)
    cfg = json.loads(folders[32, 4, 0].read_text().splitlines()[0])["config"]
    assert folders[32, 4, 0].parent.name == run_name(cfg) and set(cfg) == set(config)
    assert finite(float("nan")) is None
