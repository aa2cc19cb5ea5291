"""core/models.py: load models from folders, hubs and checkpoints; shard them over ranks; save them.

    model, tokenizer = load_model("data/arithmetic/base")   # a folder, hub name or checkpoint
    start_ranks("auto"), shard_model(model, ...), full_weights(model)  # FSDP2
    save_checkpoint(folder, trained, tokenizer, state), load_checkpoint(folder, trained)
    write_model(folder, model, tokenizer, "bf16")           # a transformers folder

Weights are written as safetensors, never as pickles, so that loading them runs no code.
"""
import contextlib
import datetime
import errno
import functools
import hashlib
import json
import os
import shutil
import sys
import traceback
import warnings
from pathlib import Path

from config import BadInput
from core import lora
from core.log import save_json
from core.probe import first_line

# torchrun sets RANK and WORLD_SIZE; without torchrun, a run is rank 0 of 1
RANK, WORLD = int(os.environ.get("RANK") or 0), int(os.environ.get("WORLD_SIZE") or 1)


def notify(text):
    """Print a line to stderr, on rank 0 only."""
    if RANK == 0:
        print(text, file=sys.stderr)


# ---- Loading -------------------------------------------------------------------------------------

def check_model_path(path):
    """Return `path` if it is a transformers folder, checkpoint or hub name, else raise BadInput."""
    folder, name = Path(path), str(path)
    local = name.startswith((".", "/", "~", "runs/", "data/")) or name.count("/") != 1
    if (local or folder.exists()) and not (folder / "config.json").exists():
        why = "it has no config.json" if folder.exists() else "it does not exist"
        raise BadInput(f"--model={path}: not a transformers folder ({why})")
    if (folder / "adapter_config.json").exists():
        raise BadInput(f"--model={path}: has LoRA adapters; merge them first (merge_and_unload)")
    return path


@contextlib.contextmanager
def load_errors(path, by="transformers"):
    """Turn any error of the `with` block into a one-line BadInput: `by` cannot load the model.

    Yields the module transformers, with warnings and progress bars off. If vLLM fails and stderr is
    a file, such as a run's out.txt, its traceback is printed as well.
    """
    import huggingface_hub
    import transformers
    huggingface_hub.utils.logging.set_verbosity_error()  # it would print every retry
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    # torch.distributed.checkpoint gives this warning in every run with only one process
    warnings.filterwarnings("ignore", "torch.distributed is disabled")
    try:
        yield transformers
    except BadInput:
        raise
    except Exception as e:
        if by == "vLLM" and not sys.stderr.isatty():
            traceback.print_exc()
        raise BadInput(f"--model={path}: {by} cannot load it ({first_line(e)})") from None


def load_tokenizer(path):
    """Return the tokenizer of a folder or hub name, with an end token, or raise BadInput."""
    with load_errors(check_model_path(path)) as transformers:
        tokenizer = transformers.AutoTokenizer.from_pretrained(path)
        if tokenizer.eos_token_id is None:
            end = transformers.AutoConfig.from_pretrained(path).eos_token_id
            end = end[0] if isinstance(end, list) else end
            if end is None:
                raise BadInput(f"--model={path}: neither its tokenizer nor its config.json names "
                               "an end token; set eos_token in tokenizer_config.json")
            tokenizer.eos_token = tokenizer.convert_ids_to_tokens(end)
        if tokenizer.chat_template:  # a template's errors appear only when it is used
            tokenizer.apply_chat_template([dict(role="user", content="1")], tokenize=False,
                                          add_generation_prompt=True)
    return tokenizer


def check_lengths(path, cfg):
    """Raise BadInput if a prompt and its response may be longer than the model has positions."""
    with load_errors(check_model_path(path)) as transformers:
        model_config = transformers.AutoConfig.from_pretrained(path).get_text_config()
    positions, rope = getattr(model_config, "max_position_embeddings", None), ""
    longest = cfg["max_prompt_tokens"] + cfg["max_new_tokens"]
    scaling = getattr(model_config, "rope_parameters", None) or {}
    if scaling.get("rope_type") == "longrope":
        # beyond them, the rotation of a token depends on the longest row of its batch
        positions, rope = scaling["original_max_position_embeddings"], " before its longrope"
    if positions and longest > positions:
        raise BadInput(f"--max_new_tokens={cfg['max_new_tokens']}: with --max_prompt_tokens="
                       f"{cfg['max_prompt_tokens']} that is more than the {positions} positions of "
                       f"{path}{rope}")


