"""tools/hours.py: what sweeps and studies take: runs, rollouts, GPU-hours. run_sweep.sh --help.

    python tools/hours.py --data=data/guru_math                   # the sweeps, then the studies
    python tools/hours.py --data=data/guru_math --ns="8 32 128" --C=1e6 --seeds=0   # smaller ones

The hours are of H100 cards of 80 GB, as few a run as tools/memory.py says, by the model of
docs/gpu.md, "Hours": no GPU has confirmed it. tests/bench/tail.py draws what is expected here;
the two agree within 10%. Not counted: prefill, rewards, loading weights into the engine,
difficulty, --pass_at. Needs config.py, core/sweep.py and tools/memory.py.
"""
import functools
import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from config import BadInput, RECIPES, all_rollouts, derive, entry, files, parse  # noqa: E402
from core.sweep import arms, cells, presets, run_folder  # noqa: E402
from tools import memory  # noqa: E402

BANDWIDTH, FLOPS = 2.6e12, 400e12  # of a card: bytes/s that decoding gets; FLOP/s of an update
OVERHEAD = 2e-3                    # seconds of a step of decoding beside the reading of memory
PROMPT, MEAN, SIGMA = 150, 650, 0.5       # tokens; responses are lognormal
LONGEST, CUT = 8192, 0.005                # the share of them that runs to the longest
CARD, N_VAL = 80e9, 300                   # bytes; problems of a validation set


@functools.cache
def longest(count):
    """The expected length of the longest of `count` responses, in tokens."""
    step, start = 16, math.log(MEAN) - SIGMA**2 / 2
    total = 0.0
    for t in range(step // 2, LONGEST, step):  # E[max] = sum over t of P(max > t)
        below = 0.5 + 0.5 * math.erf((math.log(t) - start) / SIGMA / math.sqrt(2))
        total += step * (1 - ((1 - CUT) * below) ** count)
    return total


def generation_s(s, rollouts, gpus, at_once):
    """Seconds in which `gpus` cards generate `rollouts` responses, at_once on each.

    A step of decoding reads the weights once, and the cache of each response that still goes on.
    s: of memory.sizes.
    """
    mean = (1 - CUT) * MEAN + CUT * LONGEST
    square = (1 - CUT) * MEAN**2 * math.exp(SIGMA**2) + CUT * LONGEST**2
    each = rollouts / gpus
    steps = mean * max(0.0, each / at_once - 1) + longest(math.ceil(rollouts))
    cache = 4 * s["kv"] * s["layers"]  # bytes of a token
    return (steps * (OVERHEAD + 2 * s["P"] / BANDWIDTH)
            + each * cache / BANDWIDTH * (PROMPT * mean + square / 2))


def update_s(s, rollouts, gpus):
    """Seconds of an update: forward, backward, and forward again for the activations."""
    return 8 * s["P"] * rollouts * (PROMPT + MEAN) / gpus / FLOPS


def gpus_of(s, cfg):
    """The fewest cards that hold a run, 0 where 8 do not."""
    return next((gpus for gpus in (1, 2, 4, 8) if memory.plan(s, cfg, gpus, CARD)["fits"]), 0)


def gpu_hours(cfg):
    """GPU-hours of a run, its evaluations too; None where the model's sizes are not known, or its
    responses are shorter than those of the model of time."""
    shape = memory.read_shape(cfg["model"])
    if memory.unknown(cfg, shape) or cfg["max_new_tokens"] < MEAN:
        return None
    s = memory.sizes(shape)
    gpus = gpus_of(s, cfg)
    if not gpus:
        return None
    at, B = derive(cfg), cfg["B_p"] * cfg["n"]
    seconds = at["M"] * (generation_s(s, B, gpus, cfg["gen_batch"]) + update_s(s, B, gpus))
    evaluations = 1 + cfg["C"] // max(cfg["eval_every"] or cfg["C"], B)
    tested = (cfg["n_val"] or N_VAL) * len(files(cfg["val_set"])) * cfg["samples"]
    seconds += evaluations * generation_s(s, tested, gpus, cfg["gen_batch"])
    return seconds * gpus / 3600


def price(sweeps):
    """What the runs of sweeps take, each run once, in words."""
    runs = {run_folder(c): c for cfg in sweeps for c in cells(cfg)}.values()
    rollouts = sum(map(all_rollouts, runs))
    hours = [gpu_hours(c) for c in runs]
    words = f"{len(runs)} runs, {rollouts / 1e6:,.{0 if rollouts > 1e7 else 1}f}M rollouts"
    if None in hours:
        return words
    return f"{words}, about {float(f'{sum(hours):.2g}'):,.0f} GPU-hours"


def main(argv):
    cfg = parse(argv, __doc__)
    for name in RECIPES:
        try:
            print(f"  {name:13s} {price(arms(name, argv))}")
        except BadInput as e:
            raise BadInput(f"{name}: {e}") from None
    print("Studies, each one or more sweeps; what two have in common is made once:")
    for name, study in presets(cfg["data"]).items():
        cost = price(arms(name, argv))
        if "minutes" in study:
            cost += f", {study['minutes']} minutes on 2 cores"
        print(f"  {name:13s} {study['about']}\n{'':15s} {cost}")


if __name__ == "__main__":
    entry(main)
