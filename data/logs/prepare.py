"""data/logs/prepare.py: logs of other trainers, veRL, TRL and W&B, as run folders that frontier.py reads.

    python data/logs/prepare.py --source=verl --problems=300 logs/*.jsonl                  # trainer.logger=["file"]
    python data/logs/prepare.py --source=trl --problems=300 --samples=4 --B_p=32 --n=16 out/checkpoint-500
    python data/logs/prepare.py --source=wandb --problems=300 --samples=4 chart.csv        # or run.history().to_csv()
    python frontier.py --runs=runs/imported --metric=avg@4

  --out=runs/imported    the sweep's folder; a run folder in it for each run, none is overwritten
  --problems=300         validation problems: no trainer logs their number, and the noise of an evaluation follows from it
  --samples=4            rollouts per validation problem, where the metric's name does not say so (veRL's mean@N does)
  --metric_column=NAME   the mean validation reward, 0 to 1, where it is not recognised or there are several
  --reward_column=NAME   the mean training reward, likewise
  --B_p=32 --n=16 --seed=1 --k=4 --lr_scaling=sqrt ...    any key of config.py, for all runs of this call

B_p and n are those of the command line, else of the run's config, else of its name or path (as in Bp32_n16_seed1).
- veRL: the config is LOG.yaml, LOG.json, config.yaml, config.json or .hydra/config.yaml beside LOG.jsonl, hydra's file or
  the dict that veRL prints at its start. A log's own token counts must agree with B_p n.
- TRL: trainer_state.json holds neither, and training_args.bin is a pickle, which is never opened. B_p is what is generated
  for a step of the optimizer: per_device_train_batch_size gradient_accumulation_steps processes / (num_generations
  num_iterations).
- W&B: columns B_p, n, seed, samples of a history. A chart's export holds one metric of many runs: give all its files in one
  call, runs are put together by name. Exports are sampled, so the curve of a long run may have gaps.

What no log says stands at config.py's value; `known` in the header lists the rest. lr_base is the logged lr where that is
constant after warm-up, with lr_scaling=constant; a sweep whose lr follows sqrt(B_p n) needs --lr_scaling=sqrt, so that its
runs share one lr_base. `tokens` are response tokens, left out where steps are missing. An evaluation is a mean, without
counts per problem. veRL's best@N and worst@N draw from the N samples with replacement and are biased: see `biased` there.

Needs config.py and PyYAML.
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
from config import BadInput, append, check, config, derive, entry, read_json, read_log, set_key  # noqa: E402

OPTIONS = dict(source="", out="runs/imported", problems="", metric_column="", reward_column="")
ROLLOUT, ACTOR = "actor_rollout_ref.rollout.", "actor_rollout_ref.actor."
VERL = dict(B_p="data.train_batch_size", n=ROLLOUT + "n", seed="data.seed", model="actor_rollout_ref.model.path",
            temperature=ROLLOUT + "temperature", max_prompt_tokens="data.max_prompt_length",
            max_new_tokens="data.max_response_length", entropy_coef=ACTOR + "entropy_coeff")
# Names of one thing in veRL, in TRL's file, and in W&B, where transformers writes train/ and eval/ in front
EVAL = re.compile(r"val-core/.+/mean@\d+|eval_reward|eval/reward")
REWARD = ("critic/score/mean", "critic/rewards/mean", "reward", "train/reward")
LENGTH = ("response_length/mean", "completions/mean_length", "train/completions/mean_length")
LR = ("actor/lr", "learning_rate", "train/learning_rate")
# transformers numbers its updates in a column of its own: W&B's _step counts calls of log() there
STEP = ("train/global_step", "_step", "Step", "training/global_step", "global_step")
REFILL = "groups were filtered and sampled anew (algorithm.filter_groups): how many rollouts that took is not logged"


def numbers(row):
    """The finite numbers of a row; an empty cell, null, NaN and text are left out."""
    out = {}
    for key, value in row.items():
        with contextlib.suppress(TypeError, ValueError):
            out |= {key: float(value)} if math.isfinite(float(value)) else {}
    return out


def first(row, names):
    """The first of these metrics that the row has, or None."""
    return next((row[name] for name in names if name in row), None)


# ---------------------------------------------------------------------------------------------------------------------
# Readers: a path -> (run's name, {config key: value}, {step: {metric: number}}) for each run in it

def read_verl(path):
    """veRL's FileLogger: a line {"step": m, "data": {metric: value}} an update, the evaluation after that update with it."""
    rows = {r["step"]: numbers(r["data"]) for r in read_log(path)
            if isinstance(r.get("step"), int) and isinstance(r.get("data"), dict)}
    if not rows:
        raise BadInput(f'{path}: no log of veRL\'s file logger, whose lines are {{"step": ..., "data": {{...}}}}')
    own = [path.with_suffix(suffix) for suffix in (".yaml", ".json")]
    beside = [path.parent / name for name in ("config.yaml", "config.json", ".hydra/config.yaml")]
    file = next((p for p in own + beside if p.exists()), None)
    try:
        tree = yaml.safe_load(file.read_text()) if file else {}
    except (yaml.YAMLError, ValueError) as e:
        raise BadInput(f"{file}: not a readable YAML or JSON file ({' '.join(str(e).split())})") from None

    def say(name):  # the value at "a.b.c"; None where there is none, or one of hydra's unresolved ${...}
        value = tree
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        return None if isinstance(value, str) and "${" in value else value
    # the logs of a project lie in one folder, named by experiment: a config there may be another run's
    several = len(list(path.parent.glob("*.jsonl"))) > 1
    if file in beside and several and say("trainer.experiment_name") != path.stem:
        raise BadInput(f"{path}: {file} may be another run's, several logs lie beside it; name it {own[0].name}")
    if say(ROLLOUT + "val_kwargs.do_sample") is False:
        print(f"{path}: its validation is greedy, so the samples of a problem do not err independently")
    known = {key: say(name) for key, name in VERL.items()}  # None is dropped in resolve
    known["kl_coef"] = {True: say(ACTOR + "kl_loss_coef"), False: 0}.get(say(ACTOR + "use_kl_loss"))
    if say("algorithm.filter_groups.enable"):
        raise BadInput(f"{path}: {REFILL}")
    known["algo"] = dict(grpo="grpo", gae="ppo").get(say("algorithm.adv_estimator"))
    return [(str(path), known, rows)]


