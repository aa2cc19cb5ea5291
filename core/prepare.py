"""core/prepare.py: make a problem file that the runs of a sweep need, with its base model.

Files that exist are not made again, except those of the split `all`. prepare.py of the data
folder, which can be any program, and sample.py, which holds GPUs, run in their own processes.
"""
import os
import re
import shlex
import sys
from pathlib import Path

from config import BadInput, is_inside, read_json
from core import machine
from core.pool import call, pool, python
from core.problems import read_problems

# The names of the split files that sample.py measures for. A level is a range of avg@s_zero
SPLIT = re.compile(r"(easy|hard|very_easy|mixed|(?P<level>extreme|level_(very_)?easy))"
                   r"_(train|val)\.jsonl")


def make(file, cfg, given):
    """Make a problem file. given: command-line words for prepare.py and sample.py."""
    data, model = Path(cfg["data"]), cfg["model"]
    words = [*given, f"--data={data}", f"--model={model}"]  # a --config in `given` may have others
    # 1. a file outside the data folder, such as AIME24's, is made by the prepare.py next to it
    if not file.exists() and not file.is_relative_to(data):
        if not (file.parent / "prepare.py").exists():
            raise BadInput(f"{file}: no such problem file, and no prepare.py next to it")
        call(python(), file.parent / "prepare.py", f"--data={file.parent}")
    # 2. problems and base model. With TASK, prepare.py always runs, because it refuses problems of
    # another task, which the name of a run does not show
    lacks = (not (data / "problems.jsonl").exists() or (file.parent == data and not file.exists())
             or (is_inside(model, data) and not Path(model).is_dir()))
    if (lacks or os.environ.get("TASK")) and (data / "prepare.py").exists():
        print(f"problems and base model: {data}/prepare.py", flush=True)
        call(python(), data / "prepare.py", *words)
    # 3. splits: of all problems, or by difficulty
    own = file.parent == data / "splits" / Path(model).name
    check_splits(own, model, file, cfg)
    split = SPLIT.fullmatch(file.name)
    if own and file.name == "all_train.jsonl":
        call(python(), "sample.py", *words, "--split=all")
    elif split and not file.exists():
        print(f"difficulty of the problems for {model}: sample.py", flush=True)
        measure(["--s_zero=0"] * (not split["level"]) + words, Path(cfg["runs"]))
    if not file.exists():
        why = ("too few problems have this difficulty, see the table above" if split else
               "no such split; `sample.py mix` makes a mixture")
        raise BadInput(f"{file}: {why}; --split=all is every problem")


def check_splits(own, model, file, cfg):
    """Raise BadInput if the split `file` is of other problems or settings, or of another model.
    own: whether it is in the folder for splits of this data folder and model."""
    info = file.parent / "difficulty.json"
    measured = read_json(info) if info.exists() else {}
    other, source = measured.get("model") or model, Path(measured.get("problems", ""))
    if own and Path(other).resolve() != Path(model).resolve():
        raise BadInput(f"--model={model}: {info} was measured for {other}; rename the folder of "
                       "one of these models")
    for key in ("verifier", "s", "n_val", "measure"):
        used = measured.get(key, cfg[key])
        if own and used != cfg[key] and not file.name.startswith("all_"):
            raise BadInput(f"--{key}={cfg[key]}: {info} was made with {used}, so its splits may "
                           f"not fit; remove {file.parent} to measure again, or give "
                           f"--{key}={used}")
    if file.exists() and source.is_file():
        split, now = ({(p["prompt"], p["answer"]) for p in read_problems(path)}
                      for path in (file, source))
        if not split <= now:
            raise BadInput(f"{file}: has problems or answers that {source} has not; remove "
                           f"{file.parent} and the runs on it, or give another --data")


def measure(words, out):
    """Run sample.py; with several GPUs, each first measures a shard, see `out`/difficulty.*.txt."""
    gpus = machine.visible_gpus()  # none if `slots` has found that the runs are on the CPU
    if len(gpus) > 1:
        command = shlex.join([python(), "sample.py", *words])
        jobs = [(f"GPU {gpu}", f"{command} --shard={i}/{len(gpus)}", out / f"difficulty.{i}.txt")
                for i, gpu in enumerate(gpus)]
        if pool(jobs, [dict(CUDA_VISIBLE_DEVICES=gpu) for gpu in gpus], []):
            sys.exit(1)
    call(python(), "sample.py", *words)
