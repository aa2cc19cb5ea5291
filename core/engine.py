"""core/engine.py: generate rollouts and their log-probs from prompts, by transformers or vLLM.

    model, tokenizer = load_model("data/arithmetic/base")
    engine = open_engine("hf", "data/arithmetic/base", cfg, model.device, model, tokenizer)
    rollouts = engine.generate(prompts, n, seeds)   # dict of tensors, see HFEngine.generate
    engine.stream(prompts, n, seeds)                # the same rollouts, as their prompts finish
    engine.load(named_tensors)                      # the trainer's weights after each update
    engine.sleep()                                  # frees GPU memory until the next load
    engine.quit = signals                           # a list; if it is not empty, raise Stopped

HFEngine and VLLMEngine have the same methods. Training uses the token ids that the engine sampled.
A rollout depends only on the seed of its prompt and on its index among the prompt's rollouts.
"""
import copy
import hashlib
import importlib.util
import inspect
import itertools
import json
import os
import tempfile

from config import BadInput
from core import lora
from core.machine import visible_gpus
from core.models import (WORLD, check_lengths, full_weights, is_bf16, is_checkpoint, load_errors,
                         load_model, load_tokenizer)


class Stopped(Exception):
    """Raised during generation if the process was asked to stop."""


# ---- The engines ---------------------------------------------------------------------------------

def set_threads(cfg):
    """Set how many threads torch will use, and let idle threads sleep, before torch is imported.

    Without a GPU the default is one thread, because two runs of one thread are faster than one of
    two, whose last bits also differ from start to start.
    """
    if cfg["threads"]:
        os.environ["OMP_NUM_THREADS"] = str(cfg["threads"])
    elif cfg["device"] == "cpu" or not visible_gpus():
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def engine_name(cfg):
    """Return "hf" or "vllm", the engine that --engine selects. Call it before torch is imported,
    because it sets the number of threads. Raise BadInput if the engine is not installed, or if
    torch sees no GPU although there is one, or although --device=cuda is given."""
    set_threads(cfg)
    import torch
    if cfg["threads"]:  # torch reads OMP_NUM_THREADS only when it is imported
        torch.set_num_threads(cfg["threads"])
    name, on_gpu = cfg["engine"], cfg["device"] != "cpu" and torch.cuda.is_available()
    if cfg["device"] == "cuda" and not on_gpu:
        raise BadInput("--device=cuda: torch sees no GPU here")
    if cfg["device"] == "auto" and not on_gpu and visible_gpus():
        raise BadInput("--device=auto: there are GPUs here, but torch sees none; `python core/"
                       "probe.py` prints the reason, --device=cpu runs on the CPU")
    if name == "auto":
        name = "vllm" if on_gpu else "hf"
    if name == "vllm" and importlib.util.find_spec("vllm") is None:
        instead = "" if cfg["engine"] == "vllm" else (
            "; --engine=hf uses transformers, which is several times slower")
        raise BadInput(f"--engine={cfg['engine']}: vLLM is not installed "
                       f"(pip install -r requirements-vllm.txt){instead}")
    return name


def open_engine(name, path, cfg, device="auto", model=None, tokenizer=None, awake=False):
    """Return an HFEngine (hf) or a VLLMEngine (vllm) for the model at `path`, or raise BadInput.

    model: the trained model, or None if nothing is trained in this process; vLLM then gets the
    whole GPU. If `model` is on the meta device, the engine needs a `load` first. awake: vLLM never
    sleeps, although a model is trained.
    """
    alone, from_memory = model is None, is_checkpoint(path)  # vLLM cannot read our checkpoints
    if alone:
        check_lengths(path, cfg)
    if alone and (name == "hf" or from_memory):
        model, tokenizer = load_model(path, "cpu" if name == "vllm" else device)
        device = model.device
    if name == "hf":
        return HFEngine(model, tokenizer, cfg, device, alone)
    # a training run on several ranks calls `load` before its first rollout
    load = "dummy" if from_memory or (WORLD > 1 and not alone) else "auto"
    engine = VLLMEngine(path, tokenizer or load_tokenizer(path), cfg, load, awake or alone)
    if from_memory and model.device.type != "meta":
        engine.load(full_weights(model))
    return engine


