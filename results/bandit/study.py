"""study.py: what makes n*(C) rise in the toy world: the experiments behind the README's section, on bandit_toy.py.

    python results/bandit/study.py --runs=/tmp/study     # half an hour on two cores; the same command goes on
    python results/bandit/study.py                       # tells and draws what is in results/bandit again

Every experiment trains each n at several learning rates, for 8 seeds, and looks at exact pass rates, so that neither the noise of
evaluations nor an lr that suits one n decides.
"""
import copy
import json
import math
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from bandit_toy import CORES, Run, check_world, figure, group_gradient, in_parallel, make_world, pass_rate, roll  # sets the number of threads
import numpy as np
from scipy import stats

import config
from config import derive, entry, parse, save_json

STUDY = dict(  # experiment: (what it asks, words); each at half, one and two times the base lr, or as LRS says
    lead=("noise and few problems together", ""),
    no_idle=("no noise from idle decisions", "--idle=0"),
    more_idle=("three times as much", "--idle=87"),
    D_50=("fewer problems", "--D=50"),
    D_400=("more problems", "--D=400"),
    D_1600=("no overfitting", "--D=1600"),
    D_1600_no_idle=("neither noise nor overfitting", "--D=1600 --idle=0"),
    undivided=("(i) advantage r - mean", "--advantage=undivided"),
    true_std=("(i) advantage over the true std", "--advantage=true"),
    exact=("(i) no group: r - p over the true std", "--advantage=exact"),
    exact_D_1600=("the same without overfitting", "--advantage=exact --D=1600"),
    clock=("(ii) warm-up and beta2 in rollouts", "--clock=256"),
    B_p_4=("four problems a batch", "--B_p=4"),
    B_p_64=("64 problems a batch", "--B_p=64"),
    fixed_B=("B_p n = 128: the same updates, lr and clocks", ""),
    fixed_B_exact=("the same, no group", "--advantage=exact"),
    overlap_half=("half of the logits are a problem's own", "--overlap=0.5"),
    easy=("base pass rates 0.3 to 0.6", "--recipe=easy"),
    hard=("base pass rates to 0.0625", "--recipe=hard"),
    world_1=("another world", "--world=1"),
    world_2=("another world", "--world=2"))
LRS, SEEDS, NS, BUDGETS = dict(lead=(0.25, 0.5, 1, 2, 4)), range(100, 108), (2, 4, 16, 64, 256), [2 ** (i / 2) for i in range(28, 39)]


def follow(cfg, world, seeds, budgets, run=None):
    """Trains to each budget and looks, exactly: dict(mean, best, worst: (S, E) of val, train (S, E, D), run). A given run goes on, copied."""
    d, run, out, train_p = derive(cfg), copy.deepcopy(run) or Run(cfg, world, seeds), [], []
    for C in budgets:
        while run.rollouts + d["B"] / 2 <= C:  # to the update nearest to the budget
            run.update(cfg, d)
        p = run.validation(cfg)
        out.append([p.mean(1), (1 - (1 - p) ** cfg["k"]).mean(1), (p ** cfg["k"]).mean(1)])
        train_p.append(run.training(cfg))
    return dict(zip(("mean", "best", "worst"), np.array(out).transpose(1, 2, 0)), train=np.stack(train_p, 1), run=run)


def measure_cell(cfg, seeds):
    """`follow` of one cell for the study, less what it does not keep."""
    f = follow(cfg, make_world(cfg), seeds, BUDGETS)
    return {key: np.round(f[key].astype(float), 4).tolist() for key in ("mean", "best", "worst")} | dict(
        train=np.round(f["train"].astype(float).mean(2), 4).tolist())


def noise_levels(run, cfg, n=64):
    """Variance of (r - p) grad log pi by the shared weights: (within a problem, of one rollout; between problems). Their ratio is n_c.

    By analysis of variance over two groups of n rollouts for each training problem of the first seed.
    """
    pi, answer, x = run.look(cfg, run.problems, np.arange(run.problems.shape[1])[None], all_decisions=True)
    pi, answer, x, g = pi[:, :1], answer[:1], x[0], []
    for _ in range(2):
        choice = roll(pi, n, run.rollout_rng[:1])
        reward = (choice[..., :answer.shape[-1]] == answer[:, None]).all(-1)
        G = group_gradient(pi, choice, reward - pass_rate(pi, answer)[:, None].astype(float)) / n
        g.append((x.swapaxes(1, 2) @ G[0]).reshape(len(x), -1))  # (D, F K)
    within = n * ((g[0] - g[1]) ** 2).sum(1).mean() / 2
    return within, ((g[0] + g[1]) / 2).var(0, ddof=1).sum() - within / (2 * n)


