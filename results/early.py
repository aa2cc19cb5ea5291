"""results/early.py: the rows of the atlas on what one can know of n* before a sweep is over.

The price of n, from the gradient noise of the base model (pilot.py); when to stop; statistics of
the base model and of the first updates as forecasts of the n that is best at the end (section 6).
Each row as in rows.py. Needs config.py, contrasts.py, kept.py.
"""
import math
from pathlib import Path

import numpy as np

import config
from core.plots import si
from kept import (EARLY, LATE, LRS, ROOT, START, USED, colour, config_of, deep_cells, figure,
                  grid_text, look, near, points, table_of, use)
from contrasts import Missing, denied, judge, over_sweeps


# ---- what the base model tells of the n to come

def noise_of(atlas):
    """{arm: what pilot.py measured of its base model}, empty where it has not run."""
    path = atlas.folder / "pilot.json"
    return config.read_json(path) if path.exists() else {}


def named_n(n_c):
    """The n of the lowest price for B_p far below b; see pilot.py."""
    return 1 + math.sqrt(n_c + 2)


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


def priced(atlas, shallow=False):
    """Sweeps with a measured n_c, at one lr with the group's mean as the baseline: [dict]. Of their
    cells those that are deep, or all.

    name, group (of the sweeps with one base model and problem set), cells [(B_p, n)], runs, C (E,),
    Y (N, E) means over seeds, price (N,), noise (of pilot.py). Those of the toy world too, without
    runs, and B_p taken to be far below b.
    """
    out = []
    for name, noise in noise_of(atlas).items():
        if name.startswith("joint_") or not noise.get("n_c"):
            continue
        cells = {}
        for arm in (name, f"joint_{name}"):
            for key, runs in atlas.cells(arm).items():
                whole = {seed: r for seed, r in runs.items() if r["end"]["status"] == "budget"}
                if len(whole) > 1:
                    cells[key] = whole
        cells = cells if shallow else deep_cells(cells)
        seeds = sorted(set.intersection(*(set(runs) for runs in cells.values()))) if cells else []
        if len(cells) < 3 or len(seeds) < 2:
            continue
        cfg = config_of(cells)
        if cfg["algo"] != "grpo" or cfg.get("n_schedule") or name.endswith(tuple(LRS)):
            continue
        use(cells)
        group = f"{Path(cfg['model']).name}, {Path(cfg['train_set']).name}"
        evals, prices = [], []
        for (B_p, n), runs in cells.items():
            evals.append([runs[seed]["evals"]["val"] for seed in seeds])
            prices.append(price(n, noise["n_c"], B_p / noise["b"] if noise.get("b") else 0))
        C, Y = mean_curves(evals)
        out.append(dict(name=name, group=group, cells=list(cells), runs=cells, C=C, Y=Y,
                        noise=noise, price=np.array(prices)))
    return out + priced_toys()


def mean_curves(evals):
    """[[evaluations of each seed] of each cell] -> C (E,), mean rewards over seeds Y (N, E).

    From the first update to the end of the shortest run.
    """
    C = max((e["C"] for of_cell in evals for e in of_cell), key=len)[1:]
    C = C[C <= min(e["C"][-1] for of_cell in evals for e in of_cell)]
    Y = []
    for of_cell in evals:
        at_C = [np.interp(C, e["C"], e["counts"].mean(1) / e["samples"]) for e in of_cell]
        Y.append(np.mean(at_C, 0))
    return C, np.array(Y)


