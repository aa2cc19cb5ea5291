"""core/runs.py: the logs of a sweep -> runs that can be compared.

    from core.runs import read_runs
    runs, dropped = read_runs("runs/easy", metric="avg@4")

Reads `log.jsonl` or `log.jsonl.gz` in every subfolder of a folder, and `sweep.json` there if there
is one. A run is a plain dict of numpy arrays, see `read_run`; what cannot be compared is dropped,
with the reason. Needs config.py and numpy.
"""
import math
from collections import Counter
from pathlib import Path

import numpy as np

from config import BadInput, at_k, complete, experiment, lrs_of
from core.log import read_log, read_plan
from config import config as CONFIG


def timed(steps):
    """Whether every record of an update has the seconds of its parts, gen_s and train_s."""
    return all(r.get(key) is not None for r in steps for key in ("gen_s", "train_s"))


def gpu_hours(steps, ranks):
    """{step: hours up to it, of all ranks}: of training where the steps are `timed`, else by the
    clock, evaluations and all; {} without either. A record stands for the updates since the one
    before: of those a thinned log has means. Raises BadInput where a time is no number."""
    keys, hours, total, before = ("gen_s", "train_s"), {0: 0.0}, 0.0, 0
    keys = keys if timed(steps) else ("wall_s",)
    for r in steps:
        times = [r.get(key) for key in keys]
        if None in times:
            return {}
        for key, x in zip(keys, times):
            if not isinstance(x, (int, float)) or not math.isfinite(x):
                raise BadInput(f"its {key} at step {r['step']} is not a number")
        total = times[0] if keys == ("wall_s",) else total + sum(times) * (r["step"] - before)
        hours[r["step"]], before = total * ranks / 3600, r["step"]
    return hours


def spender(unit, hours):
    """A function (record, step) -> what had been spent then in `unit`, None where unknown.

    hours: of `gpu_hours`.
    """
    def spent(record, step):
        x = dict(updates=step, gpu_hours=hours.get(step)).get(unit, record.get(unit))
        return x if isinstance(x, (int, float)) and math.isfinite(x) else None
    return spent


def right(counts, metric, samples):
    """Solved rollouts of `samples` (any shape) -> the metric of each problem (same shape)."""
    return np.array(at_k(metric, samples), np.float32)[counts]


def over_distinct(values, copies):
    """Return what each distinct problem adds to the mean of values (..., P): (..., distinct).

    copies (P,): of core.problems.copies, None if no problem is a copy. Copies of a problem err
    together, so errors are those of distinct problems. The mean over them is that over P, and with
    equal numbers of copies each is the mean of its copies.
    """
    if not copies:
        return values
    first, which = np.unique(copies, return_inverse=True)
    mean, each = values.mean(-1, keepdims=True), np.eye(len(first), dtype=np.float32)[which]
    return mean + (values - mean) @ each * (len(first) / len(which))


