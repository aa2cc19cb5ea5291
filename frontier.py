"""frontier.py: the logs of a sweep -> the best n at every budget, n*(C), and its figures.

    python frontier.py --runs=runs/easy                                 # a panel for each B_p
    python frontier.py --runs=runs/easy --metric=worst@4 --unit=tokens  # other reward, other axis
    python frontier.py --runs=runs/easy --view=all                      # all but compare
    python frontier.py --runs="runs/easy runs/easy:train runs/hard" --view=compare

| view        | what                                                          | paper         |
| fixed_Bp    | n against M, a panel for each B_p                             | section 4.1   |
| fixed_B     | B_p n <= B, over M, a panel for each B                        | section 4.2   |
| joint       | best over (B_p, n), the smallest stable B_p                   | section 4.3   |
| lr          | n against M by one lr rule, and with the best lr for each n   | ours          |
| best_worst  | n against M by avg@k, best@k and worst@k                      | section 4.1   |
| sensitivity | reward over n at each B_p and over B_p at each n              | section 4.2   |
| paper       | the paper's way and ours beside each other                    | Figs 5 to 7   |
| slices      | reward over n at four budgets                                 | (Chinchilla)  |
| pass1       | pass rates of the training problems at matched n M            | section 5.1   |
| compare     | several sweeps, or folder:train, folder:SET, folder:best@4    | Figs 12 to 25 |

The paper's path is the first section, whole: log -> record-breaking points -> one sigmoid for each
n -> the highest curve at each C -> n*(C). It needs numpy and scipy alone. Below it the views, each
a function (sweep, cfg) -> content, one (front, path) that draws it, one (front) -> lines of text
and a row in VIEWS; a new one's name goes into the list at `view` in config.py. They start from
sweep["cells"] (a list of core/stats.Cell), by_B_p and at_end.

Each view writes `frontier_VIEW.json` and `.png` (fixed_Bp: `frontier.*`) to `out`, or else to
`runs`; --view=all writes their texts to `report.txt`. docs/log.md has the fields of frontier.json,
from which fit_sigmoid.py makes the report. n* has three readings there: `envelope`, the n of our
highest curve at each budget; `n_star`, the paper's (section 4.1); `records`, that of Figure 15.
"""
import functools
import math
import sys
from collections import Counter
from pathlib import Path

from config import BadInput, complete, entry, lr_factor, parse  # first: Ctrl-C is one line
from core.log import atomic_write, save_json
import numpy as np
from scipy import stats
from scipy.optimize import least_squares

from core.stats import (RUN_SD, Z, best, cells_of, ci_half_width, difference, gap_between,
                        held_out, heldout_reward, nearest, panel_of, per_problem, stop_before,
                        tied_with_best, verdict_of)
from core.plots import (SHADES, budget_axis, canvas, colours, draw_n_star, draw_records,
                        end_labels, format_si, legend, log_ticks, plural, save)
from core.runs import ended, folders_of, missing_cells, problems_trained_on, read_runs


# --------------------------------------------------------------------------------------------------
# The paper's path (section 4, "Data analysis workflow")

def record_breaking(reward, width):
    """(E,) rewards of a run in order of C -> mask (E,) of the points above all points before them.

    Rewards are compared in bins of `width`, the paper's thinning of noisy runs; the first counts.
    Example: .501 .504 .512 .508 .516 in bins of .005 -> True False True False True.
    """
    bins = np.floor(np.asarray(reward) / width + 1e-9)  # 0.57 / 0.005 is 113.99999999999999
    return bins > np.concatenate([[-np.inf], np.maximum.accumulate(bins)[:-1]])


def sigmoid(x, low, rise, k, x0):
    """The paper's curve: reward over x = log10 C, from `low` to `low + rise`, steepest at x0."""
    return low + rise / (1 + np.exp(-np.clip(k * (x - x0), -60, 60)))


def fit_curve(C, reward, top=1.0):
    """The sigmoid through points C (E,) > 0, reward (E,), by least squares: (low, rise, k, x0).

    It rises or is flat, up to `top` at most; it bends within half a decade of the data.
    """
    x = np.log10(C)

    def curve(p):  # p: the height it ends at in place of the rise, so that a bound can hold it
        return p[0], max(p[1] - p[0], 0.0), p[2], p[3]
    lower = np.array([-1.0, 0.0, 0.5, x.min() - 0.5])
    upper = np.array([top, top, 50.0, x.max() + 0.5])
    start = np.clip([reward.min(), max(reward.max(), reward.min() + 1e-3), 3.0, x.mean()], lower,
                    upper)
    return np.array(curve(least_squares(lambda p: sigmoid(x, *curve(p)) - reward, start,
                                        bounds=(lower, upper)).x))


def running_mean(values, window=5):
    """Means over `window` neighbours, fewer at the ends: (E,) -> (E,)."""
    half = window // 2
    return np.array([np.mean(values[max(i - half, 0):i + half + 1]) for i in range(len(values))])


def pooled_records(runs, width):
    """The record-breaking points of all runs taken together: dict(C, n, reward, log2_n_mean), (E,).

    log2_n_mean is their running average of log2 n, to which the paper fits its law. The base model
    at C = 0 only sets the mark to beat.
    """
    points = []
    for run in runs:
        keep = record_breaking(run["reward"], width)
        points += [(C, -reward, run["n"]) for C, reward in zip(run["C"][keep], run["reward"][keep])]
    points = np.array(sorted(points), float).reshape(-1, 3)  # at equal C the highest first
    C, reward, n = points[:, 0], -points[:, 1], points[:, 2].astype(int)
    keep = record_breaking(reward, width) & (C > 0)
    C, reward, n = C[keep], reward[keep], n[keep]
    return dict(C=C, n=n, reward=reward, log2_n_mean=running_mean(np.log2(n)))


def n_star(runs, width=0.005, C=None):
    """Return n*(C) the paper's way: at each budget the n of the highest curve.

    dict(C (G,), cells: (B_p, n) of each curve, curves (N, G), n, B_p, reward (G,)). C: the budgets,
    by default from those that every cell has reached to those that any has.
    """
    cells = sorted({(run["B_p"], run["n"]) for run in runs})
    if C is None:
        C = np.geomspace(max(run["C"][run["C"] > 0][0] for run in runs),
                         max(run["C"][-1] for run in runs), 81)
    curves = np.full((len(cells), len(C)), np.nan)
    for i, cell in enumerate(cells):
        # 1. the record-breaking points of each run of this cell, all seeds together
        points = []
        for run in runs:
            if (run["B_p"], run["n"]) == cell:
                keep = record_breaking(run["reward"], width) & (run["C"] > 0)
                points += zip(run["C"][keep], run["reward"][keep])
        if len({x for x, _ in points}) < 2:  # nothing to put a curve through
            continue
        # 2. one sigmoid through them
        x, y = np.array(sorted(points)).T
        curves[i] = sigmoid(np.log10(C), *fit_curve(x, y))
    # 3. the highest curve at each budget, and 4. its n
    heights = np.where(np.isnan(curves), -np.inf, curves)
    B_p, n = np.array(cells)[heights.argmax(0)].T
    return dict(C=C, cells=cells, curves=curves, n=n, B_p=B_p, reward=heights.max(0))

# --------------------------------------------------------------------------------------------------
# A sweep

