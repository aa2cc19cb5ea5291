r"""evaluate.py: models on problem files -> avg@k, best@k, worst@k with standard errors.

    R=runs/easy/Bp8_n4_seed0_1a2b3c4d
    python evaluate.py --model=data/arithmetic/one_layer # the recipe's validation problems
    python evaluate.py --model=$R --samples=16           # a run's last model, as it was trained
    python evaluate.py --model=Qwen/Qwen3-4B-Instruct-2507 --val_set=mine.jsonl --samples=16 --k=8
    S=data/arithmetic/splits/base
    python evaluate.py --model=data/arithmetic/base,$R/ckpt/step_00000512,$R \
        --val_set=$S/easy_val.jsonl,$S/hard_val.jsonl

Prints a table and writes `eval.json` to `out` (default: RUN/eval/PROBLEMS, or
runs/eval/MODEL/PROBLEMS if the model is not in a run's folder). Each pair of several models and
problem files has its own folder, and `out` (default: runs/eval/table) also gets `table.json`, which
compares each model with the first. The log of the first model that is in a run's folder gives the
settings, such as lengths, temperature and validation problems.
"""
import sys
from pathlib import Path

from config import (BadInput, choose, entry, files, identity, parse,
                    read_json)  # imported first, so that an early Ctrl-C prints no traceback
import numpy as np

from core import engine
from core.evaluation import count_solved, error_of_mean, mean_reward, read_sets, summary
from core.log import read_log, save_json
from core.models import check_model_path, model_folder
from core.pool import call
from core.problems import copies, encode, set_hash
import verifier


def find_run(path):
    """Return the folder of the run that `path`, a run, its model or checkpoint, is of, or None."""
    for folder in (Path(path), *Path(path).parents[:2]):
        if (folder / "log.jsonl").exists():
            return folder
    return None


def parse_like_run(argv):
    """Return (config, list of models) for the words of a command line, which override the settings
    of the first model's run. The first model also gives the default problem files."""
    named = [word.removeprefix("--model=") for word in argv if word.startswith("--model=")]
    models = files(named[-1]) if named else []
    run, trained = next(filter(None, map(find_run, models)), None), {}
    if run:
        header = next(iter(read_log(run / "log.jsonl")), {})
        trained = identity(header.get("config", {}))
    words = [*(f"--{key}={value}" for key, value in trained.items()), *argv]
    cfg = parse(words + [f"--model={model}" for model in models[:1]], __doc__)
    models = models or [cfg["model"]]
    return dict(cfg, model=",".join(models)), models


def evaluate(name, problems, generator, cfg, out):
    """Draw and grade rollouts for the set `name`; write `out`/eval.json and return its content."""
    from tqdm import tqdm
    samples = cfg["samples"]
    prompts = encode(name, problems, generator.tokenizer, cfg["max_prompt_tokens"])
    out.mkdir(parents=True, exist_ok=True)  # before the rollouts, in case it cannot be written
    with tqdm(total=len(problems) * samples, desc=f"evaluate {name}", unit="rollout",
              mininterval=1) as bar:
        correct, total, faults = count_solved(problems, prompts, generator, cfg,
                                              (cfg["seed"], "evaluate", name), progress=bar)
    same = copies(problems)
    record = dict(config=cfg, model=cfg["model"], set=name, set_hash=set_hash(problems),
                  samples=samples, correct=correct,
                  stats=summary(correct, samples, cfg["k"], same),
                  ids=[p["id"] for p in problems], copies=same, **faults,
                  **mean_reward(total, correct, len(problems) * samples))
    save_json(out / "eval.json", record, indent=None)
    return record


def add_gains(records):
    """Add `gain`, avg@k minus avg@k of the first model on the same set, and its standard error
    `gain_se`, paired by problem, to each record of `evaluate`."""
    first = {}
    for r in records:
        base = first.setdefault(r["set"], r)
        gain = (np.array(r["correct"]) - np.array(base["correct"])) / r["samples"]
        r.update(gain=float(gain.mean()), gain_se=error_of_mean(gain, r["copies"]))


