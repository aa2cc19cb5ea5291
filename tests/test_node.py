"""Test run_sweep.sh on a node: which run gets which GPU, torchrun, LAUNCH.

Only the ids of GPUs matter, so this runs on a CPU.
"""
import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys

import pytest
import torch
from conftest import (Hold, PATIENCE, ROOT, capture, executable, fake_node, linked, logs, run_sweep,
                      step_is, tree, warm_python)

import config
from core import machine, probe, sweep


named = pytest.mark.parametrize


def note(folder):
    """Return (a launcher that notes its GPUs and words and fails, a function that returns these).
    The function returns sorted [[GPUs, words], ...] since its last call."""
    path = folder / "given"

    def given():
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return sorted(line.split("|", 1) for line in lines)
    return str(executable(folder / "bin/say", f"""
echo "${{CUDA_VISIBLE_DEVICES-unset}}|$*" >> '{path}'; exit 1""")), given


def copied_problems(tiny, folder):
    """Make a data folder with the training problems of the tiny model and return it."""
    folder.mkdir()
    (folder / "problems.jsonl").write_bytes(tiny.train.read_bytes())
    return folder


def test_a_run_has_its_gpu_to_itself(tiny, tmp_path):
    """Make three runs, two at a time, with a launcher that notes its words, start and end."""
    noted = tmp_path / "noted"
    launcher = executable(tmp_path / "a folder/launch", f'''
        echo "start $CUDA_VISIBLE_DEVICES|$1|${{*: -1}}" >> '{noted}'
        "${{@:2}}"; code=$?
        echo "end $CUDA_VISIBLE_DEVICES" >> '{noted}'
        exit $code''')
    done = run_sweep(tiny, tmp_path / "a sweep", "--device=cpu", CUDA_VISIBLE_DEVICES="5,6,7",
                     GPUS_PER_RUN="1", JOBS="2", C="32", NS="2 4 8",
                     LAUNCH=f"'{launcher}' 'two  words'")
    assert done.returncode == 0, done
    assert [r[-1] for r in logs(tmp_path / "a sweep").values()] == [
        dict(type="end", status="budget", rollouts=32)] * 3
    busy, most, outs = set(), 0, set()
    for event, _, what in (line.partition(" ") for line in noted.read_text().splitlines()):
        gpu, *words = what.split("|")
        if event == "start":
            assert gpu in {"5", "6", "7"} - busy and words[0] == "two  words", noted.read_text()
            busy.add(gpu)
            outs.add(words[1])
        else:
            busy.remove(gpu)
        most = max(most, len(busy))
    assert not busy and most == 2
    assert len(outs) == 3 and all(out.startswith("--out=") for out in outs)


@named("env, words, smi, given", [
    (dict(CUDA_VISIBLE_DEVICES="GPU-a,GPU-b, GPU-c,GPU-d,GPU-e", GPUS_PER_RUN="2"), [], 9,
     ["GPU-a,GPU-b", "GPU-c,GPU-d"]),
    ({}, [], 3, ["0", "1"]), (dict(GPUS_PER_RUN="3"), [], 3, ["0,1,2", "0,1,2"]),
    ({}, [], 0, ["unset", "unset"]),  # a machine without GPUs
    (dict(CUDA_VISIBLE_DEVICES="-1"), [], 3, ["-1", "-1"]),
    (dict(GPUS_PER_RUN="0"), [], 3, ["", ""]),
    (dict(CUDA_VISIBLE_DEVICES="7", JOBS="2"), ["--engine=hf"], 0, ["7", "7"])])
