"""config.py: the flat dict that every script shares, its command line, and the identity of a run.

    python config.py --help                         # every key, its default, what it means
    python config.py --data=data/arithmetic --n=16  # the resolved dict, and B, M, lr, run name

A key's value comes from four sources; a later one overrides an earlier one:
1. the dict `config` in this file, which has the paper's scale;
2. defaults.json of the data folder, if the model is in it. Otherwise that file gives only the
   verifier, and the defaults.json next to the model the keys in OF_MODEL;
3. the recipe (easy, hard or mixed), which sets the coefficients of the loss;
4. the command line from left to right. --config=FILE.json gives all keys of a flat JSON file, such
   as the `config` of a log's header. A sweep puts the words of presets.json before it.
"""
import contextlib
import difflib
import faulthandler
import hashlib
import json
import math
import os
import re
import sys
import time
from decimal import Decimal
from pathlib import Path

# The comment of a key is its --help text. If a comment begins with `a | b`, only a and b are valid.
# Every key is part of a run's identity, except the keys in FREE below.
config = dict(
    # Model, problems and seed
    model = "Qwen/Qwen2.5-7B-Instruct",  # base model: a hub name or a transformers folder
    data = "data/arithmetic",     # data folder: problems, defaults.json and splits/MODEL/
    recipe = "easy",              # easy | hard | mixed: sets kl_coef, entropy_coef and the split
    split = "",                   # easy | hard | very_easy | mixed | extreme | ...: difficulty to
                                  # train on; all = every problem; empty = that of `recipe`
    train_set = "",               # problem file to train on; empty = that of `split`
    val_set = "",                 # problem files to evaluate on, with commas; empty = of `split`
    D = 0,                        # most training problems to use, part of any larger D; 0 = all
    seed = 0,                     # seed for the choice and order of problems and for every rollout
    # How the budget is spent: C = B_p n M
    B_p = 32,                     # problems per batch
    n = 16,                       # rollouts per problem, 2 or more
    n_train = 0,                  # rollouts per problem in the loss; the baseline uses all n; 0 = n
    C = 4_000_000,                # budget of a run, in rollouts; M = floor(C / (B_p n)) updates
    B_max = 65536,                # largest B_p n, in rollouts per update; 0 = no limit
    # Objective and optimizer. The paper gives no kl_coef, entropy_coef and tis_cap
    algo = "grpo",                # grpo | ppo | cispo: the policy term; ppo trains a critic as well
    updates = 1,                  # optimizer steps on each whole batch; 1 = on-policy, no clipping
    eps_low = 0.2,                # if updates > 1, the probability ratio is clipped at 1 - eps_low
    eps_high = 0.2,               # upper side of the clip, at 1 + eps_high
    lr_base = 1e-6,               # AdamW's learning rate at B = 1024 rollouts per update
    lr_scaling = "sqrt",          # sqrt | linear | constant: how the learning rate grows with B
    warmup = 10,                  # updates of linear warm-up; 0 = none
    weight_decay = 0.01,          # AdamW's weight decay; 0 = none
    lora_rank = 0,                # train LoRA adapters of this rank and freeze the weights; 0 = off
    grad_clip = 1.0,              # largest norm of the gradient; 0 = no clipping
    kl_coef = 0.001,              # weight of the KL to the base model in the loss; 0 = off
    kl_type = "k3",               # k1 | k2 | k3: KL estimator; as a loss, k3 has the gradient of
                                  # KL(ref || policy), k2 of KL(policy || ref), k1 none
    entropy_coef = 0.001,         # weight of the entropy bonus per token; 0 = off
    zero_var_filter = "off",      # off | policy | all | reg: loss terms without groups of equal
                                  # rewards: none, the policy term, all, or KL and entropy
    tis_cap = 2.0,                # cap of a token's truncated importance weight; 0 = no weights
    gamma = 1.0,                  # ppo: discount per token
    lam = 1.0,                    # ppo: lambda of GAE
    critic_lr = 1e-5,             # ppo: AdamW's learning rate for the critic, the same at every B
    value_clip = 0.5,             # ppo: largest change of a value in one update; 0 = no clipping
    # Rollouts and rewards, in training and in evaluations
    engine = "auto",              # auto | hf | vllm: what generates; auto = vLLM on a GPU, else hf
    dtype = "auto",               # auto | fp32 | bf16: of computation and saved model; auto = bf16
                                  # on a GPU, else fp32. Trained weights and moments are fp32
    verifier = "math",            # math: the last \boxed{}; exact: the text after the last '#';
                                  # reasoning_gym: by task; or a name in REWARDS of verifier.py
    verify_s = 3.0,               # CPU seconds to grade an answer, after which it counts as wrong
    verify_bytes = 1024,          # bytes of the longest answer that is graded (not with exact)
    temperature = 0.6,            # sampling temperature up to 2, also of the log-probs in the loss
    top_p = 1.0,                  # nucleus sampling; below 1 only with tis_cap=0
    max_prompt_tokens = 1024,     # longest prompt in tokens; a longer prompt is an error
    max_new_tokens = 8192,        # longest response in tokens; a longer response is cut off
    # Evaluation
    eval_every = 16384,           # rollouts between evaluations; 0 = only before and after training
    k = 4,                        # k of avg@k, best@k, worst@k
    samples = 4,                  # rollouts per problem in an evaluation, k or more
    # Difficulty (sample.py)
    problems = "",                # problem file to measure; empty = problems.jsonl of `data`
    measure = 0,                  # problems to measure, drawn at random; 0 = all
    s = 16,                       # rollouts per problem to measure a pass rate, also in --pass_at
    s_zero = 128,                 # rollouts per problem to find its level, for mixtures; 0 = none
    n_val = 0,                    # validation problems of a split; 0 = 300, at most a quarter
    # Running: folders, hardware, memory, checkpoints. None changes a result beyond rounding
    runs = "",                    # folder of a sweep's runs; empty = runs/[DATA_MODEL_]RECIPE
    out = "",                     # folder of the output; empty = the script's own, see --help
    device = "auto",              # auto | cpu | cuda: auto = a GPU if there is one
    threads = 0,                  # CPU threads of a process; 0 = OMP_NUM_THREADS, or 1 on a CPU
    gen_batch = 512,              # rollouts generated at a time; vLLM has CUDA graphs for up to 512
    micro_tokens = 16384,         # tokens per micro-batch of an update, with any padding
    micro_logits = 134_217_728,   # logits (tokens x vocabulary) at a time, of 14 bytes each
    activation_checkpointing = "auto",  # auto | true | false: store only each layer's input, for a
                                  # third more work; auto = true if a GPU's memory is too small
    gpu_memory = 0.0,             # vLLM's share of GPU memory; 0 = what training leaves, up to 0.9
    save_every = 65536,           # rollouts between checkpoints (two are kept); 0 = at the end
    keep_last = True,             # keep the last checkpoint, for a larger C; false = only the model
    keep_at = "",                 # budgets whose checkpoints are never deleted, "1e5 2e5"
    pass_at = "",                 # budgets to measure training problems with s rollouts, "0 1e5"
    sample_every = 10,            # updates between the rollouts written to samples.jsonl; 0 = none
    # The sweep and its analysis
    ns = "8 16 32 64 128 256 512",  # values of n in a sweep; on GPUs small n are slow (docs/gpu.md)
    bps = "32",                   # values of B_p in a sweep
    seeds = "0",                  # values of seed in a sweep
    lrs = "",                     # values of lr_base in a sweep, "1e-4 2e-4"; empty = only lr_base
    view = "fixed_Bp",            # fixed_Bp | fixed_B | joint | training | lr
    metric = "avg@4",             # avg@k, best@k, worst@k or reward, the mean
    unit = "rollouts",            # rollouts | tokens | gpu_hours: the unit of C in figures
    eval_set = "val",             # evaluations to analyse: val, or another `set` in the logs
    epochs = 0.0,                 # analyse only the first passes over the problems; 0 = all
)

