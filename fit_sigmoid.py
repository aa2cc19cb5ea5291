"""fit_sigmoid.py: the law n*(C), whether a sweep shows it, and what to run with a budget.

    python fit_sigmoid.py --runs=runs/easy                    # law and prescription of a sweep
    python fit_sigmoid.py --runs=runs/easy --C=2e6            # and for 2 million rollouts
    python fit_sigmoid.py --points=mine.csv --B_p=32 --C=2e6  # through points of your own (C, n)

Reads `frontier.json` of a sweep (views.py writes it; `frontier_VIEW.json` for --view=joint or
fixed_B) or a CSV. Writes `law.json` and `law.png` (`law_VIEW.*`) to `out`, or else beside what it
read. Prints one page: the verdict, where the gain came from, the (B_p, n) that are as good as the
best, what to run with C/8 to 4 C. The latter by avg@k, best@k and worst@k goes to `prescription.md`
and `.csv`, all else to `report.txt` there, or with --verbose=true it is printed too.

The script is page.py, its rules and prescriptions are in prescribe.py; this file holds the law. Two
fits. The first section fits the paper's law to points n*(C), and needs numpy and scipy alone: copy
it. But such points are samples of a staircase, as many as one cares to draw, so they do not say how
sure the law is. The second fits the law to the surface R(log n, log C) that goes through all
curves: the sigmoid path with the most reward, averaged over log C. Its intervals are inverted
tests: a value of the plateau is inside unless the slope of reward along log n, over the budgets
where the plateau counts, differs from zero by more than the noise.

To use the rest elsewhere copy config.py, frontier.py and noise.py too.
"""
import math

import numpy as np
from scipy.optimize import least_squares

# --------------------------------------------------------------------------------------------------
# The law from points, log2 n* = L / (1 + exp(-k (log10 C - log10 C0))) + b: numpy and scipy alone

NUMBERS = ("L", "k", "log10_C0", "b", "plateau")
K_LAW = (0.5, 50.0)  # bounds of k, per decade; the paper prints 50.00 once, surely a search's end


def law_at(law, C):
    """log2 n* that a law's numbers (a dict of L, k, log10_C0, b) give at C (E,): (E,)."""
    z = np.clip(law["k"] * (np.log10(C) - law["log10_C0"]), -60, 60)
    return law["b"] + law["L"] / (1 + np.exp(-z))


def fit_law(C, log2_n):
    """The law through points C (E,), log2 n* (E,): dict(L, k, log10_C0, b, plateau).

    By least squares. plateau = 2^(L + b), at most twice the largest n; C0 within half a decade of
    the data; L >= 0.
    """
    x, y = np.log10(np.asarray(C, float)), np.asarray(log2_n, float)
    lower = [y.min() - 1, 0.0, math.log(K_LAW[0]), x.min() - 0.5]  # of L + b, L, log k, log10 C0
    upper = [y.max() + 1, 40.0, math.log(K_LAW[1]), x.max() + 0.5]
    # where to start: for each (k, C0) of a grid the best line in g, the rise from 0 to 1
    v, u = (a.ravel() for a in np.meshgrid(np.linspace(lower[2], upper[2], 25),
                                           np.linspace(lower[3], upper[3], 31)))
    g = 1 / (1 + np.exp(-np.clip(np.exp(v)[:, None] * (x - u[:, None]), -60, 60)))  # (S, E)
    spread = g - g.mean(1, keepdims=True)
    L = np.clip(spread @ y / np.maximum((spread ** 2).sum(1), 1e-12), 0, 40)
    top = np.clip(y.mean() + L * (1 - g.mean(1)), lower[0], upper[0])
    best = ((top[:, None] - L[:, None] * (1 - g) - y) ** 2).sum(1).argmin()

    def miss(p):  # the whole law around that start
        z = np.clip(np.exp(p[2]) * (x - p[3]), -60, 60)
        return p[0] - p[1] / (1 + np.exp(z)) - y
    start = np.clip([top[best], L[best], v[best], u[best]], lower, upper)
    top, L, v, u = least_squares(miss, start, bounds=(lower, upper), x_scale=[1, 1, 0.5, 0.2]).x
    return dict(L=L, k=math.exp(v), log10_C0=u, b=top - L, plateau=2 ** top)


