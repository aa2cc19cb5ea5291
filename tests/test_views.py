"""views.py: every view on planted truth, and what its text and figure say."""
import itertools
import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import frontier
import noise
import simulate as sim
from core import sweep
import views
from config import BadInput, read_log
from simulate import add_passes, analyse, bad, crossing, edit, law_of, simulate, truth
from simulate import without_counts

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def analysed(tmp_path_factory):
    return sim.analysed_sweep(tmp_path_factory)


# --------------------------------------------------------------------------------------------------
# The learning rate as a dimension

def over_lrs(folder, best, lrs=(5e-7, 1e-6, 2e-6, 4e-6)):
    """Sweeps at several lr_base in one folder: one loses 4 points an octave squared from best[n].
    """
    for lr in lrs:
        def planted(B_p, n, C):
            return truth(B_p, n, C) - 0.04 * math.log2(lr / best[n]) ** 2 * (C > 0)
        simulate(folder, ns=tuple(best), seeds=(0, 1), evals=30, P=200, truth=planted,
                 words=(f"--lr_base={lr}",))


def test_a_sweep_over_lrs_shows_one_rule_and_each_n_at_its_best(tmp_path):
    best = {4: 1e-6, 8: 1e-6, 32: 2e-6}  # so the square root rule is too low for n = 32
    over_lrs(tmp_path, best)
    front = analyse(tmp_path, view="lr")
    assert front["rule"] == 1e-6 and [r["best"] for r in front["rows"]] == list(best.values())
    assert not any(r["edge"] for r in front["rows"]) and len(front["runs_used"]) == 24
    assert front["slope"] > 0.6 and front["slope_interval"][0] <= front["slope"]
    # what the best lr is worth grows to n = 32's 4 points as n = 32 comes to lead
    worth = front["worth"]
    assert abs(worth["reward"][-1] - 0.04) < worth["half"][-1] + 0.01 and worth["half"][-1] < 0.03
    rule, own = front["panels"].values()
    start = {name: next((s["C"] for s in p["switches"] if s["to"] == 32), math.inf)
             for name, p in (("rule", rule), ("own", own))}
    assert start["own"] < start["rule"]
    text = "\n".join(views.say(front))
    assert "best lr_base 2e-06" in text and "0.5 is the square root rule" in text
    # the other views are those of a sweep with this one lr
    plain = analyse(tmp_path)
    assert len(plain["runs_used"]) == 6 and plain["config"]["lr_base"] == 1e-6
    assert any("lr_base = 1e-06, of 5e-07, 1e-06, 2e-06, 4e-06" in note for note in plain["notes"])
    alone = tmp_path / "alone"
    for path in plain["runs_used"]:
        shutil.copytree(tmp_path / path["run"], alone / path["run"])
    assert analyse(alone)["panels"] == plain["panels"]


def test_planned_cells_and_other_lrs_of_a_sweep_over_lrs(tmp_path):
    best = {4: 1e-6, 32: 2e-6}
    over_lrs(tmp_path, best, lrs=(1e-6, 2e-6))
    over_lrs(tmp_path, best, lrs=(8e-6,))  # tried once, not asked any more
    words = ["--lrs=1e-6 2e-6 4e-6", "--ns=4 32", "--bps=32", "--seeds=0 1", "--C=2000000",
             "--B_max=0", f"--data={tmp_path}", f"--runs={tmp_path}", "--samples=4",
             f"--eval_every={2_000_000 // 30}"]
    sweep.begin("easy", sweep.arms("", words))
    front = analyse(tmp_path, view="lr")
    assert {(m["lr"], m["n"]) for m in front["missing"]} == {(4e-6, 4), (4e-6, 32)}
    assert len(front["runs_dropped"]) == 4
    assert all("lr_base=8e-06 for 1e-06 or 2e-06 or 4e-06" in d["why"]
               for d in front["runs_dropped"])


