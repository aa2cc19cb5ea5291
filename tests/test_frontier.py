"""frontier.py: the paper's path against planted truth, logs as they come, the figure."""
import gzip
import itertools
import json
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import frontier
import simulate as sim
import views
from config import BadInput, at_k, config, finite, run_name
from simulate import analyse, bad, edit, ends_at, simulate, without_counts

ROOT = Path(__file__).resolve().parent.parent


def shell(*words, cwd=ROOT):
    return subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True,
                          cwd=cwd)


def refused(*words, cwd=ROOT):
    """A script that must end with exit code 2 and one line: that line."""
    done = shell(*words, cwd=cwd)
    assert done.returncode == 2, done
    assert done.stdout == "" and done.stderr.count("\n") == 1, done
    return done.stderr


# --------------------------------------------------------------------------------------------------
# The paper's path

def slow_records(reward, width):
    best, out = -math.inf, []
    for r in reward:
        out.append(math.floor(round(r / width, 6)) > best)
        best = max(best, math.floor(round(r / width, 6)))
    return out


def test_record_breaking_against_a_slow_loop():
    rng = np.random.default_rng(0)
    example = frontier.record_breaking([.501, .504, .512, .508, .516], .005)
    assert example.tolist() == [True, False, True, False, True]
    # each exactly on the edge of a bin of its own
    assert frontier.record_breaking(np.arange(201) / 200, .005).all()
    for _ in range(50):
        reward = rng.integers(0, 1201, 40) / 1200
        assert frontier.record_breaking(reward, .005).tolist() == slow_records(reward, .005)


def test_pooled_records_against_a_slow_loop():
    rng = np.random.default_rng(1)
    runs, points = [], []
    for n in (2, 4, 8, 16, 4):  # n = 4 has two seeds; budgets coincide
        C = np.sort(rng.choice(12, 9, replace=False)) * 100.0
        reward = np.round(C / 3000 + 0.1 * rng.random(9), 3)
        runs.append(sim.plain_run(n, len(runs), C, reward))
        mine = [(c, r, n) for c, r, yes in zip(C, reward, slow_records(reward, .005)) if yes]
        points += mine
    best, want = -1, []
    for c, r, n in sorted(points, key=lambda p: (p[0], -p[1], p[2])):
        if math.floor(round(r / .005, 6)) > best:
            best = math.floor(round(r / .005, 6))
            want += [(c, r, n)] if c > 0 else []  # the base model only sets the mark to beat
    got = frontier.pooled_records(runs, .005)
    assert list(zip(got["C"], got["reward"], got["n"])) == want
    assert len(want) > 5 and len({n for _, _, n in want}) > 2
    logs = [math.log2(n) for _, _, n in want]
    means = [np.mean(logs[max(i - 2, 0):i + 3]) for i in range(len(logs))]
    assert got["log2_n_mean"] == pytest.approx(means)
    assert frontier.running_mean(np.arange(9.0), 3) == pytest.approx([.5, *range(1, 8), 7.5])


def test_a_planted_sigmoid_is_recovered():
    C = np.linspace(2e4, 1e6, 40)
    want = np.array([0.3, 0.25, 3.0, math.log10(1e5)])
    got = frontier.fit_curve(C, frontier.sigmoid(np.log10(C), *want))
    assert got == pytest.approx(want, rel=0.01)
    assert frontier.sigmoid(5.0, *got) == pytest.approx(0.3 + 0.25 / 2, abs=1e-4)  # at its bend


