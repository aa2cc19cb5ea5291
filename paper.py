"""paper.py: a sweep as the paper draws it, and beside it as we read the same runs.

Nothing here is a script; it is --view=paper of views.py, a row of panels for each B_p:
- left, the paper's way (section 4, Figures 5, 6 and 7): the record-breaking points of each n among
  all evaluations, one sigmoid for each n through them, the frontier coloured by its n; below, n*(C)
  of the pooled record-breaking points, their running average coloured by reward, and the law
  through it in red with its numbers;
- right, ours: smooth curves through all evaluations, the frontier with its interval, n*(C) and the
  n that are indistinguishable from the best.

Needs config.py, frontier.py, noise.py, fit_sigmoid.py.
"""
import numpy as np

from fit_sigmoid import NUMBERS, in_a_sentence, law_at, law_of_panel, law_of_records
from frontier import (AXIS, budget_ticks, colours, draw_curves, draw_n_star, end_labels, many,
                      n_star, pooled_records, record_breaking, save, wrap)
from noise import add_points, panel_of


def paper(sweep, cfg):
    """The paper's way and ours for each B_p: dict(panels), a panel of frontier.json with `paper`
    and `law`, our verdict in a sentence.

    paper: points, a list of dict(n, seed, C, reward, record) of every evaluation; curves, [dict(n,
    C, reward, seen)], the sigmoids where their runs reached, extrapolated behind C = seen, the last
    record-breaking point; frontier dict(C, n, reward); and records
    with `law`, what fit_sigmoid.law_of_records says of the running average, None below five points.
    """
    panels = {}
    for B_p in sorted({c["B_p"] for c in sweep["cells"]}):
        cs = [c for c in sweep["cells"] if c["B_p"] == B_p]
        panel = add_points(panel_of(cs, sweep["grid"], cfg, cfg["unit"]), cs, sweep["grid"], cfg)
        panels[f"B_p={B_p}"] = panel | dict(
            paper=paper_way(cs, panel["range"], cfg),
            law=in_a_sentence(law_of_panel(panel, cfg["delta"])))
    return dict(panels=panels)


def paper_way(cs, budgets, cfg):
    """The paper's section 4 on the runs of one B_p, see `paper`. cs: its cells; budgets: (from,
    to) of C."""
    runs = [run for c in cs for run in c["runs"]]
    points = []
    for run in runs:
        kept = record_breaking(run["reward"], cfg["bin"])
        points += [dict(n=run["n"], seed=run["seed"], C=C, reward=R, record=bool(k))
                   for C, R, k in zip(run["C"], run["reward"], kept) if C > 0]
    C = np.geomspace(*budgets, 200)
    found, curves = n_star(runs, cfg["bin"], C), []
    for c, Y in zip(cs, found["curves"]):
        inside = (C >= c["reach"][0]) & (C <= c["reach"][1])  # no farther than its runs
        Y[~inside] = np.nan
        seen = max((q["C"] for q in points if q["record"] and q["n"] == c["n"]), default=0.0)
        curves.append(dict(n=c["n"], C=C[inside], reward=Y[inside], seen=seen))
    seen = ~np.isnan(found["curves"]).all(0)
    top = np.where(np.isnan(found["curves"]), -np.inf, found["curves"])[:, seen]
    records = pooled_records(runs, cfg["bin"])
    return dict(points=points, curves=curves, records=records | dict(law=law_of_records(records)),
                frontier=dict(C=C[seen], n=np.array(found["ns"])[top.argmax(0)], reward=top.max(0)))


