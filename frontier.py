"""frontier.py: the logs of a sweep -> the best n at every budget, n*(C), and its figures.

    python frontier.py --runs=runs/easy                                 # a panel for each B_p
    python frontier.py --runs=runs/easy --metric=worst@4 --unit=tokens  # other reward, other axis
    python frontier.py --runs=runs/easy --view=all                      # all but compare
    python frontier.py --runs="runs/easy runs/easy:train runs/hard" --view=compare

docs/analysis.md says what each view shows. The first section is the paper's method: log ->
record-breaking points -> one sigmoid for each n -> the highest curve at each C -> n*(C). It needs
only numpy, scipy, config["bin"] and GRID. The other sections make the views.

Each view writes `frontier_VIEW.json` and `frontier_VIEW.png` (fixed_Bp: `frontier.json` and `.png`)
to `out`, or to `runs` if `out` is empty. --view=all also writes the texts of all views to
`report.txt`. fit_sigmoid.py makes its report from frontier.json. docs/log.md lists the fields of
frontier.json. Three fields are estimates of n*: `envelope` is the n of our highest curve at each
budget, `n_star` is the paper's n* (section 4.1), and `records` is the n of the paper's Figure 15.

To add a view, add a row to VIEWS, and its name to the comment at `view` in config.py. A view starts
from sweep["best_lr_cells"], see `analyse`. If you only add a number to the step records, you need
no new view, because --view=training draws every number.
"""
import math
import sys
from collections import Counter
from pathlib import Path

# config first, because it catches Ctrl-C
from config import (ANY_K, BadInput, check_sweep_words, complete, config, entry, lr_factor,
                    parse)
from core.log import atomic_write, save_json
import numpy as np
from scipy.optimize import least_squares
from scipy.special import expit  # 1 / (1 + exp(-x))

from core.stats import (ALPHA, GRID, SPAN, best, best_cell, by_B_p, cells_of, ci_half_width,
                        combined_half_width, covers, gap_between, held_out, heldout_reward, nearest,
                        panel_of, per_problem, runs_of, stop_before, tied_with_best, verdict_of)
from core.plots import (budget_axis, canvas, colours, draw_n_star, draw_records, end_labels,
                        format_si, legend, missing_text, pairs_text, plural, save)
from core.runs import ended, folders_of, missing_cells, problems_trained_on, read_runs
from tools import views


# --------------------------------------------------------------------------------------------------
# The paper's method (section 4, "Data analysis workflow")

def record_breaking(reward, width):
    """Return a mask (E,): whether each reward (E,) of a run is above all earlier rewards.

    The rewards are in order of C. They are compared in bins of `width`, as in the paper, because
    the rewards are noisy. If two rewards fall in one bin, only the first can be a record. Example:
    .501 .504 .512 .508 .516 in bins of .005 -> mask 1 0 1 0 1.
    """
    bins = np.floor(np.asarray(reward) / width + 1e-9)  # 0.57 / 0.005 is 113.99999999999999
    return bins > np.concatenate([[-np.inf], np.maximum.accumulate(bins)[:-1]])


def sigmoid(x, low, rise, k, x0):
    """Return the paper's curve at x = log10 C. It rises from `low` to `low + rise` and is steepest
    at x0."""
    return low + rise * expit(k * (x - x0))


def fit_curve(C, reward):
    """Return (low, rise, k, x0) of the sigmoid fitted to points C (E,) > 0, reward (E,).

    The fit is by least squares. The curve never falls and ends at 1 or below. Its bend x0 is
    within half a decade of the data.
    """
    x = np.log10(C)

    def curve(p):  # p[1] is the final height, not the rise, so that a bound can limit the height
        return p[0], max(p[1] - p[0], 0.0), p[2], p[3]
    lower = np.array([-1.0, 0.0, 0.5, x.min() - 0.5])
    upper = np.array([1.0, 1.0, 50.0, x.max() + 0.5])
    start = np.clip([reward.min(), max(reward.max(), reward.min() + 1e-3), 3.0, x.mean()], lower,
                    upper)
    return np.array(curve(least_squares(lambda p: sigmoid(x, *curve(p)) - reward, start,
                                        bounds=(lower, upper)).x))


def pooled_records(runs, width):
    """Return the record-breaking points of the pooled runs, as dict(C, n, reward, log2_n_mean).

    A point counts if its reward, in bins of `width`, is above all rewards at smaller C in any run.
    The arrays are (E,), in order of C. log2_n_mean: the average of log2 n over a point and two
    neighbours on each side. The paper fits its law to this average. The base model at C = 0 sets
    the first record, but it is not returned as a point.
    """
    points = []
    for run in runs:
        keep = record_breaking(run["reward"], width)
        points += [(C, -reward, run["n"]) for C, reward in zip(run["C"][keep], run["reward"][keep])]
    # sort the points by C, and points with the same C by falling reward
    points = np.array(sorted(points), float).reshape(-1, 3)
    C, reward, n = points[:, 0], -points[:, 1], points[:, 2].astype(int)
    keep = record_breaking(reward, width) & (C > 0)
    C, reward, n = C[keep], reward[keep], n[keep]
    mean = np.array([np.log2(n[max(i - 2, 0):i + 3]).mean() for i in range(len(n))])
    return dict(C=C, n=n, reward=reward, log2_n_mean=mean)


