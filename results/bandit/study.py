"""study.py: what makes n*(C) rise in the toy world: experiments on bandit_toy.py.

    python results/bandit/study.py --runs=/tmp/study  # 40 minutes on two cores; it goes on again
    python results/bandit/study.py                    # tells and draws what is in results/bandit

Every experiment trains each n of NS at several learning rates, with 8 SEEDS, and looks at exact
pass rates at BUDGETS, so that neither the noise of evaluations nor an lr that suits one n decides.
Keys of the world (--world=3, --skill=0.9) change all experiments.
"""
import copy
import math
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

# first of all, since it sets the number of threads
from bandit_toy import (TOY, Run, check_world, figure, group_gradient, in_parallel, make_world,
                        pass_rate, rewards_of, roll)
import numpy as np
from scipy import stats

import config
from config import BadInput, derive, entry, parse, save_json

# experiment: (what it asks, words of its own, learning rates as multiples of lr_base)
STUDY = dict(
    lead=("noise and few problems", "", (0.25, 0.5, 1, 2, 4)),
    no_idle=("no noise from idle decisions", "--idle=0", (0.25, 0.5, 1, 2, 4)),
    more_idle=("three times as much", "--idle=87", (0.5, 1, 2)),
    D_50=("(v) D = 50", "--D=50", (0.5, 1, 2)),
    D_400=("(v) D = 400", "--D=400", (0.5, 1, 2)),
    D_1600=("(v) D = 1600: hardly any overfitting", "--D=1600", (0.5, 1, 2)),
    D_1600_no_idle=("neither noise nor overfitting", "--D=1600 --idle=0", (0.5, 1, 2)),
    undivided=("(i) advantage r - mean", "--advantage=undivided", (0.5, 1, 2)),
    true_std=("(i) advantage over the true std", "--advantage=true", (0.5, 1, 2)),
    exact=("(i) no group: r - p over the true std", "--advantage=exact", (0.25, 0.5, 1, 2, 4)),
    exact_D_1600=("the same, D = 1600", "--advantage=exact --D=1600", (0.5, 1, 2)),
    clock=("(ii) warm-up, beta2 in rollouts", "--clock=256", (0.25, 0.5, 1, 2, 4)),
    weight_decay=("(ii) weight decay 0.01", "--weight_decay=0.01", (0.25, 0.5, 1, 2, 4)),
    B_p_4=("four problems a batch", "--B_p=4", (0.5, 1, 2)),
    B_p_64=("64 problems a batch", "--B_p=64", (0.5, 1, 2)),
    fixed_B=("B_p n = 128: same lr and clocks", "", (0.5, 1, 2)),
    fixed_B_exact=("the same, no group", "--advantage=exact", (0.5, 1, 2)),
    overlap_0=("tabular: no interference", "--overlap=0", (1, 4, 16)),
    overlap_half=("half of the logits are its own", "--overlap=0.5", (0.5, 1, 2)),
    easy=("base pass rates 0.3 to 0.6", "--recipe=easy --kl_coef=0 --entropy_coef=0", (0.5, 1, 2)),
    hard=("base pass rates to 0.0625", "--recipe=hard", (0.5, 1, 2)),
    world_1=("another world", "--world=1", (0.5, 1, 2)))
SEEDS, NS = range(300, 308), (2, 4, 16, 64, 256)
BUDGETS = [2 ** (i / 2) for i in range(28, 39)]  # 16k to 524k
LONG = dict(lead=BUDGETS + [2 ** 19.5, 2 ** 20])


def follow(cfg, run, budgets):
    """Trains `run` on to each budget and looks, exactly: dict(mean, best, zero: (S, E) of val,
    train (S, E)): pass@1, pass@k, share of problems below 0.01; pass@1 of the training problems."""
    d, out = derive(cfg), []
    for C in budgets:
        while run.rollouts + d["B"] / 2 <= C:  # to the update nearest to the budget
            run.update(cfg, d)
        p = run.validation()
        out.append([p.mean(1), (1 - (1 - p) ** cfg["k"]).mean(1), (p < 0.01).mean(1),
                    run.training().mean(1)])
    return dict(zip(("mean", "best", "zero", "train"), np.array(out).transpose(1, 2, 0)))


def interval(x):
    """Half width of a 90% interval of the mean over the first axis, Student's."""
    return stats.t.ppf(0.95, len(x) - 1) * np.std(x, 0, ddof=1) / math.sqrt(len(x))


