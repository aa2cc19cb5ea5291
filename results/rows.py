"""results/rows.py: the rows of the atlas on the paper's claims, and ours beside them.

Each takes an Atlas and returns dict(verdict, says[, sees, table, figure, more]): it names its runs,
contrasts them, judges the claim, and draws. The table that says which claim is which row's is in
atlas.py. Needs config.py, frontier.py, contrasts.py, kept.py.
"""
import contextlib
import math
from collections import Counter
from pathlib import Path

import numpy as np
from scipy import stats

import config
import frontier
from core.plots import si
from kept import (EARLY, LATE, LRS, START, TITLES, analysed, arms_of, by_n, colour, config_of,
                  curves, cut, deep_cells, depth, each_of, ends_of, figure, first_crossing, gained,
                  grid_text, largest_less_smallest, law_figure, law_of, look, means, near, one_cell,
                  over, over_problems, panel_of, points, says_shift, sees, shared_best, shift_of,
                  stages as stages_of, table_of, told, training, use, view_figure, windows)
from contrasts import SMALL, Missing, best_less, both, change, contrast, denied, judge, shift

SPLITS = dict(easy=(0.3, 0.6), hard=(0, 0.0625))  # the paper's, by avg@16 of the base model
# arms of all levels, the easiest first
BY_DIFFICULTY = dict(very_easy="Very Easy", easy="Easy", hard="Hard", mix_hard="Unsolved")
TERMS = dict(none="none", kl="KL", entropy="entropy", both="both",
             small="both, KL {kl_coef:g} and entropy {entropy_coef:g}",
             filtered="both, and the filter")
BEST_OF_GRID = 4e-4  # lr_base, of the grid of Figure 4, left
PAIR = 4, 64  # of Figures 11 and 27: at C = 262,144 both have made 256 updates or more
MIXES = dict(mix_hard="Unsolved alone", mix_dual="half Unsolved, half Easy",
             mix_tri="50/25/25 Unsolved, Easy, Very Easy")
LEVELS = dict(extreme_val="Unsolved", level_easy_val="Easy", level_very_easy_val="Very Easy")


# ---- section 3: the recipe

def difficulty(atlas):
    """How hard the problems are for the base model."""
    if not (atlas.folder / "difficulty.json").exists():
        raise Missing("anything")
    bars = np.array(config.read_json(atlas.folder / "difficulty.json")["counts"])
    s = len(bars) - 1
    rate = np.arange(s + 1) / s
    share = {}
    for task, (lo, hi) in SPLITS.items():
        share[task] = 100 * bars[(rate >= lo) & (rate <= hi)].sum() / bars.sum()

    def draw(ax):
        ax.bar(rate, bars, width=0.8 / s, color="0.5")
        for (task, (lo, hi)), shade in zip(SPLITS.items(), ("C0", "C3")):
            ax.axvspan(lo - 0.5 / s, hi + 0.5 / s, alpha=0.2, color=shade, label=task.title())
        ax.set(xlabel=f"avg@{s} of the base model", ylabel="problems",
               title="difficulty of the embedded problems")
        ax.legend()
    says = (f"{bars.sum():,} problems, mean {rate @ bars / bars.sum():.2f}; "
            f"Easy {share['easy']:.0f}%, Hard {share['hard']:.0f}%")
    return dict(verdict="", says=says, figure=figure(atlas, "difficulty", [draw]))


def recipe(atlas, task, sign):
    """KL and entropy terms against none, larger (sign +1) or smaller (-1)? What else has run of
    each term alone and of the filter stands beside them."""
    cells = {name: one_cell(atlas, f"rec_{task}_{name}") for name in ("both", "none")}
    for name in ("small", "kl", "entropy", "filtered"):
        with contextlib.suppress(Missing):
            cells[name] = one_cell(atlas, f"rec_{task}_{name}")
    table = table_of(cells)
    c = contrast(table, {"both": 1, "none": -1})
    names = {name: words.format(**config_of({name: cells[name]}))
             for name, words in TERMS.items() if name in cells}
    lines = []
    for name, of_term in names.items():
        entropy = np.mean([run["steps"][-1]["entropy"] for run in cells[name].values()])
        lines.append((of_term, f"{table[name].mean():.3f}", f"{entropy:.2f}"))
    some = config_of({"both": cells["both"]})
    found = {"both": c}
    if task == "hard":  # "with the filter too"
        found["filtered"] = contrast(table, {"filtered": 1, "none": -1})
    less = ", ".join(f"{name} minus none {points(c)}" for name, c in found.items())
    says = (f"coefficients {some['kl_coef']:g} (KL) and {some['entropy_coef']:g} (entropy): {less}")
    if "small" in cells:  # does a little of both help, where as much as that does harm?
        c = contrast(table, dict(small=1, none=-1))
        says += f". With {names['small']}: minus none {points(c)}"
    used = " and ".join(sorted({f"{some[key]:g}" for key in ("kl_coef", "entropy_coef")}))
    named = {words: cells[name] for name, words in names.items()}
    panels = [curves(named, f"{task.title()}, coefficients of {used}", label="{}"),
              training(named, "entropy", "token entropy, nats")]
    verdicts = [judge(c, sign, gained(cells)) for c in found.values()]
    return dict(verdict=both(verdicts), sees=sees(found.values()), says=says,
                table=grid_text(["terms", "avg@4", "token entropy at the end, nats"], lines),
                figure=figure(atlas, f"recipe_{task}", panels))


def lr_grid(atlas):
    """The best lr of the middle of the grid against both ends."""
    arms = [p.name for p in atlas.folder.glob("lr_[0-9]*")]  # not the figures lr_grid.png, ...
    if len(arms) < 3:
        raise Missing("three lr_*")
    cells = {float(name[3:]): one_cell(atlas, name) for name in arms}
    some, cells = config_of(cells), dict(sorted(cells.items()))
    table = table_of(cells)
    first, *middle, last = cells
    best, low = best_less(table, middle, [first])
    _, high = best_less(table, middle, [last])
    says = (", ".join(f"{lr:g}: {table[lr].mean():.3f}" for lr in cells)
            + f"; {each_of(best)}, chosen on other seeds, minus {first:g} {points(low)}, "
            f"minus {last:g} {points(high)}")
    panel = curves(cells, f"lr_base, B_p = {some['B_p']}, n = {some['n']}", label="{:g}")
    verdicts = [judge(c, +1, gained(cells)) for c in (low, high)]
    return dict(verdict=both(verdicts), sees=sees([low, high]), says=says,
                figure=figure(atlas, "lr_grid", [panel]))


def lr_rule(atlas):
    """lr ~ sqrt(B) against a linear and a constant lr, at a large batch."""
    # through the best lr of the grid at a small batch; at B = 1,024 sqrt has lr = lr_base
    cells = {rule: one_cell(atlas, f"scale_{rule}") for rule in ("linear", "constant")}
    some = config_of(cells)
    own = atlas.arm("easy", some["B_p"], [some["n"]], BEST_OF_GRID)
    cells["sqrt"] = own[some["n"]]
    table = table_of(cells)
    found = {rule: contrast(table, {"sqrt": 1, rule: -1}) for rule in ("linear", "constant")}
    less = ", ".join(f"minus {rule} {points(c)}" for rule, c in found.items())
    panel = curves(cells, f"B_p = {some['B_p']}, n = {some['n']}", label="{}")
    verdicts = [judge(c, +1, gained(cells)) for c in found.values()]
    return dict(verdict=both(verdicts), sees=sees(found.values()),
                says=f"{means(table)}; sqrt {less}", figure=figure(atlas, "lr_rule", [panel]))


# ---- section 4: allocation

def with_other_lrs(atlas, task):
    """An arm, and ARM_half, ARM_double, ... where they are there."""
    return [task + end for end in ("", *LRS) if (atlas.folder / (task + end)).is_dir()]


def every_lr(atlas, task):
    """{lr_base: {n: {seed: run}}} of an arm and of ARM_half, ARM_double, ..."""
    out = {}
    for name in with_other_lrs(atlas, task):
        for lr in atlas.lrs(name):
            with contextlib.suppress(Missing):
                cells = atlas.arm(name, lr=lr)
                out.setdefault(lr, {}).update(cells)
    if not out:
        raise Missing(f"two seeds of {task}")
    return out