def test_one_lr_is_not_compared(analysed):
    assert "has one lr_base; run several" in bad(views, f"--runs={analysed.folder}", "--view=lr")


# --------------------------------------------------------------------------------------------------
# n against M

def test_planted_switches_are_found_with_intervals(analysed):
    front = analysed.front
    assert set(front["panels"]) == {"B_p=8", "B_p=32"}
    assert len(front["runs_used"]) == 10 and front["runs_dropped"] == []
    for panel in front["panels"].values():
        up = [s for s in panel["switches"] if s["to"] > s["from"]]
        assert up and up[-1]["to"] == 32 and all(s["why"] == "crossing" for s in up)
        for s in up:
            want = crossing(truth, panel["B_p"], s["from"], s["to"])
            assert abs(math.log10(s["C"] / want)) < 0.3, (s, want)
            assert s["reward"] == pytest.approx(float(truth(32, s["to"], want)), abs=0.06)
            assert (s["lo"] or 0) < s["C"] < (s["hi"] or math.inf)
            assert s["M"] == pytest.approx(s["C"] / panel["B_p"] / s["to"])
        assert any(s["lo"] and s["hi"] and s["hi"] / s["lo"] < 8 for s in up)
        assert panel["edge"] is None  # n = 64 was run and is not on top
        pairs = {(s["from"], s["to"]) for s in panel["crossings"]}
        assert {(s["from"], s["to"]) for s in up} <= pairs and all(a < b for a, b in pairs)


def test_the_json_holds_what_is_promised(analysed):
    front, laws = analysed.front, analysed.laws
    assert {"runs_used", "runs_dropped", "missing", "notes", "covers", "options", "config",
            "budget"} <= set(front)
    for r in front["runs_used"]:
        assert r["lo"] < r["gain"] < r["hi"] and r["evals"] == 81 and r["status"] == "budget"
        assert 2_000_000 - 32 * 64 < r["C"] <= 2_000_000
    panel = front["panels"]["B_p=32"]
    assert {"points", "curves", "switches", "runs_used", "runs_dropped", "records", "envelope",
            "last", "near", "edge", "range", "crossings", "surface", "prediction",
            "smoothness"} <= set(panel)
    assert [c["n"] for c in panel["curves"]] == [4, 8, 16, 32, 64]
    assert panel["range"][1] == 2_000_000 and panel["smoothness"] in noise.LAMBDAS
    for s in panel["switches"]:
        assert {"C", "from", "to", "reward", "lo", "hi", "M"} <= set(s)
    for c in panel["curves"]:
        assert {"reached", "seeds", "end", "best_so_far"} <= set(c)
        assert (np.diff(c["reward"]) >= 0).all()
        assert (np.array(c["lo"]) <= c["reward"]).mean() > 0.9
        assert {len(c[key]) for key in ("lo", "hi", "last", "reward", "C")} == {len(c["C"])}
        assert c["end"] <= c["best_so_far"]  # the last evaluation and the best one
    # a run's points are its evaluations, averaged in bins of log C
    assert {p["n"] for p in panel["points"]} == {4, 8, 16, 32, 64}
    assert 5 * 30 < len(panel["points"]) <= 5 * 81
    env = panel["envelope"]
    top = np.array([np.interp(env["C"], c["C"], c["reward"]) for c in panel["curves"]])
    assert np.array(env["highest"]) == pytest.approx(top.max(0), abs=1e-6)
    assert env["n"] == [panel["ns"][i] for i in top.argmax(0)] and not any(env["carried"])
    assert (np.array(env["lo"]) < env["reward"]).all()
    assert (np.array(env["hi"]) > env["reward"]).all()
    # chosen on one half of the samples, scored on the other
    assert np.mean(np.array(env["highest"]) - env["reward"]) > 0
    assert "half of the samples" in panel["curse"] and "seeds" not in panel["curse"]
    C = np.array(env["C"])
    for a in panel["near"]:
        assert a["set"] and set(a["set"]) <= set(panel["ns"])
        assert env["n"][int(np.argmin(np.abs(C - a["C"])))] in a["set"]
    assert "one seed" in front["covers"] and front["budget"] == 2_000_000
    records = panel["records"]
    assert records["above"] > 0 and len(records["frontier"]) == len(env["C"])
    # the law through the paper's points, for the figure
    assert len(records["law"]["C"]) == len(records["law"]["n"]) == 100
    assert records["law"]["n"] == sorted(records["law"]["n"])
    assert {"L", "k", "log10_C0", "b", "plateau", "flags", "verdict"} <= set(laws["law"])
    assert set(laws["panels"]) == set(front["panels"])
    assert set(laws["panels"]["B_p=8"]) == {"envelope", "records", "prediction"}