def test_the_fitted_sigmoid_rises_whatever_the_data():
    rng, C = np.random.default_rng(0), np.geomspace(1e3, 1e6, 25)
    x = np.linspace(2, 7, 500)
    for i in range(20):
        # at i = 0 a run that only declines
        R = rng.random(25) if i else np.linspace(0.9, 0.1, 25)
        low, rise, k, x0 = frontier.fit_curve(C, R)
        y = frontier.sigmoid(x, low, rise, k, x0)
        assert (np.diff(y) >= -1e-12).all() and rise >= 0 and 2.5 <= x0 <= 6.5
        assert low + rise <= 1 + 1e-9  # no reward is above 1
        if not i:
            assert np.ptp(y[(x > 3) & (x < 6)]) < 1e-3 and y.mean() == pytest.approx(0.5, abs=0.01)
    assert np.isfinite(frontier.fit_curve(np.array([1e4, 2e4]), np.array([.3, .4]))).all()
    # points that only steepen, which say nothing of where they will end
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
    """But for neighbours near the crossings, where the two are equal."""
    runs = sim.sweep(3, truth, ns=ns, seeds=3, evals=60)
    found = frontier.n_star(runs)
    assert found["ns"] == list(ns) and found["curves"].shape == (len(ns), frontier.GRID)
    assert found["n"].tolist() == [ns[i] for i in found["curves"].argmax(0)]
    want = np.array([truth(32, n, found["C"]) for n in ns])
    best = np.array(ns)[want.argmax(0)]
    same = found["n"] == best
    crossings = [sim.crossing(truth, 32, a, b) for a, b in zip(ns, ns[1:])]
    crossings = np.array([C for C in crossings if C])
    for C, got, n in zip(found["C"][~same], found["n"][~same], best[~same]):
        assert abs(ns.index(got) - ns.index(n)) == 1, (C, got, n)
        assert abs(np.log(crossings / C)).min() < math.log(2), (C, got, n)
    assert same.mean() > 0.75 and len(set(best)) > 2
    # at budgets of one's own, and where a run has no record above the base model
    some = frontier.n_star(runs, C=np.array([1e5, 1e6]))
    assert some["curves"].shape == (len(ns), 2)
    flat = [sim.plain_run(2, 0, [0, 1e4, 2e4, 4e6], [.5] * 4), *runs]
    assert 2 not in frontier.n_star(flat)["n"]


def test_the_papers_path_is_two_files_and_no_more(tmp_path):
    """frontier.py and config.py alone, copied elsewhere, make n*(C) from logs."""
    for name in ("frontier.py", "config.py"):
        shutil.copy(ROOT / name, tmp_path)
    simulate(tmp_path / "logs", ns=(4, 32), evals=12)
    done = shell("-c", "import frontier as f; runs, _ = f.read_runs('logs'); "
                 "print(f.n_star(runs)['n'][-1])", cwd=tmp_path)
    assert done.stdout.strip() == "32", done


def test_no_torch_and_no_matplotlib_on_import():
    rooms = "frontier, noise, fit_sigmoid, prescribe, views"
    done = shell("-c", f"import {rooms}, sys; print([m for m in ('torch', 'transformers', "
                 "'matplotlib', 'pandas') if m in sys.modules])")
    assert done.stdout.strip() == "[]", done


# --------------------------------------------------------------------------------------------------
# Where the frontier changes hands

def test_crossings_are_the_upward_ones_and_pass_over_gaps():
    x = np.arange(6.0)
    assert frontier.crossings(x, np.array([-1, 1, -1, -1, 3, 3.0])) == pytest.approx([0.5, 3.25])
    assert frontier.crossings(x, np.array([1, 1, 1, -1, -1, -1.0])) == []
    assert frontier.crossings(x, np.array([np.nan, -1, np.nan, 1, 1, 1.0])) == []
    rng = np.random.default_rng(0)
    for _ in range(30):
        ahead = rng.normal(size=6)
        fine = np.interp(np.linspace(0, 5, 50_001), x, ahead)
        want = np.linspace(0, 5, 50_001)[1:][(fine[:-1] <= 0) & (fine[1:] > 0)]
        assert frontier.crossings(x, ahead) == pytest.approx(want, abs=2e-4)


