r"""core/questions.py: turn a data set of questions and answers into a problem file.

The prepare.py of data/guru_math, data/aime24 and data/gsm8k each call `prepare` with their own
source. The docstring of data/guru_math/prepare.py describes what is read, written and left out.
"""
import ast
import contextlib
import gzip
import json
import re
import sys
from hashlib import sha256
from pathlib import Path

from config import BadInput, files, parse
from core import math_answers, sandbox
from core.duplicates import twins
from core.log import finite, save_json
from core.pool import call
from core.probe import first_line
from core.problems import is_made, read_problems, set_hash, write_problems

INSTRUCTION = r"Please output the final answer within \boxed{}."
# Pairs of columns (question, answer). A file is read by the first pair whose two columns it has
COLUMNS = (("prompt", "reward_model.ground_truth"), ("question", "answer"), ("problem", "answer"),
           ("Problem", "Answer"), ("prompt", "answer"), ("problem", "solution"))
AGAINST = "data/aime24/problems.jsonl"  # made when it is needed
OWN = dict(  # the keys that only these scripts have, {key: (default, meaning)}
    source=("", ".parquet or .jsonl file, or OWNER/NAME:FILE of a hub data set"),
    revision=("", "commit, tag or branch of the hub data set"),
    question_key=("", "column of the question; a.b = field b of column a"),
    answer_key=("", "column of the answer"),
    against=(AGAINST, "test sets, separated by commas: problems that contain theirs are dropped"))
SETTINGS = [*OWN, "verifier"]  # they decide what is written
# Why rows are left out
LEFT_OUT = "empty not_text several_answers other_form gold_unread against exact".split()
SOLUTION = 15  # an answer with more words is a worked solution
# What data sets write if a problem has no answer; it also matches an empty text
NO_GOLD = re.compile(r"(?i)(?:\\text\{)?(?:proof|not ?found|nan|n/a|null|tbd|"
                     r"see (?:the )?solution|[-?.\[\]\s]*)[.}]*")


# ---- The source: a name -> a file -> rows --------------------------------------------------------

def fetch(source, revision, folder):
    """Return the path of --source, downloaded if it is on the hub, or raise BadInput."""
    name, _, file = source.partition(":")
    # the second is downloaded by hand, the third with the `hf download` of the message below
    for path in (Path(source), folder / Path(file).name, folder / file):
        if path.is_file():
            return path
    if not re.fullmatch(r"[\w.-]+/[\w.-]+:[^:]+", source):
        raise BadInput(f"--source={source}: no such file, and not OWNER/NAME:FILE on the hub")
    from huggingface_hub import hf_hub_download, logging
    logging.set_verbosity_error()  # else ten lines on retries
    try:
        return Path(hf_hub_download(name, file, repo_type="dataset", revision=revision))
    except Exception as e:  # OSError, ValueError or an error of httpx or of huggingface_hub
        raise BadInput(f"--source={source}: cannot download it ({first_line(e)}); with a network, "
                       f"run hf download {name} {file} --repo-type=dataset --revision={revision} "
                       f"--local-dir={folder}") from None


def flatten(row, prefix=""):
    """Return {dotted name: value} for the fields of a row and of the dicts in it."""
    fields = {}
    for key, value in row.items():
        fields |= (flatten(value, f"{prefix}{key}.") if isinstance(value, dict)
                   else {prefix + key: value})
    return fields


def read_rows(path):
    """Return the rows of a .parquet, .jsonl or .jsonl.gz file as dicts {dotted name: value}, or
    raise BadInput with the file and the line."""
    rows, place = [], path
    try:
        if path.suffix == ".parquet":
            import pyarrow.parquet as pq
            return [flatten(row) for row in pq.ParquetFile(path).read().to_pylist()]
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            for i, line in enumerate(file, 1):
                place = f"{path}:{i}"
                if line.strip():
                    rows.append(flatten(json.loads(line)))
        return rows
    except Exception as e:  # of pyarrow, gzip or json, or a line is not a JSON object
        raise BadInput(f"{place}: not .parquet, .jsonl or .jsonl.gz ({first_line(e)})") from None


