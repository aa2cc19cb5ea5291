"""data/arithmetic: problems, texts, the base model, and how sample.py measures difficulty."""
import collections
import contextlib
import gzip
import io
import itertools
import json
import os
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.stats import binom, binomtest

import config
from core.log import read_log
from core import engine, models
import sample

RATES = "pass_rates.jsonl.gz"  # in a model's folder
# the probability with which random data would fail a test of frequencies; the seeds are fixed
ALPHA = 1e-6


@pytest.fixture(scope="module")
def base(world):
    return engine.load_model(world.base)


def texts(prepare, N, K, skills, seed=0):
    """Return op, a, b, prompts and responses of N texts of K columns, as tokens without padding."""
    rng = np.random.default_rng(seed)
    op, a, b = prepare.make_operands(rng, N, K)
    prompt, response = prepare.make_texts(rng, op, a, b, skills)
    def tokens(part):
        return [[prepare.VOCAB[i] for i in row if i != prepare.PAD] for row in part]
    return op, a, b, tokens(prompt), tokens(response)


def columns(response):
    """Return the totals of a response, lowest column first, and the digits of its answer."""
    steps, answer = "".join(response).removesuffix("<eos>").split("#")
    return [int(t) for t in re.findall(r"[a-p]{2}(\d\d)", steps)], answer


def uniform(counts, expected):
    """Assert that exactly the expected keys are counted, each about equally often."""
    assert set(counts) == set(expected)
    total, size = sum(counts.values()), len(counts)
    assert min(binomtest(c, total, 1 / size).pvalue for c in counts.values()) > ALPHA / size


# ---- Problems and texts --------------------------------------------------------------------------

def test_problems_are_unique_and_their_answers_right(prepare, world):
    problems = sample.read_problems(world.problems)  # also checks that ids are unique
    kinds = collections.Counter()
    for p in problems:
        x, op, y = re.fullmatch(r"([1-9]\d*)([+-])([1-9]\d*)=", p["prompt"]).groups()
        assert p["answer"] == str(int(x) + int(y) if op == "+" else int(x) - int(y))
        assert int(p["answer"]) >= 0
        kinds[op, len(x + y)] += 1
    assert len({p["prompt"] for p in problems}) == len(problems)
    # both operations, two to four digits
    assert len(kinds) == 6 and min(kinds.values()) > 0.1 * len(problems)
    # the problems do not depend on the seed of the base model
    assert problems[:50] == prepare.make_problems(np.random.default_rng(0), 50)


@pytest.mark.parametrize("K", [2, 3, 4])
def test_texts_with_perfect_skills_are_right(prepare, K):
    op, a, b, prompts, responses = texts(prepare, 400, K, np.ones((2, 10, 10, 2)))
    direct = 0
    for prompt, response in zip(prompts, responses):
        x, sign, y = re.fullmatch(r"(\d+)([+-])(\d+)=", "".join(prompt)).groups()
        totals, answer = columns(response)
        assert response[-1] == "<eos>"
        assert answer == str(int(x) + int(y) if sign == "+" else int(x) - int(y))
        # digit by digit from the right, as in the docstring of prepare.py
        carry, right = 0, []
        for i, j in zip(reversed(x), reversed(y)):
            right.append(int(i) + int(j) + carry if sign == "+" else 10 + int(i) - int(j) - carry)
            carry = int(right[-1] >= 10) if sign == "+" else int(right[-1] < 10)
        assert totals in (right, [])
        direct += not totals
    assert 0 < direct < 40  # of 400, at 3%


