"""prescribe.py: rules that predict n*(C), what to run with a budget, the page at a sweep's end."""
import csv
import json
import math
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import fit_sigmoid as fit
import page
import prescribe
import simulate as sim
import views
from config import config, derive, identity, parse
from simulate import CFG, analyse, bad, cells, ends_at, edit, law_of, simulate
from test_fit_sigmoid import PAPER
from test_frontier import refused

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def analysed(tmp_path_factory):
    return sim.analysed_sweep(tmp_path_factory)


def predicted(runs):
    """How the rules predict on runs in memory, and their cells."""
    grid, found = cells(runs)
    return prescribe.predict(found, grid, 0.1)


# --------------------------------------------------------------------------------------------------
# Rules and how they predict

@pytest.mark.parametrize("rule,path", [
    ("constant n", lambda C: np.full(len(C), 5.0)), ("last n", lambda C: np.full(len(C), 5.0)),
    ("constant M", lambda C: np.log2(C) - 12), ("log-linear", lambda C: 0.4 * np.log2(C) - 2),
    ("isotonic", lambda C: np.minimum(np.log2(C) - 10, 5.5)),
    ("sigmoid", lambda C: sim.law(C, PAPER["easy"]))])
def test_each_rule_continues_its_own_path(rule, path):
    C, far = np.geomspace(1e5, 2e6, 40), np.geomspace(3e6, 2e7, 7)
    assert prescribe.RULES[rule](C, path(C))(far) == pytest.approx(path(far), abs=0.05)


def test_rules_on_paths_that_tell_them_apart():
    C, y = np.geomspace(1e5, 1e6, 8), np.array([2, 3, 3, 3, 4, 5, 4, 6.0])
    at = np.array([4e6, 8e6])
    rules = prescribe.RULES
    assert rules["constant n"](C, y)(at).tolist() == [3, 3]  # the most frequent
    assert rules["last n"](C, y)(at).tolist() == [6, 6]
    # an octave of n for an octave of C
    assert np.diff(rules["constant M"](C, y)(at)) == pytest.approx(1)
    assert rules["constant M"](C, y)(C).mean() == pytest.approx(y.mean())
    assert rules["isotonic"](C, y)(C)[5:7] == pytest.approx([4.5, 4.5])  # 5 then 4, pooled


def test_the_simplest_rule_within_one_standard_error_of_the_best():
    a, b = np.array([.10, .12, .08, .10]), np.array([.10, .10, .09, .09])
    name, why = prescribe.simplest(dict(simple=a, other=b, clever=b - .00001), "over 4 seeds")
    gap = a - (b - .00001)
    assert 0 < gap.mean() <= gap.std(ddof=1) / 2 and name == "simple"
    assert "simplest within one standard error" in why and "over 4 seeds" in why
    assert "clever" in why
    assert prescribe.simplest(dict(simple=a + .05, clever=b), "x")[0] == "clever"
    # one unit: ties go to the simple one
    assert prescribe.simplest(dict(simple=[.2], clever=[.2]), "x")[0] == "simple"
    assert prescribe.simplest(dict(simple=[.3], clever=[.2]), "x")[0] == "clever"


def octaves(rows):
    return {(r["rule"], r["factor"]): r["octaves"] for r in rows}


def miss(C, y, law_, factor):
    """Each rule's error in octaves at `factor` times the largest budget of the points."""
    far = np.array([C[-1] * factor])
    return {name: float(abs(rule(C, y)(far) - sim.law(far, law_))[0])
            for name, rule in prescribe.RULES.items()}


@pytest.mark.parametrize("name", PAPER)
def test_printed_laws_are_predicted_once_the_bend_is_seen_and_not_before(name):
    numbers = PAPER[name]
    u = numbers[2]
    C = np.geomspace(10 ** (u - 1.5), 10 ** (u + 0.6), 40)
    seen = miss(C, sim.law(C, numbers), numbers, 2)
    assert seen["sigmoid"] < 0.05 and seen["sigmoid"] == min(seen.values())
    # cut before the bend: every rule that looks at n alone is off by more than an octave, the
    # sigmoid too
    C = np.geomspace(10 ** (u - 1.5), 10 ** (u - 0.1), 40)
    cut = miss(C, sim.law(C, numbers), numbers, 4)
    assert min(error for rule, error in cut.items() if rule != "constant M") > 1.5
    assert cut["constant M"] < 1.2
    assert fit.law_of_points(C, sim.law(C, numbers))["verdict"] == "undetermined"


