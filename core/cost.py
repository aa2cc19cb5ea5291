"""core/cost.py: estimate the GPU memory, hours and disk of a run, from one table of assumptions.

    python -m core.cost                                          # memory of five models, four cards
    python -m core.cost --model=Qwen/Qwen2.5-7B-Instruct --cards=80 --gpus="1 2 4 8" --algo=ppo
    DRY_RUN=1 bash run_sweep.sh easy                             # hours of a sweep

The memory of an update is the sum of the tensors at its peak. It agrees within 5% with
tests/bench/memory.py, which simulates the same updates tensor by tensor. The memory of generation
is a second, separate sum. Hours come from the steps of decoding and the FLOPs of an update. They
agree within 10% with tests/bench/tail.py, which draws the length of every response. Speeds were
measured on one H100 with models of up to 1.5B (results/gpu.md). The other numbers are assumed, so
no run is refused because of an estimate. Sizes are in bytes; 1 GB is 10^9 bytes.
"""
import functools
import math
from pathlib import Path

from config import BadInput, all_rollouts, derive, entry, files, parse, read_json
from core.models import recomputes

# ---- the assumptions -----------------------------------------------------------------------------
# CARDS has three numbers for each card: bytes of memory, bytes per second that decoding reads, and
# FLOP per second of an update. LOGIT_BYTES is the bytes that an update moves per logit (one logit
# per token and vocabulary item). The FLOP/s of the H100 and LOGIT_BYTES are fitted to measured
# updates of 16,384 tokens: 0.50 s for a model of 0.5B and 0.85 s for one of 1.5B
CARDS = {"RTX 4090": (24e9, 0.8e12, 65e12), "H100": (80e9, 2.6e12, 390e12)}
LOGIT_BYTES = 350
# A decoding step takes STEP_S seconds of CPU work, plus ROLLOUT_S for each rollout. Both are fitted
# to a model of 0.5B: its steps took 2.5, 3.6 and 9.2 ms with 8, 64 and 256 rollouts
STEP_S, ROLLOUT_S = 2e-3, 24e-6
# Seconds of an update that are not generation, forward or backward: the engine's sleep and wake-up,
# grading, allocating memory again, and the log. Measured with a 135M model and 32 rollouts
UPDATE_S = 3.4
# PROMPT: tokens of a prompt. MEAN: mean tokens of a response, or SHORT x max_new_tokens if that is
# less. SIGMA: sigma of the lognormal length of a response. CUT: share of the responses that run to
# max_new_tokens
PROMPT, MEAN, SIGMA = 150, 650, 0.5
SHORT = 1 / 3
CUT = 0.005
N_VAL = 300  # number of validation problems, if n_val = 0

