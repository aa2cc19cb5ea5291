"""results/price.py: the price of n, a forecast of the best n before any run.

From the gradient noise of the base model, which pilot.py measures: n (1 + B_p / b) + (n_c n + 2) /
(n - 1) is what n takes of rollouts for one progress, up to a factor. The row of the atlas asks what
the n of the lowest price really takes. As in figures.py; needs config.py, contrasts.py, kept.py.
"""
import math
from pathlib import Path

import numpy as np

import config
from contrasts import Missing, over_sweeps
from core.plots import log_ticks
from kept import LRS, ROOT, config_of, depth, figure, grid_text, shades, use


def price(n, n_c, share=0.0):
    """Rollouts that n takes for one progress, up to a factor; derived in pilot.py.

    share = B_p / b. Least at n = 1 + sqrt((n_c + 2) / (1 + share)).
    """
    return n * (1 + share) + (n_c * n + 2) / (n - 1)


def delays(C, Y, reference):
    """log2 of the rollouts that curves take to a reward, over those of the reference: (N,).

    C (E,) budgets, Y (N, E) rewards, reference: one of the N. A mean over nine rewards from what
    both had at their first budget to what both reached; nan where there are none.
    """
    Y, out = np.maximum.accumulate(Y, 1), np.full(len(Y), np.nan)

    def budget(y, rewards):  # log2 of the first C that reaches each reward
        rises = np.append(True, np.diff(y) > 0)
        return np.interp(rewards, y[rises], np.log2(C)[rises])
    for i, y in enumerate(Y):
        lo, hi = max(y[0], Y[reference, 0]), min(y[-1], Y[reference, -1])
        if hi > lo:
            rewards = np.linspace(lo, hi, 9)
            out[i] = (budget(y, rewards) - budget(Y[reference], rewards)).mean()
    return out


def priced(atlas):
    """Sweeps with a measured n_c, at one lr with the group's mean as the baseline: [dict]. Of their
    cells those that are deep. Those of the toy world too, without runs, B_p taken far below b.

    name, group (of the sweeps with one base model and problem set), cells [(B_p, n)], C (E,),
    Y (N, E) means over seeds, price (N,), noise (of pilot.py).
    """
    path, out = atlas.folder / "pilot.json", []
    for name, noise in (config.read_json(path) if path.exists() else {}).items():
        if name.startswith("joint_") or not noise.get("n_c") or name.endswith(LRS):
            continue
        cells = {}
        for arm in (name, f"joint_{name}"):
            for key, runs in atlas.cells(arm).items():
                whole = {seed: r for seed, r in runs.items() if r["status"] == "budget"}
                if len(whole) > 1 and depth({key: whole})[1]:
                    cells[key] = whole
        seeds = sorted(set.intersection(*(set(runs) for runs in cells.values()))) if cells else []
        if len(cells) < 3 or len(seeds) < 2 or config_of(cells)["algo"] != "grpo":
            continue
        use(cells)
        cfg, evals, prices = config_of(cells), [], []
        for (B_p, n), runs in cells.items():
            evals.append([runs[seed] for seed in seeds])
            prices.append(price(n, noise["n_c"], B_p / noise["b"] if noise.get("b") else 0))
        C, Y = mean_curves(evals)
        out.append(dict(name=name, group=(cfg["model"], Path(cfg["train_set"]).name), C=C, Y=Y,
                        cells=list(cells), noise=noise, price=np.array(prices)))
    if not out:
        raise Missing("results/pilot.py")
    return out + priced_toys()


def mean_curves(evals):
    """[[evaluations of each seed] of each cell] -> C (E,), mean rewards over seeds Y (N, E).

    From the first update to the end of the shortest run.
    """
    C = max((e["C"] for of_cell in evals for e in of_cell), key=len)[1:]
    C = C[C <= min(e["C"][-1] for of_cell in evals for e in of_cell)]
    Y = []
    for of_cell in evals:
        at_C = [np.interp(C, e["C"], e["reward"]) for e in of_cell]
        Y.append(np.mean(at_C, 0))
    return C, np.array(Y)


