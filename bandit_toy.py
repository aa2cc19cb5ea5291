"""bandit_toy.py: RL without a language model, on one problem or on many that share weights.

    python bandit_toy.py                               # both, a minute or two, in runs/bandit
    python bandit_toy.py one                           # one problem: runs/bandit/one.{json,png}
    python bandit_toy.py sweep --overlap=0.5 --idle=0  # many problems: the grid ns x bps x seeds
    python frontier.py --runs=runs/bandit   # analyse it like any sweep
    python bandit_toy.py run --B_p=16 --n=64 --C=1e6 --seed=3    # one run of the sweep

One problem: the policy is a tabular softmax over K responses, one of which is right (paper,
appendix "Base case").

Many problems: a rollout makes `deciding` + `idle` decisions with `responses` choices each. It is
right if all its deciding decisions are right. A unit vector x in `features` dimensions describes a
decision. The policy is softmax(z0 + sqrt(overlap) x W + sqrt(1 - overlap) own). z0 are the logits
of the base model. All problems share the weights W, and every decision of every training problem
has its own table of logits, `own`. Validation problems have no such table, so training changes
their policy only through W. A logit depends on `features` weights in W but on only one entry of
`own`. So an AdamW update of W changes a logit more than an update of `own`. Therefore compare two
overlaps at the best lr of each.

Rollouts, advantages, token-mean loss, AdamW and its schedule are as in train_grpo.py, without KL
and entropy terms. The log has no timings and no fields of a language model. Its evaluations have
`exact`, the mean pass@1 without sampling noise. A run writes its log when it ends. The defaults are
in data/bandit/defaults.json, the experiments in results/bandit/study.py and their results in
docs/toy.md.
"""
import concurrent.futures
import json
import math
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

# matrices are small, so two processes are faster than two threads
os.environ.setdefault("OMP_NUM_THREADS", "1")

import config
from config import BadInput, at_k, derive, entry, parse
from core.log import atomic_write, finished, finite, save_json
import numpy as np

from core import machine, plots, sweep

TOY = dict(  # keys that only this script has, each with (default, meaning)
    overlap=(1.0, "share of the logits from weights common to all problems; 0 = tabular"),
    responses=(8, "choices of a decision"),
    deciding=(3, "decisions of a rollout that all must be right for its reward"),
    idle=(29, "decisions that do not matter for the reward; 0 = no such noise"),
    features=(32, "numbers that describe a decision, rows of the common weights"),
    skill=(0.8, "cosine between the base model's weights and the right ones; 1 = it knows"),
    sharpness=(5.0, "size of the base model's logits; larger: pass rates nearer to 0 and 1"),
    pool=(2048, "training problems in the world; a run trains on D of them"),
    world=(0, "seed of the world: what is right, the base model, all problems"))


# --------------------------------------------------------------------------------------------------
# One problem: a tabular softmax. theta (R, K): the logits of R independent repetitions over K
# responses. right (K,): whether each response is right