class HFEngine:
    """The transformers engine. On one CPU rank in fp32 it decodes with the trained model itself.

    On a GPU, in bf16 (trained weights are fp32), with several ranks (they are sharded) and with
    activation checkpointing (such layers use no cache) it has a copy, which `load` updates. own: it
    may change `model`, which nothing trains, and needs no copy.
    """

    def __init__(self, model, tokenizer, cfg, device=None, own=False):
        self.model, self.tokenizer, self.cfg, self.quit = model, tokenizer, cfg, ()
        if "past_key_values" not in inspect.signature(model.forward).parameters:
            raise BadInput(f"--model={model.name_or_path}: models of kind "
                           f"{model.config.model_type} take no cache of keys and values, which "
                           "--engine=hf needs to decode; --engine=vllm may run it")
        device = device or model.device
        bf16 = is_bf16(cfg["dtype"], device)
        self.trained = None
        if (str(device).startswith("cuda") or bf16 or WORLD > 1
                or cfg["activation_checkpointing"] == "true"):
            self.trained = model
            self.model = lora.freeze(model if own else copy.deepcopy(model), bf16)
            if model.device.type == "meta":
                self.model.to_empty(device=device).tie_weights()  # `load` gives it values
            self.model.to(device)

    def generate(self, prompts, n, seeds, progress=None):
        """Return n rollouts for each prompt, generated by transformers, as a dict of CPU tensors.

        prompts: P lists of token ids. Rollout i of prompt j uses row i of a table of uniforms with
        the seed seeds[j]. The n rollouts of a prompt are consecutive rows of the result:
            tokens (P n, T) int64: responses with their stop tokens, padded to the longest, T tokens
            logps (P n, T) float32: log-probs of the tokens, 0 in the padding
            length (P n,) int64: tokens of each response
            stopped (P n,) bool: whether a response ended with a stop token, not at max_new_tokens
        """
        return joined(self.stream(prompts, n, seeds), n, progress)

    def stream(self, prompts, n, seeds):
        """Yield (prompt indices, rollouts of these prompts) for `gen_batch` rollouts at a time, the
        longest prompts first, because similar lengths need less padding."""
        import torch
        model, cfg, T = self.model, self.cfg, self.cfg["max_new_tokens"]
        stop = torch.tensor(stop_ids(model.generation_config.eos_token_id, self.tokenizer),
                            device=model.device)
        per_call = max(1, cfg["gen_batch"] // n)
        order = sorted(range(len(prompts)), key=lambda j: -len(prompts[j]))
        for first in range(0, len(prompts), per_call):
            js = order[first:first + per_call]
            # uniforms in (0, 1] for J prompts, shape (J, n, T)
            u = 1 - torch.stack([torch.rand(n, T, generator=torch.Generator().manual_seed(seeds[j]))
                                 for j in js])
            ids = padded([prompts[j] for j in js], "left").to(model.device)
            mask = padded([[1] * len(prompts[j]) for j in js], "left").to(model.device)
            parts = [decode(model, ids, mask, part.flatten(0, 1).to(model.device), stop,
                            cfg["temperature"], cfg["top_p"], self.quit)
                     for part in u.split(cfg["gen_batch"], 1)]
            tokens, logps, length, stopped = (
                torch.cat([x.unflatten(0, (len(js), -1)) for x in same], 1).flatten(0, 1).cpu()
                for same in zip(*parts))
            longest = int(length.max())
            yield js, dict(tokens=tokens[:, :longest], logps=logps[:, :longest], length=length,
                           stopped=stopped)

    def load(self, weights):
        """Copy (name, tensor) pairs of the trained model into the engine's copy, if it has one."""
        if self.trained is not None:
            targets = dict(self.model.named_parameters()) | dict(self.model.named_buffers())
            # of the buffers, `weights` has only those that are saved
            for name, weight in itertools.chain(weights, self.trained.named_buffers()):
                targets[name].copy_(weight)

    def sleep(self):
        """Do nothing: between calls this engine holds no cache that could be freed."""


class VLLMEngine:
    """vLLM 0.32 in this process, with the model at `path`.

    load="dummy": the engine has no useful weights until its method `load` is called. awake: `sleep`
    frees nothing. Each rank has its own engine. The last bits depend on the batch.
    """

    def __init__(self, path, tokenizer, cfg, load="auto", awake=False):
        import torch
        self.tokenizer, self.cfg, self.asleep, self.quit = tokenizer, cfg, False, ()
        longest = cfg["max_prompt_tokens"] + cfg["max_new_tokens"]
        # vLLM reads these variables when it is imported
        for key, value in dict(VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_NO_USAGE_STATS="1",
                               VLLM_LOGGING_LEVEL="ERROR",
                               VLLM_LOGGING_STREAM="ext://sys.stderr").items():
            os.environ.setdefault(key, value)
        # if vLLM cannot write to its cache folder, it prints a traceback for each file
        if not os.access(os.path.expanduser("~"), os.W_OK):
            os.environ.setdefault("VLLM_CACHE_ROOT", tempfile.mkdtemp(prefix="vllm"))
        with load_errors(path, "vLLM"):
            from vllm.platforms import current_platform
            if current_platform.is_cpu():
                import vllm._custom_ops as ops
                from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator

                # the shared memory that vLLM would use has the same name in all runs of a machine
                CpuCommunicator._all_group_ranks_share_shm_group_name = lambda _: False
                # oneDNN keeps packed copies of weights that `load` would not update
                ops._supports_onednn = False
                # vLLM's default compile backend needs g++, which may be missing
                current_platform.simple_compile_backend = "eager"
                # chunked prefill rewinds random generators, which is impossible on a CPU
                more = dict(enforce_eager=True, kv_cache_memory_bytes=2 ** 28,
                            block_size=32, enable_chunked_prefill=False,
                            max_num_batched_tokens=max(4096, longest))
            else:
                free, total = torch.cuda.mem_get_info()  # vLLM refuses to take more than is free
                share = cfg["gpu_memory"] or min(0.9, int(100 * free / total - 1) / 100)
                more = dict(gpu_memory_utilization=share, enable_sleep_mode=not awake)
                if "kv_cache_bytes" in cfg:  # vLLM would count the memory of other runs as its own
                    more["kv_cache_memory_bytes"] = cfg["kv_cache_bytes"]
            bf16 = is_bf16(cfg["dtype"], "cpu" if current_platform.is_cpu() else "cuda")
            more["dtype"] = "bfloat16" if bf16 else "float32"
            if WORLD > 1:
                more.update(distributed_executor_backend="external_launcher")
            # gen_batch is 512, as vLLM's CUDA graphs: 28,000 tokens/s at 256, 20,000 at 1,024
            from vllm import LLM
            preload = os.environ.get("LD_PRELOAD", "")
            self.llm = LLM(str(path), load_format=load, seed=0, max_model_len=longest,
                           max_num_seqs=cfg["gen_batch"], enable_prefix_caching=True,
                           logprobs_mode="processed_logprobs", use_tqdm_on_load=False, **more)
        # vLLM's CPU build adds libraries to LD_PRELOAD; every later process warns of a blank in it
        os.environ["LD_PRELOAD"] = preload
        settings = self.llm.model_config.try_get_generation_config()
        self.stop = stop_ids(settings.get("eos_token_id"), tokenizer)
        self.can_sleep = bool(more.get("enable_sleep_mode"))

    def generate(self, prompts, n, seeds, progress=None):
        """Return rollouts as HFEngine.generate does, with the seeds seeds[j] // 2 + i."""
        return joined(self.stream(prompts, n, seeds), n, progress)

    def stream(self, prompts, n, seeds):
        """Yield ([j], rollouts of prompt j) in the order in which the prompts finish. Twice
        `gen_batch` requests are queued, not a million. Raise Stopped after a stop signal."""
        import torch
        from vllm import SamplingParams
        sampling = dict(n=n, temperature=self.cfg["temperature"], top_p=self.cfg["top_p"],
                    max_tokens=self.cfg["max_new_tokens"], ignore_eos=True,
                    stop_token_ids=self.stop, logprobs=0, flat_logprobs=True, detokenize=False)
        core, todo, running = self.llm.llm_engine, list(range(len(prompts)))[::-1], {}
        try:
            while todo or running:
                while todo and core.get_num_unfinished_requests() < 2 * self.cfg["gen_batch"]:
                    j = todo.pop()
                    # vLLM adds i to the seed of rollout i, and the sum must fit in 63 bits
                    params = SamplingParams(seed=seeds[j] >> 1, **sampling)
                    name, = self.llm.enqueue(dict(prompt_token_ids=prompts[j]), params,
                                             use_tqdm=False)
                    # enqueue returns NUMBER-RANDOM, but the output's request_id is only NUMBER
                    running[name.partition("-")[0]] = j
                requests = core.step()
                if self.quit:
                    raise Stopped
                for request in requests:
                    if request.finished:
                        outs = request.outputs
                        yield [running.pop(request.request_id)], dict(
                            tokens=padded([out.token_ids for out in outs]),
                            logps=padded([out.logprobs.logprobs for out in outs]),
                            length=torch.tensor([len(out.token_ids) for out in outs]),
                            stopped=torch.tensor([out.finish_reason == "stop" for out in outs]))
        finally:
            core.abort_request(list(running))  # requests that still run if the caller stops early

    def load(self, weights):
        """Load (name, tensor) pairs of all parameters, and drop cached keys and values."""
        if self.asleep:
            self.llm.wake_up(tags=["weights"])
        missed, = self.llm.apply_model(
            lambda model: set(dict(model.named_parameters())) - model.load_weights(weights))
        assert not missed, f"`weights` lacks vLLM's parameters {missed}"
        if self.asleep:
            self.llm.wake_up(tags=["kv_cache"])
            self.asleep = False
        done = self.llm.reset_prefix_cache()
        assert done, "vLLM kept keys and values of the old weights"

    def sleep(self):
        """Free the GPU memory of weights and cache; `load` allocates it again."""
        if self.can_sleep:
            self.llm.sleep(level=2)
            self.asleep = True


def joined(stream, n, progress):
    """Return the rollouts of a stream, n per prompt, as one dict in the order of the prompts."""
    import torch
    parts = {}
    for js, rollouts in stream:
        parts.update(zip(js, zip(*[x.split(n) for x in rollouts.values()])))
        if progress is not None:
            progress.update(n * len(js))
    tokens, logps, length, stopped = zip(*[parts[j] for j in sorted(parts)])
    T = int(torch.cat(length).max())
    tokens, logps = (torch.cat([torch.nn.functional.pad(x, (0, T - x.shape[1])) for x in wide])
                     for wide in (tokens, logps))
    return dict(tokens=tokens, logps=logps, length=torch.cat(length), stopped=torch.cat(stopped))


def padded(rows, side="right"):
    """Stack lists into a tensor (number of lists, longest list), padded with 0 on `side`."""
    import torch
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], True, 0, side)


