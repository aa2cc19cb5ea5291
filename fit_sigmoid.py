"""fit_sigmoid.py: the law n*(C), whether a sweep shows it, and what to run with a budget.

    python fit_sigmoid.py --runs=runs/easy                    # verdict, law and prescription
    python fit_sigmoid.py --runs=runs/easy --C=2e6            # and for 2 million rollouts
    python fit_sigmoid.py --runs=runs/easy --epochs=1         # within one pass over the problems
    python fit_sigmoid.py --runs=runs/easy --view=fixed_B --B_max=8192    # at most 8192 an update
    python fit_sigmoid.py --points=mine.csv --C=2e6           # through points of your own (C, n)

Reads frontier.json, or the CSV of --points, and no logs. If frontier.json is missing, is older than
the logs or was made with other options, this script first runs frontier.py. It prints a report:
whether the best n rises with the budget, what to run with an eighth to four times the sweep's
largest budget, and the command for the requested budget. It writes `prescription.csv` (what to run,
by avg@k, best@k and worst@k), `law.json` and `law.png` to `out`, or to `runs` if `out` is empty.
With --view=joint or fixed_B, the names end in _VIEW, as in `law_joint.png`.

The first section of the code fits the paper's law to points n*(C). To fit a CSV in another project,
copy fit_sigmoid.py and core/plots.py. They accept --points, --C and --out. n*(C) is a step function, so its points do not
show how certain the law is. If there are runs, core/stats.verdict_of tests the law with them, and
frontier.json has the verdict.
"""
import contextlib
import csv
import io
import json
import math
import shlex
import sys
from pathlib import Path

try:  # import config first, so that Ctrl-C during the other imports prints no traceback
    from config import ANY_K, BadInput, command, derive, entry, parse, read_json
except ImportError:  # config.py is missing if only this file and core/plots.py were copied
    parse, BadInput = None, ValueError
import numpy as np
from scipy.optimize import least_squares
from scipy.special import expit  # 1 / (1 + exp(-x))

from core.plots import (budget_axis, canvas, draw_n_star, format_si, legend, log_ticks,
                        missing_text, pairs_text, plural, wrap, write)

# --------------------------------------------------------------------------------------------------
# The law log2 n* = L / (1 + exp(-k (log10 C - log10 C0))) + b, from points (C, n*)

NUMBERS = ("L", "k", "log10_C0", "b", "plateau")
# The law's k, per decade of C, is fitted between these bounds. The paper once prints k = 50.00,
# which is probably its own upper bound
K_LAW = (0.5, 50.0)
# If n* comes from noisy curves, the plateau is at most ROOM octaves above the largest n*. With one
# octave, the fit would follow the noise at the last budgets (tests/bench/plateaus.py)
ROOM = 0.25


def law_at(law, C):
    """Return log2 n* at budgets C (E,). law: a dict of L, k, log10_C0 and b."""
    return law["b"] + law["L"] * expit(law["k"] * (np.log10(C) - law["log10_C0"]))


def fit_law(C, log2_n, weight=None, room=1.0):
    """Return the law through points C (E,), log2 n* (E,) as dict(L, k, log10_C0, b, plateau).

    The fit minimises the squared errors of log2 n*, weighted by weight (E,). plateau = 2^(L + b) is
    n* at large C. The plateau is at most `room` octaves above the largest n* of the points. C0 is
    at most half a decade outside the range of the points. L is at least 0.
    """
    x, y = np.log10(np.asarray(C, float)), np.asarray(log2_n, float)
    w = np.ones(len(x)) if weight is None else np.asarray(weight, float)
    w = w / w.sum()
    # bounds of the four fitted parameters: log2(plateau), L, log(k) and log10(C0)
    lower = [y.min() - 1, 0.0, math.log(K_LAW[0]), x.min() - 0.5]
    upper = [y.max() + room, 40.0, math.log(K_LAW[1]), x.max() + 0.5]
    # The search starts at the best pair of a grid of S pairs (k, C0). For a fixed pair, log2 n*
    # is linear in L and log2(plateau), so their best values have a closed form. sigmoid (S, E) is
    # the sigmoid of each pair at each point
    log_k, log_C0 = (a.ravel() for a in np.meshgrid(np.linspace(lower[2], upper[2], 25),
                                                    np.linspace(lower[3], upper[3], 31)))
    sigmoid = expit(np.exp(log_k)[:, None] * (x - log_C0[:, None]))
    centred = sigmoid - (sigmoid @ w)[:, None]
    L = np.clip(centred @ (w * y) / np.maximum(centred ** 2 @ w, 1e-14), 0, 40)
    ceiling = np.clip(y @ w + L * (1 - sigmoid @ w), lower[0], upper[0])
    best = ((ceiling[:, None] - L[:, None] * (1 - sigmoid) - y) ** 2 @ w).argmin()

    def errors(p):
        ceiling, L, log_k, log_C0 = p
        fitted = ceiling - L * expit(-np.exp(log_k) * (x - log_C0))
        return np.sqrt(w * len(x)) * (fitted - y)
    start = np.clip([ceiling[best], L[best], log_k[best], log_C0[best]], lower, upper)
    ceiling, L, log_k, log_C0 = least_squares(errors, start, bounds=(lower, upper),
                                              x_scale=[1, 1, 0.5, 0.2]).x
    return dict(L=L, k=math.exp(log_k), log10_C0=log_C0, b=ceiling - L, plateau=2 ** ceiling)