def read_trl(path):
    """TRL's trainer_state.json. Training and evaluation of a step are entries of their own there."""
    rows, history = {}, read_json(path).get("log_history")
    for record in history if isinstance(history, list) else ():
        if isinstance(record, dict) and isinstance(record.get("step"), int):
            rows.setdefault(record["step"], {}).update(numbers(record))
    if not rows:
        raise BadInput(f"{path}: no trainer_state.json of TRL, it has no log_history with steps")
    return [(str(path), {}, rows)]


def read_wandb(path):
    """A chart's CSV export: "Step", then for each run "RUN - METRIC", its __MIN and __MAX. A history: a column a metric."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            header, *lines = csv.reader(file)
    except (ValueError, csv.Error):
        raise BadInput(f"{path}: not a readable CSV file with a header") from None
    twice = [column for column in header if header.count(column) > 1]
    if twice:
        raise BadInput(f"{path}: two columns {twice[0]}: give runs of one name different names in W&B")
    step = next((name for name in STEP if name in header), None)
    if step is None:
        raise BadInput(f"{path}: no column {' or '.join(STEP[:3])}: export a chart over the step, or run.history().to_csv()")
    chart, runs = len(header) > 1 and all(" - " in name for name in header if name != step), {}
    if chart and any(name.startswith("Group: ") for name in header):
        raise BadInput(f"{path}: a grouped chart, its curves are means of several runs; export it ungrouped")
    for row in (numbers(dict(zip(header, line))) for line in lines):
        m = row.pop(step, None)
        if m is None:  # what is logged beside training, such as TRL's profile, has no step of it
            continue
        if m != int(m):
            raise BadInput(f"{path}: {step} {m} is no whole step")
        for column, value in row.items():
            name, _, metric = column.rpartition(" - ") if chart else (str(path), "", column)
            if not (chart and metric.endswith(("__MIN", "__MAX"))):
                _, known, rows = runs.setdefault(name, (name, {}, {}))
                rows.setdefault(int(m), {})[metric] = value
                known |= {metric: value} if metric in ("B_p", "n", "seed", "samples") else {}
    return list(runs.values())


def collect(reader, paths):
    """All runs as dicts of name, files, known and rows; the charts of one W&B run, a file each, become one run."""
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
                    raise BadInput(f"{path}: {odd[0]} at step {m} of the run {name} is another in {run['files'][0]}")
                mine.update(row)
    return list(runs.values())


# ---------------------------------------------------------------------------------------------------------------------
# A run as read -> the records of our log

def resolve(run, given, samples):
    """(flat dict, known keys) of a run: config.py's values, then what its name, its config and the command line say."""
    cfg, known = dict(config, lr_scaling="constant"), {}
    for key, pattern in (("B_p", "B_?p"), ("n", "n"), ("seed", "seed")):
        found = re.findall(rf"(?<![A-Za-z]){pattern}[_=]?(\d+)(?!\.?\d)", run["name"])
        known |= {key: found[-1]} if found else {}
    known |= {key: value for key, value in run["known"].items() if value is not None} | samples | given
    missing = [f"--{key}=" for key in ("B_p", "n", "samples") if key not in known]
    if missing:
        raise BadInput(f"{' and '.join(missing)} must be given: neither a config nor the name {run['name']} says (--help)")
    for key, value in known.items():
        set_key(cfg, key, value)
    lr = [rate for m in sorted(run["rows"]) for rate in [first(run["rows"][m], LR)] if rate]
    if "lr_base" not in known and len(lr) > 1 and lr[-1] == lr[-2] == max(lr):
        known["lr_base"] = cfg["lr_base"] = float(f"{lr[-1] / derive(cfg | dict(lr_base=1.0))['lr']:.3g}")
    # eval_every is unknown, and a part of a run's identity: at 1 frontier.py takes the evaluations where they are
    cfg.update(k=given.get("k", cfg["samples"]), eval_every=1, C=max(run["rows"], default=0) * cfg["B_p"] * cfg["n"])
    if not cfg["C"]:
        raise BadInput("there is no training step in it")
    check(cfg)
    return cfg, sorted(known)


