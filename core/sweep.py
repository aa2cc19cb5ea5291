"""core/sweep.py: plan the runs of a sweep, start them, and end the worst cells early.

    python -m core.sweep commands easy --ns="2 4" --bps=8  # print the commands still to run
    python -m core.sweep run easy                          # run them and print the progress
    python -m core.sweep failed easy                       # list planned runs that did not end
    python -m core.sweep price --data=data/guru_math       # print what sweeps and studies cost

run_sweep.sh calls these commands, and also `folder` (print the sweep's folder) and `requirements`
(print the files that pip installs). core/prepare.py makes the problems and models that runs need.

A sweep has one run for each cell of seeds x bps x ns x lrs. A study is one or more sweeps, called
arms. presets.json of the data folder lists the studies, and each arm has a folder below the study's
folder. `commands` and `run` write the plan of a sweep, dict(config, cells), to sweep.json in the
sweep's folder.

The environment variables PYTHON, LAUNCH, JOBS, GPUS_PER_RUN, CUDA_VISIBLE_DEVICES and PRUNE are
described in run_sweep.sh. Planning needs only the standard library.
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
from pathlib import Path
from statistics import linear_regression

import config
from config import (BadInput, RECIPES, all_rollouts, complete, derive, entry, experiment,
                    parse, read_json, run_name)
from core import cost, machine
from core.models import check_model_path
from core.log import append, finished, progress, read_log, read_plan, save_json
from core.pool import handle_signals, last_line, pool
import verifier

ROOT = Path(__file__).parents[1]

# --------------------------------------------------------------------------------------------------
# Cells, sweeps, studies

def cells(cfg):
    """Return the runs of a sweep, seeds x bps x ns x lrs with B_p n <= B_max, as resolved dicts.

    The cells with the largest B_p n come first, so that a sweep shows early whether its largest
    batches fit into memory. Raise BadInput if no cell is left or if the run of a cell is invalid.
    """
    grid = [dict(cfg, B_p=B_p, n=n, seed=seed, lr_base=lr) for seed in distinct(cfg["seeds"])
            for B_p in distinct(cfg["bps"]) for n in distinct(cfg["ns"])
            if not cfg["B_max"] or B_p * n <= cfg["B_max"] for lr in config.lrs_of(cfg)]
    try:
        for c in grid:
            config.check(c)
            config.check_run(c)
    except BadInput:
        # If the model's folder is missing, its defaults.json was not read. C and ns may then look
        # wrong although the missing folder is the only cause. In this case raise an error that
        # names the missing folder
        if not config.is_inside(cfg["model"], cfg["data"]):
            check_model_path(cfg["model"])
        raise
    if not grid:
        raise BadInput(f"--B_max={cfg['B_max']}: B_p n is above it for all of --bps={cfg['bps']!r} "
                       f"and --ns={cfg['ns']!r}; raise it, or give smaller values")
    return sorted(grid, key=lambda c: (c["seed"], -c["B_p"] * c["n"]))


def distinct(text):
    """Return the whole numbers in a text, without duplicates, as the keys of a dict."""
    return dict.fromkeys(map(int, text.split()))


def run_folder(c):
    return Path(c["runs"]) / run_name(c)


def save_plan(cfg, shared=False):
    """Write sweep.json of a sweep, dict(config, cells), for the analysis and for `failed`.

    shared: also keep the cells of an earlier plan for the same experiment, because several studies
    may share this arm.
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


def write_plans(preset, sweeps, dry_run=False):
    """Write sweep.json of each sweep. Print which runs and cells the analysis will leave out.

    dry_run: do not replace the plan of another experiment, because its runs may still be analysed.
    """
    for cfg in sweeps:
        other, shared = planned_before(cfg), preset not in RECIPES
        if dry_run and other == "another experiment":
            print(f"{cfg['runs']}/sweep.json is kept: it plans runs of another experiment that are "
                  "in this folder. Give OUT=FOLDER to plan these runs as well", file=sys.stderr)
            continue
        if other and not shared:
            print(f"{cfg['runs']} also has runs of {other}. They are kept, but the analysis leaves "
                  "them out. OUT=FOLDER gives this sweep its own folder", file=sys.stderr)
        save_plan(cfg, shared)
    out = dict.fromkeys(f"{B_p} x {n}" for cfg in sweeps for B_p in distinct(cfg["bps"])
                        for n in distinct(cfg["ns"]) if 0 < cfg["B_max"] < B_p * n)
    if out:
        print(f"not run, because B_p x n is above --B_max={sweeps[0]['B_max']}: {', '.join(out)}",
              file=sys.stderr)


