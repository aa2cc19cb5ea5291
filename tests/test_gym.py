"""data/reasoning_gym/prepare.py and --verifier=reasoning_gym: problems, grades, hostile answers."""
import json
import re
import sys

import pytest

from core import engine
import sample
import verifier
from core import sandbox
from core import gym_problems as gym
from conftest import capture, load_prepare, refused, run_script, tree
from config import BadInput
from test_verifier import Naive, close, cpu, grade
from core.sandbox import ERROR

named = pytest.mark.parametrize
SCRIPT, PYTHON = "data/reasoning_gym/prepare.py", sys.executable
CFG = dict(verify_s=10.0, verify_bytes=65536, verifier="reasoning_gym")

# FREE: tasks of version 0.1.25 whose problems have no single answer, so that the metadata decide.
# NOT_JSON: tasks that cannot be graded once their metadata were written as JSON
FREE = {"boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"}
NOT_JSON = {"arc_agi", "rearc"}
PROBES = ["?", "0", "nan"]  # wrong answers

# (task, wrong answer that the library accepts); the test fills in the names in braces
CHEATS = [("countdown", "0j*({sum})-{target}j*1j"), ("countdown", "(x-x)*({sum})+({xs})/x"),
          ("puzzle24", "4*6*1*1"), ("puzzle24", "2*2*2*3"), ("puzzle24", "0j*({sum})-24j*1j"),
          ("number_sorting", "[{nans}]"), ("number_sorting", "[{texts}]"),
          ("number_sorting", "[{escaped}]"), ("complex_arithmetic", "nan"),
          ("complex_arithmetic", "nan+nanj"), ("complex_arithmetic", "nan + 1i")]


@pytest.fixture(scope="module")
def script():
    """Return data/reasoning_gym/prepare.py as a module."""
    return load_prepare("reasoning_gym")


@pytest.fixture(scope="module")
def pool():
    """Replace sandbox.pool by one Pool of one process, which all tests of this file share."""
    shared, before = sandbox.Pool("reasoning_gym", 1), sandbox.pool
    sandbox.pool = lambda kind: shared
    yield shared
    sandbox.pool = before
    close(shared)


def problems(name, count=1, **args):
    return [gym.problem_from(one, name, args, i)
            for i, one in enumerate(gym.draw(name, args, count, 0))]


def verdicts(problem, *answers, **changes):
    return sandbox.check("reasoning_gym", [(problem, answer) for answer in answers], CFG | changes)


def test_every_task_is_graded_from_its_file(pool):
    """After a round trip through JSON, a task's own answer is right, except in FREE and NOT_JSON.
    Wrong answers are right only in tasks of LEFT_OUT."""
    names, accept_all = gym.tasks(), set()
    assert len(names) == 103 and not gym.LEFT_OUT & set(names)
    for name in [*names, "coin_flip", "game_of_life_halting"]:
        for p in problems(name, 2):
            p = json.loads(json.dumps(p))
            own, *others = verdicts(p, f"<answer>{p['answer']}</answer>", *PROBES)
            assert (p["answer"] == gym.NO_ANSWER) == (name in FREE), name
            assert (own == 1) == (name not in FREE | NOT_JSON), (name, own)
            assert bool(gym.gradable([p], CFG)) == (name not in NOT_JSON), name
            if any(verdict == 1 and probe != p["answer"] for probe, verdict in zip(PROBES, others)):
                accept_all.add(name)
    assert accept_all | {"composite"} == gym.LEFT_OUT


def test_the_answer_in_a_response(pool):
    p, = problems("chain_sum", min_terms=2, max_terms=2)
    a = p["answer"]
    right = [f"<answer>{a}</answer>", f"<answer>0</answer> no, <answer> {a} </answer>.", f" {a}",
             f"\n{a}\nThe answer is 1", f"<think>5</think>{a}",
             f"<think>a</think><answer>{a}</answer>", f"{a}.0"]
    wrong = ["", " ", f"<answer>{a}", f"<think>{a}", f"<think><answer>{a}</answer>",
             f"well,\n{a}", "<answer></answer>", f"<answer>0</answer> {a}"]
    assert verdicts(p, *right) == [1] * len(right)
    assert verdicts(p, *wrong) == [0] * len(wrong)


