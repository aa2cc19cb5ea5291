"""fit_sigmoid.py: the law through points, the verdict on a sweep, what to run, the page."""
import csv
import json
import math
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fit_sigmoid as fit
import simulate as sim
from config import config, derive, parse, read_json
from conftest import run_script
from core.curves import cells_of
from simulate import (analysed_sweep, bad, edit, page_of, paper, simulate, sweep,
                      table_of, without_counts)

ROOT = Path(__file__).resolve().parent.parent
PAPER = {"easy": (6.09, 4.75, 5.84, 2.73), "hard": (4.47, 7.23, 5.84, 2.79),
         "tokens": (6.62, 3.47, 9.18, 2.64), "joint": (5.67, 8.84, 6.08, 3.08)}  # as printed


# --------------------------------------------------------------------------------------------------
# The law from points

@pytest.mark.parametrize("name", PAPER)
def test_printed_laws_come_back_from_their_points(name):
    L, k, log10_C0, b = PAPER[name]
    C = np.geomspace(10 ** (log10_C0 - 1), 10 ** (log10_C0 + 1), 40)
    y = sim.law(C, PAPER[name])
    assert fit.law_at(dict(zip(fit.NUMBERS, PAPER[name])), C) == pytest.approx(y)
    got = fit.law_of_points(C, y)
    assert got["verdict"] == "law" and got["flags"] == []
    for key, want in dict(L=L, k=k, log10_C0=log10_C0, b=b).items():
        assert got[key]["value"] == pytest.approx(want, rel=0.01), key
        assert got[key]["lo"] is None  # points alone do not say how sure they are
    assert got["plateau"]["value"] == pytest.approx(2 ** (L + b), rel=0.01)


def test_the_law_is_the_best_that_many_starts_find():
    from scipy.optimize import least_squares
    rng = np.random.default_rng(2)
    for name in PAPER:
        C = np.geomspace(10 ** (PAPER[name][2] - 1), 10 ** (PAPER[name][2] + 1), 40)
        x, y = np.log10(C), sim.law(C, PAPER[name]) + rng.normal(0, 0.4, 40)
        got = fit.fit_law(C, y)
        low = [y.min() - 1, 0, math.log(fit.K_LAW[0]), x[0] - .5]
        high = [y.max() + 1, 40, math.log(fit.K_LAW[1]), x[-1] + .5]

        def miss(p):
            numbers = dict(L=p[1], k=math.exp(p[2]), log10_C0=p[3], b=p[0] - p[1])
            return fit.law_at(numbers, C) - y
        theirs = min(2 * least_squares(miss, rng.uniform(low, high), bounds=(low, high)).cost
                     for _ in range(12))
        assert ((fit.law_at(got, C) - y) ** 2).sum() <= theirs * 1.001, name


def test_a_law_seen_through_a_grid_of_powers_of_two():
    C = np.geomspace(1e5, 1e7, 60)
    got = fit.law_of_points(C, np.round(sim.law(C, PAPER["easy"])))
    assert got["verdict"] == "law"
    assert got["log10_C0"]["value"] == pytest.approx(5.84, abs=0.05)
    assert 400 < got["plateau"]["value"] < 600


@pytest.mark.parametrize("octaves", [0.0, 1.0])
@pytest.mark.parametrize("numbers,C,why", [
    # cut before the bend; begins past it; the paper's bound
    (PAPER["easy"], np.geomspace(1e5, 10 ** 5.75, 30), "n\\*|plateau|bend"),
    (PAPER["easy"], np.geomspace(10 ** 6.1, 1e8, 30), "C0|bend|values of n|k at"),
    ((3.97, 500.0, 6.13, 3.04), np.geomspace(1e5, 1e7, 40), "k at its upper bound 50|values of n")])
