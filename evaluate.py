"""evaluate.py: models on problem files -> avg@k, best@k, worst@k with standard errors, and the pass@1 distribution.

    python evaluate.py --model=data/arithmetic/base                          # the recipe's validation problems
    python evaluate.py --model=runs/easy/Bp8_n4_seed0_1a2b3c4d --samples=16  # a run: its last model, evaluated as it was trained
    python evaluate.py --model=Qwen/Qwen3-4B-Instruct-2507 --val_set=mine.jsonl --samples=16 --k=8 --out=results/mine
    S=data/arithmetic/splits/base R=runs/easy/Bp8_n4_seed0_1a2b3c4d
    python evaluate.py --model=data/arithmetic/base,$R/ckpt/step_00000512,$R --val_set=$S/easy_val.jsonl,$S/hard_val.jsonl

Prints a table and writes `eval.json` and `eval.png` to `out` (default: RUN/eval/PROBLEMS, for a model that is no run's
runs/eval/MODEL/PROBLEMS); an eval.json there of the same weights, problems, settings and code is not drawn again. With several models
or problem files, commas between, each pair has those in a folder of its own, and `out` (default: runs/eval/table) has `table.json`
and `table.png`: what was gained and forgotten on each set since the first model.
A run's settings (lengths, temperature, validation problems) are those of its log, of several runs those of the first.
Needs config.py, sample.py.
"""
import contextlib
import functools
import hashlib
from pathlib import Path

import numpy as np

import sample
from config import BadInput, aside, at_k, entry, files, identity, parse, read_json, read_log, save_json


def summary(correct, samples, k):
    """{"avg@k": (mean, standard error), ...} over problems, from the number right of `samples` rollouts of each; best and worst unbiased.

    The error is the spread over problems divided by sqrt(P): it covers the choice of problems and the noise of the rollouts
    together, and not the seed of training.
    """
    each = {f"{kind}@{k}": np.array(at_k(f"{kind}@{k}", samples))[correct] for kind in ("avg", "best", "worst")}
    return {metric: (float(v.mean()), float(v.std(ddof=1) / np.sqrt(len(v))) if len(v) > 1 else float("nan")) for metric, v in each.items()}


def read_sets(paths, first=""):
    """Problem files, commas between -> {name: problems}: the name is the file's, or for a problems.jsonl the folder's, or `first`.

    Raises BadInput where two have one name.
    """
    sets = {}
    for path in files(paths):
        name = first if first and not sets else Path(path).stem if Path(path).stem != "problems" else Path(path).resolve().parent.name
        if name in sets:
            raise BadInput(f"--val_set={paths}: two sets are called {name}; copy one to a file of another name")
        sets[name] = sample.read_problems(path)
    if not sets:
        raise BadInput(f"--val_set={paths}: names no problem file")
    return sets


def count_right(problems, prompts, engine, cfg, key, rows=None, progress=None):
    """Rollouts graded: a list with the number right of cfg["samples"] for each problem, in order, or for those in `rows`, and the
    verifier's faults, as from `grade`.

    `key` names the evaluation, such as (seed, "val", step); problem j of it has its own noise, whatever `rows` are.
    """
    rows = range(len(problems)) if rows is None else rows
    seeds = [sample.rollout_seed(*key, j) for j in rows]
    rollouts = engine.generate([prompts[j] for j in rows], cfg["samples"], seeds, progress)
    rewards, faults = sample.grade([problems[j] for j in rows], rollouts, engine.tokenizer, cfg)
    return rewards.sum(1).int().tolist(), faults


def eval_record(problems, correct, faults, cfg, step, rollouts, tokens, name="val"):
    """The log's eval record (SPEC of the log: README)."""
    means = {metric: mean for metric, (mean, _) in summary(correct, cfg["samples"], cfg["k"]).items()}
    return dict(type="eval", step=step, rollouts=rollouts, tokens=tokens, set=name, k=cfg["k"], **means,
                samples=cfg["samples"], set_hash=sample.set_hash(problems), correct=correct, **faults)


