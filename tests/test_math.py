r"""Test mathematics from end to end, as on a GPU node but small.

Files in the published formats go through prepare.py, the difficulty, training on several sets and
evaluation of several checkpoints. The model half knows sums and writes them in \boxed{}; math-
verify grades it.
"""
import contextlib
import io
import json
import os
import re
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from conftest import capture, executable, load_prepare, warm_python, write_jsonl
from math_verify import parse, verify
from test_data import BOX as INSTRUCTION, write_verl
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import evaluate
from core import engine, runs
import sample
import train_grpo
from core.log import read_log

TEMPLATE = ("{% for m in messages %}<|user|>{{ m['content'] }}<|end|>{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>{% endif %}")
SUMS = [(a, "+", 1, a + 1) for a in range(2, 98)]
# The model solves sum i with probability RATES[i % len(RATES)] at the temperature of the runs. The
# rates are far from the ends of the bands, and each band has a dozen sums
RATES = [0.002, 0.02, 0.4, 0.5, 0.7, 0.8, 0.97]
TEMPERATURE = 0.6
HALVES = [rf"\frac{{{2 * s[3]}}}{{2}}" for s in SUMS]
VOCAB = ["<pad>", "<|end|>", "<|user|>", "<|assistant|>",
         *INSTRUCTION.replace(r"\boxed{}.", "").split(), "Compute", r"\boxed{",
         *"+${}.", *map(str, range(100)), *HALVES]  # an answer is one token


def make_tokenizer():
    tok = Tokenizer(models.WordLevel({word: i for i, word in enumerate(VOCAB)}, unk_token="<pad>"))
    pieces = pre_tokenizers.Split(
        Regex(r"\\frac\{\d+\}\{2\}|\\[a-z]+\{?|[A-Za-z]+|\d+|."), "isolated")
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pieces])
    tok.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tok, pad_token="<pad>",
                                        eos_token="<|end|>", padding_side="left",
                                        additional_special_tokens=["<|user|>", "<|assistant|>"])
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def question(a, op, b):
    return rf"Compute ${a}{op}{b}$."


