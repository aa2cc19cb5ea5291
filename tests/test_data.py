"""Data sets in their published formats, made into problem files; duplicates; mixtures of splits."""
import gzip
import hashlib
import io
import json
import random
import shutil
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import config  # conftest.py has put the root on sys.path
from conftest import load_script, refused, tree, write_jsonl
from core import duplicates, questions
from core.log import read_log
from core.problems import read_problems
import sample
import verifier

ROOT = Path(__file__).resolve().parent.parent
GURU, AIME = "data/guru_math/prepare.py", "data/aime24/prepare.py"
BOX = r"Please output the final answer within \boxed{}."
FILE = "math__combined_54.4k.parquet"
OFFLINE = dict(HF_HUB_OFFLINE="1")  # else the hub's client retries for a while
WORDS = """triangle circle point line angle number integer digit prime factor sum product ratio
square cube root area volume set element function value sequence term graph vertex edge path coin
card player game turn box ball colour row column table bus train road town river bridge boat
hour day week price cost share team match score walk run jump meet leave pass cross cut fold paint
draw pick place move""".split()


@pytest.fixture(scope="module")
def guru():
    return load_script(GURU)


def sentence(seed, n=40):
    """Return a question of n random words, one for each seed."""
    return " ".join(random.Random(f"q{seed}").choices(WORDS, k=n)) + "?"


# ---- Published files -----------------------------------------------------------------------------

