"""The calls that VLLMEngine makes to vLLM on a GPU, recorded by a stand-in for vLLM's LLM."""
import functools
import random
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from types import SimpleNamespace

import pytest
import torch

from core import engine
import sample
import verifier
from config import BadInput, parse

vllm = pytest.importorskip("vllm")


class StandIn:
    """The part of vLLM's LLM that VLLMEngine uses. At most `slots` rollouts get a token per step.

    lengths: the length of a rollout by its seed. calls: all calls in order. busy: the number of
    rollouts decoding at each step."""

    def __init__(self, *_, lengths=lambda seed: 3, slots=8, **settings):
        self.settings, self.lengths, self.slots = settings, lengths, slots
        self.calls, self.busy, self.waiting, self.live, self.made = [], [], [], [], 0
        self.llm_engine, self.model_config = self, self
        self.weights = dict(a=torch.zeros(2), b=torch.zeros(2))

    def try_get_generation_config(self):
        return dict(eos_token_id=1)

    def enqueue(self, prompt, params, use_tqdm):
        request = SimpleNamespace(request_id=str(self.made), finished=False, outputs=[
            SimpleNamespace(token_ids=[], left=self.lengths(params.seed + i), finish_reason="stop",
                            logprobs=SimpleNamespace(logprobs=[]), seed=params.seed + i)
            for i in range(params.n)])
        self.waiting += [(request, out) for out in request.outputs]
        self.made += 1
        return [f"{request.request_id}-0123abcd"]

    def get_num_unfinished_requests(self):
        return len(self.waiting) + len(self.live)

    def step(self):
        room = self.slots - len(self.live)
        self.live, self.waiting = self.live + self.waiting[:room], self.waiting[room:]
        self.busy.append(len(self.live))
        touched = []
        for request, out in self.live:
            out.token_ids.append(2 + out.seed % 50)
            out.logprobs.logprobs.append(-1.0)
            out.left -= 1
            if all(o.left <= 0 for o in request.outputs):
                request.finished = True
            touched.append(request)
        self.live = [(request, out) for request, out in self.live if out.left > 0]
        return list({id(request): request for request in touched}.values())

    def abort_request(self, names):
        self.calls += [("abort", name) for name in names]
        for part in (self.waiting, self.live):
            part[:] = [(r, out) for r, out in part if r.request_id not in names]

    def sleep(self, level):
        self.calls.append(("sleep", level))

    def wake_up(self, tags):
        self.calls.append(("wake", *tags))

    def apply_model(self, function):
        return [function(self)]

    def named_parameters(self):
        return list(self.weights.items())

    def load_weights(self, pairs):
        self.calls.append(("weights", *(name for name, _ in pairs)))
        return set(self.calls[-1][1:])

    def reset_prefix_cache(self):
        self.calls.append(("reset",))
        return True


@pytest.fixture
def opened(monkeypatch):
    """Return opened(alone, lengths, **config), which returns a VLLMEngine that uses StandIn and the
    settings of a GPU. alone: False if a trainer uses the same GPU."""
    import vllm.platforms
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (80 * 10**9, 80 * 10**9))
    tokenizer = SimpleNamespace(pad_token_id=0, eos_token_id=1, chat_template=None,
                                all_special_ids=[1], added_tokens_encoder={},
                                added_tokens_decoder={},
                                batch_decode=lambda ids: [str(row) for row in ids])

    def make(alone, lengths=lambda seed: 3, **changes):
        monkeypatch.setattr(vllm, "LLM", functools.partial(StandIn, lengths=lengths))
        monkeypatch.setattr(type(vllm.platforms.current_platform), "is_cpu", lambda self: False)
        cfg = dict(parse(["--engine=vllm", "--gen_batch=8", "--max_new_tokens=100"]), **changes)
        return engine.VLLMEngine("somewhere", tokenizer, cfg, awake=alone)
    return make


