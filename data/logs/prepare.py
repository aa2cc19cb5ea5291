"""data/logs/prepare.py: logs of veRL, TRL, W&B and TensorBoard as run folders for frontier.py.

    python data/logs/prepare.py --source=verl --problems=300 logs/*_Bp32_n16_seed1.jsonl
    python data/logs/prepare.py --source=trl --problems=300 --samples=4 --B_p=8 --n=8 checkpoint-500
    python data/logs/prepare.py --source=wandb --problems=300 --samples=4 history.csv

  --source=verl|trl|wandb  veRL's file of logger=["file"], TRL's trainer_state.json, or a CSV file
  --out=runs/imported    the sweep's folder; only a shorter log of the same run is overwritten
  --problems=300         number of validation problems, for the binomial noise; never in the logs
  --samples=4            rollouts per validation problem, unless the metric is veRL's mean@N
  --metric_column=NAME   column of the mean validation reward (0 to 1), if none or several are found
  --KEY=VALUE            any key of config.py for all runs of this call: B_p, n, seed, k, lr_base...

If B_p, n or seed is not given, it is read from the run's name or path (Bp32_n16_seed1). A CSV file
is the history of one run (run.history().to_csv()), TensorBoard's export, or a W&B chart of several
runs. The largest logged lr gives lr_base; if lr follows sqrt(B_p n), add --lr_scaling=sqrt.
"""
import contextlib
import csv
import json
import math
import re
import shlex
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from config import BadInput, check, choose, config, derive, entry, read_json, set_key  # noqa: E402
from core.log import atomic_write, read_log  # noqa: E402

OPTIONS = dict(source="", out="runs/imported", problems=0, metric_column="")
EVAL = re.compile(r"val-core/.+/mean@\d+|eval_reward|eval/reward")  # veRL, TRL, TRL's in W&B
REWARD = ("critic/score/mean", "critic/rewards/mean", "reward", "train/reward")
LR = ("actor/lr", "learning_rate", "train/learning_rate", "train/lr", "train/actor_lr", "lr")
# Columns that count updates. Training and evaluation may each have their own, else one is used
STEP = re.compile(r"(?!training/)(\w+/)?global_step|(train|val|valid|validation|eval|test|rollout)"
                  "/step")
STEPS = "step update updates iteration _step Step training/global_step".split()


def numbers(row):
    """Return {name: value} of the finite numbers of a row."""
    out = {}
    for key, value in row.items():
        with contextlib.suppress(TypeError, ValueError):
            if math.isfinite(float(value)):
                out[key] = float(value)
    return out


def first(row, names):
    """Return the row's value of the first metric in `names` that the row has, or None."""
    return next((row[name] for name in names if name in row), None)


def by_step(pairs, path):
    """Join (step, metrics) pairs, in the order of logging, into {step: metrics} with rising steps.
    If the step falls to m, the run was started again, so drop what was logged for later ones."""
    rows, restarts, last = {}, [], 0
    for m, row in pairs:
        if isinstance(m, int) and (row := numbers(row)):
            if m < last:
                restarts.append(f"from step {last} to {m}")
                rows = {step: old for step, old in rows.items() if step <= m}
            rows.setdefault(m, {}).update(row)
            last = m
    if restarts:
        print(f"{path}: the log goes back {', '.join(restarts[:8])}: the run was started again")
    return rows


# ---- Readers: a path -> {run's name: [(step, {metric: value})]} ----------------------------------

def read_verl(path):
    return {str(path): [(r.get("step"), r.get("data", {})) for r in read_log(path)]}


def read_trl(path):
    state = read_json(path / "trainer_state.json" if path.is_dir() else path)
    return {str(path): [(r.get("step"), r) for r in state.get("log_history", [])]}


