"""results/kept.py: the runs of labelled arms: read, thinned, compared, in words, drawn.

An arm is a folder of runs, ARM/RUN/log.jsonl (.gz where it is thinned); presets.json of the data
folder names the arms of each study. figures.py is made of what is here. Rewards are means over the
evaluations in a window of C, by default the last quarter of the budget. Intervals are 90%, over
seeds and validation problems, of one seed over the problems alone (contrasts.py). Needs config.py,
core/, frontier.py, fit_sigmoid.py.
"""
import contextlib
import functools
import gzip
import json
import shutil
import sys
from pathlib import Path

import numpy as np

import config
import fit_sigmoid
import frontier
from config import aside, parse, read_log, save_json
from core import plots, sweep
from core.curves import alike, nearest
from core.plots import si
from core.runs import right as metric_of
from contrasts import SMALL, Missing, contrast, over_sweeps, shift

ROOT = Path(__file__).resolve().parent.parent

# what a thinned log has of a step: counters of its last, means of the rest
COUNTERS = "type step rollouts tokens wall_s".split()
AVERAGED = ("reward entropy kl grad_norm response_len frac_all_right frac_all_wrong "
            "gen_s train_s").split()
KEPT_STEPS = 64  # step records that a thinned log keeps, each the mean of its stretch
# windows of a run's budget C
EARLY, BEFORE, LATE, START = (0.06, 0.125), (0.5, 0.75), (0.75, 1.0), (-1, 0)
DEEP = 150    # updates: the paper's frontier goes to a larger n where that has made 155 to 264
FLAT = 0.01   # a run has flattened where its last quarter is surely no more above the one before

LRS = "_quarter", "_half", "_double"  # ARM_half is ARM at another lr_base
SPLITS = dict(  # of sample.py, by how their names begin; mix_hard holds what `extreme` validates
    extreme="Unsolved", mix_hard="Unsolved", mix_dual="half Unsolved, half Easy",
    mix_tri="50/25/25 Unsolved, Easy, Very Easy", level_easy="Easy", level_very_easy="Very Easy",
    easy="Easy", hard="Hard", mixed="a mixed set")


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
    if run and not (target / "difficulty.json").exists() and (found := difficulties(run)):
        save_json(target / "difficulty.json", found)
    # by name, not by run: where an arm's first runs were started by hand its sweep.json came later
    for path in source.glob("[!.]*/sweep.json"):
        if (target / path.parent.name).is_dir():
            shutil.copy(path, target / path.parent.name / "sweep.json")
    if (source / "pilot.json").exists():
        shutil.copy(source / "pilot.json", target / "pilot.json")
    size = sum(p.stat().st_size for p in target.rglob("*.gz"))
    kept = len(list(target.glob("*/*/log.jsonl.gz")))
    print(f"{target}: {new} runs added, {kept} in all, {size / 1e6:.1f} MB")


def difficulties(cfg):
    """dict(model, s, counts (s + 1,)): how many problems had c = 0..s of the base model's first s
    rollouts right, by sample.py's pass rates beside a run's problems; None where there are none."""
    correct = {}  # {problem: right of its first s}
    for rates in sorted(Path(cfg.get("train_set") or "").parent.glob("pass_rates*.jsonl")):
        correct |= {r["id"]: r["correct"] for r in read_log(rates) if r.get("samples") == cfg["s"]}
    if not correct:
        return None
    counts = np.bincount(list(correct.values()), minlength=cfg["s"] + 1)
    return dict(model=cfg["model"], s=cfg["s"], counts=counts)


