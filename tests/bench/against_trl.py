"""Rollouts per second of train_grpo.py beside TRL's GRPOTrainer, on one CPU thread each.

    python -m venv trl && trl/bin/pip install torch==2.13.0 transformers==5.17.0 trl==1.16.0
    export TRL_PYTHON=trl/bin/python
    python tests/bench/against_trl.py  # search and 5 pairs at n = 32 and 4: half an hour
    python tests/bench/against_trl.py --ns=4 --pairs=9
    python tests/bench/against_trl.py --ns=32 --best='{"per_device": 512}'  # no search

Both train data/arithmetic/base (made by `bash run_sweep.sh easy`) on the same prompts in the same
order: B_p = 32, at most 20 new tokens, temperature 0.6, the same reward, fp32, fused AdamW, one
update a batch; no KL, entropy bonus or importance weights. TRL: loss_type dapo, scale_rewards
group. Ours runs with the values of data/arithmetic, TRL with the fastest of a search.

Prints the search, the median step of each run in turns (ours, TRL, ours, ...), the ratio of the
rates, pair by pair, and what each side generated (rollouts an update, mean length, mean reward), to
show that the work is the same.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
PYTHON = os.environ.get("TRL_PYTHON", sys.executable)
B_P, D, SEED, T = 32, 200, 0, 20
SKIP = 3                     # first updates of a run, not timed: allocator, caches, lazy imports
STEPS = {32: 12, 4: 40}      # updates timed in a run, for each n
LIMIT = 200                  # seconds for a run of the search; then it counts as failed
SPLITS = ROOT / "data/arithmetic/splits/base"
ENV = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive", HF_HUB_OFFLINE="1",
           TOKENIZERS_PARALLELISM="false", CUDA_VISIBLE_DEVICES="", PYTHONPATH=str(ROOT))
# Tried one after the other on top of the best so far; each changes how TRL computes and not what.
VARIANTS = [dict(attn="eager"), dict(cache="static"), dict(workers=1), dict(optim="adamw_torch"),
            dict(checkpointing=True),
            # prompts have at most 10 tokens, responses 20: with fixed shapes it compiles once
            dict(compile=True, pad=10),
            # continuous batching; with its own sizes, half of the memory, no update ends within
            # minutes
            dict(paged=dict(num_blocks=256, block_size=32, max_batch_tokens=256))]


def ours(n, steps, folder):
    """One run of train_grpo.py -> dict(seconds, rewards, lengths, rollouts), an entry an update."""
    val = folder / "val.jsonl"  # evaluations lie outside what is timed: keep them short
    lines = (SPLITS / "easy_val.jsonl").read_text().splitlines(True)
    val.write_text("".join(lines[:5]))
    out = Path(tempfile.mkdtemp(dir=folder))
    words = dict(recipe="easy", B_p=B_P, n=n, D=D, seed=SEED, C=B_P * n * steps, max_new_tokens=T,
                 temperature=0.6, device="cpu", kl_coef=0, entropy_coef=0, tis_cap=0,
                 eval_every=10 ** 9, save_every=0, val_set=val, out=out)
    subprocess.run([sys.executable, "train_grpo.py", *(f"--{k}={v}" for k, v in words.items())],
                   cwd=ROOT, env=ENV, check=True, stderr=subprocess.DEVNULL)
    log = [r for r in map(json.loads, open(out / "log.jsonl")) if r["type"] == "step"]
    return dict(seconds=[b["wall_s"] - a["wall_s"] for a, b in zip(log, log[1:])],
                rewards=[r["reward"] for r in log], lengths=[r["response_len"] for r in log],
                rollouts=B_P * n)


def trl(n, steps, folder, **settings):
    """The same for TRL, in an interpreter of its own; None where it fails with these settings or
    takes too long."""
    job = dict(n=n, steps=steps, folder=tempfile.mkdtemp(dir=folder), **settings)
    try:
        run = subprocess.run([PYTHON, __file__, "trl", json.dumps(job)], cwd=ROOT, env=ENV,
                             capture_output=True, text=True, timeout=LIMIT)
        if run.returncode == 0:
            return json.loads(run.stdout.splitlines()[-1])
        why = (run.stderr.strip().splitlines() or ["no message"])[-1][:120]
    except subprocess.TimeoutExpired:
        why = f"over {LIMIT} s"
    print(f"    {settings}: {why}")


def trl_child(n, steps, folder, per_device, attn="sdpa", cache=None, paged=None, workers=0,
              optim="adamw_torch_fused", checkpointing=False, compile=False, pad=None):
    """One GRPOTrainer run of `steps` updates; its last line of output is what `ours` returns, as
    JSON."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    import config
    import sample
    import verifier
    import train_grpo
    base = str(ROOT / "data/arithmetic/base")
    problems = sample.subset(sample.read_problems(SPLITS / "easy_train.jsonl"), D, SEED)
    order = [problems[i] for m in range(1, steps + 1)
             for i in train_grpo.batch_indices(m, B_P, D, SEED)]
    # with shuffle off: our batches
    data = Dataset.from_list([dict(prompt=p["prompt"], answer=p["answer"]) for p in order])
    lr = config.derive(config.parse([f"--B_p={B_P}", f"--n={n}", f"--C={B_P * n}"]))["lr"]
    ends, cpu, rewards, lengths, rollouts = [], [], [], [], []

    def reward(prompts, completions, completion_ids, answer, **_):
        assert all(len(set(prompts[g:g + n])) == 1
                   for g in range(0, len(prompts), n)), "a group holds two prompts"
        r = [verifier.exact(dict(answer=a), text, {}) for a, text in zip(answer, completions)]
        rewards.append(statistics.mean(r))
        lengths.append(statistics.mean(map(len, completion_ids)))
        rollouts.append(len(prompts))
        return r

    class Clock(TrainerCallback):
        def on_step_end(self, *_, **__):
            ends.append(time.perf_counter())
            cpu.append(time.process_time())

    args = GRPOConfig(
        output_dir=folder, max_steps=steps, seed=SEED, shuffle_dataset=False, num_generations=n,
        max_completion_length=T, temperature=0.6, beta=0.0, loss_type="dapo",
        scale_rewards="group", num_iterations=1, learning_rate=lr, weight_decay=0.01,
        max_grad_norm=1.0, lr_scheduler_type="constant_with_warmup", warmup_steps=10, optim=optim,
        # B_p n rollouts are generated at once and make one update, in micro-batches of per_device
        per_device_train_batch_size=per_device, gradient_accumulation_steps=B_P * n // per_device,
        use_cpu=True, bf16=False, fp16=False, gradient_checkpointing=checkpointing,
        torch_compile=compile, pad_to_multiple_of=pad, cache_implementation=cache,
        use_transformers_continuous_batching=bool(paged),
        transformers_continuous_batching_config=paged, dataloader_num_workers=workers,
        dataloader_pin_memory=False,
        logging_strategy="no", save_strategy="no", report_to="none", disable_tqdm=True)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32,
                                                 attn_implementation=attn)
    tokenizer = AutoTokenizer.from_pretrained(base, padding_side="left")
    trainer = GRPOTrainer(model, reward_funcs=reward, args=args, train_dataset=data,
                          callbacks=[Clock()], processing_class=tokenizer)
    trainer.train()
    made = f"{rollouts} rollouts in {len(ends)} updates"
    assert rollouts == [B_P * n] * steps and len(ends) == steps, made
    print(json.dumps(dict(seconds=[b - a for a, b in zip(ends, ends[1:])],
                          cpu=[b - a for a, b in zip(cpu, cpu[1:])], rewards=rewards,
                          lengths=lengths, rollouts=rollouts[0])))