def n_star(runs, width=config["bin"], C=None):
    """Return n*(C) as the paper finds it: at each budget the n of the highest curve.

    Returns dict(C, cells, curves, n, B_p, reward). cells: the (B_p, n) of the N curves. curves
    (N, G): the curves at the budgets C (G,). n, B_p, reward (G,): those of the highest curve. By
    default C begins at the first budget by which every run has an evaluation, and ends at the last
    evaluation of the longest run.
    """
    cells = sorted({(run["B_p"], run["n"]) for run in runs})
    if C is None:
        C = np.geomspace(max(run["C"][run["C"] > 0][0] for run in runs),
                         max(run["C"][-1] for run in runs), GRID)
    curves = np.full((len(cells), len(C)), np.nan)
    for i, cell in enumerate(cells):
        # 1. pool the record-breaking points of the cell's seeds. Use the last record of each run a
        # second time, as a point at the C where the run ends. Without this point the curve would
        # keep rising although the run did not
        points = []
        for run in runs:
            if (run["B_p"], run["n"]) == cell:
                keep = np.flatnonzero(record_breaking(run["reward"], width) & (run["C"] > 0))
                points += zip(run["C"][keep], run["reward"][keep])
                points += [(run["C"][-1], run["reward"][j]) for j in keep[-1:]]
        if len({x for x, _ in points}) < 2:  # too few points for a curve
            continue
        # 2. fit one sigmoid. Extrapolate it if other cells ran to a larger C, because otherwise n*
        # would jump at the C where this cell ends
        x, y = np.array(sorted(points)).T
        curves[i] = sigmoid(np.log10(C), *fit_curve(x, y))
    # 3. find the highest curve at each budget, and 4. its n
    heights = np.where(np.isnan(curves), -np.inf, curves)
    B_p, n = np.array(cells)[heights.argmax(0)].T
    return dict(C=C, cells=cells, curves=curves, n=n, B_p=B_p, reward=heights.max(0))


def interpolate_n(cells, curves):
    """Return (n, bend), both (G,): n*(C) interpolated between the n that were run, and the cost of
    a wrong n.

    cells, curves (N, G): from `n_star`. At each budget a parabola in log2 n goes through the
    highest curve and the curves of the two neighbouring n. n* is at the top of the parabola. bend
    is the reward that the parabola loses one octave from its top. If the highest curve is that of
    the smallest or the largest n, n* is this n, and the parabola goes through this curve and the
    two nearest to it. bend is then the larger of two losses per octave: (1) the parabola's loss,
    (2) the reward lost by a step to the neighbouring n. No bend is below 1e-4. With fewer than
    three n, nothing is interpolated and bend is 1.
    """
    of_n, fitted = np.array([n for _, n in cells]), ~np.isnan(curves[:, 0])
    ns, at = np.unique(of_n[fitted]), np.arange(curves.shape[1])
    heights = np.array([curves[fitted & (of_n == n)].max(0) for n in ns])
    x, highest = np.log2(ns), heights.argmax(0)
    if len(ns) < 3:
        return 2 ** x[highest], np.ones(len(at))
    i = np.clip(highest, 1, len(ns) - 2)
    left, right = ((heights[j + 1, at] - heights[j, at]) / (x[j + 1] - x[j]) for j in (i - 1, i))
    bend = np.maximum((left - right) / (x[i + 1] - x[i - 1]), 1e-9)  # slopes are per octave
    top = (x[i - 1] + x[i]) / 2 + left / (2 * bend)
    slope = np.where(highest < i, -left, np.where(highest > i, right, 0))
    return 2 ** np.where(i == highest, top, x[highest]), np.maximum(np.maximum(bend, slope), 1e-4)


# --------------------------------------------------------------------------------------------------
# A sweep

def analyse(cfg, runs=None):
    """Return the analysed sweep, a dict from which every view is made.

    runs: the sweep's runs. If it is None, they are read from cfg["runs"]. The dict has
      all_cells      one core.stats.Cell for each (B_p, n, lr_base)
      best_lr_cells  for each (B_p, n) the cell whose lr_base is the best at the largest budget
      lr             the lr_base with the most cells; if several tie, the one with the best cell
      one_lr_cells   the cells whose lr_base is `lr`
      grid           the budgets (G,) at which cells are compared
      runs           the runs of best_lr_cells
      dropped        the runs that cannot be used, each with the reason
      missing        the planned runs that have not finished
      head           the config of the run with the largest C
      k              the k of avg@k, best@k and worst@k, at most the runs' rollouts per problem
      label          the name of the reward
      covers         the meaning of the intervals, as text
      cfg            the given config
    """
    part, dropped = "train" if cfg["metric"] == "train" else cfg["eval_set"], []
    if runs is None:
        runs, dropped = read_runs(cfg["runs"], cfg["metric"], cfg["unit"], part, "",
                                  cfg["epochs"])
    grid, cells = cells_of(runs, cfg["metric"])
    count = Counter(c.lr for c in cells)
    whole = [c for c in cells if count[c.lr] == max(count.values())]
    lr = best_cell(whole, -1).lr
    of_pairs = [[c for c in cells if (c.B_p, c.n) == pair]
                for pair in dict.fromkeys((c.B_p, c.n) for c in cells)]
    best_lr = [best_cell(of_pair, -1) for of_pair in of_pairs]
    head = complete(max((run["config"] for run in runs), key=lambda c: c.get("C", 0)))
    label = "training reward"
    if part != "train":
        label = f"{'validation' if part == 'val' else part} {cfg['metric']}"
    return dict(runs=runs_of(best_lr), dropped=dropped, grid=grid,
                all_cells=cells, best_lr_cells=best_lr, lr=lr,
                one_lr_cells=[c for c in cells if c.lr == lr], label=label, head=head,
                k=min(cfg["k"], runs[0]["samples"] or cfg["k"]), covers=covers(cells),
                missing=missing_cells(cfg["runs"], runs, dropped), cfg=cfg)


