"""views.py: the paper's figures from a sweep's logs, each with its numbers, drawing and words.

    python frontier.py --runs=runs/easy                  # is this script: --view=fixed_Bp
    python views.py --runs=runs/easy --view=all          # all but compare; words: report.txt
    python views.py --runs="runs/easy runs/easy:train runs/hard" --view=compare

| view        | what                                                          | paper         |
| fixed_Bp    | n against M, a panel for each B_p                             | section 4.1   |
| fixed_B     | B_p n <= B, over M, a panel for each B                        | section 4.2   |
| joint       | best over (B_p, n), the smallest stable B_p                   | section 4.3   |
| lr          | n against M by one lr rule, and with the best lr for each n   | ours          |
| best_worst  | the best n by metric                                          | section 4.1   |
| sensitivity | reward over n at each B_p and over B_p at each n              | section 4.2   |
| paper       | the paper's way and ours beside each other                    | Figs 5 to 7   |
| slices      | reward over n at four budgets; over (B_p, n) at one           | (Chinchilla)  |
| pass1       | pass rates of the training problems at matched n M            | section 5.1   |
| compare     | several sweeps, or folder:train, folder:SET, folder:best@4    | Figs 12 to 25 |

Each view writes `frontier_VIEW.json` and `.png` (fixed_Bp: `frontier.*`) to `out`, else to `runs`.
Where a sweep has several lr_base (`lrs`), all views but lr show the one that is best for all n.
To add one: a function (sweep, cfg) -> content, one (front, path) that draws it, one (front) ->
lines of text, a row in VIEWS, and its name in CHOICES of config.py. `covers` in the content says
what its intervals cover, "none" where it has none.

Needs config.py, frontier.py, noise.py, fit_sigmoid.py, prescribe.py, paper.py, slices.py;
matplotlib for the figures.
"""
import math
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

import frontier
from config import (BadInput, aside, complete, entry, lr_factor, parse, read_log, read_plan,
                    save_json)
from fit_sigmoid import law_at, law_of_records
from frontier import budget_ticks, colours, ended, missing_cells, read_runs, save, si
from noise import (add_points, at_end, best_of, cells_of, coverage, declining, gain, grid_edge,
                   half_width, indistinguishable, panel_of, unpruned, values_at)
from paper import draw_paper, paper, say_paper
from prescribe import options, predict, say_missing
from slices import draw_slices, say_slices, slices


# --------------------------------------------------------------------------------------------------
# Panels: n against M (fixed_Bp), the joint best, B_p n <= B, several sweeps

def with_law(panel):
    """A panel with the paper's law through its record-breaking points, for the figure."""
    law, C = law_of_records(panel["records"]), np.geomspace(*panel["range"], 100)
    if law:
        panel["records"]["law"] = law["fit"] | dict(C=C, n=2 ** law_at(law["fit"], C))
    return panel


def fixed_Bp(sweep, cfg):
    """A panel for each B_p: n against M (paper, section 4.1)."""
    panels = {}
    for B_p in sorted({c["B_p"] for c in sweep["cells"]}):
        cs = [c for c in sweep["cells"] if c["B_p"] == B_p]
        panel = panel_of(cs, sweep["grid"], cfg, cfg["unit"])
        panels[f"B_p={B_p}"] = with_law(add_points(panel, cs, sweep["grid"], cfg)) | dict(
            smoothness=sweep["lam"], prediction=predict(cs, sweep["grid"], sweep["lam"]),
            runs_dropped=[d for d in sweep["dropped"] if d.get("B_p") == B_p])
    return dict(panels=panels)


def joint(sweep, cfg):
    """One panel, best over (B_p, n) at each budget, with the pair, B*(C), and the smallest stable
    B_p (section 4.3)."""
    cells = sweep["cells"]
    panel = panel_of(best_of(cells), sweep["grid"], cfg, cfg["unit"], cells)
    env = panel["envelope"]
    B_p, n = int(env["B_p"][-1]), env["n"][-1]
    ns, sizes = ({c[a] for c in cells if c[b] == at}
                 for a, b, at in (("n", "B_p", B_p), ("B_p", "n", n)))
    edges = [grid_edge(sorted(ns), n, B_p, env["C"][-1], cfg),
             grid_edge(sorted(sizes), B_p, n, env["C"][-1], cfg, "B_p")]
    panel["edge"] = next((e for e in edges if e and e["add"]), edges[0] or edges[1])
    pairs = [(int(b), int(n)) for b, n in zip(env["B_p"], env["n"])]
    starts = [0] + [i for i in range(1, len(pairs)) if pairs[i] != pairs[i - 1]]
    panel["segments"] = []
    for i in starts:
        B_p, n = pairs[i]
        panel["segments"].append(dict(C=env["C"][i], B_p=B_p, n=n, B=B_p * n,
                                      reward=env["highest"][i]))
    panel["B_star"] = [b * n for b, n in pairs]
    panel["stable_B_p"] = smallest_stable(stability(cells))
    return dict(panels={"joint": panel})


def stability(cells):
    """{B_p: (runs that diverged or declined, runs)}, the smallest B_p first."""
    out = {}
    for c in sorted(cells, key=lambda c: c["B_p"]):
        bad, runs = out.get(c["B_p"], (0, 0))
        fallen = [r for r in c["runs"] if r["status"] == "diverged" or declining([r])]
        out[c["B_p"]] = bad + len(fallen), runs + len(c["runs"])
    return out


