"""Measure what an update saves if it computes each prompt once for all its rollouts.

    python tests/bench/prefix.py          # n = 4 and 16, fp32, 5 rounds; ten minutes
    python tests/bench/prefix.py bf16     # on a CPU that supports it

SmolLM2-135M-Instruct on its sums (data/smollm: `python data/smollm/prepare.py` and `python
sample.py --data=data/smollm` first), B_p = 4, one thread. An update with shared prompts and one
without run in turn on the same rollouts. Prints the median of the ratios of each pair.
"""
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


def main(dtype="fp32", rounds=5, B_p=4, ns=(4, 16)):
    import torch

    import config
    from core import engine
    import sample
    from core.problems import encode
    import train_grpo
    cfg = config.parse(["--data=data/smollm", "--recipe=easy", f"--dtype={dtype}", f"--B_p={B_p}"])
    problems = sample.read_problems(cfg["train_set"])
    model, tokenizer = engine.load_model(cfg["model"], "cpu")
    prompts = encode(problems, tokenizer, cfg["max_prompt_tokens"])[:B_p]
    opt = torch.optim.AdamW(model.parameters(), lr=1e-9, fused=True)
    learner = train_grpo.Learner(model, opt)
    settings = train_grpo.SHARED_FROM, train_grpo.SHARED_TOKENS
    for n in ns:
        at, ratios = dict(cfg, n=n), []
        seeds = [engine.rollout_seed("prefix", n, i) for i in range(B_p)]
        rollouts = engine.generate(model, tokenizer, prompts, n, seeds, at)
        rewards = (torch.arange(B_p * n) % 2).float().view(B_p, n)  # every group has a signal
        for m in range(rounds + 1):
            seconds = []
            for how in ((1, 1), (10**9, 0)):  # always, never
                train_grpo.SHARED_FROM, train_grpo.SHARED_TOKENS = how
                batch = dict(prompts=prompts, rollouts=rollouts, rewards=rewards, step=m)
                start = time.perf_counter()
                train_grpo.update(learner, batch, at)
                seconds.append(time.perf_counter() - start)
            ratios.append(seconds[1] / seconds[0])
        train_grpo.SHARED_FROM, train_grpo.SHARED_TOKENS = settings
        ratios = ratios[1:]
        print(f"{dtype}, n = {n:3d}: an update with prompts shared is "
              f"{statistics.median(ratios):.2f} times as fast "
              f"({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    if "--help" in sys.argv:
        sys.exit(print(__doc__))
    main(*sys.argv[1:2], *map(int, sys.argv[2:]))
