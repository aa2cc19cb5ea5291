"""frontier.py and fit_sigmoid.py against planted truth, brute force and everything a folder of logs can get wrong."""
import csv
import itertools
import json
import math
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import fit_sigmoid  # noqa: E402
import frontier  # noqa: E402
from config import BadInput, at_k, config, finite, identity, parse, run_name  # noqa: E402
from simulate import crossing, simulate, truth  # noqa: E402

PAPER = {"easy": (6.09, 4.75, 5.84, 2.73), "hard": (4.47, 7.23, 5.84, 2.79), "tokens": (6.62, 3.47, 9.18, 2.64),
         "joint": (5.67, 8.84, 6.08, 3.08)}  # L, k, log10 C0, b, as printed on the paper's figures


def analyse(folder, *words):
    """frontier.py in this process: the content of frontier.json."""
    frontier.main([f"--runs={folder}", "--boot=40", *words])
    return json.loads((Path(folder) / "frontier.json").read_text())


def law(folder, *words):
    fit_sigmoid.main([f"--runs={folder}", *words])
    return json.loads((Path(folder) / "law.json").read_text())


def shell(*words, cwd=ROOT):
    return subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, cwd=cwd)


def refused(*words):
    """A script that must end with exit code 2 and one line: that line."""
    done = shell(*words)
    assert done.returncode == 2, done
    assert done.stdout == "" and done.stderr.count("\n") == 1, done
    return done.stderr


def edit(log, change):
    """Rewrite a log, record by record; `change` gets a record and returns one, or None to leave it out."""
    records = [change(json.loads(line)) for line in log.read_text().splitlines()]
    log.write_text("".join(json.dumps(r) + "\n" for r in records if r is not None))


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """Two panels with a law, analysed once; tests that change logs make their own."""
    folder = tmp_path_factory.mktemp("sweep") / "easy"
    simulate(folder, ns=(4, 8, 16, 32, 64), B_ps=(8, 32), evals=80, draw=2)
    return folder, analyse(folder), law(folder, "--C=3e5")


# ---------------------------------------------------------------------------------------------------------------------
# Pure functions against brute force

@pytest.mark.parametrize("kind", ["avg", "best", "worst"])
def test_reward_is_the_mean_over_all_draws_of_k_rollouts(kind):
    score = dict(avg=lambda d: sum(d) / len(d), best=max, worst=min)[kind]
    for samples, k in ((4, 1), (4, 4), (6, 2), (7, 3)):
        table = at_k(f"{kind}@{k}", samples)
        for c in range(samples + 1):
            draws = list(itertools.combinations([1] * c + [0] * (samples - c), k))
            assert table[c] == pytest.approx(sum(map(score, draws)) / len(draws))
    assert at_k("best@64", 512)[300] == pytest.approx(
        1 - math.comb(212, 64) / math.comb(512, 64), rel=1e-12)  # large counts do not overflow


def test_k_above_samples_is_refused():
    with pytest.raises(BadInput, match="best@8.*has 4"):
        at_k("best@8", 4)


def slow_records(reward, width):
    best, out = -math.inf, []
    for r in reward:
        out.append(math.floor(round(r / width, 6)) > best)
        best = max(best, math.floor(round(r / width, 6)))
    return out


def test_record_breaking_against_a_slow_loop():
    rng = np.random.default_rng(0)
    assert frontier.record_breaking([.501, .504, .512, .508, .516], .005).tolist() == [True, False, True, False, True]
    assert frontier.record_breaking(np.arange(201) / 200, .005).all()  # each exactly on the edge of a bin of its own
    for _ in range(50):
        reward = rng.integers(0, 1201, 40) / 1200
        assert frontier.record_breaking(reward, .005).tolist() == slow_records(reward, .005)


def test_pooled_records_against_a_slow_loop():
    rng = np.random.default_rng(1)
    C, n = rng.integers(0, 12, 60) * 100.0, 2.0 ** rng.integers(1, 5, 60)
    reward = rng.random(60)
    got = frontier.pooled_records(C, reward, n, .005)
    best, want = -1, []
    for c, r, m in sorted(zip(C, reward, n), key=lambda p: (p[0], -p[1])):
        if math.floor(r / .005) > best:
            best = math.floor(r / .005)
            want += [(c, r, m)] if c > 0 else []
    assert list(zip(got["C"], got["reward"], got["n"])) == want
    assert len(want) > 3 or (C == 0).sum()
    logs = [math.log2(m) for _, _, m in want]
    assert got["log2_n_mean"] == pytest.approx([np.mean(logs[max(i - 2, 0):i + 3]) for i in range(len(logs))])