def write_verl(path, pairs):
    """Write (question, answer) pairs as Guru's math file has them, in veRL's format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [{"data_source": "math__dapo", "ability": "math", "solution": "Easy.",
             "prompt": [dict(content=f"{question} {BOX}" if question else "", role="user")],
             "reward_model": {"ground_truth": answer, "style": "rule"},
             "extra_info": {"index": i, "original_question": question},
             "qwen2.5_7b_pass_rate": 0.5} for i, (question, answer) in enumerate(pairs)]
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


TEST = [(f"Contest {sentence(f'aime{i}')} Find $m+n$ where $m={i}$.", f"{i + 11:03d}")
        for i in range(30)]

LONG = (r"Let $f(x)=\sin x$ be given on the real line, and let a point move on its graph with a "
        r"speed of $12$ units for each unit of time, from the origin to the right. After what time "
        r"is it for the first time at a height of $\frac{1}{2}$ above the line?")
RESPELLED = LONG.replace(r"\frac{1}{2}", r"\dfrac12").replace("$", "")
# {name: (question, answer, why it is left out, or "")}, in the order of the file
PLANTED = dict(
    original=(LONG, "3", ""),
    respelled=(RESPELLED.replace(" be given", "\n BE  given"), "3", "exact"),
    relabelled=(LONG, "4", "exact"), other_number=(LONG.replace("12", "13"), "3", ""),
    other_function=(LONG.replace("sin", "cos"), "5", ""),
    other_sign=(LONG.replace(r"f(x)=\sin x", r"f(x)=-\sin x"), "5", ""),
    leaked=(TEST[3][0], TEST[3][1], "against"),
    leaked_reworded=(TEST[4][0].replace("Find", "Calculate"), "15", "against"),
    leaked_number=(TEST[5][0].replace("m=5", "m=6"), "99", "against"),
    no_question=("", "1", "empty"), no_answer=(sentence("a"), "", "empty"),
    null_answer=(sentence("b"), None, "empty"),
    two_answers=(sentence("c"), '["1", "2"]', "several_answers"),
    wrapped=(sentence("d"), '["34"]', ""), interval=(sentence("e"), "[1, 2]", ""),
    short=("Solve $x+1=2$.", "1", ""), short_too=("Solve $x-1=2$.", "3", ""),
    other_form=(f"{sentence('f')} Write {sentence('g', 4)[:-1]} 3 after \"####\".", "3",
                "other_form"), unread=(sentence("h"), r"\frac{1}{2", "gold_unread"),
    solved=(sentence("i"), "So 9 * 2 = <<9*2=18>>18.\n#### 18", ""))
ROWS = [(sentence(i), str(i), "") for i in range(20)] + list(PLANTED.values())


@pytest.fixture(scope="module")
def made(tmp_path_factory, script):
    """Run the Guru script on a file of 40 rows in its data folder; return (folder, words, Done)."""
    data = tmp_path_factory.mktemp("guru")
    write_verl(data / FILE, [row[:2] for row in ROWS])
    test = write_jsonl(data / "aime/problems.jsonl",
                       [dict(id=i, prompt=f"{q} {BOX}", answer=a) for i, (q, a) in enumerate(TEST)])
    words = [f"--data={data}", f"--against={test}"]
    return data, words, script(GURU, *words, env=OFFLINE, check=True)


def test_rows_that_are_kept_and_their_manifest(made):
    data, _, done = made
    problems = sample.read_problems(data / "problems.jsonl")
    kept = [(f"guru-{i:05d}", q, a) for i, (q, a, why) in enumerate(ROWS) if not why]
    assert [(p["id"], p["prompt"], p["answer"]) for p in problems] == [
        (name, f"{q.strip()} {BOX}", "34" if a == '["34"]' else "18" if "####" in a else a)
        for name, q, a in kept]
    for part in ("3 empty", "1 several answers", "1 other form", "1 gold unread",
                 "3 against", "2 exact", "1 duplicates have another answer"):
        assert part in done.stdout, done.stdout
    manifest = config.read_json(data / "manifest.json")
    fates = Counter(row[2] or "kept" for row in ROWS)
    settings = dict(source=f"LLM360/guru-RL-92k:train/{FILE}",
                    revision="2e2790a962a3c099bfb5ea61389cbf98a5ea439b")
    expected = dict(counts=dict(fates, rows=40, not_text=0, conflicts=1), file=FILE,
                    source_sha256=hashlib.sha256((data / FILE).read_bytes()).hexdigest(),
                    set_hash=sample.set_hash(problems), question_column="prompt",
                    answer_column="reward_model.ground_truth")
    assert {key: manifest[key] for key in expected} == expected
    assert {key: manifest["settings"][key] for key in settings} == settings


def test_a_killed_prepare_can_be_repeated(tmp_path, guru):
    """problems.jsonl is written last. Bytes in a parquet file are text."""
    rows = [dict(question=sentence(i).encode(), answer=str(i).encode()) for i in range(3)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "bytes.parquet")
    want = [(f"{sentence(i)} {BOX}", str(i)) for i in range(3)]
    for _ in range(2):
        guru.main([f"--data={tmp_path}", f"--source={tmp_path / 'bytes.parquet'}",
                   "--against=none"])
        assert [(p["prompt"], p["answer"]) for p in read_log(tmp_path / "problems.jsonl")] == want
        (tmp_path / "problems.jsonl").unlink()


def test_a_problem_file_of_another_program_is_not_touched(tmp_path, script):
    mine = write_jsonl(tmp_path / "problems.jsonl", [dict(id=1, prompt="1+1", answer="2")])
    before = tree(tmp_path)
    refused(script(GURU, f"--data={tmp_path}"), mine, "manifest.json")
    assert tree(tmp_path) == before


def write_aime(path, form):
    path.parent.mkdir(parents=True, exist_ok=True)
    asked, answers = zip(*TEST)
    if form == "H4":  # HuggingFaceH4/aime_2024
        table = pa.table(dict(id=pa.array(range(60, 90), pa.int64()), problem=asked,
                              solution=["So."] * 30, answer=answers, year=["2024"] * 30))
    elif form == "Maxwell-Jia":  # its answers are numbers
        table = pa.table(dict(ID=[f"2024-{'I' * (1 + i // 15)}-{i % 15 + 1}" for i in range(30)],
                              Problem=asked, Solution=["So."] * 30,
                              Answer=pa.array(map(int, answers), pa.int64())))
    else:  # Guru's, each eight times
        return write_verl(path, [pair for pair in TEST for _ in range(8)])
    pq.write_table(table, path)
    return path


@pytest.mark.parametrize("form, last", [("H4", 29), ("Maxwell-Jia", 29), ("guru", 232)])
def test_aime_in_three_formats(tmp_path, script, form, last):
    source = write_aime(tmp_path / "aime.parquet", form)
    done = script(AIME, f"--data={tmp_path / 'out'}", f"--source={source}")
    assert done.code == 0 and not done.stderr, done.stderr
    problems = sample.read_problems(tmp_path / "out/problems.jsonl")
    assert [(p["prompt"], p["answer"]) for p in problems] == [
        (f"{q} {BOX}", str(int(a)) if form == "Maxwell-Jia" else a) for q, a in TEST]
    assert (problems[0]["id"], problems[-1]["id"]) == ("aime24-00000", f"aime24-{last:05d}")
    counts = config.read_json(tmp_path / "out/manifest.json")["counts"]
    assert [counts[key] for key in ("rows", "exact", "kept")] == (
        [240, 210, 30] if form == "guru" else [30, 0, 30])


@pytest.fixture
def clone(tmp_path):
    """Return a copy of the scripts with empty data folders."""
    shutil.copytree(ROOT / "core", tmp_path / "clone/core",
                    ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("config.py", GURU, AIME):
        (tmp_path / "clone" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / "clone" / name)
    return tmp_path / "clone"


def test_aime_is_made_first_and_both_write_into_their_folders(clone, script):
    """Without --data and --against, the Guru script makes AIME24's problem file first. It works
    from another working directory, and reads what `hf download --local-dir` wrote."""
    write_verl(clone / "data/guru_math" / FILE, [(sentence(1), "1"), TEST[0]])
    write_aime(clone / "data/aime24/data/train-00000-of-00001.parquet", "H4")
    done = script(clone / GURU, "--verifier=exact", cwd=clone / "data",
                  env=OFFLINE)
    assert done.code == 0 and not done.stderr, done.stderr
    settings = config.read_json(clone / "data/aime24/manifest.json")["settings"]
    # all 30, without the words of this call
    assert settings["verifier"] == "math" and settings["against"] == ""
    assert settings["revision"].startswith("2fe88a2")
    assert len(sample.read_problems(clone / "data/aime24/problems.jsonl")) == 30
    assert ids(clone / "data/guru_math/problems.jsonl") == ["guru-00000"]
    assert "nothing to do" in script(clone / AIME, cwd=clone, env=OFFLINE).stdout


def test_without_network_the_download_command_is_named(clone, tmp_path, script):
    def refuses(name, *words):
        refused(script(clone / name, *words[1:], cwd=clone,
                       env=dict(OFFLINE, HF_HOME=str(tmp_path / "hub"))), *words[0])
        assert not list(clone.rglob("*.json*"))
    refuses(GURU, ["hf download LLM360/guru-RL-92k train/math__combined_54.4k.parquet",
                   "--repo-type=dataset --revision=2e2790a962a3c099bfb5ea61389cbf98a5ea439b "
                   "--local-dir=data/guru_math"])
    # the source of AIME24 is the next missing file
    write_verl(clone / "data/guru_math" / FILE, [(sentence(1), "1")])
    refuses(GURU, ["hf download HuggingFaceH4/aime_2024 data/train-00000-of-00001.parquet",
                   "--revision=2fe88a2f1091d5048c0f36abc874fb997b3dd99a --local-dir=data/aime24"])
    refuses(AIME, ["rows.jsonl", "some/set", "--revision=main"], "--source=some/set:rows.jsonl")


def test_any_two_named_columns(prepared, tmp_path):
    """--question_key and --answer_key name any two columns. The files: gzipped JSONL with a dotted
    key; parquet with a dot in a column's name, and with floats for integers, as pandas writes
    them."""
    asked = [sentence(i) for i in range(3)]
    rows = [dict(q=dict(text=f"  {asked[0]} {BOX}\n"), sol=dict(final=[7])),
            # half of a surrogate pair, which becomes "?"
            dict(q=dict(text=asked[1].replace("?", "\ud800")), sol=dict(final=0)),
            dict(q=None), dict(q=dict(text=asked[2]), sol=dict(final=" ½ "), other=1)]
    with gzip.open(tmp_path / "mine.jsonl.gz", "wt") as file:
        file.write("\n".join(map(json.dumps, rows)) + "\n\n")
    pq.write_table(pa.table({"q.text": asked, "value": pa.array([7.0, None, 0.5])}),
                   tmp_path / "mine.parquet")
    for source, key, expected in (("mine.jsonl.gz", "sol.final", [(0, "7"), (1, "0"), (2, "½")]),
                                  ("mine.parquet", "value", [(0, "7"), (2, "0.5")])):
        problems, counts, printed = prepared(
            tmp_path / source, "--question_key=q.text", f"--answer_key={key}")
        assert [(p["prompt"], p["answer"]) for p in problems] == [(f"{asked[i]} {BOX}", answer)
                                                                  for i, answer in expected]
        assert counts["empty"] == 1 and "1 empty" in printed


GOOD = dict(question="1+1?", answer="2")
PARQUET = io.BytesIO()
pq.write_table(pa.table(dict(question=[sentence(i) for i in range(999)], answer=["1"] * 999)),
               PARQUET)
RAW = PARQUET.getvalue()
# {kind: (file, its rows or bytes, parts of the error; words of the command line)}
BAD = {
    "missing": ("x.parquet", None, []), "torn end": ("x.parquet", RAW[:-100], []),
    "torn": ("x.parquet", RAW[:100] + bytes(19900) + RAW[20000:], []),
    "suffix": ("x.csv", b"question,answer\n1+1,2\n", [".parquet, .jsonl or .jsonl.gz"]),
    "packed": ("x.jsonl.gz", b"question,answer\n1+1,2\n", ["gzip"]),
    "line": ("x.jsonl", json.dumps(GOOD).encode() + b"\n{not json\n", ["x.jsonl:2"]),
    "list": ("x.jsonl", b"[1, 2]\n", ["x.jsonl:1"]),
    "columns": ("x.jsonl", [dict(ask="1+1?", solution=dict(final="2", why="so"))],
                ["no column prompt or reward_model.ground_truth;",
                 "ask, solution.final, solution.why"]),
    "question column": ("x.jsonl", [GOOD], ["no column nope", "question, answer"],
                        "--question_key=nope"),
    "no question": ("x.jsonl", [GOOD], ["x.jsonl: no column", "answer"], "--question_key=,"),
    "struct": ("x.jsonl", [dict(prompt="1+1?", reward_model=dict(ground_truth="2", style="rule"))],
               ["no column reward_model;", "reward_model.ground_truth, reward_model.style"],
               "--answer_key=reward_model"),
    "nothing": ("x.jsonl", [dict(question="", answer="2"), dict(question="1+1?", answer="  "),
                            dict(question=f"  {BOX}", answer=1)],
                ["no problem is left of 3 rows", "3 empty"]), "no rows": ("x.jsonl", b"\n", []),
    "no test file": ("x.jsonl", [GOOD], ["gone.jsonl"], "--against=gone.jsonl")}


@pytest.mark.parametrize("kind", BAD)
def test_bad_input_is_one_line_and_writes_nothing(guru, tmp_path, kind):
    name, content, parts, *words = BAD[kind]
    if isinstance(content, bytes):
        (tmp_path / name).write_bytes(content)
    elif content:
        write_jsonl(tmp_path / name, content)
    with pytest.raises(config.BadInput) as e:
        guru.main([f"--data={tmp_path / 'out'}", "--against=none",
                   f"--source={tmp_path / name}", *words])
    line = str(e.value)
    assert not (tmp_path / "out").exists() and "\n" not in line
    assert all(part in line for part in parts or [str(tmp_path / name)]), line


# ---- Duplicates ----------------------------------------------------------------------------------

SAME = [("Find $x$, if x = 3.", "find  x if\n$$x=3$$"),
        (r"\left(\dfrac{1}{2}\right)^{10}", r"( \frac{1}{2} )^10"), (r"\frac12", r"\tfrac{1}{2}"),
        (r"\(1{,}000{,}000\) units", "$1,000,000$ units"), (r"a \leq b\,c", "a ≤ bc"),
        ("10² − 1", "$10^{2}-1$"), (r"5\text{ cm}", "5 cm"),
        (r"a two-digit number", "a two digit number"), (r"\operatorname{lcm}(a,b)\!", "lcm(a, b)"),
        (r"pays \$5", "pays $5$"), (r"x=1\\[2pt]y=2", "x=1 y=2")]
DIFFERENT = [("x+1", "x-1"), ("2^{n+1}", "2^n+1"), ("10²", "102"), ("1 23", "12 3"),
             (r"\frac{1}{23}", r"\frac{12}{3}"), ("(a+b)c", "a+bc"), ("1.5", "15"), ("5!", "5"),
             ("a<b", "a>b"), (".25 times 80", "25 times 80"), ("8 – 3", "8 3"), ("x–y", "xy"),
             ("2½", "21/2"), ("3:4", "3,4"), ("f'(x)", "f(x)"),
             ("points (12, 345)", "points (12, 346)"), ("3*4", "3/4"), (r"\\[x=4\\]", r"\\[x=5\\]")]


def spelled(text):
    return duplicates.compact(duplicates.normalize(text))


def test_normalization_of_spellings():
    for a, b in SAME + DIFFERENT:
        assert (spelled(a) == spelled(b)) == ((a, b) in SAME), (a, b)


def test_leaks_and_duplicates_equal_those_of_the_slow_way():
    """The texts have 12 to 60 words and up to four changes, so many pairs are close to 0.8."""
    def run(q):
        words = duplicates.normalize(q)
        return {tuple(words[i:i + 3]) for i in range(max(1, len(words) - 2))}
    rng, questions = random.Random(5), []
    foreign = [sentence(f"f{i}", 30) for i in range(10)]
    bases = foreign + [sentence(f"b{i}", n) for i, n in enumerate([12, 20, 30, 40, 60] * 4)]
    for _ in range(240):
        words = rng.choice(bases).rstrip("?").split()
        for _ in range(rng.randrange(5)):
            words[rng.randrange(len(words))] = rng.choice([*WORDS, "3", "4", "+", "sin"])
        questions.append(" ".join(words) + rng.choice(["?", ".", "  ?"]))
    expected, first = [], {}
    for i, q in enumerate(questions):
        leak = any(5 * len(run(q) & run(f)) >= 4 * len(run(f)) for f in foreign)
        same = None if leak else first.setdefault(spelled(q), i)
        expected.append("against" if leak else None if same == i else same)
    assert duplicates.twins(questions, foreign) == expected
    assert sum(isinstance(same, int) for same in expected) >= 10 <= expected.count("against")


# ---- Mixtures ------------------------------------------------------------------------------------

SIZES = dict(extreme=90, level_easy=50, level_very_easy=40)


@pytest.fixture
def splits(tmp_path):
    """Return a folder of splits with levels as sample.py writes them."""
    folder = tmp_path / "data/splits/M"
    for name, n in SIZES.items():
        write_jsonl(folder / f"{name}_train.jsonl",
                    [dict(id=f"{name}-{i}", prompt=f"{name} {i}", answer="1", pass_rate=0.0,
                          samples=128, correct=0) for i in range(n)])
    return folder


@pytest.fixture
def mix(script, splits):
    def run(*words):
        return script("sample.py", "mix", f"--data={splits.parent.parent}", "--model=org/M", *words)
    return run


def ids(path):
    return [p["id"] for p in sample.read_problems(path)]


def test_a_smaller_mixture_is_a_prefix_of_a_larger_one(splits):
    """Each mixture has the paper's shares to within one problem. Another seed gives another one."""
    levels = {name: sample.read_problems(splits / f"{name}_train.jsonl") for name in SIZES}
    for name, pattern in sample.MIXTURES.items():
        full = [p["id"] for p in sample.mixture(name, levels, 80, 0)]
        for D in range(1, 80):
            part = [p["id"] for p in sample.mixture(name, levels, D, 0)]
            assert part == full[:D]
            counts = Counter(i.rpartition("-")[0] for i in part)
            assert all(abs(counts[split] - D * pattern.count(split) / len(pattern)) <= 1
                       for split in pattern)
        assert set(full) != {p["id"] for p in sample.mixture(name, levels, 80, 1)}


