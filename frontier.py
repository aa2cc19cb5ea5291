"""frontier.py: the logs of a sweep -> the best n at every budget, n*(C), as a figure and a CSV.

    python frontier.py --runs=runs/easy                      # a panel for each B_p
    python frontier.py --runs=runs/easy --view=joint         # the best pair (B_p, n)
    python frontier.py --runs=runs/mine --view=fixed_B       # B_p against n within a batch B_p n
    python frontier.py --runs=runs/easy --metric=worst@4 --unit=tokens
    python frontier.py --runs=runs/easy --view=training      # every logged field; or --view=lr

The first section is the paper's method (section 4): record-breaking points -> a sigmoid for each n
-> the highest curve at each C. The second uses core/stats.py: means, intervals, ties. A view is a
way to group cells, see `groups`. Writes frontier.csv and .png; see `suffix` for their names.
"""
from collections import Counter
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares
from scipy.special import expit

from config import BadInput, config, entry, parse
from core import plots, stats
from core.log import save_csv
from core.runs import read_sweep

BIN = 0.005  # the width of a bin of rewards, see `records`
COLUMNS = "panel C B_p n lr_base reward lo hi tied".split()
PANELS = ("fixed_Bp", "fixed_B", "joint")  # the views of this file; tools/views.py has the others


# ---- The paper's method (section 4) --------------------------------------------------------------

def records(run):
    """Return the record-breaking points [(C, reward)] of a run after C = 0: rewards that are, in
    bins of width BIN, above all earlier ones."""
    y = run["reward"].mean(1)
    highest = np.maximum.accumulate(np.floor(y / BIN + 1e-9))
    rises = np.diff(highest, prepend=-np.inf)
    return [(C, v) for C, v, rise in zip(run["C"], y, rises) if rise and C > 0]


def sigmoid(x, low, rise, k, x0):
    """Return the paper's curve at x = log10 C."""
    return low + rise * expit(k * (x - x0))


def fit_curve(C, reward):
    """Return (low, rise, k, x0) of the sigmoid through C (E,) > 0, reward (E,), by least squares.
    It never falls, and ends at 1 or below."""
    x = np.log10(C)
    lower, upper = np.array([[-1, 0, 0.5, x.min() - 0.5], [1, 1, 50, x.max() + 0.5]])
    start = np.clip([reward.min(), max(reward.max(), reward.min() + 1e-3), 3, x.mean()],
                    lower, upper)

    def curve(p):  # p[1] is the final height, so that a bound can limit it
        return p[0], max(p[1] - p[0], 0), p[2], p[3]
    return curve(least_squares(lambda p: sigmoid(x, *curve(p)) - reward, start,
                               bounds=(lower, upper)).x)


def n_star(runs, last=np.inf):
    """Return the paper's n*(C), C up to `last`, as dict(C (G,), curves {n: (G,)}, n (G,)). Pool the
    records of each cell's seeds, the last one again where its run ends; fit a sigmoid for each
    (B_p, n) with two or more; take the highest of each n, and n* by `interpolate_n`. Without a
    curve, all are empty."""
    first, last = (max(r["C"][r["C"] > 0][0] for r in runs),
                   min(last, max(r["C"][-1] for r in runs)))
    C, curves = np.geomspace(first, last, 81), {}
    for n, B_p in sorted({(r["n"], r["B_p"]) for r in runs}):
        points = []
        for r in (r for r in runs if (r["n"], r["B_p"]) == (n, B_p)):
            points += (new := records(r)) + [(r["C"][-1], y) for _, y in new[-1:]]
        if len({x for x, _ in points}) > 1:
            y = sigmoid(np.log10(C), *fit_curve(*np.array(sorted(points)).T))
            curves[n] = np.maximum(curves.get(n, y), y)
    if first >= last or not curves:
        return dict(C=[], curves={}, n=[])
    return dict(C=C, curves=curves, n=interpolate_n(curves))


def interpolate_n(curves):
    """Return n* (G,) from a parabola in log2 n through the highest of the curves {n: (G,)} and its
    neighbours. The smallest and the largest n are not moved."""
    x, y = np.log2(list(curves)), np.array(list(curves.values()))
    at, top = np.arange(y.shape[1]), y.argmax(0)
    if len(x) < 3:
        return 2 ** x[top]
    i = np.clip(top, 1, len(x) - 2)
    left, right = ((y[j + 1, at] - y[j, at]) / (x[j + 1] - x[j]) for j in (i - 1, i))
    bend = np.maximum((left - right) / (x[i + 1] - x[i - 1]), 1e-9)
    return 2 ** np.where(i == top, (x[i - 1] + x[i]) / 2 + left / (2 * bend), x[top])


# ---- Our frontier --------------------------------------------------------------------------------

