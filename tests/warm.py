"""A python that has already loaded torch, for tests that start many scripts.

    python tests/warm.py SOCKET   the server, which forks for each script
    client(SOCKET, ...)           replaces `python`: the fork has the client's arguments, folder,
                                  environment and streams; signals and exit code are passed on

The server loads no module of the repository before it forks. If a fork cannot replace python (`-c`,
another PYTHONPATH, another number of threads), the client starts a new python.
"""
import atexit
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
import types

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
READ_AT_IMPORT = ("PYTHON", "OMP_", "HF_", "TRANSFORMERS_", "TOKENIZERS_", "LC_", "LANG")


def fixed(env):
    """Return the variables of `env` that libraries read at their import, before the fork."""
    return {key: value for key, value in env.items()
            if key.startswith(READ_AT_IMPORT) and key not in ("PYTHON", "PYTHON_EXEC")}


def client(path, python, server_env):
    """Run the script in sys.argv in a fork of the server at `path`, then exit as the script did.
    server_env: `fixed` of the server's environment. If this environment differs, replace this
    process by `python`."""
    words = sys.argv[2:] if sys.argv[1:2] == ["-u"] else sys.argv[1:]
    if not words or words[0][0] == "-" and words[0] != "-m" or fixed(os.environ) != server_env:
        os.execv(python, [python, *sys.argv[1:]])
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    ignored = [number for number in PASSED_ON if signal.getsignal(number) == signal.SIG_IGN]
    server = socket.socket(socket.AF_UNIX)
    server.connect(path)
    socket.send_fds(server, [b"."], [0, 1, 2])
    lines = server.makefile("rw")
    print(json.dumps([words, os.getcwd(), dict(os.environ), ignored]), file=lines, flush=True)
    pid = int(lines.readline())
    for number in PASSED_ON:
        signal.signal(number, lambda number, _: os.kill(pid, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    code = int(lines.readline())
    if code < 0:  # if a signal ended the script, this process ends by the same signal
        if code != -signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def keep(connection, pid):
    """Send the exit code of the process `pid` to its client. If the client ends first, kill the
    process and its children."""
    watched = os.pidfd_open(pid)
    if connection in select.select([connection, watched], [], [])[0]:
        os.killpg(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        connection.send(b"%d\n" % code)
    except BrokenPipeError:
        pass
    os._exit(0)


def serve(path):
    """Fork for each request. This function returns only in a fork, with its script's arguments."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    print("ready", flush=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # pytest ends the server by closing its stdin
    while listener in select.select([listener, 0], [], [])[0]:
        connection, _ = listener.accept()
        if os.fork():
            connection.close()
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:  # reap the forks that have ended
                    pass
            except ChildProcessError:
                pass
            continue
        listener.close()
        streams = socket.recv_fds(connection, 1, 3)[1]
        words, folder, env, ignored = json.loads(connection.makefile().readline())
        pid = os.fork()
        if pid:
            os.setpgid(pid, pid)
            connection.send(b"%d\n" % pid)
            for stream in (*streams, 0, 1, 2):
                os.close(stream)
            keep(connection, pid)
        connection.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number), os.close(stream)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(env)
        return words
    try:
        while os.wait():
            pass
    except ChildProcessError:
        os._exit(0)


def run(words):
    """Run the script with its arguments `words` as `python` would, then exit. The exit skips
    destructors, because the libraries' state is shared with the server."""
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        if "HOLD" in os.environ:  # conftest.Hold
            exec(open(os.environ["HOLD"]).read(), {})
        if words[0] == "-m":
            sys.argv, sys.path[0] = words[1:], os.getcwd()
            runpy._run_module_as_main(sys.argv[0])
        else:
            sys.argv, sys.path[0] = words, os.path.dirname(os.path.abspath(words[0]))
            main.__file__ = words[0]
            exec(compile(open(words[0]).read(), words[0], "exec"), main.__dict__)
        code = 0
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else int(e.code is not None)
        if code and not isinstance(e.code, int):
            print(e.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = 120
    os._exit(code & 255)


if __name__ == "__main__":
    for name in """matplotlib.pyplot matplotlib.backends.backend_agg scipy.optimize scipy.stats
            torch.distributed.run torch.distributed.fsdp transformers.models.auto.modeling_auto
            transformers.models.auto.tokenization_auto
            transformers.models.llama.modeling_llama""".split():
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    run(serve(sys.argv[1]))
