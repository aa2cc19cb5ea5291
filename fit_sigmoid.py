"""fit_sigmoid.py: whether the best n rises with the budget, the law n*(C), and what to run.

    python fit_sigmoid.py --runs=runs/easy                # verdict, law and table
    python fit_sigmoid.py --runs=runs/easy --C=2e6        # and a row for 2 million rollouts
    python fit_sigmoid.py --runs=runs/mine --view=fixed_B # if it has several B_p
    python fit_sigmoid.py --points=mine.csv --C=2e6       # the law through points (C, n)

The law is the paper's log2 n* = L / (1 + exp(-k (log10 C - log10 C0))) + b (section 4). Whether n*
rises at all is tested on the runs, by core.stats.verdict. Writes prescription.csv and law.png, or
law_NAME.png for --points=NAME.csv. --points works, without the figure, in a copy of only this file.

A reward in the table comes from the counts `correct` of the log: per_problem and read_run
(core/runs.py), on_grid, table and heldout_reward (core/stats.py). panel and prescribe copy it.
"""
import argparse
import csv
import math
import sys
import textwrap
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares
from scipy.special import expit

try:
    import frontier
    from config import BadInput, complete, derive, entry
    from core import plots, stats
    from core.log import save_csv
    from core.plots import format_si
    from core.sweep import command, sweep_command
except ModuleNotFoundError:  # copied alone, for --points
    frontier, format_si = None, "{:.4g}".format

BUDGETS = 1 / 8, 1 / 4, 1 / 2, 1, 2, 4   # rows of the table, as multiples of the largest budget
COLUMNS = "metric panel C status B_p n M epochs lr lr_base reward lo hi hours tied".split()


# ---- The law -------------------------------------------------------------------------------------

def fit_law(C, n):
    """Return the law through points C, n (E,) as dict(L, k, x0, b, plateau, why, curve). The
    plateau is at most an octave above the largest n. why: why the points do not determine the law,
    or "". curve: log2 n* over C, None without a law."""
    if len(C) < 5:
        return dict(why="fewer than five points for four numbers", curve=None)
    x, y = np.log10(np.asarray(C, float)), np.log2(np.asarray(n, float))
    lower = np.array([y.min() - 1, 0, math.log(0.5), x.min() - 0.5])
    upper = np.array([y.max() + 1, 40, math.log(50), x.max() + 0.5])

    def errors(p):
        return p[0] - p[1] * expit(-np.exp(p[2]) * (x - p[3])) - y
    starts = [(y.max(), np.ptp(y), math.log(k), x0) for k in (1, 4, 15)
              for x0 in np.quantile(x, (0, 0.25, 0.5, 0.75, 1))]
    fits = [least_squares(errors, np.clip(start, lower, upper), bounds=(lower, upper),
                          x_scale=[1, 1, 0.5, 0.2]) for start in starts]
    found = min(fits, key=lambda fit: fit.cost).x
    room = zip(("plateau", "L", "k", "C0"), np.minimum(found - lower, upper - found))
    at_bound = [name for name, left in room if left < 0.01]
    top, L, log_k, x0 = found
    k, b = math.exp(log_k), top - L
    first, last = expit(k * (x[[0, -1]] - x0))
    why = ("n* rises by less than half an octave" if L * (last - first) < 0.5 else
           "fewer than three values of n" if len(set(np.round(n, 6))) < 3 else
           f"{' and '.join(at_bound)} at a bound of the fit" if at_bound else
           "the points end before the bend" if last < 0.75 else
           "the points begin after the bend" if first > 0.5 else "")

    def curve(C):
        return b + L * expit(k * (np.log10(C) - x0))
    return dict(L=L, k=k, x0=x0, b=b, plateau=2 ** top, why=why, curve=None if why else curve)


