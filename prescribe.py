"""prescribe.py: what to run with a budget, (B_p, n, M, lr), and how sure that is.

Nothing here is a script; page.py prints it. Inside the budgets that were run, n is the best of the
frontier. Beyond them it is what the rule for n*(C) says that predicts best: each rule is fitted to
budgets up to C/2, C/4, C/8 and judged at C.

Needs config.py, frontier.py, noise.py, fit_sigmoid.py.
"""
import math

import numpy as np

from config import BadInput, command, derive
from fit_sigmoid import NUMBERS, arrays_of, fit_law, law_at
from frontier import si
from noise import cells_at, half_width, indistinguishable, monotone, spline_map, values_at


# --------------------------------------------------------------------------------------------------
# Rules for n*(C), from the simplest on, and how well they predict

def most_frequent(C, y):
    values, times = np.unique(y, return_counts=True)
    return lambda at: np.full(len(at), values[times.argmax()])


def sigmoid_rule(C, y):
    law = fit_law(C, y)
    return lambda at: law_at(law, at)


def line_rule(C, y):
    a, b = np.polyfit(np.log2(C), y, 1)
    return lambda at: a * np.log2(at) + b


def isotonic_rule(C, y):
    rising = monotone(y)
    return lambda at: np.interp(at, C, rising)


# each: points C (E,), y = log2 n* (E,) -> a function of C (F,) that predicts log2 n* (F,)
RULES = {
    "constant n": most_frequent,
    "last n": lambda C, y: lambda at: np.full(len(at), y[-1]),
    # C = B_p n M, so at one M the n goes with C
    "constant M": lambda C, y: lambda at: np.log2(at) + np.mean(y - np.log2(C)),
    "log-linear": line_rule,
    "isotonic": isotonic_rule,
    "sigmoid": sigmoid_rule,
}


def simplest(scores, error):
    """The simplest of the rules within a standard error of the best: (name, why).

    scores {name: (U,)}, from the simplest on: a loss in each of U held-out units; error: what these
    are, for the text. The standard error is that of the difference to the best rule, paired over
    units.
    """
    best = min(scores, key=lambda name: np.mean(scores[name]))
    for name, loss in scores.items():
        gap = np.asarray(loss) - scores[best]
        se = gap.std(ddof=1) / math.sqrt(len(gap)) if len(gap) > 1 else 0.0
        if gap.mean() <= se + 1e-12:
            if name == best:
                return name, "the best"
            return name, f"the simplest within one standard error ({se:.4f}, {error}) of {best}"


def predict_points(C, y):
    """How well each rule predicts points C, y = log2 n* (E,) from those up to C/2, C/4 and C/8.

    Returns ([dict(rule, factor, octaves)], recommended, why): mean absolute error in octaves over
    the targets that have 3 budgets or more in what the rule saw. Predictions stay between the
    smallest and four times the largest n seen.
    """
    errors = {name: {} for name in RULES}
    for factor in (2, 4, 8):
        for j in range(len(C)):
            seen = C <= C[j] / factor * (1 + 1e-9)
            if len(np.unique(C[seen])) >= 3:
                for name, rule in RULES.items():
                    guess = rule(C[seen], y[seen])(C[[j]])[0]
                    guess = np.clip(guess, y[seen].min(), y[seen].max() + 2)
                    errors[name].setdefault(factor, []).append(abs(guess - y[j]))
    if not errors["last n"]:
        return [], None, "too few points to predict any from those at half their budget"
    rows = [dict(rule=name, factor=factor, octaves=float(np.mean(e)))
            for name, by in errors.items() for factor, e in by.items()]
    pooled = {name: np.concatenate(list(by.values())) for name, by in errors.items()}
    return rows, *simplest(pooled, "over the points, which err together")


