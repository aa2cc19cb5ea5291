"""core/machine.py: GPUs, cores and commit of this machine, found without loading torch."""
import contextlib
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


def cores(root=Path("/sys/fs/cgroup")):
    """Return how many cores this process may use, 1 or more.

    If a container has a CPU quota (docker --cpus, Kubernetes limits), it counts, rounded down.
    root: the folder where Linux mounts control groups, of version 2 or 1.
    """
    count = len(os.sched_getaffinity(0))
    for files in ["cpu.max"], ["cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"]:
        with contextlib.suppress(OSError, ValueError):  # no such file, or the quota "max"
            quota, period = " ".join((root / file).read_text() for file in files).split()
            count = min(count, int(quota) / int(period)) if int(quota) > 0 else count
    return max(1, int(count))


def mixed_code(begun):
    """Return a text if the commits in the set `begun` may differ from the present code, else "".

    An edit does not change a run's identity, so one run or sweep can mix two versions of the code.
    """
    begun, now = begun - {None}, commit()
    # the + of an edited commit does not show what was edited
    if not now or not begun or (begun == {now} and not now.endswith("+")):
        return ""
    old, now = (name.replace("+", " with edits") for name in (", ".join(sorted(begun)), now))
    return (f"begun by commit {old}; the code now is {now}. If you do not want to mix them, "
            "--tag=NAME starts new runs")


def commit():
    """Return the commit of this code, with a + if files were edited; None outside a repository."""
    try:
        done = subprocess.run(["git", "describe", "--always", "--dirty=+", "--exclude=*"],
                              cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10)
        return done.stdout.strip() or None
    except (OSError, subprocess.TimeoutExpired):
        return None
