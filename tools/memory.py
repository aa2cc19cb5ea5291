"""tools/memory.py: what a run takes of each GPU's memory; a calculator, imported by no stage.

    python tools/memory.py                                      # four models, four cards
    python tools/memory.py --model=Qwen/Qwen2.5-7B-Instruct --cards=80 --gpus="1 2 4 8" --algo=ppo

It needs the model's config.json alone and adds up the tensors of an update (`update_bytes`) and of
generation (`generation_bytes`). tests/bench/memory.py simulates the same updates tensor by tensor;
the two agree within 5%. No GPU has confirmed either, so nothing is refused by them: GPUS_PER_RUN is
the user's word. Sizes are in bytes, GB are 10^9 of them. Needs config.py and the standard library.
"""
import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from config import BadInput, entry, parse, read_json  # noqa: E402

# Published config.json of the paper's three models and of a smaller one
SHAPES = {
    "Qwen/Qwen2.5-1.5B-Instruct": dict(
        model_type="qwen2", vocab_size=151936, hidden_size=1536, intermediate_size=8960,
        num_hidden_layers=28, num_attention_heads=12, num_key_value_heads=2,
        tie_word_embeddings=True),
    "Qwen/Qwen3-4B-Instruct-2507": dict(
        model_type="qwen3", vocab_size=151936, hidden_size=2560, intermediate_size=9728,
        num_hidden_layers=36, num_attention_heads=32, num_key_value_heads=8, head_dim=128,
        tie_word_embeddings=True),
    "Qwen/Qwen2.5-7B-Instruct": dict(
        model_type="qwen2", vocab_size=152064, hidden_size=3584, intermediate_size=18944,
        num_hidden_layers=28, num_attention_heads=28, num_key_value_heads=4,
        tie_word_embeddings=False),
    "meta-llama/Llama-3.1-8B-Instruct": dict(
        model_type="llama", vocab_size=128256, hidden_size=4096, intermediate_size=14336,
        num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8,
        tie_word_embeddings=False),
}
# Of a card nobody can use it all: the CUDA context, NCCL's buffers, vLLM's CUDA graphs, and what
# the allocator leaves between blocks
SPARED, SPARED_SHARE = 2e9, 0.05
AT_ONCE = 8  # responses of full length that vLLM's cache must hold, or it is too slow to be of use


# -------------------------------------------------------------------------------------------------
# The sum


