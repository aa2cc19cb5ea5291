"""Test pruned sweeps: which cells end at a rung, the order of rungs, the bench, PRUNE=1."""
import json
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

from config import config as CONFIG
from core.log import append, progress, read_log
from core import sweep
from core.stats import cells_of, verdict_of
from core.runs import missing_cells, read_runs
from core.sweep import rungs
from simulate import constant, paper, simulate
from simulate import sweep as simulated

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests/bench"))
import prune as bench  # noqa: E402
from conftest import logs, run_sweep, tree  # noqa: E402


def ended(truth, C, ns=(8, 16, 32, 64, 128, 512), draw=3):
    """Return the values of n that pruning ends at C, for planted curves."""
    runs = simulated(draw, truth, ns=ns, seeds=2, evals=50)
    return sorted(sweep.last_third(bench.curves(runs), C))


def late(B_p, n, C):
    """Return rewards: n = 512 is lowest at C/8 = 500k and gains 12 points per octave; 8 and 16 are
    constant and below the others, which are equal."""
    x = np.log2(np.maximum(C, 1) / 5e5)
    return {8: 0.48 + 0 * x, 16: 0.47 + 0 * x, 512: 0.45 + 0.12 * x}.get(n, 0.60 + 0.01 * x).clip(
        0.25, 1)


def test_rungs():
    cfg = dict(bench.CFG, C=1_000_000, eval_every=10_000)
    assert rungs(cfg) == [125_000, 250_000, 500_000]
    assert rungs(dict(cfg, eval_every=100_000)) == [250_000, 500_000]
    assert rungs(dict(cfg, eval_every=10 ** 6)) == []


@pytest.mark.parametrize("metric, rewards", [("avg@2", [.25, .75, .5]), ("best@2", [.5, 1, 1]),
                                             ("reward", [.25, .8, .5])])
def test_cells_are_ended_by_the_metric_asked_for(tmp_path, metric, rewards):
    """The mean of fractional rewards is not logged if all are 0 or 1."""
    cell = dict(CONFIG, runs=str(tmp_path), metric=metric, B_p=8, n=4)
    log = sweep.run_folder(cell) / "log.jsonl"
    log.parent.mkdir()
    evals = [dict(type="eval", set="val", rollouts=32 * i, step=i, samples=2, correct=correct)
             for i, correct in enumerate(([0, 1], [1, 2], [1, 1]))]
    evals[1]["reward"] = .8
    records = [dict(type="header", config=cell), *evals]
    log.write_text("".join(json.dumps(r) + "\n" for r in records))
    C, reward = zip(*sweep.evaluations(cell))
    assert C == (0, 32, 64) and reward == pytest.approx(rewards)


def test_the_gain_of_the_last_octave_counts():
    C = 500_000
    assert late(32, 512, C) < late(32, 16, C) < late(32, 8, C) < late(32, 64, C) - 0.1
    assert ended(late, C) == [8, 16]
    # with 10 points less, n = 512 ends
    assert ended(lambda B_p, n, C: late(B_p, n, C) - 0.1 * (n == 512), C) == [16, 512]


@pytest.mark.parametrize("ns, gone", [((8,), 0), ((8, 32), 0), ((8, 32, 128), 1),
                                      ((8, 16, 32, 64, 128), 1), ((2, 4, 8, 16, 32, 64, 128), 2)])
