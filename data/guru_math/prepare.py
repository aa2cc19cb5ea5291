r"""data/guru_math/prepare.py: Guru's math part, or another data set, as a problem file; mixtures.

    python data/guru_math/prepare.py              # downloads Guru's file, and AIME24's first
    python data/guru_math/prepare.py --model=Qwen/Qwen3-4B-Instruct-2507  # by another tokenizer;
                                                  # none = measure no lengths
    python data/guru_math/prepare.py --data=data/mine --source=mine.jsonl \
        --question_key=problem --answer_key=solution.final  # any two columns of a file
    python sample.py --data=data/guru_math        # difficulty, then mixtures of 5,000:
    python data/guru_math/prepare.py mix --D=5000                       # the paper's three
    python data/guru_math/prepare.py mix --D=500 --mix="hard:1 easy:3"  # or others
    python data/guru_math/prepare.py mix --D=500 --mix=easy             # cuts that split to D

Reads --source: a .parquet, .jsonl or .jsonl.gz file, or OWNER/NAME:FILE, a file of a data set on
the hub at --revision. A file of that name in the data folder comes before the hub. Writes into the
data folder, by default that of this script
- `problems.jsonl`, {"id", "prompt", "answer"} a line: prompt = the question and the sentence that
  asks for \boxed{};
- `manifest.json`, written before it: where the rows came from, how many were left out and why,
  hashes.

Read: text, bytes, chat turns (the user's last), parts of a message. --question_key may name several
columns with commas between. Of an answer what is to be matched is kept: 18 of "9 * 2 =
18\n#### 18". A sentence that asks for another form of the answer than \boxed{} is left out; ours is
put in where none asks for the box.

Left out and counted, in this order: rows without question or answer, or that are no text; with
several answers; with another form of the answer in a sentence that holds more; with an answer that
the verifier does not take for right itself; prompts over --max_prompt_tokens after the chat
template of --model; problems that hold one of --against; duplicates, of which the first stays.
- Exact duplicates read the same when case, blanks, punctuation, instructions on the form of the
  answer and the ways to write one thing in LaTeX are put aside.
- Near duplicates share 80% of their runs of three words and symbols, and have the same numbers,
  signs and functions: two problems that differ in a number, a + or a sine are two problems.
  --keep_near=true keeps them.
- A problem that holds 80% of the runs of a test problem goes, whatever stands around them: a leak
  would cost more than a lost problem. A test problem of a few words counts where it is a sentence.
- Runs that stand in more than half of a file's questions are an instruction and count for neither.
So training, validation (sample.py holds it out of this file) and AIME24 have none in common.

`mix` reads the splits of sample.py and writes mix_{NAME}_D{D}_seed{SEED}_train.jsonl beside them,
and `mixtures.json`. NAME is hard, dual or tri for the paper's (in its words Hard = none right in
128, the split `extreme`), else the splits with their shares. For one seed the mixture with a
smaller D is the beginning of that with a larger one. --D=0 is the largest that the splits allow.

Needs config.py, verifier.py, core/math_answers.py, core/models.py, core/problems.py, pyarrow,
huggingface_hub, datasketch.
"""
import ast
import contextlib
import functools
import gzip
import hashlib
import importlib.util
import json
import math
import os
import random
import re
import sys
import time
import unicodedata
from collections import Counter
from fractions import Fraction
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))
import verifier  # noqa: E402
from core import math_answers, models  # noqa: E402
from core.problems import read_problems, set_hash, tokenize, write_problems  # noqa: E402
from config import BadInput, aside, config, entry, files, parse, read_json, save_json  # noqa: E402

INSTRUCTION = r"Please output the final answer within \boxed{}."
# What a script reads when the command line does not say; the first pair of columns that a file has
# holds question and answer
GURU = dict(name="guru", source="LLM360/guru-RL-92k:train/math__combined_54.4k.parquet",
            revision="2e2790a962a3c099bfb5ea61389cbf98a5ea439b", ids=(), words=(),
            columns=(("prompt", "reward_model.ground_truth"), ("question", "answer"),
                     ("problem", "answer"), ("Problem", "Answer"), ("prompt", "answer"),
                     ("problem", "solution")))
