"""sample.py: problems -> rollouts -> rewards, and as a script: how hard each problem is for a model.

    python sample.py                                          # data/arithmetic and its base model
    python sample.py --data=data/guru_math --model=Qwen/Qwen3-4B-Instruct-2507 --s_zero=0
    python sample.py ship --model=data/mine/base              # and put its pass rates beside it

Reads a problem file, {"id", "prompt", "answer", ...} a line, and a model. Writes under DATA/splits/MODEL/
- `pass_rates.jsonl`, {"id", "of", "samples", "correct"} a line, appended as measured: a killed measurement goes on where it was;
  where `pass_rates.jsonl.gz` came with the model and fits, it starts with these counts;
- the splits {easy,hard,very_easy,mixed}_{train,val}.jsonl by the paper's bands of avg@16 (section 3, factor 1), and, with
  s_zero=128, {extreme,level_easy,level_very_easy}, the levels of its study of mixtures, by 128 rollouts;
- `difficulty.png` and `difficulty.json`, the histogram of pass rates with the bands.
Mixtures of splits and subsets of them: data/guru_math/prepare.py mix.

The three rooms that other stages use: problem files (`read_problems`, `encode`), the engine (`generate`) and the verifier
(`reward`: put your own reward there; `MathPool`: math-verify that cannot be hung). Needs config.py.
"""
import concurrent.futures
import contextlib
import copy
import functools
import gc
import gzip
import hashlib
import importlib.util
import json
import os
import queue
import random
import re
import select
import signal
import subprocess
import sys
import warnings
from pathlib import Path

from config import BadInput, append, aside, entry, parse, read_json, read_log, save_json

# The paper's main splits, Easy and Hard, by avg@s, and Very Easy likewise; the levels of its study of mixtures, by avg@s_zero
BANDS = dict(easy=(0.3, 0.6), hard=(0.0, 0.0625), very_easy=(0.6, 0.9))
LEVELS = dict(extreme=(0.0, 0.0), level_easy=(0.3, 0.6), level_very_easy=(0.6, 0.9))
SURE = 0.95  # a level counts as known once it is this probable
SHIPPED = "pass_rates.jsonl.gz"  # beside a model that is passed on together with its pass rates


# ---------------------------------------------------------------------------------------------------------------------
# Problem files

def read_problems(path):
    """A problem file -> a list of dicts with unique "id", "prompt" and "answer" as strings; other fields are kept.

    Raises BadInput that names the file and the line.
    """
    try:
        lines = Path(path).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as e:
        raise BadInput(f"{path}: no readable problem file ({getattr(e, 'strerror', None) or 'not UTF-8 text'})") from None
    problems, where = [], {}
    for i, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            problem = json.loads(line)
            if not isinstance(problem, dict):
                raise ValueError
        except ValueError:
            raise BadInput(f"{path}:{i}: not a JSON object") from None
        for field in ("id", "prompt", "answer"):
            if str(problem.get(field) if problem.get(field) is not None else "").strip() == "":
                raise BadInput(f"{path}:{i}: the problem has no {field}")
            problem[field] = str(problem[field])
        if problem["id"] in where:
            raise BadInput(f"{path}:{i}: id {problem['id']} is that of line {where[problem['id']]} too")
        where[problem["id"]] = i
        problems.append(problem)
    if not problems:
        raise BadInput(f"{path}: holds no problem")
    return problems


def write_problems(path, problems):
    """Write a problem file aside and rename it."""
    with aside(path) as part:
        part.write_text("".join(json.dumps(p) + "\n" for p in problems))


def set_hash(problems):
    """12 hex digits that change with any id, prompt or answer, or with their order."""
    return hashlib.sha256("\n".join(json.dumps([p["id"], p["prompt"], p["answer"]]) for p in problems).encode()).hexdigest()[:12]


def subset(problems, D, seed):
    """D problems by a seeded shuffle, 0 = all; for one seed the smaller D lies inside the larger. Raises BadInput if D is too large."""
    if D > len(problems):
        raise BadInput(f"--D={D}: the training set holds only {len(problems)} problems")
    order = random.Random(f"subset {seed}").sample(range(len(problems)), len(problems))
    return [problems[i] for i in sorted(order[:D])] if D else problems


def tokenize(problems, tokenizer):
    """Prompts as token ids, a list of lists. A tokenizer with a chat template gets the prompt as one user turn."""
    if tokenizer.chat_template:
        texts = [tokenizer.apply_chat_template([dict(role="user", content=p["prompt"])], tokenize=False, add_generation_prompt=True)
                 for p in problems]
    else:
        texts = [p["prompt"] for p in problems]
    # a template writes its own special tokens
    return tokenizer(texts, add_special_tokens=not tokenizer.chat_template)["input_ids"]


def encode(problems, tokenizer, max_prompt_tokens):
    """As `tokenize`; raises BadInput that names the first problem whose prompt is over `max_prompt_tokens`."""
    prompts = tokenize(problems, tokenizer)
    for p, ids in zip(problems, prompts):
        if not ids or len(ids) > max_prompt_tokens:
            raise BadInput(f"problem {p['id']}: its prompt has {len(ids)} tokens, --max_prompt_tokens={max_prompt_tokens}")
    return prompts


# ---------------------------------------------------------------------------------------------------------------------
# The engines: prompts -> rollouts

def existing(path):
    """A transformers folder, checkpoint or hub name, as it is; raises BadInput for a folder that is none."""
    folder = Path(path)
    local = folder.exists() or str(path).startswith((".", "/", "~")) or str(path).count("/") != 1
    if local and not (folder / "config.json").exists():
        raise BadInput(f"--model={path}: no transformers folder (it has no config.json)")
    return path


@contextlib.contextmanager
def loading(path, by="transformers"):
    """Whatever transformers or vLLM raise over a model (OSError, ValueError, safetensors' own errors, ...) as one line of BadInput."""
    import huggingface_hub
    import transformers
    huggingface_hub.utils.logging.set_verbosity_error()  # or a line for each time it tries again
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    warnings.filterwarnings("ignore", "torch.distributed is disabled")  # by torch's checkpoints, in a plain run
    try:
        yield transformers
    except Exception as e:
        reason = str(e).strip().splitlines() or [type(e).__name__]
        raise BadInput(f"--model={path}: {by} cannot load it ({reason[0][:200]})") from None


def load_tokenizer(path):
    """The tokenizer of a transformers folder or hub name, with a pad token. Raises BadInput."""
    with loading(existing(path)) as transformers:
        tokenizer = transformers.AutoTokenizer.from_pretrained(path, padding_side="left")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def check_lengths(path, cfg):
    """Raise BadInput where a prompt and its response may be longer than the model knows positions."""
    with loading(existing(path)) as transformers:
        positions = getattr(transformers.AutoConfig.from_pretrained(path), "max_position_embeddings", None)
    if positions and cfg["max_prompt_tokens"] + cfg["max_new_tokens"] > positions:
        raise BadInput(f"--max_new_tokens={cfg['max_new_tokens']}: with --max_prompt_tokens={cfg['max_prompt_tokens']} "
                       f"that is more than the {positions} positions of {path}")