def law_flags(C, log2_n, law):
    """Names of the law's numbers that ended at a bound of their search: not determined."""
    x, flags = np.log10(C), []
    for name, value, lo, hi in (("C0", law["log10_C0"], x.min() - 0.5, x.max() + 0.5),
                                ("k", math.log(law["k"]), *np.log(K_LAW))):
        side, bound = ("lower", lo) if value - lo < hi - value else ("upper", hi)
        if abs(value - bound) < 0.01 * (hi - lo):
            shown = f"{math.exp(bound):.3g}" if name == "k" else f"{10 ** bound:.3g}"
            flags.append(f"{name} at its {side} bound {shown}")
    if law["L"] <= 1e-6:
        flags.append("L at its lower bound 0")
    elif law["plateau"] > 2 ** (np.max(log2_n) + 1 - 1e-4):
        flags.append(f"plateau above twice the largest n* ({2 ** np.max(log2_n):.0f})")
    return flags


def judge(C, log2_n, law, n=None):
    """Do points C, log2_n (E,) carry the law fitted to them? Returns (verdict, reason, flags).

    law, flat (one n throughout) or undetermined. A law has four numbers, so it needs three values
    of n or more, none of its numbers at a bound, and points on both sides of its bend C0, up to
    three quarters of the rise at least, or the plateau is a guess. n (E,): the n of each point,
    where log2_n is a running average of theirs.
    """
    log2_n = np.asarray(log2_n, float)
    n = 2 ** log2_n if n is None else np.asarray(n)
    levels = len(np.unique(np.round(n, 6)))
    if levels == 1:
        return "flat", f"n = {n[0]:.0f} at every budget", []
    flags = law_flags(C, log2_n, law)
    first, last = (law_at(law | dict(L=1.0, b=0.0), np.array([C[i]]))[0] for i in (0, -1))
    start, end = (f"{2 ** log2_n[i]:.3g} at C = {C[i]:,.0f}" for i in (0, -1))  # what was fitted
    if law["L"] * (last - first) < 0.5:
        reason = f"the trend of n* with C is below half an octave up, from {start} to {end}"
        return "undetermined", reason, flags
    if levels < 3:
        reason = f"only {levels} values of n on the frontier, a law with four numbers needs 3"
        return "undetermined", reason, flags
    if flags:
        return "undetermined", "the data do not determine it: " + ", ".join(flags), flags
    if last < 0.75:
        reason = f"the points end before the bend, with {end}: the plateau is not seen"
        return "undetermined", reason, ["no plateau seen"]
    if first > 0.5:
        reason = f"the points begin past the bend, with {start}: the start of the rise is not seen"
        return "undetermined", reason, ["b not seen"]
    return "law", f"n* rises from {start} to {end}, and bends inside the data", []


def law_of_points(C, log2_n, n=None):
    """Fit and judge the law of points: the entry of law.json. Numbers are dict(value, lo, hi), lo
    and hi null, all null without a law: points alone do not say how sure they are."""
    order = np.argsort(C, kind="stable")
    C, log2_n = np.asarray(C, float)[order], np.asarray(log2_n, float)[order]
    n = None if n is None else np.asarray(n)[order]
    law = fit_law(C, log2_n)
    verdict, reason, flags = judge(C, log2_n, law, n)
    return {name: dict(value=float(law[name]) if verdict == "law" else None, lo=None, hi=None)
            for name in NUMBERS} | dict(verdict=verdict, reason=reason, flags=flags, fit=law,
                                        range=[C[0], C[-1]], estimator="points")


def law_of_records(records):
    """law_of_points of frontier.pooled_records, through their running average as in the paper; None
    below five points."""
    if len(records.get("C", ())) < 5:
        return None
    return law_of_points(records["C"], records["log2_n_mean"], n=records["n"])


# --------------------------------------------------------------------------------------------------
# The law of a sweep: the surface R(log n, log C)

from scipy.interpolate import CubicSpline  # noqa: E402
from scipy.optimize import minimize  # noqa: E402

from config import aside, entry  # noqa: E402
from frontier import budget_ticks, many, wrap  # noqa: E402
from noise import half_width, indistinguishable, invert  # noqa: E402

