"""Test the trainer: its mathematics against slow loops, its runs, and resume after a stop."""
import copy
import errno
import functools
import itertools
import json
import math
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import types

import numpy as np
import pytest
import torch
from conftest import Hold, PATIENCE, ROOT, capture, run_script, step_is, warm_python
from safetensors.torch import load_file
from test_engine import full_forward

import config
from core import engine, evaluation, machine
from core.problems import copies, encode, subset
import evaluate
import sample
import train_grpo
import verifier
from config import BadInput, parse, read_json
from core.log import DIVERGED, read_log

named = pytest.mark.parametrize

# How far a gradient of the trainer may be from the gradient in float64, as a share of its norm. The
# trainer's log-probs are float32, so -20 is off by 20 eps, and terms of both signs cancel.
FLOAT32 = 256 * torch.finfo(torch.float32).eps

# ---- The loss and its gradient against loops in float64 ------------------------------------------

def slow_advantages(groups):
    """Return (r - mean) / (std + 1e-6), ddof 1, for [[r, ...], ...]."""
    return [[(r - np.mean(g)) / (np.std(g, ddof=1) + 1e-6) for r in g] for g in groups]


def slow_terms(models, batch, cfg):
    """Return a list of rollouts, (group, tokens), in float64. models: (policy, reference, critic).
    tokens: a list of dicts: logp, entropy and value with gradient, ref and engine as floats."""
    def log_softmax(logits):
        z = logits / cfg["temperature"]
        return z - z.exp().sum().log()
    roll, n, terms = batch["rollouts"], cfg["n"], []
    for i, length in enumerate(roll["length"].tolist()):
        prompt, response = batch["prompts"][i // n], roll["tokens"][i, :length].tolist()
        ids = torch.tensor([prompt + response])
        outputs = [m(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1:] for m in models]
        tokens = []
        for t, token in enumerate(response):
            logp = log_softmax(outputs[0][t])
            tokens.append(dict(
                logp=logp[token], entropy=-(logp.exp() * logp).sum(), value=outputs[2][t, 0],
                ref=log_softmax(outputs[1][t])[token].item(), engine=roll["logps"][i, t].item()))
        terms.append((i // n, tokens))
    return terms


def slow_gae(values, reward, gamma, lam):
    """Return A_t as the sum over k of (gamma lam)^k delta_{t+k}, which is the definition."""
    ahead = [*values[1:], 0.0]
    delta = [gamma * ahead[t] - values[t] + (reward if t == len(values) - 1 else 0.0)
             for t in range(len(values))]
    return [sum((gamma * lam) ** k * d for k, d in enumerate(delta[t:]))
            for t in range(len(values))]


def slow_loss(terms, rewards, cfg, rows, old):
    """Return (loss of the policy, loss of the critic) over `rows` of the rollouts, as token means.
    Groups of equal rewards leave the terms that zero_var_filter names. old: the terms of the policy
    and critic that made the rollouts."""
    equal = [len(set(group)) == 1 for group in rewards.tolist()]
    in_policy, in_reg = [[i for i in rows if not (equal[terms[i][0]]
                                                  and cfg["zero_var_filter"] in filters)]
                         for filters in (("policy", "all"), ("reg", "all"))]
    A = [[a] * len(tokens)
         for a, (_, tokens) in zip(sum(slow_advantages(rewards.tolist()), []), terms)]
    if ppo := cfg["algo"] == "ppo":
        values = [[t["value"].item() for t in tokens] for _, tokens in old]
        A = [slow_gae(v, r, cfg["gamma"], cfg["lam"])
             for v, r in zip(values, rewards.flatten().tolist())]
        targets = [[a + v for a, v in zip(*pair)] for pair in zip(A, values)]
        every = sum(A, [])
        A = [[(a - np.mean(every)) / (np.std(every, ddof=1) + 1e-8) for a in row] for row in A]

    def count(some):
        return sum(len(terms[i][1]) for i in some)
    loss = critic = 0
    for i in rows:
        for t, (token, before, a) in enumerate(zip(terms[i][1], old[i][1], A[i])):
            logp, logp_old = token["logp"], before["logp"].item()
            w = min(math.exp(logp_old - token["engine"]), cfg["tis_cap"]) if cfg["tis_cap"] else 1.0
            ratio, low, high = (logp - logp_old).exp(), 1 - cfg["eps_low"], 1 + cfg["eps_high"]
            clipped = min(max(ratio.item(), low), high)  # a number without a gradient
            if cfg["algo"] == "cispo":
                term = -w * clipped * a * logp
            else:
                term = -w * a * (ratio if ratio.item() * a <= clipped * a else clipped)
            if i in in_policy:
                loss = loss + term / count(in_policy)
            d = logp - token["ref"]
            kl = dict(k1=d, k2=d * d / 2, k3=(-d).exp() + d - 1)[cfg["kl_type"]]
            if i in in_reg:
                loss = loss + (cfg["kl_coef"] * kl
                               - cfg["entropy_coef"] * token["entropy"]) / count(in_reg)
            if ppo:
                v, v_old, clip = token["value"], before["value"].item(), cfg["value_clip"]
                near = v_old + min(max((v - v_old).item(), -clip), clip)
                error, clipped = (v - targets[i][t]) ** 2, (near - targets[i][t]) ** 2
                uses_error = not clip or abs(v.item() - v_old) <= clip or error.item() >= clipped
                critic = critic + (error if uses_error else clipped) / 2 / count(rows)
    return loss, critic


def gradients(loss, model):
    """Return the gradient of a loss in all parameters, as one vector."""
    grads = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True,
                                allow_unused=True, materialize_grads=True)
    return torch.cat([g.flatten() for g in grads])


def weights(model):
    """Return all parameters as one vector."""
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def distance(a, b):
    """Return |a - b| / |b|."""
    return ((a - b).norm() / b.norm()).item()


def in_float64(model):
    """Return the model in float64; transformers' norms would use float32, which costs 1e-6."""
    def forward(self, x):
        return torch.nn.functional.rms_norm(x, x.shape[-1:], self.weight, self.variance_epsilon)
    for m in model.modules():
        if "RMSNorm" in type(m).__name__:
            m.forward = types.MethodType(forward, m)
    return model.double()


@pytest.fixture(scope="module")
def policy(tiny):
    """Make (policy, reference, critic): the tiny model with different weights, all in float64."""
    ref, _ = engine.load_model(tiny.model)
    ref = in_float64(ref).requires_grad_(False)
    model = copy.deepcopy(ref).requires_grad_(True)
    critic = in_float64(train_grpo.models.load_critic(tiny.model, "cpu"))
    noise = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            p += 0.03 * torch.randn(p.shape, generator=noise, dtype=p.dtype)
        for p in critic.lm_head.parameters():  # zeros until now
            p.copy_(0.3 * torch.randn(p.shape, generator=noise, dtype=p.dtype))
    return model, ref, critic


@pytest.fixture(scope="module")
def batch(policy):
    """Make five groups of three: mixed, all wrong, all right, mixed twice. Prompts have 1 to 9
    tokens, one contains padding tokens, and responses have 1 to 6. The engine's log-probs are the
    policy's with noise, so that the cap of 2 acts on some tokens."""
    rng = random.Random(2)
    prompts = [[rng.randrange(2, 52) for _ in range(k)] for k in (3, 9, 5, 7, 1)]
    prompts[1][3] = prompts[1][8] = 0
    lengths = [6, 1, 4, 2, 6, 1, 3, 6, 5, 1, 1, 1, 4, 6, 1]
    responses = [[rng.randrange(2, 52) for _ in range(k)] for k in lengths]
    tokens, logps = torch.zeros(15, 6, dtype=torch.long), torch.zeros(15, 6, dtype=torch.float64)
    for i, response in enumerate(responses):
        k = len(response)
        tokens[i, :k] = torch.tensor(response)
        logps[i, :k] = full_forward(policy[0], prompts[i // 3], response, 0.6)[range(k), response]
    logps += torch.randn(logps.shape, generator=torch.Generator().manual_seed(3),
                         dtype=torch.float64)
    rewards = torch.tensor([[1, 0, 0], [0, 0, 0], [1, 1, 1], [0, 1, 1], [0, 1, 0]],
                           dtype=torch.float64)
    rollouts = dict(tokens=tokens, logps=logps, length=torch.tensor(lengths))
    return dict(prompts=prompts, rollouts=rollouts, rewards=rewards, step=1)


def equal_rewards(batch):
    """Return the batch with two groups of 1 and three groups of 0."""
    return dict(batch, rewards=torch.tensor([[1.0] * 3] * 2 + [[0.0] * 3] * 3))


def settings(**changes):
    """Return a config for these tests, without gradient clipping."""
    return {**parse(["--n=3", "--B_p=5", "--grad_clip=0"]), **changes}


def step_of(models, batch, cfg, lrs=(1.0, 1.0)):
    """Return the change of the weights in one update with plain SGD, as one vector, and its record.
    models: (policy, reference, critic). For one step with lr 1, the change is the gradient. For PPO
    the critic's change comes after the policy's."""
    model, ref, critic = models
    before = [model, critic] if cfg["algo"] == "ppo" else [model]
    after = copy.deepcopy(before)
    opts = [torch.optim.SGD(m.parameters(), lr) for m, lr in zip(after, lrs)]
    learner = train_grpo.Learner(after[0], opts[0], ref, *after[1:], *opts[1:])
    fields = train_grpo.update(learner, batch, cfg)
    return torch.cat([weights(a) - weights(b) for a, b in zip(before, after)]), fields


@pytest.fixture(scope="module")
def terms(policy, batch):
    """Return slow_terms as a function of the temperature, cached."""
    return functools.cache(lambda T: slow_terms(policy, batch, settings(temperature=T)))


def test_advantages_against_a_slow_loop():
    rng = np.random.default_rng(0)
    for n in (2, 3, 8, 64):
        rewards = (rng.random((20, n)) < rng.random((20, 1))).astype(float)
        rewards[0], rewards[1] = 0, 1
        slow = slow_advantages(rewards.tolist())
        for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-4)):
            A = train_grpo.advantages(torch.tensor(rewards, dtype=dtype))
            assert np.allclose(A, slow, rtol=tolerance, atol=tolerance)


def test_equal_fractions_have_no_advantage():
    """In fp32 the mean of n rewards of 0.7 may not be 0.7, and their std may not be 0."""
    groups = [torch.full((1, n), r) for n in range(2, 513) for r in (0.1, 0.3, 0.7, 0.9)]
    assert any(group.std() > 0 for group in groups)
    assert not any(train_grpo.advantages(group).any() for group in groups)


def name_of(case):
    """Return the name of a case for pytest's output."""
    return ",".join(f"{key}={value}" for key, value in case.items()) or "default"


OFF, BOTH = dict(kl_coef=0.0, entropy_coef=0.0), dict(kl_coef=0.3, entropy_coef=0.2)
TWICE = dict(updates=2)
CASES = [dict(OFF, tis_cap=0.0), OFF, dict(kl_coef=0.3, entropy_coef=0.0),
         dict(kl_coef=0.0, entropy_coef=0.3), BOTH, dict(BOTH, temperature=1.0),
         dict(kl_type="k1", kl_coef=0.3), dict(kl_type="k2", kl_coef=0.3),
         *[dict(BOTH, zero_var_filter=f) for f in ("policy", "all", "reg")],
         dict(OFF, algo="cispo"), dict(algo="cispo", kl_coef=0.3, zero_var_filter="all"),
         # the logits of at most one token or seven tokens at a time
         *[dict(BOTH, micro_logits=k) for k in (1, 367)],
         # one row or a few rows at a time
         *[dict(BOTH, micro_tokens=k) for k in (1, 30)],
         *[dict(BOTH, grad_clip=k) for k in (0.01, 1e4)],
         dict(TWICE, **OFF), dict(TWICE, **BOTH, eps_low=0.1, eps_high=0.3),
         dict(TWICE, kl_coef=0.3, tis_cap=0.0), dict(TWICE, **OFF, algo="cispo"),
         dict(TWICE, algo="cispo", eps_low=0.05, zero_var_filter="policy"),
         *[dict(TWICE, algo="ppo", **more) for more in (
             dict(), dict(gamma=0.9, lam=0.8), dict(value_clip=0.2), dict(micro_logits=367),
             dict(OFF, value_clip=0.0), dict(micro_tokens=30))]]


@named("case", CASES, ids=name_of)
def test_updates_against_slow_loops(policy, batch, terms, case):
    """Each step follows the gradient of the slow loss. In a second step the ratios are not 1."""
    cfg, (model, ref, critic), rewards = settings(**case), policy, batch["rewards"]
    models, lrs = [model, critic][:1 + (cfg["algo"] == "ppo")], (0.01, 0.002)
    old = terms(cfg["temperature"])
    # without KL and entropy, only mixed groups are computed
    rows = [i for i in range(15) if cfg["kl_coef"] or cfg["entropy_coef"] or critic in models
            or 0 < rewards[i // 3].sum() < 3]
    moved, losses, norms, steps, clip = models, [], [], [], cfg["grad_clip"] or math.inf
    for step in range(cfg["updates"]):
        now = slow_terms((moved[0], ref, [*moved, critic][1]), batch, cfg) if step else old
        steps.append([t for i in rows for t in now[i][1]])
        losses.append(slow_loss(now, rewards, cfg, range(15), old))
        last = [gradients(loss, m) for loss, m in zip(losses[-1], moved)]
        norms.append(last[0].norm().item())
        last = [lr * g * min(1, clip / g.norm()) for g, lr in zip(last, lrs)]
        moved = [shifted(m, change) for m, change in zip(moved, last)]
    change, fields = step_of(policy, batch, cfg, lrs)
    # only the last step is compared, because the first one is larger
    before = torch.cat([weights(a) - weights(b) - d for a, b, d in zip(models, moved, last)])
    assert distance(change - before, torch.cat(last)) < FLOAT32

    def mean(term, of=steps):
        return np.mean([term(t, t_old) for tokens in of for t, t_old in zip(tokens, steps[0])])
    gap = [t["logp"].item() - t["engine"] for t in steps[0]]
    w = np.minimum(np.exp(gap), cfg["tis_cap"]) if cfg["tis_cap"] else np.ones(len(gap))
    capped = np.mean(w == cfg["tis_cap"])
    assert 0.1 < capped < 0.9 or not cfg["tis_cap"], "the cap must act on some tokens"
    outside = mean(lambda t, t_old: not (
        1 - cfg["eps_low"] <= (t["logp"] - t_old["logp"]).exp() <= 1 + cfg["eps_high"]))
    assert 0.025 < outside < 0.475 or cfg["updates"] == 1, "some tokens must be clipped"
    if case.get("value_clip") == 0.2:
        far = mean(lambda t, t_old: (t["value"] - t_old["value"]).abs().item() > 0.2, steps[1:])
        assert 0.05 < far < 0.95, "some values must be clipped"
    expected = dict(
        grad_norm=np.mean(norms), tis_mean=np.mean(np.abs(gap)), tis_capped=capped, engine_nan=0,
        entropy=mean(lambda t, _: t["entropy"].item()), kl_bounded=0, clip_frac=outside,
        kl=mean(lambda t, _: math.expm1(d := t["ref"] - t["logp"].item()) - d),
        ess=w.sum() ** 2 / (len(w) * (w ** 2).sum()))  # kl is k3 for every kl_type
    for name, *of_steps in zip(("loss", "value_loss")[:len(models)], *losses):
        expected[name] = np.mean([loss.item() for loss in of_steps])
    assert expected == pytest.approx({k: fields[k] for k in expected}, rel=FLOAT32, abs=FLOAT32)


def shifted(model, change):
    """Return a copy of the model whose weights are smaller by the flat vector `change`."""
    moved = copy.deepcopy(model)
    with torch.no_grad():
        torch.nn.utils.vector_to_parameters(weights(model) - change, moved.parameters())
    return moved


def test_critic_begins_at_zero_with_the_base_model(tiny):
    critic = train_grpo.models.load_critic(tiny.model, "cpu")
    model, _ = engine.load_model(tiny.model)
    ids, length = torch.tensor([[5, 6, 7, 8]]), torch.tensor([2])
    assert train_grpo.token_values(critic, ids, length, length, parse([])).tolist() == [0, 0]
    base = dict(model.base_model.named_parameters())
    assert all(torch.equal(p, base[name]) for name, p in critic.base_model.named_parameters())


@named("algo", ["grpo", "ppo", "cispo"])
def test_a_ratio_that_overflows_is_0_without_an_advantage(algo):
    """inf * 0 is nan, which must reach neither the loss nor the gradient of the other token."""
    logp = torch.tensor([200.0, 0.1], requires_grad=True)
    loss = train_grpo.policy_loss(algo, logp, torch.zeros(2), torch.ones(2),
                                  torch.tensor([0.0, 1.0]), 0.2, 0.2)
    loss.sum().backward()
    assert loss[0] == logp.grad[0] == 0 != logp.grad[1] and logp.grad[1].isfinite()


def test_chunks_bound_the_logits(tiny, monkeypatch):
    """At most `micro_logits` logits exist at a time, in the forward and in the backward pass."""
    model, _ = engine.load_model(tiny.model)
    seen, logits_of, size = [], train_grpo.models.logits_of, model.config.vocab_size
    monkeypatch.setattr(train_grpo.models, "logits_of", lambda model, hidden: seen.append(
        len(hidden)) or logits_of(model, hidden))
    ids, start, length = torch.full((8, 16), 3), torch.full((8,), 4), torch.full((8,), 12)
    for micro_logits, chunks in ((40 * size, 2 * [40, 40, 16]), (10**9, [96])):
        seen.clear()
        cfg = settings(micro_logits=micro_logits)
        logp, entropy = train_grpo.token_logps(model, ids, start, length, cfg)
        (logp.sum() + entropy.sum()).backward()
        assert sorted(seen) == sorted(chunks)


@named("words", [["--kl_coef=0.1"], ["--lora_rank=4", "--kl_coef=0"]])
@named("device, auto", [("cpu", torch.float32), ("cuda:0", torch.bfloat16)])
def test_frozen_weights_are_in_bf16_on_a_gpu(tiny, monkeypatch, words, device, auto):
    """The reference and the weights below adapters are in bf16. On a CPU they are in fp32."""
    seen, load, freeze = [], engine.load_model, train_grpo.lora.freeze

    def note_dtype(model, *how):
        seen.append(next(freeze(model, *how).parameters()).dtype)
        raise BadInput("noted")
    monkeypatch.setattr(train_grpo.models, "start_ranks", lambda _: device)
    monkeypatch.setattr(train_grpo, "memory_settings", lambda _, cfg, *__: (cfg, False))
    monkeypatch.setattr(train_grpo.models, "load_model", lambda path, _: load(path, "cpu"))
    monkeypatch.setattr(engine, "open_engine", lambda *_: None)
    monkeypatch.setattr(train_grpo.lora, "freeze", note_dtype)
    for dtype in ("auto", "fp32"):
        with pytest.raises(BadInput, match="noted"):
            train_grpo.main([*tiny.words, *words, f"--dtype={dtype}", "--B_p=4", "--n=4",
                             "--C=480"])
    assert seen == [auto, torch.float32]


def test_shards_compute_in_the_dtype_of_the_config(monkeypatch):
    from torch.distributed import fsdp
    policies, model = [], torch.nn.Linear(1, 1)
    monkeypatch.setattr(torch.distributed, "init_device_mesh", lambda *_: None)
    monkeypatch.setattr(fsdp, "fully_shard", lambda *_, mp_policy, **__: policies.append(mp_policy))
    monkeypatch.setattr(fsdp, "register_fsdp_forward_method", lambda *_: None)
    monkeypatch.setattr(train_grpo.models, "layer_list", lambda _: [])
    for dtype in ("auto", "fp32"):
        train_grpo.models.shard_model(model, "cuda:0", train_grpo.token_logps, dtype)
    assert [policy.param_dtype for policy in policies] == [torch.bfloat16, None]


def test_moments_exist_before_the_first_update(policy):
    """Moments that are allocated during an update fragment the GPU's memory."""
    model, ref, _ = policy
    opt = train_grpo.build_learner(model, ref, None, settings(), "cpu", "").opt
    assert all(set(opt.state[p]) == {"step", "exp_avg", "exp_avg_sq"} for p in model.parameters())


def test_the_dtype_of_the_final_model(tiny, tmp_path):
    """--dtype=auto on a CPU gives fp32, --dtype=bf16 gives bf16, and transformers reads both."""
    model, tokenizer = engine.load_model(tiny.model)
    for word, dtype in (("auto", torch.float32), ("bf16", torch.bfloat16)):
        train_grpo.models.write_model(tmp_path / word, model, tokenizer, word)
        weights = load_file(tmp_path / word / "model.safetensors")
        assert {w.dtype for w in weights.values()} == {dtype}
        assert f"torch.{read_json(tmp_path / word / 'config.json')['dtype']}" == str(dtype)
        again, _ = engine.load_model(tmp_path / word)
        for (name, a), (_, b) in zip(model.named_parameters(), again.named_parameters()):
            assert torch.equal(a.to(dtype).float(), b), name


def test_decoupled_baseline(policy, batch, terms):
    """The loss uses n_train=2 of n=3 rollouts; advantages have the mean and std of all."""
    cfg, old, choices = settings(**BOTH, zero_var_filter="policy", n_train=2), terms(0.6), set()
    for step in range(1, 7):
        part = dict(batch, step=step)
        rows = train_grpo.loss_rows(batch["rewards"], batch["rollouts"]["length"], None, step,
                                    cfg)[0].tolist()
        assert [i // 3 for i in rows] == [g for g in range(5) for _ in range(2)]
        loss, _ = slow_loss(old, batch["rewards"], cfg, rows, old)
        grad, _ = step_of(policy, part, cfg)
        assert distance(grad, gradients(loss, policy[0])) < FLOAT32
        choices.add(tuple(sorted(set(rows))))
    assert len(choices) > 3 and {len(rows) for rows in choices} == {10}


@named("spread", [1, 3, 10, 100])
def test_padding_is_under_a_tenth(spread):
    """The padding of a micro-batch is under a tenth of its size, or under 128 tokens."""
    rng = random.Random(spread)
    lengths = [int(40 * spread ** rng.random()) + 1 for _ in range(500)]
    cut = train_grpo.micro_batches(lengths, 16384)
    assert sorted(sum(cut, [])) == list(range(500))
    for part in cut:
        size = len(part) * max(lengths[i] for i in part)
        assert size <= 16384 and size - sum(lengths[i] for i in part) < max(128, 0.1 * size)
    assert len(cut) < 60


def test_no_cut_for_little_padding():
    """A pass on a CPU costs more than 120 tokens of padding."""
    assert train_grpo.micro_batches([30] * 8 + [20] * 12, 2048) == [list(range(20))]
    assert train_grpo.micro_batches([30] * 8 + [20] * 13, 2048) == [list(range(20)), [20]]
    # packed rows have no padding
    assert train_grpo.micro_batches([30, 10, 20, 40, 5], 50, packed=True) == [[3], [0, 2], [1, 4]]
    # in a large batch a tenth of the tokens may be padding, which is more than 128
    assert len(train_grpo.micro_batches([100] * 90 + [80] * 49, 16384)) == 1


@named("zero_var_filter, reg",
       [("off", 0.2), ("policy", 0.2), ("all", 0.2), ("reg", 0.2), ("off", 0.0), ("policy", 0.0)])
def test_batch_without_variance(policy, batch, zero_var_filter, reg):
    """Only KL and entropy have a gradient, unless they are filtered. Without them the log has null
    for all means, because 0 would look like a measurement."""
    cfg = settings(kl_coef=reg, entropy_coef=reg, zero_var_filter=zero_var_filter)
    grad, fields = step_of(policy, equal_rewards(batch), cfg)
    assert (grad.norm() == 0) == (zero_var_filter in ("all", "reg") or not reg)
    means = "entropy kl tis_mean tis_capped ess clip_frac".split()
    assert [fields[key] is None for key in means] == [not reg] * 6
    assert all(math.isfinite(fields[key]) for key in fields if reg or key not in means)


def test_update_that_is_not_finite_changes_nothing(policy, batch):
    moved = copy.deepcopy(policy[0])
    opt = torch.optim.AdamW(moved.parameters(), lr=0.1)
    fields = train_grpo.update(train_grpo.Learner(moved, opt, policy[1]),
                               dict(batch, rewards=math.nan * batch["rewards"]), settings())
    assert not math.isfinite(fields["grad_norm"])
    assert torch.equal(weights(moved), weights(policy[0])) and not opt.state
    assert all(p.grad is None for p in moved.parameters())
    # nor does one whose critic alone has a gradient that is not finite
    pair = [torch.nn.Linear(1, 1, bias=False) for _ in range(2)]
    before = [m.weight.item() for m in pair]
    for m, gradient in zip(pair, (1.0, math.inf)):
        m.weight.grad = torch.tensor([[gradient]])
    trained = [("", m, torch.optim.SGD(m.parameters(), 1.0)) for m in pair]
    assert math.isnan(train_grpo.optimizer_step(trained, 0.0))
    assert [m.weight.item() for m in pair] == before
    # all importance weights are 0 here, so the share of effective tokens is 0 / 0
    far = dict(batch, rollouts=dict(batch["rollouts"], logps=batch["rollouts"]["logps"] + 2000))
    assert step_of(policy, far, settings())[1]["ess"] is None


def test_k3_of_a_token_that_the_policy_lost_is_finite(policy, batch):
    """k3 goes on as a line, with a continuous gradient that raises the log-prob; it is counted."""
    logp = torch.tensor([-100.0, -10.001, -9.999, -1.0], requires_grad=True)
    term = train_grpo.kl_term("k3", logp, torch.tensor([0.0, 0.0, 0.0, -1.0]))
    term.sum().backward()
    assert term.isfinite().all() and (logp.grad[:3] < -20_000).all() and logp.grad[3] == 0
    assert logp.grad[1] == pytest.approx(logp.grad[2].item(), rel=0.01)
    lost = copy.deepcopy(policy[0])
    with torch.no_grad():
        lost.lm_head.weight *= 50
    grad, fields = step_of((lost, *policy[1:]), batch, settings(kl_coef=0.1))
    assert grad.isfinite().all() and fields["kl_bounded"] > 5


def test_an_engine_that_computes_another_model_is_refused():
    cfg, cpu = parse([]), torch.device("cpu")
    for gap, more in ((None, {}), (0.01, {}), (0.1, dict(dtype="bf16")), (9.0, dict(top_p=0.9))):
        train_grpo.check_engine(gap, cfg | more, cpu)
    for gap, more in ((0.1, {}), (0.65, dict(dtype="bf16"))):
        with pytest.raises(BadInput, match="differ by 0.* in the first update, which is not round"):
            train_grpo.check_engine(gap, cfg | more, cpu)


PACKED = [dict(kl_coef=0.3, entropy_coef=0.2), dict(kl_coef=0.0, entropy_coef=0.0),
          dict(algo="ppo", kl_coef=0.3, gamma=0.9, lam=0.8), dict(algo="cispo", n_train=2),
          dict(kl_coef=0.3, micro_logits=520), dict(kl_coef=0.3, micro_tokens=30)]


@named("how", ["packed", "recomputed", "both"])
@named("case", PACKED, ids=name_of)
def test_packing_and_recomputing_change_no_gradient(policy, batch, case, how):
    """Rows are packed into one sequence, or activations are computed again."""
    from core import packing
    models, passes = [copy.deepcopy(m) for m in policy], []
    models[0].base_model.layers[0].mlp.register_forward_pre_hook(
        lambda _, x: passes.append(x[0].shape[0]))
    plain, expected = step_of(models, batch, settings(**case))
    assert plain.norm() > 0.01 and max(passes) > 1
    padded = len(passes)
    for m in models:
        if how != "recomputed":
            packing.pack(m)
        if how != "packed":
            train_grpo.models.checkpoint_activations(m)
    passes.clear()
    grad, fields = step_of(models, batch, settings(**case))
    assert distance(grad, plain) < FLOAT32
    assert expected == pytest.approx({k: fields[k] for k in expected}, rel=FLOAT32, abs=FLOAT32)
    if how == "recomputed":
        assert len(passes) == 2 * padded, "a layer must be computed again in the backward pass"
        assert not any(m.training for m in models[0].modules() if m.__class__.__name__ in
                       ("Dropout", "LlamaAttention"))
    else:
        assert set(passes) == {1}, "a packed micro-batch is one sequence"


def test_subset_is_seeded_and_nested():
    problems = [dict(id=str(i)) for i in range(5000)]

    def ids(D, seed):
        return [p["id"] for p in subset(problems, D, seed)]
    sizes = (1, 5, 20, 400, 2000, 4999)
    for seed in (0, 1):
        assert [len(ids(D, seed)) for D in sizes] == list(sizes)
        assert all(set(ids(a, seed)) < set(ids(b, seed)) for a, b in itertools.pairwise(sizes))
        assert ids(20, seed) == ids(20, seed) == sorted(ids(20, seed), key=int)  # in file order
    assert ids(20, 0) != ids(20, 1)
    assert ids(0, 0) == ids(5000, 0) == ids(5001, 0) == [p["id"] for p in problems]


@named("B_p, D", [(3, 7), (7, 7), (4, 8), (5, 6), (7, 3)])
def test_batches_visit_every_problem_once_an_epoch(B_p, D):
    batches = [train_grpo.batch_indices(step, B_p, D, 3) for step in range(1, 4 * D + 1)]
    assert {len(b) for b in batches} == {B_p}
    seen = sum(batches, [])
    epochs = [seen[i:i + D] for i in range(0, len(seen), D)]
    assert all(sorted(epoch) == list(range(D)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 2, "every epoch has its own order"
    assert batches != [train_grpo.batch_indices(step, B_p, D, 4) for step in range(1, 4 * D + 1)]


def test_summary_against_all_subsets():
    samples, correct = 5, [0, 1, 2, 5, 3, 5]
    for k in (1, 2, 4, 5):
        draws = [list(itertools.combinations([1] * c + [0] * (samples - c), k)) for c in correct]
        for metric, of_draw in (("avg", np.mean), ("best", np.max), ("worst", np.min)):
            values = [np.mean(of_draw(d, 1)) for d in draws]
            stat = evaluation.summary(correct, samples, k)[f"{metric}@{k}"]
            assert (stat["mean"], stat["se"]) == pytest.approx(
                (np.mean(values), np.std(values, ddof=1) / math.sqrt(6)))
    stat = evaluation.summary([3], 5, 2)["avg@2"]
    assert stat["mean"] == 0.6 and math.isnan(stat["se"])  # one problem has no spread


def test_copies_of_a_problem():
    problems = [dict(id=str(i), prompt=text, answer="1") for i, text in
                enumerate(["a b", "c", "a  b ", "d", "c", "a b"])]
    assert copies(problems) == [0, 1, 0, 3, 1, 0]
    assert copies([problems[0], problems[0] | dict(begin="so")]) == [0, 1]


# ---- Runs: each writes ./run in another working folder, so that their logs can be compared ------

# fields that may differ between two runs of one command; every edit of the code changes the commit
TIMES = {"time", "wall_s", "gen_s", "train_s", "loading_s", "commit"}
B, C = 16, 480


def clean(folder, drop=()):
    """Return the records of a run without times and the keys `drop` of config and derived."""
    records = [{k: v for k, v in r.items() if k not in TIMES}
               for r in read_log(folder / "log.jsonl")]
    for part in ("config", "derived"):
        records[0][part] = {k: v for k, v in records[0][part].items() if k not in drop}
    return records


def of_type(records, *types):
    """Return one list of records for each type."""
    return [[r for r in records if r["type"] == kind] for kind in types]


@pytest.fixture(scope="module")
def words(world, tmp_path_factory):
    """Return a command line: 30 updates of 4 x 4 rollouts, with saves and evaluations."""
    val = tmp_path_factory.mktemp("val") / "val.jsonl"
    val.write_text("".join((world.splits / "easy_val.jsonl").read_text().splitlines(True)[:8]))
    return [f"--model={world.base}", f"--train_set={world.splits / 'easy_train.jsonl'}",
            f"--val_set={val}", "--out=run", "--D=20", "--B_p=4", "--n=4", "--lr_base=2e-3",
            f"--C={C}", "--eval_every=64", "--save_every=48", "--max_prompt_tokens=16",
            "--max_new_tokens=24", "--samples=4", "--recipe=easy", "--verifier=exact"]


@pytest.fixture(scope="module")
def straight(words, tmp_path_factory):
    """Return the folder of an uninterrupted run, to compare others with. Do not write to it."""
    folder = tmp_path_factory.mktemp("straight")
    run_script("train_grpo.py", *words, cwd=folder, check=True)
    return folder / "run"


@pytest.fixture
def resume(words, straight, tmp_path, monkeypatch):
    """Return a function that continues tmp_path/run, which must then equal `straight`. drop: keys
    of config and derived in which the logs may differ."""
    def finish(drop=()):
        monkeypatch.chdir(tmp_path)
        assert train_grpo.main(words) == 0
        assert clean(tmp_path / "run", drop) == clean(straight, drop)
        walls = [r["wall_s"] for r in of_type(read_log(tmp_path / "run/log.jsonl"), "step")[0]]
        assert walls == sorted(walls), "seconds of training add up over launches"
        for name in ("samples.jsonl", "model/model.safetensors"):
            assert (tmp_path / "run" / name).read_bytes() == (straight / name).read_bytes()
    return finish


@pytest.fixture
def unfinished(straight, tmp_path):
    """Return a function that copies the finished run without the last `cut` lines of its log."""
    def copy_run(cut=1):
        shutil.copytree(straight, tmp_path / "run")
        log = tmp_path / "run/log.jsonl"
        log.write_bytes(b"".join(log.read_bytes().splitlines(True)[:-cut]))
        return tmp_path / "run"
    return copy_run


def test_a_run_and_its_log(straight):
    header, *records, end = clean(straight)
    steps, evals = of_type(records, "step", "eval")
    lr = 2e-3 * math.sqrt(B / 1024)
    assert header["type"] == "header"
    assert header["derived"] == dict(header["derived"], B=B, M=30, lr=lr)
    assert [r["rollouts"] for r in steps] == list(range(B, C + 1, B))
    assert [r["rollouts"] for r in evals] == [*range(0, C, 64), C]
    # warm-up
    assert [r["lr"] for r in steps] == pytest.approx([lr * min(1, m / 10) for m in range(1, 31)])
    tokens = [0] + [r["tokens"] for r in steps]
    drawn = [B * r["response_len"] for r in steps]
    assert [b - a for a, b in itertools.pairwise(tokens)] == pytest.approx(drawn)
    assert len({r["reward"] for r in steps}) > 4 and sum(r["kl"] for r in steps) > 0
    assert all(r["truncated"] < 0.5 for r in steps)  # the base model ends nearly all texts
    assert all(len(r["correct"]) == 8 and r["avg@4"] == sum(r["correct"]) / 32 for r in evals)
    # if all rewards are 0 or 1, a mean reward would only repeat avg@k
    assert not any("reward" in r for r in records if r["type"] in ("eval", "train_pass"))
    assert end == dict(type="end", status="budget", rollouts=C)


def test_the_ids_of_an_update_stay_on_the_host(policy):
    """A GPU gets only one micro-batch's ids, because all rows take gigabytes."""
    batch = dict(prompts=[[5, 6], [7]], rewards=torch.tensor([[1.0, 0.0], [0.0, 1.0]]), step=1,
                 rollouts=dict(tokens=torch.full((4, 9), 3), logps=torch.zeros(4, 9),
                               length=torch.tensor([9, 2, 1, 4])))
    model = copy.deepcopy(policy[0]).to("meta")
    (part,), _ = train_grpo.update_parts(model, batch, parse(["--n=2", "--B_p=2"]))
    part = vars(part)
    assert not part.pop("dummy") and part.pop("ids").device.type == "cpu"
    assert {tensor.device.type for tensor in part.values()} == {"meta"}


def test_samples_are_written(straight):
    """samples.jsonl gets four rollouts of a problem every sample_every updates."""
    from transformers import AutoTokenizer
    records = read_log(straight / "samples.jsonl")
    assert [r["step"] for r in records] == [m for m in (1, 11, 21) for _ in range(4)]
    assert all(set(r) == {"step", "id", "answer", "reward", "length", "finish", "text"}
               for r in records)
    assert all(r["finish"] == ("stop" if r["text"].endswith("<eos>") else "length")
               for r in records)
    assert len({r["text"] for r in records}) > 3
    tokenizer = AutoTokenizer.from_pretrained(straight / "model")
    assert all(len(tokenizer(r["text"])["input_ids"]) == r["length"] for r in records)


@named("C, due", [(160, [0, 48, 80, 128, 160]), (96, [0, 48, 80, 96])])
def test_what_falls_due(tiny, tmp_path, C, due):
    """One evaluation per eval_every=40 rollouts, for any B, and one at 0 and at the end. The
    checkpoints of --keep_at and the newest two are kept."""
    train_grpo.main([*tiny.words, "--B_p=2", "--n=8", f"--C={C}", "--eval_every=40",
                     "--save_every=16", "--keep_at=20 6e1", f"--out={tmp_path}"])
    assert [r["rollouts"] for r in of_type(read_log(tmp_path / "log.jsonl"), "eval")[0]] == due
    kept = [int(p.name[5:]) for p in sorted((tmp_path / "ckpt").iterdir())]
    # 32 and 64 rollouts are the first to reach 20 and 60
    assert kept == [2, 4, C // 16 - 1, C // 16]


def test_the_last_checkpoint_may_go(tiny, tmp_path):
    """keep_last=false leaves the model and the checkpoints of keep_at. If no checkpoint is left, a
    larger C is refused and the log does not change. eval_every=0 evaluates at the start and at the
    end only."""
    def run(name, C, *more):
        train_grpo.main([*tiny.words, "--B_p=2", "--n=4", "--keep_last=false", "--eval_every=0",
                         f"--C={C}", f"--out={tmp_path / name}", *more])
        return [p.name for p in (tmp_path / name / "ckpt").iterdir()]
    assert run("kept", 64, "--save_every=16", "--keep_at=20") == ["step_00000003"]
    assert (tmp_path / "kept/model/config.json").exists()
    assert run("kept", 96, "--keep_at=0 8 24") == ["step_00000003"]  # continues from there
    run("asked", 64, "--keep_last=true")
    assert run("asked", 96, "--keep_at=64") == ["step_00000008"]  # not asked for when it was made
    evals, = of_type(read_log(tmp_path / "kept/log.jsonl"), "eval")
    assert [r["rollouts"] for r in evals] == [0, 96]
    assert run("gone", 64) == []
    before = (tmp_path / "gone/log.jsonl").read_bytes()
    run("gone", 64)  # already finished
    with pytest.raises(BadInput, match="gone: finished, and its checkpoints are gone"):
        run("gone", 96)
    assert (tmp_path / "gone/log.jsonl").read_bytes() == before


@pytest.mark.once
def test_stopped_at_any_moment(words, tmp_path, resume, monkeypatch):
    """SIGKILL at the log's first line, at a random record and during a checkpoint; then SIGTERM.
    Until then a second process is refused."""
    part, k = tmp_path / "run/ckpt/part", random.randrange(1, 7)
    print(f"killed at update {k}")
    monkeypatch.chdir(tmp_path)
    for i, (number, when, function) in enumerate((
            (signal.SIGKILL, "isinstance(x, dict) and x.get('type') == 'header'", "json.dumps"),
            (signal.SIGKILL, step_is(k), "json.dumps"),
            (signal.SIGKILL, "str(x).endswith('ckpt/part')", "os.rename"),
            (signal.SIGTERM, step_is(4), "json.dumps"))):
        hold = Hold(tmp_path / f"hold{i}", when, function)
        child = subprocess.Popen([warm_python(), str(ROOT / "train_grpo.py"), *words],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 env=os.environ | hold.env)
        hold.wait(1, child)  # it keeps its lock
        with pytest.raises(BadInput, match="run: another process"):
            train_grpo.main(words)
        assert part.exists() or "part" not in when
        os.kill(hold.pids()[0], number)
        if number == signal.SIGTERM:
            hold.release()
        child.communicate(timeout=PATIENCE)
        assert child.returncode == {signal.SIGKILL: -signal.SIGKILL, signal.SIGTERM: 143}[number]
    # the next update was dropped and update 4 saved
    assert read_log(tmp_path / "run/log.jsonl")[-1] == dict(type="end", status="stopped",
                                                            rollouts=4 * B)
    assert (tmp_path / "run/ckpt/step_00000004/state.json").exists()
    resume()
    assert not part.exists()


# Signals during a run of 10 updates that evaluates after updates 4, 8 and 10: the function that is
# interrupted, type and step of the record that it works for, the update saved last, and the signal
STOPPED_AT = {"the first evaluation": ("decode", "eval", 0, 0, signal.SIGTERM),
              "the first rollouts": ("decode", "step", 1, 0, signal.SIGINT),
              "rollouts": ("decode", "step", 6, 5, signal.SIGTERM),
              "an update": ("policy_loss", "step", 6, 6, signal.SIGTERM),
              "an evaluation": ("decode", "eval", 4, 4, signal.SIGINT),
              "pass@1 of the training problems": ("decode", "train_pass", 8, 8, signal.SIGTERM),
              "the last evaluation": ("decode", "eval", 10, 10, signal.SIGINT)}


@pytest.fixture(scope="module")
def traced(tiny, tmp_path_factory):
    """Make (stop_at, calls_for, the folder of a whole run). stop_at(folder, k, *signals) makes the
    run in folder/run, with these signals at call k of decode and policy_loss, and returns (exit
    code, calls). A call is (name, how many lines the log had). calls_for(at) returns the numbers of
    the calls whose result is the record of STOPPED_AT[at]."""
    words = [*tiny.words, "--B_p=4", "--n=4", "--C=160", "--micro_tokens=60", "--eval_every=64",
             "--save_every=48", "--pass_at=0 64 128", "--s=2", "--samples=4", "--gen_batch=16",
             "--lr_base=2e-3", "--out=run", "--sample_every=3"]

    def stop_at(folder, k=None, *signals):
        calls, log = [], folder / "run/log.jsonl"

        def counted(function):
            def call(*given, **named):
                calls.append((function.__name__, len(read_log(log)) if log.exists() else 0))
                for number in signals if len(calls) - 1 == k else ():
                    os.kill(os.getpid(), number)
                return function(*given, **named)
            return call
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            patch.setattr(engine, "decode", counted(engine.decode))
            patch.setattr(train_grpo, "policy_loss", counted(train_grpo.policy_loss))
            return train_grpo.main(words), calls
    whole = tmp_path_factory.mktemp("whole")
    code, calls = stop_at(whole)
    assert code == 0
    records = read_log(whole / "run/log.jsonl")

    def calls_for(at):
        return [k for k, (name, line) in enumerate(calls)
                if (name, records[line]["type"], records[line]["step"]) == STOPPED_AT[at][:3]]
    return stop_at, calls_for, whole / "run"


@pytest.mark.once
@named("at", STOPPED_AT)
def test_a_signal_drops_rollouts_and_finishes_an_update(traced, tmp_path, at):
    """The run saves and ends. Continued, it writes the log of an uninterrupted run."""
    stop_at, calls_for, whole = traced
    function, *_, saved, number = STOPPED_AT[at]
    numbers = calls_for(at)
    k = numbers[(len(numbers) - 1) // 2]
    code, made = stop_at(tmp_path, k, number)
    assert code == 128 + number
    # the rest of the update is computed, and the next rollouts end at their first token
    rest = [] if function == "decode" else [function] * (numbers[-1] - k) + ["decode"]
    assert [name for name, _ in made[k + 1:]] == rest
    end = read_log(tmp_path / "run/log.jsonl")[-1]
    assert end == dict(type="end", status="stopped", rollouts=16 * saved)
    assert (tmp_path / f"run/ckpt/step_{saved:08d}/state.json").exists()
    assert stop_at(tmp_path)[0] == 0
    assert clean(tmp_path / "run") == clean(whole)
    assert (tmp_path / "run/samples.jsonl").read_bytes() == (whole / "samples.jsonl").read_bytes()


@pytest.mark.once
@named("at", ["rollouts", "an update"])
def test_the_second_ctrl_c_ends_a_run_at_once(traced, tmp_path, at):
    stop_at, calls_for, whole = traced
    with pytest.raises(KeyboardInterrupt):
        stop_at(tmp_path, calls_for(at)[0], signal.SIGINT, signal.SIGINT)
    assert read_log(tmp_path / "run/log.jsonl")[-1]["type"] != "end"
    assert stop_at(tmp_path)[0] == 0
    assert clean(tmp_path / "run") == clean(whole)


def test_a_file_system_without_locks(tiny, tmp_path, monkeypatch, capfd):
    """If a file system cannot lock (some NFS), the run warns. EACCES means that a lock is held."""
    words, error = [*tiny.words, "--B_p=2", "--n=2", f"--out={tmp_path}"], errno.ENOLCK

    def flock(*_):
        raise OSError(error, os.strerror(error))
    monkeypatch.setattr(train_grpo.fcntl, "flock", flock)
    assert train_grpo.main([*words, "--C=4"]) == 0 == train_grpo.main([*words, "--C=8"])
    assert capfd.readouterr().err.count("log.jsonl: cannot be locked") == 2
    error = errno.EACCES
    with pytest.raises(BadInput, match="another process is training"):
        train_grpo.main([*words, "--C=12"])


def test_log_probs_of_the_engine_that_are_not_finite(policy, batch):
    """Such tokens get weight 1, are counted, and leave the mean difference."""
    cfg, lengths = settings(kl_coef=0.1), batch["rollouts"]["length"].tolist()
    torn, plain = copy.deepcopy(batch), copy.deepcopy(batch)
    for i, t, value in ((0, 0, math.nan), (5, 0, math.inf), (7, 2, -math.inf)):
        response = batch["rollouts"]["tokens"][i, :lengths[i]].tolist()
        exact = full_forward(policy[0], batch["prompts"][i // 3], response, cfg["temperature"])
        plain["rollouts"]["logps"][i, t] = exact[t, response[t]]  # the weight is exp(0) = 1
        torn["rollouts"]["logps"][i, t] = value
    (want, fields), (got, record) = [step_of(policy, b, cfg) for b in (plain, torn)]
    assert distance(got, want) < FLOAT32
    N = sum(lengths)
    assert record == pytest.approx(dict(fields, engine_nan=3, tis_mean=fields["tis_mean"] * N
                                        / (N - 3)), rel=FLOAT32)


@pytest.mark.once
@named("file", ["*.safetensors", "state.json", "no weights", "all of both"])
def test_torn_checkpoint_is_skipped(unfinished, resume, capfd, file):
    run = unfinished(cut=4)
    older, newest = sorted((run / "ckpt").glob("step_*"))
    copy = shutil.copytree(older, run / "ckpt/step_00000099.bak")
    (run / "ckpt/step_00000029").mkdir()  # if it stayed, it would count among the newest two
    log = (run / "log.jsonl").read_bytes()
    if file == "no weights":
        next(newest.glob("*.safetensors")).unlink()
    torn = [*older.iterdir(), *newest.iterdir()] if file == "all of both" else newest.glob(file)
    for path in torn:
        os.truncate(path, path.stat().st_size // 2)
    resume()
    printed = capfd.readouterr().err
    assert f"{newest.name}: not a whole checkpoint" in printed
    unused = run / "log.unused.jsonl"  # and then ckpt/ is ckpt.unused
    assert unused.read_bytes() == log if file == "all of both" else copy.exists()
    assert f"from update {0 if file == 'all of both' else int(older.name[5:])}" in printed
    assert [json.loads((run / f"ckpt/step_{m:08d}/state.json").read_text())["step"]
            for m in (27, 30)] == [27, 30]


def test_killed_after_the_last_checkpoint(words, unfinished, resume, monkeypatch):
    """The run continues after half a line, but a smaller budget is refused."""
    run = unfinished()
    with open(run / "log.jsonl", "ab") as file:
        file.write(b'{"type": "end", "sta')
    shutil.rmtree(run / "model")
    monkeypatch.chdir(run.parent)
    with pytest.raises(BadInput, match="--C=160.* 480 rollouts"):
        train_grpo.main([*words, "--C=160"])
    with monkeypatch.context() as patch:
        patch.setattr(engine, "engine_name", lambda cfg: "vllm")
        with pytest.raises(BadInput, match="came from hf, .* from vllm; use --engine=hf"):
            train_grpo.main(words)
    assert (run / "log.jsonl").read_bytes().endswith(b'"sta')
    resume()


def test_checkpoints_of_a_lost_log_are_not_used(words, straight, unfinished, tmp_path, monkeypatch):
    run = unfinished(cut=4)  # without update 30, which has a checkpoint
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="shorter than it was at the checkpoint of update 30"):
        train_grpo.main(words)
    (run / "log.jsonl").unlink()
    # the old checkpoints must go, because a run that is killed early would resume from them
    shorter = [*words, "--C=32", "--save_every=0"]
    assert train_grpo.main(shorter) == 0
    assert [p.name for p in (run / "ckpt").iterdir()] == ["step_00000002"]
    assert clean(run, "C M save_every".split())[:4] == clean(straight, "C M save_every".split())[:4]


def test_larger_budget_continues_a_finished_run(words, straight, tmp_path, monkeypatch, resume,
                                                capfd):
    """The last evaluation of the shorter run is not due in the longer run."""
    monkeypatch.chdir(tmp_path)
    assert train_grpo.main([*words, "--C=359"]) == 0  # rounded down to 22 updates
    evals, = of_type(clean(tmp_path / "run"), "eval")
    assert [r["rollouts"] for r in evals][-2:] == [320, 352]
    resume(drop=("C", "M"))
    assert "from update 22" in capfd.readouterr().err
    assert clean(tmp_path / "run") != clean(straight)  # the header keeps the C of the first start


def test_finished_run_is_not_run_again(words, straight):
    """It is recognised before torch is imported."""
    before = (straight / "log.jsonl").read_bytes()
    code = ("import sys, train_grpo; code = train_grpo.main(sys.argv[1:]); "
            "sys.exit(code or 'torch' in sys.modules)")
    done = capture([sys.executable, "-c", code, *words], straight.parent,
                   env=os.environ | dict(PYTHONPATH=str(ROOT)))
    assert done.returncode == 0 and "finished before, nothing to do; its model" in done.stdout, done
    assert (straight / "log.jsonl").read_bytes() == before


@pytest.mark.once
@named("size, message", [(300_000, "run/ckpt/part"), (0, "cannot write: File too large")])
def test_a_disk_that_fills(words, straight, tmp_path, resume, monkeypatch, capfd, size, message):
    """A file that cannot grow, a checkpoint or the log, ends a run in one line."""
    # the log gets its header, an evaluation, two updates and part of a third
    size = size or 100 + sum(map(len, (straight / "log.jsonl").read_bytes().splitlines(True)[:4]))
    log, before = tmp_path / "run/log.jsonl", resource.getrlimit(resource.RLIMIT_FSIZE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["train_grpo.py", *words])
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        with pytest.raises(SystemExit) as end:
            config.entry(train_grpo.main)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert end.value.code == 1
    assert capfd.readouterr().err.splitlines()[-1].startswith(f"train_grpo.py: {message}")
    assert not list((tmp_path / "run").glob("ckpt/step_*")) and read_log(log)[-1]["type"] == "step"
    assert (log.stat().st_size == size) == ("File" in message)
    resume()


def test_a_run_that_diverges_ends(tiny, tmp_path, capfd):
    """Ten skipped updates in a row end a run for good. They save no checkpoint."""
    line = [*tiny.words, "--B_p=2", "--n=4", "--C=800", "--lr_base=1e30", "--save_every=8",
            f"--out={tmp_path}"]
    assert train_grpo.main(line) == DIVERGED
    records = read_log(tmp_path / "log.jsonl")
    steps, = of_type(records, "step")
    bad = [r["grad_norm"] is None for r in steps]  # JSON has no nan
    good = bad.index(True)
    assert bad == [False] * good + [True] * 10
    assert [r["skipped"] for r in steps] == list(itertools.accumulate(map(int, bad)))
    assert records[-1] == dict(type="end", status="diverged", rollouts=8 * len(steps))
    assert max(p.name for p in (tmp_path / "ckpt").iterdir()) == f"step_{good:08d}"
    assert not (tmp_path / "model").exists()
    before = (tmp_path / "log.jsonl").read_bytes()
    assert train_grpo.main(line) == DIVERGED and "finished before" in capfd.readouterr().out
    assert (tmp_path / "log.jsonl").read_bytes() == before


def test_exported_model_is_the_trained_one(words, straight, world):
    """It has the weights of the last checkpoint, and repeats the last evaluation of the log."""
    from transformers import AutoModelForCausalLM
    exported, cfg = AutoModelForCausalLM.from_pretrained(straight / "model").eval(), parse(words)
    (trained, tokenizer), (base, _) = [engine.load_model(path) for path in (
        straight / "ckpt/step_00000030", world.base)]
    assert torch.equal(weights(exported), weights(trained))
    assert distance(weights(trained), weights(base)) > 1e-3
    problems = sample.read_problems(cfg["val_set"])
    generator = engine.HFEngine(exported, tokenizer, cfg)
    prompts = encode("set", problems, tokenizer, 16)
    correct, *_ = evaluation.count_solved(problems, prompts, generator, cfg, (0, "val", 30))
    assert correct == of_type(read_log(straight / "log.jsonl"), "eval")[0][-1]["correct"]


def test_the_model_of_a_run_is_its_newest(unfinished):
    """A run's model is the exported model or, if there is none, the newest whole checkpoint."""
    run, name = unfinished(), "Qwen/Qwen2.5-7B-Instruct"
    assert train_grpo.models.model_folder(run) == str(run / "model")
    shutil.rmtree(run / "model")
    assert train_grpo.models.model_folder(run) == str(run / "ckpt/step_00000030")
    next((run / "ckpt/step_00000030").glob("*.safetensors")).unlink()
    assert train_grpo.models.model_folder(run) == str(run / "ckpt/step_00000027")
    shutil.rmtree(run / "ckpt")
    with pytest.raises(BadInput, match="neither an exported model nor a checkpoint"):
        train_grpo.models.model_folder(run)
    assert train_grpo.models.model_folder(name) == name


def test_an_advantage_of_equal_rewards_is_trained_on(policy, batch, monkeypatch):
    """Without KL, entropy and critic, rows with advantage 0 are dropped, even with a reward."""
    cfg, even = settings(kl_coef=0.0, entropy_coef=0.0), equal_rewards(batch)
    monkeypatch.setattr(train_grpo, "advantages", lambda rewards: rewards - 0.25)
    (part,), counts = train_grpo.update_parts(policy[0], even, cfg)
    assert len(part.length) == 15 and set(part.advantage.tolist()) == {0.75, -0.25}
    assert counts == [part.length.sum()] * 3 and step_of(policy, even, cfg)[0].norm() > 0.01
    # only one row of each group has an advantage; the denominator is still the whole batch
    monkeypatch.setattr(train_grpo, "advantages",
                        lambda rewards: (rewards > 2) + torch.tensor([1.0, 0, 0]))
    (part,), counts = train_grpo.update_parts(policy[0], even, cfg)
    assert sorted(part.prompt_length.tolist()) == [1, 3, 5, 7, 9]
    assert counts[0] == even["rollouts"]["length"].sum() and counts[2] == part.length.sum()


def fractions(problem, text, cfg):
    """Return 1 if the problem's id ends in 0, 0.5 if it ends in 1, else 0.1 or 0 by the text."""
    if problem["id"][-1] in "01":
        return 1.0 - 0.5 * int(problem["id"][-1])
    return 0.1 * (len(text) % 2 == 0)


def test_fractional_rewards_are_carried(tiny, tmp_path, monkeypatch):
    """Training uses fractions unchanged. Only a reward of 1 is solved; the log has the mean too. A
    run that was stopped between two evaluations has the same means."""
    monkeypatch.setitem(verifier.REWARDS, "fractions", fractions)
    words = [*tiny.words, "--verifier=fractions", "--B_p=4", "--n=4", "--n_train=2",
             "--eval_every=96", "--s=4", "--kl_coef=0", "--entropy_coef=0"]
    for C in (32, 240):
        train_grpo.main([*words, f"--C={C}", f"--out={tmp_path / 'in two'}"])
    words += ["--C=240", f"--out={tmp_path / 'run'}"]
    train_grpo.main(words)
    problems = sample.read_problems(tiny.train)
    assert clean(tmp_path / "run")[1:] == clean(tmp_path / "in two")[1:]
    train_grpo.main([*words, "--C=256", "--pass_at=256"])
    steps, evals, [r] = of_type(read_log(tmp_path / "run/log.jsonl"), "step", "eval", "train_pass")
    assert any(r["loss"] != 0 for r in steps) and any(0 < r["grad_norm"] for r in steps)
    solved = {p["id"]: p["id"].endswith("0") for p in problems}
    assert r["correct"] == [s * solved[i] for i, s in zip(r["ids"], r["samples"])]
    assert r["fresh"] and sum(r["correct"]) / sum(r["samples"]) < r["reward"] < 1
    for r in steps:  # a rollout counts as right if its reward is 1, else as wrong
        batch = [problems[i]["id"] for i in train_grpo.batch_indices(r["step"], 4, 16, 0)]
        assert r["frac_all_right"] == sum(solved[i] for i in batch) / 4
        assert r["frac_all_wrong"] == 1 - r["frac_all_right"]
    for r in evals:
        assert r["correct"] == [4 * p["id"].endswith("0") for p in sample.read_problems(tiny.val)]
        assert r["avg@4"] == sum(r["correct"]) / 32 < r["reward"] < 1
    # evaluate.py and sample.py report both
    evaluate.main([f"--model={tmp_path / 'run'}", f"--out={tmp_path / 'eval'}"])
    result = json.loads((tmp_path / "eval/val/eval.json").read_text())
    assert result["correct"] == evals[0]["correct"] and 0 < result["reward"] < 1
    sample.main([*tiny.words, "--verifier=fractions", "--s=4", "--s_zero=0", "--n_val=2",
                 f"--out={tmp_path / 'rates'}"])
    rates = read_log(tmp_path / "rates/pass_rates.jsonl")[1:]
    assert {r["id"]: r["correct"] for r in rates} == {i: 4 * yes for i, yes in solved.items()}


def test_a_run_of_other_code_is_named(words, straight, tmp_path, monkeypatch, capfd):
    """If other code began a run, a warning names its commit, also if the run is finished."""
    shutil.copytree(straight, tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "run/log.jsonl"
    header, rest = log.read_text().split("\n", 1)
    begun = json.dumps(dict(json.loads(header), commit="a"))
    log.write_text(begun.ljust(len(header)) + "\n" + rest)  # the checkpoint knows its length
    for now, budget, warned in (("a", C, False), ("b", C, True), ("a+", C, True),
                                ("b", C + B, True)):
        monkeypatch.setattr(machine, "commit", lambda: now)
        assert train_grpo.main([*words, f"--C={budget}"]) == 0
        text = f"run: begun by commit a, the code now is {now} (+: with edits)"
        assert (text in capfd.readouterr().err) == warned


def test_no_two_updates_or_evaluations_share_a_seed(words, tmp_path, monkeypatch):
    keys, seed_of = [], engine.rollout_seed
    monkeypatch.setattr(engine, "rollout_seed", lambda *key: keys.append(key) or seed_of(*key))
    grade, faults = verifier.grade, dict(verifier_timeouts=1, verifier_errors=2)
    monkeypatch.setattr(verifier, "grade", lambda *given: (grade(*given)[0], faults))
    train_grpo.main([*words, "--C=96", f"--out={tmp_path}"])
    logged = of_type(read_log(tmp_path / "log.jsonl"), "step", "eval")
    assert all(faults.items() <= r.items() for r in sum(logged, []))
    assert {key[1] for key in keys} == {"train", "val"}
    assert len({seed_of(seed, *key[1:]) for key in keys for seed in (0, 1)}) == 2 * len(keys)
