"""config.py, bad input, and every script and the sweep as their user starts them."""
import gzip
import importlib
import io
import json
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import config as C
import evaluate
import sample
from config import (BadInput, append, aside, cells, check_run, command, comments, config, derive, identity, parse, read_log,
                    run_name)

ROOT = Path(__file__).resolve().parent.parent
LEVELS = tuple(sample.LEVELS)
# What may change without making another experiment: the budget, folders, memory and speed, the other stages' keys
FREE = set("C B_max data source revision question_key answer_key against mix problems s s_zero levels n_val remeasure shard runs out device gen_batch "
           "micro_tokens micro_logits activation_checkpointing gpu_memory save_every keep_at pass_at sample_every ns bps seeds view metric unit eval_set delta bin points boot".split())


def tree(folder):
    """Every file below a folder with its bytes, every folder with None."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in sorted(Path(folder).rglob("*"))}


def wait_for(what, timeout=120):
    """Poll until `what()` is true; fails after `timeout` seconds."""
    end = time.monotonic() + timeout
    while not what():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


# ---------------------------------------------------------------------------------------------------------------------
# config.py: layers and types

@pytest.fixture
def world_like(tmp_path):
    """A data folder with a defaults.json, no file of which is ever opened."""
    folder = tmp_path / "world"
    folder.mkdir()
    flat = dict(model=str(folder / "base"), temperature=0.9, n=4, recipe="hard", kl_coef=0.5)
    (folder / "defaults.json").write_text(json.dumps(flat))
    return folder


def test_layers_later_beats_earlier(tmp_path, world_like):
    file = tmp_path / "flat.json"
    file.write_text(json.dumps(dict(kl_coef=0.7, n=8, recipe="hard")))  # within one file the recipe comes first
    data = f"--data={world_like}"
    for words, want in [
        ([], dict(temperature=0.6, n=16)),  # the dict
        ([data], dict(temperature=0.9, n=4, model=str(world_like / "base"), recipe="hard")),  # the data folder
        ([data], dict(kl_coef=0.0, entropy_coef=0.0)),  # the recipe lies above the data folder
        ([data, "--recipe=easy"], dict(kl_coef=0.001, entropy_coef=0.001, n=4)),
        ([data, "--n=32"], dict(n=32, temperature=0.9)),  # the command line, from left to right
        ([data, "--n=32", "--n=64"], dict(n=64)),
        (["--kl_coef=0.3", "--recipe=hard"], dict(kl_coef=0.0)),
        (["--recipe=hard", "--kl_coef=0.3"], dict(kl_coef=0.3, entropy_coef=0.0)),
        (["--n=32", f"--config={file}"], dict(n=8, kl_coef=0.7)),
        ([f"--config={file}", "--n=32"], dict(n=32, kl_coef=0.7)),
        ([data, f"--config={file}"], dict(n=8, kl_coef=0.7, temperature=0.9)),
    ]:
        cfg = parse(["--model=some/model", *words] if not words else words)
        assert {key: cfg[key] for key in want} == want, words


def test_defaults_json_is_for_models_of_its_folder(world_like, monkeypatch):
    monkeypatch.chdir(world_like.parent)
    for model in (f"{world_like}/base", f"{world_like}/other", "world/base", "./world/base"):
        assert parse([f"--data={world_like}", f"--model={model}"])["temperature"] == 0.9, model
        assert parse(["--data=world", f"--model={model}"])["temperature"] == 0.9, model
    for model in ("Qwen/Qwen2.5-7B-Instruct", "worldly/base", f"{world_like}2/base"):
        assert parse([f"--data={world_like}", f"--model={model}"])["temperature"] == 0.6, model
    # and a mistake in it is named with the file
    (world_like / "defaults.json").write_text('{"temprature": 1}')
    with pytest.raises(BadInput, match="defaults.json: temprature=1: no such key, the nearest is temperature"):
        parse([f"--data={world_like}"])


def test_problem_files_follow_from_data_model_and_recipe():
    cfg = parse(["--data=data/mine", "--model=Qwen/Qwen3-4B", "--recipe=hard"])
    assert cfg["train_set"] == "data/mine/splits/Qwen3-4B/hard_train.jsonl"
    assert cfg["val_set"] == "data/mine/splits/Qwen3-4B/hard_val.jsonl"
    assert cfg["problems"] == "data/mine/problems.jsonl"
    assert parse(["--train_set=a.jsonl"])["train_set"] == "a.jsonl"


@pytest.mark.parametrize("key, value, want", [
    ("n", "1e2", 100), ("n", "1_000", 1000), ("C", "1e6", 1_000_000), ("C", 2.0, 2), ("seed", "-1", -1),
    ("temperature", "1", 1.0), ("temperature", 1, 1.0), ("lr_base", "5e-4", 0.0005),
    ("kl_coef", "none", 0.0), ("n_train", "None", 0), ("out", "none", ""), ("out", None, ""), ("D", None, 0),
    ("out", "", ""),
    ("flag", "true", True), ("flag", "False", False), ("flag", True, True), ("flag", "none", False),
])
def test_types(monkeypatch, key, value, want):
    monkeypatch.setitem(config, "flag", True)
    got = C.cast(key, value)
    assert got == want and type(got) is type(want)


@pytest.mark.parametrize("key, value", [
    ("n", "1.5"), ("n", 1.5), ("n", "many"), ("n", "true"), ("n", True), ("n", ""), ("n", "inf"), ("n", "nan"), ("n", [4]),
    ("temperature", "hot"), ("temperature", "nan"), ("temperature", False), ("out", 3), ("flag", "1"), ("flag", "yes"),
    ("flag", 1),
])
def test_wrong_types_are_refused(monkeypatch, key, value):
    monkeypatch.setitem(config, "flag", True)
    with pytest.raises(BadInput) as e:
        C.cast(key, value)
    assert str(e.value).startswith(f"--{key}={value}: expected a") and "\n" not in str(e.value)


def test_large_ints_stay_exact():
    assert C.cast("seed", str(2**62 + 1)) == 2**62 + 1


@pytest.mark.parametrize("word, near", [
    ("lr_bse", "lr_base"), ("Bp", "B_p"), ("n_trian", "n_train"), ("micro_token", "micro_tokens"), ("N", "n"), ("ö", ""),
    ("kl_coeff", "kl_coef"), ("B_MAX", "B_max"), ("temp", "temperature")])
def test_unknown_keys_name_the_nearest(word, near):
    with pytest.raises(BadInput, match=rf"^--{word}=1: no such key, the nearest is {near}"):
        parse([f"--{word}=1"])


def test_help_lists_every_key_with_its_comment(capsys):
    assert list(comments()) == list(config) and all(len(c) > 3 for c in comments().values())
    with pytest.raises(SystemExit) as e:
        parse(["--n=3", "--help"], "what this script does")
    out = capsys.readouterr().out
    assert not e.value.code and out.startswith("what this script does")
    for key, comment in comments().items():
        assert re.search(rf"^  --{key}={re.escape(str(config[key]))} +{re.escape(comment)}$", out, re.M), key


@pytest.mark.parametrize("name", ["config", "sample", "evaluate", "train_grpo", "frontier", "fit_sigmoid", "bandit_toy", "prepare"])
def test_every_script_has_help(capsys, name, prepare):
    module = prepare if name == "prepare" else importlib.import_module(name)
    with pytest.raises(SystemExit) as e:
        module.main(["--help"])
    out = capsys.readouterr().out
    assert not e.value.code and module.__doc__.strip().splitlines()[0] in out and "--B_p=32" in out


# ---------------------------------------------------------------------------------------------------------------------
# config.py: what is derived

@pytest.mark.parametrize("words, B, M, lr", [
    ("--B_p=32 --n=64 --C=1e6", 2048, 488, 1e-6 * math.sqrt(2)),
    ("--B_p=32 --n=32", 1024, 976, 1e-6),
    ("--B_p=8 --n=4 --C=100 --lr_scaling=linear", 32, 3, 1e-6 / 32),
    ("--B_p=8 --n=4 --C=96 --lr_scaling=constant", 32, 3, 1e-6),
    ("--B_p=128 --n=256 --n_train=64 --C=32768", 32768, 1, 1e-6 * math.sqrt(8)),  # lr by the rollouts in the loss
])
def test_derive(words, B, M, lr):
    cfg = parse(["--model=some/model", *words.split()])
    d = derive(cfg)
    assert (d["B"], d["M"]) == (B, M) and d["lr"] == pytest.approx(lr, rel=1e-12) and d["run"] == run_name(cfg)
    assert not set(d) & set(cfg)  # never stored among the inputs


def other(key, value):
    """A value that differs from `value`, of its type."""
    if isinstance(value, str):
        return next((v for v in C.CHOICES.get(key, ()) if v != value), value + "x")
    return value + 2


@pytest.mark.parametrize("key", config)
def test_run_name_changes_with_the_experiment_alone(key):
    cfg = parse(["--kl_coef=0.01", "--algo=ppo", "--verifier=math"])
    changed = dict(cfg, **{key: other(key, cfg[key])})
    assert (run_name(changed) == run_name(cfg)) == (key in FREE)
    assert (identity(changed) == identity(cfg)) == (key in FREE)


def test_settings_of_a_critic_name_no_run_without_one():
    plain = parse(["--kl_coef=0.01"])
    assert all(run_name(dict(plain, **{key: 0.5})) == run_name(plain) for key in ("gamma", "lam", "critic_lr", "value_clip"))


def test_run_names_are_frozen(monkeypatch):
    """A name from an old sweep is found again: by this version, and by one that has a new key at its off value."""
    assert run_name(dict(config, verifier="exact")) == "Bp32_n16_seed0_44136fa3"  # which was the default once
    assert run_name(config) == "Bp32_n16_seed0_84196e29"
    old = run_name(parse(["--lr_base=1e-3", "--n=8"]))
    monkeypatch.setitem(config, "new_key", 0.0)
    assert run_name(parse(["--lr_base=1e-3", "--n=8"])) == old
    assert run_name(parse(["--lr_base=1e-3", "--n=8", "--new_key=1"])) != old


WORDS = [
    "", "--recipe=hard", "--recipe=hard --kl_coef=0.5 --n=64 --seed=3 --C=1e5",
    "--data=WORLD", "--data=WORLD --temperature=0.6 --model=WORLD/base2", "--data=WORLD --kl_coef=0.5 --recipe=easy --n=16",
    "--data=WORLD --model=Qwen/Qwen3-4B --n=4", "--data=WORLD --model=Qwen/Qwen2.5-7B-Instruct --temperature=0.9",
    # what the defaults.json of data/arithmetic says too, for a model that it does not hold for
    "--model=Qwen/Qwen2.5-7B-Instruct --D=200 --lr_base=5e-4 --max_new_tokens=20",
    "'--train_set=my problems.jsonl' \"--val_set=it's.jsonl\" --micro_tokens=4096 --B_max=0 --device=cpu",
]


@pytest.mark.parametrize("words", WORDS)
def test_the_dict_comes_back_through_json_and_through_a_command(tmp_path, world_like, words):
    cfg = parse(shlex.split(words.replace("WORLD", str(world_like))))
    (tmp_path / "header.json").write_text(json.dumps(cfg))
    assert parse([f"--config={tmp_path / 'header.json'}"]) == cfg
    python, script, *line = shlex.split(command(cfg, ("seed", "B_max"), "my python"))
    assert (python, script) == ("my python", "train_grpo.py")
    back = parse(line)
    assert identity(back) == identity(cfg) and run_name(back) == run_name(cfg)
    assert all(back[key] == cfg[key] for key in ("C", "B_max", "data", *C.RUNNING))
    assert len(line) == len({word.split("=")[0] for word in line})  # no key twice


def test_cells_of_a_sweep():
    cfg = parse(["--ns=2 4 64", "--bps=8 32", "--seeds=0 1", "--B_max=256", "--C=1024"])
    got = [(c["seed"], c["B_p"], c["n"]) for c in cells(cfg)]
    # large B first; 8 x 64 is above 256
    assert got == [(seed, *cell) for seed in (0, 1) for cell in [(32, 4), (32, 2), (8, 4), (8, 2)]]
    assert all(c | dict(B_p=cfg["B_p"], n=cfg["n"], seed=cfg["seed"]) == cfg for c in cells(cfg))


@pytest.mark.parametrize("words", [
    "--n=1", "--n=0", "--B_p=0", "--C=0", "--C=-5", "--temperature=0", "--lr_base=0", "--top_p=0", "--top_p=1.1",
    "--top_p=0.9", "--n_train=1", "--n_train=17", "--k=5", "--k=9 --samples=8", "--samples=0", "--verify_s=1e7",
    "--metric=pass@4", "--metric=avg@0", "--ns=2,4", "--seeds=", "--bps=x", "--kl_coef=-1", "--grad_clip=-1", "--bin=0",
    "--recipe=hrad", "--engine=none", "--lr_scaling=squared"])
def test_impossible_values_name_the_key(words):
    with pytest.raises(BadInput, match=f"^{words.split('=')[0]}=") as e:
        parse(words.split())
    assert "\n" not in str(e.value)


def test_top_p_below_one_without_importance_weights_is_fine():
    assert parse(["--top_p=0.9", "--tis_cap=0"])["top_p"] == 0.9


def test_a_run_needs_one_update_within_b_max():
    check_run(parse(["--B_p=8", "--n=4", "--C=32", "--B_max=32"]))
    check_run(parse(["--B_p=8", "--n=400", "--C=1e4", "--B_max=0"]))  # 0 = no limit
    with pytest.raises(BadInput, match="B_p n = 32 is above B_max=31"):
        check_run(parse(["--B_p=8", "--n=4", "--B_max=31"]))
    with pytest.raises(BadInput, match="C=31: below one update of B_p n = 32"):
        check_run(parse(["--B_p=8", "--n=4", "--C=31"]))


# ---------------------------------------------------------------------------------------------------------------------
# config.py: files and logs

@pytest.mark.parametrize("packed", [False, True])
def test_read_log(tmp_path, packed):
    path = tmp_path / ("log.jsonl.gz" if packed else "log.jsonl")

    def write(text):
        path.write_bytes(gzip.compress(text) if packed else text)
        return read_log(path)
    assert write(b'{"a": 1}\n\n{"b": [1.5, null]}\n') == [{"a": 1}, {"b": [1.5, None]}]
    assert write(b'{"a": 1}\n{"b": [1.5, nu') == [{"a": 1}]  # torn by a kill
    assert write(b'{"a": 1}\n{"b": "\xc3') == [{"a": 1}]    # in the middle of a letter
    assert write(b'{"a": 1}\n[1, 2]\n7\n') == [{"a": 1}]    # no records
    assert write(b"") == []
    for middle in (b"torn\n", b'{"b": \n', b"\xff\xfe\n"):
        with pytest.raises(BadInput, match=re.escape(f"{path}:2: not a line of JSON")):
            write(b'{"a": 1}\n' + middle + b'{"c": 1}\n')


def test_a_broken_gz_is_bad_input(tmp_path):
    path = tmp_path / "log.jsonl.gz"
    whole = gzip.compress(b'{"a": 1}\n' * 1000)
    for part in (whole[:-20], b"no gzip at all"):
        path.write_bytes(part)
        with pytest.raises(BadInput, match="not a readable gzip"):
            read_log(path)


def test_append_writes_whole_lines_or_nothing(tmp_path):
    class Full(io.FileIO):
        """A disk with room for `room` bytes more."""
        room = 10**9

        def write(self, data):
            if not self.room:
                raise OSError(28, "No space left on device")
            part = bytes(data)[:self.room]
            self.room -= len(part)
            return super().write(part)

    path = tmp_path / "log.jsonl"
    with Full(path, "ab") as file:
        append(file, dict(a=1, bad=float("nan"), worse=[float("inf")], array=np.arange(2), number=np.float32(0.5)))
        before = path.read_bytes()
        assert json.loads(before) == dict(a=1, bad=None, worse=[None], array=[0, 1], number=0.5)
        for room in (0, 1, 7):
            file.room = room
            with pytest.raises(OSError):
                append(file, dict(b="x" * 100))
            assert path.read_bytes() == before
        file.room = 10**9
        append(file, dict(c=1))
    assert path.read_bytes() == before + b'{"c": 1}\n'


def test_aside_is_all_or_nothing(tmp_path):
    path = tmp_path / "new" / "result.png"
    with aside(path) as part:
        part.write_text("old")
        assert part.suffix == ".png" and not path.exists()
    with pytest.raises(KeyError):
        with aside(path) as part:
            part.write_text("half of the new")
            raise KeyError
    assert tree(tmp_path) == {"new": None, "new/result.png": b"old"}


@pytest.mark.parametrize("error, code, line", [
    (BadInput("--x=1: no"), 2, "s.py: --x=1: no\n"),
    (OSError(28, "No space", "log.jsonl"), 1, "s.py: No space: log.jsonl; start the same command again to go on\n"),
    (KeyboardInterrupt(), 130, "s.py: interrupted; start the same command again to go on\n")])
def test_how_a_script_ends(monkeypatch, capsys, error, code, line):
    def main(argv):
        raise error
    monkeypatch.setattr(sys, "argv", ["some/s.py"])
    with pytest.raises(SystemExit) as e:
        C.entry(main)
    assert e.value.code == code and capsys.readouterr().err == line


def test_a_reader_that_has_seen_enough():
    line = f"set -o pipefail; {shlex.quote(sys.executable)} config.py --help | head -n 1"
    done = subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "" and done.stdout.startswith("config.py: ")


# ---------------------------------------------------------------------------------------------------------------------
# Bad input: one line, exit code 2, nothing written or lost

PROBLEM_FILES = {  # what is in the file, and what the line must name
    "missing.jsonl": (None, "missing.jsonl: no readable problem file (No such file or directory)"),
    "empty.jsonl": ("", "empty.jsonl: holds no problem"),
    "blank.jsonl": ("\n  \n", "blank.jsonl: holds no problem"),
    "nojson.jsonl": ('{"id": 1, "prompt": "1+1=", "answer": 2}\nid,prompt\n', "nojson.jsonl:2: not a JSON object"),
    "list.jsonl": ('[1, 2]\n', "list.jsonl:1: not a JSON object"),
    "torn.jsonl": ('{"id": 1, "prompt": "1+1=", "answer": 2}\n\n{"id": 2, "pro', "torn.jsonl:3: not a JSON object"),
    "twice.jsonl": ('{"id": 1, "prompt": "1+1=", "answer": 2}\n\n{"id": "1", "prompt": "1+2=", "answer": 3}\n',
                    "twice.jsonl:3: id 1 is that of line 1"),
    "noanswer.jsonl": ('{"id": 1, "prompt": "1+1="}\n', "noanswer.jsonl:1: the problem has no answer"),
    "nullanswer.jsonl": ('{"id": 1, "prompt": "1+1=", "answer": null}\n', "nullanswer.jsonl:1: the problem has no answer"),
    "blankanswer.jsonl": ('{"id": 1, "prompt": "1+1=", "answer": " "}\n', "blankanswer.jsonl:1: the problem has no answer"),
    "noprompt.jsonl": ('{"id": 1, "answer": "2"}\n', "noprompt.jsonl:1: the problem has no prompt"),
    "noid.jsonl": ('{"prompt": "1+1=", "answer": "2"}\n', "noid.jsonl:1: the problem has no id"),
    "binary.jsonl": (b"\xff\xfe\x00", "binary.jsonl: no readable problem file (not UTF-8 text)"),
}
RUN = ["--B_p=2", "--n=2", "--C=8", "--eval_every=4", "--samples=4"]  # two updates


@pytest.fixture
def refused(tmp_path, monkeypatch, capfd):
    """refused(name, *words): the line with which a script that is started in `tmp_path` ends; the folder stays as it was.

    In this process, because most of these come to torch, by the same way as on the command line: config.entry.
    """
    monkeypatch.chdir(tmp_path)

    def run(name, *words):
        before = tree(tmp_path)
        monkeypatch.setattr(sys, "argv", [name, *map(str, words)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as e:
            C.entry(importlib.import_module(name.removesuffix(".py")).main)
        out, err = capfd.readouterr()
        assert e.value.code == 2 and out == "" and re.fullmatch(rf"{name}: .+\n", err), (e.value.code, out, err)
        assert tree(tmp_path) == before
        return err
    return run


@pytest.mark.parametrize("word, names", [
    ("--lr_bse=1", ["lr_bse=1", "lr_base"]), ("--n=many", ["--n=many", "an int"]), ("--n=1", ["--n=1", "2 rollouts"]),
    ("--B_p=17 --C=34", ["--B_p=17", "only 16 problems"]), ("--B_max=3", ["--B_p=2 --n=2", "B_max=3"]),
    ("--C=3", ["--C=3", "one update"]), ("--D=17", ["--D=17", "16 problems"]), ("--D=1", ["--B_p=2", "1 problem"]),
    ("--top_p=0.9", ["--top_p=0.9", "tis_cap"]), ("--k=5", ["--k=5", "samples=4"]), ("n=4", ["n=4", "--key=value"]),
    ("--n", ["--n", "--key=value"]), ("--recipe=soft", ["--recipe=soft"]), ("--config=missing.json", ["missing.json"]),
    ("--max_prompt_tokens=3", ["problem arith-", "--max_prompt_tokens=3"]),
    ("--algo=ppo --n_train=2", ["--n_train=2", "PPO"]), ("--algo=ppo --zero_var_filter=all", ["--zero_var_filter=all", "PPO"]),
    ("--algo=reinforce", ["--algo=reinforce", "ppo"]), ("--kl_type=k4", ["--kl_type=k4"]), ("--updates=0", ["--updates=0"]),
    ("--keep_at=1e52e5", ["--keep_at=1e52e5"]), ("--lam=1.5", ["--lam=1.5"]), ("--gpu_memory=0", ["--gpu_memory=0"]),
    ("--engine=vllm --temperature=2.5", ["--temperature=2.5", "vLLM"]), ("--max_new_tokens=60", ["--max_new_tokens=60", "64 positions"]),
])
def test_bad_words_of_a_run(refused, tiny, word, names):
    line = refused("train_grpo.py", *tiny.words, *RUN, *word.split())
    assert all(name in line for name in names), line


@pytest.mark.parametrize("name", PROBLEM_FILES)
def test_bad_problem_files(refused, tiny, tmp_path, name):
    content, line = PROBLEM_FILES[name]
    if content is not None:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert line in refused("train_grpo.py", *tiny.words, *RUN, f"--train_set={name}")
    assert line in refused("train_grpo.py", *tiny.words, *RUN, f"--val_set={name}")
    assert line in refused("evaluate.py", *tiny.words, f"--val_set={name}")
    assert line in refused("sample.py", *tiny.words, f"--problems={name}")


def test_a_config_file_that_is_none(refused, tmp_path):
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "bad.json").write_text('{"n": 4,}')
    (tmp_path / "nested.json").write_text('{"n": {"is": 4}}')
    for name in ("list", "bad", "nested"):
        line = refused("train_grpo.py", f"--config={name}.json")
        assert f"{name}.json" in line or "--n=" in line


def test_a_prompt_over_the_limit(refused, tiny):
    for name in ("sample.py", "evaluate.py"):
        assert "--max_prompt_tokens=3" in refused(name, *tiny.words, "--max_prompt_tokens=3", "--out=new/folder")


def test_another_s_in_a_measured_folder(refused, tiny, tmp_path):
    (tmp_path / "m").mkdir()
    first = json.loads(tiny.train.read_text().splitlines()[0])
    lines = [json.dumps(r) + "\n" for r in (dict(type="header", s=16), dict(id=first["id"], samples=16, correct=3))]
    (tmp_path / "m/pass_rates.jsonl").write_text("".join(lines))
    assert "measured otherwise: s=16 there, 8 now" in refused("sample.py", *tiny.words, "--out=m", "--s=8")
    (tmp_path / "m/pass_rates.jsonl").write_text(lines[1])  # before there were headers
    assert "m/pass_rates.jsonl: by an earlier version" in refused("sample.py", *tiny.words, "--out=m")
    assert "--s_zero=8: must be 0 or at least s=16" in refused("sample.py", *tiny.words, "--out=m", "--s_zero=8")


def test_a_folder_of_another_run(refused, tiny, tmp_path):
    """Whether it was cut off or has finished: the keys are named with both values, and the log stays."""
    words = [*tiny.words, *RUN]
    hashes = {f"{part}_set_hash": sample.set_hash(sample.read_problems(getattr(tiny, part))) for part in ("train", "val")}
    (tmp_path / "run").mkdir()
    end = dict(type="end", status="budget", rollouts=8)
    for other_words, other_hashes, more, names in [
            (["--lr_base=0.5", "--n=4"], {}, [], ["lr_base=0.5 there, 1e-06 now", "n=4 there, 2 now"]),
            (["--lr_base=0.5"], {}, [dict(type="step", rollouts=8), end], ["lr_base=0.5 there"]),
            ([], dict(train_set_hash="another"), [], [str(tiny.train), "changed"]),
            ([], dict(val_set_hash="another"), [dict(type="step", rollouts=8), end], [str(tiny.val), "changed"])]:
        header = dict(type="header", schema=1, config=parse(words + other_words), **(hashes | other_hashes))
        (tmp_path / "run/log.jsonl").write_text("".join(json.dumps(r) + "\n" for r in [header, *more]))
        line = refused("train_grpo.py", *words, "--out=run")
        assert line.startswith("train_grpo.py: run: ") and all(name in line for name in names), line
    (tmp_path / "run/log.jsonl").write_text('{"type": "header"\n{}\n')
    assert "run/log.jsonl:1: not a line of JSON" in refused("train_grpo.py", *words, "--out=run")


def test_nothing_to_analyse(refused, tmp_path):
    for name in ("frontier.py", "fit_sigmoid.py"):
        assert "runs/none" in refused(name, "--runs=runs/none")
    (tmp_path / "empty").mkdir()
    for name in ("frontier.py", "fit_sigmoid.py"):
        assert "empty" in refused(name, "--runs=empty")
    # evaluations and no end: begun, not finished
    (tmp_path / "begun/run").mkdir(parents=True)
    records = [dict(type="header", schema=1, config=parse([]), derived=derive(parse([])))]
    records += [dict(type="eval", step=m, rollouts=m * 512, set="val", k=4, samples=4, set_hash="x", correct=[1, 2, m])
                for m in (0, 1, 2)]
    (tmp_path / "begun/run/log.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    assert "no finished run" in refused("frontier.py", "--runs=begun")


def test_a_model_folder_that_is_none(refused, script, tiny, tmp_path):
    (tmp_path / "empty").mkdir()
    for name, model in [("train_grpo.py", "none/of/it"), ("sample.py", "empty"), ("evaluate.py", "./missing/one")]:
        words = RUN if name == "train_grpo.py" else []
        assert f" --model={model}: no transformers folder" in refused(name, *tiny.words, *words, f"--model={model}")
    # torn weights, in a process of its own: transformers may write what it likes, to wherever it likes
    shutil.copytree(tiny.model, tmp_path / "torn")
    weights = tmp_path / "torn/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])
    before = tree(tmp_path)
    done = script("train_grpo.py", *tiny.words, *RUN, "--model=torn", cwd=tmp_path)
    assert done.code == 2 and done.stdout == "" and re.fullmatch(r"train_grpo.py: --model=torn: .*\n", done.stderr), done
    assert tree(tmp_path) == before


def test_bad_input_is_seen_before_a_model_is_loaded(tmp_path):
    """Of 7B parameters, that would be minutes."""
    for name, word in [("train_grpo", "--lr_bse=1"), ("train_grpo", "--train_set=none.jsonl"), ("evaluate", "--k=9"),
                       ("sample", "--problems=none.jsonl"), ("evaluate", "--val_set=none.jsonl")]:
        code = (f"import sys, {name}\nfrom config import BadInput\n"
                f"try:\n    {name}.main(['{word}'])\nexcept BadInput as e:\n    print(e)\n"
                "print([m for m in ('torch', 'transformers') if m in sys.modules])")
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
        assert done.stdout.splitlines()[1:] == ["[]"], done


def test_the_analysis_loads_no_torch(tmp_path):
    code = "import sys, frontier, fit_sigmoid\nprint([m for m in ('torch', 'transformers', 'sample') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True).stdout == "[]\n"


# ---------------------------------------------------------------------------------------------------------------------
# Every script as its user starts it: two updates of the embedded model

@pytest.fixture(scope="module")
def trained(world, script, tmp_path_factory):
    """A run of two updates: (its folder, the words, what it printed)."""
    runs = tmp_path_factory.mktemp("runs")
    words = ["--B_p=4", "--n=4", "--C=32", "--eval_every=16", "--samples=4", f"--runs={runs}"]
    done = script("train_grpo.py", *words)
    assert done.code == 0, done.stderr
    return runs / run_name(parse(words)), words, done


def test_train_two_updates(trained, script):
    folder, words, done = trained
    records = read_log(folder / "log.jsonl")
    assert [r["type"] for r in records] == ["header", "eval", "step", "eval", "train_pass", "step", "eval", "train_pass", "end"]
    assert records[-1] == dict(type="end", status="budget", rollouts=32)
    assert records[0]["config"] == parse(words) and records[0]["derived"] == derive(parse(words))
    assert "M=2" in done.stderr and "roll" in done.stderr and "val avg@4" in done.stderr
    before = tree(folder)
    done = script("train_grpo.py", *words)
    assert done.code == 0 and "finished before, nothing to do" in done.stdout and tree(folder) == before


def test_evaluate_a_run_as_it_was_trained(trained, world, script):
    """The README's line: a run's folder is all that evaluate.py needs to be told."""
    folder, _, _ = trained
    done = script("evaluate.py", f"--model={folder}", "--samples=8", "--k=4")
    assert done.code == 0, done.stderr
    result = json.loads((folder / "eval/easy_val/eval.json").read_text())
    assert result["model"] == str(folder / "model") and result["config"]["max_new_tokens"] == 24
    assert Path(result["config"]["val_set"]).resolve() == world.splits / "easy_val.jsonl"
    rate = np.array(result["correct"]) / 8
    assert len(rate) == 300 == len(result["ids"]) and 0.3 < rate.mean() < 0.6
    assert result["stats"]["avg@4"]["mean"] == pytest.approx(rate.mean())
    assert result["stats"]["avg@4"]["se"] == pytest.approx(rate.std(ddof=1) / math.sqrt(300))
    assert result["stats"]["worst@4"]["mean"] < rate.mean() < result["stats"]["best@4"]["mean"]
    for metric, stat in result["stats"].items():
        assert re.search(rf"^  {metric} +{stat['mean']:.4f} \+- {stat['se']:.4f}", done.stdout, re.M)
    assert (folder / "eval/easy_val/eval.png").read_bytes().startswith(b"\x89PNG")


def test_evaluate_of_no_run_writes_below_runs(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    evaluate.main(list(tiny.words))
    files = [name for name, content in tree(tmp_path).items() if content]
    assert files == ["runs/eval/model/val/eval.json", "runs/eval/model/val/eval.png"]


@pytest.fixture(scope="module")
def measured(world, script, tmp_path_factory):
    """The difficulty of 48 problems, measured without interruption, and the words for it."""
    folder = tmp_path_factory.mktemp("measured")
    (folder / "some.jsonl").write_text("".join(line + "\n" for line in world.problems.read_text().splitlines()[:48]))
    # one problem at a time, so that there is something to interrupt
    words = [f"--problems={folder / 'some.jsonl'}", "--s_zero=64", "--n_val=2", "--gen_batch=16"]
    done = script("sample.py", *words, f"--out={folder / 'whole'}")
    assert done.code == 0, done.stderr
    return folder / "whole", words, done


def test_sample_writes_rates_splits_and_a_figure(measured, world):
    folder, _, done = measured
    counts = {}
    header, *lines = read_log(folder / "pass_rates.jsonl")
    assert header["type"] == "header" and header["s"] == 16 and header["verifier"] == "exact" and header["temperature"] == 0.6
    for r in lines:
        assert 0 <= r["correct"] <= r["samples"]
        counts.setdefault(r["id"], []).append((r["samples"], r["correct"]))
    ids = [p["id"] for p in sample.read_problems(world.problems)[:48]]
    assert list(counts) == ids and {c[0][0] for c in counts.values()} == {16}
    for c in counts.values():  # only those whose level by 64 rollouts is open get more, 16 at a time
        assert [s for s, _ in c] == [16, 32, 48, 64][:len(c)] and [right for _, right in c] == sorted(right for _, right in c)
        assert all(sample.is_open(right, drawn, 64, LEVELS) for drawn, right in c[:-1]) and not sample.is_open(c[-1][1], c[-1][0], 64, LEVELS)
        assert c[-1][1] > 0 or c[-1][0] == 64
    rates = {i: c[0][1] / 16 for i, c in counts.items()}
    held = {path.stem.removesuffix("_val"): {p["id"] for p in sample.read_problems(path)} for path in folder.glob("*_val.jsonl")}
    for name, (low, high) in dict(easy=(0.3, 0.6), hard=(0, 0.0625), very_easy=(0.6, 0.9)).items():
        got = [p for part in ("train", "val") for p in sample.read_problems(folder / f"{name}_{part}.jsonl")]
        band = {i for i in ids if low <= rates[i] <= high}
        assert {p["id"] for p in got} <= band  # the rest of it validates another split, and is trained on by none
        assert all(any(i in held[other] for other in held if other != name) for i in band - {p["id"] for p in got})
        assert all(p["pass_rate"] == rates[p["id"]] and {"prompt", "answer"} <= set(p) for p in got)
        assert f"{name:15s} {len(got) - 2:6d} train      2 val" in done.stdout
    assert (folder / "difficulty.png").read_bytes().startswith(b"\x89PNG")
    info = json.loads((folder / "difficulty.json").read_text())
    assert info["rollouts"] == sum(c[-1][0] for c in counts.values()) and info["sizes"]["hard"]["val"] == 2


def go_on(words, out, whole, monkeypatch):
    """Start the measurement in `out` again: it must end with what `whole` holds."""
    monkeypatch.chdir(ROOT)
    sample.main([*words, f"--out={out}"])
    got, want = tree(out), tree(whole)
    assert set(got) == set(want) and not [name for name in want if got[name] != want[name] and not name.endswith(".png")]


def test_sample_goes_on_where_it_was_killed(measured, tmp_path, monkeypatch):
    whole, words, _ = measured
    path = tmp_path / "killed/pass_rates.jsonl"
    with open(tmp_path / "output", "w") as output:
        line = [sys.executable, "sample.py", *words, f"--out={path.parent}"]
        process = subprocess.Popen(line, cwd=ROOT, stdout=output, stderr=output)
        wait_for(lambda: process.poll() is not None or (path.exists() and path.read_bytes().count(b"\n") >= 10))
        process.kill()
        assert process.wait() == -signal.SIGKILL, (tmp_path / "output").read_text()
    assert set(tree(path.parent)) == {"pass_rates.jsonl"} and path.stat().st_size < (whole / path.name).stat().st_size
    go_on(words, path.parent, whole, monkeypatch)


@pytest.mark.parametrize("share", [0.0, 0.4, 0.85, 0.999])
def test_a_measurement_may_be_torn_anywhere(measured, tmp_path, monkeypatch, share):
    """In the first 16 rollouts of each or in the helpings after them, in the middle of a line."""
    whole, words, _ = measured
    content = (whole / "pass_rates.jsonl").read_bytes()
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn/pass_rates.jsonl").write_bytes(content[:int(share * len(content)) + 1])
    go_on(words, tmp_path / "torn", whole, monkeypatch)


# ---------------------------------------------------------------------------------------------------------------------
# The sweep

def sweep(tiny, out, *words, timeout=300, start=False, **env):
    """run_sweep.sh easy with the tiny model, without an environment to make -> Done, or the process if `start`."""
    free = {k: v for k, v in os.environ.items() if k not in ("NS", "BPS", "C", "B_MAX", "SEEDS", "JOBS", "DATA", "DRY_RUN")}
    env = free | dict(OUT=str(out), PYTHON=sys.executable, MODEL=str(tiny.model), NS="2 4", BPS="2", C="64") | env
    words = [*tiny.words, "--eval_every=16", "--save_every=0", "--boot=20", *words]
    line = ["bash", str(ROOT / "run_sweep.sh"), "easy", *words]
    if start:
        return subprocess.Popen(line, env=env, text=True, start_new_session=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return subprocess.run(line, env=env, capture_output=True, text=True, timeout=timeout)


def logs(out):
    """{run: its records} of the runs of a sweep, the calibration aside."""
    return {path.parent.name: read_log(path) for path in sorted(Path(out).glob("[!.]*/log.jsonl"))}


@pytest.fixture(scope="module")
def swept(tiny, tmp_path_factory):
    """A finished sweep over two cells: (its folder, what it printed). Tests that go on with it copy the folder."""
    out = tmp_path_factory.mktemp("sweep") / "easy"
    done = sweep(tiny, out)
    assert done.returncode == 0, done
    return out, done.stdout


def test_sweep_from_nothing_to_a_prescription(swept):
    out, text = swept
    assert len(logs(out)) == 2 and all(r[-1] == dict(type="end", status="budget", rollouts=64) for r in logs(out).values())
    # before it starts: runs, rollouts, time, disk
    assert re.search(r"2 runs.*\b128 rollouts.*\d+:\d\d.*MB", text)
    # the table of switches, and what to train for this budget and for four times as much
    assert "\nB_p=2: curves are" in text and "90% interval of C" in text
    for C, how in ((64, "observed"), (256, "extrapolated")):
        assert re.search(rf"^C = {C} rollouts .*{how}.*(\n  .*)*\n  python train_grpo.py .*--C={C}\b", text, re.M), text
    for name in ("frontier.png", "frontier.json", "law.json"):
        assert (out / name).stat().st_size > 100
    for path in out.glob("*.png"):
        assert str(path) in text and path.read_bytes().startswith(b"\x89PNG")
    assert [p for p in out.glob("*.png") if "law" in p.name]
    assert all((out / run / "out.txt").read_text() for run in logs(out))


def test_a_second_start_trains_nothing(swept, tiny, tmp_path):
    out = shutil.copytree(swept[0], tmp_path / "easy")
    before = {name: content for name, content in tree(out).items() if "/" in name}
    done = sweep(tiny, out)
    assert done.returncode == 0 and "0 to do" in done.stdout and "C = 256 rollouts" in done.stdout, done
    assert {name: content for name, content in tree(out).items() if "/" in name} == before


def test_dry_run_prints_commands_that_run(swept, tiny, tmp_path):
    out = tmp_path / "a sweep"
    done = sweep(tiny, out, DRY_RUN="1", NS="2 4 8", SEEDS="0 1", B_MAX="8")
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and len(lines) == 4 and not out.exists(), done  # 2 x 8 is above B_MAX
    words = shlex.split(lines[0])
    assert subprocess.run(lines[0], shell=True, cwd=ROOT, capture_output=True).returncode == 0
    (run, records), = logs(out).items()
    assert records[-1]["status"] == "budget" and records[0]["config"]["n"] == 4 and words[0] == sys.executable
    # a finished run is not among the commands, what is new is: another seed, another n
    for more, count in [(dict(), 1), (dict(NS="2 4 8"), 2), (dict(SEEDS="0 1"), 3), (dict(NS="4", C="128"), 1),
                        (dict(NS="4"), 0)]:
        assert len(sweep(tiny, out, DRY_RUN="1", **more).stdout.splitlines()) == count, more
    # a log that cannot be read is one run's trouble
    path = out / run / "log.jsonl"
    path.write_text("torn\n" + path.read_text())
    assert len(sweep(tiny, out, DRY_RUN="1").stdout.splitlines()) == 2
    # the same runs as the sweep's own
    assert run in logs(swept[0])


def test_a_sweep_is_extended_around_a_run_that_fails(swept, tiny, tmp_path):
    """One more n and a larger budget, while the folder of one cell belongs to another experiment."""
    out = shutil.copytree(swept[0], tmp_path / "easy")
    good, bad = sorted(logs(out))  # n = 2 and n = 4
    path = out / bad / "log.jsonl"
    path.write_text(path.read_text().replace('"lr_base": 1e-06', '"lr_base": 1', 1))
    before = path.read_bytes()
    done = sweep(tiny, out, NS="2 4 8", C="96")
    assert "3 runs, 3 to do" in done.stdout and done.returncode not in (0, 130), done
    # listed at the end with its last line, and named by the analysis
    listed = done.stdout[done.stdout.rindex("1 runs failed"):]
    assert bad in listed and good not in listed and "lr_base=1 there" in listed, listed
    assert re.search(r"missing 1: B_p=2 n=4 seed=0", done.stdout) and path.read_bytes() == before, done
    # the others finished: n = 8 is new, n = 2 went on
    finished = {run: records for run, records in logs(out).items() if run != bad}
    assert len(finished) == 2
    for run, records in finished.items():
        steps = [r for r in records if r["type"] == "step"]
        assert [r["step"] for r in steps] == list(range(1, 96 // records[0]["derived"]["B"] + 1))
        assert records[-1] == dict(type="end", status="budget", rollouts=96)
        if run == good:  # not done again
            assert steps[:16] == [r for r in logs(swept[0])[run] if r["type"] == "step"]


def test_ctrl_c_stops_everything_and_the_same_command_goes_on(swept, tiny, tmp_path):
    out = shutil.copytree(swept[0], tmp_path / "a sweep")
    process = sweep(tiny, out, C="4000", start=True)
    wait_for(lambda: process.poll() is not None or all(len(r) > 50 for r in logs(out).values()))
    os.killpg(process.pid, signal.SIGINT)  # what a terminal does on Ctrl-C
    text = process.communicate(timeout=60)[0]
    assert process.returncode == 130, text
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)  # no process of the group is left
    stopped = logs(out)
    assert {path.name for path in out.glob("Bp*")} == set(stopped)  # and no folder of a name cut at the space
    assert all(r[-1]["status"] == "stopped" and 64 < r[-1]["rollouts"] < 4000 for r in stopped.values()), [(k, r[-1], len(r)) for k, r in stopped.items()]
    # to an end that is near: the budget is no part of a run's name
    C = (max(r[-1]["rollouts"] for r in stopped.values()) // 8 + 4) * 8
    done = sweep(tiny, out, C=str(C))
    assert done.returncode == 0, done
    for run, records in logs(out).items():
        steps = [r for r in records if r["type"] == "step"]
        assert [r["step"] for r in steps] == list(range(1, C // records[0]["derived"]["B"] + 1))
        old = [r for r in stopped[run] if r["type"] == "step"]
        assert steps[:len(old)] == old and records[-1] == dict(type="end", status="budget", rollouts=C)


def test_ctrl_c_reaches_the_runs_where_nobody_reads(swept, tiny, tmp_path):
    """`bash run_sweep.sh easy | tee log`: Ctrl-C ends tee too, and the runs must not go on without anyone."""
    out = shutil.copytree(swept[0], tmp_path / "easy")
    process = sweep(tiny, out, C="4000", start=True)
    wait_for(lambda: process.poll() is not None or all(len(r) > 50 for r in logs(out).values()))
    process.stdout.close()
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(60) == 130
    assert all(r[-1].get("status") == "stopped" for r in logs(out).values())


def test_splits_of_another_model_of_the_same_name(tmp_path, tiny):
    """A trained model's folder is called `model` in every run: the splits of one are not those of another."""
    folder = tmp_path / "data/splits/model"
    folder.mkdir(parents=True)
    (folder / "difficulty.json").write_text(json.dumps(dict(model="runs/a/model")))
    words = ["needs", "easy", f"--data={tmp_path / 'data'}"]
    with pytest.raises(C.BadInput, match="is of runs/a/model"):
        C.main([*words, "--model=runs/b/model"])
    C.main([*words, "--model=runs/a/model/"])
    C.main([*words, "--model=runs/b/model", f"--train_set={tiny.train}"])
    assert parse([f"--data={tmp_path / 'data'}/"])["train_set"] == parse([f"--data={tmp_path / 'data'}"])["train_set"]


