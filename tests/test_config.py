"""Test config.py (layers, types, derived values, names of runs) and core/log.py (logs, writes)."""
import gzip
import importlib
import io
import json
import math
import re
import shlex
import sys

import numpy as np
import pytest
from conftest import ROOT, capture, tree

import config as C
from config import BadInput, check_run, comments, config, derive, identity, parse, run_name
from core.log import append, atomic_write, read_log
from core.machine import cores
from core.sweep import command

# Keys that may change within one experiment: budget, folders, memory, speed, keys of other stages
FREE = set("""C B_max data problems s s_zero split n_val runs out device gen_batch measure
              micro_tokens micro_logits activation_checkpointing gpu_memory threads save_every
              keep_last keep_at pass_at sample_every ns bps seeds lrs view metric unit eval_set
              epochs""".split())


def test_a_new_key_is_part_of_a_runs_identity_at_any_place_of_the_dict(monkeypatch):
    """If it were not, a second experiment would continue the first one's runs."""
    for place in ("device", "ns", "epochs", "C"):
        keys = {}
        for key, value in config.items():
            keys |= {"mine": 0.5} if key == place else {}
            keys[key] = value
        monkeypatch.setattr(C, "config", keys)
        cfg = dict(keys)
        assert "mine" in identity(cfg) and C.run_name(cfg) != C.run_name(dict(cfg, mine=1.0))
        assert C.run_name(cfg) == C.run_name(dict(config))  # a new key renames no old run
    assert C.FREE == FREE <= set(config)


# ---- config.py: layers and types -----------------------------------------------------------------

@pytest.fixture
def world_like(tmp_path):
    """Return a data folder that has only a defaults.json."""
    folder = tmp_path / "world"
    folder.mkdir()
    flat = dict(model=str(folder / "base"), temperature=0.9, n=4, recipe="hard", kl_coef=0.5)
    (folder / "defaults.json").write_text(json.dumps(flat))
    return folder


def test_layers_later_beats_earlier(tmp_path, world_like):
    file = tmp_path / "flat.json"
    # the recipe of a file comes first
    file.write_text(json.dumps(dict(kl_coef=0.7, n=8, recipe="hard")))
    data = f"--data={world_like}"
    for words, want in [
        ([], dict(temperature=0.6, n=16)),  # the dict
        # the data folder
        ([data], dict(temperature=0.9, n=4, model=str(world_like / "base"), recipe="hard")),
        ([data], dict(kl_coef=0.0, entropy_coef=0.0)),  # the recipe overrides the data folder
        ([data, "--recipe=easy"], dict(kl_coef=0.001, entropy_coef=0.001, n=4)),
        ([data, "--n=32"], dict(n=32, temperature=0.9)),  # the command line, from left to right
        ([data, "--n=32", "--n=64"], dict(n=64)),
        (["--kl_coef=0.3", "--recipe=hard"], dict(kl_coef=0.0)),
        (["--recipe=hard", "--kl_coef=0.3"], dict(kl_coef=0.3, entropy_coef=0.0)),
        (["--n=32", f"--config={file}"], dict(n=8, kl_coef=0.7)),
        ([f"--config={file}", "--n=32"], dict(n=32, kl_coef=0.7)),
        ([data, f"--config={file}"], dict(n=8, kl_coef=0.7, temperature=0.9))]:
        cfg = parse(["--model=some/model", *words] if not words else words)
        assert {key: cfg[key] for key in want} == want, words


def test_defaults_json_is_for_models_of_its_folder(world_like, monkeypatch):
    monkeypatch.chdir(world_like.parent)
    for model in (f"{world_like}/base", f"{world_like}/other", "world/base", "./world/base"):
        assert parse([f"--data={world_like}", f"--model={model}"])["temperature"] == 0.9, model
        assert parse(["--data=world", f"--model={model}"])["temperature"] == 0.9, model
    for model in ("Qwen/Qwen2.5-7B-Instruct", "worldly/base", f"{world_like}2/base"):
        assert parse([f"--data={world_like}", f"--model={model}"])["temperature"] == 0.6, model
    # an error in defaults.json names the file
    (world_like / "defaults.json").write_text('{"temprature": 1}')
    line = "defaults.json: temprature=1: no such key, the nearest is temperature"
    with pytest.raises(BadInput, match=line):
        parse([f"--data={world_like}"])


