"""bandit.py: rollouts/s of bandit_toy.py, compared with a loop over rollouts and decisions.

    python tests/bench/bandit.py

Both make whole updates of one cell of the default world. They differ in how they draw rollouts and
sum gradients; advantages and AdamW are the same code. The loop trains one seed, bandit_toy.py one
seed and then eight together. Prints medians of alternating repetitions.
"""
import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
os.chdir(ROOT)

import bandit_toy
import numpy as np
from config import derive, parse


def plain_roll(pi, n, rngs):
    """Return what bandit_toy.roll returns, drawn one rollout and one decision at a time."""
    K, S, P, d = pi.shape
    choice = np.empty((S, n, P, d), np.uint8)
    for s in range(S):
        for i in range(n):
            for p in range(P):
                for j in range(d):
                    u, edge, k = rngs[s].random(), float(pi[0, s, p, j]), 0
                    while u > edge and k < K - 1:
                        k += 1
                        edge += float(pi[k, s, p, j])
                    choice[s, i, p, j] = k
    return choice


def plain_gradient(pi, choice, A):
    """Return what bandit_toy.group_gradient returns, one decision of a rollout at a time."""
    K, S, P, d = pi.shape
    G = np.zeros((S, P, d, K))
    for s, i, p in np.ndindex(S, choice.shape[1], P):
        if A[s, i, p]:
            for j in range(d):
                G[s, p, j] -= A[s, i, p] * pi[:, s, p, j]
                G[s, p, j, choice[s, i, p, j]] += A[s, i, p]
    return G.astype(np.float32)


def rate(cfg, world, seeds, plain):
    """Return the rollouts/s of a few updates, summed over seeds. plain: whether to use the loop."""
    fast = bandit_toy.roll, bandit_toy.group_gradient
    if plain:
        bandit_toy.roll, bandit_toy.group_gradient = plain_roll, plain_gradient
    run, d = bandit_toy.Run(cfg, world, seeds), derive(cfg)
    run.update(cfg, d)
    updates = max(2, 512 // d["B"]) if plain else max(4, 32768 // d["B"])
    t = time.perf_counter()
    for _ in range(updates):
        run.update(cfg, d)
    t = time.perf_counter() - t
    bandit_toy.roll, bandit_toy.group_gradient = fast
    return updates * d["B"] * len(seeds) / t


def main():
    print("one process of one thread; medians of 5 alternating repetitions")
    for n in (2, 16, 256):
        cfg = parse(["--data=data/bandit", f"--n={n}"], own=bandit_toy.TOY)
        world = bandit_toy.make_world(cfg)
        rates = np.median([[rate(cfg, world, [0], True), rate(cfg, world, [0], False),
                            rate(cfg, world, range(8), False)] for _ in range(5)], 0)
        print(f"n = {n:3d}: plain loop {rates[0]:,.0f} rollouts/s; vectorised "
              f"{rates[1] / rates[0]:.0f} times that; eight seeds side by side "
              f"{rates[2] / rates[0]:.0f} times")


if __name__ == "__main__":
    if "--help" in sys.argv:
        sys.exit(print(__doc__))
    main()
