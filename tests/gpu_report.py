"""tests/gpu_report.py: write results/gpu.md from the files that tests/gpu_report.sh left in a
folder.

    python tests/gpu_report.py runs/gpu_report      # filled in
    python tests/gpu_report.py none                 # the form, with nothing filled in
"""
import importlib.metadata
import os
import platform
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from config import complete  # noqa: E402
from core.log import read_log  # noqa: E402
from core import cost  # noqa: E402
from core.machine import commit  # noqa: E402

HEAD = """# On a GPU

`bash tests/gpu_report.sh` fills this page in, on a machine with one GPU, in about half an hour.
Please send the filled page as a pull request.
"""
CELLS = {"n4": "n = 4, B_p = 8", "n64": "n = 64, B_p = 8"}
BENCHES = {"speed": "Speed and memory of an update, `tests/bench/gpu.py 0.5B 1.5B`",
           "generation": "Generation by vLLM, `tests/bench/gpu.py vllm 0.5B`"}


def output_of(*command):
    """Return what a command prints, as one line; "not found" if the command is missing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return "not found"
    return " ".join(done.stdout.split()) or "not found"


def version(name):
    """Return the version of an installed package, or "not installed"."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def machine():
    """Return [(name, value)] of this machine and its packages."""
    card = output_of("nvidia-smi", "--query-gpu=name,memory.total,driver_version",
                     "--format=csv,noheader")
    compiler = shutil.which("gcc") or shutil.which("clang") or "not found"
    packages = ", ".join(f"{name} {version(name)}" for name in
                         ("torch", "triton", "transformers", "vllm"))
    return [("card, memory, driver", card), ("system", platform.platform()),
            ("Python, compiler", f"{platform.python_version()}, {compiler}"),
            ("packages", packages), ("cores", str(os.cpu_count())), ("commit", str(commit()))]


def measured(log):
    """Return {name: (measured, expected by core/cost.py)} of a run's log, medians after two
    updates."""
    header, *records = read_log(log)
    cfg, steps = complete(header["config"]), [r for r in records if r["type"] == "step"]
    late, B = steps[2:] or steps, cfg["B_p"] * cfg["n"]
    s = cost.sizes(cost.read_shape(cfg["model"]))
    median = {key: statistics.median(r[key] for r in late)
              for key in ("gen_s", "train_s", "response_len", "truncated")}
    tokens = B * median["response_len"]
    expected = {}
    if s:
        expected = dict(gen=cost.generation_s(s, cfg, B, 1), train=cost.update_s(s, cfg, B, 1))
        expected["all"] = sum(expected.values()) + cost.UPDATE_S
    number = lambda x: f"{x:,.2f}" if x < 10 else f"{x:,.0f}"
    time_of = lambda key: number(expected[key]) if key in expected else "not known"
    rate = lambda key: number(B * cost.mean_length(cfg) / expected[key]) if s else "not known"
    return {
        "seconds of an update, all in all": (number(median["gen_s"] + median["train_s"]),
                                             time_of("all")),
        "of it generation and grading, s": (number(median["gen_s"]), time_of("gen")),
        "of it the update itself, s": (number(median["train_s"]), time_of("train")),
        "tokens generated per second": (number(tokens / median["gen_s"]), rate("gen")),
        "tokens trained on per second": (number(tokens / median["train_s"]), rate("train")),
        "tokens of a response": (number(median["response_len"]), number(cost.mean_length(cfg))),
        "share of responses cut off": (f"{median['truncated']:.1%}", f"{cost.CUT:.1%}")}


def last_line(path):
    """Return the last line of a step's output; "not run" if there is none."""
    lines = path.read_text().split("\n") if path.exists() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "not run")


def measurements(path):
    """Return the indented lines of a step's output, without vLLM's progress bars; or "not run"."""
    lines = path.read_text().split("\n") if path.exists() else ["  not run"]
    return "\n".join(line[2:] for line in lines if line.startswith("  ")) or last_line(path)


def page(folder):
    """Return the text of results/gpu.md."""
    rows = machine() if folder.exists() else [(what, "not run") for what, _ in machine()]
    steps = dict(probe="`core/probe.py triton`, the check before a sweep",
                 tests="`tests/test_gpu.py`")
    rows += [(what, last_line(folder / f"{name}.txt")) for name, what in steps.items()]
    text = HEAD + "\n| what | here |\n|---|---|\n"
    text += "".join(f"| {what} | {value} |\n" for what, value in rows)
    text += ("\nTen updates of two of the evening's cells, medians after the first two. Expected "
             "are one H100 and the\nassumptions at the head of `core/cost.py`.\n")
    for name, what in CELLS.items():
        log = folder / name / "log.jsonl"
        text += f"\n| {what} | measured | expected |\n|---|---|---|\n"
        if log.exists() and any(r["type"] == "step" for r in read_log(log)):
            text += "".join(f"| {row} | {a} | {b} |\n" for row, (a, b) in measured(log).items())
        else:
            text += f"| a run | {last_line(folder / f'{name}.txt')} | |\n"
    for name, what in BENCHES.items():
        text += f"\n{what}:\n\n```text\n{measurements(folder / f'{name}.txt')}\n```\n"
    return text


def main(words):
    out = ROOT / "results/gpu.md" if len(words) < 2 else Path(words[1])
    out.write_text(page(Path(words[0])))
    print(f"{out}: written; please look at it before you send it")


if __name__ == "__main__":
    sys.exit(print(__doc__)) if not sys.argv[1:] or "--help" in sys.argv else main(sys.argv[1:])