def by_lr(atlas, task):
    """`every_lr`, the smallest lr_base first, of the n with two lr_base or more, where any has; an
    lr_base that one n alone has compares none."""
    out = every_lr(atlas, task)
    if max(map(len, out.values())) > 1:
        out = {lr: cells for lr, cells in out.items() if len(cells) > 1}
    times = Counter(n for cells in out.values() for n in cells)
    least = 1 + (max(times.values()) > 1)
    return {lr: {n: out[lr][n] for n in sorted(out[lr]) if times[n] >= least}
            for lr in sorted(out)}


def one_rule(arms):
    """The lr_base of {lr_base: {n: {seed: run}}} that is best for all n at the end."""
    most = max(map(len, arms.values()))
    arms = {lr: cells for lr, cells in arms.items() if len(cells) == most}
    if len(arms) == 1:  # nothing to compare
        return next(iter(arms))
    table = table_of({(lr, n): runs for lr, cells in arms.items() for n, runs in cells.items()})
    return max(arms, key=lambda lr: np.mean([table[lr, n].mean() for n in arms[lr]]))


def deep_ones(arms):
    """Of {lr_base: {n: runs}} the n that are deep enough to compare, in words the others."""
    left = []
    for n in sorted({n for cells in arms.values() for n in cells}):
        M, deep, _ = depth([run for cells in arms.values() for run in cells.get(n, {}).values()])
        if not deep:
            left.append((n, f"n = {n}, {M} updates, is not deep enough to be compared"))
    some = {n for n, _ in left}
    kept = {lr: {n: runs for n, runs in cells.items() if n not in some}
            for lr, cells in arms.items()}
    kept = {lr: cells for lr, cells in kept.items() if cells}
    if max(map(len, kept.values()), default=0) < 3:  # then the row says that it is too shallow
        return arms, ""
    return kept, "".join(f". {words}" for _, words in left)


def at_one_lr(atlas, arm):
    """An arm at the one lr_base that is best for all n (of those that three n have, where any is),
    of the n that are deep enough: (lr_base, {n: {seed: run}}, {lr_base: the same at each, of the n
    that have several}, words on the n left out)."""
    every, (arms, _) = every_lr(atlas, arm), deep_ones(by_lr(atlas, arm))
    lr = one_rule({lr: cells for lr, cells in arms.items() if len(every[lr]) > 2} or arms)
    whole, left = deep_ones({lr: every[lr]})
    return lr, whole[lr], arms, left


def rise(atlas, task):
    """Does n*(C) of an arm rise, at the one lr_base that is best for all n? Where there are two
    seeds from 3 on, the verdict is theirs: where the claim was made on seeds 0 to 2, these cannot
    confirm it.
    """
    lr, cells, arms, left = at_one_lr(atlas, task)
    folders = " ".join(str(atlas.folder / name) for name in with_other_lrs(atlas, task))
    panel = panel_of(folders, lr=lr)
    c = shift_of(cells)
    words = f"{says_shift(c)}. By the smoothed curves: {law_of(panel)[1]}{left}"
    if len(arms) > 1:
        wide = [cells for cells in every_lr(atlas, task).values() if len(cells) > 2]
        how = "best for all n" if len(wide) > 1 else "the one that three n have"
        words = f"At lr_base = {lr:g}, {how}: {words}"
    fresh = {}
    for n, runs in cells.items():
        fresh[n] = {seed: run for seed, run in runs.items() if seed > 2}
    some_are_old = any(set(fresh[n]) < set(cells[n]) for n in cells)
    if some_are_old and all(len(runs) > 1 for runs in fresh.values()):
        c = shift_of(fresh)
        words = ("On seeds that were run after the claim was made (3 and up, which decide): "
                 f"{says_shift(c)}. On all seeds: {words}")
    return dict(verdict=c["verdict"], sees=c["sees"], says=words, compared=cells,
                figure=law_figure(atlas, task, panel, every_lr(atlas, task)[lr]))


def labelled(every):
    """{lr_base: {n: runs}} as {"n = 4, lr_base 2e-4": runs}, the lr_base where it is not one."""
    each = sorted((n, lr) for lr in every for n in every[lr])
    return {f"n = {n}" + f", lr_base {lr:g}" * (len(every) > 1): every[lr][n] for n, lr in each}


def in_stretches(cells, of=""):
    """A table: avg@4 of {words: runs} in four stretches of their budget, each twice as long as the
    last."""
    C = min(run["budget"] for runs in cells.values() for run in runs.values())
    lines = []
    for stop in (1 / 8, 1 / 4, 1 / 2, 1):
        table = table_of(cells, window=(stop / 2, stop))
        lines.append([f"{si(stop / 2 * C)} to {si(stop * C)}",
                      *(f"{t.mean():.3f}" for t in table.values())])
    return grid_text([f"{of}avg@4, rollouts", *cells], lines)


def far(atlas, arm):
    """Ours: `rise` in an arm that goes beyond the budget of `main`, where the smallest n also has
    other lr_base."""
    found, every = rise(atlas, arm), every_lr(atlas, arm)
    cells = labelled(every)
    how = ", each at its best lr_base" * (len(every) > 1)
    first, *_, large = sorted({n for own in every.values() for n in own if n <= 64})
    gaps = [(large, first)] + [(n, large) for own in every.values() for n in own if n > 64]
    for pair in gaps:
        found["says"] += f". At the end{how}, {own_lr_gap(every, *pair)[0]}"
    found["table"] = in_stretches(cells)
    panels = [curves(cells, f"{TITLES.get(arm, arm)}, validation {metric}", metric, label="{}")
              for metric in ("avg@4", "best@4")]
    found["figure"] = [found["figure"], figure(atlas, arm, panels, width=6)]
    return found


def far_above(atlas, arm):
    """Ours: does n = 64 of such an arm end above n = 4, each at its best lr_base?"""
    found, every = far(atlas, arm), every_lr(atlas, arm)
    _, c = own_lr_gap(every, 64, 4)
    g = gained(every[one_rule(every)])
    return found | dict(verdict=judge(c, +1, g), sees=c["sees"])


def fewest(atlas):
    """The arm with the fewest problems, of `epochs` where it has arms of its own, or of `size`."""
    for study in ("epochs", "size"):
        sizes = [p.name for p in atlas.folder.glob(f"{study}_*[0-9]") if p.is_dir()]
        if sizes:
            return min(sizes, key=lambda name: int(name.removeprefix(f"{study}_")))
    raise Missing("epochs_*")


def many_epochs(atlas):
    return rise(atlas, fewest(atlas))


def other_lrs(atlas, task):
    """`by_lr`, up to the budget that all have: {lr_base: {n: {seed: run}}}, and words on the n that
    are not deep enough."""
    arms, left = deep_ones(by_lr(atlas, task))
    if len({n for cells in arms.values() for n in cells}) < 3 or len(arms) < 3:
        raise Missing(f"three n of {task} at three lrs")
    return cut(arms), left


def lr_control(atlas, task):
    """Does n*(C) of an arm rise where every n has the best of several lrs? Also the largest n less
    the smallest, at the end, each at its best."""
    arms, left = other_lrs(atlas, task)
    lr = one_rule(arms)
    early, late = windows(list(arms.values()))
    c = shift(early, late, gained(arms[lr]))
    # the same at one lr for all n, on the seeds of that contrast: those that all lrs have
    seeds = set.intersection(*(set(runs) for cells in arms.values() for runs in cells.values()))
    own = {n: {seed: runs[seed] for seed in seeds} for n, runs in arms[lr].items()}
    best = []
    for n, tables in late.items():
        tried = [x for x in arms if n in arms[x]]
        best.append(f"n = {n}: {tried[int(np.argmax([t.mean() for t in tables]))]:g}")
    says = (f"{says_shift(c)}. At lr_base = {lr:g} for all n, on the same {len(seeds)} seeds: "
            f"{says_shift(shift_of(own))}. Best lr_base at the end, of "
            f"{', '.join(f'{x:g}' for x in arms)} (the best may lie beyond either end): "
            f"{', '.join(best)}{left}. At the end, each at its best lr_base, "
            f"{own_lr_gap(arms)[0]}")
    name, front = view_figure(atlas, "lr", f"lr_control_{task}", with_other_lrs(atlas, task))
    if front["slope"] is not None:
        says += (f". By the smoothed curves the best lr goes with B to the power "
                 f"{front['slope']:.2f} (the rule: 0.5)")
    return dict(verdict=c["verdict"], sees=c["sees"], says=says, figure=name)


