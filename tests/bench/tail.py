"""Simulate what the longest rollouts cost: hours of a run by n, and how ranks wait for each other.

    python tests/bench/tail.py          # a minute; nothing here is measured on a GPU

Every step of decoding reads all weights, so a step for the last few rollouts of an update takes
nearly as long as a step for hundreds. The assumptions are those of core/cost.py. core/cost.py
computes expectations, and this script draws the length of every response. Prefill and evaluations
are not counted.
"""
import heapq
import math
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from config import parse  # noqa: E402
from core import cost  # noqa: E402
from train_grpo import deal_rows, micro_batches  # noqa: E402

# {model: (GPUs of a run, tokens of the longest response)}
MODELS = {"Qwen/Qwen2.5-7B-Instruct": (4, 8192), "Qwen/Qwen2.5-1.5B-Instruct": (1, 8192),
          "Qwen/Qwen2.5-0.5B-Instruct": (1, 768)}


def run_of(name):
    """Return (config, GPUs, longest response) of a model's runs."""
    gpus, most = MODELS[name]
    return parse([f"--model={name}", f"--max_new_tokens={most}"]), gpus, most


def lengths(count, mean, most, rng):
    """Return `count` response lengths in tokens: lognormal, and `most` for a share `cost.CUT`."""
    start = math.log(mean) - cost.SIGMA**2 / 2
    body = [min(most, max(1, round(rng.lognormvariate(start, cost.SIGMA)))) for _ in range(count)]
    return [most if rng.random() < cost.CUT else length for length in body]


def decoding(queue, name, card="H100"):
    """Return the seconds in which one GPU decodes `queue` (lengths), gen_batch rollouts at once."""
    s, slots = cost.sizes(cost.SHAPES[name]), run_of(name)[0]["gen_batch"]
    todo, live, step, cached, seconds = list(queue)[::-1], [], 0, 0, 0.0
    while todo or live:
        while todo and len(live) < slots:
            length = todo.pop()
            heapq.heappush(live, (step + length, length))
            cached += cost.PROMPT
        k, r = live[0][0] - step, len(live)  # k steps until the next rollout ends
        seconds += cost.decoding_s(s, k, r * k, cached * k + r * k * (k - 1) / 2, card)
        step, cached = step + k, cached + r * k
        while live and live[0][0] == step:
            cached -= cost.PROMPT + heapq.heappop(live)[1]
    return seconds


def generation(name, n, B_p, rng, draws=20):
    """Return the seconds of generation of one update with B_p n rollouts, on the slowest GPU."""
    cfg, gpus, most = run_of(name)
    return sum(max(decoding(lengths(B_p * n // gpus, cost.mean_length(cfg), most, rng), name)
                   for _ in range(gpus)) for _ in range(draws)) / draws


def waiting(n, ranks, rng, B_p=32, micro_tokens=16384, draws=20):
    """Return (problems, dealt): how much longer an update takes than with evenly shared tokens.

    Every rank makes as many micro-batches as the rank with the most, and every rank waits for the
    largest micro-batch of all ranks. `problems` is for ranks with whole problems, in order. `dealt`
    is for rollouts that `deal_rows` distributes by length.
    """
    cfg, _, most = run_of("Qwen/Qwen2.5-7B-Instruct")
    took, even = [0.0, 0.0], 0
    for _ in range(draws):
        drawn = [cost.PROMPT + k for k in lengths(B_p * n, cost.mean_length(cfg), most, rng)]
        even += sum(drawn) / ranks
        whole = [[i for i in range(B_p * n) if i // n % ranks == r] for r in range(ranks)]
        for j, shares in enumerate((whole, deal_rows(drawn, ranks))):
            parts = [[max(drawn[share[i]] for i in part) * len(part) for part in
                      micro_batches([drawn[i] for i in share], micro_tokens)] for share in shares]
            took[j] += sum(max(p[k] if k < len(p) else 0 for p in parts)
                           for k in range(max(map(len, parts))))
    return [x / even for x in took]


def main():
    rng, C, B_p = random.Random(0), 1_000_000, 32
    for name in MODELS:
        cfg, gpus, most = run_of(name)
        s, mean = cost.sizes(cost.SHAPES[name]), cost.mean_length(cfg)
        print(f"\n{name} on {gpus} GPUs, B_p = {B_p}, C = 1M, {mean:.0f} tokens, {cost.CUT:.1%} "
              f"cut off at {most}")
        print("     n  update  generation  its share  hours of the run")
        for n in (8, 32, 128, 512):
            took = generation(name, n, B_p, rng)
            update = took + cost.update_s(s, cfg, B_p * n, gpus) + cost.UPDATE_S
            print(f"{n:6d} {update:6.0f}s {took:10.0f}s {took / update:9.0%} "
                  f"{C // (B_p * n) * update / 3600:12.1f} h")
    print("\nTokens of an update over an even share: ranks with whole problems, rollouts dealt")
    for ranks in (2, 4, 8):
        pairs = (waiting(n, ranks, rng) for n in (8, 32, 128))
        print(f"  {ranks} GPUs, n = 8, 32, 128: "
              + ", ".join(f"{a:.2f} -> {b:.2f}" for a, b in pairs))


if __name__ == "__main__":
    sys.exit(print(__doc__)) if "--help" in sys.argv else main()
