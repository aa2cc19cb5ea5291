"""bandit_toy.py: RL without a language model: one problem in theory, many that share weights.

    python bandit_toy.py                               # both, a minute or two, in runs/bandit
    python bandit_toy.py one                           # one problem: runs/bandit/one.{json,png}
    python bandit_toy.py sweep --overlap=0.5 --idle=0  # many problems: the grid ns x bps x seeds;
    python frontier.py --runs=runs/bandit --view=all   # its analysis is that of any sweep
    python bandit_toy.py run --B_p=16 --n=64 --C=1e6 --seed=3    # one run of it
    python results/bandit/study.py                     # the experiments on it, 40 minutes

One problem: a tabular softmax over K responses, reward 1 for the right ones (paper, appendix "Base
case"). Many problems: a rollout is `deciding` + `idle` decisions among `responses` choices each; it
is right when all deciding ones are. A decision has `features` x, and the policy is softmax(z0 +
sqrt(overlap) x W + sqrt(1 - overlap) own), where z0 are the base model's logits, W is shared by all
problems and `own` belongs to this decision of this problem: a gradient step moves a decision's own
logits as far at every overlap (features have length 1), and another's by overlap x.x'; AdamW, which
knows no scale, moves 32 shared weights further than one table entry, so compare overlaps at the
best lr of each. Validation problems are new; they know W alone. Rollouts, advantages, token-mean
loss, AdamW and its schedule, KL and entropy (here exact) are those of train_grpo.py, and so is the
log, less times and what only a language model has; its evaluations hold `exact` besides, the mean
pass@1 without sampling noise. A run is a function of its config: run again, it writes the same log.
It is written whole at the end; an interrupted run starts anew.

What results/bandit/study.py found (8 fresh seeds, exact pass rates): with D = 100 and the sqrt rule
n*(C) rises from 4 to 64; with every n at its best lr it does not (+0.3 +- 1.2 points), nor with D =
400 or 1,600 at any lr. Against an exact baseline n = 2 is as good as any n: what small n pays is
its group's own noise. Weight decay, which acts once an update, is the one thing that makes n* rise
at the best lr of each n.

Needs config.py, core/sweep.py and data/bandit/defaults.json, its values. The keys that it
has alone are TOY below.
"""
import concurrent.futures
import contextlib
import hashlib
import json
import math
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

# matrices are small here; two processes beat two threads
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from scipy import stats

import config
from core import sweep
from config import BadInput, aside, at_k, derive, entry, parse, save_json

TOY = dict(  # keys of this script alone: their values, what they mean
    overlap=(1.0, "share of the logits from weights common to all problems; 0 = tabular"),
    responses=(8, "choices of a decision"),
    deciding=(3, "decisions of a rollout that all must be right for its reward"),
    idle=(29, "decisions that do not matter for the reward; 0 = no such noise"),
    features=(32, "numbers that describe a decision, rows of the common weights"),
    skill=(0.8, "cosine between the base model's weights and the right ones; 1 = it knows"),
    sharpness=(5.0, "size of the base model's logits; larger: pass rates nearer to 0 and 1"),
    pool=(2048, "training problems there are, D of which are used"),
    world=(0, "seed of the world: what is right, the base model, all problems"),
    advantage=("group", "group: (r - mean) / std of the group | undivided: r - mean | "
                        "true: by sqrt(p (1 - p)) | exact: r - p by that"),
    clock=(0, "rollouts that count as one update for warm-up and AdamW's beta2; 0 = any update"))
CORES = config.cores()
LR_RULES = dict(constant="lr the same", sqrt="lr x sqrt(n)", linear="lr x n",
                best="each n at its best lr")


# --------------------------------------------------------------------------------------------------
# One problem: a tabular softmax, theta (R, K) logits of R independent repetitions, right (K,) bool

