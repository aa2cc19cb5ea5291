"""study.py: experiments with bandit_toy.py that show what makes n*(C) rise.

    python results/bandit/study.py --runs=/tmp/study  # an hour on two cores; can be continued
    python results/bandit/study.py                    # print and draw the results in results/bandit

Every experiment trains each n in NS at several learning rates, with 8 seeds. At each of the BUDGETS
it computes exact pass rates. So neither the noise of evaluations nor an lr that suits only one n
decides the result.
"""
import functools
import math
import multiprocessing
import signal
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

# imported before numpy, because bandit_toy sets the number of threads that numpy uses
from bandit_toy import TOY, Run, check_world, make_world
import numpy as np
from scipy import stats
from tqdm import tqdm

import config
from config import BadInput, derive, entry, parse
from core.log import save_json
from core import machine, plots
from core.plots import format_si

# {experiment: (what it changes, keys, learning rates as multiples of lr_base)}
STUDY = dict(
    lead=("noise and few problems", {}, (0.25, 0.5, 1, 2, 4)),
    no_idle=("no noise from idle decisions", dict(idle=0), (0.25, 0.5, 1, 2, 4)),
    more_idle=("three times as much", dict(idle=87), (0.5, 1, 2)),
    D_50=("D = 50", dict(D=50), (0.5, 1, 2)),
    D_400=("D = 400", dict(D=400), (0.5, 1, 2)),
    D_1600=("hardly any overfitting", dict(D=1600), (0.5, 1, 2)),
    weight_decay=("weight decay 0.01", dict(weight_decay=0.01), (0.25, 0.5, 1, 2, 4)),
    B_p_4=("four problems a batch", dict(B_p=4), (0.5, 1, 2)),
    B_p_64=("64 problems a batch", dict(B_p=64), (0.5, 1, 2)),
    world_1=("another world", dict(world=1), (0.5, 1, 2)))
SEEDS, NS = range(300, 308), (2, 4, 16, 64, 256)
BUDGETS = [2 ** (i / 2) for i in range(28, 39)]  # 16k to 524k
LONG = dict(lead=BUDGETS + [2 ** 19.5, 2 ** 20])


def measure_run(cfg, budgets):
    """Train a run. Return dict(mean, train) of lists (E,): exact pass@1 of the validation and of
    the training problems at each of the E budgets.
    """
    run, d, looks = Run(cfg, make_world(cfg)), derive(cfg), []
    for C in budgets:
        while run.rollouts + d["B"] / 2 <= C:  # stop at the update nearest to the budget
            run.update(cfg, d)
        looks.append([run.pass_rates(run.val).mean(), run.pass_rates(run.problems).mean()])
    return dict(zip(("mean", "train"), np.round(np.array(looks, float), 4).T.tolist()))


def interval(x):
    """Return the half width of the 90% t interval of the mean of x over its first axis."""
    return stats.t.ppf(0.95, len(x) - 1) * np.std(x, 0, ddof=1) / math.sqrt(len(x))


def late_gain(R):
    """Return (gain, 90% half width, [early n, late n]).

    R (L, N, S, E): pass rates by learning rate, n, seed and budget. The early n, an index, is best
    at the first budget, the late n at the last. The gain is the late n's pass rate minus the early
    n's at the last budget, each at its best lr. To be unbiased, n and lr are chosen on one half of
    the seeds and measured on the other. If all n are equal, the interval covers 0 in 89% of cases.
    """
    gains = np.zeros(R.shape[2])
    for half in (0, 1):
        others, own = R[:, :, half::2].mean(2), R[:, :, 1 - half::2]
        a, *_, b = others.max(0).argmax(0)
        later, earlier = (own[others[:, n, -1].argmax(), n, :, -1] for n in (b, a))
        gains[1 - half::2] = later - earlier
    best = R.mean(2).max(0).argmax(0)  # (E,)
    return gains.mean(), interval(gains), [best[0], best[-1]]


def near(R, e):
    """Return the indices of the n that are tied with the best n at budget e, each n at its best lr.

    An n is tied if the 90% interval of its difference from the best n, paired by seed, includes 0.
    """
    own = R[R.mean(2)[:, :, e].argmax(0), np.arange(R.shape[1]), :, e].T  # (S, N)
    gap = own[:, [own.mean(0).argmax()]] - own
    return np.flatnonzero(gap.mean(0) <= interval(gap)).tolist()


