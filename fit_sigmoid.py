"""fit_sigmoid.py: every fit of the project: a reward curve over compute, the law n*(C), a prescription for a budget.

    python fit_sigmoid.py --runs=runs/easy                   # law and prescription from runs/easy/frontier.json
    python fit_sigmoid.py --runs=runs/easy --C=2e6           # and a prescription for 2 million rollouts
    python fit_sigmoid.py --points=mine.csv --B_p=32 --C=2e6 # the law through points of your own (columns C, n)

Reads `frontier.json` (frontier.py writes it) or the CSV. Writes `law.json` and `law.png` to `out`, or else beside what it
read. Prints the law, or why there is none, and one block for each budget that ends in a command to paste.

One function does all fits. Each form is base + amp g(C), where the shape g rises from 0 to 1 and has at most two
parameters of its own. For a given shape the best base and amp are linear least squares in closed form, so what remains is
a search in two dimensions: a grid over the whole box (every grid point is a start), then ever finer grids around the best.
Nothing can run away, and 200 resampled sweeps are fitted in one go. The law is such a form too, with log2 n for the reward.

No standard errors come from the law's residuals. The points n*(C) are samples of a staircase, as many as one cares to
draw, so errors computed from their number would be fiction. Intervals come from refitting whole resampled sweeps.

To use it elsewhere copy it with config.py. Needs numpy; matplotlib for the figure.
"""
import csv
import math
from pathlib import Path

import numpy as np

from config import BadInput, aside, command, config, derive, entry, parse, read_json, save_json

FORMS = ("sigmoid", "logistic", "exponential")
K_LAW = (0.5, 50.0)  # bounds of the law's k, per decade of C; the paper prints 50.00 once, surely where its search ended
LEVEL = (5, 95)      # percentiles of every interval: 90%
THIN = 3             # the law is fitted to every third budget of the frontier's grid


# ---------------------------------------------------------------------------------------------------------------------
# Curves

def basis(form, C, u, v):
    """The shape g(C) of a form, rising from 0 to 1. C (E,); u, v of any shape S -> S + (E,).

    sigmoid: 1 / (1 + exp(-k (log10 C - u))), u = log10 C0, the 4-parameter sigmoid in log C, 0 at C = 0.
    logistic: 1 / (1 + exp(-k (C - u))), u = C0. exponential: 1 - exp(-k C), u unused. In all of them k = exp(v).
    """
    u, k = np.asarray(u, float)[..., None], np.exp(np.asarray(v, float))[..., None]
    with np.errstate(divide="ignore", over="ignore"):  # C = 0 and far tails end at exactly 0 or 1
        if form == "sigmoid":
            return 1 / (1 + np.exp(-k * (np.log10(C) - u)))
        if form == "logistic":
            return 1 / (1 + np.exp(-k * (C - u)))
        return -np.expm1(-k * np.asarray(C))


def search_box(form, C):
    """Bounds and grid sizes ((u_lo, u_hi, points), (v_lo, v_hi, points)) for data at C: a shape outside them is unseen."""
    lo, hi = C[C > 0].min(), C.max()
    if form == "sigmoid":
        return (math.log10(lo) - 1, math.log10(hi) + 0.5, 31), (math.log(1), math.log(20), 15)
    if form == "logistic":
        return (0.0, hi, 21), (math.log(1 / hi), math.log(200 / hi), 21)
    return (0.0, 0.0, 1), (math.log(0.1 / hi), math.log(10 / lo), 61)


def project(g, R, w, top):
    """Best base and amp for given shapes, in closed form: weighted least squares under amp >= 0 and base + amp <= top.

    g (K or 1, S, E): S shapes at E points. R, w (K, E): K data sets. Returns base, amp, rss, each (K, S).
    """
    def total(a, b):  # sum over points -> (K, S)
        return (a @ b[:, :, None])[..., 0]
    mean = (w * R).sum(1, keepdims=True) / w.sum(1, keepdims=True)
    y, top = R - mean, top - mean  # centred, so that the sums below do not cancel
    sw, syy = w.sum(1, keepdims=True), (w * y * y).sum(1, keepdims=True)
    sg, sgg, sgy = total(g, w), total(g * g, w), total(g, w * y)  # sum of w y is 0
    spread = sgg - sg ** 2 / sw
    amp = np.where(spread > 1e-9 * sw, np.maximum(sgy, 0) / np.maximum(spread, 1e-12), 0)
    base = -amp * sg / sw
    # where the asymptote would pass `top` it stays there, and one parameter is left: y - top = -amp (1 - g)
    over = base + amp > top
    amp = np.where(over, (top * (sw - sg) + sgy) / np.maximum(sw - 2 * sg + sgg, 1e-12), amp)
    base = np.where(over, top - amp, base)
    rss = syy - 2 * amp * sgy + base ** 2 * sw + 2 * base * amp * sg + amp ** 2 * sgg
    return base + mean, amp, rss


