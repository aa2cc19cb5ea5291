"""Seconds and memory from logs to figures and report, and how they grow with the number of runs.

    python tests/bench/views.py            # 10, 100, 1,000 and 3,000 runs, all views and the report
    python tests/bench/views.py 252        # other numbers of runs, of the same kind

Planted runs of the paper's Easy grid, B_p = 32 to 1,024 and n = 8 to 2,048 up to B = 65,536, with
61 evaluations on 128 problems. There are 39 pairs (B_p, n); more runs are more seeds. Prints the
CPU seconds of frontier.py --view=all and of fit_sigmoid.py, each in its own process, and the
exponent of the growth over runs.
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
    """Make this many runs of the pairs (B_p, n), with equal numbers of seeds."""
    for i, (B_p, n) in enumerate(PAIRS[:runs]):
        seeds = range(runs // len(PAIRS) + (i < runs % len(PAIRS)))
        simulate(folder, ns=[n], B_ps=(B_p,), seeds=seeds, C=4_000_000, evals=61, P=128,
                 truth=paper(), run_sd=0.01)


def cpu_of(*words):
    """Return the CPU seconds of a script with these words."""
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
            page = cpu_of("fit_sigmoid.py", f"--runs={folder}")
        growth = ""
        if before:
            power = math.log((views + page) / before[1]) / math.log(runs / before[0])
            growth = f"; over {before[0]} runs to the power {power:.2f}"
        gigabytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
        print(f"{runs} runs: frontier.py --view=all {views:.1f} s, fit_sigmoid.py {page:.1f} s of "
              f"CPU, at most {gigabytes:.2f} GB{growth}", flush=True)
        before = runs, views + page


if __name__ == "__main__":
    if "--help" in sys.argv:
        sys.exit(print(__doc__))
    main([int(word) for word in sys.argv[1:]] or [10, 100, 1000, 3000])
