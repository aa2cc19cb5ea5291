"""Test core/cost.py against a simulation of our own code, and the trainer's memory warning.

Also the hours of a sweep, estimated and scaled to a log. No GPU is needed.
"""
import json
import random
import re
import types

import pytest
import torch
import transformers
from conftest import ROOT, load_script

import train_grpo
from config import BadInput, parse
from core import cost, sweep

QWEN = "Qwen/Qwen2.5-7B-Instruct"
FOUR = "Qwen/Qwen3-4B-Instruct-2507"


def cfg_of(model, *words):
    return parse([f"--model={model}", *words])


def on_meta(shape):
    shape = dict(shape)
    config = transformers.AutoConfig.for_model(shape.pop("model_type"), **shape)
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(config)


@pytest.fixture(scope="module")
def simulation():
    return load_script("tests/bench/memory.py")


@pytest.fixture(scope="module")
def tail():
    return load_script("tests/bench/tail.py")


@pytest.mark.parametrize("model", cost.SHAPES)
def test_sizes_are_those_of_transformers(model):
    """Count every parameter of the model that transformers builds from the published numbers."""
    made = on_meta(cost.SHAPES[model])
    s = cost.sizes(made.config.to_dict())
    assert s["P"] == pytest.approx(sum(p.numel() for p in made.parameters()), rel=1e-4)
    body = made.base_model
    assert s["body"] == pytest.approx(sum(p.numel() for p in body.parameters()), rel=1e-4)
    layer = sum(p.numel() for p in body.layers[0].parameters())
    assert s["layer"] == pytest.approx(layer, rel=1e-3)
    assert s["root"] == pytest.approx(sum(p.numel() for name, p in made.named_parameters()
                                          if ".layers." not in name), rel=1e-4)
    assert s["kv"] == body.layers[0].self_attn.k_proj.out_features


@pytest.mark.parametrize("model, settings, words", [
    (QWEN, dict(), []), (QWEN, dict(ranks=4), []),
    (QWEN, dict(ranks=4, kl=False, ppo=True), ["--kl_coef=0", "--algo=ppo"]),
    (FOUR, dict(ranks=4, kl=False, recompute=False),
     ["--kl_coef=0", "--activation_checkpointing=false"]),
    (QWEN, dict(lora_rank=32), ["--lora_rank=32"])])
def test_the_sum_is_that_of_a_simulated_update(simulation, model, settings, words):
    """Simulate three layers as wide as a 7B or 4B model's on tensors without data: within 5%.

    The layers go through `shard_model` and `token_logps`. tests/bench/memory.py simulates whole
    models.
    """
    if "lora_rank" in settings:
        pytest.importorskip("peft", reason="pip install -r requirements-lora.txt")
    shape = cost.SHAPES[model] | dict(num_hidden_layers=3)
    seen, ranks = simulation.case(shape, **settings), settings.get("ranks", 1)
    cfg = cfg_of(model, "--max_prompt_tokens=100", "--max_new_tokens=900",
                 "--activation_checkpointing=true", *words)
    s = cost.sizes(shape)
    assert sum(cost.update_bytes(s, cfg, ranks).values()) == pytest.approx(seen["peak"], rel=0.05)
    trainer = cost.generation_bytes(s, cfg, ranks, "vllm")[0]["trainer"]
    assert trainer == pytest.approx(seen["state"], rel=0.01)


def test_a_frozen_model_gives_its_embedding_up(simulation):
    """The reference's embedding and head are gathered only during the reference's forward pass."""
    shape = cost.SHAPES[QWEN] | dict(num_hidden_layers=1)
    with_ref, without = [simulation.case(shape, ranks=4, kl=kl, micro_tokens=1024)
                         for kl in (True, False)]
    s = cost.sizes(shape)
    more = with_ref["tops"]["backward"] - without["tops"]["backward"]
    assert more == pytest.approx(2 * s["P"] / 4, rel=0.05)  # the reference's shard


def test_more_of_anything_takes_more():
    s, cfg = cost.sizes(cost.SHAPES[QWEN]), cfg_of(QWEN)
    total = lambda gpus=4, **more: sum(cost.update_bytes(s, dict(cfg, **more), gpus).values())
    assert total(8) < total(4) < total(2) < total(1)
    assert total() < total(activation_checkpointing="false")
    assert total(kl_coef=0) < total() < total(algo="ppo")
    assert total() + 3e9 < total(n=16384)  # an update keeps something of each of 524,288 rollouts
    assert total() < total(micro_tokens=65536) and total() < total(micro_logits=2**29)


