"""tests/gpu_report.py: write results/gpu.md from the files that tests/gpu_report.sh left in a
folder.

    python tests/gpu_report.py runs/gpu_report [PAGE.md]
"""
import importlib.metadata
import math
import os
import platform
import shutil
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from config import complete  # noqa: E402
from core import cost, machine  # noqa: E402
from core.log import read_log  # noqa: E402

HEAD = """# On a GPU

`bash tests/gpu_report.sh` fills this page in, on a machine with one GPU, in about half an hour.
Please send the filled page as a pull request.

| what | here |
|---|---|
"""
PACKAGES = "torch", "triton", "transformers", "vllm"
# name of a step's output file: what the step does
STEPS = {"card": "card, memory, driver", "tests": "`tests/test_gpu.py`",
         "probe": "`core/probe.py triton`, the check before a sweep"}
CELLS = {"n4": "n = 4, B_p = 8", "n64": "n = 64, B_p = 8"}
BENCHES = {"speed": "Speed and memory of an update, `tests/bench/gpu.py 0.5B 1.5B`",
           "generation": "Generation by vLLM, `tests/bench/gpu.py vllm 0.5B`"}


def measured(log):
    """Return [(name, measured, expected by core/cost.py)] of a run's log as text.

    Measured are medians over the updates after the first two. Expected is nan if core/cost.py does
    not know the model.
    """
    header, *records = read_log(log)
    cfg, steps = complete(header["config"]), [r for r in records if r["type"] == "step"]
    gen, train, length, cut = (statistics.median(r[key] for r in steps[2:] or steps)
                               for key in ("gen_s", "train_s", "response_len", "truncated"))
    B, mean = cfg["B_p"] * cfg["n"], cost.mean_length(cfg)
    s = cost.sizes(cost.read_shape(cfg["model"]))
    gen_s, train_s = (f(s, cfg, B, 1) if s else math.nan
                      for f in (cost.generation_s, cost.update_s))
    rows = [("seconds of an update, all in all", gen + train, gen_s + train_s + cost.UPDATE_S),
            ("of it generation and grading, s", gen, gen_s),
            ("of it the update itself, s", train, train_s),
            ("tokens generated per second", B * length / gen, B * mean / gen_s),
            ("tokens trained on per second", B * length / train, B * mean / train_s),
            ("tokens of a response", length, mean)]
    rows = [(name, *(f"{x:,.2f}" if x < 10 else f"{x:,.0f}" for x in pair))
            for name, *pair in rows]
    return [*rows, ("share of responses cut off", f"{cut:.1%}", f"{cost.CUT:.1%}")]


def last_line(path):
    """Return the last line of a step's output, "not run" if there is none."""
    lines = path.read_text().strip() if path.exists() else ""
    return lines.split("\n")[-1].strip() or "not run"


def measurements(path):
    """Return the indented lines of a step's output, or `last_line`. vLLM's progress bars are not
    indented.
    """
    lines = path.read_text().split("\n") if path.exists() else []
    return "\n".join(line[2:] for line in lines if line.startswith("  ")) or last_line(path)


def page(folder):
    """Return the text of results/gpu.md."""
    packages = {d.name: d.version for d in importlib.metadata.distributions()}
    compiler = shutil.which("gcc") or shutil.which("clang")
    rows = [("system", platform.platform()),
            ("Python, compiler", f"{platform.python_version()}, {compiler}"),
            ("packages", ", ".join(f"{name} {packages.get(name)}" for name in PACKAGES)),
            ("cores", os.cpu_count()), ("commit", machine.commit())]
    rows += [(what, last_line(folder / f"{name}.txt")) for name, what in STEPS.items()]
    text = HEAD + "".join(f"| {what} | {value} |\n" for what, value in rows)
    text += ("\nTwo cells of the sweep for one evening ([docs/gpu.md](../docs/gpu.md)) were "
             "trained for ten updates. The measured\nnumbers are medians over the last eight "
             "updates. The expected numbers are those of `core/cost.py` for one H100.\n")
    for name, what in CELLS.items():
        log = folder / name / "log.jsonl"
        text += f"\n| {what} | measured | expected |\n|---|---|---|\n"
        if log.exists() and any(r["type"] == "step" for r in read_log(log)):
            text += "".join(f"| {row} | {a} | {b} |\n" for row, a, b in measured(log))
        else:
            text += f"| a run | {last_line(folder / f'{name}.txt')} | |\n"
    for name, what in BENCHES.items():
        text += f"\n{what}:\n\n```text\n{measurements(folder / f'{name}.txt')}\n```\n"
    return text


if __name__ == "__main__":
    folder, out = Path(sys.argv[1]), Path([*sys.argv, ROOT / "results/gpu.md"][2])
    out.write_text(page(folder))
    print(f"{out}: written; please look at it before you send it")