def planned_before(cfg):
    """Return a text that names the runs in a sweep's folder that the analysis of `cfg` leaves out.

    The text is "another experiment", or "lr_base=..." with the values that `cfg` lacks, or "" if
    the analysis leaves out no run.
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
    """Return presets.json of a data folder, {study or recipe: dict(about, arms)}, or {}."""
    path = Path(data) / "presets.json"
    return read_json(path) if path.exists() else {}


def presets(data):
    """Return the studies of a data folder, {name: dict(about, minutes, arms)}.

    arms: {name: command-line words}. An arm is one sweep in its own folder. If two studies have an
    arm of the same name, they share the arm's runs. If the data folder has no studies, return the
    paper's studies (data/guru_math).
    """
    own, papers = ({name: study for name, study in read_presets(folder).items()
                    if name not in RECIPES} for folder in (data, ROOT / "data/guru_math"))
    return own or papers


def recipe_words(preset, data, argv):
    """Return the command-line words that presets.json of a data folder has for a recipe's sweep.

    If the words contain --model, they were chosen for that model. So if argv has another --model,
    return [].
    """
    own = read_presets(data).get(preset) if preset in RECIPES else None
    words = shlex.split(own["arms"][preset]) if own else []
    chosen, asked = ([w for w in ws if w.startswith("--model=")] for ws in (words, argv))
    return [] if chosen and asked and chosen != asked else words


def within_split(cfg, words, argv):
    """Return `cfg`, with D = 0 (all problems) if its split has fewer than D problems.

    Only a D that comes from presets.json is replaced, because it was chosen for one model, and the
    split of another model may be smaller. A D on the command line is never replaced.

    words: the words of presets.json. argv: the command line.
    """
    ours, given = (any(word.startswith("--D=") for word in ws) for ws in (words, argv))
    size = count_problems(cfg["train_set"]) if ours and not given else 0
    return dict(cfg, D=0) if 0 < size < cfg["D"] else cfg


def count_problems(file):
    """Return the number of problems in a file, which has one per line; 0 if there is no file."""
    with contextlib.suppress(OSError):
        return sum(bool(line.strip()) for line in Path(file).read_bytes().splitlines())
    return 0


def sweep_folder(preset, argv):
    """Return the folder of a recipe's sweep, or the folder with the arms of a study."""
    first = f"--recipe={preset}"
    if preset not in RECIPES:
        first = f"--runs={config.sweep_folder(parse(argv), 'atlas')}"
    return parse([first, *argv])["runs"]


def arms(preset, argv):
    """Return the sweeps of a preset as resolved dicts: one for a recipe, one per arm for a study.

    A word in argv overrides the same key in presets.json, with two exceptions. If an arm sets the
    model or the data folder, argv cannot change it, because the arms of the study compare models or
    data folders. If an arm sets n_train, argv cannot change the ns of this arm.
    """
    config.check_sweep_words(argv)
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
        compares_n = any(word.startswith("--n_train=") for word in words)
        keys = ("--model=", "--data=") + ("--ns=",) * compares_n
        kept = [word for word in words if word.startswith(keys)]
        cfg = within_split(parse(words + argv + kept), words, argv)
        sweeps.append(dict(cfg, runs=str(Path(folder) / name)))
    return sweeps


# --------------------------------------------------------------------------------------------------
# Training commands, and the GPUs on which each runs

