"""tools/views.py: two more views of a sweep, drawn by `python frontier.py --view=training` or `lr`.

    training   every numeric field of the step records over C, a curve for each run
    lr         reward at the largest budget against lr_base, a curve for each (B_p, n)

A field that you add to the log is drawn without a change here. A new view is a function of
(t, cfg, path) in VIEWS, with t of `core.stats.table`, and its name in the comment of `view` in
config.py.
"""
import math

import numpy as np

from config import BadInput
from core import plots, stats
from core.runs import is_number

POINTS = 64  # of a curve: the mean of each of so many stretches of updates


def training(t, cfg, path):
    """Draw every logged number over rollouts. Colours show only n, not B_p."""
    fields = dict.fromkeys(key for r in t.runs for step in r["steps"] for key, value in step.items()
                           if is_number(value) and key not in ("step", "rollouts"))
    if not fields:
        raise BadInput(f"--view=training: the logs in {cfg['runs']} have no records of updates")
    rows, cols = math.ceil(len(fields) / 4), min(len(fields), 4)
    fig, axes = plots.canvas(rows, cols, (3.4 * cols, 2.3 * rows))
    for field, ax in zip(fields, axes.flat):
        for r in t.runs:
            points = [(s["rollouts"], s[field]) for s in r["steps"] if is_number(s.get(field))]
            if points:
                parts = np.array_split(points, min(POINTS, len(points)))
                ax.plot([part[-1, 0] for part in parts], [part[:, 1].mean() for part in parts],
                        color=plots.colour(r["n"]), lw=1, alpha=0.8, label=f"n = {r['n']}")
        ax.set_title(field, fontsize=9)
        ax.ticklabel_format(axis="x", style="sci", scilimits=(0, 0))
    for ax in axes.flat[len(fields):]:
        ax.axis("off")
    plots.save(fig, path, "training over rollouts, means of stretches of updates; colours show n")


def lr(t, cfg, path):
    """Draw the reward at the largest budget against lr_base, and print the best lr_base of each
    (B_p, n) with the values that are tied with it."""
    lrs = sorted({c[2] for c in t.cells})
    if len(lrs) < 2:
        raise BadInput(f"--view=lr: all runs in {cfg['runs']} have one lr_base; set LRS")
    fig, [[ax]] = plots.canvas(1, 1, (7, 5))
    j, styles = len(t.grid) - 1, dict(zip(sorted({c[0] for c in t.cells}), ("-", "--", ":") * 9))
    for B_p, n in sorted({c[:2] for c in t.cells}):
        of = [i for i, c in enumerate(t.cells) if c[:2] == (B_p, n) and np.isfinite(t.mean[i, j])]
        if not of:
            continue
        half = [stats.half_width(t, i, j) for i in of]
        ax.errorbar([t.cells[i][2] for i in of], t.mean[of, j], half, fmt="o" + styles[B_p],
                    capsize=2, color=plots.colour(n), label=f"n = {n}, $B_p$ = {B_p}")
        ties = sorted(t.cells[i][2] for i in stats.tied(t, j, of))
        print(f"B_p = {B_p}, n = {n}: lr_base = {t.cells[stats.best(t, j, of)][2]:g}, tied: "
              + ", ".join(f"{x:g}" for x in ties))
    ax.set(xscale="log", xlabel="lr_base", ylabel=f"{cfg['eval_set']} {cfg['metric']}")
    ax.set_xticks(lrs, [f"{x:g}" for x in lrs])
    ax.minorticks_off()
    plots.save(fig, path, f"reward at C = {plots.format_si(t.grid[-1])} with 90% intervals")


VIEWS = dict(training=training, lr=lr)
