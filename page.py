"""page.py: what to take home from a sweep: the page at its end, the table of budgets.

    python fit_sigmoid.py --runs=runs/easy --C=2e6    # is this script

Prints the verdict, where the gain came from (coverage or sharpening), and for C/8 to 4 C what to
run. Writes `law.json`, `law.png`, all else that it knows to `report.txt`, and the table for avg@k,
best@k and worst@k to `prescription.md` and `prescription.csv`, to `out` or else to `runs`.

Needs config.py, frontier.py, noise.py, fit_sigmoid.py, prescribe.py, views.py.
"""
import csv
import io
import math
from pathlib import Path

import numpy as np

from config import BadInput, aside, entry, finite, parse, read_json, save_json
from fit_sigmoid import __doc__ as fit_doc
from fit_sigmoid import (figure, in_a_sentence, law_of_panel, law_of_points, law_of_records,
                         say)
from frontier import folders_of, read_runs, right, si
from prescribe import RULES, options, predict_points, prescribe, say_missing
from views import analyse, fixed_Bp


# --------------------------------------------------------------------------------------------------
# The table of budgets

BUDGETS = (1 / 8, 1 / 4, 1 / 2, 1, 2, 4)  # times the sweep's own


def cost_of(runs):
    """{(B_p, n): hours of training for each rollout}, over all ranks and seeds, and their name.

    From the logs' gen_s and train_s, so evaluations, checkpoints and loading come on top. A GPU's
    hours, or on a CPU a process's, which has one core.
    """
    hours = {}
    for run in runs:
        if run["hours"]:
            each = run["hours"] / max(run["rollouts"][-1], 1)
            hours.setdefault((run["B_p"], run["n"]), []).append(each)
    gpu = any(run["device"].startswith("cuda") for run in runs)
    return {cell: float(np.mean(h)) for cell, h in hours.items()}, "GPU-h" if gpu else "core-h"


def nearest(cell, cells):
    """That of `cells` (B_p, n) which is nearest to `cell` in octaves, n before B_p."""
    return min(cells, key=lambda c: (abs(math.log2(c[1] / cell[1])),
                                     abs(math.log2(c[0] / cell[0]))))


def budget_rows(front, laws, cost):
    """What to run at each of BUDGETS, by one metric: a list of dict(metric, C, status, B_p, n, M,
    lr, reward, lo, hi, hours, hours_of, same, by).

    front, laws: as for `prescribe`. same: the (B_p, n) that were run and are indistinguishable from
    the best at C, None beyond the data. hours: of cost_of, None without times; where the pair was
    not run they are those of the nearest that was, hours_of. by: where n comes from. Budgets below
    the data's begin are left out.
    """
    begin = min(panel["envelope"]["C"][0] for panel in front["panels"].values())
    rows = []
    for factor in BUDGETS:
        C = front["budget"] * factor
        if C < begin * (1 - 1e-9):
            continue
        try:
            p = prescribe(C, front, laws)
        except BadInput:  # tokens or hours that buy no update of two rollouts each
            continue
        near = min(front["options"], key=lambda o: abs(math.log(o["C"] / C)), default=dict(rows=[]))
        same = [[r["B_p"], r["n"]] for r in near["rows"] if not r["told"]]
        cell = p["B_p"], p["n"]
        of = nearest(cell, cost) if cost else cell
        hours = cost[of] * p["M"] * p["B_p"] * p["n"] if cost else None
        lo, hi = p["interval"] or (None, None)
        rows.append(dict(metric=front["metric"], C=C, status=p["status"], B_p=p["B_p"], n=p["n"],
                         M=p["M"], lr=p["lr"], reward=p["reward"], lo=lo, hi=hi, hours=hours,
                         hours_of=None if of == cell else list(of),
                         same=sorted(same) if p["status"] == "observed" else None,
                         by=p["by"].split(" (")[0]))
    return rows


