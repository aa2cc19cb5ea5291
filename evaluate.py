"""evaluate.py: a model on a problem file -> avg@k, best@k, worst@k with standard errors, and the pass@1 distribution.

    python evaluate.py --model=data/arithmetic/base                          # the recipe's validation problems
    python evaluate.py --model=runs/easy/Bp8_n4_seed0_1a2b3c4d --samples=16  # a run: its last model, evaluated as it was trained
    python evaluate.py --model=Qwen/Qwen3-4B-Instruct-2507 --val_set=mine.jsonl --samples=16 --k=8 --out=results/mine

Prints a table and writes `eval.json` and `eval.png` to `out` (default: RUN/eval/PROBLEMS, for a model that is no run's runs/eval/MODEL/PROBLEMS).
A run's settings (lengths, temperature, validation problems) are those of its log. Needs config.py, sample.py.
"""
import contextlib
from pathlib import Path

import numpy as np

import sample
from config import BadInput, aside, at_k, entry, identity, parse, read_log, save_json


def summary(correct, samples, k):
    """{"avg@k": (mean, standard error), ...} over problems, from the number right of `samples` rollouts of each; best and worst unbiased.

    The error is the spread over problems divided by sqrt(P): it covers the choice of problems and the noise of the rollouts
    together, and not the seed of training.
    """
    each = {f"{kind}@{k}": np.array(at_k(f"{kind}@{k}", samples))[correct] for kind in ("avg", "best", "worst")}
    return {metric: (float(v.mean()), float(v.std(ddof=1) / np.sqrt(len(v))) if len(v) > 1 else float("nan")) for metric, v in each.items()}


def count_right(problems, prompts, engine, cfg, key, rows=None, progress=None):
    """Rollouts graded: a list with the number right of cfg["samples"] for each problem, in order, or for those in `rows`.

    `key` names the evaluation, such as (seed, "val", step); problem j of it has its own noise, whatever `rows` are.
    """
    rows = range(len(problems)) if rows is None else rows
    seeds = [sample.rollout_seed(*key, j) for j in rows]
    rollouts = engine.generate([prompts[j] for j in rows], cfg["samples"], seeds, progress)
    return sample.grade([problems[j] for j in rows], rollouts, engine.tokenizer, cfg).sum(1).int().tolist()


def eval_record(problems, correct, cfg, step, rollouts, tokens, name="val"):
    """The log's eval record (SPEC of the log: README)."""
    means = {metric: mean for metric, (mean, _) in summary(correct, cfg["samples"], cfg["k"]).items()}
    return dict(type="eval", step=step, rollouts=rollouts, tokens=tokens, set=name, k=cfg["k"], **means,
                samples=cfg["samples"], set_hash=sample.set_hash(problems), correct=correct)


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
    """The words of a command line, and before them, where --model= is in a run's folder, the settings of that run."""
    given = [word.removeprefix("--model=") for word in argv if word.startswith("--model=")]
    if not given or not (run := run_of(given[-1])):
        return argv
    header = next((r for r in read_log(run / "log.jsonl") if r.get("type") == "header"), {})
    return [f"--{key}={value}" for key, value in identity(header.get("config", {})).items()] + argv


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


def main(argv):
    # a run is evaluated as it was trained: its validation problems, lengths and temperature lie below the command line
    cfg = parse(as_trained(argv), __doc__)
    from tqdm import tqdm
    problems = sample.read_problems(cfg["val_set"])
    folder = model_folder(cfg["model"])
    engine = sample.open_engine(sample.engine_name(cfg), folder, cfg, cfg["device"])
    prompts = sample.encode(problems, engine.tokenizer, cfg["max_prompt_tokens"])
    with tqdm(total=len(problems) * cfg["samples"], desc="evaluate", unit="rollout", mininterval=1) as bar:
        correct = count_right(problems, prompts, engine, cfg, (cfg["seed"], "evaluate"), progress=bar)
    stats = summary(correct, cfg["samples"], cfg["k"])
    print(f"{folder} on {cfg['val_set']}: {len(problems)} problems, {cfg['samples']} rollouts each at temperature {cfg['temperature']:g}")
    for metric, (mean, error) in stats.items():
        print(f"  {metric:8s} {mean:.4f} +- {error:.4f} (standard error over problems)")
    print(f"  never right {np.mean(np.asarray(correct) == 0):.1%}, always right {np.mean(np.asarray(correct) == cfg['samples']):.1%}")
    run = run_of(cfg["model"])
    out = Path(cfg["out"] or (run / "eval" if run else Path("runs/eval") / Path(folder).name) / Path(cfg["val_set"]).stem)
    draw(correct, cfg["samples"], out / "eval.png", f"{Path(cfg['val_set']).stem}: avg@{cfg['k']} {stats['avg@' + str(cfg['k'])][0]:.3f}, {cfg['model']}")
    save_json(out / "eval.json", dict(config=cfg, model=folder, set_hash=sample.set_hash(problems), samples=cfg["samples"],
                                      stats={m: dict(mean=mean, se=se) for m, (mean, se) in stats.items()},
                                      ids=[p["id"] for p in problems], correct=correct), indent=None)
    print(f"  {out}/eval.json, {out}/eval.png")


if __name__ == "__main__":
    entry(main)