def test_predictions_of_points_are_a_loop_over_what_was_seen():
    rng = np.random.default_rng(0)
    C, y = np.geomspace(1e5, 1e7, 25), np.sort(rng.integers(2, 8, 25)).astype(float)
    rows, name, why = prescribe.predict_points(C, y)
    got = octaves(rows)
    for factor in (2, 4, 8):
        errors = []
        for c, want in zip(C, y):
            past = [b for a, b in zip(C, y) if a <= c / factor * (1 + 1e-9)]
            if len(past) >= 3:
                errors.append(abs(past[-1] - want))
        assert got["last n", factor] == pytest.approx(np.mean(errors)) and len(errors) > 3
    assert set(got) == {(rule, factor) for rule in prescribe.RULES for factor in (2, 4, 8)}
    assert name in prescribe.RULES and why
    assert prescribe.predict_points(C[:4], y[:4])[:2] == ([], None)


def test_the_papers_own_switches_favour_constant_M():
    C = np.geomspace(5e4, 4.09e6, 60)
    at = np.searchsorted([.27e6, .86e6, 1.27e6, 2.69e6], C, side="right")
    y = np.log2(np.array([8, 32, 128, 256, 512])[at])
    rows, name, why = prescribe.predict_points(C, y)
    got = octaves(rows)
    assert (name, why) == ("constant M", "the best")
    for factor in (2, 4, 8):
        others = [got[rule, factor] for rule in prescribe.RULES if rule != "constant M"]
        assert got["constant M", factor] < 0.75 * min(others)
    # the paper's form, from what was known then
    assert got["sigmoid", 2] > 1 and got["sigmoid", 4] > 2


def test_the_sigmoid_wins_where_most_budgets_lie_past_the_bend():
    C = np.geomspace(10 ** 5.2, 1e9, 60)
    rows, name, _ = prescribe.predict_points(C, sim.law(C))
    got = octaves(rows)
    assert got["sigmoid", 2] < got["constant M", 2] / 4 and name != "constant M"


def test_constant_M_is_found_where_it_is_the_truth():
    def truth(B_p, n, C):  # the best n has 150 updates at every budget
        return sim.beside(n, C, np.log2(np.maximum(C, 1) / 32 / 150), 1.5)
    ns = (8, 16, 32, 64, 128, 256, 512)
    got = predicted(sim.sweep(0, truth, ns=ns, seeds=3, evals=40, run_sd=.002, drift=.001, inter=0))
    assert got["recommended"] == "constant M" and got["seeds"] == 3, got["why"]
    assert "did not see" in got["judged"]
    rows = {(r["rule"], r["factor"]): r for r in got["rows"]}
    assert set(rows) == {(rule, factor) for rule in prescribe.RULES for factor in (2, 4, 8)}
    for factor in (4, 8):
        M, last = rows["constant M", factor], rows["last n", factor]
        assert M["octaves"] < 0.6 * last["octaves"] and M["regret"] < last["regret"]
    assert got["regret"]["constant M"] == min(got["regret"].values()) < 0.01


def test_constant_n_is_recommended_where_one_n_is_best():
    got = predicted(sim.sweep(0, sim.constant(32, 2), ns=(8, 32, 128, 512), seeds=3, evals=40))
    assert got["recommended"] == "constant n"
    assert got["regret"]["constant n"] < 0.005 < got["regret"]["constant M"], got
    one = predicted(sim.sweep(0, sim.constant(32, 2), ns=(8, 32), seeds=1, evals=40))
    assert one["seeds"] == 1 and one["judged"] == "on the same runs, one seed"
    assert one["why"] == "the best" or "err together" in one["why"]
    few = predicted(sim.sweep(0, sim.paper(), ns=(8, 32), seeds=1, evals=3))
    assert few["recommended"] is None and few["rows"] == [] and "too few" in few["why"]


def test_a_rule_sees_nothing_of_the_budgets_it_is_judged_on():
    """The path at a cut is the same, whatever the runs did after it."""
    runs = sim.sweep(0, sim.paper(2), ns=(8, 32, 128), seeds=2, evals=40)
    seen = []
    for spoilt in (False, True):
        if spoilt:
            late = runs[0]["C"] > 1e6
            for run in runs:
                run["counts"] = np.where(late[:len(run["C"]), None], 0, run["counts"])
        grid, found = cells(runs, boot=0)
        seen.append(prescribe.early_paths(found, grid, 1e6, 2, 0.1))
    assert seen[0].shape[:2] == (3, 2) and (seen[0] == seen[1]).all()
    assert np.isfinite(seen[0]).any() and not np.array_equal(seen[0][:, 0], seen[0][:, 1])


# --------------------------------------------------------------------------------------------------
# What to run

