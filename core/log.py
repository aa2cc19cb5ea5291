"""core/log.py: a run's log.jsonl, a sweep's plan, and files that are written in one step.

    append(file, record)        # add one line to an open log
    read_log(path)              # its records; a torn last line is skipped
    progress(folder)            # how many rollouts a run has made, and how it ended
    finished(cfg, folder)       # whether a run has used its budget or diverged
"""
import contextlib
import gzip
import json
import math
import os
import zlib
from pathlib import Path

from config import BadInput, all_rollouts, read_json


@contextlib.contextmanager
def atomic_write(path):
    """Yield the name of a temporary file, which replaces `path` when the `with` block ends.

    If the block raises, the temporary file is removed and `path` does not change.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # keep the suffix, because savefig derives the format from it
    part = path.with_name(f".{os.getpid()}.part.{path.name}")
    try:
        yield part
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def finite(value):
    """Return `value` for JSON: nan and inf become None, numpy's types become lists and numbers."""
    if isinstance(value, dict):
        return {str(k): finite(v) for k, v in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def save_json(path, value, indent=1):
    """Write a JSON file in one step, so that it is never torn."""
    with atomic_write(path) as part:
        part.write_text(json.dumps(finite(value), indent=indent) + "\n")


def append(file, record):
    """Append one record, as one line, to an open log (a binary file without buffer).

    If the write fails halfway, as on a full disk, half a line is left. `read_log` skips such a
    line, and all scripts cut it off before they append again.
    """
    line = json.dumps(finite(record)).encode() + b"\n"
    file.seek(0, os.SEEK_END)
    while line:
        line = line[file.write(line):]


def read_log(path):
    """Return the records of a log.jsonl or .jsonl.gz as a list of dicts.

    A torn last line (a killed run) is skipped. Any other broken line raises BadInput with file and
    line number.
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
    """Return a sweep's sweep.json, the plan that was started last, or {} if the file is missing."""
    path = Path(folder) / "sweep.json"
    plan = read_json(path) if path.exists() else {}
    if plan and not isinstance(plan.get("config"), dict):
        raise BadInput(f"{path}: expected the sweep's flat dict under `config`")
    return plan


def progress(folder):
    """Return (rollouts in the log of the run in `folder`, the end record's status or "")."""
    path = Path(folder) / "log.jsonl"
    try:
        records = read_log(path) if path.exists() else []
    except BadInput:  # train_grpo.py will report this log, and the sweep's other runs continue
        records = []
    rollouts = [r.get("rollouts", 0) for r in records if r.get("type") in ("step", "eval")]
    return max(rollouts, default=0), records[-1].get("status", "") if records else ""


def finished(cfg, folder):
    """Return whether the run in `folder` diverged or made all M updates of its budget.

    A pruned run is not finished: it may be continued.
    """
    rollouts, status = progress(folder)
    return status == "diverged" or (status == "budget" and rollouts >= all_rollouts(cfg))
