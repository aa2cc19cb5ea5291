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

# One thread and passive waiting, here and in all scripts that a test starts, because results are
# exactly equal only with the same number of threads
os.environ.update(OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive", TOKENIZERS_PARALLELISM="false")

# a shell's background jobs ignore SIGINT, and so would all children
signal.signal(signal.SIGINT, signal.default_int_handler)

Done = namedtuple("Done", "code stdout stderr")

# Seconds after which a process counts as hung. A busy machine may take ten times as long as usual.
PATIENCE = 900


@pytest.fixture(autouse=True)
def signals():
    """Start each test with Python's handlers, because a run in this process installs others."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


@functools.cache
def warm_python():
    """Return an executable that replaces `python` and has torch loaded, see tests/warm.py.

    Without pidfd (on a Mac) it is python itself.
    """
    if not hasattr(os, "pidfd_open"):
        return sys.executable
    folder = tempfile.mkdtemp(prefix="warm")
    # if HOME is read-only, matplotlib makes a temporary folder, which every fork would remove
    server = subprocess.Popen([sys.executable, warm.__file__, f"{folder}/socket"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                              env=os.environ | dict(MPLCONFIGDIR=folder))
    assert server.stdout.readline() == "ready\n"
    given = f"{folder}/socket", sys.executable, warm.fixed(os.environ)
    client = Path(folder, "client.py")
    client.write_text(f"import sys\nsys.path.append({str(ROOT / 'tests')!r})\n"
                      f"import warm\nwarm.client{given!r}\n")
    # by sh, because a #! line cannot contain a path with a space
    python = executable(Path(folder, "python"),
                        f'exec {shlex.quote(sys.executable)} -IS {client} "$@"\n', "/bin/sh")

    @atexit.register
    def end():
        server.communicate()
        shutil.rmtree(folder)
    return str(python)


def run_script(name, *words, cwd=ROOT, timeout=PATIENCE, env=None, preexec_fn=None):
    """Run a script of the repository from the command line -> Done(code, stdout, stderr).

    The code of a killed script is minus the signal's number. `env` adds to the environment.
    `preexec_fn` runs in the child, which then has to load torch itself.
    """
    script = [str(ROOT / name)] if str(name).endswith(".py") else ["-m", name]  # as core.sweep is
    python = sys.executable if preexec_fn else warm_python()
    done = subprocess.run([python, *script, *map(str, words)], cwd=cwd,
                          capture_output=True, text=True,
                          timeout=timeout, env={**os.environ, **(env or {})}, preexec_fn=preexec_fn)
    return Done(done.returncode, done.stdout, done.stderr)


def tree(folder):
    """Return {path: bytes, or None for a folder} of everything below a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None
            for p in sorted(Path(folder).rglob("*"))}


def wait_for(condition, timeout=PATIENCE):
    """Poll until `condition()` is true; fail after `timeout` seconds."""
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.001)


def refused(done, *words):
    """Assert that a script ended with code 2 and one line that contains these words."""
    assert done.code == 2, done.stdout + done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert all(str(word) in done.stderr for word in words), done.stderr


@pytest.fixture(scope="session")
def script():
    """Return run_script, as a fixture."""
    return run_script


# Workers take the files in this order, the longest first, so that they end at about the same time
# (`--no-loadscope-reorder`)
LONGEST = "train ranks sweep smollm verifier math data vllm node docs".split()


def pytest_collection_modifyitems(items):
    """Put the files of LONGEST first."""
    place = {f"test_{name}": i for i, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.stem, len(place)))