def test_options_are_the_cells_within_delta_or_indistinguishable_from_the_best():
    runs = sim.sweep(1, sim.paper(2), ns=(8, 32, 128, 512, 2048), seeds=2, evals=30)
    grid, found = cells(runs)
    table = prescribe.options(found, grid, dict(CFG, delta=0.02))
    assert [o["C"] / grid[-1] for o in table] == pytest.approx([1, .5, .25, .125], rel=0.05)
    for o in table:
        j = int(np.abs(grid - o["C"]).argmin())
        Y = {c["n"]: c["Y"][j] for c in found}
        top = max(Y.values())
        gaps = [r["gap"] for r in o["rows"]]
        assert gaps == sorted(gaps) and gaps[0] == 0
        for r in o["rows"]:
            d = derive(dict(CFG, B_p=32, n=r["n"], C=int(grid[j])))
            assert (r["M"], r["lr"]) == (d["M"], d["lr"])
            assert r["gap"] == pytest.approx(top - Y[r["n"]]) and r["reward"] == Y[r["n"]]
            assert r["gap"] <= 0.02 or not r["told"]
            assert (r["half"] is None) == (r["gap"] == 0)
        close = {n for n, y in Y.items() if top - y <= 0.02}
        assert close <= {r["n"] for r in o["rows"]}
    assert any(len(o["rows"]) < 5 for o in table)


def test_planted_law_and_its_prescriptions(analysed):
    front, laws = analysed.front, analysed.laws
    assert laws["law"]["verdict"] == "law"
    asked, own, far = laws["prescriptions"]
    assert (asked["C"], own["C"], far["C"]) == (3e5, 2e6, 8e6)
    status = [p["status"] for p in (asked, own, far)]
    assert status == ["observed", "observed", "extrapolated"]
    assert own["n"] in own["near"] and asked["n"] in asked["near"] and 32 in own["near"]
    assert far["reward"] is far["interval"] is far["near"] is far["regret"] is None
    assert "extrapolated" in far["caveat"][0] and far["by"] == "the law"
    for p in (asked, own):
        assert p["interval"][0] < p["reward"] < p["interval"][1]
        assert 0 <= p["regret"] < 0.05 and p["caveat"] == []
    # both panels have one truth: noise alone separates them
    assert own["B_p"] == 8 and "smallest" in own["why_B_p"]
    # with one seed others would tell more, where there is anything to tell apart
    near = front["panels"]["B_p=8"]["near"]
    C = next(a["C"] for a in near if len(a["set"]) > 1)
    unsure = prescribe.prescribe(C, front, {n: p["envelope"] for n, p in laws["panels"].items()})
    assert "a second and third seed" in unsure["next"]
    for p in (asked, own):
        assert (p["next"] is None) == (p["near"] == [p["n"]])
    for p in (asked, own, far):
        words = shlex.split(p["command"])
        assert words[:2] == ["python", "train_grpo.py"]
        run = parse(words[2:])
        assert identity(run) == identity(dict(front["config"], B_p=p["B_p"], n=p["n"]))
        d = derive(run)
        assert (p["M"], p["lr"]) == (d["M"], d["lr"]) and run["C"] == p["C"]
        assert p["recipe"] == run["recipe"]
        assert p["lr"] == pytest.approx(1e-6 * math.sqrt(p["B_p"] * p["n"] / 1024))
    assert (analysed.folder / "frontier.png").stat().st_size > 50_000
    assert (analysed.folder / "law.png").stat().st_size > 20_000


def test_what_to_run_next_is_about_the_budget_that_was_asked(tmp_path):
    """At 1/8 of the budget the grid's edge, where the best n of the largest budget lies, is not
    what is unsure."""
    simulate(tmp_path, ns=(8, 32, 128), C=4_000_000, evals=40, truth=sim.paper(2), seeds=(0, 1, 2))
    front = analyse(tmp_path)
    near = front["panels"]["B_p=32"]["near"]
    C = next(a["C"] for a in near if a["set"] == [8, 32] and a["C"] < 1e6)
    laws = {name: fit.law_of_panel(panel, 0.01) for name, panel in front["panels"].items()}
    asked, own = (prescribe.prescribe(c, front, laws) for c in (C, 4e6))
    assert own["next"].startswith("add B_p = 32, n = 256")
    assert asked["near"] == [8, 32] and "256" not in asked["next"], asked["next"]
    assert "seeds of n = 8, 32" in asked["next"] or "8, 32 are too close" in asked["next"]


def test_a_budget_below_one_update_is_refused(analysed):
    assert "below one update" in bad(page, f"--runs={analysed.folder}", "--C=10")


