"""core/cost.py: estimate the GPU memory, hours and disk of a run, from one table of assumptions.

    python -m core.cost                                          # memory of five models, four cards
    python -m core.cost --model=Qwen/Qwen2.5-7B-Instruct --cards=80 --gpus="1 2 4 8" --algo=ppo
    bash run_sweep.sh --help                                     # hours of every sweep and study

Memory is the sum of the tensors of an update and of generation. tests/bench/memory.py simulates the
same updates tensor by tensor, and the two agree within 5%. Hours come from the steps of decoding
and the FLOPs of an update. tests/bench/tail.py draws every response instead, and the two agree
within 10%. Speeds were measured on one H100 with models of up to 1.5B (results/gpu.md). The rest is
assumed, so no run is refused because of an estimate. Once a sweep's folder holds the log of a run
on a GPU, the measured hours scale the estimate. Sizes are in bytes; 1 GB is 10^9 bytes.
"""
import functools
import math
from pathlib import Path

from config import BadInput, complete, derive, entry, files, parse, read_json
from core.models import recomputes

# ---- the assumptions -----------------------------------------------------------------------------
# For each card: bytes of memory, bytes/s that decoding reads, FLOP/s of an update. The FLOP/s of
# the H100 and LOGIT_BYTES are fitted to updates of 0.5B and 1.5B (0.50 s and 0.85 s for 16,384
# tokens)
CARDS = {"RTX 4090": (24e9, 0.8e12, 65e12), "H100": (80e9, 2.6e12, 390e12)}
LOGIT_BYTES = 350         # bytes that an update moves per logit, one per token and vocabulary item
# CPU seconds of a decoding step, and the seconds that each rollout adds to the step. They are
# fitted to steps of 2.5, 3.6 and 9.2 ms with 8, 64 and 256 rollouts of 0.5B
STEP_S, ROLLOUT_S = 2e-3, 24e-6
UPDATE_S = 3.4            # other seconds of an update, measured with 135M and 32 rollouts: engine
                          # sleep and wake-up, grading, allocating memory again, the log
# Tokens of a prompt, mean tokens of a response, and the sigma of its lognormal distribution. The
# mean is SHORT x max_new_tokens if that is less than MEAN
PROMPT, MEAN, SIGMA = 150, 650, 0.5
SHORT = 1 / 3
CUT = 0.005               # share of the responses that run to max_new_tokens
N_VAL = 300               # problems of a validation set, if n_val = 0
# Memory of a card that a run cannot use: SPARED bytes plus SPARED_SHARE of the card. The CUDA
# context, NCCL's buffers, vLLM's CUDA graphs and the allocator's gaps take it
SPARED, SPARED_SHARE = 2e9, 0.05
AT_ONCE = 8               # responses of full length that vLLM's cache must hold to be fast enough

# The published config.json of the paper's three models and two smaller ones
QWEN2 = dict(model_type="qwen2", vocab_size=151936, tie_word_embeddings=True)
SHAPES = {
    "Qwen/Qwen2.5-0.5B-Instruct": QWEN2 | dict(
        hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
        num_key_value_heads=2),
    "Qwen/Qwen2.5-1.5B-Instruct": QWEN2 | dict(
        hidden_size=1536, intermediate_size=8960, num_hidden_layers=28, num_attention_heads=12,
        num_key_value_heads=2),
    "Qwen/Qwen3-4B-Instruct-2507": dict(
        model_type="qwen3", vocab_size=151936, hidden_size=2560, intermediate_size=9728,
        num_hidden_layers=36, num_attention_heads=32, num_key_value_heads=8, head_dim=128,
        tie_word_embeddings=True),
    "Qwen/Qwen2.5-7B-Instruct": QWEN2 | dict(
        vocab_size=152064, hidden_size=3584, intermediate_size=18944, num_hidden_layers=28,
        num_attention_heads=28, num_key_value_heads=4, tie_word_embeddings=False),
    "meta-llama/Llama-3.1-8B-Instruct": dict(
        model_type="llama", vocab_size=128256, hidden_size=4096, intermediate_size=14336,
        num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8,
        tie_word_embeddings=False),
}


def read_shape(model):
    """Return the dict of a model's config.json, from its folder or from SHAPES, or {}."""
    file = Path(model) / "config.json"
    return read_json(file) if file.exists() else SHAPES.get(model, {})


