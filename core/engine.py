"""core/engine.py: generate rollouts and their log-probs from prompts, by transformers or vLLM.

    model, tokenizer = load_model("data/arithmetic/base")
    engine = open_engine("hf", "data/arithmetic/base", cfg, model.device, model, tokenizer)
    rollouts = engine.generate(prompts, n, seeds)   # dict of tensors, see `generate`
    engine.stream(prompts, n, seeds)                # the same rollouts, as their prompts finish
    engine.load(named_tensors)                      # the trainer's weights after each update
    engine.sleep()                                  # frees GPU memory until the next load
    engine.quit = signals                           # a list; if it is not empty, raise Stopped

HFEngine and VLLMEngine both have the methods generate, stream, load and sleep. Training uses the
token ids that the engine sampled, never text that was tokenized again. A rollout depends only on
the seed of its prompt and on its index among the prompt's rollouts, so neither the batch size nor
the other prompts change it.
"""
import contextlib
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
                         load_model, load_tokenizer, recomputes)


class Stopped(Exception):
    """Raised during generation if the process was asked to stop; the call returns no rollouts."""


# -------------------------------------------------------------------------------------------------
# The engines


def set_threads(cfg):
    """Set how many threads torch will use, and let idle threads sleep.

    Call this function before torch is imported.
    Without a GPU the default is one thread, because two runs with one thread each are faster than
    one run with two threads. Two threads also make the last bits of the results differ each time
    that the same command is started. Idle threads sleep, because spinning threads make every other
    process many times slower. OMP_NUM_THREADS, OMP_WAIT_POLICY and --threads override the defaults.
    """
    if cfg["threads"]:
        os.environ["OMP_NUM_THREADS"] = str(cfg["threads"])
    elif cfg["device"] == "cpu" or not visible_gpus():
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def engine_name(cfg):
    """Return "hf" or "vllm", the engine that --engine selects, without importing vLLM.

    --engine=auto selects vllm on a GPU and hf on a CPU. There is no fallback from vllm to hf. Call
    this function before torch is imported, because it sets the number of threads.

    Raises BadInput in these cases:
    - the engine is not installed or does not accept the temperature;
    - with --device=cuda, torch sees no GPU;
    - with --device=auto, the machine has GPUs but torch sees none.
    """
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
    if name == "vllm" and cfg["temperature"] > 2:
        raise BadInput(f"--temperature={cfg['temperature']}: vLLM accepts at most 2; lower it or "
                       "use --engine=hf")
    return name


def open_engine(name, path, cfg, device="auto", model=None, tokenizer=None):
    """Return an HFEngine (name = hf) or a VLLMEngine (name = vllm) for the model at `path`.

    model: the trained model, which was loaded from `path`, or None if nothing is trained in this
    process; vLLM then gets the whole GPU. If `model` is on the meta device, the engine has no
    useful weights before its first `load`. Raises BadInput if the model cannot be loaded.
    """
    alone = model is None
    if alone:
        check_lengths(path, cfg)
    if name == "vllm" and not is_checkpoint(path):
        # a training run on several ranks calls `load` before its first rollout, so the engine need
        # not read the weights
        load = "dummy" if WORLD > 1 and not alone else "auto"
        return VLLMEngine(path, tokenizer or load_tokenizer(path), cfg, load, alone=alone)
    if alone:
        model, tokenizer = load_model(path, "cpu" if name == "vllm" else device)
        device = model.device
    if name == "vllm":  # vLLM cannot read our checkpoints, so we pass the weights from memory
        engine = VLLMEngine(path, tokenizer, cfg, "dummy", alone)
        if model.device.type != "meta":
            engine.load(full_weights(model))
        return engine
    return HFEngine(model, tokenizer, cfg, device)


