r"""results/replicas.py: train all seeds and learning rates of a cell (B_p, n) as one batched model.

    python results/replicas.py --recipe=hard --model=data/arithmetic/base --bps=16 --ns="4 64" \
        --lrs="1e-4 2e-4 4e-4" --seeds="0 1 2 3" --C=262144 --D=200 --runs=runs/hard
    python frontier.py --recipe=hard --model=data/arithmetic/base --runs=runs/hard

A kernel of a tiny model takes longer to start than to run. So every tensor has a leading axis of S
replicas, which differ in seed, lr_base and problems, and on a GPU an update is one CUDA graph.

Keys, logs and update are those of train_grpo.py with algo=grpo and updates=1; random numbers are
others. A step record is the mean since the last evaluation. The model must be an embedded one: a
Llama with tied embeddings, answers after the last '#'. A cell whose logs exist is not run again.
"""
import itertools
import json
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from config import BadInput, check_run, derive, entry, files, lrs_of, parse, values_of
from core.problems import read_problems, set_hash, subset
from train_grpo import advantages, batch_indices, kl_term, mixed_groups
import torch
import torch.nn.functional as F

PAD, EOS = 0, 1
ROWS = 16384  # rollouts whose loss is computed at a time, over all replicas
# the parameters of a layer in the order of the flat vector; names with + are stacked
LAYER = ("self_attn.q_proj+self_attn.k_proj+self_attn.v_proj self_attn.o_proj "
         "mlp.gate_proj+mlp.up_proj mlp.down_proj input_layernorm post_attention_layernorm").split()


class Text:
    """The tokenizer of the embedded models, and a hash of the text after the last '#'."""
    P = 1_000_003  # the hash of a text is a polynomial of its characters in P, modulo 2^64
    def __init__(self, folder, device):
        from tokenizers import Tokenizer
        self.tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
        vocab = self.tokenizer.get_vocab()
        self.mul = torch.ones(len(vocab), dtype=torch.long, device=device)
        self.add, self.mark = torch.zeros_like(self.mul), vocab["#"]
        for token, i in vocab.items():
            if i not in (PAD, EOS):
                self.mul[i], self.add[i] = self.P ** len(token), self.hash_of(token)

    def hash_of(self, text):
        h = 0
        for c in text:
            h = (h * self.P + ord(c) + (1 << 63)) % (1 << 64) - (1 << 63)
        return h

    def rewards(self, tokens, length, answer):
        """Grade responses, tokens (..., T) and length (...), by answer hashes (...) -> 0 or 1."""
        h, marked = torch.zeros_like(answer), torch.zeros_like(answer, dtype=torch.bool)
        for t, token in enumerate(tokens.unbind(-1)):
            on, is_mark = (t < length) & (token != EOS), token == self.mark
            h = torch.where(on, torch.where(is_mark, 0, h * self.mul[token] + self.add[token]), h)
            marked = marked | (on & is_mark)
        return (marked & (h == answer)).float()


