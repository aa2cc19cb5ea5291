"""sample.py: how hard each problem is for a model, and the splits by difficulty.

    python sample.py                                          # data/arithmetic and its base model
    python sample.py --data=data/guru_math --model=Qwen/Qwen3-4B-Instruct-2507 --s_zero=0
    python sample.py --data=data/mine --split=all             # no difficulty: every problem
    python sample.py ship --model=data/mine/base              # and put its pass rates beside it

Reads a problem file, {"id", "prompt", "answer", ...} a line, and a model.
Writes under DATA/splits/MODEL/
- `pass_rates.jsonl`, {"id", "of", "samples", "correct"} a line, appended as measured: a killed
  measurement goes on where it was; where `pass_rates.jsonl.gz` came with the model and fits, it
  starts with these counts;
- the splits {easy,hard,very_easy,mixed}_{train,val}.jsonl by the paper's bands of avg@16 (section
  3, factor 1), and, with s_zero=128, {extreme,level_easy,level_very_easy}, the levels of its study
  of mixtures, by 128 rollouts;
- `difficulty.png` and `difficulty.json`, the histogram of pass rates with the bands.
It ends with what the pass rates say of n before any run: the share of groups without a signal.
Mixtures of splits and subsets of them: data/guru_math/prepare.py mix.

Needs config.py, verifier.py, core/engine.py, core/models.py, core/problems.py,
core/plots.py.
"""
import collections
import concurrent.futures
import functools
import gzip
import hashlib
import json
import math
import os
import random
from collections import Counter
from pathlib import Path

from config import (BadInput, append, aside, entry, parse, read_json, read_log,
                    save_json)  # first: from here on Ctrl-C is one line
import numpy as np

from core import engine, models, plots
from core.problems import (encode, read_problems, set_hash, subset, tokenize,  # noqa: F401
                           write_problems)
import verifier

# The paper's main splits, Easy and Hard, by avg@s, and Very Easy likewise; the levels of its study
# of mixtures, by avg@s_zero
BANDS = dict(easy=(0.3, 0.6), hard=(0.0, 0.0625), very_easy=(0.6, 0.9))
LEVELS = dict(extreme=(0.0, 0.0), level_easy=(0.3, 0.6), level_very_easy=(0.6, 0.9))
GROUPS = (4, 8, 16, 32, 64)  # the n of which is said how many groups carry a signal
N_VAL, FEW = 300, 20  # problems to validate on; a split with fewer to train on is named
SURE = 0.95  # a level counts as known once it is this probable
SHIPPED = "pass_rates.jsonl.gz"  # beside a model that is passed on together with its pass rates


# -------------------------------------------------------------------------------------------------
# Difficulty


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


def folder_hash(path):
    """12 hex digits that change with any file of a model folder: weights, tokenizer, template."""
    files = [f for f in sorted(Path(path).iterdir()) if f.is_file() and f.name != SHIPPED]
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.name} {file.stat().st_size}\n".encode())
        with open(file, "rb") as content:
            while block := content.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()[:12]


def settings(cfg):
    """What the counts depend on besides the problems, as a dict."""
    keys = "model s temperature top_p max_new_tokens verifier".split()
    found = {key: cfg[key] for key in keys}
    if (Path(cfg["model"]) / SHIPPED).exists():  # hashing a large model takes long: only for this
        found["weights"] = folder_hash(cfg["model"])
    return found


def header_of(path):
    """The header of a file of pass rates, {} where there is none."""
    records = read_log(path) if path.exists() else []
    return records[0] if records and records[0].get("type") == "header" else {}


def ship(problems, counts, faults, cfg):
    """Write the counts of `measure` beside the model, {"id", "correct": {samples: solved}} a line.

    The header says of which weights, problems and settings they are. Raises BadInput where the
    model is no folder.
    """
    path = Path(models.existing(cfg["model"])) / SHIPPED
    if not path.parent.is_dir():
        raise BadInput(f"--model={cfg['model']}: pass rates are shipped beside a folder")
    lines = [dict(type="header", **settings(cfg) | dict(weights=folder_hash(path.parent)),
                  set_hash=set_hash(problems), s_zero=cfg["s_zero"], levels=cfg["levels"],
                  **faults)]
    for p in problems:
        lines.append(dict(id=p["id"], correct={k: c for k, c in counts[p["id"]].items() if k}))
    with aside(path) as part:  # mtime=0: the same counts are the same bytes
        text = "".join(json.dumps(line) + "\n" for line in lines)
        part.write_bytes(gzip.compress(text.encode(), mtime=0))
    print(f"{path}: the pass rates of {len(problems):,} problems")


