"""core/runs.py: the logs of a sweep -> runs that can be compared.

    from core.runs import read_runs
    runs, dropped = read_runs("runs/easy", metric="avg@4")

Reads `log.jsonl` or `log.jsonl.gz` in every subfolder of a folder, and `sweep.json` in the folder
if there is one. A run is a dict of numbers and numpy arrays, see `read_run`. Runs that cannot be
compared are dropped, each with a reason.
"""
import math
from collections import Counter
from pathlib import Path

import numpy as np

from config import BadInput, at_k, complete, experiment, lrs_of
from config import config as CONFIG
from core.log import read_log, read_plan


LOGS = "log.jsonl", "log.jsonl.gz"


def is_number(x):
    """Return whether x is a finite number."""
    return isinstance(x, (int, float)) and math.isfinite(x)


def columns(steps):
    """Return {field: (M,)} for every numeric field of M step records, NaN if a record lacks it."""
    fields = dict.fromkeys(key for r in steps for key, x in r.items() if is_number(x))
    return {key: np.array([r[key] if is_number(r.get(key)) else math.nan for r in steps])
            for key in fields}


def has_times(steps):
    """Return whether the record of every update has gen_s and train_s."""
    return all(is_number(r.get(key)) for r in steps for key in ("gen_s", "train_s"))


def gpu_hours(steps, ranks):
    """Return {step: hours up to this step, summed over ranks}, or {} if the log has no times.

    If every record has gen_s and train_s, these times of the updates are summed. Otherwise the
    hours are wall-clock time (wall_s), which includes evaluations. A record of a thinned log holds
    means over several updates, so it counts once for each update since the previous record.
    """
    hours, total, before, timed = {0: 0.0}, 0.0, 0, has_times(steps)
    for r in steps:
        if timed:
            total += (r["gen_s"] + r["train_s"]) * (r["step"] - before)
        elif is_number(r.get("wall_s")):
            total = r["wall_s"]
        else:
            return {}
        hours[r["step"]], before = total * ranks / 3600, r["step"]
    return hours


def spending_in(unit, hours):
    """Return a function spent(record, step). It returns the budget spent up to this step, in
    `unit`, or None if the log does not give it. hours: the result of `gpu_hours`."""
    def spent(record, step):
        x = dict(updates=step, gpu_hours=hours.get(step)).get(unit, record.get(unit))
        return x if is_number(x) else None
    return spent


def metric_per_problem(counts, metric, samples):
    """Return the metric of each problem, an array of the shape of `counts`.

    counts: the number of solved rollouts among the problem's `samples` rollouts.
    """
    return np.array(at_k(metric, samples), np.float32)[counts]


def over_distinct(values, copies):
    """Turn `values` (..., P), one per problem, into (..., distinct), one per distinct problem.

    copies (P,): the result of core.problems.copies, None if no problem is a copy. Copies of a
    problem are not independent, so standard errors are computed over distinct problems. The mean m
    over all values does not change. With D distinct problems, each of them gets
    m + (D / P) * sum(value - m), where the sum runs over its copies. If all of them have the same
    number of copies, this is the mean over the copies.
    """
    if not copies:
        return values
    first, which = np.unique(copies, return_inverse=True)
    mean, each = values.mean(-1, keepdims=True), np.eye(len(first), dtype=np.float32)[which]
    return mean + (values - mean) @ each * (len(first) / len(which))