def test_other_budgets_of_one_sweep(analysed):
    front = analysed.front
    laws = {name: fit.law_of_panel(panel, 0.01) for name, panel in front["panels"].items()}

    def at(C, front=front, laws=laws):
        return prescribe.prescribe(C, front, laws)
    below = at(front["panels"]["B_p=32"]["range"][0] / 4)
    assert below["status"] == "extrapolated" and "smallest budget observed" in below["by"]
    far = at(1e9)
    assert far["status"] == "extrapolated" and math.log2(far["n"]) % 1 == 0 and far["n"] <= 128
    capped = at(1e9, dict(front, config=dict(front["config"], B_max=128)))
    assert capped["B_p"] * capped["n"] <= 128
    assert any("capped by B_max" in c for c in capped["caveat"])
    tiny = at(24)  # B_p n <= C
    assert tiny["B_p"] * tiny["n"] <= 24
    assert any("capped by the budget" in c for c in tiny["caveat"])
    # without a law the rule that predicts best speaks; without predictions either, the last n* does
    none = {name: dict(law, verdict="undetermined") for name, law in laws.items()}
    rule = at(8e6, laws=none)
    assert any(f"`{name}`" in rule["by"] for name in prescribe.RULES)
    assert any("inconclusive" in c for c in rule["caveat"])
    mute = {}
    for name, p in front["panels"].items():
        mute[name] = dict(p, prediction=dict(rows=[], recommended=None, why=""))
    assert at(8e6, dict(front, panels=mute))["by"] == "the law"
    last = at(8e6, dict(front, panels=mute), none)
    assert last["n"] == front["panels"][last["panel"]]["envelope"]["n"][-1]
    assert "last observed" in last["by"]


def test_the_law_stands_and_the_rule_that_predicts_better_beside_it_with_its_record():
    front, laws = front_of("constant M")
    p = prescribe.prescribe(8e6, front, laws)
    assert p["by"] == "the law" and p["n"] == 64
    # n = 32 at 2M, in the mean over the rounded path, is 128 at 8M
    also, = p["also"]
    said = re.fullmatch(r"the rule `constant M` says n = (\d+), beyond anything tried "
                        r"\(0.3 octaves of error predicting 4 times ahead\)", also)
    assert 128 < int(said[1]) < 136, also
    also, = prescribe.prescribe(4e6, front, laws)["also"]
    assert re.search(r"says n = 6\d \(0.3 octaves of error predicting 2 times ahead\)", also), also
    # never more than twice the largest n tried, by whatever is asked
    p = prescribe.prescribe(8e9, *front_of("constant M", law=2 ** 12))
    assert p["n"] == 128 and any("twice the largest tried" in c for c in p["caveat"])
    p = prescribe.prescribe(8e9, *front_of("constant M", verdict="undetermined"))
    assert p["n"] == 128 and p["also"] == [] and "`constant M`" in p["by"]
    assert any("twice the largest tried" in c for c in p["caveat"])


def front_of(rule, verdict="law", law=64):
    """A front with one panel, n up to 64, whose n* went with C up to 2M; a law that ends at `law`.
    """
    C = np.geomspace(1e5, 2e6, 30)
    n = 2 ** np.round(np.log2(C / 2e6 * 32))
    rows = [dict(rule=name, factor=f, octaves=0.3, regret=0.01)
            for name in prescribe.RULES for f in (2, 4, 8)]
    panel = dict(B_p=32, ns=[2, 4, 8, 16, 32, 64], seeds=[0], switches=[], runs_used=[],
                 per_rollout={"32": 1.0}, envelope=dict(C=list(C), n=list(n), B_p=[32] * 30,
                                                    carried=[False] * 30),
                 prediction=dict(rows=rows, recommended=rule, why="the best"))
    path = dict(C=C * 5, log2_n=np.full(30, math.log2(law)))
    entry = dict(verdict=verdict, estimator="envelope", path=path, constant=8)
    front = dict(panels={"B_p=32": panel}, config=CFG, unit="rollouts", label="")
    return front, {"B_p=32": entry}


# --------------------------------------------------------------------------------------------------
# Sweeps with less in them

def test_one_n_is_no_law(tmp_path):
    simulate(tmp_path, ns=(8,), evals=10)
    front, laws = analyse(tmp_path), law_of(tmp_path)
    panel = front["panels"]["B_p=32"]
    assert panel["switches"] == [] and panel["edge"] is None
    assert len(front["runs_used"]) == 1  # a single run
    assert laws["law"]["verdict"] == "undetermined" and "one n only" in laws["law"]["reason"]
    assert laws["law"]["L"]["value"] is None and laws["prescriptions"][1]["n"] == 8
    for view in ("joint", "best_worst"):
        assert analyse(tmp_path, view=view)["view"] == view
    assert "nothing to vary" in bad(views, f"--runs={tmp_path}", "--view=sensitivity")


