"""evaluate.py: models on problem files -> avg@k, best@k, worst@k with standard errors, pass@1.

    R=runs/easy/Bp8_n4_seed0_1a2b3c4d
    python evaluate.py --model=data/arithmetic/base      # the recipe's validation problems
    python evaluate.py --model=$R --samples=16           # a run's last model, as it was trained
    python evaluate.py --model=Qwen/Qwen3-4B-Instruct-2507 --val_set=mine.jsonl --samples=16 --k=8
    S=data/arithmetic/splits/base
    python evaluate.py --model=data/arithmetic/base,$R/ckpt/step_00000512,$R \
        --val_set=$S/easy_val.jsonl,$S/hard_val.jsonl

Prints a table and writes `eval.json` and `eval.png` to `out` (default: RUN/eval/PROBLEMS, for a
model that is no run's runs/eval/MODEL/PROBLEMS). With several models or problem files, commas
between, each pair has those in a folder of its own, and `out` (default: runs/eval/table) has
`table.json`: what was gained and forgotten on each set since the first model. A run's settings
(lengths, temperature, validation problems) are those of its log, of several runs of the first's.
Needs config.py, verifier.py and core/.
"""
import subprocess
import sys
from pathlib import Path

from config import (BadInput, choose, entry, files, identity, parse,
                    read_json)  # first: from here on Ctrl-C is one line
import numpy as np

from core import engine, plots
from core.evaluation import count_solved, error_of_mean, mean_reward, read_sets, summary
from core.log import read_log, save_json
from core.models import check_model_path, model_folder
from core.problems import copies, encode, set_hash
import verifier


def run_of(path):
    """The folder of the run that a model is in (itself, its model, a checkpoint), or None."""
    for folder in (Path(path), *list(Path(path).parents)[:2]):
        if (folder / "log.jsonl").exists():
            return folder
    return None


def as_trained(argv):
    """Command-line words -> (the resolved dict, the models in --model=).

    Below the words lie the settings of the run that the first of the models in a run's folder
    belongs to; where problem files are not named, they are those of the first model.
    """
    named = [word.removeprefix("--model=") for word in argv if word.startswith("--model=")]
    models = files(named[-1]) if named else []
    run, trained = next(filter(None, map(run_of, models)), None), {}
    if run:
        header = next((r for r in read_log(run / "log.jsonl") if r.get("type") == "header"), {})
        trained = identity(header.get("config", {}))
    words = [*(f"--{key}={value}" for key, value in trained.items()), *argv]
    cfg = parse(words + [f"--model={model}" for model in models[:1]], __doc__)
    models = models or [cfg["model"]]
    return dict(cfg, model=",".join(models)), models


def evaluate(name, problems, generator, cfg, out):
    """Draw and grade rollouts of the set `name`; write `out`/eval.json and eval.png.

    Returns what eval.json holds, a dict.
    """
    from tqdm import tqdm
    k, samples = cfg["k"], cfg["samples"]
    prompts = encode(problems, generator.tokenizer, cfg["max_prompt_tokens"])
    with tqdm(total=len(problems) * samples, desc=f"evaluate {name}", unit="rollout",
              mininterval=1) as bar:
        correct, total, faults = count_solved(problems, prompts, generator, cfg,
                                              (cfg["seed"], "evaluate", name), progress=bar)
    stats = {metric: dict(mean=mean, se=error)
             for metric, (mean, error) in summary(correct, samples, k, copies(problems)).items()}
    record = dict(config=cfg, model=cfg["model"], set=name, set_hash=set_hash(problems),
                  samples=samples, correct=correct, stats=stats, ids=[p["id"] for p in problems],
                  copies=copies(problems), **faults,
                  **mean_reward(total, correct, len(problems) * samples))
    save_json(out / "eval.json", record, indent=None)  # makes the folder
    draw(correct, samples, out / "eval.png",
         f"{name}: avg@{k} {stats[f'avg@{k}']['mean']:.3f}, {cfg['model']}")
    return record


def changes(records):
    """Adds to each record `gain` and `gain_se`: avg@k against the first model on the same set.

    Errors are paired by problem, since what makes a problem hard is common to both, and so are the
    random numbers of its rollouts.
    """
    first = {}
    for r in records:
        base = first.setdefault(r["set"], r)
        gain = (np.array(r["correct"]) - np.array(base["correct"])) / r["samples"]
        r.update(gain=float(gain.mean()), gain_se=0.0)
        if len(set(r["copies"])) > 1 and r is not base:
            r["gain_se"] = error_of_mean(gain, r["copies"])


def label_of(model):
    """What a model is called in a table: its folder, with its run's where it is in one."""
    path, run = Path(model), run_of(model)
    return path.name if run in (None, path) else f"{run.name}/{path.name}"