# the settings that decide what problems.jsonl holds
SETTINGS = """source revision question_key answer_key against model max_prompt_tokens
              keep_near""".split()
# why rows are left out, in this order, and what is said on stderr, of rows that change too
LEFT_OUT = "empty not_text several_answers other_form gold_unread".split()
NOTES = dict(
    empty="rows without {columns} are left out (rows are counted from 0)",
    not_text="rows in which {columns} is not text, or no turn is the user's, are left out",
    other_form="rows are left out: a sentence asks for another form than \\boxed{{}}, and more",
    gold_unread="answers are left out: the verifier does not take them for right themselves",
    turns="rows have turns before the last question, a system's or others: it alone is taken",
    form="prompts asked for another form of the answer; now they ask for \\boxed{{}} alone")
SOLUTION = 15  # words; an answer of more is a solution
# names of columns that may belong to the question
CONTEXT = set("""body context passage background premise story input choices options system image
images figure table""".split())
# The paper's study of mixtures, its order and shares: splits by 128 rollouts, Hard = none right
MIXTURES = dict(hard="extreme:1", dual="extreme:1 level_easy:1",
                tri="extreme:2 level_easy:1 level_very_easy:1")


# --------------------------------------------------------------------------------------------------
# The source: a name -> a file -> rows

def fetch(source, revision, folder):
    """The file behind --source -> (path, the commit it was resolved to or None).

    Raises BadInput that says what to download.
    """
    if Path(source).is_file():
        return Path(source), None
    if not re.fullmatch(r"[\w.-]+/[\w.-]+:[^:]+", source):
        raise BadInput(f"--source={source}: no such file, and not OWNER/NAME:FILE of a data set on "
                       "the hub")
    name, file = source.split(":")
    # put there by hand, or by the command below
    for path in (folder / Path(file).name, folder / file):
        if path.is_file():
            return path, None
    from huggingface_hub import hf_hub_download
    from huggingface_hub.utils import logging
    logging.set_verbosity_error()  # or ten lines of retries
    try:
        path = Path(hf_hub_download(name, file, repo_type="dataset", revision=revision))
    except Exception as e:  # OSError, ValueError, httpx's and the hub's own
        raise BadInput(f"--source={source}: cannot download it ({reason(e)}); get {file} of the "
                       f"data set {name} at revision {revision} into {folder}: hf download {name} "
                       f"{file} --repo-type=dataset --revision={revision} "
                       f"--local-dir={folder}") from None
    _, at, below = str(path).partition("/snapshots/")  # of the hub's cache: a folder a commit
    return path, Path(below).parts[0] if at else None


