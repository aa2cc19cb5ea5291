"""memory.py: what a run takes of a GPU, against a simulation of our own code; what is chosen and
refused. No GPU is needed.
"""
import importlib.util
import itertools
import json
import subprocess
import sys

import pytest
from conftest import ROOT, fake_node

import memory
import train_grpo
from config import BadInput, parse

GPUS = (1, 2, 4, 8)
QWEN = "Qwen/Qwen2.5-7B-Instruct"
FOUR = "Qwen/Qwen3-4B-Instruct-2507"


def cfg_of(model, *words):
    return parse([f"--model={model}", *words])


@pytest.fixture(scope="module")
def simulation():
    spec = importlib.util.spec_from_file_location("simulation", ROOT / "tests/bench/memory.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("model", memory.SHAPES)
def test_sizes_are_those_of_transformers(model):
    """Every parameter of the model that transformers makes of the published numbers."""
    import torch
    import transformers
    shape = dict(memory.SHAPES[model])
    config = transformers.AutoConfig.for_model(shape.pop("model_type"), **shape)
    with torch.device("meta"):
        made = transformers.AutoModelForCausalLM.from_config(config)
    s = memory.sizes(config.to_dict())
    assert s["P"] == pytest.approx(sum(p.numel() for p in made.parameters()), rel=1e-4)
    body = made.base_model
    assert s["body"] == pytest.approx(sum(p.numel() for p in body.parameters()), rel=1e-4)
    layer = sum(p.numel() for p in body.layers[0].parameters())
    assert s["layer"] == pytest.approx(layer, rel=1e-3)
    assert s["root"] == pytest.approx(sum(p.numel() for name, p in made.named_parameters()
                                          if ".layers." not in name), rel=1e-4)
    assert s["kv"] == body.layers[0].self_attn.k_proj.out_features


@pytest.mark.parametrize("model, ranks, kl, ppo, recompute", [
    (QWEN, 1, True, False, True), (QWEN, 4, True, False, True), (QWEN, 4, False, True, True),
    (FOUR, 4, False, False, False)])
def test_the_sum_is_that_of_a_simulated_update(simulation, model, ranks, kl, ppo, recompute):
    """Three layers as wide as a 7B or 4B model's, through `shard` and `token_logps` on tensors that
    have shapes alone: within 5%. The whole models: python tests/bench/memory.py."""
    shape = memory.SHAPES[model] | dict(num_hidden_layers=3)
    seen = simulation.case(shape, ranks=ranks, kl=kl, ppo=ppo, recompute=recompute)
    cfg = cfg_of(model, f"--kl_coef={0.001 * kl}", f"--algo={'ppo' if ppo else 'grpo'}",
                 "--max_prompt_tokens=100", "--max_new_tokens=900",
                 f"--activation_checkpointing={'true' if recompute else 'false'}")
    s = memory.sizes(shape)
    assert sum(memory.update_bytes(s, cfg, ranks).values()) == pytest.approx(seen["peak"], rel=0.05)
    trainer = memory.generation_bytes(s, cfg, ranks, "vllm")[0]["trainer"]
    assert trainer == pytest.approx(seen["state"], rel=0.01)


def test_the_sum_with_adapters(simulation):
    pytest.importorskip("peft", reason="pip install -r requirements-lora.txt")
    shape = memory.SHAPES[QWEN] | dict(num_hidden_layers=3)
    seen = simulation.case(shape, lora_rank=32)
    cfg = cfg_of(QWEN, "--lora_rank=32", "--max_prompt_tokens=100", "--max_new_tokens=900")
    s = memory.sizes(shape)
    assert sum(memory.update_bytes(s, cfg, 1).values()) == pytest.approx(seen["peak"], rel=0.05)
    assert memory.generation_bytes(s, cfg, 1, "vllm")[0]["trainer"] == pytest.approx(seen["state"],
                                                                                     rel=0.01)


def test_a_frozen_model_gives_its_embedding_up(simulation):
    """The reference's embedding and head are whole in its own pass alone: the backward pass has
    the policy's and no more."""
    shape = memory.SHAPES[QWEN] | dict(num_hidden_layers=1)
    with_ref, without = [simulation.case(shape, ranks=4, kl=kl, micro_tokens=1024)
                         for kl in (True, False)]
    s = memory.sizes(shape)
    more = with_ref["tops"]["backward"] - without["tops"]["backward"]
    assert more == pytest.approx(2 * s["P"] / 4, rel=0.05)  # its own shard


def test_more_of_anything_takes_more():
    s, cfg = memory.sizes(memory.SHAPES[QWEN]), cfg_of(QWEN)
    total = lambda gpus=4, **more: sum(memory.update_bytes(s, dict(cfg, **more), gpus).values())
    assert total(8) < total(4) < total(2) < total(1)
    assert total() < total(activation_checkpointing="false")
    assert total(kl_coef=0) < total() < total(algo="ppo")
    assert total() < total(micro_tokens=65536) and total() < total(micro_logits=2**29)


@pytest.mark.parametrize("model, gpus, card, words, fits", [
    (QWEN, 1, 80, [], "GPUS_PER_RUN=4"), (QWEN, 2, 141, [], True), (QWEN, 4, 80, [], True),
    (QWEN, 4, 80, ["--activation_checkpointing=false"], "--activation_checkpointing=true"),
    (QWEN, 4, 80, ["--micro_tokens=131072"], "--micro_tokens="),
    (QWEN, 4, 80, ["--gpu_memory=0.9"], "--gpu_memory=0"),
    (QWEN, 1, 24, ["--B_p=1"], "smaller model"), (QWEN, 1, 48, ["--B_p=1"], "--lora_rank=32"),
    (QWEN, 1, 80, [], "--lora_rank=32"), (QWEN, 1, 80, ["--lora_rank=32"], True),
    (FOUR, 4, 40, [], "fits: --gen_batch=256"), (FOUR, 1, 48, ["--lora_rank=32"], True),
    # of the cache alone too little; and adapters cannot be on two
    (FOUR, 1, 24, ["--lora_rank=32"], "smaller model or a smaller --max_new_tokens"),
    (FOUR, 1, 32, ["--lora_rank=32"], "smaller model or a smaller --max_new_tokens"),
    ("Qwen/Qwen2.5-1.5B-Instruct", 1, 80, [], True),
    ("Qwen/Qwen2.5-1.5B-Instruct", 1, 24, [], "GPUS_PER_RUN=2"),
    ("meta-llama/Llama-3.1-8B-Instruct", 4, 80, ["--algo=ppo"], "GPUS_PER_RUN=8"),
])
def test_what_does_not_fit_is_refused_with_what_does(model, gpus, card, words, fits):
    """One line that names the model and the nearest setting; and that setting is not refused."""
    said, cfg, shape = [], cfg_of(model, *words), memory.SHAPES[model]
    if fits is True:
        share = memory.check(cfg, shape, gpus, card * 1e9, "vllm", said.append)
        assert 0.2 < share <= 0.9 and len(said) == 1 and f"of {card}.0 GB" in said[0]
        return
    with pytest.raises(BadInput) as told:
        memory.check(cfg, shape, gpus, card * 1e9, "vllm", said.append)
    line = str(told.value)
    assert line.startswith(f"--model={model}: ") and "\n" not in line and not said
    assert fits in line.split(". ")[-1], line
    if "smaller model" not in fits:
        way = line.split("The nearest that fits: ")[1].split(", ")[0].split(" and ")
        more = [int(w.split()[0]) for w in way if "GPUs a run" in w]
        again = cfg_of(model, *words, *(w for w in way if w.startswith("--")))
        memory.check(again, shape, *(more or [gpus]), card * 1e9, "vllm", said.append)


@pytest.mark.parametrize("model, card, fewest", [
    (QWEN, 24, None), (QWEN, 48, 8), (QWEN, 80, 4), (QWEN, 141, 2),
    ("Qwen/Qwen2.5-1.5B-Instruct", 24, 2), ("Qwen/Qwen2.5-1.5B-Instruct", 80, 1)])
def test_the_fewest_gpus_of_a_node(model, card, fewest):
    cfg = cfg_of(model)
    if fewest is None:
        with pytest.raises(BadInput, match="does not fit on 8 GPUs of 24.0 GB"):
            memory.gpus_per_run(cfg, card * 1e9, 8)
    else:
        assert memory.gpus_per_run(cfg, card * 1e9, 8) == fewest
    assert memory.gpus_per_run(cfg_of("some/model"), card * 1e9, 8) == 1  # not known
    # transformers' copy stays during an update
    small = cfg_of("Qwen/Qwen2.5-1.5B-Instruct", "--engine=hf")
    assert memory.gpus_per_run(small, 24e9, 8) == 4
    adapters = cfg_of(QWEN, "--lora_rank=32")
    assert memory.gpus_per_run(adapters, 48e9, 8) == 1
    with pytest.raises(BadInput, match="does not fit on 1 GPU of 24.0 GB.*Take a smaller model"):
        memory.gpus_per_run(adapters, 24e9, 8)


def test_a_kind_of_model_that_is_not_known_is_not_refused(tmp_path):
    said = []
    for shape in ({}, dict(n_embd=768), memory.SHAPES[QWEN] | dict(num_experts=8)):
        assert memory.check(cfg_of("a/model"), shape, 1, 8e9, "vllm", said.append) == 0.5
    # the numbers are those of bf16
    fp32 = cfg_of(QWEN, "--dtype=fp32")
    assert memory.check(fp32, memory.SHAPES[QWEN], 1, 8e9, "vllm", said.append) == 0.5
    assert memory.gpus_per_run(fp32, 8e9, 8) == 1
    assert len(said) == 4 and all("not checked" in line for line in said)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(BadInput, match="config.json"):
        memory.read_shape(tmp_path)


def test_transformers_on_a_gpu_is_told_what_its_cache_holds():
    said, cfg = [], cfg_of(QWEN)
    memory.check(cfg, memory.SHAPES[QWEN], 8, 80e9, "hf", said.append)
    assert len(said) == 2 and "--gen_batch=1024" in said[1]
    memory.check(dict(cfg, gen_batch=int(said[1].split("--gen_batch=")[2].split()[0])),
                 memory.SHAPES[QWEN], 8, 80e9, "hf", said.append)
    assert len(said) == 3


def test_a_run_ends_before_it_loads_anything(tiny, tmp_path, monkeypatch):
    """train_grpo.py on a fake GPU of 1 MB: one line, and no model was opened."""
    import torch
    monkeypatch.setattr(train_grpo, "start_ranks", lambda _: "cuda:0")
    monkeypatch.setattr(torch.cuda, "get_device_properties",
                        lambda _: type("Card", (), dict(total_memory=2**20)))
    monkeypatch.setattr(train_grpo.engine, "load_model", None)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="does not fit"):
        train_grpo.main([*tiny.words, "--B_p=4", "--n=4", "--C=480", "--device=cpu"])
    assert not (tmp_path / "runs").exists()


