"""Are the prescriptions and their rewards right? Measured on planted sweeps.

    python tests/bench/prescriptions.py          # 200 planted sweeps
    python tests/bench/prescriptions.py 50       # fewer sweeps

In a planted sweep n*(C) follows the paper's law, or one n is always best, or all n are equal, or
the curves fall again. Sweeps have 1 or 3 seeds, 1 or 3 B_p and 50 or 300 problems. Some runs end
early or diverge. The standard deviation of runs is 0.015 (low 0.006, high 0.03), that of
checkpoints 0.009 (low 0.004). The regret of a cell is the true reward of the best cell minus the
true reward of this cell. The script prints for the prescriptions at C, C/2 and C/4
- the regret of the prescribed cell, of the cell with the highest mean of its last three
  evaluations, and of the cell with the paper's highest sigmoid
- the printed reward minus the true reward
- how often the interval contains the true mean, and how often the reward of a new run
- how often the best cell is among the tied cells
For 2 C and 4 C the script prints the regret of the cell of C, and of the n of the paper's law.
"""
import math
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
from core import stats  # noqa: E402
from fit_sigmoid import law_at, law_of_points  # noqa: E402
from frontier import n_star, pooled_records  # noqa: E402
from simulate import constant, draw_run, paper, plain_run  # noqa: E402

C, NS = 4_000_000, (8, 32, 128, 512)
NOISE = dict(low=(0.006, 0.004), real=(0.015, 0.009), high=(0.03, 0.009))