def test_partial_credit_is_a_reward_but_not_solved(pool):
    p, = problems("countdown")
    assert verdicts(p, p["answer"], "1 + 1", "?") == [1, 0.05, 0.01]
    s, = problems("chain_sum", min_terms=2, max_terms=2)
    part = len(s["answer"]) / len(f"{s['answer']} or so")
    assert verdicts(s, f"{s['answer']} or so") == [part]
    assert verifier.reasoning_gym_reward(s, f"{s['answer']} or so", CFG) == part
    assert verifier.reasoning_gym_reward(s, s["answer"], CFG) == 1
    rewards, faults = grade([s], [s["answer"], f"{s['answer']} or so", "?", "(" * 70000], CFG)
    assert rewards.tolist() == [pytest.approx([1, part, 0, 0])]
    assert verifier.solved(rewards).tolist() == [[True, False, False, False]]
    assert faults == dict(verifier_timeouts=0, verifier_errors=1)


def test_a_verifier_that_fails_gives_an_error(pool):
    """An exception of the library gives the verdict ERROR and does not end the run."""
    p, = problems("prime_factorization")
    assert verdicts(p, "banana", p["answer"]) == [ERROR, 1]
    for entry in ("{}", json.dumps(dict(task="no_such", args={}, metadata={}, answer="1"))):
        assert pool.verify([(entry, "1")], 5) == [ERROR]


@named("task, text", CHEATS)
def test_wrong_answers_are_not_right(task, text, pool):
    for p in problems(task, 5):
        data, k = p["reasoning_gym"]["metadata"], p["answer"].count(",") + 1
        assert verdicts(p, f"<answer>{p['answer']}</answer>") == [1]
        target, numbers = data.get("target", 24), data.get("numbers")
        numbers = numbers if isinstance(numbers, list) else []
        if numbers and sorted(numbers) == sorted(map(int, re.findall(r"\d+", text))):
            continue  # the answer may be right
        answer = text.format(sum="+".join(map(str, numbers)), target=target,
                             xs="+".join("x" * min(target, 300)), nans=",".join(["NaN"] * k),
                             texts=",".join(['"nan"'] * k), escaped=",".join([r'"\u006ean"'] * k))
        assert verdicts(p, f"<answer>{answer}</answer>") != [1], (p, answer)


def test_puzzle24_needs_24_from_its_numbers(pool):
    """7*7/2*1 is 24.5, which the library would cut to 24, and the last answer uses 4 twice."""
    p, = problems("puzzle24")
    for numbers, answer, right in (([1, 2, 7, 7], "7*7/2*1", 0), ([1, 4, 6, 1], "4 * 6 / (1*1)", 1),
                                   ([1, 4, 6, 1], "(4*6)/1*1", 1), ([1, 4, 6, 1], "(6-1)*4+4", 0)):
        p["reasoning_gym"]["metadata"]["numbers"] = numbers
        assert (verdicts(p, f"<answer>{answer}</answer>") == [1]) == right, answer


HOSTILE = ["{open}", "[{open}]", "exec({chars})", "[exec({chars})]", "eval({chars})",
           "__import__('os').system('touch {place}')", "[__import__('os').system('touch {place}')]",
           "().__class__.__base__.__subclasses__()", "x.__class__", "lambdify(x, {open})",
           "sympify({chars})", "S({chars})", "9**9**9**9**9", "9" * 60000, "(" * 60000,
           "[" * 60000, "[[0]] * 10**12", "factorial(10**9)", "x!" * 20000, "((x+1)**9999)**9999",
           "\x00", "\ud800", "'" * 1000, "1/0", "log(0)", "oo - oo", "import os", "exit()", "quit"]


def test_hostile_answers(pool, tmp_path):
    """These tasks have verifiers that evaluate answers as Python. No hostile answer is executed, is
    right or takes longer than its limit. The next honest answer is graded."""
    place, limit = tmp_path / "pwned", 1.0
    open_ = f"open('{place}', 'w')"
    chars = "+".join(f"chr({ord(c)})" for c in open_)
    answers = [text.replace("{open}", open_).replace("{chars}", chars)
               .replace("{place}", str(place)) for text in HOSTILE] + [smuggled(f"exec({open_!r})")]
    for name in ("countdown", "puzzle24", "spiral_matrix", "binary_matrix", "n_queens",
                 "string_insertion", "simple_integration", "polynomial_multiplication"):
        p, = problems(name)
        own = f"<answer>{p['answer']}</answer>"
        assert verdicts(p, own) == [1], name
        process = pool.free.get()
        pool.free.put(process)
        for answer in answers:
            start = cpu(process.pid)
            verdict, = verdicts(p, f"<answer>{answer}</answer>", verify_s=limit)
            assert verdict != 1, (name, answer[:40])
            assert cpu(process.pid) - start < limit + 1, (name, answer[:40])
        assert verdicts(p, own) == [1], name
    assert not place.exists()


