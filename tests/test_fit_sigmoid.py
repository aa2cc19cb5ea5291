"""fit_sigmoid.py: the law through points and through the surface of a sweep, and its verdicts."""
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fit_sigmoid as fit
import noise
import simulate as sim
from simulate import CFG, cells

ROOT = Path(__file__).resolve().parent.parent
PAPER = {"easy": (6.09, 4.75, 5.84, 2.73), "hard": (4.47, 7.23, 5.84, 2.79),
         "tokens": (6.62, 3.47, 9.18, 2.64), "joint": (5.67, 8.84, 6.08, 3.08)}  # as printed


# --------------------------------------------------------------------------------------------------
# The law from points

@pytest.mark.parametrize("name", PAPER)
def test_printed_laws_come_back_from_their_points(name):
    L, k, log10_C0, b = PAPER[name]
    C = np.geomspace(10 ** (log10_C0 - 1), 10 ** (log10_C0 + 1), 40)
    y = sim.law(C, PAPER[name])
    assert fit.law_at(dict(zip(fit.NUMBERS, PAPER[name])), C) == pytest.approx(y)
    got = fit.law_of_points(C, y)
    assert got["verdict"] == "law" and got["flags"] == []
    for key, want in dict(L=L, k=k, log10_C0=log10_C0, b=b).items():
        assert got[key]["value"] == pytest.approx(want, rel=0.01), key
        assert got[key]["lo"] is None  # points alone do not say how sure they are
    assert got["plateau"]["value"] == pytest.approx(2 ** (L + b), rel=0.01)
    assert f"{2 ** (L + b):.0f}" in fit.say(got)


def test_the_law_is_the_best_that_many_starts_find():
    from scipy.optimize import least_squares
    rng = np.random.default_rng(2)
    for name in PAPER:
        C = np.geomspace(10 ** (PAPER[name][2] - 1), 10 ** (PAPER[name][2] + 1), 40)
        x, y = np.log10(C), sim.law(C, PAPER[name]) + rng.normal(0, 0.4, 40)
        got = fit.fit_law(C, y)
        low = [y.min() - 1, 0, math.log(fit.K_LAW[0]), x[0] - .5]
        high = [y.max() + 1, 40, math.log(fit.K_LAW[1]), x[-1] + .5]

        def miss(p):
            numbers = dict(L=p[1], k=math.exp(p[2]), log10_C0=p[3], b=p[0] - p[1])
            return fit.law_at(numbers, C) - y
        theirs = min(2 * least_squares(miss, rng.uniform(low, high), bounds=(low, high)).cost
                     for _ in range(12))
        assert ((fit.law_at(got, C) - y) ** 2).sum() <= theirs * 1.001, name


def test_a_law_seen_through_a_grid_of_powers_of_two():
    C = np.geomspace(1e5, 1e7, 60)
    got = fit.law_of_points(C, np.round(sim.law(C, PAPER["easy"])))
    assert got["verdict"] == "law"
    assert got["log10_C0"]["value"] == pytest.approx(5.84, abs=0.05)
    assert 400 < got["plateau"]["value"] < 600


@pytest.mark.parametrize("octaves", [0.0, 1.0])
@pytest.mark.parametrize("numbers,C,why", [
    # cut before the bend; begins past it; the paper's bound
    (PAPER["easy"], np.geomspace(1e5, 10 ** 5.75, 30), "n\\*|plateau|bend"),
    (PAPER["easy"], np.geomspace(10 ** 6.1, 1e8, 30), "C0|bend|values of n|k at"),
    ((3.97, 500.0, 6.13, 3.04), np.geomspace(1e5, 1e7, 40), "k at its upper bound 50|values of n")])
def test_points_that_do_not_determine_a_law_give_none(numbers, C, why, octaves):
    y = sim.law(C, numbers)
    got = fit.law_of_points(C, np.round(y / octaves) * octaves if octaves else y)
    assert got["verdict"] == "undetermined"
    assert all(got[key]["value"] is None for key in fit.NUMBERS)
    assert re.search(why, got["reason"]), got["reason"]


