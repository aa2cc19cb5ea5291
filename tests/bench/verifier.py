"""Measure the cost of processes that can be killed: core/sandbox.py against bare math-verify.

    OMP_NUM_THREADS=2 python tests/bench/verifier.py [REPETITIONS]

Both use 2 processes and grade the same 2,000 distinct pairs, which are those of tests/pairs.txt
with other numbers. They take turns, each time with fresh processes that have graded a few pairs.
Bare math-verify runs with its defaults, including its timeouts, which do not interrupt C code.
Prints pairs/s of both, the median and range of the ratio of times, and pairs/s if 1% of the answers
hang for 1 s each.
"""
import logging
import multiprocessing
import re
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
from core import math_answers, sandbox  # noqa: E402
from test_verifier import HANGS, PAIRS, check_math, close  # noqa: E402

CFG, N = dict(verify_s=20.0, verify_bytes=1024), 2000


def other_numbers(text, k):
    """Return the text with k added to every number of one or two digits."""
    return re.sub(r"(?<![\d.])\d{1,2}(?![\d.])", lambda m: str(int(m[0]) + k), text)


def bare_half(pairs, barrier):
    from math_verify import parse, verify
    logging.disable(logging.CRITICAL)
    for gold, answer in math_answers.WARM:
        verify(parse(rf"\boxed{{{gold}}}"), parse(rf"\boxed{{{answer}}}"))
    barrier.wait()
    for gold, text in pairs:
        verify(parse(rf"\boxed{{{gold}}}"), parse(text))
    barrier.wait()


def bare(pairs):
    """Return the seconds of 2 processes, each with half of the pairs."""
    barrier = multiprocessing.Barrier(3)
    halves = [multiprocessing.Process(target=bare_half, args=(pairs[i::2], barrier))
              for i in range(2)]
    for process in halves:
        process.start()
    barrier.wait()
    start = time.perf_counter()
    barrier.wait()
    return time.perf_counter() - start


def ours(pairs, cfg=CFG):
    pool = sandbox.Pool("math", 2)
    sandbox.pool = lambda kind: pool
    # start both processes
    check_math([(str(i), rf"\boxed{{{i}}}") for i in range(20)], cfg)
    start = time.perf_counter()
    verdicts = check_math(pairs, cfg)
    seconds = time.perf_counter() - start
    close(pool)
    return seconds, verdicts


if __name__ == "__main__":
    if "--help" in sys.argv:
        sys.exit(print(__doc__))
    pairs = list(dict.fromkeys((other_numbers(gold, k),
                                rf"So it is $\boxed{{{other_numbers(answer, k)}}}$.")
                               for k in range(9) for gold, answer, _ in PAIRS))[:N]
    times = []
    for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 3):
        times.append((ours(pairs)[0], bare(pairs)))
        print(f"verifier.py {len(pairs) / times[-1][0]:6.1f} pairs/s   bare math-verify "
              f"{len(pairs) / times[-1][1]:6.1f} pairs/s", flush=True)
    ratios = [mine / theirs for mine, theirs in times]
    print(f"{len(pairs)} pairs: time {statistics.median(ratios):.3f} x of bare math-verify's   "
          f"(from {min(ratios):.3f} to {max(ratios):.3f})")
    mixed = [("7919", rf"\boxed{{{HANGS}+{i}}}") if i % 100 == 50 else pair
             for i, pair in enumerate(pairs)]
    seconds, verdicts = ours(mixed, CFG | dict(verify_s=1.0))
    print(f"1% that hang: {len(pairs) / seconds:.1f} pairs/s, "
          f"{verdicts.count(sandbox.TIMEOUT)} timeouts of 1 s")