def by_metric(front, runs, cfg):
    """The analysis of a sweep's runs by each of avg@k, best@k, worst@k but the one that `front` is
    by: a list of what `front` is, as far as budget_rows needs it. Empty without counts."""
    if runs[0]["counts"] is None or front["metric"] == "train":
        return []
    fronts = []
    for metric in (f"{kind}@{cfg['k']}" for kind in ("avg", "best", "worst")):
        if metric == front["metric"]:
            continue
        scored = [dict(run, reward=right(run["counts"], metric, run["samples"]).mean(1))
                  for run in runs]
        own = analyse(dict(cfg, metric=metric), front["eval_set"], scored)
        content = fixed_Bp(own, own["cfg"]) | dict(
            metric=metric, label=own["label"],
            options=options(own["cells"], own["grid"], own["cfg"]))
        fronts.append(front | finite(content))  # as JSON holds it
    return fronts


def pairs_of(row, several):
    """The pairs that are as good as a row's, as text: n alone where the sweep has one B_p."""
    if row["same"] is None:
        return "not known"
    return ", ".join(f"({b}, {n})" if several else str(n) for b, n in row["same"])


def numbers_of(row):
    """A row's lr, reward with its interval, and hours, as text."""
    reward = "not run" if row["reward"] is None else f"{row['reward']:.3f}"
    reward += "" if row["lo"] is None else f" [{row['lo']:.3f}, {row['hi']:.3f}]"
    lr, hours = (("" if x is None else f"{x:.2g}") for x in (row["lr"], row["hours"]))
    return lr, reward, f"~{hours}" if row["hours_of"] else hours


def say_budgets(rows, front, unit_of_cost):
    """The rows of one metric as a table of text, with what stands behind the extrapolated ones."""
    several = len({panel["B_p"] for panel in front["panels"].values()}) > 1
    head = "(B_p, n)" if several else "n"
    unit = "" if front["unit"] == "rollouts" else f"C in {front['unit']}, "
    yield f"What to run, by {front['label']} ({unit}* = extrapolated):"
    yield (f"  {'C':>7}  {'B_p':>5} {'n':>5} {'M':>6} {'lr':>8}  {'reward, 90% interval':<20} "
           f"{unit_of_cost:>7}  {head} indistinguishable from the best")
    for r in rows:
        star, (lr, reward, hours) = "" if r["status"] == "observed" else "*", numbers_of(r)
        yield (f"  {si(r['C']) + star:>7}  {r['B_p']:>5} {r['n']:>5} {r['M']:>6} {lr:>8}  "
               f"{reward:<20} {hours:>7}  {pairs_of(r, several)}")
    yield from beyond(rows)


def beyond(rows):
    """Where the n of the extrapolated rows comes from, and borrowed hours, as lines of text."""
    why = dict.fromkeys(r["by"] for r in rows if r["status"] != "observed")
    if why:
        yield f"  * n from {'; '.join(why)}"
    if any(r["hours_of"] for r in rows):
        yield "  ~ this pair was not run: the hours of a rollout are those of the nearest one"


COLUMNS = "metric C status B_p n M lr reward lo hi hours hours_of same by".split()