def sweep(tmp_path, gpus, card, *words, verb="commands", **env):
    """A verb of sweep.py on a node of fake GPUs -> (code, stdout, stderr)."""
    line = [sys.executable, "-m", "core.sweep", verb, "easy", "--ns=8 32", "--bps=32", *words]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True,
                          env=fake_node(tmp_path / "bin", gpus, card) | env)
    return done.returncode, done.stdout, done.stderr


def test_a_sweep_takes_the_gpus_that_a_run_needs(tmp_path):
    for gpus, card in itertools.product((1, 4, 8), (24, 80, 141)):
        code, out, told = sweep(tmp_path, gpus, card, f"--model={QWEN}")
        need = {80: 4, 141: 2}.get(card, 99)
        if gpus < need:
            assert code == 2 and not out and told.count("\n") == 1, told
            assert f"does not fit on {gpus} GPU" in told
        else:
            assert code == 0 and out.count(f"--nproc_per_node={need} ") == 2, (out, told)
            assert f"GPUS_PER_RUN={need}" in told
    # what is given is taken, for another machine too, and an embedded model needs one
    for card in (24, 80):
        code, out, _ = sweep(tmp_path, 8, card, f"--model={QWEN}", GPUS_PER_RUN="8")
        assert code == 0 and out.count("--nproc_per_node=8 ") == 2
    code, out, told = sweep(tmp_path, 8, 80)
    assert code == 0 and "nproc" not in out and not told
    code, out, told = sweep(tmp_path, 1, 24, f"--model={QWEN}", "--device=cpu")
    assert code == 0 and "nproc" not in out and not told
    code, out, told = sweep(tmp_path, 8, 24, "--model=a/model")
    assert code == 0 and "nproc" not in out and "--model=a/model" in told and "not checked" in told


