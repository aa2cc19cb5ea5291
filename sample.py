"""sample.py: how hard each problem is for a model, and the splits by difficulty.

    python sample.py                                          # data/arithmetic and its base model
    python sample.py --data=data/guru_math --model=Qwen/Qwen3-4B-Instruct-2507 --s_zero=0
    python sample.py --data=data/mine --split=all             # no difficulty: every problem
    python sample.py --data=data/mine --measure=3000          # of 3,000 problems drawn at random
    python sample.py mix --data=data/guru_math --D=5000       # mixtures of splits, the paper's
    python sample.py mix --data=data/guru_math --D=500 --mix="hard:1 easy:3"  # or your own

Reads a problem file, {"id", "prompt", "answer", ...} a line, and a model.
Writes under DATA/splits/MODEL/
- `pass_rates.jsonl`, a header and then {"id", "of", "samples", "correct"} a line, appended as
  measured: a killed measurement goes on where it was. A model may come with such a file in its
  folder, gzipped: where it is of these weights and settings, the measurement starts with it;
- the splits {easy,hard,very_easy,mixed}_{train,val}.jsonl by the paper's bands of avg@16 (section
  3, factor 1), and, with s_zero=128, {extreme,level_easy,level_very_easy}, the levels of its study
  of mixtures, by 128 rollouts;
- `difficulty.png`, the histogram of pass rates with the bands, and `difficulty.json`, the splits'
  sizes and what they are of.
It ends with what the pass rates say of n before any run: the share of groups without a signal.

`mix` reads the splits and writes mix_{NAME}_D{D}_seed{SEED}_train.jsonl next to them, and
`mixtures.json`. NAME is hard, dual or tri for the paper's mixtures, else the splits with their
shares. With one seed a smaller D is a prefix of a larger one; --D=0 is the largest that the splits
allow.

Needs config.py, verifier.py, core/engine.py, core/models.py, core/problems.py,
core/plots.py.
"""
import collections
import concurrent.futures
import functools
import hashlib
import json
import os
import random
from collections import Counter
from fractions import Fraction
from pathlib import Path

from config import (BadInput, at_k, choose, entry, parse,
                    read_json)  # first: from here on Ctrl-C is one line
import numpy as np

from core import engine, models, plots
from core.log import append, atomic_write, read_log, save_json
from core.problems import read_problems, set_hash, tokenize, write_problems
import verifier

# The paper's main splits, Easy and Hard, by avg@s, and Very Easy likewise; the levels of its study
# of mixtures, by avg@s_zero
BANDS = dict(easy=(0.3, 0.6), hard=(0.0, 0.0625), very_easy=(0.6, 0.9))
LEVELS = dict(extreme=(0.0, 0.0), level_easy=(0.3, 0.6), level_very_easy=(0.6, 0.9))
GROUPS = (4, 8, 16, 32, 64)  # the n of which is said how many groups carry a signal
N_VAL, FEW = 300, 20  # problems to validate on; a split with fewer to train on is named
SURE = 0.95  # a level counts as known once it is this probable


# -------------------------------------------------------------------------------------------------
# Difficulty


def levels_of(cfg):
    """The names of the levels that are asked for, a tuple."""
    return tuple(name for name in LEVELS if cfg["s_zero"] and name in cfg["levels"].split())


def with_levels_of(there, problems, cfg):
    """cfg with the levels of an earlier measurement of these problems too.

    there: its s_zero, levels and set_hash, or {}. What a level holds out stays held out, whatever
    is asked for later.
    """
    if not there.get("s_zero") or there["set_hash"] != set_hash(problems):
        return cfg
    names = {*levels_of(there), *levels_of(cfg)}
    return cfg | dict(s_zero=max(there["s_zero"], cfg["s_zero"]),
                      levels=" ".join(name for name in LEVELS if name in names))


@functools.lru_cache(None)
def level_of(correct, drawn, total, names):
    """The level of a problem with `correct` of `drawn` rollouts solved: (name, probability).

    It is that of the count after `total` rollouts. The name is one of `names`, or "" for none of
    these levels. Until `drawn` is `total` the count to come is beta-binomial under a uniform prior
    of the pass rate.
    """
    from scipy.stats import betabinom
    chance = dict.fromkeys([*names, ""], 0.0)
    left = max(0, total - drawn)
    # one call: scipy's checks cost more than its sums
    to_come = betabinom.pmf(range(left + 1), left, correct + 1, drawn - correct + 1)
    for more, p in enumerate(to_come if left > 0 else [1.0]):
        rate = (correct + more) / total
        name = next((name for name in names if LEVELS[name][0] <= rate <= LEVELS[name][1]), "")
        chance[name] += p
    return max(chance.items(), key=lambda item: item[1])


