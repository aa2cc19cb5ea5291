"""data/logs/prepare.py: logs of veRL, TRL, W&B and TensorBoard as run folders for frontier.py.

    python data/logs/prepare.py --source=verl --problems=300 logs/*.jsonl  # logger=["file"]
    python data/logs/prepare.py --source=trl --problems=300 --samples=4 --B_p=8 --n=8 checkpoint-500
    python data/logs/prepare.py --source=wandb --problems=300 --samples=4 chart.csv  # or a history
    python frontier.py --runs=runs/imported --metric=avg@4

  --out=runs/imported    the sweep's folder. A later checkpoint, or a longer log, replaces its own
                         beginning there; nothing else is replaced
  --problems=300         validation problems, from which the noise of an evaluation follows; no
                         trainer logs their number
  --samples=4            rollouts per validation problem, unless the metric is veRL's mean@N
  --metric_column=NAME   the mean validation reward, 0 to 1, if it is not recognised or not unique
  --reward_column=NAME   the mean training reward, likewise
  --B_p=32 --n=16 --seed=1 --k=4 --lr_scaling=sqrt ...
                         any key of config.py, for all runs of this call

B_p and n come from the command line, else from the run's config, else from its name or path (as in
Bp32_n16_seed1).
- veRL: the config is LOG.yaml, LOG.json, config.yaml, config.json or .hydra/config.yaml next to
  LOG.jsonl, as hydra writes it or as veRL prints it. The log's token counts must agree with B_p n.
- TRL: trainer_state.json holds neither, and training_args.bin is a pickle, which is never opened.
  B_p = per_device_train_batch_size gradient_accumulation_steps processes / (num_generations
  num_iterations).
- W&B, TensorBoard: B_p, n, seed and samples may be columns of a history (run.history().to_csv()).
  A chart's export holds one metric of many runs: give all its files in one call, and runs are put
  together by name. W&B samples its exports, so the curve of a long run may have gaps. If a run was
  started again, the later start counts from its first step on.

Keys that no log tells keep config.py's value; `known` in the header lists the others. lr_base is
the logged lr if that is constant after warm-up, with lr_scaling=constant. If your lr follows
sqrt(B_p n), give --lr_scaling=sqrt, so that the runs of a sweep share one lr_base. `tokens` are
response tokens, left out if steps are missing. An evaluation is a mean without counts per problem.
veRL draws best@N and worst@N with replacement, so they are biased; `biased` in the header lists
them.
"""
import contextlib
import csv
import math
import os
import re
import statistics
import sys
import tempfile
from itertools import accumulate
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
from config import BadInput, check, config, derive, entry, read_json, set_key  # noqa: E402
from core.log import append, read_log  # noqa: E402

OPTIONS = dict(source="", out="runs/imported", problems="", metric_column="", reward_column="")
ROLLOUT, ACTOR = "actor_rollout_ref.rollout.", "actor_rollout_ref.actor."
VERL = dict(B_p="data.train_batch_size", n=ROLLOUT + "n", seed="data.seed",
            model="actor_rollout_ref.model.path", temperature=ROLLOUT + "temperature",
            max_prompt_tokens="data.max_prompt_length", max_new_tokens="data.max_response_length",
            entropy_coef=ACTOR + "entropy_coeff")
# Names of one thing in veRL, in TRL's file, and in W&B, where transformers puts train/ and eval/
# before them
EVAL = re.compile(r"val-core/.+/mean@\d+|eval_reward|eval/reward")
REWARD = ("critic/score/mean", "critic/rewards/mean", "reward", "train/reward")
LENGTH = ("response_length/mean", "completions/mean_length", "train/completions/mean_length")
LR = ("actor/lr", "learning_rate", "train/learning_rate")
# transformers numbers its updates in a column of its own: W&B's _step counts calls of log() there
STEP = ("train/global_step", "_step", "Step", "training/global_step", "global_step")
# what rises from row to row even if a run is started again; without it the file's order counts
CLOCKS = ("Wall time", "_timestamp", "_step")
REFILL = ("groups were filtered and sampled anew (algorithm.filter_groups): how many rollouts that "
          "took is not logged")
# its best@N and worst@N: drawn with replacement from the N samples, some twice, so best@N comes out
# too low, worst@N too high
DRAWN = r"val-(?:core|aux)/{}/((?:best|worst)@\d+)/mean"


