"""core/engine.py: generate rollouts and their log-probs from prompts, by transformers or vLLM.

    model, tokenizer = load_model("data/arithmetic/base")
    engine = open_engine("hf", "data/arithmetic/base", cfg, model.device, model, tokenizer)
    rollouts = engine.generate(prompts, n, seeds)   # dict of tensors, see `generate`
    engine.stream(prompts, n, seeds)                # the same rollouts, as their prompts finish
    engine.load(named_tensors)                      # the trainer's weights after each update
    engine.sleep()                                  # frees a GPU's memory until the next load
    engine.quit = signals                           # a list; once it is not empty: Stopped

Both engines have these methods and one contract: training uses the engine's token ids, never text
that was tokenized again. A rollout depends only on the seed of its prompt and on its index among
the prompt's rollouts, so neither the batch size nor the other requests change it.
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
from core.models import (WORLD, check_lengths, is_bf16, is_checkpoint, load_model,
                         load_errors, load_tokenizer, recomputes)


class Stopped(Exception):
    """The process was asked to stop during generation; the rollouts of this call are dropped."""


# -------------------------------------------------------------------------------------------------
# The engines


def set_threads(cfg):
    """Set the threads of a process before it imports torch: one on a CPU; waiting threads sleep.

    Two runs with one thread each are faster than two threads in one run. With two threads, the
    results of two starts of one command differ in the last bits. Threads that spin while they wait
    make every other process many times slower.
    OMP_NUM_THREADS, OMP_WAIT_POLICY and --threads override this.
    """
    if cfg["threads"]:
        os.environ["OMP_NUM_THREADS"] = str(cfg["threads"])
    elif cfg["device"] == "cpu" or not visible_gpus():
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def engine_name(cfg):
    """Return hf or vllm for --engine without loading either; to be called before torch is imported.

    auto is vLLM on a GPU and hf on a CPU. If the engine is not installed, or if torch does not see
    a GPU of this machine, raise BadInput; auto never falls back to the other engine.
    """
    set_threads(cfg)
    import torch
    if cfg["threads"]:  # in case torch was imported earlier
        torch.set_num_threads(cfg["threads"])
    name, on_gpu = cfg["engine"], cfg["device"] != "cpu" and torch.cuda.is_available()
    if cfg["device"] == "cuda" and not on_gpu:
        raise BadInput("--device=cuda: torch sees no GPU here")
    if cfg["device"] == "auto" and not on_gpu and visible_gpus():
        raise BadInput("--device=auto: there are GPUs here and torch sees none: `python core/"
                       "probe.py` prints the reason, --device=cpu runs on the CPU")
    if name == "auto":
        name = "vllm" if on_gpu else "hf"
    if name == "vllm" and importlib.util.find_spec("vllm") is None:
        instead = "" if cfg["engine"] == "vllm" else (
            "; --engine=hf uses transformers, which is several times slower")
        raise BadInput(f"--engine={cfg['engine']}: vLLM is not installed "
                       f"(pip install -r requirements-vllm.txt){instead}")
    if name == "vllm" and cfg["temperature"] > 2:
        raise BadInput(f"--temperature={cfg['temperature']}: vLLM samples at 2 at most; lower it "
                       "or use --engine=hf")
    return name


def open_engine(name, path, cfg, device="auto", model=None, tokenizer=None):
    """Return an HFEngine or VLLMEngine on the model at `path`, or on `model`, its copy in memory.

    If `model` is None, nothing is trained in this process, and vLLM gets the whole GPU. If `model`
    is on the meta device, the engine may have no weights before its first `load`. Raises BadInput.
    """
    alone = model is None
    if alone:
        check_lengths(path, cfg)
    if name == "vllm" and not is_checkpoint(path):
        # if there is more than one rank, the engine gets the run's weights anyway, so it need not
        # read the checkpoint
        load = "dummy" if WORLD > 1 and not alone else "auto"
        return VLLMEngine(path, tokenizer or load_tokenizer(path), cfg, load, alone=alone)
    if alone:
        model, tokenizer = load_model(path, "cpu" if name == "vllm" else device)
        device = model.device
    if name == "vllm":  # vLLM cannot read a checkpoint, so it gets the weights from memory
        engine = VLLMEngine(path, tokenizer, cfg, "dummy", alone)
        if model.device.type != "meta":
            engine.load((name, p.detach()) for name, p in model.named_parameters())
        return engine
    return HFEngine(model, tokenizer, cfg, device)


class HFEngine:
    """The transformers engine. On a CPU in fp32 it decodes with the trained model itself.

    It decodes with a copy of the model, which `load` updates, in three cases: if the dtype differs
    (a GPU, bf16), if the trained weights are split over ranks, or if layers recompute activations
    (such layers have no cache). If `model` is on the meta device, the copy is on `device` and has
    no weights until `load`.
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
                self.trained = model
            self.model.to(device)

    def generate(self, prompts, n, seeds, progress=None):
        return generate(self.model, self.tokenizer, prompts, n, seeds, self.cfg, progress,
                        self.quit)

    def stream(self, prompts, n, seeds):
        """Yield (indices of prompts, their rollouts) for the prompts that are decoded at once."""
        per_call = max(1, self.cfg["gen_batch"] // n)
        for first in range(0, len(prompts), per_call):
            js = range(len(prompts))[first:first + per_call]
            yield js, self.generate([prompts[j] for j in js], n, [seeds[j] for j in js])

    def load(self, weights):
        """Copy the (name, tensor) pairs of all parameters and stored buffers into the model."""
        if self.is_copy:
            targets = dict(self.model.named_parameters()) | dict(self.model.named_buffers())
            buffers = self.trained.named_buffers() if self.trained else ()
            for name, weight in itertools.chain(weights, buffers):
                targets[name].copy_(weight)

    def sleep(self):
        """Do nothing: there is no memory to free."""


def free_memory_share():
    """Return the share of this GPU's memory that vLLM may use if no trainer shares the GPU.

    The share is 0.9, or less if other processes hold memory, such as the desktop of a 24 GB card,
    because vLLM refuses to take more memory than is free.
    """
    import torch
    free, total = torch.cuda.mem_get_info()
    return min(0.9, int(100 * free / total - 1) / 100)


class VLLMEngine:
    """vLLM 0.32 in this process, on the model at `path`.

    Every rank has an engine. If tensor_parallel > 1, every `tensor_parallel` consecutive ranks
    share an engine, with a part of each layer on every GPU. load="dummy" means that all weights
    come by the method `load`. alone: whether no trainer shares the GPU, so that the engine is never
    asked to sleep. A rollout depends on its seed, but the last bits of its log-probs depend on its
    batch, so a resumed run differs by rounding.
    """

    def __init__(self, path, tokenizer, cfg, load="auto", alone=False):
        self.tokenizer, self.cfg, self.asleep, self.quit = tokenizer, cfg, False, ()
        longest = cfg["max_prompt_tokens"] + cfg["max_new_tokens"]
        # vLLM reads these when it is imported
        for key, value in dict(VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_NO_USAGE_STATS="1",
                               VLLM_LOGGING_LEVEL="ERROR",
                               VLLM_LOGGING_STREAM="ext://sys.stderr").items():
            os.environ.setdefault(key, value)
        cache = os.path.expanduser("~/.cache/vllm")
        with contextlib.suppress(OSError):
            os.makedirs(cache, exist_ok=True)
        if not os.access(cache, os.W_OK):  # else it prints a traceback for each file it caches
            os.environ.setdefault("VLLM_CACHE_ROOT", tempfile.mkdtemp(prefix="vllm"))
        with load_errors(path, "vLLM"):
            from vllm.platforms import current_platform
            if current_platform.is_cpu():
                import vllm._custom_ops as ops
                from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator

                # ranks use gloo, because the name of their shared memory would be the same for all
                # runs on a machine
                CpuCommunicator._all_group_ranks_share_shm_group_name = lambda _: False
                # oneDNN's packed copies of the linear layers would be stale after the first `load`
                ops._supports_onednn = False
                current_platform.simple_compile_backend = "eager"  # or the sampler needs g++
                # chunked prompts rewind their random generator, but a CPU's cannot be rewound
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
            # up to 512 rollouts at once run as a CUDA graph, larger batches kernel by kernel (vLLM
            # captures larger graphs only on Blackwell). On an H100 with a 0.5B model, 1,024
            # rollouts at once made 20,000 tokens/s, and 256 made 28,000
            from vllm import LLM
            preload = os.environ.get("LD_PRELOAD", "")
            self.llm = LLM(str(path), load_format=load, seed=0, max_model_len=longest,
                           max_num_seqs=cfg["gen_batch"], enable_prefix_caching=True,
                           logprobs_mode="processed_logprobs", use_tqdm_on_load=False, **more)
        # vLLM's CPU build adds its libraries to LD_PRELOAD for worker processes, which we do not
        # use. The linker splits LD_PRELOAD at spaces and would warn in every process we start.
        os.environ["LD_PRELOAD"] = preload
        settings = self.llm.model_config.try_get_generation_config()
        self.stop = stop_ids(settings.get("eos_token_id"), tokenizer)
        self.can_sleep = bool(more.get("enable_sleep_mode"))

    def generate(self, prompts, n, seeds, progress=None):
        """Generate rollouts as the function `generate` does.

        Rollout i of prompt j has its own generator, seeded with seeds[j] // 2 + i.
        """
        outputs = {}
        for j, outs in self.run_prompts(prompts, n, seeds):
            outputs[j] = outs
            if progress is not None:
                progress.update(n)
        return self.to_tensors([out for j in range(len(prompts)) for out in outputs[j]])

    def stream(self, prompts, n, seeds):
        """Yield ([j], the rollouts of prompt j) in the order in which the prompts finish."""
        for j, outs in self.run_prompts(prompts, n, seeds):
            yield [j], self.to_tensors(outs)

    def run_prompts(self, prompts, n, seeds):
        """Yield (j, vLLM's n outputs for prompt j) of this rank's prompts.

        Ranks that share an engine must make the same requests in the same order, so each of these
        ranks requests the prompts of all of them.
        """
        parts = gather_group(self.group, list(zip(prompts, seeds)))
        first = 0 if self.group is None else sum(
            len(part) for part in parts[:self.group.rank()])
        pairs = [pair for part in parts for pair in part]
        for j, outs in self.run_requests(*(list(zip(*pairs)) or ([], [])), n):
            if first <= j < first + len(prompts):
                yield j - first, outs

    def run_requests(self, prompts, seeds, n):
        """Yield (j, vLLM's n outputs for prompt j); when a rollout ends, vLLM begins the next one.

        vLLM holds at most twice `gen_batch` requests at a time, because a large problem set needs a
        million requests. Raises Stopped.
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
                    params = SamplingParams(seed=seeds[j] >> 1, **sampling)  # + i fits 63 bits
                    name, = self.llm.enqueue(dict(prompt_token_ids=prompts[j]), params,
                                             use_tqdm=False)
                    running[name.partition("-")[0]] = j  # the part after - is random
                requests, steps = core.step(), steps + 1
                # ranks that share an engine must stop together. They share `quit` only every 16
                # steps, because sharing takes time
                if self.group is None:
                    stop = self.quit
                else:
                    stop = steps % 16 == 0 and any(gather_group(self.group, bool(self.quit)))
                if stop:
                    raise Stopped
                for request in requests:
                    if request.finished:
                        yield running.pop(request.request_id), request.outputs
        finally:
            core.abort_request(list(running))  # not empty if the generator ends early

    def to_tensors(self, outs):
        """Return vLLM's outputs as the tensors that `generate` below returns."""
        import torch
        return dict(tokens=padded([out.token_ids for out in outs], self.tokenizer.pad_token_id),
                    logps=padded([out.logprobs.logprobs for out in outs], 0.0),
                    length=torch.tensor([len(out.token_ids) for out in outs]),
                    stopped=torch.tensor([out.finish_reason == "stop" for out in outs]))

    def load(self, weights):
        """Load (name, tensor) pairs of all parameters; clear the cache of the old parameters."""
        if self.asleep:
            self.llm.wake_up(tags=["weights"])
        missed, = self.llm.apply_model(
            lambda model: set(dict(model.named_parameters())) - model.load_weights(weights))
        assert not missed, f"vLLM was not given {missed}"
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
    """Return [the `value` of each rank of a group], or [value] if group is None."""
    if group is None:
        return [value]
    import torch.distributed as dist
    values = [None] * group.size()
    dist.all_gather_object(values, value, group=group)
    return values


def padded(rows, value, side="right"):
    """Return lists of numbers as a tensor (rows, longest list), filled with `value` on one side."""
    import torch
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], True, value, side)


