"""results/figures.py: the figures of the paper and of our own questions, each a function of arms.

Each takes an Atlas, finds the arms of its study by presets.json of the data folder, contrasts their
runs, judges the claim, and draws: n, B_p, lr, models and levels are those of the logs. It returns
dict(verdict, says[, sees, table, figure, tuned, compared]): sees, the effect that such runs would
show; tuned, False where n are compared at an lr that was not tuned for each; compared, the runs
that have to be deep. Raises Missing where runs lack. The table that says which claim is which
function's is in atlas.py.
"""
import contextlib
import math
from collections import Counter
from pathlib import Path

import numpy as np
from scipy import stats

import config
import frontier
from arms import (EARLY, LATE, LRS, START, analysed, budget_of, config_of, curves,
                  cut, depth, drawn, each_of, figure, flat, gained, grid_text, level, look, means,
                  one_cell, points, read, records, says_law, says_near, says_shift,
                  shift_of, table_of, titled, training, use, view_figure)
from core.plots import si
from core.stats import (SMALL, Missing, best_less, both, change, contrast, denied, judge,
                        of_several, shift)
from fit_sigmoid import law_of_panel

SHARES = dict(easy=(0.3, 0.6), hard=(0, 0.0625))  # the paper's levels, by avg@16 of the base model
MIXES = "mix_hard", "mix_dual", "mix_tri"  # sample.py's, and its levels that they are validated on
LEVELS = "extreme_val", "level_easy_val", "level_very_easy_val"
METRICS = "avg@4", "best@4", "worst@4"


def judged(claim, contrasts, g, **more):
    """A row whose claim (of `judge`, which g is for) all of some contrasts have to bear out."""
    return dict(verdict=both([judge(c, claim, g) for c in contrasts]),
                sees=max(c["sees"] for c in contrasts)) | more


# ---- section 3: the recipe

def solved_at_first(cfg):
    """(s + 1,): how many problems had c = 0..s of the base model's first s rollouts right, by
    sample.py's pass rates beside the training problems of a run."""
    correct = {}  # {problem: right of its first s}
    for rates in sorted(Path(cfg["train_set"]).parent.glob("pass_rates*.jsonl")):
        correct |= {r["id"]: r["correct"] for r in config.read_log(rates)
                    if r.get("samples") == cfg["s"]}
    return np.bincount(np.array(list(correct.values()), int), minlength=cfg["s"] + 1)


def difficulty(atlas):
    """Figure 2: how hard the problems are for the base model."""
    path, bars = atlas.folder / "difficulty.json", np.zeros(1, int)
    if path.exists():
        bars = np.array(config.read_json(path)["counts"])
    elif logs := sorted(atlas.folder.glob("[!.]*/*/log.jsonl*")):
        bars = solved_at_first(config.read_log(logs[0])[0]["config"])
    if not bars.any():
        raise Missing("sample.py's pass rates")
    s = len(bars) - 1
    rate = np.arange(s + 1) / s
    share = {task: 100 * bars[(rate >= lo) & (rate <= hi)].sum() / bars.sum()
             for task, (lo, hi) in SHARES.items()}

    def draw(ax):
        ax.bar(rate, bars, width=0.8 / s, color="0.5")
        for (task, (lo, hi)), shade in zip(SHARES.items(), ("C0", "C3")):
            ax.axvspan(lo - 0.5 / s, hi + 0.5 / s, alpha=0.2, color=shade, label=task.title())
        ax.set(xlabel=f"avg@{s} of the base model", ylabel="problems", title="difficulty")
    says = (f"{bars.sum():,} problems, mean {rate @ bars / bars.sum():.2f}; "
            f"Easy {share['easy']:.0f}%, Hard {share['hard']:.0f}%")
    return dict(verdict="", says=says, figure=figure(atlas, "difficulty", [draw]))


def recipe(atlas, start, claim, *pairs):
    """Figures 3 and 4, right: an arm of one cell less another, where both are there, for some pairs
    of the arms whose names begin alike. The table has what the arms differ in."""
    cells = {name.removeprefix(start): one_cell(atlas, name)
             for name in atlas.there("recipe") if name.startswith(start)}
    if not set(pairs[0]) <= set(cells):
        raise Missing(" and ".join(start + name for name in pairs[0]))
    cells = cut(cells)
    table, own = table_of(cells), {name: config_of({0: runs}) for name, runs in cells.items()}
    keys = [key for key in ("kl_coef", "entropy_coef", "zero_var_filter", "lr_base")
            if len({cfg[key] for cfg in own.values()}) > 1]
    lines, entropies = [], {}
    for name, runs in cells.items():
        steps = [records(run, "step") for run in runs.values()]
        entropies[name] = np.mean([s[-1].get("entropy", np.nan) for s in steps if s] or [np.nan])
        lines.append([name, *(own[name][key] for key in keys), f"{table[name].mean():.3f}",
                      f"{entropies[name]:.2f}"])
    found = {f"{a} less {b}": contrast(table, {a: 1, b: -1})
             for a, b in pairs if {a, b} <= set(cells)}
    panels = [curves(cells, f"{titled(own[pairs[0][0]])}, n = {own[pairs[0][0]]['n']}", label="{}"),
              training(cells, "entropy", "token entropy, nats"),
              training(cells, "kl", "KL to the base model")]
    return judged(claim, found.values(), gained(cells), says="; ".join(
        [means(table), *(f"{words} {points(c)}" for words, c in found.items())]),
                  figure=figure(atlas, start.strip("_"), panels),
                  table=grid_text(["arm", *keys, "avg@4", "token entropy at the end"], lines))


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
    panel = curves(cells, f"{titled(some)}, n = {some['n']}", label="lr_base = {:g}")
    return judged(+1, [low, high], gained(cells), says=says,
                  figure=figure(atlas, "lr_grid", [panel]))


