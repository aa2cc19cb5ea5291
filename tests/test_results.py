"""results/: replicas.py equals the trainer, and claims.py judges planted logs."""
import json
import random
import sys

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import config
import train_grpo
import verifier
from conftest import ROOT
sys.path.insert(0, str(ROOT / "results"))
import replicas

MODEL = ROOT / "data/arithmetic/one_layer"
SUMS = [(2306, 1751), (910, 257), (10, 24), (17, 25), (8, 31), (712, 154), (1290, 505), (29, 63)]
UPDATES = dict(both="--kl_coef=0.1 --entropy_coef=0.05",
               filtered="--kl_coef=0.3 --kl_type=k2 --zero_var_filter=all --lr_scaling=constant",
               policy="--kl_coef=0.1 --entropy_coef=0.05 --zero_var_filter=policy",
               n_train="--kl_coef=0 --entropy_coef=0.1 --n_train=3 --lr_scaling=linear")


@pytest.fixture(scope="module")
def problems(tmp_path_factory):
    """Return a problem file of eight sums."""
    path = tmp_path_factory.mktemp("problems") / "sums.jsonl"
    lines = [dict(id=f"s{i}", prompt=f"{a}+{b}=", answer=str(a + b))
             for i, (a, b) in enumerate(SUMS)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def cell_of(problems, words="", seeds=(0, 1), lrs=(0.05,)):
    """Return two replicas of a small cell on a CPU."""
    cfg = config.parse([f"--model={MODEL}", f"--train_set={problems}", f"--val_set={problems}",
                        "--D=0", "--B_p=4", "--n=6", "--C=96", "--warmup=0", *words.split()], "",
                       replicas.OWN)
    torch.manual_seed(0)
    return replicas.Replicas(cfg, seeds, lrs, "cpu")


def flat_weights(model):
    """Return the weights of a transformers model in the order of a replica's row."""
    w = model.state_dict()
    layers = [torch.cat([w[f"model.layers.{i}.{x}.weight"] for x in name.split("+")])
              for i in range(model.config.num_hidden_layers) for name in replicas.LAYER]
    parts = [w["model.embed_tokens.weight"], w["model.norm.weight"], *layers]
    return torch.cat([x.flatten() for x in parts])


@pytest.mark.parametrize("name", UPDATES)
def test_an_update_equals_the_trainers(problems, name):
    """After one update on the same rollouts, weights and logged numbers are equal."""
    cell = cell_of(problems, UPDATES[name])
    cfg, n = cell.cfg, cell.cfg["n"]
    pick = cell.order[0]
    tokens, length, reward = cell.rollouts(cell.train, pick, n)
    assert reward.view(2, 4, n).std(2).gt(0).any() and reward.view(2, 4, n).std(2).eq(0).any()
    # the trainer draws the n_train rollouts of problem j; replicas take the first ones
    chosen = [random.Random(f"n_train {cfg['seed']} 1 {j}").sample(range(n), cfg["n_train"] or n)
              for j in range(4)]
    order = [j * n + i for j, some in enumerate(chosen)
             for i in (*some, *(i for i in range(n) if i not in some))]
    cell.learn(pick, tokens[:, order], length[:, order], reward[:, order])
    for s in range(2):
        model, ref = (AutoModelForCausalLM.from_pretrained(MODEL) for _ in range(2))
        opt = torch.optim.AdamW(model.parameters(), lr=float(cell.lr[s]), betas=(0.9, 0.999),
                                weight_decay=cfg["weight_decay"])
        prompts = [cell.train["ids"][j, :cell.train["plen"][j]].tolist() for j in pick[s]]
        rollouts = dict(tokens=tokens[s], length=length[s], logps=torch.zeros(tokens[s].shape))
        fields = train_grpo.update(
            train_grpo.Learner(model, opt, ref if cfg["kl_coef"] else None),
            dict(step=1, prompts=prompts, rollouts=rollouts, rewards=reward[s].view(4, n)),
            dict(cfg, tis_cap=0.0))
        moved = (flat_weights(model) - cell.model.base).norm()
        gap = (flat_weights(model) - cell.theta[s]).norm()
        # the first step of AdamW divides each gradient by its size, also the smallest ones
        assert moved > 1e-3 and gap < 1e-3 * moved, (gap, moved)
        assert fields["grad_norm"] == pytest.approx(float(cell.stats[2, s]), rel=1e-4)


def test_tokens_and_grades_are_those_of_the_trainer(problems):
    """The tokenizer is the model's, and hashes grade as verifier.exact does."""
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    cell = cell_of(problems)
    data = cell.train
    for p, ids, size in zip(data["problems"], data["ids"], data["plen"]):
        assert ids[:size].tolist() == tokenizer(p["prompt"])["input_ids"]
    tokens, length, reward = cell.rollouts(data, torch.arange(8).expand(2, 8), 20)
    texts = [tokenizer.decode(t[:k], skip_special_tokens=True)
             for t, k in zip(tokens.flatten(0, 1), length.flatten())]
    expected = [verifier.exact(data["problems"][i // 20 % 8], text, {})
                for i, text in enumerate(texts)]
    assert reward.flatten().tolist() == expected and 0.1 < sum(expected) / len(expected) < 0.99
