"""core/prepare.py: make the problems, base model and splits that the runs of a sweep need.

    python -m core.prepare easy --data=data/mine    # problems, base model, difficulty, splits

Files that exist are not made again. run_sweep.sh calls this script with the command-line words of
the sweep. This script calls prepare.py of the data folder and sample.py, each in its own process,
because prepare.py can be any program, and because sample.py frees its GPUs when its process ends.
"""
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from config import BadInput, RECIPES, entry, files, is_inside, parse, read_json
from core.problems import read_problems, subset
from core.pool import handle_signals, pool
from core.sweep import (arms, check_environment, preset_of, python, recipe_words, say_price, slots,
                        sweep_folder, unfinished)

# The names of split files. A band is a range of avg@s. A level (extreme or level_...) is a range of
# avg@s_zero. A mixture (mix_...) has problems of several levels
SPLIT = re.compile(r"((?P<band>easy|hard|very_easy|mixed)|extreme|level_easy|level_very_easy"
                   r"|mix_.*_D(?P<D>\d+)_seed(?P<seed>\d+))_(train|val)\.jsonl")


def prepare(preset, argv):
    """Make the files that the runs of a preset need, in five steps for each problem file."""
    sweeps = arms(preset, argv)
    if not Path(sweeps[0]["data"]).is_dir():
        raise BadInput(f"--data={sweeps[0]['data']}: no such folder; docs/problems.md says how to "
                       "make one of your own problems")
    unfinished(sweeps)  # raises BadInput on a bad key or value before this script writes anything
    places, out = slots(sweeps), Path(sweep_folder(preset, argv))
    say_price(preset, argv, sweeps)
    # the words for prepare.py and sample.py; --seed is left out, because it is the seed of the runs
    given = [w for w in [*recipe_words(preset, sweeps[0]["data"], argv), *argv]
             if not w.startswith(("--seed=", "--data=", "--model=", "--runs="))]
    for data, model, s_zero, verifier, file in dict.fromkeys(
            (Path(c["data"]), c["model"], c["s_zero"], c["verifier"], Path(file)) for c in sweeps
            for file in (c["train_set"], *files(c["val_set"]))):
        words, splits = [f"--data={data}", f"--model={model}", *given], data / "splits"
        # 1. a file outside the data folder, such as AIME24's, is made by the prepare.py next to it
        if not file.exists() and not file.is_relative_to(data):
            if not (file.parent / "prepare.py").exists():
                raise BadInput(f"{file}: no such problem file, and no prepare.py next to it")
            call(file.parent / "prepare.py", f"--data={file.parent}")
        # 2. problems and base model. If --task is given, prepare.py runs even if all files exist,
        # because it raises an error if the problems in the folder are of another task. The
        # check is needed, because the name of a run does not depend on the task
        has_task = any(w.startswith(("--task=", "--task_args=")) for w in given)
        if (has_task or lacks(data, model, file)) and (data / "prepare.py").exists():
            print(f"problems and base model: {data}/prepare.py", flush=True)
            call(data / "prepare.py", *words)
        # 3. the split with all problems, for which no difficulty is measured
        if file == splits / Path(model).name / "all_train.jsonl":
            call("sample.py", *words)
        # 4. difficulty, and the splits by difficulty. For a study, the levels are measured before
        # the first run, because no run may train on the validation problems of a level
        kind, has_levels = SPLIT.fullmatch(file.name), check_splits(data, model, file, verifier)
        wants_levels = (preset not in RECIPES and s_zero and not has_levels
                        and file.is_relative_to(splits))
        missing = not file.exists() and not (kind and kind["D"] and has_levels)
        if kind and (wants_levels or missing):
            print(f"difficulty of the problems for {model}: sample.py", flush=True)
            if not missing:
                print(f"{file.parent} is written again, because the levels hold out more problems; "
                      "sweeps on the earlier splits cannot be resumed", flush=True)
            few = ["--s_zero=0"] * (bool(kind["band"]) and not wants_levels)
            measure([*few, *words], out, places)
        # 5. mixtures of the splits
        if kind and kind["D"] and not file.exists():
            call("sample.py", "mix", f"--data={data}",
                 f"--model={model}", f"--D={kind['D']}", f"--seed={kind['seed']}")
        if not file.exists() and kind:
            raise BadInput(f"{file}: no problem of {data} has this difficulty for {model}; choose "
                           "another of the splits above with --split=NAME, or every problem with "
                           "--split=all")
        if not file.exists():
            raise BadInput(f"{file}: no such file; sample.py makes splits by difficulty, and "
                           "`sample.py mix` makes mixtures (mix_tri_D140_seed0_train.jsonl)")
    # `arms` is called again because it can read the size of the splits, now that they exist
    for before, cfg in zip(sweeps, arms(preset, argv)):
        problems = read_problems(cfg["train_set"])
        if before["D"] and not cfg["D"]:
            print(f"{cfg['train_set']}: the sweep trains on all {len(problems)} problems; D = "
                  f"{before['D']} in presets.json is for another model", flush=True)
        used = subset(problems, cfg["D"], cfg["seed"])  # raises BadInput if D is too large
        if len(used) < len(problems):
            print(f"training on {len(used)} of the {len(problems)} problems of {cfg['train_set']} "
                  f"(--D={cfg['D']}; 0 = all)", flush=True)


