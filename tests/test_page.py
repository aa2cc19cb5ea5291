"""page.py: the table of budgets, its files, and whether a gain is coverage or sharpening."""
import csv
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

import frontier
import page
import prescribe
import simulate as sim
import views
from simulate import analyse, bad, edit, plain_run, simulate, without_counts

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def analysed(tmp_path_factory):
    return sim.analysed_sweep(tmp_path_factory)


def table_of(folder):
    with open(folder / "prescription.csv", newline="") as file:
        return list(csv.DictReader(file))


# --------------------------------------------------------------------------------------------------
# The table of budgets

def test_the_table_has_every_budget_and_metric(analysed):
    rows = table_of(analysed.folder)
    assert {r["metric"] for r in rows} == {"avg@4", "best@4", "worst@4"}
    for metric in ("avg@4", "best@4", "worst@4"):
        mine = [r for r in rows if r["metric"] == metric]
        assert [float(r["C"]) for r in mine] == [250e3, 500e3, 1e6, 2e6, 4e6, 8e6]
        assert [r["status"] for r in mine] == 4 * ["observed"] + 2 * ["extrapolated"]
        for r in mine:
            B_p, n, M = (int(r[key]) for key in ("B_p", "n", "M"))
            assert M == float(r["C"]) // (B_p * n)
            # 3.6 s an update, as simulate writes it
            assert float(r["hours"]) == pytest.approx(M * 3.6 / 3600, rel=0.02) or n not in (
                4, 8, 16, 32, 64)
            if r["status"] == "observed":
                assert float(r["lo"]) < float(r["reward"]) < float(r["hi"])
                assert f"{B_p}x{n}" in r["same"].split()
            else:
                assert r["reward"] == r["same"] == ""
    best, worst = ([float(r["reward"]) for r in rows if r["metric"] == m and r["reward"]]
                   for m in ("best@4", "worst@4"))
    assert all(b > w for b, w in zip(best, worst))


def test_the_table_is_what_is_prescribed(analysed):
    """Rows at C and 4 C are the prescriptions of law.json."""
    rows = {float(r["C"]): r for r in table_of(analysed.folder) if r["metric"] == "avg@4"}
    for p in analysed.laws["prescriptions"][1:]:
        row = rows[p["C"]]
        assert [int(row[key]) for key in ("B_p", "n", "M")] == [p[key] for key in ("B_p", "n", "M")]
        assert float(row["lr"]) == pytest.approx(p["lr"], rel=1e-4)
    text = (analysed.folder / "prescription.md").read_text()
    assert text.count("\n## ") == 3 and len(re.findall(r"^\| \*8M\* ", text, re.M)) == 3
    assert "# What to run: " in text and "nan" not in text and "None" not in text
    assert "  What to run, by validation avg@4" not in analysed.page
    assert "What to run, by validation avg@4 (* = extrapolated):" in analysed.page


def test_hours_of_a_thinned_log_count_every_update(tmp_path):
    """A record stands for the updates since the one before: half of the records, the same hours."""
    log = simulate(tmp_path, ns=(4,), evals=10)[32, 4, 0]
    whole = frontier.read_run(log.parent)["hours"]
    updates = json.loads(log.read_text().splitlines()[0])["derived"]["M"]
    assert whole == pytest.approx(updates * 3.6 / 3600)
    seen = []

    def every_second(r):
        seen.append(r["type"] == "step")
        return None if r["type"] == "step" and sum(seen) % 2 else r
    edit(log, every_second)
    assert frontier.read_run(log.parent)["hours"] == pytest.approx(whole)
    cost, unit = page.cost_of([frontier.read_run(log.parent)])
    assert unit == "core-h" and cost[32, 4] == pytest.approx(3.6 / 3600 / 128)
    edit(log, lambda r: dict(r, device="cuda:0", ranks=2) if r["type"] == "header" else r)
    cost, unit = page.cost_of([frontier.read_run(log.parent)])
    assert unit == "GPU-h" and cost[32, 4] == pytest.approx(2 * 3.6 / 3600 / 128)


def test_a_sweep_without_counts_or_times_has_a_shorter_table(tmp_path):
    for log in simulate(tmp_path, ns=(4, 16), evals=10).values():
        edit(log, without_counts)
        edit(log, lambda r: {k: v for k, v in r.items() if k not in ("gen_s", "train_s")})
    analyse(tmp_path)
    said = sim.law_of(tmp_path)
    rows = table_of(tmp_path)
    assert {r["metric"] for r in rows} == {"avg@4"} and {r["hours"] for r in rows} == {""}
    assert said["diagnosis"] == []


# --------------------------------------------------------------------------------------------------
# Coverage or sharpening