def fit_curve(C, R, weights=None, form="sigmoid", top=1.0, box=None):
    """Fit a monotone saturating curve to one data set R (E,) or to K of them at once (K, E), at compute C (E,).

    weights: like R, or None for equal ones; a weight of 0 leaves the point out. top: the asymptote's upper bound.
    Returns dict(form, base, amp, C0, k, rss) with numbers, or arrays (K,). base is the value at C -> 0 of `sigmoid` and
    `exponential`, and at C -> -infinity of `logistic`; base + amp is the asymptote; amp >= 0 makes the curve monotone.
    """
    C, R = np.asarray(C, float), np.asarray(R, float)
    one, R = R.ndim == 1, np.atleast_2d(R)
    w = np.ones_like(R) if weights is None else np.broadcast_to(np.asarray(weights, float), R.shape)
    (u0, u1, nu), (v0, v1, nv) = box or search_box(form, C)
    U, V = (a.ravel() for a in np.meshgrid(np.linspace(u0, u1, nu), np.linspace(v0, v1, nv)))
    everywhere = basis(form, C, U, V)[None]  # (1, S, E)
    du, dv = np.meshgrid(np.linspace(-1, 1, 7 if nu > 1 else 1), np.linspace(-1, 1, 7))
    chunk, parts = max(1, int(2e6 / (max(U.size, 49) * C.size))), []  # bounds the memory, nothing else
    for i in range(0, len(R), chunk):
        r, wi = R[i:i + chunk], w[i:i + chunk]
        rows, best = np.arange(len(r)), project(everywhere, r, wi, top)[2].argmin(1)
        u, v, step = U[best], V[best], 1.0
        for _ in range(14):  # 0.65^14 = 0.2% of a grid step
            us = np.clip(u[:, None] + step * (u1 - u0) / max(nu - 1, 1) * du.ravel(), u0, u1)  # (K, 49)
            vs = np.clip(v[:, None] + step * (v1 - v0) / (nv - 1) * dv.ravel(), v0, v1)
            base, amp, rss = project(basis(form, C, us, vs), r, wi, top)
            best = rss.argmin(1)
            u, v, step = us[rows, best], vs[rows, best], 0.65 * step
        parts.append([base[rows, best], amp[rows, best], u, v, rss[rows, best]])
    base, amp, u, v, rss = (np.concatenate(a)[0] if one else np.concatenate(a) for a in zip(*parts))
    return dict(form=form, base=base, amp=amp, C0=10 ** u if form == "sigmoid" else u, k=np.exp(v), rss=np.maximum(rss, 0))


def shape(params, C):
    """g(C) of fitted parameters: (E,), or (K, E) where they are arrays (K,)."""
    u = np.log10(params["C0"]) if params["form"] == "sigmoid" else params["C0"]
    return basis(params["form"], np.asarray(C, float), u, np.log(params["k"]))


def curve(params, C):
    """The fitted curve at compute C (E,): (E,), or (K, E) where the parameters are arrays (K,)."""
    return np.asarray(params["base"])[..., None] + np.asarray(params["amp"])[..., None] * shape(params, C)


def at_bounds(params, C, top=1.0, box=None):
    """Names of the parameters of one fit that ended at a bound of their search, in words: the data do not determine them."""
    C, found = np.asarray(C, float), []
    (u0, u1, _), (v0, v1, _) = box or search_box(params["form"], C)
    in_log = params["form"] == "sigmoid"
    u = math.log10(params["C0"]) if in_log else params["C0"]
    for name, x, lo, hi in (("C0", u, u0, u1), ("k", math.log(params["k"]), v0, v1)):
        side, bound = ("lower", lo) if x - lo < hi - x else ("upper", hi)
        if lo < hi and abs(x - bound) < 0.01 * (hi - lo):
            shown = f"{math.exp(bound):.3g}" if name == "k" else si(10 ** bound if in_log else bound)
            found.append(f"{name} at its {side} bound {shown}")
    if params["amp"] <= 1e-9:
        found.append("amp at its lower bound 0")
    elif params["base"] + params["amp"] > top - 1e-9:
        found.append(f"asymptote at its upper bound {top:.3g}")
    return found