def take(problems, cfg, folder):
    """Start pass_rates.jsonl in `folder` with the counts that came with the model, where they fit.

    They fit where weights, problems and settings are equal; otherwise one line says what differs
    and `measure` has all to do. What was measured here before stays. Raises BadInput where the
    file is torn.
    """
    source, path = Path(cfg["model"]) / SHIPPED, folder / "pass_rates.jsonl"
    # counts from before rates were shipped do not say of which weights they are
    if not source.exists() or "weights" in header_of(path):
        return
    now = settings(cfg) | dict(set_hash=set_hash(problems))
    header = header_of(source)
    differ = [f"{key}={header.get(key)} there, {now[key]} now" for key in now
              if key != "model" and header.get(key) != now[key]]
    if header and differ:
        print(f"{source}: not of this measurement: {', '.join(differ)}")
        return
    try:
        rates = {r["id"]: {int(k): c for k, c in r["correct"].items()}
                 for r in read_log(source)[1:]}
        lines = [dict(id=p["id"], of=set_hash([p]), samples=k, correct=c)
                 for p in problems for k, c in rates[p["id"]].items()]
        lines.sort(key=lambda r: r["samples"])  # as `measure` comes to them
        faults = {key: header[key] for key in ("verifier_timeouts", "verifier_errors")}
        lines[0] |= {key: value for key, value in faults.items() if value}
        header |= now | {"from": str(source)}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise BadInput(f"{source}: not whole; get it anew, or measure with "
                       "--remeasure=true") from None
    with aside(path) as part:
        part.write_text("".join(json.dumps(r) + "\n" for r in [header, *lines]))
    print(f"{source}: measured with these weights, problems and settings, and taken from there "
          "(--remeasure=true measures anew)")


def measured(problems, folder, header):
    """What pass_rates*.jsonl of the folder hold: ({id: {samples: solved}}, the verifier's faults).

    Raises BadInput where they were measured with other settings than `header` says.
    """
    counts = {p["id"]: {0: 0} for p in problems}
    of = {p["id"]: set_hash([p]) for p in problems}
    faults = dict(verifier_timeouts=0, verifier_errors=0)
    for path in folder.glob("pass_rates*.jsonl"):
        records = read_log(path)
        for i, r in enumerate(records):
            if i == 0 and r.get("type") != "header":
                raise BadInput(f"{path}: by an earlier version, which did not say how it measured; "
                               "give another --out, or remove it")
            if r.get("type") == "header":
                differ = [f"{key}={r[key]} there, {header[key]} now"
                          for key in r if header.get(key, r[key]) != r[key]]
                if differ and len(records) == 1:  # it failed before its first problem
                    path.unlink()
                elif differ:
                    raise BadInput(f"{path}: measured otherwise: {', '.join(differ)}; "
                                   "give another --out, or remove it")
            elif of.get(r["id"]) == r["of"]:  # else it is of another problem that had this id
                counts[r["id"]][r["samples"]] = r["correct"]
                faults = {key: value + r.get(key, 0) for key, value in faults.items()}
    return counts, faults