def sizes(shape):
    """Return the sizes of a decoder-only model from the dict of its config.json.

    Returns None if the model is of another kind. P: all parameters. body: parameters without the
    head. root: parameters of embedding and head, which FSDP gathers together. layer: parameters of
    one layer. d, ff, q, kv: widths of the residual, the MLP, the queries and the keys. normed:
    q + kv if queries and keys are normalised, else 0. sides: parameters of an adapter of rank 1.
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
    sides = 2 * (d + q) + 2 * (d + kv) + 3 * (d + ff)  # rows + columns of the layer's matrices
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
    """Return the bytes of a card of `card` bytes that a run can use."""
    return card * (1 - SPARED_SHARE) - SPARED


def update_bytes(s, cfg, gpus):
    """Return the memory of an update on each of `gpus` GPUs: {part: bytes}. The sum is the peak.

    The parts are `state_bytes` and two more. `batch`: the log-probs, weights and advantage
    that an update stores for every response token. `activations`: the largest amount at any time of
    all tensors that exist only within a micro-batch, logits and gathered weights included.
    """
    d, ff, L, split = s["d"], s["ff"], s["layers"], gpus > 1
    recompute = recomputes(cfg, "cuda")
    adapters = cfg["lora_rank"] * s["sides"]
    T = max(cfg["micro_tokens"], cfg["max_prompt_tokens"] + cfg["max_new_tokens"])
    N = T  # the worst case: all tokens are response tokens
    # The residual stream is in bf16 under FSDP. On one GPU autocast leaves the stream in fp32, and
    # every linear layer makes a bf16 copy of its input and of its weights.
    bf16 = bool(split or adapters)  # weights with adapters are in bf16
    residual = 2 if bf16 else 4
    # each adapter copies the input of its matrix; autocast copies the inputs of q, k, v, gate, up
    copies = 14 if adapters else 0 if split else 10
    layer = T * (16 * d + copies * d + 6 * s["q"] + 4 * s["kv"] + 4 * s["normed"] + 8 * ff)
    weights = 0 if bf16 else 2 * s["layer"]
    kept = L * T * residual * d if recompute else L * (layer + weights)
    # FSDP gathers a layer and the one after it, and keeps embedding and head whole until the end
    gathered, whole = (6 * s["layer"], 2 * s["root"]) if split else (weights, 0)
    chunk = min(cfg["micro_logits"], N * s["V"])
    head = 0 if adapters else 2 * s["V"] * d  # the gradient of the head
    peaks = dict(
        forward=kept + whole + gathered + 8 * T * ff,
        logits=kept + whole + 12 * chunk,
        reference=bool(cfg["kl_coef"]) * (kept + 2 * whole + 12 * chunk),
        backward_logits=kept + whole + 24 * chunk + head * (2 if split else 4),
        backward=kept + whole + 2 * gathered + layer * recompute + 4 * T * ff + head * split,
        end=4 * whole)  # embedding and head with their gradients in bf16 and in fp32
    batch = 40 * cfg["B_p"] * cfg["n"] * mean_length(cfg) / gpus
    return state_bytes(s, cfg, gpus) | dict(batch=batch, activations=max(peaks.values()))


def generation_bytes(s, cfg, gpus, engine):
    """Return the memory of generation on a GPU, {part: bytes}, and the cache bytes of a longest
    response.

    `trainer`: all of `state_bytes` except the gradients.
    `engine`: the engine's bf16 copy of all weights. For vLLM also the memory of a forward pass:
    the logits of `gen_batch` rollouts, in fp32 and as log-probs, plus 1 GB (from vLLM's source).
    """
    parts, copy = state_bytes(s, cfg, gpus), 2 * s["P"]
    trainer = sum(parts.values()) - parts["gradients"]
    if engine == "vllm":
        copy += 1e9 + 12 * cfg["gen_batch"] * s["V"]
    longest = cfg["max_prompt_tokens"] + cfg["max_new_tokens"]
    return dict(trainer=trainer, engine=copy), 4 * s["kv"] * s["layers"] * longest


def memory_plan(s, cfg, gpus, card, engine="vllm"):
    """Return how a run fits on `gpus` cards of `card` bytes each, as a dict.

    update: bytes of an update. held: bytes of generation without the cache, {part: bytes}. share:
    vLLM's share of the card. cache: how many responses of full length fit into the cache at once.
    fits: whether the run fits.
    """
    usable, parts = usable_bytes(card), update_bytes(s, cfg, gpus)
    if engine == "hf":  # its copy stays in memory during the update
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
    """Return the most bytes of disk that the runs of a sweep take, one run after the other.

    A checkpoint is 12 bytes per parameter. An unfinished run has its newest two checkpoints and one
    that is being written. A finished run keeps its model, and two checkpoints if `keep_last`.
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


def generation_s(s, cfg, rollouts, gpus, card="H100"):
    """Return the seconds that `gpus` cards need to generate `rollouts`, gen_batch at once on each.

    A decoding step reads the weights once, and the cache of each unfinished response. The CPU's
    time for the step and for each unfinished response is added.
    """
    mean, most, bandwidth = mean_length(cfg), cfg["max_new_tokens"], CARDS[card][1]
    tokens = (1 - CUT) * mean + CUT * most
    square = (1 - CUT) * mean**2 * math.exp(SIGMA**2) + CUT * most**2
    each = rollouts / gpus
    steps = tokens * max(0.0, each / cfg["gen_batch"] - 1) + expected_longest(
        math.ceil(rollouts), mean, most)
    cache = 4 * s["kv"] * s["layers"]  # bytes of a token
    return (steps * (STEP_S + 2 * s["P"] / bandwidth) + each * tokens * ROLLOUT_S
            + each * cache / bandwidth * (PROMPT * tokens + square / 2))


def update_s(s, cfg, rollouts, gpus, card="H100"):
    """Return the seconds of an update.

    Per parameter and token, forward and backward take 6 FLOPs, recomputing activations takes 2 and
    the reference takes 2. A critic takes as many as the policy. The softmax and the entropy of the
    logits and their gradients are limited by memory bandwidth.
    """
    _, bandwidth, speed = CARDS[card]
    tokens = rollouts * (PROMPT + mean_length(cfg)) / gpus
    steps = cfg["updates"] * (6 + 2 * recomputes(cfg, "cuda")) * (2 if cfg["algo"] == "ppo" else 1)
    flops = (steps + 2 * bool(cfg["kl_coef"])) * s["P"]
    return tokens * (flops / speed + cfg["updates"] * LOGIT_BYTES * s["V"] / bandwidth)


def fewest_gpus(s, cfg, card="H100"):
    """Return the fewest cards that hold a run, or 0 if 8 do not."""
    memory = CARDS[card][0]
    return next((k for k in (1, 2, 4, 8) if memory_plan(s, cfg, k, memory)["fits"]), 0)


def gpu_hours(cfg, card="H100"):
    """Return the GPU-hours of a run and its evaluations.

    Returns None if the model's sizes are unknown, or if 8 cards cannot hold the run.
    """
    shape = read_shape(cfg["model"])
    s = None if why_unknown(cfg, shape) else sizes(shape)
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


def difficulty_hours(cfg, problems, card="H100"):
    """Return the GPU-hours in which sample.py draws `s` rollouts of each of `problems` problems."""
    return generation_s(sizes(read_shape(cfg["model"])), cfg, problems * cfg["s"], 1, card) / 3600


def measured_hours(records):
    """Return (GPU-hours of a run according to its log, GPU-hours estimated for the run).

    records: the records of its log.jsonl. Returns None if the run was not on GPUs, or if its
    GPU-hours cannot be estimated.
    """
    steps = [r for r in records if r["type"] == "step"]
    if not steps or not str(records[0].get("device")).startswith("cuda"):
        return None
    estimate = gpu_hours(complete(records[0]["config"]) | dict(C=steps[-1]["rollouts"]))
    return estimate and (steps[-1]["wall_s"] * records[0].get("ranks", 1) / 3600, estimate)


# ---- the table of memory -------------------------------------------------------------------------

def why_unknown(cfg, shape):
    """Return why the memory of a run is not known, as one line; "" if it is known."""
    if cfg["dtype"] == "fp32":
        return "--dtype=fp32: these estimates are for bf16"
    return "" if sizes(shape) else (f"--model={cfg['model']}: the sizes of this model are unknown; "
                                    "give a folder with a decoder-only model's config.json")


def main(argv):
    own = dict(cards=("24 48 80 141", "sizes of a GPU, in GB, to try"),
               gpus=("1 2 4 8", "GPUs of a run to try"))
    # a named model gets the paper's scale, not the data folder's
    named = [word for word in argv if word.startswith(("--model=", "--config="))]
    for i, model in enumerate([None] if named else SHAPES):
        cfg = parse(argv if named else [f"--model={model}", *argv], __doc__, own)
        names = [f"{float(c):g} GB" for c in cfg["cards"].split()]
        if i == 0:
            print("| model | GPUs | an update | generation | " + " | ".join(names) + " |")
            print("|---|---|---|---|" + "---|" * len(names))
        shape = read_shape(cfg["model"])
        if why := why_unknown(cfg, shape):
            raise BadInput(why)
        s = sizes(shape)
        rows = [(cfg, gpus, gpus) for gpus in map(int, cfg["gpus"].split())]
        if not named:
            rows.append((dict(cfg, lora_rank=32), 1, "1, LoRA 32"))
        engine = "hf" if cfg["engine"] == "hf" else "vllm"  # on a GPU, auto is vllm
        for row, gpus, about in rows:
            plans = [memory_plan(s, row, gpus, float(c) * 1e9, engine)
                     for c in cfg["cards"].split()]
            cells = [f"{at['share']:.2f}, {at['cache']}" if at["fits"] else "no" for at in plans]
            at = memory_plan(s, row, gpus, 1e15, engine)
            print(f"| {Path(cfg['model']).name} | {about} | {at['update'] / 1e9:.1f} | "
                  f"{sum(at['held'].values()) / 1e9:.1f} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    entry(main)
