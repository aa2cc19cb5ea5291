"""bandit_toy.py against theory, autograd and train_grpo.py; its logs in the analysis; the study."""
import copy
import importlib.util
import itertools
import json
import math
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import bandit_toy as b
import config
from core.log import read_log, save_json
import train_grpo
from conftest import PATIENCE, ROOT, wait_for

SMALL = ("--D=20 --pool=30 --n_val=10 --B_p=4 --n=4 --C=512 --eval_every=128 --deciding=2 --idle=3 "
         "--responses=4 --features=6 --pass_at=")


def resolve(words=""):
    return config.parse(["--data=data/bandit", *SMALL.split(), *words.split()], own=b.TOY)


@pytest.fixture(autouse=True)
def at_root(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.fixture(scope="module")
def study():
    spec = importlib.util.spec_from_file_location("study", ROOT / "results/bandit/study.py")
    # worker processes import the functions by the name of the module
    module = sys.modules["study"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---- one problem

def test_exact_gradient_is_the_finite_difference():
    rng = np.random.default_rng(0)
    theta, right = rng.standard_normal((5, 6)), np.array([True, False, False, True, False, False])

    def pass_rate(theta):
        return (b.softmax(theta) * right).sum(-1)
    steps = 1e-6 * np.eye(6)
    numeric = np.stack([(pass_rate(theta + e) - pass_rate(theta - e)) / 2e-6 for e in steps], 1)
    assert np.abs(numeric - b.exact_gradient(theta, right)).max() < 1e-9


@pytest.mark.parametrize("n", [1, 2, 64])
def test_the_estimate_is_unbiased_and_its_variance_falls_as_1_over_n(n, R=40_000, K=5):
    """Each of the 6 comparisons has alpha = 1e-4, so correct code fails for one seed in 1,700."""
    theta, right = np.linspace(-1, 1, K)[None], np.arange(K) % 2 == 0
    g, pi = b.exact_gradient(theta, right)[0], b.softmax(theta)[0]
    G = b.sampled_gradient(np.tile(theta, (R, 1)), right, n, np.random.default_rng([n, 5]))
    z = (G.mean(0) - g) / (G.std(0, ddof=1) / math.sqrt(R))
    assert K * 2 * stats.norm.sf(np.abs(z).max()) > 1e-4
    # variance of one rollout's gradient: the exact sum over the K responses
    one = sum(pi[a] * ((right[a] * (np.eye(K)[a] - pi) - g) ** 2).sum() for a in range(K))
    size = n * ((G - g) ** 2).sum(1)
    z = (size.mean() - one) / (size.std(ddof=1) / math.sqrt(R))
    assert abs(z) < stats.norm.isf(0.5e-4)


def test_rate_fit_covers_planted_constants():
    """A = 2, B = 0.5, skewed noise. Of 250 intervals of 90%, 82 to 98% cover the planted value,
    which is 90% within four standard errors.
    """
    rng, ns, hits = np.random.default_rng(0), (1, 2, 4, 16, 64), []
    for _ in range(250):
        fit = b.fit_rate(np.stack([(2 / n + 0.5) * rng.exponential(size=300) for n in ns]), ns)
        hits.append([abs(fit[name][0] - value) <= fit[name][1] for name, value in
                     (("A", 2), ("B", 0.5))])
    assert ((0.82 < np.mean(hits, 0)) & (np.mean(hits, 0) < 0.98)).all(), np.mean(hits, 0)


def test_the_base_case_agrees_with_theory(tmp_path, capsys):
    found = b.one_problem(tmp_path, R=100, T=32, C=256)
    assert "lr the same: suboptimality" in capsys.readouterr().out
    assert (tmp_path / "one.png").stat().st_size > 10_000
    for x in found["sampled"]:
        for key, value in (("solved", x["exact"]), ("mean", 1), ("variance_times_n", 1)):
            assert abs(x[key][0] - value) < 2.5 * x[key][1]
    same = {n: mean for n, (mean, _) in found["spent"]["lr the same"].items()}
    assert sorted(same, key=same.get) == [1, 4, 16, 64, 256]  # at one lr, more updates are better


def test_exact_ascent_tends_to_its_limit():
    """t x suboptimality of the exact gradient tends to (K - 1) / (K lr)."""
    theta, right = b.first_logits(0.2, 4)
    for _ in range(4096):
        theta += b.exact_gradient(theta, right)
    assert 4096 * (1 - b.softmax(theta)[0, 0]) == pytest.approx(0.75, rel=0.01)


# ---- many problems

def test_rollouts_follow_the_policy():
    """Chi-square over 6 x 40,000 draws of 5 choices, at alpha = 1e-4 in all."""
    rng = np.random.default_rng(0)
    # (K, S, P, d)
    pi = np.moveaxis(b.softmax(rng.standard_normal((2, 1, 3, 5)).astype(np.float32) * 2), -1,
                     0).copy()
    choice = b.roll(pi, 40_000, [np.random.Generator(np.random.SFC64([s])) for s in (1, 2)])
    for s, d in itertools.product(range(2), range(3)):
        seen = np.bincount(choice[s, :, 0, d], minlength=5)
        p = pi[:, s, 0, d].astype(float)
        assert stats.chisquare(seen, 40_000 * p / p.sum()).pvalue > 1e-4 / 6


@pytest.mark.parametrize("words", ["--overlap=0", "--overlap=0.3 --grad_clip=0.01 --warmup=3",
                                   "--weight_decay=5 --warmup=0"])
def test_updates_are_those_of_autograd_and_torchs_adamw(words, monkeypatch):
    """Eight updates have the weights and the step fields of torch with the same rollouts."""
    import torch
    cfg = dict(resolve(words), lr_base=0.5)
    d, world, drawn = config.derive(cfg), b.make_world(cfg), []
    roll = b.roll
    monkeypatch.setattr(b, "roll", lambda *a: drawn.append(roll(*a)) or drawn[-1])
    run = b.Run(cfg, world, [3])
    F, K = cfg["features"], cfg["responses"]
    shapes = (F, K), (20, cfg["deciding"] + cfg["idle"], K)
    W, own = (torch.zeros(s, dtype=torch.float64, requires_grad=True) for s in shapes)
    used = [x for x, share in ((W, cfg["overlap"]), (own, 1 - cfg["overlap"])) if share]
    opt = torch.optim.AdamW(used, weight_decay=cfg["weight_decay"])
    x, base = torch.tensor(world["x"]).double(), torch.tensor(world["base"]).double()
    for m in range(1, 9):
        places = copy_queue(run, cfg["B_p"])
        fields = run.update(cfg, d)
        problems = run.problems[0, places]
        shared, apart = math.sqrt(cfg["overlap"]), math.sqrt(1 - cfg["overlap"])
        z = base[problems] + shared * x[problems] @ W + apart * own[places]
        logp = torch.log_softmax(z, -1)
        choice = torch.tensor(drawn[-1][0].astype(np.int64))  # (n, B_p, d)
        answer = torch.tensor(world["answer"][problems])
        r = (choice[..., :cfg["deciding"]] == answer).all(-1).double().T  # (B_p, n)
        A = train_grpo.advantages(r)
        # log-probs of the choices, (n, B_p, d)
        taken = logp[None].expand(cfg["n"], *logp.shape).gather(-1, choice[..., None])[..., 0]
        loss = -(A.T[..., None] * taken).mean()
        opt.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(used, cfg["grad_clip"])
        assert [fields[key][0] for key in ("grad_norm", "reward", "frac_all_right",
                                           "frac_all_wrong")] == pytest.approx(
            [norm.item(), r.mean().item(), (r.mean(1) == 1).double().mean().item(),
             (r.mean(1) == 0).double().mean().item()], rel=1e-3)
        opt.param_groups[0]["lr"] = d["lr"] * (min(1, m / cfg["warmup"]) if cfg["warmup"] else 1)
        opt.step()
    for name, theirs in (("W", W), ("own", own)):
        if name in run.weights:
            theirs = theirs.detach().numpy()
            mine = run.weights[name][0].reshape(theirs.shape)
            assert np.abs(mine - theirs).max() < 2e-3 * max(0.01, np.abs(theirs).max())
    assert np.abs(used[0].detach().numpy()).max() > 0.05  # the updates moved the weights


def copy_queue(run, B_p):
    """Return the next batch of `run`, (B_p,), and leave it in the queue."""
    return copy.deepcopy(run).batch(B_p)[0]


def test_the_world_follows_its_keys():
    for recipe, lo, hi in (("easy", 0.3, 0.6), ("hard", 0, 0.0625)):
        cfg = resolve(f"--recipe={recipe}")
        run = b.Run(cfg, b.make_world(cfg), [0])
        for p in (run.validation(), run.training()):
            assert (lo <= p).all() and (p <= hi + 1e-6).all()
    cfg = resolve("--skill=1 --sharpness=200")
    assert b.Run(cfg, b.make_world(cfg), [0]).validation().mean() > 0.9
    small, large = (b.Run(dict(cfg, D=D), b.make_world(cfg), [5]).problems[0] for D in (7, 19))
    # the problems of a smaller D are among those of a larger D, and none is a validation problem
    assert set(small) <= set(large) and min(large) >= cfg["n_val"]


def read(folder, seed):
    records = read_log(next(folder.glob(f"*seed{seed}_*")) / "log.jsonl")
    for r in records:
        r.pop("time", None), r.pop("commit", None)
    return records


def test_a_log_depends_only_on_its_config(tmp_path, capsys):
    """A seed writes the same log alone and together with others. A log with a larger C starts with
    the records of a smaller C. Finished runs are not repeated.
    """
    def bandit(verb, name, *more):
        b.main([verb, *SMALL.split(), "--ns=4", "--bps=4", "--overlap=0.5", "--pass_at=0 256",
                f"--runs={tmp_path / name}", *more])
    bandit("sweep", "a", "--seeds=0 1 2")
    bandit("run", "b", "--seed=1")
    bandit("run", "c", "--seed=1", "--C=640")
    together, alone, longer = (read(tmp_path / name, 1) for name in "abc")
    for records in (together, alone, longer):  # the headers differ in budget and folder
        header = records.pop(0)
        assert header["config"]["seed"] == 1 and header["derived"]["B"] == 16
    # the smaller C ends with pass rates and an end record that the larger C does not have
    assert together == alone and longer[:len(alone) - 2] == alone[:-2]
    assert read(tmp_path / "a", 0)[1:] != together
    assert [r["type"] for r in alone if r["type"] != "step"] == ["eval", "train_pass", "eval",
        "eval", "train_pass", "eval", "eval", "train_pass", "end"]
    log = next((tmp_path / "b").glob("*/log.jsonl"))
    before = log.stat().st_mtime_ns
    bandit("run", "b", "--seed=1")
    assert "0 to do" in capsys.readouterr().err.splitlines()[-1]
    assert log.stat().st_mtime_ns == before


@pytest.fixture(scope="module")
def swept(tmp_path_factory, script):
    """Return the folder of a sweep of the toy, n = 2, 16 and 128."""
    runs = tmp_path_factory.mktemp("bandit")
    done = script("bandit_toy.py", "sweep", "--ns=2 16 128", "--C=65536", "--eval_every=4096",
                  "--seeds=0 1", "--pass_at=0 65536", f"--runs={runs}")
    assert done.code == 0, done.stderr
    return runs


def test_the_analysis_runs_on_it_unchanged(swept, script, capsys):
    for name, *words in (("frontier.py", "--view=joint"), ("fit_sigmoid.py",)):
        done = script(name, *words, f"--runs={swept}")
        assert done.code == 0, done.stderr
        assert name != "frontier.py" or "6 runs used, 0 dropped" in done.stdout
    assert "train_grpo.py" not in done.stdout  # that command would train a language model


def test_counts_are_binomial_about_the_exact_pass_rates(swept):
    """Repeat a run to get its exact pass rates p. Over the counts of problems with p in [0.1, 0.9],
    the mean squared z-score is 1 within 4 standard errors.
    """
    records = read_log(next(swept.glob("*n16_seed0*/log.jsonl")))
    cfg, z = records[0]["config"], []
    run = b.Run(cfg, b.make_world(cfg), [0])
    for r in (r for r in records if r["type"] == "eval"):
        while run.rollouts < r["rollouts"]:
            run.update(cfg, config.derive(cfg))
        p = run.validation()[0].astype(float)
        assert r["exact"] == pytest.approx(p.mean())
        assert r["avg@4"] == pytest.approx(np.mean(r["correct"]) / r["samples"])
        inside = (p > 0.1) & (p < 0.9)
        z += list((np.array(r["correct"]) - r["samples"] * p)[inside]
                  / np.sqrt(r["samples"] * (p * (1 - p))[inside]))
    assert len(z) > 500 and abs(np.mean(np.square(z)) - 1) < 4 * math.sqrt(2 / len(z))


def test_a_run_that_diverges_is_marked_and_the_others_continue(tmp_path):
    words = [*SMALL.split(), "--ns=4 8", "--bps=4", f"--runs={tmp_path}"]
    with np.errstate(all="ignore"):
        b.main(["sweep", *words, "--lrs=0.1 1e40"])
    logs = [read_log(path) for path in tmp_path.glob("*/log.jsonl")]
    ends = {(r[0]["config"]["n"], r[0]["config"]["lr_base"]): r[-1]["status"] for r in logs}
    assert ends == {(4, 0.1): "budget", (8, 0.1): "budget", (4, 1e40): "diverged",
                    (8, 1e40): "diverged"}


@pytest.mark.parametrize("how,code,later", [(signal.SIGINT, 130, 0.5), (signal.SIGTERM, 143, 0)])
def test_a_stopped_sweep_leaves_no_process_and_no_half_of_a_log(how, code, later, tmp_path):
    """The signal comes while the processes compute (SIGINT) or while they start (SIGTERM)."""
    started = subprocess.Popen([sys.executable, "bandit_toy.py", "sweep", "--ns=2 4", "--C=1e7",
                                "--bps=16", f"--runs={tmp_path}"], cwd=ROOT,
                               stderr=subprocess.PIPE, text=True, start_new_session=True)
    children = Path(f"/proc/{started.pid}/task/{started.pid}/children")
    wait_for(children.read_text)
    time.sleep(later)
    if how == signal.SIGINT:
        os.killpg(started.pid, how)  # as a terminal does
    else:
        started.send_signal(how)
    assert started.wait(PATIENCE) == code
    started.stderr.read()  # ends when the last process that has the pipe ends
    assert not [p for p in tmp_path.glob("*/*") if p.is_file()]


@pytest.mark.parametrize("words,says", [
    ("nothing", "nothing: no such verb"),
    ("run --D=5000", "--D=5000: expected 0 to 2048 problems of the pool"),
    ("run --B_p=200", "--B_p=200: expected 1 to 100 training problems"),
    ("run --algo=ppo --C=1e4", "--algo=ppo: the toy has only algo=grpo"),
    ("run --overlap=2", "--overlap=2"),
    ("run --responses=1", "--responses=1"), ("run --pool=0", "--pool=0: expected 1 to"),
    ("run --skill=1.5", "--skill=1.5"), ("run --overlp=1", "the nearest is overlap"),
    ("run --responses=300", "expected 2 to 256"), ("run --out=here", "--out=here: the toy has"),
    ("sweep --C=10 --ns=2", "below one update"),
    ("run --recipe=hard --deciding=1 --sharpness=0 --C=1e4", "too few problems"),
    ("run --recipe=easy", "--kl_coef=0.001: the toy has only kl_coef=none")])
def test_bad_input_is_one_line(words, says, tmp_path):
    with pytest.raises(config.BadInput) as error:
        b.main([*words.split(), f"--runs={tmp_path}"])
    assert says in str(error.value) and "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_keys_of_the_toy(capsys):
    """Only the toy has its keys. They are part of a run's name, identity and command."""
    for main, listed in ((b.main, True), (config.main, False)):
        with pytest.raises(SystemExit):
            main(["--help"])
        out = capsys.readouterr().out
        for key, (value, comment) in b.TOY.items():
            assert (f"  --{key}={value} " in out and comment in out) == listed, key
    with pytest.raises(config.BadInput, match="--overlap=0.5: no such key, the nearest is"):
        train_grpo.main(["--overlap=0.5", "--C=1e5"])


def test_the_world_is_part_of_a_runs_identity(tmp_path):
    """A run of another world has another folder, although config.py has no key of the toy."""
    for words in ("--overlap=0.5", "--overlap=0.2", "--n_val=12"):
        b.main(["run", *SMALL.split(), *words.split(), "--C=128", f"--runs={tmp_path}"])
    assert len(list(tmp_path.glob("*/log.jsonl"))) == 3


# ---- the study

def test_late_gain_and_near_on_planted_rewards(study):
    """The planted n = 4 is best early, by 2 points, and n = 16 late, by 3 points, at another lr. n
    = 2 is never best. Eight seeds share most of their noise.
    """
    rng = np.random.default_rng(0)
    # (L, N, E)
    mean = np.array([[[.20, .30], [.24, .30], [.22, .26]], [[.20, .28], [.20, .29], [.20, .33]]])
    shared, own = rng.standard_normal((1, 1, 8, 1)), rng.standard_normal((2, 3, 8, 2))
    R = mean[:, :, None] + 0.05 * shared + 0.002 * own
    gain, half, ends = study.late_gain(R)
    assert ends == [1, 2] and abs(gain - 0.03) < 0.003 and half < 0.003
    assert study.near(R, 0) == [1] and study.near(R, 1) == [2]
    assert study.late_gain(R[..., ::-1])[2] == [2, 1]  # with budgets reversed, n* falls


def test_late_gain_and_near_if_all_n_are_equal(study):
    """Of 1,500 intervals of `late_gain`, 85 to 93% cover 0. In 7 to 13% of 1,000 draws `near` drops
    one of two n.
    """
    rng = np.random.default_rng(0)
    gains = np.array([study.late_gain(rng.standard_normal((3, 5, 8, 2)))[:2] for _ in range(1500)])
    assert 0.85 < np.mean(np.abs(gains[:, 0]) <= gains[:, 1]) < 0.93
    assert abs(gains[:, 0].mean()) < 0.05
    tied = [study.near(rng.standard_normal((1, 2, 8, 1)), 0) for _ in range(1000)]
    assert 0.07 < np.mean([len(ns) < 2 for ns in tied]) < 0.13


def test_the_study_continues_and_refuses_another_world(study, tmp_path, monkeypatch, capsys):
    real, trained = study.in_parallel, []
    few = {key: study.STUDY[key] for key in ("no_idle", "more_idle", "overlap_0")}
    for name, value in dict(STUDY=few, SEEDS=range(4), NS=(2, 8),
                            BUDGETS=[512, 1024, 2048]).items():
        monkeypatch.setattr(study, name, value)
    monkeypatch.setattr(study, "in_parallel",
                        lambda f, cells, *a: trained.append(len(cells)) or real(f, cells, *a))
    words = [*SMALL.split(), f"--runs={tmp_path}"]
    cfg = config.parse(["--data=data/bandit", *words], own=b.TOY)
    world = config.identity(cfg) | {key: cfg[key] for key in (*b.TOY, "n_val")}
    del world["kl_type"]  # as if the key had been added later
    save_json(tmp_path / "study.json", dict(config=world, arms={}))
    study.main(words)
    first = capsys.readouterr().out
    assert trained == [10, 6, 6] and "overlap_0: tabular" in first
    assert (tmp_path / "study.png").stat().st_size > 10_000
    study.main(words)
    assert len(trained) == 3 and capsys.readouterr().out == first
    with pytest.raises(config.BadInput, match="another config"):
        study.main([*words, "--skill=0.5"])
