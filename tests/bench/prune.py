"""Print how many rollouts PRUNE=1 saves and how much reward it loses, on planted sweeps.

    python tests/bench/prune.py        # 30 sweeps of each kind, a minute

The script applies the rule of core/sweep.py to planted curves of tests/simulate.py in memory, with
B_p = 32 and 4 million rollouts per run. At eight budgets from C/8 to C, core/stats.py finds the
best n of the full sweep and of the pruned sweep. Regret is the difference between the planted
rewards of these two n, in points. Cost is the share of the full sweep's rollouts. Lost is the share
of sweeps in which pruning ended a cell that would be the best at a later budget.
"""
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from config import config  # noqa: E402
from core import sweep as planner  # noqa: E402
from core.stats import best, cells_of, nearest  # noqa: E402
from simulate import constant, paper, sigmoids, sweep  # noqa: E402

CFG = dict(config, C=4_000_000, eval_every=40_000, B_max=0)


def curves(runs):
    """Return {n: [(rollouts, reward)]} of runs, as core/sweep.py reads them from logs."""
    out = {}
    for run in runs:
        out.setdefault(run["n"], []).extend(zip(run["rollouts"], run["reward"]))
    return out


def upto(runs, C):
    """Return the runs cut at C rollouts, if three evaluations are left."""
    out = []
    for run in runs:
        m = run["rollouts"] <= C * (1 + 1e-9)
        if m.sum() >= 3:
            keys = ("C", "rollouts", "step", "counts", "reward")
            cut = {key: run[key][m] for key in keys if run[key] is not None}
            status = "diverged" if run["status"] == "diverged" and m.all() else "budget"
            out.append(run | cut | dict(config=run["config"] | dict(C=C), status=status))
    return out


def prune(runs, cfg):
    """Return the runs of one B_p as PRUNE=1 would leave them: some are cut and "pruned"."""
    ended = {}  # {n: the budget at which it was ended}
    for C in planner.rungs(cfg):
        alive = [run for run in runs if run["B_p"] * run["n"] <= C and run["n"] not in ended]
        judged = {run["n"] for run in alive
                  if C // (run["B_p"] * run["n"]) >= max(2, cfg["warmup"])}
        worse = planner.last_third(curves(alive), C)
        ended |= {n: C for n in worse if n in judged}
    return [run for run in runs if run["n"] not in ended] + [
        run | dict(status="pruned") for n, C in ended.items()
        for run in upto([run for run in runs if run["n"] == n], C)]


def tops(runs, budgets, metric):
    """Return the best n at each budget."""
    grid, cells = cells_of(runs, metric)
    return [cells[best(cells, nearest(grid, C))].n for C in budgets]


def compare(full, cfg, truth):
    """Return dict(cost, regret, end, worst, lost) of one sweep.

    full: the runs. truth(B_p, n, C): the planted reward. end: the regret at C. worst: the largest
    regret.
    """
    cut, B_p = prune(full, cfg), full[0]["B_p"]
    budgets = np.geomspace(cfg["C"] / 8, cfg["C"], 8)
    loss = [100 * (truth(B_p, a, np.array([C]))[0] - truth(B_p, b, np.array([C]))[0])
            for C, a, b in zip(budgets, tops(full, budgets, cfg["metric"]),
                               tops(cut, budgets, cfg["metric"]))]
    ends = {run["n"]: run["rollouts"][-1] for run in cut if run["status"] == "pruned"}
    later = np.geomspace(cfg["C"] / 8, cfg["C"], 100)
    ns = sorted({run["n"] for run in full})
    on_top = np.argmax([truth(B_p, n, later) for n in ns], 0)
    lost = any(n in ends and C > ends[n] * 1.01 for n, C in zip(np.array(ns)[on_top], later))
    cost = sum(run["rollouts"][-1] for run in cut) / sum(run["rollouts"][-1] for run in full)
    return dict(cost=cost, regret=np.mean(loss), end=loss[-1], worst=max(loss), lost=lost)


def say(name, rows):
    m = {key: np.mean([row[key] for row in rows]) for key in rows[0]}
    print(f"  {name:36} {m['cost']:5.0%} {m['regret']:8.2f} {m['end']:8.2f} {m['worst']:8.2f} "
          f"{m['lost']:6.0%}", flush=True)


def planted(sweeps):
    print(f"{f'{sweeps} sweeps a row':38} cost   regret     at C    worst   lost")
    octaves, fours = tuple(2 ** i for i in range(3, 12)), (8, 32, 128, 512, 2048)
    for name, truth, ns, seeds in [
            ("paper", paper(), octaves, 3), ("paper", paper(), fours, 3),
            ("paper, one seed", paper(), octaves, 1), ("twice as sharp", paper(2), octaves, 3),
            ("sigmoids", sigmoids, octaves, 3), ("sigmoids, one seed", sigmoids, octaves, 1),
            ("constant", constant(), octaves, 3), ("constant, one seed", constant(), octaves, 1),
            ("all n equal", constant(size=0), octaves, 3)]:
        say(f"{name}, {len(ns)} n", [compare(sweep(20_000 + draw, truth, ns=ns, seeds=seeds), CFG,
                                             truth) for draw in range(sweeps)])


if __name__ == "__main__":
    if "--help" in sys.argv:
        sys.exit(print(__doc__))
    planted(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