def choose_form(data):
    """One form for all curves of a panel, by the error on evaluations that the fit has not seen.

    data: list of (C (E,), R (E,)), one for each n. Every second inner budget is held out, then the others (all seeds of a
    budget together; the two ends stay, so this is interpolation). One form for all n, because curves of different forms
    cross for reasons of form. It is `sigmoid`, the paper's, unless another has an error that is lower by more than two of
    its standard errors: the least error alone takes the stiffer form too often, and that shifts the crossings.
    Returns (form, {form: root mean square held-out error}). With fewer than 8 budgets in some curve nothing can be held
    out: the form with the fewest parameters, and no errors.
    """
    if min(len(np.unique(C)) for C, _ in data) < 8:
        return "exponential", {}
    squares = {form: [] for form in FORMS}
    for C, R in data:
        budgets, rank = np.unique(C, return_inverse=True)
        for fold in (0, 1):
            out = (rank % 2 == fold) & (rank > 0) & (rank < len(budgets) - 1)
            for form in FORMS:
                squares[form].append((curve(fit_curve(C[~out], R[~out], form=form), C[out]) - R[out]) ** 2)
    squares = {form: np.concatenate(e) for form, e in squares.items()}
    gain = {form: squares["sigmoid"] - e for form, e in squares.items()}  # paired, point by point
    better = [form for form, g in gain.items() if g.mean() > 2 * g.std(ddof=1) / math.sqrt(len(g))]
    best = max(better, key=lambda form: gain[form].mean(), default="sigmoid")
    return best, {form: math.sqrt(e.mean()) for form, e in squares.items()}


# ---------------------------------------------------------------------------------------------------------------------
# The law: log2 n* = L / (1 + exp(-k (log10 C - log10 C0))) + b

def law_bounds(C, log2_n):
    """Search box and upper bound of L + b for a law: C0 within half a decade of the data, n* at most twice the largest."""
    x = np.log10(C)
    return ((x.min() - 0.5, x.max() + 0.5, 31), (math.log(K_LAW[0]), math.log(K_LAW[1]), 25)), float(np.max(log2_n)) + 1


def fit_law(C, log2_n, like=None):
    """The law through points: C (E,) and log2 n* (E,), or K resampled paths (K, E) within the bounds of `like` (E,).

    Returns dict(L, k, log10_C0, b, plateau = 2^(L + b)), numbers or arrays (K,).
    """
    box, top = law_bounds(C, log2_n if like is None else like)
    p = fit_curve(C, log2_n, form="sigmoid", top=top, box=box)
    return dict(L=p["amp"], k=p["k"], log10_C0=np.log10(p["C0"]), b=p["base"], plateau=2 ** (p["amp"] + p["base"]))


def law_at(law, C):
    """log2 n* that a law's numbers give at C (E,): (E,), or (K, E) where they are arrays (K,)."""
    p = dict(form="sigmoid", base=law["b"], amp=law["L"], k=law["k"], C0=10 ** np.asarray(law["log10_C0"]))
    return curve(p, C)


