"""Test sample.py's table: the share of groups whose rewards would all be equal, for each n."""
import itertools

import numpy as np
import pytest

import sample
from config import parse
from core.log import read_log
from conftest import ROOT


def test_no_signal_is_the_share_of_subsets():
    """sample.no_signal equals a count over all subsets of n of a problem's rollouts."""
    for drawn, correct, n in ((6, 2, 3), (6, 0, 4), (5, 5, 2), (7, 4, 4), (6, 3, 4)):
        rollouts = [1] * correct + [0] * (drawn - correct)
        alike = [len(set(group)) == 1 for group in itertools.combinations(rollouts, n)]
        assert sample.no_signal(n, drawn)[correct] == pytest.approx(np.mean(alike))


def test_rows_are_unbiased_for_all_problems_and_for_a_split():
    """The table is right for problems with known pass rates.

    A row of a split must not use the rollouts that chose the split, because they would be off by
    5 points or more.
    """
    rng = np.random.default_rng(3)
    rates = rng.beta(0.6, 1.0, 20000)
    first, second = rng.binomial(16, rates), rng.binomial(16, rates)
    cfg = parse(["--s=16", "--s_zero=128", "--n_val=10"])
    problems = [dict(id=str(i), prompt=f"{i}", answer="1") for i in range(len(rates))]
    # a problem with 1 of 16 solved gets no second 16 rollouts, because its level is known
    counts = {str(i): {0: 0, 16: int(a)} | ({32: int(a + b)} if a != 1 else {})
              for i, (a, b) in enumerate(zip(first, second))}
    splits = sample.make_splits(problems, counts, cfg)
    rows = {line[4:19].strip(): [int(word.strip("%")) / 100 for word in line[19:].split()]
            for line in list(sample.signal_table(splits, counts, cfg))[2:]}
    assert list(rows) == ["all problems", "easy", "very_easy"]
    chosen = dict.fromkeys(rows, np.full(len(rates), True))
    chosen["easy"] = (first >= 5) & (first <= 9)
    chosen["very_easy"] = (first >= 10) & (first <= 14)
    for name, shares in rows.items():
        p = rates[chosen[name]]
        for n, share in zip((4, 8, 16), shares, strict=True):
            assert share == pytest.approx((p ** n + (1 - p) ** n).mean(), abs=0.015), (name, n)
    flattered = np.take(sample.no_signal(4, 16), first[chosen["easy"]]).mean()
    assert rows["easy"][0] - flattered > 0.05


def test_the_page_shows_what_sample_prints():
    """docs/analysis.md has the table that sample.py prints for the committed pass rates."""
    text = (ROOT / "docs/analysis.md").read_text()
    cfg = parse(["--s_zero=128"])
    counts = {}
    for r in read_log(ROOT / "data/arithmetic/base/pass_rates.jsonl.gz")[1:]:
        counts.setdefault(r["id"], {0: 0})[r["samples"]] = r["correct"]
    problems = [dict(id=name, prompt=name) for name in sorted(counts)]  # in the file's order
    lines = sample.signal_table(sample.make_splits(problems, counts, cfg), counts, cfg)
    assert "\n".join(lines) in text