# If the model is not in the data folder, the defaults.json next to it sets only these keys
OF_MODEL = ("C B_max lr_base critic_lr max_prompt_tokens max_new_tokens micro_tokens gen_batch "
            "eval_every save_every ns bps seeds").split()

# The loss terms are those of the paper's Table 1; the coefficients are ours
RECIPES = dict(easy=dict(kl_coef=0.001, entropy_coef=0.001),
               hard=dict(kl_coef=0.0, entropy_coef=0.0),
               mixed=dict(kl_coef=0.0, entropy_coef=0.0))


def comments():
    """Return {key: its comment} for all keys of `config`. Only these comments describe the keys."""
    text = Path(__file__).read_text().split("\nconfig = dict(")[1].split("\n)\n")[0]
    return dict(re.findall(r"^    (\w+) = .*?  # (.*)", re.sub(r"\n {8,}# ", " ", text), re.M))


# {key: its valid values}, for each key whose comment begins with `a | b`
CHOICES = {key: tuple(named[1].split(" | ")) for key, comment in comments().items()
           if (named := re.match(r"(\w+(?: \| \w+)+)(?::|$)", comment))}
# Keys that are not part of a run's identity. All others are, also those that you add
RUNNING = """device threads gen_batch micro_tokens micro_logits activation_checkpointing gpu_memory
             save_every keep_last keep_at pass_at sample_every s""".split()  # how a run is executed
