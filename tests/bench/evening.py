"""Print which difference between n = 4 and 64 the sweep of data/gsm8k can detect, by C and seeds.

    python tests/bench/evening.py           # the table for the preset's C and seeds; 2 minutes
    python tests/bench/evening.py --draws=50

Each draw is a simulated sweep with n = 4, 16, 64. Its problems differ in difficulty, and its
evaluations have sampling noise. Final rewards of one cell have a standard deviation of 0.014 to
0.03, as in the logs under results/. Runs with the same seed share most of this noise, because they
have the same order of problems; 0.006 to 0.01 is independent. Two tests look at n = 64 minus n = 4,
paired by seed and problem: core/stats.contrast over the last quarter of C, and the report's
core/stats.tied_with_best at C. A difference is detected if its 90% interval excludes 0. The script
prints the smallest true difference that is detected in 90% and in 95% of draws, in points of avg@4,
and the hours by core/cost.py.
"""
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
import simulate  # noqa: E402
from config import BadInput, entry, parse  # noqa: E402
from core import cost, sweep  # noqa: E402
from core.stats import cells_of, contrast, nearest, tied_with_best  # noqa: E402

NOISE = dict(small=(0.014, 0.006), large=(0.03, 0.010))  # sd of a cell, independent part
PRESET = sweep.sweep_config("easy", [f"--data={ROOT / 'data/gsm8k'}"])
NS, PROBLEMS, SAMPLES = (4, 16, 64), PRESET["n_val"], PRESET["samples"]
EVALS = PRESET["C"] // PRESET["eval_every"]
LATE = 0.75  # `paired_error` compares the evaluations after this share of C


def draw_sweep(rng, seeds, within, own, gain, C):
    """Return runs of a sweep in which n = 64 ends `gain` above n = 4, and n = 16 half as much."""
    common = rng.standard_normal(seeds) * np.sqrt(within**2 - own**2)
    difficulty, runs = rng.standard_normal(PROBLEMS) * 1.5, []
    for i, n in enumerate(NS):
        liking = rng.standard_normal(PROBLEMS) * 0.3  # how much better this n learns each problem
        for seed in range(seeds):
            offset = common[seed] + own * rng.standard_normal() + gain * i / 2

            def curve(B_p, n, C, offset=offset):
                return 0.42 + (0.15 + offset) * np.minimum(1, C / 4e4)
            at, counts = simulate.draw_run(rng, curve, 8, n, C, EVALS, difficulty, SAMPLES,
                                           inter=0.3, liking=liking)
            runs.append(simulate.plain_run(
                n, seed, at * 8 * n, counts.mean(1) / SAMPLES, counts.astype(np.uint8), SAMPLES,
                B_p=8, config=dict(eval_every=C // EVALS, C=C)))
    return runs


def paired_error(runs, C):
    """Return the interval's half-width minus the difference; if it is below 0, it is detected."""
    table = {}
    for run in runs:
        late = run["C"] > LATE * C
        table.setdefault(run["n"], []).append(run["counts"][late].mean(0) / SAMPLES)
    said = contrast({n: np.array(rewards) for n, rewards in table.items()}, {64: 1, 4: -1})
    return said["half"] - said["gain"]


def in_report(runs, C):
    """Return whether the report would say that n = 4 is worse than the best n at C."""
    grid, cells = cells_of(runs, "avg@4")
    return not tied_with_best(cells, nearest(grid, C))[[c.n for c in cells].index(4)]


def least_paired(rng, seeds, noise, C, draws):
    """Return the differences that `paired_error` detects in 90% and 95% of draws.

    Draws without a difference are enough, because a difference only shifts the interval.
    """
    missing = [paired_error(draw_sweep(rng, seeds, *noise, 0.0, C), C) for _ in range(draws)]
    return np.quantile(missing, [0.9, 0.95])


def least_in_report(rng, seeds, noise, C, draws):
    """Return the smallest tested difference that the report detects in 90% of draws, or inf."""
    for gain in np.arange(0.02, 0.2, 0.01):
        seen = np.mean([in_report(draw_sweep(rng, seeds, *noise, gain, C), C)
                        for _ in range(draws)])
        if seen >= 0.9:
            return gain
    return np.inf


def main(argv):
    cfg = parse(argv, __doc__, dict(draws=(400, "sweeps to draw for each row")))
    if cfg["draws"] < 20:
        raise BadInput(f"--draws={cfg['draws']}: expected 20 or more")
    print("smallest detected difference n = 64 minus n = 4, points of avg@4, noise (small, large)\n"
          "        C  M(64)  seeds   GPU-hours (4090, H100)   seed by seed: 90%        95%   "
          "  the report: 90%")
    for C in (38400, 76800, 153600):
        for seeds in (2, 3, 4, 6):
            words = [f"--data={PRESET['data']}", f"--C={C}", f"--eval_every={C // EVALS}",
                     "--seeds=" + " ".join(map(str, range(seeds)))]
            runs = sweep.cells(sweep.sweep_config("easy", words))
            hours = [sum(cost.gpu_hours(c, card) for c in runs) for card in cost.CARDS]
            rng = np.random.default_rng([C, seeds])
            paired = [least_paired(rng, seeds, noise, C, cfg["draws"]) for noise in NOISE.values()]
            report = [least_in_report(rng, seeds, noise, C, max(20, cfg["draws"] // 10))
                      for noise in NOISE.values()]
            print(f"{C:9d} {C // 512:6d} {seeds:6d} {hours[0]:12.0f} {hours[1]:9.1f}  "
                  + " ".join("    " + ", ".join(f"{100 * x:4.1f}" for x in column)
                             for column in (*zip(*paired), report)), flush=True)


if __name__ == "__main__":
    entry(main)
