"""Measure what share of a real model's CPU time its matrix products take, compared with torch.mm.

    python tests/bench/products.py        # n = 16; three minutes
    python tests/bench/products.py 64

SmolLM2-135M-Instruct on its sums (`python data/smollm/prepare.py` first), B_p = 2, fp32, one
thread: rollouts, and an update with its KL. Each product is compared with torch.mm on operands of
the same shapes and strides, on so many in turn that no cache holds them, as in a pass through the
model. All seconds are CPU seconds. Prints a line for each shape that takes 2% or more, and the
sums.
"""
import collections
import copy
import os
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
os.chdir(ROOT)
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
CACHE = 3e8  # bytes that no cache holds


def seconds(work, rounds):
    """Return the median CPU seconds of a call, after one call to warm up."""
    work()
    found = []
    for _ in range(rounds):
        start = time.thread_time()
        work()
        found.append(time.thread_time() - start)
    return statistics.median(found)


def products(work):
    """Return the seconds of each kind of product in work(): {(shape, strides, shape, strides):
    [...]}."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    found = collections.defaultdict(list)

    class Clock(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            start = time.thread_time()
            out = function(*args, **(kwargs or {}))
            taken = time.thread_time() - start
            if function in (torch.ops.aten.mm.default, torch.ops.aten.linear.default):
                a, b = args[:2]
                if function is torch.ops.aten.linear.default:
                    a, b = a.flatten(0, -2), b.t()
                found[a.shape, a.stride(), b.shape, b.stride()].append(taken)
            return out
    with Clock():
        work()
    return found


def mm_seconds(a, a_stride, b, b_stride):
    """Return the seconds of torch.mm on operands like these."""
    import torch

    def operand(shape, stride):  # a matrix as it lies, or transposed
        return torch.randn(shape) if stride[1] == 1 else torch.randn(shape[::-1]).t()
    size = 4 * (a.numel() + b.numel())
    pairs = [(operand(a, a_stride), operand(b, b_stride)) for _ in range(int(CACHE / size) + 2)]
    return seconds(lambda: [torch.mm(*pair) for pair in pairs], 3) / len(pairs)


def main(n=16, B_p=2):
    import torch

    import config
    import train_grpo
    from core import engine, lora, models
    from core.problems import encode, read_problems
    cfg = config.parse(["--data=data/smollm", f"--B_p={B_p}", f"--n={n}"])
    model, tokenizer = models.load_model(cfg["model"], "cpu")
    prompts = encode(read_problems(cfg["problems"])[:B_p], tokenizer, cfg["max_prompt_tokens"])
    opt = torch.optim.AdamW(model.parameters(), lr=1e-9, fused=True)
    learner = train_grpo.Learner(model, opt, lora.freeze(copy.deepcopy(model), False))

    def generate():
        return engine.generate(model, tokenizer, prompts, n, list(range(B_p)), cfg)
    rewards = (torch.arange(B_p * n) % 2).float().view(B_p, n)  # every group has a signal
    batch = dict(prompts=prompts, rollouts=generate(), rewards=rewards, step=1)
    for name, work in (("rollouts", generate),
                       ("update", lambda: train_grpo.update(learner, batch, cfg))):
        whole, here, there, flops = seconds(work, 5), 0, 0, 0
        for (a, a_stride, b, b_stride), taken in products(work).items():
            of_one, calls = mm_seconds(a, a_stride, b, b_stride), len(taken)
            here, there = here + sum(taken), there + calls * of_one
            flops += calls * 2 * a[0] * a[1] * b[1]
            if sum(taken) > 0.02 * whole:
                one = 2e-9 * a[0] * a[1] * b[1]
                print(f"  {sum(taken) / whole:4.0%} {calls:4d} of {tuple(a)} {tuple(b)}: "
                      f"{calls * one / sum(taken):5.0f} GFLOP/s, torch.mm {one / of_one:5.0f}")
        print(f"{name}, n = {n}: {whole:.2f} s, {here / whole:.0%} in matrix products, "
              f"{flops / here / 1e9:.0f} GFLOP/s; torch.mm {flops / there / 1e9:.0f}, "
              f"so {there / here:.2f} of it")


if __name__ == "__main__":
    if "--help" in sys.argv:
        sys.exit(print(__doc__))
    main(*map(int, sys.argv[1:]))
