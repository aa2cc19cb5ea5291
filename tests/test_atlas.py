"""results/atlas.py: its contrasts on planted truth, thinned logs, and the table that one command writes from the committed runs."""
import gzip
import importlib.util
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from conftest import run_script

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def atlas():
    spec = importlib.util.spec_from_file_location("atlas", ROOT / "results/atlas.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["atlas"] = module
    spec.loader.exec_module(module)
    return module


def planted(rng, means, S=3, P=300, spread=0.01):
    """Tables (S, P) of runs whose problems have pass rates around each mean, shared by all; seeds move a run by `spread`."""
    skill = rng.normal(0, 1, P)
    out = []
    for mean in means:
        rate = 1 / (1 + np.exp(-(np.log(mean / (1 - mean)) + skill + rng.normal(0, 0.3, P))))
        rate = np.clip(rate + rng.normal(0, spread, (S, 1)), 0, 1)
        out.append(rng.binomial(16, rate) / 16)
    return out


def test_contrast_covers(atlas):
    """90% intervals of a difference over seeds and problems hold the true one in 85 to 99% of 300 studies of two cells; they are not vacuous."""
    rng, hits, halves = np.random.default_rng(0), [], []
    true = np.mean([np.subtract(*(t.mean() for t in planted(rng, (0.6, 0.55), S=200, P=2000, spread=0))) for _ in range(5)])
    for _ in range(300):
        tables = planted(rng, (0.6, 0.55))
        c = atlas.contrast(*tables, atlas.pooled(tables))
        hits.append(abs(c["gain"] - true) <= c["half"])
        halves.append(c["half"])
    assert 0.85 <= np.mean(hits) <= 0.99 and np.median(halves) < 0.06 and c["sees"] > c["half"]


def test_rise_is_not_found_where_none_is(atlas):
    """Over 200 studies of four n: n that are all alike are called a rise in at most 6%; a planted one is found, with the n that was planted."""
    rng, false, found, late = np.random.default_rng(1), 0, 0, []
    for _ in range(200):
        flat = {n: [np.stack(planted(rng, (0.5, 0.6)), 1)] for n in (2, 8, 32, 128)}
        false += atlas.judge_rise(atlas.rise(flat), 0.01) == "agree"
        rises = {n: [np.stack(planted(rng, m, spread=0.005), 1)] for n, m in {2: (0.55, 0.6), 8: (0.53, 0.63), 32: (0.5, 0.7), 128: (0.4, 0.6)}.items()}
        c = atlas.rise(rises)
        found += atlas.judge_rise(c, 0.01) == "agree"
        late.append(c["late"])
    assert false <= 12 and found >= 180 and late.count(32) >= 190


def test_an_lr_that_suits_one_n_is_no_rise(atlas):
    """n = 4 is behind n = 64 at one lr and level with it at another: a rise at the first, none with the lr control."""
    rng = np.random.default_rng(2)
    own = {4: planted(rng, (0.55, 0.6), spread=0.002), 64: planted(rng, (0.5, 0.66), spread=0.002)}
    other = {4: planted(rng, (0.55, 0.66), spread=0.002), 64: planted(rng, (0.5, 0.6), spread=0.002)}
    one = {n: [np.stack(own[n], 1)] for n in own}
    both = {n: [np.stack(own[n], 1), np.stack(other[n], 1)] for n in own}
    assert atlas.judge_rise(atlas.rise(one), 0.01) == "agree" != atlas.judge_rise(atlas.rise(both), 0.01)


@pytest.mark.parametrize("gain, half, claim, verdict", [
    (0.05, 0.02, +1, "agree"), (-0.05, 0.02, +1, "disagree"), (0.01, 0.02, +1, "undecided"), (-0.05, 0.02, -1, "agree"),
    (0.05, 0.02, -1, "disagree"), (0.001, 0.01, 0, "agree"), (0.05, 0.02, 0, "disagree"), (0.01, 0.03, 0, "undecided")])
def test_verdicts(atlas, gain, half, claim, verdict):
    assert atlas.judge(dict(gain=gain, half=half), claim, 0.02 if claim == 0 else 0.0) == verdict


def test_thinned_logs_keep_what_is_counted(atlas, tmp_path):
    """`keep` leaves evaluations, pass rates and the end whole, means of the steps, and is told from an unfinished run."""
    steps = [dict(type="step", step=m, rollouts=16 * m, tokens=100 * m, wall_s=0.5 * m, reward=(m % 7) / 7, entropy=1.0, kl=None, loss=3.0) for m in range(1, 501)]
    evals = [dict(type="eval", step=m, rollouts=16 * m, set="val", samples=4, correct=[1, 2, 4]) for m in (0, 250, 500)]
    records = [dict(type="header", config=dict(n=2))] + sorted(steps + evals, key=lambda r: r["step"]) + [dict(type="end", status="budget", rollouts=8000)]
    for name, some in (("a", records), ("b", records[:-1])):
        (tmp_path / "runs/arm" / name).mkdir(parents=True)
        (tmp_path / "runs/arm" / name / "log.jsonl").write_text("".join(json.dumps(r) + "\n" for r in some))
    atlas.keep(tmp_path / "runs", tmp_path / "kept")
    assert [p.parent.name for p in tmp_path.glob("kept/*/*/log.jsonl.gz")] == ["a"]
    kept = [json.loads(line) for line in gzip.open(tmp_path / "kept/arm/a/log.jsonl.gz")]
    means = [r for r in kept if r["type"] == "step"]
    assert [r for r in kept if r["type"] == "eval"] == evals and kept[0] == records[0] and kept[-1] == records[-1]
    assert len(means) == atlas.KEPT_STEPS and means[-1]["rollouts"] == 8000 and all(r["kl"] is None and "loss" not in r for r in means)
    assert np.mean([r["reward"] for r in means]) == pytest.approx(np.mean([r["reward"] for r in steps]), abs=0.01)


def words_and_numbers(text):
    text = re.sub(r"\[figure\]\([^)]*\)", "", text)
    return re.sub(r"\d+(?:,\d{3})*(?:\.\d+)?", "#", text), [float(x.replace(",", "")) for x in re.findall(r"\d+(?:,\d{3})*(?:\.\d+)?", text)]


def test_the_page_is_what_the_logs_say(tmp_path):
    """One command draws every figure of results/README.md and writes the page itself, from the committed logs; last digits may differ."""
    done = run_script("results/atlas.py", f"--out={tmp_path}", timeout=600)
    assert done.code == 0, done.stderr
    old, new = (words_and_numbers((folder / "README.md").read_text()) for folder in (ROOT / "results", tmp_path))
    assert old[0] == new[0]
    assert np.allclose(old[1], new[1], rtol=0.02, atol=0.11)
    figures = {path.name for path in (ROOT / "results/atlas").glob("*.png")}
    assert figures and figures == {path.name for path in tmp_path.glob("*.png")}
    assert sum(p.stat().st_size for p in (ROOT / "results").rglob("*.gz")) < 20e6