class HFEngine:
    """The transformers engine. On one CPU rank in fp32 it decodes with the trained model itself.

    In four cases it decodes with a copy of the model, which `load` updates:
    - on a GPU;
    - in bf16, because the trained weights are in fp32;
    - with several ranks, because the trained weights are sharded;
    - with activation checkpointing, because checkpointed layers use no cache.
    If `model` is on the meta device, the copy is on `device` and has no useful weights before
    `load`.
    """

    def __init__(self, model, tokenizer, cfg, device=None):
        self.model, self.tokenizer, self.cfg, self.quit = model, tokenizer, cfg, ()
        if "past_key_values" not in inspect.signature(model.forward).parameters:
            raise BadInput(f"--model={model.name_or_path}: models of kind "
                           f"{model.config.model_type} take no cache of keys and values, which "
                           "--engine=hf needs to decode; --engine=vllm may run it")
        device = device or model.device
        bf16 = is_bf16(cfg["dtype"], device)
        cuda = str(device).startswith("cuda")
        self.is_copy = cuda or bf16 or WORLD > 1 or recomputes(cfg, device)
        if self.is_copy:
            self.model, self.trained = lora.freeze(copy.deepcopy(model), bf16), None
            if model.device.type == "meta":
                self.model.to_empty(device=device).tie_weights()
                # the trained model's buffers have no values yet, so `load` copies the buffers later
                self.trained = model
            self.model.to(device)

    def generate(self, prompts, n, seeds, progress=None):
        return generate(self.model, self.tokenizer, prompts, n, seeds, self.cfg, progress,
                        self.quit)

    def stream(self, prompts, n, seeds):
        """Yield (prompt indices, rollouts of these prompts) for `gen_batch` rollouts at a time."""
        per_call = max(1, self.cfg["gen_batch"] // n)
        for first in range(0, len(prompts), per_call):
            js = range(len(prompts))[first:first + per_call]
            yield js, self.generate([prompts[j] for j in js], n, [seeds[j] for j in js])

    def load(self, weights):
        """Copy (name, tensor) pairs of the trained model into the engine's copy, if it has one."""
        if self.is_copy:
            targets = dict(self.model.named_parameters()) | dict(self.model.named_buffers())
            buffers = self.trained.named_buffers() if self.trained else ()
            for name, weight in itertools.chain(weights, buffers):
                targets[name].copy_(weight)

    def sleep(self):
        """Do nothing: between calls this engine holds no cache that could be freed."""


def free_memory_share():
    """Return the share of this GPU's memory that vLLM may use if no trainer shares the GPU.

    The share is at most 0.9. It is less if other processes, such as a desktop, hold GPU memory,
    because vLLM refuses to start if it may use more memory than is free.
    """
    import torch
    free, total = torch.cuda.mem_get_info()
    return min(0.9, int(100 * free / total - 1) / 100)


class VLLMEngine:
    """vLLM 0.32 in this process, with the model at `path`.

    load="auto": the engine reads the weights at `path` when it is created.
    load="dummy": the engine has no useful weights until its method `load` is called.
    alone: True if no trainer shares the GPU. Then the engine never sleeps.

    If tensor_parallel = 1, each rank has its own engine. Otherwise, each group of `tensor_parallel`
    consecutive ranks shares one engine, and each GPU of the group holds a part of every layer.

    The last bits of log-probs depend on which rollouts are decoded together. A resumed run may
    decode other rollouts together, so it may differ from an uninterrupted run by rounding.
    """

    def __init__(self, path, tokenizer, cfg, load="auto", alone=False):
        self.tokenizer, self.cfg, self.asleep, self.quit = tokenizer, cfg, False, ()
        longest = cfg["max_prompt_tokens"] + cfg["max_new_tokens"]
        # set vLLM's environment variables now, because vLLM reads them when it is imported
        for key, value in dict(VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_NO_USAGE_STATS="1",
                               VLLM_LOGGING_LEVEL="ERROR",
                               VLLM_LOGGING_STREAM="ext://sys.stderr").items():
            os.environ.setdefault(key, value)
        cache = os.path.expanduser("~/.cache/vllm")
        with contextlib.suppress(OSError):
            os.makedirs(cache, exist_ok=True)
        # if vLLM cannot write to its cache folder, it prints a traceback for each file
        if not os.access(cache, os.W_OK):
            os.environ.setdefault("VLLM_CACHE_ROOT", tempfile.mkdtemp(prefix="vllm"))
        with load_errors(path, "vLLM"):
            from vllm.platforms import current_platform
            if current_platform.is_cpu():
                import vllm._custom_ops as ops
                from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator

                # ranks exchange data by gloo, because the shared memory that vLLM would use has the
                # same name in all runs on a machine, so two runs would collide
                CpuCommunicator._all_group_ranks_share_shm_group_name = lambda _: False
                # no oneDNN, because it keeps packed copies of weights that `load` would not update
                ops._supports_onednn = False
                # vLLM's default compile backend needs g++, which may be missing
                current_platform.simple_compile_backend = "eager"
                # no chunked prefill, because it rewinds random generators, and those of a CPU
                # cannot be rewound
                more = dict(enforce_eager=True, kv_cache_memory_bytes=2 ** 28,
                            block_size=32, enable_chunked_prefill=False,
                            max_num_batched_tokens=max(4096, longest))
            else:
                more = dict(gpu_memory_utilization=cfg["gpu_memory"] or free_memory_share(),
                            enable_sleep_mode=not alone)
            bf16 = is_bf16(cfg["dtype"], "cpu" if current_platform.is_cpu() else "cuda")
            more["dtype"] = "bfloat16" if bf16 else "float32"
            self.group = None  # the process group of the ranks that share this engine
            if WORLD > 1:
                size = cfg["tensor_parallel"]
                more.update(distributed_executor_backend="external_launcher",
                            tensor_parallel_size=size)
                if size > 1:
                    import torch.distributed as dist
                    self.group, _ = dist.new_subgroups(size, backend="gloo")
            # the default gen_batch is at most 512, because vLLM uses CUDA graphs only for up to 512
            # rollouts at once (more on Blackwell) and is slower without them. On an H100 with a
            # 0.5B model it made 28,000 tokens/s at 256 rollouts and 20,000 tokens/s at 1,024
            from vllm import LLM
            preload = os.environ.get("LD_PRELOAD", "")
            self.llm = LLM(str(path), load_format=load, seed=0, max_model_len=longest,
                           max_num_seqs=cfg["gen_batch"], enable_prefix_caching=True,
                           logprobs_mode="processed_logprobs", use_tqdm_on_load=False, **more)
        # vLLM's CPU build adds libraries to LD_PRELOAD for its worker processes. We start no
        # workers, so restore the old value. Otherwise, if a library's path has a space, the linker
        # splits the path there, and each process that starts later prints a warning
        os.environ["LD_PRELOAD"] = preload
        settings = self.llm.model_config.try_get_generation_config()
        self.stop = stop_ids(settings.get("eos_token_id"), tokenizer)
        self.can_sleep = bool(more.get("enable_sleep_mode"))

    def generate(self, prompts, n, seeds, progress=None):
        """Return rollouts in the format of the function `generate`.

        The random generator of rollout i of prompt j has the seed seeds[j] // 2 + i.
        """
        outputs = {}
        for j, outs in self.run_prompts(prompts, n, seeds):
            outputs[j] = outs
            if progress is not None:
                progress.update(n)
        return self.to_tensors([out for j in range(len(prompts)) for out in outputs[j]])

    def stream(self, prompts, n, seeds):
        """Yield ([j], rollouts of prompt j) in the order in which the prompts finish."""
        for j, outs in self.run_prompts(prompts, n, seeds):
            yield [j], self.to_tensors(outs)

    def run_prompts(self, prompts, n, seeds):
        """Yield (j, vLLM's n outputs for prompt j) for the prompts of this rank.

        Ranks that share an engine must make the same requests in the same order. So each rank
        requests the prompts of all ranks of its group, but yields only the outputs for its own
        prompts.
        """
        parts = gather_group(self.group, list(zip(prompts, seeds)))
        first = 0 if self.group is None else sum(
            len(part) for part in parts[:self.group.rank()])
        pairs = [pair for part in parts for pair in part]
        for j, outs in self.run_requests(*(list(zip(*pairs)) or ([], [])), n):
            if first <= j < first + len(prompts):
                yield j - first, outs

    def run_requests(self, prompts, seeds, n):
        """Yield (j, vLLM's n outputs for prompt j) in the order in which the prompts finish.

        About twice `gen_batch` requests are queued at a time, so that vLLM can begin a rollout when
        another ends. They are not all queued at once, because a large problem set can need a
        million requests. Raises Stopped after a stop signal.
        """
        from vllm import SamplingParams
        sampling = dict(n=n, temperature=self.cfg["temperature"], top_p=self.cfg["top_p"],
                    max_tokens=self.cfg["max_new_tokens"], ignore_eos=True,
                    stop_token_ids=self.stop, logprobs=0, flat_logprobs=True, detokenize=False)
        core, todo, running = self.llm.llm_engine, list(range(len(prompts)))[::-1], {}
        steps = 0
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
                requests, steps = core.step(), steps + 1
                # ranks that share an engine must stop together. They exchange `quit` only every 16
                # steps, because the exchange takes time
                if (self.group is None or steps % 16 == 0) and any(
                        gather_group(self.group, bool(self.quit))):
                    raise Stopped
                for request in requests:
                    if request.finished:
                        yield running.pop(request.request_id), request.outputs
        finally:
            core.abort_request(list(running))  # requests that still run if the caller stops early

    def to_tensors(self, outs):
        """Return vLLM's outputs as a dict of tensors, in the format of the function `generate`."""
        import torch
        return dict(tokens=padded([out.token_ids for out in outs], self.tokenizer.pad_token_id),
                    logps=padded([out.logprobs.logprobs for out in outs], 0.0),
                    length=torch.tensor([len(out.token_ids) for out in outs]),
                    stopped=torch.tensor([out.finish_reason == "stop" for out in outs]))

    def load(self, weights):
        """Load (name, tensor) pairs of all parameters.

        Cached keys and values are dropped, because they were computed with the old weights.
        """
        if self.asleep:
            self.llm.wake_up(tags=["weights"])
        missed, = self.llm.apply_model(
            lambda model: set(dict(model.named_parameters())) - model.load_weights(weights))
        assert not missed, f"`weights` lacks vLLM's parameters {missed}"
        if self.asleep:
            self.llm.wake_up(tags=["kv_cache"])
            self.asleep = False
        self.llm.reset_prefix_cache()

    def sleep(self):
        """Free the GPU memory of weights and cache; `load` allocates it again."""
        if self.can_sleep:
            self.llm.sleep(level=2)
            self.asleep = True


def gather_group(group, value):
    """Return [the `value` of each rank of a process group], or [value] if `group` is None."""
    if group is None:
        return [value]
    import torch.distributed as dist
    values = [None] * group.size()
    dist.all_gather_object(values, value, group=group)
    return values


def padded(rows, value, side="right"):
    """Stack lists into a tensor (number of lists, longest list), padded with `value` on `side`."""
    import torch
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], True, value, side)


