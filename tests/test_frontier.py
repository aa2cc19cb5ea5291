"""frontier.py and tools/views.py: the paper's path and every view on planted sweeps."""
import json
import math
import re
from pathlib import Path
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.text import Text

import frontier
import simulate as sim
from config import config
from core import plots
from simulate import analyse, bad, edit, ends_at, simulate
from tools import views

ROOT = Path(__file__).resolve().parent.parent


# --------------------------------------------------------------------------------------------------
# The paper's path

def slow_records(reward, width=.005):
    """Return which rewards are in a higher bin than all before them, a list of E bools."""
    bins = [math.floor(round(r / width, 6)) for r in reward]
    return [all(b > earlier for earlier in bins[:i]) for i, b in enumerate(bins)]


def test_records_of_a_run_and_of_all_runs_against_slow_loops():
    example = frontier.record_breaking([.501, .504, .512, .508, .516], .005)
    assert example.tolist() == [True, False, True, False, True]
    # rewards exactly on the edges of bins
    assert frontier.record_breaking(np.arange(201) / 200, .005).all()
    rng, runs, points = np.random.default_rng(1), [], []
    for n in (2, 4, 8, 16, 4):  # n = 4 has two seeds; some budgets are equal
        C = np.sort(rng.choice(12, 9, replace=False)) * 100.0
        reward = np.round(C / 3000 + 0.1 * rng.random(9), 3)
        runs.append(sim.plain_run(n, len(runs), C, reward))
        assert frontier.record_breaking(reward, .005).tolist() == slow_records(reward)
        points += [(c, r, n) for c, r, yes in zip(C, reward, slow_records(reward)) if yes]
    points.sort(key=lambda p: (p[0], -p[1], p[2]))
    keep = slow_records([r for _, r, _ in points])
    want = [p for p, yes in zip(points, keep) if yes and p[0] > 0]  # the base model is not a point
    got = frontier.pooled_records(runs, .005)
    assert list(zip(got["C"], got["reward"], got["n"])) == want
    assert len(want) > 5 and len({n for _, _, n in want}) > 2
    logs = [math.log2(n) for _, _, n in want]
    means = [np.mean(logs[max(i - 2, 0):i + 3]) for i in range(len(logs))]
    assert got["log2_n_mean"] == pytest.approx(means)


def test_the_fitted_sigmoid_is_the_planted_one_and_never_falls():
    C = np.linspace(2e4, 1e6, 40)
    want = np.array([0.3, 0.25, 3.0, math.log10(1e5)])
    got = frontier.fit_curve(C, frontier.sigmoid(np.log10(C), *want))
    assert got == pytest.approx(want, rel=0.01)
    rng, C = np.random.default_rng(0), np.geomspace(1e3, 1e6, 25)
    x = np.linspace(2, 7, 500)
    for i in range(20):
        # the rewards of the first run only decline
        R = rng.random(25) if i else np.linspace(0.9, 0.1, 25)
        low, rise, k, x0 = frontier.fit_curve(C, R)
        y = frontier.sigmoid(x, low, rise, k, x0)
        assert (np.diff(y) >= -1e-12).all() and rise >= 0 and 2.5 <= x0 <= 6.5
        assert low + rise <= 1 + 1e-9  # no reward is above 1
        if not i:
            assert np.ptp(y[(x > 3) & (x < 6)]) < 1e-3 and y.mean() == pytest.approx(0.5, abs=0.01)
    assert np.isfinite(frontier.fit_curve(np.array([1e4, 2e4]), np.array([.3, .4]))).all()
    # points that only steepen do not determine the final height
    low, rise, _, _ = frontier.fit_curve(C, 0.2 + 0.7 * np.linspace(0, 1, 25) ** 3)
    assert 0.9 < low + rise <= 1 + 1e-9


