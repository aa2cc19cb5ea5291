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
    def run(source, *words, out="out"):
        return script("data/logs/prepare.py", f"--source={source}", f"--out={tmp_path / out}",
                      f"--problems={P}", *words)
    return run


@pytest.fixture
def read(run, tmp_path):
    """Return read(source, *words, out=FOLDER), which returns the only run and the printed text."""
    def read(source, *words, out="out"):
        done = run(source, *words, out=out)
        assert done.code == 0, done.stderr
        return records(tmp_path / out), done.stdout
    return read


def records(folder):
    """Return the only log below `folder` as .folder, .header, .step, .eval ({step: record}), .end.
    """
    [path] = Path(folder).glob("*/log.jsonl")
    log = read_log(path)
    return SimpleNamespace(folder=path.parent, header=log[0], end=log[-1], **{
        kind: {r["step"]: r for r in log if r["type"] == kind} for kind in ("step", "eval")})


def read_all(folder):
    """Return {n: records} of the runs below `folder`."""
    return {log[0]["config"]["n"]: log for log in map(read_log, folder.glob("*/log.jsonl"))}


# --------------------------------------------------------------------------------------------------
# Writers

def verl_rows(B_p, n, seed=0, source="openai/gsm8k", lr=1e-6):
    """Return {step: metrics} as veRL 0.9.1 logs them.

    Names are from fit and _val_metrics_update in verl/trainer/ppo/ray_trainer.py, numbers from
    trainer/ppo/metric_utils.py. Validation precedes the first update; later it is in the record of
    the update that it follows.
    """
    rng, rows = np.random.default_rng([seed, n]), {}
    for m in range(STEPS + 1):
        row = {}
        if m:
            response, prompt = 100.0 + m, 50.0
            # orjson writes NaN as null
            row |= {"actor/lr": lr, "actor/grad_norm": 0.3, "training/global_step": m,
                    "training/epoch": 0, "critic/score/mean": 0.3 + 0.01 * m,
                    "critic/score/max": 1.0, "critic/rewards/mean": 0.3 + 0.01 * m,
                    "response_length/mean": response, "response_length/clip_ratio": 0.0,
                    "prompt_length/mean": prompt, "timing_s/gen": 1.5, "timing_s/step": 2.0,
                    "perf/total_num_tokens": int(B_p * n * (response + prompt)),
                    "critic/vf_explained_var": None}
        if m % EVERY == 0:
            right = rng.random((P, N)) < 0.3 + 0.3 * m / STEPS
            # with replacement: (P, 1000, j)
            drawn = {j: right[:, rng.integers(0, N, (1000, j))] for j in (2, N)}
            numbers = {f"mean@{N}": right.mean(), f"std@{N}": right.std(1).mean()}
            for j, x in drawn.items():
                numbers |= {f"best@{j}/mean": x.max(2).mean(),
                            f"best@{j}/std": x.max(2).std(1).mean(),
                            f"worst@{j}/mean": x.min(2).mean(),
                            f"worst@{j}/std": x.min(2).std(1).mean()}
            for name, value in numbers.items():
                core = name.startswith(("mean", "maj", "best")) and f"@{N}" in name
                row[f"{'val-core' if core else 'val-aux'}/{source}/reward/{name}"] = float(value)
            row |= {"val-aux/num_turns/mean": 2.0}
        rows[m] = row
    return rows