def test_sizes_of_mixtures(splits, mix):
    """--D=0 writes the largest ones. If one is too large, none of the three is written."""
    assert mix("--D=60", "--seed=3").code == mix("--D=0").code == 0
    assert {p.name for p in splits.glob("mix_*")} == {
        f"mix_{name}_train.jsonl" for name in (
            "hard_D60_seed3", "dual_D60_seed3", "tri_D60_seed3", "hard_D90_seed0",
            "dual_D101_seed0", "tri_D163_seed0")}
    known = {name: read_log(splits / f"{name}_train.jsonl") for name in SIZES}
    for name, shares in (("hard", [60, 0, 0]), ("dual", [30, 30, 0]), ("tri", [30, 15, 15])):
        problems = read_log(splits / f"mix_{name}_D60_seed3_train.jsonl")
        assert [sum(p in problems for p in part) for part in known.values()] == shares
        assert len({p["id"] for p in problems}) == len(problems) == 60
    before = tree(splits)
    refused(mix("--D=100"), "--D=100", "hard has at most 90", "extreme has only 90")
    refused(mix("--D=5", "--model=org/other"), "other")
    assert mix("--D=5", "--model=org/other", f"--out={splits}", "--seed=9").code == 0
    assert {*tree(splits)} - {*before} == {f"mix_{name}_D5_seed9_train.jsonl"
                                           for name in ("hard", "dual", "tri")}


