"""tools/views.py: views of a sweep that only draw and print, for `frontier.py --view=NAME`.

No later stage needs the files of these views. Each view is a row of VIEWS in frontier.py.
docs/analysis.md says what each view shows.
"""
import functools
import math
from collections import Counter

import numpy as np
from scipy import stats

from config import BadInput, lr_factor
from core.plots import SHADES, budget_axis, canvas, colours, legend, log_ticks, save, format_si
from core.stats import (best, best_cell, by_B_p, cells_of, ci_half_width, covers, difference,
                        mean_over_runs, nearest, panel_of, tied_with_best)


def last_shared(cells):
    """Return the index of the largest budget at which all cells are alive, or None."""
    ok = np.flatnonzero(np.all([c.alive for c in cells], 0))
    return int(ok[-1]) if len(ok) else None


# --------------------------------------------------------------------------------------------------
# n*(C) by one lr rule for all n, and with the best lr for each n

def lr(sweep, cfg):
    """Return two panels: n*(C) at one lr_base for all n, and at the best lr_base of each n.

    The view uses the B_p with the most cells, and only the n that ran at several lr_base. The
    result also has
    - rule: the lr_base that the first panel uses for all n, taken from the best cell;
    - rows: the best lr_base of each n, at the largest budget that all cells of this n reached;
    - slope: the slope of log(best lr) over log B, with B = B_p n, in these rows, or None for fewer
      than two rows.
    """
    B_p, cells = max(by_B_p(sweep["all_cells"]).items(), key=lambda item: len(item[1]))
    tried = Counter(c.n for c in cells)
    if max(tried.values()) < 2:
        raise BadInput(f"--view=lr: {cfg['runs']} has only one lr_base; run several, as in "
                       f"--lrs=\"{sweep['lr'] / 2:g} {sweep['lr']:g} {2 * sweep['lr']:g}\"")
    runs = [run for c in cells if tried[c.n] > 1 for run in c.runs]
    (grid, cells), rows = cells_of(runs, cfg["metric"]), []
    end = last_shared(cells)
    rule = best_cell(cells, -1 if end is None else end).lr
    for n in sorted({c.n for c in cells}):
        cs = [c for c in cells if c.n == n]
        j = last_shared(cs)
        if j is not None:
            i = best(cs, j)
            rows.append(dict(n=n, C=grid[j], lrs=[c.lr for c in cs],
                             rewards=[c.mean[j] for c in cs], best=cs[i].lr,
                             near=[c.lr for c, tied in zip(cs, tied_with_best(cs, j)) if tied],
                             edge=i in (0, len(cs) - 1)))
    slope = None
    if len(rows) > 1:
        used = [r["best"] * lr_factor(B_p * r["n"], sweep["head"]["lr_scaling"]) for r in rows]
        slope = float(np.polyfit(np.log([r["n"] for r in rows]), np.log(used), 1)[0])
    panels = {f"lr_base = {rule:g} for all n": [c for c in cells if c.lr == rule],
              "the best lr_base for each n": cells}
    return dict(panels={name: panel_of(cs, grid) for name, cs in panels.items()}, B_p=B_p,
                rule=rule, rows=rows, slope=slope, runs=runs, covers=covers(cells))


