"""slices.py and paper.py: the map of a sweep, and the paper's way beside ours."""
import json
import math

import numpy as np
import pytest

import frontier
import simulate as sim
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


def test_one_n_for_each_B_p_is_refused(tmp_path):
    simulate(tmp_path, ns=(4,), B_ps=(8, 32), evals=5)
    assert "one n for each B_p" in bad(views, f"--runs={tmp_path}", "--view=slices", "--boot=0")