def test_small_n_always_on_top_is_flat_with_an_edge(tmp_path):
    def truth(B_p, n, C):
        return 0.3 + 0.2 * (C > 0) * (1 - 0.15 * math.log2(n / 4))
    simulate(tmp_path, ns=(4, 8, 32), evals=12, truth=truth)
    front, laws = analyse(tmp_path), law_of(tmp_path)
    edge = front["panels"]["B_p=32"]["edge"]
    assert (edge["n"], edge["side"], edge["add"]) == (4, "smallest", dict(B_p=32, n=2))
    assert laws["law"]["verdict"] == "flat" and laws["law"]["plateau"]["value"] is None
    far = laws["prescriptions"][1]
    assert far["status"] == "extrapolated" and far["n"] == 4
    assert any("add B_p = 32, n = 2" in c for c in far["caveat"])
    assert far["by"] == "the verdict flat: one n at every budget"


def test_largest_n_on_top_is_an_edge_and_no_plateau(tmp_path):
    simulate(tmp_path, ns=(2, 4, 8, 16), evals=25)
    front, laws = analyse(tmp_path), law_of(tmp_path)
    edge = front["panels"]["B_p=32"]["edge"]
    assert edge["add"] == dict(B_p=32, n=32) and edge["side"] == "largest"
    # n* may well rise; how far is not determined by a grid that ends there
    plateau = laws["law"]["plateau"]
    assert plateau["value"] is None and plateau["hi"] is None


def test_runs_that_end_early_are_carried_on_and_said(tmp_path, capsys):
    """n = 4 is far better and diverges at 600k of 2M: no switch to n = 64, and its text says why
    the line goes on."""
    def truth(B_p, n, C):
        return 0.3 + 0.3 * (C > 0) * (n == 4) + 1e-8 * C
    logs = simulate(tmp_path, ns=(4, 64), evals=20, truth=truth)
    edit(logs[32, 4, 0], ends_at(6e5, "diverged"))
    front = analyse(tmp_path)
    panel = front["panels"]["B_p=32"]
    assert panel["switches"] == [] and set(panel["envelope"]["n"]) == {4}
    said = capsys.readouterr().out
    assert "to 2M the best so far of n = 4 stands: its runs end there" in said
    assert any("diverged" in note for note in front["notes"]) and front["runs_unfinished"] == []
    # they share a factor of 6 of budgets, so n = 4 and 64 are compared there
    laws = law_of(tmp_path)
    assert laws["law"]["verdict"] == "flat" and laws["law"]["constant"] == 4
    assert "one n only" not in laws["law"]["reason"] and laws["law"]["flags"] == []
    # the page agrees with the frontier: n = 4 is the best at 2M, for what its runs spent
    row = front["options"][0]["rows"][0]
    assert (row["n"], row["carried"], row["gap"]) == (4, True, 0)
    assert row["M"] == 500_096 // 128 and len(front["options"][0]["rows"]) == 1
    own = laws["prescriptions"][0]
    assert own["n"] == 4 and own["caveat"][0].startswith("the runs of n = 4 end near C = "), own
    page = capsys.readouterr().out
    assert "its runs ended before" in page and own["caveat"][0] in page
    # a cell that pruning ended is not in the table: nobody knows what it would be
    edit(logs[32, 4, 0], ends_at(6e5, "pruned"))
    rows = analyse(tmp_path)["options"][0]["rows"]
    assert [(r["n"], r["carried"]) for r in rows] == [(64, False)]
    edit(logs[32, 4, 0], ends_at(6e5, "diverged"))
    # one run of two diverged
    assert analyse(tmp_path, view="joint")["panels"]["joint"]["stable_B_p"] is None


def test_an_n_of_three_that_ends_early_is_left_out_of_the_law_and_named(tmp_path):
    logs = simulate(tmp_path, ns=(4, 16, 64), evals=20)
    edit(logs[32, 16, 0], ends_at(1e6))
    analyse(tmp_path)
    flags = law_of(tmp_path)["law"]["flags"]
    assert any("n = 16 left out of the law: their runs end early" in f for f in flags), flags


# --------------------------------------------------------------------------------------------------
# Points

def staircase(folder, numbers, C, octaves=0.0):
    """A CSV of n*(C) that follows a printed law; octaves: rounded to such a grid of log2 n, as a
    sweep would see it."""
    y = sim.law(np.asarray(C), numbers)
    y = np.round(y / octaves) * octaves if octaves else y
    with open(folder / "points.csv", "w", newline="") as file:
        csv.writer(file).writerows([("C", "n"), *zip(C, 2 ** y)])
    return folder / "points.csv"


def of_points(file, out, *words):
    page.main([f"--points={file}", f"--out={out}", *words])
    return json.loads((out / "law.json").read_text())