def reason(error):
    """The first line of an error of another library, short enough for one line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:150]


def leaves(name, kind):
    """The dotted names in a column: its own, or those of the fields of a struct or a dict.

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
    """The rows of a .parquet, .jsonl or .jsonl.gz file as dicts.

    choose(names of all columns) -> those to read. Raises BadInput that names the file, of JSONL
    also the line.
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
    """The first pair (question, answer) among the `names` of a file's columns.

    A question may be several columns, with commas between. Raises BadInput that lists them.
    """
    for pair in pairs:
        if {*pair[0].split(","), pair[1]} <= set(names):
            return pair
    missing = " or ".join(key for key in dict.fromkeys([*pairs[0][0].split(","), pairs[0][1]])
                          if key not in names)
    raise BadInput(f"{path}: no column {missing}; there are {', '.join(names) or 'none'} "
                   "(--question_key, --answer_key)")


def cell(row, name):
    """What stands in a row under a dotted name, None where nothing does."""
    if name in row:
        return row[name]
    key, _, rest = name.partition(".")
    return cell(row[key], rest) if rest and isinstance(row.get(key), dict) else None


USER = ("user", "human")


def written_out(value):
    """A list of texts or dicts that was written as text, '["34"]', as that list; else the value.

    "[1, 2]" is an interval, one answer.
    """
    if isinstance(value, str) and re.match(r"\s*\[\s*[\"'{]", value):
        for read in (json.loads, ast.literal_eval):
            with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
                inside = read(value.strip())
                if all(isinstance(x, (str, dict)) for x in inside):
                    return inside
    return value


def turns(value):
    """[(role, content), ...] of a cell with chat messages, [] of any other."""
    value = written_out(value)
    messages = [value] if isinstance(value, dict) else value if isinstance(value, list) else []
    out = []
    for m in messages:
        role = (m.get("role") or m.get("from")) if isinstance(m, dict) else None
        if role:
            out.append((str(role).lower(), m.get("content") or m.get("value")))
    return out


def text(value):
    """A cell as text: of chat messages the last question, of bytes their text, of a whole float the
    integer, of nothing "". Raises ValueError where it is none of these, such as an image."""
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
        if math.isnan(value):
            return ""
        value = int(value) if value.is_integer() else value
    # half a surrogate pair, which JSON can write, is no text that a tokenizer takes
    value = "" if value is None or value == [] else str(value)
    return value.encode("utf-8", "replace").decode().strip()


def gold(answer):
    r"""What of an answer is to be matched: 18 of "9 * 2 = <<9*2=18>>18.\n#### 18", of "So it is
    \boxed{18}.", of "<answer>18</answer>", of "The answer is 18.", of "b'18'", of "18 (apples)"."""
    if re.fullmatch(r"b(['\"]).*\1", answer, re.DOTALL):
        with contextlib.suppress(ValueError, SyntaxError):
            answer = ast.literal_eval(answer).decode("utf-8", "replace")
    answer = re.sub(r"<<[^<>]*>>", "", answer.rpartition("####")[2])
    tagged = re.findall(r"<answer>(.*?)</answer>", answer, re.DOTALL)
    answer = (math_answers.answer(answer, len(answer)) or [answer, *tagged][-1]).strip()
    for form in (r"(?:(?:so|thus|hence)?,? *the )?(?:final )?answer(?: is)? *:? *([^\n]+?)\.?",
                 r"\*\*(.+)\*\*", r"\\\[(.+)\\\]", r"(\$?[-+]?[\d.,/]+) *\([^\W\d_][^\d()]*\)"):
        found = re.fullmatch(form, answer, re.IGNORECASE)
        answer = found[1] if found else answer
    return answer


def answers(value):
    """The answers in a cell, of which a list is unwrapped, and '["34"]', as Skywork-OR1 has it."""
    value = written_out(value)
    values = value if isinstance(value, list) else [value]
    return [a for a in (gold(text(v)) for v in values) if a]


# Sentences that ask for a form of the answer, as those of veRL, DAPO, Qwen and TRL
BOX = re.compile(r"\\f?boxed\b(?:\{[^{}]*\})?")
OTHER = re.compile(r"####(?:[ :]*[\d.,]+)?|<answer>(?:.*</answer>)?|</answer>|\\?\$Answer\b"
                   r"|\banswer: *[\[<{(]|^answer:$"
                   r"|[\"“'`*]+(?:the )?(?:final )?answer\b[^\"”'`*]*[\"”'`*]+",
                   re.IGNORECASE)
ASKS = re.compile(r"\b(answer|result|response|solution|final|output|conclusion|put your)",
                  re.IGNORECASE)
SENTENCES = re.compile(r"((?<=[.!?])\s+|\s*\n\s*)")