def is_checkpoint(path):
    """Return whether a folder is a checkpoint of train_grpo.py, complete or not."""
    return (Path(path) / "state.json").exists()


def checkpoint_state(path):
    """Return the content of a checkpoint's state.json. Raise OSError or ValueError if a file is
    missing or does not have the size that state.json names."""
    state = json.loads((Path(path) / "state.json").read_text())
    for name, size in state["files"].items():
        if (Path(path) / name).stat().st_size != size:
            raise ValueError(f"{name} is incomplete")
    return state


def newest_checkpoint(run):
    """Return the path of a run's newest complete checkpoint, or None. Report incomplete ones."""
    for path in checkpoints(run):
        try:
            checkpoint_state(path)
            return path
        except (OSError, ValueError, KeyError, TypeError) as e:
            notify(f"{path}: not a whole checkpoint ({type(e).__name__}), skipped")


def model_folder(path):
    """Return the folder of a run's exported model or, if it has none, of its newest complete
    checkpoint; raise BadInput if it has neither. Other paths are returned unchanged."""
    run = Path(path)
    if (run / "config.json").exists() or not (run / "log.jsonl").exists():
        return path  # Path drops a leading ./, and str(run) could then look like a hub name
    if (run / "model/config.json").exists():
        return str(run / "model")
    if checkpoint := newest_checkpoint(run):
        return str(checkpoint)
    raise BadInput(f"--model={path}: the run has neither an exported model nor a checkpoint yet")


def load_weights(path, device="cpu"):
    """Return the causal LM of a folder, hub name or checkpoint, in fp32 and eval mode, or raise
    BadInput. On the device "meta" it has shapes only, and `load_shards` sets weights and buffers
    after the model is sharded.
    """
    import torch
    with load_errors(check_model_path(path)) as transformers:
        if device == "meta":
            return model_without_weights(path, "meta")
        if not is_checkpoint(path):
            model, loading = transformers.AutoModelForCausalLM.from_pretrained(
                path, dtype=torch.float32, output_loading_info=True)
            if missing := sorted(loading["missing_keys"]):
                raise BadInput(f"--model={path}: its files lack {len(missing)} weights, such as "
                               f"{missing[0]}")
            head, words = model.get_output_embeddings(), model.get_input_embeddings()
            if head and model.config.get_text_config().tie_word_embeddings and (
                    head.weight is not words.weight):
                raise BadInput(f"--model={path}: its files hold an output layer of its own; set "
                               "tie_word_embeddings to false in config.json")
        elif adapters := checkpoint_state(path).get("lora"):  # the checkpoint holds adapters only
            if adapters["weights"] != weights_hash(adapters["model"]):
                raise BadInput(f"{path}: {adapters['model']} has changed since training")
            model = lora.add_adapters(load_weights(adapters["model"]), adapters["rank"])
            read_tensors(trained_tensors(model), path)
            lora.merge_adapters(model)
        else:
            model = model_without_weights(path, "cpu")
            read_tensors(dict(full_weights(model)), path)
        return model.to(device)


def model_without_weights(path, device):
    """Return a causal LM of the config at `path`, in fp32 and eval mode, without useful weights."""
    import torch
    import transformers
    from transformers.initialization import no_init_weights
    model_config = transformers.AutoConfig.from_pretrained(path)
    with torch.device(device), no_init_weights():
        model = transformers.AutoModelForCausalLM.from_config(model_config,
                                                              dtype=torch.float32).eval()
    model.tie_weights()
    # without generation_config.json, keep the settings of the model's config
    with contextlib.suppress(OSError):
        model.generation_config = transformers.GenerationConfig.from_pretrained(path)
    return model


def weights_hash(model):
    """Return a hash (12 hex digits) of the weights in a model folder, or None for a hub name."""
    digest = hashlib.sha256()
    files = sorted(f for f in Path(model).glob("*") if f.suffix in (".safetensors", ".bin"))
    for path in files:
        with open(path, "rb") as file:
            hashlib.file_digest(file, lambda: digest)
    return digest.hexdigest()[:12] if files else None


