"""core/plots.py: what the figures share: colours, numbers in words, axes of budgets, saving.

Matplotlib is imported only when a figure is drawn, so that planning and --help do without.
"""
import logging
import math
import os
import textwrap

AXIS = dict(rollouts="rollouts C = $B_p\\,n\\,M$", tokens="training tokens C",
            gpu_hours="GPU-hours of training C", updates="updates M")
# dark to bright, neighbours that differ on a projector and to the colour-blind
SHADES = "#1b1f6b #2f7fd1 #17a39a #74b72e #c9a400 #f07f1a #d62f3a #9b1b8f #6b4a2b #7f7f7f".split()


def format_si(x):
    """1270000 -> 1.27M: three digits and a suffix, up to 1e13."""
    if abs(x) >= 1e13:
        return f"{x:.3g}"
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(x) >= 0.9995 * size:
            return f"{x / size:.3g}{letter}"
    return f"{x:.3g}"


def plural(k, what):
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
    # if HOME cannot be written to, matplotlib only starts a second later: not worth a warning
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    return plt.subplots(rows, cols, figsize=size, layout="constrained", squeeze=False, **more)


def budget_axis(ax, low, high, unit=""):
    """Make a log axis of budgets with ticks such as 10k, 20k, 50k: three a decade, two or one, by
    how many decades there are for the width."""
    from matplotlib.ticker import LogLocator
    ax.set_xscale("log")
    inches = ax.figure.get_figwidth() / ax.get_subplotspec().get_gridspec().ncols
    decades = math.log10(high / low) * 4.8 / inches
    ax.xaxis.set_major_locator(LogLocator(
        subs=(1, 2, 5) if decades < 2 else (1, 3) if decades < 3.3 else (1,)))
    ax.xaxis.set_major_formatter(lambda C, _: format_si(C))
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


def draw_n_star(ax, panel, unit):
    """n*(C) of a panel below its curves; B_p of the best pair too, where there are several."""
    env = panel["envelope"]
    if near := {(a["C"], n) for a in panel["near"] for _, n in a["set"]}:
        ax.plot(*zip(*near), "s", color="0.6", ms=5, zorder=1,
                label="n tied with the best")
    ax.step(env["C"], env["n"], where="post", color="black", lw=2.2, zorder=3,
            label="n*(M)" if unit == "updates" else "n*(C)")
    ticks = set(panel["ns"])
    if panel["B_p"] is None:
        ax.step(env["C"], env["B_p"], where="post", color="C3", lw=1.6, ls="-.", zorder=2,
                label="$B_p$ of the best pair")
        ticks |= {min(env["B_p"]), max(env["B_p"])}
    for s in panel["switches"]:
        if s["why"] == "crossing" and s["clear"]:  # an end that is open goes to the edge
            ax.axvspan(s["lo"] or panel["range"][0], s["hi"] or panel["range"][1], color="C0",
                       alpha=0.13, lw=0, zorder=0, label="90% interval of a switch (two: darker)")
    ax.set(yscale="log", ylabel="n*", ylim=(min(ticks) / 1.5, max(ticks) * 1.5))
    budget_axis(ax, *panel["range"], unit)
    log_ticks(ax.yaxis, sorted(ticks))
    ax.grid(alpha=0.25, axis="y")


def draw_records(ax, records):
    """The points of `pooled_records`, and their running average, to which the paper fits its law.
    """
    ax.plot(records["C"], records["n"], "x", color="0.45", ms=4,
            label="n of a record-breaking point of all runs")
    ax.plot(records["C"], [2 ** y for y in records["log2_n_mean"]], "DC1", ms=4.5, mfc="none",
            label="their running average")


def write(fig, path, small=""):
    """Write a figure to a temporary file, rename it, and close the figure. small: text in small
    type below it."""
    import matplotlib.pyplot as plt
    part = f"{path}.{os.getpid()}.png"
    small = wrap(small, int(16 * fig.get_figwidth()))
    if small and fig.legends:  # as its title, because text next to it would cover it
        fig.legends[0].set_title(small, prop=dict(size=8))
        fig.legends[0].set_frame_on(False)
    elif small:
        fig.supxlabel(small, fontsize=8)
    fig.savefig(part, dpi=110)
    os.replace(part, path)
    plt.close(fig)


def save(fig, path, front, title):
    """`write` with a title, front["title"] if it has one, and in small type below the figure which
    runs it shows and what its intervals cover."""
    seeds = len({run["seed"] for run in front["runs_used"]})
    text = f"{plural(len(front['runs_used']), 'run')}, {plural(seeds, 'seed')}"
    text += "".join(f", {len(front[key])} {name}" for key, name in (
        ("runs_dropped", "dropped"), ("missing", "missing")) if front[key])
    fig.suptitle(wrap(front.get("title") or title, int(9 * fig.get_figwidth())), fontsize=12)
    write(fig, path, f"{text}. Intervals: {front['covers']}.")
