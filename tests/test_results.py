"""results/: replicas.py equals the trainer, and claims.py judges planted logs."""
import random
import sys
import tarfile

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import config
import train_grpo
import verifier
from conftest import ROOT, write_jsonl
sys.path.insert(0, str(ROOT / "results"))
import claims
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
    return write_jsonl(tmp_path_factory.mktemp("problems") / "sums.jsonl", [
        dict(id=f"s{i}", prompt=f"{a}+{b}=", answer=str(a + b)) for i, (a, b) in enumerate(SUMS)])


def cell_of(problems, words="", seeds=(0, 1), lrs=(0.05,)):
    """Return two replicas of a small cell on a CPU."""
    cfg = config.parse([f"--model={MODEL}", f"--train_set={problems}", f"--val_set={problems}",
                        "--D=0", "--B_p=4", "--n=6", "--C=96", "--warmup=0", *words.split()])
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
        fields = train_grpo.update(train_grpo.Learner(model, opt, ref if cfg["kl_coef"] else None),
            dict(step=1, prompts=prompts, rollouts=rollouts, rewards=reward[s].view(4, n)),
            dict(cfg, tis_cap=0.0))
        moved = (flat_weights(model) - cell.model.base).norm()
        gap = (flat_weights(model) - cell.theta[s]).norm()
        # the first step of AdamW divides each gradient by its size, also the smallest ones
        assert moved > 1e-3 and gap < 4e-3 * moved, (gap, moved)
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


def plant(folder, study, rewards, seeds=8, problems=120):
    """Write logs in which n = 4 and 16 have these rewards [early, late], and base reward 0.2."""
    rng = np.random.default_rng(0)
    for (n, lr), (early, late) in rewards.items():
        for seed in range(seeds):
            cfg = dict(B_p=4, n=n, lr_base=lr, seed=seed)
            lines = [dict(type="header", config=cfg)]
            for C, p in ((0, 0.2), (1200, early), (9600, late), (16000, late)):
                lines.append(dict(type="eval", set="val", rollouts=C, samples=4,
                                  correct=rng.binomial(4, p, problems).tolist()))
            write_jsonl(folder / study / f"{n}_{lr}_{seed}" / "log.jsonl", lines)


@pytest.mark.parametrize("late, middle, says, verdict", [
    (0.7, 0.7, "larger", "confirmed"), (0.5, 0.5, "larger", "contradicted"),
    (0.61, 0.61, "larger", "underpowered"), (0.7, 0.5, "larger", "underpowered")])
def test_a_claim_on_planted_logs(tmp_path, late, middle, says, verdict):
    """n = 4 ends at 0.6. The lr of n = 16 is tuned if its best is between two others."""
    other = {(4, 1e-4): (0.5, 0.5), (4, 2e-4): (0.5, 0.6), (4, 4e-4): (0.5, 0.5)}
    edge = {(16, 1e-4): (0.3, 0.4), (16, 2e-4): (0.3, middle), (16, 4e-4): (0.3, 0.4)}
    if middle != late:  # n = 4 ends below n = 16, but its best lr is the largest
        other |= {(4, 4e-4): (0.5, 0.66)}
        edge |= {(16, 2e-4): (0.3, late)}
    plant(tmp_path, "world", other | edge)
    with tarfile.open(tmp_path / "logs.tar.xz", "w:xz") as tar:
        tar.add(tmp_path / "world", "world")
    runs = claims.read_archives([tmp_path / "logs.tar.xz"])
    assert len(runs) == 48
    part = dict(name="16 minus 4", a=dict(n=16), b=dict(n=4), says=says)
    row = claims.judge_row(runs, dict(row="Figure 0", claim="", parts=[part]))
    assert row["verdict"] == verdict, row
    rise = claims.judge_row(runs, dict(row="", claim="", rise=dict(where={})))
    assert rise["verdict"] == verdict, rise


def test_the_page_has_the_rows_of_today(tmp_path, monkeypatch):
    """results/README.md is what `python results/claims.py` writes."""
    page = (ROOT / "results/README.md").read_text()
    written = tmp_path / "README.md"
    written.write_text(page)
    monkeypatch.setattr(claims, "PAGE", written)
    claims.main([])
    with pytest.raises(config.BadInput, match="nosuch"):
        claims.main(["nosuch"])
    assert written.read_text() == page