def measure(problems, prompts, open_engine, cfg, folder):
    """Count solved rollouts: s of every problem, then s at a time to s_zero where a level is open.

    prompts: the problems' token ids; open_engine: called where there is something to measure.
    Returns {id: {samples: solved}} with what stands after each helping, and what the verifier gave
    up on. Each helping is a line of pass_rates.jsonl as soon as it is there, and what is there or
    in a shard's file is not measured again. A problem's rollouts depend on its id alone, so the
    numbers are the same however often the work was cut off. Raises BadInput where it was measured
    otherwise.
    """
    from tqdm import tqdm
    shard = cfg["shard"] and "." + cfg["shard"].replace("/", "of")
    path = folder / f"pass_rates{shard}.jsonl"
    header = dict(type="header", **settings(cfg))
    folder.mkdir(parents=True, exist_ok=True)
    counts, faults = measured(problems, folder, header)
    prompts = {p["id"]: ids for p, ids in zip(problems, prompts)}
    levels = tuple(cfg["levels"].split())
    with open(path, "ab", buffering=0) as file:
        # half a line of a killed measurement
        os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
        if not os.fstat(file.fileno()).st_size:
            append(file, header)
        while True:
            state = {p["id"]: latest(counts[p["id"]], cfg) for p in problems}  # (solved, drawn)
            todo = [p for p in problems if state[p["id"]][1] == 0]
            if not todo and cfg["s_zero"]:
                todo = [p for p in problems if is_open(*state[p["id"]], cfg["s_zero"], levels)]
            if not todo:
                return counts, faults
            drawn = min(state[p["id"]][1] for p in todo)
            todo = [p for p in todo if state[p["id"]][1] == drawn]
            goal = min(drawn + cfg["s"], cfg["s_zero"]) if drawn else cfg["s"]
            generator = open_engine()
            seeds = [engine.rollout_seed("difficulty", p["id"], goal) for p in todo]
            asked = [prompts[p["id"]] for p in todo]
            ended = generator.stream(asked, goal - drawn, seeds)
            with tqdm(total=len(todo), mininterval=1,
                      desc=f"{goal} rollouts for {len(todo)} problems") as bar:
                for batch, rewards, bad in graded(ended, todo, generator.tokenizer, cfg):
                    bad = {key: value for key, value in bad.items() if value}
                    for p, correct in zip(batch, verifier.solved(rewards).sum(1).tolist()):
                        counts[p["id"]][goal] = state[p["id"]][0] + correct
                        append(file, dict(id=p["id"], of=set_hash([p]), samples=goal,
                                          correct=counts[p["id"]][goal]) | bad)
                        faults = {key: value + bad.get(key, 0) for key, value in faults.items()}
                        bad = {}  # a batch's faults stand in its first line
                    bar.update(len(batch))


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
    (`val_size`) in one random order of all problems. No split trains on one of them, whichever
    split it validates: whoever trains on one split can be evaluated on every other. `mixed` is half
    Hard, half Easy.
    """
    order = []
    for p in shuffled(problems):
        correct, drawn = latest(counts[p["id"]], cfg)
        rate = counts[p["id"]][cfg["s"]] / cfg["s"]
        order.append(dict(p, pass_rate=rate, samples=drawn, correct=correct))
    groups = {}
    for name, (low, high) in BANDS.items():
        groups[name] = [p for p in order if low <= p["pass_rate"] <= high]
    levels = tuple(cfg["levels"].split()) if cfg["s_zero"] else ()
    level = {}
    for p in order if levels else ():
        level[p["id"]] = level_of(p["correct"], p["samples"], cfg["s_zero"], levels)[0]
    for name in LEVELS:
        groups[name] = [p for p in order if level.get(p["id"]) == name]
    vals = {name: group[:val_size(len(group), cfg)] for name, group in groups.items()}
    held, splits = {p["id"] for val in vals.values() for p in val}, {}
    for name, group in groups.items():
        splits[name] = dict(val=vals[name], train=[p for p in group if p["id"] not in held])
    splits["mixed"] = {}
    for part in ("val", "train"):
        pairs = zip(splits["hard"][part], splits["easy"][part])
        splits["mixed"][part] = [p for pair in pairs for p in pair]
    splits["mixed"]["val"] = splits["mixed"]["val"][:cfg["n_val"] or N_VAL]
    return splits


def shuffled(problems):
    """The problems in the one random order that decides which of them are held out."""
    return random.Random("splits").sample(problems, len(problems))


def val_size(size, cfg):
    """How many of the `size` problems of a split are held out to validate on.

    n_val, or where nobody gave it 300, but at most a quarter; of two or more problems one.
    """
    return cfg["n_val"] or min(N_VAL, max(size // 4, int(size > 1)))


def write_all(folder, cfg):
    """The split `all`: every problem of the file, for who measures no difficulty."""
    order = shuffled(read_problems(cfg["problems"]))
    val = order[:val_size(len(order), cfg)]
    train = order[len(val):]
    if not train:
        raise BadInput(f"--n_val={cfg['n_val']}: none of the {len(order)} problems of "
                       f"{cfg['problems']} is left to train on")
    for part, some in (("train", train), ("val", val)):
        if some:
            write_problems(folder / f"all_{part}.jsonl", some)
    print(f"  all             {len(train):6d} train {len(val):6d} val of {cfg['problems']}, no "
          "difficulty is measured")


# -------------------------------------------------------------------------------------------------
# Is n too small? Groups that are all solved, or of which none is, have no advantage


def all_alike(correct, drawn, n):
    """The chance that n of a problem's `drawn` rollouts, `correct` solved, are all alike.

    Hypergeometric: for problems that were not chosen by these counts, an unbiased estimate of
    p^n + (1 - p)^n. Raises ValueError where n > drawn: then there is none.
    """
    if n > drawn:
        raise ValueError(f"{n} of {drawn} rollouts")
    return (math.comb(correct, n) + math.comb(drawn - correct, n)) / math.comb(drawn, n)


def pass_rate_law(counts, steps=200, rounds=1000):
    """How pass rates are spread over problems: (rates (G,), {(correct, drawn): weights (G,)}).

    counts: a (correct, drawn) for each problem. The distribution on a grid of rates with the
    highest likelihood, by EM (Laird 1978); a problem's own weights are those given its counts.
    Drawing more of some problems because of what was drawn before changes no likelihood.
    """
    rates = np.sin(np.pi / 2 * (np.arange(steps) + 0.5) / steps) ** 2  # dense near 0 and 1
    kinds = Counter(counts)
    c, s = np.array(list(kinds), float).T
    log = c[:, None] * np.log(rates) + (s - c)[:, None] * np.log1p(-rates)  # (kinds, G)
    likelihood = np.exp(log - log.max(1, keepdims=True))
    times, weight = np.array(list(kinds.values()), float), np.full(steps, 1 / steps)
    for _ in range(rounds):
        own = likelihood * weight
        own /= own.sum(1, keepdims=True)
        weight = times @ own / times.sum()
    return rates, dict(zip(kinds, own))


def no_signal(counts, law, n):
    """The share of groups of n fresh rollouts without a signal, for problems with these counts.

    counts: [(correct, drawn), ...]; law: of `pass_rate_law` over all problems that were measured.
    A split holds problems that were chosen by these very counts, so their share among the rollouts
    drawn errs: of Easy at n = 4 it is 12%, and of fresh rollouts 21%.
    """
    rates, own = law
    alike = rates ** n + (1 - rates) ** n
    return float(sum(times * (own[kind] @ alike) for kind, times in Counter(counts).items())
                 / len(counts))


def half_with_signal(counts, law, most=4096):
    """The smallest n at which half of the groups carry a signal, None above `most`."""
    low, high = 1, most
    if no_signal(counts, law, high) > 0.5:
        return None
    while high - low > 1:  # the share falls with n
        middle = (low + high) // 2
        low, high = (low, middle) if no_signal(counts, law, middle) <= 0.5 else (middle, high)
    return high


def signal_table(splits, counts, cfg):
    """What pass rates say of n, as lines of text. splits: of make_splits; counts: of `measure`."""
    def row(name, values, form, last=""):
        cells = "".join(f"{'' if x is None else format(x, form):>7s}" for x in values)
        return f"    {name:15s}{cells}   {last}".rstrip()
    every = [latest(c, cfg) for c in counts.values()]
    law, s = pass_rate_law(every), cfg["s"]
    yield "  Is n too small? Groups without a signal (all n rollouts solved, or none):"
    yield row("n =", GROUPS, "d", "half carry a signal from")
    first = Counter(c[s] for c in counts.values())
    exact = {n: sum(m * all_alike(c, s, n) for c, m in first.items()) / len(counts)
             for n in range(2, s + 1)}
    half = next((f"n = {n}" for n, share in exact.items() if share <= 0.5), f"n above {s}")
    yield row("all problems", [exact.get(n) for n in GROUPS], ".0%", half)
    for name, split in splits.items():
        if not split["train"]:
            continue
        kinds = [(p["correct"], p["samples"]) for p in split["train"]]
        half = half_with_signal(kinds, law)
        yield row(name, [no_signal(kinds, law, n) for n in GROUPS], ".0%",
                  f"n = {half}" if half else "n above 4096")
    yield f"    All problems: exact, hypergeometric, of {s} rollouts each. A split was chosen by"
    yield "    its own counts, so its row is for fresh rollouts, by the spread of pass rates over"
    yield f"    all problems (empirical Bayes); beyond n = {s} it guesses at rates near 0 and 1"


def draw_difficulty(rates, samples, splits, s_zero, path, title):
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


def main(argv):
    shipping = argv[:1] == ["ship"]
    cfg = parse(argv[shipping:], __doc__)
    verifier.check_name(cfg)
    folder = Path(cfg["out"] or Path(cfg["data"]) / "splits" / Path(cfg["model"]).name)
    if cfg["split"] == "all":
        return write_all(folder, cfg)
    problems = read_problems(cfg["problems"])
    s, limit = cfg["s"], cfg["max_prompt_tokens"]
    if 0 < cfg["s_zero"] < s:
        raise BadInput(f"--s_zero={cfg['s_zero']}: must be 0 or at least s={s}")
    name, tokenizer = engine.engine_name(cfg), models.load_tokenizer(cfg["model"])
    open_engine = functools.cache(
        lambda: engine.open_engine(name, cfg["model"], cfg, cfg["device"]))

    # prompts that are too long are left out; prepare.py could do so by one model's tokenizer only
    prompts, every = tokenize(problems, tokenizer), len(problems)
    fits = [0 < len(ids) <= limit for ids in prompts]
    if not any(fits):
        raise BadInput(f"--max_prompt_tokens={limit}: no prompt of {cfg['problems']} is as short")
    over_long = fits.count(False)
    if over_long:
        print(f"{cfg['problems']}: {over_long} of {every} prompts are over "
              f"--max_prompt_tokens={limit}, left out")
    problems = [p for p, fit in zip(problems, fits) if fit]
    prompts = [ids for ids, fit in zip(prompts, fits) if fit]

    # counts that came with the model, and levels that are there stay, with what they hold out
    report, drawn_before = folder / "difficulty.json", folder / "pass_rates.jsonl"
    if not cfg["remeasure"]:
        take(problems, cfg, folder)
    elif "from" in header_of(drawn_before):
        drawn_before.unlink()
    for there in (read_json(report) if report.exists() else {}, header_of(drawn_before)):
        if there.get("s_zero") and there["set_hash"] == set_hash(problems):
            asked = set(there.get("levels", "").split())
            if cfg["s_zero"]:
                asked |= set(cfg["levels"].split())
            cfg = dict(cfg, s_zero=max(cfg["s_zero"], there["s_zero"]),
                       levels=" ".join(name for name in LEVELS if name in asked))
    if cfg["shard"]:
        i, k = map(int, cfg["shard"].split("/"))
        measure(problems[i::k], prompts[i::k], open_engine, cfg, folder)
        print(f"{folder}: shard {cfg['shard']} is measured")
        return

    counts, faults = measure(problems, prompts, open_engine, cfg, folder)
    if shipping:
        ship(problems, counts, faults, cfg)
    splits, s_zero = make_splits(problems, counts, cfg), cfg["s_zero"]
    rates = [counts[p["id"]][s] / s for p in problems]
    title = (f"{Path(cfg['model']).name}: {len(problems):,} problems, {s} rollouts each at "
             f"temperature {cfg['temperature']:g}")
    draw_difficulty(rates, min(s, 40), splits, s_zero, folder / "difficulty.png", title)
    print(f"{title}: mean {sum(rates) / len(rates):.3f}")
    if not any(rates):
        print(f"  none was right: does --verifier={cfg['verifier']} read answers as this model "
              "writes them?")
    drawn = [latest(c, cfg)[1] for c in counts.values()]
    rollouts, all_of_them = sum(drawn), len(problems) * max(s, s_zero)
    if s_zero:
        second = sum(k > s for k in drawn)
        print(f"  levels by {s_zero} rollouts: {second:,} problems were open after {s}; "
              f"{rollouts:,} rollouts in all instead of {all_of_them:,}, "
              f"{1 - rollouts / all_of_them:.0%} saved")
    if any(faults.values()):
        print("  graded 0: " + ", ".join(f"{value} {key.replace('_', ' ')}"
                                         for key, value in faults.items()))
    sizes = {}
    for name, split in splits.items():
        sizes[name] = {part: len(split[part]) for part in split}
        note = ""
        if name in LEVELS and not (s_zero and name in cfg["levels"].split()):
            note = "   not asked for (--s_zero, --levels)"
        else:
            short = [f"fewer than --n_val={cfg['n_val']} to validate on: measure more problems"]
            short = short if len(split["val"]) < cfg["n_val"] else []
            if len(split["train"]) < FEW:
                most = max(splits, key=lambda name: len(splits[name]["train"]))
                short.append(f"fewer than {FEW} to train on: --split={most} has more; more "
                             "problems, or a smaller --n_val, help too")
            note = "   " * bool(short) + ", ".join(short)
        print(f"  {name:15s} {sizes[name]['train']:6d} train {sizes[name]['val']:6d} val{note}")
        for part in split:
            if split[part]:
                write_problems(folder / f"{name}_{part}.jsonl", split[part])
            else:  # one of an earlier measurement
                (folder / f"{name}_{part}.jsonl").unlink(missing_ok=True)
    save_json(report, dict(
        model=cfg["model"], problems=cfg["problems"], set_hash=set_hash(problems), sizes=sizes,
        over_long=over_long, rollouts=rollouts, saved=all_of_them - rollouts, **faults,
        temperature=cfg["temperature"], s=s, s_zero=s_zero, levels=cfg["levels"]))
    print("\n".join(signal_table(splits, counts, cfg)))
    print(f"  {folder}/difficulty.png")


if __name__ == "__main__":
    entry(main)
