"""Measure the time and memory of frontier.py --view=all and fit_sigmoid.py over the number of runs.

    python tests/bench/views.py            # 10, 100, 1,000 and 3,000 runs
    python tests/bench/views.py 252        # another number of runs

The runs are planted in the paper's Easy grid: B_p = 32 to 1,024 and n = 8 to 2,048 up to
B = 65,536, which gives 39 pairs (B_p, n). Runs beyond 39 are further seeds. A run has 61
evaluations on 128 problems. Prints for each number of runs the CPU seconds of both scripts, the
memory, and the exponent with which the seconds grew since the number before.
"""
import math
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
from simulate import paper, simulate  # noqa: E402

PAIRS = [(2 ** i, 2 ** j) for i in range(5, 11) for j in range(3, 12) if 2 ** (i + j) <= 65536]


def plant(folder, runs):
    """Write this many runs, spread evenly over the pairs (B_p, n)."""
    for i, (B_p, n) in enumerate(PAIRS[:runs]):
        seeds = range(runs // len(PAIRS) + (i < runs % len(PAIRS)))
        simulate(folder, ns=[n], B_ps=(B_p,), seeds=seeds, C=4_000_000, evals=61, P=128,
                 truth=paper(), run_sd=0.01)


def cpu_of(*words):
    """Return the CPU seconds of a Python script. words: its path and its command-line words."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], cwd=ROOT, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(sizes):
    before = None
    for runs in sizes:
        with tempfile.TemporaryDirectory() as folder:
            plant(folder, runs)
            views = cpu_of("frontier.py", "--view=all", f"--runs={folder}")
            report = cpu_of("fit_sigmoid.py", f"--runs={folder}")
        growth = ""
        if before:
            power = math.log((views + report) / before[1]) / math.log(runs / before[0])
            growth = f"; over {before[0]} runs to the power {power:.2f}"
        gigabytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
        print(f"{runs} runs: frontier.py --view=all {views:.1f} s, fit_sigmoid.py {report:.1f} s "
              f"of CPU, at most {gigabytes:.2f} GB{growth}", flush=True)
        before = runs, views + report


if __name__ == "__main__":
    if "--help" in sys.argv:
        sys.exit(print(__doc__))
    main([int(word) for word in sys.argv[1:]] or [10, 100, 1000, 3000])
