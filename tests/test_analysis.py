"""From logs to the report, on planted sweeps whose n*(C) is known."""
import csv
import gzip
import itertools
import json
import math
import re
import shlex
import shutil

import numpy as np
import pytest
from matplotlib.image import imread
from conftest import ROOT
from planted import EASY, constant, edit, falls_off, law, paper, run, sweep, write

import fit_sigmoid as fit
import frontier
from config import BadInput, experiment, parse
from core import plots, runs, stats
from core.log import save_json
from core.sweep import cells, command, sweep_command, sweep_config


def page(capsys, main, *words):
    """Run a script's main in this process and return what it prints."""
    main([str(word) for word in words])
    return capsys.readouterr().out


@pytest.fixture
def figures(monkeypatch):
    """Return a list of the figures that are drawn."""
    drawn, write = [], plots.write
    monkeypatch.setattr(plots, "write", lambda fig, path: drawn.append(fig) or write(fig, path))
    return drawn


# ---- core/runs.py --------------------------------------------------------------------------------

@pytest.fixture
def logs(tmp_path):
    """Return ({cell: log}, folder) of a small sweep: n = 8, 32, 128, one seed."""
    return write(tmp_path / "sweep", C=200_000, evals=20, P=20), tmp_path / "sweep"


def test_a_run_is_read_as_written(logs):
    (log, *_), folder = list(logs[0].values()), logs[1]
    records = [json.loads(line) for line in log.read_text().splitlines()]
    evals = [r for r in records if r["type"] == "eval"]
    read = runs.read_run(log)
    assert (read["B_p"], read["n"], read["seed"], read["status"]) == (32, 8, 0, "budget")
    assert np.allclose(read["reward"], [[c / 4 for c in r["correct"]] for r in evals])
    for unit, scale in (("rollouts", 1), ("tokens", 100), ("updates", 1 / 256),
                        ("gpu_hours", 3.6 / 256 / 3600)):
        C = runs.read_run(log, unit=unit)["C"]
        assert np.allclose(C, [r["rollouts"] * scale for r in evals]), unit
        assert math.isclose(stats.budget_of(runs.read_run(log, unit=unit)), 200_000 * scale), unit
    assert stats.budget_of(read | dict(rollouts=read["rollouts"] / 2)) == 0  # cut by --epochs
    for metric, value in (("best@4", lambda c: c > 0), ("worst@4", lambda c: c == 4),
                          ("best@2", lambda c: 1 - (4 - c) * (3 - c) / 12)):
        got = runs.read_run(log, metric)["reward"]
        assert np.allclose(got, [[value(c) for c in r["correct"]] for r in evals]), metric
    with gzip.open(log.with_suffix(".jsonl.gz"), "wb") as file:
        file.write(log.read_bytes())
    log.unlink()
    assert len(runs.read_sweep(folder)[0]) == 3


def test_hours_of_thinned_logs():
    thinned = [dict(step=4, gen_s=1, train_s=2), dict(step=10, gen_s=2, train_s=0)]
    assert runs.hours_of(thinned, 2) == {0: 0, 4: 24 / 3600, 10: 48 / 3600}
    assert runs.hours_of([dict(step=4)], 1) == {}


def changed(**fields):
    return lambda r: r | fields if r["type"] == "eval" else r


def config_of(**keys):
    return lambda r: r | dict(config=r["config"] | keys) if r["type"] == "header" else r


BAD = {  # how a log is spoilt, and why its run is left out
    "no header": lambda r: None if r["type"] == "header" else r,
    "--seed=three: expected a whole number": config_of(seed="three"), "no B_p": config_of(B_p=None),
    "--lr_base=fast: expected a number": config_of(lr_base="fast"), "--C=16k": config_of(C="16k"),
    "--lr_scaling=by hand: expected one of sqrt": config_of(lr_scaling="by hand"),
    "fewer than two evaluations": lambda r: None if r["type"] == "eval" and r["step"] > 40 else r,
    "not counts": changed(correct=[5] * 20), "not counts from": changed(correct=[0.5] * 20),
    "differ in problems": lambda r: r | {k: [1] for k in ["correct"] if r.get("step", 0) > 300},
    "from 0 to 1": lambda r: {k: r[k] for k in r if k != "correct"} | {"avg@4": 1.2},
    "avg@4 = nan": lambda r: r | {"avg@4": math.nan} if r.get("step", 0) > 300 else r,
    "rollouts = -5": changed(rollouts=-5), "rollouts = inf": changed(rollouts=math.inf),
    "malformed": changed(correct=[[1], 2]), "other validation problems": changed(set_hash="other"),
    "another config: temperature=0.9": config_of(temperature=0.9),
    "other training problems": lambda r: r | {"train_set_hash": "x"} if "config" in r else r,
}


@pytest.mark.parametrize("why", BAD)
def test_a_run_that_cannot_be_compared_is_left_out(tmp_path, why):
    logs = write(tmp_path, C=200_000, evals=20, P=20, ns=(8, 32, 64, 128))
    edit(logs[32, 8, 0], BAD[why])
    used, dropped = runs.read_sweep(tmp_path)
    assert {r["n"] for r in used} == {32, 64, 128}
    assert [name for name, _ in dropped] == [logs[32, 8, 0].parent.name]
    assert why in dropped[0][1]


def test_the_training_problems_are_those_of_the_runs_with_the_usual_validation_problems(tmp_path):
    logs = write(tmp_path, C=200_000, evals=20, P=20, ns=(8, 16, 32, 64, 128, 256, 512))
    for (_, n, _), log in logs.items():  # three runs of one kind, two and two of others
        data, task = ("x", "a") if n < 64 else ("y", "b") if n < 256 else ("y", "c")
        edit(log, lambda r: r | dict(train_set_hash=data, set_hash=task))
    used, dropped = runs.read_sweep(tmp_path)
    assert {r["n"] for r in used} == {8, 16, 32} and len(dropped) == 4