def forms(prompt):
    r"""A prompt -> (it without instructions on the form of the answer, it as it asks for \boxed{}).

    A sentence that asks for another form leaves it, and ours comes in where none asks for the box.
    The second is "" where such a sentence holds something of the question: a number, a formula.
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
# Duplicates

LETTERS = str.maketrans({
    "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "×": r"\times ", "·": r"\cdot ", "π": r"\pi ",
    "√": r"\sqrt ", "°": r"^\circ ", "−": "-", "–": "-", "—": " ", "⁄": "/", "’": "'", "‘": "'"})
# One way to write each thing, in this order; the text is in lower case
SPELLINGS = [(re.compile(pattern), new) for pattern, new in (
    (r"\\\\(\[-?[\d.]+ *[a-z]{2}\])?", " "),         # line breaks
    (r"\\!", ""),                                    # a blank of less than nothing
    (r"\\(?:(?:left|right|bigg?[lr]?|displaystyle|limits|q?quad|[lc]?dots)(?![a-z])|[,;:> ])", " "),
    (r"\\\(|\\\)|\\\[|\\\]|\\?\$|~|_{2,}", " "),     # mathematics begins, ends; ____ to fill in
    (r"\\(?:(?:text|math)(?:bf|it|rm)?|mbox|operatorname\*?)\s*\{([^{}]*)\}", r" \1 "),
    (r"\\[dtc]frac(?![a-z])", r"\\frac"),
    (r"\\frac\s*(\d)\s*(\d)", r"\\frac{\1}{\2}"),
    (r"\\(le|ge|ne)q(?![a-z])", r"\\\1"),
    # 1,000 and 1{,}000
    (r"(?<![\d.])\d{1,3}(?:(?:,|\{,\})\d{3})+(?!\d)", lambda m: re.sub(r"\D", "", m[0])),
    (r"(?<!\\)\{\s*(\d+(?:\.\d+)?|[a-z])\s*\}", r" \1 "),  # x^{2}; but 2^{n+1} is not 2^n+1
    (r"(?<=[a-z]{2})-(?=[a-z]{2})", " "))]           # two-digit
WORD = re.compile(r"\d*\.?\d+|(?<=\d):(?=\d)|[^\W\d_]+|_|[^\w\s.,;:?\"“”`\\&]")
# What makes another problem of a text that is otherwise the same: its numbers, and these
MARKS = set("""+ - < > le ge sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln lg
exp gcd lcm floor ceil lfloor lceil max min maximum minimum largest smallest greatest least even
odd""".split())
# A changed word changes three runs of three: in a question of 40 words the Jaccard index is then 35
# / 41 = 0.85, with two changed 32 / 44 = 0.73. So 0.8 takes a retouched sentence or an added hint
# for the same question, and a question of the same kind for another.
RUN, NEAR = 3, 0.8
# A test problem of fewer runs than LONG may stand in another problem; a longer one by 80% does not
LONG, CLAUSES = 10, re.compile(r"(?<=[.!?:])\s+|\n+")
BANDS, ROWS = 25, 5  # a pair at 0.8 is looked at with probability 1 - (1 - 0.8^5)^25 = 0.99995


def normalize(text):
    """A question as a list of words, numbers and symbols that does not depend on how they are set.

    r"Find $\\dfrac{1}{2}x^{10}$, if  x=1{,}000." -> find frac 1 2 x ^ 10 if x = 1000
    """
    # NFKC would make 102 of 10², and 21/2 of 2½
    text = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹]+", lambda m: "^" + m[0], text)
    text = re.sub("(?<=[0-9])(?=[¼½¾⅐-⅞])", " ", text)
    text = unicodedata.normalize("NFKC", text).lower().translate(LETTERS)
    for pattern, new in SPELLINGS:
        text = pattern.sub(new, text)
    return WORD.findall(text)


def compact(words):
    """Normalized words as one string, without blanks but for those between numbers."""
    return re.sub(r"(?<!\d) | (?!\d)", "", " ".join(words))


def marks(words):
    """The numbers, signs and functions among words, in their order, as one string."""
    return " ".join(w for w in words if w[0].isdigit() or w in MARKS)


@functools.lru_cache(1000)
def runs(words, usual=frozenset()):
    """The set of all runs of three words of a tuple, but for the `usual` ones if others are left.
    """
    every = {" ".join(words[i:i + RUN]) for i in range(max(1, len(words) - RUN + 1))}
    return every - usual or every


@functools.lru_cache(1000)
def marked_runs(words, usual):
    """The runs, each behind the question's marks.

    Questions of other marks have none in common, the rest as many as before.
    """
    head = marks(words)
    return {f"{head}|{run}".encode() for run in runs(words, usual)}


def usual_runs(texts):
    """The runs of more than half of the texts, of four or more: an instruction around them all."""
    texts = list(dict.fromkeys(texts))
    some = texts[::len(texts) // 1000 + 1]
    counts = Counter(run for words in some for run in runs(words))
    return frozenset(run for run, n in counts.items() if len(some) > 3 and 2 * n > len(some))


def jaccard(a, b):
    """Of two sets: what they have in common, over all that they have."""
    return len(a & b) / len(a | b)


def twins(questions, foreign, near=True):
    """For each question None, or (why, i) if it is to go.

    why: it holds foreign[i], "against", or is an "exact" or, where `near` ones are to go, a "near"
    duplicate of questions[i], which stays. Compared with those that stay only, so that no two of
    them are duplicates, and what goes is like something that stays.
    """
    from datasketch import MinHash, MinHashLSH
    from tqdm import tqdm
    # every foreign question by each of its runs: they are few, so here the shares are exact
    theirs, sizes, keys, short = {}, [], {}, {}
    others = [tuple(normalize(q)) for q in foreign]
    usual = usual_runs(others)
    for j, words in enumerate(others):
        keys.setdefault(compact(words), j)
        sizes.append(len(runs(words, usual)))
        if sizes[j] < LONG:
            short.setdefault(words, j)
        for run in runs(words, usual):
            theirs.setdefault(run, []).append(j)

    def leak(words, question):  # the first foreign question that stands in this one, None without
        if compact(words) in keys:
            return keys[compact(words)]
        mine = runs(words)
        common = Counter(j for run in mine for j in theirs.get(run, ()))
        for j in sorted(common):
            whole = len(mine) + sizes[j] - common[j] if sizes[j] < LONG else sizes[j]
            if common[j] / whole >= NEAR:
                return j
        if short:  # a short one, as sentences of its own: "What is 2 + 2?" stands in much else
            pieces = [normalize(piece) for piece in CLAUSES.split(question)]
            for i in range(len(pieces)):
                for k in range(i + 1, len(pieces) + 1):
                    j = short.get(tuple(word for piece in pieces[i:k] for word in piece))
                    if j is not None:
                        return j
        return None
    texts = [tuple(normalize(q)) for q in questions]
    usual_here = usual_runs(texts)
    hashes = MinHash.generator((marked_runs(words, usual_here) for words in texts),
                               num_perm=BANDS * ROWS, seed=1)
    lsh, exact, found = MinHashLSH(num_perm=BANDS * ROWS, params=(BANDS, ROWS)), {}, []

    def twin(words, m):  # the first question that stays and is like this one, None without
        if compact(words) in exact:
            return "exact", exact[compact(words)]
        for j in sorted(lsh.query(m)) if near else ():  # a superset: the Jaccard index decides
            if jaccard(marked_runs(texts[j], usual_here), marked_runs(words, usual_here)) >= NEAR:
                return "near", j
        return None
    bar = tqdm(hashes, "duplicates", len(texts), mininterval=1, disable=None)
    for i, (words, m) in enumerate(zip(texts, bar)):
        j = leak(words, questions[i])
        found.append(("against", j) if j is not None else twin(words, m))
        if found[-1] is None:
            exact[compact(words)] = i
            lsh.insert(i, m)
    return found


# --------------------------------------------------------------------------------------------------
# prepare

def load_script(path):
    """A prepare.py as a module."""
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_prepare", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read_against(cfg):
    """The problems of the --against files.

    The default one is made first where it is missing, by the prepare.py beside it.
    """
    problems = []
    for path in files(cfg["against"]):
        if path == config["against"]:  # wherever this is called from
            path = HERE.parent / Path(path).relative_to("data")
            script = path.parent / "prepare.py"
            if not path.exists() and script.exists():
                # all of it, however short this call wants its prompts: what is left out there would
                # be let in here
                words = [f"--data={os.path.relpath(path.parent)}", "--model=none"]
                load_script(script).main(words)
        problems += read_problems(path)
    return problems


def lengths(problems, model):
    """Tokens of each prompt as the model gets it. Raises BadInput."""
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
    """Rows -> (problems with a stable id, counts of rows left out, notes on others).

    own: the id that the set itself has, by the first of the columns `ids` that says one. notes:
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
        problem = dict(id=f"{name}-{i:05d}", prompt=shown, answer=given[0])
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


