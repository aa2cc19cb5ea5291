r"""train_grpo.py: train a model by RL on C = B_p n M rollouts -> runs/SWEEP/RUN/{log.jsonl, ...}.

    python sample.py && python train_grpo.py --B_p=8 --n=16 --C=32768  # the embedded base model
    python train_grpo.py --model=Qwen/Qwen2.5-7B-Instruct --train_set=easy.jsonl \
        --val_set=val.jsonl --B_p=32 --n=64 --C=1e6
    torchrun --nproc_per_node=8 -- train_grpo.py --model=...  # FSDP2 over 8 GPUs
    python train_grpo.py --config=config.json --seed=1  # the flat dict of another run's header

The run's folder also gets samples.jsonl (rollouts to read), ckpt/ and, at the end, model/. The same
command resumes a run that was stopped or killed, and a larger --C continues a finished one. After
you edit the code, --out=FOLDER starts a new run. Random draws depend only on the seed, the step,
the problem and the rollout's index, so with transformers a resumed run writes the same log.

The method is the paper's: groups of n rollouts at temperature 0.6, A = (r - mean) / std, importance
weights against the engine's log-probs, one step of AdamW per batch, 10 warm-up updates,
lr = lr_base sqrt(B / 1024), and KL and entropy terms for easy problems only (--recipe). docs/log.md
has the objectives. To change the objective, edit `advantages` or `policy_loss`; `update` adds the
KL and entropy terms. To add a key, add a line to `config` in config.py.
"""
import collections
import contextlib
import copy
import dataclasses
import fcntl
import math
import os
import random
import shutil
import signal
import sys
import time
import types
from pathlib import Path

START = time.time()  # before torch is imported, so that the header's loading_s includes torch

import config
import verifier
from config import BadInput, choose, derive, entry, parse
from core import cost, engine, evaluation, lora, machine, models
from core.log import DIVERGED, append, finished, progress, read_log
from core.models import RANK, WORLD, all_reduce, call_sharded, full_weights, notify
from core.problems import encode, read_problems, set_hash, subset


# ---- The mathematics: pure functions. They need torch, and `random` for batch_indices ------------

def advantages(rewards):
    """Group-normalise rewards (B_p, n) into advantages (B_p, n): (r - mean) / (std + 1e-6).

    This is section 2 of the paper; the std has the denominator n - 1. If n = 2 and the rewards are
    1 and 0, the advantages are +-0.7071. Equal rewards get exactly 0. Needs mixed_groups.
    """
    mean, std = rewards.mean(1, keepdim=True), rewards.std(1, keepdim=True)
    return (rewards - mean) / (std + 1e-6) * mixed_groups(rewards)[:, None]


def mixed_groups(rewards):
    """Return a (B_p,) bool mask of the groups whose rewards (B_p, n) are not all equal. In fp32 the
    std of n rewards of 0.7 may be above 0."""
    return (rewards != rewards[:, :1]).any(1)


def policy_loss(algo, logp, logp_old, weight, advantage, eps_low, eps_high):
    """Return the policy term of each token. All tensors are (N,).

    Let w = weight (see `importance_weights`), A = advantage, ratio = exp(logp - logp_old) and
    c(x) = clip(x, 1 - eps_low, 1 + eps_high). The term of grpo and ppo is -w min(ratio A,
    c(ratio) A), that of cispo -w sg(c(ratio)) A logp (MiniMax-M1, eq. 4), where sg stops the
    gradient. It is 0 if A is 0, even if exp() would overflow.
    """
    ratio = (logp - logp_old).where(advantage != 0, 0.0).exp()
    clipped = ratio.clamp(1 - eps_low, 1 + eps_high)
    if algo == "cispo":
        return -weight * clipped.detach() * advantage * logp
    return -weight * (ratio * advantage).minimum(clipped * advantage)


def importance_weights(logp, logp_engine, cap):
    """Return truncated importance weights (N,): min(exp(logp - logp_engine), cap), detached. They
    correct for rounding in the engine, and are 1 if cap is 0 or logp_engine is not finite."""
    weight = (logp.detach() - logp_engine).exp().clamp(max=cap)
    return weight.where(logp_engine.isfinite() & (cap > 0), 1.0)


KL_BOUND = 10.0


def kl_term(kind, logp, logp_ref):
    """Return an estimate of KL(policy || ref) for each token, (N,), of the kind k1, k2 or k3.

    With d = logp - logp_ref, k1 = d, k2 = d^2 / 2 and k3 = exp(-d) + d - 1. k1 and k3 are unbiased.
    No gradient flows through the sampling, so as a loss k3 has the gradient of KL(ref || policy),
    k2 that of KL(policy || ref), and k1 none in expectation. Below d = -KL_BOUND, k3 goes on as a
    straight line, because one token's exp(100) would cost the whole update. Needs KL_BOUND.
    """
    d = logp - logp_ref
    if kind == "k1":
        return d
    if kind == "k2":
        return d.square() / 2
    beyond = (-d - KL_BOUND).clamp(min=0)
    return (-d).clamp(max=KL_BOUND).exp() * (1 + beyond) + d - 1


def gae(values, rewards, lengths, gamma, lam):
    """Return generalised advantage estimates (R, T) for PPO (Schulman et al. 2016, eq. 16).

    values (R, T): the critic's value before each token, then zeros. rewards (R,): given at the
    last token. lengths (R,): tokens of each response. A_t = delta_t + gamma lam A_{t+1} with
    delta_t = r_t + gamma V_{t+1} - V_t, and V = 0 after the end. In the padding, A is 0. Values
    [0.5, 0.2], reward 1 and gamma = lam = 0.5 give delta = [-0.4, 0.8] and A = [-0.2, 0.8].
    """
    import torch
    pad, T = torch.nn.functional.pad, values.shape[1]
    last = torch.arange(T, device=values.device) == lengths[:, None] - 1
    delta = rewards[:, None] * last + gamma * pad(values[:, 1:], (0, 1)) - values
    A, k = delta, 1  # A sums k terms (gamma lam)^i delta_{t+i}; delta is 0 in the padding
    while k < T:
        A = A + (gamma * lam) ** k * pad(A[:, k:], (0, k))
        k *= 2
    return A


