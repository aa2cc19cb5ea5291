"""What does a pruned sweep (PRUNE=1) cost, and what does it miss, against the full grid?

    python tests/bench/prune.py              # 30 sweeps a row, an hour on a core
    python tests/bench/prune.py 10           # fewer sweeps
    python tests/bench/prune.py real         # only the real runs
    python tests/bench/prune.py figure       # results/prune.png: one sweep, full and pruned

The procedure of sweep.py in memory, on curves with noise as in coverage.py, 4 million rollouts a
run, B_p = 32. Of real runs what the full
grid says is the truth. At 25 budgets from C/8 to C, evenly spaced in log C:
  cost     rollouts spent, of the full grid's; `least` is what keeping every truly near-optimal cell
           takes, known beforehand
  regret   what the n on top of the pruned sweep loses, on the true curves, against the n on top of
           the full one: mean and largest of a sweep, in points, averaged over sweeps, and the share
           of sweeps in which it is 0.5 points at most throughout
  kept     share of budgets at which every n of the full grid's near-optimal set, those within
           delta = 0.01 of its top, still ran
  same     share of budgets at which the pruned sweep's analysis has that very set, and at C alone.
           Its curves are fitted to fewer runs and differ a little everywhere, and whoever is near
           the edge of a set may fall out of it or in
  error    share of sweeps in which the bound ended a cell that is truly near-optimal at a later
           budget; in brackets that of all decisions, most of which are made for the budget and not
           by the bound
  law      share of sweeps whose verdict is `law`, full and pruned
"""
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
import fit_sigmoid as fit  # noqa: E402
import frontier  # noqa: E402
import noise  # noqa: E402
from core import sweep as planner  # noqa: E402
from config import config  # noqa: E402
from core.sweep import cells  # noqa: E402
from simulate import constant, paper, sigmoids, sweep  # noqa: E402

BUDGETS = 25
CFG = dict(config, boot=200, B_max=0, bps="32", C=4_000_000, eval_every=40_000)


def prune(runs, plan):
    """The procedure over the finished `runs` of a grid, and of cells beyond it that may be added:
    (runs as they end, decisions)."""
    live, stop, decisions = list(dict.fromkeys((c["B_p"], c["n"]) for c in cells(plan))), {}, []
    for C in planner.rungs(plan)[:-1]:
        now = [run for run in runs if (run["B_p"], run["n"]) in live]
        spent = dict.fromkeys((b for b, _ in live), 0)
        for run in runs:
            cell = run["B_p"], run["n"]
            spent[run["B_p"]] += stop.get(cell, C if cell in live else 0)
        decisions.append(planner.decide(planner.upto(now, C), live, C, plan, spent, plan,
                                         decisions))
        for p in decisions[-1]["pruned"]:
            live.remove((p["B_p"], p["n"]))
            stop[p["B_p"], p["n"]] = C
        live += [(p["B_p"], p["n"]) for p in decisions[-1]["added"]]
    out = [run for run in runs if (run["B_p"], run["n"]) in live]
    for cell, C in stop.items():
        of_cell = [run for run in runs if (run["B_p"], run["n"]) == cell]
        out += [run | dict(status="pruned") for run in planner.upto(of_cell, C)]
    return out, decisions


def curves(grid, found, budgets):
    """{n: reward at the budgets (G,)} of the cells of one B_p on `grid`, -inf where none of its
    runs reached a budget."""
    out = {}
    for c in found:
        ok = c["inside"] & ~np.isnan(c["Y"])
        y = np.interp(np.log(budgets), np.log(grid[ok]), c["Y"][ok])
        first, last = c["reach"]
        reached = (budgets >= first * 0.999) & (budgets <= last * 1.001)
        out[c["n"]] = np.where(reached, y, -np.inf)
    return out


def says_law(grid, found, plan):
    """True where the verdict of one B_p is `law`."""
    panel = noise.panel_of(found, grid, plan | dict(head=plan), "rollouts")
    return fit.verdict_of(panel["surface"], plan["delta"])["verdict"] == "law"


