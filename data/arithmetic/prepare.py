"""data/arithmetic/prepare.py: problems and a tiny base model that knows them badly, for a laptop and no download.

    python data/arithmetic/prepare.py                        # about 2 minutes on 2 cores
    python data/arithmetic/prepare.py --model=data/arithmetic/base2 --seed=2    # another base model, other weak spots
    python data/arithmetic/prepare.py --model=data/arithmetic/narrow            # a narrower one; `late`: one that was trained longer

Writes `problems.jsonl` ({"id","prompt","answer"} a line) and `ood.jsonl`, problems of a family that nothing trains on by RL, beside this
file, and a model folder in transformers format.

A problem is the sum or difference of two numbers of two to four digits. A response works column by column from the
right, two idle letters and the column's total (of a difference: 10 + a - b - borrow, so that 10 and above means no borrow),
then '#' and the answer:

    472+385=    kd07pa15mf08#857        472-385=    fj07bb08ao10#87

What this has of the real thing, and why it is there:
- Skills. Each (operation, digit, digit, carry) is one of 400, two to four of them in a problem. The training text writes the
  right total with a probability of its own for each: most are known, some are unsure, some hardly ever right.
  A slip is one of 19 wrong totals, so there is no single error to unlearn. pass@1 is near the product, from 0 to 1.
- Steps that matter. The answer is read off the totals above it. A few texts answer at once, without steps, and from
  these the model learns little: cut the steps out and its accuracy falls.
- Another family. One text in ten is of five digits: the base model meets them, no training problem is one, and `ood.jsonl` holds 300.
- Text that does not matter. The idle letters are random, are sampled like every token and decide nothing: gradient noise.

Needs config.py.
"""
import json
import os
import shutil
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read when torch loads: threads that spin starve whatever runs beside them
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))
from config import aside, entry, parse  # noqa: E402  before torch: it chooses the kernels
import numpy as np
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from tqdm import tqdm
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

POOL = 9000            # problems; enough for 1,000 + 300 of Easy, Hard and Very Easy
COLUMNS = (2, 3, 4)    # digits of the numbers
FAR, N_FAR = 5, 300    # digits of the numbers of ood.jsonl, and how many problems it holds
IDLE = 2               # idle letters a column
DIRECT = 0.03          # share of texts without steps
BATCH, LR = 128, 4e-3
MODELS = dict(base=(96, 1400), narrow=(64, 1400), late=(96, 2100))  # width and training steps by the folder's name; others are like base
CLEAN = 0.2            # share of the training, at its start, without slips: the method first, then its weak spots
LETTERS = "abcdefghijklmnop"
TOTALS = [f"{i:02d}" for i in range(20)]  # a column's total is one token
VOCAB = ["<pad>", "<eos>"] + list("0123456789+-=#" + LETTERS) + TOTALS
ID = {token: i for i, token in enumerate(VOCAB)}
PAD, EOS = ID["<pad>"], ID["<eos>"]


def make_skills(rng):
    """Probability that the text writes a column's total right, (2, 10, 10, 2): operation, upper and lower digit, carry in.

    60% of the skills are known, 25% unsure, 15% next to unknown. Sampling at temperature 0.6 sharpens them.
    """
    kind = rng.choice(3, size=(2, 10, 10, 2), p=[0.6, 0.25, 0.15])
    return rng.uniform(np.array([0.97, 0.15, 0.001])[kind], np.array([1.0, 0.5, 0.05])[kind])


def make_operands(rng, N, K):
    """N random problems of K columns: op (N,) 0 for + and 1 for -, digits a, b (N, K) lowest first, a >= b as numbers where op is -."""
    op, a, b = rng.integers(0, 2, N), rng.integers(0, 10, (N, K)), rng.integers(0, 10, (N, K))
    a[:, -1], b[:, -1] = rng.integers(1, 10, N), rng.integers(1, 10, N)  # no leading zero
    place = 10 ** np.arange(K)
    swap = (op == 1) & (a @ place < b @ place)
    a[swap], b[swap] = b[swap], a[swap].copy()
    return op, a, b


def make_texts(rng, op, a, b, skills):
    """Training texts as token ids: prompts (N, 2K + 2) and responses (N, T) that end in <eos> and then <pad>.

    Totals slip by `skills`; the answer is read off the totals as written, so that a slip on the way is a wrong answer.
    """
    N, K = a.shape
    prompt = np.concatenate([a[:, ::-1] + ID["0"], ID["+"] + op[:, None], b[:, ::-1] + ID["0"], np.full((N, 1), ID["="])], 1)
    carry, written, steps = np.zeros(N, int), np.zeros((N, K + 1), int), []
    for j in range(K):
        total = np.where(op == 0, a[:, j] + b[:, j] + carry, 10 + a[:, j] - b[:, j] - carry)
        slip = rng.random(N) > skills[op, a[:, j], b[:, j], carry]
        total = (total + slip * rng.integers(1, len(TOTALS), N)) % len(TOTALS)
        written[:, j] = total % 10
        carry = np.where(op == 0, total >= 10, total < 10).astype(int)
        steps += [rng.integers(ID["a"], ID["a"] + len(LETTERS), (N, IDLE)), total[:, None] + ID["00"]]
    written[:, K] = carry * (op == 0)
    steps = np.concatenate(steps, 1)  # (N, K (IDLE + 1))
    length = 1 + np.max(np.where(written > 0, np.arange(K + 1), 0), 1)  # digits of the answer, without leading zeros
    answer = np.full((N, K + 3), PAD)
    answer[:, 0] = ID["#"]
    for i in range(K + 1):  # digit i from the front is place length - 1 - i
        place = length - 1 - i
        answer[:, 1 + i] = np.where(place >= 0, written[np.arange(N), place] + ID["0"], PAD)
    answer[np.arange(N), 1 + length] = EOS
    response = np.concatenate([steps, answer], 1)
    direct = rng.random(N) < DIRECT
    response[direct] = np.concatenate([answer, np.full_like(steps, PAD)], 1)[direct]
    return prompt, response


