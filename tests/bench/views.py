"""From logs to figures and page at the scale of a node: seconds, memory, and how they grow.

    python tests/bench/views.py              # 10, 100 and the paper's grid of 252 runs, all views
    python tests/bench/views.py 1000 3000    # other numbers of runs, of the same kind

Planted runs of 244 evaluations on 300 problems with counts, B_p = 32 to 1,024, n = 8 to 2,048. CPU
seconds of frontier.py --view=all and of fit_sigmoid.py in processes of their own, and the exponent
of the growth over runs.
"""
import contextlib
import io
import math
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
from simulate import paper, simulate  # noqa: E402


def plant(folder, runs):
    """So many runs: the paper's 42 pairs (B_p, n) below B = 65,536, then more seeds."""
    sizes = [2 ** i for i in range(5, 11)]
    pairs = sum(B_p * n <= 65536 for B_p in sizes for n in (2 ** j for j in range(3, 12)))
    if runs < pairs:
        sizes, seeds = sizes[:max(1, runs // 9)], 1
    else:
        seeds = math.ceil(runs / pairs)
    of_n = paper()
    for B_p in sizes:
        ns = [2 ** j for j in range(3, 12) if B_p * 2 ** j <= 65536]
        with contextlib.redirect_stdout(io.StringIO()):
            simulate(folder, ns=ns, B_ps=(B_p,), seeds=range(seeds), C=4_000_000, evals=244, P=300,
                     truth=lambda B, n, C: of_n(B, n, C))
    return len(list(Path(folder).glob("*/log.jsonl*")))


def main(sizes):
    before = None
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            runs, took = plant(folder, size), []
            for words in (["frontier.py", "--view=all"], ["fit_sigmoid.py"]):
                was = resource.getrusage(resource.RUSAGE_CHILDREN)
                subprocess.run([sys.executable, *words, f"--runs={folder}"], cwd=ROOT, check=True,
                               capture_output=True)
                now = resource.getrusage(resource.RUSAGE_CHILDREN)
                took.append(now.ru_utime + now.ru_stime - was.ru_utime - was.ru_stime)
            size_of = (Path(folder) / "frontier.json").stat().st_size / 1e6
        growth = ""
        if before:
            growth = (f"; over {before[0]} runs to the power "
                      f"{math.log(sum(took) / before[1]) / math.log(runs / before[0]):.2f}")
        print(f"{runs} runs: frontier.py --view=all {took[0]:.1f} s, fit_sigmoid.py {took[1]:.1f} s"
              f" of CPU, at most {now.ru_maxrss / 1e6:.2f} GB; frontier.json {size_of:.1f} MB"
              f"{growth}", flush=True)
        before = runs, sum(took)


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or [10, 100, 252])
