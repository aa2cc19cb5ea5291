"""Time an update with padded and with packed rows at two cells of a sweep, or vLLM's generation.

    python tests/bench/gpu.py              # Qwen2.5 0.5B shape, B_p = 8, n = 4 and 64; minutes
    python tests/bench/gpu.py vllm 0.5B    # generation by vLLM instead of an update
    python tests/bench/gpu.py tiny         # on a CPU in fp32; exits with 1 if the paths differ

MFU is the FLOPs of the forward and backward pass per second, as a share of the GPU's peak in dense
bf16. A parameter of the layers takes 6 FLOPs per token, the head 6 per response token, and causal
attention 6 layers x width x length per token. The embedding and what activation checkpointing
recomputes are not counted. Weights are random, so nothing is downloaded.
"""
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from core import cost  # noqa: E402

TINY = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, vocab_size=1000, tie_word_embeddings=True)
SHAPES = {"tiny": TINY} | {name: cost.SHAPES[f"Qwen/Qwen2.5-{name}-Instruct"]
                           for name in ("0.5B", "1.5B", "7B")}
PEAK = {"H100": 989e12, "H200": 989e12, "A100": 312e12}  # dense bf16, FLOP/s


def generation(shape, tokens=512, prompt=150):
    """Print the seconds of vLLM's start, sleep, load and of a decoding step of 8 to 1,024 rollouts.

    Next to the seconds of a decoding step are those by core/cost.py. Random weights nearly never
    draw the end token, so all rollouts have `tokens` tokens."""
    import tempfile

    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from config import parse
    from core import engine
    tokenizer = engine.load_tokenizer(ROOT / "data/arithmetic/base")
    s = cost.sizes(SHAPES[shape])
    with tempfile.TemporaryDirectory() as folder:
        with torch.device("cuda"):
            model = Qwen2ForCausalLM(Qwen2Config(**SHAPES[shape], eos_token_id=1,
                                                 pad_token_id=0)).to(torch.bfloat16)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        cfg = parse([f"--model={folder}", "--engine=vllm", "--gpu_memory=0.5",
                     "--gen_batch=1024",  # all rollouts at once, more than the default
                     f"--max_prompt_tokens={prompt}", f"--max_new_tokens={tokens}"])
        vllm = timed(f"{shape}, start of vLLM", engine.VLLMEngine, folder, tokenizer, cfg)
    for turn in ("first", "second"):
        timed(f"{shape}, {turn} sleep", vllm.sleep)
        timed(f"{shape}, {turn} load", vllm.load,
              ((name, p.detach()) for name, p in model.named_parameters()))
    for rollouts in (8, 8, 64, 256, 1024):  # the first 8 compile kernels
        prompts = [[5 + j] * prompt for j in range(rollouts // 8)]
        start = time.perf_counter()
        out = vllm.generate(prompts, 8, list(range(1, 1 + len(prompts))))
        took = (time.perf_counter() - start) / int(out["length"].max())
        expected = cost.decoding_s(s, 1, rollouts, rollouts * (prompt + tokens / 2))
        print(f"  {shape}, {rollouts} rollouts: {1e3 * took:.2f} ms a step "
              f"(core/cost.py: {1e3 * expected:.2f}), "
              f"{int(out['length'].sum()) / took / int(out['length'].max()):,.0f} tokens/s")


def timed(what, function, *args):
    """Print how long a call took; return its result."""
    import torch
    torch.cuda.synchronize()
    start = time.perf_counter()
    out = function(*args)
    torch.cuda.synchronize()
    print(f"  {what}: {time.perf_counter() - start:.2f} s", flush=True)
    return out


def batch_of(B_p, n, most, seed=0):
    """Return a batch for `train_grpo.update`: prompts of 60 to 140 tokens, lognormal responses."""
    import torch
    rng = random.Random(seed)
    prompts = [[rng.randrange(5, 900) for _ in range(rng.randint(60, 140))] for _ in range(B_p)]
    length = torch.tensor([min(most, max(8, int(rng.lognormvariate(4.9, 0.55))))
                           for _ in range(B_p * n)])
    tokens = torch.randint(5, 900, (B_p * n, int(length.max())))
    rewards = torch.tensor([[float(rng.random() < 0.5) for _ in range(n)] for _ in range(B_p)])
    rollouts = dict(tokens=tokens, logps=torch.full(tokens.shape, -1.0), length=length,
                    stopped=length < most)
    return dict(step=1, prompts=prompts, rewards=rewards, rollouts=rollouts)


def flops_of(shape, batch, n):
    """Return the FLOPs of the forward and backward pass of an update."""
    s = cost.sizes(shape)
    total = [len(p) for p in batch["prompts"] for _ in range(n)]
    total = [a + b for a, b in zip(total, batch["rollouts"]["length"].tolist())]
    attention = 6 * s["layers"] * s["d"] * sum(x * x for x in total)
    layers, response = s["body"] - s["V"] * s["d"], int(batch["rollouts"]["length"].sum())
    return 6 * (layers * sum(total) + s["V"] * s["d"] * response) + attention


def difference(model, batch, n, cfg):
    """Return the largest difference of log-probs and of gradients, as a share of the largest."""
    import torch

    from core import packing
    import train_grpo
    part, results = train_grpo.update_parts(model, batch, cfg)[0][0], []
    for implementation in ("sdpa", "packed"):
        packing.pack(model)
        model.config._attn_implementation = implementation
        logp, entropy = train_grpo.run_part(train_grpo.token_logps, model, part, cfg)
        (logp.mean() + 1e-3 * entropy.mean()).backward()
        grad = torch.cat([p.grad.flatten() for p in model.parameters()])
        results.append((logp.detach(), grad))
        model.zero_grad()
    (logp, grad), (logp2, grad2) = results
    return (logp - logp2).abs().max().item(), ((grad - grad2).abs().max() / grad.abs().max()).item()


def main(names, B_p=8):
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from config import parse
    from core import models, packing
    import train_grpo
    device = "cuda" if torch.cuda.is_available() else "cpu"
    card = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    peak = next((flops for name, flops in PEAK.items() if name in card), float("nan"))
    print(f"{card}, torch {torch.__version__}")
    right = True
    for name in names:
        shape, most = SHAPES[name], 64 if name == "tiny" else 768
        with torch.device(device):
            model = Qwen2ForCausalLM(Qwen2Config(**shape, max_position_embeddings=2048,
                                                 eos_token_id=1, pad_token_id=0)).eval()
        learner = train_grpo.Learner(model, torch.optim.AdamW(model.parameters(), lr=1e-9))
        for n in (4,) if name == "tiny" else (4, 64):
            batch, times = batch_of(B_p, n, most), {}
            for path in ("padded", "packed"):
                cfg = parse(["--model=none/none", "--kl_coef=0", f"--n={n}", f"--B_p={B_p}",
                             f"--C={B_p * n}", "--max_prompt_tokens=140",
                             f"--max_new_tokens={most}"])
                if device == "cuda":
                    memory = torch.cuda.get_device_properties(0).total_memory
                    cfg = cost.fitted(cost.sizes(shape), cfg, 1, memory)
                    if cfg["activation_checkpointing"] == "true":
                        models.checkpoint_activations(model)
                    torch.cuda.empty_cache()
                    torch.cuda.reset_peak_memory_stats()
                packing.pack(model)
                model.config._attn_implementation = "packed" if path == "packed" else "sdpa"
                took = []
                for _ in range(4):
                    start = time.perf_counter()
                    loss = train_grpo.update(learner, batch, cfg)["loss"]
                    if device == "cuda":
                        torch.cuda.synchronize()
                    took.append(time.perf_counter() - start)
                times[path] = statistics.median(took[1:])
                print(f"  {name}, n = {n}, {path}: {times[path]:.3f} s an update, loss {loss:.6f}")
                if device == "cuda":
                    expected = cost.update_bytes(cost.sizes(shape), cfg, 1)
                    print(f"    MFU {flops_of(shape, batch, n) / times[path] / peak:.1%}, "
                          f"{torch.cuda.max_memory_allocated() / 1e9:.1f} GB at most "
                          f"(core/cost.py: {expected / 1e9:.1f})", flush=True)
            logps, gradient = difference(model, batch, n, cfg)
            print(f"  {name}, n = {n}: packed / padded {times['packed'] / times['padded']:.2f} of "
                  f"the time; log-probs differ by {logps:.1e} at most, gradients by {gradient:.1e}")
            if device == "cpu":
                right = right and logps <= 1e-4 and gradient <= 1e-4  # nan is wrong
        del learner, model
    return int(not right)


if __name__ == "__main__":
    if "--help" in sys.argv:
        sys.exit(print(__doc__))
    if unknown := set(sys.argv[1:]) - {"vllm", *SHAPES}:
        sys.exit(f"{', '.join(unknown)}: expected {', '.join(SHAPES)} or vllm")
    if "vllm" in sys.argv:
        names = [name for name in sys.argv[1:] if name != "vllm"] or ["0.5B", "1.5B"]
        if len(names) == 1:
            sys.exit(generation(names[0]))
        for name in names:  # a process has one engine that can sleep
            subprocess.run([sys.executable, __file__, "vllm", name], check=True)
    else:
        sys.exit(main(sys.argv[1:] or ["0.5B"]))