def sizes(shape):
    """The numbers of a decoder-only model from the dict of its config.json; None where it is
    another kind (a mixture of experts, say).

    P, body: all parameters, those without a head; root: embedding and head, which FSDP gathers
    together; layer: of one layer; d, ff, q, kv: widths of the residual, the MLP, the queries, keys;
    normed: of the queries and keys where these are normalised; sides: parameters of adapters of
    rank 1.
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
    sides = 2 * (d + q) + 2 * (d + kv) + 3 * (d + ff)  # of its matrices: an adapter's rank times it
    head = 0 if shape.get("tie_word_embeddings") else V * d
    body = V * d + L * layer
    return dict(P=body + head, body=body, root=V * d + head, layer=layer, layers=L, d=d, ff=ff, q=q,
                kv=kv, V=V, sides=L * sides,
                normed=(q + kv) * shape.get("model_type", "").startswith("qwen3"))


def update_bytes(s, cfg, gpus):
    """Bytes of each of `gpus` GPUs in an update, by what takes them, a dict; the sum is the peak.

    Parameters, gradients and AdamW's moments are in fp32 and split over the GPUs, the reference in
    bf16 too. `activations` is all that comes and goes within a micro-batch, logits and gathered
    weights too: of the points at which that may be largest, the largest.
    """
    P, d, ff, L, split = s["P"], s["d"], s["ff"], s["layers"], gpus > 1
    recompute = cfg["activation_checkpointing"] != "false"  # on a GPU auto is true
    adapters = cfg["lora_rank"] * s["sides"]
    T = max(cfg["micro_tokens"], cfg["max_prompt_tokens"] + cfg["max_new_tokens"])
    N = T  # of response tokens: all, in the worst case
    # The residual stream is in bf16 under FSDP. On one GPU autocast leaves it in fp32, and every
    # linear layer makes its own bf16 copy of its input and its weights.
    bf16 = bool(split or adapters)  # the weights beside adapters are in bf16
    residual = 2 if bf16 else 4
    # of the inputs of each matrix, for its adapter; of q, k, v, gate and up
    copies = 14 if adapters else 0 if split else 10
    layer = T * (16 * d + copies * d + 6 * s["q"] + 4 * s["kv"] + 4 * s["normed"] + 8 * ff)
    weights = 0 if bf16 else 2 * s["layer"]
    kept = L * T * residual * d if recompute else L * (layer + weights)
    # FSDP gathers a layer, and the next, and keeps embedding and head whole until the end
    gathered, whole = (6 * s["layer"], 2 * s["root"]) if split else (weights, 0)
    chunk = min(cfg["micro_logits"], N * s["V"])
    head = 0 if adapters else 2 * s["V"] * d  # the gradient of the head
    peaks = dict(
        forward=kept + whole + gathered + 8 * T * ff,
        logits=kept + whole + 12 * chunk,
        reference=bool(cfg["kl_coef"]) * (kept + 2 * whole + 12 * chunk),
        backward_logits=kept + whole + 24 * chunk + head * (2 if split else 4),
        backward=kept + whole + 2 * gathered + layer * recompute + 4 * T * ff + head * split,
        end=4 * whole)  # the gradients of embedding and head beside them, in bf16 and in fp32
    moving = adapters or P
    out = dict(weights=4 * moving / gpus, gradients=4 * moving / gpus, AdamW=8 * moving / gpus,
               frozen=2 * P * bool(adapters),
               reference=2 * P / gpus * bool(cfg["kl_coef"] and not adapters),
               critic=16 * s["body"] / gpus if cfg["algo"] == "ppo" else 0)
    return out | dict(activations=max(peaks.values()))


def generation_bytes(s, cfg, gpus, engine):
    """Bytes of each GPU while rollouts are generated, a dict, and of a response of full length.

    `trainer`: weights, moments, reference and critic, whose gradients are gone by then. `engine`:
    its bf16 copy of all weights and, of vLLM, what its passes take (read in its source: logits of
    `gen_batch` rollouts, in fp32 and as log-probs; 1 GB beside).
    """
    if cfg["lora_rank"]:
        trainer = 2 * s["P"] + 12 * cfg["lora_rank"] * s["sides"]
    else:
        trainer = (14 if cfg["kl_coef"] else 12) * s["P"] / gpus
    trainer += 12 * s["body"] / gpus if cfg["algo"] == "ppo" else 0
    copy = 2 * s["P"]
    if engine == "vllm":
        copy += 1e9 + 12 * cfg["gen_batch"] * s["V"]
    longest = cfg["max_prompt_tokens"] + cfg["max_new_tokens"]
    return dict(trainer=trainer, engine=copy), 4 * s["kv"] * s["layers"] * longest


def usable(card):
    """Bytes of a card of `card` bytes that tensors can have."""
    return card * (1 - SPARED_SHARE) - SPARED


def plan(s, cfg, gpus, card, engine="vllm"):
    """How a run fits on `gpus` cards of `card` bytes each: a dict.

    update: bytes; parts: what they are; held: those of generation without a cache, by part; share:
    of the card for vLLM; cache: responses of full length at once; fits: whether it does.
    """
    parts = update_bytes(s, cfg, gpus)
    if engine == "hf":  # its copy stays
        parts["engine"] = 2 * s["P"]
    held, response = generation_bytes(s, cfg, gpus, engine)
    room, share = usable(card) - held["trainer"], 0.0
    if engine == "vllm":
        share = cfg["gpu_memory"] or max(0.0, math.floor(100 * min(0.9, room / card)) / 100)
        room = share * card
    cache = max(0, int((room - held["engine"]) / response))
    fits = (sum(parts.values()) <= usable(card) and cache >= min(AT_ONCE, cfg["gen_batch"])
            and held["trainer"] + room <= usable(card) + 1e7)
    return dict(update=sum(parts.values()), parts=parts, held=held, share=share, cache=cache,
                fits=fits)


# -------------------------------------------------------------------------------------------------
# What fits


def smaller(cfg):
    """Knobs that take less memory and change no result, from the nearest on: a list of dicts."""
    least = cfg["max_prompt_tokens"] + cfg["max_new_tokens"]
    out, tokens = [dict(activation_checkpointing="true")], cfg["micro_tokens"]
    out.append(out[0] | dict(micro_logits=min(cfg["micro_logits"], 2**25)))
    while tokens > least:
        tokens = max(least, tokens // 2)
        out.append(out[1] | dict(micro_tokens=tokens))
    fewer = dict(gen_batch=min(cfg["gen_batch"], 256))
    return [knobs | more for knobs in out for more in ({}, fewer)]


def nearest(s, cfg, gpus, card, engine="vllm"):
    """The nearest knobs with which it fits on as many GPUs, in words; "" where none does."""
    for knobs in smaller(cfg):
        changed = dict(cfg, gpu_memory=0.0, **knobs)
        if plan(s, changed, gpus, card, engine)["fits"]:
            words = [f"--{key}={changed[key]}" for key in knobs if changed[key] != cfg[key]
                     and (key, cfg[key]) != ("activation_checkpointing", "auto")]
            return " ".join(words + ["--gpu_memory=0"] * bool(cfg["gpu_memory"]))
    return ""


def unknown(cfg, shape):
    """Why what a run takes of a GPU is not checked, in a line; "" where it is."""
    if cfg["dtype"] == "fp32":  # all of the above is of bf16
        return "--dtype=fp32: these sums are of bf16"
    return "" if sizes(shape) else (f"--model={cfg['model']}: no sizes of this model are known: "
                                    "give the folder of a decoder-only model's config.json")


# -------------------------------------------------------------------------------------------------
# Where the numbers come from


def read_shape(model):
    """The dict of a model's config.json, of its folder or of SHAPES, or {}."""
    file = Path(model) / "config.json"
    return read_json(file) if file.exists() else SHAPES.get(model, {})