def test_the_settings_of_a_gpu(opened, monkeypatch):
    """Next to a trainer, vLLM takes the share gpu_memory and frees it during an update. Without a
    trainer, vLLM takes 0.9 of the GPU, or what is free."""
    beside, alone = opened(False, gpu_memory=0.43).llm.settings, opened(True).llm.settings
    assert beside["gpu_memory_utilization"] == 0.43 and beside["enable_sleep_mode"]
    assert alone["gpu_memory_utilization"] == 0.9 and not alone["enable_sleep_mode"]
    assert beside["dtype"] == "bfloat16" and beside["logprobs_mode"] == "processed_logprobs"
    assert opened(True, gpu_memory=0.3).llm.settings["gpu_memory_utilization"] == 0.3
    # if a desktop uses part of a 24 GB card, vLLM must not take more than is free
    for free, share in ((20.3e9, 0.83), (23.9e9, 0.9), (0.5e9, 0.01)):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (int(free), int(24e9)))
        given = opened(True).llm.settings["gpu_memory_utilization"]
        assert given == share and given * 24e9 < free
    assert opened(True).can_sleep is False


@pytest.mark.parametrize("ranks, of_trainer, load", [(1, True, "auto"), (4, True, "dummy"),
                                                     (1, False, "auto"), (4, False, "auto")])
def test_only_the_trainer_shares_the_gpu_with_the_engine(monkeypatch, tiny, ranks, of_trainer,
                                                         load):
    """sample.py and evaluate.py give a path, train_grpo.py gives its model. On several ranks the
    engine of a trainer reads no checkpoint, because it gets the run's weights before it generates.
    """
    asked = []
    monkeypatch.setattr(engine, "VLLMEngine", lambda *words: asked.append(words[3:]))
    monkeypatch.setattr(engine, "WORLD", ranks)
    model = engine.load_model(tiny.model) if of_trainer else (None, None)
    engine.open_engine("vllm", str(tiny.model), parse(tiny.words), "cpu", *model)
    assert asked == [(load, not of_trainer)]
    engine.open_engine("vllm", str(tiny.model), parse(tiny.words), "cpu", *model, awake=True)
    assert asked[1:] == [(load, True)]


def test_the_order_around_an_update(opened):
    """vLLM wakes its weights, loads new ones, wakes its cache and drops the cached prefixes. Sleep
    level 2 copies nothing to the host."""
    made = opened(False)
    made.generate([[5]], 2, [0])
    made.sleep()
    made.load(iter([("a", torch.ones(2)), ("b", torch.ones(2))]))
    assert made.llm.calls == [("sleep", 2), ("wake", "weights"), ("weights", "a", "b"),
                              ("wake", "kv_cache"), ("reset",)]
    made.llm.calls.clear()
    made.load(iter([("a", torch.ones(2)), ("b", torch.ones(2))]))  # already awake
    assert made.llm.calls == [("weights", "a", "b"), ("reset",)]
    with pytest.raises(AssertionError, match="b"):
        made.load(iter([("a", torch.ones(2))]))


def long_tail(seed):
    """Return the length of a rollout: 3 tokens, or 100 for one seed in twenty."""
    return 100 if random.Random(seed).random() < 0.05 else 3


def test_one_queue_keeps_the_engine_busy(opened):
    """64 prompts with two rollouts each, eight rollouts at a time. Separate calls for eight
    rollouts wait for the longest of each eight. One queue waits only for the longest of all."""
    prompts, seeds = [[5 + j % 7] for j in range(64)], [1000 * j for j in range(64)]
    made = opened(True, long_tail)
    whole = made.generate(prompts, 2, seeds)
    steps = len(made.llm.busy)
    again = opened(True, long_tail)
    calls = [again.generate(prompts[i:i + 4], 2, seeds[i:i + 4]) for i in range(0, 64, 4)]
    assert len(again.llm.busy) > 2 * steps
    work = sum(made.llm.busy)
    assert steps <= work / 8 + 100  # slots are empty only during the last long rollouts
    assert torch.equal(whole["length"], torch.cat([part["length"] for part in calls]))
    # `stream` yields the same rollouts, in the order in which they end
    streamed = list(opened(True, long_tail).stream(prompts, 2, seeds))
    order = [j for js, _ in streamed for j in js]
    assert sorted(order) == list(range(64)) != order
    for (j,), part in streamed:
        rows = slice(2 * j, 2 * j + 2)
        assert torch.equal(part["length"], whole["length"][rows])
        assert torch.equal(part["tokens"], whole["tokens"][rows, :part["tokens"].shape[1]])


