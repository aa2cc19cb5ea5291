"""evaluate.py: models on problem files -> avg@k, best@k, worst@k with standard errors, pass@1.

    R=runs/easy/Bp8_n4_seed0_1a2b3c4d
    python evaluate.py --model=data/arithmetic/base      # the recipe's validation problems
    python evaluate.py --model=$R --samples=16           # a run's last model, as it was trained
    python evaluate.py --model=Qwen/Qwen3-4B-Instruct-2507 --val_set=mine.jsonl --samples=16 --k=8
    S=data/arithmetic/splits/base
    python evaluate.py --model=data/arithmetic/base,$R/ckpt/step_00000512,$R \
        --val_set=$S/easy_val.jsonl,$S/hard_val.jsonl

Prints a table and writes `eval.json` and `eval.png` to `out` (default: RUN/eval/PROBLEMS, for a
model that is no run's runs/eval/MODEL/PROBLEMS); an eval.json there of the same weights, problems,
settings and verifier is not drawn again. With several models or problem files, commas between, each
pair has those in a folder of its own, and `out` (default: runs/eval/table) has `table.json`: what
was gained and forgotten on each set since the first model. A run's settings (lengths, temperature,
validation problems) are those of its log, of several runs of the first's. Needs config.py,
verifier.py, core/engine.py, core/models.py, core/problems.py, core/plots.py.
"""
import contextlib
import functools
import hashlib
from pathlib import Path

from config import (BadInput, at_k, choose, entry, files, identity, parse, read_json,
                    read_log, save_json)  # first: from here on Ctrl-C is one line
import numpy as np

from core import engine, plots, sandbox
from core.models import checkpoint_state, existing, load_model, loading
from core.problems import encode, read_problems, set_hash
import verifier


def summary(correct, samples, k):
    """{"avg@k": (mean, standard error), ...} over problems; best@k and worst@k are unbiased.

    correct: how many of `samples` rollouts of each problem were solved. The error is the spread
    over problems divided by sqrt(P): it covers the choice of problems and the noise of the rollouts
    together, and not the seed of training.
    """
    stats = {}
    for kind in ("avg", "best", "worst"):
        values = np.array(at_k(f"{kind}@{k}", samples))[correct]  # (P,)
        error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
        stats[f"{kind}@{k}"] = float(values.mean()), float(error)
    return stats


def read_sets(paths, first=""):
    """Problem files, commas between -> {name: problems}.

    The name is the file's, or for a problems.jsonl the folder's; that of the first is `first` where
    this is given. Raises BadInput where two have one name.
    """
    sets = {}
    for path in files(paths):
        name = Path(path).stem
        if name == "problems":
            name = Path(path).resolve().parent.name
        if first and not sets:
            name = first
        if name in sets:
            raise BadInput(f"--val_set={paths}: two sets are called {name}; "
                           "copy one to a file of another name")
        sets[name] = read_problems(path)
    if not sets:
        raise BadInput(f"--val_set={paths}: names no problem file")
    return sets


def count_solved(problems, prompts, generator, cfg, key, rows=None, progress=None):
    """Draw cfg["samples"] rollouts of each problem, or of those in `rows`, and grade them.

    Returns how many were solved of each, a list in order; the sum of all rewards; and the
    verifier's faults, as from `grade`. `key` names the evaluation, such as (seed, "val", step);
    problem j of it has its own noise, whatever `rows` are.
    """
    rows = range(len(problems)) if rows is None else rows
    seeds = [engine.rollout_seed(*key, j) for j in rows]
    rollouts = generator.generate([prompts[j] for j in rows], cfg["samples"], seeds, progress)
    asked = [problems[j] for j in rows]
    rewards, faults = verifier.grade(asked, rollouts, generator.tokenizer, cfg)
    return verifier.solved(rewards).sum(1).tolist(), rewards.double().sum().item(), faults


def mean_reward(total, correct, rollouts):
    """{"reward": the mean} where some of the rewards lie between 0 and 1, else nothing.

    Where all are 0 or 1, their sum `total` is the number of solved rollouts.
    """
    return {} if total == sum(correct) else dict(reward=total / rollouts)


def eval_record(problems, correct, total, faults, cfg, step, rollouts, tokens, name="val"):
    """An evaluation's record in the log; arguments as from `count_solved`."""
    stats, samples = summary(correct, cfg["samples"], cfg["k"]), cfg["samples"]
    return dict(type="eval", step=step, rollouts=rollouts, tokens=tokens, set=name, k=cfg["k"],
                **{metric: mean for metric, (mean, _) in stats.items()}, samples=samples,
                **mean_reward(total, correct, samples * len(problems)),
                set_hash=set_hash(problems), correct=correct, **faults)


def model_folder(path):
    """A run's folder -> its exported model, or its newest whole checkpoint.

    Any other path or hub name -> itself. Raises BadInput for a run that has neither yet.
    """
    run = Path(path)
    if (run / "config.json").exists() or not (run / "log.jsonl").exists():
        return path  # as given: without its ./ a folder could be taken for a hub name
    if (run / "model" / "config.json").exists():
        return str(run / "model")
    for checkpoint in sorted(run.glob("ckpt/step_*"), reverse=True):
        with contextlib.suppress(OSError, ValueError, KeyError):
            checkpoint_state(checkpoint)
            return str(checkpoint)
    raise BadInput(f"--model={path}: the run has neither an exported model nor a checkpoint yet")


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