def stored_buffers(model):
    """Return {name: buffer} of the buffers that are saved with a model's weights, as the routing
    bias of DeepSeek V3 is and rotary frequencies are not."""
    stored = model.state_dict().keys()
    return {name: buffer for name, buffer in model.named_buffers() if name in stored}


def trained_tensors(model):
    """Return {name: tensor} of all that training changes: the weights without frozen ones, and the
    stored buffers unless the model has adapters."""
    trained = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    return trained if lora.adapter_layers(model) else trained | stored_buffers(model)


def load_shards(model, load, path, device):
    """Set the weights and buffers of a sharded model that is on the meta device, in place. Every
    rank must call this: rank 0 reads the whole model by load(path) and sends each rank its shards.
    """
    import torch
    from torch.distributed.tensor import DTensor, distribute_tensor
    model.to_empty(device=device)
    model.tie_weights()
    if RANK == 0:
        whole = load(path)
        tensors = dict(whole.named_parameters()) | dict(whole.named_buffers())
    for name, target in (*model.named_parameters(), *model.named_buffers()):
        target = target.detach()
        if RANK == 0:
            tensor = tensors[name].detach().to(device, target.dtype).contiguous()
        else:
            tensor = torch.empty(target.shape, dtype=target.dtype, device=device)
        if isinstance(target, DTensor):
            tensor = distribute_tensor(tensor, target.device_mesh, target.placements)
        else:
            torch.distributed.broadcast(tensor, 0)
        target.copy_(tensor)


def read_tensors(tensors, folder):
    """Fill each tensor of `tensors`, {name: tensor}, in place from the files of a checkpoint."""
    import torch.distributed.checkpoint as dcp
    dcp.load(tensors, no_dist=True, storage_reader=dcp.HuggingFaceStorageReader(str(folder)))


def load_model(path, device="auto"):
    """Return (causal LM, tokenizer) of a folder, hub name or checkpoint, see `load_weights`. The
    device "auto" is the GPU if there is one."""
    import torch
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = load_tokenizer(path)
    return load_weights(path, device), tokenizer


def is_bf16(dtype, device):
    """Return whether --dtype means bf16 on `device`; auto means bf16 if `device` is a GPU."""
    return dtype == "bf16" or (dtype == "auto" and str(device).startswith("cuda"))


def load_critic(path, device="cpu"):
    """Return PPO's critic: the base model with an output layer of zeros, one value per token."""
    import torch
    critic = load_weights(path, device)
    head = torch.nn.Linear(critic.get_output_embeddings().in_features, 1, device=device)
    for p in head.parameters():
        torch.nn.init.zeros_(p)
    critic.set_output_embeddings(head)
    critic.config.tie_word_embeddings = False
    return critic


# ---- Logits: from the last hidden state to the vocabulary ----------------------------------------

class BodyOutput(tuple):
    """The output of what replaces a model's body in `logits_of`: item 0 and `last_hidden_state`
    are the hidden states, all other fields None."""
    last_hidden_state = property(lambda self: self[0])

    def __getattr__(self, name):
        return None


def logits_of(model, hidden):
    """Return the logits (N, V) that a causal LM computes from its last hidden states (N, d).

    The output embedding is not enough, because Gemma 2 caps its logits, and Granite and Cohere
    scale them. So the model's own forward method is called with a body that returns `hidden`.
    """
    output = BodyOutput((hidden[None],))
    # OPT calls get_decoder(), which is the output embedding of ModernBERT's decoder
    bodies = {model.base_model, model.get_decoder()} - {model, model.get_output_embeddings()}
    for body in bodies:
        body.forward = lambda *args, **kwargs: output
    try:
        return model.forward().logits[0]
    finally:
        for body in bodies:
            del body.forward


def layer_list(model):
    """Return a transformer's list of layers, called `h` or `layers`, or raise BadInput."""
    import torch
    size = model.config.get_text_config().num_hidden_layers
    for module in model.base_model.modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) == size:
            return module
    raise BadInput(f"--model={model.name_or_path}: has no list of its {size} layers; use one "
                   "process and --activation_checkpointing=false")