@pytest.mark.parametrize("key, value, want", [
    ("n", "1e2", 100), ("n", "1_000", 1000), ("C", "1e6", 1_000_000), ("C", 2.0, 2),
    ("seed", "-1", -1), ("seed", str(2**62 + 1), 2**62 + 1),  # a float would round this
    ("temperature", "1", 1.0), ("temperature", 1, 1.0), ("lr_base", "5e-4", 0.0005),
    ("kl_coef", "none", 0.0), ("n_train", "None", 0), ("out", "none", ""), ("out", None, ""),
    ("D", None, 0), ("out", "", ""), ("flag", "true", True), ("flag", "False", False),
    ("flag", True, True), ("flag", "none", False)])
def test_types(monkeypatch, key, value, want):
    monkeypatch.setitem(config, "flag", True)
    got = C.cast(key, value)
    assert got == want and type(got) is type(want)


@pytest.mark.parametrize("key, value", [
    ("n", "1.5"), ("n", 1.5), ("n", "many"), ("n", "true"), ("n", True), ("n", ""), ("n", "inf"),
    ("n", "nan"), ("n", [4]), ("temperature", "hot"), ("temperature", "nan"),
    ("temperature", False), ("out", 3), ("flag", "1"), ("flag", "yes"), ("flag", 1)])
def test_wrong_types_are_refused(monkeypatch, key, value):
    monkeypatch.setitem(config, "flag", True)
    with pytest.raises(BadInput) as e:
        C.cast(key, value)
    assert str(e.value).startswith(f"--{key}={value}: expected ") and "\n" not in str(e.value)


@pytest.mark.parametrize("word, near", [
    ("lr_bse", "lr_base"), ("Bp", "B_p"), ("n_trian", "n_train"), ("micro_token", "micro_tokens"),
    ("N", "n"), ("ö", ""), ("kl_coeff", "kl_coef"), ("B_MAX", "B_max"), ("temp", "temperature")])
def test_unknown_keys_name_the_nearest(word, near):
    with pytest.raises(BadInput, match=rf"^--{word}=1: no such key, the nearest is {near}"):
        parse([f"--{word}=1"])


@pytest.mark.parametrize("name", ["config", "sample", "evaluate", "train_grpo", "frontier",
                                  "fit_sigmoid", "core.sweep", "bandit_toy",
                                  "prepare"])
def test_every_script_has_help(capsys, name, prepare):
    module = prepare if name == "prepare" else importlib.import_module(name)
    with pytest.raises(SystemExit) as e:
        module.main(["--help"])
    out = capsys.readouterr().out
    assert not e.value.code and out.startswith(module.__doc__.strip().splitlines()[0])
    assert list(comments()) == list(config) and all(len(c) > 3 for c in comments().values())
    for key, text in comments().items():  # C of fit_sigmoid.py is its own
        own = "0 = the largest of the sweep" if (name, key) == ("fit_sigmoid", "C") else text
        assert f"  --{key}=" in out and own in out


# ---- config.py: what is derived ------------------------------------------------------------------

@pytest.mark.parametrize("words, B, M, lr", [
    ("--B_p=32 --n=64 --C=1e6", 2048, 488, 1e-6 * math.sqrt(2)),
    ("--B_p=32 --n=32 --n_train=32", 1024, 3906, 1e-6),
    ("--B_p=8 --n=4 --C=100 --lr_scaling=linear", 32, 3, 1e-6 / 32),
    ("--B_p=8 --n=4 --C=96 --lr_scaling=constant", 32, 3, 1e-6),
    # lr by the rollouts in the loss
    ("--B_p=128 --n=256 --n_train=64 --C=32768", 32768, 1, 1e-6 * math.sqrt(8))])
def test_derive(words, B, M, lr):
    cfg = parse(["--model=some/model", *words.split()])
    d = derive(cfg)
    assert (d["B"], d["M"]) == (B, M) and d["lr"] == pytest.approx(lr, rel=1e-12)
    assert d["run"] == run_name(cfg)
    assert not set(d) & set(cfg)  # never stored among the inputs


def other(key, value):
    """Return another value of the same type."""
    if isinstance(value, str):
        return next((v for v in C.CHOICES.get(key, ()) if v != value), value + "x")
    return value + 2


