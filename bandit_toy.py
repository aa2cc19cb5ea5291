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
import concurrent.futures
import json
import math
import multiprocessing
import os
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

TOY = dict(  # keys that only this script has, each with (default, meaning)
    idle=(29, "decisions that do not matter for the reward; 0 = no such noise"),
    skill=(0.8, "cosine between the base model's weights and the right ones; 1 = it knows"),
    world=(0, "seed of the world: what is right, the base model, all problems"))
K, F, DECIDING = 8, 32, 3
SHARPNESS = 5  # size of the base model's logits; larger: pass rates nearer to 0 and 1
POOL = 2048    # problems in the world's pool; a run trains on D


# --------------------------------------------------------------------------------------------------
# One problem: a tabular softmax. theta (R, K): the logits of R independent repetitions over K
# responses. right (K,): whether each response is right

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


def one_problem(out, p=0.1, K=8, R=1000, ns=(1, 2, 4, 16, 64), T=2048, C=4096):
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


# --------------------------------------------------------------------------------------------------
# Many problems. Letters in shapes: S seeds that train together, P problems, d decisions of K
# choices, F features. An array of probabilities has shape (K, S, P, d)

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


def roll(pi, n, rngs):
    """Return the choices (S, n, P, d) of n rollouts per problem. rngs: S random generators."""
    K, S, P, d = pi.shape
    u = np.empty((S, n, P, d), np.float32)
    for s in range(S):
        rngs[s].random(out=u[s], dtype=np.float32)
    edge, choice, above = pi[0].copy(), np.zeros(u.shape, np.uint8), np.empty(u.shape, bool)
    # the choice is the number of cumulative probabilities below u, which is uniform in [0, 1)
    for k in range(1, K):
        choice += np.greater(u, edge[:, None], out=above)
        edge += pi[k]
    return choice


def group_gradient(pi, choice, A):
    """Return the gradient (S, P, d, K) of the sum of A log pi over n rollouts with respect to the
    logits. A (S, n, P): the advantages."""
    K, S, P, d = pi.shape
    cell = choice * np.int64(S * P * d) + np.arange(S * P * d).reshape(S, 1, P, d)
    sums = np.bincount(cell.ravel(), np.broadcast_to(A[..., None], choice.shape).ravel(),
                       K * S * P * d)
    sums = sums.reshape(K, S, P, d) - A.sum(1)[..., None] * pi
    return np.moveaxis(sums.astype(np.float32), 0, -1)