@functools.cache
def read(path):
    """A run as a dict, None where its log has no header.

    config, evals {set: dict(C (E,), counts (E, P), samples)}, steps, passes, budget, end, seconds,
    path, data (a hash of its training problems), ended (it made its budget, or diverged behind an
    evaluation after its first update).
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
        budget=max(cfg["C"], end["rollouts"]),
        ended=end.get("status") in ("budget", "diverged") and any(
            e["C"][-1] > 0 for e in evals.values()),
        data=records[0].get("train_set_hash"), seconds=steps[-1].get("wall_s", 0) if steps else 0)


def usual(values):
    """The most frequent of some values, the first of several; None of nothing."""
    return max(values, key=values.count, default=None)


TOLD = set()  # arms that hold runs which are left out
USED = {}  # what the row at work has used: {a run's path: (run, up to which budget)}


def use(cells, C=None):
    """Note that the row at work uses the runs of {key: {seed: run}}, up to a budget."""
    for runs in cells.values():
        for run in runs.values():
            before = USED.get(run["path"], (run, 0))[1]
            USED[run["path"]] = run, max(before, min(C or run["budget"], run["budget"]))


class Atlas:
    """The arms below a folder; figures go to `out`.

    words: of the command line that asks for a study: its data folder, other n, B_p, seeds.
    own: the committed study of results/README.md, whose rows are held to more than the paper's
    figures are: what later seeds and other learning rates say.
    """

    def __init__(self, folder, out, words=(), own=False):
        self.folder, self.out, self.words, self.own = Path(folder), Path(out), list(words), own

    def asks(self, study):
        """{arm: its sweep's config} of a study, in the order of presets.json."""
        return {Path(cfg["runs"]).name: cfg for cfg in sweep.arms(study, self.words)}

    def there(self, study, **like):
        """The arms of a study that have runs here, of those whose config is `like` this."""
        return [name for name, cfg in self.asks(study).items() if (self.folder / name).is_dir()
                and all(cfg[key] == value for key, value in like.items())]

    def least(self, *names):
        """Seeds that a cell needs: two, where any cell of these arms has two."""
        runs = [read(path) for name in names for path in self.folder.glob(f"{name}/*/log.jsonl*")]
        seeds = {}
        for r in runs:
            if r and r["ended"]:
                cell = [r["config"][key] for key in ("B_p", "n", "lr_base")]
                seeds.setdefault(tuple(cell), set()).add(r["config"]["seed"])
        return min(2, max(map(len, seeds.values()), default=1))

    def lrs(self, name):
        """{lr_base: {(B_p, n): {seed: run}}} of an arm, smallest first; as `cells`."""
        runs = [read(path) for path in sorted((self.folder / name).glob("*/log.jsonl*"))]
        lrs = sorted({r["config"]["lr_base"] for r in runs if r and r["ended"]})
        return {lr: self.cells(name, lr) for lr in lrs}

    def cells(self, name, lr=None):
        """{(B_p, n): {seed: run}} of an arm's ended runs at one lr_base (None: that of most runs),
        cut to their usual budget.

        Left out: runs of another config, of other problems for their seed, of a smaller budget.
        """
        runs = [read(path) for path in sorted((self.folder / name).glob("*/log.jsonl*"))]
        runs = [r for r in runs if r and r["ended"]]
        lr = lr or usual([r["config"]["lr_base"] for r in runs])
        runs = [r for r in runs if r["config"]["lr_base"] == lr]
        experiments = [json.dumps(config.experiment(r["config"])) for r in runs]
        most = usual(experiments)
        others = len(experiments) - experiments.count(most)
        if others and name not in TOLD:  # such as another dtype: not to be compared, nor to be lost
            TOLD.add(name)
            print(f"{self.folder / name}: {others} of {len(experiments)} runs have another config "
                  "than the others, and are left out", file=sys.stderr)
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

    def arm(self, name, B_p=None, ns=(), lr=None, least=None):
        """{n: {seed: run}} of an arm's cells with enough seeds, at one B_p (that with most n).

        Only `ns` where given. Raises Missing.
        """
        least = least or self.least(name)
        cells = {key: runs for key, runs in self.cells(name, lr).items() if len(runs) >= least}
        B_p = B_p or usual([b for b, _ in cells])
        found = {n: runs for (b, n), runs in cells.items() if b == B_p and (not ns or n in ns)}
        if not found or set(ns) - set(found):
            these = f" with n = {', '.join(map(str, ns))}" if ns else ""
            raise Missing(f"runs of {name}{these}")
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


def level(name):
    """What problems a split or a set has, in words: easy_train, .../mix_hard_D140_seed0.jsonl."""
    stem = Path(name).stem
    return next((words for split, words in SPLITS.items() if stem.startswith(split)), stem)


def named(model):
    """A model in two words, as on a hub: the last two parts of its path."""
    return "/".join(Path(model).parts[-2:])


def titled(cfg):
    """What a run trains on, and by what where that is not GRPO."""
    return level(cfg["train_set"]) + f", {cfg['algo'].upper()}" * (cfg["algo"] != "grpo")


# --------------------------------------------------------------------------------------------------
# What is compared, and a comparison in words

def right(evaluation, metric, at=slice(None)):
    """(E, P): the metric of each problem at the evaluations `at` of one set of a run."""
    return metric_of(evaluation["counts"][at], metric, evaluation["samples"])


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
    """{key: (S, P)}: value(run, **how) of the seeds and up to the budget that all cells have.

    Raises Missing where they have no seed in common.
    """
    seeds = sorted(set.intersection(*(set(runs) for runs in cells.values())))
    if not seeds:
        raise Missing(f"a seed of all of {', '.join(map(str, cells))}")
    C = min(runs[seed]["budget"] for runs in cells.values() for seed in seeds)
    use({key: {seed: runs[seed] for seed in seeds} for key, runs in cells.items()}, C)
    out = {}
    for key, runs in cells.items():
        out[key] = np.array([value(runs[seed] | dict(budget=C), **how) for seed in seeds])
    return out


def gained(cells, **how):
    """What training gained: the best cell's mean at the end less the base model's.

    A yardstick: the row does not count these runs as used for it.
    """
    used = dict(USED)
    end, start = table_of(cells, **how), table_of(cells, window=START, **how)
    USED.clear()
    USED.update(used)
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
    how much its reward rises in the last quarter of the budget over the quarter before, at most).

    Deep: DEEP updates, or flat, with a rise of at most FLAT at the upper end of its interval, which
    is over seeds; where several cells have made so few, say of two lr_base, each of them is flat.
    The rise is None where a cell has one seed.
    """
    rises = {}
    updates = {path: C // (run["config"]["B_p"] * run["config"]["n"])
               for path, (run, C) in used.items()}
    M = min(updates.values())
    for path, m in updates.items():
        if m == M:
            run = used[path][0] | dict(budget=used[path][1])
            of_arm = Path(path).parent.parent, *(run["config"][key] for key in ("n", "lr_base"))
            of_cell = rises.setdefault(of_arm, [])
            with contextlib.suppress(Missing):
                before, last = (look(run, window=w).mean() for w in (BEFORE, LATE))
                of_cell.append(last - before)
    rise = None
    if min(map(len, rises.values())) > 1:
        rise = max(c["gain"] + c["half"] for c in map(over_sweeps, rises.values()))
    return M, M >= DEEP or (rise is not None and rise <= FLAT), rise


def depth(runs):
    """`fewest_updates` of whole runs."""
    return fewest_updates({run["path"]: (run, run["budget"]) for run in runs})


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
    """(words, contrast) of the largest n less the smallest. Raises Missing for one n."""
    a, b = max(table), min(table)
    if a == b:
        raise Missing(f"another n than {a}")
    c = contrast(table, {a: 1, b: -1})
    return f"n = {a} less n = {b}: {points(c)}", c


def points(c, sign=1):
    """A contrast as text, in points: 100 times the reward."""
    return f"{sign * 100 * c['gain']:+.1f} ± {100 * c['half']:.1f}"


def means(table):
    """The mean of each cell as text."""
    return ", ".join(f"{key} {t.mean():.3f}" for key, t in table.items())


def grid_text(heads, rows):
    """A table in Markdown, padded, so that it reads well in a terminal too."""
    cells = [[str(x) for x in row] for row in (heads, *rows)]
    wide = [max(map(len, column)) for column in zip(*cells)]
    lines = [f"| {' | '.join(x.ljust(w) for x, w in zip(row, wide))} |" for row in cells]
    lines.insert(1, f"|{'|'.join('-' * (w + 2) for w in wide)}|")
    return "\n".join(lines)


def says_near(table):
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
        text += (f"the latter less the former {points(c['loses'], -1)} {first}, "
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
    """A colour for one of some keys, from dark to light: numbers by size, words as they come."""
    import matplotlib
    keys = list(keys) if isinstance(key, str) else sorted(keys)
    return matplotlib.colormaps["viridis"](0.95 * keys.index(key) / max(len(keys) - 1, 1))


def over(ax, x="C, rollouts", **labels):
    """Log axis of budgets, labelled at 1, 2 and 5 times powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
    ax.set(xscale="log", xlabel=x, **labels)
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: si(value)))
    ax.xaxis.set_minor_formatter(NullFormatter())