def at_bounds(C, log2_n, law):
    """Return the parameters of a law that are at a bound of the fit, as texts such as "k = 50".

    law: from `fit_law` with room = 1. If a parameter is at a bound, the points do not determine it.
    """
    x, out = np.log10(C), []
    for name, value, low, high, shown in (
            ("C0", law["log10_C0"], x.min() - 0.5, x.max() + 0.5, 10 ** law["log10_C0"]),
            ("k", math.log(law["k"]), *np.log(K_LAW), law["k"])):
        if min(value - low, high - value) < 0.01 * (high - low):
            out.append(f"{name} = {shown:.3g}")
    if law["L"] <= 1e-6:
        out.append("L = 0")
    elif law["plateau"] > 2 ** (np.max(log2_n) + 1 - 1e-4):
        out.append(f"plateau = {law['plateau']:.0f}, twice the largest n*")
    return out


def law_verdict(C, log2_n, law, n=None):
    """Judge whether the points C, log2_n (E,) determine `law`, their fit with room = 1.

    Returns (verdict, reason). The verdict is "law", "flat" (the same n at every budget) or
    "undetermined". For "law" the reason is "". The verdict is "law" if all of these hold:
    - from the first to the last budget the law rises by at least half an octave;
    - the points have at least three different n, because a law has four parameters;
    - no parameter is at a bound of the fit;
    - the first point is in the first half of the law's rise;
    - the last point is in the last quarter of the rise. If not, the plateau is a guess.
    n (E,): the n of each point, needed only if log2_n is a running average of log2 n.
    """
    log2_n = np.asarray(log2_n, float)
    n = 2 ** log2_n if n is None else np.asarray(n)
    levels = len(np.unique(np.round(n, 6)))
    if levels == 1:
        return "flat", f"n = {n[0]:.0f} at every budget"
    # the share of the law's rise that is complete at the first and at the last budget, from 0 to 1
    first, last = law_at(law | dict(L=1.0, b=0.0), np.array([C[0], C[-1]]))
    start, end = (f"{2 ** log2_n[i]:.3g} at C = {C[i]:,.0f}" for i in (0, -1))
    reason = ""
    if law["L"] * (last - first) < 0.5:
        reason = f"the trend of n* with C is below half an octave up, from {start} to {end}"
    elif levels < 3:
        reason = f"n* has only {levels} values, but a law with four numbers needs 3"
    elif bounds := at_bounds(C, log2_n, law):
        reason = f"the points do not determine the law, at a bound of the fit: {', '.join(bounds)}"
    elif last < 0.75:
        reason = f"the points end before the bend, with {end}, so the plateau is not seen"
    elif first > 0.5:
        reason = f"the points begin after the bend, with {start}, so the start is not seen"
    return ("undetermined" if reason else "law"), reason


def law_of_points(C, log2_n, n=None, weight=None, room=1.0):
    """Return an entry of law.json: the law through points C, log2_n (E,), and its verdict.

    n (E,): see `law_verdict`. weight (E,), room: see `fit_law`. The law is fitted twice. Fit 1 has
    room = 1 and decides the verdict. With less room, the plateau would be so low that the points
    would always seem to reach it. Fit 2 has the given `room` and supplies the numbers.
    - verdict, reason: the result of `law_verdict` for fit 1. If the verdict is law, `reason` gives
      the rise of fit 2.
    - fitted: a copy of `verdict`, because a test may replace `verdict` (see `law_of_panel`).
    - fit: the parameters of fit 2, or None for fewer than five points.
    - L, k, log10_C0, b, plateau: the parameters of fit 2 if the verdict is law, else None.
    """
    order = np.argsort(C, kind="stable")
    C, log2_n = np.asarray(C, float)[order], np.asarray(log2_n, float)[order]
    law, verdict = None, "undetermined"
    reason = "fewer than 5 points, but a law has four numbers"
    if len(C) > 4:
        n, weight = (v if v is None else np.asarray(v)[order] for v in (n, weight))
        law = fit_law(C, log2_n, weight)
        verdict, reason = law_verdict(C, log2_n, law, n)
        if room < 1:
            law = fit_law(C, log2_n, weight, room)
    if verdict == "law":
        low, high = 2 ** law_at(law, C[[0, -1]])
        reason = (f"n* rises from {low:.3g} at C = {format_si(C[0])} to {high:.3g} at "
                  f"C = {format_si(C[-1])}, and bends inside the data")
    return {name: float(law[name]) if verdict == "law" else None for name in NUMBERS} | dict(
        verdict=verdict, reason=reason, fitted=verdict, fit=law)


# --------------------------------------------------------------------------------------------------
# The law of a panel, and the verdict as text

