"""core/prepare.py: what the runs of a sweep need before they start, made where it is not there.

    python -m core.prepare easy --data=data/mine    # problems, base model, difficulty, splits

run_sweep.sh calls it with the words of the sweep. Every script that makes something is a process of
its own: prepare.py of a data folder is anybody's, and sample.py gives its GPUs back as it ends.
Needs config.py and core/sweep.py, the sweep whose runs they are, and the standard library.
"""
import contextlib
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

from config import BadInput, entry, files, parse, read_json
from core.sweep import (ROOT, arms, check_gpus, environment, is_study, last_line, preset_of, python,
                        slots, sweep_folder, tell, unfinished)

# names of splits: by avg@s, by s_zero rollouts, mixtures
SPLIT = re.compile(r"((?P<band>easy|hard|very_easy|mixed)|extreme|level_easy|level_very_easy"
                   r"|mix_.*_D(?P<D>\d+)_seed(?P<seed>\d+))_(train|val)\.jsonl")


def prepare(preset, argv):
    """Make what the runs of a preset need and is not there, for each problem file in five steps."""
    sweeps = arms(preset, argv)
    places, out = slots(sweeps), sweep_folder(preset, argv)
    unfinished(sweeps)  # ends here on a bad key or value, with nothing written
    check_gpus(sweeps, places)
    # words for prepare.py and sample.py; the seed is that of the runs
    given = [w for w in argv if not w.startswith(("--seed=", "--data=", "--model=", "--runs="))]
    for data, model, s_zero, file in needs(sweeps):
        words = [f"--data={data}", f"--model={model}", *given]
        # 1. a file of another folder, such as AIME24
        if not file.exists() and not file.is_relative_to(data):
            of_another_folder(file)
        # 2. problems and base model; a task is no part of a run's name, so prepare.py compares it
        asked = any(w.startswith(("--task=", "--task_args=")) for w in given)
        if (asked or lacks(data, model, file)) and (data / "prepare.py").exists():
            call(data / "prepare.py", *words, note=f"problems and base model: {data}/prepare.py")
        # 3. every problem, which needs no difficulty
        if file == data / "splits" / Path(model).name / "all_train.jsonl":
            call("sample.py", *words)
        # 4. difficulty, and the splits by it
        has_levels = check_splits(file)
        # a study measures the levels of its mixtures first of all: what they hold out to validate
        # on is trained on by none
        levels = is_study(preset) and s_zero and file.is_relative_to(data / "splits")
        if file.exists() and (has_levels or not levels):
            continue
        kind = SPLIT.fullmatch(file.name)
        if not kind:
            raise BadInput(f"{file}: no such file; sample.py makes splits by difficulty, data/"
                           "guru_math/prepare.py mix mixtures, mix_NAME_D140_seed0_train.jsonl")
        if not kind["D"] or not has_levels:
            again = file.exists()
            print(f"difficulty of the problems for {model}: sample.py", flush=True)
            if again:
                print(f"the levels hold out more problems: {file.parent} is written anew, and "
                      "sweeps on the splits of before cannot go on", flush=True)
            words = ["--s_zero=0"] * (bool(kind["band"]) and not levels) + words
            measure_shards(["sample.py", *words], out, places)
            call("sample.py", *words)
        # 5. mixtures of the splits
        if kind["D"] and not file.exists():
            call(ROOT / "data/guru_math/prepare.py", "mix", f"--data={data}",
                 f"--model={model}", f"--D={kind['D']}", f"--seed={kind['seed']}")
        if not file.exists():
            raise BadInput(f"{file}: no problem of {data} is of that difficulty for {model}; "
                           "--split=NAME takes another split of those above, --split=all every "
                           "problem")
    for cfg in sweeps:
        if cfg["D"] > (there := len(Path(cfg["train_set"]).read_bytes().splitlines())):
            raise BadInput(f"--D={cfg['D']}: {cfg['train_set']} has {there} problems; --D=0 takes "
                           "them all")


