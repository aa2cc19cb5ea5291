"""train_grpo.py: one run of RL, C = B_p n M rollouts -> runs/SWEEP/RUN/{log.jsonl, samples.jsonl, ckpt/, model/}.

    python train_grpo.py --B_p=8 --n=16 --C=32768                 # the embedded model, a minute or two on one core
    python train_grpo.py --model=Qwen/Qwen2.5-7B-Instruct --train_set=easy.jsonl --val_set=val.jsonl --B_p=32 --n=64 --C=1e6
    torchrun --nproc_per_node=8 -- train_grpo.py --model=...      # FSDP2 over 8 GPUs, problems split over them; --nnodes for more
    python train_grpo.py --config=header.json --seed=1            # the flat dict of another run's header, another seed

The same command again goes on where the run was stopped or killed, and does nothing if it is finished; a larger --C continues
it. Every draw comes from (seed, step, problem, i), so with the transformers engine a resumed run writes what an uninterrupted
one would have written; on another number of ranks too, but for rounding.

As in the paper: groups of n rollouts, A = (r - mean) / std, token-mean loss, AdamW with 10 warm-up updates and
lr = lr_base sqrt(B / 1024), KL and entropy terms on Easy and none on Hard, temperature 0.6, importance weights against the
engine's log-probs, on-policy (one optimizer step a batch), PPO and CISPO beside GRPO. What differs or is our choice:
- kl_coef, entropy_coef, tis_cap, eps_low, eps_high, the k3 estimator of the KL: the paper does not print them;
- `updates` optimizer steps go over the whole batch each, not over parts of it, so B and its lr mean the same at any value; with
  one step the ratio is 1, nothing is clipped, and CISPO has GRPO's gradient: compare the two at updates=2 or more;
- PPO's KL is a term of the loss, as GRPO's, and not of the reward; its critic starts from the base model with a head of zeros;
- the trainer computes log-probs in bf16 on a GPU (weights, gradients and AdamW in fp32), in fp32 on a CPU, without dropout;
- problems come in seeded epochs without replacement; a batch may span two.

Needs config.py, sample.py, evaluate.py.
"""
import contextlib
import copy
import errno
import fcntl
import functools
import os
import random
import shutil
import signal
import sys
import time
import types
from pathlib import Path

START = time.time()  # before torch is loaded: the header tells a sweep's estimate how long that takes

import config
import evaluate
import sample
from config import BadInput, append, derive, entry, parse

RANK, WORLD = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))  # torchrun's; a plain run is rank 0 of 1


# ---------------------------------------------------------------------------------------------------------------------
# The mathematics: pure functions of tensors

def advantages(rewards):
    """Group-normalised advantages, (B_p, n) -> (B_p, n): (r - mean) / (std + 1e-6), std with ddof 1 (paper, section 2).

    A group of equal rewards gets zeros. Two rollouts, one right: +-0.7071; the weight of a problem grows with n.
    """
    mean, std = rewards.mean(1, keepdim=True), rewards.std(1, keepdim=True)
    return (rewards - mean) / (std + 1e-6) * varied(rewards)[:, None]


def varied(rewards):
    """Which groups have rewards that differ, (B_p, n) -> (B_p,) bool. Their std does not tell: of n times 0.7 it is not 0."""
    return (rewards != rewards[:, :1]).any(1)


def gae(values, rewards, lengths, gamma, lam):
    """Generalised advantage estimates (Schulman et al. 2016, eq. 16), the reward given with the last token of a response.

    values (R, T): the critic's before each token, padding behind ignored; rewards (R,); lengths (R,). Returns (R, T), padding 0:
    A_t = delta_t + gamma lam A_{t+1}, delta_t = r_t + gamma V_{t+1} - V_t, V = 0 after the end. At gamma = lam = 1: A_t = r - V_t.
    Worked: values [0.5, 0.2], reward 1, gamma = lam = 0.5: delta = [0.5 * 0.2 - 0.5, 1 - 0.2] = [-0.4, 0.8], A = [-0.2, 0.8].
    """
    import torch
    T = values.shape[1]
    inside = torch.arange(T, device=values.device) < lengths[:, None]
    last = torch.arange(T, device=values.device) == lengths[:, None] - 1
    values = values * inside
    following = torch.cat([values[:, 1:], torch.zeros_like(values[:, :1])], 1)
    delta = (rewards[:, None] * last + gamma * following - values) * inside
    A, ahead = torch.zeros_like(values), torch.zeros_like(rewards)
    for t in reversed(range(T)):  # beyond the end delta is 0, so what is ahead of the last token is 0
        A[:, t] = ahead = delta[:, t] + gamma * lam * ahead
    return A