def compare(full, cut, decisions, truth, plan, B_p=32):
    """One B_p of a sweep in full and pruned -> dict(cost, least, mean, most, kept, same, end,
    error, wrong, switches)."""
    C, ns = plan["C"], sorted({run["n"] for run in full})
    budgets, dense = np.geomspace(C / 8, C, BUDGETS), np.geomspace(C / 100, C, 400)
    analysed = [noise.cells_of(runs, plan["metric"], plan) for runs in (full, cut)]
    A, B = (curves(grid, found, budgets) for grid, _, found in analysed)
    true = np.array([truth(B_p, n, budgets) for n in ns]) if truth else np.array([A[n] for n in ns])
    truth = truth or (lambda b, n, c: np.interp(np.log(c), np.log(budgets), A[n]))

    def near(Y):
        Y = np.array([Y.get(n, np.full(BUDGETS, -np.inf)) for n in ns])
        return Y >= Y.max(0) - plan["delta"]
    top = [max(Y, key=lambda n: Y[n][i]) for Y in (A, B) for i in range(BUDGETS)]
    value = np.array([truth(B_p, n, budgets[[i % BUDGETS]])[0] for i, n in enumerate(top)])
    lost = 100 * (value[:BUDGETS] - value[BUDGETS:])
    kept = ~(near(A) & [~np.isfinite(B.get(n, np.full(BUDGETS, -np.inf))) for n in ns]).any(0)
    same, good = (near(A) == near(B)).all(0), true >= true.max(0) - plan["delta"]
    stop = {p["n"]: (d["C"], p["why"]) for d in decisions for p in d["pruned"] if p["B_p"] == B_p}
    wrong = [n for n in stop if n in ns
             and (good[ns.index(n)] & (budgets > stop[n][0] * 1.001)).any()]
    spent = {id(run): run["rollouts"][-1] for run in cut}
    last = [budgets[np.flatnonzero(g)[-1]] if g.any() else C / 8 for g in good]
    law = [says_law(grid, found, plan) for grid, _, found in analysed]
    switches = int((np.diff(np.argmax([truth(B_p, n, dense) for n in ns], 0)) != 0).sum())
    return dict(cost=sum(spent.values()) / sum(run["rollouts"][-1] for run in full),
                least=np.mean(last) / C, mean=lost.mean(), most=lost.max(), fine=lost.max() <= 0.5,
                kept=kept.mean(), same=same.mean(), end=same[-1],
                error=any("at most" in stop[n][1] for n in wrong), wrong=len(wrong) > 0,
                added=sum(len(d["added"]) for d in decisions), switches=switches, law=law[0],
                law_cut=law[1])


def simulated(truth, ns, seeds, draw, **kind):
    """A simulated sweep: (full grid's runs, pruned runs, decisions, plan). Two more n are drawn,
    for what may be added."""
    plan = dict(CFG, ns=" ".join(map(str, ns)), seeds=" ".join(map(str, range(seeds))))
    runs = sweep(draw, truth, ns=(*ns, 2 * ns[-1], 4 * ns[-1]), seeds=seeds, **kind)
    for run in runs:
        run["config"] = run["config"] | dict(warmup=plan["warmup"])
    return [run for run in runs if run["n"] in ns], *prune(runs, plan), plan


def say(name, rows):
    m = {key: np.mean([r[key] for r in rows]) for key in rows[0]}
    print(f"  {name:44} {m['switches']:3.0f}  {100 * m['cost']:4.0f}% {100 * m['least']:4.0f}%   "
          f"{m['mean']:5.2f} {m['most']:5.2f}  {100 * m['fine']:4.0f}%   "
          f"{100 * m['kept']:4.0f}%  {100 * m['same']:4.0f}% {100 * m['end']:4.0f}%   "
          f"{100 * m['error']:4.0f}% ({100 * m['wrong']:3.0f}%)   {m['added']:.1f}   "
          f"{100 * m['law']:3.0f}% {100 * m['law_cut']:3.0f}%", flush=True)