def test_texts_slip_at_the_stated_rates_and_their_letters_are_uniform(prepare):
    skills = prepare.make_skills(np.random.default_rng(5))
    assert skills.min() >= 0.001 and skills.max() <= 1 and 0.5 < np.mean(skills > 0.9) < 0.8
    seen, right = np.zeros(skills.shape, int), np.zeros(skills.shape, int)
    wrong, letters, direct, N = collections.Counter(), collections.Counter(), 0, 20_000
    for op, a, b, _, response in zip(*texts(prepare, N, 3, skills)):
        totals, answer = columns(response)
        letters.update(filter(str.isalpha, response))
        direct += not totals
        carry = 0
        for j, total in enumerate(totals):
            truth = a[j] + b[j] + carry if op == 0 else 10 + a[j] - b[j] - carry
            cell = op, a[j], b[j], carry
            seen[cell] += 1
            right[cell] += total == truth
            wrong.update([(total - truth) % 20] if total != truth else [])
            carry = int(total >= 10) if op == 0 else int(total < 10)  # a slip carries over
        if totals:  # the answer follows from the totals
            digits = "".join(str(t % 10) for t in totals[::-1])
            assert answer == str(int(("1" if op == 0 and carry else "") + digits))
    assert binomtest(direct, N, prepare.DIRECT).pvalue > ALPHA
    # the worst of all 400 skills, with Bonferroni's correction
    low, high = binom.cdf(right, seen, skills), binom.sf(right - 1, seen, skills)
    assert (2 * np.minimum(low, high)).min() > ALPHA / skills.size and seen.min() > 20
    uniform(wrong, range(1, 20))
    uniform(letters, prepare.LETTERS)


def test_the_tokenizer_gives_the_texts_back(prepare, base):
    """Training texts are token ids, so the tokenizer must read and write the same ids."""
    half = np.full((2, 10, 10, 2), 0.5)
    for tokenizer in (prepare.make_tokenizer(), base[1]):
        assert (tokenizer.pad_token_id, tokenizer.eos_token_id) == (prepare.PAD, prepare.EOS)
        assert len(tokenizer) == len(prepare.VOCAB)
        pairs = [zip(*texts(prepare, 100, K, half)[-2:]) for K in (2, 3, 4)]
        for prompt, response in itertools.chain(*pairs):
            ids, text = [prepare.ID[t] for t in prompt + response], "".join(prompt + response[:-1])
            assert tokenizer(text)["input_ids"] == ids[:-1]
            assert tokenizer("".join(prompt))["input_ids"] == ids[:len(prompt)]
            assert tokenizer.decode(ids, skip_special_tokens=True) == text
    problems, cfg = [dict(prompt="1+1="), dict(prompt="11+1=")], dict(max_prompt_tokens=4)
    kept, ids = sample.within_limit(problems, base[1], cfg | dict(problems="p.jsonl"))
    assert kept == problems[:1] and [len(x) for x in ids] == [4]  # the limit is included


# ---- Difficulty ----------------------------------------------------------------------------------

def test_splits_from_planted_counts():
    """Each split has the problems of its band or level. Problem i has i % 17 of 16 rollouts solved.
    Every fifth problem with 0 of 16 has 0 of 128. Every third problem with 8 of 16 has 64 of
    128."""
    problems, counts = [dict(id=str(i), prompt=str(i), answer=str(i)) for i in range(3400)], {}
    for i in range(3400):
        counts[str(i)] = {0: 0, 16: i % 17}
        if i % 17 == 0:
            counts[str(i)] |= {32: 0, 64: 0, 128: 0} if i % 5 == 0 else {32: i % 5}
        if i % 17 == 8:
            counts[str(i)][128] = 30 if i % 3 else 64
    cfg = dict(s=16, s_zero=128, n_val=20)
    splits = sample.make_splits(problems, counts, cfg)
    ids = {(name, part): [p["id"] for p in split[part]]
           for name, split in splits.items() for part in split}
    train, held = ({i for (_, kind), members in ids.items() if kind == part for i in members}
                   for part in ("train", "val"))
    assert not train & held
    # 0.3 is 4.8 of 16, 0.6 is 9.6, 0.9 is 14.4
    right = dict(easy=range(5, 10), hard=range(0, 2), very_easy=range(10, 15))
    want = {name: {i for i in range(3400) if i % 17 in counts} for name, counts in right.items()}
    want["extreme"] = range(0, 3400, 85)
    for name, group in want.items():
        group = set(map(str, group))
        assert len(ids[name, "val"]) == 20 and set(ids[name, "val"]) <= group
        assert set(ids[name, "train"]) == group - held
    in_level = {*ids["level_easy", "train"], *ids["level_easy", "val"]}
    assert all((str(i) in in_level | held) == (i % 3 == 0 or str(i) in held)
               for i in range(8, 3400, 17))
    assert all(p["correct"] == 0 and p["samples"] == 128
               for part in splits["extreme"].values() for p in part)
    for part in ("train", "val"):
        kinds = [counts[i][16] <= 1 for i in ids["mixed", part]]
        assert np.mean(kinds) == 0.5 and (len(kinds) == 20) == (part == "val")
    # the splits depend only on problems and counts; s_zero=0 makes no levels
    assert sample.make_splits(problems, counts, cfg) == splits
    without = sample.make_splits(problems, counts, cfg | dict(s_zero=0))
    assert not any(without[name][part] for name in sample.LEVELS for part in ("train", "val"))
    assert [p["id"] for p in without["hard"]["val"]] == ids["hard", "val"]


