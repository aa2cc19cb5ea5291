"""atlas.py: the paper on this machine: every figure from our own runs, with the paper's claim, what the runs say, and how sure that is.

    python results/atlas.py                              # draws all of results/atlas again and writes results/README.md
    python results/atlas.py mix --runs=runs/atlas        # one study, from the full logs of `bash run_sweep.sh mix`
    python results/atlas.py keep --runs=runs/atlas       # finished runs into results/atlas, their logs thinned to what the figures need

A row of the table is a function below: it names its runs, the paper's claim and a contrast of them. Rewards are means over the evaluations
of a window of C, by default the last quarter of the budget. Intervals are 90%, over seeds and validation problems; runs of one seed have their
training problems in common, so contrasts are taken within seeds. `agree` and `disagree` where the interval decides (see `judge`), else
`undecided` with the effect that such runs would show in four of five repetitions. Needs config.py, frontier.py, fit_sigmoid.py.
"""
import functools
import gzip
import json
import math
import re
import shutil
import sys
from collections import Counter
from pathlib import Path

import numpy as np
from scipy import stats

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import config
import fit_sigmoid
import frontier
import sweep
from config import BadInput, aside, entry, parse, read_log, save_json

STEP_FIELDS = "type step rollouts tokens wall_s reward entropy kl grad_norm response_len frac_all_right frac_all_wrong".split()
EARLY, LATE = (0.06, 0.125), (0.75, 1.0)  # windows of a run's budget C
DELTA, MARGIN = 0.01, 0.02  # a reward that does not matter, and how far apart what "makes no difference" may be
KEPT_STEPS = 64        # step records that a thinned log keeps, each the mean of its stretch


# ---------------------------------------------------------------------------------------------------------------------
# Runs

def thin(records):
    """The records of a finished log that the figures need: evaluations and pass rates whole, of steps KEPT_STEPS means."""
    steps = [r for r in records if r.get("type") == "step"]
    means = []
    for part in np.array_split(np.arange(len(steps)), min(KEPT_STEPS, len(steps))) if steps else ():
        last = {key: steps[part[-1]].get(key) for key in STEP_FIELDS}
        for key in STEP_FIELDS[5:]:
            values = [steps[i][key] for i in part if isinstance(steps[i].get(key), (int, float))]
            last[key] = round(float(np.mean(values)), 5) if values else None
        means.append(last | dict(wall_s=round(last["wall_s"], 1)))
    order = dict(header=0, end=2)
    return sorted([r for r in records if r.get("type") != "step"] + means, key=lambda r: (order.get(r["type"], 1), r.get("rollouts", 0)))


def keep(source, target, unfinished=False):
    """Thinned copies of the ended runs below source/ARM/ in target/ARM/ (of all, if `unfinished`), how hard the problems are for their
    model, and what pilot.py measured.

    A copy that goes as far already stays.
    """
    new, run = 0, None
    for path in sorted(source.glob("[!.]*/*/log.jsonl")):
        folder = target / path.parent.relative_to(source)
        old = read_log(folder / "log.jsonl.gz") if (folder / "log.jsonl.gz").exists() else [{}]
        found = read(path)
        if not found or not (found["ended"] or unfinished) or old[-1].get("rollouts", -1) >= found["end"]["rollouts"]:
            continue
        with aside(folder / "log.jsonl.gz") as part:
            text = "".join(json.dumps(r, separators=(",", ":")) + "\n" for r in thin(read_log(path)))
            part.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
        new, run = new + 1, run or found["config"]
    rates = sorted(Path(run["train_set"]).parent.glob("pass_rates*.jsonl")) if run and "train_set" in run and not (target / "difficulty.json").exists() else ()
    first = {r["id"]: r["correct"] for path in rates for r in read_log(path) if r.get("samples") == run["s"]}
    if first:  # how many problems had c = 0..s right of the first s rollouts
        save_json(target / "difficulty.json", dict(model=run["model"], s=run["s"], counts=np.bincount(list(first.values()), minlength=run["s"] + 1)))
    for path in source.glob("[!.]*/sweep.json"):  # written after an arm's first runs where these were started by hand
        if (target / path.parent.name).is_dir():
            shutil.copy(path, target / path.parent.name / "sweep.json")
    if (source / "pilot.json").exists():
        shutil.copy(source / "pilot.json", target / "pilot.json")
    size = sum(p.stat().st_size for p in target.rglob("*.gz"))
    print(f"{target}: {new} runs added, {len(list(target.glob('*/*/log.jsonl.gz')))} in all, {size / 1e6:.1f} MB")


@functools.cache
def read(path):
    """A run -> dict(config, evals {set: dict(C (E,), counts (E, P), samples)}, steps, passes, budget, ended, ...), None without a header.

    ended: it made its budget, or diverged.
    """
    records = read_log(path)
    if not records or records[0].get("type") != "header":
        return None
    evals, header, end = {}, records[0], {"rollouts": 0, **records[-1]}
    for r in records:
        if r["type"] == "eval":
            one = evals.setdefault(r["set"], dict(C=[], counts=[], samples=r["samples"]))
            one["C"].append(r["rollouts"]), one["counts"].append(r["correct"])
    evals = {name: dict(one, C=np.array(one["C"]), counts=np.array(one["counts"])) for name, one in evals.items()}
    steps, cfg = [r for r in records if r["type"] == "step"], header["config"]
    # a run that a larger C continued keeps its first header
    return dict(path=str(path), config=cfg, budget=max(cfg["C"], end["rollouts"]), ended=end.get("status") in ("budget", "diverged"),
                evals=evals, steps=steps, end=end, data=header.get("train_set_hash"), passes=[r for r in records if r["type"] == "train_pass"],
                seconds=steps[-1].get("wall_s", 0) if steps else 0)


class Missing(Exception):
    """The runs of a row are not there (yet)."""


class Atlas:
    """The runs below a folder: `arm` gives those of one sweep and notes them as used by the row that asks."""

    def __init__(self, folder, out):
        self.folder, self.out, self.used = Path(folder), Path(out), {}

    def cells(self, name):
        """{(B_p, n): {seed: run}} of an arm's ended runs of one experiment, cut to their usual budget; shorter ones are left out, and those of another
        config or other problems."""
        runs = [r for r in (read(p) for p in sorted((self.folder / name).glob("*/log.jsonl*"))) if r and r["ended"]]

        def usual(key):  # the runs that have the most frequent value
            most = Counter(map(key, runs)).most_common(1)
            return [r for r in runs if key(r) == most[0][0]]
        runs = usual(lambda r: json.dumps(config.experiment(r["config"])))
        C = max((b := [r["budget"] for r in runs]), key=b.count, default=0)
        runs = [r | dict(budget=C) for r in runs if r["budget"] >= C]
        data = {seed: Counter(r["data"] for r in runs if r["config"]["seed"] == seed).most_common(1)[0][0] for seed in {r["config"]["seed"] for r in runs}}
        runs = [r for r in runs if r["data"] == data[r["config"]["seed"]]]
        out = {}
        for r in sorted(runs, key=lambda r: (r["config"]["B_p"], r["config"]["n"], r["config"]["seed"])):
            out.setdefault((r["config"]["B_p"], r["config"]["n"]), {})[r["config"]["seed"]] = r
        return out

    def arm(self, name, B_p=None, ns=()):
        """{n: {seed: run}} of an arm at one B_p (that with most n), cells with two seeds or more; only `ns` where given. Raises Missing."""
        cells = {key: runs for key, runs in self.cells(name).items() if len(runs) > 1}
        sizes = [b for b, _ in cells]
        B_p = B_p or max(sizes, key=sizes.count, default=0)
        found = {n: runs for (b, n), runs in cells.items() if b == B_p and (not ns or n in ns)}
        if not found or (ns and set(ns) - set(found)):
            raise Missing(f"two seeds of {name}" + (f" with n = {', '.join(map(str, ns))}" if ns else ""))
        self.use(found)
        return found

    def use(self, cells):
        self.used.update({r["path"]: r for runs in cells.values() for r in runs.values()})


def cut(arms):
    """{name: {key: {seed: run}}}: the same runs, up to the budget that all of them have."""
    C = min(run["budget"] for cells in arms.values() for runs in cells.values() for run in runs.values())
    return {name: {key: {seed: run | dict(budget=C) for seed, run in runs.items()} for key, runs in cells.items()} for name, cells in arms.items()}


# ---------------------------------------------------------------------------------------------------------------------
# Contrasts

def look(run, metric="avg@4", of="val", window=LATE):
    """(P,): the metric of each problem, a mean over the evaluations at window[0] C < rollouts <= window[1] C; of a run that diverged, its last."""
    if of not in run["evals"]:
        raise Missing(f"evaluations of {of}")
    e, C = run["evals"][of], run["budget"]
    at = (e["C"] > window[0] * C) & (e["C"] <= window[1] * C * (1 + 1e-9))
    if not at.any():
        if run["end"]["status"] != "diverged":
            raise Missing(f"evaluations of {of} in that window")
        at = e["C"] == e["C"][-1]
    return frontier.right(e["counts"][at], metric, e["samples"]).mean(0).astype(float)


def table_of(cells, value=look):
    """{key: (S, P)}: `value` of each run, for the seeds that all cells have, up to the budget that all have."""
    seeds = set.intersection(*(set(runs) for runs in cells.values()))
    if len(seeds) < 2:
        raise Missing(f"two seeds of all of {', '.join(map(str, cells))}")
    budget = min(runs[seed]["budget"] for runs in cells.values() for seed in seeds)
    return {key: np.array([value(runs[seed] | dict(budget=budget)) for seed in sorted(seeds)]) for key, runs in cells.items()}


def seed_noise(tables):
    """(s, df): how runs of one seed scatter about what their cell and their seed have in common, pooled over tables {key: (S, P)}."""
    squares, df = 0.0, 0
    for table in tables:
        m = np.array([t.mean(1) for t in table.values()])  # (cells, S)
        rest = m - m.mean(0) - m.mean(1, keepdims=True) + m.mean()
        squares, df = squares + (rest ** 2).sum(), df + (m.shape[0] - 1) * (m.shape[1] - 1)
    return math.sqrt(squares / max(df, 1)), df


def bounded(each, seeds, df):
    """A mean of per-problem values (P,) whose standard error over seeds is `seeds`: dict(gain, half, sees), half of a 90% interval.

    sees: the effect that such runs would show in four of five repetitions.
    """
    problems = each.std(ddof=1) / math.sqrt(len(each))
    half = math.hypot(stats.t.ppf(0.95, max(df, 1)) * seeds, 1.645 * problems)
    return dict(gain=each.mean(), half=half, sees=half + 0.84 * math.hypot(seeds, problems))


def contrast(table, weights, noise=None):
    """sum of weights[key] times cell key of {key: (S, P)}, within seeds; the weights sum to 0. noise: `seed_noise` of a larger study."""
    s, df = noise or seed_noise([table])
    S = len(next(iter(table.values())))
    return bounded(sum(w * table[key].mean(0) for key, w in weights.items()), s * math.sqrt(sum(w * w for w in weights.values()) / S), df)