@pytest.mark.parametrize("key", config)
def test_run_name_changes_only_with_the_experiment(key):
    cfg = parse(["--kl_coef=0.01", "--algo=ppo", "--verifier=math"])
    changed = dict(cfg, **{key: other(key, cfg[key])})
    assert (run_name(changed) == run_name(cfg)) == (key in FREE)
    assert (identity(changed) == identity(cfg)) == (key in FREE)


def test_run_names_are_frozen():
    # exact was the default when runs got their first names
    for verify_s in (3.0, 9.0):  # exact has no such limit
        cfg = dict(config, verifier="exact", verify_s=verify_s)
        assert run_name(cfg) == "Bp32_n16_seed0_44136fa3"
    assert run_name(config) == "Bp32_n16_seed0_84196e29"
    for key in ("gamma", "lam", "critic_lr", "value_clip"):  # of a critic, which GRPO lacks
        assert run_name(dict(config, **{key: 0.5})) == run_name(config)


def test_names_of_the_shipped_runs():
    """The config of every run in results/easy gives the name of its folder."""
    paths = sorted((ROOT / "results/easy").glob("*/log.jsonl.gz"))
    assert len(paths) >= 10
    for path in paths:
        assert run_name(read_log(path)[0]["config"]) == path.parent.name


@pytest.mark.parametrize("words, runs", [
    ("", "runs/easy"), ("--recipe=hard", "runs/hard"), ("--data=./data/arithmetic/", "runs/easy"),
    ("--lr_base=1 --n=8", "runs/easy"),  # another experiment on the same problems and model
    ("--model=data/arithmetic/narrow", "runs/arithmetic_narrow_easy"),
    ("--data=data/mine --model=Qwen/Qwen3-4B --recipe=hard", "runs/mine_Qwen3-4B_hard"),
    ("--model=Qwen/Qwen3-4B", "runs/arithmetic_Qwen3-4B_easy"),
    ("--data=data/mine --runs=elsewhere", "elsewhere"), ("--data=data/bandit", "runs/bandit")])
def test_two_sweeps_do_not_share_a_folder(monkeypatch, words, runs):
    """The default folder follows from data, model and recipe, for every script."""
    monkeypatch.chdir(ROOT)
    assert parse(words.split())["runs"] == runs


WORDS = [
    "", "--recipe=hard", "--recipe=hard --kl_coef=0.5 --n=64 --seed=3 --C=1e5",
    "--data=WORLD", "--data=WORLD --temperature=0.6 --model=WORLD/base2",
    "--data=WORLD --kl_coef=0.5 --recipe=easy --n=16", "--data=WORLD --model=Qwen/Qwen3-4B --n=4",
    "--data=WORLD --model=Qwen/Qwen2.5-7B-Instruct --temperature=0.9",
    # values of data/arithmetic/defaults.json, for a model to which that file does not apply
    "--model=Qwen/Qwen2.5-7B-Instruct --D=200 --lr_base=5e-4 --max_new_tokens=20",
    "'--train_set=my problems.jsonl' \"--val_set=it's.jsonl\" --micro_tokens=4096 --B_max=0 "
    "--device=cpu"]


@pytest.mark.parametrize("words", WORDS)
def test_the_dict_comes_back_through_json_and_through_a_command(tmp_path, world_like, words):
    cfg = parse(shlex.split(words.replace("WORLD", str(world_like))))
    (tmp_path / "header.json").write_text(json.dumps(cfg))
    assert parse([f"--config={tmp_path / 'header.json'}"]) == cfg
    other = parse([f"--config={tmp_path / 'header.json'}", "--split=all"])
    assert {other["train_set"][-15:], other["runs"][-4:]} == {"all_train.jsonl", "_all"}
    for word, place in (("--model=a/other", "/splits/other/"), ("--data=mine", "mine/splits/")):
        assert place in parse([f"--config={tmp_path / 'header.json'}", word])["train_set"]
    # a key that no longer exists is an error
    (tmp_path / "header.json").write_text(json.dumps(dict(cfg, n_schedule="2 4")))
    with pytest.raises(BadInput, match="--n_schedule=2 4: no such key"):
        parse([f"--config={tmp_path / 'header.json'}"])
    python, script, *line = shlex.split(command(cfg, ("seed", "B_max"), ["my python"]))
    assert (python, script) == ("my python", "train_grpo.py")
    back = parse(line)
    assert identity(back) == identity(cfg) and run_name(back) == run_name(cfg)
    assert all(back[key] == cfg[key] for key in ("C", "B_max", "data", *C.RUNNING))
    assert len(line) == len({word.split("=")[0] for word in line})  # no key twice


