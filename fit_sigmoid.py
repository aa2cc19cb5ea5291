"""fit_sigmoid.py: the law n*(C), whether a sweep shows it, and what to run with a budget.

    python fit_sigmoid.py --runs=runs/easy                    # law and prescription of a sweep
    python fit_sigmoid.py --runs=runs/easy --C=2e6            # and for 2 million rollouts
    python fit_sigmoid.py --points=mine.csv --B_p=32 --C=2e6  # through points of your own (C, n)

Reads the logs of a sweep or a CSV. Prints one page: whether the best n rises with the budget, what
to run with C/8 to 4 C, the command. Writes `prescription.csv` (the table by avg@k, best@k and
worst@k), `law.json` and `law.png` (`law_VIEW.*` for --view=joint and fixed_B) to `out`, or else to
`runs`.

From log to page: core/runs.read_runs -> core/curves.cells_of (a cell's reward Y at each budget) ->
prescribe (the best Y at C, its equals, their half_width) and core/curves.fair (the reward that is
printed, scored on what did not choose) for C times BUDGETS -> table.

The first section fits the paper's law to points n*(C): copy it with math, numpy and least_squares,
law = fit_law(C, log2_n), law_at(law, C).
Points of n*(C) are samples of a staircase, as many as one cares to draw, so they do not say how
sure the law is; the second section asks the runs themselves. The third prescribes: the best cell
at each budget, and beyond the runs the best cell at the largest. Needs config.py, frontier.py,
core/runs.py, core/curves.py, core/plots.py.
"""
import csv
import math
from pathlib import Path

from config import (BadInput, aside, command, derive, entry, parse,
                    save_json)  # first: from here on Ctrl-C is one line
import numpy as np
from scipy.optimize import least_squares

from core.curves import (Z, alike, best, cells_of, difference, fair, half_width, nearest,
                         stop_before)
from core.plots import budget_axis, canvas, legend, log_ticks, many, si, wrap, write
from core.runs import folders_of, missing_cells
from frontier import (analyse, by_B_p, draw_n_star, draw_records, fixed_B, fixed_Bp, grid_edge,
                      joint, pooled_records, say_missing)

# --------------------------------------------------------------------------------------------------
# The law from points, log2 n* = L / (1 + exp(-k (log10 C - log10 C0))) + b: numpy and scipy alone

NUMBERS = ("L", "k", "log10_C0", "b", "plateau")
K_LAW = (0.5, 50.0)  # bounds of k, per decade; the paper prints 50.00 once, surely a search's end


def law_at(law, C):
    """log2 n* that a law's numbers (a dict of L, k, log10_C0, b) give at C (E,): (E,)."""
    z = np.clip(law["k"] * (np.log10(C) - law["log10_C0"]), -60, 60)
    return law["b"] + law["L"] / (1 + np.exp(-z))


def fit_law(C, log2_n):
    """The law through points C (E,), log2 n* (E,): dict(L, k, log10_C0, b, plateau).

    By least squares. plateau = 2^(L + b), at most twice the largest n; C0 within half a decade of
    the data; L >= 0.
    """
    x, y = np.log10(np.asarray(C, float)), np.asarray(log2_n, float)
    lower = [y.min() - 1, 0.0, math.log(K_LAW[0]), x.min() - 0.5]  # of L + b, L, log k, log10 C0
    upper = [y.max() + 1, 40.0, math.log(K_LAW[1]), x.max() + 0.5]
    # where to start: for each (k, C0) of a grid the best line in g, the rise from 0 to 1
    v, u = (a.ravel() for a in np.meshgrid(np.linspace(lower[2], upper[2], 25),
                                           np.linspace(lower[3], upper[3], 31)))
    g = 1 / (1 + np.exp(-np.clip(np.exp(v)[:, None] * (x - u[:, None]), -60, 60)))  # (S, E)
    spread = g - g.mean(1, keepdims=True)
    L = np.clip(spread @ y / np.maximum((spread ** 2).sum(1), 1e-12), 0, 40)
    top = np.clip(y.mean() + L * (1 - g.mean(1)), lower[0], upper[0])
    best = ((top[:, None] - L[:, None] * (1 - g) - y) ** 2).sum(1).argmin()

    def miss(p):  # the whole law around that start
        z = np.clip(np.exp(p[2]) * (x - p[3]), -60, 60)
        return p[0] - p[1] / (1 + np.exp(z)) - y
    start = np.clip([top[best], L[best], v[best], u[best]], lower, upper)
    top, L, v, u = least_squares(miss, start, bounds=(lower, upper), x_scale=[1, 1, 0.5, 0.2]).x
    return dict(L=L, k=math.exp(v), log10_C0=u, b=top - L, plateau=2 ** top)