def best_less(table, among, other):
    """The best of the keys `among`, chosen for each seed on the others, less `other` on that seed: (the keys chosen, contrast)."""
    s, df = seed_noise([table])
    best = [max(among, key=lambda key: np.delete(table[key], f, 0).mean()) for f in range(len(table[other]))]
    each = np.mean([table[key][f] - table[other][f] for f, key in enumerate(best)], 0)
    return best, bounded(each, s * math.sqrt(2 / len(best)), df)


def change(now, before):
    """Mean of now (S, P) less before (S, P), one difference a seed, so S - 1 degrees of freedom."""
    d = (now - before).mean(1)
    return bounded((now - before).mean(0), d.std(ddof=1) / math.sqrt(len(d)), len(d) - 1)


def over_sweeps(values):
    """The mean of one number a sweep as a contrast, 90% over sweeps."""
    half = stats.t.ppf(0.95, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values))
    return dict(gain=np.mean(values), half=half, sees=1.5 * half)


def judge(c, claim=+1):
    """What a contrast says of a claim: +1 "is larger": agree above 0, disagree where it is larger by less than DELTA, if at all; -1 likewise;
    0 "makes no difference": agree within MARGIN of 0, disagree beyond it."""
    lo, hi = c["gain"] - c["half"], c["gain"] + c["half"]
    if claim == 0:
        return "agree" if -MARGIN < lo and hi < MARGIN else "disagree" if lo > MARGIN or hi < -MARGIN else "undecided"
    lo, hi = (lo, hi) if claim > 0 else (-hi, -lo)
    return "agree" if lo > 0 else "disagree" if hi < DELTA else "undecided"


def denied(verdict):
    """The verdict on the opposite of a claim."""
    return dict(agree="disagree", disagree="agree").get(verdict, verdict)


def both(verdicts):
    """One verdict of several that a claim needs: agree if all do, disagree if one does."""
    return "agree" if set(verdicts) == {"agree"} else "disagree" if "disagree" in verdicts else "undecided"


def shift(first, second):
    """Does the best n move up from one condition to another? first, second {n: [(S, P) for each lr]}, the same runs.

    The best n of each condition, each n at its best lr there, is chosen on the other seeds and measured on one: dict(a, b, loses, gains,
    verdict, sees): the n chosen for each seed, what those of b lose on those of a in the first condition and gain in the second. agree: b > a for
    every seed, and both are above 0. disagree: b < a for every seed, and both are; or one n, neither the largest nor, unless it is 2, the smallest,
    is within DELTA of all others in both (upper ends). Raises Missing below three n.
    """
    ns = sorted(first)
    if len(ns) < 3:
        raise Missing("three n or more")
    S = len(first[ns[0]][0])
    noise = [seed_noise([{(n, i): t for n in ns for i, t in enumerate(x[n])}]) for x in (first, second)]

    def pick(x, n, out):  # the lr of this n that is best on the seeds but `out`
        return max(x[n], key=lambda t: np.delete(t, out, 0).mean())
    a, b = ([max(ns, key=lambda n: np.delete(pick(x, n, f), f, 0).mean()) for f in range(S)] for x in (first, second))
    loses, gains = (bounded(np.mean([sign * (pick(x, a[f], f)[f] - pick(x, b[f], f)[f]) for f in range(S)], 0), s * math.sqrt(2 / S), df)
                    for x, sign, (s, df) in zip((first, second), (+1, -1), noise))
    clear = loses["gain"] > loses["half"] and gains["gain"] > gains["half"]
    worst = {}  # of a constant n: the upper end of what another is better, in either condition
    for n in ns[:-1]:
        differences = [contrast({0: pick(x, n, []), 1: pick(x, o, [])}, {0: -1, 1: 1}, s) for x, s in zip((first, second), noise) for o in ns if o != n]
        worst[n] = max(c["gain"] + c["half"] for c in differences)
    flat = min(worst, key=worst.get)
    censored = flat == ns[0] > 2  # a rise below the grid would not show; below n = 2 there is no group
    up, down = all(y > x for x, y in zip(a, b)), all(y < x for x, y in zip(a, b))
    verdict = "agree" if up and clear else "disagree" if (down and clear) or (worst[flat] < DELTA and not censored) else "undecided"
    return dict(a=a, b=b, loses=loses, gains=gains, verdict=verdict, flat=flat, worst=worst[flat], censored=censored, sees=max(loses["sees"], gains["sees"]))


def each_of(chosen):
    """What was chosen for each seed: "2" where it is the same for all, else "8/2/8"."""
    return "/".join(f"{x}" for x in (chosen[:1] if len(set(chosen)) == 1 else chosen))


def says_shift(c, names=("early", "at the end")):
    """`shift` in words."""
    text = f"best n {names[0]} {each_of(c['a'])}, {names[1]} {each_of(c['b'])}"
    if c["a"] != c["b"]:
        text += f"; the second less the first {points(c['loses'], -1)} {names[0]}, {points(c['gains'])} {names[1]}"
    return text + f"; n = {c['flat']}" + (", the smallest of these runs," if c["censored"] else "") + f" in both costs at most {100 * max(c['worst'], 0):.1f}"


def points(c, sign=1):
    """A contrast as text, in points of reward."""
    return f"{sign * 100 * c['gain']:+.1f} ± {100 * c['half']:.1f}"


# ---------------------------------------------------------------------------------------------------------------------
# Figures

def colour(key, keys):
    import matplotlib
    keys = sorted(keys)
    return matplotlib.colormaps["viridis"](0.95 * keys.index(key) / max(len(keys) - 1, 1))