def numbers(row):
    """The finite numbers of a row; an empty cell, null, NaN and text are left out."""
    out = {}
    for key, value in row.items():
        with contextlib.suppress(TypeError, ValueError):
            if math.isfinite(float(value)):
                out[key] = float(value)
    return out


def first(row, names):
    """The first of these metrics that the row has, or None."""
    return next((row[name] for name in names if name in row), None)


def listed(items, most=3):
    """The first few of them, and how many more there are."""
    items = list(items)
    return ", ".join(items[:most]) + f" and {len(items) - most} more" * (len(items) > most)


def by_step(pairs, path):
    """[(step, metrics), ...] as they were logged -> {step: metrics}, rising.

    A log that goes back to a step was started again there: what the start before had logged behind
    it is dropped. That is said, and so are steps that are there twice.
    """
    rows, back, twice = {}, [], {}
    for m, row in pairs:
        last = next(reversed(rows), m)
        while rows and next(reversed(rows)) > m:
            rows.popitem()
        there = rows.setdefault(m, {})
        if last > m:
            back.append(f"from step {last} to {m}")
        elif any(there.get(key, value) != value for key, value in row.items()
                 if not key.startswith(("_", "Unnamed")) and key):  # clocks, pandas' index
            twice[str(m)] = True
        there.update(row)
    if back:
        print(f"{path}: the log goes back {listed(back)}: the run was started again, and what an "
              "earlier start had logged from there on is left out")
    if twice:
        print(f"{path}: twice in the log, the later one stands: step {listed(twice)}")
    return rows


def missing(steps, slack):
    """The stretches ["1 to 100", ...] without a record between these steps, which rise.

    A trainer may log every few steps: only what is longer than `slack` times that is missing.
    """
    gaps = [(a, b) for a, b in zip([0, *steps], steps)]
    every = statistics.mode(b - a for a, b in gaps)
    holes = [(a + 1, b - every) for a, b in gaps if b - a > slack * every]
    return [f"{a} to {b}" if b > a else str(a) for a, b in holes]


# --------------------------------------------------------------------------------------------------
# Readers: a path -> (run's name, {config key: value}, {step: {metric: number}}) for each run in it

def read_verl(path):
    """veRL's FileLogger: a line {"step": m, "data": {metric: value}} an update.

    The evaluation after an update is in its line.
    """
    rows = by_step(((r["step"], numbers(r["data"])) for r in read_log(path)
                    if isinstance(r.get("step"), int) and isinstance(r.get("data"), dict)), path)
    if not rows:
        raise BadInput(f'{path}: no log of veRL\'s file logger, whose lines are {{"step": ..., '
                       f'"data": {{...}}}}')
    own = [path.with_suffix(suffix) for suffix in (".yaml", ".json")]
    beside = [path.parent / name for name in ("config.yaml", "config.json", ".hydra/config.yaml")]
    file = next((p for p in own + beside if p.exists()), None)
    try:
        tree = yaml.safe_load(file.read_text()) if file else {}
    except (yaml.YAMLError, ValueError) as e:
        why = " ".join(str(e).split())
        raise BadInput(f"{file}: not a readable YAML or JSON file ({why})") from None

    def say(name):  # the value at "a.b.c"; None for none, or one of hydra's unresolved ${...}
        value = tree
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        return None if isinstance(value, str) and "${" in value else value
    # the logs of a project lie in one folder, named by experiment: a config may be another run's
    several = len(list(path.parent.glob("*.jsonl"))) > 1
    if file in beside and several and say("trainer.experiment_name") != path.stem:
        raise BadInput(f"{path}: {file} may be another run's, several logs lie beside it; name it "
                       f"{own[0].name}")
    if say(ROLLOUT + "val_kwargs.do_sample") is False:
        print(f"{path}: its validation is greedy, so the samples of a problem do not err "
              "independently")
    known = {key: say(name) for key, name in VERL.items()}  # None is dropped in resolve
    known["kl_coef"] = {True: say(ACTOR + "kl_loss_coef"), False: 0}.get(say(ACTOR + "use_kl_loss"))
    if say("algorithm.filter_groups.enable"):
        raise BadInput(f"{path}: {REFILL}")
    known["algo"] = dict(grpo="grpo", gae="ppo").get(say("algorithm.adv_estimator"))
    return [(str(path), known, rows)]