def convert(run, options, given):
    """The records of a run's log.jsonl. Raises BadInput."""
    rows, names = run["rows"], {name for row in run["rows"].values() for name in row}
    found = [options["metric_column"]] if options["metric_column"] else sorted(filter(EVAL.fullmatch, names))
    if len(found) != 1 or found[0] not in names:
        seen = found if len(found) > 1 else [name for name in sorted(names) if re.search("val|acc|reward|score", name)][:8]
        raise BadInput(f"{'several validation metrics' if len(found) > 1 else 'no validation metric'} in {run['name']}, "
                       f"choose with --metric_column= ({', '.join(seen) or 'none is there'})")
    column, rewards = found[0], [options["reward_column"]] if options["reward_column"] else REWARD
    if options["reward_column"] and not names & set(rewards):
        raise BadInput(f"--reward_column={rewards[0]}: no such metric in {run['name']}")
    verl = re.fullmatch(r"val-(?:core|aux)/(.+)/mean@(\d+)", column)
    if verl and given.get("samples", int(verl[2])) != int(verl[2]):
        raise BadInput(f"--samples={given['samples']}: {column} is the mean of {verl[2]}")
    cfg, known = resolve(run, given, dict(samples=int(verl[2])) if verl else {})
    if not options["problems"]:
        raise BadInput(f"--problems= must be given, the number of validation problems: the noise of {column} follows")
    B, total = cfg["B_p"] * cfg["n"], ("perf/total_num_tokens", "prompt_length/mean", "response_length/mean")
    sizes = [row[total[0]] / (row[total[1]] + row[total[2]]) for row in rows.values() if row.keys() >= set(total)]
    if sizes and abs(statistics.median(sizes) / B - 1) > 0.02:
        raise BadInput(f"B_p n = {cfg['B_p']} x {cfg['n']} = {B}, but by its token counts a step has "
                       f"{statistics.median(sizes):.0f} rollouts")
    # drawn with replacement from the N samples, some twice: best@N comes out too low, worst@N too high
    drawn = re.compile(rf"val-(?:core|aux)/{re.escape(verl[1])}/((?:best|worst)@\d+)/mean" if verl else "(?!)")
    biased = {name: drawn.fullmatch(name)[1] for name in sorted(names) if drawn.fullmatch(name)}
    again = max(row.get("train/num_gen_batches", 1) for row in rows.values())  # of the DAPO recipe
    if again > 1 or any("filter_groups/" in name for name in names):
        raise BadInput(REFILL)

    trained = [m for m in sorted(rows) if m and first(rows[m], (*rewards, *LENGTH, *LR)) is not None]
    lengths, times = [first(rows[m], LENGTH) for m in trained], [rows[m].get("timing_s/step") for m in trained]
    # veRL's numbers are of one step, so that a missing one breaks a sum; TRL's are means since the row before
    unbroken, tokens, wall = trained == list(range(1, len(trained) + 1)), {}, {}
    if None not in lengths and (unbroken or "response_length/mean" not in names):
        tokens = {0: 0} | dict(zip(trained, accumulate(round(length * (m - before) * B) for length, m, before
                                                       in zip(lengths, trained, [0, *trained]))))
    if None not in times and unbroken:
        wall = dict(zip(trained, accumulate(times)))
    log = []
    for m, row in sorted(rows.items()):
        at = dict(step=m, rollouts=m * B) | ({"tokens": tokens[m]} if m in tokens else {})
        if m in trained:
            fields = dict(wall_s=row.get("_runtime", wall.get(m)), lr=first(row, LR), reward=first(row, rewards),
                          response_len=first(row, LENGTH))
            log.append(dict(type="step", **at) | {key: value for key, value in fields.items() if value is not None
                                                  and (key != "reward" or 0 <= value <= 1)})
        if column in row:
            values = {f"avg@{cfg['k']}": row[column]}
            values |= {field: row[name] for name, field in biased.items() if name in row}
            if not all(0 <= value <= 1 for value in values.values()):
                raise BadInput(f"{column} is {row[column]} at step {m}, no share of right answers; see --metric_column")
            log.append(dict(type="eval", **at, set="val", k=cfg["k"], samples=cfg["samples"],
                            problems=int(options["problems"])) | values)
    if not any("reward" in record for record in log):
        print(f"{run['files'][0]}: no training reward from 0 to 1 in {run['name']}; --reward_column= names one")
    header = dict(type="header", schema=1, config=cfg, derived=derive(cfg), source=options["source"], known=known,
                  source_file=", ".join(path.name for path in run["files"]), biased=sorted(set(biased.values())))
    return [header, *log, dict(type="end", status="budget", rollouts=cfg["C"])]