def test_the_papers_k_of_50_is_named_as_unseen():
    C = np.geomspace(10 ** 5.1, 10 ** 7.1, 40)
    got = fit.law_of_points(C, sim.law(C, (3.97, 50.0, 6.13, 3.04)))
    assert got["verdict"] == "undetermined" and got["k"]["value"] is None
    assert "k at its upper bound 50" in got["flags"]


@pytest.mark.parametrize("path,verdict,why", [
    ([8] * 30, "flat", "n = 8 at every budget"),
    ([32] * 15 + [8] * 15, "undetermined", "below half an octave up, from 32 at .* to 8 at"),
    ([8] * 15 + [32] * 15, "undetermined", "only 2 values"),
    ([8, 4, 16, 8, 4, 4] * 5, "undetermined", "below half an octave")])
def test_verdicts_on_points_without_a_law(path, verdict, why):
    got = fit.law_of_points(np.geomspace(1e4, 1e6, 30), np.log2(path))
    assert got["verdict"] == verdict and re.search(why, got["reason"]), got["reason"]
    assert all(got[name] == dict(value=None, lo=None, hi=None) for name in fit.NUMBERS)


def test_the_sentence_quotes_the_running_mean_that_was_fitted():
    """Raw n goes from 4 down to 2 where its running mean rises: "n* rises, 4 to 2" was nonsense."""
    C = np.geomspace(2e3, 3e4, 14)
    n = np.array([4, 2, 2, 2, 2, 2, 8, 8, 16, 16, 16, 16, 16, 2])
    y = np.array([np.mean(np.log2(n)[max(i - 2, 0):i + 3]) for i in range(14)])
    got = fit.law_of_points(C, y, n=n)
    first, last = (f"{2 ** y[i]:.3g} at C = {C[i]:,.0f}" for i in (0, -1))
    assert got["verdict"] == "law" and f"rises from {first} to {last}" in got["reason"], got
    # and so where there is none: the running mean falls
    got = fit.law_of_points(C, y[::-1], n=n[::-1])
    first, last = (f"{2 ** y[i]:.3g} at C = {C[::-1][i]:,.0f}" for i in (-1, 0))
    assert f"from {first} to {last}" in got["reason"] and f"from {n[-1]} at" not in got["reason"]


def test_the_first_section_needs_numpy_and_scipy_alone():
    """It is there to be copied: it must run without the rest of this repository."""
    source = (ROOT / "fit_sigmoid.py").read_text()
    alone = source.split("# The law of a sweep: the surface")[0]
    assert "def law_of_points" in alone and "from config" not in alone
    code = alone + ("\nC = np.geomspace(1e5, 1e7, 40)\n"
                    "law = dict(L=6.09, k=4.75, log10_C0=5.84, b=2.73)\n"
                    "print(law_of_points(C, law_at(law, C))['verdict'])")
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "law", done


# --------------------------------------------------------------------------------------------------
# The law from the surface

@pytest.mark.parametrize("N", [2, 3, 4, 9])
def test_the_surface_is_a_natural_spline_through_all_n(N):
    from scipy.interpolate import CubicSpline
    rng, z = np.random.default_rng(0), np.arange(3, 3 + 2 * N, 2.0)
    Y = rng.normal(size=(5, N, 6))  # five sets of N curves on 6 budgets
    T = fit.surface_of(Y, z)
    fine = np.linspace(z[0], z[-1], 16 * (N - 1) + 1)
    assert T.shape == (5, 6, len(fine))
    assert T[..., ::16] == pytest.approx(np.swapaxes(Y, 1, 2))
    for i, g in ((0, 0), (4, 5)):
        want = np.interp(fine, z, Y[i, :, g])
        if N > 2:
            want = CubicSpline(z, Y[i, :, g], bc_type="natural")(fine)
        assert T[i, g] == pytest.approx(want, abs=1e-8)
    assert fit.surface_of(Y[0], z) == pytest.approx(T[0])


# log2 n, 8 to an octave, from below b to above the plateau of the paper's law
FINE = np.linspace(2, 11, 73)
X = np.linspace(4.2, 7.2, 61)


