r"""evaluate.py: models on problem files -> avg@k, best@k, worst@k with standard errors.

    R=runs/easy/Bp8_n4_seed0_1a2b3c4d
    python evaluate.py --model=data/arithmetic/one_layer # the recipe's validation problems
    python evaluate.py --model=$R --samples=16           # a run's last model, as it was trained
    python evaluate.py --model=Qwen/Qwen3-4B-Instruct-2507 --val_set=mine.jsonl --samples=16 --k=8
    S=data/arithmetic/splits/base
    python evaluate.py --model=data/arithmetic/base,$R/ckpt/step_00000512,$R \
        --val_set=$S/easy_val.jsonl,$S/hard_val.jsonl

Prints a report on each problem file and writes it to `out`/SET/eval.json. The default of `out` is
RUN/eval for a run's last model, RUN/eval/CHECKPOINT for a checkpoint, else runs/eval/MODEL. If you
give `out` for several models, each has its own folder in it: MODEL, RUN or RUN/CHECKPOINT. Several
models also get a table, which compares each with the first, and which is written to
`out`/table.json (default: runs/eval/table). The log of the first model that is in a run's folder
gives the settings, such as lengths, temperature and validation problems.
"""
import sys
from pathlib import Path

from config import (BadInput, choose, entry, files, identity, parse,
                    read_json)  # imported first, so that an early Ctrl-C prints no traceback
import numpy as np

from core import engine
from core.evaluation import count_solved, error_of_mean, eval_record, read_sets, summary
from core.log import read_log, save_json
from core.models import check_model_path, model_folder
from core.pool import call
from core.problems import encode
import verifier


def find_run(path):
    """Return the folder of the run that `path`, a run, its model or checkpoint, is of, or None."""
    for folder in (Path(path), *Path(path).parents[:2]):
        if (folder / "log.jsonl").exists():
            return folder
    return None


def parse_like_run(argv):
    """Return the config for the words of a command line, which override the settings of the first
    model's run. The first model also gives the default problem files."""
    models = [[], *(files(word[8:]) for word in argv if word.startswith("--model="))][-1]
    trained = [f"--{key}={value}" for run in [*filter(None, map(find_run, models))][:1]
               for header in read_log(run / "log.jsonl")[:1]
               for key, value in identity(header.get("config", {})).items()]
    cfg = parse([*trained, *argv, *(f"--model={model}" for model in models[:1])], __doc__)
    return cfg | dict(model=",".join(models) or cfg["model"])


def evaluate(name, problems, generator, cfg, out):
    """Draw and grade rollouts for the set `name`, write `out`/eval.json and print a report."""
    from tqdm import tqdm
    samples = cfg["samples"]
    prompts = encode(name, problems, generator.tokenizer, cfg["max_prompt_tokens"])
    out.mkdir(parents=True, exist_ok=True)  # before the rollouts, in case it cannot be written
    with tqdm(total=len(problems) * samples, desc=f"evaluate {name}", unit="rollout",
              mininterval=1) as bar:
        counts = count_solved(problems, prompts, generator, cfg, (cfg["seed"], "evaluate", name),
                              progress=bar)
    r = eval_record(problems, *counts, cfg, name) | dict(
        config=cfg, model=cfg["model"], stats=summary(counts[0], samples, cfg["k"]),
        ids=[p["id"] for p in problems])
    save_json(out / "eval.json", r, indent=None)
    print(f"{r['model']} on {name}: {len(problems)} problems, {samples} rollouts each "
          f"at temperature {cfg['temperature']:g}")
    for metric, stat in r["stats"].items():
        print(f"  {metric:8s} {stat['mean']:.4f} +- {stat['se']:.4f} "
              "(standard error over problems)")
    if "reward" in r:
        print(f"  reward   {r['reward']:.4f}, the mean; a rollout whose reward is 1 is solved")
    print(f"  never solved {np.mean(np.equal(counts[0], 0)):.1%}, "
          f"always solved {np.mean(np.equal(counts[0], samples)):.1%}")
    if r["verifier_timeouts"] or r["verifier_errors"]:
        print(f"  graded 0: {r['verifier_timeouts']} verifier timeouts, "
              f"{r['verifier_errors']} verifier errors")
    print(f"  {out}/eval.json")


def add_gains(records):
    """Add `gain`, avg@k minus avg@k of the first model on the same set, and its standard error
    `gain_se`, paired by problem, to each record of `evaluate`."""
    first = {}
    for r in records:
        base = first.setdefault(r["set"], r)
        gain = (np.array(r["correct"]) - np.array(base["correct"])) / r["samples"]
        r.update(gain=float(gain.mean()), gain_se=error_of_mean(gain))


def print_table(records, out):
    """Print a table of the records of `evaluate` and write the records to `out`/table.json."""
    metrics = list(records[0]["stats"])
    heads = " ".join(f"{metric:>8s}" for metric in metrics)
    print(f"\n{'set':20s} {heads}   {'change of ' + metrics[0]:20s} model")
    for r in records:
        change = "" if r["model"] == records[0]["model"] else (
            f"{r['gain']:+.4f} +- {r['gain_se']:.4f}")
        means = " ".join(f"{r[metric]:8.4f}" for metric in metrics)
        print(f"{r['set']:20s} {means}   {change:20s} {r['model']}")
    save_json(out / "table.json", dict(results=records), indent=None)
    print(f"  {out}/table.json")


def main(argv):
    cfg = parse_like_run(argv)
    choose("verifier", cfg["verifier"], verifier.REWARDS)
    models = files(cfg["model"]) or [cfg["model"]]  # without a name, the error says so
    out, homes = Path(cfg["out"] or "runs/eval"), {}
    for model in models:
        folder = check_model_path(model_folder(model))
        run, name = find_run(folder), Path(folder).name
        home = out / name
        if run:  # its last model, RUN/model, needs no folder of that name
            home = (out / run.name if cfg["out"] else run / "eval") / (name * (name != "model"))
        if cfg["out"] and len(models) == 1:
            home = out
        if home in homes:
            raise BadInput(f"--model={cfg['model']}: the results of two models would be in {home}; "
                           "rename one folder")
        homes[home] = folder
    sets, engine_name, records = read_sets(cfg["val_set"]), engine.engine_name(cfg), []
    if len(models) == 1:
        generator = engine.open_engine(engine_name, folder, cfg, cfg["device"])
        for part, problems in sets.items():
            evaluate(part, problems, generator, cfg | dict(model=str(folder)), home / part)
        return
    for home, folder in homes.items():
        # in a new process, because the GPU is freed only when a process ends
        call(sys.executable, __file__, *(f"--{key}={value}" for key, value in
                                         (cfg | dict(model=folder, out=home)).items()))
        records += [read_json(home / part / "eval.json") for part in sets]
    add_gains(records)
    print_table(records, Path(cfg["out"] or "runs/eval/table"))


if __name__ == "__main__":
    entry(main)