def test_points_that_do_not_determine_a_law_give_none(numbers, C, why, octaves):
    y = sim.law(C, numbers)
    got = fit.law_of_points(C, np.round(y / octaves) * octaves if octaves else y)
    assert got["verdict"] == "undetermined"
    assert all(got[key]["value"] is None for key in fit.NUMBERS)
    assert re.search(why, got["reason"]), got["reason"]


def test_the_papers_k_of_50_is_named_as_unseen():
    C = np.geomspace(10 ** 5.1, 10 ** 7.1, 40)
    got = fit.law_of_points(C, sim.law(C, (3.97, 50.0, 6.13, 3.04)))
    assert got["verdict"] == "undetermined" and got["k"]["value"] is None
    assert "k at its upper bound 50" in got["flags"]


@pytest.mark.parametrize("path,verdict,why", [
    ([8] * 30, "flat", "n = 8 at every budget"),
    ([32] * 15 + [8] * 15, "undetermined", "below half an octave up, from 32 at .* to 8 at"),
    ([8] * 15 + [32] * 15, "undetermined", "only 2 values"),
    ([8, 4, 16, 8, 4, 4] * 5, "undetermined", "below half an octave")])
def test_verdicts_on_points_without_a_law(path, verdict, why):
    got = fit.law_of_points(np.geomspace(1e4, 1e6, 30), np.log2(path))
    assert got["verdict"] == verdict and re.search(why, got["reason"]), got["reason"]
    assert all(got[name] == dict(value=None, lo=None, hi=None) for name in fit.NUMBERS)


def test_the_sentence_quotes_the_running_mean_that_was_fitted():
    """Raw n goes from 4 down to 2 where its running mean rises: "n* rises, 4 to 2" was nonsense."""
    C = np.geomspace(2e3, 3e4, 14)
    n = np.array([4, 2, 2, 2, 2, 2, 8, 8, 16, 16, 16, 16, 16, 2])
    y = np.array([np.mean(np.log2(n)[max(i - 2, 0):i + 3]) for i in range(14)])
    got = fit.law_of_points(C, y, n=n)
    first, last = (f"{2 ** y[i]:.3g} at C = {C[i]:,.0f}" for i in (0, -1))
    assert got["verdict"] == "law" and f"rises from {first} to {last}" in got["reason"], got
    # and so where there is none: the running mean falls
    got = fit.law_of_points(C, y[::-1], n=n[::-1])
    first, last = (f"{2 ** y[i]:.3g} at C = {C[::-1][i]:,.0f}" for i in (-1, 0))
    assert f"from {first} to {last}" in got["reason"] and f"from {n[-1]} at" not in got["reason"]


def test_the_first_section_needs_numpy_and_scipy_alone():
    """It is there to be copied: it must run without the rest of this repository."""
    source = (ROOT / "fit_sigmoid.py").read_text()
    alone = source.split("# The verdict on the runs")[0]
    assert "def law_of_points" in alone and "def verdict_of" not in alone
    alone = "import math\nimport numpy as np\nfrom scipy.optimize import least_squares\n" + (
        alone.split("# The law from points")[1].split("\n", 1)[1])
    code = alone + ("\nC = np.geomspace(1e5, 1e7, 40)\n"
                    "law = dict(L=6.09, k=4.75, log10_C0=5.84, b=2.73)\n"
                    "print(law_of_points(C, law_at(law, C))['verdict'])")
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "law", done


# --------------------------------------------------------------------------------------------------
# The verdict

def verdict(runs, delta=0.01):
    grid, cells = cells_of(runs, "avg@4")
    return fit.verdict_of(cells, grid, delta)


def steep(B_p, n, C):
    """n = 8 is the best early, 128 late, by many points."""
    x = np.log10(np.maximum(C, 1) / 4e5)
    return 0.5 + (C > 0) * 0.1 * x * np.log2(n / 32) / 2