def early_paths(cs, grid, cut, F, lam):
    """The curves of the cells cs by what was known at `cut`: (N, F, G'), G' the budgets up to it.

    Without fold f of the seeds; -inf where a cell had no curve yet.
    """
    past = grid <= cut * (1 + 1e-9)
    seen = np.full((len(cs), F, past.sum()), -np.inf)
    for i, c in enumerate(cs):
        seed = np.repeat(np.arange(len(c["points"])), [len(C) for C, _ in c["points"]])
        for f in range(F):
            known = (c["C"] > 0) & (c["C"] <= cut) & ((F == 1) | (seed % F != f))
            if known.sum() >= 3:
                H = spline_map(c["C"][known], c["w"][known], grid[past], lam)
                begun = ~np.isnan(c["Y"][past])
                seen[i, f, begun] = monotone((H @ c["R"][known])[begun]) if begun.any() else []
    return seen


def predict(cs, grid, lam):
    """How well each rule for n*(C), fitted to budgets up to C/2, C/4, C/8, picks n at C:
    dict(rows, recommended, why). cs: the cells of one B_p; lam: their smoothness.

    With two seeds or more the rule sees all but one, and its n is scored on that one against the n
    on top of the others with all their budgets; else on the same runs. Regret is in reward,
    averaged over targets C evenly spaced in log C, error in octaves of n.
    """
    F = len(cs[0]["folds"]) if cs[0]["split"] == "seeds" and cs[0]["folds"] is not None else 1
    ns, Y = np.log2([c["n"] for c in cs]), np.array([c["Y"] for c in cs])  # (N,), (N, G)
    test = np.array([c["folds"] for c in cs]) if F > 1 else Y[:, None]  # (N, F, G)
    test = np.where(np.isnan(test), Y[:, None], test)  # a seed that ended early: the others' curve
    others = (F * test.mean(1, keepdims=True) - test) / (F - 1) if F > 1 else test
    full = np.where(np.isnan(test), -np.inf, others).argmax(0)  # (F, G), the best n by all budgets
    hi, losses = grid[-1], {name: {} for name in RULES}
    for cut in hi / 2 ** (np.arange(2, 40) / 2):
        past = grid <= cut * (1 + 1e-9)
        if past.sum() < 5:
            break
        seen = early_paths(cs, grid, cut, F, lam)
        some = np.isfinite(seen).any((0, 1))
        if some.sum() < 5:
            continue
        targets = [(factor, int(np.abs(np.log(grid / (cut * factor))).argmin()))
                   for factor in (2, 4, 8) if cut * factor <= hi * 1.01]
        for f in range(F):
            path = ns[seen[:, f][:, some].argmax(0)]
            for name, rule in RULES.items():
                at = rule(grid[past][some], path)
                for factor, j in targets:
                    there = np.flatnonzero(~np.isnan(Y[:, j]))
                    want = full[f, j]
                    guess = np.clip(at(grid[[j]])[0], ns[there[0]], ns[there[-1]])
                    got = there[np.abs(ns[there] - guess).argmin()]
                    loss = test[want, f, j] - test[got, f, j], abs(guess - ns[want])
                    losses[name].setdefault((factor, f), []).append(loss)
    if not losses["last n"]:
        return dict(rows=[], recommended=None,
                    why="too few budgets to predict any from those at half of them")
    rows = []
    for name, by in losses.items():
        for factor in sorted({factor for factor, _ in by}):
            pairs = [pair for f in range(F) for pair in by.get((factor, f), [])]
            regret, octaves = np.mean(pairs, 0)
            rows.append(dict(rule=name, factor=factor, regret=float(regret),
                             octaves=float(octaves)))
    # the units of the error: seeds, or with one the targets, which err together
    units = {}
    for name, by in losses.items():
        units[name] = [pair[0] for pairs in by.values() for pair in pairs]
        if F > 1:
            units[name] = [np.mean([pair[0] for (_, g), pairs in by.items() if g == f
                                    for pair in pairs]) for f in range(F)]
    error = f"over {F} seeds" if F > 1 else "over budgets of the same runs, which err together"
    name, why = simplest(units, error)
    return dict(rows=rows, recommended=name, why=why, seeds=F,
                regret={key: float(np.mean(v)) for key, v in units.items()},
                judged="on a seed that the rule did not see" if F > 1 else
                "on the same runs, one seed")


