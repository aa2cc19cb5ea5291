"""Test data/smollm: the real model that prepare.py makes, its problems, training, and vLLM."""
import json

import filelock
import pytest
import torch
from test_engine import gaps

from core import engine
from core.problems import encode
import sample
from conftest import ROOT, load_prepare, run_script
from config import BadInput, parse
from core.log import read_log

HERE = ROOT / "data/smollm"


@pytest.fixture(scope="module")
def smollm():
    """Return data/smollm/prepare.py as a module; make model and problems if they are missing."""
    with filelock.FileLock(HERE / ".lock"):
        if not (HERE / "base/config.json").exists() or not (HERE / "problems.jsonl").exists():
            run_script("data/smollm/prepare.py", check=True)
    return load_prepare("smollm")


@pytest.fixture(scope="module")
def loaded(smollm):
    """Return (model, tokenizer, config dict, eight problems, their prompts)."""
    cfg = parse(["--data=data/smollm", "--temperature=0.6"])
    model, tokenizer = engine.load_model(HERE / "base", "cpu")
    problems = sample.read_problems(HERE / "problems.jsonl")[:8]
    return model, tokenizer, cfg, problems, encode("set", problems, tokenizer, 64)


def test_the_folder(loaded):
    """Weights are plain fp32 with tied embeddings; <|im_end|> is the end and the padding token. No
    system turn, each digit is a token, and a prompt ends with the answer's beginning."""
    model, tokenizer, cfg, problems, prompts = loaded
    assert cfg["model"] == "data/smollm/base" and cfg["verifier"] == "reasoning_gym"
    assert sum(p.numel() for p in model.parameters()) == 134_515_008
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert "quantization_config" not in json.loads((HERE / "base/config.json").read_text())
    assert tokenizer.eos_token == tokenizer.pad_token == "<|im_end|>"
    assert engine.stop_ids(model.generation_config.eos_token_id, tokenizer) == [2]
    assert len(sample.tokenize([dict(prompt="What is 2+2?")], tokenizer)[0]) < 20
    text = tokenizer.decode(prompts[0])
    assert text.endswith(f"<|im_start|>assistant\n{problems[0]['begin']}") and "system" not in text
    assert tokenizer.tokenize("a1234") == ["a", "1", "2", "3", "4"]
    ids = sample.tokenize([dict(prompt="What is the capital of France?",
                                begin="The capital of France is")], tokenizer)
    with torch.no_grad():
        best = model(input_ids=torch.tensor(ids)).logits[0, -1].argmax()
    assert tokenizer.decode(best) == " Paris"


def test_problems(smollm):
    """No two problems add the same numbers, in any order, also across training and validation."""
    train, val = (sample.read_problems(HERE / f"{name}.jsonl") for name in ("problems", "val"))
    sums = [tuple(sorted(p["begin"].removesuffix(" =").split(" + "))) for p in train + val]
    assert len(set(sums)) == len(sums) > 4000
    assert all(str(sum(map(int, terms))) == p["answer"] for terms, p in zip(sums, train + val))
    assert {len(terms) for terms in sums} == {args["min_terms"] for _, args in smollm.MIX}


def test_pass_rates_come_with_it(smollm, tmp_path):
    """The shipped pass rates fit these weights, problems and settings, so nothing is measured."""
    done = run_script("sample.py", "--data=data/smollm", f"--out={tmp_path}")
    assert done.code == 0 and "used, measured with these" in done.stdout, done
    splits = {name: sample.read_problems(tmp_path / f"{name}_train.jsonl")
              for name in ("easy", "hard")}
    assert len(splits["easy"]) > 400 and len(splits["hard"]) > 1500
    assert "rollouts for" not in done.stderr  # the progress bar of a measurement


def test_a_few_updates(smollm, tmp_path):
    """Train the real model for two updates, in bf16 if the CPU supports it. The run is evaluated
    before and after training only, and prints nothing about vLLM. It keeps no checkpoint."""
    val = sample.read_problems(HERE / "val.jsonl")[:4]
    sample.write_problems(tmp_path / "val.jsonl", val)
    bf16 = torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    words = ["--data=data/smollm", f"--train_set={HERE / 'problems.jsonl'}", "--recipe=easy",
             f"--val_set={tmp_path / 'val.jsonl'}", f"--out={tmp_path / 'run'}", "--B_p=2", "--n=4",
             "--dtype=bf16" if bf16 else "--dtype=fp32", "--threads=1", "--eval_every=0",
             "--keep_last=false", "--C=16", "--samples=4"]
    done = run_script("train_grpo.py", *words)
    assert done.code == 0 and "vLLM" not in done.stderr, done
    records = read_log(tmp_path / "run/log.jsonl")
    steps = [r for r in records if r["type"] == "step"]
    assert [r["rollouts"] for r in records if r["type"] == "eval"] == [0, 16]
    assert len(steps) == 2 and records[-1]["status"] == "budget"
    # in bf16, engine and trainer round differently, so the importance weights are not exactly 1
    assert all(0.8 < r["ess"] < 1.0001 and (r["tis_mean"] > 1e-4) == bf16 for r in steps), steps
    # bf16 gives 0.06 to 0.08, depending on the processor
    assert all(abs(r["tis_mean"]) < 0.4 for r in steps), steps
    assert all(0 < r["grad_norm"] < 1000 and r["response_len"] <= 6 for r in steps), steps
    assert (tmp_path / "run/model/model.safetensors").exists()
    assert not list((tmp_path / "run").glob("ckpt/step_*"))


def test_vllm_on_the_real_model(loaded):
    """vLLM's CPU build gives the log-probs of transformers."""
    model, tokenizer, cfg, _, prompts = loaded
    vllm = engine.open_engine("vllm", str(HERE / "base"), cfg | dict(gen_batch=64), "cpu")
    rollouts = vllm.generate(prompts, 2, list(range(0, 160, 20)))
    assert rollouts["length"].min() >= 1
    assert gaps(model, prompts, rollouts, 2).max() < 1e-3


# ---- Bad input -----------------------------------------------------------------------------------

def test_bad_input(smollm, monkeypatch, tmp_path):
    with pytest.raises(BadInput, match="--task=gcd: no such key"):
        smollm.main([f"--data={tmp_path}", "--task=gcd"])
    monkeypatch.setattr(smollm, "PACKAGE", "no_such_package")
    with pytest.raises(BadInput, match="the package no_such_package is missing .pip install"):
        smollm.make_base(tmp_path / "base")
    assert not list(tmp_path.iterdir())