def call(*words):
    """Run a script in its own process. If it fails, exit with its code."""
    code = subprocess.run([python(), *map(str, words)]).returncode
    if code:
        sys.exit(code if code > 0 else 128 - code)


def lacks(data, model, file):
    """Return whether the data folder `data` lacks its problems, the base model or the file `file`.

    A model outside of the data folder is not checked, because prepare.py does not make it.
    """
    return (not (data / "problems.jsonl").exists()
            or (is_inside(model, data) and not Path(model).is_dir())
            or (file.parent == data and not file.exists()))


def check_splits(data, model, file, verifier):
    """Return whether the folder of the split `file` has levels (splits by avg@s_zero).

    Raise BadInput if the split has a problem that its problem file no longer has, or if the splits
    were measured with another verifier, or for another model whose folder has the same name.
    """
    info = file.parent / "difficulty.json"
    measured = read_json(info) if info.exists() else {}
    other, source = measured.get("model") or model, Path(measured.get("problems", ""))
    own = file.parent == data / "splits" / Path(model).name
    if own and Path(other).resolve() != Path(model).resolve():
        raise BadInput(f"--model={model}: {info} was measured for {other}; rename the folder of "
                       "one of these models")
    used = measured.get("verifier", verifier)
    if own and used != verifier and SPLIT.fullmatch(file.name):
        raise BadInput(f"--verifier={verifier}: {info} was measured with {used}, so its splits "
                       f"may not fit; remove {file.parent} to measure again, or give "
                       f"--verifier={used}")
    if file.exists() and source.is_file():
        split, now = ({p["prompt"] for p in read_problems(path)} for path in (file, source))
        if not split <= now:
            raise BadInput(f"{file}: has problems that are not in {source}; remove {file.parent} "
                           "and the runs on it, or give another --data")
    return bool(measured.get("s_zero"))


def measure(words, out, places):
    """Run sample.py to measure difficulty and write the splits.

    If `places` have several GPUs, each GPU first measures a shard of the problems. The process of
    shard i writes what it prints to the file difficulty.i.txt in the folder `out`.
    """
    gpus = list(dict.fromkeys(gpu for place in places for gpu in
                              place.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu))
    if len(gpus) > 1:
        command = shlex.join([python(), "sample.py", *words])
        jobs = [(f"GPU {gpu}", f"{command} --shard={i}/{len(gpus)}", out / f"difficulty.{i}.txt")
                for i, gpu in enumerate(gpus)]
        if pool(jobs, [dict(CUDA_VISIBLE_DEVICES=gpu) for gpu in gpus], []):
            sys.exit(1)
    call("sample.py", *words)


def main(argv):
    # SIGTERM and SIGHUP raise KeyboardInterrupt, on which `pool` ends the shards. The shards do not
    # get the signals directly, because each has its own session
    handle_signals((signal.SIGTERM, signal.SIGHUP), signal.default_int_handler)
    if {"-h", "--help"} & set(argv):
        parse(["--help"], __doc__)
    check_environment()
    prepare(*preset_of(argv))


if __name__ == "__main__":
    entry(main)
