r"""verifier.py: what a model wrote -> its reward, a number from 0 to 1.

A reward of your own is one function here and one entry in REWARDS. `--verifier=NAME` then uses it
in every script; the name is part of a run's identity.

    def short(problem, text, cfg):  # the problem's dict, what the model wrote, the flat dict
        return 0.1 * ("#" in text) + 0.9 * exact(problem, text, cfg)

    REWARDS = dict(math=math_reward, exact=exact, short=short)

- Any number from 0 to 1 is trained on as it is; anything else ends the run with one line.
- A rollout counts as solved where its reward is 1, and only there. `correct`, avg@k, best@k,
  worst@k and pass rates are of solved rollouts; where a reward lies between 0 and 1, the records
  of the log hold the mean `reward` beside them.
- Where the chat template itself opens a block of thinking, `text` begins with its <think>.

What a model writes is hostile input. math-verify (`--verifier=math`) and the verifiers of
reasoning-gym can be made to loop for ever, to fill the memory or to crash, so they run in processes
that can be killed, with a limit an answer. Needs config.py; torch only for the tensor that `grade`
returns.
"""
import concurrent.futures
import contextlib
import difflib
import functools
import importlib.util
import json
import numbers
import os
import queue
import random
import re
import select
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import Callable, NamedTuple

from config import BadInput, cores

ROOT = Path(__file__).resolve().parent

# -------------------------------------------------------------------------------------------------
# Rewards: functions of a problem (a dict with "id", "prompt", "answer"), the text and the flat dict


def exact(problem, text, cfg):
    """1.0 if what follows the last '#' is the problem's answer, blanks aside, else 0.0."""
    return float("#" in text and text.rpartition("#")[2].strip() == problem["answer"].strip())


def math_reward(problem, text, cfg):
    r"""1.0 if math-verify takes what the last \boxed{} holds for the problem's answer, else 0.0.

    One text at a time, for use in a reward of your own; `grade` asks for whole batches at once.
    """
    return float(check_math([(problem["answer"], text)], cfg) == ["right"])


def reasoning_gym_reward(problem, text, cfg):
    """What the problem's own verifier in reasoning-gym gives its answer: many of them give parts.
    """
    verdict, = check("reasoning_gym", [(library("reasoning_gym").gold(problem), text)], cfg)
    return SCORES.get(verdict, verdict)


REWARDS = dict(math=math_reward, exact=exact, reasoning_gym=reasoning_gym_reward)
POOLED = "math", "reasoning_gym"  # of these, what a library that is not ours grades


def check_name(cfg):
    """Raise BadInput that names the nearest one where cfg["verifier"] is none of REWARDS."""
    if cfg["verifier"] not in REWARDS:
        near = difflib.get_close_matches(cfg["verifier"], REWARDS, 1, 0)[0]
        raise BadInput(f"--verifier={cfg['verifier']}: expected one of {', '.join(REWARDS)} "
                       f"(verifier.py); the nearest is {near}")