def model_folder(path):
    """A run's folder -> its exported model, or its newest whole checkpoint; any other path or hub name -> itself."""
    run = Path(path)
    if (run / "config.json").exists() or not (run / "log.jsonl").exists():
        return path  # as given: without its ./ a folder could be taken for a hub name
    if (run / "model" / "config.json").exists():
        return str(run / "model")
    for checkpoint in sorted(run.glob("ckpt/step_*"), reverse=True):
        with contextlib.suppress(OSError, ValueError, KeyError):
            sample.checkpoint_state(checkpoint)
            return str(checkpoint)
    raise BadInput(f"--model={path}: the run has neither an exported model nor a checkpoint yet")


def run_of(path):
    """The folder of the run that a model's path is in (the run itself, its model or a checkpoint), or None."""
    return next((up for up in (Path(path), *list(Path(path).parents)[:2]) if (up / "log.jsonl").exists()), None)


def as_trained(argv):
    """Command-line words -> (the resolved dict, the models in --model=). Below the words lie the settings of the run that the first
    of the models in a run's folder belongs to; where problem files are not named, they are those of the first model."""
    words = [word for word in argv if not word.startswith("--model=")]
    models = files(next((word.removeprefix("--model=") for word in reversed(argv) if word.startswith("--model=")), ""))
    run = next((run for model in models if (run := run_of(model))), None)
    header = next((r for r in read_log(run / "log.jsonl") if r.get("type") == "header"), {}) if run else {}
    settings = [f"--{key}={value}" for key, value in identity(header.get("config", {})).items()] if run else []
    cfg = parse(settings + words + [f"--model={model}" for model in models[:1]], __doc__)
    models = models or [cfg["model"]]
    return dict(cfg, model=",".join(models)), models


def draw(correct, samples, path, title):
    """Histogram of the pass@1 of the problems, the shares at 0 and at 1 named."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    rate = np.asarray(correct) / samples
    fig, ax = plt.subplots(figsize=(8, 4), dpi=150, layout="constrained")
    ax.hist(rate, bins=(np.arange(samples + 2) - 0.5) / samples if samples <= 32 else 33, color="#0072B2", rwidth=0.9)
    ax.set(xlabel=f"pass@1 of a problem, from {samples} rollouts", ylabel="problems", title=title, xlim=(-0.6 / samples, 1 + 0.6 / samples))
    ax.text(0.5, 0.95, f"never right {np.mean(rate == 0):.1%}    always right {np.mean(rate == 1):.1%}", transform=ax.transAxes, ha="center", va="top")
    with aside(path) as part:
        fig.savefig(part)
    plt.close(fig)


def changes(results, k):
    """Adds to each result `gain` and `gain_se`: avg@k against the first model on the same set, errors paired by problem.

    Paired, since what makes a problem hard is common to both, and so are the random numbers of its rollouts.
    """
    first = {}
    for r in results:
        base = first.setdefault(r["set"], r)
        gain = (np.array(r["correct"]) - np.array(base["correct"])) / r["samples"]
        r.update(gain=float(gain.mean()), gain_se=float(gain.std(ddof=1) / np.sqrt(len(gain))) if len(gain) > 1 and r is not base else 0.0)


def label_of(model):
    """What a model is called in a table: its folder, with its run's where it is a run's model or checkpoint."""
    path, run = Path(model), run_of(model)
    return path.name if run in (None, path) else f"{run.name}/{path.name}"


def draw_table(results, k, path, title):
    """avg@k of each set over the models, in the order given, with 90% intervals over problems."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    models, sets = (list(dict.fromkeys(r[key] for r in results)) for key in ("model", "set"))
    fig, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), dpi=150, layout="constrained", sharex=True)
    colours = [matplotlib.colormaps["viridis"](0.9 * i / max(1, len(sets) - 1)) for i in range(len(sets))]
    for i, name in enumerate(sets):
        rows, at = [r for r in results if r["set"] == name], np.arange(len(models)) + 0.12 * (i - (len(sets) - 1) / 2) / len(sets)
        for ax, key, error in ((left, f"avg@{k}", "se"), (right, "gain", "gain_se")):
            y, e = [r[key] for r in rows], [1.645 * r[error] for r in rows]
            ax.errorbar(at, y, e, fmt="o-", ms=4, lw=1.4, capsize=2, color=colours[i], label=f"{name} ({len(rows[0]['ids']):,} problems)")
    right.axhline(0, color="0.5", lw=0.8)
    left.set(ylabel=f"avg@{k}"), right.set(ylabel=f"change of avg@{k} since {label_of(models[0])}")
    left.set_xticks(range(len(models)), [label_of(m) for m in models], rotation=20, ha="right", fontsize=8)
    right.tick_params(axis="x", labelrotation=20)
    for tick in right.get_xticklabels():
        tick.set(ha="right", fontsize=8)
    fig.suptitle(title, fontsize=10)
    fig.legend(*left.get_legend_handles_labels(), loc="outside lower center", fontsize=9, ncols=min(4, len(sets)))
    with aside(path) as part:
        fig.savefig(part)
    plt.close(fig)


