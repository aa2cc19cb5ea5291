"""Measure the host memory of saving and loading a checkpoint, as a ratio to its size.

    python tests/bench/checkpoint.py          # a random Llama of 0.1 B parameters, 2 minutes

Peaks of anonymous memory (mapped files do not count) above the level before. Saving: over the bytes
of the state (weights and two moments, fp32), in files of FILE_BYTES and in one file. Loading onto
one of two ranks: over the bytes of the weights (fp32), by shards and whole, without the shards
themselves, which on a node are on the GPU.
"""
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
SHAPE = dict(vocab_size=8000, hidden_size=768, intermediate_size=3072, num_hidden_layers=10,
             num_attention_heads=12, num_key_value_heads=4, tie_word_embeddings=False)


def anonymous():
    """Return the bytes of this process that no file backs."""
    for line in open("/proc/self/status"):
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024


class Peak:
    """Watch `anonymous` inside the `with` block; .extra is how far it rose."""

    def __enter__(self):
        self.before = self.top = anonymous()
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def watch(self):
        while not self.stop.is_set():
            self.top = max(self.top, anonymous())
            time.sleep(0.002)

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()
        self.extra = self.top - self.before


def save(folder, file_bytes):
    """Save a checkpoint; return the host's extra bytes over those of the state."""
    import torch

    from core import engine
    import train_grpo
    model, tokenizer = engine.load_model(folder, "cpu")
    trained = [("", model, torch.optim.AdamW(model.parameters()))]
    state = train_grpo.models.training_state(trained)
    size = sum(t.numel() * t.element_size() for t in state.values())
    train_grpo.models.FILE_BYTES = file_bytes
    with Peak() as peak:
        train_grpo.models.save_checkpoint(folder / f"run{file_bytes}", trained, tokenizer,
                                          dict(step=1, keep=[]))
    return peak.extra / size


def load(folder, device):
    """Shard the model over two ranks; return the host's extra bytes over those of the weights."""
    import torch
    import torch.distributed.checkpoint  # noqa: F401
    import torch.distributed.fsdp  # noqa: F401
    from transformers import LlamaForCausalLM  # noqa: F401  so that imports are not counted

    from core import engine
    import train_grpo
    torch.distributed.init_process_group("gloo")
    with Peak() as peak:
        model = train_grpo.models.load_weights("AutoModelForCausalLM", folder, device)
        train_grpo.models.shard_model(model, "cpu", train_grpo.token_logps)
        if model.device.type == "meta":
            train_grpo.models.load_shards(model, folder, "cpu")
    size = 4 * sum(p.numel() for p in model.parameters())
    ratio = (peak.extra - size / 2) / size
    torch.distributed.destroy_process_group()
    return ratio


def main():
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
    with tempfile.TemporaryDirectory() as folder:
        LlamaForCausalLM(LlamaConfig(**SHAPE)).bfloat16().save_pretrained(folder)
        AutoTokenizer.from_pretrained(ROOT / "data/arithmetic/base").save_pretrained(folder)
        del torch
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "--"]
        for name, launch, words in (
                ("saving, files of 64 MB", [], ["save", str(2**26)]),
                ("saving, one file", [], ["save", str(2**40)]),
                ("loading one of two ranks, its shards", torchrun, ["load", "meta"]),
                ("loading one of two ranks, whole", torchrun, ["load", "cpu"])):
            done = subprocess.run([sys.executable, *launch, __file__, folder, *words],
                                  capture_output=True, text=True,
                                  env=dict(os.environ, OMP_NUM_THREADS="1"))
            assert done.returncode == 0, done.stderr[-2000:]
            print(f"{name}: {json.loads(done.stdout.splitlines()[-1]):.2f} times", flush=True)


if __name__ == "__main__":
    if "--help" in sys.argv:
        sys.exit(print(__doc__))
    if len(sys.argv) > 1:
        place, what, word = sys.argv[1:]
        ratio = save(Path(place), int(word)) if what == "save" else load(Path(place), word)
        if os.environ.get("RANK", "0") == "0":
            print(ratio)
    else:
        main()
