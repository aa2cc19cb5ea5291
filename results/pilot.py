"""results/pilot.py: the n that a base model asks for, before any training, by its gradient noise.

    python results/pilot.py --recipe=easy        # the embedded model on its Easy problems: a minute
    python results/pilot.py --recipe=easy --model=data/arithmetic/narrow --D=200 --seed=1

The gradient is that of the reward, (r - mean) grad log pi, not divided by the group's std as GRPO
divides it. For each training problem two halves of rollouts are drawn, and each half's gradient
taken against the mean reward of the other. `within` is the variance of one rollout about its
problem, `between` that of problems about their mean, both summed over the parameters; n_c = within
/ between, and b is `between` over the square of the mean gradient.

What they are for. Against the mean reward of the rest of its group, a problem's gradient g from n
rollouts has the variance within / (n - 1) + 2 |g|^2 / (n (n - 1)): a U-statistic, with scores taken
as long whatever the reward. So the noise of an update over B_p problems about the mean gradient G
is [between + (within n + 2 between) / (n (n - 1))] / B_p, if |G|^2 is small beside `between`. Where
noise limits training, rollouts for one progress are in proportion to

    B_p n (noise + |G|^2)  ~  n (1 + B_p / b) + (n_c n + 2) / (n - 1)  =  price(n),

and to its root where the length of AdamW's steps limits it: a step goes lr G / sqrt(noise + |G|^2),
and lr with the root of B_p n. Both are least at n = 1 + sqrt((n_c + 2) / (1 + B_p / b)), and B_p
does not matter while it is far below b. `n` in the output is this for B_p = 0.

What this leaves out: GRPO's division by the group's std, which weighs problems anew, most where
hardly any is right; epochs without replacement, in which the part between problems cancels; KL,
entropy and clipping; and that n_c drifts. results/README.md has what sweeps took.

Prints one line of JSON; with `all --runs=runs/atlas` it measures what every arm of the studies
started from, into pilot.json there, which price.py reads. --model=runs/.../model --train_set=...
measures a trained model. On a GPU the rollouts are vLLM's; weights and gradients are fp32, 8 bytes
a parameter. Needs config.py, core/engine.py, core/models.py, core/problems.py, verifier.py,
train_grpo.py and torch.
"""
import json
import math
import os
import sys
from pathlib import Path

import numpy as np
from tqdm import tqdm

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from core import engine, models
from core.problems import encode, read_problems, subset
import verifier
import train_grpo
from config import BadInput, entry, parse, read_json, read_log, save_json

HALF = 32         # rollouts in a half
PROBLEMS = 100    # problems looked at, the first of the run's training problems
SKETCH = 2 ** 21  # entries of a gradient that are kept as they are


def flat(model):
    """(N,): the model's gradient; of more than SKETCH entries a sketch, (SKETCH,).

    A sketch lays pieces of the gradient over each other, each turned by a random number of entries
    and with random signs, the same for all gradients: lengths and angles are on average as before.
    """
    import torch
    grads = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    if sum(g.numel() for g in grads) <= SKETCH:
        return torch.cat(grads)
    device = grads[0].device
    out, draw = torch.zeros(SKETCH, device=device), torch.Generator(device).manual_seed(0)
    for piece in (piece for g in grads for piece in g.split(SKETCH)):
        signs = torch.randint(2, piece.shape, generator=draw, device=device) * 2 - 1
        start = int(torch.randint(SKETCH, (), generator=draw, device=device))
        out += torch.nn.functional.pad(piece * signs, (0, SKETCH - len(piece))).roll(start)
    return out