def test_crossing_takes_the_upward_one_nearest_to_the_point_estimate():
    x = np.arange(6.0)
    ahead = np.array([[-1, 1, -1, -1, 3, 3], [1, 1, 1, -1, -1, -1], [np.nan, -1, np.nan, 1, 1, 1.0]])
    near = frontier.crossing(x, ahead, 4)
    assert near[0] == pytest.approx(3.25) and np.isnan(near[1]) and np.isnan(near[2])
    assert frontier.crossing(x, ahead, 0)[0] == pytest.approx(0.5)


def test_switches_tell_an_overtaking_from_runs_that_begin_or_end():
    nan, x = np.nan, np.log([1, 2, 4, 8, 16.0])
    Y = np.array([[.2, .3, .32, nan, nan], [.1, .2, .40, .40, .41], [nan, nan, nan, nan, .5]])
    on_top, out = frontier.switches(x, Y, [2, 4, 8])
    assert on_top.tolist() == [0, 0, 1, 1, 2]
    assert [(s["from"], s["to"], s["why"]) for s in out] == [(2, 4, "crossing"), (4, 8, "begins")]
    assert x[1] < out[0]["x"] < x[2]
    Y[1, 2] = .31
    assert frontier.switches(x, Y, [2, 4, 8])[1][0]["why"] == "ends"


def test_a_crossing_that_few_replicates_have_gets_no_interval():
    x, s = np.linspace(0, 10, 11), {"x": 4.5, "from": 2, "to": 4, "why": "crossing"}
    late, never = x - 4.5, np.full(11, -1.0)
    def record(K, k):
        return frontier.switch_record(s, x, x / 10, np.array([late + 0.1 * i for i in range(k)] + [never] * (K - k)))
    assert record(10, 7)["lo"] is None and record(10, 7)["share"] == 0.7
    sure = record(10, 9)
    assert sure["share"] == 0.9 and math.exp(3.6) < sure["lo"] < sure["hi"] < math.exp(4.6)
    assert sure["reward"] == pytest.approx(0.45) and frontier.switch_record(s, x, x / 10, np.zeros((0, 11)))["share"] is None


def test_decline_is_found_and_noise_is_not_taken_for_one():
    rng = np.random.default_rng(0)
    skill, C = 1 / (1 + np.exp(-rng.normal(0, 1.5, 300))), np.arange(20.0)
    def z(rate):
        _, fall, se = frontier.decline(C, rng.binomial(4, rate) / 4)
        return fall / se
    steady = [z(np.tile(skill, (20, 1))) for _ in range(200)]
    assert abs(np.mean(steady)) < 0.3 and np.mean(np.array(steady) > 2) < 0.06
    assert z(skill * np.linspace(1, 0.85, 20)[:, None]) > 2


# ---------------------------------------------------------------------------------------------------------------------
# Fits

@pytest.mark.parametrize("form", fit_sigmoid.FORMS)
def test_curves_are_monotone_whatever_the_data(form):
    rng, C = np.random.default_rng(0), np.r_[0, np.geomspace(1e3, 1e6, 25)]
    R = rng.random((20, 26))
    R[0] = np.linspace(0.9, 0.1, 26)  # a run that only declines
    many = fit_sigmoid.fit_curve(C, R, form=form)
    fine = fit_sigmoid.curve(many, np.r_[0, np.geomspace(1e2, 1e7, 500)])
    assert (np.diff(fine) >= -1e-12).all() and fine.max() <= 1 + 1e-9
    assert np.ptp(fine[0]) == pytest.approx(0, abs=1e-9)
    for i in range(20):  # fitted together or one by one is the same
        alone = fit_sigmoid.fit_curve(C, R[i], form=form)
        assert alone["rss"] == pytest.approx(many["rss"][i], rel=1e-9)
        assert alone["rss"] == pytest.approx(((fit_sigmoid.curve(alone, C) - R[i]) ** 2).sum(), abs=1e-9)


@pytest.mark.parametrize("form,C0,k", [("sigmoid", 5e4, 3.0), ("logistic", 2e5, 2e-5), ("exponential", 0, 8e-6)])
def test_planted_curve_is_recovered(form, C0, k):
    C = np.r_[0, np.linspace(2e4, 1e6, 40)]
    want = dict(form=form, base=0.3, amp=0.25, C0=C0, k=k)
    got = fit_sigmoid.fit_curve(C, fit_sigmoid.curve(want, C), form=form)
    for key in ("base", "amp", "C0", "k"):
        assert got[key] == pytest.approx(want[key], rel=0.01), key
    assert fit_sigmoid.at_bounds(got, C) == []