def over(ax, x="C, rollouts", **labels):
    """Log axis of budgets, labelled at 1, 2 and 5 times powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
    ax.set(xscale="log", xlabel=x, **labels)
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: fit_sigmoid.si(value)))
    ax.xaxis.set_minor_formatter(NullFormatter())


def lines(cells, title="", metric="avg@4", of="val", label="n = {}", among=()):
    """A panel: reward over C, the mean over seeds of each cell, its seeds as thin lines; the base model at the left end. Colours are those of the
    keys, of those of all panels where `among` has them."""
    def left(C):
        return C[1] / 2 if len(C) > 1 else 1

    def draw(ax):
        for key, runs in cells.items():
            curves = []
            for run in runs.values():
                if of not in run["evals"]:
                    raise Missing(f"evaluations of {of}")
                e = run["evals"][of]
                y = frontier.right(e["counts"], metric, e["samples"]).mean(1)
                ax.plot(np.maximum(e["C"], left(e["C"])), y, color=colour(key, among or cells), lw=0.5, alpha=0.35)
                curves.append((e["C"], y))
            C = sorted(set.intersection(*(set(c.tolist()) for c, _ in curves)))
            mean = np.mean([y[np.isin(c, C)] for c, y in curves], 0)
            ax.plot(np.maximum(C, left(C)), mean, color=colour(key, among or cells), lw=1.8, label=label.format(key))
        over(ax, ylabel=f"validation {metric}" if of == "val" else f"{metric}, {of}", title=title)
        ax.legend(fontsize=7)
    return draw


def training(cells, field, title=""):
    """A panel: a field of the step records over C, a line a run."""
    def draw(ax):
        for key, runs in cells.items():
            for i, run in enumerate(runs.values()):
                y = [np.nan if r.get(field) is None else r[field] for r in run["steps"]]
                ax.plot([r["rollouts"] for r in run["steps"]], y, color=colour(key, cells), lw=0.9, alpha=0.7, label=None if i else f"{key}")
        over(ax, ylabel=field, title=title)
        ax.legend(fontsize=7)
    return draw


def figure(atlas, name, panels, width=4.2, sharey=False):
    """Draw panels, functions of an axis, into NAME.png in atlas.out, three or (of four) two in a row; returns the file's name."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    across = 2 if len(panels) == 4 else min(3, len(panels))
    down = -(-len(panels) // across)
    fig, axes = plt.subplots(down, across, figsize=(width * across, 3.4 * down), squeeze=False, sharey=sharey)
    for ax in axes.flat[len(panels):]:
        ax.axis("off")
    for ax, panel in zip(axes.flat, panels):
        panel(ax)
    fig.tight_layout()
    with aside(atlas.out / f"{name}.png") as part:
        fig.savefig(part, dpi=80)
    plt.close(fig)
    return f"{name}.png"


# ---------------------------------------------------------------------------------------------------------------------
# The rows. Each returns dict(verdict, says[, figure, sees]); the runs that it used are noted by Atlas

ROWS = []


def row(study, paper, claim):
    def add(function):
        ROWS.append((study, paper, claim, function))
        return function
    return add


def config_of(cells):
    return next(iter(next(iter(cells.values())).values()))["config"]


def one_cell(atlas, arm, B_p=None):
    """{seed: run} of an arm that has one n."""
    return next(iter(atlas.arm(arm, B_p).values()))


def near(table):
    """The n with the highest mean, and the n not told from it (90%, one by one): (n, [n, ...])."""
    noise, top = seed_noise([table]), max(table, key=lambda n: table[n].mean())
    gaps = {n: contrast(table, {top: 1, n: -1}, noise) for n in table if n != top}
    return top, sorted([top, *(n for n, c in gaps.items() if c["gain"] <= c["half"])])


def told(table):
    """`near` in words."""
    top, same = near(table)
    others = [f"{n}" for n in same if n != top]
    return f"n = {top} has most ({table[top].mean():.3f})" + (f", not told from {', '.join(others)}" if others else "")


def means(table, digits=3):
    return ", ".join(f"{key} {t.mean():.{digits}f}" for key, t in table.items())


def windows(sweeps, of="val", metric="avg@4"):
    """The arguments of `shift` for early and late: {n: [(S, P) of each sweep that has this n]} twice."""
    cells = {(n, i): runs for i, sweep in enumerate(sweeps) for n, runs in sweep.items()}
    tables = [table_of(cells, lambda r, w=w: look(r, metric, of, w)) for w in (EARLY, LATE)]
    return [{n: [t[key] for key in t if key[0] == n] for n in sorted({n for n, _ in cells})} for t in tables]


def largest_less_smallest(table):
    """(text, contrast) of the largest n less the smallest."""
    a, b = max(table), min(table)
    c = contrast(table, {a: 1, b: -1})
    return f"n = {a} less n = {b}: {points(c)}", c


# ---- section 3: the recipe

@row("difficulty", "Figure 2", "Problems split by avg@16 of the base model: Easy 0.3 to 0.6, Hard 0 to 0.0625.")
def difficulty(atlas):
    if not (atlas.folder / "difficulty.json").exists():
        raise Missing("anything")
    bars = np.array(config.read_json(atlas.folder / "difficulty.json")["counts"])
    s = len(bars) - 1

    def draw(ax):
        ax.bar(np.arange(s + 1) / s, bars, width=0.8 / s, color="0.5")
        for lo, hi, name, shade in ((0.3, 0.6, "Easy", "C0"), (0, 0.0625, "Hard", "C3")):
            ax.axvspan(lo - 0.5 / s, hi + 0.5 / s, alpha=0.2, color=shade, label=name)
        ax.set(xlabel=f"avg@{s} of the base model", ylabel="problems", title="difficulty of the embedded problems")
        ax.legend()
    rate = np.arange(s + 1) / s
    easy, hard = (bars[(rate >= lo) & (rate <= hi)].sum() / bars.sum() for lo, hi in ((0.3, 0.6), (0, 0.0625)))
    return dict(verdict="", says=f"{bars.sum():,} problems, mean {rate @ bars / bars.sum():.2f}; Easy {100 * easy:.0f}%, Hard {100 * hard:.0f}%",
                figure=figure(atlas, "difficulty", [draw]))


for task, claim, sign in (("easy", "KL and entropy terms together give the best reward on Easy; without them entropy collapses.", +1),
                          ("hard", "On Hard both terms destabilise training, with the filter too; none is best.", -1)):
    @row("recipe", f"Figure 3, {task.title()}", claim)
    def recipe(atlas, task=task, sign=sign):
        cells = {name: one_cell(atlas, f"rec_{task}_{name}") for name in ("both", "filtered", "none")}
        table = table_of(cells)
        c = contrast(table, {"both": 1, "none": -1})
        entropy = {name: np.mean([run["steps"][-1]["entropy"] for run in runs.values()]) for name, runs in cells.items()}
        return dict(verdict=judge(c, sign), sees=c["sees"], says=f"{means(table)}; both less none {points(c)}. Token entropy at the end: "
                    + ", ".join(f"{name} {x:.2f}" for name, x in entropy.items()),
                    figure=figure(atlas, f"recipe_{task}", [lines(cells, task, label="{}"), training(cells, "entropy", "token entropy, nats")]))


@row("recipe", "Figure 4, left", "There is one best base lr at a middle batch: far below it training is slow, far above it unstable.")
def lr_grid(atlas):
    arms = [p.name for p in atlas.folder.glob("lr_[0-9]*")]  # not the figures lr_grid.png, ...
    if len(arms) < 3:
        raise Missing("three lr_*")
    cells = {float(name[3:]): one_cell(atlas, name) for name in arms}
    some = config_of(cells)
    own = atlas.cells("easy").get((some["B_p"], some["n"]), {})  # the rule's own lr, where the main runs have that cell
    if len(own) > 1:
        cells[config_of({0: own})["lr_base"]] = own
        atlas.use({0: own})
    cells = dict(sorted(cells.items()))
    table = table_of(cells)
    lrs = list(cells)
    (best, low), (_, high) = (best_less(table, lrs[1:-1], end) for end in (lrs[0], lrs[-1]))
    return dict(verdict=both([judge(low), judge(high)]), sees=max(low["sees"], high["sees"]), says=", ".join(f"{lr:g}: {table[lr].mean():.3f}" for lr in lrs)
                + f"; {each_of(best)}, chosen on other seeds, less {lrs[0]:g} {points(low)}, less {lrs[-1]:g} {points(high)}",
                figure=figure(atlas, "lr_grid", [lines(cells, f"lr_base, B_p = {some['B_p']}, n = {some['n']}", label="{:g}")]))


@row("recipe", "Figure 4, right; Table 1", "At a batch 8 times that of the base lr, lr ~ sqrt(B) beats a constant and a linear lr.")
def lr_rule(atlas):
    cells = {rule: one_cell(atlas, f"scale_{rule}") for rule in ("linear", "constant")}
    some = config_of(cells)
    scaled = (atlas.folder / "scale_sqrt").is_dir()
    cells["sqrt"] = one_cell(atlas, "scale_sqrt") if scaled else atlas.arm("easy", some["B_p"], [some["n"]])[some["n"]]
    table = table_of(cells)
    c = {rule: contrast(table, {"sqrt": 1, rule: -1}) for rule in ("linear", "constant")}
    return dict(verdict=both([judge(x) for x in c.values()]), sees=max(x["sees"] for x in c.values()), says=means(table)
                + "; sqrt less " + ", less ".join(f"{rule} {points(x)}" for rule, x in c.items()),
                figure=figure(atlas, "lr_rule", [lines(cells, f"B_p = {some['B_p']}, n = {some['n']}", label="{}")]))


# ---- section 4: allocation

@functools.cache
def analysed(folder, unit):
    """A sweep through frontier.py: (sweep, name of the panel with most runs, that panel)."""
    cfg = parse([f"--data={ROOT / 'data/arithmetic'}", f"--runs={folder}", f"--unit={unit}", "--boot=200"])
    sweep = frontier.analyse(cfg, "val")
    panels = frontier.view_fixed_Bp(sweep, sweep["cfg"])["panels"]
    return sweep, *max(panels.items(), key=lambda item: len(item[1]["runs_used"]))


def law_of(atlas, arm, unit="rollouts"):
    """(panel, verdict, words) of an arm's law."""
    sweep, name, panel = analysed(atlas.folder / arm, unit)
    law = fit_sigmoid.law_of_panel(panel, DELTA)
    if law["verdict"] == "law" or law.get("constant") is None:
        verdict = "agree" if law["verdict"] == "law" else "undecided"
    else:
        verdict = "disagree" if law["verdict"] == "flat" or law["reason"].startswith("n* falls") else "undecided"
    turns = ", ".join(f"{s['from']} to {s['to']} at {fit_sigmoid.si(s['C'])}" for s in panel["switches"]) or "never"
    sets = ", ".join(f"{{{', '.join(map(str, at['set']))}}} at {fit_sigmoid.si(at['C'])}" for at in (panel["near"][0], panel["near"][-1]))
    plateau = law["plateau"]["value"]
    words = f"verdict {law['verdict']}; the n on top changes {turns}; not told from the best: {sets}" + (f"; plateau {plateau:.0f}" if plateau else "")
    if law.get("constant") is not None:
        words += f"; n = {law['constant']} throughout loses {100 * law['regret']:.1f} points, below {100 * law['regret_upper']:.1f} (95%)"
    return panel, verdict, words


TITLES = dict(mix_hard="none right in 128", size_50="D = 50")  # of arms, in figures
LRS = dict(_quarter=0.25, _half=0.5, _double=2)  # the rule's lr times this, in arms of the name of the one at the rule's lr


def other_lrs(atlas, task):
    """{multiple of the rule's lr: {n: {seed: run}}} of the n at the rule's lr and half of it, up to the budget that all have."""
    arms = {1: atlas.arm(task), **{x: atlas.arm(task + end) for end, x in LRS.items() if end == "_half" or (atlas.folder / (task + end)).is_dir()}}
    ns = sorted(set(arms[1]) & set(arms[0.5]))
    if len(ns) < 3 or len(arms) < 3:
        raise Missing(f"three n of {task} at three lrs")
    return cut({x: {n: arms[x][n] for n in ns if n in arms[x]} for x in sorted(arms)})


def fewest(atlas):
    """The arm of the study of sizes that trains on the fewest problems."""
    sizes = [p.name for p in atlas.folder.glob("size_*[0-9]")]
    if not sizes:
        raise Missing("size_*")
    return min(sizes, key=lambda name: int(name[5:]))


def law_figure(atlas, task, panel):
    """Curves, frontier and n*(C) of an arm's panel of `law_of`; returns the file's name."""
    def top(ax):
        for c in panel["curves"]:
            ax.plot(c["C"], c["reward"], color=colour(c["n"], panel["ns"]), lw=1.6, label=f"n = {c['n']}")
            ax.fill_between(c["C"], c["lo"], c["hi"], color=colour(c["n"], panel["ns"]), alpha=0.07, lw=0)
        ax.plot(panel["records"]["C"], panel["records"]["reward"], "kD", ms=3, mfc="none", label="record-breaking points")
        over(ax, ylabel="validation avg@4", title=f"{TITLES.get(task, task)}, B_p = {panel['B_p']}, {len(panel['runs_used'])} runs")
        ax.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))

    def low(ax):
        env, rec = panel["envelope"], panel["records"]
        for i, at in enumerate(panel["near"]):
            ax.plot([at["C"]] * len(at["set"]), at["set"], "s", color="0.7", ms=4, label=None if i else "not told from the best (90%)")
        ax.step(env["C"], env["n"], where="post", color="k", lw=2, label="envelope: n on top")
        ax.plot(rec["C"], 2.0 ** np.array(rec["log2_n_mean"]), "C1o", ms=4, label="records: running average")
        ax.set_yscale("log")
        over(ax, ylabel="n", title="n*(C)")
        ax.set_yticks(panel["ns"], panel["ns"])
        ax.minorticks_off()
        ax.legend(fontsize=7)
    return figure(atlas, f"law_{task}", [top, low], width=5)


def lr_control(atlas, task):
    """A row: does n*(C) of an arm rise where every n has the best of several lrs?"""
    arms = other_lrs(atlas, task)
    early, late = windows(list(arms.values()))
    seeds = set.intersection(*(set(runs) for cells in arms.values() for runs in cells.values()))  # the contrast's: those that all lrs have
    c, rule = shift(early, late), shift(*windows([{n: {seed: runs[seed] for seed in seeds} for n, runs in arms[1].items()}]))
    best = ", ".join(f"n = {n}: {[x for x in arms if n in arms[x]][int(np.argmax([t.mean() for t in ts]))]:g}" for n, ts in late.items())
    words = (f"{says_shift(c)}. At the rule's lr, {len(seeds)} seeds as there, {says_shift(rule)}. Best multiple of the lr at the end, of {', '.join(f'{x:g}' for x in arms)} "
             f"(at either end the best may lie beyond): {best}")
    return dict(verdict=c["verdict"], sees=c["sees"], says=words, figure=figure(
        atlas, f"lr_control_{task}", [lines(cells, f"{TITLES.get(task, task)}, {x:g} x lr", among=arms[1]) for x, cells in arms.items()], sharey=True))


def rise(atlas, task):
    """A row: does n*(C) of an arm rise? The verdict is that of the seeds from 3 on, where there are three: the claim was made on the first."""
    cells, (panel, _, words) = atlas.arm(task), law_of(atlas, task)
    c, fresh = shift(*windows([cells])), {n: {seed: run for seed, run in runs.items() if seed > 2} for n, runs in cells.items()}
    words = f"{says_shift(c)}. By the best so far of each run: {words}"  # which law_of is of, where runs decline
    if all(len(runs) > 2 for runs in fresh.values()):
        c = shift(*windows([fresh]))
        words = f"On seeds that were run after the claim was made (3 and up, the verdict's): {says_shift(c)}. On all seeds {words}"
    return dict(verdict=c["verdict"], sees=c["sees"], says=words, figure=law_figure(atlas, task, panel))


for task, paper, claim in (("easy", "Figures 1, 6 and 7, Easy", " (n = 8 to 512)."), ("hard", "Figures 6 and 7, Hard", ", at a smaller n than on Easy (8 to 128).")):
    @row("main", paper, f"At one B_p n*(C) rises with C as a sigmoid, and saturates{claim}")
    def main_law(atlas, task=task):
        atlas.arm(task)
        panel, verdict, words = law_of(atlas, task)
        return dict(verdict=verdict, says=words, figure=law_figure(atlas, task, panel))

    @row("main", f"ours: the lr control, {task.title()}", "The same claim when every n has the best of half, once and double the lr.")
    def control(atlas, task=task):
        return lr_control(atlas, task)


