"""Test data/gsm8k: problems from parquet files, the preset, and the simulation of its sweep."""
import re
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import ROOT, run_script

import config
from core.log import read_log
from config import BadInput, read_json
from core import cost, prepare, sweep
from core.problems import read_problems

TRAIN = [
    ("A shop sold 48 lamps in April, and half as many in May. How many lamps did it sell in both "
     "months together?",
     "In May it sold 48/2 = <<48/2=24>>24 lamps.\nIn all 48+24 = <<48+24=72>>72.\n#### 72"),
    ("It was 3 degrees and fell by 8 degrees in the night. What is the temperature in the morning?",
     "3 - 8 = <<3-8=-5>>-5\n#### -5"),
    ("Mia gets 16 apples every day and eats three. She sells the others at $2 each. What does she "
     "earn per day?", "(16 - 3) * 2 = 26\n#### 26")]
TEST = [TRAIN[-1],
        ("A scarf takes 2 balls of red wool and half as much white wool. How many balls of wool "
         "does it take?", "2/2 = 1 and 2 + 1 = 3\n#### 3")]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Make a data folder from files that were put there by hand; return (folder, printed text)."""
    data = tmp_path_factory.mktemp("gsm8k")
    for name, rows in (("main/train", TRAIN), ("test/main/test", TEST)):
        path = data / f"{name}-00000-of-00001.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.table(list(zip(*rows)), ["question", "answer"]), path)
    (data / "defaults.json").write_text('{"model": "none"}')  # also of the test problems
    return data, run_script("data/gsm8k/prepare.py", f"--data={data}", check=True).stdout


def test_problems(made):
    """The number after #### is the answer. A training problem that equals a test problem is left
    out."""
    data, printed = made
    train, test = (read_problems(data / name) for name in ("problems.jsonl", "test/problems.jsonl"))
    assert [p["answer"] for p in train] == ["72", "-5"]
    assert [p["answer"] for p in test] == ["26", "3"]
    assert all(p["prompt"].endswith("within \\boxed{}.") for p in train + test)
    assert [p["id"] for p in train] == [f"gsm8k-{i:05d}" for i in range(2)]
    assert test[0]["id"] == "gsm8k-test-00000" and "1 against" in printed
    manifest = read_json(data / "manifest.json")
    assert manifest["counts"]["against"] == 1 and manifest["counts"]["kept"] == 2
    again = run_script("data/gsm8k/prepare.py", f"--data={data}")
    assert again.code == 0 and again.stdout.count("exists already") == 2


def test_a_measurement_of_some_problems(world, tmp_path):
    """--measure draws problems at random. A larger number adds problems to those of a smaller."""
    words = [f"--problems={world.problems}", "--s_zero=0", "--s=4", "--n_val=2",
             f"--out={tmp_path}", "--max_new_tokens=23"]
    ids = []
    for count in (12, 20):
        run_script("sample.py", *words, f"--measure={count}", check=True)
        lines = [r for r in read_log(tmp_path / "pass_rates.jsonl") if "id" in r]
        ids.append([r["id"] for r in lines])
        assert len(set(ids[-1])) == len(lines) == count
    assert ids[1][:12] == ids[0]
    first = [p["id"] for p in read_problems(world.problems)[:12]]
    assert set(ids[0]) != set(first), "the first problems of a file may be of one kind"


@pytest.mark.parametrize("preset", ["easy", "hard", "mixed"])
def test_the_evening(preset):
    """Every n gets 150 updates, a run fits on a card of 24 GB, and all runs together take less than
    28 GB of disk and 13 hours of an H100."""
    arm = sweep.sweep_config(preset, ["--data=data/gsm8k"])
    grid = sweep.cells(arm)
    assert {c["n"] for c in grid} == {4, 16, 64} and {c["seed"] for c in grid} == {0, 1}
    assert arm["model"] == "Qwen/Qwen2.5-0.5B-Instruct" and arm["recipe"] == preset
    assert min(config.derive(c)["M"] for c in grid) >= 150
    s = cost.sizes(cost.SHAPES[arm["model"]])
    assert all(cost.memory_plan(s, c, 1, 24e9)[1] for c in grid)
    assert cost.disk_bytes(s, grid) < 28e9
    assert sum(cost.gpu_hours(c) for c in grid) < 13
    words = ["--data=data/gsm8k", "--model=Qwen/Qwen2.5-1.5B-Instruct"]
    large = sweep.sweep_config(preset, words)
    assert large["max_new_tokens"] == 768 and large["ns"] == "4 16 64"
    s = cost.sizes(cost.SHAPES[large["model"]])
    assert all(cost.memory_plan(s, c, 1, 80e9)[1] for c in sweep.cells(large))


def test_the_price_is_told_before_the_evening(tmp_path):
    """DRY_RUN=1 prints it to stderr, so that stdout holds only commands."""
    done = run_script("core.sweep", "commands", "easy", "--data=data/gsm8k", f"--runs={tmp_path}")
    assert done.code == 0 and all("train_grpo.py" in line for line in done.stdout.splitlines())
    assert re.fullmatch(r"easy: 6 runs, 0\.5M rollouts, about [\d.]+ \(of RTX 4090\) or [\d.]+ "
                        r"\(of H100\) GPU-hours by core/cost.py, .*; \d+ GB of disk\n",
                        done.stderr), done.stderr


def test_the_words_of_the_preset_reach_every_script(made, tiny, tmp_path, monkeypatch):
    """prepare.py and sample.py get the lengths and `measure` of the preset."""
    data = tmp_path / "gsm8k"
    shutil.copytree(made[0], data)
    shutil.copy(ROOT / "data/gsm8k/presets.json", data)
    called = []
    monkeypatch.setattr(prepare, "measure", lambda words, out: called.append(words))
    words = [f"--data={data}", f"--model={tiny.model}", f"--runs={tmp_path / 'runs'}"]
    with pytest.raises(BadInput, match="easy_train.jsonl: too few"):  # nothing was measured
        sweep.prepare("easy", words)
    asked = config.parse(called[0])
    assert (asked["measure"], asked["max_new_tokens"], asked["n_val"]) == (4000, 768, 300)