def read_csv(path):
    """Read a history, with one column per metric, or a chart, with columns "RUN - METRIC"."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            header, rows = reader.fieldnames or [], [numbers(row) for row in reader]
    except (ValueError, csv.Error):
        raise BadInput(f"{path}: not a readable CSV file with a header") from None
    steps = [*filter(STEP.fullmatch, header)] or [name for name in STEPS if name in header][:1]
    if steps == ["_step"]:
        print(f"{path}: _step counts calls of log(); it is taken as updates", file=sys.stderr)
    if not steps:
        raise BadInput(f"{path}: has no column of steps: train/global_step, _step or Step")
    if len(header) > len(set(header)) or any(name.startswith("Group: ") for name in header):
        raise BadInput(f"{path}: two columns have the same name, or the chart is grouped")
    pairs, runs = [(int(first(row, steps)), row) for row in rows if row.keys() & {*steps}], {}
    counted = {name for _, row in pairs for name in row}
    if lost := sorted({name for row in rows for name in row} - counted):
        print(f"{path}: not read, for lack of a step ({' or '.join(steps)}): {', '.join(lost[:8])}")
    for column in sorted(counted.difference(steps)):
        name, _, metric = column.rpartition(" - ")
        if not metric.endswith(("__MIN", "__MAX")):
            runs.setdefault(name or str(path), {})[column] = metric
    return {name: [(m, {metric: row.get(column) for column, metric in columns.items()})
                   for m, row in pairs] for name, columns in runs.items()}


READERS = dict(verl=read_verl, trl=read_trl, wandb=read_csv)


# ---- A run, {step: {metric: number}} -> the records of log.jsonl ---------------------------------

def validation_column(names, chosen):
    """Return the column of the mean validation reward. Raise BadInput if it is not unique."""
    if chosen in names:
        return chosen
    found = [] if chosen else sorted(filter(EVAL.fullmatch, names)) or [*names][:len(names) == 1]
    parts = sorted(x for x in names for total in found[:1]  # the rewards that TRL adds up
                   if x.startswith(f"{total}s/") and not x.endswith("/std"))
    if len(found) == 1 and len(parts) < 2:
        return found[0]
    parts = parts if len(parts) > 1 else []
    problem = f"{found[0]} is a sum of rewards" if parts else "expected one validation metric"
    likely = sorted(names, key=lambda name: (
        name not in found, not re.search("val|acc|reward|score", name), name))
    raise BadInput(f"{problem}; choose a column with --metric_column= "
                   f"({', '.join((parts or likely)[:8])})")


def resolve(name, rows, known):
    """Return a run's config. known: the keys of the command line, to which B_p, n and seed are
    added from the run's name if they are missing."""
    cfg = dict(config, lr_scaling="constant")
    for key in ("B_p", "n", "seed"):
        pattern = key.replace("_", "_?")
        for value in re.findall(rf"(?<![A-Za-z]){pattern}[_=]?(\d+)(?!\.?\d)", name)[-1:]:
            known.setdefault(key, value)
    if absent := [f"--{key}=" for key in ("B_p", "n", "samples") if key not in known]:
        raise BadInput(f"{' and '.join(absent)} must be given; the name {name} does not have it")
    for key, value in known.items():
        if key not in OPTIONS:
            set_key(cfg, key, value)
    # with eval_every=1, frontier.py uses each evaluation at the budget C at which it was made
    cfg.update(k=known.get("k", cfg["samples"]), eval_every=1, C=max(rows) * cfg["B_p"] * cfg["n"])
    check(cfg)
    if "lr_base" not in known:  # from the peak of the schedule; 0 = unknown
        peak = max(first(row, LR) or 0 for row in rows.values())
        cfg["lr_base"] = float(f"{peak / derive(cfg | dict(lr_base=1.0))['lr']:.3g}")
    return cfg