def write_budgets(tables, front, unit_of_cost, out):
    """prescription.md and prescription.csv in the folder `out`: {label: rows} of every metric."""
    several = len({panel["B_p"] for panel in front["panels"].values()}) > 1
    text = [f"# What to run: {front['runs']}", "",
            f"Budgets C in {front['unit']}; hours are of training alone, from the logs' `gen_s` and"
            f" `train_s`, and left out where these are not there. Intervals: {front['covers']}. "
            "Rows in italics are extrapolated."]
    for label, rows in tables.items():
        text += ["", f"## {label}", "", f"| C | B_p | n | M | lr | reward | {unit_of_cost} | "
                 f"{'(B_p, n)' if several else 'n'} indistinguishable from the best |",
                 "|---|---|---|---|---|---|---|---|"]
        for r in rows:
            lr, reward, hours = numbers_of(r)
            cells = [si(r["C"]), r["B_p"], r["n"], r["M"], lr, reward, hours, pairs_of(r, several)]
            slant = "" if r["status"] == "observed" else "*"
            text.append("| " + " | ".join(f"{slant}{c}{slant}" if c != "" else ""
                                          for c in cells) + " |")
        text += [""] + [line.strip(" *") for line in beyond(rows)]
    table = io.StringIO()
    writer = csv.DictWriter(table, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in (row for rows in tables.values() for row in rows):
        same = " ".join(f"{b}x{n}" for b, n in row["same"] or ())
        short = {key: f"{x:.5g}" for key, x in row.items() if isinstance(x, float)}
        short |= dict(same=same, hours_of="x".join(map(str, row["hours_of"] or ())))
        if front["unit"] in ("rollouts", "tokens"):
            short["C"] = round(row["C"])
        writer.writerow(row | short)
    for name, content in (("md", "\n".join(text) + "\n"), ("csv", table.getvalue())):
        with aside(out / f"prescription.{name}") as part:
            part.write_text(content)


# --------------------------------------------------------------------------------------------------
# Coverage or sharpening? (section 4.1, "diagnosing the mode of improvement")

def gain_parts(first, last, samples, k):
    """Of a gain in avg@k, the part on problems that were not solved before: dict(gain, half,
    coverage, lo, hi, tries, even), and the gains in best@k and worst@k: best, worst, tune.

    first, last (S, P): solved of `samples` rollouts of each problem before and after, drawn
    independently, S runs. With p and q a problem's pass rates then and u = (1 - p)^t, the chance
    that t tries leave it unsolved at first, the gain is E[u (q - p)] + E[(1 - u) (q - p)]: coverage
    and sharpening. t = k - 1, or samples - 1 where these are fewer, because u p wants t + 1
    rollouts. Both parts are unbiased; to take the problems without a solved rollout for unsolved
    ones would count those that had bad luck at first. coverage: its share of the gain; even: E[u],
    its share where every problem gains as much. tune: that of best@k and worst@k which clearly
    gained more than the other, else avg@k. Intervals are 90% over problems and rollouts. Worked, 1
    of 4 solved before: u = C(3, 3) / C(4, 3) = 1/4, and u p = 1/4 too.
    """
    t = max(min(k, samples) - 1, 1)
    ways = [math.comb(samples - c, t) for c in range(samples + 1)]
    u = (np.array(ways) / math.comb(samples, t))[first]  # (S, P)
    won = (u * last / samples - u * first / (samples - t)).mean(0)  # (P,), of E[u (q - p)]
    each = (np.subtract(last, first, dtype=float) / samples).mean(0)
    best, worst = ((right(last, f"{kind}@{k}", samples) - right(first, f"{kind}@{k}", samples)
                    ).mean(0) for kind in ("best", "worst"))  # (P,)

    def half_of(x):
        return 1.645 * x.std(ddof=1) / math.sqrt(len(x))
    lead = best - worst
    tune = "avg" if abs(lead.mean()) <= half_of(lead) else "best" if lead.mean() > 0 else "worst"
    gain, half = each.mean(), half_of(each)
    out = dict(gain=gain, half=half, best=best.mean(), worst=worst.mean(), tune=f"{tune}@{k}",
               tries=t, even=u.mean(), coverage=None, lo=None, hi=None)
    if abs(gain) > half:  # else a share of nothing
        share = won.mean() / gain
        error = half_of(won - share * each) / abs(gain)
        out.update(coverage=share, lo=share - error, hi=share + error)
    return out


def diagnose(runs, k):
    """gain_parts at the end of the runs of the smallest and the largest n, of the B_p with most
    runs: a list of it with n and B_p. Empty without counts for each problem, or without those of
    the base model.
    """
    runs = [r for r in runs if r["counts"] is not None and r["C"][0] == 0 and r["samples"] > 1
            and r["counts"].shape[1] > 1]
    sizes = [r["B_p"] for r in runs]
    runs = [r for r in runs if r["B_p"] == max(set(sizes), key=lambda b: (sizes.count(b), -b))]
    ns, out = sorted({r["n"] for r in runs}), []
    for n in sorted({*ns[:1], *ns[-1:]}):
        same = [r for r in runs if r["n"] == n]
        first, last = (np.array([r["counts"][i] for r in same], int) for i in (0, -1))
        out.append(dict(n=n, B_p=same[0]["B_p"],
                        **gain_parts(first, last, same[0]["samples"], k)))
    return out


def say_diagnosis(found, k):
    """`diagnose` as lines of text, a line for each n."""
    if found:
        yield f"Coverage or sharpening? With B_p = {found[0]['B_p']}, the end less the base model:"
    for d in found:
        moved = (f"{name}@{k} {100 * d[key]:+.1f}" for name, key in
                 (("avg", "gain"), ("best", "best"), ("worst", "worst")))
        text = f"no clear gain in avg@{k}"
        if d["coverage"] is not None:
            share = f"{d['coverage']:.0%} [{100 * d['lo']:.0f}, {100 * d['hi']:.0f}]"
            tries = f"{d['tries']} {'try' if d['tries'] == 1 else 'tries'} of the base model"
            text = (f"{share} of the gain on problems unsolved in {tries} ({d['even']:.0%} if all "
                    "gained alike)")
        yield f"  n = {d['n']}: {', '.join(moved)} points, so tune by {d['tune']}; {text}"


DIAGNOSIS = ("tune by that of best and worst which gained more, or avg where noise may tell them "
             "apart. Gain on unsolved problems is coverage, the rest sharpening: it says much of "
             "the base model and little of the run where it is near the share of an even gain. "
             "Intervals are 90% over problems and rollouts")


# --------------------------------------------------------------------------------------------------
# Input, output

def read_points(path, cfg):
    """A CSV with columns C and n -> what frontier.json would hold of it: one panel, its frontier
    these points. Lines below the first that begin with # say what they are, for the figure. Raises
    BadInput that names the file, its columns, or the line."""
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
    rows, rule, why = predict_points(C, np.log2(n))
    panel = dict(B_p=cfg["B_p"], envelope=dict(C=list(C), n=list(n)), switches=[],
                 prediction=dict(rows=rows, recommended=rule, why=why))
    return dict(config=cfg, unit=cfg["unit"], label="", budget=C[-1],
                about=f" of {Path(path).name}: {' '.join(about) or f'{len(C)} points'}",
                covers="none, points alone do not say how sure they are",
                panels={f"B_p={cfg['B_p']}": panel})


def say_rules(prediction, by_n, law):
    """How the rules predict, as a table: regret in reward (or octaves, for points) by factor."""
    rows = prediction["rows"]
    if not rows:
        return f"  predictions: {prediction['why']}"
    factors = sorted({r["factor"] for r in rows})
    what = ": error in octaves of n"
    if by_n:
        what = f", {prediction['judged']}: regret in points of reward (octaves of n)"
    text = [f"  predicting n* from budgets up to C/{', C/'.join(map(str, factors))}{what}"]
    for rule in RULES:
        shown = []
        for factor in factors:
            r = next(r for r in rows if r["rule"] == rule and r["factor"] == factor)
            octaves = f"{r['octaves']:6.2f}"
            shown.append(f"{100 * r['regret']:6.2f} ({r['octaves']:.1f})" if by_n else octaves)
        text.append(f"    {rule:>10}  " + "   ".join(shown))
    text.append(f"    recommended: {prediction['recommended']}, {prediction['why']}")
    if by_n and law["verdict"] in ("law", "flat"):
        text[-1] += f"; the verdict, {law['verdict']}, goes before it"
    return "\n".join(text)


def say_options(front, most=8):
    """The table of the (B_p, n) that are as good as the best at the largest budget."""
    if not front.get("options"):
        return ""
    at = front["options"][0]
    text = [f"As good as the best at C = {si(at['C'])} (within {front['delta']:g}, or "
            "indistinguishable):",
            f"  {'B_p':>5} {'n':>5} {'M':>7} {'lr':>9}  {'curve':>6}  below the best"]
    for r in at["rows"][:most]:
        half = "" if r["half"] is None else f" +- {r['half']:.3f}"
        text.append(f"  {r['B_p']:>5} {r['n']:>5} {r['M']:>7} {r['lr']:>9.3g}  {r['reward']:6.3f}  "
                    f"{r['gap']:.3f}{half}" + (", clearly worse" if r["told"] else "")
                    + (", its runs ended before" if r.get("carried") else ""))
    if len(at["rows"]) > most:
        text.append(f"  and {len(at['rows']) - most} more, see report.txt")
    return "\n".join(text) + "\n"


def say_prescription(p, front, label, short=False):
    """A prescription as text that ends in a command to paste; short: what the page has."""
    reward = "; no run reached it, so no reward is given" if front["label"] else ""
    if p["reward"] is not None:
        reward = f"; {front['label']} {p['reward']:.3f}"
        reward += " [{:.3f}, {:.3f}]".format(*p["interval"]) if p["interval"] else ""
    lr = "" if p["lr"] is None else f", lr = {p['lr']:.3g}, recipe {p['recipe']}"
    lines = [f"C = {si(p['C'])} {front['unit']} ({label}{p['status']})",
             f"  B_p = {p['B_p']}, n = {p['n']}, M = {p['M']}{lr}{reward}"]
    details = [f"n from {p['by']}" + (f"; B_p: {p['why_B_p']}" if p["why_B_p"] else "")]
    if p["near"] and len(p["near"]) > 1:
        same = ", ".join(map(str, p["near"]))
        details.append(f"indistinguishable from the best at this budget: n = {same}")
    if p["regret"] is not None:
        details.append(f"if another n is better, it is so by less than {p['regret']:.3f} (95%)")
    details += [p["expected"]] if p["expected"] else []
    details += p["also"] + [f"caution: {c}" for c in p["caveat"]]
    details += [f"to be surer: {p['next']}"] if p["next"] else []
    if short:  # where n and B_p come from, and one caution
        details = details[:1] + p["also"] + [f"caution: {c}" for c in p["caveat"][:1]]
    end = [p["command"]] if p["command"] else ["name --model or --data for an lr and a command"]
    return "\n".join([*lines, *(f"  {line}" for line in [*details, *end])])


def read_front(cfg, out):
    """frontier.json (or that of joint, fixed_B) of the sweep's folder. Raises BadInput."""
    if cfg["view"] not in ("fixed_Bp", "joint", "fixed_B", "all"):
        raise BadInput(f"--view={cfg['view']}: a law is fitted to fixed_Bp, joint or fixed_B")
    view = "" if cfg["view"] in ("fixed_Bp", "all") else cfg["view"]
    name = f"frontier_{view}.json" if view else "frontier.json"
    again = f"run frontier.py --runs={cfg['runs']}" + (f" --view={view}" if view else "")
    folders = (out, *folders_of(cfg["runs"]))
    source = next((f / name for f in folders if (f / name).exists()), None)
    if source is None:
        raise BadInput(f"--runs={cfg['runs']}: no {name} there, {again} first")
    front = read_json(source)
    panels = front.get("panels", {}).values()
    whole = all("surface" in p and "carried" in p["envelope"] for p in panels)
    if not panels or not whole or "eval_set" not in front:
        raise BadInput(f"{source}: not from this version, {again} again")
    for panel in panels:
        panel.setdefault("prediction", dict(
            rows=[], recommended=None, why="for one B_p at a time, see --view=fixed_Bp"))
    return front, view


LAW_MARK = "\n==== the law and what to run\n"


def main(argv):
    cfg = parse(argv, fit_doc)
    given = {word.split("=")[0] for word in argv}
    if cfg["points"]:
        front, view = read_points(cfg["points"], cfg), ""
        front["model_known"] = bool(given & {"--model", "--data", "--config"})
        out = Path(cfg["out"] or Path(cfg["points"]).parent)
        laws = {name: law_of_points(p["envelope"]["C"], np.log2(p["envelope"]["n"]))
                for name, p in front["panels"].items()}
    else:
        out = Path(cfg["out"] or folders_of(cfg["runs"])[0])
        front, view = read_front(cfg, out)
        laws = {name: law_of_panel(panel, cfg["delta"]) for name, panel in front["panels"].items()}
    paper = {name: law_of_records(p.get("records", {})) for name, p in front["panels"].items()}
    # the panel that stands for the sweep: most switches, then most runs
    main_panel = max(laws, key=lambda name: (len(front["panels"][name]["switches"]),
                                             len(front["panels"][name].get("runs_used", ()))))

    budget = float(front["budget"])
    whose = "the largest C of the points" if cfg["points"] else "the sweep's budget"
    budgets = {budget: f"{whose}, ", 4 * budget: f"4 x {whose}, "}
    if "--C" in given:
        budgets = {float(cfg["C"]): "", **budgets}
    # tokens become rollouts by what the runs spent; points alone do not say what that was, and
    # updates are no budget
    known = (front["unit"] == "rollouts" or not cfg["points"]) and view != "fixed_B"
    prescriptions = [prescribe(C, front, laws) for C in budgets] if known else []
    law_file = out / (f"law_{view}" if view else "law")
    panels = {name: dict(envelope=law, records=paper[name],
                         prediction=front["panels"][name]["prediction"])
              for name, law in laws.items()}
    found = dict(
        law=laws[main_panel] | dict(panel=main_panel), panels=panels, prescriptions=prescriptions,
        estimator="points" if cfg["points"] else "envelope", covers=front["covers"],
        label=front["label"], unit=front["unit"])
    table, diagnosis = [], []  # lines of text
    if not cfg["points"] and not view:
        table, diagnosis, found["diagnosis"] = take_home(front, laws, cfg, out)
    save_json(f"{law_file}.json", found, indent=None)
    figure(front, laws, paper, prescriptions, f"{law_file}.png")

    full = []  # everything, for report.txt
    for name, law in laws.items():
        full += [f"{name}: {say(law)}",
                 say_rules(front["panels"][name]["prediction"], not cfg["points"], law)]
        if paper[name]:
            full.append("  by the paper's way (record-breaking points, maxima of noisy evaluations,"
                        f" no interval): {say(paper[name])}")
    parts = "\n".join(diagnosis), say_options(front, 1000).rstrip(), "\n".join(table)
    full += [f"intervals: {front['covers']}\n", *(f"{part}\n" for part in parts if part)]
    full += [say_prescription(p, front, label) + "\n"
             for p, label in zip(prescriptions, budgets.values())]
    report = out / "report.txt"
    if not cfg["points"] and not view:
        before = report.read_text().split(LAW_MARK)[0] if report.exists() else ""
        with aside(report) as part:
            part.write_text(before + LAW_MARK + "\n".join(full))
    if cfg["verbose"] or cfg["points"]:
        print("\n".join(full))
    else:
        print("Does the best n rise with the budget?")
        for name, law in laws.items():
            print(f"  {name}: {in_a_sentence(law)}.")
        print(f"  intervals: {front['covers']}")
        for note in front["notes"]:
            if note.startswith("lr_base"):
                print(f"  {note}")
        if front["missing"]:
            print(say_missing(front["missing"], 4))
        print("\n".join(diagnosis[:-1]))
        print("\n" + say_options(front))
        if table:
            print("\n".join(table) + "\n")
        for p, label in zip(prescriptions, budgets.values()):
            if p["status"] == "observed" or not table or "--C" in given and not label:
                print(say_prescription(p, front, label, short=True) + "\n")
    if cfg["points"] or view:
        print(f"figure: {law_file}.png   numbers: {law_file}.json")
        return
    drawn = sorted(path.stem for path in out.glob("*.png"))
    print(f"figures in {out}: {', '.join(drawn)} (.png)\n"
          f"all metrics: {out}/prescription.md, .csv   all else: {report}")


def take_home(front, laws, cfg, out):
    """Writes the table of budgets for every metric to `out`; returns the lines of that by the
    sweep's own metric, the lines of the diagnosis, and its numbers."""
    own = cfg | {key: front[key] for key in ("metric", "unit", "bin", "boot", "delta", "eval_set")}
    own.update(k=front["config"]["k"], tag=front["config"]["tag"])
    part = "train" if own["metric"] == "train" else own["eval_set"]
    runs, _ = read_runs(own["runs"], own["metric"], own["unit"], part, own["tag"])
    runs = [run for run in runs if run["lr"] == front["config"]["lr_base"]]  # as the figures
    if sorted(run["run"] for run in runs) != sorted(run["run"] for run in front["runs_used"]):
        raise BadInput(f"--runs={cfg['runs']}: its runs are not the {len(front['runs_used'])} that "
                       f"the frontier.json in {out} or there was made of; run frontier.py "
                       f"--runs={cfg['runs']}{' --out=' + cfg['out'] if cfg['out'] else ''} again")
    cost, unit_of_cost = cost_of(runs)
    mine = budget_rows(front, laws, cost)
    tables = {front["label"]: mine}
    for other in by_metric(front, runs, own):
        of_other = {name: law_of_panel(p, front["delta"]) for name, p in other["panels"].items()}
        tables[other["label"]] = budget_rows(other, of_other, cost)
    write_budgets(tables, front, unit_of_cost, out)
    parts = diagnose(runs, own["k"])
    lines = [*say_diagnosis(parts, own["k"]), f"  ({DIAGNOSIS})"] if parts else []
    return list(say_budgets(mine, front, unit_of_cost)), lines, parts


if __name__ == "__main__":
    entry(main)
