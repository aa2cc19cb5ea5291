"""bandit_toy.py: RL without a language model, on one problem or on many that share weights.

    python bandit_toy.py                    # both, a minute or two, in runs/bandit
    python bandit_toy.py one                # one problem: runs/bandit/one.png
    python bandit_toy.py sweep --idle=0     # many problems: the grid ns x bps x seeds
    python bandit_toy.py run --B_p=16 --n=64 --C=1e6 --seed=3    # one run of the sweep
    python frontier.py --runs=runs/bandit   # analyse it like any sweep

One problem (paper, appendix "Base case"): a tabular softmax over K responses, one of them right.

Many problems: a rollout makes DECIDING + `idle` decisions with K choices each. It is right if all
its deciding decisions are right. A unit vector x in F dimensions describes a decision. The policy
is softmax(z0 + x W). z0 are the logits of the base model. All problems share the weights W.

The update is that of train_grpo.py without KL and entropy terms. A run writes its log when it ends.
"""
import json
import math
import os
import shlex
import signal
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # two processes beat two threads

import config
from config import derive, entry, parse
from core.log import atomic_write, finished, finite
import numpy as np
from scipy.special import softmax

from core import machine, plots, sweep
from core.pool import handle_signals, pool

TOY = dict(  # keys that only this script has, each with (default, meaning)
    idle=(29, "decisions that do not matter for the reward; 0 = no such noise"),
    skill=(0.8, "cosine between the base model's weights and the right ones; 1 = it knows"),
    world=(0, "seed of the world: what is right, the base model, all problems"))
K, F, DECIDING = 8, 32, 3
SHARPNESS = 5  # size of the base model's logits; larger: pass rates nearer to 0 and 1
POOL = 2048    # problems in the world's pool; a run trains on D


# ---- One problem: a tabular softmax --------------------------------------------------------------
# theta (R, K): the logits of R independent repetitions over K responses. right (K,): whether each
# response is right

def sampled_gradient(theta, right, n, rng):
    """Return the mean of r grad log pi over n rollouts (R, K), without a baseline. Its expectation
    is the gradient of the pass rate p, pi (right - p)."""
    pi = softmax(theta, -1)
    # won (R, K): the share of the n rollouts that drew each right response; 0 for a wrong response
    won = rng.multinomial(n, pi) * right / n
    return won - pi * won.sum(-1, keepdims=True)


def ascend(theta, right, n, lr, at, rng):
    """Return 1 - p, the suboptimality, after each number of updates in `at`: (len(at), R)."""
    theta, out = theta.copy(), []
    for t in range(max(at) + 1):
        if t in at:
            out.append(1 - (softmax(theta, -1) * right).sum(-1))
        theta += lr * sampled_gradient(theta, right, n, rng)
    return np.array(out)


def fit_rate(y, ns):
    """Return (A, B) of the least squared relative error of y = A / n + B. y (N,): t times the
    suboptimality at one t, for each n of `ns`. The paper has suboptimality A / (n t) + B / t."""
    return np.linalg.pinv(np.stack([1 / np.array(ns), np.ones(len(ns))], 1) / y[:, None]).sum(1)


