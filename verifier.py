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
that can be killed, with a limit an answer. Needs config.py, and of LIBRARIES the files that are
used; torch only for the tensor that `grade` returns.
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
import signal
import struct
import subprocess
import sys
import threading
from pathlib import Path

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
    return max(0.0, *check("math", [(problem, text)], cfg))


def reasoning_gym_reward(problem, text, cfg):
    """What the problem's own verifier in reasoning-gym gives its answer: many of them give parts.
    """
    return max(0.0, *check("reasoning_gym", [(problem, text)], cfg))


REWARDS = dict(math=math_reward, exact=exact, reasoning_gym=reasoning_gym_reward)


def check_name(cfg):
    """Raise BadInput that names the nearest one where cfg["verifier"] is none of REWARDS."""
    if cfg["verifier"] not in REWARDS:
        near = difflib.get_close_matches(cfg["verifier"], REWARDS, 1, 0)[0]
        raise BadInput(f"--verifier={cfg['verifier']}: expected one of {', '.join(REWARDS)} "
                       f"(verifier.py); the nearest is {near}")


def grade(problems, rollouts, tokenizer, cfg):
    """Rewards of n rollouts for each of P problems, in the order of engine.generate.

    Returns a (P, n) float32 tensor and the faults of a library's verifier, counted in rollouts,
    whose reward is 0: {"verifier_timeouts", "verifier_errors"} (a too long answer is an error).
    Raises BadInput that names verifier and problem where a reward is no number from 0 to 1.
    """
    import torch
    rows = zip(rollouts["tokens"].tolist(), rollouts["length"].tolist())
    texts = tokenizer.batch_decode([ids[:k] for ids, k in rows], skip_special_tokens=True)
    if opens_thinking(tokenizer):
        texts = ["<think>" + text for text in texts]
    n = len(texts) // len(problems)
    pairs = [(problems[i // n], text) for i, text in enumerate(texts)]  # prompt-major
    check_name(cfg)
    if cfg["verifier"] in LIBRARIES:
        verdicts = check(cfg["verifier"], pairs, cfg)  # all at once, over the processes of the pool
    else:
        reward, verdicts = REWARDS[cfg["verifier"]], []
        for problem, text in pairs:
            value = reward(problem, text, cfg)
            if not isinstance(value, numbers.Real) or not 0 <= value <= 1:  # nan is neither
                raise BadInput(f"--verifier={cfg['verifier']}: gave problem {problem['id']} the "
                               f"reward {value!r}; it must be a number from 0 to 1")
            verdicts.append(float(value))
    rewards = torch.tensor(verdicts).clamp(min=0).reshape(len(problems), n)
    return rewards, dict(verifier_timeouts=verdicts.count(TIMEOUT),
                         verifier_errors=verdicts.count(ERROR))


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
# Verifiers of libraries: nothing that a model wrote is parsed in this process

# Which of REWARDS they are, and the file that knows the library. Such a file has
# NAME, INSTALL: the library, and what brings it
# gold(problem): the text to grade by; may raise BadInput
# answer(text, most): the answer in a response, "" where there is none; longer than `most` as such
# load(): a function of (gold, answer) that gives a score from 0 to 1; what it raises is an error.
#     Raises ImportError where the library is not there
LIBRARIES = dict(math="core/math_answers.py", reasoning_gym="data/reasoning_gym/reward.py")
TIMEOUT, ERROR = -1.0, -2.0  # verdicts on answers that got no score; as a reward they are 0


@functools.cache
def library(kind):
    """The module behind one of LIBRARIES. Importing it loads no library yet."""
    spec = importlib.util.spec_from_file_location(f"{kind}_library", ROOT / LIBRARIES[kind])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def missing(kind):
    """The BadInput that names a library that is not there, and what brings it."""
    return BadInput(f"--verifier={kind}: {library(kind).NAME} is not installed, or not whole "
                    f"({library(kind).INSTALL})")


def check(kind, pairs, cfg):
    """[(problem, what the model wrote), ...] -> a verdict for each, by one of LIBRARIES.

    A verdict is a score from 0 to 1, TIMEOUT or ERROR. No answer is 0, one that is too long ERROR.
    cfg: verify_s (CPU seconds an answer may take), verify_bytes (longest answer that is read).
    """
    verdicts, asked = [0.0] * len(pairs), {}
    for i, (problem, text) in enumerate(pairs):
        answer = library(kind).answer(text, cfg["verify_bytes"])
        if len(answer.encode(errors="replace")) > cfg["verify_bytes"]:
            verdicts[i] = ERROR
        elif answer:
            asked[i] = library(kind).gold(problem), answer
    if asked:
        for i, verdict in zip(asked, pool(kind).verify(asked.values(), cfg["verify_s"])):
            verdicts[i] = verdict
    return verdicts


def check_math(pairs, cfg):
    """[(gold, what a model wrote), ...] -> "right", "wrong", "timeout" or "error" for each.

    As --verifier=math grades, for pairs that are not in a problem file; cfg as in `check`.
    """
    verdicts = check("math", [(dict(answer=gold), text) for gold, text in pairs], cfg)
    return [{1.0: "right", 0.0: "wrong", TIMEOUT: "timeout", ERROR: "error"}[v] for v in verdicts]


@functools.cache
def pool(kind):
    """The Pool of this process for one of LIBRARIES, a worker for each of its cores, 16 at most."""
    workers = cores() // int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    return Pool(kind, min(16, max(1, workers)))


class Pool:
    """A verifier in processes that can be killed: `verify` returns in time, whatever it is asked.

    Each process is two: a nursery, which has the library loaded, and its child, which grades. The
    child sets timers of the kernel for each answer, which end it also inside sympy's C code, where
    a Python signal handler would never run. The nursery says so and forks the next child, in
    milliseconds. A child has a cap on its memory, can write no file and is kept from changing any
    (`confine`). The nursery alone speaks to us, in messages of a fixed size: whatever took a child
    over cannot make this process run or wait for anything.
    """
    MEMORY = 2 ** 30  # bytes of address space
    CLOCK = 20        # times its CPU seconds an answer may take by the clock, on a busy machine
    GRACE = 120       # seconds after that when a process that is silent is killed from here; until
                      # the first answer it loads its library

    def __init__(self, kind, workers):
        self.kind, self.free = kind, queue.SimpleQueue()
        self.threads = concurrent.futures.ThreadPoolExecutor(workers)
        for process in [self.start() for _ in range(workers)]:  # they start side by side
            self.free.put(process)

    def start(self):
        """A nursery, which ends when our end of its pipe is closed."""
        return subprocess.Popen(
            [sys.executable, "-c", f"import verifier; verifier.nursery({self.kind!r})"], cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": "0"},  # or a set's order might decide a verdict
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
            start_new_session=True)  # Ctrl-C does not reach it, one signal reaches it and its child

    def verify(self, pairs, seconds):
        """[(gold, answer), ...] -> a verdict for each; pairs that are equal are graded once."""
        distinct = list(dict.fromkeys(pairs))
        verdicts = self.threads.map(lambda pair: self.ask(*pair, seconds), distinct)
        verdict = dict(zip(distinct, verdicts))
        return [verdict[pair] for pair in pairs]

    def ask(self, gold, answer, seconds):
        """The verdict on one answer, by the next process that is free."""
        process = self.free.get()
        try:
            verdict = self.exchange(process, seconds, gold, answer)
            if verdict is None:
                self.end(process)
                unavailable = process.returncode == os.EX_UNAVAILABLE
                process = self.start()
                if unavailable:
                    raise missing(self.kind)
                return ERROR
            return verdict if verdict == TIMEOUT or 0 <= verdict <= 1 else ERROR  # nan is none
        finally:
            self.free.put(process)

    def exchange(self, process, seconds, gold, answer):
        """What a nursery says of an answer; None where it is dead, or stopped and killed for it."""
        request = json.dumps([seconds, gold, answer]).encode() + b"\n"
        late = threading.Timer(self.CLOCK * seconds + self.GRACE,
                               os.killpg, [process.pid, signal.SIGKILL])
        late.daemon = True
        late.start()
        try:
            while request:
                request = request[process.stdin.write(request):]
            said = process.stdout.read(MESSAGE.size)  # written at once, so it is there at once
        except BrokenPipeError:
            return None
        finally:
            late.cancel()
        return MESSAGE.unpack(said)[0] if len(said) == MESSAGE.size else None

    def end(self, process):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(), process.stdin.close(), process.stdout.close()


MESSAGE = struct.Struct("d?")  # a verdict, and whether the child that found it has grown
TIMERS = {signal.ITIMER_PROF: signal.SIGPROF, signal.ITIMER_REAL: signal.SIGALRM}  # CPU, clock


def nursery(kind):
    """The process of a Pool: reads [seconds, gold, answer] a line and writes a MESSAGE for each.

    Its child grades. The next child takes the place of one that dies, or that has grown: what one
    answer left in memory must not be missing to another.
    """
    import logging
    import multiprocessing
    import resource
    logging.disable(logging.CRITICAL)
    requests, replies = open(os.dup(0), "rb"), open(os.dup(1), "wb", 0)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # whatever a library prints must not be taken for a message
        os.dup2(null, stream)
    for number in (signal.SIGCHLD, *TIMERS.values()):  # whoever started us may have ignored them
        signal.signal(number, signal.SIG_DFL)  # a timer's ends the process, by the kernel
    signal.pthread_sigmask(signal.SIG_UNBLOCK, TIMERS.values())
    try:
        score = library(kind).load()
    except ImportError:
        os._exit(os.EX_UNAVAILABLE)  # not while Python ends, when the pipe is closed already
    for limit, most in ((resource.RLIMIT_AS, Pool.MEMORY), (resource.RLIMIT_CORE, 0),
                        (resource.RLIMIT_FSIZE, 0)):
        resource.setrlimit(limit, (most, most))
    forks, child = multiprocessing.get_context("fork"), None
    for line in requests:
        if child is None or not child.is_alive():  # it may be killed while it has nothing to do
            ours, its = forks.Pipe()
            child = forks.Process(target=grade_lines, daemon=True,
                                  args=(score, its, [ours, requests, replies]))
            child.start()
            its.close()
        try:
            ours.send_bytes(line)
            message = ours.recv_bytes(MESSAGE.size)
        except (EOFError, OSError):
            child.join()
            timeout = -child.exitcode in TIMERS.values()
            message = MESSAGE.pack(TIMEOUT if timeout else ERROR, False)
        replies.write(message)
        if MESSAGE.unpack(message)[1]:
            child.kill(), child.join()


def grade_lines(score, nursery, others):
    """The child of a nursery: gives it a MESSAGE for each line that it sends."""
    import resource
    for other in others:  # of the nursery; where that one dies, nothing more comes from `nursery`
        other.close()
    sys.addaudithook(confine)
    while True:
        seconds, gold, answer = json.loads(nursery.recv_bytes())
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.setitimer(signal.ITIMER_REAL, Pool.CLOCK * seconds)
        try:
            verdict = float(score(gold, answer))
        except Exception:
            verdict = ERROR
        for timer in TIMERS:
            signal.setitimer(timer, 0)
        kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        nursery.send_bytes(MESSAGE.pack(verdict, kilobytes > Pool.MEMORY / 4 / 1024))


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
