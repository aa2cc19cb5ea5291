"""config.py: the one flat dict that every script shares, its command line, and the JSONL log between the stages.

    python config.py --help                              # every key, its value, what it means
    python config.py --data=data/arithmetic --n=16       # the resolved dict and what is derived from it, as JSON
    python config.py commands --ns="2 4" --bps="8"       # the training commands of a sweep that are not finished yet

Layers, later beats earlier: the dict below (the paper's scale), `defaults.json` of the data folder (for models that
live in that folder), the recipe, then the command line from left to right, where `--config=FILE.json` stands for the keys
of a flat JSON file, such as the `config` of a log's header. To use a stage elsewhere, copy its file and this one.
"""
import contextlib
import difflib
import gzip
import hashlib
import json
import math
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

# kernels for AVX-512 round otherwise than those for AVX2, and 1,400 steps on that is another embedded base model; torch looks at its first operation
cpu = Path("/proc/cpuinfo")
if cpu.exists() and "avx512f" in cpu.read_text().split():
    os.environ.setdefault("ATEN_CPU_CAPABILITY", "avx2")

config = dict(
    # What is trained on what
    model = "Qwen/Qwen2.5-7B-Instruct",  # base model: a hub name or a transformers folder
    data = "data/arithmetic",            # data folder: problems, its defaults.json, splits/MODEL/RECIPE_{train,val}.jsonl
    recipe = "easy",                     # easy | hard | mixed: sets kl_coef and entropy_coef (paper, Table 1) and the split
    train_set = "",                      # problem file to train on; empty = the recipe's split of `data` for `model`
    val_set = "",                        # problem file to evaluate on, or several with commas between; empty = likewise
    D = 0,                               # training problems used, a nested seeded subset of train_set; 0 = all
    seed = 0,                            # of the order of problems, the subset D and every rollout
    tag = "",                            # a name of your own for edited code; part of the run's identity, so it starts new runs; empty = none
    # How the budget is spent: C = B_p n M
    B_p = 32,                            # problems per batch
    n = 16,                              # rollouts per problem, 2 or more
    n_train = 0,                         # rollouts of each group that enter the loss, the baseline keeps all n; 0 = n
    n_schedule = "",                     # later values of n and the rollouts from which they hold, as in "2e4:16 8e4:64"; empty = n throughout
    C = 1_000_000,                       # rollout budget of a run, in rollouts; M = floor(C / (B_p n))
    B_max = 65536,                       # largest B_p n that is allowed, in rollouts per update; 0 = no limit
    # The objective and the optimizer (the paper prints neither coefficients nor tis_cap: these are our choice)
    algo = "grpo",                       # grpo | ppo | cispo: the policy term; ppo has a critic in place of the group's mean
    updates = 1,                         # optimizer steps on each batch, over the whole of it; 1 = on-policy, nothing is clipped
    eps_low = 0.2,                       # the ratio is clipped to [1 - eps_low, 1 + eps_high]; matters from updates=2 on
    eps_high = 0.2,                      # its upper side
    lr_base = 1e-6,                      # AdamW's lr at B = 1024 rollouts per update
    lr_scaling = "sqrt",                 # sqrt | linear | constant: how lr follows B / 1024
    warmup = 10,                         # updates of linear warm-up; 0 = none
    weight_decay = 0.01,                 # AdamW's; 0 = none
    grad_clip = 1.0,                     # largest norm of the gradient; 0 = no clipping
    kl_coef = 0.001,                     # of the KL to the base model; 0 = off
    kl_type = "k3",                      # k1 | k2 | k3: as a loss k3 pulls like KL(ref || policy), k2 like KL(policy || ref), k1 not at all
    entropy_coef = 0.001,                # of the token entropy bonus; 0 = off
    zero_var_filter = "off",             # off | policy | all | reg: the loss terms that all-right and all-wrong groups leave
    tis_cap = 2.0,                       # cap of the truncated importance weight of a token; 0 = no importance weights
    gamma = 1.0,                         # ppo: discount of a token
    lam = 1.0,                           # ppo: lambda of GAE
    critic_lr = 1e-5,                    # ppo: AdamW's lr of the critic, at every B
    value_clip = 0.5,                    # ppo: how far a value may move from that of the rollouts' critic; 0 = no clipping
    # Rollouts and rewards, in training and evaluation alike
    engine = "auto",                     # auto | hf | vllm: what generates; auto is vLLM on a GPU where it is installed, else transformers
    verifier = "math",                   # math | exact: the last \boxed{} by math-verify, or what follows the last '#', see sample.py
    verify_s = 3.0,                      # math: seconds that grading one answer may take, then it is wrong and counted
    verify_bytes = 1024,                 # math: longest answer that is read, in bytes; a longer one is wrong and counted
    temperature = 0.6,                   # of sampling, and of every log-prob
    top_p = 1.0,                         # nucleus; below 1 only without tis
    max_prompt_tokens = 1024,            # a longer prompt is refused at the start
    max_new_tokens = 8192,               # a response that reaches it is cut off
    # Evaluation
    eval_every = 16384,                  # rollouts between evaluations
    k = 4,                               # of avg@k, best@k, worst@k
    samples = 4,                         # rollouts per problem of an evaluation, k or more
    # Problems from outside (data/NAME/prepare.py)
    source = "",                         # .parquet or .jsonl file, or OWNER/NAME:FILE of a data set on the hub; empty = the script's own
    revision = "",                       # commit, tag or branch of a data set on the hub; empty = the script's own
    question_key = "",                   # column of the question, a.b for field b of column a; empty = the script's own
    answer_key = "",                     # column of the answer; empty = likewise
    against = "data/aime24/problems.jsonl",  # problem files, commas between: what is like a problem of theirs is removed; empty = none
    mix = "",                            # splits to mix as NAME:SHARE, as in "extreme:2 level_easy:1"; empty = the paper's three
    # Difficulty (sample.py)
    problems = "",                       # problem file to measure; empty = problems.jsonl of `data`
    s = 16,                              # rollouts per problem behind avg@s, here and in --pass_at
    s_zero = 128,                        # rollouts behind the levels of the mixtures, for problems whose level is open; 0 = no levels
    levels = "extreme level_easy level_very_easy",  # the levels to tell; extreme (none right) alone takes far fewer rollouts
    n_val = 300,                         # validation problems held out of each split
    shard = "",                          # i/k: measure every k-th problem from i on, for k processes side by side; empty = the rest, and split
    # The toy world (bandit_toy.py, whose values stand in data/bandit/defaults.json)
    overlap = 1.0,                       # share of the logits that weights common to all problems make; 0 = tabular, nothing is common
    responses = 8,                       # choices of a decision
    deciding = 3,                        # decisions of a rollout that all must be right for its reward
    idle = 29,                           # decisions that do not matter for the reward; 0 = no such noise
    features = 32,                       # numbers that describe a decision, rows of the common weights
    skill = 0.8,                         # cosine between the base model's weights and those that say what is right; 1 = it knows
    sharpness = 5.0,                     # size of the base model's logits; larger: pass rates nearer to 0 and 1
    pool = 2048,                         # training problems there are, D of which are used
    world = 0,                           # seed of the world: what is right, the base model, all problems
    advantage = "group",                 # group: (r - mean) / std of the group | undivided: r - mean | true: by sqrt(p (1 - p)) | exact: r - p by that
    clock = 0,                           # rollouts that count as one update for warm-up and AdamW's beta2; 0 = an update does
    # Running: where, how often, how much at once. None of these changes a result, but for rounding: a GPU computes in bf16
    runs = "runs/easy",                  # folder of a sweep: a folder a run inside it
    out = "",                            # output folder of this script; empty = the run's folder, or `runs` for the analysis
    device = "auto",                     # auto | cpu | cuda
    gen_batch = 1024,                    # rollouts decoded at once
    micro_tokens = 16384,                # tokens of a micro-batch, padding counted, in the update
    micro_logits = 134_217_728,          # logits (tokens x vocabulary) that exist at once in the update; 4 to 12 bytes each
    activation_checkpointing = False,    # keep only the input of each layer for the backward pass: less memory, a third more work
    gpu_memory = 0.5,                    # share of a GPU's memory that vLLM takes while it generates
    save_every = 65536,                  # rollouts between checkpoints, of which the newest two are kept; 0 = only at the end
    keep_at = "",                        # budgets whose checkpoints are kept for good, in rollouts, as in "1e5 2e5"
    pass_at = "",                        # budgets at which every training problem is drawn s times, for its pass@1, as in "0 1e5"
    sample_every = 10,                   # updates between the rollouts that samples.jsonl shows; 0 = none
    # The sweep and its analysis
    ns = "8 16 32 64 128 256 512",       # values of n in a sweep
    bps = "32 128",                      # values of B_p in a sweep
    seeds = "0",                         # seeds of a sweep
    view = "fixed_Bp",                   # fixed_Bp | fixed_B | joint | best_worst | sensitivity | pass1 | compare | all | next, see frontier.py
    metric = "avg@4",                    # avg@k | best@k | worst@k, any k up to `samples`; train = the training reward
    unit = "rollouts",                   # rollouts | tokens | gpu_hours: the unit of C on the axes
    eval_set = "val",                    # which evaluations of the logs: val, or the `set` of others
    delta = 0.01,                        # reward that does not matter: of the verdict `flat` and the near-optimal set
    bin = 0.005,                         # width of the reward bins of record-breaking points
    points = "",                         # CSV with columns C, n: fit the law to these points instead of a sweep's
    boot = 400,                          # draws of the noise behind the intervals; 0 = none
)