def smallest_stable(by_B_p):
    """The smallest B_p of `stability` of which at most one run in ten fell, None without one: 1
    steady run in 40 seems to decline by chance."""
    return min((b for b, (bad, runs) in by_B_p.items() if bad <= runs / 10), default=None)


def fixed_B(sweep, cfg):
    """A panel for each B with two cells or more of B_p n = B: the best with B_p n <= B after M
    updates (section 4.2).

    Budgets are updates here. n*(M) is fitted; at a full batch B_p*(M) = B / n*(M) is the same law.
    """
    by_updates = [run | dict(C=run["step"], per_rollout=1 / (run["B_p"] * run["n"]))
                  for run in sweep["runs"]]
    sweep = analyse(cfg, runs=by_updates, dropped=sweep["dropped"])
    full = Counter(c["B_p"] * c["n"] for c in sweep["cells"])
    most = sorted((B for B in full if full[B] > 1), key=lambda B: -full[B])[:3]
    if not most:
        raise BadInput(f"--view=fixed_B: {cfg['runs']} has no two cells with one B = B_p n, so "
                       "there is nothing to trade")
    panels = {}
    for B in sorted(most):
        # smaller batches make more updates of a budget; the question ends where full batches do
        end = max(c["reach"][1] for c in sweep["cells"] if c["B_p"] * c["n"] == B) * (1 + 1e-9)
        several = []
        for c in sweep["cells"]:
            if c["B_p"] * c["n"] <= B and c["reach"][0] <= end:
                several.append(dict(c, Y=np.where(sweep["grid"] <= end, c["Y"], np.nan),
                                    inside=c["inside"] & (sweep["grid"] <= end),
                                    reach=(c["reach"][0], min(c["reach"][1], end))))
        panel = panel_of(best_of(several), sweep["grid"], sweep["cfg"], "updates", several)
        edge = panel["edge"]
        if edge and edge["add"]:  # at a full batch another n is another B_p
            n, text = edge["add"]["n"], edge["text"].split(";")[0].replace("C =", "M =")
            edge.update(add=None, text=text)
            if n <= B:
                edge.update(add=dict(B_p=B // n, n=n),
                            text=f"{text}; add B_p = {B // n}, n = {n} next")
        panels[f"B={B}"] = panel | dict(B=B)
    return dict(panels=panels, unit="updates", budget=max(p["range"][1] for p in panels.values()))


def compare(cfg):
    """The same frontier for several sweeps side by side: --runs="A B:train C:SET C:best@4", each
    analysed on its own."""
    entries, sweeps = [], []
    for word in cfg["runs"].split():
        folder, *rest = word.split(":")
        part, metric = "", cfg["metric"]
        for r in rest:
            metric, part = (r, part) if "@" in r else (metric, r)
        sweep = analyse(dict(cfg, runs=folder, metric=metric), part)
        sizes = Counter(c["B_p"] for c in sweep["cells"])
        B_p = max(sizes, key=lambda b: (sizes[b], -b))
        cs = [c for c in sweep["cells"] if c["B_p"] == B_p]
        panel = panel_of(cs, sweep["grid"], sweep["cfg"], cfg["unit"])
        panel = add_points(panel, cs, sweep["grid"], cfg)
        sweeps.append(sweep)
        entries.append((f"{word}, B_p={B_p}",
                        with_law(panel) | dict(metric=sweep["label"], covers=sweep["covers"])))
    if len(entries) < 2:
        raise BadInput(f'--runs={cfg["runs"]}: --view=compare wants two sweeps, with a space '
                       'between, as in --runs="A B"')
    covers = dict.fromkeys(part for s in sweeps for part in s["covers"].split("; "))
    every = {key: [x for s in sweeps for x in s[key]] for key in ("runs", "dropped", "cells")}
    return sweeps[0] | every | dict(label="reward", covers="; ".join(covers)), dict(
        panels=dict(entries))


def say_panels(front):
    """Panels as lines of text: switches, the end of the frontier, what the grid leaves open."""
    for name, panel in front["panels"].items():
        yield f"\n{name}:"
        metric = panel.get("metric") or front["metric"]
        yield f"  {'C':>8}  {'n':>12}  {'M':>7}  {metric:>9}  90% interval of C"
        for s in panel["switches"]:
            lo, hi = ("open" if s[end] is None else si(s[end]) for end in ("lo", "hi"))
            known = s["why"] == "crossing" and panel["envelope"]["lo"] is not None
            interval = f"{lo} to {hi}" if known else "none"
            note = "  (its runs begin here)" if s["why"] == "begins" else ""
            yield (f"  {si(s['C']):>8}  {s['from']:>4} -> {s['to']:<4}  {si(s['M']):>7}  "
                   f"{s['reward']:>9.3f}  {interval}{note}")
        if not panel["switches"]:
            yield f"  none: n = {panel['envelope']['n'][0]} is the best at every budget"
        for s in panel.get("segments", ()):
            yield (f"  from C = {si(s['C'])}: B_p = {s['B_p']}, n = {s['n']}, B = {s['B']}, "
                   f"{s['reward']:.3f}")
        if "stable_B_p" in panel:
            smallest = panel["stable_B_p"] or "none"
            yield f"  smallest B_p of which at most one run in ten diverged or declines: {smallest}"
        for r in front["runs_used"]:
            mine = "records" in panel and r["B_p"] == panel["B_p"] and front["view"] == "fixed_Bp"
            if mine and r["gain"] is not None:
                yield (f"  n = {r['n']:<4} seed {r['seed']}: {r['last']:.3f} at C = {si(r['C'])}, "
                       f"{r['gain']:+.3f} [{r['lo']:+.3f}, {r['hi']:+.3f}] over the base model")
        yield from say_end(panel)


def say_end(panel):
    """The end of a panel's frontier and its caveats, as lines of text."""
    env, near = panel["envelope"], panel["near"][-1]["set"]
    others = [n for n in near if n != env["n"][-1]]
    text = f"  at C = {si(env['C'][-1])}: n = {env['n'][-1]}, {env['reward'][-1]:.3f}"
    if env["lo"] is not None:
        text += f" [{env['lo'][-1]:.3f}, {env['hi'][-1]:.3f}]"
    if panel.get("base") is not None:
        text += f", base model {panel['base']:.3f}"
    if others:
        text += f"; indistinguishable from it: n = {', '.join(map(str, others))}"
    yield text
    cuts = np.flatnonzero(np.diff(env["n"]) | np.diff(env["carried"])) + 1
    for piece in np.split(np.arange(len(env["n"])), cuts):
        if env["carried"][piece[0]]:
            first, last = (si(env["C"][i]) for i in piece[[0, -1]])
            yield (f"  from C = {first} to {last} the best so far of n = {env['n'][piece[0]]} "
                   "stands: its runs end there")
    yield f"  bias of choosing the best: {panel['curse']}"
    last = panel["last"]
    yield (f"  by the last checkpoint, not the best so far: n = {last['n'][-1]}, "
           f"{last['reward'][-1]:.3f}")
    if "records" in panel and panel["records"]["above"] is not None:
        yield (f"  the paper's way lies {100 * panel['records']['above']:+.1f} points from this "
               "frontier, on average over log C: maxima of noisy evaluations")
    if panel["edge"]:
        yield f"  edge: {panel['edge']['text']}"
    for d in panel.get("declines", ()):
        yield (f"  {d['run']} declines: {d['fall']:.3f} +- {d['se']:.3f} below its best at C = "
               f"{si(d['since'])}, which its monotone curve hides (beyond 2 standard errors, as 1 "
               "steady run in 40 is by chance)")


# --------------------------------------------------------------------------------------------------
# The learning rate as a dimension: n*(C) by one rule for all n, and with each n at its best lr

def one_lr(cells):
    """The lr_base that is best for all n: of those with most runs, the highest mean at the end."""
    by_lr = {lr: [c for c in cells if c["lr"] == lr] for lr in sorted({c["lr"] for c in cells})}
    runs = {lr: sum(len(c["runs"]) for c in cs) for lr, cs in by_lr.items()}
    by_lr = {lr: cs for lr, cs in by_lr.items() if runs[lr] == max(runs.values())}
    j = at_end([c for cs in by_lr.values() for c in cs])
    at = -1 if j is None else j
    return max(by_lr, key=lambda lr: np.mean([c["Y"][at] for c in by_lr[lr]]))


def of_shared_seeds(runs):
    """The runs of the seeds that all cells (B_p, n, lr) have, or all runs where there are none: of
    cells with other seeds one can look better for its seeds alone."""
    seeds = {}
    for run in runs:
        seeds.setdefault((run["B_p"], run["n"], run["lr"]), set()).add(run["seed"])
    shared = set.intersection(*seeds.values())
    return [run for run in runs if run["seed"] in shared] if shared else runs


def lr(sweep, cfg):
    """n*(C) at the one lr_base that is best for all n, and with the best one for each n at each C;
    what the second is worth; and how the best lr follows B = B_p n, at the largest shared budget.

    Of one B_p, that with most cells; of its n those with several lr_base, where any has, as one at
    a single lr_base compares none; of the seeds that all these cells have. The frontiers are scored
    on seeds that did not choose. slope: of log(best lr) over log B, 0.5 by the square root rule,
    with its 90% interval.
    """
    _, _, cells = sweep["every"]
    if len({c["lr"] for c in cells}) < 2:
        raise BadInput(f"--view=lr: {cfg['runs']} has one lr_base; run several, as in "
                       f"--lrs=\"{sweep['lr'] / 2:g} {sweep['lr']:g} {2 * sweep['lr']:g}\"")
    B_p = Counter(c["B_p"] for c in cells).most_common(1)[0][0]
    tried = Counter(c["n"] for c in cells if c["B_p"] == B_p)
    least = min(2, max(tried.values()))
    runs = of_shared_seeds([run for run in every_run(sweep)
                            if run["B_p"] == B_p and tried[run["n"]] >= least])
    grid, _, cells = cells_of(runs, cfg["metric"], cfg)
    rule = one_lr(cells)
    sets = [c for c in cells if c["lr"] == rule], best_of(cells)
    names = f"lr_base = {rule:g} for all n", "the best lr_base for each n"
    panels = {name: panel_of(cs, grid, cfg, cfg["unit"], several) for name, cs, several in
              zip(names, sets, (None, cells))}
    shared = np.isin(grid, panels[names[0]]["envelope"]["C"])
    shared &= np.isin(grid, panels[names[1]]["envelope"]["C"])
    fair, drawn = [], []  # of each frontier: its reward; draws of one that chooses and of one that
    for name, cs in zip(names, (sets[0], cells)):  # scores: choosing a cell is part of the noise
        Y, noise = (np.array([c[key][..., shared] for c in cs]) for key in ("Y", "noise"))
        draws = Y[:, None] + noise  # (N, K, G)
        pick = np.where(np.isnan(draws), -np.inf, draws).argmax(0)
        drawn.append(np.take_along_axis(np.roll(draws, 1, axis=1), pick[None], 0)[0])
        env = panels[name]["envelope"]
        fair.append(np.array(env["reward"])[np.isin(env["C"], grid[shared])])
    worth, drawn = fair[1] - fair[0], drawn[1] - drawn[0]
    half = half_width(drawn - drawn.mean(0)) if cfg["boot"] else np.full(len(worth), np.nan)
    rows = []
    for n in sorted({c["n"] for c in cells}):
        cs = sorted((c for c in cells if c["n"] == n), key=lambda c: c["lr"])
        j = at_end(cs)
        if j is not None and len(cs) > 1:
            Y, noise = values_at(cs, j)
            drawn = np.array([c["lr"] for c in cs])[(Y + noise).argmax(1)]
            rows.append(dict(n=n, C=grid[j], lrs=[c["lr"] for c in cs], rewards=Y,
                             best=cs[int(Y.argmax())]["lr"], drawn=drawn,
                             near=[c["lr"] for c, ok in zip(cs, indistinguishable(Y, noise)) if ok],
                             edge=int(Y.argmax()) in (0, len(cs) - 1)))
    B = np.array([B_p * r["n"] for r in rows])

    def slope(lrs):  # lr_base is what the rule leaves: constant where it holds
        used = np.array(lrs) * [lr_factor(b, sweep["head"]["lr_scaling"]) for b in B]
        return np.polyfit(np.log(B), np.log(used), 1)[0] if len(B) > 1 else math.nan
    drawn = [slope(lrs) for lrs in zip(*(r.pop("drawn") for r in rows))]
    return dict(panels=panels, B_p=B_p, rule=rule, rows=rows, runs=runs, covers=coverage(runs, cfg),
                seeds=sorted({run["seed"] for run in runs}), slope=slope([r["best"] for r in rows]),
                slope_interval=list(np.percentile(drawn, [5, 95])) if drawn else None,
                worth=dict(C=grid[shared], reward=worth, half=half))


def draw_lr(front, path):
    fig, axes = canvas(3, (12.5, 4.8))
    styles = dict(zip(front["panels"], (("0.45", "--", 3.2), ("black", "-", 1.8))))
    for name, panel in front["panels"].items():
        color, ls, lw = styles[name]
        env = panel["envelope"]
        axes[0].step(env["C"], env["n"], where="post", color=color, ls=ls, lw=lw, label=name)
    ns = sorted({n for panel in front["panels"].values() for n in panel["ns"]})
    axes[0].set(yscale="log", ylabel="n*(C)", title="n*(C), two readings")
    axes[0].set_yticks(ns, map(str, ns))
    worth = {key: 100 * np.array(v, float) for key, v in front["worth"].items()}
    C = worth["C"] / 100
    axes[1].fill_between(C, worth["reward"] - worth["half"], worth["reward"] + worth["half"],
                         color="0.86", lw=0)
    axes[1].plot(C, worth["reward"], color="C0")
    axes[1].axhline(0, color="0.3", lw=0.8)
    axes[1].set(ylabel="points of reward", title="what each n's own best lr is worth")
    for ax in axes[:2]:
        ax.set(xscale="log", xlabel=frontier.AXIS[front["unit"]])
        budget_ticks(ax, C[0], C[-1])
        ax.minorticks_off()
    some, B_p = front["rows"], front["B_p"]
    scaling = front["config"]["lr_scaling"]
    for r in some:
        used = lr_factor(B_p * r["n"], scaling)
        axes[2].plot([r["n"]] * len(r["lrs"]), np.array(r["lrs"]) * used, "o", color="0.8", ms=5,
                     label="tried")
        axes[2].plot([r["n"]] * len(r["near"]), np.array(r["near"]) * used, "o-", color="0.4",
                     lw=1.2, ms=5, label="indistinguishable from the best")
        axes[2].plot(r["n"], r["best"] * used, "D", color="C3", ms=8, label="the best")
    x = np.geomspace(ns[0], ns[-1], 50)
    axes[2].plot(x, [front["rule"] * lr_factor(B_p * n, scaling) for n in x], "--", color="0.3",
                 lw=1, label=f"the rule ({scaling}) at lr_base = {front['rule']:g}")
    axes[2].set(xscale="log", yscale="log", xlabel=f"n, at $B_p$ = {B_p}", ylabel="lr",
                title="the best lr at the largest shared budget")
    axes[2].set_xticks(ns, map(str, ns))
    lrs = sorted({x * lr_factor(B_p * r["n"], scaling) for r in some for x in r["lrs"]})
    lrs = lrs if len(lrs) < 9 else lrs[::2]
    axes[2].set_yticks(lrs, [f"{x:.2g}" for x in lrs])
    axes[2].minorticks_off()
    for ax in axes:
        ax.title.set_fontsize(10)
    legend(fig, axes)
    save(fig, path, front, "n*(C) by one lr rule and with the best lr for each n")


def say_lr(front):
    yield from say_panels(front)
    yield f"\nseeds compared, those that all cells have: {', '.join(map(str, front['seeds']))}"
    yield "\nwhat the best lr for each n is worth:"
    for i in sorted({0, len(front["worth"]["C"]) // 2, len(front["worth"]["C"]) - 1}):
        C, reward, half = (front["worth"][key][i] for key in ("C", "reward", "half"))
        yield (f"  at C = {si(C)} {100 * reward:+.1f} +- {100 * half:.1f} points over "
               f"lr_base = {front['rule']:g} for all n")
    for r in front["rows"]:
        edge = ", at the edge of those tried" if r["edge"] else ""
        near = ", ".join(f"{x:g}" for x in r["near"])
        yield (f"  n = {r['n']:<4} best lr_base {r['best']:g}{edge}, at C = {si(r['C'])}; "
               f"indistinguishable: {near}")
    if front["slope_interval"]:
        lo, hi = front["slope_interval"]
        yield (f"  log(best lr) over log B has slope {front['slope']:.2f} [{lo:.2f}, {hi:.2f}]; "
               "0.5 is the square root rule")


# --------------------------------------------------------------------------------------------------
# The best n by metric

def best_worst(sweep, cfg):
    """The best n at the largest shared budget by metric, avg@k, best@k and worst@k, and B_p
    (section 4.1, observation 4)."""
    if sweep["runs"][0]["counts"] is None:
        raise BadInput(f"--view=best_worst: {cfg['runs']}: needs counts per problem, as evaluations"
                       " of our trainer have")
    bars = []
    for kind in ("avg", "best", "worst"):
        metric = f"{kind}@{cfg['k']}"
        grid, _, found = cells_of(sweep["runs"], metric, cfg)
        for B_p in sorted({c["B_p"] for c in found}):
            cs = unpruned([c for c in found if c["B_p"] == B_p])
            j = at_end(cs) if cs else None
            if j is not None:
                Y, noise = values_at(cs, j)
                same = indistinguishable(Y, noise)
                bars.append(dict(metric=metric, B_p=B_p, C=grid[j], n=cs[int(Y.argmax())]["n"],
                                 reward=Y.max(), ns=[c["n"] for c in cs], rewards=Y,
                                 near=[c["n"] for c, ok in zip(cs, same) if ok]))
    return dict(bars=bars)


def draw_best_worst(front, path):
    fig, ax = canvas(1, (10.7, 4.6))
    metrics, sizes = (list(dict.fromkeys(b[key] for b in front["bars"]))
                      for key in ("metric", "B_p"))
    for b in front["bars"]:
        i = metrics.index(b["metric"])
        x = sizes.index(b["B_p"]) + 0.27 * (i - 1)
        ax.bar(x, b["n"], width=0.24, color=("0.55", "C0", "C1")[i], label=b["metric"])
        ax.plot([x] * len(b["near"]), b["near"], "s-k", lw=1.3, ms=4,
                label="n indistinguishable from the best")
        ax.annotate(f"n = {b['n']}", (x, b["n"]), (6, 4), textcoords="offset points", fontsize=9)
    ns = sorted({n for b in front["bars"] for n in b["ns"]})
    ax.set(yscale="log", ylim=(ns[0] / 2, ns[-1] * 2), ylabel="best n",
           xlabel="$B_p$, at its runs' largest budget")
    ax.set_yticks(ns, map(str, ns))
    first = [b for b in front["bars"] if b["metric"] == metrics[0]]
    ax.set_xticks(range(len(sizes)), [f"{b['B_p']}\n(C = {si(b['C'])})" for b in first])
    ax.minorticks_off()
    legend(fig, [ax])
    save(fig, path, front, "The best n by metric")


def say_best_worst(front):
    for b in front["bars"]:
        near = ", ".join(map(str, b["near"]))
        yield (f"  B_p = {b['B_p']:<4} {b['metric']:>8}: n = {b['n']:<4} {b['reward']:.3f} at C = "
               f"{si(b['C'])}; indistinguishable from the best: {near}")


# --------------------------------------------------------------------------------------------------
# How much the reward varies with n and with B_p

def spread(Y, noise):
    """Largest less smallest of rewards Y (N,), and the 95th percentile of what noise (K, N) alone
    makes of it."""
    by_noise = float(np.percentile(np.ptp(noise, axis=1), 95)) if len(noise) else None
    return dict(spread=float(np.ptp(Y)), by_noise=by_noise)


def sensitivity(sweep, cfg):
    """Best reward over n at fixed B_p and over B_p at fixed n, at the largest shared budget, with
    spreads (section 4.2)."""
    lines = []
    for over, fixed in (("n", "B_p"), ("B_p", "n")):
        for value in sorted({c[fixed] for c in sweep["cells"]}):
            cs = [c for c in unpruned(sweep["cells"]) if c[fixed] == value]
            cs.sort(key=lambda c: c[over])
            j = at_end(cs) if len(cs) > 1 else None
            if j is not None:
                Y, noise = values_at(cs, j)
                half = half_width(noise) if len(noise) else np.full(len(cs), np.nan)
                lines.append({"over": over, fixed: value, "C": sweep["grid"][j], "half": half,
                              "x": [c[over] for c in cs], "reward": Y} | spread(Y, noise))
    if not lines:
        raise BadInput(f"--view=sensitivity: {cfg['runs']} has one cell for each n and each B_p, "
                       "there is nothing to vary")
    return dict(lines=lines)


def draw_sensitivity(front, path):
    fig, axes = canvas(2, (10.7, 5.2), sharey=True)
    for ax, over, fixed in zip(axes, ("n", "B_p"), ("B_p", "n")):
        lines = [line for line in front["lines"] if line["over"] == over]
        colour = colours([line[fixed] for line in lines]) if lines else {}
        for line in lines:
            label = f"{fixed} = {line[fixed]}: spread {100 * line['spread']:.1f} points"
            if line["by_noise"] is not None:
                label += f", noise alone {100 * line['by_noise']:.1f}"
            ax.errorbar(line["x"], line["reward"], line["half"], color=colour[line[fixed]],
                        marker="o", ms=4, capsize=2, lw=1.4, label=label.replace("B_p", "$B_p$"))
        ticks = sorted({x for line in lines for x in line["x"]})
        ax.set_xscale("log", base=2)
        ax.set_xticks(ticks, map(str, ticks))
        ax.set(xlabel=over.replace("B_p", "$B_p$"),
               ylabel=f"{front['label']}, largest budget" if over == "n" else "")
        if lines:
            ax.legend(fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.13))
    save(fig, path, front, "How much the reward varies with n at fixed $B_p$, and with $B_p$ at "
         "fixed n")


def say_sensitivity(front):
    for line in front["lines"]:
        fixed = "B_p" if line["over"] == "n" else "n"
        noise = ""
        if line["by_noise"] is not None:
            noise = f" (noise alone makes up to {100 * line['by_noise']:.1f}, 95%)"
        points = f"{100 * line['spread']:.1f} points"
        yield (f"  over {line['over']} at {fixed} = {line[fixed]}: spread {points}{noise}, C = "
               f"{si(line['C'])}")


# --------------------------------------------------------------------------------------------------
# Pass rates of the training problems

def thin(samples, correct, k):
    """Pass rates as if each problem had k rollouts: samples, correct (P,) -> (k + 1,), the share of
    problems with c = 0..k solved.

    Runs differ in n, so in rollouts per problem, and the share at 0 falls with them; k drawn
    without replacement makes them equal, exactly and without drawing: the hypergeometric mean.
    Problems with fewer than k are left out.
    """
    comb, out = math.comb, np.zeros(k + 1)
    tally = Counter((s, c) for s, c in zip(samples, correct) if s >= k)
    for (s, c), m in tally.items():
        out += m * np.array([comb(c, j) * comb(s - c, k - j) / comb(s, k) for j in range(k + 1)])
    return out / max(sum(tally.values()), 1)


def polarisation(samples, correct):
    """1 - E[p (1 - p)] / (mean p (1 - mean p)) over problems, from unbiased estimates of p (1 - p):
    0 where all problems have one pass rate, 1 where each is always or never solved.

    samples, correct (P,). NaN where the mean is 0 or 1.
    """
    s, c = np.asarray(samples, float), np.asarray(correct, float)
    s, c = s[s > 1], c[s > 1]
    mean = (c / s).mean() if len(s) else math.nan
    if not 0 < mean < 1:
        return math.nan
    return 1 - (c * (s - c) / (s * (s - 1))).mean() / (mean * (1 - mean))


def pass1(sweep, cfg):
    """Pass rates of the training problems, from the rollouts of training, for all n of one B_p at
    matched n M (section 5.1).

    The B_p is the one with most n. A record covers the updates between two evaluations, or, where
    all runs have such records (--pass_at), it is of the policy at one update.
    """
    runs = [run for run in sweep["runs"] if run["passes"]]
    fresh = all(any(r.get("fresh") and r["rollouts"] for r in run["passes"]) for run in runs)
    runs = [dict(run, passes=[r for r in run["passes"] if bool(r.get("fresh")) == fresh])
            for run in runs]
    if len(runs) < 2:
        raise BadInput(f"--view=pass1: {cfg['runs']}: needs two runs or more with train_pass "
                       f"records, {len(runs)} have any")
    ns = {}
    for run in runs:
        ns.setdefault(run["B_p"], set()).add(run["n"])
    B_p = max(ns, key=lambda b: len(ns[b]))
    runs = [run for run in runs if run["B_p"] == B_p]
    few = min(np.quantile(run["passes"][-1]["samples"], 0.1) for run in runs)
    k, end = int(min(16, max(2, few))), min(run["passes"][-1]["rollouts"] for run in runs)
    out = []
    for run in runs:
        moments = []
        for r in run["passes"]:
            share = thin(r["samples"], r["correct"], k)
            moments.append(dict(C=r["rollouts"], problems=len(r["ids"]), zero=share[0],
                                one=share[-1], share=share,
                                polarisation=polarisation(r["samples"], r["correct"])))
        at = min(moments, key=lambda m: abs(m["C"] - end))
        out.append(dict(run=run["run"], n=run["n"], seed=run["seed"], matched=at, moments=moments))
    return dict(B_p=B_p, k=k, nM=end / B_p, fresh=fresh, passes=out, covers="none")


def draw_pass1(front, path):
    fig, axes = canvas(4, (10.7, 4.4), width_ratios=[1.6, 1, 1, 1])
    k, colour = front["k"], colours({r["n"] for r in front["passes"]})
    wide = 0.8 / k / len(colour)
    for i, n in enumerate(colour):
        same = [r for r in front["passes"] if r["n"] == n]
        style = dict(color=colour[n], label=f"n = {n}")
        share = np.mean([r["matched"]["share"] for r in same], 0)
        x = np.arange(k + 1) / k + (i - (len(colour) - 1) / 2) * wide
        axes[0].bar(x, share, width=wide, **style)
        for ax, key in zip(axes[1:], ("zero", "one", "polarisation")):
            for r in same:
                later = [m for m in r["moments"] if m["C"]]
                ax.plot([m["C"] for m in later], [m[key] for m in later], ".-", lw=1.4, ms=4,
                        **style)
                for m in r["moments"]:
                    if not m["C"]:  # C = 0 has no place on a logarithmic axis
                        ax.axhline(m[key], color="0.6", lw=1, ls=":", label="before training")
    axes[0].set(xlabel=f"solved of {k}, as a share", ylabel="share of the training problems",
                title=f"at n M = {si(front['nM'])}")
    names = f"share with 0 of {k} solved", f"share with {k} of {k} solved", "polarisation"
    for ax, name in zip(axes[1:], names):
        ax.set(xscale="log", xlabel="rollouts C", title=name)
        budget_ticks(ax, *ax.get_xlim())
        ax.minorticks_off()
    for ax in axes:
        ax.title.set_fontsize(10)
    legend(fig, axes)
    source = "rollouts of their own" if front["fresh"] else "the rollouts of training"
    title = f"pass@1 of the training problems, $B_p$ = {front['B_p']}, from {source}"
    save(fig, path, front, title)


def say_pass1(front):
    for r in front["passes"]:
        m = r["matched"]
        yield (f"  n = {r['n']:<4} seed {r['seed']}: at C = {si(m['C'])} {m['problems']} problems, "
               f"none of {front['k']} solved {m['zero']:.3f}, all {m['one']:.3f}, polarisation "
               f"{m['polarisation']:.3f}")


# --------------------------------------------------------------------------------------------------

def canvas(cols, size, **more):
    """A figure with `cols` axes in a row."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    widths = dict(width_ratios=more.pop("width_ratios")) if "width_ratios" in more else {}
    return plt.subplots(1, cols, figsize=size, layout="constrained", **widths, **more)


def legend(fig, axes):
    """One legend for all axes, below them."""
    named = {label: handle for ax in axes for handle, label in zip(*ax.get_legend_handles_labels())}
    fig.legend(named.values(), named.keys(), loc="outside lower center", fontsize=9,
               ncols=min(6, len(named)))


# name: (sweep, cfg) -> content of its JSON; (front, path) draws it; (front) -> lines of text
VIEWS = dict(
    fixed_Bp=(fixed_Bp, frontier.figure, say_panels),
    fixed_B=(fixed_B, frontier.figure, say_panels),
    joint=(joint, frontier.figure, say_panels),
    lr=(lr, draw_lr, say_lr),
    best_worst=(best_worst, draw_best_worst, say_best_worst),
    sensitivity=(sensitivity, draw_sensitivity, say_sensitivity),
    paper=(paper, draw_paper, say_paper),
    slices=(slices, draw_slices, say_slices),
    pass1=(pass1, draw_pass1, say_pass1),
)


def analyse(cfg, part="", runs=None, dropped=()):
    """A sweep's folder, or its runs -> dict(runs, dropped, grid, lam, cells, cfg, ...), from which
    every view starts."""
    part = part or ("train" if cfg["metric"] == "train" else cfg["eval_set"])
    if runs is None:
        runs, dropped = read_runs(cfg["runs"], cfg["metric"], cfg["unit"], part, cfg["tag"],
                                  cfg.get("watch", False))
    every = grid, lam, cells = cells_of(runs, cfg["metric"], cfg)
    rule = one_lr(cells)
    if len({run["lr"] for run in runs}) > 1:  # as if the sweep had no other
        runs = [run for run in runs if run["lr"] == rule]
        grid, lam, cells = cells_of(runs, cfg["metric"], cfg)
    head = max((run["config"] for run in runs), key=lambda c: c.get("C", 0))
    head = complete(head)
    label = "training reward"
    if part != "train":
        label = f"{'validation' if part == 'val' else part} {cfg['metric']}"
    return dict(runs=runs, dropped=dropped, grid=grid, lam=lam, cells=cells, label=label, head=head,
                lr=rule, every=every, covers=coverage(runs, cfg),
                cfg=cfg | dict(B_max=head["B_max"], head=head))


def every_run(sweep):
    """The runs at every lr_base, not only those that the views but lr show."""
    return [run for c in sweep["every"][2] for run in c["runs"]]


def notes_of(sweep):
    """What a reader must know of the runs, as lines of text."""
    runs, notes = sweep["runs"], []
    lrs = sorted({c["lr"] for c in sweep["every"][2]})
    if len(lrs) > 1:
        notes.append(f"lr_base = {sweep['lr']:g}, of {', '.join(f'{x:g}' for x in lrs)} the one "
                     "that is best for all n; --view=lr compares them")
    for run in runs:
        if not ended(run):
            notes.append(f"unfinished {run['run']}: used up to its last evaluation")
        if run["status"] == "diverged":
            notes.append(f"diverged {run['run']}: used up to C = {si(run['C'][-1])}")
    most = max(len(c["runs"]) for c in sweep["cells"])
    for c in sweep["cells"]:
        if len(c["runs"]) < most:
            notes.append(f"B_p={c['B_p']} n={c['n']}: {len(c['runs'])} of {most} seeds")
    if any(run["counts"] is None for run in runs):
        source = f" ({runs[0]['source']})" if runs[0]["source"] else ""
        notes.append("no counts per problem: the noise of a reward is taken as binomial over its "
                     f"rollouts, of a training reward over its problems{source}")
    pruned = {(run["B_p"], run["n"]): run for run in runs if run["status"] == "pruned"}
    for (B_p, n), run in pruned.items():
        notes.append(f"pruned B_p={B_p} n={n} at C = {si(run['rollouts'][-1])}")
    return notes


def say(front):
    """A view as lines of text."""
    unit = front["unit"] + (", which is C below" if front["unit"] == "updates" else "")
    yield (f"{front['runs']}, {front['view']}: {len(front['runs_used'])} runs used, "
           f"{len(front['runs_dropped'])} dropped, {front['label']} over {unit}")
    others = [d["run"] for d in front["runs_dropped"] if d.get("other")]
    if others:
        why = next(d["why"] for d in front["runs_dropped"] if d.get("other"))
        yield (f"  {len(others)} runs in this folder are of another experiment than the sweep,"
               f" such as {others[0]}: {why}")
    for d in front["runs_dropped"]:
        if not d.get("other"):
            yield f"  dropped {d['run']}: {d['why']}"
    for note in front["notes"]:
        yield f"  {note}"
    if front["missing"]:
        yield say_missing(front["missing"], len(front["missing"]))
    yield from VIEWS.get(front["view"], VIEWS["fixed_Bp"])[2](front)
    yield f"\nintervals: {front['covers']}"


def front_of(sweep, view, content, cfg):
    """All that a view's JSON holds, of which its figure is drawn and its text written."""
    head, every = sweep["head"], every_run(sweep)
    runs = content.pop("runs", sweep["runs"])  # lr shows others
    # a run that a larger C continued keeps its first header, so the budget is what was reached
    reached = max(run["rollouts"][-1] for run in runs)
    return {key: cfg[key] for key in "runs metric unit bin boot delta eval_set".split()} | dict(
        view=view, label=sweep["label"], config=head, covers=sweep["covers"], notes=notes_of(sweep),
        budget=max(head["C"], reached) if cfg["unit"] == "rollouts" else sweep["grid"][-1],
        missing=[] if view == "compare" else missing_cells(cfg["runs"], every, sweep["dropped"]),
        runs_dropped=sweep["dropped"], runs_unfinished=[r["run"] for r in runs if not ended(r)],
        options=options(sweep["cells"], sweep["grid"], sweep["cfg"])
        if view in ("fixed_Bp", "joint") else [], stability=stability(sweep["cells"]),
        runs_used=[{key: run[key] for key in ("run", "B_p", "n", "seed", "status")}
                   | dict(evals=len(run["C"]), C=run["C"][-1]) | gain(run, cfg["metric"])
                   for run in runs]) | content


def written(sweep, view, content, cfg):
    """Write frontier.json and its figure (frontier_VIEW for another view than fixed_Bp); returns
    what is in them as text."""
    front = front_of(sweep, view, content, cfg)
    stem = "frontier" if view == "fixed_Bp" else f"frontier_{view}"
    name = Path(cfg["out"] or frontier.folders_of(cfg["runs"])[0]) / stem
    save_json(f"{name}.json", front, indent=None)
    VIEWS.get(view, VIEWS["fixed_Bp"])[1](front, f"{name}.png")
    return "\n".join(say(front)) + f"\nfigure: {name}.png   numbers: {name}.json\n"


WATCH = dict(watch=(False, "draw again with every new evaluation, until the sweep's cells have "
                    "ended or Ctrl-C; --watch alone does it"))
LOOK_S = 5  # seconds between two looks at the logs of a sweep that is watched


def evaluations_in(folders):
    """How many evaluations the logs of a sweep's runs hold, and how many runs have ended."""
    evals = ends = 0
    for path in (path for folder in folders for path in folder.glob("*/log.jsonl*")):
        try:
            kinds = [r.get("type") for r in read_log(path)]
        except (BadInput, OSError):  # said when it is drawn
            continue
        evals, ends = evals + kinds.count("eval"), ends + kinds.count("end")
    return evals, ends


def watch(cfg):
    """Draws a view of a sweep whenever an evaluation is new, until all planned cells have ended.

    Prints a line each time. Raises BadInput for a folder that does not exist and for compare.
    """
    if cfg["view"] == "compare":
        raise BadInput("--watch: for one sweep, and --view=compare is of several")
    folders = frontier.folders_of(cfg["runs"])
    before, said = None, None
    while True:
        now = evaluations_in(folders)
        if now != before:
            before = now
            try:
                sweep = draw(cfg)[0]
                left = missing_cells(cfg["runs"], every_run(sweep), sweep["dropped"])
                reached = si(max(run["C"][-1] for run in sweep["runs"]))
                line = (f"{now[0]} evaluations of {len(sweep['runs'])} runs, up to C = {reached}; "
                        f"{len(left)} cells to go: {Path(cfg['out'] or folders[0])}/*.png")
            except BadInput as e:
                left, line = True, f"waiting: {e}"
            if line != said:
                print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)
            said = line
            if not left and all(map(read_plan, folders)):
                return
        time.sleep(LOOK_S)


def draw(cfg):
    """Analyses a sweep, draws `view` or all of them: (the sweep, their lines of text)."""
    sweep, text = analyse(cfg), []
    for name in VIEWS if cfg["view"] == "all" else [cfg["view"]]:
        try:
            text.append(written(sweep, name, VIEWS[name][0](sweep, sweep["cfg"]), cfg))
        except BadInput as e:
            if cfg["view"] != "all":
                raise
            text.append(f"not drawn: {e}\n")
    return sweep, text


def main(argv):
    argv = ["--watch=true" if word == "--watch" else word for word in argv]
    cfg = parse(argv, __doc__, WATCH)
    view = cfg["view"]
    if cfg["watch"]:
        return watch(cfg)
    if view == "compare":
        sweep, content = compare(cfg)
        first = cfg["runs"].split()[0].split(":")[0]
        print(written(sweep, view, content, dict(cfg, runs=first, out=cfg["out"] or first)))
        return
    _, text = draw(cfg)
    if view != "all" or cfg["verbose"]:
        print("\n".join(text))
    if view == "all":
        out = Path(cfg["out"] or frontier.folders_of(cfg["runs"])[0])
        with aside(out / "report.txt") as part:
            part.write_text("\n".join(text))
        if not cfg["verbose"]:
            print(f"every figure is in {out}, what they show in {out / 'report.txt'}",
                  file=sys.stderr)  # fit_sigmoid.py's page begins with its answer


if __name__ == "__main__":
    entry(main)