def write_verl(path, rows):
    """Write compact lines {"step", "data"} as FileLogger.log in verl/utils/tracking.py 0.9.1 does.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(dict(step=m, data=row), separators=(",", ":")) + "\n"
                            for m, row in rows.items()))
    return path


def write_csv(path, header, rows, quoting=csv.QUOTE_MINIMAL):
    """Write dicts as CSV, with an empty cell if a row has no value."""
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, quoting=quoting)
        writer.writerow(header)
        writer.writerows([row.get(name, "") for name in header] for row in rows)
    return path


def write_history(path, rows):
    """Write run.history().to_csv() as wandb 0.31's apis/public/runs.py and pandas do.

    First an index without a name, then W&B's own columns and the metrics. rows: {_step: metrics}.
    """
    table = [{"": i, "_step": m, "_runtime": 10.0 * i, "_timestamp": 1.7e9 + 10 * i, **row}
             for i, (m, row) in enumerate(rows.items())]
    return write_csv(path, list(dict.fromkeys(key for row in table for key in row)), table)


def write_chart(path, runs, axis="Step"):
    """Write a chart's CSV export, as found in public repositories.

    All cells are quoted. Each run has its _step and its metric, each with the __MIN and __MAX that
    W&B draws around it. runs: {name: {step: {metric: value}}}.
    """
    steps = sorted({m for rows in runs.values() for m in rows})
    header, table = [axis], {m: {axis: m} for m in steps}
    for name, rows in runs.items():
        for metric in sorted({"_step", *(metric for row in rows.values() for metric in row)}):
            header += [f"{name} - {metric}{end}" for end in ("", "__MIN", "__MAX")]
            for m, row in ((m, {"_step": m, **row}) for m, row in rows.items()):
                if metric in row:
                    table[m] |= dict(zip(header[-3:],
                                         (row[metric], row[metric] - 0.2, row[metric] + 0.2)))
    return write_csv(path, header, list(table.values()), csv.QUOTE_ALL)


# --------------------------------------------------------------------------------------------------
# veRL

def test_verl(script, run, tmp_path):
    out = tmp_path / "out"
    paths = [write_verl(tmp_path / f"grpo_Bp8_n{n}_seed0.jsonl",  # lr follows sqrt(B_p n)
                        verl_rows(8, n, lr=1e-6 * (8 * n / 1024) ** 0.5)) for n in (4, 16)]
    done = run("verl", "--lr_scaling=sqrt", *paths)
    assert done.code == 0, done.stderr
    assert f"binomial, over {P} problems x {N} samples" in done.stdout

    logs = read_all(out)
    assert sorted(logs) == [4, 16]
    for n, (header, *log) in logs.items():
        cfg, rows = header["config"], verl_rows(8, n)
        want = dict(B_p=8, n=n, C=8 * n * STEPS, seed=0, k=N, samples=N, lr_base=1e-6)
        assert {key: cfg[key] for key in want} == want and set(cfg) == set(config.config)
        assert header["schema"] == 1 and header["source"] == "verl"
        assert header["source_file"] == f"grpo_Bp8_n{n}_seed0.jsonl"
        assert header["biased"] == ["best@2", "best@4", "worst@2", "worst@4"]
        assert header["derived"] == config.derive(cfg)
        assert header["derived"]["lr"] == pytest.approx(1e-6 * (8 * n / 1024) ** 0.5)
        assert (out / config.run_name(cfg) / "log.jsonl").exists()
        steps, evals = ([r for r in log if r["type"] == kind] for kind in ("step", "eval"))
        for m, r in enumerate(steps, 1):
            assert (r["step"], r["rollouts"]) == (m, 8 * n * m)
            assert r["reward"] == rows[m]["critic/score/mean"]
            assert r["tokens"] == 8 * n * (100 * m + m * (m + 1) // 2)
        assert len(steps) == STEPS
        assert [r["rollouts"] for r in evals] == [8 * n * m for m in range(0, STEPS + 1, EVERY)]
        for r in evals:
            row = rows[r["step"]]
            assert r["avg@4"] == row[METRIC]
            assert r["best@4"] == row["val-core/openai/gsm8k/reward/best@4/mean"]
            assert r["best@2"] == row["val-aux/openai/gsm8k/reward/best@2/mean"]
            assert r["worst@4"] == row["val-aux/openai/gsm8k/reward/worst@4/mean"]
            assert (r["set"], r["k"], r["samples"], r["problems"]) == ("val", N, N, P)
            assert "correct" not in r
            assert r["tokens"] == next((s["tokens"] for s in steps if s["step"] == r["step"]), 0)
        assert log[-1] == dict(type="end", status="budget", rollouts=8 * n * STEPS)

    done = script("frontier.py", f"--runs={out}", "--metric=avg@4")
    assert done.code == 0, done.stderr
    assert "2 runs used, 0 dropped" in done.stdout


def test_verl_log_that_begins_at_step_6_has_no_sums(read, tmp_path):
    rows = verl_rows(8, 4)
    path = write_verl(tmp_path / "log.jsonl", {m: rows[m] for m in rows if m > 5})
    log, printed = read("verl", *AT_8_4, "--seed=3", "--k=2", path)
    assert "the steps 1 to 5 are missing" in printed
    assert log.header["config"]["seed"] == 3 and log.folder.name.startswith("Bp8_n4_seed3_")
    assert log.step[6]["rollouts"] == 6 * 32
    assert not any("tokens" in r for r in log.step.values())
    assert sorted(log.eval) == [6, 9, 12] and not any("tokens" in r for r in log.eval.values())
    assert log.eval[6]["avg@2"] == rows[6][METRIC] and log.eval[6]["k"] == 2


def test_verl_with_two_data_sources_needs_a_choice(run, read, tmp_path):
    rows, name = verl_rows(8, 4), f"val-core/aime/reward/mean@{N}"
    for m, row in verl_rows(8, 4, seed=1, source="aime").items():
        rows[m] |= row
    path = write_verl(tmp_path / "log.jsonl", rows)
    refused(run("verl", *AT_8_4, path), path, "--metric_column=", name, "val-core/openai/gsm8k")
    log, _ = read("verl", *AT_8_4, f"--metric_column={name}", path)
    assert log.eval[3]["avg@4"] == rows[3][name]
    assert log.eval[3]["best@4"] == rows[3]["val-core/aime/reward/best@4/mean"]


@pytest.mark.parametrize("reward, lowest, said", [
    (lambda m: -0.4, None, "from -0.4 to 1"),
    (lambda m: 0.04 * m, -1.0, "from -1 to 1"),  # the mean is above 0, the lowest rollout is not
    (lambda m: -0.25 + 0.0625 * m, None, "from -0.1875 to 1")])  # below 0 in some steps
def test_verl_training_reward_outside_of_0_to_1_is_left_out(read, tmp_path, reward, lowest, said):
    rows = verl_rows(8, 4)
    for m in range(1, STEPS + 1):
        rows[m]["critic/score/mean"] = reward(m)
        rows[m] |= {"critic/score/min": lowest} if lowest else {}
    log, printed = read("verl", *AT_8_4, write_verl(tmp_path / "log.jsonl", rows))
    assert f"critic/score/mean is left out: its rewards range {said}" in printed
    assert not any("reward" in r for r in log.step.values())


def test_verl_log_of_a_run_that_was_started_again(read, tmp_path):
    """The later start counts from its first step on, and a printed line says so."""
    rows, other = verl_rows(8, 4), verl_rows(8, 4, seed=1)

    def read_pairs(name, *pairs):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps(dict(step=m, data=row)) + "\n" for m, row in pairs))
        return read("verl", *AT_8_4, path, out=name)
    resumed, printed = read_pairs("resumed", *rows.items(), *((m, other[m]) for m in range(5, 8)))
    assert "the log goes back from step 12 to 5: the run was started again" in printed
    assert sorted(resumed.step) == list(range(1, 8)) and sorted(resumed.eval) == [0, 3, 6]
    assert resumed.eval[3]["avg@4"] == rows[3][METRIC] != other[3][METRIC]
    assert resumed.eval[6]["avg@4"] == other[6][METRIC]
    assert resumed.end["rollouts"] == 7 * 32
    fresh, printed = read_pairs("fresh", *rows.items(), *((m, other[m]) for m in range(7)))
    assert "goes back from step 12 to 0" in printed
    assert {m: r["avg@4"] for m, r in fresh.eval.items()} == {m: other[m][METRIC]
                                                              for m in (0, 3, 6)}
    _, printed = read_pairs("plain", *rows.items())
    assert not any(word in printed for word in ("again", "missing"))


@pytest.mark.parametrize("step", ["Step", "train/global_step"])
def test_csv_of_a_run_that_was_started_again(read, tmp_path, step):
    """In a CSV file too, the later start counts; the rows are in the order of logging."""
    first = {10 * m: 0.2 + 0.02 * m for m in range(12)}
    later = {65 + 10 * m: 0.1 + 0.01 * m for m in range(6)}
    header = "Wall time", step, "Value"
    rows = [(i, *row) for i, row in enumerate([*first.items(), *later.items()])]
    path = write_csv(tmp_path / "Bp8_n8_seed1.csv", header, [dict(zip(header, r)) for r in rows])
    log, printed = read("wandb", "--metric_column=Value", "--samples=4", path)
    assert {m: r["avg@4"] for m, r in log.eval.items()} == {
        m: y for m, y in first.items() if m < 65} | later
    assert "goes back from step 110 to 65: the run was started again" in printed


def test_missing_steps_are_printed(read, tmp_path):
    rows, outs = verl_rows(8, 4), iter("abcdefgh")

    def gaps(source, *words):
        _, printed = read(source, *AT_8_4, *words, out=next(outs))
        return [line.partition("the steps ")[2] for line in printed.splitlines()
                if line.endswith("are missing")]
    for steps, want in (([0, 1, 2, 3, 6, 7, 9, 10, 12], ["4 to 5, 8, 11 are missing"]),
                        ([1, 3, 6, 7, 9, 10, 12], ["2, 4 to 5, 8 and 1 more are missing"])):
        path = write_verl(tmp_path / "log.jsonl", {m: rows[m] for m in steps})
        assert gaps("verl", path) == want
    state = json.loads((TRL / "Bp4_n4/trainer_state.json").read_text())
    path = tmp_path / "trainer_state.json"
    for first, want in ((5, []), (105, ["1 to 100 are missing"])):  # logged every fifth step
        path.write_text(json.dumps(dict(log_history=[
            e | dict(step=first + 5 * (e["step"] - 1)) for e in state["log_history"]
            if e["step"]])))
        assert gaps("trl", "--samples=4", path) == want
    # W&B samples its exports, so only a gap of more than two usual steps counts
    for steps, want in (([0, 1, 2, 3, 5, 6, 7, 9, 10, 12], []),
                        ([0, 1, 2, 3, 7, 8, 9, 10, 12], ["4 to 6 are missing"])):
        assert gaps("wandb", write_history(tmp_path / "h.csv", {m: rows[m] for m in steps})) == want


@pytest.mark.parametrize("words, change, message", [
    ([], {}, "--B_p= and --n= must be given"),
    (["--n=4"], {}, "--B_p="),
    (["--B_p=8", "--n=1"], {}, "--n=1"),
    (["--B_p=8", "--n=16"], {}, "8 x 16 = 128, but by its token counts a step has 32 rollouts"),
    ([*AT_8_4, "--samples=8"], {}, "--samples=8"),
    ([*AT_8_4, "--k=8"], {}, "--k=8"),
    ([*AT_8_4, "--metric_column=acc"], {}, "--metric_column="),
    ([*AT_8_4, "--metric_column=val-aux/x/mean@4"], {"val-aux/x/mean@4": -0.4}, "is -0.4 at step"),
    (AT_8_4, {"train/num_gen_batches": 2}, "filter_groups"),
    (AT_8_4, {"training/filter_groups/evicted_samples": 0}, "filter_groups")])
def test_verl_refuses(run, tmp_path, words, change, message):
    path = write_verl(tmp_path / "log.jsonl",
                      {m: row | change for m, row in verl_rows(8, 4).items()})
    refused(run("verl", *words, path), path, message)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("source, text",
                         [("verl", '{"step": 1, "loss": 2}\n'),
                          ("verl", '{"step": 1, "data"\n{"step": 2, "data": {}}\n'), ("verl", ""),
                          ("trl", "{}"), ("trl", "{"), ("trl", '{"log_history": [{"loss": 1}]}'),
                          ("trl", '{"log_history": [{"step": 0, "eval_reward": 1}]}'),
                          ("wandb", ""), ("wandb", "Name,State,Runtime\na,finished,3\n"),
                          ("wandb", "Relative Time (Process),a - reward\n1,0.5\n"),
                          ("wandb", '"Step","a - reward","a - reward"\n1,0.5,0.6\n')])
def test_files_that_are_not_logs_are_refused(run, tmp_path, source, text):
    path = tmp_path / "log.txt"
    path.write_text(text)
    refused(run(source, "--samples=4", *AT_8_4, path), path)
    assert not (tmp_path / "out").exists()


# --------------------------------------------------------------------------------------------------
# TRL: files that TRL wrote (tests/logs/trl/make.py)

def history():
    """Return the log_history of a run of TRL."""
    return json.loads((TRL / "Bp4_n4/trainer_state.json").read_text())["log_history"]


def write_state(path, entries):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(dict(log_history=entries)))
    return path


def test_trl(script, run, tmp_path):
    done = run("trl", "--samples=4", "--model=data/arithmetic/base", TRL / "Bp4_n4",
               TRL / "Bp4_n8/trainer_state.json")
    assert done.code == 0, done.stderr
    logs = read_all(tmp_path / "out")
    assert sorted(logs) == [4, 8]
    for n, (header, *log) in logs.items():
        entries = json.loads((TRL / f"Bp4_n{n}/trainer_state.json").read_text())["log_history"]
        cfg = header["config"]
        assert (cfg["B_p"], cfg["seed"], cfg["C"], cfg["samples"], cfg["k"], cfg["lr_base"],
                cfg["model"]) == (4, 0, 4 * n * 12, 4, 4, 1e-4, "data/arithmetic/base")
        assert header["source"] == "trl" and header["biased"] == []
        evals = [(r["step"], r["rollouts"], r["avg@4"], r["problems"], r["samples"])
                 for r in log if r["type"] == "eval"]
        assert evals == [(e["step"], e["step"] * 4 * n, e["eval_reward"], P, 4)
                         for e in entries if "eval_reward" in e]
        assert [m for m, *_ in evals] == [0, 3, 6, 9, 12]
        steps = {r["step"]: r for r in log if r["type"] == "step"}
        assert {m: r["reward"] for m, r in steps.items() if "reward" in r} == {
            e["step"]: e["reward"] for e in entries if "reward" in e}
        assert [r["rollouts"] for r in steps.values()] == [4 * n * m for m in range(1, 13)]
        if n == 4:  # TRL's num_tokens has the prompt tokens too, n times each
            prompts = {e["step"]: e["num_tokens"] - steps[e["step"]]["tokens"]
                       for e in entries if "num_tokens" in e}
            assert all(4 * n * 4 * m <= count <= 4 * n * 10 * m and count % n == 0
                       for m, count in prompts.items())
        else:  # a generation is used for two steps, so half of the steps have no length
            assert not any("tokens" in r for r in steps.values())
    done = script("frontier.py", f"--runs={tmp_path / 'out'}", "--metric=avg@4")
    assert done.code == 0 and "2 runs used, 0 dropped" in done.stdout, done.stderr


def test_trl_names_the_options_that_its_state_lacks(run, read, tmp_path):
    shutil.copytree(TRL / "Bp4_n4", tmp_path / "checkpoint-12")
    path = tmp_path / "checkpoint-12/trainer_state.json"
    refused(run("trl", path.parent), path.parent, "--B_p= and --n= and --samples=")
    refused(run("trl", "--B_p=4", "--n=4", path), path, "--samples=")
    log, _ = read("trl", *OF_TRL, "--seed=2", "--lr_base=3e-4",
                  "--metric_column=eval_rewards/exact/mean", path)
    assert log.header["config"]["seed"] == 2 and log.header["config"]["lr_base"] == 3e-4
    assert log.step[1]["reward"] == 0.375 and log.end["rollouts"] == 192


@pytest.mark.parametrize("end", ["/mean", ""])  # old versions of TRL leave /mean out of the names
def test_trl_sum_of_rewards_is_not_a_share(run, read, tmp_path, end):
    """eval_reward is a weighted sum of all reward functions. It is used only if it equals one of
    them.
    """
    path = tmp_path / "trainer_state.json"

    def with_format(reward, weight=1.0):
        entries = []
        for e in history():
            for b in ("", "eval_"):
                if f"{b}reward" in e:
                    right = e.pop(f"{b}rewards/exact/mean")
                    e |= {f"{b}rewards/exact{end}": right, f"{b}rewards/format{end}": reward,
                          f"{b}reward": weight * right + reward}
            entries.append(e)
        write_state(path, entries)
    with_format(0.25)
    refused(run("trl", *OF_TRL, path), path, "eval_reward is a sum of rewards", "--metric_column=",
            f"eval_rewards/exact{end}, eval_rewards/format{end}")
    log, printed = read("trl", *OF_TRL, f"--metric_column=eval_rewards/exact{end}", path)
    assert f"reward is left out: it is a sum of rewards (rewards/exact{end}" in printed
    assert [r["avg@4"] for r in log.eval.values()] == [
        e["eval_reward"] for e in history() if "eval_reward" in e]
    assert not any("reward" in r for r in log.step.values())
    with_format(0.0)  # the format counts for nothing, so the sum is the share of right answers
    log, _ = read("trl", *OF_TRL, path, out="one")
    assert all("reward" in r for r in log.step.values())
    with_format(0.0, weight=0.5)
    refused(run("trl", *OF_TRL, path, out="no"), path, "sum of rewards")
    assert not (tmp_path / "no").exists()


def test_a_later_checkpoint_replaces_an_earlier_one(run, read, tmp_path):
    """A later call with a longer log replaces the shorter log. One call takes one log per run."""
    early, late = (write_state(tmp_path / f"checkpoint-{k}/trainer_state.json",
                               [e for e in history() if e["step"] <= k]) for k in (6, 12))
    refused(run("trl", *OF_TRL, early, late), late, early, "only the longest log", "--seed=")
    assert not (tmp_path / "out").exists()
    assert sorted(read("trl", *OF_TRL, early)[0].eval) == [0, 3, 6]
    assert sorted(read("trl", *OF_TRL, late)[0].eval) == [0, 3, 6, 9, 12]
    refused(run("trl", *OF_TRL, early), early, "not the beginning", "--seed=", "--out=")
    assert sorted(records(tmp_path / "out").eval) == [0, 3, 6, 9, 12]


def test_trl_with_logging_steps_3(read, tmp_path):
    """If TRL logs means over three steps, the sum of response tokens is unchanged."""
    steps = [e for e in history() if "reward" in e]
    evals = [e for e in history() if "eval_reward" in e]
    means = [dict(three[-1]) | {key: sum(e[key] for e in three) / 3
                                for key in ("reward", "completions/mean_length")}
             for three in zip(steps[::3], steps[1::3], steps[2::3])]
    path = write_state(tmp_path / "trainer_state.json",
                       sorted(means + evals, key=lambda e: e["step"]))
    third, _ = read("trl", *OF_TRL, path, out="third")
    every, _ = read("trl", *OF_TRL, TRL / "Bp4_n4", out="all")
    assert sorted(third.step) == [3, 6, 9, 12] and third.eval == every.eval
    assert all(third.step[m]["tokens"] == every.step[m]["tokens"] for m in third.step)


# --------------------------------------------------------------------------------------------------
# W&B

def test_wandb_history_of_verl(read, tmp_path):
    rows = {m: {key: value for key, value in row.items() if value is not None}
            for m, row in verl_rows(8, 4).items()}
    log, _ = read("wandb", *AT_8_4, write_history(tmp_path / "history.csv", rows))
    cfg = log.header["config"]
    assert (cfg["B_p"], cfg["n"], cfg["samples"], cfg["C"], cfg["lr_base"]) == (8, 4, 4, 384, 1e-6)
    assert log.header["source"] == "wandb"
    assert log.header["biased"] == ["best@2", "best@4", "worst@2", "worst@4"]
    assert sorted(log.step) == list(range(1, STEPS + 1)) and sorted(log.eval) == [0, 3, 6, 9, 12]
    assert log.step[5]["rollouts"] == 160 and log.step[5]["reward"] == rows[5]["critic/score/mean"]
    assert log.eval[6]["avg@4"] == rows[6][METRIC] and log.eval[6]["problems"] == P


def test_wandb_history_of_trl(read, tmp_path):
    """transformers logs an update and its evaluation in two calls, as train/ and eval/.

    train/global_step is the update; _step counts calls.
    """
    rows = {}
    # transformers' rewrite_logs: eval_x becomes eval/x, any other x becomes train/x
    for i, call in enumerate(history()):
        rows[2 * i] = {f"eval/{key[5:]}" if key.startswith("eval_") else f"train/{key}": value
                       for key, value in call.items() if key != "step"}
        rows[2 * i]["train/global_step"] = call["step"]
        rows[2 * i + 1] = {"profiling/Time taken: GRPOTrainer._prepare_inputs": 0.1}
    path = write_history(tmp_path / "Bp4_n4.csv", rows)
    log, _ = read("wandb", "--samples=4", path)
    same, _ = read("trl", "--samples=4", TRL / "Bp4_n4", out="same")
    assert log.eval == same.eval and sorted(log.step) == list(range(1, 13))
    assert log.step == same.step


def test_wandb_charts(script, run, tmp_path):
    """Two charts of two runs are joined by the runs' names, which also have B_p, n and seed."""
    runs = {f"qwen - Bp8_n{n}_seed2": verl_rows(8, n) for n in (4, 16)}
    reward = "critic/score/mean"
    charts = [write_chart(tmp_path / f"wandb_export_{i}.csv",
                          {name: {m: {key: row[key]} for m, row in rows.items() if key in row}
                           for name, rows in runs.items()})
              for i, key in enumerate((METRIC, reward))]
    done = run("wandb", *charts)
    assert done.code == 0, done.stderr
    logs = read_all(tmp_path / "out")
    assert sorted(logs) == [4, 16]
    for n, (header, *log) in logs.items():
        rows, cfg = runs[f"qwen - Bp8_n{n}_seed2"], header["config"]
        assert (cfg["B_p"], cfg["seed"], cfg["samples"]) == (8, 2, N) and header["biased"] == []
        assert header["source_file"] == "wandb_export_0.csv, wandb_export_1.csv"
        assert {r["step"]: r["avg@4"] for r in log if r["type"] == "eval"} == {
            m: row[METRIC] for m, row in rows.items() if METRIC in row}
        assert {r["rollouts"]: r["reward"] for r in log if r["type"] == "step"} == {
            8 * n * m: row[reward] for m, row in rows.items() if reward in row}
    done = script("frontier.py", f"--runs={tmp_path / 'out'}", "--metric=avg@4")
    assert done.code == 0 and "2 runs used, 0 dropped" in done.stdout, done.stderr

    # refused: no evaluations; one column per run; another chart with other values; means over runs;
    # a name without B_p and n
    refused(run("wandb", charts[1], out="no"), charts[1], "no validation metric", f"({reward})")
    wide = write_csv(tmp_path / "wide.csv", ["Step", "0.6b", "14b"],
                     [{"Step": m, "0.6b": 0.1, "14b": 0.7} for m in range(4)])
    refused(run("wandb", wide, out="no"), wide, "(0.6b, 14b)")
    other = write_chart(tmp_path / "other.csv",
                        {name: {m: {METRIC: 0.125} for m in rows} for name, rows in runs.items()})
    refused(run("wandb", charts[0], other, out="no"), other, charts[0])
    group = write_chart(tmp_path / "group.csv",
                        {"Group: Bp8_n4": {m: {METRIC: 0.5} for m in range(4)}})
    refused(run("wandb", group, out="no"), group, "grouped")
    named = write_chart(tmp_path / "named.csv",
                        {"swift-lion-7": {m: {METRIC: 0.5} for m in range(4)}})
    refused(run("wandb", named, out="no"), named, "swift-lion-7", "--B_p= and --n=")
    assert not (tmp_path / "no").exists()


