"""core/sweep.py: which runs a sweep has, in which order and where they run, which are ended early.

    python -m core.sweep commands easy --ns="2 4" --bps=8  # the commands that are still to do
    python -m core.sweep run easy                          # does them, and says how far they are
    python -m core.sweep failed easy                       # which planned runs did not end
    python -m core.sweep price --data=data/guru_math       # what all sweeps and studies cost

run_sweep.sh calls it; `folder` names the sweep's folder, `requirements` the files that pip is to
install; core/prepare.py makes what the runs need before. A sweep is the cells seeds x bps x ns, a
run each. A study (`presets.json` of the data folder) is several sweeps, its arms, in folders below
one. `commands` and `run` write `sweep.json` into a sweep's folder: what was asked last, as `config`
and `cells`.

Environment: PYTHON, LAUNCH, JOBS, GPUS_PER_RUN, CUDA_VISIBLE_DEVICES, PRUNE, see run_sweep.sh.
Planning needs the standard library only.
"""
import contextlib
import difflib
import json
import math
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from statistics import fmean, linear_regression

import config
from config import (BadInput, RECIPES, all_rollouts, at_k, complete, derive, entry, experiment,
                    parse, read_json, run_name)
from core import cost, machine
from core.log import append, finished, progress, read_log, read_plan, save_json
import verifier

ROOT = Path(__file__).parents[1]

# --------------------------------------------------------------------------------------------------
# Cells, sweeps, studies

def cells(cfg):
    """The runs of a sweep over seeds, bps, ns, lrs with B_p n <= B_max: a list of resolved dicts.

    Large B first: those runs are the quickest per rollout, so a sweep shows early whether its large
    batches hold. Raises BadInput where there is none, or where one is no run.
    """
    def values(key):
        return dict.fromkeys(map(int, cfg[key].split()))  # each once

    grid = [dict(cfg, B_p=B_p, n=n, seed=seed, lr_base=lr) for seed in values("seeds")
            for B_p in values("bps") for n in values("ns")
            if not cfg["B_max"] or B_p * n <= cfg["B_max"] for lr in config.lrs_of(cfg)]
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


def save_plan(cfg, shared=False):
    """Write sweep.json of a sweep, dict(config, cells), for the analysis and for `failed`.

    shared: studies that have this arm in common plan for each other: cells of the same experiment
    that were asked before stay.
    """
    asked = [{key: c[key] for key in ("B_p", "n", "seed", "lr_base")} for c in cells(cfg)]
    plan = read_plan(cfg["runs"]) if shared else {}
    if plan and experiment(plan["config"]) == experiment(cfg):
        asked += [cell for cell in plan.get("cells", ()) if cell not in asked]
    lrs = sorted({cell["lr_base"] for cell in asked})
    if len(lrs) > 1:
        cfg = dict(cfg, lrs=" ".join(map(str, lrs)))
    save_json(Path(cfg["runs"]) / "sweep.json", dict(config=cfg, cells=asked))


def planned(folder):
    """The cells that sweep.json of a sweep's folder asks for; [] without the file."""
    plan = read_plan(folder)
    return [dict(complete(plan["config"]), runs=str(folder), **cell)
            for cell in plan.get("cells", ())]


def preset_of(argv):
    """(preset, words) of a command line, where the preset comes first; easy without one."""
    named = bool(argv) and not argv[0].startswith("-")
    return (argv[0], argv[1:]) if named else (config.config["recipe"], argv)


def read_presets(data):
    """The studies, and the sweeps of its own, of a data folder: {name: dict(about, arms)}."""
    path = Path(data) / "presets.json"
    return read_json(path) if path.exists() else {}


def presets(data):
    """{study: dict(about, minutes, arms)} of a data folder; arms: {name: command-line words}.

    Of data/guru_math, the paper's scale, where the folder has none. An arm is one sweep, a folder
    of its own; studies that name the same arm share its runs.
    """
    for folder in (data, ROOT / "data/guru_math"):
        studies = {name: study for name, study in read_presets(folder).items()
                   if name not in RECIPES}
        if studies:
            break
    return studies