# --------------------------------------------------------------------------------------------------
# What to run

def options(cells, grid, cfg):
    """Every (B_p, n) within delta of the best or indistinguishable from it, at the largest budget
    and 1/2, 1/4, 1/8 of it: a list of dict(C, rows), a row with B_p, n, M, lr, reward, gap to the
    best and its half width, `carried` where its runs end before C: then M is theirs. Cells that
    were pruned before C are left out."""
    out = []
    for C in grid[-1] / 2.0 ** np.arange(4):
        j, here = cells_at(cells, grid, C)
        if not here or C < grid[0]:
            continue
        Y, noise = values_at(here, j)
        same, top = indistinguishable(Y, noise), int(Y.argmax())
        rows = []
        for i, c in enumerate(here):
            if same[i] or Y[top] - Y[i] <= cfg["delta"]:
                cost = np.mean([r["per_rollout"] for r in c["runs"]])
                carried = not c["inside"][j]
                rollouts = int((c["reach"][1] if carried else grid[j]) / cost)
                d = derive(dict(cfg["head"], B_p=c["B_p"], n=c["n"], C=rollouts))
                half = None
                if len(noise) and i != top:
                    half = float(half_width(noise[:, top] - noise[:, i]))
                rows.append(dict(B_p=c["B_p"], n=c["n"], M=d["M"], lr=d["lr"], reward=Y[i],
                                 gap=Y[top] - Y[i], half=half, told=not same[i],
                                 carried=carried))
        out.append(dict(C=grid[j], rows=sorted(rows, key=lambda r: r["gap"])))
    return out


def at_budget(C, panel, key):
    """A series of the panel's frontier at C, linear in log C; None where it is not known."""
    env = panel["envelope"]
    if not env.get(key) or not env["C"][0] * (1 - 1e-9) <= C <= env["C"][-1] * (1 + 1e-9):
        return None
    return float(np.interp(math.log(C), np.log(env["C"]), np.array(env[key], float)))


def choose_panel(C, front):
    """The panel to take at C: the smallest stable B_p of those indistinguishable from the best
    there (paper, section 4.3: B_p mainly serves stability).

    Returns (name, why). Budgets are those of the table of options; above the largest it is the
    largest. Stable: at most one run in ten diverged or declined; where none is, the smallest.
    """
    panels = front["panels"]
    if len(panels) == 1 or not front.get("options"):
        return next(iter(panels)), ""
    at = min(front["options"], key=lambda o: abs(math.log(o["C"] / C)))
    sizes = sorted({row["B_p"] for row in at["rows"] if not row["told"]})
    fell = {int(b): bad > runs / 10 for b, (bad, runs) in front.get("stability", {}).items()}
    stable = [b for b in sizes if not fell.get(b)] or sizes
    name = next((name for name, panel in panels.items() if panel["B_p"] == stable[0]),
                next(iter(panels)))
    if len(sizes) == 1:
        return name, f"it has the best cell at C = {si(at['C'])}"
    alike, which = ", ".join(map(str, sizes)), "" if stable == sizes else " stable one"
    return name, (f"the smallest{which} of {alike}, which are indistinguishable at "
                  f"C = {si(at['C'])}")


def n_by_rule(rule, C, panel):
    """log2 n at C by one of RULES fitted to the panel's frontier."""
    env = panel["envelope"]
    return float(RULES[rule](np.array(env["C"]), np.log2(env["n"]))(np.array([C]))[0])


def most_n(panel):
    """The largest n that is prescribed: twice the largest that was tried."""
    return 2 * max(panel["ns"] if "ns" in panel else panel["envelope"]["n"])