# ---- Forms of answers, golds, chat turns and columns in published data sets ----------------------

@pytest.fixture
def prepared(guru, tmp_path, capsys):
    """Return prepared(rows or file, *words), which runs prepare.py and returns (problems, counts,
    the printed text)."""
    def prepared(rows, *words, against="none"):
        source = write_jsonl(tmp_path / "in.jsonl", rows) if isinstance(rows, list) else rows
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        guru.main([f"--data={tmp_path / 'out'}", f"--source={source}",
                   f"--against={against}", *words])
        manifest = config.read_json(tmp_path / "out/manifest.json")
        printed = capsys.readouterr()
        return (sample.read_problems(tmp_path / "out/problems.jsonl"), manifest["counts"],
                printed.out + printed.err)
    return prepared


DAPO = ("Solve the following math problem step by step. The last line of your response should be "
        "of the form Answer: $Answer (without quotes) where $Answer is the answer to the problem."
        "\n\n", '\n\nRemember to put your answer on its own line after "Answer:".')
GSM8K = ("", ' Let\'s think step by step and output the final answer after "####".')
MATH = ("", r" Let's think step by step and output the final answer within \boxed{}.")
QWEN = ("", "\nPlease reason step by step, and put your final answer within \\boxed{}.")
R1 = ("", "\nReturn the final answer in <answer> </answer> tags, for example <answer> (1 + 2) / 3 "
      "</answer>.")
