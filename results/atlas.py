"""results/atlas.py: every figure of the paper from our own runs, its claim, and our verdict.

    python results/atlas.py                         # draws results/atlas, writes results/README.md
    python results/atlas.py mix --runs=runs/atlas   # one study, from its runs (run_sweep.sh mix)
    python results/atlas.py keep --runs=runs/atlas  # finished runs into results/atlas, logs thinned

ROWS, below, is the table: the paper's claims, and for each the function that names its runs and
contrasts them. Rewards are means over the evaluations in a window of C, by default the last quarter
of the budget. Intervals are 90%, over seeds and validation problems (noise.py). A verdict is
`agree` or `disagree` where the interval decides (noise.judge), else `undecided` with the effect
that such runs would show in four of five repetitions; `too shallow` where the cell with the fewest
updates has made fewer than DEEP and still rises. Needs config.py, frontier.py, fit_sigmoid.py,
noise.py, views.py.
"""
import contextlib
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

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import config
import fit_sigmoid
import frontier
import sweep
import views
from config import BadInput, aside, entry, parse, read_log, save_json
from frontier import si
from noise import (SMALL, Missing, best_less, both, change, contrast, denied,
                   indistinguishable, judge, over_sweeps, shift)

# what a thinned log has of a step: counters of its last, means of the rest
COUNTERS = "type step rollouts tokens wall_s".split()
AVERAGED = ("reward entropy kl grad_norm response_len frac_all_right frac_all_wrong "
            "gen_s train_s").split()
KEPT_STEPS = 64  # step records that a thinned log keeps, each the mean of its stretch
EARLY, LATE, START = (0.06, 0.125), (0.75, 1.0), (-1, 0)  # windows of a run's budget C
DEEP = 150    # updates: the paper's frontier goes to a larger n where that has made 155 to 264
RISES = 0.005  # in the last eighth of a budget, over the eighth before: the run still learns
SOON = 50     # updates: a run with fewer has not flattened, whatever its last two eighths say
DPI = 110     # of figures

SPLITS = dict(easy=(0.3, 0.6), hard=(0, 0.0625))  # the paper's, by avg@16 of the base model
# arms of all levels, the easiest first
BY_DIFFICULTY = dict(deep_very_easy="Very Easy", deep_easy="Easy", deep_hard="Hard",
                     mix_hard="none right in 128")
BEST_OF_GRID = 4e-4  # lr_base, of the grid of Figure 4, left
PAIR = 4, 64  # of Figures 11 and 27: at C = 262,144 both have made 256 updates or more
TITLES = dict(mix_hard="solved in none of 128", size_50="D = 50", deep_easy="Easy, deep",
              deep_hard="Hard, deep",
              smollm_easy="SmolLM2, Easy", smollm_hard="SmolLM2, Hard")  # of arms, in figures
LRS = "_quarter", "_half", "_double"  # ARM_half is ARM at another lr_base
MIXES = dict(mix_hard="Hard only", mix_dual="half Hard, half Easy",
             mix_tri="50/25/25 Hard, Easy, Very Easy")
LEVELS = dict(extreme_val="Hard", level_easy_val="Easy", level_very_easy_val="Very Easy")


# --------------------------------------------------------------------------------------------------
# Runs

def thin(records):
    """The records of a finished log that the figures need: KEPT_STEPS means of steps, the rest."""
    steps = [r for r in records if r.get("type") == "step"]
    out = [r for r in records if r.get("type") != "step"]
    stretches = np.array_split(np.arange(len(steps)), min(KEPT_STEPS, len(steps))) if steps else []
    for stretch in stretches:
        mean = {key: steps[stretch[-1]].get(key) for key in COUNTERS}
        for key in AVERAGED:
            values = [steps[i].get(key) for i in stretch]
            values = [x for x in values if isinstance(x, (int, float))]
            mean[key] = round(float(np.mean(values)), 5) if values else None
        mean["wall_s"] = round(mean["wall_s"], 1)
        out.append(mean)
    order = dict(header=0, end=2)
    return sorted(out, key=lambda r: (order.get(r["type"], 1), r.get("rollouts", 0)))


def keep(source, target):
    """Thinned copies of the ended runs of source/ARM/ in target/ARM/, and what lies beside them.

    A copy that goes as far already stays.
    """
    new, run = 0, None
    for path in sorted(source.glob("[!.]*/*/log.jsonl")):
        copy = target / path.parent.relative_to(source) / "log.jsonl.gz"
        reached = read_log(copy)[-1].get("rollouts", -1) if copy.exists() else -1
        found = read(path)
        if not found or not found["ended"] or found["end"]["rollouts"] <= reached:
            continue
        text = "".join(json.dumps(r, separators=(",", ":")) + "\n" for r in thin(read_log(path)))
        with aside(copy) as part:
            part.write_bytes(gzip.compress(text.encode(), 9, mtime=0))  # mtime: same log, same file
        new, run = new + 1, run or found["config"]
    if run and "train_set" in run and not (target / "difficulty.json").exists():
        keep_difficulty(run, target / "difficulty.json")
    # by name, not by run: where an arm's first runs were started by hand its sweep.json came later
    for path in source.glob("[!.]*/sweep.json"):
        if (target / path.parent.name).is_dir():
            shutil.copy(path, target / path.parent.name / "sweep.json")
    if (source / "pilot.json").exists():
        shutil.copy(source / "pilot.json", target / "pilot.json")
    size = sum(p.stat().st_size for p in target.rglob("*.gz"))
    kept = len(list(target.glob("*/*/log.jsonl.gz")))
    print(f"{target}: {new} runs added, {kept} in all, {size / 1e6:.1f} MB")


def keep_difficulty(cfg, path):
    """To `path`: how many problems had c = 0..s of the base model's first s rollouts right."""
    correct = {}  # {problem: right of its first s}
    for rates in sorted(Path(cfg["train_set"]).parent.glob("pass_rates*.jsonl")):
        correct |= {r["id"]: r["correct"] for r in read_log(rates) if r.get("samples") == cfg["s"]}
    if correct:
        counts = np.bincount(list(correct.values()), minlength=cfg["s"] + 1)
        save_json(path, dict(model=cfg["model"], s=cfg["s"], counts=counts))


@functools.cache
def read(path):
    """A run as a dict, None where its log has no header.

    config, evals {set: dict(C (E,), counts (E, P), samples)}, steps, passes, budget, end, seconds,
    path, data (a hash of its training problems), ended (it made its budget, or diverged).
    """
    records = read_log(path)
    if not records or records[0].get("type") != "header":
        return None
    of_type = {kind: [r for r in records if r["type"] == kind] for kind in ("step", "train_pass")}
    evals = {}
    for r in records:
        if r["type"] == "eval":
            one = evals.setdefault(r["set"], dict(C=[], counts=[], samples=r["samples"]))
            one["C"].append(r["rollouts"])
            one["counts"].append(r["correct"])
    for one in evals.values():
        one.update(C=np.array(one["C"]), counts=np.array(one["counts"]))
    cfg, end, steps = records[0]["config"], {"rollouts": 0, **records[-1]}, of_type["step"]
    return dict(
        path=str(path), config=cfg, evals=evals, steps=steps, passes=of_type["train_pass"], end=end,
        # a run that a larger C continued keeps its first header
        budget=max(cfg["C"], end["rollouts"]), ended=end.get("status") in ("budget", "diverged"),
        data=records[0].get("train_set_hash"), seconds=steps[-1].get("wall_s", 0) if steps else 0)


def usual(values):
    """The most frequent of some values, the first of several; None of nothing."""
    return max(values, key=values.count, default=None)


USED = {}  # what the row at work has used: {a run's path: (run, up to which budget)}


def use(cells, C=None):
    """Note that the row at work uses the runs of {key: {seed: run}}, up to a budget."""
    for runs in cells.values():
        for run in runs.values():
            before = USED.get(run["path"], (run, 0))[1]
            USED[run["path"]] = run, max(before, min(C or run["budget"], run["budget"]))


class Atlas:
    """The runs below a folder."""

    def __init__(self, folder, out):
        self.folder, self.out = Path(folder), Path(out)

    def lrs(self, name):
        """{lr_base: {(B_p, n): {seed: run}}} of an arm, smallest first; as `cells`."""
        runs = [read(path) for path in sorted((self.folder / name).glob("*/log.jsonl*"))]
        lrs = sorted({r["config"]["lr_base"] for r in runs if r and r["ended"]})
        return {lr: self.cells(name, lr) for lr in lrs}

    def cells(self, name, lr=None):
        """{(B_p, n): {seed: run}} of an arm's ended runs (at one lr_base), cut to their usual
        budget.

        Left out: runs of another config, of other problems for their seed, of a smaller budget.
        """
        runs = [read(path) for path in sorted((self.folder / name).glob("*/log.jsonl*"))]
        runs = [r for r in runs if r and r["ended"] and lr in (None, r["config"]["lr_base"])]
        experiments = [json.dumps(config.experiment(r["config"])) for r in runs]
        most = usual(experiments)
        runs = [r for r, experiment in zip(runs, experiments) if experiment == most]
        C = usual([r["budget"] for r in runs])
        runs = [r | dict(budget=C) for r in runs if r["budget"] >= C]
        out = {}
        for seed in {r["config"]["seed"] for r in runs}:
            of_seed = [r for r in runs if r["config"]["seed"] == seed]
            data = usual([r["data"] for r in of_seed])
            for r in of_seed:
                if r["data"] == data:
                    out.setdefault((r["config"]["B_p"], r["config"]["n"]), {})[seed] = r
        return {cell: dict(sorted(out[cell].items())) for cell in sorted(out)}

    def arm(self, name, B_p=None, ns=(), lr=None):
        """{n: {seed: run}} of an arm's cells with two seeds or more, at one B_p (that with most n).

        Only `ns` where given. Raises Missing.
        """
        cells = {key: runs for key, runs in self.cells(name, lr).items() if len(runs) > 1}
        B_p = B_p or usual([b for b, _ in cells])
        found = {n: runs for (b, n), runs in cells.items() if b == B_p and (not ns or n in ns)}
        if not found or set(ns) - set(found):
            these = f" with n = {', '.join(map(str, ns))}" if ns else ""
            raise Missing(f"two seeds of {name}{these}")
        return found


def cut(arms):
    """{name: {key: {seed: run}}}: the same runs, up to the budget that all of them have."""
    every = [run for cells in arms.values() for runs in cells.values() for run in runs.values()]
    C = min(run["budget"] for run in every)
    out = {}
    for name, cells in arms.items():
        out[name] = {}
        for key, runs in cells.items():
            out[name][key] = {seed: run | dict(budget=C) for seed, run in runs.items()}
    return out


def config_of(cells):
    """The config of a run of {key: {seed: run}}, the first."""
    return next(iter(next(iter(cells.values())).values()))["config"]


def one_cell(atlas, arm):
    """{seed: run} of an arm that has one n."""
    return next(iter(atlas.arm(arm).values()))


def arms_of(atlas, pattern):
    """{name: {n: {seed: run}}} of the arms with a name like `pattern`."""
    found = {p.name: atlas.arm(p.name) for p in sorted(atlas.folder.glob(pattern))}
    if not found:
        raise Missing(pattern)
    return found


# --------------------------------------------------------------------------------------------------
# What is compared, and a comparison in words

def right(evaluation, metric, at=slice(None)):
    """(E, P): the metric of each problem at the evaluations `at` of one set of a run."""
    return frontier.right(evaluation["counts"][at], metric, evaluation["samples"])


def look(run, metric="avg@4", of="val", window=LATE):
    """(P,): the metric of each problem, a mean over the evaluations in a window (lo C, hi C].

    Of a run that diverged before it, the last evaluation.
    """
    if of not in run["evals"]:
        raise Missing(f"evaluations of {of}")
    e, C = run["evals"][of], run["budget"]
    at = (e["C"] > window[0] * C) & (e["C"] <= window[1] * C * (1 + 1e-9))
    if not at.any():
        if run["end"]["status"] != "diverged":
            raise Missing(f"evaluations of {of} in that window")
        at = e["C"] == e["C"][-1]
    return right(e, metric, at).mean(0).astype(float)


def table_of(cells, value=look, **how):
    """{key: (S, P)}: value(run, **how) of the seeds and up to the budget that all cells have."""
    seeds = sorted(set.intersection(*(set(runs) for runs in cells.values())))
    if len(seeds) < 2:
        raise Missing(f"two seeds of all of {', '.join(map(str, cells))}")
    C = min(runs[seed]["budget"] for runs in cells.values() for seed in seeds)
    use({key: {seed: runs[seed] for seed in seeds} for key, runs in cells.items()}, C)
    out = {}
    for key, runs in cells.items():
        out[key] = np.array([value(runs[seed] | dict(budget=C), **how) for seed in seeds])
    return out


def gained(cells, **how):
    """What training gained: the best cell's mean at the end less the base model's."""
    end, start = table_of(cells, **how), table_of(cells, window=START, **how)
    return max(t.mean() for t in end.values()) - np.mean([t.mean() for t in start.values()])


def windows(sweeps, metric="avg@4"):
    """The arguments of `shift`, early and late: {n: [(S, P) of each sweep that has this n]}."""
    cells = {(n, i): runs for i, sweep in enumerate(sweeps) for n, runs in sweep.items()}
    return [by_n(table_of(cells, metric=metric, window=window), 0) for window in (EARLY, LATE)]


def by_n(table, position):
    """{key: (S, P)} with n at a position of the key -> {n: [(S, P) of each key with this n]}."""
    out = {n: [] for n in sorted({key[position] for key in table})}
    for key, rewards in table.items():
        out[key[position]].append(rewards)
    return out


def shift_of(cells, **how):
    """`shift` of one sweep over n, {n: {seed: run}}, from early to late."""
    return shift(*windows([cells], **how), gained(cells, **how))


