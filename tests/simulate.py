"""A sweep with known truth: run folders in the log format of the trainer, drawn from planted curves.

    from simulate import simulate, truth
    simulate("runs/fake", ns=(4, 8, 16), seeds=(0, 1))   # then: python frontier.py --runs=runs/fake

Validation problems have difficulties of their own, shared by all runs; each evaluation draws its rollouts anew. So the
logs hold the two noises that the analysis must take apart, and `run_sd` adds the third, from run to run.
"""
import gzip
import math
from pathlib import Path

import numpy as np

from config import append, derive, parse


def truth(B_p, n, C):
    """Expected reward after C rollouts: larger n rises later, and up to n = 32 to a higher plateau, so n*(C) rises to 32."""
    octaves = math.log2(n)
    return 0.30 + (0.12 + 0.035 * min(octaves, 5)) / (1 + (10_000 * 2 ** (0.75 * octaves) / np.maximum(C, 1e-9)) ** 1.3)


def crossing(truth, B_p, a, b, lo=1e3, hi=1e8):
    """The C where truth(b) overtakes truth(a), by brute force on a fine grid."""
    C = np.geomspace(lo, hi, 200_001)
    ahead = truth(B_p, b, C) - truth(B_p, a, C)
    return C[np.flatnonzero((ahead[:-1] <= 0) & (ahead[1:] > 0))[0]]


def pass_rates(reward, difficulty):
    """Each problem's pass rate when the mean over all possible problems is `reward`: (E,), (P,) -> (E, P)."""
    normal = np.random.default_rng(0).standard_normal(4000) * 1.5
    skill = np.linspace(-12, 12, 2001)
    mean = (1 / (1 + np.exp(-(skill[:, None] + normal)))).mean(1)  # the population's mean at each skill
    at = np.interp(reward, mean, skill)
    return 1 / (1 + np.exp(-(at[:, None] + difficulty)))


def simulate(folder, ns=(4, 8, 16, 32, 64), B_ps=(32,), seeds=(0,), C=2_000_000, evals=40, P=300, samples=4, truth=truth,
             run_sd=0.0, draw=0, gz=False, unfinished=(), words=(), **fields):
    """Write one run folder for each cell. unfinished: names (B_p, n, seed) that get no end record. Returns {cell: folder}.

    words: command-line words of the runs' config. fields: extra fields of the evaluations, or set_hash=... to change one.
    """
    rng, folders = np.random.default_rng(draw), {}
    difficulty = rng.standard_normal(P) * 1.5
    for seed in seeds:
        for B_p in B_ps:
            for n in ns:
                cfg = parse([f"--B_p={B_p}", f"--n={n}", f"--seed={seed}", f"--C={C}", f"--samples={samples}",
                             f"--eval_every={C // evals}", f"--runs={folder}", f"--data={folder}", "--B_max=0", *words])
                d = derive(cfg)
                run = Path(folder) / d["run"]
                run.mkdir(parents=True)
                folders[B_p, n, seed] = run / "log.jsonl"
                # as the trainer does: at the first whole update that reaches a multiple of eval_every, and at the end
                at = np.unique(np.minimum(np.ceil(np.arange(evals + 1) * (C // evals) / d["B"]), d["M"]).astype(int))
                reward = np.clip(truth(B_p, n, at * d["B"]) + (at > 0) * run_sd * rng.standard_normal(), 0.001, 0.999)
                correct = rng.binomial(samples, pass_rates(reward, difficulty))
                with open(folders[B_p, n, seed], "wb", buffering=0) as file:
                    append(file, dict(type="header", schema=1, config=cfg, derived=d))
                    for m, c in zip(at.tolist(), correct):
                        append(file, dict(type="step", step=m, rollouts=m * d["B"], tokens=100 * m * d["B"], loss=0.0))
                        append(file, {"type": "eval", "step": m, "rollouts": m * d["B"], "tokens": 100 * m * d["B"],
                                      "set": "val", "k": 4, "avg@4": c.mean() / samples, "samples": samples,
                                      "set_hash": "planted", "correct": c, **fields})
                    if (B_p, n, seed) not in unfinished:
                        append(file, dict(type="end", status="budget", rollouts=d["M"] * d["B"]))
                if gz:
                    Path(f"{folders[B_p, n, seed]}.gz").write_bytes(gzip.compress(folders[B_p, n, seed].read_bytes()))
                    folders[B_p, n, seed].unlink()
    return folders
