r"""data/guru_math/prepare.py: Guru's math part, or another data set, as a problem file.

    python data/guru_math/prepare.py              # downloads Guru's file, and AIME24's first
    python data/guru_math/prepare.py --model=Qwen/Qwen3-4B-Instruct-2507  # the tokenizer for prompt
                                                  # lengths; none = do not measure them
    python data/guru_math/prepare.py --data=data/mine --source=mine.jsonl \
        --question_key=problem --answer_key=solution.final  # any two columns of a file

Reads --source: a .parquet, .jsonl or .jsonl.gz file, or OWNER/NAME:FILE, a file of a data set on
the hub at --revision. A file of that name in the data folder is used instead of the hub. Writes
into the data folder, by default that of this script
- `problems.jsonl`, {"id", "prompt", "answer"} per line; the prompt is the question and a sentence
  that asks for \boxed{};
- `manifest.json`, written before it: where the rows came from, how many were left out and why,
  hashes.

A cell may hold text, bytes, chat turns (the last user turn counts) or parts of a message.
--question_key may name several columns, separated by commas. Of an answer only the part to match is
kept: 18 of "9 * 2 = 18\n#### 18", C of "(C) 12" if the question lists choices. Golds with doubled
backslashes (\\frac) are repaired. A sentence that asks for another form of the answer than \boxed{}
is removed, and ours is added if none asks for the box.

Left out and counted, in this order: rows without question or answer, or that are not text; rows
with several answers, such as several different boxes; rows in which the sentence on the form of the
answer also holds part of the question; golds that the verifier cannot read; prompts over
--max_prompt_tokens after the chat template of --model; problems that contain one of --against;
duplicates, of which the first stays (core/duplicates.py has the rules; --keep_near=true keeps near
duplicates). So training, validation (split off by sample.py) and AIME24 share no problem.
"""
import ast
import contextlib
import gzip
import hashlib
import importlib.util
import json
import math
import os
import re
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))
from config import BadInput, config, entry, files, parse, read_json  # noqa: E402
from core.log import atomic_write, save_json  # noqa: E402
from core import math_answers, models, sandbox  # noqa: E402
from core.duplicates import compact, normalize, twins  # noqa: E402
from core.problems import read_problems, set_hash, tokenize, write_problems  # noqa: E402

INSTRUCTION = r"Please output the final answer within \boxed{}."
# The defaults of this script. The first pair of columns that a file has holds question and answer
GURU = dict(name="guru", source="LLM360/guru-RL-92k:train/math__combined_54.4k.parquet",
            revision="2e2790a962a3c099bfb5ea61389cbf98a5ea439b", ids=(), words=(),
            columns=(("prompt", "reward_model.ground_truth"), ("question", "answer"),
                     ("problem", "answer"), ("Problem", "Answer"), ("prompt", "answer"),
                     ("problem", "solution")))
# the settings that decide the content of problems.jsonl
SETTINGS = """source revision question_key answer_key against model max_prompt_tokens
              keep_near""".split()
# why rows are left out, in this order
LEFT_OUT = "empty not_text several_answers other_form gold_unread".split()
# messages on stderr, also about rows that only change
NOTES = dict(
    empty="rows without {columns} are left out (rows are counted from 0)",
    not_text="rows in which {columns} is not text, or no turn is the user's, are left out",
    several_answers="rows with several answers are left out",
    other_form="rows are left out: a sentence asks for another form than \\boxed{{}}, and more",
    gold_unread="golds are left out: the verifier cannot read them, so no answer would be right",
    turns="rows have turns before the last question, a system's or others: only it is used",
    form="prompts asked for another form of the answer; now they ask only for \\boxed{{}}",
    escaped="golds had doubled backslashes, which are now single")
SOLUTION = 15  # words; a longer answer is a solution
# names of columns that may belong to the question
CONTEXT = set("""body context passage background premise story input choices options system image
images figure table""".split())


# --------------------------------------------------------------------------------------------------
# The source: a name -> a file -> rows

