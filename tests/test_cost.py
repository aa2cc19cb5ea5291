"""Test core/cost.py against transformers' models, and the trainer's memory settings. No GPU is
needed."""
import json
import types

import pytest
import torch
import transformers
from conftest import ROOT

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


@pytest.mark.parametrize("model", cost.SHAPES)
def test_sizes_are_those_of_transformers(model):
    """Count every parameter of the model that transformers builds from the published numbers."""
    made = on_meta(cost.SHAPES[model])
    s = cost.sizes(made.config.to_dict())
    assert s["P"] == pytest.approx(sum(p.numel() for p in made.parameters()), rel=1e-4)
    body = made.base_model
    assert s["body"] == pytest.approx(sum(p.numel() for p in body.parameters()), rel=1e-4)
    assert s["root"] == pytest.approx(sum(p.numel() for name, p in made.named_parameters()
                                          if ".layers." not in name), rel=1e-4)
    assert s["kv"] == body.layers[0].self_attn.k_proj.out_features


@pytest.mark.parametrize("model", [QWEN, FOUR])
def test_what_a_layer_keeps_of_a_token(model):
    """Autograd keeps so many bytes of each token of a layer, in bf16 as on a GPU, within 15%."""
    shape = cost.SHAPES[model] | dict(num_hidden_layers=1, vocab_size=64)
    shape = {k: v // 8 if k in ("hidden_size", "intermediate_size", "head_dim") else v
             for k, v in shape.items()}
    layer = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(
        **shape)).base_model

    def kept(tokens):
        seen = {}

        def note(x):
            seen[x.untyped_storage().data_ptr()] = x, x.untyped_storage().nbytes()
            return x
        with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x), torch.autocast(
                "cpu", torch.bfloat16, cache_enabled=False):
            states = layer(inputs_embeds=torch.randn(1, tokens, shape["hidden_size"],
                                                     requires_grad=True)).last_hidden_state
        return sum(size for _, size in seen.values()) + 0 * states.sum().item()
    per_token = (kept(384) - kept(128)) / 256
    assert cost.sizes(shape)["token"] == pytest.approx(per_token, rel=0.15)


def test_more_of_anything_takes_more():
    s, cfg = cost.sizes(cost.SHAPES[QWEN]), cfg_of(QWEN)
    total = lambda gpus=4, **more: cost.update_bytes(s, dict(cfg, **more), gpus)
    assert total(8) < total(4) < total(2) < total(1)
    assert total() < total(activation_checkpointing="false")
    assert total(kl_coef=0) < total() < total(algo="ppo")
    assert total() + 3e9 < total(n=16384)  # an update keeps something of each of 524,288 rollouts
    assert total() < total(micro_tokens=65536) and total() < total(micro_logits=2**29)


@pytest.mark.parametrize("model, gpus, card, words, fits", [
    (QWEN, 1, 80, [], False), (QWEN, 2, 141, [], True), (QWEN, 4, 80, [], True),
    (QWEN, 4, 80, ["--activation_checkpointing=false"], False),
    (QWEN, 4, 80, ["--micro_tokens=131072"], False), (QWEN, 4, 80, ["--gpu_memory=0.9"], False),
    (QWEN, 1, 80, ["--lora_rank=32"], True), (FOUR, 4, 39, [], True),
    (FOUR, 4, 39, ["--gen_batch=1024"], False), (FOUR, 1, 48, ["--lora_rank=32"], True),
    (FOUR, 1, 32, ["--lora_rank=32"], False),  # the cache is too small
    ("Qwen/Qwen2.5-1.5B-Instruct", 1, 80, [], True),
    ("Qwen/Qwen2.5-1.5B-Instruct", 1, 24, [], False),
    ("Qwen/Qwen2.5-0.5B-Instruct", 1, 24, [], True),
    ("meta-llama/Llama-3.1-8B-Instruct", 4, 80, ["--algo=ppo"], False)])
def test_what_fits(capsys, model, gpus, card, words, fits):
    """A cell of the table has the responses in the KV cache, or "no"."""
    cost.main([f"--model={model}", f"--cards={card}", f"--gpus={gpus}", *words])
    cell = capsys.readouterr().out.splitlines()[-1].split("|")[-2].strip()
    assert (cell == "no") != fits and (not fits or int(cell) >= cost.AT_ONCE)


def test_a_kind_of_model_that_is_not_known(tmp_path):
    for shape in ({}, dict(n_embd=768), cost.SHAPES[QWEN] | dict(num_experts=8)):
        assert cost.sizes(shape) is None
    for words in (["--model=a/model"], ["--gpus=0"], ["--cards=x"],
                  [f"--model={QWEN}", "--dtype=fp32"]):
        with pytest.raises(BadInput, match=words[-1]):
            cost.main(words)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(BadInput, match="config.json"):
        cost.read_shape(tmp_path)