def unread_golds(problems, cfg):
    """Which problems have an answer that the verifier does not take for right itself: a set.

    It is asked of neither whole numbers nor texts of more than SOLUTION words: the latter are
    solutions, which nobody repeats.
    """
    bad, asked = set(), {}
    for i, answer in enumerate(p["answer"] for p in problems):
        plain = re.sub(r"\\[A-Za-z]+", " ", answer)
        if len(re.findall(r"[^\W\d_]{2,}", plain)) > SOLUTION:
            bad.add(i)
        elif not re.fullmatch(r"-?\d{1,15}", answer):
            asked[i] = (problems[i], rf"\boxed{{{answer}}}")
    verdicts = verifier.check("math", asked.values(), cfg)
    return bad | {i for i, verdict in zip(asked, verdicts) if verdict != 1}


def is_made(folder, cfg):
    """True where problems.jsonl is there already, by these settings; by others raises BadInput."""
    out, manifest = folder / "problems.jsonl", folder / "manifest.json"
    if not out.exists():
        return False
    if not manifest.exists():
        raise BadInput(f"{out}: is there, and not from here (it has no manifest.json); remove it, "
                       "or give another --data")
    before = read_json(manifest).get("settings", {})
    for key in SETTINGS:
        was = before.get(key, config[key])  # a key may be younger than the file
        if was != cfg[key]:
            raise BadInput(f"--{key}={cfg[key]}: {out} was made with {key}={was}; "
                           "remove it, or give another --data")
    return True