def test_the_fit_is_the_best_that_many_starts_of_another_optimizer_find():
    from scipy.optimize import least_squares
    rng, C = np.random.default_rng(4), np.linspace(2e4, 1e6, 25)
    for _ in range(5):
        R = np.asarray(truth(32, 16, C)) + rng.normal(0, 0.02, 25)
        (lo_u, hi_u, _), (lo_v, hi_v, _) = fit_sigmoid.search_box("sigmoid", C)
        ours, low, high = fit_sigmoid.fit_curve(C, R)["rss"], [-5, 0, lo_u, lo_v], [1, 9, hi_u, hi_v]
        def residual(p):
            at = fit_sigmoid.curve(dict(form="sigmoid", base=p[0], amp=p[1], C0=10 ** p[2], k=np.exp(p[3])), C) - R
            return np.r_[at, 1e3 * max(p[0] + p[1] - 1, 0)]  # the asymptote stays below 1
        starts = [[.3, .2, *rng.uniform(low[2:], high[2:])] for _ in range(15)]
        theirs = min(2 * least_squares(residual, start, bounds=(low, high)).cost for start in starts)
        assert ours <= theirs * 1.001


def test_weights_leave_points_out_and_bounds_are_named():
    C = np.geomspace(1e3, 1e6, 20)
    R = fit_sigmoid.curve(dict(form="sigmoid", base=.2, amp=.3, C0=3e4, k=4), C)
    R[5], w = 0.99, np.where(np.arange(20) == 5, 0, 1)
    assert fit_sigmoid.fit_curve(C, R, w)["C0"] == pytest.approx(3e4, rel=0.01)
    step = fit_sigmoid.fit_curve(C, np.where(C > 3e4, .6, .2))
    assert any("k at its upper bound" in f for f in fit_sigmoid.at_bounds(step, C))
    rising = fit_sigmoid.fit_curve(C, np.linspace(.5, .99, 20) ** 0.5)
    assert any("asymptote" in f for f in fit_sigmoid.at_bounds(rising, C))


def test_form_is_the_papers_unless_another_is_clearly_better():
    rng, C = np.random.default_rng(0), np.r_[0, np.linspace(2.5e4, 1e6, 40)]
    def noisy(form, sd, **p):
        return [(C, fit_sigmoid.curve(dict(form=form, base=.3, amp=.3, **p), C) + rng.normal(0, sd, 41)) for _ in range(4)]
    assert fit_sigmoid.choose_form(noisy("sigmoid", .01, C0=1e5, k=3))[0] == "sigmoid"
    form, error = fit_sigmoid.choose_form(noisy("logistic", .002, C0=5e5, k=1e-5))
    assert form == "logistic" and set(error) == set(fit_sigmoid.FORMS) and error["logistic"] == pytest.approx(.002, rel=.3)
    assert fit_sigmoid.choose_form([(C[:6], C[:6])]) == ("exponential", {})


# ---------------------------------------------------------------------------------------------------------------------
# The law

def staircase(folder, numbers, C, name="points.csv", octaves=0.0):
    """A CSV of n*(C) that follows a printed law; octaves: rounded to such a grid of log2 n, as a sweep would see it."""
    y = fit_sigmoid.law_at(dict(zip(("L", "k", "log10_C0", "b"), numbers)), np.asarray(C))
    y = np.round(y / octaves) * octaves if octaves else y
    with open(folder / name, "w", newline="") as file:
        csv.writer(file).writerows([("C", "n"), *zip(C, 2 ** y)])
    return folder / name


@pytest.mark.parametrize("name", PAPER)
def test_printed_laws_come_back_from_their_points(tmp_path, name):
    L, k, log10_C0, b = PAPER[name]
    file = staircase(tmp_path, PAPER[name], np.geomspace(10 ** (log10_C0 - 1), 10 ** (log10_C0 + 1), 40))
    fit_sigmoid.main([f"--points={file}", f"--out={tmp_path}"])
    got = json.loads((tmp_path / "law.json").read_text())["law"]
    assert got["verdict"] == "law" and got["flags"] == []
    for key, want in dict(L=L, k=k, log10_C0=log10_C0, b=b).items():
        assert got[key]["value"] == pytest.approx(want, rel=0.01), key
        assert got[key]["lo"] is None  # points alone do not say how sure they are
    assert got["plateau"]["value"] == pytest.approx(2 ** (L + b), rel=0.01)
    assert (tmp_path / "law.png").stat().st_size > 10_000