def fewest_updates(used):
    """Of {path: (run, C)} the cell with the fewest updates at its budget: (M, whether it is deep,
    how much its reward rises in the last eighth of the budget over the eighth before).

    Deep: DEEP updates, or SOON and no rise above RISES. The rise is None where it is not evaluated
    so often.
    """
    updates = {path: C // (run["config"]["B_p"] * run["config"]["n"])
               for path, (run, C) in used.items() if not run["config"]["n_schedule"]}
    M, rises = min(updates.values()), []
    for path, m in updates.items():
        if m == M:
            run = used[path][0] | dict(budget=used[path][1])
            with contextlib.suppress(Missing):
                before, last = (look(run, window=w).mean() for w in ((0.75, 0.875), (0.875, 1)))
                rises.append(last - before)
    rise = np.mean(rises) if rises else None
    return M, M >= DEEP or (M >= SOON and rise is not None and rise <= RISES), rise


def near(table):
    """The n with the highest mean, and all that are indistinguishable from it: (n, [n, ...]).

    At 90%, one by one.
    """
    top = max(table, key=lambda n: table[n].mean())
    same = [top]
    for n in table:
        if n != top:
            c = contrast(table, {top: 1, n: -1})
            if c["gain"] <= c["half"]:
                same.append(n)
    return top, sorted(same)


def largest_less_smallest(table):
    """(words, contrast) of the largest n less the smallest."""
    a, b = max(table), min(table)
    c = contrast(table, {a: 1, b: -1})
    return f"n = {a} minus n = {b}: {points(c)}", c


def points(c, sign=1):
    """A contrast as text, in points: 100 times the reward."""
    return f"{sign * 100 * c['gain']:+.1f} ± {100 * c['half']:.1f}"


def means(table):
    """The mean of each cell as text."""
    return ", ".join(f"{key} {t.mean():.3f}" for key, t in table.items())


def told(table):
    """`near` in words."""
    top, same = near(table)
    others = [f"{n}" for n in same if n != top]
    text = f"n = {top} is best ({table[top].mean():.3f})"
    return f"{text}, indistinguishable from {', '.join(others)}" if others else text


def each_of(chosen):
    """What was chosen for each seed: "2" where it is the same for all, else "8/2/8"."""
    return "/".join(f"{x}" for x in (chosen[:1] if len(set(chosen)) == 1 else chosen))


def says_shift(c, names=("early", "at the end")):
    """`shift` in words."""
    first, second = names
    text = f"best n {first} {each_of(c['a'])}, {second} {each_of(c['b'])}; "
    if c["a"] != c["b"]:
        text += (f"the second choice minus the first is worth {points(c['loses'], -1)} {first}, "
                 f"{points(c['gains'])} {second}; ")
    text += f"keeping n = {c['flat']}"
    if c["censored"]:
        text += ", the smallest tried,"
    return f"{text} costs at most {100 * max(c['worst'], 0):.1f}"


def sees(contrasts):
    """The effect that each of several contrasts would have shown."""
    return max(c["sees"] for c in contrasts)


# --------------------------------------------------------------------------------------------------
# Figures. A panel is a function of an axis.

def colour(key, keys):
    """A colour for one of some keys, from dark to light in their order."""
    import matplotlib
    keys = sorted(keys)
    return matplotlib.colormaps["viridis"](0.95 * keys.index(key) / max(len(keys) - 1, 1))