def softmax(theta):
    """Probabilities over the last axis."""
    e = np.exp(theta - theta.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def exact_gradient(theta, right):
    """Gradient of the pass rate p = sum of pi over the right responses: dp/dtheta_a = pi_a
    (right_a - p). (R, K) -> (R, K).
    """
    pi = softmax(theta)
    return pi * (right - (pi * right).sum(-1, keepdims=True))


def sampled_gradient(theta, right, n, rng):
    """Its estimate by the mean of r grad log pi over n rollouts, no baseline, n >= 1: unbiased,
    its variance falls as 1/n.
    """
    pi = softmax(np.asarray(theta, float))
    # (R, K): how often each right response was drawn, of n
    won = rng.multinomial(n, pi) * right / n
    return won - pi * won.sum(-1, keepdims=True)


def start(p, K, R=1):
    """Logits (R, K) of a policy whose first response alone is right, with probability p, the
    others equal; and right (K,).
    """
    theta = np.log(np.concatenate([[p], np.full(K - 1, (1 - p) / (K - 1))]))
    return np.tile(theta, (R, 1)), np.arange(K) == 0


def ascend(theta, right, n, lr, at, rng):
    """Gradient ascent by n rollouts an update, n = 0 exactly: suboptimality 1 - p (len(at), R)
    after the updates `at`.
    """
    theta, out = theta.copy(), []
    for t in range(max(at) + 1):
        if t in at:
            out.append(1 - (softmax(theta) * right).sum(-1))
        theta += lr * (sampled_gradient(theta, right, n, rng)
                       if n else exact_gradient(theta, right))
    return np.array(out)


def fit_rate(tail, ns, rng, draws=200):
    """A and B of suboptimality = A / (n t) + B / t (paper, appendix "Base case"), by least squares
    of the relative errors.

    tail (N, R): t times suboptimality at one t, for each n of `ns` and repetition. Returns dict(A,
    B), each [value, 90% lo, hi] by drawing the repetitions again, and `off`: the largest relative
    error of the form over `ns`, which says whether A and B mean anything.
    """
    X = np.stack([1 / np.array(ns), np.ones(len(ns))], 1)

    def fit(y):  # (N,) means
        return np.linalg.lstsq(X / y[:, None], np.ones(len(y)), rcond=None)[0]
    y, R = tail.mean(1), tail.shape[1]
    value, again = fit(y), []
    for _ in range(draws):
        again.append(fit(np.array([row[rng.integers(0, R, R)].mean() for row in tail])))
    lo, hi = np.percentile(again, [5, 95], 0)
    return dict(A=[value[0], lo[0], hi[0]], B=[value[1], lo[1], hi[1]],
                off=np.abs(X @ value / y - 1).max())


def advantages(rewards, kind="group", p=None):
    """(..., n) rewards -> advantages, with pass rates p (...) where they are asked for.

    group: (r - mean) / (std + 1e-6), std with ddof 1, those of train_grpo.advantages; undivided: r
    - mean; true: the same over sqrt(p (1 - p)) + 1e-6; exact: (r - p) over that, which no group has
    a part in.
    """
    A = rewards - (p[..., None] if kind == "exact" else rewards.mean(-1, keepdims=True))
    if kind == "undivided":
        return A
    std = A.std(-1, ddof=1) if kind == "group" else np.sqrt(p * (1 - p))
    return A / (std[..., None] + 1e-6)


def group_weight(n, p):
    """w_n(p): the mean update of a GRPO group of n at pass rate p is w_n(p) times the gradient of
    p.

    With c of n right the group pushes by sqrt(c (n - c)) sqrt((n - 1) / n) / n along grad p / (p (1
    - p)), and c is binomial. Constant in p for n = 2 (0.71) and 3 (1.15), and 1 / sqrt(p (1 - p))
    for n -> infinity: rare successes weigh more in larger groups.
    """
    c = np.arange(n + 1)
    return (stats.binom.pmf(c, n, p) * np.sqrt(c * (n - c))).sum() * math.sqrt((n - 1)
        / n) / n / (p * (1 - p))


def sampled_weight(n, p, rng, R=4000, K=8):
    """w_n(p) by R sampled groups of a K-response policy: (mean, standard error) of the update's
    part along the exact gradient.
    """
    theta, right = start(p, K)
    a = rng.choice(K, (R, n), p=softmax(theta)[0])
    A = advantages(right[a].astype(float))
    # (R, K); A sums to 0, so pi does not enter
    update = np.stack([(A * (a == k)).mean(1) for k in range(K)], 1)
    g = exact_gradient(theta, right)[0]
    w = update @ g / (g @ g)
    return w.mean(), w.std(ddof=1) / math.sqrt(R)


def one_problem(out, p=0.1, K=8, R=1000, ns=(1, 2, 4, 16, 64), T=2048, C=4096):
    """The base case in numbers: returns a dict, written to out/one.json, and draws out/one.png."""
    rng, (theta, right) = np.random.default_rng(0), start(p, K, R)
    found = dict(p=p, K=K, R=R, T=T, C=C, passes=[], update=[], rates=[], spent=[], weights=[])
    g = exact_gradient(theta[:1], right)[0]
    single = softmax(theta[:1])[0]
    # tr Var of one rollout's gradient
    noise = (single * right * ((np.eye(K) - single) ** 2).sum(1)).sum() - (g ** 2).sum()
    for n in (1, 2, 4, 8, 16, 32, 64):
        solved = (rng.binomial(n, p, 20 * R) > 0).mean()
        found["passes"].append(dict(n=n, exact=1 - (1 - p) ** n, sampled=solved,
                                    half=1.96 * math.sqrt(solved * (1 - solved) / (20 * R))))
        G = sampled_gradient(np.tile(theta, (20, 1)), right, n, rng)
        along, size = G @ g / (g @ g), ((G - g) ** 2).sum(1) * n / noise
        row = dict(n=n)
        for key, x in (("mean", along), ("variance_times_n", size)):
            row[key] = [x.mean(), 1.96 * x.std() / math.sqrt(len(x))]
        found["update"].append(row)
    at = sorted({round(2 ** (i / 2)) for i in range(int(2 * math.log2(T)) + 1)})
    for lr in (0.25, 1.0, 4.0):
        curves = {n: ascend(theta if n else theta[:1], right, n, lr, at, rng) for n in (*ns, 0)}
        # at each t: A and B are to be constants
        fits = [fit_rate(np.stack([t * curves[n][i] for n in ns]), ns, rng)
                for i, t in enumerate(at)]
        found["rates"].append(dict(lr=lr, at=at, fits=fits, theory=(K - 1) / (K * lr),
                                   mean={n: c.mean(1) for n, c in curves.items()}))
    # the same rollouts, spent in C / n updates
    for scaling, power in (("constant", 0), ("sqrt", 0.5), ("linear", 1)):
        for n in (1, 4, 16, 64, 256):
            d = ascend(theta, right, n, 0.25 * n ** power, [C // n], rng)[0]
            found["spent"].append(dict(scaling=scaling, n=n, suboptimality=d.mean(),
                                       half=1.96 * d.std() / math.sqrt(R)))
    for n in (1, 4, 16, 64, 256):  # and each n at the lr that suits it best
        d = min((ascend(theta[:200], right, n, lr, [C // n], rng)[0] for lr in (1, 4, 16, 64, 256)),
                key=np.mean)
        found["spent"].append(dict(scaling="best", n=n, suboptimality=d.mean(),
                                   half=1.96 * d.std() / math.sqrt(len(d))))
    for n in (2, 3, 8, 64, 512):
        for q in (0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 0.9, 0.97, 0.99):
            mean, error = sampled_weight(n, q, rng, 4 * R)
            found["weights"].append(dict(n=n, p=q, exact=group_weight(n, q), sampled=mean,
                                         half=1.96 * error))
    save_json(out / "one.json", found)
    draw_one(found, out / "one.png")
    return found


def report_one(found):
    """The base case in a few lines."""
    for rate in found["rates"]:
        for i in (rate["at"].index(32), -1):
            (A, *a), (B, *b), off = (rate["fits"][i][key] for key in ("A", "B", "off"))
            print(f"one problem, lr {rate['lr']}: at t = {rate['at'][i]} A = {A:.3g} [{a[0]:.3g}, "
                  f"{a[1]:.3g}], B = {B:.3g} [{b[0]:.3g}, {b[1]:.3g}] (90%), "
                  f"the form is off by {off:.1%} at most; the exact gradient's B tends to "
                  f"{rate['theory']:.3g}")
    for scaling in dict.fromkeys(x["scaling"] for x in found["spent"]):
        rows = [x for x in found["spent"] if x["scaling"] == scaling]
        each = ", ".join(f"{x['suboptimality']:.2g} (n = {x['n']})" for x in rows)
        best = min(rows, key=lambda x: x["suboptimality"])["n"]
        print(f"one problem, {found['C']} rollouts, {LR_RULES[scaling]}: suboptimality {each}; "
              f"best n = {best}")


# --------------------------------------------------------------------------------------------------
# Many problems: S seeds side by side, P problems, d decisions of K choices, F features;
# probabilities are (K, S, P, d)

def make_world(cfg):
    """The problems, of validation first: dict(x (P, d, F) features of length 1, base (P, d, K)
    logits, answer (P, deciding), hash).

    What is right is the largest logit of a random linear teacher; the base model's weights have
    cosine `skill` to the teacher's. recipe: easy keeps problems of base pass rate 0.3 to 0.6, hard
    up to 0.0625, mixed all.
    """
    rng = np.random.default_rng([cfg["world"], 1])
    F, K, d, P = cfg["features"], cfg["responses"], cfg["deciding"], cfg["n_val"] + cfg["pool"]
    teacher, noise = rng.standard_normal((2, F, K), np.float32)
    W0 = np.float32(cfg["sharpness"]) * (cfg["skill"] * teacher
                                         + math.sqrt(1 - cfg["skill"] ** 2)
                                         * noise).astype(np.float32)
    lo, hi = dict(easy=(0.3, 0.6), hard=(0, 0.0625), mixed=(0, 1))[cfg["recipe"]]
    kept, have = [], 0
    for _ in range(200):
        x = rng.standard_normal((4096, d, F), np.float32)
        x /= np.linalg.norm(x, axis=-1, keepdims=True)
        p = pass_rate(policy(x[None], (x @ W0)[None]), (x @ teacher).argmax(-1)[None])[0]
        kept.append(x[(lo <= p) & (p <= hi)])
        have += len(kept[-1])
        if have >= P:
            break
    else:
        raise BadInput(f"--recipe={cfg['recipe']}: hardly a problem of this world has such a pass "
                       "rate; change skill, sharpness or deciding")
    x = np.concatenate(kept)[:P]
    idle = rng.standard_normal((P, cfg["idle"], F), np.float32)
    answer = (x @ teacher).argmax(-1)
    x = np.concatenate([x, idle / np.linalg.norm(idle, axis=-1, keepdims=True)], 1)
    base = x @ W0
    # what a processor rounds otherwise is the same file
    seen = np.round(base[:cfg["n_val"]], 2) + 0.0
    return dict(x=x, base=base, answer=answer,
                hash=hashlib.sha256(seen.tobytes()
                                    + answer[:cfg["n_val"]].tobytes()).hexdigest()[:16])


def policy(x, base, W=None, own=None, overlap=1.0):
    """Probabilities (K, S, P, d) from features x (S, P, d, F), base and own logits (S, P, d, K)
    and shared weights W (S, F, K).
    """
    S, P, d, F = x.shape
    z = base.copy()
    if W is not None:
        z += np.float32(math.sqrt(overlap)) * (x.reshape(S, P * d, F) @ W).reshape(base.shape)
    if own is not None:
        z += np.float32(math.sqrt(1 - overlap)) * own
    # choices first: sums over them then run over long rows
    pi = np.ascontiguousarray(np.moveaxis(z, -1, 0))
    pi -= pi.max(0)
    np.exp(pi, out=pi)
    pi /= pi.sum(0)
    return pi


def pass_rate(pi, answer):
    """The chance that all deciding decisions are right: pi (K, S, P, d), answer (S, P,
    deciding) -> (S, P).
    """
    return np.take_along_axis(pi[..., :answer.shape[-1]], answer[None], 0)[0].prod(-1)


def roll(pi, n, rngs):
    """n rollouts of each problem, every seed from its own generator: choices (S, n, P, d),
    uint8.
    """
    K, S, P, d = pi.shape
    u = np.empty((S, n, P, d), np.float32)
    for s in range(S):
        rngs[s].random(out=u[s], dtype=np.float32)
    edge, choice, above = pi[0].copy(), np.zeros(u.shape, np.uint8), np.empty(u.shape, bool)
    for k in range(1, K):  # the choice is the number of cumulated probabilities below u
        choice += np.greater(u, edge[:, None], out=above)
        edge += pi[k]
    return choice


def rewards_of(choice, answer):
    """1 where all deciding decisions are right: choices (S, n, P, d), answer (S, P, deciding) ->
    (S, n, P).

    In float64: AdamW would blow up what rounding leaves of a sum of advantages that is 0.
    """
    return (choice[..., :answer.shape[-1]] == answer[:, None]).all(-1).astype(float)


def group_gradient(pi, choice, A):
    """Sum over the n rollouts of A grad log pi for each decision's logits, A (S, n, P): (S, P,
    d, K).
    """
    K, S, P, d = pi.shape
    cell = choice * np.int64(S * P * d) + np.arange(S * P * d).reshape(S, 1, P, d)
    sums = np.bincount(cell.ravel(), np.broadcast_to(A[..., None], choice.shape).ravel(),
                       K * S * P * d)
    sums = sums.reshape(K, S, P, d) - A.sum(1)[..., None] * pi
    return np.moveaxis(sums.astype(np.float32), 0, -1)


class Run:
    """S runs of one cell side by side, one for each seed: what they have learned and where they
    are. Copy it to branch them.
    """

    def __init__(self, cfg, world, seeds):
        V, N, D = cfg["n_val"], len(world["x"]), cfg["D"] or cfg["pool"]
        self.world, self.seeds, self.rollouts, self.steps = world, seeds, 0, 0
        self.rollout_rng = [np.random.Generator(np.random.SFC64([seed, 1])) for seed in seeds]
        self.order_rng = [np.random.default_rng([seed, 2]) for seed in seeds]
        # D of the pool's problems, a nested seeded subset
        drawn = [np.random.default_rng([seed, 3]).permutation(N - V)[:D] for seed in seeds]
        self.problems = np.stack([np.sort(V + problems) for problems in drawn])
        self.queue = np.empty((len(seeds), 0), int)
        S, (_, d, F), K = len(seeds), world["x"].shape, cfg["responses"]
        shapes = dict(W=(S, F, K), own=(S, D, d, K))
        used = [name for name, share in (("W", cfg["overlap"]), ("own", 1 - cfg["overlap"]))
                if share]
        # a weight, AdamW's first and its second moment
        self.weights = {name: np.zeros((3, *shapes[name]), np.float32) for name in used}

    @property
    def W(self):
        """The shared weights (S, F, K), or None where nothing is shared."""
        return self.weights["W"][0] if "W" in self.weights else None

    @property
    def own(self):
        """The table (S, D, d, K), or None where all is shared."""
        return self.weights["own"][0] if "own" in self.weights else None

    def batch(self, B_p):
        """Which of its D problems each seed visits next, (S, B_p): seeded epochs without
        replacement.
        """
        while self.queue.shape[1] < B_p:
            epoch = [rng.permutation(self.problems.shape[1]) for rng in self.order_rng]
            self.queue = np.concatenate([self.queue, np.stack(epoch)], 1)
        now, self.queue = self.queue[:, :B_p], self.queue[:, B_p:]
        return now

    def probabilities(self, cfg, problems, places=None, idle=False):
        """Of the choices (K, S, P, d) in problems (S, P) of the world, with answers and
        features; places: theirs in the table, if there.
        """
        w = self.world
        # idle decisions matter only where they are drawn
        cut = slice(None if idle else w["answer"].shape[1])
        x, table = w["x"][problems][:, :, cut], None
        if places is not None and self.own is not None:
            table = self.own[np.arange(len(self.seeds))[:, None], places][:, :, cut]
        return policy(x, w["base"][problems][:, :, cut], self.W, table,
                      cfg["overlap"]), w["answer"][problems], x

    def validation(self, cfg):
        """Exact pass@1 of the validation problems, (S, n_val)."""
        problems = np.broadcast_to(np.arange(cfg["n_val"]), (len(self.seeds), cfg["n_val"]))
        return pass_rate(*self.probabilities(cfg, problems)[:2])

    def training(self, cfg):
        """Exact pass@1 of the D training problems, (S, D)."""
        return pass_rate(*self.probabilities(cfg, self.problems,
                                             np.arange(self.problems.shape[1])[None])[:2])

    def update(self, cfg, d):
        """One update of GRPO at the settings of cfg, d = derive(cfg).

        Returns the step record's fields, each (S,).
        """
        S, B_p, n, rows = len(self.seeds), cfg["B_p"], cfg["n"], np.arange(len(self.seeds))[:, None]
        places = self.batch(B_p)
        pi, answer, x = self.probabilities(cfg, self.problems[rows, places], places, idle=True)
        choice = roll(pi, n, self.rollout_rng)
        reward = rewards_of(choice, answer)  # (S, n, B_p)
        A = advantages(reward.swapaxes(1, 2), cfg["advantage"], pass_rate(pi, answer))
        A = A.swapaxes(1, 2)
        # of the token-mean loss by the logits, (S, B_p, d, K)
        G = group_gradient(pi, choice, A) / -(d["B"] * pi.shape[-1])
        # their exact gradients: k3's is that of KL(ref || policy)
        if cfg["kl_coef"] or cfg["entropy_coef"]:
            z, p = self.world["base"][self.problems[rows, places]], np.moveaxis(pi, 0, -1)
            logp = np.log(p + 1e-30)
            H = -(p * logp).sum(-1, keepdims=True)
            G += (cfg["kl_coef"] * (p - softmax(z))
                  + cfg["entropy_coef"] * p * (logp + H)) / (B_p * pi.shape[-1])
        grads = {}
        if "W" in self.weights:
            x, by_logits = x.reshape(S, -1, x.shape[-1]), G.reshape(S, -1, G.shape[-1])
            grads["W"] = x.swapaxes(1, 2) @ by_logits * np.float32(math.sqrt(cfg["overlap"]))
        if "own" in self.weights:
            grads["own"] = np.zeros_like(self.own)
            np.add.at(grads["own"], (rows, places), G * np.float32(math.sqrt(1 - cfg["overlap"])))
        norm = np.sqrt(sum((g.reshape(S, -1) ** 2).sum(1) for g in grads.values()))
        self.steps += 1
        self.rollouts += d["B"]
        ticks = d["B"] / cfg["clock"] if cfg["clock"] else 1  # how much of a tick this update is
        lr = d["lr"] * (min(1.0, self.steps * ticks / cfg["warmup"]) if cfg["warmup"] else 1.0)
        beta1, beta2 = 0.9, 0.999 ** ticks
        for name, g in grads.items():
            if cfg["grad_clip"]:
                factor = np.minimum(1, cfg["grad_clip"] / (norm + 1e-6)).astype(np.float32)
                g *= factor.reshape(S, *[1] * (g.ndim - 1))
            w, m, v = self.weights[name]
            m += (1 - beta1) * (g - m)
            v += (1 - beta2) * (g * g - v)
            w *= 1 - lr * cfg["weight_decay"]
            w -= lr / (1 - beta1 ** self.steps) * m / (np.sqrt(v / (1 - beta2 ** self.steps))
                                                       + 1e-8)
            norm[~np.isfinite(w).reshape(S, -1).all(1)] = math.nan  # diverged: train says so
        right = reward.mean(1)  # (S, B_p)
        return dict(reward=right.mean(1), frac_all_right=(right == 1).mean(1),
                    frac_all_wrong=(right == 0).mean(1), grad_norm=norm,
                    lr=np.full(S, lr))


def train(cfg, world, seeds):
    """One cell for several seeds: writes their run folders, each log aside and renamed.

    The draws of a seed do not depend on the others.
    """
    d, run = derive(cfg), Run(cfg, world, seeds)
    decisions = cfg["deciding"] + cfg["idle"]
    passes, logs, alive = config.updates_at(cfg["pass_at"], cfg) | {0, d["M"]}, {}, set(seeds)
    metrics = [f"{metric}@{cfg['k']}" for metric in ("avg", "best", "worst")]
    values = {metric: np.array(at_k(metric, cfg["samples"])) for metric in metrics}
    for seed in seeds:
        own = dict(cfg, seed=seed)
        logs[seed] = [dict(type="header", schema=1, config=own, derived=derive(own, TOY),
                           val_set_hash=world["hash"], engine="bandit_toy",
                           versions=dict(python=sys.version.split()[0], numpy=np.__version__),
                           commit=config.commit(), ranks=1,
                           device="cpu", time=time.strftime("%Y-%m-%dT%H:%M:%S%z"))]
    for m in range(d["M"] + 1):
        if m:
            fields = {name: x.tolist() for name, x in run.update(cfg, d).items()}
            for s, seed in enumerate(seeds):
                if seed in alive:
                    logs[seed].append(dict(type="step", step=m, rollouts=run.rollouts,
                                           tokens=run.rollouts * decisions,
                                           **{k: v[s] for k, v in fields.items()}))
                    if not math.isfinite(fields["grad_norm"][s]):
                        logs[seed].append(dict(type="end", status="diverged",
                                               rollouts=run.rollouts))
                        alive.remove(seed)
        every = cfg["eval_every"] or math.inf  # 0: at the start and the end alone
        windows = [(run.rollouts - B) // every for B in (d["B"], 0)]
        if m in (0, d["M"]) or windows[0] < windows[1]:
            for seed, p in zip(seeds, run.validation(cfg).astype(float)):
                if seed in alive:
                    correct = np.random.default_rng([seed, 4, m]).binomial(cfg["samples"], p)
                    means = {metric: v[correct].mean() for metric, v in values.items()}
                    logs[seed].append(dict(type="eval", step=m, rollouts=run.rollouts,
                                           tokens=run.rollouts * decisions, set="val", k=cfg["k"],
                                           samples=cfg["samples"], **means, exact=p.mean(),
                                           set_hash=world["hash"], correct=correct))
        if m in passes:
            for s, (seed, p) in enumerate(zip(seeds, run.training(cfg).astype(float))):
                if seed in alive:
                    correct = np.random.default_rng([seed, 5, m]).binomial(cfg["s"], p)
                    logs[seed].append(dict(type="train_pass", step=m, rollouts=run.rollouts,
                                           fresh=True, ids=run.problems[s], exact=np.round(p, 5),
                                           samples=[cfg["s"]] * len(p), correct=correct))
    for seed in seeds:
        if seed in alive:
            logs[seed].append(dict(type="end", status="budget", rollouts=run.rollouts))
        with aside(folder_of(dict(cfg, seed=seed)) / "log.jsonl") as part:
            lines = [json.dumps(config.finite(r)) + "\n" for r in logs[seed]]
            part.write_bytes("".join(lines).encode())


def folder_of(cfg):
    return Path(cfg["out"] or Path(cfg["runs"]) / config.run_name(cfg, TOY))


def train_all(cells):
    """Runs the unfinished ones of `cells` (resolved dicts), seeds of one cell side by side, in
    as many processes as there are cores, under one bar.
    """
    world = make_world(cells[0])  # ends here where there is none
    for c in cells:
        # here, not after the work, a folder that cannot be written ends it
        folder_of(c).mkdir(parents=True, exist_ok=True)
        log = folder_of(c) / "log.jsonl"
        for r in config.read_log(log) if log.exists() else ():
            if r.get("type") == "header":
                config.check_same(folder_of(c), r["config"], c)
    todo, groups = [c for c in cells if not config.finished(c, folder_of(c))], {}
    for c in todo:
        groups.setdefault((c["B_p"], c["n"]), []).append(c)
    work = []
    for (B_p, n), own in groups.items():
        # rollouts drawn at once: more needs memory and is no faster
        side = max(1, 2 ** 17 // (B_p * n))
        work += [(own[i], [c["seed"] for c in own[i:i + side]]) for i in range(0, len(own), side)]
    print(f"{cells[0]['runs']}: {len(cells)} runs, {len(todo)} to do", file=sys.stderr)
    if work:
        sizes = [len(seeds) * c["C"] for c, seeds in work]
        in_parallel([(train, c, world, seeds) for c, seeds in work],
                    [size * cost(c) for size, (c, _) in zip(sizes, work)], "rollouts", sizes)


def cost(cfg):
    """Of a rollout, relative: small batches take longer."""
    return 1 + 40 / (cfg["B_p"] * cfg["n"])


def in_parallel(calls, costs, unit, sizes):
    """calls, tuples (function, arguments...), the dearest first, in CORES processes under one
    bar; their values in the order given.
    """
    from tqdm import tqdm
    order = sorted(range(len(calls)), key=lambda i: -costs[i])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    workers = concurrent.futures.ProcessPoolExecutor(CORES, initializer=signal.signal,
                                                     initargs=(signal.SIGINT, signal.SIG_IGN))
    with workers as pool, tqdm(total=sum(sizes), unit=unit, unit_scale=True, mininterval=1) as bar:
        futures = {pool.submit(*calls[i]): i for i in order}
        values = [None] * len(calls)
        try:
            for future in concurrent.futures.as_completed(futures):
                values[futures[future]] = future.result()
                bar.update(sizes[futures[future]])
        except BaseException:  # Ctrl-C, SIGTERM: what runs is not waited for
            for child in multiprocessing.active_children():
                child.kill()
            raise
    return values


# --------------------------------------------------------------------------------------------------
# Figures

@contextlib.contextmanager
def figure(path, rows, cols, size):
    """Axes (rows, cols) to draw on; written aside and renamed at the end."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    fig, axes = plt.subplots(rows, cols, figsize=size, squeeze=False, layout="constrained")
    yield fig, axes
    with aside(path) as part:
        fig.savefig(part, dpi=140)
    plt.close(fig)


def colours(values):
    """{value: a colour from dark to light}, in order."""
    import matplotlib
    steps = max(1, len(values) - 1)
    shades = matplotlib.colormaps["viridis"]
    return {v: shades(0.9 * i / steps) for i, v in enumerate(sorted(values))}


def draw_one(found, path):
    """The base case: pass@n, mean and variance of an update, its rate at two lrs, how to spend
    C, and w_n(p).
    """
    with figure(path, 2, 3, (14, 8)) as (fig, ((a, b, c), (e, f, g))):
        n = [x["n"] for x in found["passes"]]
        a.plot(n, [x["exact"] for x in found["passes"]], color="0.6", label="1 - (1 - p)$^n$")
        a.errorbar(n, [x["sampled"] for x in found["passes"]], [x["half"] for x in found["passes"]],
                   fmt=".", label="sampled")
        a.set(xscale="log", xlabel="n", ylabel="pass@n", title=f"pass@n, p = {found['p']}")
        for key, label in (("mean", "mean of the update along the gradient, / exact"),
                           ("variance_times_n", "its variance times n, / that of n = 1")):
            b.errorbar(n, [x[key][0] for x in found["update"]],
                       [x[key][1] for x in found["update"]], fmt="o-", ms=4, capsize=2, label=label)
        b.axhline(1, color="0.6", lw=0.8)
        b.set(xscale="log", xlabel="n", ylim=(0.9, 1.1), title="n changes only the variance")
        rate = found["rates"][-1]
        shade = colours([n for n in rate["mean"] if n])
        for n, mean in rate["mean"].items():
            c.plot(rate["at"], np.array(rate["at"]) * mean, color=shade.get(n, "black"),
                   ls="-" if n else "--", lw=1.4,
                   label=f"n = {n}" if n else "exact gradient")
        c.set(xscale="log", xlabel="updates t", ylabel="t x suboptimality",
              title=f"lr = {rate['lr']}: A / n + B while t is small")
        for rate, ls in zip(found["rates"], (":", "--", "-")):
            for name, shade in (("A", "C0"), ("B", "C1")):
                value, lo, hi = np.array([fit[name] for fit in rate["fits"]]).T
                e.plot(rate["at"], value, color=shade, ls=ls, lw=1.4,
                       label=f"{name}, lr = {rate['lr']}")
                e.fill_between(rate["at"], np.maximum(lo, 1e-9), hi, color=shade, alpha=0.2, lw=0)
        e.set(xscale="log", yscale="log", ylim=(1e-4, 100), xlabel="updates t", ylabel="A, B",
              title="A / (n t) + B / t fitted at each t: A is no constant")
        for scaling in dict.fromkeys(x["scaling"] for x in found["spent"]):
            rows = [x for x in found["spent"] if x["scaling"] == scaling]
            f.errorbar([x["n"] for x in rows], [x["suboptimality"] for x in rows],
                       [x["half"] for x in rows], fmt="o-", ms=4, capsize=2,
                       label=LR_RULES[scaling])
        f.set(xscale="log", yscale="log", xlabel="n", ylabel="suboptimality",
              title=f"C = {found['C']} rollouts in C / n updates")
        p = np.linspace(0.005, 0.995, 199)
        shade = colours({x["n"] for x in found["weights"]})
        for n in shade:
            rows = [x for x in found["weights"] if x["n"] == n]
            g.plot(p, [group_weight(n, q) for q in p], color=shade[n], lw=1.2, label=f"n = {n}")
            g.errorbar([x["p"] for x in rows], [x["sampled"] for x in rows],
                       [x["half"] for x in rows], fmt=".", color=shade[n])
        g.plot(p, 1 / np.sqrt(p * (1 - p)), color="0.6", ls=":", label="1 / sqrt(p (1 - p))")
        g.set(xlabel="pass rate p", ylabel="w$_n$(p)", yscale="log", title="GRPO weighs problems")
        for ax in (a, b, c, e, f, g):
            ax.legend(fontsize=8)
        fig.suptitle(f"One problem: tabular softmax over K = {found['K']} responses, one right, at "
                     f"first with p = {found['p']}; "
                     f"{found['R']} repetitions, bars 95%, A and B 90%", fontsize=11)


def draw_many(cfg, cells, path):
    """A sweep: exact validation reward over C, and how the training problems' pass rates
    changed, from the logs of `cells`.
    """
    curves, passes = {}, {}
    for c in cells:
        records = config.read_log(folder_of(c) / "log.jsonl")
        curves.setdefault(c["n"], []).append([(r["rollouts"], r["exact"]) for r in records
                                              if r["type"] == "eval"])
        fresh = [r for r in records if r["type"] == "train_pass"]
        if len(fresh) > 1:
            passes.setdefault(c["n"], []).append((fresh[0]["exact"], fresh[-1]["exact"]))
    shade = colours(curves)
    with figure(path, 1, 3, (14, 4.6)) as (fig, ((left, middle, right),)):
        for n in sorted(curves):
            for i, run in enumerate(curves[n]):
                left.plot(*zip(*run[1:]), color=shade[n], lw=1.2, label=None if i else f"n = {n}")
        left.set(xscale="log", xlabel="C, rollouts", ylabel="validation pass@1, exact",
                 title="new problems")
        for n in sorted({min(passes), max(passes)} if passes else ()):
            before, after = (np.concatenate(x) for x in zip(*passes[n]))
            middle.plot(np.linspace(0, 1, len(after)), np.sort(after), color=shade[n], lw=1.6,
                        label=f"n = {n}: {np.mean(after < 0.05):.0%} below 0.05")
            edges = np.array([0, 0.01, 0.05, 0.2, 0.5, 0.8, 1.001])
            own = [(after - before)[(lo <= before) & (before < hi)]
                   for lo, hi in zip(edges, edges[1:])]
            right.errorbar(range(len(own)), [x.mean() if len(x) else math.nan for x in own],
                           [1.645 * x.std() / math.sqrt(len(x)) if len(x) else 0 for x in own],
                           fmt="o-", ms=4, capsize=2, color=shade[n],
                           label=f"n = {n}: {np.mean(after < before - 0.1):.0%} of all fell by "
                                 "more than 0.1")
        if passes:
            middle.plot(np.linspace(0, 1, len(before)), np.sort(before), color="0.5", lw=1.2,
                        ls="--", label="base model")
            right.set_xticks(range(6), ["< 0.01", "0.01", "0.05", "0.2", "0.5", "0.8"])
        middle.set(xlabel="training problems, sorted", ylabel="pass@1, exact",
                   title="training problems at the end")
        right.axhline(0, color="0.6", lw=0.8)
        right.set(xlabel="base pass@1, from", ylabel="change of pass@1", title="who gained")
        for ax in (left, middle, right):
            if ax.get_legend_handles_labels()[0]:
                ax.legend(fontsize=8)
        c = cells[0]
        seeds = ", ".join(sorted({str(x["seed"]) for x in cells}))
        fig.suptitle(f"{len(cells)} runs of {c['runs']}: overlap {c['overlap']}, {c['deciding']} "
                     f"deciding and {c['idle']} idle decisions, D = {c['D']}, "
                     f"B_p = {', '.join(sorted({str(x['B_p']) for x in cells}))}, seeds {seeds}, "
                     "bars 90%", fontsize=11)


# --------------------------------------------------------------------------------------------------

def check_world(cfg):
    """Raise BadInput on values of TOY that make no world, and on what this world does not have."""
    config.choose("advantage", cfg["advantage"], ("group", "undivided", "true", "exact"))
    for key, least in dict(responses=2, deciding=1, features=1, pool=1).items():
        if cfg[key] < least:
            raise BadInput(f"--{key}={cfg[key]}: must be {least} or more")
    for key in ("overlap", "skill"):
        if cfg[key] > 1:
            raise BadInput(f"--{key}={cfg[key]}: must be 1 or less")
    for key, value in dict(algo="grpo", updates=1, n_train=0, n_schedule="", zero_var_filter="off",
                           temperature=1.0, top_p=1.0, kl_type="k3").items():
        if cfg[key] != value:
            raise BadInput(f"--{key}={cfg[key]}: the toy world has only {value or 'none'}")
    if cfg["responses"] > 256:
        raise BadInput(f"--responses={cfg['responses']}: must be 256 or less")
    if cfg["D"] > cfg["pool"]:
        raise BadInput(f"--D={cfg['D']}: the pool holds only {cfg['pool']} problems")
    if cfg["B_p"] > (cfg["D"] or cfg["pool"]):
        raise BadInput(f"--B_p={cfg['B_p']}: the training set holds only {cfg['D'] or cfg['pool']} "
                       "problems")


def main(argv):
    verb = argv[0] if argv and not argv[0].startswith("-") else "both"
    if verb not in ("both", "one", "run", "sweep"):
        raise BadInput(f"{verb}: no such verb; one, run or sweep, or none for one and sweep")
    if not Path("data/bandit/defaults.json").exists():
        raise BadInput("data/bandit/defaults.json: not here; start this in the folder that holds "
                       "data/")
    cfg = parse(["--data=data/bandit", *[word for word in argv if word != verb]], __doc__, TOY)
    out = Path(cfg["out"] or cfg["runs"])
    cells = [cfg] if verb == "run" else [dict(c, out="") for c in sweep.cells(cfg)]
    for c in cells:
        config.check_run(c), check_world(c)
    if verb in ("both", "one"):
        out.mkdir(parents=True, exist_ok=True)
        report_one(one_problem(out, K=cfg["responses"]))
    if verb != "one":
        train_all(cells)
        if verb != "run":
            sweep.save_plan(cfg, own=TOY)
            draw_many(cfg, cells, out / "many.png")
            print(f"{out}/many.png; next: python frontier.py --runs={cfg['runs']} && python "
                  f"fit_sigmoid.py --runs={cfg['runs']}")
    return 0


if __name__ == "__main__":
    entry(main)
