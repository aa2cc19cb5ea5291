"""results/figures.py: the figures of the paper, each a function of labelled arms.

Each takes an Atlas, finds the arms of its study by presets.json of the data folder, contrasts their
runs, judges the paper's claim, and draws: n, B_p, lr, models and levels are those of the logs. It
returns dict(verdict, says[, sees, table, figure, tuned, compared]): sees, the effect that such runs
would show; tuned, False where n are compared at an lr that was not tuned for each; compared, the
runs that have to be deep. Raises Missing where runs lack. The table that says which claim is which
function's is in atlas.py. Needs config.py, frontier.py, contrasts.py, kept.py.
"""
import contextlib
import math
from collections import Counter

import numpy as np
from scipy import stats

import config
import frontier
from contrasts import (SMALL, Missing, best_less, both, change, contrast, denied, judge,
                       of_several, shift)
from core.plots import si
from kept import (EARLY, LATE, LRS, START, analysed, by_n, colour, config_of, curves, cut, depth,
                  difficulties, each_of, ends_of, figure, gained, grid_text, largest_less_smallest,
                  law_figure, law_of, level, look, means, n_star_panel, named, near, one_cell, over,
                  panel_of, points, read, says_near, says_shift, sees, shift_of, table_of, titled,
                  training, use, view_figure, windows)

SHARES = dict(easy=(0.3, 0.6), hard=(0, 0.0625))  # the paper's levels, by avg@16 of the base model
TERMS = dict(none="none", kl="KL", entropy="entropy", both="both",
             small="both, KL {kl_coef:g} and entropy {entropy_coef:g}",
             filtered="both, and the filter", selective="both, and the selective filter")
MIXES = "mix_hard", "mix_dual", "mix_tri"  # sample.py's, and its levels that they are validated on
LEVELS = "extreme_val", "level_easy_val", "level_very_easy_val"


# ---- section 3: the recipe

def difficulty(atlas):
    """Figure 2: how hard the problems are for the base model."""
    path = atlas.folder / "difficulty.json"
    found = config.read_json(path) if path.exists() else None
    for log in [] if found else sorted(atlas.folder.glob("[!.]*/*/log.jsonl*"))[:1]:
        found = difficulties(read(log)["config"])
    if not found:
        raise Missing("sample.py's pass rates")
    bars = np.array(found["counts"])
    s = len(bars) - 1
    rate = np.arange(s + 1) / s
    share = {}
    for task, (lo, hi) in SHARES.items():
        share[task] = 100 * bars[(rate >= lo) & (rate <= hi)].sum() / bars.sum()

    def draw(ax):
        ax.bar(rate, bars, width=0.8 / s, color="0.5")
        for (task, (lo, hi)), shade in zip(SHARES.items(), ("C0", "C3")):
            ax.axvspan(lo - 0.5 / s, hi + 0.5 / s, alpha=0.2, color=shade, label=task.title())
        ax.set(xlabel=f"avg@{s} of the base model", ylabel="problems", title="difficulty")
        ax.legend()
    says = (f"{bars.sum():,} problems, mean {rate @ bars / bars.sum():.2f}; "
            f"Easy {share['easy']:.0f}%, Hard {share['hard']:.0f}%")
    return dict(verdict="", says=says, figure=figure(atlas, "difficulty", [draw]))


def recipe(atlas, task, sign):
    """Figure 3: KL and entropy terms against none, larger (sign +1) or smaller (-1)? On Hard also
    with the filters. Each term alone stands beside them."""
    start, cells = f"rec_{task}_", {}
    for name in atlas.there("recipe"):
        if name.startswith(start):
            cells[name.removeprefix(start)] = one_cell(atlas, name)
    if not {"both", "none"} <= set(cells):
        raise Missing(f"{start}both and {start}none")
    table = table_of(cells)
    names = {name: TERMS[name].format(**config_of({0: runs})) for name, runs in cells.items()}
    lines = []
    for name, words in names.items():
        entropy = np.mean([run["steps"][-1]["entropy"] for run in cells[name].values()
                           if run["steps"]] or [np.nan])
        lines.append((words, f"{table[name].mean():.3f}", f"{entropy:.2f}"))
    asked = ["both"] + [name for name in ("filtered", "selective")
                        if task == "hard" and name in cells]
    found = {name: contrast(table, {name: 1, "none": -1}) for name in asked}
    some = config_of({0: cells["both"]})
    less = ", ".join(f"{name} less none {points(c)}" for name, c in found.items())
    says = f"coefficients {some['kl_coef']:g} (KL) and {some['entropy_coef']:g} (entropy): {less}"
    if "small" in cells:  # does a little of both help, where as much as that does harm?
        says += f"; {names['small']}, less none {points(contrast(table, dict(small=1, none=-1)))}"
    named = {words: cells[name] for name, words in names.items()}
    panels = [curves(named, f"{task.title()}, B_p = {some['B_p']}, n = {some['n']}", label="{}"),
              training(named, "entropy", "token entropy, nats"),
              training(named, "kl", "KL to the base model")]
    g = gained(cells)
    return dict(verdict=both([judge(c, sign, g) for c in found.values()]), says=says,
                sees=sees(found.values()), figure=figure(atlas, f"recipe_{task}", panels),
                table=grid_text(["terms", "avg@4", "token entropy at the end, nats"], lines))


