"""tools/mirror.py: W&B gets the numbers in the log; bad input is one line."""
import sys
from types import SimpleNamespace

import pytest
from conftest import ROOT, run_script, write_jsonl

sys.path.insert(0, str(ROOT / "tools"))
import mirror  # noqa: E402

HEADER, *RECORDS = [
    dict(type="header", config=dict(n=4)),
    {"type": "eval", "set": "val", "rollouts": 0, "correct": [1, 2], "avg@4": 0.375},
    dict(type="step", rollouts=64, reward=0.5, kl=None),
    dict(type="step", rollouts=128, reward=0.75, kl=0.1),
    {"type": "eval", "set": "aime24", "rollouts": 128, "correct": [4, 2], "avg@4": 0.75},
    dict(type="train_pass", rollouts=128, reward=0.1), dict(type="step", rollouts=192, reward=1.0)]


@pytest.mark.parametrize("words, message", [
    ([], "log.jsonl: No such file"), (["none"], "none: No such file"),
    (["RUN", "--to=wandb"], "RUN/--to=wandb: No such file")])
def test_bad_words_are_one_line(tmp_path, words, message):
    write_jsonl(tmp_path / "RUN/log.jsonl", [HEADER])
    (tmp_path / "wandb.py").write_text("init = None")
    done = run_script("tools/mirror.py", *words, cwd=tmp_path, env=dict(PYTHONPATH=str(tmp_path)))
    assert done.code == 1 and message in done.stderr and done.stderr.count("\n") == 1, done


def test_a_missing_package_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)  # makes the import fail
    with pytest.raises(SystemExit, match="mirror.py: pip install wandb"):
        mirror.main(["."])


def test_a_log_is_followed_and_a_restarted_mirror_continues(tmp_path, monkeypatch):
    """Each wait of the mirror is one change of the log. A killed trainer repeats its last update
    with another reward, which W&B does not take, because its steps cannot go back."""
    folder, rows, asked = tmp_path / "easy/Bp4_n4", {}, []
    run = SimpleNamespace(step=0)

    def log(numbers, step):
        assert step >= run.step
        rows[step], run.step = rows.get(step, {}) | numbers, step

    def init(**words):
        asked.append(words)
        run.step, run.log = max(rows, default=-1) + 1, log
        return run
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    stopped = [HEADER, *RECORDS[:3], dict(type="end", status="stopped", rollouts=128)]
    again = [HEADER, *RECORDS[:2], RECORDS[2] | dict(reward=0.25), *RECORDS[3:]]
    ended = [*again, dict(type="end", status="budget", rollouts=192)]
    for logs in ([], [HEADER], stopped[:3], stopped), (again[:3], again, ended), (ended, ended):
        states = iter(logs)

        def change(_=None):
            write_jsonl(folder / "log.jsonl", next(states))
        monkeypatch.setattr(mirror, "time", SimpleNamespace(sleep=change))
        monkeypatch.chdir(tmp_path)
        change()
        mirror.main(["easy/Bp4_n4"])
        assert not list(states)
    assert rows == {0: {"val/rollouts": 0, "val/avg@4": 0.375},
                    64: {"train/rollouts": 64, "train/reward": 0.5},
                    128: {"train/rollouts": 128, "train/reward": 0.75, "train/kl": 0.1},
                    192: {"train/rollouts": 192, "train/reward": 1.0}}
    assert [words["config"] for words in asked] == [None, dict(n=4), dict(n=4)]
    assert asked[0] == dict(project="mine", id="easy_Bp4_n4", name="easy_Bp4_n4", config=None,
                            resume="allow")