# train_set and val_set replace `data` and `split`, and a larger budget C continues a run
FREE = {*RUNNING, *"""data split C B_max problems measure s_zero n_val runs out
                      ns bps seeds lrs view metric unit eval_set epochs""".split()}
# {key: (least, largest value)}. All other numbers must be 0 or more
TINY, INF = 1e-12, math.inf
LIMITS = dict.fromkeys("""B_p k samples s updates max_prompt_tokens max_new_tokens gen_batch
                          micro_tokens micro_logits verify_bytes""".split(), (1, INF)) | dict(
    n=(2, INF), eps_low=(0, 1), gamma=(0, 1), lam=(0, 1), gpu_memory=(0, 1), top_p=(TINY, 1),
    temperature=(TINY, 2), verify_s=(TINY, 3600), lr_base=(TINY, INF))
# {key: (such a value, the least)} of the keys with several values
LISTS = dict(ns=(8, 2), bps=(8, 1), seeds=(0, 0), lrs=(1e-4, TINY), keep_at=(1e5, 0),
             pass_at=(1e5, 0))


class BadInput(ValueError):
    """The user's input cannot be used. The message is one line that names the key or the file."""


def entry(main):
    """Run a script's `main(argv)` and exit: code 2 on bad input, 1 if a file cannot be written."""
    name = Path(sys.argv[0]).name
    with contextlib.suppress(OSError, RuntimeError):  # stderr is closed or is not a file
        faulthandler.enable()  # prints the Python stack if torch or vLLM crash in native code
    try:
        sys.exit(main(sys.argv[1:]))
    except BadInput as e:
        code, message = 2, str(e)
    except BrokenPipeError:  # the program that reads our output, such as `head`, has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as e:
        code, message = 1, (f"{e.filename or 'cannot write'}: {e.strerror or e}; fix this, "
                            "then run the same command again to continue")
    except KeyboardInterrupt:
        code, message = 130, "interrupted; run the same command again to continue"
    # if all ranks fail, torchrun stops the others within 3 s, and only rank 0 prints the error
    if (rank := os.environ.get("RANK", "0")) != "0":
        time.sleep(3)
        name = f"[rank {rank}] {name}"
    new_line = "\n" if sys.stderr and sys.stderr.isatty() else ""
    print(f"{new_line}{name}: {message}", file=sys.stderr)
    sys.exit(code)