def own_lr_gap(arms, large=None, small=None):
    """n = `large` less n = `small` at the end, the largest and the smallest unless told, each at
    the lr_base that is best for it on the other seeds: (words, the contrast of avg@4); arms:
    {lr_base: {n: {seed: run}}}."""
    cells = {(n, lr): runs for lr, each in arms.items() for n, runs in each.items()}
    large, small = large or max(n for n, _ in cells), small or min(n for n, _ in cells)
    of_n, gaps = [[key for key in cells if key[0] == n] for n in (large, small)], {}
    for metric in ("avg@4", "best@4"):
        _, gaps[metric] = best_less(table_of(cells, metric=metric), *of_n)
    said = ", ".join(f"{metric} {points(c)}" for metric, c in gaps.items())
    if max(map(len, of_n)) > 1:  # the lr that is best on the other seeds of two may be the worse
        table = table_of(cells)
        a, b = (max(keys, key=lambda key: table[key].mean()) for keys in of_n)
        said += (f" (with the lr_base that is best on all seeds, {a[1]:g} and {b[1]:g}, avg@4 "
                 f"{points(contrast(table, {a: 1, b: -1}))})")
    return f"n = {large} less n = {small}: {said}", gaps["avg@4"]


def at_the_edge(table, name):
    """Words where the lr_base that is best in a table {(key, lr_base): (S, P)} is the smallest or
    the largest of three or more, so that the best may lie beyond; else ""."""
    lrs = [lr for _, lr in table]
    _, best = max(table, key=lambda key: table[key].mean())
    if len(lrs) < 3 or best not in (min(lrs), max(lrs)):
        return ""
    return f", where {name} has its best, {best:g}, at the edge of those tried"


def at_own_lrs(atlas, arm, large, small):
    """n = `large` less n = `small` of an arm at the end: (words, contrast, whether both have three
    lr_base, whether the lr was tuned).

    Each at its best lr_base, chosen on other seeds, where both have three; else at the lr_base of
    most runs, which then was not tuned. Nor was it where the n that is behind has its best at the
    edge of those tried.
    """
    cells = {(n, lr): runs for lr, own in every_lr(atlas, arm).items() for n, runs in own.items()}
    of_n = [[key for key in cells if key[0] == n] for n in (large, small)]
    ran = tuned = min(map(len, of_n)) > 2
    if ran:
        table = table_of({key: cells[key] for keys in of_n for key in keys})
        best, c = best_less(table, *of_n)
        how = f", each at its best lr_base of three (n = {large}: " \
              f"{each_of([f'{lr:g}' for _, lr in best])})"
        behind = of_n[int(c["gain"] > 0)]
        edge = at_the_edge({key: table[key] for key in behind}, f"n = {behind[0][0]}")
        how, tuned = how + edge, not edge
    else:
        c, how = contrast(table_of(atlas.arm(arm)), {large: 1, small: -1}), ""
    return f"n = {large} minus n = {small}{how}: {points(c)}", c, ran, tuned


def by_difficulty(atlas):
    """Ours: what the large n gains late on the small one, for the levels of difficulty, at one lr
    and where it was tuned for each n."""
    small, large = PAIR
    found, tuned, lines, g = {}, [], [], 0
    for arm, name in BY_DIFFICULTY.items():
        _, cells, _, _ = at_one_lr(atlas, arm)
        if set(PAIR) <= set(cells):
            cells = {n: cells[n] for n in PAIR}
            g = max(g, gained(cells))
            base = np.mean([t.mean() for t in table_of(cells, window=START).values()])
            each = {metric: contrast(table_of(cells, metric=metric), {large: 1, small: -1})
                    for metric in ("avg@4", "best@4", "worst@4")}
            found[name] = base, each
            seeds = set.intersection(*(set(runs) for runs in cells.values()))
            _, own, has_own, _ = at_own_lrs(atlas, arm, large, small)
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


def order_of_crossings(atlas):
    """Ours: where a larger n takes over, for several D: at one C, or at one C / D?"""
    arms, sizes = sizes_of(atlas)
    if len(sizes) < 3:
        raise Missing("three D")
    found, says = {}, []
    for D in sorted(sizes):
        use({n: arms[D][n] for n in (4, 16, 64) if n in arms[D]})
        panel = panel_of(atlas.folder / sizes[D], lr=config_of(arms[D])["lr_base"])
        for pair in ((4, 16), (16, 64), (4, 64)):
            s = first_crossing(panel, *pair)
            if s:
                found.setdefault(pair, {})[D] = s
    for (a, b), at in sorted(found.items()):
        said = ", ".join(f"D = {D} at {si(s['C'])} [{si(s['lo']) if s['lo'] else 'open'} to "
                         f"{si(s['hi']) if s['hi'] else 'open'}], C / D = {s['C'] / D:.0f}"
                         for D, s in at.items())
        never = [f"{D}" for D in sorted(sizes) if D not in at]
        never = f", not for D = {', '.join(never)}" if never else ""
        if len(at) > 2:
            x, y = np.log(list(at)), np.log([s["C"] for s in at.values()])
            never += f", slope of log C over log D {np.polyfit(x, y, 1)[0]:.2f}"
        says.append(f"n = {a} to {b}: {said}{never}")

    def draw(ax):
        from matplotlib.ticker import LogLocator
        every = [s[key] for at in found.values() for s in at.values() for key in ("C", "lo", "hi")]
        bottom, top = (pick(filter(None, every)) for pick in (min, max))
        top = max([top, *(run["budget"] for runs in arms[min(arms)].values()
                          for run in runs.values())])
        for i, ((a, b), at) in enumerate(sorted(found.items())):
            x = {D: D * 1.05 ** (i - 1) for D in sorted(sizes)}  # beside each other
            for D, s in at.items():
                lo, hi = s["lo"] or 0.7 * bottom, s["hi"] or 1.4 * top
                ax.plot([x[D]] * 2, [lo, hi], color=f"C{i}", lw=1.2)
                for open_end, y, mark in ((not s["lo"], lo, "v"), (not s["hi"], hi, "^")):
                    ax.plot(x[D], y, mark if open_end else "_", color=f"C{i}", ms=6)
            ax.plot([x[D] for D in at], [s["C"] for s in at.values()], "o-", color=f"C{i}",
                    label=f"n = {b} overtakes {a}")
            none = [x[D] for D in sizes if D not in at]
            ax.plot(none, [2 * top] * len(none), "x", color=f"C{i}", ms=6)
        first = next(s["C"] / D for at in found.values() for D, s in at.items())
        D = np.array([min(sizes), 2 * top / first])
        ax.plot(D, D * first, ":", color="0.5", lw=1.2, label="if C / D decided")
        over(ax, "D, training problems", ylabel="C of the crossing, 90% interval", yscale="log",
             title="arrow: interval open there; ×: no crossing in the runs")
        ax.set_xlim(0.8 * min(sizes), 1.25 * max(sizes))
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_major_formatter(lambda value, _: si(value))
        ax.yaxis.set_minor_formatter(lambda *_: "")
        ax.set_xticks(sorted(sizes), sorted(sizes))
        ax.legend(fontsize=9, loc="lower right")
    several = any(len(at) > 1 for at in found.values())  # one D alone has no order
    return dict(verdict="", says="; ".join(says) or "no n takes over from a smaller one",
                figure=figure(atlas, "crossings", [draw], width=6) if several else "")


def reached(c, g):
    """Does a run reach the frontier? c: the frontier less the run; g: what training gained."""
    if c["gain"] + c["half"] < SMALL * g:  # it loses less than that
        return "agree"
    return "disagree" if c["gain"] - c["half"] > 0 else "undecided"


def grown_of(atlas, arm):
    """{(arm, lr_base): {seed: run}} of an arm whose runs raise n."""
    if not (atlas.folder / arm).is_dir():
        raise Missing(arm)
    return {(arm, lr): runs for lr, cells in every_lr(atlas, arm).items()
            for runs in cells.values()}