def read_trl(path):
    """TRL's trainer_state.json, in which training and evaluation of a step are two entries."""
    history = read_json(path).get("log_history")
    rows = by_step(((r["step"], numbers(r)) for r in (history if isinstance(history, list) else ())
                    if isinstance(r, dict) and isinstance(r.get("step"), int)), path)
    if not rows:
        raise BadInput(f"{path}: no trainer_state.json of TRL, it has no log_history with steps")
    return [(str(path), {}, rows)]


def read_wandb(path):
    """A chart's CSV export or a history.

    A chart has "Step", then for each run "RUN - METRIC", its __MIN and __MAX; a history a column a
    metric.
    """
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            header, *lines = csv.reader(file)
    except (ValueError, csv.Error):
        raise BadInput(f"{path}: not a readable CSV file with a header") from None
    twice = [column for column in header if header.count(column) > 1]
    if twice:
        raise BadInput(f"{path}: two columns {twice[0]}: give runs of one name different names in "
                       "W&B")
    step = next((name for name in STEP if name in header), None)
    if step is None:
        raise BadInput(f"{path}: no column {' or '.join(STEP[:3])}: export a chart over the step, "
                       "or run.history().to_csv()")
    chart, runs = len(header) > 1 and all(" - " in name for name in header if name != step), {}
    if chart and any(name.startswith("Group: ") for name in header):
        raise BadInput(f"{path}: a grouped chart, its curves are means of several runs; export it "
                       "ungrouped")
    rows = [numbers(dict(zip(header, line))) for line in lines if line]
    # in the order in which they were logged, so that by_step sees where a run was started again
    clock = next((name for name in CLOCKS
                  if name != step and all(name in row for row in rows)), None)
    for row in sorted(rows, key=lambda row: row[clock]) if clock else rows:
        m = row.pop(step, None)
        if m is None:  # what is logged beside training, such as TRL's profile, has no step of it
            continue
        if m != int(m):
            raise BadInput(f"{path}: {step} {m} is no whole step")
        here = {}  # {run: its metrics in this row}
        for column, value in row.items():
            name, _, metric = column.rpartition(" - ") if chart else (str(path), "", column)
            if not (chart and metric.endswith(("__MIN", "__MAX"))):
                here.setdefault(name, {})[metric] = value
        for name, metrics in here.items():
            runs.setdefault(name, []).append((int(m), metrics))
    return [(name, {key: metrics[key] for _, metrics in pairs
                    for key in ("B_p", "n", "seed", "samples") if key in metrics},
             by_step(pairs, path)) for name, pairs in runs.items()]


READERS = dict(verl=read_verl, trl=read_trl, wandb=read_wandb)


def collect(reader, paths):
    """All runs as dicts of name, files, known and rows.

    The charts of one W&B run, a file each, become one run. Of two checkpoints of one run the one
    that goes further has all of it.
    """
    runs = {}
    for path in map(Path, paths):
        path = path / "trainer_state.json" if reader is read_trl and path.is_dir() else path
        if not path.is_file():
            raise BadInput(f"{path}: no such file")
        for name, known, rows in reader(path):
            run = runs.setdefault(name, dict(name=name, files=[], known=known, rows={}))
            run["files"].append(path)
            for m, row in rows.items():
                mine = run["rows"].setdefault(m, {})
                odd = [key for key in row if mine.get(key, row[key]) != row[key]]
                if odd:
                    raise BadInput(f"{path}: {odd[0]} at step {m} of the run {name} is another in "
                                   f"{run['files'][0]}")
                mine.update(row)
    out = list(runs.values())
    for run in out[:] if reader is not read_wandb else ():
        whole = next((other for other in out if other is not run and goes_on(run, other)), None)
        if whole:
            print(f"{run['name']}: the same run as {whole['name']}, left out")
            out.remove(run)
    return out


def goes_on(run, other):
    """Whether all that is logged of `run` stands in `other` too, number by number."""
    def same(row, theirs):
        both = row.keys() & theirs.keys()
        return bool(both) and all(row[key] == theirs[key] for key in both)
    return all(m in other["rows"] and same(row, other["rows"][m])
               for m, row in run["rows"].items())


# --------------------------------------------------------------------------------------------------
# A run as read -> the records of our log

