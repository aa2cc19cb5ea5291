"""Pruned sweeps: sweep.py's bound, its budget and `next`, the bench's procedure, PRUNE=1."""
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import config
import fit_sigmoid
import frontier
import noise
import views
from core import sweep
from config import append, parse, progress, read_json, read_log, save_json
from simulate import constant, paper, simulate
from simulate import sweep as simulated
from core.sweep import rungs

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests/bench"))
sys.path.append(str(ROOT / "tests"))
import prune as bench  # noqa: E402
from conftest import logs, run_sweep, tree  # noqa: E402


def plan_of(ns, **keys):
    return dict(bench.CFG, ns=" ".join(map(str, ns)), seeds="0 1", boot=100, **keys)


def decided(truth, C, ns=(8, 32, 128, 512), spent=0.0, **keys):
    """The decision at C on two seeds of planted curves."""
    plan = plan_of(ns, **keys)
    runs = sweep.upto(simulated(3, truth, ns=ns, seeds=2, evals=50), C)
    return sweep.decide(runs, [(32, n) for n in ns], C, plan, {32: spent}, plan)


def late(B_p, n, C):
    """n = 512 is last at C/2 = 2M and first at 4M, n = 8 never rises, 32 and 128 are level."""
    x = np.log2(np.maximum(C, 1) / 4e6)
    return {8: 0.30 + 0 * x, 32: 0.60 + 0.01 * x, 128: 0.60 + 0.01 * x,
            512: 0.64 + 0.12 * x}[n].clip(0.25, 1)


def test_the_bound_keeps_a_late_winner_and_ends_a_loser(monkeypatch):
    monkeypatch.setattr(sweep, "HALF", 100.0)  # rollouts enough, so that the bound alone decides
    at = rungs(plan_of((8,)))
    assert at[0] == 500_000 and at[-1] == 4_000_000
    assert all(1.4 < b / a < 1.42 for a, b in zip(at, at[1:]))
    assert 100 * late(32, 512, 2e6) < 100 * late(32, 32, 2e6) - 6
    assert late(32, 512, 4e6) > late(32, 32, 4e6) + 0.03
    for C in at[2:-1]:
        out = decided(late, C)
        assert [p["n"] for p in out["pruned"]] == [8], (C, out)
        assert "at most" in out["pruned"][0]["why"], (C, out)
    # a wider delta keeps it, and level curves are kept
    assert not decided(late, at[3], delta=0.5)["pruned"]
    assert not decided(constant(size=0), at[3])["pruned"]


def test_warm_up_and_finished_cells_are_not_judged(monkeypatch):
    monkeypatch.setattr(sweep, "HALF", 100.0)
    at = rungs(plan_of((8,)))[3]
    assert at // (32 * 8) == 5524
    assert not decided(late, at, warmup=5525)["pruned"] and decided(late, at, warmup=5524)["pruned"]
    plan, runs = plan_of((8, 32, 128, 512)), simulated(3, late, ns=(8, 32, 128, 512), seeds=2,
                                                       evals=50)
    # all made 4M
    assert not sweep.decide(runs, [(32, n) for n in (8, 32, 128, 512)], at, plan, {32: 0},
                               plan)["pruned"]


def test_the_budget_ends_the_least_promising_and_leaves_one():
    """Level curves cannot be told apart; what may be spent decides, and is never exceeded by
    more than a run's whole updates.
    """
    plan, ns = plan_of((8, 16, 32, 64, 128, 256)), (8, 16, 32, 64, 128, 256)
    runs = simulated(5, constant(size=0), ns=ns, seeds=2, evals=50)
    cut, decisions = bench.prune(runs, plan)
    assert 0.42 < sum(r["rollouts"][-1] for r in cut) / (12 * 4e6) <= 0.5
    assert all("rollouts for" in p["why"] for d in decisions for p in d["pruned"])
    left = [r for r in cut if r["status"] == "budget"]
    assert {r["rollouts"][-1] for r in left} and len({r["n"] for r in left}) in (1, 2)
    assert {r["seed"] for r in left} == {0, 1}
    # nothing left to spend: one goes on, the one with the highest hope
    out = decided(late, rungs(plan)[4], spent=1e9)
    assert sorted(p["n"] for p in out["pruned"]) in ([8, 32, 128], [8, 128, 512], [8, 32, 512])


def rising(B_p, n, C):
    """The larger n, the better, at every budget."""
    return (0.3 + 0.03 * np.log2(n) + 0.01 * np.log2(np.maximum(C, 1) / 4e6)).clip(0.1, 1)