WRAPPED = dict(dapo=DAPO, gsm8k=GSM8K, math=MATH, qwen=QWEN, r1=R1,
               unknown=("Think hard about this task. Nobody will help you with it, so take all the "
                        "time that you need.\n\n", "\n\nCheck the result twice, and be brief."))


@pytest.mark.parametrize("name", WRAPPED)
def test_problems_inside_an_instruction(prepared, tmp_path, name):
    """All 30 test problems are found inside an instruction, and no other problem is, also if the
    test problems have the instruction. A kept prompt requests one form of the answer."""
    before, after = WRAPPED[name]
    others = [dict(question=before + sentence(i) + after, answer="1") for i in range(5)]
    around = [dict(question=before + q + after, answer=a) for q, a in TEST]
    asked, boxed = [q for q, _ in TEST], name in ("math", "qwen")
    for test in (asked, [row["question"] for row in around]):
        against = write_jsonl(tmp_path / "test.jsonl",
                              [dict(id=i, prompt=q, answer="1") for i, q in enumerate(test)])
        problems, counts, _ = prepared(around + others, against=against)
        assert (counts["against"], counts["kept"]) == (30, 5)
    for i, p in enumerate(problems):
        assert sentence(i) in p["prompt"] and p["prompt"].count(r"\boxed") == 1
        assert not any(form in p["prompt"] for form in ("####", "<answer>", "Answer:"))
        assert p["prompt"] == others[i]["question"] if boxed else p["prompt"].endswith(BOX)


