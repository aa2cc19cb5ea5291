"""data/logs/prepare.py on logs of veRL, TRL and W&B in their writers' formats, each run as a user
starts it."""
import csv
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import config  # conftest.py has put the root on sys.path
from core.log import read_log

TRL = Path(__file__).resolve().parent / "logs/trl"
# validation problems and samples of each, updates, updates between evaluations
P, N, STEPS, EVERY = 40, 4, 12, 3


def records(folder):
    """The one log in `folder`'s run folders as .folder, .header, .step, .eval ({step: record}),
    .end."""
    [path] = Path(folder).glob("*/log.jsonl")
    log = read_log(path)
    return SimpleNamespace(folder=path.parent, header=log[0], end=log[-1], **{
        kind: {r["step"]: r for r in log if r["type"] == kind} for kind in ("step", "eval")})


def refused(done, *words):
    """Bad input: exit code 2 and one line, which has these words in it."""
    assert done.code == 2, done.stdout + done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert all(str(word) in done.stderr for word in words), done.stderr


# --------------------------------------------------------------------------------------------------
# Writers

def verl_rows(B_p, n, seed=0, source="openai/gsm8k", lr=1e-6):
    """{step: metrics} as veRL 0.9.1 logs them: verl/trainer/ppo/ray_trainer.py, fit and
    _val_metrics_update; the numbers of trainer/ppo/metric_utils.py. Validation comes before the
    first update, then in the record of the update it follows."""
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
    """As FileLogger.log does, verl/utils/tracking.py of 0.9.1: one compact line {"step", "data"}
    for each call."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(dict(step=m, data=row), separators=(",", ":")) + "\n"
                            for m, row in rows.items()))
    return path


def verl_config(B_p, n, lr=1e-6, **trainer):
    """The part of veRL's config that is read, nested as hydra dumps it, an interpolation of its own
    left in."""
    return dict(
        data=dict(train_batch_size=B_p, seed=None, max_response_length=2048, max_prompt_length=512),
        actor_rollout_ref=dict(
            model=dict(path="Qwen/Qwen2.5-7B-Instruct"),
            actor=dict(optim=dict(lr=lr), use_kl_loss=True, kl_loss_coef=0.002, entropy_coeff=0),
            rollout=dict(n=n, temperature=1.0,
                         response_length="${oc.select:data.max_response_length,512}",
                         val_kwargs=dict(n=N, do_sample=True, temperature=1.0))),
        algorithm=dict(adv_estimator="grpo", filter_groups=None),
        trainer=dict(logger=["console", "file"], **trainer))


def write_yaml(path, tree):
    import yaml
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(tree))


def write_csv(path, header, rows, quoting=csv.QUOTE_MINIMAL):
    """Dicts as CSV, an empty cell where a row has no value."""
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, quoting=quoting)
        writer.writerow(header)
        writer.writerows([row.get(name, "") for name in header] for row in rows)
    return path


def write_history(path, rows, **more):
    """run.history().to_csv() as wandb 0.31's apis/public/runs.py and pandas make it: an index
    without a name, then W&B's own columns and the metrics. rows: {_step: metrics}."""
    table = [{"": i, "_step": m, "_runtime": 10.0 * i, "_timestamp": 1.7e9 + 10 * i, **row, **more}
             for i, (m, row) in enumerate(rows.items())]
    return write_csv(path, list(dict.fromkeys(key for row in table for key in row)), table)


def write_chart(path, runs, axis="Step"):
    """A chart's CSV export, as such files in public repositories are: all cells quoted; for each
    run its _step and its metric, each with the band that W&B draws about it. runs: {name: {step:
    {metric: value}}}."""
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