def law_flags(C, log2_n, law):
    """Names of the law's numbers that ended at a bound of their search: not determined."""
    x, flags = np.log10(C), []
    for name, value, lo, hi in (("C0", law["log10_C0"], x.min() - 0.5, x.max() + 0.5),
                                ("k", math.log(law["k"]), *np.log(K_LAW))):
        side, bound = ("lower", lo) if value - lo < hi - value else ("upper", hi)
        if abs(value - bound) < 0.01 * (hi - lo):
            shown = f"{math.exp(bound):.3g}" if name == "k" else f"{10 ** bound:.3g}"
            flags.append(f"{name} at its {side} bound {shown}")
    if law["L"] <= 1e-6:
        flags.append("L at its lower bound 0")
    elif law["plateau"] > 2 ** (np.max(log2_n) + 1 - 1e-4):
        flags.append(f"plateau above twice the largest n* ({2 ** np.max(log2_n):.0f})")
    return flags


def law_verdict(C, log2_n, law, n=None):
    """Do points C, log2_n (E,) carry the law fitted to them? Returns (verdict, reason, flags).

    law, flat (one n throughout) or undetermined. A law has four numbers, so it needs three values
    of n or more, none of its numbers at a bound, and points on both sides of its bend C0, up to
    three quarters of the rise at least, or the plateau is a guess. n (E,): the n of each point,
    where log2_n is a running average of theirs.
    """
    log2_n = np.asarray(log2_n, float)
    n = 2 ** log2_n if n is None else np.asarray(n)
    levels = len(np.unique(np.round(n, 6)))
    if levels == 1:
        return "flat", f"n = {n[0]:.0f} at every budget", []
    flags = law_flags(C, log2_n, law)
    first, last = (law_at(law | dict(L=1.0, b=0.0), np.array([C[i]]))[0] for i in (0, -1))
    start, end = (f"{2 ** log2_n[i]:.3g} at C = {C[i]:,.0f}" for i in (0, -1))  # what was fitted
    if law["L"] * (last - first) < 0.5:
        reason = f"the trend of n* with C is below half an octave up, from {start} to {end}"
        return "undetermined", reason, flags
    if levels < 3:
        reason = f"only {levels} values of n on the frontier, a law with four numbers needs 3"
        return "undetermined", reason, flags
    if flags:
        return "undetermined", "the data do not determine it: " + ", ".join(flags), flags
    if last < 0.75:
        reason = f"the points end before the bend, with {end}: the plateau is not seen"
        return "undetermined", reason, ["no plateau seen"]
    if first > 0.5:
        reason = f"the points begin past the bend, with {start}: the start of the rise is not seen"
        return "undetermined", reason, ["b not seen"]
    return "law", f"n* rises from {start} to {end}, and bends inside the data", []


def law_of_points(C, log2_n, n=None):
    """Fit and judge the law of points, as in `law_verdict`: the entry of law.json.

    Numbers are dict(value, lo, hi), lo and hi null, all null without a law: points alone do not say
    how sure they are. fit: the law's numbers whatever the verdict, None below five points.
    """
    order = np.argsort(C, kind="stable")
    C, log2_n = np.asarray(C, float)[order], np.asarray(log2_n, float)[order]
    law, flags, verdict = None, [], "undetermined"
    reason = "fewer than 5 record-breaking points, a law with four numbers needs more"
    if len(C) > 4:
        law = fit_law(C, log2_n)
        verdict, reason, flags = law_verdict(C, log2_n, law, n if n is None
                                             else np.asarray(n)[order])
    return {name: dict(value=float(law[name]) if verdict == "law" else None, lo=None, hi=None)
            for name in NUMBERS} | dict(verdict=verdict, reason=reason, flags=flags, fit=law)

# --------------------------------------------------------------------------------------------------
# The verdict on the runs of one B_p