def test_a_third_ends_and_at_least_one_cell_is_left(ns, gone):
    assert len(ended(constant(8), 5e5, ns)) == gone
    # cells that have not reached C are not ranked
    assert not ended(constant(8), 1e4, ns)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Return a sweep that ran without pruning: (its words, {run: records})."""
    folder = tmp_path_factory.mktemp("full") / "runs"
    C, ns = 800_000, (8, 32, 64, 128, 256, 512)
    words = [f"--data={folder}", f"--C={C}", "--eval_every=16000", "--B_max=0", "--bps=32",
             "--seeds=0 1", "--ns=8 32 64 128 512", "--warmup=2"]

    def truth(B_p, n, C):
        height = {8: 0.42, 32: 0.50, 64: 0.58, 128: 0.62, 256: 0.40, 512: 0.54}[n]
        return height + 0.02 * np.log10(np.maximum(C, 1) / 8e5).clip(-5)
    simulate(folder, ns=ns, seeds=(0, 1), C=C, evals=50, truth=truth, words=("--warmup=2",),
             run_sd=0.003)
    return words, {p.parent.name: read_log(p) for p in folder.glob("*/log.jsonl")}


def train(line, full, C=None):
    """Do what the training command `line` would do: continue the run's log up to its budget."""
    words = dict(w[2:].split("=", 1) for w in shlex.split(line) if w.startswith("--"))
    C, out = C or int(words["C"]), Path(words["out"])
    header, *rest = full[out.name]
    B, before = header["derived"]["B"], progress(out)[0]
    assert before < C // B * B, line
    out.mkdir(parents=True, exist_ok=True)
    # a resume cuts off the end record of the smaller budget
    with open(out / "log.jsonl", "wb", buffering=0) as file:
        append(file, header | dict(config=header["config"] | dict(C=100_000)))  # of the first rung
        for r in rest:
            if r["type"] != "end" and r["rollouts"] <= C:
                append(file, r)
        # a real log has a record of every update
        append(file, dict(type="step", step=C // B, rollouts=C // B * B))
        append(file, dict(type="end", status="budget", rollouts=C // B * B))


@pytest.fixture
def commands(world, tmp_path, monkeypatch, capsys):
    """Return commands(*words), the lines that DRY_RUN=1 PRUNE=1 prints for the world's sweep."""
    monkeypatch.setenv("PRUNE", "1")

    def call(*words):
        capsys.readouterr()
        sweep.main(["commands", *world[0], f"--runs={tmp_path}/runs", *words])
        return capsys.readouterr().out.splitlines()
    return call


def pruned(folder):
    """Return {n: rollouts} of the pruned runs."""
    return {int(re.search(r"_n(\d+)_", p.parent.name)[1]): progress(p.parent)[0]
            for p in folder.glob("*/log.jsonl") if progress(p.parent)[1] == "pruned"}


def test_a_sweep_goes_through_its_rungs_and_can_be_killed(world, tmp_path, commands, monkeypatch):
    words, full = world
    folder = tmp_path / "runs"
    lines = commands()
    assert len(lines) == 10 and commands() == lines
    assert all(re.search(r"--C=100000\b", line) for line in lines)
    for line in lines[:5]:
        train(line, full)
    assert commands() == lines[5:]  # nothing ends before the rung is complete
    for line in lines[5:]:
        train(line, full)
    assert not pruned(folder)

    # a process is killed after the first end record, and another one within an end record, which
    # leaves half a line
    real = sweep.end_as_pruned
    with monkeypatch.context() as m:
        m.setattr(sweep, "end_as_pruned", lambda folder: (real(folder), sys.exit(9)))
        with pytest.raises(SystemExit):
            commands()
    (first,) = pruned(folder)
    torn = next(p for p in sorted(folder.glob("*_n8_*/log.jsonl")) if not progress(p.parent)[1]
                == "pruned")
    whole = torn.read_bytes()
    torn.write_bytes(whole + b'{"type": "end", "sta')
    lines = commands()
    assert set(pruned(folder)) == {8} and first == 8  # a third of five, rounded down
    assert len(lines) == 8 and all(re.search(r"--C=200000\b", line) for line in lines)
    end = dict(type="end", status="pruned", rollouts=progress(torn.parent)[0])
    assert torn.read_bytes() == whole + json.dumps(end).encode() + b"\n"
    before = tree(folder)
    assert commands() == lines and tree(folder) == before

    # a run that was killed is printed again
    train(lines[0], full, C=120_000)
    log = folder / Path(shlex.split(lines[0])[-1].partition("=")[2]).name / "log.jsonl"
    log.write_bytes(log.read_bytes().rsplit(b"\n", 2)[0] + b"\n")  # without its end record
    assert commands() == lines
    while lines:
        for line in lines:
            train(line, full)
        lines = commands()
    assert commands() == []
    at = pruned(folder)
    assert {n: round(C / 1e5) for n, C in at.items()} == {8: 1, 32: 2, 512: 4}
    statuses = {status for _, status in (progress(p.parent) for p in folder.glob("*/log.jsonl"))}
    assert statuses == {"budget", "pruned"}

    # nothing is missing for the analysis, and `failed` lists nothing
    runs, dropped = read_runs(folder)
    assert len(runs) == 10 and not missing_cells(folder, runs, dropped)
    assert sweep.list_failed("easy", [f"--runs={folder}"]) == 0
    # a cell that is added later is compared with the rewards of the other cells at each rung
    more = "--ns=8 32 64 128 256 512"
    lines = commands(more)
    assert len(lines) == 2 and all("--n=256" in x and "--C=100000" in x for x in lines)
    for line in lines:
        train(line, full)
    assert commands(more) == [] and set(pruned(folder)) == {8, 32, 512, 256}
    # without PRUNE=1 the pruned runs continue to C
    monkeypatch.delenv("PRUNE")
    assert sorted(re.findall(r"--n=(\d+) --C=800000", " ".join(commands(more)))) == sorted(
        2 * ["8", "32", "512", "256"])


def test_a_rung_below_every_batch_is_skipped(commands):
    lines = commands("--ns=8192", "--C=800000")
    assert len(lines) == 2 and all("--n=8192 --C=400000 " in line for line in lines)


def test_a_cell_in_its_warm_up_is_not_ended(world, tmp_path, commands):
    warm = [f"--warmup={100_000 // (32 * 8) + 1}"]
    for line in commands(*warm):
        # the headers get this warm-up
        out = Path(shlex.split(line)[-1].partition("=")[2])
        name = next(run for run in world[1] if run.rsplit("_", 1)[0] == out.name.rsplit("_", 1)[0])
        train(line, {out.name: [r | dict(config=r["config"] | dict(warmup=391))
                                if r["type"] == "header" else r for r in world[1][name]]})
    assert len(commands(*warm)) == 10 and not pruned(tmp_path / "runs")


def test_a_pruned_cell_is_not_evidence_against_its_n():
    """If n = 2 and 64 are pruned at C/4, the verdict lists n = 2 and 64 as left out. The verdict is
    not `flat`, although n = 2 and 8 have the same curve. n = 64, far below, is never tied."""
    def truth(B_p, n, C):
        x = np.log2(np.maximum(C, 1) / 4e6)
        return (0.6 + 0.03 * x - (0.15 if n == 64 else 0)).clip(0.2, 1)
    runs = simulated(5, truth, ns=(2, 8, 64), seeds=2, evals=50)
    cut = [run for run in runs if run["n"] == 8]
    for run in bench.upto([run for run in runs if run["n"] != 8], 1e6):
        cut.append(run | dict(status="pruned"))
    grid, cells = cells_of(cut, "avg@4")
    verdict = verdict_of(cells, grid, delta=0.5)
    assert verdict["verdict"] == "undetermined" and verdict["left_out"] == [2, 64]
    assert all({8} <= set(tied) <= {2, 8} for tied in verdict["sets"])


def test_over_ten_sweeps_two_thirds_of_the_rollouts_and_a_fifth_of_a_point():
    """Pruning meets these targets on the paper's curves; the bench measures how often."""
    ns = tuple(2 ** i for i in range(3, 12))
    rows = [bench.compare(simulated(700 + draw, paper(), ns=ns), bench.CFG, paper())
            for draw in range(10)]
    assert max(row["cost"] for row in rows) <= 0.67
    assert np.mean([row["regret"] for row in rows]) <= 0.2
    assert np.mean([row["end"] for row in rows]) <= 0.3


def test_prune_of_run_sweep(tiny, tmp_path):
    """PRUNE=1 by run_sweep.sh: a dry run prints the first rung, runs continue from rung to rung up
    to C, and a second call trains nothing.
    """
    out = tmp_path / "a sweep"
    few = dict(PRUNE="1", NS="2 3 4")
    dry = run_sweep(tiny, out, "--eval_every=8", DRY_RUN="1", **few).stdout.splitlines()
    assert len(dry) == 3 and all("--C=16 " in line for line in dry)
    assert set(tree(out)) == {"sweep.json"}
    done = run_sweep(tiny, out, "--eval_every=8", "--warmup=1", **few)
    assert done.returncode == 0 and "rung C = 16 of 64: 3 runs" in done.stderr, done
    ends = {run: records[-1]["status"] for run, records in logs(out).items()}
    assert sorted(ends.values()) == ["budget", "budget", "pruned"], (ends, done)
    for run, records in logs(out).items():
        steps = [r["step"] for r in records if r["type"] == "step"]
        assert steps == list(range(1, len(steps) + 1)) and records[0]["config"]["C"] == 16
        assert sum(r["type"] == "header" for r in records) == 1
    before = {name: content for name, content in tree(out).items() if "/" in name}
    again = run_sweep(tiny, out, "--eval_every=8", "--warmup=1", **few)
    assert again.returncode == 0 and ", 0 to do," in again.stdout, again
    assert {name: content for name, content in tree(out).items() if "/" in name} == before
