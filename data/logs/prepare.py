"""data/logs/prepare.py: logs of veRL, TRL, W&B and TensorBoard as run folders for frontier.py.

    python data/logs/prepare.py --source=verl --problems=300 logs/*_Bp32_n16_seed1.jsonl
    python data/logs/prepare.py --source=trl --problems=300 --samples=4 --B_p=8 --n=8 checkpoint-500
    python data/logs/prepare.py --source=wandb --problems=300 --samples=4 chart.csv
    python frontier.py --runs=runs/imported --metric=avg@4

  --source=verl|trl|wandb  the format; wandb reads CSV exports of W&B and of TensorBoard
  --out=runs/imported    the sweep's folder; only a shorter log of the same run is overwritten
  --problems=300         number of validation problems, to estimate the noise; never in the logs
  --samples=4            rollouts per validation problem, unless the metric is veRL's mean@N
  --metric_column=NAME   column of the mean validation reward (0 to 1), if none or several are found
  --KEY=VALUE            any key of config.py for all runs of this call: B_p, n, seed, k, lr_base...

If B_p, n or seed is not given, it is read from the run's name or path (as in Bp32_n16_seed1). All
other keys have the value of config.py by default.
- veRL: logger=["file"]. B_p n must agree with the token counts in the log.
- TRL: B_p = per_device_train_batch_size x gradient_accumulation_steps x processes /
  (num_generations x num_iterations).
- CSV: a history (run.history().to_csv()) has one column per metric. The export of a chart has one
  metric of many runs. Give the exports of all charts in one call, so that the metrics of a run can
  be joined by the run's name. W&B samples its exports, so the curve of a long run may have gaps.

If a run was restarted from an earlier step, everything that the earlier start logged after this
step is dropped. If the logged lr is constant after warm-up, it becomes lr_base, with
lr_scaling=constant. If your lr follows sqrt(B_p n), give --lr_scaling=sqrt, so that the runs of a
sweep share one lr_base. The field `tokens` counts response tokens, and is left out if steps are
missing. An evaluation has only the mean over all problems, no counts per problem. veRL draws best@N
and worst@N with replacement, so these metrics are biased. The log's header lists them under
`biased`.
"""
import contextlib
import csv
import json
import math
import re
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
from config import BadInput, check, choose, config, derive, entry, read_json, set_key  # noqa: E402
from core.log import atomic_write, read_log  # noqa: E402

OPTIONS = dict(source="", out="runs/imported", problems="", metric_column="")
# EVAL, REWARD, LENGTH and LR each list the names of one metric in veRL, in TRL and in W&B. If the
# library transformers logs to W&B, it adds the prefix train/ or eval/
EVAL = re.compile(r"val-core/.+/mean@\d+|eval_reward|eval/reward")
REWARD = ("critic/score/mean", "critic/rewards/mean", "reward", "train/reward")
LENGTH = ("response_length/mean", "completions/mean_length", "train/completions/mean_length")
LR = ("actor/lr", "learning_rate", "train/learning_rate")
# Column names for the step, the best one first: if transformers logs to W&B, global_step counts
# updates, but _step counts calls of log()
STEP = ("train/global_step", "_step", "Step", "training/global_step", "global_step")


def numbers(row):
    """Return the finite numbers of a row, without empty cells, null, NaN and text."""
    out = {}
    for key, value in row.items():
        with contextlib.suppress(TypeError, ValueError):
            if math.isfinite(float(value)):
                out[key] = float(value)
    return out


def first(row, names):
    """Return the row's value of the first metric in `names` that the row has, or None."""
    return next((row[name] for name in names if name in row), None)


def shorten(items, most=3):
    """Return a text with the first `most` items, and how many more items there are, if any."""
    items = list(items)
    return ", ".join(items[:most]) + f" and {len(items) - most} more" * (len(items) > most)


