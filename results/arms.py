"""results/arms.py: the runs of labelled arms: thinned, compared, in words, drawn.

An arm is a folder of runs, ARM/RUN/log.jsonl (.gz where it is thinned); presets.json of the data
folder names the arms of each study. figures.py is made of what is here. Rewards are means over the
evaluations in a window of C, by default the last quarter of the budget. Intervals are 90%, over
seeds and validation problems, with one seed over the problems only (core/stats.py).
"""
import functools
import gzip
import json
import shutil
import sys
from pathlib import Path

import numpy as np

import frontier
from config import parse
from core.log import atomic_write, read_log, read_plan
from core import sweep
from core.plots import budget_axis, canvas, colours, format_si, legend, plural, wrap, write
from core.runs import comparable, ended, read_run
from core.runs import right as metric_of
from core.stats import ALPHA, SMALL, Missing, cells_of, contrast, shift, verdict_of

ROOT = Path(__file__).resolve().parent.parent

# what a thinned log has of a step: counters of its last, means of the rest
COUNTERS = "type step rollouts tokens wall_s".split()
AVERAGED = ("reward entropy kl grad_norm response_len frac_all_right frac_all_wrong "
            "gen_s train_s").split()
KEPT_STEPS = 64  # step records that a thinned log keeps, each the mean of its stretch
# windows of a run's budget C
EARLY, MIDDLE, LATE, START = (0.06, 0.125), (0.3, 0.5), (0.75, 1.0), (-1, 0)
# A cell with fewer updates is drawn and not judged: the paper's frontier goes to a larger n after
# 155 to 264 updates of it
DEEP = 150

LRS = "_quarter", "_half", "_double"  # ARM_half is ARM at another lr_base
SPLITS = dict(  # of sample.py, by how their names begin; mix_hard holds what `extreme` validates
    extreme="Unsolved", mix_hard="Unsolved", mix_dual="half Unsolved, half Easy",
    mix_tri="50/25/25 Unsolved, Easy, Very Easy", level_easy="Easy", level_very_easy="Very Easy",
    easy="Easy", hard="Hard", mixed="a mixed set")


# --------------------------------------------------------------------------------------------------
# Thinned copies

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
    """Thinned copies of the ended runs of source/ARM/ in target/ARM/, and their sweep.json. A copy
    that goes as far already stays."""
    new = 0
    for path in sorted(source.glob("[!.]*/*/log.jsonl")):
        copy = target / path.parent.relative_to(source) / "log.jsonl.gz"
        reached = read_log(copy)[-1].get("rollouts", -1) if copy.exists() else -1
        records = read_log(path)
        if records and ended(dict(status=records[-1].get("status", ""))) \
                and records[-1]["rollouts"] > reached:
            text = "".join(json.dumps(r, separators=(",", ":")) + "\n" for r in thin(records))
            with atomic_write(copy) as part:
                part.write_bytes(gzip.compress(text.encode(), 9, mtime=0))  # the same for one log
            new += 1
    # by name, not by run: where an arm's first runs were started by hand its sweep.json came later
    for path in source.glob("[!.]*/sweep.json"):
        if (target / path.parent.name).is_dir():
            shutil.copy(path, target / path.parent.name / "sweep.json")
    size = sum(p.stat().st_size for p in target.rglob("*.gz"))
    kept = len(list(target.glob("*/*/log.jsonl.gz")))
    print(f"{target}: {new} runs added, {kept} in all, {size / 1e6:.1f} MB")


# --------------------------------------------------------------------------------------------------
# Runs

@functools.cache
def read(path, part="val", unit="rollouts"):
    """A run folder as core/runs.read_run has it, with its path and budget; a text where it cannot
    be used."""
    run = read_run(Path(path), "avg@4", unit, part)
    if isinstance(run, str):
        return run
    # a run that a larger C continued keeps its first header
    return run | dict(path=path, budget=max(run["config"]["C"], int(run["rollouts"][-1])))