def grade(problems, rollouts, tokenizer, cfg):
    """Rewards of n rollouts for each of P problems, in the order of engine.generate.

    Returns a (P, n) float32 tensor and what went wrong in a verifier that is not ours, counted in
    rollouts, whose reward is 0: {"verifier_timeouts", "verifier_errors"} (a too long answer is an
    error).
    Raises BadInput that names verifier and problem where a reward is no number from 0 to 1.
    """
    import torch
    rows = zip(rollouts["tokens"].tolist(), rollouts["length"].tolist())
    texts = tokenizer.batch_decode([ids[:k] for ids, k in rows], skip_special_tokens=True)
    if opens_thinking(tokenizer):
        texts = ["<think>" + text for text in texts]
    n = len(texts) // len(problems)
    owners = [problems[i // n] for i in range(len(texts))]  # prompt-major
    faults = dict(verifier_timeouts=0, verifier_errors=0)
    if cfg["verifier"] in POOLED:  # all at once, over the processes of the pool
        golds = [library(cfg["verifier"]).gold(problem) for problem in problems]
        pairs = [(golds[i // n], text) for i, text in enumerate(texts)]
        verdicts = check(cfg["verifier"], pairs, cfg)
        rewards = [SCORES.get(verdict, verdict) for verdict in verdicts]
        faults = dict(verifier_timeouts=verdicts.count("timeout"),
                      verifier_errors=verdicts.count("error"))
    else:
        check_name(cfg)
        reward = REWARDS[cfg["verifier"]]
        rewards = []
        for problem, text in zip(owners, texts):
            value = reward(problem, text, cfg)
            if not isinstance(value, numbers.Real) or not 0 <= value <= 1:  # nan is neither
                raise BadInput(f"--verifier={cfg['verifier']}: gave problem {problem['id']} the "
                               f"reward {value!r}; it must be a number from 0 to 1")
            rewards.append(float(value))
    return torch.tensor(rewards).reshape(len(problems), n), faults


def solved(rewards):
    """Which rollouts count as solved: those whose reward is 1. (P, n) -> (P, n) bool."""
    return rewards == 1


def opens_thinking(tokenizer):
    """True where the chat template itself writes the <think> that a response goes on from."""
    if not tokenizer.chat_template or "<think>" not in tokenizer.chat_template:
        return False
    turn = tokenizer.apply_chat_template([dict(role="user", content="?")], tokenize=False,
                                         add_generation_prompt=True)
    return turn.rfind("<think>") > turn.rfind("</think>")


# -------------------------------------------------------------------------------------------------
# Verifiers that are not ours: nothing that a model wrote is parsed in this process

# the reward of a verdict; one between right and wrong is its own reward
SCORES = dict(right=1.0, wrong=0.0, timeout=0.0, error=0.0)


class Library(NamedTuple):
    """A verifier that is not ours, as `Pool` runs it."""
    name: str    # as people know it
    module: str  # as Python does
    install: str
    gold: Callable    # a problem -> the text to grade by. May raise BadInput
    answer: Callable  # (response, bytes that are read) -> the answer in it, "" where there is none
    load: Callable    # () -> the function (gold, answer) -> (score from 0 to 1, whether it raised)


@functools.cache
def library(kind):
    """The Library for one of POOLED: math-verify, or that of data/KIND/reward.py."""
    if kind == "math":
        return Library("math-verify", "math_verify", "pip install -r requirements.txt",
                       lambda problem: problem["answer"], boxed, load_math)
    spec = importlib.util.spec_from_file_location(f"{kind}_reward", ROOT / f"data/{kind}/reward.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.LIBRARY


def check_math(pairs, cfg):
    """[(gold, what the model wrote), ...] -> "right", "wrong", "timeout" or "error" for each.

    cfg: verify_s (CPU seconds an answer may take), verify_bytes (longest answer that is read).
    """
    return check("math", pairs, cfg)


def check(kind, pairs, cfg):
    """As `check_math`, for one of POOLED, golds as its Library makes them.

    A verdict may be a number in (0, 1) too. No answer is wrong, one that is too long an error.
    """
    verdicts, asked = ["wrong"] * len(pairs), {}
    for i, (gold, text) in enumerate(pairs):
        answer = library(kind).answer(text, cfg["verify_bytes"])
        if len(answer.encode(errors="replace")) > cfg["verify_bytes"]:
            verdicts[i] = "error"
        elif answer:
            asked[i] = gold, answer
    if asked:
        for i, verdict in zip(asked, pool(kind).verify(asked.values(), cfg["verify_s"])):
            verdicts[i] = verdict
    return verdicts


def boxed(text, most=1024):
    r"""What the last \boxed{...} of a response holds, after any thinking; linear in len(text).

    "" where there is no box, where it is not closed or stands in a block of thinking. Reads on from
    that box for `most` characters; what is longer comes back cut at one more, still open.
    """
    answer, start, depth = text.rpartition("</think>")[2], None, 1
    for start in re.finditer(r"\\boxed\s*\{", answer):
        pass  # the last one
    if start is None or "<think>" in answer:
        return ""
    inside = answer[start.end():start.end() + most + 1]
    for brace in re.finditer(r"\\.|[{}]", inside, re.DOTALL):  # \{ and \} are no braces
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            return inside[:brace.start()].strip()
    return inside if len(inside) > most else ""


class Pool:
    """A verifier in processes that can be killed: `verify` returns in time, whatever it is asked.

    Each process is two: a nursery, which has the library loaded, and its child, which grades. The
    child sets timers of the kernel for each answer, which end it also inside sympy's C code, where
    a Python signal handler would never run. Then the nursery says so and forks the next child, in
    milliseconds. A child has a cap on its memory, can write no file, is kept from changing any
    (`confine`), and is replaced after a while. It says what it found in messages of a fixed size:
    whatever took it over cannot make this process run or wait for anything.
    """
    MEMORY = 2 ** 30  # bytes of address space
    LIFE = 2000       # answers of a child
    START = 120       # seconds until the library must be there
    CLOCK = 20        # times its CPU seconds an answer may take by the clock, on a busy machine
    GRACE = 5         # seconds after that when a process that says nothing is killed from here

    def __init__(self, kind, workers):
        self.kind, self.free = kind, queue.SimpleQueue()
        self.threads = concurrent.futures.ThreadPoolExecutor(workers)
        for process in [self.start() for _ in range(workers)]:  # they start side by side
            self.free.put(process)

    def start(self):
        """A nursery, which ends when our end of its pipe is closed."""
        process = subprocess.Popen(
            [sys.executable, "-c", f"import verifier; verifier.nursery({self.kind!r})"], cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": "0"},  # or a set's order might decide a verdict
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
            start_new_session=True)  # Ctrl-C does not reach it
        os.set_blocking(process.stdin.fileno(), False)
        process.asked = 0
        return process

    def verify(self, pairs, seconds):
        """[(gold, answer), ...] -> a verdict for each; pairs that are equal are graded once."""
        distinct = list(dict.fromkeys(pairs))
        verdicts = self.threads.map(lambda pair: self.ask(*pair, seconds), distinct)
        verdict = dict(zip(distinct, verdicts))
        return [verdict[pair] for pair in pairs]

    def ask(self, gold, answer, seconds):
        """One verdict: "right", "wrong", a score between, "timeout", or "error" (wrong too)."""
        process = self.free.get()
        try:
            said = self.exchange(process, seconds, gold, answer)
            if said is None:  # the nursery is dead, or stopped
                self.end(process)
                gave_up = process.returncode >= 0 and process.asked == 1  # nobody killed it
                process = self.start()
                if gave_up:
                    raise missing(self.kind, "does not start")
                return "error"
            verdict, score = said
            if verdict != SCORE or not 0 <= score <= 1:
                return "timeout" if verdict == TIMEOUT else "error"
            return {1.0: "right", 0.0: "wrong"}.get(score, score)
        finally:
            self.free.put(process)

    def exchange(self, process, seconds, gold, answer):
        """What comes of a request: (SCORE, TIMEOUT or ERROR, score); None where nothing is said."""
        process.asked += 1
        number = process.asked % ANY
        grace = self.GRACE + (self.START if process.asked == 1 else 0)
        while self.hear(process, 0):  # of a child that somebody killed while it had nothing to do
            pass
        request = json.dumps([number, seconds, gold, answer]).encode() + b"\n"
        # one that is stopped must not hold us in a full pipe
        poll = select.poll()  # select() cannot take a file number from 1024 on
        poll.register(process.stdin, select.POLLOUT)
        with contextlib.suppress(BrokenPipeError):
            while request and poll.poll(1000 * grace):
                request = request[process.stdin.write(request) or 0:]
        while said := self.hear(process, self.CLOCK * seconds + grace):
            if said[0] in (number, ANY):  # else of an answer already given up
                return said[1:]

    def hear(self, process, seconds):
        """The next message (number, verdict, score); None where there is none in time."""
        poll = select.poll()
        poll.register(process.stdout)
        if poll.poll(1000 * seconds):
            message = process.stdout.read(MESSAGE.size)  # written at once, so it is there at once
            return MESSAGE.unpack(message) if len(message) == MESSAGE.size else None

    def end(self, process):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(), process.stdin.close(), process.stdout.close()


# A message of a process: the number of the answer, what came of it, its score. A nursery, which
# knows no number, says ANY
MESSAGE, ANY = struct.Struct("=Bcd"), 255
SCORE, TIMEOUT, ERROR = b"s", b"t", b"e"
OLD = 2  # exit code of a child; Python's own for an exception is 1
TIMERS = {signal.ITIMER_PROF: signal.SIGPROF, signal.ITIMER_REAL: signal.SIGALRM}  # CPU, clock


def nursery(kind):
    """The process of a Pool: forks a child that reads [number, seconds, gold, answer] a line,
    and the next when that one dies."""
    import logging
    import resource
    logging.disable(logging.CRITICAL)
    requests, replies, null = os.dup(0), os.dup(1), os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # whatever a library prints must not be taken for a message
        os.dup2(null, stream)
    for number in (signal.SIGCHLD, *TIMERS.values()):  # whoever started us may have ignored them
        signal.signal(number, signal.SIG_DFL)  # a timer's ends the process, by the kernel
    signal.pthread_sigmask(signal.SIG_UNBLOCK, TIMERS.values())
    try:
        score_of = library(kind).load()
    except ImportError:
        return
    for limit, most in ((resource.RLIMIT_AS, Pool.MEMORY), (resource.RLIMIT_CORE, 0),
                        (resource.RLIMIT_FSIZE, 0)):
        resource.setrlimit(limit, (most, most))
    while True:
        child = os.fork()
        if child == 0:
            sys.addaudithook(confine)
            os._exit(grade_lines(requests, replies, score_of))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code == 0:
            return
        if code != OLD:
            reply(replies, ANY, TIMEOUT if -code in TIMERS.values() else ERROR)


def confine(event, args):
    """An audit hook: Python code that an answer smuggled past a verifier is refused to start
    programs, to open sockets and to change files.

    As far as Python tells of it: a second wall, not a sandbox. Answers must not run at all, which
    `tame` of data/reasoning_gym/reward.py sees to.
    """
    if event == "open":
        refused = args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    else:
        refused = (event.startswith(("os.", "shutil.", "subprocess.", "pty.", "socket.", "ctypes.",
                                     "sqlite3.", "resource.", "signal."))
                   and event not in ("os.listdir", "os.scandir"))  # an import asks for these
    if refused:
        raise PermissionError(f"{event} in a verifier")


def reply(replies, number, verdict, score=0.0):
    """Write one message, whole: it is far shorter than what a pipe takes at once."""
    os.write(replies, MESSAGE.pack(number, verdict, score))


def grade_lines(requests, replies, score_of):
    """The child of a nursery. Returns 0 where there are no more requests, OLD where it is to be
    replaced: sympy's caches grow, and what one answer left in memory must not be missing to the
    next."""
    import resource
    lines = open(requests, "rb", closefd=False)  # there is one request at a time
    for _ in range(Pool.LIFE):
        line = lines.readline()
        if not line.endswith(b"\n"):
            return 0
        number, seconds, gold, answer = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.setitimer(signal.ITIMER_REAL, Pool.CLOCK * seconds)
        try:
            score, raised = score_of(gold, answer)
        except MemoryError:
            score, raised = 0.0, True
        for timer in TIMERS:
            signal.setitimer(timer, 0)
        reply(replies, number, ERROR if raised and not score else SCORE, score)
        kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if kilobytes > Pool.MEMORY / 4 / 1024:
            break
    return OLD


def missing(kind, how):
    """The BadInput that says how the library behind a pool is missing, and what brings it."""
    return BadInput(f"--verifier={kind}: {library(kind).name} {how} ({library(kind).install})")


@functools.cache
def pool(kind):
    """The Pool of this process for one of POOLED, a worker for each of its cores, 16 at most."""
    if importlib.util.find_spec(library(kind).module) is None:
        raise missing(kind, "is not installed")
    workers = cores() // int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    return Pool(kind, min(16, max(1, workers)))


# -------------------------------------------------------------------------------------------------
# --verifier=math

WARM = [(r"\frac{1}{2}", "0.6"), (r"\sqrt{8}", r"3\sqrt{2}"), ("x^2-1", "(x+1)^2"),
        (r"\sin x", r"\cos x"), ("x=5", "y=5"), ("x>2", "x<2"), (r"[1,2]\cup[2,3]", "[1,2]"),
        (r"\begin{pmatrix}1&2\end{pmatrix}", r"\begin{pmatrix}1&x\end{pmatrix}"),
        ("3+4i", "3-4i")]


def load_math():
    """`math_equal`, with math-verify mended, and with what sympy imports and the parser builds on
    the way, which no child has to do in the time of an answer. Raises ImportError."""
    from math_verify import grader
    mend(grader)
    for gold, answer in WARM:
        math_equal(gold, answer)
    return math_equal


def math_equal(gold, answer):
    r"""Whether math-verify takes `answer` for `gold`, both as in \boxed{}, and whether it raised on
    the way: two bools. May hang."""
    from math_verify import verify
    if gold.strip() == answer.strip():
        return True, False
    plain, wanted = bare(answer), "".join(bare(gold).split())
    # an order or a word, of which math-verify makes a product: ABC is CBA to it
    if re.fullmatch("[A-Z]{3,}", wanted):
        return wanted == "".join(plain.split()), False
    if re.fullmatch("[A-J]", wanted) and re.match(r"\(?[A-J][).:]+\s*\S", plain):
        # E: what that choice says; a second choice beside it is a guess
        return re.findall(r"(?<![A-Za-z])\(?([A-J])(?:[).:]|$)", plain) == [wanted], False
    gold, answer = parsed(gold), parsed(answer)
    settings = dict(allow_set_relation_comp=True, timeout_seconds=None)
    try:
        return verify(gold, answer, raise_on_error=True, **settings), False
    except MemoryError:
        raise
    except Exception:  # then its other readings of the two decide
        return verify(gold, answer, **settings), True


def bare(text):
    r"""An answer without \text{} and the like, dollars and a full stop."""
    text = re.sub(r"\\(?:text|math)(?:rm|bf|it)?\s*\{([^{}]*)\}", r"\1", text)
    return re.sub(r"\$|\.?\s*$", "", text).strip()


@functools.lru_cache(256)  # all rollouts of a group have one gold answer
def parsed(text):
    r"""math-verify's readings of what is in a \boxed{}."""
    from sympy import Add, Symbol
    text = WORDS.get(bare(text).lower(), text)
    for pattern, meant in NOTATION:
        text = re.sub(pattern, meant, text)
    # 2e-3 is read as both 0.002 and 2e - 3
    power = re.sub(r"(?<![\w\\^.])(\d+)[eE]([-+]\d+)(?![\w.])", r"\1\\times 10^{\2}", text)
    readings = (read(power) if power != text else []) + read(text) + union(text)
    # a lone letter is compared by its name; as a sum it is compared by what it is: x and 2x/2
    return readings + [Add(reading, 0, evaluate=False) for reading in readings
                       if isinstance(reading, Symbol)]


def read(text):
    r"""math-verify's reading of LaTeX, and the text."""
    from math_verify import LatexExtractionConfig, parse
    # where it counts nothing, i is what math-verify calls I; and it takes I^2 for I
    if not re.search(r"_\s*\{?\s*i|(?<![A-Za-z\\])i\s*=", text):
        text = re.sub(r"(?<![A-Za-z\\])i(?![A-Za-z])(\s*\^)?",
                      lambda m: "(I)^" if m[1] else "I", text)
    # first_match: a box that it cannot read is not searched for parts that it can
    return parse(rf"\boxed{{{text}}}", [LatexExtractionConfig(boxed_match_priority=0)],
                 parsing_timeout=None, extraction_mode="first_match")


def union(text):
    """[the set where x < 1 or x > 2], which is a set of two relations to math-verify, else []."""
    from sympy import And, Eq, Union
    from sympy.core.relational import Relational
    parts = re.split(r"\$?\s*(?:\\text\s*\{\s*or\s*\}|(?<![A-Za-z\\])or(?![A-Za-z])|\\lor\b|\\vee\b"
                     r")\s*\$?", text)
    with contextlib.suppress(Exception):  # what it cannot read or solve
        sides = [read(part)[0] for part in parts] if len(parts) > 1 else []
        if all(isinstance(side, (Relational, And)) and not isinstance(side, Eq) for side in sides):
            if len({letter for side in sides for letter in side.free_symbols}) == 1:
                return [Union(*[side.as_set() for side in sides])]
    return []


def periodic(m):
    r"""0.1\overline{6} = (016 - 01) / 90"""
    digits, nines = f"0{m[1]}{m[2]}", "9" * len(m[3]) + "0" * len(m[2])
    return rf"\frac{{{digits}{m[3]}-{digits}}}{{{nines}}}"


def mixed(m):
    r"""2\frac{1}{3} is a sum, 2\frac{4}{3} a product."""
    whole, over, under = [int(group) for group in m.groups() if group]
    over = whole * under + over if over < under else whole * over
    return rf"\frac{{{over}}}{{{under}}}"


# Notation that math-verify does not read, or reads as something else, in terms that it does.
# Each pattern is linear in the text
NOTATION = [
    (r"^\s*(?:(?:=|\\(?:approx|simeq|therefore|displaystyle|[lL]arge|LARGE|[hH]uge)(?![A-Za-z]))"
     r"\s*)+", ""),                                              # =7
    (r"(?<![.\s])[.\s]+((?:\}\s*)?)$", r"\1"),                   # the full stop after an answer
    (r"(?<!\s)\s+(?=\})", ""),                                   # { a } ends in a unit to it
    (r"(?<=\d)(?:\\[,;:! ]|~| )(?=\d{3}(?![\d/]))", ""),         # 10\,000
    # two numbers side by side it adds: 2 3 is a list, 2(3) a product, 2\frac{1}{3} alone a sum
    (r"^[\s$]*(\d+(?:\s+\d+)+)[\s$]*$", lambda m: ",".join(m[1].split())),
    (r"(?<![\w^.\\}])(?<!\d,)(\d+)\s*\\[dtc]?frac\s*(?:\{\s*(\d+)\s*\}|(\d))\s*"
     r"(?:\{\s*(\d+)\s*\}|(\d))", mixed),
    (r"(?<![\w^.\\}])(?<!\d,)(\d+)(?:\s|\\[,;:! ]|~)+(\d+)\s*/\s*(\d+)(?![\w.])", mixed),
    (r"(?<![\w^.\\}])(\d+)\s*(?=(?:\\left\s*)?\(|\\[dt]?binom)", r"\1*"),
    (r"\)\s*(?=(?:\\left\s*)?\()", ")*"),
    # 3.3e12, 3.3 x 10^12
    (r"(?<![\w\\^.])(\d+\.\d*|\.\d+|\d+(?=[eE]\d))[eE]([-+]?\d+)(?![\w.])",
     r"\1\\times 10^{\2}"),
    (r"(?<=[\d.])\s*x\s*(?=10\s*\^)", r"\\times "),
    (r"(?<!\d)(\d*)\.(\d*)\\(?:overline|bar)\s*\{(\d+)\}", periodic),
    (r"\\sqrt\[(\d*[13579])\]\{\s*-\s*(\d+)\}", r"((-1)\\sqrt[\1]{\2})"),  # the real root
    (r"\\sqrt\s*(\[\d+\])?\s*\(([^()]*(?:\([^()]*\)[^()]*)*)\)", r"\\sqrt\1{\2}"),
    (r"\\text\s*\{([^\w{}\\]*)\}", r"\1"),                       # 3\text{:}30
    # a letter at the end of an answer, which it drops as a unit
    (r"\\(?:math(?:bf|it|sf|bb)|boldsymbol)\s*\{\s*([a-z])\s*\}", r"{\1}"),
    (r"\\(?:text|mathrm|operatorname|text(?:rm|it|bf))\s*\{\s*([eijknpquvwxyz])\s*\}", r"{\1}"),
    (r"\{\s*\\(?:rm|bf|it)\s+([a-z])\s*\}", r"{\1}"),
    (r"(?<=[\d)}\]])(or|and)(?=[-+\d(\\$]|[A-Za-z](?![A-Za-z]))", r" \1 "),  # x=1orx=2
    (r"\\begin\s*\{cases\}((?:[^&\\]|\\(?!begin|end))*)\\end\s*\{cases\}",
     lambda m: m[1].replace(r"\\", ",")),                        # x=1\\ y=2
    (r"\\text\s*\{\s*infinity\s*\}", r"\\infty"), (r"\\varnothing", r"\\emptyset"),
    (r"\\langle", "("), (r"\\rangle", ")")
]
NUMERALS = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen
              fifteen sixteen seventeen eighteen nineteen twenty""".split()
WORDS = {word: str(number) for number, word in enumerate(NUMERALS)}


def mend(grader):
    """Put right what math-verify compares wrongly, for the rest of this process.

    - To it what differs by less than 1e-15, or as decimals by 5e-7, is equal, however small both
      are: 1/2004! was 1/2006!.
    - To it equations are equal that have the same solutions, or the same difference of sides: all
      that hold never, or always, as 0=0 does, and the empty set was each that holds never.
    - To it a letter is any real number, so sqrt(1/n) was not 1/sqrt(n).
    """
    def narrow(name, condition):
        theirs = getattr(grader, name)
        setattr(grader, name, lambda gold, answer, *precision:
                theirs(gold, answer, *precision) and condition(gold, answer))
    narrow("sympy_numeric_eq", close)
    narrow("sympy_compare_relational", same_relation)
    narrow("sympy_str_eq", lambda gold, _: not (  # the parser makes 1=1 of e^0=1
        isinstance(gold, grader.Eq) and gold.lhs == gold.rhs))
    narrow("sympy_expr_eq", lambda gold, answer: is_set(gold, answer) and is_set(answer, gold))
    symbolic = grader.sympy_symbolic_eq
    grader.sympy_symbolic_eq = lambda gold, answer: (symbolic(gold, answer)
                                                     or equal_on_domain(gold, answer))


def close(gold, answer):
    """Whether two expressions that math-verify rounds to equal ones are equal as `differ` says."""
    from math_verify.grader import get_pct_val
    from sympy import MatrixBase
    if isinstance(gold, MatrixBase) or get_pct_val(gold, gold) == get_pct_val(answer, answer):
        return True  # elements were compared; 9% is 9
    try:
        return not differ(gold, answer)
    except Exception:  # what has no value
        return True


def differ(gold, answer, k=0):
    """Whether two expressions differ at their k-th `place`, to as many digits as it takes.

    Decimals may differ by 1e-12 of their size; a lone one as far as math-verify lets it from 0.001
    on, below in the seventh digit. Raises where one of them has no value.
    """
    from sympy import Float, N
    lone, where = isinstance(gold, Float) or isinstance(answer, Float), place(k, gold, answer)
    gold, answer = gold.doit().subs(where), answer.doit().subs(where)
    if not gold.has(Float) and not answer.has(Float):
        parts = (gold - answer).evalf(2, maxn=1000).as_real_imag()
        return any(part != 0 and part._prec > 1 for part in parts)  # of prec 1: no digit is sure
    gold, answer = N(gold), N(answer)
    if lone and abs(gold) >= 0.001:
        return False
    return bool(abs(gold - answer) > (5e-7 if lone else 1e-12) * max(abs(gold), abs(answer)))


def place(k, *expressions):
    """{letter: a rational number of either sign} for the letters of expressions, the k-th."""
    from sympy import Rational
    rng = random.Random(k)
    return {letter: Rational(rng.choice((-1, 1)) * rng.randint(1, 999), 10 ** rng.randint(1, 3) + 1)
            for letter in sorted(set().union(*[e.free_symbols for e in expressions]), key=str)}


def equal_on_domain(gold, answer):
    """Whether an answer has the gold's values wherever square roots in the gold are real."""
    from sympy import Pow
    try:
        roots = [p for p in gold.atoms(Pow) | answer.atoms(Pow) if not p.exp.is_integer]
        if (not roots or not gold.free_symbols or gold.free_symbols != answer.free_symbols
                or any(not p.exp.is_Rational or p.exp.q % 2 for p in roots)):
            return False
        inside = [p.base for p in roots if gold.has(p)]
        places = [k for k in range(32) if all(base.subs(place(k, gold)) >= 0 for base in inside)]
        return len(places) > 3 and not any(differ(gold, answer, k) for k in places)
    except Exception:  # what has no value
        return False


def same_relation(gold, answer):
    """Whether two relations that math-verify takes for equal say the same of what is unknown."""
    from sympy import Eq, simplify, solve
    from sympy.core.relational import Relational
    if not isinstance(gold, Relational):
        return True  # a chain, whose parts were compared
    first, second = simplify(gold.lhs - gold.rhs), simplify(answer.lhs - answer.rhs)
    if not first.free_symbols or not second.free_symbols:  # nothing is: they must be written alike
        sides, others = ({form(r.lhs), form(r.rhs)} for r in (gold, answer))
        return sides == others and len(sides) == 2
    # equations without a solution must be multiples of each other
    return (not isinstance(gold, Eq) or not simplify(first / second).free_symbols
            or bool(solve(gold, gold.free_symbols)))


def is_set(relation, other):
    """Whether a relation, if it is one, may stand for the set `other`: it says something of what is
    unknown, and an equation has a solution."""
    from sympy import Eq, Set, simplify
    from sympy.core.relational import Relational
    if not isinstance(relation, Relational) or not isinstance(other, Set):
        return True
    if isinstance(relation, Eq):
        return isinstance(relation.rhs, Set) or not other.is_empty
    return bool(simplify(relation.lhs - relation.rhs).free_symbols)


def form(expression):
    """An expression as it is written, but for the order of terms and factors."""
    parts = [form(arg) for arg in expression.args]
    if expression.is_Add or expression.is_Mul:
        parts.sort(key=str)
    return (expression.func.__name__, *parts) if parts else expression