def checkpoint_state(path):
    """state.json of a checkpoint of train_grpo.py whose shards are all there; raises OSError or ValueError where it is torn."""
    state = json.loads((Path(path) / "state.json").read_text())
    for name, size in state["files"].items():
        if (Path(path) / name).stat().st_size != size:
            raise ValueError(f"{name} is not whole")
    return state


def load_weights(kind, path, **more):
    """transformers' AutoModelFor... of a folder, hub name or checkpoint, in fp32 and eval mode, on the CPU. Raises BadInput."""
    import torch
    with loading(existing(path)) as transformers:
        auto = getattr(transformers, kind)
        if not (Path(path) / "state.json").exists():
            return auto.from_pretrained(path, dtype=torch.float32, **more).eval()
        import torch.distributed.checkpoint as dcp  # a checkpoint, in the shards of its ranks
        checkpoint_state(path)
        model = auto.from_config(transformers.AutoConfig.from_pretrained(path, **more), dtype=torch.float32)
        there = dcp.HuggingFaceStorageReader(str(path)).read_metadata().state_dict_metadata
        dcp.load({name: p.detach() for name, p in model.named_parameters() if name in there},
                 storage_reader=dcp.HuggingFaceStorageReader(str(path)), no_dist=True)
        if kind == "AutoModelForCausalLM":
            model.generation_config = transformers.GenerationConfig.from_pretrained(path)
        return model.eval()


def load_model(path, device="auto"):
    """A transformers folder, hub name or checkpoint of a run -> (causal LM in fp32, eval mode, on the device; its tokenizer).

    Raises BadInput.
    """
    import torch
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise BadInput(f"--device={device}: torch sees no GPU here")
    tokenizer = load_tokenizer(path)
    return load_weights("AutoModelForCausalLM", path).to(device), tokenizer


def load_critic(path, device):
    """PPO's critic: the base model with a head of one number, all zeros, in place of its vocabulary. In fp32, eval mode."""
    import torch
    critic = load_weights("AutoModelForTokenClassification", path, num_labels=1)
    for p in critic.score.parameters():
        torch.nn.init.zeros_(p)
    return critic.to(device)


def engine_name(cfg):
    """hf or vllm for --engine, without loading either: auto is vLLM where there is a GPU and vLLM is installed. Raises BadInput."""
    there = importlib.util.find_spec("vllm") is not None
    if cfg["engine"] == "vllm" and not there:
        raise BadInput("--engine=vllm: vLLM is not installed (pip install -r requirements-vllm.txt)")
    if cfg["engine"] != "auto":
        return cfg["engine"]
    import torch
    name = "vllm" if there and cfg["device"] != "cpu" and torch.cuda.is_available() else "hf"
    if name == "vllm" and cfg["temperature"] > 2:
        raise BadInput(f"--temperature={cfg['temperature']}: vLLM samples at 2 at most (or --engine=hf)")
    return name


def open_engine(name, path, cfg, device="auto", model=None, tokenizer=None, apart=False):
    """HFEngine or VLLMEngine on the model at `path`, or on `model`, which is that model in memory. Raises BadInput."""
    if model is None:
        check_lengths(path, cfg)
    if name == "vllm" and not (Path(path) / "state.json").exists():
        return VLLMEngine(path, tokenizer or load_tokenizer(path), cfg)
    if model is None:
        model, tokenizer = load_model(path, device)
    if name == "vllm":
        engine = VLLMEngine(path, tokenizer, cfg, "dummy")
        engine.load((name, p.detach()) for name, p in model.named_parameters())
        return engine
    return HFEngine(model, tokenizer, cfg, apart, device)


class HFEngine:
    """transformers. On a CPU it decodes with the very weights that are trained; on a GPU, or where these are split over ranks
    (`apart`), with a copy in the dtype of the computation, which `load` brings up to date."""

    def __init__(self, model, tokenizer, cfg, apart=False, device="auto"):
        import torch
        self.model, self.tokenizer, self.cfg, self.told = model, tokenizer, cfg, os.environ.get("RANK", "0") != "0"
        cuda = model.device.type == "cuda" or str(device).startswith("cuda")
        self.apart = apart or cuda
        if self.apart:
            self.model = copy.deepcopy(model).requires_grad_(False)
            if cuda:  # the parameters alone: the frequencies of the positions, a buffer, stay in fp32
                for p in self.model.parameters():
                    p.data = p.data.bfloat16()
                self.model.to(device if str(device).startswith("cuda") else model.device)

    def generate(self, prompts, n, seeds, progress=None):
        if not self.told:
            print("rollouts by transformers: a batch decodes until its longest response ends; on a GPU vLLM (requirements-vllm.txt) "
                  "does not wait and is several times faster", file=sys.stderr)
            self.told = True
        return generate(self.model, self.tokenizer, prompts, n, seeds, self.cfg, progress)

    def load(self, weights):
        """Take over (name, tensor) pairs, those of all parameters."""
        if self.apart:
            mine = dict(self.model.named_parameters())
            for name, weight in weights:
                mine[name].copy_(weight)

    def sleep(self):
        """Nothing to give back."""


def device_here():
    """The GPU of this process in a list, or none."""
    import torch
    return [torch.cuda.current_device()] if torch.cuda.is_available() else []


@contextlib.contextmanager
def untouched():
    """vLLM in this process leaves it as it was: it reseeds every generator, sets environment variables, takes away
    torch.set_num_threads, changes the precision of matmuls and keeps the garbage collector from all that is there so far."""
    import numpy as np
    import torch
    environment, state, np_state = dict(os.environ), random.getstate(), np.random.get_state()
    hook, set_threads, threads = sys.excepthook, torch.set_num_threads, torch.get_num_threads()
    precision = torch.get_float32_matmul_precision()
    try:
        with torch.random.fork_rng(device_here()):
            yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        random.setstate(state)
        np.random.set_state(np_state)
        sys.excepthook, torch.set_num_threads = hook, set_threads
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)
        gc.unfreeze()


