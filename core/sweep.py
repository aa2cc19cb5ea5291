"""core/sweep.py: which runs a sweep has, in which order and where they run, which are ended early.

    python -m core.sweep commands easy --ns="2 4" --bps=8  # the commands that are still to do
    python -m core.sweep run easy                          # does them, and says how far they are
    python -m core.sweep failed easy                       # which planned runs did not end

run_sweep.sh calls it; `prepare` there makes problems and difficulty, `folder` names the sweep's
folder, `requirements` the files that pip is to install. A sweep is the cells seeds x bps x ns, a
run each. A study (`presets.json` of the data folder) is several sweeps, its arms, in folders below
one. `commands` and `run` write `sweep.json` into a sweep's folder: what was asked last, as `config`
and `cells`.

Environment: PYTHON, LAUNCH, JOBS, GPUS_PER_RUN, CUDA_VISIBLE_DEVICES, PRUNE, see run_sweep.sh.
Needs config.py, core/engine.py for the GPUs that are there, and the standard library; only PRUNE=1
loads the analysis, core/curves.py.
"""
import concurrent.futures
import contextlib
import json
import math
import os
import queue
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import config
from config import (BadInput, RECIPES, append, cast, complete, derive, entry, finished,
                    parse, progress, read_json, read_plan, rollouts_after, run_name, save_json)
from core.engine import visible_gpus

# --------------------------------------------------------------------------------------------------
# Cells, sweeps, studies

def cells(cfg):
    """The runs of a sweep over seeds, bps, ns, lrs with B_p n <= B_max: a list of resolved dicts.

    Large B first: those runs are the quickest per rollout, so a sweep shows early whether its large
    batches hold. Raises BadInput where there is none, or where one is no run.
    """
    def values(key):
        return dict.fromkeys(map(int, cfg[key].split()))  # each once

    grid = []
    for seed in values("seeds"):
        for B_p in values("bps"):
            for n in values("ns"):
                if not cfg["B_max"] or B_p * n <= cfg["B_max"]:
                    grid += [dict(cfg, B_p=B_p, n=n, seed=seed, lr_base=lr)
                             for lr in config.lrs_of(cfg)]
    for c in grid:
        config.check(c)
        config.check_run(c)
    if not grid:
        raise BadInput(f"--B_max={cfg['B_max']}: no cell of --bps={cfg['bps']!r} and "
                       f"--ns={cfg['ns']!r} has B_p n within it")
    return sorted(grid, key=lambda c: (c["seed"], -c["B_p"] * c["n"]))


def run_folder(c):
    """The folder of a cell's run."""
    return Path(c["runs"]) / run_name(c)


def planned(folder):
    """The cells that sweep.json of a sweep's folder asks for; [] without the file."""
    plan = read_plan(folder)
    known = {key: v for key, v in plan.get("config", {}).items() if key in config.config}
    cfg = complete({key: cast(key, value) for key, value in known.items()})
    return cells(dict(cfg, runs=str(folder))) if plan else []


def save_plan(cfg, own=None):
    """Write sweep.json of the sweep `cfg`; own: as in config.parse.

    `cells` is for the analysis, which says what is missing.
    """
    keys = ("B_p", "n", "seed", "lr_base")
    save_json(Path(cfg["runs"]) / "sweep.json", dict(
        config=cfg, derived=derive(cfg, own),
        cells=[{key: c[key] for key in keys} for c in cells(cfg)]))


def begin(preset, sweeps):
    """Write sweep.json of each sweep: the analysis is of the sweep that was asked last."""
    for c in sweeps:
        path = Path(c["runs"]) / "sweep.json"
        old = read_json(path) if path.exists() else {}
        before, plan = old.get("config", {}), dict(c)
        # studies that share an arm plan for each other
        if preset not in ("", *RECIPES) and before.get("bps") == c["bps"]:
            for key in ("ns", "seeds", "lrs"):
                words = f"{before.get(key, '')} {c[key]}".split()
                plan[key] = " ".join(dict.fromkeys(words))
        save_plan(plan)


