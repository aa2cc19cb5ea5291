"""sample.py: measure how hard each problem is for a model, and split the problems by difficulty.

    python sample.py                                          # data/arithmetic and its base model
    python sample.py --data=data/guru_math --model=Qwen/Qwen3-4B-Instruct-2507 --s_zero=0
    python sample.py --data=data/mine --split=all             # every problem; measures nothing
    python sample.py --data=data/mine --measure=3000          # of 3,000 problems drawn at random
    python sample.py mix --data=data/guru_math --D=5000       # the paper's mixtures of splits

Reads a problem file, {"id", "prompt", "answer"} per line, and a model. Writes DATA/splits/MODEL:
- `pass_rates.jsonl`: a header, then {"id", "of", "samples", "correct"} per problem and pass. `of`
  is the problem's hash. The same command continues a killed measurement. It starts from the model's
  `pass_rates.jsonl.gz` if that has the same weights and settings.
- {easy,hard,very_easy,mixed}_{train,val}.jsonl: splits by the paper's bands of avg@16 (section 3,
  factor 1). With s_zero=128 also {extreme,level_easy,level_very_easy}, the levels of the paper's
  study of mixtures.
- `difficulty.png`: a histogram of pass rates. `difficulty.json`: settings of the splits.

`mix` writes mix_{hard,dual,tri}_D{D}_seed{SEED}_train.jsonl from the levels; --D=0 takes all they
allow. Splits are in random order, so `head` and `cat` make other mixtures.
"""
import collections
import concurrent.futures
import functools
import itertools
import os
import random
import re
from pathlib import Path

from config import BadInput, choose, entry, expect, parse, read_json
import numpy as np

from core import engine, models, plots
from core.log import append, read_log, save_json
from core.problems import copies, read_problems, set_hash, tokenize, write_problems
import verifier

# Ranges of avg@s (Very Easy is ours) and of avg@s_zero
BANDS = dict(easy=(0.3, 0.6), hard=(0.0, 0.0625), very_easy=(0.6, 0.9))
LEVELS = dict(extreme=(0.0, 0.0), level_easy=(0.3, 0.6), level_very_easy=(0.6, 0.9))
N_VAL = 300  # validation problems of a split
FEW = 20     # a split with fewer training problems gets a warning
SURE = 0.95  # a problem's level is known if it has this probability


# ---- Difficulty ----------------------------------------------------------------------------------

@functools.lru_cache(None)
def level_of(correct, drawn, total):
    """Return (level, probability): the level, one of LEVELS or "" for none, that a problem with
    `correct` of `drawn` rollouts solved most probably has after `total` rollouts.

    With a uniform prior on the pass rate, the remaining rollouts are beta-binomial.
    """
    from scipy.stats import betabinom
    more = np.arange(total - drawn + 1)
    p = betabinom.pmf(more, total - drawn, correct + 1, drawn - correct + 1)
    rate = (correct + more) / total
    chance = {name: p[(low <= rate) & (rate <= high)].sum() for name, (low, high) in LEVELS.items()}
    chance[""] = 1 - sum(chance.values())
    return max(chance.items(), key=lambda item: item[1])


def is_open(correct, drawn, total):
    """Return whether a problem needs more rollouts for its level; `extreme` needs all of them."""
    return drawn < total and (correct == 0 or level_of(correct, drawn, total)[1] < SURE)


def latest_count(counts, cfg):
    """Return (solved, drawn, total) of counts, {drawn: solved}: the latest count within `total`
    rollouts, the larger of s and s_zero."""
    total = max(cfg["s"], cfg["s_zero"])
    drawn = max(k for k in counts if k <= total)
    return counts[drawn], drawn, total


def settings(cfg):
    """Return a dict of the settings that affect the counts."""
    keys = "model s temperature top_p max_new_tokens verifier".split()
    return {key: cfg[key] for key in keys} | dict(weights=models.weights_hash(cfg["model"]))


def describe_differences(header, now):
    """Return the settings of a pass-rate file that differ from `now`, as text."""
    return ", ".join(f"{key}={header.get(key)}, now {now[key]}" for key in now
                     if header.get(key) != now[key])


def use_shipped_rates(cfg, folder):
    """Start pass_rates.jsonl with the counts that came with the model, unless the file exists.

    Return their header, or {} if there are none or if they have other settings, which are printed.
    """
    source, path = Path(cfg["model"]) / "pass_rates.jsonl.gz", folder / "pass_rates.jsonl"
    if not source.exists():
        return {}
    header, *lines = read_log(source) or [{}]
    header["model"] = cfg["model"]  # the folder may have moved
    if differences := describe_differences(header, settings(cfg)):
        print(f"{source}: not used, measured with other settings: {differences}")
        return {}
    if not path.exists():
        write_problems(path, [header, *lines])  # it writes any records
        print(f"{source}: used, measured with these weights and settings")
    return header