def test_more_seeds_are_pooled_and_the_intervals_say_so(tmp_path):
    simulate(tmp_path, ns=(4, 32), seeds=(0, 1, 2), run_sd=0.02, evals=12)
    front = analyse(tmp_path, "--metric=worst@4", "--unit=tokens")
    panel = front["panels"]["B_p=32"]
    assert "seeds, 3 for each cell" in front["covers"]
    assert panel["curves"][0]["seeds"] == [0, 1, 2]
    assert front["unit"] == "tokens" and panel["range"][1] == pytest.approx(2e8, rel=1e-3)
    assert panel["curse"] == "removed: chosen on the other seeds, scored on one"
    # tokens become rollouts
    M = law_of(tmp_path)["prescriptions"][0]["M"]
    assert M == 2_000_000 // (32 * panel["envelope"]["n"][-1])
    start = [p["reward"] for p in panel["points"] if p["C"] == 0]
    plain = frontier.read_runs(tmp_path, "avg@4", "tokens")[0][0]["reward"][0]
    assert len(start) == 6 and max(start) < 0.2 < plain


def test_the_seeds_noise_widens_the_intervals(tmp_path):
    wide = {}
    for run_sd in (0, 0.03):
        simulate(tmp_path / str(run_sd), ns=(4, 32), seeds=(0, 1, 2), run_sd=run_sd, evals=12)
        env = analyse(tmp_path / str(run_sd))["panels"]["B_p=32"]["envelope"]
        wide[run_sd] = np.median(np.subtract(env["hi"], env["lo"]))
    assert wide[0.03] > 1.3 * wide[0]


def test_a_missing_seed_is_noted_and_the_curse_is_not_blamed_on_one_seed(tmp_path):
    logs = simulate(tmp_path, ns=(4, 16, 64), seeds=(0, 1, 2), run_sd=.01, evals=16)
    shutil.rmtree(logs[32, 16, 1].parent)
    front = analyse(tmp_path)
    panel = front["panels"]["B_p=32"]
    assert "B_p=32 n=16: 2 of 3 seeds" in front["notes"]
    assert "seeds, 2 to 3 for each cell" in front["covers"]
    assert [len(c["seeds"]) for c in panel["curves"]] == [3, 2, 3]
    assert "one seed" not in panel["curse"]
    shutil.rmtree(logs[32, 16, 2].parent)
    # one cell with one seed among others with three: 4 samples have halves for avg@4
    panel = analyse(tmp_path)["panels"]["B_p=32"]
    assert [len(c["seeds"]) for c in panel["curves"]] == [3, 1, 3]
    assert panel["curse"].startswith("removed"), panel["curse"]


def test_a_budget_that_some_batches_do_not_divide_leaves_no_n_alone_at_the_end(tmp_path):
    simulate(tmp_path, ns=(4, 24, 96), C=1_000_000, evals=10)
    panel = analyse(tmp_path, "--boot=0")["panels"]["B_p=32"]
    assert [c["reached"] for c in panel["curves"]] == [[100_000, 1_000_000]] * 3
    assert not any(panel["envelope"]["carried"])


