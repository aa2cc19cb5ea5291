"""results/claims.py: judge the claims of claims.json with the logs in results/*.tar.xz.

    python results/claims.py            # all rows; writes the table of results/README.md
    python results/claims.py Figure 8   # only the rows whose name contains "Figure 8"

A row of claims.json is a claim in our words and the data that judges it, in one of these forms:
  parts     contrasts: side `a` minus side `b`, and what the claim says about it (`judge`)
  rise      the best n (or B_p, B) is larger in the condition `second` than in `first`
  flat      one B_p (or n, B) serves all budgets
  octaves   the best n of `a` is smaller than the best n of `b`
  verdict   a fixed verdict, such as "shown" for a figure without a claim
A side selects cells (B_p, n, lr_base) by fields of their config, such as study, B_p, n. It may also
set the metric, the validation set and the window of budgets. The best of its cells counts. This
cell is chosen on the other seeds for each seed, so that lr_base is tuned for each n and the choice
is not counted as a gain.
"""
import json
import math
import re
import sys
import tarfile
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from scipy import stats

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
PAGE = ROOT / "results/README.md"

from config import BadInput, entry
from core.problems import at_k

SMALL, ALIKE = 0.03, 0.06  # a small difference and "no difference", as shares of training's gain
DEEP = 150                 # updates that every compared cell must make
EARLY, LATE, START = (1 / 16, 1 / 8), (0.5, 1), (-1, 0)
WINDOWS = EARLY, (1 / 8, 1 / 4), (1 / 4, 1 / 2), LATE  # shares of the budget C
HOW = dict(metric="avg@4", set="val", window=LATE, share=1)  # keys that a side may set
ORDER = "confirmed", "contradicted", "underpowered", "shown"


# ---- Logs ----------------------------------------------------------------------------------------

def read_run(study, lines):
    """Return a run from the lines of its log."""
    records = [json.loads(line) for line in lines]
    cfg, evals, steps, passes = records[0]["config"], {}, {}, []
    for r in records[1:]:
        if r["type"] == "eval":
            evals.setdefault(r["set"], []).append(r)
        elif r["type"] == "step":
            for key in ("reward", "response_len"):
                steps.setdefault(key, []).append((r["rollouts"], r[key]))
        elif r["type"] == "train_pass" and r.get("fresh"):
            passes.append((r["rollouts"], r["samples"][0], np.array(r["correct"])))
    evals = {name: (np.array([r["rollouts"] for r in of_set]), of_set[0]["samples"],
                    np.array([r["correct"] for r in of_set])) for name, of_set in evals.items()}
    cell = cfg["B_p"], cfg["n"], cfg["lr_base"]
    return SimpleNamespace(study=study, cfg=cfg, seed=cfg["seed"], cell=cell, evals=evals,
                           passes=passes, C=int(evals["val"][0][-1]),
                           steps={key: np.array(x, float).T for key, x in steps.items()})


def read_archives(paths):
    """Return the runs of tar archives that have STUDY/RUN/log.jsonl."""
    runs = []
    for path in paths:
        with tarfile.open(path) as tar:
            runs += [read_run(member.name.split("/")[0], tar.extractfile(member))
                     for member in tar if member.name.endswith("log.jsonl")]
    return runs


def select(runs, side):
    """Return {cell: {seed: run}} for the runs whose config has the values of a side."""
    def fits(run):
        has = run.cfg | dict(study=run.study, B=run.cfg["B_p"] * run.cfg["n"])
        return all(has.get(key) in (want if isinstance(want, list) else [want])
                   for key, want in side.items() if key not in HOW)
    cells = {}
    for run in filter(fits, runs):
        cells.setdefault(run.cell, {})[run.seed] = run
    assert cells, f"no run of {side}"
    return cells


def value(run, C, how):
    """Return the metric of each problem (P,), averaged over the window of budgets."""
    lo, hi = (share * C * how["share"] * (1 + 1e-9) for share in how["window"])
    metric = how["metric"]
    if metric in ("unsolved", "mastered"):
        _, s, correct = min(run.passes, key=lambda p: abs(p[0] - hi))
        return ((correct == 0) if metric == "unsolved" else (correct >= s - 1)) * 1.0
    if metric in ("reward", "response_len"):
        at, y = run.steps[metric]
        y = y[(at > lo) & (at <= hi)].mean()
        return np.array([y if metric == "reward" else math.log2(y)])
    at, s, counts = run.evals[how["set"]]
    return np.array(at_k(metric, s))[counts[(at > lo) & (at <= max(hi, 0))]].mean(0)