def shared_budgets(cells, grid):
    """The budgets that all n reached: (their indices, the cells, the n that end early or diverge).
    Without the latter, as long as two cells are left."""
    longest = max(c["reach"][1] for c in cells)
    full = [c for c in cells if c["reach"][1] >= 0.8 * longest and c["inside"].any()
            and c["inside"][np.flatnonzero(grid >= 0.8 * longest)].any()]
    left_out = [c["n"] for c in cells if not any(c is other for other in full)]
    full = full if len(full) > 1 else cells
    return np.flatnonzero(np.all([c["inside"] for c in full], 0)), full, left_out


def verdict_of(cells, grid, delta):
    """law, flat or undetermined, with the evidence: dict(verdict, reason, sets, constant, behind).

    law: n* rises. The budgets that all n reached are cut into three parts, evenly in log C. In each
    the n indistinguishable from the best are found; a law is shown where one part's set lies wholly
    below a later part's. flat: another n is better than one n by less than `delta` in each part, at
    the upper end of a one-sided 95% interval (`behind`); told from two seeds on, and where no n is
    left out. Both can hold; then it is flat, for that n will do.
    """
    js, full, left_out = shared_budgets(cells, grid)
    out = dict(verdict="undetermined", sets=[], constant=None, behind=None, left_out=left_out)
    if len(cells) == 1:
        return out | dict(reason="one n only, there is nothing to compare")
    if len(js) < 3 or grid[js[-1]] < 4 * grid[js[0]]:
        return out | dict(reason="the runs of all n share less than a factor 4 of budgets")
    parts, ns = np.array_split(js, 3), [c["n"] for c in full]
    sets = [[n for n, same in zip(ns, alike(full, part)) if same] for part in parts]
    behind = {}  # what another n is better by, at most, in any part
    for a in full:
        ends = [0.0]
        for part in parts:
            for b in full:
                gap, problems, runs = difference(b, a, part) if b is not a else (0, 0, 0)
                ends.append(gap + math.hypot(Z * problems, a["t"][part].mean() * runs))
        behind[a["n"]] = max(ends)
    constant = min(behind, key=behind.get)
    rises = any(max(a) < min(b) for j, a in enumerate(sets) for b in sets[j + 1:])
    falls = any(min(a) > max(b) for j, a in enumerate(sets) for b in sets[j + 1:])
    seeds = min(len(c["runs"]) for c in full)
    verdict, why = "undetermined", "no rise of n* is shown"
    if behind[constant] < delta and seeds > 1 and not left_out:
        verdict, why = "flat", "one n will do" + "; n* does rise" * rises
    elif rises and not falls:
        verdict, why = "law", "n* rises"
    elif falls:
        why = "n* falls"
    said = ", ".join(f"{{{', '.join(map(str, s))}}}" for s in sets)
    return out | dict(
        verdict=verdict, constant=constant, behind=behind[constant],
        sets=[dict(C=[grid[part[0]], grid[part[-1]]], ns=s) for part, s in zip(parts, sets)],
        reason=f"{why}: n indistinguishable from the best in the first, middle and last third of "
               f"log C: {said}; another n is better than n = {constant} by at most "
               f"{behind[constant]:.3f} (95%)")


def law_of_panel(panel, cells, grid, delta):
    """The entry of law.json for a panel of frontier.json: the verdict of its runs with the numbers
    of the paper's fit, through the running average of its records, null where that does not
    determine them.

    Of several B_p, as in joint and fixed_B, the paper's fit alone.
    """
    records = panel["records"]
    law = law_of_points(records["C"], records["log2_n_mean"], records["n"]) | dict(
        range=panel["range"], estimator="records")
    if panel["B_p"] is None:
        return law | dict(constant=None, sets=[])
    return law | dict(records=law["reason"]) | verdict_of(cells, grid, delta)


SAID = dict(law="n* rises with the budget", flat="one n will do at every budget",
            undetermined="inconclusive")


def in_a_sentence(law):
    """The verdict in one plain sentence with its numbers."""
    if law.get("behind") is None:
        return f"{SAID[law['verdict']]}: {law['reason']}"
    if law["verdict"] == "law":
        first, last = (", ".join(map(str, law["sets"][i]["ns"])) for i in (0, -1))
        plateau = law["plateau"]["value"]
        return (f"{SAID['law']}: as good as the best are n = {first} in the first third of log C "
                f"and {last} in the last" + (f"; plateau {plateau:.0f}" if plateau else ""))
    text = (f"{SAID[law['verdict']]}: no n is better than n = {law['constant']} by more than "
            f"{law['behind']:.3f} at any budget (95%)")
    return text + (f"; n = {', '.join(map(str, law['left_out']))} left out, their runs end early"
                   if law["left_out"] else "")