def test_torn_lines_means_and_epochs(logs, tmp_path):
    log = logs[0][32, 8, 0]
    whole = log.read_text()
    log.write_text(whole + '{"type": "ev')  # another process is writing
    assert len(runs.read_sweep(logs[1])[0]) == 3
    log.write_text(whole)
    for path in logs[0].values():
        edit(path, lambda r: {k: v for k, v in r.items() if k != "correct"}
             | (dict(problems=20) if r["type"] == "eval" else {}))
    used, _ = runs.read_sweep(logs[1])
    assert all(r["reward"].shape[1] == 1 and r["problems"] == 20 for r in used)
    fit.main([f"--runs={logs[1]}"])
    t = stats.table(used)
    y, half = t.mean[0, -1], stats.half_width(t, 0, len(t.grid) - 1)
    assert half >= 1.645 * math.sqrt(y * (1 - y) / 20)
    for path in logs[0].values():
        edit(path, config_of(D=0))
    with pytest.raises(BadInput, match="no D"):
        runs.read_sweep(logs[1], epochs=3)
    for path in logs[0].values():  # the file has fewer problems than D
        edit(path, config_of(D=9000))
        edit(path, lambda r: r | dict(derived=dict(D=1000)) if r["type"] == "header" else r)
    for r in runs.read_sweep(logs[1], epochs=3)[0]:
        assert r["step"][-1] * 32 <= 3000 < (r["step"][-1] + 50) * 32
    last = runs.read_run(log)["step"][2]  # a pass that ends with an evaluation includes it
    for path in logs[0].values():
        edit(path, lambda r: r | dict(derived=dict(D=int(last) * 32)) if "derived" in r else r)
    used, _ = runs.read_sweep(logs[1], epochs=1)
    assert [r["step"][-1] for r in used if r["n"] == 8] == [last]
    edit(log, lambda r: r | dict(status="diverged") if r["type"] == "end" else r
         if r["type"] != "eval" or r["step"] <= last else None)
    t = stats.table(runs.read_sweep(logs[1], epochs=1)[0])  # it diverged after this epoch
    assert "diverged" not in {r["status"] for r in t.runs}
    rows = fit.table_rows(t, frontier.panel(t, range(len(t.cells))), 1e9, epochs=1)
    assert max(row["epochs"] for row in rows) <= 1 and rows[-2]["C"] <= t.grid[-1]


def test_of_two_runs_of_a_cell_the_longer_is_used(logs):
    log = logs[0][32, 8, 0]
    shutil.copytree(log.parent, log.parent.with_name("twin"))
    edit(log, lambda r: None if r.get("rollouts", 0) > 100_000 else r)
    used, dropped = runs.read_sweep(logs[1])
    assert [r["run"] for r in used if r["n"] == 8] == ["twin"]
    assert dropped == [(log.parent.name, "same cell and seed as twin")]
    save_json(logs[1] / "sweep.json", dict(config=parse(["--kl_coef=0.5"])))
    with pytest.raises(BadInput, match="no run of the experiment in sweep.json yet"):
        runs.read_sweep(logs[1])


# ---- core/stats.py -------------------------------------------------------------------------------

def test_on_grid_ends_falls_and_divergence():
    C = np.array([0, 1, 2, 4, 8, 16.0]) * 1000
    grid = np.array([500, 1000, 4000, 16_000, 19_000, 64_000.0])
    flat = run(8, 0, C, [0.2, 0.5, 0.5, 0.5, 0.5, 0.5])
    V = stats.on_grid(flat, grid, np.array([0.2]))[:, 0]
    assert np.isnan(V[[0, 5]]).all() and np.allclose(V[1:5], 0.5)
    fell = run(8, 0, C, [0.2, 0.5, 0.5, 0.5, 0.5, 0.1])
    assert stats.on_grid(fell, grid, np.array([0.2]))[3, 0] == pytest.approx(0.1)
    dead = run(8, 0, C, [0.2, 0.5, 0.5, 0.5, 0.5, 0.5], status="diverged")
    assert np.allclose(stats.on_grid(dead, grid, np.array([0.2]))[4:], 0.2)


def test_fit_cells_recovers_cells_and_noise():
    rng, S, N, P = np.random.default_rng(1), 200, 3, 40
    cell, seed = np.tile(np.arange(N), S), np.repeat(np.arange(S), N)
    mean, of_seed = np.array([0.3, 0.4, 0.6]), 0.1 * rng.standard_normal(S)
    A = (mean[cell] + of_seed[seed] + 0.02 * rng.standard_normal(N * S))[:, None, None] + (
        0.2 * rng.standard_normal((N * S, 1, P)))
    f = stats.fit_cells(A, cell, seed)
    assert np.allclose(f.each.mean((1, 2)), mean, atol=0.025)
    gaps = f.each[1:, 0].mean(1) - f.each[0, 0].mean()
    assert np.allclose(gaps, mean[1:] - 0.3, atol=0.016)  # paired, so without the seeds' noise
    assert f.runs[0, 0] / f.df == pytest.approx(0.02 ** 2 + 0.2 ** 2 / P, rel=0.2)
    assert f.rolls[0, 0] == pytest.approx(0.2 ** 2, rel=0.1)
    alone = stats.fit_cells(A[:3], cell[:3], seed[:3])  # one seed: no degrees of freedom
    assert alone.df == 0 and np.allclose(alone.each, A[:3])


def test_seeds_that_cover_a_part_of_the_grid():
    full = sweep(0, constant(32, 2), ns=(8, 32, 128), seeds=3, C=1_000_000)
    part = [r for r in full if not (r["n"] == 8 and r["seed"] == 2)]
    a, b = stats.table(full), stats.table(part)
    assert b.V.shape[0] == 8 and np.nanmax(np.abs(a.mean - b.mean)) < 0.03
    assert b.H[-1][0, 0] > b.H[-1][1, 1]  # n = 8 has fewer runs
    t = stats.table([r for r in full if r["seed"] < 2 or r["n"] == 128])
    H = t.H[-1][:2, :2]
    assert H[0, 1] > 0.01 and np.isclose(stats.difference(t, 0, 1, -1)[2] ** 2, t.var[-1] * (
        H.trace() - 2 * H[0, 1]), rtol=1e-6, atol=0)
    assert stats.verdict(b, [0, 1, 2])["p"] is not None