def test_the_gpus_of_the_node(tiny, tmp_path, monkeypatch, env, words, smi, given):
    """The two runs get the GPUs of CUDA_VISIBLE_DEVICES or nvidia-smi, note them and fail."""
    lines = "".join(f"echo 'GPU {i}: NVIDIA H100 80GB HBM3 (UUID: GPU-{i})'\necho '  MIG 1g.10gb "
                    f"Device 0: (UUID: MIG-{i})'\n" for i in range(smi))
    executable(tmp_path / "bin/nvidia-smi", lines or "echo 'NVIDIA-SMI has failed'; exit 9\n")
    say, noted = note(tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    done = run_sweep(tiny, tmp_path / "easy", *words, LAUNCH=say, BPS="6", C="48",
                     PATH=f"{tmp_path}/bin:{os.environ['PATH']}", **env)
    failed = re.findall(r"FAILED \(1\)  B_p=6 n=(\d)", done.stdout)
    assert done.returncode and sorted(failed) == ["2", "4"], done
    assert done.stdout.count(" of 48 rollouts") == 2 and "2 runs failed" in done.stdout, done
    assert [gpus for gpus, _ in noted()] == given


def test_two_runs_share_a_gpu(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr(machine, "cores", lambda: 8)
    for jobs, size, gpus, runs in (("3", "", ["4", "5", "4"], "2"), ("1", "", ["4"], "1"),
                                   ("1", "2", ["4,5"], "1")):
        for key, value in dict(CUDA_VISIBLE_DEVICES="4,5", JOBS=jobs, LAUNCH="nice",
                               GPUS_PER_RUN=size).items():
            monkeypatch.setenv(key, value)
        places = sweep.slots(config.parse(["--device=auto"]))
        assert [(p["CUDA_VISIBLE_DEVICES"], p["RUNS_PER_GPU"]) for p in places] == [
            (gpu, runs) for gpu in gpus]
        assert os.environ["OMP_NUM_THREADS"] == "2"  # of the first plan: 8 cores, four processes


def test_two_gpus_a_run_is_torchrun(tiny, tmp_path):
    out = tmp_path / "a sweep"
    launch = "NOTE='two  words' nice"  # LAUNCH may set variables
    # a login node
    done = run_sweep(tiny, out, DRY_RUN="1", GPUS_PER_RUN="2", LAUNCH=launch,
                     CUDA_VISIBLE_DEVICES="", C="32")
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and len(lines) == 2 and set(tree(out)) == {"sweep.json"}, done
    assert "CUDA_VISIBLE" not in done.stdout, done
    start = (f"{launch} {warm_python()} -m torch.distributed.run --standalone "
             "--nproc_per_node=2 --shutdown-timeout=600 -- train_grpo.py --recipe=easy ")
    assert all(line.startswith(start)
               and shlex.split(line)[-1].startswith(f"--out={out}/Bp2_n") for line in lines)
    run = capture(["bash", "-c", f"exec env {lines[0]}"],
                  env=os.environ | dict(PYTHON_EXEC=warm_python()))
    assert run.returncode == 0, run.stderr[-3000:]
    (records,) = logs(out).values()
    assert records[0]["ranks"] == 2
    assert records[-1] == dict(type="end", status="budget", rollouts=32)
    assert not any("torch.distributed" in line for line in run_sweep(tiny, out, DRY_RUN="1",
        GPUS_PER_RUN="1").stdout.splitlines())


def test_ctrl_c_reaches_the_ranks_as_a_request(tiny, tmp_path):
    """If torchrun passed Ctrl-C on to its ranks, the ranks would end without a checkpoint."""
    hold, out = Hold(tmp_path / "hold", step_is(2)), tmp_path / "runs"
    process = run_sweep(tiny, out, "--device=cpu", GPUS_PER_RUN="2", CUDA_VISIBLE_DEVICES="0,1",
                        NS="2", start=True, **hold.env)
    hold.wait(1, process)
    os.killpg(process.pid, signal.SIGINT)
    hold.release()
    text = process.communicate(timeout=PATIENCE)[0]
    assert process.returncode == 130, text
    assert [r[-1]["status"] for r in logs(out).values()] == ["stopped"]


@named("env, names", [(dict(GPUS_PER_RUN="4", BPS="4"), ["sweep.py: GPUS_PER_RUN=4", "3 GPUs"]),
    (dict(GPUS_PER_RUN="1", CUDA_VISIBLE_DEVICES="-1"), ["sweep.py: GPUS_PER_RUN=1", "0 GPUs"]),
    (dict(GPUS_PER_RUN="2", JOBS="2"), ["sweep.py: JOBS=2", "1 runs"]),
    (dict(GPUS_PER_RUN="two"), ["sweep.py: GPUS_PER_RUN=two"]),
    (dict(GPUS_PER_RUN="2", BPS="4 3"), ["--B_p=3", "2 processes of GPUS_PER_RUN", "B_p is 4"])])
def test_refused_before_anything_is_written(tiny, tmp_path, env, names):
    env = dict(CUDA_VISIBLE_DEVICES="5,6,7") | env
    # a dry run plans for another machine, so the GPUs here do not matter
    for dry in ["", "1"][:1 if "GPUs" in names[-1] or "JOBS" in names[0] else 2]:
        done = run_sweep(tiny, tmp_path / "out", DRY_RUN=dry, **env)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done
        assert all(name in done.stderr for name in names), done
        assert not done.stdout and not tree(tmp_path)


@named("cards, env, words, want", [
    (2, {}, [], True), (0, {}, [], False), (2, dict(CUDA_VISIBLE_DEVICES=""), [], False),
    (2, dict(GPUS_PER_RUN="0"), [], False), (2, {}, ["--engine=hf"], False),
    (2, {}, ["--device=cpu"], False), (0, {}, ["--engine=vllm"], True)])  # 0: a login node
def test_vllm_is_installed_on_a_machine_with_gpus(tmp_path, cards, env, words, want):
    """Run `run_sweep.sh env` in a clone, with a python whose pip notes its words."""
    clone, given = linked(tmp_path / "clone"), tmp_path / "given"
    node = fake_node(tmp_path / "bin", cards, 80) | env
    del node["PYTHON"]
    executable(clone / ".venv/bin/python", f"""
if [ "$2 $3" = "pip install" ]; then echo "$*" >> '{given}'; exit; fi
if [ "$2" = pip ]; then exit; fi
exec '{warm_python()}' "$@"
""")

    def install(*words):
        return capture(["bash", "run_sweep.sh", "env", *words], clone, env=node, check=True).stdout
    assert install(*words) and not install(*words)  # the second call has nothing to install
    (pip,) = given.read_text().splitlines()
    assert " -r requirements.txt" in pip and (" -r requirements-vllm.txt" in pip) == want
    # nothing is installed twice if GPUs come or go
    install("--device=cpu")
    install(*words)
    assert len(given.read_text().splitlines()) <= 2


@named("seen, driver, env, words, ends", [
    (0, "The NVIDIA driver on your system is too old (found version 11040).", {}, [], True),
    (7, "", {}, [], True), (8, "", {}, [], False),
    (0, "", dict(GPUS_PER_RUN="0"), [], False), (0, "", {}, ["--device=cpu"], False),
    (2, "", dict(CUDA_VISIBLE_DEVICES="3,5"), [], False)])
def test_torch_must_see_the_gpus(tiny, tmp_path, seen, driver, env, words, ends):
    """If torch sees fewer GPUs, one line is printed. Without it the sweep would use the CPU."""
    node = fake_node(tmp_path / "bin", 8, 80, seen, driver)
    done = capture([warm_python(), "-m", "core.sweep", "prepare", "easy", *tiny.words, "--ns=2 4",
                    "--bps=2", "--C=64", "--eval_every=16", *words], env=node | env)
    if not ends:
        assert done.returncode == 0 and not done.stderr, done
        return
    assert done.returncode == 2 and not done.stdout and done.stderr.count("\n") == 1, done
    message = f"there are 8 GPUs here, and the torch of {node['PYTHON']} can use {seen}"
    assert all(text in done.stderr for text in (message, driver, "GPUS_PER_RUN=0")), done


def test_the_probe_names_the_driver(monkeypatch, capsys):
    """The probe prints torch's error with the driver that CUDA needs, and a kernel's error."""
    def too_old(*_, **__):
        raise RuntimeError("The NVIDIA driver on your system is too old (found version 12040).\n"
                           "More")

    def answer(*words):
        probe.main(words)
        return capsys.readouterr().out.strip()
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch, "ones", too_old)
    got = answer("triton")
    assert got.startswith("0 ") and "found version 12040" in got and "More" not in got
    assert "needs a driver for CUDA 13.0" in got
    monkeypatch.setattr(torch.version, "cuda", None)
    assert "a build for CPUs" in probe.count_gpus()[1]
    monkeypatch.setattr(probe, "count_gpus", lambda: (2, ""))
    monkeypatch.setattr(probe, "compile_kernel", too_old)
    got = answer("triton")
    assert got.startswith("0 Triton fails: The NVIDIA driver") and "Python.h" in got
    assert answer() == "2"  # --engine=hf needs no Triton


def test_the_kernel_of_the_probe(tmp_path):
    """If Triton is installed, its interpreter runs the kernel on a CPU."""
    pytest.importorskip("triton")
    line = "from core import probe; probe.compile_kernel('cpu')"
    done = capture([sys.executable, "-c", line], env=os.environ | dict(TRITON_INTERPRET="1"))
    assert done.returncode == 0, done.stderr


@named("env, given", [({}, ["", ""]), (dict(GPUS_PER_RUN="1"), ["0", "1"])])
def test_the_embedded_model_trains_on_the_cpu(tmp_path, world, env, given):
    """It does so without vLLM and even if there are GPUs, unless GPUS_PER_RUN is set."""
    node, (say, noted) = fake_node(tmp_path / "bin", 2, 80) | env, note(tmp_path)
    # the runs fail, and so does the sweep
    capture(["bash", "run_sweep.sh", "easy"], env=node | dict(
        LAUNCH=say, NS="4 16", SEEDS="0", OUT=str(tmp_path / "o"), JOBS="2"))
    noted = noted()
    assert [gpu for gpu, _ in noted] == given
    assert all(("--device=auto" in words) == bool(env) for _, words in noted)
    files = capture([warm_python(), "-m", "core.sweep", "requirements",
                     *["--device=auto"] * bool(env)], env=node | dict(PYTHON="")).stdout.split()
    assert ("requirements-vllm.txt" in files) == bool(env)


@named("env", [{}, dict(GPUS_PER_RUN="0"), dict(LAUNCH="nice")])
def test_a_model_of_the_hub_without_a_gpu(tiny, tmp_path, monkeypatch, env):
    """DATA=data/mine without MODEL is refused, because a 7B model is too slow on the CPU."""
    for key, value in (dict(CUDA_VISIBLE_DEVICES="") | env).items():
        monkeypatch.setenv(key, value)
    words = [f"--data={copied_problems(tiny, tmp_path / 'mine')}"]
    refusal = contextlib.nullcontext() if env else pytest.raises(
        config.BadInput, match="--model=Qwen/Qwen2.5-7B-Instruct: there is no GPU here")
    with refusal:
        sweep.slots(sweep.sweep_config("easy", words))
    (tmp_path / "run/model").mkdir(parents=True)  # a run's folder can be the model
    for model in (tiny.model, tmp_path / "run"):
        sweep.slots(sweep.sweep_config("easy", [*words, f"--model={model}"]))


def test_D_is_an_upper_bound(tiny, tmp_path, capsys, monkeypatch):
    """If a split has fewer problems than D, the sweep trains on all and says so."""
    monkeypatch.setenv("PYTHON", sys.executable)
    data = copied_problems(tiny, tmp_path / "data")
    arm = "--recipe=easy --D=6000 --ns=2 --bps=2 --C=16 --eval_every=4"
    (data / "presets.json").write_text(json.dumps(dict(easy=arm)))
    words = [f"--data={data}", f"--model={tiny.model}", "--split=all", "--max_prompt_tokens=16",
             "--max_new_tokens=12", f"--runs={tmp_path / 'runs'}"]
    for more, said in (([], "12 of the 12"), (["--D=5"], "5 of the 12")):
        sweep.prepare("easy", [*words, *more])
        assert f"training on {said} problems of {data}" in capsys.readouterr().out


def test_each_gpu_measures_a_share(tiny, tmp_path):
    """If the terminal closes, prepare.py ends the shards. The same command resumes the shards."""
    data, out = copied_problems(tiny, tmp_path / "data"), tmp_path / "runs"
    words = [word for word in tiny.words if not re.match("--(problems|train_set|val_set)=", word)]
    # GPUS_PER_RUN=1, because runs with --device=cpu would not be split over GPUs
    line = [warm_python(), "-m", "core.sweep", "prepare", "hard", f"--data={data}", f"--runs={out}",
            *words, "--s=100", "--s_zero=0", "--device=cpu"]
    node = fake_node(tmp_path / "bin", 2, 80) | dict(GPUS_PER_RUN="1")
    ids = [json.loads(line)["id"] for line in open(tiny.train)]
    # each shard has every second problem, and waits with the count of its third one
    hold = Hold(tmp_path / "hold", f"isinstance(x, dict) and x.get('id') in {ids[4:6]} and "
                "'correct' in x")
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               env=node | hold.env, cwd=ROOT, text=True)
    hold.wait(2, process)
    process.send_signal(signal.SIGHUP)
    text = process.communicate(timeout=PATIENCE)[0]
    assert process.returncode == 130 and re.search("stopping: [12] to end", text), text
    before = tree(data)
    done = capture(line, env=node)
    assert done.returncode == 0 and all(f"shard {i}/2 is measured" in done.stdout for i in (0, 1))
    for name in (f"splits/model/pass_rates.{i}of2.jsonl" for i in (0, 1)):
        after = (data / name).read_bytes()
        assert after.startswith(before[name]) and after.count(b"samples") == 8  # and its header
    assert (data / "splits/model/hard_train.jsonl").exists()


