"""Compare a training step with its floor: what transformers and torch need for the same tensors.

    python tests/bench/floor.py            # B_p = 32, n = 32, 16 updates; a minute
    python tests/bench/floor.py 4 40       # n = 4, 40 updates

The floor prefills the prompts, decodes the recorded tokens (no sampling and no log-probs; rows are
dropped as they end) and runs forward, backward and AdamW over the sequences in micro-batches sorted
by length. It has its own code and imports nothing from train_grpo.py. After each update of a real
run (`train_grpo.main` in this process, on data/arithmetic; make problems and base model by `bash
run_sweep.sh easy`) the floor does the same work on the same rollouts, so the two are timed in turn.
Prints the median step, floor and ratio, the share of logging, and the share of evaluation at the
eval_every of the data folder's defaults.
"""
import copy
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
os.chdir(ROOT)
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


class Floor:
    def __init__(self, model):
        import torch
        self.model = copy.deepcopy(model)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=1e-9, fused=True)

    def decode(self, prompts, tokens, length):
        """Decode tokens (R, T) of length (R,); rollouts of one of the prompts are consecutive."""
        import torch
        from transformers import DynamicCache
        n, width = len(tokens) // len(prompts), max(map(len, prompts))
        ids = torch.tensor([[0] * (width - len(p)) + p for p in prompts])
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
        cache = DynamicCache(config=self.model.config)
        with torch.no_grad():
            self.model(input_ids=ids, attention_mask=mask,
                       position_ids=(mask.cumsum(1) - 1).clamp(min=0), past_key_values=cache,
                       logits_to_keep=1)
            cache.batch_repeat_interleave(n)
            mask = mask.repeat_interleave(n, 0)
            position, row = mask.sum(1, keepdim=True), torch.arange(len(tokens))
            for t in range(tokens.shape[1] - 1):
                alive = (length[row] > t + 1).nonzero()[:, 0]
                if len(alive) <= 0.75 * len(row):
                    cache.batch_select_indices(alive)
                    row, mask, position = row[alive], mask[alive], position[alive]
                mask = torch.cat([mask, mask.new_ones(len(mask), 1)], 1)
                self.model(input_ids=tokens[row, t, None], attention_mask=mask,
                           position_ids=position + t, past_key_values=cache, logits_to_keep=1)

    def update(self, sequences, prompt_lengths, micro_tokens):
        import torch
        order = sorted(range(len(sequences)), key=lambda i: -len(sequences[i]))
        while order:
            width = len(sequences[order[0]])
            rows = max(1, micro_tokens // width)
            part, order = order[:rows], order[rows:]
            ids = torch.tensor([sequences[i] + [0] * (width - len(sequences[i])) for i in part])
            keep = torch.tensor([[prompt_lengths[i] <= t < len(sequences[i])
                                  for t in range(1, width)] for i in part])
            hidden = self.model.base_model(input_ids=ids[:, :-1],
                                           use_cache=False).last_hidden_state[keep]
            logp = torch.log_softmax(self.model.get_output_embeddings()(hidden), -1)
            logp.gather(1, ids[:, 1:][keep][:, None]).mean().backward()
        self.opt.step()
        self.opt.zero_grad()


def main(n=32, steps=16):
    from core import engine, evaluation as shared
    import train_grpo
    last = {}
    whole, floors, logging, evaluation = [], [], [0.0], []
    generate, append, count_solved = engine.generate, train_grpo.append, shared.count_solved

    def generate_and_keep(model, tokenizer, prompts, *args):
        last.update(model=model, prompts=prompts,
                    rollouts=generate(model, tokenizer, prompts, *args))
        return last["rollouts"]

    def timed_evaluation(*args, **kwargs):
        start = time.perf_counter()
        out = count_solved(*args, **kwargs)
        evaluation.append(time.perf_counter() - start)
        return out

    def append_and_compare(file, record):
        start = time.perf_counter()
        append(file, record)
        end = time.perf_counter()
        logging[-1] += end - start
        # the time from here to the next record, such as for samples.jsonl, counts as the next step
        if record.get("type") == "step":
            whole.append(end - last.get("end", start))
            prompts, roll = last["prompts"], last["rollouts"]
            k = len(roll["tokens"]) // len(prompts)
            floor = last.setdefault("floor", Floor(last["model"]))
            both = zip(roll["tokens"].tolist(), roll["length"].tolist())
            sequences = [prompts[i // k] + row[:m] for i, (row, m) in enumerate(both)]
            start = time.perf_counter()
            floor.decode(prompts, roll["tokens"], roll["length"])
            floor.update(sequences, [len(prompts[i // k]) for i in range(len(sequences))], 2048)
            floors.append(time.perf_counter() - start)
            logging.append(0.0)
            last["end"] = time.perf_counter()

    engine.generate, train_grpo.append = generate_and_keep, append_and_compare
    shared.count_solved = timed_evaluation
    words = ["--B_p=32", f"--n={n}", f"--C={32 * n * steps}", "--kl_coef=0", "--entropy_coef=0",
             "--eval_every=1000000000", "--sample_every=1", "--save_every=0"]
    with tempfile.TemporaryDirectory() as out:
        train_grpo.main([*words, f"--out={out}/run"])
    whole, floors, logging = whole[2:], floors[2:], logging[2:len(whole)]  # the first two warm up
    step, floor = statistics.median(whole), statistics.median(floors)
    ratios = sorted(a / b for a, b in zip(whole, floors))
    print(f"B_p = 32, n = {n}, {len(whole)} updates: step {step:.3f} s, floor {floor:.3f} s, ratio "
          f"of medians {step / floor:.2f}, "
          f"pair by pair {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")
    print("logging, with four rollouts in samples.jsonl after every update: "
          f"{statistics.median(logging) / step:.2%} of a step")
    import config
    cfg = config.parse(words[:2])
    share = evaluation[0] / (evaluation[0] + step * cfg["eval_every"] / (32 * n))
    print(f"an evaluation of {cfg['samples']} rollouts a problem every "
          f"--eval_every={cfg['eval_every']} rollouts: {share:.0%} of the time")


if __name__ == "__main__":
    if "--help" in sys.argv:
        sys.exit(print(__doc__))
    main(*map(int, sys.argv[1:]))
