"""core/cost.py: estimate the GPU memory, hours and disk of a run, from one table of assumptions.

    python -m core.cost                                          # memory of five models, four cards
    python -m core.cost --lora_rank=32 --gpus=1                  # the same with LoRA
    python -m core.cost --model=Qwen/Qwen2.5-7B-Instruct --cards=80 --gpus="1 2 4 8" --algo=ppo
    DRY_RUN=1 bash run_sweep.sh easy                             # hours of a sweep

A cell of the table is how many responses of full length the KV cache holds, or "no" if a run does
not fit. Speeds and memory were measured with models of up to 1.5B (results/gpu.md); other numbers
are assumed, so no estimate refuses a run. Sizes are in bytes; 1 GB is 10^9 bytes.
"""
import math
import re
from pathlib import Path
from statistics import NormalDist

from config import BadInput, all_rollouts, derive, entry, expect, files, parse, read_json

# A card: bytes of memory, bytes per second that decoding reads, FLOP per second of an update. The
# FLOP/s of the H100 and LOGIT_BYTES, what an update moves per logit, are fitted to updates of
# 16,384 tokens: 0.50 s for a model of 0.5B and 0.85 s for one of 1.5B
CARDS = {"RTX 4090": (24e9, 0.8e12, 65e12), "H100": (80e9, 2.6e12, 390e12)}
LOGIT_BYTES = 350
# The CPU's part of a decoding step, and of each rollout in it: with 0.5B, 2.5 ms at 8, 9.2 at 256
STEP_S, ROLLOUT_S = 2e-3, 24e-6
# The rest of an update, 3.4 s measured with 32 rollouts, less 1.8 s (computed) by packed rows
UPDATE_S = 1.6
# Tokens of a response: MEAN, or SHORT x max_new_tokens if less, lognormal; a share CUT is cut off
PROMPT, MEAN, SIGMA, SHORT, CUT = 150, 650, 0.5, 1 / 3, 0.005
N_VAL = 300  # validation problems, if n_val = 0
# What a run cannot use: bytes, and a share of the card (CUDA, NCCL, CUDA graphs, gaps)
SPARED, SPARED_SHARE = 2e9, 0.05
# Without recomputation an update took up to 1.4 times the sum below, so it must fit with this share
FULL = 0.7
AT_ONCE = 8  # with a KV cache of fewer responses of full length, generation would be too slow

# Sizes from the published config.json files of the paper's three models and of two smaller models
FIELDS = ("model_type vocab_size hidden_size intermediate_size num_hidden_layers "
          "num_attention_heads num_key_value_heads head_dim tie_word_embeddings").split()
SHAPES = {name: dict(zip(FIELDS, numbers)) for name, *numbers in (
    ("Qwen/Qwen2.5-0.5B-Instruct", "qwen2", 151936, 896, 4864, 24, 14, 2, 64, True),
    ("Qwen/Qwen2.5-1.5B-Instruct", "qwen2", 151936, 1536, 8960, 28, 12, 2, 128, True),
    ("Qwen/Qwen3-4B-Instruct-2507", "qwen3", 151936, 2560, 9728, 36, 32, 8, 128, True),
    ("Qwen/Qwen2.5-7B-Instruct", "qwen2", 152064, 3584, 18944, 28, 28, 4, 128, False),
    ("meta-llama/Llama-3.1-8B-Instruct", "llama", 128256, 4096, 14336, 32, 32, 8, 128, False))}


def read_shape(model):
    """Return the dict in a model's config.json, or the model's entry in SHAPES, or {}."""
    file = Path(model) / "config.json"
    return read_json(file) if file.exists() else SHAPES.get(model, {})