@pytest.mark.parametrize("size, val", [(1, 0), (2, 1), (7, 1), (55, 13), (1200, 300), (5000, 300)])
def test_validation_takes_at_most_a_quarter(size, val):
    """At most a quarter of a split is held out, unless --n_val gives a number."""
    problems = [dict(id=str(i), prompt=f"p{i}", answer="1") for i in range(size)]
    counts = {p["id"]: {0: 0, 16: 8} for p in problems}
    for n_val, want in ((0, val), (2, min(2, size))):
        split = sample.make_splits(problems, counts, dict(s=16, s_zero=0, n_val=n_val))["easy"]
        assert (len(split["val"]), len(split["train"])) == (want, size - want)


def test_a_level_is_open_until_it_is_known():
    """level_of agrees with a simulation. Levels after an early stop agree with those of all 128."""
    for right, drawn in [(0, 16), (5, 16), (8, 16), (10, 16), (16, 16), (3, 32), (40, 64),
                         (0, 112)]:
        rng = np.random.default_rng(right * 1000 + drawn)
        rate = rng.beta(right + 1, drawn - right + 1, 200_000)
        final = (right + rng.binomial(128 - drawn, rate)) / 128
        share = dict(extreme=(final == 0).mean(),
                     level_easy=((final >= 0.3) & (final <= 0.6)).mean(),
                     level_very_easy=((final >= 0.6) & (final <= 0.9)).mean())
        share[""] = 1 - sum(share.values())
        name, p = sample.level_of(right, drawn, 128)
        assert share[name] == max(share.values()), (right, drawn)
        assert p == pytest.approx(share[name], abs=0.005), (right, drawn)
    # `extreme` is never guessed
    for state, is_open in {(0, 16, 128): True, (0, 112, 128): True, (0, 1008, 1024): True,
                           (5, 16, 128): True, (0, 128, 128): False, (1, 64, 128): False}.items():
        assert sample.is_open(*state) == is_open
    rng, spent, same, zeros = np.random.default_rng(0), 0, 0, 0
    for _ in range(2000):
        # many pass rates near 0 and 1, the rest anywhere
        draws = rng.random(128) < rng.choice([0.0, rng.beta(0.5, 0.5)])
        drawn = 16
        while sample.is_open(int(draws[:drawn].sum()), drawn, 128):
            drawn += 16
        level, truth = (sample.level_of(int(draws[:k].sum()), k, 128)[0] for k in (drawn, 128))
        spent, same, zeros = spent + drawn, same + (level == truth), zeros + (truth == "extreme")
        assert (level == "extreme") == (not draws.any())  # `extreme` is never wrong
    assert same / 2000 > 0.97 and spent < 0.8 * 2000 * 128 and zeros > 500, (same, spent)


# ---- The shipped base model and its pass rates ---------------------------------------------------

def test_the_shipped_model_is_the_one_that_the_results_are_of(world):
    """The shipped pass rates were measured with the shipped weights and problems."""
    rates = read_log(world.base / RATES)[0]
    assert rates["weights"] == models.weights_hash(world.base)
    assert rates["set_hash"] == sample.set_hash(sample.read_problems(world.problems))
    info = json.loads((world.splits / "difficulty.json").read_text())
    assert (info["s"], info["s_zero"]) == (16, 128)
    assert all(len(sample.read_problems(world.splits / f"{name}_{part}.jsonl")) >= least
               for name in sample.BANDS for part, least in (("train", 1000), ("val", 300)))