def growing(atlas, arm, task, *others):
    """Ours: the runs of an arm that raise n, against the best constant n of `task` at every budget,
    each at the lr that is best on other seeds. At the end they are also compared with the growing
    runs of other arms."""
    grown = grown_of(atlas, arm)
    one = config_of({0: next(iter(grown.values()))})
    seeds = set.intersection(*map(set, grown.values()))  # crossings were found on other seeds
    constant = deep_cells({(n, lr): runs for lr, cells in every_lr(atlas, task).items()
                           for n, runs in cells.items()})
    constant = {key: runs for key, runs in constant.items() if len(seeds & set(runs)) > 1}

    def behind(**how):  # the frontier of constant n less the growing runs
        return best_less(table_of(constant | grown, **how), list(constant), list(grown))[1]
    said, verdicts, found, g = [], [], [], gained(constant)
    C = min(run["budget"] for runs in grown.values() for run in runs.values())
    for low in (1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4):
        window = low, min(2 * low, 1)
        found.append(behind(window=window))
        verdicts.append(reached(found[-1], g))
        said.append(f"{si(C * window[0])} to {si(C * window[1])} {points(found[-1], -1)}")
    lrs = " or ".join(f"lr_base {lr:g}" for _, lr in grown)
    edge = at_the_edge(table_of(grown), "it") if found[-1]["gain"] > 0 else ""
    says = (f"n = {one['n']}, then {one['n_schedule']}, at {lrs}{edge}, less the best constant "
            f"(n, lr): {', '.join(said)}. The same of best@4 over the last quarter: "
            f"{points(behind(metric='best@4'), -1)}")
    for other in others:
        theirs = grown_of(atlas, other)
        _, c = best_less(table_of(theirs | grown), list(grown), list(theirs))
        schedule = config_of({0: next(iter(theirs.values()))})["n_schedule"]
        says += f". Over the last quarter less the runs that grow n by {schedule}: {points(c)}"
    rule, stages = at_one_lr(atlas, task)[0], stages_of(one)
    shown = {f"n = {n}": {seed: runs[seed] for seed in seeds & set(runs)}
             for (n, lr), runs in constant.items()
             if lr == rule and n in [s["n"] for s in stages]}
    ns = ", ".join(f"{s['n']}" for s in stages)  # an lr that all have stands in the title alone
    dashed = {f"n = {ns}" + f"; lr_base {lr:g}" * (lr != rule): runs
              for (_, lr), runs in grown.items()}
    panels = [curves(shown | dashed, f"{TITLES.get(task, task)}, lr_base {rule:g}, "
                     f"{len(seeds)} seeds", m, label="{}", dashed=dashed,
                     marks=[s["rollouts"] for s in stages[1:]]) for m in ("avg@4", "best@4")]
    return dict(verdict=both(verdicts), sees=sees(found), says=says, compared=constant | grown,
                tuned=len(grown) > 2 and not edge, figure=figure(atlas, arm, panels, width=6))


def real_curves(atlas, name, *arms):
    """Ours: learning curves of a real model in some arms, at their lr_base and others, up to the
    budget that all have; NAME.png."""
    says, tables, panels = [], [], []
    for arm in arms:
        try:
            every, rule = every_lr(atlas, arm), config_of(atlas.arm(arm))["lr_base"]
        except Missing:  # not yet run
            continue
        if len(every[rule]) < 2:
            continue
        task, large, small = arm.split("_")[1].title(), max(every[rule]), min(every[rule])
        base = table_of(every[rule], window=START)[small].mean()
        gaps = []
        for metric in ("avg@4", "best@4", "worst@4"):
            c = contrast(table_of(every[rule], metric=metric), {large: 1, small: -1})
            gaps.append(f"{metric} {points(c)}")
        says.append(f"{task} (base model {base:.3f}), B_p = {config_of(every[rule])['B_p']}; at "
                    f"lr_base = {rule:g}, n = {large} less n = {small}: {', '.join(gaps)}")
        if len(every) > 1:
            says[-1] += f"; each at its best lr_base, {own_lr_gap(every)[0]}"
        cells = labelled(every)
        tables.append(in_stretches(cells, f"{task}: "))
        one = f", lr_base {rule:g}" * (len(every) == 1)
        others = tuple(f"lr_base {lr:g}" for lr in every if lr != rule)
        panels += [curves(cells, f"SmolLM2, {task}{one}, with 90% bands", m, label="{}",
                          dashed=[key for key in cells if key.endswith(others)], bands=True)
                   for m in ("avg@4", "best@4", "worst@4")]
    if not says:
        raise Missing(f"two n of {arms[0]}")
    return dict(verdict="", says=". ".join(says), table="\n\n".join(tables),
                figure=figure(atlas, name, panels, width=5))


def one_seed_deeper(atlas, name, arm, *on):
    """Ours: runs of one seed in the arms `on`, which go beyond the budget of `arm`, beside the
    runs of that seed there; NAME.png. Intervals are over problems alone."""
    longer = {n: runs for one in on for (_, n), runs in atlas.cells(one).items()}
    seeds = {seed for runs in longer.values() for seed in runs}
    if len(seeds) != 1:
        raise Missing(f"one seed of {' '.join(on)}")
    (seed,) = seeds
    short = {n: {seed: runs[seed]} for (_, n), runs in atlas.cells(arm).items() if seed in runs}
    if not short:
        raise Missing(f"seed {seed} of {arm}")
    cells, C = dict(sorted((short | longer).items())), config_of(short)["C"]
    use(cells)

    def quarter(n, C=None):
        run = cells[n][seed] | dict(budget=C or cells[n][seed]["budget"])
        first, last = (si(share * run["budget"]) for share in LATE)
        return f"{first} to {last}", look(run)

    def less(a, b):
        return points(dict(gain=(a - b).mean(), half=over_problems(a - b)))
    lr = {n: f"lr_base = {config_of({n: runs})['lr_base']:g}" for n, runs in cells.items()}
    says = []
    for n in longer:
        (late, a), (early, b) = quarter(n), quarter(n, C)
        says.append(f"n = {n} at {lr[n]}, over {late} less over {early}: {less(a, b)}")
    large = max(longer)
    late, a = quarter(large)
    for n in cells:
        if n != large:
            when, b = quarter(n)
            says.append(f"n = {large} over {late} less n = {n} at {lr[n]} over {when}: "
                        f"{less(a, b)}")
    task = arm.split("_")[1].title()
    panels = [curves({f"n = {n}, {lr[n]}": runs for n, runs in cells.items()},
                     f"SmolLM2, {task}, seed {seed}, with 90% bands", metric, label="{}")
              for metric in ("avg@4", "best@4", "worst@4")]
    return dict(verdict="", says="; ".join(says), figure=figure(atlas, name, panels, width=5))


def real_lr(atlas):
    """Ours: how a real model depends on lr_base: a short grid, and the n that have several.

    Seeds of one run are shown too, in a line of their own: nothing here is judged.
    """
    grid, lines = {}, []

    def line(what, cell, of_lr):  # {lr_base: {seed: run}}
        if len(of_lr) < 2:
            return
        table = table_of(of_lr, least=1)
        C = min(run["budget"] for runs in of_lr.values() for run in runs.values())
        seeds = len(next(iter(table.values())))
        lines.append(([what, *cell, si(C), seeds], {lr: t.mean() for lr, t in table.items()}))
    for path in sorted(atlas.folder.glob("smollm_lr_*")):
        for cell, runs in atlas.cells(path.name).items():
            grid.setdefault(cell, {})[config_of({0: runs})["lr_base"]] = runs
    for cell, of_lr in sorted(grid.items()):
        line("Hard, a short grid", cell, of_lr)
    for task in ("hard", "easy"):
        by_cell = {}
        for name in with_other_lrs(atlas, f"smollm_{task}"):
            for lr, cells in atlas.lrs(name).items():
                for cell, runs in cells.items():
                    by_cell.setdefault(cell, {})[lr] = runs
        for cell, of_lr in sorted(by_cell.items()):
            several = {lr: runs for lr, runs in of_lr.items() if len(runs) > 1}
            line(task.title(), cell, several)
            if several != of_lr:
                line(task.title(), cell, of_lr)
    if not lines:
        raise Missing("smollm_lr_*")
    lrs = sorted({lr for _, ends in lines for lr in ends})
    heads = ["avg@4 by lr_base", "B_p", "n", "C", "seeds", *(f"{lr:g}" for lr in lrs)]
    rows = [[*of, *(f"{ends[lr]:.3f}" if lr in ends else "" for lr in lrs)] for of, ends in lines]
    return dict(verdict="", says="means over the last quarter of C",
                table=grid_text(heads, rows))