# Memory of a card that a run cannot use: SPARED bytes plus SPARED_SHARE of the card, for the CUDA
# context, NCCL's buffers, vLLM's CUDA graphs and the allocator's gaps
SPARED, SPARED_SHARE = 2e9, 0.05
# a run fits only if vLLM's KV cache holds this many responses of full length; with fewer,
# generation would be too slow
AT_ONCE = 8

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
    """Return a dict with the sizes of a decoder-only model, or None for other models.

    The argument `shape` is the dict in the model's config.json. The returned dict has these keys:

    P             number of all parameters
    body          parameters without the head
    root          parameters of embedding and head, which FSDP gathers together
    layer         parameters of one layer
    layers        number of layers
    d, ff, q, kv  widths of the residual stream, the MLP, the queries and the keys
    V             size of the vocabulary
    normed        q + kv if queries and keys are normalised, else 0
    sides         parameters of LoRA adapters of rank 1 in all layers
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
    layer = 2 * d * q + 2 * d * kv + 3 * d * ff + 2 * d
    # the adapter of a matrix has rank * (rows + columns) parameters; here the rank is 1
    sides = 2 * (d + q) + 2 * (d + kv) + 3 * (d + ff)
    head = 0 if shape.get("tie_word_embeddings") else V * d
    body = V * d + L * layer
    return dict(P=body + head, body=body, root=V * d + head, layer=layer, layers=L, d=d, ff=ff, q=q,
                kv=kv, V=V, sides=L * sides,
                normed=(q + kv) * shape.get("model_type", "").startswith("qwen3"))


# ---- memory --------------------------------------------------------------------------------------

def state_bytes(s, cfg, gpus, width=2):
    """Return the memory of weights, gradients and moments on each of `gpus` GPUs: {part: bytes}.

    Everything that is trained, a critic included, is in fp32 and split over the GPUs. A frozen
    parameter takes `width` bytes. The gradients are freed before generation.
    """
    adapters = cfg["lora_rank"] * s["sides"]
    trained = (adapters or s["P"]) + s["body"] * (cfg["algo"] == "ppo")
    return dict(weights=4 * trained / gpus, gradients=4 * trained / gpus, AdamW=8 * trained / gpus,
                frozen=width * s["P"] * bool(adapters),
                reference=width * s["P"] / gpus * bool(cfg["kl_coef"] and not adapters))


def usable_bytes(card):
    """Return how many bytes a run can use on a card that has `card` bytes of memory."""
    return card * (1 - SPARED_SHARE) - SPARED


def update_bytes(s, cfg, gpus):
    """Return the peak memory of an update on each of `gpus` GPUs, as {part: bytes}.

    The parts are those of `state_bytes`, and two more. `batch` is what an update stores for every
    response token: log-probs, importance weight and advantage. `activations` is the peak of all
    tensors that exist only within a micro-batch, logits and gathered weights included.
    """
    d, ff, L, split = s["d"], s["ff"], s["layers"], gpus > 1
    recompute = recomputes(cfg, "cuda")
    adapters = cfg["lora_rank"] * s["sides"]
    T = max(cfg["micro_tokens"], cfg["max_prompt_tokens"] + cfg["max_new_tokens"])
    N = T  # the worst case: all tokens are response tokens

    # Weights and residual stream are in bf16 in two cases: under FSDP, and if only adapters are
    # trained. In all other cases autocast leaves the residual stream in fp32, and every linear
    # layer makes a bf16 copy of its input and of its weights.
    bf16 = bool(split or adapters)
    residual = 2 if bf16 else 4
    # The layer's copies of its inputs, in bytes per token and unit of d. With LoRA, each adapter
    # copies its input. Without LoRA, on one GPU, autocast copies the inputs of q, k, v, gate and up
    copies = 14 if adapters else 0 if split else 10
    layer = T * (16 * d + copies * d + 6 * s["q"] + 4 * s["kv"] + 4 * s["normed"] + 8 * ff)
    weights = 0 if bf16 else 2 * s["layer"]
    kept = L * T * residual * d if recompute else L * (layer + weights)
    # FSDP gathers the weights of a layer and of the next layer at the same time. It keeps the whole
    # embedding and head until the end of the backward pass
    gathered, whole = (6 * s["layer"], 2 * s["root"]) if split else (weights, 0)
    chunk = min(cfg["micro_logits"], N * s["V"])
    head = 0 if adapters else 2 * s["V"] * d  # the gradient of the head
    peaks = dict(
        forward=kept + whole + gathered + 8 * T * ff,
        logits=kept + whole + 12 * chunk,
        reference=bool(cfg["kl_coef"]) * (kept + 2 * whole + 12 * chunk),
        backward_logits=kept + whole + 24 * chunk + head * (2 if split else 4),
        backward=kept + whole + 2 * gathered + layer * recompute + 4 * T * ff + head * split,
        # At the end of the backward pass FSDP holds the weights of embedding and head in bf16, and
        # their gradients in bf16 and in fp32
        end=4 * whole)
    batch = 40 * cfg["B_p"] * cfg["n"] * mean_length(cfg) / gpus
    return state_bytes(s, cfg, gpus) | dict(batch=batch, activations=max(peaks.values()))


def generation_bytes(s, cfg, gpus, engine):
    """Return (parts, response): the memory of generation on each GPU.

    parts: dict(trainer, engine) in bytes. `trainer` is all of `state_bytes` except the gradients.
    `engine` is the engine's bf16 copy of all weights. For vLLM, the memory of a forward pass is
    added: fp32 logits and log-probs of `gen_batch` rollouts (12 bytes per logit, according to
    vLLM's source), and 1 GB for the rest.
    response: bytes of the KV cache of a response of full length.
    """
    parts, copy = state_bytes(s, cfg, gpus), 2 * s["P"]
    trainer = sum(parts.values()) - parts["gradients"]
    if engine == "vllm":
        copy += 1e9 + 12 * cfg["gen_batch"] * s["V"]
    longest = cfg["max_prompt_tokens"] + cfg["max_new_tokens"]
    return dict(trainer=trainer, engine=copy), 4 * s["kv"] * s["layers"] * longest


def memory_plan(s, cfg, gpus, card, engine="vllm"):
    """Return how a run fits on `gpus` cards of `card` bytes each: dict(update, held, share, cache,
    fits).

    update: peak bytes of an update. held: memory of generation without the KV cache, as {part:
    bytes}. share: vLLM's share of the card. cache: how many responses of full length fit into the
    KV cache at once. fits: whether the run fits.
    """
    usable, parts = usable_bytes(card), update_bytes(s, cfg, gpus)
    if engine == "hf":  # engine hf keeps its copy of the weights during the update
        parts["engine"] = 2 * s["P"]
    held, response = generation_bytes(s, cfg, gpus, engine)
    room, share = usable - held["trainer"], 0.0
    if engine == "vllm":
        share = cfg["gpu_memory"] or max(0.0, math.floor(100 * min(0.9, room / card)) / 100)
        room = share * card
    cache = max(0, int((room - held["engine"]) / response))
    fits = (sum(parts.values()) <= usable and cache >= min(AT_ONCE, cfg["gen_batch"])
            and held["trainer"] + room <= usable + 1e7)
    return dict(update=sum(parts.values()), held=held, share=share, cache=cache, fits=fits)


def disk_bytes(s, runs):
    """Return the largest number of bytes on disk while the runs of a sweep train one by one.

    A checkpoint takes 12 bytes per parameter. The run that trains has two checkpoints, and writes a
    third. A finished run keeps its model, of 2 bytes per parameter, and two checkpoints if
    `keep_last`.
    """
    finished = sum(2 + 24 * bool(c["keep_last"]) for c in runs)
    return (36 + finished) * s["P"]


# ---- hours ---------------------------------------------------------------------------------------

def mean_length(cfg):
    """Return the mean tokens of a response that is not cut off."""
    return min(MEAN, SHORT * cfg["max_new_tokens"])


@functools.cache
def expected_longest(count, mean, most):
    """Return the expected tokens of the longest of `count` responses.

    mean: the mean tokens of a response. most: max_new_tokens.
    """
    step, start = max(1, most // 512), math.log(mean) - SIGMA**2 / 2
    total = 0.0
    for t in range(step // 2, most, step):  # E[max] = sum over t of P(max > t)
        below = 0.5 + 0.5 * math.erf((math.log(max(t, 0.5)) - start) / SIGMA / math.sqrt(2))
        total += step * (1 - ((1 - CUT) * below) ** count)
    return total


def decoding_s(s, steps, rollouts, cached, card="H100"):
    """Return the seconds of `steps` decoding steps on one card.

    rollouts: unfinished responses, summed over the steps. cached: tokens in the KV cache, summed
    over the steps. A step reads all weights and the whole KV cache once. The CPU's time for the
    step and for each unfinished response is added.
    """
    read = 2 * s["P"] * steps + 4 * s["kv"] * s["layers"] * cached  # bytes
    return STEP_S * steps + ROLLOUT_S * rollouts + read / CARDS[card][1]


def generation_s(s, cfg, rollouts, gpus, card="H100"):
    """Return the seconds that `gpus` cards need to generate `rollouts` rollouts.

    Each card generates `gen_batch` rollouts at a time.
    """
    mean, most = mean_length(cfg), cfg["max_new_tokens"]
    tokens = (1 - CUT) * mean + CUT * most
    square = (1 - CUT) * mean**2 * math.exp(SIGMA**2) + CUT * most**2
    each = rollouts / gpus
    steps = tokens * max(0.0, each / cfg["gen_batch"] - 1) + expected_longest(
        math.ceil(rollouts), mean, most)
    return decoding_s(s, steps, each * tokens, each * (PROMPT * tokens + square / 2), card)


def update_s(s, cfg, rollouts, gpus, card="H100"):
    """Return the seconds of an update's forward and backward passes on `gpus` cards.

    Per parameter and token, forward and backward take 6 FLOPs, recomputing activations takes 2 and
    the reference takes 2. A critic takes as many FLOPs as the policy. Softmax, entropy and the
    gradients of the logits are limited by memory bandwidth.
    """
    _, bandwidth, speed = CARDS[card]
    tokens = rollouts * (PROMPT + mean_length(cfg)) / gpus
    steps = cfg["updates"] * (6 + 2 * recomputes(cfg, "cuda")) * (2 if cfg["algo"] == "ppo" else 1)
    flops = (steps + 2 * bool(cfg["kl_coef"])) * s["P"]
    return tokens * (flops / speed + cfg["updates"] * LOGIT_BYTES * s["V"] / bandwidth)


def fewest_gpus(s, cfg, card="H100"):
    """Return the smallest number of cards on which a run fits, or 0 if it does not fit on 8."""
    memory = CARDS[card][0]
    return next((k for k in (1, 2, 4, 8) if memory_plan(s, cfg, k, memory)["fits"]), 0)


def gpu_hours(cfg, card="H100"):
    """Return the GPU-hours of a run and its evaluations.

    Returns None if the model's sizes are unknown, or if the run does not fit on 8 cards.
    """
    shape = read_shape(cfg["model"])
    s = None if cfg["dtype"] == "fp32" else sizes(shape)
    gpus = fewest_gpus(s, cfg, card) if s else 0
    if not gpus:
        return None
    at, B = derive(cfg), cfg["B_p"] * cfg["n"]
    tested = (cfg["n_val"] or N_VAL) * len(files(cfg["val_set"])) * cfg["samples"]
    evaluations = 1 + cfg["C"] // max(cfg["eval_every"] or cfg["C"], B)
    seconds = at["M"] * (UPDATE_S + generation_s(s, cfg, B, gpus, card)
                         + update_s(s, cfg, B, gpus, card))
    seconds += evaluations * generation_s(s, cfg, tested, gpus, card)
    return seconds * gpus / 3600


def of_runs(runs):
    """Return a line about a list of runs: how many, their rollouts, GPU-hours and disk.

    Hours and disk are left out if all runs are on the CPU or the model's sizes are unknown.
    """
    line = f"{len(runs)} runs, {sum(map(all_rollouts, runs)) / 1e6:,.1f}M rollouts"
    if all(c["device"] == "cpu" for c in runs):
        return line
    hours = []
    for card in CARDS:
        each = [gpu_hours(c, card) for c in runs]
        if None not in each:
            total = float(f"{sum(each):.2g}")  # the estimate is not more precise
            hours.append(f"{total:,.{int(total < 10)}f} (of {card})")
    if not hours:
        return line
    gigabytes = disk_bytes(sizes(read_shape(runs[0]["model"])), runs) / 1e9
    return (f"{line}, about {' or '.join(hours)} GPU-hours by core/cost.py, without measuring "
            f"difficulty; {gigabytes:,.0f} GB of disk")


# ---- the table of memory -------------------------------------------------------------------------

def main(argv):
    own = dict(cards=("24 48 80 141", "sizes of a GPU, in GB, to try"),
               gpus=("1 2 4 8", "GPUs of a run to try"))
    # without --model or --config, all models of SHAPES are printed
    named = [word for word in argv if word.startswith(("--model=", "--config="))]
    for i, model in enumerate([None] if named else SHAPES):
        cfg = parse(argv if named else [f"--model={model}", *argv], __doc__, own)
        names = [f"{float(c):g} GB" for c in cfg["cards"].split()]
        if i == 0:
            print("| model | GPUs | an update | generation | " + " | ".join(names) + " |")
            print("|---|---|---|---|" + "---|" * len(names))
        shape = read_shape(cfg["model"])
        s = sizes(shape)
        if cfg["dtype"] == "fp32" or s is None:
            raise BadInput(f"--model={cfg['model']} --dtype={cfg['dtype']}: expected bf16 and a "
                           "folder with a decoder-only model's config.json")
        rows = [(cfg, gpus, gpus) for gpus in map(int, cfg["gpus"].split())]
        if not named:
            rows.append((dict(cfg, lora_rank=32), 1, "1, LoRA 32"))
        engine = "hf" if cfg["engine"] == "hf" else "vllm"  # on a GPU, engine=auto means vLLM
        for row, gpus, about in rows:
            plans = [memory_plan(s, row, gpus, float(c) * 1e9, engine)
                     for c in cfg["cards"].split()]
            cells = [f"{at['share']:.2f}, {at['cache']}" if at["fits"] else "no" for at in plans]
            at = memory_plan(s, row, gpus, 1e15, engine)
            print(f"| {Path(cfg['model']).name} | {about} | {at['update'] / 1e9:.1f} | "
                  f"{sum(at['held'].values()) / 1e9:.1f} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    entry(main)