def test_a_cell_keeps_its_reward_beyond_its_last_run():
    C = np.geomspace(1000, 64_000, 13)
    short = run(8, 0, C[:7], np.linspace(0.3, 0.6, 7))
    t = stats.table([short, run(32, 0, C, np.linspace(0.2, 0.5, 13))])
    assert t.alive[0].sum() < t.alive[1].sum() and not t.alive[0, -1]
    assert t.mean[0, -1] == pytest.approx(0.6, abs=0.01)
    assert stats.best(t, -1, [0, 1]) == 0


def test_choice_uses_the_last_half_octave_and_a_quadratic():
    C = np.geomspace(1000, 64_000, 25)
    level = {2: 0.40, 4: 0.46, 8: 0.50, 16: 0.52, 32: 0.52, 64: 0.50}
    rows = [run(n, s, C, np.full(25, y) + 0.004 * (-1) ** s * (n > 8))
            for n, y in level.items() for s in (0, 1)]
    for r in rows:  # n = 2 has one lucky evaluation at the end
        if r["n"] == 2:
            r["reward"][-1] = 0.53
    t = stats.table(rows)
    last = len(t.grid) - 1
    assert t.choice[0, last] < t.mean[0, last] - 0.02
    assert t.cells[stats.best(t, last, range(6))][1] in (16, 32)
    # without curvature the choice is the mean over the last half octave
    near = (t.grid > t.grid[-1] / 2 ** 0.5)
    pair = stats.table([r for r in rows if r["n"] in (2, 64)])
    assert pair.choice[0, -1] == pytest.approx(pair.mean[0, near].mean())


def test_ties_and_intervals_have_their_level():
    tie = wrong = held = 0
    for draw in range(30):
        t = stats.table(sweep(draw, constant(32, 3), ns=(8, 32, 512), seeds=3, C=1_000_000,
                              evals=30, run_sd=0.01))
        j = len(t.grid) - 1
        found = {t.cells[i][1] for i in stats.tied(t, j, [0, 1, 2])}
        tie += 32 in found
        wrong += 512 in found
        truth = float(falls_off(32, np.array([1e6]), np.array([5.0]), 3)[0])
        held += abs(t.mean[1, j] - truth) <= stats.half_width(t, 1, j)
    assert tie >= 27 and wrong <= 3 and held >= 24


def test_held_out_rewards_have_no_winners_curse():
    naive, fair = [], []
    for draw in range(12):
        t = stats.table(sweep(draw, constant(size=0), ns=(8, 16, 32, 64, 128), seeds=3,
                              C=1_000_000, evals=20, run_sd=0.04))
        truth = float(falls_off(8, np.array([1e6]), np.array([3.0]), 0)[0])
        naive.append(np.nanmax(t.mean[:, -1]) - truth)
        fair.append(stats.heldout_reward(t, range(5))[-1] - truth)
    assert np.mean(naive) > 0.015 and np.mean(fair) < 0.4 * np.mean(naive)
    # a cell that only one seed ran has its own reward, not the next best cell's
    low, high = np.full((4, 8), 0.4), np.full((4, 8), 0.6)
    t = stats.table([run(4, s, [0, 100, 200, 400], low) for s in range(3)]
                    + [run(16, 0, [0, 100, 200, 400], high)])
    assert stats.heldout_reward(t, [0, 1])[-1] == pytest.approx(0.6)
    # n = 4 ended early: it is not tested, and the verdict names it
    t = stats.table([run(n, s, C, np.full((7, 8), 1 / n)) for n, C in (
        (4, np.arange(7) * 50), (8, np.arange(7) * 100), (16, np.arange(7) * 100)) for s in (0, 1)])
    said = fit.verdict_text(stats.verdict(t, [0, 1, 2]) | dict(curve=None))
    assert "without n = 4, which ended early" in said and "points behind it at C = " in said


@pytest.mark.parametrize("truth, ns, word", [
    (paper(3), (8, 32, 128, 512), "rises"), (constant(32, 3), (8, 32, 128), "undecided"),
    (constant(size=0), (8, 32, 128), "undecided"),
    (lambda B_p, n, C: 0.5 + 0.1 * ((n == 8) != ((C > 9e5) & (C < 1.8e6))), (8, 32), "undecided"),
    (lambda B_p, n, C: falls_off(n, C, 10 - law(C), 3), (4, 16, 64, 256), "falls")])
def test_verdicts(truth, ns, word):
    t = stats.table(sweep(1, truth, ns=ns, seeds=4, evals=60, seed_sd=0.01))
    found = stats.verdict(t, range(len(ns)))
    assert found["verdict"] == word and 0 <= found["p"] <= (1 if word == "undecided" else 0.05)
    if word == "rises":
        a, (first, *_, last) = found["ahead"], found["sets"]
        assert a["n"] in first and a["by"] in last and a["n"] < a["by"] and a["gap"] > a["half"] > 0
    assert re.search(rf"{word}.*\(p = (0\.\d+|1)", fit.verdict_text(found | dict(curve=None)))


def test_the_verdict_takes_each_n_at_its_own_lr():
    """n = 128 is best late at lr 2e-4 only, n = 8 at 1e-4. The lr is chosen on the other seeds."""
    rows = []
    for lr, good in ((1e-4, 8), (2e-4, 128)):
        for r in sweep(3, paper(3), ns=(8, 128), seeds=4, evals=60, seed_sd=0.01):
            loss = 0.0 if r["n"] == good else 0.06
            rows.append(r | dict(lr_base=lr, reward=r["reward"] - loss * (r["C"] > 0)[:, None]))
    t = stats.table(rows)
    both, *one = (stats.verdict(t, of) for of in ([0, 1, 2, 3], [0, 2], [1, 3]))
    assert both["verdict"] == "rises" and [v["verdict"] for v in one] != ["rises", "rises"]
    A, n, seed, C = stats.windows(t, range(4))
    assert A.shape[0] == 8 and sorted(set(n)) == [8, 128]
    best = {(r["n"], r["seed"]): r for r in rows
            if (r["lr_base"], r["n"]) in ((1e-4, 8), (2e-4, 128))}
    late = best[128, 0]["reward"][best[128, 0]["C"] >= C[-1][0]].mean()
    assert A[(n == 128) & (seed == 0)][0, -1].mean() == pytest.approx(late, abs=0.02)
    # the seed that is scored does not choose: its own luck at the wrong lr is not taken
    lucky = [dict(r, reward=r["reward"] + 0.3) if (r["n"], r["lr_base"], r["seed"]) == (8, 2e-4, 0)
             else r for r in rows]
    B = stats.windows(stats.table(lucky), range(4))[0]
    assert np.allclose(B[(n == 8) & (seed == 0)], A[(n == 8) & (seed == 0)])