def test_switches_tell_an_overtaking_from_runs_that_begin():
    nan, x = np.nan, np.log([1, 2, 4, 8, 16.0])
    Y = np.array([[.2, .3, .32, .32, .32], [.1, .2, .40, .40, .41], [nan, nan, nan, nan, .5]])
    on_top, out = frontier.switches(x, Y)
    assert on_top.tolist() == [0, 0, 1, 1, 2]
    assert [(s["a"], s["b"], s["why"]) for s in out] == [(0, 1, "crossing"), (1, 2, "begins")]
    # the difference goes from -.1 to .08 between C = 2 and 4
    assert out[0]["x"] == pytest.approx(x[1] + (x[2] - x[1]) * .1 / .18) and out[1]["x"] == x[4]


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
        assert frontier.right(counts, f"{kind}@{k}", samples)[0] == pytest.approx(table)
    assert at_k("best@64", 512)[300] == pytest.approx(  # large counts do not overflow
        1 - math.comb(212, 64) / math.comb(512, 64), rel=1e-12)


def test_k_above_samples_is_refused(tmp_path):
    with pytest.raises(BadInput, match="best@8.*has 4"):
        at_k("best@8", 4)
    simulate(tmp_path, ns=(4, 8), evals=8)
    assert "an evaluation here has 4" in bad(views, f"--runs={tmp_path}", "--metric=best@8")


# --------------------------------------------------------------------------------------------------
# Logs as they come

def same(a, b):
    return len(a) == len(b) and all(
        x["run"] == y["run"] and (x["C"] == y["C"]).all() and (x["counts"] == y["counts"]).all()
        for x, y in zip(a, b))


def test_gz_torn_lines_and_unknown_records(tmp_path):
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    logs = simulate(plain, ns=(4, 16), evals=10)
    want, _ = frontier.read_runs(plain)
    for folder, log in ((packed / log.parent.name, log) for log in logs.values()):
        folder.mkdir(parents=True)
        (folder / "log.jsonl.gz").write_bytes(gzip.compress(log.read_bytes()))
    assert same(frontier.read_runs(packed)[0], want)
    with open(logs[32, 4, 0], "a") as file:
        file.write('{"type": "dream", "rollouts": 5}\n')
        file.write('{"type": "eval", "set": "ood", "rollouts": 1, "correct": [1]}\n')
        file.write('{"type": "eval", "roll')
    assert same(frontier.read_runs(plain)[0], want)
    head = json.loads(logs[32, 4, 0].read_text().split("\n")[0])
    head["config"]["C"] = 3_000_000  # as a run that goes on with a larger budget may write it
    with open(logs[32, 16, 0], "a") as file:
        file.write(json.dumps(dict(head, config=head["config"] | dict(n=16))) + "\n")
    assert analyse(plain, "--boot=0")["budget"] == 3_000_000
    lines = logs[32, 4, 0].read_text().split("\n")
    logs[32, 4, 0].write_text("\n".join([*lines[:3], lines[3][:20], *lines[4:]]))
    # a log that is broken inside is left out and named, the others are analysed
    front = analyse(plain, "--boot=0")
    why = [d["why"] for d in front["runs_dropped"]]
    assert why == [f"{logs[32, 4, 0]}:4: not a line of JSON"]
    assert front["panels"]["B_p=32"]["ns"] == [16]


def test_another_set_of_evaluations(tmp_path):
    logs = simulate(tmp_path, ns=(4, 16), evals=10)
    for log in logs.values():
        with open(log, "a") as file:
            for i in range(6):
                file.write(json.dumps({
                    "type": "eval", "set": "ood", "step": i * 100, "rollouts": i * 300_000,
                    "samples": 4, "correct": [1, 2, 0, i % 4], "avg@4": 0.3}) + "\n")
    front = analyse(tmp_path, "--eval_set=ood")
    assert front["label"] == "ood avg@4" and len(front["panels"]["B_p=32"]["points"]) == 12
    none = bad(views, f"--runs={tmp_path}", "--eval_set=aime")
    assert "too few evaluations of aime" in none


