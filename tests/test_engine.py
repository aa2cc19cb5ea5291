"""Test the transformers engine: log-probs, ends of responses, seeds and distribution of tokens."""
import copy
import math
import os
import random

import pytest
import torch
from conftest import fake_node
from scipy.stats import chi2

from core import engine
import train_grpo
from config import BadInput, parse

named = pytest.mark.parametrize

# several stop tokens, as chat models have; with these, a random model stops in some rollouts only
STOPS = [1, 5, 11, 20, 33, 40]


@pytest.fixture(scope="module")
def hf(tiny):
    """Return (model, tokenizer, prompts of different lengths), with STOPS as stop tokens."""
    model, tokenizer = engine.load_model(tiny.model)
    model.generation_config.eos_token_id = STOPS
    rng = random.Random(5)
    return model, tokenizer, [[rng.randrange(2, 52) for _ in range(k)] for k in (7, 3, 10, 3, 5, 1)]


def draw(hf, n=8, seeds=range(6), prompts=None, **changes):
    """Return rollouts of the prompts of `hf`, or of `prompts`; `changes` replace config keys."""
    cfg = {**parse(["--max_new_tokens=12", "--gen_batch=1000"]), **changes}
    return engine.HFEngine(*hf[:2], cfg).generate(prompts or hf[2], n, list(seeds))


def same_rollouts(a, b):
    """Return whether two calls gave the same tokens, and the same log-probs up to rounding."""
    exact = all(torch.equal(a[key], b[key]) for key in ("tokens", "length", "stopped"))
    return exact and torch.allclose(a["logps"], b["logps"], atol=1e-5)


