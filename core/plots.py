"""core/plots.py: helpers for all figures: colours, numbers as text, budget axes, and saving.

Matplotlib is imported only when a figure is drawn, so that planning and --help do not need it. This
file imports no other file of isocompute. So to fit a CSV on another machine, you need to copy only
fit_sigmoid.py and this file.
"""
import logging
import math
import os
import re
import textwrap

AXIS = dict(rollouts="rollouts C = $B_p\\,n\\,M$", tokens="training tokens C",
            gpu_hours="GPU-hours of training C", updates="updates M")
# The colours of n = 2, 4, 8, ..., 4096. Neighbouring colours look different on a projector and to
# colour-blind readers
SHADES = ("#001652 #0e46e8 #266bb6 #12848c #31914f #8fb82a #e0a300 #d45900 #f41448 #bc1970 #4e145f "
          "#6b4a2b").split()


def format_si(x):
    """Return a number as text with three digits and a suffix: 1270000 -> 1.27M."""
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(x) >= 0.9995 * size:
            return f"{x / size:.3g}{letter}"
    return f"{x:.3g}"


def plural(k, noun):
    """Return a count with its noun: 1 run, 2 runs."""
    return f"{k} {noun}" + "s" * (k != 1)


def pairs_text(pairs, several, most=6):
    """Return the first `most` of the pairs (B_p, n) as text.

    If there are more pairs, the text ends with the number of the others, such as "and 3 more".
    several: whether the pairs have several B_p. If all have the same B_p, the text has only the n.
    """
    pairs = sorted({tuple(pair) for pair in pairs})
    names = [f"({b}, {n})" if several else str(n) for b, n in pairs[:most]]
    return ", ".join(names) + f" and {len(pairs) - most} more" * (len(pairs) > most)


def missing_text(missing, most):
    """Return a text that counts the planned runs that did not finish and lists the first `most`.

    The list gives the reason for each run. missing: the result of core.runs.missing_cells.
    """
    cells = [f"B_p={m['B_p']} n={m['n']} seed={m['seed']} ({m['why']})" for m in missing[:most]]
    return f"missing {len(missing)}: {'; '.join(cells)}" + ", ..." * (len(missing) > most)


def wrap(text, width):
    """Return `text`, broken into lines of at most `width` characters."""
    return "\n".join(textwrap.wrap(text, width))


def colours(ns):
    """Return {n: colour} in order of n. An n has the same colour in every figure.

    If n is not a power of 2, its colour is a mix of the colours of the two nearest powers.
    """
    from matplotlib.colors import to_rgb
    out = {}
    for n in sorted(ns):
        x = min(max(math.log2(n) - 1, 0), len(SHADES) - 1)
        below, above = to_rgb(SHADES[math.floor(x)]), to_rgb(SHADES[math.ceil(x)])
        out[n] = tuple(a + x % 1 * (b - a) for a, b in zip(below, above))
    return out


def canvas(rows, cols, size, **more):
    """Return (figure, axes (rows, cols)) of a new figure, to be saved to a file and never shown.

    size: (width, height) in inches. more: further arguments for matplotlib's `subplots`.
    """
    # hide matplotlib's warnings, because it warns about a slow start if HOME is read-only
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    return plt.subplots(rows, cols, figsize=size, layout="constrained", squeeze=False, **more)


def inches_of(ax):
    """Return the width in inches that the figure gives to the axes `ax`, labels included."""
    return ax.figure.get_figwidth() / ax.get_subplotspec().get_gridspec().ncols


def budget_axis(ax, low, high, unit=""):
    """Make the x axis a log axis of budgets, with one, two or three ticks per decade.

    The number of ticks depends on the width of the axes. unit: a key of AXIS to label the axis, or
    "" for no label.
    """
    from matplotlib.ticker import LogLocator
    ax.set_xscale("log")
    decades = math.log10(high / low) * 4.8 / inches_of(ax)
    ax.xaxis.set_major_locator(LogLocator(
        subs=(1, 2, 5) if decades < 2 else (1, 3) if decades < 3.3 else (1,)))
    # ticks above `high` have no text, because `end_labels` writes the names of the lines there
    ax.xaxis.set_major_formatter(lambda C, _: format_si(C) if C <= 1.01 * high else "")
    ax.minorticks_off()
    if unit:
        ax.set_xlabel(AXIS[unit])


def log_ticks(axis, values):
    """Set the ticks of a log axis to `values`, written as plain numbers."""
    axis.set_ticks(values, [f"{v:g}" for v in values])
    axis.axes.minorticks_off()


def spread(values, step, top):
    """Move `values` apart until neighbours differ by `step` or more, and return the new values.

    values: sorted, the highest first. No new value is above `top`.
    """
    down, up, out = [], [], []
    for value in values:
        down.append(min(value, down[-1] - step) if down else value)
    for value in reversed(values):
        up.append(max(value, up[-1] + step) if up else value)
    for a, b in zip(down, reversed(up)):
        out.append(min((a + b) / 2, out[-1] - step if out else top))
    return out


