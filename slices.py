"""slices.py: reward at one budget: over n, a line for each of four budgets, and over (B_p, n).

Nothing here is a script; it is --view=slices of views.py:
- `frontier_slices.png`, the iso-compute slices that Chinchilla (Hoffmann et al. 2022, Figure 3)
  made known: the least loss of each line is the best n at its budget;
- `frontier_map.png`, where the sweep has two B_p or more: the reward of every (B_p, n) at the
  largest budget, with lines of equal B = B_p n.

Needs config.py, frontier.py, noise.py.
"""
import math
from pathlib import Path

import numpy as np

from config import BadInput
from frontier import SHADES, save, si
from noise import cells_at, half_width, indistinguishable, values_at

SHARES = (1 / 8, 1 / 4, 1 / 2, 1)  # of the largest budget


def slices(sweep, cfg):
    """Reward over n at four budgets for each B_p, and over (B_p, n) at the largest.

    -> dict(slices, map). A slice: B_p, C, and for each n that ran so far at C (N,): n, reward,
    half (90% interval, None without draws), near (indistinguishable from the best), each (a seed's
    evaluation nearest to C), and best, the index of the highest. map: the same of all pairs at one
    C, with B_p (N,); None for one B_p.
    """
    grid, out = sweep["grid"], []
    for B_p in sorted({c["B_p"] for c in sweep["cells"]}):
        cs = [c for c in sweep["cells"] if c["B_p"] == B_p]
        for share in SHARES:
            C = grid[-1] * share
            if C >= grid[0]:
                found = at_budget(cs, grid, C)
                if found and len(found["n"]) > 1:
                    out.append(dict(found, B_p=B_p))
    if not out:
        raise BadInput(f"--view=slices: {cfg['runs']} has one n for each B_p, there is nothing to "
                       "compare")
    several = len({c["B_p"] for c in sweep["cells"]}) > 1
    return dict(slices=out, map=at_budget(sweep["cells"], grid, grid[-1]) if several else None)


def at_budget(cells, grid, C):
    """What the cells have at the budget of `grid` nearest to C, see `slices`; None without any."""
    j, here = cells_at(cells, grid, C)
    if not here:
        return None
    Y, noise = values_at(here, j)
    same = indistinguishable(Y, noise)
    return dict(C=grid[j], n=[c["n"] for c in here], B_p=[c["B_p"] for c in here], reward=Y,
                half=half_width(noise) if len(noise) else None, near=same, best=int(Y.argmax()),
                each=[[float(R[np.abs(Cs - C).argmin()]) for Cs, R in c["points"]] for c in here])