def by_step(pairs, path):
    """Join (step, metrics) pairs, in the order of logging, into {step: metrics} with rising steps.

    If the step falls to m from one pair to the next, the run was restarted. Then drop everything
    logged so far for steps after m. If a metric is logged twice at the same step, keep the later
    value.
    """
    rows, restarts = {}, []
    for m, row in pairs:
        if not isinstance(m, int) or not (row := numbers(row)):
            continue
        last = next(reversed(rows), m)
        while rows and next(reversed(rows)) > m:
            rows.popitem()
        if last > m:
            restarts.append(f"from step {last} to {m}")
        rows.setdefault(m, {}).update(row)
    if restarts:
        print(f"{path}: the log goes back {shorten(restarts)}: the run was started again; the "
              "later start counts from there on")
    return rows


def missing_steps(steps, slack):
    """Return the gaps ["1 to 100", "105", ...] in a rising list of steps.

    A trainer may log only every few steps. So an interval between two steps is a gap only if it is
    longer than `slack` times the most frequent interval.
    """
    pairs = list(zip([0, *steps], steps))
    interval = statistics.mode(b - a for a, b in pairs)
    gaps = [(a + 1, b - interval) for a, b in pairs if b - a > slack * interval]
    return [f"{a} to {b}" if b > a else str(a) for a, b in gaps]


# --------------------------------------------------------------------------------------------------
# Readers: a path -> {run's name: {step: {metric: number}}}

def read_verl(path):
    """Read veRL's FileLogger: one line {"step": m, "data": {metric: value}} per update.

    The evaluation after an update is on the same line.
    """
    rows = by_step(((r.get("step"), r.get("data", {})) for r in read_log(path)), path)
    if any("filter_groups/" in name or (name == "train/num_gen_batches" and row[name] > 1)
           for row in rows.values() for name in row):  # the DAPO recipe
        raise BadInput(f"{path}: groups were filtered and sampled again (algorithm.filter_groups), "
                       "so the log does not have the number of rollouts; expected a run without it")
    return {str(path): rows}


def read_trl(path):
    """Read TRL's trainer_state.json. It has separate entries for the training and the evaluation of
    a step."""
    path = path / "trainer_state.json" if path.is_dir() else path
    entries = read_json(path).get("log_history", [])
    return {str(path): by_step(((r.get("step"), r) for r in entries), path)}


def read_csv(path):
    """Read a CSV file, the export of a W&B chart or the history of a run.

    A chart has a step column and, for each run, three columns: "RUN - METRIC", and two more whose
    names end in __MIN and __MAX. A history has one column per metric.
    """
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            header, rows = reader.fieldnames or [], [numbers(row) for row in reader]
    except (ValueError, csv.Error):
        raise BadInput(f"{path}: not a readable CSV file with a header") from None
    step = next((name for name in STEP if name in header), None)
    if step is None:
        raise BadInput(f"{path}: has no column {' or '.join(STEP[:3])}; export a chart over the "
                       "step, or run.history().to_csv()")
    header.remove(step)
    is_chart, runs = all(" - " in column for column in header), {}  # {run: {metric: its column}}
    for column in header:
        name, _, metric = column.rpartition(" - ") if is_chart else (str(path), "", column)
        metrics = runs.setdefault(name, {})
        if is_chart and name.startswith("Group: "):
            raise BadInput(f"{path}: a grouped chart, whose curves are means over runs; export it "
                           "ungrouped")
        if metric in metrics:
            raise BadInput(f"{path}: two columns are called {column}; rename one of the runs in "
                           "W&B")
        if not (is_chart and metric.endswith(("__MIN", "__MAX"))):
            metrics[metric] = column
    # rows without a step, such as TRL's profiling, belong to no update, so leave them out
    return {name: by_step(((int(row[step]), {metric: row.get(column)
                                             for metric, column in metrics.items()})
                           for row in rows if step in row), path)
            for name, metrics in runs.items()}


# {value of --source: (function that reads a file, description of an expected file)}
READERS = dict(
    verl=(read_verl, 'a log of its file logger, lines of {"step": ..., "data": {...}}'),
    trl=(read_trl, "a trainer_state.json whose log_history has steps"),
    wandb=(read_csv, "a chart's export, or run.history().to_csv()"))


