"""Test tests/gpu_report.sh and .py, which fill results/gpu.md in on a machine with a GPU."""
import os
import re
import subprocess
import sys

from conftest import executable, linked, logs
from gpu_report import CELLS


def test_one_command_fills_the_page_in(swept, tmp_path):
    """Run the script with a `python` that answers for the GPU and copies a real log for both cells.

    The page reports a step that fails, with its exit code.
    """
    (log,) = [swept[0] / run / "log.jsonl" for run in logs(swept[0]) if "_n4_" in run]
    called = tmp_path / "called"
    python = executable(tmp_path / "python", f"""
echo "$*" >> '{called}'
case "$*" in
    core/probe.py*) echo '{{"gpus": 1, "why": ""}}' ;;
    "-m pytest"*) echo '1 failed, 6 passed in 60.00s'; exit 1 ;;
    tests/bench/gpu.py*) echo 'NVIDIA Card, torch 2'; echo '  0.5B: update 1.0 s' ;;
    data/gsm8k/prepare.py*|sample.py*) echo made ;;
    train_grpo.py*) for word; do case "$word" in --out=*) out=${{word#--out=}} ;; esac; done
        mkdir -p "$out"; cp '{log}' "$out/log.jsonl" ;;
    tests/gpu_report.py*) exec '{sys.executable}' "$@" '{tmp_path}/page.md' ;;
    *) exec '{sys.executable}' "$@" ;;
esac
""")
    done = subprocess.run(["bash", "tests/gpu_report.sh"], cwd=linked(tmp_path / "clone"),
                          capture_output=True, text=True,
                          env=os.environ | dict(PYTHON=str(python)))
    assert done.returncode == 0, done
    page = (tmp_path / "page.md").read_text()
    assert '| {"gpus": 1, "why": ""} |' in page and "FAILED (1)" in page and "0.5B: update" in page
    for cell in CELLS.values():
        assert f"| {cell} | measured | expected |" in page
    rows = re.findall(r"^\| (tokens generated per second|seconds of an update, all in all) \| "
                      r"([\d.,]+) \| ([\d.,]+) \|$", page, re.M)
    assert len(rows) == 4 and "not run" not in page
    trained = [line for line in called.read_text().splitlines() if line.startswith("train_grpo")]
    assert len(trained) == 2
    for line, n in zip(trained, (4, 64)):  # ten updates of the evening's cell
        words = dict(word.split("=", 1) for word in line.split()[1:])
        assert int(words["--n"]) == n and int(words["--C"]) == 10 * 8 * n
        assert words["--max_new_tokens"] == "768" and words["--out"] == f"runs/gpu_report/n{n}"