def test_the_queue_holds_no_more_than_it_needs(opened):
    made, most = opened(True), []
    for _ in made.stream([[5]] * 400, 2, range(400)):
        most.append(made.llm.get_num_unfinished_requests())
    assert max(most) <= 2 * 8 + 1 and min(most[:300]) >= 8


def test_difficulty_is_written_as_problems_end(opened, tmp_path, monkeypatch):
    """A measurement is killed during its longest rollouts. Problems that were graded are in the
    file. The next start draws only the others, and gets the counts of a run without a kill."""
    monkeypatch.setitem(verifier.REWARDS, "even", lambda problem, text, cfg: float(len(text) % 2))
    problems = [dict(id=str(j), prompt=str(j), answer="1") for j in range(40)]
    prompts = [[5 + j] for j in range(40)]

    def measure(folder, lengths, **changes):
        made = opened(True, lengths, s=4, s_zero=0, verifier="even", model="somewhere", **changes)
        cfg = made.cfg | dict(shard="")
        counts, _ = sample.measure(problems, prompts, lambda: made, cfg, folder)
        return counts, made.llm
    want, llm = measure(tmp_path / "whole", long_tail)
    assert llm.made == 40 and len({c[4] for c in want.values()}) > 1
    steps = len(llm.busy)

    class Killed(Exception):
        pass

    def step(self, real=StandIn.step):
        if len(self.busy) == steps - 41:
            raise Killed
        return real(self)

    class Synchronous(ThreadPoolExecutor):  # so that each answer is graded before the kill
        def submit(self, *call):
            wait([job := super().submit(*call)])
            return job
    with monkeypatch.context() as patch:
        patch.setattr(StandIn, "step", step)
        patch.setattr("concurrent.futures.ThreadPoolExecutor", Synchronous)
        with pytest.raises(Killed):
            measure(tmp_path / "killed", long_tail)
    there = (tmp_path / "killed/pass_rates.jsonl").read_text().count('"correct"')
    assert 0 < there < 40
    got, llm = measure(tmp_path / "killed", long_tail)
    assert got == want and llm.made == 40 - there


def test_a_stop_leaves_nothing_in_the_engine(opened):
    """After SIGTERM the engine finishes its step, aborts all requests and raises Stopped."""
    made = opened(False, lambda seed: 100)
    asked, step = [], StandIn.step

    def third(self):
        if len(self.busy) == 3:
            asked.append(True)
        return step(self)
    made.llm.step = third.__get__(made.llm)
    made.quit = asked
    with pytest.raises(engine.Stopped):
        made.generate([[5], [6]], 2, [0, 10])
    assert len(made.llm.busy) == 4 and made.llm.calls == [("abort", "0"), ("abort", "1")]
    assert not made.llm.get_num_unfinished_requests()
    asked.clear()
    assert made.generate([[5]], 2, [0])["length"].tolist() == [100, 100]


@pytest.mark.parametrize("terminal", [False, True])
def test_the_whole_error_of_vllm(opened, monkeypatch, capfd, terminal):
    """If stderr is a file (a run's out.txt), it gets the traceback. A terminal gets one line."""
    def broken(*_, **__):
        try:
            raise RuntimeError("no kernel image is available")
        except RuntimeError as e:
            raise ValueError("vLLM gives up.\nSee root cause above.") from e
    made = opened(False)
    monkeypatch.setattr(vllm, "LLM", broken)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    with pytest.raises(BadInput, match="vLLM cannot load it .vLLM gives up") as told:
        engine.VLLMEngine("somewhere", made.tokenizer, made.cfg)
    assert "\n" not in str(told.value)
    said = capfd.readouterr().err
    assert ("no kernel image is available" in said and "in broken" in said) == (not terminal)