@row("epochs", "ours: many epochs", "Where each of few problems is seen often, n*(C) rises with C.")
def many_epochs(atlas):
    return rise(atlas, fewest(atlas))


@row("epochs", "ours: many epochs, the lr control", "The same claim when every n has the best of half the lr and once, small ones of a quarter too.")
def epochs_control(atlas):
    return lr_control(atlas, fewest(atlas))


@row("main", "ours: the lr of a short run", "Of half, once and double the lr, the one that leads at C/8 is as good as any at the end.")
def lr_of_a_short_run(atlas):
    lost = {}
    for task in ("easy", "hard"):
        early, late = windows(list(other_lrs(atlas, task).values()))
        for n in early:  # chosen on each seed's own evaluations, as one short run each would; the best at the end is that of all seeds
            ends = [t.mean() for t in late[n]]
            lost[task, n] = max(ends) - np.mean([ends[int(np.argmax([t[f].mean() for t in early[n]]))] for f in range(len(early[n][0]))])
    return dict(verdict="", says="points that it loses at the end on the lr that is best there, by one seed each: " + "; ".join(
        f"{task}, n = {n}: {100 * max(x, 0):.1f}" for (task, n), x in lost.items()))


@row("main", "Figures 5 and 15", "Record-breaking points of noisy runs, and a monotone fit to them, stand for the frontier.")
def records(atlas):
    atlas.arm("easy")
    panel = analysed(atlas.folder / "easy", "rollouts")[2]
    if panel["records"]["above"] is None:
        raise Missing("record-breaking points")
    return dict(verdict="", says=f"curves through record-breaking points lie {100 * panel['records']['above']:+.1f} points from the frontier scored on other seeds "
                "(mean over log C; in simulations of known truth +1.1, see the README)", figure="law_easy.png")


for task, first, second in (("easy", "best@4", "worst@4"), ("hard", "worst@4", "best@4")):
    @row("main", f"Figure 8, {task.title()}", f"On {task.title()} {second} wants a larger n than {first}.")
    def bars(atlas, task=task, first=first, second=second):
        cells = atlas.arm(task)
        tables = {m: table_of(cells, lambda r, m=m: look(r, m)) for m in (first, second)}
        c = shift(*({n: [t] for n, t in tables[m].items()} for m in (first, second)))
        return dict(verdict=c["verdict"], sees=c["sees"], says=says_shift(c, (f"by {first}", f"by {second}")) + "; " + "; ".join(
                    f"{m}: {told(t)}" for m, t in tables.items()), figure=figure(atlas, f"metrics_{task}", [lines(cells, task, m) for m in (first, second)]))


def grid_of(atlas, arm):
    """{(B_p, n): {seed: run}} of an arm and its other B_p (in joint_ARM), of the n that two B_p have or more, up to the budget that all have, in
    order of n."""
    cells = {key: runs for name in (arm, f"joint_{arm}") for key, runs in atlas.cells(name).items() if len(runs) > 1}
    sizes = {}
    for b, n in cells:
        sizes.setdefault(b, set()).add(n)
    if len(sizes) < 2:
        raise Missing(f"{arm} at a second B_p")
    shared = {n for b, n in cells if sum(n in ns for ns in sizes.values()) > 1}
    cells = {(b, n): cells[b, n] for b, n in sorted(cells, key=lambda cell: cell[::-1]) if n in shared}
    atlas.use(cells)
    return cut({arm: cells})[arm]


for task in ("easy", "hard"):
    @row("joint", f"Figure 10, {task.title()}", "B_p has " + (
        "a smaller effect than n (1.9 and 9.2 points from end to end). (The prescriptions of section 4.2 say the opposite: comparable on Easy.)"
        if task == "easy" else "an effect like that of n (2.2 and 3.1 points from end to end)."))
    def sensitivity(atlas, task=task):
        cells = grid_of(atlas, task)
        table = table_of(cells)
        keys = list(table)
        X = np.array([[1, math.log2(b), math.log2(n)] for b, n in keys])
        to_B_p, to_n = np.linalg.pinv(X)[1:]  # least squares of a plane in log2 B_p and log2 n, as weights of the cells
        slope = {name: contrast(table, dict(zip(keys, w))) for name, w in (("B_p", to_B_p), ("n", to_n))}
        signs = {name: math.copysign(1, c["gain"]) for name, c in slope.items()}
        gap = contrast(table, dict(zip(keys, signs["n"] * to_n - signs["B_p"] * to_B_p)))
        alike = "agree" if abs(gap["gain"]) + gap["half"] < DELTA else "disagree" if abs(gap["gain"]) > gap["half"] else "undecided"
        verdict = judge(gap, +1) if task == "easy" else alike
        sizes, ends = sorted({b for b, _ in keys}), {n: [b for b, m in sorted(keys) if m == n] for n in sorted({n for _, n in keys})}
        each = (f"at n = {n} B_p = {of[-1]} less {of[0]} {points(contrast(table, {(of[-1], n): 1, (of[0], n): -1}))}" for n, of in ends.items() if len(of) > 1)
        return dict(verdict=verdict, sees=gap["sees"], says=f"points for each doubling: of n {points(slope['n'])}, of B_p {points(slope['B_p'])}; "
                    f"size of the first less that of the second {points(gap)} ({len(keys)} cells, B_p = {', '.join(map(str, sizes))}); {', '.join(each)}",
                    figure=figure(atlas, f"B_p_{task}", [lines({n: runs for (b, n), runs in cells.items() if b == B_p}, f"{task}, B_p = {B_p}",
                                                               among={n for _, n in cells}) for B_p in sizes]))

    @row("joint", f"Figure {16 if task == 'easy' else 17}, {task.title()}", "At every B_p n*(C) rises with C, and saturates.")
    def each_B_p(atlas, task=task):
        sizes = {}
        for (b, n), runs in sorted(grid_of(atlas, task).items()):
            sizes.setdefault(b, {})[n] = runs
        found = {b: shift(*windows([cells])) for b, cells in sizes.items() if len(cells) > 2}
        if not found:
            raise Missing("three n at one B_p")
        return dict(verdict=both([c["verdict"] for c in found.values()]), sees=max(c["sees"] for c in found.values()),
                    says="; ".join(f"B_p = {b}: {says_shift(c)}" for b, c in found.items()), figure=f"B_p_{task}.png")

    @row("fixed_B", f"Figures 9 and {'18' if task == 'easy' else '19'}, {task.title()}", "At a fixed batch B = B_p n, n* rises with M" + (
        ": many problems first, many rollouts later. (The k printed for B_p*(M) has the wrong sign for its form.)" if task == "easy" else
        " (Figure 19's caption; the text of section 4.2 says that it does not depend on M monotonically)."))
    def fixed_B(atlas, task=task):
        sizes, cells = {}, grid_of(atlas, task)
        for (b, n), runs in cells.items():
            sizes.setdefault(b * n, {})[n] = runs
        found = {B: shift(*windows([cells])) for B, cells in sorted(sizes.items()) if len(cells) > 2}
        if not found:
            raise Missing("three n at one B_p n")
        return dict(verdict=both([c["verdict"] for c in found.values()]), sees=max(c["sees"] for c in found.values()),
                    says="; ".join(f"B = {B}: {says_shift(c)}; at the end {told(table_of(sizes[B]))}" for B, c in found.items()),
                    figure=figure(atlas, f"fixed_B_{task}", [lines(g, f"{task}, B_p n = {B}", among={n for _, n in cells})
                                                             for B, g in sorted(sizes.items()) if len(g) > 1]))

    @row("joint", f"Figures 21 and 22, {task.title()}", "Best over (B_p, n) jointly, n*(C) rises likewise.")
    def joint(atlas, task=task):
        cells = grid_of(atlas, task)
        tables = [table_of(cells, lambda r, w=w: look(r, window=w)) for w in (EARLY, LATE)]
        c = shift(*({n: [t[key] for key in t if key[1] == n] for n in sorted({n for _, n in t})} for t in tables))
        tops = [max(t, key=lambda k: t[k].mean()) for t in tables]
        return dict(verdict=c["verdict"], sees=c["sees"], says=f"{says_shift(c)}; (B_p, n) on top: {tops[0]} early, B = {tops[0][0] * tops[0][1]}, "
                    f"{tops[1]} at the end, B = {tops[1][0] * tops[1][1]}", figure=f"B_p_{task}.png")


# ---- section 5: base model and problems

def pass_rates(run, at):
    """Pass rates of a run's training problems nearest to budget `at`, from fresh rollouts: (D,) in file order, and how many rollouts each."""
    fresh = [r for r in run["passes"] if r.get("fresh")]
    if len(fresh) < 2:
        raise Missing("pass rates of training problems (--pass_at)")
    r = min(fresh, key=lambda r: abs(r["rollouts"] - at))
    return np.array(r["correct"]) / np.array(r["samples"]), r["samples"][0]


for task in ("easy", "hard"):
    @row("interference", f"Figures 11 and 27, {task.title()}", "At matched n M a larger n leaves fewer training problems unsolved" + (
        ", and pass rates less polarised." if task == "easy" else " (coverage); small n sharpens a subset."))
    def interference(atlas, task=task):
        cells = atlas.arm(task)
        ends = [min((n for n in cells if n >= 8), default=0), max((n for n in cells if n <= 128), default=0)]
        if ends[0] >= ends[1]:
            raise Missing("two n from 8 to 128")
        cells = {n: cells[n] for n in ends}
        C = min(run["budget"] for runs in cells.values() for run in runs.values())
        s = pass_rates(next(iter(cells[ends[0]].values())), C)[1]
        none, nearly, fell = (table_of(cells, f) for f in (
            lambda r: (pass_rates(r, C)[0] == 0).astype(float), lambda r: (pass_rates(r, C)[0] > 1 - 1.5 / s).astype(float),
            lambda r: (pass_rates(r, C)[0] < pass_rates(r, 0)[0] - 0.25).astype(float)))
        p0 = np.concatenate([pass_rates(r, 0)[0] for r in cells[ends[0]].values()])
        rng = np.random.default_rng(0)
        floor = np.mean(rng.binomial(s, p0, (200, len(p0))) / s < p0 - 0.25)  # at unchanged pass rates; p0 is drawn too, so a little less than the truth
        a, b = (contrast(t, {ends[0]: 1, ends[1]: -1}) for t in (none, nearly))

        def histogram(n):
            def draw(ax):
                run = next(iter(cells[n].values()))
                for at in sorted({r["rollouts"] for r in run["passes"] if r.get("fresh")}):
                    p = np.concatenate([pass_rates(r, at)[0] for r in cells[n].values()])
                    ax.hist(p, (np.arange(s + 2) - 0.5) / s, histtype="step", density=True, label=f"C = {fit_sigmoid.si(at)}")
                ax.set(xlabel=f"pass rate of a training problem ({s} fresh rollouts)", ylabel="density", title=f"{task}, n = {n}")
                ax.legend(fontsize=7)
            return draw
        return dict(verdict=both([judge(a), judge(b)]) if task == "easy" else judge(a), sees=a["sees"],
                    says=f"n = {ends[0]} less n = {ends[1]} at C = {fit_sigmoid.si(C)}, in % of the training problems: none of {s} right {points(a)}, "
                    f"{s - 1} or more {points(b)}; fell by over a quarter since the start {100 * fell[ends[0]].mean():.1f} and {100 * fell[ends[1]].mean():.1f} "
                    f"(chance alone {100 * floor:.1f})", figure=figure(atlas, f"pass1_{task}", [histogram(n) for n in ends]))