def test_verl(script, tmp_path):
    logs, out = tmp_path / "project", tmp_path / "out"
    for n in (4, 16):  # lr follows sqrt(B_p n), as in the paper
        lr = 1e-6 * (8 * n / 1024) ** 0.5
        write_verl(logs / f"grpo{n}.jsonl", verl_rows(8, n, lr=lr))
        write_yaml(logs / f"grpo{n}.yaml", verl_config(8, n, lr))
    words = [f"--out={out}", "--source=verl", f"--problems={P}", "--lr_scaling=sqrt"]
    done = script("data/logs/prepare.py", *words, *sorted(logs.glob("*.jsonl")))
    assert done.code == 0, done.stderr
    assert done.stdout.count("biased, veRL draws with replacement: best@2, best@4, worst@2, "
                             "worst@4") == 2
    assert f"binomial, over {P} problems x {N} samples" in done.stdout

    logs_of = {log[0]["config"]["n"]: log for log in map(read_log, out.glob("*/log.jsonl"))}
    assert sorted(logs_of) == [4, 16]
    for n, (header, *log) in logs_of.items():
        cfg, rows = header["config"], verl_rows(8, n)
        want = dict(B_p=8, n=n, C=8 * n * STEPS, seed=0, k=N, samples=N,
                    model="Qwen/Qwen2.5-7B-Instruct", temperature=1.0, max_prompt_tokens=512,
                    max_new_tokens=2048, kl_coef=0.002, entropy_coef=0.0, lr_base=1e-6, algo="grpo")
        assert {key: cfg[key] for key in want} == want and set(cfg) == set(config.config)
        assert set(want) - {"C", "k", "seed"} <= set(header["known"])
        assert "seed" not in header["known"]
        assert header["schema"] == 1 and header["source"] == "verl"
        assert header["source_file"] == f"grpo{n}.jsonl"
        assert header["biased"] == ["best@2", "best@4", "worst@2", "worst@4"]
        assert header["derived"] == config.derive(cfg)
        assert header["derived"]["lr"] == pytest.approx(1e-6 * (8 * n / 1024) ** 0.5)
        assert (out / config.run_name(cfg) / "log.jsonl").exists()
        steps, evals = ([r for r in log if r["type"] == kind] for kind in ("step", "eval"))
        assert [r["rollouts"] for r in steps] == [8 * n * m for m in range(1, STEPS + 1)]
        assert [r["reward"] for r in steps] == [rows[m]["critic/score/mean"]
                                                for m in range(1, STEPS + 1)]
        assert [r["wall_s"] for r in steps] == [2.0 * m for m in range(1, STEPS + 1)]
        assert [r["tokens"] for r in steps] == [8 * n * (100 * m + m * (m + 1) // 2)
                                                for m in range(1, STEPS + 1)]
        assert [r["rollouts"] for r in evals] == [8 * n * m for m in range(0, STEPS + 1, EVERY)]
        for r in evals:
            row = rows[r["step"]]
            assert r["avg@4"] == row[f"val-core/openai/gsm8k/reward/mean@{N}"]
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
    used = json.loads((out / "frontier.json").read_text())["runs_used"]
    assert {r["run"] for r in used} == {log[0]["derived"]["run"] for log in logs_of.values()}


@pytest.mark.parametrize("name", ["config.yaml", "config.json", ".hydra/config.yaml", "log.json"])
def test_verl_finds_its_config(script, tmp_path, name):
    path = write_verl(tmp_path / "logs/log.jsonl", verl_rows(8, 4))
    tree = verl_config(8, 4, experiment_name="log")
    # what veRL prints at its start, pprint of a dict, saved under that name
    if name == "config.yaml":
        import pprint
        (path.parent / name).write_text(pprint.pformat(tree))
    elif name.endswith("json"):
        (path.parent / name).write_text(json.dumps(tree))
    else:
        write_yaml(path.parent / name, tree)
    done = script("data/logs/prepare.py", "--source=verl", f"--out={tmp_path / 'out'}",
                  f"--problems={P}", path)
    assert done.code == 0, done.stderr
    cfg = records(tmp_path / "out").header["config"]
    assert (cfg["B_p"], cfg["n"], cfg["kl_coef"], cfg["lr_base"],
            cfg["lr_scaling"]) == (8, 4, 0.002, 1e-6, "constant")

    # a second log in the folder: the config is this run's where its experiment_name says so, and
    # only there
    other = write_verl(path.with_name("other.jsonl"), verl_rows(8, 4))
    words = ["--source=verl", f"--out={tmp_path / 'second'}", f"--problems={P}"]
    assert script("data/logs/prepare.py", *words, path).code == 0
    message = "--B_p= and --n=" if name == "log.json" else "may be another run's"
    refused(script("data/logs/prepare.py", *words, other), other, message)


def test_verl_without_config(script, tmp_path):
    """B_p and n from the command line or the log's name; a log that a resume cut at its beginning
    has no sums."""
    rows = verl_rows(8, 4)
    path = write_verl(tmp_path / "log.jsonl", {m: rows[m] for m in rows if m > 5})
    words = ["--source=verl", f"--problems={P}"]
    refused(script("data/logs/prepare.py", *words, path), path, "--B_p= and --n=")
    done = script("data/logs/prepare.py", *words, f"--out={tmp_path / 'a'}", "--B_p=8", "--n=4",
                  "--seed=3", "--k=2", path)
    assert done.code == 0, done.stderr
    run = records(tmp_path / "a")
    assert run.header["config"]["seed"] == 3 and run.folder.name.startswith("Bp8_n4_seed3_")
    assert run.step[6]["rollouts"] == 6 * 32
    assert not any({"tokens", "wall_s"} & set(r) for r in run.step.values())
    assert sorted(run.eval) == [6, 9, 12] and not any("tokens" in r for r in run.eval.values())
    assert run.eval[6]["avg@2"] == rows[6][f"val-core/openai/gsm8k/reward/mean@{N}"]
    assert run.eval[6]["k"] == 2

    named = write_verl(tmp_path / "qwen2.5_Bp8-n4_seed5.jsonl", rows)
    assert script("data/logs/prepare.py", *words, f"--out={tmp_path / 'b'}", named).code == 0
    cfg = records(tmp_path / "b").header["config"]
    assert (cfg["B_p"], cfg["n"], cfg["seed"]) == (8, 4, 5)


def test_verl_several_data_sources(script, tmp_path):
    rows = verl_rows(8, 4)
    for m, row in verl_rows(8, 4, seed=1, source="aime").items():
        rows[m] |= row
    path, name = write_verl(tmp_path / "log.jsonl", rows), f"val-core/aime/reward/mean@{N}"
    words = ["--source=verl", f"--out={tmp_path / 'out'}", f"--problems={P}", "--B_p=8", "--n=4",
             path]
    refused(script("data/logs/prepare.py", *words), path, "--metric_column=", name,
            "val-core/openai/gsm8k")
    done = script("data/logs/prepare.py", f"--metric_column={name}",
                  "--reward_column=critic/rewards/mean", *words)
    assert done.code == 0, done.stderr
    run = records(tmp_path / "out")
    assert run.eval[3]["avg@4"] == rows[3][name]
    assert run.eval[3]["best@4"] == rows[3]["val-core/aime/reward/best@4/mean"]
    assert run.step[3]["reward"] == rows[3]["critic/rewards/mean"]


def test_verl_rewards_that_are_no_shares(script, tmp_path):
    """A training reward from -1 to 1 is left out and said to be; such a validation reward is
    refused."""
    rows = verl_rows(8, 4)
    for row in rows.values():
        if "critic/score/mean" in row:
            row |= {"critic/score/mean": -0.4, "val-aux/dapo/score/mean@4": -0.4}
    path = write_verl(tmp_path / "log.jsonl", rows)
    words = ["--source=verl", f"--out={tmp_path / 'out'}", f"--problems={P}", "--B_p=8", "--n=4",
             path]
    done = script("data/logs/prepare.py", *words)
    assert done.code == 0 and "no training reward from 0 to 1" in done.stdout, done.stderr
    assert not any("reward" in r for r in records(tmp_path / "out").step.values())
    done = script("data/logs/prepare.py", "--metric_column=val-aux/dapo/score/mean@4", *words)
    refused(done, path, "-0.4", "no share of right")


def test_verl_scores_from_minus_one_to_one(script, tmp_path):
    """Means above 0 are no shares either where the lowest rollout has -1: all are left out."""
    rows = verl_rows(8, 4)
    for m, row in rows.items():
        if m:
            row |= {"critic/score/mean": 0.04 * m, "critic/score/min": -1.0}
    path = write_verl(tmp_path / "log.jsonl", rows)
    words = ["--source=verl", f"--problems={P}", "--B_p=8", "--n=4", path]
    done = script("data/logs/prepare.py", *words, f"--out={tmp_path / 'a'}")
    assert done.code == 0 and "critic/score/mean is left out, its rewards go from -1 to 1" in (
        done.stdout), done
    assert not any("reward" in r for r in records(tmp_path / "a").step.values())
    for m, row in rows.items():  # a part of the steps below 0, no minimum logged
        if m:
            row |= {"critic/score/mean": -0.25 + 0.0625 * m}
            del row["critic/score/min"]
    write_verl(path, rows)
    done = script("data/logs/prepare.py", *words, f"--out={tmp_path / 'b'}")
    assert done.code == 0 and "from -0.1875 to 1;" in done.stdout, done  # critic/score/max is 1
    assert not any("reward" in r for r in records(tmp_path / "b").step.values())


def test_verl_that_was_started_again(script, tmp_path):
    """One file, two starts: what the first had logged behind the point where the second began is
    gone from the run, and that is said. Twice one step: the later one."""
    rows, other = verl_rows(8, 4), verl_rows(8, 4, seed=1)

    def imported(name, *pairs):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps(dict(step=m, data=row)) + "\n" for m, row in pairs))
        done = script("data/logs/prepare.py", "--source=verl", f"--problems={P}", "--B_p=8",
                      "--n=4", f"--out={tmp_path / name}", path)
        assert done.code == 0, done.stderr
        return records(tmp_path / name), done.stdout
    metric = f"val-core/openai/gsm8k/reward/mean@{N}"
    resumed, said = imported("resumed", *rows.items(), *((m, other[m]) for m in range(5, 8)))
    assert "the log goes back from step 12 to 5: the run was started again" in said
    assert sorted(resumed.step) == list(range(1, 8)) and sorted(resumed.eval) == [0, 3, 6]
    assert resumed.eval[3]["avg@4"] == rows[3][metric] != other[3][metric]
    assert resumed.eval[6]["avg@4"] == other[6][metric]
    assert resumed.end["rollouts"] == 7 * 32
    fresh, said = imported("fresh", *rows.items(), *((m, other[m]) for m in range(7)))
    assert "goes back from step 12 to 0" in said and sorted(fresh.eval) == [0, 3, 6]
    assert [fresh.eval[m]["avg@4"] for m in (0, 3, 6)] == [other[m][metric] for m in (0, 3, 6)]
    twice, said = imported("twice", *((m, rows[m]) for m in range(4)), (3, other[3]))
    assert "twice in the log, the later one stands: step 3\n" in said
    assert twice.eval[3]["avg@4"] == other[3][metric]
    _, said = imported("plain", *rows.items())
    assert not any(word in said for word in ("again", "twice", "missing"))