def is_open(correct, drawn, total, names):
    """Whether a problem needs more rollouts for its level; "none solved" needs all of them."""
    if drawn >= total:
        return False
    return (correct == 0 and "extreme" in names) or level_of(correct, drawn, total, names)[1] < SURE


def latest(counts, cfg):
    """(solved, drawn) of a problem's {samples: solved}, by all rollouts that the settings want."""
    drawn = max(k for k in counts if k <= max(cfg["s"], cfg["s_zero"]))
    return counts[drawn], drawn


def weights_hash(model):
    """12 hex digits that change with the weights in a model folder; None for a name of the hub."""
    digest, files = hashlib.sha256(), sorted(Path(model).glob("*.safetensors"))
    for path in files:
        with open(path, "rb") as file:
            hashlib.file_digest(file, lambda: digest)
    return digest.hexdigest()[:12] if files else None


def settings(cfg):
    """What the counts depend on besides the problems, as a dict."""
    keys = "model s temperature top_p max_new_tokens verifier".split()
    return {key: cfg[key] for key in keys} | dict(weights=weights_hash(cfg["model"]))


def differences(header, now):
    """How a header of pass rates differs from the settings `now`, in words, "" for not at all."""
    header = dict(weights=now["weights"]) | header  # headers of before did not name the weights
    return ", ".join(f"{key}={header.get(key)} there, {now[key]} now" for key in now
                     if header.get(key) != now[key])


def take(cfg, folder):
    """Start pass_rates.jsonl with the counts that came with the model, where there are none yet.

    Returns their header; {} where none came, or of other settings, which one line then names.
    """
    source, path = Path(cfg["model"]) / "pass_rates.jsonl.gz", folder / "pass_rates.jsonl"
    if not source.exists():
        return {}
    records = read_log(source) or [{}]
    header = records[0] | dict(model=cfg["model"])  # the folder may have been another
    if differ := differences(header, settings(cfg)):
        print(f"{source}: not of this measurement: {differ}")
        return {}
    if not path.exists():
        lines = [r for r in records if r.get("type") != "header"]  # each shard has one
        with atomic_write(path) as part:
            part.write_text("".join(json.dumps(r) + "\n" for r in [header, *lines]))
        print(f"{source}: measured with these weights and settings, and taken from there")
    return header


def measured(problems, folder, now):
    """What pass_rates*.jsonl of the folder hold: ({id: {samples: solved}}, the verifier's faults).

    Raises BadInput where they were measured with other settings than `now`.
    """
    counts = {p["id"]: {0: 0} for p in problems}
    of = {p["id"]: set_hash([p]) for p in problems}
    faults = Counter(verifier_timeouts=0, verifier_errors=0)
    for path in folder.glob("pass_rates*.jsonl"):
        header, *lines = read_log(path) or [now]  # another shard may be about to write its header
        differ = differences(header, now)
        if differ and lines:
            raise BadInput(f"{path}: measured otherwise: {differ}; give another --out, or "
                           "remove it")
        if differ:  # it failed before its first problem
            path.unlink()
        for r in lines:
            # else a second header, or of another problem that had this id
            if of.get(r.get("id"), "") == r.get("of"):
                counts[r["id"]][r["samples"]] = r["correct"]
                faults.update({key: r.get(key, 0) for key in faults})
    return counts, faults


def next_to_draw(problems, counts, cfg):
    """The problems that need rollouts, of these the ones with the fewest so far; [] at the end."""
    state = {p["id"]: latest(counts[p["id"]], cfg) for p in problems}  # (solved, drawn)
    todo = ([p for p in problems if state[p["id"]][1] == 0]
            or [p for p in problems if is_open(*state[p["id"]], cfg["s_zero"], levels_of(cfg))])
    fewest = min((state[p["id"]][1] for p in todo), default=0)
    return [p for p in todo if state[p["id"]][1] == fewest]


