"""stand_in.py: replaces `python` for the commands of README and docs, in test_docs.py's sandbox.

Planning and analysis run for real. For everything else (training, downloads, minutes of work) only
the arguments are checked: a key that does not exist is appended, and the script must complain about
this key and no other. Every call is appended to the file $CALLS.
"""
import os
import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUN = "config.py", "frontier.py", "fit_sigmoid.py"
# scripts that have only the keys of config.py, so that its checks of values apply as well
PLAIN = "train_grpo.py", "evaluate.py"


def check_words(script, words):
    """Exit with one line if `script` is missing or does not accept the arguments `words`."""
    path = ROOT / script
    if not path.exists():
        sys.exit(f"{script}: no such file")
    if script.startswith("tests/"):
        return compile(path.read_text(), script, "exec")
    sys.path.insert(0, str(ROOT))
    from config import BadInput, check_run, parse
    try:
        if script in PLAIN:
            cfg = parse([word for word in words if word.startswith("-")])
            if script == "train_grpo.py":
                check_run(cfg)
        runpy.run_path(str(path))["main"]([*words, "--no_such_key=1"])
    except (BadInput, OSError) as e:  # tools/mirror.py takes every word as a part of a path
        if "no_such_key" not in str(e):
            sys.exit(f"{script}: {e}")
    else:
        sys.exit(f"{script}: accepts a key that does not exist")


def main(words):
    with open(os.environ["CALLS"], "a") as file:
        file.write(" ".join(words).replace("\n", " ") + "\n")
    if words[:2] == ["-m", "torch.distributed.run"]:
        words = words[words.index("--") + 1:]
    if words[:2] in (["-m", "pip"], ["-m", "pytest"]):  # calls of tests/run.sh
        return
    plans = words[0] == "-m" and words[1] in ("core.sweep", "core.cost")
    if words[0] == "-c" or plans or words[0] in RUN:
        os.execv(sys.executable, [sys.executable, *words])
    check_words(words[0], words[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
