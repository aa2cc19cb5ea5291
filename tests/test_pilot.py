"""results/pilot.py: gradient noise on planted truth and on the embedded model; the price of n that
price.py reads from it."""
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import run_script

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "results"))
import price  # noqa: E402
import pilot  # noqa: E402


@pytest.mark.parametrize("tails, least, most", [(0, 0.83, 0.97), (1, 0.75, 0.92)])
def test_noise_ratio_covers(tails, least, most):
    """Gradients of 100 problems, 64 rollouts each, of planted variances: n_c and b are right on
    average, and 90% intervals cover n_c; less often where lengths differ by factors of e^tails from
    problem to problem."""
    rng, half, found = np.random.default_rng(0), 32, []
    for _ in range(200):
        length = np.exp(rng.normal(-tails ** 2, tails, (100, 1, 1)))  # mean square 1
        problems = rng.normal(0, 1, (100, 1, 40)) * length + 0.25  # between 40, mean^2 2.5
        # within 240, and a baseline from `half` rollouts
        spread = np.sqrt(6 * (1 + 1 / half) / half)
        g = problems + length * rng.normal(0, spread, (100, 2, 40))
        found.append(pilot.noise_ratio(torch.tensor(g), half))
    assert np.median([f["n_c"] for f in found]) == pytest.approx(6, rel=0.05)
    if not tails:
        assert np.mean([f["b"] for f in found]) == pytest.approx(16, rel=0.1)
    covered = [f["n_c_interval"][0] <= 6 <= f["n_c_interval"][1] for f in found]
    assert least <= np.mean(covered) <= most
    assert all(f["n"] == pytest.approx(1 + (f["n_c"] + 2) ** 0.5) for f in found)


def test_noise_ratio_without_a_difference():
    """Problems with one gradient: no n_c, and no division by nothing."""
    g = torch.ones(10, 2, 5, dtype=torch.float64)
    assert pilot.noise_ratio(g, 4)["n_c"] is None and pilot.noise_ratio(0 * g, 4)["b"] is None


@pytest.mark.parametrize("B_p", [1, 8])
def test_price_is_the_noise_of_groups(B_p):
    """Updates over B_p problems of n rollouts against their group's mean: rollouts times squared
    length of the update is the price, up to a factor.

    Planted: scores are 60 numbers at random plus a part along the problem's own direction that goes
    with the reward.
    """
    rng, dim = np.random.default_rng(1), 60
    p, x = rng.uniform(0.2, 0.8, 400), rng.normal(0, 1, (400, dim)) * 0.6 + 0.2

    def rollouts(problem, n):
        r = (rng.random((len(problem), n)) < p[problem, None]).astype(float)
        own = (r - p[problem, None])[..., None] * x[problem, None]
        return r, rng.normal(0, 1, (len(problem), n, dim)) + own

    def gradient(problem, n, baseline):
        r, s = rollouts(problem, n)
        if baseline == "group":
            return np.einsum("jn,jnd->jd", r - r.mean(1, keepdims=True), s) / (n - 1)
        return np.einsum("jn,jnd->jd", r - p[problem, None], s) / n

    every = np.arange(400)
    g = torch.tensor(np.stack([gradient(every, 500, "exact") for _ in range(2)], 1))
    noise = pilot.noise_ratio(g, 500)
    ratios = []
    for n in (2, 4, 8, 32):
        updates = []
        for _ in range(3000):
            problems = rng.choice(every, B_p, replace=False)
            updates.append(gradient(problems, n, "group").mean(0))
        taken = B_p * n * np.mean(np.square(updates).sum(1))
        ratios.append(taken / price.price(n, noise["n_c"], B_p / noise["b"]))
    assert max(ratios) / min(ratios) < 1.06
    assert min((2, 4, 8, 32), key=lambda n: price.price(n, 9.0)) == 4
    assert price.price(64, 9.0, 1.0) > 1.8 * price.price(64, 9.0)


def test_delays_are_read():
    """Curves that are one curve, later by a factor: the logs of these factors; none for a curve
    that starts above the reference's end."""
    C = np.geomspace(1000, 64000, 25)
    delays = np.array([0, 0.5, 1.3, -9.0])
    Y = 1 / (1 + np.exp(-(np.log2(C)[None] - 12 - delays[:, None])))
    log = price.delays(C, Y, 1)
    assert np.isnan(log[3]) and log[:3] == pytest.approx(delays[:3] - 0.5, abs=0.02)


def test_a_sketch_keeps_lengths_and_angles(monkeypatch):
    """Gradients summed into 4,096 random buckets have the products of the whole, 40,000 entries,
    within 5%."""
    rng = torch.Generator().manual_seed(0)
    model = torch.nn.ModuleList([torch.nn.Linear(200, 100), torch.nn.Linear(100, 200)])
    common = [torch.randn(p.shape, generator=rng) for p in model.parameters()]
    wholes, sketches = [], []
    for _ in range(4):
        for p, c in zip(model.parameters(), common):
            p.grad = c + torch.randn(p.shape, generator=rng)
        wholes.append(pilot.flat(model))
        monkeypatch.setattr(pilot, "SKETCH", 4096)
        sketches.append(pilot.flat(model))
        monkeypatch.undo()
    whole, sketch = (torch.stack(x) @ torch.stack(x).T for x in (wholes, sketches))
    assert sketches[0].shape == (4096,)
    assert torch.allclose(whole, sketch, atol=0.05 * whole.max().item())


def test_pilot_on_the_embedded_model(world):
    """The script tells the base model's noise on its Easy problems in one line of JSON, also where
    memory bounds the rows at once."""
    told = []
    for words in ((), ("--micro_tokens=64", "--micro_logits=4096")):
        done = run_script("results/pilot.py", "--recipe=easy", "--D=12", *words)
        assert done.code == 0, done.stderr
        told.append(json.loads(done.stdout.strip().splitlines()[-1]))
    assert 0.2 < told[0]["p"] < 0.8 and told[0]["within"] > told[0]["between"]
    assert 1 < told[0]["n"] < 20
    assert told[1]["within"] == pytest.approx(told[0]["within"], rel=0.01)
    done = run_script("results/pilot.py", "--recipe=easy", "--D=2")
    assert done.code != 0 and "--D=2" in done.stderr and "Traceback" not in done.stderr


def test_all_goes_on(tmp_path):
    """`all` measures no arm twice: what pilot.json has stays, and an arm of the same model and
    problems has its numbers."""
    config = dict(model="m", train_set="t.jsonl", D=20, temperature=1.0, C=64, n=4)
    old = dict(model="m", train_set="t.jsonl", D=20, n_c=5.0, n=3.6)
    for arm in ("a_later_one", "easy"):
        folder = tmp_path / arm / "run"
        folder.mkdir(parents=True)
        (folder / "log.jsonl").write_text(json.dumps(dict(type="header", config=config)) + "\n")
    (tmp_path / "pilot.json").write_text(json.dumps(dict(easy=old)))
    done = run_script("results/pilot.py", "all", f"--runs={tmp_path}")
    assert done.code == 0, done.stderr
    assert json.loads((tmp_path / "pilot.json").read_text()) == dict(easy=old, a_later_one=old)


def test_all_names_a_folder_that_is_not_there(tmp_path):
    done = run_script("results/pilot.py", "all", f"--runs={tmp_path / 'nowhere'}")
    assert done.code == 2 and len(done.stderr.splitlines()) == 1, done.stderr
    assert "--runs=" in done.stderr and "nowhere" in done.stderr
