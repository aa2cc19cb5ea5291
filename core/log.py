"""core/log.py: read and write a run's log.jsonl, read a sweep's plan, write files atomically.

    append(file, record), read_log(path)           # one line; all records
    progress(folder), finished(cfg, folder)        # how far a run is; whether it has ended
"""
import contextlib
import csv
import gzip
import json
import math
import os
import zlib
from pathlib import Path

from config import BadInput, all_rollouts, read_json


@contextlib.contextmanager
def atomic_write(path):
    """Yield the name of a temporary file, which replaces `path` unless the `with` block raises."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # keep the suffix, from which savefig derives the image format
    part = path.with_name(f".{os.getpid()}.part.{path.name}")
    try:
        yield part
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def finite(value):
    """Return `value` for JSON: NaN and inf become None, numpy's arrays and scalars become plain."""
    if isinstance(value, dict):
        return {str(k): finite(v) for k, v in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def save_json(path, value, indent=1):
    """Write a JSON file atomically."""
    with atomic_write(path) as part:
        part.write_text(json.dumps(finite(value), indent=indent) + "\n")


def save_csv(path, columns, rows):
    """Write these columns of dicts as a CSV file, atomically, floats with seven digits."""
    with atomic_write(path) as part, open(part, "w", newline="") as file:
        out = csv.DictWriter(file, columns, lineterminator="\n", extrasaction="ignore")
        out.writeheader()
        for row in rows:
            out.writerow({key: f"{x:.7g}" if isinstance(x, float) else x for key, x in row.items()})


def append(file, record):
    """Append one record as a line of JSON to an open log, an unbuffered binary file.

    A full disk can leave half a line, which `read_log` skips and the next start cuts off.
    """
    line = json.dumps(finite(record)).encode() + b"\n"
    file.seek(0, os.SEEK_END)
    while line:
        line = line[file.write(line):]


def read_log(path):
    """Return the records of a log.jsonl or .jsonl.gz as a list of dicts.

    An incomplete last line, left by a killed run, is skipped. Raise BadInput if another is broken.
    """
    raw = Path(path).read_bytes()
    try:
        lines = (gzip.decompress(raw) if str(path).endswith(".gz") else raw).split(b"\n")
    except (OSError, EOFError, zlib.error) as e:
        raise BadInput(f"{path}: not a readable gzip file ({e})") from None
    records = []
    for i, line in enumerate(lines):
        try:
            if line.strip():
                records.append(json.loads(line))
        except ValueError:
            if i < len(lines) - 1:
                raise BadInput(f"{path}:{i + 1}: not a line of JSON") from None
    return [r for r in records if isinstance(r, dict)]


def read_plan(folder):
    """Return the content of a sweep's sweep.json, {"config": flat dict}, or {} without the file."""
    path = Path(folder) / "sweep.json"
    plan = read_json(path) if path.exists() else {}
    if plan and not isinstance(plan.get("config"), dict):
        raise BadInput(f"{path}: expected the sweep's flat dict under `config`")
    return plan


def progress(folder):
    """Return how many rollouts a run has made, and the status with which it ended, or ""."""
    records = []
    with contextlib.suppress(OSError, BadInput):  # train_grpo.py reports a broken log at its start
        records = read_log(Path(folder) / "log.jsonl")
    rollouts = [r.get("rollouts", 0) for r in records if r.get("type") in ("step", "eval")]
    return max(rollouts, default=0), records[-1].get("status", "") if records else ""


DIVERGED = 3  # the exit code of a run that diverged


def finished(cfg, folder):
    """Return whether the run in `folder` diverged or made all M updates of its budget."""
    rollouts, status = progress(folder)
    return status == "diverged" or (status == "budget" and rollouts >= all_rollouts(cfg))