def fetch(source, revision, folder):
    """Return the path of --source, and the commit that a revision of the hub was resolved to.

    Raise BadInput that names the download command.
    """
    if Path(source).is_file():
        return Path(source), None
    if not re.fullmatch(r"[\w.-]+/[\w.-]+:[^:]+", source):
        raise BadInput(f"--source={source}: no such file, and not OWNER/NAME:FILE of a data set on "
                       "the hub")
    name, file = source.split(":")
    # downloaded by hand, or by the command below
    for path in (folder / Path(file).name, folder / file):
        if path.is_file():
            return path, None
    from huggingface_hub import hf_hub_download
    from huggingface_hub.utils import logging
    logging.set_verbosity_error()  # it would print ten lines of retries
    try:
        path = Path(hf_hub_download(name, file, repo_type="dataset", revision=revision))
    except Exception as e:  # OSError, ValueError, httpx's and the hub's own
        raise BadInput(f"--source={source}: cannot download it ({reason(e)}); get {file} of the "
                       f"data set {name} at revision {revision} into {folder}: hf download {name} "
                       f"{file} --repo-type=dataset --revision={revision} "
                       f"--local-dir={folder}") from None
    _, at, below = str(path).partition("/snapshots/")  # the cache has a folder per commit
    return path, Path(below).parts[0] if at else None