def draw_lr(front, path):
    """Draw n*(C) of both panels on the left, and the lr of each n on the right."""
    fig, (axes,) = canvas(1, 2, (10.7, 4.8))
    for (name, panel), color, ls, lw in zip(front["panels"].items(), ("0.45", "black"),
                                            ("--", "-"), (3.2, 1.8)):
        axes[0].step(panel["envelope"]["C"], panel["envelope"]["n"], where="post", color=color,
                     ls=ls, lw=lw, label=name)
    ns = sorted({n for panel in front["panels"].values() for n in panel["ns"]})
    axes[0].set(yscale="log", ylabel="n*(C)", title="n*(C), two readings")
    log_ticks(axes[0].yaxis, ns)
    budget_axis(axes[0], *panel["range"], front["unit"])
    B_p, scaling = front["B_p"], front["config"]["lr_scaling"]
    for r in front["rows"]:
        used = lr_factor(B_p * r["n"], scaling)
        for lrs, style, color, size, label in (
                (r["lrs"], "o", "0.8", 5, "tried"),
                (r["near"], "o-", "0.4", 5, "tied with the best"),
                ([r["best"]], "D", "C3", 8, "the best")):
            axes[1].plot([r["n"]] * len(lrs), np.array(lrs) * used, style, color=color, ms=size,
                         lw=1.2, label=label)
    x = np.geomspace(ns[0], ns[-1], 50)
    axes[1].plot(x, [front["rule"] * lr_factor(B_p * n, scaling) for n in x], "--", color="0.3",
                 lw=1, label=f"the rule ({scaling}) at lr_base = {front['rule']:g}")
    axes[1].set(xscale="log", yscale="log", xlabel=f"n, at $B_p$ = {B_p}", ylabel="lr",
                title="the best lr at the largest shared budget")
    log_ticks(axes[1].xaxis, ns)
    legend(fig, axes)
    save(fig, path, front, "n*(C) by one lr rule and with the best lr for each n")


def describe_lr(front):
    """Yield the best lr of each n as lines of text."""
    for r in front["rows"]:
        edge = ", the smallest or the largest tried" if r["edge"] else ""
        yield (f"  n = {r['n']:<4} best lr_base {r['best']:g}{edge}, at C = {format_si(r['C'])}; "
               f"tied: {', '.join(f'{x:g}' for x in r['near'])}")
    if front["slope"] is not None:
        yield (f"  log(best lr) over log B has slope {front['slope']:.2f}; the square root rule "
               "has 0.5")


# --------------------------------------------------------------------------------------------------
# At one budget: reward over n and over B_p

@functools.cache
def range_of_noise(k):
    """Return the 95% quantile of max - min over k estimates that differ only by normal errors.

    The unit is the standard deviation of one estimate.
    """
    return stats.studentized_range.ppf(0.95, k, 1e4)


def sensitivity(sweep, cfg):
    """Return lines for a plot: reward over n at each B_p, and reward over B_p at each n.

    See section 4.2 of the paper. The rewards of a line are at the largest budget that all cells of
    the line reached. spread: the largest minus the smallest reward of a line. by_noise: the 95%
    quantile of spread if all cells were equally good.
    """
    lines = []
    for over, fixed in (("n", "B_p"), ("B_p", "n")):
        for value in sorted({getattr(c, fixed) for c in sweep["best_lr_cells"]}):
            cs = [c for c in sweep["best_lr_cells"] if getattr(c, fixed) == value]
            cs.sort(key=lambda c: getattr(c, over))
            j = last_shared(cs) if len(cs) > 1 else None
            if j is not None:
                means = np.array([c.mean[j] for c in cs])
                errors = [difference(a, b, j)[1:] for a, b in zip(cs, cs[1:])]
                error = np.mean([math.hypot(*e) for e in errors]) / math.sqrt(2)  # of one cell
                by_noise = range_of_noise(len(cs)) * error
                lines.append({"over": over, fixed: value, "C": sweep["grid"][j], "reward": means,
                              "x": [getattr(c, over) for c in cs],
                              "half": [ci_half_width(c, j) for c in cs],
                              "spread": float(np.ptp(means)), "by_noise": float(by_noise)})
    if not lines:
        raise BadInput(f"--view=sensitivity: {cfg['runs']} has no B_p with several n and no n with "
                       "several B_p; run more cells")
    return dict(lines=lines)


def line_colours(fixed, lines):
    """Return {value of `fixed`: colour} for the lines of `sensitivity`. fixed: "n" or "B_p". For
    B_p the colours are greys."""
    values = [line[fixed] for line in lines]
    greys = np.linspace(0, 0.75, len(values)).astype(str)
    return colours(values) if fixed == "n" else dict(zip(sorted(values), greys))