def wide(text):
    """Return a text in fullwidth letters, which Python reads as ASCII letters."""
    return "".join(chr(ord(c) + 0xFEE0) for c in text)


def smuggled(code):
    """Return a formula that runs `code` if Python evaluates the formula. The formula has no quotes,
    no dots before ASCII letters and no known words. bytes.fromhex makes the string of the code from
    names of symbols."""
    name, digits = wide("name"), re.findall(r"\d+[a-f]?|[a-f]", code.encode().hex())
    text = "(" + "+".join(f"é{part}.{name}" for part in digits) + ")"
    text += f".{wide('replace')}(é.{name},x.{name}.{wide('strip')}(x.{name}))"
    made = f"x.{name}.{wide('encode')}().{wide('fromhex')}({text}).{wide('decode')}()"
    return f"x.{wide('diff')}({made})"


def test_only_formulas_are_evaluated(tmp_path):
    """`tame` refuses all texts but formulas of numbers, letters and functions."""
    place = tmp_path / "pwned"
    texts = [smuggled(f"exec('open(%r,chr(119))' % {str(place)!r})"), "x.diff(x)", "x . diff(x)",
             "x.\ndiff(x)", "é", "２", "sympify(1)", "__import__(1)", "x[0]", "'1'", "x:=1"]
    run = """
import json, sys, sympy
from core import sandbox
before = sympy.parse_expr
sandbox.library("reasoning_gym").load()
if sys.argv[1] == "untamed":
    sympy.parse_expr = before
for text in json.loads(sys.argv[2]):
    try:
        sympy.parse_expr(text)
    except ValueError as e:
        print("refused" if "not a formula" in str(e) else e)
    except Exception:
        print("evaluated")
"""
    for how in ("tamed", "untamed"):
        done = capture([PYTHON, "-c", run, how, json.dumps(texts)])
        count = done.stdout.count("refused")
        assert done.returncode == 0 and count == (len(texts) if how == "tamed" else 0), done
        assert place.exists() == (how == "untamed")  # without `tame` the attack succeeds


@named("code", ["os.rmdir(p + 'd')", "os.remove(p + 'f')", "os.system('true')", "os.fork()",
                "os.rename(p + 'f', p)", "open(p + 'f', 'w')", "open(p + 'g', 'a')",
                "os.open(p + 'g', os.O_CREAT)", "os.truncate(p + 'f', 0)", "os.kill(1, 0)",
                "__import__('subprocess').run(['true'])", "__import__('shutil').rmtree(p)",
                "__import__('socket').socket()", "__import__('ctypes').CDLL(None)",
                "__import__('sqlite3').connect(p + 'g')"])
def test_confine(code, tmp_path):
    """Even if an answer is executed as Python, it can change no file and start no program."""
    (tmp_path / "d").mkdir()
    (tmp_path / "f").write_text("here")
    run = f"""
import os, sys
from core import sandbox
p = sys.argv[1] + "/"
assert open(p + "f").read() == "here"
sys.addaudithook(sandbox.confine)
assert open(p + "f").read() == "here" and os.listdir(p)
try:
    {code}
except PermissionError as e:
    print(e)
"""
    done = capture([PYTHON, "-c", run, tmp_path])
    assert done.stdout.endswith(" in a verifier\n"), done
    assert (tmp_path / "d").is_dir() and (tmp_path / "f").read_text() == "here"
    assert not (tmp_path / "g").exists()


def test_confine_is_active_in_the_pool(tmp_path):
    pool, answer = Naive("math", 1), f"import os; os.rmdir({str(tmp_path)!r})"
    assert pool.verify([("", "1 + 1"), ("", answer), ("", "2 + 2")], 5) == [1, ERROR, 1]
    assert tmp_path.exists()
    close(pool)


def test_a_problem_without_the_field_is_refused():
    with pytest.raises(BadInput, match="problem p7: has no field reasoning_gym"):
        sandbox.library("reasoning_gym").gold(dict(id="p7", prompt="?", answer="1"))


# ---- prepare.py ----------------------------------------------------------------------------------