RECIPES = dict(easy=dict(kl_coef=0.001, entropy_coef=0.001),  # paper, Table 1; the coefficients are our choice
               hard=dict(kl_coef=0.0, entropy_coef=0.0),
               mixed=dict(kl_coef=0.0, entropy_coef=0.0))  # "on heterogeneous datasets use the Hard recipe"
CHOICES = dict(recipe=tuple(RECIPES), algo=("grpo", "ppo", "cispo"), kl_type=("k1", "k2", "k3"),
               lr_scaling=("sqrt", "linear", "constant"), device=("auto", "cpu", "cuda"),
               zero_var_filter=("off", "policy", "all", "reg"), engine=("auto", "hf", "vllm"),
               advantage=("group", "undivided", "true", "exact"),
               view=tuple("fixed_Bp fixed_B joint best_worst sensitivity pass1 compare all next".split()),
               unit=("rollouts", "tokens", "gpu_hours"))
# The knobs of a training command that change no result, and all keys that are no part of a run's identity: these, the budget,
# the folders, the other stages'.
RUNNING = tuple("device gen_batch micro_tokens micro_logits activation_checkpointing gpu_memory save_every keep_at pass_at s "
                "sample_every".split())
NOT_IN_NAME = {*RUNNING, *"C data B_max source revision question_key answer_key against mix problems s_zero levels n_val shard".split(),
               *"runs out ns bps seeds view metric unit eval_set delta bin points boot".split()}