def main(argv):
    own = dict(cards=("24 48 80 141", "sizes of a GPU, in GB, to try"),
               gpus=("1 2 4 8", "GPUs of a run to try"))
    # a model of its own takes the paper's scale, not the data folder's
    named = [word for word in argv if word.startswith(("--model=", "--config="))]
    for i, model in enumerate([None] if named else SHAPES):
        cfg = parse(argv if named else [f"--model={model}", *argv], __doc__, own)
        names = [f"{float(c):g} GB" for c in cfg["cards"].split()]
        if i == 0:
            print("| model | GPUs | an update | generation | " + " | ".join(names) + " |")
            print("|---|---|---|---|" + "---|" * len(names))
        shape = read_shape(cfg["model"])
        if why := unknown(cfg, shape):
            raise BadInput(why)
        s = sizes(shape)
        rows = [(cfg, gpus, gpus) for gpus in map(int, cfg["gpus"].split())]
        if not named:
            rows.append((dict(cfg, lora_rank=32), 1, "1, LoRA 32"))
        engine = "hf" if cfg["engine"] == "hf" else "vllm"  # a GPU's
        for row, gpus, about in rows:
            cells = []
            for card in (float(c) * 1e9 for c in cfg["cards"].split()):
                how = s, row, gpus, card, engine
                at, way = plan(*how), nearest(*how)
                cells.append(f"{at['share']:.2f}, {at['cache']}" if at["fits"] else
                             f"`{way}`" if way else "no")
            at = plan(s, row, gpus, 1e15, engine)
            print(f"| {Path(cfg['model']).name} | {about} | {at['update'] / 1e9:.1f} | "
                  f"{sum(at['held'].values()) / 1e9:.1f} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    entry(main)