@pytest.fixture
def settings(monkeypatch, capsys):
    """Return the function (cfg, model, GPUs, GB of a card) -> (cfg with memory keys, stderr,
    whether vLLM is awake)."""
    def settings(cfg, model, gpus, gigabytes):
        name = "hf" if cfg["engine"] == "hf" else "vllm"
        card = types.SimpleNamespace(total_memory=gigabytes * 1e9)
        monkeypatch.setattr(train_grpo, "WORLD", gpus)
        monkeypatch.setattr(train_grpo, "all_reduce", lambda numbers, op: numbers)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: card)
        monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda *_: None)
        got, awake = train_grpo.memory_settings(model, cfg, "cuda:0", name)
        return got, capsys.readouterr().err, awake
    return settings


@pytest.mark.parametrize("model, gpus, words", [
    (QWEN, 1, []), (QWEN, 4, []), (QWEN, 4, ["--algo=ppo"]), (QWEN, 1, ["--lora_rank=32"]),
    (FOUR, 2, ["--kl_coef=0"]), (FOUR, 1, ["--engine=hf"])])
def test_the_share_that_the_trainer_leaves(settings, model, gpus, words):
    """A run that needs more than the card has is warned. vLLM gets what the trainer leaves."""
    cfg, shapes = cfg_of(model, *words), on_meta(cost.SHAPES[model])
    s, name = cost.sizes(cost.SHAPES[model]), "hf" if cfg["engine"] == "hf" else "vllm"
    update = cost.update_bytes(s, cost.fitted(s, cfg, gpus, 160e9, name), gpus, name)
    got, printed, _ = settings(cfg, shapes, gpus, 160)
    assert printed.count("\n") == 1 and ("may not fit" in printed) == (update > 160e9)
    parts = cost.state_bytes(s, cfg, gpus)
    left = cost.usable_bytes(160e9) - sum(parts.values()) + parts["gradients"]
    if name == "vllm":
        assert got["gpu_memory"] == pytest.approx(min(0.9, max(0.1, left / 160e9)), abs=1e-3)
    assert settings(cfg | dict(gpu_memory=0.4), shapes, gpus, 160)[0]["gpu_memory"] == 0.4
    got, printed, _ = settings(cfg, shapes, gpus, 10)
    assert "may not fit" in printed and got["gpu_memory"] == 0.1


@pytest.mark.parametrize("card, again, share", [(80, "false", 1), (44, "false", 0.5),
                                                (24, "true", 1)])
def test_activations_are_computed_again_if_they_do_not_fit(settings, card, again, share):
    """First all are kept, then the micro-batch is halved, then they are computed again."""
    name = "Qwen/Qwen2.5-0.5B-Instruct"
    model, cfg = on_meta(cost.SHAPES[name]), cfg_of(name, "--max_new_tokens=768")
    got, printed, _ = settings(cfg, model, 1, card)
    assert got["activation_checkpointing"] == again
    assert got["micro_tokens"] == share * cfg["micro_tokens"]
    assert got["micro_logits"] == cfg["micro_logits"]
    assert settings(cfg, model, 1, 140)[0]["micro_logits"] == 10 ** 12  # one chunk of the head
    assert ("again" if again == "true" else "once") in printed and printed.count("\n") == 1
    mine = cfg | dict(activation_checkpointing="false")
    assert settings(mine, model, 1, 80)[0] | dict(gpu_memory=0) == mine
    for unknown in (cfg | dict(dtype="fp32"), cfg):
        other = model if unknown["dtype"] == "fp32" else on_meta(dict(model_type="gpt2"))
        assert settings(unknown, other, 1, 80)[0]["activation_checkpointing"] == "true"


@pytest.mark.parametrize("card, runs, words, awake", [
    (80, 1, "", True), (24, 1, "", False), (80, 1, "--gpu_memory=0.8", False), (80, 2, "", True)])
def test_the_engine_stays_awake_if_it_fits(settings, monkeypatch, card, runs, words, awake):
    """All runs that share a card fit into it: their updates next to their awake engines."""
    name = "Qwen/Qwen2.5-0.5B-Instruct"
    model, cfg = on_meta(cost.SHAPES[name]), cfg_of(name, "--max_new_tokens=768", *words.split())
    monkeypatch.setenv("RUNS_PER_GPU", str(runs))
    got, _, stays = settings(cfg, model, 1, card)
    assert stays == awake
    need = cost.update_bytes(cost.sizes(cost.SHAPES[name]), got, 1)
    assert (runs * (need + got["gpu_memory"] * card * 1e9) <= 0.95 * card * 1e9) == awake
    monkeypatch.setenv("RUNS_PER_GPU", "2")
    assert "3 for its engine, so it may not fit" in settings(cfg, model, 1, 24)[1]
    assert settings(cfg, model, 1, 24)[0]["kv_cache_bytes"] > 1e8  # that of AT_ONCE responses


