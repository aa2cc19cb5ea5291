"""Draw a sweep with known truth from planted curves: run folders as the trainer writes them, or
runs in memory. The last section runs the analysis for tests.

    from simulate import simulate, truth
    simulate("runs/fake", ns=(4, 8, 16), seeds=(0, 1))   # then: python frontier.py --runs=runs/fake

All runs share the difficulties of the validation problems; each evaluation draws new rollouts.
There are three kinds of noise: `run_sd` moves a run's whole curve, `drift` moves it slowly over C,
and `inter` makes some problems easier for some n. Families of curves are `truth`, and `paper` and
`constant`, whose n*(C) is exactly known.
"""
import contextlib
import csv
import io
import itertools
import json
import math
from pathlib import Path
from statistics import NormalDist
from types import SimpleNamespace

import numpy as np

import fit_sigmoid
import frontier
from config import BadInput, derive, parse
from core.log import append, finite

EASY = (6.09, 4.75, 5.84, 2.73)  # L, k, log10 C0, b of the paper's law on Easy at B_p = 32


def truth(B_p, n, C):
    """Return the expected reward after C rollouts. A larger n rises later, up to n = 32 to a higher
    plateau, so n*(C) rises to 32."""
    octaves = math.log2(n)
    middle = 10_000 * 2 ** (0.75 * octaves)
    rise = 0.12 + 0.035 * min(octaves, 5)
    return 0.30 + rise / (1 + (middle / np.maximum(C, 1e-9)) ** 1.3)


def falls_off(n, C, log2_best, size=1.0):
    """Return rewards (E,) after C rollouts (E,) that fall with the distance of n from the best n.
    They are as high as in the paper, but not a sigmoid.

    log2_best (E,): log2 n* at C. An n one octave too small costs about 1.2 points, an n one octave
    too large 3 points, times `size`.
    """
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


def sigmoids(B_p, n, C):
    """Return a sigmoid in log C: a larger n has a higher plateau and a later rise, up to 512."""
    z = math.log2(n)
    top = 0.60 + 0.105 * (z - 3) / 6 * (2 - (z - 3) / 6)
    x = np.log10(np.maximum(C, 1)) - 5.25 - 0.11 * (z - 3)
    return 0.44 + (top - 0.44) / (1 + np.exp(-2.6 * x))


def crossing(truth, B_p, a, b, lo=1e3, hi=1e8, near=None):
    """Return the first C at which truth(b) overtakes truth(a), or None. near: return the C nearest
    to `near` instead of the first."""
    C = np.geomspace(lo, hi, 20_001)
    ahead = truth(B_p, b, C) - truth(B_p, a, C)
    at = C[np.flatnonzero((ahead[:-1] <= 0) & (ahead[1:] > 0))]
    if not len(at):
        return None
    return at[0] if near is None else at[np.abs(np.log(at / near)).argmin()]


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