def collect(source, paths):
    """Return all runs as dicts of name, files and rows. Charts that name the same run are joined.
    """
    (reader, form), runs = READERS[source], {}
    for path in map(Path, paths):
        if not path.exists():
            raise BadInput(f"{path}: no such file")
        found = {name: rows for name, rows in reader(path).items() if rows}
        if not found:
            raise BadInput(f"{path}: has no metrics by step; expected {form}")
        for name, rows in found.items():
            run = runs.setdefault(name, dict(name=name, files=[], rows={}))
            run["files"].append(path)
            for m, row in rows.items():
                joined = run["rows"].setdefault(m, {})
                for key in joined.keys() & row:
                    if joined[key] != row[key]:
                        raise BadInput(f"{path}: {key} at step {m} of the run {name} differs from "
                                       f"that in {run['files'][0]}")
                joined.update(row)
    return [dict(run, rows=dict(sorted(run["rows"].items()))) for run in runs.values()]


# --------------------------------------------------------------------------------------------------
# Convert a run, as `collect` returns it, into the records of log.jsonl

def rewards_in_sum(total, rows):
    """Return the names of the rewards that TRL adds up in the column `total`.

    Return [] if the log has no column for the single rewards, or if one of them equals the total at
    each step. If `total` is eval_reward, the single rewards are called
    eval_rewards/NAME/mean, or eval_rewards/NAME in old versions of TRL.
    """
    if not total.endswith("reward"):
        return []
    parts = sorted({name for row in rows.values() for name in row
                    if name.startswith(f"{total}s/") and not name.endswith("/std")})
    totals = [row for row in rows.values() if total in row]
    is_one = any(all(abs(row.get(part, math.inf) - row[total]) < 1e-6 for row in totals)
                 for part in parts)
    return [] if is_one else parts


def validation_column(run, names, chosen):
    """Return the name of a run's mean validation reward. Raise BadInput if no name or several names
    are possible."""
    found = [chosen] if chosen else sorted(filter(EVAL.fullmatch, names))
    parts = rewards_in_sum(found[0], run["rows"]) if found and not chosen else []
    if len(found) > 1:
        problem, seen = "several validation metrics", found
    elif parts:
        problem, seen = f"{found[0]} is a sum of rewards, not a share of right answers,", parts
    elif found and found[0] in names:
        return found[0]
    else:
        likely = [name for name in sorted(names) if re.search("val|acc|reward|score", name)]
        problem, seen = "no validation metric", likely or sorted(names)
    raise BadInput(f"{problem} in {run['name']}; choose one with --metric_column= "
                   f"({shorten(seen, 8) or 'the log has no metric'})")


def training_column(run, names):
    """Return the name of a run's mean training reward, or None if the log has no usable one.

    A reward is usable if it is a share, from 0 to 1. If it is not, print why it is left out.
    """
    column = next((name for name in REWARD if name in names), None)
    if column is None:
        return None
    parts = rewards_in_sum(column, run["rows"])
    about = [column.removesuffix("mean") + end for end in ("min", "max")]  # veRL: over rollouts
    values = [row[name] for row in run["rows"].values() for name in (column, *about) if name in row]
    if not parts and 0 <= min(values) and max(values) <= 1:
        return column
    reason = (f"it is a sum of rewards ({shorten(parts, 8)})" if parts else
              f"its rewards range from {min(values):g} to {max(values):g}")
    print(f"{run['files'][0]}: the training reward {column} is left out: {reason}")
    return None


