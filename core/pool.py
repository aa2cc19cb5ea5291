"""core/pool.py: run shell commands, one per GPU or core at a time, and show how far each is."""
import contextlib
import os
import re
import signal
import subprocess
import sys
import time

from core.log import DIVERGED


def last_line(path):
    """Return the last line of a process's output, or "". An error of train_grpo.py comes first,
    because torchrun prints a table after it."""
    lines = []
    with contextlib.suppress(OSError), open(path, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 9000))
        text = file.read().decode(errors="replace")
        # splitlines also splits at the \r between the states of a progress bar
        lines = [line for line in text.splitlines() if line.strip()]
    # an error may follow a progress bar in the same line
    errors = re.findall(r"((?:\[rank \d+\] )?train_grpo\.py: \S.*|\[rank\d+\]: \S.*)",
                        "\n".join(lines))
    return [*errors[-1:], *lines[-1:], ""][0]


def spawn(command, out, place):
    """Start a process from the shell words `command`, and append its output to the file `out`.

    place: extra environment variables. A Ctrl-C in the terminal does not reach the process, because
    torchrun and srun would pass it on. LAUNCH may contain quotes and assignments.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    with open(out, "ab") as file:
        return subprocess.Popen(["bash", "-c", f"exec env {command}"], env=os.environ | place,
                                stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                                start_new_session=True)


def pool(jobs, places, stop):
    """Run jobs in order, at most len(places) at a time. Return how many failed.

    jobs: a list of (name, shell words, output file). places: a list of dicts of environment
    variables, such as the ids of a job's GPUs. stop: a list to which a signal handler appends.

    If `stop` is not empty, a SIGTERM of Slurm ended a job or nobody reads our output, no more jobs
    start. The running jobs get SIGTERM, on which train_grpo.py saves a checkpoint, and are awaited.
    """
    waiting, running, failed, shown = list(jobs), {}, 0, time.time()
    terminal = sys.stdout and sys.stdout.isatty()
    clear, every = ("\033[J", 1) if terminal else ("", 60)
    try:
        while (waiting or running) and not stop:
            for i, place in enumerate(places):
                if waiting and i not in running:
                    name, command, out = waiting.pop(0)
                    running[i] = name, out, spawn(command, out, place)
            time.sleep(0.1)
            for i, (name, out, process) in list(running.items()):
                if (code := process.poll()) is None:
                    continue
                del running[i]
                code = code if code >= 0 else 128 - code
                how = {0: "done", DIVERGED: "diverged"}.get(code, f"FAILED ({code})")
                print(f"{clear}{how}  {name}:  {last_line(out)}", flush=True)
                failed += code not in (0, DIVERGED)
                if code == 128 + signal.SIGTERM:
                    stop.append(code)
            if time.time() - shown >= every:
                shown = time.time()
                lines = [f"  {name}  {last_line(out) or 'starting'}"[:112 if terminal else None]
                         for name, out, _ in running.values()]
                lines.append(f"  {len(jobs) - len(waiting) - len(running)} of {len(jobs)} ended, "
                             f"{len(waiting)} waiting; Ctrl-C stops, the same command continues")
                end, back = ("\033[K\n", f"\033[{len(lines)}A") if terminal else ("\n", "")
                print(end.join(lines) + end + back, end="", flush=True)  # the next print overwrites
    finally:
        for *_, process in running.values():
            process.terminate()
        with contextlib.suppress(OSError):  # the program that reads our output may have ended
            print(clear, end="", flush=True)
            if stop or running:
                print(f"\nstopping: {len(running)} to end; the same command continues", flush=True)
        for *_, process in running.values():
            process.wait()
    return failed


def call(*words):
    """Run a command in its own process. If it fails, exit with its code."""
    process = subprocess.Popen(list(map(str, words)))
    try:
        code = process.wait()
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        raise
    if code:
        sys.exit(code if code > 0 else 128 - code)


def python():
    """Return the Python interpreter that runs all stages: $PYTHON or the one in .venv."""
    return os.environ.get("PYTHON") or ".venv/bin/python"


def handle_signals(numbers, handler):
    """Set `handler` for the signals `numbers`. If SIGHUP is ignored (nohup), keep it ignored."""
    for number in numbers:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)
