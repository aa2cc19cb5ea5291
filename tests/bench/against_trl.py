"""Compare the CPU seconds of an update with those of TRL's GRPOTrainer, on one thread each.

    python -m venv trl && trl/bin/pip install torch==2.13.0 transformers==5.17.0 trl==1.16.0
    export TRL_PYTHON=trl/bin/python
    python tests/bench/against_trl.py  # search and 5 pairs at n = 32 and 4: half an hour
    python tests/bench/against_trl.py --ns=4 --pairs=9
    python tests/bench/against_trl.py --ns=32 --best='{"parts": 2}'  # no search
    python tests/bench/against_trl.py --model=smollm  # SmolLM2-135M, n = 4, 16 and 64: an hour
    python tests/bench/against_trl.py shares --ns=4   # and what makes the difference

Both train the same model on the same prompts in the same order: data/arithmetic/base with B_p = 32
and at most 20 new tokens (made by `bash run_sweep.sh easy`), or data/smollm/base with B_p = 2 and 6
(`python data/smollm/prepare.py`, `python sample.py --data=data/smollm`; reasoning-gym in both
environments). Temperature 0.6, the same reward, fp32, fused AdamW, one update per batch; no KL,
entropy bonus or importance weights. TRL: loss_type dapo, scale_rewards group. Ours runs with the
values of the data folder, TRL with the fastest of a search over sequences in a micro-batch,
attention, cache, checkpointing and more.

Prints the search, the median update of each run in turn (ours, TRL, ours, ...), the ratio of each
pair, and what each side generated (rollouts per update, mean length, mean reward), to show that the
work is the same. It counts the CPU seconds of the process, because the clock would include what
else is running, and nothing here waits.

`shares` removes from ours, one after the other, what TRL lacks: prompts shared by the rollouts of a
group, in the update and before the first token, and dropping rows without advantage. What remains
is padding and the implementation.
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
D, SEED = 200, 0
LIMIT = 600                  # seconds after which a run of the search counts as failed
# skip: first updates of a run that are not timed (allocator, caches, lazy imports). steps: updates
# timed in a run, for each n
MODELS = dict(arithmetic=dict(B_p=32, T=20, skip=3, steps={32: 12, 4: 40}),
              smollm=dict(B_p=2, T=6, skip=1, steps={4: 6, 16: 3, 64: 1}))
ENV = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive", HF_HUB_OFFLINE="1",
           TOKENIZERS_PARALLELISM="false", CUDA_VISIBLE_DEVICES="", PYTHONPATH=str(ROOT))
# The search tries these one after the other on top of the best. Each changes how TRL computes, not
# what.
VARIANTS = [dict(attn="eager"), dict(cache="static"), dict(use_cache=False),
            dict(checkpointing=True), dict(workers=1), dict(optim="adamw_torch"),
            # prompts have at most 10 tokens, responses 20: with fixed shapes it compiles once
            dict(compile=True, pad=10),
            # continuous batching; with its default sizes, half of the memory, no update ends
            # within minutes
            dict(paged=dict(num_blocks=256, block_size=32, max_batch_tokens=256))]


def ours(model, n, steps, folder, **less):
    """Run train_grpo.py once -> dict(cpu, rewards, lengths, rollouts), one entry per update.

    less: arguments of `ours_child`.
    """
    job = dict(model=model, n=n, steps=steps, folder=tempfile.mkdtemp(dir=folder), **less)
    run = subprocess.run([sys.executable, __file__, "ours", json.dumps(job)], cwd=ROOT, env=ENV,
                         check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return json.loads(run.stdout.splitlines()[-1])


def ours_child(model, n, steps, folder, sharing=True, prefill=True, dropping=True):
    """Run train_grpo.main in this process, with or without its shortcuts.

    sharing: compute every prompt once for its rows in the update. prefill: decode a group from one
    pass through its prompt. dropping: leave out rows without advantage.
    """
    import train_grpo
    from core import engine
    m, cpu, log, write = MODELS[model], [], [], train_grpo.append
    # evaluations are not timed, so keep them short
    val = Path(folder) / "val.jsonl"
    lines = (ROOT / f"data/{model}/splits/base/easy_val.jsonl").read_text().splitlines(True)
    val.write_text("".join(lines[:5]))

    def clocked(file, record):
        if record["type"] == "step":
            cpu.append(time.process_time())
            log.append(record)
        write(file, record)
    train_grpo.append = clocked
    if not sharing:
        train_grpo.SHARED_FROM, train_grpo.SHARED_TOKENS = 10 ** 9, 0
    if not prefill:
        decode = engine.decode

        def prefill_each(net, ids, mask, u, *more):
            rows = len(u) // len(ids)
            return decode(net, ids.repeat_interleave(rows, 0), mask.repeat_interleave(rows, 0), u,
                          *more)
        engine.decode = prefill_each
    words = dict(data=ROOT / "data" / model, recipe="easy", B_p=m["B_p"], n=n, D=D, seed=SEED,
                 C=m["B_p"] * n * steps, max_new_tokens=m["T"], temperature=0.6, device="cpu",
                 kl_coef=0, entropy_coef=0 if dropping else 1e-12, tis_cap=0, sample_every=0,
                 eval_every=10 ** 9, save_every=0, val_set=val, out=Path(folder) / "run")
    train_grpo.main([f"--{k}={v}" for k, v in words.items()])
    print(json.dumps(dict(cpu=[b - a for a, b in zip(cpu, cpu[1:])],
                          rewards=[r["reward"] for r in log],
                          lengths=[r["response_len"] for r in log], rollouts=m["B_p"] * n)))


def trl(model, n, steps, folder, **settings):
    """Do the same with TRL in its interpreter; return None if it fails or takes too long."""
    job = dict(model=model, n=n, steps=steps, folder=tempfile.mkdtemp(dir=folder), **settings)
    try:
        run = subprocess.run([PYTHON, __file__, "trl", json.dumps(job)], cwd=ROOT, env=ENV,
                             capture_output=True, text=True, timeout=LIMIT)
        if run.returncode == 0:
            return json.loads(run.stdout.splitlines()[-1])
        why = (run.stderr.strip().splitlines() or ["no message"])[-1][:120]
    except subprocess.TimeoutExpired:
        why = f"over {LIMIT} s"
    print(f"    {settings}: {why}")


def trl_child(model, n, steps, folder, parts=1, attn="sdpa", cache=None, use_cache=None, paged=None,
              workers=0, optim="adamw_torch_fused", checkpointing=False, compile=False, pad=None):
    """Run GRPOTrainer for `steps` updates, a batch in `parts`; print what `ours` returns as JSON.
    """
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    import config
    import sample
    from core.problems import encode, subset
    import verifier
    import train_grpo
    B_p = MODELS[model]["B_p"]
    cfg = config.parse([f"--data={ROOT / 'data' / model}", f"--B_p={B_p}", f"--n={n}",
                        f"--C={B_p * n}"])
    base = str(ROOT / f"data/{model}/base")
    problems = subset(sample.read_problems(cfg["train_set"]), D, SEED)
    tokenizer = AutoTokenizer.from_pretrained(base, padding_side="left")
    ids = encode(problems, tokenizer, cfg["max_prompt_tokens"])
    texts = [tokenizer.decode(x) if "begin" in p else p["prompt"] for p, x in zip(problems, ids)]
    assert tokenizer(texts)["input_ids"] == ids, "TRL would read other prompts"
    order = [i for m in range(1, steps + 1) for i in train_grpo.batch_indices(m, B_p, D, SEED)]
    # with shuffle off these are our batches
    data = Dataset.from_list([dict(prompt=texts[i], problem=json.dumps(problems[i]))
                              for i in order])
    ends, rewards, lengths, rollouts = [], [], [], []

    def reward(prompts, completions, completion_ids, problem, **_):
        assert all(len(set(prompts[g:g + n])) == 1
                   for g in range(0, len(prompts), n)), "a group holds two prompts"
        r = [verifier.REWARDS[cfg["verifier"]](json.loads(p), text, cfg)
             for p, text in zip(problem, completions)]
        rewards.append(statistics.mean(r))
        lengths.append(statistics.mean(map(len, completion_ids)))
        rollouts.append(len(prompts))
        return r

    class Clock(TrainerCallback):
        def on_step_end(self, *_, **__):
            ends.append(time.process_time())

    args = GRPOConfig(
        output_dir=folder, max_steps=steps, seed=SEED, shuffle_dataset=False, num_generations=n,
        max_completion_length=MODELS[model]["T"], temperature=0.6, beta=0.0, loss_type="dapo",
        scale_rewards="group", num_iterations=1, learning_rate=config.derive(cfg)["lr"],
        weight_decay=0.01, max_grad_norm=1.0, lr_scheduler_type="constant_with_warmup",
        warmup_steps=10, optim=optim,
        # B_p n rollouts are generated at once and make one update, in `parts` micro-batches
        per_device_train_batch_size=B_p * n // parts, gradient_accumulation_steps=parts,
        use_cpu=True, bf16=False, fp16=False, gradient_checkpointing=checkpointing,
        generation_kwargs=None if use_cache is None else dict(use_cache=use_cache),
        torch_compile=compile, pad_to_multiple_of=pad, cache_implementation=cache,
        use_transformers_continuous_batching=bool(paged),
        transformers_continuous_batching_config=paged, dataloader_num_workers=workers,
        dataloader_pin_memory=False,
        logging_strategy="no", save_strategy="no", report_to="none", disable_tqdm=True)
    net = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32,
                                               attn_implementation=attn)
    trainer = GRPOTrainer(net, reward_funcs=reward, args=args, train_dataset=data,
                          callbacks=[Clock()], processing_class=tokenizer)
    trainer.train()
    made = f"{rollouts} rollouts in {len(ends)} updates"
    assert rollouts == [B_p * n] * steps and len(ends) == steps, made
    print(json.dumps(dict(cpu=[b - a for a, b in zip(ends, ends[1:])], rewards=rewards,
                          lengths=lengths, rollouts=rollouts[0])))


def median(run, model):
    """Return the CPU seconds of an update in the steady state of a run."""
    return statistics.median(run["cpu"][MODELS[model]["skip"] - 1:])


def search(model, n, folder):
    """Return the fastest settings of TRL for this n, and print a table.

    Candidates within 15% of the best run again; the faster run counts.
    """
    m = MODELS[model]
    seen, steps = {}, m["skip"] + max(m["skip"], m["steps"][n] // 4)
    print(f"  search over TRL's settings, n = {n}: CPU seconds an update")

    def measure(c):
        run = trl(model, n, steps, folder, **c)
        return median(run, model) if run else float("inf")

    def fastest(candidates):
        new = [c for c in candidates if str(c) not in seen]
        seen.update({str(c): measure(c) for c in new})
        close = [c for c in candidates if seen[str(c)] < 1.15 * min(seen.values())]
        if len(close) > 1:
            seen.update({str(c): min(seen[str(c)], measure(c)) for c in close})
        for c in new:
            print(f"    {seen[str(c)]:8.3f}   {c}", flush=True)
        return min(candidates, key=lambda c: seen[str(c)])

    best = fastest([dict(parts=k) for k in (1, 2, 4, 8, 16) if m["B_p"] * n // k >= 2])
    for more in VARIANTS[:None if model == "arithmetic" else 4]:
        best = fastest([best, dict(best, **more)])
    print(f"  best: {json.dumps(best)}, {seen[str(best)]:.3f} s")
    return best


def main(model="arithmetic", ns="", pairs="5", best=""):
    m = MODELS[model]
    for n in map(int, ns.split() or m["steps"]):
        steps = m["skip"] + m["steps"][n]
        print(f"{model}: B_p = {m['B_p']}, n = {n}, {m['steps'][n]} updates a run after "
              f"{m['skip']} that are not timed")
        with tempfile.TemporaryDirectory() as folder:
            a, b = [], []
            settings = json.loads(best) if best else search(model, n, folder)
            for _ in range(int(pairs)):
                a.append(ours(model, n, steps, folder))
                b.append(trl(model, n, steps, folder, **settings))
                x, y = median(a[-1], model), median(b[-1], model)
                print(f"    ours {x:7.3f} s an update, TRL {y:7.3f}: {y / x:5.2f} x", flush=True)
        for name, runs in (("ours", a), ("TRL", b)):
            def mean(key, part=slice(None)):
                return statistics.mean(x for r in runs for x in r[key][part])
            rate = statistics.median(r["rollouts"] / median(r, model) for r in runs)
            print(f"  {name:5s} {rate:7.1f} rollouts/s; {runs[0]['rollouts']} rollouts an update; "
                  f"length and reward {mean('lengths', slice(1)):.2f} "
                  f"{mean('rewards', slice(1)):.3f} at update 1, "
                  f"{mean('lengths'):.2f} {mean('rewards'):.3f} over the run")
        ratios = sorted(median(y, model) / median(x, model) for x, y in zip(a, b))
        print(f"  ours / TRL = {statistics.median(ratios):.2f}, the median of {len(ratios)} pairs "
              f"from {ratios[0]:.2f} to {ratios[-1]:.2f}\n", flush=True)


def shares(model="smollm", ns="16", updates="8", best='{"parts": 1}'):
    """Print the mean update of ours, with one shortcut less at a time, and of TRL, on the same
    batches.

    A few of the batches hold a group without advantage.
    """
    for n in map(int, ns.split()):
        less = {}
        steps = MODELS[model]["skip"] + int(updates)
        print(f"{model}, n = {n}: CPU seconds an update, the mean of {updates}")
        with tempfile.TemporaryDirectory() as folder:
            for name in ("", "dropping", "prefill", "sharing"):
                less |= {name: False} if name else {}
                run = ours(model, n, steps, folder, **less)
                print(f"  {statistics.mean(run['cpu']):7.2f}  ours"
                      f"{', without ' * bool(less)}{', '.join(less)}", flush=True)
            run = trl(model, n, steps, folder, **json.loads(best))
            print(f"  {statistics.mean(run['cpu']):7.2f}  TRL", flush=True)


if __name__ == "__main__":
    if "--help" in sys.argv:
        sys.exit(print(__doc__))
    verb, *words = sys.argv[1:] if sys.argv[1:2] in (["trl"], ["ours"], ["shares"]) else [
        "main", *sys.argv[1:]]
    if verb in ("trl", "ours"):
        dict(trl=trl_child, ours=ours_child)[verb](**json.loads(words[0]))
    else:
        dict(main=main, shares=shares)[verb](
            **dict(word.removeprefix("--").split("=", 1) for word in words))