def check_environment():
    """Raise BadInput if JOBS or GPUS_PER_RUN is invalid, or if the name of a variable is misspelt.

    A name is misspelt if it nearly matches one of config.VARIABLES, as SEED does. If SEEDS is set
    too, SEED is not an error, because it probably belongs to another program.
    """
    for name, least, known in (("JOBS", 1, r"|[1-9]\d{0,5}"), ("GPUS_PER_RUN", 0, r"|\d{1,4}")):
        if not re.fullmatch(known, value := os.environ.get(name, "")):
            raise BadInput(f"{name}={value}: expected a whole number, {least} or more")
    known = {config.plain(name).rstrip("s"): name for name in config.VARIABLES}
    for name in sorted(set(os.environ) - set(config.VARIABLES)):
        word = config.plain(name).rstrip("s")
        near = difflib.get_close_matches(word, known, 1, 0.93 if len(word) > 5 else 1)
        if near and os.environ[name] and not os.environ.get(known[near[0]]):
            raise BadInput(f"{name}={os.environ[name]}: run_sweep.sh does not read {name}; set "
                           f"{known[near[0]]} instead. If {name} is for another program, give "
                           f"{known[near[0]]} as well, or start with env -u {name}")


def python():
    """Return the Python interpreter that runs all stages: $PYTHON or the one in .venv."""
    return os.environ.get("PYTHON") or ".venv/bin/python"


def training(c):
    """Return the training command of a cell, with PYTHON, LAUNCH and GPUS_PER_RUN applied."""
    gpus = int(os.environ.get("GPUS_PER_RUN") or "1")
    config.check_processes(c, max(1, gpus))
    more = ["seed", "B_max", "out"]
    # --device=auto must be in the command if it overrides a device=cpu in the data folder's
    # defaults.json
    if c["device"] == "auto" and parse([f"--data={c['data']}", f"--model={c['model']}"])[
            "device"] == "cpu":
        more.insert(0, "device")
    return config.command(dict(c, out=str(run_folder(c))), more, python(),
                          os.environ.get("LAUNCH", ""), gpus)


def check_evaluations(c):
    """Raise BadInput if a run would have fewer than the three evaluations that the analysis needs.

    --eval_every=0 is no error, because it turns off the evaluations during training on purpose.
    """
    if c["eval_every"] > all_rollouts(c) - c["B_p"] * c["n"]:
        raise BadInput(f"--eval_every={c['eval_every']}: a run of B_p = {c['B_p']}, n = {c['n']}, "
                       f"C = {c['C']} would have two evaluations, but the analysis needs three; "
                       f"give --eval_every={max(1, c['C'] // 8)} or a larger C")


def unfinished(sweeps):
    """Return the unfinished runs of all sweeps. With PRUNE=1 a pruned run counts as finished.

    Raise BadInput if a run cannot start, or if the analysis could not use the run.
    """
    for cfg in sweeps:
        config.choose("verifier", cfg["verifier"], verifier.REWARDS)
    grid = [c for cfg in sweeps for c in cells(cfg)]
    for c in grid:
        training(c)
        check_evaluations(c)
    return [c for c in grid if not finished(c, run_folder(c)) and not (pruning() and pruned(c))]


def requirements(argv):
    """Return the requirement files that pip installs for a sweep.

    vLLM's file is included if this machine has GPUs, or if --engine=vllm is given, as on a login
    node without GPUs.
    """
    cfg = parse(argv)
    gpus = cfg["device"] != "cpu" and os.environ.get("GPUS_PER_RUN") != "0"
    vllm = cfg["engine"] == "vllm" or (cfg["engine"] == "auto" and machine.visible_gpus())
    return ["requirements.txt"] + ["requirements-vllm.txt"] * bool(gpus and vllm)


