"""Measure on a GPU: model FLOPs utilisation (MFU) and memory of an update, tokens/s of generation.

    python tests/bench/gpu.py              # Qwen2.5 1.5B and 7B shapes, 8,192 tokens; minutes
    python tests/bench/gpu.py vllm 0.5B    # generation by vLLM instead of an update
    python tests/bench/gpu.py tiny         # a shape for a CPU, to check that the script runs

MFU is the FLOPs of the forward and backward pass per second, as a share of the GPU's peak in dense
bf16. A parameter of the layers takes 6 FLOPs per token, the head 6 per response token, and causal
attention 6 layers x width x length per token. The embedding and what activation checkpointing
recomputes are not counted. Weights are random, so nothing is downloaded. The 7B shape makes no
optimizer step, because its moments do not fit on one GPU.
"""
import gc
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from core import cost  # noqa: E402

SHAPES = {"tiny": dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                       num_attention_heads=2, num_key_value_heads=1, vocab_size=1000,
                       tie_word_embeddings=True),
          "0.5B": cost.SHAPES["Qwen/Qwen2.5-0.5B-Instruct"],
          "1.5B": cost.SHAPES["Qwen/Qwen2.5-1.5B-Instruct"],
          "7B": cost.SHAPES["Qwen/Qwen2.5-7B-Instruct"]}
PEAK = {"H100": 989e12, "H200": 989e12, "A100": 312e12}  # dense bf16, FLOP/s


def expected(shape, ids, chunk, has_moments):
    """Return the bytes of this update by core/cost.py, with the engine's copy of the weights."""
    from config import parse
    rows, length = ids.shape
    cfg = parse(["--model=none/none", "--kl_coef=0", f"--micro_tokens={rows * length}",
                 f"--micro_logits={chunk}", "--max_prompt_tokens=1", f"--max_new_tokens={length}"])
    s = cost.sizes(shape)
    parts = cost.update_bytes(s, cfg, 1)
    return sum(parts.values()) + 2 * s["P"] - (0 if has_moments else parts["AdamW"])


def generation(names, tokens=512, prompt=150):
    """Print the seconds of vLLM's start, sleep, load and of a decoding step of 8 to 1,024 rollouts.

    Next to the seconds of a decoding step are those by core/cost.py. Random weights nearly never
    draw the end token, so all rollouts have `tokens` tokens.
    """
    import tempfile

    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from config import parse
    from core import engine
    tokenizer = engine.load_tokenizer(ROOT / "data/arithmetic/base")
    for shape in names:
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
        del vllm, model
        gc.collect()
        torch.cuda.empty_cache()


def timed(what, function, *args):
    """Print how long a call took; return its result."""
    import torch
    torch.cuda.synchronize()
    start = time.perf_counter()
    out = function(*args)
    torch.cuda.synchronize()
    print(f"  {what}: {time.perf_counter() - start:.2f} s", flush=True)
    return out


def main(names, length=8192, prompt=192):
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from core import engine
    import train_grpo
    from config import config
    device = "cuda" if torch.cuda.is_available() else "cpu"
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    peak = next((flops for card, flops in PEAK.items() if card in name), float("nan"))
    print(f"{name}, torch {torch.__version__}")
    for shape in names:
        if shape == "tiny":
            length, prompt = 96, 16
        with torch.device(device):
            model = Qwen2ForCausalLM(Qwen2Config(**SHAPES[shape], max_position_embeddings=length,
                                                 eos_token_id=1, pad_token_id=0))
        # all that the engine needs of a tokenizer
        stand_in = type("Tokenizer", (), dict(pad_token_id=0, eos_token_id=1,
                                               chat_template=None))
        generator = engine.HFEngine(model, stand_in, dict(
            config, max_new_tokens=length // 16, activation_checkpointing="true"))
        train_grpo.models.checkpoint_activations(model)
        opt = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True) if shape != "7B" else None
        ids = torch.randint(2, 1000, (2, length), device=device)
        prompt_length = torch.full((2,), prompt, device=device)
        response = torch.full((2,), length - prompt, device=device)
        body = sum(p.numel() for p in model.base_model.layers.parameters())
        layers, width = len(model.base_model.layers), SHAPES[shape]["hidden_size"]
        head = SHAPES[shape]["vocab_size"] * width
        attention = 6 * layers * width * length * ids.numel()
        flops = 6 * (body * ids.numel() + head * 2 * (length - prompt)) + attention
        for chunk in (config["micro_logits"], 10 ** 15):
            times = []
            if device == "cuda":
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
            try:
                for _ in range(6):
                    start = time.perf_counter()
                    logp, entropy = train_grpo.token_logps(model, ids, prompt_length, response,
                                                           0.6, chunk)
                    (logp.mean() + 1e-3 * entropy.mean()).backward()
                    if opt:
                        opt.step()
                    model.zero_grad()
                    if device == "cuda":
                        torch.cuda.synchronize()
                    times.append(time.perf_counter() - start)
            except torch.OutOfMemoryError:
                print(f"  {shape}, micro_logits={chunk:.0e}: out of memory")
                continue
            step = statistics.median(times[1:])
            most = "memory not measured"
            if device == "cuda":
                most = f"{torch.cuda.max_memory_allocated() / 1e9:.1f} GB at most"
            print(f"  {shape}, micro_logits={chunk:.0e}: update {step:.3f} s, "
                  f"{ids.numel() / step:,.0f} tokens/s, MFU {flops / step / peak:.1%}, {most} "
                  f"(core/cost.py: {expected(SHAPES[shape], ids, chunk, bool(opt)) / 1e9:.1f})")
        del opt, model
        start = time.perf_counter()
        out = generator.generate([[5] * prompt] * 8, 32, list(range(8)))
        took = time.perf_counter() - start
        print(f"  {shape}, transformers engine, 8 prompts x 32, {length // 16} new tokens: "
              f"{int(out['length'].sum()) / took:,.0f} tokens/s")


if __name__ == "__main__":
    if "--help" in sys.argv:
        sys.exit(print(__doc__))
    if "vllm" in sys.argv:
        generation([name for name in sys.argv[1:] if name != "vllm"] or ["0.5B", "1.5B"])
    else:
        main(sys.argv[1:] or ["1.5B", "7B"])