def curves(cells, title="", metric="avg@4", of="val", label="n = {}", among=(), dashed=()):
    """A panel: reward over C, the mean over seeds of each cell thick, its seeds thin; of one seed
    with a band, 90% over the problems.

    among: the keys of all panels, so that a key has one colour in all of them. dashed: keys. The
    base model, at C = 0, has no place on the axis: it is a dotted line.
    """
    def draw(ax):
        base = []
        for key, runs in cells.items():
            shade, of_seeds = colour(key, among or cells), []
            for run in runs.values():
                if of not in run["evals"]:
                    raise Missing(f"evaluations of {of}")
                e = run["evals"][of]
                within = e["C"] <= run["budget"] * (1 + 1e-9)
                at, solved = e["C"][within], right(e, metric)[within]  # (E,), (E, P)
                of_seeds.append((at[1:], solved[1:]))
                base.append(solved[0].mean())
                ax.plot(at[1:], solved[1:].mean(1), color=shade, lw=0.7, alpha=0.5)
            C = np.array(sorted(set.intersection(*(set(c.tolist()) for c, _ in of_seeds))))
            each = np.mean([solved[np.isin(c, C)] for c, solved in of_seeds], 0)  # (E, P)
            if len(of_seeds) == 1:
                half = 1.645 * each.std(1, ddof=1) / each.shape[1] ** 0.5
                ax.fill_between(C, each.mean(1) - half, each.mean(1) + half, color=shade,
                                alpha=0.15, lw=0)
            ax.plot(C, each.mean(1), "--" if key in dashed else "-", color=shade, lw=2,
                    label=label.format(key))
        ax.axhline(np.mean(base), color="0.3", ls=":", lw=1.2, label="base model")
        over(ax, ylabel=f"validation {metric}", title=title)  # of which set is in the title
        legend(ax, draw.below)
    draw.below = 2 * (len(cells) > 3)
    return draw


