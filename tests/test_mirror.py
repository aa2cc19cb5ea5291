"""mirror.py: what TensorBoard and W&B get is what the log holds, and a missing package is told."""
import importlib.util
import json
import sys

import pytest
from conftest import ROOT

import mirror
from config import BadInput, parse

RECORDS = [dict(type="header", config=dict(n=4)),
           dict(type="eval", set="val", step=0, rollouts=0, samples=4, k=4, correct=[1, 2],
                **{"avg@4": 0.375}),
           dict(type="step", step=1, rollouts=64, reward=0.5, kl=None, lr=1e-4),
           dict(type="step", step=2, rollouts=128, reward=0.75, kl=0.1, lr=1e-4),
           dict(type="eval", set="aime24", step=2, rollouts=128, samples=4, k=4, correct=[4, 2],
                **{"avg@4": 0.75}),
           dict(type="end", status="budget", rollouts=128)]


def test_the_numbers_of_a_record():
    assert mirror.scalars(RECORDS[1]) == {"val/avg@4": 0.375}
    assert mirror.scalars(RECORDS[2]) == {"train/reward": 0.5, "train/lr": 1e-4}
    assert mirror.scalars(RECORDS[0]) == mirror.scalars(RECORDS[5]) == {}
    assert mirror.open_mirror(parse([]), ROOT) is None


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_a_missing_package_is_one_line_before_training(name, monkeypatch, tmp_path):
    import train_grpo
    monkeypatch.setattr(importlib.util, "find_spec", lambda package: None)
    with pytest.raises(BadInput, match=f"--log_to={name}: the package is not installed; `pip "):
        train_grpo.main([f"--log_to={name}", f"--out={tmp_path / 'run'}"])
    assert not (tmp_path / "run").exists()
    with pytest.raises(BadInput, match="--log_to=wnb: expected one of none, tensorboard, wandb"):
        parse(["--log_to=wnb"])
    assert parse(["--log_to=none"])["log_to"] == ""


def read_back(folder):
    """{name: {rollouts: value}} of TensorBoard's files in a folder."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    events = EventAccumulator(str(folder)).Reload()
    return {tag: {e.step: e.value for e in events.Scalars(tag)} for tag in events.Tags()["scalars"]}


class Refused(Exception):
    pass


@pytest.mark.parametrize("when", ["init", "log"])
def test_a_mirror_that_fails_ends_no_run(when, tmp_path, monkeypatch, capsys):
    """No key, no network: said once on one line, and the log is whole."""
    import types

    def fail(*args, **more):
        raise Refused("no API key\n configured")
    run = types.SimpleNamespace(define_metric=lambda *a, **b: None, log=fail, finish=fail)
    fake = types.SimpleNamespace(init=fail if when == "init" else lambda **more: run)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    write = mirror.open_mirror(parse([]) | dict(log_to="wandb"), tmp_path)
    for record in RECORDS:
        write(record)
    said = capsys.readouterr().err
    assert "--log_to=wandb failed (Refused: no API key configured); the run goes on" in said
    assert said.count("\n") == 1


def test_tensorboard_has_the_records(tmp_path):
    pytest.importorskip("tensorboard")
    write = mirror.open_mirror(parse(["--log_to=tensorboard"]), tmp_path)
    for record in RECORDS:
        write(record)
    found = read_back(tmp_path)
    assert found["train/reward"] == {64: 0.5, 128: 0.75} and found["val/avg@4"] == {0: 0.375}
    assert found["aime24/avg@4"] == {128: 0.75} and found["train/kl"] == pytest.approx({128: 0.1})


def test_a_resumed_run_replaces_what_it_writes_again(tmp_path):
    pytest.importorskip("tensorboard")
    cfg = parse(["--log_to=tensorboard"])
    write = mirror.open_mirror(cfg, tmp_path)
    for record in RECORDS:
        write(record)
    write = mirror.open_mirror(cfg, tmp_path)  # from the checkpoint at 64 rollouts
    write(RECORDS[3] | dict(reward=0.25))
    write(RECORDS[5])
    assert read_back(tmp_path)["train/reward"] == {64: 0.5, 128: 0.25}


def test_a_run_of_the_trainer_mirrors_its_log(tmp_path):
    """Two updates as the user starts them: every number of the log, at its rollouts."""
    pytest.importorskip("tensorboard")
    import train_grpo
    problems = [dict(id=str(i), prompt=f"{10 + i}+{20 + i}=", answer=str(30 + 2 * i))
                for i in range(4)]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(p) + "\n" for p in problems))
    train_grpo.main([f"--train_set={tmp_path / 'p.jsonl'}", f"--val_set={tmp_path / 'p.jsonl'}",
                     "--B_p=2", "--n=2", "--C=8", "--D=0", "--samples=2", "--k=2",
                     f"--out={tmp_path / 'run'}", "--log_to=tensorboard", "--eval_every=4"])
    found = read_back(tmp_path / "run")
    for line in (tmp_path / "run/log.jsonl").read_text().splitlines():
        record = json.loads(line)
        for name, value in mirror.scalars(record).items():
            assert found[name][record["rollouts"]] == pytest.approx(value, rel=1e-5), name


def test_wandb_has_the_records(tmp_path, monkeypatch):
    """Offline: the history that W&B's own file holds."""
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    folder = tmp_path / "easy/Bp4_n4"
    folder.mkdir(parents=True)
    write = mirror.open_mirror(parse(["--log_to=wandb"]), folder)
    import wandb
    run = wandb.run
    for record in RECORDS[:-1]:
        write(record)
    assert run.summary["train/reward"] == 0.75 and run.summary["rollouts"] == 128
    assert run.name == "easy_Bp4_n4" and run.config["n"] == 16
    write(RECORDS[-1])
    assert wandb.run is None and list(folder.glob("wandb/offline-run-*/*.wandb"))
