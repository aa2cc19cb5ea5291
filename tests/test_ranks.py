"""Compare two and four gloo ranks on a CPU with one, through the FSDP2 code of a GPU node."""
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from conftest import Hold, PATIENCE, ROOT, capture, run_script, step_is, warm_python
from safetensors.torch import load_file
from test_models import tiny_model

from core import models
from core.log import read_log

TWO, FOUR = (["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}", "--"]
             for ranks in (2, 4))


def torchrun(script, *words, cwd=ROOT, ranks=TWO):
    """Run all ranks to their end and assert that they succeed. If gloo dies in native code, as
    torchrun then says, or cannot connect (about once in a thousand starts), the same command runs
    again, from the checkpoint, with a warning."""
    for _ in range(3):
        line = [warm_python(), *ranks, str(ROOT / script), *map(str, words)]
        done = capture(line, cwd, env=os.environ | dict(PYTHON_EXEC=warm_python()))
        if not done.returncode or not re.search("SIGSEGV|SIGABRT|connectFullMesh", done.stderr):
            break
        warnings.warn(done.stderr[-9000:], stacklevel=2)
    assert done.returncode == 0, done.stderr[-9000:]
    return done


@pytest.fixture(scope="module")
def updates(tiny, tmp_path_factory):
    """Return {ranks: what tests/ranks.py saves}: changes of the weights, and the log's fields."""
    folder, rng = tmp_path_factory.mktemp("updates"), random.Random(7)
    prompts = [[rng.randrange(2, 52) for _ in range(k)] for k in (3, 9, 5, 7)]
    lengths = [8, 1, 4, 2, 6, 1, 3, 6, 5, 1, 2, 8, 4, 6, 1, 7]
    rollouts = dict(tokens=[[rng.randrange(2, 52) for _ in range(8)] for _ in lengths],
                    logps=[[-rng.uniform(1, 6) for _ in range(8)] for _ in lengths],
                    length=lengths, stopped=[True] * 16)
    # the groups of equal rewards are all on rank 1
    rewards = [[1.0, 0.0, 0.0, 1.0], [0.0] * 4, [0.0, 1.0, 0.0, 0.0], [1.0] * 4]
    (folder / "batch.json").write_text(json.dumps(dict(prompts=prompts, rollouts=rollouts,
                                                       rewards=rewards)))
    words = [str(tiny.model), folder / "batch.json"]
    run_script("tests/ranks.py", *words, folder / "1.safetensors", check=True)
    torchrun("tests/ranks.py", *words, folder / "2.safetensors")
    torchrun("tests/ranks.py", *words, folder / "4.safetensors", ranks=FOUR)
    return {ranks: load_file(folder / f"{ranks}.safetensors") for ranks in (1, 2, 4)}


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("case", ["hard", "few", "grpo", "n_train", "cispo", "ppo", "packed"])
def test_ranks_give_the_gradients_of_one(updates, case, ranks):
    """The weights change by the same vector, to 1e-4 of its norm, and the record's fields agree.
    Rounding of the weights is 3e-6 of the norm, and one lost token is 1e-2 or more."""
    one, many = [{name: x for name, x in updates[k].items() if name.startswith(f"{case}.")}
                 for k in (1, ranks)]
    assert set(one) == set(many) and len(one) == (3 if case in ("ppo", "packed") else 2)
    fields = f"{case}.fields"
    assert torch.allclose(one.pop(fields), many.pop(fields), rtol=1e-4, atol=1e-6)
    for name, change in one.items():
        assert change.norm() > 0.01 and (many[name] - change).norm() <= 1e-4 * change.norm()


WORDS = ["--B_p=4", "--n=4", "--C=240", "--eval_every=80", "--save_every=48", "--lr_base=2e-3",
         "--algo=ppo", "--critic_lr=1e-3", "--updates=2", "--device=cpu", "--out=run"]