def lr_grid(atlas):
    """Figure 4, left: the best lr of the middle of the grid against both ends."""
    cells = {}
    for name in atlas.there("recipe"):
        if name.startswith("lr_"):
            runs = one_cell(atlas, name)
            cells[config_of({0: runs})["lr_base"]] = runs
    if len(cells) < 3:
        raise Missing("three lr_*")
    some, cells = config_of(cells), dict(sorted(cells.items()))
    table = table_of(cells)
    first, *middle, last = cells
    best, low = best_less(table, middle, [first])
    _, high = best_less(table, middle, [last])
    says = (", ".join(f"{lr:g}: {table[lr].mean():.3f}" for lr in cells)
            + f"; {each_of(best)}, chosen on others, less {first:g} {points(low)}, "
            f"less {last:g} {points(high)}")
    panel = curves(cells, f"{titled(some)}, lr_base, B_p = {some['B_p']}, n = {some['n']}",
                   label="{:g}")
    verdicts = [judge(c, +1, gained(cells)) for c in (low, high)]
    return dict(verdict=both(verdicts), sees=sees([low, high]), says=says,
                figure=figure(atlas, "lr_grid", [panel]))


def lr_rule(atlas):
    """Figure 4, right: lr ~ sqrt(B) against a linear and a constant lr, at a large batch."""
    names = [name for name in atlas.there("recipe") if name.startswith("scale_")]
    cells = {name.removeprefix("scale_"): one_cell(atlas, name) for name in names}
    if not {"sqrt", "linear", "constant"} <= set(cells):
        raise Missing("scale_sqrt, scale_linear, scale_constant")
    cells = cut(dict(all=cells))["all"]
    some, table = config_of(cells), table_of(cells)
    found = {rule: contrast(table, {"sqrt": 1, rule: -1}) for rule in ("linear", "constant")}
    less = ", ".join(f"less {rule} {points(c)}" for rule, c in found.items())
    panel = curves(cells, f"{titled(some)}, B_p = {some['B_p']}, n = {some['n']}", label="{}")
    verdicts = [judge(c, +1, gained(cells)) for c in found.values()]
    return dict(verdict=both(verdicts), sees=sees(found.values()),
                says=f"{means(table)}; sqrt {less}", figure=figure(atlas, "lr_rule", [panel]))


# ---- section 4: allocation

def with_other_lrs(atlas, task):
    """An arm, and ARM_half, ARM_double, ... where they are there."""
    return [task + end for end in ("", *LRS) if (atlas.folder / (task + end)).is_dir()]


def every_lr(atlas, task):
    """{lr_base: {n: {seed: run}}} of an arm and of ARM_half, ARM_double, ..."""
    names, out = with_other_lrs(atlas, task), {}
    least = atlas.least(*names)
    for name in names:
        for lr in atlas.lrs(name):
            with contextlib.suppress(Missing):
                out.setdefault(lr, {}).update(atlas.arm(name, lr=lr, least=least))
    out = {lr: cells for lr, cells in out.items() if cells}
    if not out:
        raise Missing(f"runs of {task}")
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
    """An arm at the one lr_base that is best for all n, of the n that are deep enough: (lr_base,
    {n: {seed: run}}, {lr_base: the same at each, of the n that have several}, words on the n left
    out). An lr_base that fewer n have is not taken."""
    every, (arms, _) = every_lr(atlas, arm), deep_ones(by_lr(atlas, arm))
    deep = {lr: deep_ones({lr: cells})[0][lr] for lr, cells in every.items()}
    most = max(map(len, deep.values()))
    lr = one_rule({lr: cells for lr, cells in arms.items() if len(deep[lr]) == most} or deep)
    whole, left = deep_ones({lr: every[lr]})
    return lr, whole[lr], arms, left


def panel_at(atlas, arm, lr, unit="rollouts"):
    """`panel_of` an arm and of ARM_half, ARM_double, ... at one lr_base."""
    folders = (str(atlas.folder / name) for name in with_other_lrs(atlas, arm))
    return panel_of(" ".join(folders), unit, lr)