def one_problem(out, p=0.1, R=1000, ns=(1, 2, 4, 16, 64), T=2048, C=4096):
    """Simulate the base case and draw out/one.png: A and B of `fit_rate` over t, and the
    suboptimality after C rollouts for each n and rule of the lr, {rule: {n: (mean, half of its 95%
    interval)}}, which is printed and returned."""
    rng, left, right = np.random.default_rng(0), {}, np.arange(K) == 0  # with probability p
    theta = np.tile(np.log(np.where(right, p, (1 - p) / (K - 1))), (R, 1))
    fig, [[a, b]] = plots.canvas(1, 2, (11, 4.5))
    at = sorted({round(2 ** (i / 2)) for i in range(int(2 * math.log2(T)) + 1)})
    for lr, style in ((0.25, ":"), (1.0, "--"), (4.0, "-")):
        tails = np.stack([ascend(theta, right, n, lr, at, rng).mean(1) for n in ns], 1) * np.c_[at]
        for name, value in zip("AB", np.transpose([fit_rate(y, ns) for y in tails])):
            a.plot(at, value, dict(A="C0", B="C1")[name] + style, label=f"{name}, lr = {lr}")
    for rule, power in {"lr the same": 0, "lr x sqrt(n)": 0.5, "lr x n": 1}.items():
        ends = {n: ascend(theta, right, n, 0.25 * n ** power, [C // n], rng)
                for n in (1, 4, 16, 64, 256)}
        left[rule] = {n: (x.mean(), 1.96 * x.std() / math.sqrt(R)) for n, x in ends.items()}
        b.errorbar(list(ends), *zip(*left[rule].values()), fmt="o-", ms=4, capsize=2, label=rule)
        print(f"one problem, {C} rollouts, {rule}: suboptimality "
              + ", ".join(f"{y:.3f} ± {e:.3f} (n = {n})" for n, (y, e) in left[rule].items()))
    a.set(xlabel="updates t", ylim=(1e-4, 100), title="A / (n t) + B / t fitted at each t")
    b.set(xlabel="n", title=f"suboptimality after C = {C} rollouts, mean ± 95%")
    for ax in (a, b):
        ax.set(xscale="log", yscale="log")
        ax.legend(fontsize=8)
    out.mkdir(parents=True, exist_ok=True)
    plots.write(fig, out / "one.png")
    return left


# ---- Many problems -------------------------------------------------------------------------------
# Letters in shapes: P problems, d decisions of K choices, F features. An array of probabilities
# has shape (K, P, d)

def make_world(cfg):
    """Return dict(x, base, answer) of all problems, the validation problems first: feature vectors
    of length 1 (P, d, F), logits of the base model (P, d, K), and the right choices (P, DECIDING),
    which have the largest logit under a random linear teacher."""
    rng, P = np.random.default_rng([cfg["world"], 1]), cfg["n_val"] + POOL
    teacher, noise = rng.standard_normal((2, F, K), np.float32)
    mixed = cfg["skill"] * teacher + math.sqrt(1 - cfg["skill"] ** 2) * noise
    # the deciding decisions come first, drawn in multiples of 4,096 problems
    shapes = (-(-P // 4096) * 4096, DECIDING, F), (P, cfg["idle"], F)
    x = np.concatenate([rng.standard_normal(shape, np.float32)[:P] for shape in shapes], 1)
    x /= np.linalg.norm(x, axis=-1, keepdims=True)
    answer = (x[:, :DECIDING] @ teacher).argmax(-1)
    return dict(x=x, base=x @ (np.float32(SHARPNESS) * mixed.astype(np.float32)), answer=answer)


def advantages(rewards):
    """Return the advantages of rewards (..., n), as train_grpo.advantages does for torch."""
    A = rewards - rewards.mean(-1, keepdims=True)
    return A / (A.std(-1, ddof=1, keepdims=True) + 1e-6)


def roll(pi, n, rng):
    """Return the choices (n, P, d) of n rollouts per problem."""
    u = rng.random((n, *pi.shape[1:]), np.float32)
    edge, choice, above = pi[0].copy(), np.zeros(u.shape, np.uint8), np.empty(u.shape, bool)
    # the choice is the number of cumulative probabilities below u, which is uniform in [0, 1)
    for p in pi[1:]:
        choice += np.greater(u, edge, out=above)
        edge += p
    return choice


def group_gradient(pi, choice, A):
    """Return the gradient (P, d, K) of the sum of A log pi over n rollouts with respect to the
    logits. A (n, P): the advantages."""
    _, P, d = pi.shape
    cell = choice * np.int64(P * d) + np.arange(P * d).reshape(P, d)
    sums = np.bincount(cell.ravel(), np.broadcast_to(A[..., None], choice.shape).ravel(), pi.size)
    sums = sums.reshape(pi.shape) - A.sum(0)[:, None] * pi
    return np.moveaxis(sums.astype(np.float32), 0, -1)


class Run:
    """A run: its weights, its problems and its random generators."""

    def __init__(self, cfg, world):
        V, D, seed = cfg["n_val"], cfg["D"] or POOL, cfg["seed"]
        self.world, self.rollouts = world, 0
        self.rollout_rng = np.random.Generator(np.random.SFC64([seed, 1]))
        self.order_rng = np.random.default_rng([seed, 2])
        # the seed chooses D problems of the pool; a larger D includes those of a smaller D
        drawn = np.random.default_rng([seed, 3]).permutation(POOL)[:D]
        self.problems, self.val, self.queue = np.sort(V + drawn), np.arange(V), np.empty(0, int)
        self.W = np.zeros((3, F, K), np.float32)  # weights and AdamW's two moments

    def batch(self, B_p):
        """Return the indices (B_p,) of the next problems, in random order in each epoch."""
        while len(self.queue) < B_p:
            self.queue = np.append(self.queue, self.order_rng.permutation(len(self.problems)))
        now, self.queue = self.queue[:B_p], self.queue[B_p:]
        return now

    def probabilities(self, problems, idle=False):
        """Return the probabilities (K, P, d), the answers and the features of `problems`, indices
        (P,) into the world, with or without idle decisions."""
        cut = slice(None if idle else DECIDING)
        x, z = (self.world[key][problems][:, cut] for key in ("x", "base"))
        z = z + (x.reshape(-1, F) @ self.W[0]).reshape(z.shape)
        z = np.ascontiguousarray(np.moveaxis(z, -1, 0))  # with K first, sums are fast
        return softmax(z, 0), self.world["answer"][problems], x

    def pass_rates(self, problems):
        """Return the exact pass@1 of `problems`, (P,): all their deciding choices are right."""
        pi, answer, _ = self.probabilities(problems)
        return np.take_along_axis(pi, answer[None], 0)[0].prod(-1)

    def update(self, cfg, d):
        """Make one GRPO update; return the fields of a step record. d: derive(cfg)."""
        problems = self.problems[self.batch(cfg["B_p"])]
        pi, answer, x = self.probabilities(problems, idle=True)
        choice = roll(pi, cfg["n"], self.rollout_rng)
        # (n, B_p), float64, because AdamW would amplify a rounding error of a group's sum of A
        reward = (choice[..., :DECIDING] == answer).all(-1).astype(float)
        # G (B_p, d, K): gradient of the token-mean loss with respect to the logits
        G = group_gradient(pi, choice, advantages(reward.T).T) / -(d["B"] * pi.shape[-1])
        g = x.reshape(-1, F).T @ G.reshape(-1, K)
        norm = np.sqrt((g ** 2).sum())
        if cfg["grad_clip"]:
            g *= np.minimum(1, cfg["grad_clip"] / (norm + 1e-6)).astype(np.float32)
        self.rollouts += d["B"]
        t, beta1, beta2 = self.rollouts // d["B"], 0.9, 0.999
        lr = d["lr"] * min(1.0, t / max(cfg["warmup"], 1))
        w, m, v = self.W
        m += (1 - beta1) * (g - m)
        v += (1 - beta2) * (g * g - v)
        w *= 1 - lr * cfg["weight_decay"]
        w -= lr / (1 - beta1 ** t) * m / (np.sqrt(v / (1 - beta2 ** t)) + 1e-8)
        rate = reward.mean(0)  # (B_p,)
        return dict(reward=rate.mean(), frac_all_right=(rate == 1).mean(),
                    frac_all_wrong=(rate == 0).mean(), lr=lr,
                    grad_norm=norm if np.isfinite(w).all() else math.nan)


def train(cfg):
    """Train a run and write its log."""
    d, run, samples = derive(cfg), Run(cfg, make_world(cfg)), cfg["samples"]
    log = [dict(type="header", schema=1, config=cfg, derived=d, device="cpu",
                source="bandit_toy.py", commit=machine.commit())]
    every, status = cfg["eval_every"] or math.inf, "budget"
    for m in range(d["M"] + 1):
        fields = run.update(cfg, d) if m else {}
        at = dict(step=m, rollouts=run.rollouts, tokens=run.rollouts * (DECIDING + cfg["idle"]))
        if m:
            log.append(dict(type="step", **at, **fields))
            if not math.isfinite(fields["grad_norm"]):
                status = "diverged"
                break
        if m in (0, d["M"]) or (run.rollouts - d["B"]) // every < run.rollouts // every:
            val = run.pass_rates(run.val).astype(float)
            correct = np.random.default_rng([cfg["seed"], 4, m]).binomial(samples, val)
            log.append(dict(type="eval", **at, set="val", samples=samples, correct=correct,
                            exact=val.mean()))
    log.append(dict(type="end", status=status, rollouts=run.rollouts))
    with atomic_write(sweep.run_folder(cfg) / "log.jsonl") as part:
        part.write_text("".join(json.dumps(finite(r)) + "\n" for r in log))
    print(f"{status} after {run.rollouts} rollouts, val pass@1 {val.mean():.3f}")


# ---- A sweep -------------------------------------------------------------------------------------

def job(c, words):
    """Return a cell's run for core.pool.pool. words: the command line of the sweep."""
    cell = [f"--{key}={c[key]}" for key in ("B_p", "n", "seed", "lr_base")]
    command = shlex.join([sys.executable, __file__, "run", *words, *cell])
    return " ".join(cell), command, sweep.run_folder(c) / "out.txt"


def check_world(cfg):
    """Raise BadInput if a value in `cfg` is out of range or needs a feature that the toy lacks."""
    config.expect_limits(cfg, dict(n_val=(1, 10 ** 6), idle=(0, 10 ** 4), skill=(0, 1),
                                   D=(0, POOL), B_p=(1, cfg["D"] or POOL)))
    only = dict(algo="grpo", updates=1, n_train=0, zero_var_filter="off", top_p=1.0,
                temperature=1.0, kl_coef=0, entropy_coef=0, recipe="mixed", pass_at="", out="",
                lora_rank=0)
    config.expect(cfg, *((key, cfg[key] == value, f"the toy has only {key}={value or 'none'}")
                         for key, value in only.items()))


def main(argv):
    verb = argv[0] if argv and not argv[0].startswith("-") else "both"
    config.choose("verb", verb, ("both", "one", "run", "sweep"))
    words = [word for word in argv if word != verb]
    cfg = parse(["--data=data/bandit", *words], __doc__, TOY)
    # the world is a part of the run's identity, as the problem files of a language model are
    cfg["train_set"] = cfg["val_set"] = " ".join(f"{key}={cfg[key]}" for key in (*TOY, "n_val"))
    cells, runs, stop = [cfg] if verb == "run" else sweep.cells(cfg), Path(cfg["runs"]), []
    for c in cells:
        config.check_run(c), check_world(c)
    todo = [c for c in cells if not finished(c, sweep.run_folder(c))]
    if verb in ("both", "one"):
        one_problem(runs)
    if verb != "one":
        print(f"{runs}: {len(cells)} runs, {len(todo)} to do", flush=True)
    if verb == "run":
        for c in todo:
            train(c)
    elif verb != "one":
        handle_signals((signal.SIGINT, signal.SIGTERM), lambda number, _: stop.append(number))
        failed = pool([job(c, words) for c in todo], [{}] * machine.cores(), stop)
        if stop or failed:
            return 130 if stop else 1
        sweep.write_plan(cfg)
        print(f"next: python frontier.py --runs={runs} && python fit_sigmoid.py --runs={runs}")


if __name__ == "__main__":
    entry(main)