# ---- section 4: allocation

def with_other_lrs(atlas, task):
    """An arm, and ARM_half, ARM_double, ... where they are there."""
    return [task + end for end in ("", *LRS) if (atlas.folder / (task + end)).is_dir()]


def every_lr(atlas, task, ns=()):
    """{(n, lr_base): {seed: run}} of an arm and of ARM_half, ARM_double, ..., in order; of some n.
    """
    names, out = with_other_lrs(atlas, task), {}
    least = atlas.least(*names)
    for name in names:
        for lr in atlas.lrs(name):
            with contextlib.suppress(Missing):
                out |= {(n, lr): runs for n, runs in atlas.arm(name, lr=lr, least=least).items()
                        if not ns or n in ns}
    if not out:
        raise Missing(f"runs of {task}")
    return dict(sorted(out.items()))


def n_of(key):
    """The n of (n, lr_base)."""
    return key[0]


def deep_ones(cells, n_of=int):
    """Of {key: {seed: run}} the n that are deep enough to compare, in words the others. n_of: the n
    of a key, by default keys are n."""
    left = {}
    for n in sorted(set(map(n_of, cells))):
        M, deep, _ = depth({key: runs for key, runs in cells.items() if n_of(key) == n})
        if not deep:
            left[n] = f". n = {n}, {M} updates, is not deep enough to be compared"
    kept = {key: runs for key, runs in cells.items() if n_of(key) not in left}
    if len(set(map(n_of, kept))) < 3:  # then the row says that it is too shallow
        return cells, ""
    return kept, "".join(left.values())


def at_one_lr(atlas, arm):
    """An arm at the one lr_base that is best for all n at the end, of those that most n have:
    (lr_base, {n: {seed: run}}, the same of the n that are deep enough, words on the others)."""
    every, whole, deep = every_lr(atlas, arm), {}, {}
    for (n, lr), runs in every.items():
        whole.setdefault(lr, {})[n] = runs
    for lr, cells in whole.items():
        deep[lr], _ = deep_ones(cells)
    most = max(map(len, deep.values()))
    lrs = [lr for lr in sorted(deep) if len(deep[lr]) == most]
    if len(lrs) > 1:
        table = table_of({(n, lr): runs for lr in lrs for n, runs in deep[lr].items()})
        lrs.sort(key=lambda lr: -np.mean([table[n, lr].mean() for n in deep[lr]]))
    return lrs[0], whole[lrs[0]], *deep_ones(whole[lrs[0]])


def rise(atlas, task):
    """Figures 1, 6 and 7: does n*(C) of an arm rise, at the one lr_base that is best for all n?

    In our own study, where there are two seeds from 3 on, the verdict is theirs: seeds 0 to 2, on
    which the claim was made, cannot confirm it.
    """
    lr, whole, cells, left = at_one_lr(atlas, task)
    sweep = analysed(flat(whole))
    name, front = view_figure(atlas, "paper", f"law_{task}", sweep)
    (panel,) = front["panels"].values()
    c = shift_of(cells)
    words = f"{says_shift(c)}; {says_law(panel, law_of_panel(panel))}{left}"
    if len({lr for _, lr in every_lr(atlas, task)}) > 1:
        words = f"At lr_base = {lr:g}: {words}"
    fresh = {n: {seed: run for seed, run in runs.items() if seed > 2} for n, runs in cells.items()}
    some_are_old = any(set(fresh[n]) < set(cells[n]) for n in cells)
    if atlas.own and some_are_old and all(len(runs) > 1 for runs in fresh.values()):
        c = shift_of(fresh)
        words = f"On fresh seeds, which decide: {says_shift(c)}. On all seeds: {words}"
    return dict(verdict=c["verdict"], sees=c["sees"], says=words, compared=cells, figure=name)


