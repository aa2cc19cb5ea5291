"""results/arms.py: functions that read, compare, describe and draw the runs of arms.

An arm is a named folder of runs, ARM/RUN/log.jsonl. A thinned copy of a log ends in .gz.
presets.json of the data folder names the arms of each study. A reward is a mean over the
evaluations in a window of C, by default the last quarter of the budget. Intervals are 90%, over
seeds and validation problems, or over problems only if there is one seed (core/stats.py).
"""
import functools
import gzip
import json
import shutil
import sys
from collections import Counter
from pathlib import Path

import numpy as np

import frontier
from config import BadInput
from core.log import atomic_write, read_log, read_plan
from core import sweep
from core.plots import budget_axis, canvas, colours, format_si, legend, plural, wrap, write
from core.runs import comparable, ended, metric_per_problem, read_run
from core.stats import ALPHA, SMALL, Missing, cells_of, contrast, shift, verdict_of

ROOT = Path(__file__).resolve().parent.parent

# In a thinned log a step record covers several updates. Its fields in COUNTERS have the value of
# the last of these updates. Its fields in AVERAGED have the mean over them
COUNTERS = "type step rollouts tokens wall_s".split()
AVERAGED = ("reward entropy kl grad_norm response_len frac_all_right frac_all_wrong "
            "gen_s train_s").split()
KEPT_STEPS = 64  # a thinned log has at most this many step records

# Windows (lo, hi] of evaluations, as shares of a run's budget C
EARLY, MIDDLE, LATE, START = (0.06, 0.125), (0.3, 0.5), (0.75, 1.0), (-1, 0)
# A cell with fewer than DEEP updates is drawn but not judged, because in the paper a larger n takes
# the lead after 155 to 264 updates
DEEP = 150

LRS = "_quarter", "_half", "_double"  # suffixes: easy_half is the arm easy at half its lr_base

# {start of the name of a split or of a problem file: what figures call its problems}. sample.py
# writes these files, except AIME24's
SPLITS = dict(
    extreme="Unsolved", mix_hard="Unsolved", mix_dual="half Unsolved, half Easy",
    mix_tri="50/25/25 Unsolved, Easy, Very Easy", level_easy="Easy", level_very_easy="Very Easy",
    easy="Easy", hard="Hard", mixed="a mixed set", aime24="AIME24")


# --------------------------------------------------------------------------------------------------
# Thinned copies

def thin(records):
    """Return the records of a finished log, with at most KEPT_STEPS step records.

    Each step record that is returned stands for several updates, see COUNTERS and AVERAGED.
    """
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
    """Write thinned copies of the ended runs of source/ARM/ to target/ARM/, with their sweep.json.
    A copy that already reaches the end of its run is not written again."""
    new = 0
    for path in sorted(source.glob("[!.]*/*/log.jsonl")):
        copy = target / path.parent.relative_to(source) / "log.jsonl.gz"
        reached = read_log(copy)[-1].get("rollouts", -1) if copy.exists() else -1
        records = read_log(path)
        if records and ended(dict(status=records[-1].get("status", ""))) \
                and records[-1]["rollouts"] > reached:
            text = "".join(json.dumps(r, separators=(",", ":")) + "\n" for r in thin(records))
            with atomic_write(copy) as part:
                part.write_bytes(gzip.compress(text.encode(), 9, mtime=0))  # reproducible bytes
            new += 1
    # sweep.json is copied each time, because it changes if its sweep is extended
    for path in source.glob("[!.]*/sweep.json"):
        if (target / path.parent.name).is_dir():
            shutil.copy(path, target / path.parent.name / "sweep.json")
    size = sum(p.stat().st_size for p in target.rglob("*.gz"))
    kept = len(list(target.glob("*/*/log.jsonl.gz")))
    print(f"{target}: {new} runs added, {kept} in all, {size / 1e6:.1f} MB")


# --------------------------------------------------------------------------------------------------
# Runs

@functools.cache
def read(path, part="val", unit="rollouts", metric="avg@4"):
    """Return the run that core.runs.read_run reads from a folder, or None if it cannot be used.

    The keys `path` and `budget` (in rollouts) are added to the run.
    """
    try:
        run = read_run(Path(path), metric, unit, part)
    except BadInput:
        return None
    # if a run was continued to a larger C, its header still has the first C
    return run | dict(path=path, budget=max(run["config"]["C"], int(run["rollouts"][-1])))