@pytest.mark.parametrize("model, gpus, card, words, fits", [
    (QWEN, 1, 80, [], False), (QWEN, 2, 141, [], True), (QWEN, 4, 80, [], True),
    (QWEN, 4, 80, ["--activation_checkpointing=false"], False),
    (QWEN, 4, 80, ["--micro_tokens=131072"], False), (QWEN, 4, 80, ["--gpu_memory=0.9"], False),
    (QWEN, 1, 80, ["--lora_rank=32"], True), (FOUR, 4, 40, [], True),
    (FOUR, 4, 40, ["--gen_batch=1024"], False), (FOUR, 1, 48, ["--lora_rank=32"], True),
    (FOUR, 1, 32, ["--lora_rank=32"], False),  # the cache is too small
    ("Qwen/Qwen2.5-1.5B-Instruct", 1, 80, [], True),
    ("Qwen/Qwen2.5-1.5B-Instruct", 1, 24, [], False),
    ("Qwen/Qwen2.5-0.5B-Instruct", 1, 24, [], True),
    ("meta-llama/Llama-3.1-8B-Instruct", 4, 80, ["--algo=ppo"], False),
])
def test_what_fits(capsys, model, gpus, card, words, fits):
    """A cell of the table has vLLM's share of the card and the responses in its cache, or "no"."""
    cost.main([f"--model={model}", f"--cards={card}", f"--gpus={gpus}", *words])
    cell = capsys.readouterr().out.splitlines()[-1].split("|")[-2].strip()
    assert (cell != "no") == fits
    if fits:
        share, cache = cell.split(", ")
        assert 0.2 < float(share) <= 0.9 and int(cache) >= cost.AT_ONCE


def test_a_kind_of_model_that_is_not_known(tmp_path):
    for shape in ({}, dict(n_embd=768), cost.SHAPES[QWEN] | dict(num_experts=8)):
        assert cost.sizes(shape) is None
    for words in (["--model=a/model"], [f"--model={QWEN}", "--dtype=fp32"]):
        with pytest.raises(BadInput, match=words[-1]):
            cost.main(words)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(BadInput, match="config.json"):
        cost.read_shape(tmp_path)


@pytest.mark.parametrize("model, gpus, words, needs", [
    (QWEN, 1, [], 138), (QWEN, 4, [], 42), (QWEN, 4, ["--algo=ppo"], 63), (QWEN, 8, [], 29),
    (QWEN, 1, ["--lora_rank=32"], 32), (FOUR, 2, ["--kl_coef=0"], 33),
    (FOUR, 1, ["--engine=hf"], 81)])
def test_the_share_that_the_trainer_leaves(monkeypatch, capsys, model, gpus, words, needs):
    """On a card with enough memory the trainer's share is core/cost.py's, within a hundredth.

    If an update or generation needs more than the card has, there is a warning and no error.
    """
    cfg, shape = cfg_of(model, *words), cost.SHAPES[model]
    name = "hf" if cfg["engine"] == "hf" else "vllm"
    monkeypatch.setattr(train_grpo, "WORLD", gpus)
    monkeypatch.setattr(train_grpo, "all_reduce", lambda numbers, op: numbers)

    def left(gigabytes, **more):
        card = types.SimpleNamespace(total_memory=gigabytes * 1e9)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: card)
        share = train_grpo.engine_memory_share(on_meta(shape), cfg | more, "cuda:0", name)
        return share, capsys.readouterr().err
    share, warning = left(160)
    plan = cost.memory_plan(cost.sizes(shape), cfg, gpus, 160e9, name)
    assert not warning
    assert not left(needs + 1)[1]
    warning = left(needs - 1)[1]
    assert "may not fit" in warning and warning.count("\n") == 1
    if name == "vllm":
        assert share == pytest.approx(plan["share"], abs=0.011)
        assert left(10)[0] == 0.1 and left(160, gpu_memory=0.4)[0] == 0.4