def on_one(tiny, folder, *words):
    """Train on one rank in a folder; return what it prints on stderr."""
    return run_script("train_grpo.py", *tiny.words, *WORDS, *words, cwd=folder, check=True).stderr


@pytest.fixture(scope="module")
def alone(tiny, tmp_path_factory):
    """Return the folder of a run of 15 updates on one rank."""
    folder = tmp_path_factory.mktemp("alone")
    on_one(tiny, folder)
    return folder / "run"


def same_training(a, b, below=math.inf):
    """Assert that all records of two runs, or those of fewer than `below` rollouts, agree, except
    for last bits of sums."""
    for one, two in zip(*[[r for r in read_log(run / "log.jsonl")
                           if r["type"] != "header" and r["rollouts"] < below]
                          for run in (a, b)], strict=True):
        for key in set(one) - {"wall_s", "gen_s", "train_s"}:
            assert two[key] == (pytest.approx(one[key], rel=2e-3, abs=1e-4)
                                if isinstance(one[key], float) else one[key]), (key, one, two)


def two_ranks(folder, *words, updates):
    """Start a run on two ranks, which waits after some updates. Return (its torchrun, the wait)."""
    hold = Hold(folder / "hold", step_is(updates))
    child = subprocess.Popen([sys.executable, *TWO, str(ROOT / "train_grpo.py"), *words],
                             cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             text=True,
                             env=os.environ | hold.env | dict(PYTHON_EXEC=warm_python()))
    hold.wait(1, child)
    return child, hold


@pytest.mark.once
def test_two_ranks_stop_one_continues_and_two_finish(tiny, alone, tmp_path):
    """Stop one of two ranks: the other stops at the same update. Then train on one and on two."""
    child, hold = two_ranks(tmp_path, *tiny.words, *WORDS, updates=5)
    os.kill(ranks_of(child)[1], signal.SIGTERM)
    hold.release()
    output, _ = child.communicate(timeout=PATIENCE)
    last = read_log(tmp_path / "run/log.jsonl")[-1]
    assert last["type"] == "end" and last["status"] == "stopped", output[-3000:]
    begun = last["rollouts"] // 16
    assert 5 <= begun < 12
    files = [p.name for p in (tmp_path / f"run/ckpt/step_{begun:08d}").glob("*.safetensors")]
    assert len(files) == 2, "each rank writes its own shard"
    assert f"from update {begun}" in on_one(tiny, tmp_path, f"--C={16 * (begun + 3)}")
    torchrun("train_grpo.py", *tiny.words, *WORDS, cwd=tmp_path)
    same_training(alone, tmp_path / "run")
    # the exported model is gathered from two ranks
    one, two = [load_file(run / "model/model.safetensors") for run in (alone, tmp_path / "run")]
    assert all(torch.allclose(one[name], two[name], rtol=1e-3, atol=1e-4) for name in one)
    assert set(one) == set(two)


def test_four_ranks_write_the_log_of_one(tiny, alone, tmp_path):
    torchrun("train_grpo.py", *tiny.words, *WORDS, "--C=112", cwd=tmp_path, ranks=FOUR)
    same_training(alone, tmp_path / "run", below=112)


def ranks_of(child):
    """Return {rank: pid} of the processes that torchrun has started."""
    ranks = {}
    for pid in Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split():
        rank = re.search(rb"\0RANK=(\d)\0", Path(f"/proc/{pid}/environ").read_bytes())
        if rank:
            ranks[int(rank[1])] = int(pid)
    return ranks


@pytest.mark.once
def test_a_rank_that_crashes(tiny, alone, tmp_path):
    """A crash in native code ends both ranks and prints Python's stack; the run can continue."""
    child, hold = two_ranks(tmp_path, *tiny.words, *WORDS, updates=8)
    os.kill(hold.pids()[0], signal.SIGSEGV)
    output, _ = child.communicate(timeout=PATIENCE)
    assert child.returncode and "Fatal Python error: Segmentation fault" in output, output[-3000:]
    done = torchrun("train_grpo.py", *tiny.words, *WORDS, cwd=tmp_path)
    assert re.search("from update [1-9]", done.stderr), done.stderr[-3000:]
    same_training(alone, tmp_path / "run")