def read_counts(problems, folder, now):
    """Return {id: {drawn: solved}} from pass_rates*.jsonl. Raise BadInput if a file has other
    settings than `now`."""
    counts = {p["id"]: {0: 0} for p in problems}
    hashes = {p["id"]: set_hash([p]) for p in problems}
    for path in folder.glob("pass_rates*.jsonl"):
        # a file is empty until its first problem is measured
        header, *lines = read_log(path) or [now]
        if differences := describe_differences(header, now):
            raise BadInput(f"{path}: was measured with other settings: {differences}; give another "
                           "--out, or remove it")
        for r in lines:
            # skip the headers of other shards, and counts of a different problem with the same id
            if hashes.get(r.get("id"), "") == r.get("of"):
                counts[r["id"]][r["samples"]] = r["correct"]
    return counts


def next_to_draw(problems, counts, cfg):
    """Return the problems with the fewest rollouts among those that need more."""
    state = {p["id"]: latest_count(counts[p["id"]], cfg) for p in problems}
    todo = [p for p in problems if is_open(*state[p["id"]])]
    fewest = min((state[p["id"]][1] for p in todo), default=0)
    return [p for p in todo if state[p["id"]][1] == fewest]


def measure(problems, prompts, open_engine, cfg, folder):
    """Count solved rollouts: first s per problem, then s more at a time until the level is known.

    Return {id: {drawn: solved}} with the count after each pass, and the verifier's faults in this
    call. Raise BadInput if `folder` has counts with other settings. prompts: the token ids.
    open_engine() is called only if this shard of the problems has something to measure.

    A count is appended to pass_rates.jsonl at once, and no count of any shard is measured again. A
    problem's rollouts depend only on its id, so an interruption changes no number.
    """
    from tqdm import tqdm
    shard = cfg["shard"] and "." + cfg["shard"].replace("/", "of")
    path, now = folder / f"pass_rates{shard}.jsonl", settings(cfg)
    folder.mkdir(parents=True, exist_ok=True)
    counts, faults = read_counts(problems, folder, now), collections.Counter()
    prompts = {p["id"]: ids for p, ids in zip(problems, prompts)}
    i, k = map(int, (cfg["shard"] or "0/1").split("/"))
    with open(path, "ab", buffering=0) as file:
        # cut a partial last line, which a killed measurement leaves
        os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
        while todo := next_to_draw(problems[i::k], counts, cfg):
            _, drawn, total = latest_count(counts[todo[0]["id"]], cfg)
            goal = min(drawn + cfg["s"], total)
            generator = open_engine()
            seeds = [engine.rollout_seed("difficulty", p["id"], goal) for p in todo]
            stream = generator.stream([prompts[p["id"]] for p in todo], goal - drawn, seeds)
            with tqdm(total=len(todo), mininterval=1,
                      desc=f"{goal} rollouts for {len(todo)} problems") as bar:
                for batch, job in grade_stream(stream, todo, generator.tokenizer, cfg):
                    rewards, bad = job.result()
                    if not os.fstat(file.fileno()).st_size:
                        append(file, dict(type="header", **now, set_hash=set_hash(problems),
                                          s_zero=cfg["s_zero"]))
                    faults.update(bad)
                    for p, solved in zip(batch, verifier.solved(rewards).sum(1).tolist()):
                        counts[p["id"]][goal] = counts[p["id"]][drawn] + solved
                        append(file, dict(id=p["id"], of=set_hash([p]), samples=goal,
                                          correct=counts[p["id"]][goal]))
                    bar.update(len(batch))
    return counts, faults


def grade_stream(stream, problems, tokenizer, cfg):
    """Yield (a batch of problems, the future of verifier.grade), in the order of the engine's
    stream. A thread grades, so that generation does not wait for math-verify's limit."""
    jobs, grader = collections.deque(), concurrent.futures.ThreadPoolExecutor(1)
    try:
        for js, rollouts in stream:
            batch = [problems[j] for j in js]
            jobs.append((batch, grader.submit(verifier.grade, batch, rollouts, tokenizer, cfg)))
            while jobs and jobs[0][1].done():
                yield jobs.popleft()
        yield from jobs
    finally:
        grader.shutdown(cancel_futures=True)


def shuffled(problems):
    """Return the problems in the one random order that decides which of them are held out."""
    return random.Random("splits").sample(problems, len(problems))


