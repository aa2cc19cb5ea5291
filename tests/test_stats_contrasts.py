"""core/stats.py, contrasts of labelled arms: intervals and verdicts."""
import numpy as np
import pytest

from core import stats

GAINED = 1 / 3  # the gain of training
YES, NO, OPEN = "confirmed", "contradicted", "underpowered"
CASES = {  # {n: (early mean, late mean)}; how many of 100 studies may have each verdict
    "all alike": ({2: (0.5, 0.6), 8: (0.5, 0.6), 32: (0.5, 0.6), 128: (0.5, 0.6)},
                  dict(confirmed=(0, 3))),
    "n* rises": ({2: (0.58, 0.6), 8: (0.53, 0.62), 32: (0.5, 0.7), 128: (0.4, 0.6)},
                 dict(confirmed=(90, 100), contradicted=(0, 0))),
    "alike early, 32 late": ({2: (0.5, 0.6), 8: (0.5, 0.6), 32: (0.5, 0.65)},
                             dict(confirmed=(0, 15), contradicted=(0, 3))),
    "the largest n at both ends: censored": ({2: (0.5, 0.6), 8: (0.5, 0.6), 32: (0.55, 0.65)},
                                             dict(confirmed=(0, 2), contradicted=(0, 2))),
    "8 throughout": ({2: (0.4, 0.5), 8: (0.55, 0.65), 32: (0.45, 0.5)},
                     dict(confirmed=(0, 2), contradicted=(85, 100))),
    "n* falls": ({2: (0.4, 0.7), 8: (0.5, 0.6), 32: (0.55, 0.5)},
                 dict(confirmed=(0, 0), contradicted=(90, 100)))}


def planted(rng, means, S=3, P=300, spread=0.01):
    """Make rewards (S, P) around each mean, on the same P problems. spread: the standard deviation
    between runs."""
    skill = rng.normal(0, 1, P)
    out = []
    for mean in means:
        logit = np.log(mean / (1 - mean)) + skill + rng.normal(0, 0.3, P)
        rate = np.clip(1 / (1 + np.exp(-logit)) + rng.normal(0, spread, (S, 1)), 0, 1)
        out.append(rng.binomial(16, rate) / 16)
    return out


def paired(rng, means, S=3, P=300, spread=0.01, seed=0.015):
    """Return `planted` as a table {0: (S, P), 1: ...}. seed: the standard deviation of an effect
    that all runs of a seed share."""
    common = rng.normal(0, seed, (S, 1))
    return {i: t + common for i, t in enumerate(planted(rng, means, S, P, spread))}


def conditions(seed, means, spread=0.006):
    """Make the two tables of `shift` from {n: (early mean, late mean)}."""
    rng = np.random.default_rng(seed)
    tables = [paired(rng, [m[t] for m in means.values()], spread=spread) for t in (0, 1)]
    return [dict(zip(means, table.values())) for table in tables]


def shift(seed, means):
    return stats.shift(*conditions(seed, means), GAINED)


def test_contrast_covers():
    """In 85 to 98% of 300 studies of four cells the 90% interval of a difference contains the true
    value. The effect of a seed does not widen the interval."""
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
            c = stats.contrast(table, {0: 1, 1: -1})
            hits.append(abs(c["gain"] - true) <= c["half"])
            wide.append(c["half"])
        assert 0.85 <= np.mean(hits) <= 0.98
        halves[seed] = np.median(wide)
    assert halves[0] < 0.04 and halves[0.05] < 1.05 * halves[0]


def test_the_choice_is_scored_on_other_seeds():
    """The best of four equal arms minus a fifth equal arm is 0 on average. If it is chosen and
    scored on the same seeds, it is above 0."""
    fair, naive, hits = [], [], []
    for k in range(100):
        table = paired(np.random.default_rng(k), (0.6,) * 5, P=100, spread=0.03)
        chosen, c = stats.heldout_gap(table, ([0, 1, 2, 3], [4]))
        assert len(chosen) == 6 and set(chosen) <= {0, 1, 2, 3}
        fair.append(c["gain"])
        hits.append(abs(c["gain"]) <= c["half"])
        naive.append(max(table[i].mean() for i in range(4)) - table[4].mean())
    assert abs(np.mean(fair)) < 0.006 < 0.015 < np.mean(naive) and np.mean(hits) >= 0.85


@pytest.mark.parametrize("case", CASES)
def test_verdicts_on_n(case):
    means, allowed = CASES[case]
    said = [shift(seed, means)["verdict"] for seed in range(100)]
    for verdict, (least, most) in allowed.items():
        assert least <= said.count(verdict) <= most, {v: said.count(v) for v in set(said)}