def softmax(theta, axis=-1):
    e = np.exp(theta - theta.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def exact_gradient(theta, right):
    """Return the gradient (R, K) of the pass rate p, the sum of pi over right responses.

    dp / dtheta_a = pi_a (right_a - p).
    """
    pi = softmax(theta)
    return pi * (right - (pi * right).sum(-1, keepdims=True))


def sampled_gradient(theta, right, n, rng):
    """Return an unbiased estimate (R, K) of `exact_gradient` from n >= 1 rollouts.

    It is the mean of r grad log pi over the rollouts, without a baseline.
    """
    pi = softmax(np.asarray(theta, float))
    # won (R, K): the share of the n rollouts that drew each right response; 0 for a wrong response
    won = rng.multinomial(n, pi) * right / n
    return won - pi * won.sum(-1, keepdims=True)


def first_logits(p, K, R=1):
    """Return logits (R, K) and right (K,): only the first response is right, with probability p."""
    theta = np.log(np.concatenate([[p], np.full(K - 1, (1 - p) / (K - 1))]))
    return np.tile(theta, (R, 1)), np.arange(K) == 0


def ascend(theta, right, n, lr, at, rng):
    """Return 1 - p, the suboptimality after each number of updates in `at`: (len(at), R).

    n: rollouts per update.
    """
    theta, out = theta.copy(), []
    for t in range(max(at) + 1):
        if t in at:
            out.append(1 - (softmax(theta) * right).sum(-1))
        theta += lr * sampled_gradient(theta, right, n, rng)
    return np.array(out)


def fit_rate(tail, ns):
    """Fit A and B in suboptimality = A / (n t) + B / t (paper, appendix "Base case") at one t.

    Returns dict(A, B). Both are pairs (value, half width of the 90% interval). tail (N, R): t times
    the suboptimality, for each n of `ns` and each repetition. The fit minimises the sum of squared
    relative errors.
    """
    y, X = tail.mean(1), np.stack([1 / np.array(ns), np.ones(len(ns))], 1)
    # A and B are linear in y (N,), the means of tail: [A, B] = weights @ y, with weights (2, N)
    weights = np.linalg.pinv(X / y[:, None]) / y
    half = 1.645 * np.sqrt(weights ** 2 @ tail.var(1, ddof=1) / tail.shape[1])
    return dict(zip("AB", zip(weights @ y, half)))


def mean_half(x):
    """Return [mean of x, half width of the mean's 95% interval]."""
    return [x.mean(), 1.96 * x.std() / math.sqrt(len(x))]


def one_problem(out, p=0.1, K=8, R=1000, ns=(1, 2, 4, 16, 64), T=2048, C=4096):
    """Simulate the base case. Return the results, write them to out/one.json, draw out/one.png.

    Print the suboptimality after C rollouts for each n and each rule that scales the lr with n.
    """
    rng, (theta, right) = np.random.default_rng(0), first_logits(p, K, R)
    found = dict(p=p, K=K, R=R, T=T, C=C, sampled=[], rates=[], spent={})
    g, pi = exact_gradient(theta[:1], right)[0], softmax(theta[:1])[0]
    # trace of the covariance of one rollout's gradient
    noise = (pi * right * ((np.eye(K) - pi) ** 2).sum(1)).sum() - (g ** 2).sum()
    for n in (1, 2, 4, 8, 16, 32, 64):
        solved = rng.binomial(n, p, 20 * R) > 0
        G = sampled_gradient(np.tile(theta, (20, 1)), right, n, rng)
        found["sampled"].append(dict(
            n=n, exact=1 - (1 - p) ** n, solved=mean_half(solved), mean=mean_half(G @ g / (g @ g)),
            variance_times_n=mean_half(((G - g) ** 2).sum(1) * n / noise)))
    at = sorted({round(2 ** (i / 2)) for i in range(int(2 * math.log2(T)) + 1)})
    for lr in (0.25, 1.0, 4.0):
        tails = [ascend(theta, right, n, lr, at, rng) for n in ns]
        # fit at each t separately, to test the theory that A and B do not depend on t
        fits = [fit_rate(t * np.stack(tail), ns) for t, tail in zip(at, zip(*tails))]
        found["rates"].append(dict(lr=lr, at=at, fits=fits, theory=(K - 1) / (K * lr)))
    for rule, power in {"lr the same": 0, "lr x sqrt(n)": 0.5, "lr x n": 1}.items():
        left = {n: mean_half(ascend(theta, right, n, 0.25 * n ** power, [C // n], rng)[0])
                for n in (1, 4, 16, 64, 256)}
        found["spent"][rule] = left
        print(f"one problem, {C} rollouts, {rule}: suboptimality "
              + ", ".join(f"{mean:.2g} (n = {n})" for n, (mean, _) in left.items()))
    save_json(out / "one.json", found)
    draw_one(found, out / "one.png")
    return found


def draw_one(found, path):
    """Draw the results of `one_problem` in four subplots: pass@n, the mean and variance of an
    update, A and B over t, and the suboptimality after C rollouts."""
    fig, axes = plots.canvas(2, 2, (11, 8))
    (a, b), (c, d) = axes
    bars, sampled = dict(fmt="o-", ms=4, capsize=2), found["sampled"]
    n = [x["n"] for x in sampled]
    a.plot(n, [x["exact"] for x in sampled], "k:", label="1 - (1 - p)$^n$", zorder=3)
    b.axhline(1, color="0.6", lw=0.8)
    for ax, key, label in ((a, "solved", "sampled"),
                           (b, "mean", "mean of the update along the gradient, / exact"),
                           (b, "variance_times_n", "its variance times n, / that of n = 1")):
        ax.errorbar(n, *zip(*(x[key] for x in sampled)), label=label, **bars)
    for rate, ls in zip(found["rates"], (":", "--", "-")):
        c.axhline(rate["theory"], color="0.6", lw=0.8, ls=ls)
        for name, colour in (("A", "C0"), ("B", "C1")):
            value, half = np.array([fit[name] for fit in rate["fits"]]).T
            c.plot(rate["at"], value, color=colour, ls=ls, label=f"{name}, lr = {rate['lr']}")
            c.fill_between(rate["at"], np.maximum(value - half, 1e-9), value + half, color=colour,
                           alpha=0.2, lw=0)
    for rule, left in found["spent"].items():
        d.errorbar(list(left), *zip(*left.values()), label=rule, **bars)
    a.set(xlabel="n", xscale="log", ylabel="pass@n", title=f"pass@n, p = {found['p']}")
    b.set(xlabel="n", xscale="log", ylim=(0.9, 1.1), title="n changes only the variance")
    c.set(xlabel="updates t", xscale="log", yscale="log", ylim=(1e-4, 100), ylabel="A, B",
          title="A / (n t) + B / t fitted at each t: A is not constant")
    d.set(xlabel="n", xscale="log", yscale="log", ylabel="suboptimality",
          title=f"C = {found['C']} rollouts in C / n updates")
    for ax in axes.flat:
        ax.legend(fontsize=8)
    for ax in (a, b, d):
        plots.log_ticks(ax.xaxis, (1, 4, 16, 64, 256)[:5 if ax is d else 4])
    fig.suptitle(f"One problem: tabular softmax over K = {found['K']} responses, one right, at "
                 f"first with p = {found['p']}\n{found['R']} repetitions, bars 95%, A and B 90%; "
                 "grey: what the exact gradient's B tends to", fontsize=11)
    plots.write(fig, path)


# --------------------------------------------------------------------------------------------------
# Many problems. Letters in shapes: S seeds that train together, P problems, d decisions of K
# choices, F features. An array of probabilities has shape (K, S, P, d)

def make_world(cfg):
    """Return dict(x, base, answer) of all problems, the validation problems first.

    x (P, d, F): feature vectors of length 1. base (P, d, K): logits of the base model. answer
    (P, deciding): the right choices. The right choice has the largest logit under a random linear
    teacher. `skill` is the cosine between the weights of the base model and those of the teacher.
    The recipe limits the pass rates of the base model: 0.3 to 0.6 for easy, up to 0.0625 for hard,
    no limit for mixed. Raise BadInput if problems within the limits are too rare.
    """
    rng = np.random.default_rng([cfg["world"], 1])
    F, K, d, P = cfg["features"], cfg["responses"], cfg["deciding"], cfg["n_val"] + cfg["pool"]
    teacher, noise = rng.standard_normal((2, F, K), np.float32)
    mixed = cfg["skill"] * teacher + math.sqrt(1 - cfg["skill"] ** 2) * noise
    W0 = np.float32(cfg["sharpness"]) * mixed.astype(np.float32)
    lo, hi = dict(easy=(0.3, 0.6), hard=(0, 0.0625), mixed=(0, 1))[cfg["recipe"]]

    def unit(x):
        return x / np.linalg.norm(x, axis=-1, keepdims=True)
    kept = []
    while sum(map(len, kept)) < P:
        if len(kept) == 200:
            raise BadInput(f"--recipe={cfg['recipe']}: too few problems of this world have such a "
                           "pass rate; change skill, sharpness or deciding")
        x = unit(rng.standard_normal((4096, d, F), np.float32))
        p = pass_rate(policy((x @ W0)[None]), (x @ teacher).argmax(-1)[None])[0]
        kept.append(x[(lo <= p) & (p <= hi)])
    x = np.concatenate(kept)[:P]
    answer = (x @ teacher).argmax(-1)
    x = np.concatenate([x, unit(rng.standard_normal((P, cfg["idle"], F), np.float32))], 1)
    return dict(x=x, base=x @ W0, answer=answer)


def advantages(rewards):
    """Return the advantages of rewards (..., n), as train_grpo.advantages does for torch."""
    A = rewards - rewards.mean(-1, keepdims=True)
    return A / (A.std(-1, ddof=1, keepdims=True) + 1e-6)


def policy(z):
    """Return probabilities (K, S, P, d) of logits (S, P, d, K). Sums over K are fast if K is first.
    """
    return softmax(np.ascontiguousarray(np.moveaxis(z, -1, 0)), 0)


def pass_rate(pi, answer):
    """Return the probability (S, P) that all deciding decisions are right.

    answer: (S, P, deciding).
    """
    return np.take_along_axis(pi[..., :answer.shape[-1]], answer[None], 0)[0].prod(-1)


def roll(pi, n, rngs):
    """Return the choices (S, n, P, d) of n rollouts per problem. rngs: a random generator for each
    of the S seeds."""
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


def rewards_of(choice, answer):
    """Return the rewards (S, n, P) of choices (S, n, P, d).

    A reward is 1 if all choices that decide it, the first answer.shape[-1] of the d, are right,
    else 0. The rewards are float64, because the advantages of a group must sum to 0, and AdamW
    would amplify a rounding error of this sum.
    """
    return (choice[..., :answer.shape[-1]] == answer[:, None]).all(-1).astype(float)


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
        V, N, D = cfg["n_val"], len(world["x"]), cfg["D"] or cfg["pool"]
        S, (_, d, F), K = len(seeds), world["x"].shape, cfg["responses"]
        self.world, self.rollouts, self.seeds = world, 0, np.arange(S)[:, None]
        self.rollout_rng = [np.random.Generator(np.random.SFC64([seed, 1])) for seed in seeds]
        self.order_rng = [np.random.default_rng([seed, 2]) for seed in seeds]
        # The seed chooses D problems of the pool. With a larger D, a seed keeps these problems and
        # gets more
        drawn = [np.random.default_rng([seed, 3]).permutation(N - V)[:D] for seed in seeds]
        self.problems = np.stack([np.sort(V + problems) for problems in drawn])  # (S, D)
        self.val, self.queue = np.tile(np.arange(V), (S, 1)), np.empty((S, 0), int)
        # self.weights["W"] and self.weights["own"] each stack three arrays: the weights, AdamW's
        # first moments and AdamW's second moments
        shapes = dict(W=(S, F, K), own=(S, D, d, K))
        self.share = {name: np.float32(math.sqrt(x)) for name, x in
                      (("W", cfg["overlap"]), ("own", 1 - cfg["overlap"])) if x}
        self.weights = {name: np.zeros((3, *shapes[name]), np.float32) for name in self.share}

    def batch(self, B_p):
        """Return indices (S, B_p) of the next B_p of each seed's D problems. An epoch goes through
        all D problems in random order."""
        while self.queue.shape[1] < B_p:
            epoch = [rng.permutation(self.problems.shape[1]) for rng in self.order_rng]
            self.queue = np.concatenate([self.queue, np.stack(epoch)], 1)
        now, self.queue = self.queue[:, :B_p], self.queue[:, B_p:]
        return now

    def probabilities(self, problems, rows=None, idle=False):
        """Return the probabilities (K, S, P, d), the answers and the features of `problems`.

        problems (S, P): indices into the world. rows: indices of the same problems in the table
        `own`, or None for validation problems, which are not in that table. idle: whether to
        include the idle decisions, which only rollouts need.
        """
        answer = self.world["answer"][problems]
        cut = slice(None if idle else answer.shape[-1])
        x, z = (self.world[key][problems][:, :, cut] for key in ("x", "base"))
        if "W" in self.weights:
            shared = x.reshape(len(x), -1, x.shape[-1]) @ self.weights["W"][0]
            z = z + self.share["W"] * shared.reshape(z.shape)
        if "own" in self.weights and rows is not None:
            z = z + self.share["own"] * self.weights["own"][0][self.seeds, rows][:, :, cut]
        return policy(z), answer, x

    def validation(self):
        """Return the exact pass@1 of the validation problems, (S, n_val)."""
        return pass_rate(*self.probabilities(self.val)[:2])

    def training(self):
        """Return the exact pass@1 of the D training problems, (S, D)."""
        rows = np.arange(self.problems.shape[1])[None]
        return pass_rate(*self.probabilities(self.problems, rows)[:2])

    def update(self, cfg, d):
        """Make one GRPO update and return the fields of a step record, arrays (S,). d: the result
        of derive(cfg)."""
        S, rows = len(self.seeds), self.batch(cfg["B_p"])
        pi, answer, x = self.probabilities(self.problems[self.seeds, rows], rows, idle=True)
        choice = roll(pi, cfg["n"], self.rollout_rng)
        reward = rewards_of(choice, answer)  # (S, n, B_p)
        A = advantages(reward.swapaxes(1, 2))
        # G (S, B_p, d, K): gradient of the token-mean loss with respect to the logits
        G = group_gradient(pi, choice, A.swapaxes(1, 2)) / -(d["B"] * pi.shape[-1])
        grads = {}
        if "W" in self.weights:
            x, by_logits = x.reshape(S, -1, x.shape[-1]), G.reshape(S, -1, G.shape[-1])
            grads["W"] = x.swapaxes(1, 2) @ by_logits * self.share["W"]
        if "own" in self.weights:
            grads["own"] = np.zeros_like(self.weights["own"][0])
            np.add.at(grads["own"], (self.seeds, rows), G * self.share["own"])
        norm = np.sqrt(sum((g.reshape(S, -1) ** 2).sum(1) for g in grads.values()))
        self.rollouts += d["B"]
        t, beta1, beta2 = self.rollouts // d["B"], 0.9, 0.999
        lr = d["lr"] * (min(1.0, t / cfg["warmup"]) if cfg["warmup"] else 1.0)
        for name, g in grads.items():
            if cfg["grad_clip"]:
                factor = np.minimum(1, cfg["grad_clip"] / (norm + 1e-6)).astype(np.float32)
                g *= factor.reshape(S, *[1] * (g.ndim - 1))
            w, m, v = self.weights[name]
            m += (1 - beta1) * (g - m)
            v += (1 - beta2) * (g * g - v)
            w *= 1 - lr * cfg["weight_decay"]
            w -= lr / (1 - beta1 ** t) * m / (np.sqrt(v / (1 - beta2 ** t)) + 1e-8)
            # a NaN norm marks the runs that diverged, which `train` then ends
            norm[~np.isfinite(w).reshape(S, -1).all(1)] = math.nan
        rate = reward.mean(1)  # (S, B_p)
        return dict(reward=rate.mean(1), frac_all_right=(rate == 1).mean(1),
                    frac_all_wrong=(rate == 0).mean(1), grad_norm=norm, lr=np.full(S, lr))


def train(cfg, world, seeds):
    """Train one cell for several seeds and write a log for each. The log of a seed does not depend
    on the other seeds."""
    d, run, k, samples = derive(cfg), Run(cfg, world, seeds), cfg["k"], cfg["samples"]
    passes = config.updates_at(cfg["pass_at"], cfg) | {0, d["M"]}
    values = {metric: np.array(at_k(metric, samples))
              for metric in (f"avg@{k}", f"best@{k}", f"worst@{k}")}
    versions = dict(python=sys.version.split()[0], numpy=np.__version__)
    of_seeds = [dict(cfg, seed=seed) for seed in seeds]
    logs = [[dict(type="header", schema=1, config=own, derived=derive(own),
                  source="bandit_toy.py", versions=versions, commit=machine.commit(), device="cpu",
                  time=time.strftime("%Y-%m-%dT%H:%M:%S%z"))] for own in of_seeds]
    # if eval_every is 0, evaluate only at the start and at the end
    every = cfg["eval_every"] or math.inf
    for m in range(d["M"] + 1):
        fields = run.update(cfg, d) if m else {}
        at = dict(step=m, rollouts=run.rollouts)
        spent = dict(at, tokens=run.rollouts * (cfg["deciding"] + cfg["idle"]))
        due = m in (0, d["M"]) or (run.rollouts - d["B"]) // every < run.rollouts // every
        val = run.validation().astype(float) if due else None
        pool = run.training().astype(float) if m in passes else None
        for s, (seed, log) in enumerate(zip(seeds, logs)):
            if log[-1]["type"] == "end":  # diverged
                continue
            if m:
                log.append(dict(type="step", **spent, **{key: x[s] for key, x in fields.items()}))
                if not math.isfinite(fields["grad_norm"][s]):
                    log.append(dict(type="end", status="diverged", rollouts=run.rollouts))
                    continue
            if val is not None:
                correct = np.random.default_rng([seed, 4, m]).binomial(samples, val[s])
                log.append(dict(type="eval", **spent, set="val", k=k, samples=samples,
                                **{metric: v[correct].mean() for metric, v in values.items()},
                                exact=val[s].mean(), correct=correct))
            if pool is not None:
                correct = np.random.default_rng([seed, 5, m]).binomial(cfg["s"], pool[s])
                log.append(dict(type="train_pass", **at, fresh=True, ids=run.problems[s],
                                samples=[cfg["s"]] * len(correct), correct=correct))
            if m == d["M"]:
                log.append(dict(type="end", status="budget", rollouts=run.rollouts))
    for own, log in zip(of_seeds, logs):
        with atomic_write(folder_of(own) / "log.jsonl") as part:
            part.write_text("".join(json.dumps(finite(r)) + "\n" for r in log))


# --------------------------------------------------------------------------------------------------
# A sweep

def folder_of(cfg):
    return Path(cfg["runs"]) / config.run_name(cfg)


def train_all(cells):
    """Train the unfinished runs of `cells`, a list of complete configs. The seeds of a cell train
    together."""
    world, groups = make_world(cells[0]), {}
    todo = [c for c in cells if not finished(c, folder_of(c))]
    print(f"{cells[0]['runs']}: {len(cells)} runs, {len(todo)} to do", file=sys.stderr)
    for c in sorted(todo, key=lambda c: c["B_p"] * c["n"]):  # small batches take longest
        groups.setdefault((c["B_p"], c["n"], c["lr_base"]), []).append(c)
    if todo:
        in_parallel(train, [group[0] for group in groups.values()], [world] * len(groups),
                    [[c["seed"] for c in group] for group in groups.values()])


def in_parallel(function, *columns):
    """Return list(map(function, *columns)), with one process per core and a progress bar."""
    from tqdm import tqdm
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # Only this process should react to SIGINT and SIGTERM. Workers inherit blocked signals, so
    # block both until the workers have started
    stops = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)
    with concurrent.futures.ProcessPoolExecutor(machine.cores()) as pool:
        try:
            futures = [pool.submit(function, *row) for row in zip(*columns)]
            signal.pthread_sigmask(signal.SIG_UNBLOCK, stops)
            return [future.result() for future in tqdm(futures)]
        except BaseException:  # kill the workers, because leaving `with` waits for their calls
            for child in multiprocessing.active_children():
                child.kill()
            raise


def check_world(cfg):
    """Raise BadInput if a value in `cfg` is out of range or turns on what the toy does not have."""
    limits = dict(n_val=(1, 10 ** 6), responses=(2, 256), deciding=(1, 1000),
                  features=(1, 1000), overlap=(0, 1), skill=(0, 1), pool=(1, 10 ** 6), D=(0, cfg["pool"], "problems of the pool"),
                  B_p=(1, cfg["D"] or cfg["pool"], "training problems"))
    for key, (least, most, *what) in limits.items():
        if not least <= cfg[key] <= most:
            raise BadInput(f"--{key}={cfg[key]}: " + " ".join([
                f"expected {least} to {most}", *what]))
    for key, value in dict(algo="grpo", updates=1, n_train=0, zero_var_filter="off", top_p=1.0,
                           temperature=1.0, kl_coef=0.0, entropy_coef=0.0, out="").items():
        if cfg[key] != value:
            raise BadInput(f"--{key}={cfg[key]}: the toy has only {key}={value or 'none'}")


def main(argv):
    verb = argv[0] if argv and not argv[0].startswith("-") else "both"
    if verb not in ("both", "one", "run", "sweep"):
        raise BadInput(f"{verb}: no such verb; expected one, run or sweep, or no verb for both")
    if not Path("data/bandit/defaults.json").exists():
        raise BadInput("data/bandit/defaults.json: not found; start bandit_toy.py in the folder of "
                       "the repository")
    cfg = parse(["--data=data/bandit", *[word for word in argv if word != verb]], __doc__, TOY)
    # the world is a part of the run's identity, as the problem files of a language model are
    cfg["train_set"] = cfg["val_set"] = " ".join(f"{key}={cfg[key]}" for key in (*TOY, "n_val"))
    cells, runs = [cfg] if verb == "run" else sweep.cells(cfg), Path(cfg["runs"])
    for c in cells:
        config.check_run(c), check_world(c)
    if verb in ("both", "one"):
        one_problem(runs, K=cfg["responses"])
    if verb != "one":
        train_all(cells)
    if verb in ("both", "sweep"):
        sweep.write_plan(cfg)
        print(f"next: python frontier.py --runs={runs} && python fit_sigmoid.py --runs={runs}")


if __name__ == "__main__":
    entry(main)