def analyse(cfg, part="", runs=None, dropped=()):
    """Read a sweep's folder, or take its runs, and return what every view starts from.

    dict(runs, dropped, grid, every, cells, lr, law_cells, label, head, covers, cfg). every: the
    cells at all lr_base. cells: for each (B_p, n) the one whose lr_base is best at the largest
    budget. law_cells: those at `lr`, the lr_base of the best cell among the lr_base that most cells
    share. head: the longest run's config.
    """
    part = part or ("train" if cfg["metric"] == "train" else cfg["eval_set"])
    if runs is None:
        runs, dropped = read_runs(cfg["runs"], cfg["metric"], cfg["unit"], part, cfg["tag"],
                                  cfg["epochs"])
    grid, every = cells_of(runs, cfg["metric"])
    count = Counter(c.lr for c in every)
    whole = [c for c in every if count[c.lr] == max(count.values())]
    lr = whole[best(whole, -1) or 0].lr
    cells = []
    for pair in dict.fromkeys((c.B_p, c.n) for c in every):
        of_pair = [c for c in every if (c.B_p, c.n) == pair]
        cells.append(of_pair[best(of_pair, -1) or 0])
    head = complete(max((run["config"] for run in runs), key=lambda c: c.get("C", 0)))
    label = "training reward"
    if part != "train":
        label = f"{'validation' if part == 'val' else part} {cfg['metric']}"
    return dict(runs=[run for c in cells for run in c.runs], dropped=dropped, grid=grid,
                every=every, cells=cells, lr=lr, law_cells=[c for c in every if c.lr == lr],
                label=label, head=head, covers=covers(every),
                cfg=dict(B_limit=0) | cfg | dict(head=head, B_max=cfg.get("B_limit")
                                                 or head["B_max"]))


def covers(cells):
    """Return what the intervals of a sweep cover, as text."""
    runs = [run for c in cells for run in c.runs]
    seeds = Counter((run["B_p"], run["n"], run["lr"]) for run in runs).values()
    text = "90%: one more run of the same command, and other problems of the kind"
    if cells[0].values.shape[2] == 1:
        text += " (binomial: the log has the mean alone, not each problem's reward)"
    if any(run["biased"] for run in runs):
        text += "; the source's estimate of this metric is biased, as its log says"
    if max(seeds) > 1:
        return f"{text}; {' to '.join(map(str, sorted({min(seeds), max(seeds)})))} seeds a cell"
    return f"{text}; one seed, so runs are assumed to differ by {RUN_SD}"


def notes_of(sweep):
    """Return what a reader must know of the runs, as lines of text."""
    every = [run for c in sweep["every"] for run in c.runs]
    lrs, notes = sorted({c.lr for c in sweep["every"]}), []
    if len(lrs) > 1:
        notes.append(f"each n is shown at its best lr_base of {', '.join(f'{x:g}' for x in lrs)}; "
                     f"the verdict is at lr_base = {sweep['lr']:g}; --view=lr compares them")
    for run in every:
        if not ended(run):
            notes.append(f"unfinished {run['run']}: used up to its last evaluation")
        if run["status"] in ("diverged", "pruned"):
            notes.append(f"{run['status']} {run['run']} at C = {format_si(run['C'][-1])}")
    most = max(len(c.runs) for c in sweep["every"])
    for c in sweep["every"]:
        if len(c.runs) < most:
            notes.append(f"B_p={c.B_p} n={c.n} lr_base={c.lr:g}: {len(c.runs)} of {most} seeds")
    return notes


# what frontier.json depends on besides the logs
SCHEMA = 2
ASKED = "runs metric unit bin delta eval_set tag epochs B_limit k".split()


def front_of(sweep, view, content, cfg):
    """Return all that a view's JSON holds. Its figure and its text are made from that alone."""
    every = [run for c in sweep["every"] for run in c.runs]
    runs = content.pop("runs", every)  # the view lr uses fewer
    return {key: cfg[key] for key in ASKED} | dict(
        schema=SCHEMA, view=view, label=sweep["label"], config=sweep["head"],
        source=next((r["source"] for r in every if r["source"]), ""), device=every[0]["device"],
        D=problems_trained_on(every[0]), covers=sweep["covers"],
        notes=notes_of(sweep), budget=sweep["grid"][-1],
        missing=[] if view == "compare" else missing_cells(cfg["runs"], every, sweep["dropped"]),
        runs_dropped=sweep["dropped"], runs_unfinished=[r["run"] for r in runs if not ended(r)],
        runs_used=[{key: run[key] for key in ("run", "B_p", "n", "lr", "seed", "status")}
                   | dict(evals=len(run["C"]), C=run["C"][-1], first=run["reward"][0],
                          last=run["reward"][-1]) for run in runs]) | content


def by_B_p(cells):
    """Return {B_p: its cells}, the smallest B_p first."""
    return {B_p: [c for c in cells if c.B_p == B_p] for B_p in sorted({c.B_p for c in cells})}


def at_end(cells):
    """Return the index of the largest budget at which all of these cells are alive, or None."""
    ok = np.flatnonzero(np.all([c.alive for c in cells], 0))
    return int(ok[-1]) if len(ok) else None


# --------------------------------------------------------------------------------------------------
# What to run: a row for each budget

def hours_of(cell):
    """Return hours of training for each rollout, over all ranks, or None if the logs lack gen_s or
    train_s. On a CPU an hour is that of a process, which has one core."""
    each = [run["hours"] / max(run["rollouts"][-1], 1) for run in cell.runs if run["hours"]]
    return float(np.mean(each)) if each else None


def cost_of(cell):
    """Return what a rollout of a cell costs in the unit of C."""
    return float(np.mean([run["per_rollout"] for run in cell.runs]))


def of_cell(cell, grid, j):
    """Return a cell at budget j in numbers: dict(B_p, n, lr_base, lr, seeds, cost and hours of a
    rollout, last: the budget at which its runs ended if that is before j, else None)."""
    last = None if cell.alive[j] else float(cell.reach[1])
    head = complete(cell.runs[0]["config"])
    lr = cell.lr * lr_factor(cell.B_p * (head["n_train"] or cell.n), head["lr_scaling"])
    return dict(B_p=cell.B_p, n=cell.n, lr_base=cell.lr, lr=lr, seeds=len(cell.runs), last=last,
                cost=cost_of(cell), hours=hours_of(cell))


def rows_of(cells, grid, B_max=0):
    """Return what to run with each budget of the grid: a list of dicts that JSON can hold.

    A row is the best cell (`of_cell`) with C; observed, whether any run is alive at C; reward, lo,
    hi; tied, the cells that cannot be told from the best, that one first, each with its gap and
    half; by_B_p, the best cell of each B_p, likewise; stop, an earlier stop that is better
    (stats.stop_before); edge (`grid_edge`); diverged, the runs of this cell that did.
    """
    held, out = held_out(cells), []  # once for all budgets
    rewards = heldout_reward(cells, held)
    for j, C in enumerate(grid):
        if best(cells, j) is None:
            continue
        cell = cells[best(cells, j)]

        def below(c):  # how far a cell is below the best, with half of the 90% interval
            gap, half = gap_between(cell, c, j) if c is not cell else (0.0, 0.0)
            return of_cell(c, grid, j) | dict(gap=gap, half=half)
        tied = [c for c, same in zip(cells, tied_with_best(cells, j)) if same]
        sizes = [cs[best(cs, j)] for cs in by_B_p(cells).values() if best(cs, j) is not None]
        half, stop = ci_half_width(cell, j), stop_before(cells, j, held)
        out.append(of_cell(cell, grid, j) | dict(
            C=float(C), observed=any(bool(c.alive[j]) for c in cells), reward=float(rewards[j]),
            lo=max(float(rewards[j]) - half, 0.0), hi=min(float(rewards[j]) + half, 1.0),
            tied=[below(c) for c in sorted(tied, key=lambda c: c is not cell)],
            by_B_p=[below(c) for c in sizes],
            stop=stop and of_cell(cells[stop["cell"]], grid, stop["j"]) | dict(
                C=float(grid[stop["j"]]), reward=stop["reward"], gain=stop["gain"]),
            edge=grid_edge(cell.B_p, cell.n, C, cells, B_max),
            diverged=[run["run"] for run in cell.runs if run["status"] == "diverged"]))
    return out