def notes_of(sweep):
    """Return notes about the runs: unfinished, diverged and pruned ones, and missing seeds."""
    every = runs_of(sweep["all_cells"])
    lrs, notes = sorted({c.lr for c in sweep["all_cells"]}), []
    if len(lrs) > 1:
        notes.append(f"each n is shown at its best lr_base of {', '.join(f'{x:g}' for x in lrs)}; "
                     f"the verdict is at lr_base = {sweep['lr']:g}; --view=lr compares them")
    for run in every:
        if not ended(run):
            notes.append(f"unfinished {run['run']}: used up to its last evaluation")
        if run["status"] in ("diverged", "pruned"):
            notes.append(f"{run['status']} {run['run']} at C = {format_si(run['C'][-1])}")
    most = max(len(c.runs) for c in sweep["all_cells"])
    for c in sweep["all_cells"]:
        if len(c.runs) < most:
            notes.append(f"B_p={c.B_p} n={c.n} lr_base={c.lr:g}: {len(c.runs)} of {most} seeds")
    return notes


# fit_sigmoid.py makes frontier.json again if the file's `schema` is not SCHEMA, or if a
# setting in JSON_KEYS has changed. `asked` in the file has the settings with which it was made
SCHEMA = 3
JSON_KEYS = "runs metric unit bin delta eval_set epochs B_max k".split()


def settings(argv):
    """Return the config of the command line. B_max is 0 if the command line does not give it."""
    check_sweep_words(argv)
    given = any(word.startswith("--B_max=") for word in argv)
    return parse([ANY_K, *argv], __doc__) | (dict() if given else dict(B_max=0))


def front_of(sweep, view, content, cfg):
    """Return the dict for a view's JSON file: `content`, the settings and the runs.

    The figure and the text of the view are made only from this dict.
    """
    every = runs_of(sweep["all_cells"])
    # a view that uses only some of the runs, such as --view=lr, names them in content["runs"]
    runs = content.pop("runs", every)
    asked = {key: cfg[key] for key in JSON_KEYS}
    return asked | dict(  # `content` can replace a setting: for fixed_B, unit = updates
        asked=asked, k=sweep["k"], schema=SCHEMA, view=view, label=sweep["label"],
        config=sweep["head"], device=every[0]["device"],
        source=next((r["source"] for r in every if r["source"]), ""),
        D=problems_trained_on(every[0]), covers=sweep["covers"], notes=notes_of(sweep),
        missing=sweep["missing"], runs_dropped=sweep["dropped"],
        runs_used=[{key: run[key] for key in ("run", "B_p", "n", "lr", "seed", "status")}
                   | dict(evals=len(run["C"]), C=run["C"][-1], first=run["reward"][0],
                          last=run["reward"][-1]) for run in runs]) | content


def starts_of_pieces(values):
    """Return 0 and each index at which the value of a list differs from the value before it."""
    return [i for i in range(len(values)) if not i or values[i] != values[i - 1]]


# --------------------------------------------------------------------------------------------------
# What to run: a row for each budget

def numbers_of(cell, j):
    """Return the numbers of a cell that the report needs at budget j, as a dict for JSON.

    last: the budget at which the cell's runs ended, or None if a run is alive at j. cost: the cost
    of a rollout in the unit of C. hours: the hours of training per rollout, summed over ranks, or
    None if the logs lack gen_s or train_s. On a CPU these are core-hours.
    """
    head = complete(cell.runs[0]["config"])
    hours = [run["hours"] / (run["steps"]["step"][-1] * cell.B_p * cell.n) for run in cell.runs
             if run["hours"]]
    return dict(B_p=cell.B_p, n=cell.n, lr_base=cell.lr, seeds=len(cell.runs),
                lr=cell.lr * lr_factor(cell.B_p * (head["n_train"] or cell.n), head["lr_scaling"]),
                last=None if cell.alive[j] else float(cell.reach[1]),
                cost=float(np.mean([run["per_rollout"] for run in cell.runs])),
                hours=float(np.mean(hours)) if hours else None)


def rows_of(cells, grid, B_max=0):
    """Return a list of rows that say what to run, one row for each budget of the grid.

    A row is a dict for JSON with the numbers of the best cell (`numbers_of`) and
      C         the budget
      reward    the held-out reward of the best cell, with its 90% interval from lo to hi
      observed  whether any run is alive at C
      tied      the cells that are tied with the best, the best first
      by_B_p    the best cell of each B_p
      stop      an earlier stop that is better (stats.stop_before), or None
      edge      the result of `grid_edge`
      diverged  the runs of the best cell that diverged

    The cells in tied and by_B_p have two more numbers. gap: the reward of the best cell minus the
    reward of this cell. half: half of the 90% interval of gap.
    """
    held, out = held_out(cells), []
    rewards = heldout_reward(cells, held)
    for j, C in enumerate(grid):
        top = best(cells, j)
        if top is None:
            continue
        cell = cells[top]

        def with_gap(c):
            gap, half = gap_between(cell, c, j) if c is not cell else (0.0, 0.0)
            return numbers_of(c, j) | dict(gap=gap, half=half)
        tied = [c for c, is_tied in zip(cells, tied_with_best(cells, j)) if is_tied]
        of_sizes = [cs[best(cs, j)] for cs in by_B_p(cells).values() if best(cs, j) is not None]
        half, stop = ci_half_width(cell, j), stop_before(cells, j, held)
        out.append(numbers_of(cell, j) | dict(
            C=float(C), observed=any(bool(c.alive[j]) for c in cells), reward=float(rewards[j]),
            lo=max(float(rewards[j]) - half, 0.0), hi=min(float(rewards[j]) + half, 1.0),
            tied=[with_gap(c) for c in sorted(tied, key=lambda c: c is not cell)],
            by_B_p=[with_gap(c) for c in of_sizes],
            stop=stop and numbers_of(cells[stop["cell"]], stop["j"]) | dict(
                C=float(grid[stop["j"]]), reward=stop["reward"], gain=stop["gain"]),
            edge=grid_edge(cell, cells, B_max),
            diverged=[run["run"] for run in cell.runs if run["status"] == "diverged"]))
    return out


