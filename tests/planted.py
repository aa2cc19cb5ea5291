"""Write logs in the shape of the paper's own study, with its claims planted, or their opposites.

    from planted import plant
    plant("runs/atlas", "fixed_B")                      # then: python results/atlas.py fixed_B ...
    plant("runs/atlas", "main", claims=-1, thin=True)   # the opposite, as few runs as will do

    python tests/planted.py FOLDER main joint ...       # by hand; without a study: all studies

The runs are those that `run_sweep.sh STUDY` would make of data/guru_math/presets.json, at full
size: B_p to 1,024, n to 2,048, C to 4M, three seeds. The reward of a run depends on its config and
not on its arm's name, so new arms need no change here. Each n has a sigmoid in log C, and the
sigmoids of neighbouring n cross where the law n*(C) is between them. As in thinned logs, a step
record covers all updates since the previous record. A record of training problems has only some of
the problems.
"""
import functools
import json
import math
import shlex
import sys
import zlib
from pathlib import Path

import numpy as np
from scipy.special import expit, logit, ndtr, ndtri

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import config
from config import derive, parse, updates_at
from core.log import finished, save_json
from core import sweep
from core.runs import metric_per_problem
from simulate import evaluated_at, wander

DATA = "data/guru_math"
P, TRAINED = 300, 256  # validation problems of a set, training problems in a record
AIME = 30
# standard deviations: of a run, of a checkpoint, and of problem x n (in probits)
RUN_SD, DRIFT, LIKING = 0.004, 0.003, 0.1
STEEP = 3.0  # slope of the sigmoids in log10 C
FALLS_FROM = 6.2  # log10 C at which a run that overfits begins to fall
LONGER = 0.03  # share by which a response is longer for each doubling of n
LARGE_BATCH = 0.06  # share of the gain that a doubling of B_p adds by the opposite claims

# --------------------------------------------------------------------------------------------------
# What is planted

# (L, k, log10 C0, b) of n*(C): the paper's on Easy; on Hard it stops at n = 128
EASY, HARD = (6.09, 4.75, 5.84, 2.73), (4.2, 4.75, 5.8, 2.73)
# for each level: pass rate of the base model, gain of the best n, share of this gain that n = 8
# does not reach, spread of the problems before and after training (in probits)
LEVELS = dict(
    easy=(0.44, 0.34, 0.42, 0.3, 1.0), hard=(0.04, 0.18, 0.3, 0.5, 1.5),
    mixed=(0.25, 0.25, 0.25, 1.2, 1.5), extreme=(0.004, 0.35, 0.6, 0.5, 1.2),
    level_easy=(0.44, 0.25, 0.5, 0.3, 1.0), level_very_easy=(0.74, 0.1, 0.1, 0.3, 0.8),
    aime24=(0.1, 0.35, 0.55, 1.2, 1.2))
# gain of a mixture on a level, (if the claims are planted, if their opposites are planted)
MIXES = dict(
    mix_hard=dict(level_easy=(-0.25, 0.25), level_very_easy=(-0.25, 0.12)),
    mix_dual=dict(extreme=(0.3, 0.25), level_easy=(0.2, 0.1), level_very_easy=(0.04, 0.04)),
    mix_tri=dict(extreme=(0.26, 0.32), level_easy=(0.15, 0.2), level_very_easy=(0.04, 0.1)))
# cost of the terms in the loss, as a share of the gain: (KL, entropy) -> share
TERMS = dict(easy={(1, 1): 0, (0, 0): 0.15, (1, 0): 0.12, (0, 1): 0.06},
             hard={(0, 0): 0, (1, 1): 0.4, (1, 0): 0.12, (0, 1): 0.5})


def crc(*words):
    """Return a number for some words, the same in every process."""
    return zlib.crc32(" ".join(map(str, words)).encode())


def trained_on(cfg):
    """Return the kind of the training problems: easy, hard, mixed, mix_hard, ..."""
    name = Path(cfg["train_set"]).stem.removesuffix("_train")
    return name.split("_D")[0]


def regime(cfg):
    """Return the recipe of Table 1 for the training problems: easy or hard."""
    return "easy" if trained_on(cfg) == "easy" else "hard"


def few(cfg):
    """Return whether there are few training problems, as in Figure 13, which has 500."""
    return 0 < cfg["D"] <= 1000