def tables_of(sweep, cfg):
    """Return {metric: rows}: what to run by the metric asked for and by avg@k, best@k, worst@k."""
    runs, metrics = [run for c in sweep["every"] for run in c.runs], [cfg["metric"]]
    if runs[0]["counts"] is not None:
        metrics += [m for m in (f"{kind}@{cfg['k']}" for kind in ("avg", "best", "worst"))
                    if m not in metrics]
    cells = {m: sweep["every"] if m == cfg["metric"] else cells_of(runs, m)[1] for m in metrics}
    tables = {m: rows_of(cells[m], sweep["grid"], cfg["B_max"]) for m in metrics}
    for row in tables[cfg["metric"]]:
        row["gains"] = gains_of(row, sweep["grid"], cells, cfg)
    return tables


def gains_of(row, grid, cells, cfg):
    """Return what a row's cell has gained since the base model by best@k and worst@k, or None.

    dict(best, worst, more, half): more = worst - best, half of its 90% interval. The same problems
    solved more surely raise worst@k (sharpening), more problems solved raise best@k (coverage;
    paper, section 4.1).
    """
    names = f"best@{cfg['k']}", f"worst@{cfg['k']}"
    if not set(names) <= set(cells):
        return None
    j, each, errors = nearest(grid, row["C"]), [], []
    for metric in names:
        c = next(c for c in cells[metric]
                 if (c.B_p, c.n, c.lr) == (row["B_p"], row["n"], row["lr_base"]))
        base = [per_problem(run, metric)[0] for x in cells[metric] for run in x.runs
                if run["C"][0] == 0]
        if not base:
            return None
        each.append(c.per_problem[j] - np.mean(base, 0))
        errors.append(ci_half_width(c, j))
    more = each[1] - each[0]
    half = math.hypot(Z * more.std(ddof=1) / math.sqrt(len(more)), *errors) if len(more) > 1 else 1
    return dict(best=float(each[0].mean()), worst=float(each[1].mean()), more=float(more.mean()),
                half=half)


# --------------------------------------------------------------------------------------------------
# Panels: n against M (fixed_Bp), the joint best, B_p n <= B, several sweeps

def with_curves(panel, cells, grid):
    """A panel with a curve for each cell, its evaluations as points (64 a run at most) and the
    base model's reward."""
    curves, points = [], []
    for c in cells:
        ok = np.flatnonzero(c.alive)
        half = np.array([ci_half_width(c, j) for j in ok])
        curves.append(dict(n=c.n, B_p=c.B_p, lr=c.lr, seeds=[run["seed"] for run in c.runs],
                           C=grid[ok], reward=c.mean[ok], lo=np.maximum(c.mean[ok] - half, 0),
                           hi=np.minimum(c.mean[ok] + half, 1)))
        for run in c.runs:
            some = np.unique(np.linspace(0, len(run["C"]) - 1, 64).round().astype(int))
            points.append(dict(n=c.n, seed=run["seed"], C=run["C"][some],
                               reward=np.round(run["reward"][some], 5)))
    base = [p["reward"][0] for p in points if p["C"][0] == 0]
    return panel | dict(curves=curves, points=points, base=np.mean(base) if base else None)


def fixed_Bp(sweep, cfg):
    """A panel for each B_p: n against M (paper, section 4.1)."""
    panels, of_law = {}, by_B_p(sweep["law_cells"])
    for B_p, cs in by_B_p(sweep["every"]).items():
        panel = panel_of(cs, sweep["grid"])
        on_top = set(zip(panel["envelope"]["n"], panel["envelope"]["lr"]))
        best_lr = [c for c in cs if c in sweep["cells"]]
        drawn = [c for c in cs if c in best_lr or (c.n, c.lr) in on_top]
        panel = with_curves(panel, drawn, sweep["grid"])
        runs = [run for c in cs for run in c.runs]
        verdict = verdict_of(of_law.get(B_p, []), sweep["grid"], cfg["delta"])
        panels[f"B_p={B_p}"] = panel | dict(
            records=pooled_records(runs, cfg["bin"]), n_star=paper_n_star(best_lr, cfg["bin"]),
            verdict=verdict | dict(lr_base=sweep["lr"]), solved=solved(runs),
            runs_dropped=[d for d in sweep["dropped"] if d.get("B_p") == B_p])
    return dict(panels=panels, rows=tables_of(sweep, cfg))


def solved(runs):
    """Return "nothing" or "everything" if no evaluation of these runs has another reward."""
    low, high = (pick(pick(run["reward"]) for run in runs) for pick in (min, max))
    return "nothing" if high <= 0 else "everything" if low >= 1 else ""


def paper_n_star(cells, width):
    """Return the reading of section 4.1 for some cells: dict(C, n, B_p, reward) of `n_star`, None
    if no curve can be fitted."""
    found = n_star([run for c in cells for run in c.runs], width)
    if np.isneginf(found["reward"]).any():
        return None
    return {key: found[key] for key in ("C", "n", "B_p", "reward")}


