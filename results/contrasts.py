"""results/contrasts.py: differences of cells within seeds, with intervals and verdicts.

Means over a window of C, in tables {key: (S, P)}: a cell -> S runs, one a seed, by P problems. Runs
of one seed have their training problems in common, so a difference is taken seed by seed: what the
problems of a seed do to all of its runs drops out, and intervals are narrower. With one seed they
are over the problems alone. Needs numpy, scipy.
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


def folds(S, P):
    """Where a choice is measured: masks (S, P), each seed in turn, or of one seed each half of the
    problems. A choice is made on what a mask leaves out."""
    if S == 1:
        return [(np.arange(P) % 2 == half)[None] for half in (0, 1)]
    return [np.broadcast_to((np.arange(S) == seed)[:, None], (S, P)) for seed in range(S)]


def best_but(cells, fold):
    """The key of {key: (S, P)} with the highest mean outside a fold."""
    return max(cells, key=lambda key: cells[key][~fold].mean())


def best_less(table, among, others):
    """The best of the keys `among` less the best of `others`: (the former in each fold, `bounded`).

    A best is chosen outside a fold and measured in it: the maximum of noisy means is too high (the
    winner's curse).
    """
    spread, df = seed_noise(table)
    values, best = np.empty(table[among[0]].shape), []
    for fold in folds(*values.shape):
        a, b = (best_but({key: table[key] for key in keys}, fold) for keys in (among, others))
        best.append(a)
        values[fold] = (table[a] - table[b])[fold]
    return best, bounded(values.mean(0), spread * math.sqrt(2 / len(values)), df)


def change(now, before):
    """The mean of now (S, P) less before (S, P), the same runs earlier, as in `bounded`."""
    d = (now - before).mean(1)  # one difference a seed, so S - 1 degrees of freedom
    error = d.std(ddof=1) / math.sqrt(len(d)) if len(d) > 1 else 0.0
    return bounded((now - before).mean(0), error, len(d) - 1)


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

def best_lr(tables, fold):
    """The one of an n's tables [(S, P) for each lr] that is best outside a fold."""
    return tables[best_but(dict(enumerate(tables)), fold)]


def best_n(condition, fold):
    """The n of {n: [(S, P) for each lr]} that is best outside a fold, each n at its best lr there.
    """
    return best_but({n: best_lr(condition[n], fold) for n in sorted(condition)}, fold)


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
            nowhere = np.zeros_like(condition[n][0], bool)
            own = best_lr(condition[n], nowhere)
            for other in set(ns) - {n}:
                pair = dict(own=own, other=best_lr(condition[other], nowhere))
                c = contrast(pair, dict(own=-1, other=1), noise)
                ends.append(c["gain"] + c["half"])
        costs[n] = max(ends)
    n = min(costs, key=costs.get)
    return n, costs[n]


def shift(first, second, gained=1 / 3):
    """Does the best n move up from one condition to another? Both {n: [(S, P) for each lr]}, of the
    same runs.

    In each of the `folds` the best n of each condition is chosen outside it, each n at its best lr
    there. gained: as in `judge`. Raises Missing below three n. -> dict
      a, b: the n chosen in the first and in the second condition, one a fold
      loses, gains: what those of b lose on those of a in the first condition, and gain in the
        second
      flat, worst: `constant_n` of the two conditions
      censored: flat is the smallest n tried, so that a rise below it would not show
      verdict: agree if b > a in every fold and both contrasts are above 0; disagree if b < a in
        every fold and both are, or if one n, not censored, costs less than SMALL x gained in both
      sees: the effect that such runs would show
    """
    ns = sorted(first)
    if len(ns) < 3:
        raise Missing("three n or more")
    noises = []
    for condition in (first, second):
        noises.append(seed_noise({(n, i): t for n in ns for i, t in enumerate(condition[n])}))

    shape = first[ns[0]][0].shape  # (S, P)
    a, b, lost, won = [], [], np.empty(shape), np.empty(shape)
    for fold in folds(*shape):
        a.append(best_n(first, fold))
        b.append(best_n(second, fold))
        lost[fold] = (best_lr(first[a[-1]], fold) - best_lr(first[b[-1]], fold))[fold]
        won[fold] = (best_lr(second[b[-1]], fold) - best_lr(second[a[-1]], fold))[fold]
    loses, gains = (bounded(each.mean(0), spread * math.sqrt(2 / len(each)), df)
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


def of_several(shifts):
    """One verdict of the shifts of several groups, such as of several B_p, that a claim is about:
    agree if n moves down in none and their contrasts are above 0 on average, by intervals as wide
    as those of one (groups share problems); disagree if one does."""
    rises = all(y >= x for c in shifts for x, y in zip(c["a"], c["b"]))
    clear = all(sum(c[key]["gain"] - c[key]["half"] for c in shifts) > 0
                for key in ("loses", "gains"))
    if rises and clear:
        return "agree"
    return "disagree" if any(c["verdict"] == "disagree" for c in shifts) else "undecided"