def other_lrs(atlas, task):
    """The n of an arm that have two lr_base or more: {(n, lr_base): {seed: run}}, and words on the
    n that are not deep enough. An lr_base that one n alone has compares none."""
    every = every_lr(atlas, task)
    for i in (1, 0):
        times = Counter(key[i] for key in every)
        every = {key: runs for key, runs in every.items() if times[key[i]] > 1}
    cells, left = deep_ones(every, n_of) if every else ({}, "")
    if min(len({key[i] for key in cells}) for i in (0, 1)) < 3:
        raise Missing(f"three n of {task} at three lrs")
    return cells, left


def lr_control(atlas, task):
    """Does n*(C) of an arm rise where every n has the best of several lrs? Also the largest n less
    the smallest, at the end, each at its best."""
    cells, left = other_lrs(atlas, task)
    c, ns = shift_of(cells, n_of), sorted(set(map(n_of, cells)))
    sweep = analysed([run for name in with_other_lrs(atlas, task) for run in atlas.runs(name)])
    name, front = view_figure(atlas, "lr", f"lr_control_{task}", sweep)
    says = (f"{says_shift(c)}; at the end, {own_lr_gap(cells, ns[-1:], ns[0])[0]}; best lr_base of "
            f"{', '.join(f'{lr:g}' for lr in sorted({lr for _, lr in cells}))}: "
            + ", ".join(f"n = {row['n']}: {row['best']:g}" for row in front["rows"]) + left)
    if front["slope"] is not None:
        says += f"; the best lr goes with B to the power {front['slope']:.2f} (the rule: 0.5)"
    return dict(verdict=c["verdict"], sees=c["sees"], says=says, figure=name)


def own_lr_gap(cells, large, small, metric="avg@4"):
    """The best of the n in `large` less n = `small` at the end, each at its best lr_base of {(n,
    lr_base): runs}, chosen on other seeds: (words, the contrast, whether the lr was tuned).

    Tuned: of three lr_base for each n, where the n that is behind has its best not at the edge of
    them, beyond which a better one may lie.
    """
    of_large, of_small = ([key for key in cells if key[0] in ns] for ns in (large, [small]))
    table, times = table_of(cells, metric=metric), Counter(map(n_of, cells))
    tried = min(times[n] for n in (*large, small))
    best, c = best_less(table, of_large, of_small)
    top = each_of([str(n) for n, _ in best])
    words, edge = f"n = {top} less n = {small}", False
    if max(times[n] for n in (*large, small)) > 1:
        words += f", each at its best lr_base (n = {top}: {each_of([f'{lr:g}' for _, lr in best])})"
    if tried > 2:
        behind, own = max(of_large if c["gain"] < 0 else of_small, key=lambda k: table[k].mean())
        lrs = [lr for n, lr in cells if n == behind]
        edge = own in (min(lrs), max(lrs))
        if edge:
            words += f", where n = {behind} has its best, {own:g}, at the edge of {len(lrs)} tried"
    return f"{words}: {points(c)}", c, tried > 2 and not edge


def far(atlas, arm, large, above=False):
    """`rise` in an arm where some n have several lr_base: at the end n = `large` less the smallest
    too, each at its best lr_base, and their curves. above: the claim is that it ends above that."""
    found, every = rise(atlas, arm), every_lr(atlas, arm)
    ns = sorted(set(map(n_of, every)))
    words, c, _ = own_lr_gap(every, [large], ns[0])
    found["says"] += f"; at the end, {words}"
    for n in ns[ns.index(large) + 1:]:
        found["says"] += f"; {own_lr_gap(every, [n], large)[0]}"
    cells = {f"n = {n}, lr_base {lr:g}": runs for (n, lr), runs in every.items()}
    panels = [curves(cells, titled(config_of(cells)), metric, label="{}") for metric in METRICS[:2]]
    found["figure"] = [found["figure"], figure(atlas, arm, panels)]
    return found | (judged(+1, [c], gained(every)) if above else {})


def record_breaking(atlas):
    """Figures 5 and 15: what record-breaking points add to the frontier."""
    _, whole, cells, _ = at_one_lr(atlas, "easy")
    use(cells)
    name, front = view_figure(atlas, "paper", "law_easy", analysed(flat(whole)))
    (panel,) = front["panels"].values()
    above = panel["paper"]["above"]
    if above is None:
        raise Missing("record-breaking points")
    return dict(verdict="", figure=name, says="curves through record-breaking points lie "
                f"{100 * above:+.1f} points from the frontier of what the models at C get, on "
                "average over log C")


