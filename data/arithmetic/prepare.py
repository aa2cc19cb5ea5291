"""data/arithmetic/prepare.py: problems for a laptop without downloads, and tiny models for them.

    python data/arithmetic/prepare.py           # the problems; base models are in the repository
    python data/arithmetic/prepare.py --model=data/arithmetic/narrow            # see MODELS
    python data/arithmetic/prepare.py --model=data/arithmetic/base2 --seed=2    # other skills

Writes `problems.jsonl`, {"id", "prompt", "answer"} per line, and `ood.jsonl`, longer problems that
no run trains on. If the folder --model does not exist, this script trains a model and writes it
there in transformers format. The models `base` and `one_layer` are in the repository with their
pass rates, because differences in rounding change the trained weights: kernels for two kinds of
processor gave mean pass rates of 0.29 and 0.38. To train one of the two again, write it elsewhere:
--data=/tmp/new --model=/tmp/new/base. The default sweep trains `one_layer` (presets.json), and most
other studies train `base`.

A problem is the sum or difference of two numbers of two to four digits. A response works column by
column from the right. For each column it writes two idle letters and the column's total. In a
difference the total is 10 + a - b - borrow, so a total of 10 or more means no borrow.
Then come '#' and the answer:

    472+385=    kd07pa15mf08#857        472-385=    fj07bb08ao10#87

What makes these problems similar to real ones:
- Skills. Each (operation, digit, digit, carry) is one of 400 skills, and a problem needs two to
  four of them. The base model is trained on texts that write a skill's total right only with that
  skill's probability: high for most skills, medium for some and near 0 for others. An error (a
  slip) is one of 19 wrong totals, so there is no single error to unlearn. A problem's pass@1 is
  close to the product of its skills' probabilities, and can be anything from 0 to 1.
- Steps that matter. The answer follows from the totals before it. A few training texts answer
  without steps, but the model learns little of this: if the steps of a response are cut out,
  accuracy falls.
- Longer problems. One in ten of the base model's training texts has numbers of five digits. No
  training problem of RL has five digits, and the 300 problems of `ood.jsonl` have five digits.
- Text that does not matter. The idle letters are random. They are sampled like every other token
  but do not affect the answer, so they add gradient noise.
"""
import os
import shutil
import sys
import time
from pathlib import Path

# Let idle threads sleep, because spinning threads would slow down other processes. torch reads this
# variable when it is imported
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))
import numpy as np
from config import entry, parse
from core.problems import write_problems

# problems.jsonl has POOL problems, enough for splits Easy, Hard and Very Easy of 1,000 training and
# 300 validation problems each. Its numbers have 2, 3 or 4 digits (COLUMNS). ood.jsonl has N_FAR
# problems with numbers of FAR digits
POOL = 9000
COLUMNS = (2, 3, 4)
FAR, N_FAR = 5, 300
# IDLE: how many idle letters come before each column's total
# DIRECT: the share of training texts that give the answer without the steps of the calculation
IDLE = 2
DIRECT = 0.03
BATCH, LR = 128, 4e-3
# {folder name: (layers, width, training steps)}. A folder with any other name gets the values of
# `base`. `one_layer` needs three times as many steps as `base` to reach the same pass rates, but a
# rollout of `one_layer` costs only two thirds of a rollout of `base`
MODELS = dict(base=(2, 96, 1400), narrow=(2, 64, 1400), one_layer=(1, 96, 4200))
# The first 20% of the training steps use texts without errors (slips), to teach the method
CLEAN = 0.2
LETTERS = "abcdefghijklmnop"
TOTALS = [f"{i:02d}" for i in range(20)]  # a column's total is one token
VOCAB = ["<pad>", "<eos>"] + list("0123456789+-=#" + LETTERS) + TOTALS
ID = {token: i for i, token in enumerate(VOCAB)}
PAD, EOS = ID["<pad>"], ID["<eos>"]


def make_skills(rng):
    """Return for each skill the probability that a training text writes the right total.

    The array (2, 10, 10, 2) is indexed by operation, upper digit, lower digit and incoming carry.
    60% of the skills are known, 25% unsure, 15% almost unknown. Sampling from the model at
    temperature 0.6 sharpens these probabilities.
    """
    kind = rng.choice(3, size=(2, 10, 10, 2), p=[0.6, 0.25, 0.15])
    low, high = np.array([0.97, 0.15, 0.001]), np.array([1.0, 0.5, 0.05])
    return rng.uniform(low[kind], high[kind])


