"""data/arithmetic: the problems, the texts, the base model, and what of its responses decides the reward."""
import collections
import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import binom, binomtest

import engine
import sample
import verifier

CFG = dict(temperature=0.6, top_p=1.0, max_new_tokens=20, gen_batch=1200, verifier="exact")  # as the embedded defaults.json
LEVELS = tuple(sample.LEVELS)
ALPHA = 1e-6  # chance that a test of frequencies fails on right code, for a seed that nobody looked at; the seeds are fixed


@pytest.fixture(scope="module")
def base(world):
    return engine.load_model(world.base)


@pytest.fixture(scope="module")
def very_easy(world):
    return sample.read_problems(world.splits / "very_easy_val.jsonl")


def texts(prepare, N, K, skills, seed=0):
    """N texts of K columns -> operands, and the texts as lists of tokens without padding: (op, a, b, prompts, responses)."""
    rng = np.random.default_rng(seed)
    op, a, b = prepare.make_operands(rng, N, K)
    prompt, response = prepare.make_texts(rng, op, a, b, skills)
    strings = [[[prepare.VOCAB[i] for i in row if i != prepare.PAD] for row in part] for part in (prompt, response)]
    return op, a, b, *strings


def columns(response):
    """The totals of a response with steps, lowest column first, and the digits of its answer."""
    text = "".join(response).removesuffix("<eos>")
    steps, answer = text.split("#")
    return [int(t) for t in re.findall(r"[a-p]{2}(\d\d)", steps)], answer