TOY = tuple("overlap responses deciding idle features skill sharpness pool world advantage clock".split())  # bandit_toy.py alone has them


class BadInput(ValueError):
    """Something the user gave cannot be used. The message is one line that names the key, the file or the run."""


def entry(main):
    """Run a script's `main(argv)` and exit: bad input is one line and code 2, a failing disk one line and code 1."""
    name = Path(sys.argv[0]).name
    try:
        sys.exit(main(sys.argv[1:]))
    except BadInput as e:
        code, message = 2, str(e)
    except BrokenPipeError:  # the reader of our output, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as e:
        code, message = 1, f"{e.strerror or e}: {e.filename or 'while writing'}; start the same command again to go on"
    except KeyboardInterrupt:
        code, message = 130, "interrupted; start the same command again to go on"
    if os.environ.get("RANK", "0") != "0":  # rank 0 speaks for all; whoever is still there after that speaks for itself
        time.sleep(3)
        name = f"[rank {os.environ['RANK']}] {name}"
    print(f"\n{name}: {message}" if sys.stderr.isatty() else f"{name}: {message}", file=sys.stderr)
    sys.exit(code)


# ---------------------------------------------------------------------------------------------------------------------
# The command line

def comments():
    """{key: the comment behind it} read from the dict above, the one place where a key is described."""
    text = Path(__file__).read_text().split("config = dict(")[1].split("\n)\n")[0]
    return dict(re.findall(r"^    (\w+) = .*?,\s+# (.*)$", text, re.M))


def cast(key, value):
    """`value` (a string of the command line, or a JSON value) as the type of config[key]; raises BadInput.

    1e6 is a valid int, ints promote to floats, true/false are read in any case, and none (JSON: null) is the key's off
    value: 0, false or the empty string.
    """
    kind, text = type(config[key]), str(value).strip()
    if value is None or text.lower() == "none":
        return kind()
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        if kind is str:
            if not isinstance(value, str):
                raise ValueError
            return value
        if isinstance(value, bool):
            raise ValueError
        number = float(text.replace("_", ""))
        if not math.isfinite(number) or (kind is int and number != int(number)):
            raise ValueError
        return int(text.replace("_", "")) if kind is int and re.fullmatch(r"[-+]?[\d_]+", text) else kind(number)
    except (ValueError, KeyError):
        raise BadInput(f"--{key}={value}: expected {'an int' if kind is int else 'a ' + kind.__name__}, "
                       f"as in --{key}={config[key]}") from None


def set_key(cfg, key, value, source="--"):
    """Set one key of `cfg` in place; a recipe sets its keys too. Raises BadInput and names the nearest valid key."""
    if key not in config:
        names = {name.lower().replace("_", ""): name for name in config}  # Bp is next to B_p, B_MAX to B_max
        near = names[difflib.get_close_matches(key.lower().replace("_", ""), names, 1, 0)[0]]
        raise BadInput(f"{source}{key}={value}: no such key, the nearest is {near} (--help lists them)")
    cfg[key] = cast(key, value)
    if key in CHOICES and cfg[key] not in CHOICES[key]:
        near = difflib.get_close_matches(str(value), CHOICES[key], 1, 0)[0]
        raise BadInput(f"--{key}={value}: expected one of {', '.join(CHOICES[key])}; the nearest is {near}")
    if key == "recipe":
        cfg.update(RECIPES[cfg[key]])


def read_json(path):
    """The object in a JSON file; raises BadInput that names the file."""
    try:
        value = json.loads(Path(path).read_text())
    except (OSError, ValueError) as e:
        raise BadInput(f"{path}: not a readable JSON file ({e})") from None
    if not isinstance(value, dict):
        raise BadInput(f"{path}: expected one flat JSON object")
    return value


def parse(argv, doc=""):
    """Command-line words -> the resolved flat dict, checked; raises BadInput. `--help` prints every key and exits."""
    given = []
    for word in argv:
        if word in ("-h", "--help"):
            print(doc.strip(), "\n\nKeys (--key=value), with their values at the paper's scale:")
            for key, comment in comments().items():
                print(f"  --{key + '=' + str(config[key]):40s} {comment}")
            sys.exit(0)
        key, eq, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or not eq:
            raise BadInput(f"{word}: write it as --key=value (--help lists the keys)")
        if key == "config":
            flat = read_json(value)
            # a recipe sets other keys, so within one file it comes first
            given += [(name, flat[name]) for name in sorted(flat, key=lambda name: name != "recipe")]
        else:
            given.append((key, value))

    cfg, named = dict(config), {}
    set_key(cfg, "recipe", cfg["recipe"])
    for key, value in given:
        set_key(named, key, value)
    data = Path(named.get("data", cfg["data"]))
    if (data / "defaults.json").exists() and Path(named.get("model", data)).resolve().is_relative_to(data.resolve()):
        for key, value in read_json(data / "defaults.json").items():
            set_key(cfg, key, value, f"{data / 'defaults.json'}: ")
    set_key(cfg, "recipe", named.get("recipe", cfg["recipe"]))
    for key, value in given:
        set_key(cfg, key, value)

    cfg["data"], cfg["model"] = str(Path(cfg["data"])), cfg["model"].rstrip("/") or cfg["model"]
    splits = Path(cfg["data"]) / "splits" / Path(cfg["model"]).name
    cfg["train_set"] = cfg["train_set"] or str(splits / f"{cfg['recipe']}_train.jsonl")
    cfg["val_set"] = cfg["val_set"] or str(splits / f"{cfg['recipe']}_val.jsonl")
    cfg["problems"] = cfg["problems"] or str(Path(cfg["data"]) / "problems.jsonl")
    check(cfg)
    return cfg