# --------------------------------------------------------------------------------------------------
# What to run

BUDGETS = (1 / 8, 1 / 4, 1 / 2, 1, 2, 4)  # times the sweep's own
# What keeping the best cell of the largest budget costs beyond it, in points of reward against the
# best that there is: tests/bench/prescriptions.py, means over planted sweeps
KEPT = {2: 0.8, 4: 1.1}
COLUMNS = "metric C status B_p n M lr reward lo hi hours same by stop".split()


def hours_of(cell):
    """Hours of training for each rollout, over all ranks; None without gen_s and train_s in the
    logs. Of a GPU, or on a CPU of a process, which has one core."""
    each = [run["hours"] / max(run["rollouts"][-1], 1) for run in cell["runs"] if run["hours"]]
    return float(np.mean(each)) if each else None


def cost_of(cell):
    """What a rollout of a cell costs in the unit of C."""
    return float(np.mean([run["per_rollout"] for run in cell["runs"]]))


def prescribe(C, grid, cells, head, rewards):
    """What to run with a budget C: dict(C, status, cell, near, B_p, n, M, lr, reward, lo, hi,
    hours, same, stop, by), None where C buys no update.

    Inside the budgets that were run: the best cell alive there. Beyond them the best cell of the
    largest, kept; below them that of the smallest. rewards (G,): of `fair`. same: the (B_p, n) that
    are indistinguishable from the best, near their cells. stop: of `stop_before`.
    """
    alive = [j for j in range(len(grid)) if best(cells, j) is not None]
    j = min(max(nearest(grid, C), alive[0]), alive[-1])
    observed = grid[alive[0]] * (1 - 1e-9) <= C <= grid[alive[-1]] * (1 + 1e-9)
    j = j if best(cells, j) is not None else min(alive, key=lambda i: abs(i - j))
    cell = cells[best(cells, j)]
    run = dict(head, B_p=cell["B_p"], n=cell["n"], lr_base=cell["lr"],
               C=int(C / cost_of(cell) * (1 + 1e-9)))
    d, hours = derive(run), hours_of(cell)
    if d["M"] < 1:
        return None
    half = half_width(cell)[j]
    near = [c for c, ok in zip(cells, alike(cells, j)) if ok]
    same = sorted({(c["B_p"], c["n"]) for c in near})
    return dict(
        C=C, status="observed" if observed else "extrapolated", cell=cell, j=j, run=run, near=near,
        B_p=cell["B_p"], n=cell["n"], M=d["M"], lr=d["lr"],
        reward=rewards[j] if observed else None, lo=rewards[j] - half if observed else None,
        hi=rewards[j] + half if observed else None,
        hours=None if hours is None else hours * d["M"] * d["B"],
        same=same if observed else None, stop=stop_before(cells, j) if observed else None,
        by="the best cell at this budget" if observed else f"kept from C = {si(grid[j])}")


def table(rows, label, several, unit, hour):
    """The rows of one metric as lines of text."""
    where = "" if unit == "rollouts" else f"C in {unit}, "
    yield f"What to run, by {label} ({where}* = beyond the runs):"
    yield (f"  {'C':>7}  {'B_p':>5} {'n':>5} {'M':>6} {'lr':>8}  {'reward, 90%':<20} {hour:>7}  "
           f"{'(B_p, n)' if several else 'n'} as good")
    for r in rows:
        reward, same = "not run", "not known"
        if r["reward"] is not None:
            reward = f"{r['reward']:.3f} [{r['lo']:.3f}, {r['hi']:.3f}]"
            names = [f"({b}, {n})" if several else str(n) for b, n in r["same"]]
            same = ", ".join(names[:6]) + f" and {len(names) - 6} more" * (len(names) > 6)
        star = "*" * (r["status"] != "observed")
        hours = "" if r["hours"] is None else f"{r['hours']:.2g}"
        yield (f"  {si(r['C']) + star:>7}  {r['B_p']:>5} {r['n']:>5} {r['M']:>6} {r['lr']:>8.2g}  "
               f"{reward:<20} {hours:>7}  {same}")