def made_from(model, problems, cfg, engine):
    """What the counts of an evaluation depend on, as JSON: where it is the same they need not be drawn again. None for a model that is
    no folder, whose weights may change."""
    if not Path(model).is_dir():
        return None
    keys = "seed samples temperature top_p max_prompt_tokens max_new_tokens verifier verify_s verify_bytes".split()
    there = {f.name: [f.stat().st_size, f.stat().st_mtime_ns] for f in sorted(Path(model).iterdir()) if f.is_file()}
    return dict(model=str(model), files=there, set_hash=sample.set_hash(problems), engine=engine, **{key: cfg[key] for key in keys},
                code=hashlib.sha256(Path(sample.__file__).read_bytes()).hexdigest())  # a reward of your own is in there


def take_over(engine, folder, first):
    """A vLLM engine gets the weights of `folder`: a second engine would find no memory. Raises BadInput where it needs one."""
    model, tokenizer = sample.load_model(folder, "cpu")
    stop = sample.stop_ids(model.generation_config.eos_token_id, tokenizer)
    mine = engine.tokenizer
    if (set(stop), tokenizer.chat_template, tokenizer.get_vocab()) != (set(engine.stop), mine.chat_template, mine.get_vocab()):
        raise BadInput(f"--model={folder}: another tokenizer, template or end of text than {first}; evaluate it by a command of its own")
    with sample.loading(folder, f"the engine of {first}"):  # weights of other shapes
        engine.load((name, p.detach()) for name, p in model.named_parameters())


def evaluate(model, name, problems, engine, cfg, out):
    """A model on the set `name`: its result, also written to the folder `out` with a figure; taken from there where it is the same.

    engine: a function that gives the engine with the model loaded, called only where there is something to draw.
    """
    from tqdm import tqdm
    source, file = made_from(model, problems, cfg, sample.engine_name(cfg)), out / "eval.json"
    before = read_json(file) if file.exists() else {}
    if source and before.get("made_from") == source:
        correct, faults = before["correct"], {key: before[key] for key in ("verifier_timeouts", "verifier_errors")}
        print(f"{file}: is there already, nothing drawn")
    else:
        generator = engine()
        prompts = sample.encode(problems, generator.tokenizer, cfg["max_prompt_tokens"])
        with tqdm(total=len(problems) * cfg["samples"], desc=f"evaluate {name}", unit="rollout", mininterval=1) as bar:
            correct, faults = count_right(problems, prompts, generator, cfg, (cfg["seed"], "evaluate", name), progress=bar)
    stats = summary(correct, cfg["samples"], cfg["k"])
    draw(correct, cfg["samples"], out / "eval.png", f"{name}: avg@{cfg['k']} {stats['avg@' + str(cfg['k'])][0]:.3f}, {model}")
    save_json(file, dict(config=cfg, model=model, set_hash=sample.set_hash(problems), samples=cfg["samples"], made_from=source,
                         stats={m: dict(mean=mean, se=se) for m, (mean, se) in stats.items()}, **faults,
                         ids=[p["id"] for p in problems], correct=correct), indent=None)
    return dict(model=model, set=name, samples=cfg["samples"], **{m: mean for m, (mean, _) in stats.items()}, **faults,
                se=stats[f"avg@{cfg['k']}"][1], errors={m: se for m, (_, se) in stats.items()}, ids=[p["id"] for p in problems],
                correct=correct)


