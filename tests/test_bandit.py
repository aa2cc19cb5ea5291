"""bandit_toy.py against theory, autograd and train_grpo.py; its logs in the analysis; the study."""
import copy
import itertools
import math
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
from core.log import read_log
import train_grpo
from conftest import PATIENCE, ROOT, load_script, warm_python

SMALL = "--D=20 --n_val=10 --B_p=4 --n=4 --C=512 --eval_every=128 --idle=3"


def resolve(words=""):
    return config.parse(["--data=data/bandit", *SMALL.split(), *words.split()], own=b.TOY)


@pytest.fixture(autouse=True)
def at_root(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.fixture(scope="module")
def study():
    # worker processes import the functions by the name of the module
    module = sys.modules["study"] = load_script("results/bandit/study.py")
    return module


@pytest.mark.parametrize("n", [1, 2, 64])
def test_the_estimate_is_unbiased_and_its_variance_falls_as_1_over_n(n, R=40_000, K=5):
    """Each of the 6 comparisons has alpha = 1e-4, so correct code fails for one seed in 1,700."""
    theta, right = np.linspace(-1, 1, K)[None], np.arange(K) % 2 == 0
    pi = b.softmax(theta, -1)[0]
    g = pi * (right - pi[right].sum())  # the derivative of the pass rate
    G = b.sampled_gradient(np.tile(theta, (R, 1)), right, n, np.random.default_rng([n, 5]))
    z = (G.mean(0) - g) / (G.std(0, ddof=1) / math.sqrt(R))
    assert K * 2 * stats.norm.sf(np.abs(z).max()) > 1e-4
    # variance of one rollout's gradient: the exact sum over the K responses
    one = sum(pi[a] * ((right[a] * (np.eye(K)[a] - pi) - g) ** 2).sum() for a in range(K))
    size = n * ((G - g) ** 2).sum(1)
    z = (size.mean() - one) / (size.std(ddof=1) / math.sqrt(R))
    assert abs(z) < stats.norm.isf(0.5e-4)


def test_the_base_case_agrees_with_theory(tmp_path, capsys):
    ns = np.array([1, 2, 4, 16, 64])
    assert b.fit_rate(2 / ns + 0.5, ns) == pytest.approx([2, 0.5])
    left = b.one_problem(tmp_path, R=100, T=32, C=256)
    assert "lr the same: suboptimality" in capsys.readouterr().out
    assert (tmp_path / "one.png").stat().st_size > 10_000
    same = {n: mean for n, (mean, _) in left["lr the same"].items()}
    assert sorted(same, key=same.get) == [1, 4, 16, 64, 256]  # at one lr, more updates are better
    theta, right = np.log([[0.2, 0.8 / 3, 0.8 / 3, 0.8 / 3]]), np.arange(4) == 0
    # with n = 10^6, nearly the exact gradient: t x suboptimality tends to (K - 1) / (K lr)
    end = b.ascend(theta, right, 10 ** 6, 1, [4096], np.random.default_rng(0))[0, 0]
    assert 4096 * end == pytest.approx(0.75, rel=0.02)


def test_rollouts_follow_the_policy():
    """Chi-square over 6 x 40,000 draws of 5 choices, at alpha = 1e-4 in all."""
    rng = np.random.default_rng(0)
    pi = b.softmax(rng.standard_normal((5, 2, 3)).astype(np.float32) * 2, 0)  # (K, P, d)
    choice = b.roll(pi, 40_000, np.random.Generator(np.random.SFC64([1])))
    for problem, d in itertools.product(range(2), range(3)):
        seen = np.bincount(choice[:, problem, d], minlength=5)
        p = pi[:, problem, d].astype(float)
        assert stats.chisquare(seen, 40_000 * p / p.sum()).pvalue > 1e-4 / 6


@pytest.mark.parametrize("words", [
    "", "--grad_clip=0.01 --warmup=3", "--weight_decay=5 --warmup=0"])
def test_updates_are_those_of_autograd_and_torchs_adamw(words, monkeypatch):
    """Eight updates have the weights and the step fields of torch with the same rollouts."""
    import torch
    cfg = dict(resolve(words), lr_base=0.5)
    d, world, drawn = config.derive(cfg), b.make_world(cfg), []
    roll = b.roll
    monkeypatch.setattr(b, "roll", lambda *a: drawn.append(roll(*a)) or drawn[-1])
    run = b.Run(cfg | dict(seed=3), world)
    W = torch.zeros((b.F, b.K), dtype=torch.float64, requires_grad=True)
    opt = torch.optim.AdamW([W], weight_decay=cfg["weight_decay"])
    x, base = torch.tensor(world["x"]).double(), torch.tensor(world["base"]).double()
    for m in range(1, 9):
        problems = run.problems[copy.deepcopy(run).batch(cfg["B_p"])]
        fields = run.update(cfg, d)
        logp = torch.log_softmax(base[problems] + x[problems] @ W, -1)
        choice = torch.tensor(drawn[-1].astype(np.int64))  # (n, B_p, d)
        answer = torch.tensor(world["answer"][problems])
        r = (choice[..., :b.DECIDING] == answer).all(-1).double().T  # (B_p, n)
        A = train_grpo.advantages(r)
        # log-probs of the choices, (n, B_p, d)
        taken = logp[None].expand(cfg["n"], *logp.shape).gather(-1, choice[..., None])[..., 0]
        opt.zero_grad()
        (-(A.T[..., None] * taken).mean()).backward()
        norm = torch.nn.utils.clip_grad_norm_([W], cfg["grad_clip"])
        assert [fields[key] for key in ("grad_norm", "reward", "frac_all_right",
                                           "frac_all_wrong")] == pytest.approx(
            [norm.item(), r.mean().item(), (r.mean(1) == 1).double().mean().item(),
             (r.mean(1) == 0).double().mean().item()], rel=1e-3)
        opt.param_groups[0]["lr"] = d["lr"] * (min(1, m / cfg["warmup"]) if cfg["warmup"] else 1)
        opt.step()
    theirs = W.detach().numpy()
    assert np.abs(run.W[0] - theirs).max() < 2e-3 * np.abs(theirs).max()
    assert np.abs(theirs).max() > 0.05  # the updates moved the weights


def test_the_world_follows_its_keys():
    cfg = resolve("--skill=1")
    p = [b.Run(c, b.make_world(c)).pass_rates(np.arange(10)).mean()
         for c in (cfg, dict(cfg, skill=0.2))]
    assert p[0] > 2 * p[1]
    small, large = (b.Run(dict(cfg, D=D, seed=5), b.make_world(cfg)).problems for D in (7, 19))
    # the problems of a smaller D are among those of a larger D, and none is a validation problem
    assert set(small) <= set(large) and min(large) >= cfg["n_val"]
    runs = [b.Run(dict(cfg, seed=seed, D=7), b.make_world(cfg)) for seed in (5, 6)]
    assert set(runs[0].problems) != set(runs[1].problems)
    orders = [np.concatenate([run.batch(3) for _ in range(7)]).reshape(3, 7) for run in runs]
    assert (np.sort(orders, -1) == np.arange(7)).all()  # every epoch has each problem once
    assert not np.array_equal(*orders)
    assert runs[0].rollout_rng.random() != runs[1].rollout_rng.random()


def test_a_log_depends_only_on_its_config(tmp_path, capsys):
    """A larger C extends a log. Finished runs are not repeated. Another world: another folder."""
    def bandit(verb, name, *more):
        b.main([verb, *SMALL.split(), "--ns=4", "--bps=4", f"--runs={tmp_path / name}", *more])

    def read(name, seed):
        return read_log(next(tmp_path.glob(f"{name}/*seed{seed}_*")) / "log.jsonl")
    bandit("sweep", "a", "--seeds=0 1 2")
    bandit("run", "b", "--seed=1")
    bandit("run", "c", "--seed=1", "--C=640")
    # the headers differ in budget, folder and commit
    (_, *of_sweep), (header, *alone), (_, *longer) = [read(name, 1) for name in "abc"]
    assert header["config"]["seed"] == 1 and header["derived"]["B"] == 16
    assert of_sweep == alone and longer[:len(alone) - 1] == alone[:-1]  # all but the end record
    assert read("a", 0)[1:] != of_sweep
    assert [r["type"] for r in alone if r["type"] != "step"] == ["eval"] * 5 + ["end"]
    log = next((tmp_path / "b").glob("*/log.jsonl"))
    before = log.stat().st_mtime_ns
    bandit("run", "b", "--seed=1")
    assert "0 to do" in capsys.readouterr().out
    assert log.stat().st_mtime_ns == before
    bandit("run", "d", "--seed=1", "--eval_every=120")  # not a multiple of B_p n
    assert sum(r["type"] == "eval" for r in read("d", 1)) == 6
    for words in ("--world=1", "--n_val=12"):
        bandit("run", "b", "--seed=1", words)
    assert len(list(tmp_path.glob("b/*/log.jsonl"))) == 3


@pytest.fixture(scope="module")
def swept(tmp_path_factory, script):
    """Return the folder of a sweep of the toy, n = 2, 16 and 128."""
    runs = tmp_path_factory.mktemp("bandit")
    script("bandit_toy.py", "sweep", "--ns=2 16 128", "--C=65536", "--eval_every=4096",
           "--seeds=0 1", f"--runs={runs}", check=True)
    return runs


def test_the_analysis_runs_on_it_unchanged(swept, script):
    for name, *words in (("frontier.py", "--view=joint"), ("fit_sigmoid.py",)):
        done = script(name, *words, f"--runs={swept}", check=True)
        assert name != "frontier.py" or "6 runs used, 0 dropped" in done.stdout
    assert "train_grpo.py" not in done.stdout  # that command would train a language model


def test_counts_are_binomial_about_the_exact_pass_rates(swept):
    """Repeat a run for its exact pass rates p. The mean squared z-score of the counts with p in
    [0.1, 0.9] is 1 within 4 standard errors."""
    records = read_log(next(swept.glob("*n16_seed0*/log.jsonl")))
    cfg, z = records[0]["config"], []
    run = b.Run(cfg, b.make_world(cfg))
    for r in (r for r in records if r["type"] == "eval"):
        while run.rollouts < r["rollouts"]:
            run.update(cfg, config.derive(cfg))
        p = run.pass_rates(run.val).astype(float)
        assert r["exact"] == pytest.approx(p.mean())
        inside = (p > 0.1) & (p < 0.9)
        z += list((np.array(r["correct"]) - r["samples"] * p)[inside]
                  / np.sqrt(r["samples"] * (p * (1 - p))[inside]))
    assert len(z) > 500 and abs(np.mean(np.square(z)) - 1) < 4 * math.sqrt(2 / len(z))


def test_a_run_that_diverges_is_marked_and_the_others_continue(tmp_path):
    with np.errstate(all="ignore"):
        b.main(["sweep", *SMALL.split(), "--ns=4 8", "--bps=4", "--lrs=0.1 1e40",
                f"--runs={tmp_path}"])
    logs = [read_log(path) for path in tmp_path.glob("*/log.jsonl")]
    assert {(r[0]["config"]["n"], r[0]["config"]["lr_base"]): r[-1]["status"] for r in logs} == {
        (n, lr): end for n in (4, 8) for lr, end in ((0.1, "budget"), (1e40, "diverged"))}


def command_of(path):
    """Return the command line of a process, "" if it has ended."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_sweep_leaves_no_process_and_no_half_of_a_log(how, tmp_path):
    """The signal comes when a run has begun, which would take hours."""
    started = subprocess.Popen([warm_python(), "bandit_toy.py", "sweep", "--ns=2 4", "--C=1e10",
                                "--bps=16", f"--runs={tmp_path / 'runs'}"],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while not [*tmp_path.glob("runs/*/out.txt")]:
        assert started.poll() is None
        time.sleep(0.1)
    started.send_signal(how)
    printed, _ = started.communicate(timeout=PATIENCE)
    assert started.returncode == 130 and "Traceback" not in printed, printed
    assert not [*tmp_path.glob("runs/*/log.jsonl")]
    alive = [p for p in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path) in command_of(p)]
    assert not alive, alive


@pytest.mark.parametrize("words,says", [("nothing", "nothing: expected one of both, one, run"),
    ("run --D=5000", "--D=5000: expected 0 to 2048"), ("run --B_p=200", "expected 1 to 100"),
    ("run --algo=ppo --C=1e4", "--algo=ppo: the toy has only algo=grpo"),
    ("run --skill=1.5", "--skill=1.5"), ("run --idel=1", "the nearest is idle"),
    ("run --idle=-1", "--idle=-1"), ("run --world=-1", "--world=-1"),
    ("sweep --C=10 --ns=2", "below one update"), ("run --pass_at=1e4", "only pass_at=none"),
    ("run --lora_rank=8", "only lora_rank=none"),
    ("run --recipe=easy", "--kl_coef=0.001: the toy has only kl_coef=none")])
def test_bad_input_is_one_line(words, says, tmp_path):
    with pytest.raises(config.BadInput) as error:
        b.main([*words.split(), f"--runs={tmp_path}"])
    assert says in str(error.value) and "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_late_gain_and_near_on_planted_rewards(study):
    """The planted n = 4 is best early, by 2 points, and n = 16 late, by 3 points, at another lr.
    Eight seeds share most of their noise."""
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
    one of two n."""
    rng = np.random.default_rng(0)
    gains = np.array([study.late_gain(rng.standard_normal((3, 5, 8, 2)))[:2] for _ in range(1500)])
    assert 0.85 < np.mean(np.abs(gains[:, 0]) <= gains[:, 1]) < 0.93
    assert abs(gains[:, 0].mean()) < 0.05
    tied = [study.near(rng.standard_normal((1, 2, 8, 1)), 0) for _ in range(1000)]
    assert 0.07 < np.mean([len(ns) < 2 for ns in tied]) < 0.13


def test_the_study_continues_and_refuses_another_world(study, tmp_path, monkeypatch, capsys):
    trained = []
    few = {key: study.STUDY[key] for key in ("no_idle", "more_idle", "D_50")}
    for name, value in dict(STUDY=few, SEEDS=range(4), NS=(2, 8), BUDGETS=[512, 1024]).items():
        monkeypatch.setattr(study, name, value)
    monkeypatch.setattr(study, "tqdm", lambda done, total: trained.append(total) or done)
    words = [*SMALL.split(), f"--runs={tmp_path}"]
    study.main(words)
    first = capsys.readouterr().out
    assert trained == [40, 24, 24] and "D_50: D = 50" in first
    assert (tmp_path / "study.png").stat().st_size > 10_000
    study.main(words)
    assert len(trained) == 3 and capsys.readouterr().out == first
    with pytest.raises(config.BadInput, match="another world"):
        study.main([*words, "--skill=0.5"])
