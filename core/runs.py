"""core/runs.py: the logs of a sweep -> runs, a list of dicts of plain arrays.

    from core.runs import read_sweep
    runs, dropped = read_sweep("runs/easy", metric="avg@4", unit="rollouts", part="val")

A run is a dict with E evaluations of P problems:
  C, rollouts, step, hours (E,)  what was spent, in `unit`; rollouts; updates; GPU-hours, or 0
  reward (E, P)            the metric of each problem; (E, 1) if the log has no counts
  B_p, n, lr_base, seed, config, status, run (its folder's name), and others, see `read_run`
"""
from collections import Counter
from pathlib import Path

import numpy as np

from config import BadInput, experiment, set_key
from core.log import read_log, read_plan
from core.problems import at_k


def is_number(x):
    return isinstance(x, (int, float)) and not isinstance(x, bool) and np.isfinite(x)


def per_problem(evals, metric):
    """Return the metric (E, P) of each problem, from the counts `correct`; (E, 1) for logs
    that have only means, and for the mean reward."""
    tasks = {(r.get("set_hash"), r.get("samples"), len(r.get("correct") or ())) for r in evals}
    if len(tasks) > 1:
        raise BadInput("its evaluations differ in problems or samples")
    if "@" in metric and evals[0].get("correct"):
        samples, counts = evals[0].get("samples"), np.array([r["correct"] for r in evals])
        if not is_number(samples) or counts.dtype.kind != "i" or not (
                (counts >= 0) & (counts <= samples)).all():
            raise BadInput("`correct` has values that are not counts from 0 to `samples`")
        return np.array(at_k(metric, samples))[counts]
    values = np.array([[r[metric]] for r in evals], float)
    if not (np.abs(values - 0.5) <= 0.5 + 1e-6).all():  # false for NaN
        raise BadInput(f"its {metric} is not a number from 0 to 1 in every evaluation")
    return values


def hours_of(steps, ranks):
    """Return {step: GPU-hours, or core-hours, so far} of gen_s + train_s, {} if one lacks them. A
    record of a thinned log has the means of the updates since the record before it."""
    hours, total, before = {0: 0.0}, 0.0, 0
    for r in steps:
        if not (is_number(r.get("gen_s")) and is_number(r.get("train_s"))):
            return {}
        total += (r["gen_s"] + r["train_s"]) * (r["step"] - before)
        hours[r["step"]], before = total * ranks / 3600, r["step"]
    return hours