def planted(numbers=sim.EASY):
    return np.stack([sim.paper(1.0, numbers)(32, 2 ** z, 10 ** X) for z in FINE], 1)  # (G, Z)


def mean_reward(T, c):
    """What reward_of computes, by a slow loop."""
    y = [c[0] + (c[1] - c[0]) / (1 + math.exp(-math.exp(c[3]) * (x - c[2]))) for x in X]
    return np.mean([np.interp(a, FINE, row) for a, row in zip(y, T)])


def best_law(T):
    """As law_of_surface searches: all laws of a grid, and the best of them refined."""
    laws = fit.all_laws(FINE, X)
    reward = fit.reward_of(laws, T, FINE, X)
    return fit.refine(laws[:, reward.argmax()], T, FINE, X), laws, reward


@pytest.mark.parametrize("name", ["easy", "hard", "joint"])
def test_a_planted_law_is_found(name):
    L, k, u, b = PAPER[name]
    T, want = planted(PAPER[name]), [b, L + b, u, math.log(k)]
    got, laws, reward = best_law(T)
    # the grid of laws: none that falls, all inside the n that were run
    assert (laws[1] >= laws[0] - 1e-9).all() and laws[:2].min() >= 2 and laws[:2].max() <= 11
    for i in np.random.default_rng(0).integers(0, laws.shape[1], 20):
        assert reward[i] == pytest.approx(mean_reward(T, laws[:, i]), abs=1e-9)
    # the surface is flat at its top, so what counts is that no law earns more: not the planted one,
    # nor any of 300
    rng = np.random.default_rng(0)
    others = [want, *rng.uniform([2, 2, 4, 0], [11, 11, 7.5, 3.9], (300, 4))]
    most = max(mean_reward(T, c) for c in others if c[1] >= c[0])
    assert mean_reward(T, got) >= most - 1e-6
    assert got == pytest.approx(want, abs=0.06)


def test_the_best_law_with_a_number_held():
    T, (L, k, u, b) = planted(), PAPER["easy"]
    free, laws, reward = best_law(T)
    want = np.array([b, L + b, u, math.log(k)])
    for name, true, off in (("b", b, 4.0), ("plateau", L + b, 7.0), ("L", L, 4.0),
                            ("log10_C0", u, 5.2), ("k", math.log(k), 0.5)):
        found = []
        for value in (true, off):
            every = fit.coordinate(laws, name)
            near = np.flatnonzero(np.abs(every - value) < 0.3)
            start = laws[:, near[reward[near].argmax()]].copy()
            # onto the value itself, as a grid that had it would
            start[fit.AT[name]] += value - fit.coordinate(start, name)
            found.append(fit.refine(start, T, FINE, X, name))
            assert fit.coordinate(found[-1], name) == pytest.approx(value), name
        assert found[0] == pytest.approx(want, abs=0.1), name
        rewards = [mean_reward(T, c) for c in found]
        assert rewards[0] == pytest.approx(mean_reward(T, free), abs=1e-5), name
        assert rewards[1] < mean_reward(T, free) - 1e-4, name
        # among laws with the number held there, none of those near by earns more
        rng = np.random.default_rng(0)
        for d in rng.normal(0, 0.05, (60, 4)):
            other = found[1] + d
            other[fit.AT[name]] = off + (other[0] if name == "L" else 0)
            if 2 <= other[0] <= other[1] <= 11:
                assert mean_reward(T, other) <= rewards[1] + 2e-5, name


ALL_N = (8, 16, 32, 64, 128, 256, 512, 1024, 2048)


def a_surface(truth, sd, ns=ALL_N, K=200, C=None, draw=None):
    """A surface as frontier.json has it: curves on 31 budgets whose errors of size `sd` are one
    smooth curve for each n.

    draw: a generator whose errors are added to the truth, None for the truth itself.
    """
    C = np.geomspace(2e4, 4e6, 31) if C is None else C
    rng, (u, v) = np.random.default_rng(0), (np.linspace(0, 1, len(C)) ** p for p in (0, 1))

    def error(rng, K):
        a, b = rng.normal(0, sd, (2, K, len(ns), 1))
        return a * u + b * (v - 0.5)
    Y = np.array([truth(32, n, C) for n in ns])
    if draw is not None:
        Y = Y + error(draw, 1)[0]
    return dict(C=C, ns=list(ns), Y=Y, noise=error(rng, K) if K else [], left_out=[])