STEP = 1 / 4  # octaves of n between the laws that are compared
FINE = 8      # steps an octave of the surface's grid of log2 n
AT = dict(b=0, plateau=1, L=1, log10_C0=2, k=3)  # where a number stands in a law's coordinates


def arrays_of(surface, C=None):
    """A panel's surface as arrays: Y (N, G), noise (K, N, G); with C those of the nearest budget
    alone, (N,) and (K, N)."""
    Y = np.asarray(surface["Y"], float)
    noise = np.asarray(surface["noise"], float).reshape(-1, *Y.shape)  # no draws: an empty list
    if C is None:
        return Y, noise
    j = int(np.abs(np.log(np.array(surface["C"]) / C)).argmin())
    return Y[:, j], noise[:, :, j]


def surface_of(Y, z):
    """Curves Y (..., N, G) of the n with z = log2 n (N,) -> (..., G, Z), reward over log2 n.

    At each budget a natural cubic spline goes through the curves of all n: a polynomial of low
    degree bends the optimum towards the middle of the grid. What smooths is the law, one path for
    all budgets.
    """
    fine = np.linspace(z[0], z[-1], round(FINE * (z[-1] - z[0])) + 1)
    return np.swapaxes(Y, -1, -2) @ CubicSpline(z, np.eye(len(z)), bc_type="natural")(fine).T


def path_of(c, x):
    """Law coordinates c (4, ...) = b, L + b, log10 C0, log k -> log2 n* (..., G) at x = log10 C."""
    b, top, u, v = (np.asarray(a)[..., None] for a in c)
    return b + (top - b) / (1 + np.exp(np.clip(-np.exp(v) * (x - u), -60, 60)))


def along(T, place):
    """Values of the table T (..., G, Z) at fractional places (V, G) of its last axis, linear in
    between: (..., V, G)."""
    i = np.clip(place.astype(int), 0, T.shape[-1] - 2)
    g = np.arange(T.shape[-2])
    return T[..., g, i] * (1 - place + i) + T[..., g, i + 1] * (place - i)


def all_laws(z, x):
    """Every law of a grid, as coordinates (4, V) of path_of: b and the plateau within the grid of
    n, C0 within 0.3 decades of the budgets."""
    octaves = np.linspace(z[0], z[-1], round((z[-1] - z[0]) / STEP) + 1)
    axes = (octaves, octaves, np.linspace(x[0] - 0.3, x[-1] + 0.3, 25),
            np.linspace(*np.log(K_LAW), 9))
    c = np.array([a.ravel() for a in np.meshgrid(*axes, indexing="ij")])
    return c[:, c[1] >= c[0] - 1e-9]


def reward_of(c, T, z, x):
    """Mean reward over log C of the laws c (4, ...) on the surface T (G, Z): (...)."""
    return along(T, np.clip(FINE * (path_of(c, x) - z[0]), 0, T.shape[1] - 1)).mean(-1)


def coordinate(c, name):
    """The number `name` of laws c (4, ...), in the coordinate in which it is searched."""
    return c[1] - c[0] if name == "L" else c[AT[name]]


def refine(c, T, z, x, name=""):
    """The best law near c (4,), with its number `name` kept, by Nelder and Mead: (4,)."""
    value, held = (coordinate(c, name), AT[name]) if name else (None, None)
    low = [z[0], z[0], x[0] - 0.3, math.log(K_LAW[0])]
    high = [z[-1], z[-1], x[-1] + 0.3, math.log(K_LAW[1])]

    def whole(free):  # with the number put back in its place
        if not name:
            return free
        return np.insert(free, held, value + (free[0] if name == "L" else 0.0))

    def loss(free):
        law = whole(free)
        outside = law[1] < law[0] or law[1] > z[-1] + 1e-9
        return 1.0 if outside else -reward_of(law, T, z, x)
    free = [i for i in range(4) if i != held]
    simplex = c[free] + np.concatenate([np.zeros((1, len(free))), 0.12 * np.eye(len(free))])
    found = minimize(loss, c[free], method="Nelder-Mead", bounds=[(low[i], high[i]) for i in free],
                     options=dict(initial_simplex=np.clip(simplex, np.array(low)[free],
                                                          np.array(high)[free]), maxfev=120))
    return whole(found.x) if found.fun <= loss(c[free]) else c


