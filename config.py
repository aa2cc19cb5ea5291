"""config.py: the flat dict that every script shares, its command line, what follows from it.

    python config.py --help                         # every key, its value, what it means
    python config.py --data=data/arithmetic --n=16  # the resolved dict and what follows from it

Layers, later beats earlier: the dict below (the paper's scale); `defaults.json` of the data folder,
if the model lives in it; the recipe; then the command line from left to right, in which
`--config=FILE.json` stands for the keys of a flat JSON file, such as the `config` of a log header.
A model that lives in another folder brings lr, lengths, grid and budget (OF_MODEL) of the
defaults.json there, and of the data folder's only the verifier counts. To use a stage elsewhere,
copy its file and this one.
"""
import contextlib
import difflib
import faulthandler
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

# A key's comment is its --help; one that begins with `a | b` or `a | b: ...` names all its values.
# Each key makes a run another run unless the lists below the dict name it.
config = dict(
    # What is trained on what
    model = "Qwen/Qwen2.5-7B-Instruct",  # base model: a hub name or a transformers folder
    data = "data/arithmetic",     # folder of the problems, defaults.json and splits/MODEL/
    recipe = "easy",              # easy | hard | mixed: sets kl_coef, entropy_coef and the split
    split = "",                   # easy | hard | very_easy | mixed | extreme | ...: the problems of
                                  # that difficulty, whatever the recipe; all = every problem, with
                                  # no difficulty measured; empty = the recipe's
    train_set = "",               # problem file to train on; empty = that of `split`
    val_set = "",                 # to evaluate on, or several with commas between; empty = likewise
    D = 0,                        # training problems used, a nested seeded subset; 0 = all
    seed = 0,                     # of the order of problems, the subset D and every rollout
    tag = "",                     # a name of your own for edited code: part of the run's identity,
                                  # so it starts new runs; empty = none
    # How the budget is spent: C = B_p n M
    B_p = 32,                     # problems per batch
    n = 16,                       # rollouts per problem, 2 or more
    n_train = 0,                  # rollouts of a group in the loss, the baseline keeps all; 0 = n
    C = 4_000_000,                # budget of a run, in rollouts; M = floor(C / (B_p n)) updates
    B_max = 65536,                # largest B_p n, in rollouts per update; 0 = no limit
    # The objective and the optimizer. The paper prints neither coefficients nor tis_cap: our choice
    algo = "grpo",                # grpo | ppo | cispo: the policy term; ppo's baseline is a critic
    updates = 1,                  # optimizer steps on each whole batch; 1 = on-policy, no clipping
    eps_low = 0.2,                # ratio clipped to [1 - eps_low, 1 + eps_high], if updates > 1
    eps_high = 0.2,               # its upper side
    lr_base = 1e-6,               # AdamW's lr at B = 1024 rollouts per update
    lr_scaling = "sqrt",          # sqrt | linear | constant: how lr follows B / 1024
    warmup = 10,                  # updates of linear warm-up; 0 = none
    weight_decay = 0.01,          # AdamW's; 0 = none
    lora_rank = 0,                # train adapters of this rank beside frozen weights; 0 = off
    grad_clip = 1.0,              # largest norm of the gradient; 0 = no clipping
    kl_coef = 0.001,              # of the KL to the base model; 0 = off
    kl_type = "k3",               # k1 | k2 | k3: as a loss k3 pulls like KL(ref || policy), k2 like
                                  # KL(policy || ref), k1 not at all
    entropy_coef = 0.001,         # of the token entropy bonus; 0 = off
    zero_var_filter = "off",      # off | policy | all | reg: the loss terms that all-right and
                                  # all-wrong groups leave
    tis_cap = 2.0,                # cap of a token's truncated importance weight; 0 = no weights
    gamma = 1.0,                  # ppo: discount of a token
    lam = 1.0,                    # ppo: lambda of GAE
    critic_lr = 1e-5,             # ppo: AdamW's lr of the critic, at every B
    value_clip = 0.5,             # ppo: how far a value may move in an update; 0 = no clipping
    # Rollouts and rewards, in training and evaluation alike
    engine = "auto",              # auto | hf | vllm: what generates; auto = vLLM on a GPU,
                                  # hf (transformers) on a CPU
    dtype = "auto",               # auto | fp32 | bf16: of what is computed and of the model that a
                                  # run ends with; auto = bf16 on a GPU, fp32 on a CPU. What is
                                  # trained and AdamW's moments are in fp32 in any case
    verifier = "math",            # math: the last \boxed{} by math-verify | exact: what follows the
                                  # last '#' | reasoning_gym: the problem's own, for problems of
                                  # data/reasoning_gym | one of your own in REWARDS of verifier.py
    verify_s = 3.0,               # not exact: CPU seconds for one answer, then it is wrong
    verify_bytes = 1024,          # not exact: longest answer that is read; a longer one is wrong
    temperature = 0.6,            # of sampling, and of every log-prob
    top_p = 1.0,                  # nucleus; below 1 only without tis
    max_prompt_tokens = 1024,     # a longer prompt is refused at the start; not given, these two
                                  # are less where the model holds less
    max_new_tokens = 8192,        # a response that reaches it is cut off
    # Evaluation
    eval_every = 16384,           # rollouts between evaluations; 0 = before and after alone
    k = 4,                        # of avg@k, best@k, worst@k
    samples = 4,                  # rollouts per problem of an evaluation, k or more
    # Problems from outside (data/NAME/prepare.py); empty = the script's own
    source = "",                  # .parquet or .jsonl file, or OWNER/NAME:FILE of a hub's data set
    revision = "",                # its commit, tag or branch on the hub
    question_key = "",            # column of the question, a.b for field b of column a
    answer_key = "",              # column of the answer
    against = "data/aime24/problems.jsonl",  # files, commas between: what is like a problem of
                                  # theirs is removed; empty = none
    keep_near = False,            # keep near duplicates; exact ones are left out in any case
    task = "",                    # of reasoning-gym, or several with shares: "countdown:2 gcd:1"
    task_args = "",               # its parameters as JSON, {"min_terms": 2}, or a list of such
    size = 9000,                  # problems to make of it
    mix = "",                     # splits to mix as NAME:SHARE, as in "extreme:2 level_easy:1";
                                  # empty = the paper's three
    # Difficulty (sample.py)
    problems = "",                # problem file to measure; empty = problems.jsonl of `data`
    measure = 0,                  # problems of that file to measure, drawn at random; 0 = all
    s = 16,                       # rollouts per problem behind avg@s, here and in --pass_at
    s_zero = 128,                 # rollouts behind the levels of the mixtures; 0 = no levels
    levels = "extreme level_easy level_very_easy",  # levels to tell; extreme alone costs far less
    n_val = 0,                    # validation problems held out of each split; 0 = 300, but at most
                                  # a quarter of it
    shard = "",                   # i/k: measure every k-th problem from i on, for k processes side
                                  # by side; empty = the rest, and split
    # Running: where, how often, how much at once; none changes a result, but for rounding
    runs = "",                    # folder of a sweep, a folder a run in it; empty = runs/RECIPE for
                                  # the embedded model, runs/DATA_MODEL_RECIPE for any other
    out = "",                     # this script's output; empty = the run's folder, or `runs`
    device = "auto",              # auto | cpu | cuda
    threads = 0,                  # CPU threads of a process; 0 = OMP_NUM_THREADS, 1 on a CPU
    gen_batch = 1024,             # rollouts decoded at once
    tensor_parallel = 1,          # ranks that share one vLLM engine, a part of each layer on each:
                                  # divides the model's heads; not run on a GPU yet; 1 = none
    micro_tokens = 16384,         # tokens of a micro-batch, padding counted, in the update
    micro_logits = 134_217_728,   # logits (tokens x vocabulary) at once in an update, 4 to 12 bytes
    activation_checkpointing = "auto",  # auto | true | false: keep each layer's input alone, a
                                  # third more work; auto = on a GPU
    gpu_memory = 0.0,             # share of a GPU's memory that vLLM takes while it generates; 0 =
                                  # what the trainer leaves; without one what is free, up to 0.9
    save_every = 65536,           # rollouts between checkpoints, the newest two stay; 0 = at the
                                  # end alone
    keep_last = True,             # keep a finished run's last checkpoints, from which a larger C
                                  # goes on; false = its model and those of keep_at alone
    keep_at = "",                 # budgets whose checkpoints stay for good, as in "1e5 2e5"
    pass_at = "",                 # budgets at which every training problem is drawn s times, for
                                  # its pass@1, as in "0 1e5"
    sample_every = 10,            # updates between the rollouts that samples.jsonl shows; 0 = none
    # The sweep and its analysis
    ns = "8 16 32 64 128 256 512",  # values of n in a sweep; on GPUs a small n takes the longest,
                                  # see docs/gpu.md
    bps = "32",                   # values of B_p in a sweep
    seeds = "0",                  # seeds of a sweep
    lrs = "",                     # values of lr_base in a sweep, as in "1e-4 2e-4"; empty = lr_base
    view = "fixed_Bp",            # fixed_Bp | fixed_B | joint | lr | best_worst | sensitivity |
                                  # paper | slices | pass1 | compare | all
    metric = "avg@4",             # avg@k | best@k | worst@k, k up to `samples`; reward = mean of
                                  # a fractional reward; train = of training
    unit = "rollouts",            # rollouts | tokens | gpu_hours: the unit of C on the axes
    eval_set = "val",             # which evaluations of the logs: val, or the `set` of others
    delta = 0.01,                 # a difference in reward that does not matter
    epochs = 0.0,                 # analyse only so many passes over the training problems, 0 = all
    bin = 0.005,                  # width of the reward bins of record-breaking points
    points = "",                  # CSV with columns C, n to fit the law to, in place of a sweep
)