def most_frequent(values):
    """Return the most frequent value, or None if there are no values. If several values tie,
    return the first."""
    return max(values, key=values.count, default=None)


# Names of the arms whose dropped runs were reported. `Atlas.runs` reports each arm only once
REPORTED = set()

# {path: (run, budget)} of the runs that the current row of the table has used
USED = {}


def note_used(cells):
    """Note in USED that the current row uses the runs of `cells`, {key: {seed: run}}."""
    for run in flat(cells):
        USED[run["path"]] = run, max(run["budget"], USED.get(run["path"], (run, 0))[1])


class Atlas:
    """The arms in `folder`, with the folder `out` for figures.

    words: command-line words that change a study, such as its data folder, n, B_p or seeds.
    own: True for the committed study of results/README.md. Two rules hold only for this study:
    a verdict needs an lr tuned for each n, and the seeds that suggested a claim do not judge it.
    drawn: {figure: (its panels, the runs that it shows)} for the figures drawn until now.
    """

    def __init__(self, folder, out, words=(), own=False):
        self.folder, self.out, self.words, self.own = Path(folder), Path(out), list(words), own
        self.drawn = {}

    def configs(self, study):
        """Return {arm: its sweep's config} of a study, in the order of presets.json."""
        return {Path(cfg["runs"]).name: cfg for cfg in sweep.arms(study, self.words)}

    def present(self, study, **like):
        """Return the names of the arms of a study that have runs in this folder.

        like: values, by key, that the config of an arm must have.
        """
        return [name for name, cfg in self.configs(study).items() if (self.folder / name).is_dir()
                and all(cfg[key] == value for key, value in like.items())]

    def runs(self, name):
        """Return the ended runs of an arm.

        Runs whose settings or problems differ from those of the arm's sweep are left out, and the
        first call for an arm reports them.
        """
        folder = self.folder / name
        found = [read(str(path.parent)) for path in sorted(folder.glob("*/log.jsonl*"))]
        runs, dropped = comparable([run for run in found if run and ended(run)],
                                   [read_plan(folder)])
        if dropped and name not in REPORTED:
            REPORTED.add(name)
            print(f"{folder}: {len(dropped)} of {len(found)} runs are left out, such as "
                  f"{dropped[0]['run']}: {dropped[0]['why']}", file=sys.stderr)
        return runs

    def min_seeds(self, *names):
        """Return how many seeds each cell needs in these arms: 2 if any cell has two, else 1."""
        seeds = {}
        for run in (run for name in names for run in self.runs(name)):
            seeds.setdefault((run["B_p"], run["n"], run["lr"]), set()).add(run["seed"])
        return min(2, max(map(len, seeds.values()), default=1))

    def lrs(self, name):
        """Return {lr_base: {(B_p, n): {seed: run}}} of an arm, sorted by lr_base."""
        return {lr: self.cells(name, lr) for lr in sorted({r["lr"] for r in self.runs(name)})}

    def cells(self, name, lr=None):
        """Return {(B_p, n): {seed: run}} of an arm at the lr_base `lr`.

        If `lr` is None, the most frequent lr_base is used. Runs are cut to their most frequent
        budget, and shorter runs are left out.
        """
        runs = self.runs(name)
        lr = lr or most_frequent([run["lr"] for run in runs])
        runs = [run for run in runs if run["lr"] == lr]
        C, out = most_frequent([run["budget"] for run in runs]), {}
        for run in sorted(runs, key=lambda run: (run["B_p"], run["n"], run["seed"])):
            if run["budget"] >= C:
                out.setdefault((run["B_p"], run["n"]), {})[run["seed"]] = run | dict(budget=C)
        return out

    def arm(self, name, B_p=None, ns=(), lr=None, least=None):
        """Return {n: {seed: run}} of an arm at one B_p, with only the cells that have enough seeds.

        B_p: None for the B_p that has the most values of n. ns: take only these n, or all if `ns`
        is empty. least: the number of seeds that a cell needs. Raise Missing if no cell is left, or
        if an n in `ns` has no cell.
        """
        least = least or self.min_seeds(name)
        cells = {key: runs for key, runs in self.cells(name, lr).items() if len(runs) >= least}
        B_p = B_p or most_frequent([b for b, _ in cells])
        found = {n: runs for (b, n), runs in cells.items() if b == B_p and (not ns or n in ns)}
        if not found or set(ns) - set(found):
            these = f" with n = {', '.join(map(str, ns))}" if ns else ""
            raise Missing(f"runs of {name}{these}")
        return found