def records(run, kind):
    """The records of one type of a run's log."""
    (path,) = Path(run["path"]).glob("log.jsonl*")
    return [r for r in read_log(path) if r["type"] == kind]


def usual(values):
    """The most frequent of some values, the first of several; None of nothing."""
    return max(values, key=values.count, default=None)


TOLD = set()  # arms that hold runs which are left out
USED = {}  # what the row at work has used: {a run's path: (run, up to which budget)}


def use(cells):
    """Note that the row at work uses the runs of {key: {seed: run}}."""
    for run in flat(cells):
        USED[run["path"]] = run, max(run["budget"], USED.get(run["path"], (run, 0))[1])


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

    def runs(self, name):
        """The ended runs of an arm that can be compared."""
        folder = self.folder / name
        found = [read(str(path.parent)) for path in sorted(folder.glob("*/log.jsonl*"))]
        runs, dropped = comparable([run for run in found if isinstance(run, dict)
                                    and ended(run)], [read_plan(folder)])
        if dropped and name not in TOLD:
            TOLD.add(name)
            print(f"{folder}: {len(dropped)} of {len(found)} runs are left out, such as "
                  f"{dropped[0]['run']}: {dropped[0]['why']}", file=sys.stderr)
        return runs

    def least(self, *names):
        """Seeds that a cell needs: two, where any cell of these arms has two."""
        seeds = {}
        for run in (run for name in names for run in self.runs(name)):
            seeds.setdefault((run["B_p"], run["n"], run["lr"]), set()).add(run["seed"])
        return min(2, max(map(len, seeds.values()), default=1))

    def lrs(self, name):
        """{lr_base: {(B_p, n): {seed: run}}} of an arm, smallest first; as `cells`."""
        return {lr: self.cells(name, lr) for lr in sorted({r["lr"] for r in self.runs(name)})}

    def cells(self, name, lr=None):
        """{(B_p, n): {seed: run}} of an arm's runs at one lr_base (None: that of most runs), cut to
        their usual budget, without those that end before it."""
        runs = self.runs(name)
        lr = lr or usual([run["lr"] for run in runs])
        runs = [run for run in runs if run["lr"] == lr]
        C, out = usual([run["budget"] for run in runs]), {}
        for run in sorted(runs, key=lambda run: (run["B_p"], run["n"], run["seed"])):
            if run["budget"] >= C:
                out.setdefault((run["B_p"], run["n"]), {})[run["seed"]] = run | dict(budget=C)
        return out

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


def flat(cells):
    """The runs of {key: {seed: run}}."""
    return [run for runs in cells.values() for run in runs.values()]


def budget_of(cells):
    """The smallest budget of {key: {seed: run}}."""
    return min(run["budget"] for run in flat(cells))


def cut(cells, C=None):
    """{key: {seed: run}}: the same runs up to a budget, by default that all of them have."""
    C = C or budget_of(cells)
    return {key: {seed: run | dict(budget=C) for seed, run in runs.items()}
            for key, runs in cells.items()}


def config_of(cells):
    """The config of a run of {key: {seed: run}}, the first."""
    return flat(cells)[0]["config"]


def one_cell(atlas, arm):
    """{seed: run} of an arm that has one n."""
    return next(iter(atlas.arm(arm).values()))


def level(name):
    """What problems a split or a set has, in words: easy_train, .../mix_hard_D140_seed0.jsonl."""
    stem = Path(name).stem
    return next((words for split, words in SPLITS.items() if stem.startswith(split)), stem)


def titled(cfg):
    """What a run trains on, and by what where that is not GRPO; its B_p."""
    text = level(cfg["train_set"]) + f", {cfg['algo'].upper()}" * (cfg["algo"] != "grpo")
    return f"{text}, B_p = {cfg['B_p']}"


