"""results/ours.py: what our own study asks beside the paper's figures, as figures.py.

Budgets beyond that of `main`, four levels of difficulty, a real language model. Needs contrasts.py,
kept.py, figures.py.
"""
import math

import numpy as np

from contrasts import Missing, both, contrast, judge
from core.plots import si
from figures import at_one_lr, at_own_lrs, every_lr, one_rule, own_lr_gap, rise
from kept import (START, config_of, curves, figure, gained, grid_text, level, named, points, sees,
                  table_of, titled)

PAIR = 4, 64  # the n of every level of difficulty
BY_DIFFICULTY = "very_easy", "easy", "hard", "mix_hard"  # arms, the easiest first


def labelled(every):
    """{lr_base: {n: runs}} as {"n = 4, lr_base 2e-4": runs}, the lr_base where it is not one."""
    each = sorted((n, lr) for lr in every for n in every[lr])
    return {f"n = {n}" + f", lr_base {lr:g}" * (len(every) > 1): every[lr][n] for n, lr in each}


def far(atlas, arm, above=False):
    """`rise` in an arm that goes beyond the budget of `main`, where the smallest n also has other
    lr_base. above: the claim is that its large n ends above the smallest, each at its best lr_base.
    """
    found, every = rise(atlas, arm), every_lr(atlas, arm)
    first, *_, large = sorted({n for own in every.values() for n in own if n <= 64})
    words, c = own_lr_gap(every, large, first)
    said = [words] + [own_lr_gap(every, n, large)[0] for own in every.values() for n in own
                      if n > large]
    found["says"] += f"; at the end{', each at its best lr_base' * (len(every) > 1)}, "
    found["says"] += "; ".join(said)
    cells = labelled(every)
    title = titled(config_of(every[one_rule(every)]))
    panels = [curves(cells, f"{title}, validation {metric}", metric, label="{}")
              for metric in ("avg@4", "best@4")]
    found["figure"] = [found["figure"], figure(atlas, arm, panels, width=6)]
    if above:
        found |= dict(verdict=judge(c, +1, gained(every[one_rule(every)])), sees=c["sees"])
    return found


def by_difficulty(atlas):
    """What the large n gains late on the small one, for the levels of difficulty, at one lr and
    where it was tuned for each n."""
    small, large = PAIR
    found, tuned, lines, g = {}, [], [], 0
    for arm in BY_DIFFICULTY:
        _, cells, _, _ = at_one_lr(atlas, arm)
        name = titled(config_of(cells))
        if set(PAIR) <= set(cells):
            cells = {n: cells[n] for n in PAIR}
            g = max(g, gained(cells))
            base = np.mean([t.mean() for t in table_of(cells, window=START).values()])
            each = {metric: contrast(table_of(cells, metric=metric), {large: 1, small: -1})
                    for metric in ("avg@4", "best@4", "worst@4")}
            found[name] = base, each
            seeds = set.intersection(*(set(runs) for runs in cells.values()))
            _, own, has_own, _ = at_own_lrs(atlas, arm, [large], small)
            if has_own:
                tuned.append((base, own))
            lines.append([name, f"{base:.2f}", len(seeds), *map(points, each.values()),
                          points(own) if has_own else "not run"])
    if len(found) < 3:
        raise Missing("three levels of difficulty at depth")

    def hardest_less_easiest(levels):  # of (base pass rate, contrast); other problems: independent
        easiest, hardest = (pick(levels, key=lambda level: level[0])[1] for pick in (max, min))
        return dict(gain=hardest["gain"] - easiest["gain"],
                    half=math.hypot(hardest["half"], easiest["half"]),
                    sees=max(hardest["sees"], easiest["sees"]))
    asked = [hardest_less_easiest([(base, each["avg@4"]) for base, each in found.values()])]
    asked += [hardest_less_easiest(tuned)] * (len(tuned) > 1)
    gaps = ", and of those with a tuned lr ".join(points(c) for c in asked)

    def draw(ax):
        for i, metric in enumerate(("avg@4", "best@4", "worst@4")):
            x = [base + 0.006 * i for base, _ in found.values()]
            each = [c[metric] for _, c in found.values()]
            ax.errorbar(x, [100 * c["gain"] for c in each], [100 * c["half"] for c in each],
                        fmt="o", ms=6, lw=1.2, capsize=3, label=metric)
        for name, (base, _) in found.items():  # the hardest two lie close together
            ax.annotate(name, (base, 1.01), xycoords=("data", "axes fraction"), rotation=40,
                        fontsize=9, ha="left", va="bottom")
        ax.axhline(0, color="0.3", lw=0.8)
        ax.set(xlabel="pass rate of the base model on the validation problems",
               ylabel=f"points, n = {large} less n = {small}\nover the last quarter, 90% intervals")
        ax.legend(fontsize=9)
    heads = ["problems", "base model", "seeds", *each, "avg@4, each n at its own best lr"]
    return dict(verdict=both([judge(c, +1, g) for c in asked]), sees=sees(asked), says=(
        f"n = {large} less n = {small} over the last quarter, hardest less easiest: {gaps}"),
                table=grid_text(heads, lines), tuned=len(asked) > 1,
                figure=figure(atlas, "by_difficulty", [draw], width=8))


def real_curves(atlas, name, *arms):
    """Learning curves of a real model in some arms, at their lr_base and others, up to the budget
    that all have; NAME.png."""
    says, panels = [], []
    for arm in arms:
        every, rule = every_lr(atlas, arm), config_of(atlas.arm(arm))["lr_base"]
        cfg, large, small = config_of(every[rule]), max(every[rule]), min(every[rule])
        base = table_of(every[rule], window=START)[small].mean()
        gaps = []
        for metric in ("avg@4", "best@4", "worst@4"):
            c = contrast(table_of(every[rule], metric=metric), {large: 1, small: -1})
            gaps.append(f"{metric} {points(c)}")
        says.append(f"{level(cfg['train_set'])} (base model {base:.3f}), B_p = {cfg['B_p']}; at "
                    f"lr_base = {rule:g}, n = {large} less n = {small}: {', '.join(gaps)}")
        if len(every) > 1:
            says[-1] += f"; each at its best lr_base, {own_lr_gap(every)[0]}"
        cells = labelled(every)
        others = tuple(f"lr_base {lr:g}" for lr in every if lr != rule)
        title = f"{named(cfg['model'])}, {titled(cfg)}"
        title += f", lr_base {rule:g}" * (not others)
        panels += [curves(cells, f"{title}", m, label="{}",
                          dashed=[key for key in cells if key.endswith(others)])
                   for m in ("avg@4", "best@4")]
    C = min(run["budget"] for cells in every.values() for runs in cells.values()
            for run in runs.values())
    return dict(verdict="", says=". ".join(says) + f". To {si(C)}", figure=figure(
        atlas, name, panels, width=5.6, across=2))
