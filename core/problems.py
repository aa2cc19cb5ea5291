"""core/problems.py: problem files, {"id", "prompt", "answer", ...} per line, and their tokens."""
import datetime
import hashlib
import json
import os
import random
import sys
from pathlib import Path

from config import BadInput
from core.log import atomic_write

# The day of chat templates that print it (Llama 3, Granite): a run that goes on tomorrow needs the
# prompts of today. It is the one that Llama 3 falls back to
DATE = datetime.datetime(2024, 7, 26)


def read_problems(path):
    """Read a problem file as a list of dicts with string fields "id" (unique), "prompt", "answer".

    Other fields are kept. An optional string "begin" is the beginning of the model's answer. Raise
    BadInput that names the file and the line.
    """
    try:
        lines = Path(path).read_bytes().split(b"\n")  # splitlines would also split at U+2028
    except OSError as e:
        make = "" if "/splits/" not in str(path) else (
            "; `bash run_sweep.sh easy` makes the splits, or prepare.py of the data folder and "
            "then sample.py")
        raise BadInput(f"{path}: cannot read this problem file ({e.strerror}){make}") from None
    problems, where = [], {}
    for i, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            problem = json.loads(line)  # bytes: UTF-8 in every locale, with or without a BOM
            if not isinstance(problem, dict):
                raise ValueError
        except (ValueError, RecursionError) as e:
            why = "not UTF-8 text" if isinstance(e, UnicodeDecodeError) else "not a JSON object"
            raise BadInput(f"{path}:{i}: {why}") from None
        for field in ("id", "prompt", "answer"):
            value = problem.get(field)
            if value is None or not str(value).strip():
                raise BadInput(f"{path}:{i}: the problem has no {field}")
            if isinstance(value, (list, dict)):  # chat turns
                raise BadInput(f"{path}:{i}: {field} is not text; data/guru_math/prepare.py "
                               f"--source={path} reads chat turns")
            # JSON can write half of a surrogate pair, which tokenizers refuse
            problem[field] = str(value).encode(errors="replace").decode()
        if not isinstance(problem.get("begin", ""), str):
            raise BadInput(f"{path}:{i}: begin={problem['begin']!r}: expected a string")
        if problem["id"] in where:
            raise BadInput(f"{path}:{i}: id {problem['id']} is already used in line "
                           f"{where[problem['id']]}")
        where[problem["id"]] = i
        problems.append(problem)
    if not problems:
        raise BadInput(f"{path}: contains no problem")
    return problems


def write_problems(path, problems):
    """Write a problem file under another name, then rename it."""
    with atomic_write(path) as part:
        part.write_text("".join(json.dumps(p) + "\n" for p in problems))


def set_hash(problems):
    """Return 12 hex digits that change with any id, prompt, answer or begin, and with the order."""
    lines = [json.dumps([p["id"], p["prompt"], p["answer"], *filter(None, [p.get("begin")])])
             for p in problems]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def copies(problems):
    """Return for each problem the place of the first one with its prompt and begin: a list of ints.

    A set for evaluation may hold each problem several times (AIME x 16).
    """
    first, texts = {}, [" ".join((p["prompt"] + p.get("begin", "")).split()) for p in problems]
    return [first.setdefault(text, i) for i, text in enumerate(texts)]


def subset(problems, D, seed):
    """Return D problems by a seeded shuffle, or all for D = 0.

    With one seed, a smaller D is a subset of a larger one. Raise BadInput if D is too large.
    """
    if D > len(problems):
        raise BadInput(f"--D={D}: the training set holds only {len(problems)} problems")
    order = random.Random(f"subset {seed}").sample(range(len(problems)), len(problems))
    return [problems[i] for i in sorted(order[:D])] if D else problems


def tokenize(problems, tokenizer):
    """Return the prompts as token ids, a list of lists; a line says if the vocabulary lacks text.

    A tokenizer with a chat template gets the prompt as one user turn; a template that prints the
    date prints DATE. A problem's `begin` comes last, as if the model had written it.
    """
    if not tokenizer.chat_template:
        texts = [p["prompt"] + p.get("begin", "") for p in problems]
        bare = tokenizer(texts, add_special_tokens=False)["input_ids"]
        full = tokenizer(texts, add_special_tokens=True)["input_ids"]
        prompts = [without_end(ids, text) for ids, text in zip(full, bare)]
        warn_of_unknown(problems, prompts, tokenizer)
        return prompts
    texts = []
    for p in problems:
        turn = [dict(role="user", content=p["prompt"])]
        texts.append(tokenizer.apply_chat_template(
            turn, tokenize=False, add_generation_prompt=True, strftime_now=DATE.strftime)
            + p.get("begin", ""))
    # a template writes its own special tokens
    prompts = tokenizer(texts, add_special_tokens=False)["input_ids"]
    warn_of_unknown(problems, prompts, tokenizer)
    return prompts


def without_end(ids, text):
    """Return token ids up to the end of `text`, the ids of the same text without special tokens.

    Some tokenizers put the end of the text after every text; no answer follows that.
    """
    for start in range(len(ids) - len(text) + 1):
        if ids[start:start + len(text)] == text:
            return ids[:start + len(text)]
    return ids


def encode(problems, tokenizer, max_prompt_tokens):
    """Tokenize, and raise BadInput that names the first problem whose prompt is too long."""
    prompts = tokenize(problems, tokenizer)
    for p, ids in zip(problems, prompts):
        if not ids or len(ids) > max_prompt_tokens:
            raise BadInput(f"problem {p['id']}: its prompt has {len(ids)} tokens, "
                           f"--max_prompt_tokens={max_prompt_tokens}")
    return prompts


def warn_of_unknown(problems, prompts, tokenizer):
    """Print a line if the tokenizer has no token for a part of some prompts."""
    named = tokenizer.unk_token
    if tokenizer.is_fast and not named:  # a character vocabulary may know it under another name
        named = getattr(tokenizer.backend_tokenizer.model, "unk_token", None)
    unknown = tokenizer.convert_tokens_to_ids(named) if named else None
    bad = [(p, ids) for p, ids in zip(problems, prompts) if unknown in ids]
    if bad and os.environ.get("RANK", "0") == "0":
        p, ids = bad[0]
        print(f"{len(bad)} of {len(problems)} prompts have text that the model's vocabulary does "
              f"not hold, such as problem {p['id']}, which it reads as "
              f"{tokenizer.decode(ids)[:60]!r}", file=sys.stderr)