def made_from(model, problems, cfg, engine_name):
    """What the counts of an evaluation depend on, as JSON: the same is not drawn again.

    None for a model that is no folder, whose weights may change.
    """
    if not Path(model).is_dir():
        return None
    keys = ("seed samples temperature top_p max_prompt_tokens max_new_tokens verifier verify_s "
            "verify_bytes").split()
    there = {file.name: [file.stat().st_size, file.stat().st_mtime_ns]
             for file in sorted(Path(model).iterdir()) if file.is_file()}
    code = Path(verifier.__file__).read_bytes()  # a reward of your own is in there
    code += b"".join((sandbox.ROOT / f).read_bytes() for f in sandbox.LIBRARIES.values()
                     if (sandbox.ROOT / f).exists())
    return dict(model=str(model), files=there, set_hash=set_hash(problems),
                engine=engine_name, **{key: cfg[key] for key in keys},
                code=hashlib.sha256(code).hexdigest())


def take_over(generator, folder, first):
    """A vLLM engine gets the weights of `folder`: a second engine would find no memory.

    Raises BadInput where it needs one.
    """
    model, tokenizer = load_model(folder, "cpu")
    stop = engine.stop_ids(model.generation_config.eos_token_id, tokenizer)
    mine = generator.tokenizer
    theirs = set(stop), tokenizer.chat_template, tokenizer.get_vocab()
    if theirs != (set(generator.stop), mine.chat_template, mine.get_vocab()):
        raise BadInput(f"--model={folder}: another tokenizer, template or end of text than "
                       f"{first}; evaluate it by a command of its own")
    with loading(folder, f"the engine of {first}"):  # weights of other shapes
        generator.load((name, p.detach()) for name, p in model.named_parameters())


def evaluate(model, name, problems, open_engine, cfg, out):
    """A model on the set `name`: its record, which `out`/eval.json holds, beside a figure.

    What is there of the same model, problems and settings is not drawn again. open_engine: gives
    the engine with the model loaded, called only where there is something to draw.
    """
    from tqdm import tqdm
    source = made_from(model, problems, cfg, engine.engine_name(cfg))
    file, k, samples = out / "eval.json", cfg["k"], cfg["samples"]
    record = read_json(file) if file.exists() else {}
    if source and record.get("made_from") == source:
        print(f"{file}: is there already, nothing drawn")
    else:
        generator = open_engine()
        prompts = encode(problems, generator.tokenizer, cfg["max_prompt_tokens"])
        with tqdm(total=len(problems) * samples, desc=f"evaluate {name}", unit="rollout",
                  mininterval=1) as bar:
            correct, total, faults = count_solved(problems, prompts, generator, cfg,
                                                  (cfg["seed"], "evaluate", name), progress=bar)
        record = dict(correct=correct, **faults,
                      **mean_reward(total, correct, len(problems) * samples))
    stats = {metric: dict(mean=mean, se=error)
             for metric, (mean, error) in summary(record["correct"], samples, k).items()}
    record |= dict(config=cfg, model=model, set=name, set_hash=set_hash(problems), samples=samples,
                   made_from=source, stats=stats, ids=[p["id"] for p in problems])
    draw(record["correct"], samples, out / "eval.png",
         f"{name}: avg@{k} {stats[f'avg@{k}']['mean']:.3f}, {model}")
    save_json(file, record, indent=None)
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
        if len(gain) > 1 and r is not base:
            r["gain_se"] = float(gain.std(ddof=1) / np.sqrt(len(gain)))


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


def report(r, out):
    """Print one record of `evaluate`, which lies in `out`."""
    print(f"{r['model']} on {r['set']}: {len(r['ids'])} problems, {r['samples']} rollouts each "
          f"at temperature {r['config']['temperature']:g}")
    for metric, stat in r["stats"].items():
        print(f"  {metric:8s} {stat['mean']:.4f} +- {stat['se']:.4f} "
              "(standard error over problems)")
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
    save_json(out / "table.json", dict(results=records), indent=None)
    print(f"  {out}/table.json")


def main(argv):
    cfg, models = as_trained(argv)
    choose("verifier", cfg["verifier"], verifier.REWARDS)
    folders = [existing(model_folder(model)) for model in models]
    sets, name = read_sets(cfg["val_set"]), engine.engine_name(cfg)
    labels = [label_of(folder) for folder in folders]
    for label in labels:
        if labels.count(label) > 1:
            raise BadInput(f"--model={cfg['model']}: two models are called {label}")
    several = len(models) * len(sets) > 1
    opened = []  # the folder whose weights are loaded, and its engine

    def open_engine(folder):
        if opened and opened[0] != folder and name == "vllm":
            take_over(opened[1], folder, opened[0])
            opened[0] = folder
        elif not opened or opened[0] != folder:
            opened.clear()  # frees the model before
            opened[:] = folder, engine.open_engine(name, folder, cfg, cfg["device"])
        return opened[1]

    records = []
    for model, folder, label in zip(models, folders, labels):
        run, last = run_of(model), Path(folder).name
        if cfg["out"]:
            home = Path(cfg["out"]) / (label.replace("/", "_") if several else "")
        elif run:  # below the run itself, or below the name of a checkpoint
            home = run / "eval" / ("" if last == "model" else last)
        else:
            home = Path("runs/eval") / last
        for part, problems in sets.items():
            out = home if cfg["out"] and not several else home / part
            records.append(evaluate(folder, part, problems,
                                    functools.partial(open_engine, folder), cfg, out))
            report(records[-1], out)
    if several:
        changes(records)
        report_table(records, Path(cfg["out"] or "runs/eval/table"))


if __name__ == "__main__":
    entry(main)