def test_points_and_a_budget_make_a_command(tmp_path):
    file = staircase(tmp_path, PAPER["easy"], np.geomspace(1e5, 1e7, 40))
    # no folder with defaults of its own
    got = of_points(file, tmp_path, f"--data={tmp_path}", "--B_p=16", "--C=1e6")
    asked, own, far = got["prescriptions"]
    assert asked["n"] == 2 ** round(float(sim.law(1e6))) and own["n"] == 512
    assert asked["by"] == own["by"] == "the law"
    status = [p["status"] for p in (asked, own, far)]
    assert status == ["observed", "observed", "extrapolated"] and 512 <= far["n"] <= 1024
    words = parse(shlex.split(asked["command"])[2:])
    assert words["B_p"] == 16 and asked["next"] is None and asked["near"] is None
    assert asked["lr"] == derive(words)["lr"] and asked["recipe"] == words["recipe"]
    assert asked["reward"] is None and got["estimator"] == "points"
    rule = got["panels"]["B_p=16"]["prediction"]["recommended"]
    assert rule in prescribe.RULES
    assert (tmp_path / "law.png").stat().st_size > 10_000
    # points do not say what a rollout spent
    assert of_points(file, tmp_path, "--unit=tokens")["prescriptions"] == []


def test_points_have_no_model(tmp_path, capsys):
    """So no lr, no recipe, no cap by the embedded model's B_max, and no command; with the data
    named they have them."""
    file = staircase(tmp_path, PAPER["easy"], np.geomspace(1e5, 1e7, 40))
    got = of_points(file, tmp_path, "--C=3e6")
    said = capsys.readouterr().out
    for p in got["prescriptions"]:
        assert p["lr"] is p["recipe"] is p["command"] is None
        assert not any("B_max" in c for c in p["caveat"]), p
    assert [p["n"] for p in got["prescriptions"][:2]] == [512, 512]
    assert "lr" not in said.replace("an lr and a command", "") and "train_grpo" not in said
    assert "name --model or --data for an lr and a command" in said
    got = of_points(file, tmp_path, "--C=3e6", f"--data={ROOT / 'data/arithmetic'}")
    B_max = json.loads((ROOT / "data/arithmetic/defaults.json").read_text())["B_max"]
    for p in got["prescriptions"]:
        assert p["lr"] > 0 and p["recipe"] and p["command"] and p["B_p"] * p["n"] <= B_max
        assert any("capped by B_max" in c for c in p["caveat"])
    assert "capped by B_max" in capsys.readouterr().out
    got = of_points(file, tmp_path, "--model=mine/base", f"--data={tmp_path}")
    assert all("--model=mine/base" in p["command"] for p in got["prescriptions"])


def test_points_without_a_law_follow_the_rule_with_a_caution(tmp_path):
    """Cut before the bend, as a grid of powers of 2 sees it or not."""
    for octaves in (0.0, 1.0):
        file = staircase(tmp_path, PAPER["easy"], np.geomspace(1e5, 10 ** 5.75, 30), octaves)
        got = of_points(file, tmp_path)
        assert got["law"]["verdict"] == "undetermined"
        far = got["prescriptions"][-1]
        assert far["status"] == "extrapolated" and math.log2(far["n"]) % 1 == 0
        assert any("the verdict is inconclusive" in c for c in far["caveat"])


def test_the_papers_switches_prescribe_nothing_far_beyond_what_was_tried(tmp_path, capsys):
    """Their law has a plateau near 552 and is the verdict; `constant M` predicted better, so beyond
    the points it goes before the law. Its n at four times the budget is more than twice the
    largest that was tried."""
    got = of_points(ROOT / "results/paper/easy_switches.csv", tmp_path)
    assert got["law"]["verdict"] == "law" and 400 < got["law"]["plateau"]["value"] < 600
    own, far = got["prescriptions"]
    assert (own["by"], own["n"], own["also"]) == ("the law", 512, [])
    (panel,), said = got["panels"].values(), capsys.readouterr().out
    rule = panel["prediction"]["recommended"]
    assert f"recommended: {rule}, " in said and far["by"].startswith(f"the rule `{rule}`, which")
    assert far["n"] == 2 * 512
    assert far["also"] == [f"the law says n = {got['law']['plateau']['value']:.0f}"]
    assert far["also"][0] in said and "that is beyond anything tried" in said
    assert "\n\n\n" not in said


def test_bad_points_are_named(tmp_path):
    csvs = {
        "a.csv": ("rollouts,n\n1,2\n", "expected the columns C and n, found rollouts, n"),
        "b.csv": ("C,n\n", "5 or more"), "c.csv": ("C,n\n1e5,8\nlots,16\n", "line 3"),
        "d.csv": ("C,n\n1e5,8\n1e6,16\n1e6,17\n2e6,32\n", "3 different budgets"),
        "e.csv": ("C,n\n1e5,8\n1e6\n", "line 3"), "f.csv": ("C,n\n1e5,8\n-1,4\n", "line 3"),
        "h.csv": ("C,n\n1e5,8\n1e6,nan\n", "line 3"), "i.csv": ("C,n\n1e5,0.5\n", "line 2")}
    for name, (text, message) in csvs.items():
        (tmp_path / name).write_text(text)
        line = bad(page, f"--points={tmp_path / name}")
        assert message in line and name in line
    assert "g.csv" in refused("fit_sigmoid.py", f"--points={tmp_path / 'g.csv'}")
    assert not [f for name in ("*.png", "law.json", ".*part*") for f in tmp_path.rglob(name)]