def convert(name, path, rows, given):
    """Return the records of a run's log.jsonl. Raise BadInput if the log lacks something."""
    # W&B's own columns begin with _ or have no name; veRL's best@N and worst@N are biased
    names = {metric for row in rows.values() for metric in row
             if not re.search("^(_|$)|(best|worst|maj)@", metric)}
    if any("filter_groups/" in metric for metric in names) or any(
            row.get("train/num_gen_batches", 1) > 1 for row in rows.values()):  # veRL's DAPO recipe
        raise BadInput("algorithm.filter_groups sampled again, so the rollouts are not known")
    column, known = validation_column(names, given["metric_column"]), dict(given)
    if verl := re.fullmatch(r"val-(?:core|aux)/.+/mean@(\d+)", column):
        known["samples"] = int(verl[1])
    if column.startswith("eval"):  # TRL's steps are optimizer steps
        each = max(known.get("updates", 1), 1)
        rows = by_step(((math.ceil(m / each), row) for m, row in rows.items()), path)
    cfg = resolve(name, rows, known)
    log = [dict(type="header", schema=1, config=cfg, derived=derive(cfg), source=given["source"])]
    for m, row in rows.items():
        at = dict(step=m, rollouts=m * cfg["B_p"] * cfg["n"])
        if m and first(row, REWARD + LR) is not None:
            log.append(dict(at, type="step", lr=first(row, LR), reward=first(row, REWARD)))
        if column in row:
            if not 0 <= row[column] <= 1:
                raise BadInput(f"--metric_column={column} is {row[column]} at step {m}, not 0 to 1")
            log.append(dict(at, type="eval", set="val", k=cfg["k"], samples=cfg["samples"],
                            problems=given["problems"]) | {f"avg@{cfg['k']}": row[column]})
    steps = [r["step"] for r in log if r["type"] == "step"]
    if steps[1:] and steps[0] > max(b - a for a, b in zip(steps, steps[1:])):
        print(f"{name}: the steps before {steps[0]} are missing")
    return [*log, dict(type="end", status="budget", rollouts=cfg["C"])]


def main(argv):
    if {"-h", "--help"} & set(argv):
        return print(__doc__.strip())
    given, logs = dict(OPTIONS), {}
    for word in argv:
        key, _, value = word.removeprefix("--").partition("=")
        if word.startswith("-"):
            set_key(given, key, value, keys=config | OPTIONS)
    choose("source", given["source"], READERS)
    if given["problems"] < 1:
        raise BadInput(f"--problems={given['problems']}: how many validation problems?")
    for path in [Path(word) for word in argv if not word.startswith("-")]:
        if not path.exists():
            raise BadInput(f"{path}: no such file")
        runs = {}
        with contextlib.suppress(AttributeError, TypeError):  # JSON of another form
            runs = {name: rows for name, pairs in READERS[given["source"]](path).items()
                    if any(rows := by_step(pairs, path))}  # it has a step above 0
        if not runs:
            raise BadInput(f"{path}: expected a log of {given['source']} with updates")
        for name, rows in runs.items():
            try:
                log = convert(name, path, rows, given)
            except BadInput as e:
                raise BadInput(f"{path}: {e}") from None
            file = Path(given["out"]) / log[0]["derived"]["run"] / "log.jsonl"
            old = read_log(file) if file.exists() else log
            if file in logs or old[1:-1] != log[1:len(old) - 1]:
                raise BadInput(f"{path}: {logs.get(file, [file])[0]} has other records of the same "
                               "run; remove it, or give --seed=, --lr_base= or --out=")
            logs[file] = path, log
    if not logs:
        raise BadInput("no log given: name the files to read after the options (--help)")
    for file, (path, log) in logs.items():
        with atomic_write(file) as part:
            part.write_text("".join(json.dumps(record) + "\n" for record in log))
        print(f"{file.parent}: {path.name}, {log[-1]['rollouts']} rollouts, "
              f"{sum(r['type'] == 'eval' for r in log)} evaluations")
    print(f"next: python frontier.py {shlex.quote('--runs=' + given['out'])} "
          f"--metric=avg@{log[0]['config']['k']}")


if __name__ == "__main__":
    entry(main)