def priced_toys():
    """The sweeps of `priced` that are the toy world's."""
    toy = config.read_json(ROOT / "results/bandit/study.json")
    n_c = {r["words"]: r["n_c"] for r in toy["noise"] if not r["C"]}
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
    every = priced(atlas, shallow=True)
    USED.clear()
    sweeps, always = priced(atlas), (2, 4, 16)  # the n that every world has
    if not any("runs" in s for s in sweeps):
        raise Missing("results/pilot.py")
    table, of_B_p, panels, used, left = [], [], [], [], []
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
            left.append(s["name"])
            continue
        used.append(s)
        for rule, x in others.items():
            behind[rule].append(-np.nanmin(x))
        table.append(price_row(s, named["price"], logs["price"]))
        of_B_p.append(price_over_B_p(s))
        panels.append(price_panel(s, named["price"], logs["price"]))
    if not used:
        raise Missing("runs that gain after their first evaluation")
    for s in every:
        if s["name"] not in {other["name"] for other in sweeps}:
            i = int(s["price"].argmin())
            table.append(price_row(s | dict(name=f"{s['name']}, too shallow to count"), i,
                                   delays(s["C"], s["Y"], i)))
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
            f"best other cell, over {len({s['group'] for s in used})} worlds. The same of one n "
            f"for all: {', '.join(f'{n} {times(found[n])}' for n in always)}")
    if left:
        says += (f". Left out: {', '.join(left)}, where a rule's n gains nothing after its first "
                 "evaluation")
    more = [PRICES, *table, "", "".join(of_B_p) + "".join(map(noise_after_training, used))]
    return dict(verdict=verdict, says=says, figure=figure(atlas, "price_of_n", panels),
                more="\n".join(more))


PRICES = """#### Sweep by sweep

Rollouts to the same reward: a mean over nine rewards that both n reached, by the best so far.
Sweeps of one base model and problem set count as one world. n_c is the variance of a rollout's
gradient within problems over that between problems, b the latter over the squared mean gradient,
both of the base model ([docs/analysis.md](../docs/analysis.md#what-our-runs-found)).

| sweep | n_c | 1 + sqrt(n_c + 2) | n of the lowest price | \
its rollouts | rollouts ~ price to the power |
|---|---|---|---|---|---|"""


def price_row(s, i, log):
    """A line of PRICES: cell i has the lowest price, log (N,) are the delays against it."""
    n_c = s["noise"]["n_c"]
    words = f"{n_c:.1f}"
    if s["noise"].get("n_c_interval"):
        words += " [{:.1f}, {:.1f}]".format(*s["noise"]["n_c_interval"])
    others = [j for j in range(len(log)) if j != i and np.isfinite(log[j])]
    rival = min(others, key=lambda j: log[j])
    # rollouts ~ price^power, by least squares through the named cell
    known = np.isfinite(log)
    x, y = np.log2(s["price"] / s["price"][i])[known], log[known]
    power = x @ y / (x @ x)
    other = "n = {1}".format(*s["cells"][rival])
    if s["cells"][rival][0] != s["cells"][i][0]:
        other += " at B_p = {0}".format(*s["cells"][rival])
    return (f"| {s['name']} | {words} | {named_n(n_c):.1f} | {s['cells'][i][1]} | "
            f"{2 ** -log[rival]:.2f} of {other} | "
            f"{power:.2f}, within {np.abs(y - power * x).max():.1f} octaves |")


def price_over_B_p(s):
    """What each B_p of a sweep took at one n, beside its price; "" of a sweep with one B_p."""
    sizes = sorted({b for b, _ in s["cells"]})
    ns = sorted({n for _, n in s["cells"]})
    shared = [n for n in ns if all((b, n) in s["cells"] for b in sizes)]
    if len(sizes) < 2 or not shared:
        return ""
    said = []
    for n in shared:
        of_n = [s["cells"].index((b, n)) for b in sizes]
        took = 2 ** delays(s["C"], s["Y"], of_n[0])[of_n]
        prices = s["price"][of_n] / s["price"][of_n[0]]
        said.append(f"at n = {n} {', '.join(f'{x:.2f}' for x in took)}; "
                    f"price {', '.join(f'{x:.2f}' for x in prices)}")
    return (f"On {s['name']} (b = {s['noise']['b']:.0f}) B_p = {', '.join(map(str, sizes))} took "
            f"{'; '.join(said)}. ")


def price_panel(s, i, log):
    """A panel: rollouts to the same reward over n, taken and by the price, both against cell i."""
    sizes = sorted({b for b, _ in s["cells"]})

    def draw(ax):
        for b in sizes:
            some = [j for j, cell in enumerate(s["cells"]) if cell[0] == b]
            n, shade = [s["cells"][j][1] for j in some], colour(b, sizes)
            ax.plot(n, 2 ** log[some], "o", color=shade, label=f"taken, B_p = {b}")
            for power, style in ((0.5, "-"), (1, ":")):
                ax.plot(n, (s["price"][some] / s["price"][i]) ** power, style, color=shade, lw=1)
        ax.plot([], [], "k-", lw=1, label="root of the price, from the base model")
        ax.plot([], [], "k:", lw=1, label="the price")
        ax.set(xscale="log", yscale="log", xlabel="n",
               ylabel="rollouts to the same reward, relative",
               title=f"{s['name']}, n_c = {s['noise']['n_c']:.1f}")
        ns = sorted({n for _, n in s["cells"]})
        ax.set_xticks(ns, ns)
        ax.set_yticks([1, 2, 4, 8, 16], ["1", "2", "4", "8", "16"])
        ax.minorticks_off()
        ax.legend(fontsize=9)
    return draw