def cautions(row, sweep, grid, cells):
    """What may be wrong with a row, the most important first, as lines of text."""
    cell, out = row["cell"], []
    if row["stop"]:
        s, c = row["stop"], cells[row["stop"]["cell"]]
        M = int(grid[s["j"]] / cost_of(c) * (1 + 1e-9)) // (c["B_p"] * c["n"])
        out.append(f"more rollouts did not help: B_p = {c['B_p']}, n = {c['n']} at M = {M} "
                   f"(C = {si(grid[s['j']])}) got {s['reward']:.3f}, by {100 * s['gain']:.1f} "
                   "points more, on runs or problems that did not choose it; stop there")
    died = [run for run in cell["runs"] if run["status"] == "diverged"]
    if died:
        out.append(f"{len(died)} of {many(len(cell['runs']), 'run')} of this cell diverged, at C = "
                   f"{', '.join(si(run['C'][-1]) for run in died)}")
    others = {(run["B_p"], run["n"]) for c in cells for run in c["runs"]
              if run["status"] == "diverged" and c is not cell}
    if others:
        out.append("diverged, so not prescribed behind that: (B_p, n) = "
                   + ", ".join(str(pair) for pair in sorted(others)[:6]))
    if row["M"] <= sweep["head"]["warmup"]:
        out.append(f"M = {row['M']} updates are all warm-up: the lr given is never reached")
    edge = grid_edge(cell["B_p"], cell["n"], grid[row["j"]], cells, sweep["cfg"]["B_max"])
    if edge:
        out.append(edge["text"])
    lrs = sorted({c["lr"] for c in cells if (c["B_p"], c["n"]) == (cell["B_p"], cell["n"])})
    if len(lrs) > 1 and cell["lr"] in (lrs[0], lrs[-1]):
        out.append(f"lr_base = {cell['lr']:g} is at the edge of those tried")
    return out


def what_next(row, hour):
    """Runs that would make a row's answer surer, and what they cost, as text."""
    same = row["near"]
    if len(same) < 2:
        return ""
    seeds, gap = max(len(c["runs"]) for c in same), None
    more, what = 2, "seeds 1 and 2"
    if seeds > 1:
        other = min((c for c in same if c is not row["cell"]), key=lambda c: c["Y"][row["j"]])
        gap, problems, runs = difference(row["cell"], other, np.array([row["j"]]))
        half = math.hypot(Z * problems, row["cell"]["t"][row["j"]] * runs)
        more = max(1, math.ceil(seeds * (half / gap) ** 2) - seeds) if gap > half / 10 else 100
        what = f"about {many(more, 'more seed')}"
    if more > 20:
        return "to be surer: nothing cheap, the best are too close to tell apart"
    names = ", ".join(str(n) for n in sorted({c["n"] for c in same}))
    hours = [hours_of(c) for c in same]
    rollouts = more * sum(row["C"] / cost_of(c) for c in same)
    text = f"to be surer: {what} of n = {names}, {si(rollouts)} rollouts"
    if None not in hours:
        took = sum(h * row["C"] / cost_of(c) * more for h, c in zip(hours, same))
        text += f", {took:.2g} {hour}"
    return text


def cheapest(row, several, hour):
    """Of the cells as good as a row's the cheapest in hours and the smallest B_p, as text."""
    cells, out = row["near"], []
    hours = {id(c): hours_of(c) for c in cells}
    if len(cells) > 1 and None not in hours.values():
        c = min(cells, key=lambda c: hours[id(c)] * row["C"] / cost_of(c))
        out.append(f"cheapest B_p = {c['B_p']}, n = {c['n']} "
                   f"({hours[id(c)] * row['C'] / cost_of(c):.2g} {hour})")
    if several and len(cells) > 1:
        c = min(cells, key=lambda c: (c["B_p"], -c["Y"][row["j"]]))
        out.append(f"smallest B_p = {c['B_p']} (n = {c['n']})")
    return f"of those as good: {'; '.join(out)}" if out else ""