def gradients(model, ids, prompt_length, length, weights, cfg):
    """(2, N): the gradients of the weighted log-probs of a problem's two halves of rollouts.

    ids (R, L), prompt_length, length and weights (R,). micro_tokens bounds the memory.
    """
    import torch
    out = []
    for half in torch.arange(len(ids), device=ids.device).chunk(2):
        model.zero_grad()
        for rows in half.split(max(1, cfg["micro_tokens"] // ids.shape[1])):
            logps, _ = train_grpo.token_logps(model, ids[rows], prompt_length[rows], length[rows],
                                              cfg["temperature"], cfg["micro_logits"],
                                              torch.zeros_like(rows))  # one prompt, run once
            weighted = logps * torch.repeat_interleave(weights[rows], length[rows])
            weighted.sum().div(len(half)).backward()
        out.append(flat(model).cpu())
    return torch.stack(out)


def noise_ratio(g, half):
    """g (P, 2, N), two mean gradients of `half` rollouts for each problem -> dict, as on top.

    within, between, n_c, n_c_interval, n, b, b_interval. Intervals: 90% over problems, by the
    jackknife of the logarithm; of 100 problems whose gradients differ e-fold in length n_c is
    covered in 87%, b in 79% of cases, of like ones in 90%. n_c and what follows are None where
    problems do not differ, b and its interval where the mean gradient may be 0.
    """
    noise = ((g[:, 0] - g[:, 1]) ** 2).sum(1).double().numpy() * half / 2  # (P,) of one rollout
    means = g.mean(1)
    gram = (means @ means.T).double().numpy()  # (P, P)

    def levels(keep):  # within, between, and the squared mean gradient, of some of the problems
        G, P = gram[np.ix_(keep, keep)], len(keep)
        squared = (G.sum() - np.trace(G)) / (P * (P - 1))  # of two problems, so without their noise
        # the other half's mean as the baseline adds 1 / half to the noise, and the noise of their
        # rollouts to how problems differ
        within = noise[keep].mean() / (1 + 1 / half)
        return within, np.trace(G) / P - squared - noise[keep].mean() / (2 * half), squared
    every = np.arange(len(g))
    now, left = levels(every), np.array([levels(every[every != j]) for j in every])  # left (P, 3)

    def ratio(i, j):
        """(value, interval) of level i over level j."""
        if min(left[:, [i, j]].min(), now[0]) <= 0:
            return None, None
        value = now[i] / now[j]
        spread = 1.645 * math.sqrt((len(g) - 1) * np.log(left[:, i] / left[:, j]).var())
        return value, [value * math.exp(-spread), value * math.exp(spread)]
    (n_c, of_n_c), (b, of_b) = ratio(0, 1), ratio(1, 2)
    return dict(within=now[0], between=now[1], n_c=n_c, n_c_interval=of_n_c,
                n=n_c and 1 + math.sqrt(n_c + 2), b=b, b_interval=of_b)


def measure(cfg):
    """The noise of a model's gradients on its training problems: `noise_ratio`, and of what.

    That is model, train_set, D and seed, and p, the mean pass rate. Raises BadInput.
    """
    import torch
    torch.set_num_threads(1)
    problems = subset(read_problems(cfg["train_set"]), cfg["D"], cfg["seed"])
    problems = problems[:PROBLEMS]
    if len(problems) < 3:
        raise BadInput(f"{cfg['train_set']}: {len(problems)} problems (--D={cfg['D']}) "
                       "have no scatter to speak of")
    tokenizer = models.load_tokenizer(cfg["model"])
    seeds = [engine.rollout_seed(cfg["seed"], "pilot", 0, j) for j in range(len(problems))]
    prompts = encode(problems, tokenizer, cfg["max_prompt_tokens"])
    generator = engine.open_engine(engine.engine_name(cfg), cfg["model"], cfg, cfg["device"])
    rollouts = generator.generate(prompts, 2 * HALF, seeds)
    del generator  # it may fill the GPU
    rewards, _ = verifier.grade(problems, rollouts, tokenizer, cfg)  # (P, 2 HALF)

    model = models.load_model(cfg["model"], cfg["device"])[0]
    length = rollouts["length"].reshape(len(prompts), -1)  # (P, 2 HALF)
    tokens = rollouts["tokens"].reshape(*length.shape, -1)  # (P, 2 HALF, L)
    halves = []
    for j, prompt in enumerate(tqdm(prompts, desc="gradients", unit="problem", disable=None)):
        repeated = torch.tensor(prompt).repeat(2 * HALF, 1)
        ids = torch.cat([repeated, tokens[j, :, :length[j].max()]], 1)
        # each half's baseline is the mean of the other, so that the halves err independently
        first, second = rewards[j, :HALF], rewards[j, HALF:]
        weights = torch.cat([first - second.mean(), second - first.mean()])
        of_prompt = torch.full((2 * HALF,), len(prompt))
        on_device = [x.to(model.device) for x in (ids, of_prompt, length[j], weights)]
        halves.append(gradients(model, *on_device, cfg))
    which = {key: cfg[key] for key in ("model", "train_set", "D", "seed")}
    return which | dict(p=rewards.mean().item()) | noise_ratio(torch.stack(halves), HALF)


def measure_all(folder):
    """What every arm of the studies in a folder started from, into its pilot.json: of several with
    one base model and problems, and of those that the file has, no second measurement."""
    if not folder.is_dir():
        raise BadInput(f"--runs={folder}: no such folder")
    out = folder / "pilot.json"
    found = read_json(out) if out.exists() else {}
    for path in sorted(folder.glob("[!.]*/*/log.jsonl*")):
        arm, log = path.parent.parent.name, read_log(path)
        if arm in found or not log:
            continue
        own = log[0]["config"] | dict(seed=0)
        alike = [old for old in found.values()
                 if all(old[key] == own[key] for key in ("model", "train_set", "D"))]
        found[arm] = alike[0] if alike else measure(own)
        print(f"{arm}: n_c {found[arm]['n_c']}, n {found[arm]['n']}")
        save_json(out, found)


def main(argv):
    if argv[:1] == ["all"]:
        measure_all(Path(parse(argv[1:], __doc__)["runs"]))
    else:
        cfg = parse(argv, __doc__)
        print(json.dumps(measure(cfg)))


if __name__ == "__main__":
    entry(main)