def test_evaluations_without_counts_use_the_stored_field(tmp_path):
    logs = simulate(tmp_path, ns=(4, 32), evals=10)
    want = analyse(tmp_path)["panels"]["B_p=32"]["curves"]
    for log in logs.values():
        edit(log, lambda r: {key: v for key, v in r.items() if key != "correct"})
    # nothing says of how many rollouts the field is the mean
    line = bad(views, f"--runs={tmp_path}")
    assert "neither counts per problem nor `problems`" in line and "Bp32_n" in line
    for log in logs.values():
        edit(log, without_counts)
    front = analyse(tmp_path)
    panel = front["panels"]["B_p=32"]
    assert "binomial" in front["covers"]
    assert any("no counts per problem" in note for note in front["notes"])
    assert len(panel["points"]) == 22 and all(r["gain"] is None for r in front["runs_used"])
    for a, b in zip(panel["curves"], want):
        assert a["reward"] == pytest.approx(b["reward"], abs=1e-4)
        # 1200 rollouts, their variance without that of the problems
        wide = [np.median(np.subtract(c["hi"], c["lo"])) for c in (a, b)]
        assert wide[0] < wide[1]
    assert "best@4" in bad(views, f"--runs={tmp_path}", "--metric=best@4")
    for log in logs.values():
        edit(log, lambda r: dict(r, biased=["avg@4"], source="veRL")
             if r["type"] == "header" else r)
    front = analyse(tmp_path)
    assert "biased" in front["covers"] and any("veRL" in note for note in front["notes"])


# --------------------------------------------------------------------------------------------------
# The other views

def test_every_view_writes_its_json_and_figure(analysed):
    folder, front, got = analysed.folder, analysed.front, {}
    for view in ("fixed_B", "joint", "best_worst", "sensitivity", "pass1"):
        assert (folder / f"frontier_{view}.png").stat().st_size > 15_000, view
        got[view] = json.loads((folder / f"frontier_{view}.json").read_text())
        assert {"runs_used", "runs_dropped", "missing", "covers", "notes"} <= set(got[view])
        assert got[view]["view"] == view
    joint = got["joint"]["panels"]["joint"]
    env = joint["envelope"]
    both = [front["panels"][name]["envelope"] for name in ("B_p=8", "B_p=32")]
    top = np.max([np.interp(env["C"], e["C"], e["highest"], left=0) for e in both], 0)
    assert np.array(env["highest"]) == pytest.approx(top, abs=2e-3)
    assert {s["B_p"] for s in joint["segments"]} <= {8, 32}
    assert all(s["B"] == s["B_p"] * s["n"] for s in joint["segments"])
    assert joint["B_star"] == [b * n for b, n in zip(env["B_p"], env["n"])]
    assert joint["stable_B_p"] == 8 and joint["segments"][0]["C"] == env["C"][0]
    fixed = got["fixed_B"]["panels"]
    # the B that both B_p have
    assert fixed and all(p["B"] in (128, 256, 512) for p in fixed.values())
    for p in fixed.values():
        env = p["envelope"]
        assert all(b * n <= p["B"] for b, n in zip(env["B_p"], env["n"]))
        assert p["range"][1] <= 2_000_000 / p["B"] * 1.01
        assert all(s["M"] == s["C"] for s in p["switches"])
    bars = got["best_worst"]["bars"]
    assert len(bars) == 6 and {b["metric"] for b in bars} == {"avg@4", "best@4", "worst@4"}
    assert all(b["n"] in b["near"] for b in bars)
    for B_p in (8, 32):
        of = {b["metric"]: b["reward"] for b in bars if b["B_p"] == B_p}
        worst, avg, best = (of[f"{m}@4"] for m in ("worst", "avg", "best"))
        assert worst < avg < best
    lines = got["sensitivity"]["lines"]
    assert [line["over"] for line in lines] == ["n"] * 2 + ["B_p"] * 5
    assert all(line["by_noise"] > 0 for line in lines)
    assert all(line["spread"] == pytest.approx(np.ptp(line["reward"])) for line in lines)
    over_n, over_B_p = ([line["spread"] for line in lines if line["over"] == over]
                        for over in ("n", "B_p"))
    # the truth depends on n and not on B_p
    assert min(over_n) > 0.04 and np.mean(over_n) > 2 * np.mean(over_B_p)
    passes = got["pass1"]
    assert passes["B_p"] in (8, 32) and passes["nM"] == 1_600_000 / passes["B_p"]
    assert len(passes["passes"]) == 5
    for r in passes["passes"]:
        at = r["matched"]
        assert len(r["moments"]) == 3 and at["C"] == 1_600_000
        assert len(at["share"]) == passes["k"] + 1 and sum(at["share"]) == pytest.approx(1)
        assert 0 < at["polarisation"] < 1
    zero = {r["n"]: r["matched"]["zero"] for r in passes["passes"]}
    assert zero[64] > zero[4]  # as planted
    # each of them says in the report what it drew
    for view in ("fixed_Bp", *got):
        assert f"{folder}, {view}: 10 runs used" in analysed.report, view