def law_of_panel(panel):
    """Return the entry of law.json for a panel of frontier.json.

    The formula is the paper's, but the fit is ours. Its points are n*(C): the n of the highest
    fitted curve at each C (section 4.1), refined by `interpolate_n`. The fit weights each point by
    its `bend`. A larger bend means that a wrong n costs more reward at this C.
    `verdict` comes from the test (core/stats.verdict_of) if the panel was tested, else from the
    fit. `by_records` is the paper's own fit, through the running average over pooled
    record-breaking points (Figure 15). `at_fixed_B`, only for a panel with a batch size B, is the
    law of B_p*(M) = B / n*(M) (Figure 9).
    """
    records, star = panel["records"], panel["n_star"]
    if star:
        law = law_of_points(star["C"], np.log2(star["between"]), star["n"], star["bend"], ROOM)
    else:  # no curve could be fitted, so there is no point
        law = law_of_points([], [])
    law["by_records"] = law_of_points(records["C"], records["log2_n_mean"], records["n"])
    if "B" in panel and law["fit"]:
        fit = law["fit"]
        law["at_fixed_B"] = fit | dict(L=-fit["L"], b=math.log2(panel["B"]) - fit["b"],
                                       plateau=panel["B"] / fit["plateau"])
    return law | panel.get("verdict", {})


def points_text(gap, half):
    """Return a reward difference and half of its 90% interval as text, in percentage points."""
    return f"{100 * gap:.1f} +- {100 * half:.1f} points"


def verdict_text(law, solved=""):
    """Return as text whether the best n rises: "yes, ...", "no, ...", "undecided: ..." and so on.

    law: from `law_of_panel` or `law_of_points`. solved: from frontier.solved_throughout.
    """
    if solved:
        when = "any" if solved == "nothing" else "every"
        return (f"not known: {solved} was solved in {when} evaluation of these runs, so no n is "
                "better than another")
    if "p" not in law:  # points of a CSV and panels with several B_p are not tested
        answers = dict(law="yes, by the fit", flat="no, by the fit")
        text = f"{answers.get(law['verdict'], 'not known from the fit')}: {law['reason']}"
        return text.replace(" C = ", " M = ") if "at_fixed_B" in law else text
    if law["p"] is None:
        enough = law["testable"] and f"; train every n to C = {format_si(law['testable'])} or more"
        return f"cannot be tested: {law['reason']}{enough or ''}"
    at = f"at lr_base = {law['lr_base']:g}"
    windows = ["C = {} to {}".format(*map(format_si, window)) for window in law["windows"]]
    if law["verdict"] == "law":
        first, last = (f"n = {', '.join(map(str, law['sets'][i]))} at {windows[i]}"
                       for i in (0, -1))
        plateau = law["plateau"]
        return (f"yes, the best n rises (p = {law['p']:.3f}, {at}). Best or tied with the best: "
                f"{first}; {last}"
                + (f". The fitted law levels off at n = {plateau:.0f}" if plateau else ""))
    if law["verdict"] == "flat":
        return (f"n hardly matters up to C = {format_si(law['windows'][-1][1])}: with "
                f"n = {law['n_flat']} you lose at most {100 * law['regret']:.1f} points at any "
                f"budget (95%, {at})"
                + (f". But n = {law['rising']} seems to gain on it at the end, so more rollouts "
                   "may change this" if law["rising"] else ""))
    alpha = law["alpha"]
    text = ("undecided: a rise is neither shown nor excluded "
            f"(p = {law['p']:.2f}, needed is {alpha:g} or less; {at})")
    if max(law["p_falls"], law["p"]) <= alpha:
        text = f"undecided: the best n both rises and falls (p <= {alpha:g} for each, {at})"
    elif law["p_falls"] <= alpha:
        text = f"no, the best n falls (p = {law['p_falls']:.3f}, {at})"
    if law["gap"] > 0:
        text += (f". Of all n, n = {law['n_closest']} comes closest to serving every budget, but "
                 f"n = {law['by']} is {points_text(law['gap'], law['half'])} ahead at "
                 f"{windows[law['window']]}")
    else:
        text += (f". No n beats n = {law['n_closest']} where a rise would show, but another n may "
                 f"be up to {100 * law['regret_of_n']:.1f} points better (95%)")
    if law["left_out"]:
        text += (". Some n or the later budgets are left out, because their runs end early: n = "
                 + ", ".join(map(str, law["left_out"])))
    return text


# --------------------------------------------------------------------------------------------------
# What to run

# budgets of the table, as multiples of the sweep's largest budget
BUDGETS = (1 / 8, 1 / 4, 1 / 2, 1, 2, 4)

# What it costs to extrapolate: the cell that is best at the sweep's largest budget C is run with a
# budget f times as large. KEPT is {f: how far this cell is then below the best cell at f C, in
# points of reward}, the mean of simulated sweeps (tests/bench/prescriptions.py)
KEPT = {2: 0.8, 4: 1.1}
COLUMNS = "metric C status B_p n M epochs lr reward lo hi hours same by stop".split()


def updates_for(cell, C):
    """Return the number of updates M that a cell makes with a budget C.

    C is in the unit of frontier.json. M = floor(C / (cost B_p n)), and `cost` is the C of one
    rollout. If the cell's runs ended before C, M is computed from the budget at which they ended.
    """
    C = min(C, cell["last"] or math.inf)
    return int(C / cell["cost"] * (1 + 1e-9)) // (cell["B_p"] * cell["n"])