def tokens(atlas):
    """Figure 24: n*(C) and the paper's law with C in rollouts and in tokens."""
    _, whole, cells, _ = at_one_lr(atlas, "easy")
    use(cells)
    panels, sets, fits = {}, [], []
    for unit in ("rollouts", "tokens"):
        sweep = analysed(flat(whole), unit)
        (panel,) = frontier.fixed_Bp(sweep, sweep["cfg"])["panels"].values()
        panels[f"C in {unit}"], law = panel, law_of_panel(panel)
        if not law["sets"]:
            raise Missing("budgets that all n share")
        sets.append([law["sets"][0], law["sets"][-1]])
        k = law["k"]["value"]
        fits.append(f"{'not determined' if k is None else f'{k:.1f}'} in {unit}")
    same = all(set(a) & set(b) for a, b in zip(*sets))
    length = [read(run["path"], "val", "tokens")["per_rollout"] for run in flat(cells)]
    differ = max(length) > 1.1 * min(length)
    front = frontier.front_of(sweep, "fixed_Bp", dict(panels=panels), sweep["cfg"])
    frontier.draw_panels(front | dict(unit="", missing=[]), atlas.out / "units.png")
    (a, b), (c, d) = ([", ".join(map(str, ns)) for ns in ends] for ends in sets)
    says = (f"as good as the best at the smallest and the largest shared budget: n = {a} and {b} "
            f"in rollouts, {c} and {d} in tokens; the law's k a decade: {', '.join(fits)}; a "
            f"rollout has {min(length):.0f} to {max(length):.0f} tokens on average")
    return dict(verdict=("agree" if same else "disagree") if differ else "", figure="units.png",
                says=says + ", so that the units could hardly differ" * (not differ))


def metrics(atlas, task, first, second):
    """Figure 8: does the second metric want a larger n than the first? At the B_p with most n; the
    figure has the three with most."""
    _, _, cells, _ = at_one_lr(atlas, task)
    tables = {metric: table_of(cells, metric=metric) for metric in (first, second)}
    c = shift(*({n: [t] for n, t in table.items()} for table in tables.values()), gained(cells))
    says = "; ".join([says_shift(c, (f"by {first}", f"by {second}")),
                      *(f"{metric}: {says_near(table)}" for metric, table in tables.items())])
    with contextlib.suppress(Missing):
        cells = grid_of(atlas, "joint", task, least_B_p=1)
    return dict(verdict=c["verdict"], sees=c["sees"], says=says,
                figure=drawn(atlas, "best_worst", f"best_worst_{task}", cells))


def grid_of(atlas, study, task, least_B_p=2):
    """{(B_p, n): {seed: run}} of a study's arms of one recipe, at the lr_base that most cells have.

    Of the cells that are deep, the n that `least_B_p` B_p have or more, in order of n, up to the
    budget that all have.
    """
    names, asks, by_lr = atlas.there(study, recipe=task), atlas.asks(study), {}
    for name in names:
        bps, ns = (set(map(int, asks[name][key].split())) for key in ("bps", "ns"))
        for lr, cells in atlas.lrs(name).items():
            by_lr.setdefault(lr, {}).update({(b, n): runs for (b, n), runs in cells.items()
                                             if b in bps and n in ns})
    least = atlas.least(*names)
    cells = max(by_lr.values(), key=len, default={})
    cells = {key: runs for key, runs in cells.items() if len(runs) >= least}
    deep = {key: runs for key, runs in cells.items() if depth({key: runs})[1]}
    cells = deep if len({b for b, _ in deep}) > 1 else cells  # else the row is too shallow
    if len({b for b, _ in cells}) < 2:
        raise Missing(f"{task} at a second B_p")
    times = Counter(n for _, n in cells)
    shared = {(b, n): cells[b, n] for b, n in sorted(cells, key=lambda cell: (cell[1], cell[0]))
              if times[n] >= least_B_p}
    return cut(shared)


def sensitivity(atlas, task):
    """Figure 10: points for each doubling of n and of B_p, a plane in both fitted to all cells."""
    cells = grid_of(atlas, "joint", task)
    table, g = table_of(cells), gained(cells)
    X = np.array([[1, math.log2(b), math.log2(n)] for b, n in table])
    _, to_B_p, to_n = np.linalg.pinv(X)  # least squares: each slope as weights of the cells

    def weighted(weights):
        return contrast(table, dict(zip(table, weights)))
    of_n, of_B_p = weighted(to_n), weighted(to_B_p)
    # the size of a slope is the slope times its sign
    gap = weighted(np.sign(of_n["gain"]) * to_n - np.sign(of_B_p["gain"]) * to_B_p)
    if task == "easy":  # n has the larger effect, and it helps
        verdict = both([judge(gap, +1, g), judge(of_n, +1, g)])
    elif abs(gap["gain"]) + gap["half"] < SMALL * g:  # the effects are alike, and n helps
        verdict = judge(of_n, +1, g)
    else:
        verdict = "disagree" if abs(gap["gain"]) > gap["half"] else "undecided"
    sizes = ", ".join(map(str, sorted({b for b, _ in cells})))
    says = (f"points for each doubling: of n {points(of_n)}, of B_p {points(of_B_p)}; size of the "
            f"first less that of the second {points(gap)} ({len(cells)} cells, B_p = {sizes})")
    return dict(verdict=verdict, sees=gap["sees"], says=says,
                figure=drawn(atlas, "sensitivity", f"sensitivity_{task}", cells))


