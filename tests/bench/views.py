"""What all views with their intervals cost: seconds, memory, and growth with the number of
evaluations.

    python tests/bench/views.py  # 60 runs x 2,000 evaluations x 300 problems, and x 500; 3 minutes

Prints seconds and peak memory of `frontier.py --view=all` and `fit_sigmoid.py` for both sizes, and
the ratio of their times over the ratio of their evaluations: below 1 is less than linear growth.
"""
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
from config import append  # noqa: E402
from simulate import paper, simulate  # noqa: E402


def cost(evals, folder):
    """Seconds of the analysis of 60 runs (4 B_p, 5 n, 3 seeds), and the largest memory of the two
    scripts so far in GiB."""
    logs = simulate(folder, ns=(8, 16, 32, 64, 128), B_ps=(4, 8, 16, 32), seeds=(0, 1, 2),
                    C=8_192_000, evals=evals, truth=paper(), run_sd=0.006, drift=0.004)
    for log in logs.values():
        with open(log, "ab", buffering=0) as file:
            append(file, dict(type="train_pass", step=1, rollouts=2_048_000, ids=list(range(300)),
                              samples=[8] * 300, correct=[i % 9 for i in range(300)]))
    size = sum(log.stat().st_size for log in logs.values()) / 2 ** 20
    start = time.time()
    for script in ("frontier.py", "fit_sigmoid.py"):
        view = ["--view=all"] if script == "frontier.py" else []
        done = subprocess.run([sys.executable, ROOT / script, f"--runs={folder}", *view],
                              capture_output=True, text=True)
        said = done.stdout[-2000:] + done.stderr
        assert done.returncode == 0 and "not drawn" not in done.stdout, said
    seconds = time.time() - start
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2 ** 20
    what = f"{len(logs)} runs x {evals} evaluations x 300 problems, {size:.0f} MiB of logs"
    print(f"{what}: {seconds:.1f} s, {memory:.2f} GiB", flush=True)
    return seconds


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as few, tempfile.TemporaryDirectory() as many:
        small, large = cost(500, f"{few}/sweep"), cost(2000, f"{many}/sweep")
    print(f"4 times the evaluations: {large / small:.2f} times the time, {large / small / 4:.2f} "
          "of linear growth")