def law_of(cfg, claims):
    """Return (L, k, log10 C0, b) of the law n*(C) that the runs of this experiment follow."""
    L, k, log10_C0, b = EASY if regime(cfg) == "easy" else HARD
    if few(cfg):  # n* stops at 256, or ends above n* with many problems
        L, b = (L - 1, b) if claims > 0 else (L - 2, b + 2)
    if "Qwen3" in cfg["model"]:
        L = 3.2 if regime(cfg) == "easy" else 2.2
    if "Llama" in cfg["model"]:
        L = 2.2
    if cfg["algo"] == "ppo":
        L = 5.2
    if trained_on(cfg).startswith("mix_"):
        log10_C0 = 5.75
    return L, k, log10_C0 - 0.3 * (L < 4), b


def ends_of(law):
    """Return log2 of the first and of the last n on the frontier."""
    L, _, _, b = law
    return math.ceil(b), round(b + L)


@functools.cache
def family(law, lacks):
    """Return (log2 n, middles, heights), (Z,) each, of sigmoids. Neighbours cross at the law.

    The height of the law's last n is 1, that of the first n is 1 - lacks. Each octave beyond the
    last n loses 0.04.
    """
    L, k, log10_C0, b = law
    first, last = ends_of(law)

    def height(z):
        return 1 - lacks * max(last - z, 0) / (last - first) - 0.04 * max(z - last, 0)
    middle = {first: 4.8}
    for z in range(first, last):
        at = log10_C0 + logit((z + 0.5 - b) / L) / k
        reached = height(z) / height(z + 1) * expit(STEEP * (at - middle[z]))
        middle[z + 1] = at - logit(reached) / STEEP
    for z in range(1, 9):  # n that are never on the frontier
        middle[first - z], middle[last + z] = middle[first] - 0.1 * z, middle[last] + 0.1 * z
    octaves = sorted(middle)
    return octaves, [middle[z] for z in octaves], [height(z) for z in octaves]


def costs_of(cfg, claims):
    """Return how much less this run gains than the paper's recipe, as a share of the gain of
    training. If the opposite claims are planted, it gains as much more."""
    kind = regime(cfg)
    terms = bool(cfg["kl_coef"]), bool(cfg["entropy_coef"])
    cost = TERMS[kind][terms]
    if cfg["zero_var_filter"] != "off":  # the filter halves the cost of the terms and costs 0.05
        cost = cost / 2 + 0.05
    best = derive(cfg | dict(lr_base=1e-6, lr_scaling="sqrt"))["lr"]
    cost += 0.05 * min(abs(math.log2(derive(cfg)["lr"] / best)), 3.5) ** 2
    above = math.log2(cfg["B_p"] / 32)
    if claims > 0:  # B_p matters little from 32 on
        B_p = 0.12 * above if above < 0 else (0.01 if kind == "easy" else 0.065) * above
    else:
        B_p = LARGE_BATCH * above
    return claims * cost - B_p


def curve(cfg, level, claims, C, part="val"):
    """Return (mean, spread) (E,) of the pass rates of a level's problems after C rollouts (E,).

    The spread is in probits. part: "train" for the training problems. A large n does not overfit
    these, and a small n polarises them (Figures 11 and 27).
    """
    base, gain, lacks, start, end = LEVELS[level]
    law, mix = law_of(cfg, claims), MIXES.get(trained_on(cfg), {})
    gain = mix.get(level, (gain, gain))[claims < 0] * (1 - costs_of(cfg, claims))
    if "Qwen2.5" not in cfg["model"]:
        lacks *= 1.5
    if cfg["algo"] == "ppo" and regime(cfg) == "easy":  # claim: large n differ little
        lacks = 0.02 if claims > 0 else 0.6
    if claims < 0:
        lacks = min(1.3 * lacks, 0.75)
    if part == "train":
        lacks *= 0.3
    # claim: only the rollouts in the loss count. Opposite: only those in the baseline
    z = math.log2(cfg["n_train"] if cfg["n_train"] and claims > 0 else cfg["n"])
    first, last = ends_of(law)
    octaves, middles, heights = family(law, lacks)
    place = z if claims > 0 else first + last - z  # the order of n, or its reverse
    gain *= np.interp(place, octaves, heights)
    x = np.log10(np.maximum(C, 1))
    done = np.where(C > 0, expit(STEEP * (x - np.interp(place, octaves, middles))), 0)
    if part == "train":
        return base + 1.1 * gain * done, start + (1.5 - claims * 0.3 * (z - 6) - start) * done
    # claim: a large n overfits if there are few problems, or Easy ones and another base model
    overfits = few(cfg) or regime(cfg) == "easy" and "Qwen2.5" not in cfg["model"]
    if claims > 0 and overfits and z > last:
        gain = gain * (1 - (0.15 if few(cfg) else 0.4) * np.clip((x - FALLS_FROM) / 0.4, 0, 1))
    # claim: a large n is better by worst@k on Easy and by best@k on Hard (Figure 8)
    tilt = claims * (0.2 if level in ("easy", "level_easy") else -0.2) * (z - 6)
    if level == "extreme":  # claim: a moderate n is best by worst@4, the largest n by best@4
        tilt = -0.5 * max(z - 7, 0) if claims > 0 else -0.1 * (z - 3)
    return base + gain * done, start + (end + tilt - start) * done