def resolve(run, given, samples):
    """(flat dict, known keys) of a run: config.py's, then its name's, its config's, those given."""
    cfg, known = dict(config, lr_scaling="constant"), {}
    for key, pattern in (("B_p", "B_?p"), ("n", "n"), ("seed", "seed")):
        found = re.findall(rf"(?<![A-Za-z]){pattern}[_=]?(\d+)(?!\.?\d)", run["name"])
        if found:
            known[key] = found[-1]
    known |= {key: value for key, value in run["known"].items() if value is not None}
    known |= samples | given
    missing = [f"--{key}=" for key in ("B_p", "n", "samples") if key not in known]
    if missing:
        raise BadInput(f"{' and '.join(missing)} must be given: neither a config nor the name "
                       f"{run['name']} says (--help)")
    for key, value in known.items():
        set_key(cfg, key, value)
    lr = [first(run["rows"][m], LR) for m in sorted(run["rows"])]
    lr = [rate for rate in lr if rate]
    if "lr_base" not in known and len(lr) > 1 and lr[-1] == lr[-2] == max(lr):  # after warm-up
        factor = derive(cfg | dict(lr_base=1.0))["lr"]
        known["lr_base"] = cfg["lr_base"] = float(f"{lr[-1] / factor:.3g}")
    # eval_every is unknown, and a part of a run's identity: at 1 frontier.py takes the evaluations
    # where they are
    steps = max(run["rows"], default=0)
    cfg.update(k=given.get("k", cfg["samples"]), eval_every=1, C=steps * cfg["B_p"] * cfg["n"])
    if not cfg["C"]:
        raise BadInput("there is no training step in it")
    check(cfg)
    return cfg, sorted(known)


def validation(run, names, chosen):
    """The name of a run's mean validation reward, by --metric_column if given. Raises BadInput."""
    found = [chosen] if chosen else sorted(filter(EVAL.fullmatch, names))
    parts = [] if chosen or len(found) != 1 else parts_of(found[0], run["rows"], names)
    if len(found) == 1 and found[0] in names and not parts:
        return found[0]
    if parts:
        problem, seen = f"{found[0]} is a sum of rewards, no share of right answers,", parts
    elif len(found) > 1:
        problem, seen = "several validation metrics", found
    else:
        likely = [name for name in sorted(names) if re.search("val|acc|reward|score", name)]
        problem, seen = "no validation metric", likely or sorted(names)
    raise BadInput(f"{problem} in {run['name']}, choose with --metric_column= "
                   f"({listed(seen, 8) or 'none is there'})")


def parts_of(total, rows, names):
    """The rewards that TRL sums up in the column `total`, [] where it is one of them or has none.

    Beside eval_reward, say, stand eval_rewards/NAME/mean (once eval_rewards/NAME).
    """
    before, reward, _ = total.rpartition("reward")
    parts = [name for name in sorted(names) if reward and total.endswith("reward")
             and name.startswith(f"{before}rewards/") and not name.endswith("/std")]
    both = [row for row in rows.values() if total in row]
    alone = any(all(abs(row.get(part, math.inf) - row[total]) < 1e-6 for row in both)
                for part in parts)
    return [] if alone else parts


def training(run, names, chosen):
    """(the name of a run's mean training reward, or None where it is no share; why it is none)."""
    column = chosen or next((name for name in REWARD if name in names), None)
    if column is None:
        return None, ""
    parts = [] if chosen else parts_of(column, run["rows"], names)
    if parts:
        return None, f": {column} is a sum of rewards ({listed(parts, 8)})"
    about = [column.removesuffix("mean") + end for end in ("min", "max")]  # veRL: of all rollouts
    every = [row[name] for row in run["rows"].values() for name in (column, *about) if name in row]
    if min(every) < 0 or max(every) > 1:
        return None, (f": {column} is left out, its rewards go from {min(every):g} to "
                      f"{max(every):g}")
    return column, ""


def check_batch(rows, names, cfg):
    """Raise BadInput where a step of the log has other rollouts than B_p n."""
    B, sizes = cfg["B_p"] * cfg["n"], []
    total, *parts = ("perf/total_num_tokens", "prompt_length/mean", "response_length/mean")
    for row in rows.values():
        if total in row and all(part in row for part in parts):
            sizes.append(row[total] / sum(row[part] for part in parts))
    if sizes and abs(statistics.median(sizes) / B - 1) > 0.02:
        raise BadInput(f"B_p n = {cfg['B_p']} x {cfg['n']} = {B}, but by its token counts a step "
                       f"has {statistics.median(sizes):.0f} rollouts")
    again = max(row.get("train/num_gen_batches", 1) for row in rows.values())  # of the DAPO recipe
    if again > 1 or any("filter_groups/" in name for name in names):
        raise BadInput(REFILL)


