"""core/sandbox.py: grade answers in processes that can be killed.

A model's text can make a verifier loop forever, fill the memory or crash. So `check` sends each
answer to a worker with limits on CPU time and memory, in which Python can neither write a file nor
start a program (`confine`). This stops what a model learns under RL, not a determined attacker.
"""
import concurrent.futures
import contextlib
import functools
import importlib
import json
import os
import queue
import signal
import struct
import subprocess
import sys
import threading
from pathlib import Path

try:
    from config import BadInput
    from core.machine import cores
except ImportError:  # verifier.py was copied without config.py and core/machine.py
    BadInput = ValueError

    def cores():
        return os.cpu_count() or 1

ROOT = Path(__file__).resolve().parent.parent

# Each library's verifier is one module with these names:
# NAME, INSTALL       the library, and the command that installs it
# gold(problem)       returns the reference answer as text; may raise BadInput
# answer(text, most)  returns the answer in a response, or ""; it may be cut after most + 1
#                     characters
# load()              returns score(gold, answer), a number in [0, 1]. If score raises, the verdict
#                     is ERROR. load raises an error if the library is missing
LIBRARIES = dict(math="core.math_answers", reasoning_gym="core.gym_answers")
TIMEOUT, ERROR = -1.0, -2.0  # verdicts for answers that could not be scored; their reward is 0


@functools.cache
def library(kind):
    """Return the module LIBRARIES[kind], whose import does not load the library yet."""
    return importlib.import_module(LIBRARIES[kind])


def missing_library(kind):
    """Return the BadInput for a library that cannot be imported."""
    return BadInput(f"--verifier={kind}: {library(kind).NAME} is not installed or incomplete "
                    f"({library(kind).INSTALL})")


def check(kind, pairs, cfg):
    """Return a verdict for each (problem, text that a model wrote) by one of LIBRARIES: a score
    from 0 to 1, TIMEOUT above cfg["verify_s"] CPU seconds, or ERROR, also for an answer above
    cfg["verify_bytes"] bytes. A text without an answer scores 0."""
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


@functools.cache
def pool(kind):
    """Return this process's Pool for one of LIBRARIES: one worker per core, at most 16."""
    workers = cores() // int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    return Pool(kind, min(16, max(1, workers)))


class Pool:
    """A verifier in processes that can be killed, so that `verify` always returns in time.

    A worker is a fork server that has loaded the library, and its child, which grades under kernel
    timers, because no Python signal handler runs inside sympy's C code. Only the server writes to
    the trainer, in messages of a fixed size, so even a child that a hostile answer controls cannot
    make the trainer run code or wait.
    """
    MEMORY = 2 ** 30  # limit on a child's address space, in bytes
    CLOCK = 20  # wall-clock limit, in multiples of the CPU limit, because the machine may be busy
    GRACE = 120  # seconds more before a silent worker is killed; it may still load the library

    def __init__(self, kind, workers):
        self.kind, self.free = kind, queue.SimpleQueue()
        self.threads = concurrent.futures.ThreadPoolExecutor(workers)
        for process in [self.start() for _ in range(workers)]:  # all servers start at once
            self.free.put(process)

    def start(self):
        """Start a fork server. The server ends when our end of its pipe is closed."""
        code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from core import sandbox; "
        return subprocess.Popen(
            [sys.executable, "-c", f"{code}sandbox.serve({self.kind!r})"], cwd=ROOT,
            # with random hash seeds, a verdict could depend on the order of a set
            env={**os.environ, "PYTHONHASHSEED": "0"},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
            # keeps Ctrl-C from the worker, and killpg ends both processes
            start_new_session=True)

    def verify(self, pairs, seconds):
        """Return a verdict for each (gold, answer). Equal pairs are graded once."""
        distinct = list(dict.fromkeys(pairs))
        verdicts = self.threads.map(lambda pair: self.ask(*pair, seconds), distinct)
        verdict = dict(zip(distinct, verdicts))
        return [verdict[pair] for pair in pairs]

    def ask(self, gold, answer, seconds):
        """Return the verdict on one answer, from the next free worker."""
        process = self.free.get()
        try:
            verdict = self.exchange(process, seconds, gold, answer)
            if verdict is None:
                self.end(process)
                unavailable = process.returncode == os.EX_UNAVAILABLE
                process = self.start()
                if unavailable:
                    raise missing_library(self.kind)
                return ERROR
            # a NaN fails both comparisons, so it becomes ERROR
            return verdict if verdict == TIMEOUT or 0 <= verdict <= 1 else ERROR
        finally:
            self.free.put(process)

    def exchange(self, process, seconds, gold, answer):
        """Return a worker's verdict, or None if the worker died or had to be killed."""
        request = json.dumps([seconds, gold, answer]).encode() + b"\n"
        late = threading.Timer(self.CLOCK * seconds + self.GRACE,
                               os.killpg, [process.pid, signal.SIGKILL])
        late.daemon = True
        late.start()
        try:
            while request:
                request = request[process.stdin.write(request):]
            # the worker writes a message in one call, so a read returns all of it
            reply = process.stdout.read(MESSAGE.size)
        except BrokenPipeError:
            return None
        finally:
            late.cancel()
        return MESSAGE.unpack(reply)[0] if len(reply) == MESSAGE.size else None

    def end(self, process):
        """Kill a worker: its fork server and the server's child."""
        with process, contextlib.suppress(ProcessLookupError):  # closes the pipes and waits
            os.killpg(process.pid, signal.SIGKILL)