def pick_columns(rows, cfg, path):
    """Return [question column, ..., answer column], those in `cfg` or the first of COLUMNS that the
    rows have, and print the names of the others. Raise BadInput if the rows have no pair."""
    names = dict.fromkeys(name for row in rows for name in row)
    wanted = [[*files(cfg["question_key"] or question), cfg["answer_key"] or answer]
              for question, answer in COLUMNS]
    columns = next((pair for pair in wanted if pair[1:] and names.keys() >= {*pair}), None)
    if not columns:
        missing = " or ".join(name for name in wanted[0] if name not in names)
        raise BadInput(f"{path}: no column {missing}; there are {', '.join(names) or 'none'} "
                       "(--question_key, --answer_key)")
    if unread := [name for name in names if name not in columns]:
        print(f"{path}: columns not read: {', '.join(unread)}; --question_key=a,b joins two")
    return columns


def parse_list(value):
    """Return the list in a text such as '["34"]', and other values unchanged, also "[1, 2]", which
    is an interval."""
    if isinstance(value, str) and re.match(r"\s*\[\s*[\"'{]", value):
        with contextlib.suppress(ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            inside = ast.literal_eval(value.strip())
            if type(inside) is list and all(isinstance(x, (str, dict)) for x in inside):
                return inside
    return value


def user_turns(value):
    """Return the contents of the user's turns in a cell of chat messages, else []."""
    return [m.get("content") or m.get("value")
            for m in (value if isinstance(value, list) else ()) if isinstance(m, dict)
            and str(m.get("role") or m.get("from")).lower() in ("user", "human")]


def as_text(value):
    r"""Return a cell as text: the last question of chat messages, decoded bytes, "" for None or
    NaN, 7 for 7.0, 6\times 10^{23} for 6e23. Raise TypeError for others, such as an image."""
    value = finite(value)
    if turns := user_turns(value):
        return as_text(turns[-1])
    if isinstance(value, dict):
        value = [value]
    if isinstance(value, list):  # parts of a message
        value = "\n".join(part.get("text") if isinstance(part, dict) else part for part in value)
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, float):  # + 0, because -0.0 is 0
        mantissa, _, power = repr(value + 0).removesuffix(".0").partition("e")
        value = rf"{mantissa}\times 10^{{{int(power)}}}" if power else mantissa
    value = "" if value is None else str(value)
    # JSON can encode half of a surrogate pair, which tokenizers refuse
    return value.encode("utf-8", "replace").decode().strip()


# The texts around a gold, which is the group: a solution, tags, a sentence, markup, quotes, a unit
# in parentheses
AROUND = [re.compile(form, re.IGNORECASE) for form in (
    r"(?s:.*####\s*([^\n]*).*)", r"(?s:.*<answer>(.*?)</answer>.*)",
    r"(?:(?:so|thus|hence)?,? *the )?(?:final )?answer(?: is)? *:? *([^\n]+?)\.?",
    r"\*\*(.+)\*\*", r"\\\[(.+)\\\]", r"['`](.*)['`]",
    r"(\$?[-+]?[\d.,/]+) *\((?!mod\b)[^\W\d_](?:[^\d()+*/^=\\-]|/(?=[a-z])|-(?=[a-z]{2}))*\)")]


def golds_in(answer):
    r"""Return the golds in an answer's text, a list: ["18"] for "9 * 2 = <<9*2=18>>18.\n#### 18",
    "So it is \boxed{18}.", "<answer>18</answer>", "The answer is 18.", "b'18'", "18 (apples)".
    Boxes with different contents are several golds."""
    if re.fullmatch(r"b(['\"]).*\1", answer):  # bytes as Python prints them
        with contextlib.suppress(ValueError, SyntaxError):
            answer = ast.literal_eval(answer).decode("utf-8", "replace")
    answer = re.sub(r"<<[^<>]*>>", "", answer).replace(r"\fbox", r"\boxed").strip()
    answer = re.sub(r"\\boxed\s*(-?\w+(?:\.\d+)?)", r"\\boxed{\1}", answer)  # \boxed 9
    boxed = [math_answers.answer(r"\boxed" + piece, len(piece))
             for piece in answer.rpartition("####")[2].split(r"\boxed")[1:]]
    if any(boxed):
        return list(dict.fromkeys(filter(None, boxed)))
    for form in AROUND:
        if found := form.fullmatch(answer):
            answer = found[1].strip()
    return [answer]


