"""results/price.py: the price of n, a forecast of the best n before any run.

From the gradient noise of the base model, which pilot.py measures: n (1 + B_p / b) + (n_c n + 2) /
(n - 1) is what n takes of rollouts for one progress, up to a factor. The row of the atlas asks what
the n of the lowest price really takes. As in figures.py; needs config.py, contrasts.py, arms.py.
"""
import math
from pathlib import Path

import numpy as np

import config
from arms import LRS, ROOT, config_of, depth, figure, grid_text, use
from contrasts import Missing, over_sweeps
from core.plots import colours, log_ticks

ALWAYS = 2, 4, 16  # one n for all, that every world has
ALLOWED = math.log2(1.25)


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
    cells those that are deep.

    name, world (base model and problem set), n_c, cells [(B_p, n)], C (E,), Y (N, E) means over
    seeds, price (N,).
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
        seeds = set.intersection(*map(set, cells.values())) if cells else ()
        if len(cells) < 3 or len(seeds) < 2 or config_of(cells)["algo"] != "grpo":
            continue
        use(cells)
        cells = {key: [runs[seed] for seed in sorted(seeds)] for key, runs in cells.items()}
        runs = [run for of_cell in cells.values() for run in of_cell]
        C = max((run["C"] for run in runs), key=len)[1:]  # of training, to the end of all
        C = C[C <= min(run["C"][-1] for run in runs)]
        Y = [np.mean([np.interp(C, run["C"], run["reward"]) for run in of_cell], 0)
             for of_cell in cells.values()]
        cfg, share = runs[0]["config"], 1 / noise["b"] if noise.get("b") else 0
        out.append(dict(
            name=name, world=(cfg["model"], Path(cfg["train_set"]).name), n_c=noise["n_c"], C=C,
            Y=np.array(Y), cells=list(cells),
            price=np.array([price(n, noise["n_c"], B_p * share) for B_p, n in cells])))
    if not out:
        raise Missing("results/pilot.py")
    return out


def priced_toys():
    """The sweeps of `priced` that are the toy world's, without runs, B_p taken far below b."""
    toy, out = config.read_json(ROOT / "results/bandit/study.json"), []
    n_c = {r["words"]: r["n_c"] for r in toy["noise"]}
    for name in ("no_idle", "lead", "more_idle"):
        arm = toy["arms"][name]
        own, name = n_c[arm["words"]], f"toy, {arm['words'] or '--idle=29'}"
        at_rule = np.array(arm["mean"])[arm["lrs"].index(toy["config"]["lr_base"])]  # (N, S, E)
        out.append(dict(name=name, world=name, cells=[(toy["config"]["B_p"], n) for n in arm["ns"]],
                        C=np.array(arm["C"]), Y=at_rule.mean(1), n_c=own,
                        price=np.array([price(n, own) for n in arm["ns"]])))
    return out


def price_of_n(atlas):
    """What the n of the lowest price takes over the best other n; the same for one n for all."""
    sweeps = priced(atlas) + (priced_toys() if atlas.own else [])
    shade = colours({b for s in sweeps for b, _ in s["cells"]})
    lines, panels = [], []
    # {rule: {world: [log2 of the rollouts that its n takes, over those of the best other n]}}
    behind = {rule: {} for rule in ("price", *ALWAYS)}
    for s in sweeps:
        ns, logs = np.array([n for _, n in s["cells"]]), {}
        chosen = {n: np.abs(np.log2(ns / n)) + 0.01 * s["price"] / s["price"].max() for n in ALWAYS}
        for rule, far in (chosen | dict(price=s["price"])).items():  # of several B_p the cheapest
            i = int(far.argmin())
            logs[rule] = i, delays(s["C"], s["Y"], i)
        others = {rule: np.delete(log, i) for rule, (i, log) in logs.items()}
        if any(np.isnan(x).all() for x in others.values()):  # no reward that two n reached
            continue
        for rule, x in others.items():
            behind[rule].setdefault(s["world"], []).append(-np.nanmin(x))
        i, log = logs["price"]
        lines.append([s["name"], f"{s['n_c']:.1f}", ns[i],
                      f"{2 ** -np.nanmin(others['price']):.2f}"])
        panels.append(price_panel(s, i, log, shade))
    if len(behind["price"]) < 2:
        raise Missing("sweeps of a second base model or set of problems")
    # sweeps of one world are no independent evidence
    found = {rule: over_sweeps([np.mean(logs) for logs in by_world.values()])
             for rule, by_world in behind.items()}
    ends = {rule: (c["gain"] - c["half"], c["gain"] + c["half"]) for rule, c in found.items()}
    times = {rule: f"{2 ** c['gain']:.2f} ({2 ** ends[rule][0]:.2f} to {2 ** ends[rule][1]:.2f})"
             for rule, c in found.items()}
    lo, hi = ends["price"]
    says = (f"the n of a sweep with the lowest price takes {times['price']} times the rollouts of "
            f"the best other cell, over {len(behind['price'])} worlds; the same of one n for all: "
            f"{', '.join(f'{n} {times[n]}' for n in ALWAYS)}")
    heads = ["sweep", "n_c", "n of the lowest price", "its rollouts, of the best other cell's"]
    return dict(verdict="agree" if hi < ALLOWED else "disagree" if lo > ALLOWED else "undecided",
                says=says, table=grid_text(heads, lines),
                figure=figure(atlas, "price_of_n", panels))


def price_panel(s, i, log, shade):
    """A panel: rollouts to the same reward over n, taken and by the price, both against cell i.
    shade: {B_p: colour}."""
    def draw(ax):
        sizes = np.array([b for b, _ in s["cells"]])
        ns = np.array([n for _, n in s["cells"]])
        for b in sorted(set(sizes)):
            some = sizes == b
            ax.plot(ns[some], 2 ** log[some], "o", color=shade[b], label=f"taken, B_p = {b}")
            for power, style in ((0.5, "-"), (1, ":")):
                ax.plot(ns[some], (s["price"][some] / s["price"][i]) ** power, style, lw=1,
                        color=shade[b])
        ax.plot([], [], "k-", lw=1, label="root of the price, from the base model")
        ax.plot([], [], "k:", lw=1, label="the price")
        ax.set(xscale="log", yscale="log", xlabel="n", title=f"{s['name']}, n_c = {s['n_c']:.1f}",
               ylabel="rollouts to the same reward, relative")
        log_ticks(ax.xaxis, sorted(set(ns)))
        log_ticks(ax.yaxis, [1, 2, 4, 8, 16])
    return draw
