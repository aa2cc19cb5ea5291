"""train_grpo.py: one GRPO run, C = B_p n M rollouts -> runs/SWEEP/RUN/{log.jsonl, ckpt/, model/}.

    python train_grpo.py --B_p=8 --n=16 --C=32768                 # the embedded model, a minute or two on one core
    python train_grpo.py --model=Qwen/Qwen2.5-7B-Instruct --train_set=easy.jsonl --val_set=val.jsonl --B_p=32 --n=64 --C=1e6
    python train_grpo.py --config=header.json --seed=1            # the flat dict of another run's header, another seed

The same command again goes on where the run was stopped or killed, and does nothing if it is finished; a larger --C continues it.
Every draw comes from (seed, step, problem, i), so a resumed run writes what an uninterrupted one would have written.

As in the paper: groups of n rollouts, A = (r - mean) / std, token-mean loss, AdamW with 10 warm-up updates and lr = lr_base sqrt(B / 1024),
KL and entropy terms on Easy and none on Hard, temperature 0.6, importance weights against the engine's log-probs, on-policy
(one update a batch). What differs or is our choice, because the paper does not print it:
- kl_coef, entropy_coef, tis_cap, the k3 estimator of the KL, weight decay 0.01, gradient clip 1.0;
- with one update a batch the ratio is 1 and clipping never acts, so there is no clip range here;
- problems come in seeded epochs without replacement; a batch may span two.

Needs config.py, sample.py, evaluate.py.
"""
import copy
import errno
import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

START = time.time()  # before torch is loaded: the header tells a sweep's estimate how long that takes

import config
from config import BadInput, append, derive, entry, parse


# ---------------------------------------------------------------------------------------------------------------------
# The mathematics: pure functions of tensors

def advantages(rewards):
    """Group-normalised advantages, (B_p, n) -> (B_p, n): (r - mean) / (std + 1e-6), std with ddof 1 (paper, section 2).

    A group of equal rewards gets zeros. Two rollouts, one right: +-0.7071; the weight of a problem grows with n.
    """
    mean, std = rewards.mean(1, keepdim=True), rewards.std(1, keepdim=True)
    return (rewards - mean) / (std + 1e-6) * varied(rewards)[:, None]


def varied(rewards):
    """Which groups have rewards that differ, (B_p, n) -> (B_p,) bool. Their std does not tell: of n times 0.7 it is not 0 in fp32."""
    return (rewards != rewards[:, :1]).any(1)


