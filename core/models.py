"""core/models.py: load models from folders, hubs and checkpoints; shard them over ranks; save them.

    model, tokenizer = load_model("data/arithmetic/base")   # or a hub's name, or a checkpoint
    start_ranks("auto"), shard_model(model, ...), full_weights(model)  # FSDP2
    save_checkpoint(folder, trained, tokenizer, state), load_checkpoint(folder, trained)
    write_model(folder, model, tokenizer, "bf16")           # a transformers folder

No file is a pickle.
"""
import contextlib
import errno
import functools
import json
import os
import shutil
import sys
import traceback
import types
import warnings
from pathlib import Path

from config import BadInput
from core import lora
from core.log import save_json

# set by torchrun; a plain run is rank 0 of 1
RANK, WORLD = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


# -------------------------------------------------------------------------------------------------
# Loading


def check_model_path(path):
    """Return `path` if it is a transformers folder, checkpoint or hub name, else raise BadInput."""
    folder, name = Path(path), str(path)
    local = name.startswith((".", "/", "~", "runs/", "data/")) or name.count("/") != 1
    if (local or folder.exists()) and not (folder / "config.json").exists():
        why = "it has no config.json" if folder.exists() else "it does not exist"
        raise BadInput(f"--model={path}: not a transformers folder ({why})")
    return path


@contextlib.contextmanager
def load_errors(path, by="transformers"):
    """Turn errors of transformers, vLLM or safetensors about a model into one line of BadInput.

    If stderr is a file, such as a run's out.txt, vLLM's whole traceback goes there too.
    """
    import huggingface_hub
    import transformers
    huggingface_hub.utils.logging.set_verbosity_error()  # else it prints every retry
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    # torch's checkpoints warn of this in a plain run
    warnings.filterwarnings("ignore", "torch.distributed is disabled")
    try:
        yield transformers
    except BadInput:
        raise
    except Exception as e:
        if by == "vLLM" and not sys.stderr.isatty():
            traceback.print_exc()
        reason = (str(e).strip().splitlines() or [type(e).__name__])[0][:200]
        raise BadInput(f"--model={path}: {by} cannot load it ({reason})") from None


def load_tokenizer(path):
    """Load the tokenizer of a folder or hub name and give it a pad token. Raises BadInput."""
    with load_errors(check_model_path(path)) as transformers:
        tokenizer = transformers.AutoTokenizer.from_pretrained(path, padding_side="left")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def check_lengths(path, cfg):
    """Raise BadInput if a prompt and its response may be longer than the model has positions."""
    with load_errors(check_model_path(path)) as transformers:
        model_config = transformers.AutoConfig.from_pretrained(path)
    positions = getattr(model_config, "max_position_embeddings", None)
    if positions and cfg["max_prompt_tokens"] + cfg["max_new_tokens"] > positions:
        raise BadInput(f"--max_new_tokens={cfg['max_new_tokens']}: with "
                       f"--max_prompt_tokens={cfg['max_prompt_tokens']} "
                       f"that is more than the {positions} positions of {path}")


def is_checkpoint(path):
    """Return whether a folder is a checkpoint of train_grpo.py, whole or torn."""
    return (Path(path) / "state.json").exists()


def checkpoint_state(path):
    """Return state.json of a checkpoint of train_grpo.py whose shards are all there.

    Raises OSError or ValueError if it is torn.
    """
    state = json.loads((Path(path) / "state.json").read_text())
    for name, size in state["files"].items():
        if (Path(path) / name).stat().st_size != size:
            raise ValueError(f"{name} is not whole")
    return state


def newest_checkpoint(run):
    """Return the path of a run's newest complete checkpoint, or None; print the incomplete ones."""
    for path in sorted((run / "ckpt").glob("step_*"), reverse=True):
        try:
            checkpoint_state(path)
            return path
        except (OSError, ValueError, KeyError) as e:
            print(f"{path}: not a whole checkpoint ({type(e).__name__}), skipped", file=sys.stderr)


def model_folder(path):
    """Return the exported model of a run's folder or, if it has none, its newest whole checkpoint.

    Other paths and hub names are returned unchanged. Raises BadInput if a run has neither a model
    nor a whole checkpoint.
    """
    run = Path(path)
    if (run / "config.json").exists() or not (run / "log.jsonl").exists():
        return path  # unchanged: a folder without its ./ could be mistaken for a hub name
    if (run / "model" / "config.json").exists():
        return str(run / "model")
    if checkpoint := newest_checkpoint(run):
        return str(checkpoint)
    raise BadInput(f"--model={path}: the run has neither an exported model nor a checkpoint yet")


