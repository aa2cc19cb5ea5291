"""sample.py's last lines: the share of groups without a signal."""
import itertools
import json

import numpy as np
import pytest

import sample
from config import parse
from core.log import read_log
from conftest import ROOT, run_script


@pytest.fixture(scope="module")
def planted():
    """Problems with known pass rates: (rates (P,), counts of 16 rollouts (P,))."""
    rng = np.random.default_rng(3)
    rates = rng.beta(0.6, 1.0, 6000)
    return rates, rng.binomial(16, rates)


def test_all_alike_is_the_share_of_subsets():
    """Every subset of n of a problem's rollouts, counted one by one."""
    for drawn, correct, n in ((6, 2, 3), (6, 0, 4), (5, 5, 2), (7, 4, 4), (6, 3, 4)):
        rollouts = [1] * correct + [0] * (drawn - correct)
        alike = [len(set(group)) == 1 for group in itertools.combinations(rollouts, n)]
        assert sample.all_alike(n, drawn)[correct] == pytest.approx(np.mean(alike))
    with pytest.raises(ValueError):
        sample.all_alike(7, 6)


def test_all_alike_is_unbiased_over_all_problems(planted):
    rates, counts = planted
    for n in (4, 8, 16):
        truth = (rates ** n + (1 - rates) ** n).mean()
        got = np.take(sample.all_alike(n, 16), counts).mean()
        assert got == pytest.approx(truth, abs=0.012)


@pytest.mark.parametrize("low, high", [(0.3, 0.6), (0.0, 0.0625), (0.6, 0.9)])
def test_a_split_chosen_by_its_own_counts(planted, low, high):
    """Fresh rollouts of the chosen problems: the counts that chose them would err by a lot."""
    rates, counts = planted
    law = sample.pass_rate_law([(int(c), 16) for c in counts])
    chosen = (counts / 16 >= low) & (counts / 16 <= high)
    kinds = [(int(c), 16) for c in counts[chosen]]
    for n in (4, 8, 16, 32):
        truth = (rates[chosen] ** n + (1 - rates[chosen]) ** n).mean()
        assert sample.no_signal(kinds, law, n) == pytest.approx(truth, abs=0.03), n
    own = np.mean([sample.all_alike(4, 16)[c] for c, _ in kinds])
    fresh = (rates[chosen] ** 4 + (1 - rates[chosen]) ** 4).mean()
    assert abs(own - fresh) > 0.025 > abs(sample.no_signal(kinds, law, 4) - fresh)


def test_more_rollouts_of_some_problems_count(planted):
    """Never solved in 128 tries is surer than in 16, and the share says so."""
    _, counts = planted
    every = [(int(c), 16) for c in counts] + [(0, 128)] * 300
    law = sample.pass_rate_law(every)
    assert sample.no_signal([(0, 128)], law, 16) > sample.no_signal([(0, 16)], law, 16) + 0.02


def test_the_lines(planted):
    _, counts = planted
    cfg = parse(["--s=16", "--s_zero=0", "--n_val=10"])
    problems = [dict(id=str(i), prompt=f"{i}", answer="1") for i in range(len(counts))]
    by_id = {str(i): {0: 0, 16: int(c)} for i, c in enumerate(counts)}
    splits = sample.make_splits(problems, by_id, cfg)
    text = "\n".join(sample.signal_table(splits, by_id, cfg))
    rows = {line[4:19].strip(): line[19:].split() for line in text.splitlines()}
    # of all problems exact, and as far as their rollouts go
    for n, share in zip((4, 8, 16), rows["all problems"], strict=True):
        assert share == f"{np.take(sample.all_alike(n, 16), counts).mean():.0%}"
    assert "exact, hypergeometric" in text and "extreme" not in text
    shares = [int(word.strip("%")) for word in rows["easy"]]
    assert len(shares) == 5 and shares == sorted(shares, reverse=True)


def test_the_page_shows_what_sample_prints():
    """The table of docs/takehome.md, from the pass rates that are committed; and what the rollouts
    after the first 16, which chose the split, say of Easy."""
    text = (ROOT / "docs/takehome.md").read_text()
    cfg = parse(["--s_zero=128"])
    counts = {}
    for r in read_log(ROOT / "data/arithmetic/base/pass_rates.jsonl.gz")[1:]:
        counts.setdefault(r["id"], {0: 0})[r["samples"]] = r["correct"]
    problems = [dict(id=name, prompt=name) for name in sorted(counts)]  # as in their file
    lines = list(sample.signal_table(sample.make_splits(problems, counts, cfg), counts, cfg))
    block = text.split("  Is n too small?")[1].split("```")[0].splitlines()[1:]
    assert len(block) == 4
    for line in block:
        assert line in lines, line
    alike = []
    for c in counts.values():
        if 0.3 <= c[16] / 16 <= 0.6 and max(c) > 16:
            alike.append(sample.all_alike(4, max(c) - 16)[c[max(c)] - c[16]])
    assert (f"later rollouts of its {len(alike):,} problems give {np.mean(alike):.0%}"
            in " ".join(text.split()))


def test_sample_ends_with_the_table(tmp_path):
    """As a user starts it."""
    problems = tmp_path / "p.jsonl"
    problems.write_text("".join(json.dumps(dict(id=str(i), prompt=f"{i}+2=", answer=str(i + 2)))
                                + "\n" for i in range(12)))
    words = (f"--problems={problems}", f"--out={tmp_path / 'out'}", "--s=4", "--s_zero=0",
             "--n_val=1", "--max_new_tokens=4")
    done = run_script("sample.py", *words)
    assert done.code == 0, done.stderr
    assert done.stdout.count("Is n too small?") == 1
    assert done.stdout.splitlines()[-1].endswith("difficulty.png")