def prescribe(rows, C, D=None):
    """Return what to run with a budget C as a table row, or None if C is below one update.

    rows: from frontier.json, one row per budget. If C is within the budgets of `rows` and a run
    reached the budget nearest to C, the result is the row of that budget, with status = observed.
    Otherwise the result has status = extrapolated and no reward. It is the row of the largest
    budget that a run reached, up to the budget nearest to C. In both cases M, epochs (passes over
    the D problems) and hours are computed for C.
    """
    j = min(range(len(rows)), key=lambda i: abs(math.log(rows[i]["C"] / C)))
    inside = rows[0]["C"] * (1 - 1e-9) <= C <= rows[-1]["C"] * (1 + 1e-9)
    row, by = rows[j], "the best cell at this budget"
    if not (inside and row["observed"]):
        row = next((r for r in rows[j::-1] if r["observed"]), rows[0])
        by = f"kept from C = {format_si(row['C'])}"
        row = row | dict(reward=None, lo=None, hi=None, stop=None, gains=None,
                         last=None if C > row["C"] else row["last"])
    M = updates_for(row, C)
    if M < 1:
        return None
    status = "extrapolated" if row["reward"] is None else "observed"
    return row | dict(C=C, status=status, M=M, by=by, epochs=D and M * row["B_p"] / D,
                      hours=row["hours"] and row["hours"] * M * row["B_p"] * row["n"])


def table_lines(rows, front, hour):
    """Yield the lines of the report's table. hour: the name of the unit, "GPU-h" or "core-h"."""
    unit, several = front["unit"], len({r["B_p"] for row in rows for r in row["by_B_p"]}) > 1
    budget = "M updates" if unit == "updates" else f"C {unit}"
    yield (f"What to run with {budget}; reward = {front['label']} [90% interval]; "
           "* = no run reached this budget:")
    yield (f"  {'C' if unit != 'updates' else '':>7}  {'B_p':>5} {'n':>5} {'M':>6} {'epochs':>6} "
           f"{'lr':>8}  {'reward':<20} {hour:>7}  tied {'(B_p, n)' if several else 'n'}")
    for r in rows:
        reward = tied = "not run"
        if r["reward"] is not None:
            reward = f"{r['reward']:.3f} [{r['lo']:.3f}, {r['hi']:.3f}]"
            tied = pairs_text([(c["B_p"], c["n"]) for c in r["tied"]], several)
        star = "*" * (r["status"] != "observed")
        hours = "" if r["hours"] is None else f"{r['hours']:.2g}"
        epochs = "" if not r["epochs"] else f"{r['epochs']:.3g}"
        yield (f"  {format_si(r['C']) + star:>7}  {r['B_p']:>5} {r['n']:>5} {r['M']:>6} "
               f"{epochs:>6} {r['lr']:>8.2g}  {reward:<20} {hours:>7}  {tied}")


def cautions(row, warmup, axis):
    """Yield warnings about running the cell of a table row, the most important first. axis: "M" if
    the unit of budgets is updates, else "C"."""
    if stop := row["stop"]:
        yield (f"stopping earlier was better: B_p = {stop['B_p']}, n = {stop['n']} at M = "
               f"{updates_for(stop, stop['C'])} ({axis} = {format_si(stop['C'])}) got "
               f"{stop['reward']:.3f}, {100 * stop['gain']:.1f} points more. That is more than two "
               "standard errors, on runs and problems that did not choose the stop")
    if row["diverged"]:
        yield (f"{plural(len(row['diverged']), 'run')} of {row['seeds']} of this cell diverged: "
               + ", ".join(row["diverged"][:3]))
    if row["M"] <= warmup:
        yield f"the M = {row['M']} updates are all warm-up, so the lr is never reached"
    if row["edge"] and not row["edge"]["add"]:
        yield row["edge"]["text"]


def next_runs(row, front, hour):
    """Return which further runs would make the answer of a table row more certain.

    The result is (text, {B_p: (ns, seeds)}). The text gives the reasons for the runs and their
    cost.
    """
    parts, runs, edge, tied = [], {}, row["edge"], row["tied"]
    used = [(r["B_p"], r["n"], r["seed"]) for r in front["runs_used"]]
    if edge and edge["add"]:
        B_p, n = edge["add"]["B_p"], edge["add"]["n"]
        parts.append(f"n = {n}, because {edge['text'].split(';')[0]}")
        runs[B_p] = [n], [seed for *cell, seed in used if cell == [B_p, row["n"]]]
    if len(tied) > 1 and row["reward"] is not None:
        most, other = max(c["seeds"] for c in tied), max(tied, key=lambda c: c["gap"])
        more = 2 if most == 1 else 100
        if most > 1 and other["gap"] > other["half"] / 10:
            more = max(1, math.ceil(most * (other["half"] / other["gap"]) ** 2) - most)
        if more > 20:
            parts.append("more seeds would not separate the tied n, which differ by at most "
                         f"{points_text(other['gap'], other['half'])}")
        else:
            lrs, last = {r["lr"] for r in front["runs_used"]}, max(seed for *_, seed in used)
            rollouts = [more * len(lrs) * row["C"] / c["cost"] for c in tied]
            took = ""
            if all(c["hours"] for c in tied):
                hours = sum(c["hours"] * x for c, x in zip(tied, rollouts))
                took = f", {hours:.2g} {hour}"
            ns = ", ".join(map(str, sorted({c["n"] for c in tied})))
            parts.append(f"{plural(more, 'more seed')} of n = {ns} ({format_si(sum(rollouts))} "
                         f"rollouts{took})")
            for c in tied:
                ns, seeds = runs.get(c["B_p"], ([], []))
                runs[c["B_p"]] = [*ns, c["n"]], [*seeds, *range(last + 1, last + 1 + more)]
    return "; ".join(parts), runs