def batch_indices(step, B_p, D, seed):
    """Which of D problems are in the batch of `step` (1, 2, ...): B_p indices from the seeded order of each epoch.

    A function of its arguments alone: there is no cursor to save. D=3, B_p=2: steps 1 and 2 see one epoch and the first of the next.
    """
    places = range((step - 1) * B_p, step * B_p)
    order = {epoch: random.Random(f"order {seed} {epoch}").sample(range(D), D) for epoch in {place // D for place in places}}
    return [order[place // D][place % D] for place in places]


def micro_batches(lengths, micro_tokens):
    """Row indices, longest sequences first, cut so that rows x longest stays within micro_tokens (one row at least) and so
    that under a tenth of it is padding."""
    batches, tokens = [], 0
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        size = (len(batches[-1]) + 1) * lengths[batches[-1][0]] if batches else 0
        if not batches or size > micro_tokens or tokens + lengths[i] <= 0.9 * size:
            batches.append([])
            tokens = 0
        batches[-1].append(i)
        tokens += lengths[i]
    return batches


def places(start, length):
    """length[i] consecutive positions from start[i] in each row i, as (row, position), both (N,).

    start [2, 1], length [1, 2] -> row [0, 1, 1], position [2, 1, 2].
    """
    import torch
    row = torch.repeat_interleave(torch.arange(len(length), device=length.device), length)
    before = torch.repeat_interleave(length.cumsum(0) - length, length)  # tokens of the rows above
    return row, torch.arange(len(row), device=length.device) - before + start[row]


def responses(model, ids, prompt_length, length):
    """The last hidden states that predict the response tokens, (N, d), and these tokens, (N,), row by row.

    ids (R, L): prompt then response, padded behind, where a causal model does not look, so no mask is needed. The state that
    predicts a token is at the position before it: prompt [5, 6], response [7, 8] takes the states at positions 1 and 2.
    """
    row, place = places(prompt_length, length)
    hidden = model.base_model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state  # (R, L - 1, d): the last predicts nothing
    return hidden.flatten(0, 1).index_select(0, row * hidden.shape[1] + place - 1), ids[row, place]


def token_logps(model, ids, prompt_length, length, temperature, micro_logits=2**27):
    """Log-probs and entropies of the response tokens at `temperature`, (N,) each, row by row; arguments as in `responses`.

    No more than `micro_logits` logits (tokens x vocabulary) exist at once: larger batches go through head, softmax and entropy
    in chunks, whose logits the backward pass computes again.
    """
    import torch
    from torch.utils.checkpoint import checkpoint
    head = model.get_output_embeddings()

    def logps(hidden, token):
        logp = torch.log_softmax(head(hidden).float() / temperature, -1)  # (N, V)
        return logp[torch.arange(len(token), device=token.device), token], -(logp.exp() * logp).sum(-1)
    with torch.autocast(ids.device.type, torch.bfloat16, enabled=ids.device.type == "cuda"):
        hidden, token = responses(model, ids, prompt_length, length)
        size = max(1, micro_logits // model.config.vocab_size)
        if len(token) <= size:
            return logps(hidden, token)
        parts = [checkpoint(logps, h, t, use_reentrant=False, preserve_rng_state=False)
                 for h, t in zip(hidden.split(size), token.split(size))]
        return tuple(torch.cat(part) for part in zip(*parts))


def token_values(critic, ids, prompt_length, length):
    """The critic's value before each response token, (N,); arguments as in `responses`."""
    import torch
    with torch.autocast(ids.device.type, torch.bfloat16, enabled=ids.device.type == "cuda"):
        return critic.score(responses(critic, ids, prompt_length, length)[0]).float().sum(-1)  # (N, 1) -> (N,)


def importance_weights(logp, logp_engine, cap):
    """Truncated importance weights, detached: min(exp(logp - logp_engine), cap) a token; ones where cap is 0. All (N,)."""
    import torch
    logp = logp.detach()
    return (logp - logp_engine).exp().clamp(max=cap) if cap else torch.ones_like(logp)


def kl_term(kind, logp, logp_ref):
    """An estimator of KL(policy || ref) from each token, (N,), with d = logp - logp_ref: k1 = d, k2 = d^2 / 2, k3 = exp(-d) + d - 1.

    The mean of k1 and of k3 over the policy's tokens is KL(policy || ref). As a loss, where no gradient goes through the choice
    of the tokens, k3 has the gradient of KL(ref || policy), k2 that of KL(policy || ref), and k1 none in expectation.
    """
    d = logp - logp_ref
    return dict(k1=lambda: d, k2=lambda: d.square() / 2, k3=lambda: (-d).exp() + d - 1)[kind]()


def policy_loss(algo, logp, logp_old, weight, advantage, eps_low, eps_high):
    """The policy term of each token, all (N,), with ratio = exp(logp - logp_old) and c(x) = clip(x, 1 - eps_low, 1 + eps_high).

    grpo, ppo: -w min(ratio A, c(ratio) A). cispo: -w sg(c(ratio)) A logp (MiniMax-M1, eq. 4): no token loses its gradient.
    """
    import torch
    ratio = (logp - logp_old).exp()
    clipped = ratio.clamp(1 - eps_low, 1 + eps_high)
    if algo == "cispo":
        return -weight * clipped.detach() * advantage * logp
    return -weight * torch.minimum(ratio * advantage, clipped * advantage)


def value_loss(value, value_old, target, clip):
    """The critic's term of each token (N,): half the squared error, or that of the value kept within `clip` of the old one
    where it is larger (as in veRL); clip = 0: no clipping."""
    import torch
    error = (value - target).square()
    if clip:
        error = torch.maximum(error, (value_old + (value - value_old).clamp(-clip, clip) - target).square())
    return error / 2


# ---------------------------------------------------------------------------------------------------------------------
# Many ranks: torchrun starts one process a GPU, on a CPU too (gloo)

def start_ranks(device):
    """Join torchrun's process group; a plain run has none. Returns the device of this rank."""
    import torch
    cuda = torch.cuda.is_available() if device == "auto" else device == "cuda"
    if cuda and not torch.cuda.is_available():
        raise BadInput("--device=cuda: torch sees no GPU here")
    if WORLD > 1:
        torch.distributed.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo")
    if not cuda:
        return "cpu"
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    return f"cuda:{torch.cuda.current_device()}"


def over_ranks(numbers, op="SUM"):
    """A list of numbers reduced over the ranks, number by number."""
    if WORLD == 1:
        return list(numbers)
    import torch
    tensor = torch.tensor(list(numbers), dtype=torch.float64)
    torch.distributed.all_reduce(tensor, getattr(torch.distributed.ReduceOp, op))
    return tensor.tolist()


def shard(model, device, forward):
    """FSDP2: parameters, gradients and moments in fp32, split over all ranks; compute in bf16 on a GPU. In place.

    `forward` is the function that goes through the model in training, token_logps or token_values: FSDP gathers the weights of
    the embedding and the head around it, and those of a layer around that layer.
    """
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
    cuda = torch.device(device).type == "cuda"
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if cuda else MixedPrecisionPolicy()
    mesh = torch.distributed.init_device_mesh("cuda" if cuda else "cpu", (WORLD,))
    for layer in model.base_model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    setattr(model, forward.__name__, types.MethodType(forward, model))
    register_fsdp_forward_method(model, forward.__name__)


def through(function, model):
    """function(model, ...), with FSDP's hooks around it where the model is sharded for it."""
    return getattr(model, function.__name__, functools.partial(function, model))


def full_weights(model):
    """(name, whole tensor) of each parameter, tied ones once; every rank must go through all of them, in this order."""
    for name, p in model.named_parameters():
        yield name, (p.full_tensor() if hasattr(p, "full_tensor") else p).detach()


def checkpoint_activations(model):
    """Keep only the input of each layer for the backward pass, and compute the rest again. Dropout stays off."""
    model.gradient_checkpointing_enable(dict(use_reentrant=False))
    for layer in model.base_model.layers:
        layer.training = True  # of the layer alone: transformers asks it, its dropouts ask themselves


# ---------------------------------------------------------------------------------------------------------------------
# One update

def flatten(batch, cfg, device):
    """The rollouts that the loss needs as tensors: (R, ...) a rollout, (N,) a response token, row by row; and over how many
    tokens the policy term is a mean, KL and entropy are, and the record's fields are.

    Where there is neither KL nor entropy term nor critic, groups of equal rewards have no gradient and are left out; the means
    are over their tokens too, unless zero_var_filter says otherwise. batch: dict of `prompts` (lists of ids), `rollouts`
    (sample.generate), `rewards` (P, n), `step`, and where there are more ranks `places`, the numbers of these P problems in the
    whole batch.
    """
    import torch
    roll, rewards, n = batch["rollouts"], batch["rewards"], batch["rewards"].shape[1]
    n_train = cfg["n_train"] or n
    rows = torch.arange(len(rewards) * n)
    if n_train < n:  # decoupled baseline: mean and std from all n, a random n_train of each group in the loss
        draws = [random.Random(f"n_train {cfg['seed']} {batch['step']} {j}") for j in batch.get("places", range(len(rewards)))]
        rows = torch.tensor([g * n + i for g, rng in enumerate(draws) for i in sorted(rng.sample(range(n), n_train))])
    mixed = varied(rewards).repeat_interleave(n)  # (P n,) False in zero-variance groups
    every, only_mixed = int(roll["length"][rows].sum()), int((roll["length"][rows] * mixed[rows]).sum())
    policy_filtered, reg_filtered = cfg["zero_var_filter"] in ("policy", "all"), cfg["zero_var_filter"] in ("reg", "all")
    counts = [only_mixed if policy_filtered else every, only_mixed if reg_filtered else every, every]
    if not (cfg["kl_coef"] or cfg["entropy_coef"] or cfg["algo"] == "ppo"):
        rows, counts[2] = (rows[mixed[rows]], only_mixed) if only_mixed else (rows[:1], 0)  # one row, so that FSDP has a pass
    length, group = roll["length"][rows], rows // n  # (R,)
    prompt_length = torch.tensor([len(p) for p in batch["prompts"]])[group]
    row, t = places(torch.zeros_like(length), length)  # (N,): which rollout, which of its tokens
    tokens = roll["tokens"][rows][row, t]
    ids = torch.zeros(len(rows), int((prompt_length + length).max()), dtype=torch.long)
    prompts = torch.nn.utils.rnn.pad_sequence([torch.tensor(p) for p in batch["prompts"]], batch_first=True)
    width = min(prompts.shape[1], ids.shape[1])
    ids[:, :width] = prompts[group, :width]
    ids[row, prompt_length[row] + t] = tokens
    mixed = mixed[rows][row]  # (N,)
    all_ = torch.ones_like(mixed)
    flat = dict(ids=ids, prompt_length=prompt_length, length=length, start=length.cumsum(0) - length,
                logp_engine=roll["logps"][rows][row, t], reward=rewards.flatten()[rows],
                advantage=advantages(rewards).flatten()[rows][row],
                in_policy=mixed if policy_filtered else all_,
                in_reg=mixed if reg_filtered else all_)
    return {name: tensor.to(device) for name, tensor in flat.items()}, counts


def optimizer_step(trained, grad_clip):
    """Clip the gradients, one step of each optimizer, forget the gradients. trained: [(model, optimizer, lr), ...].

    Returns the norm of the first model's gradient before clipping; where any norm is not finite, nothing moves and it is nan.
    """
    import torch
    norms = []
    for model, _, _ in trained:
        norm = torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.grad is not None], grad_clip or float("inf"))
        norms.append((norm.full_tensor() if hasattr(norm, "full_tensor") else norm).item())
    good = all(norm < float("inf") for norm in norms)  # False for nan too
    for _, opt, lr in trained:
        for group in opt.param_groups:
            group["lr"] = lr
        if good:
            opt.step()
        opt.zero_grad()
    return norms[0] if good else float("nan")


def update(model, ref, opt, batch, cfg, lr, critic=None, critic_opt=None, critic_lr=0.0):
    """Gradient of the whole batch in micro-batches, clip, one step of AdamW; `updates` times. `batch` as in `flatten`.

    The denominators are counted over the batches of all ranks before they are cut, so neither micro_tokens nor the number of
    ranks changes the result. Returns the record's fields, means over tokens; grad_norm is not finite where a step was skipped.
    """
    import torch
    flat, counts = flatten(batch, cfg, model.device)
    logp_engine, A, in_policy, in_reg = [flat[name] for name in ("logp_engine", "advantage", "in_policy", "in_reg")]
    N_policy, N_reg, N = [max(1, x) for x in over_ranks(counts)]
    parts = []
    for part in micro_batches((flat["prompt_length"] + flat["length"]).tolist(), cfg["micro_tokens"]):
        part = torch.tensor(part, device=model.device)
        prompt_length, length = flat["prompt_length"][part], flat["length"][part]
        row, token = places(flat["start"][part], length)
        # which of the N tokens these are, what a forward pass takes, and whether it is for the gradient
        parts.append((token, (flat["ids"][part, :int((prompt_length + length).max())], prompt_length, length), counts[2] > 0))
    # all ranks must call FSDP equally often: one with fewer parts repeats its last for nothing
    parts += [(*parts[-1][:2], False)] * int(over_ranks([len(parts)], "MAX")[0] - len(parts))
    settings = cfg["temperature"], cfg["micro_logits"]

    if critic:
        value_old = torch.empty_like(logp_engine)  # (N,)
        with torch.no_grad():
            for token, inputs, _ in parts:
                value_old[token] = through(token_values, critic)(*inputs).to(value_old.dtype)
        row, t = places(torch.zeros_like(flat["length"]), flat["length"])
        padded = value_old.new_zeros(len(flat["length"]), int(flat["length"].max()))
        padded[row, t] = value_old
        A = gae(padded, flat["reward"].to(padded.dtype), flat["length"], cfg["gamma"], cfg["lam"])[row, t]
        target = A + value_old
        mean = over_ranks([A.double().sum().item()])[0] / N  # whitened over the tokens of all ranks
        A = (A - mean) / ((over_ranks([(A - mean).double().square().sum().item()])[0] / max(1, N - 1)) ** 0.5 + 1e-8)

    logp_old, logp_ref, weight = torch.empty_like(logp_engine), torch.empty_like(logp_engine), torch.ones_like(logp_engine)
    names = "loss entropy kl difference capped w w2 clipped value_loss".split()
    sums = torch.zeros(len(names), dtype=torch.float64, device=model.device)
    norms = []
    for first in [True] + [False] * (cfg["updates"] - 1):
        for token, inputs, real in parts:
            logp, entropy = through(token_logps, model)(*inputs, *settings)  # (N of the part,) each
            if first:  # the policy that the rollouts came from, as the trainer sees it: the ratio is 1 in this pass
                logp_old[token] = logp.detach().to(logp_old.dtype)
                weight[token] = importance_weights(logp, logp_engine[token], cfg["tis_cap"]).to(weight.dtype)
                if ref:
                    with torch.no_grad():
                        logp_ref[token] = through(token_logps, ref)(*inputs, *settings)[0].to(logp_ref.dtype)
            w = weight[token]
            terms = policy_loss(cfg["algo"], logp, logp_old[token], w, A[token], cfg["eps_low"], cfg["eps_high"])
            loss = (terms * in_policy[token]).sum() / N_policy
            if cfg["kl_coef"]:
                loss = loss + cfg["kl_coef"] * (kl_term(cfg["kl_type"], logp, logp_ref[token]) * in_reg[token]).sum() / N_reg
            if cfg["entropy_coef"]:
                loss = loss - cfg["entropy_coef"] * (entropy * in_reg[token]).sum() / N_reg
            (loss * (WORLD * real)).backward()  # FSDP takes the mean over ranks, the loss is a sum
            error = torch.zeros_like(loss)
            if critic:
                value = through(token_values, critic)(*inputs)
                error = value_loss(value, value_old[token], target[token], cfg["value_clip"]).sum() / N
                (error * (WORLD * real)).backward()
            if real:
                with torch.no_grad():
                    ratio = (logp - logp_old[token]).exp()
                    sums += torch.stack([x.double() for x in (
                        loss, entropy.sum(), kl_term("k3", logp, logp_ref[token]).sum() if ref else torch.zeros_like(loss),
                        (logp_old[token] - logp_engine[token]).abs().sum(), (w >= (cfg["tis_cap"] or float("inf"))).sum(),
                        w.sum(), w.square().sum(), ((ratio < 1 - cfg["eps_low"]) | (ratio > 1 + cfg["eps_high"])).sum(), error)])
        norms.append(optimizer_step([(model, opt, lr)] + [(critic, critic_opt, critic_lr)] * bool(critic), cfg["grad_clip"]))
    s = dict(zip(names, over_ranks(sums.tolist())))
    passes = cfg["updates"]
    seen = N * passes
    return dict(loss=s["loss"] / passes, entropy=s["entropy"] / seen, kl=s["kl"] / seen if ref else None,
                grad_norm=sum(norms) / len(norms), tis_mean=s["difference"] / seen, tis_capped=s["capped"] / seen,
                ess=s["w"] ** 2 / (seen * s["w2"]) if s["w2"] else 0.0, clip_frac=s["clipped"] / seen,
                **(dict(value_loss=s["value_loss"] / passes) if critic else {}))


# ---------------------------------------------------------------------------------------------------------------------
# Checkpoints: one safetensors file a rank (torch.distributed.checkpoint), config, tokenizer, a state; nothing is a pickle

@contextlib.contextmanager
def disk_errors(folder):
    """A disk that fails is an OSError, whatever safetensors, tokenizers and torch make of it."""
    from torch.distributed.checkpoint.api import CheckpointException
    try:
        yield
    except OSError:
        raise
    except (Exception, CheckpointException) as e:  # the latter is no Exception, and holds one a rank
        cause = next(iter(e.failures.values()))[0] if isinstance(e, CheckpointException) else e
        raise OSError(errno.EIO, (str(cause).strip() or type(cause).__name__).splitlines()[0], str(folder)) from None


def write_model(folder, model, tokenizer):
    """A transformers folder, written anew by rank 0 from the weights of all ranks."""
    weights = {name: weight.cpu() for name, weight in full_weights(model) if RANK == 0}
    if RANK == 0:
        shutil.rmtree(folder, ignore_errors=True)
        with disk_errors(folder):
            model.save_pretrained(folder, state_dict=weights)
            tokenizer.save_pretrained(folder)


def training_state(trained):
    """{name: tensor} of what a checkpoint holds, the tensors themselves: writing into them changes the training.

    trained: [(prefix, model, optimizer), ...]. A weight has its own name behind the prefix, AdamW's numbers "exp_avg.NAME" etc.
    """
    import torch
    tensors = {}
    for prefix, model, opt in trained:
        for name, p in model.named_parameters():
            tensors[prefix + name] = p.detach()
            if not opt.state[p]:  # before the first step
                opt.state[p] = dict(step=torch.zeros((), device=p.device), exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
            for key, value in opt.state[p].items():
                tensors[f"{prefix}{key}.{name}"] = value.view(1) if value.ndim == 0 else value
    return tensors


def save_checkpoint(folder, trained, tokenizer, state):
    """Write ckpt/step_NNNNNNNN aside, rename it, keep the newest two and the steps in state["keep"]. state.json is written last: it
    marks the folder as whole. Every rank calls this and writes its own shard; the folder must be one that all of them see."""
    import torch.distributed.checkpoint as dcp
    part = folder / "ckpt" / "part"
    if RANK == 0:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
    over_ranks([0])  # nobody writes before the folder is there
    with disk_errors(part):
        dcp.save(training_state(trained), storage_writer=dcp.HuggingFaceStorageWriter(str(part), save_distributed=True),
                 no_dist=WORLD == 1)
    if RANK == 0:
        with disk_errors(part):
            for piece in (trained[0][1].config, trained[0][1].generation_config, tokenizer):
                piece.save_pretrained(part)
        for file in part.iterdir():
            with open(file, "rb") as f:
                os.fsync(f.fileno())
        config.save_json(part / "state.json", dict(state, files={f.name: f.stat().st_size for f in part.glob("*.safetensors")}))
        target = folder / "ckpt" / f"step_{state['step']:08d}"
        shutil.rmtree(target, ignore_errors=True)
        part.rename(target)
        old = sorted((folder / "ckpt").glob("step_*"))[:-2]
        for path in old:
            if int(path.name.removeprefix("step_")) not in state["keep"]:
                shutil.rmtree(path)
    over_ranks([0])


def load_checkpoint(folder, trained):
    """The newest whole checkpoint into models and optimizers, in place; returns its state, or None. A torn one is passed over.

    It may have been written by another number of ranks. Rank 0 chooses. Raises BadInput where it is of another model.
    """
    import torch
    import torch.distributed.checkpoint as dcp
    tensors, step = training_state(trained), -1
    for path in sorted((folder / "ckpt").glob("step_*"), reverse=True) if RANK == 0 else ():
        try:
            step = sample.checkpoint_state(path)["step"]
            break
        except (OSError, ValueError, KeyError) as e:
            print(f"{path}: not a whole checkpoint ({type(e).__name__}), passed over", file=sys.stderr)
    step = int(over_ranks([step], "MAX")[0])
    if step < 0:
        return None
    path = folder / "ckpt" / f"step_{step:08d}"
    there = dcp.HuggingFaceStorageReader(str(path)).read_metadata().state_dict_metadata
    for name, tensor in tensors.items():
        if name not in there or there[name].size != tensor.shape:
            raise BadInput(f"{path}: holds no {name} of {tuple(tensor.shape)}: of another model or another version of transformers")
    with torch.no_grad(), disk_errors(path):
        dcp.load(tensors, storage_reader=dcp.HuggingFaceStorageReader(str(path)), no_dist=WORLD == 1)
    for later in sorted((folder / "ckpt").glob("step_*")) if RANK == 0 else ():
        if later.name > path.name:  # torn: it would count as one of the newest two
            shutil.rmtree(later)
    return sample.checkpoint_state(path)


# ---------------------------------------------------------------------------------------------------------------------
# The run

def open_log(folder, cfg, hashes):
    """The run's log, locked against a second process and checked to be of this experiment. Raises BadInput that names the keys."""
    folder.mkdir(parents=True, exist_ok=True)
    file = open(folder / "log.jsonl", "ab", buffering=0)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise BadInput(f"{folder}: another process is training in this folder") from None
    header = next((r for r in config.read_log(folder / "log.jsonl") if r.get("type") == "header"), None)
    if header:
        config.check_same(folder, header["config"], cfg)
        for key, value in hashes.items():
            if header.get(key) != value:
                raise BadInput(f"{folder}: {cfg[key.removesuffix('_hash')]} has changed since this run began ({key})")
    return file, header


def versions():
    import torch
    import transformers
    vllm = sys.modules.get("vllm")
    return dict(python=sys.version.split()[0], torch=torch.__version__, transformers=transformers.__version__,
                **({"vllm": vllm.__version__} if vllm else {}))


def main(argv):
    cfg = parse(argv, __doc__)
    config.check_run(cfg)
    if cfg["B_p"] % WORLD:
        raise BadInput(f"--B_p={cfg['B_p']}: the {WORLD} processes of torchrun cannot share its problems evenly; "
                       f"the nearest B_p is {max(WORLD, round(cfg['B_p'] / WORLD) * WORLD)}")
    d, spent = derive(cfg), functools.partial(config.rollouts_after, cfg=cfg)  # spent(m): rollouts of the first m updates
    folder = Path(cfg["out"] or Path(cfg["runs"]) / d["run"])
    problems = sample.subset(sample.read_problems(cfg["train_set"]), cfg["D"], cfg["seed"])
    vals = evaluate.read_sets(cfg["val_set"], first="val")
    if cfg["B_p"] > len(problems):
        raise BadInput(f"--B_p={cfg['B_p']}: the training set holds only {len(problems)} problems")
    for name, val in vals.items():
        if len(val) < WORLD:
            raise BadInput(f"--val_set={cfg['val_set']}: the {len(val)} problems of {name} cannot be shared among the {WORLD} "
                           "processes of torchrun")
    hashes = dict(train_set_hash=sample.set_hash(problems), val_set_hash=sample.set_hash([p for val in vals.values() for p in val]))
    header = None
    if (folder / "log.jsonl").exists():  # whoever may not go on here, or need not, hears it before a model is loaded
        if RANK == 0:
            log, header = open_log(folder, cfg, hashes)
            log.close()
        if config.finished(cfg, folder):
            print(f"{folder}: finished before, nothing to do") if RANK == 0 else None
            return 0
    engine_name = sample.engine_name(cfg)  # ends here where vLLM is asked for and not installed
    if header and header.get("engine", engine_name) != engine_name:
        raise BadInput(f"{folder}: its rollouts came from {header['engine']}, now they would come from {engine_name}; "
                       f"say --engine={header['engine']}")
    base = evaluate.model_folder(cfg["model"])
    sample.check_lengths(base, cfg)

    import torch
    from tqdm import tqdm
    device = start_ranks(cfg["device"])
    # models: the policy, the reference of the KL, PPO's critic, and what generates
    model, tokenizer = sample.load_model(base, "cpu" if WORLD > 1 else device)
    prompts = sample.encode(problems, tokenizer, cfg["max_prompt_tokens"])
    val_prompts = {name: sample.encode(val, tokenizer, cfg["max_prompt_tokens"]) for name, val in vals.items()}
    engine = sample.open_engine(engine_name, base, cfg, device, model, tokenizer,
                                apart=WORLD > 1 or cfg["activation_checkpointing"])  # such layers decode without a cache
    ref = copy.deepcopy(model).requires_grad_(False) if cfg["kl_coef"] else None
    critic = sample.load_critic(base, model.device) if cfg["algo"] == "ppo" else None
    trained = [("", model, None)] + [("critic.", critic, None)] * bool(critic)
    for prefix, m, _ in trained + [("", ref, None)] * bool(ref):
        if cfg["activation_checkpointing"]:
            checkpoint_activations(m)
        if WORLD > 1:
            shard(m, device, token_values if prefix else token_logps)
    adamw = functools.partial(torch.optim.AdamW, lr=d["lr"], betas=(0.9, 0.999), weight_decay=cfg["weight_decay"], fused=True)
    trained = [(prefix, m, adamw(m.parameters())) for prefix, m, _ in trained]
    (_, _, opt), (_, _, critic_opt) = trained[0], trained[-1]
    gigabytes = 12 * sum(p.numel() for _, m, _ in trained for p in m.parameters()) / 1e9
    if RANK == 0 and gigabytes > 1:
        print(f"{folder}: a checkpoint takes {gigabytes:.0f} GB, the newest two are kept", file=sys.stderr)

    log, header = open_log(folder, cfg, hashes) if RANK == 0 else (None, None)
    state = load_checkpoint(folder, trained) if over_ranks([header is not None])[0] else None
    if state and state["step"] > d["M"]:
        raise BadInput(f"--C={cfg['C']}: {folder} is further already, at {spent(state['step'])} rollouts")
    fresh = state is None
    if fresh:
        state = dict(step=0, tokens=0, skipped=0, bad_in_a_row=0, wall_s=0.0, log_bytes=0, samples_bytes=0, keep=[])
    else:
        engine.load(full_weights(model))
    state.setdefault("seen", {})  # since the last evaluation, {id: [rollouts, how many right]}; older checkpoints hold none
    if RANK == 0:
        samples = open(folder / "samples.jsonl", "ab", buffering=0)
        if os.fstat(log.fileno()).st_size < state["log_bytes"]:
            raise BadInput(f"{folder}/log.jsonl: shorter than it was at the checkpoint of update {state['step']}; "
                           "bring it back, or remove ckpt/")
        os.truncate(log.fileno(), state["log_bytes"])  # what came after the checkpoint is written anew
        os.truncate(samples.fileno(), min(state["samples_bytes"], os.fstat(samples.fileno()).st_size))
        shutil.rmtree(folder / "model", ignore_errors=True)  # of a smaller budget: until the end the checkpoint is newer
        if fresh:
            if (folder / "ckpt").exists():  # all torn, or of a log that is gone
                shutil.rmtree(folder / "ckpt.unused", ignore_errors=True)
                (folder / "ckpt").rename(folder / "ckpt.unused")
            append(log, dict(type="header", schema=1, config=cfg, derived=d, **hashes, engine=engine_name, versions=versions(),
                             commit=config.commit(), ranks=WORLD, device=str(model.device), loading_s=time.time() - START,
                             time=time.strftime("%Y-%m-%dT%H:%M:%S%z")))
    start, last_eval = time.time() - state["wall_s"], None
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append("stopped"))  # finish the step, save, say so, leave

    def count_right(problems, prompts, cfg, key):
        """Each rank draws and grades its share; returns the number right of each problem and the verifier's faults, of all ranks."""
        mine, right = range(RANK, len(problems), WORLD), [0] * len(problems)
        right[RANK::WORLD], faults = evaluate.count_right(problems, prompts, engine, cfg, key, mine)
        *right, timeouts, errors = [int(x) for x in over_ranks([*right, *faults.values()])]
        return right, dict(verifier_timeouts=timeouts, verifier_errors=errors)

    def evaluate_now(m):
        nonlocal last_eval
        for name, val in vals.items():
            key = (cfg["seed"], "val", m) if name == "val" else (cfg["seed"], "val", name, m)
            record = evaluate.eval_record(val, *count_right(val, val_prompts[name], cfg, key), cfg, m, spent(m), state["tokens"], name)
            if name == "val":
                last_eval = record[f"avg@{cfg['k']}"]
            if RANK == 0:
                append(log, record)
        visited = [p["id"] for p in problems if p["id"] in state["seen"]]  # in file order
        if RANK == 0 and visited:  # before the first update there is none
            drawn, correct = zip(*[state["seen"][id_] for id_ in visited])
            append(log, dict(type="train_pass", step=m, rollouts=spent(m), ids=visited, samples=drawn, correct=correct))
        state["seen"] = {}

    def measure_train(m):
        """pass@1 of every training problem under the policy as it is, by rollouts that are not trained on."""
        right, faults = count_right(problems, prompts, dict(cfg, samples=cfg["s"]), (cfg["seed"], "train_pass", m))
        if RANK == 0:
            append(log, dict(type="train_pass", step=m, rollouts=spent(m), fresh=True, ids=[p["id"] for p in problems],
                             samples=[cfg["s"]] * len(problems), correct=right, **faults))

    def checkpoint(m):
        state.update(step=m, wall_s=time.time() - start)
        if RANK == 0:
            state.update(log_bytes=os.fstat(log.fileno()).st_size, samples_bytes=os.fstat(samples.fileno()).st_size)
            os.fsync(log.fileno())
            os.fsync(samples.fileno())
        save_checkpoint(folder, trained, tokenizer, state)

    def due(m, every):  # True once in every `every` rollouts, whatever B is
        return bool(every) and spent(m) // every > spent(m - 1) // every

    # the first update that reaches so many rollouts; what an earlier start of this run was to keep, stays
    state["keep"], pass_at = sorted(config.updates_at(cfg["keep_at"], cfg) | set(state["keep"])), config.updates_at(cfg["pass_at"], cfg)
    if fresh:
        evaluate_now(0)
        if 0 in pass_at:
            measure_train(0)
    elif RANK == 0:
        measured = {r["step"] for r in config.read_log(folder / "log.jsonl") if r.get("fresh")}
        for m in sorted(m for m in pass_at - measured if m <= state["step"]):
            print(f"{folder}: --pass_at: update {m} is past, its policy is gone", file=sys.stderr)
    if RANK == 0:
        print(f"{folder}: B_p={cfg['B_p']} n={cfg['n']} M={d['M']} C={spent(d['M'])} lr={d['lr']:.3g}, from update {state['step']}",
              file=sys.stderr)
    plan, status, mine = config.stages(cfg), "", range(RANK, cfg["B_p"], WORLD)  # mine: the problems of a batch that this rank works on
    look = None if sys.stderr.isatty() else "{desc}: {percentage:3.0f}% of {total_fmt} [{elapsed}<{remaining}, {rate_fmt}]{postfix}"
    with tqdm(total=spent(d["M"]), initial=spent(state["step"]), unit="roll", unit_scale=True, mininterval=1, disable=RANK > 0,
              desc=f"Bp{cfg['B_p']} n{cfg['n']} s{cfg['seed']}", bar_format=look) as bar:
        for m in range(state["step"] + 1, d["M"] + 1):
            # rollouts and rewards
            t0 = time.time()
            stage = [s for s in plan if s["step"] < m][-1]
            n, B = stage["n"], stage["B"]
            index = batch_indices(m, cfg["B_p"], len(problems), cfg["seed"])
            here = [problems[index[j]] for j in mine]
            seeds = [sample.rollout_seed(cfg["seed"], "train", m, j) for j in mine]
            rollouts = engine.generate([prompts[index[j]] for j in mine], n, seeds)
            rewards, faults = sample.grade(here, rollouts, tokenizer, cfg)  # (B_p / ranks, n)
            engine.sleep()
            # one update
            t1 = time.time()
            warm = min(1.0, m / max(1, cfg["warmup"]))
            lr = stage["lr"] * warm
            batch = dict(prompts=[prompts[index[j]] for j in mine], rollouts=rollouts, rewards=rewards, step=m, places=mine)
            fields = update(model, ref, opt, batch, cfg, lr, critic, critic_opt, cfg["critic_lr"] * warm)
            engine.load(full_weights(model))
            # the log
            t2 = time.time()
            right, correct = rewards.mean(1), [0] * cfg["B_p"]
            correct[RANK::WORLD] = rewards.sum(1).tolist()
            reward, all_right, all_wrong, tokens, stopped, asked, timeouts, errors, *correct = over_ranks(
                [rewards.sum().item(), (right == 1).sum().item(), (right == 0).sum().item(), rollouts["length"].sum().item(),
                 rollouts["stopped"].sum().item(), len(stop), *faults.values(), *correct])
            for i, c in zip(index, correct):  # a batch over the end of an epoch may visit a problem twice
                counts = state["seen"].setdefault(problems[i]["id"], [0, 0])
                counts[0] += n
                counts[1] += int(c)
            bad = not fields["grad_norm"] < float("inf")
            state["tokens"] += int(tokens)
            state["skipped"] += bad
            state["bad_in_a_row"] = state["bad_in_a_row"] + 1 if bad else 0
            if RANK == 0:
                append(log, dict(type="step", step=m, rollouts=spent(m), tokens=state["tokens"], wall_s=time.time() - start,
                                 lr=lr, reward=reward / B, **fields, response_len=tokens / B,
                                 truncated=1 - stopped / B, frac_all_right=all_right / cfg["B_p"],
                                 frac_all_wrong=all_wrong / cfg["B_p"], skipped=state["skipped"],
                                 verifier_timeouts=int(timeouts), verifier_errors=int(errors), gen_s=t1 - t0, train_s=t2 - t1))
                if cfg["sample_every"] and m % cfg["sample_every"] == 0:  # a few rollouts of one problem, to look at
                    for record in sample.readable(here[0], rollouts, rewards, tokenizer, min(4, n)):
                        append(samples, dict(step=m, **record))
            # evaluation, checkpoint
            if state["bad_in_a_row"] >= 10:  # the last checkpoint from before them stays
                status = "diverged"
                break
            if due(m, cfg["eval_every"]):
                evaluate_now(m)
            if m in pass_at:
                measure_train(m)
            if (due(m, cfg["save_every"]) and not bad) or m == d["M"] or m in state["keep"] or asked:
                checkpoint(m)
            bar.update(B)
            val_now = last_eval if last_eval is not None else float("nan")
            bar.set_postfix_str(f"reward {reward / B:.3f} val {val_now:.3f}", refresh=False)
            if asked and m < d["M"]:
                status = "stopped"
                break
    m = m if status else d["M"]
    if not status:
        status = "budget"
        if not due(m, cfg["eval_every"]):  # after the last checkpoint, which a larger C goes on from: there this eval is not due
            evaluate_now(m)
        write_model(folder / "model.part", model, tokenizer)
        if RANK == 0:
            shutil.rmtree(folder / "model", ignore_errors=True)
            (folder / "model.part").rename(folder / "model")
    if RANK == 0:
        append(log, dict(type="end", status=status, rollouts=spent(m)))
        os.fsync(log.fileno())
        print(f"{folder}: {status} after {spent(m)} rollouts"
              + (f", val avg@{cfg['k']} {last_eval:.3f}" if last_eval is not None else ""), file=sys.stderr)
    if WORLD > 1 and engine_name == "hf":  # vLLM closes its own part of it at exit
        torch.distributed.destroy_process_group()
    return 143 if status == "stopped" else 0


if __name__ == "__main__":
    entry(main)
