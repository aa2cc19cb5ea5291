"""core/machine.py: GPUs, cores and commit of this machine, found without loading torch."""
import os
import re
import subprocess
from pathlib import Path


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


def cores(root=Path("/sys/fs/cgroup"), groups=Path("/proc/self/cgroup")):
    """Return how many cores this process may use, 1 or more.

    The CPU quota of a container counts (docker --cpus, Kubernetes limits), rounded down. root,
    groups: where Linux mounts control groups and lists those of this process.
    """
    count = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        count = len(os.sched_getaffinity(0))
    lines = groups.read_text().splitlines() if groups.exists() else []
    for line in lines:
        _, kinds, path = line.split(":", 2)
        if kinds and "cpu" not in kinds.split(","):
            continue
        # version 2 names no kind; in a container the own group may be mounted at the root
        for mount in {root / kinds, root / "cpu"} if kinds else {root, root / "unified"}:
            group = mount / path.lstrip("/")
            for place in (group, *group.parents):
                if place.is_relative_to(mount):
                    count = min(count, cpu_quota(place, count))
    return max(1, int(count))


def cpu_quota(group, otherwise):
    """Return the CPUs that a control group folder (version 1 or 2) grants, a float."""
    try:
        if (group / "cpu.max").exists():
            quota, period = (group / "cpu.max").read_text().split()
        else:
            quota, period = ((group / f"cpu.cfs_{name}_us").read_text()
                             for name in ("quota", "period"))
        return int(quota) / int(period) if int(quota) > 0 else otherwise
    except (OSError, ValueError):  # no such file, or "max"
        return otherwise


def commit():
    """Return the commit of this code, with a + if files were edited; None outside a repository."""
    try:
        done = subprocess.run(["git", "describe", "--always", "--dirty=+", "--exclude=*"],
                              cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10)
        return done.stdout.strip() or None
    except (OSError, subprocess.TimeoutExpired):
        return None