def planted(draw):
    """Return one sweep: (runs, truth, seeds, again).

    truth (B_p, n, C): the mean reward. again (B_p, n, C): the reward of one more run on the same
    problems.
    """
    rng = np.random.default_rng(draw)
    kind = rng.choice(["law", "law", "one n", "equal", "falls"])
    size, sd, drift = rng.choice([0.5, 1, 2]), *NOISE[rng.choice(list(NOISE))]
    numbers = rng.uniform(1, 6), rng.uniform(2, 8), rng.uniform(5.2, 6.9), rng.uniform(2.5, 4)
    of_n = {"one n": constant(2 ** int(rng.integers(3, 10)), size),
            "equal": constant(size=0)}.get(kind, paper(size, numbers))
    loss, peak = rng.choice([0.003, 0.012]), rng.uniform(100, 500)

    def truth(B_p, n, C):
        # B_p = 64 is the best. If kind = falls, a curve loses 2 points per octave of M after its
        # peak
        y = of_n(B_p, n, C) - loss * (math.log2(B_p) - 6) ** 2 * (np.asarray(C) > 0)
        if kind == "falls":
            y = y - 0.02 * np.maximum(0, np.log2(np.maximum(C, 1) / (B_p * n) / peak))
        return np.maximum(y, 0.02)
    seeds, sizes = rng.choice([1, 3]), ((64,), (32, 64, 128))[rng.integers(2)]
    evals, P = int(rng.choice([16, 40, 100])), int(rng.choice([50, 300]))
    difficulty, runs = rng.standard_normal(P) * 1.5, []
    likings = {n: rng.standard_normal(P) * 0.3 for n in NS}
    for n, liking in likings.items():
        for B_p, seed in ((b, s) for b in sizes for s in range(seeds) if b * n <= 65536):
            at, counts = draw_run(rng, truth, B_p, n, C, evals, difficulty, 4, sd, drift, 0.3,
                                  liking)
            runs.append(plain_run(n, seed, at * B_p * n, counts.mean(1) / 4,
                                  counts.astype(np.uint8), B_p=B_p,
                                  config=dict(eval_every=C // evals, C=C)))
    dead = {}
    if rng.random() < 0.3:
        cells = sorted({(run["B_p"], run["n"]) for run in runs})
        dead = {cell: C * rng.uniform(0.2, 0.8) for cell in cells if rng.random() < 0.15}
        for run in runs:
            cell = run["B_p"], run["n"]
            end = dead.get(cell, C * rng.choice([0.25, 0.5, 1], p=[0.1, 0.1, 0.8]))
            keep = run["C"] <= end
            for key in ("C", "rollouts", "step", "counts", "reward"):
                run[key] = run[key][keep]
            run["config"]["C"] = int(end)
            run["status"] = "diverged" if cell in dead else "budget"
        runs = [run for run in runs if len(run["C"]) > 3]

    def alive(B_p, n, at):
        return np.where(np.asarray(at) > dead.get((B_p, n), math.inf), 0.05, truth(B_p, n, at))

    def again(B_p, n, at):
        counts = draw_run(rng, alive, B_p, n, int(at), 1, difficulty, 64, sd, drift, 0.3,
                          likings[n])[1]
        return counts[-1].mean() / 64
    return runs, alive, seeds, again


def reached(c, j, at):
    """Return the budget at which a run of cell `c`, prescribed for the budget `at`, ends."""
    return at if c.alive[j] else c.reach[1]


def last_three(runs, at):
    """Return (B_p, n) of the cell with the highest mean of the last three evaluations up to `at`.

    Return None if no run reached it.
    """
    cells = {}
    for run in runs:
        seen = (run["C"] > 0) & (run["C"] <= at)
        if run["C"][-1] > 0.9 * at and run["status"] == "budget" and seen.any():
            cells.setdefault((run["B_p"], run["n"]), []).append(run["reward"][seen][-3:].mean())
    return max(cells, key=lambda c: np.mean(cells[c])) if cells else None


def highest_sigmoid(runs, at):
    """Return (B_p, n) of the highest sigmoid through record-breaking points, the paper's choice."""
    tops = []
    for B_p in {run["B_p"] for run in runs}:
        found = n_star([run for run in runs if run["B_p"] == B_p], C=np.array([at]))
        for (_, n), y in zip(found["cells"], found["curves"][:, 0]):
            tops.append((-1 if np.isnan(y) else y, B_p, n))
    return max(tops)[1:]


def prescriptions(sweeps):
    rows, beyond = [], []
    for draw in range(sweeps):
        runs, truth, seeds, again = planted(draw)
        grid, cells = stats.cells_of(runs, "avg@4")
        if grid[-1] < 0.9 * C:
            continue
        shown, pairs = stats.heldout_reward(cells), sorted({(c.B_p, c.n) for c in cells})
        for at in grid[-1] / np.array([1, 2, 4]):
            j = stats.nearest(grid, at)
            c = cells[stats.best(cells, j)]
            half, got = stats.ci_half_width(c, j), truth(c.B_p, c.n, reached(c, j, at))
            best = max(truth(*pair, at) for pair in pairs)
            new = again(c.B_p, c.n, reached(c, j, at))
            same = [(x.B_p, x.n) for x, ok in zip(cells, stats.tied_with_best(cells, j)) if ok]
            three = last_three(runs, at) or (c.B_p, c.n)
            rows.append((seeds, best - got, best - truth(*three, at),
                         best - truth(*highest_sigmoid(runs, at), at), shown[j] - got,
                         c.mean[j] - got, abs(shown[j] - got) < half, abs(shown[j] - new) < half,
                         any(truth(*pair, at) >= best - 1e-9 for pair in same)))
        top = cells[stats.best(cells, -1)]
        B_p = top.B_p
        found = pooled_records([r for r in runs if r["B_p"] == B_p], 0.005)
        law = law_of_points(found["C"], found["log2_n_mean"], found["n"])["fit"]
        for factor in (2, 4):
            at = C * factor
            best = max(truth(b, n, at) for b in {b for b, _ in pairs} for n in (*NS, 1024))
            by_law = min(max(2 ** float(law_at(law, at)), 2), 1024) if law else top.n
            beyond.append((factor, *(best - truth(B_p, n, at) for n in (top.n, by_law))))
    a = np.array(rows, float)
    for seeds in sorted(set(a[:, 0].astype(int))):
        r = 100 * a[a[:, 0] == seeds][:, 1:]
        err = 1.645 * r[:, :3].std(0) / math.sqrt(len(r) / 3)  # a sweep's three rows count as one
        print(f"{seeds} seed(s), {len(r)} rows: regret {r[:, 0].mean():.2f} ± {err[0]:.2f} (worst "
              f"{r[:, 0].max():.1f}), last three {r[:, 1].mean():.2f}, paper's sigmoids "
              f"{r[:, 2].mean():.2f}; printed minus true {r[:, 3].mean():+.2f} (the highest curve "
              f"{r[:, 4].mean():+.2f}); interval has the mean {r[:, 5].mean():.0f}%, a new run "
              f"{r[:, 6].mean():.0f}%; the best is tied {r[:, 7].mean():.0f}%")
    b = np.array(beyond)
    for factor in (2, 4):
        kept, by_law = 100 * b[b[:, 0] == factor][:, 1:].mean(0)
        print(f"at {factor} C: regret of the cell of C {kept:.2f}, of the paper's law {by_law:.2f}",
              flush=True)


if __name__ == "__main__":
    if "--help" in sys.argv:
        sys.exit(print(__doc__))
    prescriptions(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