# --------------------------------------------------------------------------------------------------
# The script and its page

def test_a_folder_without_a_frontier_says_what_to_run(tmp_path):
    assert "no frontier.json" in refused("fit_sigmoid.py", f"--runs={tmp_path}")
    line = bad(page, f"--runs={tmp_path}", "--view=joint")
    assert "no frontier_joint.json there, run frontier.py" in line
    line = bad(page, f"--runs={tmp_path}", "--view=pass1")
    assert "a law is fitted to fixed_Bp, joint or fixed_B" in line
    assert list(tmp_path.iterdir()) == []


def test_a_frontier_of_an_older_version_is_refused(tmp_path):
    old = dict(panels={"B_p=32": dict(envelope={}, switches=[])})
    (tmp_path / "frontier.json").write_text(json.dumps(old))
    assert "not from this version" in bad(page, f"--runs={tmp_path}")


def test_laws_of_the_other_views(analysed, tmp_path):
    got = {}
    for view in ("joint", "fixed_B"):
        page.main([f"--runs={analysed.folder}", f"--view={view}", f"--out={tmp_path}"])
        got[view] = json.loads((tmp_path / f"law_{view}.json").read_text())
        assert (tmp_path / f"law_{view}.png").stat().st_size > 20_000
        verdicts = {p["envelope"]["verdict"] for p in got[view]["panels"].values()}
        assert verdicts <= {"law", "flat", "undetermined"}
    own, far = got["joint"]["prescriptions"]
    assert own["status"] == "observed" and far["status"] == "extrapolated" and own["B_p"] in (8, 32)
    front = json.loads((analysed.folder / "frontier_joint.json").read_text())
    pair = front["panels"]["joint"]["segments"][-1]
    assert (own["B_p"], own["n"]) == (pair["B_p"], pair["n"])
    assert parse(shlex.split(own["command"])[2:])["n"] == own["n"]
    assert got["fixed_B"]["prescriptions"] == []  # updates are no budget


def test_the_page_and_the_report(analysed):
    page, report = analysed.page, analysed.report
    s = analysed.front["panels"]["B_p=8"]["switches"][-1]
    assert f"{s['from']:>4} -> {s['to']}" in report and f"{s['reward']:.3f}" in report
    assert "10 runs used, 0 dropped" in report
    for text in (page, report):
        assert "extrapolated" in text and "python train_grpo.py" in text
        assert "Traceback" not in text and "nan" not in re.findall(r"[a-z]+", text)
    assert "plateau n* = " in report
    assert "predicting n* from budgets up to C/2, C/4, C/8" in report and "recommended: " in report
    paper = "by the paper's way (record-breaking points, maxima of noisy evaluations, no interval)"
    assert paper in report and paper not in page
    assert "bias of choosing the best: removed" in report
    assert "90% over validation problems and rollouts; one seed" in report
    # the page: the verdict, the table, what to run, the figures
    assert page.startswith("Does the best n rise with the budget?\n  B_p=8: n* rises with the bud")
    assert "As good as the best at C = 2M" in page and "report.txt" in page
    for C in ("300k", "2M"):
        assert len(re.findall(f"^C = {C} rollouts", page, re.M)) == 1
    assert re.search(r"^ +8M\*  .* not run  ", page, re.M) and "\nC = 8M rollouts" in report
    assert len(page.splitlines()) < 40


def test_the_page_of_a_small_sweep_is_one_screen_and_all_else_is_in_the_report(tmp_path, capsys):
    words = f"--runs={ROOT / 'results/grid_easy'}", f"--out={tmp_path}", "--boot=100"
    views.main([*words, "--view=all", "--verbose=true"])
    viewed = (tmp_path / "report.txt").read_text()
    assert viewed.count("runs used, 0 dropped") == 8  # a part for each view
    assert viewed in capsys.readouterr().out
    page.main([*words])
    printed = capsys.readouterr().out
    lines = [line for line in printed.splitlines() if str(tmp_path) not in line]
    assert len(printed.splitlines()) <= 36 and max(map(len, lines)) <= 180, printed
    assert printed.count("python train_grpo.py") == 1
    assert not re.search("undetermined|told|has right", printed)
    report = (tmp_path / "report.txt").read_text()
    assert report.startswith(viewed) and report.count(page.LAW_MARK) == 1
    # again, now with all of it printed: replaced, not repeated
    page.main([*words, "--verbose=true"])
    said = capsys.readouterr().out
    law_part = report.split(page.LAW_MARK)[1]
    assert law_part in said and "predicting n* from budgets" in said
    assert (tmp_path / "report.txt").read_text() == report