def judge(C, log2_n, law, n=None, largest=None):
    """Do these points carry a law? Returns (verdict, reason, flags).

    law, flat (one n throughout), not rising, or undetermined. A law has four numbers, so it needs at least three values
    of n, none of its numbers at a bound, and points on both sides of its bend C0, up to three quarters of the rise at least,
    or the plateau is a guess. n: the values behind log2_n where that is an average. largest: the largest n that was run;
    where it is on top at the end, the plateau is the grid's and not the law's.
    """
    n = 2 ** np.asarray(log2_n) if n is None else np.asarray(n)
    levels = len(np.unique(np.round(n, 6)))
    if levels == 1:
        return "flat", f"n = {n[0]:.0f} is on top at every budget", []
    box, top = law_bounds(C, log2_n)
    p = dict(form="sigmoid", base=law["b"], amp=law["L"], C0=10 ** law["log10_C0"], k=law["k"])
    flags = [f"plateau above twice the largest n* ({n.max():.0f})" if "asymptote" in f else f
             for f in at_bounds(p, C, top, box)]
    first, last = shape(p, np.array([C[0], C[-1]]))
    start, end = (f"{n[i]:.0f} at {si(C[i])}" for i in (0, -1))
    if law["L"] * (last - first) < 0.5:
        return "not rising", f"the trend of n* with C is below half an octave up: {start}, {end}", flags
    if levels < 3:
        return "undetermined", f"only {levels} values of n on the frontier, a law with four numbers needs 3 or more", flags
    if largest and n[-1] > 0.99 * largest:
        return "undetermined", f"the grid's largest n is on top at the end, {end}: no plateau is seen", ["no plateau seen"]
    if flags:
        return "undetermined", "the data do not determine it: " + ", ".join(flags), flags
    if last < 0.75:
        return "undetermined", f"the points end before the bend, {end}: the plateau is not seen", ["no plateau seen"]
    if first > 0.5:
        return "undetermined", f"the points begin past the bend, {start}: the start of the rise is not seen", ["b not seen"]
    return "law", f"n* rises, {start}, {end}, and bends inside the data", []


def law_of(C, log2_n, resampled=None, n=None, largest=None):
    """Fit, judge and bound one law: C (E,), log2_n (E,), resampled paths (K, E) or None -> the entry of law.json.

    n, largest: see judge().
    A sweep whose resampled copies disagree carries no law: fewer than 80% of them judged `law` makes it undetermined.
    Each number is dict(value, lo, hi), null unless the verdict is law; an end of an interval at a bound is null too.
    """
    C, log2_n, names = np.asarray(C, float), np.asarray(log2_n, float), ("L", "k", "log10_C0", "b", "plateau")
    law = fit_law(C, log2_n)
    verdict, reason, flags = judge(C, log2_n, law, n, largest)
    result = dict.fromkeys(names, dict(value=None, lo=None, hi=None))
    result |= dict(verdict=verdict, reason=reason, flags=flags, support=None, range=[C[0], C[-1]], resampled=None)
    if resampled is not None and len(resampled):
        laws = fit_law(C, np.asarray(resampled, float), like=log2_n)
        each = [{name: laws[name][i] for name in names} for i in range(len(resampled))]
        verdicts = [judge(C, path, one, largest=largest)[0] for path, one in zip(np.asarray(resampled), each)]
        result["support"] = verdicts.count(verdict) / len(verdicts)
        if verdict == "law" and result["support"] < 0.8:
            verdict = result["verdict"] = "undetermined"
            result["reason"] = f"only {100 * result['support']:.0f}% of the resampled sweeps carry a law"
            result["flags"] = ["not stable under resampling"]
    if verdict == "law":
        box, top = law_bounds(C, log2_n)
        ends = dict(k=K_LAW, log10_C0=box[0][:2], plateau=(0, 2 ** top))
        for name in names:
            lo = hi = None
            if result["support"] is not None:
                lo, hi = (float(x) for x in np.percentile(laws[name], LEVEL))
                low, high = ends.get(name, (-1e9, 1e9))
                lo, hi = lo if lo > low + 1e-3 * abs(low) else None, hi if hi < high - 1e-3 * abs(high) else None
            result[name] = dict(value=float(law[name]), lo=lo, hi=hi)
        if result["support"] is not None:
            result["resampled"] = {name: np.round(laws[name], 4) for name in names}
    return result


# ---------------------------------------------------------------------------------------------------------------------
# The prescription

def reward_at(panel, C):
    """The frontier's reward at C: (point, (K,) of the resampled sweeps or None), or (None, None) where it is not known."""
    env, again = panel["envelope"], panel.get("resampled")
    if not env.get("reward") or not env["C"][0] * (1 - 1e-9) <= C <= env["C"][-1] * (1 + 1e-9):
        return None, None
    def at(grid, reward):
        return float(np.interp(math.log(C), np.log(grid), reward))
    return at(env["C"], env["reward"]), np.array([at(again["C"], r) for r in again["reward"]]) if again else None