def test_the_sigmoid_is_the_best_that_many_starts_find():
    from scipy.optimize import least_squares
    rng, C = np.random.default_rng(4), np.linspace(2e4, 1e6, 25)
    x = np.log10(C)
    low, high = [-1, -1, .5, x[0] - .5], [1, 1, 50, x[-1] + .5]

    def miss(p, R):  # of low, high, k, x0
        return frontier.sigmoid(x, p[0], max(p[1] - p[0], 0), *p[2:]) - R
    for i in range(6):
        R = sim.truth(32, 16, C) if i % 2 else sim.sigmoids(32, 64, C)
        R = R + rng.normal(0, 0.02, 25)
        ours = ((frontier.sigmoid(x, *frontier.fit_curve(C, R)) - R) ** 2).sum()
        theirs = min(2 * least_squares(miss, rng.uniform(low, high), bounds=(low, high),
                                       args=(R,)).cost for _ in range(15))
        assert ours <= theirs * 1.01, i


@pytest.mark.parametrize("truth,ns", [(sim.paper(2), (8, 32, 128, 512)),
                                      (sim.sigmoids, (8, 64, 512))])
def test_n_star_of_the_paper_is_the_planted_one(truth, ns):
    """Near a crossing the curves of two neighbouring n are equal, so either n may be found."""
    runs = sim.sweep(3, truth, ns=ns, seeds=3, evals=60)
    found = frontier.n_star(runs)
    assert found["cells"] == [(32, n) for n in ns] and found["curves"].shape == (len(ns), 81)
    assert found["n"].tolist() == [ns[i] for i in found["curves"].argmax(0)]
    want = np.array([truth(32, n, found["C"]) for n in ns])
    best = np.array(ns)[want.argmax(0)]
    right = found["n"] == best
    crossings = [sim.crossing(truth, 32, a, b) for a, b in zip(ns, ns[1:])]
    crossings = np.array([C for C in crossings if C])
    for C, got, n in zip(found["C"][~right], found["n"][~right], best[~right]):
        assert abs(ns.index(got) - ns.index(n)) == 1, (C, got, n)
        assert abs(np.log(crossings / C)).min() < math.log(2), (C, got, n)
    assert right.mean() > 0.75 and len(set(best)) > 2
    # budgets can be given, and a run may have no record above the base model
    some = frontier.n_star(runs, C=np.array([1e5, 1e6]))
    assert some["curves"].shape == (len(ns), 2)
    flat = [sim.plain_run(2, 0, [0, 1e4, 2e4, 4e6], [.5] * 4), *runs]
    assert 2 not in frontier.n_star(flat)["n"]


def test_a_curve_does_not_rise_above_the_last_record_of_a_run_that_falls():
    """A sigmoid through records alone would end 2.7 points above the highest reward."""
    C = np.geomspace(2e4, 4e6, 40)
    reward = 0.44 + 0.2 * np.exp(-(np.log10(C) - 5.3) ** 2 / .3)
    runs = [sim.plain_run(8, 0, C, reward), sim.plain_run(16, 0, C, reward - .01)]
    assert frontier.n_star(runs)["curves"][0, -1] < reward.max() + .01


def test_n_star_is_interpolated_between_the_n_that_were_run():
    """The planted curves are parabolas in log2 n, so n* is their top. If the top is beyond the
    grid, n* is the n at the grid's edge."""
    cells = [(16, 8), (32, 8), (32, 32), (32, 64), (16, 128), (32, 256)]
    tops = np.array([2.0, 4.1, 5.5, 6.3, 6.8, 8.4])  # log2 of the best n at six budgets
    curves = np.array([0.5 - 0.012 * (math.log2(n) - tops) ** 2 for _, n in cells])
    curves[0] -= 0.1  # the higher of the two curves with n = 8 counts
    curves[4] = np.nan  # a cell without a curve
    n, bend = frontier.interpolate_n(cells, curves)
    assert np.log2(n) == pytest.approx([3, *tops[1:5], 8])
    assert bend == pytest.approx([0.048, *[0.012] * 4, 0.0336])  # at the edges the slope is steeper
    # two n have no parabola, and equal curves have a top as well
    n, bend = frontier.interpolate_n(cells[1:3], curves[1:3])
    assert n.tolist() == [8, 32, 32, 32, 32, 32] and (bend == bend[0]).all()
    n, bend = frontier.interpolate_n(cells, np.full((6, 2), 0.3))
    assert n.tolist() == [8, 8] and (bend > 0).all()


# --------------------------------------------------------------------------------------------------
# Bad input