def load_weights(kind, path, device="cpu", **settings):
    """Load the model of a folder, hub name or checkpoint as transformers' class `kind`.

    The model is in fp32 and eval mode, on `device`. If `device` is "meta", the model has shapes
    only, and `load_shards` sets its weights and buffers after the model is split over ranks. The
    head of a critic has no useful values, because no file has them. settings: values that replace
    those of config.json. Raises BadInput.
    """
    import torch
    with load_errors(check_model_path(path)) as transformers:
        if device == "meta":
            return model_without_weights(kind, path, "meta", **settings)
        if not is_checkpoint(path):
            auto = getattr(transformers, kind)
            return auto.from_pretrained(path, dtype=torch.float32, **settings).to(device)
        if adapters := checkpoint_state(path).get("lora"):  # the checkpoint holds adapters only
            base = load_weights(kind, adapters["model"], **settings)
            model = lora.add_adapters(base, adapters["rank"])
            read_tensors({name: p.detach() for name, p in model.named_parameters()
                          if p.requires_grad}, path)
            lora.merge_adapters(model)
        else:
            model = model_without_weights(kind, path, "cpu", **settings)
            tensors = {name: p.detach() for name, p in model.named_parameters()}
            read_tensors({name: tensor for name, tensor in (tensors | stored_buffers(model)).items()
                          if not name.startswith(("score.", "classifier."))}, path)
        return model.to(device)


def model_without_weights(kind, path, device, **settings):
    """Return the model of a folder in fp32 and eval mode, with undefined weights, on `device`."""
    import torch
    import transformers
    from transformers.initialization import no_init_weights
    model_config = transformers.AutoConfig.from_pretrained(path, **settings)
    with torch.device(device), no_init_weights():
        model = getattr(transformers, kind).from_config(model_config, dtype=torch.float32).eval()
    model.tie_weights()
    if model.can_generate():  # if there is no such file, transformers uses the model's config
        with contextlib.suppress(OSError):
            model.generation_config = transformers.GenerationConfig.from_pretrained(path)
    return model


def stored_buffers(model):
    """Return {name: buffer} of the buffers that files hold, such as DeepSeek V3's routing bias."""
    stored = model.state_dict().keys()
    return {name: buffer for name, buffer in model.named_buffers() if name in stored}


def load_shards(model, path, device):
    """Set weights and buffers of a model that is on meta and split over ranks, in place.

    Rank 0 reads the whole model into its host's memory and sends every rank its shards. Every rank
    must call this.
    """
    import torch
    from torch.distributed.tensor import DTensor, distribute_tensor
    model.to_empty(device=device)
    model.tie_weights()
    if RANK == 0:
        whole = (load_weights("AutoModelForCausalLM", path) if model.can_generate()
                 else load_critic(path, "cpu"))
        tensors = dict(whole.named_parameters()) | dict(whole.named_buffers())
    for name, target in (*model.named_parameters(), *model.named_buffers()):
        target = target.detach()
        if RANK == 0:
            tensor = tensors[name].detach().to(device, target.dtype)
        else:
            tensor = torch.empty(target.shape, dtype=target.dtype, device=device)
        if isinstance(target, DTensor):
            tensor = distribute_tensor(tensor, target.device_mesh, target.placements)
        else:
            torch.distributed.broadcast(tensor, 0)
        target.copy_(tensor)
    return model


def read_tensors(tensors, folder):
    """Read the tensors of these names from a checkpoint's files into `tensors`, in place."""
    import torch.distributed.checkpoint as dcp
    dcp.load(tensors, no_dist=True, storage_reader=dcp.HuggingFaceStorageReader(str(folder)))


def load_model(path, device="auto"):
    """Load (causal LM, tokenizer) from a transformers folder, hub name or checkpoint of a run.

    The model is in fp32 and eval mode, on `device`. See `load_weights` for "meta". Raises BadInput.
    """
    import torch
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = load_tokenizer(path)
    return load_weights("AutoModelForCausalLM", path, device), tokenizer


def is_bf16(dtype, device):
    """Return whether --dtype means bf16 on a torch.device or its name; auto means bf16 on a GPU."""
    return dtype == "bf16" or (dtype == "auto" and str(device).startswith("cuda"))


def load_critic(path, device):
    """Return PPO's critic: the base model with a value head of zeros in place of its vocabulary.

    It is in fp32 and eval mode; device as in `load_weights`. Raises BadInput if transformers has
    no such class for this kind of model.
    """
    import torch
    critic = load_weights("AutoModelForTokenClassification", path, device, num_labels=1)
    for p in value_head(critic).parameters():
        torch.nn.init.zeros_(p)
    return critic


def value_head(critic):
    """Return the layer of a critic that computes its values; transformers has two names for it."""
    return critic.score if hasattr(critic, "score") else critic.classifier