def label_of(model):
    """Return a model's name for the table: RUN/NAME for a model in a run's folder, else NAME."""
    path, run = Path(model), find_run(model)
    return path.name if run in (None, path) else f"{run.name}/{path.name}"


def print_report(r, out):
    """Print a record of `evaluate` and the path of its file, `out`/eval.json."""
    print(f"{r['model']} on {r['set']}: {len(r['ids'])} problems, "
          f"{len(set(r['copies']))} distinct, {r['samples']} rollouts each at temperature "
          f"{r['config']['temperature']:g}")
    for metric, stat in r["stats"].items():
        print(f"  {metric:8s} {stat['mean']:.4f} +- {stat['se']:.4f} "
              "(standard error over distinct problems)")
    if "reward" in r:
        print(f"  reward   {r['reward']:.4f}, the mean; a rollout whose reward is 1 is solved")
    correct = np.asarray(r["correct"])
    print(f"  never solved {np.mean(correct == 0):.1%}, "
          f"always solved {np.mean(correct == r['samples']):.1%}")
    if r["verifier_timeouts"] or r["verifier_errors"]:
        print(f"  graded 0: {r['verifier_timeouts']} verifier timeouts, "
              f"{r['verifier_errors']} verifier errors")
    print(f"  {out}/eval.json")


def print_table(records, out):
    """Print a table of the records of `evaluate` and write the records to `out`/table.json."""
    metrics = list(records[0]["stats"])
    width = max(len(name) for name in ["model", *(label_of(r["model"]) for r in records)])
    heads = " ".join(f"{metric:>8s}" for metric in metrics)
    print(f"\n{'model':{width}s}  {'set':20s} {heads}   change of {metrics[0]}")
    for r in records:
        change = "" if r["model"] == records[0]["model"] else (
            f"{r['gain']:+.4f} +- {r['gain_se']:.4f}")
        means = " ".join(f"{stat['mean']:8.4f}" for stat in r["stats"].values())
        print(f"{label_of(r['model']):{width}s}  {r['set']:20s} {means}   {change}")
    save_json(out / "table.json", dict(results=records), indent=None)
    print(f"  {out}/table.json")


def main(argv):
    cfg, models = parse_like_run(argv)
    choose("verifier", cfg["verifier"], verifier.REWARDS)
    folders = [check_model_path(model_folder(model)) for model in models]
    sets, engine_name = read_sets(cfg["val_set"]), engine.engine_name(cfg)
    labels = [label_of(folder) for folder in folders]
    for label in labels:
        if labels.count(label) > 1:
            raise BadInput(f"--model={cfg['model']}: two models are called {label}; rename one "
                           "folder")
    several, records = len(models) * len(sets) > 1, []
    for model, folder, label in zip(models, folders, labels):
        run, last = find_run(model), Path(folder).name
        if cfg["out"]:
            home = Path(cfg["out"]) / (label.replace("/", "_") if len(models) > 1 else "")
        elif run:
            home = run / "eval" / ("" if last == "model" else last)
        else:
            home = Path("runs/eval") / last
        outs = {part: home if cfg["out"] and not several else home / part for part in sets}
        if len(models) > 1:
            out = home if len(sets) > 1 else home / next(iter(sets))
            # in a new process, because the GPU is freed only when a process ends
            call(sys.executable, __file__, *(f"--{key}={value}" for key, value in
                                             (cfg | dict(model=folder, out=out)).items()))
            records += [read_json(out / "eval.json") for out in outs.values()]
            continue
        generator = engine.open_engine(engine_name, folder, cfg, cfg["device"])
        for part, problems in sets.items():
            records.append(evaluate(part, problems, generator, dict(cfg, model=str(folder)),
                                    outs[part]))
            print_report(records[-1], outs[part])
    if several:
        add_gains(records)
        print_table(records, Path(cfg["out"] or "runs/eval/table"))


if __name__ == "__main__":
    entry(main)