def rise(atlas, task):
    """Figures 1, 6 and 7: does n*(C) of an arm rise, at the one lr_base that is best for all n?

    In our own study, where there are two seeds from 3 on, the verdict is theirs: seeds 0 to 2, on
    which the claim was made, cannot confirm it.
    """
    lr, cells, arms, left = at_one_lr(atlas, task)
    panel = panel_at(atlas, task, lr)
    c = shift_of(cells)
    words = f"{says_shift(c)}; {law_of(panel)[1]}{left}"
    if len(arms) > 1:
        words = f"At lr_base = {lr:g}: {words}"
    fresh = {}
    for n, runs in cells.items():
        fresh[n] = {seed: run for seed, run in runs.items() if seed > 2}
    some_are_old = any(set(fresh[n]) < set(cells[n]) for n in cells)
    if atlas.own and some_are_old and all(len(runs) > 1 for runs in fresh.values()):
        c = shift_of(fresh)
        words = f"On fresh seeds, which decide: {says_shift(c)}. On all seeds: {words}"
    return dict(verdict=c["verdict"], sees=c["sees"], says=words, compared=cells,
                figure=law_figure(atlas, task, panel, every_lr(atlas, task)[lr]))


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
    g = gained(arms[one_rule(arms)])
    early, late = windows(list(arms.values()))
    c = shift(early, late, g)
    best = []
    for n, tables in late.items():
        tried = [x for x in arms if n in arms[x]]
        best.append(f"n = {n}: {tried[int(np.argmax([t.mean() for t in tables]))]:g}")
    says = (f"{says_shift(c)}; at the end, each at its best lr_base, {own_lr_gap(arms)[0]}; best "
            f"lr_base of {', '.join(f'{x:g}' for x in arms)}: {', '.join(best)}{left}")
    name, front = view_figure(atlas, "lr", f"lr_control_{task}", with_other_lrs(atlas, task))
    if front["slope"] is not None:
        says += (f"; the best lr goes with B to the power {front['slope']:.2f} (the rule: 0.5)")
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
        said += (f" (at {a[1]:g} and {b[1]:g}, the best on all seeds, avg@4 "
                 f"{points(contrast(table, {a: 1, b: -1}))})")
    return f"n = {large} less n = {small}: {said}", gaps["avg@4"]


def at_own_lrs(atlas, arm, large, small):
    """The best of the n in `large` less n = `small` of an arm at the end: (words, contrast, whether
    all of them have three lr_base, whether the lr was tuned).

    Each at its best lr_base, chosen on other seeds, where they have three; else at the lr_base of
    most runs, which then was not tuned. Nor was it where the n that is behind has its best at the
    edge of those tried, so that the best may lie beyond.
    """
    cells = {(n, lr): runs for lr, own in every_lr(atlas, arm).items() for n, runs in own.items()}
    tried = Counter(n for n, _ in cells)
    ran = min(tried[n] for n in (*large, small)) > 2
    if ran:
        cells = {(n, lr): runs for (n, lr), runs in cells.items() if n in (*large, small)}
    else:
        rule = config_of(atlas.arm(arm))["lr_base"]
        cells = {(n, lr): runs for (n, lr), runs in cells.items() if lr == rule}
    of_large, of_small = ([key for key in cells if key[0] in ns] for ns in (large, [small]))
    table = table_of(cells)
    best, c = best_less(table, of_large, of_small)
    top = each_of([str(n) for n, _ in best])
    words, edge = f"n = {top} less n = {small}", False
    if ran:
        words += (f", each at its best lr_base of three (n = {top}: "
                  f"{each_of([f'{lr:g}' for _, lr in best])})")
        last = of_large if c["gain"] < 0 else of_small
        behind, own = max(last, key=lambda key: table[key].mean())
        lrs = [lr for n, lr in cells if n == behind]
        edge = own in (min(lrs), max(lrs))
        if edge:
            words += f", where n = {behind} has its best, {own:g}, at the edge of those tried"
    return f"{words}: {points(c)}", c, ran, ran and not edge


def records(atlas):
    """Figures 5 and 15: what record-breaking points add to the frontier."""
    lr, cells, _, _ = at_one_lr(atlas, "easy")
    use(cells)
    above = panel_at(atlas, "easy", lr)["paper"]["above"]
    if above is None:
        raise Missing("record-breaking points")
    return dict(verdict="", says=f"curves through record-breaking points lie {100 * above:+.1f} "
                "points from the frontier of what the models at C get, on average over log C",
                figure=view_figure(atlas, "paper", "records", ["easy"])[0])