def epochs_control(atlas):
    return lr_control(atlas, fewest(atlas))


def lr_of_a_short_run(atlas):
    """What the lr that leads at C/8 loses at the end on the lr that is best there."""
    lost = {}
    for task in ("easy", "hard"):
        early, late = windows(list(other_lrs(atlas, task)[0].values()))
        for n in early:
            ends = [t.mean() for t in late[n]]
            # chosen on each seed's own evaluations, as one short run each would; the best at the
            # end is that of all seeds
            got = []
            for seed in range(len(early[n][0])):
                got.append(ends[int(np.argmax([t[seed].mean() for t in early[n]]))])
            lost[task, n] = f"{100 * max(max(ends) - np.mean(got), 0):.1f}"
    ns = sorted({n for _, n in lost})
    rows = [[task.title(), *(lost.get((task, n), "") for n in ns)] for task in ("easy", "hard")]
    return dict(verdict="", table=grid_text(["points lost", *(f"n = {n}" for n in ns)], rows),
                says="points that it loses at the end to the lr that is best there, each chosen on "
                "one seed")


def records(atlas):
    """What the paper's record-breaking points add to the frontier."""
    lr, cells, _, _ = at_one_lr(atlas, "easy")
    use(cells)
    above = panel_of(atlas.folder / "easy", lr=lr)["paper"]["above"]
    if above is None:
        raise Missing("record-breaking points")
    says = (f"curves through record-breaking points lie {100 * above:+.1f} points from the "
            "frontier of what the models at C get (mean over log C)")
    return dict(verdict="", says=says, figure="law_easy.png")


def tokens(atlas):
    """n*(C) in rollouts and in tokens, at the ends of the budgets that all n reached."""
    ends, same, (lr, cells, _, _) = {}, True, at_one_lr(atlas, "easy")
    use(cells)
    for unit in ("rollouts", "tokens"):
        ends[unit] = ends_of(panel_of(atlas.folder / "easy", unit, lr))
    for (top, near_top), (other, near_other) in zip(ends["rollouts"], ends["tokens"]):
        same = same and top in near_other and other in near_top
    said = [f"{low[0]} and {high[0]} in {unit}" for unit, (low, high) in ends.items()]
    length = []
    for runs in cells.values():
        for run in runs.values():
            length.append(run["steps"][-1]["tokens"] / run["steps"][-1]["rollouts"])
    says = (f"best n at the smallest and the largest shared budget: {'; '.join(said)}; "
            f"{'indistinguishable' if same else 'different'}. A response has {min(length):.1f} to "
            f"{max(length):.1f} tokens in every run, so here the units could hardly differ")

    def in_unit(unit):
        def draw(ax):
            panel = panel_of(atlas.folder / "easy", unit, lr)
            C, best = shared_best(panel)
            for at in panel["near"]:
                if C[0] <= at["C"] <= C[-1]:
                    ax.plot([at["C"]] * len(at["set"]), [n for _, n in at["set"]], "s",
                            color="0.7", ms=4)
            ax.plot([], [], "s", color="0.7", ms=4, label="indistinguishable from the best (90%)")
            ax.step(C, best, where="post", color="k", lw=2, label="n*(C)")
            over(ax, f"C, {unit}", ylabel="n", title=f"Easy, C in {unit}", yscale="log")
            ax.legend(fontsize=9, loc="upper left")
            ax.set_ylim(panel["ns"][0] / 1.4, 4 * panel["ns"][-1])
            ax.set_yticks(sorted(cells), sorted(cells))
            ax.minorticks_off()
        return draw
    panels = [in_unit(unit) for unit in ends]
    return dict(verdict="", says=says, figure=figure(atlas, "units", panels, sharey=True))


def metrics(atlas, task, first, second):
    """Figure 8: does the second metric want a larger n than the first?"""
    _, cells, _, _ = at_one_lr(atlas, task)
    tables = {metric: table_of(cells, metric=metric) for metric in (first, second)}
    c = shift(*({n: [t] for n, t in table.items()} for table in tables.values()), gained(cells))
    says = says_shift(c, (f"by {first}", f"by {second}"))
    for metric, table in tables.items():
        says += f"; {metric}: {told(table)}"
    panels = [curves(cells, TITLES.get(task, task), metric) for metric in tables]
    figure(atlas, f"metrics_{task}", panels)
    bars, _ = view_figure(atlas, "best_worst", f"best_worst_{task}", [task])
    return dict(verdict=c["verdict"], sees=c["sees"], says=says,
                figure=[f"metrics_{task}.png", bars])


def joint_arms(task):
    """The arm of a level of difficulty, and that which has its other B_p."""
    return task, f"joint_{task}"


def grid_of(atlas, task):
    """{(B_p, n): {seed: run}} of `joint_arms`, at the one lr_base of the second.

    Of the n that two B_p have or more, in order of n, up to the budget that all have.
    """
    arm, other = joint_arms(task)
    cells = atlas.cells(other)
    lr = config_of(cells)["lr_base"] if cells else None
    cells = {key: runs for key, runs in (atlas.cells(arm, lr) | cells).items() if len(runs) > 1}
    if len({b for b, _ in cells}) < 2:
        raise Missing(f"{arm} at a second B_p")
    times = Counter(n for _, n in cells)
    shared = {}
    for b, n in sorted(cells, key=lambda cell: (cell[1], cell[0])):
        if times[n] > 1:
            shared[b, n] = cells[b, n]
    return cut({arm: shared})[arm]


def grouped(grid, key):
    """{(B_p, n): runs} -> {key(B_p, n): {n: runs}}, in the order of the keys."""
    out = {}
    for (b, n), runs in grid.items():
        out.setdefault(key(b, n), {})[n] = runs
    return dict(sorted(out.items()))


def without_verdict(groups, name):
    """Words on the groups of `grouped` that have fewer than three n."""
    few = [f"{name} = {key}" for key, cells in groups.items() if len(cells) < 3]
    return f"; fewer than three n, so no verdict: {', '.join(few)}" if few else ""


def sensitivity(atlas, task):
    """Figure 10: points for each doubling of n and of B_p, a plane in both fitted to all cells."""
    cells = grid_of(atlas, task)
    table = table_of(cells)
    X = np.array([[1, math.log2(b), math.log2(n)] for b, n in table])
    _, to_B_p, to_n = np.linalg.pinv(X)  # least squares: each slope as weights of the cells

    def weighted(weights):
        return contrast(table, dict(zip(table, weights)))
    of_n, of_B_p = weighted(to_n), weighted(to_B_p)
    # the size of a slope is the slope times its sign
    gap = weighted(np.sign(of_n["gain"]) * to_n - np.sign(of_B_p["gain"]) * to_B_p)
    g = gained(cells)
    if task == "easy":  # n has the larger effect, and it helps
        verdict = both([judge(gap, +1, g), judge(of_n, +1, g)])
    elif abs(gap["gain"]) + gap["half"] < SMALL * g:  # the effects are alike, and n helps
        verdict = judge(of_n, +1, g)
    else:
        verdict = "disagree" if abs(gap["gain"]) > gap["half"] else "undecided"
    at_n = []
    for n in sorted({n for _, n in table}):
        first, *_, last = sorted(b for b, m in table if m == n)
        c = contrast(table, {(last, n): 1, (first, n): -1})
        at_n.append(f"at n = {n} B_p = {last} minus {first} {points(c)}")
    by_B_p = grouped(cells, lambda b, n: b)
    way = "helps" if of_n["gain"] > of_n["half"] else "costs" if -of_n["gain"] > of_n["half"] else \
        "neither clearly helps nor costs"
    says = (f"a larger n {way} here; "
            f"points for each doubling: of n {points(of_n)}, of B_p {points(of_B_p)}; size of the "
            f"first minus that of the second {points(gap)} ({len(cells)} cells, "
            f"B_p = {', '.join(map(str, by_B_p))}); {', '.join(at_n)}")
    return dict(verdict=verdict, sees=gap["sees"], says=says, figure=view_figure(
        atlas, "sensitivity", f"sensitivity_{task}", joint_arms(task), cells)[0])


