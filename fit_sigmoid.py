"""fit_sigmoid.py: every fit of the project: a reward curve over compute, the law n*(C), a prescription for a budget.

    python fit_sigmoid.py --runs=runs/easy                   # law and prescription from runs/easy/frontier.json
    python fit_sigmoid.py --runs=runs/easy --C=2e6           # and a prescription for 2 million rollouts
    python fit_sigmoid.py --points=mine.csv --B_p=32 --C=2e6 # the law through points of your own (columns C, n)

Reads `frontier.json` (frontier.py writes it; `frontier_VIEW.json` for --view=joint or fixed_B) or the CSV. Writes `law.json`
and `law.png` (`law_VIEW.*`) to `out`, or else beside what it read. Prints a verdict for each panel, how well each rule for
n*(C) predicts, the law's numbers, and one block for each budget that ends in a command to paste.

Curves. Each form is base + amp g(C), where the shape g rises from 0 to 1 and has at most two parameters of its own. For a
given shape the best base and amp are linear least squares in closed form, so what remains is a search in two dimensions: a
grid over the whole box (every grid point is a start), then ever finer grids around the best. What a form cannot follow is
added back by a local smoother of its residuals. Both steps are linear in small changes of the data, and `linear_fit` returns
that linear map: seeds, problems and halves of the samples are carried through it, and that is where all intervals come from.

The law. At each budget a spline in log2 n goes through the curves: the surface R(log n, log C). The law is the sigmoid
whose path over this surface earns the most reward, averaged over log C. Its intervals are inverted tests: a value of the
plateau is inside unless the slope of reward along log n, over the budgets where the plateau counts, differs from zero by
more than the noise. So flat directions give wide or open intervals, where a bootstrap of the argmax is too sure of itself.
No errors come from least squares on points n*(C): they are samples of a staircase, as many as one cares to draw.

To use it elsewhere copy it with config.py. Needs numpy, scipy for isotonic curves, matplotlib for the figure.
"""
import csv
import math
from pathlib import Path

import numpy as np

from config import BadInput, aside, command, derive, entry, parse, read_json, save_json

FORMS = ("sigmoid", "logistic", "exponential")
K_LAW = (0.5, 50.0)  # bounds of the law's k, per decade of C; the paper prints 50.00 once, surely where its search ended
LEVEL = 90           # percent of every interval
WIDTH = 0.15         # decades of C, the width of the local smoother


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


def smoother(C, w, grid):
    """Local linear regression in log10 C as a matrix: data (E,) at C -> (G,) at `grid`. C = 0 has no weight."""
    seen = C > 0
    x, at = np.log10(np.where(seen, C, 1)), np.log10(grid)
    width = max(WIDTH, 2 * np.ptp(x[seen]) / len(np.unique(x[seen])))  # two neighbours at least where evaluations are few
    d = x[None] - at[:, None]
    kernel = np.exp(-0.5 * (d / width) ** 2) * (w * seen)
    s0, s1, s2 = (np.sum(kernel * d ** j, 1, keepdims=True) for j in (0, 1, 2))
    ridge = 1e-3 * width ** 2 * s0  # towards the local mean, where all weight is on one evaluation
    return kernel * (s2 + ridge - d * s1) / np.maximum(s0 * (s2 + ridge) - s1 ** 2, 1e-300)


def linear_fit(C, R, w, grid, form="sigmoid", local=True):
    """Fit a curve and follow its residuals: data R (E,) with weights w (E,) at C -> (params, Y (G,) on `grid`, H (G, E)).

    Y is the form's curve plus, where `local`, the smoothed residuals (Tukey's twicing), not forced to be monotone. H is its
    derivative by the data, the delta method for the form: the curve of other data R' at the same C is about Y + H (R' - R).
    A parameter at its bound does not move.
    """
    p = fit_curve(C, R, w, form=form)
    (u0, u1, _), (v0, v1, _) = search_box(form, C)
    u, v = math.log10(p["C0"]) if form == "sigmoid" else p["C0"], math.log(p["k"])
    du, dv = 1e-4 * (u1 - u0), 1e-4
    free_u, free_v = (lo + 0.01 * (hi - lo) < t < hi - 0.01 * (hi - lo) for t, lo, hi in ((u, u0, u1), (v, v0, v1)))

    def jacobian(C):
        columns = [np.ones_like(C), basis(form, C, u, v)]
        columns += [p["amp"] * (basis(form, C, u + du, v) - basis(form, C, u - du, v)) / (2 * du)] if free_u else []
        columns += [p["amp"] * (basis(form, C, u, v + dv) - basis(form, C, u, v - dv)) / (2 * dv)] if free_v else []
        return np.stack(columns, 1)
    root = np.sqrt(w)
    J = jacobian(C) * root[:, None]
    size = np.linalg.norm(J, axis=0)  # C0 of `logistic` moves by millions, amp by tenths
    size[size == 0] = 1
    solve = np.linalg.pinv(J / size, rcond=1e-6) / size[:, None] * root  # (parameters, E)
    K = smoother(C, w, grid) * local
    H = jacobian(grid) @ solve + K - (K @ jacobian(C)) @ solve
    return p, curve(p, grid) + K @ (R - curve(p, C)), H


def monotone(y, w=None):
    """The closest rising sequence to y (G,), by least squares: isotonic regression, a curve without a form."""
    from scipy.optimize import isotonic_regression
    return isotonic_regression(y, weights=w).x