def measure_cell(cfg, budgets):
    """`follow` of one cell, as lists for study.json."""
    found = follow(cfg, Run(cfg, make_world(cfg), SEEDS), budgets)
    return {key: np.round(x.astype(float), 4).tolist() for key, x in found.items()}


def noise_levels(run, cfg, n=64):
    """n_c of each seed (S,): variance of one rollout's (r - p) grad log pi within a problem over
    that between problems, by the shared weights.

    By analysis of variance over two groups of n rollouts for each training problem. Of problems
    drawn at random: epochs without replacement cancel the part between problems over D / B_p
    updates.
    """
    places = np.arange(run.problems.shape[1])[None]
    pi, answer, x = run.probabilities(run.problems, places, idle=True)
    g = []
    for _ in range(2):
        choice = roll(pi, n, run.rollout_rng)
        A = rewards_of(choice, answer) - pass_rate(pi, answer)[:, None].astype(float)
        G = group_gradient(pi, choice, A) / n
        g.append((x.swapaxes(2, 3) @ G).reshape(*answer.shape[:2], -1))  # (S, D, F K)
    within = n * ((g[0] - g[1]) ** 2).sum(2).mean(1) / 2
    return within / (((g[0] + g[1]) / 2).var(1, ddof=1).sum(1) - within / (2 * n))


def late_gain(R, early=0, late=-1):
    """What the n that is best late gains there over the n that is best early, each at its best lr:
    (mean, 90% half width, [early n, late n]).

    R (L, N, S, E): learning rates, n, seeds, budgets; n as indices, chosen on all seeds. The gain
    is measured on one half of the seeds, n and lr chosen on the other, both ways round, so that
    choosing does not flatter: on equal n the interval covers 0 in 89%.
    """
    gains = np.zeros(R.shape[2])
    for half in (0, 1):
        others, own = R[:, :, half::2].mean(2), R[:, :, 1 - half::2]
        a, b = others[:, :, early].max(0).argmax(), others[:, :, late].max(0).argmax()
        later, earlier = (own[others[:, n, late].argmax(), n, :, late] for n in (b, a))
        gains[1 - half::2] = later - earlier
    best = R.mean(2).max(0)  # (N, E)
    return gains.mean(), interval(gains), [best[:, e].argmax() for e in (early, late)]


def near(R, e):
    """Which n are not told from the best at budget e, each at its best lr: a list of indices
    (paired over seeds, 90%).
    """
    own = R[R.mean(2)[:, :, e].argmax(0), np.arange(R.shape[1]), :, e].T  # (S, N)
    gap = own[:, [own.mean(0).argmax()]] - own
    return np.flatnonzero(gap.mean(0) <= interval(gap)).tolist()


def branches(cfg, seeds, at=2 ** 18, end=2 ** 20):
    """(iv) A plateau of n = 4 branches at `at` rollouts: as it was, a quarter of the lr, n = 64, n
    = 64 at the old lr. AdamW starts anew in all.

    Returns [dict(name, reward, gain, half)]: mean val pass@1 at `end`, and less that of the branch
    as it was, paired over seeds, 90%.
    """
    cfg = dict(cfg, n=4, C=end)
    trunk, lr = Run(cfg, make_world(cfg), seeds), cfg["lr_base"]
    follow(cfg, trunk, [at])
    for weights in trunk.weights.values():
        weights[1:] = 0  # its second moment is that of n = 4
    trunk.steps = 0
    arms = {"n = 4 as it was": {}, "n = 4, lr / 4": dict(lr_base=lr / 4),
            "n = 64, its own lr": dict(n=64),
            "n = 64, lr of n = 4": dict(n=64, lr_base=lr / 4)}  # sqrt(64 / 4) = 4
    reward = {}
    for name, keys in arms.items():
        reward[name] = follow(dict(cfg, **keys), copy.deepcopy(trunk), [end])["mean"][:, 0]
    gain = {name: r - reward["n = 4 as it was"] for name, r in reward.items()}
    return [dict(name=name, reward=reward[name].mean(), gain=g.mean(), half=interval(g))
            for name, g in gain.items()]