# what the defaults.json beside a model says of the model, whatever problems it is trained on
OF_MODEL = ("C B_max lr_base critic_lr max_prompt_tokens max_new_tokens micro_tokens gen_batch "
            "eval_every save_every ns bps seeds").split()

RECIPES = dict(easy=dict(kl_coef=0.001, entropy_coef=0.001),  # paper, Table 1; our coefficients
               hard=dict(kl_coef=0.0, entropy_coef=0.0),
               mixed=dict(kl_coef=0.0, entropy_coef=0.0))  # "on heterogeneous datasets use Hard"


def comments():
    """{key: the comment beside it} of the dict above, the one place where a key is described."""
    text = Path(__file__).read_text().split("\nconfig = dict(")[1].split("\n)\n")[0]
    return dict(re.findall(r"^    (\w+) = .*?  # (.*)", re.sub(r"\n {8,}# ", " ", text), re.M))


# the values that a key may have, where its comment names them all: {key: (word, ...)}
CHOICES = {key: tuple(named[1].split(" | ")) for key, comment in comments().items()
           if (named := re.match(r"(\w+(?: \| \w+)+)(?::|$)", comment))}
# Keys that are no part of a run's identity. Any other key, a new one too, is part of it: two values
# are two runs in two folders.
RUNNING = """device threads tensor_parallel gen_batch micro_tokens micro_logits
             activation_checkpointing gpu_memory save_every keep_last keep_at pass_at
             sample_every s""".split()  # of a training command