def totals(rows, names, trained, B):
    """({step: response tokens so far}, {step: seconds so far}), each empty where not known."""
    lengths = [first(rows[m], LENGTH) for m in trained]
    times = [rows[m].get("timing_s/step") for m in trained]
    # veRL's numbers are of one step, so that a missing one breaks a sum; TRL's are means since the
    # row before
    unbroken, tokens, wall = trained == list(range(1, len(trained) + 1)), {}, {}
    if None not in lengths and (unbroken or "response_length/mean" not in names):
        tokens[0] = so_far = before = 0
        for m, length in zip(trained, lengths):
            so_far += round(length * (m - before) * B)
            tokens[m], before = so_far, m
    if None not in times and unbroken:
        wall = dict(zip(trained, accumulate(times)))
    return tokens, wall


def convert(run, options, given):
    """The records of a run's log.jsonl. Raises BadInput."""
    rows, names = run["rows"], {name for row in run["rows"].values() for name in row}
    column = validation(run, names, options["metric_column"])
    if options["reward_column"] not in ("", *names):
        raise BadInput(f"--reward_column={options['reward_column']}: no such metric in "
                       f"{run['name']}")
    reward, why = training(run, names, options["reward_column"])
    samples, biased = {}, {}
    verl = re.fullmatch(r"val-(?:core|aux)/(.+)/mean@(\d+)", column)
    if verl:
        samples["samples"] = int(verl[2])
        if given.get("samples", int(verl[2])) != int(verl[2]):
            raise BadInput(f"--samples={given['samples']}: {column} is the mean of {verl[2]}")
        for name in sorted(names):
            drawn = re.fullmatch(DRAWN.format(re.escape(verl[1])), name)
            if drawn:
                biased[name] = drawn[1]
    cfg, known = resolve(run, given, samples)
    if not options["problems"]:
        raise BadInput("--problems= must be given, the number of validation problems: the noise "
                       f"of {column} follows")
    check_batch(rows, names, cfg)

    B, of_training = cfg["B_p"] * cfg["n"], (*REWARD, *LENGTH, *LR, *([reward] * bool(reward)))
    trained = [m for m in sorted(rows) if m and first(rows[m], of_training) is not None]
    # W&B's exports are sampled
    lost = missing(trained or [m for m in sorted(rows) if m],
                   2 if options["source"] == "wandb" else 1)
    if lost:
        print(f"{run['name']}: the steps {listed(lost)} are missing")
    tokens, wall = totals(rows, names, trained, B)
    log = []
    for m, row in sorted(rows.items()):
        at = dict(step=m, rollouts=m * B)
        if m in tokens:
            at["tokens"] = tokens[m]
        if m in trained:
            fields = dict(wall_s=row.get("_runtime", wall.get(m)), lr=first(row, LR),
                          reward=row.get(reward), response_len=first(row, LENGTH))
            said = {key: value for key, value in fields.items() if value is not None}
            log.append(dict(type="step", **at) | said)
        if column in row:
            values = {f"avg@{cfg['k']}": row[column]}
            values |= {field: row[name] for name, field in biased.items() if name in row}
            if not all(0 <= value <= 1 for value in values.values()):
                raise BadInput(f"{column} is {row[column]} at step {m}, no share of right answers; "
                               "see --metric_column")
            log.append(dict(type="eval", **at, set="val", k=cfg["k"], samples=cfg["samples"],
                            problems=int(options["problems"])) | values)
    if not reward:
        print(f"{run['files'][0]}: no training reward from 0 to 1 in {run['name']}{why}; "
              "--reward_column= names one")
    header = dict(type="header", schema=1, config=cfg, derived=derive(cfg),
                  source=options["source"], known=known,
                  source_file=", ".join(path.name for path in run["files"]),
                  biased=sorted(set(biased.values())))
    return [header, *log, dict(type="end", status="budget", rollouts=cfg["C"])]


