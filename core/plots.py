"""core/plots.py: the two figures of the analysis, and helpers for all figures.

It imports matplotlib only when a figure is drawn.
"""
import logging
import math
import os
import re

import numpy as np

from core.log import atomic_write

# the colours of n = 2, 4, 8, ..., 4096; colour-blind readers see neighbours as different
SHADES = ("#001652 #0e46e8 #266bb6 #12848c #31914f #8fb82a #e0a300 #d45900 #f41448 #bc1970 #4e145f "
          "#6b4a2b").split()
AXIS = dict(rollouts="rollouts C = $B_p\\,n\\,M$", tokens="training tokens C",
            gpu_hours="GPU-hours or core-hours of training C", updates="updates M")


def format_si(x):
    """Return a number as text with three digits and a suffix: 49152 -> 49.2k."""
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if 0.9995 * size <= abs(x) < 9.995e14:
            return f"{x / size:.3g}{letter}"
    return f"{x:.3g}"


def plural(k, noun):
    """Return a count with its noun: 1 run, 2 runs."""
    return f"{k} {noun}" + "s" * (k != 1)


def colour(n):
    """Return the colour of n, the same in every figure; a mix if n is not a power of 2."""
    from matplotlib.colors import to_rgb
    x = min(max(math.log2(n) - 1, 0), len(SHADES) - 1)
    below, above = to_rgb(SHADES[math.floor(x)]), to_rgb(SHADES[math.ceil(x)])
    return tuple(a + x % 1 * (b - a) for a, b in zip(below, above))


def canvas(rows, cols, size, **more):
    """Return (figure, axes (rows, cols)) of a figure that is only saved. size: inches."""
    # a notebook's backend may be missing here, and a read-only HOME makes matplotlib warn
    os.environ["MPLBACKEND"] = "agg"
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    from matplotlib.figure import Figure
    fig = Figure(size, layout="constrained")
    return fig, fig.subplots(rows, cols, squeeze=False, **more)


def write(fig, path):
    """Write a figure atomically, making its folder."""
    with atomic_write(path) as part:
        fig.savefig(part, dpi=110)


def save(fig, path, title):
    """Write a figure with a title and one legend below all axes."""
    handles = {}
    for ax in fig.axes:
        for handle, label in zip(*ax.get_legend_handles_labels()):
            handles.setdefault(label, handle)
    handles = dict(sorted(handles.items(), key=lambda item: [  # n in order, then the rest
        int(x) for x in re.findall(r"\d+", item[0])] if item[0][:2] == "n " else [math.inf]))
    if handles:
        columns = max(1, min(len(handles), int(fig.get_figwidth() / 2.7)))
        fig.set_figheight(fig.get_figheight() + 0.2 * max(0, len(handles) / columns - 8))
        fig.legend(handles.values(), handles, loc="outside lower center", ncols=columns,
                   fontsize=9, frameon=False)
    fig.suptitle(title, fontsize=11)
    write(fig, path)


def budget_axis(ax, low, high, unit=""):
    """Make x a log axis from low to high: powers of ten, or also 2 and 5 below two decades."""
    from matplotlib.ticker import LogFormatterMathtext, LogLocator, NullLocator
    ax.set_xscale("log")
    ax.set_xlim(low / 1.08, high * 1.08)
    wide = high / low >= 100
    ax.xaxis.set_major_locator(LogLocator(subs=(1,) if wide else (1, 2, 5)))
    ax.xaxis.set_major_formatter(LogFormatterMathtext() if wide else lambda C, _: format_si(C))
    ax.xaxis.set_minor_locator(LogLocator(subs=range(2, 10)) if wide else NullLocator())
    if unit:
        ax.set_xlabel(AXIS[unit])


def n_axis(ax, ns):
    """Make y a log axis of n with a tick for each n, or for every second one of many."""
    ns = sorted(set(ns))
    ax.set_yscale("log")
    ax.set_ylim(min(ns) / 1.5, max(ns) * 1.5)
    shown = ns[:1]
    for n in ns:
        if n >= shown[-1] * (1.5 if len(ns) <= 6 else 3):  # 6 and 8 would overlap
            shown.append(n)
    ax.set_yticks(shown, [f"{n:g}" for n in shown])
    ax.minorticks_off()
    ax.set_ylabel("n*")
    ax.grid(alpha=0.25, axis="y")


def cells_text(t, of):
    """Return cells as text: their n, or (B_p, n) if the sweep has several B_p."""
    several = len({c[0] for c in t.cells}) > 1
    cells = sorted({t.cells[i][:2] for i in of})
    return ", ".join(f"({b}, {n})" if several else str(n) for b, n in cells)