OF_OTHER_STAGES = """source revision question_key answer_key against keep_near task task_args size
    mix problems measure s_zero levels n_val shard runs out
    ns bps seeds lrs view metric unit eval_set delta epochs bin points""".split()
FREE = {*RUNNING, *OF_OTHER_STAGES,
        "data", "split",   # the problems count by the files that they name
        "C", "B_max"}      # a larger budget continues a run


class BadInput(ValueError):
    """What the user gave cannot be used. The message is one line that names the key or the file."""


INTERRUPTED = "interrupted; start the same command again to go on"


def hook(kind, value, trace):
    """Ctrl-C while a script still imports, before `entry` catches it, is one line and 130 too."""
    if not issubclass(kind, KeyboardInterrupt):
        return sys.__excepthook__(kind, value, trace)
    print(f"{Path(sys.argv[0]).name}: {INTERRUPTED}", file=sys.stderr, flush=True)
    os._exit(130)


sys.excepthook = hook


def entry(main):
    """Run a script's `main(argv)` and exit: bad input is one line and code 2, a bad disk code 1."""
    name = Path(sys.argv[0]).name
    with contextlib.suppress(OSError, RuntimeError):  # a stderr that is no file, or closed
        faulthandler.enable()  # where torch or vLLM die in native code, it says where in ours
    try:
        sys.exit(main(sys.argv[1:]))
    except BadInput as e:
        code, message = 2, str(e)
    except BrokenPipeError:  # the reader of our output, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as e:
        what = f"{e.strerror or e}: {e.filename or 'while writing'}"
        code, message = 1, f"{what}; start the same command again to go on"
    except KeyboardInterrupt:
        code, message = 130, INTERRUPTED
    # rank 0 speaks for all; whoever is still there after that speaks for itself
    if os.environ.get("RANK", "0") != "0":
        time.sleep(3)
        name = f"[rank {os.environ['RANK']}] {name}"
    below_the_bar = "\n" if sys.stderr and sys.stderr.isatty() else ""
    print(f"{below_the_bar}{name}: {message}", file=sys.stderr)
    sys.exit(code)