class Model:
    """A Llama whose parameters are one tensor (S, P), a row for each replica."""
    def __init__(self, folder, device):
        from safetensors.torch import load_file
        c = json.loads((Path(folder) / "config.json").read_text())
        self.d, self.H, self.hd = c["hidden_size"], c["num_attention_heads"], c["head_dim"]
        self.layers, self.eps = c["num_hidden_layers"], c["rms_norm_eps"]
        w = load_file(str(Path(folder) / "model.safetensors"))
        parts = [w["model.embed_tokens.weight"], w["model.norm.weight"]]
        parts += [torch.cat([w[f"model.layers.{i}.{x}.weight"] for x in name.split("+")])
                  for i in range(self.layers) for name in LAYER]
        self.shapes, self.sizes = [x.shape for x in parts], [x.numel() for x in parts]
        self.base = torch.cat([x.float().flatten() for x in parts]).to(device)
        theta = 1 / 10000 ** (torch.arange(0, self.hd, 2).float() / self.hd)
        angle = torch.arange(c["max_position_embeddings"]).float()[:, None] * theta
        self.cos, self.sin = (f(angle).repeat(1, 2).to(device) for f in (torch.cos, torch.sin))

    def weights(self, theta):
        return [x.view(-1, *s) for x, s in zip(theta.split(self.sizes, 1), self.shapes)]

    def rope(self, x, position):
        """Rotate x (S, N, H, hd) by positions (S, N)."""
        (a, b), cos, sin = x.chunk(2, -1), self.cos[position], self.sin[position]
        return x * cos[..., None, :] + torch.cat([-b, a], -1) * sin[..., None, :]

    def run(self, w, token, position, attend):
        """Return the last hidden states (S, N, d) of tokens (S, N). attend(layer, q, k, v) is the
        attention, from three (S, N, H, hd) to (S, N, H hd)."""
        def norm(x, gain):
            return F.rms_norm(x, (self.d,), eps=self.eps) * gain[:, None, :]
        x = F.one_hot(token, w[0].shape[1]).to(w[0].dtype) @ w[0]
        for i in range(self.layers):
            qkv, o, gate_up, down, g1, g2 = w[2 + 6 * i: 8 + 6 * i]
            q, k, v = (norm(x, g1) @ qkv.mT).view(*token.shape, 3, self.H, self.hd).unbind(2)
            x = x + attend(i, self.rope(q, position), self.rope(k, position), v) @ o.mT
            gate, up = (norm(x, g2) @ gate_up.mT).chunk(2, -1)
            x = x + (F.silu(gate) * up) @ down.mT
        return norm(x, w[1])

    def causal(self, w, ids):
        """Return hidden states (S, R, L, d) of ids (S, R, L), and each layer's (keys, values)."""
        (S, R, L), cache = ids.shape, []
        position = torch.arange(L, device=ids.device).expand(S, R, L).reshape(S, R * L)

        def attend(i, q, k, v):
            q, k, v = (x.reshape(S * R, L, self.H, self.hd).transpose(1, 2) for x in (q, k, v))
            cache.append((k, v))
            x = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return x.transpose(1, 2).reshape(S, R * L, -1)
        return self.run(w, ids.reshape(S, R * L), position, attend).view(S, R, L, self.d), cache


@torch.no_grad()
def generate(model, theta, ids, plen, n, T, temperature):
    """Sample n responses of up to T tokens for each prompt: ids (S, B, L), padded, of plen (S, B).

    Return tokens (S, B n, T) and lengths (S, B n), EOS included; on a CPU, T is the longest length.
    """
    w, device = model.weights(theta), ids.device
    S, R, L = len(ids), ids.shape[1] * n, ids.shape[2]
    hidden, cache = model.causal(w, ids)
    cache = [[F.pad(x, (0, 0, 0, T)).view(S, -1, model.H, L + T, model.hd).repeat_interleave(n, 1)
              .flatten(0, 1) for x in kv] for kv in cache]
    at = (plen - 1)[..., None, None].expand(-1, -1, 1, model.d)
    last = hidden.gather(2, at)[:, :, 0].repeat_interleave(n, 1)
    start, columns = plen.repeat_interleave(n, 1), torch.arange(L + T, device=device)
    row = torch.arange(S * R, device=device)
    tokens = torch.full((T, S, R), PAD, device=device)
    alive = torch.ones(S, R, dtype=torch.bool, device=device)
    length = torch.zeros(S, R, dtype=torch.long, device=device)
    for t in range(T):
        # the argmax of log-probs plus Gumbel noise is a sample of the softmax
        noise = torch.empty(S, R, w[0].shape[1], device=device).exponential_().log()
        token = (last @ w[0].mT / temperature - noise).argmax(-1)
        tokens[t] = torch.where(alive, token, PAD)
        length += alive
        alive = alive & (token != EOS)
        if t == T - 1 or device.type == "cpu" and not alive.any():
            break
        flat = (start + t).flatten()
        later = (columns > flat[:, None])[:, None, None]  # (S R, 1, 1, L + T)

        def attend(i, q, k, v):
            K, V = cache[i]
            K[row, :, flat] = k.reshape(S * R, model.H, model.hd)
            V[row, :, flat] = v.reshape(S * R, model.H, model.hd)
            scores = q.reshape(S * R, model.H, 1, model.hd) @ K.mT / model.hd ** 0.5
            return (scores.masked_fill(later, -1e30).softmax(-1) @ V).reshape(S, R, -1)
        last = model.run(w, tokens[t], start + t, attend)
    return tokens[:t + 1].permute(1, 2, 0).contiguous(), length