def draw_sensitivity(front, path):
    """Draw the lines over n on the left and the lines over B_p on the right."""
    fig, (axes,) = canvas(1, 2, (10.7, 5.2), sharey=True)
    for ax, over, fixed in zip(axes, ("n", "B_p"), ("B_p", "n")):
        lines = [line for line in front["lines"] if line["over"] == over]
        colour = line_colours(fixed, lines)
        for line in lines:
            label = (f"{fixed} = {line[fixed]}: spread {100 * line['spread']:.1f} points, by noise "
                     f"{100 * line['by_noise']:.1f}")
            ax.errorbar(line["x"], line["reward"], line["half"], color=colour[line[fixed]],
                        marker="o", ms=4, capsize=2, lw=1.4, label=label.replace("B_p", "$B_p$"))
        ax.set_xscale("log", base=2)
        log_ticks(ax.xaxis, sorted({x for line in lines for x in line["x"]}))
        ax.set(xlabel=over.replace("B_p", "$B_p$"),
               ylabel=f"{front['label']}, largest budget" if over == "n" else "")
        if lines:
            ax.legend(fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.13))
    save(fig, path, front, "How much the reward varies with n at fixed $B_p$, and with $B_p$ at "
         "fixed n")


def describe_sensitivity(front):
    """Yield a line of text for each line of the plot: the spread of the rewards, and the spread
    that noise alone can cause."""
    for line in front["lines"]:
        fixed = "B_p" if line["over"] == "n" else "n"
        yield (f"  over {line['over']} at {fixed} = {line[fixed]}: spread "
               f"{100 * line['spread']:.1f} points (noise makes up to "
               f"{100 * line['by_noise']:.1f}, 95%), C = {format_si(line['C'])}")


def slices(sweep, cfg):
    """Return slices for each B_p. A slice is the reward over n at one budget.

    The budgets are the largest one, and 1/2, 1/4 and 1/8 of it. A slice is a dict(B_p, C, n,
    reward, half, near, best). half: half of the 90% interval of the reward. near: the mask of the n
    that are tied with the best. best: the index of the best n.
    """
    grid, out = sweep["grid"], []
    for B_p, cs in by_B_p(sweep["best_lr_cells"]).items():
        for C in grid[-1] / 2.0 ** np.arange(3, -1, -1):
            j = nearest(grid, C)
            alive = [c for c in cs if c.alive[j]]
            if len(alive) > 1 and C > grid[0]:
                out.append(dict(B_p=B_p, C=grid[j], n=[c.n for c in alive], best=best(alive, j),
                                reward=[c.mean[j] for c in alive], near=tied_with_best(alive, j),
                                half=[ci_half_width(c, j) for c in alive]))
    if not out:
        raise BadInput(f"--view=slices: {cfg['runs']} has only one n for each B_p; run several")
    return dict(slices=out)


