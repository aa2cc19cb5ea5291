"""core/problems.py: read and write problem files (JSON lines), choose subsets, tokenize prompts."""
import datetime
import hashlib
import json
import math
import os
import random
import sys
from pathlib import Path

from config import BadInput, read_json
from core.log import atomic_write, finite

# The date for chat templates that print one (Llama 3, Granite), so that a run that is resumed
# tomorrow has the same prompts. It is the default of Llama 3's template
DATE = datetime.datetime(2024, 7, 26)


def read_problems(path):
    """Return the problems of a file, one JSON object per line, as a list of dicts. Each has the
    strings "id" (unique), "prompt" and "answer", and may have "begin", the start of the answer, and
    other fields. Raise BadInput if a line is not a problem."""
    try:
        lines = Path(path).read_bytes().split(b"\n")  # str.splitlines also splits at U+2028
    except OSError as e:
        make = "; `bash run_sweep.sh easy` or sample.py makes the splits of a model"
        raise BadInput(f"{path}: cannot read this problem file ({e.strerror})"
                       + make * ("splits" in Path(path).parts)) from None
    problems, line_of = [], {}
    for i, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            # json.loads reads bytes as UTF-8 in every locale, even with a BOM
            problem = json.loads(line)
            if not isinstance(problem, dict):
                raise ValueError
        except (ValueError, RecursionError):
            raise BadInput(f"{path}:{i}: not a JSON object in UTF-8") from None
        for field in ("id", "prompt", "answer"):
            value = problem.get(field)
            if finite(value) is None or not str(value).strip():
                raise BadInput(f"{path}:{i}: the problem has no {field}")
            if isinstance(value, (list, dict)):  # such as chat turns
                raise BadInput(f"{path}:{i}: {field} is not text; data/guru_math/prepare.py "
                               "reads chat turns")
            if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:  # 12.0 is 12
                value = int(value)
            # tokenizers refuse lone surrogates
            problem[field] = str(value).encode(errors="replace").decode()
        if not isinstance(problem.get("begin", ""), str):  # it may be empty or blank
            raise BadInput(f"{path}:{i}: begin={problem['begin']!r}: expected a string")
        if "begin" in problem:
            problem["begin"] = problem["begin"].encode(errors="replace").decode()
        if problem["id"] in line_of:
            raise BadInput(f"{path}:{i}: id {problem['id']} is already used in line "
                           f"{line_of[problem['id']]}")
        line_of[problem["id"]] = i
        problems.append(problem)
    if not problems:
        raise BadInput(f"{path}: contains no problem")
    return problems


def is_made(folder, cfg, keys):
    """Return whether problems.jsonl of a data folder exists. Raise BadInput if manifest.json, the
    settings it was made with, is missing or differs from `cfg` in one of `keys`."""
    out, manifest = folder / "problems.jsonl", folder / "manifest.json"
    if not out.exists():
        return False
    if not manifest.exists():
        raise BadInput(f"{out}: exists, and another program made it (there is no manifest.json); "
                       "remove it, or give another --data")
    made_with = read_json(manifest).get("settings", {})
    for key in keys:
        if made_with.get(key) != cfg[key]:
            raise BadInput(f"--{key}={cfg[key]}: {out} was made with {key}={made_with.get(key)}; "
                           "remove it with its splits and runs, or give another --data")
    return True


def write_problems(path, problems):
    """Write a problem file atomically."""
    with atomic_write(path) as part:
        part.write_text("".join(json.dumps(p) + "\n" for p in problems))


def set_hash(problems):
    """Return a hash (12 hex digits) of the id, prompt, answer and begin of problems, in order."""
    lines = [json.dumps([p["id"], p["prompt"], p["answer"], *filter(None, [p.get("begin")])])
             for p in problems]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def copies(problems):
    """For each problem, return the index of the first one with the same `prompt` and `begin`, up to
    white space."""
    first, texts = {}, [" ".join((p["prompt"] + p.get("begin", "")).split()) for p in problems]
    return [first.setdefault(text, i) for i, text in enumerate(texts)]


def at_k(metric, samples):
    """Return [the metric of a problem with c of s = `samples` rollouts solved, for c = 0..s].

    best@k is the chance that at least one of k rollouts is solved, worst@k that all are. These are
    unbiased estimates (Chen et al. 2021, eq. 1). Raise BadInput if k > s.
    """
    kind, k, s = metric.split("@")[0], int(metric.split("@")[1]), samples
    if k > s:
        raise BadInput(f"--metric={metric}: needs {k} rollouts per problem, but the evaluations "
                       f"have {s}; give k up to {s}")
    value = dict(avg=lambda c: c / s, worst=lambda c: math.comb(c, k) / math.comb(s, k),
                 best=lambda c: 1 - math.comb(s - c, k) / math.comb(s, k))[kind]
    return [value(c) for c in range(s + 1)]


def subset(problems, D, seed):
    """Return D problems of a seeded shuffle, in file order, or all if D = 0 or there are fewer. A
    larger D includes them."""
    order = random.Random(f"subset {seed}").sample(range(len(problems)), len(problems))
    return [problems[i] for i in sorted(order[:D])] if D else problems


def tokenize(problems, tokenizer):
    """Return the prompts as token ids, a list of lists: one user turn of a chat template, if there
    is one, and the problem's `begin`."""
    texts = [p["prompt"] for p in problems]
    if tokenizer.chat_template:  # the template writes the special tokens
        turns = [[dict(role="user", content=text)] for text in texts]
        texts = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True,
                                              strftime_now=DATE.strftime)
    texts = [text + p.get("begin", "") for text, p in zip(texts, problems)]
    prompts = tokenizer(texts, add_special_tokens=False)["input_ids"]
    if not tokenizer.chat_template:
        full = tokenizer(texts, add_special_tokens=True)["input_ids"]
        prompts = [without_end(ids, text) for ids, text in zip(full, prompts)]
    warn_of_unknown(problems, prompts, tokenizer)
    return prompts


def without_end(ids, text):
    """Return the token ids of a prompt without the special tokens at its end, after which a model
    writes no answer. text: the ids without special tokens."""
    for start in range(len(ids) - len(text) + 1):
        if ids[start:start + len(text)] == text:
            return ids[:start + len(text)]
    return ids


def encode(name, problems, tokenizer, max_prompt_tokens):
    """Return the prompts of the set `name` as token ids. Raise BadInput if one is too long."""
    prompts = tokenize(problems, tokenizer)
    for p, ids in zip(problems, prompts):
        if not ids or len(ids) > max_prompt_tokens:
            raise BadInput(f"{name}: problem {p['id']}: its prompt has {len(ids)} tokens; expected "
                           f"1 to --max_prompt_tokens={max_prompt_tokens}")
    return prompts


def warn_of_unknown(problems, prompts, tokenizer):
    """Print a warning if the tokenizer has no token for a part of some prompts."""
    named = tokenizer.unk_token
    # a fast tokenizer may name its unknown token only in its backend
    if tokenizer.is_fast and not named:
        named = getattr(tokenizer.backend_tokenizer.model, "unk_token", None)
    unknown = tokenizer.convert_tokens_to_ids(named) if named else None
    bad = [p["id"] for p, ids in zip(problems, prompts) if unknown in ids]
    if bad and os.environ.get("RANK", "0") == "0":
        print(f"{len(bad)} of {len(problems)} prompts have text that is not in the model's "
              f"vocabulary, such as problem {bad[0]}", file=sys.stderr)