def presets(data):
    """{study: dict(about, minutes, arms)} of a data folder; arms: {name: command-line words}.

    Of data/guru_math, the paper's scale, where the folder has none. An arm is one sweep, a folder
    of its own; studies that name the same arm share its runs.
    """
    here = Path(__file__).parent.parent
    for folder in (Path(data), here / data, here / "data/guru_math"):
        if (folder / "presets.json").exists():
            known = read_json(folder / "presets.json")
            return {name: study for name, study in known.items() if name not in RECIPES}
    raise BadInput("data/guru_math/presets.json: not there")


def own_words(recipe, data):
    """The words of the sweep `recipe` (easy, hard or mixed) in a data folder's presets.json."""
    path = Path(data) / "presets.json"
    own = read_json(path).get(recipe) if path.exists() else None
    return shlex.split(own["arms"][recipe]) if own else [f"--recipe={recipe}"]


def sweep_folder(preset, argv):
    """The folder of a preset's sweep, or of its arms: `runs`, or else named by data and model."""
    words = [f"--recipe={preset}"] if preset in RECIPES else []
    cfg = parse(words + argv)
    if preset in ("", *RECIPES) or any(word.startswith("--runs=") for word in argv):
        return cfg["runs"]
    return config.sweep_folder(cfg, "atlas")


def arms(preset, argv):
    """The sweeps of a preset as resolved dicts, one for each arm; a recipe, or none, is one sweep.

    Words of argv beat those of presets.json, but for what an arm asks about.
    """
    folder, plain = sweep_folder(preset, argv), parse(argv)
    if config.is_toy(plain):
        raise BadInput(f"--data={plain['data']}: the toy world has a sweep of its own: "
                       "python bandit_toy.py sweep")
    if pruning() and plain["lrs"]:
        raise BadInput(f"--lrs={plain['lrs']}: PRUNE=1 is for one lr_base")
    if preset in ("", *RECIPES):
        words = own_words(preset, plain["data"]) if preset else []
        return [parse(words + argv)]
    known = presets(plain["data"])
    if preset not in known:
        if preset in presets(config.config["data"]):
            raise BadInput(f"{preset}: no preset of --data={plain['data']} but of the default one; "
                           "leave DATA out, its runs name their problems")
        raise BadInput(f"{preset}: no such preset; {', '.join([*RECIPES, *known])}")
    if pruning():
        raise BadInput("PRUNE=1: for easy, hard and mixed; a study's figures need all its runs")
    splits = Path(plain["data"]) / "splits" / Path(plain["model"]).name
    sweeps = []
    for name, text in known[preset]["arms"].items():
        words = shlex.split(text.replace("{splits}", str(splits)))
        asked = ["--model=", "--data="]
        if any(word.startswith("--n_train=") for word in words):
            asked.append("--ns=")
        kept = [word for word in words if word.startswith(tuple(asked))]
        sweeps.append(dict(parse(words + argv + kept), runs=str(Path(folder) / name)))
    return sweeps


# --------------------------------------------------------------------------------------------------
# Commands

def pruning():
    return os.environ.get("PRUNE") == "1"


def python():
    """The interpreter of all stages."""
    return os.environ.get("PYTHON") or ".venv/bin/python"


def training(c):
    """The command of a cell, as PYTHON, LAUNCH and GPUS_PER_RUN of the environment have it."""
    gpus = int(os.environ.get("GPUS_PER_RUN") or "1")
    if c["B_p"] % max(1, gpus):
        raise BadInput(f"--bps={c['bps']}: the processes of GPUS_PER_RUN={gpus} cannot share "
                       f"B_p={c['B_p']} problems evenly")
    if c["lora_rank"] and gpus > 1:
        raise BadInput(f"--lora_rank={c['lora_rank']}: adapters train on one GPU, not on those of "
                       f"GPUS_PER_RUN={gpus}")
    return config.command(dict(c, out=str(run_folder(c))), ("seed", "B_max", "out"), python(),
                          os.environ.get("LAUNCH", ""), gpus)


def unfinished(sweeps):
    """The runs of the sweeps that are still to do."""
    grid = [c for cfg in sweeps for c in cells(cfg)]
    for c in grid:
        training(c)  # nothing is printed or started where one of them cannot be
    return [c for c in grid if not finished(c, run_folder(c)) and not (pruning() and pruned(c))]