def test_the_error_names_the_metrics_that_a_log_has(tmp_path):
    """Another trainer's logs have avg@1; the default asks for avg@4."""
    logs = simulate(tmp_path, ns=(5, 64), evals=10)
    for log in logs.values():
        edit(log, lambda r: {"avg@1" if key == "avg@4" else key: value
                             for key, value in without_counts(r).items()})
    line = bad(views, f"--runs={tmp_path}")
    assert "avg@4" in line and "--metric: this log has avg@1" in line, line
    assert analyse(tmp_path, "--metric=avg@1")["panels"]["B_p=32"]["ns"] == [5, 64]


def header(**changes):
    def change(r):
        return dict(r, config=r["config"] | changes) if r["type"] == "header" else r
    return change


def evals(**changes):
    return lambda r: dict(r, **changes) if r["type"] == "eval" else r


def later(**changes):
    return lambda r: dict(r, **changes) if r["type"] == "eval" and r["step"] else r


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
        spoil((32, 8, 0), header(lr_base=3e-6, kl_coef=0.5)):
            "another config than most runs': kl_coef=0.5 for 0.001",
        spoil((32, 8, 1), evals(set_hash="other")): "other validation problems",
        spoil((32, 16, 0), evals(samples=8)): "number of samples than most runs",
        spoil((32, 16, 1), header(seed=2)): "the same B_p, n and seed as",
        spoil((32, 32, 0), later(correct=[9] * 300)): "not numbers from 0 to",
        spoil((32, 32, 1), later(set_hash="x")): "differ in problem file",
        spoil((32, 8, 2), other_problems): "other training problems"}
    runs, dropped = frontier.read_runs(tmp_path)
    got = {d["run"]: d["why"] for d in dropped}
    # of two runs of one cell either may stay
    twin = [name for name in got if "the same B_p, n and seed as" in got[name]]
    assert len(twin) == 1 and len(got) == len(why) == 9
    for name, part in why.items():
        assert name in got and part in got[name] or "the same" in part, (name, part, got.get(name))
    assert {r["run"] for r in runs} == {log.parent.name for log in logs.values()} - set(got)


def test_the_sweep_that_was_asked_is_analysed_and_not_that_with_most_runs(tmp_path):
    """A second sweep in one folder: its two runs are the answer, not the six of the first."""
    def sweep(ns, seeds, *words):
        logs = simulate(tmp_path, ns=ns, seeds=seeds, evals=8, words=words)
        return [log.parent.name for log in logs.values()]
    first = sweep((4, 8, 16), (0, 1))
    mine = sweep((4, 32), (0,), "--lr_base=3e-6", "--verifier=exact")
    log = tmp_path / mine[0] / "log.jsonl"
    asked = json.loads(log.read_text().splitlines()[0])["config"]
    (tmp_path / "sweep.json").write_text(json.dumps(dict(config=asked)))
    front = analyse(tmp_path, "--boot=0")
    assert sorted(r["run"] for r in front["runs_used"]) == sorted(mine)
    assert {d["run"] for d in front["runs_dropped"]} == set(first)
    # keys that only one of the two uses (verify_s, not with verifier=exact) are not mixed up
    why = "another config than the sweep's: lr_base=1e-06 for 3e-06, verifier=math for exact"
    assert {d["why"] for d in front["runs_dropped"]} == {why}
    said = list(views.say(front))
    others = [line for line in said if any(name in line for name in first)]
    assert len(others) == 1 and "6 runs in this folder are of another experiment" in others[0]
    # nothing of the asked sweep can be read yet: the first sweep does not answer for it
    for name in mine:
        shutil.rmtree(tmp_path / name)
    line = bad(views, f"--runs={tmp_path}")
    assert "no run of the sweep" in line and "6 runs" in line, line