def write(runs, out):
    """Write {name: records} as run folders of `out`: all in a folder aside first, then renamed; none is overwritten."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=".part.") as part:
        for name, records in runs.items():
            part_log, log = Path(part) / name / "log.jsonl", out / name / "log.jsonl"
            part_log.parent.mkdir()
            with open(part_log, "wb", buffering=0) as file:
                for record in records:
                    append(file, record)
            if log.exists() and log.read_bytes() != part_log.read_bytes():
                raise BadInput(f"{records[0]['source_file']}: {log} is there and another run; give --seed= or --out=")
        for name in runs:
            if not (out / name).exists():
                os.rename(Path(part) / name, out / name)


def main(argv):
    options, given, paths, runs, origin = dict(OPTIONS), {}, [], {}, {}
    for word in argv:
        key, eq, value = word.removeprefix("--").partition("=")
        if word in ("-h", "--help"):
            print(__doc__.strip())
            return
        if not word.startswith("-"):
            paths.append(word)
        elif not eq:
            raise BadInput(f"{word}: write it as --key=value (--help lists the keys)")
        elif key in OPTIONS:
            options[key] = value
        else:
            set_key(given, key, value)
    readers = dict(verl=read_verl, trl=read_trl, wandb=read_wandb)
    if options["source"] not in readers:
        raise BadInput(f"--source={options['source']}: expected one of {', '.join(readers)}")
    if not re.fullmatch(r"([1-9]\d*)?", options["problems"]):
        raise BadInput(f"--problems={options['problems']}: expected the number of validation problems, as in --problems=300")
    if not paths:
        raise BadInput("no log given: name the files to read behind the options (--help)")
    for run in collect(readers[options["source"]], paths):
        try:
            records = convert(run, options, given)
            name = records[0]["derived"]["run"]
            if origin.setdefault(name, run["name"]) != run["name"]:
                raise BadInput(f"it is {name}, and so is {origin[name]}; import them one by one, with --seed=")
        except BadInput as e:
            raise BadInput(f"{run['files'][0]}: {e}") from None
        runs[name] = records
    write(runs, Path(options["out"]))
    for name, (header, *log) in runs.items():
        cfg, evals = header["config"], sum(r["type"] == "eval" for r in log)
        print(f"{Path(options['out']) / name}: {header['source_file']}, B_p={cfg['B_p']} n={cfg['n']} seed={cfg['seed']}, "
              f"{cfg['C']} rollouts, {evals} evaluations")
        if header["biased"]:
            print(f"  biased, veRL draws with replacement: {', '.join(header['biased'])}")
    print("evaluations have no counts per problem: their noise is taken as binomial, over "
          f"{options['problems']} problems x {cfg['samples']} samples\n"
          f"next: python frontier.py --runs={options['out']} --metric=avg@{cfg['k']}")


if __name__ == "__main__":
    entry(main)