def test_what_the_test_cannot_use():
    y = np.array([0, 9, 0, 0, 0, 9.0])  # n = 8 leads in the middle window, n = 32 in the last
    assert stats.law_test(3, y, np.eye(6), 0 * np.eye(6), 30)[0] < 0.05
    assert stats.variances(np.ones((1, 1)), [[1]], [[-2]]) == (1, -0.8)  # estimates below 0
    one_n = stats.table(sweep(0, paper(), ns=(32,), seeds=2))
    assert stats.verdict(one_n, [0])["p"] is None
    short = stats.table(sweep(0, paper(), ns=(8, 512), seeds=2, C=60_000, evals=6))
    assert stats.verdict(short, [0, 1])["p"] is None  # n = 512 begins at C / 3.6
    full = sweep(0, paper(2), ns=(8, 32, 128), seeds=3)
    cut = [r | {k: r[k][:20] for k in ("C", "reward", "rollouts", "step")} if
           (r["n"], r["seed"]) == (8, 1) else r for r in full]
    A, n, seed, C = stats.windows(stats.table(cut), range(3))
    assert len(A) == 8 and C[-1][1] == pytest.approx(4_000_000, rel=0.01)  # the cut run is left out


# ---- frontier.py ---------------------------------------------------------------------------------

def test_record_breaking_points():
    y = np.c_[[0.2, 0.2, 0.204, 0.21, 0.1, 0.2149, 0.3]]  # the first one is at C = 0
    assert frontier.records(dict(C=np.arange(7), reward=y)) == [(3, 0.21), (6, 0.3)]


def test_sigmoids_and_n_star_of_the_paper():
    C = np.geomspace(1e4, 4e6, 60)
    y = frontier.sigmoid(np.log10(C), 0.3, 0.4, 3, 5.5)
    assert np.allclose(frontier.fit_curve(C, y), (0.3, 0.4, 3, 5.5), rtol=1e-3)
    rows = [run(n, 0, C, frontier.sigmoid(np.log10(C), 0.2, top, 3, 5 + 0.2 * i))
            for i, (n, top) in enumerate({8: 0.3, 16: 0.4, 32: 0.5}.items())]
    rows.append(run(32, 0, C, np.linspace(0.1, 0.2, 60), B_p=64))  # worse than with B_p = 32
    star = frontier.n_star(rows)
    curves = np.array([frontier.sigmoid(np.log10(star["C"]), 0.2, top, 3, 5 + 0.2 * i)
                       for i, top in enumerate((0.3, 0.4, 0.5))])
    fits = np.array([star["curves"][n] for n in (8, 16, 32)])
    assert (fits.argmax(0) == curves.argmax(0)).mean() > 0.95 and star["n"][-1] == 32
    assert np.allclose(fits.max(0), curves.max(0), atol=2e-3)
    assert sum(frontier.fit_curve(C, np.linspace(0.1, 0.99, 60))[:2]) <= 1 + 1e-9
    flat = run(8, 0, C, np.minimum(np.log10(C) / 10, 0.5))  # no record after C = 1e5
    assert frontier.n_star([flat])["curves"][8][-1] < 0.52


def test_n_star_lies_between_the_n_that_ran():
    x = np.log2([8, 32, 128])
    curves = {n: np.array([0.5 - 0.01 * (u - 5.6) ** 2]) for n, u in zip((8, 32, 128), x)}
    assert np.log2(frontier.interpolate_n(curves)[0]) == pytest.approx(5.6)
    edge = {n: np.array([float(u)]) for n, u in zip((8, 32, 128), x)}
    assert frontier.interpolate_n(edge)[0] == 128


