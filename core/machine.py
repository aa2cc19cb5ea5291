"""core/machine.py: GPUs, cores and commit of this machine, found without loading torch."""
import contextlib
import os
import re
import subprocess
from pathlib import Path


def visible_gpus():
    """Return the ids of the GPUs in CUDA_VISIBLE_DEVICES or, if it is unset, in nvidia-smi."""
    text = os.environ.get("CUDA_VISIBLE_DEVICES")
    if text is not None:
        ids = re.split(r"[,\s]+", text.strip(", "))
        return [] if ids[0] in ("", "-1", "NoDevFiles") else ids  # words for no GPU
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return re.findall(r"^GPU (\d+):", done.stdout, re.M)


def cores(root=Path("/sys/fs/cgroup")):
    """Return how many CPU cores this process may use, within a container's quota, rounded down.

    root: the folder where Linux mounts control groups, of version 2 or 1.
    """
    may = getattr(os, "sched_getaffinity", None)  # macOS has none
    count = len(may(0)) if may else os.cpu_count()
    for files in ["cpu.max"], ["cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"]:
        with contextlib.suppress(OSError, ValueError):  # the file is missing or has no quota
            quota, period = " ".join((root / file).read_text() for file in files).split()
            count = min(count, int(quota) / int(period)) if int(quota) > 0 else count
    return max(1, int(count))


def commit():
    """Return the git commit of this code, with a + if files were edited, or None without git."""
    try:
        done = subprocess.run(["git", "describe", "--always", "--dirty=+", "--exclude=*"],
                              cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10)
        return done.stdout.strip() or None
    except (OSError, subprocess.TimeoutExpired):
        return None