def test_joint_view_names_how_the_curse_was_removed(tmp_path):
    simulate(tmp_path, ns=(4, 16), B_ps=(8, 32), evals=12)
    panel = analyse(tmp_path, view="joint")["panels"]["joint"]
    assert "half of the samples" in panel["curse"]


def test_measured_pass_rates_come_before_those_of_training(tmp_path):
    """Where every run has records of the policy at one update (--pass_at), pass1 is of these, from
    before training on."""
    logs = simulate(tmp_path, ns=(8, 16), evals=10)
    add_passes(logs)
    ids = [f"p{j}" for j in range(60)]
    for i, log in enumerate(logs.values()):
        with open(log, "a") as file:
            for C, right in ((0, 2), (800_000, 8 + 4 * i)):
                correct = [right if j % 2 else 0 for j in range(60)]
                file.write(json.dumps(dict(
                    type="train_pass", step=C // 512, rollouts=C, fresh=True, ids=ids,
                    samples=[16] * 60, correct=correct)) + "\n")
        if i == 0:  # one run has none
            front = analyse(tmp_path, view="pass1")
            assert not front["fresh"] and all(len(r["moments"]) == 3 for r in front["passes"])
    front = analyse(tmp_path, view="pass1")
    assert front["fresh"] and front["k"] == 16
    assert [[m["C"] for m in r["moments"]] for r in front["passes"]] == [[0, 800_000]] * 2
    for i, r in enumerate(sorted(front["passes"], key=lambda r: r["n"])):
        assert r["matched"]["C"] == 800_000 and r["matched"]["zero"] == 0.5
        assert r["matched"]["share"][8 + 4 * i] == 0.5 and r["moments"][0]["share"][2] == 0.5


def test_views_that_have_nothing_to_compare_say_so(tmp_path, capsys):
    simulate(tmp_path, ns=(8, 16), evals=10)
    assert "no two cells with one B" in bad(views, f"--runs={tmp_path}", "--view=fixed_B")
    line = bad(views, f"--runs={tmp_path}", "--view=pass1")
    assert "two runs or more with train_pass records" in line
    assert "wants two sweeps" in bad(views, f"--runs={tmp_path}", "--view=compare")
    # all: the others are drawn and these named
    views.main([f"--runs={tmp_path}", "--view=all", "--boot=40", "--verbose=true"])
    for said in (capsys.readouterr().out, (tmp_path / "report.txt").read_text()):
        assert len(re.findall(r"^not drawn: --view=(fixed_B|pass1)", said, re.M)) == 2
    drawn = {f"frontier{v}.png" for v in ("", "_joint", "_best_worst", "_sensitivity",
                                           "_paper", "_slices")}
    assert {p.name for p in tmp_path.glob("*.png")} == drawn
    views.main([f"--runs={tmp_path}", "--view=all", "--boot=40"])
    said = capsys.readouterr()  # where it all is, and nothing before a page that follows
    assert not said.out and str(tmp_path / "report.txt") in said.err