def groups(t, view, B_max=0):
    """Return {panel: its cells}, none for a view of tools/views.py. fixed_Bp trades n against M,
    joint trades all, and fixed_B trades n against B_p within a batch B (in updates M), for B_max or
    the three most common B."""
    if view not in PANELS:
        return {}
    if view == "joint":
        return dict(joint=list(range(len(t.cells))))
    if view == "fixed_Bp":
        return {f"B_p={b}": [i for i, c in enumerate(t.cells) if c[0] == b]
                for b in sorted({c[0] for c in t.cells})}
    shared = Counter(b * n for b, n in {c[:2] for c in t.cells})
    limits = [B_max] if B_max else sorted(B for B, k in shared.most_common(3) if k > 1)
    if not limits or limits[-1] < min(shared):
        raise BadInput(f"--view={view}: no two cells with the same batch B_p n; raise --B_max")
    return {f"B={limit}": [i for i, (b, n, _) in enumerate(t.cells) if b * n <= limit]
            for limit in limits}


def panel(t, of, whole=False):
    """Return the frontier of the cells `of` over the budgets at which one of them has a reward:

      of, runs, records  the cells; their runs; the record-breaking points of each run
      rows      [dict] for each budget: C = t.grid[budget]; cell: the best one, with its B_p, n,
                lr_base; tied: the cells tied with it; reward: held out, of choosing so; lo, hi: its
                90% interval by `half_width`
      star      the result of `n_star`
    whole: end where the largest batches end (for fixed_B).
    """
    runs = [r for r, i in zip(t.runs, t.cell) if i in of]
    last = max((r["B_p"] * r["n"], r["C"][-1]) for r in runs)[1] if whole else t.grid[-1]
    rows, rewards = [], stats.heldout_reward(t, of)
    for j in np.flatnonzero(t.grid <= last):
        i, reward = stats.best(t, j, of), rewards[j]
        if i is not None:
            (B_p, n, lr), half = t.cells[i], stats.half_width(t, i, j)
            rows.append(dict(C=t.grid[j], budget=j, cell=i, B_p=B_p, n=n, lr_base=lr, reward=reward,
                             lo=max(reward - half, 0.0), hi=min(reward + half, 1.0),
                             tied=stats.tied(t, j, of)))
    return dict(of=of, runs=runs, records=[records(r) for r in runs], rows=rows,
                star=n_star(runs, rows[-1]["C"]))


def settings(argv, doc, own={}):
    """Return the config. B_max and C are 0 if the command line does not give them, and the unit of
    fixed_B is updates."""
    cfg = parse(["--B_max=0", "--C=0", *argv], doc, own)
    if cfg["view"] == "fixed_B":
        cfg["unit"] = "updates"
    return cfg


def suffix(cfg):
    """Return _VIEW_METRIC_UNIT_SET_EPOCHS for the names of files, without the defaults."""
    return "".join(f"_{cfg[key]}" for key in "view metric unit eval_set epochs".split()
                   if cfg[key] not in (config[key], "updates"))  # the unit of fixed_B


def analyse(cfg):
    """Return (t, {panel: `panel`}, dropped) of the sweep in cfg["runs"], see stats.table."""
    runs, dropped = read_sweep(cfg["runs"], cfg["metric"], cfg["unit"], cfg["eval_set"],
                               cfg["epochs"])
    whole = cfg["view"] == "fixed_B"
    t = stats.table(runs, [r["C"][-1] for r in runs if whole])  # each batch's own end
    found = groups(t, cfg["view"], cfg["B_max"])
    return t, {name: panel(t, of, whole) for name, of in found.items()}, dropped


def main(argv):
    cfg = settings(argv, __doc__)
    path = Path(cfg["out"] or cfg["runs"], f"frontier{suffix(cfg)}")
    t, panels, dropped = analyse(cfg)
    if not panels:
        from tools.views import VIEWS
        VIEWS[cfg["view"]](t, cfg, f"{path}.png")
        return print(f"figure: {path}.png")
    # fit_sigmoid.py --points reads the columns C and n
    save_csv(f"{path}.csv", COLUMNS, (row | dict(panel=name, tied=plots.cells_text(t, row["tied"]))
                                      for name, p in panels.items() for row in p["rows"]))
    plots.frontier(t, panels, cfg, f"{path}.png")
    print(f"{plots.plural(len(t.runs), 'run')} used, {len(dropped)} dropped")
    print(*(f"  dropped {name}: {why}\n" for name, why in dropped), sep="", end="")
    for r in (r for r in t.runs if r["status"] != "budget"):
        print(f"  {r['status'] or 'unfinished'}: {r['run']} at C = {plots.format_si(r['C'][-1])}")
    for name, p in panels.items():
        best = ", ".join(f"{r['B_p']} x {r['n']} at {plots.format_si(r['C'])}"
                         for r in (p["rows"][0], p["rows"][-1]))
        print(f"{name}: best B_p x n = {best} {cfg['unit']}")
    print(f"figure: {path}.png   numbers: {path}.csv")


if __name__ == "__main__":
    entry(main)