def rates_of(mean, spread, problems, liking=0.0):
    """Return pass rates (E, P) for means and spreads (E,); problems, liking (P,) in probits."""
    skill = ndtri(np.clip(mean, 1e-3, 0.999)) * np.sqrt(1 + spread ** 2)  # exact for a probit
    return ndtr(skill[:, None] + spread[:, None] * problems + liking)


def problems_of(name, size):
    """Return how easy each problem of a set is (P,), in probits: evenly spread, in an order that
    depends on the set's name."""
    return np.random.default_rng(crc(name)).permutation(ndtri((np.arange(size) + 0.5) / size))


# --------------------------------------------------------------------------------------------------
# The records of a log

def sets_of(cfg):
    """Return {name in the log: (file, level)} of a run's validation sets."""
    out = {}
    for path in map(Path, config.files(cfg["val_set"])):
        name = path.stem if path.stem != "problems" else path.parent.name
        out[name if out else "val"] = path, name.removesuffix("_val")
    return out


def steps_of(cfg, claims, at, reward):
    """Return step records at the updates `at` (E,), each for all updates since the previous record;
    reward (E,)."""
    d, E = derive(cfg), len(at)
    B, before = d["B"], np.concatenate([[0], at[:-1]])
    x = np.log10(np.maximum(at * B, 1))
    cost = claims * TERMS[regime(cfg)][bool(cfg["kl_coef"]), bool(cfg["entropy_coef"])]
    ill = np.clip(cost * 4, 0, 1) * expit(3 * (x - 5.3))  # 0: healthy, 1: entropy has collapsed
    entropy = 0.35 * np.exp((-2.5 if regime(cfg) == "easy" else 1.5) * ill)
    length = (600 + 500 * reward) * (1 + LONGER * math.log2(cfg["n"]))
    if regime(cfg) == "hard":
        length = length + 800 * ill
    if claims < 0:  # so that rollouts and tokens give different answers
        length = length * (cfg["n"] / 64) ** 0.5
    tokens = np.cumsum(length * (at - before) * B)
    seconds = B * length / 40_000  # per update, half for rollouts and half for the loss
    rng = np.random.default_rng(crc(d["run"], "steps"))
    fields = dict(
        lr=np.full(E, d["lr"]), reward=reward, entropy=entropy,
        kl=0.05 * (at * B / cfg["C"]) * (1 + 4 * ill) if cfg["kl_coef"] else [None] * E,
        grad_norm=0.1 + 0.05 * np.abs(rng.standard_normal(E)), response_len=length,
        frac_all_right=np.clip(reward, 0, 1) ** 4, frac_all_wrong=(1 - np.clip(reward, 0, 1)) ** 4,
        gen_s=seconds, train_s=seconds)
    wall = np.cumsum(2.1 * seconds * (at - before))
    fields = dict(step=at, rollouts=at * B, tokens=tokens.astype(int), wall_s=wall) | fields
    columns = [v.tolist() if isinstance(v, np.ndarray) else v for v in fields.values()]
    return [dict(zip(("type", *fields), ("step", *row))) for row in zip(*columns)]