def test_a_law_seen_through_a_grid_of_powers_of_two(tmp_path):
    file = staircase(tmp_path, PAPER["easy"], np.geomspace(1e5, 1e7, 60), octaves=1)
    fit_sigmoid.main([f"--points={file}", f"--out={tmp_path}"])
    got = json.loads((tmp_path / "law.json").read_text())["law"]
    assert got["verdict"] == "law"
    assert got["log10_C0"]["value"] == pytest.approx(5.84, abs=0.05) and 400 < got["plateau"]["value"] < 600


@pytest.mark.parametrize("numbers,C,why", [
    (PAPER["easy"], np.geomspace(1e5, 10 ** 5.75, 30), "n\\*|plateau|bend"),      # cut before the bend
    (PAPER["easy"], np.geomspace(10 ** 6.1, 1e8, 30), "C0|bend|values of n|k at"),   # begins past it
    ((3.97, 500.0, 6.13, 3.04), np.geomspace(1e5, 1e7, 40), "k at its upper bound 50|values of n")])
def test_points_that_do_not_determine_a_law_give_none(tmp_path, numbers, C, why):
    for octaves in (0.0, 1.0):
        file = staircase(tmp_path, numbers, C, octaves=octaves)
        fit_sigmoid.main([f"--points={file}", f"--out={tmp_path}"])
        got = json.loads((tmp_path / "law.json").read_text())
        assert got["law"]["verdict"] == "undetermined"
        assert all(got["law"][key]["value"] is None for key in ("L", "k", "log10_C0", "b", "plateau"))
        assert re.search(why, got["law"]["reason"]), got["law"]["reason"]
        far = got["prescriptions"][-1]
        assert far["status"] == "extrapolated" and any("no law" in c for c in far["caveat"]) and math.log2(far["n"]) % 1 == 0


@pytest.mark.parametrize("path,verdict,why", [
    ([8] * 30, "flat", "n = 8 is on top at every budget"), ([32] * 15 + [8] * 15, "not rising", "32 at .*, 8 at"),
    ([8] * 15 + [32] * 15, "undetermined", "only 2 values"),
    ([4] * 8 + [8] * 8 + [16] * 14, "undetermined", "grid's largest n is on top at the end, 16")])
def test_verdicts_without_a_law(path, verdict, why):
    got = fit_sigmoid.law_of(np.geomspace(1e4, 1e6, 30), np.log2(path), largest=16)
    assert got["verdict"] == verdict and re.search(why, got["reason"]), got["reason"]
    assert got["L"]["value"] is None


def test_a_law_that_its_resampled_copies_do_not_share_is_undetermined():
    C, path = np.geomspace(1e4, 1e6, 40), np.log2([4] * 12 + [8] * 6 + [16] * 22)
    same, flat = np.tile(path, (10, 1)), np.full((10, 40), 3.0)
    sure = fit_sigmoid.law_of(C, path, same)
    assert sure["verdict"] == "law" and sure["support"] == 1
    assert sure["L"]["lo"] == pytest.approx(sure["L"]["value"], rel=1e-6)
    torn = fit_sigmoid.law_of(C, path, np.concatenate([same[:7], flat[:3]]))
    assert torn["verdict"] == "undetermined" and "70%" in torn["reason"] and torn["plateau"]["value"] is None


# ---------------------------------------------------------------------------------------------------------------------
# A sweep with planted truth, whole

def test_planted_switches_are_found_with_intervals(sweep):
    _, front, _ = sweep
    assert set(front["panels"]) == {"B_p=8", "B_p=32"} and len(front["runs_used"]) == 10 and front["runs_dropped"] == []
    for panel in front["panels"].values():
        up = [s for s in panel["switches"] if s["to"] > s["from"]]
        assert up and up[-1]["to"] == 32 and all(s["why"] == "crossing" for s in up)
        for s in up:
            want = crossing(truth, panel["B_p"], s["from"], s["to"])
            assert abs(math.log10(s["C"] / want)) < 0.3, (s, want)
            assert s["reward"] == pytest.approx(float(truth(32, s["to"], want)), abs=0.06)
            if s["lo"] is not None:
                assert s["lo"] < s["C"] < s["hi"] and s["hi"] / s["lo"] < 5
            else:
                assert s["share"] < 0.8
        assert panel["edge"] is None  # n = 64 was run and is not on top