def slots(sweeps):
    """Return a list with one dict of environment variables for each run that may train at a time.

    A dict has the ids of the run's GPUs. Variables that are equal for all runs are set in
    os.environ. Raise BadInput if JOBS or GPUS_PER_RUN does not fit this machine, or if torch cannot
    use the GPUs.
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
    vllm = any(c["engine"] != "hf" and c["device"] != "cpu" for c in sweeps)
    # vLLM's sleep mode fails if another process takes memory on the same GPU
    if jobs > room > 0 and (size > 1 or vllm):
        raise BadInput(f"JOBS={jobs}: {len(gpus)} GPUs have room for {room} runs of {size}, "
                       f"because vLLM needs a GPU to itself; give JOBS={room} or less, "
                       "--engine=hf to share GPUs, or GPUS_PER_RUN=0 for the CPU")
    check_gpus(sweeps)
    if not room:
        return [{}] * (jobs or machine.cores())
    # each GPU has one process, and these processes share the CPU cores evenly. Without GPUs, the
    # scripts set the number of threads themselves
    os.environ.setdefault("OMP_NUM_THREADS", str(1 + (machine.cores() - 1) // len(gpus)))
    starts = [i * size % len(gpus) for i in range(jobs or room)]
    return [dict(CUDA_VISIBLE_DEVICES=",".join(gpus[i:i + size])) for i in starts]


def check_gpus(sweeps):
    """Raise BadInput if this machine's GPUs, torch or Triton cannot train the sweeps.

    Without this check all runs would fail one by one, or use the CPU. If LAUNCH is set, nothing is
    checked, because the runs may start on another machine or in a container.
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
    except (ValueError, IndexError):
        # core/probe.py printed no JSON: torch is not installed, or it crashed in native code
        seen = dict(gpus=0, why=" ".join(done.stderr.split())[-200:])
    if seen["gpus"] < there:
        raise BadInput(f"there are {there} GPUs here, and the torch of {python()} can use "
                       f"{seen['gpus']}: {seen['why'] or 'it sees no more'}. GPUS_PER_RUN=0 runs "
                       "on the CPU" + ", --engine=hf without Triton" * ("Triton" in seen["why"]))


# --------------------------------------------------------------------------------------------------
# Cost, by core/cost.py

# A run with fewer than DEEP updates is too short to show that a larger n takes the lead late. In
# the paper a larger n takes the lead after 155 to 264 updates
DEEP = 150


def to_measure(sweeps):
    """Return how many problems sample.py will measure before the runs of a recipe.

    Returns 0 if the splits exist, None if neither --measure nor a problem file gives the number.
    """
    counts = {}
    for c in sweeps:
        if not Path(c["train_set"]).exists() and Path(c["train_set"]).name != "all_train.jsonl":
            count, limit = count_problems(c["problems"]), c["measure"]
            counts[c["model"], c["problems"]] = min(count or limit, limit or count)
    return None if 0 in counts.values() else sum(counts.values())


def price(preset, argv):
    """Return a line about a preset: its runs, rollouts, GPU-hours and disk.

    The line also names each n whose runs make fewer than DEEP updates. These runs are too short to
    show that a larger n takes the lead late.
    """
    sweeps = arms(preset, argv)
    runs = list({run_folder(c): c for cfg in sweeps for c in cells(cfg)}.values())
    problems = to_measure(sweeps) if preset in RECIPES else 0
    line = cost.of_runs(runs, problems, sweep_folder(preset, argv))
    short = {c["n"]: derive(c)["M"] for c in runs if derive(c)["M"] < DEEP and c["device"] != "cpu"}
    if short and preset in RECIPES:
        names = ", ".join(f"n = {n} ({short[n]})" for n in sorted(short))
        line += f"; too short to show a late gain, with fewer than {DEEP} updates: {names}"
    return line


def say_price(preset, argv, sweeps, file=sys.stdout):
    """Print the cost of a sweep before it starts, unless it trains on a CPU."""
    if any(c["device"] != "cpu" for c in sweeps) and (
            machine.visible_gpus() or not Path(sweeps[0]["model"]).exists()):
        print(f"{preset}: {price(preset, argv)}", file=file, flush=True)


def prices(argv):
    """Print the cost of every sweep and every study."""
    cfg = parse(argv)
    for name in RECIPES:
        print(f"  {name:13s} {price(name, argv)}")
    print("Studies of the paper, each one or more sweeps; studies share runs:")
    for name, study in presets(cfg["data"]).items():
        line = price(name, argv)
        if "minutes" in study and not any(word.startswith("--C=") for word in argv):
            line += f", {study['minutes']} minutes on 2 cores"
        print(f"  {name:13s} {study['about']}\n{'':15s} {line}")


# --------------------------------------------------------------------------------------------------
# The runs