def over(ax, x="C, rollouts", **labels):
    """Log axis of budgets, labelled at 1, 2 and 5 times powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
    ax.set(xscale="log", xlabel=x, **labels)
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: si(value)))
    ax.xaxis.set_minor_formatter(NullFormatter())


def curves(cells, title="", metric="avg@4", of="val", label="n = {}", among=()):
    """A panel: reward over C, the mean over seeds of each cell thick, its seeds thin.

    among: the keys of all panels, so that a key has one colour in all of them. The base model, at
    C = 0, has no place on the axis: it is a dotted line.
    """
    def draw(ax):
        base = []
        for key, runs in cells.items():
            shade, of_seeds = colour(key, among or cells), []
            for run in runs.values():
                if of not in run["evals"]:
                    raise Missing(f"evaluations of {of}")
                e = run["evals"][of]
                y = right(e, metric).mean(1)
                ax.plot(e["C"][1:], y[1:], color=shade, lw=0.7, alpha=0.5)
                of_seeds.append((e["C"][1:], y[1:]))
                base.append(y[0])
            C = np.array(sorted(set.intersection(*(set(c.tolist()) for c, _ in of_seeds))))
            mean = np.mean([y[np.isin(c, C)] for c, y in of_seeds], 0)
            ax.plot(C, mean, color=shade, lw=2, label=label.format(key))
        ax.axhline(np.mean(base), color="0.3", ls=":", lw=1.2, label="base model")
        ylabel = f"validation {metric}" if of == "val" else f"{metric}, {of}"
        over(ax, ylabel=ylabel, title=title)
        ax.legend(fontsize=9)
    return draw


def training(cells, field, title=""):
    """A panel: a field of the step records over C, a line a run."""
    def draw(ax):
        for key, runs in cells.items():
            for i, run in enumerate(runs.values()):
                C = [r["rollouts"] for r in run["steps"]]
                y = [np.nan if r.get(field) is None else r[field] for r in run["steps"]]
                ax.plot(C, y, color=colour(key, cells), lw=0.9, alpha=0.7,
                        label=None if i else f"{key}")
        over(ax, ylabel=field, title=title)
        ax.legend(fontsize=9)
    return draw


def figure(atlas, name, panels, width=4.6, sharey=False):
    """Draw panels, three (of four: two) in a row, into NAME.png in atlas.out; returns its name."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    across = 2 if len(panels) == 4 else min(3, len(panels))
    down = -(-len(panels) // across)
    fig, axes = plt.subplots(down, across, figsize=(width * across, 3.7 * down), squeeze=False,
                             sharey=sharey)
    for ax in axes.flat[len(panels):]:
        ax.axis("off")
    for ax, panel in zip(axes.flat, panels):
        panel(ax)
    fig.tight_layout()
    with aside(atlas.out / f"{name}.png") as part:
        fig.savefig(part, dpi=DPI)
    plt.close(fig)
    return f"{name}.png"


# --------------------------------------------------------------------------------------------------
# A sweep through frontier.py and fit_sigmoid.py. All that the rows take from these two is here.

@functools.cache
def analysed(folders, unit="rollouts"):
    """A sweep as views.py has it, from one folder or several with spaces between."""
    cfg = parse([f"--data={ROOT / 'data/arithmetic'}", f"--runs={folders}", f"--unit={unit}",
                 "--boot=200"])
    return views.analyse(cfg, "val")


@functools.cache
def panel_of(folder, unit="rollouts"):
    """The panel of frontier.py (one B_p, that with most runs) of a sweep."""
    sweep = analysed(str(folder), unit)
    panels = views.fixed_Bp(sweep, sweep["cfg"])["panels"]
    return max(panels.values(), key=lambda panel: len(panel["runs_used"]))


def view_figure(atlas, view, name, arms):
    """NAME.png: a view of frontier.py over the runs of several arms; returns the file's name."""
    sweep = analysed(" ".join(str(atlas.folder / arm) for arm in arms))
    content, draw, _ = views.VIEWS[view]
    front = views.front_of(sweep, view, content(sweep, sweep["cfg"]), sweep["cfg"])
    draw(front, atlas.out / f"{name}.png")
    return f"{name}.png"


def law_of(panel):
    """(verdict, words) on the law of a panel: agree with a rise, disagree with none or a fall."""
    env = panel["envelope"]
    law = fit_sigmoid.law_of_panel(panel, SMALL * (max(env["highest"]) - (panel["base"] or 0)))
    constant = law.get("constant")  # the n that would do throughout, None where that is not known
    falls = law["verdict"] == "flat" or law.get("reason", "").startswith("n* falls")
    if law["verdict"] == "law":
        verdict = "agree"
    else:
        verdict = "disagree" if constant is not None and falls else "undecided"
    turns = [f"{s['from']} to {s['to']} at {si(s['C'])}" for s in panel["switches"]]
    sets = []
    for at in (panel["near"][0], panel["near"][-1]):
        sets.append(f"{{{', '.join(map(str, at['set']))}}} at {si(at['C'])}")
    words = (f"verdict {law['verdict']}; the best n changes: {', '.join(turns) or 'never'}; "
             f"indistinguishable from the best: {', '.join(sets)}")
    if law["plateau"]["value"]:
        words += f"; plateau {law['plateau']['value']:.0f}"
    if constant is not None:
        words += (f"; n = {constant} throughout loses {100 * law['regret']:.1f} points, "
                  f"at most {100 * law['regret_upper']:.1f} (95%)")
    return verdict, words


def law_figure(atlas, task, panel):
    """Curves, frontier and n*(C) of an arm's panel; returns the file's name."""
    def top(ax):
        for c in panel["curves"]:
            shade = colour(c["n"], panel["ns"])
            ax.plot(c["C"], c["reward"], color=shade, lw=1.6, label=f"n = {c['n']}")
            ax.fill_between(c["C"], c["lo"], c["hi"], color=shade, alpha=0.07, lw=0)
        ax.plot(panel["records"]["C"], panel["records"]["reward"], "kD", ms=3, mfc="none",
                label="record-breaking points")
        over(ax, ylabel="validation avg@4", title=f"{TITLES.get(task, task)}, "
             f"B_p = {panel['B_p']}, {len(panel['runs_used'])} runs")
        ax.legend(fontsize=9, loc="center left", bbox_to_anchor=(1, 0.5))

    def low(ax):
        env, rec = panel["envelope"], panel["records"]
        for i, at in enumerate(panel["near"]):
            ax.plot([at["C"]] * len(at["set"]), at["set"], "s", color="0.7", ms=4,
                    label=None if i else "indistinguishable from the best (90%)")
        ax.step(env["C"], env["n"], where="post", color="k", lw=2, label="envelope: best n")
        ax.plot(rec["C"], 2.0 ** np.array(rec["log2_n_mean"]), "C1o", ms=4,
                label="records: running average")
        ax.set_yscale("log")
        over(ax, ylabel="n", title="n*(C)")
        ax.set_yticks(panel["ns"], panel["ns"])
        ax.minorticks_off()
        ax.legend(fontsize=9)
    return figure(atlas, f"law_{task}", [top, low], width=5)


def ends_of(panel):
    """[(best n, [n indistinguishable from it])] at both ends of the budgets that all n share."""
    if panel["surface"] is None:
        raise Missing("budgets that all n of easy share")
    # (N,), (N, G), (K, N, G)
    ns, Y, noise = (np.array(panel["surface"][key]) for key in ("ns", "Y", "noise"))
    out = []
    for j in (0, -1):
        same = ns[indistinguishable(Y[:, j], noise[:, :, j])]
        out.append((ns[Y[:, j].argmax()], same.tolist()))
    return out


# --------------------------------------------------------------------------------------------------
# The rows. Each returns dict(verdict, says[, sees, figure, more]); the runs that it used are noted
# by Atlas.

# ---- section 3: the recipe

def difficulty(atlas):
    """How hard the problems are for the base model."""
    if not (atlas.folder / "difficulty.json").exists():
        raise Missing("anything")
    bars = np.array(config.read_json(atlas.folder / "difficulty.json")["counts"])
    s = len(bars) - 1
    rate = np.arange(s + 1) / s
    share = {}
    for task, (lo, hi) in SPLITS.items():
        share[task] = 100 * bars[(rate >= lo) & (rate <= hi)].sum() / bars.sum()

    def draw(ax):
        ax.bar(rate, bars, width=0.8 / s, color="0.5")
        for (task, (lo, hi)), shade in zip(SPLITS.items(), ("C0", "C3")):
            ax.axvspan(lo - 0.5 / s, hi + 0.5 / s, alpha=0.2, color=shade, label=task.title())
        ax.set(xlabel=f"avg@{s} of the base model", ylabel="problems",
               title="difficulty of the embedded problems")
        ax.legend()
    says = (f"{bars.sum():,} problems, mean {rate @ bars / bars.sum():.2f}; "
            f"Easy {share['easy']:.0f}%, Hard {share['hard']:.0f}%")
    return dict(verdict="", says=says, figure=figure(atlas, "difficulty", [draw]))


def recipe(atlas, task, sign):
    """KL and entropy terms against none: larger (sign +1) or smaller (-1)?"""
    try:  # at coefficients that do something, each term alone too
        cells = {name: one_cell(atlas, f"terms_{task}_{name}")
                 for name in ("both", "kl", "entropy", "none")}
    except Missing:  # at the paper's
        cells = {name: one_cell(atlas, f"rec_{task}_{name}")
                 for name in ("both", "filtered", "none")}
    table = table_of(cells)
    c = contrast(table, {"both": 1, "none": -1})
    entropy = []
    for name, runs in cells.items():
        last = np.mean([run["steps"][-1]["entropy"] for run in runs.values()])
        entropy.append(f"{name} {last:.2f}")
    says = (f"{means(table)}; both minus none {points(c)}. "
            f"Token entropy at the end: {', '.join(entropy)}")
    panels = [curves(cells, task, label="{}"), training(cells, "entropy", "token entropy, nats")]
    return dict(verdict=judge(c, sign, gained(cells)), sees=c["sees"], says=says,
                figure=figure(atlas, f"recipe_{task}", panels))


def lr_grid(atlas):
    """The best lr of the middle of the grid against both ends."""
    arms = [p.name for p in atlas.folder.glob("lr_[0-9]*")]  # not the figures lr_grid.png, ...
    if len(arms) < 3:
        raise Missing("three lr_*")
    cells = {float(name[3:]): one_cell(atlas, name) for name in arms}
    some = config_of(cells)
    # the rule's own lr, where the main runs have that cell
    own = atlas.cells("easy").get((some["B_p"], some["n"]), {})
    if len(own) > 1:
        cells[config_of({0: own})["lr_base"]] = own
    cells = dict(sorted(cells.items()))
    table = table_of(cells)
    first, *middle, last = cells
    best, low = best_less(table, middle, first)
    _, high = best_less(table, middle, last)
    says = (", ".join(f"{lr:g}: {table[lr].mean():.3f}" for lr in cells)
            + f"; {each_of(best)}, chosen on other seeds, minus {first:g} {points(low)}, "
            f"minus {last:g} {points(high)}")
    panel = curves(cells, f"lr_base, B_p = {some['B_p']}, n = {some['n']}", label="{:g}")
    verdicts = [judge(c, +1, gained(cells)) for c in (low, high)]
    return dict(verdict=both(verdicts), sees=sees([low, high]), says=says,
                figure=figure(atlas, "lr_grid", [panel]))


def lr_rule(atlas):
    """lr ~ sqrt(B) against a linear and a constant lr, at a large batch."""
    try:  # through the best lr of the grid at a small batch; at B = 1,024 sqrt has lr = lr_base
        cells = {rule: one_cell(atlas, f"deep_{rule}") for rule in ("linear", "constant")}
        some = config_of(cells)
        own = atlas.arm("deep_easy", some["B_p"], [some["n"]], BEST_OF_GRID)
    except Missing:
        cells = {rule: one_cell(atlas, f"scale_{rule}") for rule in ("linear", "constant")}
        some = config_of(cells)
        own = atlas.arm("easy", some["B_p"], [some["n"]])
    cells["sqrt"] = own[some["n"]]
    table = table_of(cells)
    found = {rule: contrast(table, {"sqrt": 1, rule: -1}) for rule in ("linear", "constant")}
    less = ", ".join(f"minus {rule} {points(c)}" for rule, c in found.items())
    panel = curves(cells, f"B_p = {some['B_p']}, n = {some['n']}", label="{}")
    verdicts = [judge(c, +1, gained(cells)) for c in found.values()]
    return dict(verdict=both(verdicts), sees=sees(found.values()),
                says=f"{means(table)}; sqrt {less}", figure=figure(atlas, "lr_rule", [panel]))


# ---- section 4: allocation

def deepest(atlas, arm, ns=3):
    """The arm deep_ARM where two seeds of so many n have run there, else ARM."""
    deep = {n for (_, n), runs in atlas.cells(f"deep_{arm}").items() if len(runs) > 1}
    return f"deep_{arm}" if len(deep) >= ns else arm


def with_other_lrs(atlas, task):
    """An arm, and ARM_half, ARM_double, ... where they are there."""
    return [task + end for end in ("", *LRS) if (atlas.folder / (task + end)).is_dir()]


def by_lr(atlas, task):
    """{lr_base: {n: {seed: run}}} of an arm and of ARM_half, ARM_double, ..., the smallest first.

    Of the n with two lr_base or more, where any has.
    """
    out = {}
    for name in with_other_lrs(atlas, task):
        for lr in atlas.lrs(name):
            with contextlib.suppress(Missing):
                cells = atlas.arm(name, lr=lr)
                out.setdefault(lr, {}).update(cells)
    if not out:
        raise Missing(f"two seeds of {task}")
    times = Counter(n for cells in out.values() for n in cells)
    least = 1 + (max(times.values()) > 1)
    return {lr: {n: out[lr][n] for n in sorted(out[lr]) if times[n] >= least}
            for lr in sorted(out)}


def one_rule(arms):
    """The lr_base of {lr_base: {n: {seed: run}}} that is best for all n at the end."""
    most = max(map(len, arms.values()))
    arms = {lr: cells for lr, cells in arms.items() if len(cells) == most}
    if len(arms) == 1:  # nothing to compare
        return next(iter(arms))
    table = table_of({(lr, n): runs for lr, cells in arms.items() for n, runs in cells.items()})
    return max(arms, key=lambda lr: np.mean([table[lr, n].mean() for n in arms[lr]]))


def deep_ones(arms):
    """Of {lr_base: {n: runs}} the n that are deep enough to compare, in words the others."""
    left = []
    for n in sorted({n for cells in arms.values() for n in cells}):
        runs = {r["path"]: (r, r["budget"]) for cells in arms.values() if n in cells
                for r in cells[n].values()}
        M, deep, _ = fewest_updates(runs)
        if not deep:
            left.append((n, f"n = {n}, {M} updates, is not deep enough to be compared"))
    some = {n for n, _ in left}
    kept = {lr: {n: runs for n, runs in cells.items() if n not in some}
            for lr, cells in arms.items()}
    kept = {lr: cells for lr, cells in kept.items() if cells}
    if max(map(len, kept.values()), default=0) < 3:  # then the row says that it is too shallow
        return arms, ""
    return kept, "".join(f". {words}" for _, words in left)


def at_one_lr(atlas, arm):
    """An arm at the one lr_base that is best for all n, of the n that are deep enough:
    (lr_base, {n: {seed: run}}, {lr_base: the same at each}, words on the n left out)."""
    arms, left = deep_ones(by_lr(atlas, arm))
    lr = one_rule(arms)
    return lr, arms[lr], arms, left


def rise(atlas, task):
    """Does n*(C) of an arm rise, at the one lr_base that is best for all n? Where there are two
    seeds from 3 on, the verdict is theirs: where the claim was made on seeds 0 to 2, these cannot
    confirm it.
    """
    task = deepest(atlas, task)
    lr, cells, arms, left = at_one_lr(atlas, task)
    panel = panel_of(" ".join(str(atlas.folder / name) for name in with_other_lrs(atlas, task)))
    c = shift_of(cells)
    # runs that decline are worth less at the end than their best so far, which law_of looks at
    words = f"{says_shift(c)}. By the best so far of each run: {law_of(panel)[1]}{left}"
    words = f"At lr_base = {lr:g}, best for all n: {words}" if len(arms) > 1 else words
    fresh = {}
    for n, runs in cells.items():
        fresh[n] = {seed: run for seed, run in runs.items() if seed > 2}
    if all(len(runs) > 1 for runs in fresh.values()):
        c = shift_of(fresh)
        words = ("On seeds that were run after the claim was made (3 and up, which decide): "
                 f"{says_shift(c)}. On all seeds: {words}")
    return dict(verdict=c["verdict"], sees=c["sees"], says=words,
                figure=law_figure(atlas, task, panel))


def fewest(atlas):
    """The arm of the study of sizes that trains on the fewest problems."""
    sizes = [p.name for p in atlas.folder.glob("size_*[0-9]")]
    if not sizes:
        raise Missing("size_*")
    return min(sizes, key=lambda name: int(name[5:]))


def many_epochs(atlas):
    return rise(atlas, fewest(atlas))


def other_lrs(atlas, task):
    """`by_lr`, up to the budget that all have: {lr_base: {n: {seed: run}}}, and words on the n that
    are not deep enough."""
    arms, left = deep_ones(by_lr(atlas, task))
    if len({n for cells in arms.values() for n in cells}) < 3 or len(arms) < 3:
        raise Missing(f"three n of {task} at three lrs")
    return cut(arms), left


def lr_control(atlas, task):
    """Does n*(C) of an arm rise where every n has the best of several lrs?"""
    deep = deepest(atlas, task)
    task = deep if len(atlas.lrs(deep)) > 2 else task
    arms, left = other_lrs(atlas, task)
    lr = one_rule(arms)
    early, late = windows(list(arms.values()))
    c = shift(early, late, gained(arms[lr]))
    # the same at one lr for all n, on the seeds of that contrast: those that all lrs have
    seeds = set.intersection(*(set(runs) for cells in arms.values() for runs in cells.values()))
    own = {n: {seed: runs[seed] for seed in seeds} for n, runs in arms[lr].items()}
    best = []
    for n, tables in late.items():
        tried = [x for x in arms if n in arms[x]]
        best.append(f"n = {n}: {tried[int(np.argmax([t.mean() for t in tables]))]:g}")
    says = (f"{says_shift(c)}. At lr_base = {lr:g} for all n, on the same {len(seeds)} seeds: "
            f"{says_shift(shift_of(own))}. Best lr_base at the end, of "
            f"{', '.join(f'{x:g}' for x in arms)} (the best may lie beyond either end): "
            f"{', '.join(best)}{left}")
    return dict(verdict=c["verdict"], sees=c["sees"], says=says, figure=view_figure(
        atlas, "lr", f"lr_control_{task}", with_other_lrs(atlas, task)))


def by_difficulty(atlas):
    """Ours: what the large n gains late on the small one, for the levels of difficulty."""
    small, large = PAIR
    found, says = {}, []
    for arm, name in BY_DIFFICULTY.items():
        _, cells, _, _ = at_one_lr(atlas, arm)
        if set(PAIR) <= set(cells):
            cells = {n: cells[n] for n in PAIR}
            base = np.mean([t.mean() for t in table_of(cells, window=START).values()])
            each = {metric: contrast(table_of(cells, metric=metric), {large: 1, small: -1})
                    for metric in ("avg@4", "best@4", "worst@4")}
            found[name] = base, each
            said = ", ".join(f"{metric} {points(c)}" for metric, c in each.items())
            says.append(f"{name} (base model {base:.2f}): {said}")
    if len(found) < 3:
        raise Missing("three levels of difficulty at depth")
    easiest, hardest = (pick(found.values(), key=lambda f: f[0]) for pick in (max, min))
    a, b = (f[1]["avg@4"] for f in (hardest, easiest))  # other problems, so independent
    gap = dict(gain=a["gain"] - b["gain"], half=math.hypot(a["half"], b["half"]))

    def draw(ax):
        for i, metric in enumerate(("avg@4", "best@4", "worst@4")):
            x = [base + 0.006 * (i - 1) for base, _ in found.values()]
            each = [c[metric] for _, c in found.values()]
            ax.errorbar(x, [100 * c["gain"] for c in each], [100 * c["half"] for c in each],
                        fmt="o-", ms=6, lw=1.2, capsize=3, label=metric)
        for name, (base, _) in found.items():
            ax.annotate(name, (base, 1.01), xycoords=("data", "axes fraction"), rotation=25,
                        fontsize=9, ha="left", va="bottom")
        ax.axhline(0, color="0.3", lw=0.8)
        ax.set(xlabel="pass rate of the base model on the validation problems",
               ylabel=f"points, n = {large} less n = {small}, late")
        ax.legend(fontsize=9)
    return dict(verdict=judge(gap), sees=max(a["sees"], b["sees"]), says=(
        f"n = {large} less n = {small} over the last quarter: {'; '.join(says)}. Hardest less "
        f"easiest {points(gap)}"), figure=figure(atlas, "by_difficulty", [draw], width=8))


def order_of_crossings(atlas):
    """Ours: where a larger n takes over, for several D: at one C, or at one C / D?"""
    arms, sizes = sizes_of(atlas)
    if "deep_easy" not in sizes.values():
        raise Missing("three D at depth")
    found, says = {}, []
    for D in sorted(sizes):
        use(arms[D])
        panel = panel_of(atlas.folder / sizes[D])
        for s in panel["crossings"]:
            pair = s["from"], s["to"]
            if pair in ((4, 16), (16, 64), (4, 64)) and D not in found.get(pair, {}):
                found.setdefault(pair, {})[D] = s
    for (a, b), at in sorted(found.items()):
        said = ", ".join(f"D = {D} at {si(s['C'])}, C / D = {s['C'] / D:.0f}"
                         for D, s in at.items())
        never = [f"{D}" for D in sorted(sizes) if D not in at]
        never = f"; not for D = {', '.join(never)}" if never else ""
        if len(at) > 2:
            x, y = np.log(list(at)), np.log([s["C"] for s in at.values()])
            never += f"; slope of log C over log D {np.polyfit(x, y, 1)[0]:.2f}"
        says.append(f"n = {a} to {b}: {said}{never}")

    def draw(ax):
        for (a, b), at in sorted(found.items()):
            y = np.array([[s["C"], s["lo"] or s["C"], s["hi"] or s["C"]] for s in at.values()])
            ax.errorbar(list(at), y[:, 0], [y[:, 0] - y[:, 1], y[:, 2] - y[:, 0]], fmt="o-",
                        capsize=3, label=f"n = {a} to {b}")
        over(ax, "D, training problems", ylabel="C where the larger n takes over", yscale="log",
             title="0: ordered by C; slope 1: by C / D")
        ax.legend(fontsize=9)
    return dict(verdict="", says="; ".join(says) or "no n takes over from a smaller one",
                figure=figure(atlas, "crossings", [draw], width=6))


def reached(c, g):
    """Does a run reach the frontier? c: the frontier less the run; g: what training gained."""
    if c["gain"] + c["half"] < SMALL * g:  # it loses less than that
        return "agree"
    return "disagree" if c["gain"] - c["half"] > 0 else "undecided"


def growing(atlas, task):
    """Ours: one run that raises n, against the best constant n at every budget, at its best lr."""
    rule, _, arms, _ = at_one_lr(atlas, task)
    constant = {(n, lr): runs for lr, cells in arms.items() for n, runs in cells.items()}
    grown = {}
    names = [p.name for p in atlas.folder.glob(f"grow_{task}*") if p.is_dir()]  # not the figure
    for name in sorted(names):
        for lr, cells in by_lr(atlas, name).items():
            for n, runs in cells.items():
                grown[f"{n}, {config_of(cells)['n_schedule']}, lr_base {lr:g}"] = runs
    if not grown:
        raise Missing(f"grow_{task}")
    seeds = set.intersection(*map(set, grown.values()))  # crossings were found on other seeds
    constant = {key: runs for key, runs in constant.items() if len(seeds & set(runs)) > 1}
    says, verdicts, found, g = [], [], [], gained(constant)
    for name, runs in grown.items():
        said, C = [], min(run["budget"] for run in runs.values())
        for low in (1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4):
            window = low, min(2 * low, 1)
            table = table_of(constant | {name: runs}, window=window)
            best, c = best_less(table, list(constant), name)
            found.append(c)
            verdicts.append(reached(c, g))
            said.append(f"{si(C * window[0])} to {si(C * window[1])} {points(c, -1)}")
        says.append(f"n = {name}, less the best constant (n, lr): {', '.join(said)}")
    shown = {f"n = {n}, lr_base {lr:g}": runs for (n, lr), runs in constant.items()
             if lr == rule}
    panels = [curves(shown | {f"n = {name}": runs for name, runs in grown.items()}, task, m,
                     label="{}") for m in ("avg@4", "best@4")]
    return dict(verdict=both(verdicts), sees=sees(found), says="; ".join(says),
                figure=figure(atlas, f"grow_{task}", panels, width=6))


def real_curves(atlas):
    """Ours: learning curves of a real model, one seed or more. Intervals are over problems alone:
    they cover neither the seed nor the order of the problems."""
    says, panels = [], []
    for task in ("hard", "easy"):
        grid = atlas.cells(f"smollm_{task}")
        seeds = set.intersection(*map(set, grid.values())) if len(grid) > 1 else set()
        if not seeds:
            continue
        cells = {n: {seed: runs[seed] for seed in seeds} for (_, n), runs in grid.items()}
        use(cells)
        some, said = config_of(cells), []

        def mean(n, window, metric="avg@4"):  # (P,)
            return np.mean([look(run, metric, window=window) for run in cells[n].values()], 0)
        for window in ((1 / 16, 1 / 8), (1 / 8, 1 / 4), (1 / 4, 1 / 2), (1 / 2, 1)):
            each = ", ".join(f"n = {n} {mean(n, window).mean():.3f}" for n in cells)
            said.append(f"to {si(window[1] * some['C'])} {each}")
        a, b = max(cells), min(cells)
        for metric in ("avg@4", "best@4", "worst@4"):
            gap = mean(a, LATE, metric) - mean(b, LATE, metric)
            c = dict(gain=gap.mean(), half=1.645 * gap.std(ddof=1) / math.sqrt(len(gap)))
            said.append(f"{metric}, n = {a} less n = {b}, last quarter: {points(c)}")
        base = mean(b, START).mean()
        says.append(f"{task.title()} (base model {base:.3f}), B_p = {some['B_p']}, lr_base = "
                    f"{some['lr_base']:g}, {len(seeds)} seed{'s' * (len(seeds) > 1)}, avg@4 "
                    f"{'; '.join(said)}")
        panels += [curves(cells, f"SmolLM2, {task.title()}", m) for m in ("avg@4", "best@4")]
    if not says:
        raise Missing("two n of smollm_hard")
    return dict(verdict="", says=". ".join(says),
                figure=figure(atlas, "smollm_curves", panels, width=5.5))


def real_lr(atlas):
    """Ours: how a real model depends on lr_base, one seed: a short grid, half and double."""
    says = []
    for pattern, told_as in (("smollm_lr_*", "a short grid"), ("smollm_hard*", "on seed 0")):
        found = {}
        for path in sorted(atlas.folder.glob(pattern)):
            for cell, runs in atlas.cells(path.name).items():
                if 0 in runs:
                    found.setdefault(cell, {})[runs[0]["config"]["lr_base"]] = runs[0]
        for (B_p, n), runs in sorted(found.items()):
            if len(runs) < 2:
                continue
            C = min(run["budget"] for run in runs.values())
            use({n: runs}, C)
            ends = ", ".join(f"{lr:g} {look(runs[lr] | dict(budget=C)).mean():.3f}"
                             for lr in sorted(runs))
            says.append(f"{told_as}, B_p = {B_p}, n = {n}, C = {si(C)}: {ends}")
    if not says:
        raise Missing("smollm_lr_*")
    return dict(verdict="", says=f"avg@4 at the end by lr_base; {'; '.join(says)}")


def epochs_control(atlas):
    return lr_control(atlas, fewest(atlas))


def lr_of_a_short_run(atlas):
    """What the lr that leads at C/8 loses at the end on the lr that is best there."""
    lost = []
    for task in ("easy", "hard"):
        early, late = windows(list(other_lrs(atlas, task)[0].values()))
        for n in early:
            ends = [t.mean() for t in late[n]]
            # chosen on each seed's own evaluations, as one short run each would; the best at the
            # end is that of all seeds
            got = []
            for seed in range(len(early[n][0])):
                got.append(ends[int(np.argmax([t[seed].mean() for t in early[n]]))])
            lost.append(f"{task}, n = {n}: {100 * max(max(ends) - np.mean(got), 0):.1f}")
    return dict(verdict="", says="points that it loses at the end to the lr that is best there, "
                f"each chosen on one seed: {'; '.join(lost)}")


def records(atlas):
    """What the paper's record-breaking points add to the frontier."""
    task = deepest(atlas, "easy")
    use(atlas.arm(task))
    above = panel_of(atlas.folder / task)["records"]["above"]
    if above is None:
        raise Missing("record-breaking points")
    says = (f"curves through record-breaking points lie {100 * above:+.1f} points from the "
            "frontier scored on other seeds (mean over log C; in simulations with known truth "
            "+1.1)")
    return dict(verdict="", says=says, figure=f"law_{task}.png")


def tokens(atlas):
    """n*(C) in rollouts and in tokens, at the ends of the budgets that all n reached."""
    cells, verdicts, ends = atlas.arm("easy"), {}, {}
    use(cells)
    for unit in ("rollouts", "tokens"):
        panel = panel_of(atlas.folder / "easy", unit)
        verdicts[unit], ends[unit] = law_of(panel)[0], ends_of(panel)
    same = verdicts["rollouts"] == verdicts["tokens"]
    for (top, near_top), (other, near_other) in zip(ends["rollouts"], ends["tokens"]):
        same = same and top in near_other and other in near_top
    said = [f"{low[0]} and {high[0]} in {unit}" for unit, (low, high) in ends.items()]
    length = []
    for runs in cells.values():
        for run in runs.values():
            length.append(run["steps"][-1]["tokens"] / run["steps"][-1]["rollouts"])
    says = (f"best n at the smallest and the largest shared budget: {'; '.join(said)}; "
            f"{'indistinguishable' if same else 'different'}. A response has {min(length):.1f} to "
            f"{max(length):.1f} tokens in every run, so here the units could hardly differ")

    def in_unit(unit):
        def draw(ax):
            env = panel_of(atlas.folder / "easy", unit)["envelope"]
            ax.step(env["C"], env["n"], where="post", color="k", lw=2)
            over(ax, f"C, {unit}", ylabel="n*(C)", title=f"C in {unit}", yscale="log")
            ax.set_yticks(sorted(cells), sorted(cells))
            ax.minorticks_off()
        return draw
    panels = [in_unit(unit) for unit in ends]
    return dict(verdict="", says=says, figure=figure(atlas, "units", panels, sharey=True))


def metrics(atlas, task, first, second):
    """Figure 8: does the second metric want a larger n than the first?"""
    task = deepest(atlas, task)
    _, cells, _, _ = at_one_lr(atlas, task)
    tables = {metric: table_of(cells, metric=metric) for metric in (first, second)}
    c = shift(*({n: [t] for n, t in table.items()} for table in tables.values()), gained(cells))
    says = says_shift(c, (f"by {first}", f"by {second}"))
    for metric, table in tables.items():
        says += f"; {metric}: {told(table)}"
    panels = [curves(cells, task, metric) for metric in tables]
    return dict(verdict=c["verdict"], sees=c["sees"], says=says,
                figure=figure(atlas, f"metrics_{task}", panels))


def joint_arms(atlas, task):
    """An arm and joint_ARM, which has its other B_p: the deep ones where these have run."""
    found = [runs for runs in atlas.cells(f"joint_deep_{task}").values() if len(runs) > 1]
    arm = f"deep_{task}" if len(found) > 2 else task
    return arm, f"joint_{arm}"


def grid_of(atlas, task):
    """{(B_p, n): {seed: run}} of `joint_arms`, at the one lr_base of the second.

    Of the n that two B_p have or more, in order of n, up to the budget that all have.
    """
    arm, other = joint_arms(atlas, task)
    cells = atlas.cells(other)
    lr = config_of(cells)["lr_base"] if cells else None
    cells = {key: runs for key, runs in (atlas.cells(arm, lr) | cells).items() if len(runs) > 1}
    if len({b for b, _ in cells}) < 2:
        raise Missing(f"{arm} at a second B_p")
    times = Counter(n for _, n in cells)
    shared = {}
    for b, n in sorted(cells, key=lambda cell: (cell[1], cell[0])):
        if times[n] > 1:
            shared[b, n] = cells[b, n]
    return cut({arm: shared})[arm]


def grouped(grid, key):
    """{(B_p, n): runs} -> {key(B_p, n): {n: runs}}, in the order of the keys."""
    out = {}
    for (b, n), runs in grid.items():
        out.setdefault(key(b, n), {})[n] = runs
    return dict(sorted(out.items()))


def sensitivity(atlas, task):
    """Figure 10: points for each doubling of n and of B_p, a plane in both fitted to all cells."""
    cells = grid_of(atlas, task)
    table = table_of(cells)
    X = np.array([[1, math.log2(b), math.log2(n)] for b, n in table])
    _, to_B_p, to_n = np.linalg.pinv(X)  # least squares: each slope as weights of the cells

    def weighted(weights):
        return contrast(table, dict(zip(table, weights)))
    of_n, of_B_p = weighted(to_n), weighted(to_B_p)
    # the size of a slope is the slope times its sign
    gap = weighted(np.sign(of_n["gain"]) * to_n - np.sign(of_B_p["gain"]) * to_B_p)
    g = gained(cells)
    if task == "easy":  # n has the larger effect, and it helps
        verdict = both([judge(gap, +1, g), judge(of_n, +1, g)])
    elif abs(gap["gain"]) + gap["half"] < SMALL * g:  # the effects are alike, and n helps
        verdict = judge(of_n, +1, g)
    else:
        verdict = "disagree" if abs(gap["gain"]) > gap["half"] else "undecided"
    at_n = []
    for n in sorted({n for _, n in table}):
        first, *_, last = sorted(b for b, m in table if m == n)
        c = contrast(table, {(last, n): 1, (first, n): -1})
        at_n.append(f"at n = {n} B_p = {last} minus {first} {points(c)}")
    by_B_p = grouped(cells, lambda b, n: b)
    says = ("in the paper both help; here "
            f"points for each doubling: of n {points(of_n)}, of B_p {points(of_B_p)}; size of the "
            f"first minus that of the second {points(gap)} ({len(cells)} cells, "
            f"B_p = {', '.join(map(str, by_B_p))}); {', '.join(at_n)}")
    return dict(verdict=verdict, sees=gap["sees"], says=says, figure=view_figure(
        atlas, "sensitivity", f"sensitivity_{task}", joint_arms(atlas, task)))


def each_B_p(atlas, task):
    """Figures 16 and 17: does n*(C) rise at every B_p?"""
    found, panels, grid = {}, [], grid_of(atlas, task)
    for b, cells in grouped(grid, lambda b, n: b).items():
        panels.append(curves(cells, f"{task}, B_p = {b}", among={n for _, n in grid}))
        if len(cells) > 2:
            found[b] = shift_of(cells)
    if not found:
        raise Missing("three n at one B_p")
    return dict(verdict=both([c["verdict"] for c in found.values()]), sees=sees(found.values()),
                says="; ".join(f"B_p = {b}: {says_shift(c)}" for b, c in found.items()),
                figure=figure(atlas, f"B_p_{task}", panels))


def fixed_B(atlas, task):
    """Figures 9, 18 and 19: does n* rise at a fixed batch B = B_p n?"""
    found, says = [], []
    for B, cells in grouped(grid_of(atlas, task), lambda b, n: b * n).items():
        if len(cells) > 2:
            found.append(shift_of(cells))
            says.append(f"B = {B}: {says_shift(found[-1])}; at the end {told(table_of(cells))}")
    if not found:
        raise Missing("three n at one B_p n")
    return dict(verdict=both([c["verdict"] for c in found]), sees=sees(found),
                says="; ".join(says), figure=view_figure(
                    atlas, "fixed_B", f"fixed_B_{task}", joint_arms(atlas, task)))


def stable_B_p(atlas):
    """The smallest B_p of which at most one run in ten diverges or declines, by difficulty."""
    found = {}
    for task in ("easy", "hard"):
        use(grid_of(atlas, task))
        names = " ".join(str(atlas.folder / name) for name in joint_arms(atlas, task))
        sweep = analysed(names)
        found[task] = views.stability(sweep["cells"])
    said = []
    for task, by_B_p in found.items():
        each = ", ".join(f"B_p = {b} {bad} of {runs}" for b, (bad, runs) in by_B_p.items())
        said.append(f"{task.title()}: {each}; smallest stable "
                    f"{views.smallest_stable(by_B_p) or 'none'}")
    first, second = (views.smallest_stable(found[task]) for task in ("easy", "hard"))
    verdict = "undecided"
    if first and second:
        verdict = "agree" if second > first else "disagree" if second < first else "undecided"
    return dict(verdict=verdict, says="runs that diverged or declined. " + ". ".join(said))


def joint(atlas, task):
    """Figures 21 and 22: does the n of the best (B_p, n) rise?"""
    cells = grid_of(atlas, task)
    early, late = (table_of(cells, window=window) for window in (EARLY, LATE))
    c = shift(by_n(early, 1), by_n(late, 1), gained(cells))
    on_top = []
    for table, when in ((early, "early"), (late, "at the end")):
        b, n = max(table, key=lambda cell: table[cell].mean())
        on_top.append(f"({b}, {n}) {when}, B = {b * n}")
    return dict(verdict=c["verdict"], sees=c["sees"], figure=view_figure(
        atlas, "joint", f"joint_{task}", joint_arms(atlas, task)),
                says=f"{says_shift(c)}; best (B_p, n): {', '.join(on_top)}")


# ---- section 5: base model and problems

def pass_rates(run, at):
    """Pass rates (D,) of a run's training problems nearest to budget `at`, and of how many rollouts
    each.

    From fresh rollouts, since those of training are of the policy before its update.
    """
    fresh = [r for r in run["passes"] if r.get("fresh")]
    if len(fresh) < 2:
        raise Missing("pass rates of training problems (--pass_at)")
    r = min(fresh, key=lambda r: abs(r["rollouts"] - at))
    return np.array(r["correct"]) / np.array(r["samples"]), r["samples"][0]


def interference(atlas, task):
    """Figures 11 and 27: training problems unsolved, mastered or unlearnt at two n."""
    task = deepest(atlas, task)
    (_, cells, _, _), (small, large) = at_one_lr(atlas, task), PAIR
    if not set(PAIR) <= set(cells):  # where the lr were varied at other n
        cells = atlas.arm(task, ns=PAIR)
    cells = {n: cells[n] for n in PAIR}
    C = min(run["budget"] for runs in cells.values() for run in runs.values())
    s = pass_rates(next(iter(cells[small].values())), C)[1]

    def share(true):  # {n: (S, D)} of what is true of the pass rates at the start and at the end
        return table_of(cells, lambda run: true(pass_rates(run, 0)[0], pass_rates(run, C)[0]) * 1.0)
    found, verdicts = [], []
    for true in (lambda p: p == 0, lambda p: p > 1 - 1.5 / s):
        end = share(lambda start, end: true(end))
        start = share(lambda start, end: true(start))
        found.append(contrast(end, {small: 1, large: -1}))
        moved = max(abs(end[n].mean() - start[n].mean()) for n in end)
        verdicts.append(judge(found[-1], +1, moved))
    none, nearly = found
    fell = share(lambda start, end: end < start - 0.25)
    # how many would fall by chance, at unchanged pass rates; these are drawn too, so this is a
    # little less than the truth
    start = np.concatenate([pass_rates(run, 0)[0] for run in cells[small].values()])
    again = np.random.default_rng(0).binomial(s, start, (200, len(start))) / s
    chance = np.mean(again < start - 0.25)

    def histogram(n):
        def draw(ax):
            first = next(iter(cells[n].values()))
            for at in sorted({r["rollouts"] for r in first["passes"] if r.get("fresh")}):
                p = np.concatenate([pass_rates(run, at)[0] for run in cells[n].values()])
                ax.hist(p, (np.arange(s + 2) - 0.5) / s, histtype="step", density=True,
                        label=f"C = {si(at)}")
            ax.set(xlabel=f"pass rate of a training problem ({s} fresh rollouts)",
                   ylabel="density", title=f"{task}, n = {n}")
            ax.legend(fontsize=9)
        return draw
    says = (f"n = {small} minus n = {large} at C = {si(C)}, in % of the training problems: "
            f"solved in none of {s} rollouts {points(none)}, in {s - 1} or more {points(nearly)}. "
            "Pass rate down by more than a quarter since the start: "
            f"{100 * fell[small].mean():.1f} and {100 * fell[large].mean():.1f} "
            f"(by chance alone {100 * chance:.1f})")
    return dict(verdict=both(verdicts), sees=none["sees"], says=says,
                figure=figure(atlas, f"pass1_{task}", [histogram(n) for n in cells]))


def models_of(atlas):
    """{arm: {n: {seed: run}}} of the other base models, each as deep as it has run."""
    names = {deepest(atlas, p.name.removeprefix("deep_")) for pattern in ("model_*", "deep_model_*")
             for p in atlas.folder.glob(pattern)}
    if not names:
        raise Missing("model_*")
    return {name: atlas.arm(name) for name in sorted(names)}


def models(atlas):
    """Figure 12: the largest n against the smallest, for other base models."""
    found, verdicts, says, panels = [], [], [], []
    for name, cells in models_of(atlas).items():
        table = table_of(cells)
        words, c = largest_less_smallest(table)
        found.append(c)
        verdicts.append(judge(c, +1, gained(cells)))
        says.append(f"{name}: {words}, {told(table)}, {says_shift(shift_of(cells))}")
        panels.append(curves(cells, name))
    return dict(verdict=both(verdicts), sees=sees(found), says="; ".join(says),
                figure=figure(atlas, "models", panels))


def models_training(atlas):
    """Figure 12: training and validation reward of the largest n, from the middle to the end."""
    middle, says, panels = (0.375, 0.5), [], []

    def reward(run, window):
        lo, hi = window[0] * run["budget"], window[1] * run["budget"]
        return np.mean([r["reward"] for r in run["steps"] if lo < r["rollouts"] <= hi])
    for name, cells in models_of(atlas).items():
        n = max(cells)
        use({n: cells[n]})
        runs = cells[n].values()
        gained = np.mean([reward(run, LATE) - reward(run, middle) for run in runs])
        val = change(*(np.array([look(run, window=w) for run in runs]) for w in (LATE, middle)))
        says.append(f"{name}, n = {n}: from the middle to the end training reward "
                    f"{100 * gained:+.1f}, validation {points(val)}")
        panels.append(training(cells, "reward", name))
    return dict(verdict="", says="; ".join(says), figure=figure(atlas, "models_training", panels))


def sizes_of(atlas):
    """({D: {n: {seed: run}}}, {D: its arm}) of deep_50, deep_100, ... and deep_easy; before all of
    these have run, of size_50, ... and easy."""
    for pattern, usual_size in (("deep_[0-9]*", "deep_easy"), ("size_*[0-9]", "easy")):
        with contextlib.suppress(Missing):
            found = arms_of(atlas, pattern)
            lr = config_of(next(iter(found.values())))["lr_base"]
            found[usual_size] = atlas.arm(usual_size, lr=lr)
            if len(found) > 2:
                named = {config_of(cells)["D"] or math.inf: name for name, cells in found.items()}
                return {D: found[name] for D, name in named.items()}, named
    raise Missing("three sizes")


def size(atlas):
    """Figure 13: points for each doubling of n with many training problems, less that with few."""
    arms, _ = sizes_of(atlas)
    ns = sorted(set.intersection(*(set(cells) for cells in arms.values())))
    arms = {D: {n: arms[D][n] for n in ns} for D in sorted(arms)}
    table = table_of({(D, n): runs for D, cells in arms.items() for n, runs in cells.items()})

    # least squares of a line in log2 n, as weights of the n
    x = np.log2(ns) - np.mean(np.log2(ns))
    slope = dict(zip(ns, x / sum(x * x)))

    def of(D):
        return "all problems" if D == math.inf else f"D = {D}"
    tops, says = {}, []
    for D in arms:
        own = {n: table[D, n] for n in ns}
        tops[D] = near(own)[0]
        c = contrast(table, {(D, n): w for n, w in slope.items()})
        says.append(f"{of(D)}: {told(own)}, {points(c)} points for each doubling of n")
    few, many = min(arms), max(arms)
    c = contrast(table, {(many, n): w for n, w in slope.items()}
                 | {(few, n): -w for n, w in slope.items()})
    says.append(f"{of(many)} minus {of(few)}: {points(c)}")
    verdict = judge(c, +1, gained(arms[many]))
    if verdict == "agree" and tops[few] >= tops[many]:  # steeper, but the best n does not move
        verdict = "undecided"
    panels = [curves(cells, of(D)) for D, cells in arms.items()]
    return dict(verdict=verdict, sees=c["sees"], says="; ".join(says),
                figure=figure(atlas, "size", panels))


def mixes(atlas):
    """{mix: {n: {seed: run}}} and {level: the `set` of its evaluations} of the study of mixtures.

    Of the n that all mixtures have, up to the budget that all have.
    """
    arms = cut({mix: atlas.arm(mix) for mix in MIXES})
    ns = sorted(set.intersection(*(set(cells) for cells in arms.values())))
    arms = {mix: {n: cells[n] for n in ns} for mix, cells in arms.items()}
    # the first validation file of a run is its set "val", the others have their own names
    first = Path(config.files(config_of(arms["mix_hard"])["val_set"])[0]).stem
    return arms, {name: "val" if name == first else name for name in LEVELS}


def mixtures(atlas):
    """Figure 14: the largest n against the smallest, for every mixture on every level."""
    arms, sets = mixes(atlas)
    says, asked, verdicts, panels = [], [], [], []
    for mix, cells in arms.items():
        for name, of in sets.items():
            words, c = largest_less_smallest(table_of(cells, of=of))
            says.append(f"{MIXES[mix]} on {LEVELS[name]}, {words}")
            panels.append(curves(cells, f"{MIXES[mix]}\non {LEVELS[name]}", of=of))
            # the claim is of the levels that the mixture holds, but Very Easy
            if name == "extreme_val" or (name == "level_easy_val" and mix != "mix_hard"):
                asked.append(c)
                verdicts.append(judge(c, +1, gained(cells, of=of)))
    whole = atlas.arm("mix_hard")  # it went on
    words, c = largest_less_smallest(table_of({n: whole[n] for n in arms["mix_hard"]}))
    says.append(f"Hard only on Hard, of its whole budget, {words}")
    verdict = both(verdicts)
    if verdict == "disagree" and judge(c) == "agree":  # the common budget is too small to deny it
        verdict = "undecided"
    return dict(verdict=verdict, sees=sees(asked), says="; ".join(says),
                figure=figure(atlas, "mixtures", panels))


def one_mix_less_another(arms, of, one, other):
    """The contrast of two mixtures on a set, mean over n."""
    cells, weights = {}, {}
    for mix in arms:
        cells |= {(mix, n): runs for n, runs in arms[mix].items()}
    for mix, sign in ((one, +1), (other, -1)):
        weights |= {(mix, n): sign / len(arms[mix]) for n in arms[mix]}
    return contrast(table_of(cells, of=of), weights)


def forgetting(atlas):
    """Figure 14: the change of each mixture on Easy and Very Easy since the base model."""
    arms, sets = mixes(atlas)
    says, found = [], {}
    for mix, cells in arms.items():
        for name in ("level_easy_val", "level_very_easy_val"):
            tables = [table_of(cells, of=sets[name], window=w) for w in (LATE, START)]
            c = change(*(np.mean(list(table.values()), 0) for table in tables))  # mean over n
            found[mix, name] = c
            each = ", ".join(f"n = {n} {points(change(tables[0][n], tables[1][n]))}" for n in cells)
            says.append(f"{MIXES[mix]} on {LEVELS[name]} {points(c)} ({each})")
    later = []  # Hard alone went on
    whole = {n: atlas.arm("mix_hard")[n] for n in arms["mix_hard"]}
    for name in ("level_easy_val", "level_very_easy_val"):
        tables = [table_of(whole, of=sets[name], window=w) for w in (LATE, START)]
        c = change(*(np.mean(list(table.values()), 0) for table in tables))
        later.append(f"{points(c)} on {LEVELS[name]}")
    C, C_later = (min(r["budget"] for runs in cells.values() for r in runs.values())
                  for cells in (arms["mix_hard"], whole))
    alone = [found["mix_hard", "level_easy_val"], found["mix_hard", "level_very_easy_val"]]
    mended = one_mix_less_another(arms, sets["level_easy_val"], "mix_dual", "mix_hard")
    verdict = both([judge(alone[0], -1), judge(alone[1], -1), judge(mended)])
    return dict(verdict=verdict, sees=sees(alone), figure="mixtures.png",
                says=f"change since the base model at C = {si(C)}, mean over n: "
                f"{'; '.join(says)}; on Easy half Hard, half Easy minus Hard only: "
                f"{points(mended)}. Hard only at C = {si(C_later)}: {', '.join(later)}")


def very_easy(atlas):
    """Figure 14: a mixture with Very Easy problems against that without."""
    arms, sets = mixes(atlas)
    found = {}
    for name, level in LEVELS.items():
        found[level] = one_mix_less_another(arms, sets[name], "mix_tri", "mix_dual")
    asked = [found["Hard"], found["Easy"]]
    said = ", ".join(f"on {level} {points(c)}" for level, c in found.items())
    g = max(gained(cells, of=of) for cells in arms.values() for of in sets.values())
    return dict(verdict=both([denied(judge(c, +1, g)) for c in asked]), sees=sees(asked),
                says=f"{MIXES['mix_tri']} minus {MIXES['mix_dual']}, mean over n: {said}",
                figure="mixtures.png")


def extreme(atlas, metric):
    """Figure 20: best@4, the largest n less the smallest; worst@4, the middle less both ends."""
    cells = atlas.arm("mix_hard")
    if len(cells) < 3:
        raise Missing("three n of mix_hard")
    table = table_of(cells, metric=metric)
    first, *inner, last = sorted(table)
    found = {}
    if metric == "best@4":
        found[f"n = {last} minus n = {first}"] = contrast(table, {last: 1, first: -1})
    else:
        middle = {n: 1 / len(inner) for n in inner}
        for end in (first, last):
            words = f"mean of n = {', '.join(map(str, inner))} minus n = {end}"
            found[words] = contrast(table, {end: -1} | middle)
    said = ", ".join(f"{words}: {points(c)}" for words, c in found.items())
    says = f"{metric}: {told(table)}; {said}. By it, {says_shift(shift_of(cells, metric=metric))}"
    panels = [curves(cells, TITLES["mix_hard"], m) for m in ("best@4", "worst@4", "avg@4")]
    verdicts = [judge(c, +1, gained(cells, metric=metric)) for c in found.values()]
    return dict(verdict=both(verdicts), sees=sees(found.values()), says=says,
                figure=figure(atlas, "extreme", panels))


def none_right_control(atlas):
    """The lr control, also by best@4."""
    out, (arms, _) = lr_control(atlas, "mix_hard"), other_lrs(atlas, "mix_hard")
    g = max(gained(cells, metric="best@4") for cells in arms.values())
    c = shift(*windows(list(arms.values()), metric="best@4"), g)
    out["says"] += f". By best@4, each n at its best lr for it, {says_shift(c)}"
    return out


def ood(atlas):
    """Figure 23: the largest n against the smallest on a set of another kind."""
    cells = atlas.arm(deepest(atlas, "ood", ns=2))
    sets = next(iter(cells[min(cells)].values()))["evals"]
    of = next((name for name in sets if name != "val"), "a second set")
    table = table_of(cells, of=of)
    words, c = largest_less_smallest(table)
    base = table_of(cells, of=of, window=START)[min(cells)].mean()
    panels = [curves(cells, "in domain"), curves(cells, "five digits", of=of)]
    g = gained(cells, of=of)
    return dict(verdict=judge(c, +1, g), sees=c["sees"], figure=figure(atlas, "ood", panels),
                says=f"base model {base:.3f}; at the end n = {means(table)}; {words}")


def algo(atlas, arm):
    """Figure 25: the two n that each panel is about, for PPO and CISPO."""
    cells = atlas.arm(deepest(atlas, arm))
    if len(cells) < 3:
        raise Missing(f"three n of {arm}")
    smallest, *_, second, largest = sorted(cells)
    other, claim = (second, 0) if arm == "ppo_easy" else (smallest, +1)
    table = table_of(cells)
    c, move = contrast(table, {largest: 1, other: -1}), shift_of(cells)
    verdict = judge(c, claim, gained(cells))
    if arm == "cispo_easy" and move["verdict"] == "agree":  # "becomes better as C grows"
        verdict = "agree"
    says = f"{told(table)}; n = {largest} minus n = {other}: {points(c)}; {says_shift(move)}"
    return dict(verdict=verdict, sees=c["sees"], says=says,
                figure=figure(atlas, arm, [curves(cells, arm)]))


def baseline(atlas, of):
    """Figure 26: the baseline from n rollouts, the loss from n_train of them, after equal updates
    (as the paper orders them) or after equal rollouts."""
    try:
        arm, plain = atlas.arm("deep_decoupled"), "deep_easy"
    except Missing:
        arm, plain = atlas.arm("decoupled"), "easy"
    n, runs = next(iter(arm.items()))
    some = next(iter(runs.values()))["config"]
    few = some["n_train"]
    easy = atlas.arm(plain, some["B_p"], [few, n], some["lr_base"])
    cells = {f"{n}/{n}": easy[n], f"{few}/{few}": easy[few], f"{few}/{n}": runs}
    of_many, of_few, decoupled = cells
    if of == "updates":  # the small one's budget ends where it has made as many
        cells = cut(dict(all=cells))["all"]
        cells[of_few] = {seed: run | dict(budget=run["budget"] * few // n)
                         for seed, run in cells[of_few].items()}
        table = {key: table_of({key: runs})[key] for key, runs in cells.items()}
    else:
        table = table_of(cells)
    a = contrast(table, {of_many: 1, decoupled: -1})
    b = contrast(table, {decoupled: 1, of_few: -1})

    def per_update(ax):
        for key, runs in cells.items():
            for i, run in enumerate(runs.values()):
                e, B = run["evals"]["val"], run["config"]["B_p"] * run["config"]["n"]
                ax.plot(e["C"][1:] / B, (e["counts"][1:] / e["samples"]).mean(1), lw=1,
                        color=colour(key, cells), label=None if i else key)
        over(ax, "updates", ylabel="validation avg@4", title="per update")
        ax.legend(fontsize=9)
    panels = [curves(cells, "n_train/n, per rollout", label="{}"), per_update]
    says = f"n_train/n: {means(table)}; (1) minus (3) {points(a)}, (3) minus (2) {points(b)}"
    g = gained({key: runs for key, runs in cells.items() if key != of_few})
    return dict(verdict=both([judge(a, +1, g), judge(b, 0, g)]), sees=sees([a, b]), says=says,
                figure=figure(atlas, f"baseline_{of}", panels))


def one_problem(atlas):
    return dict(verdict="", says="see docs/toy.md", figure="../bandit/one.png")


# ---- ours: what the base model tells of the n to come

def noise_of(atlas):
    """{arm: what pilot.py measured of its base model}, empty where it has not run."""
    path = atlas.folder / "pilot.json"
    return config.read_json(path) if path.exists() else {}


def named_n(n_c):
    """The n of the lowest price for B_p far below b; see pilot.py."""
    return 1 + math.sqrt(n_c + 2)


def price(n, n_c, share=0.0):
    """Rollouts that n takes for one progress, up to a factor; derived in pilot.py.

    share = B_p / b. Least at n = 1 + sqrt((n_c + 2) / (1 + share)).
    """
    return n * (1 + share) + (n_c * n + 2) / (n - 1)


def delays(C, Y, reference):
    """log2 of the rollouts that curves take to a reward, over those of the reference: (N,).

    C (E,) budgets, Y (N, E) rewards, reference: one of the N. A mean over nine rewards from what
    both had at their first budget to what both reached; nan where there are none.
    """
    Y, out = np.maximum.accumulate(Y, 1), np.full(len(Y), np.nan)

    def budget(y, rewards):  # log2 of the first C that reaches each reward
        rises = np.append(True, np.diff(y) > 0)
        return np.interp(rewards, y[rises], np.log2(C)[rises])
    for i, y in enumerate(Y):
        lo, hi = max(y[0], Y[reference, 0]), min(y[-1], Y[reference, -1])
        if hi > lo:
            rewards = np.linspace(lo, hi, 9)
            out[i] = (budget(y, rewards) - budget(Y[reference], rewards)).mean()
    return out


def priced(atlas):
    """Sweeps with a measured n_c, at the rule's lr with the group's mean as the baseline: [dict].

    name, group (of the sweeps with one base model and problem set), cells [(B_p, n)], runs, C (E,),
    Y (N, E) means over seeds, price (N,), noise (of pilot.py). Those of the toy world too, without
    runs, and B_p taken to be far below b.
    """
    out = []
    for name, noise in noise_of(atlas).items():
        if name.startswith("joint_") or not noise.get("n_c"):
            continue
        cells = {}
        for arm in (name, f"joint_{name}"):
            for key, runs in atlas.cells(arm).items():
                whole = {seed: r for seed, r in runs.items() if r["end"]["status"] == "budget"}
                if len(whole) > 1:
                    cells[key] = whole
        seeds = sorted(set.intersection(*(set(runs) for runs in cells.values()))) if cells else []
        if len(cells) < 3 or len(seeds) < 2:
            continue
        cfg = config_of(cells)
        if cfg["algo"] != "grpo" or cfg["n_schedule"] or name.endswith(tuple(LRS)):
            continue
        use(cells)
        group = f"{Path(cfg['model']).name}, {Path(cfg['train_set']).name}"
        evals, prices = [], []
        for (B_p, n), runs in cells.items():
            evals.append([runs[seed]["evals"]["val"] for seed in seeds])
            prices.append(price(n, noise["n_c"], B_p / noise["b"] if noise.get("b") else 0))
        C, Y = mean_curves(evals)
        out.append(dict(name=name, group=group, cells=list(cells), runs=cells, C=C, Y=Y,
                        noise=noise, price=np.array(prices)))
    return out + priced_toys()


def mean_curves(evals):
    """[[evaluations of each seed] of each cell] -> C (E,), mean rewards over seeds Y (N, E).

    From the first update to the end of the shortest run.
    """
    C = max((e["C"] for of_cell in evals for e in of_cell), key=len)[1:]
    C = C[C <= min(e["C"][-1] for of_cell in evals for e in of_cell)]
    Y = []
    for of_cell in evals:
        at_C = [np.interp(C, e["C"], e["counts"].mean(1) / e["samples"]) for e in of_cell]
        Y.append(np.mean(at_C, 0))
    return C, np.array(Y)


def priced_toys():
    """The sweeps of `priced` that are the toy world's."""
    toy = config.read_json(ROOT / "results/bandit/study.json")
    n_c = {r["words"]: r["n_c"] for r in toy["noise"] if not r["C"]}
    out = []
    for name in ("no_idle", "lead", "more_idle"):
        arm = toy["arms"][name]
        own, name = n_c[arm["words"]], f"toy, {arm['words'] or '--idle=29'}"
        at_rule = np.array(arm["mean"])[arm["lrs"].index(toy["config"]["lr_base"])]  # (N, S, E)
        out.append(dict(name=name, group=name, cells=[(toy["config"]["B_p"], n) for n in arm["ns"]],
                        C=np.array(arm["C"]), Y=at_rule.mean(1), noise=dict(n_c=own),
                        price=np.array([price(n, own) for n in arm["ns"]])))
    return out


def over_groups(sweeps, values):
    """`over_sweeps` of the means of each group: sweeps of one group are no independent evidence."""
    by_group = {}
    for s, value in zip(sweeps, values):
        by_group.setdefault(s["group"], []).append(value)
    return over_sweeps([np.mean(of_group) for of_group in by_group.values()])


def price_of_n(atlas):
    """What the n of the lowest price takes over the best other n; the same for one n for all."""
    sweeps, always = priced(atlas), (2, 4, 16)  # the n that every world has
    if not any("runs" in s for s in sweeps):
        raise Missing("results/pilot.py")
    table, of_B_p, panels = [], [], []
    # log2 of the rollouts that each rule's n takes, over those of the best other n
    behind = {rule: [] for rule in ("price", *always)}
    for s in sweeps:
        ns = np.array([n for _, n in s["cells"]])
        named = {"price": int(s["price"].argmin())}
        for n in always:  # the nearest n, of several B_p that with the lowest price
            far = np.abs(np.log2(ns / n)) + 0.01 * s["price"] / s["price"].max()
            named[n] = int(far.argmin())
        logs = {rule: delays(s["C"], s["Y"], i) for rule, i in named.items()}
        for rule, i in named.items():
            others = np.delete(logs[rule], i)
            if np.isnan(others).all():
                raise Missing(f"runs of {s['name']} that gain on the base model")
            behind[rule].append(-np.nanmin(others))
        table.append(price_row(s, named["price"], logs["price"]))
        of_B_p.append(price_over_B_p(s))
        panels.append(price_panel(s, named["price"], logs["price"]))
    found = {rule: over_groups(sweeps, values) for rule, values in behind.items()}

    def times(c):
        lo, hi = c["gain"] - c["half"], c["gain"] + c["half"]
        return f"{2 ** c['gain']:.2f} ({2 ** lo:.2f} to {2 ** hi:.2f})"
    c, allowed = found["price"], math.log2(1.25)
    if c["gain"] + c["half"] < allowed:
        verdict = "agree"
    else:
        verdict = "disagree" if c["gain"] - c["half"] > allowed else "undecided"
    says = (f"the n of a sweep with the lowest price takes {times(c)} times the rollouts of the "
            f"best other n, over {len({s['group'] for s in sweeps})} worlds. The same of one n for "
            f"all: {', '.join(f'{n} {times(found[n])}' for n in always)}")
    more = [PRICES, *table, "", "".join(of_B_p) + "".join(map(noise_after_training, sweeps))]
    return dict(verdict=verdict, says=says, figure=figure(atlas, "price_of_n", panels),
                more="\n".join(more))


PRICES = """## The price of n, sweep by sweep

Rollouts to the same reward: a mean over nine rewards that both n reached, by the best so far.
Sweeps of one base model and problem set count as one world.

| sweep | n_c | 1 + sqrt(n_c + 2) | n of the lowest price | \
its rollouts | rollouts ~ price to the power |
|---|---|---|---|---|---|"""


def price_row(s, i, log):
    """A line of PRICES: cell i has the lowest price, log (N,) are the delays against it."""
    n_c = s["noise"]["n_c"]
    words = f"{n_c:.1f}"
    if s["noise"].get("n_c_interval"):
        words += " [{:.1f}, {:.1f}]".format(*s["noise"]["n_c_interval"])
    others = [j for j in range(len(log)) if j != i and np.isfinite(log[j])]
    rival = min(others, key=lambda j: log[j])
    # rollouts ~ price^power, by least squares through the named cell
    known = np.isfinite(log)
    x, y = np.log2(s["price"] / s["price"][i])[known], log[known]
    power = x @ y / (x @ x)
    return (f"| {s['name']} | {words} | {named_n(n_c):.1f} | {s['cells'][i][1]} | "
            f"{2 ** -log[rival]:.2f} of n = {s['cells'][rival][1]} | "
            f"{power:.2f}, within {np.abs(y - power * x).max():.1f} octaves |")


def price_over_B_p(s):
    """What each B_p of a sweep took at one n, beside its price; "" of a sweep with one B_p."""
    sizes = sorted({b for b, _ in s["cells"]})
    ns = sorted({n for _, n in s["cells"]})
    shared = [n for n in ns if all((b, n) in s["cells"] for b in sizes)]
    if len(sizes) < 2 or not shared:
        return ""
    said = []
    for n in shared:
        of_n = [s["cells"].index((b, n)) for b in sizes]
        took = 2 ** delays(s["C"], s["Y"], of_n[0])[of_n]
        prices = s["price"][of_n] / s["price"][of_n[0]]
        said.append(f"at n = {n} {', '.join(f'{x:.2f}' for x in took)}; "
                    f"price {', '.join(f'{x:.2f}' for x in prices)}")
    return (f"On {s['name']} (b = {s['noise']['b']:.0f}) B_p = {', '.join(map(str, sizes))} took "
            f"{'; '.join(said)}. ")


def price_panel(s, i, log):
    """A panel: rollouts to the same reward over n, taken and by the price, both against cell i."""
    sizes = sorted({b for b, _ in s["cells"]})

    def draw(ax):
        for b in sizes:
            some = [j for j, cell in enumerate(s["cells"]) if cell[0] == b]
            n, shade = [s["cells"][j][1] for j in some], colour(b, sizes)
            ax.plot(n, 2 ** log[some], "o", color=shade, label=f"taken, B_p = {b}")
            for power, style in ((0.5, "-"), (1, ":")):
                ax.plot(n, (s["price"][some] / s["price"][i]) ** power, style, color=shade, lw=1)
        ax.plot([], [], "k-", lw=1, label="root of the price, from the base model")
        ax.plot([], [], "k:", lw=1, label="the price")
        ax.set(xscale="log", yscale="log", xlabel="n", ylabel="rollouts to the same reward",
               title=f"{s['name']}, n_c = {s['noise']['n_c']:.1f}")
        ns = sorted({n for _, n in s["cells"]})
        ax.set_xticks(ns, ns)
        ax.set_yticks([1, 2, 4, 8, 16], ["1", "2", "4", "8", "16"])
        ax.minorticks_off()
        ax.legend(fontsize=9)
    return draw


def noise_after_training(s):
    """The gradient noise of a sweep's model after training, in words; "" where unknown."""
    trained = s["noise"].get("trained", {})
    if not trained.get("ends"):
        return ""
    ends = ["{:.0f} [{:.0f}, {:.0f}]".format(end["n_c"], *end["n_c_interval"])
            for end in trained["ends"] if end["n_c"]]
    return (f"After {si(trained['C'])} rollouts at n = {trained['n']} on {s['name']} n_c is "
            f"{', '.join(ends)}. ")


def when_to_stop(atlas):
    """At the n of the lowest price: what the last doubling of C brings, less the one before."""
    sweeps, less, said = [s for s in priced(atlas) if "runs" in s], [], []
    USED.clear()  # of each sweep one cell, not all
    for s in sweeps:
        cell = s["cells"][int(s["price"].argmin())]
        runs = s["runs"][cell]
        use({cell: runs})
        at = []  # the mean reward towards C/4, C/2 and C
        for window in ((0.18, 0.25), (0.36, 0.5), (0.72, 1)):
            at.append(np.mean([look(run, window=window).mean() for run in runs.values()]))
        before, last = at[1] - at[0], at[2] - at[1]
        less.append(last - before)
        said.append(f"{s['name']}, n = {cell[1]}: {100 * before:+.1f}, then {100 * last:+.1f}")
    if len({s["group"] for s in sweeps}) < 3:
        raise Missing("three worlds that results/pilot.py has measured")
    c = over_groups(sweeps, less)
    says = (f"points gained by the doublings to C/2 and to C: {'; '.join(said)}. "
            f"The second gain minus the first {points(c)}")
    return dict(verdict=denied(judge(c)), sees=c["sees"], says=says)


# ---- section 6: forecasts of n* at the end

def settings(atlas):
    """Every sweep over n that pilot.py has measured, three n or more: [dict].

    group (of one base model and problem set), early and late {n: (S, P)}, stats, which are known at
    C/8, and n_c, None where the base model's gradients do not tell it.
    """
    noise, out = noise_of(atlas), []
    for path in sorted(p for p in atlas.folder.iterdir() if p.is_dir()):
        for B_p in sorted({b for b, _ in atlas.cells(path.name)}):
            try:
                cells = atlas.arm(path.name, B_p)
                early, late, start = (table_of(cells, window=w) for w in (EARLY, LATE, START))
            except Missing:
                continue
            cfg = config_of(cells)
            if len(cells) < 3 or cfg["n_schedule"] or path.name not in noise:
                continue
            n_c = noise[path.name].get("n_c")
            base = start[min(cells)].mean(0)  # pass rates of the validation problems
            few, many = mixed_groups(cells[min(cells)]), mixed_groups(cells[max(cells)])
            known = dict(p=base.mean(), spread=base.std(), mixed=few / max(many, 0.01),
                         change=max(t.mean() for t in early.values()) - base.mean(),
                         n_c=n_c and math.log2(n_c))
            out.append(dict(n_c=n_c, early=early, late=late, stats=known,
                            group=(cfg["model"], Path(cfg["train_set"]).name)))
    return out


def mixed_groups(runs):
    """Share of the groups of {seed: run} that have an advantage, in the updates up to C/8."""
    steps = [s for r in runs.values() for s in r["steps"] if s["rollouts"] <= r["budget"] / 8]
    steps = steps or [r["steps"][0] for r in runs.values()]
    return np.mean([1 - s["frac_all_right"] - s["frac_all_wrong"] for s in steps])


def center(table):
    """Mean log2 n over the n that are not told from the best."""
    return float(np.mean(np.log2(near(table)[1])))


def regret(s, log2_n):
    """What the n nearest to a forecast loses at the end, on the best mean there."""
    ns = np.array(sorted(s["late"]))
    n = int(ns[np.abs(np.log2(ns) - log2_n).argmin()])
    return max(t.mean() for t in s["late"].values()) - s["late"][n].mean()


# A rule is a function (a sweep, the sweeps of other groups) -> its forecast of log2 n* at the end

def last_observed(s, others):
    return center(s["early"])


def constant_M(s, others):
    """n in proportion to C, from the middle of EARLY to that of LATE."""
    return center(s["early"]) + math.log2(0.875 / 0.093)


def mean_of_others(s, others):
    return float(np.mean([center(o["late"]) for o in others]))


def from_the_price(s, others):
    return math.log2(named_n(s["n_c"])) if s["n_c"] else mean_of_others(s, others)


def fitted(*names):
    """A rule: least squares on statistics of the other sweeps; their mean where one is missing."""
    def rule(s, others):
        known = [o for o in others if None not in (o["stats"][k] for k in names)]
        if not known or None in (s["stats"][k] for k in names):
            return mean_of_others(s, others)
        X = np.array([[1.0, *(o["stats"][k] for k in names)] for o in known])
        w = np.linalg.lstsq(X, [center(o["late"]) for o in known], rcond=None)[0]
        return float(w @ [1.0, *(s["stats"][k] for k in names)])
    return rule


PLAIN = {"last observed n* (C/8)": last_observed, "constant M": constant_M,
         "mean of the other sweeps": mean_of_others}
STATISTICS = {"pass rates of the base model": fitted("p", "spread"),
              "their change up to C/8": fitted("change"),
              "share of mixed groups, smallest n over largest": fitted("mixed"),
              "gradient noise n_c of the base model": fitted("n_c"),
              "1 + sqrt(n_c + 2), nothing fitted": from_the_price}


def early_to_late(atlas):
    """The best statistic, chosen within the other groups, against the last observed n*."""
    found = settings(atlas)
    groups = sorted({s["group"] for s in found})
    if len(groups) < 3:
        raise Missing("three groups of sweeps over n")

    def loss(rule, group, pool):  # mean regret on a group's sweeps, fitted on the pool's others
        others = [s for s in pool if s["group"] != group]
        return np.mean([regret(s, rule(s, others)) for s in pool if s["group"] == group])
    scores = {}
    for name, rule in (PLAIN | STATISTICS).items():
        scores[name] = np.array([loss(rule, group, found) for group in groups])
    chosen = []  # for each group the score of the statistic that is best within the other groups
    for i, group in enumerate(groups):
        inner, rest = [s for s in found if s["group"] != group], [g for g in groups if g != group]
        within = {}
        for name, rule in STATISTICS.items():
            within[name] = np.mean([loss(rule, g, inner) for g in rest])
        chosen.append(scores[min(within, key=within.get)][i])
    c = over_sweeps(scores["last observed n* (C/8)"] - np.array(chosen))

    def draw(ax):
        names = sorted(scores, key=lambda name: -scores[name].mean())
        ax.barh(names, [100 * scores[name].mean() for name in names], color="0.6")
        ax.set(xlabel="regret at the end, points, mean over groups")
        ax.set_title(f"{len(found)} sweeps in {len(groups)} groups, each forecast from the others",
                     fontsize=9)
    regrets = ", ".join(f"{name} {100 * x.mean():.2f}" for name, x in scores.items())
    says = (f"{len(found)} sweeps in {len(groups)} groups of one base model and problem set, each "
            f"group held out; regret at the end in points: {regrets}. The statistic that is best "
            f"within the other groups gains {points(c)} over the last observed n*")
    return dict(verdict=judge(c), sees=c["sees"], says=says,
                figure=figure(atlas, "early_to_late", [draw], width=8))


# --------------------------------------------------------------------------------------------------
# The table: (study, where in the paper, its claim in our words, function, its arguments)

ROWS = [
    ("difficulty", "Figure 2",
     "Problems split by avg@16 of the base model: Easy 0.3 to 0.6, Hard 0 to 0.0625.", difficulty),
    ("recipe", "Figure 3, Easy", "KL and entropy terms together give the best reward on Easy; "
     "without them entropy collapses.", recipe, "easy", +1),
    ("recipe", "Figure 3, Hard", "On Hard both terms destabilise training, with the filter too; "
     "none is best.", recipe, "hard", -1),
    ("recipe", "Figure 3, mixed", "On a mixed set training is steadiest without either.",
     recipe, "mixed", -1),
    ("recipe", "Figure 4, left", "There is one best base lr at a middle batch: far below it "
     "training is slow, far above it unstable.", lr_grid),
    ("recipe", "Figure 4, right; Table 1", "At a batch 8 times that of the base lr, lr ~ sqrt(B) "
     "beats a constant and a linear lr.", lr_rule),

    ("deep", "Figures 1, 6 and 7, Easy", "At one B_p n*(C) rises with C as a sigmoid, and "
     "saturates (n = 8 to 512).", rise, "easy"),
    ("deep", "ours: the lr control, Easy", "The same claim when every n has its own best lr.",
     lr_control, "easy"),
    ("deep", "Figures 6 and 7, Hard", "At one B_p n*(C) rises with C as a sigmoid, and "
     "saturates, at a smaller n than on Easy (8 to 128).", rise, "hard"),
    ("deep", "ours: the lr control, Hard", "The same claim when every n has its own best lr.",
     lr_control, "hard"),
    ("levels", "ours: the rise by difficulty", "The harder the problems are for the base model, "
     "the more a large n gains late.", by_difficulty),
    ("sizes", "ours: C or C / D", "Where a larger n takes over, for several D.",
     order_of_crossings),
    ("growing", "ours: one run growing n, none right", "A run that raises n where separate runs "
     "cross is as good as the best constant n at every budget.", growing, "mix_hard"),
    ("epochs", "ours: many epochs", "Where each of few problems is seen often, n*(C) rises "
     "with C.", many_epochs),
    ("epochs", "ours: many epochs, the lr control", "The same claim when every n has the best of "
     "half the lr and once, small ones of a quarter too.", epochs_control),
    ("main", "ours: the lr of a short run", "Of half, once and double the lr, the one that leads "
     "at C/8 is as good as any at the end.", lr_of_a_short_run),
    ("main", "Figures 5 and 15", "Record-breaking points of noisy runs, and a monotone fit to "
     "them, stand for the frontier.", records),
    ("deep", "Figure 8, Easy", "On Easy worst@4 wants a larger n than best@4.",
     metrics, "easy", "best@4", "worst@4"),
    ("deep", "Figure 8, Hard", "On Hard best@4 wants a larger n than worst@4.",
     metrics, "hard", "worst@4", "best@4"),
    ("joint", "Figure 10, Easy", "B_p has a smaller effect than n (1.9 and 9.2 points from end to "
     "end). (The prescriptions of section 4.2 say the opposite: comparable on Easy.)",
     sensitivity, "easy"),
    ("joint", "Figure 16, Easy", "At every B_p n*(C) rises with C, and saturates.",
     each_B_p, "easy"),
    ("fixed_B", "Figures 9 and 18, Easy", "At a fixed batch B = B_p n, n* rises with M: many "
     "problems first, many rollouts later. (The k printed for B_p*(M) has the wrong sign for its "
     "form.)", fixed_B, "easy"),
    ("joint", "Figures 21 and 22, Easy", "Best over (B_p, n) jointly, n*(C) rises likewise.",
     joint, "easy"),
    ("joint", "section 4.2, the smallest stable B_p", "It is larger on Hard than on Easy.",
     stable_B_p),
    ("joint", "Figure 10, Hard", "B_p has an effect like that of n (2.2 and 3.1 points from end "
     "to end).", sensitivity, "hard"),
    ("joint", "Figure 17, Hard", "At every B_p n*(C) rises with C, and saturates.",
     each_B_p, "hard"),
    ("fixed_B", "Figures 9 and 19, Hard", "At a fixed batch B = B_p n, n* rises with M "
     "(Figure 19's caption; the text of section 4.2 says that it does not depend on M "
     "monotonically).", fixed_B, "hard"),
    ("joint", "Figures 21 and 22, Hard", "Best over (B_p, n) jointly, n*(C) rises likewise.",
     joint, "hard"),

    ("deep", "Figures 11 and 27, Easy", "At matched n M a larger n leaves fewer training "
     "problems unsolved, and pass rates less polarised.", interference, "easy"),
    ("deep", "Figures 11 and 27, Hard", "At matched n M a larger n leaves fewer training "
     "problems unsolved (coverage); small n sharpens a subset.", interference, "hard"),
    ("models", "Figure 12", "With other base models larger n is better at high C too. "
     "(Consistently, says the text; in the same section validation saturates or degrades at the "
     "largest n on both Easy sets.)", models),
    ("models", "Figure 12, training", "On training reward the largest n goes on rising where its "
     "validation saturates.", models_training),
    ("size", "Figure 13", "With fewer training problems (500, not 6,000) the best n is smaller; "
     "the largest n overfits. (Section 4.2 blames overfitting on large B_p and prescribes few "
     "problems with large n for many epochs; section 5.2 larger B_p and smaller n.)", size),
    ("mix", "Figure 14, crossover", "Whatever the mixture, the larger n is better at high C on "
     "the levels trained on, but Very Easy.", mixtures),
    ("mix", "Figure 14, forgetting", "Hard problems alone make the model forget Easy and Very "
     "Easy ones; Easy problems in the mix prevent most of it.", forgetting),
    ("mix", "Figure 14, Very Easy", "Very Easy problems in the mixture do not help on Hard or "
     "Easy ones.", very_easy),
    ("extreme", "Figure 20, best@4", "Trained on problems that the base model solves in none of "
     "128 rollouts, the largest n has the best coverage (best@4).", extreme, "best@4"),
    ("extreme", "Figure 20, worst@4", "Trained on problems that the base model solves in none of "
     "128 rollouts, a moderate n has the best worst@4, not the largest.", extreme, "worst@4"),
    ("extreme", "ours: none right in 128", "Trained on problems that the base model solves in none "
     "of 128 rollouts, n*(C) rises with C.", rise, "mix_hard"),
    ("extreme", "ours: none right in 128, the lr control", "The same claim when every n has the "
     "best of half, once and double the lr, small ones of a quarter too.", none_right_control),
    ("ood", "Figure 23", "Larger n is better on another family of problems too (AIME24; here sums "
     "and differences of five digits).", ood),

    ("main", "Figure 24", "The unit, rollouts or tokens, makes no difference to n*(C).", tokens),
    ("algos", "Figure 25, left", "PPO on Easy saturates early, with little between large n.",
     algo, "ppo_easy"),
    ("algos", "Figure 25, middle", "PPO on Hard: larger n is better at matched C.",
     algo, "ppo_hard"),
    ("algos", "Figure 25, right", "CISPO on Easy: larger n becomes better as C grows (here with "
     "two updates a batch; with one it is GRPO).", algo, "cispo_easy"),
    ("baseline", "Figure 26, at equal updates", "Baseline from many rollouts, loss from few: "
     "(1) all of many > (3) decoupled = (2) few, by the best validation reward of equally many "
     "updates.", baseline, "updates"),
    ("baseline", "Figure 26, at equal rollouts", "The same per rollout spent (which the paper does "
     "not say).", baseline, "rollouts"),
    ("toy", "Appendix, one problem", "With one problem and a tabular policy, sequential updates "
     "are preferable to a larger n.", one_problem),

    ("smollm", "ours: a real model, curves", "How a real language model learns with n = 4, 16, 64 "
     "(SmolLM2-135M-Instruct on sums).", real_curves),
    ("smollm", "ours: a real model, Hard", "n*(C) rises with C for a real language model "
     "(SmolLM2-135M-Instruct on sums), on problems solved at most once in 16.", rise,
     "smollm_hard"),
    ("smollm", "ours: a real model, Easy", "The same on problems solved 30 to 60% of the time.",
     rise, "smollm_easy"),
    ("smollm", "ours: a real model, the lr", "How its reward depends on the base lr.", real_lr),
    ("early", "ours: the price of n", "The n with the lowest price, n (1 + B_p / b) + "
     "(n_c n + 2) / (n - 1) by the base model's gradient noise, takes less than 1.25 times the "
     "rollouts of any other n to the same reward. (The form was found after the runs over n of "
     "`main`, before those over B_p and the models.)", price_of_n),
    ("early", "ours: when to stop", "At the n that the base model names, the next doubling of C "
     "brings no more than the last.", when_to_stop),
    ("early", "section 6, ours", "Statistics of the base model and of the first updates might "
     "tell where n* saturates (the paper leaves it open).", early_to_late)]

COMMANDS = dict(toy="python bandit_toy.py one", difficulty="python sample.py",
                early="python results/pilot.py all --runs=runs/atlas")  # else run_sweep.sh STUDY


def tell(atlas, study=""):
    """The rows (of one study) as dicts, in order; a row whose runs are not there says so."""
    out = []
    for name, paper, claim, function, *words in ROWS:
        if study and name != study:
            continue
        USED.clear()
        try:
            found = function(atlas, *words)
        except (Missing, BadInput) as e:
            found = dict(verdict="not run", says=f"waits for {e}")
            USED.clear()
        M, deep, rises = fewest_updates(USED) if USED else (0, True, None)
        verdict, says = found["verdict"] or "shown", found["says"]
        if verdict in ("agree", "disagree", "undecided") and not deep:
            how = "" if rises is None else f" and rises by {100 * rises:.1f} at the end"
            says += f". Deeper runs may say otherwise: the largest batch makes {M} updates{how}"
            says += f". By these runs alone: {verdict}"
            verdict = "too shallow"
        runs, spent = [run for run, _ in USED.values()], [C for _, C in USED.values()]
        share = [C / run["budget"] for run, C in USED.values()]
        out.append(dict(
            study=name, paper=paper, claim=claim, verdict=verdict, says=says, M=M,
            sees=found.get("sees"), figure=found.get("figure"), more=found.get("more"),
            runs=len(runs), seeds=sorted({r["config"]["seed"] for r in runs}),
            C=min(spent, default=0), rollouts=sum(spent),
            minutes=sum(x * r["seconds"] for x, r in zip(share, runs)) / 120))  # two at a time
    return out


def sentence(r):
    """What our runs say; where they decide nothing, also the effect that they would have shown."""
    if r["verdict"] == "undecided" and r["sees"]:
        return f"{r['says']}. These runs would show an effect of {100 * r['sees']:.1f} points"
    return r["says"]


def table_text(rows, figures=""):
    """The rows as a table; `figures` is the folder of the figures as the page names it."""
    lines = ["| paper | its claim | verdict | what our runs say | "
             "runs, seeds, C, M, rollouts, minutes | command, figure |",
             "|---|---|---|---|---|---|"]
    for r in rows:
        spent = ""
        if r["runs"]:
            spent = (f"{r['runs']}, {len(r['seeds'])}, {si(r['C'])}, {r['M']}, "
                     f"{si(r['rollouts'])}, {r['minutes']:.0f}")
        how = f"`{COMMANDS.get(r['study'], 'bash run_sweep.sh ' + r['study'])}`"
        if r["figure"]:
            how += f", [figure]({figures}{r['figure']})"
        lines.append(f"| {r['paper']} | {r['claim']} | **{r['verdict']}** | {sentence(r)} | "
                     f"{spent} | {how} |")
    return "\n".join(lines)


# --------------------------------------------------------------------------------------------------
# The page

INTRO = """# The paper on a laptop

Every figure and table of the paper that our tools can check, checked on the embedded world: the
command, the paper's claim in our words, and our verdict with its numbers. What our runs say comes
from the logs in `results/atlas` alone. `python results/atlas.py` draws all figures from them again
and writes this page. `bash run_sweep.sh STUDY` makes the runs, one command a row. It skips finished
runs, so studies that share runs make them once. The deep runs go on by a [plan](plan.md) that was
written before the first of them: rows that wait for some say so, or stand on shallower ones.

How to read it

- Differences are in points, 100 times the reward, of means over the last quarter of the budget C
  that all runs of a row have. "Early" is 1/16 to 1/8 of that budget. The ± is half of a 90%
  interval over seeds and validation problems. Of so many intervals one in ten misses the truth.
- *agree*: the interval lies on the claim's side. *disagree*: it excludes an effect on that side
  of 3% of what training gained (one point where it gained 33); "no difference" means within twice
  that. *undecided*: inconclusive, and the row says how large an effect such runs would show in four
  of five repetitions. *too shallow*: the cell with the fewest updates, M, has made fewer than 150
  and still rises, by more than half a point in the last eighth of the budget, or fewer than 50. The
  paper's frontier goes to a larger n where that has made 155 to 264. *shown*: a figure without a
  claim to judge.
- Runs, seeds, C and rollouts are those that the row uses, each up to the budget that it uses.
- "Best n early 2, at the end 8/2/8": for each of three seeds, the n that is best on the other two
  seeds. "The second choice minus the first is worth": the difference on the seed itself, once early
  and once at the end. "Keeping n = 2 costs at most": the upper end of what any other n is better,
  early or late. Where the smallest n of a grid leads throughout, a rise below it would not show, so
  that is undecided.
- "n = 4 is best": the highest of these runs.
- Minutes are of our runs on this machine, one thread a run and two runs side by side.
"""


def scale_table():
    """What the embedded world has in place of the paper's, from presets.json."""
    data = ["--data=data/arithmetic"]
    cfg, extreme = sweep.arms("main", data)[0], sweep.arms("extreme", data)[0]
    sizes = sorted({int(b) for arm in sweep.arms("joint", data) for b in arm["bps"].split()})
    ns = sorted(map(int, cfg["ns"].split()))
    deep, few = sweep.arms("deep", data)[0], sweep.arms("size", data)
    D = min(c["D"] for c in few)
    epochs = max(c["C"] / c["D"] for c in few)
    none_right = int(re.search(r"_D(\d+)_", extreme["train_set"])[1])
    return f"""
## The scale

| | paper | here |
|---|---|---|
| model | Qwen2.5-7B-Instruct and others | 2 layers, 190,000 parameters, trained on slipping texts |
| problems | Guru-Math, D = 6,000 Easy, 5,000 Hard | \
sums and differences of 2 to 4 digits, D = {cfg['D']} |
| B_p | 32 to 1,024 | {cfg['bps']} ({', '.join(map(str, sizes))} in `joint`) |
| n | 8 to 2,048 | {ns[0]} to {ns[-1]} |
| budget C | about 4 million | {cfg['C']:,} ({deep['C']:,} in `deep` and `extreme`) |
| updates M of a large n | 155 to 264 where its frontier goes to it | \
{deep['C'] // int(deep['bps']) // 64} at n = 64 in `deep` and `extreme`, \
{cfg['C'] // int(cfg['bps']) // ns[-1]} at n = {ns[-1]} in `main` |
| C / D, rollouts a problem | about 700 | {cfg['C'] / cfg['D']:.0f} \
({epochs:,.0f} in `size`, with D = {D}, \
{extreme['C'] / none_right:,.0f} in `extreme`, with {none_right}) |
| lr at B = 1,024 | 1e-6 | {cfg['lr_base']:g} |
"""


BUDGET = """
The first plan had every study at the C of `main`, and a longer one: 272 runs, 20.8M rollouts. By
the speed of the first runs that was about 11 hours, which is too long. With the first runs of
`main` in, the other studies went to half of that C, and the lr grid got three seeds instead of one.
Further changes came after results were seen:

- `models` got a base model trained longer, instead of one trained less, which had no Easy problems.
- `extreme` was continued to all of the C of `main`, because at half of it n = 16 had caught up, and
  then to four times that, because n = 64 had. Because n* rose, it also got the lr control and three
  fresh seeds.
- `joint` got n = 2, because its smallest n led.
- `epochs` took the place of the longer study, because `size` showed n* rising with 50 problems. As
  that had been seen on the first three seeds, it got three fresh seeds twice.

Minutes are by the speed of the first runs, which most others beat: the {runs} runs of this page
took {hours:.1f} hours."""


def budget_table(folder):
    """Runs, rollouts and minutes of each study, from presets.json, and what the runs of a folder
    took.

    In the sum, runs that studies share count once.
    """
    data = "data/arithmetic"
    lines = ["| study | asks | runs | rollouts | minutes |", "|---|---|---|---|---|"]
    seen, minutes = {}, 0.0  # rollouts of each run so far, and minutes of what no earlier study has
    for name, study in sweep.presets(data).items():
        runs = {}
        for arm in sweep.arms(name, [f"--data={data}"]):
            for c in sweep.cells(arm):
                rollouts = config.rollouts_after(config.derive(c)["M"], c)
                runs[arm["runs"], config.run_name(c)] = rollouts
        total = sum(runs.values())
        new = sum(max(rollouts - seen.get(run, 0), 0) for run, rollouts in runs.items())
        minutes += study["minutes"] * new / total
        for run, rollouts in runs.items():
            seen[run] = max(rollouts, seen.get(run, 0))
        lines.append(f"| `{name}` | {study['about']} | {len(runs)} | {si(total)} | "
                     f"{study['minutes']} |")
    lines.append(f"| all, shared runs once | | {len(seen)} | {si(sum(seen.values()))} | "
                 f"{minutes / 60:.1f} hours |")
    runs = [run for path in folder.glob("[!.]*/*/log.jsonl*") if (run := read(path))]
    hours = sum(run["seconds"] for run in runs) / 7200  # two runs at a time
    return "\n".join(lines) + "\n" + BUDGET.format(runs=len(runs), hours=hours)


def tried_table(folder):
    """Validation avg@4 of the exploratory runs (results/tried) at some budgets."""
    budgets = (8192, 16384, 32768, 65536, 98304)
    heads = " | ".join(f"C = {si(C)}" for C in budgets)
    lines = [f"| world | n | {heads} | best@4 at its end |",
             "|---|---|" + "---|" * (len(budgets) + 1)]
    paths = folder.glob("*/*/log.jsonl.gz")
    for path in sorted(paths, key=lambda p: (p.parts[-3], read(p)["config"]["n"])):
        run = read(path)
        e = run["evals"]["val"]
        values = []
        for C in budgets:
            near_C = (e["C"] > 0.85 * C) & (e["C"] <= C)
            reached = e["C"][-1] >= 0.95 * C and near_C.any()
            values.append(f"{e['counts'][near_C].mean() / e['samples']:.3f}" if reached else "")
        best = right(e, "best@4", slice(-2, None)).mean()
        lines.append(f"| {path.parts[-3]} | {run['config']['n']} | {' | '.join(values)} | "
                     f"{best:.3f} |")
    return "\n".join(lines)


TRIED = """
## What was tried before

Exploratory runs at seed 900, which no reported run uses, with B_p = 8. `old` is an earlier base
model (other weak spots, no five-digit texts), `add` has additions alone and 200 skills, `idle4` has
four idle letters a column instead of two, `new` is the world of the reports. What they decided:

- The lr went from 5e-4 to 2e-4. At 5e-4, n = 64 loses coverage (best@4) from the start and n = 4
  declines.
- Skills and idle letters stayed. With fewer skills or more idle letters everything is mended
  everywhere within a quarter of the budget, and small n leads throughout.
- D stayed. With fewer problems every n ends on one plateau of overfitting.

None of these variants had a larger n in the lead at the end, and none was looked for further.
`epochs` and `extreme`, made later, have one.
"""


def page(rows, folder, figures):
    """The text of README.md."""
    count = Counter(r["verdict"] for r in rows)
    order = ("agree", "disagree", "undecided", "too shallow", "shown", "not run")
    in_all = ", ".join(f"{count[verdict]} {verdict}" for verdict in order if count[verdict])
    more = [f"\n{r['more']}" for r in rows if r["more"]]
    parts = [INTRO, f"In all: {in_all}.\n", table_text(rows, figures), *more, scale_table(),
             "## The budget\n", budget_table(folder), TRIED, tried_table(ROOT / "results/tried")]
    return "\n".join(parts) + "\n"


def main(argv):
    verb = argv[0] if argv and not argv[0].startswith("-") else ""
    words = argv[1:] if verb else argv
    cfg = parse(words, __doc__)
    own = ROOT / "results/atlas"
    folder = Path(cfg["runs"]) if any(word.startswith("--runs=") for word in words) else own
    if not folder.is_dir():
        raise BadInput(f"--runs={folder}: no such folder")
    if verb == "keep":
        return keep(folder, Path(cfg["out"] or own))
    known = dict.fromkeys(name for name, *_ in ROWS)
    if verb and verb not in known:
        raise BadInput(f"{verb}: no such study; keep, {', '.join(known)}")
    out = Path(cfg["out"] or folder)
    rows = tell(Atlas(folder, out), verb)
    for r in rows:
        print(f"{r['paper']}: {r['verdict']}\n  claim: {r['claim']}\n  {sentence(r)}\n"
              f"  {r['runs']} runs, seeds {', '.join(map(str, r['seeds']))}, "
              f"{si(r['rollouts'])} rollouts"
              + (f"; figure: {out / r['figure']}" if r["figure"] else ""))
    if not verb:
        at_home = folder == own and not cfg["out"]  # then the page lies above its figures
        with aside((ROOT / "results" if at_home else out) / "README.md") as part:
            part.write_text(page(rows, folder, "atlas/" if at_home else ""))


if __name__ == "__main__":
    entry(main)