def read_run(path, metric="avg@4", unit="rollouts", part="val", epochs=0):
    """Return the run of a log file: `per_problem` of its evaluations of the set `part`, in the
    first `epochs` passes (0 = all). Raise BadInput with the reason if it cannot be used."""
    records = read_log(path)
    head = next((r for r in records
                 if r.get("type") == "header" and isinstance(r.get("config"), dict)), None)
    if head is None:
        raise BadInput("no header")
    cfg = dict(B_p=0, n=0, seed=0, lr_base=0.0) | head["config"]
    for key in cfg.keys() & set("B_p n n_train seed lr_base lr_scaling C D".split()):
        set_key(cfg, key, cfg[key])  # the keys that the analysis reads
    if min(cfg["B_p"], cfg["n"]) < 1:
        raise BadInput("its config has no B_p or no n")
    D = dict(head.get("derived") or {}).get("D") or cfg.get("D")
    if epochs and not D:
        raise BadInput("its config has no D, the training problems, for --epochs")
    M = epochs * D // cfg["B_p"] if epochs else np.inf
    used = [r for r in records if not is_number(r.get("step")) or r["step"] <= M]
    steps = [r for r in used if r.get("type") == "step"
             and is_number(r.get("step")) and is_number(r.get("rollouts"))]
    hours = hours_of(steps, head.get("ranks") or 1)
    evals = {}
    for r in used:
        if r.get("type") != "eval" or r.get("set", "val") != part:
            continue
        step, at = r.get("step"), None
        if hours and is_number(step):  # thinned logs have no record of most updates
            at = float(np.interp(step, [*hours], [*hours.values()]))
        r = r | dict(updates=step, gpu_hours=at)
        r.setdefault("rollouts", (step or 0) * cfg["B_p"] * cfg["n"])
        r.setdefault("reward", r.get(f"avg@{r.get('k')}"))  # if no rewards are fractions
        for key in (unit, metric):
            if isinstance(x := r.get(key), (int, float)) and not 0 <= x < np.inf:  # false for NaN
                raise BadInput(f"an evaluation has {key} = {x}")
        if is_number(r.get(unit)) and (is_number(r.get(metric)) or r.get("correct")):
            evals[r[unit]] = r
    evals = [evals[C] for C in sorted(evals)]
    if sum(r[unit] > 0 for r in evals) < 2:
        raise BadInput(f"fewer than two evaluations of `{part}` after the start with {metric} and "
                       f"{unit}" + f" in its first {epochs:g} epochs" * bool(epochs))
    ends = ["", *(str(r.get("status")) for r in records if r.get("type") == "end")]
    reward = per_problem(evals, metric)
    fields = dict(C=unit, rollouts="rollouts", step="step", hours="gpu_hours")
    columns = {name: np.array([r.get(field) or 0 for r in evals], float)
               for name, field in fields.items()}
    return columns | {key: cfg[key] for key in ("B_p", "n", "lr_base", "seed")} | dict(
        run=path.parent.name, config=cfg, reward=reward, steps=steps, D=D,
        source=head.get("source", ""),
        status="budget" if len(used) < len(records) else ends[-1],
        problems=evals[0].get("problems") or len(evals[0].get("correct") or ()),
        device=str(head.get("device", "")), data=str(head.get("train_set_hash")),
        task=(evals[0].get("set_hash"), evals[0].get("samples"), reward.shape[1]))


def read_sweep(folder, metric="avg@4", unit="rollouts", part="val", epochs=0):
    """Return (runs, dropped): the runs of a folder that can be compared, in order of cell and seed,
    and (name, reason) of the others. Raise BadInput if no run can be used. They have the experiment
    of sweep.json, or of most runs, and the problems of most runs. If two share a cell and a seed,
    the longer one is used."""
    read, dropped = [], []
    for path in sorted(x for end in ("", ".gz") for x in Path(folder).glob(f"*/log.jsonl{end}")):
        try:
            read.append(read_run(path, metric, unit, part, epochs))
        except BadInput as e:
            dropped.append((path.parent.name, str(e)))
        except (KeyError, TypeError, ValueError) as e:  # a record of a form that nobody expected
            dropped.append((path.parent.name, f"its log is malformed ({e!r})"))
    if not read:
        why = "".join(f" ({name}: {reason})" for name, reason in dropped[:1])
        raise BadInput(f"--runs={folder}: no run to analyse{why or ', no RUN/log.jsonl'}")

    def key(cfg):
        return frozenset((k, str(v)) for k, v in experiment(cfg).items())

    def most(values):
        return Counter(values).most_common(1)[0][0]
    plan = read_plan(folder).get("config")
    usual = key(plan) if plan else most(key(run["config"]) for run in read)
    same = [run for run in read if key(run["config"]) == usual]
    if not same:
        raise BadInput(f"--runs={folder}: no run of the experiment in sweep.json yet")
    task = most(run["task"] for run in same)
    same = [run for run in same if run["task"] == task]
    data = {seed: most(run["data"] for run in same if run["seed"] == seed)
            for seed in {run["seed"] for run in same}}
    kept = {}
    for run in sorted(read, key=lambda run: -run["C"][-1]):
        cell = run["B_p"], run["n"], run["lr_base"], run["seed"]
        differ = key(run["config"]) - usual
        why = (f"another config: {', '.join(sorted(map('='.join, differ)))}" if differ else
               "other validation problems or samples" if run["task"] != task else
               "other training problems" if run["data"] != data[run["seed"]] else
               f"same cell and seed as {kept[cell]['run']}" if cell in kept else "")
        if why:
            dropped.append((run["run"], why))
        else:
            kept[cell] = run
    return [kept[cell] for cell in sorted(kept)], dropped