# --------------------------------------------------------------------------------------------------
# What is compared, and a comparison in words

def of_set(run, name):
    """A run with its evaluations of another set than its first."""
    if name == "val":
        return run
    found = read(run["path"], name)
    if isinstance(found, str):
        raise Missing(f"evaluations of {name}")
    return found | dict(budget=run["budget"])


def look(run, metric="avg@4", of="val", window=LATE):
    """(P,): the metric of each problem, a mean over the evaluations in a window (lo C, hi C].

    Of a run that diverged before it, the last evaluation.
    """
    e, C = of_set(run, of), run["budget"]
    at = (e["C"] > window[0] * C) & (e["C"] <= window[1] * C * (1 + 1e-9))
    if not at.any():
        if run["status"] != "diverged":
            raise Missing(f"evaluations of {of} in that window")
        at = e["C"] == e["C"][-1]
    return metric_of(e["counts"][at], metric, e["samples"]).mean(0).astype(float)


def table_of(cells, value=look, **how):
    """{key: (S, P)}: value(run, **how) of the seeds and up to the budget that all cells have.

    Raises Missing where they have no seed in common.
    """
    seeds = sorted(set.intersection(*(set(runs) for runs in cells.values())))
    if not seeds:
        raise Missing(f"a seed of all of {', '.join(map(str, cells))}")
    cells = cut({key: {seed: runs[seed] for seed in seeds} for key, runs in cells.items()})
    use(cells)
    return {key: np.array([value(run, **how) for run in runs.values()])
            for key, runs in cells.items()}


def gained(cells, **how):
    """What training gained: the best cell's mean at the end less the base model's.

    A yardstick: the row does not count these runs as used for it.
    """
    used = dict(USED)
    end, start = table_of(cells, **how), table_of(cells, window=START, **how)
    USED.clear()
    USED.update(used)
    return max(t.mean() for t in end.values()) - np.mean([t.mean() for t in start.values()])


def by_n(table, n_of):
    """{key: (S, P)} -> {n: [(S, P) of each key with this n]}; n_of: the n of a key."""
    out = {n: [] for n in sorted(set(map(n_of, table)))}
    for key, rewards in table.items():
        out[n_of(key)].append(rewards)
    return out


def shift_of(cells, n_of=int):
    """`shift` of {key: {seed: run}} from early to late; as in `by_n`, by default keys are n."""
    early, late = (by_n(table_of(cells, window=window), n_of) for window in (EARLY, LATE))
    return shift(early, late, gained(cells))