def sweep(draw, truth, ns=(8, 32, 128, 512, 2048), B_p=32, seeds=3, C=4_000_000, evals=100, P=300,
          samples=4, run_sd=0.006, drift=0.004, inter=0.3, seed_sd=0.0):
    """Return runs as core.runs.read_runs does, without files. seed_sd: the standard deviation of an
    effect that all runs of a seed share."""
    rng = np.random.default_rng(draw)
    difficulty, runs = rng.standard_normal(P) * 1.5, []
    of_seed = seed_sd * rng.standard_normal(seeds) if seed_sd else np.zeros(seeds)
    for n in ns:
        liking = rng.standard_normal(P) * inter
        for seed in range(seeds):
            at, counts = draw_run(
                rng, lambda *cell: truth(*cell) + of_seed[seed] * (cell[2] > 0), B_p, n, C, evals,
                difficulty, samples, run_sd, drift, inter, liking)
            runs.append(plain_run(n, seed, at * B_p * n, counts.mean(1) / samples,
                                  counts.astype(np.uint8), samples, B_p=B_p,
                                  config=dict(eval_every=C // evals, C=C)))
    return runs


def plain_run(n, seed, C, reward, counts=None, samples=4, B_p=32, **more):
    """Return a run with the given rewards as core.runs.read_run does."""
    C = np.asarray(C, float)
    return dict(
        run=f"Bp{B_p}_n{n}_seed{seed}", config=dict(eval_every=1, C=int(C[-1])), B_p=B_p, n=n,
        seed=seed, samples=samples, C=C, rollouts=C, step=C / (B_p * n), counts=counts,
        reward=np.asarray(reward, float), status="budget",
        biased=False, passes=[], source="", per_rollout=1.0, lr=1e-6, hours=None, device="") | more


def simulate(folder, ns=(4, 8, 16, 32, 64), B_ps=(32,), seeds=(0,), C=2_000_000, evals=40, P=300,
             samples=4, truth=truth, run_sd=0.0, drift=0.0, draw=0, unfinished=(), words=(),
             **fields):
    """Write a run folder for each cell (B_p, n, seed) and return {cell: log}. unfinished: cells
    that get no end record.

    words: command-line words of the runs' config. fields: extra fields of the evaluations, or new
    values such as set_hash=...
    """
    rng, folders = np.random.default_rng(draw), {}
    difficulty = rng.standard_normal(P) * 1.5
    for seed, B_p, n in itertools.product(seeds, B_ps, ns):
        cfg = parse([f"--B_p={B_p}", f"--n={n}", f"--seed={seed}", f"--C={C}",
                     f"--samples={samples}", f"--eval_every={C // evals}", f"--runs={folder}",
                     f"--data={folder}", "--B_max=0", *words])
        d = derive(cfg)
        run = Path(folder) / d["run"]
        run.mkdir(parents=True)
        folders[B_p, n, seed] = run / "log.jsonl"
        at, correct = draw_run(rng, truth, B_p, n, C, evals, difficulty, samples, run_sd, drift)
        with open(folders[B_p, n, seed], "wb", buffering=0) as file:
            append(file, dict(type="header", schema=1, config=cfg, derived=d))
            for m, c in zip(at.tolist(), correct):
                if m:
                    append(file, dict(
                        type="step", step=m, rollouts=m * d["B"], tokens=100 * m * d["B"],
                        loss=0.0, reward=c.mean() / samples, gen_s=2.0, train_s=1.6))
                append(file, {
                    "type": "eval", "step": m, "rollouts": m * d["B"],
                    "tokens": 100 * m * d["B"], "set": "val", "k": 4,
                    "avg@4": c.mean() / samples, "samples": samples, "set_hash": "planted",
                    "correct": c, **fields})
            if (B_p, n, seed) not in unfinished:
                append(file, dict(type="end", status="budget", rollouts=d["M"] * d["B"]))
    return folders


# --------------------------------------------------------------------------------------------------
# Logs as users leave them

def edit(log, change):
    """Rewrite a log: `change` takes each record and returns a new one, or None to remove it."""
    records = [change(json.loads(line)) for line in log.read_text().splitlines()]
    log.write_text("".join(json.dumps(r) + "\n" for r in records if r is not None))


def ends_at(rollouts, status="budget"):
    """Return a change for `edit` that ends a run after `rollouts` rollouts."""
    def change(r):
        if r["type"] == "end":
            return dict(r, status=status, rollouts=rollouts)
        return None if r.get("rollouts", 0) > rollouts else r
    return change


def without_counts(r):
    """Change a record for `edit`: replace the counts of an evaluation by the number of problems, as
    logs of other trainers have it."""
    r = {key: value for key, value in r.items() if key != "correct"}
    return r | (dict(problems=300) if r["type"] == "eval" else {})


def add_passes(logs, seed=0):
    """Append three train_pass records to each log. If n is larger, more problems are never solved.
    """
    rng = np.random.default_rng(seed)
    for (_, n, _), log in logs.items():
        with open(log, "a") as file:
            for C in (400_000, 800_000, 1_600_000):
                p = rng.beta(0.5 * 8 / n + C / 4e6, 0.5, 60)
                samples = np.full(60, 4 * n)
                record = dict(type="train_pass", step=C // 32 // n, rollouts=C, samples=samples,
                              ids=[f"p{i}" for i in range(60)], correct=rng.binomial(samples, p))
                file.write(json.dumps(finite(record)) + "\n")


# --------------------------------------------------------------------------------------------------
# The analysis, for tests

def analyse(runs, *words, view="fixed_Bp", folder=None):
    """Run frontier.py in this process and return the view's JSON. Check that its figure exists.

    folder: --out, if it is not the folder of the runs."""
    frontier.main([f"--runs={runs}", f"--view={view}", *words])
    name = Path(folder or runs) / ("frontier" if view == "fixed_Bp" else f"frontier_{view}")
    assert Path(f"{name}.png").stat().st_size > 15_000
    return json.loads(Path(f"{name}.json").read_text())


def page_of(folder, *words, main=fit_sigmoid.main):
    """Run fit_sigmoid.py (or another main) in this process and return its output."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        main([f"--runs={folder}", *words])
    return printed.getvalue()


def table_of(folder, metric="avg@4"):
    """Return the rows of prescription.csv for one metric, as text."""
    with open(Path(folder) / "prescription.csv", newline="") as file:
        return [row for row in csv.DictReader(file) if row["metric"] == metric]


def bad(module, *words):
    """Return the one-line error of a script's main for command-line words."""
    try:
        module.main([str(word) for word in words])
    except BadInput as e:
        assert "\n" not in str(e)
        return str(e)
    raise AssertionError(f"not refused: {words}")


_MADE = []


def analysed_sweep(tmp_path_factory):
    """Return a sweep of two B_p with a planted rise of n*, analysed once per process.

    The result has .folder, .front (frontier.json), .laws (law.json), .page (the output of
    fit_sigmoid.py) and .report (report.txt). A test that changes logs makes its own sweep.
    """
    if _MADE:
        return _MADE[0]
    folder = tmp_path_factory.mktemp("sweep") / "easy"
    add_passes(simulate(folder, ns=(4, 8, 16, 32, 64), B_ps=(8, 32), evals=80, draw=2))
    page_of(folder, "--view=all", main=frontier.main)
    page = page_of(folder, "--C=3e5")
    front, laws = (json.loads((folder / f"{name}.json").read_text())
                   for name in ("frontier", "law"))
    _MADE.append(SimpleNamespace(folder=folder, front=front, laws=laws, page=page,
                                 report=(folder / "report.txt").read_text()))
    return _MADE[0]