def continued(base, problems, prefixes, n, seed, **more):
    """n rollouts of each prompt + prefix -> the share that is right, (P, n), and the texts, prefix included."""
    model, tokenizer = base
    ids = tokenizer([p["prompt"] + prefix for p, prefix in zip(problems, prefixes)])["input_ids"]
    seeds = [engine.rollout_seed(seed, j) for j in range(len(ids))]
    rollouts = engine.generate(model, tokenizer, ids, n, seeds, CFG | more)
    written = tokenizer.batch_decode([t[:k] for t, k in zip(rollouts["tokens"].tolist(), rollouts["length"].tolist())],
                                     skip_special_tokens=True)
    whole = [prefixes[i // n] + text for i, text in enumerate(written)]
    right = [verifier.exact(problems[i // n], text, CFG) for i, text in enumerate(whole)]
    return np.array(right).reshape(-1, n), np.array(whole).reshape(-1, n)


# ---------------------------------------------------------------------------------------------------------------------
# Problems and texts

def test_problems_are_unique_and_their_answers_right(world):
    problems = sample.read_problems(world.problems)  # refuses a second use of an id
    assert len({p["prompt"] for p in problems}) == len(problems)
    for p in problems:
        x, op, y = re.fullmatch(r"([1-9]\d*)([+-])([1-9]\d*)=", p["prompt"]).groups()
        assert p["answer"] == str(int(x) + int(y) if op == "+" else int(x) - int(y)) and int(p["answer"]) >= 0
    kinds = collections.Counter((re.sub(r"\d", "", p["prompt"]), len(p["prompt"])) for p in problems)
    assert len(kinds) == 6 and min(kinds.values()) > 0.1 * len(problems)  # both operations, two to four digits


def test_the_same_problems_for_every_base_model(prepare, world):
    again = prepare.make_problems(np.random.default_rng(0), 50)
    assert sample.read_problems(world.problems)[:50] == again


@pytest.mark.parametrize("K", [2, 3, 4])
def test_texts_with_perfect_skills_are_right(prepare, K):
    op, a, b, prompts, responses = texts(prepare, 400, K, np.ones((2, 10, 10, 2)))
    direct = 0
    for prompt, response in zip(prompts, responses):
        x, sign, y = re.fullmatch(r"(\d+)([+-])(\d+)=", "".join(prompt)).groups()
        totals, answer = columns(response)
        assert response[-1] == "<eos>" and answer == str(int(x) + int(y) if sign == "+" else int(x) - int(y))
        if not totals:
            direct += 1
            continue
        # digit by digit from the right, as in the docstring of prepare.py
        carry, right = 0, []
        for i, j in zip(reversed(x), reversed(y)):
            right.append(int(i) + int(j) + carry if sign == "+" else 10 + int(i) - int(j) - carry)
            carry = int(right[-1] >= 10) if sign == "+" else int(right[-1] < 10)
        assert totals == right
    assert 0 < direct < 40  # of 400, at 3%


def test_texts_slip_at_the_stated_rates(prepare):
    skills = prepare.make_skills(np.random.default_rng(5))
    assert skills.min() >= 0.001 and skills.max() <= 1 and 0.5 < np.mean(skills > 0.9) < 0.8
    seen, right = np.zeros(skills.shape, int), np.zeros(skills.shape, int)
    wrong, direct, N = collections.Counter(), 0, 20_000
    for op, a, b, _, response in zip(*texts(prepare, N, 3, skills)):
        totals, answer = columns(response)
        direct += not totals
        carry = 0
        for j, total in enumerate(totals):
            truth = a[j] + b[j] + carry if op == 0 else 10 + a[j] - b[j] - carry
            cell = op, a[j], b[j], carry
            seen[cell] += 1
            right[cell] += total == truth
            wrong.update([(total - truth) % 20] if total != truth else [])
            carry = int(total >= 10) if op == 0 else int(total < 10)  # as written: a slip goes on
        if totals:  # the answer is read off the totals
            digits = "".join(str(t % 10) for t in totals[::-1])
            assert answer == str(int(("1" if op == 0 and carry else "") + digits))
    assert binomtest(direct, N, prepare.DIRECT).pvalue > ALPHA
    # all 400 skills at once, Bonferroni: the one that fits least
    low, high = binom.cdf(right, seen, skills), binom.sf(right - 1, seen, skills)
    assert (2 * np.minimum(low, high)).min() > ALPHA / skills.size and seen.min() > 20
    # 19 wrong totals, all alike
    assert set(wrong) == set(range(1, 20))
    assert min(binomtest(c, sum(wrong.values()), 1 / 19).pvalue for c in wrong.values()) > ALPHA / 19


def test_idle_letters_are_uniform(prepare):
    responses = texts(prepare, 5000, 2, np.ones((2, 10, 10, 2)))[-1]
    letters = collections.Counter(token for response in responses for token in response if token.isalpha())
    assert set(letters) == set(prepare.LETTERS)
    assert min(binomtest(c, sum(letters.values()), 1 / 16).pvalue for c in letters.values()) > ALPHA / 16


def test_the_tokenizer_gives_the_texts_back(prepare, base):
    """The trained texts are token ids: what transformers loads from the folder must read and write the same ids."""
    half = np.full((2, 10, 10, 2), 0.5)
    for tokenizer in (prepare.make_tokenizer(), base[1]):
        assert (tokenizer.pad_token_id, tokenizer.eos_token_id) == (prepare.PAD, prepare.EOS)
        assert len(tokenizer) == len(prepare.VOCAB)
        for prompt, response in itertools.chain(*(zip(*texts(prepare, 100, K, half)[-2:]) for K in (2, 3, 4))):
            ids, text = [prepare.ID[t] for t in prompt + response], "".join(prompt + response[:-1])
            assert tokenizer(text)["input_ids"] == ids[:-1] and tokenizer("".join(prompt))["input_ids"] == ids[:len(prompt)]
            assert tokenizer.decode(ids, skip_special_tokens=True) == text


# ---------------------------------------------------------------------------------------------------------------------
# The base model

def test_training_is_deterministic(prepare):
    threads = torch.get_num_threads()
    try:
        first, again, other = (prepare.train_base(seed, 96, 5).state_dict() for seed in (0, 0, 1))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first if "norm" not in name)


def test_steps_matter(base, very_easy):
    """Cut the steps out, so that the answer comes at once, and the accuracy falls by a wide margin."""
    with_steps, written = continued(base, very_easy, [""] * 300, 4, "steps")
    at_once, _ = continued(base, very_easy, ["#"] * 300, 4, "steps")
    difference = with_steps.mean(1) - at_once.mean(1)
    error = difference.std(ddof=1) / np.sqrt(300)
    assert with_steps.mean() > 0.6 and difference.mean() - 4 * error > 0.4, (with_steps.mean(), at_once.mean(), error)
    # nearly all responses have steps: it is them that training sees
    assert np.mean([bool(re.match(r"[a-p]{2}\d\d", text)) for text in written.flat]) > 0.9


@pytest.mark.parametrize("columns_kept", [1, 4])
def test_idle_text_does_not_matter(base, very_easy, columns_kept):
    """Right responses are cut behind their first column or behind '#', their letters replaced, and the model goes on."""
    right, written = continued(base, very_easy, [""] * 300, 2, "idle")
    problems, prefixes = [], []
    for p, ok, text in zip(very_easy, right.flat[::2], written.flat[::2]):
        steps = re.match(r"([a-p]{2}\d\d)+", text)
        if ok and steps:
            problems.append(p)
            prefixes.append(text[:4] if columns_kept == 1 else steps.group() + "#")
    rng = np.random.default_rng(0)
    others = [re.sub("[a-p]", lambda _: "abcdefghijklmnop"[rng.integers(16)], prefix) for prefix in prefixes]
    assert len(problems) > 150 and np.mean([x != y for x, y in zip(prefixes, others)]) > 0.9
    kept, _ = continued(base, problems, prefixes, 8, "go on")
    replaced, _ = continued(base, problems, others, 8, "go on again")
    difference = kept.mean(1) - replaced.mean(1)
    error = difference.std(ddof=1) / np.sqrt(len(problems))
    assert error < 0.02 and abs(difference.mean()) < 4 * error + 0.005, (kept.mean(), replaced.mean(), error)
    if columns_kept == 4:  # the totals do matter: one digit off, and the answer that is read off them is wrong
        off = [text[:3] + str((int(text[3]) + 1) % 10) + text[4:] for text in prefixes]
        assert continued(base, problems, off, 2, "off")[0].mean() < 0.03
        # and the letters are no copy of anything: what the model writes is spread over all of them
        counts = collections.Counter(c for text in written.flat for c in text if c.isalpha())
        assert set(counts) == set("abcdefghijklmnop") and max(counts.values()) < 2 * min(counts.values())
        assert kept.mean() > 0.97  # with the right totals before it, the answer is read off


# ---------------------------------------------------------------------------------------------------------------------
# Difficulty

def test_splits_hold_what_the_paper_needs(world):
    bands, part_of = dict(easy=(0.3, 0.6), hard=(0, 0.0625), very_easy=(0.6, 0.9)), {}
    known = {p["id"]: p for p in sample.read_problems(world.problems)}
    for name in ("easy", "hard", "very_easy", "extreme", "mixed"):
        for part in ("train", "val"):
            path = world.splits / f"{name}_{part}.jsonl"
            if name == "extreme" and not path.exists():
                continue  # where it was not measured, s_zero=0
            problems = sample.read_problems(path)
            if name in bands:
                assert len(problems) >= 1000 if part == "train" else len(problems) == 300
                assert all(bands[name][0] <= p["pass_rate"] <= bands[name][1] for p in problems)
            for p in problems:
                assert (p["prompt"], p["answer"]) == (known[p["id"]]["prompt"], known[p["id"]]["answer"])
                assert part_of.setdefault(p["id"], part) == part, f"{p['id']} is in training and in validation"


def test_pass_rates_cover_everything(world):
    rates = {}
    for line in (world.splits / "pass_rates.jsonl").read_text().splitlines():
        r = json.loads(line)
        if r.get("samples") == 16:
            rates[r["id"]] = r["correct"] / 16
    assert len(rates) == len(sample.read_problems(world.problems))
    counts = np.histogram(list(rates.values()), bins=np.linspace(0, 1, 9))[0]
    assert counts.min() >= 200 and 0 in rates.values() and 1 in rates.values(), counts
    # where none was right in 16, all from 0 to 1 in 16 is Hard: 300 with pass@128 = 0 need enough of them
    assert np.mean(np.array(list(rates.values())) == 0) * len(rates) > 600


def test_splits_from_planted_counts():
    """Every count from 0 to 16; of those with none right in 16, every fifth none in 128; of those with 8, every third 64 of 128."""
    problems, counts = [dict(id=str(i), prompt=str(i), answer=str(i)) for i in range(3400)], {}
    for i in range(3400):
        counts[str(i)] = {0: 0, 16: i % 17}
        if i % 17 == 0:
            counts[str(i)] |= {32: i % 5, 64: i % 5, 128: i % 5} if i % 5 == 0 else {32: i % 5}
        if i % 17 == 8:
            counts[str(i)] |= {128: 64} if i % 3 == 0 else {128: 30}
    cfg = dict(s=16, s_zero=128, n_val=20, levels="extreme level_easy level_very_easy")
    splits = sample.make_splits(problems, counts, cfg)
    ids = {(name, part): [p["id"] for p in split[part]] for name, split in splits.items() for part in split}
    held = {i for (name, part), members in ids.items() if part == "val" for i in members}
    want = {name: {i for i in range(3400) if i % 17 in right}  # 0.3 is 4.8 of 16, 0.6 is 9.6, 0.9 is 14.4
            for name, right in dict(easy=range(5, 10), hard=range(0, 2), very_easy=range(10, 15)).items()}
    want["extreme"] = {i for i in range(3400) if i % 17 == 0 and i % 5 == 0}
    for name, group in want.items():
        group = set(map(str, group))
        assert len(ids[name, "val"]) == 20 and set(ids[name, "val"]) <= group
        assert set(ids[name, "train"]) == group - held
    in_level = {*ids["level_easy", "train"], *ids["level_easy", "val"]}
    assert all((str(i) in in_level | held) == (i % 3 == 0 or str(i) in held) for i in range(3400) if i % 17 == 8)
    assert all(p["correct"] == 0 and p["samples"] == 128 for part in splits["extreme"].values() for p in part)
    # half Hard, half Easy
    for part in ("train", "val"):
        kinds = [counts[i][16] <= 1 for i in ids["mixed", part]]
        assert np.mean(kinds) == 0.5 and len(kinds) > 0
    train, val = (set().union(*(ids[name, part] for name in splits)) for part in ("train", "val"))
    assert not train & val
    # order and membership are those of the problems, whatever else was measured; without the second pass there are no levels
    assert sample.make_splits(problems, counts, cfg) == splits
    without = sample.make_splits(problems, counts, cfg | dict(s_zero=0))
    assert not any(without[name][part] for name in sample.LEVELS for part in ("train", "val"))
    assert [p["id"] for p in without["hard"]["val"]] == ids["hard", "val"]


def test_a_level_is_open_until_it_is_known():
    """The predicted level against simulation, and a second pass that stops early against one that draws all 128."""
    for right, drawn in [(0, 16), (5, 16), (8, 16), (10, 16), (16, 16), (3, 32), (40, 64), (0, 112)]:
        rng = np.random.default_rng(right * 1000 + drawn)
        final = (right + rng.binomial(128 - drawn, rng.beta(right + 1, drawn - right + 1, 200_000))) / 128
        share = dict(extreme=(final == 0).mean(), level_easy=((final >= 0.3) & (final <= 0.6)).mean(),
                     level_very_easy=((final >= 0.6) & (final <= 0.9)).mean())
        share[""] = 1 - sum(share.values())
        name, p = sample.level_of(right, drawn, 128, LEVELS)
        assert share[name] == max(share.values()) and p == pytest.approx(share[name], abs=0.005), (right, drawn)
    assert all(sample.is_open(0, drawn, total, LEVELS) for drawn, total in [(16, 128), (112, 128), (1008, 1024)])  # "none right" is no guess
    assert not sample.is_open(0, 128, 128, LEVELS) and not sample.is_open(1, 64, 128, LEVELS) and sample.is_open(5, 16, 128, LEVELS)
    # extreme alone: whoever has one right is out
    assert not any(sample.is_open(right, drawn, 128, ("extreme",)) for drawn in (16, 64) for right in (1, 5, 16))
    assert sample.is_open(0, 16, 128, ("extreme",)) and not sample.is_open(0, 128, 128, ("extreme",))
    rng, spent, same, zeros = np.random.default_rng(0), 0, 0, 0
    for _ in range(2000):
        draws = rng.random(128) < rng.choice([0.0, rng.beta(0.5, 0.5)])  # many at none, many at all, the rest anywhere
        drawn = 16
        while sample.is_open(int(draws[:drawn].sum()), drawn, 128, LEVELS):
            drawn += 16
        level, truth = (
            sample.level_of(int(draws[:k].sum()), k, 128, LEVELS)[0] for k in (drawn, 128))
        spent, same, zeros = spent + drawn, same + (level == truth), zeros + (truth == "extreme")
        assert (level == "extreme") == (not draws.any())  # never wrong about none right
    assert same / 2000 > 0.97 and spent < 0.8 * 2000 * 128 and zeros > 500, (same, spent)


def test_one_rounding():
    """Processors with AVX-512 use the kernels of those without, by which the base model is the same on both."""
    words = [sys.executable, "-c", "import config, torch; torch.ones(9).exp(); print(torch.backends.cpu.get_cpu_capability())"]
    env = {k: v for k, v in os.environ.items() if k != "ATEN_CPU_CAPABILITY"}
    assert subprocess.run(words, cwd=Path(sample.__file__).parent, env=env, capture_output=True, text=True, check=True).stdout.strip() != "AVX512"