@pytest.mark.parametrize("clock, woven", [("Wall time", False), ("Wall time", True),
                                          ("_timestamp", True), ("_step", True), ("", False)])
def test_a_csv_of_two_starts_follows_the_later_one(script, tmp_path, clock, woven):
    """From the step at which the later start begins, its rows count and none of the first start,
    also if the file is sorted by step; without a clock the file's order tells the starts apart."""
    first = {10 * m: 0.2 + 0.02 * m for m in range(12)}
    later = {65 + 10 * m: 0.1 + 0.01 * m for m in range(6)}
    lines = [(i, *row) for i, row in enumerate([*first.items(), *later.items()])]
    lines = [("", *row[1:]) if not clock else row for row in lines]
    if woven:
        lines.sort(key=lambda row: row[1])
    step = "train/global_step" if clock.startswith("_") else "Step"
    path = write_csv(tmp_path / "Bp8_n8_seed1.csv", [clock or "Name", step, "Value"],
                     [dict(zip((clock or "Name", step, "Value"), row)) for row in lines])
    done = script("data/logs/prepare.py", "--source=wandb", "--metric_column=Value",
                  "--problems=30", "--samples=4", f"--out={tmp_path / 'out'}", path)
    assert done.code == 0, done.stderr
    kept = {m: y for m, y in first.items() if m < 65} | later
    assert {m: r["avg@4"] for m, r in records(tmp_path / "out").eval.items()} == kept
    assert "goes back from step 110 to 65: the run was started again" in done.stdout