def choose_form(data):
    """One form for all curves, by the error on evaluations that the fit has not seen: (form, local, {name: rms error}).

    data: list of (C (E,), R (E,), w (E,)), one for each allocation; 12 of them, spread evenly, decide. Every second inner
    budget is held out, then the others (all seeds of a budget together; the ends stay, so this is interpolation). The form
    is `sigmoid`, the paper's, unless another has an error that is lower by more than two of its standard errors: the least
    error alone takes the stiffer form too often. `local`: does it predict better with its residuals smoothed and added.
    `isotonic`, which has no form, stands beside them as a check. With fewer than 8 budgets in some curve nothing can be held
    out: the form with the fewest parameters, and no errors.
    """
    if min(len(np.unique(C)) for C, _, _ in data) < 8:
        return "exponential", False, {}
    squares = {name: [] for name in (*FORMS, "isotonic", *(f"{form} + local" for form in FORMS))}
    for C, R, w in data[::-(-len(data) // 12)]:
        budgets, rank = np.unique(C, return_inverse=True)
        for fold in (0, 1):
            out = (rank % 2 == fold) & (rank > 0) & (rank < len(budgets) - 1)
            order, K = np.argsort(C[~out], kind="stable"), smoother(C[~out], w[~out], C[out])
            at = dict(isotonic=np.interp(C[out], C[~out][order], monotone(R[~out][order], w[~out][order])))
            for form in FORMS:
                p = fit_curve(C[~out], R[~out], w[~out], form=form)
                at[form] = curve(p, C[out])
                at[f"{form} + local"] = at[form] + K @ (R[~out] - curve(p, C[~out]))
            for name, y in at.items():
                squares[name].append(w[out] * (y - R[out]) ** 2)
    weight = sum(np.sum(w) for _, _, w in data) / sum(len(w) for _, _, w in data)
    squares = {name: np.concatenate(e) / weight for name, e in squares.items()}
    gain = {form: squares["sigmoid"] - squares[form] for form in FORMS}  # paired, point by point
    better = [form for form, g in gain.items() if g.mean() > 2 * g.std(ddof=1) / math.sqrt(len(g))]
    best = max(better, key=lambda form: gain[form].mean(), default="sigmoid")
    error = {name: math.sqrt(e.mean()) for name, e in squares.items()}
    return best, error[f"{best} + local"] < error[best], error


# ---------------------------------------------------------------------------------------------------------------------
# The law from points: log2 n* = L / (1 + exp(-k (log10 C - log10 C0))) + b

def law_bounds(C, log2_n):
    """Search box and upper bound of L + b for a law: C0 within half a decade of the data, n* at most twice the largest."""
    x = np.log10(C)
    return ((x.min() - 0.5, x.max() + 0.5, 31), (math.log(K_LAW[0]), math.log(K_LAW[1]), 25)), float(np.max(log2_n)) + 1


def fit_law(C, log2_n):
    """The law through points C (E,), log2 n* (E,) by least squares -> dict(L, k, log10_C0, b, plateau = 2^(L + b))."""
    box, top = law_bounds(C, log2_n)
    p = fit_curve(C, log2_n, form="sigmoid", top=top, box=box)
    return dict(L=p["amp"], k=p["k"], log10_C0=math.log10(p["C0"]), b=p["base"], plateau=2 ** (p["amp"] + p["base"]))


def law_at(law, C):
    """log2 n* that a law's numbers give at C (E,): (E,)."""
    return curve(dict(form="sigmoid", base=law["b"], amp=law["L"], k=law["k"], C0=10 ** law["log10_C0"]), C)


def judge(C, log2_n, law, n=None):
    """Do points C, log2_n (E,) carry the law fitted to them? Returns (verdict, reason, flags).

    law, flat (one n throughout) or undetermined. A law has four numbers, so it needs three values of n or more, none of
    its numbers at a bound, and points on both sides of its bend C0, up to three quarters of the rise at least, or the
    plateau is a guess. n: the values behind log2_n where that is an average.
    """
    n = 2 ** np.asarray(log2_n) if n is None else np.asarray(n)
    levels = len(np.unique(np.round(n, 6)))
    if levels == 1:
        return "flat", f"n = {n[0]:.0f} at every budget", []
    box, top = law_bounds(C, log2_n)
    p = dict(form="sigmoid", base=law["b"], amp=law["L"], C0=10 ** law["log10_C0"], k=law["k"])
    flags = [f"plateau above twice the largest n* ({n.max():.0f})" if "asymptote" in f else f
             for f in at_bounds(p, C, top, box)]
    first, last = shape(p, np.array([C[0], C[-1]]))
    start, end = (f"{n[i]:.0f} at {si(C[i])}" for i in (0, -1))
    if law["L"] * (last - first) < 0.5:
        return "undetermined", f"the trend of n* with C is below half an octave up: {start}, {end}", flags
    if levels < 3:
        return "undetermined", f"only {levels} values of n on the frontier, a law with four numbers needs 3 or more", flags
    if flags:
        return "undetermined", "the data do not determine it: " + ", ".join(flags), flags
    if last < 0.75:
        return "undetermined", f"the points end before the bend, {end}: the plateau is not seen", ["no plateau seen"]
    if first > 0.5:
        return "undetermined", f"the points begin past the bend, {start}: the start of the rise is not seen", ["b not seen"]
    return "law", f"n* rises, {start}, {end}, and bends inside the data", []


NUMBERS = ("L", "k", "log10_C0", "b", "plateau")


def law_of_points(C, log2_n, n=None):
    """Fit and judge the law of points: the entry of law.json. Numbers are dict(value, lo, hi), lo and hi null, all null
    without a law: points alone do not say how sure they are."""
    C, log2_n = np.asarray(C, float), np.asarray(log2_n, float)
    law = fit_law(C, log2_n)
    verdict, reason, flags = judge(C, log2_n, law, n)
    return {name: dict(value=float(law[name]) if verdict == "law" else None, lo=None, hi=None) for name in NUMBERS} | dict(
        verdict=verdict, reason=reason, flags=flags, range=[C[0], C[-1]], estimator="points")


# ---------------------------------------------------------------------------------------------------------------------
# The law from the surface R(log n, log C)

def arrays_of(surface, C=None):
    """A panel's surface as arrays: Y (N, G), noise (K, N, G); with C those of the nearest budget alone, (N,) and (K, N)."""
    Y = np.asarray(surface["Y"], float)
    noise = np.asarray(surface["noise"], float).reshape(-1, *Y.shape)  # no draws are an empty list in JSON
    if C is None:
        return Y, noise
    j = int(np.abs(np.log(np.array(surface["C"]) / C)).argmin())
    return Y[:, j], noise[:, :, j]


def surface_of(Y, z):
    """Curves Y (..., N, G) of the n with z = log2 n (N,) -> (..., G, Z), reward on a grid of log2 n, 8 steps an octave.

    At each budget a natural cubic spline goes through the curves of all n: a polynomial of low degree bends the optimum
    towards the middle of the grid. What smooths is the law, one path for all budgets.
    """
    from scipy.interpolate import CubicSpline
    fine = np.linspace(z[0], z[-1], round(8 * (z[-1] - z[0])) + 1)
    return np.swapaxes(Y, -1, -2) @ CubicSpline(z, np.eye(len(z)), bc_type="natural")(fine).T


def path_of(c, x):
    """Law coordinates c (4, ...) = b, L + b, log10 C0, log k -> log2 n* (..., G) at x = log10 C."""
    b, top, u, v = (a[..., None] for a in c)
    return b + (top - b) / (1 + np.exp(np.clip(-np.exp(v) * (x - u), -60, 60)))


def along(T, place):
    """Values of the table T (..., G, Z) at fractional places (V, G) of its last axis, linear in between: (..., V, G)."""
    i = np.clip(place.astype(int), 0, T.shape[-1] - 2)
    g = np.arange(T.shape[-2])
    return T[..., g, i] * (1 - place + i) + T[..., g, i + 1] * (place - i)


def best_law(T, z, x, name="", values=(None,)):
    """The law whose path over the surface T (G, Z) has the highest mean reward -> coordinates (4, V) of path_of.

    z: log2 n of the first and last column; x (G,) = log10 C, evenly spaced. name, values (V,): one number of the law (L, k,
    log10_C0, b, plateau; k as log k) is held at each of the values in turn. b and the plateau stay inside the grid of n.
    """
    low = np.array([z[0], z[0], x[0] - 0.3, math.log(K_LAW[0])])
    high = np.array([z[-1], z[-1], x[-1] + 0.3, math.log(K_LAW[1])])
    held = dict(b=0, plateau=1, L=1, log10_C0=2, k=3).get(name)
    shift = name == "L"  # the second coordinate is L and not L + b
    if shift:
        low[1], high[1] = 0, z[-1] - z[0]
    axes = [np.linspace(a, b, m) for a, b, m in zip(low, high, (11, 11, 13, 7))]
    step, moves = np.array([a[1] - a[0] for a in axes]), [[-1, 0, 1]] * 4

    def score(c):  # (4, ...) -> (...)
        c = np.array([c[0], c[1] + shift * c[0], c[2], c[3]])
        place = np.clip(8 * (path_of(c, x) - z[0]), 0, T.shape[1] - 1)
        inside = (c[1] >= c[0] - 1e-9) & (c[1] <= z[-1] + 1e-9)
        return np.where(inside, along(T, place).mean(-1), -np.inf)
    out = []
    for value in values:
        grid, trial = list(axes), list(moves)
        if held is not None:
            grid[held], trial[held] = np.array([value]), [0]
        c = np.array([a.ravel() for a in np.meshgrid(*grid, indexing="ij")])
        c = c[:, score(c).argmax()]
        d = np.array([a.ravel() for a in np.meshgrid(*trial, indexing="ij")])
        for i in range(9):
            near = np.clip(c[:, None] + 0.6 * 0.65 ** i * step[:, None] * d, low[:, None], high[:, None])
            c = near[:, score(near).argmax()]
        out.append([c[0], c[1] + shift * c[0], c[2], c[3]])
    return np.array(out).T


def half_width(noise):
    """Noise (K, ...) around an estimate -> half the width of its 90% interval (...), symmetric."""
    return np.percentile(np.abs(noise), LEVEL, axis=0)


def invert(values, statistic, half, at):
    """The interval of values (V,) around `at` whose statistic (V,) is no further from zero than `half` (V,).

    The statistic falls from positive to negative. Returns (lo, hi), None for an end that the data leave open.
    """
    t = statistic / np.maximum(half, 1e-12)
    lo, hi = np.flatnonzero((values <= at) & (t > 1)), np.flatnonzero((values >= at) & (t < -1))
    def edge(i, j, level):  # where t passes `level` between i (outside) and j (inside)
        return values[i] + (values[j] - values[i]) * np.clip((t[i] - level) / ((t[i] - t[j]) or 1), 0, 1)
    return (min(float(at), float(edge(lo[-1], min(lo[-1] + 1, len(t) - 1), 1))) if len(lo) else None,
            max(float(at), float(edge(hi[0], max(hi[0] - 1, 0), -1))) if len(hi) else None)


def law_of_surface(surface, intervals=NUMBERS):
    """Fit the law to a panel's surface -> its numbers, each dict(value, lo, hi, flag), and its path to 5 times the budgets.

    surface: dict(C (G,), ns (N,), Y (N, G), noise (K, N, G)), from frontier.json. For each number: the others are fitted
    again at each of its values, and the slope of the surface along log n, weighted by how much the path moves with the
    number, is tested against zero. An end of an interval is null where no value in the grid of n, or within 0.3 decades of
    the budgets, is rejected; `flag` names a value at its bound.
    """
    x, z = np.log10(surface["C"]), np.log2(surface["ns"])
    Y, noise = arrays_of(surface)
    T, wiggle = surface_of(Y, z), surface_of(noise, z)
    slope, wiggle = np.gradient(T, 1 / 8, axis=-1), np.gradient(wiggle, 1 / 8, axis=-1) if len(noise) else None
    best = best_law(T, z, x)[:, 0]
    point = dict(b=best[0], plateau=best[1], L=best[1] - best[0], log10_C0=best[2], k=best[3])
    octaves, log_k = z[-1] - z[0], np.log(K_LAW)
    bounds = dict(b=(z[0], z[-1]), plateau=(z[0], z[-1]), L=(0, octaves), log10_C0=(x[0] - 0.3, x[-1] + 0.3), k=log_k)
    out = {}
    for name in NUMBERS:
        lo = hi = None
        if len(noise) and name in intervals:
            values = np.linspace(*bounds[name], 8 * round(octaves) + 1 if name in ("b", "plateau", "L") else 25)
            c = best_law(T, z, x, name, values)  # (4, V)
            other = c.copy()  # the same law a little further along this number; L and the plateau both lift the top
            other[dict(b=0, plateau=1, L=1, log10_C0=2, k=3)[name]] += 0.02
            path = path_of(c, x)
            place, weight = np.clip(8 * (path - z[0]), 0, T.shape[1] - 1), (path_of(other, x) - path) / 0.02  # (V, G)
            statistic = (along(slope, place) * weight).mean(-1)
            lo, hi = invert(values, statistic, half_width((along(wiggle, place) * weight).mean(-1)), point[name])
        (low, high), place = bounds[name], (point[name] - bounds[name][0]) / (bounds[name][1] - bounds[name][0])
        edge = "lower" if place < 0.02 else "upper" if place > 0.98 else ""
        as_n = {"plateau": lambda v: 2 ** v, "k": math.exp}.get(name, float)
        out[name] = {key: None if v is None else float(as_n(v)) for key, v in dict(value=point[name], lo=lo, hi=hi).items()}
        out[name]["flag"] = f"{name} at its {edge} bound {as_n(high if edge == 'upper' else low):.3g}" if edge else ""
    far = np.linspace(x[0], x[-1] + math.log10(5), 60)
    return out | dict(path=dict(C=10 ** far, log2_n=path_of(best, far)))


# ---------------------------------------------------------------------------------------------------------------------
# The verdict on a sweep

def told_apart(Y, noise):
    """The model confidence set: estimates Y (N,) with noise (K, N) -> mask (N,) of those not told from the best.

    An estimate is out where it lies below the highest by more than c of the standard errors of that difference; c is the
    90th percentile of the largest such ratio that noise alone makes, so it counts how many were compared.
    """
    top = int(np.argmax(Y))
    if not len(noise):
        return np.full(len(Y), True)
    gap = noise - noise[:, [top]]
    error = np.maximum(gap.std(0), 1e-12)
    c = np.percentile((gap / error)[:, np.arange(len(Y)) != top].max(1), LEVEL) if len(Y) > 1 else 0
    return (Y[top] - Y <= c * error) | (np.arange(len(Y)) == top)


def verdict_of(surface, delta):
    """law, flat or undetermined, with the evidence: dict(verdict, reason, sets, constant, regret, regret_upper).

    law: n* rises. The budgets that all n reached are cut into three parts, evenly in log C. In each the n not told from the
    best are found; a law is shown where one part's set lies wholly below a later part's. By chance that happens in at most
    1% of planted sweeps without a law (tests/bench/coverage.py). flat: one n loses less than `delta` reward against the best
    n at each budget, in each part on average, at the upper end of a one-sided 95% interval. Both can hold; then it is flat,
    for that n will do.
    """
    ns, (Y, noise) = list(surface["ns"]), arrays_of(surface)
    parts = np.array_split(np.arange(Y.shape[1]), 3)
    sets = [[n for n, ok in zip(ns, told_apart(Y[:, g].mean(1), noise[:, :, g].mean(2))) if ok] for g in parts]
    def worst(Y):  # (..., N, G) -> (..., N), the part where a constant n loses most
        loss = Y.max(-2, keepdims=True) - Y
        return np.max([loss[..., g].mean(-1) for g in parts], 0)
    regret, again = worst(Y), worst(Y + noise)  # (N,), (K, N); the maximum of noise only adds to it
    upper = np.percentile(again, 95, axis=0) if len(noise) else np.full(len(ns), np.inf)
    i = int(np.argmin(upper)) if len(noise) else int(np.argmin(regret))
    out = dict(sets=[dict(C=[surface["C"][g[0]], surface["C"][g[-1]]], ns=s) for g, s in zip(parts, sets)],
               constant=ns[i], regret=regret[i], regret_upper=upper[i] if len(noise) else None)
    said = ", ".join(f"{{{', '.join(map(str, s))}}}" for s in sets)
    constant = f"n = {ns[i]} throughout loses {regret[i]:.3f} of reward in the third where it loses most"
    if len(noise):
        constant += f" (below {upper[i]:.3f}, 95%)"
    rises = len(noise) and any(max(a) < min(b) for j, a in enumerate(sets) for b in sets[j + 1:])
    falls = len(noise) and any(min(a) > max(b) for j, a in enumerate(sets) for b in sets[j + 1:])
    evidence = f"n not told from the best in the first, middle and last third of log C: {said}; {constant}"
    if len(ns) == 1:
        return out | dict(verdict="undetermined", reason="the sweep has one n only, there is nothing to compare")
    if not len(noise):
        return out | dict(verdict="undetermined", reason=f"no intervals (boot=0); {constant}")
    if upper[i] < delta:
        rise = "; n* does rise" if rises else ""
        return out | dict(verdict="flat", reason=f"{constant}, less than delta = {delta:g}{rise}")
    if rises and not falls:
        return out | dict(verdict="law", reason=f"n* rises: {evidence}")
    why = "n* falls" if falls else "no rise of n* is shown, nor that one n will do"
    return out | dict(verdict="undetermined", reason=f"{why}: {evidence}")


# ---------------------------------------------------------------------------------------------------------------------
# Rules for n*(C), from the simplest on, and how well they predict

def most_frequent(C, y):
    values, times = np.unique(y, return_counts=True)
    return lambda at: np.full(len(at), values[times.argmax()])


def sigmoid_rule(C, y):
    law = fit_law(C, y)
    return lambda at: law_at(law, at)


def line_rule(C, y):
    a, b = np.polyfit(np.log2(C), y, 1)
    return lambda at: a * np.log2(at) + b


# each: points C (E,), y = log2 n* (E,) -> a function of C (F,) that predicts log2 n* (F,)
RULES = {
    "constant n": most_frequent,
    "last n": lambda C, y: lambda at: np.full(len(at), y[-1]),
    "constant M": lambda C, y: lambda at: np.log2(at) + np.mean(y - np.log2(C)),  # C = B_p n M, so n goes with C
    "log-linear": line_rule,
    "isotonic": lambda C, y: lambda at, rising=monotone(y): np.interp(at, C, rising),
    "sigmoid": sigmoid_rule,
}


def simplest(scores, error):
    """The first of the rules, from the simplest on, within one standard error of the best: (name, why).

    scores {name: (U,)}: a loss in each of U held-out units; error: what these are, for the text. The standard error is that
    of the difference to the best rule, paired over units.
    """
    best = min(scores, key=lambda name: np.mean(scores[name]))
    for name, loss in scores.items():
        gap = np.asarray(loss) - scores[best]
        se = gap.std(ddof=1) / math.sqrt(len(gap)) if len(gap) > 1 else 0.0
        if gap.mean() <= se + 1e-12:
            return name, "the best" if name == best else (
                f"the simplest within one standard error ({se:.4f}, {error}) of the best, {best}")


def predict_points(C, y):
    """How well each rule predicts points C, y = log2 n* (E,) from those up to C/2, C/4 and C/8: the paper's own question.

    Returns ([dict(rule, factor, octaves)], recommended, why): mean absolute error in octaves over the targets that have 3
    budgets or more in what the rule saw. Predictions stay between the smallest and four times the largest n seen.
    """
    errors = {name: {} for name in RULES}
    for factor in (2, 4, 8):
        for j in range(len(C)):
            seen = C <= C[j] / factor * (1 + 1e-9)
            if len(np.unique(C[seen])) >= 3:
                for name, rule in RULES.items():
                    guess = np.clip(rule(C[seen], y[seen])(C[[j]])[0], y[seen].min(), y[seen].max() + 2)
                    errors[name].setdefault(factor, []).append(abs(guess - y[j]))
    if not errors["last n"]:
        return [], None, "too few points to predict any from those at half their budget"
    rows = [dict(rule=name, factor=f, octaves=float(np.mean(e))) for name, by in errors.items() for f, e in by.items()]
    pooled = {name: np.concatenate(list(by.values())) for name, by in errors.items()}
    return rows, *simplest(pooled, "over the points, which err together")


# ---------------------------------------------------------------------------------------------------------------------
# A panel's law and the prescription

def law_of_panel(panel, delta):
    """The entry of law.json for a panel of frontier.json: the verdict with its evidence, the law's numbers, flags.

    The numbers are null unless the verdict is law, and one at its bound is null with a flag: the data do not determine it.
    """
    surface = panel["surface"]
    out = dict(range=panel["range"], flags=[], estimator="envelope", path=None) | {
        name: dict(value=None, lo=None, hi=None) for name in NUMBERS}
    if surface is None:
        return out | dict(verdict="undetermined", reason="the runs of all n share less than a factor 4 of budgets")
    out |= verdict_of(surface, delta)
    if surface["left_out"]:
        out["flags"].append(f"n = {', '.join(map(str, surface['left_out']))} left out of the law: their runs end early")
    if len(surface["ns"]) >= 3:
        fit = law_of_surface(surface, NUMBERS if out["verdict"] == "law" else ())
        out["path"] = fit["path"]
        if out["verdict"] == "law":
            out["flags"] += [fit[name]["flag"] for name in NUMBERS if fit[name]["flag"]]
            for name in NUMBERS:
                out[name] = dict(fit[name], value=None if fit[name]["flag"] else fit[name]["value"])
            if fit["b"]["flag"] or fit["plateau"]["flag"]:  # then it is where the rise is cut off by the grid of n
                out["log10_C0"].update(lo=None, hi=None)
                out["flags"].append("the interval of log10_C0, since an end of the rise lies outside the grid of n")
    elif out["verdict"] == "law":
        out["flags"].append("two values of n: a law with four numbers needs 3 or more")
    return out


def at_budget(C, panel, key):
    """A series of the panel's frontier at C, linear in log C; None where it is not known."""
    env = panel["envelope"]
    if not env.get(key) or not env["C"][0] * (1 - 1e-9) <= C <= env["C"][-1] * (1 + 1e-9):
        return None
    return float(np.interp(math.log(C), np.log(env["C"]), np.array(env[key], float)))


def choose_panel(C, front):
    """Which panel to take at C: the smallest B_p among those not told from the best at this budget. Returns (name, why).

    Budgets are those of the table of options; above the largest it is the largest. The smallest, because B_p mainly serves
    stability (paper, section 4.3); frontier.py drops no unstable run, so look at its notes on declining ones.
    """
    panels = front["panels"]
    if len(panels) == 1 or not front.get("options"):
        return next(iter(panels)), ""
    at = min(front["options"], key=lambda o: abs(math.log(o["C"] / C)))
    sizes = sorted({row["B_p"] for row in at["rows"] if not row["told"]})
    name = next((name for name, panel in panels.items() if panel["B_p"] == sizes[0]), next(iter(panels)))
    if len(sizes) == 1:
        return name, f"it has the best cell at C = {si(at['C'])}"
    return name, f"the smallest of {', '.join(map(str, sizes))}, which the noise does not separate at C = {si(at['C'])}"


def prescribe(C, front, laws):
    """What to run with a budget C (in the unit of the sweep): dict(B_p, n, M, lr, recipe, expected reward, command, ...).

    front: the content of frontier.json; laws: {panel: entry of law_of_panel}. Inside the budgets that were run, n is the one
    on top of the frontier; above them it is what the rule says that predicted best, to the nearest power of 2. n is capped
    by B_max and by C. Raises BadInput where C does not buy one update.
    """
    name, why = choose_panel(C, front)
    panel, law, cfg, caveat = front["panels"][name], laws[name], front["config"], []
    env, B_p = panel["envelope"], panel["B_p"]
    lo, hi = env["C"][0], env["C"][-1]
    observed = lo * (1 - 1e-9) <= C <= hi * (1 + 1e-9)
    own = "ns" in panel  # False: points from anywhere
    i = int(np.clip(np.searchsorted(env["C"], C * (1 + 1e-9), side="right") - 1, 0, len(env["C"]) - 1))
    if B_p is None:  # best over B_p: that of the pair on top
        B_p = int(env["B_p"][i])
    rule, expected = panel["prediction"]["recommended"], None
    if observed and own:
        n, by = env["n"][i], "the frontier at this budget"
    elif C < lo:
        n, by = env["n"][0], f"the smallest budget observed, {si(lo)}"
    elif law["verdict"] == "flat" and own:
        n, by = law["constant"], "the verdict flat: one n at every budget"
    elif own and not rule and law["verdict"] == "law" and law["path"]:  # views whose rules were not tried
        n, by = 2 ** float(np.interp(math.log(C), np.log(law["path"]["C"]), law["path"]["log2_n"])), "the law"
    elif not own and law["verdict"] == "law" and (observed or not rule):
        n, by = 2 ** float(law_at({key: law[key]["value"] for key in NUMBERS[:4]}, np.array([C]))[0]), "the law"
    elif rule:
        n = 2 ** float(RULES[rule](np.array(env["C"]), np.log2(env["n"]))(np.array([C]))[0])
        by = f"the rule `{rule}`, which predicts best here ({panel['prediction']['why']})"
        tried = [r for r in panel["prediction"]["rows"] if r["rule"] == rule and "regret" in r]
        if tried:
            near = min(tried, key=lambda r: abs(r["factor"] - C / hi))
            expected = f"predicting {near['factor']} times ahead, it lost {100 * near['regret']:.1f} points of reward here"
    else:
        n, by = env["n"][-1], f"the last observed n*, at {si(hi)}"
    if not observed:
        caveat.append(f"extrapolated: the data cover {si(lo)} to {si(hi)}")
        if law["verdict"] == "undetermined":
            caveat.append("no law (undetermined), so n* may be another at this budget")
    if panel.get("edge") and C >= 0.99 * hi:
        caveat.append(panel["edge"]["text"])

    n = int(n) if own and n in panel["ns"] else 2 ** round(math.log2(n))  # an n that was run, or the nearest power of 2
    # what a rollout costs in this unit, by the run whose n is nearest
    cost = panel.get("per_rollout") or {"1": 1.0}
    rollouts = int(C / cost[min(cost, key=lambda m: abs(math.log2(int(m) / max(n, 1))))])
    cap = min(cfg["B_max"] or math.inf, rollouts) // B_p
    if n > cap:
        caveat.append(f"n = {n} capped by {'B_max' if rollouts > cap * B_p + B_p else 'the budget'}")
        n = 2 ** int(math.log2(cap)) if cap >= 1 else 0
    if n < 2:
        raise BadInput(f"--C={C:g}: below one update of B_p = {B_p} problems with n = 2")
    run = dict(cfg, B_p=B_p, n=n, C=rollouts)
    near = [a["set"] for a in panel.get("near", ()) if observed and a["C"] <= C * (1 + 1e-9)]
    derived, surface = derive(run), panel.get("surface")
    regret = None
    if observed and own and surface and surface["noise"] and n in surface["ns"]:
        drawn = sum(arrays_of(surface, C))  # (K, N)
        regret = float(np.percentile(drawn.max(1) - drawn[:, surface["ns"].index(n)], 95))
    interval = [at_budget(C, panel, end) for end in ("lo", "hi")]
    further = what_next(C, panel, near[-1] if near else (), n) if own else None
    return dict(C=C, B_p=B_p, n=n, M=derived["M"], lr=derived["lr"], recipe=cfg["recipe"], panel=name, why_B_p=why, by=by,
                status="observed" if observed else "extrapolated", caveat=caveat, near=near[-1] if near else None,
                reward=at_budget(C, panel, "reward"), interval=None if interval[0] is None else interval, regret=regret,
                expected=expected, next=further, command=command(run))


def what_next(C, panel, near, n):
    """Runs that would make the answer surer, as text: the cell beyond the grid's edge, else seeds of what is close."""
    if panel.get("edge") and panel["edge"]["add"] and C >= 0.99 * panel["envelope"]["C"][-1]:
        return "add B_p = {B_p}, n = {n}: the best is at the grid's edge".format(**panel["edge"]["add"])
    surface, S = panel.get("surface"), len(panel["seeds"])
    others = [m for m in near if m != n and surface and m in surface["ns"] and n in surface["ns"]]
    if not others or not surface["noise"]:
        return None
    names = ", ".join(map(str, sorted({n, *others})))
    if S == 1:
        return f"a second and third seed of n = {names}: with one, the variation from run to run is not known"
    (Y, noise), mine = arrays_of(surface, C), surface["ns"].index(n)
    gap = {m: Y[mine] - Y[i] for i, m in enumerate(surface["ns"]) if m in others}
    far = max(gap, key=gap.get)
    half = float(half_width(noise[:, mine] - noise[:, surface["ns"].index(far)]))
    more = math.ceil(S * (half / gap[far]) ** 2) if gap[far] > 0 else math.inf
    if more >= 100:
        return f"nothing cheap: n = {names} are too close to tell apart"
    return f"more seeds of n = {names} (about {more} in all to tell n = {far} from n = {n})"


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
    rows, rule, why = predict_points(C, np.log2(n))
    panel = dict(B_p=cfg["B_p"], envelope=dict(C=list(C), n=list(n)), switches=[],
                 prediction=dict(rows=rows, recommended=rule, why=why))
    return dict(config=cfg, unit=cfg["unit"], label="", covers="none, points alone do not say how sure they are",
                budget=C[-1], panels={f"B_p={cfg['B_p']}": panel})


def say(law):
    """A law or its absence in a few lines of text."""
    if law["verdict"] != "law":
        return f"{law['verdict']}: {law['reason']}"

    def number(name, digits):
        v = law[name]
        if v["value"] is None:
            return "?"
        if law["estimator"] == "points":
            return f"{v['value']:.{digits}f}"
        lo, hi = (f"{x:.{digits}f}" if x is not None else "open" for x in (v["lo"], v["hi"]))
        return f"{v['value']:.{digits}f} [{lo}, {hi}]"
    L, k, C0, b = (number(name, 2) for name in ("L", "k", "log10_C0", "b"))
    text = f"law: {law['reason']}\n  log2 n* = {L} / (1 + exp(-{k} (log10 C - {C0}))) + {b}"
    text += f"\n  plateau n* = {number('plateau', 0)}"
    return text + "".join(f"\n  not determined: {flag}" for flag in law["flags"])


def say_rules(prediction, by_n):
    """How the rules predict, as a table: regret in reward (or only octaves, for points) by how far ahead."""
    rows = prediction["rows"]
    if not rows:
        return f"  predictions: {prediction['why']}"
    factors = sorted({r["factor"] for r in rows})
    what = f", {prediction['judged']}: regret in points of reward (octaves of n)" if by_n else ": error in octaves of n"
    text = [f"  predicting n* from budgets up to C/{', C/'.join(map(str, factors))}{what}"]
    for rule in RULES:
        cells = [next(r for r in rows if r["rule"] == rule and r["factor"] == f) for f in factors]
        cells = [f"{100 * r['regret']:6.2f} ({r['octaves']:.1f})" if by_n else f"{r['octaves']:6.2f}" for r in cells]
        text.append(f"    {rule:>10}  " + "   ".join(cells))
    return "\n".join(text + [f"    recommended: {prediction['recommended']}, {prediction['why']}"])


def report(p, front, label):
    """A prescription as a block of text that ends in a command to paste."""
    reward = "; no run reached it, so no reward is given" if front["label"] else ""
    if p["reward"] is not None:
        reward = f"; {front['label']} {p['reward']:.3f}"
        reward += " [{:.3f}, {:.3f}]".format(*p["interval"]) if p["interval"] else ""
    lines = [f"C = {si(p['C'])} {front['unit']} ({label}{p['status']})",
             f"  B_p = {p['B_p']}, n = {p['n']}, M = {p['M']}, lr = {p['lr']:.3g}, recipe {p['recipe']}{reward}",
             f"  n from {p['by']}" + (f"; B_p: {p['why_B_p']}" if p["why_B_p"] else "")]
    if p["near"] and len(p["near"]) > 1:
        lines.append(f"  not told from the best at this budget: n = {', '.join(map(str, p['near']))}")
    if p["regret"] is not None:
        lines.append(f"  if another n is better, it is so by less than {p['regret']:.3f} (95%)")
    lines += [f"  {p['expected']}"] if p["expected"] else []
    lines += [f"  caution: {c}" for c in p["caveat"]] + ([f"  to be surer: {p['next']}"] if p["next"] else [])
    return "\n".join([*lines, f"  {p['command']}"])


def figure(front, laws, prescriptions, path):
    """law.png: n*(C) by both estimators, the law or the reason why there is none, and what lies beyond."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    panels, cols = front["panels"], min(len(front["panels"]), 2)
    rows = -(-len(panels) // cols)
    fig, axes = plt.subplots(rows, cols, figsize=(10.7, 2.0 + 4.4 * rows), squeeze=False, layout="constrained")
    for ax in axes.flat[len(panels):]:
        ax.set_visible(False)
    for ax, (name, panel) in zip(axes.flat, panels.items()):
        env, law, records = panel["envelope"], laws[name], panel.get("records")
        C, n = np.array(env["C"]), np.array(env["n"], float)
        stars = [p for p in prescriptions if p["panel"] == name]
        far, high = max([4 * C[-1]] + [p["C"] for p in stars]) * 1.15, max([n.max()] + [p["n"] for p in stars])
        x = np.geomspace(C[0], far, 300)
        if panel.get("near"):
            ax.plot(*zip(*[(a["C"], m) for a in panel["near"] for m in a["set"]]), "s", color="0.82", ms=7,
                    label="n not told from the best")
        if records:
            ax.plot(records["C"], 2 ** np.array(records["log2_n_mean"]), "DC1", ms=4.5, mfc="none",
                    label="records: running average of n")
        ax.plot(C, n, "o", color="C0", ms=4, zorder=3, label="envelope: n on top" if "ns" in panel else "points")
        M = np.exp(np.mean(np.log(C) - np.log(n)))  # up to B_p
        ax.plot(x, x / M, color="0.45", lw=1.2, ls=(0, (4, 2, 1, 2)), label="constant M", zorder=1)
        text = f"{law['verdict']}: {law['reason'].split(':')[0]}"
        if law["verdict"] == "law":
            if law["estimator"] == "points":
                numbers = {key: law[key]["value"] for key in NUMBERS}
                y = law_at(numbers, x)
                text = "law: L {L:.2f}, k {k:.2f}, log10 C0 {log10_C0:.2f}, b {b:.2f}, plateau {plateau:.0f}"
                text = text.format(**numbers)
            elif law["path"]:
                y = np.interp(np.log(x), np.log(law["path"]["C"]), law["path"]["log2_n"], left=np.nan, right=np.nan)
                text = "law: n* rises; " + ", ".join(
                    f"{key} {'?' if law[key]['value'] is None else format(law[key]['value'], '.3g')}" for key in NUMBERS)
                lo, hi = law["plateau"]["lo"], law["plateau"]["hi"]
                if lo or hi:
                    ax.axhspan(lo or n.min() / 3, hi or high * 3, color="C3", alpha=0.10, lw=0,
                               label="90% interval of the plateau")
            else:
                y = np.full(len(x), np.nan)
            for part, style, label in ((x <= C[-1], "-", "law"), (x > C[-1], "--", "law, extrapolated")):
                ax.plot(x[part], 2 ** y[part], color="C3", lw=2.2, ls=style, label=label)
        for status, fill in (("observed", "C1"), ("extrapolated", "white")):
            at = [(p["C"], p["n"]) for p in stars if p["status"] == status]
            if at:
                ax.plot(*zip(*at), "*", ms=13, mfc=fill, mec="C1", zorder=4, label=f"prescribed, {status}")
        ax.axvspan(C[-1], far, color="0.5", alpha=0.13, lw=0)
        ax.text(math.sqrt(C[-1] * far), n.min() / 2.7, "extrapolated", ha="center", va="bottom", fontsize=9, color="0.3")
        ax.set(xscale="log", yscale="log", xlim=(C[0] / 1.2, far), ylim=(n.min() / 3, high * 3), ylabel="compute-optimal n*",
               xlabel={"updates": "updates M", "tokens": "training tokens C", "gpu_hours": "GPU-hours of training C"}.get(
                   front["unit"], "rollouts C = $B_p\\,n\\,M$"))
        ax.set_title(f"{name.replace('B_p', '$B_p$')}\n{wrap(text, 112 // cols)}", fontsize=9.5)
        marks = 2.0 ** np.arange(math.floor(math.log2(n.min() / 2)), math.ceil(math.log2(high * 2)) + 1)
        ax.set_yticks(marks, [f"{m:g}" for m in marks])
        ax.minorticks_off()
        budget_ticks(ax, C[0], far)
        ax.grid(alpha=0.25)
    named = {label: handle for ax in axes.flat for handle, label in zip(*ax.get_legend_handles_labels())}
    fig.legend(named.values(), named.keys(), loc="outside lower center", fontsize=9, ncols=4)
    of = f" for {front['label']}, {len(front['runs_used'])} runs used" if front["label"] else ""
    fig.suptitle(f"n*(C){of}\n" + wrap("Intervals: " + front["covers"], 125), fontsize=10.5)
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
        if cfg["view"] not in ("fixed_Bp", "joint", "fixed_B"):
            raise BadInput(f"--view={cfg['view']}: a law is fitted to fixed_Bp, joint or fixed_B")
        name = "frontier.json" if cfg["view"] == "fixed_Bp" else f"frontier_{cfg['view']}.json"
        source = next((f for f in (out / name, Path(cfg["runs"]) / name) if f.exists()), None)
        if source is None:
            view = "" if cfg["view"] == "fixed_Bp" else f" --view={cfg['view']}"
            raise BadInput(f"--runs={cfg['runs']}: no {name} there, run frontier.py --runs={cfg['runs']}{view} first")
        front = read_json(source)
        if not front.get("panels") or not all("surface" in p for p in front["panels"].values()):
            raise BadInput(f"{source}: not from this version, run frontier.py --runs={cfg['runs']} again")
        for panel in front["panels"].values():
            panel.setdefault("prediction", dict(rows=[], recommended=None, why="for one B_p at a time, see --view=fixed_Bp"))
    if cfg["points"]:
        laws = {name: law_of_points(p["envelope"]["C"], np.log2(p["envelope"]["n"])) for name, p in front["panels"].items()}
    else:
        laws = {name: law_of_panel(panel, cfg["delta"]) for name, panel in front["panels"].items()}
    paper = {name: law_of_points(p["records"]["C"], p["records"]["log2_n_mean"], n=p["records"]["n"])
             for name, p in front["panels"].items() if len(p.get("records", {}).get("C", ())) >= 5}
    # the panel that stands for the sweep: most switches, then most runs
    main_panel = max(front["panels"], key=lambda name: (len(front["panels"][name]["switches"]),
                                                        len(front["panels"][name].get("runs_used", ()))))

    budget, whose = float(front["budget"]), "the largest C of the points" if cfg["points"] else "the sweep's budget"
    budgets = {budget: f"{whose}, ", 4 * budget: f"4 x {whose}, "}
    if any(word.startswith("--C=") for word in argv):
        budgets = {float(cfg["C"]): "", **budgets}
    # tokens become rollouts by what the runs spent; points alone do not say what that was, and updates are no budget
    known = (front["unit"] == "rollouts" or not cfg["points"]) and cfg["view"] != "fixed_B"
    prescriptions = [prescribe(C, front, laws) for C in budgets] if known else []
    panels = {name: dict(envelope=law, records=paper.get(name), prediction=front["panels"][name]["prediction"])
              for name, law in laws.items()}
    law_file = out / ("law" if cfg["points"] or cfg["view"] == "fixed_Bp" else f"law_{cfg['view']}")
    save_json(f"{law_file}.json", dict(
        law=laws[main_panel] | dict(panel=main_panel), estimator="points" if cfg["points"] else "envelope",
        covers=front["covers"], panels=panels, prescriptions=prescriptions, label=front["label"], unit=front["unit"]),
        indent=None)
    figure(front, laws, prescriptions, f"{law_file}.png")

    for name, law in laws.items():
        print(f"{name}: {say(law)}")
        print(say_rules(front["panels"][name]["prediction"], not cfg["points"]))
        if name in paper:
            print(f"  by the paper's way (records, maxima of noisy evaluations, no interval): {say(paper[name])}")
    print(f"intervals: {front['covers']}\n")
    for p, label in zip(prescriptions, budgets.values()):
        print(report(p, front, label) + "\n")
    print(f"figure: {law_file}.png   numbers: {law_file}.json")


if __name__ == "__main__":
    entry(main)