def test_the_table_of_the_docs(tmp_path, capsys):
    """docs/gpu.md and core/cost.py agree on how many GPUs of each size a run needs."""
    def table(*words):
        cost.main(list(words))
        return [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()]
    head, _, *rows = table()
    loras = table("--lora_rank=32", "--gpus=1")[2:]
    assert len(rows) == 5 * 4 and len(loras) == 5
    page, cards = (ROOT / "docs/gpu.md").read_text(), head[4:]
    for i, lora in enumerate(loras):
        fewest = [next((row[1] for row in rows[4 * i:4 * i + 4] if row[j][0].isdigit()), "none")
                  for j in range(4, 8)]
        one = next(card for card, cell in zip(cards, lora[4:]) if cell[0].isdigit())
        assert f"| {lora[0]} | {' | '.join(fewest)} | {one} |" in page
    (tmp_path / "config.json").write_text(json.dumps(cost.SHAPES[QWEN]))
    # checkpointing and engine of the command line count
    usual, kept, hf = (table(f"--model={tmp_path}", "--gpus=4", "--cards=80", *more)[2]
                       for more in ([], ["--activation_checkpointing=false"], ["--engine=hf"]))
    assert float(kept[2]) > 2 * float(usual[2])
    assert float(hf[2]) > float(usual[2]) + 15 and hf[4].isdigit()


def test_what_adds_to_the_hours():
    name = "Qwen/Qwen2.5-0.5B-Instruct"
    s = cost.sizes(cost.SHAPES[name])
    cfg = cfg_of(name, "--n=32", "--C=1e6", "--max_new_tokens=768")
    more = lambda **keys: cost.gpu_hours(dict(cfg, **keys)) / cost.gpu_hours(cfg)
    body = dict(s, V=0)  # without the logits, whose time the reference does not change
    assert cost.update_s(body, cfg, 64, 1) == pytest.approx(
        8 / 6 * cost.update_s(body, dict(cfg, kl_coef=0), 64, 1))  # 8 FLOPs and 6
    assert cost.update_s(s, cfg, 64, 1) > cost.update_s(body, cfg, 64, 1)
    three, two = (more(samples=10**7, eval_every=every) for every in (500_000, 10**6))
    assert three / two == pytest.approx(3 / 2, rel=0.01)  # evaluations, one of the base model
    assert more(eval_every=4096) > 1.01 and more(max_new_tokens=2048) > 1.5
    assert more(n=4) > more(n=8) > 1
    # with 16 times the rollouts in flight, most of the time is the CPU's work on each
    small, large = (cost.generation_s(s, cfg, n, 1) for n in (64, 1024))
    assert large - small > 960 * cost.mean_length(cfg) * cost.ROLLOUT_S
    assert cost.gpu_hours(cfg, "RTX 4090") > cost.gpu_hours(cfg)
    # six finished models, and three checkpoints of the current run
    runs = [dict(cfg, keep_last=False)] * 6
    assert cost.disk_bytes(s, runs) == 48 * s["P"]
    lora, ppo = (cost.disk_bytes(s, [r | more for r in runs])
                 for more in (dict(lora_rank=8), dict(algo="ppo")))
    assert 12 * s["P"] < lora < 13 * s["P"] and ppo == 48 * s["P"] + 36 * s["body"]


def test_what_a_sweep_takes():
    """The line has the rollouts of all cells. Hours are in proportion to C."""
    words = ["--data=data/guru_math", "--ns=8 32", "--C=1e6", "--seeds=0"]
    line = cost.of_runs(sweep.cells(sweep.sweep_config("easy", words)))
    assert line.startswith("2 runs, 2.0M rollouts, about ") and "(of H100) GPU-hours" in line
    one = cfg_of(QWEN, "--n=32", "--C=1e6")
    four = cost.gpu_hours(dict(one, C=4_000_000))
    assert four == pytest.approx(4 * cost.gpu_hours(one), rel=0.02)
    assert cost.gpu_hours(one) < cost.gpu_hours(dict(one, n=8))
    assert cost.gpu_hours(cfg_of("a/b")) is None
    for words in ([], ["--model=./data/arithmetic/one_layer/"]):  # the model of the preset
        grid = sweep.cells(sweep.sweep_config("easy", words))
        assert cost.of_runs(grid).startswith("12 runs, 0.5M rollouts")