def unescape(gold):
    r"""Return a gold with \frac in place of \\frac, the result of escaping a text twice."""
    doubled = r"\\\\(?=[A-Za-z%${}|])"
    even = all(len(run) % 2 == 0 for run in re.findall(r"\\+", gold))
    if even and re.search(doubled, gold):
        return gold.replace(r"\\", "\\")
    # if the gold has a \begin, such as a matrix, \\ may be the end of a row, so leave it
    return gold if r"\begin" in gold else re.sub(doubled, r"\\", gold)


# Patterns by which prompts of veRL, DAPO, Qwen and TRL ask for a particular form of the answer
BOX = re.compile(r"\\f?boxed\b(?:\{[^{}]*\})?")
OTHER = re.compile(r"(?i)####(?:[ :]*[\d.,]+)?|<answer>(?:.*</answer>)?|</answer>|\\?\$Answer\b"
                   r"|\banswer: *[\[<{(](?![A-J]\))|^answer:$"
                   r"|[\"“'`*]+(?:the )?(?:final )?answer\b(?: is)?"
                   r"(?: [XY]\.?| *[^\w\s][^\"”'`*]*)?[\"”'`*]+")
ASKS = re.compile(r"(?i)\b(answer|result|response|solution|final|output|conclusion|put your)")
SENTENCES = re.compile(r"((?<=[.!?])\s+|\s*\n\s*)")


def question_and_prompt(prompt):
    r"""Return (question, new prompt) for `prompt`, the prompt of a data set.

    The question is `prompt` without the sentences that only request a form of the answer. The new
    prompt keeps those that request \boxed{}, or has INSTRUCTION. It is "" if a sentence that
    requests another form has a number or a formula, and so may be part of the question.
    """
    prompt = prompt.strip().removesuffix(INSTRUCTION).strip()
    pieces, question, shown = [*SENTENCES.split(prompt), ""], "", ""
    has_box = is_mixed = False
    for sentence, gap in zip(pieces[::2], pieces[1::2]):
        box = ASKS.search(sentence) and BOX.search(sentence)
        other = not box and not sentence.startswith("#### ") and OTHER.search(sentence)
        only_form = not re.search(r"[\d\\$=]", OTHER.sub("", BOX.sub("", sentence)))
        has_box |= bool(box)
        is_mixed |= bool(other and not only_form)
        question += "" if only_form and (box or other) else sentence + gap
        shown += "" if other else sentence + gap
    shown = shown.strip() + ("" if has_box else f" {INSTRUCTION}")
    return question.strip() or prompt, "" if is_mixed else shown


# ---- From rows to problems. Each step adds to `counts`, {word of LEFT_OUT or CHANGED: rows} ------

def make_problems(rows, columns, name, counts):
    """Return the problems of rows. An id has the row's number. columns: see `pick_columns`."""
    problems = []
    for i, row in enumerate(rows):
        *cells, answer = [parse_list(row.get(key)) for key in columns]
        try:
            given = "\n".join(filter(None, map(as_text, cells)))
            texts = map(as_text, answer if isinstance(answer, list) else [answer])
            answers = [gold for text in texts for gold in golds_in(text)
                       if not NO_GOLD.fullmatch(gold)]
        except TypeError:
            counts["not_text"] += 1
            continue
        question, prompt = question_and_prompt(given)
        if not question or not answers:
            counts["empty"] += 1
        elif len(answers) > 1:
            counts["several_answers"] += 1
        elif not prompt:
            counts["other_form"] += 1
        else:
            problems.append(dict(id=f"{name}-{i:05d}", prompt=prompt, answer=answers[0]))
    return problems