def each_B_p(atlas, task):
    """Figures 16 and 17: does n*(C) rise at every B_p?"""
    found, panels, grid = {}, [], grid_of(atlas, task)
    for b, cells in grouped(grid, lambda b, n: b).items():
        panels.append(curves(cells, f"{task.title()}, B_p = {b}", among={n for _, n in grid}))
        if len(cells) > 2:
            found[b] = shift_of(cells)
    if not found:
        raise Missing("three n at one B_p")
    return dict(verdict=both([c["verdict"] for c in found.values()]), sees=sees(found.values()),
                says="; ".join(f"B_p = {b}: {says_shift(c)}" for b, c in found.items())
                + without_verdict(grouped(grid, lambda b, n: b), "B_p"),
                figure=figure(atlas, f"B_p_{task}", panels))


def fixed_B(atlas, task):
    """Figures 9, 18 and 19: does n* rise at a fixed batch B = B_p n?"""
    found, says, grid = [], [], grid_of(atlas, task)
    for B, cells in grouped(grid, lambda b, n: b * n).items():
        if len(cells) > 2:
            found.append(shift_of(cells))
            says.append(f"B = {B}: {says_shift(found[-1])}; at the end {told(table_of(cells))}")
    if not found:
        raise Missing("three n at one B_p n")
    return dict(verdict=both([c["verdict"] for c in found]), sees=sees(found),
                says="; ".join(says) + without_verdict(grouped(grid, lambda b, n: b * n), "B"),
                figure=view_figure(
                    atlas, "fixed_B", f"fixed_B_{task}", joint_arms(task), grid)[0])


def stable_B_p(atlas):
    """The smallest B_p of which at most one run in ten diverges or falls, by difficulty."""
    found = {}
    for task in ("easy", "hard"):
        grid = grid_of(atlas, task)
        names = " ".join(str(atlas.folder / name) for name in joint_arms(task))
        sweep = analysed(names, cells=frozenset(grid))
        for name in joint_arms(task):  # each to its own end
            own = atlas.cells(name, sweep["lr"])
            use({key: runs for key, runs in own.items() if key in grid})
        found[task] = frontier.stability(sweep["cells"])
    said = []
    for task, by_B_p in found.items():
        each = ", ".join(f"{bad} of {runs} with B_p = {b}" for b, (bad, runs) in by_B_p.items())
        said.append(f"{task.title()}: {each}; the smallest stable one is "
                    f"{frontier.smallest_stable(by_B_p) or 'none'}")
    first, second = (frontier.smallest_stable(found[task]) for task in ("easy", "hard"))
    verdict = "undecided"
    if first and second and first != second:
        # at the B_p that is stable for one alone: may so many runs fail there by chance?
        counts = [(bad, runs - bad) for bad, runs in (found[t][min(first, second)] for t in found)]
        p = stats.fisher_exact(counts).pvalue
        said.append(f"That the two fail alike at B_p = {min(first, second)} has p = {p:.2f}")
        if p < 0.1:
            verdict = "agree" if second > first else "disagree"
    return dict(verdict=verdict, says="Runs that diverged or fell: " + ". ".join(said))


def joint(atlas, task):
    """Figures 21 and 22: does the n of the best (B_p, n) rise?"""
    cells = grid_of(atlas, task)
    early, late = (table_of(cells, window=window) for window in (EARLY, LATE))
    c = shift(by_n(early, 1), by_n(late, 1), gained(cells))
    on_top = []
    for table, when in ((early, "early"), (late, "at the end")):
        b, n = max(table, key=lambda cell: table[cell].mean())
        on_top.append(f"({b}, {n}) {when}, B = {b * n}")
    return dict(verdict=c["verdict"], sees=c["sees"], figure=view_figure(
        atlas, "joint", f"joint_{task}", joint_arms(task), cells)[0],
                says=f"{says_shift(c)}; best (B_p, n): {', '.join(on_top)}")


# ---- section 5: base model and problems

def pass_rates(run, at):
    """Pass rates (D,) of a run's training problems nearest to budget `at`, and of how many rollouts
    each.

    From fresh rollouts, since those of training are of the policy before its update.
    """
    fresh = [r for r in run["passes"] if r.get("fresh")]
    if len(fresh) < 2:
        raise Missing("pass rates of training problems (--pass_at)")
    r = min(fresh, key=lambda r: abs(r["rollouts"] - at))
    return np.array(r["correct"]) / np.array(r["samples"]), r["samples"][0]


def interference(atlas, task):
    """Figures 11 and 27: training problems unsolved, mastered or unlearnt at two n."""
    (_, cells, _, _), (small, large) = at_one_lr(atlas, task), PAIR
    cells = {n: cells[n] for n in PAIR}
    C = min(run["budget"] for runs in cells.values() for run in runs.values())
    s = pass_rates(next(iter(cells[small].values())), C)[1]

    def share(true):  # {n: (S, D)} of what is true of the pass rates at the start and at the end
        return table_of(cells, lambda run: true(pass_rates(run, 0)[0], pass_rates(run, C)[0]) * 1.0)
    found, verdicts = [], []
    for true in (lambda p: p == 0, lambda p: p > 1 - 1.5 / s):
        end = share(lambda start, end: true(end))
        start = share(lambda start, end: true(start))
        found.append(contrast(end, {small: 1, large: -1}))
        moved = max(abs(end[n].mean() - start[n].mean()) for n in end)
        verdicts.append(judge(found[-1], +1, moved))
    none, nearly = found
    fell = share(lambda start, end: end < start - 0.25)
    # how many would fall by chance, at unchanged pass rates; these are drawn too, so this is a
    # little less than the truth
    start = np.concatenate([pass_rates(run, 0)[0] for run in cells[small].values()])
    again = np.random.default_rng(0).binomial(s, start, (200, len(start))) / s
    chance = np.mean(again < start - 0.25)

    def histogram(n):
        def draw(ax):
            first = next(iter(cells[n].values()))
            for at in sorted({r["rollouts"] for r in first["passes"] if r.get("fresh")}):
                p = np.concatenate([pass_rates(run, at)[0] for run in cells[n].values()])
                ax.hist(p, (np.arange(s + 2) - 0.5) / s, histtype="step", density=True,
                        label=f"C = {si(at)}")
            ax.set(xlabel=f"pass rate of a training problem ({s} fresh rollouts)",
                   ylabel="density", title=f"{TITLES.get(task, task)}, n = {n}")
            ax.legend(fontsize=9)
        return draw
    says = (f"n = {small} minus n = {large} at C = {si(C)}, in % of the training problems: "
            f"solved in none of {s} rollouts {points(none)}, in {s - 1} or more {points(nearly)}. "
            "Pass rate down by more than a quarter since the start: "
            f"{100 * fell[small].mean():.1f} and {100 * fell[large].mean():.1f} "
            f"(by chance alone {100 * chance:.1f})")
    return dict(verdict=both(verdicts), sees=none["sees"], says=says,
                figure=figure(atlas, f"pass1_{task}", [histogram(n) for n in cells]))


def at_best_lr(atlas, arm):
    """An arm at the lr_base that is best for all its n: ({n: {seed: run}}, a title with it)."""
    every = every_lr(atlas, arm)
    lr = one_rule(every)
    return every[lr], f"{TITLES.get(arm, arm)}, lr_base {lr:g}"


def models(atlas):
    """Figure 12: the largest n against the smallest, for other base models."""
    found, verdicts, says, panels, tuned = [], [], [], [], True
    for name in arms_of(atlas, "model_*"):
        cells, title = at_best_lr(atlas, name)
        words, c, _, own = at_own_lrs(atlas, name, max(cells), min(cells))
        tuned = tuned and own
        found.append(c)
        verdicts.append(judge(c, +1, gained(cells)))
        says.append(f"{title}: {words}; at lr_base = {config_of(cells)['lr_base']:g} "
                    f"{told(table_of(cells))}, {says_shift(shift_of(cells))}")
        panels.append(curves(cells, title))
    return dict(verdict=both(verdicts), sees=sees(found), says="; ".join(says), tuned=tuned,
                figure=figure(atlas, "models", panels, width=5.4))