def at_every(atlas, view, task):
    """Figures 9 and 16 to 19: does n*(C) rise at every B_p, or n* at every batch B = B_p n?"""
    study, name = dict(fixed_Bp=("joint", "B_p"), fixed_B=("fixed_B", "B"))[view]
    grid, groups = grid_of(atlas, study, task), {}
    for (b, n), runs in grid.items():
        groups.setdefault(b if name == "B_p" else b * n, {})[n] = runs
    found = {key: shift_of(groups[key]) for key in sorted(groups) if len(groups[key]) > 2}
    few = ", ".join(f"{name} = {key}" for key in sorted(groups) if key not in found)
    if not found:
        raise Missing(f"three n at one {name}")
    says = [f"{name} = {key}: {says_shift(c)}" for key, c in found.items()]
    says += [f"fewer than three n, so no verdict: {few}"] * bool(few)
    return dict(verdict=of_several(found.values()), sees=max(c["sees"] for c in found.values()),
                says="; ".join(says), figure=drawn(atlas, view, f"{view}_{task}", grid))


def stable_B_p(atlas):
    """The smallest B_p of which at most one run in ten diverges or falls, by difficulty."""
    found = {}
    for task in ("easy", "hard"):
        cells = grid_of(atlas, "joint", task)
        use(cells)
        found[task] = frontier.stability(analysed(flat(cells))["cells"])  # each to its own end
    shared = set.intersection(*map(set, found.values()))
    found = {task: {b: by_B_p[b] for b in by_B_p if b in shared} for task, by_B_p in found.items()}
    first, second = smallest = [frontier.smallest_stable(by_B_p) for by_B_p in found.values()]
    said = []
    for (task, by_B_p), stable in zip(found.items(), smallest):
        each = ", ".join(f"{bad} of {runs} with B_p = {b}" for b, (bad, runs) in by_B_p.items())
        said.append(f"{task.title()}: {each}; the smallest stable one is {stable or 'none'}")
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
    c, on_top = shift_of(cells, lambda cell: cell[1]), []
    for window, when in ((EARLY, "early"), (LATE, "at the end")):
        table = table_of(cells, window=window)
        b, n = max(table, key=lambda cell: table[cell].mean())
        on_top.append(f"({b}, {n}) {when}, B = {b * n}")
    return dict(verdict=c["verdict"], sees=c["sees"],
                figure=drawn(atlas, "joint", f"joint_{task}", cells),
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
    """Figures 11 and 27: training problems unsolved and mastered at the smallest and the largest n
    that the study asks for."""
    asked = sorted(map(int, atlas.asks("interference")[task]["ns"].split()))
    small, large = asked[0], asked[-1]
    if small == large:
        raise Missing(f"another n than {small}")
    cells = atlas.arm(task, ns=(small, large))
    C = budget_of(cells)
    s, found, verdicts = pass_rates(flat(cells)[0], C)[1], [], []
    for true in (lambda p: p == 0, lambda p: p > 1 - 1.5 / s):
        start, end = (table_of(cells, lambda run: true(pass_rates(run, at)[0]) * 1.0)
                      for at in (0, C))
        found.append(contrast(end, {small: 1, large: -1}))
        moved = max(abs(end[n].mean() - start[n].mean()) for n in end)
        verdicts.append(judge(found[-1], +1, moved))
    none, nearly = found
    says = (f"n = {small} less n = {large} at C = {si(C)}, in % of the training problems: "
            f"solved in none of {s} rollouts {points(none)}, in {s - 1} or more {points(nearly)}")
    return dict(verdict=both(verdicts), sees=none["sees"], says=says,
                figure=drawn(atlas, "pass1", f"pass1_{task}", cells))


def arm_alone(atlas, arm, claim, pick):
    """An arm whose row is about two n: ({n: {seed: run}} at the best lr_base, a title, the row).
    pick: of the sorted n the larger ones and the small one that are compared, each at its own lr.
    """
    lr, _, cells, _ = at_one_lr(atlas, arm)
    if len(cells) < 2:
        raise Missing(f"two n of {arm}")
    cfg, (large, small) = config_of(cells), pick(sorted(cells))
    words, c, tuned = own_lr_gap(every_lr(atlas, arm, (*large, small)), large, small)
    says = f"{words}; at lr_base = {lr:g} {says_near(table_of(cells))}"
    if len(cells) > 2:
        says += f"; {says_shift(shift_of(cells))}"
    title = f"{'/'.join(cfg['model'].split('/')[-2:])}, {titled(cfg)}, lr_base {lr:g}"
    return cells, title, judged(claim, [c], gained(cells), says=says, tuned=tuned)


def models(atlas):
    """Figure 12: the best larger n against the smallest, for other base models; the training reward
    beside the validation reward."""
    rows, panels = {}, []
    for name in atlas.there("models"):
        cells, title, rows[title] = arm_alone(atlas, name, +1, lambda ns: (ns[1:], ns[0]))
        panels += [curves(cells, title), training(cells, "reward", title, label="n = {}")]
    if not rows:
        raise Missing("model_*")
    return dict(verdict=both([row["verdict"] for row in rows.values()]),
                sees=max(row["sees"] for row in rows.values()),
                tuned=all(row["tuned"] for row in rows.values()),
                says=". ".join(f"{title}: {row['says']}" for title, row in rows.items()),
                figure=figure(atlas, "models", panels, across=2))


def size(atlas):
    """Figure 13: points for each doubling of n with many training problems, less that with few."""
    names = atlas.there("size")
    lrs = min(map(atlas.lrs, names), key=len, default={})  # others may have tried more
    if len(names) < 2 or not lrs:
        raise Missing("size_* and another D")
    arms = [atlas.arm(name, lr=next(iter(lrs))) for name in names]
    arms = {config_of(cells)["D"] or math.inf: cells for cells in arms}
    ns = sorted(set.intersection(*map(set, arms.values())))
    if len(arms) < 2 or len(ns) < 2:
        raise Missing("two n at two D")
    cells, left = deep_ones({(D, n): arms[D][n] for D in sorted(arms) for n in ns},
                            lambda key: key[1])
    table, ns = table_of(cells), sorted({n for _, n in cells})

    # least squares of a line in log2 n, as weights of the n
    slope = dict(zip(ns, np.linalg.pinv([[1, math.log2(n)] for n in ns])[1]))
    names = {D: "all problems" if D == math.inf else f"D = {D}" for D in sorted(arms)}
    tops, lines = {}, []
    for D in names:
        tops[D] = max(ns, key=lambda n: table[D, n].mean())
        c = contrast(table, {(D, n): w for n, w in slope.items()})
        lines.append([names[D], *(f"{table[D, n].mean():.3f}" for n in ns), points(c)])
    few, many = min(arms), max(arms)
    c = contrast(table, {(many, n): w for n, w in slope.items()}
                 | {(few, n): -w for n, w in slope.items()})
    verdict = judge(c, +1, gained(arms[many]))
    if verdict == "agree" and tops[few] >= tops[many]:  # steeper, but the best n does not move
        verdict = "undecided"
    panels = [curves({n: cells[D, n] for n in ns}, f"{titled(config_of(arms[D]))}, {words}")
              for D, words in names.items()]
    heads = ["", *(f"n = {n}" for n in ns), "points for each doubling of n"]
    return dict(verdict=verdict, sees=c["sees"], tuned=False, table=grid_text(heads, lines),
                figure=figure(atlas, "size", panels, across=2), says="points for each doubling of "
                f"n, {names[many]} less {names[few]}: {points(c)}; best n {tops[many]} and "
                f"{tops[few]}{left}")


def mixes(atlas):
    """{mix: {n: {seed: run}}} and {level: the `set` of its evaluations} of the study of mixtures.

    Of the n that all mixtures have, up to the budget that all have.
    """
    arms = {mix: atlas.arm(mix) for mix in MIXES}
    ns, C = sorted(set.intersection(*map(set, arms.values()))), min(map(budget_of, arms.values()))
    if len(ns) < 2:
        raise Missing("two n that all mixtures have")
    arms = {mix: cut({n: cells[n] for n in ns}, C) for mix, cells in arms.items()}
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
    each = ", ".join(f"{line[0]}: {' / '.join(line[1:])}" for line in lines)
    ends = f"n = {max(cells)} less n = {min(cells)}"
    return dict(verdict=both(verdicts), sees=max(c["sees"] for c in asked), tuned=False,
                says=f"{ends} on Unsolved / Easy / Very Easy, trained on {each}",
                figure=figure(atlas, "mixtures", panels))


def one_mix_less_another(arms, of, one, other):
    """The contrast of two mixtures on a set, mean over n."""
    cells = {(mix, n): runs for mix in arms for n, runs in arms[mix].items()}
    weights = {(mix, n): sign / len(arms[mix]) for mix, sign in ((one, +1), (other, -1))
               for n in arms[mix]}
    return contrast(table_of(cells, of=of), weights)


def forgetting(atlas):
    """Figure 14: the change of each mixture on Easy and Very Easy since the base model, mean over
    n. Unsolved alone forgets early, and may learn some of it again."""
    arms, sets = mixes(atlas)
    lines, found = [], {}
    for mix, window in (("mix_hard", EARLY), *((mix, LATE) for mix in arms)):
        found[mix] = []
        for name in LEVELS[1:]:
            then, start = (np.mean(list(table_of(arms[mix], of=sets[name], window=w).values()), 0)
                           for w in (window, START))
            found[mix].append(change(then, start))
        lines.append([level(mix), si(window[1] * budget_of(arms[mix])), *map(points, found[mix])])
    mended = one_mix_less_another(arms, sets["level_easy_val"], "mix_dual", "mix_hard")
    g = gained(arms["mix_dual"], of=sets["level_easy_val"])
    said = ", ".join(f"{level(name)} {points(c)}" for name, c in zip(LEVELS[1:], found["mix_hard"]))
    return dict(verdict=both([*(judge(c, -1, g) for c in found["mix_hard"]), judge(mended, +1, g)]),
                sees=max(c["sees"] for c in found["mix_hard"]), figure="mixtures.png",
                table=grid_text(["change since the base model, trained on", "to C",
                                 *map(level, LEVELS[1:])], lines),
                says=f"Unsolved alone, mean over n, since the base model: {said}; on Easy "
                f"{level('mix_dual')} less Unsolved alone: {points(mended)}")


def very_easy(atlas):
    """Figure 14: a mixture with Very Easy problems against that without."""
    arms, sets = mixes(atlas)
    found = {name: one_mix_less_another(arms, sets[name], "mix_tri", "mix_dual") for name in sets}
    asked = [found[name] for name in LEVELS[:2]]
    said = ", ".join(f"on {level(name)} {points(c)}" for name, c in found.items())
    g = max(gained(cells, of=of) for cells in arms.values() for of in sets.values())
    return dict(verdict=both([denied(judge(c, +1, g)) for c in asked]), figure="mixtures.png",
                says=f"{level('mix_tri')} less {level('mix_dual')}, mean over n: {said}",
                sees=max(c["sees"] for c in asked))


def extreme(atlas, metric):
    """Figure 20: the largest n less the best of the others by best@4; by worst@4 the best between
    less both ends. By the runs of far_mix_hard, where they are there."""
    cells = atlas.arm("mix_hard")
    if (atlas.folder / "far_mix_hard").is_dir():
        cells = atlas.arm("far_mix_hard", lr=config_of(cells)["lr_base"])
    if len(cells) < 3:
        raise Missing("three n of mix_hard")
    cells, left = deep_ones(cells)
    table = table_of(cells, metric=metric)
    first, *inner, last = sorted(table)
    pairs = {f"n = {last} less the best smaller n": ([last], [first, *inner])}
    if metric == "worst@4":
        pairs = {f"the best between less n = {end}": (inner, [end]) for end in (first, last)}
    found = {words: best_less(table, *pair)[1] for words, pair in pairs.items()}
    said = ", ".join(f"{words}: {points(c)}" for words, c in found.items())
    panels = [curves(cells, titled(config_of(cells)), m) for m in METRICS]
    return judged(+1, found.values(), gained(cells, metric=metric),
                  figure=figure(atlas, "extreme", panels),
                  says=f"To {si(budget_of(cells))}: {says_near(table)}; {said}{left}")


def ood(atlas):
    """Figure 23: the largest n against the smallest on a set of another kind."""
    cells = atlas.arm("ood")
    sets = dict.fromkeys(r["set"] for r in records(flat(cells)[0], "eval"))
    of = next((name for name in sets if name != "val"), "a second set")
    table = table_of(cells, of=of)
    small, large = min(table), max(table)
    if small == large:
        raise Missing(f"another n than {small}")
    c = contrast(table, {large: 1, small: -1})
    base = table_of(cells, of=of, window=START)[small].mean()
    panels = [curves(cells, f"{titled(config_of(cells))}, in domain"),
              curves(cells, f"on {of}", of=of)]
    return judged(+1, [c], gained(cells, of=of), figure=figure(atlas, "ood", panels),
                  says=f"on {of}: base model {base:.3f}; at the end n = {means(table)}; "
                       f"n = {large} less n = {small}: {points(c)}")


def algo(atlas, arm, claim=+1, grows=False):
    """Figure 25: the two n that each panel is about, for PPO and CISPO: the largest less the
    smallest, or (claim 0) less the second largest. grows: and from early to the end it gains on it.
    """
    cells, title, row = arm_alone(
        atlas, arm, claim, lambda ns: (ns[-1:], ns[0] if claim else ns[-2]))
    panels = [curves(cells, title)]
    if grows:
        small, *_, large = sorted(cells)
        at = {(n, when): t for when in (EARLY, LATE)
              for n, t in table_of(cells, window=when).items()}
        closer = contrast(at, {(large, LATE): 1, (small, LATE): -1,
                               (large, EARLY): -1, (small, EARLY): 1})
        row["says"] += f". From early to the end n = {large} gains {points(closer)} on n = {small}"
        if row["verdict"] != judge(closer, +1, gained(cells)):
            row["verdict"] = "undecided"
    cfg = config_of(cells)
    for beside in atlas.there("algos", algo=cfg["algo"], recipe=cfg["recipe"]):
        if beside != arm:  # CISPO on-policy beside that with two updates a batch
            of = atlas.arm(beside)
            title = f"{titled(config_of(of))}, {config_of(of)['updates']} update(s) a batch"
            panels.append(curves(of, title))
            row["says"] += f"; {title}: {says_near(table_of(of))}"
    return row | dict(figure=figure(atlas, arm, panels))


def baseline(atlas, of):
    """Figure 26: the baseline from n rollouts, the loss from n_train of them, after equal updates
    or after equal rollouts (the axis of the paper's figure)."""
    n, runs = next(iter(atlas.arm("decoupled").items()))
    some = config_of({n: runs})
    few = some["n_train"]
    other = next((name for name in atlas.there("baseline") if name != "decoupled"), None)
    if other is None:
        raise Missing("the runs whose loss has all of the baseline's rollouts")
    easy = atlas.arm(other, some["B_p"], [few, n], some["lr_base"])
    cells = cut({f"(1) {n} in baseline and loss": easy[n], f"(2) {few} in both": easy[few],
                 f"(3) {n} in the baseline, {few} in the loss": runs})
    of_many, of_few, decoupled = cells

    def at_end(run):  # of equal updates, where the large batch has made as many
        share = run["n"] / n if of == "updates" else 1
        return look(run | dict(budget=run["budget"] * share))
    table = table_of(cells, at_end)
    a = contrast(table, {of_many: 1, decoupled: -1})
    b = contrast(table, {decoupled: 1, of_few: -1})
    g = gained({key: runs for key, runs in cells.items() if key != of_few})
    panels = [curves(cells, f"{titled(some)}, per {unit[:-1]}", label="{}", unit=unit)
              for unit in ("rollouts", "updates")]
    return dict(verdict=both([judge(a, +1, g), judge(b, 0, g)]), sees=max(a["sees"], b["sees"]),
                says=f"{means(table)}; (1) less (3) {points(a)}, (3) less (2) {points(b)}",
                compared={}, figure=figure(atlas, "baseline", panels))


def one_problem(atlas):
    """The appendix's bandit: bandit_toy.py's figure."""
    return dict(verdict="", says="see docs/toy.md", figure="../bandit/one.png" if atlas.own else "")


# ---- ours

def by_difficulty(atlas, small, large, *arms):
    """What a large n gains late on a small one, each at its best lr, by levels of difficulty: more
    on the hardest than on the easiest?"""
    lines, found, tuned, g = [], {}, [], 0
    for arm in arms:
        cells = every_lr(atlas, arm, (small, large))
        if len(set(map(n_of, cells))) < 2 or not depth(cells)[1]:
            continue
        start, g = table_of(cells, window=START), max(g, gained(cells))
        base, name = np.mean(list(start.values())), level(config_of(cells)["train_set"])
        gaps = [own_lr_gap(cells, [large], small, metric)[1] for metric in METRICS]
        found[name], seeds = (base, gaps), len(next(iter(start.values())))
        tuned.append(min(Counter(map(n_of, cells)).values()) > 2)
        lines.append([name, f"{base:.2f}", seeds, *map(points, gaps)])
    if len(found) < 3:
        raise Missing("three levels of difficulty at depth")
    # of other problems, so independent
    (_, (easiest, *_)), (_, (hardest, *_)) = (pick(found.values(), key=lambda level: level[0])
                                              for pick in (max, min))
    gap = dict(gain=hardest["gain"] - easiest["gain"], sees=max(hardest["sees"], easiest["sees"]),
               half=math.hypot(hardest["half"], easiest["half"]))

    def draw(ax):
        for i, metric in enumerate(METRICS):
            x = [base + 0.006 * i for base, _ in found.values()]
            each = [gaps[i] for _, gaps in found.values()]
            ax.errorbar(x, [100 * c["gain"] for c in each], [100 * c["half"] for c in each],
                        fmt="o", ms=6, lw=1.2, capsize=3, label=metric)
        for name, (base, _) in found.items():  # the hardest two lie close together
            ax.annotate(name, (base, 1.01), xycoords=("data", "axes fraction"), rotation=40,
                        fontsize=9, ha="left", va="bottom")
        ax.axhline(0, color="0.3", lw=0.8)
        ax.set(xlabel="pass rate of the base model on the validation problems",
               ylabel=f"points, n = {large} less n = {small}\nover the last quarter, 90% intervals")
    heads = ["problems", "base model", "seeds", *METRICS]
    return judged(+1, [gap], g, tuned=all(tuned), table=grid_text(heads, lines),
                  figure=figure(atlas, "by_difficulty", [draw]), says=(
        f"n = {large} less n = {small} over the last quarter, each at its best lr_base, hardest "
        f"less easiest: {points(gap)}"))