@pytest.mark.parametrize("words", [
    "--n=1", "--n=0", "--B_p=0", "--C=-5", "--temperature=0", "--lr_base=0", "--top_p=0",
    "--top_p=1.1", "--n_train=1", "--n_train=17", "--k=5", "--k=9 --samples=8",
    "--samples=0", "--verify_s=1e7", "--metric=pass@4", "--metric=avg@0", "--metric=rewards",
    "--ns=2,4", "--seeds=", "--bps=x", "--ns=0", "--ns=1", "--bps=0", "--lrs=1e-4,2e-4", "--lrs=0",
    "--kl_coef=-1", "--grad_clip=-1", "--recipe=hrad", "--engine=none", "--algo=reinforce"])
def test_impossible_values_name_the_key(words):
    with pytest.raises(BadInput, match=f"^{words.split('=')[0]}=") as e:
        parse(words.split())
    assert "\n" not in str(e.value)


def test_a_run_needs_one_update_within_b_max():
    check_run(parse(["--B_p=8", "--n=4", "--C=32", "--B_max=32", "--top_p=0.9", "--tis_cap=0"]))
    with pytest.raises(BadInput, match="^--top_p=0.9: "):  # with importance weights
        check_run(parse(["--top_p=0.9"]))
    large = parse(["--B_p=64", "--n=2048", "--C=1e6", "--B_max=0"])  # 0 = no limit
    check_run(large)
    check_run(parse(shlex.split(command(large))[2:]))  # a printed command raises the limit
    with pytest.raises(BadInput, match="B_p n = 32 is above B_max=31"):
        check_run(parse(["--B_p=8", "--n=4", "--B_max=31"]))
    with pytest.raises(BadInput, match="nearest B_p is 8"):
        C.check_processes(parse(["--B_p=3"]), 8)
    with pytest.raises(BadInput, match="C=31: below one update of B_p n = 32"):
        check_run(parse(["--B_p=8", "--n=4", "--C=31"]))


# ---- core/log.py and how a script ends -----------------------------------------------------------

@pytest.mark.parametrize("packed", [False, True])
def test_read_log(tmp_path, packed):
    path = tmp_path / ("log.jsonl.gz" if packed else "log.jsonl")

    def write(text):
        path.write_bytes(gzip.compress(text) if packed else text)
        return read_log(path)
    assert write(b'{"a": 1}\n\n{"b": [1.5, null]}\n') == [{"a": 1}, {"b": [1.5, None]}]
    assert write(b'{"a": 1}\n{"b": [1.5, nu') == [{"a": 1}]  # cut off by a kill
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


def test_a_line_cut_by_a_full_disk_is_skipped(tmp_path):
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
        append(file, dict(a=1, bad=float("nan"), worse=[float("inf")], array=np.arange(2),
                          number=np.float32(0.5)))
        before = path.read_bytes()
        assert json.loads(before) == dict(a=1, bad=None, worse=[None], array=[0, 1], number=0.5)
        for room in (0, 1, 7):
            file.room = room
            with pytest.raises(OSError):
                append(file, dict(b="x" * 100))
            assert read_log(path) == [json.loads(before)]


def test_atomic_write_is_all_or_nothing(tmp_path):
    path = tmp_path / "new" / "result.png"
    with atomic_write(path) as part:
        part.write_text("old")
        assert part.suffix == ".png" and not path.exists()
    with pytest.raises(KeyError):
        with atomic_write(path) as part:
            part.write_text("half of the new")
            raise KeyError
    assert tree(tmp_path) == {"new": None, "new/result.png": b"old"}


@pytest.mark.parametrize("error, code, line", [
    (BadInput("--x=1: no"), 2, "s.py: --x=1: no\n"), (OSError(28, "No space", "log.jsonl"), 1,
     "s.py: log.jsonl: No space; fix this, then run the same command again to continue\n"),
    (KeyboardInterrupt(), 130, "s.py: interrupted; run the same command again to continue\n")])