def test_views_are_ways_to_group_cells(tmp_path, capsys, figures):
    write(tmp_path, ns=(8, 16, 32), B_ps=(8, 16), C=400_000, evals=20, P=40)
    for view, panels in (("fixed_Bp", ["B_p=8", "B_p=16"]), ("joint", ["joint"]),
                         ("fixed_B", ["B=128", "B=256"])):
        text = page(capsys, frontier.main, f"--runs={tmp_path}", f"--view={view}")
        assert "6 runs used, 0 dropped" in text and all(f"\n{p}: best B_p" in text for p in panels)
        name = "frontier" if view == "fixed_Bp" else f"frontier_{view}"
        with open(tmp_path / f"{name}.csv") as file:
            rows = list(csv.DictReader(file))
        assert list(dict.fromkeys(r["panel"] for r in rows)) == panels
        B_p, n, C = (float(rows[-1][key]) for key in ("B_p", "n", "C"))
        assert f", {B_p:.0f} x {n:.0f} at {plots.format_si(C)} " in text
        for top in figures[-1].axes[:len(panels)]:
            bottom, high = top.get_ylim()
            band = top.collections[0].get_paths()[0].vertices[:, 1]
            drawn = np.concatenate([band, *(line.get_ydata() for line in top.lines)])
            assert bottom <= drawn.min() and drawn.max() <= high
            dots = [line for line in top.lines if line.get_marker() == "."]  # of each run once
            assert len(dots) == sum(line.get_label()[:4] == "n = " for line in top.lines)
        labels = [text.get_text()[:4] for text in figures[-1].legends[0].texts]
        assert "n = " not in labels[labels.count("n = "):]
        border = imread(tmp_path / f"{name}.png")[:, [0, -1], :3]
        assert border.min() == 1  # no text is cut off at a side
        said = page(capsys, fit.main, f"--runs={tmp_path}", f"--view={view}")
        assert "python train_grpo.py" in said
        assert ("not tested, because cells of" in said) == (view != "fixed_Bp")
    assert "--B_p=8 --n=32 --C=" in said and "(8, 32)" in said  # of the largest B
    for row in rows:  # fixed_B counts updates, within the batch
        assert int(row["B_p"]) * int(row["n"]) <= int(row["panel"][2:])
        assert float(row["C"]) <= 400_000 / 64
    p = frontier.panel(t := stats.table(used := runs.read_sweep(tmp_path, unit="updates")[0],
                                        [r["C"][-1] for r in used]), range(len(t.cells)), True)
    assert p["rows"][-1]["C"] == p["star"]["C"][-1] == 400_000 // (16 * 32)  # the largest batch
    page(capsys, frontier.main, f"--runs={tmp_path}", "--view=training")
    assert [len(line.get_xdata()) for line in figures[-1].axes[0].lines] == 6 * [20]
    with pytest.raises(BadInput, match="one lr_base"):
        frontier.main([f"--runs={tmp_path}", "--view=lr"])
    save_json(tmp_path / "sweep.json", dict(config=used[0]["config"]))  # has only lr_base=1e-6
    write(tmp_path, lambda B_p, n, C: 0.3 + 0.4 * (n == 8) + 0 * C, ns=(8, 16, 32), B_ps=(8, 16),
          C=400_000, evals=20, P=40, words=["--lr_base=2e-6"])
    text = page(capsys, frontier.main, f"--runs={tmp_path}", "--view=lr")
    for n, lr in ((8, 2), (16, 1), (32, 1)):
        assert text.count(f"n = {n}: lr_base = {lr}e-06, tied: {lr}e-06\n") == 2


def test_the_frontier_hands_over_where_it_was_planted(tmp_path):
    t = stats.table(sweep(0, paper(4), ns=(8, 32, 128), seeds=3, evals=80))
    p = frontier.panel(t, [0, 1, 2])
    ns = [row["n"] for row in p["rows"]]
    assert ns == sorted(ns) and set(ns) == {8, 32, 128}
    _, [[ax]] = plots.canvas(1, 1, (3, 3))
    plots.draw_n(ax, t, p)
    assert next(x for x in ax.lines if x.get_label() == "best n").get_ydata().tolist() == ns
    for a, b in zip(ns, p["rows"][1:]):
        middle = (math.log2(a) + math.log2(b["n"])) / 2  # a wrong n costs more above than below
        at = np.interp(middle, law(np.geomspace(1e5, 4e6, 500)), np.geomspace(1e5, 4e6, 500))
        assert a == b["n"] or at / 1.5 < b["C"] < 3 * at
    assert all(row["lo"] <= row["reward"] <= row["hi"] for row in p["rows"])


def test_numbers_of_a_mixed_sweep():
    """All numbers of the table, the frontier and the report, as they were when the benchmarks on
    planted and real sweeps were made with them. The sweep has two B_p, two lr_base for larger n,
    and n = 8 that ended early."""
    rows = sweep(1, paper(2), ns=(8, 32, 128), evals=20, P=60)
    rows += sweep(1, paper(2), ns=(16, 64), B_p=16, seeds=2, evals=20, P=60)
    rows += [r | dict(lr_base=2e-6, reward=r["reward"] * (0.96 + r["seed"] / 100))
             for r in rows[3:9]]
    for r in rows[:3]:
        r |= {key: r[key][:13] for key in ("C", "rollouts", "step", "hours", "reward")}
        r["status"] = ""
    for r in rows:
        r["config"] |= dict(n_train=8)
        r["D"] = 500
    t, j = stats.table(rows), 30

    def equal(got, *want):
        assert np.allclose(np.hstack(got), want, rtol=2e-4, atol=2e-5), np.round(np.hstack(got), 5)
    equal([t.var[j], t.within[j], t.df[j], t.rolls[j]], 0.00030236, 0.00044764, 13, 0.027381)
    equal(t.mean[:, j], 0.59132, 0.60672, 0.57475, 0.60872, 0.59053, 0.64563, 0.62634)
    equal(t.choice[:, j], 0.59581, 0.61762, 0.56855, 0.58098, 0.56372, 0.62489, 0.60626)
    five = stats.table(sweep(2, paper(2), seeds=2, evals=20, P=400))  # enough cells for the pull
    equal([stats.half_width(five, 0, j), *five.choice[:, j]],
          0.035623, 0.56292, 0.6033, 0.62204, 0.60035, 0.53695)
    equal(stats.difference(t, 1, 3, j), -0.002009, 0.0091293, 0.016188)
    equal([stats.half_width(t, i, j) for i in range(7)],
          0.059887, 0.06568, 0.057305, 0.058023, 0.05645, 0.058288, 0.056683)
    assert [stats.tied(t, k, range(7)) for k in (10, 30, -1)] == [
        [0, 2, 3, 4], [1, 3, 5, 6], [1, 5, 6]]
    p, of = frontier.panel(t, range(7)), [i for i, c in enumerate(t.cells) if c[0] == 32]
    equal([p["rows"][k][key] for key in ("reward", "lo", "hi") for k in (10, 30, -1)],
          0.541, 0.65047, 0.68333, 0.48003, 0.59218, 0.62396, 0.60196, 0.70876, 0.74271)
    assert [n for n, _ in itertools.groupby(row["n"] for row in p["rows"])] == [
        8, 32, 64, 128, 64, 128]
    law = stats.verdict(t, of)
    assert abs(law["p"] - 0.0763) < 0.01
    assert law["sets"] == [[32], [32], [32, 128], [32, 128]]
    equal([law["ahead"]["gap"], law["ahead"]["half"]], 0.028586, 0.031654)
    assert frontier.groups(t, "fixed_B") == {'B=256': [0, 2], 'B=1024': [0, 1, 2, 3, 4]}
    assert frontier.panel(t, [0, 2], whole=True)["rows"][-1]["C"] == pytest.approx(4e+06, rel=1e-3)
    equal([fit.law_of(t, p, "joint")["plateau"]], 75.355)
    assert "about 3 more seeds" in fit.verdict_text(law | dict(seeds=10, curve=None))
    rows = [fit.prescribe(t, p, C) for C in (3e5, 2e6, 9e6)]
    assert [(r["n"], r["M"], r["status"]) for r in rows] == [
        (8, 1171, "observed"), (128, 488, "observed"), (128, 2197, "extrapolated")]
    equal([r["epochs"] for r in rows] + [1e6 * r["lr"] for r in rows],
          74.944, 31.232, 140.61, 0.5, 0.5, 0.5)