def files(value):
    """The problem files of `val_set` or `against`, which have commas between them: a list of strings."""
    return [word.strip() for word in value.split(",") if word.strip()]


def check(cfg):
    """Raise BadInput on a value or a combination that no stage can use."""
    def need(ok, key, why):
        if not ok:
            raise BadInput(f"--{key}={cfg[key]}: {why}")
    for key in ("B_p", "k", "samples", "eval_every", "max_prompt_tokens", "max_new_tokens", "gen_batch", "micro_tokens", "micro_logits",
                "updates", "s", "n_val", "deciding", "features", "pool"):
        need(cfg[key] >= 1, key, "must be 1 or more")
    for key in config:
        if not isinstance(config[key], (str, bool)):
            need(cfg[key] >= 0, key, "must not be negative")
    for key in ("lr_base", "temperature", "bin", "C", "gpu_memory", "verify_s", "verify_bytes"):
        need(cfg[key] > 0, key, "must be above 0")
    need(cfg["n"] >= 2, "n", "a group needs 2 rollouts or more, its advantage is (r - mean) / std")
    need(0 < cfg["top_p"] <= 1, "top_p", "must lie in (0, 1]")
    need(cfg["top_p"] == 1 or not cfg["tis_cap"], "top_p", "importance weights need the whole distribution: "
         "the engine's log-probs are renormalised below top_p=1 (or set --tis_cap=0)")
    need(cfg["engine"] != "vllm" or cfg["temperature"] <= 2, "temperature", "vLLM samples at 2 at most")
    need(cfg["algo"] != "ppo" or not cfg["n_train"], "n_train", "PPO has a critic and no group baseline to decouple; leave it at 0")
    need(cfg["algo"] != "ppo" or cfg["zero_var_filter"] == "off", "zero_var_filter",
         "with PPO's critic a group of equal rewards has advantages too; leave it off")
    need(cfg["responses"] >= 2, "responses", "a decision needs 2 choices or more")
    for key in ("eps_low", "gamma", "lam", "gpu_memory", "overlap", "skill"):
        need(cfg[key] <= 1, key, "must be 1 or less")
    need(cfg["n_train"] != 1 and cfg["n_train"] <= cfg["n"], "n_train", f"must be 0 or from 2 to n={cfg['n']}")
    need(cfg["k"] <= cfg["samples"], "k", f"an evaluation draws only samples={cfg['samples']} rollouts per problem")
    need(cfg["verify_s"] <= 3600, "verify_s", "must be 3600 or less")
    need(re.fullmatch(r"(avg|best|worst)@[1-9]\d*|train", cfg["metric"]), "metric",
         "expected avg@k, best@k, worst@k or train, as in --metric=best@4")
    need(set(cfg["levels"].split()) <= set(config["levels"].split()), "levels", f"expected some of {config['levels']}")
    shard = re.fullmatch(r"(\d{1,4})/(\d{1,4})", cfg["shard"])
    need(not cfg["shard"] or (shard and int(shard[1]) < int(shard[2])), "shard", "expected i/k with i from 0 to k - 1, as in 0/8")
    for key in ("keep_at", "pass_at"):
        need(all(re.fullmatch(r"\d+(\.\d*)?([eE]\d\d?)?", c) for c in cfg[key].split()), key,
             'expected budgets with spaces between, as in "1e5 2e5"')
    need(all(re.fullmatch(r"[^\s:]+(:\d+(\.\d*)?)?", word) for word in cfg["mix"].split()), "mix",
         'expected splits with their shares, as in "extreme:2 level_easy:1"')
    marks = [word.split(":") for word in cfg["n_schedule"].split()]
    need(all(re.fullmatch(r"\d+(\.\d*)?([eE]\d\d?)?:\d{1,7}", word) for word in cfg["n_schedule"].split()), "n_schedule",
         'expected ROLLOUTS:N with spaces between, as in "2e4:16 8e4:64"')
    at = [0.0, *(float(C) for C, _ in marks)]
    ns = [cfg["n"], *(int(n) for _, n in marks)]
    need(all(a < b for a, b in zip(at, at[1:])) and all(a < b for a, b in zip(ns, ns[1:])), "n_schedule", f"budgets and n must rise, from n={cfg['n']} on")
    need(not marks or not (cfg["n_train"] or is_toy(cfg)), "n_schedule", "works with all rollouts in the loss (n_train=0), in train_grpo.py")
    for key in ("ns", "bps", "seeds"):
        need(re.fullmatch(r"\d+( +\d+)*", cfg[key].strip()), key, 'expected whole numbers with spaces between, as in "2 4 8"')


