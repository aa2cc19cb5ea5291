"""What does a pruned sweep (PRUNE=1) cost, and what does it miss? The procedure of frontier.py, in memory, against the full grid.

    python tests/bench/prune.py              # 40 sweeps a row, half an hour on a core
    python tests/bench/prune.py 10           # fewer sweeps
    python tests/bench/prune.py figure       # results/prune.png: the same simulated sweep in full and pruned

Curves with noise as in coverage.py, 4 million rollouts a run, B_p = 32. In results/easy and results/hard the logs are real, one
seed, and what the full grid says is the truth. At 25 budgets from C/8 to C, evenly spaced in log C:
  cost     rollouts spent, of the full grid's; `least` is what keeping every truly near-optimal cell takes, known beforehand
  regret   what the n on top of the pruned sweep loses, on the true curves, against the n on top of the full one: mean and largest
           of a sweep, in points, averaged over sweeps, and the share of sweeps in which it is 0.5 points at most throughout
  kept     share of budgets at which every n of the full grid's near-optimal set, those within delta = 0.01 of its top, still ran
  same     share of budgets at which the pruned sweep's analysis has that very set, and at C alone. Its curves are fitted to fewer
           runs and differ a little everywhere, and whoever is near the edge of a set may fall out of it or in
  error    share of sweeps in which the bound ended a cell that is truly near-optimal at a later budget; in brackets that of all
           decisions, most of which are made for the budget and not by the bound
"""
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
import frontier  # noqa: E402
from config import cells, config, rungs  # noqa: E402
from simulate import constant, paper, sigmoids, sweep  # noqa: E402

BUDGETS = 25
CFG = dict(config, boot=200, B_max=0, bps="32", C=4_000_000, eval_every=40_000)


def prune(runs, plan):
    """The procedure over the finished `runs` of a grid, and of cells beyond it that may be added: (runs as they end, decisions)."""
    live, stop, decisions = list(dict.fromkeys((c["B_p"], c["n"]) for c in cells(plan))), {}, []
    for C in rungs(plan)[:-1]:
        now = [run for run in runs if (run["B_p"], run["n"]) in live]
        spent = {b: sum(stop.get((run["B_p"], run["n"]), C) for run in runs
                        if run["B_p"] == b and ((run["B_p"], run["n"]) in live or (run["B_p"], run["n"]) in stop)) for b, _ in live}
        decisions.append(frontier.decide(frontier.upto(now, C), live, C, plan, spent, plan))
        for p in decisions[-1]["pruned"]:
            live.remove((p["B_p"], p["n"]))
            stop[p["B_p"], p["n"]] = C
        live += [(p["B_p"], p["n"]) for p in decisions[-1]["added"]]
    out = [run for run in runs if (run["B_p"], run["n"]) in live]
    for cell, C in stop.items():
        out += [run | dict(status="pruned") for run in frontier.upto([run for run in runs if (run["B_p"], run["n"]) == cell], C)]
    return out, decisions


def curves(runs, budgets, plan):
    """{n: reward at the budgets (G,)} of one B_p, as the analysis of these runs has it, -inf where none of its runs reached one."""
    grid, _, _, found = frontier.curves_of(runs, plan["metric"], plan)
    x, out = np.log(grid), {}
    for c in found:
        ok = c["inside"] & ~np.isnan(c["Y"])
        y = np.interp(np.log(budgets), x[ok], c["Y"][ok])
        out[c["n"]] = np.where((budgets >= c["reach"][0] * 0.999) & (budgets <= c["reach"][1] * 1.001), y, -np.inf)
    return out


