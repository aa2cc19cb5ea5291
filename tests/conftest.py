"""Shared by the tests: the embedded world, a tiny random model, functions that run scripts."""
import atexit
import functools
import importlib.util
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace

import filelock
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import warm  # noqa: E402
from core.log import read_log  # noqa: E402

# Results are exactly equal only with the same number of threads
os.environ.update(OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive", TOKENIZERS_PARALLELISM="false")
# The user's settings must not change the sweeps that tests start
for name in "NS BPS C B_MAX SEEDS LRS TASK OUT DATA MODEL LAUNCH JOBS DRY_RUN GPUS_PER_RUN".split():
    os.environ.pop(name, None)

# A shell's background job ignores SIGINT, nohup SIGHUP, and children inherit that
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

Done = namedtuple("Done", "code stdout stderr")
PATIENCE = 900  # seconds until a process counts as hung; a busy machine can be ten times slower


@pytest.fixture(autouse=True)
def signals():
    """Reset the signal handlers before each test, because a run in this process replaces them."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@functools.cache
def warm_python():
    """Return an executable that replaces python and has torch loaded already (tests/warm.py)."""
    if not hasattr(os, "pidfd_open"):  # a Mac
        return sys.executable
    folder = tempfile.mkdtemp(prefix="warm")
    # If HOME is read-only, matplotlib would make a temporary folder, and every fork would remove it
    server = subprocess.Popen([sys.executable, warm.__file__, f"{folder}/socket"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                              env=os.environ | dict(MPLCONFIGDIR=folder))
    assert server.stdout.readline() == "ready\n"
    given = f"{folder}/socket", sys.executable, warm.fixed(os.environ)
    code = f"import sys; sys.path.append({str(ROOT / 'tests')!r}); import warm\n"
    code += f"warm.client{given!r}"
    line = shlex.join(["exec", sys.executable, "-IS", "-c", code]) + ' "$@"\n'
    python = executable(Path(folder, "python"), line, "/bin/sh")

    @atexit.register
    def end():
        server.communicate()
        shutil.rmtree(folder)
    return str(python)


def run_script(name, *words, cwd=ROOT, env=None, check=False):
    """Run a script of the repository, or a module such as core.sweep; return Done. code is minus
    the signal's number if a signal ended the script. env is added to the environment. check: assert
    that the script succeeds."""
    script = [str(ROOT / name)] if str(name).endswith(".py") else ["-m", name]
    done = capture([warm_python(), *script, *map(str, words)], cwd, env=os.environ | (env or {}))
    assert done.returncode == 0 or not check, done.stderr
    return Done(done.returncode, done.stdout, done.stderr)


def capture(line, cwd=ROOT, **how):
    """Run a command, given as a list of words, and return its CompletedProcess with its output."""
    return subprocess.run(line, cwd=cwd, text=True, capture_output=True, timeout=PATIENCE, **how)


def tree(folder):
    """Return {path: content, or None for a folder} of everything in a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None
            for p in sorted(Path(folder).rglob("*"))}


def write_jsonl(path, rows):
    """Write one line of JSON per row, in a folder that may be new, and return the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def wait_for(condition, timeout=PATIENCE):
    """Poll until `condition()` is true; fail after `timeout` seconds."""
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.001)


HELD = """
import importlib, os, time
module, name = {function!r}.rsplit(".", 1)
module = importlib.import_module(module)
real, folder = getattr(module, name), {folder!r}
def held(x, *more, **how):
    if not os.path.exists(folder + "/go") and ({when}):
        open(folder + "/" + str(os.getpid()), "w").close()
        while not os.path.exists(folder + "/go"):
            time.sleep(0.005)
    return real(x, *more, **how)
setattr(module, name, held)
"""


class Hold:
    """Each warm python with the variables `env` waits in `function` until `release` is called, from
    the first call on whose argument x fulfils `when`, an expression."""

    def __init__(self, folder, when, function="json.dumps"):
        folder.mkdir()
        self.folder, self.env = folder, dict(HOLD=str(folder / "hold.py"))
        Path(self.env["HOLD"]).write_text(
            HELD.format(folder=str(folder), when=when, function=function))

    def pids(self):
        """Return the ids of the processes that wait."""
        return [int(path.name) for path in self.folder.glob("[0-9]*")]

    def wait(self, count, *processes):
        """Return once `count` processes wait. Fail if one of `processes` ends before."""
        wait_for(lambda: len(self.pids()) >= count or any(p.poll() is not None for p in processes))
        assert len(self.pids()) == count, [p.communicate() for p in processes]

    def release(self):
        (self.folder / "go").touch()


def step_is(k):
    """Return the expression for `Hold` that is true when a run logs its update k or a later one."""
    return f"isinstance(x, dict) and x.get('type') == 'step' and x['step'] >= {k}"


def refused(done, *words):
    """Assert that a script ended with code 2 and one line on stderr that has all `words`."""
    assert done.code == 2, done.stdout + done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert all(str(word) in done.stderr for word in words), done.stderr


# The slowest files start first, so that the workers of tests/run.sh end at about the same time
LONGEST = "train ranks sweep smollm verifier math data vllm node docs".split()


def pytest_collection_modifyitems(items):
    place = {f"test_{name}": i for i, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.stem, len(place)))


def load_script(path):
    """Return a script as a module, loaded by its path, because many are named prepare.py."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load_prepare(name):
    return load_script(f"data/{name}/prepare.py")