# --------------------------------------------------------------------------------------------------
# The command line

def cast(key, value, keys=config):
    """`value` (a string of the command line, or a JSON value) as the type of keys[key].

    1e6 is a valid int, ints promote to floats, true/false are read in any case, and none (JSON:
    null) is the key's off value: 0, false or the empty string. Raises BadInput.
    """
    kind, text = type(keys[key]), str(value).strip()
    if value is None or text.lower() == "none":
        return kind()
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        if isinstance(value, bool) or (kind is str and not isinstance(value, str)):
            raise ValueError
        if kind is str:
            return value
        if kind is int and re.fullmatch(r"[-+]?[\d_]+", text):
            return int(text)  # by way of a float, large ones would change
        number = float(text)
        if not math.isfinite(number) or (kind is int and number != int(number)):
            raise ValueError
        return kind(number)
    except (ValueError, KeyError):
        what = "an int" if kind is int else f"a {kind.__name__}"
        raise BadInput(f"--{key}={value}: expected {what}, as in --{key}={keys[key]}") from None


def choose(key, value, choices):
    """Raise BadInput where `value` is none of `choices`, with the nearest of them."""
    if value not in choices:
        near = difflib.get_close_matches(str(value), choices, 1, 0)[0]
        names = ", ".join(name or "none" for name in choices)
        raise BadInput(f"--{key}={value}: expected one of {names}; "
                       f"the nearest is {near}")


def set_key(cfg, key, value, source="--", keys=config):
    """Set one key of `cfg` in place, a recipe its keys too; BadInput names the nearest key."""
    if key not in keys:
        # Bp is next to B_p, B_MAX to B_max
        names = {name.lower().replace("_", ""): name for name in keys}
        near = difflib.get_close_matches(key.lower().replace("_", ""), names, 1, 0)[0]
        raise BadInput(f"{source}{key}={value}: no such key, the nearest is {names[near]} "
                       "(--help lists them)")
    cfg[key] = cast(key, value, keys)
    if key in CHOICES:
        choose(key, cfg[key], CHOICES[key])
    if key == "recipe":
        cfg.update(RECIPES[cfg[key]])


def read_json(path):
    """The object in a JSON file; raises BadInput that names the file."""
    try:
        value = json.loads(Path(path).read_bytes())  # UTF-8 in every locale
    except (OSError, ValueError, RecursionError) as e:
        raise BadInput(f"{path}: not a readable JSON file ({e})") from None
    if not isinstance(value, dict):
        raise BadInput(f"{path}: expected one flat JSON object")
    return value