def training_rewards(steps, cfg, unit, spent):
    """Return the training reward as if it came from evaluations: {C: record}.

    Each record has the mean reward of the updates in one window. A window is `eval_every` rollouts
    long, or B_p n rollouts if this is larger. The rollouts of an update come from the policy before
    the update. So an update belongs to the window in which it starts. C is the budget spent at the
    middle of the window.
    """
    width, windows = max(cfg.get("eval_every", 1), cfg["B_p"] * cfg["n"]), {}
    before = dict(step=0, rollouts=0, tokens=0)
    for r in steps:
        x = spent(before, before["step"])
        if is_number(r.get("reward")) and x is not None:
            done = before.get("rollouts", 0)
            point = x, r["reward"], before["step"], done, r.get("rollouts", 0)
            windows.setdefault(done // width, []).append(point)
        before = r
    evals = {}
    for i, window in windows.items():
        # skip a window if the run did not reach the middle of the window
        if window[-1][-1] < (i + 0.5) * width:
            continue
        x, reward, step, rollouts, _ = (float(np.mean(v)) for v in zip(*window))
        # if the window has only the first update, the cost of a rollout would be 0 / 0, so take the
        # cost from the whole run
        if not rollouts:
            x, rollouts = spent(before, before["step"]), before["rollouts"]

        # C is the middle of the window. The mean over the updates' starts would depend on B_p n
        middle = (i + 0.5) * width
        x = middle if unit == "rollouts" else x * middle / rollouts
        evals[x] = dict(train=reward, step=step, rollouts=middle)
    return evals


def select_evals(records, metric, part, spent):
    """Return {C: record} for the evaluations of the set `part`. Leave out records that have neither
    the metric nor counts of solved rollouts."""
    evals = {}
    for r in records:
        if r.get("type") == "eval" and r.get("set", "val") == part:
            x = spent(r, r.get("step", 0))
            if x is not None and ("correct" in r or r.get(metric) is not None):
                evals[x] = r  # if two records have the same C, the later one counts
    return evals


def check_evals(evals, records, metric, unit, part):
    """Raise BadInput if the evaluations {C: record} cannot be analysed. The message has the reason
    and the metrics in the log."""
    names = {key for r in records if r.get("type") == "eval" for key in r
             if "@" in key or key == "reward"}
    has = f" (--metric: this log has {', '.join(sorted(names)) or 'none'})"
    if metric == "reward" and evals and not any("reward" in r for r in evals.values()):
        raise BadInput(f"its rewards are all 0 or 1, so no evaluation has the field reward{has}")
    if len(evals) < 3:
        raise BadInput(f"too few evaluations of {part} with {unit} and {metric} or counts: "
                       f"{len(evals)}, 3 are needed{has * (part != 'train')}")


def read_evals(evals, metric):
    """Return (counts, samples, reward) of evaluations in order of C.

    Raises BadInput with the reason if the evaluations cannot be used. counts (E, P): how many
    rollouts of each problem are solved, None if not logged. samples: the number of rollouts of a
    problem. reward (E,): the metric.
    """
    samples, counts = evals[0].get("samples"), None
    try:
        tasks = {(r.get("set_hash"), r.get("samples"), len(r.get("correct", ())), r.get("problems"))
                 for r in evals}
        if "correct" in evals[0] and len(tasks) == 1:
            counts = np.array([r["correct"] for r in evals])
            if (counts.dtype.kind not in "iu" or counts.ndim != 2 or counts.min() < 0
                    or counts.max() > samples):
                raise ValueError
            counts = counts.astype(np.uint8 if samples < 256 else np.int32)
    except (TypeError, ValueError):  # no list, a list of lists of different lengths, no counts
        raise BadInput("its `correct` are not counts of solved rollouts from 0 to `samples` = "
                       f"{samples}") from None
    if len(tasks) > 1:
        raise BadInput("its evaluations differ in problem file or samples")
    if counts is not None and metric != "reward":
        return counts, samples, metric_per_problem(counts, metric, samples).mean(1)
    # the trainer logs no reward if all rewards are 0 or 1, so compute it from the counts
    if counts is not None:
        evals = [dict(reward=solved.mean() / samples) | r for solved, r in zip(counts, evals)]
    reward = np.array([r[metric] if is_number(r.get(metric)) else math.nan for r in evals], float)
    if not ((reward >= 0) & (reward <= 1)).all():  # NaN compares false
        raise BadInput(f"its {metric} is not a number from 0 to 1 in every evaluation")
    return counts, samples, reward


def read_run(folder, metric="avg@4", unit="rollouts", part="val"):
    """Return the run of a folder: dict(run, config, B_p, n, lr, seed, C, reward, ...). Raises
    BadInput with the reason if the run cannot be used.

      lr              the run's lr_base
      C               (E,) the budget in `unit` at each evaluation, strictly rising
      rollouts, step  (E,) the rollouts and the updates made before each evaluation
      samples         the number of rollouts of a problem in an evaluation
      counts          (E, P) how many rollouts of each problem are solved, None if not logged
      reward          (E,) the metric, computed from counts if there are any, else as logged
      copies          the result of core.problems.copies, None if no problem is a copy
      steps           {field: (M,)}, numeric fields of the step records, NaN if a record lacks one
      passes          the train_pass records, which have pass rates of training problems
      status          how the run ended, from its end record; "" if the log has no end record
      per_rollout     the cost of a rollout in `unit`

    part: the `set` of the evaluations, or "train" for the training reward.
    """
    records = read_log(next(folder / name for name in LOGS if (folder / name).exists()))
    headers = [r for r in records
               if r.get("type") == "header" and isinstance(r.get("config"), dict)]
    if not headers:
        raise BadInput("no header")
    header, cfg = headers[-1], headers[-1]["config"]
    if not all(isinstance(cfg.get(key), int) and cfg[key] > 0 for key in ("B_p", "n")):
        raise BadInput("its header has no B_p and n above 0")
    seed, lr = cfg.get("seed", 0), cfg.get("lr_base", CONFIG["lr_base"])
    if not isinstance(seed, int) or not is_number(lr):
        raise BadInput(f"its header has seed={seed!r} and lr_base={lr!r}, which must be numbers")
    steps = [r for r in records if r.get("type") == "step" and isinstance(r.get("step"), int)]
    hours = gpu_hours(steps, header.get("ranks", 1))
    spent = spending_in(unit, hours)
    if part == "train":
        evals, metric = training_rewards(steps, cfg, unit, spent), "train"
    else:
        evals = select_evals(records, metric, part, spent)
    check_evals(evals, records, metric, unit, part)
    C = sorted(evals)
    evals = [evals[c] for c in C]
    counts, samples, reward = read_evals(evals, metric)
    passes = [r for r in records if r.get("type") == "train_pass" and r.get("samples")
              and (r.get("rollouts") or r.get("fresh"))
              and len(r["samples"]) == len(r.get("ids", ())) == len(r.get("correct", ()))]
    end = [r for r in records if r.get("type") == "end"]
    rollouts, step = (np.array([r.get(key) or 0 for r in evals], float)
                      for key in ("rollouts", "step"))
    first = evals[0]
    task = first.get("set_hash"), samples, len(first.get("correct", ())), first.get("problems")
    return dict(
        run=folder.name, config=cfg, B_p=cfg["B_p"], n=cfg["n"], seed=seed, lr=lr, task=task,
        data=header.get("train_set_hash"),
        C=np.array(C, float), rollouts=rollouts, step=step,
        counts=counts, reward=reward, samples=samples, steps=columns(steps), passes=passes,
        copies=next((r["copies"] for r in evals if r.get("copies")), None),
        status=end[-1].get("status", "") if end else "",
        hours=max(hours.values()) if hours and has_times(steps) else None,
        device=str(header.get("device", "")),
        per_rollout=1.0 if unit == "rollouts" else C[-1] / max(rollouts[-1], 1),
        biased=metric in header.get("biased", ()), source=header.get("source", ""))


def experiment_key(cfg):
    """Return the keys and values that all configs of one sweep share, as a tuple of pairs."""
    return tuple((key, str(value)) for key, value in sorted(experiment(cfg).items()))


def comparable(runs, plans):
    """Split runs into (kept, dropped). The kept runs are of one experiment, on the same problems.

    dropped: for each dropped run a dict(run, why, B_p, ...). plans: the sweep.json of each folder,
    {} if a folder has none. The first plan names the experiment, even if it has no run yet, and a
    run is dropped if its lr_base is in none of the plans. If the first plan is {}, the experiment
    is that of most runs, and no run is dropped for its lr_base. If two runs share a cell and a
    seed, the longer run is kept.
    """
    dropped, keep, plan = [], list(runs), plans[0]

    def drop(test, **more):
        for run in list(keep):
            why = test(run)
            if why:
                keep.remove(run)
                dropped.append(dict(run=run["run"], why=why, B_p=run["B_p"], **more))

    usual, whose = experiment_key(plan["config"]) if plan else None, "the sweep's"
    if usual is None and keep:
        count = Counter(experiment_key(run["config"]) for run in keep)
        usual, whose = count.most_common(1)[0][0], "most runs'"
    lrs = [lr for p in plans if p for lr in lrs_of(complete(p["config"]))]
    lrs = lrs if plan else {run["lr"] for run in keep}

    def differs(run):
        key = experiment_key(run["config"])
        if key == usual and run["lr"] in lrs:
            return ""
        wanted = dict(usual)  # a key that only this run's config has is not listed as a change
        changes = [f"{name}={x} for {wanted[name]}" for name, x in key if x != wanted.get(name, x)]
        if run["lr"] not in lrs:
            changes.insert(0, f"lr_base={run['lr']:g} for {' or '.join(f'{x:g}' for x in lrs)}")
        return f"another config than {whose}: {', '.join(changes)}"
    drop(differs, other=True)
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
        why = f"the same B_p, n and seed as {other}, which is at least as long"
        return "" if other == run["run"] else why
    drop(shorter)
    return keep, dropped


def folders_of(text):
    """Return the folders that the value `text` of --runs names. Spaces separate the folders. Raises
    BadInput if a folder does not exist."""
    words = [str(text)] if Path(text).is_dir() else str(text).split()
    for word in words:
        if not Path(word).is_dir():
            raise BadInput(f"--runs={word}: no such folder; run a sweep first, as in "
                           "`bash run_sweep.sh easy`, or name another folder (spaces separate "
                           "folders, so a path must not have one)")
    return [Path(word) for word in words]


def first_epochs(run, epochs):
    """Return a run cut to its first `epochs` passes over the training problems.

    Raises BadInput if the number of training problems is unknown, or if fewer than three
    evaluations are left.
    """
    D = problems_trained_on(run)
    if not D:
        raise BadInput("its log has no D and its training problems are not here, so epochs are "
                       "unknown")
    keep = run["step"] * run["B_p"] <= epochs * D
    if keep.all():
        return run
    if keep.sum() < 3:
        raise BadInput(f"too few evaluations within {epochs:g} epochs of D = {D}: {keep.sum()}")
    short = {key: run[key][keep] for key in ("C", "rollouts", "step", "reward")}
    counts = None if run["counts"] is None else run["counts"][keep]
    updates = epochs * D // run["B_p"]
    steps = {key: x[run["steps"]["step"] <= updates] for key, x in run["steps"].items()}
    passes = [r for r in run["passes"] if r.get("step", 0) <= updates]
    hours = run["hours"] and run["hours"] * steps["step"][-1] / run["steps"]["step"][-1]
    return run | short | dict(counts=counts, steps=steps, passes=passes, status="cut", hours=hours)


def problems_trained_on(run):
    """Return the number of training problems of a run. It is D or, if D is 0, the number of lines
    in the run's problem file. Return None if this file is missing."""
    cfg = run["config"]
    path = Path(cfg.get("train_set") or "/")
    if cfg.get("D") or not path.is_file():
        return cfg.get("D") or None
    with open(path, "rb") as file:
        return sum(1 for _ in file)


def read_runs(folder, metric="avg@4", unit="rollouts", part="val", tag="", epochs=0):
    """Return (runs, dropped): the runs of a sweep that can be compared, and the other runs.

    dropped: a list of dict(run, why). folder: one or more folders, see `folders_of`. tag: use the
    runs with this tag instead of the tag in sweep.json. epochs: use only this many passes over the
    training problems; 0 = all. An unfinished run is used up to its last evaluation. Raises BadInput
    if no run can be used.
    """
    runs, dropped, folders = [], [], folders_of(folder)
    for path in (path for each in folders for path in sorted(each.iterdir())):
        if any((path / name).exists() for name in LOGS):
            try:
                run = read_run(path, metric, unit, part)
                runs.append(first_epochs(run, epochs) if epochs else run)
            except BadInput as e:
                dropped.append(dict(run=path.name, why=str(e)))
    plans = [read_plan(each) for each in folders]
    if tag:
        runs = [run for run in runs if run["config"].get("tag", "") == tag]
        if not runs:
            raise BadInput(f"--tag={tag}: no run in {folder} has this tag")
        plans = [plan and dict(plan, config=plan["config"] | dict(tag=tag)) for plan in plans]
    runs, not_comparable = comparable(runs, plans)
    dropped += not_comparable
    if not runs:
        raise BadInput(f"--runs={folder}: {why_no_runs(folders[0], dropped)}")
    copies = next((run["copies"] for run in runs if run["copies"]), None)
    for run in runs:
        # older logs lack `copies`. All runs have the same problems, so they have the same copies
        run["copies"] = copies
        # if a run was continued to a larger C, its header still has the smaller C, so take the
        # larger C from the sweep's plan
        B = run["B_p"] * run["n"]
        for C in (plan["config"].get("C", -1) for plan in plans if plan):
            if run["rollouts"][-1] <= C < run["rollouts"][-1] + B:
                run["config"] = run["config"] | dict(C=C)
    return sorted(runs, key=lambda run: (run["B_p"], run["n"], run["lr"], run["seed"])), dropped


def why_no_runs(folder, dropped):
    """Return the reason why a folder has no run to analyse, as text."""
    others = sum("other" in d for d in dropped)
    if others:
        return ("no run of the sweep in sweep.json can be read yet; "
                f"runs of another experiment in this folder: {others}")
    if any((folder / name).exists() for name in LOGS):
        return f"no run to analyse; this is one run, so name its parent, --runs={folder.parent}"
    return "no run to analyse" + (f"; {dropped[0]['run']}: {dropped[0]['why']}" if dropped else "")


def ended(run):
    """Return whether a run is finished. A stopped run is unfinished, because it can be resumed."""
    return run["status"] not in ("", "stopped")


def missing_cells(folder, runs, dropped):
    """Return the cells of sweep.json that have no finished run: a list of dict(B_p, n, lr, seed,
    why)."""
    have = {(run["B_p"], run["n"], run["lr"], run["seed"]): run for run in runs}
    tag, out = runs[0]["config"].get("tag", "") if runs else "", []
    plans = [plan for plan in map(read_plan, folders_of(folder))
             if plan and plan["config"].get("tag", "") == tag]
    for plan, cell in ((plan, cell) for plan in plans for cell in plan.get("cells", ())):
        lr = cell.get("lr_base", plan["config"].get("lr_base"))
        run = have.get((cell["B_p"], cell["n"], lr, cell["seed"]))
        if run is None or not ended(run):
            why = "unfinished" if run else "dropped or no log" if dropped else "no log"
            out.append(dict(B_p=cell["B_p"], n=cell["n"], lr=lr, seed=cell["seed"], why=why))
    return out