def arms_of(atlas, pattern, **how):
    found = {p.name: atlas.arm(p.name, **how) for p in sorted(atlas.folder.glob(pattern))}
    if not found:
        raise Missing(pattern)
    return found


@row("models", "Figure 12", "With other base models larger n is better at high C too. (Consistently, says the text; in the same section validation saturates "
     "or degrades at the largest n on both Easy sets.)")
def models(atlas):
    arms = arms_of(atlas, "model_*")
    tables = {name: table_of(cells) for name, cells in arms.items()}
    found = {name: largest_less_smallest(t) for name, t in tables.items()}
    return dict(verdict=both([judge(c) for _, c in found.values()]), sees=max(c["sees"] for _, c in found.values()),
                says="; ".join(f"{name}: {text}, {told(tables[name])}, {says_shift(shift(*windows([arms[name]])))}" for name, (text, _) in found.items()),
                figure=figure(atlas, "models", [lines(cells, name) for name, cells in arms.items()]))


@row("models", "Figure 12, training", "On training reward the largest n goes on rising where its validation saturates.")
def models_training(atlas):
    arms, text = arms_of(atlas, "model_*"), []
    for name, cells in arms.items():
        def reward(run, lo, hi):
            return np.mean([r["reward"] for r in run["steps"] if lo * run["budget"] < r["rollouts"] <= hi * run["budget"]])
        n = max(cells)
        rise_ = np.mean([reward(r, *LATE) - reward(r, 0.375, 0.5) for r in cells[n].values()])
        val = change(*(np.array([look(r, window=w) for r in cells[n].values()]) for w in (LATE, (0.375, 0.5))))
        text.append(f"{name}, n = {n}: from the middle to the end training reward {100 * rise_:+.1f}, validation {points(val)}")
    return dict(verdict="", says="; ".join(text), figure=figure(atlas, "models_training", [training(cells, "reward", name) for name, cells in arms.items()]))


@row("size", "Figure 13", "With fewer training problems (500, not 6,000) the best n is smaller; the largest n overfits. (Section 4.2 blames overfitting "
     "on large B_p and prescribes few problems with large n for many epochs; section 5.2 larger B_p and smaller n.)")
def size(atlas):
    arms = {config_of(cells)["D"] or math.inf: cells for cells in arms_of(atlas, "size_*[0-9]").values()}  # D = 0 is all of a set
    ns = sorted(set.intersection(*(set(cells) for cells in arms.values())))
    easy = atlas.arm("easy", ns=ns)
    arms[config_of(easy)["D"] or math.inf] = easy
    arms = {D: {n: cells[n] for n in ns} for D, cells in sorted(arms.items())}
    table = table_of({(D, n): runs for D, cells in arms.items() for n, runs in cells.items()})
    small, large = min(arms), max(arms)

    def of(D):
        return "all problems" if D == math.inf else f"D = {D}"
    w = dict(zip(ns, np.log2(ns) - np.mean(np.log2(ns))))
    w = {n: x / sum(v * v for v in w.values()) for n, x in w.items()}
    slopes = {D: contrast(table, {(D, n): x for n, x in w.items()}) for D in arms}
    c = contrast(table, {**{(large, n): x for n, x in w.items()}, **{(small, n): -x for n, x in w.items()}})
    tops = {D: near({n: table[D, n] for n in ns})[0] for D in arms}
    verdict = judge(c)
    verdict = "undecided" if verdict == "agree" and tops[small] >= tops[large] else verdict
    return dict(verdict=verdict, sees=c["sees"], says="; ".join(
                    f"{of(D)}: {told({n: table[D, n] for n in ns})}, {points(slopes[D])} points for each doubling of n" for D in arms)
                + f"; {of(large)} less {of(small)}: {points(c)}", figure=figure(atlas, "size", [lines(cells, of(D)) for D, cells in arms.items()]))


MIXES = dict(mix_hard="Hard only", mix_dual="half Hard, half Easy", mix_tri="50/25/25 Hard, Easy, Very Easy")
LEVELS = dict(extreme_val="Hard", level_easy_val="Easy", level_very_easy_val="Very Easy")


def mixes(atlas):
    """{mix: {n: {seed: run}}} for the n that all three have, up to the budget that all have, and {level: the `set` of its evaluations}."""
    arms = cut({mix: atlas.arm(mix) for mix in MIXES})
    ns = sorted(set.intersection(*(set(cells) for cells in arms.values())))
    first = Path(config.files(config_of(arms["mix_hard"])["val_set"])[0]).stem
    return {mix: {n: cells[n] for n in ns} for mix, cells in arms.items()}, {name: "val" if name == first else name for name in LEVELS}


@row("mix", "Figure 14, crossover", "Whatever the mixture, the larger n is better at high C on the levels trained on, but Very Easy.")
def mixtures(atlas):
    (arms, sets), text, verdicts, draws, sees = mixes(atlas), [], [], [], []
    for mix, cells in arms.items():
        for name, of in sets.items():
            words, c = largest_less_smallest(table_of(cells, lambda r: look(r, of=of)))
            if name == "extreme_val" or (name == "level_easy_val" and mix != "mix_hard"):
                verdicts.append(judge(c)), sees.append(c["sees"])
            text.append(f"{MIXES[mix]} on {LEVELS[name]}, {words}")
            draws.append(lines(cells, f"{MIXES[mix]}\non {LEVELS[name]}", of=of))
    whole = atlas.arm("mix_hard")  # it went on
    words, c = largest_less_smallest(table_of({n: whole[n] for n in arms["mix_hard"]}))
    text.append(f"Hard only on Hard, of its whole budget, {words}")
    verdict = both(verdicts)
    if verdict == "disagree" and judge(c) == "agree":  # the common budget is too small to deny it
        verdict = "undecided"
    return dict(verdict=verdict, sees=max(sees), says="; ".join(text), figure=figure(atlas, "mixtures", draws))


@row("mix", "Figure 14, forgetting", "Hard problems alone make the model forget Easy and Very Easy ones; Easy problems in the mix prevent most of it.")
def forgetting(atlas):
    (arms, sets), text, found = mixes(atlas), [], {}
    for mix, cells in arms.items():
        for name in ("level_easy_val", "level_very_easy_val"):
            now, before = (np.mean(list(table_of(cells, lambda r: look(r, of=sets[name], window=w)).values()), 0) for w in (LATE, (-1, 0)))
            found[mix, name] = change(now, before)
            text.append(f"{MIXES[mix]} on {LEVELS[name]} {points(found[mix, name])}")
    mended = one_mix_less_another(arms, sets["level_easy_val"], "mix_dual", "mix_hard")
    alone = [found["mix_hard", name] for name in ("level_easy_val", "level_very_easy_val")]
    return dict(verdict=both([*(judge(c, -1) for c in alone), judge(mended)]), sees=max(c["sees"] for c in alone), says="change since the base model, mean "
                "over n: " + "; ".join(text) + f"; on Easy half Hard, half Easy less Hard only: {points(mended)}", figure="mixtures.png")


def one_mix_less_another(arms, of, one, other):
    """The contrast of two mixtures on a set, mean over n."""
    table = table_of({(mix, n): runs for mix, cells in arms.items() for n, runs in cells.items()}, lambda r: look(r, of=of))
    return contrast(table, {(mix, n): sign / len(arms[mix]) for mix, sign in ((one, +1), (other, -1)) for n in arms[mix]})


@row("mix", "Figure 14, Very Easy", "Very Easy problems in the mixture do not help on Hard or Easy ones.")
def very_easy(atlas):
    arms, sets = mixes(atlas)
    found = {level: one_mix_less_another(arms, sets[name], "mix_tri", "mix_dual") for name, level in LEVELS.items()}
    asked = [found[level] for level in ("Hard", "Easy")]
    return dict(verdict=both([denied(judge(c)) for c in asked]), sees=max(c["sees"] for c in asked), figure="mixtures.png",
                says=f"{MIXES['mix_tri']} less {MIXES['mix_dual']}, mean over n: " + ", ".join(f"on {level} {points(c)}" for level, c in found.items()))


for metric, claim in (("best@4", "the largest n has the best coverage (best@4)."), ("worst@4", "a moderate n has the best worst@4, not the largest.")):
    @row("extreme", f"Figure 20, {metric}", f"Trained on problems with none right in 128, {claim}")
    def extreme(atlas, metric=metric):
        cells = atlas.arm("mix_hard")
        if len(cells) < 3:
            raise Missing("three n of mix_hard")
        table = table_of(cells, lambda r: look(r, metric))
        first, *inner, last = sorted(table)
        if metric == "best@4":
            found = {f"n = {last} less n = {first}": contrast(table, {last: 1, first: -1})}
        else:
            found = {f"mean of n = {', '.join(map(str, inner))} less n = {end}": contrast(table, {end: -1} | {n: 1 / len(inner) for n in inner})
                     for end in (first, last)}
        return dict(verdict=both([judge(c) for c in found.values()]), sees=max(c["sees"] for c in found.values()),
                    says=f"{metric}: {told(table)}; " + ", ".join(f"{words}: {points(c)}" for words, c in found.items())
                    + f". By it {says_shift(shift(*windows([cells], metric=metric)))}",
                    figure=figure(atlas, "extreme", [lines(cells, "none right in 128", m) for m in ("best@4", "worst@4", "avg@4")]))


@row("extreme", "ours: none right in 128", "Trained on problems with none right in 128, n*(C) rises with C.")
def none_right(atlas):
    return rise(atlas, "mix_hard")


@row("extreme", "ours: none right in 128, the lr control", "The same claim when every n has the best of half, once and double the lr, small ones of a quarter too.")
def none_right_control(atlas):
    row_, arms = lr_control(atlas, "mix_hard"), other_lrs(atlas, "mix_hard")
    return row_ | dict(says=f"{row_['says']}. By best@4, each n at its best lr for it, {says_shift(shift(*windows(list(arms.values()), metric='best@4')))}")


@row("ood", "Figure 23", "Larger n is better on another family of problems too (AIME24; here sums and differences of five digits).")
def ood(atlas):
    cells = atlas.arm("ood")
    of = next((name for name in next(iter(cells[min(cells)].values()))["evals"] if name != "val"), "a second set")
    table = table_of(cells, lambda r: look(r, of=of))
    words, c = largest_less_smallest(table)
    base = table_of(cells, lambda r: look(r, of=of, window=(-1, 0)))[min(cells)].mean()
    return dict(verdict=judge(c), sees=c["sees"], says=f"base model {base:.3f}; at the end n = {means(table)}; {words}",
                figure=figure(atlas, "ood", [lines(cells, "in domain"), lines(cells, "five digits", of=of)]))