def recipe_words(preset, data):
    """The command-line words of presets.json for a recipe's sweep of a data folder; else []."""
    own = read_presets(data).get(preset) if preset in RECIPES else None
    return shlex.split(own["arms"][preset]) if own else []


def within_split(cfg, words, argv):
    """`cfg` with D = 0, all problems, if its split holds fewer than the D of presets.json.

    That D is of the model for which the preset was made: for any other it is an upper bound. A D
    of the command line (argv) stays as it is.
    """
    path = Path(cfg["train_set"])
    ours = any(word.startswith("--D=") for word in words)
    if not ours or any(word.startswith("--D=") for word in argv) or not path.exists():
        return cfg
    with open(path, "rb") as file:
        size = sum(bool(line.strip()) for line in file)
    return cfg if cfg["D"] <= size else dict(cfg, D=0)


def sweep_folder(preset, argv):
    """The folder of a preset's sweep, or of its arms: `runs`, or else named by data and model."""
    first = f"--recipe={preset}"
    if preset not in RECIPES:
        first = f"--runs={config.sweep_folder(parse(argv), 'atlas')}"
    return parse([first, *argv])["runs"]


def arms(preset, argv):
    """The sweeps of a preset as resolved dicts: a recipe is one sweep, a study one for each arm.

    Words of argv beat those of presets.json, but for what an arm asks about.
    """
    plain = parse(argv)
    if config.is_toy(plain):
        raise BadInput(f"--data={plain['data']}: the toy world has a sweep of its own: "
                       "python bandit_toy.py sweep")
    if pruning() and (preset not in RECIPES or plain["lrs"] or plain["metric"] == "train"):
        raise BadInput("PRUNE=1: for easy, hard and mixed, at one lr_base, by evaluations; a "
                       "study's figures need all its runs")
    if preset in RECIPES:
        words = recipe_words(preset, plain["data"])
        return [within_split(parse([f"--recipe={preset}", *words, *argv]), words, argv)]
    known = presets(plain["data"])
    if preset not in known:
        raise BadInput(f"{preset}: no such preset of --data={plain['data']}; "
                       f"{', '.join([*RECIPES, *known])}")
    splits = Path(plain["data"]) / "splits" / Path(plain["model"]).name
    folder, sweeps = sweep_folder(preset, argv), []
    for name, text in known[preset]["arms"].items():
        words = shlex.split(text.replace("{splits}", str(splits)))
        asked = ["--model=", "--data="]
        if any(word.startswith("--n_train=") for word in words):
            asked.append("--ns=")
        kept = [word for word in words if word.startswith(tuple(asked))]
        cfg = within_split(parse(words + argv + kept), words, argv)
        sweeps.append(dict(cfg, runs=str(Path(folder) / name)))
    return sweeps


# --------------------------------------------------------------------------------------------------
# Commands, and the GPUs of each

def check_environment():
    """Raise BadInput where a variable of run_sweep.sh cannot be used on any machine."""
    for name, least, known in (("JOBS", 1, r"|[1-9]\d{0,5}"), ("GPUS_PER_RUN", 0, r"|\d{1,4}")):
        if not re.fullmatch(known, value := os.environ.get(name, "")):
            raise BadInput(f"{name}={value}: expected a whole number, {least} or more")
    launch = os.environ.get("LAUNCH", "")
    test = ["bash", "-nc", f"words=({launch})"]
    if "\n" in launch or (launch and subprocess.run(test, stderr=subprocess.DEVNULL).returncode):
        raise BadInput(f"LAUNCH={launch!r}: not the words of one command")


# the variables that run_sweep.sh and this file read
VARIABLES = ("NS BPS SEEDS LRS C B_MAX MODEL DATA OUT TASK DRY_RUN PRUNE JOBS GPUS_PER_RUN LAUNCH "
             "PYTHON").split()