def unsolved(cfg, seeds, ns=(2, 64, 256), budgets=(2 ** 15, 2 ** 17, 2 ** 19)):
    """Training problems at equal rollouts, at the base lr: [dict(n, C, below, above, fell, fewer)],
    each [mean, 90% half width] over seeds.

    Shares with pass@1 below 0.05, above 0.95, and that fell by more than 0.1 since the base model;
    fewer: below, less that of the first n.
    """
    world, found, first = make_world(cfg), [], {}
    for n in ns:
        at = dict(cfg, n=n, C=budgets[-1])
        run = Run(at, world, seeds)
        before = run.training()
        for C in budgets:
            follow(at, run, [C])
            p = run.training()
            below = (p < 0.05).mean(1)
            shares = dict(below=below, above=(p > 0.95).mean(1), fell=(p < before - 0.1).mean(1),
                          fewer=below - first.setdefault(C, below))
            shares = {key: [x.mean(), interval(x)] for key, x in shares.items()}
            found.append(dict(n=n, C=C, **shares))
    return found


def study(cfg, out):
    """All of STUDY -> out/study.json, which it goes on from, and out/study.png; prints what it
    found.
    """
    path, world = out / "study.json", config.identity(cfg)
    found = config.read_json(path) if path.exists() else dict(config=world, arms={})
    # a key that is newer than study.json was at its default there
    if {key: found["config"].get(key, config.config.get(key)) for key in world} != world:
        raise BadInput(f"{path}: made by another config; take another folder with --runs")
    words = [f"--{key}={value}" for key, value in world.items()]
    for name, (asks, more, lrs) in STUDY.items():
        arm, C = parse([*words, *more.split()], own=TOY), LONG.get(name, BUDGETS)
        B = 128 if name.startswith("fixed_B") else 0
        cells = [dict(arm, C=C[-1], lr_base=arm["lr_base"] * x, n=n, B_p=B // n or arm["B_p"])
                 for x in lrs for n in NS if not B or n < B]
        spec = dict(asks=asks, words=more, ns=sorted({c["n"] for c in cells}),
                    lrs=sorted({c["lr_base"] for c in cells}), seeds=list(SEEDS), C=C,
                    overlap=arm["overlap"], D=arm["D"])
        if all(found["arms"].get(name, {}).get(key) == value for key, value in spec.items()):
            continue
        print(f"{name}: {asks}", file=sys.stderr)
        done = in_parallel([(measure_cell, c, C) for c in cells])
        shape = len(lrs), len(spec["ns"]), len(SEEDS), len(C)
        values = {key: np.reshape([d[key] for d in done], shape).tolist() for key in done[0]}
        found["arms"][name] = spec | values
        save_json(path, found, indent=None)
    if "branches" not in found:
        print("branches and noise", file=sys.stderr)
        found.update(branches=branches(cfg, range(320, 336)), noise=[])
        for more in STUDY["no_idle"][1], "", STUDY["more_idle"][1]:
            arm = dict(parse([*words, *more.split()], own=TOY), C=2 ** 19, n=64)
            run = Run(arm, make_world(arm), SEEDS)
            for C in (0, 2 ** 19):
                follow(arm, run, [C])
                n_c = noise_levels(run, arm)
                found["noise"].append(dict(words=more, C=C, n_c=n_c.mean(), half=interval(n_c)))
        save_json(path, found, indent=None)
    if "unsolved" not in found:
        found["unsolved"] = unsolved(cfg, SEEDS)
        save_json(path, found, indent=None)
    found = config.read_json(path)
    report(found)
    draw_study(found, out / "study.png")


def lines_of(arm):
    """The study's numbers of one experiment: {what: R (L, N, S, E)}; without shared weights new
    problems learn nothing.
    """
    R = {key: np.array(arm[key]) for key in ("mean", "train")}
    base = len(arm["lrs"]) // 2
    lines = {"validation, base lr": R["mean"][base:base + 1], "validation, best lr": R["mean"],
             "training, best lr": R["train"]}
    return lines if arm["overlap"] else {"training, best lr": R["train"]}


def report(found):
    """n* early and late of each experiment, and what the late one gains at the end."""
    for name, arm in found["arms"].items():
        C, ns = arm["C"], arm["ns"]
        print(f"{name}: {arm['asks']} {arm['words']}")
        for what, R in lines_of(arm).items():
            gain, half, (a, b) = late_gain(R)
            edge = [f"{C[e] / 1e3:.0f}k" for e, i in ((0, a), (-1, b))
                    if len(R) > 1 and R.mean(2)[:, i, e].argmax() in (0, len(R) - 1)]
            gained = "the halves of the seeds agree on one n"
            if half:
                gained = f"the late n gains {gain:+.4f} +- {half:.4f}"
            print(f"  {what:20s} n* = {ns[a]:3d} at {C[0] / 1e3:.0f}k, {ns[b]:3d} at "
                  f"{C[-1] / 1e3:.0f}k (not told from it: "
                  f"{', '.join(str(ns[i]) for i in near(R, -1))}); "
                  + ("the same" if a == b else gained)
                  + (f"; best lr on the grid's edge at {', '.join(edge)}" if edge else ""))
    for r in found["unsolved"]:
        shares = (f"{key} {r[key][0]:.3f} +- {r[key][1]:.3f}"
                  for key in ("below", "above", "fell", "fewer"))
        print(f"training problems, n = {r['n']:3d} after {r['C']}: {', '.join(shares)}")
    for b in found["branches"]:
        print(f"(iv) n = 4 to 262k, then {b['name']:20s} {b['reward']:.4f} at 1049k, "
              f"{b['gain']:+.4f} +- {b['half']:.4f}")
    for r in found["noise"]:
        print(f"(iii) {r['words'] or 'the defaults':10s} after {r['C']} rollouts: n_c = "
              f"{r['n_c']:.1f} +- {r['half']:.1f}")


def draw_study(found, path):
    """n* over C of each experiment; squares: not told from the best (validation, best lr).

    The last panel: n* over C / D.
    """
    arms, cols = found["arms"], 4
    styles = {"validation, base lr": dict(color="C0", ls="--"),
              "validation, best lr": dict(color="C3"),
              "training, best lr": dict(color="C2", ls=":")}
    rows = math.ceil((len(arms) + 1) / cols)
    with figure(path, rows, cols, (16, 2.9 * rows + 0.8)) as (fig, axes):
        def dress(ax, title):
            ax.set_title(title, fontsize=9)
            ax.set(xscale="log", yscale="log", ylim=(1.5, 400))
            ax.set_yticks(NS, [str(n) for n in NS])
            ax.minorticks_off()
        for ax, (name, arm) in zip(axes.flat, arms.items()):
            ns, C, lines = arm["ns"], arm["C"], lines_of(arm)
            tuned = lines.get("validation, best lr", lines["training, best lr"])
            for e in range(len(C)):
                level = [ns[i] for i in near(tuned, e)]
                ax.plot([C[e]] * len(level), level, "s", color="0.8", ms=6)
            for i, (what, R) in enumerate(lines.items()):
                ax.plot(C, [ns[j] * 1.06 ** i for j in R.mean(2).max(0).argmax(0)], lw=1.8,
                        label=what, **styles[what])
            gain, half, (a, b) = late_gain(tuned)
            dress(ax, f"{name}: {arm['asks']}\n"
                  + (f"n = {ns[b]} over {ns[a]} at the end: {100 * gain:+.1f} +- {100 * half:.1f} "
                     "points" if a != b
                                                    else f"n = {ns[a]} at both ends"))
        last = axes.flat[len(arms)]
        for name in ("D_50", "lead", "D_400", "D_1600"):
            if name in arms:
                best = np.array(arms[name]["mean"]).mean(2).max(0).argmax(0)
                last.plot(np.array(arms[name]["C"]) / arms[name]["D"],
                          [arms[name]["ns"][i] for i in best], lw=1.8,
                          label=f"D = {arms[name]['D']}")
        dress(last, "(v) validation, best lr: n* over C / D")
        for ax in list(axes.flat)[len(arms) + 1:]:
            ax.axis("off")
        for ax in (axes[0, 0], last):
            if ax.lines:
                ax.legend(fontsize=7)
        fig.supxlabel("C, rollouts (last panel: rollouts a training problem)"), fig.supylabel("n*")
        fig.suptitle(f"n*(C) of {len(arms)} experiments, {len(SEEDS)} seeds each, exact pass@1; "
                     "squares: n not told from the best, each at its best lr "
                     "(90%); gains with n and lr chosen on one half of the seeds and measured on "
                     "the other (90%)", fontsize=11)


def main(argv):
    cfg = parse(["--data=data/bandit", "--runs=results/bandit", *argv], __doc__, TOY)
    check_world(cfg)
    study(cfg, Path(cfg["out"] or cfg["runs"]))
    return 0


if __name__ == "__main__":
    entry(main)
