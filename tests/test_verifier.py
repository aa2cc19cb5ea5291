"""The verifier: known verdicts on pairs, rewards of a user, hostile answers, killed processes."""
import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import verifier
from conftest import PATIENCE, ROOT, wait_for
from config import BadInput
from core import math_answers, sandbox
from core.sandbox import ERROR, TIMEOUT


def read_pairs(path):
    """Return [(gold, answer, whether it is right), ...] of a file such as tests/pairs.txt."""
    pairs = []
    for line in path.read_text().splitlines():
        if not line.startswith("# "):
            gold, *rest = (" " + line).replace(" == ", "\0=").replace(" != ", "\0!").split("\0")
            pairs += [(gold.strip(), word[1:], word[0] == "=") for word in rest]
    return pairs


PAIRS = read_pairs(ROOT / "tests/pairs.txt")

# Cases in which a mathematician disagrees with the verifier; docs/problems.md lists them.
# {limit: [(gold, answer, the mathematician's verdict), ...]}
LIMITS = {
    "Decimals are compared to six places, below 0.001 to six digits": [
        (r"\frac{1}{3}", "0.333333", False), (r"\pi", "3.1415926535", False)],
    "Units, percent signs and bases are dropped, not compared or converted; a colon divides": [
        (r"5\text{ cm}", r"5\text{ m}", False), (r"5\text{ cm}", r"50\text{ mm}", True),
        ("9", r"9\%", False),
        ("101_2", "101_3", False), ("3:30", "7:70", False)],
    "Order counts only if both sides are ordered": [
        ("(1,2)", r"\{1,2\}", False), ("(1,2,3)", r"\{1,2,3\}", False)],
    "Inequalities are not transformed": [("1<x<2", "2>x>1", True), ("2x>4", "x>2", True)],
    "The case of letters and primes are dropped": [
        ("N^2", "n^2", False), ("E", "e", False), ("f'(x)=2x", "f(x)=2x", False)]}

CFG = dict(verify_s=20.0, verify_bytes=1024)


def check_math(pairs, cfg):
    """Return the verdicts of sandbox.check on [(gold, text that a model wrote), ...]."""
    return sandbox.check("math", [(dict(answer=gold), text) for gold, text in pairs], cfg)


def box(answer):
    return rf"So the answer is $\boxed{{{answer}}}$."


def stat(pid):
    """Return the fields of /proc/PID/stat from the state on."""
    return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()


def processes():
    """Return {pid: (parent, session, state)} of this machine."""
    table = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            state, parent, _, session = stat(name)[:4]
            table[int(name)] = int(parent), int(session), state
    return table


def children(pid):
    return [child for child, (parent, _, state) in processes().items() if parent == pid
            and state != "Z"]


