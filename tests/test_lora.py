"""Test core/lora.py: adapters in training, in the engine's copy, in checkpoints, in the final
model."""
import copy
import shutil
import sys

import pytest
import torch
from safetensors.torch import load_file

pytest.importorskip("peft", reason="pip install -r requirements-lora.txt")

from core import engine, lora, models, packing
from test_train import clean, of_type
import train_grpo

WORDS = ["--B_p=4", "--n=4", "--C=96", "--eval_every=80", "--save_every=48", "--lr_base=2e-2",
         "--kl_coef=0.1", "--warmup=0", "--device=cpu", "--lora_rank=4"]


def steps_of(folder):
    """Return the records of the updates of a run, without times."""
    return of_type(clean(folder), "step")[0]


def logps(model):
    """Return a model's log-probs of two responses."""
    ids = torch.arange(2, 22).view(2, 10)
    lengths = torch.tensor([3, 4]), torch.tensor([7, 6])
    with torch.no_grad():
        return train_grpo.token_logps(model, ids, *lengths, train_grpo.parse([]))[0]


def test_only_adapters_are_trained_and_they_begin_at_the_base_model(tiny):
    base, _ = engine.load_model(tiny.model, "cpu")
    plain, names = logps(base), [name for name, _ in base.named_parameters()]
    model = lora.add_adapters(lora.freeze(copy.deepcopy(base), False), 4)
    assert torch.equal(logps(model), plain)
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    other = dict(lora.add_adapters(base, 4, seed=1).named_parameters())  # A depends on the seed
    assert not any(torch.equal(p, other[name]) for name, p in model.named_parameters()
                   if "lora_A" in name)
    # A and B of q, k, v, o, gate, up, down in each of two layers; not the head
    assert len(trained) == 2 * 7 * 2 and all(".lora_" in name for name in trained)
    assert [name for name, _ in train_grpo.full_weights(model)] == names


def test_adapters_merged_switched_off_and_removed(tiny):
    """W + 32/4 B A, merged in the engine or in place, gives the log-probs of the adapters."""
    base, _ = engine.load_model(tiny.model, "cpu")
    model = lora.add_adapters(lora.freeze(copy.deepcopy(base), False), 4)
    torch.manual_seed(1)
    for name, p in model.named_parameters():
        if "lora_B" in name:  # they are 0 at first
            p.data.normal_(0, 0.1)
    plain, adapted = logps(base), logps(model)
    assert (adapted - plain).abs().max() > 0.1
    with lora.adapters_off(model):
        assert torch.equal(logps(model), plain)
    assert torch.equal(logps(model), adapted)
    layer = lora.adapter_layers(model)["model.layers.1.mlp.up_proj"]
    B_A = layer.lora_B["default"].weight @ layer.lora_A["default"].weight
    assert torch.allclose(layer.get_delta_weight("default"), 32 / 4 * B_A, atol=1e-6)
    assert sum(p.requires_grad for p in model.parameters()) == 28
    hf = engine.HFEngine(base, None, dict(dtype="auto", activation_checkpointing="true"))
    hf.load(train_grpo.full_weights(model))
    assert torch.allclose(logps(hf.model), adapted, atol=1e-5)
    assert torch.equal(logps(base), plain)
    lora.merge_adapters(model)
    assert torch.allclose(logps(model), adapted, atol=1e-5)
    assert [n for n, _ in model.named_parameters()] == [n for n, _ in base.named_parameters()]


@pytest.fixture(scope="module")
def run(tiny, tmp_path_factory):
    """Return the folder of a finished run of six updates with adapters."""
    folder = tmp_path_factory.mktemp("lora") / "run"
    assert train_grpo.main([*tiny.words, *WORDS, f"--out={folder}"]) == 0
    return folder


def test_a_run_learns_and_its_checkpoint_is_small(tiny, run):
    steps = steps_of(run)
    # the reference is the base model: no KL before the first update, some after it
    assert len(steps) == 6 and steps[0]["kl"] == pytest.approx(0, abs=1e-9)
    assert steps[-1]["kl"] > 1e-3 and all(r["tis_mean"] < 1e-4 for r in steps)
    last = max((run / "ckpt").glob("step_*"))
    assert {k.split(".")[-3] for f in last.glob("*.safetensors")
            for k in load_file(f)} == {"lora_A", "lora_B"}
    base = dict(engine.load_model(tiny.model)[0].named_parameters())
    exported, read = [dict(engine.load_model(at)[0].named_parameters())
                      for at in (run / "model", last)]
    assert set(exported) == set(read) == set(base)
    assert all(torch.allclose(exported[name], read[name], atol=1e-6) for name in base)
    assert not torch.allclose(base["model.layers.0.mlp.up_proj.weight"],
                              read["model.layers.0.mlp.up_proj.weight"], atol=1e-4)


def test_a_resumed_run_writes_the_same_log(tiny, run, tmp_path):
    for C in (48, 96):
        assert train_grpo.main([*tiny.words, *WORDS, f"--C={C}", f"--out={tmp_path}"]) == 0
    assert steps_of(tmp_path) == steps_of(run)


@pytest.mark.parametrize("words, packed", [
    (["--activation_checkpointing=true"], False), ([], True)], ids=["recomputed", "packed"])
def test_the_path_of_an_update_changes_nothing(tiny, run, tmp_path, monkeypatch, words, packed):
    """Layers are recomputed with their adapters on, although the reference had them off. Rows may
    be packed, also those of the reference."""
    if packed:
        monkeypatch.setattr(packing, "why_padded", lambda *_: "")
    assert train_grpo.main([*tiny.words, *WORDS, *words, f"--out={tmp_path}"]) == 0
    for a, b in zip(steps_of(run), steps_of(tmp_path), strict=True):
        for key in ("loss", "grad_norm", "kl", "reward"):
            assert b[key] == pytest.approx(a[key], rel=1e-3, abs=1e-5), key


def test_a_run_that_starts_from_another_run(tiny, run, tmp_path):
    """Its checkpoints name the weights it began with. If these have changed, it is not resumed."""
    first = tmp_path / "first"
    shutil.copytree(run, first)
    words = [*tiny.words, *WORDS, f"--model={first}", f"--out={tmp_path / 'second'}"]
    assert train_grpo.main([*words, "--C=48"]) == 0
    last = max((tmp_path / "second/ckpt").glob("step_*"))
    assert models.checkpoint_state(last)["lora"]["model"] == str(first / "model")
    engine.load_model(last)  # raises if the adapters do not fit
    kept = (first / "model").rename(tmp_path / "kept")
    with pytest.raises(train_grpo.BadInput, match="began with the weights in .*first/model, but"):
        train_grpo.main(words)
    shutil.copytree(kept, first / "model")  # other weights at the same path
    shutil.copyfile(last / next(last.glob("*.safetensors")), first / "model/model.safetensors")
    for use in (lambda: train_grpo.main(words), lambda: engine.load_model(last)):
        with pytest.raises(train_grpo.BadInput, match="began with|changed since"):
            use()


def test_adapters_train_on_one_gpu_and_need_peft(tiny, monkeypatch):
    words = [*tiny.words, "--B_p=4", "--n=4", "--C=480", "--lora_rank=4", "--device=cpu"]
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(train_grpo.BadInput, match="--lora_rank=4: peft is not installed"):
        train_grpo.main(words)
    monkeypatch.setattr(train_grpo, "WORLD", 2)
    with pytest.raises(train_grpo.BadInput, match="--lora_rank=4: adapters train on one GPU"):
        train_grpo.main(words)