@pytest.mark.once
def test_a_checkpoint_of_many_files_reads_back(tiny, alone, tmp_path):
    """Two ranks write files of 4 kB each, because the host must hold only one at a time."""
    script = tmp_path / "small.py"
    script.write_text(f"import sys; sys.path.insert(0, {str(ROOT)!r}); import train_grpo\n"
                      "train_grpo.models.FILE_BYTES = 4000\n"
                      "sys.exit(train_grpo.main(sys.argv[1:]))\n")
    torchrun(script, *tiny.words, *WORDS, "--C=64", cwd=tmp_path)
    path = max((tmp_path / "run/ckpt").glob("step_*"))
    files = list(path.glob("*.safetensors"))
    assert len(files) >= 20 and len({p.name.split("-")[1] for p in files}) == 2, files
    assert set(json.loads((path / "state.json").read_text())["files"]) == {p.name for p in files}
    # a file holds at least one whole tensor, so some files are larger than 4 kB
    assert max(p.stat().st_size for p in files) < 0.2 * sum(p.stat().st_size for p in files)
    read, _ = models.load_model(path)
    exported = load_file(tmp_path / "run/model/model.safetensors")
    for name, weight in read.named_parameters():
        assert torch.equal(weight, exported[name]), name
    assert "from update 4" in on_one(tiny, tmp_path, "--C=176")
    same_training(alone, tmp_path / "run", below=176)


def test_shards_and_buffers_are_those_of_the_whole_model(tiny, tmp_path):
    """Rank 0 reads a model and sends the shards and buffers, such as those of rotary embeddings."""
    # a model with a buffer that only its constructor sets
    tiny_model("FalconH1").save_pretrained(tmp_path / "falcon")
    models.load_tokenizer(tiny.model).save_pretrained(tmp_path / "falcon")
    script = tmp_path / "load.py"
    script.write_text(f"""import sys; sys.path.insert(0, {str(ROOT)!r})
import torch, train_grpo
from core import engine, models
from config import parse
models.start_ranks("cpu")
ids = torch.arange(2, 22).view(2, 10)
inputs = ids, torch.tensor([3, 4]), torch.tensor([7, 6]), parse([])
causal = lambda path, device: models.load_model(path, device)[0]
for path, load, forward in (({str(tiny.model)!r}, causal, train_grpo.token_logps),
                            ("falcon", causal, train_grpo.token_logps),
                            ({str(tiny.model)!r}, models.load_critic, train_grpo.token_values)):
    real, m = load(path, "cpu"), load(path, "meta")
    copy = forward is train_grpo.token_logps and engine.HFEngine(m, None, parse([]), "cpu")
    models.shard_model(m, "cpu", forward)
    assert all(p.is_meta for p in m.parameters())
    models.load_shards(m, lambda path: load(path, "cpu"), path, "cpu")
    for (name, want), (same, got) in zip(real.named_parameters(), train_grpo.full_weights(m)):
        assert name == same and torch.equal(want, got), name
    if copy:
        copy.load(train_grpo.full_weights(m))
    for ours in (m, copy and copy.model):
        for (name, want), got in zip(real.named_buffers(), ours.buffers() if ours else ()):
            assert torch.equal(want, got), name
    local = sum(p.to_local().numel() for p in m.parameters())
    assert local < 0.6 * sum(p.numel() for p in real.parameters())
    want, got = forward(real, *inputs), train_grpo.call_sharded(forward, m)(*inputs)
    for a, b in zip(want, got):
        assert torch.allclose(a, b, atol=1e-6)
""")
    torchrun(script, cwd=tmp_path)


