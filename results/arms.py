"""results/arms.py: the runs of labelled arms: thinned, compared, in words, drawn.

An arm is a folder of runs, ARM/RUN/log.jsonl (.gz where it is thinned); presets.json of the data
folder names the arms of each study. figures.py is made of what is here. Rewards are means over the
evaluations in a window of C, by default the last quarter of the budget. Intervals are 90%, over
seeds and validation problems, with one seed over the problems only (core/stats.py).
"""
import contextlib
import functools
import gzip
import json
import shutil
import sys
from pathlib import Path

import numpy as np

import fit_sigmoid
import frontier
from config import aside, parse, read_log, read_plan
from core import sweep
from core.plots import budget_axis, canvas, colours, legend, si, write
from core.runs import comparable, ended, read_run
from core.runs import right as metric_of
from core.stats import Missing, bounded, contrast, shift

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
            with aside(copy) as part:
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
            of_arm = Path(path).parent, *(run["config"][key] for key in ("n", "lr_base"))
            of_cell = rises.setdefault(of_arm, [])
            with contextlib.suppress(Missing):
                before, last = (look(run, window=w).mean() for w in (BEFORE, LATE))
                of_cell.append(last - before)
    rise = None
    if min(map(len, rises.values())) > 1:
        rise = max(c["gain"] + c["half"] for c in map(over_seeds, rises.values()))
    return M, M >= DEEP or (rise is not None and rise <= FLAT), rise


def over_seeds(values):
    """Return the mean of one number per seed, see `bounded`."""
    error = np.std(values, ddof=1) / len(values) ** 0.5
    return bounded(np.array([np.mean(values)]), error, len(values) - 1)


def depth(cells):
    """`fewest_updates` of whole runs."""
    return fewest_updates({run["path"]: (run, run["budget"]) for run in flat(cells)})


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


# --------------------------------------------------------------------------------------------------
# Figures. A panel is a function of an axis.

def curves(cells, title="", metric="avg@4", of="val", label="n = {}", unit="rollouts"):
    """A panel: reward over C, the mean over seeds of each cell thick, its seeds thin.

    unit: `updates` for M in place of C. The base model, at C = 0, has no place on the axis: it is a
    dotted line.
    """
    def draw(ax):
        base, shade = [], shades(cells)
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


def training(cells, field, title="", label="{}"):
    """A panel: a field of the step records over C, a line a run."""
    def draw(ax):
        for key, shade in shades(cells).items():
            for run in cells[key].values():
                steps = records(run, "step")
                C = [r["rollouts"] for r in steps]
                y = [np.nan if r.get(field) is None else r[field] for r in steps]
                ax.plot(C, y, color=shade, lw=0.9, alpha=0.7, label=label.format(key))
        ax.set(ylabel=field, title=title)
        budget_axis(ax, C[0], C[-1], "rollouts")
    return draw


def figure(atlas, name, panels, across=3):
    """Draw panels, `across` in a row, into NAME.png in atlas.out; returns its name."""
    across = min(across, len(panels))
    down = -(-len(panels) // across)
    fig, axes = canvas(down, across, (max(4.8 * across, 6.4), 3.9 * down + 0.5))
    for ax in axes.flat[len(panels):]:
        ax.axis("off")
    for ax, panel in zip(axes.flat, panels):
        panel(ax)
    legend(fig, axes.flat[:len(panels)])
    write(fig, atlas.out / f"{name}.png")
    return f"{name}.png"


# --------------------------------------------------------------------------------------------------
# A sweep through frontier.py and fit_sigmoid.py. All that the rows take from these two is here.

def analysed(runs, unit="rollouts"):
    """Return runs as frontier.analyse does."""
    if unit != "rollouts":
        runs = [read(run["path"], "val", unit) for run in runs]
    folders = dict.fromkeys(str(Path(run["path"]).parent) for run in runs)
    cfg = parse([f"--runs={' '.join(folders)}", f"--unit={unit}"])
    return frontier.analyse(cfg, "val", runs)


def view_figure(atlas, view, name, sweep):
    """NAME.png: a view of frontier.py of a sweep: (its name, what it shows)."""
    content, draw, _ = frontier.VIEWS[view]
    front = frontier.front_of(sweep, view, content(sweep, sweep["cfg"]), sweep["cfg"])
    front["missing"] = []  # a row says itself what it waits for
    draw(front, atlas.out / f"{name}.png")
    return f"{name}.png", front


def drawn(atlas, view, name, cells):
    """Return the name of `view_figure` of {key: {seed: run}}."""
    return view_figure(atlas, view, name, analysed(flat(cells)))[0]


def says_law(panel, law):
    """Return a panel's law as text: its verdict, its switches of n, the numbers of the fit."""
    turns = panel["switches"]
    said = ", ".join(f"{s['to']} from {si(s['C'])} [{si(s['lo']) if s['lo'] else 'open'}, "
                     f"{si(s['hi']) if s['hi'] else 'open'}]" for s in turns)
    if len(turns) > len(panel["ns"]):  # back and forth
        said = f"{len(turns)} switches back and forth"
    words = f"fit_sigmoid.py: {law['verdict']}; n* by the curves: {said or 'one n throughout'}"
    if law["plateau"]["value"]:
        words += (f"; the paper's law has k = {law['k']['value']:.1f} a decade, plateau "
                  f"{law['plateau']['value']:.0f}")
    if law["regret"] is not None:
        words += (f"; no n is better than n = {law['n_flat']} by more than "
                  f"{100 * law['regret']:.1f} at any budget (95%)")
    return words