# --------------------------------------------------------------------------------------------------
# What is written, and where

def test_nothing_is_overwritten(run, tmp_path):
    out = tmp_path / "out"
    a = write_verl(tmp_path / "a.jsonl", verl_rows(8, 4))
    b = write_verl(tmp_path / "b.jsonl", verl_rows(8, 4, seed=1))
    c = write_verl(tmp_path / "c_n16.jsonl", verl_rows(8, 16))
    refused(run("verl", *AT_8_4, a, b), b, a, "--seed=")  # two of one name: neither is written
    assert not out.exists()
    assert run("verl", *AT_8_4, a).code == 0
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert run("verl", *AT_8_4, a).code == 0  # again: the same bytes
    refused(run("verl", *AT_8_4, b), b, out, "--seed=")
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    assert len(before) == 1
    assert run("verl", *AT_8_4, "--seed=1", b).code == 0
    assert run("verl", "--B_p=8", c).code == 0
    assert sorted(path.name.rsplit("_", 1)[0]
                  for path in out.iterdir()) == ["Bp8_n16_seed0", "Bp8_n4_seed0", "Bp8_n4_seed1"]


def test_command_line(script, tmp_path):
    path = write_verl(tmp_path / "log.jsonl", verl_rows(8, 4))
    for words, parts in (([path], ["--source=", "verl, trl, wandb"]),
                         (["--source=tb", path], ["--source=tb"]),
                         (["--source=verl"], ["no log given"]),
                         (["--source=verl", "--problems=many", path], ["--problems=many"]),
                         (["--source=verl", "--problems=", path], ["--problems=:"]),
                         (["--source=verl", "--B_q=8", path], ["--B_q=8", "B_p"]),
                         (["--source=verl", "--n", path], ["--n"]),
                         (["--source=verl", tmp_path / "none"], [tmp_path / "none"])):
        refused(script("data/logs/prepare.py", "--problems=300", *words), *parts)
    done = script("data/logs/prepare.py", "--help")
    assert done.code == 0 and "--metric_column" in done.stdout
