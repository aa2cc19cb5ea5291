"""What the longest rollouts cost: hours of a run by n, and difficulty by calls against one queue.

    python tests/bench/tail.py          # 10 seconds; simulated, nothing here comes from a GPU

A step of decoding reads the weights once and the cache of every rollout that is still going, so
it takes w + c (tokens in the cache) seconds, and the last few rollouts of an update cost as much a
step as hundreds. Lengths are lognormal with a few that run to max_new_tokens. Updates are counted
by their FLOPs. Not counted: prefill, rewards, evaluations, loading weights into the engine.
"""
import heapq
import random

# name: parameters, bytes of cache a token, GPUs of a run, mean length of a response
MODELS = {"Qwen2.5-7B": (7.6e9, 57344, 4, 650), "Qwen2.5-1.5B": (1.54e9, 28672, 1, 600)}
BANDWIDTH, FLOPS = 2.6e12, 400e12  # of a GPU: bytes/s that decoding gets; FLOP/s of an update
OVERHEAD = 2e-3                    # seconds of a step beside the reading of memory
PROMPT, LONGEST, CUT = 150, 8192, 0.005  # tokens; share of rollouts that run to the longest
SLOTS = 1024                       # rollouts at once, gen_batch


def lengths(count, mean, cut, rng):
    """Response lengths in tokens: lognormal of sigma 0.5, `cut` of them cut off."""
    body = [min(LONGEST, max(1, round(rng.lognormvariate(0, 0.5) * mean / 1.133)))
            for _ in range(count)]
    return [LONGEST if rng.random() < cut else length for length in body]


def decoding(queue, model):
    """Seconds until all rollouts of `queue` (lengths) are done, SLOTS at once, on one GPU."""
    parameters, per_token, _, _ = MODELS[model]
    w, c = OVERHEAD + 2 * parameters / BANDWIDTH, per_token / BANDWIDTH
    todo, live, step, cached, seconds = list(queue)[::-1], [], 0, 0, 0.0
    while todo or live:
        while todo and len(live) < SLOTS:
            length = todo.pop()
            heapq.heappush(live, (step + length, length))
            cached += PROMPT
        k, r = live[0][0] - step, len(live)  # k steps until the next rollout ends
        seconds += k * w + c * (cached * k + r * k * (k - 1) / 2)
        step, cached = step + k, cached + r * k
        while live and live[0][0] == step:
            cached -= PROMPT + heapq.heappop(live)[1]
    return seconds


def update(model, n, B_p, rng, draws=20):
    """(seconds of generation, of the update) of one update with B_p n rollouts."""
    parameters, _, gpus, mean = MODELS[model]
    # the slowest GPU
    total = sum(max(decoding(lengths(B_p * n // gpus, mean, CUT, rng), model) for _ in range(gpus))
                for _ in range(draws))
    # 8: forward, backward, and forward again for the activations
    return total / draws, 8 * parameters * B_p * n * (PROMPT + mean) / gpus / FLOPS


def main():
    rng, C, B_p = random.Random(0), 1_000_000, 32
    for model, (_, _, gpus, mean) in MODELS.items():
        print(f"\n{model} on {gpus} GPUs, B_p = {B_p}, C = 1M, {mean} tokens, {CUT:.1%} cut off")
        print("     n  update  generation  its share  hours of the run")
        rows = {n: update(model, n, B_p, rng) for n in (8, 32, 128, 512)}
        for n, (generation, train) in rows.items():
            hours = C // (B_p * n) * (generation + train) / 3600
            print(f"{n:6d} {generation + train:6.0f}s {generation:10.0f}s "
                  f"{generation / (generation + train):9.0%} {hours:12.1f} h")
    print("\ndifficulty, 16 rollouts of each problem on one GPU: hours for 6,784 problems")
    for model, (_, _, _, mean) in MODELS.items():
        for cut in (0.002, 0.01, 0.03):
            drawn = lengths(6784 * 16, mean, cut, rng)
            calls = sum(decoding(drawn[i:i + SLOTS], model) for i in range(0, len(drawn), SLOTS))
            one = decoding(drawn, model)
            print(f"  {model:13s} {cut:.1%} cut off: {calls / 3600:.2f} in calls of 64 problems, "
                  f"{one / 3600:.2f} in one queue, {calls / one:.1f} times")


if __name__ == "__main__":
    main()
