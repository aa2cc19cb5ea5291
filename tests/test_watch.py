"""frontier.py --watch: figures of a sweep that still runs; and --tag, which picks runs."""
import json

import pytest

import frontier
import views
from config import save_json
from simulate import bad, edit, simulate


@pytest.fixture
def sweep(tmp_path):
    """A sweep with its plan: (folder, {cell: log})."""
    logs = simulate(tmp_path / "s", ns=(4, 16), evals=12)
    cfg = json.loads(logs[32, 4, 0].read_text().splitlines()[0])["config"]
    cells = [dict(B_p=b, n=n, seed=s) for b, n, s in logs]
    save_json(tmp_path / "s/sweep.json", dict(config=cfg, cells=cells))
    return tmp_path / "s", logs


def test_watch_draws_what_is_new_and_ends_with_the_sweep(sweep, monkeypatch, capsys):
    """The logs grow by an evaluation each time it looks away, from one evaluation to their end."""
    folder, logs = sweep
    whole = {log: log.read_text().splitlines(keepends=True) for log in logs.values()}
    held = {log: 3 for log in whole}  # header, evaluation, update
    drawn, real = [], views.written
    monkeypatch.setattr(views, "written", lambda *a: (drawn.append(1), real(*a))[1])

    def grow(seconds):
        if seconds != views.LOOK_S:
            return
        for log, lines in whole.items():
            # a torn last line, as a reader may find it
            log.write_text("".join(lines[:held[log]]) + lines[held[log]][:9] * (
                held[log] + 1 < len(lines)) if held[log] < len(lines) else "".join(lines))
            held[log] += 4
    for log, lines in whole.items():
        log.write_text("".join(lines[:2]))
    monkeypatch.setattr(views.time, "sleep", grow)
    views.main([f"--runs={folder}", "--watch", "--boot=20"])
    said = capsys.readouterr().out.splitlines()
    assert "waiting: " in said[0] and "3 are needed" in said[0]
    last = f"26 evaluations of 2 runs, up to C = 2M; 0 cells to go: {folder}/*.png"
    assert said[-1].endswith(last)
    assert 4 < len(drawn) <= len(said) and len(set(said)) == len(said)
    assert any("; 2 cells to go" in line for line in said)
    assert (folder / "frontier.png").stat().st_size > 15_000
    front = json.loads((folder / "frontier.json").read_text())
    assert front["missing"] == [] and len(front["runs_used"]) == 2


def test_watch_of_two_folders(tmp_path, capsys):
    """A sweep whose runs lie in two folders, as frontier.py reads it."""
    for seed in (0, 1):
        logs = simulate(tmp_path / f"{seed}", ns=(4, 16), evals=12, seeds=(seed,),
                        words=("--data=d", "--runs=r"))
        cfg = json.loads(logs[32, 4, seed].read_text().splitlines()[0])["config"]
        cells = [dict(B_p=b, n=n, seed=s) for b, n, s in logs]
        save_json(tmp_path / f"{seed}/sweep.json", dict(config=cfg, cells=cells))
    views.main([f"--runs={tmp_path}/0 {tmp_path}/1", "--watch", "--boot=0"])
    said = capsys.readouterr().out
    assert f"52 evaluations of 4 runs, up to C = 2M; 0 cells to go: {tmp_path}/0/*.png" in said


def test_without_watch_an_unfinished_sweep_is_refused(sweep):
    folder, logs = sweep
    for log in logs.values():
        edit(log, lambda r: None if r["type"] == "end" else r)
    assert "no finished run" in bad(views, f"--runs={folder}")
    assert len(frontier.read_runs(folder, going=True)[0]) == 2
    assert "one sweep" in bad(views, f"--runs={folder}", "--watch", "--view=compare")
    assert "no such folder" in bad(views, f"--runs={folder}/none", "--watch")
    assert "--watch=maybe" in bad(views, f"--runs={folder}", "--watch=maybe")


def test_a_tag_picks_its_runs(sweep):
    """Tagged runs beside those that sweep.json asks for: found by --tag, and by it alone."""
    folder, logs = sweep
    simulate(folder, ns=(4, 64), evals=12, words=("--tag=mine",), draw=1)
    assert {run["n"] for run in frontier.read_runs(folder)[0]} == {4, 16}
    runs, dropped = frontier.read_runs(folder, tag="mine")
    assert {run["n"] for run in runs} == {4, 64} and len(dropped) == 2
    assert frontier.missing_cells(folder, runs, dropped) == []
    views.main([f"--runs={folder}", "--tag=mine", "--boot=0"])
    front = json.loads((folder / "frontier.json").read_text())
    assert {r["n"] for r in front["runs_used"]} == {4, 64} and front["config"]["tag"] == "mine"
    assert bad(views, f"--runs={folder}", "--tag=yours").startswith("--tag=yours: no run in ")