# ---- fit_sigmoid.py ------------------------------------------------------------------------------

@pytest.mark.parametrize("numbers", [EASY, (4.47, 7.23, 5.84, 2.79)])
def test_the_law_of_digitised_points(numbers):
    C = np.geomspace(3e5, 4e6, 30)
    L, k, x0, b = numbers
    found = fit.fit_law(C, 2 ** law(C, numbers))
    assert np.allclose([found[key] for key in ("L", "k", "x0", "b")], numbers, rtol=0.02)
    assert found["plateau"] == pytest.approx(2 ** (L + b), rel=0.02) and not found["why"]
    assert np.allclose(found["curve"](C), law(C, numbers), atol=0.01)


@pytest.mark.parametrize("n, why", [
    ([8] * 12, "less than half an octave"), ([8] * 6 + [64] * 6, "fewer than three"),
    (2 ** np.linspace(3, 8, 12), "bound|before the bend"), ([8, 16], "fewer than five"),
    (2 ** (3 + 4 / (1 + np.exp(-3 * (np.linspace(4, 6, 12) - 3.8)))), "after the bend")])
def test_points_that_determine_no_law(n, why):
    found = fit.fit_law(np.geomspace(1e4, 1e6, len(n)), np.array(n, float))
    assert re.search(why, found["why"]) and found["curve"] is None


def test_the_law_of_a_planted_rise():
    t = stats.table(sweep(0, paper(4), ns=(8, 32, 128, 512), seeds=3, evals=80))
    found = fit.law_of(t, frontier.panel(t, range(4)), "fixed_Bp")
    assert found["verdict"] == "rises" and "rises" in fit.verdict_text(found)
    if found["curve"]:
        low, high = found["plateau_range"]
        assert 0.8 * found["plateau"] < low <= found["plateau"] <= high
        assert low < high and 64 < found["plateau"] < 1024


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """Return a sweep of three n and two seeds with a planted rise."""
    folder = tmp_path_factory.mktemp("swept")
    made = write(folder, paper(4), (8, 16, 128), seeds=(0, 1), P=200, words=["--D=1000"])
    for (*_, seed), log in made.items():
        edit(log, lambda r: r | dict(train_set_hash=seed) if r["type"] == "header" else r)
    return folder


def test_the_report(swept, capsys):
    text = page(capsys, fit.main, f"--runs={swept}", "--C=1e6")
    lines = text.splitlines()
    assert lines[0] == "Does the best n rise with the budget?" and lines[1].startswith("  B_p = 32")
    rows = [line.split() for line in lines if re.match(r" +[\d.]+[kM]\*? +\d", line)]
    assert [r[0] for r in rows] == ["250k", "500k", "1M", "2M", "4M*", "8M*"]
    for r in rows:
        B_p, n, M = int(r[1]), int(r[2]), int(r[3])
        C = {"k": 1e3, "M": 1e6}[r[0].strip("*")[-1]] * float(r[0].strip("*")[:-1])
        assert M == C // (B_p * n) and float(r[4]) == pytest.approx(M * B_p / 1000, rel=0.01)
        assert float(r[5]) == pytest.approx(1e-6 * math.sqrt(B_p * n / 1024), rel=0.05)
        assert ("not" in r) == r[0].endswith("*")
    ns = [int(r[2]) for r in rows]
    assert ns == sorted(ns) and ns[0] < ns[3] == 128
    at = next(i for i, line in enumerate(lines) if line.startswith("To run the row of 1M"))
    command = lines[at + 1].split()
    cfg = parse([word for word in command if word.startswith("--")])
    assert cfg["n"] == ns[2] and cfg["C"] == 1e6 // (32 * cfg["n"]) * 32 * cfg["n"]
    page(capsys, frontier.main, f"--runs={swept}", "--view=joint")
    table, joint = ([*csv.DictReader((swept / f"{name}.csv").read_text().splitlines())]
                    for name in ("prescription", "frontier_joint"))
    assert joint[-1]["tied"] == table[3]["tied"] and joint[-1]["n"] == table[3]["n"]
    assert {r["panel"] for r in table} == {"joint"} and [int(r["n"]) for r in table] == ns
    assert [r["tied"] for r in table] == [line.split("]")[-1].split(None, 1)[-1] for line in lines
                                          if re.match(r" +[\d.]+[kM] ", line)] + ["", ""]
    assert not re.search(r"\b(nan|inf|None)\b", text)