def of_other_code(sweeps):
    """One line on finished runs that another commit of this code made, or ""."""
    now, others = config.commit(), Counter()
    for c in (c for cfg in sweeps for c in cells(cfg)):
        if now and finished(c, run_folder(c)):
            with open(run_folder(c) / "log.jsonl") as log:
                others[json.loads(log.readline()).get("commit") or now] += 1
    del others[now]
    if not others:
        return ""
    return (f"{others.total()} finished runs are of other code (commit {', '.join(others)}, now "
            f"{now}) and are not run again; --tag=NAME starts new ones")


# --------------------------------------------------------------------------------------------------
# GPUs, and who gets which

def check_environment():
    """Raise BadInput where a variable of run_sweep.sh cannot be used on any machine."""
    jobs, each = os.environ.get("JOBS", ""), os.environ.get("GPUS_PER_RUN", "")
    launch = os.environ.get("LAUNCH", "")
    if not re.fullmatch(r"|[1-9]\d{0,5}", jobs):
        raise BadInput(f"JOBS={jobs}: expected a whole number above 0")
    if not re.fullmatch(r"|0|[1-9]\d{0,3}", each):
        raise BadInput(f"GPUS_PER_RUN={each}: expected a whole number")
    test = ["bash", "-nc", f"words=({launch})"]
    if "\n" in launch or (launch and subprocess.run(test, stderr=subprocess.DEVNULL).returncode):
        raise BadInput(f"LAUNCH={launch!r}: not the words of one command")


def requirements(argv):
    """What pip is to install for a sweep of these words: vLLM's too, where it will run on GPUs."""
    cfg = parse(argv)
    vllm = cfg["device"] != "cpu" and cfg["engine"] != "hf"
    if vllm and os.environ.get("GPUS_PER_RUN") != "0" and visible_gpus():
        return ["requirements.txt", "requirements-vllm.txt"]
    return ["requirements.txt"]