def law_of_surface(surface, intervals=NUMBERS):
    """The law on a panel's surface: its numbers, dict(value, lo, hi, flag) each, and its path.

    surface: dict(C (G,), ns (N,), Y (N, G), noise (K, N, G)), of frontier.json. All laws of a grid
    are compared and the best is refined. For an interval, at each value of a number the best law
    that has it is taken, and the slope of the surface along log n, weighted by how much the path
    moves with the number, is tested against zero. An end is null where no value is rejected; `flag`
    names a value at its bound. The path goes to 5 times the budgets.
    """
    x, z = np.log10(surface["C"]), np.log2(surface["ns"])
    Y, noise = arrays_of(surface)
    T = surface_of(Y, z)
    laws = all_laws(z, x)
    reward = reward_of(laws, T, z, x)
    best = refine(laws[:, reward.argmax()], T, z, x)
    slope = np.gradient(T, 1 / FINE, axis=-1)
    wiggle = np.gradient(surface_of(noise, z), 1 / FINE, axis=-1) if len(noise) else None
    out = {}
    for name in NUMBERS:
        at, every = coordinate(best, name), np.round(coordinate(laws, name), 9)
        values, lo, hi = np.unique(every), None, None
        if len(noise) and name in intervals:
            held = []  # the best law with each value
            for value in values:
                ok = np.flatnonzero(every == value)
                held.append(refine(laws[:, ok[reward[ok].argmax()]], T, z, x, name))
            held = np.array(held).T  # (4, V)
            moved = held.copy()  # the same law a little further along this number
            moved[AT[name]] += 0.02
            path = path_of(held, x)
            weight = (path_of(moved, x) - path) / 0.02
            place = np.clip(FINE * (path - z[0]), 0, T.shape[1] - 1)  # (V, G)
            statistic = (along(slope, place) * weight).mean(-1)
            half = half_width((along(wiggle, place) * weight).mean(-1))
            lo, hi = invert(values, statistic, half, at)
        share = (at - values[0]) / max(values[-1] - values[0], 1e-12)
        edge = "lower" if share < 0.02 else "upper" if share > 0.98 else ""
        shown = {"plateau": lambda v: 2 ** v, "k": math.exp}.get(name, float)
        out[name] = {key: None if value is None else float(shown(value))
                     for key, value in dict(value=at, lo=lo, hi=hi).items()}
        bound = shown(values[-1] if edge == "upper" else values[0])
        out[name]["flag"] = f"{name} at its {edge} bound {bound:.3g}" if edge else ""
    far = np.linspace(x[0], x[-1] + math.log10(5), 60)
    return out | dict(path=dict(C=10 ** far, log2_n=path_of(best, far)))


# --------------------------------------------------------------------------------------------------
# The verdict on a sweep