def updates(run, C=None):
    """Return the updates M that a run makes with a budget C, by default its own."""
    return int((C or run["budget"]) // (run["config"]["B_p"] * run["config"]["n"]))


def deep_ones(cells, name="n = {}"):
    """Return ({key: {seed: run}} of the cells with DEEP updates or more, a sentence about the
    others). If fewer than two are, all stay, and the row says that it is too shallow."""
    M = {key: updates(flat({key: runs})[0]) for key, runs in cells.items()}
    kept = {key: runs for key, runs in cells.items() if M[key] >= DEEP}
    if len(kept) < 2 or len(kept) == len(cells):
        return cells, ""
    left = ", ".join(name.format(key) for key in cells if key not in kept)
    return kept, f". Drawn but not judged, because they make fewer than {DEEP} updates: {left}"


# --------------------------------------------------------------------------------------------------
# Does the best n rise? core.stats.verdict_of, as the verdict of a row

def shortened(run, C):
    """Return a run up to C rollouts."""
    some, each = run["C"] <= C * (1 + 1e-9), ("C", "rollouts", "step", "counts", "reward")
    return run | {key: run[key][some] for key in each} | dict(
        config=run["config"] | dict(C=min(int(C), run["config"]["C"])))


def rises_in(groups):
    """Return {key: `verdict_of`} of groups {key: {n: {seed: run}}} of one lr_base each.

    The groups share their budget and their noise. flat: no n is better than one n by SMALL times
    what training gained.
    """
    cells = {(key, n): runs for key, group in groups.items() for n, runs in group.items()}
    use(cut(cells))
    runs = [shortened(run, budget_of(cells)) for run in flat(cells)]
    grid, every = cells_of(runs, "avg@4")
    out = {}
    for key, group in groups.items():
        paths = {run["path"] for run in flat(group)}
        mine = [c for c in every if {run["path"] for run in c.runs} <= paths]
        out[key] = verdict_of(mine, grid, SMALL * gained(group))
        if out[key]["p"] is None:
            raise Missing("more, because " + out[key]["reason"])
    return out


def law_verdict(v, ns):
    """Return the verdict on "n* rises" of a `verdict_of` over the n of `ns`.

    contradicted: n* falls, or one n will do at every budget. If that is the smallest n run, a rise
    below it would not show.
    """
    if min(v["p"], v["p_falls"]) <= ALPHA < max(v["p"], v["p_falls"]):
        return "confirmed" if v["p"] <= ALPHA else "contradicted"
    censored = v["n_flat"] == min(ns) and min(ns) > 2
    return "contradicted" if v["verdict"] == "flat" and not censored else "underpowered"


def says_rise(v):
    """Return a `verdict_of` as text: its p, the n tied with the best at both ends, what one n for
    all budgets loses."""
    first, last = (", ".join(map(str, v["sets"][i])) for i in (0, -1))
    return (f"p = {v['p']:.3f} for a rise, {v['p_falls']:.3f} for a fall; best n {first} from "
            f"C = {format_si(v['windows'][0][0])}, {last} to {format_si(v['windows'][-1][1])}; "
            f"n = {v['n_flat']} throughout loses at most {100 * max(v['regret'], 0):.1f}")


def number_of_rise(v):
    """Return the number of a row about a rise: how far the n that comes closest to one n for all
    budgets is beaten."""
    lo, hi = map(format_si, v["windows"][v["window"]])
    return (f"n = {v['by']} less n = {v['n']} at C = {lo} to {hi}: "
            f"{100 * v['gap']:+.1f} ± {100 * v['half']:.1f}")


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
    """The n with the highest mean, and all that are indistinguishable from it one by one, in words.
    """
    top = max(table, key=lambda n: table[n].mean())
    gaps = {n: contrast(table, {top: 1, n: -1}) for n in sorted(table) if n != top}
    others = [f"{n}" for n, c in gaps.items() if c["gain"] <= c["half"]]
    text = f"n = {top} is best ({table[top].mean():.3f})"
    return f"{text}, indistinguishable from {', '.join(others)}" if others else text


def each_of(chosen):
    """Return what was chosen in the folds as text, the most frequent first: "8", or "8 or 2"."""
    return " or ".join(map(str, sorted(set(chosen), key=lambda x: (-chosen.count(x), str(x)))))


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


# --------------------------------------------------------------------------------------------------
# Figures. A panel is a function of an axis.

def curves(cells, title="", metric="avg@4", of="val", label="n = {}", unit="rollouts", shade=None):
    """Return a panel: reward over C, the mean over seeds of each cell thick, its seeds thin.

    unit: `updates` for M in place of C. shade: {key: colour}, if several panels share it. The base
    model, at C = 0, has no place on the axis, so it is a dotted line.
    """
    shade = shade or shades(cells)

    def draw(ax):
        base = []
        for key, runs in cells.items():
            of_seeds = []
            for run in runs.values():
                e = of_set(run, of)
                within = e["C"] <= run["budget"] * (1 + 1e-9)
                x = e["step" if unit == "updates" else "C"][within][1:]
                start, *y = metric_of(e["counts"][within], metric, e["samples"]).mean(1)
                of_seeds.append(dict(zip(x, y)))
                base.append(start)
                ax.plot(x, y, color=shade[key], lw=0.7, alpha=0.5)
            shared = sorted(set.intersection(*map(set, of_seeds)))
            ax.plot(shared, [np.mean([y[at] for y in of_seeds]) for at in shared], lw=2,
                    color=shade[key], label=label.format(key))
        ax.axhline(np.mean(base), color="0.3", ls=":", lw=1.2, label="base model")
        ax.set(ylabel=f"validation {metric}", title=title)  # of which set is in the title
        budget_axis(ax, x[0], x[-1], unit)
    return draw


def shades(keys):
    """{key: colour}, from dark to bright as the keys come."""
    return dict(zip(keys, colours(range(len(keys))).values()))


def training(cells, field, title="", label="{}", name="", shade=None):
    """Return a panel: a field of the step records over C, a line per run. name: of the axis."""
    shade = shade or shades(cells)

    def draw(ax):
        for key in cells:
            for run in cells[key].values():
                steps = records(run, "step")
                C = [r["rollouts"] for r in steps]
                y = [np.nan if r.get(field) is None else r[field] for r in steps]
                ax.plot(C, y, color=shade[key], lw=0.9, alpha=0.7, label=label.format(key))
        ax.set(ylabel=name or field, title=title)
        budget_axis(ax, C[0], C[-1], "rollouts")
    return draw


def figure(atlas, name, panels, title, across=3, note=""):
    """Draw panels, `across` in a row, into NAME.png in atlas.out, and return that name.

    title: what is shown and on which problems. Below the figure, in small type: the runs that the
    row has used so far, and a note.
    """
    across = min(across, len(panels))
    down = -(-len(panels) // across)
    fig, axes = canvas(down, across, (max(4.8 * across, 6.4), 3.9 * down + 0.9))
    for ax in axes.flat[len(panels):]:
        ax.axis("off")
    for ax, panel in zip(axes.flat, panels):
        panel(ax)
        ax.title.set_fontsize(10)
    legend(fig, axes.flat[:len(panels)], across + 1)
    title = title.replace("$B_p$", "B_p").replace("B_p", "$B_p$")
    fig.suptitle(wrap(title, int(9 * fig.get_figwidth())), fontsize=12)
    write(fig, atlas.out / f"{name}.png", "; ".join(filter(None, [runs_text(), note])))
    return f"{name}.png"


def runs_text():
    """Return the runs that the row at work has used so far as text: how many, seeds, budget."""
    if not USED:
        return ""
    seeds = sorted({run["config"]["seed"] for run, _ in USED.values()})
    C = max(C for _, C in USED.values())
    return f"{plural(len(USED), 'run')}, seeds {', '.join(map(str, seeds))}, to C = {format_si(C)}"


# --------------------------------------------------------------------------------------------------
# A sweep through frontier.py

def analysed(runs, unit="rollouts"):
    """Return runs as frontier.analyse does."""
    if unit != "rollouts":
        runs = [read(run["path"], "val", unit) for run in runs]
    folders = dict.fromkeys(str(Path(run["path"]).parent) for run in runs)
    cfg = parse([f"--runs={' '.join(folders)}", f"--unit={unit}"])
    return frontier.analyse(cfg, "val", runs)


def view_figure(atlas, view, name, sweep, title=""):
    """Draw a view of frontier.py of a sweep as NAME.png: (its name, what it shows). title: of the
    figure, by default the view's own."""
    content, draw, _ = frontier.VIEWS[view]
    front = frontier.front_of(sweep, view, content(sweep, sweep["cfg"]), sweep["cfg"])
    front |= dict(missing=[], title=title)  # a row says itself what it waits for
    draw(front, atlas.out / f"{name}.png")
    return f"{name}.png", front


def drawn(atlas, view, name, cells, title=""):
    """Return the name of `view_figure` of {key: {seed: run}}."""
    return view_figure(atlas, view, name, analysed(flat(cells)), title)[0]