# the problems and the model of these sweeps are on a hub
UNPREPARED = """import sys
from core import sweep
sweep.prepare = lambda *_: None
sys.argv[0] = "sweep.py"
sweep.entry(sweep.main)
"""


@named("cards", [1, 4, 8])
def test_the_commands_of_the_pages_on_a_node(tmp_path, cards):
    """The sweeps in README and docs give each run its GPUs, or say in one line why not. The
    runs fail. Every cell makes 150 updates or more, because in the paper a larger n takes the lead
    after 155 to 264."""
    pages = [ROOT / page for page in ("README.md", "docs/gpu.md", "docs/node.md")]
    text = "".join(page.read_text() for page in pages)
    commands = [found for found in re.findall(
        r"^((?:\w+=(?:\"[^\"]*\"|\S+) )+)bash run_sweep.sh (\w+)(.*)$", text, re.M)
        if "Qwen" in found[0]]
    assert len(commands) >= 2
    node, (say, noted) = fake_node(tmp_path / "bin", cards, 80), note(tmp_path)
    for variables, preset, words in commands:
        env = dict(word.split("=", 1) for word in shlex.split(variables))
        words = shlex.split(words) + [f"--{key}={env[key.upper()]}"
                                      for key in ("model", "data", "ns", "C")]
        grid = sweep.cells(sweep.sweep_config(preset, words))
        assert min(config.derive(c)["M"] for c in grid) >= 150, env
        done = capture([warm_python(), "-c", UNPREPARED, "run", preset, *words,
                        f"--runs={tmp_path}/runs"], env=node | env | dict(LAUNCH=say))
        given, size = noted(), int(env["GPUS_PER_RUN"])
        if size > cards:
            assert done.returncode == 2 and not given and f"there are {cards} GPUs" in done.stderr
            continue
        each = [gpus.split(",") for gpus, _ in given]
        ranks = re.search(r"nproc_per_node=(\d+)", given[0][1])
        assert (int(ranks[1]) if ranks else 1) == size and all(len(g) == size for g in each)
        # runs share no GPU, and as many run at once as there are GPUs for
        assert len(each) == len(env["NS"].split()), done
        assert len({gpu for gpus in each for gpu in gpus}) == cards // size * size, done