def cpu(pid):
    """Return the CPU seconds of a process and of all its children, also of dead children."""
    ticks = sum(int(field) for one in [pid, *children(pid)] for field in stat(one)[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def memory(pid, field):
    """Return the bytes of a field of /proc/PID/status; 0 if the process is gone."""
    try:
        return 1024 * int(next(line.split()[1]
                               for line in open(f"/proc/{pid}/status") if line.startswith(field)))
    except (OSError, StopIteration):
        return 0


def close(pool):
    pool.threads.shutdown(cancel_futures=True)
    while not pool.free.empty():
        pool.end(pool.free.get())


@pytest.fixture(scope="module")
def shared():
    pool = sandbox.Pool("math", 1)
    yield pool
    close(pool)


@pytest.fixture
def one(shared, monkeypatch):
    """Replace sandbox.pool by one Pool of one process, which all tests share."""
    monkeypatch.setattr(sandbox, "pool", lambda kind: shared)
    return shared


@pytest.fixture
def make_pool(monkeypatch):
    """Return make_pool(workers), which replaces sandbox.pool by a Pool that has graded answers."""
    pools = []

    def make(workers):
        pool = sandbox.Pool("math", workers)
        pools.append(pool)
        monkeypatch.setattr(sandbox, "pool", lambda kind: pool)
        warm = check_math([(str(i), box(i)) for i in range(20 * workers)], CFG)
        assert set(warm) == {1}
        return pool
    yield make
    for pool in pools:
        close(pool)


def servers(pool):
    """Return the processes of an idle pool."""
    processes = [pool.free.get(timeout=PATIENCE) for _ in range(pool.threads._max_workers)]
    for process in processes:
        pool.free.put(process)
    return processes


# ---- Known verdicts ------------------------------------------------------------------------------

def test_known_verdicts(one):
    """Each verdict is as in tests/pairs.txt, and each gold equals itself. None is an error."""
    assert len(PAIRS) > 1300 and len(set(PAIRS)) == len(PAIRS)
    pairs = list(dict.fromkeys(PAIRS + [(gold, gold, True) for gold, *_ in PAIRS]))
    verdicts = check_math([(gold, box(answer)) for gold, answer, _ in pairs], CFG)
    assert not [(*pair, verdict) for pair, verdict in zip(pairs, verdicts) if verdict != pair[2]]


@pytest.mark.parametrize("kind", LIMITS)
def test_limits_are_those_of_the_library(kind, one):
    """math-verify with its defaults gives the same wrong verdict."""
    from math_verify import parse, verify
    for gold, answer, true in LIMITS[kind]:
        assert verify(parse(f"${gold}$"), parse(f"${answer}$")) is not true
        assert check_math([(gold, box(answer))], CFG) == [not true]


def test_equal_pairs_are_graded_once(one, monkeypatch):
    asked, ask = [], one.ask
    monkeypatch.setattr(one, "ask", lambda *words: asked.append(words) or ask(*words))
    pairs = [("1", box("1")), ("1", box("2")), ("1", "so " + box("1")), ("2", box("2"))]
    assert check_math(pairs + pairs[:2], CFG) == [1, 0, 1, 1, 1, 0]
    assert sorted(asked) == [("1", "1", 20.0), ("1", "2", 20.0), ("2", "2", 20.0)]


def test_workers_and_order_change_no_verdict(make_pool):
    golds, answers, true = map(list, zip(*PAIRS[::6]))
    pairs = list(zip(golds, map(box, answers)))
    for workers in 1, 3:
        make_pool(workers)
        assert check_math(pairs, CFG) == check_math(pairs[::-1], CFG)[::-1] == true


# ---- What is graded: the last box after any thinking ---------------------------------------------

@pytest.mark.parametrize("text, answer", [
    (r"\boxed{1} or \boxed{2}", "2"), (r"\boxed {3}", "3"), ("\\boxed\n{3}", "3"),
    (r"$\boxed{ x }$.", "x"), (r"\boxed{\boxed{4}}", "4"), (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
    (r"\boxed{\{1,2\}} }", r"\{1,2\}"),
    (r"\boxed{\left\{ x \right.}", r"\left\{ x \right."), (r"\boxed{a\\}", r"a\\"),
    (r"\boxed{\text{a}b} \text{c}", r"\text{a}b"),
    ("", ""), ("42", ""), (r"\boxed{}", ""), (r"\boxed{ }", ""), (r"\boxed 5", ""),
    (r"\fbox{5}", ""), (r"\boxed{5", ""),
    (r"\boxed{5} \boxed{6", ""), (r"\boxed{5\}", ""), (r"\boxed", ""), (r"\boxed{1}\boxed{}", "1"),
    (r"<think>\boxed{1}</think>", ""), (r"<think>\boxed{1}</think> \boxed{2}", "2"),
    (r"\boxed{2} <think>\boxed{1}</think>", ""),
    (r"<think>\boxed{1}", ""), (r"\boxed{1}</think>\boxed{2}", "2"), (r"\boxed{1}</think>", ""),
    (r"<think></think>\boxed{2}<think>\boxed{1}", ""),
    (r"<think>a</think>\boxed{1}<think>b</think>\boxed{2}", "2"),
    (r"<think>a</think>\boxed{1}<think>b</think>no", "")])
def test_boxed(text, answer):
    assert math_answers.answer(text) == answer


def test_answers_over_verify_bytes_are_errors(one):
    """The limit counts bytes of UTF-8, without blanks around the answer."""
    cfg = CFG | dict(verify_bytes=10)
    for answer, verdict in [("1" * 10, 1), ("1" * 11, ERROR),
                            ("é" * 5, 1), ("é" * 5 + "1", ERROR), ("é" * 6, ERROR),
                            ("∞" * 3, 1), ("∞" * 4, ERROR),
                            ("1" * 10 ** 6, ERROR), ("\U0001d7d9" * 3, ERROR)]:
        assert check_math([(answer, box(answer))], cfg) == [verdict], answer[:20]
    assert check_math([("1", r"\boxed{1" + " " * 30), ("1", r"\boxed{1")], cfg) == [ERROR, 0]


@pytest.mark.parametrize("piece", ["a", " ", "{", "}", "\\", r"\boxed", r"\boxed{", r"\boxed{}",
                                   r"\boxed   ", "<think>", "</think>", "\\{", "é"])
def test_boxed_is_linear(piece):
    """A text of twice the size takes about twice the time."""
    def best(text):
        times = []
        for _ in range(3):
            start = time.process_time()
            math_answers.answer(text, 65536)
            times.append(time.process_time() - start)
        return min(times)
    for text in (lambda n: piece * (n // len(piece)),
                 lambda n: r"\boxed{" + piece * (n // len(piece)),
                 lambda n: piece * (n // len(piece)) + r"\boxed{5}"):
        assert best(text(1_000_000)) < 4 * best(text(500_000)) + 0.02


def grade(problems, texts, cfg, tokenizer=None):
    """Return what verifier.grade returns for the texts of n rollouts per problem."""
    # rollout i is the one token i, which stands for texts[i]
    tokenizer = SimpleNamespace(
        chat_template=getattr(tokenizer, "chat_template", None), all_special_ids=[],
        apply_chat_template=getattr(tokenizer, "apply_chat_template", None),
        added_tokens_encoder={}, added_tokens_decoder={},
        batch_decode=lambda rows: [texts[row[0]] for row in rows])
    rollouts = dict(tokens=torch.arange(len(texts))[:, None],
                    length=torch.ones(len(texts), dtype=torch.long))
    return verifier.grade(problems, rollouts, tokenizer, cfg)


def test_grade_counts_timeouts_and_errors(one):
    """Rewards are (P, n) in order. Equal answers are graded once, but each rollout is counted."""
    slow = box("9^{9^{9^{9^9}}}+x")
    texts = [box("5"), slow, box("1" * 2000), "5", box("5"), slow, r"<think>\boxed{5}",
             r"<think>5</think> \boxed{x=5}"]
    rewards, faults = grade([dict(answer="5"), dict(answer="5")], texts,
                            dict(verifier="math", verify_s=1.0, verify_bytes=1024))
    assert rewards.tolist() == [[1, 0, 0, 0], [1, 0, 0, 1]] and rewards.dtype == torch.float32
    assert faults == dict(verifier_timeouts=2, verifier_errors=1)


def test_a_template_that_opens_the_thinking(prepare, one):
    """If the chat template writes <think>, a response that does not close it has no answer."""
    tokenizer = prepare.make_tokenizer()
    assert not verifier.opens_thinking(tokenizer)
    turns = "{% for m in messages %}{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}"
    opened = {"A:": False, "A:<think></think>": False, "A:{# it may write <think> #}": False,
              "A:</think><think>": True, "A:<think>": True}
    for end, opens in opened.items():
        tokenizer.chat_template = turns + end + "{% endif %}"
        assert verifier.opens_thinking(tokenizer) == opens
    texts = [r"\boxed{5}", r"\boxed{4}</think>\boxed{5}", r"\boxed{5}</think>"]
    problems = [dict(answer="5"), dict(answer="5", begin="Easy.</think>")]
    rewards, _ = grade(problems, texts * 2, CFG | dict(verifier="math"), tokenizer)
    assert rewards.tolist() == [[0, 1, 0], [1, 1, 0]]


# ---- A new reward --------------------------------------------------------------------------------

def graded(monkeypatch, reward, texts, answers=("5", "6")):
    """Return `grade` of texts with --verifier=mine and this reward function."""
    monkeypatch.setitem(verifier.REWARDS, "mine", reward)
    problems = [dict(id=f"p{i}", prompt="?", answer=a) for i, a in enumerate(answers)]
    return grade(problems, texts, CFG | dict(verifier="mine"))


def test_a_reward_for_a_format(monkeypatch, one):
    """The reward is 0.1 for the format and 0.9 for the answer, by math-verify. Only reward 1 counts
    as solved."""
    def mine(problem, text, cfg):
        assert cfg["verify_bytes"] == 1024
        return np.float32(0.1 * ("#" in text) + 0.9 * verifier.math_reward(problem, text, cfg))
    texts = ["# " + box("10/2"), "# " + box("6"), r"\boxed{5", "#5", "# " + box("6"), box("6")]
    rewards, faults = graded(monkeypatch, mine, texts)
    assert rewards.flatten().tolist() == pytest.approx([1, 0.1, 0, 0.1, 1, 0.9])
    assert verifier.solved(rewards).tolist() == [[True, False, False], [False, True, False]]
    assert faults == dict(verifier_timeouts=0, verifier_errors=0)
    # exact takes the text after the last #
    answers = ("#6 #5", "#6", "5", " # 5\n", "#5 # 6")
    assert [verifier.exact(dict(answer="5 "), a, CFG) for a in answers] == [1, 0, 0, 1, 0]


def test_a_reward_that_fails_is_named(monkeypatch):
    """One line has the problem's id, the file and the line of the function."""
    def broken(problem, text, cfg):
        return {}[text]
    monkeypatch.setitem(verifier.REWARDS, "exact", broken)
    line = broken.__code__.co_firstlineno + 1
    with pytest.raises(BadInput, match=f"problem p7, .*test_verifier.py:{line}: KeyError: 'x'"):
        grade([dict(id="p7", answer="1")], ["x"], dict(verifier="exact"))


def test_thinking_that_is_special_tokens_is_kept(monkeypatch):
    tokenizer = SimpleNamespace(
        chat_template=None, all_special_ids=[1, 2, 3],
        added_tokens_encoder={"<think>": 1, "</think>": 2, "</s>": 3, "<end_of_turn>": 4},
        # Gemma 3's end of a turn is special, but none of the named special tokens
        added_tokens_decoder={4: SimpleNamespace(special=True), 5: SimpleNamespace(special=False)},
        batch_decode=lambda rows: [" ".join(f"t{i}" for i in row) for row in rows])
    seen = []
    monkeypatch.setitem(verifier.REWARDS, "exact", lambda p, text, cfg: seen.append(text) or 1.0)
    rollouts = dict(tokens=torch.tensor([[5, 2, 6, 3, 4, 0]]), length=torch.tensor([5]))
    verifier.grade([dict(id=1)], rollouts, tokenizer, dict(verifier="exact"))
    assert seen == ["t5 t2 t6"]


@pytest.mark.parametrize("value", [-0.1, 1.1, 2, float("nan"), float("inf"), None, "1", [1]])
def test_a_reward_outside_of_0_to_1_is_refused(monkeypatch, value):
    """The error is one line that names the verifier, the problem and the value."""
    def mine(problem, text, cfg):
        return value if problem["id"] == "p1" else True
    with pytest.raises(BadInput) as refused:
        graded(monkeypatch, mine, ["a", "b"])
    line = str(refused.value)
    assert line.startswith("--verifier=mine: gave problem p1 the reward ") and "\n" not in line
    assert repr(value) in line and "from 0 to 1" in line


# ---- Hostile answers -----------------------------------------------------------------------------

# the file that the code in CODE would create
PLACE = os.path.join(tempfile.gettempdir(), f"isocompute-{os.getpid()}")

# (left, middle, right, number of repetitions): left * n + middle + right * n
NESTED = [(left, "1", right, 3000) for left, right in [
    ("{", "}"), ("(", ")"), (r"\left(", r"\right)"), (r"\{", r"\}"), ("|", "|"), (r"\sqrt{", "}"),
    (r"\frac{1}{", "}"), (r"\sin(", ")"), ("-", ""), (r"\text{", "}"), ("x_{", "}"), ("(1,", ")"),
    (r"\overline{", "}"), (r"\lfloor ", r"\rfloor ")]] + [
    (base + "^{", base, "}", n) for base, n in (("9", 3), ("x", 6), (r"\pi", 40), ("(-2)", 6))] + [
    (left, r"\pi^{999}", right, 12) for left, right in [
        (r"\lfloor ", r"\rfloor "), ("|x-", "|"), (r"\max(x,", ")"), (r"x \bmod (", ")")]] + [
    (r"1+\frac{1}{", "x", "}", 200), ("1/(1+", "x", ")", 3000), (r"\sqrt{1+", "x", "}", 20),
    ("(", "7", ")!", 9), (r"\boxed{", "79", "}", 2000), (r"\text{\boxed{", "79", "}}", 50)]

# pieces that `attacks` repeats; most are unbalanced, or aim at math-verify's regular expressions
PIECES = [r"{", r"}", r"(", r"]", r"\{", r"\left(", r"\right)", r"\[", r"\begin{pmatrix}",
          r"\end{pmatrix}", r"\frac{", r"\sqrt[", "|", "$", "&", r"\\", "^", "_", "1", " ", "\\",
          r"\boxed{", r"\frac", "1,", "é", "\n", "1 and ", "((", "$1$ and ", r"\(1\),",
          "answer is final answer is ", r"\frac{1}{1}", "1.1.1", r"\text{and}", "percent", "infinf",
          "sqrt(", r"\pm 1", "{gold}", "%s%s%n", "\\g<0>"]

# [(function of n that returns a text, values of n), ...]
GROWING = [(text, sizes) for sizes, texts in [
    ((7, 300), [lambda n: f"7^{{{'9' * n}}}", lambda n: f"1.000001^{{{'9' * n}}}",
                lambda n: f"(x+1)^{{{'9' * n}}}-(1+x)^{{{'9' * n}}}",
                lambda n: rf"\binom{{n+{'9' * n}}}{{{'4' * n}}}"]),
    ((4000, 60_000), [lambda n: "7" * n, lambda n: ",".join(["777"] * (n // 4)),
                      lambda n: rf"0.\overline{{{'7' * n}}}", lambda n: f"1e{'9' * n}"]),
    ((30, 2000), [lambda n: r"\{" + join(",", n, r"\sqrt{{{i}}}") + r"\}",
                  lambda n: join(r"\cup", n, "[{i},{i}.5]"),
                  lambda n: r"\begin{cases}" + join(r"\\", n, "{i} & x>{i}") + r"\end{cases}",
                  lambda n: join("<", n, "x_{{{i}}}"), lambda n: join("=", n, "x^{{{i}}}"),
                  lambda n: join("+", n, "{i}x^{{{i}}}"), lambda n: join("", n, "(x-{i})"),
                  lambda n: f"({join('+', n, 'x_{{{i}}}')})^{{30}}"]),
    ((3, 7), [lambda n: join("+", n, r"\sqrt{{{i}+\sqrt{{{i}2}}}}") + "-" + join(
                  "-", n, r"\sqrt{{{i}+\sqrt{{{i}2}}}}"),
              lambda n: rf"\sin^{{{3 * n}}} x\cos^{{{3 * n}}} y+\tan({n}x)\cot({n}y)",
              lambda n: join("+", n, r"\log_{{{i}}}(x^{{{i}}}+{i})")])] for text in texts]

# texts that are used unchanged, separated by | and line ends
CODE = """__import__('os').system('touch {p}')|open('{p}','w')|exec('open("{p}","w")')
().__class__.__bases__[0]|[open('{p}','w') for _ in [1]]|__builtins__|sympify('open("{p}","w")')
x.__init__.__globals__|eval(compile('1','','eval'))|S('__import__("os").system("touch {p}")')
$(touch {p})|`touch {p}`|\\write18{touch {p}}|\\input{{p}}|\\openout1={p}|\\directlua{os.exit()}
\\def\\x{\\x\\x}\\x|\\loop\\iftrue\\repeat|\\begin{verbatim}}\\end{verbatim}|\\catcode`\\{=12
(?P<first_latexBoxed>7)"""
CALCULUS = r"""\int_0^{\infty} \frac{\sin(x^2)e^{-x}}{x^5+1} dx|\int e^{e^{e^x}} dx|9!!!!!!!!!
\int_0^1\int_0^1\int_0^1 \frac{1}{1-xyz} dxdydz|99999999!|0.1^{0.1^{0.1^{0.1}}}|9^{9^{9^{9^{9^9}}}}
\lim_{x\to\infty} (\sin x)^{x!}|\lim_{n\to\infty}\sum_{k=1}^{n}\frac{1}{k^k}
\frac{d}{dx} x^{x^{x^{x^{x^x}}}}|\frac{d^{50}}{dx^{50}} e^{\sin(x^2)}"""
SERIES = [operator + term for operator, term in itertools.product(
    [r"\sum_{n=1}^{\infty}", r"\prod_{n=1}^{\infty}", r"\sum_{n=1}^{10^9}\sum_{m=1}^{n}"],
    [r"\frac{(-1)^n}{\ln(n+1)}", r"\sin(n^2)", "n^{n}"])]
# look-alike digits and signs, control characters, halves of surrogate pairs
CHARACTERS = ["".join(chr(zero + int(digit)) for digit in "7919")
              for zero in (0x660, 0x966, 0x1d7ce, 0x1d7d8, 0x2070)]
CHARACTERS += ["х+1", "Ⅻ", "−7919", "7919∕2", "⑦⑨", "7919✕1", "\U000e0037\U000e0039", "\ud800",
               "\udc00\ud800", "\ud835" * 400, "79\udfff19"]
CHARACTERS += [chr(code).join("7919") for code in (
    0x202e, 0x2066, 0xad, 0x2028, 0x85, 0xa0, 0x300, 0xfffe, *range(0, 32, 3), 127, 0x9b)]
# attacks on the lines and messages between the processes
PROTOCOL = ['"]\n[1, 9, "7", "7"]', "\n\n\n", '\n[0, 3.0, "1", "1"]\n', '", "7"]', '\\"', "\\u0000",
            "01", "\xff1\xff1", "\x001", "null", "[]", "\udcff1", "\r\n1", "\x04", "NaN"]
GOLDS = ["7919", r"\frac{7919}{7907}", "x^2+7919x", r"\{7919,7907\}", "[7907,7919]",
         r"\begin{pmatrix}7919&1\\0&1\end{pmatrix}", r"\sqrt{7919}", "x=7919", "(7919,7907,1)",
         "x>7919"]
LIMIT, SLACK = 0.2, 1.0  # limit of CPU seconds per answer; CPU seconds to start a process


def join(separator, n, form):
    """Return `form` for i = 2 to n + 1, joined."""
    return separator.join(form.format(i=i) for i in range(2, n + 2))


def matrices():
    for n, element in [(40, "1"), (4, "x_{%d}"), (40, r"\sqrt{%d}")]:
        cells = r"\\".join("&".join(element.replace("%d", str(i * n + j)) for j in range(n))
                           for i in range(n))
        matrix = rf"\begin{{pmatrix}}{cells}\end{{pmatrix}}"
        yield from (matrix, rf"\det{matrix}", f"{matrix}^{{999}}")


def attacks():
    texts = [left * n + middle + right * n for left, middle, right, n in NESTED]
    for piece in PIECES:
        texts += ["12" + piece * 150, "3" + piece * (60_000 // len(piece.encode()))]
    texts += ["3" + piece * 700_000 for piece in PIECES[::4]]
    texts += [text(n) for text, sizes in GROWING for n in sizes]
    texts += CODE.replace("{p}", PLACE).replace("\n", "|").split("|")
    texts += CALCULUS.replace("\n", "|").split("|")
    texts += [*SERIES, *CHARACTERS, *matrices(), *PROTOCOL, "=".join(["x"] * 999)]
    return list(dict.fromkeys(texts))


def test_hostile_answers(make_pool, monkeypatch):
    """No hostile answer is right, and each ends within its limit. The pool keeps its processes, and
    its memory is below the limit. Honest answers that are graded in between get their known
    verdicts."""
    pool = make_pool(2)
    hostile = [(random.Random(i).choice(GOLDS), rf"\boxed{{{answer}}}")
               for i, answer in enumerate(attacks())]
    assert len(hostile) > 200
    before = {process.pid for process in servers(pool)}
    took, peak, done = {}, {}, threading.Event()
    exchange = pool.exchange

    def timed(process, *words):
        start = cpu(process.pid)
        verdict = exchange(process, *words)
        took[words] = cpu(process.pid) - start
        return verdict

    def watch():
        while not done.wait(0.1):
            for pid in before | {pid for pid, (parent, *_) in processes().items()
                                 if parent in before}:
                peak[pid] = max(peak.get(pid, 0), memory(pid, "VmPeak:"))
    monkeypatch.setattr(pool, "exchange", timed)
    rss = memory("self", "VmRSS:")
    watcher = threading.Thread(target=watch)
    watcher.start()
    verdicts, kept = [], []
    try:
        for i in range(0, len(hostile), 10):
            verdicts += check_math(hostile[i:i + 10], dict(verify_s=LIMIT, verify_bytes=65536))
            honest = PAIRS[2 * i // 5:2 * i // 5 + 4]
            graded = check_math([(gold, box(answer)) for gold, answer, _ in honest], CFG)
            kept += [verdict == right for verdict, (*_, right) in zip(graded, honest)]
    finally:
        done.set(), watcher.join()
    assert all(kept) and len(kept) > 80
    assert not [pair for pair, verdict in zip(hostile, verdicts) if verdict == 1]
    assert not [(words, seconds) for words, seconds in took.items() if words[0] == LIMIT
                and seconds > LIMIT + SLACK]
    assert max(took.values()) > LIMIT / 2
    assert {0, TIMEOUT, ERROR} <= set(verdicts)
    assert {process.pid for process in servers(pool)} == before
    assert all(len(children(pid)) == 1 for pid in before)
    assert len(peak) > 4 and max(peak.values()) <= sandbox.Pool.MEMORY
    assert memory("self", "VmRSS:") - rss < 64 * 2 ** 20

    long = [(gold, text) for gold, text in hostile if len(text.encode(errors="replace")) > 1024
            + len(r"\boxed{}")]
    bare = [(gold, text[len(r"\boxed{"):-1]) for gold, text in hostile]
    assert len(long) > 50
    assert 1 not in check_math(long + bare, dict(verify_s=LIMIT, verify_bytes=1024))
    assert not os.path.exists(PLACE)


# ---- Processes that die --------------------------------------------------------------------------

HANGS = "9^{9^{9^{9^9}}}+x"  # hangs in the C code for an integer power


def busy(pool):
    """Start an answer that hangs. Return the thread and a list for its verdict."""
    verdicts, server = [], servers(pool)[0].pid
    thread = threading.Thread(
        target=lambda: verdicts.extend(pool.verify([("7919", HANGS)], 2 * PATIENCE)))
    before = cpu(server)
    thread.start()
    wait_for(lambda: cpu(server) > before + 0.1)  # until the child computes the power
    return thread, verdicts


def test_a_limit_ends_with_its_answer(one):
    """A process that answered in time is not killed by the limit of that answer later."""
    assert one.verify([("5", "5")], 0.5) == [1]
    (process,) = servers(one)
    before = children(process.pid)
    time.sleep(1)
    assert children(process.pid) == before


PYTHON = """
import types
from core import sandbox
sandbox.Pool.CLOCK = 16
def score(gold, answer):
    names = {}
    exec(answer, names)
    return names.get("score", 1)
sandbox.library = lambda kind: types.SimpleNamespace(load=lambda: score)
sandbox.serve("math")"""


class Naive(sandbox.Pool):
    """A pool whose library runs answers as Python, which may set `score`."""

    def start(self):
        return subprocess.Popen([sys.executable, "-c", PYTHON], cwd=ROOT, bufsize=0,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                start_new_session=True)


def test_the_limit_counts_cpu_time():
    """An answer that waits, as on a busy machine, is graded, unless it waits for CLOCK times the
    limit. An answer that computes for longer than the limit is killed."""
    pool = Naive("math", 1)
    waits, works, never = "time.sleep(0.5)", "while True: pass", "time.sleep(999)"
    answers = [("", f"import time\n{text}") for text in (waits, works, never, "1")]
    assert pool.verify(answers, 0.25) == [1, TIMEOUT, TIMEOUT, 1]
    close(pool)


@pytest.mark.parametrize("who", ["child", "server", "both"])
def test_killed_at_work(who, make_pool):
    """If a process is killed while it grades, the verdict is ERROR long before the limit. The next
    verdicts are right, and no file descriptor or zombie process is left."""
    pool = make_pool(1)
    fds = len(os.listdir("/proc/self/fd"))
    (process,) = servers(pool)
    (child,) = children(process.pid)
    thread, verdicts = busy(pool)
    for pid in dict(child=[child], server=[process.pid], both=[child, process.pid])[who]:
        os.kill(pid, signal.SIGKILL)
    thread.join(PATIENCE)
    assert verdicts == [ERROR]
    assert pool.verify([("5", "5"), ("5", "6")], 20) == [1, 0]
    assert len(os.listdir("/proc/self/fd")) == fds
    assert (os.getpid(), "Z") not in [(up, state) for up, _, state in processes().values()]


@pytest.mark.parametrize("answer, stop_child", [("7919", True), (HANGS, False),
                                                ("5" * 10 ** 6, True)])
def test_stopped_processes_are_killed(answer, stop_child, make_pool, monkeypatch):
    """If neither the kernel's timer nor the server ends an answer, the pool ends it after GRACE. An
    answer that is larger than a pipe does not block the pool if nobody reads it."""
    monkeypatch.setattr(sandbox.Pool, "GRACE", 0.5)
    monkeypatch.setattr(sandbox.Pool, "CLOCK", 2)
    pool = make_pool(1)
    (process,) = servers(pool)
    for pid in [process.pid, *children(process.pid) * stop_child]:
        os.kill(pid, signal.SIGSTOP)
    assert pool.verify([("7919", answer)], 0.5) == [ERROR]
    assert process.returncode == -signal.SIGKILL
    assert pool.verify([("5", "5" + " " * 10 ** 6), ("5", "6")], 20) == [1, 0]


def run_parent(before="", after=""):
    """Start a process that runs `before`, grades three answers and runs `after`."""
    code = f"""
import os, signal, sys, threading, time
from core import sandbox
{before}
pool = sandbox.Pool("math", 2)
print(*pool.verify([("5", "5"), ("5", "6"), ("7919", "{HANGS}")], 1.0), sep="\\n", flush=True)
{after}
"""
    return subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("before", [
    "signal.signal(signal.SIGALRM, signal.SIG_IGN); signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM, signal.SIGCHLD])"])
def test_signals_that_the_parent_ignores(before):
    parent = run_parent(before)
    out, err = parent.communicate(timeout=PATIENCE)
    assert out.split() == ["1.0", "0.0", str(TIMEOUT)] and not err


def test_no_process_is_left_when_the_main_process_is_killed():
    """After kill -9 of the main process, its pool ends within the limit of the last answer."""
    again = f"""
threading.Thread(target=pool.verify, args=([('1', '{HANGS}'), ('2', '{HANGS}')], 2.0)).start()
while not pool.free.empty():
    time.sleep(0.01)
print('busy', flush=True)"""
    parent = run_parent(after=again)
    lines = [parent.stdout.readline().strip() for _ in range(4)]
    assert lines == ["1.0", "0.0", str(TIMEOUT), "busy"]
    below = children(parent.pid)
    assert len(below) == 2
    parent.kill(), parent.communicate()
    wait_for(lambda: not [pid for pid, (_, session, state) in processes().items()
                          if session in below and state != "Z"])


def test_ctrl_c_ends_the_call_and_not_the_pool(make_pool, monkeypatch):
    pool, asked = make_pool(1), []
    exchange = pool.exchange

    def interrupted(*given):
        asked.append(given)
        if len(asked) == 2:  # one answer is graded, 18 wait
            os.kill(os.getpid(), signal.SIGINT)
        return exchange(*given)
    monkeypatch.setattr(pool, "exchange", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pool.verify([("7919", HANGS + "1" * i) for i in range(20)], 1.0)
    assert pool.verify([("5", "5"), ("5", "6")], 20) == [1, 0]
    assert len(asked) < 20, "answers are graded that nobody waits for"


def test_children_are_replaced():
    """A child grades answers until its memory has grown or until it dies. A score that is not a
    number from 0 to 1 gives the verdict ERROR."""
    pool = Naive("math", 1)
    which = "import os; score = os.getpid() / 2 ** 30"
    first, second, *ends, third = pool.verify([("a", which), ("b", which), ("", "exit()"),
                                               ("", "raise MemoryError"), ("c", which)], 20)
    assert 0 < first == second < third < 1 and ends == [ERROR, ERROR]
    large, fourth = pool.verify([("", "large = bytearray(3 * 2 ** 28)"), ("d", which)], 20)
    assert large == 1 and fourth > third
    scores = ["score = 0.25", "score = 1.5", "score = -1", "score = float('nan')", "score = 'no'"]
    assert pool.verify([("", text) for text in scores], 20) == [0.25, ERROR, TIMEOUT, ERROR, ERROR]
    close(pool)


def test_memory_is_capped(one):
    """A child maps at most MEMORY bytes and writes no file. If it needs more, that is an ERROR."""
    assert one.verify([("5", "5")], 20) == [1]  # the child has started
    (process,) = servers(one)
    for pid in [process.pid, *children(process.pid)]:
        limits = {line[:26].strip(): line[26:].split()[0] for line in open(f"/proc/{pid}/limits")}
        assert [limits[f"Max {name}"] for name in ("address space", "core file size", "file size")
                ] == [str(2 ** 30), "0", "0"]
    pool = Naive("math", 1)
    assert pool.verify([("", "bytearray(2 ** 30)"), ("", "1")], 20) == [ERROR, 1]
    close(pool)


@pytest.mark.parametrize("module", ["raise ImportError", "parse = None"])
def test_math_verify_is_missing_or_another_version(monkeypatch, tmp_path, module):
    """Each call raises a BadInput of one line with the install command."""
    (tmp_path / "math_verify.py").write_text(module)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    pool = sandbox.Pool("math", 1)
    for _ in range(2):
        with pytest.raises(BadInput, match="math-verify is not installed.*requirements.txt"):
            pool.verify([("5", "5")], 1.0)
    close(pool)


def test_an_empty_answer_tells_whether_a_gold_has_a_value(one):
    values = [r"\frac{5}{4}", "x^2=-4", r"\begin{pmatrix}x\\y\end{pmatrix}", "no solution", "B",
              r"\text{even}", "(1,2]", "1e+23", r"5.88\%", r"\infty", r"54^\circ", "3:30"]
    without = [r"\frac{1}{2", r"\frac{1}{0}", r"\left(1,2", r"\sqrt{", "x^{2", r"\frac{a}"]
    assert one.verify([(gold, "") for gold in values], 20) == [1] * len(values)
    assert 1 not in one.verify([(gold, "") for gold in without], 20)
