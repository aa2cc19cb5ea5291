"""core/sweep.py: plan the runs of a sweep and start them.

    python -m core.sweep prepare easy --data=data/mine     # problems, model, difficulty, splits
    python -m core.sweep commands easy --ns="2 4" --bps=8  # print the commands still to run
    python -m core.sweep run easy                          # prepare, run them, analyse the sweep
    python -m core.sweep failed easy                       # list planned runs that did not end

run_sweep.sh calls `run`, `commands` and `requirements` (print the files that pip installs).

A sweep has one run for each cell of seeds x bps x ns x lrs. presets.json of the data folder has the
command-line words of each recipe's sweep. `commands` and `run` write the sweep's config, its plan,
to sweep.json. run_sweep.sh describes the environment variables PYTHON, LAUNCH, JOBS and
GPUS_PER_RUN. Planning needs only the standard library.
"""
import math
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import config
from config import (BadInput, RECIPES, RUNNING, all_rollouts, choose, complete, derive, entry,
                    experiment, files, identity, parse, read_json, run_name, values_of)
from core import cost, machine
from core.models import check_model_path
from core.log import finished, progress, read_plan, save_json
from core.pool import handle_signals, last_line, pool, python
from core.prepare import make
from core.problems import read_problems
import verifier

# ---- Cells and plans -----------------------------------------------------------------------------

def cells(cfg):
    """Return the runs of a sweep, seeds x bps x ns x lrs with B_p n <= B_max, as resolved dicts,
    each seed's largest B_p n first. Raise BadInput if no cell is left or if a value is invalid."""
    grid = [dict(cfg, B_p=B_p, n=n, seed=seed, lr_base=lr) for seed in values_of(cfg, "seeds")
            for B_p in values_of(cfg, "bps") for n in values_of(cfg, "ns")
            if not cfg["B_max"] or B_p * n <= cfg["B_max"] for lr in config.lrs_of(cfg)]
    for c in grid:
        config.check(c)
    if not grid:
        raise BadInput(f"--B_max={cfg['B_max']}: B_p n is above it for all of --bps={cfg['bps']!r} "
                       f"and --ns={cfg['ns']!r}")
    # the runs with the most updates (small batches) take the longest, so they start first
    return sorted(grid, key=lambda c: -derive(c)["M"])


def run_folder(c):
    return Path(c["runs"]) / run_name(c)


def write_plan(cfg, dry_run=False):
    """Write sweep.json, and print which cells are not run. A dry_run does not replace the plan of
    another experiment, whose runs may still be analysed."""
    folder = Path(cfg["runs"])
    plan = read_plan(folder)
    if (plan and experiment(plan["config"]) != experiment(cfg)
            and any(folder.glob("*/log.jsonl*"))):
        print(f"{folder} also has runs of another experiment, which are not analysed with these"
              + "; its sweep.json is kept" * dry_run
              + ". OUT=FOLDER gives this sweep its own folder", file=sys.stderr)
        if dry_run:
            return
    save_json(folder / "sweep.json", dict(config=cfg))
    out = [f"{B_p} x {n}" for B_p in values_of(cfg, "bps") for n in values_of(cfg, "ns")
           if 0 < cfg["B_max"] < B_p * n]
    if out:
        print(f"not run, because B_p x n is above --B_max={cfg['B_max']}: {', '.join(out)}",
              file=sys.stderr)


def preset_words(preset, data, argv):
    """Return the words that presets.json of a data folder has for a recipe's sweep, none if they
    were chosen for another --model than that in argv."""
    path = Path(data) / "presets.json"
    words = shlex.split(read_json(path).get(preset, "") if path.exists() else "")
    chosen, asked = ({Path(w[8:]) for w in ws if w.startswith("--model=")} for ws in (words, argv))
    return [] if chosen and asked and chosen != asked else words


def sweep_config(preset, argv):
    """Return the resolved dict of a recipe's sweep. A word in argv overrides presets.json. Raise
    BadInput if a word, JOBS or GPUS_PER_RUN is invalid."""
    choose("recipe", preset, RECIPES)
    for name, least in dict(JOBS=1, GPUS_PER_RUN=0).items():
        value = os.environ.get(name) or str(least)
        if not value.isdecimal() or int(value) < least:
            raise BadInput(f"{name}={value}: expected a whole number, {least} or more")
    for word in argv:
        if word.startswith(("--n=", "--B_p=", "--seed=")):
            raise BadInput(f"{word}: a sweep has several values; give --ns, --bps or --seeds")
    words = preset_words(preset, parse(argv)["data"], argv)
    return parse([f"--recipe={preset}", *words, *argv])