@pytest.mark.parametrize("change,why", [
    (dict(correct=[1.5] * 300), "counts"), (dict(correct=[-1] * 300), "counts"),
    (dict(correct=[True] * 300), "counts"), (dict(correct=["1"] * 300), "counts"),
    (dict(correct=[[1]] * 300), "counts"), (dict(correct=[]), "counts"),
    (dict(correct=None), "`correct`"), (dict(correct=7), "`correct`"),
    (dict(correct=[None] * 300), "counts"), (dict(samples=None), "counts|samples"),
    (dict(samples=[4]), "samples"), (dict(samples="4"), "counts|samples"),
    (dict(samples=0), "counts|samples"), (dict(rollouts="many"), "too few evaluations"),
    (dict(rollouts=-5), "too few evaluations")])
def test_a_run_with_nonsense_in_it_is_dropped_and_named(tmp_path, change, why):
    logs = simulate(tmp_path, ns=(4, 16, 32), evals=8)
    edit(logs[32, 4, 0], evals(**change))
    runs, (drop,) = frontier.read_runs(tmp_path)
    assert drop["run"] == logs[32, 4, 0].parent.name and re.search(why, drop["why"]), drop
    assert [run["n"] for run in runs] == [16, 32]


@pytest.mark.parametrize("value", [math.nan, math.inf, 1.5, -0.1, "high"])
def test_rewards_that_are_no_rewards_in_logs_without_counts(tmp_path, value):
    logs = simulate(tmp_path, ns=(4, 16, 32), evals=8)
    for log in logs.values():
        edit(log, without_counts)

    def late(r):
        return r["type"] == "eval" and r["rollouts"] > 1e6
    edit(logs[32, 16, 0], lambda r: dict(r, **{"avg@4": value}) if late(r) else r)
    runs, dropped = frontier.read_runs(tmp_path)
    why = "its avg@4 is not a number from 0 to 1 somewhere"
    assert dropped == [dict(run=logs[32, 16, 0].parent.name, why=why)]
    assert [run["n"] for run in runs] == [4, 32]


def test_folders_that_are_no_runs(tmp_path):
    logs = simulate(tmp_path, ns=(4, 16), evals=8)
    for name, text in (("a", "[1]\n"), ("c", ""),
                       ("b", '{"type": "header", "config": {"B_p": 0, "n": 8}}\n'),
                       ("d", '{"type": "header", "config": {"B_p": "x"}}\n')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "log.jsonl").write_text(text)
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "log.jsonl.gz").write_bytes(b"\x1f\x8b torn")
    (tmp_path / "notes").mkdir()
    runs, dropped = frontier.read_runs(tmp_path)
    got = {d["run"]: d["why"] for d in dropped}
    assert set(got) == set("abcde") and "gzip" in got["e"] and got["a"] == got["c"] == "no header"
    assert "B_p and n" in got["b"] and "B_p and n" in got["d"]
    assert len(runs) == len(logs)


def test_missing_and_unfinished_cells_are_named(tmp_path, capsys):
    logs = simulate(tmp_path, ns=(4, 16), evals=8, unfinished=[(32, 16, 0)])
    cells = [dict(B_p=32, n=n, seed=0) for n in (4, 64, 16)]
    asked = json.loads(logs[32, 4, 0].read_text().splitlines()[0])["config"]
    plan = dict(config=asked, cells=cells, made="by run_sweep.sh")
    (tmp_path / "sweep.json").write_text(json.dumps(plan))
    front = analyse(tmp_path, "--boot=0")
    assert [(m["n"], m["why"]) for m in front["missing"]] == [(64, "no log"), (16, "unfinished")]
    said = capsys.readouterr().out
    missing = "missing 2: B_p=32 n=64 seed=0 (no log); B_p=32 n=16 seed=0 (unfinished)"
    assert missing in said
    assert len(front["runs_unfinished"]) == 1 and len(front["runs_used"]) == 2
    assert any(note.startswith("unfinished Bp32_n16") for note in front["notes"])
    (tmp_path / "sweep.json").write_text('{"config": 5}')
    assert "sweep.json" in bad(views, f"--runs={tmp_path}")


