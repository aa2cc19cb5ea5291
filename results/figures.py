"""results/figures.py: draw the figures of the paper and of our own questions, and judge the claims.

A function takes an Atlas and finds the arms of its study (presets.json of the data folder lists
them). It compares the runs of these arms to judge a claim, and draws the figure. n, B_p, lr, models
and levels come from the logs. If runs are missing, the function raises Missing. It returns a row of
the table in results/README.md, a dict with
  verdict   the verdict on the claim, "" if there is no claim
  number    the main number of the row as text, with its interval
  details   all other numbers as text
  table     a Markdown table
  figure    the name of the figure's file, or a list of names
  times     the factor by which the seeds must increase to decide the claim
  needs     what else would decide the claim, as text
  tuned     False if n are compared at an lr that was not tuned for each n
  compared  the runs that must make DEEP updates (arms.py). Without this key all runs must
verdict, number and details are in every row, the other keys only in some. atlas.py has the table
that gives each claim its function.
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
from arms import (EARLY, LATE, LRS, MIDDLE, ROOT, START, USED, analysed, best_text, budget_of,
                  choices_text, config_of, curves, cut, deep_cells, draw_view, figure, flat,
                  gained, law_verdict, level, markdown, means_text, note_used, one_cell, points,
                  read, rewards, rise_text, rises_in, shift_of, shift_text, step_mean, table_of,
                  titled, top_and_ties, training)
from core.plots import (budget_axis, colours, draw_records, end_labels, format_si, log_ticks,
                        plural)
from core.stats import (ALIKE, SMALL, Missing, heldout_gap, change, contrast, judge, judged,
                        mean_with_error, mean_shift, shift)
from fit_sigmoid import draw_law, law_at, law_of_panel
from tools import views

# The paper's levels Easy and Hard, as ranges of the base model's avg@16
SHARES = dict(easy=(0.3, 0.6), hard=(0, 0.0625))
MIXES = "mix_hard", "mix_dual", "mix_tri"  # the mixtures of levels that sample.py makes

# The validation sets of the mixtures
LEVELS = "extreme_val", "level_easy_val", "level_very_easy_val"
METRICS = "avg@4", "best@4", "worst@4"
EXPLODES = 1.25  # responses must become this many times as long to count as an explosion in length


def of_shift(c, g, names=("early", "at the end"), what="n", **more):
    """Return the table row for `c`, a result of core.stats.shift for the best `what`.

    names: the names of the two conditions, such as early and late. g: the gain of training. Let w1
    and w2 be the `what` that is best in the first and in the second condition. The row's number is
    the reward of w2 minus the reward of w1, both measured in the same condition. It is the second
    condition if the verdict is confirmed. Otherwise it is the condition in which the comparison of
    w1 and w2 needs more seeds.
    """
    times = {key: (c[key]["half"] / max(c[key]["gain"], SMALL * g)) ** 2
             for key in ("loses", "gains")}
    key = "gains" if c["verdict"] == "confirmed" else max(times, key=times.get)
    when, sign = (names[1], 1) if key == "gains" else (names[0], -1)
    number = f"{when}, the {what} best {names[1]} minus the {what} best {names[0]}: "
    number += points(c[key], sign)
    needs = f"would need an {what} below {c['flat']}"
    return dict(verdict=c["verdict"], times=times[key], number=number,
                needs=needs if c["censored"] and c["worst"] < SMALL * g else "") | more


def of_rise(v, ns, g, **more):
    """Return the table row for `v`, which core.stats.verdict_of returned for the n in `ns`.

    g: the gain of training. The row's number is v["gap"]: the reward of the n `by` minus the reward
    of the n `n_closest`, in one window. `n_closest` comes closest to being best at all budgets.
    `by` is the n that beats `n_closest` by the most standard errors in any window of the test.
    """
    lo, hi = map(format_si, v["windows"][v["window"]])
    return dict(verdict=law_verdict(v, ns), times=(v["half"] / max(v["gap"], SMALL * g)) ** 2,
                needs=f"would need an n below {v['n_flat']}" if v["verdict"] == "flat" else "",
                number=f"n = {v['by']} minus n = {v['n_closest']} at C = {lo} to {hi}: "
                f"{100 * v['gap']:+.1f} ± {100 * v['half']:.1f}") | more


def ratio_text(c):
    """Return `c`, a contrast of log2 values, as a ratio with its interval.

    The text has a {} that the caller fills with words: "1.11 times{} (1.05 to 1.17)".
    """
    return "{:.2f} times{{}} ({:.2f} to {:.2f})".format(
        *(2 ** x for x in (c["gain"], c["gain"] - c["half"], c["gain"] + c["half"])))


# ---- section 3: the recipe

def solved_at_first(cfg):
    """Return an array (s + 1,). Entry i is how many problems the base model solved in i of s
    rollouts. sample.py wrote these counts next to the training problems of the run with config
    `cfg`."""
    correct = {}  # {problem id: solved rollouts}
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
    inside = {task: (rate >= lo) & (rate <= hi) for task, (lo, hi) in SHARES.items()}
    share = {task: mean_with_error(np.repeat(of_task, bars)[None], 0, 1)
             for task, of_task in inside.items()}

    def draw(ax):
        ax.bar(rate, bars, width=0.8 / s, color="0.5")
        for (task, of_task), shade in zip(inside.items(), ("C0", "C3")):
            first, last = rate[of_task][[0, -1]]
            ax.axvspan(first - 0.5 / s, last + 0.5 / s, alpha=0.2, color=shade,  # whole bars
                       label=task.title())
        ax.set(xlabel=f"avg@{s} of the base model", ylabel="problems")
    number = ", ".join(f"{task.title()} {points(c).strip('+')}%" for task, c in share.items())
    number += f" of {bars.sum():,} problems"
    return dict(verdict="", number=number, details=f"mean {rate @ bars / bars.sum():.2f}",
                figure=figure(atlas, "difficulty", [draw],
                              "How hard the problems are for the base model"))


def recipe(atlas, start, claim, *pairs):
    """Figure 3 and the right part of Figure 4: the difference in reward between two arms.

    pairs: the pairs of arms (first minus second). Pairs without runs are left out. start: the
    prefix of the arms' names. claim: what is claimed about each difference, such as "larger"
    (core.stats.judge).
    """
    cells = {name.removeprefix(start): one_cell(atlas, name)
             for name in atlas.present("recipe") if name.startswith(start)}
    if not set(pairs[0]) <= set(cells):
        raise Missing(" and ".join(start + name for name in pairs[0]))
    cells = cut(cells)
    table, g, cfg = table_of(cells), gained(cells), config_of(cells)
    named = {f"{a} minus {b}": contrast(table, {a: 1, b: -1})
             for a, b in pairs if {a, b} <= set(cells)}
    least_sure = max(named, key=lambda name: judge(named[name], claim, g)[1])
    panels, title = [curves(cells, label="{}")], "Rules for the lr"
    if start != "scale_":
        panels += [training(cells, "entropy", name="token entropy, nats"),
                   training(cells, "kl", name="KL to the base model")]
        title = "KL and entropy terms"
    return judged(*((c, claim, g) for c in named.values())) | dict(
        number=f"{least_sure}: {points(named[least_sure])}",
        details="; ".join([means_text(table),
                           *(f"{name} {points(c)}" for name, c in named.items())]),
        figure=figure(atlas, start.strip("_"), panels, f"{title}, {titled(cfg)}, n = {cfg['n']}"))


def lr_grid(atlas):
    """Figure 4, left: does a middle lr_base beat the smallest and the largest of the grid?"""
    cells = {}
    for name in atlas.present("recipe"):
        if name.startswith("lr_"):
            runs = one_cell(atlas, name)
            cells[config_of({0: runs})["lr_base"]] = runs
    if len(cells) < 3:
        raise Missing("three arms lr_*")
    cfg, cells = config_of(cells), dict(sorted(cells.items()))
    table = table_of(cells)
    first, *middle, last = cells
    best, low = heldout_gap(table, (middle, [first]))
    _, high = heldout_gap(table, (middle, [last]))
    g = gained(cells)
    return judged((low, "larger", g), (high, "larger", g)) | dict(
        number=f"the best lr_base minus the largest: {points(high)}",
        details=f"{means_text(table)}; {choices_text(best)}, chosen on other runs, minus "
        f"{first:g} {points(low)}, minus {last:g} {points(high)}",
        figure=figure(atlas, "lr_grid", [curves(cells, label="lr_base = {:g}")],
                      f"Learning rates, {titled(cfg)}, n = {cfg['n']}"))


def explodes(atlas, one, other):
    """Section 3: are responses at least EXPLODES times as long in one arm as in the other?"""
    cells = cut({name: one_cell(atlas, name) for name in (one, other)})
    lengths = table_of(cells, step_mean, field="response_len")
    c = contrast({name: np.log2(t) for name, t in lengths.items()}, {one: 1, other: -1})
    panels = [training(cells, field, name=name) for field, name in (
        ("response_len", "response length, tokens"), ("entropy", "token entropy, nats"))]
    said = ", ".join(f"{name} {t.mean():.0f} tokens" for name, t in lengths.items())
    beyond_that = c | dict(gain=c["gain"] - math.log2(EXPLODES))
    return judged((beyond_that, "larger", 1)) | dict(
        number=ratio_text(c).format(" as long"), details=f"{said} over the last quarter",
        figure=figure(atlas, "length_" + one, panels, "Response length with KL and entropy terms, "
                      f"{titled(config_of(cells))}"))


# ---- section 4: allocation

def every_lr(atlas, task, ns=()):
    """Return the runs of the arm named `task` as {(n, lr_base): {seed: run}}, sorted.

    The runs of arms that repeat `task` at another lr_base, such as easy_half, are included. `LRS`
    lists the suffixes of these arms. ns: return only runs of these n. If empty, return all.
    """
    names = [task + end for end in ("", *LRS) if (atlas.folder / (task + end)).is_dir()]
    out, least = {}, atlas.min_seeds(*names)
    for name in names:
        for lr in atlas.lrs(name):
            with contextlib.suppress(Missing):
                out |= {(n, lr): runs for n, runs in atlas.arm(name, lr=lr, least=least).items()
                        if not ns or n in ns}
    if not out:
        raise Missing(f"runs of {task}")
    return dict(sorted(out.items()))


def ns_of(keys):
    """Return the values of n in `keys`, a list of (n, lr_base), sorted."""
    return sorted({n for n, _ in keys})


def at_one_lr(atlas, arm):
    """Choose one lr_base for all n of an arm. Return (lr_base, cells, deep cells, a sentence).

    cells: {n: {seed: run}} at this lr_base. Deep cells and the sentence are as in `deep_cells`.
    The lr_base with the most deep cells is chosen. If several have as many, the one with the
    highest reward at the end is chosen, on average over n.
    """
    whole, deep = {}, {}
    for (n, lr), runs in every_lr(atlas, arm).items():
        whole.setdefault(lr, {})[n] = runs
    for lr, cells in whole.items():
        deep[lr], _ = deep_cells(cells)
    most = max(map(len, deep.values()))
    lrs = [lr for lr in sorted(deep) if len(deep[lr]) == most]
    if len(lrs) > 1:
        table = table_of({(n, lr): runs for lr in lrs for n, runs in deep[lr].items()})
        lrs.sort(key=lambda lr: -np.mean([table[n, lr].mean() for n in deep[lr]]))
    return lrs[0], whole[lrs[0]], *deep_cells(whole[lrs[0]])


def rise(atlas, task):
    """Figures 1, 6 and 7: does n*(C) of an arm rise, at one lr_base for all n (`at_one_lr`)?

    The claims of our own study were made after seeds 0 to 2 were seen, so these seeds cannot
    confirm them. If every n has at least two later seeds, only the later seeds decide.
    """
    lr, whole, cells, left = at_one_lr(atlas, task)
    note_used(whole)
    (v,) = rises_in({task: cells}).values()
    name, law = law_figure(atlas, f"law_{task}", whole)
    details = f"{rise_text(v)}; {plateau_text(law)}{left}"
    if len({lr for _, lr in every_lr(atlas, task)}) > 1:
        details = f"At lr_base = {lr:g}: {details}"
    fresh = {n: {seed: run for seed, run in runs.items() if seed > 2} for n, runs in cells.items()}
    some_are_old = any(set(fresh[n]) < set(cells[n]) for n in cells)
    if atlas.own and some_are_old and all(len(runs) > 1 for runs in fresh.values()):
        (v,) = rises_in({task: fresh}).values()
        details = f"On fresh seeds, which decide: {rise_text(v)}. On all seeds: {details}"
    row = of_rise(v, cells, gained(cells), details=details, compared=cells, figure=name)
    if law["fitted"] == "law":  # the plateau has no interval; add the n tied with the best
        row["number"] += (f"; plateau {law['fit']['plateau']:.0f}, tied at the end n = "
                          + ", ".join(map(str, v["sets"][-1])))
    return row


def plateau_text(law):
    """Return k and the plateau of two fits of the law as text.

    (1) The law is fitted to the n of the highest fitted curve at each budget. (2) It is fitted to
    the record-breaking points pooled over n.
    """
    out = []
    for name, fit in (("the n of the highest fitted curve (section 4.1), by our parabola between n",
                       law["fit"]), ("the pooled records (Figure 15)", law["by_records"]["fit"])):
        out.append(f"{name}: " + (f"k {fit['k']:.1f}, plateau {fit['plateau']:.0f}" if fit else
                                  "too few points"))
    return f"the law through {'; through '.join(out)}"


def law_panel(panel, law, unit):
    """Return a function that draws a panel like Figure 7 on an axis.

    It draws the points n*(C), coloured by reward, and the law in red. panel: a panel of
    frontier.json. law: the result of `law_of_panel` for this panel. If n* rises, the law is drawn
    even if the points do not determine it. At a fixed B (Figure 9) the points B_p*(M) are drawn
    too.
    """
    without_ties = {key: value for key, value in panel.items() if key != "near"}

    def draw(ax):
        star = panel["n_star"] or dict(n=[0])
        rises = star["n"][-1] > star["n"][0]
        draw_law(ax, without_ties, law | dict(fitted="law") if rises else law, [], unit)
        if law["fitted"] != "law":
            ax.set_title("the points do not determine the fit" if rises else "n* does not rise")
        if "B" in panel and panel["n_star"]:
            ax.scatter(star["C"], star["B_p"], c=star["reward"], s=22, marker="s", cmap="viridis",
                       label="$B_p$ of that curve")
            ax.set_ylabel("n*, $B_p^*$")
    return draw


def panel_in(cells, view, unit="rollouts"):
    """Analyse cells of one B_p. Return (the sweep, the only panel of a view).

    The sweep is the result of `analysed`. view: a function of frontier.py, such as `fixed_Bp`.
    """
    swept = analysed(cells, unit)
    (panel,) = view(swept, swept["cfg"])["panels"].values()
    return swept, panel


def law_figure(atlas, name, cells):
    """Draw Figures 6 and 7 as NAME.png, for cells of one B_p and one lr_base.

    Return (the file's name, the law that `law_of_panel` fits).
    """
    swept, panel = panel_in(cells, frontier.paper)
    law = law_of_panel(panel)

    def draw_frontier(ax):
        frontier.draw_curves(ax, panel["paper"], colours(panel["ns"]), swept["label"])
        budget_axis(ax, *panel["range"], "rollouts")
        ax.tick_params(labelbottom=True)
        for band in ax.collections:
            band.set_label("")  # no legend entry, because a fitted curve has no interval
        ax.set_ylabel(swept["label"])
    return figure(atlas, name, [draw_frontier, law_panel(panel, law, "rollouts")],
                  f"Best n against compute, {titled(config_of(cells))}", note="dots: record-"
                  "breaking points; thin lines: a sigmoid for each n; thick: their frontier"), law


def beyond(atlas, task):
    """Section 4.1: does the largest n of an arm extend the frontier?

    The claim is judged even if the largest n makes fewer than DEEP updates.
    """
    lr, whole, _, _ = at_one_lr(atlas, task)
    if len(whole) < 3:
        raise Missing(f"three n of {task}")
    *others, largest = sorted(whole)
    best, c = heldout_gap(table_of(whole), (others, [largest]))
    c["gain"] *= -1
    made = max(int(run["step"][-1]) for run in whole[largest].values())
    # c is the reward of the largest n minus that of the best smaller n. The claim is that c is not
    # above 0, rather than below 0, because a largest n that only ties does not extend the frontier
    return judged((c, "not larger", gained(whole))) | dict(
        compared={}, figure=f"law_{task}.png",
        number=f"n = {largest} minus the best smaller n: {points(c)}",
        details=f"over the last quarter, at lr_base = {lr:g}; the best smaller n is "
        f"{choices_text(best)}; n = {largest} makes {made} updates")


def plateau(atlas, first, second):
    """Section 4.1: is the best n at the end smaller on the second arm than on the first?

    The difference is in octaves, with one value for each seed.
    """
    ends, plateaus = [], []
    for arm in (first, second):
        _, whole, cells, _ = at_one_lr(atlas, arm)
        if len(cells) < 2:
            raise Missing(f"two n of {arm}")
        table = table_of(cells)
        S = len(next(iter(table.values())))
        ends.append([math.log2(max(table, key=lambda n: table[n][s].mean())) for s in range(S)])
        fit = law_of_panel(panel_in(whole, frontier.fixed_Bp)[1])["fit"]
        plateaus.append(f"{fit['plateau']:.0f}" if fit else "none")
    S = min(map(len, ends))
    c = change(*(np.array(e[:S])[:, None] for e in reversed(ends)))
    low, high = (2 ** np.mean(e) for e in reversed(ends))
    return judged((c, "smaller", 10)) | dict(
        tuned=False, figure=[f"law_{first}.png", f"law_{second}.png"],
        number=f"{c['gain']:+.1f} ± {c['half']:.1f} octaves, {second.title()} minus "
        f"{first.title()}",
        details=f"best n over the last quarter, mean over seeds: {high:.3g} on {first.title()}, "
        f"{low:.3g} on {second.title()}; plateaus of the law by the best fitted curve: "
        f"{' and '.join(plateaus)}")


def own_lr_gap(cells, large, small, metric="avg@4"):
    """Compare the best n in `large` with n = `small` at the end, each n at its best lr_base.

    Return (long text, contrast, tuned, short text). cells: {(n, lr_base): {seed: run}}.
    `heldout_gap` chooses the lr_base. The worse n is the one that has the lower reward of the two
    compared. tuned: True if each n has three lr_base or more, and the best lr_base of the worse n
    is neither its smallest nor its largest. At such an edge, the worse n might reach a higher
    reward with an lr_base that was not tried.
    """
    of_large, of_small = ([key for key in cells if key[0] in ns] for ns in (large, [small]))
    table, times = table_of(cells, metric=metric), Counter(n for n, _ in cells)
    tried = [times[n] for n in (*large, small)]
    best, c = heldout_gap(table, (of_large, of_small))
    top = choices_text([str(n) for n, _ in best])
    text, edge = f"n = {top} minus n = {small}", False
    if max(tried) > 1:
        lrs = choices_text([f"{lr:g}" for _, lr in best])
        text += f", each at its best lr_base (n = {top}: {lrs})"
    if min(tried) > 2:
        worse, lr = max(of_large if c["gain"] < 0 else of_small, key=lambda k: table[k].mean())
        lrs = [other for n, other in cells if n == worse]
        edge = lr in (min(lrs), max(lrs))
        if edge:
            text += f", but n = {worse} has its best, {lr:g}, at the edge of {len(lrs)} tried"
    tuned = min(tried) > 2 and not edge
    return f"{text}: {points(c)}", c, tuned, f"n = {top} minus n = {small}: {points(c)}"


def far(atlas, arm, large, above=False):
    """Return the table row of `rise` for an arm, with the lead of n = `large` as its number.

    The lead is the reward of n = `large` minus the reward of the smallest n. Both are measured at
    the end, each n at its best lr_base. above: True if the row claims that the lead is above 0,
    False if it claims that n* rises.
    """
    row, every = rise(atlas, arm), every_lr(atlas, arm)
    ns = ns_of(every)
    text, c, _, short = own_lr_gap(every, [large], ns[0])
    row["details"] = f"{row['number']}; {row['details']}; at the end, {text}"
    for n in ns[ns.index(large) + 1:]:
        row["details"] += f"; {own_lr_gap(every, [n], large)[0]}"
    panels = [curves(every, "", metric, label="n = {0[0]}, lr_base {0[1]:g}")
              for metric in METRICS[:2]]
    row["figure"] = [row["figure"], figure(atlas, arm, panels, f"Reward against compute, "
                                           f"{titled(config_of(every))}")]
    if above:
        row |= judged((c, "larger", gained(every)))
    return row | dict(number=f"{short} at the end, each at its best lr_base")


def above_each(cells):
    """Return the paper's frontier minus our frontier for each seed, on average over log C: (S, 1).

    Seeds with too few record-breaking points for the paper's fit are left out.
    """
    each = []
    for seed in sorted(set.intersection(*map(set, cells.values()))):
        _, panel = panel_in({n: {seed: runs[seed]} for n, runs in cells.items()}, frontier.paper)
        each.append(panel["paper"]["above"])
    return np.array([[above] for above in each if above is not None])


def record_breaking(atlas):
    """Figures 5 and 15: the record-breaking points and the monotone fit through them.

    The last panel pools the runs of all n. It shows the n of every point that sets a record among
    these runs, over C.
    """
    _, whole, cells, _ = at_one_lr(atlas, "easy")
    note_used(cells)
    swept, panel = panel_in(whole, frontier.paper)
    above, law = panel["paper"]["above"], law_of_panel(panel)["by_records"]
    if above is None:
        raise Missing("record-breaking points")
    width, ns, label = swept["cfg"]["bin"], sorted(whole), swept["label"]
    fits = {c["n"]: c for c in panel["paper"]["curves"]}
    small, middle = ns[0], ns[len(ns) // 2]

    def kept_of(n):
        """Return (C, reward, mask of record-breaking points) of the evaluations of all seeds."""
        runs = whole[n].values()
        C, reward, kept = (np.concatenate(x) for x in zip(*(
            (run["C"], run["reward"], frontier.record_breaking(run["reward"], width))
            for run in runs)))
        return C[C > 0], reward[C > 0], kept[C > 0]

    def draw_one(ax):
        C, reward, kept = kept_of(middle)
        ax.plot(C, reward, ".", color="0.7", ms=4, label="evaluation")
        ax.plot(C[kept], reward[kept], "o", color="C1", ms=5, label="record-breaking point")
        ax.plot(fits[middle]["C"], fits[middle]["reward"], "k--", lw=1.4,
                label="monotone fit to the records")
        lo, hi = ax.get_ylim()
        for edge in np.arange(math.ceil(lo / width), hi / width)[::4] * width:
            ax.axhline(edge, color="0.9", lw=0.6, zorder=0)
        ax.set(title=f"Figure 5: n = {middle}; lines: every fourth bin of reward", ylabel=label)
        budget_axis(ax, C.min(), C.max(), "rollouts")

    def draw_two(ax):
        shade, of_n = colours(ns), {n: kept_of(n) for n in (small, middle)}
        lowest = max(reward.min() for _, reward, _ in of_n.values())
        highest = min(reward.max() for _, reward, _ in of_n.values())
        for n, (C, reward, _) in of_n.items():
            ax.plot(C, reward, ".", color=shade[n], ms=4, alpha=0.4)
            ax.plot(fits[n]["C"], fits[n]["reward"], "--", color=shade[n], lw=1.8, label=f"n = {n}")
        for share in (0.35, 0.85):
            edge = round((lowest + share * (highest - lowest)) / width) * width
            ax.axhline(edge, color="0.8", lw=0.8, zorder=0)
            for n, (C, reward, _) in of_n.items():
                # an arrow from the horizontal line `edge` down to the C at which n first reaches it
                first = C[reward >= edge - 1e-9].min()
                ax.annotate("", (first, 0), (first, edge), ("data", "axes fraction"), "data",
                            arrowprops=dict(arrowstyle="->", color=shade[n], lw=1.6))
        ax.set(title="Figure 15, left: where n first reaches a reward", ylabel=label)
        budget_axis(ax, *panel["range"], "rollouts")

    def draw_pooled(ax):
        draw_records(ax, panel["records"])
        if law["fit"]:
            x = np.geomspace(*panel["range"], 200)
            ax.plot(x, 2 ** law_at(law["fit"], x), "--", color="C3", label="the law through them")
        ax.set(yscale="log", ylabel="n", title="Figure 15, right: records of all runs")
        log_ticks(ax.yaxis, ns)
        budget_axis(ax, *panel["range"], "rollouts")
    each = above_each(cells)
    number = (f"{points(change(each, 0 * each))}, one fit for each seed" if len(each) > 1 else
              f"{100 * above:+.1f}, without an interval because there is one seed")
    return dict(verdict="", number=f"points above the reward of the models at C: {number}",
                details=f"mean over log C; all seeds in one fit: {100 * above:+.1f}",
                figure=figure(atlas, "records", [draw_one, draw_two, draw_pooled],
                              f"Record-breaking points, {titled(config_of(cells))}",
                              note="a record-breaking point is above all earlier ones of its seed; "
                              "the fit is through those of all seeds"))


def lengths_of(cells):
    """Return the lowest and the highest mean tokens per rollout among the runs of `cells`.

    cells: {n: {seed: run}}.
    """
    each = [read(run["path"], "val", "tokens")["per_rollout"] for run in flat(cells)]
    return min(each), max(each)


def tokens(atlas):
    """Figure 24: points n*(C) and the law through them, with C in rollouts and in tokens."""
    _, whole, cells, _ = at_one_lr(atlas, "easy")
    note_used(cells)
    panels, ends, fits = [], [], []
    for unit in ("rollouts", "tokens"):
        _, panel = panel_in(whole, frontier.fixed_Bp, unit)
        law = law_of_panel(panel)
        panels.append(law_panel(panel, law, unit))
        ends.append([law["sets"][0], law["sets"][-1]] if law["sets"] else None)
        fits.append(f"{law['fit']['k']:.1f} in {unit}" if law["fit"] else f"no fit in {unit}")
    name = figure(atlas, "units", panels[::-1], "Best n against compute in tokens and in "
                  f"rollouts, {titled(config_of(cells))}")
    if ends[0] is None:
        raise Missing("budgets that all n share")
    said = [" to ".join(", ".join(map(str, ns)) for ns in of_unit) if of_unit else
            "no budgets that all n share" for of_unit in ends]
    same = bool(ends[1]) and all(set(a) & set(b) for a, b in zip(*ends))
    short, long = lengths_of(cells)
    differ = long > 1.1 * short
    return dict(verdict=("confirmed" if same else "contradicted") if differ else "", figure=name,
                number=f"n tied with the best (90%): {said[0]} in rollouts, {said[1]} in tokens",
                details=f"the law's k a decade: {', '.join(fits)}; a rollout has {short:.0f} to "
                f"{long:.0f} tokens on average" + ", so the units hardly differ" * (not differ))


def tokens_k(atlas):
    """Figure 24: is the law's k smaller with C in tokens than in rollouts?

    The law is fitted to each seed separately, so that the difference has an interval.
    """
    _, whole, cells, _ = at_one_lr(atlas, "easy")
    seeds = sorted(set.intersection(*(set(runs) for runs in whole.values())))
    if len(seeds) < 2:
        raise Missing("a second seed of all n")
    short, long = lengths_of(cells)
    if long < 1.1 * short:
        number = f"not tested: rollouts have about {(short + long) / 2:.0f} tokens at every n"
        return dict(verdict="", number=number, details="so the units hardly differ",
                    figure="units.png")
    note_used({n: {seed: whole[n][seed] for seed in seeds} for n in whole})
    k = []
    for unit in ("rollouts", "tokens"):
        of_seeds = [panel_in({n: {seed: whole[n][seed]} for n in whole}, frontier.fixed_Bp, unit)
                    for seed in seeds]
        fits = [law_of_panel(panel)["fit"] for _, panel in of_seeds]
        if None in fits:
            raise Missing("more points n*(C) for a fit to each seed")
        k.append(np.log2([[fit["k"]] for fit in fits]))
    c = change(k[1], k[0])
    return judged((c, "smaller", 1)) | dict(
        figure="units.png", compared={},
        number=f"k in tokens is {ratio_text(c).format('')} that in rollouts",
        details="k of each seed in rollouts and tokens: " + ", ".join(
            f"{2 ** a:.1f} and {2 ** b:.1f}" for a, b in zip(*(x[:, 0] for x in k))))


def grid_of(atlas, study, task):
    """Return {(B_p, n): {seed: run}} for the arms of a study that have the recipe `task`.

    Only the lr_base with the most cells is used. The keys are sorted by n.
    """
    names, asked, by_lr = atlas.present(study, recipe=task), atlas.configs(study), {}
    for name in names:
        bps, ns = (set(map(int, asked[name][key].split())) for key in ("bps", "ns"))
        for lr, cells in atlas.lrs(name).items():
            by_lr.setdefault(lr, {}).update({(b, n): runs for (b, n), runs in cells.items()
                                             if b in bps and n in ns})
    least = atlas.min_seeds(*names)
    cells = max(by_lr.values(), key=len, default={})
    cells = {key: cells[key] for key in sorted(cells, key=lambda cell: (cell[1], cell[0]))
             if len(cells[key]) >= least}
    if len({b for b, _ in cells}) < 2:
        raise Missing(f"{task} at a second B_p")
    return cells


def grid_parts(atlas, study, task):
    """Return (all cells of `grid_of`, the cells to judge, a sentence that names the other cells).

    The cells to judge make DEEP updates or more. Their runs are cut to one common budget.
    """
    cells = grid_of(atlas, study, task)
    deep, left = deep_cells(cells, "{}")
    return cells, cut(deep), left.replace("updates: ", "updates, (B_p, n) = ")


def groups_of(cells, fixed_B=False, least=3):
    """Group {(B_p, n): value} by B_p, or by B = B_p n if `fixed_B`.

    Return ({group: {n: value}}, small groups). A group with fewer than `least` values of n is only
    listed among the small groups.
    """
    groups = {}
    for (b, n), value in cells.items():
        groups.setdefault(b * n if fixed_B else b, {})[n] = value
    return ({key: groups[key] for key in sorted(groups) if len(groups[key]) >= least},
            [key for key in sorted(groups) if len(groups[key]) < least])


def metrics(atlas, task, first, second):
    """Figure 8: does the metric `second` need a larger n than the metric `first`?

    The figure shows the best n at the largest C by both metrics, for each B_p.
    """
    whole, cells, left = grid_parts(atlas, "joint", task)
    g, names = gained(cells), (f"by {first}", f"by {second}")
    judged_n = {m: groups_of(table_of(cells, metric=m))[0] for m in (first, second)}
    shifts = {B_p: shift(judged_n[first][B_p], judged_n[second][B_p], g)
              for B_p in judged_n[first]}
    if not shifts:
        raise Missing("three n at one B_p")
    # {(metric, B_p): the best n} and {(metric, B_p): the tied n}, for the bars and diamonds of the
    # figure. Cells with too few updates to be judged are included
    best, tied = {}, {}
    for metric in ("best@4", "worst@4"):
        for B_p, table in groups_of(table_of(whole, metric=metric), least=2)[0].items():
            best[metric, B_p], tied[metric, B_p] = top_and_ties(table)
    sizes = sorted({B_p for _, B_p in best})

    def draw(ax):
        for i, (metric, shade) in enumerate(zip(("best@4", "worst@4"), ("C0", "C1"))):
            x = np.arange(len(sizes)) + 0.38 * (i - 0.5)
            tops = [best[metric, B_p] for B_p in sizes]
            ax.bar(x, tops, width=0.36, color=shade, label=metric)
            for at, B_p, top in zip(x, sizes, tops):
                ax.annotate(str(top), (at, top), ha="center", va="bottom", fontsize=9)
                if also := tied[metric, B_p]:
                    ax.plot([at] * len(also), also, "D", color="black", ms=5, mfc=shade,
                            label=f"n tied with the bar's by {metric}")
        ax.set(yscale="log", xlabel="$B_p$", ylabel="best n at the largest C")
        ns = sorted({n for _, n in whole})
        log_ticks(ax.yaxis, ns)
        ax.set_ylim(ns[0] / 2, ns[-1] * 2)
        ax.set_xticks(range(len(sizes)), sizes)

    rows = [[metric, *(f"{best[metric, B_p]}" + (f" ({', '.join(map(str, tied[metric, B_p]))})"
                                                 if tied[metric, B_p] else "") for B_p in sizes)]
            for metric in ("best@4", "worst@4")]
    return of_shift(mean_shift(list(shifts.values())), g, names) | dict(
        compared=cells, details="; ".join(
            f"B_p = {B_p}: {shift_text(c, names)}" for B_p, c in shifts.items()) + left,
        table=markdown(["best n (tied)", *(f"B_p = {B_p}" for B_p in sizes)], rows),
        figure=figure(atlas, f"best_worst_{task}", [draw],
                      f"Best n at the largest budget by metric, {task.title()}"))


def sensitivity(atlas, task):
    """Figure 10: how much reward a doubling of n and a doubling of B_p add.

    Both numbers are slopes of a plane in log2 n and log2 B_p, fitted to the cells.
    """
    whole, cells, left = grid_parts(atlas, "joint", task)
    table, g = table_of(cells), gained(cells)
    X = np.array([[1, math.log2(b), math.log2(n)] for b, n in table])
    # a least-squares slope is a weighted sum of the cells' rewards; these are its weights
    _, to_B_p, to_n = np.linalg.pinv(X)

    def weighted(weights):
        return contrast(table, dict(zip(table, weights)))
    of_n, of_B_p = weighted(to_n), weighted(to_B_p)
    # gap: |slope of n| - |slope of B_p|
    gap = weighted(np.sign(of_n["gain"]) * to_n - np.sign(of_B_p["gain"]) * to_B_p)
    row = judged((gap, "larger", g), (of_n, "larger", g))
    # the claim on Easy: a larger n helps, and n has a larger effect than B_p. The claim on Hard: a
    # larger n helps, and both effects are equal
    if task == "easy":
        verdict = row["verdict"]
    elif abs(gap["gain"]) + gap["half"] < SMALL * g:
        verdict = judge(of_n, "larger", g)[0]
    else:
        verdict = "contradicted" if abs(gap["gain"]) > gap["half"] else "underpowered"
    swept = analysed(whole)
    lines = views.sensitivity(swept, swept["cfg"])["lines"]

    def panel_over(over, fixed):
        def draw(ax):
            of_panel = [line for line in lines if line["over"] == over]
            shade = views.line_colours(fixed, of_panel)
            for line in of_panel:
                ax.errorbar(line["x"], line["reward"], line["half"], color=shade[line[fixed]],
                            marker="o", ms=4, capsize=2, lw=1.4,
                            label=f"{fixed} = {line[fixed]}".replace("B_p", "$B_p$"))
            ax.set_xscale("log", base=2)
            log_ticks(ax.xaxis, sorted({x for line in of_panel for x in line["x"]}))
            spread = max((100 * line["spread"] for line in of_panel), default=0)
            ax.set(xlabel=over.replace("B_p", "$B_p$"), ylabel=f"{swept['label']}, largest budget",
                   title=f"spread over {over.replace('B_p', '$B_p$')}: up to {spread:.1f} points")
        return draw
    note_used(whole)
    number = f"a doubling of n {points(of_n)}, of B_p {points(of_B_p)}"
    return row | dict(
        verdict=verdict, number=number, compared=cells,
        details=f"{number}; the size of the first minus that of the second {points(gap)}, "
        f"{len(cells)} cells{left}",
        figure=figure(atlas, f"sensitivity_{task}",
                      [panel_over("B_p", "n"), panel_over("n", "B_p")],
                      f"How much the reward varies with $B_p$ and with n, {task.title()}"))


def at_every(atlas, study, task):
    """Figures 9 and 16 to 19: does the best n rise with the budget?

    The study joint asks this at each B_p, the study fixed_B at each batch B = B_p n.
    """
    fixed_B, name = study == "fixed_B", "B" if study == "fixed_B" else "B_p"
    whole, cells, left = grid_parts(atlas, study, task)
    groups, few = groups_of(cells, fixed_B)
    if not groups:
        raise Missing(f"three n at one {name}")
    shifts = {key: shift_of(of_key) for key, of_key in groups.items()}
    details = [f"{name} = {key}: {shift_text(c)}" for key, c in shifts.items()]
    if few:
        details.append(f"fewer than three n, so no verdict: {name} = {', '.join(map(str, few))}")
    note_used(whole)
    row = of_shift(mean_shift(list(shifts.values())), gained(cells))
    return row | dict(details="; ".join(details) + left, compared=cells,
                      number=f"{row['number']}, mean over {name} = {', '.join(map(str, shifts))}",
                      figure=grid_figures(atlas, study, task, whole))


def grid_figures(atlas, study, task, cells):
    """Draw Figures 16 to 19 and return the files' names.

    There is a panel for each B_p, or for each batch B if the study is fixed_B. A panel has a curve
    for each n. The study fixed_B also gets Figure 9: n*(M) and B_p*(M) at the middle B.
    """
    swept = analysed(cells)
    view, at, lines, size = ((frontier.fixed_B, "a fixed batch B", "of_batch", "B")
                             if study == "fixed_B" else
                             (frontier.fixed_Bp, "each $B_p$", "curves", "B_p"))
    panels = list(view(swept, swept["cfg"])["panels"].values())
    drawings = [frontier_panel(panel[lines], f"{at.split()[-1]} = {panel[size]:,}", swept["label"],
                               panel.get("B", 1)) for panel in panels]
    names = [figure(atlas, f"{view.__name__}_{task}", drawings,
                    f"Reward against compute at {at}, {task.title()}", note=FRONTIER)]
    if study == "fixed_B":
        panel = panels[len(panels) // 2]
        names.append(figure(
            atlas, f"law_B_{task}", [law_panel(panel, law_of_panel(panel), "updates")],
            f"Best n and $B_p$ against updates at B = {panel['B']:,}, {task.title()}"))
    return names


FRONTIER = "thick: the frontier, coloured by its n"


def frontier_panel(lines, title, label, B=1):
    """Return a function that draws reward curves and their frontier on an axis, coloured by n.

    lines: the curves, a list of dict(n, C, reward). label: the label of the y axis. B: the factor
    that turns C of `lines` into rollouts. It is the batch size if C counts updates, else 1.
    """
    shade = colours({c["n"] for c in lines})

    def draw(ax):
        C = np.unique(np.concatenate([c["C"] for c in lines]))
        each = np.array([np.interp(np.log(C), np.log(c["C"]), c["reward"], np.nan, np.nan)
                         for c in lines])
        top, ends = np.where(np.isnan(each), -np.inf, each).argmax(0), []
        for c in lines:
            ax.plot(np.array(c["C"]) * B, c["reward"], color=shade[c["n"]], lw=1.2)
            ends.append((c["C"][-1] * B, c["reward"][-1], f"n = {c['n']}", shade[c["n"]]))
        thick(ax, C * B, each[top, np.arange(len(C))], [shade[lines[i]["n"]] for i in top])
        ax.set(title=title, ylabel=label)
        budget_axis(ax, C[0] * B, C[-1] * B, "rollouts")
        end_labels(ax, ends)
    return draw


def thick(ax, x, y, of_points):
    """Draw a thick line through the points x, y (G,).

    Each segment of the line has the colour of its left point, from `of_points`.
    """
    for i in range(len(x) - 1):
        ax.plot(x[i:i + 2], y[i:i + 2], color=of_points[i], lw=5, solid_capstyle="round")


def not_monotonic(atlas, task):
    """Section 4.2: does n*(M) both rise and fall at a fixed B?

    While n* falls, B_p = B / n* rises.
    """
    _, cells, left = grid_parts(atlas, "fixed_B", task)
    groups, _ = groups_of(cells, fixed_B=True)
    if not groups:
        raise Missing("three n at one B")
    found, verdicts = rises_in(groups), []
    for key, v in found.items():
        # p is the p-value of a test for a rise of n*, p_falls that of a test for a fall. In both
        # tests, the null hypothesis is that n* is constant
        moves = [v["p"] <= 0.05, v["p_falls"] <= 0.05]
        one_way = sum(moves) == 1 or law_verdict(v, groups[key]) == "contradicted"
        verdicts.append("confirmed" if all(moves) else "contradicted" if one_way
                        else "underpowered")
    # the row is confirmed or contradicted if more than half of the B have this verdict, and no B
    # has the opposite verdict
    verdict = "underpowered"
    for decided in ("confirmed", "contradicted"):
        if 2 * verdicts.count(decided) > len(verdicts) and (
                set(verdicts) <= {decided, "underpowered"}):
            verdict = decided
    key, v = next(iter(found.items()))
    return dict(verdict=verdict, number=f"n* rises and falls at {verdicts.count('confirmed')} of "
                f"{len(verdicts)} B; a test, no interval: p = {v['p']:.3f} for a rise and "
                f"{v['p_falls']:.3f} for a fall at B = {key}",
                times=max((v["half"] / max(v["gap"], 1e-9)) ** 2 for v in found.values()),
                details="; ".join(f"B = {key}: {rise_text(v)}" for key, v in found.items()) + left,
                compared=cells, figure=f"fixed_B_{task}.png")


def stable_B_p(atlas):
    """Section 4.2: is the smallest stable B_p larger on Hard than on Easy? A B_p is stable if at
    most one run in ten diverges or collapses."""
    found = {}
    for task in ("easy", "hard"):
        cells = cut(grid_of(atlas, "joint", task))
        note_used(cells)
        cells = analysed(cells)["best_lr_cells"]
        found[task] = frontier.stability(cells)
    shared = set.intersection(*map(set, found.values()))
    found = {task: {b: by_B_p[b] for b in by_B_p if b in shared} for task, by_B_p in found.items()}
    first, second = smallest = [frontier.smallest_stable(by_B_p) for by_B_p in found.values()]
    said = []
    for (task, by_B_p), stable in zip(found.items(), smallest):
        each = ", ".join(f"{bad} of {runs} with B_p = {b}" for b, (bad, runs) in by_B_p.items())
        said.append(f"{task.title()}: {each}; the smallest stable one is {stable or 'none'}")
    verdict = "underpowered"
    if first and second and first != second:
        # the smallest stable B_p differs between Easy and Hard. Take the smaller of the two B_p.
        # Test whether the share of runs that fail at this B_p differs between Easy and Hard
        counts = [(bad, runs - bad) for bad, runs in (found[t][min(first, second)] for t in found)]
        p = stats.fisher_exact(counts).pvalue
        said.append(f"That the two fail alike at B_p = {min(first, second)} has p = {p:.2f}")
        if p < 0.1:
            verdict = "confirmed" if second > first else "contradicted"
    return dict(verdict=verdict, compared={}, needs=f"would need a B_p below {min(shared)}",
                details=f"Runs that diverged or fell: {'. '.join(said)}",
                number="a count, no interval: " + " and ".join(
                    f"{stable or 'none'} on {task.title()}"
                    for task, stable in zip(found, smallest)))


def joint_row(atlas, task, what, value_of):
    """Return (table row, the result of core.stats.shift, a sentence, all cells, gain of training).

    The row judges, in the study `joint`, whether the `what` of the best cell rises from the window
    EARLY to the window LATE. what: "n", "B" or "B_p". value_of((B_p, n)): the value of `what` in a
    cell. The sentence and all cells are as in `grid_parts`, the gain of training as in `gained`.
    """
    whole, cells, left = grid_parts(atlas, "joint", task)
    c, g = shift_of(cells, value_of), gained(cells)
    row = of_shift(c, g, what=what) | dict(compared=cells, figure=f"joint_{task}.png",
                                           details=shift_text(c, what=what) + left)
    return row, c, left, whole, g


def batch(atlas, task):
    """Section 4.3: does the total batch B = B_p n of the best cell rise with C?"""
    return joint_row(atlas, task, "B", lambda cell: cell[0] * cell[1])[0]


def any_B_p(atlas, task):
    """Section 4.3: is one B_p good enough at every budget?"""
    row, c, _, _, g = joint_row(atlas, task, "B_p", lambda cell: cell[0])
    moves = c["verdict"] == "confirmed" or c["verdict"] == "contradicted" and c["a"] != c["b"]
    verdict = ("confirmed" if c["worst"] < ALIKE * g else "contradicted" if moves
               else "underpowered")
    return row | dict(verdict=verdict, needs="",
                      number=f"B_p = {c['flat']} throughout loses at most "
                      f"{100 * max(c['worst'], 0):.1f}, the upper end of its interval")


def joint(atlas, task):
    """Figures 21 and 22: does the n of the best cell (B_p, n) rise with C?"""
    row, c, left, whole, _ = joint_row(atlas, task, "n", lambda cell: cell[1])
    swept, panel = panel_in(whole, frontier.joint)
    pairs = pairs_of(panel)
    note_used(whole)
    shade = colours(panel["ns"])

    def draw_frontier(ax):
        env = panel["envelope"]
        for cell in swept["best_lr_cells"]:
            ax.plot(swept["grid"][cell.alive], cell.mean[cell.alive], color="0.85", lw=0.8,
                    zorder=0)
        thick(ax, env["C"], env["highest"], [shade[n] for n in env["n"]])
        for i, (C, pair) in enumerate(pairs):
            y = float(np.interp(C, env["C"], env["highest"]))
            ax.plot(C, y, "o", color=shade[pair[1]], mec="black", ms=6, zorder=4)
            # labels alternate sides, but the first and the last must be inside the axes
            right = i == 0 or i % 2 == 0 and i < len(pairs) - 1
            x, up, ha = (5, -11, "left") if right else (-4, 7, "right")
            ax.annotate(f"({pair[0]}, {pair[1]})", (C, y), (x, up), ha=ha, fontsize=9,
                        textcoords="offset points")
        for n in sorted(set(env["n"])):
            ax.plot([], [], color=shade[n], lw=4, label=f"n = {n}")
        low = min(env["highest"])
        ax.set(ylabel=swept["label"], ylim=(low - 0.12 * (max(env["highest"]) - low), None),
               title="the frontier, labelled ($B_p$, n)")
        budget_axis(ax, *panel["range"], "rollouts")
    said = ", ".join(f"({b}, {n}) from {format_si(C)}" for C, (b, n) in pairs)
    law = law_of_panel(panel)
    panels = [draw_frontier, law_panel(panel, law, "rollouts")]
    return row | dict(details=f"{shift_text(c)}; {plateau_text(law)}; best (B_p, n), with the "
                      f"smallest tied B_p: {said}{left}",
                      figure=figure(atlas, f"joint_{task}", panels,
                                    f"Best ($B_p$, n) against compute, {task.title()}"))


def pairs_of(panel):
    """Return [(C, (B_p, n))]: the budgets at which the best cell of a joint panel changes.

    The best cell has the best n. If several cells with this n are tied with the best, the one with
    the smallest B_p is taken.
    """
    env, out = panel["envelope"], []
    for near in panel["near"]:
        n = env["n"][int(np.abs(np.log(np.array(env["C"]) / near["C"])).argmin())]
        pair = min((b, m) for b, m in near["set"] if m == n)
        if not out or out[-1][1] != pair:
            out.append((near["C"], pair))
    return out


def overview(atlas):
    """Figure 1: the paper's four findings in one picture, from panels of other figures."""
    # parts: (title, figure, index of the panel in the figure, function of the figure, arguments)
    parts = [("(1) Easy", "law_easy", -1, rise, "easy"), ("(1) Hard", "law_hard", -1, rise, "hard"),
             ("(2) Easy", "best_worst_easy", 0, metrics, "easy", "best@4", "worst@4"),
             ("(2) Hard", "best_worst_hard", 0, metrics, "hard", "worst@4", "best@4"),
             ("(3) Easy", "law_B_easy", 0, at_every, "fixed_B", "easy"),
             ("(4) Easy", "sensitivity_easy", 0, sensitivity, "easy")]
    panels = []

    def panel_of(title, panel):
        def draw(ax):
            panel(ax)
            ax.set_title(": ".join(filter(None, [title, ax.get_title()])))
        return draw
    for title, name, which, draw_figure, *words in parts:
        if name not in atlas.drawn:
            draw_figure(atlas, *words)
        of_figure, used = atlas.drawn[name]
        USED.update(used)
        panels.append(panel_of(title, of_figure[which]))
    return dict(verdict="", number="each finding has its own row", details="", compared={},
                figure=figure(atlas, "findings", panels, "(1) best n against compute, (2) by "
                              "metric, (3) at a fixed batch, (4) reward against B_p"))


# ---- section 5: base model and problems

def pass_rates(run, at):
    """Return (pass rates (D,), rollouts per problem) of a run's training problems.

    They come from the `fresh` record (--pass_at) whose budget is nearest to `at`. The model drew
    new rollouts for this record, after it had spent the record's budget. The training rollouts of
    the log cannot be used, because the model drew them before the updates that used them.
    """
    fresh = [r for r in run["passes"] if r.get("fresh")]
    if len(fresh) < 2:
        raise Missing("pass rates of training problems (--pass_at)")
    r = min(fresh, key=lambda r: abs(r["rollouts"] - at))
    return np.array(r["correct"]) / np.array(r["samples"]), r["samples"][0]


def interference(atlas, task):
    """Figures 11 and 27: does a small n polarise the pass rates of the training problems?

    The smallest and the largest n of the study are compared at the end. The claim is that the
    smallest n has more problems that are never solved, and more that are always solved.
    """
    ns = sorted(map(int, atlas.configs("interference")[task]["ns"].split()))
    small, large = ns[0], ns[-1]
    if small == large:
        raise Missing(f"an n other than {small}")
    cells = atlas.arm(task, ns=(small, large))
    C = budget_of(cells)
    s, parts = pass_rates(flat(cells)[0], C)[1], []
    for true in (lambda p: p == 0, lambda p: p > 1 - 1.5 / s):
        start, end = (table_of(cells, lambda run: true(pass_rates(run, at)[0]) * 1.0)
                      for at in (0, C))
        moved = max(abs(end[n].mean() - start[n].mean()) for n in end)
        parts.append((contrast(end, {small: 1, large: -1}), "larger", moved))
    unsolved, mastered = (c for c, *_ in parts)
    return judged(*parts) | dict(
        number=f"solved in none of {s}, n = {small} minus n = {large}: {points(unsolved)}",
        details=f"in % of the training problems at C = {format_si(C)}; "
        f"solved in {s - 1} or more of {s}: {points(mastered)}",
        figure=draw_view(atlas, "pass1", f"pass1_{task}", cells,
                         f"Pass rates of the training problems, {task.title()}"))


def two_n_row(atlas, arm, claim, pick):
    """Return (cells, title, part, row) for the comparison of two n of an arm at the end.

    pick(sorted n) returns (a list of larger n, a small n). The best of the larger n is compared
    with the small n, each n at its best lr_base. The results are
      cells  {n: {seed: run}} of the arm at a single lr_base (`at_one_lr`), for the figure
      title  the name of the model and the level of the problems
      part   (contrast, claim, gain of training). The caller passes it to `judged`
      row    the table row without its verdict
    """
    lr, _, cells, _ = at_one_lr(atlas, arm)
    if len(cells) < 2:
        raise Missing(f"two n of {arm}")
    cfg, (large, small) = config_of(cells), pick(sorted(cells))
    text, c, tuned, short = own_lr_gap(every_lr(atlas, arm, (*large, small)), large, small)
    details = f"{text}; at lr_base = {lr:g} {best_text(table_of(cells))}"
    if len(cells) > 2:
        details += f"; {shift_text(shift_of(cells))}"
    title = f"{Path(cfg['model']).name}, {level(cfg['train_set'])}"
    part = c, claim, gained(cells)
    return cells, title, part, dict(details=details, tuned=tuned, number=short)


def models(atlas):
    """Figure 12: for other base models, how much the best larger n gains over the smallest n.

    The figure shows the validation and the training reward of each model.
    """
    rows, arms, parts = {}, {}, []
    for name in atlas.present("models"):
        cells, title, part, row = two_n_row(atlas, name, "larger", lambda ns: (ns[1:], ns[0]))
        arms[title], rows[title] = cells, row
        parts.append(part)
    if not rows:
        raise Missing("an arm model_*")
    panels = []
    for title, cells in arms.items():
        panels += [curves(cells, f"{title}: validation"),
                   training(cells, "reward", f"{title}: training", "n = {}", "training reward")]
    title, first = next(iter(rows.items()))
    return judged(*parts) | dict(
        tuned=all(row["tuned"] for row in rows.values()), number=f"{title}: {first['number']}",
        details=". ".join(f"{title}: {row['details']}" for title, row in rows.items()),
        figure=figure(atlas, "models", panels, "Other base models, validation and training "
                      "reward", across=2 if len(arms) < 3 else 4))


def overfits(atlas):
    """Section 5.1: for other models on Easy, does the training reward of the largest n rise from
    the MIDDLE window to the LATE one, while its validation reward does not?"""
    found, g = {}, 0
    for name in atlas.present("models", recipe="easy"):
        cells = at_one_lr(atlas, name)[1]
        if len(cells) < 2:
            continue
        n = max(cells)
        largest = {n: cells[n]}
        now, before = (table_of(largest, window=window)[n] for window in (LATE, MIDDLE))
        trained = [table_of(largest, step_mean, field="reward", window=window)[n]
                   for window in (LATE, MIDDLE)]
        g = max(g, gained(largest))
        name = f"{Path(config_of(cells)['model']).name}, n = {n}"
        found[name] = change(*trained), change(now, before)
    if not found:
        raise Missing("two n of other models on Easy")
    said = [f"{name}: training {points(up)}, validation {points(down)}"
            for name, (up, down) in found.items()]
    parts = [(c, claim, g) for pair in found.values()
             for c, claim in zip(pair, ("larger", "not larger"))]
    return judged(*parts) | dict(number=said[0], details="; ".join(said), figure="models.png")


def size(atlas):
    """Figure 13: does a doubling of n add more with many training problems than with few?"""
    names = atlas.present("size")
    # all arms are compared at the same lr_base. Find the arm that was run at the fewest lr_base,
    # and take the smallest lr_base of this arm
    lrs = min(map(atlas.lrs, names), key=len, default={})
    if len(names) < 2 or not lrs:
        raise Missing("an arm size_* and an arm with another D")
    arms = [atlas.arm(name, lr=next(iter(lrs))) for name in names]
    arms = {config_of(cells)["D"] or math.inf: cells for cells in arms}
    ns = sorted(set.intersection(*map(set, arms.values())))
    if len(arms) < 2 or len(ns) < 2:
        raise Missing("two n at two D")
    cells, left = deep_cells({(D, n): arms[D][n] for D in sorted(arms) for n in ns},
                             "(D, n) = {}")
    table, ns = table_of(cells), sorted({n for _, n in cells})
    # the least-squares slope in log2 n is a weighted sum of rewards; these are the weights
    slope = dict(zip(ns, np.linalg.pinv([[1, math.log2(n)] for n in ns])[1]))
    few, many_D = min(arms), max(arms)
    tops = {D: max(ns, key=lambda n: table[D, n].mean()) for D in (few, many_D)}
    c = contrast(table, {(D, n): sign * w for n, w in slope.items()
                         for D, sign in ((many_D, 1), (few, -1))})
    g = gained(arms[many_D])
    row = judged((c, "larger", g)) | dict(tuned=False)
    if row["verdict"] == "confirmed" and tops[few] >= tops[many_D]:
        # the slope in log2 n is larger with many problems, but the best n is not larger
        row["verdict"] = "underpowered"
    names = {D: "all problems" if D == math.inf else f"D = {D:,}"
             for D in sorted(arms, reverse=True)}
    panels = [curves(arms[D], title) for D, title in names.items()]
    return row | dict(number="points for each doubling of n, "
                      f"{names[many_D]} minus {names[few]}: {points(c)}",
                      details=f"best n {tops[many_D]} and {tops[few]}{left}",
                      figure=figure(atlas, "size", panels, "The number of training problems D, "
                                    f"{titled(config_of(arms[many_D]))}", across=2))


def mixes(atlas):
    """Return ({mixture: {n: {seed: run}}}, {level: the name of its evaluations in the log}).

    Only the n that all mixtures have are included, and all runs are cut to one budget.
    """
    arms = {mix: atlas.arm(mix) for mix in MIXES}
    ns, C = sorted(set.intersection(*map(set, arms.values()))), min(map(budget_of, arms.values()))
    if len(ns) < 2:
        raise Missing("two n that all mixtures have")
    arms = {mix: cut({n: cells[n] for n in ns}, C) for mix, cells in arms.items()}
    # the log calls the first validation file "val", and other files by their names
    first = config.files(config_of(arms["mix_hard"])["val_set"])[0]
    return arms, {name: "val" if name in str(first) else name for name in LEVELS}


def mixtures(atlas):
    """Figure 14: how much the largest n gains over the smallest, for every mixture and level."""
    arms, sets = mixes(atlas)
    every = {(mix, n): runs for mix, cells in arms.items() for n, runs in cells.items()}
    tables = {name: table_of(every, of=of) for name, of in sets.items()}
    said, parts, panels, first = [], [], [], ""
    for mix, cells in arms.items():
        of_levels = []
        for name, of in sets.items():
            c = contrast(tables[name], {(mix, max(cells)): 1, (mix, min(cells)): -1})
            of_levels.append(points(c))
            panels.append(curves(cells, f"{level(mix)},\non {level(name)}", of=of,
                                 name=level(name)))
            # the claim is about the levels that the mixture has, but not about Very Easy
            if name == "extreme_val" or (name == "level_easy_val" and mix != "mix_hard"):
                parts.append((c, "larger", gained(cells, of=of)))
                first = first or f"trained and judged on Unsolved: {points(c)}"
        said.append(f"{level(mix)}: {' / '.join(of_levels)}")
    ends = f"n = {max(cells)} minus n = {min(cells)}"
    return judged(*parts) | dict(
        tuned=False, number=f"{ends}, {first}",
        details=f"{ends} on Unsolved / Easy / Very Easy, trained on {', '.join(said)}",
        figure=figure(atlas, "mixtures", panels, "Mixtures of levels (rows) on each level"
                      " (columns)", note="Unsolved: the paper's Hard, pass@128 = 0"))


def mix_difference(arms, of, one, other):
    """Return the contrast of training on two mixtures: `one` minus `other`, averaged over n.

    arms: {mixture: {n: {seed: run}}}. of: the validation set on which both are evaluated.
    """
    cells = {(mix, n): runs for mix in arms for n, runs in arms[mix].items()}
    weights = {(mix, n): sign / len(arms[mix]) for mix, sign in ((one, +1), (other, -1))
               for n in arms[mix]}
    return contrast(table_of(cells, of=of), weights)


def forgetting(atlas):
    """Figure 14: how much each mixture changes the reward on Easy and Very Easy problems.

    A change is the reward at the end of training minus the base model's reward, averaged over n.
    There are two claims. (1) Training on Unsolved problems alone lowers the reward on both levels.
    (2) On Easy, the mixture of Unsolved and Easy problems ends higher than Unsolved alone. For
    Unsolved alone, the table also has the change early in training, because the model may recover
    later.
    """
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
    mended = mix_difference(arms, sets["level_easy_val"], "mix_dual", "mix_hard")
    g = gained(arms["mix_dual"], of=sets["level_easy_val"])
    of_hard = found["mix_hard"]
    return judged(*((c, "smaller", g) for c in of_hard), (mended, "larger", g)) | dict(
        number=f"Unsolved alone, on Easy: {points(of_hard[0])} since the base model",
        figure="mixtures.png",
        details=f"on Easy {level('mix_dual')} minus Unsolved alone: {points(mended)}",
        table=markdown(["change since the base model, trained on", "to C",
                        *map(level, LEVELS[1:])], lines))


def very_easy(atlas):
    """Figure 14: how much the reward changes if a mixture also has Very Easy problems."""
    arms, sets = mixes(atlas)
    found = {name: mix_difference(arms, sets[name], "mix_tri", "mix_dual") for name in sets}
    said = ", ".join(f"on {level(name)} {points(c)}" for name, c in found.items())
    g = max(gained(cells, of=of) for cells in arms.values() for of in sets.values())
    return judged(*((found[name], "not larger", g) for name in LEVELS[:2])) | dict(
        figure="mixtures.png",
        number=f"with minus without them, on Easy: {points(found[LEVELS[1]])}",
        details=f"{level('mix_tri')} minus {level('mix_dual')}, mean over n: {said}")


def extreme(atlas, metric):
    """Figure 20: which n gives a model trained on Unsolved problems the highest `metric`?

    The claim for best@4: the largest n beats the best other n. The claim for worst@4: the best of
    the middle n beats both the smallest and the largest n. If the folder has the arm far_mix_hard,
    its runs are used instead of those of mix_hard, because they are longer.
    """
    cells = atlas.arm("mix_hard")
    if (atlas.folder / "far_mix_hard").is_dir():
        cells = atlas.arm("far_mix_hard", lr=config_of(cells)["lr_base"])
    if len(cells) < 3:
        raise Missing("three n of mix_hard")
    whole, (cells, left) = cells, deep_cells(cells)
    table = table_of(cells, metric=metric)
    first, *inner, last = sorted(table)
    pairs = {f"n = {last} minus the best smaller n": ([last], [first, *inner])}
    if metric == "worst@4":
        pairs = {f"the best between minus n = {end}": (inner, [end]) for end in (first, last)}
    found = {name: heldout_gap(table, pair)[1] for name, pair in pairs.items()}
    panels = []
    for m in METRICS[1:]:
        swept = analysed(whole, metric=m)
        lines = [dict(n=c.n, C=swept["grid"][c.alive], reward=c.mean[c.alive])
                 for c in swept["best_lr_cells"]]
        panels.append(frontier_panel(lines, m, swept["label"]))
    g = gained(cells, metric=metric)
    return judged(*((c, "larger", g) for c in found.values())) | dict(
        figure=figure(atlas, "extreme", panels, "Trained on Unsolved (the paper's Extremely Hard),"
                      " by metric", note=FRONTIER),
        number="; ".join(f"{name}: {points(c)}" for name, c in found.items()),
        details=f"To {format_si(budget_of(cells))}: {best_text(table)}{left}")


def ood(atlas):
    """Figure 23: how much the largest n gains over the smallest n on another set of problems."""
    cells = atlas.arm("ood")
    (path,) = Path(flat(cells)[0]["path"]).glob("log.jsonl*")
    sets = dict.fromkeys(r["set"] for r in read_log(path) if r["type"] == "eval")
    of = next((name for name in sets if name != "val"), "a second set")
    table = table_of(cells, of=of)
    small, large = min(table), max(table)
    if small == large:
        raise Missing(f"an n other than {small}")
    c = contrast(table, {large: 1, small: -1})
    base = table_of(cells, of=of, window=START)[small].mean()
    panels = [curves(cells, "in domain"), curves(cells, f"on {level(of)}", of=of)]
    return judged((c, "larger", gained(cells, of=of))) | dict(
        number=f"n = {large} minus n = {small}: {points(c)}",
        details=f"on {of}: base model {base:.3f}; at the end n = {means_text(table)}",
        figure=figure(atlas, "ood", panels, f"On another set of problems, trained on "
                      f"{titled(config_of(cells))}"))


def algo(atlas, arm, claim="larger", grows=False):
    """Figure 25, PPO and CISPO: how much the largest n gains over the smallest n.

    If the claim is "alike", the largest n is compared with the second largest. grows: True if it is
    also claimed that the lead of the largest n over the smallest is larger in the window LATE than
    in EARLY.
    """
    cells, _, part, row = two_n_row(
        atlas, arm, claim, lambda ns: (ns[-1:], ns[-2 if claim == "alike" else 0]))
    row |= judged(part)
    cfg = config_of(cells)
    panels = [curves(cells, f"{plural(cfg['updates'], 'update')} a batch")]
    if grows:
        small, *_, large = sorted(cells)
        at = {(n, when): t for when in (EARLY, LATE)
              for n, t in table_of(cells, window=when).items()}
        closer = contrast(at, {(large, LATE): 1, (small, LATE): -1,
                               (large, EARLY): -1, (small, EARLY): 1})
        row["details"] += f". From early to the end n = {large} gains {points(closer)}"
        verdict, times = judge(closer, "larger", gained(cells))
        if row["verdict"] != verdict:
            row |= dict(verdict="underpowered", times=max(row["times"], times))
    for other in atlas.present("algos", algo=cfg["algo"], recipe=cfg["recipe"]):
        # other arms of this algorithm are drawn too, for example CISPO with one update per batch
        if other != arm:
            of_other = atlas.arm(other)
            title = f"{plural(config_of(of_other)['updates'], 'update')} a batch"
            panels.append(curves(of_other, title))
            row["details"] += f"; {title}: {best_text(table_of(of_other))}"
    return row | dict(figure=figure(atlas, arm, panels, f"{cfg['algo'].upper()}, "
                                    f"{level(cfg['train_set'])}, B_p = {cfg['B_p']}"))


def baseline(atlas, of):
    """Figure 26: what if the baseline is the mean of n rollouts, and the loss uses n_train of them?

    of: "rollouts" compares runs after equally many rollouts, as in the paper's figure. "updates"
    compares them after equally many updates.
    """
    n, runs = next(iter(atlas.arm("decoupled").items()))
    cfg = config_of({n: runs})
    few = cfg["n_train"]
    other = next((name for name in atlas.present("baseline") if name != "decoupled"), None)
    if other is None:
        raise Missing("the runs whose loss has all of the baseline's rollouts")
    easy = atlas.arm(other, cfg["B_p"], [few, n], cfg["lr_base"])
    cells = cut({f"(1) {n} in baseline and loss": easy[n], f"(2) {few} in both": easy[few],
                 f"(3) {n} in the baseline, {few} in the loss": runs})
    of_many, of_few, decoupled = cells

    def at_end(run):
        # for equal updates, a run with a smaller batch ends after fewer rollouts
        share = run["n"] / n if of == "updates" else 1
        return rewards(run | dict(budget=run["budget"] * share))
    table = table_of(cells, at_end)
    a = contrast(table, {of_many: 1, decoupled: -1})
    b = contrast(table, {decoupled: 1, of_few: -1})
    g = gained({key: runs for key, runs in cells.items() if key != of_few})
    panels = [curves(cells, f"per {unit[:-1]}", label="{}", unit=unit)
              for unit in ("rollouts", "updates")]
    return judged((a, "larger", g), (b, "alike", g)) | dict(
        number=f"(1) minus (3) {points(a)}, (3) minus (2) {points(b)}",
        details=means_text(table), compared={},
        figure=figure(atlas, "baseline", panels, f"A baseline from more rollouts, {titled(cfg)}"))


def one_problem(atlas):
    """Appendix: how much n = 64 gains over n = 1 on one problem, by bandit_toy.py's figure."""
    spent = config.read_json(ROOT / "results/bandit/one.json")["spent"]["lr the same"]
    # (suboptimality, half of its 95% interval) for n = 1 and for n = 64
    (few, half), (many, other) = spent["1"], spent["64"]
    c = dict(gain=few - many, half=math.hypot(half, other))
    return dict(verdict="", number=f"n = 64 minus n = 1 at one lr: {points(c)} (95%)",
                details="see docs/toy.md", figure="../bandit/one.png" if atlas.own else "")


# ---- ours

def by_difficulty(atlas, small, large, *arms):
    """Is the lead of a large n over a small n larger on the hardest level than on the easiest?

    The lead is measured at the end, with each n at its best lr.
    """
    lines, found, tuned, g = [], {}, [], 0
    for arm in arms:
        cells = every_lr(atlas, arm, (small, large))
        if len(ns_of(cells)) < 2 or deep_cells(cells)[1]:
            continue
        start, g = table_of(cells, window=START), max(g, gained(cells))
        base, name = np.mean(list(start.values())), level(config_of(cells)["train_set"])
        gaps = [own_lr_gap(cells, [large], small, metric)[1] for metric in METRICS]
        found[name], seeds = (base, gaps), len(next(iter(start.values())))
        tuned.append(min(Counter(n for n, _ in cells).values()) > 2)
        lines.append([name, f"{base:.2f}", seeds, *map(points, gaps)])
    if len(found) < 3:
        raise Missing("three levels of difficulty with enough updates")
    # the levels have different problems, so their errors are independent
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
        # labels are rotated, because the hardest two levels are close to each other on the x axis
        for name, (base, _) in found.items():
            ax.annotate(name, (base, 1.01), xycoords=("data", "axes fraction"), rotation=40,
                        fontsize=9, ha="left", va="bottom")
        ax.axhline(0, color="0.3", lw=0.8)
        ax.set(xlabel="pass rate of the base model on the validation problems", ylabel="points, "
               f"n = {large} minus n = {small}\nover the last quarter, 90% intervals")
    heads = ["problems", "base model", "seeds", *METRICS]
    return judged((gap, "larger", g)) | dict(
        tuned=all(tuned), table=markdown(heads, lines),
        number=f"hardest minus easiest: {points(gap)}",
        details=f"n = {large} minus n = {small} over the last quarter, each at its best lr_base",
        figure=figure(atlas, "by_difficulty", [draw], "What a large n gains late"))