# ---- The command line ----------------------------------------------------------------------------

def cast(key, value, keys=config):
    """Return `value`, a string or a JSON value, converted to the type of keys[key]. 1e6 is an int,
    and none (null in JSON) is 0, false or "". Raise BadInput if it cannot be converted."""
    kind, text = type(keys[key]), str(value).strip()
    if value is None or text.lower() == "none":
        return kind()
    try:
        if kind is str and isinstance(value, str):
            return value
        if kind is bool:
            return dict(true=True, false=False)[text.lower()]
        number = Decimal(text)  # because a float would round a large int
        if kind is str or not math.isfinite(number) or (kind is int and number != int(number)):
            raise ValueError
        return kind(number)
    except (ValueError, KeyError, ArithmeticError):
        what = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}[kind]
        raise BadInput(f"--{key}={value}: expected {what}, as in --{key}={keys[key]}") from None


def nearest(word, names):
    """Return the most similar of the names, which are compared without capitals, _ and -."""
    plain = {re.sub("[_-]", "", name.lower()): name for name in names}
    return plain[difflib.get_close_matches(re.sub("[_-]", "", word.lower()), plain, 1, 0)[0]]


def choose(key, value, choices):
    """Raise BadInput if `value` is not one of `choices`; the message names the nearest one."""
    if value not in choices:
        raise BadInput(f"--{key}={value}: expected one of {', '.join(choices)}; "
                       f"the nearest is {nearest(value, choices)}")


def set_key(cfg, key, value, source="--", keys=config):
    """Set cfg[key]; key "recipe" also sets the recipe's keys. Raise BadInput on an unknown key."""
    if key not in keys:
        raise BadInput(f"{source}{key}={value}: no such key, the nearest is {nearest(key, keys)}")
    cfg[key] = cast(key, value, keys)
    if key in CHOICES:
        choose(key, cfg[key], CHOICES[key])
    if key == "recipe":
        cfg.update(RECIPES[cfg[key]])


def read_json(path):
    """Return the JSON object in a file. Raise BadInput if the file does not hold one object."""
    try:
        value = json.loads(Path(path).read_bytes())  # UTF-8 in every locale
    except (OSError, ValueError, RecursionError) as e:
        raise BadInput(f"{path}: not a readable JSON file ({e})") from None
    if not isinstance(value, dict):
        raise BadInput(f"{path}: expected one JSON object, {{...}}")
    return value


def parse(argv, doc="", own={}):
    """Return the flat dict that command-line words resolve to. `--help` prints all keys and exits.
    own: the calling script's own keys, {key: (default, text)}. Raise BadInput on bad words."""
    keys = config | {key: default for key, (default, _) in own.items()}
    if {"-h", "--help"} & set(argv):
        print(doc.strip(), "\n\nKeys, as --key=default; the defaults are the paper's scale:")
        for key, comment in (comments() | {key: about for key, (_, about) in own.items()}).items():
            print(f"  --{key + '=' + str(keys[key]):40s} {comment}")
        sys.exit(0)
    given, filed = {}, {}
    for word in argv:
        key, eq, value = word.removeprefix("--").partition("=")
        if not (eq and word.startswith("--")):
            raise BadInput(f"{word}: expected --key=value, as in --n=16 (--help lists all keys)")
        flat = {key: value}
        if key == "config":
            flat = filed = read_json(value)
        # set the recipe first, because it sets other keys, which the file may override
        for key in sorted(flat, key=lambda key: key != "recipe"):
            set_key(given, key, flat[key], keys=keys)
    # the paths in a --config file belong to its recipe, data, model and split
    if any(given[key] != cast(key, filed[key], keys)
           for key in filed.keys() & {"recipe", "data", "model", "split"}):
        for path in filed.keys() & {"train_set", "val_set", "problems", "runs"}:
            if given[path] == filed[path]:
                del given[path]

    cfg = keys | folder_defaults(given, keys)
    set_key(cfg, "recipe", given.get("recipe", cfg["recipe"]))
    cfg |= given

    data, model = Path(cfg["data"]), Path(cfg["model"])
    name, split = cfg["recipe"], cfg["split"] or cfg["recipe"]
    if split != name:
        name += f"_{split}"
    home, splits = Path(config["data"]).resolve(), data / "splits" / model.name
    if data.resolve() != home or model.resolve() not in (home / "base", home / "one_layer"):
        name = f"{data.resolve().name}_{model.name}_{name}"
    cfg |= dict(data=str(data), model=cfg["model"].rstrip("/") or cfg["model"])
    for key, path in dict(train_set=splits / f"{split}_train.jsonl", runs=f"runs/{name}",
                          val_set=splits / f"{split}_val.jsonl",
                          problems=data / "problems.jsonl").items():
        cfg[key] = cfg[key] or str(path)
    check(cfg)
    return cfg