def test_bad_input_is_one_line(tmp_path):
    assert "no such folder" in refused("frontier.py", f"--runs={tmp_path / 'none'}")
    assert "no run to analyse" in bad(views, f"--runs={tmp_path}")
    simulate(tmp_path / "half", ns=(4, 8), evals=8, unfinished=[(32, 4, 0), (32, 8, 0)])
    assert "no finished run" in bad(views, f"--runs={tmp_path / 'half'}")
    assert "nearest is best_worst" in refused("frontier.py", "--view=best_wurst")
    left = [f for name in ("*.png", "frontier*.json", ".*part*") for f in tmp_path.rglob(name)]
    assert not left


def test_the_first_word_of_help(tmp_path):
    """Without --runs, where nothing was run yet."""
    line = refused(ROOT / "frontier.py", cwd=tmp_path)
    assert config["runs"] in line and "run a sweep first" in line and "run_sweep.sh" in line


def test_every_run_is_named_as_the_trainer_names_it(tmp_path):
    log = simulate(tmp_path, ns=(4,), evals=4)[32, 4, 0]
    cfg = json.loads(log.read_text().splitlines()[0])["config"]
    assert log.parent.name == run_name(cfg) and set(cfg) == set(config)
    assert finite(float("nan")) is None


# --------------------------------------------------------------------------------------------------
# Units and the training reward