def choose_panel(C, panels):
    """Which B_p to take at C: the smallest whose frontier is within the noise of the highest. Returns (name, why).

    Panels are compared at C, or at the largest budget that all of them reached if that is less. Within the noise: in 5%
    or more of the resampled sweeps, which share their problems, it is at least as high. The smallest, because B_p mainly
    serves stability (paper, section 4.3); frontier.py drops no unstable run, so look at its notes on declining ones.
    """
    if len(panels) == 1:
        return next(iter(panels)), ""
    common = min(C, min(p["envelope"]["C"][-1] for p in panels.values()))
    common = max(common, max(p["envelope"]["C"][0] for p in panels.values()))
    known = {name: reward_at(p, common) for name, p in panels.items()}
    known = {name: r for name, r in known.items() if r[0] is not None} or {next(iter(panels)): (0.0, None)}
    best = max(known, key=lambda name: known[name][0])
    near = [name for name, (_, each) in known.items()
            if name == best or each is not None and np.percentile(known[best][1] - each, LEVEL[0]) <= 0]
    take = min(near, key=lambda name: panels[name]["B_p"])
    if len(near) == 1:
        return take, f"its frontier is the highest at C = {si(common)}"
    return take, f"the smallest of {', '.join(near)}, which the noise does not separate at C = {si(common)}"


def prescribe(C, front, laws):
    """What to run with a budget C (in the unit of the sweep): dict(B_p, n, M, lr, recipe, expected reward, command, ...).

    front: the content of frontier.json; laws: {panel: entry of law_of}. Inside the budgets that were run, n is the one on
    top of the frontier; above them the law's, to the nearest power of 2, and without a law the last observed n, and
    `caveat` says so. n is capped by B_max and by C. Raises BadInput where C does not buy one update.
    """
    name, why = choose_panel(C, front["panels"])
    panel, law, cfg, caveat = front["panels"][name], laws[name], front["config"], []
    env, B_p = panel["envelope"], panel["B_p"]
    lo, hi = env["C"][0], env["C"][-1]
    observed = lo * (1 - 1e-9) <= C <= hi * (1 + 1e-9)
    own = "ns" in panel  # False: points from anywhere, each with an error of its own, so that a law through them is better
    if law["verdict"] == "law" and (C > hi and not observed or not own):
        numbers = {key: law[key]["value"] for key in ("L", "k", "log10_C0", "b")}
        n, by = 2 ** float(law_at(numbers, np.array([C]))[0]), "the law"
        if own and n < 0.7 * env["n"][-1]:
            caveat.append(f"the law lies below n = {env['n'][-1]}, which was on top at {si(hi)}: see what is near it there")
    elif observed:
        i = int(np.searchsorted(env["C"], C * (1 + 1e-9), side="right")) - 1
        n, by = env["n"][max(i, 0)], f"the {'frontier' if own else 'points'} at this budget"
    elif C < lo:
        n, by = env["n"][0], f"the smallest budget observed, {si(lo)}"
    else:
        n, by = env["n"][-1], f"the last observed n*, at {si(hi)}"
        caveat.append(f"no law ({law['verdict']}: {law['reason']}), so n* may be another at this budget")
    if not observed:
        caveat.insert(0, f"extrapolated: the data cover {si(lo)} to {si(hi)}")
    if panel.get("edge") and C >= 0.99 * hi:
        caveat.append(panel["edge"]["text"])

    rollouts = int(C / panel.get("per_rollout", 1))
    n = int(n) if own and by != "the law" else 2 ** round(math.log2(n))  # an n that was run, or the nearest power of 2
    cap = min(cfg["B_max"] or math.inf, rollouts) // B_p
    if n > cap:
        caveat.append(f"n = {n} capped by {'B_max' if rollouts > cap * B_p + B_p else 'the budget'}")
        n = 2 ** int(math.log2(cap)) if cap >= 1 else 0
    if n < 2:
        raise BadInput(f"--C={C:g}: below one update of B_p = {B_p} problems with n = 2")
    run = dict(cfg, B_p=B_p, n=n, C=rollouts)
    reward, each = reward_at(panel, C)
    near = [a["set"] for a in panel.get("near", ()) if observed and a["C"] <= C * (1 + 1e-9)]
    derived = derive(run)
    return dict(C=C, B_p=B_p, n=n, M=derived["M"], lr=derived["lr"], recipe=cfg["recipe"], panel=name, why_B_p=why, by=by,
                status="observed" if observed else "extrapolated", caveat=caveat, near=near[-1] if near else None,
                reward=reward, interval=None if each is None else [float(x) for x in np.percentile(each, LEVEL)],
                command=command(run))