def repair_golds(problems, cfg, counts):
    """Return the problems whose gold math-verify can read, as given or with single backslashes.
    Another gold would match only the same text. A gold of more than SOLUTION words, a worked
    solution, is left out as well."""
    asked = [(form, "") for p in problems for form in (unescape(p["answer"]), p["answer"])
             if not re.fullmatch(r"-?\d{1,15}", form)]  # a number can be read
    verdicts = sandbox.pool("math").verify(asked, cfg["verify_s"]) if asked else ()
    unread, kept = {gold for (gold, _), verdict in zip(asked, verdicts) if verdict != 1}, []
    for p in problems:
        words = re.findall(r"[^\W\d_]{2,}", re.sub(r"\\[A-Za-z]+", " ", p["answer"]))
        readable = [form for form in (unescape(p["answer"]), p["answer"]) if form not in unread]
        if readable and len(words) <= SOLUTION:
            kept.append(dict(p, answer=readable[0]))
    counts["gold_unread"] = len(problems) - len(kept)
    return kept


def drop_duplicates(problems, foreign, cfg, counts):
    """Return the problems without duplicates and without leaks of `foreign`. Of the duplicates,
    `conflicts` have another answer than the problem that is kept; 2/5 equals 0.4."""
    questions, theirs = ([question_and_prompt(p["prompt"])[0] for p in group]
                         for group in (problems, foreign))
    found = twins(questions, theirs)
    kept = [p for p, i in zip(problems, found) if i is None]
    counts["against"] = found.count("against")
    counts["exact"] = len(problems) - len(kept) - counts["against"]
    others = [(problems[i], rf"\boxed{{{p['answer']}}}") for i, p in zip(found, problems)
              if i not in (None, "against") and p["answer"] != problems[i]["answer"]]
    counts["conflicts"] = sum(verdict != 1 for verdict in sandbox.check("math", others, cfg))
    return kept


# ---- The script of a data folder -----------------------------------------------------------------

def read_against(cfg):
    """Return the problems of the --against files. If AIME24's default file is missing, make it."""
    paths, default = files(cfg["against"]), sandbox.ROOT / AGAINST
    if AGAINST in paths and not default.exists():
        call(sys.executable, default.with_name("prepare.py"))
    return [p for path in paths for p in read_problems(default if path == AGAINST else path)]


def prepare(argv, own, doc):
    """Do the work of a data folder's prepare.py: write problems.jsonl and manifest.json. argv: its
    command line, with `--data=`. own: dict(name, source, revision). doc: its docstring."""
    cfg = parse(argv, doc, OWN)
    folder = Path(cfg["data"])
    out = folder / "problems.jsonl"
    cfg["revision"] = cfg["revision"] or ("main" if cfg["source"] else own["revision"])
    cfg["source"] = cfg["source"] or own["source"]
    if is_made(folder, cfg, SETTINGS):
        return print(f"{out}: exists already, nothing to do")
    path = fetch(cfg["source"], cfg["revision"], folder)
    rows, counts = read_rows(path), dict.fromkeys(LEFT_OUT, 0)
    columns = pick_columns(rows, cfg, path)
    foreign = read_against(cfg)
    problems = make_problems(rows, columns, own["name"], counts)
    if cfg["verifier"] == "math":
        problems = repair_golds(problems, cfg, counts)
    problems = drop_duplicates(problems, foreign, cfg, counts)
    left_out = ", ".join(f"{counts[word]} {word.replace('_', ' ')}" for word in LEFT_OUT
                         if counts[word]) or "none"
    if not problems:
        raise BadInput(f"{path}: no problem is left of {len(rows)} rows ({left_out})")
    save_json(folder / "manifest.json", dict(
        settings={key: cfg[key] for key in SETTINGS}, file=path.name,
        question_column=",".join(columns[:-1]), answer_column=columns[-1],
        source_sha256=sha256(path.read_bytes()).hexdigest(),
        counts=dict(counts, rows=len(rows), kept=len(problems)),
        against_set_hash=set_hash(foreign) if foreign else None, set_hash=set_hash(problems)))
    # problems.jsonl is written last, because its existence means that all files are complete
    write_problems(out, problems)
    more = f"; {counts['conflicts']} duplicates have another answer" * bool(counts["conflicts"])
    print(f"{out}: {len(problems):,} problems of {len(rows):,} rows; left out: {left_out}{more}")
