"""core/sweep.py: plan the runs of a sweep, start them, watch them, and end the worst ones early.

    python -m core.sweep commands easy --ns="2 4" --bps=8  # print the commands still to run
    python -m core.sweep run easy                          # run them and print the progress
    python -m core.sweep failed easy                       # list planned runs that did not end
    python -m core.sweep price --data=data/guru_math       # print what sweeps and studies cost

run_sweep.sh calls these, and also `folder` (print the sweep's folder) and `requirements` (print the
files that pip installs). core/prepare.py makes what the runs need.

A sweep has one run for each cell of seeds x bps x ns. A study (presets.json of the data folder) is
several sweeps, its arms, each in a folder below the study's. `commands` and `run` write sweep.json
into a sweep's folder: `config` and `cells` of the latest request.

Environment: PYTHON, LAUNCH, JOBS, GPUS_PER_RUN, CUDA_VISIBLE_DEVICES, PRUNE, see run_sweep.sh.
Planning needs only the standard library.
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
from statistics import linear_regression

import config
from config import (BadInput, RECIPES, all_rollouts, complete, derive, entry, experiment,
                    parse, read_json, run_name)
from core import cost, machine
from core.log import append, finished, progress, read_log, read_plan, save_json
import verifier

ROOT = Path(__file__).parents[1]

# --------------------------------------------------------------------------------------------------
# Cells, sweeps, studies

def cells(cfg):
    """Return the runs of a sweep, seeds x bps x ns x lrs with B_p n <= B_max, as resolved dicts.

    Large B comes first. These runs take the least time per rollout, so a sweep shows early whether
    its largest batches fit into memory. Raise BadInput if no cell is left or a cell cannot be a
    run.
    """
    grid = [dict(cfg, B_p=B_p, n=n, seed=seed, lr_base=lr) for seed in distinct(cfg["seeds"])
            for B_p in distinct(cfg["bps"]) for n in distinct(cfg["ns"])
            if not cfg["B_max"] or B_p * n <= cfg["B_max"] for lr in config.lrs_of(cfg)]
    for c in grid:
        config.check(c)
        config.check_run(c)
    if not grid:
        raise BadInput(f"--B_max={cfg['B_max']}: B_p n is above it for all of --bps={cfg['bps']!r} "
                       f"and --ns={cfg['ns']!r}; raise it, or give smaller values")
    return sorted(grid, key=lambda c: (c["seed"], -c["B_p"] * c["n"]))


def distinct(text):
    """Return the whole numbers in a text, each once, in order."""
    return dict.fromkeys(map(int, text.split()))


def cells_above_B_max(sweeps):
    """Return a line that names the (B_p, n) that `cells` leaves out, or "" if there are none."""
    out = dict.fromkeys(f"{B_p} x {n}" for cfg in sweeps for B_p in distinct(cfg["bps"])
                        for n in distinct(cfg["ns"]) if 0 < cfg["B_max"] < B_p * n)
    line = f"not run, because B_p x n is above --B_max={sweeps[0]['B_max']}: {', '.join(out)}"
    return line if out else ""


def run_folder(c):
    return Path(c["runs"]) / run_name(c)


def save_plan(cfg, shared=False):
    """Write sweep.json of a sweep, dict(config, cells), for the analysis and for `failed`.

    shared: keep earlier cells of the same experiment, because several studies may share this arm.
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
    """Return the cells in sweep.json of a sweep's folder; [] without the file."""
    plan = read_plan(folder)
    return [dict(complete(plan["config"]), runs=str(folder), **cell)
            for cell in plan.get("cells", ())]


def planned_before(cfg):
    """Return how earlier runs in a sweep's folder differ from `cfg`, if the analysis of `cfg` would
    leave them out.

    Returns "another experiment", or "lr_base=..." with the values that `cfg` lacks, or "" if no
    runs would be left out.
    """
    plan = read_plan(cfg["runs"])
    if not plan or not any(Path(cfg["runs"]).glob("*/log.jsonl*")):
        return ""
    if experiment(plan["config"]) != experiment(cfg):
        return "another experiment"
    lrs = set(config.lrs_of(complete(plan["config"]))) - set(config.lrs_of(cfg))
    return f"lr_base={' '.join(map(str, sorted(lrs)))}" if lrs else ""