# ---------------------------------------------------------------------------------------------------------------------
# Input, output

def si(x):
    """1270000 -> 1.27M: three digits and a suffix."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(x) >= 0.9995 * size:
            return f"{x / size:.3g}{letter}"
    return f"{x:.3g}"


def budget_ticks(ax, low, high):
    """Ticks of a log axis of budgets, written 10k, 20k, 50k: three a decade where there are few decades."""
    from matplotlib.ticker import LogLocator
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 2000 else (1,)))
    ax.xaxis.set_major_formatter(lambda C, _: si(C))


def read_points(path, cfg):
    """A CSV with columns C and n -> what frontier.json would hold of it: one panel whose frontier is these points.

    Raises BadInput that names the file, its columns, or the line.
    """
    try:
        with open(path, newline="") as file:
            rows = list(csv.DictReader(file, skipinitialspace=True))
            header = rows[0].keys() if rows else []
    except (OSError, UnicodeDecodeError, csv.Error) as e:
        raise BadInput(f"--points={path}: not a readable CSV file ({e})") from None
    if rows and not {"C", "n"} <= set(header):
        raise BadInput(f"--points={path}: expected the columns C and n, found {', '.join(map(str, header))}")
    points = []
    for i, row in enumerate(rows):
        try:
            C, n = float(row["C"]), float(row["n"])
        except (TypeError, ValueError):
            C = n = math.nan
        if not (0 < C < math.inf and 1 <= n < math.inf):
            raise BadInput(f"--points={path}: line {i + 2}: expected C above 0 and n from 1, not C={row['C']}, n={row['n']}")
        points.append((C, n))
    C, n = np.array(sorted(points)).T if points else (np.zeros(0), np.zeros(0))
    if len(np.unique(C)) < 5:
        raise BadInput(f"--points={path}: {len(np.unique(C))} different budgets C, a law with four numbers needs 5 or more")
    panel = dict(B_p=cfg["B_p"], envelope=dict(C=list(C), n=list(n), reward=None), switches=[])
    return dict(config=cfg, unit=cfg["unit"], metric="", covers="none, points alone do not say how sure they are",
                budget=C[-1], panels={f"B_p={cfg['B_p']}": panel})


def panel_laws(panel):
    """The laws of a panel of frontier.json by both estimators: (from `envelope`, with intervals; from `records`, or None).

    Where the curve on top ends because its runs do, what follows is not a crossing: the law uses the budgets before it.
    """
    thin, ns = (THIN, panel["ns"]) if "ns" in panel else (1, [None])  # points of a CSV are used as they are
    C, n = np.array(panel["envelope"]["C"])[::thin], np.array(panel["envelope"]["n"], float)[::thin]
    ends = [s["C"] for s in panel["switches"] if s.get("why") == "ends"]
    keep = C < min(ends, default=math.inf)
    paths = (panel.get("resampled") or {}).get("log2_n")
    law = law_of(C[keep], np.log2(n[keep]), np.array(paths, float)[:, keep] if paths else None, largest=ns[-1])
    if "ns" in panel and len(ns) == 1:
        law |= dict(verdict="undetermined", reason="the sweep has one n only, there is nothing to compare", flags=["one n"])
    if law["verdict"] == "law" and n[0] == ns[0]:
        law["flags"] = law["flags"] + [f"b rests on the smallest n of the grid, {ns[0]}"]
    if ends:
        law["flags"] = law["flags"] + [f"budgets from {si(min(ends))} on left out: the runs on top end there"]
    records = panel.get("records")
    if not records or len(records["C"]) < 5:
        return law, None
    return law, law_of(records["C"], records["log2_n_mean"], n=records["n"], largest=ns[-1])


def say(law):
    """A law in one or two lines of text."""
    if law["verdict"] != "law":
        return f"no law, {law['verdict']}: {law['reason']}"
    def number(name, digits):
        v = law[name]
        if law["support"] is None:
            return f"{v['value']:.{digits}f}"
        lo, hi = (f"{x:.{digits}f}" if x is not None else "open" for x in (v["lo"], v["hi"]))
        return f"{v['value']:.{digits}f} [{lo}, {hi}]"
    L, k, C0, b = (number(name, 2) for name in ("L", "k", "log10_C0", "b"))
    text = f"log2 n* = {L} / (1 + exp(-{k} (log10 C - {C0}))) + {b}\n  plateau n* = {number('plateau', 0)}"
    return text if law["support"] is None else f"{text}; {100 * law['support']:.0f}% of the resampled sweeps carry a law"


def report(p, front, label):
    """A prescription as a block of text that ends in a command to paste."""
    reward = "" if p["reward"] is None else f"; {front['metric']} {p['reward']:.3f}" + (
        " [{:.3f}, {:.3f}]".format(*p["interval"]) if p["interval"] else "")
    lines = [f"C = {si(p['C'])} {front['unit']} ({label}{p['status']})",
             f"  B_p = {p['B_p']}, n = {p['n']}, M = {p['M']}, lr = {p['lr']:.3g}, recipe {p['recipe']}{reward}",
             f"  n from {p['by']}" + (f"; B_p: {p['why_B_p']}" if p["why_B_p"] else "")]
    if p["near"] and len(p["near"]) > 1:
        lines.append(f"  not told from the best at this budget: n = {', '.join(map(str, p['near']))}")
    return "\n".join(lines + [f"  caution: {c}" for c in p["caveat"]] + [f"  {p['command']}"])


def figure(front, laws, prescriptions, path):
    """law.png: n*(C) by both estimators, the law with its band or the reason why there is none, and what lies beyond."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    panels, cols = front["panels"], min(len(front["panels"]), 2)
    rows = -(-len(panels) // cols)
    fig, axes = plt.subplots(rows, cols, figsize=(10.7, 1.7 + 4.2 * rows), squeeze=False, layout="constrained")
    for ax in axes.flat[len(panels):]:
        ax.set_visible(False)
    heights = [r for panel in panels.values() for r in panel["envelope"]["reward"] or ()]
    norm = matplotlib.colors.Normalize(min(heights, default=0), max(heights, default=1))
    for ax, (name, panel) in zip(axes.flat, panels.items()):
        env, law, records = panel["envelope"], laws[name], panel.get("records")
        C, n = np.array(env["C"]), np.array(env["n"])
        far = max([4 * C[-1]] + [p["C"] for p in prescriptions]) * 1.15
        if records:
            ax.plot(records["C"], 2 ** np.array(records["log2_n_mean"]), "D", ms=4.5, mfc="none", mec="0.45",
                    label="records: running average of n")
        ax.scatter(C, n, c=env["reward"] or "C0", norm=norm if env["reward"] else None, s=22, zorder=3,
                   label="envelope: n on top" if env["reward"] else "points")
        text = f"no law, {law['verdict']}: {law['reason']}"
        if law["verdict"] == "law":
            x = np.geomspace(C[0], far, 300)
            numbers = {key: law[key]["value"] for key in ("L", "k", "log10_C0", "b", "plateau")}
            text = "law: L {L:.2f}, k {k:.2f}, log10 C0 {log10_C0:.2f}, b {b:.2f}, plateau {plateau:.0f}".format(**numbers)
            if law["resampled"]:
                lo, hi = np.percentile(law_at({key: np.array(v) for key, v in law["resampled"].items()}, x), LEVEL, axis=0)
                ax.fill_between(x, 2 ** lo, 2 ** hi, color="C3", alpha=0.15, lw=0, label="90% band of the law")
            for part, style, label in ((x <= C[-1], "-", "law"), (x > C[-1], "--", "law, extrapolated")):
                ax.plot(x[part], 2 ** law_at(numbers, x[part]), color="C3", lw=2.2, ls=style, label=label)
            ax.axhline(numbers["plateau"], color="C3", lw=0.8, ls=":", label="its plateau")
        for status, fill in (("observed", "C1"), ("extrapolated", "white")):
            stars = [(p["C"], p["n"]) for p in prescriptions if p["panel"] == name and p["status"] == status]
            if stars:
                ax.plot(*zip(*stars), "*", ms=13, mfc=fill, mec="C1", zorder=4, label=f"prescribed, {status}")
        ax.axvspan(C[-1], far, color="0.5", alpha=0.13, lw=0)
        ax.text(math.sqrt(C[-1] * far), n.min() / 2.7, "extrapolated", ha="center", va="bottom", fontsize=9, color="0.3")
        ax.set(xscale="log", yscale="log", xlim=(C[0] / 1.2, far), ylim=(n.min() / 3, n.max() * 3),
               ylabel="compute-optimal n*(C)",
               xlabel="rollouts C = $B_p\\,n\\,M$" if front["unit"] == "rollouts" else "training tokens C")
        ax.set_title(f"{name.replace('B_p', '$B_p$')}\n{wrap(text, 112 // cols)}", fontsize=9.5,
                     color="C3" if law["verdict"] != "law" else "black")
        marks = 2.0 ** np.arange(math.floor(math.log2(n.min() / 2)), math.ceil(math.log2(n.max() * 2)) + 1)
        ax.set_yticks(marks, [f"{m:g}" for m in marks])
        ax.minorticks_off()
        budget_ticks(ax, C[0], far)
        ax.grid(alpha=0.25)
    if heights:
        fig.colorbar(matplotlib.cm.ScalarMappable(norm), ax=axes, pad=0.01, aspect=25 * rows,
                     label=f"validation {front['metric']} on the frontier")
    named = {label: handle for ax in axes.flat for handle, label in zip(*ax.get_legend_handles_labels())}
    fig.legend(named.values(), named.keys(), loc="outside lower center", fontsize=9, ncols=4)
    of = f" for validation {front['metric']}" if front["metric"] else ""
    fig.suptitle(f"The law n*(C){of}\n" + wrap("Intervals: " + front["covers"], 125), fontsize=10.5)
    with aside(path) as part:
        fig.savefig(part, dpi=150)
    plt.close(fig)


def wrap(text, width):
    import textwrap
    return "\n".join(textwrap.wrap(text, width))


def main(argv):
    cfg = parse(argv, __doc__)
    if cfg["points"]:
        front, out = read_points(cfg["points"], cfg), Path(cfg["out"] or Path(cfg["points"]).parent)
    else:
        out = Path(cfg["out"] or cfg["runs"])
        source = next((f for f in (out / "frontier.json", Path(cfg["runs"]) / "frontier.json") if f.exists()), None)
        if source is None:
            raise BadInput(f"--runs={cfg['runs']}: no frontier.json there, run frontier.py --runs={cfg['runs']} first")
        front = read_json(source)
        if not front.get("panels"):
            raise BadInput(f"{source}: holds no panels, run frontier.py --runs={cfg['runs']} again")
    both = {name: panel_laws(panel) for name, panel in front["panels"].items()}
    laws = {name: law for name, (law, _) in both.items()}
    # the panel that stands for the sweep: most switches, then most runs
    main_panel = max(front["panels"], key=lambda name: (len(front["panels"][name]["switches"]),
                                                        len(front["panels"][name].get("runs_used", ()))))

    budget, whose = float(front["budget"]), "the largest C of the points" if cfg["points"] else "the sweep's budget"
    budgets = {budget: f"{whose}, ", 4 * budget: f"4 x {whose}, "}
    if any(word.startswith("--C=") for word in argv):
        budgets = {float(cfg["C"]): "", **budgets}
    # tokens become rollouts by what the runs spent; points alone do not say what that was
    known = front["unit"] == "rollouts" or not cfg["points"]
    prescriptions = [prescribe(C, front, laws) for C in budgets] if known else []
    save_json(out / "law.json", dict(
        law=laws[main_panel] | dict(panel=main_panel), estimator="envelope", covers=front["covers"],
        panels={name: dict(envelope=law, records=records) for name, (law, records) in both.items()},
        prescriptions=prescriptions, metric=front["metric"], unit=front["unit"]), indent=None)
    figure(front, laws, prescriptions, out / "law.png")

    for name, (law, records) in both.items():
        print(f"{name}: {say(law)}")
        if records:
            print(f"  by the paper's way (records, maxima of noisy evaluations, no interval): {say(records)}")
    print(f"intervals: {front['covers']}\n")
    for p, label in zip(prescriptions, budgets.values()):
        print(report(p, front, label) + "\n")
    print(f"figure: {out / 'law.png'}   numbers: {out / 'law.json'}")


if __name__ == "__main__":
    entry(main)