def test_what_would_make_the_answer_surer(swept, capsys, tmp_path):
    text = page(capsys, fit.main, f"--runs={swept}", f"--out={tmp_path}")
    assert "n = 128 is the largest that ran with B_p = 32; add n = 512" in text  # not 128 * 8
    line = next(x for x in text.splitlines() if "bash run_sweep.sh" in x)
    assert "--ns=512" in line and "'--seeds=0 1'" in line and f"--runs={swept}" in line
    for word in ("--unit=tokens", "--epochs=40"):  # budgets of runs are rollouts, of all epochs
        said = page(capsys, fit.main, f"--runs={swept}", f"--out={tmp_path}", word)
        assert "To run the row" in said and "run_sweep.sh" not in said
    t = stats.table(sweep(5, constant(size=0.3), ns=(8, 16, 32), seeds=2, C=1_000_000, evals=30))
    p = frontier.panel(t, [0, 1, 2])
    row = fit.prescribe(t, p, t.grid[-1]) | dict(cell=1, n=16, tied=[1, 2])
    t.runs[0]["config"] = parse([])
    found = fit.surer(t, p, row, "runs/x")
    assert "9 more seeds" in found[0] and "--seeds=2 3 4" in found[1]
    for tied in ([0, 1], [0, 1, 2]):  # n = 8 is closer, more than 20 seeds away
        assert fit.surer(t, p, row | dict(tied=tied), "runs/x") is None
    t.runs[0]["config"] = parse(["--B_max=256"])  # the next n, 64, times 32 is above it
    found = fit.surer(t, p, row | dict(cell=2, n=32), "runs/x")[1]
    assert [c["n"] for c in cells(sweep_config("easy", shlex.split(found)[3:]))] == [64, 64]
    # the preset of this folder has another model
    assert "--model=data/arithmetic/base" in fit.surer(t, p, row | dict(cell=2, n=32), "runs/x")[1]


@pytest.mark.parametrize("planned", [True, False])
def test_the_command_that_adds_runs_to_a_sweep(tmp_path, planned):
    """The new runs are of the same experiment, and no cell above B_max is among them."""
    cfg = sweep_config("hard", [
        "--data=data/gsm8k", "--kl_coef=0.25", "--keep_at=1e3", "--B_max=256", "--split=all",
        "--n_val=40", "--bps=8 16", "--ns=4 32", "--C=9000", "--lrs=1e-4", f"--runs={tmp_path}"])
    save_json(tmp_path / ("sweep.json" if planned else "other.json"), dict(config=cfg))
    found = sweep_command(tmp_path, dict(cfg, lr_base=1e-4), 8999.5, 0, bps=[8, 16], ns=[32, 4],
                          seeds=range(5, 7))
    assert "--split=all" in command(cfg) and "_set=" not in command(cfg)
    start, again = shlex.split(found)[:3], sweep_config("hard", shlex.split(found)[3:])
    assert start == ["bash", "run_sweep.sh", "hard"] and experiment(again) == experiment(cfg)
    for key, value in dict(C=8999, B_max=256, keep_at="1e3", runs=str(tmp_path)).items():
        assert again[key] == value, key
    assert not planned or (again["split"], again["n_val"]) == ("all", 40)
    assert {(c["B_p"], c["n"], c["seed"], c["lr_base"]) for c in cells(again)} == {
        (B_p, n, seed, 1e-4) for B_p, n in ((8, 4), (8, 32), (16, 4)) for seed in (5, 6)}


def test_cautions():
    C = np.geomspace(1000, 64_000, 20)
    rise, fall = np.linspace(0.3, 0.7, 20), np.linspace(0.7, 0.5, 20)
    rows = [run(8, s, C, np.append(rise[::2], fall[::2]), problems=20) for s in (0, 1)]
    t = stats.table([r | dict(reward=np.repeat(r["reward"], 20, 1)) for r in rows])
    said = [*fit.cautions(t, dict(cell=0, budget=len(t.grid) - 1))]
    assert len(said) == 1 and "points better at C = " in said[0]
    for asked, noise in ((0, True), (20, False), (100_000, True)):  # logs with means only
        means = stats.table([r | dict(problems=asked) for r in rows])
        said = [*fit.cautions(means, dict(cell=0, budget=len(t.grid) - 1))]
        found = [any(word in text for text in said) for word in ("stop there", "`problems`")]
        assert found == [noise, not asked]
    early = stats.table([run(8, 0, C[:9], rise[:9]), run(16, 0, C, rise / 3)])
    row = fit.prescribe(early, frontier.panel(early, [0, 1]), C[-1])
    assert any("its last reward counts" in text for text in fit.cautions(early, row))
    assert " 64k* " in [*fit.table_lines(early, [row], "C")][1] and row["n"] == 8
    dead = [run(8, 0, C[:9], rise[:9], status="diverged"), run(16, 0, C, rise)]
    assert stats.table(dead).mean[0, -1] == pytest.approx(0.3)  # without an evaluation at C = 0
    said = [*fit.cautions(stats.table(dead), dict(cell=0, budget=5))]
    assert all(any(word in text for text in said) for word in ("1 run diverged", "one seed"))
    for solved in (0, 1):
        t = stats.table([run(n, s, C, 0 * C + solved, problems=9) for n in (8, 16) for s in (0, 1)])
        assert frontier.panel(t, [0, 1])["rows"][-1][("lo", "hi")[solved]] == solved
        assert [*fit.cautions(t, dict(cell=0, budget=5))] == [
            f"the reward is always {solved}, so no n is better than another"]


def test_cost_that_grows_during_training():
    """Tokens and hours per rollout grow, so a quarter of the tokens buys half of the updates."""
    done = 256.0 * np.arange(1, 11)
    t = stats.table([run(8, s, done ** 2, np.linspace(0.3, 0.6, 10), rollouts=done,
                         hours=done ** 2 / 1e6) for s in (0, 1)])
    row = fit.prescribe(t, frontier.panel(t, [0]), 1.1 * done[4] ** 2)
    assert row["M"] == 5 and row["hours"] == pytest.approx(1.6384)
    # n = 16 is best, costs a third and so ends first; one of its runs has no times
    quick = [run(n, s, done * cost, 0.1 * (n == 16) + np.linspace(0.3, 0.6, 10), B_p=8,
                 rollouts=done, hours=done * cost * (s < n)) for n, cost in ((8, 3), (16, 1))
             for s in (0, 1, 16)]
    t = stats.table(quick)
    row, more = (fit.prescribe(t, frontier.panel(t, [0, 1]), C) for C in (2560 * 3, 2560 * 12))
    assert (row["n"], row["M"], row["hours"], row["status"]) == (16, 20, 2560, "observed")
    assert (more["n"], more["M"], more["hours"]) == (16, 240, 2560 * 12)


