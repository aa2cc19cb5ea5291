"""Planted sweeps with a known n*(C): runs in memory, or run folders as the trainer writes them.

All runs share the difficulties of the validation problems; each evaluation draws new rollouts.
`run_sd` moves a run's whole curve, `drift` moves it slowly over C, `inter` makes some problems
easier for some n, and `seed_sd` is an effect that all runs of a seed share.
"""
import itertools
import json
import math
from pathlib import Path
from statistics import NormalDist

import numpy as np

from config import derive, parse
from core.log import append

EASY = (6.09, 4.75, 5.84, 2.73)  # L, k, log10 C0, b of the paper's law on Easy at B_p = 32


def falls_off(n, C, log2_best, size=1.0):
    """Return rewards (E,) after C rollouts (E,) that fall with the distance of n from the best n.
    They are as high as in the paper, but not a sigmoid. log2_best (E,): log2 n* at C. An n one
    octave too small costs about 1.2 points, an n one octave too large 3 points, times `size`."""
    x, d = np.log10(np.maximum(C, 1)), math.log2(n) - log2_best
    loss = np.where(d < 0, 0.055, 0.13) * size * (np.sqrt(1 + d ** 2) - 1)
    gained = 0.3375 / (1 + np.exp(-2 * (x - 5.95))) * np.exp(-loss)
    return 0.44 + np.where(np.asarray(C) > 0, gained, 0)


def law(C, numbers=EASY):
    """Return log2 n*(C) by a law's numbers."""
    L, k, log10_C0, b = numbers
    return L / (1 + np.exp(-k * (np.log10(np.maximum(C, 1)) - log10_C0))) + b


def paper(size=1.0, numbers=EASY):
    """Return curves like the paper's on Easy at B_p = 32. Their n*(C) is exactly the paper's law.
    If size is 2, a wrong n costs twice as much."""
    return lambda B_p, n, C: falls_off(n, C, law(C, numbers), size)


def constant(best=32, size=1.0):
    """Return curves like `paper` with one best n at every budget. If size is 0, all n are equal."""
    return lambda B_p, n, C: falls_off(n, C, math.log2(best), size)


# quantiles, because random draws would shift all rewards
_NORMAL = np.array([NormalDist().inv_cdf((i + 0.5) / 4000) for i in range(4000)])
_TABLE = {}


def pass_rates(reward, difficulty, inter=0.0):
    """Return the pass rate (E, P) of each problem if the mean over all possible problems is
    `reward` (E,). difficulty (P,)."""
    if inter not in _TABLE:
        skill = np.linspace(-12, 12, 2001)  # the population's mean at each skill
        each = 1 / (1 + np.exp(-(skill[:, None] + _NORMAL * math.hypot(1.5, inter))))
        _TABLE[inter] = skill, each.mean(1)
    skill, mean = _TABLE[inter]
    return 1 / (1 + np.exp(-(np.interp(reward, mean, skill)[:, None] + difficulty)))