# ---- Many ranks: torchrun starts one process per GPU, or several on a CPU (gloo) -----------------

def start_ranks(device):
    """Return the device of this rank, after joining the process group of torchrun, if any."""
    import torch
    cuda = device != "cpu" and torch.cuda.is_available()
    if WORLD > 1:
        torch.distributed.init_process_group(
            "cpu:gloo,cuda:nccl" if cuda else "gloo",
            timeout=datetime.timedelta(hours=2))  # rank 0 may download a model first
    if not cuda:
        return "cpu"
    device = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
    torch.cuda.set_device(device)
    return device


def all_reduce(numbers, op="SUM"):
    """Return a list of numbers, each reduced over all ranks by `op`: SUM, MIN or MAX."""
    if WORLD == 1:
        return list(numbers)
    import torch
    tensor = torch.tensor(list(numbers), dtype=torch.float64)
    torch.distributed.all_reduce(tensor, getattr(torch.distributed.ReduceOp, op))
    return tensor.tolist()


def shard_model(model, device, forward, dtype="auto"):
    """Shard a model over all ranks with FSDP2, in place.

    Parameters, gradients and moments are in fp32; a GPU computes in `dtype` (--dtype). FSDP gathers
    a layer for its passes, and embedding and head from the begin of `forward` (token_logps or
    token_values) to the backward pass, or to its end if the model is frozen.
    """
    import torch
    from torch.distributed.fsdp import (MixedPrecisionPolicy, fully_shard,
                                        register_fsdp_forward_method)
    kind, policy = torch.device(device).type, MixedPrecisionPolicy()
    if kind == "cuda" and is_bf16(dtype, device):
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    mesh = torch.distributed.init_device_mesh(kind, (WORLD,))
    for layer in layer_list(model):
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    frozen = not any(p.requires_grad for p in model.parameters())
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=frozen or None)
    setattr(model, forward.__name__, functools.partial(forward, model))
    register_fsdp_forward_method(model, forward.__name__)


def call_sharded(function, model):
    """Return `function` bound to `model`. If the model is sharded, FSDP's hooks run around it."""
    return getattr(model, function.__name__, functools.partial(function, model))


def full_weights(model):
    """Yield (name, whole tensor) of every parameter and every buffer that is saved, tied ones once
    and adapters merged. Every rank must read all items, because ranks gather them together."""
    for name, p in lora.merged_weights(model):
        yield name, p.full_tensor() if hasattr(p, "full_tensor") else p
    yield from stored_buffers(model).items()


def checkpoint_activations(model):
    """Make layers keep only their inputs, and recompute the rest in the backward pass."""
    model.gradient_checkpointing_enable(dict(use_reentrant=False))
    for layer in layer_list(model):
        # transformers recomputes a layer only in training mode; layer.train() would turn on dropout
        layer.training = True


# ---- Checkpoints: safetensors (torch.distributed.checkpoint), config, tokenizer and state.json ---

@contextlib.contextmanager
def disk_errors(folder):
    """Raise OSError if safetensors, tokenizers or torch fail to read or write in `folder`."""
    from torch.distributed.checkpoint.api import CheckpointException
    try:
        yield
    except OSError:
        raise
    # CheckpointException does not derive from Exception
    except (Exception, CheckpointException) as e:
        cause = next(iter(e.failures.values()))[0] if isinstance(e, CheckpointException) else e
        raise OSError(errno.EIO, first_line(cause), str(folder)) from None


def write_model(folder, model, tokenizer, dtype):
    """Gather the weights of all ranks and write a transformers folder on rank 0.

    An older folder is replaced. dtype: bf16, fp32, or auto, which is bf16 on a GPU.
    """
    import torch
    kind = torch.bfloat16 if is_bf16(dtype, model.device) else torch.float32
    weights = {name: weight.to("cpu", kind) for name, weight in full_weights(model) if RANK == 0}
    if RANK == 0:
        shutil.rmtree(folder, ignore_errors=True)
        given = model.generation_config
        model.generation_config = type(given)()  # save_pretrained may refuse `given`
        with disk_errors(folder):
            model.save_pretrained(folder, state_dict=weights)
            model.generation_config, model.config.dtype = given, kind  # which the line above resets
            write_settings(folder, model, tokenizer)