class Run:
    """S runs of one cell that train together, one for each seed."""

    def __init__(self, cfg, world, seeds):
        V, S, D = cfg["n_val"], len(seeds), cfg["D"] or POOL
        self.world, self.rollouts, self.seeds = world, 0, np.arange(S)[:, None]
        self.rollout_rng = [np.random.Generator(np.random.SFC64([seed, 1])) for seed in seeds]
        self.order_rng = [np.random.default_rng([seed, 2]) for seed in seeds]
        # the seed chooses D problems of the pool; a larger D includes those of a smaller D
        drawn = [np.random.default_rng([seed, 3]).permutation(POOL)[:D] for seed in seeds]
        self.problems = np.stack([np.sort(V + problems) for problems in drawn])  # (S, D)
        self.val, self.queue = np.tile(np.arange(V), (S, 1)), np.empty((S, 0), int)
        self.W = np.zeros((3, S, F, K), np.float32)  # weights and AdamW's two moments

    def batch(self, B_p):
        """Return indices (S, B_p) of each seed's next problems, in random order in each epoch."""
        while self.queue.shape[1] < B_p:
            epoch = [rng.permutation(self.problems.shape[1]) for rng in self.order_rng]
            self.queue = np.concatenate([self.queue, np.stack(epoch)], 1)
        now, self.queue = self.queue[:, :B_p], self.queue[:, B_p:]
        return now

    def probabilities(self, problems, idle=False):
        """Return the probabilities (K, S, P, d), the answers and the features of `problems`,
        indices (S, P) into the world, with or without idle decisions."""
        cut = slice(None if idle else DECIDING)
        x, z = (self.world[key][problems][:, :, cut] for key in ("x", "base"))
        shared = x.reshape(len(x), -1, F) @ self.W[0]
        z = np.moveaxis(z + shared.reshape(z.shape), -1, 0)  # with K first, sums are fast
        return softmax(np.ascontiguousarray(z), 0), self.world["answer"][problems], x

    def pass_rates(self, problems):
        """Return the exact pass@1 of `problems`, (S, P): all their deciding choices are right."""
        pi, answer, _ = self.probabilities(problems)
        return np.take_along_axis(pi, answer[None], 0)[0].prod(-1)

    def update(self, cfg, d):
        """Make one GRPO update; return the fields of a step record, (S,) each. d: derive(cfg)."""
        S = len(self.seeds)
        problems = self.problems[self.seeds, self.batch(cfg["B_p"])]
        pi, answer, x = self.probabilities(problems, idle=True)
        choice = roll(pi, cfg["n"], self.rollout_rng)
        # (S, n, B_p), float64, because AdamW would amplify a rounding error of a group's sum of A
        reward = (choice[..., :DECIDING] == answer[:, None]).all(-1).astype(float)
        A = advantages(reward.swapaxes(1, 2))
        # G (S, B_p, d, K): gradient of the token-mean loss with respect to the logits
        G = group_gradient(pi, choice, A.swapaxes(1, 2)) / -(d["B"] * pi.shape[-1])
        g = x.reshape(S, -1, F).swapaxes(1, 2) @ G.reshape(S, -1, K)
        norm = np.sqrt((g ** 2).sum((1, 2)))
        if cfg["grad_clip"]:
            g *= np.minimum(1, cfg["grad_clip"] / (norm + 1e-6)).astype(np.float32)[:, None, None]
        self.rollouts += d["B"]
        t, beta1, beta2 = self.rollouts // d["B"], 0.9, 0.999
        lr = d["lr"] * min(1.0, t / max(cfg["warmup"], 1))
        w, m, v = self.W
        m += (1 - beta1) * (g - m)
        v += (1 - beta2) * (g * g - v)
        w *= 1 - lr * cfg["weight_decay"]
        w -= lr / (1 - beta1 ** t) * m / (np.sqrt(v / (1 - beta2 ** t)) + 1e-8)
        norm[~np.isfinite(w).all((1, 2))] = math.nan  # diverged
        rate = reward.mean(1)  # (S, B_p)
        return dict(reward=rate.mean(1), frac_all_right=(rate == 1).mean(1),
                    frac_all_wrong=(rate == 0).mean(1), grad_norm=norm, lr=np.full(S, lr))


def train(cfg, world, seeds):
    """Train one cell for several seeds and write a log for each, the same with any other seeds."""
    d, run, samples = derive(cfg), Run(cfg, world, seeds), cfg["samples"]
    of_seeds = [dict(cfg, seed=seed) for seed in seeds]
    logs = [[dict(type="header", schema=1, config=own, derived=derive(own), device="cpu",
                  source="bandit_toy.py", commit=machine.commit())] for own in of_seeds]
    every = cfg["eval_every"] or math.inf
    for m in range(d["M"] + 1):
        fields = run.update(cfg, d) if m else {}
        at = dict(step=m, rollouts=run.rollouts, tokens=run.rollouts * (DECIDING + cfg["idle"]))
        due = m in (0, d["M"]) or (run.rollouts - d["B"]) // every < run.rollouts // every
        val = run.pass_rates(run.val).astype(float) if due else None
        for s, (seed, log) in enumerate(zip(seeds, logs)):
            if log[-1]["type"] == "end":  # it has diverged
                continue
            if m:
                log.append(dict(type="step", **at, **{key: x[s] for key, x in fields.items()}))
            diverged = m > 0 and not math.isfinite(fields["grad_norm"][s])
            if due and not diverged:
                correct = np.random.default_rng([seed, 4, m]).binomial(samples, val[s])
                log.append(dict(type="eval", **at, set="val", samples=samples, correct=correct,
                                exact=val[s].mean()))
            if diverged or m == d["M"]:
                log.append(dict(type="end", status="diverged" if diverged else "budget",
                                rollouts=run.rollouts))
    for own, log in zip(of_seeds, logs):
        with atomic_write(sweep.run_folder(own) / "log.jsonl") as part:
            part.write_text("".join(json.dumps(finite(r)) + "\n" for r in log))