MESSAGE = struct.Struct("d?")  # the verdict, and whether the child's memory has grown
# timers for CPU time and wall-clock time
TIMERS = {signal.ITIMER_PROF: signal.SIGPROF, signal.ITIMER_REAL: signal.SIGALRM}


def serve(kind):
    """Run the fork server of a Pool: read [seconds, gold, answer] lines, write a MESSAGE for each.
    A child grades, and is replaced if it dies or if its memory has grown."""
    import multiprocessing
    import resource
    requests, replies = open(os.dup(0), "rb"), open(os.dup(1), "wb", 0)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # a library's output must not be read as a message
        os.dup2(null, stream)
    # the parent may ignore these signals; by default a timer's signal ends the process
    for number in (signal.SIGCHLD, *TIMERS.values()):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, TIMERS.values())
    try:
        score = library(kind).load()
    except Exception:  # ImportError, or any error of another version
        # else the pipe closes first, and the parent kills this process before it can exit
        os._exit(os.EX_UNAVAILABLE)
    for limit, most in ((resource.RLIMIT_AS, Pool.MEMORY), (resource.RLIMIT_CORE, 0),
                        (resource.RLIMIT_FSIZE, 0)):
        resource.setrlimit(limit, (most, most))
    forks, child = multiprocessing.get_context("fork"), None
    for line in requests:
        if child is None or not child.is_alive():  # the kernel may have killed an idle child
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


def grade_lines(score, server, others):
    """Run a child of the fork server: for each line from `server`, send one MESSAGE back. others:
    inherited files to close, or the trainer would not notice that the server died."""
    import resource
    for other in others:
        other.close()
    sys.addaudithook(confine)
    while True:
        seconds, gold, answer = json.loads(server.recv_bytes())
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.setitimer(signal.ITIMER_REAL, Pool.CLOCK * seconds)
        try:
            verdict = float(score(gold, answer))
        except Exception:
            verdict = ERROR
        for timer in TIMERS:
            signal.setitimer(timer, 0)
        kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        server.send_bytes(MESSAGE.pack(verdict, kilobytes > Pool.MEMORY / 4 / 1024))


def confine(event, args):
    """Raise PermissionError if Python starts a program, opens a socket or changes a file. The first
    line of defence is `tame` in core/gym_answers.py: answers never run as code."""
    if event == "open":
        refused = args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    else:
        refused = (event.startswith(("os.", "shutil.", "subprocess.", "pty.", "socket.", "ctypes.",
                                     "sqlite3.", "resource.", "signal."))
                   and event not in ("os.listdir", "os.scandir"))  # an import needs these
    if refused:
        raise PermissionError(f"{event} in a verifier")