def hold_out(groups, cfg):
    """Return {name: {"train": [...], "val": [...]}} for {name: problems in random order}.

    The first n_val of a group are for validation, by default 300, but at most a quarter, and at
    least one of two or more. No split trains on a validation prompt of any group, so any split can
    validate a model that was trained on another.
    """
    splits = {}
    for name, group in groups.items():
        size = cfg["n_val"] or min(N_VAL, max(len(group) // 4, int(len(group) > 1)))
        splits[name] = dict(val=group[:size])
    held_out = [p for split in splits.values() for p in split["val"]]
    for name, group in groups.items():
        first = copies(held_out + group)[len(held_out):]
        splits[name]["train"] = [p for p, i in zip(group, first) if i >= len(held_out)]
    return splits


def make_splits(problems, counts, cfg):
    """Return the splits of `hold_out` for problems with their counts. Bands are chosen by avg@s,
    levels by avg@s_zero; `mixed` is half Hard, half Easy."""
    groups = {name: [] for name in (*BANDS, *LEVELS)}
    for p in shuffled(problems):
        solved, drawn, total = latest_count(counts[p["id"]], cfg)
        rate = counts[p["id"]][cfg["s"]] / cfg["s"]
        names = [name for name, (low, high) in BANDS.items() if low <= rate <= high]
        if cfg["s_zero"]:
            names.append(level_of(solved, drawn, total)[0])
        for name in filter(None, names):
            groups[name].append(dict(p, pass_rate=rate, samples=drawn, correct=solved))
    splits = hold_out(groups, cfg)
    splits["mixed"] = {part: [p for pair in zip(splits["hard"][part], splits["easy"][part])
                              for p in pair] for part in ("val", "train")}
    del splits["mixed"]["val"][cfg["n_val"] or N_VAL:]
    return splits


def write_splits(splits, folder):
    """Write the train and val files of the splits. If one has no problems, remove its old file."""
    for name, split in splits.items():
        for part, problems in split.items():
            path = folder / f"{name}_{part}.jsonl"
            if problems:
                write_problems(path, problems)
            else:
                path.unlink(missing_ok=True)


def write_all(folder, cfg):
    """Write the split `all`, every problem of the file, without measuring the difficulty."""
    problems = read_problems(cfg["problems"])
    splits = hold_out({"all": shuffled(problems)}, cfg)
    train, val = splits["all"]["train"], splits["all"]["val"]
    expect(cfg, ("n_val", train, f"leaves none of the {len(problems)} problems of "
                 f"{cfg['problems']} to train on; give a smaller --n_val"))
    write_splits(splits, folder)
    print(f"  all             {len(train):6d} train {len(val):6d} val of {cfg['problems']}, "
          "difficulty not measured")


# ---- Mixtures of splits --------------------------------------------------------------------------

# The paper's mixtures; its Hard is our `extreme`. A mixture takes a problem from each split in turn
MIXTURES = dict(hard=["extreme"], dual=["extreme", "level_easy"],
                tri=["extreme", "level_easy", "extreme", "level_very_easy"])


def mixture(name, splits, D, seed):
    """Return D problems of one of MIXTURES from `splits` {name: problems}; D = 0: all they allow.
    Raise BadInput if D is too large."""
    problems, queues = [], {}
    for split in MIXTURES[name]:
        rng = random.Random(f"mix {seed} {split}")
        queues[split] = iter(rng.sample(splits[split], len(splits[split])))
    for split in itertools.cycle(MIXTURES[name]):
        if (problem := next(queues[split], None)) is None:
            break
        problems.append(problem)
    if D > len(problems):
        raise BadInput(f"--D={D}: the mixture {name} has at most {len(problems)} problems, because "
                       f"{split} has only {len(splits[split])}; give a smaller --D")
    return problems[:D or None]


def home(cfg):
    """Return the folder of a model's splits."""
    return Path(cfg["out"] or Path(cfg["data"]) / "splits" / Path(cfg["model"]).name)


def main_mix(argv):
    """Write the paper's mixtures. If one of them cannot be made, write none."""
    cfg = parse(argv, __doc__)
    folder = home(cfg)
    files = {split: folder / f"{split}_train.jsonl" for split in LEVELS}
    if missing := [str(path) for path in files.values() if not path.exists()]:
        raise BadInput(f"{missing[0]}: no such file; no problem has this level, or the levels were "
                       "not measured with --s_zero=128")
    splits = {split: read_problems(path) for split, path in files.items()}
    made = {name: mixture(name, splits, cfg["D"], cfg["seed"]) for name in MIXTURES}
    for name, problems in made.items():
        path = folder / f"mix_{name}_D{len(problems)}_seed{cfg['seed']}_train.jsonl"
        write_problems(path, problems)
        print(f"{path}: {len(problems)} problems")


# ---- From the problem file to the splits ---------------------------------------------------------

def draw_histogram(rates, samples, path, title):
    """Draw a histogram of pass rates, with the bands as colours."""
    fig, [[ax]] = plots.canvas(1, 1, (9, 4.2))
    for i, (name, band) in enumerate(BANDS.items()):
        ax.axvspan(*band, color=f"C{i}", alpha=0.16, label=name)
    ax.hist(rates, bins=[(i - 0.5) / samples for i in range(samples + 2)], color="0.25", rwidth=0.7)
    ax.set(xlabel="pass rate of a problem over the rollouts", ylabel="problems")
    plots.save(fig, path, title)


def within_limit(problems, tokenizer, cfg):
    """Return the problems with prompts of at most max_prompt_tokens, and the prompts' token ids.
    Raise BadInput if none is left."""
    limit = cfg["max_prompt_tokens"]
    pairs = [(p, ids) for p, ids in zip(problems, tokenize(problems, tokenizer))
             if 0 < len(ids) <= limit]
    expect(cfg, ("max_prompt_tokens", pairs,
                 f"every prompt of {cfg['problems']} has more tokens; give a larger limit"))
    if len(pairs) < len(problems):
        print(f"{cfg['problems']}: {len(problems) - len(pairs)} of {len(problems)} prompts are "
              f"longer than --max_prompt_tokens={limit} and left out")
    return [list(column) for column in zip(*pairs)]


def report(counts, splits, cfg, path):
    """Print the pass rates and the size of each split, and draw a histogram to `path`."""
    s, s_zero = cfg["s"], cfg["s_zero"]
    rates = [c[s] / s for c in counts.values()]
    title = (f"{Path(cfg['model']).name}: {len(rates):,} problems, {s} rollouts each at "
             f"temperature {cfg['temperature']:g}")
    draw_histogram(rates, min(s, 40), path, title)
    print(f"{title}: mean {sum(rates) / len(rates):.3f}")
    if not any(rates):
        print(f"  no rollout is solved: does --verifier={cfg['verifier']} read answers as this "
              "model writes them?")
    if s_zero:
        drawn = sum(latest_count(c, cfg)[1] for c in counts.values())
        print(f"  levels by {s_zero} rollouts: {drawn:,} rollouts in all")
    for name, split in splits.items():
        if s_zero or name not in LEVELS:
            train, val = len(split["train"]), len(split["val"])
            few = "   few: measure more problems or lower --n_val"
            print(f"  {name:15s} {train:6d} train {val:6d} val"
                  + few * (train < FEW or val < cfg["n_val"]))
    print(f"  {path}")


def main(argv):
    if argv[:1] == ["mix"]:
        return main_mix(argv[1:])
    cfg = parse(argv, __doc__, dict(shard=("", "i/k: one of k parallel processes, which measures "
                                           "every k-th problem from i on and writes no splits")))
    shard = re.fullmatch(r"(\d{1,4})/(\d{1,4})", cfg["shard"] or "0/1")
    expect(cfg, ("shard", shard and int(shard[1]) < int(shard[2]),
                 "expected i/k with i from 0 to k - 1, as in 0/8"),
           ("s_zero", cfg["split"] == "all" or not 0 < cfg["s_zero"] < cfg["s"],
            f"must be 0 or at least s={cfg['s']}"))
    choose("verifier", cfg["verifier"], verifier.REWARDS)
    folder = home(cfg)
    if cfg["split"] == "all":
        return write_all(folder, cfg)
    problems = read_problems(cfg["problems"])
    if cfg["measure"]:  # a larger --measure includes the problems of a smaller --measure
        problems = shuffled(problems)[:cfg["measure"]]
    name, tokenizer = engine.engine_name(cfg), models.load_tokenizer(cfg["model"])
    problems, prompts = within_limit(problems, tokenizer, cfg)
    info = folder / "difficulty.json"
    for earlier in (read_json(info) if info.exists() else {}, use_shipped_rates(cfg, folder)):
        if earlier.get("set_hash") == set_hash(problems):
            # keep levels measured before, so that no split trains on their validation problems
            cfg["s_zero"] = max(cfg["s_zero"], earlier["s_zero"])

    open_engine = functools.cache(
        lambda: engine.open_engine(name, cfg["model"], cfg, cfg["device"]))
    counts, faults = measure(problems, prompts, open_engine, cfg, folder)
    if any(faults.values()):
        print("graded 0: " + ", ".join(f"{value} {key.replace('_', ' ')}"
                                       for key, value in faults.items()))
    if cfg["shard"]:
        return print(f"{folder}: shard {cfg['shard']} is measured")

    splits = make_splits(problems, counts, cfg)
    write_splits(splits, folder)
    keys = "model problems verifier temperature s s_zero n_val measure".split()
    save_json(info, {key: cfg[key] for key in keys} | dict(set_hash=set_hash(problems)))
    report(counts, splits, cfg, folder / "difficulty.png")


if __name__ == "__main__":
    entry(main)
