"""core/runs.py: logs of our trainer and of others -> runs that can be compared."""
import gzip
import itertools
import json
import math
import re
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

import frontier
import simulate as sim
from config import BadInput, at_k
from core.runs import missing_cells, read_run, read_runs, metric_per_problem
from simulate import bad, edit, ends_at, simulate, without_counts


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Runs of n = 4, 16, 32 with 9 evaluations, not to be changed: .folder, .logs, .runs."""
    folder = tmp_path_factory.mktemp("made") / "sweep"
    logs = simulate(folder, ns=(4, 16, 32), evals=8)
    return SimpleNamespace(folder=folder, logs=logs, runs=read_runs(folder)[0])


@pytest.fixture
def copied(made, tmp_path):
    """A copy of `made` that a test may change: (folder, {n: log})."""
    folder = tmp_path / "sweep"
    shutil.copytree(made.folder, folder)
    return folder, {n: folder / log.parent.name / "log.jsonl" for (_, n, _), log in
                    made.logs.items()}


def equal(a, b):
    return len(a) == len(b) and all(
        x["run"] == y["run"] and (x["C"] == y["C"]).all() and (x["counts"] == y["counts"]).all()
        for x, y in zip(a, b))


def plan_for(folder, log, **plan):
    """Write a sweep.json that plans the experiment of a log."""
    cfg = json.loads(log.read_text().splitlines()[0])["config"]
    (folder / "sweep.json").write_text(json.dumps(dict(config=cfg) | plan))


# --------------------------------------------------------------------------------------------------
# The reward

@pytest.mark.parametrize("kind", ["avg", "best", "worst"])
def test_reward_is_the_mean_over_all_draws_of_k_rollouts(kind):
    score = dict(avg=lambda d: sum(d) / len(d), best=max, worst=min)[kind]
    for samples, k in ((4, 1), (4, 4), (6, 2), (7, 3)):
        table = at_k(f"{kind}@{k}", samples)
        for c in range(samples + 1):
            draws = list(itertools.combinations([1] * c + [0] * (samples - c), k))
            assert table[c] == pytest.approx(sum(map(score, draws)) / len(draws))
        counts = np.arange(samples + 1, dtype=np.uint8).reshape(1, -1)
        assert metric_per_problem(counts, f"{kind}@{k}", samples)[0] == pytest.approx(table)
    assert at_k("best@64", 512)[300] == pytest.approx(  # large counts do not overflow
        1 - math.comb(212, 64) / math.comb(512, 64), rel=1e-12)


def test_k_above_samples_is_refused(made):
    with pytest.raises(BadInput, match="best@8.*have 4"):
        at_k("best@8", 4)
    assert "the evaluations have 4" in bad(frontier, f"--runs={made.folder}", "--metric=best@8")


# --------------------------------------------------------------------------------------------------
# Reading

def test_gz_torn_lines_and_unknown_records(made, copied):
    folder, logs = copied
    for log in logs.values():
        (folder / log.parent.name / "log.jsonl.gz").write_bytes(gzip.compress(log.read_bytes()))
        log.unlink()
    assert equal(read_runs(folder)[0], made.runs)
    shutil.rmtree(folder)
    shutil.copytree(made.folder, folder)
    with open(logs[4], "a") as file:
        file.write('{"type": "dream", "rollouts": 5}\n')
        file.write('{"type": "eval", "set": "ood", "rollouts": 1, "correct": [1]}\n')
        file.write('{"type": "eval", "roll')
    assert equal(read_runs(folder)[0], made.runs)
    head = json.loads(logs[16].read_text().split("\n")[0])
    head["config"]["C"] = 3_000_000  # a run continued with a larger C writes a second header
    with open(logs[16], "a") as file:
        file.write(json.dumps(head) + "\n")
    assert [run["config"]["C"] for run in read_runs(folder)[0]] == [2e6, 3e6, 2e6]
    # a log with a broken line is dropped and named, and the others are analysed
    lines = logs[4].read_text().split("\n")
    logs[4].write_text("\n".join([*lines[:3], lines[3][:20], *lines[4:]]))
    runs, (drop,) = read_runs(folder)
    assert drop["why"] == f"{logs[4]}:4: not a line of JSON"
    assert [run["n"] for run in runs] == [16, 32]


def test_folders_that_are_not_runs(copied):
    folder, logs = copied
    for name, text in (("a", "[1]\n"), ("c", ""),
                       ("b", '{"type": "header", "config": {"B_p": 0, "n": 8}}\n'),
                       ("d", '{"type": "header", "config": {"B_p": "x"}}\n')):
        (folder / name).mkdir()
        (folder / name / "log.jsonl").write_text(text)
    (folder / "e").mkdir()
    (folder / "e" / "log.jsonl.gz").write_bytes(b"\x1f\x8b torn")
    (folder / "notes").mkdir()
    runs, dropped = read_runs(folder)
    got = {d["run"]: d["why"] for d in dropped}
    assert set(got) == set("abcde") and "gzip" in got["e"] and got["a"] == got["c"] == "no header"
    assert "B_p and n" in got["b"] and "B_p and n" in got["d"]
    assert len(runs) == len(logs)


def test_another_set_of_evaluations(copied):
    folder, logs = copied
    for log in logs.values():
        with open(log, "a") as file:
            for i in range(6):
                file.write(json.dumps({
                    "type": "eval", "set": "ood", "step": i * 100, "rollouts": i * 300_000,
                    "samples": 4, "correct": [1, 2, 0, i % 4], "avg@4": 0.3}) + "\n")
    runs, _ = read_runs(folder, part="ood")
    assert all(run["counts"].shape == (6, 4) for run in runs)
    assert runs[0]["reward"] == pytest.approx([(3 + i % 4) / 16 for i in range(6)])
    none = bad(frontier, f"--runs={folder}", "--eval_set=aime")
    assert "too few evaluations of aime" in none


def test_the_error_names_the_metrics_that_a_log_has(copied):
    """The default metric is avg@4, but logs of another trainer may have avg@1."""
    folder, logs = copied
    for log in logs.values():
        edit(log, lambda r: {"avg@1" if key == "avg@4" else key: value
                             for key, value in without_counts(r).items()})
    line = bad(frontier, f"--runs={folder}")
    assert "avg@4" in line and "--metric: this log has avg@1" in line, line
    assert [run["n"] for run in read_runs(folder, "avg@1")[0]] == [4, 16, 32]


def test_the_mean_reward_of_a_fractional_verifier(copied, made):
    """The reward is the logged field. If an evaluation lacks the field, the reward is the share of
    solved rollouts. The interval is as wide as that of rewards that are 0 or 1."""
    folder, logs = copied
    line = bad(frontier, f"--runs={folder}", "--metric=reward")
    assert "all 0 or 1" in line and "this log has avg@4" in line, line

    def fractional(r):
        solved = r["type"] == "eval" and np.mean(r["correct"]) / 4
        return r | dict(reward=0.5 + solved / 2) if solved and r["step"] else r
    for log in logs.values():
        edit(log, fractional)
    runs, dropped = read_runs(folder, "reward")
    assert not dropped
    for run, old in zip(runs, made.runs):
        assert run["reward"][0] == pytest.approx(old["reward"][0])
        assert run["reward"][1:] == pytest.approx(0.5 + old["reward"][1:] / 2)
    front = sim.analyse(folder, "--metric=reward")
    assert front["label"] == "validation reward" and "has only the mean" in front["covers"]
    row = front["rows"]["reward"][-1]
    assert row["reward"] == pytest.approx(max(run["reward"][-1] for run in runs), abs=0.02)
    half = (row["hi"] - row["lo"]) / 2
    assert half > 1.6 * math.sqrt(row["reward"] * (1 - row["reward"]) / 300)
    assert "reward = validation reward [90% interval]" in sim.page_of(folder, "--metric=reward")
    edit(logs[4], without_counts)
    with pytest.raises(BadInput, match=re.escape("this log has avg@4, reward)")):
        read_run(logs[4].parent, "avg@8")
    # the first evaluation has neither the field nor counts
    assert len(read_run(logs[4].parent, "reward")["C"]) == len(runs[0]["C"]) - 1


def test_logs_without_counts_use_the_stored_field(made, copied):
    folder, logs = copied
    for log in logs.values():
        edit(log, lambda r: {key: v for key, v in r.items() if key != "correct"})
    # also without `samples`
    for log in logs.values():
        edit(log, without_counts)
    runs, _ = read_runs(folder)
    for run, want in zip(runs, made.runs):
        assert run["counts"] is None and run["reward"] == pytest.approx(want["reward"])
    assert "best@4" in bad(frontier, f"--runs={folder}", "--metric=best@4")
    edit(logs[4], lambda r: dict(r, biased=["avg@4"], source="veRL")
         if r["type"] == "header" else r)
    run = read_run(logs[4].parent)
    assert run["biased"] and run["source"] == "veRL"


# --------------------------------------------------------------------------------------------------
# Runs that cannot be compared

def header(**changes):
    def change(r):
        return dict(r, config=r["config"] | changes) if r["type"] == "header" else r
    return change


def evals(later=False, **changes):
    return lambda r: dict(r, **changes) if r["type"] == "eval" and (r["step"] or not later) else r


def test_runs_that_cannot_be_compared_are_dropped_with_the_reason(tmp_path):
    logs = simulate(tmp_path, ns=(4, 8, 16, 32), seeds=(0, 1, 2), evals=8)

    def spoil(key, change):
        edit(logs[key], change)
        return logs[key].parent.name

    def other_problems(r):
        return dict(r, train_set_hash="another") if r["type"] == "header" else r
    why = {
        spoil((32, 4, 0), lambda r: None if r["type"] == "header" else r): "no header",
        spoil((32, 4, 1), lambda r: None if r.get("step", 0) > 500 else r): "too few evaluations",
        spoil((32, 4, 2), header(seed="a")): "its header has seed='a'",
        spoil((32, 32, 2), header(lr_base="1e-6")): "lr_base='1e-6', which must be numbers",
        spoil((32, 8, 0), header(lr_base=3e-6, kl_coef=0.5)):
            "another config than most runs': kl_coef=0.5 for 0.001",
        spoil((32, 8, 1), evals(set_hash="other")): "other validation problems",
        spoil((32, 16, 0), evals(samples=8)): "number of samples than most runs",
        spoil((32, 32, 0), evals(True, correct=[9] * 300)): "not counts of solved rollouts",
        spoil((32, 32, 1), evals(True, set_hash="x")): "differ in problem file",
        spoil((32, 8, 2), other_problems): "other training problems"}
    edit(logs[32, 16, 1], header(seed=2))  # now two runs share a cell and a seed
    edit(logs[32, 16, 2], ends_at(1.9e6))
    why[logs[32, 16, 2].parent.name] = "the same B_p, n and seed as " + logs[32, 16, 1].parent.name
    runs, dropped = read_runs(tmp_path)
    got = {d["run"]: d["why"] for d in dropped}
    assert set(got) == set(why)
    for name, part in why.items():
        assert part in got[name], (name, part, got[name])
    assert {r["run"] for r in runs} == {log.parent.name for log in logs.values()} - set(got)


def test_the_sweep_of_sweep_json_is_analysed_even_if_another_has_more_runs(tmp_path):
    """A folder with two sweeps: the two runs of the second are used, not the six of the first."""
    def sweep(ns, seeds, *words):
        logs = simulate(tmp_path, ns=ns, seeds=seeds, evals=8, words=words)
        return [log.parent.name for log in logs.values()]
    first = sweep((4, 8, 16), (0, 1))
    mine = sweep((4, 32), (0,), "--lr_base=3e-6", "--verifier=exact")
    plan_for(tmp_path, tmp_path / mine[0] / "log.jsonl")
    front = sim.analyse(tmp_path)
    assert sorted(r["run"] for r in front["runs_used"]) == sorted(mine)
    assert {d["run"] for d in front["runs_dropped"]} == set(first)
    # keys that only one of the two sweeps uses (verify_s) are not in the text
    why = "another config than the sweep's: lr_base=1e-06 for 3e-06, verifier=math for exact"
    assert {d["why"] for d in front["runs_dropped"]} == {why}
    others = [line for line in frontier.describe(front) if any(name in line for name in first)]
    assert len(others) == 1 and "in this folder: 6, such as" in others[0]
    # if no run of the second sweep can be read, the first sweep does not replace it
    for name in mine:
        shutil.rmtree(tmp_path / name)
    line = bad(frontier, f"--runs={tmp_path}")
    assert "no run of the sweep" in line and line.endswith("in this folder: 6"), line


@pytest.mark.parametrize("change,why", [
    (dict(correct=[1.5] * 300), "counts"), (dict(correct=[-1] * 300), "counts"),
    (dict(correct=[True] * 300), "counts"), (dict(correct=["1"] * 300), "counts"),
    (dict(correct=[[1]] * 300), "counts"), (dict(correct=[]), "counts"),
    (dict(correct=[1, [2]] * 150), "counts"),
    (dict(correct=None), "`correct`"), (dict(correct=7), "`correct`"),
    (dict(correct=[None] * 300), "counts"), (dict(samples=None), "counts|samples"),
    (dict(samples=[4]), "samples"), (dict(samples="4"), "counts|samples"),
    (dict(samples=0), "counts|samples"), (dict(rollouts="many"), "too few evaluations"),
    (dict(rollouts=-5), "too few evaluations")])
def test_a_run_with_invalid_counts_is_dropped_and_named(copied, change, why):
    folder, logs = copied
    edit(logs[4], evals(**change))
    runs, (drop,) = read_runs(folder)
    assert drop["run"] == logs[4].parent.name and re.search(why, drop["why"]), drop
    assert [run["n"] for run in runs] == [16, 32]


@pytest.mark.parametrize("value", [math.nan, math.inf, 1.5, -0.1, "high"])
def test_invalid_rewards_in_logs_without_counts(copied, value):
    folder, logs = copied
    for log in logs.values():
        edit(log, without_counts)
    edit(logs[16], lambda r: dict(r, **{"avg@4": value})
         if r["type"] == "eval" and r["rollouts"] > 1e6 else r)
    runs, dropped = read_runs(folder)
    why = "its avg@4 is not a number from 0 to 1 in every evaluation"
    assert dropped == [dict(run=logs[16].parent.name, why=why)]
    assert [run["n"] for run in runs] == [4, 32]


def test_a_sweep_in_several_folders(tmp_path):
    """Two machines ran one seed each. The plan of the first folder sets the experiment."""
    for seed in (0, 1):
        logs = simulate(tmp_path / f"{seed}", ns=(4, 16), evals=8, seeds=(seed,),
                        words=("--data=d", "--runs=r"))
        plan_for(tmp_path / f"{seed}", logs[32, 4, seed],
             cells=[dict(B_p=b, n=n, seed=s) for b, n, s in logs])
    both = f"{tmp_path}/0 {tmp_path}/1"
    runs, dropped = read_runs(both)
    assert [(run["n"], run["seed"]) for run in runs] == [(4, 0), (4, 1), (16, 0), (16, 1)]
    assert dropped == [] == missing_cells(both, runs, dropped)
    shutil.rmtree(tmp_path / "1" / runs[1]["run"])
    (gone,) = missing_cells(both, read_runs(both)[0], [])
    assert (gone["n"], gone["seed"], gone["why"]) == (4, 1, "no log")
    line = bad(frontier, f"--runs={tmp_path}/0 {tmp_path}/none")
    assert "none: no such folder" in line


def test_missing_and_unfinished_cells_are_named(copied, capsys):
    folder, logs = copied
    edit(logs[16], lambda r: None if r["type"] == "end" else r)
    shutil.rmtree(logs[32].parent)
    plan_for(folder, logs[4], cells=[dict(B_p=32, n=n, seed=0) for n in (4, 64, 16)])
    front = sim.analyse(folder)
    assert [(m["n"], m["why"]) for m in front["missing"]] == [(64, "no log"), (16, "unfinished")]
    missing = "missing 2: B_p=32 n=64 seed=0 (no log); B_p=32 n=16 seed=0 (unfinished)"
    assert missing in capsys.readouterr().out
    assert len(front["runs_used"]) == 2
    assert any(note.startswith("unfinished Bp32_n16") for note in front["notes"])
    (folder / "sweep.json").write_text('{"config": 5}')
    assert "sweep.json" in bad(frontier, f"--runs={folder}")


def test_copies_in_one_log_hold_for_all_runs(copied):
    folder, logs = copied
    copies = [i % 60 for i in range(300)]
    edit(logs[4], lambda r: r | dict(copies=copies) if r["type"] == "eval" else r)
    assert all(run["copies"] == copies for run in read_runs(folder)[0])


def test_folders_without_a_run_to_analyse(made, tmp_path):
    assert "no run to analyse" in bad(frontier, f"--runs={tmp_path}")
    assert "name its parent" in bad(frontier, f"--runs={made.logs[32, 4, 0].parent}")
    assert not list(tmp_path.iterdir())


# --------------------------------------------------------------------------------------------------
# Units, hours and the training reward

def test_gpu_hours_count_only_training(copied):
    folder, logs = copied
    runs, _ = read_runs(folder, unit="gpu_hours")
    for run in runs:  # simulate writes 3.6 s per update
        assert run["C"] == pytest.approx(run["step"] / 1000)
        assert run["rollouts"] == pytest.approx(run["step"] * 32 * run["n"])
    edit(logs[4], lambda r: dict(r, ranks=4) if r["type"] == "header" else r)
    four = read_run(logs[4].parent, unit="gpu_hours")
    assert four["C"] == pytest.approx(four["step"] * 4 / 1000)
    # a record of a thinned log counts for all updates since the previous record
    whole = read_run(logs[32].parent)["hours"]
    assert whole == pytest.approx(2_000_000 // 1024 * 3.6 / 3600)
    edit(logs[32], lambda r: None if r["type"] == "step" and r["step"] < 1000 else r)
    assert read_run(logs[32].parent)["hours"] == pytest.approx(whole)

    # without gen_s and train_s the wall clock counts, and without it the run is dropped
    def wall_clock(r):
        r = {key: value for key, value in r.items() if key != "gen_s"}
        return r | (dict(wall_s=7.2 * r["step"]) if r["type"] == "step" else {})
    edit(logs[16], wall_clock)
    wall = read_run(logs[16].parent, unit="gpu_hours")
    assert wall["C"] == pytest.approx(wall["step"] * 7.2 / 3600)
    assert wall["hours"] is None  # because the wall clock includes evaluations
    edit(logs[16], lambda r: {k: v for k, v in r.items() if k != "wall_s"})
    with pytest.raises(BadInput, match="too few evaluations of val with gpu_hours"):
        read_run(logs[16].parent, unit="gpu_hours")


def test_tokens_and_updates(made):
    for run in read_runs(made.folder, unit="tokens")[0]:
        assert run["C"] == pytest.approx(100 * run["rollouts"])
        assert run["per_rollout"] == pytest.approx(100)
    for run in read_runs(made.folder, unit="updates")[0]:
        assert run["C"].tolist() == run["step"].tolist()


def with_steps(logs):
    """Replace the step records of each run by a record for every update, with a reward that rises
    with C."""
    for (B_p, n, _), log in logs.items():
        records = [r for r in map(json.loads, log.read_text().splitlines()) if r["type"] != "step"]
        B, C = B_p * n, records[0]["config"]["C"]
        steps = []
        for m in range(1, C // B + 1):
            reward = 0.2 + 0.3 * ((m - 1) * B / C) + 0.01 * (n == 32)
            steps.append(dict(type="step", step=m, rollouts=m * B, reward=reward))
        every = [*records[:-1], *steps, records[-1]]
        log.write_text("".join(json.dumps(r) + "\n" for r in every))


def test_the_training_reward_is_that_of_the_policy_before_the_update(tmp_path):
    logs = simulate(tmp_path, ns=(4, 32), C=2 ** 17, evals=16)
    with_steps(logs)
    runs, dropped = read_runs(tmp_path, "train", part="train")
    assert [r["n"] for r in runs] == [4, 32] and dropped == []
    # one point between two evaluations for every B
    assert runs[0]["C"] == pytest.approx(runs[1]["C"]) and len(runs[0]["C"]) == 16
    for run in runs:
        # the reward is linear in C, so a mean over updates is on this line, half an update late
        late = 0.3 * run["n"] * 32 / 2 / 2 ** 17
        want = 0.2 + 0.3 * run["C"] / 2 ** 17 + 0.01 * (run["n"] == 32) - late
        assert run["reward"] == pytest.approx(want, abs=1e-9)
        assert run["counts"] is None
        assert run["C"][0] < 2 ** 17 / 16 < 0.85 * 2 ** 17 < run["C"][-1] < 2 ** 17
    front = sim.analyse(tmp_path, "--metric=train")
    assert front["label"] == "training reward" and "has only the mean" in front["covers"]
    # as with evaluations, all n end at the same C although their B divide it differently
    ends = [c["C"][-1] for c in front["panels"]["B_p=32"]["curves"]]
    assert ends[0] == ends[1] and front["panels"]["B_p=32"]["envelope"]["n"][-1] == 32
    # the run ends a quarter of the way to the next evaluation, so it has no reward after its end
    end = 2 ** 16 + 2048
    edit(logs[32, 4, 0], ends_at(end, "diverged"))
    assert read_run(logs[32, 4, 0].parent, "train", part="train")["C"][-1] <= end