def test_bad_input_is_one_line_that_helps(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = bad(frontier)
    assert config["runs"] in line and "run a sweep first" in line and "run_sweep.sh" in line
    assert "nearest is best_worst" in bad(frontier, "--view=best_wurst")
    for word in ("--n=7", "--B_p=8"):
        assert bad(frontier, word).startswith(f"{word}: a sweep has several")


def test_views_without_their_data_are_refused(tmp_path):
    simulate(tmp_path / "a", ns=(8, 16), evals=10)
    simulate(tmp_path / "b", ns=(8,), evals=10)
    for folder, view, why in (("a", "fixed_B", "no two cells with the same B"),
                              ("a", "fixed_B --B_max=8", "the smallest B_p n in "),
                              ("a", "pass1", "0 runs in"),
                              ("a", "lr", "has only one lr_base; run several"),
                              ("b", "sensitivity", "no B_p with several n"),
                              ("b", "slices", "only one n for each B_p"),
                              ("b", "compare", "needs two or more")):
        words = f"--runs={tmp_path / folder} --view={view}".split()
        assert why in bad(frontier, *words), view
    for log in (tmp_path / "a").glob("*/log.jsonl"):
        edit(log, sim.without_counts)
    assert "lack `correct`" in bad(frontier, f"--runs={tmp_path / 'a'}", "--view=best_worst")


def test_a_view_that_fails_is_named_and_the_others_are_drawn(tmp_path, monkeypatch, capsys):
    simulate(tmp_path, ns=(8, 16), evals=10)

    def fails(front, path):
        raise KeyError("entropy")
    words = [f"--runs={tmp_path}", "--view=all"]
    assert frontier.main(words) == 0  # pass1 has no data in this sweep
    monkeypatch.setitem(frontier.VIEWS, "joint", (frontier.joint, fails, frontier.describe_panels))
    (tmp_path / "frontier_training.png").unlink()
    assert frontier.main(words) == 1
    report = (tmp_path / "report.txt").read_text()
    assert "joint failed: KeyError('entropy')" in report and "pass1 is not drawn: --view" in report
    assert (tmp_path / "frontier_training.png").exists() and "training: 2 runs used" in report
    assert "frontier.py: joint failed: KeyError('entropy')\n" in capsys.readouterr().err
    with pytest.raises(KeyError):
        frontier.main([words[0], "--view=joint"])


# --------------------------------------------------------------------------------------------------
# Units

def test_epochs_cut_every_run_at_the_same_passes(tmp_path):
    simulate(tmp_path, ns=(4, 16, 64), evals=60, words=("--D=2000",))
    whole, cut = (analyse(tmp_path, *words)["panels"]["B_p=32"]["curves"]
                  for words in ((), ("--epochs=4",)))
    for a, b in zip(whole, cut):
        assert a["C"][-1] == pytest.approx(2e6, rel=.01)
        assert b["C"][-1] <= 4 * 2000 * b["n"] * 1.02
    assert "too few evaluations within 0.01 epochs" in bad(
        frontier, f"--runs={tmp_path}", "--epochs=0.01")


def test_hours_of_a_rollout_do_not_depend_on_the_last_evaluation(tmp_path):
    logs = simulate(tmp_path, ns=(4, 16), evals=30, words=("--D=2000",))
    for log in logs.values():  # the runs made updates after their last evaluation
        edit(log, lambda r: None if r["type"] == "end" or (
            r["type"] == "eval" and r["rollouts"] > 1e6) else r)
    for word in ("--metric=avg@4", "--metric=train", "--epochs=25"):
        tables = analyse(tmp_path, word, f"--out={tmp_path}")["rows"]
        for row in (row for rows in tables.values() for row in rows):
            # simulate writes 3.6 s per update
            assert row["hours"] == pytest.approx(0.001 / 32 / row["n"]), word


def test_budgets_that_do_not_overlap_and_other_units(tmp_path):
    logs = simulate(tmp_path, ns=(4, 16), evals=40)
    edit(logs[32, 4, 0], ends_at(300_000))
    edit(logs[32, 16, 0], lambda r: r if r["type"] != "eval" or r["step"] == 0
         or r["rollouts"] > 400_000 else None)
    for word in ("--unit=gpu_hours", "--metric=train"):
        assert frontier.main([f"--runs={tmp_path}", "--view=all", word]) == 0


# --------------------------------------------------------------------------------------------------
# The figure

def test_at_most_nine_entries_in_the_legend_however_many_n(tmp_path, monkeypatch):
    ns, drawn = (2, 4, 8, 16, 32, 64, 128, 256, 512), {}
    logs = simulate(tmp_path, ns=ns, B_ps=(8, 32), evals=16)
    for cell, log in logs.items():  # so that curves of different lengths are drawn
        if cell[1] > 16:
            edit(log, ends_at(1e6))

    def keep(fig, path, front, title):
        legend = [text.get_text() for text in fig.legends[0].get_texts()]
        drawn[front["view"]] = legend, [text.get_text() for ax in fig.axes for text in ax.texts]
        plt.close(fig)
    monkeypatch.setattr(frontier, "save", keep)
    for view in ("fixed_Bp", "joint", "fixed_B"):
        frontier.main([f"--runs={tmp_path}", f"--view={view}"])
        legend, _ = drawn[view]
        assert 4 <= len(legend) <= 9 and len(set(legend)) == len(legend), legend
    # each line is labelled with its n
    for n in ns:
        assert drawn["fixed_Bp"][1].count(f"n = {n}") == 2, n


def test_an_n_has_its_own_colour_whatever_is_drawn_with_it():
    """The colours of n = 2 to 4,096 are far apart in RGB; n = 12 is between n = 8 and 16."""
    every = plots.colours([*(2 ** i for i in range(1, 13)), 12])
    shades = np.array([every[2 ** i] for i in range(1, 13)])
    apart = np.abs(shades[:, None] - shades[None]).sum(2)[~np.eye(12, dtype=bool)]
    assert apart.min() > 0.15
    assert plots.colours([8, 64])[8] == plots.colours([8])[8] == every[8]
    assert all(min(a, b) <= x <= max(a, b)
               for a, x, b in zip(every[8], every[12], every[16])) and every[12] != every[16]


@pytest.mark.parametrize("across", [1, 2, 3])
def test_names_of_lines_are_inside_the_axes_and_apart(across):
    """Nine lines that end at nearly one reward, and one that ends early."""
    fig, axes = plots.canvas(1, across, (10.7, 4.8))
    ax, ends = axes[0, 0], []
    for i in range(10):
        x = np.geomspace(1e4, 4e6 if i else 1e5, 20)
        y = np.linspace(0.2, 0.7 + 0.001 * i, 20)
        ax.plot(x, y)
        ends.append((x[-1], y[-1], f"n = {2 ** (i + 2)}", "C0"))
    ax.set_ylabel("validation avg@4")
    plots.budget_axis(ax, 1e4, 4e6, "rollouts")
    plots.end_labels(ax, ends)
    fig.canvas.draw()
    frame = ax.get_window_extent()
    boxes = [Text.get_window_extent(text) for text in ax.texts]  # without the grey lines
    assert len(boxes) == 10
    for i, box in enumerate(boxes):
        assert frame.x0 < box.x0 and box.x1 < frame.x1, ax.texts[i].get_text()
        assert frame.y0 < box.y0 and box.y1 < frame.y1 + 2, ax.texts[i].get_text()
        assert not any(box.overlaps(other) for other in boxes[:i])
    plt.close(fig)


def test_a_legend_has_the_n_in_order_and_reads_by_rows():
    fig, axes = plots.canvas(1, 2, (6.4, 4.8))
    for ax, ns in zip(axes[0], ((8, 128), (4, 1024, 16, 32, 64, 512))):
        for n in ns:
            ax.plot([1], [1], label=f"n = {n}")
        ax.plot([1], [1], label="base model")
    plots.legend(fig, axes.flat)
    names = [text.get_text() for text in fig.legends[0].get_texts()]
    cols = fig.legends[0]._ncols
    rows = [list(row) for row in np.array_split(np.arange(len(names)), cols)]  # by column
    read = [names[column[i]] for i in range(len(rows[0])) for column in rows if i < len(column)]
    assert cols > 2 and read == [f"n = {n}" for n in (4, 8, 16, 32, 64, 128, 512, 1024)] + [
        "base model"]
    plt.close(fig)


def test_format_si_rounds_and_carries():
    for x, text in ((1.27e6, "1.27M"), (999_960, "1M"), (32_768, "32.8k"), (512.0, "512"),
                    (4e9, "4B"), (2e12, "2T"), (0.25, "0.25")):
        assert plots.format_si(x) == text


# --------------------------------------------------------------------------------------------------
# The views

@pytest.fixture(scope="module")
def analysed(tmp_path_factory):
    return sim.analysed_sweep(tmp_path_factory)


def view_of(analysed, view):
    return json.loads((analysed.folder / f"frontier_{view}.json").read_text())


def test_every_view_is_drawn_and_described(analysed):
    drawn = {path.stem for path in analysed.folder.glob("frontier*.png")}
    want = {f"frontier_{view}" for view in frontier.VIEWS} | {"frontier"}
    assert drawn == want - {f"frontier_{view}" for view in ("fixed_Bp", "lr", "compare")}
    assert "lr is not drawn: --view=lr" in analysed.report
    assert not re.search(r"\b(nan|inf|None)\b", analysed.report)


def test_switches_are_where_the_truth_crosses(analysed):
    for B_p, (name, panel) in zip((8, 32), analysed.front["panels"].items()):
        env = panel["envelope"]
        assert name == f"B_p={B_p}" and panel["B_p"] == B_p and panel["ns"] == [4, 8, 16, 32, 64]
        ups = [s for s in panel["switches"] if s["to"] > s["from"] and s["why"] == "crossing"]
        assert ups
        for s in ups:
            want = sim.crossing(sim.truth, B_p, s["from"], s["to"], near=s["C"])
            assert want is None or (s["lo"] or 0) <= want <= (s["hi"] or math.inf), s
            assert s["C"] / s["M"] == pytest.approx(B_p * s["to"])
        assert env["n"][-1] == 32 and max(env["n"][:3]) <= 8
        at = panel["near"][-1]
        assert [B_p, 32] in at["set"] and [B_p, 4] not in at["set"]
        assert len(panel["points"]) == 5 and all(len(p["C"]) <= 64 for p in panel["points"])
    assert (analysed.folder / "frontier.json").stat().st_size < 2_000_000
    run = analysed.front["runs_used"][0]
    assert run["last"] > run["first"] and run["status"] == "budget"


def test_the_joint_best_and_the_smallest_stable_B_p(analysed):
    (panel,) = view_of(analysed, "joint")["panels"].values()
    env = panel["envelope"]
    assert panel["B_p"] is None and set(env["B_p"]) <= {8, 32} and env["n"][-1] == 32
    assert panel["stable_B_p"] == 8 and panel["segments"][-1]["n"] == 32
    rng = np.random.default_rng(0)
    rewards = np.array([np.repeat(mean, 300) + rng.normal(0, .02, 300)
                        for mean in (.1, .3, .45, .45, .3, .1)])
    run = dict(status="budget")
    assert frontier.collapsed(run, rewards, 0.01) and not frontier.collapsed(run, rewards[:4], 0.01)
    assert frontier.collapsed(dict(status="diverged"), rewards[:4], 0.01)
    assert frontier.smallest_stable({8: (2, 3), 16: (0, 3), 32: (0, 3)}) == 16
    assert frontier.smallest_stable({8: (2, 3)}) is None


def test_fixed_B_trades_n_for_B_p_over_updates(analysed, tmp_path):
    front = view_of(analysed, "fixed_B")
    assert front["unit"] == "updates" and set(front["panels"]) == {"B=128", "B=256", "B=512"}
    for panel in front["panels"].values():
        assert all(b * n <= panel["B"] for b, n in zip(panel["envelope"]["B_p"],
                                                       panel["envelope"]["n"]))
        assert panel["range"][1] == pytest.approx(2e6 / panel["B"], rel=0.02)
    text = "\n".join(frontier.describe_panels(front))
    assert " at M = " in text and "C = " not in text
    # B_max on the command line is the only B
    front = analyse(analysed.folder, "--B_max=512", f"--out={tmp_path}", view="fixed_B",
                    folder=tmp_path)
    assert set(front["panels"]) == {"B=512"} == set(front["rows"])
    assert all(row["B_p"] * row["n"] <= 512 for row in front["rows"]["B=512"])


def test_the_panel_of_fixed_B_ends_with_the_full_batches(tmp_path):
    """In results/grid_easy full batches of B = 64 end after 512 updates. Smaller batches make more,
    but that is not a switch."""
    front = analyse(ROOT / "results/grid_easy", f"--out={tmp_path}", view="fixed_B",
                    folder=tmp_path)
    panel = front["panels"]["B=64"]
    env = panel["envelope"]
    assert panel["range"][1] == pytest.approx(512, rel=1e-9)
    assert env["B_p"][-1] * env["n"][-1] == 64 and 0.72 <= env["highest"][-1] <= 0.78


def test_the_best_n_by_metric_and_at_one_budget(analysed):
    panels = view_of(analysed, "best_worst")["panels"]
    assert set(panels) == {f"{kind}@4, B_p={B_p}"
                           for kind in ("avg", "best", "worst") for B_p in (8, 32)}
    for panel in panels.values():
        ns = {n for _, n in panel["near"][-1]["set"]}
        assert 32 in ns and 4 not in ns
        assert all(max(p["reward"]) < max(q["reward"]) for p, q in zip(
            panels[f"worst@4, B_p={panel['B_p']}"]["points"],
            panels[f"best@4, B_p={panel['B_p']}"]["points"]))
    by_avg = json.loads((analysed.folder / "frontier.json").read_text())["panels"]
    for name, panel in by_avg.items():
        assert panels[f"avg@4, {name}"]["envelope"] == panel["envelope"]
    lines = view_of(analysed, "sensitivity")["lines"]
    by_n, by_B_p = ([x["spread"] for x in lines if x["over"] == key] for key in ("n", "B_p"))
    assert len(by_n) == 2 and len(by_B_p) == 5 and min(by_n) > max(by_B_p)
    assert all(x["by_noise"] > 0 for x in lines)
    slices = view_of(analysed, "slices")["slices"]
    assert len(slices) == 8 and slices[0]["C"] == pytest.approx(250e3)
    assert all(s["near"][s["best"]] for s in slices) and slices[3]["n"][slices[3]["best"]] == 32


def test_rows_of_a_metric_do_not_depend_on_the_metric_of_the_report(analysed, tmp_path):
    """Smoothing depends on checkpoint_sd, which is computed for each metric."""
    front = analyse(analysed.folder, "--metric=worst@4", f"--out={tmp_path}", folder=tmp_path)
    for mine, theirs in zip(front["rows"]["worst@4"], analysed.front["rows"]["worst@4"]):
        assert {k: mine[k] for k in theirs} == theirs


def test_the_gain_in_worst_minus_the_gain_in_best_is_paired_by_problem(analysed):
    """Its interval is narrower than that of two rewards on different problems."""
    rows = [analysed.front["rows"][f"{kind}@4"] for kind in ("avg", "best", "worst")]
    ratios = []
    for row, best, worst in zip(*rows):
        if (row["B_p"], row["n"]) == (best["B_p"], best["n"]) == (worst["B_p"], worst["n"]):
            apart = math.hypot(*((r["hi"] - r["lo"]) / 2 for r in (best, worst)))
            ratios.append(row["gains"]["half"] / apart)
    assert len(ratios) > 10 and 0.5 < max(ratios) < 1, ratios


def test_more_gpu_hours_never_prescribe_a_lower_reward(tmp_path):
    """A small n takes more hours per rollout. Beyond the end of its runs a cell keeps its reward.
    """
    logs = simulate(tmp_path, ns=(8, 32, 128, 512), seeds=(0, 1), evals=40, C=4_000_000,
                    truth=sim.paper(2), run_sd=.006)
    for (_, n, _), log in logs.items():
        slow = 4 * (512 / n) ** .4  # seconds per 1,000 rollouts
        edit(log, lambda r: r | dict(gen_s=slow * 32 * n / 1000, train_s=0.0)
             if r["type"] == "step" else r)
    front = analyse(tmp_path, "--unit=gpu_hours")
    planted = [sim.paper(2)(32, r["n"], (min(r["C"], r["last"] or math.inf)) / r["cost"])
               for r in front["rows"]["avg@4"] if r["C"] > front["rows"]["avg@4"][-1]["C"] / 8]
    assert min(np.diff(planted)) > -0.01, planted
    assert front["rows"]["avg@4"][-1]["n"] >= 128


def test_the_view_paper_equals_the_papers_path(analysed):
    runs, _ = frontier.read_runs(analysed.folder)
    panel = view_of(analysed, "paper")["panels"]["B_p=8"]
    runs = [run for run in runs if run["B_p"] == 8]
    found = frontier.n_star(runs, C=np.array(panel["envelope"]["C"]))
    assert panel["paper"]["envelope"]["n"][-1] == found["n"][-1]
    for p, run in zip(panel["paper"]["points"], runs):
        assert p["C"] == run["C"][frontier.record_breaking(run["reward"], 0.005)].tolist()
    assert panel["records"]["n"] == frontier.pooled_records(runs, 0.005)["n"].tolist()
    # the paper's points are maxima of noisy evaluations, so its frontier is too high
    assert 0 < panel["paper"]["above"] < 0.03


def test_pass_rates_of_the_training_problems(analysed):
    front = view_of(analysed, "pass1")
    assert front["k"] == 16 and front["covers"] == "" and len(front["passes"]) == 5
    small, large = (next(r["matched"] for r in front["passes"] if r["n"] == n) for n in (4, 64))
    assert small["polarisation"] != large["polarisation"]
    assert sum(small["share"]) == pytest.approx(1)
    # if 2 of 4 are solved and two are drawn: none is solved with 1/6, one with 4/6, both with 1/6
    assert views.thin([4, 3], [2, 3], 2) == pytest.approx([1 / 12, 4 / 12, 7 / 12])
    assert views.thin([1], [1], 2).sum() == 0
    assert views.polarisation([4, 4], [0, 4]) == 1
    assert views.polarisation([10 ** 6] * 2, [5 * 10 ** 5] * 2) == pytest.approx(0, abs=1e-5)
    assert math.isnan(views.polarisation([4], [4]))


def test_the_lr_view_finds_the_planted_lr(tmp_path):
    for lr, loss in ((1e-6, 0.05), (2e-6, 0.0), (4e-6, 0.03)):
        simulate(tmp_path, ns=(4, 16, 64), evals=30, words=(f"--lr_base={lr}",),
                 truth=lambda B_p, n, C: sim.truth(B_p, n, C) - loss * (C > 0))
    simulate(tmp_path, ns=(8,), evals=30, words=("--lr_base=2e-6",))  # not compared: only one lr
    plan = frontier.parse([f"--runs={tmp_path}", f"--data={tmp_path}", "--B_max=0", "--C=2e6",
                           "--lrs=1e-6 2e-6 4e-6", f"--eval_every={2_000_000 // 30}"])
    (tmp_path / "sweep.json").write_text(json.dumps(dict(config=plan, cells=[])))
    front = analyse(tmp_path, view="lr")
    assert [r["best"] for r in front["rows"]] == [2e-6] * 3 and front["rule"] == 2e-6
    assert front["slope"] == pytest.approx(0.5) and len(front["runs_used"]) == 9
    plain = analyse(tmp_path)
    panel = plain["panels"]["B_p=32"]
    assert {c["lr"] for c in panel["curves"]} == {2e-6} == {panel["verdict"]["lr_base"]}
    assert any("each n is shown at its best lr_base" in note for note in plain["notes"])


def test_several_sweeps_side_by_side(analysed, tmp_path):
    words = " ".join(f"{analysed.folder}{part}" for part in ("", ":train", ":best@4"))
    frontier.main([f"--runs={words}", "--view=compare", f"--out={tmp_path}"])
    front = json.loads((tmp_path / "frontier_compare.json").read_text())
    assert [p["metric"] for p in front["panels"].values()] == [
        "validation avg@4", "training reward", "validation best@4"]
    # each sweep has its own lr_base, seeds and plan, and notes of its own
    other, words = tmp_path / "other", ["--lr_base=2e-6", "--eval_every=100000", "--C=2e6"]
    logs = simulate(other, ns=(8, 16), seeds=(0, 1), evals=20, words=words, unfinished=[(32, 8, 0)])
    plan = frontier.parse([f"--runs={other}", f"--data={other}", "--B_max=0", *words])
    (other / "sweep.json").write_text(json.dumps(dict(config=plan, cells=[
        dict(B_p=32, n=64, seed=0)])))
    front = analyse(f"{analysed.folder} {other}", f"--out={tmp_path}", view="compare",
                    folder=tmp_path)
    assert front["notes"] == [
        f"{other}: unfinished {logs[32, 8, 0].parent.name}: used up to its last evaluation",
        f"{other}: missing 1: B_p=32 n=64 seed=0 (no log)"]


def test_diverged_and_pruned_runs_and_missing_seeds_are_noted(tmp_path):
    logs = simulate(tmp_path, ns=(4, 16), seeds=(0, 1), evals=20)
    edit(logs[32, 4, 0], ends_at(600_000, "diverged"))
    edit(logs[32, 16, 0], ends_at(600_000, "pruned"))
    logs[32, 16, 1].unlink()
    notes = "\n".join(analyse(tmp_path)["notes"])
    assert "diverged Bp32_n4_seed0" in notes and "pruned Bp32_n16_seed0" in notes
    assert "n=16 lr_base=1e-06: 1 of 2 seeds" in notes


def test_a_number_added_to_the_step_records_is_drawn(tmp_path, capsys):
    logs = simulate(tmp_path, ns=(8, 16), evals=10)
    for (_, n, _), log in logs.items():
        edit(log, lambda r: r | dict(surprise=n * r["step"]) if r["type"] == "step" else r)
    frontier.main([f"--runs={tmp_path}", "--view=training"])
    front = json.loads((tmp_path / "frontier_training.json").read_text())
    assert "surprise" in front["fields"] and (tmp_path / "frontier_training.png").exists()
    for line in front["lines"]:
        M = np.array(line["C"]) / front["B_p"] / line["n"]
        assert line["fields"]["surprise"] == pytest.approx(line["n"] * M)
    assert "surprise at the end: n = 8 " in capsys.readouterr().out


def test_runs_without_record_breaking_points_are_drawn(tmp_path, capsys):
    """Every evaluation of training is below the base model's."""
    simulate(tmp_path, ns=(4, 16), evals=10,
             truth=lambda B_p, n, C: np.where(np.asarray(C) > 0, 0.3, 0.7))
    panel = analyse(tmp_path, view="paper")["panels"]["B_p=32"]
    assert panel["paper"]["envelope"]["n"] == [] == panel["records"]["n"]
    assert "the paper's way: n* = none, too few record-breaking points" in capsys.readouterr().out


def test_fresh_pass_rates_replace_those_of_training(tmp_path):
    """If every run has records of the policy at one update (--pass_at), pass1 uses only them."""
    logs = simulate(tmp_path, ns=(8, 16), evals=10)
    sim.add_passes(logs)
    for i, log in enumerate(logs.values()):
        with open(log, "a") as file:
            for C, right in ((0, 2), (800_000, 8 + 4 * i)):
                file.write(json.dumps(dict(
                    type="train_pass", step=C // 512, rollouts=C, fresh=True, samples=[16] * 60,
                    ids=[f"p{j}" for j in range(60)], correct=[right * (j % 2) for j in range(60)]
                )) + "\n")
        if i == 0:  # the other run has no fresh records yet
            front = analyse(tmp_path, view="pass1")
            assert not front["fresh"] and all(len(r["moments"]) == 3 for r in front["passes"])
    front = analyse(tmp_path, view="pass1")
    assert front["fresh"] and front["k"] == 16
    for i, r in enumerate(front["passes"]):
        assert [m["C"] for m in r["moments"]] == [0, 800_000]
        assert r["matched"]["zero"] == r["matched"]["share"][8 + 4 * i] == 0.5


def test_the_edges_of_a_grid():
    def edge(n, *ns, B_max=0):
        cells = [SimpleNamespace(B_p=32, n=n) for n in ns]
        return frontier.grid_edge(SimpleNamespace(B_p=32, n=n), cells, B_max)
    largest, smallest = edge(8, 2, 4, 8), edge(4, 4, 8)
    assert "n = 8 is the largest n run at B_p = 32 " in largest["text"]
    assert "n = 4 is the smallest n run" in smallest["text"]
    assert (largest["add"], smallest["add"]) == (dict(B_p=32, n=16), dict(B_p=32, n=2))
    limited = edge(4, 2, 4, B_max=128)
    assert limited["add"] is None and limited["text"].endswith("B_p n is limited to 128")
    assert edge(4, 2, 4, 8) is edge(2, 2, 4) is edge(8, 8) is None
