"""train_grpo.py: one run of RL, C = B_p n M rollouts -> runs/SWEEP/RUN/{log.jsonl, ckpt/, model/}.

    python train_grpo.py --B_p=8 --n=16 --C=32768       # the embedded model, a minute or two
    python train_grpo.py --model=Qwen/Qwen2.5-7B-Instruct --train_set=easy.jsonl \
        --val_set=val.jsonl --B_p=32 --n=64 --C=1e6
    torchrun --nproc_per_node=8 -- train_grpo.py --model=...  # FSDP2 over 8 GPUs; --nnodes: more
    python train_grpo.py --config=header.json --seed=1  # another run's header, another seed

The same command again goes on where the run was stopped or killed, and does nothing if it is
finished; a larger --C continues it. Edited code under the same command would find the old run: give
it a --tag. Every draw comes from (seed, step, problem, i), so with the transformers engine a
resumed run writes what an uninterrupted one would have written; on another number of ranks too, but
for rounding. Beside the log stands samples.jsonl, rollouts to look at.

As in the paper: groups of n rollouts, A = (r - mean) / std, AdamW with 10 warm-up updates and
lr = lr_base sqrt(B / 1024), KL and entropy terms on Easy and none on Hard, temperature 0.6,
importance weights against the engine's log-probs, on-policy (one optimizer step a batch), PPO
and CISPO beside GRPO. What differs or is our choice:
- the loss is a mean over tokens, the std of A has ddof 1; kl_coef, entropy_coef, tis_cap, eps_low,
  eps_high, the k3 estimator of the KL, PPO's keys: the paper does not print these (docs/log.md);
- `updates` optimizer steps go over the whole batch each, not over parts of it, so B and its lr mean
  the same at any value; with one step the ratio is 1, nothing is clipped, and CISPO has GRPO's
  gradient: compare the two at updates=2 or more;
- PPO's KL is a term of the loss, as GRPO's, and not of the reward; its critic starts from the base
  model with a head of zeros;
- the trainer computes log-probs in bf16 on a GPU (weights, gradients and AdamW in fp32), in fp32 on
  a CPU (`dtype`), without dropout;
- problems come in seeded epochs without replacement; a batch may span two.

Completions or prompts? B_p counts prompts (veRL: train_batch_size), n the completions of each (TRL:
num_generations, veRL: rollout.n). What is my batch size really? B = B_p n completions. What is a
step? One update on such a batch, M = C / B of them. All names: docs/takehome.md.

To change the objective: `advantages` and `policy_loss` below; `update` puts them together. A key of
your own: a line of `config` in config.py. A reward: verifier.py.
Needs config.py, verifier.py and core/.
"""
import collections
import contextlib
import copy
import dataclasses
import fcntl
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

START = time.time()  # before torch is loaded: the header tells how long that takes

import config
import verifier
from config import BadInput, choose, derive, entry, parse
from core import engine, evaluation, lora, machine, models
from core.log import append, finished, progress, read_log
from core.models import RANK, WORLD, full_weights, over_ranks, recomputes, through
from core.problems import encode, read_problems, set_hash, subset


# -------------------------------------------------------------------------------------------------
# The mathematics: pure functions of tensors


def advantages(rewards):
    """Group-normalised advantages, (B_p, n) -> (B_p, n): (r - mean) / (std + 1e-6), ddof 1.

    The paper's section 2. A group of equal rewards gets zeros. Two rollouts, one solved: +-0.7071;
    the weight of a problem grows with n. Rows whose advantage is 0 cost nothing (see `flatten`).
    """
    mean, std = rewards.mean(1, keepdim=True), rewards.std(1, keepdim=True)
    return (rewards - mean) / (std + 1e-6) * varied(rewards)[:, None]


def varied(rewards):
    """Which groups have rewards that differ, (B_p, n) -> (B_p,) bool.

    Their std does not tell: of n times 0.7 it is not 0 in fp32.
    """
    return (rewards != rewards[:, :1]).any(1)


def policy_loss(algo, logp, logp_old, weight, advantage, eps_low, eps_high):
    """The policy term of each token, all (N,); weight, w: importance against the engine.

    With ratio = exp(logp - logp_old) and c(x) = clip(x, 1 - eps_low, 1 + eps_high):
    grpo, ppo: -w min(ratio A, c(ratio) A); cispo: -w sg(c(ratio)) A logp (MiniMax-M1, eq. 4), where
    no token loses its gradient. A token whose advantage is 0 gives 0, even if exp() overflows.
    """
    import torch
    ratio = (logp - logp_old).where(advantage != 0, 0.0).exp()
    clipped = ratio.clamp(1 - eps_low, 1 + eps_high)
    if algo == "cispo":
        return -weight * clipped.detach() * advantage * logp
    return -weight * torch.minimum(ratio * advantage, clipped * advantage)


def importance_weights(logp, logp_engine, cap):
    """Truncated importance weights, detached: min(exp(logp - logp_engine), cap) a token, all (N,).

    The engine samples with other rounding than the trainer computes. 1 where cap is 0, and for a
    token whose logp_engine is no number (engines return such now and then).
    """
    import torch
    logp = logp.detach()
    if not cap:
        return torch.ones_like(logp)
    return (logp - logp_engine).exp().clamp(max=cap).where(logp_engine.isfinite(), 1.0)


def kl_term(kind, logp, logp_ref):
    """An estimator of KL(policy || ref) from each token, (N,), with d = logp - logp_ref.

    k1 = d, k2 = d^2 / 2, k3 = exp(-d) + d - 1. The mean of k1 and of k3 over the policy's tokens is
    KL(policy || ref). As a loss, where no gradient goes through the choice of the tokens, k3 has
    the gradient of KL(ref || policy), k2 that of KL(policy || ref), and k1 none in expectation.
    """
    d = logp - logp_ref
    if kind == "k1":
        return d
    return d.square() / 2 if kind == "k2" else (-d).exp() + d - 1


def gae(values, rewards, lengths, gamma, lam):
    """Generalised advantage estimates (Schulman et al. 2016, eq. 16), for PPO.

    The reward comes with the last token of a response. values (R, T): the critic's before each
    token, padding behind ignored; rewards (R,); lengths (R,). Returns (R, T), padding 0:
    A_t = delta_t + gamma lam A_{t+1}, delta_t = r_t + gamma V_{t+1} - V_t, V = 0 after the end. At
    gamma = lam = 1: A_t = r - V_t. Worked: values [0.5, 0.2], reward 1, gamma = lam = 0.5:
    delta = [0.5 * 0.2 - 0.5, 1 - 0.2] = [-0.4, 0.8], A = [-0.2, 0.8].
    """
    import torch
    T = values.shape[1]
    inside = torch.arange(T, device=values.device) < lengths[:, None]
    last = torch.arange(T, device=values.device) == lengths[:, None] - 1
    values = values * inside
    following = torch.cat([values[:, 1:], torch.zeros_like(values[:, :1])], 1)
    delta = (rewards[:, None] * last + gamma * following - values) * inside
    A, ahead = torch.zeros_like(values), torch.zeros_like(rewards)
    for t in reversed(range(T)):  # beyond the end delta is 0, so what is ahead of the last token is
        A[:, t] = ahead = delta[:, t] + gamma * lam * ahead
    return A


