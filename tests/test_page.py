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
import simulate as sim
from simulate import analyse, edit, plain_run, simulate, without_counts

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
    """E[(1 - p)^t (q - p)] / E[q - p], 90% of the time within the interval."""
    rng, inside, shares = np.random.default_rng(0), 0, []
    p = rng.beta(0.7, 1.2, 300)
    q = np.clip(p + rng.uniform(-0.1, 0.5, 300) * (1 - p), 0, 1)
    t = min(4, samples - 1)
    truth = ((1 - p) ** t * (q - p)).sum() / (q - p).sum()
    for _ in range(300):
        found = planted_gain(p, q, samples, seeds, rng)
        shares.append(found["coverage"])
        inside += found["lo"] < truth < found["hi"]
    assert np.mean(shares) == pytest.approx(truth, abs=0.01) and inside / 300 > 0.87
    assert found["tries"] == t


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
    assert "no clear gain" in page.say_diagnosis([dict(found[none.index(True)], n=4)], 4)


@pytest.mark.parametrize("start, tune", [(0.01, "best@4"), (0.6, "worst@4")])
def test_what_to_tune_by(start, tune):
    rng, runs = np.random.default_rng(4), []
    for n in (4, 16, 64):
        rates = np.array([np.full(300, start), np.full(300, start + 0.2), np.full(300, start + .3)])
        counts = rng.binomial(4, rates)
        runs.append(plain_run(n, 0, [0, 1e4, 2e4], counts.mean(1) / 4, counts))
    found = page.diagnose(runs, 4)
    assert [d["n"] for d in found] == [4, 64] and {d["tune"] for d in found} == {tune}
    line = page.say_diagnosis(found, 4)
    assert line.count(f"so tune by {tune}") == 2 and "\n" not in line
    assert page.diagnose([dict(run, counts=None) for run in runs], 4) == []
    assert page.say_diagnosis([], 4) == ""


def test_the_line_of_the_page(analysed):
    lines = [x for x in analysed.page.splitlines() if x.startswith("Coverage or sharpening? ")]
    assert len(lines) == 1 and "n = 4: " in lines[0] and "n = 64: " in lines[0]
    for d in analysed.laws["diagnosis"]:
        assert d["lo"] < d["coverage"] < d["hi"] and math.isfinite(d["gain"])
    assert "tries of the base model leave unsolved" in analysed.report