def law_of(t, p, view):
    """Return the law of a panel, with plateau_range, its smallest and largest plateau with and
    without one seed, and with core.stats.verdict if all cells have one B_p."""
    law, seeds = fit_law(p["star"]["C"], p["star"]["n"]), {r["seed"] for r in p["runs"]}
    if law["curve"] and len(seeds) > 1:
        stars = (frontier.n_star([r for r in p["runs"] if r["seed"] != s], p["rows"][-1]["C"])
                 for s in seeds)
        if less := [fit_law(star["C"], star["n"])["plateau"] for star in stars if star["curves"]]:
            law["plateau_range"] = min(law["plateau"], *less), max(law["plateau"], *less)
    return law | (stats.verdict(t, p["of"]) if view == "fixed_Bp" else {})


def law_text(law):
    """Return a law, or why there is none, as text."""
    if not law["curve"]:
        return f"no law: {law['why']}"
    low, high = law.get("plateau_range", (0, 0))
    return (f"log2 n* = {law['b']:.2f} + {law['L']:.2f} / (1 + exp(-{law['k']:.2f} (log10 C - "
            f"{law['x0']:.2f}))), plateau n = {law['plateau']:.0f}"
            + f" ({low:.0f} to {high:.0f} without one seed)" * bool(high))


def more_seeds(seeds, ratio):
    """Return how many more seeds, one or more, make the variance `ratio` times smaller."""
    return max(math.ceil(seeds * min(ratio, 99)) - seeds, 1)


def verdict_text(law):
    """Return the verdict of a panel as one sentence: what, its p, and what might decide it."""
    if "verdict" not in law:
        return f"not tested, because cells of several B_p compete; {law_text(law)}"
    if law["p"] is None:
        return ("undecided: the test needs two n or more, each evaluated from a quarter of C or "
                "less to 0.8 C or more")
    a, C = law["ahead"], [format_si(x) for window in law["windows"] for x in window]
    points = f"{abs(100 * a['gap']):.1f} +- {100 * a['half']:.1f} points"
    p, ended = f"p = {law['p']:.2g}", ", ".join(map(str, law["ended"]))
    tested = f", without n = {ended}, which ended early" * bool(ended)
    if law["verdict"] != "undecided":
        early, late = (", ".join(map(str, law["sets"][w])) for w in (0, -1))
        return (f"the best n {law['verdict']} with the budget ({p}{tested}): best or tied up to "
                f"C = {C[1]}: n = {early}; from {C[-2]}: n = {late}; n = {a['by']} is {points} "
                f"ahead of n = {a['n']}" + (f". The law: {law_text(law)}" if law["curve"] else ""))
    more = more_seeds(law["seeds"], (a["half"] / max(a["gap"], 1e-9)) ** 2)
    decide = (f"about {plots.plural(more, 'more seed')} might decide" if more <= 20 else
              "a larger C, other n or more than 20 more seeds might decide")
    needed = (f"needed is {stats.ALPHA}" if law["p"] > stats.ALPHA else
              "but it falls too, or the best or tied n do not change")
    return (f"undecided ({p}, {needed}{tested}): n = {a['n']} comes closest to serving every "
            f"budget, n = {a['by']} is {points} {'ahead of' if a['gap'] > 0 else 'behind'} it at "
            f"C = {format_si(a['C'][0])} to {format_si(a['C'][1])}; {decide}")


# ---- What to run ---------------------------------------------------------------------------------

def in_unit(runs, x, spent, unit):
    """Return what runs had spent of `unit` when they had spent x of `spent`: the mean of those that
    spent as much, or else of all, in proportion beyond their ends."""
    return np.mean([np.interp(x, [0, *r[spent]], [0, *r[unit]]) * max(x / (r[spent][-1] or 1), 1)
                    for r in [r for r in runs if r[spent][-1] >= x * (1 - 1e-9)] or runs])


