"""core/plots.py: what the figures share: colours, numbers in words, axes of budgets, saving.

Needs config.py and matplotlib, which is imported where a figure is made.
"""
import math
import textwrap

from core.log import aside

AXIS = dict(rollouts="rollouts C = $B_p\\,n\\,M$", tokens="training tokens C",
            gpu_hours="GPU-hours of training C", updates="updates M")
# dark to bright, neighbours that differ on a projector and to the colour-blind
SHADES = "#1b1f6b #2f7fd1 #17a39a #74b72e #c9a400 #f07f1a #d62f3a #9b1b8f #6b4a2b #7f7f7f".split()


def si(x):
    """1270000 -> 1.27M: three digits and a suffix, up to 1e13."""
    if abs(x) >= 1e13:
        return f"{x:.3g}"
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(x) >= 0.9995 * size:
            return f"{x / size:.3g}{letter}"
    return f"{x:.3g}"


def many(k, what):
    """1 run, 2 runs."""
    return f"{k} {what}" + "s" * (k != 1)


def wrap(text, width):
    return "\n".join(textwrap.wrap(text, width))


def colours(ns):
    """{n: colour} in order of n."""
    ns = sorted(ns)
    return {n: SHADES[i * (len(SHADES) - 3) // max(len(ns) - 1, 1) if len(ns) < 8 else
                      i % len(SHADES)] for i, n in enumerate(ns)}


def canvas(rows, cols, size, **more):
    """(figure, axes (rows, cols)) of a size in inches, without a window."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    return plt.subplots(rows, cols, figsize=size, layout="constrained", squeeze=False, **more)


def budget_axis(ax, low, high, unit=""):
    """A log axis of budgets, its ticks written 10k, 20k, 50k: three a decade if decades are few."""
    from matplotlib.ticker import LogLocator
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 2000 else (1,)))
    ax.xaxis.set_major_formatter(lambda C, _: si(C))
    ax.minorticks_off()
    if unit:
        ax.set_xlabel(AXIS[unit])


def log_ticks(axis, values):
    """Ticks of a log axis at these values alone, as they are written."""
    axis.set_ticks(values, [f"{v:g}" for v in values])
    axis.axes.minorticks_off()


def end_labels(ax, ends, height):
    """Names of lines behind their right ends, moved apart: ends [(x, y, text, colour)]."""
    at, ends = math.inf, [end for end in ends if math.isfinite(end[1])]
    for x, y, text, colour in sorted(ends, key=lambda end: -end[1]):
        at = min(y, at - 0.045 * height)
        line = dict(arrowstyle="-", color=colour, lw=0.8, shrinkA=0, shrinkB=1, relpos=(0, 0.5))
        ax.annotate(text, (x, y), (x * 1.12, at), color=colour, fontsize=9, fontweight="bold",
                    va="center", annotation_clip=False, zorder=7, arrowprops=line)


def legend(fig, axes, cols=4, **more):
    """One legend for all axes, below them; equal names count once."""
    named = {label: handle for ax in axes for handle, label in zip(*ax.get_legend_handles_labels())}
    if named:
        fig.legend(named.values(), named.keys(), fontsize=9, ncols=min(cols, len(named)),
                   **(dict(loc="outside lower center") | more))


def write(fig, path):
    """Write a figure aside, rename it, and forget it."""
    import matplotlib.pyplot as plt
    with aside(path) as part:
        fig.savefig(part, dpi=110)
    plt.close(fig)


def save(fig, path, front, title):
    """`write` with a title that says which runs and what intervals cover."""
    runs = ", ".join(f"{len(front[f'runs_{what}'])} {what}" for what in ("used", "dropped"))
    letters = int(11.5 * fig.get_figwidth())  # of a line
    fig.suptitle(wrap(f"{title} (runs: {runs}, {len(front['missing'])} missing)", letters) + "\n"
                 + wrap("Intervals: " + front["covers"], letters), fontsize=10.5)
    write(fig, path)