def test_three_verdicts_on_planted_sweeps():
    quiet = dict(ns=(8, 32, 128), seeds=3, evals=40, run_sd=.002, drift=.001, inter=0.0)
    rises = verdict(sweep(1, steep, **quiet))
    assert rises["verdict"] == "law" and rises["sets"][0]["ns"] == [8]
    assert rises["sets"][-1]["ns"] == [128] and rises["reason"].startswith("n* rises")
    flat = verdict(sweep(1, sim.constant(32), **quiet), delta=0.02)
    assert flat["verdict"] == "flat" and flat["constant"] == 32 and flat["behind"] < 0.02
    falls = verdict(sweep(1, lambda B_p, n, C: steep(B_p, 1024 // n, C), **quiet))
    assert falls["verdict"] == "undetermined" and falls["reason"].startswith("n* falls")
    noisy = verdict(sweep(1, paper(0.5), ns=(8, 32), seeds=3, evals=40, run_sd=.03))
    assert noisy["verdict"] == "undetermined"


def test_flat_takes_two_seeds_and_every_n():
    quiet = dict(ns=(8, 32, 128), evals=40, run_sd=.002, drift=.001, inter=0.0)
    assert verdict(sweep(1, sim.constant(32), seeds=1, **quiet), delta=.5)["verdict"] != "flat"
    runs = sweep(1, sim.constant(32), seeds=2, **quiet)
    assert verdict(runs, delta=.5)["verdict"] == "flat"
    for run in (run for run in runs if run["n"] == 128):
        run.update({key: run[key][:15] for key in ("C", "rollouts", "step", "counts", "reward")},
                   status="diverged")
    early = verdict(runs, delta=.5)
    assert early["verdict"] == "undetermined" and early["left_out"] == [128]


def test_one_n_and_few_shared_budgets_are_undetermined():
    assert "one n only" in verdict(sweep(1, paper(), ns=(8,), evals=20))["reason"]
    runs = sweep(1, paper(), ns=(8, 32), evals=20)
    for run in runs:
        keep = (run["C"] < 1e6) if run["n"] == 8 else (run["C"] > 9e5) | (run["C"] == 0)
        run.update({key: run[key][keep] for key in ("C", "rollouts", "step", "counts", "reward")})
    assert "share less than a factor 4" in verdict(runs)["reason"]


# --------------------------------------------------------------------------------------------------
# The page of a sweep

@pytest.fixture(scope="module")
def analysed(tmp_path_factory):
    return analysed_sweep(tmp_path_factory)


def test_the_table_has_every_budget_and_metric(analysed):
    with open(analysed.folder / "prescription.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ("metric C status B_p n M lr reward lo hi hours same by stop".split())
    for metric in ("avg@4", "best@4", "worst@4"):
        own = [row for row in rows if row["metric"] == metric]
        budgets = [float(row["C"]) for row in own]
        assert budgets == sorted([250e3, 3e5, 500e3, 1e6, 2e6, 4e6, 8e6])
        for row in own:
            B = int(row["B_p"]) * int(row["n"])
            assert int(row["M"]) == float(row["C"]) // B
            lr = derive(dict(config, B_p=int(row["B_p"]), n=int(row["n"])))["lr"]
            assert float(row["lr"]) == pytest.approx(lr, rel=1e-3)
            if row["status"] == "observed":
                assert float(row["lo"]) < float(row["reward"]) < float(row["hi"])
                assert f"{row['B_p']}x{row['n']}" in row["same"].split()
            else:
                assert row["reward"] == row["lo"] == row["same"] == ""
    text = analysed.page + (analysed.folder / "prescription.csv").read_text() + analysed.report
    assert not re.search(r"\b(nan|inf|None)\b", text)


def test_beyond_the_runs_the_choice_at_C_is_kept(analysed):
    rows = table_of(analysed.folder)
    at_C = next(row for row in rows if row["C"] == "2000000")
    for row in rows[-2:]:
        assert row["status"] == "extrapolated" and row["by"] == "kept from C = 2M"
        assert (row["B_p"], row["n"]) == (at_C["B_p"], at_C["n"])
    assert re.search(r"4M\*.* not run .* not known", analysed.page)


def test_what_is_prescribed_is_planted(analysed):
    """The truth of simulate.py rises to n = 32; C is 2 million."""
    for row in table_of(analysed.folder):
        if row["status"] == "observed":
            C, got = float(row["C"]), sim.truth(8, int(row["n"]), float(row["C"]))
            assert max(sim.truth(8, n, C) for n in (4, 8, 16, 32, 64)) - got < 0.02, row
            assert float(row["lo"]) < got < float(row["hi"])


def test_the_command_can_be_pasted_and_is_that_of_the_budget(analysed):
    line = next(line for line in analysed.page.splitlines() if "python train_grpo.py" in line)
    cfg = parse(shlex.split(line)[2:])
    row = next(row for row in table_of(analysed.folder) if row["C"] == "300000")
    assert (cfg["B_p"], cfg["n"]) == (int(row["B_p"]), int(row["n"])) and cfg["C"] == 300_000
    assert derive(cfg)["M"] == int(row["M"])


def test_law_json(analysed):
    law = analysed.laws["law"]
    assert {*fit.NUMBERS, "verdict", "reason", "flags", "sets", "panel"} <= set(law)
    assert set(analysed.laws["panels"]) == {"B_p=8", "B_p=32"}
    assert {"value", "lo", "hi"} == set(law["plateau"])
    assert [p["C"] for p in analysed.laws["prescriptions"]][0] == pytest.approx(250e3)


def test_the_page_of_one_B_p_is_25_lines_at_most(tmp_path):
    simulate(tmp_path, ns=(4, 16, 64), evals=30)
    page = page_of(tmp_path)
    assert len(page.splitlines()) <= 25 and "one seed" in page
    assert "to be surer: seeds 1 and 2" in page and "of those as good: cheapest" in page


def test_laws_of_the_other_views(analysed, tmp_path):
    for view in ("joint", "fixed_B"):
        page_of(analysed.folder, f"--view={view}", f"--out={tmp_path}")
        law = read_json(tmp_path / f"law_{view}.json")
        assert law["unit"] == "rollouts" and law["law"]["verdict"] in fit.SAID
        assert (tmp_path / f"law_{view}.png").stat().st_size > 15_000
    assert "a law is fitted to" in bad(fit, f"--runs={analysed.folder}", "--view=pass1")


def test_the_edge_of_the_grid_is_named(tmp_path):
    simulate(tmp_path, ns=(4, 8), evals=30, truth=lambda B_p, n, C: 0.3 + 0.01 * n * (C > 0))
    assert "n = 8 is the largest of the grid" in page_of(tmp_path) and "add n = 16" in page_of(
        tmp_path)


def test_what_diverged_is_not_prescribed_and_the_page_says_so(tmp_path):
    logs = simulate(tmp_path, ns=(4, 16), evals=40, seeds=(0, 1),
                    truth=lambda B_p, n, C: 0.3 + (0.3 if n == 16 else 0.1) * (C > 0))
    for (_, n, _), log in logs.items():
        if n == 16:
            edit(log, sim.ends_at(1_200_000, "diverged"))
    page = page_of(tmp_path)
    rows = {float(row["C"]): row for row in table_of(tmp_path)}
    assert rows[2e6]["n"] == "4" and rows[1e6]["n"] == "16" and "16" not in rows[2e6]["same"]
    assert "diverged" in page and rows[4e6]["n"] == "4"


def test_one_early_divergence_does_not_choose_the_lr_of_the_page(tmp_path):
    """A run dies at C/4, the largest budget that all share. Twice the lr is better until there and
    worse at C, where the page is asked."""
    for lr, late in ((1e-6, 0.2), (2e-6, 0.05)):
        logs = simulate(tmp_path, ns=(4, 16), evals=40, words=(f"--lr_base={lr}",),
                        truth=lambda B_p, n, C: 0.3 + (C > 0) * np.where(
                            C < 7e5, 0.25 - late, late) - 0.02 * (n == 16))
    edit(logs[32, 16, 0], sim.ends_at(500_000, "diverged"))
    plan = parse([f"--runs={tmp_path}", f"--data={tmp_path}", "--B_max=0", "--lrs=1e-6 2e-6",
                  "--C=2e6", "--eval_every=50000"])
    (tmp_path / "sweep.json").write_text(json.dumps(dict(config=plan, cells=[])))
    page_of(tmp_path)
    rows = {row["C"]: row for row in table_of(tmp_path)}
    for C, lr in (("2000000", 1e-6), ("500000", 2e-6)):  # each budget has the lr that is best there
        assert rows[C]["n"] == "4"
        assert float(rows[C]["lr"]) == pytest.approx(lr * math.sqrt(128 / 1024), rel=1e-4), C


def test_a_falling_sweep_is_offered_its_stop(tmp_path):
    """Both n are at 0.45 from a quarter of the budget to a half, and at 0.2 in the end."""
    simulate(tmp_path, ns=(4, 8), seeds=(0, 1, 2), evals=30, truth=lambda B_p, n, C: np.where(
        C < 1e6, 0.3 + 0.15 * np.minimum(C / 5e5, 1), 0.2))
    B_p, n, M, C, got, gain = re.search(
        r"more rollouts did not help: B_p = (\d+), n = (\d+) at M = (\d+) \(C = ([\d.]+)k\) got "
        r"([\d.]+), by ([\d.]+) points", page_of(tmp_path)).groups()
    row = next(r for r in table_of(tmp_path) if r["C"] == "2000000")
    assert float(row["stop"]) == pytest.approx(1e3 * float(C), rel=0.01)
    assert int(M) == pytest.approx(float(row["stop"]) / (int(B_p) * int(n)), abs=1)
    assert 4e5 < float(row["stop"]) < 1e6 and float(got) == pytest.approx(0.45, abs=0.04)
    assert float(gain) == pytest.approx(25, abs=5) and float(row["reward"]) < 0.25


def test_logs_without_counts_or_times(tmp_path):
    for log in simulate(tmp_path, ns=(4, 16), evals=30).values():
        edit(log, without_counts)
        edit(log, lambda r: {key: v for key, v in r.items() if key not in ("gen_s", "train_s")})
    page = page_of(tmp_path)
    assert "no counts per problem" in page and "nan" not in page
    assert {row["hours"] for row in table_of(tmp_path)} == {""}
    assert table_of(tmp_path, "best@4") == []


def test_other_units_and_budgets_that_buy_nothing(analysed, tmp_path):
    page = page_of(analysed.folder, "--unit=tokens", f"--out={tmp_path}")
    assert "C in tokens" in page and "C = 200M tokens" in page
    page_of(analysed.folder, "--unit=gpu_hours", f"--out={tmp_path}")
    rows = table_of(tmp_path)
    assert all(int(row["M"]) > 0 and float(row["hours"]) == pytest.approx(float(row["C"]), rel=.05)
               for row in rows if row["status"] == "observed")
    assert "below one update" in bad(fit, f"--runs={analysed.folder}", "--C=20",
                                     f"--out={tmp_path}")


def test_warm_up_is_named(tmp_path):
    simulate(tmp_path, ns=(128, 256), evals=10, C=40_000, truth=lambda B_p, n, C: 0.3 + 0 * C)
    assert "are all warm-up" in page_of(tmp_path)


# --------------------------------------------------------------------------------------------------
# Points of one's own

def points_of(tmp_path, C, n, about=""):
    file = tmp_path / "points.csv"
    file.write_text("C,n\n" + about + "".join(f"{c:.6g},{m:.6g}\n" for c, m in zip(C, n)))
    return file


def say_points(capsys, file, out, *words):
    fit.main([f"--points={file}", f"--out={out}", *words])
    return capsys.readouterr().out


def test_points_and_a_budget_make_a_command(tmp_path, capsys):
    C = np.geomspace(1e5, 1e7, 30)
    file = points_of(tmp_path, C, 2 ** sim.law(C, PAPER["easy"]), "# read off a figure\n")
    said = say_points(capsys, file, tmp_path, f"--data={tmp_path}", "--B_p=16", "--C=1e6")
    want = 2 ** round(sim.law(np.array([1e6]), PAPER["easy"])[0])
    assert f"B_p = 16, n = {want}, M = {10 ** 6 // 16 // want}" in said
    assert f"--B_p=16 --n={want} --C=1000000" in said and "read off a figure" in said
    law = read_json(tmp_path / "law.json")
    assert law["law"]["verdict"] == "law" and law["law"]["k"]["value"] == pytest.approx(4.75, .02)
    assert "python" not in say_points(capsys, file, tmp_path)  # no model, no command


@pytest.mark.parametrize("largest", [300, 512, 7516216427])
def test_no_n_above_twice_the_largest_point(tmp_path, capsys, largest):
    """Without a law the last point stands, and no power of two near it."""
    C = np.geomspace(1e3, 1e5, 12) * largest
    file = points_of(tmp_path, C, np.geomspace(largest / 60, largest, 12))
    said = say_points(capsys, file, tmp_path, f"--C={40 * C[-1]:g}")
    ns = [int(x) for x in re.findall(r"B_p = 32, n = (\d+), M", said)]
    assert len(ns) == 3 and ns == pytest.approx([largest] * 3, rel=1e-5)


def test_a_law_beyond_its_points_ends_at_twice_the_largest(tmp_path, capsys):
    """Its plateau, 760, lies below twice the largest n, 814; as a power of two it is 1024."""
    C = np.geomspace(10 ** 5.5, 10 ** 6.847, 40)
    n = 2 ** sim.law(C, (4.5, 4.0, 6.5, 5.07))
    assert 400 < n[-1] < 410
    said = say_points(capsys, points_of(tmp_path, C, n), tmp_path, "--C=1e10")
    ns = [int(x) for x in re.findall(r"B_p = 32, n = (\d+), M", said)]
    assert "plateau 76" in said and ns[0] == math.floor(2 * n[-1])
    assert max(ns) == ns[0] and "twice the largest tried stands" in said


@pytest.mark.parametrize("text, says", [
    ("C,n\n1,2\n", "1 different budgets"), ("a,b\n1,2\n", "expected the columns C and n"),
    ("C,n\n1e5,8\n2e5,x\n", "line 3"), ("C,n\n1e5,8\n-1,8\n", "line 3"),
    ("C,n\n1e5,0\n", "line 2"), ("", "0 different budgets")])
def test_bad_points_are_named(tmp_path, text, says):
    file = tmp_path / "p.csv"
    file.write_text(text)
    line = bad(fit, f"--points={file}")
    assert says in line and "p.csv" in line


def test_points_of_a_spreadsheet(tmp_path, capsys):
    """A byte order mark, blanks behind commas, CRLF and comments."""
    file = tmp_path / "p.csv"
    file.write_bytes("\ufeffC, n\r\n# mine\r\n".encode() + b"".join(
        b"%d, 8\r\n" % C for C in (1e4, 2e4, 4e4, 8e4, 2e5)))
    assert "one n will do" in say_points(capsys, file, tmp_path)


def test_as_its_user_starts_it(tmp_path):
    done = run_script("fit_sigmoid.py", f"--runs={tmp_path / 'none'}")
    assert done.code == 2 and "no such folder" in done.stderr and done.stderr.count("\n") == 1
    done = run_script("fit_sigmoid.py", f"--runs={ROOT / 'results/easy'}", f"--out={tmp_path}")
    assert done.code == 0 and "What to run, by validation avg@4" in done.stdout
    assert {p.name for p in tmp_path.iterdir()} == {"law.json", "law.png", "prescription.csv"}
