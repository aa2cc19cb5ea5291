"""results/figures.py: the figures of the paper and of our own questions, each a function of arms.

Each takes an Atlas, finds the arms of its study by presets.json of the data folder, contrasts their
runs, judges the claim, and draws: n, B_p, lr, models and levels are those of the logs. It returns
dict(verdict, number, says[, times, table, figure, tuned, compared]): number, the one number with
its interval; times, how many times as many seeds would decide; tuned, False if n are compared at an
lr that was not tuned for each; compared, the runs that have to be deep. Raises Missing if runs are
missing. The table of claims and functions is in atlas.py.
"""
import contextlib
import math
from collections import Counter
from pathlib import Path

import numpy as np
from scipy import stats

import config
from core.log import read_log
import frontier
from arms import (EARLY, LATE, LRS, MIDDLE, START, analysed, budget_of, config_of, curves, cut,
                  deep_ones, drawn, each_of, figure, flat, gained, grid_text, law_verdict, level,
                  look, means, number_of_rise, one_cell, points, read, records, rises_in,
                  says_near, says_rise, says_shift, shift_of, table_of, titled, training, use,
                  view_figure)
from core.plots import budget_axis, colours, draw_records, end_labels, format_si, log_ticks
from core.stats import (ALIKE, SMALL, Missing, best_less, both, change, contrast, denied, judge,
                        of_several, shift)
from fit_sigmoid import draw_law, law_at, law_of_panel

SHARES = dict(easy=(0.3, 0.6), hard=(0, 0.0625))  # the paper's levels, by avg@16 of the base model
MIXES = "mix_hard", "mix_dual", "mix_tri"  # sample.py's, and its levels that they are validated on
LEVELS = "extreme_val", "level_easy_val", "level_very_easy_val"
METRICS = "avg@4", "best@4", "worst@4"
EXPLODES = 1.25  # times as long: a response length that explodes


def judged(claim, contrasts, g, **more):
    """Return a row whose claim (of `judge`, which g is for) all of some contrasts have to bear out.
    """
    contrasts = list(contrasts)
    return dict(verdict=both([judge(c, claim, g) for c in contrasts]),
                times=times_of(contrasts, claim, g)) | more


def times_of(contrasts, claim, g):
    """Return how many times as many seeds `judge` would need to decide all of some contrasts."""
    times = [1]
    for c in contrasts:
        if judge(c, claim, g) == "underpowered":
            gain = c["gain"] * (claim or 1)
            needed = max(gain, SMALL * g - gain) if claim else abs(ALIKE * g - abs(gain))
            times.append((c["half"] / max(needed, 1e-9)) ** 2)
    return max(times)


def least_sure(found, claim, g):
    """Return the contrast of {words: contrast} that is the least sure, as text."""
    words = max(found, key=lambda words: times_of([found[words]], claim, g))
    return f"{words}: {points(found[words])}"


def of_shift(c, g, names=("early", "at the end"), what="n", **more):
    """Return a row of a `shift` of the best `what`; g is for `judge`. Its number is what the second
    best gains, or the contrast that keeps the row undecided."""
    times = {key: (c[key]["half"] / max(c[key]["gain"], SMALL * g)) ** 2
             for key in ("loses", "gains")}
    key = "gains" if c["verdict"] == "confirmed" else max(times, key=times.get)
    when, sign = (names[1], 1) if key == "gains" else (names[0], -1)
    number = f"{when}, the {what} best {names[1]} less that best {names[0]}: {points(c[key], sign)}"
    wants = f"would need an {what} below {c['flat']}"
    return dict(verdict=c["verdict"], times=times[key], number=number,
                wants=wants if c["censored"] and c["worst"] < SMALL * g else "") | more


def of_rise(v, ns, g, **more):
    """Return a row of a `verdict_of` over the n of `ns`."""
    times = (v["half"] / max(v["gap"], SMALL * g)) ** 2
    wants = f"would need an n below {v['n_flat']}" if v["verdict"] == "flat" else ""
    return dict(verdict=law_verdict(v, ns), times=times, wants=wants, number=number_of_rise(v)
                ) | more


# ---- section 3: the recipe

def solved_at_first(cfg):
    """(s + 1,): how many problems had c = 0..s of the base model's first s rollouts right, by
    sample.py's pass rates beside the training problems of a run."""
    correct = {}  # {problem: right of its first s}
    for rates in sorted(Path(cfg["train_set"]).parent.glob("pass_rates*.jsonl")):
        correct |= {r["id"]: r["correct"] for r in read_log(rates)
                    if r.get("samples") == cfg["s"]}
    return np.bincount(np.array(list(correct.values()), int), minlength=cfg["s"] + 1)


