"""Compute one fixed batch with the real loss of TRL's GRPOTrainer and with ours.

    python -m venv trl && trl/bin/pip install -r requirements.txt trl==1.16.0
    trl/bin/python tests/bench/trl_loss.py  # needs data/arithmetic/base (`bash run_sweep.sh easy`)

The batch has three groups of four responses, 1 to 12 tokens long. The old policy and the reference
have other weights than the policy, so that no ratio is 1. TRL prepares the batch itself (in
_generate_and_score_completions: padding, old and reference log-probs, importance weights) and
computes the loss in two micro-batches. For each case the script prints the loss of TRL, the share
of tokens whose ratio is outside the clip range, the relative difference of the two losses, and the
largest difference of the two gradients, relative to the gradient's largest entry.

The definitions of TRL 1.16 and ours agree if
- TRL's loss_type is "dapo" or "cispo", which both take the mean over all tokens of the batch, its
  importance_sampling_level is "token" and its delta is None;
- use_bias_correction_kl=False. By default TRL multiplies the k3 term by the ratio, and the gradient
  flows through this ratio too;
- for cispo, TRL's epsilon_high is our 1 + eps_high, because epsilon_high bounds the ratio itself,
  and our eps_low is 1, because TRL has no lower bound;
- vllm_importance_sampling_mode="token_truncate" (default sequence_mask), and clip_max is our
  tis_cap. The weight min(exp(logp_old - logp_engine), cap) multiplies the policy term only.
  logp_old is by the policy that generated, not by the policy that is updated;
- the advantages are the same numbers. TRL adds 1e-4 to the std and we add 1e-6. The first line
  shows the difference this makes, and then both sides get our advantages.
"""
import copy
import logging
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
os.environ.update(HF_HUB_OFFLINE="1", CUDA_VISIBLE_DEVICES="", TRL_EXPERIMENTAL_SILENCE="1")

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils.logging import disable_progress_bar
from trl import GRPOConfig, GRPOTrainer

from train_grpo import advantages, importance_weights, kl_term, policy_loss, token_logps

BASE, TEMPERATURE, CAP = str(ROOT / "data/arithmetic/base"), 0.6, 1.1


def batch():
    """Return 3 prompts and 12 responses, as lists of ids, and their rewards (3, 4)."""
    g = torch.Generator().manual_seed(0)
    prompts = [torch.randint(2, 52, (k,), generator=g).tolist() for k in (5, 9, 7)]
    responses = [torch.randint(2, 52, (k,), generator=g).tolist()
                 for k in (3, 12, 1, 7, 5, 5, 9, 2, 8, 11, 4, 6)]
    return prompts, responses, torch.tensor([[1, 0, 0, 1], [0, 0, 1, 0], [1, 1, 1, 0]],
                                            dtype=torch.float32)


def weights(model, seed, size):
    """Return the model's weights with noise of `size` times the std of each tensor."""
    g = torch.Generator().manual_seed(seed)
    return {k: v + size * v.std() * torch.randn(v.shape, generator=g)
            for k, v in model.state_dict().items()}


