"""core/lora.py: low-rank adapters by peft, where the optimizer state does not fit (`lora_rank`).

    python train_grpo.py --model=Qwen/Qwen2.5-7B-Instruct --lora_rank=32 --lr_base=1e-5 ...

W + (32 / rank) B A in every linear layer of the body: A and B are trained, in fp32, W is frozen, in
bf16 where a GPU computes in it (Hu et al. 2021). The engine and the final model get the sum; the
reference of the KL is the model with its adapters off, and takes no memory. It is not in the paper,
wants a larger lr (about ten times), and trains on one GPU. Needs peft (requirements-lora.txt).
"""
import contextlib

from config import BadInput

ALPHA = 32  # peft's scale is ALPHA / rank: one lr does for all ranks


def freeze(model, bf16):
    """A model whose weights are not trained, in place and where it lies; in bf16 where asked."""
    model.requires_grad_(False)
    if bf16:
        for p in model.parameters():  # not its buffers, the frequencies of the positions
            p.data = p.data.bfloat16()
    return model


def add_adapters(model, rank, seed=0):
    """Adapters into a model, in place: B is 0, so it computes what it did. Raises BadInput."""
    import torch
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError:
        raise BadInput(f"--lora_rank={rank}: peft is not installed "
                       "(pip install -r requirements-lora.txt)") from None
    settings = LoraConfig(r=rank, lora_alpha=ALPHA, target_modules="all-linear")
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        inject_adapter_in_model(settings, model)
    for p in model.parameters():
        if p.requires_grad:
            p.data = p.data.float()
    return model.eval()


def adapter_layers(model):
    """{name: peft's layer} of the layers that have adapters; {} without any."""
    if not hasattr(model, "peft_config"):
        return {}
    from peft.tuners.lora import LoraLayer
    return {name: m for name, m in model.named_modules() if isinstance(m, LoraLayer)}


@contextlib.contextmanager
def adapters_off(model):
    """The model as it is without its adapters."""
    here = adapter_layers(model).values()
    try:
        for layer in here:
            layer.enable_adapters(False)
        yield model
    finally:
        for layer in here:
            layer.enable_adapters(True)


def merged_weights(model):
    """(name, tensor) of each parameter of the plain model, the adapters added in fp32."""
    here = adapter_layers(model)
    for name, p in model.named_parameters():
        at, _, last = name.rpartition(".base_layer.")
        if at:
            delta = here[at].get_delta_weight("default") if last == "weight" else 0
            yield f"{at}.{last}", p.detach().float() + delta
        elif ".lora_" not in name:
            yield name, p.detach()


def merge_adapters(model):
    """Add the adapters to the weights and take them out, in place."""
    weights = {name: p.clone() for name, p in merged_weights(model)}
    for name, layer in adapter_layers(model).items():
        model.set_submodule(name, layer.get_base_layer())
    del model.peft_config
    for name, p in model.named_parameters():
        p.data.copy_(weights[name])
    return model