def test_intervals_of_switches_cover_the_truth_in_most_sweeps(tmp_path):
    inside, wide, K = [], [], 60
    for draw in range(8):
        simulate(tmp_path / str(draw), ns=(4, 16, 32), draw=draw, samples=8)
        runs, dropped = frontier.read_runs(tmp_path / str(draw), "avg@4", "rollouts")
        rng = np.random.default_rng(draw)
        panel = frontier.panel_of(runs, config, rng.multinomial(300, np.full(300, 1 / 300), K) / 300, rng)
        assert dropped == []
        for s in panel["switches"]:
            if s["lo"] is not None and s["to"] > s["from"]:
                want = crossing(truth, 32, s["from"], s["to"])
                inside.append(s["lo"] <= want <= s["hi"])
                wide.append(s["hi"] / s["lo"])
    # 90% intervals: 16 switches of which 12 or fewer are covered has probability 0.07, and wide ones would be no merit
    assert len(inside) >= 12 and np.mean(inside) > 0.7 and np.median(wide) < 2.5, (inside, wide)


def test_the_json_holds_what_is_promised(sweep):
    _, front, laws = sweep
    panel = front["panels"]["B_p=32"]
    assert {"points", "curves", "switches", "runs_used", "runs_dropped", "records", "envelope", "near", "edge"} <= set(panel)
    assert len(panel["points"]) == 5 * 81 and [c["n"] for c in panel["curves"]] == [4, 8, 16, 32, 64]
    for c in panel["curves"]:
        assert (np.diff(c["reward"]) >= 0).all() and (np.array(c["lo"]) <= c["reward"]).mean() > 0.9
        assert c["last"] <= c["best_so_far"]
    top = np.array([np.interp(panel["envelope"]["C"], c["C"], c["reward"]) for c in panel["curves"]])
    assert np.array(panel["envelope"]["reward"]) == pytest.approx(top.max(0), abs=1e-6)
    assert all(a["set"] and abs(sum(a["share"].values()) - 1) < 1e-9 for a in panel["near"])
    assert "one seed" in front["covers"] and front["budget"] == 2_000_000 and panel["range"][1] == 2_000_000
    assert {"L", "k", "log10_C0", "b", "plateau", "flags", "verdict"} <= set(laws["law"])
    assert set(laws["panels"]) == set(front["panels"])


def test_planted_law_and_its_prescriptions(sweep):
    folder, front, laws = sweep
    assert laws["law"]["verdict"] == "law"
    plateau = laws["law"]["plateau"]
    assert plateau["lo"] <= plateau["value"] and 24 < plateau["value"] < 48
    asked, own, far = laws["prescriptions"]
    assert (asked["C"], own["C"], far["C"]) == (3e5, 2e6, 8e6)
    assert [p["status"] for p in (asked, own, far)] == ["observed", "observed", "extrapolated"]
    assert own["n"] == far["n"] == 32 and asked["n"] in asked["near"]
    assert far["reward"] is None and far["interval"] is None
    assert far["by"] == "the law" and "extrapolated" in far["caveat"][0]
    assert own["interval"][0] < own["reward"] < own["interval"][1]
    assert own["B_p"] == 8 and "smallest" in own["why_B_p"]  # both panels have one truth: noise alone separates them
    for p in (asked, own, far):
        words = shlex.split(p["command"])
        assert words[:2] == ["python", "train_grpo.py"]
        run = parse(words[2:])
        assert identity(run) == identity(dict(front["config"], B_p=p["B_p"], n=p["n"]))
        B = p["B_p"] * p["n"]
        assert p["M"] == run["C"] // B and p["lr"] == pytest.approx(1e-6 * math.sqrt(B / 1024))
    assert (folder / "frontier.png").stat().st_size > 50_000 and (folder / "law.png").stat().st_size > 20_000


def test_the_text_names_switches_missing_and_extrapolation(sweep):
    folder, front, _ = sweep
    said = shell(ROOT / "frontier.py", f"--runs={folder}", "--boot=40").stdout
    s = front["panels"]["B_p=8"]["switches"][-1]
    assert f"{s['from']:>4} -> {s['to']}" in said and f"{s['reward']:.3f}" in said and "10 runs used, 0 dropped" in said
    said = shell(ROOT / "fit_sigmoid.py", f"--runs={folder}").stdout
    assert "extrapolated" in said and "python train_grpo.py" in said and "plateau n* = " in said


