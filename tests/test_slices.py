"""slices.py and paper.py: the map of a sweep, and the paper's way beside ours."""
import json
import math

import numpy as np
import pytest

import fit_sigmoid
import frontier
import paper
import simulate as sim
import slices
import views
from simulate import analyse, bad, simulate, truth


@pytest.fixture(scope="module")
def analysed(tmp_path_factory):
    return sim.analysed_sweep(tmp_path_factory)


def read(analysed, view):
    return json.loads((analysed.folder / f"frontier_{view}.json").read_text())


def test_a_slice_is_the_truth_at_its_budget(analysed):
    """Planted curves: the reward of each n at C, and the best n where the truth is clear."""
    front = read(analysed, "slices")
    assert len(front["slices"]) == 8 and {s["B_p"] for s in front["slices"]} == {8, 32}
    for s in front["slices"]:
        want = np.array([float(truth(s["B_p"], n, s["C"])) for n in s["n"]])
        assert np.allclose(s["reward"], want, atol=0.05), (s["C"], s["reward"], want)
        assert s["near"][s["best"]] and s["best"] == int(np.argmax(s["reward"]))
        assert s["near"][int(want.argmax())]
        assert all(len(values) == 1 for values in s["each"])
    ends = [s["n"][s["best"]] for s in front["slices"] if s["B_p"] == 32]
    assert ends == sorted(ends) and ends[-1] == 32
    assert [round(math.log2(s["C"] / 2e6)) for s in front["slices"]] == [-3, -2, -1, 0] * 2


def test_the_map_has_every_pair(analysed):
    m = read(analysed, "slices")["map"]
    assert sorted(zip(m["B_p"], m["n"])) == [(b, n) for b in (8, 32) for n in (4, 8, 16, 32, 64)]
    assert m["near"][m["best"]] and (analysed.folder / "frontier_map.png").exists()
    assert "map at C = 2M: best is B_p = " in analysed.report


def test_one_B_p_has_no_map_and_leaves_none_of_before(tmp_path):
    simulate(tmp_path, ns=(4, 16), evals=10, seeds=(0, 1))
    (tmp_path / "frontier_map.png").write_text("of another sweep")
    front = analyse(tmp_path, "--boot=0", view="slices")  # without intervals too
    assert front["map"] is None and not (tmp_path / "frontier_map.png").exists()
    assert all(s["half"] is None and len(s["each"][0]) == 2 for s in front["slices"])


def test_the_papers_half_is_the_papers_path(analysed):
    """Its curves are those of frontier.n_star, its records those of pooled_records."""
    front = read(analysed, "paper")
    runs, _ = frontier.read_runs(analysed.folder)
    for name, panel in front["panels"].items():
        mine = [r for r in runs if f"B_p={r['B_p']}" == name]
        p = panel["paper"]
        kept = frontier.pooled_records(mine, front["bin"])
        assert p["records"]["C"] == pytest.approx(kept["C"])
        assert p["records"]["n"] == list(kept["n"])
        C = np.array(p["frontier"]["C"])
        found = frontier.n_star(mine, front["bin"], C)
        assert np.mean(np.array(p["frontier"]["n"]) == found["n"]) > 0.9
        for q in mine:
            mask = frontier.record_breaking(q["reward"], front["bin"])
            shown = [x["record"] for x in p["points"] if x["n"] == q["n"]]
            assert shown == list(mask[q["C"] > 0])
        fit = p["records"]["law"]["fit"]
        assert fit["plateau"] == pytest.approx(2 ** (fit["L"] + fit["b"]))
        assert f"{name}, the paper's law: L {fit['L']:.3g}" in analysed.report
        assert panel["law"].startswith("n* rises") and panel["law"] in analysed.report


def test_a_short_sweep_has_no_law_and_says_so(tmp_path):
    simulate(tmp_path, ns=(4, 16), evals=3)
    front = analyse(tmp_path, view="paper")
    assert front["panels"]["B_p=32"]["paper"]["records"]["law"] is None


def test_runs_that_break_no_record_have_a_picture_too(tmp_path, capsys):
    """Every evaluation of training lies below the base model's."""
    fall = lambda B_p, n, C: np.where(np.asarray(C) > 0, 0.3, 0.7)  # noqa: E731
    simulate(tmp_path, ns=(4, 16), evals=10, truth=fall)
    front = analyse(tmp_path, view="paper")
    p = front["panels"]["B_p=32"]["paper"]
    assert p["frontier"]["n"] == [] and p["records"]["n"] == []
    assert "the paper's way: n* = none, too few record-breaking points" in capsys.readouterr().out
    analyse(tmp_path, view="slices")


# --------------------------------------------------------------------------------------------------
# What is drawn, by the artists of the axes

@pytest.fixture
def drawn(monkeypatch):
    """The figures that a drawing leaves, {title of an axes: axes}, in order."""
    import matplotlib.pyplot as plt
    plt.close("all")
    monkeypatch.setattr(plt, "close", lambda fig: None)
    yield lambda: [ax for i in plt.get_fignums() for ax in plt.figure(i).axes]
    monkeypatch.undo()
    plt.close("all")


