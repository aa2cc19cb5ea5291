"""Bad input to every script, and every script run from the command line."""
import importlib
import json
import math
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import config as C
import evaluate
import sample
from config import derive, parse, run_name
from core.log import read_log
from conftest import ROOT, capture, run_script, tree, write_jsonl


# ---- Bad input: one line, exit code 2, nothing written or lost -----------------------------------

ONE = '{"id": 1, "prompt": "1+1=", "answer": 2}\n'
PROBLEM_FILES = [  # (content of p.jsonl, text of the error)
    (None, ": cannot read this problem file (No such file or directory)"),
    ("", ": contains no problem"), ("\n  \n", ": contains no problem"),
    (ONE + "id,prompt\n", ":2: not a JSON object"), ("[1, 2]\n", ":1: not a JSON object"),
    (ONE + '\n{"id": 2, "pro', ":3: not a JSON object"),
    (ONE + '\n{"id": "1", "prompt": "1+2=", "answer": 3}\n', ":3: id 1 is already used in line 1"),
    *((f'{{"id": 1, "prompt": "1+1="{answer}}}\n', ":1: the problem has no answer")
      for answer in ("", ', "answer": null', ', "answer": " "')),
    ('{"id": 1, "answer": "2"}\n', ":1: the problem has no prompt"),
    ('{"prompt": "1+1=", "answer": "2"}\n', ":1: the problem has no id"),
    (b"\xff\xfe\x00", ":1: not a JSON object in UTF-8")]
RUN = ["--B_p=2", "--n=2", "--C=8", "--eval_every=4", "--samples=4"]  # two updates