def make_model(folder):
    r"""Write a tiny Llama that solves sum i with probability RATES[i % len(RATES)] at TEMPERATURE.

    If the model does not solve a sum, it writes the value of the next sum. Every third answer is a
    fraction.

    The weights are set and not trained, because a trained model depends on the last bit of its
    training, and its splits would differ on another processor. A token's embedding has a 1 for the
    token's kind and a constant 1. The only attention head attends to the summand, because no other
    token has a key, and adds the summand's kind. The output layer turns kinds into logits: after
    \boxed{ the logits of the two answers, elsewhere those of the next token of the form."""
    H, K = 128, 30.0  # hidden size; a logit far above all others
    ID = {word: i for i, word in enumerate(VOCAB)}
    kind = {"<|assistant|>": 97, r"\boxed{": 98, "answer": 99, "}": 100, "other": 101}
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=len(VOCAB), hidden_size=H, intermediate_size=8, num_hidden_layers=1,
        num_attention_heads=1, rope_theta=1e6,  # so that rotary angles are near 0
        max_position_embeddings=64, tie_word_embeddings=False, bos_token_id=None,
        eos_token_id=ID["<|end|>"], pad_token_id=0))
    weights = dict(model.named_parameters())
    for name, p in weights.items():
        p.requires_grad_(False).fill_(1.0 if "norm" in name else 0.0)
    embed, head = weights["model.embed_tokens.weight"], weights["lm_head.weight"]
    q, k, v, o = (weights[f"model.layers.0.self_attn.{x}_proj.weight"] for x in "qkvo")

    def scale(ones):  # the value of each 1 of a vector with so many 1s, after the norm
        return (ones / H + model.config.rms_norm_eps) ** -0.5
    embed[:, 0] = 1
    for word, i in ID.items():
        answers = word.isdigit() or word in HALVES
        embed[i, kind["answer"] if answers else kind.get(word, kind["other"])] = 1
    for i, (summand, *_) in enumerate(SUMS):
        embed[ID[str(summand)], 1 + i] = 1
        wrong, rate = (i + 1) % len(SUMS), RATES[i % len(RATES)]
        for j, p in ((i, rate), (wrong, 1 - rate)):
            for word, share in ((str(SUMS[j][3]), 2 / 3), (HALVES[j], 1 / 3)):
                head[ID[word], 1 + i] = (K + TEMPERATURE * np.log(p * share)) / scale(3)
    for word, then in (("<|assistant|>", r"\boxed{"), ("answer", "}"), ("}", "<|end|>")):
        head[ID[then], kind[word]] = 4 * K / scale(3)
    summands = torch.arange(1, 1 + len(SUMS))
    q[H // 2 - 1, 0] = 4
    k[H // 2 - 1, summands] = 4
    v[summands, summands] = 1 / scale(3)
    o[summands, summands] = 1
    model.save_pretrained(folder), make_tokenizer().save_pretrained(folder)


def run(main, *words):
    """Return what a script prints; its main is called in this process, where torch is imported."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        assert not main([str(word) for word in words])
    return said.getvalue()


def check_splits(w):
    """Check that the measured rates are within sampling error of RATES and that no split is too
    small."""
    answers = {p["id"]: int(p["answer"]) for p in sample.read_problems(w.data / "problems.jsonl")}
    first = {r["id"]: r["correct"] for r in read_log(w.splits / "pass_rates.jsonl")
             if r.get("samples") == 16}
    rate = np.array([RATES[(answers[name] - SUMS[0][3]) % len(RATES)] for name in first])
    z = (np.array([*first.values()]) - 16 * rate) / (16 * rate * (1 - rate)) ** 0.5
    assert abs(z.mean()) < 4 / len(z) ** 0.5 and 0.5 < z.std() < 1.5, (
        f"the measured pass rates are not those of the model: z = {z.mean():.2f} +- {z.std():.2f}")
    for name in ("easy", "hard", "very_easy"):
        count = len(sample.read_problems(w.splits / f"{name}_train.jsonl"))
        assert count >= 5, f"the split {name} has {count} problems to train on; tests need 5"


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Make a data folder from files in the format of Guru and AIME24, a model and its splits."""
    folder = tmp_path_factory.mktemp("real")
    sums, aime, model = SUMS, SUMS[::12], folder / "Half-Knows-1B"
    make_model(model)
    write_verl(folder / "guru.parquet", [(question(*s[:3]), str(s[3])) for s in sums + sums[:3]])
    pq.write_table(pa.Table.from_pylist([dict(id=60 + i, problem=question(*s[:3]),
                                              answer=f"{s[3]:03d}") for i, s in enumerate(aime)]),
                   folder / "aime.parquet")
    w = SimpleNamespace(folder=folder, sums=sums, aime=aime, model=model, data=folder / "guru",
                        splits=folder / "guru/splits" / model.name, words=[
                            f"--data={folder / 'guru'}", f"--model={model}",
                            "--max_prompt_tokens=40", "--max_new_tokens=16"])
    run(load_prepare("aime24").main, f"--data={folder / 'aime24'}", f"--model={model}",
        f"--source={folder / 'aime.parquet'}")
    run(load_prepare("guru_math").main, *w.words, f"--source={folder / 'guru.parquet'}",
        f"--against={folder / 'aime24/problems.jsonl'}")
    w.said = run(sample.main, *w.words, *MEASURE)
    check_splits(w)
    return w


MEASURE = ["--n_val=8", "--s_zero=64", "--gen_batch=1024"]


def test_from_a_parquet_to_splits(world):
    problems = sample.read_problems(world.data / "problems.jsonl")
    # the three duplicates and the problems of AIME24 are removed
    assert len(problems) == len(world.sums) - len(world.aime)
    assert len(sample.read_problems(world.folder / "aime24/problems.jsonl")) == len(world.aime)
    header, *lines = read_log(world.splits / "pass_rates.jsonl")
    assert header["verifier"] == "math" and {r["id"] for r in lines} == {p["id"] for p in problems}
    first = [r["correct"] / 16 for r in lines if r["samples"] == 16]
    # the verifier finds right and wrong answers
    assert min(first) == 0 and max(first) > 0.8 and 0.1 < np.mean(first) < 0.8
    for name in ("easy", "hard", "very_easy", *sample.LEVELS):
        paths = [world.splits / f"{name}_{part}.jsonl" for part in ("train", "val")]
        few = any(not path.exists() or len(sample.read_problems(path)) < least
                  for path, least in zip(paths, (sample.FEW, 8)))
        assert bool(re.search(rf"^  {name} .*few: measure", world.said, re.M)) == few, world.said


def test_shards_measure_the_same(world, tmp_path, monkeypatch):
    out = tmp_path / world.model.name
    words = [*world.words, *MEASURE, f"--out={out}"]
    for i in (1, 0):
        assert f"shard {i}/2 is measured" in run(sample.main, *words, f"--shard={i}/2")
    before = sorted(p.name for p in out.iterdir())
    assert before == ["pass_rates.0of2.jsonl", "pass_rates.1of2.jsonl"]
    assert {read_log(out / name)[0]["set_hash"] for name in before} == {
        json.loads((world.splits / "difficulty.json").read_text())["set_hash"]}
    monkeypatch.setattr(engine, "open_engine", None)
    run(sample.main, *words)
    assert files_of(out) == files_of(world.splits)
    assert not read_log(out / "pass_rates.jsonl")


@pytest.fixture
def copied(world, tmp_path):
    """Copy the measured folder, so that a test can measure further: (folder, words)."""
    out = shutil.copytree(world.splits, tmp_path / world.model.name)
    return out, [*world.words, "--n_val=8", "--gen_batch=1024", f"--out={out}"]


def files_of(folder):
    return {p.name: p.read_bytes()
            for p in folder.glob("*_*.jsonl") if not p.name.startswith("pass_rates")}


def test_levels_that_were_measured_stay(copied):
    """If a later call asks for no levels or for fewer rollouts, no held-out problem is trained."""
    out, words = copied
    before = files_of(out)
    for more in (["--s_zero=0"], ["--s_zero=32"]):
        said = run(sample.main, *words, *more)
        assert files_of(out) == before and "levels by 64 rollouts" in said


def test_levels_by_fewer_rollouts_than_there_are(copied):
    """If the first measurement made no splits, only counts up to the current s_zero are used."""
    out, words = copied
    (out / "difficulty.json").unlink()
    run(sample.main, *words, "--s_zero=32")
    for name, (low, high) in sample.LEVELS.items():
        for path in out.glob(f"{name}_*.jsonl"):
            for p in sample.read_problems(path):
                assert p["samples"] in (16, 32)
                assert p["samples"] == 16 or low <= p["correct"] / 32 <= high


def test_other_problems_with_the_ids_of_old_ones_are_measured(copied, world, tmp_path):
    out, words = copied
    lines = [json.loads(line) for line in (world.data / "problems.jsonl").read_text().splitlines()]
    lines[0]["answer"] = "1000"  # no response is right
    changed = write_jsonl(tmp_path / "changed.jsonl", lines[:6])
    run(sample.main, *words, "--s_zero=0", f"--problems={changed}")
    new = read_log(out / "pass_rates.jsonl")[len(read_log(world.splits / "pass_rates.jsonl")):]
    assert [(r["id"], r["samples"], r["correct"]) for r in new] == [(lines[0]["id"], 16, 0)]


def sweep(world, tmp_path, *words, **env):
    """Run run_sweep.sh on the problems of `world`, in a data folder without splits."""
    data = tmp_path / "data"
    shutil.copytree(world.data, data, dirs_exist_ok=True, ignore=lambda *_: ["splits"])
    env = os.environ | dict(OUT=str(tmp_path / "sweep"), MODEL=str(world.model),
                            DATA=str(data)) | env
    return capture(["bash", "run_sweep.sh", "easy", *words], env=env)


@pytest.mark.once
def test_a_level_to_train_on_is_measured_and_a_misspelt_name_is_not(world, tmp_path):
    """If train_set is missing, run_sweep.sh measures levels only if train_set is a level. If the
    name of train_set is a mixture or is misspelt, nothing is measured."""
    said = tmp_path / "said"
    python = executable(tmp_path / "python", f'case "$1" in sample.py) echo "$@" >> {said}; '
                        f'exit 3;; esac\nexec "{warm_python()}" "$@"\n', "/bin/sh")
    for name, code, zero in (("easy", 3, True), ("level_easy", 3, False), ("extreme", 3, False),
                             ("mix_tri_D6OOO_seed0", 2, None), ("eazy", 2, None)):
        train = tmp_path / "data/splits" / world.model.name / f"{name}_train.jsonl"
        done = sweep(world, tmp_path, f"--train_set={train}", PYTHON=str(python), GPUS_PER_RUN="0")
        assert done.returncode == code and said.exists() == (zero is not None), done
        assert zero is None or ("--s_zero=0" in said.read_text()) == zero, done
        said.unlink(missing_ok=True)


@pytest.fixture(scope="module")
def trained(world, script):
    """Make a short run, evaluated on three sets, that keeps one checkpoint: (folder, sets)."""
    out = world.folder / "runs/one"
    sets = [world.splits / "easy_val.jsonl", world.splits / "very_easy_val.jsonl",
            world.folder / "aime24/problems.jsonl"]
    script("train_grpo.py", *world.words, f"--train_set={world.data / 'problems.jsonl'}",
           "--val_set=" + ",".join(map(str, sets)), "--recipe=easy", "--B_p=8", "--n=8",
           "--lr_base=2e-3", "--eval_every=320", "--save_every=0", "--keep_at=320",
           "--pass_at=0 320", "--s=12", "--sample_every=1", "--C=640", f"--out={out}", check=True)
    return out, sets


def test_a_run_logs_every_set(trained, world):
    out, paths = trained
    records = read_log(out / "log.jsonl")
    sets = dict(zip(("val", "very_easy_val", "aime24"), map(sample.read_problems, paths)))
    evals = [r for r in records if r["type"] == "eval"]
    assert [(r["rollouts"], r["set"]) for r in evals] == [(c, s) for c in (0, 320, 640)
                                                          for s in sets]
    for r in evals:
        problems = sets[r["set"]]
        assert len(r["correct"]) == len(problems) and r["set_hash"] == sample.set_hash(problems)
        assert r["avg@4"] == pytest.approx(np.mean(r["correct"]) / 4)
    assert all(r["verifier_timeouts"] == r["verifier_errors"] == 0
               for r in records if r["type"] in ("eval", "step"))
    assert evals[-3]["avg@4"] > 0 and len({json.dumps(r["correct"]) for r in evals}) > 3
    # the reader returns the set in `part`
    for part in ("aime24", "val"):
        reward = runs.read_run(out / "log.jsonl", part=part)["reward"]
        assert reward.shape[1] == len(sets[part])


def test_rewards_are_those_of_bare_math_verify(trained):
    """Grade the texts in samples.jsonl again with parse and verify, as users of math-verify do."""
    texts = [json.loads(line) for line in open(trained[0] / "samples.jsonl")]
    for r in texts:
        text = r["text"].replace("<|end|>", "")
        right = r"\boxed{" in text and verify(parse(r["answer"]),
                                              parse(text[text.rindex(r"\boxed{"):]))
        assert r["reward"] == float(right), r
    # some answers are right in another form
    assert 0.1 < np.mean([r["reward"] for r in texts]) < 0.95
    assert any(r["reward"] and r"\frac" in r["text"] for r in texts)


def test_pass_rates_of_the_training_set_at_chosen_budgets(trained, world):
    fresh = [r for r in read_log(trained[0] / "log.jsonl") if r["type"] == "train_pass"]
    ids = [p["id"] for p in sample.read_problems(world.data / "problems.jsonl")]
    assert [r["rollouts"] for r in fresh] == [0, 320]
    assert all(r["ids"] == ids and set(r["samples"]) == {12} for r in fresh)
    # before training, the pass rates are close to those that sample.py measured
    base = {r["id"]: r["correct"] / 16
            for r in read_log(world.splits / "pass_rates.jsonl") if r.get("samples") == 16}
    rate, counted = np.array(fresh[0]["correct"]) / 12, np.array([base[i] for i in ids])
    assert np.corrcoef(rate, counted)[0, 1] > 0.8
    error = np.sqrt((rate * (1 - rate) / 12 + counted * (1 - counted) / 16).sum()) / len(ids)
    assert abs(rate.mean() - counted.mean()) < 4 * error < 0.1


@pytest.mark.once
def test_budgets_that_no_update_ends_at(world, tmp_path):
    """Each budget maps to the first update that reaches it, and C to the last update. A run that
    continues to a larger C keeps its records."""
    words = [*world.words, f"--train_set={world.data / 'problems.jsonl'}",
             f"--val_set={world.splits / 'easy_val.jsonl'}", "--B_p=4", "--n=4",
             "--s=4", "--save_every=0", f"--out={tmp_path / 'run'}"]
    for C, at, steps in (("40", "0 8 40", [0, 1, 2]), ("72", "0 8 20 40 72 1e6", [0, 1, 2, 3, 4]),
                         ("96", "1 24 64 96", [0, 1, 2, 3, 4, 6])):
        assert train_grpo.main([*words, f"--C={C}", f"--pass_at={at}"]) == 0
        assert [r["step"] for r in read_log(tmp_path / "run/log.jsonl") if r.get("fresh")] == steps


@pytest.mark.once
def test_evaluate_several_models_on_several_sets(trained, world, tmp_path):
    out, sets = trained
    checkpoint = out / "ckpt/step_00000005"
    said = run(evaluate.main, f"--model={world.model},{checkpoint},{out}",
               f"--val_set={sets[1]},{sets[2]}", "--samples=8", f"--out={tmp_path / 'table'}")
    table = json.loads((tmp_path / "table/table.json").read_text())["results"]
    assert [(r["model"], r["set"])
            for r in table] == [(str(m), s) for m in (world.model, checkpoint, out / "model")
                                for s in ("very_easy_val", "aime24")]
    folders = [name for name in (world.model.name, "one/step_00000005", "one") for _ in range(2)]
    for r, folder in zip(table, folders, strict=True):
        base = next(b for b in table if b["set"] == r["set"])
        gain = (np.array(r["correct"]) - base["correct"]) / 8
        assert r["gain"] == pytest.approx(gain.mean())
        assert r["stats"]["avg@4"]["mean"] == pytest.approx(np.mean(r["correct"]) / 8)
        assert r["gain_se"] == pytest.approx(gain.std(ddof=1) / np.sqrt(len(gain)) if r is not base
                                             else 0)
        means = [f"{r['stats'][f'{kind}@4']['mean']:.4f}" for kind in ("avg", "best", "worst")]
        row = rf"^{r['set']} +{' +'.join(means)}"
        if r is not base:
            row += rf" +{re.escape(format(r['gain'], '+.4f'))} \+- {r['gain_se']:.4f}"
        assert re.search(rf"{row} +{r['model']}$", said, re.M), said
        one = json.loads((tmp_path / "table" / folder / r["set"] / "eval.json").read_text())
        assert one == {key: v for key, v in r.items() if key not in ("gain", "gain_se")}
        assert one["config"]["temperature"] == 0.6 and one["config"]["max_new_tokens"] == 16
    # a set evaluated separately gives the same numbers
    run(evaluate.main, f"--model={checkpoint}", f"--val_set={sets[2]}", "--samples=8",
        f"--out={tmp_path / 'one'}")
    one = json.loads((tmp_path / "one/aime24/eval.json").read_text())
    assert one["correct"] == table[3]["correct"]


@pytest.mark.once
def test_the_sweep_on_a_users_model_and_problems(world, tmp_path):
    """Run run_sweep.sh from a problem file to a prescription. --device=cpu ignores the GPUs in
    CUDA_VISIBLE_DEVICES."""
    done = sweep(world, tmp_path, "--device=cpu", "--max_prompt_tokens=40", "--max_new_tokens=16",
                 "--n_val=6", "--eval_every=16", "--save_every=0", PYTHON=sys.executable, NS="2",
                 BPS="4", C="32", CUDA_VISIBLE_DEVICES="5,6", HF_HUB_OFFLINE="1")
    assert done.returncode == 0, done
    splits = tmp_path / "data/splits" / world.model.name
    assert {"pass_rates.jsonl", "easy_train.jsonl"} <= {p.name for p in splits.iterdir()}
    [log] = (tmp_path / "sweep").glob("[!.]*/log.jsonl")
    assert read_log(log)[-1]["status"] == "budget"
    assert (tmp_path / "sweep/prescription.csv").exists()
    assert "python train_grpo.py" in done.stdout