@row("main", "Figure 24", "The unit, rollouts or tokens, makes no difference to n*(C).")
def tokens(atlas):
    cells, ends = atlas.arm("easy"), {}
    for unit in ("rollouts", "tokens"):  # at the budgets that all n reached
        panel, verdict, _ = law_of(atlas, "easy", unit)
        if panel["surface"] is None:
            raise Missing("budgets that all n of easy share")
        ns, Y, noise = panel["surface"]["ns"], *(np.array(panel["surface"][key]) for key in ("Y", "noise"))  # (N, G), (K, N, G)
        ends[unit] = dict(verdict=verdict, tops=[ns[Y[:, j].argmax()] for j in (0, -1)],
                          sets=[[n for n, ok in zip(ns, fit_sigmoid.told_apart(Y[:, j], noise[:, :, j])) if ok] for j in (0, -1)])
    one, other = ends.values()
    same = one["verdict"] == other["verdict"] and all(x in s and y in t for x, y, s, t in zip(one["tops"], other["tops"], other["sets"], one["sets"]))
    length = [run["steps"][-1]["tokens"] / run["steps"][-1]["rollouts"] for runs in cells.values() for run in runs.values()]
    return dict(verdict="", says="n on top at the smallest and the largest shared budget: " + "; ".join(
                    f"{e['tops'][0]} and {e['tops'][1]} in {unit}" for unit, e in ends.items()) + ("; " if same else "; not ") + "the same but for noise"
                + f"; a response has {min(length):.1f} to {max(length):.1f} tokens in every run, so here the units could hardly differ")


for arm, paper, claim in (("ppo_easy", "Figure 25, left", "PPO on Easy saturates early, with little between large n."),
                          ("ppo_hard", "Figure 25, middle", "PPO on Hard: larger n is better at matched C."),
                          ("cispo_easy", "Figure 25, right", "CISPO on Easy: larger n becomes better as C grows (here with two updates a "
                           "batch; with one it is GRPO).")):
    @row("algos", paper, claim)
    def algo(atlas, arm=arm):
        cells = atlas.arm(arm)
        table, ns = table_of(cells), sorted(cells)
        if len(ns) < 3:
            raise Missing(f"three n of {arm}")
        pair = (ns[-1], ns[-2]) if arm == "ppo_easy" else (ns[-1], ns[0])
        c, move = contrast(table, {pair[0]: 1, pair[1]: -1}), shift(*windows([cells]))
        verdict = "agree" if arm == "cispo_easy" and move["verdict"] == "agree" else judge(c, 0 if arm == "ppo_easy" else +1)
        return dict(verdict=verdict, sees=c["sees"], says=f"{told(table)}; n = {pair[0]} less n = {pair[1]}: {points(c)}; {says_shift(move)}",
                    figure=figure(atlas, arm, [lines(cells, arm)]))


@row("baseline", "Figure 26", "Baseline from many rollouts, loss from few: (1) all of many > (3) decoupled = (2) few, per rollout spent.")
def baseline(atlas):
    n, runs = next(iter(atlas.arm("decoupled").items()))
    some = next(iter(runs.values()))["config"]
    few, easy = some["n_train"], atlas.arm("easy", some["B_p"], [some["n_train"], n])
    cells = {f"{n}/{n}": easy[n], f"{few}/{few}": easy[few], f"{few}/{n}": runs}
    table = table_of(cells)
    a, b = contrast(table, {f"{n}/{n}": 1, f"{few}/{n}": -1}), contrast(table, {f"{few}/{n}": 1, f"{few}/{few}": -1})

    def per_update(ax):
        for key, runs in cells.items():
            for i, run in enumerate(runs.values()):
                e, B = run["evals"]["val"], run["config"]["B_p"] * run["config"]["n"]
                ax.plot(e["C"][1:] / B, (e["counts"][1:] / e["samples"]).mean(1), color=colour(key, cells), lw=1, label=None if i else key)
        over(ax, "updates", ylabel="validation avg@4", title="per update")
        ax.legend(fontsize=7)
    return dict(verdict=both([judge(a), judge(b, 0)]), sees=max(a["sees"], b["sees"]),
                says=f"n_train/n: {means(table)}; (1) less (3) {points(a)}, (3) less (2) {points(b)}",
                figure=figure(atlas, "baseline", [lines(cells, "n_train/n, per rollout", label="{}"), per_update]))


@row("toy", "Appendix, one problem", "With one problem and a tabular policy, sequential updates are preferable to a larger n.")
def one_problem(atlas):
    return dict(verdict="", says="told with its numbers in the README, section The toy world", figure="../bandit/one.png")


# ---- ours

@row("schedule", "ours: one run, growing n", "The frontier stitches separate runs together; one run that raises n on its way reaches it, or beats it.")
def schedule(atlas):
    arms = {}
    for name, cells in arms_of(atlas, "schedule_*").items():
        arms.update({f"{n}, {config_of(cells)['n_schedule']}": runs for n, runs in cells.items()})
    fixed = atlas.arm("easy", config_of(arms)["B_p"])
    table = table_of({**{f"{n}": runs for n, runs in fixed.items()}, **arms})
    constant = [f"{n}" for n in fixed]
    both_of = {name: best_less(table, constant, name) for name in arms}
    best, found = next(iter(both_of.values()))[0], {name: c for name, (_, c) in both_of.items()}
    top = max(constant, key=lambda n: table[n].mean())
    reach = ["agree" if c["gain"] + c["half"] < DELTA else "disagree" if c["gain"] - c["half"] > 0 else "undecided" for c in found.values()]
    return dict(verdict="agree" if "agree" in reach else "disagree" if set(reach) == {"disagree"} else "undecided", sees=max(c["sees"] for c in found.values()),
                says=f"at the end, less the best constant n ({each_of(best)}, chosen on other seeds): " + "; ".join(
                    f"n = {name}: {points(c, -1)}" for name, c in found.items()) + ". Reaching it is to lie less than a point below",
                figure=figure(atlas, "schedule", [lines(fixed, "one n throughout"), lines({f"n = {top}": fixed[int(top)], **{f"n = {name}": runs for name, runs in
                                                  arms.items()}}, "n, and what it becomes at C", label="{}")], width=5))


def noise_of(atlas):
    """{arm: what pilot.py measured of its base model}, empty where it has not run."""
    path = atlas.folder / "pilot.json"
    return config.read_json(path) if path.exists() else {}


def named_n(n_c):
    """The n of the lowest price for B_p far below b; see pilot.py."""
    return 1 + math.sqrt(n_c + 2)


def settings(atlas):
    """Every sweep over n (three values or more) as dict(name, cells, n_c, group, early, late {n: (S, P)}, stats): stats are known at C/8, n_c and its
    logarithm are None where the base model's gradients do not tell it. Sweeps of one group have the base model and its problems in common."""
    noise, out = noise_of(atlas), []
    for path in sorted(p for p in atlas.folder.iterdir() if p.is_dir()):
        for B_p in sorted({b for b, _ in atlas.cells(path.name)}):
            try:
                cells = atlas.arm(path.name, B_p)
                early, late, before = (table_of(cells, lambda r, w=w: look(r, window=w)) for w in (EARLY, LATE, (-1, 0)))
            except Missing:
                continue
            cfg, base = config_of(cells), before[min(cells)].mean(0)

            def mixed(n):  # share of groups with an advantage, in the updates up to C/8
                steps = [s for r in cells[n].values() for s in r["steps"] if s["rollouts"] <= r["budget"] / 8] or [r["steps"][0] for r in cells[n].values()]
                return np.mean([1 - s["frac_all_right"] - s["frac_all_wrong"] for s in steps])
            n_c = noise.get(path.name, {}).get("n_c")
            if len(cells) >= 3 and not cfg["n_schedule"] and path.name in noise:
                known = dict(p=base.mean(), spread=base.std(), change=max(t.mean() for t in early.values()) - base.mean(),
                             mixed=mixed(min(cells)) / max(mixed(max(cells)), 0.01), n_c=n_c and math.log2(n_c))
                out.append(dict(name=f"{path.name}, B_p = {B_p}", cells=cells, n_c=n_c, group=(cfg["model"], Path(cfg["train_set"]).name),
                                early=early, late=late, stats=known))
    return out


def center(table):
    """Mean log2 n over the n that are not told from the best."""
    return float(np.mean(np.log2(near(table)[1])))


def regret(s, log2_n):
    """What the n nearest to a forecast loses at the end, on the best mean there."""
    ns = np.array(sorted(s["late"]))
    n = int(ns[np.abs(np.log2(ns) - log2_n).argmin()])
    return max(t.mean() for t in s["late"].values()) - s["late"][n].mean()


def mean_of_others(s, others):
    """A rule: log2 n at the end of the other sweeps."""
    return float(np.mean([center(o["late"]) for o in others]))


def fitted(names):
    """A rule: log2 n at the end by least squares on statistics of the other sweeps; without the statistics, the others' mean."""
    def rule(s, others):
        known = [o for o in others if None not in (o["stats"][k] for k in names)]
        if not known or None in (s["stats"][k] for k in names):
            return mean_of_others(s, others)
        X = np.array([[1.0, *(o["stats"][k] for k in names)] for o in known])
        w = np.linalg.lstsq(X, [center(o["late"]) for o in known], rcond=None)[0]
        return float(w @ [1.0, *(s["stats"][k] for k in names)])
    return rule


PLAIN = {"last observed n* (C/8)": lambda s, others: center(s["early"]),
         "constant M": lambda s, others: center(s["early"]) + math.log2(0.875 / 0.093),  # C in the middle of LATE over that of EARLY
         "mean of the other sweeps": mean_of_others}
STATISTICS = {"pass rates of the base model": fitted(["p", "spread"]), "their change up to C/8": fitted(["change"]),
              "share of mixed groups, smallest n over largest": fitted(["mixed"]), "gradient noise n_c of the base model": fitted(["n_c"]),
              "1 + sqrt(n_c + 2), nothing fitted": lambda s, others: math.log2(named_n(s["n_c"])) if s["n_c"] else mean_of_others(s, others)}


def price(n, n_c, share=0.0):
    """Rollouts that n takes for one progress, up to a factor, share = B_p / b; derived in pilot.py. Least at n = 1 + sqrt((n_c + 2) / (1 + share))."""
    return n * (1 + share) + (n_c * n + 2) / (n - 1)


def delays(C, Y, reference):
    """log2 of the rollouts that each of N curves takes to rewards that a reference takes, over those of the reference: C (E,), Y (N, E) -> (N,).

    A mean over nine rewards from what both had at their first budget to what both reached; nan where there are none.
    """
    Y, out = np.maximum.accumulate(Y, 1), np.full(len(Y), np.nan)

    def budget(y, rewards):
        rises = np.append(True, np.diff(y) > 0)
        return np.interp(rewards, y[rises], np.log2(C)[rises])
    for i, y in enumerate(Y):
        lo, hi = max(y[0], Y[reference, 0]), min(y[-1], Y[reference, -1])
        if hi > lo:
            rewards = np.linspace(lo, hi, 9)
            out[i] = (budget(y, rewards) - budget(Y[reference], rewards)).mean()
    return out