def warn_of_misspelt_variables():
    """Print a line for each environment variable that differs a little from one that is read."""
    def plain(name):
        return name.upper().replace("_", "").rstrip("S")

    known = {plain(name): name for name in VARIABLES}
    for name in sorted(set(os.environ) - set(VARIABLES)):
        near = [plain(name)] if len(name) < 6 else difflib.get_close_matches(
            plain(name), known, 1, 0.85)
        if near and near[0] in known:
            print(f"{name}={os.environ[name]}: run_sweep.sh does not read it; is "
                  f"{known[near[0]]} meant?", file=sys.stderr)


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
    more = ["seed", "B_max", "out"]
    if c["device"] == "auto" and parse([f"--data={c['data']}", f"--model={c['model']}"])[
            "device"] == "cpu":  # GPUs are asked for a model that would take the CPU
        more.insert(0, "device")
    return config.command(dict(c, out=str(run_folder(c))), more, python(),
                          os.environ.get("LAUNCH", ""), gpus)


def unfinished(sweeps):
    """Return the runs of the sweeps that are still to do. Raises BadInput if one cannot start."""
    for cfg in sweeps:
        config.choose("verifier", cfg["verifier"], verifier.REWARDS)
    grid = [c for cfg in sweeps for c in cells(cfg)]
    for c in grid:
        training(c)  # nothing is printed or started where one of them cannot be
    return [c for c in grid if not finished(c, run_folder(c)) and not (pruning() and pruned(c))]


def requirements(argv):
    """The files that pip installs for a sweep of these words.

    vLLM's is one of them if the runs will be on GPUs: those of this machine or, with --engine=vllm,
    those of another one that this is the login node of.
    """
    cfg = parse(argv)
    gpus = cfg["device"] != "cpu" and os.environ.get("GPUS_PER_RUN") != "0"
    vllm = cfg["engine"] == "vllm" or (cfg["engine"] == "auto" and machine.visible_gpus())
    return ["requirements.txt"] + ["requirements-vllm.txt"] * bool(gpus and vllm)