@pytest.mark.parametrize("clock", [True, False])
def test_a_history_whose_own_step_goes_back(script, tmp_path, clock):
    """veRL's step is W&B's _step: the clock tells two starts apart, without it the file's order."""
    rows, other = verl_rows(8, 4), verl_rows(8, 4, seed=1)
    table = [{"_step": m, **(dict(_timestamp=1.7e9 + i) if clock else {}), **row} for i, (m, row) in
             enumerate([*rows.items(), *((m, other[m]) for m in range(5, 8))])]
    if clock:
        table.sort(key=lambda row: row["_step"])
    path = write_csv(tmp_path / "h.csv", list(dict.fromkeys(key for row in table for key in row)),
                     table)
    done = script("data/logs/prepare.py", "--source=wandb", "--B_p=8", "--n=4", f"--problems={P}",
                  f"--out={tmp_path / 'out'}", path)
    assert done.code == 0 and "goes back from step 12 to 5" in done.stdout, done
    run, metric = records(tmp_path / "out"), f"val-core/openai/gsm8k/reward/mean@{N}"
    assert sorted(run.step) == list(range(1, 8)) and sorted(run.eval) == [0, 3, 6]
    assert run.eval[3]["avg@4"] == rows[3][metric] and run.eval[6]["avg@4"] == other[6][metric]


def test_steps_that_are_missing_are_said(script, tmp_path):
    rows = verl_rows(8, 4)

    def said(source, *words):
        out = tmp_path / f"out{len(list(tmp_path.iterdir()))}"
        done = script("data/logs/prepare.py", f"--source={source}", f"--problems={P}", "--B_p=8",
                      "--n=4", f"--out={out}", *words)
        assert done.code == 0, done.stderr
        return [line.partition("the steps ")[2] for line in done.stdout.splitlines()
                if line.endswith("are missing")]
    for steps, want in ((range(13), []), (range(6, 13), ["1 to 5 are missing"]),
                        ([0, 1, 2, 3, 6, 7, 9, 10, 12], ["4 to 5, 8, 11 are missing"]),
                        ([1, 3, 6, 7, 9, 10, 12], ["2, 4 to 5, 8 and 1 more are missing"])):
        path = write_verl(tmp_path / "log.jsonl", {m: rows[m] for m in steps})
        assert said("verl", path) == want
    state = json.loads((TRL / "Bp4_n4/trainer_state.json").read_text())
    path = tmp_path / "trainer_state.json"
    for first, want in ((5, []), (105, ["1 to 100 are missing"])):  # every fifth step
        path.write_text(json.dumps(dict(log_history=[
            e | dict(step=first + 5 * (e["step"] - 1)) for e in state["log_history"]
            if e["step"]])))
        assert said("trl", "--samples=4", path) == want
    # W&B's exports are sampled: what is longer than two usual steps
    for steps, want in (([0, 1, 2, 3, 5, 6, 7, 9, 10, 12], []),
                        ([0, 1, 2, 3, 7, 8, 9, 10, 12], ["4 to 6 are missing"])):
        assert said("wandb", write_history(tmp_path / "h.csv", {m: rows[m] for m in steps})) == want


@pytest.mark.parametrize("words, change, message", [
    (["--n=4"], {}, "--B_p="),
    (["--B_p=8", "--n=1"], {}, "--n=1"),
    (["--B_p=8", "--n=16"], {}, "8 x 16 = 128, but by its token counts a step has 32 rollouts"),
    (["--B_p=8", "--n=4", "--problems="], {}, "--problems="),
    (["--B_p=8", "--n=4", "--samples=8"], {}, "--samples=8"),
    (["--B_p=8", "--n=4", "--k=8"], {}, "--k=8"),
    (["--B_p=8", "--n=4", "--metric_column=acc"], {}, "--metric_column="),
    (["--B_p=8", "--n=4", "--reward_column=acc"], {}, "--reward_column=acc"),
    (["--B_p=8", "--n=4"], {"train/num_gen_batches": 2}, "filter_groups"),
    (["--B_p=8", "--n=4"], {"training/filter_groups/evicted_samples": 0}, "filter_groups")])
def test_verl_refuses(script, tmp_path, words, change, message):
    path = write_verl(tmp_path / "log.jsonl",
                      {m: row | change for m, row in verl_rows(8, 4).items()})
    done = script("data/logs/prepare.py", "--source=verl", f"--out={tmp_path / 'out'}",
                  f"--problems={P}", *words, path)
    refused(done, path, message)
    assert not (tmp_path / "out").exists()


def test_verl_config_that_filters_or_cannot_be_read(script, tmp_path):
    path, tree = write_verl(tmp_path / "log.jsonl", verl_rows(8, 4)), verl_config(8, 4)
    words = ["--source=verl", f"--out={tmp_path / 'out'}", f"--problems={P}", path]
    write_yaml(tmp_path / "log.yaml",
               tree | dict(algorithm=dict(filter_groups=dict(enable=True, metric="acc"))))
    refused(script("data/logs/prepare.py", *words), path, "filter_groups")
    (tmp_path / "log.yaml").write_text("data: {train_batch_size: [8\n")
    refused(script("data/logs/prepare.py", *words), tmp_path / "log.yaml")
    tree["actor_rollout_ref"]["rollout"]["val_kwargs"]["do_sample"] = False
    write_yaml(tmp_path / "log.yaml", tree)
    done = script("data/logs/prepare.py", *words)
    assert done.code == 0 and "greedy" in done.stdout