def drop_twins(problems, foreign, counts, near):
    """The problems that are like no other and hold none of `foreign`; counts what goes."""
    questions, theirs = ([forms(p["prompt"])[0] or p["prompt"] for p in some]
                         for some in (problems, foreign))
    kept = []
    for p, twin in zip(problems, twins(questions, theirs, near)):
        if not twin:
            kept.append(p)
            continue
        why, i = twin
        counts[why] += 1
        if why != "against":
            mine, other = (compact(normalize(x["answer"])) for x in (p, problems[i]))
            counts["conflicts"] += mine != other
    return kept


def main(argv, own=GURU, doc=__doc__):
    if argv[:1] == ["mix"]:
        return main_mix(argv[1:], own, doc)
    start = time.time()
    cfg = parse([f"--data={os.path.relpath(HERE)}", *own["words"], *argv], doc)
    folder = Path(cfg["data"])
    out = folder / "problems.jsonl"
    cfg["revision"] = cfg["revision"] or ("main" if cfg["source"] else own["revision"])
    cfg["source"] = cfg["source"] or own["source"]
    if is_made(folder, cfg):
        print(f"{out}: is there already, nothing to do")
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
            print(f"{path}: {', '.join(other)}: not read; what belongs to the question is named "
                  f"too: --question_key={','.join([*other, columns[0]])}", file=sys.stderr)
        more = [key for key in ("data_source", "source", *own["ids"]) if key in names]
        return list(dict.fromkeys([*used, *more]))
    rows, foreign = read_rows(path, choose), read_against(cfg)
    problems, counts, notes = make_problems(rows, columns, own["ids"], own["name"])
    counts = dict(rows=len(rows), **counts, over_long=0, against=0, exact=0, near=0, conflicts=0)
    if cfg["verifier"] == "math":
        bad = unread_golds(problems, cfg)
        counts["gold_unread"] = len(bad)
        notes["gold_unread"] = [repr(problems[i]["answer"])[:60] for i in sorted(bad)]
        problems = [p for i, p in enumerate(problems) if i not in bad]
    if cfg["model"]:
        fits = [length <= cfg["max_prompt_tokens"] for length in lengths(problems, cfg["model"])]
        counts["over_long"] = len(fits) - sum(fits)
        problems = [p for p, fit in zip(problems, fits) if fit]
    kept = drop_twins(problems, foreign, counts, not cfg["keep_near"])
    said = ", ".join(f"{n} {why.replace('_', ' ')}" for why, n in counts.items()
                     if n and why not in ("rows", "conflicts"))
    if counts["conflicts"]:
        said += f"; {counts['conflicts']} of these duplicates had another answer"
    if not kept:
        raise BadInput(f"{path}: no problem is left of {len(rows)} rows ({said or 'it is empty'})")
    names = [p.pop("own", p["id"]) for p in kept]
    if len(set(names)) == len(kept):  # the set's own ids, where they are ids
        kept = [dict(p, id=name) for p, name in zip(kept, names)]
    for why, note in NOTES.items():
        if notes.get(why):
            note = note.format(columns=" or ".join(columns))
            print(f"{path}: {len(notes[why])} {note}; the first: {notes[why][0]}", file=sys.stderr)
    with aside(out) as part:  # gets its name behind the manifest: where it is, all is
        write_problems(part, kept)
        save_json(folder / "manifest.json", dict(
            settings={key: cfg[key] for key in SETTINGS}, file=path.name,
            revision_resolved=commit, source_sha256=digest(path),
            source_bytes=path.stat().st_size, question_column=columns[0],
            answer_column=columns[1], lengths_by=cfg["model"] or None,
            counts=dict(counts, kept=len(kept)),
            changed={why: len(notes.get(why, ())) for why in ("turns", "form")},
            against_set_hash=set_hash(foreign) if foreign else None,
            set_hash=set_hash(kept), problems_sha256=digest(part),
            problems_bytes=part.stat().st_size, seconds=round(time.time() - start, 1),
            time=time.time()))
    print(f"{out}: {len(kept):,} problems of {len(rows):,} rows"
          + (f" (left out: {said})" if said else "")
          + ("" if cfg["model"] else "; no lengths were measured"))