def test_the_next_n_is_added_where_the_largest_is_on_top():
    ns, C = (2, 4, 8, 16, 32, 64, 128), rungs(plan_of((8,)))[1]
    spent = 14 * C
    assert [(a["B_p"], a["n"]) for a in decided(rising, C, ns, spent)["added"]] == [(32, 256)]
    assert not decided(rising, C, ns, spent, B_max=4096)["added"]
    assert not decided(rising, C, ns, 20e6)["added"]  # half of the grid is 28M: no room
    assert not decided(constant(16), C, ns, spent)["added"]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A sweep's runs as they would end without pruning: (its config, {run: records})."""
    folder = tmp_path_factory.mktemp("full") / "runs"
    C, ns = 800_000, (8, 32, 128, 512)
    words = [f"--runs={folder}", f"--data={folder}", f"--C={C}", "--eval_every=16000", "--B_max=0",
             "--bps=32", "--seeds=0 1",
             f"--ns={' '.join(map(str, ns))}", "--warmup=2"]

    def truth(B_p, n, C):  # n = 8 falls behind, n = 512 never gets there, 32 and 128 are level
        return {8: 0.42, 512: 0.40}.get(n, 0.60) + 0.02 * np.log10(np.maximum(C, 1) / 8e5).clip(-5)
    simulate(folder, ns=(*ns, 256), seeds=(0, 1), C=C, evals=50, truth=truth, words=("--warmup=2",),
             run_sd=0.003)
    return parse(words), {p.parent.name: read_log(p) for p in folder.glob("*/log.jsonl")}