@pytest.fixture(scope="session")
def script():
    return run_script


@pytest.fixture(scope="session")
def prepare():
    return load_prepare("arithmetic")


@pytest.fixture(scope="session")
def world():
    """Return paths of the embedded world, making its problems and splits if they are missing."""
    data = ROOT / "data/arithmetic"
    w = SimpleNamespace(root=ROOT, data=data, problems=data / "problems.jsonl", base=data / "base",
                        splits=data / "splits/base")
    with filelock.FileLock(data / ".lock"):  # because several workers of pytest may come here
        for made, name in ((w.problems, "data/arithmetic/prepare.py"),
                           (w.splits / "difficulty.json", "sample.py")):
            if not made.exists():
                run_script(name, check=True)
    return w


@pytest.fixture(scope="session")
def tiny(tmp_path_factory, prepare):
    """Return a random Llama and 24 problems: paths, and .words, arguments for any script. Its
    answers are almost never right. Its weights are large, so that no distribution over tokens is
    near uniform."""
    import numpy as np
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    folder = tmp_path_factory.mktemp("tiny")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = LlamaForCausalLM(LlamaConfig(
            vocab_size=len(prepare.VOCAB), hidden_size=32, intermediate_size=48,
            num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
            max_position_embeddings=64, tie_word_embeddings=True, initializer_range=0.25,
            bos_token_id=None, eos_token_id=prepare.EOS, pad_token_id=prepare.PAD))
    model.save_pretrained(folder / "model")
    prepare.make_tokenizer().save_pretrained(folder / "model")
    problems = prepare.make_problems(np.random.default_rng(1), 24)
    for name, part in (("train", problems[:16]), ("val", problems[16:])):
        write_jsonl(folder / f"{name}.jsonl", part)
    t = SimpleNamespace(folder=folder, model=folder / "model", train=folder / "train.jsonl",
                        val=folder / "val.jsonl")
    t.words = [f"--model={t.model}", f"--train_set={t.train}", f"--val_set={t.val}",
               f"--problems={t.train}", "--max_prompt_tokens=16", "--max_new_tokens=12",
               "--verifier=exact"]
    return t


def linked(folder):
    """Return `folder` with links to the repository, because run_sweep.sh writes next to itself."""
    folder.mkdir(exist_ok=True)
    for path in ROOT.iterdir():
        if path.name not in (".git", ".venv", "runs"):
            (folder / path.name).symlink_to(path)
    return folder


def executable(path, text, shell="/usr/bin/env bash"):
    """Write the executable script `path` with the lines `text` and return the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{shell}\n{text}")
    path.chmod(0o755)
    return path


def fake_node(folder, cards, gigabytes, seen=None, driver=""):
    """Return an environment in which a sweep can be planned for `cards` GPUs of `gigabytes` GB. In
    it nvidia-smi lists the GPUs, and core/probe.py reports that torch can use `seen` of them
    (default: all), with the reason `driver`."""
    mib = int(gigabytes * 1e9) >> 20
    lines = "".join(f"GPU {i}: NVIDIA Fake {gigabytes}GB (UUID: GPU-{i})\n" for i in range(cards))
    executable(folder / "nvidia-smi", f"""case "$*" in -L) printf '{lines}' ;;
*memory.total*) yes {mib} | head -n {cards} ;; *) exit 9 ;; esac""")
    answer = f"{cards if seen is None else seen} {driver}"
    python = executable(folder / "python", f"""case "$1" in
*core/probe.py) echo '{answer}' ;; *) exec '{warm_python()}' "$@" ;; esac""")
    env = os.environ | dict(PATH=f"{folder}:{os.environ['PATH']}", PYTHON=str(python))
    env.pop("CUDA_VISIBLE_DEVICES", None)
    return env


def run_sweep(tiny, out, *words, start=False, **env):
    """Run `run_sweep.sh easy` with the tiny model; return the result. start: return the process."""
    python = warm_python()
    env = os.environ | dict(OUT=str(out), PYTHON=python, PYTHON_EXEC=python,  # torchrun's variable
                            MODEL=str(tiny.model), NS="2 4", BPS="2", C="64") | env
    words = [*tiny.words, "--eval_every=16", "--save_every=0", *words]
    line = ["bash", str(ROOT / "run_sweep.sh"), "easy", *words]
    if start:
        return subprocess.Popen(line, env=env, text=True, start_new_session=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return capture(line, env=env)


def logs(out):
    """Return {run: the records of its log} of the sweep in `out`."""
    return {path.parent.name: read_log(path) for path in sorted(Path(out).glob("*/log.jsonl"))}


@pytest.fixture(scope="session")
def swept(tiny, tmp_path_factory):
    """Return a finished sweep of two cells: (folder, stdout). A test that changes it copies it."""
    out = tmp_path_factory.mktemp("sweep") / "easy"
    done = run_sweep(tiny, out)
    assert done.returncode == 0, done
    return out, done.stdout