def flat(cells):
    """Return the runs of {key: {seed: run}} as a list."""
    return [run for runs in cells.values() for run in runs.values()]


def budget_of(cells):
    """Return the smallest budget of the runs of {key: {seed: run}}."""
    return min(run["budget"] for run in flat(cells))


def cut(cells, C=None):
    """Return {key: {seed: run}} with its runs cut to the budget C (None: the smallest budget)."""
    C = C or budget_of(cells)
    return {key: {seed: run | dict(budget=C) for seed, run in runs.items()}
            for key, runs in cells.items()}


def config_of(cells):
    """Return the config of the first run of {key: {seed: run}}."""
    return flat(cells)[0]["config"]


def one_cell(atlas, arm):
    """Return {seed: run} of the cell with the smallest n of an arm."""
    return next(iter(atlas.arm(arm).values()))


def level(name):
    """Return the level, such as "Easy", of a split or a problem file, such as easy_train or
    .../mix_hard_D140_seed0.jsonl."""
    stem = Path(name).stem
    return next((title for split, title in SPLITS.items() if stem.startswith(split)), stem)


def titled(cfg):
    """Return a title for a run: its training problems, its B_p, and its algorithm if not GRPO."""
    text = level(cfg["train_set"]) + f", {cfg['algo'].upper()}" * (cfg["algo"] != "grpo")
    return f"{text}, B_p = {cfg['B_p']}"


# --------------------------------------------------------------------------------------------------
# Rewards, and comparisons of them

def of_set(run, name):
    """Return a run with its evaluations on the validation set `name` instead of on "val"."""
    if name == "val":
        return run
    found = read(run["path"], name)
    if not found:
        raise Missing(f"evaluations of {name}")
    return found | dict(budget=run["budget"])


def rewards(run, metric="avg@4", of="val", window=LATE):
    """Return the metric of each validation problem (P,), averaged over the evaluations in a window.

    window: (lo, hi) takes the evaluations after lo C and up to hi C. of: the validation set. If the
    run diverged before the window, return the metric at its last evaluation.
    """
    e, C = of_set(run, of), run["budget"]
    at = (e["C"] > window[0] * C) & (e["C"] <= window[1] * C * (1 + 1e-9))
    if not at.any():
        if run["status"] != "diverged":
            raise Missing(f"evaluations of {of} in that window")
        at = e["C"] == e["C"][-1]
    return metric_per_problem(e["counts"][at], metric, e["samples"]).mean(0).astype(float)


def step_mean(run, field, window=LATE):
    """Return the mean of a field of a run's step records, as an array (1,).

    window: (lo, hi) takes the updates after lo C and up to hi C.
    """
    lo, hi = (share * run["budget"] for share in window)
    C, values = run["steps"]["rollouts"], run["steps"].get(field)
    values = [] if values is None else values[(lo < C) & (C <= hi) & np.isfinite(values)]
    if not len(values):
        raise Missing(f"{field} in the step records of that window")
    return np.array([np.mean(values)])


def table_of(cells, value=rewards, **how):
    """Return {key: array (S, P)} for `cells`, {key: {seed: run}}.

    Only the S seeds that all cells have are used, and their runs are cut to the smallest budget
    among these runs. A row of an array is value(run, **how) for one seed. Raise Missing if the
    cells share no seed.
    """
    seeds = sorted(set.intersection(*(set(runs) for runs in cells.values())))
    if not seeds:
        raise Missing(f"a seed that all of {', '.join(map(str, cells))} have")
    cells = cut({key: {seed: runs[seed] for seed in seeds} for key, runs in cells.items()})
    note_used(cells)
    return {key: np.array([value(run, **how) for run in runs.values()])
            for key, runs in cells.items()}