def tokens(atlas):
    """Figure 24: n*(C) and the paper's law with C in rollouts and in tokens."""
    lr, cells, _, _ = at_one_lr(atlas, "easy")
    use(cells)
    panels = {unit: panel_at(atlas, "easy", lr, unit) for unit in ("rollouts", "tokens")}
    ends = {unit: ends_of(panel) for unit, panel in panels.items()}
    same = all(top in near_other and other in near_top for (top, near_top), (other, near_other)
               in zip(ends["rollouts"], ends["tokens"]))
    said = [f"{low[0]} and {high[0]} in {unit}" for unit, (low, high) in ends.items()]
    fits = []
    for unit, panel in panels.items():
        law = panel["law"]
        if law is not None:
            fits.append(f"{law['fit']['k']:.1f} in {unit}"
                        + " (not determined)" * (law["verdict"] != "law"))
    length = [run["steps"][-1]["tokens"] / run["steps"][-1]["rollouts"]
              for runs in cells.values() for run in runs.values() if run["steps"]]
    says = (f"best n at the smallest and the largest shared budget: {'; '.join(said)}, "
            f"{'indistinguishable' if same else 'different'}; the law's k a decade: "
            f"{', '.join(fits) or 'too few points'}; a rollout has {min(length):.0f} to "
            f"{max(length):.0f} tokens on average")
    differ = max(length) > 1.1 * min(length)
    return dict(verdict=("agree" if same else "disagree") if differ else "",
                says=says + ", so that the units could hardly differ" * (not differ),
                figure=figure(atlas, "units", [n_star_panel(panel, unit) for unit, panel
                                               in panels.items()], 5, 4.6, sharey=True))


def metrics(atlas, task, first, second):
    """Figure 8: does the second metric want a larger n than the first? At the B_p with most n; the
    bars are of every B_p."""
    _, cells, _, _ = at_one_lr(atlas, task)
    tables = {metric: table_of(cells, metric=metric) for metric in (first, second)}
    c = shift(*({n: [t] for n, t in table.items()} for table in tables.values()), gained(cells))
    says = says_shift(c, (f"by {first}", f"by {second}"))
    for metric, table in tables.items():
        says += f"; {metric}: {says_near(table)}"
    names, grid = [task], None
    with contextlib.suppress(Missing):
        grid = grid_of(atlas, "joint", task, least_B_p=1)
        names = atlas.there("joint", recipe=task)
    name, front = view_figure(atlas, "best_worst", f"best_worst_{task}", names, grid)
    if grid:
        for metric in (first, second):
            each = [f"{bar['n']} at B_p = {bar['B_p']}" for bar in front["bars"]
                    if bar["metric"] == metric]
            says += f"; {metric} by B_p: n = {', '.join(each)}"
    return dict(verdict=c["verdict"], sees=c["sees"], says=says, figure=name)


def grid_of(atlas, study, task, least_B_p=2):
    """{(B_p, n): {seed: run}} of a study's arms of one recipe, at the lr_base that most cells have.

    Of the cells that are deep, the n that `least_B_p` B_p have or more, in order of n, up to the
    budget that all have.
    """
    names, asks, by_lr = atlas.there(study, recipe=task), atlas.asks(study), {}
    for name in names:
        asked = [set(map(int, asks[name][key].split())) for key in ("bps", "ns")]
        for lr, cells in atlas.lrs(name).items():
            by_lr.setdefault(lr, {}).update({(b, n): runs for (b, n), runs in cells.items()
                                             if b in asked[0] and n in asked[1]})
    least = atlas.least(*names)
    cells = max(by_lr.values(), key=len, default={})
    cells = {key: runs for key, runs in cells.items() if len(runs) >= least}
    deep = {key: runs for key, runs in cells.items() if depth(runs.values())[1]}
    cells = deep if len({b for b, _ in deep}) > 1 else cells  # else the row is too shallow
    if len({b for b, _ in cells}) < 2:
        raise Missing(f"{task} at a second B_p")
    times = Counter(n for _, n in cells)
    shared = {}
    for b, n in sorted(cells, key=lambda cell: (cell[1], cell[0])):
        if times[n] >= least_B_p:
            shared[b, n] = cells[b, n]
    return cut({task: shared})[task]


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
    cells = grid_of(atlas, "joint", task)
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
        at_n.append(f"at n = {n} B_p = {last} less {first} {points(c)}")
    by_B_p = grouped(cells, lambda b, n: b)
    way = "helps" if of_n["gain"] > of_n["half"] else "costs" if -of_n["gain"] > of_n["half"] else \
        "neither clearly helps nor costs"
    says = (f"a larger n {way} here; "
            f"points for each doubling: of n {points(of_n)}, of B_p {points(of_B_p)}; size of the "
            f"first less that of the second {points(gap)} ({len(cells)} cells, "
            f"B_p = {', '.join(map(str, by_B_p))}); {', '.join(at_n)}")
    return dict(verdict=verdict, sees=gap["sees"], says=says, figure=view_figure(
        atlas, "sensitivity", f"sensitivity_{task}", atlas.there("joint", recipe=task), cells)[0])