def parse(argv, doc="", own=None):
    """Command-line words -> the resolved flat dict, checked. `--help` prints every key and exits.

    own: further keys that one script alone has, {key: (default, comment)}. Raises BadInput.
    """
    own = own or {}
    keys = config | {key: default for key, (default, _) in own.items()}
    if {"-h", "--help"} & set(argv):
        print(doc.strip(), "\n\nKeys (--key=value), with their values at the paper's scale:")
        for key, comment in (comments() | {key: about for key, (_, about) in own.items()}).items():
            print(f"  --{key + '=' + str(keys[key]):40s} {comment}")
        sys.exit(0)
    given = {}
    for word in argv:
        key, eq, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or not eq:
            raise BadInput(f"{word}: write it as --key=value (--help lists the keys)")
        flat = {key: value}
        if key == "config":
            flat = read_json(value)
        # a recipe sets other keys, so within one file it comes first
        for key in sorted(flat, key=lambda key: key != "recipe"):
            set_key(given, key, flat[key], keys=keys)

    folder = folder_defaults(given, keys)
    cfg = keys | folder
    set_key(cfg, "recipe", given.get("recipe", cfg["recipe"]))
    cfg |= given

    cfg["data"], cfg["model"] = str(Path(cfg["data"])), cfg["model"].rstrip("/") or cfg["model"]
    cfg |= fitting_lengths(cfg, folder | given)
    splits, split = Path(cfg["data"]) / "splits" / Path(cfg["model"]).name, cfg["split"]
    for key in ("train", "val"):
        name = f"{split or cfg['recipe']}_{key}.jsonl"
        cfg[f"{key}_set"] = cfg[f"{key}_set"] or str(splits / name)
    cfg["problems"] = cfg["problems"] or str(Path(cfg["data"]) / "problems.jsonl")
    name = cfg["recipe"] + f"_{split}" * (split not in ("", cfg["recipe"]))
    cfg["runs"] = cfg["runs"] or sweep_folder(cfg, name)
    check(cfg)
    return cfg


def folder_defaults(given, keys):
    """Return what defaults.json says for the model and data of `given`, the command line's keys.

    The data folder's file gives all of its keys to a model in that folder, and only the verifier
    to any other model, which brings the OF_MODEL keys of the file in its own parent folder.
    """
    data = Path(given.get("data", keys["data"]))
    model, folder = Path(given.get("model", data)), {}
    sources = [(data, keys)]
    if not model.resolve().is_relative_to(data.resolve()):
        sources = [(model.parent, OF_MODEL), (data, ["verifier"] * ("data" in given))]
    for place, wanted in sources:
        file = place / "defaults.json"
        for key, value in read_json(file).items() if file.exists() else ():
            if key in wanted or key not in keys:
                set_key(folder, key, value, f"{file}: ", keys)
    return folder


def fitting_lengths(cfg, fixed):
    """{max_prompt_tokens, max_new_tokens}, of which those not in `fixed` are cut to what the model
    in a local folder holds. Those in `fixed` stay: a stage refuses what is too long.
    """
    keys = ("max_prompt_tokens", "max_new_tokens")
    lengths, file = {key: cfg[key] for key in keys}, Path(cfg["model"]) / "config.json"
    positions = read_json(file).get("max_position_embeddings") if file.exists() else None
    if isinstance(positions, int) and sum(lengths.values()) > positions > 1:
        other = lengths[keys[1]] if keys[1] in fixed else positions // 2
        for key in keys:
            if key not in fixed and other < positions:
                lengths[key] = min(lengths[key], positions - other)
            other = lengths[key]
    return lengths


def sweep_folder(cfg, name):
    """The folder of a sweep where none is named: runs/NAME for the embedded base model.

    Others are runs/DATA_MODEL_NAME, so that a sweep of other problems or another model does not
    meet it. `name` is the recipe's, or `atlas` for the studies.
    """
    home = Path(config["data"])
    embedded = Path(cfg["data"]).resolve() == home.resolve()
    if embedded and Path(cfg["model"]).resolve() == (home / "base").resolve():
        return f"runs/{name}"
    return f"runs/{Path(cfg['data']).resolve().name}_{Path(cfg['model']).name}_{name}"


def files(value):
    """The problem files of `val_set` or `against`, which have commas between them."""
    return [word.strip() for word in value.split(",") if word.strip()]