def sweep_command(row, B_p, ns, seeds, front):
    """Return the command that adds runs to the sweep, with the budget of a row.

    The command names every lr_base of the sweep, because the analysis leaves out runs whose lr_base
    is not in the sweep's plan.
    """
    from core.runs import folders_of
    run = run_of(row, row, front) | dict(runs=str(folders_of(front["runs"])[0]))
    words = shlex.split(command(run, ["runs"]))
    toy = "bandit_toy.py" in words
    script = "python bandit_toy.py sweep" if toy else f"bash run_sweep.sh {run['recipe']}"
    dropped = ("--lr_base=", "--B_p=", "--n=", *["--recipe="] * (not toy))
    kept = [word for word in words if word.startswith("--") and not word.startswith(dropped)]
    grid = dict(lrs=[r["lr"] for r in front["runs_used"]], bps=[B_p], ns=ns, seeds=seeds)
    grid = [f"--{key}={' '.join(map(str, sorted(set(values))))}" for key, values in grid.items()]
    return f"{script} {shlex.join(kept + grid)}"


def improvement_text(gains, k):
    """Return as text whether training solves more problems, or the same problems more reliably.

    gains: from frontier.gains_of.
    """
    text = (f"what improves since the base model: best@{k} {100 * gains['best']:+.1f} points, "
            f"worst@{k} {100 * gains['worst']:+.1f}")
    if gains["more"] > gains["half"]:
        return f"{text}: mostly by solving the same problems more reliably (sharpening)"
    if gains["more"] < -gains["half"]:
        return f"{text}: mostly by solving more problems (coverage)"
    return f"{text}: no difference beyond the error"


def run_of(cell, row, front):
    """Return the config for running `cell` with the budget of `row`."""
    C = updates_for(cell, row["C"]) * cell["B_p"] * cell["n"]
    if front["unit"] == "rollouts" and cell["last"] is None:
        C = round(row["C"])
    return front["config"] | dict(B_p=cell["B_p"], n=cell["n"], lr_base=cell["lr_base"], C=int(C))


def command_for(cell, row, front):
    """Return the command for the config of `run_of`, with --runs if the default folder differs."""
    run = run_of(cell, row, front)
    if Path(front["runs"]).is_dir():  # not several folders
        run["runs"] = front["runs"]
    line = command(run)
    words = [word for word in shlex.split(line)
             if word.startswith(("--recipe=", "--data=", "--model=", "--split="))]
    return line if parse(words)["runs"] == run["runs"] else command(run, ["runs"])


def finished_run(row, front):
    """Return as text where the model or the log of a finished run is, or "" if there is none.

    The run has the cell of the row and has already spent the row's budget. The text is also "" if
    the sweep has several folders or its unit is not rollouts.
    """
    cell = row["B_p"], row["n"], row["lr_base"], "budget"
    known = front["unit"] == "rollouts" and Path(front["runs"]).is_dir()
    for r in front["runs_used"] if known else ():
        if ((r["B_p"], r["n"], r["lr"], r["status"]) == cell
                and r["C"] <= row["C"] <= r["C"] + row["B_p"] * row["n"]):
            folder = Path(front["runs"], r["run"])
            has_model = (folder / "model").is_dir()
            return f"its model is {folder / 'model'}" if has_model else f"its log is in {folder}"
    return ""


def advice_lines(row, front, hour):
    """Yield lines of text: the command that spends a row's budget, and cheaper alternatives."""
    several = len(row["by_B_p"]) > 1
    if front["source"]:
        yield f"(the runs are {front['source']}'s, so there is no command)"
    else:
        yield command_for(row, row, front)
        if place := finished_run(row, front):
            yield f"the sweep has run this: {place}"
    tied = row["tied"]
    if len(tied) > 1 and all(c["hours"] for c in tied) and row["reward"] is not None:
        cheap = min(tied, key=lambda c: c["hours"] / c["cost"])
        if cheap is not tied[0]:
            yield (f"cheapest of the tied: B_p = {cheap['B_p']}, n = {cheap['n']} "
                   f"({cheap['hours'] / cheap['cost'] * row['C']:.2g} {hour})")
    close = [c for c in row["by_B_p"] if c["gap"] < front["delta"]]
    if several and close and row["reward"] is not None:
        small = min(close, key=lambda c: c["B_p"])
        if small["B_p"] != row["B_p"]:
            yield (f"smallest B_p that loses less than {front['delta']:g}: B_p = {small['B_p']} "
                   f"with n = {small['n']}, M = {updates_for(small, row['C'])}, lr = "
                   f"{small['lr']:.3g}, {points_text(small['gap'], small['half'])} below")
            if not front["source"]:
                yield command_for(small, row, front)
        else:
            yield f"no smaller B_p loses less than {front['delta']:g}"
    if row.get("gains"):
        yield improvement_text(row["gains"], front["k"])


def write_json(path, value):
    """Write a value as JSON. Numpy numbers become numbers and numpy arrays become lists."""
    Path(path).write_text(json.dumps(value, default=lambda x: x.item() if hasattr(x, "item")
                                     else list(x)))


def write_csv(path, tables):
    """Write prescription.csv. tables: {metric: rows from `prescribe`}."""
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        for metric, rows in tables.items():
            for row in rows:
                short = {key: f"{x:.5g}" for key, x in row.items() if isinstance(x, float)}
                tied = row["tied"] if row["reward"] is not None else ()
                pairs = sorted({(c["B_p"], c["n"]) for c in tied})
                writer.writerow(row | short | dict(
                    metric=metric, C=round(row["C"]) if row["C"] > 1000 else f"{row['C']:.5g}",
                    same=" ".join(f"{b}x{n}" for b, n in pairs),
                    stop=f"{row['stop']['C']:.5g}" if row["stop"] else ""))