# ---- Training commands, and the GPUs on which each runs ------------------------------------------

def command(cfg, more=(), start=("python",)):
    """Return the shell command of a run, with the keys off what recipe and data folder set.

    more: keys to write in any case. start: the words in front of train_grpo.py.
    """
    words = [f"--recipe={cfg['recipe']}"]
    for key in ("data", "model", "split"):
        if cfg[key] != parse(words)[key]:
            words.append(f"--{key}={cfg[key]}")
    plain, cfg = parse(words), complete(cfg)  # an imported log has only some keys
    skip = {"B_p", "n", "seed", *more}
    for key in {**identity(cfg), **dict.fromkeys(RUNNING)}:
        if key not in skip and cfg[key] != plain[key]:
            words.append(f"--{key}={cfg[key]}")
    words += [f"--{key}={cfg[key]}" for key in ("B_p", "n", "C", *more)]
    if "B_max" not in more and 0 < plain["B_max"] < (B := cfg["B_p"] * cfg["n"]):
        words.append(f"--B_max={B}")
    return shlex.join([*start, "train_grpo.py", *words])


def sweep_command(folder, run, C, B, **grid):
    """Return the command that adds the runs of a grid, {key: values}, to the sweep in `folder`,
    with a budget C and B_max of at least B. run: a logged config, for a folder without sweep.json.
    """
    plan = read_plan(folder).get("config")
    cfg = complete(plan or dict(run, lrs=str(run["lr_base"])))
    words, recipe = [f"--{key}={cfg[key]}" for key in ("data", "model")], cfg["recipe"]
    plain = parse([f"--recipe={recipe}", *preset_words(recipe, cfg["data"], words), *words])
    grid = {key: " ".join(map(str, sorted(values))) for key, values in grid.items()}
    cfg |= dict(runs=str(folder), C=int(C), B_max=cfg["B_max"] and max(cfg["B_max"], B))
    keys = cfg if plan else (*experiment(cfg), *RUNNING, "lrs", "C", "B_max", "runs")
    words += [f"--{key}={cfg[key]}" for key in keys if cfg[key] != plain[key] and key not in grid]
    words += [f"--{key}={text}" for key, text in grid.items()]
    return shlex.join(["bash", "run_sweep.sh", recipe, *words])


def training(c):
    """Return the training command of a cell, with PYTHON, LAUNCH and GPUS_PER_RUN applied."""
    gpus = int(os.environ.get("GPUS_PER_RUN") or 1)
    config.check_processes(c, max(1, gpus))
    # 600 s, because a checkpoint can take longer than torchrun's default of 30 s. Without the --,
    # torchrun reads our --n= as short for one of its own options
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={gpus}",
                "--shutdown-timeout=600", "--"] if gpus > 1 else []
    line = command(dict(c, out=str(run_folder(c))), ["seed", "B_max", "out"],
                   [python(), *torchrun])
    return f"{os.environ.get('LAUNCH', '')} {line}".lstrip()


def unfinished(cfg):
    """Return the unfinished runs. Raise BadInput if a run cannot start or could not be analysed."""
    choose("verifier", cfg["verifier"], verifier.REWARDS)
    try:
        grid = cells(cfg)
        for c in grid:
            config.check_run(c)
            training(c)
            enough = c["eval_every"] <= all_rollouts(c) - c["B_p"] * c["n"]  # 0 turns them off
            config.expect(c, ("eval_every", enough, f"a run of B_p = {c['B_p']}, n = {c['n']}, "
                              f"C = {c['C']} would have two evaluations, but the analysis needs "
                              f"three; give --eval_every={max(1, c['C'] // 8)} or a larger C"))
    except BadInput:
        # C and ns may look wrong only because a missing model brought no defaults.json
        if not config.is_inside(cfg["model"], cfg["data"]):
            check_model_path(cfg["model"])
        raise
    return [c for c in grid if not finished(c, run_folder(c))]