def test_the_smallest_n_throughout_is_censored():
    """A constant best n contradicts a rise, unless it is the smallest n run and a smaller n exists.
    """
    means = {4: (0.6, 0.7), 16: (0.5, 0.6), 64: (0.4, 0.5)}
    four, two = shift(0, means), shift(0, dict(zip((2, 8, 32), means.values())))
    assert four["censored"] and four["verdict"] == "underpowered"
    assert not two["censored"] and two["verdict"] == "contradicted"


def test_a_shift_needs_three_n():
    with pytest.raises(stats.Missing, match="three n"):
        shift(0, {2: (0.5, 0.6), 8: (0.5, 0.6)})


def test_an_lr_that_suits_one_n_does_not_make_a_rise():
    """At one lr n = 64 overtakes n = 4. At another lr n = 4 ends as high as n = 64. So n* rises at
    the first lr, and does not rise if each n has its best lr."""
    rises = {4: (0.6, 0.6), 16: (0.5, 0.6), 64: (0.5, 0.66)}
    level = {4: (0.6, 0.67), 16: (0.5, 0.6), 64: (0.5, 0.6)}
    one, other = conditions(2, rises, 0.002), conditions(3, level, 0.002)
    both = [{(n, lr): table[n] for n in a for lr, table in ((1e-6, a), (2e-6, b))}
            for a, b in zip(one, other)]
    assert stats.shift(*one, GAINED)["verdict"] == "confirmed"
    assert stats.shift(*both, GAINED, lambda key: key[0])["verdict"] != "confirmed"


@pytest.mark.parametrize("gain, half, larger, smaller, alike", [
    (0.05, 0.02, YES, NO, NO), (-0.05, 0.02, NO, YES, NO), (0.01, 0.02, OPEN, OPEN, OPEN),
    (0.001, 0.005, NO, NO, YES), (-0.001, 0.005, NO, NO, YES), (0.01, 0.03, OPEN, OPEN, OPEN)])
def test_verdicts(gain, half, larger, smaller, alike):
    c = dict(gain=gain, half=half)
    for claim, verdict in (("larger", larger), ("smaller", smaller), ("alike", alike),
                           ("not larger", {YES: NO, NO: YES, OPEN: OPEN}[larger])):
        found, times = stats.judge(c, claim, GAINED)
        assert found == verdict and (times > 1) == (verdict == OPEN)
        # with so many seeds the interval decides
        assert stats.judge(c | dict(half=0.99 * half / times ** 0.5), claim, GAINED)[0] != OPEN


def test_margins_follow_what_training_gained():
    """An effect of 0.6 points is small if training gained 33 points, and large if it gained 1."""
    c = dict(gain=0.002, half=0.004)
    verdicts = [stats.judge(c, claim, gained)[0] for gained in (GAINED, 0.01)
                for claim in ("larger", "alike")]
    assert verdicts == [NO, YES, OPEN, OPEN]


def test_a_claim_with_several_parts():
    """The claim is confirmed if all parts are confirmed, and contradicted if any part is."""
    parts = {verdict: (dict(gain=gain, half=0.02), "larger", GAINED)
             for verdict, gain in ((YES, 0.05), (NO, -0.05), (OPEN, 0.01))}
    for verdicts, verdict in (([YES, YES], YES), ([YES, NO, OPEN], NO), ([YES, OPEN], OPEN)):
        assert stats.judged(*(parts[v] for v in verdicts))["verdict"] == verdict


def test_one_seed_chooses_on_half_of_the_problems():
    """With one seed a rise is found, with an interval over problems. The best of five equal cells
    is not better on average than a sixth equal cell."""
    rng, p = np.random.default_rng(0), np.random.default_rng(1).uniform(0.2, 0.6, 300)

    def cell(more):
        return rng.binomial(4, p + more, (1, 300)) / 4
    c = stats.shift({4: cell(.3), 16: cell(.2), 64: cell(.1)},
                    {4: cell(.1), 16: cell(.2), 64: cell(.3)}, GAINED)
    assert c["verdict"] == "confirmed" and c["a"] == [4, 4] and c["b"] == [64, 64]
    assert 0.03 < c["gains"]["half"] < 0.08
    gaps = []
    for _ in range(200):
        table = {i: cell(0) for i in range(6)}
        gaps.append(stats.heldout_gap(table, (range(5), [5]))[1]["gain"])
    assert abs(np.mean(gaps)) < 4 * np.std(gaps) / 200 ** 0.5


def test_several_groups_have_one_verdict():
    """A rise at two B_p and none at the third confirms a claim; a fall at one contradicts it."""
    def at(a, b, gain):
        c = dict(gain=gain, half=0.02)
        return dict(a=[a], b=[b], loses=c, gains=c, worst=0, verdict=YES if b > a else OPEN)
    up, flat = at(4, 16, 0.05), at(4, 4, 0.0)
    falls = at(16, 4, 0.05) | dict(verdict=NO)
    for shifts, verdict in (([up, up, flat], YES), ([up, flat, flat], OPEN), ([up, up, falls], NO)):
        assert stats.mean_shift(shifts)["verdict"] == verdict