def stop_ids(ids, tokenizer):
    """Return the token ids that end a response, sorted, from every file that names one.

    ids: the generation config's eos_token_id, which is one id, a list of ids or None. The
    tokenizer's end token is added, and so is the token that the chat template puts after an answer.
    They are needed because config.json often names only the base model's end token, which a chat
    model does not write at the end of its turn.
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
    except Exception:  # templates are programs, and this one rejects such turns
        return None
    after = text.rpartition("Answer")[2].strip()
    ends = {token.content: i for i, token in tokenizer.added_tokens_decoder.items()}
    return ends.get(max(filter(after.startswith, ends), key=len, default=None))


def rollout_seed(*key):
    """Return a 63-bit seed from the name of a group of rollouts, such as (seed, "train", step, j).

    Different stages have different names, so their rollouts have different noise.
    """
    digest = hashlib.sha256(json.dumps(key).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


# -------------------------------------------------------------------------------------------------
# Decoding with transformers


def sample_tokens(logits, u, temperature, top_p):
    """Sample by inverse CDF: logits (R, V), uniforms u (R,) in (0, 1] -> ids (R,), log-probs (R,).

    One uniform per token makes a rollout depend on its own uniforms only, not on its batch. The
    log-probs are those of the sampling distribution: at `temperature`, and renormalised over the
    nucleus if top_p < 1.
    """
    import torch
    logp = torch.log_softmax(logits.float() / temperature, -1)
    if top_p < 1:
        ordered, order = logp.sort(-1, descending=True)
        before = ordered.exp().cumsum(-1) - ordered.exp()  # mass before the token
        outside = before >= top_p  # never true for the likeliest token
        logp = logp.masked_fill(outside.scatter(-1, order, outside), -torch.inf)
        logp = torch.log_softmax(logp, -1)
    cdf = logp.exp().cumsum(-1)
    # scale u by the last value, because in fp32 the sum over a large vocabulary is not exactly 1
    tokens = (cdf < u[:, None] * cdf[:, -1:]).sum(-1)
    return tokens, logp.gather(-1, tokens[:, None])[:, 0]


def generate(model, tokenizer, prompts, n, seeds, cfg, progress=None, quit=()):
    """Generate n rollouts for each prompt with transformers.

    prompts: P lists of token ids. seeds: P ints. Rollout i of prompt j uses row i of the uniforms
    from seeds[j], so the result depends neither on `gen_batch` nor on the call's other prompts.
    cfg: temperature, top_p, max_new_tokens, gen_batch.
    Returns a dict of CPU tensors. The n rollouts of a prompt are consecutive rows, so a reshape to
    (P, n) gives the groups (T = longest response):
        tokens (P n, T) int64, with the stop token, padded at the end; logps (P n, T) float32;
        length (P n,) tokens of a response; stopped (P n,) bool, False if it was cut off.
    Raises Stopped once the list `quit` is not empty.
    """
    import torch
    T, pad, P = cfg["max_new_tokens"], tokenizer.pad_token_id, len(prompts)
    stop = torch.tensor(stop_ids(model.generation_config.eos_token_id, tokenizer),
                        device=model.device)
    rows = min(n, cfg["gen_batch"])           # rollouts of a prompt decoded at once
    per_call = max(1, cfg["gen_batch"] // n)  # prompts decoded at once
    tokens, logps = torch.full((P, n, T), pad), torch.zeros(P, n, T)
    length = torch.zeros(P, n, dtype=torch.long)
    stopped = torch.zeros(P, n, dtype=torch.bool)
    order = sorted(range(P), key=lambda j: -len(prompts[j]))  # similar lengths: less padding
    for first in range(0, P, per_call):
        js = order[first:first + per_call]
        # uniforms in (0, 1], (J, n, T)
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
    """Prefill J left-padded prompts once, then decode R / J rollouts of each.

    ids and mask (J, L), uniforms u (R, T) -> tokens (R, T), log-probs (R, T), lengths (R,), and
    stopped (R,).
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
    bf16 = model.dtype == torch.bfloat16  # the buffers stay in fp32
    # inference mode is faster than no_grad. The returned tensors are created outside of the block,
    # so that the update may use them
    with torch.inference_mode(), torch.autocast(model.device.type, torch.bfloat16, enabled=bf16):
        # select the last position by its index, because with a slice torch copies frozen weights
        # for each prompt
        last = torch.tensor([ids.shape[1] - 1], device=ids.device)
        logits = model(input_ids=ids, attention_mask=mask if padded else None,
                       position_ids=position, past_key_values=cache,
                       logits_to_keep=last).logits[:, -1]
        logits = logits.repeat_interleave(r, 0)  # (R, V)
        cache.reorder_cache(torch.arange(len(ids), device=ids.device).repeat_interleave(r))
        mask, position = mask.repeat_interleave(r, 0), position[:, -1:].repeat_interleave(r, 0)
        row = torch.arange(R, device=u.device)  # the rollout of each row of the cache
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
            if left <= 0.75 * len(row):  # copy the cache if a quarter of its rows have ended
                keep = alive.nonzero()[:, 0]
                cache.reorder_cache(keep)  # batch_select_indices omits linear attention
                row, token, mask, position = row[keep], token[keep], mask[keep], position[keep]
            mask, position = torch.cat([mask, mask.new_ones(len(row), 1)], 1), position + 1
            logits = model(input_ids=token[:, None], attention_mask=mask if padded else None,
                           position_ids=position, past_key_values=cache,
                           logits_to_keep=1).logits[:, -1]
    return tokens, logps, length, stopped