class VLLMEngine:
    """vLLM 0.32 in this process, one engine a rank, on the model at `path`; load="dummy" where the weights come by `load` only.

    A rollout is a function of its seed, but not to the last bit of its batch: a resumed run goes on with other rounding.
    """

    def __init__(self, path, tokenizer, cfg, load="auto"):
        self.tokenizer, self.cfg, self.asleep = tokenizer, cfg, False
        longest = cfg["max_prompt_tokens"] + cfg["max_new_tokens"]
        for key, value in dict(VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_NO_USAGE_STATS="1", VLLM_LOGGING_LEVEL="ERROR",
                               VLLM_LOGGING_STREAM="ext://sys.stderr").items():  # read by vLLM when it is imported
            os.environ.setdefault(key, value)
        with untouched(), loading(path, "vLLM"):
            from vllm.platforms import current_platform
            if current_platform.is_cpu():
                import vllm._custom_ops as ops
                ops._supports_onednn = False  # its packed copies of the linear layers would go stale with the first `load`
                current_platform.simple_compile_backend = "eager"  # else the sampler asks for g++
                # a prompt in chunks would rewind its generator, which one on the CPU cannot
                more = dict(dtype="float32", enforce_eager=True, kv_cache_memory_bytes=2 ** 28, block_size=32,
                            enable_chunked_prefill=False, max_num_batched_tokens=max(4096, longest))
            else:
                more = dict(dtype="bfloat16", gpu_memory_utilization=cfg["gpu_memory"], enable_sleep_mode=True)
            if int(os.environ.get("WORLD_SIZE", 1)) > 1:
                more["distributed_executor_backend"] = "external_launcher"
            from vllm import LLM
            self.llm = LLM(str(path), load_format=load, seed=0, max_model_len=longest, max_num_seqs=cfg["gen_batch"],
                           enable_prefix_caching=True, logprobs_mode="processed_logprobs", use_tqdm_on_load=False, **more)
        self.stop = stop_ids(self.llm.model_config.try_get_generation_config().get("eos_token_id"), tokenizer)
        self.can_sleep = bool(more.get("enable_sleep_mode"))

    def generate(self, prompts, n, seeds, progress=None):
        """As `generate` below; rollout i of prompt j has its own generator, with the seed seeds[j] // 2 + i."""
        import torch
        from vllm import SamplingParams
        params = [SamplingParams(n=n, seed=seed >> 1, temperature=self.cfg["temperature"], top_p=self.cfg["top_p"], logprobs=0,
                                 flat_logprobs=True, max_tokens=self.cfg["max_new_tokens"], ignore_eos=True, stop_token_ids=self.stop,
                                 detokenize=False) for seed in seeds]  # >> 1: adding i does not leave 63 bits
        with torch.random.fork_rng(device_here()):  # it draws from the global generators too
            requests = self.llm.generate([dict(prompt_token_ids=ids) for ids in prompts], params, use_tqdm=False)
        outs = [out for request in requests for out in request.outputs]  # prompt-major
        length = torch.tensor([len(out.token_ids) for out in outs])
        shape = len(outs), int(length.max())
        tokens, logps = torch.full(shape, self.tokenizer.pad_token_id), torch.zeros(shape)
        for row, out in enumerate(outs):
            tokens[row, :length[row]], logps[row, :length[row]] = torch.tensor(out.token_ids), torch.tensor(out.logprobs.logprobs)
        if progress is not None:
            progress.update(len(outs))
        return dict(tokens=tokens, logps=logps, length=length, stopped=torch.tensor([out.finish_reason == "stop" for out in outs]))

    def load(self, weights):
        """Take over (name, tensor) pairs, those of all parameters, and forget what the old ones computed."""
        if self.asleep:
            self.llm.wake_up(tags=["weights"])
        missed, = self.llm.apply_model(lambda model: set(dict(model.named_parameters())) - model.load_weights(weights))
        assert not missed, f"vLLM was not given {missed}"
        if self.asleep:
            self.llm.wake_up(tags=["kv_cache"])
            self.asleep = False
        self.llm.reset_prefix_cache()

    def sleep(self):
        """Give the GPU memory of weights and cache back; `load` wakes."""
        if self.can_sleep:
            self.llm.sleep(level=2)
            self.asleep = True


def stop_ids(ids, tokenizer):
    """The token ids that end a response: `ids`, the generation config's eos_token_id (for chat models several), or the tokenizer's."""
    ids = tokenizer.eos_token_id if ids is None else ids
    return ids if isinstance(ids, list) else [ids]


def rollout_seed(*key):
    """A 63-bit seed from what names a group of rollouts, such as (seed, "train", step, j): no two stages share their noise."""
    return int.from_bytes(hashlib.sha256(json.dumps(key).encode()).digest()[:8], "big") >> 1


def sample_tokens(logits, u, temperature, top_p):
    """Inverse-CDF sampling: logits (R, V) and uniforms u (R,) in (0, 1] -> token ids (R,), their log-probs (R,).

    One uniform a token makes a rollout a function of its own numbers alone, whatever it is batched with. The log-probs
    are those of the distribution that was sampled, at this temperature and renormalised over the nucleus if top_p < 1.
    """
    import torch
    logp = torch.log_softmax(logits.float() / temperature, -1)
    if top_p < 1:
        ordered, order = logp.sort(-1, descending=True)
        outside = ordered.exp().cumsum(-1) - ordered.exp() >= top_p  # mass before the token; the first one always stays
        logp = torch.log_softmax(logp.masked_fill(outside.scatter(-1, order, outside), -torch.inf), -1)
    cdf = logp.exp().cumsum(-1)
    # u times the last value, not u: in fp32 the sum over a large vocabulary is not 1
    tokens = (cdf < u[:, None] * cdf[:, -1:]).sum(-1)
    return tokens, logp.gather(-1, tokens[:, None])[:, 0]


