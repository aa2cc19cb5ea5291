"""results/contrasts.py: differences of cells within seeds, with intervals and verdicts.

Means over a window of C, in tables {key: (S, P)}: a cell -> S runs, one a seed, by P problems. Runs
of one seed have their training problems in common, so a difference is taken seed by seed: what the
problems of a seed do to all of its runs drops out, and intervals are narrower. Needs numpy, scipy.
"""
import math

import numpy as np
from scipy import stats

SMALL = 0.03  # a difference that does not matter, as a share of what training gained
ALIKE = 0.06  # what a claim calls no difference, likewise: 2 points where training gained 33


class Missing(Exception):
    """A comparison lacks runs; the message says which."""


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