def end_labels(ax, ends):
    """Write the name of each line to the right of the line's end. Widen the x axis for the names.

    ends: [(x, y, text, colour)]. A name that would overlap another is moved, and a thin grey line
    connects the name with the end of its line. Set the limits of the y axis before you call this.
    """
    ends = sorted((end for end in ends if math.isfinite(end[1])), key=lambda end: -end[1])
    if not ends:  # no curve could be fitted
        return
    (low, high), left, right = ax.get_ylim(), ax.get_xlim()[0], max(x for x, *_ in ends)
    letters = max(len(text) for *_, text, _ in ends)
    width = inches_of(ax) - 0.9  # the label and the ticks of the y axis need 0.9 inches
    room = min(0.25 + 0.09 * letters, 0.6 * width)
    inch = (right / left) ** (1 / (width - room))  # x grows by this factor per inch of the axis
    ax.set_xlim(left, right * inch ** room)
    step = 0.052 * (high - low)
    for end, at in zip(ends, spread([y for _, y, *_ in ends], step, high - step / 2)):
        x, y, text, colour = end
        moved = dict(arrowstyle="-", color="0.75", lw=0.6, shrinkA=0, shrinkB=1, relpos=(0, 0.5))
        ax.annotate(text, (x, y), (x * inch ** 0.12, at), color=colour, fontsize=9,
                    fontweight="bold", va="center", annotation_clip=False, zorder=7,
                    arrowprops=moved if abs(at - y) > step / 2 else None)


def legend(fig, axes):
    """Draw one legend for all `axes`, below them. Each name is listed once, "n = ..." first."""
    named = {label: handle for ax in axes for handle, label in zip(*ax.get_legend_handles_labels())}
    if named:
        def n_of(name):
            n = re.match(r"n = (\d+)", name)
            return int(n[1]) if n else math.inf
        names = sorted(named, key=n_of)

        def width(cols):  # in inches
            return sum(0.7 + 0.07 * max(map(len, names[i::cols])) for i in range(cols))
        cols = len(names)
        while cols > 1 and width(cols) > fig.get_figwidth():
            cols -= 1
        # matplotlib fills a legend by columns, so reorder the names to be read row by row
        names = [name for i in range(cols) for name in names[i::cols]]
        fig.legend([named[name] for name in names], names, fontsize=9, ncols=cols,
                   loc="outside lower center")


def draw_n_star(ax, panel, unit):
    """Draw n*(C) of a panel, the best n at each C. Grey squares mark the n tied with the best.

    If the panel has several B_p, also draw the best B_p over C.
    """
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
        # shade the budgets from lo to hi, the interval in which the best n may switch. If lo or hi
        # is unknown, shade up to the edge of the panel
        if s["why"] == "crossing" and s["clear"]:
            ax.axvspan(s["lo"] or panel["range"][0], s["hi"] or panel["range"][1], color="C0",
                       alpha=0.13, lw=0, zorder=0, label="where a switch may lie (90%)")
    ax.set(yscale="log", ylabel="n*", ylim=(min(ticks) / 1.5, max(ticks) * 1.5))
    budget_axis(ax, *panel["range"], unit)
    log_ticks(ax.yaxis, sorted(ticks))
    ax.grid(alpha=0.25, axis="y")


def draw_records(ax, records):
    """Draw n over C for `records`, the result of frontier.pooled_records, and the running average
    of n. The paper fits its law to this average."""
    ax.plot(records["C"], records["n"], "o", color="0.45", ms=4, mfc="none",
            label="n of a record-breaking point of all runs")
    ax.plot(records["C"], [2 ** y for y in records["log2_n_mean"]], "DC1", ms=4.5, mfc="none",
            label="their running average")


def write(fig, path, small=""):
    """Write a figure to `path` and close it. small: text in small type below the figure.

    A temporary file is written and then renamed, so that nobody reads an incomplete figure.
    """
    import matplotlib.pyplot as plt
    part = f"{path}.{os.getpid()}.png"
    small = wrap(small, int(16 * fig.get_figwidth()))
    if small and fig.legends:
        # the legend is at the bottom of the figure, so put `small` into its title. A separate text
        # at the bottom would cover the legend
        fig.legends[0].set_title(small, prop=dict(size=8))
        fig.legends[0].set_frame_on(False)
    elif small:
        fig.supxlabel(small, fontsize=8)
    fig.savefig(part, dpi=110)
    os.replace(part, path)
    plt.close(fig)


def save(fig, path, front, title):
    """Write a figure with the title front["title"], or `title` if front has none.

    Small type below the figure gives the numbers of runs and seeds, and what the intervals cover.
    """
    seeds = len({run["seed"] for run in front["runs_used"]})
    text = f"{plural(len(front['runs_used']), 'run')}, {plural(seeds, 'seed')}"
    text += "".join(f", {len(front[key])} {name}" for key, name in (
        ("runs_dropped", "dropped"), ("missing", "missing")) if front[key])
    fig.suptitle(wrap(front.get("title") or title, int(9 * fig.get_figwidth())), fontsize=12)
    covers = front["covers"] and f". Intervals: {front['covers']}."
    write(fig, path, text + covers)