def batch_indices(step, B_p, D, seed):
    """Which of D problems are in the batch of `step` (1, 2, ...): B_p indices from the seeded order of each epoch.

    A function of its arguments alone: there is no cursor to save. D=3, B_p=2: steps 1 and 2 see one epoch and the first of the next.
    """
    places = range((step - 1) * B_p, step * B_p)
    order = {epoch: random.Random(f"order {seed} {epoch}").sample(range(D), D) for epoch in {place // D for place in places}}
    return [order[place // D][place % D] for place in places]


def micro_batches(lengths, micro_tokens):
    """Row indices, longest sequences first, cut so that rows x longest stays within micro_tokens (one row at least)."""
    batches = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if not batches or (len(batches[-1]) + 1) * lengths[batches[-1][0]] > micro_tokens:
            batches.append([])
        batches[-1].append(i)
    return batches


def token_logps(model, sequences, prompt_lengths, temperature):
    """Log-probs and entropies of the response tokens of R sequences, at `temperature`.

    sequences: R lists of ids, prompt then response; prompt_lengths: R ints. Rows are padded behind, where a causal model does not look, so
    no mask is needed; the head runs on response positions only. The logit of a token is at the position before it:
    prompt [5, 6], response [7, 8] takes positions 1 and 2. Returns logp (N,), entropy (N,) and row (N,) over all N response tokens.
    """
    import torch
    width = max(map(len, sequences))
    ids = torch.tensor([s + [0] * (width - len(s)) for s in sequences], device=model.device)  # (R, L)
    row = torch.tensor([i for i, (s, p) in enumerate(zip(sequences, prompt_lengths)) for _ in range(p, len(s))], device=model.device)
    place = torch.tensor([t for s, p in zip(sequences, prompt_lengths) for t in range(p, len(s))], device=model.device)
    with torch.autocast(model.device.type, torch.bfloat16, enabled=model.device.type == "cuda"):
        hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state  # (R, L, d)
        logits = model.get_output_embeddings()(hidden[row, place - 1])              # (N, V)
    logp = torch.log_softmax(logits.float() / temperature, -1)
    return logp.gather(-1, ids[row, place][:, None])[:, 0], -(logp.exp() * logp).sum(-1), row


def importance_weights(logp, logp_engine, cap):
    """Truncated importance weights, detached: min(exp(logp - logp_engine), cap) a token; ones where cap is 0. All (N,)."""
    import torch
    logp = logp.detach()
    return (logp - logp_engine).exp().clamp(max=cap) if cap else torch.ones_like(logp)


def kl_k3(logp, logp_ref):
    """k3 of each token: exp(-d) + d - 1 with d = logp - logp_ref. Its mean over the policy's tokens estimates KL(policy || ref); as a
    loss its gradient is that of KL(ref || policy), (1 - exp(-d)) grad logp."""
    d = logp - logp_ref
    return (-d).exp() + d - 1


def policy_loss(logp, weight, advantage):
    """GRPO's term of each token (N,): -w A ratio. On-policy the ratio exp(logp - sg(logp)) is 1 and its gradient that of logp."""
    return -weight * advantage * (logp - logp.detach()).exp()


# ---------------------------------------------------------------------------------------------------------------------
# One update

def update(model, ref, opt, batch, cfg, lr):
    """Gradient of the whole batch in micro-batches, clip, one step of AdamW.

    batch: dict of `prompts` (B_p lists of ids), `rollouts` (sample.generate) and `rewards` (B_p, n), `step`.
    The denominators are counted over the batch before it is cut, so micro_tokens changes memory and nothing else.
    Returns the record's fields; grad_norm is not finite where the update was skipped.
    """
    import torch
    device, n, roll = model.device, cfg["n"], batch["rollouts"]
    A, rewards = advantages(batch["rewards"]).flatten(), batch["rewards"]
    rows = range(len(A))
    if cfg["n_train"]:  # decoupled baseline: mean and std from all n, a random n_train of each group in the loss
        rng = random.Random(f"n_train {cfg['seed']} {batch['step']}")
        rows = [g * n + i for g in range(len(rewards)) for i in sorted(rng.sample(range(n), cfg["n_train"]))]
    tokens = [ids[:k] for ids, k in zip(roll["tokens"].tolist(), roll["length"].tolist())]
    sequences = [batch["prompts"][i // n] + tokens[i] for i in range(len(tokens))]
    mixed = varied(rewards).repeat_interleave(n)  # (B_p n,) False for the rollouts of zero-variance groups
    in_policy = mixed if cfg["zero_var_filter"] in ("policy", "all") else torch.ones_like(mixed)
    in_reg = mixed if cfg["zero_var_filter"] in ("reg", "all") else torch.ones_like(mixed)
    N_policy = max(1, sum(len(tokens[i]) for i in rows if in_policy[i]))
    N_reg = max(1, sum(len(tokens[i]) for i in rows if in_reg[i]))

    total = dict(loss=0.0, entropy=0.0, kl=0.0, N=0, difference=0.0, capped=0.0, w=0.0, w2=0.0)
    rows = list(rows)
    for part in micro_batches([len(sequences[i]) for i in rows], cfg["micro_tokens"]):
        part = [rows[i] for i in part]
        args = [sequences[i] for i in part], [len(batch["prompts"][i // n]) for i in part], cfg["temperature"]
        logp, entropy, row = token_logps(model, *args)  # (N,) each
        index = torch.tensor(part)[row.cpu()]           # which rollout a token belongs to
        logp_engine = torch.cat([roll["logps"][i, :len(tokens[i])] for i in part]).to(device)
        w = importance_weights(logp, logp_engine, cfg["tis_cap"])
        loss = (policy_loss(logp, w, A[index].to(device)) * in_policy[index].to(device)).sum() / N_policy
        reg = in_reg[index].to(device)
        if cfg["kl_coef"]:
            with torch.no_grad():
                logp_ref, _, _ = token_logps(ref, *args)
            kl = kl_k3(logp, logp_ref)
            loss = loss + cfg["kl_coef"] * (kl * reg).sum() / N_reg
            total["kl"] += kl.sum().item()
        if cfg["entropy_coef"]:
            loss = loss - cfg["entropy_coef"] * (entropy * reg).sum() / N_reg
        loss.backward()
        total["loss"] += loss.item()
        total["entropy"] += entropy.sum().item()
        total["N"] += len(row)
        total["difference"] += (logp.detach() - logp_engine).abs().sum().item()
        total["capped"] += (w >= cfg["tis_cap"]).sum().item() if cfg["tis_cap"] else 0
        total["w"] += w.sum().item()
        total["w2"] += w.square().sum().item()

    parameters = [p for p in model.parameters() if p.grad is not None]
    norm = torch.nn.utils.clip_grad_norm_(parameters, cfg["grad_clip"] or float("inf")).item()
    if norm < float("inf"):  # False for nan too
        for group in opt.param_groups:
            group["lr"] = lr
        opt.step()
    opt.zero_grad()
    N = total["N"]
    return dict(loss=total["loss"], entropy=total["entropy"] / N, kl=total["kl"] / N if cfg["kl_coef"] else None, grad_norm=norm,
                tis_mean=total["difference"] / N, tis_capped=total["capped"] / N, ess=total["w"] ** 2 / (N * total["w2"]) if total["w2"] else 0.0)


# ---------------------------------------------------------------------------------------------------------------------
# Checkpoints: a transformers folder, the optimizer and a state, without a pickle

def write_model(folder, model, tokenizer, moments=None):
    """A transformers folder, written anew, and with `moments` the optimizer's tensors in it. A full disk is an OSError, as everywhere."""
    from safetensors.torch import save_file
    shutil.rmtree(folder, ignore_errors=True)
    try:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        if moments is not None:
            save_file(moments, folder / "optimizer.safetensors")
    except OSError:
        raise
    except Exception as e:  # safetensors and tokenizers raise errors of their own
        raise OSError(errno.EIO, str(e), str(folder)) from None


def save_checkpoint(folder, model, tokenizer, opt, state):
    """Write ckpt/step_NNNNNNNN aside, rename it, keep the newest two. `state` (JSON) is written last: it marks the folder as whole."""
    part = folder / "ckpt" / "part"
    names = {p: name for name, p in model.named_parameters()}
    write_model(part, model, tokenizer, {f"{names[p]}/{key}": value.contiguous() for p, s in opt.state.items() for key, value in s.items()})
    for file in part.iterdir():
        with open(file, "rb") as f:
            os.fsync(f.fileno())
    config.save_json(part / "state.json", state)
    target = folder / "ckpt" / f"step_{state['step']:08d}"
    shutil.rmtree(target, ignore_errors=True)
    part.rename(target)
    for old in sorted((folder / "ckpt").glob("step_*"))[:-2]:
        shutil.rmtree(old)


def load_checkpoint(folder, model, opt):
    """The newest whole checkpoint into model and optimizer, in place; returns its state, or None. A torn one is passed over."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file
    for path in sorted((folder / "ckpt").glob("step_*"), reverse=True):
        try:
            state = json.loads((path / "state.json").read_text())
            weights, moments = {}, load_file(path / "optimizer.safetensors")
            for file in sorted(path.glob("model*.safetensors")):
                weights.update(load_file(file))
            named = dict(model.named_parameters())  # tied weights once, under the name that save_pretrained writes too
            if not set(named) <= set(weights):
                raise KeyError(next(iter(set(named) - set(weights))))
        except (OSError, ValueError, KeyError, SafetensorError) as e:
            print(f"{path}: not a whole checkpoint ({type(e).__name__}), passed over", file=sys.stderr)
            continue
        with torch.no_grad():
            for name, p in named.items():
                p.copy_(weights[name])
        opt.state.clear()
        for key, value in moments.items():
            name, _, field = key.rpartition("/")
            opt.state[named[name]][field] = value if field == "step" else value.to(named[name].device)
        return state
    return None


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
        old, new = config.identity(header["config"]), config.identity(cfg)
        differ = [key for key in new if old[key] != new[key]]
        if differ:
            raise BadInput(f"{folder}: made by another config: " + ", ".join(f"{k}={old[k]} there, {new[k]} now" for k in differ))
        for key, value in hashes.items():
            if header.get(key) != value:
                raise BadInput(f"{folder}: {cfg[key.removesuffix('_hash')]} has changed since this run began ({key})")
    return file, header


def versions():
    import torch
    import transformers
    return dict(python=sys.version.split()[0], torch=torch.__version__, transformers=transformers.__version__)


def commit():
    """The commit of this code, with a + if files differ from it; None outside a repository."""
    try:
        return subprocess.run(["git", "describe", "--always", "--dirty=+", "--exclude=*"], cwd=Path(__file__).parent, capture_output=True,
                              text=True, timeout=10).stdout.strip() or None
    except (OSError, subprocess.TimeoutExpired):
        return None


def main(argv):
    cfg = parse(argv, __doc__)
    config.check_run(cfg)
    d = derive(cfg)
    folder = Path(cfg["out"] or Path(cfg["runs"]) / d["run"])
    import sample
    problems = sample.subset(sample.read_problems(cfg["train_set"]), cfg["D"], cfg["seed"])
    val = sample.read_problems(cfg["val_set"])
    if cfg["B_p"] > len(problems):
        raise BadInput(f"--B_p={cfg['B_p']}: the training set holds only {len(problems)} problems")
    hashes = dict(train_set_hash=sample.set_hash(problems), val_set_hash=sample.set_hash(val))
    if (folder / "log.jsonl").exists() and config.finished(cfg, folder):
        open_log(folder, cfg, hashes)[0].close()
        print(f"{folder}: finished before, nothing to do")
        return 0

    import torch
    from tqdm import tqdm

    import evaluate
    model, tokenizer = sample.load_model(evaluate.model_folder(cfg["model"]), cfg["device"])
    prompts = sample.encode(problems, tokenizer, cfg["max_prompt_tokens"])
    val_prompts = sample.encode(val, tokenizer, cfg["max_prompt_tokens"])
    ref = copy.deepcopy(model).requires_grad_(False) if cfg["kl_coef"] else None
    opt = torch.optim.AdamW(model.parameters(), lr=d["lr"], betas=(0.9, 0.999), weight_decay=cfg["weight_decay"], fused=True)

    log, header = open_log(folder, cfg, hashes)
    state = load_checkpoint(folder, model, opt) if header else None
    if state and state["step"] > d["M"]:
        raise BadInput(f"--C={cfg['C']}: {folder} is further already, at {state['step'] * d['B']} rollouts")
    if state:
        os.truncate(folder / "log.jsonl", state["log_bytes"])  # what came after the checkpoint is written anew
        shutil.rmtree(folder / "model", ignore_errors=True)    # of a smaller budget: until the end the checkpoint is newer
    else:
        os.truncate(folder / "log.jsonl", 0)
        shutil.rmtree(folder / "ckpt", ignore_errors=True)  # torn, or of a log that is gone
        append(log, dict(type="header", schema=1, config=cfg, derived=d, **hashes, versions=versions(), commit=commit(),
                         device=str(model.device), loading_s=time.time() - START, time=time.strftime("%Y-%m-%dT%H:%M:%S%z")))
        state = dict(step=0, tokens=0, skipped=0, bad_in_a_row=0, wall_s=0.0, log_bytes=None)
    start, last_eval = time.time() - state["wall_s"], None
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append("stopped"))  # finish the step, save, say so, leave

    def evaluate_now(m):
        nonlocal last_eval
        correct = evaluate.count_right(val, val_prompts, model, tokenizer, cfg, (cfg["seed"], "val", m))
        record = evaluate.eval_record(val, correct, cfg, m, m * d["B"], state["tokens"])
        append(log, record)
        last_eval = record[f"avg@{cfg['k']}"]

    def checkpoint(m):
        state.update(step=m, wall_s=time.time() - start, log_bytes=os.fstat(log.fileno()).st_size)
        os.fsync(log.fileno())
        save_checkpoint(folder, model, tokenizer, opt, state)

    def due(m, every):  # True once in every `every` rollouts, whatever B is
        return bool(every) and m * d["B"] // every > (m - 1) * d["B"] // every

    if state["step"] == 0 and state["log_bytes"] is None:
        evaluate_now(0)
    print(f"{folder}: B_p={cfg['B_p']} n={cfg['n']} M={d['M']} C={d['M'] * d['B']} lr={d['lr']:.3g}, from update {state['step']}", file=sys.stderr)
    bar = tqdm(total=d["M"] * d["B"], initial=state["step"] * d["B"], unit="roll", unit_scale=True, mininterval=1, desc=f"Bp{cfg['B_p']} n{cfg['n']} s{cfg['seed']}",
               bar_format=None if sys.stderr.isatty() else "{desc}: {percentage:3.0f}% of {total_fmt} [{elapsed}<{remaining}, {rate_fmt}]{postfix}")
    status = ""
    for m in range(state["step"] + 1, d["M"] + 1):
        t0 = time.time()
        batch = batch_indices(m, cfg["B_p"], len(problems), cfg["seed"])
        seeds = [sample.rollout_seed(cfg["seed"], "train", m, j) for j in range(cfg["B_p"])]
        rollouts = sample.generate(model, tokenizer, [prompts[i] for i in batch], cfg["n"], seeds, cfg)
        rewards = sample.grade([problems[i] for i in batch], rollouts, tokenizer, cfg)  # (B_p, n)
        t1 = time.time()
        lr = d["lr"] * min(1.0, m / max(1, cfg["warmup"]))
        fields = update(model, ref, opt, dict(prompts=[prompts[i] for i in batch], rollouts=rollouts, rewards=rewards, step=m), cfg, lr)
        bad = not fields["grad_norm"] < float("inf")
        state["tokens"] += int(rollouts["length"].sum())
        state["skipped"] += bad
        state["bad_in_a_row"] = state["bad_in_a_row"] + 1 if bad else 0
        right = rewards.mean(1)
        append(log, dict(type="step", step=m, rollouts=m * d["B"], tokens=state["tokens"], wall_s=time.time() - start, lr=lr, reward=rewards.mean().item(),
                         **fields, response_len=rollouts["length"].float().mean().item(), truncated=1 - rollouts["stopped"].float().mean().item(),
                         frac_all_right=(right == 1).float().mean().item(), frac_all_wrong=(right == 0).float().mean().item(),
                         skipped=state["skipped"], verifier_timeouts=0, gen_s=t1 - t0, train_s=time.time() - t1))
        if state["bad_in_a_row"] >= 10:  # the weights are as they were ten updates ago; the last checkpoint stays
            status = "diverged"
            break
        if due(m, cfg["eval_every"]):
            evaluate_now(m)
        if due(m, cfg["save_every"]) or m == d["M"] or stop:
            checkpoint(m)
        bar.update(d["B"])
        bar.set_postfix_str(f"reward {rewards.mean():.3f} val {last_eval if last_eval is not None else float('nan'):.3f}", refresh=False)
        if stop and m < d["M"]:
            status = stop[0]
            break
    bar.close()
    m = m if status else d["M"]
    if not status:
        status = "budget"
        if not due(m, cfg["eval_every"]):  # after the last checkpoint, which a larger C goes on from: there this eval is not due
            evaluate_now(m)
        part = folder / "model.part"
        write_model(part, model, tokenizer)
        shutil.rmtree(folder / "model", ignore_errors=True)
        part.rename(folder / "model")
    append(log, dict(type="end", status=status, rollouts=m * d["B"]))
    os.fsync(log.fileno())
    print(f"{folder}: {status} after {m * d['B']} rollouts" + (f", val avg@{cfg['k']} {last_eval:.3f}" if last_eval is not None else ""), file=sys.stderr)
    return {"stopped": 143, "diverged": 0}.get(status, 0)


if __name__ == "__main__":
    entry(main)