def table_of(cells, seeds, C, how):
    """Return {cell: (S, P)} of the metric for S seeds and P problems."""
    return {cell: np.array([value(of[seed], C, how) for seed in seeds])
            for cell, of in cells.items()}


def shared_seeds(*groups):
    """Return the sorted seeds that all cells have."""
    return sorted(set.intersection(*(set(of) for cells in groups for of in cells.values())))


# ---- Differences and their intervals -------------------------------------------------------------

def folds(S):
    """Return [(chosen, scored)]: each seed is scored with cells that the other seeds chose."""
    return [(~one, one) for one in np.eye(S, dtype=bool)]


def best(table, seeds):
    """Return the cell of a table with the highest mean over these seeds."""
    return max(table, key=lambda cell: table[cell][seeds].mean())


def interval(d, table, per_side=(1, 1)):
    """Return dict(gain, half, S) for differences d (S, P): mean and half of its 90% interval.

    The interval is over seeds and problems. With two or three seeds, their noise is pooled over all
    cells of the table, after the effects of cell and seed are removed.
    """
    S, P = d.shape
    sd, df = d.mean(1).std(ddof=1) if S > 1 else 0.0, max(S - 1, 1)
    if S < 4 and len(table) > 2:
        m = np.array([t.mean(1) for t in table])
        rest = m - m.mean(0) - m.mean(1, keepdims=True) + m.mean()
        df = (len(m) - 1) * (S - 1)
        sd = math.sqrt((rest ** 2).sum() / df * sum(1 / k for k in per_side))
    seeds, problems = sd ** 2 / S, d.mean(0).var(ddof=1) / P if P > 1 else 0.0
    total = max(seeds + problems, 1e-18)
    df = total ** 2 / (seeds ** 2 / df + problems ** 2 / max(P - 1, 1) + 1e-30)
    return dict(gain=float(d.mean()), half=float(stats.t.ppf(0.95, df) * math.sqrt(total)), S=S)


def gap(a, b, mean=False):
    """Return the interval of the best cell of table a minus the best of table b, or of their means.

    For each seed, the best cell is the one that the other seeds choose.
    """
    d = np.empty_like(next(iter(a.values())))
    if mean:
        d = np.mean(list(a.values()), 0) - np.mean(list(b.values()), 0)
    for chosen, scored in [] if mean else folds(len(d)):
        d[scored] = a[best(a, chosen)][scored] - b[best(b, chosen)][scored]
    return interval(d, [*a.values(), *b.values()], (len(a), len(b)) if mean else (1, 1))


def judge(c, claim, gained):
    """Return (verdict, factor of seeds that would decide) for an interval and a claim.

      larger      confirmed above 0, contradicted below SMALL x the gain of training
      smaller     the same for -gain
      not larger  confirmed below SMALL x the gain of training, contradicted above 0
      alike       confirmed within +-ALIKE x the gain of training, contradicted outside
    """
    gain, half = -c["gain"] if claim == "smaller" else c["gain"], c["half"]
    if claim == "alike":
        limit = ALIKE * gained
        yes, no, need = abs(gain) + half < limit, abs(gain) - half > limit, abs(limit - abs(gain))
    else:
        yes, no = gain - half > 0, gain + half < SMALL * gained
        need = max(gain, SMALL * gained - gain)
    if claim == "not larger":
        yes, no = no, yes
    verdict = "confirmed" if yes else "contradicted" if no else "underpowered"
    return verdict, (half / max(need, 1e-9)) ** 2


def gain_of_training(cells, C, how):
    """Return the size of the best cell's mean at the end minus the base model's mean."""
    seeds = {cell: sorted(of) for cell, of in cells.items()}

    def means(window):
        return [np.mean([value(cells[cell][s], C, how | dict(window=window)).mean()
                         for s in seeds[cell]]) for cell in cells]
    return abs(max(means(LATE)) - np.mean(means(START)))


def credit(table):
    """Return what the best cell of a table may gain by another lr_base, None if unknown.

    It is 0 if the best of three or more lr_base is between two others. At the edge it is the gain
    of the last step, an upper limit if the reward is concave in log lr_base.
    """
    cell = best(table, slice(None))
    lrs = sorted(k[2] for k in table if k[:2] == cell[:2])
    if len(lrs) < 3:
        return None
    i = lrs.index(cell[2])
    if 0 < i < len(lrs) - 1:
        return 0.0
    return table[cell].mean() - table[*cell[:2], lrs[1 if i == 0 else -2]].mean()


