"""Compare the cost of a training step over n, at a fixed number of rollouts B_p n = 1,024.

    python tests/bench/over_n.py          # n = 8 to 256, 7 rounds; two minutes

First run `bash run_sweep.sh easy`, which makes the problems of data/arithmetic. A round makes one
step (rollouts, rewards, update) with each n in turn, on the same problems. Prints for each n the
median over rounds, and its ratio to the median over all n.
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


def main(rounds=7, B=1024, ns=(8, 16, 32, 64, 128, 256)):
    import torch

    import config
    from core import engine
    import sample
    from core.problems import encode
    import train_grpo
    import verifier
    cfg = config.parse(["--kl_coef=0", "--entropy_coef=0"])
    problems = sample.read_problems(cfg["train_set"])
    model, tokenizer = engine.load_model(cfg["model"], "cpu")
    prompts = encode(problems, tokenizer, cfg["max_prompt_tokens"])
    opt = torch.optim.AdamW(model.parameters(), lr=1e-9, fused=True)
    times = {n: [] for n in ns}
    for m in range(rounds + 1):
        for n in ns:
            index = [(m * B // ns[0] + j) % len(problems) for j in range(B // n)]
            at = dict(cfg, n=n, B_p=B // n)
            start = time.perf_counter()
            rollouts = engine.generate(model, tokenizer, [prompts[i] for i in index], n,
                                       [engine.rollout_seed("over_n", m, j)
                                        for j in range(len(index))], at)
            rewards, _ = verifier.grade([problems[i] for i in index], rollouts, tokenizer, at)
            batch = dict(prompts=[prompts[i] for i in index], rollouts=rollouts, rewards=rewards,
                         step=m)
            train_grpo.update(train_grpo.Learner(model, opt), batch, at)
            times[n].append((time.perf_counter() - start) / int(rollouts["length"].sum()) * 1e6)
    medians = {n: statistics.median(t[1:]) for n, t in times.items()}
    middle = statistics.median(medians.values())
    for n, t in medians.items():
        print(f"n = {n:4d}   {t:6.1f} us a response token   {t / middle:5.2f} of the median   "
              f"(from {min(times[n][1:]):.1f} to {max(times[n][1:]):.1f})")
    print(f"largest over smallest: {max(medians.values()) / min(medians.values()):.2f}")


if __name__ == "__main__":
    if "--help" in sys.argv:
        sys.exit(print(__doc__))
    main(*map(int, sys.argv[1:]))
