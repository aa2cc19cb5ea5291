"""core/machine.py: find the GPUs of this machine without importing torch."""
import os
import re
import subprocess


def visible_gpus():
    """Return the ids in CUDA_VISIBLE_DEVICES if it is set, else those that nvidia-smi lists."""
    text = os.environ.get("CUDA_VISIBLE_DEVICES")
    if text is not None:
        ids = re.split(r"[,\s]+", text.strip(", "))
        return [] if ids[0] in ("", "-1", "NoDevFiles") else ids  # how CUDA and Slurm write none
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return re.findall(r"^GPU (\d+):", done.stdout, re.M)