def tuned_verdict(c, table, claim, gained):
    """Return (verdict, factor, what is missing) by `judge` and, if the worse side may gain by
    another lr_base, also with this gain. table: the worse side, None if lr_base needs no tuning."""
    verdict, factor = judge(c, claim, gained)
    more = credit(table) if table else 0.0
    if more is None:
        return "underpowered", 0, "three lr_base for each n"
    shifted = c | dict(gain=c["gain"] - math.copysign(more, c["gain"]))
    if judge(shifted, claim, gained)[0] != verdict:
        cell = best(table, slice(None))
        return "underpowered", 0, f"lr_base beyond {cell[2]:g} for n = {cell[1]}"
    return verdict, factor, ""


# ---- Verdicts. A judge returns dict(verdict, number, needs, runs) --------------------------------

def points(c, sign=1):
    """Return an interval in points, 100 times the reward."""
    return f"{sign * 100 * c['gain']:+.1f} ± {100 * c['half']:.1f}"


def how_of(*settings):
    """Return the settings of a side: those that come first count."""
    return {key: next((s[key] for s in settings if key in s), default)
            for key, default in HOW.items()}


def contrast_of(runs, part):
    """Return a namespace: the interval c of side a minus side b, and what it was computed from."""
    cells = [select(runs, part[side]) for side in "ab"]
    seeds = shared_seeds(*cells)
    C = part.get("C") or min(of[s].C for group in cells for of in group.values() for s in seeds)
    hows = [how_of(part[side], part) for side in "ab"]
    a, b = (table_of(group, seeds, C, how) for group, how in zip(cells, hows))
    c = gap(a, b, part.get("mean"))
    by_n = {k[1] for k in a} != {k[1] for k in b} and "any_lr" not in part
    few = min(C // (k[0] * k[1]) for k in (*a, *b))
    return SimpleNamespace(c=c, worse=(a if c["gain"] < 0 else b) if by_n else None,
        needs=f"{DEEP} updates, not {few}" if few < DEEP and "any_M" not in part else "",
        scale=part.get("scale") or max(
            gain_of_training(group, C, how) for group, how in zip(cells, hows)),
        used=[of[s] for group in cells for of in group.values() for s in seeds])


def part_of(runs, part):
    """Judge one contrast. Return (verdict, seeds that would decide, text, needs, runs used)."""
    x = contrast_of(runs, part)
    c, used = x.c, x.used
    if "minus" in part:
        y = contrast_of(runs, part["minus"])
        c = dict(gain=c["gain"] - y.c["gain"], half=math.hypot(c["half"], y.c["half"]), S=c["S"])
        used, x.worse = used + y.used, x.worse if x.c["gain"] * c["gain"] > 0 else y.worse
        x.needs = x.needs or y.needs
    test, text = c, points(c)
    if "beyond" in part:  # the claim is about a ratio: compare it with this factor
        test = c | dict(gain=c["gain"] - math.log2(part["beyond"]))
        text = "{:.2f} times ({:.2f} to {:.2f})".format(*(
            2 ** (c["gain"] + k * c["half"]) for k in (0, -1, 1)))
    verdict, factor, needs = tuned_verdict(test, x.worse, part["says"], x.scale)
    if x.needs:
        verdict, needs = "underpowered", x.needs
    return verdict, factor * c["S"], f"{part['name']}: {text}", needs, used


def judge_parts(runs, row):
    """Judge a row of contrasts: contradicted if one is, confirmed if all are."""
    parts = [part_of(runs, part) for part in row["parts"]]
    used = list({id(run): run for *_, of in parts for run in of}.values())
    verdicts = [v for v, *_ in parts]
    verdict = ("contradicted" if "contradicted" in verdicts else max(verdicts, key=ORDER.index))
    needs = next((n for _, _, _, n, _ in parts if n), "")
    seeds = max((f for v, f, *_ in parts if v == "underpowered"), default=0)
    return dict(verdict=verdict, number="; ".join(t for _, _, t, _, _ in parts), used=used,
                needs=f"needs {needs}" if needs else more_runs(seeds, used))


def more_runs(seeds, used):
    """Return how many runs would decide a row: so many seeds in each of its cells."""
    cells = Counter((run.cell, run.cfg.get("n_train"), run.study) for run in used)
    total = math.ceil(seeds) * len(cells)
    return f"needs {total:,} runs" if total <= 5000 else "needs more than 5,000 runs"


def group_by(tables, what):
    """Return {value of n, B_p or B: its cells}."""
    of = dict(n=lambda k: k[1], B_p=lambda k: k[0], B=lambda k: k[0] * k[1])[what]
    groups = {}
    for cell in tables:
        groups.setdefault(of(cell), []).append(cell)
    return dict(sorted(groups.items()))


def tables_of(runs, side, conditions):
    """Return (cells, C, [table of each condition], groups)."""
    cells = select(runs, side["where"])
    seeds = shared_seeds(cells)
    C = side.get("C") or min(of[s].C for of in cells.values() for s in seeds)
    deep = {k: of for k, of in cells.items() if C // (k[0] * k[1]) >= DEEP}
    tables = [table_of(deep, seeds, C, how_of(condition, side)) for condition in conditions]
    return deep, C, tables, group_by(deep, side.get("by", "n"))


def sub(table, keys):
    return {key: table[key] for key in keys}


def judge_rise(runs, row):
    """Judge "the best n is larger in the second condition than in the first".

    confirmed: the n that the other seeds choose in a condition wins there.
    contradicted: the same for a fall, or no n above the smaller of the two best gains SMALL times
    the gain of training in the second condition.
    """
    r = row["rise"]
    what = r.get("by", "n")
    cells, C, (first, second), groups = tables_of(runs, r, [
        r.get("first", dict(window=EARLY)), r.get("second", dict(window=LATE))])
    S = len(next(iter(first.values())))
    picks, d = [], [np.empty_like(next(iter(first.values()))) for _ in range(2)]

    def top(table, seeds):
        return max(groups, key=lambda g: max(table[k][seeds].mean() for k in groups[g]))
    for chosen, scored in folds(S):
        a, b = top(first, chosen), top(second, chosen)
        picks.append((a, b))
        for i, (table, win, lose) in enumerate(((first, a, b), (second, b, a))):
            pair = (best(sub(table, groups[g]), chosen) for g in (win, lose))
            d[i][scored] = np.subtract(*(table[k][scored] for k in pair))
    early, late = (interval(x, list(t.values())) for x, t in zip(d, (first, second)))
    g = gain_of_training(cells, C, how_of(r.get("second", {}), r))
    a, b = top(first, slice(None)), top(second, slice(None))
    low = min(a, b)
    larger = {v: gap(sub(second, groups[v]), sub(second, groups[low])) for v in groups if v > low}
    closest = max(larger, key=lambda v: larger[v]["gain"] + larger[v]["half"], default=None)
    both = min(early["gain"] - early["half"], late["gain"] - late["half"]) > 0
    factor = max((c["half"] / max(abs(c["gain"]), SMALL * g)) ** 2 for c in (early, late))
    verdict, needs = "underpowered", ""
    tuned = "any_lr" not in r
    if both and all(y >= x for x, y in picks):
        verdict, _, needs = tuned_verdict(late, tuned and sub(second, groups[a]), "larger", g)
    elif both:
        verdict = "contradicted"
    elif not larger:
        needs = f"runs with {what} above {a}"
    elif all(c["gain"] + c["half"] < SMALL * g for c in larger.values()):
        verdict, _, needs = tuned_verdict(larger[closest], tuned and sub(
            second, groups[closest]), "larger", g)
    names = r.get("names", ["early", "late"])
    number = f"best {what} {a} {names[0]}, {b} {names[1]}" + (
        f"; {b}-{a}: {points(early, -1)} {names[0]}, {points(late)} {names[1]}" if b != a else
        f"; {closest}-{low}: {points(larger[closest])} {names[1]}" if larger else "")
    used = [run for of in cells.values() for run in of.values()]
    return dict(verdict=verdict, number=number, used=used,
                needs=f"needs {needs}" if needs else more_runs(factor * S, used))


def judge_flat(runs, row):
    """Judge "one B_p serves all budgets": some B_p never loses ALIKE times the gain of training."""
    r = row["flat"]
    cells, C, tables, groups = tables_of(runs, r, [dict(window=w) for w in WINDOWS])
    g, worst, beaten = gain_of_training(cells, C, how_of(r)), {}, {}
    for v in groups:
        c = [gap(sub(t, groups[u]), sub(t, groups[v])) for t in tables for u in groups if u != v]
        worst[v] = max(x["gain"] + x["half"] for x in c)
        beaten[v] = max(x["gain"] - x["half"] for x in c)
    v = min(worst, key=worst.get)
    verdict = ("confirmed" if worst[v] < ALIKE * g else
               "contradicted" if min(beaten.values()) > ALIKE * g else "underpowered")
    used = [run for of in cells.values() for run in of.values()]
    number = f"{r['by']} = {v} loses {100 * worst[v]:.1f} at most, the end of its interval"
    return dict(verdict=verdict, number=number, used=used,
                needs=more_runs(4 * len(shared_seeds(cells)), used))


def judge_octaves(runs, row):
    """Judge "the best n at the end is smaller for a than for b", in octaves, seed by seed."""
    each = []
    for side in (row["octaves"]["a"], row["octaves"]["b"]):
        cells, _, (table,), groups = tables_of(runs, dict(where=side), [dict(window=LATE)])
        S = len(next(iter(table.values())))
        n = np.zeros(S)
        for chosen, scored in folds(S):
            lr = [best(sub(table, keys), chosen) for keys in groups.values()]
            top = np.array([table[k][scored].mean(1) for k in lr]).argmax(0)
            n[scored] = np.log2([list(groups)[i] for i in top])
        each.append((n, [run for of in cells.values() for run in of.values()]))
    (a, used), (b, more) = each
    se = [x.var(ddof=1) / len(x) for x in (a, b)]
    half = stats.t.ppf(0.95, len(a) + len(b) - 2) * math.sqrt(sum(se))
    c = dict(gain=a.mean() - b.mean(), half=half, S=len(a))
    verdict, factor = judge(c, "smaller", 10)
    return dict(verdict=verdict, used=used + more, needs=more_runs(factor * len(a), used + more),
                number=f"{c['gain']:+.1f} ± {half:.1f} octaves; best n over the seeds "
                f"{2 ** a.mean():.1f} and {2 ** b.mean():.1f}")


JUDGES = dict(parts=judge_parts, rise=judge_rise, flat=judge_flat, octaves=judge_octaves)


def judge_row(runs, row):
    """Return the row with verdict, number, needs, and the origin of its runs."""
    kind = next((key for key in JUDGES if key in row), None)
    told = JUDGES[kind](runs, row) if kind else dict(used=[], needs="") | row
    used = list(told["used"])
    if told["verdict"] != "underpowered" and kind:
        told["needs"] = ""
    return row | told | dict(runs=len({id(run) for run in used}), seeds=len({
        run.seed for run in used}), studies=sorted({run.study for run in used}))


def main(argv):
    wanted = " ".join(argv)
    rows = [r for r in json.loads((ROOT / "results/claims.json").read_text()) if wanted in r["row"]]
    if not rows:
        raise BadInput(f"{wanted}: expected nothing, or a part of a row's name")
    runs = read_archives(sorted((ROOT / "results").glob("*.tar.xz")))
    rows = [judge_row(runs, row) for row in rows]
    for r in rows:
        print(f"{r['row']}: {r['claim']}\n    {r['verdict']} {r['needs']}\n    {r['number']} "
              f"({r['runs']} runs, {', '.join(r['studies'])})")
    print(tally([r for r in rows if not r["row"].startswith("ours")]))
    if not argv:
        write_page(rows)


def tally(rows):
    count = Counter(r["verdict"] for r in rows)
    return ", ".join(f"{count[v]} {v}" for v in ORDER if count[v])


BEGIN, END = "<!-- rows: results/claims.py writes them -->\n", "<!-- end of rows -->\n"


def write_page(rows):
    """Replace the rows of results/README.md."""
    head, rest = PAGE.read_text().split(BEGIN)
    ours = [r for r in rows if r["row"].startswith("ours")]
    theirs = [r for r in rows if r not in ours]
    lines = [f"Of {len(theirs)} claims and figures of the paper: {tally(theirs)}. "
             f"Of {len(ours)} claims of our own: {tally(ours)}.", "",
             "| row | claim | verdict | number | runs |", "|---|---|---|---|---|"]
    for r in theirs + ours:
        verdict = f"**{r['verdict']}**" + f": {r['needs']}" * bool(r["needs"])
        lines.append(f"|{r['row']}|{r['claim']}|{verdict}|{r['number']}|"
                     f"{r.get('device', '')} {r['runs'] or ''}|")
    text = head + BEGIN + "\n".join(lines) + "\n" + END + rest.split(END)[1]
    PAGE.write_text(re.sub(r"[ \t]+\n", "\n", text))


if __name__ == "__main__":
    entry(main)