def test_how_a_script_ends(monkeypatch, capsys, error, code, line):
    def main(argv):
        raise error
    monkeypatch.setattr(sys, "argv", ["some/s.py"])
    with pytest.raises(SystemExit) as e:
        C.entry(main)
    assert e.value.code == code and capsys.readouterr().err == line


def test_a_reader_that_ends_early_is_no_error():
    line = f"set -o pipefail; {shlex.quote(sys.executable)} config.py --help | head -n 1"
    done = capture(["bash", "-c", line])
    assert done.returncode == 0 and done.stderr == "" and done.stdout.startswith("config.py: ")


def test_a_comment_that_begins_with_words_and_bars_names_all_values():
    assert C.CHOICES["algo"] == ("grpo", "ppo", "cispo")
    assert C.CHOICES["view"][0] == "fixed_Bp" and C.CHOICES["view"][-1] == "lr"
    assert C.CHOICES["recipe"] == tuple(C.RECIPES)
    assert not {"split", "verifier", "metric"} & set(C.CHOICES)  # users add values of their own
    assert all(config[key] in words for key, words in C.CHOICES.items())


def test_problem_files_follow_from_data_model_and_split():
    words = ["--data=data/mine", "--model=Qwen/Qwen3-4B", "--recipe=hard"]
    for more, name in ([], "hard"), (["--split=very_easy"], "very_easy"):
        cfg = parse([*words, *more])
        assert cfg["train_set"] == f"data/mine/splits/Qwen3-4B/{name}_train.jsonl"
        assert cfg["val_set"] == f"data/mine/splits/Qwen3-4B/{name}_val.jsonl"
        assert cfg["problems"] == "data/mine/problems.jsonl" and cfg["recipe"] == "hard"
        assert cfg["runs"] == "runs/mine_Qwen3-4B_hard" + "_very_easy" * bool(more)
    assert parse(["--train_set=a.jsonl"])["train_set"] == "a.jsonl"
    assert C.files(" a.jsonl, b.jsonl,") == ["a.jsonl", "b.jsonl"]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("quota, most", [("100000", 1), ("50000", 1), ("150000", 1), ("max", 999),
                                         ("-1", 999), ("250000", 2), ("5000000", 999)])
def test_the_cpu_quota_of_a_container_counts(tmp_path, version, quota, most):
    group = tmp_path / ["cpu", ""][version - 1]
    group.mkdir(exist_ok=True)
    if version == 2:
        (group / "cpu.max").write_text(f"{quota} 100000\n")
    else:
        (group / "cpu.cfs_quota_us").write_text(quota.replace("max", "-1") + "\n")
        (group / "cpu.cfs_period_us").write_text("100000\n")
    assert cores(tmp_path) == min(most, cores(tmp_path / "none"))


def test_a_model_brings_its_lr_and_grid_to_other_problems(tmp_path):
    """The paper's scale does not apply, and neither do D and n_val of the model's own problems."""
    home = C.read_json(ROOT / "data/arithmetic/defaults.json")
    cfg = parse(["--model=data/arithmetic/base", f"--data={tmp_path}"])
    assert all(cfg[key] == home[key] for key in ("lr_base", "C", "ns", "bps", "max_new_tokens"))
    plain = parse([f"--data={tmp_path}", "--model=some/model"])
    same = [key for key in ("D", "n_val", "verifier") if cfg[key] == plain[key]]
    assert same == ["D", "n_val", "verifier"] and plain["lr_base"] == config["lr_base"]
    # the data folder's file gives only the verifier
    (tmp_path / "defaults.json").write_text('{"verifier": "exact", "lr_base": 5, "D": 7}')
    again = parse(["--model=data/arithmetic/base", f"--data={tmp_path}"])
    assert (again["verifier"], again["lr_base"], again["D"]) == ("exact", home["lr_base"], 0)
    inside = parse([f"--data={tmp_path}", f"--model={tmp_path}/base"])
    assert (inside["lr_base"], inside["D"]) == (5, 7)
    # the command that a sweep prints gives the same run
    words = command(dict(again, n=4, C=64), ("seed",)).split()[2:]
    assert C.run_name(parse(words)) == C.run_name(dict(again, n=4, C=64))