def metrics_at(k):
    """Return the names of the metrics avg@k, best@k and worst@k."""
    return [f"{kind}@{k}" for kind in ("avg", "best", "worst")]


def tables_of(sweep, cfg):
    """Return {metric: rows}, with the rows of `rows_of` for each metric.

    The metrics are cfg["metric"] and, if the log has counts of solved rollouts, avg@k, best@k and
    worst@k.
    """
    runs = runs_of(sweep["all_cells"])
    cells = {cfg["metric"]: sweep["all_cells"]}
    if runs[0]["counts"] is not None:
        cells |= {m: cells_of(runs, m)[1] for m in metrics_at(sweep["k"]) if m not in cells}
    B_max = cfg["B_max"] or sweep["head"]["B_max"]
    tables = {m: rows_of(of_metric, sweep["grid"], B_max) for m, of_metric in cells.items()}
    for row in tables[cfg["metric"]]:
        row["gains"] = gains_of(row, sweep["grid"], cells, sweep["k"])
    return tables


def gains_of(row, grid, cells, k):
    """Return the gain of a row's cell over the base model in best@k and worst@k.

    Returns dict(best, worst, more, half). best, worst: the two gains. more: worst - best. half:
    half of the 90% interval of `more`, which has two errors. The error over problems comes from
    the value of `more` on each problem. The error over runs combines those of best and worst as if
    they were independent.
    worst@k rises if the same problems are solved more reliably (sharpening). best@k rises if more
    problems are solved (coverage; paper, section 4.1).
    Returns None if the logs lack counts of solved rollouts or an evaluation of the base model.
    """
    names = metrics_at(k)[1:]
    if names[0] not in cells:
        return None
    j, each, errors = nearest(grid, row["C"]), [], []
    for metric in names:
        c = next(c for c in cells[metric]
                 if (c.B_p, c.n, c.lr) == (row["B_p"], row["n"], row["lr_base"]))
        base = [per_problem(run, metric)[0] for run in runs_of(cells[metric])
                if run["C"][0] == 0]
        if not base:
            return None
        each.append(c.per_problem[j] - np.mean(base, 0))
        errors.append(math.sqrt(c.noise.run_var[j] * c.noise.cov[j, c.index, c.index]))
    more = each[1] - each[0]  # (P,): one difference for each problem
    half = combined_half_width(more.std(ddof=1) / math.sqrt(len(more)), math.hypot(*errors),
                               c.noise.df[j]) if len(more) > 1 else 1
    return dict(best=float(each[0].mean()), worst=float(each[1].mean()), more=float(more.mean()),
                half=half)


# --------------------------------------------------------------------------------------------------
# Panels of curves, and the views with such panels

def with_curves(panel, cells, grid):
    """Return `panel` with three more entries. curves: the smoothed curve of each cell. points: at
    most 64 evaluations of each run. base: the reward of the base model, None if not evaluated."""
    curves, points = [], []
    for c in cells:
        ok = np.flatnonzero(c.alive)
        half = np.array([ci_half_width(c, j) for j in ok])
        curves.append(dict(n=c.n, B_p=c.B_p, lr=c.lr, seeds=[run["seed"] for run in c.runs],
                           C=grid[ok], reward=c.mean[ok], lo=np.maximum(c.mean[ok] - half, 0),
                           hi=np.minimum(c.mean[ok] + half, 1)))
        for run in c.runs:
            kept = np.unique(np.linspace(0, len(run["C"]) - 1, 64).round().astype(int))
            points.append(dict(n=c.n, seed=run["seed"], C=run["C"][kept],
                               reward=np.round(run["reward"][kept], 5)))
    base = [p["reward"][0] for p in points if p["C"][0] == 0]
    return panel | dict(curves=curves, points=points, base=np.mean(base) if base else None)


def fixed_Bp(sweep, cfg):
    """Return the content of --view=fixed_Bp: a panel for each B_p, in which n is traded against M
    (paper, section 4.1), and the rows that say what to run."""
    panels, of_law = {}, by_B_p(sweep["one_lr_cells"])
    for B_p, cs in by_B_p(sweep["all_cells"]).items():
        panel = panel_of(cs, sweep["grid"])
        on_top = set(zip(panel["envelope"]["n"], panel["envelope"]["lr"]))
        best_lr = [c for c in cs if c in sweep["best_lr_cells"]]
        drawn = [c for c in cs if c in best_lr or (c.n, c.lr) in on_top]
        panel = with_curves(panel, drawn, sweep["grid"])
        runs = runs_of(cs)
        tested = of_law.get(B_p, [])
        verdict = verdict_of(tested, sweep["grid"], cfg["delta"]) | dict(
            lr_base=sweep["lr"], alpha=ALPHA, testable=testable_budget(tested, sweep["grid"]))
        panels[f"B_p={B_p}"] = panel | dict(
            records=pooled_records(runs, cfg["bin"]), n_star=paper_n_star(best_lr, cfg["bin"]),
            verdict=verdict, solved=solved_throughout(runs))
    verdicts = {panel["verdict"]["verdict"] for panel in panels.values()}
    title = ("Best n grows with compute" if verdicts == {"law"} else
             "One n is enough at every budget" if verdicts == {"flat"} else "")
    return dict(panels=panels, rows=tables_of(sweep, cfg), title=title)


def testable_budget(cells, grid):
    """Return the budget to which every n must be trained so that a rise of n* can be tested.

    Return None if there are fewer than two n to test. The test needs budgets that span a factor of
    SPAN, from the first budget that every n reached. 1% is added, because the report rounds the
    result to three digits.
    """
    starts = [float(grid[c.alive.argmax()]) for c in cells if c.alive.any()]
    return 1.01 * SPAN * max(starts) if len(starts) > 1 else None