def test_several_sweeps_side_by_side(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    simulate(a, ns=(4, 16, 64), evals=30)
    logs = simulate(b, ns=(4, 16, 64), evals=30, draw=1, truth=sim.constant(16))
    logs[32, 4, 0].write_text("{}\n")
    views.main([f"--runs={a} {b} {a}:train {a}:best@4", "--view=compare", f"--out={tmp_path}",
                "--boot=40"])
    got = json.loads((tmp_path / "frontier_compare.json").read_text())
    assert (tmp_path / "frontier_compare.png").stat().st_size > 50_000
    assert list(got["panels"]) == [f"{w}, B_p=32" for w in (a, b, f"{a}:train", f"{a}:best@4")]
    val, other, train, best = got["panels"].values()
    assert (val["ns"], other["ns"]) == ([4, 16, 64], [16, 64])
    assert "training" in train["metric"] and "best@4" in best["metric"]
    assert min(best["envelope"]["highest"]) > max(val["envelope"]["highest"][:20])
    assert "counts" in train["covers"] and "counts" not in val["covers"]
    # what was left out is said of every sweep, not only of the first
    left_out = json.dumps([got["runs_dropped"], other.get("runs_dropped")])
    assert logs[32, 4, 0].parent.name in left_out


def test_best_and_worst_are_not_drawn_from_another_metric(tmp_path):
    """Logs that have one metric and no counts: its bar alone, or one line."""
    logs = simulate(tmp_path, ns=(4, 32), evals=12)
    for log in logs.values():
        edit(log, without_counts)
    for words in ((), ("--metric=train",)):
        try:
            bars = analyse(tmp_path, *words, view="best_worst")["bars"]
        except BadInput:
            continue
        assert not {"best@4", "worst@4"} & {b["metric"] for b in bars}, words


# --------------------------------------------------------------------------------------------------
# B_p n <= B on real logs

def test_full_batches_reach_the_panels_end(tmp_path):
    """results/grid_easy at B = 64: n = 8 is the best after 512 updates with 0.75 to 0.76. It is no
    switch that the smaller batches go on where the full ones end."""
    front = analyse(ROOT / "results/grid_easy", f"--out={tmp_path}", view="fixed_B",
                    folder=tmp_path)
    for panel in front["panels"].values():
        B, env = panel["B"], panel["envelope"]
        full = max(r["C"] for r in front["runs_used"] if r["B_p"] * r["n"] == B)
        assert env["C"][-1] == pytest.approx(full / B, rel=1e-9) and not env["carried"][-1]
        assert env["B_p"][-1] * env["n"][-1] == B
    panel = front["panels"]["B=64"]
    env = panel["envelope"]
    assert panel["range"][1] == pytest.approx(512, rel=1e-9) and env["n"][-1] == 8
    assert 0.745 <= env["highest"][-1] <= 0.765 and 0.745 <= env["reward"][-1] <= 0.765
    assert not [s for s in panel["switches"] if s["C"] > 256], panel["switches"]


def test_a_cell_that_stands_in_for_one_that_ended_is_no_crossing(tmp_path, capsys):
    """results/atlas: joint_easy beside easy, two seeds. At B = 256 the cell that led has ended
    where another goes on and passes it; its end was taken for a crossing with an interval."""
    for run in (ROOT / "results/atlas").glob("*easy/Bp*_seed[01]_*"):
        B_p, n = re.match(r"Bp(\d+)_n(\d+)", run.name).groups()
        if run.parent.name in ("easy", "joint_easy") and int(B_p) * int(n) == 256:
            if read_log(run / "log.jsonl.gz")[0]["config"]["lr_base"] == 2e-4:
                (tmp_path / run.name).symlink_to(run)
    panel = analyse(tmp_path, view="fixed_B")["panels"]["B=256"]
    env = panel["envelope"]
    # whatever ended is carried on, so nothing on the frontier falls and no switch goes down
    assert (np.diff(env["highest"]) >= 0).all()
    for s in panel["switches"]:
        before = np.array(env["highest"])[np.array(env["C"]) < s["C"]]
        assert s["reward"] >= before.max() - 1e-9, s
    # (64, 4) ends after 640 updates and is carried on, until (16, 16), which runs to the end, is
    # better: each is said of the n whose it is
    said = capsys.readouterr().out.split("B=256:")[1].split("\n\n")[0].split("intervals:")[0]
    assert [(s["from"], s["to"]) for s in panel["switches"]] == [(4, 16)]
    assert re.search(r"from [CM] = \d+ to \d+ the best so far of n = 4 stands", said), said
    assert said.count("so far of n = 4 stands") == 1 and not env["carried"][-1]
    for s in panel["crossings"]:
        assert s["lo"] is None or s["hi"] is None or s["lo"] <= s["C"] <= s["hi"]


# --------------------------------------------------------------------------------------------------
# Pass rates

def test_thin_is_the_mean_over_all_draws_of_k_rollouts():
    rng = np.random.default_rng(0)
    samples, correct, k = [2, 3, 5, 7, 7, 7, 7], [1, 3, 0, 7, 2, 2, 4], 3
    want = np.zeros(k + 1)
    for s, c in zip(samples, correct):
        if s >= k:  # a problem with fewer rollouts than k is left out
            draws = list(itertools.combinations([1] * c + [0] * (s - c), k))
            solved = [sum(d) for d in draws]
            want += np.bincount(solved, minlength=k + 1) / len(draws) / 6
    assert views.thin(samples, correct, k) == pytest.approx(want)
    assert want.sum() == pytest.approx(1)
    # so the share at 0 does not fall with n: one set of problems, thinned from 16 and from 256
    # rollouts, looks the same
    p = rng.beta(0.3, 0.6, 20_000)
    few, many = (views.thin(np.full(p.size, s), rng.binomial(s, p), 8) for s in (16, 256))
    assert few == pytest.approx(many, abs=0.012) and few[0] > 0.3
    assert (views.thin([1], [1], 2) == 0).all()


def test_polarisation_is_what_unbiased_pairs_of_rollouts_say():
    rng = np.random.default_rng(0)
    # the last has one rollout, which says nothing of p (1 - p)
    samples, correct = [4, 5, 2, 3, 1], [1, 4, 1, 3, 1]
    between, means = [], []
    for s, c in list(zip(samples, correct))[:4]:
        pairs = itertools.permutations([1] * c + [0] * (s - c), 2)
        between.append(np.mean([a * (1 - b) for a, b in pairs]))
        means.append(c / s)
    mean = np.mean(means)
    want = 1 - np.mean(between) / (mean * (1 - mean))
    assert views.polarisation(samples, correct) == pytest.approx(want)
    assert views.polarisation([8, 8, 8], [0, 8, 8]) == 1
    alike = views.polarisation(np.full(50_000, 4), rng.binomial(4, 0.3, 50_000))
    assert alike == pytest.approx(0, abs=0.02)
    # the variance of p over the largest that mean .5 allows, 0.16 of 0.25, from any s
    p = rng.choice([0.1, 0.9], 50_000)
    for s in (2, 16):
        got = views.polarisation(np.full(p.size, s), rng.binomial(s, p))
        assert got == pytest.approx(0.64, abs=0.02)
    for s, c in (([4, 4], [0, 0]), ([4, 4], [4, 4]), ([], [])):
        assert math.isnan(views.polarisation(s, c))