def each_B_p(atlas, task):
    """Figures 16 and 17: does n*(C) rise at every B_p?"""
    found, panels, grid = {}, [], grid_of(atlas, "joint", task)
    for b, cells in grouped(grid, lambda b, n: b).items():
        panels.append(curves(cells, f"{task.title()}, B_p = {b}", among={n for _, n in grid}))
        if len(cells) > 2:
            found[b] = shift_of(cells)
    if not found:
        raise Missing("three n at one B_p")
    return dict(verdict=of_several(found.values()), sees=sees(found.values()),
                says="; ".join(f"B_p = {b}: {says_shift(c)}" for b, c in found.items())
                + without_verdict(grouped(grid, lambda b, n: b), "B_p"),
                figure=figure(atlas, f"B_p_{task}", panels))


def fixed_B(atlas, task):
    """Figures 9, 18 and 19: does n* rise at a fixed batch B = B_p n?"""
    found, says, grid = [], [], grid_of(atlas, "fixed_B", task)
    for B, cells in grouped(grid, lambda b, n: b * n).items():
        if len(cells) > 2:
            found.append(shift_of(cells))
            says.append(f"B = {B}: {says_shift(found[-1])}; at the end "
                        f"{says_near(table_of(cells))}")
    if not found:
        raise Missing("three n at one B_p n")
    return dict(verdict=of_several(found), sees=sees(found),
                says="; ".join(says) + without_verdict(grouped(grid, lambda b, n: b * n), "B"),
                figure=view_figure(atlas, "fixed_B", f"fixed_B_{task}",
                                   atlas.there("fixed_B", recipe=task), grid)[0])


def stable_B_p(atlas):
    """The smallest B_p of which at most one run in ten diverges or falls, by difficulty."""
    found = {}
    for task in ("easy", "hard"):
        grid = grid_of(atlas, "joint", task)
        arms = atlas.there("joint", recipe=task)
        sweep = analysed(" ".join(str(atlas.folder / name) for name in arms),
                         cells=frozenset(grid))
        for name in arms:  # each to its own end
            own = atlas.cells(name, sweep["lr"])
            use({key: runs for key, runs in own.items() if key in grid})
        found[task] = frontier.stability(sweep["cells"])
    both_have = set.intersection(*map(set, found.values()))
    found = {task: {b: by_B_p[b] for b in by_B_p if b in both_have}
             for task, by_B_p in found.items()}
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
    return dict(verdict=verdict, compared={}, says="Runs that diverged or fell: " + ". ".join(said))


