"""Measure how often the fitted law's plateau is near the planted one, on sweeps like the paper's.

    python tests/bench/plateaus.py 24     # sweeps per row; about 2 minutes on one core

n*(C) of each world is exactly a law with its plateau at 452 (Easy) or 122 (Hard), as in the paper
at B_p = 32. Prints in how many percent of the sweeps the plateau of frontier.py's n* is within 25%
of the planted one, and the 10% and 90% quantiles of the plateau. `highest` is the same percentage
if n* is the n of the highest curve, which is always an n that was run.
"""
import math
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[i]) for i in (1, 2)]

import numpy as np

from fit_sigmoid import ROOM, law_of_points
from frontier import interpolate_n, n_star
from simulate import EASY, law, paper, sweep

NS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048)
SETS = dict(Easy=(EASY, NS), Hard=((4.2, 4.75, 5.8, 2.73), NS[:7]))


def hill(numbers):
    """Return a function (B_p, n, C) -> reward that falls equally on both sides of n*(C). A small n
    loses reward at large C, because n*(C) moves away from it."""
    def reward(B_p, n, C):
        rise = 1 / (1 + np.exp(-2 * (np.log10(np.maximum(C, 1)) - 5.7)))
        gain = 0.3 * rise * np.exp(-0.035 * (math.log2(n) - law(C, numbers)) ** 2)
        return 0.44 + np.where(np.asarray(C) > 0, gain, 0)
    return reward


WORLDS = {"as the paper": lambda numbers: paper(1, numbers),
          "twice as steep": lambda numbers: paper(2, numbers), "hill": hill}


def main(sweeps):
    for name, world in WORLDS.items():
        for task, (numbers, ns) in SETS.items():
            for seeds in (1, 3):
                right, highest, plateaus = 0, 0, []
                planted = 2 ** (numbers[0] + numbers[3])
                for draw in range(sweeps):
                    found = n_star(sweep(draw, world(numbers), ns=ns, seeds=seeds, evals=122,
                                         run_sd=0.003, drift=0.003, inter=0.1))
                    n, bend = interpolate_n(found["cells"], found["curves"])
                    fit = law_of_points(found["C"], np.log2(n), found["n"], bend, ROOM)["fit"]
                    plain = law_of_points(found["C"], np.log2(found["n"]))["fit"]
                    plateaus.append(fit["plateau"])
                    right += abs(fit["plateau"] / planted - 1) <= 0.25
                    highest += abs(plain["plateau"] / planted - 1) <= 0.25
                low, high = np.quantile(plateaus, [0.1, 0.9])
                print(f"{name}, {task}, {seeds} seed(s): {100 * right / sweeps:.0f}% within 25% of "
                      f"{planted:.0f}, {low:.0f} to {high:.0f}; highest: "
                      f"{100 * highest / sweeps:.0f}%", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 24)