def solved_throughout(runs):
    """Return "nothing" if all evaluations have reward 0, "everything" if all have reward 1, else
    ""."""
    rewards = np.concatenate([run["reward"] for run in runs])
    return "nothing" if rewards.max() <= 0 else "everything" if rewards.min() >= 1 else ""


def paper_n_star(cells, width):
    """Return the paper's n*(C) for the cells, or None if no curve can be fitted.

    Returns dict(C, n, B_p, reward, between, bend). The first four are from `n_star`. between and
    bend are the n and the bend of `interpolate_n`.
    """
    found = n_star(runs_of(cells), width)
    if np.isneginf(found["reward"]).any():
        return None
    between, bend = interpolate_n(found["cells"], found["curves"])
    return {key: found[key] for key in ("C", "n", "B_p", "reward")} | dict(
        between=between, bend=bend)


def grid_edge(top, cells, B_max):
    """Return dict(text, add) if the best cell `top` has the smallest or largest n of its B_p.

    text: a warning. add: dict(B_p, n) of the cell to run next, or None if B_max allows no larger n.
    Return None if `top` has neither, if its B_p has only one n, or if the next n would be below 2.
    """
    ns = sorted({c.n for c in cells if c.B_p == top.B_p})
    side, size, n = ("largest", "larger", 2 * top.n) if top.n == ns[-1] else (
        "smallest", "smaller", top.n // 2)
    if len(ns) < 2 or top.n not in (ns[0], ns[-1]) or n < 2:
        return None
    text = (f"n = {top.n} is the {side} n run at B_p = {top.B_p} and the best, so a {size} n "
            "may be better")
    if B_max and top.B_p * n > B_max:
        return dict(add=None, text=f"{text}; but B_p n is limited to {B_max}")
    return dict(add=dict(B_p=top.B_p, n=n), text=f"{text}; add n = {n}")


def best_worst(sweep, cfg):
    """Return the content of --view=best_worst: panels by avg@k, best@k and worst@k.

    The view shows the three B_p that have the most values of n. Each has one panel per metric
    (paper, section 4.1, observation 4).
    """
    if sweep["runs"][0]["counts"] is None:
        raise BadInput(f"--view=best_worst: the logs in {cfg['runs']} lack `correct`, the solved "
                       "rollouts of each problem, which train_grpo.py writes")
    sizes, readings, panels = by_B_p(sweep["best_lr_cells"]), {}, {}
    for metric in metrics_at(sweep["k"]):
        runs = [run | dict(reward=per_problem(run, metric).mean(1)) for run in sweep["runs"]]
        # use the runs of all B_p, because the noise is pooled across B_p
        readings[metric] = cells_of(runs, metric)
    for B_p in sorted(sorted(sizes, key=lambda B_p: -len(sizes[B_p]))[:3]):
        for metric, (grid, cells) in readings.items():
            cs = by_B_p(cells)[B_p]
            panel = with_curves(panel_of(cs, grid), cs, grid)
            panels[f"{metric}, B_p={B_p}"] = panel | dict(metric=metric)
    return dict(panels=panels, title="Best n against compute, by metric")


def joint(sweep, cfg):
    """Return the content of --view=joint: one panel with the best (B_p, n) at each budget and the
    smallest stable B_p (paper, section 4.3), and the rows that say what to run."""
    panel = panel_of(sweep["all_cells"], sweep["grid"])
    env = panel["envelope"]
    pairs = list(zip(env["B_p"], env["n"]))
    fallen, tables = stability(sweep["all_cells"]), tables_of(sweep, cfg)
    worse = [c["B_p"] for c in tables[cfg["metric"]][-1]["by_B_p"] if c["gap"] > cfg["delta"]]
    return dict(panels={"joint": panel | dict(
        records=pooled_records(runs_of(sweep["all_cells"]), cfg["bin"]),
        n_star=paper_n_star(sweep["best_lr_cells"], cfg["bin"]),
        segments=[dict(C=env["C"][i], B_p=env["B_p"][i], n=env["n"][i], B=pairs[i][0] * pairs[i][1],
                       reward=env["highest"][i]) for i in starts_of_pieces(pairs)],
        stability=fallen, stable_B_p=smallest_stable(fallen, worse))}, rows=tables,
        title="Best ($B_p$, n) against compute")


def collapsed(run, values, checkpoints):
    """Return whether a run diverged, or ends more than two standard errors below its peak.

    values (G, P): the run's smoothed reward on each problem at each budget. checkpoints: from
    core.stats.checkpoint_sd. The peak is chosen on one half of the problems, and the fall from the
    peak is measured on the other half, and vice versa. The standard error covers the problems and
    the noise of the checkpoints at the peak and at the end. The fall is not tested if the run has
    fewer than 3 budgets, if there are fewer than 4 problems, or if the log lacks counts of solved
    rollouts.
    """
    values = values[~np.isnan(values[:, 0])]
    if run["status"] == "diverged" or len(values) < 3 or values.shape[1] < 4:
        return run["status"] == "diverged"
    fall = np.zeros(values.shape[1])
    for half in (0, 1):
        peak = values[:, half::2].mean(1).argmax()
        fall[1 - half::2] = (values[peak] - values[-1])[1 - half::2]
    error = math.hypot(fall.std(ddof=1) / math.sqrt(len(fall)), checkpoints * math.sqrt(2))
    return bool(fall.mean() > 2 * error)


def stability(cells):
    """Return {B_p: (number of runs that diverged or collapsed, number of runs)}, sorted by B_p."""
    out = {}
    for B_p, cs in by_B_p(cells).items():
        fallen = [collapsed(run, values[c.alive], c.noise.checkpoints) for c in cs
                  for run, values in zip(c.runs, c.values)]
        out[B_p] = sum(fallen), len(fallen)
    return out


def smallest_stable(by_size, worse=()):
    """Return the smallest B_p at which at most one run in ten diverged or collapsed, or None.

    by_size: the result of `stability`. worse: B_p that are left out, because at the largest budget
    their best cell is more than delta below the best cell of all B_p.
    """
    return min((b for b, (bad, runs) in by_size.items() if bad <= runs / 10 and b not in worse),
               default=None)


def fixed_B(sweep, cfg):
    """Return the content of --view=fixed_B: a panel and a table of what to run for each batch B.

    For each number of updates M, a panel shows which (B_p, n) with B_p n <= B is best after M
    updates (paper, section 4.2). The unit of C is updates here, so fit_sigmoid.py fits n*(M) and
    B_p*(M). If the command line gives B_max, it is the only B. Otherwise the B are the three most
    common values of B_p n that at least two cells have.
    """
    by_updates = [run | dict(C=run["step"], per_rollout=1 / (run["B_p"] * run["n"]))
                  for run in sweep["runs"]]
    grid, cells = cells_of(by_updates, cfg["metric"])
    count = Counter(c.B_p * c.n for c in cells)
    limits = sorted((B for B in count if count[B] > 1), key=lambda B: -count[B])[:3]
    if cfg["B_max"]:
        limits = [cfg["B_max"]]
        if min(count) > cfg["B_max"]:
            raise BadInput(f"--B_max={cfg['B_max']}: the smallest B_p n in {cfg['runs']} is "
                           f"{min(count)}; give this or more")
    if not limits:
        raise BadInput(f"--view=fixed_B: {cfg['runs']} has no two cells with the same B = B_p n; "
                       "run several B_p at one B")
    panels, tables = {}, {}
    for B in sorted(limits):
        cs = [c for c in cells if c.B_p * c.n <= B]
        # the panel ends with the last update of the largest batches, although runs with smaller
        # batches make more updates
        largest = [c for c in cs if c.B_p * c.n == max(c.B_p * c.n for c in cs)]
        end = max(c.reach[1] for c in largest) * (1 + 1e-9)
        panel = panel_of([c for c in cs if c.reach[0] <= end], grid, end)
        records = pooled_records(runs_of(largest), cfg["bin"])
        panels[f"B={B}"] = panel | dict(
            B=B, records=records, n_star=paper_n_star(largest, cfg["bin"]), of_batch=[
                dict(n=c.n, B_p=c.B_p, C=grid[c.alive], reward=c.mean[c.alive]) for c in largest])
        tables[f"B={B}"] = [row for row in rows_of(cs, grid, B) if row["C"] <= end]
    return dict(panels=panels, rows=tables, unit="updates",
                title="Best n against updates at a fixed batch, $B_p n \\leq B$")


def describe_panels(front):
    """Yield lines of text for each panel: the switches of n, the best cell at the end, and the
    cells that are tied with the best cell."""
    axis = "M" if front["unit"] == "updates" else "C"
    for name, panel in front["panels"].items():
        env, several = panel["envelope"], panel["B_p"] is None
        yield f"\n{name}:"
        for s in (s for s in panel["switches"] if s["clear"]):
            lo, hi = ("open" if s[end] is None else format_si(s[end]) for end in ("lo", "hi"))
            note = {"begins": f"the runs of n = {s['to']} begin here",
                    "ends": f"the runs of n = {s['from']} end here"}.get(
                        s["why"], f"{lo} to {hi}, 90%")
            M = "" if axis == "M" else f" at M = {format_si(s['M'])}"
            yield (f"  {axis} = {format_si(s['C'])} ({note}): n = {s['from']} -> {s['to']}{M}, "
                   f"reward {s['reward']:.3f}")
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
                   f"ten diverged or collapsed, and its best n loses at most {front['delta']:g})")
        base = "" if panel.get("base") is None else f"; base model {panel['base']:.3f}"
        yield (f"  at {axis} = {format_si(env['C'][-1])}: n = {env['n'][-1]}, "
               f"{env['reward'][-1]:.3f} [{env['lo'][-1]:.3f}, {env['hi'][-1]:.3f}]{base}; "
               f"tied with the best: {pairs_text(panel['near'][-1]['set'], several)}")