def requirements(preset, argv):
    """Print the requirement files of a sweep, or of `env`: with vLLM's if there are GPUs, or if
    --engine=vllm."""
    cfg = sweep_config("easy" if preset == "env" else preset, argv)
    gpus = cfg["device"] != "cpu" and os.environ.get("GPUS_PER_RUN") != "0"
    vllm = cfg["engine"] == "vllm" or (cfg["engine"] == "auto" and machine.visible_gpus())
    print("requirements.txt" + " requirements-vllm.txt" * bool(gpus and vllm))


def slots(cfg):
    """Return one dict of environment variables, with GPU ids, for each run that may train at once;
    set here those that all share. Raise BadInput if JOBS or GPUS_PER_RUN does not fit this machine,
    or if torch cannot use the GPUs."""
    jobs, each = int(os.environ.get("JOBS") or 0), os.environ.get("GPUS_PER_RUN", "")
    on_gpu = cfg["device"] != "cpu"
    size = int(each or on_gpu)
    if size == 0:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    gpus = machine.visible_gpus()
    room = len(gpus) // max(size, 1)
    if size and each and not room:
        raise BadInput(f"GPUS_PER_RUN={each}: there are {len(gpus)} GPUs here; 0 is the CPU")
    if jobs > room > 0 and size > 1:
        raise BadInput(f"JOBS={jobs}: {len(gpus)} GPUs have room for {room} runs of {size}; "
                       "only runs of one GPU can share it")
    if on_gpu and size and not os.environ.get("LAUNCH"):  # LAUNCH may start runs on another machine
        check_gpus(cfg)
    if not room:
        return [{}] * (jobs or machine.cores())
    shared = max(1, math.ceil(jobs / room))
    # the processes share the CPU cores evenly; train_grpo.memory_settings reads RUNS_PER_GPU
    count = len(gpus) * shared
    os.environ.setdefault("OMP_NUM_THREADS", str(1 + (machine.cores() - 1) // count))
    starts = [i * size % len(gpus) for i in range(jobs or room)]
    return [dict(CUDA_VISIBLE_DEVICES=",".join(gpus[i:i + size]), RUNS_PER_GPU=str(shared))
            for i in starts]


def check_gpus(cfg):
    """Raise BadInput if this machine's GPUs, torch or Triton cannot train a sweep."""
    count, model = len(machine.visible_gpus()), cfg["model"]
    if not count:
        # prepare.py may make a model in the data folder; any other without a folder is on the hub
        if not config.is_inside(model, cfg["data"]) and not Path(model).exists():
            check_model_path(model)
            raise BadInput(f"--model={model}: there is no GPU here; GPUS_PER_RUN=0 uses the "
                           "CPU (weeks), DRY_RUN=1 plans for another machine")
        return
    done = subprocess.run([python(), "core/probe.py", *["triton"] * (cfg["engine"] != "hf")],
                          capture_output=True, text=True)
    seen, _, why = done.stdout.strip().rpartition("\n")[2].partition(" ")
    if not seen.isdecimal():  # torch is not installed, or it crashed in native code
        seen, why = 0, " ".join(done.stderr.split())[-200:]
    if int(seen) < count:
        raise BadInput(f"there are {count} GPUs here, and the torch of {python()} can use {seen}: "
                       f"{why or 'it sees no more'}. GPUS_PER_RUN=0 runs on the CPU"
                       + ", --engine=hf without Triton" * ("Triton" in why))


# ---- The runs ------------------------------------------------------------------------------------

def print_price(preset, cfg, file=sys.stdout):
    """Print the cost of a sweep before it starts, unless it trains on a CPU."""
    if cfg["device"] != "cpu" and (machine.visible_gpus() or not Path(cfg["model"]).exists()):
        print(f"{preset}: {cost.of_runs(cells(cfg))}", file=file, flush=True)


def prepare(preset, argv):
    """Make the problem files that the runs of a preset need, with the model and the splits."""
    cfg = sweep_config(preset, argv)
    if not Path(cfg["data"]).is_dir():
        raise BadInput(f"--data={cfg['data']}: no such folder, see docs/problems.md")
    unfinished(cfg)  # raises BadInput on a bad key or value before anything is written
    slots(cfg)  # raises BadInput if the runs do not fit this machine
    print_price(preset, cfg)
    # --seed is left out, because it is the seed of the runs
    given = [w for w in [*preset_words(preset, cfg["data"], argv), *argv]
             if not w.startswith(("--seed=", "--data=", "--model=", "--runs=", "--out="))]
    for file in dict.fromkeys(map(Path, (cfg["train_set"], *files(cfg["val_set"])))):
        make(file, cfg, given)
    size = len(read_problems(cfg["train_set"]))
    print(f"training on {min(cfg['D'] or size, size)} of the {size} problems of {cfg['train_set']} "
          "(--D)", flush=True)


def run(preset, argv):
    """Train all unfinished runs of a preset and analyse the sweep. Return 1 if a run failed, or the
    exit code of an analysis that failed. Exit with 130 if a signal stops the runs."""
    prepare(preset, argv)
    cfg, stop = sweep_config(preset, argv), []
    todo, grid, places = unfinished(cfg), cells(cfg), slots(cfg)
    handle_signals((signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
                   lambda number, _: stop.append(number))
    write_plan(cfg)
    begun = sum(progress(run_folder(c))[0] > 0 for c in todo)
    stopped = f" ({begun} continue where they stopped)" * bool(begun)
    lrs = " or ".join(f"{lr:g}" for lr in config.lrs_of(cfg))
    try:
        print(f"sweep {cfg['runs']}: {len(grid)} runs, {len(todo)} to do{stopped}, "
              f"{sum(map(all_rollouts, grid)):,} rollouts in all, {len(places)} at a time\n"
              f"settings: C = {cfg['C']:,} rollouts per run, lr_base = {lrs}, answers of at most "
              f"{cfg['max_new_tokens']} tokens\n"
              f"B_p = problems per update, n = rollouts per problem, avg@{cfg['k']} = share of "
              "rollouts solved on validation problems", flush=True)
        if not cfg["eval_every"]:
            print("--eval_every=0: there will be no report, because it needs evaluations")
        pool([job(c) for c in todo], places, stop)
    except BrokenPipeError:
        stop.append("no reader")
    if stop:
        # os._exit, because a flush of stdout fails if the program that reads it has ended
        os._exit(130)
    print("all runs have ended; analysing them (half a minute)", flush=True)
    handle_signals((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), signal.default_int_handler)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    words, code = [f"--recipe={preset}", *argv, f"--runs={cfg['runs']}"], 0
    for script in ("frontier.py", "fit_sigmoid.py"):
        code = code or subprocess.call([python(), script, *words])
    return list_failed(preset, argv) or code


def job(c):
    """Return a cell's run for `pool`: (name, shell words, output file)."""
    lr = f"lr_base={c['lr_base']:g} " if c["lrs"] else ""
    name = f"B_p={c['B_p']} n={c['n']} {lr}seed={c['seed']}"
    return name, training(c), run_folder(c) / "out.txt"


def list_failed(preset, argv):
    """Print the planned runs that have not ended, and return 1 if there are any."""
    lines, folder = [], sweep_config(preset, argv)["runs"]
    if not Path(folder).is_dir():
        raise BadInput(f"--runs={folder}: no such folder")
    plan = read_plan(folder)
    for c in cells(dict(complete(plan["config"]), runs=folder)) if plan else ():
        at = run_folder(c)
        if not finished(c, at):
            how_far = f"{progress(at)[0]} of {all_rollouts(c)} rollouts"
            lines.append(f"  {at}  {how_far}  {last_line(at / 'out.txt')}".rstrip())
    if lines:
        print(f"\n{len(lines)} runs failed or are missing. The same command tries them again; "
              "out.txt in a run's folder has its whole output:", *lines, sep="\n")
        return 1


def commands(preset, argv):
    """Write the plan and print the commands that are still to run, one per line."""
    cfg = sweep_config(preset, argv)
    todo = unfinished(cfg)
    write_plan(cfg, dry_run=True)  # `failed` and the analysis need the plan
    print_price(preset, cfg, sys.stderr)
    for c in todo:
        print(training(c))


def main(argv):
    verb, *words = argv or ["--help"]
    preset = config.config["recipe"]
    if words and not words[0].startswith("-"):
        preset = words.pop(0)
    if verb.startswith("-") or {"-h", "--help"} & set(words):
        parse(["--help"], __doc__)
    verbs = dict(prepare=prepare, commands=commands, run=run, failed=list_failed,
                 requirements=requirements)
    choose("verb", verb, verbs)
    # KeyboardInterrupt makes `pool` end the shards of sample.py, which have their own sessions
    handle_signals((signal.SIGTERM, signal.SIGHUP), signal.default_int_handler)
    return verbs[verb](preset, words)


if __name__ == "__main__":
    entry(main)