def measure(problems, prompts, open_engine, cfg, folder):
    """Count solved rollouts: s of every problem, then s at a time to s_zero where a level is open.

    Of a shard's problems alone, where cfg names one. prompts: the problems' token ids; open_engine:
    called where there is something to measure. Returns {id: {samples: solved}} with what stands
    after each helping, and what the verifier gave up on. Each helping is a line of pass_rates.jsonl
    as soon as it is there, and what is there or in a shard's file is not measured again. A
    problem's rollouts depend on its id alone, so the numbers are the same however often the work
    was cut off. Raises BadInput where it was measured otherwise.
    """
    from tqdm import tqdm
    shard = cfg["shard"] and "." + cfg["shard"].replace("/", "of")
    path, now = folder / f"pass_rates{shard}.jsonl", settings(cfg)
    folder.mkdir(parents=True, exist_ok=True)
    counts, faults = measured(problems, folder, now)
    prompts = {p["id"]: ids for p, ids in zip(problems, prompts)}
    with open(path, "ab", buffering=0) as file:
        # half a line of a killed measurement
        os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
        if not os.fstat(file.fileno()).st_size:
            append(file, dict(type="header", **now, set_hash=set_hash(problems),
                              s_zero=cfg["s_zero"], levels=cfg["levels"]))
        i, k = map(int, (cfg["shard"] or "0/1").split("/"))
        while todo := next_to_draw(problems[i::k], counts, cfg):
            drawn = latest(counts[todo[0]["id"]], cfg)[1]
            goal = min(drawn + cfg["s"], cfg["s_zero"]) if drawn else cfg["s"]
            generator = open_engine()
            seeds = [engine.rollout_seed("difficulty", p["id"], goal) for p in todo]
            ended = generator.stream([prompts[p["id"]] for p in todo], goal - drawn, seeds)
            with tqdm(total=len(todo), mininterval=1,
                      desc=f"{goal} rollouts for {len(todo)} problems") as bar:
                for batch, rewards, bad in graded(ended, todo, generator.tokenizer, cfg):
                    faults.update(bad)
                    bad = {key: value for key, value in bad.items() if value}
                    for p, solved in zip(batch, verifier.solved(rewards).sum(1).tolist()):
                        counts[p["id"]][goal] = counts[p["id"]][drawn] + solved
                        append(file, dict(id=p["id"], of=set_hash([p]), samples=goal,
                                          correct=counts[p["id"]][goal]) | bad)
                        bad = {}  # a batch's faults stand in its first line
                    bar.update(len(batch))
    return counts, faults


def graded(stream, problems, tokenizer, cfg):
    """Yields (some of the problems, their rewards, the verifier's faults), in the stream's order.

    stream: an engine's, over these problems. They are graded in a thread, so that an answer that
    takes math-verify its three seconds does not hold up what generates.
    """
    waiting, grader = collections.deque(), concurrent.futures.ThreadPoolExecutor(1)
    stopped = None
    try:
        try:
            for js, rollouts in stream:
                batch = [problems[j] for j in js]
                job = grader.submit(verifier.grade, batch, rollouts, tokenizer, cfg)
                waiting.append((batch, job))
                while waiting and waiting[0][1].done():
                    batch, result = waiting.popleft()
                    yield batch, *result.result()
        except Exception as error:  # SIGTERM, an engine's fault: rollouts that ended still count
            stopped = error
        for batch, result in waiting:
            yield batch, *result.result()
        if stopped:
            raise stopped
    finally:
        grader.shutdown(cancel_futures=True)


def make_splits(problems, counts, cfg):
    """Problems with their counts -> {split name: {"train": [...], "val": [...]}}.

    Bands go by avg@s, levels by avg@s_zero. The validation problems of a split are its first ones
    (`val_size`) in one random order of all problems. No split trains on any of their prompts, even
    under another id, so a model that trains on one split can be evaluated on every other. `mixed`
    is half Hard, half Easy.
    """
    levels, groups, order = levels_of(cfg), {}, []
    for p in shuffled(problems):
        solved, drawn = latest(counts[p["id"]], cfg)
        rate = counts[p["id"]][cfg["s"]] / cfg["s"]
        order.append(dict(p, pass_rate=rate, samples=drawn, correct=solved))
    for name, (low, high) in BANDS.items():
        groups[name] = [p for p in order if low <= p["pass_rate"] <= high]
    level = {p["id"]: level_of(p["correct"], p["samples"], cfg["s_zero"], levels)[0]
             for p in order if levels}
    for name in LEVELS:
        groups[name] = [p for p in order if level.get(p["id"]) == name]
    vals = {name: group[:val_size(len(group), cfg)] for name, group in groups.items()}
    held = [p for val in vals.values() for p in val]
    splits = {name: dict(val=vals[name], train=without(group, held))
              for name, group in groups.items()}
    splits["mixed"] = {part: [p for pair in zip(splits["hard"][part], splits["easy"][part])
                              for p in pair] for part in ("val", "train")}
    del splits["mixed"]["val"][cfg["n_val"] or N_VAL:]
    return splits


