"""core/probe.py: test whether torch and Triton work on the GPUs here; print how many do.

    python core/probe.py          # "2", or "0" and the error in the same line
    python core/probe.py triton   # compiles a Triton kernel too, because vLLM's sampler needs it

core/sweep.py starts this script with the interpreter of the runs. Triton reads the source of a
kernel from a file, so `python -c` would not do. The script imports nothing of this project.
"""
import os
import sys
import tempfile


def first_line(error):
    """Return the first line of a library's error, at most 160 characters."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160]


def count_gpus():
    """Return how many GPUs torch can use, and the reason if it can use none, or ""."""
    import torch
    built = torch.version.cuda
    if built is None:
        return 0, f"torch {torch.__version__} is a build for CPUs; pip install -r requirements.txt"
    try:
        torch.ones(1, device="cuda").sum().item()
        return torch.cuda.device_count(), ""
    except Exception as e:
        return 0, f"{first_line(e)}; this torch needs a driver for CUDA {built}"


def add_one(x):
    """Add 1 to the first 16 numbers at the pointer x. Triton compiles this kernel."""
    i = tl.arange(0, 16)
    tl.store(x + i, tl.load(x + i) + 1)


def compile_kernel(device="cuda"):
    """Compile `add_one` and run it, raising the errors of Triton and of the C compiler."""
    global tl
    import torch
    import triton
    import triton.language as tl
    # a kernel in the old cache would hide that the compiler is missing
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TRITON_CACHE_DIR"] = cache
        x = torch.zeros(16, device=device)
        triton.jit(add_one)[(1,)](x)
        x.sum().item()  # waits for the kernel


def main(words):
    gpus, why = count_gpus()
    if gpus and "triton" in words:
        try:
            compile_kernel()
        except Exception as e:
            gpus, why = 0, (f"Triton fails: {first_line(e)}; it needs gcc or clang, and Python.h "
                            "(python3-dev)")
    print(gpus, why)


if __name__ == "__main__":
    main(sys.argv[1:])