def legend(ax, below=0):
    """A legend, where it hides least, or in `below` columns below the panel: one of many entries
    would lie on the curves."""
    place = dict(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=below) if below else {}
    ax.legend(fontsize=9, **place)


def training(cells, field, title="", label="{}"):
    """A panel: a field of the step records over C, a line a run."""
    def draw(ax):
        for key, runs in cells.items():
            for i, run in enumerate(runs.values()):
                C = [r["rollouts"] for r in run["steps"]]
                y = [np.nan if r.get(field) is None else r[field] for r in run["steps"]]
                ax.plot(C, y, color=colour(key, cells), lw=0.9, alpha=0.7,
                        label=None if i else label.format(key))
        over(ax, ylabel=field, title=title)
        legend(ax, draw.below)
    draw.below = 2 * (len(cells) > 3)
    return draw


def figure(atlas, name, panels, width=4.6, height=3.7, sharey=False, across=None):
    """Draw panels, three (of four: two) in a row, into NAME.png in atlas.out; returns its name."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    across = across or (2 if len(panels) == 4 else min(3, len(panels)))
    down = -(-len(panels) // across)
    height += 0.9 * any(getattr(panel, "below", 0) for panel in panels)
    fig, axes = plt.subplots(down, across, figsize=(width * across, height * down), squeeze=False,
                             sharey=sharey)
    for ax in axes.flat[len(panels):]:
        ax.axis("off")
    for ax, panel in zip(axes.flat, panels):
        panel(ax)
    fig.tight_layout()
    plots.write(fig, atlas.out / f"{name}.png")
    return f"{name}.png"


# --------------------------------------------------------------------------------------------------
# A sweep through frontier.py and fit_sigmoid.py. All that the rows take from these two is here.

@functools.cache
def analysed(folders, unit="rollouts", lr=None, cells=None, even=False):
    """A sweep as frontier.py has it, from one folder or several with spaces between, at one lr_base
    (None: the one that frontier.py takes), of all cells or of a frozenset of (B_p, n). even: of the
    seeds and up to the budget that all of them have."""
    cfg = parse([f"--runs={folders}", f"--unit={unit}"])
    sweep = frontier.analyse(cfg, "val")
    if lr in (None, sweep["lr"]) and cells is None:
        return sweep
    runs = [run for c in sweep["every"] for run in c["runs"] if run["lr"] == (lr or sweep["lr"])
            and (cells is None or (run["B_p"], run["n"]) in cells)]
    if even:
        C = min(run["rollouts"][-1] for run in runs)
        runs = [shortened(run, C) for run in frontier.of_shared_seeds(runs)]
    return frontier.analyse(cfg, "val", runs, sweep["dropped"])


def shortened(run, C):
    """A run as frontier.py reads it, up to C rollouts."""
    keep, each = run["rollouts"] <= C, ("C", "rollouts", "step", "counts", "reward")
    return run | {key: run[key][keep] for key in each if run[key] is not None} | dict(
        config=run["config"] | dict(C=int(C)))


@functools.cache
def panel_of(folders, unit="rollouts", lr=None):
    """The panel of --view=paper (one B_p, that with most runs) of a sweep, as `analysed`, with its
    cells, grid and the law of its records."""
    sweep = analysed(str(folders), unit, lr)
    panels = frontier.paper(sweep, sweep["cfg"])["panels"]
    panel = max(panels.values(), key=lambda panel: len(panel["runs_used"]))
    cells = frontier.by_B_p(sweep["cells"])[panel["B_p"]]
    return panel | dict(cells=cells, grid=sweep["grid"],
                        law=fit_sigmoid.law_of_records(panel["records"]))


def view_figure(atlas, view, name, arms, cells=None):
    """NAME.png: a view of frontier.py over the runs of several arms, of all or of some (B_p, n),
    these as far as all of them go: (the file's name, what it shows)."""
    cells = frozenset(cells) if cells else None
    folders = " ".join(str(atlas.folder / arm) for arm in arms)
    sweep = analysed(folders, cells=cells, even=cells is not None)
    content, draw, _ = frontier.VIEWS[view]
    front = frontier.front_of(sweep, view, content(sweep, sweep["cfg"]), sweep["cfg"])
    front["missing"] = [] if cells else front["missing"]  # the others are left out, not missing
    draw(front, atlas.out / f"{name}.png")
    return f"{name}.png", front


def law_of(panel):
    """(verdict, words) on the law of a panel: agree with a rise, disagree with none or a fall. The
    words have its switches of n and the numbers of the paper's fit."""
    gained = max(panel["envelope"]["highest"]) - (panel["base"] or 0)
    law = fit_sigmoid.law_of_panel(panel, panel["cells"], panel["grid"], SMALL * gained)
    falls = law["verdict"] == "flat" or law["reason"].startswith("n* falls")
    verdict = "agree" if law["verdict"] == "law" else "disagree" if falls else "undecided"
    turns = panel["switches"]
    said = ", ".join(f"{s['to']} from {si(s['C'])} [{si(s['lo']) if s['lo'] else 'open'}, "
                     f"{si(s['hi']) if s['hi'] else 'open'}]" for s in turns)
    if len(turns) > len(panel["ns"]):  # back and forth
        said = f"{len(turns)} switches back and forth"
    words = f"fit_sigmoid.py: {law['verdict']}; n* by the curves: {said or 'one n throughout'}"
    if law["plateau"]["value"]:
        words += (f"; the paper's law has k = {law['k']['value']:.1f} a decade, plateau "
                  f"{law['plateau']['value']:.0f}")
    if law["behind"] is not None:
        words += (f"; no n is better than n = {law['constant']} by more than "
                  f"{100 * law['behind']:.1f} at any budget (95%)")
    return verdict, words


def n_star_panel(panel, unit="rollouts"):
    """A panel of a figure, as the paper's Figure 7: running averages of n over the pooled
    record-breaking points, coloured by reward, and the paper's law through them; behind them the
    best n and its equals."""
    def draw(ax):
        env, rec, law = panel["envelope"], panel["records"], panel["law"]
        for i, at in enumerate(panel["near"]):
            ax.plot([at["C"]] * len(at["set"]), [n for _, n in at["set"]], "s", color="0.8", ms=4,
                    label=None if i else "indistinguishable from the best (90%)")
        ax.step(env["C"], env["n"], where="post", color="0.3", lw=1.5, label="best n")
        dots = ax.scatter(rec["C"], 2.0 ** np.array(rec["log2_n_mean"]), s=22, c=rec["reward"],
                          zorder=3, label="records: running average of n, by reward")
        ax.figure.colorbar(dots, ax=ax)
        if law is not None:
            C = np.geomspace(rec["C"][0], rec["C"][-1])
            numbers = f"k = {law['fit']['k']:.1f}, plateau {law['fit']['plateau']:.0f}"
            numbers += ", not determined" * (law["verdict"] != "law")
            ax.plot(C, 2 ** fit_sigmoid.law_at(law["fit"], C), color="C3", lw=1.5,
                    label=f"the paper's law: {numbers}")
        ax.set_yscale("log")
        over(ax, f"C, {unit}", ylabel="n", title=f"n*(C), C in {unit}")
        ax.set_yticks(panel["ns"], panel["ns"])
        ax.minorticks_off()
        legend(ax, 1)
    return draw


def law_figure(atlas, task, panel, cells):
    """Curves, frontier and n*(C) of an arm's panel, each run of {n: runs} thin behind its curve;
    returns the file's name."""
    def top(ax):
        for n in (n for n in cells if n in panel["ns"]):
            for e in (run["evals"]["val"] for run in cells[n].values()):
                ax.plot(e["C"][1:], right(e, "avg@4").mean(1)[1:], lw=0.6, alpha=0.5,
                        color=colour(n, panel["ns"]))
        for c in (c for c in panel["curves"] if c["n"] in cells):
            shade, (M, deep, _) = colour(c["n"], panel["ns"]), depth(cells[c["n"]].values())
            words = f"n = {c['n']}" + f", {M} updates: too few" * (not deep)
            ax.plot(c["C"], c["reward"], color=shade, lw=2, label=words)
            ax.fill_between(c["C"], c["lo"], c["hi"], color=shade, alpha=0.07, lw=0)
        ax.plot(panel["records"]["C"], panel["records"]["reward"], "kD", ms=3, mfc="none",
                label="record-breaking points")
        cfg = config_of(cells)
        over(ax, ylabel="validation avg@4", title=f"{titled(cfg)}, B_p = {panel['B_p']}, "
             f"lr_base {cfg['lr_base']:g}, {len(panel['runs_used'])} runs")
        legend(ax, 2)

    return figure(atlas, f"law_{task}", [top, n_star_panel(panel)], width=5, height=4.6)


def shared_best(panel):
    """(C (G,), the best n (G,)) at the budgets that all n of a panel reached."""
    js, cells, _ = fit_sigmoid.shared_budgets(panel["cells"], panel["grid"])
    if not len(js):
        raise Missing("budgets that all n share")
    ns = np.array([c["n"] for c in cells])
    return panel["grid"][js], ns[np.argmax([c["Y"][js] for c in cells], 0)]


def ends_of(panel):
    """[(best n, [n indistinguishable from it])] at both ends of the budgets that all n share."""
    C, best = shared_best(panel)
    out = []
    for i in (0, -1):
        same = alike(panel["cells"], nearest(panel["grid"], C[i]))
        out.append((best[i], [c["n"] for c, ok in zip(panel["cells"], same) if ok]))
    return out