def test_the_table_of_the_docs(tmp_path, capsys):
    """docs/gpu.md says on how many GPUs of each size a run fits, as core/cost.py prints it."""
    def table(*words):
        cost.main(list(words))
        return [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()]
    head, _, *rows = table()
    assert len(rows) == 5 * 5
    page, cards = (ROOT / "docs/gpu.md").read_text(), head[4:]
    for i in range(0, 25, 5):
        *plain, lora = rows[i:i + 5]
        fewest = [next((row[1] for row in plain if row[j][0].isdigit()), "none")
                  for j in range(4, 8)]
        one = next(card for card, cell in zip(cards, lora[4:]) if cell[0].isdigit())
        assert f"| {lora[0]} | {' | '.join(fewest)} | {one} |" in page
    (tmp_path / "config.json").write_text(json.dumps(cost.SHAPES[QWEN]))
    # checkpointing and engine of the command line count
    usual, kept, hf = (table(f"--model={tmp_path}", "--gpus=4", "--cards=80", *more)[2]
                       for more in ([], ["--activation_checkpointing=false"], ["--engine=hf"]))
    assert float(kept[2]) > 2 * float(usual[2])
    assert float(hf[2]) > float(usual[2]) + 15 and "0.00, " in hf[4]


@pytest.mark.parametrize("model, n, B_p", [("7B", 8, 32), ("7B", 32, 32), ("7B", 128, 32),
                                           ("0.5B", 4, 8), ("0.5B", 64, 8)])
def test_expected_hours_are_those_of_drawn_lengths(tail, model, n, B_p):
    """core/cost.py agrees with tests/bench/tail.py, which draws every response.

    Only a GPU could show whether both are right.
    """
    name = f"Qwen/Qwen2.5-{model}-Instruct"
    cfg, gpus, most = tail.run_of(name)
    s, rollouts = cost.sizes(cost.SHAPES[name]), B_p * n
    drawn = tail.generation(name, n, B_p, random.Random(0), draws=30)
    assert cost.generation_s(s, cfg, rollouts, gpus) == pytest.approx(drawn, rel=0.1)


def test_what_adds_to_the_hours():
    """The reference, evaluations, problems to measure, longer responses and more rollouts do."""
    name = "Qwen/Qwen2.5-0.5B-Instruct"
    s = cost.sizes(cost.SHAPES[name])
    cfg = cfg_of(name, "--n=32", "--C=1e6", "--max_new_tokens=768")
    more = lambda **keys: cost.gpu_hours(dict(cfg, **keys)) / cost.gpu_hours(cfg)
    body = dict(s, V=0)  # without the logits, whose time the reference does not change
    assert cost.update_s(body, cfg, 64, 1) == pytest.approx(
        1.25 * cost.update_s(body, dict(cfg, kl_coef=0), 64, 1))  # 10 FLOPs and 8
    assert cost.update_s(s, cfg, 64, 1) > cost.update_s(body, cfg, 64, 1)
    assert more(eval_every=4096) > 1.01 and more(max_new_tokens=2048) > 1.5
    assert more(n=4) > more(n=8) > 1
    # with 16 times the rollouts in flight, most of the time is the CPU's work on each
    small, large = (cost.generation_s(s, cfg, n, 1) for n in (64, 1024))
    assert large - small > 960 * cost.mean_length(cfg) * cost.ROLLOUT_S
    assert cost.gpu_hours(cfg, "RTX 4090") > cost.gpu_hours(cfg)
    # six finished models, and three checkpoints of the current run
    assert cost.disk_bytes(s, [dict(cfg, keep_last=False)] * 6) == 48 * s["P"]


def test_what_a_sweep_takes():
    """The line has the rollouts of all cells. Hours are in proportion to C."""
    words = ["--data=data/guru_math", "--ns=8 32", "--C=1e6", "--seeds=0"]
    line = cost.of_runs(sweep.cells(sweep.sweep_config("easy", words)))
    assert line.startswith("2 runs, 2.0M rollouts, about ") and "(of H100) GPU-hours" in line
    one = cfg_of(QWEN, "--n=32", "--C=1e6")
    four = cost.gpu_hours(dict(one, C=4_000_000))
    assert four == pytest.approx(4 * cost.gpu_hours(one), rel=0.02)
    assert cost.gpu_hours(one) < cost.gpu_hours(dict(one, n=8))
    assert cost.fewest_gpus(cost.sizes(cost.SHAPES[QWEN]), one) == 4
    assert cost.gpu_hours(cfg_of("a/b")) is None
    assert cost.of_runs(sweep.cells(sweep.sweep_config("easy", []))) == "12 runs, 0.6M rollouts"