def value_loss(value, value_old, target, clip):
    """Return the critic's loss of each token, (N,): half the squared error of `value`, or of
    `value` clipped to value_old +- clip if this error is larger and clip > 0 (veRL)."""
    error = (value - target).square()
    if clip:
        clipped = value_old + (value - value_old).clamp(-clip, clip)
        error = error.maximum((clipped - target).square())
    return error / 2


def batch_indices(step, B_p, D, seed):
    """Return the indices (0 to D - 1) of the B_p problems in the batch of `step` (1, 2, ...). Each
    epoch has its own seeded order, and a batch may span two."""
    visits = range((step - 1) * B_p, step * B_p)
    order = {}
    for epoch in {visit // D for visit in visits}:
        order[epoch] = random.Random(f"order {seed} {epoch}").sample(range(D), D)
    return [order[visit // D][visit % D] for visit in visits]


# ---- Forward passes over prompts and responses ---------------------------------------------------

def micro_batches(lengths, micro_tokens, packed=False):
    """Cut rows into micro-batches, lists of row indices, the longest rows first.

    A micro-batch has at most `micro_tokens` tokens unless it is a single row. If rows are not
    packed, padding counts too, and a new micro-batch also begins if 128 tokens and 10% of it would
    be padding, because one more pass on a CPU takes less time.
    """
    batches, total = [], 0
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        total += lengths[i]
        widest = lengths[batches[-1][0]] if batches else 0
        size = total if packed or not batches else (len(batches[-1]) + 1) * widest
        if not batches or size > micro_tokens or size - total >= max(128, 0.1 * size):
            batches.append([])
            total = lengths[i]
        batches[-1].append(i)
    return batches


def token_positions(end, length):
    """Return (row, position), both (N,), of all tokens, the length[i] before end[i] in row i: end
    [3, 3] and length [1, 2] give row [0, 1, 1] and position [2, 1, 2]."""
    import torch
    position = torch.arange(int(end.max()), device=end.device)
    before_end = end[:, None] - position
    return ((0 < before_end) & (before_end <= length[:, None])).nonzero(as_tuple=True)


def response_states(model, ids, prompt_length, length):
    """Return (states, tokens): the states (N, d) that predict the N response tokens, and their ids.

    The state is that of the position before the token: for prompt [5, 6] and response [7, 8], the
    states are from positions 1 and 2. ids (R, L): prompts and responses, padded at the end.
    """
    import torch
    from core import packing
    end = prompt_length + length
    row, position = token_positions(end, length)
    before = end - 1  # no token comes after the last
    if packing.is_packed(model):
        states, start = packing.packed_states(model, ids, before), before.cumsum(0) - before
    else:
        hidden = model.base_model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state
        start = torch.arange(len(ids), device=ids.device) * hidden.shape[1]
        states = hidden.flatten(0, 1)
    return states.index_select(0, start[row] + position - 1), ids[row, position]


def autocast(device, cfg):
    """Return torch's autocast context for --dtype, without its cache of copied weights."""
    import torch
    return torch.autocast(device.type, torch.bfloat16, cache_enabled=False,
                          enabled=models.is_bf16(cfg["dtype"], device))


def token_logps(model, ids, prompt_length, length, cfg):
    """Return the log-probs (N,) and entropies (N,) of the response tokens.

    The tensors are as in `response_states`. cfg: temperature, dtype, micro_logits. At most
    `micro_logits` logits (tokens x vocabulary) exist at a time; the backward pass recomputes the
    logits of each chunk.
    """
    import torch
    from torch.utils.checkpoint import checkpoint
    from core.head import TokenLogps

    def logps(hidden, token):
        return TokenLogps.apply(models.logits_of(model, hidden), token, cfg["temperature"])
    with autocast(ids.device, cfg):
        hidden, token = response_states(model, ids, prompt_length, length)
        size = max(1, cfg["micro_logits"] // model.config.get_text_config().vocab_size)
        if len(token) <= size:
            return logps(hidden, token)
        parts = [checkpoint(logps, h, t, use_reentrant=False, preserve_rng_state=False)
                 for h, t in zip(hidden.split(size), token.split(size))]
        return tuple(torch.cat(part) for part in zip(*parts))


def token_values(critic, ids, prompt_length, length, cfg):
    """Return the critic's value before each response token, (N,). See `token_logps`."""
    with autocast(ids.device, cfg):
        hidden, _ = response_states(critic, ids, prompt_length, length)
        return critic.get_output_embeddings()(hidden).float().sum(-1)  # (N, 1) -> (N,)


def check_engine(gap, cfg, device):
    """Raise BadInput if the mean |logp - logp_engine| of the first update is more than rounding."""
    limit = 0.3 if models.is_bf16(cfg["dtype"], device) else 0.02
    if (gap or 0) > limit and cfg["top_p"] == 1:  # top_p renormalises the engine's
        raise BadInput(f"--model={cfg['model']}: log-probs of engine and trainer differ by "
                       f"{gap:.2g} on average in the first update, which is not rounding")


# ---- One update ----------------------------------------------------------------------------------

def gather_batch(batch):
    """Return (prompts, rewards (P, n), length (P n,), tokens, logps) of the whole batch, on every
    rank. tokens and logps (N,) are those of all responses, row by row. batch: as in `update_parts`.
    """
    import torch
    roll, n = batch["rollouts"], batch["rewards"].shape[1]
    inside = token_positions(roll["length"], roll["length"])
    part = (batch["prompts"], batch["rewards"], roll["length"], roll["tokens"][inside],
            roll["logps"][inside])
    if WORLD == 1:
        return part
    parts, ranks = [None] * WORLD, []
    torch.distributed.all_gather_object(parts, part)
    for prompts, rewards, length, tokens, logps in parts:
        size = length.view(-1, n).sum(1).tolist()  # tokens of each problem
        ranks.append(zip(prompts, rewards, length.split(n), tokens.split(size), logps.split(size)))
    # problem number i of a rank is number i WORLD + rank of the batch
    prompts, rewards, *flat = zip(*[group for groups in zip(*ranks) for group in groups])
    return prompts, torch.stack(rewards), *map(torch.cat, flat)


def loss_rows(rewards, length, advantage, step, cfg):
    """Return (rows, in_policy, in_reg, N) of a whole batch: rewards (P, n), length and advantage
    (P n,).

    rows: the indices of the rows in the loss. Without KL term, entropy term and critic, rows whose
    advantage is 0 are left out, but their tokens count in N[0] and N[1]. in_policy, in_reg (P n,):
    which rows are in the policy term, and in the KL and entropy terms (zero_var_filter). N: tokens
    of the policy term, of the KL and entropy terms, and of `rows`. The first two are at least 1, so
    a term without tokens is 0, not 0 / 0.
    """
    import torch
    n, rows = rewards.shape[1], torch.arange(rewards.numel())
    # decoupled baseline: all n rollouts give the advantages; a random n_train are in the loss
    if cfg["n_train"]:
        rows = torch.tensor([j * n + i for j in range(len(rewards)) for i in sorted(
            random.Random(f"n_train {cfg['seed']} {step} {j}").sample(range(n), cfg["n_train"]))])
    mixed = mixed_groups(rewards).repeat_interleave(n)
    in_policy, in_reg = (mixed | (cfg["zero_var_filter"] not in (terms, "all"))
                         for terms in ("policy", "reg"))
    N = [max(1, int((length * mask)[rows].sum())) for mask in (in_policy, in_reg)]
    if not (cfg["kl_coef"] or cfg["entropy_coef"] or cfg["algo"] == "ppo"):
        rows = rows[advantage[rows] != 0]
    return rows, in_policy, in_reg, [*N, int(length[rows].sum())]


def update_parts(model, batch, cfg):
    """Return (parts, N): this rank's micro-batches of an update, and the counts of `loss_rows`.

    batch: `step` and, of this rank's P problems, `prompts` (lists of ids), `rollouts` (of
    engine.generate) and `rewards` (P, n). A micro-batch is a namespace of R rows with T tokens on
    the model's device: prompt_length, length, reward (R,), logp_engine, advantage, in_policy,
    in_reg (T,). Its `ids` (R, L), prompts and responses, are on the host. dummy: it does not
    count. All ranks must call FSDP equally often, so some ranks get micro-batches of a dummy row.
    """
    import torch
    from core import packing
    prompts, rewards, length, tokens, logps = gather_batch(batch)
    A, n = advantages(rewards).flatten(), rewards.shape[1]
    rows, in_policy, in_reg, N = loss_rows(rewards, length, A, batch["step"], cfg)
    # deal rows by length, because ranks process micro-batches in lockstep
    by_length = length[rows].argsort(descending=True, stable=True)
    rows = rows[by_length[RANK::WORLD].sort().values]
    prompt_length = torch.tensor([len(p) for p in prompts]).repeat_interleave(n)
    total = prompt_length + length
    cut = [rows[indices] for indices in micro_batches(total[rows].tolist(), cfg["micro_tokens"],
                                                      packing.is_packed(model))]
    count = int(max(1, *all_reduce([len(cut)], "MAX")))
    tokens_of, logps_of = tokens.split(length.tolist()), logps.split(length.tolist())
    of_rows = dict(prompt_length=prompt_length, length=length, reward=rewards.flatten())
    of_tokens, parts = dict(advantage=A, in_policy=in_policy, in_reg=in_reg), []
    for own in cut + [total.argmin()[None]] * (count - len(cut)):
        part = {name: x[own] for name, x in of_rows.items()}
        part |= {name: x[own].repeat_interleave(length[own]) for name, x in of_tokens.items()}
        part["logp_engine"] = torch.cat([logps_of[i] for i in own.tolist()])
        ids = [torch.cat([torch.tensor(prompts[i // n]), tokens_of[i]]) for i in own.tolist()]
        part = {name: x.to(model.device) for name, x in part.items()}
        part["ids"] = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)
        parts.append(types.SimpleNamespace(**part, dummy=len(parts) >= len(cut)))
    return parts, N


@dataclasses.dataclass
class Learner:
    """The policy, the reference of the KL term and PPO's critic, with the optimizers."""
    model: object
    opt: object
    ref: object = None
    critic: object = None
    critic_opt: object = None

    def trained(self):
        """Return [(prefix of names in a checkpoint, model, optimizer), ...] of trained models."""
        policy = [("", self.model, self.opt)]
        return policy + [("critic.", self.critic, self.critic_opt)] * bool(self.critic)


def optimizer_step(trained, grad_clip):
    """Clip the gradients, make one step of each optimizer and clear the gradients. Return the norm
    of the first model's gradient before clipping, or nan and no step if a norm is not finite."""
    import torch
    norms = []
    for _, model, _ in trained:
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip or math.inf)
        norms.append((norm.full_tensor() if hasattr(norm, "full_tensor") else norm).item())
    good = all(norm < math.inf for norm in norms)  # False for nan too
    for _, _, opt in trained:
        if good:
            opt.step()
        opt.zero_grad()
    return norms[0] if good else math.nan


def run_part(function, model, part, cfg):
    """Call `function`, token_logps or token_values, on a micro-batch, and return its result."""
    return call_sharded(function, model)(part.ids.to(model.device), part.prompt_length,
                                         part.length, cfg)


def set_critic_targets(critic, parts, N, cfg):
    """Set `value_old` and `target` for PPO, and GAE, whitened over all N tokens, as `advantage`."""
    import torch
    for part in parts:
        with torch.no_grad():
            part.value_old = run_part(token_values, critic, part, cfg)
        inside = token_positions(part.length, part.length)
        values = part.value_old.new_zeros(len(part.length), int(part.length.max()))
        values[inside] = part.value_old
        A = gae(values, part.reward.to(values.dtype), part.length, cfg["gamma"],
                cfg["lam"])[inside]
        part.advantage, part.target = A, A + part.value_old

    def sum_over_tokens(term):
        return all_reduce([sum(term(part.advantage).double().sum().item()
                               for part in parts if not part.dummy)])[0]
    mean = sum_over_tokens(lambda A: A) / N
    std = (sum_over_tokens(lambda A: (A - mean).double().square()) / max(1, N - 1)) ** 0.5
    for part in parts:
        part.advantage = (part.advantage - mean) / (std + 1e-8)


def update_fields(s, N, steps):
    """Return the fields of the log for the sums `s` over N tokens on all ranks and `steps` steps.
    kl and kl_bounded are None without a reference, and value_loss is left out without a critic."""
    seen = N * steps
    known = seen - s["unknown"]

    def mean(name):
        return s[name] / seen if seen and name in s else None
    fields = dict(loss=s["loss"] / steps, entropy=mean("entropy"), kl=mean("kl"),
                  kl_bounded=int(s["far"] / steps) if "far" in s else None,
                  tis_mean=s["gap"] / known if known else None,
                  tis_capped=mean("capped"), engine_nan=int(s["unknown"] / steps),
                  ess=s["w"] ** 2 / (seen * s["w2"]) if s["w2"] else None,  # effective / all tokens
                  clip_frac=mean("clipped"))
    if "value_loss" in s:
        fields["value_loss"] = s["value_loss"] / steps
    return fields


def set_lr(learner, cfg, m):
    """Set the learning rates of update m, with linear warm-up. Return the policy's."""
    warmup = min(1.0, m / max(1, cfg["warmup"]))
    lrs = derive(cfg)["lr"] * warmup, cfg["critic_lr"] * warmup
    for (_, _, opt), lr in zip(learner.trained(), lrs):
        opt.param_groups[0]["lr"] = lr
    return lrs[0]


def update(learner, batch, cfg):
    """Make cfg["updates"] steps of AdamW, each on the whole batch. Return a dict for the log.

    batch: as in `update_parts`. A loss term is a sum over tokens, divided by its tokens on all
    ranks and in all micro-batches, so neither changes the result. Means over the N tokens of the
    loss are None if N = 0. grad_norm is nan if a step was skipped. To log another number, join it
    to the dict of the last line, after all_reduce([x]) or all_reduce([x], "MAX"): batch["rewards"]
    has all rewards of this rank's problems, `parts` has only the rows in the loss.
    """
    import torch
    model, ref, critic = learner.model, learner.ref, learner.critic
    parts, (N_policy, N_reg, N) = update_parts(model, batch, cfg)
    if critic:
        set_critic_targets(critic, parts, N, cfg)
    sums, norms = collections.Counter(), []  # sums are over this rank's tokens and all steps
    for step in range(cfg["updates"]):
        for part in parts:
            # multiply by WORLD, because the loss is a sum over ranks, but FSDP averages gradients
            scale = 0 if part.dummy else WORLD
            logp, entropy = run_part(token_logps, model, part, cfg)
            if step == 0:  # before the first step, the policy is the one that made the rollouts
                part.logp_old = logp.detach()
                part.weight = importance_weights(logp, part.logp_engine, cfg["tis_cap"])
                if ref:
                    with torch.no_grad(), lora.adapters_off(ref):
                        part.logp_ref, _ = run_part(token_logps, ref, part, cfg)
            terms = policy_loss(cfg["algo"], logp, part.logp_old, part.weight, part.advantage,
                                cfg["eps_low"], cfg["eps_high"])
            loss = (terms * part.in_policy).sum() / N_policy
            if cfg["kl_coef"]:
                kl = kl_term(cfg["kl_type"], logp, part.logp_ref) * part.in_reg
                loss = loss + cfg["kl_coef"] * kl.sum() / N_reg
            if cfg["entropy_coef"]:
                loss = loss - cfg["entropy_coef"] * (entropy * part.in_reg).sum() / N_reg
            (loss * scale).backward()
            added = dict(loss=loss)  # to `sums`; only update_fields makes fields of the log of them
            if critic:
                value = run_part(token_values, critic, part, cfg)
                error = value_loss(value, part.value_old, part.target, cfg["value_clip"]).sum() / N
                (error * scale).backward()
                added.update(value_loss=error)
            with torch.no_grad():
                known = part.logp_engine.isfinite()
                ratio = (logp - part.logp_old).exp()
                if ref:
                    added.update(kl=kl_term("k3", logp, part.logp_ref).sum(),
                                 far=(part.logp_ref - logp > KL_BOUND).sum())
                added.update(
                    entropy=entropy.sum(), w=part.weight.sum(), w2=part.weight.square().sum(),
                    gap=(part.logp_old - part.logp_engine)[known].abs().sum(),
                    unknown=(~known).sum(),
                    capped=(part.weight >= (cfg["tis_cap"] or math.inf)).sum(),
                    clipped=((ratio < 1 - cfg["eps_low"]) | (ratio > 1 + cfg["eps_high"])).sum())
                for name, x in added.items():
                    sums[name] += x.double() * (not part.dummy)
        norms.append(optimizer_step(learner.trained(), cfg["grad_clip"]))
    sums = dict(zip(sums, all_reduce(x.item() for x in sums.values())))
    return update_fields(sums, N, cfg["updates"]) | dict(grad_norm=sum(norms) / len(norms))


# ---- The run -------------------------------------------------------------------------------------

def memory_settings(model, cfg, device, engine_name):
    """Return (cfg with the memory keys decided for a GPU, whether vLLM stays awake during updates),
    and print what an update takes and whether the run may not fit.

    `activation_checkpointing`, `micro_tokens` and `micro_logits` are those of `cost.fitted`, and
    `gpu_memory` is vLLM's share of the card. It stays awake if the card has room for an update and
    a full KV cache, or if runs share the card, because a sleeping engine must have it to itself.
    """
    import torch
    shape = model.config.get_text_config().to_dict()
    width = 2 if models.is_bf16(cfg["dtype"], device) else 4
    runs = int(os.environ.get("RUNS_PER_GPU") or 1)
    card = all_reduce([torch.cuda.get_device_properties(device).total_memory], "MIN")[0] / runs
    s, need = cost.sizes(shape), 0
    full, some = (cost.engine_bytes(s, cfg, engine_name, responses) if s else unknown
                  for responses, unknown in ((cfg["gen_batch"], card), (cost.AT_ONCE, 0)))
    if s and width == 2:  # an update is estimated only in bf16
        # next to another run the engine cannot sleep, so the update gets the rest
        cfg = cost.fitted(s, cfg, WORLD, card - (runs > 1) * min(full, card / 2), engine_name)
        need = cost.update_bytes(s, cfg, WORLD, engine_name)
    once = cfg["activation_checkpointing"] == "false"
    if not once:
        cfg = dict(cfg, activation_checkpointing="true")
    P, body = model.num_parameters(), model.base_model
    sides = sum(sum(m.weight.shape) for m in body.modules() if isinstance(m, torch.nn.Linear))
    parts = cost.state_bytes(dict(P=P, body=body.num_parameters(), sides=sides), cfg, WORLD, width)
    held = sum(parts.values()) - parts["gradients"]
    need = max(need, held + parts["gradients"], held + width * P)
    notify(f"memory: activations are computed {'once' if once else 'again'}, micro_tokens="
           f"{cfg['micro_tokens']}; about {need / 1e9:.0f} of {card / 1e9:.0f} GB"
           + f" and {some / 1e9:.0f} for its engine" * (runs > 1)
           + ", so it may not fit (python -m core.cost)" * (need + some * (runs > 1) > card))
    # next to an update, which takes up to 1 / FULL of the estimate if it keeps activations
    room = cost.usable_bytes(card) - need / (cost.FULL if once else 1)
    wanted = cfg["gpu_memory"] * card * runs or full
    awake = runs > 1 or wanted <= room
    most = min(room, 1.1 * wanted) if awake else cost.usable_bytes(card) - held
    cfg = dict(cfg, gpu_memory=cfg["gpu_memory"] or max(0.1, min(0.9, most / card)) / runs)
    if runs > 1:  # then a run must not grow into the part of another
        torch.cuda.set_per_process_memory_fraction(cost.usable_bytes(card) / (card * runs), device)
        if s and engine_name == "vllm":
            cfg["kv_cache_bytes"] = int(max(cfg["gpu_memory"] * card * runs, some)
                                        - cost.engine_bytes(s, cfg))
    return cfg, awake


def updates_at(key, cfg):
    """Return the set of updates at which a run first reaches the budgets in cfg[key]. Those above C
    are left out; one beyond the last whole update maps to update M."""
    B = cfg["B_p"] * cfg["n"]
    return {min(math.ceil(C / B), cfg["C"] // B)
            for C in config.values_of(cfg, key) if C <= cfg["C"]}


def file_size(file):
    return os.fstat(file.fileno()).st_size


class Run:
    """A run: its config, problems, models, files and progress.

    A checkpoint holds weights, AdamW's moments and the dict `state`:

        step, tokens, skipped    updates made, their response tokens, updates skipped
        bad_in_a_row             how many of the latest updates in a row were skipped
        wall_s                   seconds of training in all launches
        log_bytes, samples_bytes sizes of the log and samples after the record of `step`
        lora                     the base model and the rank of the adapters, if there are any

    A checkpoint comes before an evaluation of the same update, so a run that resumes from it starts
    with the evaluation. `stop` lists the signals received.
    """

    def __init__(self, cfg):
        """Read the problem sets."""
        self.cfg, self.asked, d = cfg, cfg, derive(cfg)
        self.B, self.M = d["B"], d["M"]
        self.keep, self.passes = updates_at("keep_at", cfg), updates_at("pass_at", cfg)
        self.folder = Path(cfg["out"] or Path(cfg["runs"], d["run"]))
        self.problems = subset(read_problems(cfg["train_set"]), cfg["D"], cfg["seed"])
        self.vals = evaluation.read_sets(cfg["val_set"], first="val")
        self.hashes = dict(train_set_hash=set_hash(self.problems),
                           val_set_hash=set_hash(sum(self.vals.values(), [])))
        self.last_eval, self.stop, self.log, self.header = "", [], None, {}

    def due(self, m, every):
        """Return whether a task that repeats every `every` rollouts is due after update m."""
        return m == 0 or every and m * self.B // every > (m - 1) * self.B // every

    def open_log(self):
        """Open the log, lock it against a second process and read its header; rank 0 only. Raise
        BadInput if the log belongs to another experiment."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "log.jsonl"
        self.log = open(path, "ab", buffering=0)
        try:
            fcntl.flock(self.log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            raise BadInput(f"{self.folder}: another process is training in this folder") from None
        except OSError as e:
            notify(f"{path}: cannot be locked ({e.strerror}), so do not start a second process in "
                   "this folder")
        self.header = next((r for r in read_log(path) if r.get("type") == "header"), {})
        if self.header:
            old, new = (config.identity(cfg) for cfg in (self.header["config"], self.cfg))
            if differ := ", ".join(f"{key}={old[key]} there, {value} now"
                                   for key, value in new.items() if old.get(key, value) != value):
                raise BadInput(f"{self.folder}: holds a run of another config: {differ}; give "
                               "another --out or OUT=FOLDER")
            for key, value in self.hashes.items():
                if self.header.get(key) != value:
                    raise BadInput(f"{self.folder}: {self.cfg[key.removesuffix('_hash')]} has "
                                   f"changed since this run began ({key})")

    def warn_of_other_code(self):
        """Warn if the run was begun with other code."""
        begun, now = self.header.get("commit"), machine.commit()
        # a + does not say which edits, so such a commit differs from itself
        if begun and now and (begun != now or now.endswith("+")):
            notify(f"{self.folder}: begun by commit {begun}, the code now is {now} (+: with "
                   "edits); --out=FOLDER starts a new run")

    def write(self, record):
        """Append a record to the log; rank 0 only. After a header or an update, store the sizes of
        log and samples in `state`."""
        if RANK > 0:
            return
        append(self.log, record)
        if record["type"] in ("header", "step"):
            self.state.update(log_bytes=file_size(self.log), samples_bytes=file_size(self.samples))

    def load_models(self):
        """Load the learner's models and open the generator, the engine that makes the rollouts.
        Raise BadInput if the log names another engine or other base weights, or if a prompt may be
        too long."""
        cfg, limit = self.cfg, self.cfg["max_prompt_tokens"]
        name = self.engine_name = engine.engine_name(cfg)  # before torch is imported
        before = self.header.get("engine", name)
        if before != name:
            raise BadInput(f"{self.folder}: its rollouts came from {before}, now they would come "
                           f"from {name}; use --engine={before}")
        base, rank, header = models.model_folder(cfg["model"]), cfg["lora_rank"], self.header
        now = models.weights_hash(base) if RANK == 0 else None
        self.base, self.hashes["model_hash"] = base, now
        # --model is a folder or another run, which now has newer weights than when this run began
        if header.get("base", base) != base or header.get("model_hash", now) != now:
            raise BadInput(f"{self.folder}: began with the weights in {header.get('base', base)}, "
                           f"but --model={cfg['model']} has others now; --out=FOLDER starts anew")
        models.check_lengths(base, cfg)
        device = models.start_ranks(cfg["device"])
        cuda = device.startswith("cuda")
        bf16 = cuda and models.is_bf16(cfg["dtype"], device)  # frozen weights are bf16
        awake = False
        if cuda:
            shapes = models.load_weights(base, "meta")
            cfg, awake = memory_settings(shapes, cfg, device, name)
            self.cfg = cfg
        model, self.tokenizer = models.load_model(
            base, "meta" if WORLD > 1 else "cpu" if rank else device)
        self.prompts = encode(cfg["train_set"], self.problems, self.tokenizer, limit)
        self.val_prompts = {part: encode(part, val, self.tokenizer, limit)
                            for part, val in self.vals.items()}
        # freeze before the engine opens, because bf16 weights leave the engine more memory
        if rank:
            model = lora.freeze(model, bf16).to(device)
        self.generator = engine.open_engine(name, base, cfg, device, model, self.tokenizer, awake)
        if WORLD > 1:  # `restore_checkpoint` loads it; until then the models need its memory
            self.generator.sleep()
        if rank:
            lora.add_adapters(model, rank, cfg["seed"])
        ref = None
        # the reference is a frozen copy or, with adapters, the model itself with its adapters off
        if cfg["kl_coef"]:
            ref = model if rank else lora.freeze(copy.deepcopy(model), bf16)
        critic = models.load_critic(base, str(model.device)) if cfg["algo"] == "ppo" else None
        self.learner = build_learner(model, ref, critic, cfg, device, base)

    def restore_checkpoint(self):
        """Load the newest checkpoint into learner and `state`; return True if there is none. Raise
        BadInput if it is beyond the budget, or if a finished run kept none."""
        cfg, folder = self.cfg, self.folder
        has_header, = all_reduce([bool(self.header)])  # only rank 0 has read the log
        saved = models.load_checkpoint(folder, self.learner.trained()) if has_header else None
        if saved is None and progress(folder)[1] == "budget":
            raise BadInput(f"{folder}: finished, and its checkpoints are gone (--keep_last=false), "
                           "so a larger C cannot continue it; --out=FOLDER starts a new run")
        state = self.state = saved or dict(
            step=0, tokens=0, skipped=0, bad_in_a_row=0, wall_s=0.0, log_bytes=0, samples_bytes=0)
        if state["step"] > self.M:
            raise BadInput(f"--C={cfg['C']}: {folder} already has {state['step'] * self.B} "
                           "rollouts; the budget must be as large or larger")
        self.saved = saved and saved["step"]
        self.began = time.time() - state["wall_s"]
        # a checkpoint holds the adapters but not the base model, so `state` must name that model
        if cfg["lora_rank"]:
            base = Path(self.base)
            state["lora"] = dict(model=str(base.resolve() if base.exists() else base),
                                 rank=cfg["lora_rank"], weights=self.hashes["model_hash"])
        # with one rank and no checkpoint, no load is needed: the generator has the base weights
        if saved or WORLD > 1:
            self.generator.load(full_weights(self.learner.model))
        return saved is None

    def begin_log(self, new):
        """Truncate log and samples to the checkpoint, or write the header of a new log; rank 0
        only. Raise BadInput if the log is shorter than it was at the checkpoint."""
        cfg, folder, state, ckpt = self.cfg, self.folder, self.state, self.folder / "ckpt"
        self.samples = open(folder / "samples.jsonl", "ab", buffering=0)
        if file_size(self.log) < state["log_bytes"]:
            raise BadInput(f"{folder}/log.jsonl: shorter than it was at the checkpoint of update "
                           f"{state['step']}; bring it back, or remove ckpt/")
        # without a checkpoint the run starts again; keep the records of all earlier starts
        if new and file_size(self.log):
            with open(folder / "log.unused.jsonl", "ab") as file:
                file.write(Path(self.log.name).read_bytes())
        self.log.truncate(state["log_bytes"])
        self.samples.truncate(min(state["samples_bytes"], file_size(self.samples)))
        # remove the model that was exported at a smaller budget, because training now continues
        shutil.rmtree(folder / "model", ignore_errors=True)
        for m in self.keep:  # a checkpoint that an earlier launch would have removed
            if (path := models.checkpoint_path(folder, m)).exists():
                (path / "keep").touch()
        if new and ckpt.exists():  # all checkpoints are incomplete, or the log was deleted
            shutil.rmtree(folder / "ckpt.unused", ignore_errors=True)
            ckpt.rename(folder / "ckpt.unused")
        if new:
            versions = {name: sys.modules[name].__version__
                        for name in ("torch", "transformers", self.engine_name) if name != "hf"}
            self.write(dict(
                type="header", schema=1, config=dict(self.asked, out=""),
                derived=derive(cfg) | dict(D=len(self.problems)),
                base=self.base, engine=self.engine_name, device=str(self.learner.model.device),
                versions=dict(python=sys.version.split()[0], **versions), commit=machine.commit(),
                **self.hashes, ranks=WORLD, loading_s=time.time() - START,
                time=time.strftime("%Y-%m-%dT%H:%M:%S%z")))
        else:
            self.warn_of_other_code()
        notify(f"{folder}: B_p={cfg['B_p']} n={cfg['n']} M={self.M} C={self.B * self.M} "
               f"lr={derive(cfg)['lr']:.3g}, from update {state['step']}")

    def batch(self, m):
        """Return the problems, prompts and seeds of this rank's places in the batch of update m."""
        B_p, seed = self.cfg["B_p"], self.cfg["seed"]
        mine = batch_indices(m, B_p, len(self.problems), seed)[RANK::WORLD]
        return ([self.problems[i] for i in mine], [self.prompts[i] for i in mine],
                [engine.rollout_seed(seed, "train", m, j) for j in range(RANK, B_p, WORLD)])

    def on_all_ranks(self, draw):
        """Call draw() and return its result. If any rank must stop, raise Stopped on all ranks."""
        drawn = None
        with contextlib.suppress(engine.Stopped):
            drawn = draw()
        if all_reduce([len(self.stop)], "MAX")[0]:
            raise engine.Stopped
        return drawn

    def count_solved(self, problems, prompts, cfg, key):
        """Return evaluation.count_solved for all `problems`; each rank draws a part."""
        mine, correct = range(RANK, len(problems), WORLD), [0] * len(problems)
        nothing = [], 0, dict(verifier_timeouts=0, verifier_errors=0)  # with few problems
        correct[RANK::WORLD], total, faults = self.on_all_ranks(lambda: evaluation.count_solved(
            problems, prompts, self.generator, cfg, key, mine) if mine else nothing)
        *correct, total, timeouts, errors = all_reduce([*correct, total, *faults.values()])
        return [int(c) for c in correct], total, dict(zip(faults, (int(timeouts), int(errors))))

    def evaluate(self, m):
        """Log evaluations of the policy after update m on every validation set."""
        cfg, tokens = self.cfg, self.state["tokens"]
        for name, val in self.vals.items():
            key = cfg["seed"], "val", *[name] * (name != "val"), m
            counts = self.count_solved(val, self.val_prompts[name], cfg, key)
            record = dict(type="eval", step=m, rollouts=m * self.B, tokens=tokens,
                          **evaluation.eval_record(val, *counts, cfg, name))
            # for the progress bar: avg@k counts only rewards of 1, `reward` is there for fractions
            if name == "val":
                self.last_eval = "".join(f", val {key} {record[key]:.3f}" for key in
                                         (f"avg@{cfg['k']}", "reward") if key in record)
            self.write(record)

    def evaluate_training(self, m):
        """Log pass@1 of every training problem under the current policy, from new rollouts."""
        cfg, ids = dict(self.cfg, samples=self.cfg["s"]), [p["id"] for p in self.problems]
        correct, total, faults = self.count_solved(
            self.problems, self.prompts, cfg, (cfg["seed"], "train_pass", m))
        self.write(dict(
            type="train_pass", step=m, rollouts=m * self.B, ids=ids, samples=[cfg["s"]] * len(ids),
            correct=correct, **evaluation.mean_reward(total, correct, cfg["s"] * len(ids)),
            fresh=True, **faults))

    def evaluate_due(self, m):
        """Make the evaluations that are due after update m."""
        if self.due(m, self.cfg["eval_every"]):
            self.evaluate(m)
        if m in self.passes:
            self.evaluate_training(m)

    def write_samples(self, m, problem, rollouts, rewards):
        """Write a few rollouts of a batch's first problem to samples.jsonl, for people to read."""
        every = self.cfg["sample_every"]
        if RANK > 0 or not every or (m - 1) % every:
            return
        for i in range(min(4, rewards.shape[1])):
            length = int(rollouts["length"][i])
            text = self.tokenizer.decode(rollouts["tokens"][i, :length].tolist())
            append(self.samples, dict(
                step=m, id=problem["id"], answer=problem["answer"], reward=rewards[0, i].item(),
                length=length, finish="stop" if rollouts["stopped"][i] else "length", text=text))

    def checkpoint(self):
        """Save a checkpoint of update state["step"], unless there is one already."""
        if self.saved == self.state["step"]:
            return
        self.saved, self.state["wall_s"] = self.state["step"], time.time() - self.began
        for file in (self.log, self.samples) if RANK == 0 else ():
            os.fsync(file.fileno())
        models.save_checkpoint(self.folder, self.learner.trained(), self.tokenizer, self.state,
                               self.saved in self.keep)

    def finish(self, status):
        """Write the end record, and if the budget is spent, export the model."""
        rollouts, cfg = self.state["step"] * self.B, self.cfg
        if status == "stopped":
            self.checkpoint()
        if status == "budget":
            part = self.folder / "model.part"
            models.write_model(part, self.learner.model, self.tokenizer, cfg["dtype"])
            if RANK == 0:
                part.rename(self.folder / "model")
        if RANK == 0:
            self.write(dict(type="end", status=status, rollouts=rollouts))
            os.fsync(self.log.fileno())
            if status == "budget" and not cfg["keep_last"]:
                models.keep_checkpoints(self.folder, 0)
            ended = "budget used" if status == "budget" else status
            notify(f"{self.folder}: {ended} after {rollouts} rollouts{self.last_eval}")
        # vLLM destroys the process group at exit
        if WORLD > 1 and self.engine_name == "hf":
            import torch
            torch.distributed.destroy_process_group()


def build_learner(model, ref, critic, cfg, device, base):
    """Return the Learner of a run, with its models sharded over the ranks. Models on the meta
    device read their weights from `base`."""
    import torch
    from core import packing
    if why := packing.why_padded(model, device, models.is_bf16(cfg["dtype"], device)):
        if device != "cpu":
            notify(f"an update pads its rows, because {why}")
    # the reference may be the model itself, and all ranks must shard models in the same order
    for m in filter(None, dict.fromkeys((model, critic, ref))):
        if not why:
            packing.pack(m)
        if cfg["activation_checkpointing"] == "true":
            models.checkpoint_activations(m)
        if WORLD > 1:
            models.shard_model(m, device, token_values if m is critic else token_logps,
                               cfg["dtype"])
        if m.device.type == "meta":
            load = models.load_critic if m is critic else models.load_weights
            models.load_shards(m, load, base, device)

    def adamw(m):
        return torch.optim.AdamW(m.parameters(), fused=True, weight_decay=cfg["weight_decay"])
    learner = Learner(model, adamw(model), ref, critic, critic and adamw(critic))
    # allocate the moments before any activations; later they would fragment the GPU's memory
    models.training_state(learner.trained())
    return learner


def stop_at_signals(stop):
    """Install handlers that append SIGTERM and SIGINT (Ctrl-C) to the list `stop`.

    A run that generates then drops these rollouts, one in an update finishes it. A second Ctrl-C
    ends the process at once; the next start resumes from the last checkpoint.
    """
    def handle(number, _):
        if number == signal.SIGINT and stop:
            raise KeyboardInterrupt
        stop.append(number)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)


def open_run(cfg):
    """Return the Run, ready for its next update, or the exit code of a run that is finished."""
    run = Run(cfg)
    # open the log first, so that a run that is refused or already finished loads no model
    if RANK == 0 and (run.folder / "log.jsonl").exists():
        run.open_log()
    if finished(cfg, run.folder):
        if RANK == 0:
            run.warn_of_other_code()
            model = run.folder / "model"
            where = f"; its model is {model}" if model.is_dir() else ""
            print(f"{run.folder}: finished before, nothing to do{where}")
        return DIVERGED if progress(run.folder)[1] == "diverged" else 0
    run.load_models()
    if RANK == 0 and not run.log:
        run.open_log()
    new = run.restore_checkpoint()
    if RANK == 0:
        run.begin_log(new)
    return run


def progress_bar(run):
    """Return a tqdm bar that counts the run's rollouts. If stderr is a file, print plain lines."""
    from tqdm import tqdm
    cfg = run.cfg
    return tqdm(total=run.B * run.M, initial=run.B * run.state["step"], unit="roll",
                unit_scale=True, mininterval=1, disable=RANK > 0,
                desc=f"Bp{cfg['B_p']} n{cfg['n']} s{cfg['seed']}",
                bar_format=None if sys.stderr.isatty() else "{percentage:3.0f}% of {total_fmt} "
                "[{elapsed}<{remaining}, {rate_fmt}]{postfix}")


def main(argv):
    cfg = parse(argv, __doc__)
    config.check_run(cfg)
    choose("verifier", cfg["verifier"], verifier.REWARDS)
    config.check_processes(cfg, WORLD)
    if isinstance(run := open_run(cfg), int):
        return run
    cfg, learner, generator, state, B = run.cfg, run.learner, run.generator, run.state, run.B
    generator.quit = run.stop
    stop_at_signals(run.stop)
    status = "stopped"
    with contextlib.suppress(engine.Stopped), progress_bar(run) as bar:
        run.evaluate_due(state["step"])  # the base model, or one that was due before
        for m in range(state["step"] + 1, run.M + 1):
            # 1. rollouts: n for each of the B_p problems of this batch
            t0 = time.time()
            problems, prompts, seeds = run.batch(m)
            rollouts = run.on_all_ranks(lambda: generator.generate(prompts, cfg["n"], seeds))

            # 2. rewards of this rank's rollouts, (B_p / WORLD, n)
            rewards, faults = verifier.grade(problems, rollouts, run.tokenizer, cfg)
            solved = verifier.solved(rewards).sum(1)
            generator.sleep()

            # 3. advantages, loss, cfg["updates"] steps of AdamW
            t1 = time.time()
            lr = set_lr(learner, cfg, m)
            batch = dict(prompts=prompts, rollouts=rollouts, rewards=rewards, step=m)
            fields = update(learner, batch, cfg)
            generator.load(full_weights(learner.model))

            # 4. the log
            t2 = time.time()
            sums = rewards, rollouts["length"], rollouts["stopped"], solved == cfg["n"], solved == 0
            reward, tokens, stopped, all_right, all_wrong, *counts = all_reduce(
                [*(x.double().sum().item() for x in sums), *faults.values()])
            bad = math.isnan(fields["grad_norm"])
            if m == 1:
                check_engine(fields["tis_mean"], cfg, learner.model.device)
            state["step"] = m
            state["tokens"] += int(tokens)
            state["skipped"] += bad
            state["bad_in_a_row"] = (state["bad_in_a_row"] + 1) * bad
            run.write_samples(m, problems[0], rollouts, rewards)
            run.write(dict(
                type="step", step=m, rollouts=m * B, tokens=state["tokens"],
                wall_s=time.time() - run.began, lr=lr, reward=reward / B, **fields,
                response_len=tokens / B, truncated=1 - stopped / B,
                frac_all_right=all_right / cfg["B_p"], frac_all_wrong=all_wrong / cfg["B_p"],
                skipped=state["skipped"], **dict(zip(faults, map(int, counts))),
                gen_s=t1 - t0, train_s=t2 - t1))

            # 5. checkpoint, evaluation
            if state["bad_in_a_row"] >= 10:
                status = "diverged"  # the newest checkpoint is from before the 10 updates
                break
            if (run.due(m, cfg["save_every"]) and not bad) or m in (run.M, *run.keep):
                run.checkpoint()
            run.evaluate_due(m)
            bar.update(B)
            bar.set_postfix_str(f"training reward {reward / B:.3f}{run.last_eval}", refresh=False)
        else:
            # a larger C resumes from the last checkpoint and cuts this evaluation from the log
            if not run.due(run.M, cfg["eval_every"]):
                run.evaluate(run.M)
            status = "budget"

    run.finish(status)
    return dict(budget=0, diverged=DIVERGED,
                stopped=128 + (run.stop + [signal.SIGTERM])[0])[status]


if __name__ == "__main__":
    entry(main)