def main(argv):
    cfg, models = as_trained(argv)
    sets, k, name = read_sets(cfg["val_set"]), cfg["k"], sample.engine_name(cfg)
    folders = [model_folder(model) for model in models]
    labels = [label_of(folder) for folder in folders]
    for label in labels:
        if labels.count(label) > 1:
            raise BadInput(f"--model={cfg['model']}: two models are called {label}")
    several = len(models) * len(sets) > 1
    results, opened = [], []

    def engine(folder):
        if opened and opened[0] != folder and name == "vllm":
            take_over(opened[1], folder, opened[0])
            opened[0] = folder
        elif not opened or opened[0] != folder:
            opened.clear()  # frees the model before
            opened[:] = folder, sample.open_engine(name, folder, cfg, cfg["device"])
        return opened[1]

    for model, folder in zip(models, folders):
        run = run_of(model)
        if cfg["out"]:
            home = Path(cfg["out"]) / (label_of(folder).replace("/", "_") if several else "")
        elif run:
            home = run / "eval" / ("" if Path(folder).name == "model" else Path(folder).name)  # of a checkpoint
        else:
            home = Path("runs/eval") / Path(folder).name
        for part, problems in sets.items():
            out = home if cfg["out"] and not several else home / part
            r = evaluate(folder, part, problems, functools.partial(engine, folder), cfg, out)
            results.append(r)
            print(f"{folder} on {part}: {len(problems)} problems, {r['samples']} rollouts each at temperature {cfg['temperature']:g}")
            for metric, error in r["errors"].items():
                print(f"  {metric:8s} {r[metric]:.4f} +- {error:.4f} (standard error over problems)")
            right = np.asarray(r["correct"])
            print(f"  never right {np.mean(right == 0):.1%}, always right {np.mean(right == r['samples']):.1%}")
            if r["verifier_timeouts"] or r["verifier_errors"]:
                print(f"  graded 0: {r['verifier_timeouts']} verifier timeouts, {r['verifier_errors']} verifier errors")
            print(f"  {out}/eval.json, {out}/eval.png")
    if several:
        changes(results, k)
        out = Path(cfg["out"] or "runs/eval/table")
        width = max(len(label_of(r["model"])) for r in results)
        print(f"\n{'model':{width}s}  {'set':20s} {f'avg@{k}':>8s} {f'best@{k}':>8s} {f'worst@{k}':>8s}   change of avg@{k}")
        for r in results:
            change = f"{r['gain']:+.4f} +- {r['gain_se']:.4f}" if r["model"] != results[0]["model"] else ""
            values = " ".join(f"{r[f'{kind}@{k}']:8.4f}" for kind in ("avg", "best", "worst"))
            print(f"{label_of(r['model']):{width}s}  {r['set']:20s} {values}   {change}")
        draw_table(results, k, out / "table.png", f"{len(models)} models on {len(sets)} problem sets, {cfg['samples']} rollouts a problem "
                   f"at temperature {cfg['temperature']:g}; bars: 90% over problems")
        save_json(out / "table.json", dict(config=cfg, k=k, results=results), indent=None)
        print(f"  {out}/table.json, {out}/table.png")


if __name__ == "__main__":
    entry(main)