def difficulty(atlas):
    """Figure 2: how hard the problems are for the base model."""
    path, bars = atlas.folder / "difficulty.json", np.zeros(1, int)
    if path.exists():
        bars = np.array(config.read_json(path)["counts"])
    elif logs := sorted(atlas.folder.glob("[!.]*/*/log.jsonl*")):
        bars = solved_at_first(read_log(logs[0])[0]["config"])
    if not bars.any():
        raise Missing("sample.py's pass rates")
    s = len(bars) - 1
    rate = np.arange(s + 1) / s
    share = {task: 100 * bars[(rate >= lo) & (rate <= hi)].sum() / bars.sum()
             for task, (lo, hi) in SHARES.items()}

    def draw(ax):
        ax.bar(rate, bars, width=0.8 / s, color="0.5")
        for (task, (lo, hi)), shade in zip(SHARES.items(), ("C0", "C3")):
            inside = rate[(rate >= lo) & (rate <= hi)]  # whole bars
            ax.axvspan(inside[0] - 0.5 / s, inside[-1] + 0.5 / s, alpha=0.2, color=shade,
                       label=task.title())
        ax.set(xlabel=f"avg@{s} of the base model", ylabel="problems")
    says = (f"{bars.sum():,} problems, mean {rate @ bars / bars.sum():.2f}; "
            f"Easy {share['easy']:.0f}%, Hard {share['hard']:.0f}%")
    return dict(verdict="", says=says, number=f"Easy {share['easy']:.0f}%, Hard "
                f"{share['hard']:.0f}% of {bars.sum():,} problems", figure=figure(
                    atlas, "difficulty", [draw], "How hard the problems are for the base model"))


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
    panels = [curves(cells, label="{}"), training(cells, "entropy", name="token entropy, nats"),
              training(cells, "kl", name="KL to the base model")]
    of = own[pairs[0][0]]
    what = "Rules for the lr" if start == "scale_" else "KL and entropy terms"
    said = [f"{words} {points(c)}" for words, c in found.items()]
    g = gained(cells)
    return judged(claim, found.values(), g, says="; ".join([means(table), *said]),
                  number=least_sure(found, claim, g), figure=figure(atlas, start.strip("_"), panels,
                                                f"{what}, {titled(of)}, n = {of['n']}"),
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
    panel = curves(cells, label="lr_base = {:g}")
    return judged(+1, [low, high], gained(cells), says=says,
                  number=f"the best lr_base less the largest: {points(high)}",
                  figure=figure(atlas, "lr_grid", [panel],
                                f"Learning rates, {titled(some)}, n = {some['n']}"))


def at_end(run, field):
    """Return the mean of a field of a run's step records over the last quarter, (1,)."""
    values = [r[field] for r in records(run, "step")
              if r["rollouts"] > LATE[0] * run["budget"] and r.get(field) is not None]
    if not values:
        raise Missing(f"{field} in the step records")
    return np.array([np.mean(values)])


def explodes(atlas, one, other):
    """Section 3: is the response of one arm longer at the end than that of another, by EXPLODES or
    more?"""
    cells = cut({name: one_cell(atlas, name) for name in (one, other)})
    lengths = table_of(cells, at_end, field="response_len")
    c = contrast({name: np.log2(t) for name, t in lengths.items()}, {one: 1, other: -1})
    of = config_of(cells)
    panels = [training(cells, field, name=name) for field, name in (
        ("response_len", "response length, tokens"), ("entropy", "token entropy, nats"))]
    ratio, less, more = (2 ** x for x in (c["gain"], c["gain"] - c["half"], c["gain"] + c["half"]))
    said = ", ".join(f"{name} {t.mean():.0f} tokens" for name, t in lengths.items())
    beyond_it = c | dict(gain=c["gain"] - math.log2(EXPLODES))
    return judged(+1, [beyond_it], 1, says=f"{said} over the last quarter",
                  number=f"{ratio:.2f} times as long ({less:.2f} to {more:.2f})",
                  figure=figure(atlas, "length_" + one, panels,
                                f"Response length with KL and entropy terms, {titled(of)}"))


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

    In our own study, if there are two seeds from 3 on, the verdict is theirs: seeds 0 to 2, on
    which the claim was made, cannot confirm it.
    """
    lr, whole, cells, left = at_one_lr(atlas, task)
    use(whole)
    (v,) = rises_in({task: cells}).values()
    name, law = law_figure(atlas, f"law_{task}", whole)
    words = f"{says_rise(v)}; {says_plateau(law)}{left}"
    if len({lr for _, lr in every_lr(atlas, task)}) > 1:
        words = f"At lr_base = {lr:g}: {words}"
    fresh = {n: {seed: run for seed, run in runs.items() if seed > 2} for n, runs in cells.items()}
    some_are_old = any(set(fresh[n]) < set(cells[n]) for n in cells)
    if atlas.own and some_are_old and all(len(runs) > 1 for runs in fresh.values()):
        (v,) = rises_in({task: fresh}).values()
        words = f"On fresh seeds, which decide: {says_rise(v)}. On all seeds: {words}"
    row = of_rise(v, cells, gained(cells), says=words, compared=cells, figure=name)
    if law["fitted"] == "law":
        row["number"] += f"; plateau {law['fit']['plateau']:.0f}"
    return row


def says_plateau(law):
    """Return the plateaus of the two readings of n*(C) as text."""
    out = []
    for name, one in (("best fitted curve", law), ("pooled records", law["by_records"])):
        fit = one["fit"]
        said = f"k {fit['k']:.1f}, plateau {fit['plateau']:.0f}" if fit else "too few points"
        out.append(f"{name} (section 4.1): {said}" if one is law else f"{name}: {said}")
    return f"the law through the {out[0]}; through {out[1]}"


def law_panel(panel, law, unit):
    """Return a panel as Figure 7 is: the points of n*(C) coloured by reward, and the red fit, also
    if the points do not determine it. Our own reading of n*(C) is left out."""
    bare = {key: value for key, value in panel.items() if key != "near"}

    def draw(ax):
        star = panel["n_star"] or dict(n=[0])
        rises = star["n"][-1] > star["n"][0]
        draw_law(ax, bare, law | dict(fitted="law") if rises else law, [], unit)
        if law["fitted"] != "law":
            ax.set_title("the points do not determine the fit" if rises else "n* does not rise")
    return draw


def law_figure(atlas, name, cells):
    """Draw Figures 6 and 7 of the cells of one B_p and one lr_base as NAME.png: (its name, the law
    of fit_sigmoid.py)."""
    sweep = analysed(flat(cells))
    (panel,) = frontier.paper(sweep, sweep["cfg"])["panels"].values()
    law = law_of_panel(panel)

    def draw_frontier(ax):
        frontier.draw_curves(ax, panel["paper"], colours(panel["ns"]), sweep["label"])
        lo, hi = panel["range"]
        budget_axis(ax, lo, hi, "rollouts")
        ax.tick_params(labelbottom=True)
        for band in ax.collections:  # a fitted curve has no interval
            band.set_label("")
        ax.set(xlim=(lo / 1.1, hi * (hi / lo) ** 0.22), ylabel=sweep["label"])
    return figure(atlas, name, [draw_frontier, law_panel(panel, law, "rollouts")],
                  f"Best n against compute, {titled(config_of(cells))}", note="dots: record-"
                  "breaking points; thin lines: a sigmoid for each n; thick: their frontier"), law


def beyond(atlas, task):
    """Section 4.1: does the largest n of an arm extend the frontier? It may make few updates."""
    lr, whole, _, _ = at_one_lr(atlas, task)
    if len(whole) < 3:
        raise Missing(f"three n of {task}")
    table = table_of(whole)
    *others, largest = sorted(whole)
    best, c = best_less(table, others, [largest])
    small = SMALL * gained(whole)
    below = c["gain"] - c["half"] > -small
    row = judged(-1, [c | dict(gain=-c["gain"])], gained(whole))
    return row | dict(
        verdict="confirmed" if below else "contradicted" if c["gain"] + c["half"] < 0
        else "underpowered", compared={}, figure=f"law_{task}.png",
        number=f"n = {largest} less the best smaller n: {points(c, -1)}",
        says=f"over the last quarter, at lr_base = {lr:g}; the best smaller n is {each_of(best)}; "
        f"n = {largest} makes {max(int(r['step'][-1]) for r in whole[largest].values())} updates")


def plateau(atlas, first, second):
    """Section 4.1: is the best n at the end smaller on the second arm than on the first? In
    octaves, one value per seed."""
    ends, plateaus = [], []
    for arm in (first, second):
        _, _, cells, _ = at_one_lr(atlas, arm)
        if len(cells) < 2:
            raise Missing(f"two n of {arm}")
        table = table_of(cells)
        S = len(next(iter(table.values())))
        ends.append([math.log2(max(table, key=lambda n: table[n][s].mean())) for s in range(S)])
        sweep = analysed(flat(cells))
        (panel,) = frontier.fixed_Bp(sweep, sweep["cfg"])["panels"].values()
        fit = law_of_panel(panel)["fit"]
        plateaus.append(f"{fit['plateau']:.0f}" if fit else "none")
    S = min(map(len, ends))
    c = change(*(np.array(e[:S])[:, None] for e in reversed(ends)))
    low, high = (2 ** np.mean(e) for e in reversed(ends))
    return judged(-1, [c], 10, tuned=False, figure=[f"law_{first}.png", f"law_{second}.png"],
                  number=f"{c['gain']:+.1f} ± {c['half']:.1f} octaves, {second.title()} less "
                  f"{first.title()}",
                  says=f"best n over the last quarter, mean over seeds: {high:.3g} on "
                  f"{first.title()}, {low:.3g} on {second.title()}; plateaus of the law by the "
                  f"best fitted curve: {' and '.join(plateaus)}")


def other_lrs(atlas, task):
    """The n of an arm that have two lr_base or more: {(n, lr_base): {seed: run}}, and words on the
    n that are not deep enough. An lr_base that one n alone has compares none."""
    every = every_lr(atlas, task)
    for i in (1, 0):
        times = Counter(key[i] for key in every)
        every = {key: runs for key, runs in every.items() if times[key[i]] > 1}
    cells, left = deep_ones(every, "(n, lr_base) = {}") if every else ({}, "")
    if not cells or min(len({key[i] for key in cells}) for i in (0, 1)) < 3:
        raise Missing(f"three n of {task} at three lrs")
    return cells, left


def lr_control(atlas, task):
    """Does n*(C) of an arm rise where every n has the best of several lrs? Also the largest n less
    the smallest, at the end, each at its best."""
    cells, left = other_lrs(atlas, task)
    c, ns = shift_of(cells, n_of), sorted(set(map(n_of, cells)))
    sweep = analysed([run for name in with_other_lrs(atlas, task) for run in atlas.runs(name)])
    name, front = view_figure(atlas, "lr", f"lr_control_{task}", sweep,
                              f"Best n by one lr rule and at each n's best lr, {task.title()}")
    says = (f"{says_shift(c)}; at the end, {own_lr_gap(cells, ns[-1:], ns[0])[0]}; best lr_base of "
            f"{', '.join(f'{lr:g}' for lr in sorted({lr for _, lr in cells}))}: "
            + ", ".join(f"n = {row['n']}: {row['best']:g}" for row in front["rows"]) + left)
    if front["slope"] is not None:
        says += f"; the best lr goes with B to the power {front['slope']:.2f} (the rule: 0.5)"
    return of_shift(c, gained(cells), says=says, figure=name)


def own_lr_gap(cells, large, small, metric="avg@4"):
    """The best of the n in `large` less n = `small` at the end, each at its best lr_base of {(n,
    lr_base): runs}, chosen on other seeds: (words, the contrast, whether the lr was tuned, fewer
    words).

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
    short = f"n = {top} less n = {small}: {points(c)}"
    return f"{words}: {points(c)}", c, tried > 2 and not edge, short


def far(atlas, arm, large, above=False):
    """`rise` in an arm where some n have several lr_base: at the end n = `large` less the smallest
    too, each at its best lr_base, and their curves. above: the claim is that it ends above that."""
    found, every = rise(atlas, arm), every_lr(atlas, arm)
    ns = sorted(set(map(n_of, every)))
    words, c, _, short = own_lr_gap(every, [large], ns[0])
    found["says"] = f"{found['number']}; {found['says']}; at the end, {words}"
    for n in ns[ns.index(large) + 1:]:
        found["says"] += f"; {own_lr_gap(every, [n], large)[0]}"
    cells = {f"n = {n}, lr_base {lr:g}": runs for (n, lr), runs in every.items()}
    panels = [curves(cells, "", metric, label="{}") for metric in METRICS[:2]]
    found["figure"] = [found["figure"], figure(atlas, arm, panels, f"Reward against compute, "
                                               f"{titled(config_of(cells))}")]
    if above:
        found |= judged(+1, [c], gained(every))
    return found | dict(number=f"{short} at the end, each at its best lr_base")


def record_breaking(atlas):
    """Figures 5 and 15: which points of the runs break a record, the monotone fit through them, and
    the n of the records of all runs over C."""
    _, whole, cells, _ = at_one_lr(atlas, "easy")
    use(cells)
    sweep = analysed(flat(whole))
    (panel,) = frontier.paper(sweep, sweep["cfg"])["panels"].values()
    above, law = panel["paper"]["above"], law_of_panel(panel)["by_records"]
    if above is None:
        raise Missing("record-breaking points")
    width, ns = sweep["cfg"]["bin"], sorted(whole)

    def draw_points(n):
        def draw(ax):
            for run in whole[n].values():
                seen = run["C"] > 0
                kept = frontier.record_breaking(run["reward"], width) & seen
                ax.plot(run["C"][seen], run["reward"][seen], ".", color="0.7", ms=4,
                        label="evaluation")
                ax.plot(run["C"][kept], run["reward"][kept], "o", color="C1", ms=5,
                        label="record-breaking point")
            fit = next(c for c in panel["paper"]["curves"] if c["n"] == n)
            ax.plot(fit["C"], fit["reward"], "k--", lw=1.4, label="monotone fit to the records")
            lo, hi = ax.get_ylim()
            for edge in np.arange(math.ceil(lo / width), hi / width)[::4] * width:
                ax.axhline(edge, color="0.9", lw=0.6, zorder=0)
            ax.set(title=f"n = {n}; lines: every fourth reward bin", ylabel=sweep["label"])
            budget_axis(ax, run["C"][seen][0], run["C"][-1], "rollouts")
        return draw

    def draw_pooled(ax):
        draw_records(ax, panel["records"])
        if law["fit"]:
            x = np.geomspace(*panel["range"], 200)
            ax.plot(x, 2 ** law_at(law["fit"], x), "--", color="C3", label="the law through them")
        ax.set(yscale="log", ylabel="n", title="records of all runs")
        log_ticks(ax.yaxis, ns)
        budget_axis(ax, *panel["range"], "rollouts")
    said = f"{100 * above:+.1f} points"
    return dict(verdict="", number=f"{said} above the frontier of what the models at C get",
                figure=figure(atlas, "records", [draw_points(ns[0]), draw_points(ns[len(ns) // 2]),
                                                 draw_pooled],
                              f"Record-breaking points, {titled(config_of(cells))}"),
                says="curves through record-breaking points lie "
                f"{said} from the frontier of what the models at C get, on average over log C")


def tokens(atlas):
    """Figure 24: n*(C) and the paper's law with C in rollouts and in tokens."""
    _, whole, cells, _ = at_one_lr(atlas, "easy")
    use(cells)
    panels, sets, fits = [], [], []
    for unit in ("rollouts", "tokens"):
        panel, law = law_in(flat(whole), unit)
        panels.append(law_panel(panel, law, unit))
        sets.append([law["sets"][0], law["sets"][-1]] if law["sets"] else None)
        fits.append(f"{law['fit']['k']:.1f} in {unit}" if law["fit"] else f"no fit in {unit}")
    length = [read(run["path"], "val", "tokens")["per_rollout"] for run in flat(cells)]
    differ = max(length) > 1.1 * min(length)
    name = figure(atlas, "units", panels, "Best n against compute in rollouts and in tokens, "
                  f"{titled(config_of(cells))}")
    if sets[0] is None:
        raise Missing("budgets that all n share")
    said = [" to ".join(", ".join(map(str, ns)) for ns in ends) if ends else
            "no budgets that all n share" for ends in sets]
    same = bool(sets[1]) and all(set(a) & set(b) for a, b in zip(*sets))
    return dict(verdict=("confirmed" if same else "contradicted") if differ else "", figure=name,
                number=f"best n {said[0]} in rollouts, {said[1]} in tokens",
                says=f"the law's k a decade: {', '.join(fits)}; a rollout has {min(length):.0f} to "
                f"{max(length):.0f} tokens on average"
                + ", so that the units could hardly differ" * (not differ))


def law_in(runs, unit="rollouts"):
    """Return (panel, law) of runs of one B_p with budgets in a unit."""
    sweep = analysed(runs, unit)
    (panel,) = frontier.fixed_Bp(sweep, sweep["cfg"])["panels"].values()
    return panel, law_of_panel(panel)


def tokens_k(atlas):
    """Figure 24: is the law's k smaller in tokens? One fit per seed and unit."""
    _, whole, cells, _ = at_one_lr(atlas, "easy")
    seeds = sorted(set.intersection(*(set(runs) for runs in whole.values())))
    if len(seeds) < 2:
        raise Missing("a second seed of all n")
    length = [read(run["path"], "val", "tokens")["per_rollout"] for run in flat(cells)]
    if max(length) < 1.1 * min(length):
        said = f"rollouts have about {np.mean(length):.0f} tokens at every n"
        return dict(verdict="", number=said, says=said, figure="units.png")
    use({n: {seed: whole[n][seed] for seed in seeds} for n in whole})
    k = []
    for unit in ("rollouts", "tokens"):
        stars = [law_in([whole[n][seed] for n in whole], unit)[1]["fit"] for seed in seeds]
        if None in stars:
            raise Missing("points for a fit per seed")
        k.append(np.log2([[fit["k"]] for fit in stars]))
    c = change(k[1], k[0])
    ratio, less, more = (2 ** x for x in (c["gain"], c["gain"] - c["half"], c["gain"] + c["half"]))
    return judged(-1, [c], 1, figure="units.png", compared={},
                  number=f"k in tokens is {ratio:.2f} times ({less:.2f} to {more:.2f}) that in "
                  "rollouts",
                  says="k of each seed in rollouts and tokens: " + ", ".join(
                      f"{2 ** a:.1f} and {2 ** b:.1f}" for a, b in zip(*(x[:, 0] for x in k))))


def grid_of(atlas, study, task):
    """Return {(B_p, n): {seed: run}} of a study's arms of one recipe, at the lr_base that most
    cells have, in order of n."""
    names, asks, by_lr = atlas.there(study, recipe=task), atlas.asks(study), {}
    for name in names:
        bps, ns = (set(map(int, asks[name][key].split())) for key in ("bps", "ns"))
        for lr, cells in atlas.lrs(name).items():
            by_lr.setdefault(lr, {}).update({(b, n): runs for (b, n), runs in cells.items()
                                             if b in bps and n in ns})
    least = atlas.least(*names)
    cells = max(by_lr.values(), key=len, default={})
    cells = {key: cells[key] for key in sorted(cells, key=lambda cell: (cell[1], cell[0]))
             if len(cells[key]) >= least}
    if len({b for b, _ in cells}) < 2:
        raise Missing(f"{task} at a second B_p")
    return cells


def grid_parts(atlas, study, task):
    """Return (all cells of `grid_of`, those that are judged up to their shared budget, a sentence
    about the others)."""
    cells = grid_of(atlas, study, task)
    deep, left = deep_ones(cells, "{}")
    return cells, cut(deep), left.replace("updates: ", "updates, (B_p, n) = ")


def metrics(atlas, task, first, second):
    """Figure 8: the best n at the largest C for each B_p, by two metrics; does the second metric
    want a larger n than the first?"""
    _, cells, left = grid_parts(atlas, "joint", task)
    tables, best, tied, shifts = {}, {}, {}, {}
    for metric in (first, second):
        tables[metric] = table_of(cells, metric=metric)
    sizes = sorted({b for b, _ in cells})
    for B_p in sizes:
        mine = {m: {n: t for (b, n), t in table.items() if b == B_p}
                for m, table in tables.items()}
        if len(mine[first]) < 2:
            continue
        for metric, table in mine.items():
            top = best[metric, B_p] = max(table, key=lambda n: table[n].mean())
            gaps = {n: contrast(table, {top: 1, n: -1}) for n in table if n != top}
            tied[metric, B_p] = [n for n, c in gaps.items() if c["gain"] <= c["half"]]
        if len(mine[first]) > 2:
            shifts[B_p] = shift(*({n: [t] for n, t in table.items()} for table in mine.values()),
                                gained(cells))
    if not shifts:
        raise Missing("three n at one B_p")
    sizes = [B_p for B_p in sizes if (first, B_p) in best]

    def draw(ax):
        for i, (metric, shade) in enumerate(zip(("best@4", "worst@4"), ("C0", "C1"))):
            x = np.arange(len(sizes)) + 0.38 * (i - 0.5)
            tops = [best[metric, B_p] for B_p in sizes]
            ax.bar(x, tops, width=0.36, color=shade, label=metric)
            for at, B_p, top in zip(x, sizes, tops):
                ax.annotate(str(top), (at, top), ha="center", va="bottom", fontsize=9)
                ax.plot([at] * len(tied[metric, B_p]), tied[metric, B_p], "D", color="black", ms=5,
                        mfc="white", label="tied with the best")
        ax.set(yscale="log", xlabel="$B_p$", ylabel="best n at the largest C")
        ns = sorted({n for _, n in cells})
        log_ticks(ax.yaxis, ns)
        ax.set_ylim(ns[0] / 2, ns[-1] * 2)
        ax.set_xticks(range(len(sizes)), sizes)

    def cell_text(metric, B_p):
        others = ", ".join(map(str, sorted(tied[metric, B_p])))
        return f"{best[metric, B_p]}" + f" ({others})" * bool(others)
    rows = [[m, *(cell_text(m, B_p) for B_p in sizes)] for m in ("best@4", "worst@4")]
    row = of_shift(mean_shift(shifts.values()), gained(cells), (f"by {first}", f"by {second}"))
    return row | dict(
        verdict=of_several(shifts.values()), says="; ".join(
            f"B_p = {B_p}: {says_shift(c, (f'by {first}', f'by {second}'))}"
            for B_p, c in shifts.items()) + left,
        table=grid_text(["best n (tied)", *(f"B_p = {B_p}" for B_p in sizes)], rows),
        figure=figure(atlas, f"best_worst_{task}", [draw],
                      f"Best n at the largest budget by metric, {task.title()}"))


def sensitivity(atlas, task):
    """Figure 10: points for each doubling of n and of B_p, a plane in both fitted to all cells."""
    whole, cells, left = grid_parts(atlas, "joint", task)
    table, g = table_of(cells), gained(cells)
    X = np.array([[1, math.log2(b), math.log2(n)] for b, n in table])
    _, to_B_p, to_n = np.linalg.pinv(X)  # least squares: each slope as weights of the cells

    def weighted(weights):
        return contrast(table, dict(zip(table, weights)))
    of_n, of_B_p = weighted(to_n), weighted(to_B_p)
    # the size of a slope is the slope times its sign
    gap = weighted(np.sign(of_n["gain"]) * to_n - np.sign(of_B_p["gain"]) * to_B_p)
    row = judged(+1, [gap, of_n], g)
    if task == "easy":  # n has the larger effect, and it helps
        verdict = row["verdict"]
    elif abs(gap["gain"]) + gap["half"] < SMALL * g:  # the effects are alike, and n helps
        verdict = judge(of_n, +1, g)
    else:
        verdict = "contradicted" if abs(gap["gain"]) > gap["half"] else "underpowered"
    sizes = ", ".join(map(str, sorted({b for b, _ in cells})))
    says = (f"points for each doubling: of n {points(of_n)}, of B_p {points(of_B_p)}; size of the "
            f"first less that of the second {points(gap)} ({len(cells)} cells, B_p = {sizes})"
            + left)
    sweep = analysed(flat(whole))
    lines = frontier.sensitivity(sweep, sweep["cfg"])["lines"]

    def draw_over(over, fixed):
        def draw(ax):
            some = [line for line in lines if line["over"] == over]
            shade = colours([line[fixed] for line in some])
            for line in some:
                ax.errorbar(line["x"], line["reward"], line["half"], color=shade[line[fixed]],
                            marker="o", ms=4, capsize=2, lw=1.4,
                            label=f"{fixed} = {line[fixed]}".replace("B_p", "$B_p$"))
            ax.set_xscale("log", base=2)
            log_ticks(ax.xaxis, sorted({x for line in some for x in line["x"]}))
            spread = max((100 * line["spread"] for line in some), default=0)
            ax.set(xlabel=over.replace("B_p", "$B_p$"), ylabel=f"{sweep['label']}, largest budget",
                   title=f"spread over {over.replace('B_p', '$B_p$')}: up to {spread:.1f} points")
        return draw
    use(whole)
    return row | dict(verdict=verdict, says=says,
                      number=f"a doubling of n {points(of_n)}, of B_p {points(of_B_p)}",
                      compared=cells, figure=figure(
                          atlas, f"sensitivity_{task}", [draw_over("B_p", "n"),
                                                         draw_over("n", "B_p")],
                          f"How much the reward varies with $B_p$ and with n, {task.title()}"))


def at_every(atlas, view, task):
    """Figures 9 and 16 to 19: does n*(C) rise at every B_p, or n* at every batch B = B_p n?"""
    study, name = dict(fixed_Bp=("joint", "B_p"), fixed_B=("fixed_B", "B"))[view]
    whole, cells, left = grid_parts(atlas, study, task)
    asked, few = groups_of(cells, (lambda b, n: b) if name == "B_p" else (lambda b, n: b * n))
    if not asked:
        raise Missing(f"three n at one {name}")
    g, found = gained(cells), {key: shift_of(group) for key, group in asked.items()}
    says = [f"{name} = {key}: {says_shift(c)}" for key, c in found.items()]
    says += [f"fewer than three n, so no verdict: {name} = {', '.join(map(str, few))}"] * bool(few)
    use(whole)
    if view == "fixed_B":
        files = fixed_B_figures(atlas, task, whole)
    else:
        files = drawn(atlas, view, f"{view}_{task}", whole,
                      f"Best n against compute at each $B_p$, {task.title()}")
    row = of_shift(mean_shift(found.values()), g)
    return row | dict(verdict=of_several(found.values()), says="; ".join(says) + left,
                      number=f"{row['number']}, mean over {name} = "
                      + ", ".join(map(str, found)), compared=cells, figure=files)


def mean_shift(shifts):
    """Return the mean of several `shift` with intervals as wide as those of one."""
    shifts = list(shifts)
    return shifts[0] | {key: {name: np.mean([c[key][name] for c in shifts])
                              for name in ("gain", "half")} for key in ("loses", "gains")}


def groups_of(cells, group):
    """Return ({group: {n: {seed: run}}} of {(B_p, n): {seed: run}}, the groups with fewer than
    three n). group: of (B_p, n)."""
    groups = {}
    for (b, n), runs in cells.items():
        groups.setdefault(group(b, n), {})[n] = runs
    return ({key: groups[key] for key in sorted(groups) if len(groups[key]) > 2},
            [key for key in sorted(groups) if len(groups[key]) < 3])


def most(verdicts):
    """Return the verdict of more than half if none is its opposite, else "underpowered"."""
    for verdict in ("confirmed", "contradicted"):
        if 2 * verdicts.count(verdict) > len(verdicts) and denied(verdict) not in verdicts:
            return verdict
    return "underpowered"


def fixed_B_figures(atlas, task, cells):
    """Draw Figures 18 and 19, the curves of each n at a full batch B, and Figure 9, n*(M) and
    B_p*(M) at one B: their names."""
    sweep = analysed(flat(cells))
    panels = frontier.fixed_B(sweep, sweep["cfg"])["panels"]
    shade = colours({c["n"] for panel in panels.values() for c in panel["of_batch"]})
    drawings = [frontier_panel(panel["of_batch"], shade, f"B = {panel['B']:,}", panel["B"],
                               sweep["label"]) for panel in panels.values()]
    curves_name = figure(atlas, f"fixed_B_{task}", drawings,
                         f"Reward against compute at a fixed batch B, {task.title()}",
                         note="thick: the frontier, coloured by its n")
    panel = list(panels.values())[len(panels) // 2]
    law = law_of_panel(panel)
    law_name = figure(atlas, f"law_B_{task}", [law_panel(panel, law, "updates")],
                      f"Best n and $B_p$ against updates at B = {panel['B']:,}, {task.title()}")
    return [curves_name, law_name]


def frontier_panel(of_cells, shade, title, B, label):
    """Return a panel: curves dict(n, C in updates, reward) of one batch B over rollouts, with their
    frontier coloured by n."""
    def draw(ax):
        C = np.unique(np.concatenate([c["C"] for c in of_cells]))
        each = np.array([np.interp(np.log(C), np.log(c["C"]), c["reward"], np.nan, np.nan)
                         for c in of_cells])
        top, ends = np.where(np.isnan(each), -np.inf, each).argmax(0), []
        for c in of_cells:
            ax.plot(np.array(c["C"]) * B, c["reward"], color=shade[c["n"]], lw=1.2)
            ends.append((c["C"][-1] * B, c["reward"][-1], f"n = {c['n']}", shade[c["n"]]))
        for i in range(len(C) - 1):
            ax.plot(C[i:i + 2] * B, each[top[i], i:i + 2], color=shade[of_cells[top[i]]["n"]], lw=5,
                    solid_capstyle="butt")
        lo, hi = C[0] * B, C[-1] * B
        end_labels(ax, ends, np.ptp(each[~np.isnan(each)]) * 1.17)
        ax.set(title=title, ylabel=label)
        budget_axis(ax, lo, hi, "rollouts")
        ax.set_xlim(lo / 1.1, hi * (hi / lo) ** 0.3)
    return draw


def not_monotonic(atlas, task):
    """Section 4.2: at a fixed B, does n*(M) rise and fall, where B_p rises at intermediate M?"""
    _, cells, left = grid_parts(atlas, "fixed_B", task)
    groups, _ = groups_of(cells, lambda b, n: b * n)
    if not groups:
        raise Missing("three n at one B")
    found, rows = rises_in(groups), []
    for key, v in found.items():
        # a test of a rise, and one of a fall: both null hypotheses are one constant best n
        moves = [v["p"] <= 0.05, v["p_falls"] <= 0.05]
        one_way = sum(moves) == 1 or law_verdict(v, groups[key]) == "contradicted"
        rows.append("confirmed" if all(moves) else "contradicted" if one_way else "underpowered")
    both_ways = rows.count("confirmed")
    key, v = next(iter(found.items()))
    return dict(verdict=most(rows), number=f"n* rises and falls at {both_ways} of {len(rows)} B; "
                f"p = {v['p']:.3f} for a rise and {v['p_falls']:.3f} for a fall at B = {key}",
                times=max((v["half"] / max(v["gap"], 1e-9)) ** 2 for v in found.values()),
                says="; ".join(f"B = {key}: {says_rise(v)}" for key, v in found.items()) + left,
                compared=cells, figure=f"fixed_B_{task}.png")


def stable_B_p(atlas):
    """The smallest B_p of which at most one run in ten diverges or falls, by difficulty."""
    found = {}
    for task in ("easy", "hard"):
        cells = cut(grid_of(atlas, "joint", task))
        use(cells)
        found[task] = frontier.stability(analysed(flat(cells))["cells"])  # each to its own end
    shared = set.intersection(*map(set, found.values()))
    found = {task: {b: by_B_p[b] for b in by_B_p if b in shared} for task, by_B_p in found.items()}
    first, second = smallest = [frontier.smallest_stable(by_B_p) for by_B_p in found.values()]
    said = []
    for (task, by_B_p), stable in zip(found.items(), smallest):
        each = ", ".join(f"{bad} of {runs} with B_p = {b}" for b, (bad, runs) in by_B_p.items())
        said.append(f"{task.title()}: {each}; the smallest stable one is {stable or 'none'}")
    verdict = "underpowered"
    if first and second and first != second:
        # at the B_p that is stable for one alone: may so many runs fail there by chance?
        counts = [(bad, runs - bad) for bad, runs in (found[t][min(first, second)] for t in found)]
        p = stats.fisher_exact(counts).pvalue
        said.append(f"That the two fail alike at B_p = {min(first, second)} has p = {p:.2f}")
        if p < 0.1:
            verdict = "confirmed" if second > first else "contradicted"
    return dict(verdict=verdict, compared={}, says="Runs that diverged or fell: " + ". ".join(said),
                wants=f"would need a B_p below {min(shared)}",
                number=" and ".join(f"{stable or 'none'} on {task.title()}"
                                    for task, stable in zip(found, smallest)))


def joint(atlas, task):
    """Figures 21 and 22: does the n of the best (B_p, n) rise?"""
    whole, cells, left = grid_parts(atlas, "joint", task)
    c, g = shift_of(cells, lambda cell: cell[1]), gained(cells)
    sweep = analysed(flat(whole))
    (panel,) = frontier.joint(sweep, sweep["cfg"])["panels"].values()
    law, pairs = law_of_panel(panel), pairs_of(panel)
    use(whole)
    shade = colours(panel["ns"])

    def draw_frontier(ax):
        env = panel["envelope"]
        for c in sweep["cells"]:
            ax.plot(sweep["grid"][c.alive], c.mean[c.alive], color="0.85", lw=0.8, zorder=0)
        for i in range(len(env["C"]) - 1):
            ax.plot(env["C"][i:i + 2], env["highest"][i:i + 2], color=shade[env["n"][i]], lw=4,
                    solid_capstyle="butt")
        for i, (C, pair) in enumerate(pairs):
            y = float(np.interp(C, env["C"], env["highest"]))
            ax.plot(C, y, "o", color=shade[pair[1]], mec="black", ms=6, zorder=4)
            x, up, ha = ((5, -11, "left"), (-4, 7, "right"))[i % 2]  # neighbours on two sides
            ax.annotate(f"({pair[0]}, {pair[1]})", (C, y), (x, up), ha=ha, fontsize=9,
                        textcoords="offset points")
        for n in panel["ns"]:
            ax.plot([], [], color=shade[n], lw=4, label=f"n = {n}")
        low = min(env["highest"])
        ax.set(ylabel=sweep["label"], ylim=(low - 0.03 * (max(env["highest"]) - low), None),
               title="the frontier, labelled ($B_p$, n)")
        budget_axis(ax, *panel["range"], "rollouts")
    said = ", ".join(f"({b}, {n}) from {format_si(C)}" for C, (b, n) in pairs)
    says = (f"{says_shift(c)}; {says_plateau(law)}; best (B_p, n), the smallest B_p of those tied: "
            f"{said}{left}")
    panels = [draw_frontier, law_panel(panel, law, "rollouts")]
    return of_shift(c, g, compared=cells, says=says, figure=figure(
        atlas, f"joint_{task}", panels, f"Best ($B_p$, n) against compute, {task.title()}"))


def pairs_of(panel):
    """Return where the best (B_p, n) of a joint panel changes: [(C, (B_p, n))]. Of the cells with
    the best n that are tied with the best, the one with the smallest B_p."""
    env, out = panel["envelope"], []
    for near in panel["near"]:
        n = env["n"][int(np.abs(np.log(np.array(env["C"]) / near["C"])).argmin())]
        pair = min((b, m) for b, m in near["set"] if m == n)
        if not out or out[-1][1] != pair:
            out.append((near["C"], pair))
    return out


def batch(atlas, task):
    """Section 4.3: does the total batch B = B_p n of the best cell rise with C?"""
    _, cells, left = grid_parts(atlas, "joint", task)
    c = shift_of(cells, lambda cell: cell[0] * cell[1])
    text = says_shift(c).replace("best n", "best B").replace("n = ", "B = ")
    return of_shift(c, gained(cells), what="B", compared=cells, figure=f"joint_{task}.png",
                    says=text + left)


def any_B_p(atlas, task):
    """Section 4.3: will one B_p do at every budget?"""
    _, cells, left = grid_parts(atlas, "joint", task)
    c, g = shift_of(cells, lambda cell: cell[0]), gained(cells)
    moves = c["verdict"] == "confirmed" or c["verdict"] == "contradicted" and c["a"] != c["b"]
    verdict = ("confirmed" if c["worst"] < ALIKE * g else "contradicted" if moves
               else "underpowered")
    return of_shift(c, g, wants="") | dict(
        verdict=verdict, compared=cells, figure=f"joint_{task}.png",
        number=f"B_p = {c['flat']} throughout loses at most {100 * max(c['worst'], 0):.1f}",
        says=says_shift(c).replace("best n", "best B_p").replace("n = ", "B_p = ") + left)


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
    s, found, verdicts, times = pass_rates(flat(cells)[0], C)[1], [], [], []
    for true in (lambda p: p == 0, lambda p: p > 1 - 1.5 / s):
        start, end = (table_of(cells, lambda run: true(pass_rates(run, at)[0]) * 1.0)
                      for at in (0, C))
        found.append(contrast(end, {small: 1, large: -1}))
        moved = max(abs(end[n].mean() - start[n].mean()) for n in end)
        verdicts.append(judge(found[-1], +1, moved))
        times.append(times_of(found[-1:], +1, moved))
    none, nearly = found
    says = (f"n = {small} less n = {large} at C = {format_si(C)}, in % of the training problems: "
            f"solved in none of {s} rollouts {points(none)}, in {s - 1} or more {points(nearly)}")
    return dict(verdict=both(verdicts), times=max(times), says=says,
                number=f"solved in none of {s}, n = {small} less n = {large}: {points(none)}",
                figure=drawn(atlas, "pass1", f"pass1_{task}", cells,
                             f"Pass rates of the training problems, {task.title()}"))


def arm_alone(atlas, arm, claim, pick):
    """An arm whose row is about two n: ({n: {seed: run}} at the best lr_base, a title, the row).
    pick: of the sorted n the larger ones and the small one that are compared, each at its own lr.
    """
    lr, _, cells, _ = at_one_lr(atlas, arm)
    if len(cells) < 2:
        raise Missing(f"two n of {arm}")
    cfg, (large, small) = config_of(cells), pick(sorted(cells))
    words, c, tuned, short = own_lr_gap(every_lr(atlas, arm, (*large, small)), large, small)
    says = f"{words}; at lr_base = {lr:g} {says_near(table_of(cells))}"
    if len(cells) > 2:
        says += f"; {says_shift(shift_of(cells))}"
    title = f"{Path(cfg['model']).name}, {level(cfg['train_set'])}"
    return cells, title, judged(claim, [c], gained(cells), says=says, tuned=tuned, number=short)


def models(atlas):
    """Figure 12: the best larger n against the smallest, for other base models; the training reward
    beside the validation reward."""
    rows, arms = {}, {}
    for name in atlas.there("models"):
        cells, title, row = arm_alone(atlas, name, +1, lambda ns: (ns[1:], ns[0]))
        arms[title], rows[title] = cells, row
    if not rows:
        raise Missing("model_*")
    shade, panels = colours({n for cells in arms.values() for n in cells}), []
    for title, cells in arms.items():
        panels += [curves(cells, title, shade=shade),
                   training(cells, "reward", title, "n = {}", "training reward", shade)]
    title, first = next(iter(rows.items()))
    return dict(verdict=both([row["verdict"] for row in rows.values()]),
                times=max(row["times"] for row in rows.values()),
                tuned=all(row["tuned"] for row in rows.values()),
                number=f"{title}: {first['number']}",
                says=". ".join(f"{title}: {row['says']}" for title, row in rows.items()),
                figure=figure(atlas, "models", panels, "Other base models, validation and training "
                              "reward", across=2))


def overfits(atlas):
    """Section 5.1: does the training reward of the largest n still rise, on Easy problems of the
    other models, where the validation reward does not? From the second quarter to the last."""
    rows, g = {}, 0
    for name in atlas.there("models", recipe="easy"):
        cells = at_one_lr(atlas, name)[1]
        if len(cells) < 2:
            continue
        n = max(cells)
        some = {n: cells[n]}
        now, before = (table_of(some, window=window)[n] for window in (LATE, MIDDLE))
        trained = [np.array([trained_reward(run, window) for run in cut(some)[n].values()])
                   for window in (LATE, MIDDLE)]
        found = change(*trained), change(now, before)
        g = max(g, gained(some))
        rows[f"{Path(config_of(cells)['model']).name}, n = {n}"] = found
    if not rows:
        raise Missing("two n of other models on Easy")
    verdicts = [both([judge(up, +1, g), denied(judge(down, +1, g))]) for up, down in rows.values()]
    said = [f"{name}: training {points(up)}, validation {points(down)}"
            for name, (up, down) in rows.items()]
    return dict(verdict=both(verdicts), number=said[0], says="; ".join(said), figure="models.png",
                times=max(max(times_of([up], +1, g), times_of([down], +1, g))
                          for up, down in rows.values()))


def trained_reward(run, window):
    """Return the mean training reward over a window (lo C, hi C] of a run's budget, (1,)."""
    lo, hi = (share * run["budget"] for share in window)
    values = [r["reward"] for r in records(run, "step") if lo < r["rollouts"] <= hi]
    if not values:
        raise Missing("step records in that window")
    return np.array([np.mean(values)])


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
                            "(D, n) = {}")
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
    if verdict == "confirmed" and tops[few] >= tops[many]:  # steeper, but the best n does not move
        verdict = "underpowered"
    shade = colours({n for D in names for n in arms[D]})
    panels = [curves(arms[D], words, shade=shade) for D, words in names.items()]
    heads = ["", *(f"n = {n}" for n in ns), "points for each doubling of n"]
    return dict(verdict=verdict, times=times_of([c], +1, gained(arms[many])), tuned=False,
                table=grid_text(heads, lines), number="points for each doubling of n, "
                f"{names[many]} less {names[few]}: {points(c)}", figure=figure(
                    atlas, "size", panels, "The number of training problems D, "
                    f"{titled(config_of(arms[many]))}", across=2), says="points for each doubling "
                f"of n, {names[many]} less {names[few]}: {points(c)}; best n {tops[many]} and "
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
    lines, times, verdicts, panels, first = [], [], [], [], ""
    for mix, cells in arms.items():
        lines.append([level(mix)])
        for name, of in sets.items():
            c = contrast(tables[name], {(mix, max(cells)): 1, (mix, min(cells)): -1})
            lines[-1].append(points(c))
            panels.append(curves(cells, f"{level(mix)},\non {level(name)}", of=of))
            # the claim is of the levels that the mixture holds, but Very Easy
            if name == "extreme_val" or (name == "level_easy_val" and mix != "mix_hard"):
                g = gained(cells, of=of)
                verdicts.append(judge(c, +1, g))
                times.append(times_of([c], +1, g))
                first = first or f"trained and judged on Unsolved: {points(c)}"
    each = ", ".join(f"{line[0]}: {' / '.join(line[1:])}" for line in lines)
    ends = f"n = {max(cells)} less n = {min(cells)}"
    return dict(verdict=both(verdicts), times=max(times), tuned=False, number=f"{ends}, {first}",
                says=f"{ends} on Unsolved / Easy / Very Easy, trained on {each}",
                figure=figure(atlas, "mixtures", panels, "Mixtures of levels (rows) on each level"
                              " (columns)"))


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
        lines.append([level(mix), format_si(window[1] * budget_of(arms[mix])),
                      *map(points, found[mix])])
    mended = one_mix_less_another(arms, sets["level_easy_val"], "mix_dual", "mix_hard")
    g = gained(arms["mix_dual"], of=sets["level_easy_val"])
    said = ", ".join(f"{level(name)} {points(c)}" for name, c in zip(LEVELS[1:], found["mix_hard"]))
    return dict(verdict=both([*(judge(c, -1, g) for c in found["mix_hard"]), judge(mended, +1, g)]),
                times=max(times_of(found["mix_hard"], -1, g), times_of([mended], +1, g)),
                number=f"Unsolved alone, on Easy: {points(found['mix_hard'][0])} since the base "
                "model", figure="mixtures.png",
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
                times=times_of(asked, +1, g), number=f"with less without, on Easy: "
                f"{points(found[LEVELS[1]])}")


def extreme(atlas, metric):
    """Figure 20: the largest n less the best of the others by best@4; by worst@4 the best between
    less both ends. By the runs of far_mix_hard, where they are there."""
    cells = atlas.arm("mix_hard")
    if (atlas.folder / "far_mix_hard").is_dir():
        cells = atlas.arm("far_mix_hard", lr=config_of(cells)["lr_base"])
    if len(cells) < 3:
        raise Missing("three n of mix_hard")
    whole, (cells, left) = cells, deep_ones(cells)
    table = table_of(cells, metric=metric)
    first, *inner, last = sorted(table)
    pairs = {f"n = {last} less the best smaller n": ([last], [first, *inner])}
    if metric == "worst@4":
        pairs = {f"the best between less n = {end}": (inner, [end]) for end in (first, last)}
    found = {words: best_less(table, *pair)[1] for words, pair in pairs.items()}
    said = ", ".join(f"{words}: {points(c)}" for words, c in found.items())
    panels = [curves(whole, "", m) for m in METRICS]
    return judged(+1, found.values(), gained(cells, metric=metric),
                  figure=figure(atlas, "extreme", panels, "Trained on Unsolved, by metric"),
                  number="; ".join(f"{words}: {points(c)}" for words, c in found.items()),
                  says=f"To {format_si(budget_of(cells))}: {says_near(table)}; {said}{left}")


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
    panels = [curves(cells, "in domain"), curves(cells, f"on {of}", of=of)]
    return judged(+1, [c], gained(cells, of=of),
                  number=f"n = {large} less n = {small}: {points(c)}",
                  figure=figure(atlas, "ood", panels,
                                f"Another set of problems, {titled(config_of(cells))}"),
                  says=f"on {of}: base model {base:.3f}; at the end n = {means(table)}; "
                       f"n = {large} less n = {small}: {points(c)}")


def algo(atlas, arm, claim=+1, grows=False):
    """Figure 25: the two n that each panel is about, for PPO and CISPO: the largest less the
    smallest, or (claim 0) less the second largest. grows: and from early to the end it gains on it.
    """
    cells, _, row = arm_alone(
        atlas, arm, claim, lambda ns: (ns[-1:], ns[0] if claim else ns[-2]))
    panels = [curves(cells, f"{config_of(cells)['updates']} update(s) a batch")]
    if grows:
        small, *_, large = sorted(cells)
        at = {(n, when): t for when in (EARLY, LATE)
              for n, t in table_of(cells, window=when).items()}
        closer = contrast(at, {(large, LATE): 1, (small, LATE): -1,
                               (large, EARLY): -1, (small, EARLY): 1})
        row["says"] += f". From early to the end n = {large} gains {points(closer)} on n = {small}"
        if row["verdict"] != judge(closer, +1, gained(cells)):
            row["verdict"] = "underpowered"
            row["times"] = max(row["times"], times_of([closer], +1, gained(cells)))
    cfg = config_of(cells)
    for beside in atlas.there("algos", algo=cfg["algo"], recipe=cfg["recipe"]):
        if beside != arm:  # CISPO on-policy beside that with two updates a batch
            of = atlas.arm(beside)
            title = f"{config_of(of)['updates']} update(s) a batch"
            panels.append(curves(of, title))
            row["says"] += f"; {title}: {says_near(table_of(of))}"
    return row | dict(figure=figure(atlas, arm, panels, f"{cfg['algo'].upper()}, "
                                    f"{level(cfg['train_set'])}, B_p = {cfg['B_p']}"))


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

    def ended(run):  # after equal updates, if the large batch has made as many
        share = run["n"] / n if of == "updates" else 1
        return look(run | dict(budget=run["budget"] * share))
    table = table_of(cells, ended)
    a = contrast(table, {of_many: 1, decoupled: -1})
    b = contrast(table, {decoupled: 1, of_few: -1})
    g = gained({key: runs for key, runs in cells.items() if key != of_few})
    panels = [curves(cells, f"per {unit[:-1]}", label="{}", unit=unit)
              for unit in ("rollouts", "updates")]
    return dict(verdict=both([judge(a, +1, g), judge(b, 0, g)]),
                times=max(times_of([a], +1, g), times_of([b], 0, g)),
                number=f"(1) less (3) {points(a)}, (3) less (2) {points(b)}",
                says=f"{means(table)}; (1) less (3) {points(a)}, (3) less (2) {points(b)}",
                compared={}, figure=figure(atlas, "baseline", panels,
                                           f"A baseline from more rollouts, {titled(some)}"))


def one_problem(atlas):
    """The appendix's bandit: bandit_toy.py's figure."""
    return dict(verdict="", says="see docs/toy.md", number="see docs/toy.md",
                figure="../bandit/one.png" if atlas.own else "")


# ---- ours

def by_difficulty(atlas, small, large, *arms):
    """What a large n gains late on a small one, each at its best lr, by levels of difficulty: more
    on the hardest than on the easiest?"""
    lines, found, tuned, g = [], {}, [], 0
    for arm in arms:
        cells = every_lr(atlas, arm, (small, large))
        if len(set(map(n_of, cells))) < 2 or deep_ones(cells)[1]:
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
    gap = dict(gain=hardest["gain"] - easiest["gain"],
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
                  number=f"hardest less easiest: {points(gap)}",
                  figure=figure(atlas, "by_difficulty", [draw], "What a large n gains late"), says=(
        f"n = {large} less n = {small} over the last quarter, each at its best lr_base, hardest "
        f"less easiest: {points(gap)}"))