def write_csv(tables, path):
    """prescription.csv: the rows of every metric, {metric: (rows, grid, cells)}."""
    with aside(path) as part, open(part, "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        for metric, (rows, grid, cells) in tables.items():
            for row in rows:
                short = {key: f"{x:.5g}" for key, x in row.items() if isinstance(x, float)}
                whole = row["C"] > 1000
                writer.writerow(row | short | dict(
                    metric=metric, C=round(row["C"]) if whole else f"{row['C']:.5g}",
                    same=" ".join(f"{b}x{n}" for b, n in row["same"] or ()),
                    stop=f"{grid[row['stop']['j']]:.5g}" if row["stop"] else ""))


# --------------------------------------------------------------------------------------------------
# The figure

def draw_law(ax, panel, law, rows, unit):
    """n*(C): what ran, the running average of the records, the law where it is one, the rows."""
    if "records" in panel:
        draw_n_star(ax, panel, unit)
        draw_records(ax, panel["records"])
    else:
        ax.plot(panel["envelope"]["C"], panel["envelope"]["n"], "ko", ms=4, label="points")
    if law["fit"]:
        x = np.geomspace(*panel["range"], 200)
        ax.plot(x, 2 ** law_at(law["fit"], x), color="C3", lw=2, label="the paper's law, fitted")
        ax.annotate("L {L:.2f}, k {k:.2f}, $\\log_{{10}} C_0$ {log10_C0:.2f}, b {b:.2f}, plateau "
                    "{plateau:.0f}".format(**law["fit"]), (0.02, 0.95), color="C3", fontsize=9,
                    xycoords="axes fraction")
    for status, fill in (("observed", "C1"), ("extrapolated", "white")):
        at = [(r["C"], r["n"]) for r in rows if r["status"] == status]
        if at:
            ax.plot(*zip(*at), "*", ms=13, mfc=fill, mec="C1", zorder=4,
                    label=f"prescribed, {status}")
    ns = sorted({*panel["ns"], *(r["n"] for r in rows)})
    ax.set(yscale="log", ylim=(ns[0] / 2, ns[-1] * 2), ylabel="n*")
    marks = 2.0 ** np.arange(math.floor(math.log2(ns[0])), math.ceil(math.log2(ns[-1])) + 1)
    log_ticks(ax.yaxis, marks if len(marks) < 16 else marks[::4])
    budget_axis(ax, panel["range"][0], max(panel["range"][1], *(r["C"] for r in rows), 1), unit)


def figure(panels, laws, rows, unit, title, path):
    """law.png: a panel for each B_p."""
    cols = min(len(panels), 2)
    lines = -(-len(panels) // cols)
    fig, axes = canvas(lines, cols, (10.7, 2.0 + 4.4 * lines))
    for ax in axes.flat[len(panels):]:
        ax.set_visible(False)
    for ax, (name, panel) in zip(axes.flat, panels.items()):
        mine = [r for r in rows if panel["B_p"] in (None, r["B_p"])]
        draw_law(ax, panel, laws[name], mine, unit)
        said = wrap(in_a_sentence(laws[name]), 112 // cols)
        ax.set_title(f"{name.replace('B_p', '$B_p$')}\n{said}", fontsize=9.5)
    legend(fig, axes.flat, 3)
    fig.suptitle(wrap(title, 120), fontsize=10.5)
    write(fig, path)


# --------------------------------------------------------------------------------------------------
# The page

def read_points(path):
    """A CSV with columns C and n -> (C (E,), n (E,), what they are). Lines that begin with # say
    that. Raises BadInput that names the file, its columns, or the line."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            lines = file.read().splitlines()
        about = [line.strip("# ") for line in lines if line.startswith("#")]
        reader = csv.DictReader(("" if line.startswith("#") else line for line in lines),
                                skipinitialspace=True)
        rows = [(reader.line_num, row) for row in reader]
        header = reader.fieldnames or []
    except (OSError, UnicodeDecodeError, csv.Error) as e:
        raise BadInput(f"--points={path}: not a readable CSV file ({e})") from None
    if rows and not {"C", "n"} <= set(header):
        found = ", ".join(map(str, header))
        raise BadInput(f"--points={path}: expected the columns C and n, found {found}")
    points = []
    for line, row in rows:
        try:
            C, n = float(row["C"]), float(row["n"])
        except (TypeError, ValueError):
            C = n = math.nan
        if not (0 < C < math.inf and 1 <= n < math.inf):
            raise BadInput(f"--points={path}: line {line}: expected C above 0 and n from 1, not "
                           f"C={row['C']}, n={row['n']}")
        points.append((C, n))
    C, n = np.array(sorted(points)).T if points else (np.zeros(0), np.zeros(0))
    if len(np.unique(C)) < 5:
        raise BadInput(f"--points={path}: {len(np.unique(C))} different budgets C, a law with four "
                       "numbers needs 5 or more")
    return C, n, " ".join(about) or f"{len(C)} points"


def n_by_points(law, C, n, at):
    """The n for a budget `at` by points C, n (E,) and their law, and what it is by, in words.

    The law's, rounded to a power of 2, at most twice the largest of the points; without a law the
    last point's.
    """
    if law["verdict"] != "law":
        return n[-1], f"the last point, at C = {si(C[-1])}"
    wanted, most = 2.0 ** round(float(law_at(law["fit"], at))), 2 * n.max()
    if wanted > most * (1 + 1e-9):
        return most, "the law, but twice the largest tried stands"
    return wanted, "the law"


def of_points(cfg, given):
    """The page of points (C, n): their law, and n at --C, at the largest C and four times that."""
    C, n, about = read_points(cfg["points"])
    law = law_of_points(C, np.log2(n)) | dict(range=[C[0], C[-1]], estimator="points")
    known = bool(given & {"--model", "--data", "--config"})  # else the command is of another model
    print(f"{cfg['points']}: {about}\n{in_a_sentence(law)}")
    if law["verdict"] == "law":
        print("log2 n* = {L:.2f} / (1 + exp(-{k:.2f} (log10 C - {log10_C0:.2f}))) + {b:.2f}; "
              "plateau {plateau:.0f}".format(**law["fit"]))
    print("intervals: none, points alone do not say how sure they are")
    rows = []
    for at in dict.fromkeys([float(cfg["C"])] * ("--C" in given) + [C[-1], 4 * C[-1]]):
        wanted, by = n_by_points(law, C, n, at)
        if known and cfg["B_max"]:
            wanted = min(wanted, cfg["B_max"] // cfg["B_p"])
        run = dict(cfg, n=max(int(wanted + 1e-6), 2), C=int(at))
        M, status = derive(run)["M"], "observed" if C[0] <= at <= C[-1] else "extrapolated"
        if not M:
            raise BadInput(f"--C={at:g}: below one update of B_p = {cfg['B_p']} problems with "
                           f"n = {run['n']}")
        rows.append(dict(C=at, n=run["n"], B_p=cfg["B_p"], status=status, M=M))
        print(f"\nC = {si(at)} ({status})\n  B_p = {cfg['B_p']}, n = {run['n']}, M = {M}; "
              f"n from {by}")
        if known and cfg["unit"] == "rollouts":
            print(f"  {command(run)}")
    out = Path(cfg["out"] or Path(cfg["points"]).parent)
    panel = dict(envelope=dict(C=C, n=n), ns=[n.min(), n.max()], B_p=None, range=[C[0], C[-1]])
    save_json(out / "law.json", dict(law=law | dict(panel="points"), prescriptions=rows,
                                     panels=dict(points=law), unit=cfg["unit"]), indent=None)
    figure(dict(points=panel), dict(points=law), rows, cfg["unit"], f"n*(C) of {about}",
           out / "law.png")
    print(f"figure: {out}/law.png   numbers: {out}/law.json")


def tables_of(sweep, cfg, wanted):
    """{metric: (rows, grid, cells)}: what to run with each budget `wanted`, by the metric asked for
    and by avg@k, best@k and worst@k."""
    runs, metrics = [run for c in sweep["every"] for run in c["runs"]], [cfg["metric"]]
    if runs[0]["counts"] is not None:
        metrics += [m for m in (f"{kind}@{cfg['k']}" for kind in ("avg", "best", "worst"))
                    if m not in metrics]
    grid, tables = sweep["grid"], {}
    for metric in metrics:
        cells = sweep["every"] if metric == cfg["metric"] else cells_of(runs, metric)[1]
        rewards = fair(cells)
        rows = [prescribe(C, grid, cells, sweep["head"], rewards) for C in sorted(set(wanted))]
        tables[metric] = [r for r in rows if r], grid, cells
    return tables


def page(sweep, laws, rows, row, cells, unit, missing):
    """The page as lines of text; `row` of `rows` is the one asked for."""
    runs, grid = [run for c in sweep["every"] for run in c["runs"]], sweep["grid"]
    several = len({c["B_p"] for c in cells}) > 1
    hour = "GPU-h" if any(run["device"].startswith("cuda") for run in runs) else "core-h"
    yield "Does the best n rise with the budget?"
    yield from (f"  {panel}: {in_a_sentence(law)}." for panel, law in laws.items())
    yield ""
    yield from table(rows, sweep["label"], several, unit, hour)
    yield f"  intervals: {sweep['covers']}"
    if len({run["seed"] for run in runs}) == 1 and len(cells) > 1:
        yield "  with one seed a reward has the luck of the best run in it: about a point too high"
    if any(r["status"] != "observed" for r in rows):
        yield (f"  * the best cell at C = {si(grid[-1])}, kept; on planted sweeps that cost "
               + ", ".join(f"{cost:.1f} points at {f} C" for f, cost in KEPT.items()))
    yield ""
    yield (f"C = {si(row['C'])} {unit} ({row['status']}): B_p = {row['B_p']}, n = {row['n']}, "
           f"M = {row['M']}, lr = {row['lr']:.3g}, recipe {sweep['head']['recipe']}")
    more = [command(row["run"]), cheapest(row, several, hour),
            *(f"caution: {text}" for text in cautions(row, sweep, grid, cells)[:2]),
            what_next(row, hour), say_missing(missing, 4).strip() if missing else ""]
    yield from (f"  {line}" for line in more if line)


def main(argv):
    cfg, given = parse(argv, __doc__), {word.split("=")[0] for word in argv}
    if cfg["points"]:
        return of_points(cfg, given)
    view = "" if cfg["view"] in ("fixed_Bp", "all") else cfg["view"]
    if view not in ("", "joint", "fixed_B"):
        raise BadInput(f"--view={view}: a law is fitted to fixed_Bp, joint or fixed_B")
    out, sweep, unit = Path(cfg["out"] or folders_of(cfg["runs"])[0]), analyse(cfg), cfg["unit"]
    grid, runs = sweep["grid"], [run for c in sweep["every"] for run in c["runs"]]

    # ---- the law of each panel
    panels = dict(joint=joint, fixed_B=fixed_B).get(view, fixed_Bp)(sweep, sweep["cfg"])["panels"]
    laws = {}
    for name, panel in panels.items():
        used = [run for run in sweep["runs"] if run["run"] in panel["runs_used"]]
        panel.setdefault("records", pooled_records(used, cfg["bin"]))
        of_panel = by_B_p(sweep["cells"]).get(panel["B_p"], [])
        laws[name] = law_of_panel(panel, of_panel, grid, cfg["delta"])

    # ---- what to run with the sweep's budgets, and with the one asked for
    asked = float(cfg["C"]) if "--C" in given else grid[-1]
    wanted = [grid[-1] * f for f in BUDGETS if grid[-1] * f >= grid[0] * (1 - 1e-9)]
    tables = tables_of(sweep, cfg, [asked] + wanted)
    rows, _, cells = tables[cfg["metric"]]
    row = next((r for r in rows if r["C"] == asked), None)
    if row is None:
        raise BadInput(f"--C={asked:g} {unit}: below one update of the cell that is best there")

    write_csv(tables, out / "prescription.csv")
    name = out / (f"law_{view}" if view else "law")
    main_panel = max(laws, key=lambda p: (len(panels[p]["switches"]), len(panels[p]["runs_used"])))
    save_json(f"{name}.json", dict(
        law=laws[main_panel] | dict(panel=main_panel), panels=laws, unit=unit, label=sweep["label"],
        covers=sweep["covers"], prescriptions=[
            {key: r[key] for key in "C status B_p n M lr reward lo hi hours same by".split()}
            for r in rows]), indent=None)
    stars, axis = ([], "updates") if view == "fixed_B" else (rows, unit)
    figure(panels, laws, stars, axis,
           f"n*(C) for {sweep['label']}, {many(len(runs), 'run')}. Intervals: {sweep['covers']}",
           f"{name}.png")
    missing = missing_cells(cfg["runs"], runs, sweep["dropped"])
    print("\n".join(page(sweep, laws, rows, row, cells, unit, missing)))
    drawn = ", ".join(sorted(path.stem for path in out.glob("*.png")))
    print(f"\nfigures in {out}: {drawn} (.png)   all metrics: {out}/prescription.csv")


if __name__ == "__main__":
    entry(main)