def priced(atlas):
    """Sweeps at the rule's lr with the group's mean as the baseline, those of the toy world too (without `runs`, and B_p taken to be far below b): dict(name,
    group, cells [(B_p, n)], runs, C (E,), Y (N, E) means over seeds, price (N,), noise). Sweeps of one group have base model and problems in common."""
    out = []
    for name, of in noise_of(atlas).items():
        cells = {key: {seed: run for seed, run in runs.items() if run["end"]["status"] == "budget"} for arm in (name, f"joint_{name}")
                 for key, runs in atlas.cells(arm).items()}
        cells = {key: runs for key, runs in cells.items() if len(runs) > 1}
        seeds = sorted(set.intersection(*(set(runs) for runs in cells.values()))) if cells else []
        if len(cells) < 3 or len(seeds) < 2 or name.startswith("joint_") or not of.get("n_c"):
            continue
        cfg = config_of(cells)
        if cfg["algo"] != "grpo" or cfg["n_schedule"] or name.endswith(tuple(LRS)):
            continue
        atlas.use(cells)
        curves = [[runs[seed]["evals"]["val"] for seed in seeds] for runs in cells.values()]
        C = max((e["C"] for row_ in curves for e in row_), key=len)[1:]
        C = C[C <= min(e["C"][-1] for row_ in curves for e in row_)]
        Y = np.array([np.mean([np.interp(C, e["C"], e["counts"].mean(1) / e["samples"]) for e in row_], 0) for row_ in curves])
        out.append(dict(name=name, group=f"{Path(cfg['model']).name}, {Path(cfg['train_set']).name}", cells=list(cells), runs=cells, C=C, Y=Y, noise=of,
                        price=np.array([price(n, of["n_c"], b / of["b"] if of.get("b") else 0) for b, n in cells])))
    toy = config.read_json(ROOT / "results/bandit/study.json")
    n_c = {r["words"]: r["n_c"] for r in toy["noise"] if not r["C"]}
    for name in ("no_idle", "lead", "more_idle"):
        arm = toy["arms"][name]
        Y = np.array(arm["mean"])[arm["lrs"].index(toy["config"]["lr_base"])].mean(1)  # of (N, S, E)
        name = f"toy, {arm['words'] or '--idle=29'}"
        out.append(dict(name=name, group=name, cells=[(toy["config"]["B_p"], n) for n in arm["ns"]], C=np.array(arm["C"]), Y=Y,
                        noise=dict(n_c=n_c[arm["words"]]), price=np.array([price(n, n_c[arm["words"]]) for n in arm["ns"]])))
    return out


def over_groups(sweeps, values):
    """`over_sweeps` of the means of each group."""
    groups = [s["group"] for s in sweeps]
    return over_sweeps([np.mean([v for g, v in zip(groups, values) if g == group]) for group in dict.fromkeys(groups)])


@row("early", "ours: the price of n", "The n with the lowest price, n (1 + B_p / b) + (n_c n + 2) / (n - 1) by the base model's gradient noise, takes less than "
     "1.25 times the rollouts of any other n to the same reward. (The form was found after the runs over n of `main`, before those over B_p and the models.)")
def price_of_n(atlas):
    sweeps, lines_, draws, always = priced(atlas), [], [], (2, 4, 16)  # the n that every world has
    if not any("runs" in s for s in sweeps):
        raise Missing("results/pilot.py")
    of_B_p, behind = "", {rule: [] for rule in ("price", *always)}  # log2 of what each rule's n takes over the best other
    for s in sweeps:
        ns = np.array([n for _, n in s["cells"]])
        named = {"price": int(s["price"].argmin()), **{n: int((np.abs(np.log2(ns / n)) + 0.01 * s["price"] / s["price"].max()).argmin()) for n in always}}
        logs = {rule: delays(s["C"], s["Y"], i) for rule, i in named.items()}
        if any(np.isnan(np.delete(logs[rule], i)).all() for rule, i in named.items()):
            raise Missing(f"runs of {s['name']} that gain on the base model")
        for rule, i in named.items():
            behind[rule].append(-np.nanmin(np.delete(logs[rule], i)))
        i, log = named["price"], logs["price"]
        rival = min((j for j in range(len(log)) if j != i and log[j] == log[j]), key=lambda j: log[j])
        x, y = (v[np.isfinite(log)] for v in (np.log2(s["price"] / s["price"][i]), log))
        power = x @ y / (x @ x)  # rollouts ~ price^power, by least squares through the named cell
        lo, hi = s["noise"].get("n_c_interval") or ("", "")
        lines_.append(f"| {s['name']} | {s['noise']['n_c']:.1f}" + (f" [{lo:.1f}, {hi:.1f}]" if lo else "") + f" | {named_n(s['noise']['n_c']):.1f} | "
                      f"{s['cells'][i][1]} | {2 ** -log[rival]:.2f} of n = {s['cells'][rival][1]} | {power:.2f}, within {np.abs(y - power * x).max():.1f} octaves |")

        sizes = sorted({b for b, _ in s["cells"]})
        shared = [n for n in sorted(set(ns)) if {(b, n) for b in sizes} <= set(s["cells"])]
        if len(sizes) > 1 and shared:
            said = []
            for n in shared:
                of = [s["cells"].index((b, n)) for b in sizes]
                took = 2 ** delays(s["C"], s["Y"], of[0])[of]
                said.append(f"at n = {n} {', '.join(f'{x:.2f}' for x in took)}; price {', '.join(f'{x:.2f}' for x in s['price'][of] / s['price'][of[0]])}")
            of_B_p += f"On {s['name']} (b = {s['noise']['b']:.0f}) B_p = {', '.join(map(str, sizes))} took {'; '.join(said)}. "

        def draw(ax, s=s, log=log, i=i, sizes=sizes):
            for b in sizes:
                some = [j for j, cell in enumerate(s["cells"]) if cell[0] == b]
                n = [s["cells"][j][1] for j in some]
                ax.plot(n, 2 ** log[some], "o", color=colour(b, sizes), label=f"taken, B_p = {b}")
                for power, style in ((0.5, "-"), (1, ":")):
                    ax.plot(n, (s["price"][some] / s["price"][i]) ** power, style, color=colour(b, sizes), lw=1)
            ax.plot([], [], "k-", lw=1, label="root of the price, from the base model")
            ax.plot([], [], "k:", lw=1, label="the price")
            ax.set(xscale="log", yscale="log", xlabel="n", ylabel="rollouts to the same reward", title=f"{s['name']}, n_c = {s['noise']['n_c']:.1f}")
            ns = sorted({n for _, n in s["cells"]})
            ax.set_xticks(ns, ns), ax.set_yticks([1, 2, 4, 8, 16], ["1", "2", "4", "8", "16"])
            ax.minorticks_off()
            ax.legend(fontsize=7)
        draws.append(draw)
    found, near_ = {rule: over_groups(sweeps, values) for rule, values in behind.items()}, math.log2(1.25)

    def times(c):
        return f"{2 ** c['gain']:.2f} ({2 ** (c['gain'] - c['half']):.2f} to {2 ** (c['gain'] + c['half']):.2f})"
    trained = "".join(f"After {fit_sigmoid.si(s['noise']['trained']['C'])} rollouts at n = {s['noise']['trained']['n']} on {s['name']} n_c is "
                      + ", ".join(f"{x['n_c']:.0f} [{x['n_c_interval'][0]:.0f}, {x['n_c_interval'][1]:.0f}]" for x in s["noise"]["trained"]["ends"] if x["n_c"]) + ". "
                      for s in sweeps if s["noise"].get("trained", {}).get("ends"))
    c = found["price"]
    return dict(verdict="agree" if c["gain"] + c["half"] < near_ else "disagree" if c["gain"] - c["half"] > near_ else "undecided",
                says=f"the n of a sweep with the lowest price takes {times(c)} times the rollouts of the best other n, over "
                f"{len({s['group'] for s in sweeps})} worlds. The same of one n for all: "
                + ", ".join(f"{n} {times(found[n])}" for n in always), figure=figure(atlas, "price_of_n", draws),
                more="## The price of n, sweep by sweep\n\nTo the same reward, mean over nine rewards that both n reached, the best so far counts. Sweeps of one "
                "base model and problem set count as one world.\n\n| sweep | n_c | 1 + sqrt(n_c + 2) | n of the lowest price | rollouts that it took | rollouts went "
                "with the price to the power |\n|---|---|---|---|---|---|\n" + "\n".join(lines_) + "\n\n" + of_B_p + trained)


@row("early", "ours: when to stop", "At the n that the base model names, the next doubling of C brings no more than the last.")
def when_to_stop(atlas):
    sweeps, text, less = [s for s in priced(atlas) if "runs" in s], [], []
    atlas.used = {}
    for s in sweeps:
        cell = s["cells"][int(s["price"].argmin())]
        atlas.use({cell: s["runs"][cell]})
        at = [np.mean([look(r, window=w).mean() for r in s["runs"][cell].values()]) for w in ((0.18, 0.25), (0.36, 0.5), (0.72, 1))]
        less.append(at[2] - 2 * at[1] + at[0])
        text.append(f"{s['name']}, n = {cell[1]}: {100 * (at[1] - at[0]):+.1f}, then {100 * (at[2] - at[1]):+.1f}")
    if len({s["group"] for s in sweeps}) < 3:
        raise Missing("three worlds that results/pilot.py has measured")
    c = over_groups(sweeps, less)
    return dict(verdict=denied(judge(c)), sees=c["sees"], says="points of the doublings to C/2 and to C: " + "; ".join(text)
                + f". The second less the first {points(c)}")


@row("early", "section 6, ours", "Statistics of the base model and of the first updates might tell where n* saturates (the paper leaves it open).")
def early_to_late(atlas):
    found = settings(atlas)
    groups = sorted({s["group"] for s in found})
    if len(groups) < 3:
        raise Missing("three groups of sweeps over n")

    def loss(rule, group, pool):  # mean regret on a group's sweeps, fitted on the pool's others
        return np.mean([regret(s, rule(s, [o for o in pool if o["group"] != group])) for s in pool if s["group"] == group])
    scores = {name: np.array([loss(rule, g, found) for g in groups]) for name, rule in {**PLAIN, **STATISTICS}.items()}
    chosen = []  # for each group the statistic that is best within the other groups
    for g in groups:
        inner = [s for s in found if s["group"] != g]
        name = min(STATISTICS, key=lambda name: np.mean([loss(STATISTICS[name], h, inner) for h in groups if h != g]))
        chosen.append(scores[name][groups.index(g)])
    c = over_sweeps(scores["last observed n* (C/8)"] - np.array(chosen))

    def draw(ax):
        names = sorted(scores, key=lambda name: -scores[name].mean())
        ax.barh(names, [100 * scores[name].mean() for name in names], color="0.6")
        ax.set(xlabel="regret at the end, points, mean over groups")
        ax.set_title(f"{len(found)} sweeps in {len(groups)} groups, each forecast from the others", fontsize=9)
    return dict(verdict=judge(c), sees=c["sees"],
                says=f"{len(found)} sweeps in {len(groups)} groups of one base model and problem set, each group held out; regret at the end in points: "
                + ", ".join(f"{name} {100 * x.mean():.2f}" for name, x in scores.items())
                + f". The statistic that is best within the other groups gains {points(c)} on the last observed n*",
                figure=figure(atlas, "early_to_late", [draw], width=8))