def priced_toys():
    """The sweeps of `priced` that are the toy world's."""
    toy = config.read_json(ROOT / "results/bandit/study.json")
    n_c = {r["words"]: r["n_c"] for r in toy["noise"]}
    out = []
    for name in ("no_idle", "lead", "more_idle"):
        arm = toy["arms"][name]
        own, name = n_c[arm["words"]], f"toy, {arm['words'] or '--idle=29'}"
        at_rule = np.array(arm["mean"])[arm["lrs"].index(toy["config"]["lr_base"])]  # (N, S, E)
        out.append(dict(name=name, group=name, cells=[(toy["config"]["B_p"], n) for n in arm["ns"]],
                        C=np.array(arm["C"]), Y=at_rule.mean(1), noise=dict(n_c=own),
                        price=np.array([price(n, own) for n in arm["ns"]])))
    return out


def over_groups(sweeps, values):
    """`over_sweeps` of the means of each group: sweeps of one group are no independent evidence."""
    by_group = {}
    for s, value in zip(sweeps, values):
        by_group.setdefault(s["group"], []).append(value)
    return over_sweeps([np.mean(of_group) for of_group in by_group.values()])


def price_of_n(atlas):
    """What the n of the lowest price takes over the best other n; the same for one n for all."""
    sweeps, always = priced(atlas), (2, 4, 16)  # the n that every world has
    shade = shades({b for s in sweeps for b, _ in s["cells"]})
    lines, panels, used = [], [], []
    # log2 of the rollouts that each rule's n takes, over those of the best other n
    behind = {rule: [] for rule in ("price", *always)}
    for s in sweeps:
        ns = np.array([n for _, n in s["cells"]])
        named = {"price": int(s["price"].argmin())}
        for n in always:  # the nearest n, of several B_p that with the lowest price
            far = np.abs(np.log2(ns / n)) + 0.01 * s["price"] / s["price"].max()
            named[n] = int(far.argmin())
        logs = {rule: delays(s["C"], s["Y"], i) for rule, i in named.items()}
        others = {rule: np.delete(logs[rule], i) for rule, i in named.items()}
        if any(np.isnan(x).all() for x in others.values()):  # no reward that two n reached
            continue
        used.append(s)
        for rule, x in others.items():
            behind[rule].append(-np.nanmin(x))
        i, log = named["price"], logs["price"]
        lines.append([s["name"], f"{s['noise']['n_c']:.1f}", ns[i],
                      f"{2 ** -np.nanmin(others['price']):.2f}"])
        panels.append(price_panel(s, i, log, shade))
    found = {rule: over_groups(used, values) for rule, values in behind.items()}

    def times(c):
        lo, hi = c["gain"] - c["half"], c["gain"] + c["half"]
        return f"{2 ** c['gain']:.2f} ({2 ** lo:.2f} to {2 ** hi:.2f})"
    c, allowed = found["price"], math.log2(1.25)
    if c["gain"] + c["half"] < allowed:
        verdict = "agree"
    else:
        verdict = "disagree" if c["gain"] - c["half"] > allowed else "undecided"
    says = (f"the n of a sweep with the lowest price takes {times(c)} times the rollouts of the "
            f"best other cell, over {len({s['group'] for s in used})} worlds; the same of one n "
            f"for all: {', '.join(f'{n} {times(found[n])}' for n in always)}")
    heads = ["sweep", "n_c", "n of the lowest price", "its rollouts, of the best other cell's"]
    return dict(verdict=verdict, says=says, table=grid_text(heads, lines),
                figure=figure(atlas, "price_of_n", panels))


def price_panel(s, i, log, shade):
    """A panel: rollouts to the same reward over n, taken and by the price, both against cell i.
    shade: {B_p: colour}."""
    def draw(ax):
        for b in sorted({b for b, _ in s["cells"]}):
            some = [j for j, cell in enumerate(s["cells"]) if cell[0] == b]
            n = [s["cells"][j][1] for j in some]
            ax.plot(n, 2 ** log[some], "o", color=shade[b], label=f"taken, B_p = {b}")
            for power, style in ((0.5, "-"), (1, ":")):
                ax.plot(n, (s["price"][some] / s["price"][i]) ** power, style, color=shade[b], lw=1)
        ax.plot([], [], "k-", lw=1, label="root of the price, from the base model")
        ax.plot([], [], "k:", lw=1, label="the price")
        ax.set(xscale="log", yscale="log", xlabel="n",
               ylabel="rollouts to the same reward, relative",
               title=f"{s['name']}, n_c = {s['noise']['n_c']:.1f}")
        log_ticks(ax.xaxis, sorted({n for _, n in s["cells"]}))
        log_ticks(ax.yaxis, [1, 2, 4, 8, 16])
    return draw