def test_gpu_hours_count_training_alone(tmp_path):
    logs = simulate(tmp_path, ns=(4, 16), evals=10)
    runs, _ = frontier.read_runs(tmp_path, "avg@4", "gpu_hours")
    for run in runs:  # 3.6 s an update, as simulate writes it
        assert run["C"] == pytest.approx(run["step"] / 1000)
        assert run["rollouts"] == pytest.approx(run["step"] * 32 * run["n"])
    edit(logs[32, 4, 0], lambda r: dict(r, ranks=4) if r["type"] == "header" else r)
    four = frontier.read_run(logs[32, 4, 0].parent, unit="gpu_hours")
    assert four["C"] == pytest.approx(four["step"] * 4 / 1000)

    # without the parts' times the wall clock, and without that the run is left out
    def wall_clock(r):
        r = {key: value for key, value in r.items() if key != "gen_s"}
        return r | (dict(wall_s=7.2 * r["step"]) if r["type"] == "step" else {})
    edit(logs[32, 16, 0], wall_clock)
    wall = frontier.read_run(logs[32, 16, 0].parent, unit="gpu_hours")
    assert wall["C"] == pytest.approx(wall["step"] * 7.2 / 3600)
    edit(logs[32, 16, 0], lambda r: {k: v for k, v in r.items() if k != "wall_s"})
    why = frontier.read_run(logs[32, 16, 0].parent, unit="gpu_hours")
    assert "too few evaluations of val with gpu_hours" in why
    edit(logs[32, 4, 0], lambda r: dict(r, ranks=1) if r["type"] == "header" else r)
    front = analyse(tmp_path, "--unit=gpu_hours")
    assert front["panels"]["B_p=32"]["range"][1] == pytest.approx(2_000_000 // 128 / 1000)
    assert len(front["runs_dropped"]) == 1


def test_tokens_are_read_and_switches_have_the_same_M(tmp_path):
    simulate(tmp_path, ns=(4, 16, 64), evals=30)
    plain, tokens = (analyse(tmp_path, f"--unit={unit}")["panels"]["B_p=32"]
                     for unit in ("rollouts", "tokens"))
    by_rollouts = [100 * s["C"] for s in plain["switches"]]
    assert [s["C"] for s in tokens["switches"]] == pytest.approx(by_rollouts, rel=0.02)
    M = [s["M"] for s in plain["switches"]]
    assert len(M) and [s["M"] for s in tokens["switches"]] == pytest.approx(M, rel=0.02)


def with_steps(logs):
    """Give each run a step record for every update, with a reward that rises with C, and none of
    the old ones."""
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
    runs, dropped = frontier.read_runs(tmp_path, "train", "rollouts", "train")
    assert [r["n"] for r in runs] == [4, 32] and dropped == []
    # one point between two evaluations, for any B
    assert runs[0]["C"] == pytest.approx(runs[1]["C"]) and len(runs[0]["C"]) == 16
    for run in runs:
        # linear in C, so that an average over updates lies on the line too, but for the half update
        # that each comes late
        late = 0.3 * run["n"] * 32 / 2 / 2 ** 17
        want = 0.2 + 0.3 * run["C"] / 2 ** 17 + 0.01 * (run["n"] == 32) - late
        assert run["reward"] == pytest.approx(want, abs=1e-9)
        # every problem of training once: its n rollouts share a pass rate, so they count as one
        assert run["counts"] is None and run["trials"].sum() == 2 ** 17 / run["n"]
        assert (np.diff(run["C"]) > 0).all()
        assert run["C"][0] < 2 ** 17 / 16 < 0.85 * 2 ** 17 < run["C"][-1] < 2 ** 17
    front = analyse(tmp_path, "--metric=train")
    assert front["label"] == "training reward" and "binomial" in front["covers"]
    panel = front["panels"]["B_p=32"]
    assert panel["envelope"]["n"][-1] == 32
    # as with evaluations, no n stands alone at the end because its B divides the budget better
    assert not any(panel["envelope"]["carried"]), panel["envelope"]["carried"]


def test_a_run_that_ends_between_two_evaluations_has_no_training_reward_beyond_it(tmp_path):
    logs = simulate(tmp_path, ns=(4, 32), C=2 ** 17, evals=8)
    with_steps(logs)
    end = 2 ** 16 + 2048  # a quarter of the way from one evaluation to the next
    edit(logs[32, 4, 0], ends_at(end, "diverged"))
    run = frontier.read_run(logs[32, 4, 0].parent, "train", "rollouts", "train")
    assert run["C"][-1] <= end, (run["C"][-1], end)


# --------------------------------------------------------------------------------------------------
# The figure

def legend_of(monkeypatch, front):
    """The legend of frontier.figure, and the names at the ends of its lines."""
    import matplotlib.pyplot as plt
    found = {}

    def keep(fig, path, front, title):
        found["legend"] = [text.get_text() for text in fig.legends[0].get_texts()]
        found["names"] = [text.get_text() for ax in fig.axes for text in ax.texts]
        plt.close(fig)
    monkeypatch.setattr(frontier, "save", keep)
    frontier.figure(front, "none.png")
    return found


def test_at_most_nine_entries_in_the_legend_however_many_n(tmp_path, monkeypatch):
    ns = (2, 4, 8, 16, 32, 64, 128, 256, 512)
    logs = simulate(tmp_path, ns=ns, B_ps=(8, 32), evals=16)
    for cell, log in logs.items():  # so that a best so far is carried on too
        if cell[1] > 16:
            edit(log, ends_at(1e6))
    for view in ("fixed_Bp", "joint", "fixed_B"):
        found = legend_of(monkeypatch, analyse(tmp_path, view=view))
        assert 4 <= len(found["legend"]) <= 9, found
        assert len(set(found["legend"])) == len(found["legend"])
        monkeypatch.undo()
    found = legend_of(monkeypatch, analyse(tmp_path))
    assert len(found["legend"]) == 9 and "its best so far: its runs ended" in found["legend"]
    # lines carry their n themselves
    for n in ns:
        assert found["names"].count(f"n = {n}") == 2, n


def test_neighbouring_n_differ_in_colour():
    for N in range(2, 12):
        colour = frontier.colours(2 ** i for i in range(N))
        shades = list(colour.values())
        assert all(a != b for a, b in zip(shades, shades[1:])), N
        assert N > 8 or len(set(shades)) == N


def test_si_rounds_and_carries():
    for x, text in ((1.27e6, "1.27M"), (999_960, "1M"), (32_768, "32.8k"), (512.0, "512"),
                    (4e9, "4G"), (0.25, "0.25")):
        assert frontier.si(x) == text