def models_training(atlas):
    """Figure 12: training and validation reward of the largest n, from the middle to the end."""
    middle, says, panels = (0.375, 0.5), [], []

    def reward(run, window):
        lo, hi = window[0] * run["budget"], window[1] * run["budget"]
        return np.mean([r["reward"] for r in run["steps"] if lo < r["rollouts"] <= hi])
    for name in arms_of(atlas, "model_*"):
        cells, title = at_best_lr(atlas, name)
        n = max(cells)
        use({n: cells[n]})
        runs = cells[n].values()
        gained = np.mean([reward(run, LATE) - reward(run, middle) for run in runs])
        val = change(*(np.array([look(run, window=w) for run in runs]) for w in (LATE, middle)))
        says.append(f"{title}, n = {n}: from the middle to the end training reward "
                    f"{100 * gained:+.1f}, validation {points(val)}")
        panels.append(training(cells, "reward", title, label="n = {}"))
    return dict(verdict="", says="; ".join(says),
                figure=figure(atlas, "models_training", panels, width=5.4))


def sizes_of(atlas):
    """({D: {n: {seed: run}}}, {D: its arm}) of size_50, size_100, ... and easy, at one lr_base."""
    found = arms_of(atlas, "size_*[0-9]")
    lr = config_of(next(iter(found.values())))["lr_base"]
    found["easy"] = atlas.arm("easy", lr=lr)
    named = {config_of(cells)["D"] or math.inf: name for name, cells in found.items()}
    return {D: found[name] for D, name in named.items()}, named


def size(atlas):
    """Figure 13: points for each doubling of n with many training problems, less that with few."""
    arms, _ = sizes_of(atlas)
    ns = sorted(set.intersection(*(set(cells) for cells in arms.values())))
    arms = {D: {n: arms[D][n] for n in ns} for D in sorted(arms)}
    table = table_of({(D, n): runs for D, cells in arms.items() for n, runs in cells.items()})

    # least squares of a line in log2 n, as weights of the n
    x = np.log2(ns) - np.mean(np.log2(ns))
    slope = dict(zip(ns, x / sum(x * x)))

    def of(D):
        return "all problems" if D == math.inf else f"D = {D}"
    tops, lines = {}, []
    for D in arms:
        own = {n: table[D, n] for n in ns}
        tops[D], same = near(own)
        c = contrast(table, {(D, n): w for n, w in slope.items()})
        lines.append([of(D), *(f"{t.mean():.3f}" for t in own.values()),
                      ", ".join(map(str, same)), points(c)])
    few, many = min(arms), max(arms)
    c = contrast(table, {(many, n): w for n, w in slope.items()}
                 | {(few, n): -w for n, w in slope.items()})
    says = f"points for each doubling of n, {of(many)} minus {of(few)}: {points(c)}"
    verdict = judge(c, +1, gained(arms[many]))
    if verdict == "agree" and tops[few] >= tops[many]:  # steeper, but the best n does not move
        verdict = "undecided"
    panels = [curves(cells, of(D)) for D, cells in arms.items()]
    heads = ["", *(f"n = {n}" for n in ns), "indistinguishable from the best",
             "points for each doubling of n"]
    return dict(verdict=verdict, sees=c["sees"], says=says, tuned=False,
                table=grid_text(heads, lines), figure=figure(atlas, "size", panels))


def mixes(atlas):
    """{mix: {n: {seed: run}}} and {level: the `set` of its evaluations} of the study of mixtures.

    Of the n that all mixtures have, up to the budget that all have.
    """
    arms = cut({mix: atlas.arm(mix) for mix in MIXES})
    ns = sorted(set.intersection(*(set(cells) for cells in arms.values())))
    arms = {mix: {n: cells[n] for n in ns} for mix, cells in arms.items()}
    # the first validation file of a run is its set "val", the others have their own names
    first = Path(config.files(config_of(arms["mix_hard"])["val_set"])[0]).stem
    return arms, {name: "val" if name == first else name for name in LEVELS}


def mixtures(atlas):
    """Figure 14: the largest n against the smallest, for every mixture on every level."""
    arms, sets = mixes(atlas)
    lines, asked, verdicts, panels = [], [], [], []
    for mix, cells in arms.items():
        lines.append([MIXES[mix]])
        for name, of in sets.items():
            _, c = largest_less_smallest(table_of(cells, of=of))
            lines[-1].append(points(c))
            panels.append(curves(cells, f"{MIXES[mix]}\non {LEVELS[name]}", of=of))
            # the claim is of the levels that the mixture holds, but Very Easy
            if name == "extreme_val" or (name == "level_easy_val" and mix != "mix_hard"):
                asked.append(c)
                verdicts.append(judge(c, +1, gained(cells, of=of)))
    whole = atlas.arm("mix_hard")  # it went on
    words, c = largest_less_smallest(table_of({n: whole[n] for n in arms["mix_hard"]}))
    says = f"trained on {MIXES['mix_hard']}, to the end of its budget, on Unsolved: {words}"
    verdict = both(verdicts)
    g = gained({n: whole[n] for n in arms["mix_hard"]})
    if verdict == "disagree" and judge(c, +1, g) == "agree":  # the common budget is too small
        verdict = "undecided"
    ns = arms["mix_hard"]
    heads = [f"n = {max(ns)} minus n = {min(ns)}, trained on",
             *(f"on {LEVELS[name]}" for name in sets)]
    return dict(verdict=verdict, sees=sees(asked), says=says, tuned=False,
                table=grid_text(heads, lines), figure=figure(atlas, "mixtures", panels))


def one_mix_less_another(arms, of, one, other):
    """The contrast of two mixtures on a set, mean over n."""
    cells, weights = {}, {}
    for mix in arms:
        cells |= {(mix, n): runs for n, runs in arms[mix].items()}
    for mix, sign in ((one, +1), (other, -1)):
        weights |= {(mix, n): sign / len(arms[mix]) for n in arms[mix]}
    return contrast(table_of(cells, of=of), weights)


def forgetting(atlas):
    """Figure 14: the change of each mixture on Easy and Very Easy since the base model."""
    arms, sets = mixes(atlas)
    lines, found = [], {}

    def changes(mix, cells, window):  # a line of the table; also {level: change, mean over n}
        C = min(r["budget"] for runs in cells.values() for r in runs.values())
        lines.append([MIXES[mix], si(window[1] * C)])
        of_level = {}
        for name in ("level_easy_val", "level_very_easy_val"):
            then, start = (table_of(cells, of=sets[name], window=w) for w in (window, START))
            lines[-1] += [points(change(then[n], start[n])) for n in cells]
            of_level[name] = change(*(np.mean(list(t.values()), 0) for t in (then, start)))
            lines[-1].append(points(of_level[name]))
        return of_level
    whole = {n: atlas.arm("mix_hard")[n] for n in arms["mix_hard"]}  # Unsolved alone went on:
    changes("mix_hard", whole, EARLY)  # it forgets early, and learns some of it again
    for mix, cells in arms.items():
        found |= {(mix, name): c for name, c in changes(mix, cells, LATE).items()}
    changes("mix_hard", whole, LATE)
    alone = [found["mix_hard", "level_easy_val"], found["mix_hard", "level_very_easy_val"]]
    mended = one_mix_less_another(arms, sets["level_easy_val"], "mix_dual", "mix_hard")
    g = gained(arms["mix_dual"], of=sets["level_easy_val"])
    verdict = both([judge(alone[0], -1, g), judge(alone[1], -1, g), judge(mended, +1, g)])
    heads = ["change since the base model, trained on", "to C"]
    for level in ("Easy", "Very Easy"):
        heads += [f"{level}, {n}" for n in (*(f"n = {n}" for n in whole), "mean")]
    return dict(verdict=verdict, sees=sees(alone), figure="mixtures.png",
                table=grid_text(heads, lines),
                says=f"on Easy {MIXES['mix_dual']} minus {MIXES['mix_hard']}, mean over n: "
                f"{points(mended)}")


