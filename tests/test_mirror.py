"""tools/mirror.py: TensorBoard and W&B get what the log holds; bad input is one line."""
import sys
import threading

import pytest
from conftest import ROOT, run_script, wait_for, write_jsonl

sys.path.insert(0, str(ROOT / "tools"))
import mirror  # noqa: E402
from config import BadInput  # noqa: E402

RECORDS = [dict(type="header", config=dict(n=4)),
           dict(type="eval", set="val", step=0, rollouts=0, samples=4, k=4, correct=[1, 2],
                **{"avg@4": 0.375}),
           dict(type="step", step=1, rollouts=64, reward=0.5, kl=None, lr=1e-4),
           dict(type="step", step=2, rollouts=128, reward=0.75, kl=0.1, lr=1e-4),
           dict(type="eval", set="aime24", step=2, rollouts=128, samples=4, k=4, correct=[4, 2],
                **{"avg@4": 0.75}), dict(type="end", status="budget", rollouts=128)]


def test_the_numbers_of_a_record():
    assert mirror.scalars(RECORDS[1]) == {"val/avg@4": 0.375}
    assert mirror.scalars(RECORDS[2]) == {"train/reward": 0.5, "train/lr": 1e-4}
    assert mirror.scalars(RECORDS[0]) == mirror.scalars(RECORDS[5]) == {}


@pytest.mark.parametrize("words, message", [
    (["RUN", "--to=wnb"], "--to=wnb: expected RUN --to=tensorboard or"),
    (["RUN"], "expected RUN"), (["--to=wandb"], "expected RUN"),
    (["none", "--to=wandb"], "none: has no log.jsonl")])
def test_bad_words_are_one_line(tmp_path, words, message):
    write_jsonl(tmp_path / "RUN" / "log.jsonl", RECORDS)
    done = run_script("tools/mirror.py", *words, cwd=tmp_path)
    assert done.code == 2 and message in done.stderr and done.stderr.count("\n") == 1, done


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_a_missing_package_is_one_line(name, monkeypatch, tmp_path):
    for module in (name, f"torch.utils.{name}"):  # None makes the import fail
        monkeypatch.setitem(sys.modules, module, None)
    write_jsonl(tmp_path / "log.jsonl", RECORDS)
    with pytest.raises(BadInput, match=f"--to={name}: not installed .*; `pip install {name}`"):
        mirror.main([str(tmp_path), f"--to={name}"])


def read_back(folder):
    """Return {name: {rollouts: value}} from TensorBoard's files in a folder."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    events = EventAccumulator(str(folder)).Reload()
    return {tag: {e.step: e.value for e in events.Scalars(tag)} for tag in events.Tags()["scalars"]}


def test_tensorboard_has_the_records(tmp_path):
    pytest.importorskip("tensorboard")
    write_jsonl(tmp_path / "log.jsonl", RECORDS)
    run_script("tools/mirror.py", tmp_path, "--to=tensorboard", check=True)
    found = read_back(tmp_path)
    assert found["train/reward"] == {64: 0.5, 128: 0.75} and found["val/avg@4"] == {0: 0.375}
    assert found["aime24/avg@4"] == {128: 0.75} and found["train/kl"] == pytest.approx({128: 0.1})


def test_a_log_is_followed_and_a_resumed_run_replaces_its_points(tmp_path):
    """Records are copied before the run ends. Then the killed run resumes from its checkpoint at 64
    rollouts and logs another reward at 128 rollouts."""
    pytest.importorskip("tensorboard")
    write_jsonl(tmp_path / "log.jsonl", RECORDS[:4])
    seen = []

    def to(folder, config):
        write = mirror.to_tensorboard(folder, config)
        return lambda *words: (write(*words), seen.append(words))
    thread = threading.Thread(target=mirror.follow, args=(tmp_path, to, 0.01), daemon=True)
    thread.start()
    wait_for(lambda: len(seen) == 3)  # the header has no numbers
    again = [*RECORDS[:3], RECORDS[3] | dict(reward=0.25)]
    write_jsonl(tmp_path / "log.jsonl", again)
    wait_for(lambda: len(seen) == 6)
    write_jsonl(tmp_path / "log.jsonl", [*again, RECORDS[5]])
    thread.join(60)
    assert not thread.is_alive() and len(seen) == 6
    assert read_back(tmp_path)["train/reward"] == {64: 0.5, 128: 0.25}


def test_wandb_has_the_records(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    folder = tmp_path / "easy/Bp4_n4"
    write_jsonl(folder / "log.jsonl", RECORDS)
    import wandb
    mirror.follow(folder, mirror.to_wandb)
    run = wandb.run
    assert run.summary["train/reward"] == 0.75 and run.summary["rollouts"] == 128
    assert run.name == "easy_Bp4_n4" and run.config["n"] == 4
    run.finish()
    assert list(folder.glob("wandb/offline-run-*/*.wandb"))