def slots(sweeps):
    """The places in which runs go side by side: for each the variables of a run there, a dict.

    Sets those that all inherit. Raises BadInput where JOBS and GPUS_PER_RUN do not fit this
    machine.
    """
    jobs, each = int(os.environ.get("JOBS") or 0), os.environ.get("GPUS_PER_RUN", "")
    size = int(each or any(c["device"] != "cpu" for c in sweeps))
    if size == 0:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    gpus = machine.visible_gpus()
    room = len(gpus) // max(size, 1)
    if size and each and not room:
        raise BadInput(f"GPUS_PER_RUN={each}: there are {len(gpus)} GPUs here")
    if not room:
        return [{}] * (jobs or machine.cores())
    # of a process, and a GPU has one; on a CPU each script sets its own
    os.environ.setdefault("OMP_NUM_THREADS", str(1 + (machine.cores() - 1) // len(gpus)))
    vllm = any(c["engine"] != "hf" and c["device"] != "cpu" for c in sweeps)
    # its sleep asserts that nobody else's memory on the GPU grows meanwhile
    if jobs > room and (size > 1 or vllm):
        raise BadInput(f"JOBS={jobs}: {len(gpus)} GPUs have room for {room} runs of {size}, "
                       "and vLLM needs a GPU to itself (at one GPU a run --engine=hf shares "
                       "one; GPUS_PER_RUN=0 takes the cores)")
    starts = [i * size % len(gpus) for i in range(jobs or room)]
    return [dict(CUDA_VISIBLE_DEVICES=",".join(gpus[i:i + size])) for i in starts]


def check_gpus(sweeps):
    """Raise BadInput if the runs cannot start on this machine, before anything is measured.

    Without this check every run would fail, or go to the CPU, one by one. With LAUNCH the runs may
    start on another machine or in a container, so nothing is checked.
    """
    there, on_gpu = len(machine.visible_gpus()), [c for c in sweeps if c["device"] != "cpu"]
    if os.environ.get("LAUNCH") or not on_gpu:
        return
    if not there:
        hub = re.compile(r"(?!runs/|data/)[\w-][\w.-]*/[\w.-]+")  # OWNER/NAME, not a folder
        model = next((c["model"] for c in on_gpu
                      if hub.fullmatch(c["model"]) and not Path(c["model"]).exists()), None)
        if model and os.environ.get("GPUS_PER_RUN") != "0":
            raise BadInput(f"--model={model}: there is no GPU here, and on a CPU such a model "
                           "takes weeks. MODEL=FOLDER takes a small model, GPUS_PER_RUN=0 the CPU "
                           "all the same, DRY_RUN=1 plans for another machine")
        return
    kernel = ["triton"] * any(c["engine"] != "hf" for c in on_gpu)
    done = subprocess.run([python(), str(ROOT / "core/probe.py"), *kernel], capture_output=True,
                          text=True)
    try:
        seen = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):  # torch is not installed, or died in native code
        seen = dict(gpus=0, why=" ".join(done.stderr.split())[-200:])
    if seen["gpus"] < there:
        raise BadInput(f"there are {there} GPUs here, and the torch of {python()} can use "
                       f"{seen['gpus']}: {seen['why'] or 'it sees no more'}. GPUS_PER_RUN=0 runs "
                       "on the CPU" + ", --engine=hf without Triton" * ("Triton" in seen["why"]))


# --------------------------------------------------------------------------------------------------
# What it costs, by core/cost.py

def to_measure(sweeps):
    """How many problems sample.py will measure before the runs: 0 if the splits are there, None if
    nobody knows yet how many there are. The levels of a study take more than is counted here."""
    total = {}
    for c in sweeps:
        if Path(c["train_set"]).exists() or Path(c["train_set"]).name == "all_train.jsonl":
            continue
        file, limit = Path(c["problems"]), c["measure"]
        if file.exists():
            with open(file, "rb") as lines:
                count = sum(bool(line.strip()) for line in lines)
            limit = min(limit or count, count)
        total[c["model"], c["problems"]] = limit or None
    return None if None in total.values() else sum(total.values())


def measured_rate(folder):
    """(runs, factor): how the GPU-hours of runs in a folder compare with their estimate.

    (0, 1.0) without the log of a run on a GPU.
    """
    hours = []
    for path in Path(folder).glob("**/log.jsonl"):
        with contextlib.suppress(BadInput, KeyError):  # a log that cannot be read is told elsewhere
            hours.append(cost.measured(read_log(path)))
    hours = [pair for pair in hours if pair]
    return len(hours), sum(a for a, _ in hours) / sum(b for _, b in hours) if hours else 1.0


DEEP = 150  # updates: the paper's larger n come up after 155 to 264


def price(preset, argv):
    """What the runs of a preset take, each run once, as text, and which are too shallow."""
    sweeps = arms(preset, argv)
    runs = list({run_folder(c): c for cfg in sweeps for c in cells(cfg)}.values())
    rollouts, problems = sum(map(all_rollouts, runs)), to_measure(sweeps)
    words = f"{len(runs)} runs, {rollouts / 1e6:,.{0 if rollouts > 1e7 else 1}f}M rollouts"
    if all(c["device"] == "cpu" for c in runs):
        return words
    known, factor = measured_rate(sweep_folder(preset, argv))
    told, first = [], []
    for card in ["H100"] if known else cost.CARDS:
        hours = [cost.gpu_hours(c, card) for c in runs]
        if None in hours:
            continue
        before = cost.difficulty_hours(sweeps[0], problems or 0, card) if preset in RECIPES else 0
        first.append(f"{before * factor:.2g}")
        total = float(f"{(sum(hours) + before) * factor:.2g}")
        total = f"{total:,.{0 if total >= 10 else 1}f}"
        told.append(total if known else f"{total} (of {card})")
    if not told:
        return words
    words += f", about {' or '.join(told)} GPU-hours"
    if known:
        words += f" by the log of {known} runs that are there ({factor:.2g} of the estimate)"
    if preset in RECIPES and problems:
        words += f", of them {' or '.join(first)} for the difficulty of {problems:,} problems"
    if preset in RECIPES and problems is None:
        words += ", without the difficulty: the problems are not there yet"
    gigabytes = cost.disk_bytes(cost.sizes(cost.read_shape(runs[0]["model"])), runs) / 1e9
    words += f"; {gigabytes:,.0f} GB of disk"
    shallow = {c["n"]: derive(c)["M"] for c in runs if derive(c)["M"] < DEEP}
    if shallow and preset in RECIPES:
        told = ", ".join(f"n = {n} ({shallow[n]})" for n in sorted(shallow))
        words += f"; too shallow to show a late gain, fewer than {DEEP} updates: {told}"
    return words


def say_price(preset, argv, sweeps, file=sys.stdout):
    """Print what a sweep on GPUs takes, before it starts."""
    if any(c["device"] != "cpu" for c in sweeps) and (
            machine.visible_gpus() or not Path(sweeps[0]["model"]).exists()):
        print(f"{preset}: {price(preset, argv)}", file=file, flush=True)


def prices(argv):
    """Print what every sweep and every study takes."""
    cfg = parse(argv)
    for name in RECIPES:
        try:
            print(f"  {name:13s} {price(name, argv)}")
        except BadInput as e:
            raise BadInput(f"{name}: {e}") from None
    print("Studies, each one or more sweeps; what two have in common is made once:")
    for name, study in presets(cfg["data"]).items():
        told = price(name, argv)
        if "minutes" in study:
            told += f", {study['minutes']} minutes on 2 cores"
        print(f"  {name:13s} {study['about']}\n{'':15s} {told}")


# --------------------------------------------------------------------------------------------------
# The runs: start, watch, collect

def last_line(path):
    """What a process said last; behind torchrun's table, the error of the run itself."""
    lines = []
    with contextlib.suppress(OSError), open(path, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 9000))
        text = file.read().decode(errors="replace")
        lines = [line for line in text.splitlines() if line.strip()]  # a bar's too: they end in \r
    errors = [line for line in lines if re.match(r"(train_grpo.py|\[rank\d+\]): \S", line)]
    return [*errors[-1:], *lines[-1:], ""][0]