def preset_of(argv):
    """Return (preset, other words) of a command line; the default preset is easy."""
    named = bool(argv) and not argv[0].startswith("-")
    return (argv[0], argv[1:]) if named else (config.config["recipe"], argv)


def read_presets(data):
    """Return presets.json of a data folder, {study or recipe: dict(about, arms)}; {} without it."""
    path = Path(data) / "presets.json"
    return read_json(path) if path.exists() else {}


def presets(data):
    """Return the studies of a data folder, {name: dict(about, minutes, arms)}.

    arms: {name: command-line words}. An arm is one sweep in its own folder; studies that name the
    same arm share its runs. If the folder has no studies, return the paper's (data/guru_math).
    """
    for folder in (data, ROOT / "data/guru_math"):
        studies = {name: study for name, study in read_presets(folder).items()
                   if name not in RECIPES}
        if studies:
            break
    return studies


def recipe_words(preset, data, argv):
    """Return the command-line words that presets.json of a data folder gives a recipe's sweep.

    If the words name a model, they were chosen for this model, so return [] if argv names another.
    """
    own = read_presets(data).get(preset) if preset in RECIPES else None
    words = shlex.split(own["arms"][preset]) if own else []
    chosen, asked = ([w for w in ws if w.startswith("--model=")] for ws in (words, argv))
    return [] if chosen and asked and chosen != asked else words


def within_split(cfg, words, argv):
    """Return `cfg`, with D = 0 (all problems) if its split has fewer than the D of presets.json.

    The D of presets.json (words) was chosen for one model. For any other model it is an upper
    bound. A D on the command line (argv) is kept.
    """
    path = Path(cfg["train_set"])
    ours = any(word.startswith("--D=") for word in words)
    if not ours or any(word.startswith("--D=") for word in argv) or not path.exists():
        return cfg
    with open(path, "rb") as file:
        size = sum(bool(line.strip()) for line in file)
    return cfg if cfg["D"] <= size else dict(cfg, D=0)


def sweep_folder(preset, argv):
    """Return the folder of a recipe's sweep, or the one that holds a study's arms."""
    first = f"--recipe={preset}"
    if preset not in RECIPES:
        first = f"--runs={config.sweep_folder(parse(argv), 'atlas')}"
    return parse([first, *argv])["runs"]


def arms(preset, argv):
    """Return the sweeps of a preset as resolved dicts: one for a recipe, one per arm for a study.

    argv overrides presets.json, except the keys that an arm compares.
    """
    plain = parse(argv)
    if config.is_toy(plain):
        raise BadInput(f"--data={plain['data']}: run_sweep.sh trains language models; for the "
                       "toy run python bandit_toy.py sweep")
    if pruning() and (preset not in RECIPES or plain["lrs"] or plain["metric"] == "train"):
        raise BadInput("PRUNE=1: works only for easy, hard and mixed, with one lr_base and a "
                       "metric by evaluations; a study's figures need all runs")
    if preset in RECIPES:
        words = recipe_words(preset, plain["data"], argv)
        return [within_split(parse([f"--recipe={preset}", *words, *argv]), words, argv)]
    known = presets(plain["data"])
    if preset not in known:
        near = difflib.get_close_matches(preset, [*RECIPES, *known], 1, 0)[0]
        raise BadInput(f"{preset}: no such preset of --data={plain['data']}, the nearest is "
                       f"{near}; expected one of {', '.join([*RECIPES, *known])}")
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
    """Raise BadInput if JOBS or GPUS_PER_RUN is invalid on any machine."""
    for name, least, known in (("JOBS", 1, r"|[1-9]\d{0,5}"), ("GPUS_PER_RUN", 0, r"|\d{1,4}")):
        if not re.fullmatch(known, value := os.environ.get(name, "")):
            raise BadInput(f"{name}={value}: expected a whole number, {least} or more")


# the variables that run_sweep.sh and this file read
VARIABLES = ("NS BPS SEEDS LRS C B_MAX MODEL DATA OUT TASK DRY_RUN PRUNE JOBS GPUS_PER_RUN LAUNCH "
             "PYTHON").split()