class Replicas:
    """S runs of one cell, one for each (seed, lr_base)."""
    def __init__(self, cfg, seeds, lrs, device):
        self.cfg, self.device = cfg, torch.device(device)
        self.runs = [dict(cfg, seed=seed, lr_base=lr) for seed in seeds for lr in lrs]
        self.model, self.text = Model(cfg["model"], device), Text(cfg["model"], device)
        S, self.derived = len(self.runs), derive(cfg)
        self.theta = self.model.base.expand(S, -1).clone().requires_grad_()
        self.m, self.v = torch.zeros_like(self.theta), torch.zeros_like(self.theta)
        self.step = torch.zeros((), dtype=torch.long, device=device)
        self.lr = torch.tensor([[derive(run)["lr"]] for run in self.runs], device=device)
        self.train = self.encode(read_problems(cfg["train_set"]))
        paths = files(cfg["val_set"])
        self.sets = {name: self.encode(read_problems(path)) for name, path in
                     zip(["val", *(Path(path).stem for path in paths[1:])], paths)}
        N, M = len(self.train["problems"]), self.derived["M"]
        self.subset = torch.tensor([subset(range(N), cfg["D"] or N, run["seed"])
                                    for run in self.runs])  # (S, D)
        visits = torch.tensor([[batch_indices(m, cfg["B_p"], self.subset.shape[1], run["seed"])
                                for run in self.runs] for m in range(1, M + 1)])  # (M, S, B_p)
        self.order = self.subset.expand(M, -1, -1).gather(2, visits).to(device)
        self.stats = torch.zeros(5, S, device=device)
        self.tokens = torch.zeros(S, dtype=torch.long, device=device)

    def encode(self, problems):
        """Return dict(problems, ids (P, L), plen (P,), answer (P,): hashes)."""
        prompts = [self.text.tokenizer.encode(p["prompt"]).ids for p in problems]
        ids = torch.zeros(len(prompts), max(map(len, prompts)), dtype=torch.long)
        for i, prompt in enumerate(prompts):
            ids[i, :len(prompt)] = torch.tensor(prompt)
        data = dict(ids=ids, plen=torch.tensor([len(prompt) for prompt in prompts]),
                    answer=torch.tensor([self.text.hash_of(p["answer"].strip()) for p in problems]))
        return {k: x.to(self.device) for k, x in data.items()} | dict(problems=problems)

    def rollouts(self, data, pick, n):
        """Return tokens (S, B n, T), lengths and rewards (S, B n) for problems pick (S, B)."""
        ids, plen, answer = (data[key][pick] for key in ("ids", "plen", "answer"))
        tokens, length = generate(self.model, self.theta.detach(), ids, plen, n,
                                  self.cfg["max_new_tokens"], self.cfg["temperature"])
        return tokens, length, self.text.rewards(tokens, length, answer.repeat_interleave(n, 1))

    def logps(self, theta, ids, plen, tokens):
        """Return log-probs and entropies (S, R, T) of the tokens of each response."""
        w, (S, R, T) = self.model.weights(theta), tokens.shape
        at = (plen - 1)[..., None] + torch.arange(T, device=self.device)
        at = at[..., None].expand(S, R, T, self.model.d)
        hidden = self.model.causal(w, ids)[0].gather(2, at).flatten(1, 2)
        logp = torch.log_softmax(hidden @ w[0].mT / self.cfg["temperature"], -1).view(S, R, T, -1)
        return logp.gather(-1, tokens[..., None])[..., 0], -(logp.exp() * logp).sum(-1)

    def update(self):
        """Make one update of all replicas, with the next problems of each."""
        pick = self.order.index_select(0, self.step[None])[0]  # (S, B_p)
        self.learn(pick, *self.rollouts(self.train, pick, self.cfg["n"]))

    def learn(self, pick, tokens, length, reward):
        """Update the weights with the rollouts of `rollouts`."""
        cfg, (S, R, T) = self.cfg, tokens.shape
        n, t = cfg["n"], torch.arange(T, device=self.device)
        A = advantages(reward.view(-1, n)).view(S, R, 1)
        mixed = mixed_groups(reward.view(-1, n)).view(S, -1, 1)
        use = torch.arange(n, device=self.device) < (cfg["n_train"] or n)
        inside = (t < length[..., None]).float()  # (S, R, T)
        keep = (mixed | (cfg["zero_var_filter"] not in ("all", term)) for term in ("policy", "reg"))
        in_policy, in_reg = (inside * (use & kept).view(S, R, 1) for kept in keep)
        N_policy, N_reg = (x.sum((1, 2)).clamp(min=1) for x in (in_policy, in_reg))
        plen, prompts = (self.train[k][pick].repeat_interleave(n, 1) for k in ("plen", "ids"))
        ids = F.pad(prompts, (0, T)).scatter(2, plen[..., None] + t, tokens)
        grad, kl_sum = torch.zeros_like(self.theta), torch.zeros(S, device=self.device)
        entropy_sum, size = torch.zeros_like(kl_sum), max(1, ROWS // S)
        for c in (slice(a, a + size) for a in range(0, R, size)):
            rows = ids[:, c, :-1], plen[:, c], tokens[:, c]
            logp, entropy = self.logps(self.theta, *rows)
            loss = -(A[:, c] * logp * in_policy[:, c]).sum((1, 2)) / N_policy
            if cfg["kl_coef"]:
                with torch.no_grad():
                    ref, _ = self.logps(self.model.base.expand(S, -1), *rows)
                kl = (kl_term(cfg["kl_type"], logp, ref) * in_reg[:, c]).sum((1, 2)) / N_reg
                loss, kl_sum = loss + cfg["kl_coef"] * kl, kl_sum + kl.detach()
            entropy = (entropy * in_reg[:, c]).sum((1, 2)) / N_reg
            loss = loss - cfg["entropy_coef"] * entropy
            entropy_sum = entropy_sum + entropy.detach()
            grad += torch.autograd.grad(loss.sum(), self.theta)[0]
        self.tokens += length.sum(1)
        self.stats += torch.stack([reward.mean(1), length.float().mean(1), self.adamw(grad),
                                   entropy_sum, kl_sum])

    @torch.no_grad()
    def adamw(self, grad):
        """Clip the gradient of each replica and make a step of AdamW; return the norms (S,)."""
        cfg, norm, theta = self.cfg, grad.norm(dim=1, keepdim=True), self.theta.data
        if cfg["grad_clip"]:
            grad = grad * (cfg["grad_clip"] / (norm + 1e-6)).clamp(max=1)
        k = self.step.add_(1).float()
        lr = self.lr * (k / max(cfg["warmup"], 1)).clamp(max=1)
        self.m.lerp_(grad, 0.1)
        self.v.mul_(0.999).addcmul_(grad, grad, value=0.001)
        theta.mul_(1 - lr * cfg["weight_decay"])
        theta.sub_(lr * (self.m / (1 - 0.9 ** k)) / ((self.v / (1 - 0.999 ** k)).sqrt() + 1e-8))
        return norm[:, 0]

    def count_solved(self, data, pick, samples):
        """Return how many of `samples` rollouts solve each problem of pick (S, P), as (S, P)."""
        parts = pick.to(self.device).split(max(1, 4 * ROWS // (len(pick) * samples)), 1)
        rewards = torch.cat([self.rollouts(data, part, samples)[2] for part in parts], 1)
        return rewards.view(*pick.shape, samples).sum(2).long().tolist()

    def records(self, step, since):
        """Return the records of each replica after `since` more updates: the mean step, the
        evaluations and, at both ends, pass@1 of the training problems."""
        cfg, out, B = self.cfg, [[] for _ in self.runs], self.derived["B"]
        at = [dict(step=step, rollouts=step * B, tokens=x) for x in self.tokens.tolist()]
        fields = "reward", "response_len", "grad_norm", "entropy", "kl"
        for s, mean in enumerate((self.stats.T / since).tolist() if since else ()):
            out[s].append(dict(type="step", **at[s], **dict(zip(fields, mean))))
        for name, data in self.sets.items():
            every = torch.arange(len(data["problems"])).expand(len(out), -1)
            for s, correct in enumerate(self.count_solved(data, every, cfg["samples"])):
                out[s].append(dict(type="eval", **at[s], set=name, k=cfg["k"], correct=correct,
                                   samples=cfg["samples"], set_hash=set_hash(data["problems"])))
        if step in (0, self.derived["M"]):
            for s, correct in enumerate(self.count_solved(self.train, self.subset, cfg["s"])):
                out[s].append(dict(type="train_pass", **at[s], fresh=True, correct=correct,
                                   samples=[cfg["s"]] * len(correct)))
        self.stats.zero_()
        return out

    def capture(self):
        """Return a function that makes one update: a CUDA graph on a GPU, else `update`."""
        if self.device.type != "cuda":
            return self.update
        state = self.theta.data, self.m, self.v, self.step, self.stats, self.tokens
        before, stream = [x.clone() for x in state], torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # PyTorch asks for an update before the capture
            self.update()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.update()
        for x, y in zip(state, before):
            x.copy_(y)
        return graph.replay

    def run(self):
        """Train to the budget; return the records of each replica and the seconds it took."""
        start, M, last = time.time(), self.derived["M"], 0
        every = max(1, (self.cfg["eval_every"] or self.cfg["C"]) // self.derived["B"])
        records, update = self.records(0, 0), self.capture()
        for step in range(1, M + 1):
            update()
            if step % every == 0 or step == M:
                records = [old + new for old, new in zip(records, self.records(step, step - last))]
                last = step
        return records, time.time() - start

    def write(self, records, folder):
        """Write the log of each replica into its run's folder."""
        for run, own, chosen in zip(self.runs, records, self.subset):
            problems = [self.train["problems"][i] for i in chosen]
            head = dict(type="header", schema=1, config=run, derived=derive(run),
                        device=str(self.device), source="results/replicas.py",
                        train_set_hash=set_hash(problems))
            end = dict(type="end", status="budget", rollouts=self.derived["M"] * self.derived["B"])
            path = folder / derive(run)["run"] / "log.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(json.dumps(r) + "\n" for r in (head, *own, end)))


def main(argv):
    cfg = parse(argv, __doc__)
    for key, only in dict(algo="grpo", updates=1, lora_rank=0, top_p=1, verifier="exact").items():
        if cfg[key] != only:
            raise BadInput(f"--{key}={cfg[key]}: replicas have only --{key}={only}")
    device = cfg["device"].replace("auto", "cuda" if torch.cuda.is_available() else "cpu")
    torch.set_num_threads(cfg["threads"] or 1)
    torch.backends.cuda.matmul.allow_tf32 = True
    seeds, folder = values_of(cfg, "seeds"), Path(cfg["runs"])
    for B_p, n in itertools.product(values_of(cfg, "bps"), values_of(cfg, "ns")):
        check_run(dict(cfg, B_p=B_p, n=n))
        cell = Replicas(dict(cfg, B_p=B_p, n=n), seeds, lrs_of(cfg), device)
        name = f"B_p = {B_p}, n = {n}, {len(cell.runs)} runs"
        if all((folder / derive(run)["run"] / "log.jsonl").exists() for run in cell.runs):
            print(f"{name}: done before", flush=True)
            continue
        torch.manual_seed(1000 * n + B_p + 10 ** 6 * seeds[0])
        records, seconds = cell.run()
        cell.write(records, folder)
        speed = len(cell.runs) * cell.derived["M"] * cell.derived["B"] / seconds
        print(f"{name}: {seconds:.0f} s, {speed:.0f} rollouts per second", flush=True)


if __name__ == "__main__":
    entry(main)