def needs(sweeps):
    """What the runs need, each once: (data folder, model, s_zero, problem file).

    Raises BadInput where splits belong to another model: they are found by the name of the model's
    folder, which another may have too.
    """
    out = {}
    for c in sweeps:
        difficulty = Path(c["data"]) / "splits" / Path(c["model"]).name / "difficulty.json"
        if difficulty.exists() and Path(c["train_set"]).parent == difficulty.parent:
            other = read_json(difficulty).get("model") or c["model"]
            if Path(other).resolve() != Path(c["model"]).resolve():
                raise BadInput(f"--model={c['model']}: {difficulty} is of {other}; give the folder "
                               "of one of them another name")
        for path in (c["train_set"], *files(c["val_set"])):
            out[Path(c["data"]), c["model"], c["s_zero"], Path(path)] = True
    return list(out)


def call(*words, note=""):
    """Run a script by PYTHON; a failure ends this process with its exit code."""
    print(note, end="\n" if note else "", flush=True)
    code = subprocess.run([python(), *map(str, words)]).returncode
    if code:
        sys.exit(code if code > 0 else 128 - code)


def of_another_folder(file):
    """Make a problem file by the prepare.py beside it. Raises BadInput where that is none."""
    if (file.parent / "prepare.py").exists():
        call(file.parent / "prepare.py", f"--data={file.parent}")
    if not file.exists():
        raise BadInput(f"{file}: no such problem file")


def lacks(data, model, file):
    """Whether problems, the base model or the problem file `file` of a data folder are missing.

    A folder with a model of its own says by its prepare.py whether another will do.
    """
    defaults = data / "defaults.json"
    own = read_json(defaults).get("model", "") if defaults.exists() else ""
    inside = any(Path(m).resolve().is_relative_to(data.resolve()) for m in (own, model) if m)
    return (not (data / "problems.jsonl").exists() or (inside and not Path(model).is_dir())
            or (file.parent == data and not file.exists()))


def prompts(path):
    """The prompts of a problem file, as far as they can be read."""
    out = set()
    for line in Path(path).read_bytes().splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            out.add(json.loads(line)["prompt"])
    return out


def check_splits(file):
    """Whether the levels by s_zero rollouts are measured where `file` lies.

    Raises BadInput where it holds problems of an earlier problem file.
    """
    info = file.parent / "difficulty.json"
    measured = read_json(info) if info.exists() else {}
    of = Path(measured.get("problems", ""))
    if file.exists() and of.is_file() and not prompts(file) <= prompts(of):
        raise BadInput(f"{file}: has problems that {of} has not; remove {file.parent} and runs "
                       "on it, or give another --data")
    return bool(measured.get("s_zero"))


def measure_shards(words, out, places):
    """sample.py with a share of the problems on each GPU, where there are several.

    The first one's bar is seen, the others write to files in `out`.
    """
    gpus = [gpu for place in dict.fromkeys(places) if place for gpu in place.split(",")]
    if len(gpus) < 2:
        return
    Path(out).mkdir(parents=True, exist_ok=True)
    shards, failed = [], []
    try:
        for i, gpu in enumerate(gpus):
            said = Path(out) / f"difficulty.{i}.txt"
            with open(said, "ab") if i else contextlib.nullcontext(sys.stderr) as file:
                shards.append((gpu, said, subprocess.Popen(
                    [python(), *words, f"--shard={i}/{len(gpus)}"], env=environment(gpu),
                    stdin=subprocess.DEVNULL, stdout=file, stderr=file)))
        failed = [(gpu, said) for gpu, said, shard in shards if shard.wait()]
    finally:
        for _, _, shard in shards:
            shard.terminate()
    for gpu, said in failed:
        tell(f"FAILED  GPU {gpu}: {last_line(said)}")
    if failed:
        sys.exit(1)


def main(argv):
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if {"-h", "--help"} & set(argv):
        parse(["--help"], __doc__)
    prepare(*preset_of(argv))


if __name__ == "__main__":
    entry(main)