def check_run(cfg):
    """Raise BadInput where (B_p, n, C) is no run: called by what trains, before anything is loaded."""
    B = cfg["B_p"] * cfg["n"]
    n = max(stage["n"] for stage in stages(cfg))
    if cfg["B_max"] and cfg["B_p"] * n > cfg["B_max"]:
        raise BadInput(f"--B_p={cfg['B_p']} --n={n}: B_p n = {cfg['B_p'] * n} is above B_max={cfg['B_max']}")
    if cfg["C"] < B:
        raise BadInput(f"--C={cfg['C']}: below one update of B_p n = {B} rollouts")


def stages(cfg):
    """The stretches of a run with one n (`n_schedule`; without it there is one): a list of dict(n, B, lr, step, rollouts).

    step and rollouts: the updates and rollouts before it, the first update to reach its budget being the last of the stretch before.
    lr = lr_base sqrt(B' / 1024) where B' counts the rollouts in the loss (paper, section 3, factor 3).
    """
    marks = [(float(C), int(n)) for C, n in (word.split(":") for word in cfg["n_schedule"].split()) if float(C) < cfg["C"]]
    out, step, rollouts = [], 0, 0
    for n, end in zip([cfg["n"], *(n for _, n in marks)], [*(C for C, _ in marks), None]):
        B, x = cfg["B_p"] * n, cfg["B_p"] * (cfg["n_train"] or n) / 1024
        out.append(dict(n=n, B=B, lr=cfg["lr_base"] * dict(sqrt=math.sqrt(x), linear=x, constant=1.0)[cfg["lr_scaling"]],
                        step=step, rollouts=rollouts))
        left = (cfg["C"] - rollouts) // B
        M = left if end is None else min(left, math.ceil((end - rollouts) / B))
        step, rollouts = step + M, rollouts + M * B
    return out


def rollouts_after(m, cfg):
    """The rollouts of a run's first m updates."""
    stage = [s for s in stages(cfg) if s["step"] <= m][-1]
    return stage["rollouts"] + (m - stage["step"]) * stage["B"]


