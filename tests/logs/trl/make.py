"""The trainer_state.json files next to this script, as TRL writes them: two short GRPOTrainer runs.

    python -m venv trl
    trl/bin/pip install torch==2.13.0 transformers==5.17.0 trl==1.16.0
    OMP_NUM_THREADS=1 trl/bin/python tests/logs/trl/make.py  # from the root, half a minute

Made with TRL 1.16.0 on data/arithmetic/base. Both: B_p = 4 problems of n rollouts an optimizer
step, 12 steps, an evaluation before the first and after every third on 15 problems with
num_generations_eval = 4. n4 has one micro-batch a step; n8 has two, and makes two optimizer steps
from each generation of 64 rollouts (steps_per_generation = 4).
"""
import os
import shutil
import sys
import tempfile
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", CUDA_VISIBLE_DEVICES="",
                  OMP_WAIT_POLICY="passive")
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT))
import verifier  # noqa: E402
from sample import read_problems  # noqa: E402


def exact(prompts, completions, answer, **_):
    return [verifier.exact(dict(answer=a), text, {}) for a, text in zip(answer, completions)]


base = str(ROOT / "data/arithmetic/base")
sets = {}
for split, size in (("train", 64), ("val", 15)):
    problems = read_problems(ROOT / f"data/arithmetic/splits/base/easy_{split}.jsonl")[:size]
    sets[split] = Dataset.from_list([dict(prompt=p["prompt"], answer=p["answer"])
                                     for p in problems])
for name, settings in (
        ("n4", dict(num_generations=4, per_device_train_batch_size=16)),
        ("n8", dict(num_generations=8, per_device_train_batch_size=16,
                    gradient_accumulation_steps=2, steps_per_generation=4))):
    with tempfile.TemporaryDirectory() as folder:
        args = GRPOConfig(
            output_dir=folder, max_steps=12, seed=0, max_completion_length=20, temperature=0.6,
            beta=0.0, learning_rate=1e-4, lr_scheduler_type="constant", num_generations_eval=4,
            per_device_eval_batch_size=60, eval_strategy="steps", eval_steps=3, eval_on_start=True,
            save_strategy="steps", save_steps=12, logging_steps=1, use_cpu=True, bf16=False,
            gradient_checkpointing=False, dataloader_pin_memory=False, report_to="none",
            disable_tqdm=True, **settings)
        model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(base, padding_side="left")
        GRPOTrainer(model, reward_funcs=exact, args=args, train_dataset=sets["train"],
                    eval_dataset=sets["val"], processing_class=tokenizer).train()
        out = HERE / f"Bp4_{name}"
        out.mkdir(exist_ok=True)
        shutil.copy(Path(folder) / "checkpoint-12/trainer_state.json", out / "trainer_state.json")