def check(cfg):
    """Raise BadInput on a value or a combination that no stage can use."""
    def need(ok, key, why):
        if not ok:
            raise BadInput(f"--{key}={cfg[key]}: {why}")
    need(cfg["n"] >= 2, "n", "a group needs 2 rollouts or more, its advantage is (r - mean) / std")
    need(cfg["n_val"] or not is_toy(cfg), "n_val", "must be 1 or more")
    least = dict.fromkeys("""B_p C k samples s size updates max_prompt_tokens max_new_tokens
                             gen_batch tensor_parallel micro_tokens micro_logits
                             verify_bytes""".split(), 1)
    most = dict(eps_low=1, gamma=1, lam=1, top_p=1, gpu_memory=1, verify_s=3600)
    for key, value in cfg.items():
        if isinstance(value, (int, float)):
            need(value >= least.get(key, 0), key, f"must be {least.get(key, 0)} or more")
            need(value <= most.get(key, math.inf), key, f"must be {most.get(key)} or less")
    for key in "lr_base temperature top_p verify_s bin".split():
        need(cfg[key] > 0, key, "must be above 0")
    need(cfg["top_p"] == 1 or not cfg["tis_cap"], "top_p", "importance weights need the whole "
         "distribution: the engine's log-probs are renormalised below top_p=1 (or set --tis_cap=0)")
    need(cfg["engine"] != "vllm" or cfg["temperature"] <= 2, "temperature",
         "vLLM samples at 2 at most")
    if cfg["algo"] == "ppo":
        need(not cfg["n_train"], "n_train",
             "PPO has a critic and no group baseline to decouple; leave it at 0")
        need(cfg["zero_var_filter"] == "off", "zero_var_filter",
             "with PPO's critic a group of equal rewards has advantages too; leave it off")
        need(not cfg["lora_rank"], "lora_rank", "PPO's critic has no adapters; leave it at 0")
    need(cfg["n_train"] != 1 and cfg["n_train"] <= cfg["n"], "n_train",
         f"must be 0 or from 2 to n={cfg['n']}")
    need(cfg["k"] <= cfg["samples"], "k",
         f"an evaluation draws only samples={cfg['samples']} rollouts per problem")
    need(re.fullmatch(r"(avg|best|worst)@[1-9]\d*|reward|train", cfg["metric"]), "metric",
         "expected avg@k, best@k, worst@k, reward or train, as in --metric=best@4")
    shard = re.fullmatch(r"(\d{1,4})/(\d{1,4})", cfg["shard"])
    need(not cfg["shard"] or (shard and int(shard[1]) < int(shard[2])), "shard",
         "expected i/k with i from 0 to k - 1, as in 0/8")
    for keys, word, what in (
            ("ns bps seeds", r"\d+", 'whole numbers with spaces between, as in "2 4 8"'),
            ("keep_at pass_at", r"(\d+(\.\d*)?([eE]\d\d?)?)?",
             'budgets with spaces between, as in "1e5 2e5"'),
            ("lrs", r"((?=.*[1-9])\d*\.?\d+([eE]-?\d\d?)?)?",
             'values of lr_base with spaces between, as in "1e-4 2e-4"'),
            ("levels", config["levels"].replace(" ", "|") + "|", f"some of {config['levels']}"),
            ("mix", r"([^\s:]+(:\d+(\.\d*)?)?)?",
             'splits with their shares, as in "extreme:2 level_easy:1"')):
        for key in keys.split():
            words = cfg[key].split() or [""]
            need(all(re.fullmatch(word, w) for w in words), key, f"expected {what}")


# --------------------------------------------------------------------------------------------------
# What follows from the dict: updates, lr, the run's identity and its command

def derive(cfg, own=None):
    """What follows from the inputs, never stored among them: dict(B, M, lr, run).

    B (rollouts per update), M the updates in all (paper, section 3, factor 3). With n_train < n the
    lr goes by the rollouts in the loss. own: as in `parse`, for the run's name.
    """
    B = cfg["B_p"] * cfg["n"]
    M = cfg["C"] // B  # C = B_p n M
    lr = cfg["lr_base"] * lr_factor(cfg["B_p"] * (cfg["n_train"] or cfg["n"]), cfg["lr_scaling"])
    return dict(B=B, M=M, lr=lr, run=run_name(cfg, own))


def lr_factor(B, scaling):
    """What lr_base is multiplied by at B rollouts per update; 1 at B = 1024."""
    return dict(sqrt=math.sqrt(B / 1024), linear=B / 1024, constant=1.0)[scaling]


def all_rollouts(cfg):
    """The rollouts of all M updates of a run: C, less what makes no whole update."""
    return cfg["C"] - cfg["C"] % (cfg["B_p"] * cfg["n"])