def stop_ids(ids, tokenizer):
    """Return the sorted ids of all tokens that end a response: the generation config's eos_token_id
    (one id, a list or None), which may be the base model's, the tokenizer's and the template's."""
    named = ids if isinstance(ids, list) else [ids]
    return sorted({*named, tokenizer.eos_token_id, end_of_turn(tokenizer)} - {None})


def end_of_turn(tokenizer):
    """Return the id of the token that the chat template puts after an answer, or None."""
    if not tokenizer.chat_template:
        return None
    turns = [dict(role="user", content="Question"), dict(role="assistant", content="Answer")]
    try:
        text = tokenizer.apply_chat_template(turns, tokenize=False)
    except Exception:  # a template is a program and may reject these turns
        return None
    after = text.rpartition("Answer")[2].strip()
    ends = {token.content: i for i, token in tokenizer.added_tokens_decoder.items()}
    return ends.get(max(filter(after.startswith, ends), key=len, default=None))


def rollout_seed(*key):
    """Return a 63-bit seed that is a hash of `key`, such as (seed, "train", step, j). Training,
    evaluation and sample.py use different keys."""
    digest = hashlib.sha256(json.dumps(key).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


# ---- Decoding with transformers ------------------------------------------------------------------

def sample_tokens(logits, u, temperature, top_p):
    """Sample a token per row of logits (R, V) by inverse CDF; return ids (R,) and log-probs (R,).

    u (R,): uniforms in (0, 1], so a rollout does not depend on its batch. The log-probs are at
    `temperature`, renormalised over the nucleus if top_p < 1. Needs torch and transformers.
    """
    import torch
    logp = torch.log_softmax(logits.float() / temperature, -1)
    if top_p < 1:
        from transformers import TopPLogitsWarper
        logp = torch.log_softmax(TopPLogitsWarper(top_p)(None, logp), -1)
    cdf = logp.exp().cumsum(-1)
    # in fp32, the probabilities of a large vocabulary do not sum to 1
    tokens = (cdf < u[:, None] * cdf[:, -1:]).sum(-1)
    return tokens, logp.gather(-1, tokens[:, None])[:, 0]


def decode(model, ids, mask, u, stop, temperature, top_p, quit=()):
    """Return (tokens, logps, length, stopped) of R rollouts, R / J for each of J prompts.

    The results are as in HFEngine.generate. The model runs over each prompt only once.
        ids (J, L): the prompts, padded on the left
        mask (J, L): 1 at the tokens of a prompt, 0 in the padding
        u (R, T): uniforms, one per token
        stop (S,): the ids of the tokens that end a response
    Needs sample_tokens, Stopped, torch and transformers.
    """
    import torch
    from transformers import DynamicCache
    (R, T), r = u.shape, u.shape[0] // ids.shape[0]
    tokens, logps = u.new_zeros((R, T), dtype=torch.long), torch.zeros_like(u)
    length = tokens.new_full((R,), T)
    stopped = torch.zeros(R, dtype=torch.bool, device=u.device)
    cache = DynamicCache(config=model.config)
    padded = not bool(mask.all())  # without padding, attention needs no mask and is faster
    position = (mask.cumsum(-1) - 1).clamp(min=0)
    bf16 = model.dtype == torch.bfloat16  # needs autocast, because its buffers are in fp32
    # the returned tensors are created before inference mode, so that the update can use them
    with torch.inference_mode(), torch.autocast(model.device.type, torch.bfloat16, enabled=bf16):
        # a tensor, because for an int torch would copy the frozen output weights once per prompt
        last = torch.tensor([ids.shape[1] - 1], device=ids.device)
        logits = model(input_ids=ids, attention_mask=mask if padded else None,
                       position_ids=position, past_key_values=cache,
                       logits_to_keep=last).logits[:, -1]
        logits = logits.repeat_interleave(r, 0)  # (R, V)
        cache.reorder_cache(torch.arange(len(ids), device=ids.device).repeat_interleave(r))
        mask, position = mask.repeat_interleave(r, 0), position[:, -1:].repeat_interleave(r, 0)
        row = torch.arange(R, device=u.device)  # which rollout each row of the cache belongs to
        for t in range(T):
            if quit:
                raise Stopped
            token, logp = sample_tokens(logits, u[row, t], temperature, top_p)
            open_ = ~stopped[row]
            tokens[row[open_], t], logps[row[open_], t] = token[open_], logp[open_]
            ended = row[open_ & torch.isin(token, stop)]
            length[ended], stopped[ended] = t + 1, True
            alive = ~stopped[row]
            left = int(alive.sum())
            if left == 0 or t == T - 1:
                break
            # each drop of ended rows copies the cache
            if left <= 0.75 * len(row):
                keep = alive.nonzero()[:, 0]
                cache.reorder_cache(keep)  # batch_select_indices skips linear attention
                row, token, mask, position = row[keep], token[keep], mask[keep], position[keep]
            mask, position = torch.cat([mask, mask.new_ones(len(row), 1)], 1), position + 1
            logits = model(input_ids=token[:, None], attention_mask=mask if padded else None,
                           position_ids=position, past_key_values=cache,
                           logits_to_keep=1).logits[:, -1]
    return tokens, logps, length, stopped
