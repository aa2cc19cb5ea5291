"""core/sweep.py: which runs a sweep has, in which order and where they run, which are ended early.

    python -m core.sweep commands easy --ns="2 4" --bps=8  # the commands that are still to do
    python -m core.sweep run easy                          # does them, and says how far they are
    python -m core.sweep failed easy                       # which planned runs did not end

run_sweep.sh calls it; `folder` names the sweep's folder, `requirements` the files that pip is to
install; core/prepare.py makes what the runs need before. A sweep is the cells seeds x bps x ns, a
run each. A study (`presets.json` of the data folder) is several sweeps, its arms, in folders below
one. `commands` and `run` write `sweep.json` into a sweep's folder: what was asked last, as `config`
and `cells`.

Environment: PYTHON, LAUNCH, JOBS, GPUS_PER_RUN, CUDA_VISIBLE_DEVICES, PRUNE, see run_sweep.sh.
Needs config.py, core/engine.py for the GPUs that are there, and the standard library.
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
from statistics import fmean, linear_regression

import config
from config import (BadInput, RECIPES, append, at_k, cast, complete, derive, entry, experiment,
                    finished, parse, progress, read_json, read_log, read_plan, rollouts_after,
                    run_name, save_json)
from core.engine import visible_gpus

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


def budget(c):
    """The rollouts of all updates of a run."""
    return rollouts_after(derive(c)["M"], c)


def save_plan(cfg, own=None, others=()):
    """Write sweep.json of the sweep `cfg`: dict(config, derived, cells), for the analysis and for
    `failed`. own: as in config.parse. others: cells that other studies ask for.
    """
    plan = [{key: c[key] for key in ("B_p", "n", "seed", "lr_base")} for c in cells(cfg)]
    plan += [cell for cell in others if cell not in plan]
    lrs = sorted({cell["lr_base"] for cell in plan})
    shown = dict(cfg, lrs=" ".join(f"{lr:g}" for lr in lrs)) if others and len(lrs) > 1 else cfg
    save_json(Path(cfg["runs"]) / "sweep.json",
              dict(config=shown, derived=derive(cfg, own), cells=plan))


def read_config(plan):
    """The config of a plan with this version's keys."""
    known = {key: value for key, value in plan["config"].items() if key in config.config}
    return complete({key: cast(key, value) for key, value in known.items()})


def planned(folder):
    """The cells that sweep.json of a sweep's folder asks for; [] without the file."""
    plan = read_plan(folder)
    return [dict(read_config(plan), runs=str(folder), **cell) for cell in plan.get("cells", ())]


def begin(preset, sweeps):
    """Write sweep.json of each sweep: what was asked last. Studies that share an arm plan for each
    other."""
    for cfg in sweeps:
        plan = read_plan(cfg["runs"]) if is_study(preset) else {}
        same = plan and experiment(read_config(plan)) == experiment(cfg)
        save_plan(cfg, others=plan.get("cells", ()) if same else ())


def preset_of(argv):
    """(preset or "", words) of a command line, where the preset comes first."""
    named = bool(argv) and not argv[0].startswith("-")
    return (argv[0], argv[1:]) if named else ("", argv)


def is_study(preset):
    return preset not in ("", *RECIPES)


def read_presets(data):
    """The studies, and the sweeps of its own, of a data folder: {name: dict(about, arms)}."""
    path = Path(data) / "presets.json"
    return read_json(path) if path.exists() else {}


def presets(data):
    """{study: dict(about, minutes, arms)} of a data folder; arms: {name: command-line words}.

    Of data/guru_math, the paper's scale, where the folder has none. An arm is one sweep, a folder
    of its own; studies that name the same arm share its runs.
    """
    known = read_presets(data) or read_presets(ROOT / "data/guru_math")
    return {name: known[name] for name in known if is_study(name)}


def sweep_folder(preset, argv):
    """The folder of a preset's sweep, or of its arms: `runs`, or else named by data and model."""
    cfg = parse([f"--recipe={preset}"] * (preset in RECIPES) + argv)
    if not is_study(preset) or any(word.startswith("--runs=") for word in argv):
        return cfg["runs"]
    return config.sweep_folder(cfg, "atlas")