def test_more_seeds_are_pooled_and_the_intervals_say_so(tmp_path):
    simulate(tmp_path, ns=(4, 32), seeds=(0, 1, 2), run_sd=0.02, evals=12)
    front = analyse(tmp_path, "--metric=worst@4", "--unit=tokens")
    panel = front["panels"]["B_p=32"]
    assert "seeds, 3 for each n" in front["covers"] and panel["curves"][0]["seeds"] == [0, 1, 2]
    assert front["unit"] == "tokens" and panel["range"][1] == pytest.approx(2e8, rel=1e-3)
    assert law(tmp_path)["prescriptions"][0]["M"] == 2_000_000 // (32 * panel["envelope"]["n"][-1])  # tokens become rollouts
    start = [p["reward"] for p in panel["points"] if p["C"] == 0]
    assert len(start) == 6 and max(start) < 0.2 < frontier.read_runs(tmp_path, "avg@4", "tokens")[0][0]["reward"][0]


def test_the_bootstrap_has_the_width_of_the_noise_and_shares_the_problems():
    rng, P, K = np.random.default_rng(0), 300, 400
    skill = rng.random(P)
    def run(n):
        return dict(values=rng.binomial(4, np.tile(skill, (9, 1))) / 4, reward=None, n=n)
    a, b = run(4), run(8)
    draws = rng.multinomial(P, np.full(P, 1 / P), K) / P
    Ra, _ = frontier.resample([a], draws, rng)
    Rb, _ = frontier.resample([b], draws, rng)
    assert Ra.std(0).mean() == pytest.approx((a["values"].std(1) / math.sqrt(P)).mean(), rel=0.1)
    # the difference of two runs on one set of problems is surer than either: rollout noise alone remains
    rollout = math.sqrt(2 * np.mean(skill * (1 - skill) / 4) / P)
    assert (Ra - Rb).std(0).mean() == pytest.approx(rollout, rel=0.15) and rollout < 0.8 * Ra.std(0).mean()
    R, w = frontier.resample([a, b], draws, rng)
    assert R.shape == w.shape == (K, 18) and set(np.unique(w)) == {0, 1, 2} and (w[:, 0] + w[:, 9] == 2).all()


def test_a_budget_that_some_batches_do_not_divide_leaves_no_n_alone_at_the_end(tmp_path):
    simulate(tmp_path, ns=(4, 24, 96), C=1_000_000, evals=10)
    panel = analyse(tmp_path, "--boot=0")["panels"]["B_p=32"]
    assert [c["reached"] for c in panel["curves"]] == [[100_000, 1_000_000]] * 3
    assert all(s["why"] == "crossing" for s in panel["switches"])


# ---------------------------------------------------------------------------------------------------------------------
# Sweeps with less in them

def test_one_n_is_no_law(tmp_path):
    simulate(tmp_path, ns=(8,), evals=10)
    front, laws = analyse(tmp_path), law(tmp_path)
    assert front["panels"]["B_p=32"]["switches"] == [] and front["panels"]["B_p=32"]["edge"] is None
    assert laws["law"]["verdict"] == "undetermined" and "one n only" in laws["law"]["reason"]
    assert laws["law"]["L"]["value"] is None and laws["prescriptions"][1]["n"] == 8


def test_small_n_always_on_top_is_flat_with_an_edge(tmp_path):
    simulate(tmp_path, ns=(4, 8, 32), evals=12, truth=lambda B_p, n, C: 0.3 + 0.2 * (C > 0) * (1 - 0.15 * math.log2(n / 4)))
    front, laws = analyse(tmp_path), law(tmp_path)
    edge = front["panels"]["B_p=32"]["edge"]
    assert (edge["n"], edge["side"], edge["add"]) == (4, "smallest", dict(B_p=32, n=2))
    assert laws["law"]["verdict"] == "flat" and laws["law"]["plateau"]["value"] is None
    far = laws["prescriptions"][1]
    assert far["status"] == "extrapolated" and far["n"] == 4 and any("add B_p = 32, n = 2" in c for c in far["caveat"])


def test_largest_n_on_top_is_an_edge_and_no_law(tmp_path):
    simulate(tmp_path, ns=(2, 4, 8, 16), evals=25)
    front, laws = analyse(tmp_path), law(tmp_path)
    edge = front["panels"]["B_p=32"]["edge"]
    assert edge["add"] == dict(B_p=32, n=32) and edge["side"] == "largest"
    assert laws["law"]["verdict"] == "undetermined" and laws["law"]["k"]["value"] is None
    assert frontier.grid_edge([2, 4], 4, 32, 1e6, dict(B_max=128))["add"] is None