def train(line, full, C=None):
    """What the training command `line` does to its run's folder: the log to its budget,
    continued from what there is.
    """
    words = dict(w[2:].split("=", 1) for w in shlex.split(line) if w.startswith("--"))
    C, out = C or int(words["C"]), Path(words["out"])
    header, *rest = full[out.name]
    B, before = header["derived"]["B"], progress(out)[0]
    assert before < C // B * B, line
    out.mkdir(parents=True, exist_ok=True)
    # a resume cuts the end record of the smaller budget off
    with open(out / "log.jsonl", "wb", buffering=0) as file:
        append(file, header | dict(config=header["config"] | dict(C=100_000)))  # of the first rung
        for r in rest:
            if r["type"] != "end" and r["rollouts"] <= C:
                append(file, r)
        # ours has a record of every update
        append(file, dict(type="step", step=C // B, rollouts=C // B * B))
        append(file, dict(type="end", status="budget", rollouts=C // B * B))


def call(folder, *words):
    """sweep.py next in a process of its own: (its commands, what it said)."""
    done = subprocess.run([sys.executable, "-m", "core.sweep", "next", f"--runs={folder}",
                           "--boot=50", *words], cwd=ROOT,
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done
    return done.stdout.splitlines(), done.stderr


def test_next_walks_a_sweep_through_its_rungs_and_can_be_killed(world, tmp_path, monkeypatch,
                                                                capsys):
    plan, full = world
    folder = tmp_path / "runs"
    plan = plan | dict(runs=str(folder))
    save_json(folder / "sweep.json", dict(config=plan, derived=config.derive(plan)))

    def here():  # in this process: quicker
        sweep.main(["next", f"--runs={folder}", "--boot=50"])
        return capsys.readouterr().out.splitlines()
    lines, text = call(folder)
    assert len(lines) == 8 and "rung C = 100k of 800k: 8 runs" in text and here() == lines
    assert all(re.search(r"--C=100000\b", line) for line in lines)
    assert lines[0].startswith(".venv/bin/python train_grpo.py")
    for line in lines[:5]:
        train(line, full)
    assert here() == lines[5:]  # the rest of the rung, and nothing is decided before that is there
    assert "prune" not in read_json(folder / "sweep.json")
    for line in lines[5:]:
        train(line, full)

    # killed between the decision and the marks, then within a mark: half a line
    with monkeypatch.context() as m:
        m.setattr(sweep, "mark", lambda c, folder: sys.exit(9))
        with pytest.raises(SystemExit):
            here()
    capsys.readouterr()
    entry, = read_json(folder / "sweep.json")["prune"]
    gone = {p["n"] for p in entry["pruned"]}
    assert gone == {8, 512}
    assert not [r for r in folder.glob("*/log.jsonl") if b"pruned" in r.read_bytes()]
    torn = next(p for p in sorted(folder.glob("*n8_*/log.jsonl")))
    whole = torn.read_bytes()
    torn.write_bytes(whole + b'{"type": "end", "sta')
    lines = here()
    assert len(lines) == 4 and all(re.search(r"--n=(32|128) --C=141421\b", line) for line in lines)
    ends = {p.parent.name: read_log(p)[-1] for p in folder.glob("*/log.jsonl")}
    assert {name for name, end in ends.items()
            if end["status"] == "pruned"} == {name for name in ends
                                              if re.search("_n(8|512)_", name)}
    end = dict(type="end", status="pruned", rollouts=ends[torn.parent.name]["rollouts"])
    assert torn.read_bytes() == whole + json.dumps(end).encode() + b"\n"
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    # the same again, nothing written
    assert here() == lines
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before
    assert read_json(folder / "sweep.json")["prune"] == [entry]
    assert read_json(folder / "sweep.json")["config"] == plan

    # a run killed on its way is not lost: it is printed again
    train(lines[0], full, C=120_000)
    log = folder / Path(shlex.split(lines[0])[-1]).name / "log.jsonl"
    log.write_bytes(log.read_bytes().rsplit(b"\n", 2)[0] + b"\n")  # without its end record
    assert here() == lines
    for _ in range(20):
        for line in lines:
            train(line, full)
        lines = here()
        if not lines:
            break
    assert here() == [] and call(folder) == ([], "")
    spent = sum(progress(p.parent)[0] for p in folder.glob("*/log.jsonl"))
    assert spent <= 0.5 * 8 * 800_000
    assert len(read_json(folder / "sweep.json")["prune"]) == len(rungs(plan)) - 1
    ended = {p.parent.name: progress(p.parent) for p in folder.glob("*/log.jsonl")}
    assert {status for _, status in ended.values()} == {"budget", "pruned"}
    assert max(r for r, _ in ended.values()) > 790_000

    # the analysis: nothing is missing, the budget is the sweep's, pruned cells end where they did
    cfg = parse([f"--runs={folder}", "--boot=50"])
    runs, dropped = frontier.read_runs(folder)
    assert not frontier.missing_cells(folder, runs, dropped)
    assert {run["status"] for run in runs} == {"budget", "pruned"}
    views.main([f"--runs={folder}", "--boot=50", "--view=all"])
    front = read_json(folder / "frontier.json")
    assert front["budget"] == 800_000 and front["panels"]["B_p=32"]["range"][1] == 800_000
    assert not front["missing"]
    assert front["panels"]["B_p=32"]["surface"]["ns"] == [8, 32, 128, 256, 512]
    assert any("pruned B_p=32 n=8 at C = " in note for note in front["notes"]) and cfg
    # begun again with PRUNE=1, the decisions stay
    keys = "runs data C eval_every B_max bps seeds ns warmup".split()
    words = [f"--{key}={plan[key]}" for key in keys]
    monkeypatch.setenv("PRUNE", "1")
    sweep.begin("", sweep.arms("", words))
    decisions = read_json(folder / "sweep.json")["prune"]
    assert len(decisions) == len(rungs(plan)) - 1
    capsys.readouterr()
    assert here() == []
    # limits that some of its cells are beyond
    for key, value, ns in (("B_max", 8192, "8 32 128"), ("C", 10_000, "8 32")):
        save_json(folder / "sweep.json", dict(config=plan | {key: value, "ns": ns},
                                              prune=decisions))
        assert here() == [] and {c["n"] for c in sweep.planned(folder)[1]} <= {32, 128}
    # a cell that came later is judged, with the others of its B_p, where it was not
    late = [dict(e, judged=[cell for cell in e["judged"] if cell != [32, 128]])
            if i == 1 else e for i, e in enumerate(decisions)]
    save_json(folder / "sweep.json", dict(config=plan, prune=late))
    assert here() == []
    assert [e["C"] for e in read_json(folder
                                      / "sweep.json")["prune"]] == [*(e["C"] for e in decisions),
                                          decisions[1]["C"]]
    # another experiment is not bound by them, and without PRUNE=1 all cells go to C
    save_json(folder / "sweep.json", dict(config=plan, prune=decisions))
    sweep.begin("", sweep.arms("", [*words, "--lr_base=1e-3"]))
    assert "prune" not in read_json(folder / "sweep.json")
    monkeypatch.delenv("PRUNE")
    save_json(folder / "sweep.json", dict(config=plan, prune=decisions))
    sweep.begin("", sweep.arms("", words))
    capsys.readouterr()
    sweep.main(["commands", *words])
    assert "prune" not in read_json(folder / "sweep.json")
    assert len(capsys.readouterr().out.splitlines()) >= 4


def test_a_pruned_n_is_not_added_again():
    ns, C = (2, 4, 8, 16, 32, 64, 128), rungs(plan_of((8,)))[1]
    runs, plan = sweep.upto(simulated(3, rising, ns=ns, seeds=2, evals=50), C), plan_of(ns)
    for before, added in (((), 1), ([dict(pruned=[dict(B_p=32, n=256)])], 0)):
        assert len(sweep.decide(runs, [(32, n) for n in ns], C, plan, {32: 14 * C}, plan,
                                   before)["added"]) == added


def test_giving_up_on_a_cell_is_no_evidence_against_it():
    """n = 2 and 8 are one curve and n = 64 lies far below: with n = 2 and 64 ended at C/4, the
    last third still does not tell 2 from 8, and 64 it does.
    """
    ns, plan = (2, 8, 64), plan_of((2, 8, 64))

    def truth(B_p, n, C):
        x = np.log2(np.maximum(C, 1) / 4e6)
        return (0.6 + 0.03 * x - (0.15 if n == 64 else 0)).clip(0.2, 1)
    runs = simulated(5, truth, ns=ns, seeds=2, evals=50)
    cut = [run for run in runs if run["n"] == 8]
    for run in sweep.upto([run for run in runs if run["n"] != 8], 1e6):
        cut.append(run | dict(status="pruned"))
    grid, _, found = noise.cells_of(cut, "avg@4", plan)
    verdict = fit_sigmoid.verdict_of(noise.panel_of(found, grid, plan | dict(head=plan),
                                                       "rollouts")["surface"], plan["delta"])
    assert all(part["ns"] == [2, 8] for part in verdict["sets"]), verdict


def test_next_needs_a_plan(tmp_path, script):
    done = script("core.sweep", "next", f"--runs={tmp_path}")
    assert done.code == 2 and "sweep.json" in done.stderr and done.stderr.count("\n") == 1
    assert not done.stdout


def test_over_ten_sweeps_half_the_rollouts_and_half_a_point():
    """The targets, on the paper's curves: the bench says how often they hold over more sweeps."""
    rows = []
    for draw in range(10):
        plan = plan_of((8, 32, 128, 512, 2048)) | dict(boot=50, seeds="0 1 2")
        runs = simulated(700 + draw, paper(), ns=(8, 32, 128, 512, 2048), seeds=3, evals=50)
        cut, decisions = bench.prune(runs, plan)
        rows.append(bench.compare(runs, cut, decisions, paper(), plan))
    assert max(r["cost"] for r in rows) <= 0.5 and min(r["switches"] for r in rows) >= 3
    assert np.mean([r["mean"] for r in rows]) <= 0.1 and np.mean([r["most"] for r in rows]) <= 0.5
    assert sum(r["error"] for r in rows) == 0 and np.mean([r["kept"] for r in rows]) >= 0.8, rows


def test_prune_of_run_sweep(tiny, tmp_path):
    """PRUNE=1 through the shell: rungs to C, each run's log goes on, a second call trains
    nothing; a dry run prints the first rung.
    """
    out = tmp_path / "a sweep"
    few = "--eval_every=20"  # so that there are two rungs
    dry = run_sweep(tiny, out, few, DRY_RUN="1", PRUNE="1").stdout.splitlines()
    assert len(dry) == 2 and all("--C=45 " in line for line in dry)
    assert set(tree(out)) == {"sweep.json"}
    done = run_sweep(tiny, out, few, PRUNE="1")
    assert done.returncode == 0 and re.search(r"rung C = 45 of 64: 2 runs", done.stderr), done
    assert "  256*  " in done.stdout, done
    plan = read_json(out / "sweep.json")
    assert [entry["C"] for entry in plan["prune"]] == rungs(plan["config"])[:-1] == [45]
    for run, records in logs(out).items():
        steps = [r["step"] for r in records if r["type"] == "step"]
        assert steps == list(range(1, len(steps) + 1)) and records[0]["config"]["C"] == 45
        assert records[-1]["status"] in ("budget", "pruned")
        assert sum(r["type"] == "header" for r in records) == 1
    assert 64 in [r[-1]["rollouts"] for r in logs(out).values()]
    assert call(out) == ([], "")
