"""data/logs/prepare.py on logs of veRL, TRL and W&B in the formats of their writers."""
import csv
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import config  # conftest.py has put the root on sys.path
from conftest import refused
from core.log import read_log

TRL = Path(__file__).resolve().parent / "logs/trl"
# validation problems, samples of each, updates, updates between evaluations
P, N, STEPS, EVERY = 40, 4, 12, 3
METRIC = f"val-core/openai/gsm8k/reward/mean@{N}"
AT_8_4 = ["--B_p=8", "--n=4"]
OF_TRL = ["--B_p=4", "--n=4", "--samples=4"]


@pytest.fixture
def run(script, tmp_path):
    """Return run(source, *words, out=FOLDER), which runs data/logs/prepare.py and returns Done."""
    def run(source, *words, out="out", check=False):
        return script("data/logs/prepare.py", f"--source={source}", f"--out={tmp_path / out}",
                      f"--problems={P}", *words, check=check)
    return run


@pytest.fixture
def read(run, tmp_path):
    """Return read(source, *words, out=FOLDER), which returns the only run and the printed text."""
    def read(source, *words, out="out"):
        done = run(source, *words, out=out, check=True)
        return records(tmp_path / out), done.stdout
    return read


def records(folder):
    """Return the only log below `folder` as .folder, .header, .step, .eval ({step: record}), .end.
    """
    [path] = Path(folder).glob("*/log.jsonl")
    log = read_log(path)
    return SimpleNamespace(folder=path.parent, header=log[0], end=log[-1], **{
        kind: {r["step"]: r for r in log if r["type"] == kind} for kind in ("step", "eval")})


# ---- Writers -------------------------------------------------------------------------------------

def verl_rows(B_p, n, seed=0, source="openai/gsm8k", lr=1e-6):
    """Return {step: metrics} as veRL 0.9.1 logs them, with names from verl/trainer/ppo. Validation
    precedes the first update; later it is in the record of the update it follows."""
    rng, rows, name = np.random.default_rng([seed, n]), {}, f"{source}/reward"
    for m in range(STEPS + 1):
        row = rows[m] = {}
        if m:  # orjson writes NaN as null
            row |= {"actor/lr": lr, "training/global_step": m, "critic/score/mean": 0.3 + 0.01 * m,
                    "critic/score/max": 1.0, "critic/rewards/mean": 0.3 + 0.01 * m,
                    "timing_s/step": 2.0, "critic/vf_explained_var": None}
        if m % EVERY == 0:
            row |= {f"val-core/{name}/mean@{N}": float(np.mean(rng.random((P, N)) < 0.3 + m / 40)),
                    f"val-core/{name}/best@{N}/mean": 0.9, f"val-aux/{name}/std@{N}": 0.2,
                    "val-aux/num_turns/mean": 2.0}
    return rows