def make_operands(rng, N, K):
    """Return N random problems of K columns: op (N,), and the digits a and b (N, K).

    The digits of the ones come first. op is 0 for + and 1 for -. If op is 1, a >= b as numbers.
    """
    op, a, b = rng.integers(0, 2, N), rng.integers(0, 10, (N, K)), rng.integers(0, 10, (N, K))
    a[:, -1], b[:, -1] = rng.integers(1, 10, N), rng.integers(1, 10, N)  # no leading zero
    place = 10 ** np.arange(K)
    swap = (op == 1) & (a @ place < b @ place)
    a[swap], b[swap] = b[swap], a[swap].copy()
    return op, a, b


def make_texts(rng, op, a, b, skills):
    """Return training texts as token ids: prompts (N, 2K + 2) and responses (N, T).

    A response ends in <eos>, followed by <pad>. A total is right with its probability in `skills`.
    The answer follows from the totals as written, so a wrong total makes the answer wrong.
    """
    N, K = a.shape
    sign, equals = ID["+"] + op[:, None], np.full((N, 1), ID["="])
    prompt = np.concatenate([a[:, ::-1] + ID["0"], sign, b[:, ::-1] + ID["0"], equals], 1)
    carry, written, steps = np.zeros(N, int), np.zeros((N, K + 1), int), []
    for j in range(K):
        plus, minus = a[:, j] + b[:, j] + carry, 10 + a[:, j] - b[:, j] - carry
        total = np.where(op == 0, plus, minus)
        slip = rng.random(N) > skills[op, a[:, j], b[:, j], carry]
        total = (total + slip * rng.integers(1, len(TOTALS), N)) % len(TOTALS)
        written[:, j] = total % 10
        carry = np.where(op == 0, total >= 10, total < 10).astype(int)
        steps.append(rng.integers(ID["a"], ID["a"] + len(LETTERS), (N, IDLE)))
        steps.append(total[:, None] + ID["00"])
    written[:, K] = carry * (op == 0)
    steps = np.concatenate(steps, 1)  # (N, K (IDLE + 1))

    # length (N,): the number of digits of the answer, without leading zeros
    length = 1 + np.max(np.where(written > 0, np.arange(K + 1), 0), 1)
    answer = np.full((N, K + 3), PAD)
    answer[:, 0] = ID["#"]
    # the answer is written from its highest digit, but `written` begins with the ones
    for i in range(K + 1):
        place = length - 1 - i
        answer[:, 1 + i] = np.where(place >= 0, written[np.arange(N), place] + ID["0"], PAD)
    answer[np.arange(N), 1 + length] = EOS
    response = np.concatenate([steps, answer], 1)
    direct = rng.random(N) < DIRECT
    response[direct] = np.concatenate([answer, np.full_like(steps, PAD)], 1)[direct]
    return prompt, response


