"""The trainer and what it stands on: mathematics against slow loops, the engine against full forwards, killed runs."""
import copy
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
import time

import numpy as np
import pytest
import torch
from conftest import ROOT, run_script
from scipy.stats import chi2

import config
import evaluate
import sample
import train_grpo
from config import BadInput, derive, parse, read_log

# ---------------------------------------------------------------------------------------------------------------------
# The loss and its gradient against loops in float64


def slow_advantages(groups):
    """[[r, ...], ...] -> the same shape, in Python floats: (r - mean) / (std + 1e-6), ddof 1."""
    result = []
    for group in groups:
        mean = sum(group) / len(group)
        std = math.sqrt(sum((r - mean) ** 2 for r in group) / (len(group) - 1))
        result.append([(r - mean) / (std + 1e-6) for r in group])
    return result


def slow_log_softmax(logits, temperature):
    """Log-probs of one position, a list of scalars; a loop over the vocabulary."""
    z = [x / temperature for x in logits]
    top = max(x.item() for x in z)
    total = sum((x - top).exp() for x in z)
    return [x - top - total.log() for x in z]


def slow_terms(model, ref, batch, cfg):
    """What each rollout adds to the loss, one sequence and one token at a time, without padding, in float64.

    A list of dicts with sums over its tokens, `policy`, `kl`, `entropy` (with gradient), `tokens`, and lists, `w` and `gap`.
    """
    A = slow_advantages(batch["rewards"].tolist())
    roll, n, terms = batch["rollouts"], cfg["n"], []
    for i, length in enumerate(roll["length"].tolist()):
        prompt, response = batch["prompts"][i // n], roll["tokens"][i, :length].tolist()
        ids = torch.tensor([prompt + response])
        logits, logits_ref = [m(input_ids=ids, use_cache=False).logits[0] for m in (model, ref)]
        term = dict(policy=0, kl=0, entropy=0, tokens=length, w=[], gap=[], group=i // n)
        for t, token in enumerate(response):
            logp = slow_log_softmax(list(logits[len(prompt) + t - 1]), cfg["temperature"])
            logp_ref = slow_log_softmax(list(logits_ref[len(prompt) + t - 1]), cfg["temperature"])[token]
            gap = logp[token].item() - roll["logps"][i, t].item()
            w = min(math.exp(gap), cfg["tis_cap"]) if cfg["tis_cap"] else 1.0
            ratio = (logp[token] - logp[token].item()).exp()  # 1, with the gradient of logp
            term["policy"] = term["policy"] - w * A[i // n][i % n] * ratio
            term["kl"] = term["kl"] + (logp_ref - logp[token]).exp() + (logp[token] - logp_ref) - 1
            term["entropy"] = term["entropy"] - sum(x.exp() * x for x in logp)
            term["w"].append(w), term["gap"].append(gap)
        terms.append(term)
    return terms


def slow_loss(terms, rewards, cfg, rows):
    """The loss over `rows` of the rollouts: token means, groups without variance left out of what zero_var_filter says."""
    flat = [len(set(group)) == 1 for group in rewards.tolist()]
    in_policy = [i for i in rows if not (flat[terms[i]["group"]] and cfg["zero_var_filter"] in ("policy", "all"))]
    in_reg = [i for i in rows if not (flat[terms[i]["group"]] and cfg["zero_var_filter"] in ("reg", "all"))]
    loss = sum(terms[i]["policy"] for i in in_policy) / sum(terms[i]["tokens"] for i in in_policy)
    N = sum(terms[i]["tokens"] for i in in_reg)
    kl, entropy = [sum(terms[i][name] for i in in_reg) / N for name in ("kl", "entropy")]
    return loss + cfg["kl_coef"] * kl - cfg["entropy_coef"] * entropy


def gradients(loss, model):
    grads = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
    return torch.cat([g.flatten() for g in grads])


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def distance(a, b):
    return ((a - b).norm() / b.norm()).item()


@pytest.fixture(scope="module")
def policy(tiny):
    """(policy, reference, tokenizer): the tiny model and the same with other weights, both in float64."""
    ref, tokenizer = sample.load_model(tiny.model)
    ref = ref.double().requires_grad_(False)
    model = copy.deepcopy(ref).requires_grad_(True)
    noise = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            p += 0.03 * torch.randn(p.shape, generator=noise, dtype=p.dtype)
    return model, ref, tokenizer


@pytest.fixture(scope="module")
def batch(policy):
    """Five groups of three: mixed, all wrong, all right, mixed twice. Prompts of 3 to 9 tokens, responses of 1 to 6, some
    cut off; the engine's log-probs are the policy's with noise, so that the cap of 2 acts on some tokens."""
    model, _, _ = policy
    rng = random.Random(2)
    prompts = [[rng.randrange(2, 52) for _ in range(k)] for k in (3, 9, 5, 7, 4)]
    lengths = [6, 1, 4, 2, 6, 1, 3, 6, 5, 1, 2, 6, 4, 6, 1]
    responses = [[rng.randrange(2, 52) for _ in range(k)] for k in lengths]
    for i in (1, 2, 6, 12):  # these stopped, the others were cut off; i = 1 is <eos> alone
        responses[i][-1] = 1
    tokens, logps = torch.zeros(15, 6, dtype=torch.long), torch.zeros(15, 6, dtype=torch.float64)
    for i, response in enumerate(responses):
        tokens[i, :len(response)] = torch.tensor(response)
        ids = torch.tensor([prompts[i // 3] + response])
        exact = torch.log_softmax(model(input_ids=ids).logits[0] / 0.6, -1).detach()
        logps[i, :len(response)] = exact[len(prompts[i // 3]) - 1:-1].gather(1, ids[0, len(prompts[i // 3]):, None])[:, 0]
    logps += torch.randn(logps.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    rewards = torch.tensor([[1, 0, 0], [0, 0, 0], [1, 1, 1], [0, 1, 1], [0, 1, 0]], dtype=torch.float64)
    stopped = torch.tensor([r[-1] == 1 for r in responses])
    rollouts = dict(tokens=tokens, logps=logps, length=torch.tensor(lengths), stopped=stopped)
    return dict(prompts=prompts, rollouts=rollouts, rewards=rewards, step=1)


def settings(**changes):
    """The flat dict of these tests: no clipping, everything else at its default or as given."""
    return {**parse(["--n=3", "--B_p=5", "--grad_clip=0"]), **changes}


def step_of(policy, batch, cfg):
    """The gradient of one update, read off the weights after a step of plain SGD with lr 1, and the record's fields."""
    model, ref, _ = policy
    moved = copy.deepcopy(model)
    fields = train_grpo.update(moved, ref, torch.optim.SGD(moved.parameters(), lr=0.5), batch, cfg, 1.0)
    return weights(model) - weights(moved), fields


@pytest.fixture(scope="module")
def terms(policy, batch):
    """slow_terms, computed once for each temperature and cap."""
    made = {}

    def get(cfg):
        key = cfg["temperature"], cfg["tis_cap"]
        if key not in made:
            made[key] = slow_terms(*policy[:2], batch, cfg)
        return made[key]
    return get


def test_advantages_against_a_slow_loop():
    rng = np.random.default_rng(0)
    for n in (2, 3, 8, 64):
        rewards = (rng.random((20, n)) < rng.random((20, 1))).astype(float)
        rewards[0], rewards[1] = 0, 1
        slow = slow_advantages(rewards.tolist())
        assert np.allclose(train_grpo.advantages(torch.tensor(rewards)), slow, rtol=1e-12, atol=1e-12)
        assert np.allclose(train_grpo.advantages(torch.tensor(rewards, dtype=torch.float32)), slow, rtol=1e-4, atol=1e-4)
    worked = train_grpo.advantages(torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]]))
    assert worked[0].tolist() == pytest.approx([0.7071, -0.7071], abs=1e-4)
    assert worked[1:].tolist() == [[0, 0], [0, 0]]


def test_equal_fractions_have_no_advantage():
    # a user's own reward may be a fraction: in fp32 the mean of n times 0.7 may not be 0.7, nor their std 0
    groups = [torch.full((1, n), r) for n in range(2, 513) for r in (0.1, 0.3, 0.7, 0.9)]
    assert any(group.std() > 0 for group in groups)
    assert not any(train_grpo.advantages(group).any() for group in groups)
    assert train_grpo.varied(torch.tensor([[0.7, 0.7, 0.7], [0.7, 0.7, 0.1]])).tolist() == [False, True]


CASES = [dict(kl_coef=0.0, entropy_coef=0.0, tis_cap=0.0), dict(kl_coef=0.0, entropy_coef=0.0),
         dict(kl_coef=0.3, entropy_coef=0.0), dict(kl_coef=0.0, entropy_coef=0.3), dict(kl_coef=0.3, entropy_coef=0.2),
         dict(kl_coef=0.3, entropy_coef=0.2, temperature=1.0)]
CASES += [dict(kl_coef=0.3, entropy_coef=0.2, zero_var_filter=f) for f in ("policy", "all", "reg")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: ",".join(f"{k}={v}" for k, v in case.items()))
def test_loss_and_gradient_against_slow_loops(policy, batch, terms, case):
    cfg = settings(**case)
    slow = terms(cfg)
    loss = slow_loss(slow, batch["rewards"], cfg, range(15))
    expected = gradients(loss, policy[0])
    grad, fields = step_of(policy, batch, cfg)
    assert distance(grad, expected) < 1e-6
    w, gap, N = [x for t in slow for x in t["w"]], [x for t in slow for x in t["gap"]], sum(t["tokens"] for t in slow)
    capped = sum(x == cfg["tis_cap"] for x in w) / N
    assert 0.1 < capped < 0.9 or not cfg["tis_cap"], "the cap must act on some tokens and not on all"
    assert fields["loss"] == pytest.approx(loss.item(), rel=1e-5, abs=1e-6)
    assert fields["grad_norm"] == pytest.approx(expected.norm().item(), rel=1e-5)
    assert fields["entropy"] == pytest.approx(sum(t["entropy"].item() for t in slow) / N, rel=1e-5)
    assert fields["kl"] == (pytest.approx(sum(t["kl"].item() for t in slow) / N, rel=1e-5) if cfg["kl_coef"] else None)
    assert fields["tis_mean"] == pytest.approx(sum(map(abs, gap)) / N, rel=1e-5)
    assert fields["tis_capped"] == pytest.approx(capped if cfg["tis_cap"] else 0)
    assert fields["ess"] == pytest.approx(sum(w) ** 2 / (N * sum(x * x for x in w)), rel=1e-5)


def test_decoupled_baseline(policy, batch, terms):
    """n_train=2 of n=3: the loss is that of exactly one choice of two rollouts a group, with advantages from all three."""
    cfg = settings(kl_coef=0.3, entropy_coef=0.2, zero_var_filter="policy", n_train=2)
    slow, params = terms(cfg), list(policy[0].parameters())
    flat = [len(set(group)) == 1 for group in batch["rewards"].tolist()]

    def grad_of(term):
        grads = torch.autograd.grad(term, params, retain_graph=True, allow_unused=True)
        return torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for g, p in zip(grads, params)])
    policy_grads = [grad_of(t["policy"]) for t in slow]
    reg_grads = [grad_of(cfg["kl_coef"] * t["kl"] - cfg["entropy_coef"] * t["entropy"]) for t in slow]
    chosen = []
    for step in range(1, 7):
        grad, _ = step_of(policy, dict(batch, step=step), cfg)
        matches = []
        for choice in itertools.product(itertools.combinations(range(3), 2), repeat=5):
            rows = [3 * g + i for g, two in enumerate(choice) for i in two]
            mixed = [i for i in rows if not flat[i // 3]]
            expected = (sum(policy_grads[i] for i in mixed) / sum(slow[i]["tokens"] for i in mixed)
                        + sum(reg_grads[i] for i in rows) / sum(slow[i]["tokens"] for i in rows))
            if distance(grad, expected) < 1e-6:
                matches.append(choice)
        assert len(matches) == 1
        assert torch.equal(grad, step_of(policy, dict(batch, step=step), cfg)[0])
        chosen.append(matches[0])
    assert len(set(chosen)) > 3, "the choice must be drawn anew in every step"


@pytest.mark.parametrize("changes", [dict(), dict(n_train=2, zero_var_filter="all")], ids=["plain", "n_train"])
def test_micro_batches_change_nothing(policy, batch, changes):
    cfg = settings(kl_coef=0.3, entropy_coef=0.2, **changes)
    lengths = [len(batch["prompts"][i // 3]) + k for i, k in enumerate(batch["rollouts"]["length"].tolist())]
    grad, fields = step_of(policy, batch, dict(cfg, micro_tokens=10**6))
    for micro_tokens, parts in ((1, 15), (30, range(4, 15)), (60, range(2, 6))):
        cut = train_grpo.micro_batches(lengths, micro_tokens)
        assert len(cut) in (parts if isinstance(parts, range) else [parts])
        assert sorted(i for part in cut for i in part) == list(range(15))
        assert all(len(part) * max(lengths[i] for i in part) <= micro_tokens or len(part) == 1 for part in cut)
        other, record = step_of(policy, batch, dict(cfg, micro_tokens=micro_tokens))
        assert distance(other, grad) < 1e-6
        assert record == pytest.approx(fields, rel=1e-5)


@pytest.mark.parametrize("zero_var_filter", ["off", "policy", "all", "reg"])
def test_batch_without_variance(policy, batch, zero_var_filter):
    """All right or all wrong: no policy gradient; KL and entropy stay, unless the filter takes them too."""
    cfg = settings(kl_coef=0.3, entropy_coef=0.2, zero_var_filter=zero_var_filter)
    even = dict(batch, rewards=torch.tensor([[1.0] * 3] * 2 + [[0.0] * 3] * 3))
    grad, fields = step_of(policy, even, cfg)
    assert all(math.isfinite(x) for x in fields.values())
    assert (grad.norm() == 0) == (zero_var_filter in ("all", "reg"))


def test_clipping(policy, batch):
    free, fields = step_of(policy, batch, settings(kl_coef=0.3))
    assert fields["grad_norm"] == pytest.approx(free.norm().item(), rel=1e-5)
    for clip in (0.5, 2.0):
        grad, record = step_of(policy, batch, settings(kl_coef=0.3, grad_clip=clip * fields["grad_norm"]))
        assert record["grad_norm"] == pytest.approx(fields["grad_norm"])
        assert distance(grad, min(1, clip) * free) < 1e-5


def test_update_that_is_not_finite_changes_nothing(policy, batch):
    model, ref, _ = policy
    moved = copy.deepcopy(model)
    opt = torch.optim.AdamW(moved.parameters())
    logps = batch["rollouts"]["logps"].clone()
    logps[3, 0] = float("nan")
    fields = train_grpo.update(moved, ref, opt, dict(batch, rollouts=dict(batch["rollouts"], logps=logps)), settings(), 0.1)
    assert not math.isfinite(fields["grad_norm"])
    assert torch.equal(weights(moved), weights(model)) and not opt.state
    assert all(p.grad is None for p in moved.parameters())
    # importance weights that are all 0 are no number to divide by
    far = dict(batch, rollouts=dict(batch["rollouts"], logps=batch["rollouts"]["logps"] + 2000))
    assert train_grpo.update(moved, ref, opt, far, settings(), 0.1)["ess"] == 0


def test_k3_has_the_gradient_of_the_reverse_kl():
    """Exact enumeration over 7 tokens: in expectation, grad k3 = grad KL(ref || policy), and not grad KL(policy || ref)."""
    noise = torch.Generator().manual_seed(0)
    theta = torch.randn(7, generator=noise, dtype=torch.float64, requires_grad=True)
    ref = torch.log_softmax(torch.randn(7, generator=noise, dtype=torch.float64), 0)
    logp = torch.log_softmax(theta, 0)
    k3 = train_grpo.kl_k3(logp, ref)
    # the tokens are samples, so no gradient goes through their probability
    grad, = torch.autograd.grad((logp.exp().detach() * k3).sum(), theta, retain_graph=True)
    backward, = torch.autograd.grad((ref.exp() * (ref - logp)).sum(), theta, retain_graph=True)
    forward, = torch.autograd.grad((logp.exp() * (logp - ref)).sum(), theta, retain_graph=True)
    assert torch.allclose(grad, backward, rtol=1e-10, atol=1e-12)
    assert (grad - forward).norm() > 0.1 * grad.norm()
    # its value estimates KL(policy || ref), as the docstring says
    assert (logp.exp() * k3).sum().item() == pytest.approx((logp.exp() * (logp - ref)).sum().item())


# ---------------------------------------------------------------------------------------------------------------------
# The learning rate, the subset D, the order of problems

def test_lr_rules():
    def lr(*words):
        return derive(parse(["--lr_base=1e-6", *words]))["lr"]
    assert lr("--B_p=32", "--n=32") == lr("--B_p=32", "--n=32", "--lr_scaling=linear") == 1e-6  # at B = 1024
    assert lr("--B_p=256", "--n=16") == pytest.approx(2e-6)
    assert lr("--B_p=256", "--n=16", "--lr_scaling=linear") == pytest.approx(4e-6)
    assert lr("--B_p=256", "--n=16", "--lr_scaling=constant") == 1e-6
    assert lr("--B_p=64", "--n=256", "--n_train=64") == pytest.approx(2e-6)  # B is that of the rollouts in the loss
    assert derive(parse(["--B_p=64", "--n=256", "--n_train=64", "--C=100000"]))["M"] == 6  # the budget counts all


def test_subset_is_seeded_and_nested():
    problems = [dict(id=str(i)) for i in range(50)]

    def ids(D, seed):
        return [p["id"] for p in sample.subset(problems, D, seed)]
    sizes = (1, 5, 20, 49)
    for seed in (0, 1):
        assert [len(ids(D, seed)) for D in sizes] == list(sizes)
        assert all(set(ids(a, seed)) < set(ids(b, seed)) for a, b in itertools.pairwise(sizes))
        assert ids(20, seed) == ids(20, seed) == sorted(ids(20, seed), key=int)  # in file order
    assert ids(20, 0) != ids(20, 1)
    assert ids(0, 0) == ids(50, 0) == [p["id"] for p in problems]
    with pytest.raises(BadInput, match="--D=51.*50"):
        ids(51, 0)


@pytest.mark.parametrize("B_p, D", [(3, 7), (7, 7), (4, 8), (5, 6)])
def test_batches_visit_every_problem_once_an_epoch(B_p, D):
    batches = [train_grpo.batch_indices(step, B_p, D, 3) for step in range(1, 4 * D + 1)]
    assert {len(b) for b in batches} == {B_p}
    seen = sum(batches, [])
    epochs = [seen[i:i + D] for i in range(0, len(seen), D)]
    assert all(sorted(epoch) == list(range(D)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 2, "every epoch has its own order"
    assert batches != [train_grpo.batch_indices(step, B_p, D, 4) for step in range(1, 4 * D + 1)]


# ---------------------------------------------------------------------------------------------------------------------
# The engine

STOPS = [1, 5, 11, 20, 33, 40]  # several, as chat models have; enough that a random model both stops and is cut off


@pytest.fixture(scope="module")
def engine(tiny):
    """(model, tokenizer, prompts of different lengths) with STOPS as the ends of a response."""
    model, tokenizer = sample.load_model(tiny.model)
    model.generation_config.eos_token_id = STOPS
    rng = random.Random(5)
    return model, tokenizer, [[rng.randrange(2, 52) for _ in range(k)] for k in (7, 3, 10, 3, 5, 1)]


def draw(engine, n=8, seeds=range(6), prompts=None, **changes):
    cfg = {**parse(["--max_new_tokens=12", "--gen_batch=1000"]), **changes}
    return sample.generate(*engine[:2], engine[2] if prompts is None else prompts, n, list(seeds), cfg)


def same_rollouts(a, b):
    exact = all(torch.equal(a[key], b[key]) for key in ("tokens", "length", "stopped"))
    return exact and torch.allclose(a["logps"], b["logps"], atol=1e-5)


def full_forward(model, prompt, response, temperature):
    """(tokens, vocabulary) log-probs at each response position, from one forward without cache or padding."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([prompt + response]), use_cache=False).logits[0].double()
    return torch.log_softmax(logits[len(prompt) - 1:] / temperature, -1)


@pytest.mark.parametrize("temperature", [0.6, 1.4])
def test_engine_logps_are_those_of_a_full_forward(engine, temperature):
    out = draw(engine, temperature=temperature)
    for i, k in enumerate(out["length"].tolist()):
        response = out["tokens"][i, :k].tolist()
        exact = full_forward(engine[0], engine[2][i // 8], response, temperature)[range(k), response]
        assert torch.allclose(out["logps"][i, :k].double(), exact, atol=1e-5)


def test_trainer_logps_are_those_of_the_engine(engine):
    out = draw(engine)
    sequences = [engine[2][i // 8] + out["tokens"][i, :k].tolist() for i, k in enumerate(out["length"].tolist())]
    logp, entropy, row = train_grpo.token_logps(engine[0], sequences, [len(engine[2][i // 8]) for i in range(48)], 0.6)
    assert torch.allclose(logp, torch.cat([out["logps"][i, :k] for i, k in enumerate(out["length"].tolist())]), atol=1e-5)
    assert torch.bincount(row).tolist() == out["length"].tolist()
    exact = full_forward(engine[0], engine[2][0], sequences[0][len(engine[2][0]):], 0.6)[:-1]
    assert torch.allclose(entropy[row == 0].double(), -(exact.exp() * exact).sum(-1), atol=1e-5)


def test_stop_and_length(engine):
    out = draw(engine)
    T = out["tokens"].shape[1]
    assert T == out["length"].max() <= 12 and out["logps"].shape == out["tokens"].shape == (48, T)
    for tokens, logps, k, stopped in zip(*[out[key].tolist() for key in ("tokens", "logps", "length", "stopped")]):
        assert not set(tokens[:k - 1]) & set(STOPS)
        assert (tokens[k - 1] in STOPS) == stopped
        assert stopped or k == 12
        assert tokens[k:] == [0] * (T - k) and not any(logps[k:])  # <pad> is token 0
    assert 5 < out["stopped"].sum() < 43, "both ends must occur"
    one = draw(engine, max_new_tokens=1)
    assert one["tokens"].shape == (48, 1) and set(one["length"].tolist()) == {1}
    assert one["stopped"].tolist() == [t in STOPS for t in one["tokens"][:, 0].tolist()]


def test_rollouts_do_not_depend_on_gen_batch(engine):
    whole = draw(engine)
    for gen_batch in (1, 3, 8, 17):
        assert same_rollouts(whole, draw(engine, gen_batch=gen_batch))


def test_a_rollout_depends_on_its_seed_and_number_alone(engine):
    prompts, whole = engine[2], draw(engine)

    def rows(out, index):
        T = int(out["length"][index].max())
        return {key: value[index][:, :T] if value.dim() == 2 else value[index] for key, value in out.items()}
    for n in (3, 20):  # rollout i of a prompt stays rollout i, whatever n is
        out, m = draw(engine, n=n), min(n, 8)
        assert same_rollouts(rows(out, [j * n + i for j in range(6) for i in range(m)]),
                             rows(whole, [j * 8 + i for j in range(6) for i in range(m)]))
    for j in (0, 2, 5):  # alone, and in another order
        assert same_rollouts(draw(engine, prompts=[prompts[j]], seeds=[j]), rows(whole, list(range(8 * j, 8 * j + 8))))
    backwards = draw(engine, prompts=prompts[::-1], seeds=range(5, -1, -1))
    assert same_rollouts(rows(backwards, [8 * (5 - j) + i for j in range(6) for i in range(8)]), whole)
    other = draw(engine, seeds=range(10, 16))
    assert not torch.equal(other["tokens"][:, :1], whole["tokens"][:, :1])
    assert len({tuple(r) for r in whole["tokens"].tolist()}) > 30, "rollouts of one prompt differ"


def too_far(tokens, logp):
    """p-value of a chi-square test that `tokens` come from exp(logp); those expected fewer than 5 times are one class."""
    expected, seen = len(tokens) * logp.exp(), torch.bincount(tokens, minlength=len(logp)).double()
    rare = expected < 5
    expected, seen = [torch.cat([x[~rare], x[rare].sum()[None]]) for x in (expected, seen)]
    keep = expected > 0
    return chi2.sf(((seen - expected)[keep] ** 2 / expected[keep]).sum().item(), int(keep.sum()) - 1)


@pytest.mark.parametrize("temperature", [0.6, 1.4])
def test_sampling_follows_the_distribution(engine, temperature):
    """First token, and second token given the most frequent first one. A right sampler fails with one seed in 2,500 (four
    tests at 1e-4; the seed is fixed), and the same test tells the other temperature apart."""
    prompt, N = engine[2][0], 20000
    tokens = draw(engine, n=N, seeds=[0], prompts=[prompt], max_new_tokens=2, temperature=temperature, gen_batch=N)["tokens"]
    first = full_forward(engine[0], prompt, [], temperature)[0]
    assert too_far(tokens[:, 0], first) > 1e-4
    assert too_far(tokens[:, 0], full_forward(engine[0], prompt, [], 2 - temperature)[0]) < 1e-10
    common = next(t for t in torch.bincount(tokens[:, 0]).argsort(descending=True).tolist() if t not in STOPS)
    given = tokens[tokens[:, 0] == common, 1]
    assert len(given) > 500
    assert too_far(given, full_forward(engine[0], prompt, [common], temperature)[1]) > 1e-4


def test_top_p(engine):
    """The smallest set of the likeliest tokens with mass top_p, renormalised, and no other. One seed in 10,000 fails."""
    prompt, N, top_p = engine[2][0], 20000, 0.7
    out = draw(engine, n=N, seeds=[0], prompts=[prompt], max_new_tokens=1, top_p=top_p, gen_batch=N)
    p, nucleus, mass = full_forward(engine[0], prompt, [], 0.6)[0].exp().tolist(), [], 0.0
    for token in sorted(range(len(p)), key=lambda t: -p[t]):
        if mass < top_p:
            nucleus.append(token)
            mass += p[token]
    assert 1 < len(nucleus) < 40
    assert set(out["tokens"][:, 0].tolist()) == set(nucleus)
    exact = torch.tensor([math.log(p[t] / mass) if t in nucleus else -math.inf for t in range(len(p))], dtype=torch.float64)
    assert torch.allclose(out["logps"][:, 0].double(), exact[out["tokens"][:, 0]], atol=1e-5)
    assert too_far(out["tokens"][:, 0], exact) > 1e-4


def test_ends_of_the_inverse_cdf():
    logits = torch.log(torch.tensor([[0.0, 0.5, 0.3, 0.2, 0.0]]))

    def token(u, top_p=1.0):
        return sample.sample_tokens(logits, torch.tensor([u]), 1.0, top_p)[0].item()
    # no u may pick a token without mass: not the smallest, nor 1 itself, nor where the nucleus ends
    assert [token(u) for u in (2**-24, 0.49, 0.51, 0.79, 0.81, 1.0)] == [1, 1, 2, 2, 3, 3]
    assert [token(u, 0.6) for u in (2**-24, 0.62, 0.63, 1.0)] == [1, 1, 2, 2]
    assert [token(u, 0.3) for u in (2**-24, 1.0)] == [1, 1]


# ---------------------------------------------------------------------------------------------------------------------
# avg@k, best@k, worst@k

def test_summary_against_all_subsets():
    samples, correct = 5, [0, 1, 2, 5, 3, 5]
    for k in (1, 2, 4, 5):
        best, worst = [], []
        for c in correct:
            draws = list(itertools.combinations([1] * c + [0] * (samples - c), k))
            best.append(sum(any(d) for d in draws) / len(draws))
            worst.append(sum(all(d) for d in draws) / len(draws))
        stats = evaluate.summary(correct, samples, k)
        for metric, values in (("avg", [c / samples for c in correct]), ("best", best), ("worst", worst)):
            mean, error = stats[f"{metric}@{k}"]
            assert mean == pytest.approx(np.mean(values)) and error == pytest.approx(np.std(values, ddof=1) / math.sqrt(6))
    mean, error = evaluate.summary([3], 5, 2)["avg@2"]
    assert mean == 0.6 and math.isnan(error)  # one problem has no spread


# ---------------------------------------------------------------------------------------------------------------------
# Runs: each writes ./run from a folder of its own, so that the logs of all can be compared word by word

TIMES = {"time", "wall_s", "gen_s", "train_s", "loading_s", "commit"}  # the commit moves while this code is worked on
B, C = 16, 480


@pytest.fixture(autouse=True)
def signals():
    """A run in this process sets its own handler."""
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)


def clean(folder, drop=()):
    """The records of a run without times. `drop`: the keys of config and derived that may differ too."""
    records = [{k: v for k, v in r.items() if k not in TIMES} for r in read_log(folder / "log.jsonl")]
    for part in ("config", "derived"):
        records[0][part] = {k: v for k, v in records[0][part].items() if k not in drop}
    return records


def lines(log):
    return log.read_bytes().count(b"\n") if log.exists() else 0


@pytest.fixture(scope="module")
def words(world, tmp_path_factory):
    """The command line of a short run on Easy: 30 updates of 4 x 4, checkpoints every third, evaluations every fourth."""
    val = tmp_path_factory.mktemp("val") / "val.jsonl"
    val.write_text("".join((world.splits / "easy_val.jsonl").read_text().splitlines(True)[:8]))
    return [f"--model={world.base}", f"--train_set={world.splits / 'easy_train.jsonl'}", f"--val_set={val}", "--out=run",
            "--D=20", "--B_p=4", "--n=4", "--lr_base=2e-3", f"--C={C}", "--eval_every=64", "--save_every=48",
            "--max_prompt_tokens=16", "--max_new_tokens=24", "--samples=4", "--recipe=easy"]


@pytest.fixture(scope="module")
def straight(words, tmp_path_factory):
    """The folder of an uninterrupted run, which every other is compared with; do not write into it."""
    folder = tmp_path_factory.mktemp("straight")
    done = run_script("train_grpo.py", *words, cwd=folder)
    assert done.code == 0, done.stderr
    return folder / "run"


def start(words, folder):
    folder.mkdir(exist_ok=True)
    return subprocess.Popen([sys.executable, str(ROOT / "train_grpo.py"), *words], cwd=folder, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def wait_for(child, ready, seconds=120):
    """Wait until ready() or the child's end; True if it became ready."""
    end = time.time() + seconds
    while time.time() < end:
        if ready():
            return True
        if child.poll() is not None:
            return False
        time.sleep(0.0005)
    raise TimeoutError


def unfinished(straight, folder, cut=1):
    """A copy of the finished run as a kill would have left it: without the last `cut` lines of its log."""
    shutil.copytree(straight, folder / "run")
    log = folder / "run/log.jsonl"
    log.write_bytes(b"".join(log.read_bytes().splitlines(True)[:-cut]))
    return folder / "run"


def test_a_run_and_its_log(straight):
    header, *records, end = clean(straight)
    steps, evals = [[r for r in records if r["type"] == kind] for kind in ("step", "eval")]
    lr = 2e-3 * math.sqrt(B / 1024)
    assert header["type"] == "header" and header["derived"] == dict(header["derived"], B=B, M=30, lr=lr)
    assert [r["rollouts"] for r in steps] == list(range(B, C + 1, B))
    assert [r["rollouts"] for r in evals] == [*range(0, C, 64), C]
    assert [r["lr"] for r in steps] == pytest.approx([lr * min(1, m / 10) for m in range(1, 31)])  # warm-up
    tokens = [0] + [r["tokens"] for r in steps]
    assert [b - a for a, b in itertools.pairwise(tokens)] == pytest.approx([B * r["response_len"] for r in steps])
    assert len({r["reward"] for r in steps}) > 4 and sum(r["kl"] for r in steps) > 0
    assert all(len(r["correct"]) == 8 and r["avg@4"] == sum(r["correct"]) / 32 for r in evals)
    assert end == dict(type="end", status="budget", rollouts=C)


@pytest.mark.parametrize("rule, n_train", [("sqrt", 0), ("sqrt", 2), ("linear", 4), ("constant", 4)])
def test_lr_in_the_log(tiny, tmp_path, rule, n_train):
    train_grpo.main([*tiny.words, "--B_p=2", "--n=8", "--C=80", f"--n_train={n_train}", f"--lr_scaling={rule}",
                     "--lr_base=1e-3", "--warmup=3", f"--out={tmp_path}"])
    x = 2 * (n_train or 8) / 1024
    lr = 1e-3 * dict(sqrt=x ** 0.5, linear=x, constant=1)[rule]
    steps = [r for r in read_log(tmp_path / "log.jsonl") if r["type"] == "step"]
    assert [r["lr"] for r in steps] == pytest.approx([lr / 3, lr * 2 / 3, lr, lr, lr])


def test_evaluations_that_fall_due(tiny, tmp_path):
    """Once in every eval_every rollouts, whatever B is, at 0 and at the end, there once too."""
    for C, due in ((80, [0, 48, 80]), (96, [0, 48, 80, 96])):
        train_grpo.main([*tiny.words, "--B_p=2", "--n=8", f"--C={C}", "--eval_every=40", f"--out={tmp_path / str(C)}"])
        assert [r["rollouts"] for r in read_log(tmp_path / str(C) / "log.jsonl") if r["type"] == "eval"] == due


def test_killed_at_any_moment(words, straight, tmp_path):
    """SIGKILL as soon as there is a log, at random moments, and while a checkpoint is written; then the run to its end."""
    log, part, rng = tmp_path / "run/log.jsonl", tmp_path / "run/ckpt/part", random.Random()

    def kill(ready, pause=0.0):
        child = start(words, tmp_path)
        if wait_for(child, ready):
            time.sleep(pause)
            child.kill()
        child.communicate()
        print(f"killed with {lines(log)} lines in the log and {sorted(p.name for p in part.parent.glob('*'))}")
        return child.returncode
    killed = [kill(log.exists, rng.uniform(0, 0.1))]
    for _ in range(2):
        goal = lines(log) + rng.randrange(1, 5)
        killed.append(kill(lambda: lines(log) >= goal, rng.uniform(0, 0.05)))
    for _ in range(4):  # the checkpoint may just be complete when the signal arrives: then once more
        shutil.rmtree(part, ignore_errors=True)
        killed.append(kill(part.exists))
        if part.exists():
            break
    assert part.exists() and set(killed) == {-signal.SIGKILL}
    done = run_script("train_grpo.py", *words, cwd=tmp_path)
    assert done.code == 0, done.stderr
    assert clean(tmp_path / "run") == clean(straight)
    assert not part.exists()


def test_second_process_is_refused_and_sigterm_saves(words, straight, tmp_path, monkeypatch):
    log = tmp_path / "run/log.jsonl"
    child = start(words, tmp_path)
    assert wait_for(child, lambda: lines(log) >= 6)
    child.send_signal(signal.SIGSTOP)  # it holds the folder and cannot finish meanwhile
    before = log.read_bytes()
    try:
        second = run_script("train_grpo.py", *words, cwd=tmp_path)
        assert second.code == 2 and second.stderr.count("\n") == 1 and "another process" in second.stderr, second
        assert log.read_bytes() == before
    finally:
        child.send_signal(signal.SIGTERM)
        child.send_signal(signal.SIGCONT)
        child.communicate(timeout=120)
    assert child.returncode == 143
    end = read_log(log)[-1]
    assert end["type"] == "end" and end["status"] == "stopped" and 0 < end["rollouts"] < C
    # the update in work was finished and saved: nothing is lost
    assert (tmp_path / f"run/ckpt/step_{end['rollouts'] // B:08d}/state.json").exists()
    monkeypatch.chdir(tmp_path)
    assert train_grpo.main(words) == 0
    assert clean(tmp_path / "run") == clean(straight)


@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.safetensors", "state.json", "no weights", "all of both"])
def test_torn_checkpoint_is_passed_over(words, straight, tmp_path, monkeypatch, capfd, file):
    run = unfinished(straight, tmp_path, cut=3)
    older, newest = sorted((run / "ckpt").glob("step_*"))
    if file == "no weights":
        (newest / "model.safetensors").unlink()
    for path in [*older.iterdir(), *newest.iterdir()] if file == "all of both" else newest.glob(file):
        os.truncate(path, path.stat().st_size // 2)
    monkeypatch.chdir(tmp_path)
    assert train_grpo.main(words) == 0
    told = capfd.readouterr().err
    assert f"{newest.name}: not a whole checkpoint" in told
    assert f"from update {0 if file == 'all of both' else int(older.name[5:])}" in told
    assert clean(run) == clean(straight)
    assert [json.loads((run / f"ckpt/step_{m:08d}/state.json").read_text())["step"] for m in (27, 30)] == [27, 30]


def test_killed_after_the_last_checkpoint(words, straight, tmp_path, monkeypatch):
    run = unfinished(straight, tmp_path)
    with open(run / "log.jsonl", "ab") as file:
        file.write(b'{"type": "end", "sta')  # half a line
    shutil.rmtree(run / "model")
    monkeypatch.chdir(tmp_path)
    assert train_grpo.main(words) == 0
    assert clean(run) == clean(straight)
    assert (run / "model/model.safetensors").read_bytes() == (straight / "model/model.safetensors").read_bytes()


def test_checkpoints_of_a_lost_log_are_not_used(words, straight, tmp_path, monkeypatch):
    run = unfinished(straight, tmp_path)
    (run / "log.jsonl").unlink()
    monkeypatch.chdir(tmp_path)
    shorter = [*words, "--C=32", "--save_every=0"]  # killed before its first checkpoint, it would go on from the old ones
    assert train_grpo.main(shorter) == 0
    assert [p.name for p in (run / "ckpt").iterdir()] == ["step_00000002"]
    assert clean(run, "C M save_every".split())[:4] == clean(straight, "C M save_every".split())[:4]


@pytest.fixture(scope="module")
def shorter(words, tmp_path_factory):
    """A finished run of C=352, 22 updates: its last evaluation is one that a longer run does not have."""
    folder = tmp_path_factory.mktemp("shorter")
    done = run_script("train_grpo.py", *words, "--C=359", cwd=folder)  # a budget that is no multiple of B is cut down
    assert done.code == 0, done.stderr
    assert [r["rollouts"] for r in clean(folder / "run") if r["type"] == "eval"][-2:] == [320, 352]
    return folder / "run"


def test_larger_budget_continues_a_finished_run(words, straight, shorter, tmp_path, monkeypatch, capfd):
    shutil.copytree(shorter, tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    assert train_grpo.main(words) == 0
    assert "from update 22" in capfd.readouterr().err
    assert clean(tmp_path / "run", ("C", "M")) == clean(straight, ("C", "M"))
    assert clean(tmp_path / "run") != clean(straight)  # the header keeps the C it began with


def test_smaller_budget_does_not_touch_a_longer_run(words, straight, tmp_path, monkeypatch):
    run = unfinished(straight, tmp_path)
    before = (run / "log.jsonl").read_bytes()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="--C=160.* 480 rollouts"):
        train_grpo.main([*words, "--C=160"])
    assert (run / "log.jsonl").read_bytes() == before


def test_finished_run_is_not_run_again(words, straight):
    before = (straight / "log.jsonl").read_bytes()
    code = "import sys, train_grpo; code = train_grpo.main(sys.argv[1:]); sys.exit(code or 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, *words], cwd=straight.parent, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0 and "finished before" in done.stdout, done  # known before torch is loaded
    assert (straight / "log.jsonl").read_bytes() == before


def test_other_experiment_in_the_folder_is_refused(words, straight, tmp_path, monkeypatch):
    run = unfinished(straight, tmp_path)
    before = (run / "log.jsonl").read_bytes()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="another config: seed=0 there, 1 now, kl_coef=0.001 there, 0.5 now$"):
        train_grpo.main([*words, "--kl_coef=0.5", "--seed=1"])
    problems = read_log(run / "log.jsonl")[0]["config"]["val_set"]
    changed = tmp_path / "val.jsonl"
    changed.write_text("".join(open(problems).readlines()[:7]))
    edited = (run / "log.jsonl").read_text().replace(problems, str(changed))
    (run / "log.jsonl").write_text(edited)
    with pytest.raises(BadInput, match="val.jsonl has changed since this run began"):
        train_grpo.main([*words, f"--val_set={changed}"])
    assert (run / "log.jsonl").read_text() == edited != before.decode()


def limit(size):
    """For preexec_fn: a disk on which no file grows beyond `size` bytes."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def test_disk_that_fills_while_logging(words, straight, shorter, tmp_path, monkeypatch):
    shutil.copytree(shorter, tmp_path / "run")
    log = tmp_path / "run/log.jsonl"
    begun = (log.parent / "ckpt/step_00000022/state.json").read_text()
    size = json.loads(begun)["log_bytes"] + 1200  # two steps and part of a third; no checkpoint in between
    done = run_script("train_grpo.py", *words, "--save_every=0", cwd=tmp_path, preexec_fn=limit(size))
    assert done.code == 1 and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("train_grpo.py: File too large")
    left = log.read_bytes()
    assert left.endswith(b"}\n") and size - 700 < len(left) <= size and all(json.loads(line) for line in left.splitlines())
    monkeypatch.chdir(tmp_path)
    assert train_grpo.main(words) == 0
    assert clean(tmp_path / "run", ("C", "M")) == clean(straight, ("C", "M"))


@pytest.mark.parametrize("size, what", [(300_000, "ckpt/part"), (1_000_000, "ckpt/part")], ids=["weights", "optimizer"])
def test_checkpoint_that_cannot_be_written(words, straight, tmp_path, monkeypatch, size, what):
    done = run_script("train_grpo.py", *words, cwd=tmp_path, preexec_fn=limit(size))
    assert done.code == 1 and "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("train_grpo.py: ") and what in last
    assert not list((tmp_path / "run/ckpt").glob("step_*"))
    monkeypatch.chdir(tmp_path)
    assert train_grpo.main(words) == 0
    assert clean(tmp_path / "run") == clean(straight)


def test_run_that_diverges_says_so(tiny, tmp_path, capfd):
    line = [*tiny.words, "--B_p=2", "--n=4", "--C=800", "--lr_base=1e30", f"--out={tmp_path}"]
    assert train_grpo.main(line) == 0
    records = read_log(tmp_path / "log.jsonl")
    steps = [r for r in records if r["type"] == "step"]
    assert records[-1] == dict(type="end", status="diverged", rollouts=8 * len(steps)) and len(steps) < 100
    bad = [r["grad_norm"] is None for r in steps]  # JSON has no nan
    assert [r["skipped"] for r in steps] == list(itertools.accumulate(map(int, bad)))
    assert all(bad[-10:]) and steps[-1]["skipped"] >= 10
    assert not (tmp_path / "model").exists()
    before = (tmp_path / "log.jsonl").read_bytes()
    assert train_grpo.main(line) == 0 and "finished before" in capfd.readouterr().out  # for good, at any budget
    assert (tmp_path / "log.jsonl").read_bytes() == before


# ---------------------------------------------------------------------------------------------------------------------
# What a run leaves

def test_exported_model_is_the_trained_one(words, straight, world):
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM, AutoTokenizer
    exported = AutoModelForCausalLM.from_pretrained(straight / "model").eval()
    base, tokenizer = sample.load_model(world.base)
    prompt, response = [tokenizer(text)["input_ids"] for text in ("472+385=", "kd07pa15mf08#857")]
    assert AutoTokenizer.from_pretrained(straight / "model")("472+385=")["input_ids"] == prompt
    untrained = full_forward(base, prompt, response, 0.6)
    missing, unexpected = base.load_state_dict(load_file(straight / "ckpt/step_00000030/model.safetensors"), strict=False)
    assert not unexpected and all("lm_head" in name for name in missing)  # tied to the embedding
    trained = full_forward(base, prompt, response, 0.6)
    assert torch.equal(full_forward(exported, prompt, response, 0.6), trained)
    assert (trained - untrained).abs().max() > 0.01
    # and the checkpoint is what was trained: it repeats the last evaluation of the log, rollout by rollout
    cfg = parse(words)
    problems = sample.read_problems(cfg["val_set"])
    prompts = sample.encode(problems, tokenizer, 16)
    last = [r for r in read_log(straight / "log.jsonl") if r["type"] == "eval"][-1]
    assert evaluate.count_right(problems, prompts, exported, tokenizer, cfg, (0, "val", 30)) == last["correct"]


def test_evaluate_takes_the_run_folder(script, straight, tmp_path):
    # the problems and the lengths are those of the run
    done = script("evaluate.py", f"--model={straight}", "--k=2", f"--out={tmp_path}")
    assert done.code == 0, done.stderr
    result = json.loads((tmp_path / "eval.json").read_text())
    assert result["model"] == str(straight / "model") and len(result["correct"]) == 8
    for metric, (mean, _) in evaluate.summary(result["correct"], 4, 2).items():
        assert result["stats"][metric]["mean"] == pytest.approx(mean) and f"{metric:8s} {mean:.4f}" in done.stdout
    assert (tmp_path / "eval.png").stat().st_size > 1000


def test_evaluate_takes_the_newest_checkpoint(straight, tmp_path):
    run = unfinished(straight, tmp_path)
    assert evaluate.model_folder(run) == str(run / "model")
    shutil.rmtree(run / "model")
    assert evaluate.model_folder(run) == str(run / "ckpt/step_00000030")
    shutil.rmtree(run / "ckpt")
    with pytest.raises(BadInput, match="neither an exported model nor a checkpoint"):
        evaluate.model_folder(run)
    assert evaluate.model_folder("Qwen/Qwen2.5-7B-Instruct") == "Qwen/Qwen2.5-7B-Instruct"