def noise_after_training(s):
    """The gradient noise of a sweep's model after training, in words; "" where unknown."""
    trained = s["noise"].get("trained", {})
    if not trained.get("ends"):
        return ""
    ends = ["{:.0f} [{:.0f}, {:.0f}]".format(end["n_c"], *end["n_c_interval"])
            for end in trained["ends"] if end["n_c"]]
    return (f"After {si(trained['C'])} rollouts at n = {trained['n']} on {s['name']} n_c is "
            f"{', '.join(ends)} (a seed each). ")


def when_to_stop(atlas):
    """At the n of the lowest price: what the last doubling of C brings, less the one before."""
    # of each sweep one cell is used, not all: so a shallow one of a larger n does no harm
    sweeps, less, lines, g = [s for s in priced(atlas, shallow=True) if "runs" in s], [], [], []
    USED.clear()
    for s in sweeps:
        cell = s["cells"][int(s["price"].argmin())]
        runs = s["runs"][cell]
        use({cell: runs})
        at = []  # the mean reward towards C/4, C/2 and C
        for window in ((0.18, 0.25), (0.36, 0.5), (0.72, 1)):
            at.append(np.mean([look(run, window=window).mean() for run in runs.values()]))
        before, last = at[1] - at[0], at[2] - at[1]
        less.append(last - before)
        g.append(at[2] - np.mean([look(run, window=START).mean() for run in runs.values()]))
        lines.append([s["name"], cell[1], f"{100 * before:+.1f}", f"{100 * last:+.1f}"])
    if len({s["group"] for s in sweeps}) < 3:
        raise Missing("three worlds that results/pilot.py has measured")
    c = over_groups(sweeps, less)
    return dict(verdict=denied(judge(c, +1, np.mean(g))), sees=c["sees"],
                table=grid_text(["points gained", "n", "from C/4 to C/2", "from C/2 to C"], lines),
                says=f"the last gain minus the one before, over all sweeps: {points(c)}")


# ---- section 6: forecasts of n* at the end

def settings(atlas):
    """Every sweep over n that pilot.py has measured, three n or more: [dict].

    group (of one base model and problem set), early and late {n: (S, P)}, stats, which are known at
    C/8, and n_c, None where the base model's gradients do not tell it.
    """
    noise, out = noise_of(atlas), []
    for path in sorted(p for p in atlas.folder.iterdir() if p.is_dir()):
        by_lr = atlas.lrs(path.name) if path.name in noise else {}
        for B_p, lr in sorted({(b, lr) for lr, cells in by_lr.items() for b, _ in cells}):
            try:
                cells = atlas.arm(path.name, B_p, lr=lr)
                cfg, cells = config_of(cells), deep_cells(cells)
                if len(cells) < 3 or cfg.get("n_schedule"):
                    continue
                early, late, start = (table_of(cells, window=w) for w in (EARLY, LATE, START))
            except Missing:
                continue
            n_c = noise[path.name].get("n_c")
            base = start[min(cells)].mean(0)  # pass rates of the validation problems
            few, many = mixed_groups(cells[min(cells)]), mixed_groups(cells[max(cells)])
            known = dict(p=base.mean(), spread=base.std(), mixed=few / max(many, 0.01),
                         change=max(t.mean() for t in early.values()) - base.mean(),
                         n_c=n_c and math.log2(n_c))
            out.append(dict(n_c=n_c, early=early, late=late, stats=known,
                            group=(cfg["model"], Path(cfg["train_set"]).name)))
    return out


def mixed_groups(runs):
    """Share of the groups of {seed: run} that have an advantage, in the updates up to C/8."""
    steps = [s for r in runs.values() for s in r["steps"] if s["rollouts"] <= r["budget"] / 8]
    steps = steps or [r["steps"][0] for r in runs.values()]
    return np.mean([1 - s["frac_all_right"] - s["frac_all_wrong"] for s in steps])