def evaluated_at(cfg):
    """Return the updates after which a run is evaluated (E,): before the first, at the first that
    reaches a multiple of eval_every, and at the end."""
    B, C, every = cfg["B_p"] * cfg["n"], cfg["C"], cfg["eval_every"]
    due = np.ceil(np.arange(C // every + 1) * every / B)
    return np.unique(np.append(np.minimum(due, C // B), C // B)).astype(int)


def wander(rng, C, run_sd, drift):
    """Return how much a run's reward differs from its curve after C rollouts (E,). This is a
    constant of the run plus an autoregression in log C with a memory of 0.4 decades."""
    x, out, state = np.log10(np.maximum(C, 1)), np.zeros(len(C)), rng.standard_normal()
    for i in range(1, len(C)):
        keep = math.exp(-(x[i] - x[i - 1]) / 0.4) if i > 1 else 0
        state = keep * state + math.sqrt(1 - keep ** 2) * rng.standard_normal()
        out[i] = state
    return (C > 0) * (run_sd * rng.standard_normal() + drift * out)


def draw_run(rng, truth, B_p, n, C, evals, difficulty, samples=4, run_sd=0.0, drift=0.0, inter=0.0,
             liking=0.0):
    """Draw one run: (updates at its evaluations (E,), counts (E, P)). difficulty (P,): how easy a
    problem is for all n. liking (P,): how much easier it is for this n."""
    at = evaluated_at(dict(B_p=B_p, n=n, C=C, eval_every=C // evals))
    spent = at * B_p * n
    reward = truth(B_p, n, spent) + wander(rng, spent, run_sd, drift)
    rates = pass_rates(np.clip(reward, 0.001, 0.999), difficulty + liking, inter)
    return at, rng.binomial(samples, rates)


def run(n, seed, C, reward, B_p=32, lr=1e-6, status="budget", **more):
    """Return a run with rewards (E,) or (E, P) at C (E,), as core.runs.read_run does."""
    C, reward = np.asarray(C, float), np.asarray(reward, float)
    return dict(run=f"Bp{B_p}_n{n}_lr{lr:g}_seed{seed}", config=dict(C=int(C[-1]), B_p=B_p, n=n),
                B_p=B_p, n=n, seed=seed, lr_base=lr, C=C, rollouts=C, step=C / (B_p * n),
                status=status,
                reward=reward if reward.ndim > 1 else reward[:, None], hours=0 * C, steps=[],
                problems=0, task=(None, 0, 0), D=0, device="", source="") | more


def sweep(draw, truth, ns=(8, 32, 128, 512, 2048), B_p=32, seeds=3, C=4_000_000, evals=100, P=300,
          samples=4, run_sd=0.006, drift=0.004, inter=0.3, seed_sd=0.0):
    """Return planted runs as core.runs.read_sweep does, without files."""
    rng, runs = np.random.default_rng(draw), []
    difficulty = rng.standard_normal(P) * 1.5
    of_seed = seed_sd * rng.standard_normal(seeds) if seed_sd else np.zeros(seeds)
    for n in ns:
        liking = rng.standard_normal(P) * inter
        for seed in range(seeds):
            at, counts = draw_run(
                rng, lambda *cell: truth(*cell) + of_seed[seed] * (cell[2] > 0), B_p, n, C, evals,
                difficulty, samples, run_sd, drift, inter, liking)
            runs.append(run(n, seed, at * B_p * n, counts / samples, B_p))
    return runs


def write(folder, truth=paper(2), ns=(8, 32, 128), B_ps=(32,), seeds=(0,), C=2_000_000, evals=40,
          P=100, samples=4, words=()):
    """Write a run folder for each cell (B_p, n, seed). Return {cell: log.jsonl}."""
    rng, logs = np.random.default_rng(0), {}
    difficulty = rng.standard_normal(P) * 1.5
    for seed, B_p, n in itertools.product(seeds, B_ps, ns):
        cfg = parse([f"--B_p={B_p}", f"--n={n}", f"--seed={seed}", f"--C={C}",
                     f"--samples={samples}", f"--eval_every={C // evals}", f"--runs={folder}",
                     f"--data={folder}", "--B_max=0", *words])
        d = derive(cfg)
        path = logs[B_p, n, seed] = Path(folder) / d["run"] / "log.jsonl"
        path.parent.mkdir(parents=True)
        at, counts = draw_run(rng, truth, B_p, n, C, evals, difficulty, samples)
        with open(path, "wb", buffering=0) as file:
            append(file, dict(type="header", schema=1, config=cfg, derived=d))
            for m, correct in zip(at.tolist(), counts):
                spent = dict(step=m, rollouts=m * d["B"], tokens=100 * m * d["B"])
                if m:
                    append(file, dict(spent, type="step", reward=correct.mean() / samples,
                                      gen_s=2.0, train_s=1.6))
                append(file, dict(spent, type="eval", set="val", samples=samples,
                                  set_hash="planted", correct=correct,
                                  **{"avg@4": correct.mean() / samples}))
            append(file, dict(type="end", status="budget", rollouts=d["M"] * d["B"]))
    return logs


def edit(log, change):
    """Rewrite a log: `change` takes each record and returns a new one, or None to remove it."""
    records = [change(json.loads(line)) for line in log.read_text().splitlines()]
    log.write_text("".join(json.dumps(r) + "\n" for r in records if r is not None))