@pytest.mark.parametrize("source, text",
                         [("verl", '{"step": 1, "loss": 2}\n'),
                          ("verl", '{"step": 1, "data"\n{"step": 2, "data": {}}\n'), ("verl", ""),
                          ("trl", "{}"), ("trl", "{"), ("trl", '{"log_history": [{"loss": 1}]}'),
                          ("trl", '{"log_history": [{"step": 0, "eval_reward": 1}]}'),
                          ("wandb", ""), ("wandb", "Name,State,Runtime\na,finished,3\n"),
                          ("wandb", "Relative Time (Process),a - reward\n1,0.5\n"),
                          ("wandb", '"Step","a - reward","a - reward"\n1,0.5,0.6\n'),
                          ("wandb", '"Step","a - eval/reward"\n1.5,0.5\n')])
def test_files_that_are_none(script, tmp_path, source, text):
    path = tmp_path / "log.txt"
    path.write_text(text)
    words = [f"--source={source}", f"--out={tmp_path / 'out'}", "--problems=9", "--samples=4",
             "--B_p=8", "--n=4"]
    refused(script("data/logs/prepare.py", *words, path), path)
    assert not (tmp_path / "out").exists()


# --------------------------------------------------------------------------------------------------
# TRL: files that TRL wrote, see tests/logs/trl/make.py

def test_trl(script, tmp_path):
    words = ["--source=trl", f"--out={tmp_path / 'out'}", "--problems=15", "--samples=4",
             "--model=data/arithmetic/base"]
    done = script("data/logs/prepare.py", *words, TRL / "Bp4_n4", TRL / "Bp4_n8/trainer_state.json")
    assert done.code == 0, done.stderr
    runs = {log[0]["config"]["n"]: log
            for log in map(read_log, (tmp_path / "out").glob("*/log.jsonl"))}
    assert sorted(runs) == [4, 8]
    for n, (header, *log) in runs.items():
        history = json.loads((TRL / f"Bp4_n{n}/trainer_state.json").read_text())["log_history"]
        cfg = header["config"]
        assert (cfg["B_p"], cfg["seed"], cfg["C"], cfg["samples"], cfg["k"], cfg["lr_base"],
                cfg["model"]) == (4, 0, 4 * n * 12, 4, 4, 1e-4, "data/arithmetic/base")
        assert header["source"] == "trl" and header["source_file"] == "trainer_state.json"
        assert header["biased"] == []
        evals = [(r["step"], r["rollouts"], r["avg@4"], r["problems"], r["samples"])
                 for r in log if r["type"] == "eval"]
        assert evals == [(e["step"], e["step"] * 4 * n, e["eval_reward"], 15, 4)
                         for e in history if "eval_reward" in e]
        assert [m for m, *_ in evals] == [0, 3, 6, 9, 12]
        rewards = {r["step"]: r["reward"] for r in log if r["type"] == "step" and "reward" in r}
        assert rewards == {e["step"]: e["reward"] for e in history if "reward" in e}
        assert [r["rollouts"] for r in log if r["type"] == "step"] == [4 * n * m
                                                                       for m in range(1, 13)]
        # response tokens: TRL's num_tokens less those of the prompts, of which each is counted n
        # times
        tokens = {r["step"]: r.get("tokens") for r in log if r["type"] == "step"}
        if n == 4:
            seen = {e["step"]: e["num_tokens"] for e in history if "num_tokens" in e}
            prompts = {m: seen[m] - tokens[m] for m in seen}
            assert all(4 * n * 4 * m <= count <= 4 * n * 10 * m and count % n == 0
                       for m, count in prompts.items())
        else:  # a generation serves two steps, and half of the steps have no length
            assert set(tokens.values()) == {None}

    done = script("frontier.py", f"--runs={tmp_path / 'out'}", "--metric=avg@4")
    assert done.code == 0 and "2 runs used, 0 dropped" in done.stdout, done.stderr
    used = json.loads((tmp_path / "out/frontier.json").read_text())["runs_used"]
    assert {r["run"] for r in used} == {log[0]["derived"]["run"] for log in runs.values()}


def test_trl_says_what_its_state_lacks(script, tmp_path):
    shutil.copytree(TRL / "Bp4_n4", tmp_path / "checkpoint-12")
    path = tmp_path / "checkpoint-12/trainer_state.json"
    words = ["--source=trl", f"--out={tmp_path / 'out'}"]
    refused(script("data/logs/prepare.py", *words, path.parent), path,
            "--B_p= and --n= and --samples=")
    refused(script("data/logs/prepare.py", *words, "--B_p=4", "--n=4", path), path, "--samples=")
    refused(script("data/logs/prepare.py", *words, "--B_p=4", "--n=4", "--samples=4", path), path,
            "--problems=")
    words += ["--B_p=4", "--n=4", "--samples=4", "--problems=15", "--seed=2", "--lr_base=3e-4"]
    done = script("data/logs/prepare.py", *words, "--metric_column=eval_rewards/exact/mean",
                  "--reward_column=rewards/exact/mean", path)
    assert done.code == 0, done.stderr
    run = records(tmp_path / "out")
    assert run.header["config"]["seed"] == 2 and run.header["config"]["lr_base"] == 3e-4
    assert run.step[1]["reward"] == 0.375 and run.end["rollouts"] == 192