def without(problems, held):
    """Return the problems whose prompt is not that of a `held` problem, whatever their ids."""
    def asked(p):
        return " ".join((p["prompt"] + p.get("begin", "")).split())
    prompts = {asked(p) for p in held}
    return [p for p in problems if asked(p) not in prompts]


def shuffled(problems):
    """The problems in the one random order that decides which of them are held out."""
    return random.Random("splits").sample(problems, len(problems))


def val_size(size, cfg):
    """How many of the `size` problems of a split are held out to validate on.

    n_val, or where nobody gave it 300, but at most a quarter; of two or more problems one.
    """
    return cfg["n_val"] or min(N_VAL, max(size // 4, int(size > 1)))


def write_splits(splits, folder):
    """Write the parts that hold problems and remove those of an earlier measurement that do not."""
    for name, split in splits.items():
        for part, problems in split.items():
            path = folder / f"{name}_{part}.jsonl"
            if problems:
                write_problems(path, problems)
            else:
                path.unlink(missing_ok=True)


def write_all(folder, cfg):
    """The split `all`: every problem of the file, for who measures no difficulty."""
    order = shuffled(read_problems(cfg["problems"]))
    val = order[:val_size(len(order), cfg)]
    train = without(order, val)
    if not train:
        raise BadInput(f"--n_val={cfg['n_val']}: none of the {len(order)} problems of "
                       f"{cfg['problems']} is left to train on")
    write_splits(dict(all=dict(train=train, val=val)), folder)
    print(f"  all             {len(train):6d} train {len(val):6d} val of {cfg['problems']}, no "
          "difficulty is measured")


# -------------------------------------------------------------------------------------------------
# Is n too small? Groups that are all solved, or of which none is, have no advantage


def all_alike(n, s):
    """The chance that n of a problem's s rollouts are all alike, for 0..s of them solved: a list.

    Of problems that were not chosen by these counts an unbiased estimate of p^n + (1 - p)^n.
    Raises BadInput where n > s.
    """
    return [1 - best + worst for best, worst in zip(at_k(f"best@{n}", s), at_k(f"worst@{n}", s))]


def pass_rate_law(kinds, steps=200, rounds=1000):
    """How pass rates are spread over problems: (rates (G,), {(solved, drawn): weights (G,)}).

    kinds: the (solved, drawn) of each problem. The distribution on a grid of rates with the
    highest likelihood, by EM (Laird 1978); a problem's own weights are those given its counts.
    Drawing more of some problems because of what was drawn before changes no likelihood.
    """
    rates = np.sin(np.pi / 2 * (np.arange(steps) + 0.5) / steps) ** 2  # dense near 0 and 1
    times = Counter(kinds)
    c, s = np.array(list(times), float).T
    log = c[:, None] * np.log(rates) + (s - c)[:, None] * np.log1p(-rates)  # (kinds, G)
    likelihood = np.exp(log - log.max(1, keepdims=True))
    share = np.array(list(times.values())) / times.total()
    weight = np.full(steps, 1 / steps)
    for _ in range(rounds):
        own = likelihood * weight
        own /= own.sum(1, keepdims=True)
        weight = share @ own
    return rates, dict(zip(times, own))


def no_signal(kinds, law, n):
    """The share of groups of n fresh rollouts without a signal, for problems of these kinds.

    kinds: [(solved, drawn), ...]; law: of `pass_rate_law` over all problems that were measured.
    A split holds problems that were chosen by these very counts, so their share among the rollouts
    drawn errs: of Easy at n = 4 it is 12%, and of fresh rollouts 21%.
    """
    rates, own = law
    alike = rates ** n + (1 - rates) ** n
    return float(np.mean([own[kind] @ alike for kind in kinds]))


def signal_table(splits, counts, cfg):
    """What pass rates say of n, as lines of text. splits: of make_splits; counts: of `measure`."""
    def row(name, values, form):
        return f"    {name:15s}" + "".join(f"{format(x, form):>7s}" for x in values)
    law, s = pass_rate_law([latest(c, cfg) for c in counts.values()]), cfg["s"]
    yield "  Is n too small? Groups without a signal (all n rollouts solved, or none):"
    yield row("n =", GROUPS, "d")
    first = [c[s] for c in counts.values()]
    yield row("all problems", [np.mean(np.take(all_alike(n, s), first)) for n in GROUPS if n <= s],
              ".0%")
    for name, split in splits.items():
        kinds = [(p["correct"], p["samples"]) for p in split["train"]]
        if kinds:
            yield row(name, [no_signal(kinds, law, n) for n in GROUPS], ".0%")
    yield f"    All problems: exact, hypergeometric, of {s} rollouts each. A split was chosen by"
    yield "    its own counts, so its row is for fresh rollouts, by the spread of pass rates over"
    yield f"    all problems (empirical Bayes); beyond n = {s} it guesses at rates near 0 and 1"


# -------------------------------------------------------------------------------------------------
# Mixtures of splits

# The paper's study of mixtures, with its order and shares. Its Hard, never solved in 128 rollouts,
# is the split `extreme`
MIXTURES = dict(hard="extreme:1", dual="extreme:1 level_easy:1",
                tri="extreme:2 level_easy:1 level_very_easy:1")


def places(shares, D):
    """Return which split fills each of D places, for {split: share}.

    Every prefix has the shares to within one problem, by the quota method of Balinski and Young
    (1975): among the splits below their share, take the greatest share / (count + 1). Taking the
    greatest deficit instead can be off by more than one with five splits or more.
    """
    total, count, order = sum(shares.values()), dict.fromkeys(shares, 0), []
    for i in range(1, D + 1):
        below = [name for name in shares if count[name] * total < shares[name] * i]
        order.append(max(below, key=lambda name: shares[name] / (count[name] + 1)))
        count[order[-1]] += 1
    return order


def mixture(splits, shares, D, seed):
    """Return D problems of `splits` ({name: problems}) in these shares, and the count per split.

    D = 0 takes as many as there are. With one seed a smaller D is a prefix of a larger one: each
    split is shuffled once, and each place takes its next problem. Raise BadInput if D is too large.
    """
    queues, picked = {}, {}
    for name in shares:
        rng = random.Random(f"mix {seed} {name}")
        queues[name] = iter(rng.sample(splits[name], len(splits[name])))
    order = places(shares, D or sum(map(len, splits.values())))
    for name in order:
        # splits overlap: `hard` contains `extreme`
        problem = next((p for p in queues[name] if p["id"] not in picked), None)
        if problem is None:
            if D:
                raise BadInput(f"--D={D}: needs {order.count(name)} problems of {name}, which has "
                               f"{len(splits[name])}; the largest D of this mixture is "
                               f"{len(picked)}")
            break
        picked[problem["id"]] = (name, problem)
    names = [name for name, _ in picked.values()]
    return [p for _, p in picked.values()], {name: names.count(name) for name in shares}


def read_shares(mix):
    """Parse "extreme:2 easy:1" into {"extreme": Fraction(2), "easy": Fraction(1)}."""
    shares = {}
    for word in sorted(mix.split()):  # the order of the words must not matter
        name, _, share = word.partition(":")
        if name in shares:
            raise BadInput(f"--mix={mix}: names {name} twice")
        shares[name] = Fraction(share or 1)
        if not shares[name]:
            raise BadInput(f"--mix={mix}: the share of {name} must be above 0")
    return shares


def title_of(shares):
    """Return the paper's name of a mixture, else its splits with their shares."""
    for title, mix in MIXTURES.items():
        if read_shares(mix) == shares:
            return title
    return "_".join(f"{name}{float(share):g}" for name, share in shares.items())


def main_mix(argv):
    """Write the mixtures that are asked for, with `mixtures.json` beside them."""
    cfg = parse(argv, __doc__)
    folder = Path(cfg["data"]) / "splits" / Path(cfg["model"]).name
    there = sorted(p.name.removesuffix("_train.jsonl") for p in folder.glob("[!.]*_train.jsonl"))
    there = [name for name in there if not name.startswith("mix_")]
    if not there:
        raise BadInput(f"{folder}: has no splits; measure them first: python sample.py "
                       f"--data={cfg['data']} --model={cfg['model']}")
    held = {}  # the file of each validation problem, by id and by prompt
    for path in sorted(folder.glob("[!.]*_val.jsonl")):
        for p in read_problems(path):
            held |= {p["id"]: path, p["prompt"]: path}
    record, made, cache = folder / "mixtures.json", {}, {}
    old = read_json(record) if record.exists() else {}
    # make all before the first is written: all three or none
    for mix in [cfg["mix"]] if cfg["mix"].split() else MIXTURES.values():
        shares = read_shares(mix)
        for name in shares:
            if name not in there:
                levels = name == "extreme" or name.startswith("level_")
                raise BadInput(f"--mix={mix}: no {name}_train.jsonl in {folder}; there are "
                               f"{', '.join(there)}"
                               + " (levels need --s_zero=128 in sample.py)" * levels)
            cache[name] = cache.get(name) or read_problems(folder / f"{name}_train.jsonl")
        splits = {name: cache[name] for name in shares}
        problems, counts = mixture(splits, shares, cfg["D"], cfg["seed"])
        for p in problems:
            where = held.get(p["id"]) or held.get(p["prompt"])
            if where:
                raise BadInput(f"{folder}: problem {p['id']} of --mix={mix} is in {where.name} "
                               "too; measure the splits again")
        D, hashed = len(problems), set_hash(problems)
        path = folder / f"mix_{title_of(shares)}_D{D}_seed{cfg['seed']}_train.jsonl"
        if path.exists() and set_hash(read_problems(path)) != hashed:
            raise BadInput(f"{path}: exists with other problems, from other splits; remove it "
                           "first")
        parts = {name: float(share) for name, share in shares.items()}
        made[path] = problems, dict(D=D, seed=cfg["seed"], shares=parts, counts=counts,
                                    set_hash=hashed)
    for path, (problems, said) in made.items():
        write_problems(path, problems)
        print(f"{path}: {', '.join(f'{n} {name}' for name, n in said['counts'].items())}")
        old[path.name.removesuffix("_train.jsonl")] = said
    save_json(record, old)


# -------------------------------------------------------------------------------------------------
# From the problem file to the splits


def histogram(rates, samples, splits, s_zero, path, title):
    """Histogram of pass rates (one a problem) with the bands of the splits and their sizes."""
    def sizes(name):
        return f"{len(splits[name]['train']):,} train + {len(splits[name]['val']):,} val"
    fig, [[ax]] = plots.canvas(1, 1, (9, 4.2))
    for (name, (low, high)), colour in zip(BANDS.items(), ("#0072B2", "#D55E00", "#009E73")):
        ax.axvspan(low - (0.02 if low == 0 else 0), high, color=colour, alpha=0.16, lw=0,
                   label=f"{name.replace('_', ' ')} [{low:g}, {high:g}]: {sizes(name)}")
    ax.hist(rates, bins=[(i - 0.5) / samples for i in range(samples + 2)], color="0.25", rwidth=0.7)
    for name in LEVELS:
        if any(splits[name].values()):
            ax.plot([], [], " ", label=f"{name.replace('_', ' ')} by {s_zero}: {sizes(name)}")
    ax.set(xlabel="pass rate of a problem over the rollouts", ylabel="problems", title=title,
           xlim=(-0.03, 1.03))
    ax.legend(frameon=False)
    plots.write(fig, path)


def within_limit(problems, tokenizer, cfg):
    """The problems whose prompts are no longer than max_prompt_tokens, and their token ids.

    prepare.py could leave the others out by one model's tokenizer only. Raises BadInput where none
    is left.
    """
    limit = cfg["max_prompt_tokens"]
    pairs = [(p, ids) for p, ids in zip(problems, tokenize(problems, tokenizer))
             if 0 < len(ids) <= limit]
    if not pairs:
        raise BadInput(f"--max_prompt_tokens={limit}: no prompt of {cfg['problems']} is as short")
    if len(pairs) < len(problems):
        print(f"{cfg['problems']}: {len(problems) - len(pairs)} of {len(problems)} prompts are "
              f"over --max_prompt_tokens={limit}, left out")
    return [list(column) for column in zip(*pairs)]


def what_is_short(name, splits, cfg):
    """What a split lacks and how to get it, "" for nothing."""
    if name in LEVELS and name not in levels_of(cfg):
        return "not asked for (--s_zero, --levels)"
    short = []
    if len(splits[name]["val"]) < cfg["n_val"]:
        short.append(f"fewer than --n_val={cfg['n_val']} to validate on: measure more problems")
    if len(splits[name]["train"]) < FEW:
        most = max(splits, key=lambda name: len(splits[name]["train"]))
        other = f"--split={most} has most; " if splits[most]["train"] and most != name else ""
        short.append(f"fewer than {FEW} to train on: {other}more problems, or a smaller --n_val, "
                     "help")
    return ", ".join(short)


def tell(counts, faults, splits, cfg, path):
    """Print what was measured and the size of each split, and draw it to `path`."""
    s, s_zero = cfg["s"], cfg["s_zero"]
    rates = [c[s] / s for c in counts.values()]
    title = (f"{Path(cfg['model']).name}: {len(rates):,} problems, {s} rollouts each at "
             f"temperature {cfg['temperature']:g}")
    histogram(rates, min(s, 40), splits, s_zero, path, title)
    print(f"{title}: mean {sum(rates) / len(rates):.3f}")
    if not any(rates):
        print(f"  none was right: does --verifier={cfg['verifier']} read answers as this model "
              "writes them?")
    if s_zero:
        drawn = [latest(c, cfg)[1] for c in counts.values()]
        every = len(drawn) * s_zero
        print(f"  levels by {s_zero} rollouts: {sum(k > s for k in drawn):,} problems were open "
              f"after {s}; {sum(drawn):,} rollouts in all instead of {every:,}, "
              f"{1 - sum(drawn) / every:.0%} saved")
    if any(faults.values()):
        print("  graded 0: " + ", ".join(f"{value} {key.replace('_', ' ')}"
                                         for key, value in faults.items()))
    for name, split in splits.items():
        size = f"{len(split['train']):6d} train {len(split['val']):6d} val"
        print(f"  {name:15s} {size}   {what_is_short(name, splits, cfg)}".rstrip())
    print("\n".join(signal_table(splits, counts, cfg)))
    print(f"  {path}")


def main(argv):
    if argv[:1] == ["mix"]:
        return main_mix(argv[1:])
    cfg = parse(argv, __doc__)
    choose("verifier", cfg["verifier"], verifier.REWARDS)
    folder = Path(cfg["out"] or Path(cfg["data"]) / "splits" / Path(cfg["model"]).name)
    if cfg["split"] == "all":
        return write_all(folder, cfg)
    problems = read_problems(cfg["problems"])
    if cfg["measure"]:  # a larger `measure` goes on with the counts of a smaller one
        problems = shuffled(problems)[:cfg["measure"]]
    if 0 < cfg["s_zero"] < cfg["s"]:
        raise BadInput(f"--s_zero={cfg['s_zero']}: must be 0 or at least s={cfg['s']}")
    name, tokenizer = engine.engine_name(cfg), models.load_tokenizer(cfg["model"])
    problems, prompts = within_limit(problems, tokenizer, cfg)
    report = folder / "difficulty.json"
    for there in (read_json(report) if report.exists() else {}, take(cfg, folder)):
        cfg = with_levels_of(there, problems, cfg)

    open_engine = functools.cache(
        lambda: engine.open_engine(name, cfg["model"], cfg, cfg["device"]))
    counts, faults = measure(problems, prompts, open_engine, cfg, folder)
    if cfg["shard"]:
        print(f"{folder}: shard {cfg['shard']} is measured")
        return

    splits = make_splits(problems, counts, cfg)
    write_splits(splits, folder)
    sizes = {name: {part: len(split[part]) for part in split} for name, split in splits.items()}
    save_json(report, dict(
        {key: cfg[key] for key in ("model", "problems", "verifier", "temperature", "s", "s_zero",
                                   "levels")},
        set_hash=set_hash(problems), sizes=sizes))
    tell(counts, faults, splits, cfg, folder / "difficulty.png")


if __name__ == "__main__":
    entry(main)