def grid_edge(B_p, n, C, cells, B_max):
    """Return dict(side, add, text) if n is the smallest or the largest run at the B_p of the best
    cell at C, else None. add: the cell (B_p, n) to run next, or None if there is none."""
    ns = sorted({c.n for c in cells if c.B_p == B_p})
    if len(ns) < 2 or n not in (ns[0], ns[-1]):
        return None
    side, more = ("largest", 2 * n) if n == ns[-1] else ("smallest", n // 2)
    text = (f"n = {n} is the {side} n run at B_p = {B_p} and the best at C = {format_si(C)}, so "
            "the best n may lie beyond")
    if more < 2 or B_max and B_p * more > B_max:
        why = "no smaller n exists" if side == "smallest" else "B_max allows no larger n"
        return dict(side=side, add=None, text=f"{text}; {why}")
    return dict(side=side, add=dict(B_p=B_p, n=more), text=f"{text}; add n = {more}")


def joint(sweep, cfg):
    """One panel, best over (B_p, n) at each budget, with the pair, B*(C), and the smallest stable
    B_p (section 4.3)."""
    panel = panel_of(sweep["every"], sweep["grid"])
    env = panel["envelope"]
    pairs = list(zip(env["B_p"], env["n"]))
    starts = [i for i in range(len(pairs)) if not i or pairs[i] != pairs[i - 1]]
    fell, tables = stability(sweep["every"]), tables_of(sweep, cfg)
    short = [c["B_p"] for c in tables[cfg["metric"]][-1]["by_B_p"] if c["gap"] > cfg["delta"]]
    return dict(panels={"joint": panel | dict(
        records=pooled_records([run for c in sweep["every"] for run in c.runs], cfg["bin"]),
        n_star=paper_n_star(sweep["cells"], cfg["bin"]),
        B_star=[b * n for b, n in pairs],
        segments=[dict(C=env["C"][i], B_p=env["B_p"][i], n=env["n"][i], B=pairs[i][0] * pairs[i][1],
                       reward=env["highest"][i]) for i in starts],
        stability=fell, stable_B_p=smallest_stable(fell, short))}, rows=tables)


def falls(run, V, checkpoints):
    """Whether a run diverged, or ends below its best by two standard errors: V (G, P) its values.

    The best is chosen on half of the problems and the fall measured on the others, both ways. The
    error is of problems and of two checkpoints.
    """
    V = V[~np.isnan(V[:, 0])]
    if run["status"] == "diverged" or len(V) < 3 or V.shape[1] < 4:
        return run["status"] == "diverged"
    fall = np.zeros(V.shape[1])
    for half in (0, 1):
        fall[1 - half::2] = (V[V[:, half::2].mean(1).argmax()] - V[-1])[1 - half::2]
    error = math.hypot(fall.std(ddof=1) / math.sqrt(len(fall)), checkpoints * math.sqrt(2))
    return bool(fall.mean() > 2 * error)


def stability(cells):
    """{B_p: (runs that diverged or fell, runs)}, the smallest B_p first."""
    out = {}
    for B_p, cs in by_B_p(cells).items():
        fallen = [falls(run, V[c.alive], c.noise.checkpoints) for c in cs
                  for run, V in zip(c.runs, c.values)]
        out[B_p] = sum(fallen), len(fallen)
    return out


def smallest_stable(by_size, short=()):
    """Return the smallest B_p of `stability` of which at most one run in ten fell, or None. short:
    the B_p that lose more than delta at the end, because their optimisation is incomplete."""
    return min((b for b, (bad, runs) in by_size.items() if bad <= runs / 10 and b not in short),
               default=None)


def fixed_B(sweep, cfg):
    """A panel for each B: the best (B_p, n) with B_p n <= B after M updates (section 4.2).

    The B are B_max if the command line gives it, else those that two cells or more have as
    B_p n, the three with most cells. Budgets are updates here. n*(M) and B_p*(M) are fitted.
    """
    by_updates = [run | dict(C=run["step"], per_rollout=1 / (run["B_p"] * run["n"]))
                  for run in sweep["runs"]]
    grid, cells = cells_of(by_updates, cfg["metric"])
    full = Counter(c.B_p * c.n for c in cells)
    most = sorted((B for B in full if full[B] > 1), key=lambda B: -full[B])[:3]
    if cfg["B_limit"]:
        most = [cfg["B_limit"]] if min(full) <= cfg["B_limit"] else []
    if not most:
        raise BadInput(f"--view=fixed_B: {cfg['runs']} has no two cells with the same B = B_p n"
                       f"{' below B_max' * bool(cfg['B_limit'])}, so there is nothing to trade")
    panels, tables = {}, {}
    for B in sorted(most):
        cs = [c for c in cells if c.B_p * c.n <= B]
        # smaller batches make more updates of a budget; the question ends with the full batches
        largest = [c for c in cs if c.B_p * c.n == max(c.B_p * c.n for c in cs)]
        end = max(c.reach[1] for c in largest) * (1 + 1e-9)
        panel = panel_of([c for c in cs if c.reach[0] <= end], grid, end)
        records = pooled_records([run for c in largest for run in c.runs], cfg["bin"])
        name = f"B={B}"
        panels[name] = panel | dict(
            B=B, records=records, n_star=paper_n_star(largest, cfg["bin"]), of_batch=[
                dict(n=c.n, B_p=c.B_p, C=grid[c.alive], reward=c.mean[c.alive]) for c in largest])
        tables[name] = [row for row in rows_of(cs, grid, B) if row["C"] <= end]
    return dict(panels=panels, rows=tables, unit="updates",
                budget=max(p["range"][1] for p in panels.values()))


def compare(cfg):
    """The same frontier for several sweeps side by side: --runs="A B:train C:SET C:best@4", each
    analysed on its own."""
    panels, sweeps = {}, []
    for word in cfg["runs"].split():
        folder, *rest = word.split(":")
        metrics = [r for r in rest if "@" in r or r == "reward"]
        metric = next(iter(metrics), cfg["metric"])
        part = next((r for r in rest if r not in metrics), "")
        sweep = analyse(dict(cfg, runs=folder, metric=metric), part)
        B_p, cs = max(by_B_p(sweep["cells"]).items(), key=lambda item: len(item[1]))
        panel = with_curves(panel_of(cs, sweep["grid"]), cs, sweep["grid"])
        panels[f"{word}, B_p={B_p}"] = panel | dict(metric=sweep["label"])
        sweeps.append(sweep)
    if len(panels) < 2:
        raise BadInput(f'--runs={cfg["runs"]}: --view=compare wants two sweeps, with a space '
                       'between, as in --runs="A B"')
    covers = dict.fromkeys(part for s in sweeps for part in s["covers"].split("; "))
    both = {key: [x for s in sweeps for x in s[key]] for key in ("runs", "dropped", "every")}
    return sweeps[0] | both | dict(label="reward", covers="; ".join(covers)), dict(panels=panels)


def best_worst(sweep, cfg):
    """n*(C) by avg@k, best@k and worst@k, for the three B_p with most n (section 4.1, observation
    4)."""
    if sweep["runs"][0]["counts"] is None:
        raise BadInput(f"--view=best_worst: {cfg['runs']}: needs counts per problem, as evaluations"
                       " of our trainer have")
    sizes, readings, panels = by_B_p(sweep["cells"]), {}, {}
    for metric in (f"{kind}@{cfg['k']}" for kind in ("avg", "best", "worst")):
        runs = [run | dict(reward=per_problem(run, metric).mean(1)) for run in sweep["runs"]]
        readings[metric] = cells_of(runs, metric)  # noise is pooled across B_p
    for B_p in sorted(sorted(sizes, key=lambda B_p: -len(sizes[B_p]))[:3]):
        for metric, (grid, cells) in readings.items():
            cs = by_B_p(cells)[B_p]
            panel = with_curves(panel_of(cs, grid), cs, grid)
            panels[f"{metric}, B_p={B_p}"] = panel | dict(metric=metric)
    return dict(panels=panels)


def pairs_in(near, several):
    """A set of (B_p, n) as text: n alone where there is one B_p."""
    return ", ".join(f"({b}, {n})" if several else str(n) for b, n in near)


def say_panels(front):
    """Panels as lines of text: switches, the end of the frontier, what the grid leaves open."""
    for name, panel in front["panels"].items():
        env, several = panel["envelope"], panel["B_p"] is None
        yield f"\n{name}:"
        for s in (s for s in panel["switches"] if s["clear"]):
            lo, hi = ("open" if s[end] is None else format_si(s[end]) for end in ("lo", "hi"))
            note = {"begins": "its runs begin here", "ends": "the other's runs end"}.get(
                s["why"], f"{lo} to {hi}, 90%")
            yield (f"  C = {format_si(s['C'])} ({note}): n = {s['from']} -> {s['to']} at M = "
                   f"{format_si(s['M'])}, reward {s['reward']:.3f}")
        if not panel["switches"]:
            yield f"  n = {env['n'][0]} is the best at every budget"
        if unclear := [s for s in panel["switches"] if not s["clear"]]:
            yield (f"  {plural(len(unclear), 'more change')} of the best n, to "
                   f"{', '.join(map(str, sorted({s['to'] for s in unclear})))}, within the error")
        for s in panel.get("segments", ()):
            yield (f"  from C = {format_si(s['C'])}: B_p = {s['B_p']}, n = {s['n']}, B = {s['B']}, "
                   f"{s['reward']:.3f}")
        if "stable_B_p" in panel:
            yield (f"  smallest stable B_p: {panel['stable_B_p'] or 'none'} (at most one run in "
                   f"ten diverged or fell, and its best n loses at most {front['delta']:g})")
        base = "" if panel.get("base") is None else f"; base model {panel['base']:.3f}"
        yield (f"  at C = {format_si(env['C'][-1])}: n = {env['n'][-1]}, {env['reward'][-1]:.3f} "
               f"[{env['lo'][-1]:.3f}, {env['hi'][-1]:.3f}]{base}; tied with the best: "
               f"{pairs_in(panel['near'][-1]['set'], several)}")


# what a panel's dots and lines are: ours, and the paper's, where `drawn` says so
CURVES, RECORDS = "dots: evaluations; lines: smoothed", "dots: records; lines: sigmoids"


def draw_panels(front, path, cols=3, **more):
    """For each panel its curves and frontier, and below them n*(C); more: of `canvas`."""
    panels, unit = front["panels"], front["unit"]
    cols = min(len(panels), cols)
    rows = -(-len(panels) // cols)
    fig, axes = canvas(2 * rows, cols, (10.7, 1.3 + 7.2 * rows), height_ratios=[2, 1.15] * rows,
                       **more)
    for ax in axes.flat[:]:
        ax.set_visible(False)
    colour = colours({n for p in panels.values() for n in p["ns"]})
    for index, (name, panel) in enumerate(panels.items()):
        top, low = (axes[2 * (index // cols) + i, index % cols] for i in (0, 1))
        top.set_visible(True), low.set_visible(True)
        draw_curves(top, panel, colour, panel.get("metric") or front["label"])
        draw_n_star(low, panel, unit)
        if panel.get("drawn") == RECORDS:
            draw_records(low, panel["records"])
        lo, hi = panel["range"]
        for ax in (top, low):
            ax.set_xlim(lo / 1.1, hi * (hi / lo) ** (0.16 + 0.06 * (cols - 1)))  # for the names
        top.set_title(f"{name.replace('B_p', '$B_p$')}: {plural(len(panel['runs_used']), 'run')}, "
                      f"{plural(len(panel['seeds']), 'seed')}", fontsize=10)
    legend(fig, axes.flat, 3)
    what = dict(joint="which (B_p, n) is best", fixed_B="which n is best with $B_p n \\leq B$",
                compare="several sweeps", best_worst="which n is best by metric",
                paper="the paper's Figures 5 to 7, and ours").get(front["view"], "which n is best")
    over = "updates" if unit == "updates" else "compute"
    save(fig, path, front, f"{front['label'].capitalize()} against {over}: {what}")


def draw_curves(ax, panel, colour, label):
    """The curves of a panel, the frontier over them and where it changes hands."""
    env = panel["envelope"]
    y = [r for p in panel.get("points", ()) for C, r in zip(p["C"], p["reward"]) if C > 0]
    y = [*(y or env["highest"]), *env["lo"], *env["hi"]]
    y += [] if panel.get("base") is None else [panel["base"]]
    span, ends = max(y) - min(y) or 0.01, []
    for p in panel.get("points", ()):
        seen = np.array(p["C"]) > 0
        ax.plot(np.array(p["C"])[seen], np.array(p["reward"])[seen], ".", color=colour[p["n"]],
                ms=5, alpha=0.4, mew=0, zorder=2)
    for c in panel.get("curves", ()):
        ax.plot(c["C"], c["reward"], color=colour[c["n"]], lw=1.6)
        if len(c["C"]):
            lrs = {other["lr"] for other in panel["curves"] if other["n"] == c["n"]}
            name = f"n = {c['n']}" + f", lr_base {c['lr']:g}" * (len(lrs) > 1)
            ends.append((c["C"][-1], c["reward"][-1], name, colour[c["n"]]))
    ax.fill_between(env["C"], env["lo"], env["hi"], color="0.86", lw=0, zorder=0,
                    label="90% interval of the frontier")
    pairs = list(zip(env["B_p"], env["n"]))
    starts = [i for i in range(len(pairs)) if not i or pairs[i] != pairs[i - 1]]
    for i, end in zip(starts, [*starts[1:], len(pairs) - 1]):
        n, some = pairs[i][1], slice(i, end + 1)  # to the next piece, so that there is no gap
        ax.plot(env["C"][some], env["highest"][some], color="k", lw=6.5, zorder=3,
                solid_capstyle="butt")
        ax.plot(env["C"][some], env["highest"][some], color=colour[n], lw=4.5, zorder=4,
                solid_capstyle="butt")
        if "curves" not in panel:
            text = str(pairs[i]).replace(" ", "") if panel["B_p"] is None else f"n = {n}"
            ends.append((env["C"][end], env["highest"][end], text, colour[n]))
    ax.plot([], [], color="0.6", lw=5, label="frontier, coloured by its n")
    if panel.get("base") is not None:
        ax.axhline(panel["base"], color="0.3", ls=":", lw=1.3)
        ax.annotate("base model", (0.99, panel["base"]), xycoords=("axes fraction", "data"),
                    fontsize=9, ha="right", va="bottom", color="0.3")
    end_labels(ax, ends, 1.17 * span)
    (lo, hi), named = panel["range"], 0.0
    for s in panel["switches"]:
        ax.axvline(s["C"], color="0.25", lw=0.8, zorder=1, ls="--")
        if s["clear"] and s["C"] > named * (hi / lo) ** 0.07:  # else it would cover the last name
            named = s["C"]
            ax.annotate(f"{s['from']}→{s['to']} at {format_si(named)}", (named, 0.02),
                        xycoords=("data", "axes fraction"), rotation=90, fontsize=9, ha="right",
                        va="bottom", color="0.15", zorder=6,
                        bbox=dict(fc="white", ec="none", alpha=0.7, pad=0.6))
    ax.set(ylabel=label + f" ({panel.get('drawn', CURVES)})" * ("curves" in panel),
           ylim=(min(y) - 0.12 * span, max(y) + 0.05 * span))
    budget_axis(ax, *panel["range"])
    ax.tick_params(labelbottom=False)


# --------------------------------------------------------------------------------------------------
# The paper's way and ours

def paper(sweep, cfg):
    """The paper's way and ours for each B_p: a panel of `fixed_Bp` with `paper`, such a panel too.

    Of the paper's the points are record-breaking and the curves sigmoids, where their runs reached.
    above: how far its frontier lies above ours, on average over log C.
    """
    panels = fixed_Bp(sweep, cfg)["panels"]
    for panel, cs in zip(panels.values(), by_B_p(sweep["cells"]).values()):
        runs, env, points = [run for c in cs for run in c.runs], panel["envelope"], []
        for run in runs:
            kept = record_breaking(run["reward"], cfg["bin"])
            points.append(dict(n=run["n"], C=run["C"][kept], reward=run["reward"][kept]))
        C = np.array(env["C"])
        curves = n_star(runs, cfg["bin"], C)["curves"]
        for c, Y in zip(cs, curves):
            Y[(C < c.reach[0] / 1.001) | (C > c.reach[1] * 1.001)] = np.nan
        some = ~np.isnan(curves).all(0)
        top = np.where(np.isnan(curves), -np.inf, curves)[:, some]
        highest, n = top.max(0), [panel["ns"][i] for i in top.argmax(0)]
        panel["paper"] = panel | dict(
            points=points, switches=[], near=[], drawn=RECORDS,
            curves=[dict(n=c.n, lr=c.lr, C=C[~np.isnan(Y)], reward=Y[~np.isnan(Y)])
                    for c, Y in zip(cs, curves)],
            envelope=dict(C=C[some], n=n, B_p=[panel["B_p"]] * len(n), highest=highest, lo=highest,
                          hi=highest),
            above=(highest - env["highest"][some]).mean() if some.any() else None)
    return dict(panels=panels)


def draw_paper(front, path):
    """frontier_paper.png: the paper's way on the left, ours on the right, a row for each B_p."""
    pairs = {}
    for name, panel in front["panels"].items():
        pairs |= {f"The paper's way: {name}": panel["paper"], f"Ours: {name}": panel}
    draw_panels(front | dict(panels=pairs), path, 2, sharey="row")


def say_paper(front):
    """The two readings of each B_p as lines of text: where the n changes."""
    for name, panel in front["panels"].items():
        theirs = panel["paper"]
        for who, env in (("the paper's way", theirs["envelope"]), ("ours", panel["envelope"])):
            n = env["n"]
            turns = [i for i in range(len(n)) if not i or n[i] != n[i - 1]]
            path = ", ".join(f"{n[i]} from {format_si(env['C'][i])}" for i in turns)
            yield f"  {name}, {who}: n* = {path or 'none, too few record-breaking points'}"
        if theirs["above"] is not None:
            yield (f"  {name}: the paper's frontier lies {100 * theirs['above']:+.1f} points from "
                   "ours, on average over log C: maxima of noisy evaluations")


# --------------------------------------------------------------------------------------------------
# The learning rate as a dimension: n*(C) by one rule for all n, and with each n at its best lr

def lr(sweep, cfg):
    """n*(C) at the one lr_base of the best cell, and with the best one for each n; and how the best
    lr follows B = B_p n, at the largest shared budget of each n.

    Of one B_p, that with most cells, and of its n those with several lr_base. slope: of log(best
    lr) over log B,
    0.5 by the square root rule.
    """
    B_p, cells = max(by_B_p(sweep["every"]).items(), key=lambda item: len(item[1]))
    tried = Counter(c.n for c in cells)
    if max(tried.values()) < 2:
        raise BadInput(f"--view=lr: {cfg['runs']} has one lr_base; run several, as in "
                       f"--lrs=\"{sweep['lr'] / 2:g} {sweep['lr']:g} {2 * sweep['lr']:g}\"")
    runs = [run for c in cells if tried[c.n] > 1 for run in c.runs]
    (grid, cells), rows = cells_of(runs, cfg["metric"]), []
    rule = cells[best(cells, at_end(cells) if at_end(cells) is not None else -1) or 0].lr
    for n in sorted({c.n for c in cells}):
        cs = [c for c in cells if c.n == n]
        j = at_end(cs)
        if j is not None:
            i = best(cs, j)
            rows.append(dict(n=n, C=grid[j], lrs=[c.lr for c in cs],
                             rewards=[c.mean[j] for c in cs], best=cs[i].lr,
                             near=[c.lr for c, tied in zip(cs, tied_with_best(cs, j)) if tied],
                             edge=i in (0, len(cs) - 1)))
    slope = None
    if len(rows) > 1:
        used = [r["best"] * lr_factor(B_p * r["n"], sweep["head"]["lr_scaling"]) for r in rows]
        slope = float(np.polyfit(np.log([r["n"] for r in rows]), np.log(used), 1)[0])
    panels = {f"lr_base = {rule:g} for all n": [c for c in cells if c.lr == rule],
              "the best lr_base for each n": cells}
    return dict(panels={name: panel_of(cs, grid) for name, cs in panels.items()}, B_p=B_p,
                rule=rule, rows=rows, slope=slope, runs=runs, covers=covers(cells),
                seeds=sorted({run["seed"] for run in runs}))


def draw_lr(front, path):
    fig, (axes,) = canvas(1, 2, (10.7, 4.8))
    for (name, panel), style in zip(front["panels"].items(), (("0.45", "--", 3.2),
                                                              ("black", "-", 1.8))):
        color, ls, lw = style
        axes[0].step(panel["envelope"]["C"], panel["envelope"]["n"], where="post", color=color,
                     ls=ls, lw=lw, label=name)
    ns = sorted({n for panel in front["panels"].values() for n in panel["ns"]})
    axes[0].set(yscale="log", ylabel="n*(C)", title="n*(C), two readings")
    log_ticks(axes[0].yaxis, ns)
    budget_axis(axes[0], *panel["range"], front["unit"])
    B_p, scaling = front["B_p"], front["config"]["lr_scaling"]
    for r in front["rows"]:
        used = lr_factor(B_p * r["n"], scaling)
        for lrs, style in ((r["lrs"], dict(marker="o", color="0.8", ms=5, ls="", label="tried")),
                           (r["near"], dict(marker="o", color="0.4", ms=5, lw=1.2,
                                            label="tied with the best")),
                           ([r["best"]], dict(marker="D", color="C3", ms=8, ls="",
                                              label="the best"))):
            axes[1].plot([r["n"]] * len(lrs), np.array(lrs) * used, **style)
    x = np.geomspace(ns[0], ns[-1], 50)
    axes[1].plot(x, [front["rule"] * lr_factor(B_p * n, scaling) for n in x], "--", color="0.3",
                 lw=1, label=f"the rule ({scaling}) at lr_base = {front['rule']:g}")
    axes[1].set(xscale="log", yscale="log", xlabel=f"n, at $B_p$ = {B_p}", ylabel="lr",
                title="the best lr at the largest shared budget")
    log_ticks(axes[1].xaxis, ns)
    legend(fig, axes, 3)
    save(fig, path, front, "n*(C) by one lr rule and with the best lr for each n")


def say_lr(front):
    yield from say_panels(front)
    for r in front["rows"]:
        edge = ", at the edge of those tried" if r["edge"] else ""
        yield (f"  n = {r['n']:<4} best lr_base {r['best']:g}{edge}, at C = {format_si(r['C'])}; "
               f"tied: {', '.join(f'{x:g}' for x in r['near'])}")
    if front["slope"] is not None:
        yield (f"  log(best lr) over log B has slope {front['slope']:.2f}; 0.5 is the square root "
               "rule")


# --------------------------------------------------------------------------------------------------
# At one budget: reward over n and over B_p

@functools.cache
def range_of_noise(cells):
    """Return the 95% quantile of the range of `cells` equal values, in their standard deviation."""
    return stats.studentized_range.ppf(0.95, cells, 1e4)


def sensitivity(sweep, cfg):
    """Reward over n at fixed B_p and over B_p at fixed n, at the largest shared budget (section
    4.2), with its range and the 95% quantile of the range that noise alone would make."""
    lines = []
    for over, fixed in (("n", "B_p"), ("B_p", "n")):
        for value in sorted({getattr(c, fixed) for c in sweep["cells"]}):
            cs = [c for c in sweep["cells"] if getattr(c, fixed) == value]
            cs.sort(key=lambda c: getattr(c, over))
            j = at_end(cs) if len(cs) > 1 else None
            if j is not None:
                means = np.array([c.mean[j] for c in cs])
                errors = [difference(a, b, j)[1:] for a, b in zip(cs, cs[1:])]
                error = np.mean([math.hypot(*e) for e in errors]) / math.sqrt(2)  # of one cell
                by_noise = range_of_noise(len(cs)) * error
                lines.append({"over": over, fixed: value, "C": sweep["grid"][j], "reward": means,
                              "x": [getattr(c, over) for c in cs],
                              "half": [ci_half_width(c, j) for c in cs],
                              "spread": float(np.ptp(means)), "by_noise": float(by_noise)})
    if not lines:
        raise BadInput(f"--view=sensitivity: {cfg['runs']} has one cell for each n and each B_p, "
                       "there is nothing to vary")
    return dict(lines=lines)


def draw_sensitivity(front, path):
    fig, (axes,) = canvas(1, 2, (10.7, 5.2), sharey=True)
    for ax, over, fixed in zip(axes, ("n", "B_p"), ("B_p", "n")):
        lines = [line for line in front["lines"] if line["over"] == over]
        colour = colours([line[fixed] for line in lines])
        for line in lines:
            label = (f"{fixed} = {line[fixed]}: spread {100 * line['spread']:.1f} points, noise "
                     f"alone {100 * line['by_noise']:.1f}")
            ax.errorbar(line["x"], line["reward"], line["half"], color=colour[line[fixed]],
                        marker="o", ms=4, capsize=2, lw=1.4, label=label.replace("B_p", "$B_p$"))
        ax.set_xscale("log", base=2)
        log_ticks(ax.xaxis, sorted({x for line in lines for x in line["x"]}))
        ax.set(xlabel=over.replace("B_p", "$B_p$"),
               ylabel=f"{front['label']}, largest budget" if over == "n" else "")
        if lines:
            ax.legend(fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.13))
    save(fig, path, front, "How much the reward varies with n at fixed $B_p$, and with $B_p$ at "
         "fixed n")


def say_sensitivity(front):
    for line in front["lines"]:
        fixed = "B_p" if line["over"] == "n" else "n"
        yield (f"  over {line['over']} at {fixed} = {line[fixed]}: spread "
               f"{100 * line['spread']:.1f} points (noise alone makes up to "
               f"{100 * line['by_noise']:.1f}, 95%), C = {format_si(line['C'])}")


def slices(sweep, cfg):
    """Reward over n at the largest budget and 1/2, 1/4, 1/8 of it, for each B_p: a list of
    dict(B_p, C, n, reward, half, near, best)."""
    grid, out = sweep["grid"], []
    for B_p, cs in by_B_p(sweep["cells"]).items():
        for C in grid[-1] / 2.0 ** np.arange(3, -1, -1):
            j = nearest(grid, C)
            here = [c for c in cs if c.alive[j]]
            if len(here) > 1 and C > grid[0]:
                out.append(dict(B_p=B_p, C=grid[j], n=[c.n for c in here], best=best(here, j),
                                reward=[c.mean[j] for c in here], near=tied_with_best(here, j),
                                half=[ci_half_width(c, j) for c in here]))
    if not out:
        raise BadInput(f"--view=slices: {cfg['runs']} has one n for each B_p, there is nothing to "
                       "compare")
    return dict(slices=out)


def draw_slices(front, path):
    """Iso-compute slices, as Hoffmann et al. 2022 (Figure 3) draw them, of reward."""
    sizes = sorted({s["B_p"] for s in front["slices"]})
    cols = min(len(sizes), 3)
    rows = -(-len(sizes) // cols)
    fig, axes = canvas(rows, cols, (max(8.0, 4.6 * cols), 1.6 + 4.4 * rows), sharey=True)
    for ax in axes.flat[len(sizes):]:
        ax.set_visible(False)
    for ax, B_p in zip(axes.flat, sizes):
        lines = [s for s in front["slices"] if s["B_p"] == B_p]
        ns = sorted({n for s in lines for n in s["n"]})
        for i, s in enumerate(lines):
            # moved apart a little, so that the intervals of four budgets do not cover each other
            apart = 2 ** (0.07 * (i - (len(lines) - 1) / 2))
            x, R = np.array(s["n"]) * apart, np.array(s["reward"])
            ax.errorbar(x, R, s["half"], color=SHADES[2 * i], marker="o", ms=4, lw=1.6,
                        capsize=2.5, label=f"C = {format_si(s['C'])}")
            same = [j for j, ok in enumerate(s["near"]) if ok and j != s["best"]]
            ax.plot(x[same], R[same], "o", ms=10, mfc="none", mec=SHADES[2 * i],
                    label="tied with the best")
            ax.plot(x[s["best"]], R[s["best"]], "*", ms=12, color=SHADES[2 * i], zorder=5,
                    label="the best n of the budget")
        ax.set_xscale("log", base=2)
        log_ticks(ax.xaxis, ns)
        ax.set(xlabel="rollouts per problem n", title=f"$B_p$ = {B_p}",
               xlim=(ns[0] / 1.35, ns[-1] * 1.35))
        ax.grid(alpha=0.25)
    axes[0, 0].set_ylabel(front["label"])
    legend(fig, axes.flat)
    save(fig, path, front, f"Iso-compute slices: {front['label']} over n")


def say_slices(front):
    for s in front["slices"]:
        near = [n for n, ok in zip(s["n"], s["near"]) if ok]
        yield (f"  B_p = {s['B_p']:<4} C = {format_si(s['C']):>6}: n = {s['n'][s['best']]:<4} "
               f"{s['reward'][s['best']]:.3f}; tied with the best: "
               f"{', '.join(map(str, near))}")


# --------------------------------------------------------------------------------------------------
# Pass rates of the training problems

def thin(samples, correct, k):
    """Pass rates as if each problem had k rollouts: samples, correct (P,) -> (k + 1,), the share of
    problems with c = 0..k solved.

    Runs differ in n, so in rollouts per problem, and the share at 0 falls with them; k drawn
    without replacement makes them equal, exactly and without drawing: the hypergeometric mean.
    Problems with fewer than k are left out.
    """
    comb, out = math.comb, np.zeros(k + 1)
    tally = Counter((s, c) for s, c in zip(samples, correct) if s >= k)
    for (s, c), m in tally.items():
        out += m * np.array([comb(c, j) * comb(s - c, k - j) / comb(s, k) for j in range(k + 1)])
    return out / max(sum(tally.values()), 1)


def polarisation(samples, correct):
    """1 - E[p (1 - p)] / (mean p (1 - mean p)) over problems, from unbiased estimates of p (1 - p):
    0 where all problems have one pass rate, 1 where each is always or never solved.

    samples, correct (P,). NaN where the mean is 0 or 1.
    """
    s, c = np.asarray(samples, float), np.asarray(correct, float)
    s, c = s[s > 1], c[s > 1]
    mean = (c / s).mean() if len(s) else math.nan
    if not 0 < mean < 1:
        return math.nan
    return 1 - (c * (s - c) / (s * (s - 1))).mean() / (mean * (1 - mean))


def pass1(sweep, cfg):
    """Pass rates of the training problems, from the rollouts of training, for all n of one B_p at
    matched n M (section 5.1).

    The B_p is the one with most n. A record covers the updates between two evaluations, or, where
    all runs have such records (--pass_at), it is of the policy at one update.
    """
    runs = [run for run in sweep["runs"] if run["passes"]]
    fresh = all(any(r.get("fresh") and r["rollouts"] for r in run["passes"]) for run in runs)
    runs = [dict(run, passes=[r for r in run["passes"] if bool(r.get("fresh")) == fresh])
            for run in runs]
    if len(runs) < 2:
        raise BadInput(f"--view=pass1: {cfg['runs']}: needs two runs or more with train_pass "
                       f"records, {len(runs)} have any")
    ns = {}
    for run in runs:
        ns.setdefault(run["B_p"], set()).add(run["n"])
    B_p = max(ns, key=lambda b: len(ns[b]))
    runs = [run for run in runs if run["B_p"] == B_p]
    few = min(np.quantile(run["passes"][-1]["samples"], 0.1) for run in runs)
    k, end = int(min(16, max(2, few))), min(run["passes"][-1]["rollouts"] for run in runs)
    out = []
    for run in runs:
        moments = []
        for r in run["passes"]:
            share = thin(r["samples"], r["correct"], k)
            moments.append(dict(C=r["rollouts"], problems=len(r["ids"]), zero=share[0],
                                one=share[-1], share=share,
                                polarisation=polarisation(r["samples"], r["correct"])))
        at = min(moments, key=lambda m: abs(m["C"] - end))
        out.append(dict(run=run["run"], n=run["n"], seed=run["seed"], matched=at, moments=moments))
    return dict(B_p=B_p, k=k, nM=end / B_p, fresh=fresh, passes=out, covers="none")


def draw_pass1(front, path):
    """Figures 11 and 27: pass rates at matched n M, their ends and polarisation over time; below,
    for up to four n, the whole of them at up to four budgets."""
    k, colour = front["k"], colours({r["n"] for r in front["passes"]})
    fig, (axes, below) = canvas(2, 4, (10.7, 7.4), width_ratios=[1.6, 1, 1, 1])
    wide = 0.8 / k / len(colour)
    for i, n in enumerate(colour):
        same = [r for r in front["passes"] if r["n"] == n]
        style = dict(color=colour[n], label=f"n = {n}")
        share = np.mean([r["matched"]["share"] for r in same], 0)
        x = np.arange(k + 1) / k + (i - (len(colour) - 1) / 2) * wide
        axes[0].bar(x, share, width=wide, **style)
        for ax, key in zip(axes[1:], ("zero", "one", "polarisation")):
            for r in same:
                later = [m for m in r["moments"] if m["C"]]
                ax.plot([m["C"] for m in later], [m[key] for m in later], ".-", lw=1.4, ms=4,
                        **style)
                for m in r["moments"]:
                    if not m["C"]:  # C = 0 has no place on a logarithmic axis
                        ax.axhline(m[key], color="0.6", lw=1, ls=":", label="before training")
    axes[0].set(xlabel=f"solved of {k}, as a share", ylabel="share of the training problems",
                title=f"at n M = {format_si(front['nM'])}")
    names = f"share with 0 of {k} solved", f"share with {k} of {k} solved", "polarisation"
    for ax, name in zip(axes[1:], names):
        ax.set(xscale="log", xlabel="rollouts C", title=name)
        budget_axis(ax, *ax.get_xlim())
        ax.tick_params("x", rotation=45)  # narrow panels
    ns = list(colour)
    some = [ns[i] for i in np.unique(np.linspace(0, len(ns) - 1, 4).round().astype(int))]
    for ax in below[len(some):]:
        ax.set_visible(False)
    for ax, n in zip(below, some):
        same = [r["moments"] for r in front["passes"] if r["n"] == n]
        for j, shade in zip(np.unique(np.linspace(0, len(same[0]) - 1, 4).round().astype(int)),
                            ("0.75", "0.5", "0.25", "black")):  # the colours above are those of n
            at = same[0][j]["C"]
            each = [min(moments, key=lambda m: abs(m["C"] - at))["share"] for moments in same]
            ax.stairs(np.mean(each, 0), (np.arange(k + 2) - 0.5) / k, color=shade, lw=1.4,
                      label=f"C = {format_si(at)}")
        ax.set(xlabel=f"solved of {k}, as a share", title=f"n = {n}, over time", yscale="log")
        ax.legend(fontsize=8)
    below[0].set_ylabel("share of the training problems")
    for ax in (*axes, *below):
        ax.title.set_fontsize(10)
    legend(fig, axes, 6)
    source = "rollouts of their own" if front["fresh"] else "the rollouts of training"
    title = f"pass@1 of the training problems, $B_p$ = {front['B_p']}, from {source}"
    save(fig, path, front, title)


def say_pass1(front):
    for r in front["passes"]:
        m = r["matched"]
        yield (f"  n = {r['n']:<4} seed {r['seed']}: at C = {format_si(m['C'])} "
               f"{m['problems']} problems, none of {front['k']} solved {m['zero']:.3f}, "
               f"all {m['one']:.3f}, polarisation {m['polarisation']:.3f}")


# --------------------------------------------------------------------------------------------------

# name: (sweep, cfg) -> content of its JSON; (front, path) draws it; (front) -> lines of text
VIEWS = dict(
    fixed_Bp=(fixed_Bp, draw_panels, say_panels),
    fixed_B=(fixed_B, draw_panels, say_panels),
    joint=(joint, draw_panels, say_panels),
    lr=(lr, draw_lr, say_lr),
    best_worst=(best_worst, draw_panels, say_panels),
    sensitivity=(sensitivity, draw_sensitivity, say_sensitivity),
    paper=(paper, draw_paper, say_paper),
    slices=(slices, draw_slices, say_slices),
    pass1=(pass1, draw_pass1, say_pass1),
)


def say(front):
    """A view as lines of text."""
    yield (f"{front['runs']}, {front['view']}: {len(front['runs_used'])} runs used, "
           f"{len(front['runs_dropped'])} dropped, {front['label']}, budgets in {front['unit']}")
    others = [d for d in front["runs_dropped"] if d.get("other")]
    if others:
        yield (f"  {len(others)} runs in this folder are of another experiment than the sweep,"
               f" such as {others[0]['run']}: {others[0]['why']}")
    for d in front["runs_dropped"]:
        if not d.get("other"):
            yield f"  dropped {d['run']}: {d['why']}"
    yield from (f"  {note}" for note in front["notes"])
    if front["missing"]:
        cells = [f"B_p={m['B_p']} n={m['n']} seed={m['seed']} ({m['why']})"
                 for m in front["missing"][:100]]
        yield f"  missing {len(front['missing'])}: {'; '.join(cells)}"
    yield from VIEWS.get(front["view"], VIEWS["fixed_Bp"])[2](front)
    yield f"\nintervals: {front['covers']}"


def written(sweep, view, content, cfg):
    """Write frontier.json and its figure (frontier_VIEW for another view than fixed_Bp); returns
    what is in them as text."""
    front = front_of(sweep, view, content, cfg)
    name = Path(cfg["out"] or folders_of(cfg["runs"])[0]) / (
        "frontier" if view == "fixed_Bp" else f"frontier_{view}")
    save_json(f"{name}.json", front, indent=None)
    VIEWS.get(view, VIEWS["fixed_Bp"])[1](front, f"{name}.png")
    return "\n".join(say(front)) + f"\nfigure: {name}.png   numbers: {name}.json\n"


def main(argv):
    cfg = parse(argv, __doc__)
    cfg["B_limit"] = cfg["B_max"] if any(word.startswith("--B_max=") for word in argv) else 0
    if cfg["view"] == "compare":
        sweep, content = compare(cfg)
        first = cfg["runs"].split()[0].split(":")[0]
        return print(written(sweep, "compare", content, cfg | dict(
            runs=first, out=cfg["out"] or first)))
    sweep, text = analyse(cfg), []
    for name in VIEWS if cfg["view"] == "all" else [cfg["view"]]:
        try:
            text.append(written(sweep, name, VIEWS[name][0](sweep, sweep["cfg"]), cfg))
        except BadInput as e:
            if cfg["view"] != "all":
                raise
            text.append(f"not drawn: {e}\n")
    if cfg["view"] != "all":
        return print("\n".join(text))
    report = Path(cfg["out"] or folders_of(cfg["runs"])[0]) / "report.txt"
    with atomic_write(report) as part:
        part.write_text("\n".join(text))
    print(f"every figure is in {report.parent}, what they show in {report}", file=sys.stderr)


if __name__ == "__main__":
    entry(main)