@pytest.mark.parametrize("words, env, names", [
    ("medium", {}, ["medium", "easy, hard, mixed"]), ("easy n=4", {}, ["n=4", "--key=value"]), ("easy -n", {}, ["-n"]),
    ("main", dict(PRUNE="1", DATA="data/arithmetic"), ["PRUNE=1", "easy, hard and mixed"]), ("easy", dict(JOBS="0"), ["JOBS=0"]), ("easy", dict(JOBS="two"), ["JOBS=two"]), ("easy --n=x", {}, ["--n=x"]),
    ("easy --lr_bse=1", {}, ["lr_bse", "lr_base"]), ("easy", dict(NS="1 2"), ["n=1"]), ("easy", dict(NS="2,4"), ["ns=2,4"]),
    ("easy", dict(C="10", BPS="8"), ["C=10", "one update"]), ("easy", dict(B_MAX="3", BPS="2"), ["B_max=3"]),
    ("easy --train_set=none.jsonl", {}, ["none.jsonl"]), ("easy", dict(MODEL="./none"), ["./none"]),
])
def test_bad_words_of_a_sweep(tmp_path, words, env, names):
    (tmp_path / "data").mkdir()  # a world without anything
    (tmp_path / "data/problems.jsonl").write_text('{"id": 1, "prompt": "1+1=", "answer": 2}\n')
    before = tree(tmp_path)
    folders = dict(OUT=str(tmp_path / "out"), DATA=str(tmp_path / "data"), MODEL=str(tmp_path / "model"))
    env = {**os.environ, **folders, "PYTHON": sys.executable, "NS": "2 4", "BPS": "8", **env}
    for dry in ("", "1"):
        if dry and any("none" in name for name in names):
            continue  # what a command names need not be there yet
        line = ["bash", str(ROOT / "run_sweep.sh"), *words.split()]
        done = subprocess.run(line, env=env | dict(DRY_RUN=dry), cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and all(name in done.stderr for name in names), done
        assert tree(tmp_path) == before, sorted(tree(tmp_path))


@pytest.mark.parametrize("data", ["data/arithmetic", "data/guru_math"])
def test_studies_are_runs_that_the_trainer_takes(data):
    """Every arm of every study, at the laptop's scale and the paper's, parses; arms that studies share have the same words but for the grid."""
    studies, seen = C.presets(data), {}
    assert len(studies) >= 13 and all(study["about"] for study in studies.values())
    for name in studies:
        for arm in C.arms(name, [f"--data={data}", "--runs=r"]):
            grid = cells(arm)
            assert grid and arm["runs"].startswith("r/") and "{" not in arm["train_set"] + arm["val_set"]
            for cell in grid:
                check_run(cell)
            assert seen.setdefault(arm["runs"], C.experiment(arm)) == C.experiment(arm), (name, arm["runs"])
    assert C.arms("main", [f"--data={data}", "--ns=2 4"])[0]["ns"] == "2 4"
    for name in ("schedule", "baseline"):  # where n is what an arm is about, NS leaves it
        own, given = (C.arms(name, [f"--data={data}", *words])[1]["ns"] for words in ([], ["--ns=2 4"]))
        assert own == given != "2 4"


def test_a_study_runs_from_its_preset(tiny, tmp_path):
    """run_sweep.sh with a study of a data folder: arms in folders of their own, a second call does nothing again, the table is told."""
    out = tmp_path / "atlas"
    arms = {f"rec_easy_{name}": f"--recipe=easy --bps=2 --ns=4 --seeds='0 1' {words}" for name, words in
            dict(both="", filtered="--zero_var_filter=all", none="--kl_coef=0 --entropy_coef=0").items()}
    data = tmp_path / "data"
    data.mkdir()
    shutil.copy(tiny.train, data / "problems.jsonl")
    (data / "presets.json").write_text(json.dumps(dict(recipe=dict(about="the recipe", minutes=1, arms=arms))))
    env = {k: v for k, v in os.environ.items() if k not in ("NS", "BPS", "C", "SEEDS", "DRY_RUN")}
    env |= dict(OUT=str(out), PYTHON=sys.executable, MODEL=str(tiny.model), DATA=str(data), C="64")
    line = ["bash", str(ROOT / "run_sweep.sh"), "recipe", *tiny.words, "--eval_every=8", "--save_every=0"]
    done = subprocess.run(line, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done
    assert sorted(p.name for p in out.iterdir() if p.is_dir() and p.name[0] != ".") == sorted(arms) and len(list(out.glob("rec*/Bp*/log.jsonl"))) == 6
    assert "Figure 3, Easy" in done.stdout and "6 runs, seeds 0, 1" in done.stdout and (out / "recipe_easy.png").exists(), done.stdout
    before = {path: path.read_bytes() for path in out.glob("rec*/Bp*/log.jsonl")}
    again = subprocess.run(line, env=env, capture_output=True, text=True, timeout=300)
    assert again.returncode == 0 and " 0 to do" in again.stdout and {p: p.read_bytes() for p in before} == before, again


def test_the_sweeps_help_is_its_head():
    done = subprocess.run(["bash", str(ROOT / "run_sweep.sh"), "--help"], capture_output=True, text=True)
    names = "NS BPS C B_MAX SEEDS MODEL DATA JOBS OUT PYTHON DRY_RUN".split()
    assert done.returncode == 0
    assert not [name for name in names if not re.search(rf"^  (.*  )?{name} +\S", done.stdout, re.M)], done.stdout