def test_a_budget_below_the_first_evaluation_has_no_reward(swept):
    t = stats.table(runs.read_sweep(swept)[0])
    p = frontier.panel(t, [0, 1, 2])
    for C, status in ((2e4, "extrapolated"), (p["rows"][0]["C"], "observed"), (2e6, "observed"),
                      (2.4e6, "extrapolated")):
        row = fit.prescribe(t, p, C)
        assert row["status"] == status and (row["reward"] == "") == (status != "observed"), C
    assert fit.prescribe(t, p, 10) is None


def test_budgets_that_no_run_covers():
    """One run of a cell ends before the other is first evaluated, as in logs of resumed runs."""
    t = stats.table([run(8, s, C * np.arange(1, 7), np.linspace(0.3, 0.6, 6))
                     for s, C in ((0, 1e3), (1, 2e4))])
    p = frontier.panel(t, [0])
    between = (t.grid > 8e3) & (t.grid < 2e4)
    assert between.any() and np.isnan(t.mean[0, between]).all()
    assert all(np.isfinite(row["reward"]) and not between[row["budget"]] for row in p["rows"])
    t = stats.table([run(n, 0, C * np.arange(1, 7), np.ones(6)) for n, C in ((4, 1e3), (64, 2e4))])
    assert fit.prescribe(t, frontier.panel(t, [0, 1]), 12e3)["status"] == "extrapolated"


def test_points_of_a_file(tmp_path, capsys, figures):
    path = tmp_path / "mine.csv"
    C = np.geomspace(1e5, 4e6, 12)
    path.write_text("# n*(C)\nn,C\n" + "".join(f"{2 ** law(c)},{c}\n" for c in C[::-1]))
    text = page(capsys, fit.main, f"--points={path}", "--C=1e6")
    assert "plateau n = 45" in text and "1M: B_p = 32, n = 118," in text and "C = 16M" in text
    assert (tmp_path / "law_mine.png").exists()
    line = next(x for x in figures[0].axes[0].lines if x.get_label() == "fitted law")
    assert np.allclose(np.log2(line.get_ydata()), law(line.get_xdata()), atol=0.02)
    assert {*figures[0].axes[0].get_yticks()} <= {2 ** k for k in range(9)}
    for word in ("--B_p=0", "--B_p=x", "--C=0", "--C=inf", "--C=nan", "--n=4", "--points=x.csv"):
        with pytest.raises(SystemExit):
            fit.main([f"--points={path}", word])
        assert word.partition("=")[2] in capsys.readouterr().err
    path.write_text("C,n\n" + "".join(f"{c},0.3\n" for c in C))
    assert "n = 1, M = 31250 (n of" in page(capsys, fit.main, f"--points={path}", "--C=1e6")
    for content, why in (("C,n\n1,2\n", "five or more"), ("a,b\n1,2\n", "columns C and n"),
                         ("C,n\n" + "0,2\n" * 6, "above 0"), ("C,n\n1,x\n", "numbers")):
        path.write_text(content)
        with pytest.raises(SystemExit):
            fit.main([f"--points={path}"])
        assert why in capsys.readouterr().err


# ---- Sweeps as users have them -------------------------------------------------------------------

def test_one_n_and_one_seed_and_nine_n(tmp_path, capsys, figures):
    for name, ns in (("one", (32,)), ("nine", (2, 4, 8, 16, 32, 64, 128, 256, 512))):
        folder = tmp_path / name
        write(folder, ns=ns, C=400_000, evals=12, P=20)
        assert f"{len(ns)} run" in page(capsys, frontier.main, f"--runs={folder}")
        text = page(capsys, fit.main, f"--runs={folder}")
        assert "undecided" in text and ("with one seed" in text) == (len(ns) > 1)
    assert [*figures[-1].axes[0].get_yticks()] == [2, 8, 32, 128, 512]  # others would overlap


def test_bad_sweeps_end_in_one_line(tmp_path, logs):
    (tmp_path / "empty").mkdir()
    write(tmp_path / "begun", ns=(8,), C=2000, evals=1)
    edit(next(tmp_path.glob("begun/*/log.jsonl")), lambda r: r if r.get("step", 0) == 0 else None)
    for words, why in ((["--runs=nowhere"], "no run to analyse"),
                       ([f"--runs={tmp_path / 'begun'}"],
                        "begun.*no run to analyse.*fewer than two evaluations"),
                       ([f"--runs={tmp_path / 'empty'}"], "no run to analyse"),
                       ([f"--runs={logs[1]}", "--metric=best@9"], "needs 9 rollouts"),
                       ([f"--runs={logs[1]}", "--eval_set=aime"], "evaluations of `aime`"),
                       ([f"--runs={logs[1]}", "--view=fixed_B", "--B_max=7"], "same batch")):
        for main in (frontier.main, fit.main):
            with pytest.raises(BadInput, match=why) as e:
                main(words)
            assert "\n" not in str(e.value)
    for word, why in (("--C=10", "below one update"), ("--C=-1", "0 or more"),
                      ("--view=training", "drawn by frontier.py")):
        with pytest.raises(BadInput, match=why):
            fit.main([f"--runs={logs[1]}", word])


def test_numbers_as_text_and_colours():
    for x, text in ((49152, "49.2k"), (1e6, "1M"), (999_600, "1M"), (12.34, "12.3"),
                    (2.5e9, "2.5B"), (3e22, "3e+22")):
        assert plots.format_si(x) == text
    assert len({plots.colour(n) for n in (2, 3, 4)}) == 3
    assert plots.plural(1, "run") == "1 run" and plots.plural(2, "run") == "2 runs"


def test_the_report_of_the_committed_runs_by_another_metric(capsys, tmp_path):
    text = page(capsys, fit.main, f"--runs={ROOT / 'results/easy'}", f"--out={tmp_path}",
                "--metric=reward", "--C=1e6")
    assert "reward = val reward" in text and "1M*" in text and "To be surer" not in text
    text = page(capsys, fit.main, f"--runs={ROOT / 'results/easy'}", f"--out={tmp_path}",
                "--unit=gpu_hours", "--C=0.0021")
    assert re.search(r"\n +0\.0021 +8 ", text)  # hours need not be a whole number
