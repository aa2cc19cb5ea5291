"""Make one update of every objective on the ranks of torchrun and save how the weights changed.

    torchrun --nproc_per_node=2 -- tests/ranks.py MODEL_FOLDER BATCH.json OUT.safetensors

tests/test_ranks.py starts it.
"""
import copy
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from core import engine, packing
import train_grpo
from config import parse
from train_grpo import RANK, WORLD

# the policy term only, so a rank whose groups all have equal rewards has nothing to do
CASES = dict(hard=["--recipe=hard"],
             # only two rollouts of one problem have an advantage, too few for four ranks
             few=["--recipe=hard", "--n_train=2"],
             grpo=["--kl_coef=0.3", "--entropy_coef=0.2", "--zero_var_filter=policy",
                   "--updates=2"], n_train=["--n_train=2", "--kl_coef=0.1"],
             cispo=["--algo=cispo", "--updates=2", "--micro_logits=200",
                    "--activation_checkpointing=true"],
             ppo=["--algo=ppo", "--kl_coef=0.1", "--updates=2"],
             # several ranks pack their rows; one rank pads them
             packed=["--algo=ppo", "--kl_coef=0.1", "--activation_checkpointing=true"])


def flat_weights(model):
    """Return all weights of a model, which may be sharded, as one vector."""
    return torch.cat([weight.flatten() for _, weight in train_grpo.full_weights(model)])


def main(folder, batch, out):
    device = train_grpo.models.start_ranks("cpu")
    whole = json.loads(Path(batch).read_text())
    mine = range(RANK, len(whole["prompts"]), WORLD)
    n = len(whole["rewards"][0])
    rows = torch.tensor([j * n + i for j in mine for i in range(n)])
    rollouts = {key: torch.tensor(value)[rows] for key, value in whole["rollouts"].items()}
    part_of_rank = dict(prompts=[whole["prompts"][j] for j in mine],
        rewards=torch.tensor(whole["rewards"])[list(mine)], rollouts=rollouts, step=1)
    saved = {}
    for name, words in CASES.items():
        # micro_tokens is so small that one rank has more micro-batches than another
        cfg = parse([*words, f"--n={n}", f"--B_p={len(whole['prompts'])}", "--grad_clip=0.5",
                     "--micro_tokens=40", "--gamma=0.9", "--lam=0.9"])
        model, _ = engine.load_model(folder, "cpu")
        ref = copy.deepcopy(model).requires_grad_(False) if cfg["kl_coef"] else None
        critic = train_grpo.models.load_critic(folder, "cpu") if cfg["algo"] == "ppo" else None
        with torch.no_grad():
            for p in model.parameters():  # differ from the reference
                p *= 1.02
        if name == "packed" and WORLD > 1:
            packing.why_padded = lambda *_: ""
        learner = train_grpo.build_learner(model, ref, critic, cfg, device, folder)
        learner.opt, learner.critic_opt = [m and torch.optim.SGD(m.parameters(), lr=lr)
                                           for m, lr in ((model, 0.5), (critic, 0.1))]
        trained = dict(policy=model) | (dict(critic=critic) if critic else {})
        before = {part: flat_weights(m) for part, m in trained.items()}
        signal = torch.tensor(mine)[:, None] == 0 if name == "few" else True
        fields = train_grpo.update(learner, part_of_rank | dict(
            rewards=part_of_rank["rewards"] * signal), cfg)
        saved |= {f"{name}.{part}": flat_weights(m) - before[part] for part, m in trained.items()}
        saved[f"{name}.fields"] = torch.tensor([fields[key] for key in sorted(fields)
                                                if fields[key] is not None], dtype=torch.float64)
    if RANK == 0:
        save_file(saved, out)


if __name__ == "__main__":
    main(*sys.argv[1:])