# What the dots and lines of a panel show. CURVES is for our panels, and RECORDS is for the panels
# by the paper's method, in --view=paper
CURVES, RECORDS = "dots: evaluations; lines: smoothed", "dots: records; lines: sigmoids"


def draw_panels(front, path, cols=3, **more):
    """Draw the curves and the frontier of each panel, and n*(C) below them.

    more: further arguments for `canvas`.
    """
    panels, unit = front["panels"], front["unit"]
    cols = min(len(panels), cols)
    rows = -(-len(panels) // cols)
    fig, axes = canvas(2 * rows, cols, (10.7, 1.3 + 7.2 * rows), height_ratios=[2, 1.15] * rows,
                       **more)
    for ax in axes.flat:
        ax.set_visible(False)
    colour = colours({n for p in panels.values() for n in p["ns"]})
    for index, (name, panel) in enumerate(panels.items()):
        top, low = (axes[2 * (index // cols) + i, index % cols] for i in (0, 1))
        top.set_visible(True), low.set_visible(True)
        draw_curves(top, panel, colour, panel.get("metric") or front["label"])
        draw_n_star(low, panel, unit)
        if panel.get("drawn") == RECORDS:
            draw_records(low, panel["records"])
        low.set_xlim(top.get_xlim())
        runs = f"{plural(len(panel['runs_used']), 'run')}, {plural(len(panel['seeds']), 'seed')}"
        top.set_title(f"{name.replace('B_p', '$B_p$')}, {front['label']}: {runs}", fontsize=10)
    legend(fig, axes.flat)
    save(fig, path, front, "Best n against compute")


def draw_curves(ax, panel, colour, label):
    """Draw the curves of a panel, the frontier, and the budgets at which the best n changes."""
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
    starts = starts_of_pieces(pairs)
    for i, end in zip(starts, [*starts[1:], len(pairs) - 1]):
        # draw each piece of the frontier up to the start of the next, so that there is no gap
        n, piece = pairs[i][1], slice(i, end + 1)
        for shade, width, zorder in (("k", 6.5, 3), (colour[n], 4.5, 4)):
            ax.plot(env["C"][piece], env["highest"][piece], color=shade, lw=width, zorder=zorder,
                    solid_capstyle="butt")
        if "curves" not in panel:
            name = str(pairs[i]).replace(" ", "") if panel["B_p"] is None else f"n = {n}"
            ends.append((env["C"][end], env["highest"][end], name, colour[n]))
    ax.plot([], [], color="0.6", lw=5, label="frontier, coloured by its n")
    if panel.get("base") is not None:
        ax.axhline(panel["base"], color="0.3", ls=":", lw=1.3)
        ax.annotate("base model", (0.99, panel["base"]), xycoords=("axes fraction", "data"),
                    fontsize=9, ha="right", va="bottom", color="0.3")
    (lo, hi), named = panel["range"], 0.0
    for s in (s for s in panel["switches"] if s["clear"]):
        ax.axvline(s["C"], color="0.25", lw=0.8, zorder=1, ls="--")
        # leave out a label that would cover the label before it
        if s["C"] > named * (hi / lo) ** 0.07:
            named = s["C"]
            ax.annotate(f"{s['from']}→{s['to']} at {format_si(named)}", (named, 0.02),
                        xycoords=("data", "axes fraction"), rotation=90, fontsize=9, ha="right",
                        va="bottom", color="0.15", zorder=6,
                        bbox=dict(fc="white", ec="none", alpha=0.7, pad=0.6))
    ax.set(ylabel=label + f" ({panel.get('drawn', CURVES)})" * ("curves" in panel),
           ylim=(min(y) - 0.12 * span, max(y) + 0.05 * span), xlim=(lo / 1.1, hi * 1.1))
    budget_axis(ax, lo, hi)
    end_labels(ax, ends)
    ax.tick_params(labelbottom=False)


# --------------------------------------------------------------------------------------------------
# The paper's curves next to ours

def paper(sweep, cfg):
    """Return the content of --view=paper: the panels of `fixed_Bp`, each with an entry `paper`.

    The entry is a panel for the same runs, by the paper's method. Its points are the
    record-breaking points. It has a curve for each cell: a sigmoid at the budgets that the cell's
    runs cover. Its number `above` is the paper's frontier minus our frontier, averaged over log C.
    """
    panels = fixed_Bp(sweep, cfg)["panels"]
    for panel, cs in zip(panels.values(), by_B_p(sweep["best_lr_cells"]).values()):
        runs, env, points = runs_of(cs), panel["envelope"], []
        for run in runs:
            kept = record_breaking(run["reward"], cfg["bin"])
            points.append(dict(n=run["n"], C=run["C"][kept], reward=run["reward"][kept]))
        C = np.array(env["C"])
        curves = n_star(runs, cfg["bin"], C)["curves"]
        for c, Y in zip(cs, curves):
            Y[(C < c.reach[0] / 1.001) | (C > c.reach[1] * 1.001)] = np.nan
        defined = ~np.isnan(curves).all(0)
        top = np.where(np.isnan(curves), -np.inf, curves)[:, defined]
        highest, n = top.max(0), [panel["ns"][i] for i in top.argmax(0)]
        panel["paper"] = panel | dict(
            points=points, switches=[], near=[], drawn=RECORDS,
            curves=[dict(n=c.n, lr=c.lr, C=C[~np.isnan(Y)], reward=Y[~np.isnan(Y)])
                    for c, Y in zip(cs, curves)],
            envelope=dict(C=C[defined], n=n, B_p=[panel["B_p"]] * len(n), highest=highest,
                          lo=highest, hi=highest),
            above=(highest - env["highest"][defined]).mean() if defined.any() else None)
    return dict(panels=panels, title="The paper's Figures 5 to 7, and ours")


def draw_paper(front, path):
    """Draw the paper's curves on the left and our curves on the right, a row for each B_p."""
    pairs = {}
    for name, panel in front["panels"].items():
        pairs |= {f"The paper's way: {name}": panel["paper"], f"Ours: {name}": panel}
    draw_panels(front | dict(panels=pairs), path, 2, sharey="row")


def describe_paper(front):
    """Yield lines of text for each B_p: n*(C) by the paper's method, our n*(C), and the mean gap
    between the two frontiers."""
    for name, panel in front["panels"].items():
        theirs = panel["paper"]
        for who, env in (("the paper's way", theirs["envelope"]), ("ours", panel["envelope"])):
            path = ", ".join(f"{env['n'][i]} from {format_si(env['C'][i])}"
                             for i in starts_of_pieces(env["n"]))
            yield f"  {name}, {who}: n* = {path or 'none, too few record-breaking points'}"
        if theirs["above"] is not None:
            yield (f"  {name}: the paper's frontier is {100 * theirs['above']:+.1f} points from "
                   "ours on average over log C, because it consists of maxima of noisy evaluations")


# --------------------------------------------------------------------------------------------------
# Several sweeps

def analyse_each(cfg):
    """Return one dict like that of `analyse`, with the runs of all sweeps that --runs names.

    The entry `sweeps` has the separately analysed sweeps, {word of --runs: sweep}. An example is
    --runs="A B:train C:SET C:best@4". A word begins with a folder. After a colon, the word may name
    another set of evaluations, another metric, or `train` for the training reward.
    """
    sweeps = {}
    for word in cfg["runs"].split():
        folder, *rest = word.split(":")
        metrics = [r for r in rest if "@" in r or r == "reward"]
        sets = [r for r in rest if r not in metrics]
        sweeps[word] = analyse(cfg | dict(runs=folder,
                                          metric=metrics[0] if metrics else cfg["metric"],
                                          eval_set=sets[0] if sets else cfg["eval_set"]))
    if len(sweeps) < 2:
        raise BadInput(f'--runs={cfg["runs"]} is one sweep, but --view=compare needs two or more, '
                       'with a space between, as in --runs="A B"')
    each = list(sweeps.values())
    both = {key: [x for s in each for x in s[key]] for key in ("runs", "dropped", "all_cells")}
    covers = dict.fromkeys(part for s in each for part in s["covers"].split("; "))
    return each[0] | both | dict(label="reward", covers="; ".join(covers), missing=[],
                                 sweeps=sweeps)


def compare(sweep, cfg):
    """Return a panel for each sweep of `analyse_each`, and the notes of each sweep.

    A panel shows the B_p that has the most values of n in its sweep.
    """
    panels, notes = {}, []
    for word, s in sweep["sweeps"].items():
        missing = [missing_text(s["missing"], 100)] if s["missing"] else []
        notes += [f"{word}: {note}" for note in notes_of(s) + missing]
        B_p, cs = max(by_B_p(s["best_lr_cells"]).items(), key=lambda item: len(item[1]))
        panel = with_curves(panel_of(cs, s["grid"]), cs, s["grid"])
        panels[f"{word}, B_p={B_p}"] = panel | dict(metric=s["label"])
    return dict(panels=panels, notes=notes, title="Best n in several sweeps")


# --------------------------------------------------------------------------------------------------
# The script

# {view: (function (sweep, cfg) -> content of its JSON file, function (front, path) that draws it,
#         function (front) -> lines of text)}
VIEWS = dict(
    fixed_Bp=(fixed_Bp, draw_panels, describe_panels),
    fixed_B=(fixed_B, draw_panels, describe_panels),
    joint=(joint, draw_panels, describe_panels),
    paper=(paper, draw_paper, describe_paper),
    lr=(views.lr, views.draw_lr,
        lambda front: [*describe_panels(front), *views.describe_lr(front)]),
    best_worst=(best_worst, draw_panels, describe_panels),
    sensitivity=(views.sensitivity, views.draw_sensitivity, views.describe_sensitivity),
    slices=(views.slices, views.draw_slices, views.describe_slices),
    pass1=(views.pass1, views.draw_pass1, views.describe_pass1),
    training=(views.training, views.draw_training, views.describe_training),
    compare=(compare, draw_panels, describe_panels),
)


def describe(front):
    """Yield the lines of a view's text: the runs, the results, and what the intervals cover."""
    yield (f"{front['runs']}, {front['view']}: {len(front['runs_used'])} runs used, "
           f"{len(front['runs_dropped'])} dropped, {front['label']}, budgets in {front['unit']}")
    others = [d for d in front["runs_dropped"] if d.get("other")]
    if others:
        yield (f"  runs of another experiment than the sweep in this folder: {len(others)}, "
               f"such as {others[0]['run']}: {others[0]['why']}")
    for d in front["runs_dropped"]:
        if not d.get("other"):
            yield f"  dropped {d['run']}: {d['why']}"
    yield from (f"  {note}" for note in front["notes"])
    if front["missing"]:
        yield f"  {missing_text(front['missing'], 100)}"
    _, _, describe_view = VIEWS[front["view"]]
    yield from describe_view(front)
    if front["covers"]:
        yield f"\nintervals: {front['covers']}"


def write_view(sweep, view, cfg, folder):
    """Write the JSON file and the figure of a view, and return its text."""
    content, draw, _ = VIEWS[view]
    front = front_of(sweep, view, content(sweep, cfg), cfg)
    name = folder / ("frontier" if view == "fixed_Bp" else f"frontier_{view}")
    save_json(f"{name}.json", front, indent=None)
    draw(front, f"{name}.png")
    return "\n".join(describe(front)) + f"\nfigure: {name}.png   numbers: {name}.json\n"


def write_all(sweep, cfg, folder):
    """Write the files of all views but `compare`, and report.txt with the texts of these views.
    Return the exit code.

    The report names each view that is not drawn, with the reason. If the sweep has no data for a
    view, the exit code is 0. If a view fails for another reason, the exit code is 1.
    """
    texts, code = [], 0
    for view in (view for view in VIEWS if view != "compare"):
        try:
            texts.append(write_view(sweep, view, cfg, folder))
        except BadInput as e:
            texts.append(f"{view} is not drawn: {e}\n")
        except Exception as e:
            code = 1
            texts.append(f"{view} failed: {e!r}\n")
            print(f"frontier.py: {texts[-1]}", end="", file=sys.stderr)
    with atomic_write(folder / "report.txt") as part:
        part.write_text("\n".join(texts))
    print(f"the figures are in {folder}, their numbers as text in {folder / 'report.txt'}",
          file=sys.stderr)
    return code


def main(argv):
    cfg = settings(argv)
    sweep = (analyse_each if cfg["view"] == "compare" else analyse)(cfg)
    folder = Path(cfg["out"] or folders_of(sweep["cfg"]["runs"])[0])
    if cfg["view"] == "all":
        return write_all(sweep, cfg, folder)
    print(write_view(sweep, cfg["view"], cfg, folder))


if __name__ == "__main__":
    entry(main)