def verdict_of(surface, delta):
    """law, flat or undetermined, with the evidence: dict(verdict, reason, sets, constant, regret,
    regret_upper).

    law: n* rises. The budgets that all n reached are cut into three parts, evenly in log C. In each
    the n indistinguishable from the best are found; a law is shown where one part's set lies wholly
    below a later part's. By chance that happens in at most 1% of planted sweeps without a law
    (tests/bench/coverage.py). flat: one n loses less than `delta` reward against the best n at each
    budget, in each part on average, at the upper end of a one-sided 95% interval. Both can hold;
    then it is flat, for that n will do.
    """
    ns, (Y, noise) = list(surface["ns"]), arrays_of(surface)
    if len(ns) == 1:
        return dict(verdict="undetermined", sets=[], constant=ns[0], regret=0.0, regret_upper=None,
                    reason="the sweep has one n only, there is nothing to compare")
    parts, sets = np.array_split(np.arange(Y.shape[1]), 3), []
    for part in parts:
        same = indistinguishable(Y[:, part].mean(1), noise[:, :, part].mean(2))
        sets.append([n for n, ok in zip(ns, same) if ok])

    def worst(Y):  # (..., N, G) -> (..., N), the part where a constant n loses most
        loss = Y.max(-2, keepdims=True) - Y
        return np.max([loss[..., part].mean(-1) for part in parts], 0)
    regret = worst(Y)  # (N,)
    if not len(noise):
        i = int(np.argmin(regret))
        constant = f"n = {ns[i]} throughout loses {regret[i]:.3f} of reward where it loses most"
        return dict(verdict="undetermined", reason=f"no intervals (boot=0); {constant}", sets=[],
                    constant=ns[i], regret=regret[i], regret_upper=None)
    upper = np.percentile(worst(Y + noise), 95, axis=0)  # the maximum of noise only adds to it
    i = int(np.argmin(upper))
    constant = (f"n = {ns[i]} throughout loses {regret[i]:.3f} of reward in the third of log C "
                f"where it loses most (below {upper[i]:.3f}, 95%)")
    rises = any(max(a) < min(b) for j, a in enumerate(sets) for b in sets[j + 1:])
    falls = any(min(a) > max(b) for j, a in enumerate(sets) for b in sets[j + 1:])
    said = ", ".join(f"{{{', '.join(map(str, s))}}}" for s in sets)
    evidence = (f"n indistinguishable from the best in the first, middle and last third of log C: "
                f"{said}; {constant}")
    verdict, why = "undetermined", "neither a rise of n* is shown, nor that one n will do"
    if upper[i] < delta:
        verdict = "flat"
        rise = "; n* does rise" if rises else ""
        evidence, why = f"{constant}, less than delta = {delta:g}{rise}", "one n will do"
    elif rises and not falls:
        verdict, why = "law", "n* rises"
    elif falls:
        why = "n* falls"
    ranges = [[surface["C"][part[0]], surface["C"][part[-1]]] for part in parts]
    return dict(verdict=verdict, reason=f"{why}: {evidence}", constant=ns[i], regret=regret[i],
                regret_upper=upper[i], sets=[dict(C=C, ns=s) for C, s in zip(ranges, sets)])


def law_of_panel(panel, delta):
    """The entry of law.json for a panel of frontier.json: verdict, evidence, the law's numbers.

    The numbers are null unless the verdict is law; one at its bound is null with a flag: the data
    do not determine it.
    """
    surface = panel["surface"]
    out = dict(range=panel["range"], flags=[], estimator="envelope", path=None) | {
        name: dict(value=None, lo=None, hi=None) for name in NUMBERS}
    if surface is None:
        why = "the runs of all n share less than a factor 4 of budgets"
        if len(panel["ns"]) == 1:
            why = "the sweep has one n only, there is nothing to compare"
        return out | dict(verdict="undetermined", reason=why)
    out |= verdict_of(surface, delta)
    if surface["left_out"]:
        early = ", ".join(map(str, surface["left_out"]))
        out["flags"].append(f"n = {early} left out of the law: their runs end early")
    if len(surface["ns"]) < 3:
        if out["verdict"] == "law":
            out["flags"].append("two values of n: a law with four numbers needs 3 or more")
        return out
    fit = law_of_surface(surface, NUMBERS if out["verdict"] == "law" else ())
    out["path"] = fit["path"]
    if out["verdict"] == "law":
        out["flags"] += [fit[name]["flag"] for name in NUMBERS if fit[name]["flag"]]
        for name in NUMBERS:
            out[name] = dict(fit[name], value=None if fit[name]["flag"] else fit[name]["value"])
        if fit["b"]["flag"] or fit["plateau"]["flag"]:  # C0: where the grid of n cuts the rise off
            out["log10_C0"].update(lo=None, hi=None)
            out["flags"].append("the interval of log10_C0, since an end of the rise lies outside "
                                "the grid of n")
    return out


SAID = dict(law="n* rises with the budget", flat="one n will do at every budget",
            undetermined="inconclusive")


def in_a_sentence(law):
    """The verdict in one plain sentence with its numbers."""
    text = f"{SAID[law['verdict']]}. "
    if law["estimator"] == "points" or "constant" not in law:
        return text + law["reason"][0].upper() + law["reason"][1:]
    if law["verdict"] == "law":
        first, last = (", ".join(map(str, law["sets"][i]["ns"])) for i in (0, -1))
        text += (f"The n that are indistinguishable from the best go from {first} in the first "
                 f"third of log C to {last} in the last")
        plateau = law["plateau"]
        if plateau["value"]:
            text += f"; plateau {interval_of(plateau, 0)}"
        return text
    if law["regret_upper"] is None:
        return text + law["reason"][0].upper() + law["reason"][1:]
    text += f"n = {law['constant']} throughout is at most {law['regret_upper']:.3f} of reward (95%)"
    text += " behind the best n at each budget"
    if law["verdict"] == "undetermined":
        falls = law["reason"].startswith("n* falls")
        text += ", and n* falls" if falls else ", and no rise of n* is shown"
    return text