def draw_paper(front, path):
    """frontier_paper.png: two rows for each B_p, the paper's way on the left, ours on the right."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    panels = front["panels"]
    rows = len(panels)
    fig, axes = plt.subplots(2 * rows, 2, figsize=(12.0, 1.6 + 7.4 * rows), squeeze=False,
                             layout="constrained", height_ratios=[2, 1.25] * rows, sharex=False)
    colour = colours({n for p in panels.values() for n in p["ns"]})
    for i, (name, panel) in enumerate(panels.items()):
        (left, right), (low_left, low_right) = axes[2 * i], axes[2 * i + 1]
        who = (f"{name.replace('B_p', '$B_p$')}, {many(len(panel['runs_used']), 'run')}, "
               f"{many(len(panel['seeds']), 'seed')}")
        left.set_title(f"The paper's way: {who}", fontsize=10.5)
        right.set_title(f"Ours: {who}", fontsize=10.5)
        draw_paper_curves(left, panel, colour, front["label"])
        draw_paper_n_star(fig, low_left, panel, front["unit"])
        ours = {key: value for key, value in panel.items() if key != "records"}
        draw_curves(right, ours, colour, "")
        draw_n_star(low_right, ours, front["unit"], False)
        low_right.set_ylabel("")
        low_right.set_title(wrap(panel["law"], 74), fontsize=9, loc="left")
        lo, hi = panel["range"]
        bottom, top = zip(left.get_ylim(), right.get_ylim())
        for ax in (left, right):  # the same axes, so that the two can be compared
            ax.set_ylim(min(bottom), max(top))
        for ax in (left, right, low_left, low_right):
            ax.set(xscale="log", xlim=(lo / 1.1, hi * (hi / lo) ** 0.2))
            budget_ticks(ax, lo, hi)
            ax.minorticks_off()
        low_left.set_ylim(low_right.get_ylim())
    for side, of in enumerate(("left, the paper's way", "right, ours")):
        named = {label: handle for ax in axes[:, side]
                 for handle, label in zip(*ax.get_legend_handles_labels())}
        fig.legend(named.values(), named.keys(), fontsize=9, title=of, title_fontsize=9,
                   loc=f"outside lower {of.split(',')[0]}", ncols=2 - side)
    save(fig, path, front, f"{front['label'].capitalize()}: the paper's Figures 5 to 7 of these "
         "runs, and our reading of them")


def draw_paper_curves(ax, panel, colour, label):
    """Figures 5 and 6: record-breaking points, a sigmoid for each n, the frontier in its colour."""
    p, ends = panel["paper"], []
    rest = [(q["C"], q["reward"]) for q in p["points"] if not q["record"]]
    if rest:
        ax.plot(*zip(*rest), ".", color="0.7", ms=3.5, mew=0, zorder=1,
                label="evaluations that break no record")
    for c in p["curves"]:
        kept = [(q["C"], q["reward"]) for q in p["points"] if q["record"] and q["n"] == c["n"]]
        if kept:
            ax.plot(*zip(*kept), "o", color=colour[c["n"]], ms=3.6, mew=0, alpha=0.75, zorder=2)
        if len(c["C"]):
            beyond = np.array(c["C"]) > c["seen"]
            for part, style in ((~beyond, "-"), (beyond, ":")):
                ax.plot(np.array(c["C"])[part], np.array(c["reward"])[part], style, lw=1.5,
                        color=colour[c["n"]], zorder=3)
            ends.append((c["C"][-1], c["reward"][-1], f"n = {c['n']}", colour[c["n"]]))
    ax.plot([], [], "o", color="0.35", ms=3.6, label="record-breaking points, coloured by their n")
    ax.plot([], [], color="0.35", lw=1.5, label="one sigmoid for each n")
    ax.plot([], [], ":", color="0.35", lw=1.5, label="beyond its last record: extrapolated")
    ax.plot([], [], color="0.6", lw=6, alpha=0.55, label="frontier, coloured by its n, to its last "
            "record")
    C, n, reward = (np.array(p["frontier"][key]) for key in ("C", "n", "reward"))
    pieces = np.split(np.arange(len(n)), np.flatnonzero(np.diff(n)) + 1) if len(n) else []
    seen = {c["n"]: c["seen"] for c in p["curves"]}
    for piece in pieces:  # none where no n has two record-breaking points
        own, some = n[piece[0]], slice(piece[0], piece[-1] + 2)
        known = C[some] <= seen[own]  # so that what is extrapolated shows as dotted
        ax.plot(C[some][known], reward[some][known], color=colour[own], lw=6, alpha=0.55, zorder=4,
                solid_capstyle="butt")
    y = [q["reward"] for q in p["points"]]
    span = max(y) - min(y) or 0.01
    top = max(y) + 0.06 * span  # a sigmoid may run away from its last record, out of the axes
    end_labels(ax, [(x, min(at, top), *more) for x, at, *more in ends], 1.17 * span)
    ax.set(xscale="log", ylabel=label, ylim=(min(y) - 0.06 * span, top))
    ax.tick_params(labelbottom=False)


def draw_paper_n_star(fig, ax, panel, unit):
    """Figure 7: the n of the pooled record-breaking points, their running average, the law."""
    records = panel["paper"]["records"]
    C, law = np.array(records["C"]), records["law"]
    mean = 2 ** np.array(records["log2_n_mean"])
    ax.plot(C, records["n"], "x", color="0.45", ms=4, label="n of a pooled record-breaking point")
    dots = ax.scatter(C, mean, c=records["reward"], cmap="viridis", s=26, zorder=3,
                      label="their running average, coloured by reward")
    fig.colorbar(dots, ax=ax, pad=0.01, fraction=0.035).ax.tick_params(labelsize=9)
    if law is None:
        text = f"{len(C)} pooled record-breaking points: a law with four numbers needs 5 or more"
    else:
        fit = law["fit"]
        x = np.geomspace(*panel["range"], 200)
        ax.plot(x, 2 ** law_at(fit, x), color="C3", lw=2, zorder=4, label="the law through it")
        numbers = ["L {L:.2f}", "k {k:.2f}", "$\\log_{{10}} C_0$ {log10_C0:.2f}", "b {b:.2f}",
                   "plateau {plateau:.0f}"]
        text = "law: " + ", ".join(numbers).format(**{key: fit[key] for key in NUMBERS})
        if law["verdict"] != "law":
            text += "\n" + wrap(f"but {law['verdict']}: {law['reason']}", 74)
    ax.set_title(text, fontsize=9, color="C3", loc="left")
    ns = panel["ns"]
    ax.set(xscale="log", yscale="log", ylabel="n*(C)", xlabel=AXIS[unit],
           ylim=(ns[0] / 1.5, ns[-1] * 1.5))
    ax.set_yticks(ns, map(str, ns))
    ax.grid(alpha=0.25, axis="y")


def say_paper(front):
    """The two readings of each B_p as lines of text: where the n changes, and the laws."""
    for name, panel in front["panels"].items():
        p, env = panel["paper"], panel["envelope"]
        law = p["records"]["law"]
        for who, C, n in (("the paper's way", p["frontier"]["C"], p["frontier"]["n"]),
                          ("ours", env["C"], env["n"])):
            turns = [0, *(np.flatnonzero(np.diff(n)) + 1)] if len(n) else []
            path = ", ".join(f"{n[i]} from {C[i]:,.0f}" for i in turns)
            yield f"  {name}, {who}: n* = {path or 'none, too few record-breaking points'}"
        if law is None:
            yield f"  {name}, the paper's law: fewer than 5 pooled record-breaking points"
        else:
            numbers = ", ".join(f"{key} {law['fit'][key]:.3g}" for key in NUMBERS)
            yield f"  {name}, the paper's law: {numbers}; {law['verdict']}: {law['reason']}"
        yield f"  {name}, our verdict: {panel['law']}"