def derive(cfg):
    """What follows from the inputs, shared by trainer, bandit and prescription and never stored among the inputs.

    B = B_p n (rollouts per update) and lr of the first update, M updates in all, floor(C / B) without n_schedule, and the run's name.
    """
    first, last = stages(cfg)[0], stages(cfg)[-1]
    return dict(B=first["B"], M=last["step"] + (cfg["C"] - last["rollouts"]) // last["B"], lr=first["lr"], run=run_name(cfg))


def command(cfg, more=(), python="python", launch="", gpus=1):
    """The line that starts the run `cfg`: the keys that its recipe and data folder do not give by themselves, and `more`.

    `launch`: shell words to go before it, as they are; `gpus`: with 2 or more torchrun starts that many processes.
    """
    words = [f"--{key}={cfg[key]}" for key in ("recipe", "data") if key == "recipe" or cfg[key] != config[key]]
    if parse(words)["model"] != cfg["model"]:  # the data folder's own defaults.json names it, where there is one
        words.append(f"--model={cfg['model']}")
    plain = parse(words)
    words += [f"--{key}={cfg[key]}" for key in config if key not in ("B_p", "n", "C", "seed", "recipe", "out", *more)
              and (key in identity(cfg) or key in RUNNING) and cfg[key] != plain[key]]
    words += [f"--{key}={cfg[key]}" for key in ("B_p", "n", "C", *more)]
    # without the -- torchrun takes our --n= for the beginning of an option of its own
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={gpus}", "--"] if gpus > 1 else []
    script = ["bandit_toy.py", "run"] if is_toy(cfg) else ["train_grpo.py"]
    return f"{launch} {shlex.join([python, *torchrun, *script, *words])}".lstrip()


def identity(cfg):
    """The part of the dict that makes a run this experiment and no other: all keys but the budget, the knobs and those of a critic
    or a verifier that is not used."""
    idle = () if cfg.get("algo") == "ppo" else ("gamma", "lam", "critic_lr", "value_clip")
    idle += ("verify_s", "verify_bytes") if cfg.get("verifier") == "exact" else ()
    return {key: cfg.get(key, config[key]) for key in config if (key not in NOT_IN_NAME or key == "n_val" and is_toy(cfg)) and key not in idle}


def experiment(cfg):
    """`identity` without the grid's keys: what all runs of a sweep have in common."""
    return {key: value for key, value in identity(cfg).items() if key not in ("B_p", "n", "seed")}


def check_same(folder, old, cfg):
    """Raise BadInput that names the keys where the run in `folder`, of config `old`, is another experiment than `cfg`."""
    old, new = identity(old), identity(cfg)
    differ = [key for key in new if old.get(key, new[key]) != new[key]]
    if differ:
        raise BadInput(f"{folder}: made by another config: " + ", ".join(f"{k}={old[k]} there, {new[k]} now" for k in differ))


def is_toy(cfg):
    """True for a run of bandit_toy.py, which makes its own problems."""
    return str(cfg.get("data")).rstrip("/") == "data/bandit"


def updates_at(budgets, cfg):
    """The updates at budgets up to C, in rollouts, as in "0 1e5": the first that reaches each, M for what only C itself reaches; a set."""
    M, out = derive(cfg)["M"], set()
    for c in map(float, budgets.split()):
        stage = [s for s in stages(cfg) if s["rollouts"] <= c][-1]
        out |= {min(stage["step"] + math.ceil((c - stage["rollouts"]) / stage["B"]), M)} if c <= cfg["C"] else set()
    return out


def run_name(cfg):
    """Folder name of a run. Only values off the dict's own enter the hash, so that a key added later renames no old run; nor does
    the default of `verifier`, which was exact once."""
    off = {key: value for key, value in identity(cfg).items() if value != dict(config, verifier="exact")[key]}
    return f"Bp{cfg['B_p']}_n{cfg['n']}_seed{cfg['seed']}_{hashlib.sha256(json.dumps(off, sort_keys=True).encode()).hexdigest()[:8]}"


# ---------------------------------------------------------------------------------------------------------------------
# Files and logs

@contextlib.contextmanager
def aside(path):
    """Yields a name beside `path` to write to; on success it becomes `path` in one step, on failure it is removed."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{os.getpid()}.part.{path.name}")  # keeps the suffix, which savefig looks at
    try:
        yield part
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def at_k(metric, samples):
    """avg@k, best@k or worst@k of a problem with c right of s = `samples` rollouts, for c = 0..s: a list of s + 1 floats.

    Unbiased for k rollouts drawn without replacement (Chen et al. 2021, eq. 1): avg@k = c / s, best@k = 1 - C(s - c, k) / C(s, k), some of
    them right, worst@k = C(c, k) / C(s, k), all of them. Raises BadInput where k > s.
    """
    kind, k = metric.split("@")[0], int(metric.split("@")[1])
    if k > samples:
        raise BadInput(f"--metric={metric}: needs {k} rollouts per problem, an evaluation here has {samples}")
    share = [math.comb(c, k) / math.comb(samples, k) for c in range(samples + 1)]
    return dict(avg=[c / samples for c in range(samples + 1)], best=[1 - x for x in reversed(share)], worst=share)[kind]


def finite(value):
    """`value` with every number that JSON does not have (nan, inf) as None, and numpy's numbers and arrays as plain ones."""
    if isinstance(value, dict):
        return {str(k): finite(v) for k, v in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def save_json(path, value, indent=1):
    """Write one JSON file aside and rename it."""
    with aside(path) as part:
        part.write_text(json.dumps(finite(value), indent=indent) + "\n")


def append(file, record):
    """Append one record to an open log (a binary file without buffer): one line, one write.

    A write that fails half way (a full disk) is taken back, so that the log never ends in half a line of ours.
    """
    line, start = json.dumps(finite(record)).encode() + b"\n", file.seek(0, os.SEEK_END)
    try:
        while line:
            line = line[file.write(line):]
    except OSError:
        file.truncate(start)
        raise


def read_log(path):
    """The records of a log.jsonl or .jsonl.gz as a list of dicts.

    A torn last line (a killed run) is passed over; a broken line before it raises BadInput with file and line number.
    """
    raw = Path(path).read_bytes()
    try:
        lines = (gzip.decompress(raw) if str(path).endswith(".gz") else raw).split(b"\n")
    except (OSError, EOFError) as e:
        raise BadInput(f"{path}: not a readable gzip file ({e})") from None
    records = []
    for i, line in enumerate(lines):
        try:
            if line.strip():
                records.append(json.loads(line))
        except ValueError:
            if i < len(lines) - 1:
                raise BadInput(f"{path}:{i + 1}: not a line of JSON") from None
    return [r for r in records if isinstance(r, dict)]


def commit():
    """The commit of this code, with a + if files differ from it; None outside a repository."""
    try:
        return subprocess.run(["git", "describe", "--always", "--dirty=+", "--exclude=*"], cwd=Path(__file__).parent, capture_output=True,
                              text=True, timeout=10).stdout.strip() or None
    except (OSError, subprocess.TimeoutExpired):
        return None


def progress(folder):
    """How far the run in `folder` is: (rollouts in its log, the end record's status or "" while it has none)."""
    path = Path(folder) / "log.jsonl"
    try:
        records = read_log(path) if path.exists() else []
    except BadInput:  # the run that comes to this log says so; a sweep's other runs go on
        records = []
    rollouts = max((r.get("rollouts", 0) for r in records if r.get("type") in ("step", "eval")), default=0)
    return rollouts, records[-1].get("status", "") if records and records[-1].get("type") == "end" else ""


def finished(cfg, folder):
    """True where the run in `folder` ended for good: it diverged, or made all M updates of this budget. A pruned one may go on."""
    rollouts, status = progress(folder)
    return status == "diverged" or (status == "budget" and rollouts >= rollouts_after(derive(cfg)["M"], cfg))


def cells(cfg):
    """The runs of a sweep over seeds x bps x ns with B_p n <= B_max: a list of resolved dicts.

    Large B first: those runs are the quickest per rollout, so a sweep shows early whether its large batches hold.
    """
    def values(key):
        return dict.fromkeys(map(int, cfg[key].split()))  # each once
    grid = [dict(cfg, B_p=B_p, n=n, seed=seed) for seed in values("seeds") for B_p in values("bps") for n in values("ns")
            if not cfg["B_max"] or B_p * n <= cfg["B_max"]]
    for c in grid:
        check(c), check_run(c)
    if not grid:
        raise BadInput(f"--B_max={cfg['B_max']}: no cell of --bps={cfg['bps']!r} and --ns={cfg['ns']!r} has B_p n within it")
    return sorted(grid, key=lambda c: (c["seed"], -c["B_p"] * c["n"]))


def rungs(cfg):
    """The budgets of a pruned sweep (PRUNE=1), in rollouts: from C/8 to C, a factor of sqrt 2 apart, from two evaluations on."""
    early = [int(cfg["C"] / 8 * 2 ** (i / 2)) for i in range(6)]
    return [c for c in early if c >= 2 * cfg["eval_every"]] + [cfg["C"]]


def seeded(cfg, cell):
    """The runs of one more cell dict(B_p, n, ...) of a sweep, one for each seed."""
    return [dict(cfg, B_p=cell["B_p"], n=cell["n"], seed=int(seed)) for seed in dict.fromkeys(cfg["seeds"].split())]


def planned(folder):
    """sweep.json of a sweep's folder: (its config, the cells that go on, those that frontier.py added among them, its prune entries).

    Without the file (None, [], []). An entry of `prune` is a rung's decision: dict(C, judged, pruned, added), lists of (B_p, n)
    and of dict(B_p, n, ...).
    """
    path = Path(folder) / "sweep.json"
    if not path.exists():
        return None, [], []
    plan = read_json(path)
    if not isinstance(plan.get("config"), dict):
        raise BadInput(f"{path}: expected the sweep's flat dict under `config`")
    cfg = config | {key: cast(key, value) for key, value in plan["config"].items() if key in config}
    entries = plan.get("prune", [])
    grid, out = cells(cfg), {(p["B_p"], p["n"]) for e in entries for p in e["pruned"]}
    for a in (a for e in entries for a in e["added"] if a["B_p"] * a["n"] <= min(cfg["C"], cfg["B_max"] or cfg["C"])):
        if not any((c["B_p"], c["n"]) == (a["B_p"], a["n"]) for c in grid):
            grid += seeded(cfg, a)
    grid.sort(key=lambda c: (c["seed"], -c["B_p"] * c["n"]))
    return cfg, [c for c in grid if (c["B_p"], c["n"]) not in out], entries


def presets(data):
    """{preset: dict(about, minutes, arms)} of a data folder, the paper's scale (data/guru_math) where it has none; arms: {name: words}.

    An arm is one sweep, a folder of its own; presets that name the same arm share its runs.
    """
    here = Path(__file__).parent
    path = next(p for p in (Path(data) / "presets.json", here / data / "presets.json", here / "data/guru_math/presets.json") if p.exists())
    return read_json(path)


def training(c):
    """The command of a cell, in its folder, as PYTHON, LAUNCH and GPUS_PER_RUN of the environment have it."""
    gpus = os.environ.get("GPUS_PER_RUN") or "1"
    if not gpus.isdecimal() or c["B_p"] % max(1, int(gpus)):
        raise BadInput(f"--bps={c['bps']}: the processes of GPUS_PER_RUN={gpus} cannot share B_p={c['B_p']} problems evenly")
    return command(dict(c, out=str(Path(c["runs"]) / run_name(c))), ("seed", "B_max", "out"),
                   os.environ.get("PYTHON") or ".venv/bin/python", os.environ.get("LAUNCH", ""), int(gpus))


def arms(preset, argv):
    """The sweeps of a preset as resolved dicts, one for each arm; words of argv beat the arm's. Without a preset, or for a recipe, one."""
    if preset in ("", *RECIPES):
        return [parse([f"--recipe={preset}"] * bool(preset) + argv)]
    known = presets(next((word[7:] for word in reversed(argv) if word.startswith("--data=")), config["data"]))
    if preset not in known:
        raise BadInput(f"{preset}: no such preset; {', '.join([*RECIPES, *known])}")
    plain, sweeps = parse(argv), []
    splits = str(Path(plain["data"]) / "splits" / Path(plain["model"]).name)  # {splits} in the words of an arm
    for name, words in known[preset]["arms"].items():
        words = shlex.split(words.replace("{splits}", splits))
        own = ("--model=", *("--ns=",) * any(word.startswith(("--n_schedule=", "--n_train=")) for word in words))  # what the arm asks about
        sweeps.append((name, parse(words + argv + [word for word in words if word.startswith(own)])))
    return [dict(cfg, runs=str(Path(cfg["runs"]) / name)) for name, cfg in sweeps]


def calibration(sweeps, folder):
    """Two short runs that time updates: the smallest batch of all sweeps, and the largest of up to 16 times that. One, where there is one cell."""
    grid = sorted((c for cfg in sweeps for c in cells(cfg)), key=lambda c: c["B_p"] * c["n"])
    sizes = [c["B_p"] * c["n"] for c in grid]
    pick = [grid[0], [c for c, B in zip(grid, sizes) if B <= 16 * sizes[0]][-1]][:len(grid)]
    return [dict(c, runs=f"{folder}/.calibration", C=max(2 * B, min(64 * B, 1024)), seed=-1 % 2**31, pass_at="", keep_at="", n_schedule="")
            for c, B in zip(pick, (c["B_p"] * c["n"] for c in pick))]


def seconds(sweeps, folder):
    """Estimated seconds of work left in each unfinished cell, from the calibration runs: an update takes a + b B seconds."""
    points, evaluation, loading = [], 1.0, 10.0
    for path in sorted(Path(folder, ".calibration").glob("*/log.jsonl")):
        try:
            records = read_log(path)
        except BadInput:  # as in `progress`
            continue
        steps = [r for r in records if r.get("type") == "step"]
        if len(steps) > 1:
            times = sorted(r["gen_s"] + r["train_s"] for r in steps[1:])
            points.append((records[0]["derived"]["B"], times[len(times) // 2]))
            evaluation = steps[0]["wall_s"] - steps[0]["gen_s"] - steps[0]["train_s"]  # the one before the first update
            loading = records[0].get("loading_s", loading)
    if not points:
        return None
    (B0, t0), (B1, t1) = min(points), max(points)
    b = max(0.0, (t1 - t0) / (B1 - B0)) if B1 > B0 else t0 / B0
    a = max(0.0, t0 - b * B0)
    todo = []
    for c in (c for cfg in sweeps for c in cells(cfg)):
        d, (rollouts, status) = derive(c), progress(Path(c["runs"]) / run_name(c))
        if not finished(c, Path(c["runs"]) / run_name(c)) and not (status == "pruned" and os.environ.get("PRUNE") == "1"):
            left = max(0, rollouts_after(d["M"], c) - rollouts)
            todo.append(loading + left / d["B"] * (a + b * d["B"]) + (1 + left / c["eval_every"]) * evaluation)
    return todo


def main(argv):
    verb = argv[0] if argv and not argv[0].startswith("-") else ""
    names = [word for word in argv[1:] if not word.startswith("-")] if verb else []
    words = [word for word in argv if word != verb and word not in names]
    cfg = parse(words, __doc__)
    if verb == "":
        print(json.dumps(dict(config=cfg, derived=derive(cfg)), indent=1))
        return
    if verb == "show":
        for key in names:
            if key not in cfg:
                raise BadInput(f"{key}: no such key (--help lists them)")
        print("\t".join(str(cfg[key]) for key in names))
        return
    if verb == "presets":
        for name, preset in presets(cfg["data"]).items():
            print(f"  {name:13s} {preset['about']}" + (f"; {preset['minutes']} minutes on 2 cores" if preset.get("minutes") else ""))
        return
    sweeps = arms(names[0] if names else "", words)
    if verb == "needs":  # what the runs of the arms want: each data folder, model, s_zero and problem file once
        for c in sweeps:  # splits are found by the name of the model's folder, which another may have too
            path = Path(c["data"]) / "splits" / Path(c["model"]).name / "difficulty.json"
            other = read_json(path).get("model") if path.exists() and Path(c["train_set"]).parent == path.parent else c["model"]
            if Path(other or c["model"]).resolve() != Path(c["model"]).resolve():
                raise BadInput(f"--model={c['model']}: {path} is of {other}; give the folder of one of them another name")
        rows = dict.fromkeys((c["data"], c["model"], str(c["s_zero"]), path) for c in sweeps for path in (c["train_set"], *files(c["val_set"])))
        print("\n".join("\t".join(row) for row in rows))
    elif verb == "begin":  # frontier.py takes the planned cells from sweep.json, and keeps there which ones it pruned
        for c in sweeps:
            path = Path(c["runs"]) / "sweep.json"
            old = read_json(path) if path.exists() else {}
            plan = old.get("config", {})
            if names and names[0] not in RECIPES and plan.get("bps") == c["bps"]:  # studies that share an arm plan for each other
                for key in ("ns", "seeds"):
                    c[key] = " ".join(dict.fromkeys(f"{plan.get(key, '')} {c[key]}".split()))
            goes_on = os.environ.get("PRUNE") == "1" and experiment(config | plan) == experiment(c)
            save_json(path, dict(config=c, derived=derive(c)) | {key: value for key, value in old.items() if key == "prune" and goes_on})
            print(c["runs"])
    elif verb in ("commands", "calibrate"):
        grid = [c for s in sweeps for c in cells(s)] if verb == "commands" else calibration(sweeps, cfg["runs"])
        if verb == "commands" and os.environ.get("PRUNE") == "1":  # the first rung alone; frontier.py --view=next prints the others
            first = {}  # {folder: the first rung that one of its cells has an update in}
            for c in sorted(grid, key=lambda c: -c["B_p"] * c["n"]):
                first[c["runs"]] = next(r for r in rungs(c) if r >= c["B_p"] * c["n"])
            grid = [dict(c, C=first[c["runs"]]) for c in grid if c["B_p"] * c["n"] <= first[c["runs"]]]
        lines = [training(c) for c in grid]  # all of them, so that nothing is printed where one cannot be
        print("".join(f"{line}\n" for c, line in zip(grid, lines) if not finished(c, Path(c["runs"]) / run_name(c))), end="")
    elif verb == "plan":
        todo, grid = seconds(sweeps, cfg["runs"]), [c for s in sweeps for c in cells(s)]
        print(len(grid), len(todo or []), sum(rollouts_after(derive(c)["M"], c) for c in grid), round(sum(todo or [])))
    else:
        raise BadInput(f"{verb}: no such verb; show, presets, needs, begin, commands, calibrate or plan")


if __name__ == "__main__":
    entry(main)