def write_settings(folder, model, tokenizer):
    """Write the config, the generation config and the tokenizer of a model. save_pretrained of a
    generation config refuses settings that transformers can load, as Llama 2's."""
    model.config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    model.generation_config.to_json_file(Path(folder) / "generation_config.json",
                                         keys_to_pop=["compile_config"])


def training_state(trained):
    """Return {name: tensor} of the weights, buffers and AdamW moments that a checkpoint holds, in
    the memory of models and optimizers.

    trained: [(prefix, model, optimizer), ...]. A weight is called prefix + NAME, AdamW's state for
    it prefix + KEY + "." + NAME, for KEY = step, exp_avg, exp_avg_sq.
    """
    import torch
    tensors = {}
    for prefix, model, opt in trained:
        tensors |= {prefix + name: tensor for name, tensor in trained_tensors(model).items()}
        for name, p in model.named_parameters():
            if not p.requires_grad:
                continue
            if not opt.state[p]:  # before the first step
                opt.state[p] = dict(step=torch.zeros((), device=p.device),
                                    exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
            for key, value in opt.state[p].items():
                tensors[f"{prefix}{key}.{name}"] = torch.atleast_1d(value)
    return tensors


def checkpoint_path(folder, step):
    """Return where a run in `folder` has its checkpoint of update `step`."""
    return folder / "ckpt" / f"step_{step:08d}"


def checkpoints(folder):
    """Return the paths of a run's checkpoints, newest first, without copies that a user made."""
    return sorted((folder / "ckpt").glob("step_" + 8 * "[0-9]"), reverse=True)


FILE_BYTES = 2**29  # about the size of a checkpoint file; two copies are in memory


def save_checkpoint(folder, trained, tokenizer, state, keep=False):
    """Write ckpt/step_NNNNNNNN. Keep the newest two, and those that were written with `keep`.

    The folder is renamed when it is whole. state.json lists the files with their sizes, so that an
    incomplete checkpoint is recognised. Every rank must call this, and writes its own shard.
    """
    import torch.distributed.checkpoint as dcp
    part = folder / "ckpt" / "part"
    if RANK == 0:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
    all_reduce([0])  # a barrier: no rank writes before the folder exists
    tensors, files, size = training_state(trained), {}, 0
    for name, tensor in tensors.items():
        files[name] = 1 + int(size // FILE_BYTES)
        size += tensor.nbytes / WORLD
    with disk_errors(part):
        dcp.save(tensors, no_dist=WORLD == 1, storage_writer=dcp.HuggingFaceStorageWriter(
            str(part), fqn_to_index_mapping=files, save_distributed=True))
        if RANK == 0:
            write_settings(part, trained[0][1], tokenizer)
    if RANK == 0:
        for file in filter(Path.is_file, part.rglob("*")):
            with open(file, "rb") as f:
                os.fsync(f.fileno())
        sizes = {f.name: f.stat().st_size for f in part.glob("*.safetensors")}
        save_json(part / "state.json", dict(state, files=sizes))
        if keep:
            (part / "keep").touch()
        part.rename(checkpoint_path(folder, state["step"]))
        keep_checkpoints(folder, 2)
    all_reduce([0])


def keep_checkpoints(folder, newest):
    """Remove a run's checkpoints. Keep the last `newest`, and those with a file `keep`."""
    for path in checkpoints(folder)[newest:]:
        if not (path / "keep").exists():
            shutil.rmtree(path)


def load_checkpoint(folder, trained):
    """Load a run's newest complete checkpoint, which any number of ranks may have written, into
    models and optimizers; return its state.json, or None without one. Raise OSError if it cannot be
    read or belongs to another model."""
    newest = newest_checkpoint(folder) if RANK == 0 else None
    step = int(all_reduce([checkpoint_state(newest)["step"] if newest else -1], "MAX")[0])
    if step < 0:
        return None
    path = checkpoint_path(folder, step)
    with disk_errors(path):
        read_tensors(training_state(trained), path)
    for later in checkpoints(folder) if RANK == 0 else ():
        # remove incomplete later checkpoints, which would count among the newest two
        if later > path:
            shutil.rmtree(later)
    return checkpoint_state(path)