def warn_of_misspelt_variables():
    """Print a line for each environment variable whose name nearly matches one of VARIABLES."""
    def plain(name):
        return name.upper().replace("_", "").rstrip("S")

    known = {plain(name): name for name in VARIABLES}
    for name in sorted(set(os.environ) - set(VARIABLES)):
        near = [plain(name)] if len(name) < 6 else difflib.get_close_matches(
            plain(name), known, 1, 0.85)
        if near and near[0] in known:
            print(f"{name}={os.environ[name]}: run_sweep.sh does not read this variable; is "
                  f"{known[near[0]]} meant?", file=sys.stderr)


def python():
    """Return the interpreter for all stages."""
    return os.environ.get("PYTHON") or ".venv/bin/python"


def training(c):
    """Return the training command of a cell, with PYTHON, LAUNCH and GPUS_PER_RUN applied."""
    gpus = int(os.environ.get("GPUS_PER_RUN") or "1")
    config.check_processes(c, max(1, gpus))
    more = ["seed", "B_max", "out"]
    if c["device"] == "auto" and parse([f"--data={c['data']}", f"--model={c['model']}"])[
            "device"] == "cpu":  # the data folder says cpu, but the user asked for GPUs
        more.insert(0, "device")
    return config.command(dict(c, out=str(run_folder(c))), more, python(),
                          os.environ.get("LAUNCH", ""), gpus)


def unfinished(sweeps):
    """Return the runs of the sweeps that are still to do. Raise BadInput if one cannot start."""
    for cfg in sweeps:
        config.choose("verifier", cfg["verifier"], verifier.REWARDS)
    grid = [c for cfg in sweeps for c in cells(cfg)]
    for c in grid:
        training(c)  # raises BadInput before anything is printed or started
    return [c for c in grid if not finished(c, run_folder(c)) and not (pruning() and pruned(c))]


def requirements(argv):
    """Return the requirement files that pip installs for a sweep.

    vLLM's file is included if this machine has GPUs. --engine=vllm includes it on a login node
    without GPUs too.
    """
    cfg = parse(argv)
    gpus = cfg["device"] != "cpu" and os.environ.get("GPUS_PER_RUN") != "0"
    vllm = cfg["engine"] == "vllm" or (cfg["engine"] == "auto" and machine.visible_gpus())
    return ["requirements.txt"] + ["requirements-vllm.txt"] * bool(gpus and vllm)