def median(run, clock="seconds"):
    """Seconds of an update in the steady state of a run."""
    return statistics.median(run[clock][SKIP - 1:])


def search(n, folder):
    """The fastest settings of TRL for this n, and a printed table. What is within 15% is run again;
    the faster run counts.

    By the CPU seconds of the process: on a busy machine the clock would choose by what else is
    running. Nothing waits here.
    """
    seen, steps = {}, SKIP + max(5, STEPS[n] // 4)
    print(f"  search over TRL's settings, n = {n}: CPU seconds an update")

    def measure(c):
        run = trl(n, steps, folder, **c)
        return median(run, "cpu") if run else float("inf")

    def fastest(candidates):
        new = [c for c in candidates if str(c) not in seen]
        seen.update({str(c): measure(c) for c in new})
        close = [c for c in candidates if seen[str(c)] < 1.15 * min(seen.values())]
        if len(close) > 1:
            seen.update({str(c): min(seen[str(c)], measure(c)) for c in close})
        for c in new:
            print(f"    {seen[str(c)]:8.3f}   {c}", flush=True)
        return min(candidates, key=lambda c: seen[str(c)])

    best = fastest([dict(per_device=B_P * n // k) for k in (1, 2, 4, 8, 16)])
    for more in VARIANTS:
        best = fastest([best, dict(best, **more)])
    print(f"  best: {json.dumps(best)}, {seen[str(best)]:.3f} s")
    return best


def main(ns="32 4", pairs="5", best=""):
    for n in map(int, ns.split()):
        print(f"B_p = {B_P}, n = {n}, {STEPS[n]} updates a run after {SKIP} that are not timed")
        with tempfile.TemporaryDirectory() as folder:
            folder, a, b = Path(folder), [], []
            settings = json.loads(best) if best else search(n, folder)
            for _ in range(int(pairs)):
                a.append(ours(n, SKIP + STEPS[n], folder))
                b.append(trl(n, SKIP + STEPS[n], folder, **settings))
                x, y = median(a[-1]), median(b[-1])
                print(f"    ours {x:7.3f} s an update, TRL {y:7.3f}: {y / x:5.2f} x", flush=True)
        for name, runs in (("ours", a), ("TRL", b)):
            def mean(key, part=slice(None)):
                return statistics.mean(x for r in runs for x in r[key][part])
            rate = statistics.median(r["rollouts"] / median(r) for r in runs)
            print(f"  {name:5s} {rate:7.0f} rollouts/s; {runs[0]['rollouts']} rollouts an update; "
                  f"length and reward {mean('lengths', slice(1)):.2f} "
                  f"{mean('rewards', slice(1)):.3f} at update 1, "
                  f"{mean('lengths'):.2f} {mean('rewards'):.3f} over the run")
        ratios = sorted(median(y) / median(x) for x, y in zip(a, b))
        print(f"  ours / TRL = {statistics.median(ratios):.2f}, the median of {len(ratios)} pairs "
              f"from {ratios[0]:.2f} to {ratios[-1]:.2f}\n", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["trl"]:
        trl_child(**json.loads(sys.argv[2]))
    else:
        main(**dict(word.removeprefix("--").split("=", 1) for word in sys.argv[1:]))
