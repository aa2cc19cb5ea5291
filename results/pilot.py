"""pilot.py: what a base model says about its gradient before any training: noise within and between problems.

    python results/pilot.py --recipe=easy                     # the embedded model on its Easy problems: a minute
    python results/pilot.py --recipe=easy --model=data/arithmetic/narrow --D=200 --seed=1

The gradient is that of the reward, (r - mean) log pi, not divided by the group's std as GRPO divides it. For each training problem two
halves of rollouts are drawn and the gradient of (r - mean of the other half) log pi, a mean over the rollouts of a half, is taken. Half
the squared distance of the halves is the noise within a problem, the scatter of problems less that the signal between them.
n_c = within / between, per rollout: with fewer rollouts of a problem than n_c the rollouts' own noise is the larger part, with more the choice
of problems is. Prints one line of JSON; with `all --runs=runs/atlas` it measures what every arm of the studies started from, into
results/atlas/pilot.json, which atlas.py reads. Needs config.py, sample.py, train_grpo.py and torch.
"""
import json
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import sample
import train_grpo
from config import entry, parse, read_log, save_json

HALF, PROBLEMS = 32, 100  # rollouts in a half; problems looked at, the first of the run's training problems


def gradients(model, ids, prompt_length, length, weights, temperature):
    """(2, N): the gradient of the weighted log-probs of a problem's two halves; ids (R, L), weights (R,)."""
    import torch
    out = []
    for half in torch.arange(len(ids)).chunk(2):
        model.zero_grad()
        logps, _ = train_grpo.token_logps(model, ids[half], prompt_length[half], length[half], temperature)
        row = torch.repeat_interleave(torch.arange(len(half)), length[half])
        (logps * weights[half][row]).sum().div(len(half)).backward()
        out.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    return torch.stack(out)


def noise_levels(model, tokenizer, problems, prompts, engine, cfg):
    """dict(p, mixed, within, between, n_c): pass rates of the problems, share of mixed groups of n = 4, 16, 64, and the gradient's variances."""
    import torch
    rollouts = engine.generate(prompts, 2 * HALF, [sample.rollout_seed(cfg["seed"], "pilot", 0, j) for j in range(len(prompts))])
    rewards, _ = sample.grade(problems, rollouts, tokenizer, cfg)  # (P, 2 HALF)
    length = rollouts["length"].reshape(len(prompts), -1)
    tokens = rollouts["tokens"].reshape(*length.shape, -1)
    means, within = [], []
    for j, prompt in enumerate(prompts):
        ids = torch.cat([torch.tensor(prompt).repeat(2 * HALF, 1), tokens[j]], 1)
        other = torch.cat([rewards[j, HALF:].mean().repeat(HALF), rewards[j, :HALF].mean().repeat(HALF)])
        g = gradients(model, ids, torch.full((2 * HALF,), len(prompt)), length[j], rewards[j] - other, cfg["temperature"])
        means.append(g.mean(0)), within.append((g[0] - g[1]).pow(2).sum().item() * HALF / 2)
    within = sum(within) / len(within)  # per rollout
    means = torch.stack(means)
    between = (means - means.mean(0)).pow(2).sum().item() / (len(means) - 1) - within / (2 * HALF)
    p = rewards.mean(1)
    mixed = {n: (1 - p ** n - (1 - p) ** n).mean().item() for n in (4, 16, 64)}
    return dict(p=p.mean().item(), zero=(p < 1 / 32).float().mean().item(), mixed=mixed, within=within, between=between,
                n_c=within / between if between > 0 else None)


def measure(cfg):
    """`noise_levels` of a run's base model on its training problems, with what tells which these are."""
    import torch
    torch.set_num_threads(1)
    problems = sample.subset(sample.read_problems(cfg["train_set"]), cfg["D"], cfg["seed"])[:PROBLEMS]
    model, tokenizer = sample.load_model(cfg["model"], cfg["device"])
    prompts = sample.encode(problems, tokenizer, cfg["max_prompt_tokens"])
    engine = sample.open_engine("hf", cfg["model"], cfg, model.device, model, tokenizer)
    return {key: cfg[key] for key in ("model", "train_set", "D", "seed")} | noise_levels(model, tokenizer, problems, prompts, engine, cfg)


def main(argv):
    every = argv[:1] == ["all"]
    cfg = parse(argv[every:], __doc__)
    if not every:
        print(json.dumps(measure(cfg)))
        return
    out, found, seen = Path(__file__).resolve().parent / "atlas/pilot.json", {}, {}
    for folder in sorted(p for p in Path(cfg["runs"]).iterdir() if p.name[0] != "." and any(p.glob("*/log.jsonl"))):
        headers = [r for path in sorted(folder.glob("*/log.jsonl")) for r in read_log(path)[:1] if r.get("type") == "header"]
        if not headers:
            continue
        own = headers[0]["config"] | dict(seed=0)
        key = own["model"], own["train_set"], own["D"], own["temperature"]
        seen[key] = found[folder.name] = seen.get(key) or measure(own)
        print(f"{folder.name}: n_c {found[folder.name]['n_c']}")
    save_json(out, found)


if __name__ == "__main__":
    entry(main)