def n_beyond(C, panel, law, own):
    """n at a budget that was not run: (n, by what, also said, expected loss).

    The law where it is the verdict; then the rule that predicted best stands beside it. Beyond
    points (own is False) it is the other way round: there the law is the rule `sigmoid`, whose
    record of predictions is known. Else that rule, else the last n.
    """
    env, prediction = panel["envelope"], panel["prediction"]
    rule, also, expected = prediction["recommended"], [], None
    if rule:
        at = 2 ** n_by_rule(rule, C, panel)
        by_rule = f"the rule `{rule}`, which predicts best here ({prediction['why']})"
        rows = [r for r in prediction["rows"] if r["rule"] == rule]
        near = min(rows, key=lambda r: abs(r["factor"] - C / env["C"][-1]))
        record = f"{near['octaves']:.1f} octaves of error predicting {near['factor']} times ahead"
        if "regret" in near:
            expected = (f"predicting {near['factor']} times ahead, it lost "
                        f"{100 * near['regret']:.1f} points of reward here")
    if law["verdict"] == "flat" and own:
        return law["constant"], "the verdict flat: one n at every budget", also, None
    if law["verdict"] == "law":
        if own and law["path"]:
            log2_n = np.interp(math.log(C), np.log(law["path"]["C"]), law["path"]["log2_n"])
            by_law = 2 ** float(log2_n)
        elif own:
            by_law = None
        else:
            by_law = 2 ** float(law_at({key: law[key]["value"] for key in NUMBERS[:4]},
                                       np.array([C]))[0])
        other = rule not in (None, "sigmoid") and C > env["C"][-1] * (1 + 1e-9)
        if other and not own:
            also.append(f"the law says n = {by_law:.0f}")
        elif by_law is not None:
            if other:
                far = ", beyond anything tried" if at > most_n(panel) * 1.01 else ""
                also.append(f"the rule `{rule}` says n = {at:.0f}{far} ({record})")
            return by_law, "the law", also, None
    if rule:
        return at, by_rule, also, expected
    return env["n"][-1], f"the last observed n*, at {si(env['C'][-1])}", also, None