def draw(correct, samples, path, title):
    """Histogram of the pass@1 of the problems, the shares at 0 and at 1 named."""
    rate = np.asarray(correct) / samples
    bins = (np.arange(samples + 2) - 0.5) / samples if samples <= 32 else 33
    fig, [[ax]] = plots.canvas(1, 1, (8, 4))
    ax.hist(rate, bins=bins, color="#0072B2", rwidth=0.9)
    ax.set(xlabel=f"pass@1 of a problem, from {samples} rollouts", ylabel="problems", title=title,
           xlim=(-0.6 / samples, 1 + 0.6 / samples))
    shares = f"never solved {np.mean(rate == 0):.1%}    always solved {np.mean(rate == 1):.1%}"
    ax.text(0.5, 0.95, shares, transform=ax.transAxes, ha="center", va="top")
    plots.write(fig, path)


def repeats(r):
    """Return whether the set of a record of `evaluate` holds a problem several times."""
    return len(set(r["copies"])) < len(r["copies"])


def problems_in(r):
    """Return how many problems the set of a record of `evaluate` holds, as text."""
    distinct = f", of which {len(set(r['copies']))} are distinct" if repeats(r) else ""
    return f"{len(r['ids'])} problems{distinct}"


def report(r, out):
    """Print one record of `evaluate`, which lies in `out`."""
    print(f"{r['model']} on {r['set']}: {problems_in(r)}, {r['samples']} rollouts each "
          f"at temperature {r['config']['temperature']:g}")
    for metric, stat in r["stats"].items():
        print(f"  {metric:8s} {stat['mean']:.4f} +- {stat['se']:.4f} "
              f"(standard error over {'distinct ' * repeats(r)}problems)")
    if "reward" in r:
        print(f"  reward   {r['reward']:.4f}, the mean; a rollout whose reward is 1 is solved")
    correct = np.asarray(r["correct"])
    print(f"  never solved {np.mean(correct == 0):.1%}, "
          f"always solved {np.mean(correct == r['samples']):.1%}")
    if r["verifier_timeouts"] or r["verifier_errors"]:
        print(f"  graded 0: {r['verifier_timeouts']} verifier timeouts, "
              f"{r['verifier_errors']} verifier errors")
    print(f"  {out}/eval.json, {out}/eval.png")


def report_table(records, out):
    """Print the records of several models or sets as a table, and write it to the folder `out`."""
    metrics = list(records[0]["stats"])
    width = max(len(name) for name in ["model", *(label_of(r["model"]) for r in records)])
    heads = " ".join(f"{metric:>8s}" for metric in metrics)
    print(f"\n{'model':{width}s}  {'set':20s} {heads}   change of {metrics[0]}")
    for r in records:
        change = f"{r['gain']:+.4f} +- {r['gain_se']:.4f}"
        if r["model"] == records[0]["model"]:
            change = ""
        means = " ".join(f"{stat['mean']:8.4f}" for stat in r["stats"].values())
        print(f"{label_of(r['model']):{width}s}  {r['set']:20s} {means}   {change}")
    for name, r in {r["set"]: r for r in records if repeats(r)}.items():
        print(f"  {name}: {problems_in(r)}; errors are over distinct problems")
    save_json(out / "table.json", dict(results=records), indent=None)
    print(f"  {out}/table.json")


def evaluate_apart(cfg, folder, out):
    """Evaluate one of several models in a process of its own, which gives its GPU memory back."""
    words = [f"--{key}={value}" for key, value in (cfg | dict(model=folder, out=out)).items()]
    code = subprocess.run([sys.executable, __file__, *words]).returncode
    if code:
        sys.exit(code if code > 0 else 128 - code)


def main(argv):
    cfg, models = as_trained(argv)
    choose("verifier", cfg["verifier"], verifier.REWARDS)
    folders = [check_model_path(model_folder(model)) for model in models]
    sets, engine_name = read_sets(cfg["val_set"]), engine.engine_name(cfg)
    labels = [label_of(folder) for folder in folders]
    for label in labels:
        if labels.count(label) > 1:
            raise BadInput(f"--model={cfg['model']}: two models are called {label}")
    several, records = len(models) * len(sets) > 1, []
    for model, folder, label in zip(models, folders, labels):
        run, last = run_of(model), Path(folder).name
        if cfg["out"]:
            home = Path(cfg["out"]) / (label.replace("/", "_") if len(models) > 1 else "")
        elif run:  # below the run itself, or below the name of a checkpoint
            home = run / "eval" / ("" if last == "model" else last)
        else:
            home = Path("runs/eval") / last
        outs = {part: home if cfg["out"] and not several else home / part for part in sets}
        if len(models) > 1:
            evaluate_apart(cfg, folder, home if len(sets) > 1 else home / next(iter(sets)))
            records += [read_json(out / "eval.json") for out in outs.values()]
            continue
        generator = engine.open_engine(engine_name, folder, cfg, cfg["device"])
        for part, problems in sets.items():
            records.append(evaluate(part, problems, generator, dict(cfg, model=str(folder)),
                                    outs[part]))
            report(records[-1], outs[part])
    # each of several models has a process of its own, which prints its sets; the table is ours
    if several:
        changes(records)
        report_table(records, Path(cfg["out"] or "runs/eval/table"))


if __name__ == "__main__":
    entry(main)