def test_the_prescription_is_for_the_sweeps_own_model(tmp_path):
    """Its config is that of the runs, not that of the command line or of the embedded model."""
    simulate(tmp_path, ns=(4, 16), evals=10, words=("--model=mine/base", "--lr_base=3e-6"))
    analyse(tmp_path)
    for p in law_of(tmp_path)["prescriptions"]:
        run = parse(shlex.split(p["command"])[2:])
        assert (run["model"], run["lr_base"]) == ("mine/base", 3e-6)
        assert run["data"] != config["data"] and p["lr"] == derive(run)["lr"]


# --------------------------------------------------------------------------------------------------
# What the figure and the caveats say

def test_a_budget_within_the_warm_up_is_named(analysed):
    front, laws = analysed.front, {k: v["envelope"] for k, v in analysed.laws["panels"].items()}
    for M, named in ((9, True), (10, True), (11, False)):
        p = prescribe.prescribe(M * 8 * 4, front, laws)
        assert p["M"] == M and (p["B_p"], p["n"]) == (8, 4)
        assert any("all warm-up" in c for c in p["caveat"]) == named
        assert p["caveat"][0].startswith(f"M = {M} updates are all warm-up" if named else "extrap")


def test_the_page_and_the_figure_say_the_same(analysed):
    """The title of a panel of law.png is the sentence of the page."""
    import matplotlib.pyplot as plt
    for name, panel in analysed.front["panels"].items():
        law = dict(analysed.laws["panels"][name]["envelope"], verdict="undetermined")
        law["reason"] = "of the verdict: with its own words; and more"
        fig, ax = plt.subplots()
        fit.draw_panel(ax, name, panel, law, None, [], "rollouts", 1)
        title = " ".join(ax.get_title().split())
        assert fit.in_a_sentence(law) in title and "its own words" not in title
        plt.close(fig)


def test_the_record_of_the_rules_is_drawn(tmp_path, monkeypatch):
    """Points alone: a bar for each rule and factor, as long as its error."""
    import matplotlib.pyplot as plt
    path = ROOT / "results/paper/easy_36.csv"
    monkeypatch.setattr(plt, "close", lambda fig: None)
    page.main([f"--points={path}", "--B_p=32", f"--out={tmp_path}"])
    ax = plt.gcf().axes[1]
    rows = page.read_points(path, dict(config, B_p=32))["panels"]["B_p=32"]["prediction"]["rows"]
    assert sorted(round(bar.get_width(), 6) for bar in ax.patches) == sorted(
        round(r["octaves"], 6) for r in rows)
    assert [tick.get_text() for tick in ax.get_yticklabels()] == list(prescribe.RULES)
    monkeypatch.undo()
    plt.close("all")


def test_the_page_of_docs_has_the_numbers_of_the_rules():
    """The table of docs/analysis.md, from the two files of results/paper."""
    text = (ROOT / "docs/analysis.md").read_text()
    found = {}
    for name in ("easy_36", "easy_switches"):
        C, n = np.loadtxt(ROOT / f"results/paper/{name}.csv", delimiter=",", skiprows=1).T
        for r in prescribe.predict_points(C, np.log2(n))[0]:
            found.setdefault(r["rule"], []).append(f"{r['octaves']:.2f}")
    for rule in ("constant M", "log-linear", "last n", "sigmoid", "constant n"):
        line = re.search(rf"^\| {rule} \|(.*)\|$", text, re.M)[1].replace("*", "")
        assert [x.strip() for x in line.split("|")] == found[rule], rule


def test_of_equal_B_p_the_smallest_stable_one_is_taken():
    """Nine runs of ten that fell make a B_p unstable; where all fell, the smallest stands."""
    rows = [dict(B_p=b, n=16, told=False) for b in (8, 32, 128)]
    front = dict(panels={f"B_p={b}": dict(B_p=b) for b in (8, 32, 128)},
                 options=[dict(C=1e6, rows=rows)])
    assert prescribe.choose_panel(1e6, front)[0] == "B_p=8"
    fell = dict(front, stability={"8": [9, 10], "32": [1, 10], "128": [0, 10]})
    name, why = prescribe.choose_panel(1e6, fell)
    assert name == "B_p=32" and "the smallest stable one of 8, 32, 128" in why
    every = dict(front, stability={"8": [9, 10], "32": [2, 10], "128": [2, 10]})
    assert prescribe.choose_panel(1e6, every)[0] == "B_p=8"