def begins(short, long):
    """Return whether the log `short` is the beginning of the log `long` of the same run.

    A checkpoint from the warm-up does not tell lr_base yet, so what counts are the keys it knows.
    The seed may be a user's guess: training rewards that vary are never those of another seed.
    """
    ours, theirs = short[0], long[0]
    varied = len({r["reward"] for r in short if "reward" in r}) > 2
    keys = {"B_p", "n", "seed", *ours["known"]} - ({"seed"} if varied else set())
    return (all(ours["config"][key] == theirs["config"][key] for key in keys)
            and ours["source"] == theirs["source"]
            and short[1:-1] == long[1:len(short) - 1])


def write(runs, out):
    """Write {name: records} as run folders of `out`, all aside first.

    A log that goes on takes the place of its own beginning, such as an earlier checkpoint's, and a
    beginning of a log that is there is left out. Nothing else is overwritten. Returns the runs that
    were written.
    """
    out.mkdir(parents=True, exist_ok=True)
    there = {path.parent: read_log(path) for path in out.glob("*/log.jsonl")}
    there = {folder: log for folder, log in there.items() if "source" in log[0]}
    new, outgrown = dict(runs), []
    for name, records in runs.items():
        for folder, log in there.items():
            if begins(records, log):
                print(f"{records[0]['source_file']}: the same run as {folder}, which goes at least "
                      "as far; left out")
                new.pop(name, None)
            elif begins(log, records):
                print(f"{records[0]['source_file']}: the same run as {folder}, which it goes on "
                      "from and replaces")
                outgrown.append(folder)
            elif folder.name == name:
                raise BadInput(f"{records[0]['source_file']}: {folder / 'log.jsonl'} is there and "
                               "another one; give --seed= if that is another seed, else --out=")
    with tempfile.TemporaryDirectory(dir=out, prefix=".part.") as part:
        for name, records in new.items():
            (Path(part) / name).mkdir()
            with open(Path(part) / name / "log.jsonl", "wb", buffering=0) as file:
                for record in records:
                    append(file, record)
        for i, folder in enumerate(outgrown):
            os.rename(folder, Path(part) / f"outgrown{i}")
        for name in new:
            os.rename(Path(part) / name, out / name)
    return {name: records for name, records in runs.items() if name in new}


def read_words(argv):
    """(options, given {key of config.py: value}, paths) of a command line. Raises BadInput."""
    options, given, paths = dict(OPTIONS), {}, []
    for word in argv:
        key, eq, value = word.removeprefix("--").partition("=")
        if not word.startswith("-"):
            paths.append(word)
        elif not eq:
            raise BadInput(f"{word}: write it as --key=value (--help lists the keys)")
        elif key in OPTIONS:
            options[key] = value
        else:
            set_key(given, key, value)
    if options["source"] not in READERS:
        raise BadInput(f"--source={options['source']}: expected one of {', '.join(READERS)}")
    if not re.fullmatch(r"([1-9]\d*)?", options["problems"]):
        raise BadInput(f"--problems={options['problems']}: expected the number of validation "
                       "problems, as in --problems=300")
    if not paths:
        raise BadInput("no log given: name the files to read behind the options (--help)")
    return options, given, paths


def main(argv):
    if {"-h", "--help"} & set(argv):
        print(__doc__.strip())
        return
    options, given, paths = read_words(argv)
    runs, origin = {}, {}
    for run in collect(READERS[options["source"]], paths):
        try:
            records = convert(run, options, given)
            name = records[0]["derived"]["run"]
            if origin.setdefault(name, run["name"]) != run["name"]:
                raise BadInput(f"it is {name}, and so is {origin[name]}; import other seeds one by "
                               "one, with --seed=; the parts of one run belong into one file")
        except BadInput as e:
            raise BadInput(f"{run['files'][0]}: {e}") from None
        runs[name] = records
    written = write(runs, Path(options["out"]))
    for name, (header, *log) in written.items():
        cfg, evals = header["config"], sum(r["type"] == "eval" for r in log)
        print(f"{Path(options['out']) / name}: {header['source_file']}, B_p={cfg['B_p']} "
              f"n={cfg['n']} seed={cfg['seed']}, {cfg['C']} rollouts, {evals} evaluations")
        if header["biased"]:
            print(f"  biased, veRL draws with replacement: {', '.join(header['biased'])}")
    cfg = next(iter(runs.values()))[0]["config"]
    print("evaluations have no counts per problem: their noise is taken as binomial, over "
          f"{options['problems']} problems x {cfg['samples']} samples\n"
          f"next: python frontier.py --runs={options['out']} --metric=avg@{cfg['k']}")


if __name__ == "__main__":
    entry(main)