def spawn(command, out, place):
    """The process of shell words, which writes to the file `out`; place: variables of its own.

    A session of its own: Ctrl-C must not reach torchrun or srun, which would pass it on. LAUNCH is
    shell words, so a shell takes the line apart; env sets variables.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    with open(out, "wb") as file:
        return subprocess.Popen(["bash", "-c", f"exec env {command}"], env=os.environ | place,
                                stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                                start_new_session=True)


def pool(jobs, places, stop):
    """Run the jobs (name, shell words, output file) in this order, one in each of the places at a
    time; returns how many failed.

    Once `stop` holds something none starts any more, and those that run are asked to stop by
    SIGTERM, on which a run saves a checkpoint, and waited for. So too where one was asked by
    somebody else, as Slurm asks the steps of a job, and where nobody reads what is printed.
    """
    waiting, running, failed, shown = list(jobs), {}, 0, time.time()
    terminal = sys.stdout.isatty()
    clear, every = ("\033[J", 1) if terminal else ("", 60)
    try:
        while (waiting or running) and not stop:
            for i, place in enumerate(places):
                if waiting and i not in running:
                    name, command, out = waiting.pop(0)
                    running[i] = name, out, spawn(command, out, place)
            time.sleep(0.1)
            for i, (name, out, process) in list(running.items()):
                if (code := process.poll()) is None:
                    continue
                del running[i]
                code = code if code >= 0 else 128 - code
                how = f"FAILED ({code})  {name}:" if code else "done"
                print(f"{clear}{how}  {last_line(out)}", flush=True)
                failed += bool(code)
                if code == 128 + signal.SIGTERM:
                    stop.append(code)
            if time.time() - shown >= every:
                shown = time.time()
                lines = [f"  {name}  {last_line(out) or 'starting'}"[:112]
                         for name, out, _ in running.values()]
                lines.append(f"  {len(jobs) - len(waiting) - len(running)} of {len(jobs)} ended")
                end, back = ("\033[K\n", f"\033[{len(lines)}A") if terminal else ("\n", "")
                print(end.join(lines) + end + back, end="", flush=True)  # the next go over them
    finally:
        for _, _, process in running.values():
            process.terminate()
        with contextlib.suppress(OSError):  # who reads our output, a tee, may be gone
            print(clear, end="", flush=True)
            if stop or running:
                print(f"\nstopping {len(running)} runs; the same command goes on from here",
                      flush=True)
        for _, _, process in running.values():
            process.wait()
    return failed


def handle_signals(numbers, handler):
    """Set a handler for some signals, but keep an ignored SIGHUP ignored: nohup asks for that."""
    for number in numbers:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)


def run(preset, argv):
    """Train all unfinished runs of a preset, with PRUNE=1 in rungs; exits with 130 if stopped."""
    sweeps, folder, stop = arms(preset, argv), sweep_folder(preset, argv), []
    todo, grid = unfinished(sweeps), [c for cfg in sweeps for c in cells(cfg)]
    check_evaluations(grid)
    places = slots(sweeps)
    check_gpus(sweeps)
    handle_signals((signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
                   lambda number, _: stop.append(number))
    for cfg in sweeps:
        save_plan(cfg, shared=preset not in RECIPES)
    begun = sum(progress(run_folder(c))[0] > 0 for c in todo)
    stopped = f" ({begun} from where stopped)" if begun else ""
    try:
        print(f"sweep {folder}: {len(grid)} runs, {len(todo)} to do{stopped}, "
              f"{sum(map(all_rollouts, grid))} rollouts in all, {len(places)} side by side",
              flush=True)
        print(settings_of(sweeps[0]), flush=True)
        if len(todo) < len(grid):
            print("finished runs stay; --tag=NAME starts new ones", flush=True)
        if todo:
            warn_of_mixed_commits(grid)
        for batch in iter(lambda: next_rung(sweeps[0]), []) if pruning() else [todo]:
            # most updates first: small batches take the longest, and none is alone at the end
            batch = sorted(batch, key=lambda c: -derive(c)["M"])
            failed = pool([job(c) for c in batch], places, stop)
            if failed or stop:
                break
    except BrokenPipeError:
        stop.append("nobody reads")
    if stop:
        os._exit(130)  # without a flush, which fails where nobody reads
    return 0


def settings_of(cfg):
    """Return a line with the settings of a sweep that depend most on the model and its problems."""
    shown = " ".join(f"{key}={cfg[key]:g}" for key in ("lr_base", "C", "D", "max_new_tokens"))
    paper = all(cfg[key] == config.config[key] for key in ("lr_base", "C"))
    return shown + ", the paper's scale for a model of 7B (config.py)" * paper


def warn_of_mixed_commits(grid):
    """Warn once if runs of the sweep were begun by other code than this, or by edited code."""
    headers = (next(iter(read_log(log)), {}) for log in
               (run_folder(c) / "log.jsonl" for c in grid) if log.exists())
    begun = {header.get("commit") for header in headers} - {None}
    now = machine.commit()
    if now and begun and (begun | {now} != {now} or now.endswith("+")):
        shown = ", ".join(sorted(begun)).replace("+", " with edits")
        print(f"runs of this sweep were begun by commit {shown}; the code now is "
              f"{now.replace('+', ' with edits')}. If they should not be mixed, --tag=NAME starts "
              "new runs", file=sys.stderr, flush=True)


def job(c):
    """A cell's run for the pool: (name, shell words, output file)."""
    lr = f"lr_base={c['lr_base']:g} " if c["lrs"] else ""
    name = f"B_p={c['B_p']} n={c['n']} {lr}seed={c['seed']}"
    return name, training(c), run_folder(c) / "out.txt"