# -------------------------------------------------------------------------------------------------
# Logits: from the last hidden state to the vocabulary


class BodyOutput(tuple):
    """The output of a model's body, as (last hidden state,); its other fields are None."""
    last_hidden_state = property(lambda self: self[0])

    def __getattr__(self, name):
        return None


def logits_of(model, hidden):
    """Return the logits (N, V) that a causal LM computes from its last hidden states (N, d).

    The output embedding is not enough: Gemma 2 caps its logits, Granite and Cohere scale them. So
    this runs the model's own forward, with a body that returns `hidden`.
    """
    output = BodyOutput((hidden[None],))
    # OPT calls its decoder directly; models like BERT call their output embedding `decoder`
    bodies = {model.base_model, model.get_decoder()} - {model, model.get_output_embeddings()}
    for body in bodies:
        body.forward = lambda *args, **kwargs: output
    try:
        return model.forward().logits[0]
    finally:
        for body in bodies:
            del body.forward


def has_linear_attention(model):
    """Return whether some layers keep a recurrent state instead of keys and values."""
    from transformers import DynamicCache
    return any(hasattr(layer, "recurrent_states") for layer in
               DynamicCache(config=model.config).layers)


def layer_list(model):
    """Return the list of a transformer's layers. GPT-2 calls it `h`, other models `layers`."""
    import torch
    size = model.config.get_text_config().num_hidden_layers
    for module in model.base_model.modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) == size:
            return module
    raise BadInput(f"--model={model.name_or_path}: no list of its {size} layers to split or to "
                   f"recompute (kind {model.config.model_type}); use one process and "
                   "--activation_checkpointing=false")


# -------------------------------------------------------------------------------------------------
# Many ranks: torchrun starts one process per GPU, or several on a CPU (gloo)


def start_ranks(device):
    """Join torchrun's process group, if there is one; return the device of this rank."""
    import torch
    cuda = device != "cpu" and torch.cuda.is_available()
    if WORLD > 1:
        torch.distributed.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo")
    if not cuda:
        return "cpu"
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    return f"cuda:{torch.cuda.current_device()}"


def all_reduce(numbers, op="SUM"):
    """Reduce a list of numbers over the ranks, number by number."""
    if WORLD == 1:
        return list(numbers)
    import torch
    tensor = torch.tensor(list(numbers), dtype=torch.float64)
    torch.distributed.all_reduce(tensor, getattr(torch.distributed.ReduceOp, op))
    return tensor.tolist()


def shard_model(model, device, forward, dtype="auto"):
    """Shard a model over all ranks with FSDP2, in place: parameters, gradients and moments in fp32.

    A GPU computes in --dtype. `forward` is the function that runs the model in training
    (token_logps or token_values). FSDP gathers embedding and head around `forward`, and the weights
    of a layer around that layer. Embedding and head stay gathered until the backward pass. A frozen
    model, such as the reference, has no backward pass, so its embedding and head are freed at once.
    """
    import torch
    from torch.distributed.fsdp import (MixedPrecisionPolicy, fully_shard,
                                        register_fsdp_forward_method)
    cuda, policy = torch.device(device).type == "cuda", MixedPrecisionPolicy()
    if cuda and is_bf16(dtype, device):
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    mesh = torch.distributed.init_device_mesh("cuda" if cuda else "cpu", (WORLD,))
    for layer in layer_list(model):
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    frozen = not any(p.requires_grad for p in model.parameters())
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=frozen or None)
    setattr(model, forward.__name__, types.MethodType(forward, model))
    register_fsdp_forward_method(model, forward.__name__)


def call_sharded(function, model):
    """Return `function` bound to `model`, with FSDP's hooks around it if the model is sharded."""
    return getattr(model, function.__name__, functools.partial(function, model))


def full_weights(model):
    """Yield (name, whole tensor) of each parameter and stored buffer; tied parameters appear once.

    Every rank must iterate over all of them, in this order. Adapters are merged into the weights.
    """
    for name, p in lora.merged_weights(model):
        yield name, p.full_tensor() if hasattr(p, "full_tensor") else p
    yield from stored_buffers(model).items()


def recomputes(cfg, device):
    """Return whether layers keep only their inputs (activation_checkpointing; auto = on a GPU)."""
    wanted = cfg["activation_checkpointing"]
    return wanted == "true" or (wanted == "auto" and str(device).startswith("cuda"))


def checkpoint_activations(model):
    """Keep only the input of each layer for the backward pass, and compute the rest again."""
    model.gradient_checkpointing_enable(dict(use_reentrant=False))
    for layer in layer_list(model):
        # transformers checkpoints a layer in training mode only; the layer's dropouts stay in eval
        # mode
        layer.training = True