def generate(model, tokenizer, prompts, n, seeds, cfg, progress=None):
    """The transformers engine: n rollouts for each prompt.

    prompts: P lists of token ids; seeds: P ints, rollout i of prompt j uses row i of the uniforms of seeds[j], so the result depends
    neither on `gen_batch` nor on what else is in the call. cfg: temperature, top_p, max_new_tokens, gen_batch.
    Returns a dict of CPU tensors, prompt-major, so that a reshape to (P, n) gives the groups (T = longest response):
        tokens (P n, T) int64, the stop token included and padded behind; logps (P n, T) float32; length (P n,) tokens of a
        response; stopped (P n,) bool, False where it was cut off at max_new_tokens.
    """
    import torch
    T, pad = cfg["max_new_tokens"], tokenizer.pad_token_id
    stop = torch.tensor(stop_ids(model.generation_config.eos_token_id, tokenizer), device=model.device)
    rows = min(n, cfg["gen_batch"])           # rollouts of a prompt that are decoded together
    per_call = max(1, cfg["gen_batch"] // n)  # prompts that are decoded together
    tokens, logps = torch.full((len(prompts), n, T), pad), torch.zeros(len(prompts), n, T)
    length, stopped = torch.zeros(len(prompts), n, dtype=torch.long), torch.zeros(len(prompts), n, dtype=torch.bool)
    order = sorted(range(len(prompts)), key=lambda j: -len(prompts[j]))  # alike lengths together: less padding
    for first in range(0, len(order), per_call):
        js = order[first:first + per_call]
        u = 1 - torch.stack([torch.rand(n, T, generator=torch.Generator().manual_seed(seeds[j])) for j in js])  # (J, n, T) in (0, 1]
        width = max(len(prompts[j]) for j in js)
        ids = torch.tensor([[pad] * (width - len(prompts[j])) + prompts[j] for j in js], device=model.device)
        mask = torch.tensor([[0] * (width - len(prompts[j])) + [1] * len(prompts[j]) for j in js], device=model.device)
        for start in range(0, n, rows):
            part = slice(start, min(start + rows, n))
            out = decode(model, ids, mask, u[:, part].flatten(0, 1).to(model.device), stop, pad, cfg["temperature"], cfg["top_p"])
            for whole, piece in zip((tokens, logps, length, stopped), out):
                whole[js, part] = piece.unflatten(0, (len(js), -1)).cpu()
            if progress is not None:
                progress.update(u[:, part, 0].numel())
    longest = int(length.max())
    return dict(tokens=tokens.flatten(0, 1)[:, :longest], logps=logps.flatten(0, 1)[:, :longest],
                length=length.flatten(), stopped=stopped.flatten())


def decode(model, ids, mask, u, stop, pad, temperature, top_p):
    """Prefill J left-padded prompts once, ids and mask (J, L), and decode R / J rollouts of each with the uniforms u (R, T).

    Returns tokens (R, T), log-probs (R, T), lengths (R,) and stopped (R,).
    """
    import torch
    from transformers import DynamicCache
    (R, T), r = u.shape, u.shape[0] // ids.shape[0]
    tokens, logps = u.new_full((R, T), pad, dtype=torch.long), torch.zeros_like(u)
    length, stopped = tokens.new_full((R,), T), torch.zeros(R, dtype=torch.bool, device=u.device)
    cache = DynamicCache(config=model.config)
    padded = not bool(mask.all())  # without padding, attention needs no mask and is faster
    position = (mask.cumsum(-1) - 1).clamp(min=0)
    with torch.no_grad(), torch.autocast(model.device.type, torch.bfloat16, enabled=model.device.type == "cuda"):
        logits = model(input_ids=ids, attention_mask=mask if padded else None, position_ids=position,
                       past_key_values=cache, logits_to_keep=1).logits[:, -1].repeat_interleave(r, 0)  # (R, V)
        cache.batch_repeat_interleave(r)
        mask, position = mask.repeat_interleave(r, 0), position[:, -1:].repeat_interleave(r, 0)
        row = torch.arange(R, device=u.device)  # which rollout a row of the cache belongs to
        for t in range(T):
            token, logp = sample_tokens(logits, u[row, t], temperature, top_p)
            open_ = ~stopped[row]
            tokens[row[open_], t], logps[row[open_], t] = token[open_], logp[open_]
            ended = row[open_ & torch.isin(token, stop)]
            length[ended], stopped[ended] = t + 1, True
            alive = ~stopped[row]
            left = int(alive.sum())
            if left == 0 or t == T - 1:
                break
            if left <= 0.75 * len(row):  # copying the cache pays once a quarter of its rows are done
                keep = alive.nonzero()[:, 0]
                cache.batch_select_indices(keep)
                row, token, mask, position = row[keep], token[keep], mask[keep], position[keep]
            mask, position = torch.cat([mask, mask.new_ones(len(row), 1)], 1), position + 1
            logits = model(input_ids=token[:, None], attention_mask=mask if padded else None, position_ids=position,
                           past_key_values=cache, logits_to_keep=1).logits[:, -1]
    return tokens, logps, length, stopped


# ---------------------------------------------------------------------------------------------------------------------
# The verifier. What a model writes is hostile input: nothing of it is evaluated here, nor parsed in this process

def reward(problem, text, cfg):
    """The reward of one rollout under verifier=exact, and the place for one of your own: `text` is what the model wrote.

    1.0 if what follows the last '#' is the problem's answer, blanks aside, else 0.0.
    """
    return float("#" in text and text.rpartition("#")[2].strip() == problem["answer"].strip())


def boxed(text, most=1024):
    r"""What the last \boxed{...} of a response holds; "" where there is none, where it is not closed or stands in a thinking block.

    Reads on from that box for `most` characters; what is longer comes back cut at one more, still open. Linear in len(text).
    """
    answer, start, depth = text.rpartition("</think>")[2], None, 1
    for start in re.finditer(r"\\boxed\s*\{", answer):
        pass  # the last one
    if start is None or "<think>" in answer:
        return ""
    inside = answer[start.end():start.end() + most + 1]
    for brace in re.finditer(r"\\.|[{}]", inside, re.DOTALL):  # \{ and \} are no braces
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            return inside[:brace.start()].strip()
    return inside if len(inside) > most else ""


class MathPool:
    """math-verify in processes that can be killed: `verify` returns within its limit, whatever the answers are.

    Each process is two: a nursery, which has math-verify loaded, and its child, which grades. The child sets a timer of the kernel for
    each answer, which ends it also inside sympy's C code, where a Python signal handler would never run. Then the nursery says so and
    forks the next child, in milliseconds. A child has a cap on its memory and is replaced after a while.
    """
    MEMORY = 2 ** 30  # bytes of address space
    LIFE = 2000       # answers of a child
    START = 120       # seconds until math-verify must be there
    GRACE = 5         # seconds after the limit when a process that says nothing is killed from here

    def __init__(self, workers):
        self.free, self.threads = queue.SimpleQueue(), concurrent.futures.ThreadPoolExecutor(workers)
        for process in [self.start() for _ in range(workers)]:  # they start side by side
            self.free.put(process)

    def start(self):
        """A nursery; its own session, so that Ctrl-C does not reach it. It ends when our end of its pipe is closed."""
        return subprocess.Popen([sys.executable, "-c", "import sample; sample.nursery()"], cwd=Path(__file__).resolve().parent,
                                env={**os.environ, "PYTHONHASHSEED": "0"},  # or the order of a set might decide a verdict
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True)

    def ask(self, gold, answer, seconds):
        """One verdict: "right", "wrong", "timeout", or "error" (wrong too)."""
        process = self.free.get()
        try:
            verdict = self.exchange(process, seconds, gold, answer)
            if verdict is None:  # the nursery is dead, or stopped
                self.end(process)
                gave_up = process.returncode >= 0 and not hasattr(process, "asked")  # of itself: nobody killed it
                process = self.start()
                if gave_up:
                    raise BadInput("--verifier=math: math-verify does not start (pip install -r requirements.txt)")
            return VERDICTS.get(verdict, "error")
        finally:
            self.free.put(process)

    def exchange(self, process, seconds, gold, answer):
        """A request and what comes of it: a key of VERDICTS; None where the process says nothing."""
        if not hasattr(process, "asked"):
            said = self.hear(process, self.START)
            if said is None:
                raise BadInput(f"--verifier=math: math-verify is not there after {self.START} s")
            if said != READY:
                return None
            process.asked = 0
        process.asked += 1
        while self.hear(process, 0):  # what was said of a child that somebody killed while it had nothing to do
            pass
        try:
            self.tell(process, json.dumps([process.asked % 255, seconds, gold, answer]).encode() + b"\n")
            while True:
                number, verdict = self.hear(process, seconds + self.GRACE) or (ANY, None)
                if number in (process.asked % 255, ANY):  # else it is that of an answer already given up
                    return verdict
        except BrokenPipeError:
            return None

    def tell(self, process, message):
        """Writes the message as far as the process takes it within GRACE: one that is stopped must not hold us in a full pipe."""
        os.set_blocking(process.stdin.fileno(), False)
        poll = select.poll()
        poll.register(process.stdin, select.POLLOUT)
        while message and poll.poll(1000 * self.GRACE):
            message = message[process.stdin.write(message) or 0:]

    def hear(self, process, seconds):
        """The next message, two bytes; None if there is none in time."""
        poll = select.poll()  # select() cannot take a file number from 1024 on
        poll.register(process.stdout)
        return process.stdout.read(2) if poll.poll(1000 * seconds) else None

    def verify(self, pairs, seconds):
        """[(gold, answer), ...] -> a verdict for each; pairs that are equal are graded once."""
        distinct = list(dict.fromkeys(pairs))
        verdict = dict(zip(distinct, self.threads.map(lambda pair: self.ask(*pair, seconds), distinct)))
        return [verdict[pair] for pair in pairs]

    def end(self, process):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(), process.stdin.close(), process.stdout.close()


# A message of a MathPool's process: the number of the answer, and what came of it; a nursery does not know the number
ANY = 255
READY = bytes([ANY, ord("r")])
# A nursery grades these first: what sympy imports and the parser builds on the way, no child has to, in the time of an answer
WARM = [(r"\frac{1}{2}", "0.6"), (r"\sqrt{8}", r"3\sqrt{2}"), ("x^2-1", "(x+1)^2"), (r"\sin x", r"\cos x"), ("x=5", "y=5"), ("x>2", "x<2"),
        (r"[1,2]\cup[2,3]", "[1,2]"), (r"\begin{pmatrix}1&2\end{pmatrix}", r"\begin{pmatrix}1&x\end{pmatrix}"), ("3+4i", "3-4i")]
OLD = 2  # exit code of a child; Python's own for an exception is 1
VERDICTS = {ord("1"): "right", ord("0"): "wrong", ord("t"): "timeout", ord("e"): "error"}


def nursery():
    """The process of a MathPool: forks a child that reads [number, seconds, gold, answer] a line, and the next when that dies."""
    import logging
    import resource
    try:
        import math_verify  # noqa: F401
    except ImportError:
        return
    logging.disable(logging.CRITICAL)
    requests, replies, null = os.dup(0), os.dup(1), os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # whatever a library prints must not be taken for a message
        os.dup2(null, stream)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # whoever started us may have ignored them
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends the process, by the kernel
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    for gold, answer in WARM:
        math_equal(gold, answer)
    resource.setrlimit(resource.RLIMIT_AS, (MathPool.MEMORY, MathPool.MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.write(replies, READY)
    while True:
        child = os.fork()
        if child == 0:
            os._exit(grade_lines(requests, replies))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code == 0:
            return
        if code != OLD:
            os.write(replies, bytes([ANY, ord("t" if code == -signal.SIGALRM else "e")]))


def grade_lines(requests, replies):
    """The child of a nursery. Returns 0 where there are no more requests, OLD where it is to be replaced: sympy's caches grow, and
    what one answer left in memory must not be missing to the next."""
    import resource
    for _ in range(MathPool.LIFE):
        line = b""
        while not line.endswith(b"\n"):  # there is one request at a time
            piece = os.read(requests, 65536)
            if not piece:
                return 0
            line += piece
        number, seconds, gold, answer = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            right, raised = math_equal(gold, answer)
        except MemoryError:
            right, raised = False, True
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.write(replies, bytes([number, ord("1" if right else "e" if raised else "0")]))
        if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > MathPool.MEMORY / 4 / 1024:  # in KiB
            break
    return OLD


def math_equal(gold, answer):
    r"""Whether math-verify takes `answer` for `gold`, both as in \boxed{}, and whether it raised on the way: two bools. May hang."""
    from math_verify import verify
    if re.fullmatch("[A-Z]{3,}", letters(gold)):  # an order or a word, of which math-verify makes a product: ABC is CBA to it
        return letters(gold) == letters(answer), False
    gold, answer = parsed(gold), parsed(answer)
    try:
        return verify(gold, answer, allow_set_relation_comp=True, timeout_seconds=None, raise_on_error=True), False
    except MemoryError:
        raise
    except Exception:  # then its other readings of the two decide
        return verify(gold, answer, allow_set_relation_comp=True, timeout_seconds=None), True


def letters(text):
    r"""An answer without \text{} and the like, blanks, dollars and a full stop."""
    return re.sub(r"[\s$]|\.$", "", re.sub(r"\\(?:text|math)(?:rm|bf|it)?\s*\{([^{}]*)\}", r"\1", text))


@functools.lru_cache(256)  # all rollouts of a group have one gold answer
def parsed(text):
    r"""math-verify's readings of what is in a \boxed{}; `first_match`: a box that it cannot read is not searched for parts it can."""
    from math_verify import LatexExtractionConfig, parse
    from sympy import Add, Symbol
    for pattern, meant in NOTATION:
        text = re.sub(pattern, meant, text)
    if not re.search(r"_\s*\{?\s*i|(?<![A-Za-z\\])i\s*=", text):  # where it counts nothing, i is what math-verify calls I
        text = re.sub(r"(?<![A-Za-z\\])i(?![A-Za-z])(\s*\^)?", lambda m: "(I)^" if m[1] else "I", text)  # it takes I^2 for I
    readings = parse(rf"\boxed{{{text}}}", [LatexExtractionConfig(boxed_match_priority=0)], parsing_timeout=None,
                     extraction_mode="first_match")
    # A lone letter is compared by its name; as a sum it is compared by what it is: x and 2x/2
    return readings + [Add(reading, 0, evaluate=False) for reading in readings if isinstance(reading, Symbol)]


# Notation that math-verify does not read, or reads as something else, in terms that it does. Each pattern is linear in the text
NOTATION = [
    (r"^\s*(?:(?:=|\\(?:approx|simeq|therefore|displaystyle|[lL]arge|LARGE|[hH]uge)(?![A-Za-z]))\s*)+", ""),             # =7
    (r"(?<![.\s])[.\s]+((?:\}\s*)?)$", r"\1"),                                              # the full stop after an answer
    (r"(?<=\d)(?:\\[,;:! ]|~)(?=\d{3}(?!\d))", ""),                                         # 10\,000
    (r"(?<!\d)(\d*)\.(\d*)\\(?:overline|bar)\s*\{(\d+)\}",                                  # 0.1\overline{6} = (016 - 01) / 90
     lambda m: rf"\frac{{0{m[1]}{m[2]}{m[3]}-0{m[1]}{m[2]}}}{{{'9' * len(m[3])}{'0' * len(m[2])}}}"),
    (r"\\sqrt\[(\d*[13579])\]\{\s*-\s*(\d+)\}", r"((-1)\\sqrt[\1]{\2})"),                   # the real root, not the principal one
    (r"\\text\s*\{([^\w{}\\]*)\}", r"\1"),                                                  # 3\text{:}30
    (r"\\begin\s*\{cases\}((?:[^&\\]|\\(?!begin|end))*)\\end\s*\{cases\}", lambda m: m[1].replace(r"\\", ",")),  # x=1\\ y=2
    (r"\\text\s*\{\s*infinity\s*\}", r"\\infty"), (r"\\varnothing", r"\\emptyset"), (r"\\langle", "("), (r"\\rangle", ")")
]


@functools.cache
def math_pool():
    """The MathPool of this process, one worker for each of its cores, 16 at most."""
    if importlib.util.find_spec("math_verify") is None:
        raise BadInput("--verifier=math: math-verify is not installed (pip install -r requirements.txt)")
    cores = len(os.sched_getaffinity(0)) // int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    return MathPool(min(16, max(1, cores)))


def grade(problems, rollouts, tokenizer, cfg):
    """Rewards of n rollouts for each of P problems, in the order of `generate`: a (P, n) float32 tensor, and what went wrong on the
    way, {"verifier_timeouts": rollouts, "verifier_errors": rollouts}, whose reward is 0 (a too long answer is an error)."""
    import torch
    texts = tokenizer.batch_decode([ids[:k] for ids, k in zip(rollouts["tokens"].tolist(), rollouts["length"].tolist())],
                                   skip_special_tokens=True)
    n = len(texts) // len(problems)
    faults = dict(verifier_timeouts=0, verifier_errors=0)
    if cfg["verifier"] == "exact":
        rewards = [reward(problems[i // n], text, cfg) for i, text in enumerate(texts)]
    else:
        if opens_thinking(tokenizer):
            texts = ["<think>" + text for text in texts]
        verdicts = check_math([(problems[i // n]["answer"], text) for i, text in enumerate(texts)], cfg)
        rewards = [float(verdict == "right") for verdict in verdicts]
        faults = dict(verifier_timeouts=verdicts.count("timeout"), verifier_errors=verdicts.count("error"))
    return torch.tensor(rewards).reshape(len(problems), n), faults


def check_math(pairs, cfg):
    """[(gold, what the model wrote), ...] -> "right", "wrong", "timeout" or "error" for each. cfg: verify_s, verify_bytes."""
    answers = [boxed(text, cfg["verify_bytes"]) for _, text in pairs]
    long = [len(answer.encode(errors="replace")) > cfg["verify_bytes"] for answer in answers]
    asked = [i for i, answer in enumerate(answers) if answer and not long[i]]
    verdicts = ["error" if over else "wrong" for over in long]
    if asked:
        for i, verdict in zip(asked, math_pool().verify([(pairs[i][0], answers[i]) for i in asked], cfg["verify_s"])):
            verdicts[i] = verdict
    return verdicts


def opens_thinking(tokenizer):
    """True where the chat template itself writes the <think> that a response goes on from."""
    if not tokenizer.chat_template or "<think>" not in tokenizer.chat_template:
        return False
    turn = tokenizer.apply_chat_template([dict(role="user", content="?")], tokenize=False, add_generation_prompt=True)
    return turn.rfind("<think>") > turn.rfind("</think>")


def readable(problem, rollouts, rewards, tokenizer, count):
    """The first `count` rollouts of the first problem as records: id, answer, reward, length in tokens, finish reason, text."""
    return [dict(id=problem["id"], answer=problem["answer"], reward=rewards[0, i].item(), length=int(rollouts["length"][i]),
                 finish="stop" if rollouts["stopped"][i] else "length",
                 text=tokenizer.decode(rollouts["tokens"][i, :int(rollouts["length"][i])].tolist())) for i in range(count)]


# ---------------------------------------------------------------------------------------------------------------------
# The script: difficulty

@functools.lru_cache(None)
def level_of(right, drawn, total, names):
    """The level of a problem with `right` of `drawn` rollouts right, by what the count will be after `total`: (name, probability).

    The name is one of `names`, or "" where it is none of these levels. Until `drawn` is `total` the count to come is beta-binomial under
    a uniform prior of the pass rate.
    """
    from scipy.stats import betabinom
    chance = dict.fromkeys([*names, ""], 0.0)
    for more in range(total - drawn + 1):
        p = betabinom.pmf(more, total - drawn, right + 1, drawn - right + 1) if drawn < total else 1.0
        name = next((name for name in names if LEVELS[name][0] <= (right + more) / total <= LEVELS[name][1]), "")
        chance[name] += p
    return max(chance.items(), key=lambda item: item[1])


def is_open(right, drawn, total, names):
    """Whether a problem needs more rollouts for its level; "none right" needs all of them."""
    return drawn < total and ((right == 0 and "extreme" in names) or level_of(right, drawn, total, names)[1] < SURE)


def latest(counts, cfg):
    """(right, drawn) of a problem's {samples: right}, by all of its rollouts that these settings ask for."""
    drawn = max(k for k in counts if k <= max(cfg["s"], cfg["s_zero"]))
    return counts[drawn], drawn


def folder_hash(path):
    """12 hex digits that change with any file of a model folder: weights, tokenizer, template."""
    files = [f for f in sorted(Path(path).iterdir()) if f.is_file() and f.name != SHIPPED]
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.name} {file.stat().st_size}\n".encode())
        with open(file, "rb") as content:
            while block := content.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()[:12]


def settings(cfg):
    """What the counts depend on besides the problems, as a dict."""
    keys = "model s temperature top_p max_new_tokens verifier".split()
    found = {key: cfg[key] for key in keys}
    if (Path(cfg["model"]) / SHIPPED).exists():  # hashing a large model takes long: only for this
        found["weights"] = folder_hash(cfg["model"])
    return found


def header_of(path):
    """The header of a file of pass rates, {} where there is none."""
    records = read_log(path) if path.exists() else []
    return records[0] if records and records[0].get("type") == "header" else {}


def ship(problems, counts, faults, cfg):
    """Write the counts of `measure` beside the model, {"id", "correct": {samples: right}} a line.

    The header says of which weights, problems and settings they are. Raises BadInput where the
    model is no folder.
    """
    path = Path(existing(cfg["model"])) / SHIPPED
    if not path.parent.is_dir():
        raise BadInput(f"--model={cfg['model']}: pass rates are shipped beside a folder")
    lines = [dict(type="header", **settings(cfg) | dict(weights=folder_hash(path.parent)),
                  set_hash=set_hash(problems), s_zero=cfg["s_zero"], levels=cfg["levels"],
                  **faults)]
    for p in problems:
        lines.append(dict(id=p["id"], correct={k: c for k, c in counts[p["id"]].items() if k}))
    with aside(path) as part:  # mtime=0: the same counts are the same bytes
        text = "".join(json.dumps(line) + "\n" for line in lines)
        part.write_bytes(gzip.compress(text.encode(), mtime=0))
    print(f"{path}: the pass rates of {len(problems):,} problems")


def take(problems, cfg, folder):
    """Start pass_rates.jsonl in `folder` with the counts that came with the model, where they fit.

    They fit where weights, problems and settings are equal; otherwise one line says what differs
    and `measure` has all to do. What was measured here before stays. Raises BadInput where the
    file is torn.
    """
    source, path = Path(cfg["model"]) / SHIPPED, folder / "pass_rates.jsonl"
    # counts from before rates were shipped do not say of which weights they are
    if not source.exists() or "weights" in header_of(path):
        return
    now = settings(cfg) | dict(set_hash=set_hash(problems))
    header = header_of(source)
    differ = [f"{key}={header.get(key)} there, {now[key]} now" for key in now
              if key != "model" and header.get(key) != now[key]]
    if header and differ:
        print(f"{source}: not of this measurement: {', '.join(differ)}")
        return
    try:
        rates = {r["id"]: {int(k): c for k, c in r["correct"].items()}
                 for r in read_log(source)[1:]}
        lines = [dict(id=p["id"], of=set_hash([p]), samples=k, correct=c)
                 for p in problems for k, c in rates[p["id"]].items()]
        lines.sort(key=lambda r: r["samples"])  # as `measure` comes to them
        faults = {key: header[key] for key in ("verifier_timeouts", "verifier_errors")}
        lines[0] |= {key: value for key, value in faults.items() if value}
        header |= now | {"from": str(source)}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise BadInput(f"{source}: not whole; get it anew, or measure with "
                       "--remeasure=true") from None
    with aside(path) as part:
        part.write_text("".join(json.dumps(r) + "\n" for r in [header, *lines]))
    print(f"{source}: measured with these weights, problems and settings, and taken from there "
          "(--remeasure=true measures anew)")


def measure(problems, prompts, engine, cfg, folder):
    """Count right answers in cfg["s"] rollouts of every problem, then s at a time, up to s_zero, for those whose level is open.

    prompts: the problems' token ids; engine: a function that opens it, called where there is something to measure. Returns
    {id: {samples: right}} with what stands after each helping, and what the verifier gave up on. Each helping is a line of
    pass_rates.jsonl as soon as it is there, and what is there or in a shard's file is not measured again. A problem's rollouts depend on
    its id alone, so the numbers are the same however often the work was cut off. Raises BadInput where it was measured otherwise.
    """
    from tqdm import tqdm
    path = folder / f"pass_rates{cfg['shard'] and '.' + cfg['shard'].replace('/', 'of')}.jsonl"
    counts, prompts = {p["id"]: {0: 0} for p in problems}, {p["id"]: ids for p, ids in zip(problems, prompts)}
    levels = tuple(cfg["levels"].split())
    faults = dict(verifier_timeouts=0, verifier_errors=0)
    header = dict(type="header", **settings(cfg))
    folder.mkdir(parents=True, exist_ok=True)
    of = {p["id"]: set_hash([p]) for p in problems}
    for there in folder.glob("pass_rates*.jsonl"):
        for i, r in enumerate(read_log(there)):
            if i == 0 and r.get("type") != "header":
                raise BadInput(f"{there}: by an earlier version, which did not say how it measured; give another --out, or remove it")
            if r.get("type") == "header":
                differ = [f"{key}={r[key]} there, {header[key]} now" for key in r if header.get(key, r[key]) != r[key]]
                if differ:
                    raise BadInput(f"{there}: measured otherwise: {', '.join(differ)}; give another --out, or remove it")
            elif of.get(r["id"]) == r["of"]:  # else it is of another problem that had this id
                counts[r["id"]][r["samples"]] = r["correct"]
                faults = {key: value + r.get(key, 0) for key, value in faults.items()}
    with open(path, "ab", buffering=0) as file:
        os.truncate(path, path.read_bytes().rfind(b"\n") + 1)  # half a line of a killed measurement
        if not os.fstat(file.fileno()).st_size:
            append(file, header)
        while True:
            state = {p["id"]: latest(counts[p["id"]], cfg) for p in problems}  # (right, drawn)
            todo = [p for p in problems if state[p["id"]][1] == 0] or \
                   [p for p in problems if cfg["s_zero"] and is_open(*state[p["id"]], cfg["s_zero"], levels)]
            if not todo:
                return counts, faults
            drawn = min(state[p["id"]][1] for p in todo)
            todo = [p for p in todo if state[p["id"]][1] == drawn]
            goal = min(drawn + cfg["s"], cfg["s_zero"]) if drawn else cfg["s"]
            per_call = max(1, cfg["gen_batch"] // (goal - drawn))
            generator = engine()
            for i in tqdm(range(0, len(todo), per_call), desc=f"{goal} rollouts for {len(todo)} problems", mininterval=1):
                batch = todo[i:i + per_call]
                seeds = [rollout_seed("difficulty", p["id"], goal) for p in batch]
                rollouts = generator.generate([prompts[p["id"]] for p in batch], goal - drawn, seeds)
                rewards, bad = grade(batch, rollouts, generator.tokenizer, cfg)
                bad = {key: value for key, value in bad.items() if value}
                for p, right in zip(batch, rewards.sum(1).int().tolist()):
                    counts[p["id"]][goal] = state[p["id"]][0] + right
                    append(file, dict(id=p["id"], of=of[p["id"]], samples=goal, correct=counts[p["id"]][goal]) | bad)
                    faults = {key: value + bad.get(key, 0) for key, value in faults.items()}
                    bad = {}  # a batch's faults stand in its first line


def make_splits(problems, counts, cfg):
    """Problems with their counts -> {split name: {"train": [...], "val": [...]}}, bands by avg@s, levels by avg@s_zero.

    The validation problems of a split are its first n_val in one random order of all problems. No split trains on one of them,
    whichever split it validates: whoever trains on one split can be evaluated on every other. `mixed` is half Hard, half Easy.
    """
    order = []
    for p in random.Random("splits").sample(problems, len(problems)):
        right, drawn = latest(counts[p["id"]], cfg)
        order.append(dict(p, pass_rate=counts[p["id"]][cfg["s"]] / cfg["s"], samples=drawn, correct=right))
    groups = {name: [p for p in order if low <= p["pass_rate"] <= high] for name, (low, high) in BANDS.items()}
    levels = tuple(cfg["levels"].split()) if cfg["s_zero"] else ()
    for name in LEVELS:
        groups[name] = [p for p in order if levels and level_of(p["correct"], p["samples"], cfg["s_zero"], levels)[0] == name]
    held = {p["id"] for group in groups.values() for p in group[:cfg["n_val"]]}
    splits = {name: dict(val=group[:cfg["n_val"]], train=[p for p in group if p["id"] not in held]) for name, group in groups.items()}
    splits["mixed"] = {part: [p for pair in zip(splits["hard"][part], splits["easy"][part]) for p in pair] for part in ("val", "train")}
    splits["mixed"]["val"] = splits["mixed"]["val"][:cfg["n_val"]]
    return splits


def draw_difficulty(rates, samples, splits, s_zero, path, title):
    """Histogram of pass rates (one number a problem) with the bands of the splits and their sizes."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    fig, ax = plt.subplots(figsize=(9, 4.2), dpi=150, layout="constrained")
    for (name, (low, high)), colour in zip(BANDS.items(), ("#0072B2", "#D55E00", "#009E73")):
        size = {part: len(splits[name][part]) for part in ("train", "val")}
        ax.axvspan(low - (0.02 if low == 0 else 0), high, color=colour, alpha=0.16, lw=0,
                   label=f"{name.replace('_', ' ')} [{low:g}, {high:g}]: {size['train']:,} train + {size['val']:,} val")
    ax.hist(rates, bins=[(i - 0.5) / samples for i in range(samples + 2)], color="0.25", rwidth=0.7)
    for name in LEVELS:
        if any(splits[name].values()):
            train, val = len(splits[name]["train"]), len(splits[name]["val"])
            ax.plot([], [], " ", label=f"{name.replace('_', ' ')} by {s_zero}: {train:,} train + {val:,} val")
    ax.set(xlabel="pass rate of a problem over the rollouts", ylabel="problems", title=title, xlim=(-0.03, 1.03))
    ax.legend(frameon=False)
    with aside(path) as part:
        fig.savefig(part)
    plt.close(fig)


def main(argv):
    shipping = argv[:1] == ["ship"]
    cfg = parse(argv[shipping:], __doc__)
    problems = read_problems(cfg["problems"])
    folder = Path(cfg["out"] or Path(cfg["data"]) / "splits" / Path(cfg["model"]).name)
    if 0 < cfg["s_zero"] < cfg["s"]:
        raise BadInput(f"--s_zero={cfg['s_zero']}: must be 0 or at least s={cfg['s']}")
    tokenizer, name = load_tokenizer(cfg["model"]), engine_name(cfg)
    engine = functools.cache(lambda: open_engine(name, cfg["model"], cfg, cfg["device"]))
    prompts = tokenize(problems, tokenizer)
    fits = [0 < len(ids) <= cfg["max_prompt_tokens"] for ids in prompts]  # prepare.py left those out by its model's tokenizer
    if not any(fits):
        raise BadInput(f"--max_prompt_tokens={cfg['max_prompt_tokens']}: no prompt of {cfg['problems']} is as short")
    over_long = fits.count(False)
    if over_long:
        print(f"{cfg['problems']}: {over_long} of {len(fits)} prompts are over --max_prompt_tokens={cfg['max_prompt_tokens']}, left out")
    problems, prompts = [[x for x, fit in zip(xs, fits) if fit] for xs in (problems, prompts)]
    rates = folder / "pass_rates.jsonl"
    if not cfg["remeasure"]:
        take(problems, cfg, folder)
    elif "from" in header_of(rates):
        rates.unlink()
    before = read_json(folder / "difficulty.json") if (folder / "difficulty.json").exists() else {}
    for there in (before, header_of(rates)):
        if there.get("s_zero") and there["set_hash"] == set_hash(problems):
            # levels that are there stay, with what they hold out
            names = set(there.get("levels", "").split())
            if cfg["s_zero"]:
                names |= set(cfg["levels"].split())
            cfg = dict(cfg, s_zero=max(cfg["s_zero"], there["s_zero"]),
                       levels=" ".join(name for name in LEVELS if name in names))
    if cfg["shard"]:
        i, k = map(int, cfg["shard"].split("/"))
        measure(problems[i::k], prompts[i::k], engine, cfg, folder)
        print(f"{folder}: shard {cfg['shard']} is measured")
        return
    counts, faults = measure(problems, prompts, engine, cfg, folder)
    if shipping:
        ship(problems, counts, faults, cfg)
    splits = make_splits(problems, counts, cfg)
    rates = [counts[p["id"]][cfg["s"]] / cfg["s"] for p in problems]
    title = f"{Path(cfg['model']).name}: {len(problems):,} problems, {cfg['s']} rollouts each at temperature {cfg['temperature']:g}"
    draw_difficulty(rates, min(cfg["s"], 40), splits, cfg["s_zero"], folder / "difficulty.png", title)
    print(f"{title}: mean {sum(rates) / len(rates):.3f}")
    drawn = [latest(c, cfg)[1] for c in counts.values()]
    rollouts, all_of_them = sum(drawn), len(problems) * max(cfg["s"], cfg["s_zero"])
    if cfg["s_zero"]:
        second = sum(k > cfg["s"] for k in drawn)
        print(f"  levels by {cfg['s_zero']} rollouts: {second:,} problems were open after {cfg['s']}; {rollouts:,} rollouts in all "
              f"instead of {all_of_them:,}, {1 - rollouts / all_of_them:.0%} saved")
    if any(faults.values()):
        print("  graded 0: " + ", ".join(f"{value} {key.replace('_', ' ')}" for key, value in faults.items()))
    sizes = {}
    for name, split in splits.items():
        sizes[name] = {part: len(split[part]) for part in split}
        note = ""
        if name in LEVELS and not (cfg["s_zero"] and name in cfg["levels"].split()):
            note = "   not asked for (--s_zero, --levels)"
        elif not split["train"] or len(split["val"]) < cfg["n_val"]:
            nothing = "" if split["train"] else ", none to train on"
            note = f"   fewer than --n_val={cfg['n_val']} to validate on{nothing}: measure more problems"
        print(f"  {name:15s} {sizes[name]['train']:6d} train {sizes[name]['val']:6d} val{note}")
        for part in split:
            if split[part]:
                write_problems(folder / f"{name}_{part}.jsonl", split[part])
            else:  # one of an earlier measurement
                (folder / f"{name}_{part}.jsonl").unlink(missing_ok=True)
    save_json(folder / "difficulty.json", dict(model=cfg["model"], problems=cfg["problems"], set_hash=set_hash(problems), sizes=sizes,
                                               over_long=over_long, rollouts=rollouts, saved=all_of_them - rollouts, **faults,
                                               temperature=cfg["temperature"], s=cfg["s"], s_zero=cfg["s_zero"], levels=cfg["levels"]))
    print(f"  {folder}/difficulty.png")


if __name__ == "__main__":
    entry(main)