def make_tokenizer():
    """One token a character, and one for a total (two digits behind a letter), as a transformers tokenizer."""
    tok = Tokenizer(models.WordLevel(ID, unk_token="<pad>"))
    tok.pre_tokenizer = pre_tokenizers.Split(Regex(r"(?<=[a-z])\d\d|."), "isolated")
    tok.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tok, pad_token="<pad>", eos_token="<eos>", padding_side="left", model_max_length=64)


def make_problems(rng, N, columns=COLUMNS, name="arith"):
    """N different problems as dicts, in random order of operation and length."""
    problems = {}
    while len(problems) < N:
        op, a, b = make_operands(rng, 1, int(rng.choice(columns)))
        x, y = (int("".join(map(str, d[0, ::-1]))) for d in (a, b))
        problems[f"{x}{'+-'[op[0]]}{y}="] = str(x - y if op[0] else x + y)
    return [dict(id=f"{name}-{i:05d}", prompt=p, answer=answer) for i, (p, answer) in enumerate(problems.items())]


def train_base(seed, width, steps):
    """The base model, trained for so many steps on slipping texts: a Llama of 2 layers, `width` a multiple of 32.

    Same weights for one seed and number of threads; measured on processors of one maker with AVX-512 and without, others may round otherwise.
    """
    rng = np.random.default_rng([seed, 1])
    skills = make_skills(rng)
    torch.manual_seed(seed)
    torch.set_num_threads(2)  # the sums, and so the last bits of the weights, depend on it
    # Llama and not Qwen2, whose folders transformers 5 opens with Qwen's own tokenizer whatever tokenizer.json says
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=len(VOCAB), hidden_size=width, intermediate_size=2 * width, num_hidden_layers=2, num_attention_heads=width // 32,
        num_key_value_heads=width // 32, max_position_embeddings=64, tie_word_embeddings=True,
        bos_token_id=None, eos_token_id=EOS, pad_token_id=PAD))
    opt = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, LR, steps, pct_start=0.1)
    bar = tqdm(range(steps), desc="base model", mininterval=1)
    for step in bar:
        sure = step < CLEAN * steps
        operands = make_operands(rng, BATCH, FAR if step % 10 == 9 else COLUMNS[step % len(COLUMNS)])
        prompt, response = make_texts(rng, *operands, np.ones_like(skills) if sure else skills)
        ids = torch.from_numpy(np.concatenate([prompt, response], 1))  # (BATCH, P + T)
        P = prompt.shape[1]
        logits = model(input_ids=ids[:, :-1], logits_to_keep=slice(P - 1, None), use_cache=False).logits  # (BATCH, T, vocab)
        target = ids[:, P:]
        # idle letters carry nothing to learn but their uniform spread: a tenth of the weight is less noise in the gradient
        weight = (target != PAD) * torch.where((target >= ID["a"]) & (target < ID["00"]), 0.1, 1.0)
        weight[:, 0] = 1  # steps or no steps: all the same, or the model would learn to answer at once
        loss = (torch.nn.functional.cross_entropy(logits.transpose(1, 2), target, reduction="none") * weight).sum() / weight.sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step(), sched.step(), opt.zero_grad()
        if step % 20 == 0:
            bar.set_postfix(loss=f"{loss.item():.3f}", refresh=False)
    return model


def main(argv):
    cfg = parse(argv, __doc__)
    problems, folder = Path(cfg["problems"]), Path(cfg["model"])
    if not problems.exists():
        # the problems do not depend on the seed: every base model is measured on the same ones
        with aside(problems) as part:
            part.write_text("".join(json.dumps(p) + "\n" for p in make_problems(np.random.default_rng(0), POOL)))
        print(f"{problems}: {POOL} problems")
    far = problems.with_name("ood.jsonl")
    if not far.exists():
        with aside(far) as part:
            part.write_text("".join(json.dumps(p) + "\n" for p in make_problems(np.random.default_rng(1), N_FAR, (FAR,), "far")))
    if (folder / "config.json").exists():
        print(f"{folder}: is there already, nothing to do")
        return
    start = time.time()
    model = train_base(cfg["seed"], *MODELS.get(folder.name, MODELS["base"]))
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    model.save_pretrained(part)
    make_tokenizer().save_pretrained(part)
    part.rename(folder)
    print(f"{folder}: {sum(p.numel() for p in model.parameters()):,} parameters in {time.time() - start:.0f} s")


if __name__ == "__main__":
    entry(main)