def sizes(shape):
    """Return the sizes of a decoder-only model, or None for other models. shape: its config.json.

    Parameters: P of all, body without the head, root of embedding and head, sides of LoRA of rank
    1. layers; widths d, ff, kv (keys); vocabulary V; token, bytes kept per layer and token.
    """
    try:
        d, ff, L = (shape[key] for key in ("hidden_size", "intermediate_size", "num_hidden_layers"))
        heads, V = shape["num_attention_heads"], shape["vocab_size"]
    except KeyError:
        return None
    if any("expert" in key and value for key, value in shape.items()):
        return None
    width = shape.get("head_dim") or d // heads
    q, kv = heads * width, (shape.get("num_key_value_heads") or heads) * width
    head = 0 if shape.get("tie_word_embeddings") else V * d
    body = V * d + L * (2 * d * q + 2 * d * kv + 3 * d * ff + 2 * d)
    return dict(P=body + head, body=body, root=V * d + head, layers=L, d=d, ff=ff, kv=kv, V=V,
                sides=L * (2 * (d + q) + 2 * (d + kv) + 3 * (d + ff)),
                token=26 * d + 10 * q + 4 * kv + 8 * ff)


# ---- memory --------------------------------------------------------------------------------------

def state_bytes(s, cfg, gpus, width=2):
    """Return {part: bytes} of weights, gradients and moments on each of `gpus` GPUs. All that is
    trained is in fp32 and split over the GPUs; a frozen parameter takes `width` bytes."""
    adapters = cfg["lora_rank"] * s["sides"]
    share = ((adapters or s["P"]) + s["body"] * (cfg["algo"] == "ppo")) / gpus
    return dict(weights=4 * share, gradients=4 * share, AdamW=8 * share,
                frozen=width * s["P"] * bool(adapters),
                reference=width * s["P"] / gpus * bool(cfg["kl_coef"] and not adapters))


def engine_bytes(s, cfg, engine="vllm", responses=0):
    """Return the memory of the engine's copy of all weights, of vLLM's fp32 logits and log-probs
    and 1 GB more, and of a KV cache of so many responses of full length."""
    longest = cfg["max_prompt_tokens"] + cfg["max_new_tokens"]
    return (2 * s["P"] + (engine == "vllm") * (1e9 + 12 * cfg["gen_batch"] * s["V"])
            + 4 * s["kv"] * s["layers"] * longest * responses)


def usable_bytes(card):
    """Return how many bytes a run can use on a card that has `card` bytes of memory."""
    return card * (1 - SPARED_SHARE) - SPARED


def update_bytes(s, cfg, gpus, engine="vllm"):
    """Return the peak memory of an update on each of `gpus` GPUs, without vLLM. All tokens may be
    response tokens. FSDP gathers embedding and head, and a layer at a time."""
    T = max(cfg["micro_tokens"], cfg["max_prompt_tokens"] + cfg["max_new_tokens"])
    head = 14 * min(cfg["micro_logits"], T * s["V"]) + 4 * s["V"] * s["d"]
    kept = 4 * s["d"] if cfg["activation_checkpointing"] != "false" else s["token"]
    return (sum(state_bytes(s, cfg, gpus).values()) + 2 * s["P"] * (engine == "hf")
            + 40 * cfg["B_p"] * cfg["n"] * mean_length(cfg) / gpus  # log-probs, weights, advantages
            + 2 * s["root"] * (gpus > 1) + s["layers"] * T * kept + max(head, T * s["token"]))