def draw_slices(front, path):
    """Draw the slices of each B_p, in the style of Hoffmann et al. 2022 (Figure 3)."""
    sizes = sorted({s["B_p"] for s in front["slices"]})
    cols = min(len(sizes), 3)
    rows = -(-len(sizes) // cols)
    fig, axes = canvas(rows, cols, (max(8.0, 4.6 * cols), 1.6 + 4.4 * rows), sharey=True)
    for ax in axes.flat[len(sizes):]:
        ax.set_visible(False)
    for ax, B_p in zip(axes.flat, sizes):
        lines = [s for s in front["slices"] if s["B_p"] == B_p]
        ns = sorted({n for s in lines for n in s["n"]})
        for i, s in enumerate(lines):
            # shift the points a little in n, so that the intervals of four budgets do not overlap
            shift = 2 ** (0.07 * (i - (len(lines) - 1) / 2))
            x, R = np.array(s["n"]) * shift, np.array(s["reward"])
            ax.errorbar(x, R, s["half"], color=SHADES[2 * i], marker="o", ms=4, lw=1.6,
                        capsize=2.5, label=f"C = {format_si(s['C'])}")
            tied = [j for j, ok in enumerate(s["near"]) if ok and j != s["best"]]
            ax.plot(x[tied], R[tied], "o", ms=10, mfc="none", mec=SHADES[2 * i],
                    label="tied with the best")
            ax.plot(x[s["best"]], R[s["best"]], "*", ms=12, color=SHADES[2 * i], zorder=5,
                    label="the best n of the budget")
        ax.set_xscale("log", base=2)
        log_ticks(ax.xaxis, ns)
        ax.set(xlabel="rollouts per problem n", title=f"$B_p$ = {B_p}",
               xlim=(ns[0] / 1.35, ns[-1] * 1.35))
        ax.grid(alpha=0.25)
    axes[0, 0].set_ylabel(front["label"])
    legend(fig, axes.flat)
    save(fig, path, front, f"Iso-compute slices: {front['label']} over n")


def describe_slices(front):
    """Yield a line of text for each slice: the best n, its reward, and the n tied with the best."""
    for s in front["slices"]:
        tied = [n for n, ok in zip(s["n"], s["near"]) if ok]
        yield (f"  B_p = {s['B_p']:<4} C = {format_si(s['C']):>6}: n = {s['n'][s['best']]:<4} "
               f"{s['reward'][s['best']]:.3f}; tied with the best: "
               f"{', '.join(map(str, tied))}")


# --------------------------------------------------------------------------------------------------
# Pass rates of the training problems

def thin(samples, correct, k):
    """Return the shares (k + 1,) of problems with 0, 1, ..., k solved rollouts out of k.

    samples, correct (P,): how many rollouts a problem has, and how many of them are solved. A run
    with a larger n has more rollouts per problem, so it has fewer problems with no solved rollout.
    To make runs comparable, k rollouts of each problem are drawn without replacement. The result is
    the exact mean over all possible draws, so no random numbers are needed. Problems with fewer
    than k rollouts are left out.
    """
    comb, out = math.comb, np.zeros(k + 1)
    tally = Counter((s, c) for s, c in zip(samples, correct) if s >= k)
    for (s, c), m in tally.items():
        out += m * np.array([comb(c, j) * comb(s - c, k - j) / comb(s, k) for j in range(k + 1)])
    return out / max(sum(tally.values()), 1)


def polarisation(samples, correct):
    """Return the polarisation 1 - E[p (1 - p)] / (E[p] (1 - E[p])) of the problems' pass rates p.

    samples, correct (P,): how many rollouts a problem has, and how many of them are solved. The
    polarisation is 0 if all problems have the same p, and 1 if every problem is always or never
    solved. It is NaN if E[p] is 0 or 1. The estimate of p (1 - p) is unbiased.
    """
    s, c = np.asarray(samples, float), np.asarray(correct, float)
    s, c = s[s > 1], c[s > 1]
    mean = (c / s).mean() if len(s) else math.nan
    if not 0 < mean < 1:
        return math.nan
    return 1 - (c * (s - c) / (s * (s - 1))).mean() / (mean * (1 - mean))


def pass1(sweep, cfg):
    """Return pass rates of the training problems during training (paper, section 5.1).

    The view uses the runs at the B_p that has the most values of n. nM: the largest n M that every
    run reached. passes: one dict for each run. Its `moments` are one dict for each train_pass
    record of the run. Its `matched` is the moment whose n M is nearest to nM.

    A train_pass record has the rollouts of all updates between two evaluations. With --pass_at
    there are also fresh records, whose rollouts are drawn from the policy at one update. If every
    run has fresh records, only these are used.
    """
    runs = [run for run in sweep["runs"] if run["passes"]]
    fresh = all(any(r.get("fresh") and r["rollouts"] for r in run["passes"]) for run in runs)
    runs = [dict(run, passes=[r for r in run["passes"] if bool(r.get("fresh")) == fresh])
            for run in runs]
    if len(runs) < 2:
        raise BadInput(f"--view=pass1: {len(runs)} runs in {cfg['runs']} have train_pass records; "
                       "expected two or more")
    cells = sorted({(run["B_p"], run["n"]) for run in runs})
    B_p = Counter(B_p for B_p, _ in cells).most_common(1)[0][0]
    runs = [run for run in runs if run["B_p"] == B_p]
    fewest = min(np.quantile(run["passes"][-1]["samples"], 0.1) for run in runs)
    k, end = int(min(16, max(2, fewest))), min(run["passes"][-1]["rollouts"] for run in runs)
    out = []
    for run in runs:
        moments = [dict(C=r["rollouts"], problems=len(r["ids"]), zero=share[0], one=share[-1],
                        share=share, polarisation=polarisation(r["samples"], r["correct"]))
                   for r in run["passes"] for share in [thin(r["samples"], r["correct"], k)]]
        at = min(moments, key=lambda m: abs(m["C"] - end))
        out.append(dict(run=run["run"], n=run["n"], seed=run["seed"], matched=at, moments=moments))
    return dict(B_p=B_p, k=k, nM=end / B_p, fresh=fresh, passes=out, covers="")


def four_of(count):
    """Return up to four indices spread evenly over `count` items."""
    return np.unique(np.linspace(0, count - 1, 4).round().astype(int))


def draw_pass1(front, path):
    """Draw the paper's Figures 11 and 27.

    The first panel of the upper row has the distribution of pass rates, at the same n M for all
    runs. The other three have, over C, the share of problems with no rollout solved, the share with
    all rollouts solved, and the polarisation. The lower row has the distribution of pass rates at
    up to four budgets, in one panel for each of up to four n.
    """
    k, colour = front["k"], colours({r["n"] for r in front["passes"]})
    fig, (axes, below) = canvas(2, 4, (12, 7.4))
    wide = 0.8 / k / len(colour)
    for i, n in enumerate(colour):
        seeds = [r for r in front["passes"] if r["n"] == n]
        style = dict(color=colour[n], label=f"n = {n}")
        share = np.mean([r["matched"]["share"] for r in seeds], 0)
        x = np.arange(k + 1) / k + (i - (len(colour) - 1) / 2) * wide
        axes[0].bar(x, share, width=wide, **style)
        for ax, key in zip(axes[1:], ("zero", "one", "polarisation")):
            for r in seeds:
                later = [m for m in r["moments"] if m["C"]]
                ax.plot([m["C"] for m in later], [m[key] for m in later], ".-", lw=1.4, ms=4,
                        **style)
                for m in r["moments"]:
                    if not m["C"]:  # C = 0 is not on the log axis, so draw a line at m[key]
                        ax.axhline(m[key], color="0.6", lw=1, ls=":", label="before training")
    axes[0].set(xlabel=f"solved of {k}, as a share", ylabel="share of the training problems",
                title=f"at n M = {format_si(front['nM'])}")
    names = f"share with 0 of {k} solved", f"share with {k} of {k} solved", "polarisation"
    for ax, name in zip(axes[1:], names):
        ax.set(xscale="log", xlabel="rollouts C", title=name)
        budget_axis(ax, *ax.get_xlim())
        ax.tick_params("x", rotation=45)  # because the panels are narrow
    ns = list(colour)
    shown = [ns[i] for i in four_of(len(ns))]
    for ax in below[len(shown):]:
        ax.set_visible(False)
    for ax in below[1:]:
        ax.sharey(below[0])
    for ax, n in zip(below, shown):
        seeds = [r["moments"] for r in front["passes"] if r["n"] == n]
        for j, shade in zip(four_of(len(seeds[0])), ("0.75", "0.5", "0.25", "black")):
            at = seeds[0][j]["C"]
            each = [min(moments, key=lambda m: abs(m["C"] - at))["share"] for moments in seeds]
            ax.stairs(np.mean(each, 0), (np.arange(k + 2) - 0.5) / k, color=shade, lw=1.4,
                      label=f"C = {format_si(at)}")
        ax.set(xlabel=f"solved of {k}, as a share", title=f"n = {n}, over time")
        ax.legend(fontsize=8)
    below[0].set_ylabel("share of the training problems")
    for ax in (*axes, *below):
        ax.title.set_fontsize(10)
    legend(fig, axes)
    source = "fresh rollouts" if front["fresh"] else "the rollouts of training"
    title = f"pass@1 of the training problems, $B_p$ = {front['B_p']}, from {source}"
    save(fig, path, front, title)


def describe_pass1(front):
    """Yield a line of text for each run: the pass rates in its `matched`, see `pass1`."""
    for r in front["passes"]:
        m = r["matched"]
        yield (f"  n = {r['n']:<4} seed {r['seed']}: at C = {format_si(m['C'])} {m['problems']} "
               f"problems, share with none of {front['k']} solved {m['zero']:.3f}, with all "
               f"{m['one']:.3f}, polarisation {m['polarisation']:.3f}")


# --------------------------------------------------------------------------------------------------
# The numbers of the updates

def training(sweep, cfg):
    """Return each numeric field of the step records as a curve over C, for each run at one B_p.

    The view uses the B_p with the most runs. The updates of a run are cut into at most 64
    stretches. The value of a field in a stretch is its mean over the updates, NaN if the log has no
    number there. If you add a field to the log, you need no code here.
    """
    runs = [run for run in sweep["runs"] if run["steps"]]
    if not runs:
        raise BadInput(f"--view=training: the logs in {cfg['runs']} have no records of updates")
    B_p, lines = Counter(run["B_p"] for run in runs).most_common(1)[0][0], []
    for run in (run for run in runs if run["B_p"] == B_p):
        C = run["steps"]["rollouts"]
        parts = np.array_split(np.arange(len(C)), min(64, len(C)))
        lines.append(dict(n=run["n"], seed=run["seed"], C=[C[part[-1]] for part in parts], fields={
            key: [mean_over_runs(x[part]) for part in parts] for key, x in run["steps"].items()
            if key not in ("step", "rollouts")}))
    fields = list(dict.fromkeys(key for line in lines for key in line["fields"]))
    return dict(B_p=B_p, fields=fields, lines=lines, covers="")


def draw_training(front, path):
    """Draw a panel for each field, with a line for each run, coloured by n."""
    fields, lines = front["fields"], front["lines"]
    colour, rows = colours({line["n"] for line in lines}), -(-len(fields) // 4)
    fig, axes = canvas(rows, 4, (14, 1 + 2.6 * rows))
    for ax in axes.flat[len(fields):]:
        ax.set_visible(False)
    for ax, key in zip(axes.flat, fields):
        for line in (line for line in lines if key in line["fields"]):
            ax.plot(line["C"], line["fields"][key], color=colour[line["n"]], lw=1,
                    label=f"n = {line['n']}")
        ax.set_title(key, fontsize=10)
        budget_axis(ax, min(line["C"][0] for line in lines), max(line["C"][-1] for line in lines))
    legend(fig, axes.flat[:len(fields)])
    save(fig, path, front, f"The log of the updates over rollouts, $B_p$ = {front['B_p']}")


def describe_training(front):
    """Yield a line of text for each field: its mean for each n, over the seeds and the last stretch
    of updates."""
    for key in front["fields"]:
        ends = {}
        for line in front["lines"]:
            last = line["fields"].get(key, [math.nan])[-1]
            if math.isfinite(last):
                ends.setdefault(line["n"], []).append(last)
        yield f"  {key} at the end: " + ", ".join(
            f"n = {n} {np.mean(ends[n]):.4g}" for n in sorted(ends))