def check_evaluations(grid):
    """Raise BadInput if a run would have fewer than the three evaluations that the analysis needs.

    0 is the user's word for none, so it gets a warning only.
    """
    for c in grid:
        if c["eval_every"] > all_rollouts(c) - c["B_p"] * c["n"]:
            raise BadInput(f"--eval_every={c['eval_every']}: a run of B_p = {c['B_p']}, n = "
                           f"{c['n']}, C = {c['C']} would have two evaluations, but the analysis "
                           "needs three; give a smaller one")
    if any(c["eval_every"] == 0 for c in grid):
        print("--eval_every=0: runs without evaluations have no report", file=sys.stderr)


def list_failed(preset, argv):
    """Print the planned runs that have not ended, and what they said last; 1, or 0 without one."""
    lines = []
    for c in (c for cfg in arms(preset, argv) for c in planned(cfg["runs"])):
        at = run_folder(c)
        if not finished(c, at) and not pruned(c):
            how_far = f"{progress(at)[0]} of {all_rollouts(c)} rollouts"
            lines.append(f"  {at}  {how_far}  {last_line(at / 'out.txt')}".rstrip())
    if lines:
        print(f"\n{len(lines)} runs failed or are missing; the same command tries them again:")
        print("\n".join(lines))
    return 1 if lines else 0


