"""How often the verdict is a rise, on planted sweeps whose n* is known.

    python tests/bench/law.py 60     # 60 sweeps for each number; about 25 minutes on one core
    python tests/bench/law.py power 400    # the difference that a night on one GPU detects

In six worlds n* does not rise: one n is best (at the edge or in the middle of the grid), two n are
tied, all n are equal, or only at large C. In two worlds n* rises as the paper's law, and twice as
steeply. The noise `kept` is that of the committed logs, and runs of one seed share most of it. The
noise `stated` is larger, and runs share none. set: how often the n tied at C include the best n.
"""
import itertools
import math
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[i]) for i in (1, 2)]

import numpy as np
from scipy import stats

from core.stats import difference, table, tied, verdict
from planted import constant, falls_off, paper, sweep

NS = (8, 32, 128, 512, 2048)
NOISE = dict(kept=dict(run_sd=0.0066, drift=0.004, seed_sd=0.010),
             stated=dict(run_sd=0.015, drift=0.009))


def tied_pair(B_p, n, C):
    """Return the reward at C. n = 32 and n = 128 are the best at every budget."""
    return falls_off(64 if n in (32, 128) else n, C, np.full(np.shape(C), 6.0), 2)


def late_ceiling(B_p, n, C):
    """Return the reward at C. n = 8 is the best at small C, and all n are equal at large C."""
    fade = np.clip((6.6 - np.log10(np.maximum(C, 1))) / 1.0, 0, 1)
    return falls_off(n, C, np.full(np.shape(C), 3.0), 0) - 0.06 * fade * math.log2(n / 8) / 8 * (
        np.asarray(C) > 0)


WORLDS = {"n = 8 is best": constant(8, 2), "n = 128 is best": constant(128, 2),
          "n = 2048 is best": constant(2048, 2), "32 and 128 tie": tied_pair,
          "all n equal": constant(size=0), "all equal late": late_ceiling,
          "the paper's law": paper(1), "twice as steep": paper(2)}


def best_n(truth, C):
    """Return the set of n with the highest planted reward at C."""
    y = {n: float(truth(32, n, np.array(C, float))) for n in NS}
    return {n for n in NS if y[n] >= max(y.values()) - 1e-9}


def power(sweeps):
    """Print the lead of n = 64 on n = 4 at the end that nine of ten sweeps of docs/gpu.md detect:
    the error is the gap that `tied` allows, less the gap of a sweep in which all n are equal."""
    for noise, seeds in itertools.product(NOISE, (2, 4)):
        missing = []
        for draw in range(sweeps):
            t = table(sweep(draw, constant(size=0), ns=(4, 16, 64), B_p=8, seeds=seeds, C=76_800,
                            evals=16, samples=8, **NOISE[noise]))
            gap, problems, runs = difference(t, 2, 0, -1)
            level = 0.9 ** 0.5  # for two comparisons
            error = math.hypot(stats.norm.ppf(level) * problems,
                               stats.t.ppf(level, t.df[-1]) * runs)
            missing.append(error - gap)
        print(f"{noise}, {seeds} seeds: {100 * np.quantile(missing, 0.9):.1f} points", flush=True)


def main(sweeps):
    for noise, sds in NOISE.items():
        for name, truth in WORLDS.items():
            text = []
            for seeds in (1, 2, 3, 5):
                said, held, size = [], 0, 0
                for draw in range(sweeps):
                    t = table(sweep(draw, truth, ns=NS, seeds=seeds, evals=60, **sds))
                    said.append(verdict(t, range(len(t.cells)))["verdict"])
                    ties = {t.cells[i][1] for i in tied(t, -1, range(len(t.cells)))}
                    held += min(best_n(truth, t.grid[-1])) in ties
                    size += len(ties)
                text.append(f"{100 * said.count('rises') / sweeps:.0f} "
                            f"({100 * held / sweeps:.0f}, {size / sweeps:.1f})")
            print(f"{noise:7} {name:18} rises % (set %, its size) with 1, 2, 3, 5 seeds: "
                  + "; ".join(text), flush=True)


if __name__ == "__main__":
    if "--help" in sys.argv:
        sys.exit(print(__doc__))
    counts = [int(word) for word in sys.argv[1:] if word.isdigit()]
    (power if "power" in sys.argv else main)(counts[0] if counts else 60)