def load_script(path):
    """Return a script as a module, by its path, because names such as prepare.py are not unique."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load_prepare(name):
    """Return data/NAME/prepare.py as a module."""
    return load_script(f"data/{name}/prepare.py")


@pytest.fixture(scope="session")
def prepare():
    """Return data/arithmetic/prepare.py as a module."""
    return load_prepare("arithmetic")


@pytest.fixture(scope="session")
def world():
    """Return the paths .root, .data, .problems, .base and .splits of the embedded world.

    Problems and splits of the base model are made if they are missing.
    """
    data = ROOT / "data/arithmetic"
    w = SimpleNamespace(root=ROOT, data=data, problems=data / "problems.jsonl", base=data / "base",
                        splits=data / "splits/base")
    with filelock.FileLock(data / ".lock"):  # a second process of pytest waits for the first
        for made, name in ((w.problems, "data/arithmetic/prepare.py"),
                           (w.splits / "difficulty.json", "sample.py")):
            if not made.exists():
                done = run_script(name)
                assert done.code == 0, done.stderr
    for name in ("easy", "hard", "very_easy"):
        count = (w.splits / f"{name}_val.jsonl").read_bytes().count(b"\n")
        assert count >= 24, f"{name}_val.jsonl has {count} problems; tests take up to 24 of them"
    return w


@pytest.fixture(scope="session")
def tiny(tmp_path_factory, prepare):
    """Return a folder with a random Llama (2 layers, width 32) and small problem files.

    .model, .train, .val are paths; .words are the command-line words for any script, with lengths
    that fit. Its answers are noise and almost never right. Its initial weights are large, so that
    its distribution is far from uniform.
    """
    import numpy as np
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    folder = tmp_path_factory.mktemp("tiny")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = LlamaForCausalLM(LlamaConfig(
            vocab_size=len(prepare.VOCAB), hidden_size=32, intermediate_size=48,
            num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, max_position_embeddings=64, tie_word_embeddings=True,
            initializer_range=0.25,
            bos_token_id=None, eos_token_id=prepare.EOS, pad_token_id=prepare.PAD))
    model.save_pretrained(folder / "model")
    prepare.make_tokenizer().save_pretrained(folder / "model")
    problems = prepare.make_problems(np.random.default_rng(1), 24)
    for name, part in (("train", problems[:16]), ("val", problems[16:])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(p) + "\n" for p in part))
    t = SimpleNamespace(folder=folder, model=folder / "model", train=folder / "train.jsonl",
                        val=folder / "val.jsonl")
    t.words = [f"--model={t.model}", f"--train_set={t.train}", f"--val_set={t.val}",
               f"--problems={folder / 'train.jsonl'}",
               "--max_prompt_tokens=16", "--max_new_tokens=12", "--verifier=exact"]
    return t


def linked(folder):
    """Link the repository into a folder, because run_sweep.sh writes files next to itself."""
    folder.mkdir(exist_ok=True)
    for path in [*ROOT.glob("*.py"), *ROOT.glob("*.sh"), *ROOT.glob("req*.txt"), ROOT / "data",
                 ROOT / "core"]:
        (folder / path.name).symlink_to(path)
    return folder


def executable(path, text, shell="/usr/bin/env bash"):
    """Write a shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{shell}\n{text}")
    path.chmod(0o755)
    return path


def fake_node(folder, cards, gigabytes, seen=None, driver=""):
    """Return the environment of a machine with `cards` GPUs of so many GB, for planning only.

    Its nvidia-smi lists the GPUs. Its `python` is this one, except for core/probe.py: it answers
    that torch can use `seen` GPUs (default: all), because of `driver`.
    """
    mib = int(gigabytes * 1e9) >> 20
    lines = "".join(f"GPU {i}: NVIDIA Fake {gigabytes}GB (UUID: GPU-{i})\n" for i in range(cards))
    executable(folder / "nvidia-smi", f"""
case "$*" in
    -L) printf '{lines}' ;;
    *memory.total*) for i in $(seq {cards}); do echo {mib}; done ;;
    *) echo "what is $*?" >&2; exit 9 ;;
esac
""")
    answer = dict(gpus=cards if seen is None else seen, why=driver)
    python = executable(folder / "python", f"""
case "$1" in *core/probe.py) echo '{json.dumps(answer)}'; exit ;; esac
exec '{sys.executable}' "$@"
""")
    free = {key: value for key, value in os.environ.items() if key not in """NS BPS C B_MAX SEEDS
            JOBS DATA MODEL OUT DRY_RUN PRUNE LAUNCH GPUS_PER_RUN CUDA_VISIBLE_DEVICES""".split()}
    return free | dict(PATH=f"{folder}:{os.environ['PATH']}", PYTHON=str(python))


def run_sweep(tiny, out, *words, timeout=PATIENCE, start=False, **env):
    """Run run_sweep.sh easy with the tiny model and this environment -> Done, or the process if
    `start`.
    """
    free = {k: v for k, v in os.environ.items()
            if k not in ("NS", "BPS", "C", "B_MAX", "SEEDS", "JOBS", "DATA", "DRY_RUN")}
    env = free | dict(OUT=str(out), PYTHON=warm_python(), PYTHON_EXEC=warm_python(),  # torchrun's
                      MODEL=str(tiny.model), NS="2 4", BPS="2", C="64") | env
    words = [*tiny.words, "--eval_every=16", "--save_every=0", *words]
    line = ["bash", str(ROOT / "run_sweep.sh"), "easy", *words]
    if start:
        return subprocess.Popen(line, env=env, text=True, start_new_session=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return subprocess.run(line, env=env, capture_output=True, text=True, timeout=timeout)


def logs(out):
    """Return {run: records of its log} of a sweep."""
    return {path.parent.name: read_log(path) for path in sorted(Path(out).glob("*/log.jsonl"))}


@pytest.fixture(scope="session")
def swept(tiny, tmp_path_factory):
    """Return a finished sweep of two cells: (folder, stdout). Tests that change it copy it."""
    out = tmp_path_factory.mktemp("sweep") / "easy"
    done = run_sweep(tiny, out)
    assert done.returncode == 0, done
    return out, done.stdout
