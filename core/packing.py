"""core/packing.py: forward passes over rows of different lengths, one after another, no padding.

    if not why_padded(model, device, bf16=True):
        pack(model)                                    # its attention now understands packed rows
        states = packed_states(model, ids, length)     # (sum of length, d)

The rows are one long sequence. Positions begin at 0 in each row, and attention sees only the row of
a token: torch's varlen kernel on a GPU, a loop over the rows on a CPU (only in tests). To copy this
file into another project, copy core/packing.py alone. Needs torch and transformers.
"""
import torch
from transformers import AttentionInterface, DynamicCache
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask


def why_padded(model, device, bf16):
    """Return why rows of `model` cannot be packed, or "". bf16: whether it computes in bf16."""
    shape = model.config.get_text_config()
    if not str(device).startswith("cuda"):
        return "a loop over rows is slow on a CPU"
    if not bf16:
        return "the kernel computes in bf16"
    if not model._supports_attention_backend or hasattr(shape, "kv_lora_rank"):
        return "the model has its own attention"
    partial = {*(getattr(shape, "layer_types", None) or [])} - {"full_attention"}
    recurrent = [hasattr(layer, "recurrent_states") for layer in DynamicCache(config=shape).layers]
    if getattr(shape, "sliding_window", None) or partial or any(recurrent):
        return "not all layers attend to the whole row"
    return "attention has a soft cap" if getattr(shape, "attn_logit_softcapping", None) else ""


def pack(model):
    """Let the attention of a model understand packed rows, in place. Other passes do not change."""
    AttentionInterface.register("packed", attention)
    AttentionMaskInterface.register("packed", sdpa_mask)
    model.config.get_text_config()._attn_implementation = "packed"


def is_packed(model):
    """Return whether `pack` was called with this model."""
    return model.config.get_text_config()._attn_implementation == "packed"


def attention(module, query, key, value, mask, scaling=None, packed_rows=None, **more):
    """Return (output (1, N, H, D), None) of causal attention within rows.

    packed_rows: (start (R + 1,), longest). start: the first token of each row, and N; longest: the
    tokens of the longest row. If it is None, rows are not packed. query: (1, H, N, D).
    """
    if packed_rows is None:
        return sdpa_attention_forward(module, query, key, value, mask, scaling=scaling, **more)
    start, longest = packed_rows
    q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))  # (N, H, D)
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    if q.is_cuda:
        from torch.nn.attention.varlen import varlen_attn
        q, k, v = (x.to(torch.bfloat16).contiguous() for x in (q, k, v))
        out = varlen_attn(q, k, v, start, start, longest, longest, scale=scaling,
                          window_size=(-1, 0))  # causal
        return out[None], None
    rows = zip(*[x.transpose(0, 1).split(start.diff().tolist(), 1) for x in (q, k, v)])
    out = [torch.nn.functional.scaled_dot_product_attention(
        *row, is_causal=True, scale=scaling) for row in rows]
    return torch.cat(out, 1).transpose(0, 1)[None], None


def packed_states(model, ids, length):
    """Return the last hidden states (sum of length, d) of the first length[i] tokens of each row.

    ids (R, L). length (R,). The states of a row follow those of the row before.
    """
    inside = torch.arange(ids.shape[1], device=ids.device) < length[:, None]  # (R, L)
    position = inside.nonzero()[:, 1]
    start = torch.cat([length.new_zeros(1), length.cumsum(0)]).int()
    # transformers takes a mask of four dimensions as it is, and `attention` ignores it
    return model.base_model(
        input_ids=ids[inside][None], position_ids=position[None], use_cache=False,
        attention_mask=ids.new_zeros(1, 1, 1, 1, dtype=torch.bool),
        packed_rows=(start, int(length.max()))).last_hidden_state[0]