# --------------------------------------------------------------------------------------------------
# The figure

def draw_law(ax, panel, law, rows, unit):
    """Draw n*(C) of one panel: points coloured by reward, the law if the points determine it, the n
    tied with the best, and the prescribed rows."""
    if "near" in panel:
        draw_n_star(ax, panel, unit)
    if star := panel.get("n_star"):
        shown = ax.scatter(star["C"], star["between"], c=star["reward"], s=22, cmap="viridis",
                           zorder=4, label="n* of the best fitted curve, coloured by reward")
        ax.figure.colorbar(shown, ax=ax, pad=0.01).set_label("reward", fontsize=9)
    elif "records" not in panel:
        ax.plot(panel["envelope"]["C"], panel["envelope"]["n"], "ko", ms=4, label="points")
    if law["fit"] and law["fitted"] == "law":
        x = np.geomspace(*panel["range"], 200)
        ax.plot(x, 2 ** law_at(law["fit"], x), color="C3", lw=2, zorder=5,
                label="the law, fitted to n*")
        fit, axis = law["fit"], "M" if unit == "updates" else "C"
        end = 2 ** law_at(fit, x[-1])
        text = (f"L {fit['L']:.2f}, k {fit['k']:.2f}, ${axis}_0$ {format_si(10 ** fit['log10_C0'])}"
                f", b {fit['b']:.2f}, plateau {fit['plateau']:.0f}")
        if end < 0.9 * law["fit"]["plateau"]:
            text += f",\nwhich it does not reach here: {end:.0f} at the end"
        ax.annotate(text, (0.02, 0.98), color="C3", fontsize=9, xycoords="axes fraction", va="top")
        if "B" in panel:
            ax.plot(x, panel["B"] / 2 ** law_at(law["fit"], x), color="C0", lw=2, ls="--",
                    label="$B_p^* = B / n^*$")
    for status, fill in (("observed", "C1"), ("extrapolated", "white")):
        at = [(r["C"], r["n"]) for r in rows if r["status"] == status]
        if at:
            ax.plot(*zip(*at), "*", ms=13, mfc=fill, mec="C1", zorder=6,
                    label=f"prescribed, {status}")
    ns = sorted({*panel["ns"], *(r["n"] for r in rows)})
    low, high = ns[0], ns[-1]
    if "B" in panel and panel.get("n_star"):
        low, high = min(low, *panel["n_star"]["B_p"]), max(high, *panel["n_star"]["B_p"])
    ax.set(yscale="log", ylim=(low / 2, high * 2), ylabel="n*")
    marks = 2.0 ** np.arange(math.floor(math.log2(low)), math.ceil(math.log2(high)) + 1)
    log_ticks(ax.yaxis, marks if len(marks) < 16 else marks[::4])
    budget_axis(ax, panel["range"][0], max([panel["range"][1], *(r["C"] for r in rows)]), unit)