def rise(R, early, late):
    """What the n that is best late gains there over the n that is best early: (mean, 90% half width, n index early, late).

    R (L, N, S, E): learning rates, n, seeds, budgets. For each seed both are chosen on the other seeds, as is the lr of each n at each
    budget, so that choosing does not flatter; the half width is Student's over the seeds.
    """
    gains = []
    for s in range(R.shape[2]):
        others = np.delete(R, s, 2).mean(2)  # (L, N, E)
        a, b = others[:, :, early].max(0).argmax(), others[:, :, late].max(0).argmax()
        gains.append(R[others[:, b, late].argmax(), b, s, late] - R[others[:, a, late].argmax(), a, s, late])
    half = stats.t.ppf(0.95, len(gains) - 1) * np.std(gains, ddof=1) / math.sqrt(len(gains))
    best = R.mean(2).max(0)  # (N, E)
    return float(np.mean(gains)), float(half), int(best[:, early].argmax()), int(best[:, late].argmax())


def near(R, e):
    """Which n are not told from the best at budget e, each at its best lr: a list of indices (paired over seeds, 90%)."""
    own = R[R.mean(2)[:, :, e].argmax(0), np.arange(R.shape[1]), :, e]  # (N, S)
    gap = own[own.mean(1).argmax()] - own
    half = stats.t.ppf(0.95, gap.shape[1] - 1) * gap.std(1, ddof=1) / math.sqrt(gap.shape[1])
    return np.flatnonzero(gap.mean(1) <= half).tolist()


def branches(cfg, seeds, at=2 ** 18, end=2 ** 20):
    """(iv) A plateau of n = 4 branches at `at` rollouts: as it was, a quarter of the lr, n = 64, n = 64 at the old lr.

    Returns [dict(name, gain, half)]: mean val pass@1 at `end` less that of the branch as it was, paired over seeds, 90%.
    """
    cfg = dict(cfg, n=4, C=end)
    world = make_world(cfg)
    trunk, lr = follow(cfg, world, seeds, [at])["run"], cfg["lr_base"]
    arms = {"n = 4 as it was": {}, "lr / 4": dict(lr_base=lr / 4), "n = 64, its own lr": dict(n=64),
            "n = 64, lr of n = 4": dict(n=64, lr_base=lr / 4)}  # sqrt(64 / 4) = 4
    reward = {name: follow(dict(cfg, **keys), world, seeds, [end], trunk)["mean"][:, 0] for name, keys in arms.items()}
    gain = {name: r - reward["n = 4 as it was"] for name, r in reward.items()}
    t = stats.t.ppf(0.95, len(seeds) - 1) / math.sqrt(len(seeds))
    return [dict(name=name, reward=reward[name].mean(), gain=g.mean(), half=t * g.std(ddof=1)) for name, g in gain.items()]