def joint(atlas, task):
    """Figures 21 and 22: does the n of the best (B_p, n) rise?"""
    cells = grid_of(atlas, "joint", task)
    early, late = (table_of(cells, window=window) for window in (EARLY, LATE))
    c = shift(by_n(early, 1), by_n(late, 1), gained(cells))
    on_top = []
    for table, when in ((early, "early"), (late, "at the end")):
        b, n = max(table, key=lambda cell: table[cell].mean())
        on_top.append(f"({b}, {n}) {when}, B = {b * n}")
    return dict(verdict=c["verdict"], sees=c["sees"], figure=view_figure(
        atlas, "joint", f"joint_{task}", atlas.there("joint", recipe=task), cells)[0],
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
    """Figures 11 and 27: training problems unsolved, mastered or unlearnt at the smallest and the
    largest n that the study asks for."""
    asked = sorted(map(int, atlas.asks("interference")[task]["ns"].split()))
    small, large = asked[0], asked[-1]
    if small == large:
        raise Missing(f"another n than {small}")
    cells = atlas.arm(task, ns=(small, large))
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
    says = (f"n = {small} less n = {large} at C = {si(C)}, in % of the training problems: "
            f"solved in none of {s} rollouts {points(none)}, in {s - 1} or more {points(nearly)}; "
            f"pass rate down by more than a quarter: {100 * fell[small].mean():.1f} and "
            f"{100 * fell[large].mean():.1f} (by chance alone {100 * chance:.1f})")
    B_p = next(iter(cells[small].values()))["config"]["B_p"]
    return dict(verdict=both(verdicts), sees=none["sees"], says=says, figure=view_figure(
        atlas, "pass1", f"pass1_{task}", [task], [(B_p, small), (B_p, large)])[0])


def models(atlas):
    """Figure 12: the best larger n against the smallest, for other base models; training beside
    validation reward of the largest n, from the middle to the end."""
    found, verdicts, says, panels, tuned = [], [], [], [], True
    for name in atlas.there("models"):
        lr, cells, _, _ = at_one_lr(atlas, name)
        if len(cells) < 2:
            raise Missing(f"two n of {name}")
        cfg = config_of(cells)
        title = f"{named(cfg['model'])}, {titled(cfg)}, lr_base {lr:g}"
        words, c, _, own = at_own_lrs(atlas, name, sorted(cells)[1:], min(cells))
        tuned = tuned and own
        found.append(c)
        verdicts.append(judge(c, +1, gained(cells)))
        says.append(f"{title}: {words}; {says_near(table_of(cells))}")
        if len(cells) > 2:
            says[-1] += f"; {says_shift(shift_of(cells))}"
        with contextlib.suppress(Missing):
            learnt, val = later(cells[max(cells)])
            says[-1] += (f"; n = {max(cells)} from the middle to the end: training reward "
                         f"{100 * learnt:+.1f}, validation {val}")
        panels += [curves(cells, title), training(cells, "reward", title, label="n = {}")]
    if not found:
        raise Missing("model_*")
    return dict(verdict=both(verdicts), sees=sees(found), says=". ".join(says), tuned=tuned,
                figure=figure(atlas, "models", panels, width=5.4, across=2))


def later(runs):
    """What the training and the validation reward of {seed: run} gain from the middle of the budget
    to its end: (number, points)."""
    middle, runs = (0.375, 0.5), runs.values()

    def reward(run, window):
        lo, hi = window[0] * run["budget"], window[1] * run["budget"]
        return np.mean([r["reward"] for r in run["steps"] if lo < r["rollouts"] <= hi])
    if any(run["end"]["rollouts"] < LATE[1] * run["budget"] for run in runs):
        raise Missing("runs that made their budget")
    val = change(*(np.array([look(run, window=w) for run in runs]) for w in (LATE, middle)))
    return np.mean([reward(run, LATE) - reward(run, middle) for run in runs]), points(val)


def size(atlas):
    """Figure 13: points for each doubling of n with many training problems, less that with few."""
    every = {name: atlas.lrs(name) for name in atlas.there("size")}
    shared = set.intersection(*map(set, every.values())) if len(every) > 1 else ()
    if not shared:
        raise Missing("size_* and another D at one lr_base")
    arms, lr = {}, max(shared, key=lambda lr: sum(len(by_lr[lr]) for by_lr in every.values()))
    for name in every:
        cells = atlas.arm(name, lr=lr)
        arms[config_of(cells)["D"] or math.inf] = cells
    ns = sorted(set.intersection(*(set(cells) for cells in arms.values())))
    if len(arms) < 2 or len(ns) < 2:
        raise Missing("two n at two D")
    deep = [n for n in ns if all(depth(cells[n].values())[1] for cells in arms.values())]
    ns = deep if len(deep) > 2 else ns  # else the row is too shallow
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
    says = (f"points for each doubling of n, {of(many)} less {of(few)}: {points(c)}; best n "
            f"{tops[many]} and {tops[few]}")
    verdict = judge(c, +1, gained(arms[many]))
    if verdict == "agree" and tops[few] >= tops[many]:  # steeper, but the best n does not move
        verdict = "undecided"
    panels = [curves(cells, f"{titled(config_of(cells))}, {of(D)}") for D, cells in arms.items()]
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
    if len(ns) < 2:
        raise Missing("two n that all mixtures have")
    arms = {mix: {n: cells[n] for n in ns} for mix, cells in arms.items()}
    # the first validation file of a run is its set "val", the others have their own names
    first = config.files(config_of(arms["mix_hard"])["val_set"])[0]
    return arms, {name: "val" if name in str(first) else name for name in LEVELS}


def mixtures(atlas):
    """Figure 14: the largest n against the smallest, for every mixture on every level."""
    arms, sets = mixes(atlas)
    every = {(mix, n): runs for mix, cells in arms.items() for n, runs in cells.items()}
    tables = {name: table_of(every, of=of) for name, of in sets.items()}
    lines, asked, verdicts, panels = [], [], [], []
    for mix, cells in arms.items():
        lines.append([level(mix)])
        for name, of in sets.items():
            c = contrast(tables[name], {(mix, max(cells)): 1, (mix, min(cells)): -1})
            lines[-1].append(points(c))
            panels.append(curves(cells, f"{level(mix)}\non {level(name)}", of=of))
            # the claim is of the levels that the mixture holds, but Very Easy
            if name == "extreme_val" or (name == "level_easy_val" and mix != "mix_hard"):
                asked.append(c)
                verdicts.append(judge(c, +1, gained(cells, of=of)))
    verdict, says, ns = both(verdicts), "", arms["mix_hard"]
    whole = {n: atlas.arm("mix_hard")[n] for n in ns}
    if budget_of(whole) > budget_of(ns):  # Unsolved alone went on
        words, c = largest_less_smallest(table_of(whole))
        says = f"trained on Unsolved alone, to {si(budget_of(whole))}, on Unsolved: {words}"
        if verdict == "disagree" and judge(c, +1, gained(whole)) == "agree":
            verdict = "undecided"  # the common budget is too small
    each = ", ".join(f"{line[0]}: {' / '.join(line[1:])}" for line in lines)
    says = (f"n = {max(ns)} less n = {min(ns)} on Unsolved / Easy / Very Easy, trained on {each}; "
            f"{says}")
    heads = [f"n = {max(ns)} less n = {min(ns)}, trained on", *(f"on {level(x)}" for x in sets)]
    return dict(verdict=verdict, sees=sees(asked), says=says.rstrip("; "), tuned=False,
                table=grid_text(heads, lines), figure=figure(atlas, "mixtures", panels))


def budget_of(cells):
    """The smallest budget of {key: {seed: run}}."""
    return min(run["budget"] for runs in cells.values() for run in runs.values())


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
        lines.append([level(mix), si(window[1] * budget_of(cells))])
        of_level = {}
        for name in LEVELS[1:]:
            then, start = (table_of(cells, of=sets[name], window=w) for w in (window, START))
            lines[-1] += [points(change(then[n], start[n])) for n in cells]
            of_level[name] = change(*(np.mean(list(t.values()), 0) for t in (then, start)))
            lines[-1].append(points(of_level[name]))
        return of_level
    whole = {n: atlas.arm("mix_hard")[n] for n in arms["mix_hard"]}
    changes("mix_hard", whole, EARLY)  # it forgets early, and may learn some of it again
    for mix, cells in arms.items():
        found |= {(mix, name): c for name, c in changes(mix, cells, LATE).items()}
    if budget_of(whole) > budget_of(arms["mix_hard"]):
        changes("mix_hard", whole, LATE)
    alone = [found["mix_hard", name] for name in LEVELS[1:]]
    mended = one_mix_less_another(arms, sets["level_easy_val"], "mix_dual", "mix_hard")
    g = gained(arms["mix_dual"], of=sets["level_easy_val"])
    verdict = both([judge(alone[0], -1, g), judge(alone[1], -1, g), judge(mended, +1, g)])
    heads = ["change since the base model, trained on", "to C"]
    for name in LEVELS[1:]:
        heads += [f"{level(name)}, {n}" for n in (*(f"n = {n}" for n in whole), "mean")]
    said = ", ".join(f"{level(name)} {points(c)}" for name, c in zip(LEVELS[1:], alone))
    return dict(verdict=verdict, sees=sees(alone), figure="mixtures.png",
                table=grid_text(heads, lines),
                says=f"Unsolved alone, mean over n, since the base model: {said}; on Easy "
                f"{level('mix_dual')} less Unsolved alone: {points(mended)}")


def very_easy(atlas):
    """Figure 14: a mixture with Very Easy problems against that without."""
    arms, sets = mixes(atlas)
    found = {name: one_mix_less_another(arms, sets[name], "mix_tri", "mix_dual") for name in sets}
    asked = [found[name] for name in LEVELS[:2]]
    said = ", ".join(f"on {level(name)} {points(c)}" for name, c in found.items())
    g = max(gained(cells, of=of) for cells in arms.values() for of in sets.values())
    return dict(verdict=both([denied(judge(c, +1, g)) for c in asked]), sees=sees(asked),
                says=f"{level('mix_tri')} less {level('mix_dual')}, mean over n: {said}",
                figure="mixtures.png")


def extreme(atlas, metric):
    """Figure 20: best@4, the largest n less the smallest; worst@4, the middle less both ends.

    Where far_mix_hard has run further: the largest n less the best of the others (best@4), the best
    between less both ends (worst@4).
    """
    every = atlas.arm("mix_hard")
    if len(every) < 3:
        raise Missing("three n of mix_hard")
    kept, left = deep_ones({None: every})
    cells, far = kept[None], (atlas.folder / "far_mix_hard").is_dir()
    if far:
        far = atlas.arm("far_mix_hard", lr=config_of(cells)["lr_base"])
        cells, left = deep_ones({None: far})[0][None], ""
    table = table_of(cells, metric=metric)
    first, *inner, last = sorted(table)
    found = {}
    if metric == "best@4":
        rivals = [first, *inner] if far else [first]
        words = f"n = {last} less {'the best smaller n' if far else f'n = {first}'}"
        found[words] = best_less(table, [last], rivals)[1]
    else:
        for end in (first, last):
            if far:
                found[f"the best between less n = {end}"] = best_less(table, inner, [end])[1]
            else:
                words = f"mean of n = {', '.join(map(str, inner))} less n = {end}"
                found[words] = contrast(table, {end: -1} | {n: 1 / len(inner) for n in inner})
    said = ", ".join(f"{words}: {points(c)}" for words, c in found.items())
    verdicts = [judge(c, +1, gained(cells, metric=metric)) for c in found.values()]
    panels = [curves(cells, titled(config_of(cells)), m) for m in ("best@4", "worst@4", "avg@4")]
    return dict(verdict=both(verdicts), sees=sees(found.values()),
                figure=figure(atlas, "extreme", panels),
                says=f"To {si(budget_of(cells))}: {says_near(table)}; {said}{left}")


def ood(atlas):
    """Figure 23: the largest n against the smallest on a set of another kind."""
    cells = atlas.arm("ood")
    sets = next(iter(cells[min(cells)].values()))["evals"]
    of = next((name for name in sets if name != "val"), "a second set")
    table = table_of(cells, of=of)
    words, c = largest_less_smallest(table)
    base = table_of(cells, of=of, window=START)[min(cells)].mean()
    panels = [curves(cells, f"{titled(config_of(cells))}, in domain"),
              curves(cells, f"on {of}", of=of)]
    g = gained(cells, of=of)
    return dict(verdict=judge(c, +1, g), sees=c["sees"], figure=figure(atlas, "ood", panels),
                says=f"on {of}: base model {base:.3f}; at the end n = {means(table)}; {words}")


def algo(atlas, arm):
    """Figure 25: the two n that each panel is about, for PPO and CISPO."""
    lr, cells, _, _ = at_one_lr(atlas, arm)
    if len(cells) < 3:
        raise Missing(f"three n of {arm}")
    smallest, *_, second, largest = sorted(cells)
    other, claim = (second, 0) if arm == "ppo_easy" else (smallest, +1)
    (words, c, _, tuned), move = at_own_lrs(atlas, arm, [largest], other), shift_of(cells)
    verdict = judge(c, claim, gained(cells))
    says = f"{words}; at lr_base = {lr:g} {says_near(table_of(cells))}, {says_shift(move)}"
    if arm == "cispo_easy":  # "becomes better as C grows": it comes closer, and it is ahead
        at = {when: {(n, when): t for n, t in table_of(cells, window=when).items()}
              for when in (EARLY, LATE)}
        closer = contrast(at[EARLY] | at[LATE], {
            (largest, LATE): 1, (other, LATE): -1, (largest, EARLY): -1, (other, EARLY): 1})
        says += f". From early to the end n = {largest} gains {points(closer)} on n = {other}"
        nearer = judge(closer, +1, gained(cells))
        verdict = verdict if verdict == nearer else "undecided"
    cfg = config_of(cells)
    panels = [curves(cells, f"{titled(cfg)}, lr_base {lr:g}")]
    for beside in atlas.there("algos", algo=cfg["algo"], recipe=cfg["recipe"]):
        if beside != arm:  # CISPO on-policy beside that with two updates a batch
            of = atlas.arm(beside)
            updates = f"{config_of(of)['updates']} update(s) a batch"
            panels.append(curves(of, f"{titled(config_of(of))}, {updates}"))
            says += f"; with {updates} {largest_less_smallest(table_of(of))[0]}"
    return dict(verdict=verdict, sees=c["sees"], says=says, tuned=tuned,
                figure=figure(atlas, arm, panels))


def baseline(atlas, of):
    """Figure 26: the baseline from n rollouts, the loss from n_train of them, after equal updates
    or after equal rollouts (the axis of the paper's figure)."""
    n, runs = next(iter(atlas.arm("decoupled").items()))
    some = next(iter(runs.values()))["config"]
    few = some["n_train"]
    other = next((name for name in atlas.there("baseline") if name != "decoupled"), None)
    if other is None:
        raise Missing("the runs whose loss has all of the baseline's rollouts")
    easy = atlas.arm(other, some["B_p"], [few, n], some["lr_base"])
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
    panels = [curves(cells, f"{titled(some)}, per rollout", label="{}"), per_update]
    says = f"{means(table)}; (1) less (3) {points(a)}, (3) less (2) {points(b)}"
    g = gained({key: runs for key, runs in cells.items() if key != of_few})
    return dict(verdict=both([judge(a, +1, g), judge(b, 0, g)]), sees=sees([a, b]), says=says,
                compared={}, figure=figure(atlas, "baseline", panels))


def one_problem(atlas):
    """The appendix's bandit: bandit_toy.py's figure."""
    return dict(verdict="", says="see docs/toy.md", figure="../bandit/one.png" if atlas.own else "")
