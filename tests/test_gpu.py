"""Test on a GPU: both engines in bf16, the memory of the head, a run, the check before a sweep.

If there are two GPUs, also test an engine that two ranks share. Without a GPU, all are skipped.
"""
import copy
import gc
import sys

import pytest
import torch
from conftest import ROOT, capture

from core import engine, packing
from core.problems import encode
import sample
import verifier
import train_grpo
from config import parse
from core.log import read_log

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


@pytest.fixture(autouse=True)
def given_back():
    """Free the GPU memory of a test, because the next test may start a process on the GPU."""
    yield
    gc.collect()
    torch.cuda.empty_cache()


def test_vllm_sleeps_and_wakes_with_the_same_tokens(world):
    """After sleep and load, the same weights give the same tokens, and other weights do not. While
    vLLM sleeps, its memory is free for an update. If two tokens have the same probability in bf16,
    either may be sampled, so only 99% of the tokens must be the same."""
    cfg = parse([f"--model={world.base}", "--engine=vllm", "--gpu_memory=0.3"])
    model, tokenizer = engine.load_model(world.base, "cuda")
    problems = sample.read_problems(world.splits / "easy_val.jsonl")[:64]
    prompts, seeds = encode("set", problems, tokenizer, 16), list(range(0, 6400, 100))
    made = engine.open_engine("vllm", str(world.base), cfg, "cuda", model, tokenizer)

    def weights(factor=1.0):
        return ((name, factor * p.detach()) for name, p in model.named_parameters())

    def shares_tokens(one, two):
        T = min(one["tokens"].shape[1], two["tokens"].shape[1])
        return (one["tokens"][:, :T] == two["tokens"][:, :T]).float().mean().item()
    made.load(weights())
    first = made.generate(prompts, 8, seeds)
    for factor, low, high in ((1.0, 0.99, 1.0), (1.3, 0.0, 0.9), (1.0, 0.99, 1.0)):
        free = torch.cuda.mem_get_info()[0]
        made.sleep()
        given = torch.cuda.mem_get_info()[0] - free
        assert given > 0.2 * torch.cuda.get_device_properties(0).total_memory
        made.load(weights(factor))
        assert low <= shares_tokens(first, made.generate(prompts, 8, seeds)) <= high, factor


def test_bf16_log_probs_of_trainer_and_engine(world):
    """They are close on average, and close to fp32 on the CPU, as are gradients, with padded rows
    and with the kernel of packed rows. Trainer and engine compute in bf16, in another order."""
    cfg = parse([f"--model={world.base}", "--engine=hf"])
    model, tokenizer = engine.load_model(world.base, "cuda")
    problems = sample.read_problems(world.splits / "easy_val.jsonl")[:16]
    prompts = encode("set", problems, tokenizer, 16)
    hf = engine.open_engine("hf", world.base, cfg, "cuda", model, tokenizer)
    assert hf.model is not model and next(hf.model.parameters()).dtype == torch.bfloat16
    assert all(buffer.dtype == torch.float32
               for name, buffer in hf.model.named_buffers() if "inv_freq" in name)
    out = hf.generate(prompts, 8, list(range(16)))
    rewards, _ = verifier.grade(problems, out, tokenizer, cfg)
    batch = dict(prompts=prompts, rollouts=out, rewards=rewards, step=1)

    def log_probs(model):
        parts, _ = train_grpo.update_parts(model, batch, dict(cfg, n=8, kl_coef=1.0))
        pairs = [(train_grpo.run_part(train_grpo.token_logps, model, part, cfg)[0],
                  part.logp_engine) for part in parts]
        logp, sampled = [torch.cat(column).cpu() for column in zip(*pairs)]
        grad = torch.autograd.grad(logp.square().mean(), list(model.parameters()))
        return logp.detach(), sampled, torch.cat([g.flatten().cpu() for g in grad])
    for path in ("padded", "packed"):
        if path == "packed":
            assert not packing.why_padded(model, "cuda", bf16=True)
            packing.pack(model)
        logp, sampled, grad = log_probs(model)
        exact, _, exact_grad = log_probs(copy.deepcopy(model).cpu())
        assert (logp - sampled).abs().mean() < 0.03, path
        assert (logp - exact).abs().mean() < 0.03, path
        assert (grad - exact_grad).norm() < 0.1 * exact_grad.norm(), path


def test_chunks_of_the_head_save_memory():
    from transformers import LlamaConfig, LlamaForCausalLM
    with torch.device("cuda"):
        model = LlamaForCausalLM(LlamaConfig(vocab_size=100_000, hidden_size=64,
                                             intermediate_size=64, num_hidden_layers=1,
                                             num_attention_heads=2, num_key_value_heads=2))
    ids = torch.randint(2, 1000, (4, 1025), device="cuda")
    length = torch.full((4,), 1024, device="cuda")

    def peak(micro_logits):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        logp, entropy = train_grpo.token_logps(model, ids, torch.ones_like(length), length,
                                               parse([f"--micro_logits={micro_logits}"]))
        (logp.mean() + entropy.mean()).backward()
        model.zero_grad()
        return torch.cuda.max_memory_allocated() - before
    assert peak(2 ** 24) < 0.3 * peak(10 ** 15)


@pytest.mark.parametrize("name, share", [("hf", 0.3), ("vllm", 0.3), ("vllm", 0.95)])
def test_a_run(world, script, tmp_path, name, share):
    """Make five updates with the engine in bf16. With stale weights tis_mean would be large. With
    0.95 of the memory, vLLM sleeps during updates."""
    script("train_grpo.py", f"--engine={name}", "--device=cuda", "--B_p=8", "--n=8", "--C=320",
           "--lr_base=2e-3", "--warmup=0", f"--gpu_memory={share}", f"--out={tmp_path}", check=True)
    log = read_log(tmp_path / "log.jsonl")
    steps = [r for r in log if r["type"] == "step"]
    assert log[0]["device"].startswith("cuda") and log[0]["engine"] == name
    assert len(steps) == 5 and all(r["tis_mean"] < 0.1 for r in steps)
    assert log[-1]["status"] == "budget"


def test_the_check_before_a_sweep():
    """All GPUs compute and Triton compiles, which vLLM needs."""
    done = capture([sys.executable, "core/probe.py", "triton"])
    assert done.stdout.strip() == str(torch.cuda.device_count()), done


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU here")
def test_two_gpus(tiny, tmp_path):
    """Two ranks train, and log-probs are close to the trainer's after every update."""
    done = capture(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2",
         "--", str(ROOT / "train_grpo.py"), *tiny.words, "--engine=vllm", "--device=cuda",
         "--gpu_memory=0.3", "--B_p=8", "--n=8", "--C=320", "--lr_base=2e-3", "--warmup=0",
         f"--out={tmp_path}"])
    assert done.returncode == 0, done.stderr[-9000:]
    log = read_log(tmp_path / "log.jsonl")
    assert log[-1]["status"] == "budget"
    assert all(r["tis_mean"] < 0.1 for r in log if r["type"] == "step")