def test_trl_sum_of_rewards_is_no_share(script, tmp_path):
    """eval_reward is the weighted sum of all reward functions: it counts where it is one of them.
    Old versions of TRL leave /mean out of the names."""
    state = json.loads((TRL / "Bp4_n4/trainer_state.json").read_text())
    path, words = tmp_path / "trainer_state.json", ["--source=trl", "--B_p=4", "--n=4",
                                                    "--problems=15", "--samples=4"]

    def with_format(reward, end="/mean", weight=1.0):
        out = []
        for e in state["log_history"]:
            e = dict(e)
            for b in ("", "eval_"):
                if f"{b}reward" in e:
                    right = e.pop(f"{b}rewards/exact/mean")
                    e |= {f"{b}rewards/exact{end}": right, f"{b}rewards/format{end}": reward,
                          f"{b}reward": weight * right + reward}
            out.append(e)
        path.write_text(json.dumps(dict(log_history=out)))
    for end in ("/mean", ""):
        with_format(0.25, end)
        done = script("data/logs/prepare.py", *words, f"--out={tmp_path / 'no'}", path)
        refused(done, path, "eval_reward is a sum of rewards", "--metric_column=",
                f"eval_rewards/exact{end}, eval_rewards/format{end}")
        out = tmp_path / f"named{len(end)}"
        done = script("data/logs/prepare.py", *words, f"--out={out}",
                      f"--metric_column=eval_rewards/exact{end}", path)
        assert done.code == 0 and f"reward is a sum of rewards (rewards/exact{end}" in done.stdout
        run = records(out)
        assert [r["avg@4"] for r in run.eval.values()] == [
            e["eval_reward"] for e in state["log_history"] if "eval_reward" in e]
        assert not any("reward" in r for r in run.step.values())
        done = script("data/logs/prepare.py", *words, f"--out={tmp_path / f'both{len(end)}'}",
                      f"--metric_column=eval_rewards/exact{end}",
                      f"--reward_column=rewards/exact{end}", path)
        assert done.code == 0 and "no training reward" not in done.stdout
    with_format(0.0)  # the format counts for nothing: it is the share of right answers
    assert script("data/logs/prepare.py", *words, f"--out={tmp_path / 'one'}", path).code == 0
    assert all("reward" in r for r in records(tmp_path / "one").step.values())
    with_format(0.0, weight=0.5)
    refused(script("data/logs/prepare.py", *words, f"--out={tmp_path / 'no'}", path), path,
            "sum of rewards")
    assert not (tmp_path / "no").exists()


def test_two_checkpoints_of_one_run_are_one_run(script, tmp_path):
    """The one that goes further has all of it, in whichever order they are given; a run of other
    numbers is another run, which one call must not take for the same."""
    state = json.loads((TRL / "Bp4_n4/trainer_state.json").read_text())
    words = ["--source=trl", "--B_p=4", "--n=4", "--problems=15", "--samples=4"]

    def cut(name, steps, shift=0.0):
        path = tmp_path / name / "trainer_state.json"
        path.parent.mkdir()
        path.write_text(json.dumps(dict(log_history=[
            e | {key: e[key] + shift for key in ("eval_reward", "eval_rewards/exact/mean")
                 if key in e} for e in state["log_history"] if e["step"] <= steps])))
        return path
    paths = [cut(f"checkpoint-{k}", k) for k in (1, 6, 12)]  # lr_base is not told by the first
    for order in (paths, paths[::-1]):
        out = tmp_path / f"out{len(list(tmp_path.iterdir()))}"
        done = script("data/logs/prepare.py", *words, f"--out={out}", *order)
        assert done.code == 0, done.stderr
        assert sum("the same run as" in line for line in done.stdout.splitlines()) == 2
        assert sorted(records(out).eval) == [0, 3, 6, 9, 12]
    other = cut("other", 6, shift=0.01)
    refused(script("data/logs/prepare.py", *words, f"--out={tmp_path / 'no'}", other, paths[2]),
            "--seed=", "parts of one run belong into one file")
    assert not (tmp_path / "no").exists()


def test_a_later_checkpoint_takes_the_place_of_an_earlier_one(script, tmp_path):
    """Imported in two calls, two checkpoints of one run are one run too, in either order. The first
    is of the warm-up, so it does not tell lr_base and its folder has another name."""
    state = json.loads((TRL / "Bp4_n4/trainer_state.json").read_text())
    words = ["--source=trl", "--B_p=4", "--n=4", "--problems=15", "--samples=4"]
    paths = []
    for k in (1, 6, 12):
        paths.append(tmp_path / f"checkpoint-{k}/trainer_state.json")
        paths[-1].parent.mkdir()
        history = [e for e in state["log_history"] if e["step"] <= k]
        paths[-1].write_text(json.dumps(dict(log_history=history)))
    for name, order, said in (("up", paths, "replaces"), ("down", paths[::-1], "left out")):
        out = tmp_path / name
        for i, path in enumerate(order):
            done = script("data/logs/prepare.py", *words, f"--out={out}", path)
            assert done.code == 0, done.stderr
            assert not i or [said] == [word for word in ("replaces", "left out") if word in
                                       done.stdout], done.stdout
        assert sorted(records(out).eval) == [0, 3, 6, 9, 12]
    # one run is not two seeds
    done = script("data/logs/prepare.py", *words, f"--out={tmp_path / 'up'}", "--seed=5", paths[1])
    assert done.code == 0 and "left out" in done.stdout, done
    assert len(list((tmp_path / "up").iterdir())) == 1