INSIDE = (4.5, 4.75, 5.4, 3.6)  # a law whose start, n = 12, and plateau, 274, lie inside ALL_N


def parabolas(B_p, n, C):
    """Reward that falls with the squared distance from INSIDE's n*."""
    return 0.5 - 0.004 * (math.log2(n) - sim.law(C, INSIDE)) ** 2


def holds(p, value):
    return (p["lo"] or -math.inf) <= value <= (p["hi"] or math.inf)


def test_intervals_of_the_law_hold_the_point_and_are_open_where_nothing_is_rejected():
    wants = dict(zip(fit.NUMBERS, (*INSIDE, 2 ** (4.5 + 3.6))))
    kinds = (0.002, 200), (0.006, 200), (0.5, 200), (1, 0)
    quiet, loud, lost, none = (fit.law_of_surface(a_surface(parabolas, sd, K=K))
                               for sd, K in kinds)
    for name in fit.NUMBERS:
        assert not quiet[name]["flag"] and holds(quiet[name], quiet[name]["value"]), name
        assert holds(loud[name], wants[name]), (name, loud[name], wants[name])
        # more noise, wider
        assert (loud[name]["lo"] or -math.inf) <= (quiet[name]["lo"] or -math.inf), name
        assert (loud[name]["hi"] or math.inf) >= (quiet[name]["hi"] or math.inf), name
        assert lost[name]["lo"] is lost[name]["hi"] is None
        assert none[name]["lo"] is none[name]["hi"] is None
        # the point does not depend on the noise
        assert none[name]["value"] == pytest.approx(quiet[name]["value"])
    # above, a later and slower law may take over as the plateau is held higher, so that end can be
    # open
    assert 100 < quiet["plateau"]["lo"] < 274 and loud["plateau"]["lo"] < quiet["plateau"]["lo"]
    some = fit.law_of_surface(a_surface(parabolas, 0.002), ("plateau",))
    assert some["plateau"] == quiet["plateau"] and some["L"]["lo"] is None


def test_the_plateaus_interval_covers_it_in_most_draws():
    want, rng, inside = 2 ** (6.09 + 2.73), np.random.default_rng(1), []
    for _ in range(16):
        s = a_surface(sim.paper(), 0.003, ns=(8, 32, 128, 512, 2048), draw=rng)
        p = fit.law_of_surface(s, ("plateau",))["plateau"]
        inside.append(holds(p, want))
        assert holds(p, p["value"]), p  # not an interval that leaves its own point out
    # 90%: 11 or fewer of 16 has probability 0.02; the cubic through 5 values of n has a small bias
    # of its own
    assert sum(inside) >= 12


def test_a_law_at_the_end_of_the_grid_is_named():
    # the plateau, 451, was not run
    found = fit.law_of_surface(a_surface(sim.paper(), 0.001, ns=(8, 16, 32, 64)))
    assert found["plateau"]["flag"] == "plateau at its upper bound 64"
    assert found["b"]["flag"] == "b at its lower bound 3"


# --------------------------------------------------------------------------------------------------
# Verdicts