def test_a_short_test_problem_must_be_nearly_the_whole_question():
    """Others contain "What is $2+2$" by chance, and an instruction must not hide a long one."""
    short = ["What is $2+2$?", "Let $x=7$. Find $x^2$."]
    same = ["what is $2 + 2$", "Let $x = 7.$  Find $x^2$"]
    beside = ["What is $2+2+5$?", "What is $2+2-1$ in binary?", "Let $x=7$. Find $x^2+x$."]
    assert duplicates.twins(same, short) == ["against"] * 2
    assert duplicates.twins(beside, short) == [None] * 3
    told = [f"{sentence(0)} What is {a} + {a}?" for a in "13579"]  # after a long instruction
    assert duplicates.twins(told, told) == ["against"] * 5


def test_a_box_in_the_question_is_kept():
    fill = r"Which digit makes $\boxed{\phantom{0}}5 = 3 \cdot 15$ true?"
    assert questions.question_and_prompt(fill) == (fill, f"{fill} {BOX}")
    # a sentence on the form that has a part of the question is not removed: there is no prompt
    assert questions.question_and_prompt('Add 3 and 4 and write the result after "####".')[1] == ""
    for text in ("#### Problem 3\nFind $x$.", "Choose the answer: (A) red (B) blue.",
                 "Bob says 'the answer is even'. It is below ten. What is it?"):
        assert questions.question_and_prompt(text) == (text, f"{text} {BOX}")


TURNS = [([dict(role="system", content="You teach."), dict(role="user", content="2+3?")],
          "2+3?"),
         ([dict(role="user", content=[dict(type="text", text="2+"), dict(type="text", text="3?")])],
          "2+\n3?"),
         ([dict(role="user", content="1+1?"), dict(role="assistant", content="2"),
           dict(role="user", content="2+3?")], "2+3?"),
         ([dict(role="user", content="2+3?"), dict(role="assistant", content="5")], "2+3?"),
         ([{"from": "human", "value": "2+3?"}, {"from": "gpt", "value": "5"}], "2+3?"),
         ([{"from": "user", "value": "2+3?"}], "2+3?"),
         ('[{"role": "user", "content": "2+3?"}]', "2+3?"),
         ("[{'role': 'user', 'content': '2+3?'}]", "2+3?"), (["2+3?"], "2+3?")]


@pytest.mark.parametrize("prompt, question", TURNS)
def test_the_last_question_of_chat_turns(prepared, prompt, question):
    [p], *_ = prepared([dict(prompt=prompt, answer="5")])
    assert p["prompt"] == f"{question} {BOX}"


@pytest.mark.parametrize("prompt", [
    [dict(role="user", content=[dict(type="image", image="x.png"), dict(type="text", text="?")])],
    [dict(role="assistant", content="5")], [dict(a=1)], [1, 2], [dict(role=3, content="5")]])
def test_cells_without_text_are_counted(prepared, prompt):
    rows = [dict(prompt=prompt, answer="5"), dict(prompt="2+3?", answer="5")]
    problems, counts, printed = prepared(rows, "--question_key=prompt", "--answer_key=answer")
    assert [p["prompt"] for p in problems] == [f"2+3? {BOX}"]
    assert counts["not_text"] == 1 and "1 not text" in printed


def test_columns_that_belong_to_the_question(prepared):
    row = dict(body="Seven red marbles lie in a bowl.", question="How many?", answer="7", level="1")
    for words, prompt, unread in (
            ([], "How many?", "body, level"),
            (["--question_key=body,question"], f"{row['body']}\nHow many?", "level")):
        [p], _, printed = prepared([row], *words)
        assert p["prompt"] == f"{prompt} {BOX}" and f"not read: {unread};" in printed


def test_the_answer_in_a_worked_solution(prepared):
    """The columns are those of MATH. Guru's and DAPO's are in `write_verl`."""
    row = dict(problem="Find $x$ if $2x=1$.", level="Level 1", type="Algebra",
               solution=r"So $x=\boxed{\frac12}$.")
    [p], *_ = prepared([row])
    assert (p["prompt"], p["answer"]) == (f"{row['problem']} {BOX}", r"\frac12")


def test_a_problem_file_is_utf8_in_every_locale(tmp_path, script):
    """U+2028 and U+0085 are text; a BOM and CRLF are read. A float may be an integer."""
    path = tmp_path / "p.jsonl"
    path.write_bytes(('\ufeff{"id": 1, "prompt": "3\u00d73\u2028or\u0085?", "answer": 12.0}\r\n\r\n'
                      '{"id": 2, "prompt": "2+2?", "answer": 0.5}\r\n'
                      '{"id": 3, "prompt": "2+3?", "answer": 7}\r\n').encode())
    want = [("3\u00d73\u2028or\u0085?", "12"), ("2+2?", "0.5"), ("2+3?", "7")]
    assert [(p["prompt"], p["answer"]) for p in read_problems(path)] == want
    (tmp_path / "read.py").write_text(
        "import sys\nsys.path.insert(0, sys.argv[1])\nfrom core.problems import read_problems\n"
        "print(ascii([(p['prompt'], p['answer']) for p in read_problems(sys.argv[2])]))\n")
    # the paths are words, because in this locale a script could not contain a path with an umlaut
    done = script(tmp_path / "read.py", ROOT, path,
                  env=dict(LC_ALL="C", PYTHONCOERCECLOCALE="0", PYTHONUTF8="0"))
    assert done.stdout.strip() == ascii(want), done
    path.write_text('{"id": 1, "prompt": [{"role": "user"}], "answer": "1"}')
    with pytest.raises(config.BadInput, match="not text"):
        read_problems(path)