def slots(sweeps):
    """The GPUs of each of the runs side by side: a list of strings, None where a run has none.

    Sets the environment that the runs inherit. Raises BadInput where JOBS and GPUS_PER_RUN do not
    fit this machine.
    """
    check_environment()
    jobs, each = os.environ.get("JOBS"), os.environ.get("GPUS_PER_RUN")
    cores, per_run = config.cores(), int(each or 1)
    if per_run == 0:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    gpus = visible_gpus() if per_run else []
    room = len(gpus) // per_run if per_run else 0
    if each and per_run and not room:
        raise BadInput(f"GPUS_PER_RUN={each}: there are {len(gpus)} GPUs here")
    if room:
        # of a process, and a GPU has one; on a CPU engine_name says how many
        os.environ.setdefault("OMP_NUM_THREADS", str(1 + (cores - 1) // len(gpus)))
        vllm = any(c["engine"] != "hf" and c["device"] != "cpu" for c in sweeps)
        # its sleep asserts that nobody else's memory on the GPU grows meanwhile
        if jobs and int(jobs) > room and (per_run > 1 or vllm):
            raise BadInput(f"JOBS={jobs}: {len(gpus)} GPUs have room for {room} runs of {per_run}, "
                           "and vLLM needs a GPU to itself (at one GPU a run --engine=hf shares "
                           "one; GPUS_PER_RUN=0 takes the cores)")
    if not room:
        return [None] * int(jobs or cores)
    out = []
    for i in range(int(jobs or room)):
        at = i * per_run % len(gpus)
        out.append(",".join(gpus[at:at + per_run]))
    return out


# Prints how many GPUs torch computes on, and behind a 0 why.
LOOK = """
import torch
try:
    torch.ones(1, device="cuda").sum().item()
    print(torch.cuda.device_count())
except Exception as e:
    print(0, str(e).strip().splitlines()[0])
"""


def check_gpus(sweeps, places):
    """Raise BadInput where the torch of PYTHON does not compute on all GPUs of `places`.

    Every run would go to the CPU, or fail, one by one. With LAUNCH another torch may be meant.
    """
    gpus = {gpu for place in places if place for gpu in place.split(",")}
    if not gpus or os.environ.get("LAUNCH") or all(c["device"] == "cpu" for c in sweeps):
        return
    done = subprocess.run([python(), "-c", LOOK], capture_output=True, text=True)
    count, _, why = (done.stdout or f"0 {done.stderr[-200:]}").strip().partition(" ")
    if int(count) < len(gpus):
        why = f" ({' '.join(why.split())[:200]})" if why else ""
        raise BadInput(f"there are {len(gpus)} GPUs here, and the torch of {python()} sees {count}"
                       f"{why}: install one that fits the driver, or set GPUS_PER_RUN=0 to run "
                       "on the CPU")


def tell_memory(sweeps, places):
    """Says on a node where nobody told GPUS_PER_RUN that nothing here knows what a run takes."""
    models = {Path(c["model"]).name for c in sweeps if c["device"] != "cpu"}
    if models and places[0] and not os.environ.get("GPUS_PER_RUN"):
        tell(f"one GPU a run; whether it holds {', '.join(sorted(models))} is not checked: python "
             "tools/memory.py tells how many do, GPUS_PER_RUN=2 takes two")


def tell_evaluations(grid):
    """Says before the runs where their evaluations will be too few for the analysis."""
    few = [c for c in grid if not 0 < c["eval_every"] <= budget(c) - c["B_p"] * c["n"]]
    if few:
        tell(f"--eval_every={few[0]['eval_every']}: a run of C = {few[0]['C']} has two evaluations "
             "and the page needs three; give a smaller one")


def environment(gpus):
    """The environment of a process that sees these GPUs alone; None leaves it as it is."""
    return dict(os.environ, CUDA_VISIBLE_DEVICES=gpus) if gpus is not None else None


# --------------------------------------------------------------------------------------------------
# What the runs need before they start

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
        for path in (c["train_set"], *config.files(c["val_set"])):
            out[Path(c["data"]), c["model"], c["s_zero"], Path(path)] = True
    return list(out)


def call(*words, note=""):
    """Run a script by PYTHON; a failure ends this process with its exit code."""
    print(note, end="\n" if note else "", flush=True)
    code = subprocess.run([python(), *map(str, words)]).returncode
    if code:
        sys.exit(code if code > 0 else 128 - code)


def prepare(preset, argv):
    """Make what the runs of a preset need and is not there, for each problem file in five steps."""
    sweeps = arms(preset, argv)
    places, study = slots(sweeps), preset not in ("", *RECIPES)
    unfinished(sweeps)  # ends here on a bad key or value, with nothing written
    check_gpus(sweeps, places)
    tell_memory(sweeps, places)
    # words for prepare.py and sample.py; the seed is that of the runs
    given = [w for w in argv if not w.startswith(("--seed=", "--data=", "--model=", "--runs="))]
    for data, model, s_zero, file in needs(sweeps):
        # 1. a file of another folder, such as AIME24, by the prepare.py beside it
        if not file.exists() and not file.is_relative_to(data):
            if (file.parent / "prepare.py").exists():
                call(file.parent / "prepare.py", f"--data={file.parent}")
            if not file.exists():
                raise BadInput(f"{file}: no such problem file")
        # 2. problems and base model; a task is no part of a run's name, so prepare.py compares it
        asked = any(w.startswith(("--task=", "--task_args=")) for w in given)
        if (asked or lacks(data, model, file)) and (data / "prepare.py").exists():
            call(data / "prepare.py", f"--data={data}", f"--model={model}", *given,
                 note=f"problems and base model: {data}/prepare.py")
        # 3. what was measured before; the split `all` needs no difficulty
        if file == data / "splits" / Path(model).name / "all_train.jsonl":
            call("sample.py", f"--data={data}", f"--model={model}", *given)
        info = file.parent / "difficulty.json"
        measured = read_json(info) if info.exists() else {}
        has_levels, of = bool(measured.get("s_zero")), Path(measured.get("problems", ""))
        if file.exists() and of.is_file() and not prompts(file) <= prompts(of):
            raise BadInput(f"{file}: has problems that {of} has not; remove {file.parent} and runs "
                           "on it, or give another --data")
        # a study measures the levels of `mix` first of all: what they hold out to validate on is
        # trained on by none
        levels = study and s_zero and file.is_relative_to(data / "splits")
        if file.exists() and (has_levels or not levels):
            continue
        # 4. difficulty, and splits by it
        mixture = re.match(r"mix_.*_D(\d+)_seed(\d+)_", file.name)
        by_avg = re.match("(easy|hard|very_easy|mixed)_", file.name)
        if file.name.startswith("mix_") and not mixture:
            raise BadInput(f"{file}: no such file; a mixture is mix_NAME_D140_seed0_train.jsonl")
        if not (mixture or by_avg or re.match("(extreme|level_easy|level_very_easy)_", file.name)):
            raise BadInput(f"{file}: no such file; sample.py makes splits, "
                           "data/guru_math/prepare.py mix mixtures of them")
        if not mixture or not has_levels:
            print(f"difficulty of the problems for {model}: sample.py", flush=True)
            if file.exists():
                print(f"the levels hold out more problems: {file.parent} is written anew, and "
                      "sweeps on the splits of before cannot go on", flush=True)
            words = ["sample.py", f"--data={data}", f"--model={model}",
                     *(["--s_zero=0"] if by_avg and not (study and s_zero) else []), *given]
            measure_shards(words, sweep_folder(preset, argv), places)
            call(*words)
        # 5. mixtures of the splits
        if mixture and not file.exists():
            call(Path(__file__).parents[1] / "data/guru_math/prepare.py", "mix", f"--data={data}",
                 f"--model={model}", f"--D={mixture[1]}", f"--seed={mixture[2]}")
        if not file.exists():
            raise BadInput(f"{file}: no problem of {data} is of that difficulty for {model}; "
                           "--split=NAME takes another split of those above, --split=all every "
                           "problem")


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


def measure_shards(words, out, places):
    """sample.py with a share of the problems on each GPU, where there are several.

    The first one's bar is seen, the others write to files in `out`.
    """
    gpus = [gpu for place in dict.fromkeys(places) if place for gpu in place.split(",")]
    if len(gpus) < 2:
        return
    Path(out).mkdir(parents=True, exist_ok=True)
    files = [Path(out) / f"difficulty.{i}.txt" for i in range(len(gpus))]
    shards, broken = [], False
    try:
        for i, gpu in enumerate(gpus):
            with open(files[i], "ab") if i else contextlib.nullcontext(sys.stderr) as file:
                shards.append(subprocess.Popen(
                    [python(), *words, f"--shard={i}/{len(gpus)}"], env=environment(gpu),
                    stdin=subprocess.DEVNULL, stdout=file, stderr=file))
        for gpu, shard, file in zip(gpus, shards, files):
            if shard.wait():
                broken = True
                print(f"FAILED  GPU {gpu}: {last_line(file)}", file=sys.stderr)
    finally:
        for shard in shards:
            shard.terminate()
    if broken:
        sys.exit(1)


# --------------------------------------------------------------------------------------------------
# The runs: start, watch, collect

def last_line(path):
    """What a process said last; behind torchrun's table, the error of the run itself."""
    try:
        text = tail(path, 9000).decode(errors="replace").replace("\r", "\n")
    except OSError:
        return ""
    lines = [line for line in text.split("\n") if line.strip()]
    errors = [line for line in lines if re.match(r"(train_grpo.py|\[rank\d+\]): \S", line)]
    return [*errors[-1:], *lines[-1:], ""][0]


def tail(path, size):
    """The last `size` bytes of a file."""
    with open(path, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - size))
        return file.read()


def last_records(c):
    """The last update and evaluation in a run's log, each None where there is none yet."""
    step, evaluation = None, None
    with contextlib.suppress(OSError):
        for line in reversed(tail(run_folder(c) / "log.jsonl", 2 ** 20).split(b"\n")):
            with contextlib.suppress(ValueError):
                r = json.loads(line)
                if r["type"] == "step":
                    step = step or r
                elif r["type"] == "eval" and r.get("set") == "val":
                    evaluation = evaluation or r
            if step and evaluation:
                break
    return step, evaluation


def budget(c):
    """The rollouts of all updates of a run."""
    return rollouts_after(derive(c)["M"], c)


def live_line(c):
    """How far a run is, from its log: share of the budget, reward, avg@k of its last evaluation.

    Before its first update it is what the run printed last.
    """
    step, evaluation = last_records(c)
    lr = f"lr_base={c['lr_base']:g} " if c["lrs"] else ""
    text = f"B_p={c['B_p']} n={c['n']} {lr}seed={c['seed']}  "
    if not step:
        return text + (last_line(run_folder(c) / "out.txt") or "starting")
    text += f"{step['rollouts'] / budget(c):4.0%} of {budget(c)} rollouts  "
    text += f"reward {step['reward']:.3f}"
    if evaluation:
        metric = f"avg@{evaluation['k']}"
        text += f"  {metric} {evaluation[metric]:.3f}"
    return text


def time_left(running, waiting, places):
    """Seconds until all end, None until every run that runs has made an update.

    These go on at their own pace. The others, of larger B, take the time of the quickest of them:
    an upper bound, since a rollout costs less in a larger batch.
    """
    steps = [last_records(c)[0] for c in running]
    if not steps or not all(steps):
        return None
    paces = [step["wall_s"] / step["rollouts"] for step in steps]
    work = [(budget(c) - step["rollouts"]) * pace for c, step, pace in zip(running, steps, paces)]
    work += [budget(c) * min(paces) for c in waiting]
    return max(*work, sum(work) / places)


def show(running, waiting, total, places):
    """One live line a run and the time left; on a terminal the next ones are written over them."""
    end = "\033[K\n" if sys.stdout.isatty() else "\n"
    lines = [f"  {live_line(c)[:110]}" for c in running]
    left, ended = time_left(running, waiting, places), total - len(running) - len(waiting)
    about = f", about {clock(left)} left" if left else ""
    lines.append(f"  {ended} of {total} runs ended{about}")
    back = f"\033[{len(lines)}A" if sys.stdout.isatty() else ""
    print(end.join(lines) + end + back, end="", flush=True)


def clock(s):
    """Seconds as minutes:seconds, from three hours on as hours."""
    return f"{s / 3600:.1f} h" if s >= 3 * 3600 else f"{int(s) // 60}:{int(s) % 60:02d}"


def run_all(todo, places, stop):
    """Train the cells `todo`, in this order, one in each place; returns how many failed.

    A run's output is in out.txt of its folder. Once `stop` holds something, all runs are asked to
    stop by SIGTERM, on which they save a checkpoint, and are waited for: raises KeyboardInterrupt.
    So too where a run was asked by somebody else, as Slurm asks the steps of a job.
    """
    free, lock, running, failed, shown = queue.SimpleQueue(), threading.Lock(), {}, 0, time.time()
    for gpus in places:
        free.put(gpus)

    def train(c):
        """The exit code of a cell's run, None where it did not start."""
        gpus, folder = free.get(), run_folder(c)
        try:
            with lock:  # none starts behind the SIGTERM to all
                if stop:
                    return None
                folder.mkdir(parents=True, exist_ok=True)
                # A session of its own: Ctrl-C must not reach torchrun or srun, which would pass it
                # on. LAUNCH is shell words, so a shell takes the line apart; env sets variables.
                with open(folder / "out.txt", "wb") as out:
                    running[id(c)] = c, subprocess.Popen(
                        ["bash", "-c", f"exec env {training(c)}"], env=environment(gpus),
                        stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
            code = running[id(c)][1].wait()
            return code if code >= 0 else 128 - code
        finally:
            running.pop(id(c), None)
            free.put(gpus)

    clear, every = ("\033[J", 1) if sys.stdout.isatty() else ("", 60)
    with concurrent.futures.ThreadPoolExecutor(len(places)) as pool:
        jobs = {pool.submit(train, c): c for c in todo}
        try:
            while jobs:
                for job in concurrent.futures.wait(jobs, 1, "FIRST_COMPLETED").done:
                    c, code = jobs.pop(job), job.result()
                    if code is not None:
                        how = f"FAILED ({code})" if code else "done"
                        print(f"{clear}{how}  {last_line(run_folder(c) / 'out.txt')}", flush=True)
                    failed += bool(code)
                    if code == 128 + signal.SIGTERM:
                        stop.append(code)
                if stop:
                    raise KeyboardInterrupt
                if time.time() - shown >= every:
                    shown, now = time.time(), [c for c, _ in list(running.values())]
                    show(now, [c for c in jobs.values() if c not in now], len(todo), len(places))
        except BaseException:
            with lock:
                stop.append("")
                asked = [process for _, process in running.values()]
                for process in asked:
                    process.terminate()
            with contextlib.suppress(OSError):  # who reads our output, a tee, may be gone
                print(f"\nstopping {len(asked)} runs; the same command goes on from here",
                      flush=True)
            raise
    print(clear, end="", flush=True)
    return failed


def run(preset, argv):
    """Train all unfinished runs of a preset, with PRUNE=1 in rungs; 130 where it was stopped."""
    sweeps, folder = arms(preset, argv), sweep_folder(preset, argv)
    places = slots(sweeps)
    check_gpus(sweeps, places)
    stop = []
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        signal.signal(getattr(signal, name), lambda number, _: stop.append(number))
    todo = unfinished(sweeps)
    begin(preset, sweeps)
    grid = [c for cfg in sweeps for c in cells(cfg)]
    tell_evaluations(grid)
    begun = sum(progress(run_folder(c))[0] > 0 for c in todo)
    stopped = f" ({begun} from where stopped)" if begun else ""
    less = ", a third or so less by pruning" if pruning() else ""
    try:
        print(f"sweep {folder}: {len(grid)} runs, {len(todo)} to do{stopped}, "
              f"{sum(map(budget, grid))} rollouts in all{less}, {len(places)} side by side",
              flush=True)
        line = of_other_code(sweeps)
        print(line, end="\n" if line else "", flush=True)
        rung = iter(lambda: [c for cfg in sweeps for c in next_rung(cfg)], [])
        for batch in rung if pruning() else [todo]:
            # most updates first: small batches take the longest, and none is alone at the end
            if run_all(sorted(batch, key=lambda c: -derive(c)["M"]), places, stop):
                break
    except (KeyboardInterrupt, BrokenPipeError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1), os.dup2(null, 2)  # nobody may be reading
        return 130
    return 0


def list_failed(preset, argv):
    """Print the planned runs that have not ended, and what they said last; 1, or 0 without one."""
    lines = []
    for cfg in arms(preset, argv):
        for c in planned(cfg["runs"]):
            at = run_folder(c)
            if not finished(c, at) and not pruned(c):
                said = last_line(at / "out.txt")
                lines.append(f"  {at}  {progress(at)[0]} of {budget(c)} rollouts  {said}".rstrip())
    if lines:
        print(f"\n{len(lines)} runs failed or are missing; the same command tries them again:")
        print("\n".join(lines))
    return 1 if lines else 0


# --------------------------------------------------------------------------------------------------
# Pruned sweeps: all cells run to C/8; there, at C/4 and at C/2 a third of those of each B_p ends
#
# It is the third whose reward is the lowest even with what their last octave of budget would bring
# once more: in log C curves flatten, and a larger n rises later. The end record of a run is the
# whole decision: a call that was killed ranks the same runs again, and a cell that comes later
# meets at each rung the others as they were there. tests/bench/prune.py: 0.6 to 0.7 of the rollouts
# for about 0.1 points. Ending only what is worse by more than its error leaves 0.7 to 0.9 of them.

def rungs(cfg):
    """The budgets at which a pruned sweep ends cells, behind two evaluations or more, and C."""
    early = [cfg["C"] // part for part in (8, 4, 2)]
    return [C for C in early if C >= 2 * cfg["eval_every"]] + [cfg["C"]]


def pruned(c):
    """Whether PRUNE=1 ended a cell's run. Without it the run goes on."""
    return progress(run_folder(c))[1] == "pruned"


def upto(runs, C):
    """The runs as they were at a budget of C rollouts: those with three evaluations to there."""
    out = []
    for run in runs:
        m = run["rollouts"] <= C * (1 + 1e-9)
        if m.sum() >= 3:
            keys = ("C", "rollouts", "step", "counts", "reward")
            cut = {key: run[key][m] for key in keys if run[key] is not None}
            status = "diverged" if run["status"] == "diverged" and m.all() else "budget"
            out.append(run | cut | dict(config=run["config"] | dict(C=C), status=status))
    return out


def last_third(runs, C, metric):
    """The cells of one B_p that end at a budget of C rollouts: {n: why}. runs: of read_runs."""
    import numpy as np

    from core.curves import cells_of, nearest
    runs = upto(runs, C)
    if not runs:
        return {}
    grid, found = cells_of(runs, metric)
    j, half, seen = nearest(grid, C), nearest(grid, C / 2), []
    for c in found:
        if c["inside"][j]:
            brings = c["Y"][j] - c["Y"][max(half, np.flatnonzero(c["inside"])[0])]
            seen.append((c["Y"][j] + max(0, brings), c["n"], c["Y"][j]))
    seen.sort(reverse=True)
    return {n: f"reward {now:.3f}, {hope:.3f} with its last octave once more, of {len(seen)} cells"
            for hope, n, now in seen[math.ceil(2 * len(seen) / 3):]}


def next_rung(cfg):
    """The runs of a pruned sweep's next rung that are still to do, after ending those before it."""
    live = cells(cfg)
    for C in rungs(cfg):
        here = [dict(c, C=C) for c in live if c["B_p"] * c["n"] <= C]
        short = [c for c in here if not finished(c, run_folder(c))
                 and (C == cfg["C"] or progress(run_folder(c))[0] < budget(c))]
        todo = [c for c in short if not pruned(c)]
        if todo:
            tell(f"rung C = {C} of {cfg['C']}: {len(todo)} runs to do")
        if todo or C == cfg["C"]:
            return todo
        ended = {run_folder(c) for c in short}  # at a rung before
        live = [c for c in live if run_folder(c) not in ended]
        here = [c for c in here if run_folder(c) not in ended]
        if here:
            end_some(here, C)


def end_some(here, C):
    """End a third of the cells that reached the rung C, each B_p by itself."""
    from core.runs import read_runs
    cfg, on = here[0], {run_folder(c).name for c in here}
    try:
        part = "train" if cfg["metric"] == "train" else cfg["eval_set"]
        runs = [run for run in read_runs(cfg["runs"], cfg["metric"], part=part)[0]
                if run["run"] in on]
    except BadInput as e:
        return tell(f"rung C = {C}: nothing is pruned ({e})")
    for B_p in dict.fromkeys(c["B_p"] for c in here):
        worst = last_third([run for run in runs if run["B_p"] == B_p], C, cfg["metric"])
        for n, why in worst.items():
            same = [c for c in here if (c["B_p"], c["n"]) == (B_p, n)]
            warm = derive(same[0])["M"] >= max(2, cfg["warmup"])
            beyond = any(progress(run_folder(c))[0] > budget(c) for c in same)
            if warm and not beyond and not all(map(pruned, same)):
                tell(f"pruned at C = {C}: B_p = {B_p}, n = {n} ({why})")
                for c in same:
                    mark(c)


def mark(c):
    """End a cell's run as pruned: one record behind its log. Half a line is cut off before it."""
    path = run_folder(c) / "log.jsonl"
    rollouts, status = progress(path.parent)
    if path.exists() and status not in ("pruned", "diverged"):
        with open(path, "r+b", buffering=0) as file:
            file.truncate(path.read_bytes().rfind(b"\n") + 1)
            append(file, dict(type="end", status="pruned", rollouts=rollouts))


def tell(text):
    """Says something on stderr: stdout is for commands."""
    print(text, file=sys.stderr)


# --------------------------------------------------------------------------------------------------

def main(argv):
    verb = argv[0] if argv else "--help"
    preset = argv[1] if len(argv) > 1 and not argv[1].startswith("-") else ""
    words = argv[2:] if preset else argv[1:]
    if verb.startswith("-") or {"-h", "--help"} & set(words):
        parse(["--help"], __doc__)
    check_environment()
    if verb == "folder":
        arms(preset, words)  # ends here on a preset that is none
        print(sweep_folder(preset, words))
    elif verb == "requirements":
        print(*requirements(words))
    elif verb == "commands":
        sweeps = arms(preset, words)
        todo = unfinished(sweeps)
        begin(preset, sweeps)  # so that `failed` and the analysis know what was asked
        if pruning():
            todo = [c for cfg in sweeps for c in next_rung(cfg)]
        print("".join(f"{training(c)}\n" for c in todo), end="")
    elif verb == "prepare":
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        prepare(preset, words)
    elif verb == "run":
        return run(preset, words)
    elif verb == "failed":
        return list_failed(preset, words)
    else:
        raise BadInput(f"{verb}: no such verb; requirements, folder, commands, prepare, "
                       "run or failed")
    return 0


if __name__ == "__main__":
    entry(main)
