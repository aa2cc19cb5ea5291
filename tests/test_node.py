"""run_sweep.sh on a node: who gets which GPU, torchrun, LAUNCH.

Of a GPU only its id is needed, so this runs on a CPU.
"""
import os
import shlex
import signal
import subprocess
import sys

import pytest
from conftest import ROOT, logs, run_sweep, tree, wait_for

from config import read_log


def executable(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text("#!/usr/bin/env bash\n" + text)
    path.chmod(0o755)
    return path


def test_a_run_has_its_gpu_to_itself(tiny, tmp_path):
    """Four runs, two at a time, through a launcher that writes down what it was given, when it
    began and when it ended.
    """
    noted = tmp_path / "noted"
    launcher = executable(tmp_path / "a folder/launch", f'''
        echo "start $CUDA_VISIBLE_DEVICES|$1|${{*: -1}}" >> '{noted}'
        "${{@:2}}"; code=$?
        echo "end $CUDA_VISIBLE_DEVICES" >> '{noted}'
        exit $code''')
    done = run_sweep(tiny, tmp_path / "a sweep", "--device=cpu", CUDA_VISIBLE_DEVICES="5,6,7",
                 GPUS_PER_RUN="1", JOBS="2", C="32",
                 LAUNCH=f"'{launcher}' 'two  words'")
    assert done.returncode == 0, done
    assert len(logs(tmp_path / "a sweep")) == 2
    assert all(r[-1] == dict(type="end", status="budget",
                             rollouts=32) for r in logs(tmp_path / "a sweep").values())
    busy, most, outs = set(), 0, set()
    for event, _, what in (line.partition(" ") for line in noted.read_text().splitlines()):
        gpu, *words = what.split("|")
        assert gpu in {"5", "6", "7"}
        if event == "start":
            assert gpu not in busy and words[0] == "two  words", noted.read_text()
            busy.add(gpu)
            outs.add(words[1])
        else:
            busy.remove(gpu)
        most = max(most, len(busy))
    assert not busy and most == 2
    assert len(outs) == 4 and sum("/.calibration/" in out for out in outs) == 2
    assert all(out.startswith("--out=") for out in outs)


@pytest.mark.parametrize("env, smi, given", [
    (dict(CUDA_VISIBLE_DEVICES="GPU-a,GPU-b, GPU-c,GPU-d,GPU-e", GPUS_PER_RUN="2"), 9,
     ["GPU-a,GPU-b", "GPU-c,GPU-d"]),
    (dict(), 3, ["0", "1"]),
    (dict(GPUS_PER_RUN="3"), 3, ["0,1,2", "0,1,2"]),
    (dict(), 0, ["unset", "unset"]),  # as it is where there are no GPUs
    (dict(CUDA_VISIBLE_DEVICES="-1"), 3, ["-1", "-1"]),
    (dict(GPUS_PER_RUN="0"), 3, ["", ""]),
    (dict(CUDA_VISIBLE_DEVICES="7", JOBS="2"), 0, ["7", "7"]),
])
def test_the_gpus_of_the_node(tiny, tmp_path, monkeypatch, env, smi, given):
    """Which GPUs the two calibration runs get, from the variable or from nvidia-smi.

    They only say so and fail.
    """
    lines = "".join(f"echo 'GPU {i}: NVIDIA H100 80GB HBM3 (UUID: GPU-{i})'\necho '  MIG 1g.10gb "
                    f"Device 0: (UUID: MIG-{i})'\n" for i in range(smi))
    executable(tmp_path / "bin/nvidia-smi", lines or "echo 'NVIDIA-SMI has failed'; exit 9\n")
    say = executable(tmp_path / "bin/say",
                     f'echo "${{CUDA_VISIBLE_DEVICES-unset}}" >> "{tmp_path}/given"; exit 1')
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    done = run_sweep(tiny, tmp_path / "easy", LAUNCH=str(say),
                 PATH=f"{tmp_path}/bin:{os.environ['PATH']}", BPS="6", C="48", **env)
    assert done.returncode == 1 and done.stdout.count("FAILED (1)") == 2, done
    assert sorted((tmp_path / "given").read_text().splitlines()) == given


def test_two_gpus_a_run_is_torchrun(tiny, tmp_path):
    out = tmp_path / "a sweep"
    launch = "env NOTE='two  words'"
    # a login node
    done = run_sweep(tiny, out, DRY_RUN="1", GPUS_PER_RUN="2", LAUNCH=launch,
                     CUDA_VISIBLE_DEVICES="", C="16")
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and len(lines) == 2 and not out.exists(), done
    assert "CUDA_VISIBLE" not in done.stdout, done
    start = (f"{launch} {sys.executable} -m torch.distributed.run --standalone "
             "--nproc_per_node=2 -- train_grpo.py --recipe=easy ")
    assert all(line.startswith(start)
               and shlex.split(line)[-1].startswith(f"--out={out}/Bp2_n") for line in lines)
    run = subprocess.run(["bash", "-c", lines[0]], cwd=ROOT, capture_output=True, text=True,
                         timeout=120)
    assert run.returncode == 0, run.stderr[-3000:]
    (records,) = logs(out).values()
    assert records[0]["ranks"] == 2
    assert records[-1] == dict(type="end", status="budget", rollouts=16)
    assert not any("torch.distributed" in line for line in run_sweep(tiny, out, DRY_RUN="1",
        GPUS_PER_RUN="1").stdout.splitlines())


def test_ctrl_c_reaches_the_ranks_as_a_request(tiny, tmp_path):
    """torchrun would pass Ctrl-C on to its processes, which would leave without a checkpoint."""
    process = run_sweep(tiny, tmp_path, "--eval_every=1", "--samples=64", GPUS_PER_RUN="2",
                    CUDA_VISIBLE_DEVICES="0,1", NS="2", start=True)
    found = lambda: [p for p in tmp_path.glob(".calibration/*/log.jsonl")
                     if b'"step", "step"' in p.read_bytes()]
    wait_for(lambda: process.poll() is not None or found())
    os.killpg(process.pid, signal.SIGINT)
    text = process.communicate(timeout=60)[0]
    assert process.returncode == 130, text
    assert read_log(found()[0])[-1]["status"] == "stopped", (found()[0].parent
                                                             / "out.txt").read_text()


@pytest.mark.parametrize("env, names", [
    (dict(GPUS_PER_RUN="4"), ["sweep.py: GPUS_PER_RUN=4", "3 GPUs"]),
    (dict(GPUS_PER_RUN="1", CUDA_VISIBLE_DEVICES="-1"), ["sweep.py: GPUS_PER_RUN=1", "0 GPUs"]),
    (dict(GPUS_PER_RUN="2", JOBS="2"), ["sweep.py: JOBS=2", "1 runs"]),
    (dict(GPUS_PER_RUN="two"), ["sweep.py: GPUS_PER_RUN=two"]),
    (dict(LAUNCH="srun 'two words"), ["sweep.py: LAUNCH=", "two words"]),
    (dict(LAUNCH="cd /tmp && nice"), ["sweep.py: LAUNCH=", "&&"]),
    (dict(LAUNCH="srun\n-N1"), ["sweep.py: LAUNCH="]),
    (dict(GPUS_PER_RUN="2", BPS="4 3"), ["--bps=4 3", "GPUS_PER_RUN=2", "B_p=3"]),
])
def test_refused_before_anything_is_written(tiny, tmp_path, env, names):
    env = dict(CUDA_VISIBLE_DEVICES="5,6,7") | env
    # a dry run is for another machine
    for dry in ["", "1"][:1 if names[-1] in ("3 GPUs", "0 GPUs", "3 runs", "1 runs") else 2]:
        done = run_sweep(tiny, tmp_path / "out", DRY_RUN=dry, **env)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done
        assert all(name in done.stderr for name in names), done
        assert not done.stdout and not tree(tmp_path)