def value_loss(value, value_old, target, clip):
    """The critic's term of each token (N,): half the squared error.

    Or half that of the value kept within `clip` of the old one where it is larger (as in veRL);
    clip = 0: no clipping.
    """
    import torch
    error = (value - target).square()
    if clip:
        near = value_old + (value - value_old).clamp(-clip, clip)
        error = torch.maximum(error, (near - target).square())
    return error / 2


def batch_indices(step, B_p, D, seed):
    """Which of D problems are in the batch of `step` (1, 2, ...): B_p indices.

    They come from the seeded order of each epoch. A function of its arguments alone: there is no
    cursor to save. D=3, B_p=2: steps 1 and 2 see one epoch and the first of the next.
    """
    visits = range((step - 1) * B_p, step * B_p)
    order = {}
    for epoch in {visit // D for visit in visits}:
        order[epoch] = random.Random(f"order {seed} {epoch}").sample(range(D), D)
    return [order[visit // D][visit % D] for visit in visits]


# -------------------------------------------------------------------------------------------------
# Forward passes over prompts and responses


def micro_batches(lengths, micro_tokens, group=None):
    """Row indices cut into micro-batches, longest first: rows x longest <= micro_tokens each.

    One row at least. With `group`, a problem's number for each row, rows of a problem stay together
    as far as they fit. A batch is also cut where that spares a tenth of it, 128 tokens or more, of
    padding: a pass costs more than a few tokens.
    """
    group, pieces, of = group or range(len(lengths)), [], {}  # a piece: rows that stay together
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        piece = of.get(group[i])
        if piece is None or (len(piece) + 1) * lengths[piece[0]] > micro_tokens:
            piece = of[group[i]] = []
            pieces.append(piece)
        piece.append(i)
    batches, spared = [], 0
    for piece in pieces:  # in order of their longest row
        widest = lengths[batches[-1][0]] if batches else 0
        size = (len(batches[-1]) + len(piece)) * widest if batches else 0
        spared += len(piece) * (widest - lengths[piece[0]])
        if not batches or size > micro_tokens or spared >= max(128, 0.1 * size):
            batches.append([])
            spared = 0
        batches[-1] += piece
    return batches


def deal(lengths, ranks):
    """Rows dealt to the ranks by length: a list of row indices for each rank, longest first.

    All ranks go through their micro-batches in step, so they should meet rows of one length at one
    time: the longest `ranks` rows go to one rank each, then the next, in alternating order.
    """
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    turns = [order[k:k + ranks][::-1 if k // ranks % 2 else 1]
             for k in range(0, len(order), ranks)]
    return [[turn[r] for turn in turns if r < len(turn)] for r in range(ranks)]


def places(start, length):
    """length[i] consecutive positions from start[i] in each row i, as (row, position), both (N,).

    start [2, 1], length [1, 2] -> row [0, 1, 1], position [2, 1, 2].
    """
    import torch
    row = torch.repeat_interleave(torch.arange(len(length), device=length.device), length)
    before = torch.repeat_interleave(length.cumsum(0) - length, length)  # tokens of the rows above
    return row, torch.arange(len(row), device=length.device) - before + start[row]


def responses(model, ids, prompt_length, length, group=None):
    """The last hidden states that predict the response tokens, (N, d), and these tokens, (N,).

    ids (R, L): prompt then response, padded behind, where a causal model does not look, so no mask
    is needed. The state that predicts a token is at the position before it: prompt [5, 6], response
    [7, 8] takes the states at positions 1 and 2. With `group`, (R,) the number of the row's prompt
    among those of the batch, rows of a prompt in succession, each prompt is gone through once.
    """
    row, place = places(prompt_length, length)
    if group is None:
        # the last token of a row predicts nothing
        hidden = model.base_model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state
        state = place - 1
    else:
        hidden = shared_prompts(model, ids, prompt_length, int(length.max()), group)
        state = place - prompt_length[row]
    return hidden.flatten(0, 1).index_select(0, row * hidden.shape[1] + state), ids[row, place]


def shared_prompts(model, ids, prompt_length, T, group):
    """Hidden states (R, T, d) that predict the first T response tokens, each prompt run once.

    The keys and values of a prompt are repeated for its rows, with gradient: of n rows n - 1 need
    not compute it again, forward or backward. Arguments as in `responses`.
    """
    import torch
    from transformers import DynamicCache
    R, device = len(ids), ids.device
    first = torch.searchsorted(group, torch.arange(int(group[-1]) + 1, device=device))  # (G,)
    # prompts end in one column, (G, P), so that their responses begin in the next
    start = prompt_length[first, None]
    column = torch.arange(int(start.max()), device=device) - (start.max() - start)
    mask, position = (column >= 0).long(), column.clamp(min=0)
    padded = not bool(mask.all())  # without padding, attention needs no mask and is faster
    cache = DynamicCache(config=model.config)
    hidden = model.base_model(input_ids=ids[first].gather(1, position), position_ids=position,
                              attention_mask=mask if padded else None, past_key_values=cache,
                              use_cache=True).last_hidden_state[group, -1:]  # (R, 1, d)
    if T == 1:
        return hidden
    cache.batch_select_indices(group)
    position = prompt_length[:, None] + torch.arange(T - 1, device=device)
    tokens = ids.gather(1, position.clamp(max=ids.shape[1] - 1))  # what is behind a row's end: any
    mask = torch.cat([mask[group], mask.new_ones(R, T - 1)], 1)
    more = model.base_model(input_ids=tokens, position_ids=position,
                            attention_mask=mask if padded else None, past_key_values=cache,
                            use_cache=True).last_hidden_state
    return torch.cat([hidden, more], 1)


# To go through a prompt once is faster than n times from so many rollouts on, or where it leaves no
# more than such a share of the tokens to compute
SHARED_FROM, SHARED_TOKENS = 8, 0.5


def split_rows(model, flat, cfg):
    """The micro-batches of an update: a list of (rows, group), as `responses` takes them.

    Prompts are shared where that is faster: on a CPU (a GPU's flash kernel takes no mask), with the
    model in one piece, all activations kept, and many rows a prompt or prompts as long as responses
    (see SHARED_FROM).
    """
    import torch
    lengths, problem = (flat["prompt_length"] + flat["length"]).tolist(), flat["problem"]
    if can_share_prompts(model, cfg):
        cut = micro_batches(lengths, cfg["micro_tokens"], problem.tolist())
        rows = [torch.tensor(sorted(part)) for part in cut]  # rows of a prompt in succession
        prompts, group = zip(*[problem[r].unique(return_inverse=True) for r in rows])
        first = torch.searchsorted(problem, torch.cat(prompts))  # a row of each prompt of each part
        shared = int(flat["length"].sum() + flat["prompt_length"][first].sum())
        many = len(lengths) >= SHARED_FROM * len(first)
        if many or shared <= SHARED_TOKENS * sum(lengths):
            return list(zip(rows, group))
    cut = micro_batches(lengths, cfg["micro_tokens"])
    return [(torch.tensor(part, device=model.device), None) for part in cut]


def can_share_prompts(model, cfg):
    """Return whether an update may run each prompt once: see `split_rows`.

    Not with linear attention, whose cache of a prompt has no gradient.
    """
    return (model.device.type == "cpu" and WORLD == 1 and not recomputes(cfg, model.device)
            and not models.has_linear_attention(model))


def in_bf16(device, dtype):
    """The autocast of --dtype. Without its cache, which would hold all weights once more."""
    import torch
    return torch.autocast(device.type, torch.bfloat16, enabled=models.is_bf16(dtype, device),
                          cache_enabled=False)


def token_logps(model, ids, prompt_length, length, temperature, micro_logits=2**27, group=None,
                dtype="auto"):
    """Log-probs and entropies of the response tokens at `temperature`, (N,) each, row by row.

    Arguments as in `responses`. No more than `micro_logits` logits (tokens x vocabulary) exist at
    once: larger batches go through head, softmax and entropy in chunks, whose logits the backward
    pass computes again.
    """
    import torch
    from torch.utils.checkpoint import checkpoint

    def logps(hidden, token):
        logp = torch.log_softmax(models.logits_of(model, hidden).float() / temperature, -1)
        entropy = -(logp.exp() * logp).sum(-1)
        return logp[torch.arange(len(token), device=token.device), token], entropy
    with in_bf16(ids.device, dtype):
        hidden, token = responses(model, ids, prompt_length, length, group)
        size = max(1, micro_logits // model.config.vocab_size)
        if len(token) <= size:
            return logps(hidden, token)
        parts = [checkpoint(logps, h, t, use_reentrant=False, preserve_rng_state=False)
                 for h, t in zip(hidden.split(size), token.split(size))]
        return tuple(torch.cat(part) for part in zip(*parts))


def token_values(critic, ids, prompt_length, length, group=None, dtype="auto"):
    """The critic's value before each response token, (N,); arguments as in `responses`."""
    with in_bf16(ids.device, dtype):
        hidden, _ = responses(critic, ids, prompt_length, length, group)
        return models.value_head(critic)(hidden).float().sum(-1)  # (N, 1) -> (N,)


def check_log_probs(model, prompt, cfg):
    """Raise BadInput unless the log-probs of an update are those of the model's own logits.

    One pass over the token ids of one prompt, of which all but the first count as the response.
    Every rank calls it with the same prompt.
    """
    import torch
    device = model.device
    ids = torch.tensor([(prompt if len(prompt) > 1 else prompt * 2)[:64]], device=device)
    one = torch.ones(1, dtype=torch.long, device=device)
    inputs = ids, one, one * (ids.shape[1] - 1), cfg["temperature"], cfg["micro_logits"]
    groups = [None] + [one - 1] * can_share_prompts(model, cfg)
    try:
        with torch.no_grad():
            with in_bf16(device, cfg["dtype"]):
                logits = model(input_ids=ids, use_cache=False).logits[0, :-1]
            own = torch.log_softmax(logits.float() / cfg["temperature"], -1)
            own = own.gather(-1, ids[0, 1:, None])[:, 0]
            logps = [through(token_logps, model)(*inputs, group, cfg["dtype"])[0]
                     for group in groups]
        gap = max((logp - own).abs().mean().item() for logp in logps)
    except Exception as e:  # a kind of model that nobody tried: whatever it raises
        reason = (str(e).strip().splitlines() or [""])[0][:200]
        raise BadInput(f"--model={cfg['model']}: models of kind {model.config.model_type} cannot "
                       f"be trained here ({type(e).__name__}: {reason})") from None
    finally:
        if WORLD > 1:
            model.reshard()  # a pass without a backward pass leaves the embedding whole
    if not gap < (0.1 if models.is_bf16(cfg["dtype"], device) else 1e-3):
        raise BadInput(f"--model={cfg['model']}: log-probs of the trainer differ from the model's "
                       f"own logits by {gap:.2g} on average, so models of kind "
                       f"{model.config.model_type} cannot be trained here")


# -------------------------------------------------------------------------------------------------
# One update


def gather(part):
    """The batch of all ranks on every rank, with the problems in the order of their numbers.

    part: dict of a rank's `numbers`, `prompts`, `rewards` (P, n), `length` (P n,), and `tokens` and
    `logps` of all its response tokens (N,), row by row. Returns the same for the whole batch.
    """
    import torch
    if WORLD == 1:
        return part
    parts, n = [None] * WORLD, part["rewards"].shape[1]
    torch.distributed.all_gather_object(parts, part)
    groups = {}
    for one in parts:
        size = one["length"].view(-1, n).sum(1).tolist()  # tokens of each problem
        columns = zip(one["prompts"], one["rewards"], one["length"].split(n),
                      one["tokens"].split(size), one["logps"].split(size))
        groups |= dict(zip(one["numbers"], columns))
    prompts, *tensors = zip(*[groups[j] for j in sorted(groups)])
    rewards, *flat = tensors
    return dict(zip(("length", "tokens", "logps"), map(torch.cat, flat)),
                numbers=sorted(groups), prompts=prompts, rewards=torch.stack(rewards))


def flatten(batch, cfg, device):
    """The rollouts of which this rank computes the loss: (R, ...) per rollout, (N,) per token.

    Returns (tensors, counts, real). The tensors are on `device` but for `ids`, which goes there in
    micro-batches. counts: over how many tokens of the whole batch the policy term is a mean, KL and
    entropy are, and the record's fields. real: False if this rank has no such rollout and gets one
    only to keep the others company, since FSDP needs a pass of every rank.
    If there is neither KL nor entropy term nor critic, rows whose advantage is 0 have no gradient
    and are left out; the means are over their tokens too, unless zero_var_filter, which speaks of
    groups of equal rewards, says otherwise.
    batch: dict of `prompts` (lists of ids), `rollouts` (engine.generate), `rewards` (P, n), `step`,
    and with several ranks `numbers`, those of these P problems in the whole batch. A rank generates
    and grades whole problems; for the loss all rollouts are dealt to the ranks by length.
    """
    import torch
    roll, n = batch["rollouts"], batch["rewards"].shape[1]
    inside = places(torch.zeros_like(roll["length"]), roll["length"])
    batch = gather(dict(numbers=batch.get("numbers", range(len(batch["rewards"]))),
                        prompts=batch["prompts"], rewards=batch["rewards"], length=roll["length"],
                        tokens=roll["tokens"][inside], logps=roll["logps"][inside])
                   ) | dict(step=batch["step"])
    rewards, lengths = batch["rewards"], batch["length"]
    A, n_train = advantages(rewards).flatten(), cfg["n_train"] or n  # (P n,)
    rows = torch.arange(len(rewards) * n)
    if n_train < n:  # decoupled baseline: mean and std from all n, a random n_train in the loss
        rows = []
        for g, j in enumerate(batch["numbers"]):
            rng = random.Random(f"n_train {cfg['seed']} {batch['step']} {j}")
            rows += [g * n + i for i in sorted(rng.sample(range(n), n_train))]
        rows = torch.tensor(rows)
    mixed = varied(rewards).repeat_interleave(n)  # (P n,) False in groups of equal rewards
    every, only_mixed = int(lengths[rows].sum()), int((lengths[rows] * mixed[rows]).sum())
    policy_filtered = cfg["zero_var_filter"] in ("policy", "all")
    reg_filtered = cfg["zero_var_filter"] in ("reg", "all")
    counts = [only_mixed if filtered else every for filtered in (policy_filtered, reg_filtered)]
    counts.append(every)
    if not (cfg["kl_coef"] or cfg["entropy_coef"] or cfg["algo"] == "ppo"):
        moving = rows[A[rows] != 0]
        counts[2] = int(lengths[moving].sum())
    else:
        moving = rows
    mine = moving[sorted(deal(lengths[moving].tolist(), WORLD)[RANK])]
    real = len(mine) > 0
    rows = mine if real else rows[:1]

    length, problem = lengths[rows], rows // n  # (R,)
    _, token = places((lengths.cumsum(0) - lengths)[rows], length)  # (N,) of all of the batch's
    prompt_length = torch.tensor([len(p) for p in batch["prompts"]])[problem]
    row, t = places(torch.zeros_like(length), length)  # (N,): which rollout, which of its tokens
    # prompt then response in one tensor, padded behind
    ids = torch.zeros(len(rows), int((prompt_length + length).max()), dtype=torch.long)
    prompts = torch.nn.utils.rnn.pad_sequence([torch.tensor(p) for p in batch["prompts"]],
                                              batch_first=True)
    width = min(prompts.shape[1], ids.shape[1])
    ids[:, :width] = prompts[problem, :width]
    ids[row, prompt_length[row] + t] = batch["tokens"][token]
    in_mixed = mixed[rows][row]  # (N,)
    everywhere = torch.ones_like(in_mixed)
    flat = dict(prompt_length=prompt_length, length=length, problem=problem,
                start=length.cumsum(0) - length, reward=rewards.flatten()[rows],
                logp_engine=batch["logps"][token], advantage=A[rows][row],
                in_policy=in_mixed if policy_filtered else everywhere,
                in_reg=in_mixed if reg_filtered else everywhere)
    flat = {name: tensor.to(device) for name, tensor in flat.items()}
    return flat | dict(ids=ids), counts, real


@dataclasses.dataclass
class Learner:
    """What an update works on."""
    model: object
    opt: object               # AdamW of the policy; its lr is set before each update
    ref: object = None        # of the KL
    critic: object = None     # of PPO
    critic_opt: object = None

    def trained(self):
        """[(prefix in a checkpoint, model, optimizer), ...]"""
        own = [("", self.model, self.opt)]
        return own + [("critic.", self.critic, self.critic_opt)] * bool(self.critic)


def optimizer_step(trained, grad_clip):
    """Clip the gradients, one step of each optimizer, forget the gradients.

    trained: [(prefix, model, optimizer), ...]. Returns the norm of the first model's gradient
    before clipping; where any norm is not finite, nothing moves and it is nan.
    """
    import torch
    norms = []
    for _, model, _ in trained:
        grads = [p for p in model.parameters() if p.grad is not None]
        norm = torch.nn.utils.clip_grad_norm_(grads, grad_clip or float("inf"))
        norms.append((norm.full_tensor() if hasattr(norm, "full_tensor") else norm).item())
    good = all(norm < float("inf") for norm in norms)  # False for nan too
    for _, _, opt in trained:
        if good:
            opt.step()
        opt.zero_grad()
    return norms[0] if good else float("nan")


def parts_of(model, flat, cfg, real):
    """The micro-batches of an update: a list of (token, inputs, group, real).

    token: which of the N response tokens these are; inputs: ids (not yet on the model's device),
    prompt_length, length; group as in `responses`. All ranks must call FSDP equally often: one with
    fewer parts repeats its last for nothing, which is not `real`.
    """
    parts = []
    for rows, group in split_rows(model, flat, cfg):
        prompt_length, length = flat["prompt_length"][rows], flat["length"][rows]
        ids = flat["ids"][rows.cpu(), :int((prompt_length + length).max())]
        _, token = places(flat["start"][rows], length)
        parts.append((token, (ids, prompt_length, length), group, real))
    missing = int(over_ranks([len(parts)], "MAX")[0] - len(parts))
    return parts + [(*parts[-1][:3], False)] * missing


def critic_targets(learner, flat, parts, N, cfg):
    """PPO's (advantages, values, targets of the values) of each token, (N of this rank,).

    The advantages are whitened over the tokens of all ranks, N of them.
    """
    import torch
    value = torch.empty_like(flat["logp_engine"])
    with torch.no_grad():
        for token, (ids, *inputs), group, _ in parts:
            inputs = ids.to(value.device), *inputs
            found = through(token_values, learner.critic)(*inputs, group, cfg["dtype"])
            value[token] = found.to(value.dtype)
    length = flat["length"]
    row, t = places(torch.zeros_like(length), length)
    padded = value.new_zeros(len(length), int(length.max()))
    padded[row, t] = value
    A = gae(padded, flat["reward"].to(padded.dtype), length, cfg["gamma"], cfg["lam"])[row, t]
    target = A + value
    mean = over_ranks([A.double().sum().item()])[0] / N
    squares = over_ranks([(A - mean).double().square().sum().item()])[0]
    return (A - mean) / ((squares / max(1, N - 1)) ** 0.5 + 1e-8), value, target


def update(learner, batch, cfg):
    """Gradient of the whole batch in micro-batches, clip, one step of AdamW; `updates` times.

    `batch` as in `flatten`. The denominators are those of the whole batch, before it is dealt and
    cut, so neither micro_tokens nor the number of ranks changes the result. Returns the
    record's fields, means over tokens; grad_norm is not finite where a step was skipped.
    """
    import torch
    model, ref, critic = learner.model, learner.ref, learner.critic
    flat, counts, real = flatten(batch, cfg, model.device)
    N_policy, N_reg, N = [max(1, x) for x in counts]
    parts = parts_of(model, flat, cfg, real)
    logp_engine, A = flat["logp_engine"], flat["advantage"]  # (N,)
    in_policy, in_reg, known = flat["in_policy"], flat["in_reg"], logp_engine.isfinite()
    if critic:
        A, value_old, target = critic_targets(learner, flat, parts, N, cfg)
    logp_old, logp_ref = torch.empty_like(logp_engine), torch.empty_like(logp_engine)
    weight = torch.ones_like(logp_engine)
    chunks, zero = (cfg["temperature"], cfg["micro_logits"]), torch.zeros((), device=model.device)
    sums, norms = collections.Counter(), []  # over this rank's tokens and all steps
    for first in [True] + [False] * (cfg["updates"] - 1):
        for token, (ids, *inputs), group, real in parts:
            inputs, how = (ids.to(model.device), *inputs), (group, cfg["dtype"])
            logp, entropy = through(token_logps, model)(*inputs, *chunks, *how)  # (N of it,)
            if first:  # the policy that the rollouts came from: the ratio is 1 in this pass
                logp_old[token] = logp.detach().to(logp_old.dtype)
                w = importance_weights(logp, logp_engine[token], cfg["tis_cap"])
                weight[token] = w.to(weight.dtype)
                if ref:
                    with torch.no_grad(), lora.off(ref):
                        theirs, _ = through(token_logps, ref)(*inputs, *chunks, *how)
                    logp_ref[token] = theirs.to(logp_ref.dtype)
            w = weight[token]
            terms = policy_loss(cfg["algo"], logp, logp_old[token], w, A[token],
                                cfg["eps_low"], cfg["eps_high"])
            loss = (terms * in_policy[token]).sum() / N_policy
            if cfg["kl_coef"]:
                kl = kl_term(cfg["kl_type"], logp, logp_ref[token]) * in_reg[token]
                loss = loss + cfg["kl_coef"] * kl.sum() / N_reg
            if cfg["entropy_coef"]:
                loss = loss - cfg["entropy_coef"] * (entropy * in_reg[token]).sum() / N_reg
            (loss * (WORLD * real)).backward()  # FSDP takes the mean over ranks, the loss is a sum
            error = zero
            if critic:
                value = through(token_values, critic)(*inputs, *how)
                error = value_loss(value, value_old[token], target[token], cfg["value_clip"])
                error = error.sum() / N
                (error * (WORLD * real)).backward()
            with torch.no_grad():
                gap = (logp_old[token] - logp_engine[token])[known[token]].abs()
                ratio = (logp - logp_old[token]).exp()
                outside = (ratio < 1 - cfg["eps_low"]) | (ratio > 1 + cfg["eps_high"])
                kl = kl_term("k3", logp, logp_ref[token]).sum() if ref else zero
                capped = (w >= (cfg["tis_cap"] or float("inf"))).sum()
                for name, x in dict(
                        loss=loss, value_loss=error, entropy=entropy.sum(), kl=kl, gap=gap.sum(),
                        unknown=(~known[token]).sum(), capped=capped, w=w.sum(),
                        w2=w.square().sum(), clipped=outside.sum()).items():
                    sums[name] += x.double() * real
        norms.append(optimizer_step(learner.trained(), cfg["grad_clip"]))
    s = dict(zip(sums, over_ranks(x.item() for x in sums.values())))
    steps, seen = cfg["updates"], N * cfg["updates"]
    fields = dict(loss=s["loss"] / steps, entropy=s["entropy"] / seen,
                  kl=s["kl"] / seen if ref else None, grad_norm=sum(norms) / len(norms),
                  tis_mean=s["gap"] / max(1, seen - s["unknown"]), tis_capped=s["capped"] / seen,
                  engine_nan=int(s["unknown"] / steps),
                  ess=s["w"] ** 2 / (seen * s["w2"]) if s["w2"] else 0.0,  # share of all weights
                  clip_frac=s["clipped"] / seen)
    if critic:
        fields["value_loss"] = s["value_loss"] / steps
    return fields


# -------------------------------------------------------------------------------------------------
# The run


def check(cfg):
    """Raise BadInput where this is no run, or none that so many ranks can share."""
    config.check_run(cfg)
    choose("verifier", cfg["verifier"], verifier.REWARDS)
    if cfg["lora_rank"] and WORLD > 1:
        raise BadInput(f"--lora_rank={cfg['lora_rank']}: adapters train on one GPU, not on the "
                       f"{WORLD} processes of torchrun")
    if WORLD % cfg["tensor_parallel"]:
        raise BadInput(f"--tensor_parallel={cfg['tensor_parallel']}: the {WORLD} processes of "
                       "torchrun cannot be cut into groups of that size")
    if cfg["B_p"] % WORLD:
        nearest = max(WORLD, round(cfg["B_p"] / WORLD) * WORLD)
        raise BadInput(f"--B_p={cfg['B_p']}: the {WORLD} processes of torchrun cannot share its "
                       f"problems evenly; the nearest B_p is {nearest}")


def memory_left(model, cfg, device, engine_name):
    """The share of each GPU that the trainer leaves vLLM; says so where a run will hardly fit.

    Counted are weights and AdamW's moments in fp32, a critic's too, the gradients of an update, the
    reference, the engine's copy; not activations, which python -m core.cost adds up too.
    """
    import torch
    width = 2 if models.is_bf16(cfg["dtype"], device) else 4  # of what is frozen and of the copy
    P = sum(p.numel() for p in model.parameters())
    trained, frozen, copy = P / WORLD, width * P / WORLD * bool(cfg["kl_coef"]), width * P
    if cfg["lora_rank"]:  # two factors beside each matrix of the body
        linear = [m for m in model.base_model.modules() if isinstance(m, torch.nn.Linear)]
        trained, frozen = cfg["lora_rank"] * sum(sum(m.weight.shape) for m in linear), copy
    trained *= 2 if cfg["algo"] == "ppo" else 1
    held, gradients = 12 * trained + frozen, 4 * trained
    most = held + max(copy, gradients + copy * (engine_name == "hf"))  # vLLM's sleeps in an update
    card = over_ranks([torch.cuda.get_device_properties(device).total_memory], "MIN")[0]
    if RANK == 0 and most > card:
        print(f"memory: this run takes more than {most / 1e9:.0f} GB of a GPU of "
              f"{card / 1e9:.0f} GB, so it will hardly fit (python -m core.cost)",
              file=sys.stderr)
    # 5% and 2 GB: what CUDA takes, and gaps; a guess
    return cfg["gpu_memory"] or max(0.1, min(0.9, 0.95 - (held + 2e9) / card))


def size(file):
    """Bytes of an open file."""
    return os.fstat(file.fileno()).st_size


class Run:
    """A run's problems, its folder with log, samples and checkpoints, and how far it is.

    `state` is what a checkpoint keeps beside weights and moments: step (updates made), tokens,
    skipped, bad_in_a_row, wall_s, the length of log and samples behind this update's record, which
    checkpoints to keep, and since the last evaluation `seen`, {id: [rollouts, how many solved]},
    with the sum of their rewards. What is measured after an update comes behind its checkpoint, so
    whoever goes on from one measures first. `stop` holds a signal once there was one.
    """

    def __init__(self, cfg):
        """Read the problems. Raises BadInput where there are too few."""
        self.cfg, d = cfg, derive(cfg)
        self.B, self.M = d["B"], d["M"]
        self.folder = Path(cfg["out"] or Path(cfg["runs"], d["run"]))
        self.problems = subset(read_problems(cfg["train_set"]), cfg["D"], cfg["seed"])
        self.vals = evaluation.read_sets(cfg["val_set"], first="val")
        if cfg["B_p"] > len(self.problems) and RANK == 0:  # the next epochs begin within a batch
            print(f"--B_p={cfg['B_p']}: the training set holds {len(self.problems)} problems, so a "
                  "batch has some of them several times", file=sys.stderr)
        for name, val in self.vals.items():
            if len(val) < WORLD:
                raise BadInput(f"--val_set={cfg['val_set']}: the {len(val)} problems of {name} "
                               f"cannot be shared among the {WORLD} processes of torchrun")
        every_val = [p for val in self.vals.values() for p in val]
        self.hashes = dict(train_set_hash=set_hash(self.problems), val_set_hash=set_hash(every_val))
        self.last_eval, self.stop, self.log, self.header = "", [], None, None

    def due(self, m, every):
        """True before the first update, and then once in every `every` rollouts, whatever B is."""
        return m == 0 or bool(every) and m * self.B // every > (m - 1) * self.B // every

    def lock(self):
        """Open the log, locked against a second process, and read its header. Rank 0 alone.

        Raises BadInput that names the keys where it is another experiment's.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "log.jsonl"
        self.log = open(path, "ab", buffering=0)
        try:
            fcntl.flock(self.log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            raise BadInput(f"{self.folder}: another process is training in this folder") from None
        except OSError:  # a file system without locks: `write` notices a second process
            pass
        records = read_log(path)
        self.header = next((r for r in records if r.get("type") == "header"), None)
        if self.header:
            config.check_same(self.folder, self.header["config"], self.cfg)
            for key, value in self.hashes.items():
                if self.header.get(key) != value:
                    raise BadInput(f"{self.folder}: {self.cfg[key.removesuffix('_hash')]} has "
                                   f"changed since this run began ({key})")

    def warn_of_other_code(self):
        """Say so where the run was begun by other code: an edit is no part of a run's identity."""
        old, now = self.header.get("commit"), machine.commit()
        if old and now and (old != now or now.endswith("+")):  # the + of two edits is the same
            old, now = (name.replace("+", " with edits") for name in (old, now))
            print(f"{self.folder}: this run was begun by commit {old}; the code now is {now}. If "
                  "it should not be mixed, --tag=NAME starts a new run", file=sys.stderr)

    def write(self, record):
        """Rank 0 writes a record to the log; a checkpoint keeps the files up to its update's.

        Raises BadInput where another process wrote to the log: some NFS, GPFS and Lustre have no
        locks, or none that hold on another node.
        """
        if RANK > 0:
            return
        if size(self.log) != self.log_bytes:
            raise BadInput(f"{self.folder}/log.jsonl: another process writes to it, this one ends")
        append(self.log, record)
        self.log_bytes = size(self.log)
        if record["type"] in ("header", "step"):
            self.state.update(log_bytes=self.log_bytes, samples_bytes=size(self.samples))

    def load(self):
        """The models of the run: its learner, and the generator that gives its rollouts.

        Raises BadInput where its log tells of another engine, and where model or prompts do not
        fit.
        """
        cfg, limit = self.cfg, self.cfg["max_prompt_tokens"]
        name = self.engine_name = engine.engine_name(cfg)  # before torch is loaded
        before = (self.header or {}).get("engine", name)
        if before != name:
            raise BadInput(f"{self.folder}: its rollouts came from {before}, now they would come "
                           f"from {name}; say --engine={before}")
        base, rank = models.model_folder(cfg["model"]), cfg["lora_rank"]
        models.check_lengths(base, cfg)
        device = models.start_ranks(cfg["device"])
        cuda = device.startswith("cuda")
        bf16 = cuda and models.is_bf16(cfg["dtype"], device)  # what is frozen
        if cuda:
            shapes = models.load_weights("AutoModelForCausalLM", base, "meta")
            cfg = dict(cfg, gpu_memory=memory_left(shapes, cfg, device, name))
        model, self.tokenizer = models.load_model(
            base, "meta" if WORLD > 1 else "cpu" if rank else device)
        self.prompts = encode(self.problems, self.tokenizer, limit)
        self.val_prompts = {part: encode(val, self.tokenizer, limit)
                            for part, val in self.vals.items()}
        if rank:  # before the engine: in bf16 it leaves it more
            model = lora.freeze(model, bf16).to(device)
        self.generator = engine.open_engine(name, base, cfg, device, model, self.tokenizer)
        if rank:
            lora.add(model, rank, cfg["seed"])
        ref = None
        if cfg["kl_coef"]:  # a copy that is not trained; of adapters the model, they are turned off
            ref = model if rank else lora.freeze(copy.deepcopy(model), bf16)
        critic = models.load_critic(base, str(model.device)) if cfg["algo"] == "ppo" else None
        self.learner = with_optimizers(model, ref, critic, cfg, device, base)
        check_log_probs(self.learner.model, self.prompts[0], cfg)

    def restore(self):
        """The newest checkpoint into the learner and `state`, where the run was begun and has one.

        Returns whether it starts anew. Raises BadInput where its budget is behind.
        """
        folder, begun = self.folder, over_ranks([self.header is not None])[0]
        state = models.load_checkpoint(folder, self.learner.trained()) if begun else None
        if state is None and progress(folder)[1] == "budget":
            raise BadInput(f"{folder}: finished, and its checkpoints are gone (--keep_last=false): "
                           "a larger C cannot go on from there; --tag=NAME starts anew")
        if state and state["step"] > self.M:
            raise BadInput(f"--C={self.cfg['C']}: {folder} is further already, at "
                           f"{state['step'] * self.B} rollouts")
        self.saved = state and state["step"]
        self.state = state or dict(step=0, tokens=0, skipped=0, bad_in_a_row=0, wall_s=0.0,
                                   log_bytes=0, samples_bytes=0, seen={}, seen_reward=0)
        self.began = time.time() - self.state["wall_s"]
        # what an earlier start of this run was to keep or to evaluate, stays
        for key in ("keep", "pass"):
            now = config.updates_at(self.cfg[f"{key}_at"], self.cfg)
            before = set(self.state.get(key, ()))
            self.state[key] = sorted(now | before)
            for m in sorted(now - before):
                if key == "pass" and m < self.state["step"] and RANK == 0:
                    print(f"{folder}: --pass_at: update {m} is past, its policy is gone",
                          file=sys.stderr)
        if self.cfg["lora_rank"]:  # such a checkpoint holds adapters alone
            at = Path(self.cfg["model"])
            self.state["lora"] = dict(model=str(at.resolve() if at.exists() else at),
                                      rank=self.cfg["lora_rank"])
        if state or WORLD > 1:  # else the generator was opened on these weights
            self.generator.load(full_weights(self.learner.model))
        return state is None

    def begin(self, new):
        """The files as the checkpoint left them: what came after is written anew. Rank 0 alone.

        A new run's log gets its header. Raises BadInput where the log is shorter than it was.
        """
        cfg, folder, state, ckpt = self.cfg, self.folder, self.state, self.folder / "ckpt"
        self.samples = open(folder / "samples.jsonl", "ab", buffering=0)
        if size(self.log) < state["log_bytes"]:
            raise BadInput(f"{folder}/log.jsonl: shorter than it was at the checkpoint of update "
                           f"{state['step']}; bring it back, or remove ckpt/")
        self.log.truncate(state["log_bytes"])
        self.samples.truncate(min(state["samples_bytes"], size(self.samples)))
        self.log_bytes = state["log_bytes"]
        # of a smaller budget: until the end the checkpoint is newer
        shutil.rmtree(folder / "model", ignore_errors=True)
        if new and ckpt.exists():  # all torn, or of a log that is gone
            shutil.rmtree(folder / "ckpt.unused", ignore_errors=True)
            ckpt.rename(folder / "ckpt.unused")
        if new:
            names = ["torch", "transformers"] + ["vllm"] * (self.engine_name == "vllm")
            versions = {name: sys.modules[name].__version__ for name in names}
            self.write(dict(
                type="header", schema=1, config=cfg, derived=derive(cfg), **self.hashes,
                engine=self.engine_name, device=str(self.learner.model.device),
                versions=dict(python=sys.version.split()[0], **versions), commit=machine.commit(),
                ranks=WORLD, loading_s=time.time() - START,
                time=time.strftime("%Y-%m-%dT%H:%M:%S%z")))
        else:
            self.warn_of_other_code()
        print(f"{folder}: B_p={cfg['B_p']} n={cfg['n']} M={self.M} C={self.B * self.M} "
              f"lr={derive(cfg)['lr']:.3g}, from update {state['step']}", file=sys.stderr)

    def together(self, draw):
        """draw() on every rank; engine.Stopped on all of them where one was asked to stop."""
        drawn = None
        with contextlib.suppress(engine.Stopped):
            drawn = draw()
        if over_ranks([len(self.stop)], "MAX")[0]:
            raise engine.Stopped
        return drawn

    def count_solved(self, problems, prompts, cfg, key):
        """As evaluation.count_solved, over all ranks: each draws and grades its share."""
        mine, correct = range(RANK, len(problems), WORLD), [0] * len(problems)
        correct[RANK::WORLD], total, faults = self.together(lambda: evaluation.count_solved(
            problems, prompts, self.generator, cfg, key, mine))
        *correct, total, timeouts, errors = over_ranks([*correct, total, *faults.values()])
        faults = dict(verifier_timeouts=int(timeouts), verifier_errors=int(errors))
        return [int(c) for c in correct], total, faults

    def evaluate(self, m):
        """avg@k and the like on every validation set, and what training saw since the last time."""
        cfg, state, C = self.cfg, self.state, m * self.B
        for name, val in self.vals.items():
            key = (cfg["seed"], "val", m) if name == "val" else (cfg["seed"], "val", name, m)
            counts = self.count_solved(val, self.val_prompts[name], cfg, key)
            record = evaluation.eval_record(val, *counts, cfg, m, C, state["tokens"], name)
            if name == "val":
                metric = f"avg@{cfg['k']}"
                self.last_eval = f", val {metric} {record[metric]:.3f}"
                if "reward" in record:  # avg@k counts rewards of 1, this averages all
                    self.last_eval += f", val reward {record['reward']:.3f}"
            self.write(record)
        ids = [p["id"] for p in self.problems if p["id"] in state["seen"]]  # in file order
        if ids:  # before the first update there is none
            drawn, correct = zip(*[state["seen"][i] for i in ids])
            self.write(dict(
                type="train_pass", step=m, rollouts=C, ids=ids, samples=drawn, correct=correct,
                **evaluation.mean_reward(state["seen_reward"], correct, sum(drawn))))

    def evaluate_training(self, m):
        """pass@1 of every training problem under the policy as it is, by rollouts of its own."""
        s, P = self.cfg["s"], len(self.problems)
        correct, total, faults = self.count_solved(
            self.problems, self.prompts, dict(self.cfg, samples=s),
            (self.cfg["seed"], "train_pass", m))
        self.write(dict(
            type="train_pass", step=m, rollouts=m * self.B, fresh=True,
            ids=[p["id"] for p in self.problems], samples=[s] * P, correct=correct,
            **evaluation.mean_reward(total, correct, s * P), **faults))

    def evaluate_due(self, m):
        """What is due after update m: evaluations, pass@1 of the training problems."""
        if self.due(m, self.cfg["eval_every"]):
            self.evaluate(m)
        if m in self.state["pass"]:
            self.evaluate_training(m)

    def write_samples(self, m, problem, rollouts, rewards):
        """A few rollouts of the first problem of a batch into samples.jsonl, to look at."""
        for i in range(min(4, rewards.shape[1])):
            length = int(rollouts["length"][i])
            text = self.tokenizer.decode(rollouts["tokens"][i, :length].tolist())
            append(self.samples, dict(
                step=m, id=problem["id"], answer=problem["answer"], reward=rewards[0, i].item(),
                length=length, finish="stop" if rollouts["stopped"][i] else "length", text=text))

    def checkpoint(self):
        """All that a later start needs, as of after update state["step"]; nothing twice."""
        if self.saved == self.state["step"]:
            return
        self.saved, self.state["wall_s"] = self.state["step"], time.time() - self.began
        for file in (self.log, self.samples) if RANK == 0 else ():
            os.fsync(file.fileno())
        models.save_checkpoint(self.folder, self.learner.trained(), self.tokenizer, self.state)

    def end(self, status):
        """What is left of the run: a model where its budget is spent, and the last record."""
        rollouts, cfg = self.state["step"] * self.B, self.cfg
        if status == "stopped":
            self.checkpoint()
        if status == "budget":
            part = self.folder / "model.part"
            models.write_model(part, self.learner.model, self.tokenizer, cfg["dtype"])
            if RANK == 0:
                shutil.rmtree(self.folder / "model", ignore_errors=True)
                part.rename(self.folder / "model")
        if RANK == 0:
            self.write(dict(type="end", status=status, rollouts=rollouts))
            os.fsync(self.log.fileno())
            if status == "budget" and not cfg["keep_last"]:
                models.keep_checkpoints(self.folder, 0, self.state["keep"])
            ended = "budget used" if status == "budget" else status
            print(f"{self.folder}: {ended} after {rollouts} rollouts{self.last_eval}",
                  file=sys.stderr)
        if WORLD > 1 and self.engine_name == "hf":  # vLLM closes its own part of it at exit
            import torch
            torch.distributed.destroy_process_group()


def with_optimizers(model, ref, critic, cfg, device, base):
    """The Learner of a run, its models sharded over the ranks.

    Models on meta, which are those of several ranks, take the weights at `base`.
    """
    import torch
    every = [(model, token_logps), (critic, token_values)]
    if ref is not model:
        every.append((ref, token_logps))
    for m, forward in every:
        if m and recomputes(cfg, device):
            models.checkpoint_activations(m)
        if m and WORLD > 1:
            models.shard(m, device, forward, cfg["dtype"])
        if m and m.device.type == "meta":
            models.fill(m, base, device)

    def adamw(m):
        return torch.optim.AdamW([p for p in m.parameters() if p.requires_grad], fused=True,
                                 betas=(0.9, 0.999), weight_decay=cfg["weight_decay"])
    learner = Learner(model, adamw(model), ref, critic, critic and adamw(critic))
    # moments before any activations, or they lie in their gaps
    models.training_state(learner.trained())
    return learner


def stop_at_signals(stop):
    """SIGTERM and Ctrl-C go into `stop`: rollouts at hand are given up, an update is finished.

    A second Ctrl-C ends the process at once; a later start goes on from the last checkpoint.
    """
    def handle(number, _):
        if number == signal.SIGINT and stop:
            raise KeyboardInterrupt
        stop.append(number)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)


def main(argv):
    cfg = parse(argv, __doc__)
    check(cfg)
    run = Run(cfg)
    # whoever may not go on here, or need not, hears it before a model is loaded
    if RANK == 0 and (run.folder / "log.jsonl").exists():
        run.lock()
    if finished(cfg, run.folder):
        if RANK == 0:
            run.warn_of_other_code()
            model = run.folder / "model"
            where = f"; its model is {model}" if model.is_dir() else ""
            print(f"{run.folder}: finished before, nothing to do{where}")
        return 0
    run.load()
    if RANK == 0 and not run.log:
        run.lock()
    new = run.restore()
    if RANK == 0:
        run.begin(new)
    learner, generator, state, B, M = run.learner, run.generator, run.state, run.B, run.M
    generator.quit = run.stop
    stop_at_signals(run.stop)
    from tqdm import tqdm
    mine = range(RANK, cfg["B_p"], WORLD)  # this rank's problems of a batch
    look = "{percentage:3.0f}% of {total_fmt} [{elapsed}<{remaining}, {rate_fmt}]{postfix}"
    status = "stopped"
    with contextlib.suppress(engine.Stopped), tqdm(
            total=B * M, initial=B * state["step"], unit="roll", unit_scale=True,
            mininterval=1, desc=f"Bp{cfg['B_p']} n{cfg['n']} s{cfg['seed']}", disable=RANK > 0,
            bar_format=None if sys.stderr.isatty() else look) as bar:
        run.evaluate_due(state["step"])  # of the base model, or what a stop left undone
        for m in range(state["step"] + 1, M + 1):
            # 1. rollouts: n for each of the B_p problems of this batch
            t0 = time.time()
            index = batch_indices(m, cfg["B_p"], len(run.problems), cfg["seed"])
            here = [run.problems[index[j]] for j in mine]
            asked = [run.prompts[index[j]] for j in mine]
            seeds = [engine.rollout_seed(cfg["seed"], "train", m, j) for j in mine]
            rollouts = run.together(lambda: generator.generate(asked, cfg["n"], seeds))

            # 2. rewards
            rewards, faults = verifier.grade(here, rollouts, run.tokenizer, cfg)  # (B_p / ranks, n)
            correct = [0] * cfg["B_p"]
            correct[RANK::WORLD] = verifier.solved(rewards).sum(1).tolist()
            generator.sleep()

            # 3. advantages, loss, one step of AdamW
            t1 = time.time()
            warm = min(1.0, m / max(1, cfg["warmup"]))
            lr = derive(cfg)["lr"] * warm
            learner.opt.param_groups[0]["lr"] = lr
            if learner.critic:
                learner.critic_opt.param_groups[0]["lr"] = cfg["critic_lr"] * warm
            batch = dict(prompts=asked, rollouts=rollouts, rewards=rewards, step=m, numbers=mine)
            fields = update(learner, batch, cfg)
            generator.load(full_weights(learner.model))

            # 4. the log
            t2 = time.time()
            reward, tokens, stopped, timeouts, errors, *correct = over_ranks([
                rewards.double().sum().item(), rollouts["length"].sum().item(),
                rollouts["stopped"].sum().item(), *faults.values(), *correct])
            if run.due(m - 1, cfg["eval_every"]):  # its record is written
                state.update(seen={}, seen_reward=0)
            for i, c in zip(index, correct):  # a batch over the end of an epoch may visit one twice
                counts = state["seen"].setdefault(run.problems[i]["id"], [0, 0])
                counts[0] += cfg["n"]
                counts[1] += int(c)
            bad = not fields["grad_norm"] < float("inf")
            state["step"] = m
            state["seen_reward"] += reward
            state["tokens"] += int(tokens)
            state["skipped"] += bad
            state["bad_in_a_row"] = state["bad_in_a_row"] + 1 if bad else 0
            if RANK == 0 and cfg["sample_every"] and m % cfg["sample_every"] == 0:
                run.write_samples(m, here[0], rollouts, rewards)
            run.write(dict(
                type="step", step=m, rollouts=m * B, tokens=state["tokens"],
                wall_s=time.time() - run.began, lr=lr, reward=reward / B, **fields,
                response_len=tokens / B, truncated=1 - stopped / B,
                frac_all_right=correct.count(cfg["n"]) / cfg["B_p"],
                frac_all_wrong=correct.count(0) / cfg["B_p"],
                skipped=state["skipped"], verifier_timeouts=int(timeouts),
                verifier_errors=int(errors), gen_s=t1 - t0, train_s=t2 - t1))

            # 5. checkpoint, evaluation
            if state["bad_in_a_row"] >= 10:  # the last checkpoint from before them stays
                status = "diverged"
                break
            save = run.due(m, cfg["save_every"]) and not bad
            if save or m == M or m in state["keep"]:
                run.checkpoint()
            run.evaluate_due(m)
            bar.update(B)
            bar.set_postfix_str(f"training reward {reward / B:.3f}{run.last_eval}", refresh=False)
        else:
            # after the last checkpoint, which a larger C goes on from: there this one is not due
            if not run.due(M, cfg["eval_every"]):
                run.evaluate(M)
            status = "budget"

    run.end(status)
    return 128 + (run.stop or [signal.SIGTERM])[0] if status == "stopped" else 0


if __name__ == "__main__":
    entry(main)