def is_inside(path, folder):
    return Path(path).resolve().is_relative_to(Path(folder).resolve())


def folder_defaults(given, keys):
    """Return {key: value}, what defaults.json files set (source 2) for a command line's keys."""
    data = Path(given.get("data", keys["data"]))
    model, folder = Path(given.get("model", data)), {}
    sources = [(data, keys)]
    if not is_inside(model, data):
        sources = [(model.parent, OF_MODEL), (data, ["verifier"] * ("data" in given))]
    for place, wanted in sources:
        file = place / "defaults.json"
        for key, value in read_json(file).items() if file.exists() else ():
            if key in wanted or key not in keys:
                set_key(folder, key, value, f"{file}: ", keys)
    return folder


def files(value):
    """Return the list of files in a comma-separated text."""
    return [word.strip() for word in value.split(",") if word.strip()]


def expect(cfg, *rules):
    """Raise BadInput for the first broken one of `rules`: (key, is its value valid, why not)."""
    for key, valid, why in rules:
        if not valid:
            raise BadInput(f"--{key}={cfg[key]}: {why}")


def expect_limits(cfg, limits):
    """Raise BadInput if a value is not within its `limits`, {key: (least, largest)}."""
    expect(cfg, *((key, least <= cfg[key] <= most,
                   f"expected {least} " + ("or more" if most == INF else f"to {most}"))
                  for key, (least, most) in limits.items()))


def check(cfg):
    """Raise BadInput if `cfg` has a value or a combination of values that no script accepts."""
    numbers = [key for key, value in cfg.items() if isinstance(value, (int, float))]
    expect_limits(cfg, dict.fromkeys(numbers, (0, INF)) | LIMITS)
    expect(
        cfg,
        *((key, all(x >= least for x in values_of(cfg, key)) and (cfg[key] or not config[key]),
           f"expected {least} or more, with spaces between") for key, (_, least) in LISTS.items()),
        *((key, cfg["algo"] != "ppo" or cfg[key] == config[key], "PPO does not use this key, "
           f"leave it at {config[key]}")
          for key in ("n_train", "zero_var_filter", "lora_rank")),
        ("n_train", cfg["n_train"] != 1 and cfg["n_train"] <= cfg["n"],
         f"expected 0 or 2 to n={cfg['n']}"),
        ("k", cfg["k"] <= cfg["samples"],
         f"expected at most samples={cfg['samples']}"),
        ("metric", re.fullmatch(r"(avg|best|worst)@[1-9]\d*|reward", cfg["metric"]),
         "expected avg@k, best@k, worst@k or reward, as in --metric=best@4"))


# ---- What is derived from the dict: updates, lr and the run's identity ---------------------------