def inputs(prompts, responses):
    """Return the arguments of token_logps after the model: padded ids, two lengths, temperature."""
    rows = [prompts[i // 4] + response for i, response in enumerate(responses)]
    ids = torch.tensor([row + [0] * (max(map(len, rows)) - len(row)) for row in rows])
    prompt_length, length = (torch.tensor([len(x) for x in part]) for part in (prompts, responses))
    return ids, prompt_length.repeat_interleave(4), length, TEMPERATURE


def gradient(model):
    """Return all gradients in one tensor and clear them."""
    g = torch.cat([p.grad.flatten() for p in model.parameters()])
    model.zero_grad()
    return g


def ours(model, old, new, engine, algo, eps_low, eps_high, beta, tis):
    """Return loss, gradient and the share of ratios outside the clip range."""
    prompts, responses, rewards = batch()
    args = inputs(prompts, responses)
    with torch.no_grad():
        logp_ref = token_logps(model, *args)[0]
        model.load_state_dict(old)
        logp_old = token_logps(model, *args)[0]
    model.load_state_dict(new)
    logp = token_logps(model, *args)[0]
    weight = importance_weights(logp_old, torch.tensor(sum(engine, [])), CAP if tis else 0)
    A = advantages(rewards).flatten().repeat_interleave(args[2])
    loss = policy_loss(algo, logp, logp_old, weight, A, eps_low, eps_high)
    loss = (loss + beta * kl_term("k3", logp, logp_ref)).sum() / len(logp)
    loss.backward()
    ratio = (logp - logp_old).exp()
    outside = (ratio < 1 - eps_low) | (ratio > 1 + eps_high)
    return loss.item(), gradient(model), outside.float().mean().item()


def theirs(model, old, new, engine, tis, **settings):
    """Return loss, gradient and TRL's advantages."""
    prompts, responses, rewards = batch()
    tokenizer = AutoTokenizer.from_pretrained(BASE, padding_side="left")

    # instead of generating, return the given responses. If log-probs are None, weights are 1
    def rollout(texts, trainer):
        return dict(prompt_ids=[p for p in prompts for _ in range(4)], completion_ids=responses,
                    logprobs=engine if tis else [[None] * len(r) for r in responses])

    with tempfile.TemporaryDirectory() as folder:
        args = GRPOConfig(output_dir=folder, num_generations=4, per_device_train_batch_size=6,
                          gradient_accumulation_steps=2, max_completion_length=12,
                          temperature=TEMPERATURE, use_cpu=True, bf16=False, report_to="none",
                          gradient_checkpointing=False,
                          vllm_importance_sampling_mode="token_truncate",
                          vllm_importance_sampling_clip_max=CAP, **settings)
        trainer = GRPOTrainer(
            model, reward_funcs=lambda **_: rewards.flatten().tolist(), args=args,
            rollout_func=rollout, processing_class=tokenizer,
            train_dataset=Dataset.from_list([dict(prompt=f"{j}") for j in range(3)]))
    # with use_vllm, TRL computes old log-probs and importance weights for the given rollouts
    trainer.use_vllm, trainer._last_loaded_step = True, 0
    trainer.current_gradient_accumulation_steps = 2
    model.load_state_dict(old)
    model.train()
    made = trainer._generate_and_score_completions([dict(prompt=f"{j}") for j in range(3)
                                                    for _ in range(4)])
    model.load_state_dict(new)
    A, made["advantages"] = made["advantages"], advantages(rewards).flatten()
    total = 0.0
    for half in (slice(0, 6), slice(6, 12)):
        loss = trainer.compute_loss(model, {k: v[half] if v.dim() else v for k, v in made.items()})
        loss.backward()
        total += loss.item()
    return total, gradient(model), A


def main():
    logging.disable(logging.WARNING)
    disable_progress_bar()
    base = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32)
    old, new, other = (weights(base, seed, size)
                        for seed, size in ((1, 0.03), (2, 0.03), (3, 0.02)))
    prompts, responses, rewards = batch()
    # the engine's log-probs come from weights that differ a little from those of the old policy
    engine_model = copy.deepcopy(base)
    engine_model.load_state_dict({k: old[k] + other[k] - v for k, v in base.state_dict().items()})
    with torch.no_grad():
        logp = token_logps(engine_model, *inputs(prompts, responses))[0]
    engine = [x.tolist() for x in logp.split([len(r) for r in responses])]

    grpo, dapo = dict(algo="grpo", eps_low=0.2, eps_high=0.2), dict(loss_type="dapo", epsilon=0.2)
    cispo = dict(algo="cispo", eps_low=1.0, eps_high=0.2)
    theirs_cispo = dict(loss_type="cispo", epsilon_high=1.2)
    cases = {"grpo 0.2/0.2, beta 0": (grpo, dapo),
             "grpo 0.2/0.28, beta 0": (dict(grpo, eps_high=0.28), dict(dapo, epsilon_high=0.28)),
             "grpo 0.2/0.2, beta 0.1, k3": (
                 dict(grpo, beta=0.1), dict(dapo, beta=0.1, use_bias_correction_kl=False)),
             "grpo 0.2/0.2, importance weights": (dict(grpo, tis=True), dapo),
             "cispo, ratio at most 1.2": (cispo, theirs_cispo),
             "cispo at most 1.2, importance weights": (dict(cispo, tis=True), theirs_cispo),
             # in the next two cases the definitions differ
             "differs: use_bias_correction_kl=True": (dict(grpo, beta=0.1), dict(dapo, beta=0.1)),
             "differs: our cispo with eps_low 0.2": (dict(cispo, eps_low=0.2), theirs_cispo)}
    print(f"{'case':44s} {'loss':>10s} {'outside':>8s} {'d loss':>9s} {'d grad':>9s}")
    for name, (us, them) in cases.items():
        us, them = dict(dict(beta=0.0, tis=False), **us), dict(dict(beta=0.0), **them)
        a, g, outside = ours(copy.deepcopy(base), old, new, engine, **us)
        b, h, A = theirs(copy.deepcopy(base), old, new, engine, us["tis"], **them)
        if name == next(iter(cases)):
            mine = advantages(rewards).flatten()
            print(f"{'advantages':44s} {((A - mine).abs() / mine.abs()).max():29.1e}")
        print(f"{name:44s} {b:10.6f} {outside:8.2f} {abs(a - b) / abs(b):9.1e} "
              f"{(g - h).abs().max() / h.abs().max():9.1e}")


if __name__ == "__main__":
    if "--help" in sys.argv:
        sys.exit(print(__doc__))
    main()