# ---------------------------------------------------------------------------------------------------------------------
# The table

COMMANDS = dict(toy="python bandit_toy.py one", difficulty="python sample.py", early="python results/pilot.py all --runs=runs/atlas")


def tell(atlas, study=""):
    """The rows (of one study) as dicts, in the order above; a row whose runs are not there says so."""
    out = []
    for name, paper, claim, function in ROWS:
        if study and name != study:
            continue
        atlas.used = {}
        try:
            found = function(atlas)
        except (Missing, BadInput) as e:
            atlas.used, found = {}, dict(verdict="not run", says=f"waits for {e}")
        runs = list(atlas.used.values())
        out.append(dict(study=name, paper=paper, claim=claim, verdict=found["verdict"] or "shown", says=found["says"], sees=found.get("sees"),
                        figure=found.get("figure"), more=found.get("more"), runs=len(runs), C=min((r["budget"] for r in runs), default=0), seeds=sorted({r["config"]["seed"] for r in runs}),
                        rollouts=sum(r["end"]["rollouts"] for r in runs), minutes=sum(r["seconds"] for r in runs) / 120))
    return out


def sentence(r):
    """What our runs say, with the smallest effect they could have shown where they decide nothing."""
    return r["says"] + (f". An effect of {100 * r['sees']:.1f} points would have shown" if r["verdict"] == "undecided" and r.get("sees") else "")


def table_text(rows, figures=""):
    lines = ["| paper | its claim | verdict | what our runs say | runs, seeds, C, rollouts, minutes | command, figure |", "|---|---|---|---|---|---|"]
    for r in rows:
        spent = f"{r['runs']}, {len(r['seeds'])}, {fit_sigmoid.si(r['C'])}, {fit_sigmoid.si(r['rollouts'])}, {r['minutes']:.0f}" if r["runs"] else ""
        shown = f", [figure]({figures}{r['figure']})" if r["figure"] else ""
        command = COMMANDS.get(r["study"], f"bash run_sweep.sh {r['study']}")
        lines.append(f"| {r['paper']} | {r['claim']} | **{r['verdict']}** | {sentence(r)} | {spent} | `{command}`{shown} |")
    return "\n".join(lines)


INTRO = """# The paper on a laptop

Every figure and table of the paper that our tools can ask about, asked of the embedded world: the command, the paper's claim in our words,
our verdict with its number. `python results/atlas.py` draws all figures again from the logs in `results/atlas` and writes this page; what our
runs say comes from the logs alone. `bash run_sweep.sh STUDY` makes the runs (one command a row; finished runs are
skipped, so studies that share runs make them once).

How to read it. Differences are in points, 100 times the reward, with 90% intervals over seeds and validation problems, of means over the last
quarter of the budget C that all runs of a row have; "early" is 1/16 to 1/8 of it. *agree*: the interval lies on the claim's side. *disagree*: it
leaves out an effect of one point or more on the claim's side; "no difference" is within 2 points. *undecided*: neither, and the effect is named that
such runs would show in four of five repetitions. *shown*: a figure without a claim to judge.

"Best n early 2, at the end 8/2/8; the second less the first" is: for each of three seeds the n that is best on the other two, and what the late choice
gains on the early one on the seed itself. "n = 2 in both costs at most" is the upper end of what any other n is better, early or late. Where the
smallest n of a grid leads throughout, a rise below it would not show, so that is undecided. Elsewhere "has most" is the highest of these runs. Of so many
intervals one in ten misses the truth. Minutes are those of our runs, one thread a run and two side by side, and of this machine.
"""

def scale_table():
    """What the embedded world has in place of the paper's, from presets.json."""
    cfg = sweep.arms("main", ["--data=data/arithmetic"])[0]
    sizes = sorted({int(b) for arm in sweep.arms("joint", ["--data=data/arithmetic"]) for b in arm["bps"].split()})
    few = sweep.arms("size", ["--data=data/arithmetic"])
    extreme = sweep.arms("extreme", ["--data=data/arithmetic"])[0]
    ns, none_right = sorted(map(int, cfg["ns"].split())), int(re.search(r"_D(\d+)_", extreme["train_set"])[1])
    return f"""
## The scale

| | paper | here |
|---|---|---|
| model | Qwen2.5-7B-Instruct and others | 2 layers, 190,000 parameters, trained on slipping texts |
| problems | Guru-Math, D = 6,000 Easy, 5,000 Hard | sums and differences of 2 to 4 digits, D = {cfg['D']} |
| B_p | 32 to 1,024 | {cfg['bps']} ({', '.join(map(str, sizes))} in `joint`) |
| n | 8 to 2,048 | {ns[0]} to {ns[-1]} |
| budget C | about 4 million | {cfg['C']:,} ({extreme['C']:,} in `extreme`) |
| C / D, rollouts a problem | about 700 | {cfg['C'] / cfg['D']:.0f} ({max(c['C'] / c['D'] for c in few):,.0f} in `size`, with D = {min(c['D'] for c in few)}, {extreme['C'] / none_right:,.0f} in `extreme`, with {none_right}) |
| lr at B = 1,024 | 1e-6 | {cfg['lr_base']:g} |
"""


def budget_table(folder):
    """Runs, rollouts and minutes of each study, from presets.json, and what the runs below a folder took; runs that studies share count once in the sum."""
    data, lines, seen = "data/arithmetic", ["| study | asks | runs | rollouts | minutes |", "|---|---|---|---|---|"], {}
    minutes = []
    for name, study in sweep.presets(data).items():
        runs = {(arm["runs"], config.run_name(c)): config.rollouts_after(config.derive(c)["M"], c) for arm in sweep.arms(name, [f"--data={data}"])
                for c in sweep.cells(arm)}
        own = sum(max(rollouts - seen.get(run, 0), 0) for run, rollouts in runs.items()) / sum(runs.values())
        minutes.append(own * study["minutes"])
        seen |= {run: max(rollouts, seen.get(run, 0)) for run, rollouts in runs.items()}
        lines.append(f"| `{name}` | {study['about']} | {len(runs)} | {fit_sigmoid.si(sum(runs.values()))} | {study['minutes']} |")
    took = [run["seconds"] for path in folder.glob("[!.]*/*/log.jsonl*") if (run := read(path))]
    hours = sum(minutes) / 60  # of the shares of each study in runs that no study before it has
    lines.append(f"| all, shared runs once | | {len(seen)} | {fit_sigmoid.si(sum(seen.values()))} | {hours:.1f} hours |")
    return "\n".join(lines) + (
        "\n\nThe plan before the first run had every study at the C of `main`, and a longer one: 272 runs, 20.8M rollouts, by the time of the first ones about\n"
        "11 hours, so too many. With the first runs of `main` in, the others went to half of it; the lr grid got three seeds where it had one. After results\n"
        "were seen: `schedule` got an n that grows with the measured noise in place of one of two with the budget; `models` a base model trained longer in\n"
        "place of one trained less, which had no Easy problems; `extreme` was continued to all of the C of `main`, since at half of it n = 16 had caught\n"
        "up, and to four times that, since n = 64 had, with the lr control and three fresh seeds, since n* rose; `joint` got n = 2, since its smallest n\n"
        "led; `epochs` took the place of the longer study, since `size` showed n* rising with 50 problems, and got three fresh seeds\n"
        f"twice, since that had been seen on the first three. Minutes are by the rate of the first runs, which most others beat: the {len(took)} runs of this page took "
        f"{sum(took) / 7200:.1f} hours.")


def tried_table(folder):
    """The exploratory runs (results/tried) behind the embedded world's values: validation avg@4 at some budgets, the seed that no report uses."""
    at = (8192, 16384, 32768, 65536, 98304)
    lines = ["| world | n | " + " | ".join(f"C = {fit_sigmoid.si(C)}" for C in at) + " | best@4 at its end |", "|---|---|" + "---|" * (len(at) + 1)]
    for path in sorted(folder.glob("*/*/log.jsonl.gz"), key=lambda p: (p.parts[-3], read(p)["config"]["n"])):
        run = read(path)
        e = run["evals"]["val"]
        values = []
        for C in at:
            near = (e["C"] > 0.85 * C) & (e["C"] <= C) if e["C"][-1] >= 0.95 * C else np.zeros(len(e["C"]), bool)
            values.append(f"{e['counts'][near].mean() / e['samples']:.3f}" if near.any() else "")
        best = frontier.right(e["counts"][-2:], "best@4", e["samples"]).mean()
        lines.append(f"| {path.parts[-3]} | {run['config']['n']} | " + " | ".join(values) + f" | {best:.3f} |")
    return "\n".join(lines)


TRIED = """
## What was tried before

Exploratory runs at seed 900, which no reported run uses, B_p = 8. `old`: the base model of before (other weak spots, no five-digit texts);
`add`: additions alone, 200 skills; `idle4`: four idle letters a column in place of two. What they decided: the lr, 5e-4 until then, at which n = 64
loses coverage (best@4) from the start and n = 4 declines, went to 2e-4; with fewer skills or more idle letters everything is mended everywhere
within a quarter of the budget and small n leads throughout, so both stayed as they were; D stayed as it was, since with fewer problems every n ends on
one plateau of overfitting. Of these no variant had a larger n in the lead at the end, and none was looked for further; `epochs` and `extreme`, made later, have.
`new` is the world of the reports.
"""


def main(argv):
    verb = argv[0] if argv and not argv[0].startswith("-") else ""
    words = argv[1:] if verb else argv
    cfg = parse(words, __doc__)
    folder = Path(cfg["runs"]) if any(word.startswith("--runs=") for word in words) else ROOT / "results/atlas"
    if not folder.is_dir():
        raise BadInput(f"--runs={folder}: no such folder")
    if verb == "keep":
        return keep(folder, Path(cfg["out"] or ROOT / "results/atlas"))
    known = dict.fromkeys(name for name, *_ in ROWS)
    if verb and verb not in known:
        raise BadInput(f"{verb}: no such study; keep, {', '.join(known)}")
    out = Path(cfg["out"] or folder)
    rows = tell(Atlas(folder, out), verb)
    for r in rows:
        print(f"{r['paper']}: {r['verdict']}\n  claim: {r['claim']}\n  {sentence(r)}\n  {r['runs']} runs, seeds {', '.join(map(str, r['seeds']))}, "
              f"{fit_sigmoid.si(r['rollouts'])} rollouts" + (f"; figure: {out / r['figure']}" if r["figure"] else ""))
    if not verb:
        own = folder == ROOT / "results/atlas" and not cfg["out"]
        count = Counter(r["verdict"] for r in rows)
        short = "In all: " + ", ".join(f"{count[v]} {v}" for v in ("agree", "disagree", "undecided", "shown", "not run") if count[v]) + ".\n"
        page = [INTRO, short, table_text(rows, "atlas/" if own else ""), *(f"\n{r['more']}" for r in rows if r["more"]), scale_table(), "## The budget\n",
                budget_table(folder), TRIED,
                tried_table(ROOT / "results/tried")]
        with aside((ROOT / "results" if own else out) / "README.md") as part:
            part.write_text("\n".join(page) + "\n")


if __name__ == "__main__":
    entry(main)