def interval_of(number, digits):
    """A number of the law as text, with its interval."""
    lo, hi = ("open" if x is None else f"{x:.{digits}f}" for x in (number["lo"], number["hi"]))
    return f"{number['value']:.{digits}f} [{lo}, {hi}]"


def say(law):
    """A law or its absence in a few lines of text, for the report."""
    if law["verdict"] != "law":
        return f"{law['verdict']}: {law['reason']}"

    def number(name, digits):
        if law[name]["value"] is None:
            return "?"
        if law["estimator"] == "points":
            return f"{law[name]['value']:.{digits}f}"
        return interval_of(law[name], digits)
    L, k, C0, b = (number(name, 2) for name in ("L", "k", "log10_C0", "b"))
    text = f"law: {law['reason']}\n  log2 n* = {L} / (1 + exp(-{k} (log10 C - {C0}))) + {b}"
    text += f"\n  plateau n* = {number('plateau', 0)}"
    return text + "".join(f"\n  not determined: {flag}" for flag in law["flags"])


def draw_panel(ax, name, panel, law, paper, prescriptions, unit, cols):
    """n*(C) of a panel: the frontier, the law or the reason why there is none, what lies beyond."""
    env, records = panel["envelope"], panel.get("records")
    C, n = np.array(env["C"]), np.array(env["n"], float)
    stars = [p for p in prescriptions if p["panel"] == name]
    far = max([4 * C[-1]] + [p["C"] for p in stars]) * 1.15
    high = max([n.max()] + [p["n"] for p in stars])
    x = np.geomspace(C[0], far, 300)
    if panel.get("near"):
        near = [(a["C"], m) for a in panel["near"] for m in a["set"]]
        ax.plot(*zip(*near), "s", color="0.82", ms=7, label="n indistinguishable from the best")
    if records:
        ax.plot(records["C"], 2 ** np.array(records["log2_n_mean"]), "DC1", ms=4.5, mfc="none",
                label="paper's way: running average")
    ax.plot(C, n, "o", color="C0", ms=4, zorder=3, label="n*(C)" if "ns" in panel else "points")
    text = in_a_sentence(law)
    y = None
    if law["verdict"] == "law" and law["estimator"] == "points":
        numbers = {key: law[key]["value"] for key in NUMBERS}
        y = law_at(numbers, x)
        text = ("law: L {L:.2f}, k {k:.2f}, log10 C0 {log10_C0:.2f}, b {b:.2f}, "
                "plateau {plateau:.0f}").format(**numbers)
    elif law["path"] if "path" in law else None:
        y = np.interp(np.log(x), np.log(law["path"]["C"]), law["path"]["log2_n"], right=np.nan)
        if law["verdict"] == "law":
            values = {key: law[key]["value"] for key in NUMBERS}
            text = "n* rises; " + ", ".join(f"{key} {'?' if v is None else format(v, '.3g')}"
                                            for key, v in values.items())
            lo, hi = law["plateau"]["lo"], law["plateau"]["hi"]
            if lo or hi:
                ax.axhspan(lo or n.min() / 3, hi or high * 3, color="C3", alpha=0.10, lw=0,
                           label="90% interval of the plateau")
    if y is not None:
        is_law = law["verdict"] == "law"
        for part, style, label in ((x <= C[-1], "-", "law" if is_law else "best path, not a law"),
                                   (x > C[-1], "--", None)):
            ax.plot(x[part], 2 ** y[part], color="C3", lw=2.2 if is_law else 1, label=label,
                    ls=style if is_law else ":")
    if "ns" not in panel:
        ax.plot(x, x * 2 ** np.mean(np.log2(n / C)), "-.", color="C2", lw=1.6, label="constant M")
    if paper and paper.get("fit"):
        ax.plot(x, 2 ** law_at(paper["fit"], x), "C1--", lw=1, label="paper's way: the law")
    rounded = dict(observed=", rounded to a power of 2",
                   extrapolated=", the same, at most twice the largest n")
    for status, fill in (("observed", "C1"), ("extrapolated", "white")):
        at = [(p["C"], p["n"]) for p in stars if p["status"] == status]
        if at:
            ax.plot(*zip(*at), "*", ms=13, mfc=fill, mec="C1", zorder=4,
                    label=f"prescribed, {status}" + ("" if "ns" in panel else rounded[status]))
    ax.axvspan(C[-1], far, color="0.5", alpha=0.13, lw=0)
    ax.text(math.sqrt(C[-1] * far), n.min() / 2.7, "extrapolated", ha="center", va="bottom",
            fontsize=9, color="0.3")
    names = {"updates": "updates M", "tokens": "training tokens C",
             "gpu_hours": "GPU-hours of training C"}
    ax.set(xscale="log", yscale="log", xlim=(C[0] / 1.2, far), ylim=(n.min() / 3, high * 3),
           ylabel="compute-optimal n*", xlabel=names.get(unit, "rollouts C = $B_p\\,n\\,M$"))
    ax.set_title(f"{name.replace('B_p', '$B_p$')}\n{wrap(text, 112 // cols)}", fontsize=9.5)
    marks = 2.0 ** np.arange(math.floor(math.log2(n.min() / 2)), math.ceil(math.log2(high * 2)) + 1)
    ax.set_yticks(marks, [f"{m:g}" for m in marks])
    ax.minorticks_off()
    budget_ticks(ax, C[0], far)
    ax.grid(alpha=0.25)