def test_ranks_count_each_problem_once(world, tmp_path):
    """Two ranks write the train_pass and eval records of one rank, also for a single problem."""
    for name, count in (("easy", 7), ("very_easy", 1)):
        first = (world.splits / f"{name}_val.jsonl").read_text().splitlines(True)[:count]
        (tmp_path / f"{name}.jsonl").write_text("".join(first))
    words = ["--B_p=4", "--n=4", "--D=12", "--C=80", "--eval_every=48", "--samples=4",
             "--device=cpu", "--pass_at=0 20 80", "--s=5",
             f"--val_set={tmp_path / 'easy.jsonl'},{tmp_path / 'very_easy.jsonl'}"]
    run_script("train_grpo.py", *words, f"--out={tmp_path / 'one'}", check=True)
    torchrun("train_grpo.py", *words, f"--out={tmp_path / 'two'}")
    one, two = [[r for r in read_log(tmp_path / run / "log.jsonl")
                 if r["type"] in ("train_pass", "eval")] for run in ("one", "two")]
    assert one == two
    passes = [r for r in two if r["type"] == "train_pass"]
    assert [(r["rollouts"], sum(r["samples"])) for r in passes] == [(0, 60), (32, 60), (80, 60)]
    assert len({c for r in passes for c in r["correct"]}) > 2
    evals = [r for r in two if r["type"] == "eval"]
    expected = [(c, *of) for c in (0, 48, 80) for of in (("val", 7), ("very_easy", 1))]
    assert [(r["rollouts"], r["set"], len(r["correct"])) for r in evals] == expected


@pytest.mark.once
def test_ranks_with_vllm(tiny, tmp_path):
    """Two ranks with two engines write the log of one rank, with a model that they can share. So a
    rollout depends on its seed only, and the engines get the weights of every update."""
    from transformers import LlamaConfig, LlamaForCausalLM
    if torch.cuda.is_available():
        pytest.skip("each rank would need a GPU; tests/test_gpu.py has a test for two GPUs")
    model, tokenizer = models.load_model(tiny.model)
    LlamaForCausalLM(LlamaConfig(**model.config.to_dict() | dict(
        hidden_size=64, head_dim=32, intermediate_size=64,
        num_key_value_heads=2))).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    words = [*tiny.words, f"--model={tmp_path / 'model'}", "--engine=vllm", "--device=cpu",
             "--B_p=4", "--n=4", "--lr_base=2e-2", "--warmup=0", "--samples=4", "--eval_every=16",
             "--C=48"]
    run_script("train_grpo.py", *words, f"--out={tmp_path / 'one'}", check=True)
    done = torchrun("train_grpo.py", *words, f"--out={tmp_path / 'two'}")
    assert "Traceback" not in done.stderr, done.stderr[-3000:]
    same_training(tmp_path / "one", tmp_path / "two")
    records = read_log(tmp_path / "two/log.jsonl")
    steps = [r for r in records if r["type"] == "step"]
    assert records[0]["engine"] == "vllm" and len(steps) == 3
    assert all(0 < r["tis_mean"] < 1e-4 for r in steps)
    assert steps[-1]["kl"] > 1e-3  # the weights did move


@pytest.mark.once
@pytest.mark.parametrize("word, message", [("--B_p=3", "--B_p=3: the 2 processes"),
                          ("--device=cuda", "--device=cuda: torch sees no GPU")])
def test_refused_on_several_ranks(tiny, tmp_path, word, message):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    done = capture([warm_python(), *TWO, str(ROOT / "train_grpo.py"), *tiny.words, "--B_p=4",
                    "--n=4", "--C=480", word], tmp_path,
                   env=os.environ | dict(PYTHON_EXEC=warm_python()))
    ours = [line for line in done.stderr.splitlines() if line.startswith("train_grpo.py")]
    assert done.returncode != 0 and len(ours) == 1 and message in ours[0], done.stderr
    assert not (tmp_path / "runs").exists()