def compare(full, cut, decisions, truth, plan, B_p=32):
    """One B_p of a sweep in full and pruned -> dict(cost, least, mean, most, kept, same, end, error, wrong, switches)."""
    C, ns = plan["C"], sorted({run["n"] for run in full})
    budgets, dense = np.geomspace(C / 8, C, BUDGETS), np.geomspace(C / 100, C, 400)
    A, B = curves(full, budgets, plan), curves(cut, budgets, plan)
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
    wrong = [n for n in stop if n in ns and (good[ns.index(n)] & (budgets > stop[n][0] * 1.001)).any()]
    spent = {id(run): run["rollouts"][-1] for run in cut}
    last = [budgets[np.flatnonzero(g)[-1]] if g.any() else C / 8 for g in good]
    switches = int((np.diff(np.argmax([truth(B_p, n, dense) for n in ns], 0)) != 0).sum())
    return dict(cost=sum(spent.values()) / sum(run["rollouts"][-1] for run in full), least=np.mean(last) / C, mean=lost.mean(),
                most=lost.max(), fine=lost.max() <= 0.5, kept=kept.mean(), same=same.mean(), end=same[-1],
                error=any("at most" in stop[n][1] for n in wrong), wrong=len(wrong) > 0,
                added=sum(len(d["added"]) for d in decisions), switches=switches)


def simulated(truth, ns, seeds, draw, **kind):
    """A simulated sweep: (full grid's runs, pruned runs, decisions, plan). Two more n are drawn, for what may be added."""
    plan = dict(CFG, ns=" ".join(map(str, ns)), seeds=" ".join(map(str, range(seeds))))
    runs = sweep(draw, truth, ns=(*ns, 2 * ns[-1], 4 * ns[-1]), seeds=seeds, **kind)
    for run in runs:
        run["config"] = run["config"] | dict(warmup=plan["warmup"])
    return [run for run in runs if run["n"] in ns], *prune(runs, plan), plan


def say(name, rows):
    m = {key: np.mean([r[key] for r in rows]) for key in rows[0]}
    print(f"  {name:44} {m['switches']:3.0f}  {100 * m['cost']:4.0f}% {100 * m['least']:4.0f}%   {m['mean']:5.2f} {m['most']:5.2f}  {100 * m['fine']:4.0f}%   "
          f"{100 * m['kept']:4.0f}%  {100 * m['same']:4.0f}% {100 * m['end']:4.0f}%   {100 * m['error']:4.0f}% ({100 * m['wrong']:.0f}%)   {m['added']:.1f}", flush=True)


def main(sweeps):
    print(f"{sweeps} sweeps a row" + " " * 26 + "switches  cost least   regret  most  <=0.5    kept   same  at C   error        added")
    octaves, fours = tuple(2 ** i for i in range(3, 12)), (8, 32, 128, 512, 2048)
    for name, truth, grids in (("paper", paper(), (octaves, fours, (8, 16, 32, 64, 128))), ("paper, twice as sharp", paper(2), (octaves,)),
                               ("sigmoids", sigmoids, (octaves, fours)), ("constant", constant(), (octaves, fours))):
        for ns in grids:
            for seeds in (3, 1) if ns == octaves else (3,):
                rows = []
                for draw in range(sweeps):
                    full, cut, decisions, plan = simulated(truth, ns, seeds, 20_000 + draw)
                    rows.append(compare(full, cut, decisions, truth, plan))
                say(f"{name}, n = {ns[0]} to {ns[-1]}, {len(ns)}, {seeds} seed{'s' * (seeds > 1)}", rows)
    for name in ("easy", "hard"):
        runs, _ = frontier.read_runs(ROOT / "results" / name)
        for B_p in sorted({run["B_p"] for run in runs}):
            here = [run for run in runs if run["B_p"] == B_p]
            plan = dict(here[0]["config"], ns=" ".join(str(run["n"]) for run in here), bps=str(B_p), seeds="0", boot=200)
            plan = {key: plan.get(key, config[key]) for key in config}
            cut, decisions = prune(here, plan)
            say(f"results/{name}, B_p = {B_p}", [compare(here, cut, decisions, None, plan, B_p)])


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