def test_runs_that_never_solve_anything_stay_two_seeds(script, tmp_path):
    """Evaluations that are 0 throughout are equal, whatever the seed."""
    for seed in (1, 2):
        path = write_csv(tmp_path / f"Bp8_n8_seed{seed}.csv", ["Step", "Value"],
                         [dict(Step=m, Value=0) for m in range(0, 50, 10)])
        done = script("data/logs/prepare.py", "--source=wandb", "--metric_column=Value",
                      "--problems=30", "--samples=4", f"--out={tmp_path / 'out'}", path)
        assert done.code == 0, done.stderr
    assert len(list((tmp_path / "out").iterdir())) == 2


def test_trl_that_logs_every_third_step(script, tmp_path):
    """With logging_steps=3 TRL writes means over three steps: the sum of response tokens stays what
    it was."""
    state = json.loads((TRL / "Bp4_n4/trainer_state.json").read_text())
    steps = [e for e in state["log_history"] if "reward" in e]
    evals = [e for e in state["log_history"] if "eval_reward" in e]
    means = [dict(three[-1]) | {key: sum(e[key] for e in three) / 3
                                for key in ("reward", "completions/mean_length")}
             for three in zip(steps[::3], steps[1::3], steps[2::3])]
    path = tmp_path / "trainer_state.json"
    path.write_text(json.dumps(state | dict(log_history=sorted(means + evals,
                                                               key=lambda e: e["step"]))))
    words = ["--source=trl", "--B_p=4", "--n=4", "--problems=15", "--samples=4"]
    assert script("data/logs/prepare.py", *words, f"--out={tmp_path / 'third'}", path).code == 0
    assert script("data/logs/prepare.py", *words, f"--out={tmp_path / 'all'}",
                  TRL / "Bp4_n4").code == 0
    third, every = records(tmp_path / "third"), records(tmp_path / "all")
    assert sorted(third.step) == [3, 6, 9, 12] and third.eval == every.eval
    assert all(third.step[m]["tokens"] == every.step[m]["tokens"] for m in third.step)


# --------------------------------------------------------------------------------------------------
# W&B

def test_wandb_history_of_verl(script, tmp_path):
    """B_p, n and seed as columns, which a user adds from run.config; _step is veRL's step."""
    rows = {m: {key: value for key, value in row.items() if value is not None}
            for m, row in verl_rows(8, 4).items()}
    path = write_history(tmp_path / "history.csv", rows, B_p=8, n=4, seed=7)
    done = script("data/logs/prepare.py", "--source=wandb", f"--out={tmp_path / 'out'}",
                  f"--problems={P}", path)
    assert done.code == 0, done.stderr
    run = records(tmp_path / "out")
    cfg = run.header["config"]
    assert (cfg["B_p"], cfg["n"], cfg["seed"], cfg["samples"], cfg["C"],
            cfg["lr_base"]) == (8, 4, 7, 4, 384, 1e-6)
    assert run.header["source"] == "wandb"
    assert run.header["biased"] == ["best@2", "best@4", "worst@2", "worst@4"]
    assert sorted(run.step) == list(range(1, STEPS + 1)) and sorted(run.eval) == [0, 3, 6, 9, 12]
    assert run.step[5]["rollouts"] == 160 and run.step[5]["reward"] == rows[5]["critic/score/mean"]
    assert run.step[5]["wall_s"] == 50.0  # W&B's own clock
    assert run.eval[6]["avg@4"] == rows[6][f"val-core/openai/gsm8k/reward/mean@{N}"]
    assert run.eval[6]["problems"] == P


def test_wandb_history_of_trl(script, tmp_path):
    """transformers logs update and evaluation apart, as train/ and eval/, with train/global_step;
    _step counts the calls."""
    rows, calls = {}, json.loads((TRL / "Bp4_n4/trainer_state.json").read_text())["log_history"]
    # transformers' rewrite_logs: eval_x is eval/x, all others train/x
    for i, call in enumerate(calls):
        rows[2 * i] = {f"eval/{key[5:]}" if key.startswith("eval_") else f"train/{key}": value
                       for key, value in call.items() if key != "step"}
        rows[2 * i]["train/global_step"] = call["step"]
        rows[2 * i + 1] = {"profiling/Time taken: GRPOTrainer._prepare_inputs": 0.1}
    path = write_history(tmp_path / "Bp4_n4.csv", rows)
    words = ["--source=wandb", "--problems=15", "--samples=4"]
    assert script("data/logs/prepare.py", *words, f"--out={tmp_path / 'out'}", path).code == 0
    run = records(tmp_path / "out")
    assert script("data/logs/prepare.py", "--source=trl", *words[1:], f"--out={tmp_path / 'same'}",
                  TRL / "Bp4_n4").code == 0
    same = records(tmp_path / "same")
    assert run.eval == same.eval and sorted(run.step) == list(range(1, 13))
    for m, r in run.step.items():
        assert {key: value for key, value in r.items() if key != "wall_s"} == same.step[m]


