"""core/prepare.py: what the runs of a sweep need before they start, made where it is not there.

    python -m core.prepare easy --data=data/mine    # problems, base model, difficulty, splits

run_sweep.sh calls it with the words of the sweep. Every script that makes something is a process of
its own: prepare.py of a data folder is anybody's, and sample.py gives its GPUs back as it ends.
Needs config.py, core/problems.py and core/sweep.py, the sweep whose runs they are.
"""
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from config import BadInput, RECIPES, entry, files, parse, read_json
from core.problems import read_problems, subset
from core.sweep import (arms, check_environment, check_gpus, handle_signals, pool, preset_of,
                        python, recipe_words, say_price, slots, sweep_folder, unfinished)

# names of splits: by avg@s, by s_zero rollouts, mixtures
SPLIT = re.compile(r"((?P<band>easy|hard|very_easy|mixed)|extreme|level_easy|level_very_easy"
                   r"|mix_.*_D(?P<D>\d+)_seed(?P<seed>\d+))_(train|val)\.jsonl")


def prepare(preset, argv):
    """Make what the runs of a preset need and is not there, in five steps for each problem file."""
    sweeps = arms(preset, argv)
    if not Path(sweeps[0]["data"]).is_dir():
        raise BadInput(f"--data={sweeps[0]['data']}: no such folder; docs/problems.md says how to "
                       "make one of your own problems")
    unfinished(sweeps)  # ends here on a bad key or value, with nothing written
    places, out = slots(sweeps), Path(sweep_folder(preset, argv))
    check_gpus(sweeps)
    say_price(preset, argv, sweeps)
    # words for prepare.py and sample.py; the seed is that of the runs
    given = [w for w in [*recipe_words(preset, sweeps[0]["data"]), *argv]
             if not w.startswith(("--seed=", "--data=", "--model=", "--runs="))]
    for data, model, s_zero, verifier, file in dict.fromkeys(
            (Path(c["data"]), c["model"], c["s_zero"], c["verifier"], Path(file)) for c in sweeps
            for file in (c["train_set"], *files(c["val_set"]))):
        words, splits = [f"--data={data}", f"--model={model}", *given], data / "splits"
        # 1. a file of another folder, such as AIME24, by the prepare.py beside it
        if not file.exists() and not file.is_relative_to(data):
            if not (file.parent / "prepare.py").exists():
                raise BadInput(f"{file}: no such problem file")
            call(file.parent / "prepare.py", f"--data={file.parent}")
        # 2. problems and base model; a task is no part of a run's name, so prepare.py compares it
        asked = any(w.startswith(("--task=", "--task_args=")) for w in given)
        if (asked or lacks(data, model, file)) and (data / "prepare.py").exists():
            print(f"problems and base model: {data}/prepare.py", flush=True)
            call(data / "prepare.py", *words)
        # 3. every problem, which needs no difficulty
        if file == splits / Path(model).name / "all_train.jsonl":
            call("sample.py", *words)
        # 4. difficulty, and the splits by it. A study measures the levels of its mixtures first of
        # all: what they hold out to validate on is trained on by none
        kind, has_levels = SPLIT.fullmatch(file.name), check_splits(data, model, file, verifier)
        wants_levels = (preset not in RECIPES and s_zero and not has_levels
                        and file.is_relative_to(splits))
        missing = not file.exists() and not (kind and kind["D"] and has_levels)
        if kind and (wants_levels or missing):
            print(f"difficulty of the problems for {model}: sample.py", flush=True)
            if not missing:
                print(f"the levels hold out more problems: {file.parent} is written anew, and "
                      "sweeps on the splits of before cannot go on", flush=True)
            few = ["--s_zero=0"] * (bool(kind["band"]) and not wants_levels)
            measure([*few, *words], out, places)
        # 5. mixtures of the splits
        if kind and kind["D"] and not file.exists():
            call("sample.py", "mix", f"--data={data}",
                 f"--model={model}", f"--D={kind['D']}", f"--seed={kind['seed']}")
        if not file.exists() and kind:
            raise BadInput(f"{file}: no problem of {data} is of that difficulty for {model}; "
                           "--split=NAME takes another split of those above, --split=all every "
                           "problem")
        if not file.exists():
            raise BadInput(f"{file}: no such file; sample.py makes splits by difficulty, "
                           "sample.py mix makes mixtures, mix_NAME_D140_seed0_train.jsonl")
    for before, cfg in zip(sweeps, arms(preset, argv)):  # now that the splits are there
        every = read_problems(cfg["train_set"])
        if before["D"] and not cfg["D"]:
            print(f"{cfg['train_set']}: the sweep trains on all {len(every)} problems; the D = "
                  f"{before['D']} of presets.json was meant for another model", flush=True)
        used = subset(every, cfg["D"], cfg["seed"])  # ends on too large a D of the command line
        if len(used) < len(every):
            print(f"training on {len(used)} of the {len(every)} problems of {cfg['train_set']} "
                  f"(--D={cfg['D']}; 0 = all)", flush=True)


def call(*words):
    """Run a script by PYTHON; a failure ends this process with its exit code."""
    code = subprocess.run([python(), *map(str, words)]).returncode
    if code:
        sys.exit(code if code > 0 else 128 - code)


def lacks(data, model, file):
    """Whether problems, the base model or the problem file `file` of a data folder are missing.

    A folder with a model of its own says by its prepare.py whether another will do.
    """
    defaults = data / "defaults.json"
    own = read_json(defaults).get("model", "") if defaults.exists() else ""
    inside = any(Path(m).resolve().is_relative_to(data.resolve()) for m in (own, model) if m)
    return (not (data / "problems.jsonl").exists() or (inside and not Path(model).is_dir())
            or (file.parent == data and not file.exists()))


def check_splits(data, model, file, verifier):
    """Return whether the levels by s_zero rollouts are measured in the folder of `file`.

    Raises BadInput if it holds problems of an earlier problem file, if another verifier measured
    it, or if the splits are another model's: they are found by the name of the model's folder.
    """
    info = file.parent / "difficulty.json"
    measured = read_json(info) if info.exists() else {}
    other, of = measured.get("model") or model, Path(measured.get("problems", ""))
    own = file.parent == data / "splits" / Path(model).name
    if own and Path(other).resolve() != Path(model).resolve():
        raise BadInput(f"--model={model}: {info} is of {other}; give the folder of one of them "
                       "another name")
    by = measured.get("verifier", verifier)
    if own and by != verifier and SPLIT.fullmatch(file.name):
        raise BadInput(f"--verifier={verifier}: {info} was measured with {by}, and its splits may "
                       f"not fit; remove {file.parent} to measure again, or give --verifier={by}")
    if file.exists() and of.is_file():
        there, now = ({p["prompt"] for p in read_problems(path)} for path in (file, of))
        if not there <= now:
            raise BadInput(f"{file}: has problems that {of} has not; remove {file.parent} and "
                           "runs on it, or give another --data")
    return bool(measured.get("s_zero"))


def measure(words, out, places):
    """Difficulty and splits by sample.py; of several GPUs each draws for a share of the problems.

    What they print goes to files in `out`.
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
    # the shards, sessions of their own, end too
    handle_signals((signal.SIGTERM, signal.SIGHUP), signal.default_int_handler)
    if {"-h", "--help"} & set(argv):
        parse(["--help"], __doc__)
    check_environment()
    prepare(*preset_of(argv))


if __name__ == "__main__":
    entry(main)