def run(preset, argv):
    """Train all unfinished runs of a preset. Exit with 130 if a signal stops them."""
    sweeps, folder, stop = arms(preset, argv), sweep_folder(preset, argv), []
    todo, grid = unfinished(sweeps), [c for cfg in sweeps for c in cells(cfg)]
    places = slots(sweeps)
    handle_signals((signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
                   lambda number, _: stop.append(number))
    write_plans(preset, sweeps)
    begun = sum(progress(run_folder(c))[0] > 0 for c in todo)
    stopped = f" ({begun} continue where they stopped)" if begun else ""
    try:
        print(f"sweep {folder}: {len(grid)} runs, {len(todo)} to do{stopped}, "
              f"{sum(map(all_rollouts, grid)):,} rollouts in all, {len(places)} at a time",
              flush=True)
        print(settings_of(sweeps[0]), flush=True)
        if not sweeps[0]["eval_every"]:
            print("--eval_every=0: there will be no report, because it needs evaluations")
        if len(todo) < len(grid):
            print("finished runs are not repeated; --tag=NAME starts new runs", flush=True)
        if todo:
            warn_of_mixed_commits(grid)
        for batch in iter(lambda: next_rung(sweeps[0]), []) if pruning() else [todo]:
            # The runs with the most updates (small batches) take the longest, so they start first
            batch = sorted(batch, key=lambda c: -derive(c)["M"])
            failed = pool([job(c) for c in batch], places, stop)
            if failed or stop:
                break
    except BrokenPipeError:
        stop.append("no reader")
    if stop:
        # os._exit, because it does not flush stdout: a flush would fail if the program that reads
        # stdout has ended
        os._exit(130)
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
    """Print a warning if some runs of the sweep were begun with another commit or edited code."""
    headers = (next(iter(read_log(log)), {}) for log in
               (run_folder(c) / "log.jsonl" for c in grid) if log.exists())
    if text := machine.mixed_code({header.get("commit") for header in headers}):
        print(f"runs of this sweep were {text}", file=sys.stderr, flush=True)


def job(c):
    """Return a cell's run for `pool`: (name, shell words, output file)."""
    lr = f"lr_base={c['lr_base']:g} " if c["lrs"] else ""
    name = f"B_p={c['B_p']} n={c['n']} {lr}seed={c['seed']}"
    return name, training(c), run_folder(c) / "out.txt"


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
              "out.txt in a run's folder has its whole output:", *lines, sep="\n")
    return int(bool(lines))


# --------------------------------------------------------------------------------------------------
# Pruned sweeps: all cells run to C/8. At C/8, C/4 and C/2, a third of the cells of each B_p ends
#
# These three budgets are called rungs. A cell is ranked by its reward plus its present gain per
# doubling of the budget. The gain is added because the reward of a larger n rises later. It is the
# gain of only one doubling, because curves flatten in log C. The decision to end a cell is stored
# only as the end record in the logs of its runs. So if this process is killed, the next one ranks
# the same runs again. A cell that is added later is compared at each rung with the rewards that the
# other cells had at this rung. tests/bench/prune.py measures how many rollouts pruning saves, and
# how much reward it loses.

def pruning():
    return os.environ.get("PRUNE") == "1"


def pruned(c):
    """Return whether PRUNE=1 ended a cell's run. Without PRUNE=1 such a run continues."""
    return progress(run_folder(c))[1] == "pruned"


def rungs(cfg):
    """Return the budgets at which a pruned sweep ends cells: C/8, C/4 and C/2.

    A budget before the second evaluation is left out.
    """
    return [C for C in (cfg["C"] // part for part in (8, 4, 2)) if C >= 2 * cfg["eval_every"]]


def next_rung(cfg):
    """Return the runs to train next, and end the worst cells at each rung that all runs reached.

    The C of the returned runs is the next rung. After the last rung, it is the C of the sweep.
    """
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
    """End the worst third of the cells of each B_p, among the cells that reached the rung C."""
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
    # imported here, because core/runs.py needs numpy and planning has to work without it
    from core.runs import read_run
    try:
        run = read_run(run_folder(c), c["metric"], part=c["eval_set"])
    except BadInput:
        return []
    return list(zip(run["rollouts"], run["reward"]))


def last_third(curves, C):
    """Return {n: reason} for the values of n whose runs are ended at a budget of C rollouts.

    curves: {n: [(rollouts, reward)]} with the evaluations of all seeds, at one B_p. A line in log C
    is fitted to the evaluations between C/4 and C. The line gives the reward at C, and the gain in
    reward per doubling of the budget. An n with fewer than three evaluations up to C is not ranked.
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
    write_plans(preset, sweeps, dry_run=True)  # `failed` and the analysis need the plan
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