def planted_gain(p, q, samples, seeds, rng):
    """gain_parts of `seeds` runs on problems with pass rates p (P,) before and q (P,) after."""
    first, last = (rng.binomial(samples, rate, (seeds, len(p))) for rate in (p, q))
    return page.gain_parts(first, last, samples, 4)


@pytest.mark.parametrize("samples, seeds", [(4, 1), (4, 3), (16, 1)])
def test_the_share_of_coverage_is_that_of_the_pass_rates(samples, seeds):
    """E[(1 - p)^3 (q - p)] / E[q - p], 90% of the time within the interval, and E[(1 - p)^3] if all
    gained alike; how many samples were drawn changes neither."""
    rng, inside, shares, even = np.random.default_rng(0), 0, [], []
    p = rng.beta(0.7, 1.2, 300)
    q = np.clip(p + rng.uniform(-0.1, 0.5, 300) * (1 - p), 0, 1)
    t = 3
    truth = ((1 - p) ** t * (q - p)).sum() / (q - p).sum()
    for _ in range(300):
        found = planted_gain(p, q, samples, seeds, rng)
        shares.append(found["coverage"])
        inside += found["lo"] < truth < found["hi"]
        even.append(found["even"])
    assert np.mean(shares) == pytest.approx(truth, abs=0.01) and inside / 300 > 0.87
    assert found["tries"] == t and np.mean(even) == pytest.approx(((1 - p) ** t).mean(), abs=0.01)


def test_bad_luck_at_first_is_no_coverage():
    """Pass rates that only rise where they were high: next to nothing is coverage, although many
    problems had no solved rollout at first and have some in the end."""
    rng = np.random.default_rng(1)
    p = np.repeat([0.25, 0.7], 2000)
    q = np.repeat([0.25, 1.0], 2000)
    found = planted_gain(p, q, 4, 1, rng)
    assert abs(found["coverage"]) < 0.1
    first, last = rng.binomial(4, p), rng.binomial(4, q)
    naive = ((last - first) * (first == 0)).sum() / (last - first).sum()
    assert naive > 0.25


def test_no_clear_gain_has_no_share():
    rng = np.random.default_rng(2)
    p = rng.uniform(size=300)
    found = [planted_gain(p, p, 4, 1, rng) for _ in range(200)]
    none = [f["coverage"] is None for f in found]
    assert none == [abs(f["gain"]) <= f["half"] for f in found] and 0.84 < np.mean(none) < 0.96
    said = list(page.say_diagnosis([dict(found[none.index(True)], n=4, B_p=8)], 4))
    assert "With B_p = 8" in said[0] and said[1].endswith("no clear gain in avg@4")


@pytest.mark.parametrize("start, tune", [(0.01, "best@4"), (0.6, "worst@4")])
def test_what_to_tune_by(start, tune):
    rng, runs = np.random.default_rng(4), []
    for n in (4, 16, 64):
        rates = np.array([np.full(300, start), np.full(300, start + 0.2), np.full(300, start + .3)])
        counts = rng.binomial(4, rates)
        runs.append(plain_run(n, 0, [0, 1e4, 2e4], counts.mean(1) / 4, counts))
    found = page.diagnose(runs, 4)
    assert [d["n"] for d in found] == [4, 64] and {d["tune"] for d in found} == {tune}
    _, *lines = page.say_diagnosis(found, 4)
    assert [f"so tune by {tune}; " in line for line in lines] == [True, True]
    for d, run, line in zip(found, (runs[0], runs[-1]), lines):
        for name, key in (("best@4", "best"), ("worst@4", "worst")):
            first, last = (frontier.right(run["counts"][i], name, 4).mean() for i in (0, -1))
            assert d[key] == pytest.approx(last - first)
            assert f"{name} {100 * (last - first):+.1f}" in line
    assert page.diagnose([dict(run, counts=None) for run in runs], 4) == []
    assert list(page.say_diagnosis([], 4)) == []


def test_a_gain_at_both_ends_is_tuned_by_the_mean():
    """best@4 and worst@4 gain alike where pass rates go from 0.35 to 0.65."""
    rng = np.random.default_rng(5)
    found = planted_gain(np.full(300, 0.35), np.full(300, 0.65), 16, 3, rng)
    assert found["tune"] == "avg@4" and abs(found["best"] - found["worst"]) < 0.02


def test_the_line_of_the_page(analysed):
    said = analysed.page.split("Coverage or sharpening? With B_p = 8, ")[1].splitlines()[1:3]
    for d, line in zip(analysed.laws["diagnosis"], said):
        assert line.startswith(f"  n = {d['n']}: avg@4 {100 * d['gain']:+.1f}, best@4 ")
        assert d["lo"] < d["coverage"] < d["hi"] and math.isfinite(d["gain"]) and d["tries"] == 3
    assert page.DIAGNOSIS in analysed.report


# --------------------------------------------------------------------------------------------------
# What is not as it should be