def figure(panels, laws, rows, unit, title, path):
    """Draw law.png, with one subplot for each panel of frontier.json."""
    cols = min(len(panels), 2)
    lines = -(-len(panels) // cols)
    fig, axes = canvas(lines, cols, (10.7, 2.0 + 4.4 * lines))
    for ax in axes.flat[len(panels):]:
        ax.set_visible(False)
    for ax, (name, panel) in zip(axes.flat, panels.items()):
        mine = [r for r in rows if panel["B_p"] is None or panel["B_p"] == r["B_p"]]
        draw_law(ax, panel, laws[name], mine, unit)
        said = wrap(verdict_text(laws[name], panel.get("solved", "")), 112 // cols)
        ax.set_title(f"{name.replace('B_p', '$B_p$')}: {said}", fontsize=9.5)
    legend(fig, axes.flat)
    fig.suptitle(wrap(title, 120), fontsize=10.5)
    write(fig, path)


# --------------------------------------------------------------------------------------------------
# Points (C, n) from a CSV

def read_points(path):
    """Read a CSV with columns C and n. Return (C (E,), n (E,), description), in order of C.

    The description is the text of the lines that begin with #. Raise BadInput if a line is invalid
    or there are fewer than five budgets.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as e:
        raise BadInput(f"--points={path}: not a readable CSV file ({e})") from None
    about = [line.strip("# ") for line in lines if line.startswith("#")]
    reader = csv.DictReader(("" if line.startswith("#") else line for line in lines),
                            skipinitialspace=True)
    points = []
    for row in reader:
        if not {"C", "n"} <= set(row):
            raise BadInput(f"--points={path}: its columns are {', '.join(map(str, row))}; expected "
                           "C and n")
        try:
            C, n = float(row["C"]), float(row["n"])
        except (TypeError, ValueError):
            C = n = math.nan
        if not (0 < C < math.inf and 1 <= n < math.inf):
            raise BadInput(f"--points={path}: line {reader.line_num} has C={row['C']}, "
                           f"n={row['n']}; expected C above 0 and n of 1 or more")
        points.append((C, n))
    C, n = np.array(sorted(points)).T if points else (np.zeros(0), np.zeros(0))
    if len(np.unique(C)) < 5:
        raise BadInput(f"--points={path}: it has {len(np.unique(C))} different budgets C, but a "
                       "law with four numbers needs 5 or more")
    return C, n, " ".join(about) or f"{len(C)} points"


def n_from_points(law, C, n, at):
    """Return (n, source): the n to use with a budget `at`, and where n comes from, as text.

    law: the law of the points C, n (E,). If its verdict is not law, n is the n of the last point.
    Otherwise n is the law's n*, rounded to a power of 2, but at most twice the largest n of the
    points. If the n of the points are a series such as 3, 6, 12, n* is rounded to a member of the
    continued series 3, 6, 12, 24.
    """
    if law["verdict"] != "law":
        return n[-1], f"the last point, at C = {format_si(C[-1])}"
    unit = n.max() if (np.log2(n / n.max()) % 1 == 0).all() else 1.0
    wanted = unit * 2.0 ** round(float(law_at(law["fit"], at)) - math.log2(unit))
    most = 2 * n.max()
    if wanted > most * (1 + 1e-9):
        return most, "twice the largest n of the points, where the law goes higher"
    return wanted, "the law"


def report_points(path, at=None, out="", cfg=None):
    """Fit the law to the points of a CSV, print it, and write law.json and law.png.

    Also print the n to use at each of three budgets: (1) `at`, if given, (2) the largest C of the
    points, (3) four times that C. cfg: a config with the model and the problems of the points, if
    they are known. If `cfg` is given, also print B_p, M and the command for each budget.
    """
    C, n, about = read_points(path)
    law = law_of_points(C, np.log2(n))
    print(f"{path}: {about}\nDoes the best n rise with the budget? {verdict_text(law)}")
    if law["verdict"] == "law":
        print("log2 n* = {L:.2f} / (1 + exp(-{k:.2f} (log10 C - {log10_C0:.2f}))) + {b:.2f}; "
              "plateau {plateau:.0f}".format(**law["fit"]))
    print("intervals: none, because points alone do not say how sure they are")
    rows = []
    asked = [] if at is None else [float(at)]
    for budget in dict.fromkeys([*asked, C[-1], 4 * C[-1]]):
        wanted, by = n_from_points(law, C, n, budget)
        status = "observed" if C[0] <= budget <= C[-1] else "extrapolated"
        row = dict(C=budget, n=max(int(wanted + 1e-6), 2), status=status)
        most = max(cfg["B_max"] // cfg["B_p"], 2) if cfg and cfg["B_max"] else math.inf
        if row["n"] > most:
            row["n"], by = most, f"{by}, but B_p n is limited to {cfg['B_max']}"
        print(f"\nC = {format_si(budget)} ({status}): n = {row['n']}, {by}")
        if cfg:
            run = cfg | dict(n=row["n"], C=int(budget))
            M = derive(run)["M"]
            print(f"  B_p = {cfg['B_p']}, n = {row['n']}, M = {M}")
            print(f"  {command(run) if M else 'no command, because C is below one update'}")
        rows.append(row)
    out = Path(out or Path(path).parent)
    out.mkdir(parents=True, exist_ok=True)
    panel = dict(envelope=dict(C=C, n=n), ns=[n.min(), n.max()], B_p=None, range=[C[0], C[-1]])
    write_json(out / "law.json", dict(law=law, unit="rollouts"))
    figure(dict(points=panel), dict(points=law), rows, "rollouts", f"n*(C) of {about}",
           out / "law.png")
    print(f"figure: {out}/law.png   numbers: {out}/law.json")


# --------------------------------------------------------------------------------------------------
# The report

def load_front(path, folders, cfg, argv):
    """Return the content of `path`, the frontier.json of the sweep in `folders`.

    If the file is missing, older than a log, or made with another schema or other settings, this
    function first runs frontier.py.
    """
    import frontier
    logs = [log for folder in folders for log in (*folder.glob("*/log.jsonl*"),
                                                  *folder.glob("sweep.json"))]
    front = json.loads(path.read_text()) if path.exists() else {}
    words = [word for word in argv if not word.startswith("--C=")] + [f"--view={cfg['view']}"]
    cfg = frontier.settings(words)
    asked = {key: cfg[key] for key in frontier.JSON_KEYS}
    if (front.get("schema"), front.get("asked")) != (frontier.SCHEMA, asked) or any(
            log.stat().st_mtime > path.stat().st_mtime for log in logs):
        with contextlib.redirect_stdout(io.StringIO()):
            frontier.main(words)
        front = json.loads(path.read_text())
    return front


def wrapped_lines(text):
    """Yield a text as indented lines of at most 118 columns."""
    yield from ("  " + line for line in wrap(text, 116).split("\n"))


def report_lines(front, laws, rows, row):
    """Yield the lines of the report. rows: the table; row: its row for the requested budget."""
    hour = "GPU-h" if front["device"].startswith("cuda") else "core-h"
    yield "Does the best n rise with the budget?"
    for name, law in laws.items():
        said = verdict_text(law, front["panels"][name].get("solved", ""))
        yield from wrapped_lines(f"{name.replace('=', ' = ')}: {said}.")
    yield ""
    yield from table_lines(rows, front, hour)
    yield f"  interval: {front['covers']}"
    if len({r["seed"] for r in front["runs_used"]}) == 1 and len(front["runs_used"]) > 1:
        yield ("  with one seed a reward includes the luck of the best run, so it is about one "
               "point too high")
    if any(r["status"] != "observed" for r in rows):
        axis = "M" if front["unit"] == "updates" else "C"
        losses = " and ".join(f"{loss:.1f} points at {f} {axis}" for f, loss in KEPT.items())
        yield ("  * the best cell of the last budget with runs; on simulated sweeps this choice "
               f"lost {losses}")
    if not any(panel.get("solved") for panel in front["panels"].values()):
        yield from row_lines(row, front, hour)
    if front["missing"]:
        yield from wrapped_lines(missing_text(front["missing"], 4))


def row_lines(row, front, hour):
    """Yield the lines of the report that are about the requested budget."""
    yield ""
    axis = "M" if front["unit"] == "updates" else "C"
    yield (f"{axis} = {format_si(row['C'])} {front['unit']} ({row['status']}): B_p = {row['B_p']}, "
           f"n = {row['n']}, M = {row['M']}, lr = {row['lr']:.3g}, recipe "
           f"{front['config']['recipe']}")
    yield from (f"  {line}" for line in advice_lines(row, front, hour))
    for text in [*cautions(row, front["config"]["warmup"], axis)][:2]:
        yield from wrapped_lines(f"caution: {text}")
    text, runs = next_runs(row, front, hour)
    if text:
        yield from wrapped_lines(f"to be surer: {text}")
    if not front["source"]:
        yield from (f"  {sweep_command(row, B_p, *grid, front)}" for B_p, grid in runs.items())


def main(argv):
    cfg, given = parse([ANY_K, *argv], __doc__), {word.split("=")[0] for word in argv}
    files = [word.removeprefix("--config=") for word in argv if word.startswith("--config=")]
    given |= {f"--{key}" for file in files for key in read_json(file)}
    if cfg["points"]:
        cfg = parse(argv)
        known = given & {"--model", "--data", "--config"} and cfg["unit"] == "rollouts"
        at = cfg["C"] if "--C" in given else None
        return report_points(cfg["points"], at, cfg["out"], cfg if known else None)
    from core.runs import folders_of
    view = cfg["view"] = "fixed_Bp" if cfg["view"] == "all" else cfg["view"]
    if view not in ("fixed_Bp", "joint", "fixed_B"):
        raise BadInput(f"--view={view} has no law; choose fixed_Bp, joint or fixed_B")
    folders, suffix = folders_of(cfg["runs"]), "" if view == "fixed_Bp" else f"_{view}"
    out = Path(cfg["out"] or folders[0])
    front = load_front(out / f"frontier{suffix}.json", folders, cfg, argv)
    panels = front["panels"]
    laws = {name: law_of_panel(panel) for name, panel in panels.items()}

    # front["rows"] has a table for each metric, or for each B if the view is fixed_B
    shown = max(front["rows"], key=lambda B: int(B[2:])) if view == "fixed_B" else front["metric"]
    low = min(r["C"] for rows in front["rows"].values() for r in rows)
    high = max(r["C"] for r in front["rows"][shown])
    asked = float(cfg["C"]) if "--C" in given else high
    budgets = sorted({asked, *(high * f for f in BUDGETS if high * f >= low * (1 - 1e-9))})

    def is_shown(r):  # hide the rows with more than --epochs epochs, except the row of --C
        return r and (r["C"] == asked or not front["epochs"] or r["epochs"] <= front["epochs"])
    tables = {name: [*filter(is_shown, (prescribe(rows, C, front["D"]) for C in budgets))]
              for name, rows in front["rows"].items()}
    rows = tables[shown]
    row = next((r for r in rows if r["C"] == asked), None)
    if row is None:
        raise BadInput(f"--C={asked:g} {front['unit']} is below one update of the best cell; give "
                       "a larger C")
    table_file = out / f"prescription{suffix}.csv"
    write_csv(table_file, tables)
    # the entry `law` of law.json is that of the panel whose best n changes most often
    main_panel = max(laws, key=lambda p: (len(panels[p]["switches"]), len(panels[p]["runs_used"])))
    write_json(out / f"law{suffix}.json", dict(
        law=laws[main_panel] | dict(panel=main_panel), panels=laws, unit=front["unit"],
        label=front["label"]))
    figure(panels, laws, [] if view == "fixed_B" else rows, front["unit"],
           f"Best n against compute, {front['label']}", out / f"law{suffix}.png")
    print("\n".join(report_lines(front, laws, rows, row)))
    drawn = ", ".join(sorted(path.stem for path in out.glob("*.png")))
    print(f"\nfigures in {out}: {drawn} (.png)   all tables: {table_file}")


if __name__ == "__main__":
    if parse:
        entry(main)
    else:  # without config.py there are only --points, --C and --out
        words = dict(word.partition("=")[::2] for word in sys.argv[1:])
        if not words or "--help" in words:
            sys.exit(print(__doc__.strip()))
        try:
            for word in words:
                if word not in ("--points", "--C", "--out"):
                    raise BadInput(f"{word}: expected --points=FILE, --C=NUMBER or --out=FOLDER")
            C = float(words["--C"]) if "--C" in words else None
            report_points(words.get("--points", ""), C, words.get("--out", ""))
        except BadInput as e:  # ValueError, since config.py is missing
            print(f"fit_sigmoid.py: {e}", file=sys.stderr)
            sys.exit(2)