def write_verl(path, pairs):
    """Write compact lines {"step", "data"} as FileLogger.log in verl/utils/tracking.py does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(dict(step=m, data=row), separators=(",", ":")) + "\n"
                            for m, row in (pairs.items() if isinstance(pairs, dict) else pairs)))
    return path


def write_csv(path, rows, quoting=csv.QUOTE_MINIMAL):
    """Write dicts as CSV, with an empty cell if a row has no value."""
    header = list(dict.fromkeys(key for row in rows for key in row))
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, quoting=quoting)
        writer.writerow(header)
        writer.writerows([row.get(name, "") for name in header] for row in rows)
    return path


def write_history(path, rows):
    """Write run.history().to_csv() as wandb 0.31 and pandas do: an index without a name, W&B's own
    columns, then the metrics. rows: {_step: metrics}."""
    return write_csv(path, [{"": i, "_step": m, "_runtime": 10.0 * i, **row}
                            for i, (m, row) in enumerate(rows.items())])


def write_chart(path, runs):
    """Write a chart's CSV export, as found in public repositories. All cells are quoted. A metric
    has the __MIN and __MAX that W&B draws around it. runs: {name: {step: value}}."""
    steps = sorted({m for values in runs.values() for m in values})
    return write_csv(path, [{"Step": m} | {
        f"{name} - {METRIC}{end}": values[m] + more for name, values in runs.items() if m in values
        for end, more in (("", 0), ("__MIN", -0.2), ("__MAX", 0.2))} for m in steps], csv.QUOTE_ALL)


# ---- veRL ----------------------------------------------------------------------------------------

def both(script, run, folder, *words):
    """Return {n: log} of the two runs that prepare.py writes and frontier.py reads; the text."""
    done = run(*words, check=True)
    table = script("frontier.py", f"--runs={folder}", "--metric=avg@4")
    assert table.code == 0 and "2 runs used, 0 dropped" in table.stdout, table.stderr
    found = map(read_log, folder.glob("*/log.jsonl"))
    return {log[0]["config"]["n"]: log for log in found}, done.stdout


def test_verl(script, run, tmp_path):
    out = tmp_path / "out"
    paths = [write_verl(tmp_path / f"grpo_Bp8_n{n}_seed0.jsonl",  # lr follows sqrt(B_p n)
                        verl_rows(8, n, lr=1e-6 * (8 * n / 1024) ** 0.5)) for n in (4, 16)]
    logs, printed = both(script, run, out, "verl", "--lr_scaling=sqrt", *paths)
    assert not any(word in printed for word in ("again", "missing"))
    assert sorted(logs) == [4, 16]
    for n, (header, *log) in logs.items():
        cfg, rows = header["config"], verl_rows(8, n)
        want = dict(B_p=8, n=n, C=8 * n * STEPS, seed=0, k=N, samples=N, lr_base=1e-6)
        assert {key: cfg[key] for key in want} == want and set(cfg) == set(config.config)
        assert header["derived"] == config.derive(cfg)
        assert (header["schema"], header["source"]) == (1, "verl")
        assert (out / config.run_name(cfg) / "log.jsonl").exists()
        assert [r for r in log if r["type"] == "step"] == [
            dict(type="step", step=m, rollouts=8 * n * m, reward=rows[m]["critic/score/mean"],
                 lr=pytest.approx(1e-6 * (8 * n / 1024) ** 0.5)) for m in range(1, STEPS + 1)]
        assert [r for r in log if r["type"] == "eval"] == [
            {"type": "eval", "step": m, "rollouts": 8 * n * m, "set": "val", "k": N, "samples": N,
             "problems": P, "avg@4": rows[m][METRIC]} for m in range(0, STEPS + 1, EVERY)]
        assert log[-1] == dict(type="end", status="budget", rollouts=8 * n * STEPS)


def test_verl_with_two_data_sources_needs_a_choice(run, read, tmp_path):
    rows, name = verl_rows(8, 4), f"val-core/aime/reward/mean@{N}"
    for m, row in verl_rows(8, 4, seed=1, source="aime").items():
        rows[m] |= row
    path = write_verl(tmp_path / "log.jsonl", rows)
    refused(run("verl", *AT_8_4, path), path, "--metric_column=", name, "val-core/openai/gsm8k")
    log, _ = read("verl", *AT_8_4, "--seed=3", "--k=2", f"--metric_column={name}", path)
    assert log.eval[3]["avg@2"] == rows[3][name] and log.eval[3]["k"] == 2
    assert log.header["config"]["seed"] == 3 and log.folder.name.startswith("Bp8_n4_seed3_")


def test_a_run_that_was_started_again(read, tmp_path):
    """The later start counts from its first step on, and a line is printed."""
    rows, other = verl_rows(8, 4), verl_rows(8, 4, seed=1)
    for name, steps, said in (("a", range(5, 8), "12 to 5"), ("b", range(7), "12 to 0")):
        log, printed = read("verl", *AT_8_4, write_verl(tmp_path / f"{name}.jsonl", [
            *rows.items(), *((m, other[m]) for m in steps)]), out=name)
        assert f"the log goes back from step {said}: the run was started again" in printed
        assert sorted(log.step) == list(range(1, steps[-1] + 1)) and sorted(log.eval) == [0, 3, 6]
        assert log.eval[3]["avg@4"] == (rows if name == "a" else other)[3][METRIC]
        assert log.eval[6]["avg@4"] == other[6][METRIC]
        assert log.end["rollouts"] == steps[-1] * 32
    first = {10 * m: 0.2 + 0.02 * m for m in range(12)}
    later = {65 + 10 * m: 0.1 + 0.01 * m for m in range(6)}
    for step in ("Step", "train/global_step"):  # TensorBoard's export
        path = write_csv(tmp_path / "Bp8_n8_seed1.csv", [
            {"Wall time": 1, step: m, "Value": y} for m, y in [*first.items(), *later.items()]])
        log, printed = read("wandb", "--metric_column=Value", "--samples=4", path, out=step[:1])
        assert {m: r["avg@4"] for m, r in log.eval.items()} == {
            m: y for m, y in first.items() if m < 65} | later
        assert "goes back from step 110 to 65: the run was started again" in printed


def test_a_log_that_begins_late_is_named(read, tmp_path):
    for first, late in ((5, False), (105, True)):  # logged every fifth step
        path = write_state(tmp_path / "trainer_state.json", [
            e | dict(step=first + 5 * (e["step"] - 1)) for e in history() if e["step"]])
        _, printed = read("trl", *AT_8_4, "--samples=4", path, out=str(first))
        assert ("the steps before 105 are missing" in printed) == late
        assert ("missing" in printed) == late


@pytest.mark.parametrize("words, change, message", [
    ([], {}, "--B_p= and --n= must be given"), (["--n=4"], {}, "--B_p="),
    (["--B_p=8", "--n=1"], {}, "--n=1"),
    ([*AT_8_4, "--k=8"], {}, "--k=8"), ([*AT_8_4, "--metric_column=acc"], {}, "--metric_column="),
    ([*AT_8_4, "--metric_column=val-aux/x/mean@4"], {"val-aux/x/mean@4": -0.4}, "is -0.4 at step"),
    ([*AT_8_4, "--metric_column=best@4/mean"], {"best@4/mean": 0.4}, "expected one"),
    (AT_8_4, {"train/num_gen_batches": 2}, "filter_groups"),
    (AT_8_4, {"training/filter_groups/evicted_samples": 0}, "filter_groups")])
def test_verl_refuses(run, tmp_path, words, change, message):
    path = write_verl(tmp_path / "log.jsonl",
                      {m: row | change for m, row in verl_rows(8, 4).items()})
    refused(run("verl", *words, path), path, message)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("source, text", [("verl", '{"step": 1, "loss": 2}\n'), ("verl", ""),
    ("verl", '{"step": 1, "data"\n{"step": 2, "data": {}}\n'), ("trl", '{"log_history": [3]}'),
    ("trl", "{}"), ("trl", "{"), ("trl", '{"log_history": [{"loss": 1}]}'),
    ("trl", '{"log_history": [{"step": 0, "eval_reward": 1}]}'),
    ("wandb", ""), ("wandb", "Name,State,Runtime\na,finished,3\n"),
    ("wandb", "Relative Time (Process),a - reward\n1,0.5\n"),
    ("wandb", '"Step","a - reward","a - reward"\n1,0.5,0.6\n'),
    ("wandb", '"Step","Group: Bp8_n4 - eval/reward"\n1,0.5\n'),
    ("wandb", '"Step","swift-lion-7 - eval/reward"\n1,0.5\n'),
    ("wandb", "Step,0.6b,14b\n1,0.1,0.7\n")])
def test_files_that_are_not_logs_are_refused(run, tmp_path, source, text):
    path = tmp_path / "log.txt"
    path.write_text(text)
    done = run(source, "--samples=4", *(AT_8_4 * ("swift" not in text)), path)
    said = "swift-lion-7" if "swift" in text else "0.6b, 14b" if "14b" in text else ""
    refused(done, path, said)
    assert not (tmp_path / "out").exists()


# ---- TRL: files that TRL wrote (tests/logs/trl/make.py) ------------------------------------------

def history(n=4):
    """Return the log_history of a run of TRL."""
    return json.loads((TRL / f"Bp4_n{n}/trainer_state.json").read_text())["log_history"]


def write_state(path, entries):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(dict(log_history=entries)))
    return path


def test_trl(script, run, tmp_path):
    logs, _ = both(script, run, tmp_path / "out", "trl", "--samples=4", TRL / "Bp4_n4",
                   TRL / "Bp4_n8/trainer_state.json", "--model=data/arithmetic/base")
    assert sorted(logs) == [4, 8]
    for n, (header, *log) in logs.items():
        entries, cfg = history(n), header["config"]
        want = dict(B_p=4, seed=0, C=4 * n * 12, samples=4, k=4, lr_base=1e-4,
                    model="data/arithmetic/base")
        assert {key: cfg[key] for key in want} == want
        assert [(r["step"], r["rollouts"], r["avg@4"], r["problems"], r["samples"])
                for r in log if r["type"] == "eval"] == [
            (e["step"], e["step"] * 4 * n, e["eval_reward"], P, 4)
            for e in entries if "eval_reward" in e]
        steps = {r["step"]: r for r in log if r["type"] == "step"}
        assert {m: r["reward"] for m, r in steps.items() if r["reward"] is not None} == {
            e["step"]: e["reward"] for e in entries if "reward" in e}
        assert [r["rollouts"] for r in steps.values()] == [4 * n * m for m in range(1, 13)]


def test_trl_names_the_options_that_its_state_lacks(run, read, tmp_path):
    shutil.copytree(TRL / "Bp4_n4", tmp_path / "checkpoint-12")
    path = tmp_path / "checkpoint-12/trainer_state.json"
    refused(run("trl", path.parent), path.parent, "--B_p= and --n= and --samples=")
    log, _ = read("trl", *OF_TRL, "--seed=2", "--lr_base=3e-4",
                  "--metric_column=eval_rewards/exact/mean", path)
    assert log.header["config"]["seed"] == 2 and log.header["config"]["lr_base"] == 3e-4
    assert log.step[1]["reward"] == 0.375 and log.end["rollouts"] == 192
    # TRL's steps are optimizer steps
    log, _ = read("trl", *OF_TRL, "--updates=2", path, out="half")
    assert log.end["rollouts"] == 96 and max(log.eval) == 6


@pytest.mark.parametrize("end", ["/mean", ""])  # old versions of TRL leave /mean out of the names
def test_trl_sum_of_rewards_is_not_a_share(run, read, tmp_path, end):
    entries = []
    for e in history():
        for b in ("", "eval_"):
            if f"{b}reward" in e:
                e |= {f"{b}rewards/exact{end}": e.pop(f"{b}rewards/exact/mean"),
                      f"{b}rewards/format{end}": 0.25, f"{b}reward": e[f"{b}reward"] + 0.25}
        entries.append(e)
    path = write_state(tmp_path / "trainer_state.json", entries)
    refused(run("trl", *OF_TRL, path), path, "eval_reward is a sum of rewards", "--metric_column=",
            f"eval_rewards/exact{end}, eval_rewards/format{end}")
    log, _ = read("trl", *OF_TRL, f"--metric_column=eval_rewards/exact{end}", path)
    assert [r["avg@4"] for r in log.eval.values()] == [
        e["eval_reward"] for e in history() if "eval_reward" in e]


def test_a_later_checkpoint_replaces_an_earlier_one(run, read, tmp_path):
    """A later call with a longer log replaces the shorter log. One call takes one log per run."""
    early, late = (write_state(tmp_path / f"checkpoint-{k}/trainer_state.json",
                               [e for e in history() if e["step"] <= k]) for k in (6, 12))
    other = write_state(tmp_path / "other.json", [
        e | ({"eval_reward": 0.1} if "eval_reward" in e else {}) for e in history()])
    refused(run("trl", *OF_TRL, early, late), late, early, "--seed=")
    assert not (tmp_path / "out").exists()
    assert sorted(read("trl", *OF_TRL, early)[0].eval) == [0, 3, 6]
    for _ in range(2):  # a second call writes the same log
        assert sorted(read("trl", *OF_TRL, late)[0].eval) == [0, 3, 6, 9, 12]
    for path in (early, other):
        refused(run("trl", *OF_TRL, path), path, "records of the same run", "--seed=", "--out=")
    assert sorted(records(tmp_path / "out").eval) == [0, 3, 6, 9, 12]
    assert run("trl", *OF_TRL, "--seed=1", other).code == 0
    assert len(list((tmp_path / "out").iterdir())) == 2


# ---- W&B -----------------------------------------------------------------------------------------

def test_wandb_history_of_verl(read, tmp_path):
    """_step counts updates; timing_s/step and training/global_step are not step columns."""
    rows = {m: {key: value for key, value in row.items() if value is not None}
            for m, row in verl_rows(8, 4).items()}
    log, _ = read("wandb", *AT_8_4, write_history(tmp_path / "history.csv", rows))
    same, _ = read("verl", *AT_8_4, write_verl(tmp_path / "log.jsonl", rows), out="same")
    assert log.eval == same.eval and log.step == same.step and log.header["source"] == "wandb"
    assert log.header["config"] == same.header["config"]
    for lr, lr_base in ((lambda m: 1e-5 * (1 - m / 2 / STEPS), 1e-5), (lambda m: None, 0.0)):
        changed = {m: row | {"actor/lr": m and lr(m - 1)} for m, row in rows.items()}
        path = write_verl(tmp_path / "log.jsonl", changed)
        log, _ = read("verl", *AT_8_4, path, out=str(lr_base))
        assert log.header["config"]["lr_base"] == lr_base  # the peak; unknown = 0


@pytest.mark.parametrize("of_train, of_eval", [
    *(("train/global_step", name) for name in ("train/global_step", "eval/global_step")),
    ("train/global_step", "eval/step"), ("rollout/step", "eval/step"), ("step", "step")])
def test_wandb_history_with_calls_for_training_and_evaluation(read, tmp_path, of_train, of_eval):
    """transformers logs an update and its evaluation in two calls, as train/ and eval/, and so does
    OpenRLHF, with an own step for evaluations. _step counts calls.
    """
    rows = {}
    for i, call in enumerate(history()):
        is_eval = "eval_reward" in call
        rows[2 * i] = {f"eval/{key[5:]}" if key.startswith("eval_") else f"train/{key}": value
                       for key, value in call.items() if key != "step"}
        rows[2 * i][of_eval if is_eval else of_train] = call["step"]
        rows[2 * i + 1] = {"profiling/Time taken: GRPOTrainer._prepare_inputs": 0.1}
    log, printed = read("wandb", "--samples=4", write_history(tmp_path / "Bp4_n4.csv", rows))
    same, _ = read("trl", "--samples=4", TRL / "Bp4_n4", out="same")
    assert log.eval == same.eval and log.step == same.step and len(log.step) == 12
    assert "profiling/Time taken: GRPOTrainer._prepare_inputs" in printed


def test_wandb_chart(script, run, tmp_path):
    """The columns of a chart name the runs, with B_p, n and seed."""
    runs = {f"qwen - Bp8_n{n}_seed2": {m: row[METRIC] for m, row in verl_rows(8, n).items()
                                       if METRIC in row} for n in (4, 16)}
    logs, _ = both(script, run, tmp_path / "out", "wandb",
                   write_chart(tmp_path / "wandb_export.csv", runs))
    assert sorted(logs) == [4, 16]
    for n, (header, *log) in logs.items():
        cfg = header["config"]
        assert (cfg["B_p"], cfg["seed"], cfg["samples"]) == (8, 2, N)
        assert {r["step"]: r["avg@4"] for r in log if r["type"] == "eval"} == runs[
            f"qwen - Bp8_n{n}_seed2"]


def test_command_line(script, tmp_path):
    path = write_verl(tmp_path / "log.jsonl", verl_rows(8, 4))
    for words, parts in (([path], ["--source=", "verl, trl, wandb"]),
                         (["--source=tb", path], ["--source=tb"]),
                         (["--source=verl"], ["no log given"]),
                         (["--source=verl", "--problems=many", path], ["--problems=many"]),
                         (["--source=verl", "--problems=", path], ["--problems=:"]),
                         (["--source=verl", "--problems=0", path], ["--problems=0"]),
                         (["--source=verl", "--B_q=8", path], ["--B_q=8", "B_p"]),
                         (["--source=verl", "--n", path], ["--n"]),
                         (["--source=verl", tmp_path / "none"], [tmp_path / "none"])):
        refused(script("data/logs/prepare.py", "--problems=300", *words), *parts)
    done = script("data/logs/prepare.py", "--help")
    assert done.code == 0 and "--metric_column" in done.stdout