def main(sweeps):
    print(f"{f'{sweeps} sweeps a row':45}switches  cost least   regret  most  <=0.5    kept   same "
          " at C   error     added   "
          "law full, pruned")
    octaves, fours = tuple(2 ** i for i in range(3, 12)), (8, 32, 128, 512, 2048)
    def row(name, truth, ns, seeds=3):
        rows = []
        for draw in range(sweeps):
            full, cut, decisions, plan = simulated(truth, ns, seeds, 20_000 + draw)
            rows.append(compare(full, cut, decisions, truth, plan))
        say(f"{name}, n = {ns[0]} to {ns[-1]}, {len(ns)}, {seeds} seed{'s' * (seeds > 1)}", rows)
    print("three switches or more")
    for ns in (octaves, fours, octaves[:5]):
        row("paper", paper(), ns)
    row("paper, twice as sharp", paper(2), octaves)
    row("sigmoids", sigmoids, octaves)
    row("paper", paper(), octaves, 1)
    row("sigmoids", sigmoids, octaves, 1)
    print("fewer")
    row("sigmoids", sigmoids, fours)
    row("constant", constant(), octaves)
    row("constant", constant(), fours)
    row("constant", constant(), octaves, 1)
    row("all n equal", constant(size=0), octaves)
    print("what other choices would make of it: a larger share, the bound alone, rungs a factor of "
          "2 apart")
    half, ladder = planner.HALF, planner.rungs
    for planner.HALF, planner.rungs in ((0.6, ladder), (0.7, ladder), (9.0, ladder),
                                          (half, lambda plan: ladder(plan)[::2])):
        if planner.HALF == half:
            what = "factor 2"
        else:
            what = "bound" if planner.HALF > 1 else f"{planner.HALF:g}"
        row(f"{what}: paper", paper(), octaves)
        row(f"{what}: sigmoids", sigmoids, octaves)
    planner.HALF, planner.rungs = half, ladder
    real()


def real():
    print("real runs, against what the full grid says; results/atlas has three seeds, the others "
          "one")
    for name in ("grid_easy", "grid_hard", "atlas/wide_easy", "atlas/wide_hard"):
        runs, _ = frontier.read_runs(ROOT / "results" / name)
        for B_p in sorted({run["B_p"] for run in runs}):
            here = [run for run in runs if run["B_p"] == B_p]
            ns, seeds = (" ".join(map(str, sorted({run[key] for run in here})))
                         for key in ("n", "seed"))
            plan = dict(here[0]["config"], ns=ns, bps=str(B_p), seeds=seeds, boot=200)
            plan = {key: plan.get(key, config[key]) for key in config}
            cut, decisions = prune(here, plan)
            say(f"results/{name}, B_p = {B_p}", [compare(here, cut, decisions, None, plan, B_p)])


def figure(draw=20_000):
    """One simulated sweep of the paper's curves, in full and pruned: curves, frontier, where each
    cell was stopped."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    ns = tuple(2 ** i for i in range(3, 12))
    full, cut, decisions, plan = simulated(paper(), ns, 3, draw)
    colour = frontier.colours(sorted({run["n"] for run in [*full, *cut]}))
    fig, axes = plt.subplots(1, 2, figsize=(10.7, 4.8), sharex=True, sharey=True,
                             layout="constrained")
    cost = sum(run["rollouts"][-1] for run in cut) / sum(run["rollouts"][-1] for run in full)
    for ax, runs, title in zip(axes, (full, cut), ("the full grid", f"PRUNE=1: {100 * cost:.0f}% "
                                                                    "of its rollouts")):
        grid, _, found = noise.cells_of(runs, plan["metric"], plan)
        for c in found:
            ax.plot(grid[c["inside"]], c["Y"][c["inside"]], color=colour[c["n"]], lw=1.3,
                    label=f"n = {c['n']}")
            if not noise.unpruned([c]):
                end = np.flatnonzero(c["inside"])[-1]
                ax.plot(grid[end], c["Y"][end], "X", color=colour[c["n"]], ms=9, mec="black",
                        zorder=6, label="_")
        Y = np.array([np.where(c["inside"], c["Y"], -np.inf) for c in found])
        ax.plot(grid, Y.max(0), color="black", lw=3.5, alpha=0.35, label="frontier")
        turns = [found[i]["n"] for i in Y.argmax(0)]
        for i in np.flatnonzero(np.diff(turns)):
            ax.axvline(grid[i], color="0.6", lw=0.7, ls=":")
        ax.set(xscale="log", xlabel=frontier.AXIS["rollouts"],
               title=f"{title}: n on top {', '.join(map(str, dict.fromkeys(turns)))}")
        ax.title.set_fontsize(10)
    axes[1].plot([], [], "Xk", ms=8, label="stopped")
    axes[0].set(ylabel="validation avg@4, simulated", ylim=(0.42, None))
    handles, labels = axes[1].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower center", ncols=6, fontsize=9)
    fig.savefig(ROOT / "results/prune.png", dpi=150)
    print(ROOT / "results/prune.png")


if __name__ == "__main__":
    word = sys.argv[1] if len(sys.argv) > 1 else "30"
    dict(figure=figure, real=real).get(word, lambda: main(int(word)))()