def test_runs_that_end_early_are_no_crossing(tmp_path):
    logs = simulate(tmp_path, ns=(4, 64), evals=20, truth=lambda B_p, n, C: 0.3 + 0.3 * (C > 0) * (n == 4) + 1e-8 * C)
    edit(logs[32, 4, 0], lambda r: None if r.get("rollouts", 0) > 6e5 and r["type"] != "end" else
         dict(r, status="diverged", rollouts=6e5) if r["type"] == "end" else r)
    front = analyse(tmp_path)
    assert [s["why"] for s in front["panels"]["B_p=32"]["switches"]] == ["ends"]
    assert any("diverged" in note for note in front["notes"]) and front["runs_unfinished"] == []
    laws = law(tmp_path)
    assert laws["law"]["verdict"] == "flat" and any("left out" in f for f in laws["law"]["flags"])


def test_evaluations_without_counts_use_the_stored_field(tmp_path):
    logs = simulate(tmp_path, ns=(4, 32), evals=10)
    for log in logs.values():
        edit(log, lambda r: {key: v for key, v in r.items() if key != "correct"})
    front = analyse(tmp_path)
    assert "no counts" in front["covers"] and len(front["panels"]["B_p=32"]["points"]) == 22
    assert "best@4" in refused("frontier.py", f"--runs={tmp_path}", "--metric=best@4")


# ---------------------------------------------------------------------------------------------------------------------
# Logs as they come

def test_gz_torn_lines_and_unknown_records(tmp_path):
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    logs = simulate(plain, ns=(4, 16), evals=10)
    simulate(packed, ns=(4, 16), evals=10, gz=True)
    want = analyse(plain, "--boot=0")["panels"]["B_p=32"]["curves"]
    assert analyse(packed, "--boot=0")["panels"]["B_p=32"]["curves"] == want
    with open(logs[32, 4, 0], "a") as file:
        file.write('{"type": "dream", "rollouts": 5}\n{"type": "eval", "set": "ood", "rollouts": 1, "correct": [1]}\n')
        file.write('{"type": "eval", "roll')
    assert analyse(plain, "--boot=0")["panels"]["B_p=32"]["curves"] == want
    head = json.loads(logs[32, 4, 0].read_text().split("\n")[0])
    head["config"]["C"] = 3_000_000  # as a run that goes on with a larger budget may write it
    with open(logs[32, 16, 0], "a") as file:
        file.write(json.dumps(dict(head, config=head["config"] | dict(n=16))) + "\n")
    assert analyse(plain, "--boot=0")["budget"] == 3_000_000
    lines = logs[32, 4, 0].read_text().split("\n")
    logs[32, 4, 0].write_text("\n".join([*lines[:3], lines[3][:20], *lines[4:]]))
    # a log that is broken inside is left out and named, the others are analysed
    front = analyse(plain, "--boot=0")
    assert [d["why"] for d in front["runs_dropped"]] == [f"{logs[32, 4, 0]}:4: not a line of JSON"]
    assert front["panels"]["B_p=32"]["ns"] == [16]


def test_runs_that_cannot_be_compared_are_dropped_with_the_reason(tmp_path):
    logs = simulate(tmp_path, ns=(4, 8, 16, 32), seeds=(0, 1, 2), evals=8)
    def spoil(key, change):
        edit(logs[key], change)
        return logs[key].parent.name
    def header(**changes):
        return lambda r: dict(r, config=r["config"] | changes) if r["type"] == "header" else r
    def evals(**changes):
        return lambda r: dict(r, **changes) if r["type"] == "eval" else r
    def later(**changes):
        return lambda r: dict(r, **changes) if r["type"] == "eval" and r["step"] else r
    why = {
        spoil((32, 4, 0), lambda r: None if r["type"] == "header" else r): "no header",
        spoil((32, 4, 1), lambda r: None if r.get("step", 0) > 500 else r): "too few evaluations",
        spoil((32, 8, 0), header(lr_base=3e-6, kl_coef=0.5)): "kl_coef=0.5 for 0.001, lr_base=3e-06 for 1e-06",
        spoil((32, 8, 1), evals(set_hash="other")): "other validation problems",
        spoil((32, 16, 0), evals(samples=8)): "number of samples than most runs",
        spoil((32, 16, 1), header(seed=2)): "the same B_p, n and seed as",
        spoil((32, 32, 0), later(correct=[9] * 300)): "not numbers from 0 to",
        spoil((32, 32, 1), later(set_hash="x")): "differ in problem file"}
    front = analyse(tmp_path, "--boot=0")
    got = {d["run"]: d["why"] for d in front["runs_dropped"]}
    # of two runs of one cell either may stay
    twin = [name for name in got if "the same B_p, n and seed as" in got[name]]
    assert len(twin) == 1 and len(got) == len(why) == 8
    for name, part in why.items():
        assert name in got and part in got[name] or "the same" in part, (name, part, got.get(name))
    assert {r["run"] for r in front["runs_used"]} == {log.parent.name for log in logs.values()} - set(got)