def study(cfg, path):
    """Run the experiments of STUDY that the file `path` lacks, save and return all results."""
    world = {key: cfg[key] for key in (*TOY, "n_val")}
    found = config.read_json(path) if path.exists() else dict(world=world, arms={})
    if found["world"] != world:
        raise BadInput(f"{path}: made for another world; give another folder with --runs")
    for name, (asks, more, lrs) in STUDY.items():
        arm, C = cfg | more, LONG.get(name, BUDGETS)
        spec = dict(keys=more, ns=list(NS), lrs=[arm["lr_base"] * x for x in lrs],
                    seeds=list(SEEDS), C=C, D=arm["D"])
        if all(found["arms"].get(name, {}).get(key) == value for key, value in spec.items()):
            continue
        print(f"{name}: {asks}", file=sys.stderr)
        cells = [dict(arm, C=C[-1], lr_base=lr, n=n, seed=seed)
                 for lr in spec["lrs"] for n in NS for seed in SEEDS]
        with multiprocessing.Pool(machine.cores(), signal.signal,
                                  (signal.SIGINT, signal.SIG_IGN)) as workers:
            every = workers.imap(functools.partial(measure_run, budgets=C), cells)
            done = list(tqdm(every, total=len(cells)))
        shape = len(lrs), len(NS), len(SEEDS), len(C)
        found["arms"][name] = spec | {
            key: np.reshape([d[key] for d in done], shape).tolist() for key in done[0]}
        save_json(path, found, indent=None)
    return config.read_json(path)


def lines_of(arm):
    """Return the pass rates of an experiment as {title: R}, with R (L, N, S, E) of `late_gain`."""
    mean, train = np.array(arm["mean"]), np.array(arm["train"])
    base = len(arm["lrs"]) // 2
    return {"validation, base lr": mean[base:base + 1], "validation, best lr": mean,
            "training, best lr": train}


def report(found):
    """Print n* at both ends, the n tied with it, its gain and each n's last pass rate."""
    for name, arm in found["arms"].items():
        C, ns = arm["C"], arm["ns"]
        print(f"{name}: {STUDY[name][0]} {arm['keys'] or ''}")
        for what, R in lines_of(arm).items():
            gain, half, (a, b) = late_gain(R)
            gains = f", which gains {gain:+.4f} +- {half:.4f}" if a != b else ""
            level = ", ".join(str(ns[i]) for i in near(R, -1))
            print(f"  {what}: n* = {ns[a]} at {format_si(C[0])}, {ns[b]} at {format_si(C[-1])} "
                  f"(not told from it: {level}){gains}")
            end = R[..., -1].mean(2)  # (L, N)
            if len(end) > 1:
                print("    " + ", ".join(f"n = {n}: {y:.3f} at lr {arm['lrs'][i]:g}" for n, y, i in
                                         zip(ns, end.max(0), end.argmax(0))))


def draw_study(found, path):
    """Draw n* over C in a panel for each experiment. A last panel has n* over C / D.

    Squares mark the n that are tied with the best n by validation pass rates, each at its best lr.
    """
    arms, (fig, axes) = found["arms"], plots.canvas(4, 3, (10, 9))
    styles = {"validation, base lr": "C0--", "validation, best lr": "C3-",
              "training, best lr": "C2:"}
    for ax, (name, arm) in zip(axes.flat, arms.items()):
        ns, C, lines = arm["ns"], arm["C"], lines_of(arm)
        tuned = lines["validation, best lr"]
        for e in range(len(C)):
            level = [ns[i] for i in near(tuned, e)]
            ax.plot([C[e]] * len(level), level, "s", color="0.8", ms=6)
        for i, (what, R) in enumerate(lines.items()):
            ax.plot(C, [ns[j] * 1.06 ** i for j in R.mean(2).max(0).argmax(0)], styles[what],
                    label=what)
        gain, half, (a, b) = late_gain(tuned)
        gains = f"n = {ns[b]} over {ns[a]} at the end: {100 * gain:+.1f} +- {100 * half:.1f} points"
        ax.set_title(f"{name}: {STUDY[name][0]}\n"
                     + (gains if a != b else f"n = {ns[a]} at both ends"), fontsize=8)
        plots.budget_axis(ax, C[0], C[-1])
    last = axes[-1, 1]
    axes[-1, 2].axis("off")
    for name in [name for name in ("D_50", "lead", "D_400", "D_1600") if name in arms]:
        arm, best = arms[name], np.array(arms[name]["mean"]).mean(2).max(0).argmax(0)
        last.plot(np.array(arm["C"]) / arm["D"], [arm["ns"][i] for i in best],
                  label=f"D = {arm['D']}")
        last.legend(fontsize=8)
    last.set(xscale="log", xlabel="C / D, rollouts a training problem")
    last.set_title("validation, best lr: n* over C / D", fontsize=8)
    for ax in axes.flat:
        ax.set(yscale="log", ylim=(1.5, 400))
        ax.set_yticks(NS, [str(n) for n in NS])
        ax.minorticks_off()
    axes[-1, 0].set(xlabel="C, rollouts", ylabel="n*")
    plots.save(fig, path, f"n*(C) of {len(arms)} experiments, {len(SEEDS)} seeds, exact pass@1; "
               "squares: n not told from the best,\neach at its best lr (90%); gains with n and "
               "lr chosen on one half of the seeds and measured on the other (90%)")


def main(argv):
    cfg = parse(["--data=data/bandit", "--runs=results/bandit", *argv], __doc__, TOY)
    check_world(cfg)
    found = study(cfg, Path(cfg["runs"]) / "study.json")
    report(found)
    draw_study(found, Path(cfg["runs"]) / "study.png")


if __name__ == "__main__":
    entry(main)