def very_easy(atlas):
    """Figure 14: a mixture with Very Easy problems against that without."""
    arms, sets = mixes(atlas)
    found = {}
    for name, level in LEVELS.items():
        found[level] = one_mix_less_another(arms, sets[name], "mix_tri", "mix_dual")
    asked = [found["Unsolved"], found["Easy"]]
    said = ", ".join(f"on {level} {points(c)}" for level, c in found.items())
    g = max(gained(cells, of=of) for cells in arms.values() for of in sets.values())
    return dict(verdict=both([denied(judge(c, +1, g)) for c in asked]), sees=sees(asked),
                says=f"{MIXES['mix_tri']} minus {MIXES['mix_dual']}, mean over n: {said}",
                figure="mixtures.png")


def extreme(atlas, metric):
    """Figure 20: best@4, the largest n less the smallest; worst@4, the middle less both ends."""
    every = atlas.arm("mix_hard")
    if len(every) < 3:
        raise Missing("three n of mix_hard")
    kept, left = deep_ones({None: every})
    cells = kept[None]
    table = table_of(cells, metric=metric)
    first, *inner, last = sorted(table)
    found = {}
    if metric == "best@4":
        found[f"n = {last} minus n = {first}"] = contrast(table, {last: 1, first: -1})
    else:
        middle = {n: 1 / len(inner) for n in inner}
        for end in (first, last):
            words = f"mean of n = {', '.join(map(str, inner))} minus n = {end}"
            found[words] = contrast(table, {end: -1} | middle)
    said = ", ".join(f"{words}: {points(c)}" for words, c in found.items())
    says = f"{metric}: {told(table)}; {said}. By it, {says_shift(shift_of(cells, metric=metric))}"
    says += left
    panels = [curves(cells, TITLES["mix_hard"], m) for m in ("best@4", "worst@4", "avg@4")]
    verdicts = [judge(c, +1, gained(cells, metric=metric)) for c in found.values()]
    return dict(verdict=both(verdicts), sees=sees(found.values()), says=says,
                figure=figure(atlas, "extreme", panels))


def extreme_far(atlas, metric):
    """Figure 20 to the budget where a larger n is deep: the largest against the best of the others
    (best@4), or the best between against both ends (worst@4). `extreme` where there is none."""
    found = extreme(atlas, metric)
    if not (atlas.folder / "far_mix_hard").is_dir():
        return found
    some = next(iter(next(iter(atlas.arm("mix_hard").values())).values()))
    cells = deep_cells(atlas.arm("far_mix_hard", lr=some["config"]["lr_base"]))
    table = table_of(cells, metric=metric)
    first, *inner, last = sorted(table)
    asked = {f"the best between minus n = {end}": (inner, [end]) for end in (first, last)}
    if metric == "best@4":
        asked = {f"n = {last} minus the best smaller n": ([last], [first, *inner])}
    each = {words: best_less(table, *keys)[1] for words, keys in asked.items()}
    said = ", ".join(f"{words}: {points(c)}" for words, c in each.items())
    verdicts = [judge(c, +1, gained(cells, metric=metric)) for c in each.values()]
    C = min(run["budget"] for runs in cells.values() for run in runs.values())
    return found | dict(verdict=both(verdicts), sees=sees(each.values()), says=(
        f"To {si(C)} rollouts, which decides: {told(table)}; {said}. To {si(some['budget'])} "
        f"{found['says']}"))


def none_right_control(atlas):
    """The lr control, also by best@4."""
    out, (arms, _) = lr_control(atlas, "mix_hard"), other_lrs(atlas, "mix_hard")
    g = max(gained(cells, metric="best@4") for cells in arms.values())
    c = shift(*windows(list(arms.values()), metric="best@4"), g)
    out["says"] += f". By best@4, each n at its best lr for it, {says_shift(c)}"
    return out


def ood(atlas):
    """Figure 23: the largest n against the smallest on a set of another kind."""
    cells = atlas.arm("ood")
    sets = next(iter(cells[min(cells)].values()))["evals"]
    of = next((name for name in sets if name != "val"), "a second set")
    table = table_of(cells, of=of)
    words, c = largest_less_smallest(table)
    base = table_of(cells, of=of, window=START)[min(cells)].mean()
    panels = [curves(cells, "in domain"), curves(cells, "five digits", of=of)]
    g = gained(cells, of=of)
    return dict(verdict=judge(c, +1, g), sees=c["sees"], figure=figure(atlas, "ood", panels),
                says=f"base model {base:.3f}; at the end n = {means(table)}; {words}")


def algo(atlas, arm):
    """Figure 25: the two n that each panel is about, for PPO and CISPO."""
    cells, title = at_best_lr(atlas, arm)
    if len(cells) < 3:
        raise Missing(f"three n of {arm}")
    smallest, *_, second, largest = sorted(cells)
    other, claim = (second, 0) if arm == "ppo_easy" else (smallest, +1)
    (words, c, _, tuned), move = at_own_lrs(atlas, arm, largest, other), shift_of(cells)
    verdict = judge(c, claim, gained(cells))
    says = (f"{words}; at lr_base = {config_of(cells)['lr_base']:g} {told(table_of(cells))}, "
            f"{says_shift(move)}")
    if arm == "cispo_easy":  # "becomes better as C grows": it comes closer, and it is ahead
        at = {when: {(n, when): t for n, t in table_of(cells, window=when).items()}
              for when in (EARLY, LATE)}
        closer = contrast(at[EARLY] | at[LATE], {
            (largest, LATE): 1, (other, LATE): -1, (largest, EARLY): -1, (other, EARLY): 1})
        says += f". From early to the end n = {largest} gains {points(closer)} on n = {other}"
        nearer = judge(closer, +1, gained(cells))
        verdict = verdict if verdict == nearer else "undecided"
    return dict(verdict=verdict, sees=c["sees"], says=says, tuned=tuned,
                figure=figure(atlas, arm, [curves(cells, title)]))


def baseline(atlas, of):
    """Figure 26: the baseline from n rollouts, the loss from n_train of them, after equal updates
    or after equal rollouts (the axis of the paper's figure)."""
    n, runs = next(iter(atlas.arm("decoupled").items()))
    some = next(iter(runs.values()))["config"]
    few = some["n_train"]
    easy = atlas.arm("easy", some["B_p"], [few, n], some["lr_base"])
    cells = {f"(1) {n} in baseline and loss": easy[n], f"(2) {few} in both": easy[few],
             f"(3) {n} in the baseline, {few} in the loss": runs}
    seeds = set.intersection(*map(set, cells.values()))
    cells = {key: {seed: runs[seed] for seed in sorted(seeds)} for key, runs in cells.items()}
    cells = cut(dict(all=cells))["all"]
    of_many, of_few, decoupled = cells
    if of == "updates":  # the small one's budget ends where it has made as many
        cells[of_few] = {seed: run | dict(budget=run["budget"] * few // n)
                         for seed, run in cells[of_few].items()}
        table = {key: table_of({key: runs})[key] for key, runs in cells.items()}
    else:
        table = table_of(cells)
    a = contrast(table, {of_many: 1, decoupled: -1})
    b = contrast(table, {decoupled: 1, of_few: -1})

    def per_update(ax):
        for key, runs in cells.items():
            for i, run in enumerate(runs.values()):
                e, B = run["evals"]["val"], run["config"]["B_p"] * run["config"]["n"]
                ax.plot(e["C"][1:] / B, (e["counts"][1:] / e["samples"]).mean(1), lw=1,
                        color=colour(key, cells), label=None if i else key)
        over(ax, "updates", ylabel="validation avg@4", title="per update")
        ax.legend(fontsize=9)
    panels = [curves(cells, "Easy, per rollout", label="{}"), per_update]
    says = f"{means(table)}; (1) minus (3) {points(a)}, (3) minus (2) {points(b)}"
    g = gained({key: runs for key, runs in cells.items() if key != of_few})
    return dict(verdict=both([judge(a, +1, g), judge(b, 0, g)]), sees=sees([a, b]), says=says,
                figure=figure(atlas, "baseline", panels))


def one_problem(atlas):
    return dict(verdict="", says="see docs/toy.md", figure="../bandit/one.png")