def line_of(ax, label):
    return next(line for line in ax.lines if line.get_label() == label)


def test_the_papers_half_is_drawn(analysed, drawn, tmp_path):
    """The law in red with its numbers, and the frontier in the colour of its n, which ends at the
    last record, where the dotted part of its sigmoid begins."""
    import matplotlib.colors as mc
    front = read(analysed, "paper")
    paper.draw_paper(front, tmp_path / "p.png")
    axes = {ax.get_title(loc=side): ax for ax in drawn() for side in ("left", "center")
            if ax.get_title(loc=side)}
    colour = frontier.colours({n for p in front["panels"].values() for n in p["ns"]})
    for name, panel in front["panels"].items():
        p = panel["paper"]
        fit = p["records"]["law"]["fit"]
        low = next(ax for title, ax in axes.items() if title.startswith(f"law: L {fit['L']:.2f}, "))
        red = line_of(low, "the law through it")
        assert mc.same_color(red.get_color(), "C3")
        assert np.allclose(red.get_ydata(), 2 ** fit_sigmoid.law_at(fit, red.get_xdata()))
        top = next(ax for title, ax in axes.items()
                   if title.startswith(f"The paper's way: {name.replace('B_p', '$B_p$')},"))
        thick = [line for line in top.lines if line.get_linewidth() == 6 and len(line.get_xdata())]
        seen = {c["n"]: c["seen"] for c in p["curves"]}
        shown = [(C, colour[n]) for C, n in zip(p["frontier"]["C"], p["frontier"]["n"])
                 if C <= seen[n]]
        assert 1 < len({n for n in p["frontier"]["n"]}) <= len(thick)
        for C, own in shown:
            assert any(C in line.get_xdata() and mc.same_color(line.get_color(), own)
                       for line in thick)
        for line in thick:
            n = next(n for n in colour if mc.same_color(colour[n], line.get_color()))
            assert max(line.get_xdata()) <= seen[n]
    fig = next(iter(axes.values())).figure
    assert [box.get_title().get_text() for box in fig.legends] == ["left, the paper's way",
                                                                   "right, ours"]


def test_one_run_is_one_run(drawn, tmp_path):
    simulate(tmp_path, ns=(4,), evals=10)
    analyse(tmp_path, view="paper")
    assert any(ax.get_title() == "Ours: $B_p$=32, 1 run, 1 seed" for ax in drawn())


def test_slices_are_drawn_with_their_intervals_and_edges(analysed, drawn, tmp_path):
    """An error bar for each point; a star at the best n, white where that is the grid's edge."""
    import matplotlib.colors as mc
    front = read(analysed, "slices")
    front["slices"][1].update(best=4)  # as if n = 64 were the best
    slices.draw_slices(front, tmp_path / "frontier_slices.png")
    axes = [ax for ax in drawn() if ax.get_title() in ("$B_p$ = 8", "$B_p$ = 32")]
    edges = 0
    for ax, B_p in zip(axes, (8, 32)):
        mine = [s for s in front["slices"] if s["B_p"] == B_p]
        stars = [line for line in ax.lines if line.get_marker() == "*"]
        assert len(ax.containers) == len(stars) == len(mine) == 4
        for s, bars, star in zip(mine, ax.containers, stars):
            points, _, (segments,) = bars
            half = [np.ptp(path[:, 1]) / 2 for path in segments.get_segments()]
            assert half == pytest.approx(s["half"]) and min(half) > 0
            assert points.get_ydata() == pytest.approx(s["reward"])
            edge = s["best"] in (0, len(s["n"]) - 1)
            edges += edge
            assert star.get_ydata() == [s["reward"][s["best"]]]
            assert mc.same_color(star.get_mfc(), "white") == edge
            assert mc.same_color(star.get_mec(), points.get_color())
    assert edges == 1
    assert "a bar is the interval of its point alone" in " ".join(
        axes[0].figure.get_suptitle().split())


def test_the_map_has_lines_of_equal_B(analysed, drawn, tmp_path):
    front = read(analysed, "slices")
    slices.draw_map(front, tmp_path / "frontier_map.png")
    ax = next(ax for ax in drawn() if ax.get_ylabel() == "problems per batch $B_p$")
    dashed = [line for line in ax.lines if line.get_linestyle() == "--"]
    B = {round(float(x + y), 6) for line in dashed for x, y in line.get_xydata()}
    assert {2 ** b for b in B} >= {m * n for m, n in zip(front["map"]["B_p"], front["map"]["n"])}
    assert {f"B = {2 ** round(b)}" for b in B} <= {text.get_text() for text in ax.texts}


def test_one_n_for_each_B_p_is_refused(tmp_path):
    simulate(tmp_path, ns=(4,), B_ps=(8, 32), evals=5)
    assert "one n for each B_p" in bad(views, f"--runs={tmp_path}", "--view=slices", "--boot=0")