def training_rewards(steps, cfg, unit, spent):
    """The training reward as evaluations, {C: record}: one for the updates between two evaluations.

    Their rollouts come from the policy before each update, so the spending before it counts.
    """
    width, windows = max(cfg.get("eval_every", 1), cfg["B_p"] * cfg["n"]), {}
    before = dict(step=0, rollouts=0, tokens=0)
    for r in steps:
        x = spent(before, before["step"])
        if isinstance(r.get("reward"), (int, float)) and x is not None:
            done = before.get("rollouts", 0)
            point = x, r["reward"], before["step"], done, r.get("rollouts", 0)
            windows.setdefault(done // width, []).append(point)
        before = r
    evals = {}
    for i, window in windows.items():
        if window[-1][-1] < (i + 0.5) * width:  # the run ended in the first half of this window
            continue
        x, reward, step, rollouts, _ = (float(np.mean(v)) for v in zip(*window))
        if not rollouts:  # the base model's update alone: a rollout's cost is that of the whole run
            x, rollouts = spent(before, before["step"]), before["rollouts"]
        middle = (i + 0.5) * width  # the same for every B
        x = middle if unit == "rollouts" else x * middle / rollouts
        evals[x] = dict(train=reward, step=step, rollouts=middle)
    return evals


def metrics_in(records):
    """The metrics of the evaluations of a log, as text, for an error that names what there is."""
    found = {key for r in records if r.get("type") == "eval" for key in r
             if "@" in key or key == "reward"}
    return ", ".join(sorted(found)) or "none"


def read_evals(evals, metric):
    """Evaluations in order of C -> (counts (E, P) or None, samples, reward (E,)), or a text that
    says why they cannot be used."""
    try:
        tasks = {(r.get("set_hash"), r.get("samples"), len(r.get("correct", ())), r.get("problems"))
                 for r in evals}
    except TypeError:
        return "an evaluation whose `correct`, `samples` or `problems` is not of the log's format"
    if len(tasks) > 1:
        return "its evaluations differ in problem file or samples"
    samples, counts = evals[0].get("samples"), None
    if "correct" in evals[0]:
        try:
            counts = np.array([r["correct"] for r in evals])
            if (counts.dtype.kind not in "iu" or counts.ndim != 2 or counts.min() < 0
                    or counts.max() > samples):
                raise ValueError
        except (TypeError, ValueError):
            return f"its counts of solved rollouts are not numbers from 0 to samples = {samples}"
        counts = counts.astype(np.uint8 if samples < 256 else np.int32)
    if metric == "reward" and counts is not None:  # not logged if all rewards are 0 or 1
        evals = [dict(reward=solved.mean() / samples) | r for solved, r in zip(counts, evals)]
    try:
        reward = (np.array([r[metric] for r in evals], float) if counts is None
                  or metric == "reward" else right(counts, metric, samples).mean(1))
    except BadInput:  # k above the samples: all runs have as few
        raise
    except (KeyError, TypeError, ValueError):
        reward = np.array([math.nan])
    if not (np.isfinite(reward).all() and reward.min() >= 0 and reward.max() <= 1):
        return f"its {metric} is not a number from 0 to 1 somewhere"
    return counts, samples, reward


def read_run(folder, metric="avg@4", unit="rollouts", part="val"):
    """One run folder -> dict(run, config, B_p, n, lr, seed, C, reward, ...), or why not, a str.

    lr: its lr_base. C (E,) in `unit`, strictly rising; rollouts, step (E,). counts (E, P): solved
    rollouts of `samples` for each problem, None where the log has none; then reward (E,) is the
    stored field. copies: of core.problems.copies, None if no problem is there twice. part: the
    `set` of the evaluations, or "train" for the reward of the updates. status: that of the end
    record, "" without one.
    """
    names = (folder / "log.jsonl", folder / "log.jsonl.gz")
    try:
        records = read_log(next(path for path in names if path.exists()))
    except BadInput as e:
        return str(e)
    headers = [r for r in records
               if r.get("type") == "header" and isinstance(r.get("config"), dict)]
    if not headers:
        return "no header"
    header, cfg = headers[-1], headers[-1]["config"]
    if not all(isinstance(cfg.get(key), int) and cfg[key] > 0 for key in ("B_p", "n")):
        return "its header names no B_p and n"
    steps = [r for r in records if r.get("type") == "step" and isinstance(r.get("step"), int)]
    try:
        hours = gpu_hours(steps, header.get("ranks", 1))
    except BadInput as e:
        return str(e)
    spent, evals = spender(unit, hours), {}
    if part == "train":
        evals, metric = training_rewards(steps, cfg, unit, spent), "train"
    else:
        for r in records:
            if r.get("type") == "eval" and r.get("set", "val") == part:
                x = spent(r, r.get("step", 0))
                if x is not None and ("correct" in r or r.get(metric) is not None):
                    evals[x] = r  # equal C (a log written by hand): the later record counts
    if metric == "reward" and evals and not any("reward" in r for r in evals.values()):
        return ("its rewards are all 0 or 1, so no evaluation has a mean reward of its own "
                f"(--metric: this log has {metrics_in(records)})")
    if len(evals) < 3:
        text = f"too few evaluations of {part} with {unit} and {metric} or counts: {len(evals)}"
        text += ", 3 are needed"
        there = f" (--metric: this log has {metrics_in(records)})"
        return text + ("" if part == "train" else there)
    C = sorted(evals)
    evals = [evals[c] for c in C]
    found = read_evals(evals, metric)
    if isinstance(found, str):
        return found
    counts, samples, reward = found
    passes = [r for r in records if r.get("type") == "train_pass" and r.get("samples")
              and (r.get("rollouts") or r.get("fresh"))
              and len(r["samples"]) == len(r.get("ids", ())) == len(r.get("correct", ()))]
    end = [r for r in records if r.get("type") == "end"]
    rollouts, step = (np.array([r.get(key) or 0 for r in evals], float)
                      for key in ("rollouts", "step"))
    first = evals[0]
    task = first.get("set_hash"), samples, len(first.get("correct", ())), first.get("problems")
    return dict(
        run=folder.name, config=cfg, B_p=cfg["B_p"], n=cfg["n"], seed=cfg.get("seed", 0),
        lr=cfg.get("lr_base", CONFIG["lr_base"]), task=task, data=header.get("train_set_hash"),
        C=np.array(C, float), rollouts=rollouts, step=step,
        counts=counts, reward=reward, samples=samples, passes=passes,
        copies=next((r["copies"] for r in evals if r.get("copies")), None),
        status=end[-1].get("status", "") if end else "",
        hours=max(hours.values()) if hours and timed(steps) else None,
        device=str(header.get("device", "")),
        per_rollout=1.0 if unit == "rollouts" else C[-1] / max(rollouts[-1], 1),
        biased=metric in header.get("biased", ()), source=header.get("source", ""))


def experiment_key(cfg):
    """What all runs of one sweep have in common, in a form that can be compared."""
    return tuple((key, str(value)) for key, value in sorted(experiment(cfg).items()))


def comparable(runs, plans):
    """(runs of one experiment on the same problems, dropped: a list of dict(run, why, B_p, ...)).

    The experiment is that of sweep.json, the sweep that was asked, also where it has no run yet;
    without the file that of most runs. plans: that of each folder, the first one's counts, and the
    lr_base of all. Of two runs of one cell and seed the longer stays.
    """
    dropped, keep, plan = [], list(runs), plans[0]

    def drop(test, **more):
        for run in list(keep):
            why = test(run)
            if why:
                keep.remove(run)
                dropped.append(dict(run=run["run"], why=why, B_p=run["B_p"], **more))

    present = Counter(experiment_key(run["config"]) for run in keep)
    usual, whose = experiment_key(plan["config"]) if plan else None, "the sweep's"
    if usual is None and present:
        usual, whose = present.most_common(1)[0][0], "most runs'"

    lrs = [lr for p in plans if p for lr in lrs_of(complete(p["config"]))]
    lrs = lrs if plan else {run["lr"] for run in keep}

    def another(run):
        own = experiment_key(run["config"])
        if own == usual and run["lr"] in lrs:
            return ""
        wanted = dict(usual)  # it lacks the keys that this experiment does not use
        differ = [f"{key}={a} for {wanted[key]}" for key, a in own if a != wanted.get(key, a)]
        if run["lr"] not in lrs:
            differ.insert(0, f"lr_base={run['lr']:g} for {' or '.join(f'{x:g}' for x in lrs)}")
        return f"another config than {whose}: {', '.join(differ)}"
    drop(another, other=True)
    if keep:
        task = Counter(run["task"] for run in keep).most_common(1)[0][0]
        drop(lambda run: "" if run["task"] == task else
             "other validation problems or number of samples than most runs")
        data = {}
        for seed in {run["seed"] for run in keep}:
            hashes = Counter(run["data"] for run in keep if run["seed"] == seed)
            data[seed] = hashes.most_common(1)[0][0]
        drop(lambda run: "" if run["data"] == data[run["seed"]] else
             "other training problems than most runs of its seed")
    longest = {}
    for run in sorted(keep, key=lambda run: -run["C"][-1]):
        longest.setdefault((run["B_p"], run["n"], run["lr"], run["seed"]), run["run"])

    def shorter(run):
        other = longest[run["B_p"], run["n"], run["lr"], run["seed"]]
        same = f"the same B_p, n and seed as {other}, which goes at least as far"
        return "" if other == run["run"] else same
    drop(shorter)
    return keep, dropped


def folders_of(text):
    """The folders of `runs`: one, or several with spaces between. Raises BadInput where one is not
    there."""
    words = [str(text)] if Path(text).is_dir() else str(text).split()
    for word in words:
        if not Path(word).is_dir():
            raise BadInput(f"--runs={word}: no such folder; run a sweep first, as in "
                           "`bash run_sweep.sh easy`, or name another folder (a blank starts the "
                           "next folder, so give one whose path has none)")
    return [Path(word) for word in words]


def first_epochs(run, epochs):
    """Return a run up to the update after which it has used each training problem `epochs` times.

    Returns why not, a str, if the log does not say how many problems it trains on, or if fewer than
    three evaluations are left.
    """
    D = problems_trained_on(run)
    if not D:
        return "its log names no D and its training problems are not here, so epochs are unknown"
    keep = run["step"] * run["B_p"] <= epochs * D
    if keep.all():
        return run
    if keep.sum() < 3:
        return f"too few evaluations within {epochs:g} epochs of D = {D}: {keep.sum()}"
    short = {key: run[key][keep] for key in ("C", "rollouts", "step", "reward")}
    counts = None if run["counts"] is None else run["counts"][keep]
    return run | short | dict(counts=counts, status="budget")


def problems_trained_on(run):
    """Return how many training problems a run uses: its D, or all lines of its problem file. None
    if D is 0 and the file is not here."""
    cfg = run["config"]
    path = Path(cfg.get("train_set") or "/")
    if cfg.get("D") or not path.is_file():
        return cfg.get("D") or None
    with open(path, "rb") as file:
        return sum(1 for _ in file)


def read_runs(folder, metric="avg@4", unit="rollouts", part="val", tag="", epochs=0):
    """Return the runs of a sweep that can be compared: (runs, dropped: a list of dict(run, why)).

    folder: as in `folders_of`. tag: runs of this tag instead of the one in sweep.json. epochs: only
    the first passes over the training problems, 0 = all. Unfinished runs count up to their last
    evaluation. Raises BadInput if no run can be used.
    """
    found, dropped, folders = [], [], folders_of(folder)
    for path in (path for each in folders for path in sorted(each.iterdir())):
        if (path / "log.jsonl").exists() or (path / "log.jsonl.gz").exists():
            run = read_run(path, metric, unit, part)
            if epochs and not isinstance(run, str):
                run = first_epochs(run, epochs)
            if isinstance(run, str):
                dropped.append(dict(run=path.name, why=run))
            else:
                found.append(run)
    plans = [read_plan(each) for each in folders]
    if tag:
        other = [run for run in found if run["config"].get("tag", "") != tag]
        if len(other) == len(found):
            raise BadInput(f"--tag={tag}: no run in {folder} has this tag")
        dropped += [dict(run=run["run"], why=f"another tag than {tag}", B_p=run["B_p"], other=True)
                    for run in other]
        found = [run for run in found if run["config"].get("tag", "") == tag]
        plans = [plan and dict(plan, config=plan["config"] | dict(tag=tag)) for plan in plans]
    runs, others = comparable(found, plans)
    dropped += others
    if not runs:
        others = sum("other" in d for d in dropped)
        if others:
            raise BadInput(f"--runs={folder}: no run of the sweep that its sweep.json asks for can "
                           f"be read yet; {others} runs there are of another experiment")
        first = f"; {dropped[0]['run']}: {dropped[0]['why']}" if dropped else ""
        if any((folders[0] / name).exists() for name in ("log.jsonl", "log.jsonl.gz")):
            first = f"; it is one run itself: name the folder above, --runs={folders[0].parent}"
        raise BadInput(f"--runs={folder}: no run to analyse{first}")
    copies = next((run["copies"] for run in runs if run["copies"]), None)
    for run in runs:  # one that a larger C continued keeps its first header
        run["copies"] = copies  # all have the same problems, and an older log does not say so
        B = run["B_p"] * run["n"]
        for C in (plan["config"].get("C", -1) for plan in plans if plan):
            if run["rollouts"][-1] <= C < run["rollouts"][-1] + B:
                run["config"] = run["config"] | dict(C=C)
    return sorted(runs, key=lambda run: (run["B_p"], run["n"], run["lr"], run["seed"])), dropped


def ended(run):
    """True where the run will not go on: a run that was stopped can be resumed."""
    return run["status"] not in ("", "stopped")


def missing_cells(folder, runs, dropped):
    """The planned cells of sweep.json without a finished run: a list of dict(B_p, n, seed, why)."""
    have = {(run["B_p"], run["n"], run["lr"], run["seed"]): run for run in runs}
    tag, out = runs[0]["config"].get("tag", "") if runs else "", []
    plans = [plan for plan in map(read_plan, folders_of(folder))
             if plan and plan["config"].get("tag", "") == tag]  # not that of other runs than --tag
    for plan, cell in ((plan, cell) for plan in plans for cell in plan.get("cells", ())):
        lr = cell.get("lr_base", plan["config"].get("lr_base"))
        run = have.get((cell["B_p"], cell["n"], lr, cell["seed"]))
        if run is None or not ended(run):
            why = "unfinished" if run else "dropped or no log" if dropped else "no log"
            out.append(dict(B_p=cell["B_p"], n=cell["n"], lr=lr, seed=cell["seed"], why=why))
    return out