@pytest.mark.parametrize("words, says", [
    ([], "does not fit on 4 GPUs of 24.0 GB"),
    (["--lora_rank=32"], "--lora_rank=32: adapters train on one GPU, not on those of GPUS_PER")])
def test_gpus_that_are_given_must_hold_a_run(tmp_path, words, says):
    """Before a problem is made or measured; commands that no machine could run are not printed."""
    words = [f"--model={QWEN}", f"--runs={tmp_path}/runs", *words]
    for verb in ("prepare", "run", "commands")[:3 if "lora" in says else 2]:
        code, out, told = sweep(tmp_path, 4, 24, *words, verb=verb, GPUS_PER_RUN="4")
        assert code == 2 and not out and told.count("\n") == 1 and says in told
    assert not (tmp_path / "runs").exists()


def test_the_table_of_the_docs(tmp_path):
    done = subprocess.run([sys.executable, "memory.py"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.count("\n") == 2 + 4 * 5
    assert done.stdout in (ROOT / "docs/gpu.md").read_text(), "python memory.py > the docs' table"
    (tmp_path / "config.json").write_text(json.dumps(memory.SHAPES[QWEN]))
    one = subprocess.run([sys.executable, "memory.py", f"--model={tmp_path}", "--cards=80",
                          "--gpus=4"], cwd=ROOT, capture_output=True, text=True)
    assert one.returncode == 0 and one.stdout.count("\n") == 3
    # its own checkpointing and engine count
    words = [f"--model={QWEN}", "--gpus=4", "--cards=80"]
    rows = [subprocess.run([sys.executable, "memory.py", *words, *more], cwd=ROOT, text=True,
                           capture_output=True).stdout.splitlines()[-1].split("|")
            for more in ([], ["--activation_checkpointing=false"], ["--engine=hf"])]
    usual, kept, hf = rows
    assert float(kept[3]) > 2 * float(usual[3])
    assert float(hf[3]) > float(usual[3]) + 15 and "0.00, " in hf[5]