def digest(path):
    """sha256 of a file, in hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# --------------------------------------------------------------------------------------------------
# mix

def places(shares, D):
    """{split: share} -> [the split of each of D places].

    Every beginning of it has the shares to within one problem. The quota method of Balinski and
    Young (1975): of the splits that are below their share the one with the greatest share / (count
    + 1). The split with the greatest deficit is off by more than one at times, from five splits on.
    """
    total, count, order = sum(shares.values()), dict.fromkeys(shares, 0), []
    for i in range(1, D + 1):
        below = [name for name in shares if count[name] * total < shares[name] * i]
        order.append(max(below, key=lambda name: shares[name] / (count[name] + 1)))
        count[order[-1]] += 1
    return order


def mixture(splits, shares, D, seed):
    """D problems of `splits` ({name: problems}) in these shares, none twice, and how many of each.

    D = 0: as many as there are. The smaller D is the beginning of the larger one, for one seed:
    each split is shuffled once, and each place takes the next. Raises BadInput on too large a D.
    """
    queues, picked = {}, {}
    for name in shares:
        rng = random.Random(f"mix {seed} {name}")
        queues[name] = iter(rng.sample(splits[name], len(splits[name])))
    order = places(shares, D or sum(map(len, splits.values())))
    for name in order:
        # a split may hold problems of another, as `hard` those of `extreme`
        problem = next((p for p in queues[name] if p["id"] not in picked), None)
        if problem is None:
            if D:
                raise BadInput(f"--D={D}: needs {order.count(name)} problems of {name}, which has "
                               f"{len(splits[name])}; the largest D of this mixture is "
                               f"{len(picked)}")
            break
        picked[problem["id"]] = (name, problem)
    names = [name for name, _ in picked.values()]
    return [p for _, p in picked.values()], {name: names.count(name) for name in shares}


def read_shares(mix):
    """"extreme:2 easy:1" -> {"extreme": Fraction(2), "easy": Fraction(1)}. Raises BadInput."""
    shares = {}
    for word in sorted(mix.split()):  # so that the order of the words makes no other mixture
        name, _, share = word.partition(":")
        if name in shares:
            raise BadInput(f"--mix={mix}: names {name} twice")
        shares[name] = Fraction(share or 1)
        if not shares[name]:
            raise BadInput(f"--mix={mix}: the share of {name} must be above 0")
    return shares


def title_of(shares):
    """The name of a mixture: the paper's, else its splits with their shares."""
    for title, mix in MIXTURES.items():
        if read_shares(mix) == shares:
            return title
    return "_".join(f"{name}{float(share):g}" for name, share in shares.items())