@pytest.fixture
def refused(tmp_path, monkeypatch, capfd):
    """Return refused(name, *words), the error line of a script that is started in `tmp_path`. The
    script must not change the folder. It runs in this process, by config.entry."""
    monkeypatch.chdir(tmp_path)

    def run(name, *words):
        before = tree(tmp_path)
        monkeypatch.setattr(sys, "argv", [name, *map(str, words)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as e:
            C.entry(importlib.import_module(name.removesuffix(".py")).main)
        out, err = capfd.readouterr()
        assert e.value.code == 2 and out == "", (e.value.code, out, err)
        assert re.fullmatch(rf"{name}: .+\n", err), (e.value.code, out, err)
        assert tree(tmp_path) == before
        return err
    return run


@pytest.mark.parametrize("word, names", [
    ("--lr_bse=1", ["lr_bse=1", "lr_base"]), ("--B_max=3", ["--B_p=2: with n=2", "B_max=3"]),
    ("--config=missing.json", ["missing.json"]),
    ("--algo=ppo --n_train=2", ["--n_train=2", "PPO"]),
    ("--algo=ppo --zero_var_filter=all", ["--zero_var_filter=all", "PPO"]),
    ("--algo=ppo --lora_rank=4", ["--lora_rank=4: PPO"]),
    ("--lora_rank=-1", ["--lora_rank=-1: expected 0 or more"]),
    ("--keep_at=1e52e5", ["--keep_at=1e52e5"]), ("--gpu_memory=2", ["--gpu_memory=2"]),
    ("--engine=vllm --temperature=2.5", ["--temperature=2.5", "to 2"]),
    ("--max_new_tokens=60", ["--max_new_tokens=60", "64 positions"])])
def test_bad_words_of_a_run(refused, tiny, word, names):
    line = refused("train_grpo.py", *tiny.words, *RUN, *word.split())
    assert all(name in line for name in names), line


def test_a_batch_may_hold_the_problems_several_times(script, tiny, tmp_path):
    """If D=1, all rollouts of a batch are of one problem."""
    done = script("train_grpo.py", *tiny.words, "--D=1", "--B_p=8", "--n=4", "--C=64",
                  "--temperature=1", f"--out={tmp_path / 'run'}", "--eval_every=64")
    assert done.code == 0 and "budget used after 64 rollouts" in done.stderr, done
    records = read_log(tmp_path / "run/log.jsonl")
    assert records[0]["derived"]["D"] == 1
    assert [r["rollouts"] for r in records if r["type"] == "step"] == [32, 64]


@pytest.mark.parametrize("content, says", PROBLEM_FILES)
def test_bad_problem_files(refused, tiny, tmp_path, content, says):
    if content is not None:
        (tmp_path / "p.jsonl").write_bytes(
            content if isinstance(content, bytes) else content.encode())
    for name, *words in (("train_grpo.py", *RUN, "--train_set=p.jsonl"),
                         ("train_grpo.py", *RUN, "--val_set=p.jsonl"),
                         ("evaluate.py", "--val_set=p.jsonl"), ("sample.py", "--problems=p.jsonl")):
        assert f"p.jsonl{says}" in refused(name, *tiny.words, *words)


@pytest.mark.parametrize("content", ["[1]", '{"n": 4,}', '{"n": {"is": 4}}'])
def test_an_invalid_config_file(refused, tmp_path, content):
    (tmp_path / "bad.json").write_text(content)
    line = refused("train_grpo.py", "--config=bad.json")
    assert "bad.json" in line or "--n=" in line


@pytest.mark.parametrize("word, names, says", [
    ("--max_prompt_tokens=3", "train_grpo evaluate", "problem arith-.* --max_prompt_tokens=3"),
    ("--max_prompt_tokens=3", "sample", "--max_prompt_tokens=3: every prompt of"),
    ("--verifier=no", "train_grpo evaluate sample", "--verifier=no: expected one of math, exact, "),
    ("--val_set=,", "train_grpo evaluate", "expected a problem file"),
    ("--val_set={val},{val}", "train_grpo evaluate", "two sets are called val"),
    ("--model={model},{model}", "evaluate", "the results of two models would be in")])
def test_bad_words_of_several_scripts(refused, tiny, word, names, says):
    for name in names.split():
        line = refused(f"{name}.py", *tiny.words, *RUN, word.format(**vars(tiny)), "--out=new/it")
        assert re.search(says, line), line


def test_another_s_in_a_measured_folder(refused, tiny, tmp_path):
    (tmp_path / "m").mkdir()
    first = json.loads(tiny.train.read_text().splitlines()[0])
    header, line = [json.dumps(r) + "\n" for r in (
        dict(type="header", **sample.settings(parse(tiny.words))),
        dict(id=first["id"], samples=16, correct=3))]
    for content, word, says in (
            (header + line, "--s=8", "was measured with other settings: s=16, now 8"),
            (line + line, "--s=16", "rates.jsonl: was measured with other settings: model=None"),
            (line + line, "--s_zero=8", "--s_zero=8: must be 0 or at least s=16")):
        (tmp_path / "m/pass_rates.jsonl").write_text(content)
        assert says in refused("sample.py", *tiny.words, "--out=m", word)


def test_a_folder_of_another_run(refused, tiny, tmp_path):
    """The error names the keys that differ, with both values, also if the run has ended."""
    words, log = [*tiny.words, *RUN], tmp_path / "run/log.jsonl"
    hashes = {f"{part}_set_hash": sample.set_hash(sample.read_problems(getattr(tiny, part)))
              for part in ("train", "val")}
    ended = [dict(type="step", rollouts=8), dict(type="end", status="budget", rollouts=8)]
    for other, more, *names in (
            (["--lr_base=0.5", "--n=4"], [], "lr_base=0.5 there, 1e-06 now", "n=4 there, 2 now"),
            (["--lr_base=0.5"], ended, "lr_base=0.5 there"),
            (dict(train_set_hash="another"), [], tiny.train, "changed"),
            (dict(val_set_hash="another"), ended, tiny.val, "changed")):
        changed = other if isinstance(other, dict) else {}
        header = dict(type="header", schema=1, **(hashes | changed),
                      config=parse(words if changed else words + other))
        write_jsonl(log, [header, *more])
        line = refused("train_grpo.py", *words, "--out=run")
        assert line.startswith("train_grpo.py: run: ") and all(str(x) in line for x in names), line
    log.write_text('{"type": "header"\n{}\n')
    assert "run/log.jsonl:1: not a line of JSON" in refused("train_grpo.py", *words, "--out=run")


def test_a_missing_model_folder(refused, script, tiny, tmp_path):
    (tmp_path / "empty").mkdir()
    for name, model, *words in (
            ("train_grpo.py", "none/of/it", *tiny.words, *RUN), ("sample.py", "empty", *tiny.words),
            ("evaluate.py", "./none", *tiny.words),
            # the error is not about the problem file of that model
            ("evaluate.py", "data/arithmetic/bsae"), ("evaluate.py", "runs/nonesuch")):
        why = "it has no config.json" if model == "empty" else "it does not exist"
        assert f" --model={model}: not a transformers folder ({why})" in refused(
            name, *words, f"--model={model}")
    # incomplete weights; in another process, because transformers may print something as well
    shutil.copytree(tiny.model, tmp_path / "torn")
    weights = tmp_path / "torn/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])
    before = tree(tmp_path)
    done = script("train_grpo.py", *tiny.words, *RUN, "--model=torn", cwd=tmp_path)
    assert done.code == 2 and done.stdout == "", done
    assert re.fullmatch(r"train_grpo.py: --model=torn: .*\n", done.stderr), done
    assert tree(tmp_path) == before


BAD = "try:\n    {0}.main(['{1}'])\nexcept config.BadInput:\n    pass"


@pytest.mark.parametrize("code, modules", [
    # loading the 7B default model would take minutes
    *[(f"import config, {name}\n" + BAD.format(name, word), "torch transformers")
      for name, word in (("train_grpo", "--lr_bse=1"), ("train_grpo", "--train_set=none.jsonl"),
                         ("evaluate", "--k=9"), ("sample", "--problems=none.jsonl"),
                         ("evaluate", "--val_set=none.jsonl"), ("sample", "--verifier=exactly"),
                         ("train_grpo", "--verifier=no"), ("evaluate", "--verifier=no"))],
    ("import frontier, fit_sigmoid, core.sweep", "torch transformers sample matplotlib pandas")])
def test_errors_analysis_and_planning_load_no_large_modules(code, modules):
    code += f"\nimport sys; print([m for m in '{modules}'.split() if m in sys.modules])"
    done = capture([sys.executable, "-c", code])
    assert done.stdout == "[]\n", done


# ---- Every script from the command line: two updates of the embedded model -----------------------

def test_evaluate_a_run_as_it_was_trained(world, script, tmp_path):
    """evaluate.py needs no other argument than a run's folder."""
    words = ["--B_p=4", "--n=4", "--C=32", "--eval_every=16", "--samples=4", f"--runs={tmp_path}"]
    script("train_grpo.py", *words, check=True)
    folder = tmp_path / run_name(parse(words))
    header = read_log(folder / "log.jsonl")[0]
    assert header["config"] == parse(words) and header["derived"] == dict(
        derive(parse(words)), D=50)
    script("evaluate.py", f"--model={folder}", "--samples=8", "--k=4", check=True)
    result = json.loads((folder / "eval/easy_val/eval.json").read_text())
    assert result["model"] == str(folder / "model") and result["config"]["max_new_tokens"] == 24
    assert Path(result["config"]["val_set"]).resolve() == world.splits / "easy_val.jsonl"
    rate = np.array(result["correct"]) / 8
    assert len(rate) == 300 == len(result["ids"]) and 0.3 < rate.mean() < 0.6
    assert result["stats"]["worst@4"]["mean"] < rate.mean() < result["stats"]["best@4"]["mean"]


def test_evaluate_a_set_that_holds_each_problem_several_times(tmp_path, capsys):
    """A problem counts once, up to white space in its prompt."""
    rows = [dict(id=f"{i}-{k}", prompt=f"{20 + 7 * i}+{3 + 5 * i}=" + " " * k,
                 answer=str(23 + 12 * i)) for k in range(3) for i in range(10)]
    path, out = write_jsonl(tmp_path / "aime.jsonl", rows), tmp_path / "new/folder"
    evaluate.main([f"--model={ROOT / 'data/arithmetic/base'}", f"--val_set={path}", "--samples=4",
                   "--k=4", "--temperature=1", f"--out={out}"])
    said, result = capsys.readouterr(), json.loads((out / "aime/eval.json").read_text())
    never, always = (np.mean(np.array(result["correct"]) == count) for count in (0, 4))
    assert "10 problems, 4 rollouts each" in said.out and never != always
    assert f"{path}: 20 problems are there twice" in said.err
    assert f"never solved {never:.1%}, always solved {always:.1%}\n" in said.out
    assert result["ids"] == [f"{i}-0" for i in range(10)]
    means = np.array(result["correct"]) / 4
    assert means.std() > 0 and result["stats"]["avg@4"] == dict(
        mean=pytest.approx(means.mean()), se=pytest.approx(means.std(ddof=1) / math.sqrt(10)))
    # the change from another model
    other = np.random.default_rng(0).integers(0, 5, 10)
    records = [result, dict(result, model="other", correct=[*other])]
    evaluate.add_gains(records)
    gain = other / 4 - means
    assert records[1]["gain_se"] == pytest.approx(gain.std(ddof=1) / math.sqrt(10))


def test_where_evaluate_writes_and_whose_settings_it_has(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("run/model", "run/ckpt/step_00000001"):
        shutil.copytree(tiny.model, tmp_path / folder)
    for run, temperature in (("run", 0.7), ("other", 0.9)):
        cfg = parse([*tiny.words, f"--temperature={temperature}"])
        write_jsonl(tmp_path / run / "log.jsonl", [dict(type="header", config=cfg)])
    # the first model that is of a run gives the settings
    assert evaluate.parse_like_run(["--model=none,run,other"])["temperature"] == 0.7
    for model, out in ((tiny.model, "runs/eval/model"), ("run", "run/eval"),
                       ("run/ckpt/step_00000001", "run/eval/step_00000001")):
        before = set(tree(tmp_path))
        evaluate.main([*tiny.words, f"--model={model}"])
        new = [name for name in set(tree(tmp_path)) - before if (tmp_path / name).is_file()]
        assert new == [f"{out}/val/eval.json"]


@pytest.fixture(scope="module")
def measured(world, script, tmp_path_factory):
    """Return the measured difficulty of 48 problems: (folder, words, Done)."""
    folder = tmp_path_factory.mktemp("measured")
    some = world.problems.read_text().splitlines()[:48]
    (folder / "some.jsonl").write_text("".join(line + "\n" for line in some))
    # gen_batch=16 draws one problem at a time, so that there is something to interrupt. 23 tokens,
    # because the model's shipped pass rates are for another length
    words = [f"--problems={folder / 'some.jsonl'}", "--s_zero=64", "--n_val=2", "--gen_batch=16",
             "--max_new_tokens=23"]
    return folder / "whole", words, script("sample.py", *words, f"--out={folder / 'whole'}",
                                           check=True)


def test_sample_writes_rates_splits_and_a_figure(measured, world):
    folder, _, done = measured
    header, *lines = read_log(folder / "pass_rates.jsonl")
    assert header["type"] == "header" and header["s"] == 16 and header["verifier"] == "exact"
    assert header["temperature"] == 0.6
    counts = {}
    for r in lines:
        counts.setdefault(r["id"], []).append((r["samples"], r["correct"]))
    problems = sample.read_problems(world.problems)[:48]
    problems.sort(key=lambda p: -len(p["prompt"]))  # a character is a token
    assert list(counts) == [p["id"] for p in problems]
    # while the level of a problem is undecided, it gets 16 more rollouts, up to 64
    for c in counts.values():
        assert [s for s, _ in c] == [16, 32, 48, 64][:len(c)]
        right = [0, *[right for _, right in c]]
        assert all(0 <= b - a <= 16 for a, b in zip(right, right[1:]))
        assert [sample.is_open(right, drawn, 64) for drawn, right in c] == [True] * (
            len(c) - 1) + [False]
        assert c[-1][1] > 0 or c[-1][0] == 64
    # tests/test_arithmetic.py tests the splits that follow from counts
    splits = sample.make_splits(sample.read_problems(world.problems)[:48], {
        i: {0: 0, **dict(c)} for i, c in counts.items()}, parse(["--s_zero=64", "--n_val=2"]))
    for name in ("easy", "hard", "very_easy"):
        for part, problems in splits[name].items():
            assert sample.read_problems(folder / f"{name}_{part}.jsonl") == problems
            assert {"pass_rate", "prompt", "answer"} <= set(problems[0])
        assert f"{name:15s} {len(splits[name]['train']):6d} train      2 val" in done.stdout
    assert (folder / "difficulty.png").read_bytes().startswith(b"\x89PNG")
    assert f"{sum(c[-1][0] for c in counts.values()):,} rollouts in all" in done.stdout
    assert json.loads((folder / "difficulty.json").read_text())["n_val"] == 2


@pytest.mark.parametrize("share", [0.0, 0.001, 0.4, 0.85, 0.999])
def test_a_measurement_may_be_cut_off_anywhere(measured, tmp_path, monkeypatch, share):
    """The file is empty, or the cut is in the middle of a line: of the header, in the first 16
    rollouts of each problem or later. The same command ends with the files of a whole measurement.
    """
    whole, words, _ = measured
    content = (whole / "pass_rates.jsonl").read_bytes()
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn/pass_rates.jsonl").write_bytes(content[:int(share * len(content))])
    monkeypatch.chdir(ROOT)
    sample.main([*words, f"--out={tmp_path / 'torn'}"])
    got, want = tree(tmp_path / "torn"), tree(whole)
    assert set(got) == set(want)
    assert not [name for name in want if got[name] != want[name] and not name.endswith(".png")]


def test_the_bench_for_gpus_runs_on_a_cpu():
    assert "log-probs differ by" in run_script("tests/bench/gpu.py", "tiny", check=True).stdout
