"""core/lora.py: low-rank adapters (--lora_rank), which train in less GPU memory.

    python train_grpo.py --model=Qwen/Qwen2.5-7B-Instruct --lora_rank=32 --lr_base=1e-5 ...

In every linear layer of the body, W + (32 / rank) B A replaces the weight W (Hu et al. 2021). A and
B are trained in fp32. W is frozen, in bf16 on a GPU. The final model and an engine with its own
copy use the merged weights. The reference of the KL is the model with its adapters off. The paper
has no adapters. They need an lr about ten times larger, one GPU, and requirements-lora.txt.
"""
import contextlib

from config import BadInput

ALPHA = 32  # peft scales B A by ALPHA / lora_rank, so that one lr fits every lora_rank


def freeze(model, bf16):
    """Freeze a model's weights in place and, if `bf16` is true, convert them to bf16."""
    model.requires_grad_(False)
    if bf16:
        for p in model.parameters():  # buffers remain in fp32, which rotary frequencies need
            p.data = p.data.bfloat16()
    return model


def add_adapters(model, rank, seed=0):
    """Add adapters to a model in place. B is 0, so outputs do not change yet."""
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
    """Return {name: peft's layer} of the layers that have adapters; {} if there are none."""
    if not hasattr(model, "peft_config"):
        return {}
    from peft.tuners.lora import LoraLayer
    return {name: m for name, m in model.named_modules() if isinstance(m, LoraLayer)}


@contextlib.contextmanager
def adapters_off(model):
    layers = adapter_layers(model).values()
    try:
        for layer in layers:
            layer.enable_adapters(False)
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


def merged_weights(model):
    """Yield (name, tensor) of each base parameter, with the adapters merged into it in fp32."""
    layers = adapter_layers(model)
    for name, p in model.named_parameters():
        layer, _, last = name.rpartition(".base_layer.")
        if layer:
            delta = layers[layer].get_delta_weight("default").detach() if last == "weight" else 0
            yield f"{layer}.{last}", p.detach().float() + delta
        elif ".lora_" not in name:
            yield name, p.detach()


def merge_adapters(model):
    """Add the adapters to the weights and remove them, in place."""
    for name, layer in adapter_layers(model).items():
        layer.merge()
        model.set_submodule(name, layer.get_base_layer())
    del model.peft_config