def derive(cfg):
    """Return dict(B, M, lr, run): rollouts per update, updates, learning rate for the rollouts in
    the loss, B_p n_train (paper, section 3, factor 3), and the run's name."""
    B = cfg["B_p"] * cfg["n"]
    growth = cfg["B_p"] * (cfg["n_train"] or cfg["n"]) / 1024
    factor = dict(sqrt=math.sqrt(growth), linear=growth, constant=1.0)[cfg["lr_scaling"]]
    return dict(B=B, M=cfg["C"] // B, lr=cfg["lr_base"] * factor, run=run_name(cfg))


def all_rollouts(cfg):
    """Return the rollouts of all M updates of a run: C, rounded down to whole updates."""
    return cfg["C"] - cfg["C"] % (cfg["B_p"] * cfg["n"])


def check_run(cfg):
    """Raise BadInput if no run can have this B_p, n, C, top_p and number of threads."""
    B, cores = cfg["B_p"] * cfg["n"], os.cpu_count() or 1
    expect(
        cfg,
        ("B_p", B <= (cfg["B_max"] or B), f"with n={cfg['n']}, B_p n = {B} is above "
         f"B_max={cfg['B_max']}"),
        ("C", cfg["C"] >= B, f"below one update of B_p n = {B} rollouts"),
        ("top_p", cfg["top_p"] == 1 or not cfg["tis_cap"], "below 1 only with --tis_cap=0, "
         "because the engine's log-probs are renormalised"),
        ("threads", cfg["threads"] <= cores, f"this machine has {cores} cores"))


def check_processes(cfg, count):
    """Raise BadInput if `count` processes of torchrun, one for each GPU, cannot share a run."""
    processes = f"the {count} processes of GPUS_PER_RUN or torchrun"
    nearest_B_p = max(count, round(cfg["B_p"] / count) * count)
    expect(cfg, ("lora_rank", not cfg["lora_rank"] or count <= 1,
                 f"adapters train on one GPU, not in {processes}; give 1"),
           ("B_p", cfg["B_p"] % count == 0,
            f"{processes} cannot share its problems evenly; the nearest B_p is {nearest_B_p}"))


def complete(cfg):
    """Return a logged config with exactly the keys of `config`; missing ones get their default."""
    return {key: cfg.get(key, default) for key, default in config.items()}


def identity(cfg):
    """Return the part of a config that identifies a run: all keys that are not in FREE or unused,
    as the critic's keys without ppo and the verifier's limits if it is exact."""
    unused = set() if cfg.get("algo") == "ppo" else {"gamma", "lam", "critic_lr", "value_clip"}
    if cfg.get("verifier") == "exact":
        unused |= {"verify_s", "verify_bytes"}
    return {key: value for key, value in complete(cfg).items() if key not in FREE | unused}


def experiment(cfg):
    """Return what all runs of a sweep have in common: `identity` without the keys of the grid."""
    return {key: v for key, v in identity(cfg).items() if key not in "B_p n seed lr_base".split()}


def values_of(cfg, key):
    """Return the numbers in a key of LISTS, without duplicates. Raise BadInput for another word."""
    like = {key: LISTS[key][0]}
    return list(dict.fromkeys(cast(key, word, like) for word in cfg[key].split()))


def lrs_of(cfg):
    """Return the sorted values of lr_base in a sweep: `lrs`, or only lr_base if `lrs` is empty."""
    return sorted(values_of(cfg, "lrs") or [cfg["lr_base"]])


def run_name(cfg):
    """Return the folder name of a run, which ends in a hash of the values off their defaults, so a
    key that is added to `config` renames no old run."""
    defaults = dict(config, verifier="exact")  # the default when runs got their first names
    off = {key: value for key, value in identity(cfg).items() if value != defaults[key]}
    digest = hashlib.sha256(json.dumps(off, sort_keys=True).encode()).hexdigest()[:8]
    return f"Bp{cfg['B_p']}_n{cfg['n']}_seed{cfg['seed']}_{digest}"


def main(argv):
    cfg = parse(argv, __doc__)
    print(json.dumps(dict(config=cfg, derived=derive(cfg)), indent=1))


if __name__ == "__main__":
    entry(main)