def prescribe(C, front, laws):
    """What to run with a budget C (in the unit of the sweep): dict(B_p, n, M, lr, ..., command).

    front: the content of frontier.json; laws: {panel: entry of law_of_panel}. Inside the budgets
    that were run, n is the one on top of the frontier; above them see n_beyond, and never more than
    twice the largest n that was tried. n is capped by B_max and by C. Where the model is not known
    (points, without --model or --data) there is no lr, cap or command. Raises BadInput where C does
    not buy one update.
    """
    name, why = choose_panel(C, front)
    panel, law, cfg, caveat = front["panels"][name], laws[name], front["config"], []
    env, B_p, known = panel["envelope"], panel["B_p"], front.get("model_known", True)
    lo, hi = env["C"][0], env["C"][-1]
    observed = lo * (1 - 1e-9) <= C <= hi * (1 + 1e-9)
    own = "ns" in panel  # False: points from anywhere
    at = np.searchsorted(env["C"], C * (1 + 1e-9), side="right") - 1
    i = int(np.clip(at, 0, len(env["C"]) - 1))
    if B_p is None:  # best over B_p: that of the pair on top
        B_p = int(env["B_p"][i])
    also, expected = [], None
    if observed and own:
        n, by = env["n"][i], "the frontier at this budget"
    elif C < lo:
        n, by = env["n"][0], f"the smallest budget observed, {si(lo)}"
    else:
        n, by, also, expected = n_beyond(C, panel, law, own)
    if not observed:
        caveat.append(f"extrapolated: the data cover {si(lo)} to {si(hi)}")
        if law["verdict"] == "undetermined":
            caveat.append("the verdict is inconclusive, so n* may be another at this budget")
    elif own and env["carried"][i]:
        ran = [c for c, m, gone in zip(env["C"], env["n"], env["carried"]) if m == n and not gone]
        where = f"near C = {si(ran[-1])}" if ran else "before this budget"
        caveat.append(f"the runs of n = {n} end {where}; from there on its best so far stands")
    if panel.get("edge") and C >= 0.99 * hi:
        caveat.append(panel["edge"]["text"])
    most = most_n(panel)
    if n > most * 1.01:
        caveat.append(f"n = {n:.0f} by that is beyond anything tried: twice the largest tried "
                      "stands")
        n = most
    # an n that was run, or the nearest power of 2; a group has two rollouts or more
    n = int(n) if own and n in panel["ns"] else max(2, 2 ** round(math.log2(n)))
    # what a rollout costs in this unit, by the run whose n is nearest
    cost = panel.get("per_rollout") or {"1": 1.0}
    nearest = min(cost, key=lambda m: abs(math.log2(int(m) / max(n, 1))))
    rollouts = int(C / cost[nearest])
    cap = min((cfg["B_max"] if known else 0) or math.inf, rollouts) // B_p
    if n > cap:
        limit = "B_max" if rollouts > cap * B_p + B_p else "the budget"
        caveat.append(f"n = {n} capped by {limit}")
        n = 2 ** int(math.log2(cap)) if cap >= 1 else 0
    if n < 2:
        raise BadInput(f"C = {C:g} {front['unit']}: below one update of B_p = {B_p} problems with "
                       "n = 2")
    near = [a["set"] for a in panel.get("near", ()) if observed and a["C"] <= C * (1 + 1e-9)]
    run, surface, regret = dict(cfg, B_p=B_p, n=n, C=rollouts), panel.get("surface"), None
    derived = derive(run)
    if known and derived["M"] <= cfg["warmup"]:
        caveat.insert(0, f"M = {derived['M']} updates are all warm-up, {cfg['warmup']} updates "
                      "long: the lr given is never reached, and no run here says what that does")
    if observed and own and surface and len(surface["noise"]) and n in surface["ns"]:
        drawn = sum(arrays_of(surface, C))  # (K, N)
        behind = drawn.max(1) - drawn[:, list(surface["ns"]).index(n)]
        regret = float(np.percentile(behind, 95))
    interval = [at_budget(C, panel, end) for end in ("lo", "hi")]
    return dict(C=C, B_p=B_p, n=n, M=derived["M"], lr=derived["lr"] if known else None, panel=name,
                recipe=cfg["recipe"] if known else None, why_B_p=why, by=by, also=also,
                status="observed" if observed else "extrapolated", caveat=caveat,
                near=near[-1] if near else None, reward=at_budget(C, panel, "reward"),
                interval=None if interval[0] is None else interval, regret=regret,
                expected=expected, command=command(run) if known else None,
                next=what_next(C, panel, near[-1] if near else (), n) if own else None)


def what_next(C, panel, near, n):
    """Runs that would make the answer surer: the cell beyond the grid's edge, else seeds."""
    edge = panel.get("edge")
    if edge and edge["add"] and C >= 0.99 * panel["envelope"]["C"][-1]:
        return "add B_p = {B_p}, n = {n}: the best is at the grid's edge".format(**edge["add"])
    surface, S = panel.get("surface"), len(panel["seeds"])
    if not surface or not len(surface["noise"]) or n not in surface["ns"]:
        return None
    others = [m for m in near if m != n and m in surface["ns"]]
    if not others:
        return None
    names = ", ".join(map(str, sorted({n, *others})))
    if S == 1:
        return (f"a second and third seed of n = {names}: with one, the variation from run to run "
                "is not known")
    (Y, noise), ns = arrays_of(surface, C), list(surface["ns"])
    mine = ns.index(n)
    far = max(others, key=lambda m: Y[mine] - Y[ns.index(m)])
    gap = Y[mine] - Y[ns.index(far)]
    half = float(half_width(noise[:, mine] - noise[:, ns.index(far)]))
    more = math.ceil(S * (half / gap) ** 2) if gap > 0 else math.inf
    if more >= 100:
        return f"nothing cheap: n = {names} are too close to separate"
    return f"more seeds of n = {names} (about {more} in all to separate n = {far} from n = {n})"


def say_missing(missing, most):
    """Planned cells without a finished run, the first `most` of them by name."""
    cells = [f"B_p={m['B_p']} n={m['n']} seed={m['seed']} ({m['why']})" for m in missing[:most]]
    more = ", ..." if len(missing) > most else ""
    return f"  missing {len(missing)}: {'; '.join(cells)}{more}"
