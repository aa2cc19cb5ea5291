"""What the evening of data/gsm8k can see: the difference between n = 4 and 64, by C and seeds.

    python tests/bench/evening.py           # the table behind the preset's C and seeds; 2 minutes
    python tests/bench/evening.py --draws=50

Each draw is a sweep with n = 4, 16, 64: late rewards by problem, with the evaluations' own sampling
noise, problems of differing difficulty, and two further noises as in the logs that are kept under
results/. Runs of one cell scatter by 0.014 to 0.03 (runs of one seed share most of that: they have
the order of problems in common); what is left of a run's own is 0.006 to 0.01. Two verdicts are
asked for the difference n = 64 minus n = 4 at the end: that over the last quarter
(core/stats.contrast), and that of the report at C (core/stats.tied_with_best). Both are paired by
seed and problem. A difference is seen if its 90% interval excludes 0. Printed is the smallest true
difference that is seen in 90% and in 95% of all draws, in points of avg@4. Hours: core/cost.py.
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

NOISE = dict(small=(0.014, 0.006), large=(0.03, 0.010))  # within a cell, without the seed's share
PRESET = sweep.arms("easy", [f"--data={ROOT / 'data/gsm8k'}"])[0]
NS, PROBLEMS, SAMPLES = (4, 16, 64), PRESET["n_val"], PRESET["samples"]
EVALS = PRESET["C"] // PRESET["eval_every"]
LATE = 0.75  # what is compared seed by seed: the evaluations beyond this share of C


def draw_sweep(rng, seeds, within, own, gain, C):
    """A sweep in memory whose n = 64 is `gain` above n = 4 at the end, n = 16 half as much."""
    common = rng.standard_normal(seeds) * np.sqrt(within**2 - own**2)
    difficulty, runs = rng.standard_normal(PROBLEMS) * 1.5, []
    for i, n in enumerate(NS):
        liking = rng.standard_normal(PROBLEMS) * 0.3  # problems that this n learns better
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
    """(half of the interval - the difference n = 64 minus 4), seed by seed: seen if below 0."""
    table = {}
    for run in runs:
        late = run["C"] > LATE * C
        table.setdefault(run["n"], []).append(run["counts"][late].mean(0) / SAMPLES)
    said = contrast({n: np.array(rewards) for n, rewards in table.items()}, {64: 1, 4: -1})
    return said["half"] - said["gain"]


def in_report(runs, C):
    """Whether the report says at C that n = 4 is worse than the best."""
    grid, cells = cells_of(runs, "avg@4")
    return not tied_with_best(cells, nearest(grid, C))[[c.n for c in cells].index(4)]


def least_paired(rng, seeds, noise, C, draws):
    """The differences seen in 90% and 95% of the draws; a difference only moves the interval."""
    missing = [paired_error(draw_sweep(rng, seeds, *noise, 0.0, C), C) for _ in range(draws)]
    return np.quantile(missing, [0.9, 0.95])


def least_in_report(rng, seeds, noise, C, draws):
    """The smallest of some differences that the report sees in 90% of the draws; inf if none."""
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
    print("points of avg@4 that n = 64 must lie above n = 4, by noise (small, large)\n"
          "        C  M(64)  seeds   GPU-hours (4090, H100)   seed by seed: 90%        95%   "
          "  the report: 90%")
    for C in (38400, 76800, 153600):
        for seeds in (2, 3, 4, 6):
            words = [f"--data={PRESET['data']}", f"--C={C}", f"--eval_every={C // EVALS}",
                     "--seeds=" + " ".join(map(str, range(seeds)))]
            runs = sweep.cells(sweep.arms("easy", words)[0])
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