def test_three_verdicts_on_planted_surfaces():
    said = fit.verdict_of(a_surface(sim.paper(), 0.001), 0.01)
    assert said["verdict"] == "law" and len(said["sets"]) == 3 and "n* rises" in said["reason"]
    assert max(said["sets"][0]["ns"]) < min(said["sets"][2]["ns"]) and said["regret"] > 0.01
    flat = fit.verdict_of(a_surface(sim.constant(32), 0.001), 0.01)
    assert (flat["verdict"], flat["constant"]) == ("flat", 32)
    assert flat["regret"] < 1e-9 and flat["regret_upper"] < 0.01
    equal = fit.verdict_of(a_surface(sim.constant(size=0), 0.001), 0.01)
    assert equal["verdict"] == "flat" and all(len(s["ns"]) == 9 for s in equal["sets"])
    for truth in (sim.paper(), sim.constant(32), sim.constant(size=0)):
        vague = fit.verdict_of(a_surface(truth, 0.2), 0.01)
        assert vague["verdict"] == "undetermined" and vague["regret_upper"] > 0.01, vague
    # n* rises, but a delta that is large enough makes one n do all the same
    both = fit.verdict_of(a_surface(sim.paper(), 0.001), 0.9)
    assert both["verdict"] == "flat" and "n* does rise" in both["reason"]
    one = fit.verdict_of(a_surface(sim.paper(), 0.001, ns=(32,)), 0.01)
    assert one["verdict"] == "undetermined" and "one n only" in one["reason"]
    dry = fit.verdict_of(a_surface(sim.paper(), 0.001, K=0), 0.01)
    assert dry["verdict"] == "undetermined" and "no intervals (boot=0)" in dry["reason"]
    assert dry["regret_upper"] is None


def test_verdicts_in_a_sentence():
    """In the field's words, with their numbers."""
    def sentence(truth, sd, delta=0.01, **kind):
        surface = a_surface(truth, sd, **kind)
        panel = dict(range=[2e4, 4e6], ns=list(surface["ns"]), surface=surface)
        law = fit.law_of_panel(panel, delta)
        return fit.in_a_sentence(law), law
    text, law = sentence(sim.paper(), 0.001)
    first, last = (", ".join(map(str, law["sets"][i]["ns"])) for i in (0, -1))
    assert text.startswith("n* rises with the budget. ")
    assert f"indistinguishable from the best go from {first} in" in text
    assert f"to {last} in the last; plateau {law['plateau']['value']:.0f} [" in text
    text, law = sentence(sim.constant(32), 0.001)
    assert text.startswith("one n will do at every budget. n = 32 throughout is at most 0.00")
    text, law = sentence(sim.paper(), 0.2)
    assert text.startswith("inconclusive. n = ") and text.endswith("and no rise of n* is shown")
    assert f"{law['regret_upper']:.3f} of reward (95%)" in text
    text, _ = sentence(sim.paper(), 0.001, K=0)
    assert text.startswith("inconclusive. No intervals (boot=0)")
    text, _ = sentence(sim.paper(), 0.001, ns=(32,))
    assert "one n only" in text


def test_n_that_falls_is_no_law():
    C = np.geomspace(2e4, 4e6, 31)
    falls = a_surface(lambda B_p, n, C: sim.beside(n, C, 12 - sim.law(C)), 0.001, C=C)
    said = fit.verdict_of(falls, 0.01)
    assert said["verdict"] == "undetermined" and said["reason"].startswith("n* falls")
    assert fit.in_a_sentence(said | dict(estimator="envelope")).endswith("and n* falls")


def test_regret_of_the_best_constant_n_by_brute_force():
    s = a_surface(sim.paper(), 0.001)
    loss = s["Y"].max(0) - s["Y"]
    worst = [max(np.mean(part) for part in np.array_split(row, 3)) for row in loss]
    said = fit.verdict_of(s, 0.0001)
    assert said["constant"] == s["ns"][int(np.argmin(worst))]
    assert said["regret"] == pytest.approx(min(worst))


def test_a_sweep_in_memory_with_a_planted_law_has_it_and_one_without_has_not():
    for truth, verdict in ((sim.paper(2), "law"), (sim.constant(32, 2), "flat")):
        runs = sim.sweep(1, truth, ns=(8, 32, 128, 512), seeds=3, evals=40)
        grid, found = cells(runs)
        law = fit.law_of_panel(noise.panel_of(found, grid, CFG, "rollouts"), 0.01)
        assert law["verdict"] == verdict, law["reason"]
        numbers = [law[name]["value"] for name in fit.NUMBERS]
        assert any(numbers) if verdict == "law" else not any(numbers)