def draw_slices(front, path):
    """frontier_slices.png, and beside it frontier_map.png where there is a map."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    sizes = sorted({s["B_p"] for s in front["slices"]})
    cols = min(max(len(sizes), 1), 3)
    rows = max(-(-len(sizes) // cols), 1)
    fig, axes = plt.subplots(rows, cols, figsize=(max(8.0, 4.6 * cols), 1.6 + 4.4 * rows),
                             squeeze=False, sharey=True, layout="constrained")
    for ax in axes.flat[len(sizes):]:
        ax.set_visible(False)
    for ax, B_p in zip(axes.flat, sizes):
        lines = [s for s in front["slices"] if s["B_p"] == B_p]
        ns = sorted({n for s in lines for n in s["n"]})
        for i, s in enumerate(lines):
            # moved apart a little, so that the intervals of four budgets do not cover each other
            x = np.array(s["n"]) * 2 ** (0.07 * (i - (len(lines) - 1) / 2))
            colour = SHADES[2 * i]
            half = None if s["half"] is None else np.array(s["half"])
            if max(map(len, s["each"])) > 1:
                for place, values in zip(x, s["each"]):
                    ax.plot([place / 1.035] * len(values), values, "_", color=colour, ms=7)
            ax.errorbar(x, s["reward"], half, color=colour, marker="o", ms=4, lw=1.6, capsize=2.5,
                        label=f"C = {si(s['C'])}")
            best = s["best"]
            some = [j for j, ok in enumerate(s["near"]) if ok and j != best]
            ax.plot(x[some], np.array(s["reward"])[some], "o", ms=10, mfc="none", mec=colour,
                    mew=1.1)
            edge = s["n"][best] == ns[-1] or s["n"][best] == ns[0] > 2  # no group is below 2
            ax.plot(x[best], s["reward"][best], "*", ms=11, mec=colour, mew=1.2, zorder=5,
                    mfc="white" if edge else colour)
        ax.set_xscale("log", base=2)
        ax.set_xticks(ns, map(str, ns))
        ax.minorticks_off()
        ax.set(xlabel="rollouts per problem n", title=f"$B_p$ = {B_p}",
               xlim=(ns[0] / 1.35, ns[-1] * 1.35))
        ax.grid(alpha=0.25)
        loss = ax.secondary_yaxis("right", functions=(lambda r: 1 - r, lambda loss: 1 - loss))
        last = ax is axes.flat[len(sizes) - 1]
        loss.set_ylabel(f"loss, 1 - {front['label']}" if last else "")
        loss.tick_params(labelright=last)
    axes[0, 0].set_ylabel(front["label"])
    star = dict(mec="0.3", ls="none", marker="*", ms=11, mew=1.2)
    marks = [plt.Line2D([], [], mfc="0.55", label="least loss: the best n of the budget", **star),
             plt.Line2D([], [], mfc="white", label="the same at the grid's edge: it may lie beyond",
                        **star),
             plt.Line2D([], [], ls="none", marker="o", ms=10, mfc="none", mec="k",
                        label="as good: indistinguishable from it")]
    if any(len(values) > 1 for s in front["slices"] for values in s["each"]):
        marks.append(plt.Line2D([], [], ls="none", marker="_", ms=8, color="0.3",
                                label="a seed's evaluation nearest to C"))
    named = {label: handle for ax in axes.flat
             for handle, label in zip(*ax.get_legend_handles_labels())}
    fig.legend(handles=[*reversed(named.values()), *marks], loc="outside lower center", fontsize=9,
               ncols=2 if cols == 1 else 4)
    save(fig, path, front, f"Iso-compute slices: {front['label']} over n, compared on the same "
         "problems; a bar is the interval of its point alone")
    target = Path(str(path).replace("_slices", "_map"))
    if front["map"]:
        draw_map(front, target)
    else:
        target.unlink(missing_ok=True)  # of an earlier sweep there


def draw_map(front, path):
    """frontier_map.png: a square for each (B_p, n), lines of equal B through them."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.patheffects as effects
    import matplotlib.pyplot as plt
    m = front["map"]
    x, y, Y = np.log2(m["n"]), np.log2(m["B_p"]), np.array(m["reward"])
    wide, high = np.ptp(x) + 2, np.ptp(y) + 2
    fig, ax = plt.subplots(figsize=(max(6.5, min(10.7, 1.2 * wide + 2.2)),
                                    max(4.6, 1.0 * high + 1.9)), layout="constrained")
    norm = plt.Normalize(Y.min(), Y.max())
    edge = [effects.withStroke(linewidth=2.4, foreground="white")]
    for i, value in enumerate(Y):
        colour = plt.cm.viridis(norm(value))
        ax.add_patch(plt.Rectangle((x[i] - 0.46, y[i] - 0.46), 0.92, 0.92, fc=colour, zorder=2,
                                   ec="k" if m["near"][i] else "none", lw=2.2))
        half = "" if m["half"] is None else f"\n± {m['half'][i]:.3f}"
        ax.text(x[i], y[i], f"{value:.3f}{half}", ha="center", va="center", fontsize=9, zorder=4,
                color="black", path_effects=edge)
    best = m["best"]
    ax.plot(x[best] + 0.33, y[best] + 0.33, "*", ms=15, mfc="white", mec="k", zorder=5)
    left, right, low, top = x.min() - 1, x.max() + 0.7, y.min() - 0.7, y.max() + 1
    for b in range(math.floor(left + low), math.ceil(right + top) + 1):  # log2 B
        ends = max(left, b - top), min(right, b - low)
        if ends[1] - ends[0] > 0.6:
            ax.plot(ends, (b - ends[0], b - ends[1]), color="0.55", lw=0.9, ls="--", zorder=1)
            ax.text(ends[0] + 0.27, b - ends[0] - 0.27, f"B = {2 ** b}", fontsize=9, color="0.3",
                    rotation=-45, rotation_mode="anchor", transform_rotates_text=True, ha="center",
                    va="center", zorder=1, bbox=dict(fc="white", ec="none", pad=0.8))
    ax.set(xlim=(left, right), ylim=(low, top), xlabel="rollouts per problem n",
           ylabel="problems per batch $B_p$")
    ax.set_xticks(sorted(set(x)), [str(2 ** int(v)) if v == int(v) else f"{2 ** v:.0f}"
                                   for v in sorted(set(x))])
    ax.set_yticks(sorted(set(y)), [f"{2 ** v:.0f}" for v in sorted(set(y))])
    fig.colorbar(plt.cm.ScalarMappable(norm, "viridis"), ax=ax, label=front["label"])
    marks = [plt.Line2D([], [], ls="none", marker="*", ms=13, mfc="white", mec="k", label="best"),
             plt.Rectangle((0, 0), 1, 1, fc="none", ec="k", lw=2.2,
                           label="indistinguishable from it"),
             plt.Line2D([], [], color="0.55", lw=0.9, ls="--", label="equal B = $B_p\\,n$")]
    fig.legend(handles=marks, loc="outside lower center", fontsize=9, ncols=3)
    save(fig, path, front, f"{front['label'].capitalize()} over ($B_p$, n) at C = {si(m['C'])}")


def say_slices(front):
    """The best n of each slice and of the map as lines of text."""
    for s in front["slices"]:
        near = [n for n, ok in zip(s["n"], s["near"]) if ok]
        yield (f"  B_p = {s['B_p']:<4} C = {si(s['C']):>6}: n = {s['n'][s['best']]:<4} "
               f"{s['reward'][s['best']]:.3f}; indistinguishable from the best: "
               f"{', '.join(map(str, near))}")
    if front["map"]:
        m, best = front["map"], front["map"]["best"]
        yield (f"  map at C = {si(m['C'])}: best is B_p = {m['B_p'][best]}, n = {m['n'][best]}, "
               f"{m['reward'][best]:.3f}, of {len(m['n'])} pairs")
    else:
        yield "  no map of (B_p, n): the sweep has one B_p"