def gained(cells, **how):
    """Return the gain of training: the best cell's mean at the end minus the base model's mean.

    The gain only sets the scale of a verdict, so the runs read here are not added to USED.
    """
    used = dict(USED)
    end, start = table_of(cells, **how), table_of(cells, window=START, **how)
    USED.clear()
    USED.update(used)
    return max(t.mean() for t in end.values()) - np.mean([t.mean() for t in start.values()])


def shift_of(cells, n_of=int):
    """Return the result of core.stats.shift: does the best n rise from the window EARLY to LATE?

    cells: {key: {seed: run}}. n_of(key): the n of a key.
    """
    early, late = (table_of(cells, window=window) for window in (EARLY, LATE))
    return shift(early, late, gained(cells), n_of)


def updates(run, C=None):
    """Return M, the number of updates that a run makes with a budget C (None: its own budget)."""
    return int((C or run["budget"]) // (run["config"]["B_p"] * run["config"]["n"]))


def deep_cells(cells, name="n = {}"):
    """Return (the deep cells, a sentence that names the other cells).

    A deep cell makes DEEP updates or more. If fewer than two cells are deep, all cells are
    returned. In that case atlas.py gives the row the verdict underpowered.
    """
    M = {key: updates(flat({key: runs})[0]) for key, runs in cells.items()}
    kept = {key: runs for key, runs in cells.items() if M[key] >= DEEP}
    if len(kept) < 2 or len(kept) == len(cells):
        return cells, ""
    left = ", ".join(name.format(key) for key in cells if key not in kept)
    return kept, f". Drawn but not judged, because they make fewer than {DEEP} updates: {left}"


# --------------------------------------------------------------------------------------------------
# Does the best n rise? Here the test core.stats.verdict_of becomes the verdict of a table row

def shortened(run, C):
    """Return a run cut to C rollouts."""
    kept, fields = run["C"] <= C * (1 + 1e-9), ("C", "rollouts", "step", "counts", "reward")
    return run | {key: run[key][kept] for key in fields} | dict(
        config=run["config"] | dict(C=min(int(C), run["config"]["C"])))


def rises_in(groups):
    """Return {key: the dict of core.stats.verdict_of} for groups {key: {n: {seed: run}}}.

    Each group has one lr_base. The groups are cut to the same budget, and their noise is estimated
    together. `verdict_of` gets delta = SMALL times the group's gain of training: a group's verdict
    is flat only if one n loses less than delta at every budget.
    """
    cells = {(key, n): runs for key, group in groups.items() for n, runs in group.items()}
    note_used(cut(cells))
    runs = [shortened(run, budget_of(cells)) for run in flat(cells)]
    grid, every = cells_of(runs, "avg@4")
    out = {}
    for key, group in groups.items():
        paths = {run["path"] for run in flat(group)}
        of_group = [c for c in every if {run["path"] for run in c.runs} <= paths]
        out[key] = verdict_of(of_group, grid, SMALL * gained(group))
        if out[key]["p"] is None:
            raise Missing("other runs, because " + out[key]["reason"])
    return out


def law_verdict(v, ns):
    """Return the verdict on the claim "n* rises".

    v: the result of core.stats.verdict_of for the n in `ns`. The first of these that holds:
      confirmed     the test shows a rise of n* and no fall
      contradicted  the test shows a fall of n* and no rise
      contradicted  one n is good enough at every budget (if it is the smallest in `ns`, it must
                    be 2, because a rise from a smaller n that has no runs would not show)
      underpowered  in all other cases
    """
    if min(v["p"], v["p_falls"]) <= ALPHA < max(v["p"], v["p_falls"]):
        return "confirmed" if v["p"] <= ALPHA else "contradicted"
    censored = v["n_flat"] == min(ns) and min(ns) > 2
    return "contradicted" if v["verdict"] == "flat" and not censored else "underpowered"


# --------------------------------------------------------------------------------------------------
# Text

def rise_text(v):
    """Return `v`, a result of core.stats.verdict_of, as text.

    The text has p for a rise, p for a fall, and the n tied with the best in the first and in the
    last window. It also has n_flat, the n to use if every budget must have the same n, and the most
    that n_flat may lose at any budget.
    """
    first, last = (", ".join(map(str, v["sets"][i])) for i in (0, -1))
    return (f"p = {v['p']:.3f} for a rise, {v['p_falls']:.3f} for a fall; best n {first} from "
            f"C = {format_si(v['windows'][0][0])}, {last} to {format_si(v['windows'][-1][1])}; "
            f"n = {v['n_flat']} throughout loses at most {100 * max(v['regret'], 0):.1f}")


def points(c, sign=1):
    """Return a contrast as text, in points: 100 times the reward."""
    return f"{sign * 100 * c['gain']:+.1f} ± {100 * c['half']:.1f}"


def means_text(table):
    """Return the mean of each cell as text."""
    return ", ".join(f"{key} {t.mean():.3f}" for key, t in table.items())


def markdown(heads, rows):
    """Return a table in Markdown, padded so that a terminal shows it well."""
    cells = [[str(x) for x in row] for row in (heads, *rows)]
    wide = [max(map(len, column)) for column in zip(*cells)]
    lines = [f"| {' | '.join(x.ljust(w) for x, w in zip(row, wide))} |" for row in cells]
    lines.insert(1, f"|{'|'.join('-' * (w + 2) for w in wide)}|")
    return "\n".join(lines)


def top_and_ties(table):
    """Return (the n with the highest mean, the n tied with that n in pairwise comparisons)."""
    top = max(table, key=lambda n: table[n].mean())
    gaps = {n: contrast(table, {top: 1, n: -1}) for n in sorted(table) if n != top}
    return top, [n for n, c in gaps.items() if c["gain"] <= c["half"]]


def best_text(table):
    """Return `top_and_ties` as text."""
    top, ties = top_and_ties(table)
    text = f"n = {top} is best ({table[top].mean():.3f})"
    return f"{text}, indistinguishable from {', '.join(map(str, ties))}" if ties else text


def choices_text(chosen):
    """Return `chosen`, the value that each fold of a cross-validation chose, as text.

    Example: "8" if all folds chose 8, "8 or 2" if most folds chose 8 and the others 2.
    """
    return " or ".join(map(str, sorted(set(chosen), key=lambda x: (-chosen.count(x), str(x)))))


def shift_text(c, names=("early", "at the end"), what="n"):
    """Return `c`, a result of core.stats.shift, as text.

    names: the names of the two conditions that are compared. what: the name of the quantity whose
    best value is compared, such as "n" or "B_p".
    """
    first, second = names
    text = f"best {what} {first} {choices_text(c['a'])}, {second} {choices_text(c['b'])}; "
    if c["a"] != c["b"]:
        text += (f"the second minus the first: {points(c['loses'], -1)} {first}, "
                 f"{points(c['gains'])} {second}; ")
    text += f"keeping {what} = {c['flat']}"
    if c["censored"]:
        text += ", the smallest tried,"
    return f"{text} costs at most {100 * max(c['worst'], 0):.1f}"


# --------------------------------------------------------------------------------------------------
# Figures. A panel is a function that draws on the matplotlib axis it is given

def curves(cells, title="", metric="avg@4", of="val", label="n = {}", unit="rollouts", name=""):
    """Return a panel of reward over C: a thick line for the mean of each cell, a thin one per seed.

    unit: "updates" draws the reward over M instead. name: what the label of the y axis calls the
    problems, such as "validation". The base model is a dotted line across the panel, because a log
    axis has no C = 0.
    """
    style, name = styles(cells), name or ("validation" if of == "val" else level(of))

    def draw(ax):
        base = []
        for key, runs in cells.items():
            of_seeds = []
            for run in runs.values():
                e = of_set(run, of)
                within = e["C"] <= run["budget"] * (1 + 1e-9)
                x = e["step" if unit == "updates" else "C"][within][1:]
                start, *y = metric_per_problem(e["counts"][within], metric, e["samples"]).mean(1)
                of_seeds.append(dict(zip(x, y)))
                base.append(start)
                ax.plot(x, y, lw=0.7, alpha=0.5, color=style[key]["color"])
            shared = sorted(set.intersection(*map(set, of_seeds)))
            ax.plot(shared, [np.mean([y[at] for y in of_seeds]) for at in shared], lw=2,
                    label=label.format(key), **style[key])
        ax.axhline(np.mean(base), color="0.3", ls=":", lw=1.2, label="base model")
        ax.set(ylabel=f"{name} {metric}", title=title)
        budget_axis(ax, x[0], x[-1], unit)
    return draw


def styles(keys):
    """Return {key: dict(color, ls)}, the style of each key's line.

    A key n has the colour of n. A key (n, lr_base) has the colour of n, and a dashed line if
    lr_base is not the most frequent one. Other keys are spread over all colours.
    """
    keys = list(keys)
    if isinstance(keys[0], tuple):
        lrs = [lr for lr, _ in Counter(lr for _, lr in keys).most_common()]
        dashes = dict(zip(lrs, ("-", "--", "-.", ":")))
        return {(n, lr): dict(color=colours([n])[n], ls=dashes[lr]) for n, lr in keys}
    shade = colours(keys) if isinstance(keys[0], int) else dict(
        zip(keys, colours(2 ** np.linspace(1, 11, len(keys))).values()))
    return {key: dict(color=shade[key], ls="-") for key in keys}


def training(cells, field, title="", label="{}", name=""):
    """Return a panel of a field of the step records over C, with a line for each run.

    name: the label of the y axis.
    """
    style = styles(cells)

    def draw(ax):
        for key, runs in cells.items():
            for run in runs.values():
                C = run["steps"]["rollouts"]
                y = run["steps"].get(field, np.full(len(C), np.nan))
                ax.plot(C, y, lw=0.9, alpha=0.7, **style[key])
            ax.plot([], [], lw=2, label=label.format(key), **style[key])
        ax.set(ylabel=name or field, title=title)
        budget_axis(ax, C[0], C[-1], "rollouts")
    return draw


def figure(atlas, name, panels, title, across=3, note=""):
    """Draw panels, `across` in a row, into NAME.png in atlas.out, and return the file's name.

    title: the quantity and the problems. Small print below the figure names the runs that the
    current row has used, followed by `note`.
    """
    atlas.drawn[name] = panels, dict(USED)
    across = min(across, len(panels))
    down = -(-len(panels) // across)
    fig, axes = canvas(down, across, (max(4.8 * across, 6.4), 3.9 * down + 0.9))
    for ax in axes.flat[len(panels):]:
        ax.axis("off")
    for ax, panel in zip(axes.flat, panels):
        panel(ax)
        ax.title.set_fontsize(10)
    legend(fig, axes.flat[:len(panels)])
    title = title.replace("$B_p$", "B_p").replace("B_p", "$B_p$")
    fig.suptitle(wrap(title, int(9 * fig.get_figwidth())), fontsize=12)
    write(fig, atlas.out / f"{name}.png", "; ".join(filter(None, [runs_text(), note])))
    return f"{name}.png"


def runs_text():
    """Describe the runs that the current row has used as text: their number, seeds and budget."""
    if not USED:
        return ""
    seeds = sorted({run["config"]["seed"] for run, _ in USED.values()})
    C = max(C for _, C in USED.values())
    return f"{plural(len(USED), 'run')}, seeds {', '.join(map(str, seeds))}, to C = {format_si(C)}"


# --------------------------------------------------------------------------------------------------
# A sweep through frontier.py

def analysed(cells, unit="rollouts", metric="avg@4"):
    """Return the dict of frontier.analyse for the runs in `cells`, a {key: {seed: run}}."""
    how = () if (unit, metric) == ("rollouts", "avg@4") else ("val", unit, metric)
    runs = [read(run["path"], *how) for run in flat(cells)]
    folders = dict.fromkeys(str(Path(run["path"]).parent) for run in runs)
    cfg = frontier.settings([f"--runs={' '.join(folders)}", f"--unit={unit}",
                             f"--metric={metric}"])
    return frontier.analyse(cfg, runs)


def draw_view(atlas, view, name, cells, title):
    """Draw a view of frontier.py for {key: {seed: run}} as NAME.png, and return the file's name."""
    content, draw, _ = frontier.VIEWS[view]
    swept = analysed(cells)
    front = frontier.front_of(swept, view, content(swept, swept["cfg"]), swept["cfg"])
    # missing=[]: the figure lists no missing runs, because the table says which runs are needed
    draw(front | dict(missing=[], title=title), atlas.out / f"{name}.png")
    return f"{name}.png"