# --------------------------------------------------------------------------------------------------
# A sweep

def train_all(cells):
    """Train the unfinished runs of `cells`. The seeds of a cell train together."""
    world, groups = make_world(cells[0]), {}
    todo = [c for c in cells if not finished(c, sweep.run_folder(c))]
    print(f"{cells[0]['runs']}: {len(cells)} runs, {len(todo)} to do", file=sys.stderr)
    for c in sorted(todo, key=lambda c: c["B_p"] * c["n"]):  # small batches take longest
        groups.setdefault((c["B_p"], c["n"], c["lr_base"]), []).append(c)
    in_parallel(train, [group[0] for group in groups.values()], [world] * len(groups),
                [[c["seed"] for c in group] for group in groups.values()])


def in_parallel(function, *columns):
    """Return list(map(function, *columns)), with one process per core and a progress bar."""
    from tqdm import tqdm
    with concurrent.futures.ProcessPoolExecutor(machine.cores()) as pool:
        try:
            # nothing interrupts the start of the pool, and its workers inherit that
            for stop in (signal.SIGINT, signal.SIGTERM):
                signal.signal(stop, signal.SIG_IGN)
            futures = [pool.submit(function, *row) for row in zip(*columns)]
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for future in tqdm(concurrent.futures.as_completed(futures), total=len(futures)):
                future.result()  # raises a worker's exception
            return [future.result() for future in futures]
        except BaseException:  # kill the workers, because leaving `with` waits for their calls
            for child in multiprocessing.active_children():
                child.kill()
            raise


def check_world(cfg):
    """Raise BadInput if a value in `cfg` is out of range or needs a feature that the toy lacks."""
    config.expect_limits(cfg, dict(n_val=(1, 10 ** 6), idle=(0, 10 ** 4), skill=(0, 1),
                                   D=(0, POOL), B_p=(1, cfg["D"] or POOL)))
    only = dict(algo="grpo", updates=1, n_train=0, zero_var_filter="off", top_p=1.0,
                temperature=1.0, kl_coef=0.0, entropy_coef=0.0, recipe="mixed", pass_at="", out="",
                lora_rank=0)
    config.expect(cfg, *((key, cfg[key] == value, f"the toy has only {key}={value or 'none'}")
                         for key, value in only.items()))


def main(argv):
    verb = argv[0] if argv and not argv[0].startswith("-") else "both"
    config.choose("verb", verb, ("both", "one", "run", "sweep"))
    cfg = parse(["--data=data/bandit", *[word for word in argv if word != verb]], __doc__, TOY)
    # the world is a part of the run's identity, as the problem files of a language model are
    cfg["train_set"] = cfg["val_set"] = " ".join(f"{key}={cfg[key]}" for key in (*TOY, "n_val"))
    cells, runs = [cfg] if verb == "run" else sweep.cells(cfg), Path(cfg["runs"])
    for c in cells:
        config.check_run(c), check_world(c)
    if verb in ("both", "one"):
        one_problem(runs)
    if verb != "one":
        train_all(cells)
    if verb in ("both", "sweep"):
        sweep.write_plan(cfg)
        print(f"next: python frontier.py --runs={runs} && python fit_sigmoid.py --runs={runs}")


if __name__ == "__main__":
    entry(main)