def make_tokenizer():
    """Return a transformers tokenizer. Each total is one token, and so is each character elsewhere.

    Two digits are read as a total if they follow a letter.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    tok = Tokenizer(models.WordLevel(ID, unk_token="<pad>"))
    tok.pre_tokenizer = pre_tokenizers.Split(Regex(r"(?<=[a-z])\d\d|."), "isolated")
    tok.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tok, pad_token="<pad>", eos_token="<eos>",
                                   padding_side="left", model_max_length=64)


def make_problems(rng, N, columns=COLUMNS, name="arith"):
    """Return N different problems as dicts, with random operations and lengths."""
    problems = {}
    while len(problems) < N:
        op, a, b = make_operands(rng, 1, int(rng.choice(columns)))
        x, y = (int("".join(map(str, d[0, ::-1]))) for d in (a, b))
        problems[f"{x}{'+-'[op[0]]}{y}="] = str(x - y if op[0] else x + y)
    return [dict(id=f"{name}-{i:05d}", prompt=prompt, answer=answer)
            for i, (prompt, answer) in enumerate(problems.items())]


def train_base(seed, layers, width, steps):
    """Return a small Llama, trained on texts with slips. `width` is a multiple of 32.

    The weights depend only on the seed, the number of threads and the kernels.
    """
    import torch
    from tqdm import tqdm
    from transformers import LlamaConfig, LlamaForCausalLM
    rng = np.random.default_rng([seed, 1])
    skills = make_skills(rng)
    torch.manual_seed(seed)
    # the number of threads is fixed, because the last bits of the weights depend on it
    torch.set_num_threads(2)
    # Llama and not Qwen2, because transformers 5 opens a Qwen2 folder with Qwen's own tokenizer
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=len(VOCAB), hidden_size=width, intermediate_size=2 * width,
        num_hidden_layers=layers, num_attention_heads=width // 32,
        num_key_value_heads=width // 32, bos_token_id=None, eos_token_id=EOS, pad_token_id=PAD,
        max_position_embeddings=64, tie_word_embeddings=True))
    opt = torch.optim.AdamW(model.parameters(), LR, (0.9, 0.98), weight_decay=0.01, fused=True)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, LR, steps, pct_start=0.1)
    bar = tqdm(range(steps), desc="base model", mininterval=1)
    for step in bar:
        sure = step < CLEAN * steps
        columns = FAR if step % 10 == 9 else COLUMNS[step % len(COLUMNS)]
        operands = make_operands(rng, BATCH, columns)
        prompt, response = make_texts(rng, *operands, np.ones_like(skills) if sure else skills)
        ids = torch.from_numpy(np.concatenate([prompt, response], 1))  # (BATCH, P + T)
        P = prompt.shape[1]
        logits = model(input_ids=ids[:, :-1], logits_to_keep=slice(P - 1, None),
                       use_cache=False).logits  # (BATCH, T, vocab)
        target = ids[:, P:]
        # Idle letters are uniform, so there is little to learn from them. They get a tenth of the
        # usual weight, to reduce their noise in the gradient
        idle = (target >= ID["a"]) & (target < ID["00"])
        weight = (target != PAD) * torch.where(idle, 0.1, 1.0)
        # The first token, an idle letter or '#', decides whether a text has steps. It has the full
        # weight in all texts, because the model would otherwise learn to skip steps
        weight[:, 0] = 1
        nll = torch.nn.functional.cross_entropy(logits.transpose(1, 2), target, reduction="none")
        loss = (nll * weight).sum() / weight.sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step(), sched.step(), opt.zero_grad()
        if step % 20 == 0:
            bar.set_postfix(loss=f"{loss.item():.3f}", refresh=False)
    return model


def make_base(folder, seed, name):
    """Train the base model `name` of MODELS and write it to `folder`, complete or not at all."""
    # Kernels for AVX-512 and AVX2 round differently, so after 1,400 steps the models differ. So use
    # AVX2 everywhere. torch reads ATEN_CPU_CAPABILITY at its first operation, so set it before
    # torch is imported
    cpu = Path("/proc/cpuinfo")
    if cpu.exists() and "avx512f" in cpu.read_text().split():
        os.environ["ATEN_CPU_CAPABILITY"] = "avx2"
    start = time.time()
    model = train_base(seed, *MODELS.get(name, MODELS["base"]))
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    model.save_pretrained(part)
    make_tokenizer().save_pretrained(part)
    part.rename(folder)
    size = sum(p.numel() for p in model.parameters())
    print(f"{folder}: {size:,} parameters in {time.time() - start:.0f} s")


def main(argv):
    cfg = parse(argv, __doc__)
    problems, folder = Path(cfg["problems"]), Path(cfg["model"])
    if not problems.exists():
        # a fixed seed, not --seed, so that all base models are measured on the same problems
        write_problems(problems, make_problems(np.random.default_rng(0), POOL))
        print(f"{problems}: {POOL} problems")
    far = problems.with_name("ood.jsonl")
    if not far.exists():
        write_problems(far, make_problems(np.random.default_rng(1), N_FAR, (FAR,), "far"))
    if (folder / "config.json").exists():
        print(f"{folder}: exists already")
    elif folder.resolve().is_relative_to(Path(cfg["data"]).resolve()):
        make_base(folder, cfg["seed"], folder.name)
    else:  # a name on the hub
        print(f"{folder}: not in {cfg['data']}, so no model is made")


if __name__ == "__main__":
    entry(main)