# -------------------------------------------------------------------------------------------------
# Checkpoints: safetensors files of each rank (torch.distributed.checkpoint), config, tokenizer and
# state.json


@contextlib.contextmanager
def disk_errors(folder):
    """Raise disk failures as OSError, whatever safetensors, tokenizers or torch raise for them."""
    from torch.distributed.checkpoint.api import CheckpointException
    try:
        yield
    except OSError:
        raise
    except (Exception, CheckpointException) as e:  # the latter does not derive from Exception
        cause = next(iter(e.failures.values()))[0] if isinstance(e, CheckpointException) else e
        reason = (str(cause).strip() or type(cause).__name__).splitlines()[0]
        raise OSError(errno.EIO, reason, str(folder)) from None


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
        model.generation_config = type(given)()  # passes the check that `given` may fail
        with disk_errors(folder):
            model.config.dtype = kind
            model.save_pretrained(folder, state_dict=weights)
            model.generation_config = given
            write_settings(folder, model, tokenizer)


def write_settings(folder, model, tokenizer):
    """Write a model's config, its generation config and its tokenizer.

    The generation config is written unchecked, because transformers loads some settings that it
    refuses to save, such as Llama 2's temperature without do_sample.
    """
    model.config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    model.generation_config.to_json_file(Path(folder) / "generation_config.json",
                                         keys_to_pop=["compile_config"])


def training_state(trained):
    """Return {name: tensor} of a checkpoint's content; writing to a tensor changes the training.

    trained: [(prefix, model, optimizer), ...]. The name of a weight is prefix + NAME. AdamW's
    tensors for the weight are prefix + "exp_avg.NAME" and the like.
    """
    import torch
    tensors = {}
    for prefix, model, opt in trained:
        for name, p in model.named_parameters():
            if not p.requires_grad:  # a weight of the base model, frozen below adapters
                continue
            tensors[prefix + name] = p.detach()
            if not opt.state[p]:  # before the first step
                opt.state[p] = dict(step=torch.zeros((), device=p.device),
                                    exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
            for key, value in opt.state[p].items():
                tensors[f"{prefix}{key}.{name}"] = value.view(1) if value.ndim == 0 else value
        if not lora.adapter_layers(model):
            tensors |= {prefix + name: b for name, b in stored_buffers(model).items()}
    return tensors


FILE_BYTES = 2**29  # bytes of a checkpoint file; two copies of one file are in memory at a time


def save_checkpoint(folder, trained, tokenizer, state):
    """Write ckpt/step_NNNNNNNN in one step; keep the newest two and those in state["keep"].

    The folder is written under another name and then renamed. Its state.json is written last and
    marks the checkpoint as whole. Every rank must call this and writes its own shard, so all ranks
    must see the folder.
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
        writer = dcp.HuggingFaceStorageWriter(str(part), fqn_to_index_mapping=files,
                                              save_distributed=True)
        dcp.save(tensors, storage_writer=writer, no_dist=WORLD == 1)
        if RANK == 0:
            write_settings(part, trained[0][1], tokenizer)
    if RANK == 0:
        for file in part.iterdir():
            with open(file, "rb") as f:
                os.fsync(f.fileno())
        sizes = {f.name: f.stat().st_size for f in part.glob("*.safetensors")}
        save_json(part / "state.json", dict(state, files=sizes))
        target = folder / "ckpt" / f"step_{state['step']:08d}"
        shutil.rmtree(target, ignore_errors=True)
        part.rename(target)
        keep_checkpoints(folder, 2, state["keep"])
    all_reduce([0])


def keep_checkpoints(folder, newest, steps):
    """Remove a run's checkpoints, except the `newest` few and the updates in `steps`."""
    paths = sorted((folder / "ckpt").glob("step_*"), reverse=True)
    for path in paths[newest:]:
        if int(path.name.removeprefix("step_")) not in steps:
            shutil.rmtree(path)


def load_checkpoint(folder, trained):
    """Load the newest whole checkpoint into models and optimizers, in place; return its state.

    Returns None if there is no whole checkpoint. Torn checkpoints are skipped. Rank 0 chooses the
    checkpoint, which may have been written by another number of ranks. Raises OSError if the
    checkpoint cannot be read or belongs to another model.
    """
    newest = newest_checkpoint(folder) if RANK == 0 else None
    step = int(all_reduce([checkpoint_state(newest)["step"] if newest else -1], "MAX")[0])
    if step < 0:
        return None
    path = folder / "ckpt" / f"step_{step:08d}"
    with disk_errors(path):
        read_tensors(training_state(trained), path)
    for later in sorted((folder / "ckpt").glob("step_*")) if RANK == 0 else ():
        if later.name > path.name:  # a torn checkpoint would count as one of the newest two
            shutil.rmtree(later)
    return checkpoint_state(path)