def test_shipped_pass_rates_are_those_that_are_measured(world, base, tmp_path):
    """Measuring 100 problems again gives the shipped counts for at least 98 of them. Other
    processors round differently, which may change a few rollouts."""
    cfg = config.parse([])
    model, tokenizer = base
    rates = collections.defaultdict(dict)
    for r in read_log(world.base / RATES)[1:]:
        rates[r["id"]][r["samples"]] = r["correct"]
    problems = sample.read_problems(world.problems)
    some = [problems[i] for i in np.random.default_rng(0).choice(len(problems), 100, False)]
    generator = engine.open_engine("hf", str(world.base), cfg, "cpu", model, tokenizer)
    prompts = sample.tokenize(some, tokenizer)
    counts, _ = sample.measure(some, prompts, lambda: generator, cfg | dict(shard=""), tmp_path)
    assert sum(counts[p["id"]] == {0: 0} | rates[p["id"]] for p in some) >= 98


@pytest.fixture(scope="module")
def own(tiny, tmp_path_factory):
    """Return .model, which has pass rates in its folder as in docs/problems.md, .words, .splits."""
    folder = tmp_path_factory.mktemp("own")
    model, splits = shutil.copytree(tiny.model, folder / "model"), folder / "measured"
    words = [*tiny.words, f"--model={model}", "--s=4", "--n_val=2"]
    with contextlib.redirect_stdout(io.StringIO()):
        sample.main([*words, "--s_zero=8", f"--out={splits}"])
    (model / RATES).write_bytes(gzip.compress((splits / "pass_rates.jsonl").read_bytes()))
    return SimpleNamespace(model=model, words=words, splits=splits)


def content(folder):
    """Return {name: bytes} of a folder's splits, and its pass rates as lines without headers."""
    files = {p.name: p.read_bytes() for p in folder.iterdir() if p.suffix == ".jsonl"}
    files["pass_rates.jsonl"] = [line for line in files["pass_rates.jsonl"].splitlines()
                                 if b'"header"' not in line]
    return files


def test_shipped_rates_are_used(own, tmp_path, monkeypatch, capsys):
    """Shipped pass rates and their levels are used, and no model is loaded. The levels are used
    even if the call requests none. The model's folder may have moved, and the file may be joined
    from shards."""
    monkeypatch.setattr(engine, "open_engine", None)
    for word in ("--s_zero=8", "--s_zero=0"):
        out = tmp_path / word
        for again in (False, True):
            sample.main([*own.words, word, f"--out={out}"])
            line = f"{own.model / RATES}: used, measured with these weights and settings"
            assert (line in capsys.readouterr().out) != again
            assert content(out) == content(own.splits)
            info, want = ((folder / "difficulty.json").read_text() for folder in (out, own.splits))
            assert json.loads(info)["s_zero"] == 8 and info == want
    moved = shutil.copytree(own.model, tmp_path / "moved")
    header, *lines = (own.splits / "pass_rates.jsonl").read_text().splitlines(True)
    (moved / RATES).write_bytes(gzip.compress("".join(
        [header, *lines[:9], header, *lines[9:]]).encode()))
    sample.main([*own.words, f"--model={moved}", "--s_zero=8", f"--out={tmp_path / 'out'}"])
    assert content(tmp_path / "out") == content(own.splits)