def stop_ids(ids, tokenizer):
    """Return the sorted ids of all tokens that end a response.

    ids: the generation config's eos_token_id, which is one id, a list of ids or None. The
    tokenizer's end token and the token that the chat template puts after an answer are added. They
    are needed if the generation config has only the end token of the base model, because a chat
    model ends its turn with another token.
    """
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
    """Return a 63-bit seed that is a hash of `key`, such as (seed, "train", step, j).

    Training, evaluation and sample.py use different keys, so their rollouts are independent.
    """
    digest = hashlib.sha256(json.dumps(key).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


# -------------------------------------------------------------------------------------------------
# Decoding with transformers


def sample_tokens(logits, u, temperature, top_p):
    """Sample a token per row of logits (R, V) by inverse CDF; return ids (R,) and log-probs (R,).

    u (R,): uniforms in (0, 1]. Each row has its own uniform, so a rollout does not depend on the
    other rollouts in its batch. The log-probs are at `temperature`. If top_p < 1, the log-probs are
    renormalised over the nucleus: the smallest set of most likely tokens whose total probability is
    at least top_p. Needs torch and transformers.
    """
    import torch
    logp = torch.log_softmax(logits.float() / temperature, -1)
    if top_p < 1:
        from transformers import TopPLogitsWarper
        logp = torch.log_softmax(TopPLogitsWarper(top_p)(None, logp), -1)
    cdf = logp.exp().cumsum(-1)
    # multiply u by the sum of the probabilities, which for a large vocabulary is not exactly 1 in
    # fp32
    tokens = (cdf < u[:, None] * cdf[:, -1:]).sum(-1)
    return tokens, logp.gather(-1, tokens[:, None])[:, 0]


def generate(model, tokenizer, prompts, n, seeds, cfg, progress=None, quit=()):
    """Return n rollouts for each prompt, generated by transformers, as a dict of CPU tensors.

    prompts: P lists of token ids. seeds: P ints. cfg: a dict with temperature, top_p,
    max_new_tokens and gen_batch. seeds[j] seeds a table of uniforms for prompt j, and rollout i of
    the prompt uses row i of the table. So a rollout depends neither on `gen_batch` nor on the other
    prompts. Raises Stopped once the list `quit` is not empty. The n rollouts of a prompt are
    consecutive rows of the result, so a reshape to (P, n) gives the groups.
        tokens (P n, T) int64: responses with their stop tokens, padded to the longest, T tokens
        logps (P n, T) float32: log-probs of the tokens, 0 in the padding
        length (P n,) int64: tokens of each response
        stopped (P n,) bool: whether a response ended with a stop token, not at max_new_tokens
    """
    import torch
    T, pad, P = cfg["max_new_tokens"], tokenizer.pad_token_id, len(prompts)
    stop = torch.tensor(stop_ids(model.generation_config.eos_token_id, tokenizer),
                        device=model.device)
    # one call of `decode` generates up to `rows` rollouts for each of `per_call` prompts
    rows = min(n, cfg["gen_batch"])
    per_call = max(1, cfg["gen_batch"] // n)
    tokens, logps = torch.full((P, n, T), pad), torch.zeros(P, n, T)
    length = torch.zeros(P, n, dtype=torch.long)
    stopped = torch.zeros(P, n, dtype=torch.bool)
    order = sorted(range(P), key=lambda j: -len(prompts[j]))  # similar lengths: less padding
    for first in range(0, P, per_call):
        js = order[first:first + per_call]
        # uniforms in (0, 1] for J prompts, shape (J, n, T)
        u = 1 - torch.stack([torch.rand(n, T, generator=torch.Generator().manual_seed(seeds[j]))
                             for j in js])
        ids = padded([prompts[j] for j in js], pad, "left").to(model.device)
        mask = padded([[1] * len(prompts[j]) for j in js], 0, "left").to(model.device)
        for start in range(0, n, rows):
            part = slice(start, min(start + rows, n))
            out = decode(model, ids, mask, u[:, part].flatten(0, 1).to(model.device), stop, pad,
                         cfg["temperature"], cfg["top_p"], quit)
            for whole, piece in zip((tokens, logps, length, stopped), out):
                whole[js, part] = piece.unflatten(0, (len(js), -1)).cpu()
            if progress is not None:
                progress.update(u[:, part, 0].numel())
    longest = int(length.max())
    return dict(tokens=tokens.flatten(0, 1)[:, :longest], logps=logps.flatten(0, 1)[:, :longest],
                length=length.flatten(), stopped=stopped.flatten())


def decode(model, ids, mask, u, stop, pad, temperature, top_p, quit=()):
    """Return (tokens, logps, length, stopped) of R rollouts, R / J for each of J prompts.

    tokens and logps are (R, T). length and stopped are (R,). `generate` says what they contain. The
    model runs over each prompt only once.
        ids (J, L): the prompts, padded on the left
        mask (J, L): 1 at the tokens of a prompt, 0 in the padding
        u (R, T): uniforms, one per token
        stop: the ids of the tokens that end a response
    Needs sample_tokens, Stopped, torch and transformers.
    """
    import torch
    from transformers import DynamicCache
    (R, T), r = u.shape, u.shape[0] // ids.shape[0]
    tokens, logps = u.new_full((R, T), pad, dtype=torch.long), torch.zeros_like(u)
    length = tokens.new_full((R,), T)
    stopped = torch.zeros(R, dtype=torch.bool, device=u.device)
    cache = DynamicCache(config=model.config)
    padded = not bool(mask.all())  # without padding, attention needs no mask and is faster
    position = (mask.cumsum(-1) - 1).clamp(min=0)
    # a bf16 model needs autocast, because its buffers stay in fp32
    bf16 = model.dtype == torch.bfloat16
    # inference mode is faster than no_grad. The returned tensors are created before the block,
    # because the update cannot use tensors that were created in inference mode
    with torch.inference_mode(), torch.autocast(model.device.type, torch.bfloat16, enabled=bf16):
        # pass logits_to_keep as an index tensor. With an int, the last hidden states would be a
        # slice. To multiply a slice by the frozen output weights, torch would copy the weights once
        # per prompt
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
            # drop ended rows only when a quarter has ended, because each drop copies the cache
            if left <= 0.75 * len(row):
                keep = alive.nonzero()[:, 0]
                cache.reorder_cache(keep)  # batch_select_indices skips linear attention
                row, token, mask, position = row[keep], token[keep], mask[keep], position[keep]
            mask, position = torch.cat([mask, mask.new_ones(len(row), 1)], 1), position + 1
            logits = model(input_ids=token[:, None], attention_mask=mask if padded else None,
                           position_ids=position, past_key_values=cache,
                           logits_to_keep=1).logits[:, -1]
    return tokens, logps, length, stopped