def study(cfg, out, jobs):
    """All of STUDY -> out/study.json, which it goes on from, and out/study.png; prints a line an experiment."""
    found = config.read_json(out / "study.json") if (out / "study.json").exists() else dict(arms={})
    words = [f"--{key}={value}" for key, value in config.identity(cfg).items()]
    for name, (asks, more) in STUDY.items():
        arm, B = parse([*words, *more.split()]), 128 if name.startswith("fixed_B") else 0
        cells = [dict(arm, C=BUDGETS[-1], lr_base=arm["lr_base"] * x, n=n, B_p=B // n or arm["B_p"]) for x in LRS.get(name, (0.5, 1, 2))
                 for n in NS if not B or n < B]
        spec = dict(asks=asks, words=more, ns=sorted({c["n"] for c in cells}), lrs=sorted({c["lr_base"] for c in cells}), seeds=list(SEEDS),
                    C=BUDGETS, config=config.identity(arm))
        if all(found["arms"].get(name, {}).get(key) == value for key, value in json.loads(json.dumps(spec)).items()):
            continue
        print(f"{name}: {asks}", file=sys.stderr)
        done = in_parallel([(measure_cell, c, SEEDS) for c in cells], [1 + 40 / (c["B_p"] * c["n"]) for c in cells], jobs, "cell",
                           [1] * len(cells))
        shape = len(spec["lrs"]), len(spec["ns"]), len(SEEDS), len(BUDGETS)
        found["arms"][name] = spec | {key: np.reshape([d[key] for d in done], shape).tolist() for key in done[0]}
        save_json(out / "study.json", found, indent=None)
    if "branches" not in found:
        found["branches"] = branches(cfg, range(200, 216))
        found["noise"] = []
        for more in STUDY["no_idle"][1], "", STUDY["more_idle"][1]:
            arm = dict(parse([*words, *more.split()]), C=2 ** 19, n=64)
            for C in (0, 2 ** 19):
                run = follow(arm, make_world(arm), [SEEDS[0]], [C])["run"]
                within, between = noise_levels(run, arm)
                found["noise"].append(dict(words=more, C=C, within=within, between=between, n_c=within / between))
        save_json(out / "study.json", found, indent=None)
    report_study(found)
    draw_study(found, out / "study.png")


def lines_of(arm):
    """The study's numbers of one experiment, on validation unless nothing is shared: [(label, R (L, N, S, E))] at the base lr and tuned."""
    R = np.array(arm["mean" if arm["config"]["overlap"] else "train"])
    middle = len(arm["lrs"]) // 2
    return [("base lr", R[middle:middle + 1]), ("each n at its best lr", R)]


def report_study(found):
    """A line an experiment: n* early and late, and what the late one gains at the end."""
    for name, arm in found["arms"].items():
        early, ns = len(arm["C"]) - 9, arm["ns"]  # four octaves before the end
        for label, R in lines_of(arm):
            gain, half, a, b = rise(R, early, -1)
            print(f"{name:15s} {label:22s} n* {ns[a]:3d} at {arm['C'][early] / 1e3:.0f}k, {ns[b]:3d} at {arm['C'][-1] / 1e3:.0f}k (not told from it: "
                  f"{', '.join(str(ns[i]) for i in near(R, -1))}); late n gains {gain:+.4f} +- {half:.4f} on the early one")
    for b in found["branches"]:
        print(f"branch of n = 4 at 262k, {b['name']:20s} {b['reward']:.4f} at 1049k, {b['gain']:+.4f} +- {b['half']:.4f}")
    for r in found["noise"]:
        print(f"noise, {r['words'] or 'the defaults':10s} after {r['C']} rollouts: n_c = {r['n_c']:.1f}")


def draw_study(found, path):
    """n* over C of each experiment, at the base lr and with every n at its best lr; squares: not told from the best (90%, tuned)."""
    arms = found["arms"]
    cols = 5
    rows = math.ceil(len(arms) / cols)
    with figure(path, rows, cols, (3.4 * cols, 2.9 * rows + 0.8)) as (fig, axes):
        for ax, (name, arm) in zip(axes.flat, arms.items()):
            ns, C = arm["ns"], arm["C"]
            (_, base), (_, R) = lines_of(arm)
            for e in range(len(C)):
                for i in near(R, e):
                    ax.plot(C[e], ns[i], "s", color="0.75", ms=6)
            for Y, style in ((base, dict(color="C0", ls="--", label="base lr")), (R, dict(color="C3", label="each n at its best lr"))):
                ax.plot(C, [ns[i] for i in Y.mean(2).max(0).argmax(0)], lw=1.8, **style)
            gain, half, *_ = rise(R, len(C) - 9, -1)
            ax.set_title(f"{name}: {arm['asks']}\nlate n over early, tuned: {100 * gain:+.1f} +- {100 * half:.1f} points", fontsize=8)
            ax.set(xscale="log", yscale="log", ylim=(1.5, 400))
            ax.set_yticks(ns, [str(n) for n in ns], minor=False)
            ax.minorticks_off()
        for ax in list(axes.flat)[len(arms):]:
            ax.axis("off")
        axes[0, 0].legend(fontsize=7)
        fig.supxlabel("C, rollouts"), fig.supylabel("n*")
        fig.suptitle(f"n*(C) of {len(arms)} experiments, {len(SEEDS)} seeds each, exact validation pass@1 (training where overlap = 0); squares: n not told "
                     "from the best, each at its best lr, 90%", fontsize=11)




def main(argv):
    cfg = parse(["--data=data/bandit", "--runs=results/bandit", *argv], __doc__)
    check_world(cfg)
    study(cfg, Path(cfg["out"] or cfg["runs"]), CORES)
    return 0


if __name__ == "__main__":
    entry(main)
