"""Compare the start-up time of scripts with that of a bare interpreter and of `import torch`.

    python tests/bench/start_up.py

Prints medians of 7 starts taken in turn, and their ratio to `python -c "import numpy"`.
"""
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = {"import numpy": ["-c", "import numpy"],
            "frontier.py --help": ["frontier.py", "--help"],
            "fit_sigmoid.py --help": ["fit_sigmoid.py", "--help"],
            "train_grpo.py --help": ["train_grpo.py", "--help"],
            "import torch": ["-c", "import torch"]}

times = {name: [] for name in COMMANDS}
for _ in range(7):
    for name, words in COMMANDS.items():
        start = time.perf_counter()
        subprocess.run([sys.executable, *words], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        times[name].append(time.perf_counter() - start)
base = statistics.median(times["import numpy"])
for name, t in times.items():
    print(f"{name:24s} {statistics.median(t):6.2f} s   {statistics.median(t) / base:5.1f} x   "
          f"(from {min(t):.2f} to {max(t):.2f})")