def test_missing_and_unfinished_cells_are_named(tmp_path, capsys):
    simulate(tmp_path, ns=(4, 16), evals=8, unfinished=[(32, 16, 0)])
    plan = dict(ns="4 16 64", bps="32", seeds="0", B_max=0, C=2_000_000)
    (tmp_path / "sweep.json").write_text(json.dumps(dict(config=plan, made="by run_sweep.sh")))
    front = analyse(tmp_path, "--boot=0")
    assert [(m["n"], m["why"]) for m in front["missing"]] == [(64, "no log"), (16, "unfinished")]
    said = capsys.readouterr().out
    assert "missing 2: B_p=32 n=64 seed=0 (no log); B_p=32 n=16 seed=0 (unfinished)" in said
    assert len(front["runs_unfinished"]) == 1 and len(front["runs_used"]) == 2
    (tmp_path / "sweep.json").write_text('{"config": {"ns": 5}}')
    assert "--ns=5" in refused("frontier.py", f"--runs={tmp_path}")


def test_bad_input_is_one_line_and_leaves_nothing_behind(tmp_path):
    assert "no such folder" in refused("frontier.py", f"--runs={tmp_path / 'none'}")
    assert "no run to analyse" in refused("frontier.py", f"--runs={tmp_path}")
    simulate(tmp_path / "half", ns=(4, 8), evals=8, unfinished=[(32, 4, 0), (32, 8, 0)])
    assert "no finished run" in refused("frontier.py", f"--runs={tmp_path / 'half'}")
    assert "an evaluation here has 4" in refused("frontier.py", f"--runs={tmp_path / 'half'}", "--metric=best@8")
    assert "nearest is fixed_Bp" in refused("frontier.py", "--view=fixed_B")
    assert "no frontier.json" in refused("fit_sigmoid.py", f"--runs={tmp_path}")
    csvs = {"a.csv": ("rollouts,n\n1,2\n", "expected the columns C and n, found rollouts, n"),
            "b.csv": ("C,n\n", "5 or more"), "c.csv": ("C,n\n1e5,8\nlots,16\n", "line 3"),
            "d.csv": ("C,n\n1e5,8\n1e6,16\n1e6,17\n2e6,32\n", "3 different budgets"),
            "e.csv": ("C,n\n1e5,8\n1e6\n", "line 3"), "f.csv": ("C,n\n1e5,8\n-1,4\n", "line 3")}
    for name, (text, message) in csvs.items():
        (tmp_path / name).write_text(text)
        assert message in refused("fit_sigmoid.py", f"--points={tmp_path / name}")
    assert "g.csv" in refused("fit_sigmoid.py", f"--points={tmp_path / 'g.csv'}")
    assert not [f for name in ("*.png", "frontier.json", "law.json") for f in tmp_path.rglob(name)]


def test_a_budget_below_one_update_is_refused(sweep):
    assert "below one update" in refused("fit_sigmoid.py", f"--runs={sweep[0]}", "--C=10")


def test_no_torch_and_no_matplotlib_on_import():
    heavy = ("torch", "transformers", "matplotlib", "scipy")
    done = shell("-c", f"import frontier, fit_sigmoid, sys; print([m for m in {heavy} if m in sys.modules])")
    assert done.stdout.strip() == "[]", done


def test_every_run_is_named_as_the_trainer_names_it(tmp_path):
    folders = simulate(tmp_path, ns=(4,), evals=4)
    cfg = json.loads(folders[32, 4, 0].read_text().splitlines()[0])["config"]
    assert folders[32, 4, 0].parent.name == run_name(cfg) and set(cfg) == set(config)
    assert finite(float("nan")) is None