def center(table):
    """Mean log2 n over the n that are not told from the best."""
    return float(np.mean(np.log2(near(table)[1])))


def regret(s, log2_n):
    """What the n nearest to a forecast loses at the end, on the best mean there."""
    ns = np.array(sorted(s["late"]))
    n = int(ns[np.abs(np.log2(ns) - log2_n).argmin()])
    return max(t.mean() for t in s["late"].values()) - s["late"][n].mean()


# A rule is a function (a sweep, the sweeps of other groups) -> its forecast of log2 n* at the end

def last_observed(s, others):
    return center(s["early"])


def constant_M(s, others):
    """n in proportion to C, from the middle of EARLY to that of LATE."""
    return center(s["early"]) + math.log2(0.875 / 0.093)


def mean_of_others(s, others):
    return float(np.mean([center(o["late"]) for o in others]))


def from_the_price(s, others):
    return math.log2(named_n(s["n_c"])) if s["n_c"] else mean_of_others(s, others)


def fitted(*names):
    """A rule: least squares on statistics of the other sweeps; their mean where one is missing."""
    def rule(s, others):
        known = [o for o in others if None not in (o["stats"][k] for k in names)]
        if not known or None in (s["stats"][k] for k in names):
            return mean_of_others(s, others)
        X = np.array([[1.0, *(o["stats"][k] for k in names)] for o in known])
        w = np.linalg.lstsq(X, [center(o["late"]) for o in known], rcond=None)[0]
        return float(w @ [1.0, *(s["stats"][k] for k in names)])
    return rule


PLAIN = {"last observed n* (C/8)": last_observed, "constant M": constant_M,
         "mean of the other sweeps": mean_of_others}
STATISTICS = {"pass rates of the base model": fitted("p", "spread"),
              "change of the pass rates up to C/8": fitted("change"),
              "share of mixed groups, smallest n over largest": fitted("mixed"),
              "gradient noise n_c of the base model": fitted("n_c"),
              "1 + sqrt(n_c + 2), nothing fitted": from_the_price}


def early_to_late(atlas):
    """The best statistic, chosen within the other groups, against the last observed n*."""
    found = settings(atlas)
    groups = sorted({s["group"] for s in found})
    if len(groups) < 3:
        raise Missing("three groups of sweeps over n")

    def loss(rule, group, pool):  # mean regret on a group's sweeps, fitted on the pool's others
        others = [s for s in pool if s["group"] != group]
        return np.mean([regret(s, rule(s, others)) for s in pool if s["group"] == group])
    scores = {}
    for name, rule in (PLAIN | STATISTICS).items():
        scores[name] = np.array([loss(rule, group, found) for group in groups])
    chosen = []  # for each group the score of the statistic that is best within the other groups
    for i, group in enumerate(groups):
        inner, rest = [s for s in found if s["group"] != group], [g for g in groups if g != group]
        within = {}
        for name, rule in STATISTICS.items():
            within[name] = np.mean([loss(rule, g, inner) for g in rest])
        chosen.append(scores[min(within, key=within.get)][i])
    c = over_sweeps(scores["last observed n* (C/8)"] - np.array(chosen))

    def draw(ax):
        names = sorted(scores, key=lambda name: -scores[name].mean())
        ax.barh(names, [100 * scores[name].mean() for name in names], color="0.6")
        ax.set(xlabel="regret at the end, points, mean over groups")
        ax.set_title(f"{len(found)} sweeps in {len(groups)} groups, each forecast from the others",
                     fontsize=9)
    lines = [[name, f"{100 * x.mean():.2f}"] for name, x in scores.items()]
    says = (f"{len(found)} sweeps in {len(groups)} groups of one base model and problem set, each "
            "group held out. The statistic that is best within the other groups gains "
            f"{points(c)} over the last observed n*")
    late = [max(t.mean() for t in s["late"].values()) - s["stats"]["p"] for s in found]
    return dict(verdict=judge(c, +1, np.mean(late)), sees=c["sees"], says=says,
                table=grid_text(["forecast by", "regret at the end, points"], lines),
                figure=figure(atlas, "early_to_late", [draw], width=8))