def prescribe(t, p, C, epochs=0):
    """Return a row of the table, what to run with a budget C, or None below one update: the best
    cell of the panel's nearest budget; within the runs with its reward, beyond them without one.
    epochs: passes that no row exceeds, 0 = any number."""
    rows = p["rows"]
    nearest = rows[np.abs(np.log([row["C"] / C for row in rows])).argmin()]
    i, j, B_p, n = (nearest[key] for key in ("cell", "budget", "B_p", "n"))
    end, mine = t.grid[j:j + 2][-1], [r for r, c in zip(t.runs, t.cell) if c == i]
    observed = t.alive[p["of"], j].any() and rows[0]["C"] <= C * (1 + 1e-9) <= end * (1 + 2e-9)
    # a cell may have ended below its budget; beyond all runs it gets the whole of C
    last = max(r["C"][-1] for r in mine) if observed and not t.alive[i, j] else C
    M = int(in_unit(mine, min(C, last), "C", "rollouts") * (1 + 1e-12)) // (B_p * n)
    D, timed = t.runs[0]["D"], [r for r in mine if r["hours"][-1]] or mine
    M = min(M, int(epochs * D) // B_p) if epochs else M
    row = nearest | dict(
        C=C, status="observed", M=M, epochs=M * B_p / D if D else "",
        lr=derive(complete(t.runs[0]["config"] | nearest))["lr"] or "",
        hours=in_unit(timed, M * B_p * n, "rollouts", "hours") or "")
    if not observed:
        row |= dict(status="extrapolated", reward="", lo="", hi="", tied=[])
    return row if M else None


def table_rows(t, p, asked, epochs=0):
    """Return the rows of a panel: what to run at several budgets and at C = `asked` (0 = none)."""
    low, high = (p["rows"][k]["C"] for k in (0, -1))
    budgets = {asked or high, *(high * f for f in BUDGETS if high * f >= low
                                and not (epochs and f > 1))}
    return [*filter(None, (prescribe(t, p, C, epochs) for C in sorted(budgets)))]


def table_lines(t, rows, axis):
    """Yield the printed table. axis: "M" for budgets in updates, else "C"."""
    hour = "core-h" if any("cpu" in r["device"] for r in t.runs) else "GPU-h"
    several = len({c[0] for c in t.cells}) > 1
    yield (f"  {axis:>7} {'B_p':>6} {'n':>6} {'M':>6} {'epochs':>6} {'lr':>8}  "
           f"{'reward':20} {hour:>7}  tied {'(B_p, n)' if several else 'n'}")
    for r in rows:
        star, reward = "*", "not run"
        if r["status"] == "observed":
            if t.alive[r["cell"], r["budget"]]:
                star = " "
            reward = f"{r['reward']:.3f} [{r['lo']:.3f}, {r['hi']:.3f}]"
        epochs, hours, lr = (f"{r[key]:.{digits}g}" if r[key] else "" for key, digits in
                             (("epochs", 3), ("hours", 3), ("lr", 2)))
        yield (f"  {format_si(r['C']):>7}{star}{r['B_p']:>6} {r['n']:>6} {r['M']:>6} {epochs:>6} "
               f"{lr:>8}  {reward:20} {hours:>7}  {plots.cells_text(t, r['tied'])}")


def cautions(t, row):
    """Yield the warnings on a row of the table, one line each."""
    i, j = row["cell"], row["budget"]
    peak = int(np.nanargmax(np.where(t.alive[i], t.mean[i], np.nan)))
    fall = t.each[i, peak] - t.each[i, j]
    problems = stats.over_problems(t, fall, t.mean[i, [peak, j]])
    if peak < j and fall.mean() > 2 * math.sqrt(problems + 2 * t.var[j] * t.H[j, i, i]):
        yield (f"it was {100 * fall.mean():.1f} points better at C = {format_si(t.grid[peak])}; "
               "stop there")
    if not t.alive[i, j]:
        yield f"no run of this cell reached C = {format_si(t.grid[j])}, so its last reward counts"
    if not t.runs[0]["problems"]:
        yield "the logs do not give `problems`, so the intervals ignore the choice of problems"
    if diverged := sum(r["status"] == "diverged" for r in t.runs):
        yield (f"{plots.plural(diverged, 'run')} diverged; since then counted with the reward of "
               "the base model, which widens the intervals of other n too")
    if np.nanmin(t.V) == np.nanmax(t.V):
        yield f"the reward is always {np.nanmax(t.V):g}, so no n is better than another"
    if len({r["seed"] for r in t.runs}) == 1 and len(t.runs) > 1:
        yield "with one seed a reward includes the luck of the best run, about one point"


def surer(t, p, row, folder):
    """Return (reason, command) of the runs that would make a row surer, or None: of the next n if n
    is at the edge of the grid, else more seeds of the tied cells."""
    B_p, n = row["B_p"], row["n"]
    ns = sorted({t.cells[i][1] for i in p["of"] if t.cells[i][0] == B_p})
    seeds = sorted({r["seed"] for r in t.runs})
    following = 0  # the next n in the steps of the grid, at most a factor of 4 away
    if len(ns) > 1 and n in (ns[0], ns[-1]):
        following = round(n * min(max(n / ns[-2 if n == ns[-1] else 1], 1 / 4), 4))
    ties = [i for i in row["tied"] if t.cells[i][1] != n]
    if following >= 2 and 4 * B_p * following <= p["rows"][-1]["C"]:
        reason = (f"n = {n} is the {'largest' if n == ns[-1] else 'smallest'} that ran with B_p = "
                  f"{B_p}; add n = {following}")
        bps, ns = [B_p], [following]
    elif ties:
        gap, problems, runs, n = min(
            (*stats.difference(t, row["cell"], i, row["budget"]), t.cells[i][1]) for i in ties)
        room = max(gap ** 2 - (stats.Z * problems) ** 2, 1e-9)  # more seeds leave the problems
        more = more_seeds(len(seeds), (stats.Z * runs) ** 2 / room)
        if more > 20:
            return None
        reason = (f"{plots.plural(more, 'more seed')} of the tied cells; n = {n} is "
                  f"{100 * gap:.1f} points behind")
        bps, ns = (sorted({t.cells[i][k] for i in row["tied"]}) for k in (0, 1))
        seeds = range(seeds[-1] + 1, seeds[-1] + 1 + more)
    else:
        return None
    run = t.runs[0]["config"] | dict(lr_base=row["lr_base"])
    return reason, sweep_command(folder, run, max(row["C"], p["rows"][-1]["C"]), B_p * following,
                                 bps=bps, ns=ns, seeds=seeds)


# ---- Your own points -----------------------------------------------------------------------------

def read_points(path):
    """Return (path, C (E,), n (E,)), the columns C and n of a CSV in order of C, for argparse."""
    why = "expected five or more points of one panel, C and n above 0"
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            rows = [*csv.DictReader((x for x in file if x[0] != "#"), skipinitialspace=True)]
        points = np.array(sorted((float(r["C"]), float(r["n"])) for r in rows), float)
        if (len({r.get("panel") for r in rows}) == 1 and len(points) >= 5
                and ((0 < points) & (points < math.inf)).all()):
            return Path(path), *points.T
    except (OSError, KeyError, ValueError, TypeError, csv.Error) as e:
        why = f"no columns C and n with numbers ({e})"
    raise argparse.ArgumentTypeError(f"{path}: {why}")


def report_points(words):
    """Print the law through the points of a CSV and what it prescribes. words: the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        usage=argparse.SUPPRESS, allow_abbrev=False)
    parser.add_argument("--points", required=True, type=read_points, help="CSV of C and n")
    parser.add_argument("--C", type=float, default=[], nargs=1, help="a budget to prescribe for")
    parser.add_argument("--B_p", type=int, default=32, help="problems per batch (default 32)")
    if frontier:
        parser.add_argument("--out", help="folder of the figure (default: that of the CSV file)")
    given = parser.parse_args(words)
    if given.B_p < 1 or not all(0 < budget < math.inf for budget in given.C):
        parser.error(f"{' '.join(words)}: --C and --B_p must be finite and above 0")
    B_p, (path, C, n) = given.B_p, given.points
    law = fit_law(C, n)
    print(law_text(law))
    for budget in sorted({*given.C, C[-1], 4 * C[-1]}):
        best = max(round(2 ** law["curve"](budget) if law["curve"] else n[-1]), 1)
        print(f"C = {format_si(budget)}: B_p = {B_p}, n = {best}, M = {budget // (B_p * best):.0f}"
              + " (n of the last point)" * (not law["curve"]))
    if frontier:
        path = Path(given.out or path.parent, f"law_{path.stem}.png")
        rows = [dict(C=budget, n=m) for budget, m in zip(C, n)]
        plots.law(None, dict(points=dict(rows=rows, law=law)), [], "rollouts", path)
        print(f"figure: {path}")


def main(argv):
    if any(word.startswith("--points=") for word in argv):
        return report_points(argv)
    own = dict(points=("", "CSV file with columns C, n: fit the law to it, not to a sweep"),
               C=(0.0, "budget of the row to run, in `unit`; 0 = the largest of the sweep"))
    cfg = frontier.settings(argv, __doc__, own)
    view, metric = cfg["view"], cfg["metric"]
    if view not in frontier.PANELS:
        raise BadInput(f"--view={view}: drawn by frontier.py; choose {', '.join(frontier.PANELS)}")
    folder, suffix = Path(cfg["out"] or cfg["runs"]), frontier.suffix(cfg)
    figure, table = folder / f"law{suffix}.png", folder / f"prescription{suffix}.csv"
    t, panels, dropped = frontier.analyse(cfg)
    for panel in panels.values():
        panel["law"] = law_of(t, panel, view)
    within = dict(joint=frontier.panel(t, range(len(t.cells)))) if view == "fixed_Bp" else panels
    name, p = list(within.items())[-1]  # with any cell, or with those of the largest B
    rows = table_rows(t, p, cfg["C"], cfg["epochs"])
    row = next((r for r in rows if r["C"] == (cfg["C"] or p["rows"][-1]["C"])), None)
    if row is None:
        raise BadInput(f"--C={cfg['C']:g} is below one update of the best cell; give a larger C")
    save_csv(table, COLUMNS,
             (r | dict(metric=metric, panel=name, tied=plots.cells_text(t, r["tied"]))
              for r in rows))
    plots.law(t, panels, rows if view != "fixed_B" else [], cfg["unit"], figure)

    print("Does the best n rise with the budget?")
    for which, panel in panels.items():
        print(textwrap.fill(f"{which.replace('=', ' = ')}: {verdict_text(panel['law'])}", 118,
                            initial_indent="  ", subsequent_indent="  "))
    axis = f"M updates and {name}" if view == "fixed_B" else f"C {cfg['unit']}"
    print(f"What to run with {axis}; reward = {cfg['eval_set']} {metric} [90% interval]; * = no "
          "evaluation at this budget:", *table_lines(t, rows, axis[0]), sep="\n")
    if not t.runs[0]["source"]:  # train_grpo.py made them
        run = complete(t.runs[0]["config"] | row)
        run["C"] = row["M"] * row["B_p"] * row["n"]
        # in a new folder, because a longer run would change the sweep
        run["out"] = f"runs/{Path(cfg['runs']).name}_n{run['n']}_C{run['C']}"
        print(f"To run the row of {format_si(row['C'])}:\n  {command(run, ['out'])}")
        known = cfg["unit"] == "rollouts" and row["status"] == "observed" and not cfg["epochs"]
        if more := known and surer(t, p, row, cfg["runs"]):
            print(f"To be surer: {more[0]}:\n  {more[1]}")
    left_out = [f"{plots.plural(len(dropped), 'run')} left out, see frontier.py"] * bool(dropped)
    print(*(f"caution: {text}\n" for text in [*cautions(t, row), *left_out]), sep="", end="")
    print(f"figure: {figure}   table: {table}")


if __name__ == "__main__":
    entry(main) if frontier else report_points(sys.argv[1:])