def test_shipped_rates_of_some_of_the_problems(own, tmp_path):
    """Only a problem without shipped rates is measured."""
    problems = Path(own.words[1].split("=")[1]).read_text().splitlines(True)[:12]
    some, out = tmp_path / "some.jsonl", tmp_path / "out"
    some.write_text("".join(problems))
    words = [*own.words, "--s_zero=0", f"--problems={some}", f"--out={out}"]
    sample.main(words)
    came = read_log(own.model / RATES)
    assert read_log(out / "pass_rates.jsonl") == came
    # the levels belong to another set of problems
    assert json.loads((out / "difficulty.json").read_text())["s_zero"] == 0
    some.write_text("".join([*problems, json.dumps(json.loads(problems[0]) | dict(id="new"))]))
    sample.main(words)
    (more,) = read_log(out / "pass_rates.jsonl")[len(came):]
    assert (more["id"], more["samples"]) == ("new", 4)
    sample.main([*words, "--s_zero=8"])  # levels that were not asked for at first
    assert json.loads((out / "difficulty.json").read_text())["s_zero"] == 8


def test_rates_of_another_measurement_are_not_used(own, tmp_path, capsys):
    """If settings or weights differ, one line names them and every problem is measured."""
    other = shutil.copytree(own.model, tmp_path / "other")
    turned = bytearray((other / "model.safetensors").read_bytes())
    turned[-1] ^= 1
    (other / "model.safetensors").write_bytes(turned)
    rates = read_log(own.model / RATES)[0]
    for i, (word, key, there) in enumerate([
            ("--temperature=0.9", "temperature", 0.6), ("--s=3", "s", 4),
            ("--max_new_tokens=11", "max_new_tokens", 12), ("--verifier=math", "verifier", "exact"),
            (f"--model={other}", "weights", rates["weights"])]):
        out = tmp_path / str(i)
        sample.main([*own.words, "--s_zero=0", word, f"--out={out}"])
        said = capsys.readouterr().out
        assert f"{RATES}: not used, measured with other settings: {key}={there}, now " in said
        assert "no rollout is solved: does --verifier=math read" in said or key != "verifier"
        header, *lines = read_log(out / "pass_rates.jsonl")
        assert (header["s_zero"], len(lines)) == (0, 16)


@pytest.mark.parametrize("damage", ["gzip", "lines", "header"])
def test_torn_pass_rates(own, tmp_path, damage, capsys):
    """A damaged gzip file is refused. Missing lines are measured; without a header, all are."""
    model = shutil.copytree(own.model, tmp_path / "model")
    path = model / RATES
    words = [*own.words, f"--model={model}", "--s_zero=8", f"--out={tmp_path / 'out'}"]
    if damage == "gzip":
        path.write_bytes(path.read_bytes()[:-9])
        with pytest.raises(config.BadInput, match=re.escape(str(path))) as e:
            sample.main(words)
        assert "\n" not in str(e.value) and not (tmp_path / "out").exists()
        return
    lines = gzip.decompress(path.read_bytes()).splitlines(True)
    path.write_bytes(gzip.compress(b"".join(lines[:-1] if damage == "lines" else lines[1:])))
    sample.main(words)
    assert content(tmp_path / "out") == content(own.splits)
    assert ("s=None, now" in capsys.readouterr().out) == (damage == "header")


def test_prepare(prepare, tmp_path, monkeypatch, capsys):
    """prepare.py writes the problems, and a model if its folder is inside the data folder. The
    weights depend only on the seed and on the folder's name."""
    monkeypatch.setattr(prepare, "MODELS", dict(base=(2, 32, 3), narrow=(1, 64, 2)))
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(prepare, "POOL", 50)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    words = [f"--data={tmp_path}", f"--model={tmp_path / 'narrow'}"]
    prepare.main([*words[:1], "--model=some/name"])
    said = capsys.readouterr().out
    assert "50 problems" in said and "some/name: not in" in said and not Path("some").exists()
    assert len(sample.read_problems(tmp_path / "ood.jsonl")) == 300
    prepare.main(words)
    assert "parameters in" in capsys.readouterr().out
    assert engine.load_model(tmp_path / "narrow")[0].config.hidden_size == 64
    prepare.main(words)
    assert "exists already" in capsys.readouterr().out
    weights = []
    for seed in (0, 0, 1):
        shutil.rmtree(tmp_path / "narrow")
        prepare.main([*words, f"--seed={seed}"])
        weights.append((tmp_path / "narrow/model.safetensors").read_bytes())
    assert weights[0] == weights[1] != weights[2]
