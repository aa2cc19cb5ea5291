"""stand_in.py: replace `python` for the commands of README and docs, in test_docs.py's sandbox.

    .venv/bin/python train_grpo.py --B_p=8 --n=4      # the command line of a page

Planning and analysis run for real, with few draws of the noise. For everything else (training,
downloads, minutes of work) only the words are checked, by the script's own command line: a key that
does not exist is appended, and the script must refuse that key first. Every call is appended to the
file CALLS.
"""
import importlib.util
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUN = {"config.py": [], "frontier.py": [], "fit_sigmoid.py": []}
# all of their keys are in config.py, so impossible values are refused here too
PLAIN = ("train_grpo.py", "sample.py", "evaluate.py")


def check_words(script, words):
    """Raise SystemExit with one line if `script` is missing or does not take `words`."""
    path = ROOT / script
    if not path.exists():
        sys.exit(f"{script}: no such file")
    if script.startswith("tests/"):
        return compile(path.read_text(), script, "exec")
    sys.path.insert(0, str(ROOT))
    from config import BadInput, check_run, parse
    name = script.removesuffix(".py").replace("/", "_")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    try:
        if script in PLAIN:
            cfg = parse([word for word in words if word.startswith("-")])
            if script == "train_grpo.py":
                check_run(cfg)
        module.main([*words, "--no_such_key=1"])
    except BadInput as e:
        if "no_such_key" not in str(e):
            sys.exit(f"{script}: {e}")
    else:
        sys.exit(f"{script}: takes a key that does not exist")


def main(words):
    if os.environ.get("CALLS"):
        with open(os.environ["CALLS"], "a") as file:
            file.write(" ".join(words).replace("\n", " ") + "\n")
    if words[:2] == ["-m", "torch.distributed.run"]:
        words = words[words.index("--") + 1:]
    if words[:2] in (["-m", "pip"], ["-m", "pytest"]):  # from tests/run.sh
        return
    plans = words[0] == "-m" and words[1] in ("core.sweep", "core.cost")
    if words[0] == "-c" or plans or words[0] in RUN:
        os.execv(sys.executable, [sys.executable, *words, *RUN.get(words[0], [])])
    check_words(words[0], words[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