def test_wandb_charts(script, tmp_path):
    """Two charts of two runs, a file each: put together by name, from which B_p, n and seed come;
    the bands are not read."""
    runs = {f"qwen - Bp8_n{n}_seed2": verl_rows(8, n) for n in (4, 16)}
    metric, reward = f"val-core/openai/gsm8k/reward/mean@{N}", "critic/score/mean"
    charts = [write_chart(tmp_path / f"wandb_export_{i}.csv",
                          {name: {m: {key: row[key]} for m, row in rows.items() if key in row}
                           for name, rows in runs.items()})
              for i, key in enumerate((metric, reward))]
    words = ["--source=wandb", f"--problems={P}"]
    done = script("data/logs/prepare.py", *words, f"--out={tmp_path / 'out'}", *charts)
    assert done.code == 0, done.stderr
    logs = {log[0]["config"]["n"]: log
            for log in map(read_log, (tmp_path / "out").glob("*/log.jsonl"))}
    assert sorted(logs) == [4, 16]
    for n, (header, *log) in logs.items():
        rows, cfg = runs[f"qwen - Bp8_n{n}_seed2"], header["config"]
        assert (cfg["B_p"], cfg["seed"], cfg["samples"]) == (8, 2, N) and header["biased"] == []
        assert header["source_file"] == "wandb_export_0.csv, wandb_export_1.csv"
        assert {r["step"]: r["avg@4"] for r in log if r["type"] == "eval"} == {
            m: row[metric] for m, row in rows.items() if metric in row}
        assert {r["rollouts"]: r["reward"] for r in log if r["type"] == "step"} == {
            8 * n * m: row[reward] for m, row in rows.items() if reward in row}
    done = script("frontier.py", f"--runs={tmp_path / 'out'}", "--metric=avg@4")
    assert done.code == 0 and "2 runs used, 0 dropped" in done.stdout, done.stderr

    # a chart without evaluations, other runs of the same names, a mean of runs, a run whose name
    # says nothing
    done = script("data/logs/prepare.py", *words, f"--out={tmp_path / 'no'}", charts[1])
    refused(done, charts[1], "no validation metric", f"({reward})")
    wide = write_csv(tmp_path / "wide.csv", ["Step", "0.6b", "14b"],
                     [{"Step": m, "0.6b": 0.1, "14b": 0.7} for m in range(4)])
    refused(script("data/logs/prepare.py", *words, f"--out={tmp_path / 'no'}", wide), wide,
            "(0.6b, 14b)")
    other = write_chart(tmp_path / "other.csv",
                        {name: {m: {metric: 0.125} for m in rows} for name, rows in runs.items()})
    refused(script("data/logs/prepare.py", *words, f"--out={tmp_path / 'no'}", charts[0], other),
            other, charts[0])
    group = write_chart(tmp_path / "group.csv",
                        {"Group: Bp8_n4": {m: {metric: 0.5} for m in range(4)}})
    refused(script("data/logs/prepare.py", *words, f"--out={tmp_path / 'no'}", group), group,
            "grouped")
    named = write_chart(tmp_path / "named.csv",
                        {"swift-lion-7": {m: {metric: 0.5} for m in range(4)}})
    done = script("data/logs/prepare.py", *words, f"--out={tmp_path / 'no'}", named)
    refused(done, named, "swift-lion-7", "--B_p= and --n=")
    assert not (tmp_path / "no").exists()


# --------------------------------------------------------------------------------------------------
# What is written, and where

def test_nothing_is_overwritten(script, tmp_path):
    out = tmp_path / "out"
    a = write_verl(tmp_path / "a.jsonl", verl_rows(8, 4))
    b = write_verl(tmp_path / "b.jsonl", verl_rows(8, 4, seed=1))
    c = write_verl(tmp_path / "c_n16.jsonl", verl_rows(8, 16))
    words = ["--source=verl", f"--out={out}", f"--problems={P}", "--B_p=8"]
    # two of one name: none is written
    refused(script("data/logs/prepare.py", *words, "--n=4", a, b), b, a, "--seed=")
    assert not out.exists()
    assert script("data/logs/prepare.py", *words, "--n=4", a).code == 0
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert script("data/logs/prepare.py", *words, "--n=4", a).code == 0  # once more: the same bytes
    refused(script("data/logs/prepare.py", *words, "--n=4", b), b.name, out, "--seed=")
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    assert len(before) == 1
    assert [path.name for path in out.iterdir()] == [next(iter(before)).parent.name]
    assert script("data/logs/prepare.py", *words, "--n=4", "--seed=1", b).code == 0
    assert script("data/logs/prepare.py", *words, c).code == 0
    assert sorted(path.name.rsplit("_", 1)[0]
                  for path in out.iterdir()) == ["Bp8_n16_seed0", "Bp8_n4_seed0", "Bp8_n4_seed1"]


def test_command_line(script, tmp_path):
    path = write_verl(tmp_path / "log.jsonl", verl_rows(8, 4))
    refused(script("data/logs/prepare.py", path), "--source=", "verl, trl, wandb")
    refused(script("data/logs/prepare.py", "--source=tb", path), "--source=tb")
    refused(script("data/logs/prepare.py", "--source=verl"), "no log given")
    refused(script("data/logs/prepare.py", "--source=verl", "--problems=many", path),
            "--problems=many")
    refused(script("data/logs/prepare.py", "--source=verl", "--B_q=8", path), "--B_q=8", "B_p")
    refused(script("data/logs/prepare.py", "--source=verl", "--n", path), "--n")
    refused(script("data/logs/prepare.py", "--source=verl", tmp_path / "none.jsonl"),
            tmp_path / "none.jsonl")
    done = script("data/logs/prepare.py", "--help")
    assert done.code == 0 and "--metric_column" in done.stdout
    assert "trainer_state.json" in done.stdout