def fitted(s, cfg, gpus, card, engine="vllm"):
    """Return cfg with `activation_checkpointing` decided, if it is auto, for a card's bytes. If
    activations do not fit, the micro-batch is halved once before they are computed again. If they
    fit next to an engine that is awake, all logits of a micro-batch are computed at once."""
    if cfg["activation_checkpointing"] != "auto":
        return cfg
    tokens, logits, room = cfg["micro_tokens"], cfg["micro_logits"], FULL * usable_bytes(card)
    awake = FULL * engine_bytes(s, cfg, engine, cfg["gen_batch"])
    for T, K, beside in ((tokens, 10 ** 12, awake), (tokens, logits, 0), (tokens // 2, logits, 0)):
        kept = dict(cfg, activation_checkpointing="false", micro_tokens=T, micro_logits=K)
        if update_bytes(s, kept, gpus, engine) + beside <= room:
            return kept
    return dict(cfg, activation_checkpointing="true")


def memory_plan(s, cfg, gpus, card, engine="vllm"):
    """Return (held, cache) of a run on `gpus` cards of `card` bytes each: bytes of generation
    without the KV cache, the trainer's without gradients and the engine's; responses of full length
    in the cache, 0 if the run does not fit."""
    usable, parts = usable_bytes(card), state_bytes(s, cfg, gpus)
    update = update_bytes(s, fitted(s, cfg, gpus, card, engine), gpus, engine)
    trainer = sum(parts.values()) - parts["gradients"]
    copy, room = engine_bytes(s, cfg, engine), usable - trainer
    if engine == "vllm":
        room = cfg["gpu_memory"] * card or min(0.9 * card, room)
    cache = int((room - copy) / (engine_bytes(s, cfg, engine, 1) - copy))
    fits = (update <= usable and cache >= min(AT_ONCE, cfg["gen_batch"])
            and trainer + room <= usable + 1e7)
    return trainer + copy, cache if fits else 0


def disk_bytes(s, runs):
    """Return the bytes on disk while the runs of a sweep train one by one. A run in training has up
    to three checkpoints of 12 bytes per trained parameter. A finished run keeps its model, of 2
    bytes per parameter, and two checkpoints if `keep_last`."""
    parts = state_bytes(s, runs[0], 1)  # the runs of a sweep differ only in keys of the grid
    saved = parts["weights"] + parts["AdamW"]
    return 3 * saved + len(runs) * (2 * s["P"] + 2 * saved * runs[0]["keep_last"])


# ---- hours ---------------------------------------------------------------------------------------

def mean_length(cfg):
    """Return the mean tokens of a response that is not cut off."""
    return min(MEAN, SHORT * cfg["max_new_tokens"])


def decoding_s(s, steps, rollouts, cached, card="H100"):
    """Return the seconds of `steps` decoding steps on one card; each step reads all weights and
    the KV cache. rollouts, cached: unfinished responses and cached tokens, over all steps."""
    read = 2 * s["P"] * steps + 4 * s["kv"] * s["layers"] * cached  # bytes
    return STEP_S * steps + ROLLOUT_S * rollouts + read / CARDS[card][1]


def generation_s(s, cfg, rollouts, gpus, card="H100"):
    """Return the seconds that `gpus` cards need for `rollouts` rollouts. Each card generates
    `gen_batch` at a time, and waits for its longest response."""
    mean, most = mean_length(cfg), cfg["max_new_tokens"]
    tokens = (1 - CUT) * mean + CUT * most
    square = (1 - CUT) * mean**2 * math.exp(SIGMA**2) + CUT * most**2
    none_cut = (1 - CUT) ** rollouts
    top = mean * math.exp(SIGMA * NormalDist().inv_cdf(1 - 0.56 / rollouts) - SIGMA**2 / 2)
    longest = (1 - none_cut) * most + none_cut * min(top, most)
    each = rollouts / gpus
    steps = tokens * max(0.0, each / cfg["gen_batch"] - 1) + longest
    return decoding_s(s, steps, each * tokens, each * (PROMPT * tokens + square / 2), card)


def update_s(s, cfg, rollouts, gpus, card="H100"):
    """Return the seconds of an update's passes on `gpus` cards. Per parameter and token, forward
    and backward take 6 FLOPs, recomputation and the reference 2 each, a critic as many as the
    policy. The bandwidth of memory limits the logits."""
    memory, bandwidth, speed = CARDS[card]
    response = rollouts * mean_length(cfg) / gpus
    tokens = response + rollouts * PROMPT / gpus
    again = fitted(s, cfg, gpus, memory)["activation_checkpointing"] == "true"
    steps = cfg["updates"] * (6 + 2 * again) * (2 if cfg["algo"] == "ppo" else 1)
    flops = (steps + 2 * bool(cfg["kl_coef"])) * s["P"]
    return tokens * flops / speed + cfg["updates"] * response * LOGIT_BYTES * s["V"] / bandwidth


def gpu_hours(cfg, card="H100"):
    """Return the GPU-hours of a run and its evaluations on the fewest cards on which it fits, or
    None if the model's sizes are unknown or it does not fit on 8 cards."""
    s = None if cfg["dtype"] == "fp32" else sizes(read_shape(cfg["model"]))
    gpus = s and next((k for k in (1, 2, 4, 8)
                       if memory_plan(s, cfg, k, CARDS[card][0])[1]), None)
    if not gpus:
        return None
    B = cfg["B_p"] * cfg["n"]
    tested = (cfg["n_val"] or N_VAL) * len(files(cfg["val_set"])) * cfg["samples"]
    evaluations = 1 + cfg["C"] // max(cfg["eval_every"] or cfg["C"], B)
    seconds = derive(cfg)["M"] * (UPDATE_S + generation_s(s, cfg, B, gpus, card)
                                  + update_s(s, cfg, B, gpus, card))
    seconds += evaluations * generation_s(s, cfg, tested, gpus, card)
    return seconds * gpus / 3600


def of_runs(runs):
    """Return a line about runs: how many, rollouts and, for known models, GPU-hours and disk."""
    line = f"{len(runs)} runs, {sum(map(all_rollouts, runs)) / 1e6:,.1f}M rollouts"
    hours = [f"{float(f'{sum(each):.2g}'):,g} (of {card})" for card in CARDS
             if None not in (each := [gpu_hours(c, card) for c in runs])]
    if not hours:
        return line
    gigabytes = disk_bytes(sizes(read_shape(runs[0]["model"])), runs) / 1e9
    return (f"{line}, about {' or '.join(hours)} GPU-hours by core/cost.py, without measuring "
            f"difficulty; {gigabytes:,.0f} GB of disk")


# ---- the table of memory -------------------------------------------------------------------------

def main(argv):
    own = dict(cards=("24 48 80 141", "sizes of a GPU, in GB, to try"),
               gpus=("1 2 4 8", "GPUs of a run to try"))
    named = [word for word in argv if word.startswith(("--model=", "--config="))]
    models = [[]] if named else [[f"--model={model}"] for model in SHAPES]
    configs = [parse([*words, *argv], __doc__, own) for words in models]
    expect(configs[0], *((key, re.fullmatch(r"([1-9]\d{0,3}( |$))+", configs[0][key]),
                          "expected whole numbers above 0") for key in own))
    cards = configs[0]["cards"].split()
    print(f"| model | GPUs | an update | generation | {' GB | '.join(cards)} GB |")
    print("|" + "---|" * (4 + len(cards)))
    for cfg in configs:
        s = sizes(read_shape(cfg["model"]))
        if cfg["dtype"] == "fp32" or s is None:
            raise BadInput(f"--model={cfg['model']} --dtype={cfg['dtype']}: expected bf16 and a "
                           "folder with a decoder-only model's config.json")
        engine = "hf" if cfg["engine"] == "hf" else "vllm"  # on a GPU, engine=auto means vLLM
        for gpus in map(int, cfg["gpus"].split()):
            plans = [memory_plan(s, cfg, gpus, 1e9 * float(card), engine) for card in cards]
            print(f"| {Path(cfg['model']).name} | {gpus} | "  # the least memory of an update
                  f"{update_bytes(s, cfg, gpus, engine) / 1e9:.1f} | {plans[0][0] / 1e9:.1f} | "
                  + " | ".join(str(cache or "no") for _, cache in plans) + " |")


if __name__ == "__main__":
    entry(main)