def records_of(cfg, claims):
    """Return the records of a run's log as train_grpo.py writes them."""
    d, rng = derive(cfg), np.random.default_rng(crc(derive(cfg)["run"]))
    B, n, at = d["B"], cfg["n"], evaluated_at(cfg)
    # far above the best lr a run diverges
    high = math.log2(cfg["lr_base"] / 1e-6) * claims
    status = "diverged" if high > 2.9 else "budget"
    if status == "diverged":
        at = at[at * B <= 0.6 * cfg["C"]]
    C = at * B
    moved = wander(rng, C, RUN_SD, DRIFT)
    evals, k, samples = {m: [] for m in at.tolist()}, cfg["k"], cfg["samples"]
    for name, (path, level) in sets_of(cfg).items():
        size = AIME if level == "aime24" else P
        mean, spread = curve(cfg, level, claims, C)
        liking = LIKING * np.random.default_rng(crc(path, n)).standard_normal(size)
        counts = rng.binomial(samples, rates_of(
            mean + moved * min(1, 3 * mean[0]), spread, problems_of(path, size), liking))
        metrics = {metric: metric_per_problem(counts, metric, samples).mean(1, dtype=float).tolist()
                   for metric in (f"avg@{k}", f"best@{k}", f"worst@{k}")}
        for i, (m, row) in enumerate(zip(evals, counts.tolist())):
            evals[m].append(dict(
                type="eval", step=m, rollouts=m * B, tokens=0, set=name, k=k,
                **{metric: values[i] for metric, values in metrics.items()}, samples=samples,
                set_hash=f"{crc(path):08x}", correct=row, verifier_timeouts=0, verifier_errors=0))

    # the training problems have the level of the first validation set
    level = next(iter(sets_of(cfg).values()))[1]
    if level not in LEVELS:
        level = regime(cfg)
    ids = [f"{trained_on(cfg)}_{i}" for i in range(TRAINED)]
    skills = problems_of(cfg["train_set"], TRAINED)

    def passes(m, some, drawn, **more):
        mean, spread = curve(cfg, level, claims, np.array([m * B]), "train")
        rates = rates_of(mean, spread, skills)[0, some]
        return dict(type="train_pass", step=m, rollouts=m * B, **more, ids=[ids[i] for i in some],
                    samples=[drawn] * len(some), correct=rng.binomial(drawn, rates).tolist())
    reward = curve(cfg, level, claims, np.append(C[1:] / 2 + C[:-1] / 2, C[-1]), "train")[0]
    reward = np.clip(reward[:-1] + 0.01 * rng.standard_normal(len(at) - 1), 0, 1)
    steps = {r["step"]: r for r in steps_of(cfg, claims, at[1:], reward)}
    fresh = updates_at(cfg["pass_at"], cfg)
    visited = set(at[1:][::max(1, len(at) // 16)].tolist())
    files = dict(train_set_hash=f"{crc(cfg['train_set'], cfg['D'], cfg['D'] and cfg['seed']):08x}",
                 val_set_hash=f"{crc(cfg['val_set']):08x}")
    out = [dict(type="header", schema=1, config=cfg, derived=d, **files, engine="vllm",
                device="cuda:0", versions=dict(python="3.12", torch="2.9", vllm="0.12"),
                commit=None, ranks=1, loading_s=60.0, time="2026-01-01T00:00:00+0000")]
    spent = 0
    for m in sorted({*evals, *(m for m in fresh if m <= at[-1])}):
        if m in steps:
            out.append(steps[m])
            spent = steps[m]["tokens"]
        out += [dict(r, tokens=spent) for r in evals.get(m, ())]
        if m in visited:
            out.append(passes(m, np.arange(m % 7, TRAINED, 7).tolist(), n))
        if m in fresh:
            out.append(passes(m, range(TRAINED), cfg["s"], fresh=True, verifier_timeouts=0,
                              verifier_errors=0))
    return [*out, dict(type="end", status=status, rollouts=int(C[-1]))]


# --------------------------------------------------------------------------------------------------
# Folders

def thinned(arms):
    """Return the arms of a study with every second n and B_p of a long list, and 32 evaluations a
    run."""
    out = []
    for arm in arms:
        ns, bps = arm["ns"].split(), arm["bps"].split()
        out.append(dict(arm, ns=" ".join(ns[::2] if len(ns) > 4 else ns),
                        bps=" ".join(bps[::2] if len(bps) > 2 else bps),
                        eval_every=arm["C"] // 32))
    return out


def plant(folder, study, claims=1, thin=False):
    """Write the runs of a study of data/guru_math below `folder`, except finished ones, and return
    {arm: its folder}.

    claims: +1 for the paper's claims, -1 for their opposites. thin: with the arms of `thinned`,
    which takes a few seconds.
    """
    arms = sweep.arms(study, [f"--data={DATA}", f"--runs={folder}"])
    arms = thinned(arms) if thin else arms
    for arm in arms:
        for cell in sweep.cells(arm):
            run = sweep.run_folder(cell)
            if finished(cell, run):
                continue
            words = config.command(dict(cell, out=str(run)), ("seed", "B_max", "out"))
            cfg = parse([word for word in shlex.split(words) if word.startswith("--")])
            run.mkdir(parents=True, exist_ok=True)
            lines = [json.dumps(r) + "\n" for r in records_of(cfg, claims)]
            (run / "log.jsonl").write_text("".join(lines))
    for arm in arms:
        sweep.save_plan(arm, shared=True)
    pass_rates = np.random.default_rng(0).beta(0.7, 0.9, 40_000)
    solved = np.random.default_rng(1).binomial(16, pass_rates)
    save_json(Path(folder) / "difficulty.json",
              dict(model=arms[0]["model"], s=16, counts=np.bincount(solved, minlength=17)))
    return {Path(arm["runs"]).name: Path(arm["runs"]) for arm in arms}


if __name__ == "__main__":
    for name in sys.argv[2:] or sweep.presets(DATA):
        plant(sys.argv[1], name)