def resolve(run, given, samples):
    """Return a run's config as a flat dict.

    `given` has priority, then `samples`, then the run's name, then config.py. If the logged lr is
    constant after warm-up and lr_base is not given, compute lr_base from the logged lr.
    """
    cfg, known = dict(config, lr_scaling="constant"), {}
    for key, pattern in (("B_p", "B_?p"), ("n", "n"), ("seed", "seed")):
        found = re.findall(rf"(?<![A-Za-z]){pattern}[_=]?(\d+)(?!\.?\d)", run["name"])
        if found:
            known[key] = found[-1]
    known |= samples | given
    absent = [f"--{key}=" for key in ("B_p", "n", "samples") if key not in known]
    if absent:
        raise BadInput(f"{' and '.join(absent)} must be given, since the name {run['name']} "
                       "does not have it (--help)")
    for key, value in known.items():
        set_key(cfg, key, value)
    lr = [rate for row in run["rows"].values() if (rate := first(row, LR))]
    if "lr_base" not in known and len(lr) > 1 and lr[-1] == lr[-2] == max(lr):  # after warm-up
        factor = derive(cfg | dict(lr_base=1.0))["lr"]
        cfg["lr_base"] = float(f"{lr[-1] / factor:.3g}")
    # The log does not give eval_every, but a run's identity needs a value. It is set to 1, because
    # frontier.py then uses each evaluation at the budget C at which it was made
    cfg.update(k=given.get("k", cfg["samples"]), eval_every=1,
               C=max(run["rows"]) * cfg["B_p"] * cfg["n"])
    if not cfg["C"]:
        raise BadInput("has no training step; expected a log with updates")
    check(cfg)
    return cfg


def check_batch(rows, cfg):
    """Raise BadInput if the token counts in the log imply another number of rollouts than B_p n."""
    B, total = cfg["B_p"] * cfg["n"], "perf/total_num_tokens"
    lengths = "prompt_length/mean", "response_length/mean"
    sizes = [row[total] / sum(row[length] for length in lengths) for row in rows.values()
             if {total, *lengths} <= row.keys()]
    if sizes and abs(statistics.median(sizes) / B - 1) > 0.02:
        raise BadInput(f"B_p n = {cfg['B_p']} x {cfg['n']} = {B}, but by its token counts a step "
                       f"has {statistics.median(sizes):.0f} rollouts; correct --B_p= or --n=")


def token_sums(rows, trained, B):
    """Return {step: response tokens up to this step}.

    trained: the steps with training metrics. If one of them has no mean response length, return {}.
    B: rollouts per update.
    """
    sums, before = {0: 0}, 0
    for m in trained:
        # the mean response length over all updates since the previous step in `trained`
        length = first(rows[m], LENGTH)
        if length is None:
            return {}
        sums[m], before = sums[before] + round(length * (m - before) * B), m
    return sums


def convert(run, options, given):
    """Return the records of a run's log.jsonl. Raise BadInput if the log lacks something."""
    rows, names = run["rows"], {name for row in run["rows"].values() for name in row}
    column = validation_column(run, names, options["metric_column"])
    samples, biased = {}, {}
    if verl := re.fullmatch(r"val-(?:core|aux)/(.+)/mean@(\d+)", column):
        samples["samples"] = int(verl[2])
        if given.get("samples", int(verl[2])) != int(verl[2]):
            raise BadInput(f"--samples={given['samples']}: {column} is the mean of {verl[2]}")
        # veRL draws from the N samples with replacement, so best@N is too low and worst@N too high
        drawn = rf"val-(?:core|aux)/{re.escape(verl[1])}/((?:best|worst)@\d+)/mean"
        biased = {name: found[1] for name in sorted(names) if (found := re.fullmatch(drawn, name))}
    cfg = resolve(run, given, samples)
    check_batch(rows, cfg)
    B, reward = cfg["B_p"] * cfg["n"], training_column(run, names)
    trained = [m for m in rows if m and first(rows[m], REWARD + LENGTH + LR) is not None]
    # W&B samples its exports, so in a W&B log a single missing step does not count as a gap
    gaps = missing_steps(trained or [m for m in rows if m],
                         slack=2 if options["source"] == "wandb" else 1)
    if gaps:
        print(f"{run['name']}: the steps {shorten(gaps)} are missing")
    tokens, log = {} if gaps else token_sums(rows, trained, B), []
    for m, row in rows.items():
        at = dict(step=m, rollouts=m * B) | ({"tokens": tokens[m]} if m in tokens else {})
        if m in trained:
            fields = dict(lr=first(row, LR), reward=row.get(reward),
                          response_len=first(row, LENGTH))
            log.append(dict(type="step", **at) | {key: value for key, value in fields.items()
                                                  if value is not None})
        if column in row:
            values = {f"avg@{cfg['k']}": row[column]}
            values |= {field: row[name] for name, field in biased.items() if name in row}
            if not all(0 <= value <= 1 for value in values.values()):
                raise BadInput(f"{column} is {row[column]} at step {m}, not a share of right "
                               "answers; choose another with --metric_column=")
            log.append(dict(type="eval", **at, set="val", k=cfg["k"], samples=cfg["samples"],
                            problems=int(options["problems"])) | values)
    header = dict(type="header", schema=1, config=cfg, derived=derive(cfg),
                  source=options["source"], biased=sorted(set(biased.values())),
                  source_file=", ".join(path.name for path in run["files"]))
    return [header, *log, dict(type="end", status="budget", rollouts=cfg["C"])]