def test_split_all(tmp_path, script):
    """--split=all loads no model and holds out a quarter, in a second call the same problems."""
    write_jsonl(tmp_path / "problems.jsonl",
                [dict(id=i, prompt=f"{i}+1=", answer=str(i + 1)) for i in range(60)])
    words = [f"--data={tmp_path}", "--model=org/not_there", "--split=all", "--s=256"]
    done = script("sample.py", *words)
    assert done.code == 0 and "45 train     15 val" in done.stdout, done
    splits = tmp_path / "splits/not_there"
    train, val = (ids(splits / f"all_{part}.jsonl") for part in ("train", "val"))
    assert not set(train) & set(val) and {*train, *val} == {str(i) for i in range(60)}
    done = script("core.sweep", "prepare", "easy", *words,
                  env=dict(PYTHON=sys.executable, GPUS_PER_RUN="0"))
    assert done.code == 0 and ids(splits / "all_val.jsonl") == val, done.stderr
    refused(script("sample.py", *words, "--n_val=60"), "--n_val=60", "none of the 60")


# ---- Golds that an answer can match, leaks in other LaTeX, prompts that occur twice --------------

MATRIX = (r"\begin{pmatrix}2&4\\1&2\end{pmatrix}", r"\begin{pmatrix}2&1\\4&2\end{pmatrix}")
# {gold in the file: (a right answer, a wrong answer), or None if it is left out}
REPAIRED = {
    r"\\left[-1, \\frac{\\sqrt{2}}{2}\\right]": (r"[-1,\frac{\sqrt{2}}{2}]", "[-1,1]"),
    r"5.88\\%": (r"5.88\%", r"6\%"),
    r"\\frac{1}{2} \\text{ or } \\frac{1}{6}": (r"\frac12,\frac16", r"\frac12"),
    r"\\sqrt{3}\\pi": (r"\sqrt{3}\pi", r"\sqrt{2}\pi"), r"\\{1, 2\\}": (r"\{2,1\}", r"\{1,3\}"),
    r"x \\in (-\\infty, 2)": (r"(-\infty,2)", r"(2,\infty)"),
    r"\\begin{pmatrix} 2 & 4 \\\\ 1 & 2 \\end{pmatrix}": MATRIX,
    r"\begin{pmatrix} 2 & 4 \\ 1 & 2 \end{pmatrix}": MATRIX,
    r"\begin{pmatrix}x\\y\end{pmatrix}":
        (r"\begin{pmatrix}x\\y\end{pmatrix}", r"\begin{pmatrix}y\\x\end{pmatrix}"),
    r"\frac{1}{2} \\text{ or } 3": ("0.5, 3", "3"),
    r"\\frac{1}{2": None, r"\frac{1}{0}": None, r"\left(1,2": None, r"x^{": None,
    "Mara has three loaves and bakes two more every day of the week, so that after a week there "
    "are seventeen of them on the table.": None}
# (gold in the file, gold that is kept): texts around an answer, boxes, numbers, choices
KEPT = [
    ("So 9 * 2 = $<<9*2=18>>18.\n#### 18", "18"), ("3+31=34\n#### 34", "34"),
    ("#### 1,200", "1,200"), (r"b'34\n'", "34"), ('b"3/4"', "3/4"), ("9 (apples)", "9"),
    ("2(x+y)", "2(x+y)"), ("5 (mod 7)", "5 (mod 7)"), ("(A) and (C)", "(A) and (C)"),
    ('["34"]', "34"), ("['34']", "34"), (r"Hence it is $\boxed{\frac{1}{2}}$.", r"\frac{1}{2}"),
    ("<answer>7</answer>", "7"), ("The answer is 18.", "18"), ("Final answer: -3", "-3"),
    ("**12**", "12"), ("7\n#### 8\nThe answer is: 8", "8"), ("(1, 2]", "(1, 2]"),
    ("#### Final Answer\n\nIt is $\\boxed{8}$.", "8"), ("B'C'", "B'C'"), ("1 <<1=1>>", "1"),
    ("no solution", "no solution"), (r"x^{2}-1", r"x^{2}-1"), ([3.0, ""], "3"),
    (["proof", r"\text{proof}.", "notfound", "NaN", "?", float("nan"), "5"], "5"),
    (r"So $x=\boxed 9$.", "9"), (r"So it is $\boxed{7}$. We could also see \boxed{7}.", "7"),
    (r"So $\boxed12$.", "12"), (r"$x = \boxed{1}$ and $x = \boxed{-2}$.", None),
    (r"First \boxed{3}, and then \boxed{\frac{1}{2}}.", None), (r"It is \boxed{\boxed{5}}.", "5"),
    (1e23, r"1\times 10^{23}"), (-6e25, r"-6\times 10^{25}"), (3e-36, r"3\times 10^{-36}"),
    (-0.0, "0"), (7.0, "7"), (0.5, "0.5"), (6.02e23, r"6.02\times 10^{23}"),
    (2.0 ** 52, "4503599627370496"), (10 ** 23, str(10 ** 23)), (float("nan"), None),
    (r"\text{(C) } 12", r"\text{(C) } 12"), ("#### 7.5", "7.5"), ("[{-3, 5}]", "[{-3, 5}]"),
    ("['a'], ['b']", "['a'], ['b']"), ("[{{1},{2}}]", "[{{1},{2}}]")]