def falling(B_p, n, C):
    """n* falls with C to 2, the smallest that was run, and would go on."""
    return sim.beside(n, C, np.log2(np.clip(64 * 1e5 / np.maximum(C, 1), 2, 64)), 3)


def test_where_n_falls_a_group_has_two_rollouts(tmp_path, capsys):
    """The rule that follows n* down says n = 1 at 4 C, and below."""
    simulate(tmp_path, ns=(2, 8, 32), seeds=(0, 1), C=4_000_000, truth=falling)
    front = analyse(tmp_path)
    panel = front["panels"]["B_p=32"]
    panel["prediction"].update(recommended="log-linear")
    (tmp_path / "frontier.json").write_text(json.dumps(front))
    law = dict(sim.law_of(tmp_path)["panels"]["B_p=32"]["envelope"], verdict="undetermined")
    assert prescribe.n_by_rule("log-linear", 16e6, panel) < 0.5  # log2 n
    assert prescribe.prescribe(16e6, front, {"B_p=32": law})["n"] == 2
    rows = [r for r in table_of(tmp_path) if r["metric"] == "avg@4"]
    assert [r["n"] for r in rows][-2:] == ["2", "2"] and len(rows) == 6


def test_hours_are_the_logs_own_or_none(tmp_path):
    """Wall-clock alone counts evaluations too: no hours of training."""
    log = simulate(tmp_path, ns=(4,), evals=10)[32, 4, 0]
    edit(log, lambda r: {k: v for k, v in r.items() if k != "gen_s"} | dict(wall_s=9.0))
    run = frontier.read_run(log.parent)
    assert run["hours"] is None and page.cost_of([run])[0] == {}


@pytest.mark.parametrize("key, value", [("train_s", "x"), ("gen_s", math.nan), ("gen_s", [1])])
def test_a_time_that_is_no_number_is_named(tmp_path, key, value):
    log = simulate(tmp_path, ns=(4,), evals=10)[32, 4, 0]
    steps = iter(range(10 ** 6))
    edit(log, lambda r: dict(r, **{key: value}) if r["type"] == "step" and next(steps) == 5 else r)
    line = bad(views, f"--runs={tmp_path}")
    assert re.search(rf"{log.parent.name}: its {key} at step \d+ is not a number", line), line


def test_borrowed_hours_are_marked(tmp_path):
    """n = 2 was not run: its hours are of n = 4, marked in every form of the table."""
    front = dict(unit="rollouts", label="avg@4", runs="r", covers="c", panels={"x": dict(B_p=8)})
    row = dict(metric="avg@4", C=100.0, status="extrapolated", B_p=8, n=2, M=6, lr=1e-3, by="x",
               reward=None, lo=None, hi=None, hours=1.5, hours_of=[8, 4], same=None)
    own = dict(row, n=4, hours_of=None, status="observed")
    page.write_budgets({"avg@4": [own, row]}, front, "core-h", tmp_path)
    text = (tmp_path / "prescription.md").read_text()
    assert "| *~1.5* |" in text and "| 1.5 |" in text and "~ this pair was not run" in text
    assert [r["hours_of"] for r in table_of(tmp_path)] == ["", "8x4"]
    said = list(page.say_budgets([own, row], front, "core-h"))
    assert " ~1.5 " in said[3] and said[-1].startswith("  ~ this pair")
    # C in hours keeps its digits
    page.write_budgets({"avg@4": [dict(row, C=0.76)]}, dict(front, unit="gpu_hours"), "", tmp_path)
    assert table_of(tmp_path)[0]["C"] == "0.76"


def test_a_frontier_of_other_runs_is_refused(tmp_path):
    """--out of another sweep: nothing is written there."""
    for name, ns in (("a", (4, 16)), ("b", (4, 64))):
        simulate(tmp_path / name, ns=ns, evals=10)
        analyse(tmp_path / name)
    line = bad(page, f"--runs={tmp_path / 'a'}", f"--out={tmp_path / 'b'}")
    assert "are not the 2 that the frontier.json in " in line and f"--out={tmp_path / 'b'}" in line
    assert not list(tmp_path.rglob("law.json")) + list(tmp_path.rglob("prescription.*"))


def test_points_of_a_spreadsheet(tmp_path):
    """A byte order mark, and lines that say what the points are."""
    path = tmp_path / "p.csv"
    rows = "".join(f"{C},{C // 100000}\n" for C in range(200_000, 1_000_000, 100_000))
    path.write_text("C,n\n# of my own,\n# by hand\n" + rows, encoding="utf-8-sig")
    front = page.read_points(path, dict(sim.CFG, B_p=8))
    assert front["about"] == " of p.csv: of my own, by hand" and front["budget"] == 900_000
    path.write_text("C,n\n# of my own\n" + rows + "x,1\n")
    assert "p.csv: line 11: " in bad(page, f"--points={path}")