def draw_rules(ax, rows):
    """How far each rule for n* was off at C, fitted to budgets up to C/2, C/4, C/8: bars."""
    rules = list(dict.fromkeys(r["rule"] for r in rows))
    factors = sorted({r["factor"] for r in rows})
    for i, factor in enumerate(factors):
        off = {r["rule"]: r["octaves"] for r in rows if r["factor"] == factor}
        y = np.arange(len(rules)) + 0.8 / len(factors) * (i - (len(factors) - 1) / 2)
        bars = ax.barh(y, [off.get(rule, np.nan) for rule in rules], 0.75 / len(factors),
                       color=("C0", "C1", "0.6")[i], label=f"fitted up to C/{factor}")
        ax.bar_label(bars, fmt="%.2f", fontsize=9, padding=2)
    ax.set_yticks(range(len(rules)), rules)
    ax.invert_yaxis()
    ax.margins(x=0.12)
    ax.set_xlabel("mean error of the predicted n* at C, in octaves")
    ax.set_title("How well each rule predicts the later points", fontsize=9.5)


def figure(front, laws, paper, prescriptions, path):
    """law.png: a panel of draw_panel for each of frontier.json's, and of points the rules'."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    panels, cols = front["panels"], min(len(front["panels"]), 2)
    rules = [] if front["label"] else next(iter(panels.values()))["prediction"]["rows"]
    cols = 2 if rules else cols
    rows = -(-len(panels) // cols)
    fig, axes = plt.subplots(rows, cols, figsize=(10.7, 2.0 + 4.4 * rows), squeeze=False,
                             layout="constrained")
    for ax in axes.flat[len(panels):]:
        ax.set_visible(False)
    if rules:
        axes[0, 1].set_visible(True)
        draw_rules(axes[0, 1], rules)
    for ax, (name, panel) in zip(axes.flat, panels.items()):
        draw_panel(ax, name, panel, laws[name], paper.get(name), prescriptions, front["unit"], cols)
    named = {label: handle for ax in axes.flat
             for handle, label in zip(*ax.get_legend_handles_labels())}
    fig.legend(named.values(), named.keys(), loc="outside lower center", fontsize=9, ncols=4)
    of = (f" for {front['label']}, {many(len(front['runs_used']), 'run')} used" if front["label"]
          else front["about"])
    title = f"n*(C){of}", "Intervals: " + front["covers"]
    fig.suptitle("\n".join(wrap(text, 120) for text in title), fontsize=10.5)
    with aside(path) as part:
        fig.savefig(part, dpi=110)
    plt.close(fig)


if __name__ == "__main__":
    import page  # the command line; only the script looks up, not the module
    entry(page.main)