def arms(preset, argv):
    """The sweeps of a preset as resolved dicts, one for each arm; a recipe, or none, is one sweep.

    Words of argv beat those of presets.json, but for what an arm asks about.
    """
    plain = parse(argv)
    if config.is_toy(plain):
        raise BadInput(f"--data={plain['data']}: the toy world has a sweep of its own: "
                       "python bandit_toy.py sweep")
    if pruning() and (is_study(preset) or plain["lrs"]):
        raise BadInput("PRUNE=1: for easy, hard and mixed, at one lr_base; a study's figures need "
                       "all its runs")
    if not is_study(preset):
        own = read_presets(plain["data"]).get(preset)  # of the paper's problems the paper's sweep
        words = shlex.split(own["arms"][preset]) if own else [f"--recipe={preset}"] * bool(preset)
        return [parse(words + argv)]
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
        sweeps.append(dict(parse(words + argv + kept), runs=str(Path(folder) / name)))
    return sweeps


# --------------------------------------------------------------------------------------------------
# Commands, and the GPUs of each

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
    gpus = vllm and os.environ.get("GPUS_PER_RUN") != "0" and visible_gpus()
    return ["requirements.txt"] + ["requirements-vllm.txt"] * bool(gpus)


def slots(sweeps):
    """The GPUs of each of the runs side by side: a list of strings, None where a run has none.

    Sets the environment that the runs inherit. Raises BadInput where JOBS and GPUS_PER_RUN do not
    fit this machine.
    """
    check_environment()
    jobs, each = int(os.environ.get("JOBS") or 0), os.environ.get("GPUS_PER_RUN", "")
    size = int(each or 1)
    if size == 0:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    gpus = visible_gpus()
    room = len(gpus) // max(size, 1)
    if size and each and not room:
        raise BadInput(f"GPUS_PER_RUN={each}: there are {len(gpus)} GPUs here")
    if not room:
        return [None] * (jobs or config.cores())
    # of a process, and a GPU has one; on a CPU each script sets its own
    os.environ.setdefault("OMP_NUM_THREADS", str(1 + (config.cores() - 1) // len(gpus)))
    vllm = any(c["engine"] != "hf" and c["device"] != "cpu" for c in sweeps)
    # its sleep asserts that nobody else's memory on the GPU grows meanwhile
    if jobs > room and (size > 1 or vllm):
        raise BadInput(f"JOBS={jobs}: {len(gpus)} GPUs have room for {room} runs of {size}, "
                       "and vLLM needs a GPU to itself (at one GPU a run --engine=hf shares "
                       "one; GPUS_PER_RUN=0 takes the cores)")
    starts = [i * size % len(gpus) for i in range(jobs or room)]
    return [",".join(gpus[i:i + size]) for i in starts]


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
# The runs: start, watch, collect

def tail(path, size):
    """The last `size` bytes of a file, as lines; none where it is not there."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - size))
            return file.read().decode(errors="replace").replace("\r", "\n").split("\n")
    except OSError:
        return []


def last_line(path):
    """What a process said last; behind torchrun's table, the error of the run itself."""
    lines = [line for line in tail(path, 9000) if line.strip()]
    errors = [line for line in lines if re.match(r"(train_grpo.py|\[rank\d+\]): \S", line)]
    return [*errors[-1:], *lines[-1:], ""][0]


def last_records(c):
    """The last update and evaluation in a run's log, each None where there is none yet."""
    last = {}
    for line in reversed(tail(run_folder(c) / "log.jsonl", 2 ** 20)):
        with contextlib.suppress(ValueError):
            r = json.loads(line)
            if r["type"] == "step" or r.get("set") == "val":
                last.setdefault(r["type"], r)
        if len(last) == 2:
            break
    return last.get("step"), last.get("eval")


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
    lines = [f"  {live_line(c)[:110]}" for c in running]
    left, ended = time_left(running, waiting, places), total - len(running) - len(waiting)
    about = ""
    if left:
        m, s = divmod(int(left), 60)
        about = f", about {left / 3600:.1f} h left" if m >= 180 else f", about {m}:{s:02} left"
    lines.append(f"  {ended} of {total} runs ended{about}")
    end, back = "\n", ""
    if sys.stdout.isatty():
        end, back = "\033[K\n", f"\033[{len(lines)}A"
    print(end.join(lines) + end + back, end="", flush=True)


def start(c, gpus):
    """The process of a cell's run, whose output goes to out.txt of its folder.

    A session of its own: Ctrl-C must not reach torchrun or srun, which would pass it on. LAUNCH is
    shell words, so a shell takes the line apart; env sets variables.
    """
    folder = run_folder(c)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "out.txt", "wb") as out:
        return subprocess.Popen(["bash", "-c", f"exec env {training(c)}"], env=environment(gpus),
                                stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                start_new_session=True)


def run_all(todo, places, stop):
    """Train the cells `todo`, in this order, one in each place; returns how many failed.

    Once `stop` holds something, all runs are asked to stop by SIGTERM, on which they save a
    checkpoint, and are waited for: raises KeyboardInterrupt. So too where a run was asked by
    somebody else, as Slurm asks the steps of a job.
    """
    free, lock, running, failed, shown = queue.SimpleQueue(), threading.Lock(), {}, 0, time.time()
    for gpus in places:
        free.put(gpus)

    def train(c):
        """The exit code of a cell's run, None where it did not start."""
        gpus = free.get()
        try:
            with lock:  # none starts behind the SIGTERM to all
                if stop:
                    return None
                running[id(c)] = c, start(c, gpus)
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
    sweeps, folder, stop = arms(preset, argv), sweep_folder(preset, argv), []
    places = slots(sweeps)
    check_gpus(sweeps, places)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: stop.append(number))
    todo, grid = unfinished(sweeps), [c for cfg in sweeps for c in cells(cfg)]
    begin(preset, sweeps)
    tell_evaluations(grid)
    begun = sum(progress(run_folder(c))[0] > 0 for c in todo)
    stopped = f" ({begun} from where stopped)" if begun else ""
    less = ", a third or so less by pruning" if pruning() else ""
    try:
        print(f"sweep {folder}: {len(grid)} runs, {len(todo)} to do{stopped}, "
              f"{sum(map(budget, grid))} rollouts in all{less}, {len(places)} side by side",
              *filter(None, [of_other_code(sweeps)]), sep="\n", flush=True)
        rungs = iter(lambda: [c for cfg in sweeps for c in next_rung(cfg)], [])
        for batch in rungs if pruning() else [todo]:
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
    for c in (c for cfg in arms(preset, argv) for c in planned(cfg["runs"])):
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
    """The budgets at which a pruned sweep ends cells, behind two evaluations or more, and C."""
    early = [cfg["C"] // part for part in (8, 4, 2)]
    return [C for C in early if C >= 2 * cfg["eval_every"]] + [cfg["C"]]


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
        end_some([c for c in here if run_folder(c) not in ended], C)


def end_some(here, C):
    """End a third of the cells that reached the rung C, each B_p by itself."""
    by_B_p = {}
    for c in here:
        by_B_p.setdefault(c["B_p"], {}).setdefault(c["n"], []).append(c)
    for B_p, same in by_B_p.items():
        curves = {n: [point for c in cs for point in curve(c)] for n, cs in same.items()}
        for n, why in last_third(curves, C).items():
            warm = derive(same[n][0])["M"] >= max(2, same[n][0]["warmup"])
            beyond = any(progress(run_folder(c))[0] > budget(c) for c in same[n])
            if warm and not beyond and not all(map(pruned, same[n])):
                tell(f"pruned at C = {C}: B_p = {B_p}, n = {n} ({why})")
                for c in same[n]:
                    mark(c)


def curve(c):
    """The evaluations of a cell's run by its log, or of its training: [(rollouts, reward)]."""
    log, points = run_folder(c) / "log.jsonl", []
    for r in read_log(log) if log.exists() else []:
        if c["metric"] == "train" and r["type"] == "step":
            points.append((r["rollouts"], r["reward"]))
        elif r["type"] == "eval" and r["set"] == c["eval_set"]:
            worth = at_k(c["metric"], r["samples"])
            points.append((r["rollouts"], fmean(worth[right] for right in r["correct"])))
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

def commands(preset, argv):
    """Write the plan and print the commands that are still to do, one a line."""
    sweeps = arms(preset, argv)
    todo = unfinished(sweeps)
    begin(preset, sweeps)  # so that `failed` and the analysis know what was asked
    if pruning():
        todo = [c for cfg in sweeps for c in next_rung(cfg)]
    print("".join(f"{training(c)}\n" for c in todo), end="")


def main(argv):
    verb = argv[0] if argv else "--help"
    preset, words = preset_of(argv[1:])
    if verb.startswith("-") or {"-h", "--help"} & set(words):
        parse(["--help"], __doc__)
    check_environment()
    if verb == "folder":
        arms(preset, words)  # ends here on a preset that is none
        print(sweep_folder(preset, words))
    elif verb == "requirements":
        print(*requirements(words))
    elif verb in ("commands", "run", "failed"):
        return dict(commands=commands, run=run, failed=list_failed)[verb](preset, words)
    else:
        raise BadInput(f"{verb}: no such verb; requirements, folder, commands, run or failed")


if __name__ == "__main__":
    entry(main)
