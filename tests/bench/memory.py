"""Simulate the GPU memory of an update: our own code on tensors that have shapes but no data.

    python tests/bench/memory.py    # the table: core/cost.py next to the simulation; an hour

It runs `shard_model`, `token_logps`, `token_values` and `training_state` of train_grpo.py under
torch's FakeTensorMode with its fake process group. It counts the bytes of every storage while it
exists, over two micro-batches and the clipping of their gradients. Two parts differ from a GPU. The
CPU's autocast with bf16 replaces the GPU's. In place of FlashAttention 2 there is a function that
allocates the same tensors without computing: q, k, v, the output and one number per row until the
backward pass, and in the backward pass dq in fp32, dk and dv per head. The CUDA context, NCCL's
buffers, vLLM's CUDA graphs and the allocator's gaps are left out. No number here was measured on a
GPU.
"""
import functools
import json
import os
import subprocess
import sys
import weakref
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
GB = 1e9


def live_bytes():
    """Return a torch dispatch mode that counts the bytes of all storages that exist.

    Its fields are now and peak, in bytes, and tops, {phase: peak}.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class Live(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.now, self.size, self.ends, self.tops, self.phase = 0, {}, {}, {}, "load"

        def see(self, storage):
            """Count a storage that is new or resized, because FSDP frees weights by resizing."""
            key, size = storage._cdata, storage.nbytes()
            if key not in self.size:
                self.ends[key] = weakref.ref(storage, lambda _: self.end(key))
            self.now += size - self.size.get(key, 0)
            self.size[key] = size
            self.tops[self.phase] = max(self.now, self.tops.get(self.phase, 0))

        def end(self, key):
            self.now -= self.size.pop(key, 0)
            self.ends.pop(key, None)

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            out = function(*args, **(kwargs or {}))
            for leaf in tree_leaves(out):
                if isinstance(leaf, torch.Tensor):
                    leaf = getattr(leaf, "_local_tensor", leaf)
                    self.see(leaf.untyped_storage())
            return out

        @property
        def peak(self):
            return max(self.tops.values())
    return Live()


def flash():
    """Return an attention function that allocates like FlashAttention 2 but computes nothing."""
    import torch

    class Flash(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, v):  # (B, heads, L, head_dim), k and v with fewer heads
            out, rows = torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)
            ctx.save_for_backward(q, k, v, out, rows)
            return out

        @staticmethod
        def backward(ctx, grad):
            q, k, v, out, rows = ctx.saved_tensors
            sums, dq = torch.empty_like(rows), torch.empty_like(q, dtype=torch.float32)
            wide = torch.empty_like(q), torch.empty_like(q)  # dk, dv of each head of q
            out = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
            del sums, dq, wide
            return out

    def attend(module, q, k, v, mask, **_):
        assert mask is None  # flash attention takes no mask
        out = Flash.apply(*(x.bfloat16() for x in (q, k, v)))
        return out.transpose(1, 2).contiguous(), None
    return attend


def act_as_gpu(ranks, live):
    """Patch torch in this process, so that sharding and autocast work as on a GPU.

    The patch also tells `live`, of `live_bytes`, when a storage is resized.
    """
    import torch
    from torch.distributed import fsdp
    if ranks > 1:
        from torch.testing._internal.distributed.fake_pg import FakeStore
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group("fake", store=FakeStore(), rank=0,
                                                 world_size=ranks)
        mesh = torch.distributed.init_device_mesh("cpu", (ranks,))
        torch.distributed.init_device_mesh = lambda *_, **__: mesh
    fsdp.MixedPrecisionPolicy = functools.partial(
        fsdp.MixedPrecisionPolicy, param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    plain, resize = torch.autocast, torch.UntypedStorage.resize_

    def autocast(device, dtype=None, enabled=True, **more):
        return plain(device, dtype=dtype, enabled=enabled or dtype is torch.bfloat16, **more)

    def resized(storage, size):
        resize(storage, size)
        if storage._cdata in live.size:
            live.see(storage)
    torch.autocast, torch.UntypedStorage.resize_ = autocast, resized


def simulate(shape, ranks=1, kl=True, ppo=False, recompute=True, micro_tokens=16384, length=1024,
             prompt=150, micro_logits=2**27, lora_rank=0):
    """Return the memory of one of `ranks` GPUs in bytes, as dict(state, peak, tops).

    shape: a name of cost.SHAPES, or the dict of a config.json. state: bytes between updates,
    without gradients. peak: the most bytes of an update. tops: the peak of each phase. The number
    of ranks must be the WORLD_SIZE of this process.
    """
    import torch
    import transformers
    from torch._subclasses.fake_tensor import FakeTensorMode

    from core import cost, lora
    import train_grpo
    assert train_grpo.WORLD == ranks
    transformers.AttentionInterface.register("shapes", flash())
    config = dict(cost.SHAPES[shape] if isinstance(shape, str) else shape)
    config = transformers.AutoConfig.for_model(config.pop("model_type"), **config)
    live = live_bytes()
    act_as_gpu(ranks, live)
    rows = max(1, micro_tokens // length)
    N = rows * (length - prompt)
    with FakeTensorMode(allow_non_fake_inputs=True), live:
        # fake tensors have no values that could give the positions of the response tokens
        row, place = torch.zeros(N, dtype=torch.long), torch.zeros(N, dtype=torch.long)
        train_grpo.token_positions = lambda start, length: (row, place)
        inputs = (torch.zeros(rows, length, dtype=torch.long), torch.zeros(rows), torch.zeros(rows))

        def build(auto, frozen=False):
            dtype = torch.bfloat16 if frozen else torch.float32
            model = auto.from_config(config, dtype=dtype, attn_implementation="shapes")
            return model.eval().requires_grad_(not frozen)

        def call_sharded(function, model):
            out = train_grpo.call_sharded(function, model)
            more = () if function is train_grpo.token_values else (0.6, micro_logits)
            return out(*inputs, *more)

        model = build(transformers.AutoModelForCausalLM, frozen=lora_rank > 0)
        if lora_rank:
            # tensors without values cannot be moved, and these need not be
            torch.nn.Module.to = lambda module, *_, **__: module
            lora.add_adapters(model, lora_rank)
            kl = False
        ref = build(transformers.AutoModelForCausalLM, frozen=True) if kl else None
        critic = None
        if ppo:
            config.num_labels = 1
            critic = build(transformers.AutoModelForTokenClassification)
        settings = dict(train_grpo.config.config,
                        activation_checkpointing="true" if recompute else "false")
        trained = train_grpo.build_learner(model, ref, critic, settings, "cpu", "").trained()
        live.tops, live.phase, state = {}, "between updates", live.now
        for _ in range(2):  # the second micro-batch meets the gradients of the first
            if critic:
                live.phase = "values before"
                with torch.no_grad():
                    call_sharded(train_grpo.token_values, critic)
            live.phase = "forward"
            logp, entropy = call_sharded(train_grpo.token_logps, model)
            loss = logp.sum() - 0.001 * entropy.sum()
            if ref:
                live.phase = "reference"
                with torch.no_grad():
                    logp_ref, _ = call_sharded(train_grpo.token_logps, ref)
                loss = loss + (logp - logp_ref).sum()
            live.phase = "backward"
            loss.backward()
            del loss, logp, entropy
            if critic:
                live.phase = "critic"
                call_sharded(train_grpo.token_values, critic).sum().backward()
        live.phase = "optimizer"
        for _, m, _ in trained:
            torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
    return dict(state=state, peak=live.peak, tops=live.tops)


def case(name, **settings):
    """Return what `simulate` returns, from another process with the right WORLD_SIZE."""
    env = dict(os.environ, WORLD_SIZE=str(settings.get("ranks", 1)), RANK="0", OMP_NUM_THREADS="1")
    done = subprocess.run([sys.executable, __file__, "one", json.dumps([name, settings])], env=env,
                          capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    return json.loads(done.stdout.splitlines()[-1])


def ours(name, ranks=1, kl=True, ppo=False, recompute=True, lora_rank=0, length=1024):
    """Return core/cost.py's bytes of the same update. It counts prompt tokens as response tokens.
    """
    from core import cost
    from config import parse
    cfg = parse([f"--model={name}", f"--kl_coef={0.001 * kl}", f"--max_new_tokens={length - 1}",
                 f"--algo={'ppo' if ppo else 'grpo'}", "--max_prompt_tokens=1",
                 f"--activation_checkpointing={'true' if recompute else 'false'}",
                 f"--lora_rank={lora_rank}"])
    return sum(cost.update_bytes(cost.sizes(cost.SHAPES[name]), cfg, ranks).values())


def table():
    """Print simulated and estimated memory for every model, number of GPUs and objective."""
    from core import cost
    print("| model | GPUs | objective | simulated, GB | core/cost.py | difference |")
    print("|---|---|---|---|---|---|")
    for name in cost.SHAPES:
        for ranks in (1, 2, 4, 8):
            for words, more in (("KL", {}), ("no KL", dict(kl=False)), ("PPO, KL", dict(ppo=True)),
                                ("PPO, no KL", dict(kl=False, ppo=True)),
                                ("KL, all activations", dict(recompute=False)),
                                ("LoRA 32", dict(lora_rank=32)))[:6 if ranks == 1 else 5]:
                seen = case(name, ranks=ranks, **more)["peak"]
                estimate = ours(name, ranks=ranks, **more)
                print(f"| {name.split('/')[1]} | {ranks} | {words} | {seen / GB:.1f} | "
                      f"{estimate / GB:.1f} | {estimate / seen - 1:+.1%} |", flush=True)


if __name__ == "__main__":
    if "--help" in sys.argv:
        print(__doc__)
    elif "one" in sys.argv:  # `case` started this process
        name, settings = json.loads(sys.argv[2])
        print(json.dumps(simulate(name, **settings)))
    else:
        table()