def test_golds_with_doubled_backslashes_are_repaired_or_left_out(prepared):
    rows = [dict(problem=sentence(i), answer=gold) for i, gold in enumerate(REPAIRED)]
    problems, counts, printed = prepared(rows)
    assert counts["gold_unread"] == 5 and "5 gold unread" in printed
    wanted = [answers for answers in REPAIRED.values() if answers]
    assert len(problems) == len(wanted)
    right, wrong = (verifier.check_math([(p["answer"], rf"\boxed{{{answers[k]}}}")
                                         for p, answers in zip(problems, wanted)],
                                        dict(verify_s=10.0, verify_bytes=1024)) for k in (0, 1))
    assert right == ["right"] * len(right) and "right" not in wrong


def test_golds_of_solutions_and_numbers_and_choices(prepared):
    rows = [dict(problem=sentence(i), answer=gold) for i, (gold, _) in enumerate(KEPT)]
    problems, counts, printed = prepared(rows)
    assert [p["answer"] for p in problems] == [kept for _, kept in KEPT if kept is not None]
    assert counts["several_answers"] == 2 and "2 several answers" in printed
    assert counts["empty"] == 1
    choices = [(r"\text{(C) } 12", rf"\boxed{{{answer}}}") for answer in ("C", "D", "12")]
    assert verifier.check_math(choices, dict(verify_s=10.0, verify_bytes=1024)) == [
        "right", "wrong", "wrong"]


LEAKS = [(r"\overline{z_1}", r"\overline{z}_1"), (r"x_{12}", "x_12"), (r"\bar{z}", r"\overline z"),
         (r"{\left(a_{n+1}\right)}^{2}", r"\left(a_{n+1}\right)^{2}"), (r"\sqrt{2}", r"\sqrt 2"),
         (r"\frac{z_1}{w}", r"\frac {z_1} w"), (r"\mathbf{v}_{i}", r"\mathbf{v_i}")]


def test_a_leak_is_found_with_other_braces():
    text = ("Let ${0}$ and the conjugate of ${0}$ be given. Find the value of ${0}+2{0}$ when "
            "${0}$ is a root, and ${0}^2$ is not.")
    for a, b in LEAKS:
        test, train = (text.replace("{0}", form) for form in (a, b))
        assert duplicates.twins([train], [test]) == ["against"], (a, b)
        assert duplicates.twins([test], [train]) == ["against"], (a, b)
    other = "Let $z$ be given, with a modulus of two. Find all values of its square root, if any."
    assert duplicates.twins([other], [text.replace("{0}", LEAKS[0][0])]) == [None]


@pytest.mark.parametrize("first, second, conflicts", [
    ("2/5", r"\frac{2}{5}", 0), ("x=3", "3", 0), ("2/5", r"\frac{3}{5}", 1), ("7", "8", 1)])
def test_equal_golds_in_other_notation_do_not_conflict(prepared, first, second, conflicts):
    _, counts, *_ = prepared([dict(problem=sentence(1), answer=x) for x in (first, second)])
    assert (counts["exact"], counts["conflicts"]) == (1, conflicts)


@pytest.mark.parametrize("all_problems", [True, False])
def test_a_prompt_under_two_ids_is_not_in_both_parts(tmp_path, all_problems):
    """If a file has every problem twice, no split trains on a validation prompt."""
    cfg = config.parse(["--model=m", f"--problems={tmp_path / 'p.jsonl'}", "--s_zero=0"])
    problems = [dict(id=f"{i}-{k}", prompt=f"{i} + 1 ={' ' * k}", answer=str(i + 1))
                for i in range(60) for k in (0, 1)]
    write_jsonl(tmp_path / "p.jsonl", problems)
    if all_problems:
        sample.write_all(tmp_path, cfg)
        splits = dict(all={part: read_log(tmp_path / f"all_{part}.jsonl")
                           for part in ("train", "val")})
    else:
        counts = {p["id"]: {0: 0, cfg["s"]: 3 * i % (cfg["s"] + 1)} for i, p in enumerate(problems)}
        splits = sample.make_splits(problems, counts, cfg)
    train, val = ({p["prompt"].strip() for split in splits.values() for p in split[part]}
                  for part in ("train", "val"))
    assert len(train) > 20 and len(val) > 8 and not train & val