def slots(sweeps):
    """Return the places for runs, as a list of the environment variables of each place.

    Each place has one run at a time. Also set the variables that all runs inherit. Raise BadInput
    if JOBS and GPUS_PER_RUN do not fit this machine.
    """
    jobs, each = int(os.environ.get("JOBS") or 0), os.environ.get("GPUS_PER_RUN", "")
    size = int(each or any(c["device"] != "cpu" for c in sweeps))
    if size == 0:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    gpus = machine.visible_gpus()
    room = len(gpus) // max(size, 1)
    if size and each and not room:
        raise BadInput(f"GPUS_PER_RUN={each}: there are {len(gpus)} GPUs here; give at most "
                       "that many, or 0 for the CPU")
    if not room:
        return [{}] * (jobs or machine.cores())
    # threads per process: one process per GPU, and these share the cores. On a CPU the scripts set
    # the number of threads
    os.environ.setdefault("OMP_NUM_THREADS", str(1 + (machine.cores() - 1) // len(gpus)))
    vllm = any(c["engine"] != "hf" and c["device"] != "cpu" for c in sweeps)
    # vLLM's sleep asserts that no other process takes memory on the GPU meanwhile
    if jobs > room and (size > 1 or vllm):
        raise BadInput(f"JOBS={jobs}: {len(gpus)} GPUs have room for {room} runs of {size}, "
                       f"because vLLM needs a GPU to itself; give JOBS={room} or less, "
                       "--engine=hf to share GPUs, or GPUS_PER_RUN=0 for the CPU")
    starts = [i * size % len(gpus) for i in range(jobs or room)]
    return [dict(CUDA_VISIBLE_DEVICES=",".join(gpus[i:i + size])) for i in starts]


def check_gpus(sweeps):
    """Raise BadInput if the runs cannot start on this machine, before anything is measured.

    Without this check every run would fail in turn, or use the CPU. With LAUNCH the runs may start
    on another machine or in a container, so nothing is checked.
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
                           "takes weeks. Give MODEL=FOLDER with a small model, GPUS_PER_RUN=0 to "
                           "use the CPU anyway, or DRY_RUN=1 to plan for another machine")
        return
    kernel = ["triton"] * any(c["engine"] != "hf" for c in on_gpu)
    done = subprocess.run([python(), str(ROOT / "core/probe.py"), *kernel], capture_output=True,
                          text=True)
    try:
        seen = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):  # torch is not installed, or crashed in native code
        seen = dict(gpus=0, why=" ".join(done.stderr.split())[-200:])
    if seen["gpus"] < there:
        raise BadInput(f"there are {there} GPUs here, and the torch of {python()} can use "
                       f"{seen['gpus']}: {seen['why'] or 'it sees no more'}. GPUS_PER_RUN=0 runs "
                       "on the CPU" + ", --engine=hf without Triton" * ("Triton" in seen["why"]))


# --------------------------------------------------------------------------------------------------
# Cost, by core/cost.py

def to_measure(sweeps):
    """Return how many problems sample.py will measure before the runs.

    Returns 0 if the splits exist, None if the problem file does not exist yet. The levels of a
    study are not counted.
    """
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
    """Return (how many runs in a folder have measured GPU-hours, measured / estimated GPU-hours).

    Returns (0, 1.0) if no run used a GPU.
    """
    hours = []
    for path in Path(folder).glob("**/log.jsonl"):
        with contextlib.suppress(BadInput, KeyError):  # the analysis reports broken logs
            hours.append(cost.measured_hours(read_log(path)))
    hours = [pair for pair in hours if pair]
    return len(hours), sum(a for a, _ in hours) / sum(b for _, b in hours) if hours else 1.0


DEEP = 150  # updates; in the paper, larger n take the lead after 155 to 264 updates


def price(preset, argv):
    """Return a line: what the runs of a preset cost, and which have too few updates."""
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
        words += f", scaled to the logs of {known} runs ({factor:.2g} of the estimate)"
    if preset in RECIPES and problems:
        words += f", {' or '.join(first)} of them to measure {problems:,} problems"
    if preset in RECIPES and problems is None:
        words += ", and more to measure the problems, which do not exist yet"
    gigabytes = cost.disk_bytes(cost.sizes(cost.read_shape(runs[0]["model"])), runs) / 1e9
    words += f"; {gigabytes:,.0f} GB of disk"
    short = {c["n"]: derive(c)["M"] for c in runs if derive(c)["M"] < DEEP}
    if short and preset in RECIPES:
        told = ", ".join(f"n = {n} ({short[n]})" for n in sorted(short))
        words += f"; too short to show a late gain, with fewer than {DEEP} updates: {told}"
    return words


def say_price(preset, argv, sweeps, file=sys.stdout):
    """Print the cost of a sweep on GPUs before it starts."""
    if any(c["device"] != "cpu" for c in sweeps) and (
            machine.visible_gpus() or not Path(sweeps[0]["model"]).exists()):
        print(f"{preset}: {price(preset, argv)}", file=file, flush=True)


def prices(argv):
    """Print the cost of every sweep and every study."""
    cfg = parse(argv)
    for name in RECIPES:
        try:
            print(f"  {name:13s} {price(name, argv)}")
        except BadInput as e:
            raise BadInput(f"{name}: {e}") from None
    print("Studies of the paper, each one or more sweeps; studies share runs:")
    for name, study in presets(cfg["data"]).items():
        told = price(name, argv)
        if "minutes" in study and not any(word.startswith("--C=") for word in argv):
            told += f", {study['minutes']} minutes on 2 cores"
        print(f"  {name:13s} {study['about']}\n{'':15s} {told}")


# --------------------------------------------------------------------------------------------------
# The runs: start, watch, collect

def last_line(path):
    """Return the last line of a process's output.

    If the output has an error of a run, return the error, because torchrun prints a table after it.
    """
    lines = []
    with contextlib.suppress(OSError), open(path, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 9000))
        text = file.read().decode(errors="replace")
        lines = [line for line in text.splitlines() if line.strip()]  # a progress bar ends in \r
    errors = [line for line in lines if re.match(r"(train_grpo.py|\[rank\d+\]): \S", line)]
    return [*errors[-1:], *lines[-1:], ""][0]


def spawn(command, out, place):
    """Start a process from shell words, with its output in the file `out`.

    place: extra environment variables of the process. The process gets its own session, because
    torchrun and srun would pass Ctrl-C on to the ranks. A shell splits the command, because LAUNCH
    may contain quotes. `env` allows LAUNCH="A=1 nice".
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    with open(out, "wb") as file:
        return subprocess.Popen(["bash", "-c", f"exec env {command}"], env=os.environ | place,
                                stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                                start_new_session=True)


def pool(jobs, places, stop):
    """Run jobs (name, shell words, output file) in order, one per place at a time. Return how many
    failed.

    Once `stop` is not empty, no job starts any more. The running jobs get SIGTERM, on which a run
    saves a checkpoint, and `pool` waits until they end. The same happens if another process stopped
    a job (Slurm signals the steps of a job), or if the reader of our output has ended.
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
                how = f"FAILED ({code})" if code else "done"
                print(f"{clear}{how}  {name}:  {last_line(out)}", flush=True)
                failed += bool(code)
                if code == 128 + signal.SIGTERM:
                    stop.append(code)
            if time.time() - shown >= every:
                shown = time.time()
                lines = [f"  {name}  {last_line(out) or 'starting'}"[:112]
                         for name, out, _ in running.values()]
                lines.append(f"  {len(jobs) - len(waiting) - len(running)} of {len(jobs)} ended, "
                             f"{len(waiting)} waiting; Ctrl-C stops, the same command continues")
                end, back = ("\033[K\n", f"\033[{len(lines)}A") if terminal else ("\n", "")
                print(end.join(lines) + end + back, end="", flush=True)  # to be overwritten
    finally:
        for _, _, process in running.values():
            process.terminate()
        with contextlib.suppress(OSError):  # the reader of our output, a tee, may have ended
            print(clear, end="", flush=True)
            if stop or running:
                print(f"\nstopping: {len(running)} jobs save what they have; the same command "
                      "continues them", flush=True)
        for _, _, process in running.values():
            process.wait()
    return failed


def handle_signals(numbers, handler):
    """Set a handler for some signals, but keep an ignored SIGHUP ignored, for nohup."""
    for number in numbers:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)


def run(preset, argv):
    """Train all unfinished runs of a preset. Exit with 130 if stopped."""
    sweeps, folder, stop = arms(preset, argv), sweep_folder(preset, argv), []
    todo, grid = unfinished(sweeps), [c for cfg in sweeps for c in cells(cfg)]
    check_evaluations(grid)
    places = slots(sweeps)
    check_gpus(sweeps)
    handle_signals((signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
                   lambda number, _: stop.append(number))
    for cfg in sweeps:
        if (other := planned_before(cfg)) and preset in RECIPES:
            print(f"{cfg['runs']} also has runs of {other}. They are kept, but the analysis leaves "
                  "them out. OUT=FOLDER gives this sweep its own folder", file=sys.stderr)
        save_plan(cfg, shared=preset not in RECIPES)
    begun = sum(progress(run_folder(c))[0] > 0 for c in todo)
    stopped = f" ({begun} continue where they stopped)" if begun else ""
    try:
        print(f"sweep {folder}: {len(grid)} runs, {len(todo)} to do{stopped}, "
              f"{sum(map(all_rollouts, grid)):,} rollouts in all, {len(places)} runs at a time",
              flush=True)
        print(settings_of(sweeps[0]), flush=True)
        if above := cells_above_B_max(sweeps):
            print(above, flush=True)
        if len(todo) < len(grid):
            print("finished runs are not repeated; --tag=NAME starts new ones", flush=True)
        if todo:
            warn_of_mixed_commits(grid)
        for batch in iter(lambda: next_rung(sweeps[0]), []) if pruning() else [todo]:
            # most updates first: small batches take the longest and should not be last
            batch = sorted(batch, key=lambda c: -derive(c)["M"])
            failed = pool([job(c) for c in batch], places, stop)
            if failed or stop:
                break
    except BrokenPipeError:
        stop.append("no reader")
    if stop:
        os._exit(130)  # skips the flush, which fails without a reader
    return 0


def settings_of(cfg):
    """Return two lines: the main settings of a sweep, and what the printed names mean."""
    paper = all(cfg[key] == config.config[key] for key in ("lr_base", "C"))
    lrs = " or ".join(f"{lr:g}" for lr in config.lrs_of(cfg))
    return (f"settings: C = {cfg['C']:,} rollouts per run, lr_base = {lrs}, "
            f"D = {cfg['D'] or 'all'} training problems, answers of at most "
            f"{cfg['max_new_tokens']} tokens"
            + ", the paper's scale for a 7B model" * paper
            + f"\nB_p = problems per update, n = rollouts per problem, avg@{cfg['k']} = share of "
            "rollouts solved on validation problems")


def warn_of_mixed_commits(grid):
    """Warn once if runs of the sweep were begun by another commit, or by edited code."""
    headers = (next(iter(read_log(log)), {}) for log in
               (run_folder(c) / "log.jsonl" for c in grid) if log.exists())
    if text := machine.mixed_code({header.get("commit") for header in headers}):
        print(f"runs of this sweep were {text}", file=sys.stderr, flush=True)


def job(c):
    """Return a cell's run for `pool`: (name, shell words, output file)."""
    lr = f"lr_base={c['lr_base']:g} " if c["lrs"] else ""
    name = f"B_p={c['B_p']} n={c['n']} {lr}seed={c['seed']}"
    return name, training(c), run_folder(c) / "out.txt"


def check_evaluations(grid):
    """Raise BadInput if a run would have fewer than the three evaluations that the analysis needs.

    --eval_every=0 asks for no evaluations, so it only gives a warning.
    """
    for c in grid:
        if c["eval_every"] > all_rollouts(c) - c["B_p"] * c["n"]:
            raise BadInput(f"--eval_every={c['eval_every']}: a run of B_p = {c['B_p']}, n = "
                           f"{c['n']}, C = {c['C']} would have two evaluations, but the analysis "
                           f"needs three; give --eval_every={max(1, c['C'] // 8)} or a larger C")
    if any(c["eval_every"] == 0 for c in grid):
        print("--eval_every=0: there will be no report, because it needs evaluations",
              file=sys.stderr)


def list_failed(preset, argv):
    """Print the planned runs that have not ended, each with its last line of output.

    Return 1 if there are any, else 0.
    """
    lines = []
    for c in (c for cfg in arms(preset, argv) for c in planned(cfg["runs"])):
        at = run_folder(c)
        if not finished(c, at) and not pruned(c):
            how_far = f"{progress(at)[0]} of {all_rollouts(c)} rollouts"
            lines.append(f"  {at}  {how_far}  {last_line(at / 'out.txt')}".rstrip())
    if lines:
        print(f"\n{len(lines)} runs failed or are missing. The same command tries them again; "
              "out.txt in a run's folder has its whole output:")
        print("\n".join(lines))
    return 1 if lines else 0


# --------------------------------------------------------------------------------------------------
# Pruned sweeps: all cells run to C/8. At C/8, C/4 and C/2, a third of the cells of each B_p ends
#
# A cell is ranked by its reward plus its gain over the last octave of budget, because a larger n
# rises later, and curves flatten in log C. The decision is stored only as a run's end record. So if
# a call is killed, the next call ranks the same runs again. A cell that is added later is compared
# at each rung with the other cells' rewards at this rung. tests/bench/prune.py measures what
# pruning costs and saves.

def pruning():
    return os.environ.get("PRUNE") == "1"


def pruned(c):
    """Return whether PRUNE=1 ended a cell's run. Without PRUNE=1 such a run continues."""
    return progress(run_folder(c))[1] == "pruned"


def rungs(cfg):
    """Return the budgets at which a pruned sweep ends cells, each after two evaluations or more."""
    return [C for C in (cfg["C"] // part for part in (8, 4, 2)) if C >= 2 * cfg["eval_every"]]


def next_rung(cfg):
    """End the worst cells of all complete rungs; return the runs to do for the next rung."""
    live = cells(cfg)
    for C in rungs(cfg):
        here = [dict(c, C=C) for c in live if c["B_p"] * c["n"] <= C]
        short = [c for c in here if not finished(c, run_folder(c))
                 and progress(run_folder(c))[0] < all_rollouts(c)]
        todo = [c for c in short if not pruned(c)]
        if todo:
            print(f"rung C = {C} of {cfg['C']}: {len(todo)} runs to do", file=sys.stderr)
            return todo
        ended = {run_folder(c) for c in short}  # pruned at an earlier rung
        live = [c for c in live if run_folder(c) not in ended]
        end_some([c for c in here if run_folder(c) not in ended], C)
    return unfinished([cfg])


def end_some(here, C):
    """End a third of the cells that reached the rung C, separately for each B_p."""
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
    """Return the evaluations in the log of a cell's run: [(rollouts, reward)]."""
    from core.runs import read_run  # here, because planning needs no numpy
    try:
        run = read_run(run_folder(c), c["metric"], part=c["eval_set"])
    except BadInput:
        return []
    return list(zip(run["rollouts"], run["reward"]))


def last_third(curves, C):
    """Return {n: why}, the n of one B_p that end at a budget of C rollouts.

    curves: {n: [(rollouts, reward)]} of all seeds. A line in log C through the last two octaves
    gives the reward at C and its gain per octave. An n with fewer than three evaluations up to C is
    not ranked.
    """
    seen = []
    for n, points in curves.items():
        near = [(math.log2(x / C), y) for x, y in points if C / 4 < x <= C]
        if len({x for x, _ in near}) >= 2 and sum(x <= C for x, _ in points) >= 3:
            rise, now = linear_regression(*zip(*near))
            seen.append((now + max(0, rise), n, now))
    seen.sort(reverse=True)
    return {n: f"reward {now:.3f}, {hope:.3f} with its gain of the last octave added, in the "
               f"lowest third of {len(seen)} cells"
            for hope, n, now in seen[math.ceil(2 * len(seen) / 3):]}


def end_as_pruned(folder):
    """Append the "pruned" end record to a run's log, after cutting off a partial last line."""
    rollouts, status = progress(folder)
    if status not in ("pruned", "diverged"):
        with open(folder / "log.jsonl", "r+b", buffering=0) as file:
            file.truncate(file.read().rfind(b"\n") + 1)
            append(file, dict(type="end", status="pruned", rollouts=rollouts))


# --------------------------------------------------------------------------------------------------

def commands(preset, argv):
    """Write the plan and print the commands that are still to run, one per line."""
    sweeps = arms(preset, argv)
    todo = unfinished(sweeps)
    check_evaluations([c for cfg in sweeps for c in cells(cfg)])
    for cfg in sweeps:  # `failed` and the analysis need the plan
        if planned_before(cfg) == "another experiment":
            print(f"{cfg['runs']}/sweep.json is kept: it plans runs of another experiment that are "
                  "in this folder. Give OUT=FOLDER to plan these runs as well", file=sys.stderr)
        else:
            save_plan(cfg, shared=preset not in RECIPES)
    if above := cells_above_B_max(sweeps):
        print(above, file=sys.stderr)
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
        arms(preset, words)  # raises BadInput if the preset does not exist
        print(sweep_folder(preset, words))
    elif verb == "requirements":
        print(*requirements(words))
    elif verb == "price":
        prices(words)
    elif verb in ("commands", "run", "failed"):
        return dict(commands=commands, run=run, failed=list_failed)[verb](preset, words)
    else:
        raise BadInput(f"{verb}: no such verb; expected requirements, folder, price, commands, "
                       "run or failed")


if __name__ == "__main__":
    entry(main)