def test_prepare(tmp_path):
    """Problems are distinct and depend only on the seed. A second call does nothing."""
    def prepare(folder, *words):
        return run_script(SCRIPT, f"--data={tmp_path / folder}", "--n_val=5", "--task=chain_sum",
                          '--task_args={"max_terms": 3}', "--size=40", *words)
    for folder in ("a", "b"):
        done = prepare(folder)
        assert done.code == 0 and "40 problems, and 5 in val.jsonl" in done.stdout, done
    assert tree(tmp_path / "a") == tree(tmp_path / "b")
    read = [sample.read_problems(tmp_path / "a" / f"{name}.jsonl") for name in ("problems", "val")]
    assert [len(part) for part in read] == [40, 5]
    both = read[0] + read[1]
    assert len({p["prompt"] for p in both}) == len({p["id"] for p in both}) == 45
    assert all(p["reasoning_gym"]["metadata"]["num_terms"] <= 3 for p in both)
    done = prepare("a")
    assert done.code == 0 and "nothing to do" in done.stdout
    refused(prepare("a", "--seed=1"), "--seed=1", "was made with seed=0")
    assert prepare("c", "--seed=1").code == 0
    other = {p["prompt"] for p in sample.read_problems(tmp_path / "c/problems.jsonl")}
    assert len(other - {p["prompt"] for p in both}) > 30


def test_a_task_that_has_few_problems(script, pool, tmp_path, capsys):
    """If a task has few problems, each is written once, and a line gives their number."""
    script.main([f"--data={tmp_path}", "--task=gcd", "--size=500", "--n_val=5",
              '--task_args={"max_value": 6, "max_numbers": 2}'])
    made = sample.read_problems(tmp_path / "problems.jsonl")
    assert len(made) < 100 and f"{len(made) + 5} of 505 problems" in capsys.readouterr().err


@named("words, says", [(["--task=countdwn"], "--task=countdwn: .* the nearest is countdown"),
    ([], "--task=: expected one of .*countdown"), (["--task=composite"], "expected one of"),
    (["--task=coin_flip"], "expected one of"),
    (["--task=gcd", "--task_args=" + "[" * 10**5], "expected a JSON object"),
    (["--task=gcd", "--task_args={1}"], "--task_args=.1.: expected a JSON object"),
    (["--task=gcd", "--task_args=3"], "--task_args=3: .* must be a mapping, not int"),
    (["--task=gcd", '--task_args={"seed": 3}'], "multiple values for keyword argument 'seed'"),
    (["--task=chain_sum", '--task_args={"min_term": 2}'], "unexpected keyword argument 'min_term'"),
    (["--task=chain_sum", '--task_args={"min_terms": 0}'], "min_terms must be positive"),
    (["--task=chain_sum", '--task_args={"min_terms": "two"}'], "reasoning-gym refuses"),
    (["--task=rearc"], "its verifier grades none of 25 problems"),
    (["--task=gcd", '--task_args={"max_value": 2, "max_numbers": 2}'], "there are only")], ids=str)
def test_bad_input_is_one_line(words, says, script, pool, tmp_path):
    with pytest.raises(BadInput, match=says) as e:
        script.main([f"--data={tmp_path / 'x'}", "--n_val=5", "--size=20", *words])
    assert "\n" not in str(e.value) and not (tmp_path / "x").exists()


def test_the_library_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "reasoning_gym.factory", None)
    with pytest.raises(BadInput, match="reasoning-gym is not installed.*pip install"):
        gym.tasks()


# ---- Other stages --------------------------------------------------------------------------------

def test_begin(tiny, tmp_path):
    """A problem's `begin` follows the prompt, changes the problem's hash and must be a string."""
    tokenizer = engine.load_tokenizer(tiny.model)
    plain = sample.read_problems(tiny.train)[:2]
    begun = [dict(p, begin="12") for p in plain]
    tokenizer.chat_template = ("{{ messages[0]['content'] }}"
                               "{% if add_generation_prompt %}={% endif %}")
    ids, more = sample.tokenize(plain, tokenizer), sample.tokenize(begun, tokenizer)
    assert [b[:len(a)] for a, b in zip(ids, more)] == ids
    assert {tokenizer.decode(b[len(a):]).replace(" ", "") for a, b in zip(ids, more)} == {"12"}
    assert sample.set_hash(plain) == sample.set_hash([dict(p, begin="") for p in plain])
    assert sample.set_hash(plain) != sample.set_hash(begun)
    blank = [dict(plain[0], begin="\n"), dict(plain[1], begin="")]
    sample.write_problems(tmp_path / "p.jsonl", blank)
    assert [p["begin"] for p in sample.read_problems(tmp_path / "p.jsonl")] == ["\n", ""]
    (tmp_path / "p.jsonl").write_text('{"id": 1, "prompt": "a", "answer": "b", "begin": 3}\n')
    with pytest.raises(BadInput, match="p.jsonl:1: begin=3: expected a string"):
        sample.read_problems(tmp_path / "p.jsonl")