def frontier(t, panels, cfg, path):
    """Draw each panel of frontier.py: reward over C, a curve for each (B_p, n), and n*(C)."""
    fig, axes = canvas(2, len(panels), (1.5 + 5 * len(panels), 7.2), height_ratios=[2, 1.1],
                       sharex="col")
    dashes = ["-", "--", ":", "-.", (0, (1, 3)), (0, (8, 2))] * 6
    styles = dict(zip(sorted({c[0] for c in t.cells}), dashes))
    for (name, p), (top, low) in zip(panels.items(), axes.T):
        for n, B_p in sorted({t.cells[i][1::-1] for i in p["of"]}):
            cells = [i for i in p["of"] if t.cells[i][:2] == (B_p, n)]
            y = np.where(t.alive[cells], t.mean[cells], -np.inf).max(0)  # its best lr_base
            shown = np.isfinite(y)
            mixed = len(styles) > 1 and not name.startswith("B_p")  # the panel has several B_p
            for r, dots in zip(p["runs"], p["records"]):
                if dots and (r["B_p"], r["n"]) == (B_p, n):
                    top.plot(*zip(*dots), ".", color=colour(n), ms=3.5, alpha=0.3, zorder=1,
                             label="record-breaking evaluations")
            top.plot(t.grid[shown], y[shown], ls=styles[B_p] if mixed else "-", color=colour(n),
                     lw=1.6, label=f"n = {n}" + f", $B_p$ = {B_p}" * mixed)
        C, lo, hi = ([row[key] for row in p["rows"]] for key in ("C", "lo", "hi"))
        top.fill_between(C, lo, hi, color="0.88", zorder=0, label="90% interval of the best")
        y = [t.mean[row["cell"], row["budget"]] for row in p["rows"]]
        top.plot(C, y, color="k", lw=3.5, alpha=0.25, solid_capstyle="round", zorder=3,
                 label="frontier: the best n at C")
        several = len({t.cells[i][2] for i in p["of"]}) > 1
        top.set(title=name.replace("_p", "$_p$").replace("=", " = "),
                ylabel=f"{cfg['eval_set']} {cfg['metric']}" + ", best lr of each n" * several)
        seen = [*lo, *hi, *y, *(reward for dots in p["records"] for _, reward in dots)]
        top.set_ylim(max(min(np.nanmin(t.mean[p["of"]]), *seen) - 0.03, 0),
                     min(max(seen) + 0.02, 1.02))
        draw_n(low, t, p)
        budget_axis(low, C[0], C[-1], cfg["unit"])
    seeds = plural(len({r["seed"] for r in t.runs}), "seed")
    save(fig, path, f"Which n is best at which budget? {plural(len(t.runs), 'run')}, {seeds}")


def draw_n(ax, t, p):
    """Draw the best n at each budget, the n tied with it, and the paper's n*(C)."""
    for row in p["rows"]:
        ns = [t.cells[i][1] for i in row["tied"]]
        ax.plot([row["C"]] * 2, [min(ns), max(ns)], color="0.82", lw=3, zorder=0,
                label="range of n tied with the best (90%)")
    C, n = ([row[key] for row in p["rows"]] for key in ("C", "n"))
    ax.step(C, n, "k", lw=2.2, where="post", label="best n")
    if p["star"]["curves"]:
        ax.plot(p["star"]["C"], p["star"]["n"], color="C0", lw=1.3,
                label="n* by the paper's method")
    n_axis(ax, [t.cells[i][1] for i in p["of"]])


def law(t, panels, rows, unit, path):
    """Draw n*(C), the fitted law and the prescribed rows of each panel. t: None for --points."""
    fig, axes = canvas(1, len(panels), (2 + 5 * len(panels), 4.8))
    for (name, p), ax in zip(panels.items(), axes[0]):
        mine = [r for r in rows if r["cell"] in p["of"]]
        C, n = ([row[key] for row in p["rows"]] for key in ("C", "n"))
        low, high = C[0], max([C[-1], *(r["C"] for r in mine)])
        if t is None:
            ax.plot(C, n, "ko", ms=4, label="points")
            n_axis(ax, 2.0 ** np.arange(math.floor(math.log2(min(n))), math.log2(max(n)) + 1))
        else:
            draw_n(ax, t, p)
        if curve := p["law"]["curve"]:
            x = np.geomspace(low, high, 200)
            ax.plot(x, 2 ** curve(x), "C3", lw=2, label="fitted law")
        for status, face in (("observed", "C1"), ("extrapolated", "white")):
            at = [(r["C"], r["n"]) for r in mine if r["status"] == status]
            if at:
                ax.plot(*zip(*at), "*", ms=12, mfc=face, mec="C1", ls="", zorder=5,
                        label=f"what to run, {status}")
        ax.set_title(name.replace("_p", "$_p$").replace("=", " = "))
        budget_axis(ax, low, high, unit)
    axis = "M" if unit == "updates" else "C"
    save(fig, path, f"n*({axis}): the best number of rollouts per problem")