def full_forward(model, prompt, response, temperature):
    """Return log-probs (k + 1, V) after the prompt and after each of the k response tokens, from
    one forward pass of transformers without a cache."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([prompt + response]),
                       use_cache=False).logits[0].double()
    return torch.log_softmax(logits[len(prompt) - 1:] / temperature, -1)


def gaps(model, prompts, rollouts, n, temperature=0.6):
    """Return |engine's log-prob - transformers' log-prob| of all response tokens, in one tensor."""
    out = []
    for i, k in enumerate(rollouts["length"].tolist()):
        response = rollouts["tokens"][i, :k].tolist()
        exact = full_forward(model, prompts[i // n], response, temperature)[range(k), response]
        out.append((exact - rollouts["logps"][i, :k]).abs())
    return torch.cat(out)


@named("temperature", [0.6, 1.4])
def test_engine_logps_are_those_of_a_full_forward(hf, temperature):
    out = draw(hf, temperature=temperature)
    assert gaps(hf[0], hf[2], out, 8, temperature).max() < 2e-5


def test_stop_and_length(hf):
    out = draw(hf)
    T = out["tokens"].shape[1]
    assert T == out["length"].max() <= 12 and out["logps"].shape == out["tokens"].shape == (48, T)
    for tokens, logps, k, stopped in zip(*[out[key].tolist()
                                           for key in ("tokens", "logps", "length", "stopped")]):
        assert not set(tokens[:k - 1]) & set(STOPS)
        assert (tokens[k - 1] in STOPS) == stopped
        assert stopped or k == 12
        assert tokens[k:] == [0] * (T - k) and not any(logps[k:])  # <pad> is token 0
    assert 5 < out["stopped"].sum() < 43, "some rollouts must stop and some must be cut off"
    one = draw(hf, max_new_tokens=1)
    assert one["tokens"].shape == (48, 1) and set(one["length"].tolist()) == {1}
    assert one["stopped"].tolist() == [t in STOPS for t in one["tokens"][:, 0].tolist()]


TURNS = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }} [end] {% endfor %}"


@named("config_says, template, want", [
    ([2, 3], None, [1, 2, 3]), (2, None, [1, 2]), (None, None, [1]),
    ([1], TURNS, "[end]"),  # config.json has the base model's end
    (None, TURNS, "[end]"), ([1], "{{ messages[0]['content'] }}", [1]),  # a template without an end
    ([1], "{{ raise_exception('no') }}", [1])])  # a template for users alone
def test_every_file_that_names_an_end_counts(hf, config_says, template, want):
    """Stop tokens come from generation_config.json, from the tokenizer and from the chat template.
    Often one of the three has only the end token of the base model, which a chat model never writes
    at the end of a turn."""
    model, tokenizer = copy.deepcopy(hf[:2])
    end = "7" if want == "[end]" else "[end]"  # 7 is a token that the model draws now and then
    tokenizer.add_special_tokens(dict(additional_special_tokens=[end]))
    tokenizer.chat_template = template and template.replace("[end]", end)
    turn = tokenizer.convert_tokens_to_ids(end)
    want = [1, turn] if want == "[end]" else want
    assert engine.stop_ids(config_says, tokenizer) == want
    if turn not in want:
        return
    model.generation_config.eos_token_id = config_says
    out, ended = draw((model, tokenizer, hf[2]), n=32), set()
    for tokens, k, stopped in zip(out["tokens"].tolist(), out["length"], out["stopped"]):
        assert turn not in tokens[:k - 1] and (tokens[k - 1] in want) == stopped
        ended.add(tokens[k - 1])
    assert ended >= set(want)


def test_rollouts_do_not_depend_on_gen_batch(hf):
    whole = draw(hf)
    for gen_batch in (1, 3, 8, 17):
        assert same_rollouts(whole, draw(hf, gen_batch=gen_batch))
    stream = engine.HFEngine(*hf[:2], parse(["--gen_batch=17"])).stream(hf[2], 8, range(6))
    lengths = [[len(hf[2][j]) for j in js] for js, _ in stream]
    assert [len(part) for part in lengths] == [2, 2, 2]
    assert sum(lengths, []) == sorted(sum(lengths, []), reverse=True)


def test_the_output_layer_is_not_copied_for_each_prompt(hf):
    """Given a slice of hidden states, torch copies frozen weights once per row. For 64 prompts and
    a vocabulary of 49,000 tokens, the copies took 3.6 GB."""
    from torch.profiler import ProfilerActivity, profile
    frozen = copy.deepcopy(hf[0]).requires_grad_(False)
    V, H = frozen.lm_head.weight.shape
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as run:
        draw((frozen, *hf[1:]), n=2)
    shapes = [(e.name, shape) for e in run.events() if e.name in ("aten::mm", "aten::bmm")
              for shape in e.input_shapes]
    assert ("aten::mm", [H, V]) in shapes
    assert not [shape for name, shape in shapes if name == "aten::bmm" and shape[1:] == [H, V]]


def test_a_rollout_depends_on_its_seed_and_number_only(hf):
    prompts, whole = hf[2], draw(hf)

    def rows(out, index):
        T = int(out["length"][index].max())
        return {key: value[index][:, :T] if value.dim() == 2 else value[index]
                for key, value in out.items()}
    for n in (3, 20):  # rollout i of a prompt does not depend on n
        out, m = draw(hf, n=n), min(n, 8)
        assert same_rollouts(rows(out, [j * n + i for j in range(6) for i in range(m)]),
                             rows(whole, [j * 8 + i for j in range(6) for i in range(m)]))
    for j in (0, 2, 5):  # a rollout does not depend on the other prompts or on their order
        assert same_rollouts(draw(hf, prompts=[prompts[j]], seeds=[j]),
                             rows(whole, list(range(8 * j, 8 * j + 8))))
    backwards = draw(hf, prompts=prompts[::-1], seeds=range(5, -1, -1))
    assert same_rollouts(rows(backwards, [8 * (5 - j) + i for j in range(6) for i in range(8)]),
                         whole)
    other = draw(hf, seeds=range(10, 16))
    assert not torch.equal(other["tokens"][:, :1], whole["tokens"][:, :1])
    assert len({tuple(r) for r in whole["tokens"].tolist()}) > 30, "rollouts of one prompt differ"


def chi2_p(tokens, logp):
    """Return the p-value of a chi-square test that `tokens` come from exp(logp). Tokens expected
    fewer than 5 times form one class."""
    expected, seen = len(tokens) * logp.exp(), torch.bincount(tokens, minlength=len(logp)).double()
    rare = expected < 5
    expected, seen = [torch.cat([x[~rare], x[rare].sum()[None]]) for x in (expected, seen)]
    keep = expected > 0
    return chi2.sf(((seen - expected)[keep] ** 2 / expected[keep]).sum().item(),
                   int(keep.sum()) - 1)


@named("temperature", [0.6, 1.4])
def test_sampling_follows_the_distribution(hf, temperature):
    """Test the first token, and the second token after the most frequent first token. A correct
    sampler fails with one seed in 2,500 (four tests at 1e-4; the seed is fixed). The same test
    rejects a wrong temperature."""
    prompt, N = hf[2][0], 20000
    tokens = draw(hf, n=N, seeds=[0], prompts=[prompt], max_new_tokens=2, temperature=temperature,
                  gen_batch=N)["tokens"]
    first = full_forward(hf[0], prompt, [], temperature)[0]
    assert chi2_p(tokens[:, 0], first) > 1e-4
    assert chi2_p(tokens[:, 0], full_forward(hf[0], prompt, [], 2 - temperature)[0]) < 1e-10
    common = next(t for t in torch.bincount(tokens[:, 0]).argsort(descending=True).tolist()
                  if t not in STOPS)
    given = tokens[tokens[:, 0] == common, 1]
    assert len(given) > 500
    assert chi2_p(given, full_forward(hf[0], prompt, [common], temperature)[1]) > 1e-4


def test_top_p(hf):
    """Tokens come from the smallest set of likeliest tokens with mass top_p, renormalised. A
    correct sampler fails with one seed in 10,000."""
    prompt, N, top_p = hf[2][0], 20000, 0.7
    out = draw(hf, n=N, seeds=[0], prompts=[prompt], max_new_tokens=1, top_p=top_p, gen_batch=N)
    p, nucleus, mass = full_forward(hf[0], prompt, [], 0.6)[0].exp().tolist(), [], 0.0
    for token in sorted(range(len(p)), key=lambda t: -p[t]):
        if mass < top_p:
            nucleus.append(token)
            mass += p[token]
    assert 1 < len(nucleus) < 40
    assert set(out["tokens"][:, 0].tolist()) == set(nucleus)
    exact = torch.tensor([math.log(p[t] / mass) if t in nucleus else -math.inf
                          for t in range(len(p))], dtype=torch.float64)
    assert torch.allclose(out["logps"][:, 0].double(), exact[out["tokens"][:, 0]], atol=1e-5)
    assert chi2_p(out["tokens"][:, 0], exact) > 1e-4


def test_ends_of_the_inverse_cdf():
    logits = torch.log(torch.tensor([[0.0, 0.5, 0.3, 0.2, 0.0]]))

    def token(u, top_p=1.0):
        return engine.sample_tokens(logits, torch.tensor([u]), 1.0, top_p)[0].item()
    # tokens 0 and 4 have no mass, so no u may pick them: neither the smallest u nor 1
    assert [token(u) for u in (2**-24, 0.49, 0.51, 0.79, 0.81, 1.0)] == [1, 1, 2, 2, 3, 3]
    assert [token(u, 0.6) for u in (2**-24, 0.62, 0.63, 1.0)] == [1, 1, 2, 2]
    assert [token(u, 0.3) for u in (2**-24, 1.0)] == [1, 1]
    # in fp32, the probabilities of a large vocabulary do not sum to 1
    for seed in (6, 8, 9, 10):
        many = torch.randn(1, 200_000, generator=torch.Generator().manual_seed(seed))
        assert engine.sample_tokens(many, torch.tensor([1.0]), 1.0, 1.0)[0] < 200_000


def test_bf16_on_a_cpu(hf):
    """With bf16, the engine decodes with a bf16 copy that `load` updates; trained weights are fp32.
    Log-probs of the two differ by rounding. auto is fp32 on a CPU and decodes with the model
    itself."""
    for dtype, cpu, cuda in (("auto", False, True), ("fp32", False, False), ("bf16", True, True)):
        assert engine.is_bf16(dtype, "cpu") == cpu
        assert engine.is_bf16(dtype, torch.device("cuda:1")) == cuda
    model, tokenizer, prompts = hf
    cfg = {**parse(["--max_new_tokens=12", "--gen_batch=1000"]), "dtype": "bf16"}
    generator, moved = engine.HFEngine(model, tokenizer, cfg), copy.deepcopy(model)
    assert engine.HFEngine(model, tokenizer, cfg | dict(dtype="auto")).model is model
    assert generator.model.dtype == torch.bfloat16 and model.dtype == torch.float32
    with torch.no_grad():
        for p in moved.parameters():
            p.add_(0.05 * torch.randn(p.shape, generator=torch.Generator().manual_seed(1)))
    generator.load((name, p.detach()) for name, p in moved.named_parameters())
    out = generator.generate(prompts, 8, list(range(6)))
    sequences = [torch.tensor(prompts[i // 8] + out["tokens"][i, :k].tolist())
                 for i, k in enumerate(out["length"].tolist())]
    prompt_length = torch.tensor([len(prompts[i // 8]) for i in range(48)])
    ids = torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True)
    inside = torch.arange(out["logps"].shape[1]) < out["length"][:, None]
    sampled, gaps = out["logps"][inside], {}
    for dtype in ("fp32", "bf16", "auto"):
        cfg["dtype"] = dtype
        logp, _ = train_grpo.token_logps(moved, ids, prompt_length, out["length"], cfg)
        assert logp.dtype == torch.float32
        gaps[dtype] = (logp - sampled).abs().mean().item()
    assert gaps["auto"] == gaps["fp32"] != gaps["bf16"]
    # bf16 has 8 bits, so a log-prob has an error of about 0.03, on some processors more
    assert 0 < gaps["bf16"] < 0.1 and 0 < gaps["fp32"] < 0.1, gaps
    stale, _ = train_grpo.token_logps(model, ids, prompt_length, out["length"], cfg)
    assert (stale - sampled).abs().mean() > 5 * gaps["bf16"]


def test_a_gpu_that_torch_does_not_see(tmp_path, monkeypatch):
    """If torch and the GPU's driver do not fit together, no engine silently uses the CPU."""
    fake_node(tmp_path, 2, 80)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    unseen = "--device=auto: there are GPUs .* core/probe.py"
    for words, why in ((["--device=auto"], unseen), (["--device=auto", "--engine=hf"], unseen),
                       (["--device=cuda"], "--device=cuda: torch sees no GPU here")):
        with pytest.raises(BadInput, match=why):
            engine.engine_name(parse(words))
    assert engine.engine_name(parse(["--device=cpu"])) == "hf"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert engine.engine_name(parse([])) == "hf"