def reason(error):
    """Return the first line of a library's error, cut to fit one line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:150]


def leaves(name, kind):
    """Return a column's name, or the dotted names of the fields of a struct or dict.

    kind: an arrow type, or a value of the column.
    """
    fields = []
    if isinstance(kind, dict):
        fields = kind.items()
    elif str(kind).startswith("struct<"):
        fields = [(f.name, f.type) for f in kind]
    out = []
    for key, value in fields:
        out += leaves(f"{name}.{key}", value)
    return out or [name]


def read_rows(path, choose):
    """Return the rows of a .parquet, .jsonl or .jsonl.gz file as dicts.

    choose: a function from the names of all columns to those to read. Raise BadInput that names
    the file, and the line of JSONL.
    """
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq
        try:
            with pq.ParquetFile(path) as file:
                names = []
                for field in file.schema_arrow:
                    names += leaves(field.name, field.type)
                return file.read(choose(names)).to_pylist()
        except BadInput:
            raise
        except Exception as e:  # OSError, ValueError and arrow's own
            raise BadInput(f"{path}: not a readable parquet file ({reason(e)})") from None
    if not path.name.endswith((".jsonl", ".jsonl.gz")):
        raise BadInput(f"{path}: expected a .parquet, .jsonl or .jsonl.gz file")
    rows, i = [], 0
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            for i, line in enumerate(file, 1):
                if line.strip():
                    rows.append(json.loads(line))
                    if not isinstance(rows[-1], dict):
                        raise ValueError
    except ValueError:
        raise BadInput(f"{path}:{i}: not a JSON object") from None
    except (OSError, EOFError) as e:
        raise BadInput(f"{path}: not a readable file ({e})") from None
    names = {}  # a dict, since a set would lose their order
    for row in rows:
        for key, value in row.items():
            names |= dict.fromkeys(leaves(key, value))
    choose(list(names))
    return rows


def pick_columns(names, pairs, path):
    """Return the first pair (question, answer) that is among a file's columns `names`.

    A question may be several columns, separated by commas. Raise BadInput that lists the columns.
    """
    for pair in pairs:
        if {*pair[0].split(","), pair[1]} <= set(names):
            return pair
    missing = " or ".join(key for key in dict.fromkeys([*pairs[0][0].split(","), pairs[0][1]])
                          if key not in names)
    raise BadInput(f"{path}: no column {missing}; there are {', '.join(names) or 'none'} "
                   "(--question_key, --answer_key)")


def cell(row, name):
    """Return the value at a dotted name of a row, or None."""
    if name in row:
        return row[name]
    key, _, rest = name.partition(".")
    return cell(row[key], rest) if rest and isinstance(row.get(key), dict) else None


USER = ("user", "human")


def written_out(value):
    """Return the list that a text such as '["34"]' or "array([1, 2])" spells, else the value.

    "[1, 2]" is an interval, so it is one answer.
    """
    if not isinstance(value, str):
        return value
    # np.float64(0.5)
    value = re.sub(r"(?<!\w)(?:np|numpy)\.(?!array)\w+\(([^()]*)\)", r"\1", value)
    array = re.fullmatch(r"\s*(?:np\.|numpy\.)?array\((\[.*?\])(?:,\s*dtype=\S+)?\)\s*", value,
                         re.DOTALL)
    text = array[1] if array else value
    if array or re.match(r"\s*\[\s*[\"'{]", text):
        for read in (json.loads, ast.literal_eval):
            with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
                inside = read(text.strip())
                if array or all(isinstance(x, (str, dict)) for x in inside):
                    return inside
    return value


def turns(value):
    """Return [(role, content), ...] for a cell of chat messages, else []."""
    value = written_out(value)
    messages = [value] if isinstance(value, dict) else value if isinstance(value, list) else []
    out = []
    for m in messages:
        role = (m.get("role") or m.get("from")) if isinstance(m, dict) else None
        if role:
            out.append((str(role).lower(), m.get("content") or m.get("value")))
    return out


def text(value):
    """Return a cell as text: the last question of chat messages, the text of bytes, "" for nothing.

    Raise ValueError if it is something else, such as an image.
    """
    value, messages = written_out(value), turns(value)
    asked = [content for role, content in messages if role in USER]
    if asked:
        return text(asked[-1])
    if isinstance(value, (dict, list)) and value:  # parts of a message
        parts = [part.get("text") if isinstance(part, dict) else part
                 for part in ([value] if isinstance(value, dict) else value)]
        if messages or not all(isinstance(part, str) for part in parts):
            raise ValueError
        value = "\n".join(parts)
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, float):
        value = decimal(value)
    # JSON can write half of a surrogate pair, which tokenizers refuse
    value = "" if value is None or value == [] else str(value)
    return value.encode("utf-8", "replace").decode().strip()


def decimal(value):
    r"""Return a float as text: 7 for 7.0, 10^{23} for 1e23, whose digits are rounding errors."""
    if math.isnan(value):
        return ""
    if value.is_integer() and abs(value) < 2 ** 53:
        return str(int(value))
    mantissa, e, power = repr(value).partition("e")
    times = "" if mantissa == "1" else "-" if mantissa == "-1" else rf"{mantissa}\times "
    return f"{times}10^{{{int(power)}}}" if e else mantissa


def golds(answer):
    r"""Return the parts of an answer to match, a list: ["18"] for "9 * 2 = <<9*2=18>>18.\n#### 18",
    "So it is \boxed{18}.", "<answer>18</answer>", "The answer is 18.", "b'18'" or "18 (apples)".

    Several boxes are several answers, unless they are equal.
    """
    if re.fullmatch(r"b(['\"]).*\1", answer, re.DOTALL):
        with contextlib.suppress(ValueError, SyntaxError):
            answer = ast.literal_eval(answer).decode("utf-8", "replace")
    answer = re.sub(r"<<[^<>]*>>", "", answer.rpartition("####")[2])
    answer = re.sub(r"\\boxed\s*(-?\w+(?:\.\d+)?)", r"\\boxed{\1}", answer)  # \boxed 9
    boxed = [math_answers.answer(r"\boxed" + piece, len(piece))
             for piece in answer.split(r"\boxed")[1:]]
    if any(boxed):
        return list(dict.fromkeys(filter(None, boxed)))
    tagged = re.findall(r"<answer>(.*?)</answer>", answer, re.DOTALL)
    answer = [answer, *tagged][-1].strip()
    for form in (r"(?:(?:so|thus|hence)?,? *the )?(?:final )?answer(?: is)? *:? *([^\n]+?)\.?",
                 r"\*\*(.+)\*\*", r"\\\[(.+)\\\]", r"'(.*)'",
                 r"(\$?[-+]?[\d.,/]+) *\([^\W\d_][^\d()]*\)"):
        found = re.fullmatch(form, answer, re.IGNORECASE)
        answer = found[1] if found else answer
    return [answer] if answer else []


def answers(value):
    """Return the golds in a cell, also of a list, and of one that is written as text: '["34"]'."""
    value = written_out(value)
    values = value if isinstance(value, list) else [value]
    return [gold for v in values for gold in golds(text(v))]


def choice(gold, prompt):
    r"""Return C for a gold such as "(C) 12" or "\text{C. } 12" if the question lists choices."""
    label = re.match(r"\(?([A-J])[).:]+\s*\S", math_answers.bare(gold))
    listed = set(re.findall(r"(?<![A-Za-z])\(?([A-J])[).:]", prompt))
    return label[1] if label and {label[1], "A"} <= listed else gold


def unescape(gold):
    r"""Return a gold with \frac for \\frac, as data that was escaped twice has it."""
    runs = re.findall(r"\\+", gold)
    if not re.search(r"\\\\[A-Za-z%${}|]", gold):
        return gold
    if all(len(run) % 2 == 0 for run in runs):
        return re.sub(r"\\\\", r"\\", gold)
    # else \\ may be the end of a row
    return gold if r"\begin" in gold else re.sub(r"\\\\(?=[A-Za-z%${}|])", r"\\", gold)


# Sentences that ask for a form of the answer, such as those of veRL, DAPO, Qwen and TRL
BOX = re.compile(r"\\f?boxed\b(?:\{[^{}]*\})?")
OTHER = re.compile(r"####(?:[ :]*[\d.,]+)?|<answer>(?:.*</answer>)?|</answer>|\\?\$Answer\b"
                   r"|\banswer: *[\[<{(]|^answer:$"
                   r"|[\"“'`*]+(?:the )?(?:final )?answer\b[^\"”'`*]*[\"”'`*]+",
                   re.IGNORECASE)
ASKS = re.compile(r"\b(answer|result|response|solution|final|output|conclusion|put your)",
                  re.IGNORECASE)
SENTENCES = re.compile(r"((?<=[.!?])\s+|\s*\n\s*)")


def forms(prompt):
    r"""Return a prompt without instructions on the form of the answer, and as it asks for \boxed{}.

    Sentences that ask for another form are dropped, and ours is added if none asks for the box. The
    second is "" if such a sentence also holds a number or a formula, i.e. part of the question.
    """
    prompt = prompt.strip().removesuffix(INSTRUCTION).strip()
    pieces, asked, shown, boxed, mixed = [*SENTENCES.split(prompt), ""], "", "", False, False
    for sentence, gap in zip(pieces[::2], pieces[1::2]):
        box = ASKS.search(sentence) and BOX.search(sentence)
        other = not box and not sentence.startswith("#### ") and OTHER.search(sentence)
        alone = not re.search(r"[\d\\$=]", OTHER.sub("", BOX.sub("", sentence)))
        boxed = boxed or bool(box)
        mixed = mixed or bool(other and not alone)
        asked += sentence + gap if not alone or not (box or other) else ""
        shown += sentence + gap if not other else ""
    shown = shown.strip() + ("" if boxed else f" {INSTRUCTION}")
    return asked.strip() or prompt, "" if mixed else shown


# --------------------------------------------------------------------------------------------------
# prepare

def load_script(path):
    """Import a prepare.py by its path."""
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_prepare", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read_against(cfg):
    """Return the problems of the --against files.

    If the default one is missing, make it first with the prepare.py next to it.
    """
    problems = []
    for path in files(cfg["against"]):
        if path == config["against"]:  # from any working directory
            path = HERE.parent / Path(path).relative_to("data")
            script = path.parent / "prepare.py"
            if not path.exists() and script.exists():
                # without a limit on lengths: a test problem that is left out could not be found
                words = [f"--data={os.path.relpath(path.parent)}", "--model=none"]
                load_script(script).main(words)
        problems += read_problems(path)
    return problems


def lengths(problems, model):
    """Return the number of tokens of each prompt, chat template included."""
    from tqdm import tqdm
    try:
        tokenizer = models.load_tokenizer(model)
    except BadInput as e:
        raise BadInput(f"{e}; --model=none measures no lengths") from None
    out, starts = [], range(0, len(problems), 1000)
    for i in tqdm(starts, "prompt lengths, in thousands", mininterval=1, disable=None):
        out += [len(ids) for ids in tokenize(problems[i:i + 1000], tokenizer)]
    return out


def make_problems(rows, columns, ids, name):
    """Turn rows into problems with a stable id; return them, counts of rows left out, and notes.

    own: the data set's own id, from the first of the columns `ids` that has one. notes:
    {a key of NOTES: [rows]}.
    """
    problems, counts, notes = [], dict.fromkeys(LEFT_OUT, 0), {}
    for i, row in enumerate(rows):
        cells = [cell(row, key) for key in columns[0].split(",")]
        try:
            prompt = "\n".join(filter(None, map(text, cells)))
            given = answers(cell(row, columns[1]))
        except ValueError:
            prompt, given = None, []
        asked, shown = forms(prompt or "")
        why = ("not_text" if prompt is None else "empty" if not asked or not given
               else "several_answers" if len(given) > 1 else "other_form" if not shown else "")
        if why:
            counts[why] += 1
            notes.setdefault(why, []).append(i)
            continue
        problem = dict(id=f"{name}-{i:05d}", prompt=shown, answer=choice(given[0], asked))
        if any(role in USER for value in cells for role, _ in turns(value)[1:]):
            notes.setdefault("turns", []).append(i)
        if not " ".join(shown.split()).startswith(" ".join(prompt.split())):
            notes.setdefault("form", []).append(i)
        own = [text(cell(row, key)) for key in ids if text(cell(row, key))]
        source = row.get("data_source") or row.get("source")
        if own:
            problem["own"] = f"{name}-{own[0]}"
        if isinstance(source, str):
            problem["source"] = text(source)
        problems.append(problem)
    return problems, counts, notes


def repair_golds(problems, cfg):
    """Repair golds with doubled backslashes; return the indices of those repaired and unreadable.

    The verifier is asked for a value of each gold: that a gold equals itself as text would not mean
    that an answer in other words can match it. Texts of more than SOLUTION words are solutions,
    which no answer repeats.
    """
    changed, unread, asked = [], [], {}
    for i, p in enumerate(problems):
        if not re.fullmatch(r"-?\d{1,15}", p["answer"]):
            asked[i] = [unescape(p["answer"]), p["answer"]]
    pairs = [(gold, "") for golds in asked.values() for gold in golds]
    verdicts = iter(sandbox.pool("math").verify(pairs, cfg["verify_s"]) if pairs else ())
    for i, (repaired, given) in asked.items():
        can_repair, can_read = next(verdicts) == 1, next(verdicts) == 1
        words = re.findall(r"[^\W\d_]{2,}", re.sub(r"\\[A-Za-z]+", " ", given))
        if len(words) > SOLUTION or not (can_repair or can_read):
            unread.append(i)
        elif can_repair and repaired != given:
            problems[i]["answer"] = repaired
            changed.append(i)
    return changed, unread


def is_made(folder, cfg):
    """Return whether problems.jsonl exists. Raise BadInput if other settings made it."""
    out, manifest = folder / "problems.jsonl", folder / "manifest.json"
    if not out.exists():
        return False
    if not manifest.exists():
        raise BadInput(f"{out}: exists, and another program made it (there is no manifest.json); "
                       "remove it, or give another --data")
    before = read_json(manifest).get("settings", {})
    for key in SETTINGS:
        was = before.get(key, config[key])  # the file may be older than the key
        if was != cfg[key]:
            raise BadInput(f"--{key}={cfg[key]}: {out} was made with {key}={was}; "
                           "remove it, or give another --data")
    return True


def drop_twins(problems, foreign, counts, cfg):
    """Return the problems without duplicates and leaks, and count those that go.

    conflicts: duplicates whose answer differs in value from that of the problem that stays.
    """
    questions, theirs = ([forms(p["prompt"])[0] or p["prompt"] for p in some]
                         for some in (problems, foreign))
    kept, differ = [], []
    for p, twin in zip(problems, twins(questions, theirs, not cfg["keep_near"])):
        if not twin:
            kept.append(p)
            continue
        why, i = twin
        counts[why] += 1
        pair = p["answer"], problems[i]["answer"]
        if why != "against" and compact(normalize(pair[0])) != compact(normalize(pair[1])):
            differ.append(pair)
    counts["conflicts"] = len(differ)
    if cfg["verifier"] == "math":  # 2/5 and \frac{2}{5} are one answer
        there, back = (sandbox.check("math", [(dict(answer=gold), rf"\boxed{{{answer}}}")
                                              for gold, answer in pairs], cfg)
                       for pairs in (differ, [pair[::-1] for pair in differ]))
        counts["conflicts"] -= sum(1 in verdicts for verdicts in zip(there, back))
    return kept


def main(argv, own=GURU, doc=__doc__):
    start = time.time()
    cfg = parse([f"--data={os.path.relpath(HERE)}", *own["words"], *argv], doc)
    folder = Path(cfg["data"])
    out = folder / "problems.jsonl"
    cfg["revision"] = cfg["revision"] or ("main" if cfg["source"] else own["revision"])
    cfg["source"] = cfg["source"] or own["source"]
    if is_made(folder, cfg):
        print(f"{out}: exists already, nothing to do")
        return

    path, commit = fetch(cfg["source"], cfg["revision"], folder)
    pairs = [(cfg["question_key"] or q, cfg["answer_key"] or a) for q, a in own["columns"]]
    columns = []

    def choose(names):
        columns[:] = pick_columns(names, pairs, path)
        used = [*columns[0].split(","), columns[1]]
        other = [key for key in names
                 if key not in used and CONTEXT & set(key.lower().split("."))]
        if other:
            print(f"{path}: {', '.join(other)}: not read; to make them part of the question: "
                  f"--question_key={','.join([*other, columns[0]])}", file=sys.stderr)
        more = [key for key in ("data_source", "source", *own["ids"]) if key in names]
        return list(dict.fromkeys([*used, *more]))
    rows, foreign = read_rows(path, choose), read_against(cfg)
    problems, counts, notes = make_problems(rows, columns, own["ids"], own["name"])
    counts = dict(rows=len(rows), **counts, over_long=0, against=0, exact=0, near=0, conflicts=0)
    if cfg["verifier"] == "math":
        before = [repr(p["answer"])[:60] for p in problems]
        repaired, unread = repair_golds(problems, cfg)
        notes |= dict(escaped=[before[i] for i in repaired],
                      gold_unread=[before[i] for i in unread])
        counts["gold_unread"], gone = len(unread), set(unread)
        problems = [p for i, p in enumerate(problems) if i not in gone]
    if cfg["model"]:
        fits = [length <= cfg["max_prompt_tokens"] for length in lengths(problems, cfg["model"])]
        counts["over_long"] = len(fits) - sum(fits)
        problems = [p for p, fit in zip(problems, fits) if fit]
    kept = drop_twins(problems, foreign, counts, cfg)
    said = ", ".join(f"{n} {why.replace('_', ' ')}" for why, n in counts.items()
                     if n and why not in ("rows", "conflicts"))
    if counts["conflicts"]:
        said += f"; {counts['conflicts']} of these duplicates had another answer"
    if not kept:
        raise BadInput(f"{path}: no problem is left of {len(rows)} rows ({said or 'it is empty'})")
    names = [p.pop("own", p["id"]) for p in kept]
    if len(set(names)) == len(kept):  # the data set's own ids, if they are unique
        kept = [dict(p, id=name) for p, name in zip(kept, names)]
    for why, note in NOTES.items():
        if notes.get(why):
            note = note.format(columns=" or ".join(columns))
            print(f"{path}: {len(notes[why])} {note}; the first: {notes[why][0]}", file=sys.stderr)
    with atomic_write(out) as part:  # renamed after the manifest is written, so it comes last
        write_problems(part, kept)
        save_json(folder / "manifest.json", dict(
            settings={key: cfg[key] for key in SETTINGS}, file=path.name,
            revision_resolved=commit, source_sha256=digest(path),
            source_bytes=path.stat().st_size, question_column=columns[0],
            answer_column=columns[1], lengths_by=cfg["model"] or None,
            counts=dict(counts, kept=len(kept)),
            changed={why: len(notes.get(why, ())) for why in ("turns", "form", "escaped")},
            against_set_hash=set_hash(foreign) if foreign else None,
            set_hash=set_hash(kept), problems_sha256=digest(part),
            problems_bytes=part.stat().st_size, seconds=round(time.time() - start, 1),
            time=time.time()))
    print(f"{out}: {len(kept):,} problems of {len(rows):,} rows"
          + (f" (left out: {said})" if said else "")
          + ("" if cfg["model"] else "; no lengths were measured"))


def digest(path):
    """Return the sha256 of a file in hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    entry(main)