def main_mix(argv, own, doc):
    cfg = parse([f"--data={os.path.relpath(HERE)}", *own["words"], *argv], doc)
    folder = Path(cfg["data"]) / "splits" / Path(cfg["model"]).name
    there = sorted(p.name.removesuffix("_train.jsonl") for p in folder.glob("[!.]*_train.jsonl"))
    there = [name for name in there if not name.startswith("mix_")]
    if not there:
        raise BadInput(f"{folder}: no splits there; measure them first: python sample.py "
                       f"--data={cfg['data']} --model={cfg['model']}")
    held = {}  # the file of each validation problem, by id and by prompt
    for path in sorted(folder.glob("[!.]*_val.jsonl")):
        for p in read_problems(path):
            held |= {p["id"]: path, p["prompt"]: path}
    record, made, cache = folder / "mixtures.json", {}, {}
    old = read_json(record) if record.exists() else {}
    # all are made before the first is written
    for mix in [cfg["mix"]] if cfg["mix"].split() else MIXTURES.values():
        shares = read_shares(mix)
        for name in shares:
            if name not in there:
                levels = name == "extreme" or name.startswith("level_")
                raise BadInput(f"--mix={mix}: no {name}_train.jsonl in {folder}; there are "
                               f"{', '.join(there)}"
                               + " (levels need --s_zero=128 in sample.py)" * levels)
            cache[name] = cache.get(name) or read_problems(folder / f"{name}_train.jsonl")
        splits = {name: cache[name] for name in shares}
        problems, counts = mixture(splits, shares, cfg["D"], cfg["seed"])
        for p in problems:
            where = held.get(p["id"]) or held.get(p["prompt"])
            if where:
                raise BadInput(f"{folder}: problem {p['id']} of --mix={mix} stands in {where.name} "
                               "too; measure the splits again")
        D, hashed = len(problems), set_hash(problems)
        path = folder / f"mix_{title_of(shares)}_D{D}_seed{cfg['seed']}_train.jsonl"
        if path.exists() and set_hash(read_problems(path)) != hashed:
            raise BadInput(f"{path}: is there with other problems, from other splits; remove it "
                           "first")
        parts = {name: float(share) for name, share in shares.items()}
        made[path] = problems, dict(D=D, seed=cfg["seed"], shares=parts, counts=counts,
                                    set_hash=hashed)
    for path, (problems, said) in made.items():
        write_problems(path, problems)
        print(f"{path}: {', '.join(f'{n} {name}' for name, n in said['counts'].items())}")
        old[path.name.removesuffix("_train.jsonl")] = said
    save_json(record, old)


if __name__ == "__main__":
    entry(main)