def write(logs, out):
    """Write each run of `logs`, {run: (source path, records)}, to its folder in `out`.

    If a folder already has a log that is not the beginning of the new log, raise BadInput before
    anything is written.
    """
    for name, (path, log) in logs.items():
        file = out / name / "log.jsonl"
        old = read_log(file) if file.exists() else log
        if old[1:-1] != log[1:len(old) - 1]:
            raise BadInput(f"{path}: {file} is not the beginning of this log; if it is another "
                           "seed, give --seed=, if it is an earlier checkpoint, leave it out, "
                           "else give another --out=")
    for name, (_, log) in logs.items():
        with atomic_write(out / name / "log.jsonl") as part:
            part.write_text("".join(json.dumps(record) + "\n" for record in log))


def read_words(argv):
    """Return (options, {key of config.py: value}, paths) for the words of a command line."""
    options, given, paths = dict(OPTIONS), {}, []
    for word in argv:
        key, eq, value = word.removeprefix("--").partition("=")
        if not word.startswith("-"):
            paths.append(word)
        elif not eq:
            raise BadInput(f"{word}: expected --key=value, as in --n=16 (--help lists the keys)")
        elif key in OPTIONS:
            options[key] = value
        else:
            set_key(given, key, value)
    if not paths:
        raise BadInput("no log given: name the files to read after the options (--help)")
    choose("source", options["source"], READERS)
    if not re.fullmatch(r"[1-9]\d*", options["problems"]):
        raise BadInput(f"--problems={options['problems']}: expected the number of validation "
                       "problems, which decides the noise, as in --problems=300")
    return options, given, paths


def main(argv):
    if {"-h", "--help"} & set(argv):
        print(__doc__.strip())
        return
    options, given, paths = read_words(argv)
    logs, out = {}, Path(options["out"])
    for run in collect(options["source"], paths):
        path = run["files"][0]
        try:
            records = convert(run, options, given)
        except BadInput as e:
            raise BadInput(f"{path}: {e}") from None
        name = records[0]["derived"]["run"]
        if name in logs:
            raise BadInput(f"{path}: is the same run as {logs[name][0]}, {name}; give only the "
                           "longest log of a run, and other seeds one by one, with --seed=")
        logs[name] = path, records
    write(logs, out)
    for name, (_, (header, *log)) in logs.items():
        cfg, evals = header["config"], sum(r["type"] == "eval" for r in log)
        print(f"{out / name}: {header['source_file']}, B_p={cfg['B_p']} n={cfg['n']} "
              f"seed={cfg['seed']}, {cfg['C']} rollouts, {evals} evaluations")
    print("evaluations have no counts per problem: their noise is taken as binomial, over "
          f"{options['problems']} problems x {cfg['samples']} samples\n"
          f"next: python frontier.py --runs={out} --metric=avg@{cfg['k']}")


if __name__ == "__main__":
    entry(main)