def updates_at(budgets, cfg):
    """The first updates that reach the budgets "0 1e5", in rollouts, of those up to C: a set.

    What only C itself reaches is the last update's, M.
    """
    B, reached = cfg["B_p"] * cfg["n"], [C for C in map(float, budgets.split()) if C <= cfg["C"]]
    return {min(math.ceil(C / B), cfg["C"] // B) for C in reached}


def check_run(cfg):
    """Raise BadInput where (B_p, n, C) is no run: what trains calls it before it loads anything."""
    B = cfg["B_p"] * cfg["n"]
    if cfg["B_max"] and B > cfg["B_max"]:
        raise BadInput(f"--B_p={cfg['B_p']} --n={cfg['n']}: B_p n = {B} is above "
                       f"B_max={cfg['B_max']}")
    if cfg["C"] < B:
        raise BadInput(f"--C={cfg['C']}: below one update of B_p n = {B} rollouts")
    if cfg["threads"] > (os.cpu_count() or 1):
        raise BadInput(f"--threads={cfg['threads']}: this machine has {os.cpu_count()} cores")


def is_toy(cfg):
    """True for a run of bandit_toy.py, which makes its own problems and has keys of its own."""
    return str(cfg.get("data")).rstrip("/") == "data/bandit"


def complete(cfg):
    """The config of a log or of sweep.json with this version's keys, missing ones at their default.

    Of keys that are not in the dict above it keeps bandit_toy.py's, in a run of that alone.
    """
    if cfg.get("activation_checkpointing") is False:  # an older log, with two defaults of its time
        cfg = {key: value for key, value in cfg.items()
               if key not in ("activation_checkpointing", "gpu_memory")}
    own = {key: value for key, value in cfg.items() if is_toy(cfg) and key not in config}
    return {key: cfg.get(key, default) for key, default in config.items()} | own


def identity(cfg):
    """Return the part of the dict that makes a run this experiment and no other.

    These are all keys but FREE ones and those of a critic or a verifier that is not used.
    """
    out = {key: value for key, value in complete(cfg).items() if key not in FREE}
    if is_toy(cfg):  # which draws its validation problems itself
        out["n_val"] = cfg["n_val"]
    unused = [] if out["algo"] == "ppo" else ["gamma", "lam", "critic_lr", "value_clip"]
    unused += ["verify_s", "verify_bytes"] if out["verifier"] == "exact" else []
    for key in unused:
        del out[key]
    return out


def experiment(cfg):
    """`identity` without the grid's keys: what all runs of a sweep have in common."""
    grid = ("B_p", "n", "seed", "lr_base")
    return {key: v for key, v in identity(cfg).items() if key not in grid}


def lrs_of(cfg):
    """The values of lr_base in a sweep, smallest first: those of `lrs`, or lr_base alone."""
    return sorted({float(word) for word in cfg["lrs"].split()} or {cfg["lr_base"]})


def run_name(cfg, own=None):
    """Folder name of a run; own: as in `parse`.

    Only values off the defaults enter the hash, so that a key added later renames no old run; nor
    do the defaults of `verifier` and the toy world's `n_val`, which were exact and 300 once.
    """
    defaults = dict(config, verifier="exact", n_val=300)
    defaults |= {key: default for key, (default, _) in (own or {}).items()}
    off = {key: value for key, value in identity(cfg).items() if value != defaults.get(key)}
    digest = hashlib.sha256(json.dumps(off, sort_keys=True).encode()).hexdigest()[:8]
    return f"Bp{cfg['B_p']}_n{cfg['n']}_seed{cfg['seed']}_{digest}"


def check_same(folder, old, cfg):
    """Raise BadInput with the keys in which the run in `folder`, of config `old`, is another."""
    old, new = identity(old), identity(cfg)
    differ = [key for key in new if old.get(key, new[key]) != new[key]]
    if differ:
        raise BadInput(f"{folder}: made by another config: "
                       + ", ".join(f"{key}={old[key]} there, {new[key]} now" for key in differ))


def command(cfg, more=(), python="python", launch="", gpus=1):
    """The line that starts the run `cfg`, with the keys that recipe and data folder do not give.

    more: keys to name in any case. launch: shell words to go before it, as they are. gpus: with 2
    or more torchrun starts that many processes.
    """
    words = [f"--recipe={cfg['recipe']}"]
    if cfg["data"] != config["data"]:
        words.append(f"--data={cfg['data']}")
    if parse(words)["model"] != cfg["model"]:  # the data folder's defaults.json may name it
        words.append(f"--model={cfg['model']}")
    plain, cfg = parse(words), complete(cfg)  # of an older log
    said = {"recipe", "B_p", "n", "C", "seed", "out", *more}
    if cfg["device"] == "auto":  # of an older log: here the data folder's device will do
        said.add("device")
    for key in {**identity(cfg), **dict.fromkeys(RUNNING)}:
        if key not in said and cfg[key] != plain.get(key):
            words.append(f"--{key}={cfg[key]}")
    words += [f"--{key}={cfg[key]}" for key in ("B_p", "n", "C", *more)]
    script = ["bandit_toy.py", "run"] if is_toy(cfg) else ["train_grpo.py"]
    if gpus > 1:  # without the -- torchrun takes our --n= for the beginning of an option of its own
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={gpus}",
                    "--shutdown-timeout=600", "--"]  # 30 s are too few for a checkpoint
        script = torchrun + script
    return f"{launch} {shlex.join([python, *script, *words])}".lstrip()


# --------------------------------------------------------------------------------------------------
# Metrics, machine, code

def at_k(metric, samples):
    """avg@k, best@k or worst@k of a problem with c right of s = `samples` rollouts, for c = 0..s.

    A list of s + 1 floats, unbiased for k rollouts drawn without replacement (Chen et al. 2021,
    eq. 1): avg@k = c / s, best@k = 1 - C(s - c, k) / C(s, k), some of them right, worst@k =
    C(c, k) / C(s, k), all of them. Raises BadInput where k > s.
    """
    kind, k = metric.split("@")[0], int(metric.split("@")[1])
    if k > samples:
        raise BadInput(f"--metric={metric}: needs {k} rollouts per problem, "
                       f"an evaluation here has {samples}")
    share = [math.comb(c, k) / math.comb(samples, k) for c in range(samples + 1)]
    if kind == "avg":
        return [c / samples for c in range(samples + 1)]
    return share if kind == "worst" else [1 - x for x in reversed(share)]


def cores(root=Path("/sys/fs/cgroup"), groups=Path("/proc/self/cgroup")):
    """Return how many cores this process may use, 1 or more.

    The CPU quota of a container counts (docker --cpus, Kubernetes limits): half a CPU is 1 core,
    one and a half is 1. Arguments: where Linux mounts control groups and lists our own.
    """
    count = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        count = len(os.sched_getaffinity(0))
    lines = groups.read_text().splitlines() if groups.exists() else []
    for line in lines:
        _, kinds, path = line.split(":", 2)
        if kinds and "cpu" not in kinds.split(","):
            continue
        # version 2 names no kind; a container may see its own group at the root
        for mount in {root / kinds, root / "cpu"} if kinds else {root, root / "unified"}:
            group = mount / path.lstrip("/")
            for place in (group, *group.parents):
                if place.is_relative_to(mount):
                    count = min(count, cpu_quota(place, count))
    return max(1, int(count))


def cpu_quota(group, otherwise):
    """Return the CPUs that a control group folder (version 1 or 2) grants, a float."""
    try:
        if (group / "cpu.max").exists():
            quota, period = (group / "cpu.max").read_text().split()
        else:
            quota, period = ((group / f"cpu.cfs_{name}_us").read_text()
                             for name in ("quota", "period"))
        return int(quota) / int(period) if int(quota) > 0 else otherwise
    except (OSError, ValueError):  # no such file, or "max"
        return otherwise


def commit():
    """The commit of this code, with a + if files differ from it; None outside a repository."""
    try:
        done = subprocess.run(["git", "describe", "--always", "--dirty=+", "--exclude=*"],
                              cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10)
        return done.stdout.strip() or None
    except (OSError, subprocess.TimeoutExpired):
        return None


def main(argv):
    cfg = parse(argv, __doc__)
    print(json.dumps(dict(config=cfg, derived=derive(cfg)), indent=1))


if __name__ == "__main__":
    entry(main)