# --------------------------------------------------------------------------------------------------
# Pruned sweeps: all cells run to C/8; there, at C/4 and at C/2 a third of those of each B_p ends
#
# It is the third whose reward is the lowest even with what their last octave of budget brought once
# more: in log C curves flatten, and a larger n rises later. The end record of a run is the whole
# decision: a call that was killed ranks the same runs again, and a cell that comes later meets at
# each rung the others as they were there. What it costs and saves: tests/bench/prune.py.

def pruning():
    return os.environ.get("PRUNE") == "1"


def pruned(c):
    """Whether PRUNE=1 ended a cell's run. Without it the run goes on."""
    return progress(run_folder(c))[1] == "pruned"


def rungs(cfg):
    """The budgets at which a pruned sweep ends cells, behind two evaluations or more."""
    return [C for C in (cfg["C"] // part for part in (8, 4, 2)) if C >= 2 * cfg["eval_every"]]


def next_rung(cfg):
    """The runs of a pruned sweep's next rung that are still to do, after ending those before it."""
    live = cells(cfg)
    for C in rungs(cfg):
        here = [dict(c, C=C) for c in live if c["B_p"] * c["n"] <= C]
        short = [c for c in here if not finished(c, run_folder(c))
                 and progress(run_folder(c))[0] < all_rollouts(c)]
        todo = [c for c in short if not pruned(c)]
        if todo:
            print(f"rung C = {C} of {cfg['C']}: {len(todo)} runs to do", file=sys.stderr)
            return todo
        ended = {run_folder(c) for c in short}  # at a rung before
        live = [c for c in live if run_folder(c) not in ended]
        end_some([c for c in here if run_folder(c) not in ended], C)
    return unfinished([cfg])


def end_some(here, C):
    """End a third of the cells that reached the rung C, each B_p by itself."""
    grid = {}
    for c in here:
        grid.setdefault(c["B_p"], {}).setdefault(c["n"], []).append(c)
    for B_p, same in grid.items():
        curves = {n: [point for c in runs for point in evaluations(c)] for n, runs in same.items()}
        for n, why in last_third(curves, C).items():
            warm = derive(same[n][0])["M"] >= max(2, same[n][0]["warmup"])
            beyond = any(progress(run_folder(c))[0] > all_rollouts(c) for c in same[n])
            if warm and not beyond and not all(map(pruned, same[n])):
                print(f"pruned at C = {C}: B_p = {B_p}, n = {n} ({why})", file=sys.stderr)
                for c in same[n]:
                    end_as_pruned(run_folder(c))


def evaluations(c):
    """The evaluations of a cell's run by its log: [(rollouts, reward)]."""
    points = []
    for r in read_log(run_folder(c) / "log.jsonl"):
        if r["type"] == "eval" and r["set"] == c["eval_set"]:
            reward = c["metric"] == "reward"  # not logged if all rewards are 0 or 1
            worth = at_k("avg@1" if reward else c["metric"], r["samples"])
            mean = fmean(worth[right] for right in r["correct"])
            points.append((r["rollouts"], r.get("reward", mean) if reward else mean))
    return points


def last_third(curves, C):
    """The n of one B_p that end at a budget of C rollouts: {n: why}.

    curves: {n: [(rollouts, reward)]} of all seeds. Reward at C and its rise an octave are those of
    a line in log C through the last two octaves; an n with fewer than three evaluations to there
    neither ends nor counts.
    """
    seen = []
    for n, points in curves.items():
        near = [(math.log2(x / C), y) for x, y in points if C / 4 < x <= C]
        if len({x for x, _ in near}) >= 2 and sum(x <= C for x, _ in points) >= 3:
            rise, now = linear_regression(*zip(*near))
            seen.append((now + max(0, rise), n, now))
    seen.sort(reverse=True)
    return {n: f"reward {now:.3f}, {hope:.3f} with its last octave once more, of {len(seen)} cells"
            for hope, n, now in seen[math.ceil(2 * len(seen) / 3):]}


def end_as_pruned(folder):
    """One record behind the log of the run in `folder`; half a line of a killed call goes first."""
    rollouts, status = progress(folder)
    if status not in ("pruned", "diverged"):
        with open(folder / "log.jsonl", "r+b", buffering=0) as file:
            file.truncate(file.read().rfind(b"\n") + 1)
            append(file, dict(type="end", status="pruned", rollouts=rollouts))


# --------------------------------------------------------------------------------------------------

def commands(preset, argv):
    """Write the plan and print the commands that are still to do, one a line."""
    sweeps = arms(preset, argv)
    todo = unfinished(sweeps)
    check_evaluations([c for cfg in sweeps for c in cells(cfg)])
    for cfg in sweeps:  # so that `failed` and the analysis know what was asked
        plan, folder = read_plan(cfg["runs"]), Path(cfg["runs"])
        if plan and experiment(plan["config"]) != experiment(cfg) and any(
                folder.glob("*/log.jsonl*")):
            print(f"{folder}/sweep.json is kept: it is the plan of the runs that are there, of "
                  "another experiment. Another OUT= or --tag= plans this one", file=sys.stderr)
        else:
            save_plan(cfg, shared=preset not in RECIPES)
    todo = next_rung(sweeps[0]) if pruning() else todo
    say_price(preset, argv, sweeps, sys.stderr)
    print("".join(f"{training(c)}\n" for c in todo), end="")


def main(argv):
    verb = argv[0] if argv else "--help"
    preset, words = preset_of(argv[1:])
    if verb.startswith("-") or {"-h", "--help"} & set(words):
        parse(["--help"], __doc__)
    check_environment()
    if verb == "folder":
        warn_of_misspelt_variables()
        arms(preset, words)  # ends here on a preset that is none
        print(sweep_folder(preset, words))
    elif verb == "requirements":
        print(*requirements(words))
    elif verb == "price":
        prices(words)
    elif verb in ("commands", "run", "failed"):
        return dict(commands=commands, run=run, failed=list_failed)[verb](preset, words)
    else:
        raise BadInput(f"{verb}: no such verb; requirements, folder, price, commands, run or "
                       "failed")


if __name__ == "__main__":
    entry(main)
