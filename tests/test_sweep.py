"""Test run_sweep.sh, core/sweep.py, core/pool.py and core/prepare.py."""
import json
import os
import re
import shlex
import shutil
import signal
import sys

import pytest
from conftest import (Hold, PATIENCE, ROOT, capture, linked, logs, run_script, run_sweep, step_is,
                      tree, warm_python)

import config
from core.log import read_plan
from core import pool, sweep
from config import BadInput, parse
from core.prepare import check_splits
from core.sweep import cells, prepare


def test_cells_of_a_sweep():
    cfg = parse(["--ns=2 4 64", "--bps=8 32", "--seeds=0 1", "--B_max=256", "--C=1024"])
    got = [(c["seed"], c["B_p"], c["n"]) for c in cells(cfg)]
    # most updates first; 8 x 64 and 32 x 64 are above B_max
    assert got == [(seed, *cell) for cell in [(8, 2), (8, 4), (32, 2), (32, 4)] for seed in (0, 1)]
    assert all(c | dict(B_p=cfg["B_p"], n=cfg["n"], seed=cfg["seed"]) == cfg for c in cells(cfg))
    # if the model's folder is missing, the error is not about the C of another defaults.json
    for C in (10, 20_000):  # below one update of n = 512; too small for three evaluations
        with pytest.raises(BadInput, match="--model=./none: not a transformers folder"):
            sweep.unfinished(parse(["--model=./none", f"--C={C}"]))


def test_cells_of_a_sweep_over_learning_rates():
    cfg = parse(["--ns=2 4", "--bps=8", "--lrs=2e-4 1e-4", "--seeds=0"])
    got = [(c["n"], c["lr_base"]) for c in cells(cfg)]
    assert got == [(2, 1e-4), (2, 2e-4), (4, 1e-4), (4, 2e-4)]
    assert len({config.run_name(c) for c in cells(cfg)}) == 4  # a folder each
    # a run has the same name with and without `lrs`
    alone = cells(parse(["--ns=2", "--bps=8", "--lr_base=2e-4"]))[0]
    assert config.run_name(cells(cfg)[1]) == config.run_name(alone)


def check_steps(records, C):
    """Assert that a run has every update of the budget C once, and return the updates."""
    steps = [r for r in records if r["type"] == "step"]
    assert [r["step"] for r in steps] == list(range(1, C // records[0]["derived"]["B"] + 1))
    assert records[-1] == dict(type="end", status="budget", rollouts=C)
    return steps


def test_sweep_from_nothing_to_a_prescription(swept):
    out, text = swept
    assert len(logs(out)) == 2
    assert all(r[-1] == dict(type="end", status="budget", rollouts=64) for r in logs(out).values())
    head = r"^sweep .*: 2 runs, 2 to do, 128 rollouts in all, \d+ at a time$"
    assert re.search(head, text, re.M)
    # the verdict, the table, the command to run, unless the random model solved nothing
    assert "\n  B_p = 2: " in text and "2 runs used" in text
    assert re.search(r"^To run the row of 64:\n  python train_grpo.py .*--C=64\b", text, re.M), text
    assert re.search(r"^ +256\*  .*not run", text, re.M), text
    assert {p.name for p in out.glob("prescription.*")} == {"prescription.csv"}
    for name in ("frontier.png", "law.png"):
        assert (out / name).read_bytes().startswith(b"\x89PNG")
    assert all((out / run / "out.txt").read_text() for run in logs(out))


def test_a_second_start_trains_nothing(swept, tiny, tmp_path):
    out = shutil.copytree(swept[0], tmp_path / "easy")

    def runs():
        return {name: content for name, content in tree(out).items() if "/" in name}
    before, done = runs(), run_sweep(tiny, out)
    assert done.returncode == 0 and "0 to do" in done.stdout and "  256*  " in done.stdout, done
    assert runs() == before


def test_dry_run_prints_commands_that_run(swept, tiny, tmp_path):
    out = tmp_path / "a sweep"
    done = run_sweep(tiny, out, DRY_RUN="1", NS="2 4 8", SEEDS="0 1", B_MAX="8")
    lines = done.stdout.splitlines()
    assert done.stderr == "not run, because B_p x n is above --B_max=8: 2 x 8\n"
    # only the plan is written
    assert done.returncode == 0 and len(lines) == 4 and set(tree(out)) == {"sweep.json"}, done
    assert shlex.split(lines[0])[0] == warm_python()
    assert capture(lines[0], shell=True).returncode == 0
    (run, records), = logs(out).items()
    assert records[-1]["status"] == "budget" and records[0]["config"]["n"] == 2
    assert run in logs(swept[0]), "a run has the same name by hand and in a sweep"

    def count(**more):
        return len(run_sweep(tiny, out, DRY_RUN="1", **more).stdout.splitlines())
    # finished runs are not printed; another seed, another n and a larger C are
    assert [count(), count(NS="2 4 8"), count(SEEDS="0 1"), count(NS="2", C="128"),
            count(NS="2")] == [1, 2, 3, 1, 0]
    # a broken log does not stop the other runs
    path = out / run / "log.jsonl"
    path.write_text("torn\n" + path.read_text())
    assert count() == 2


def test_a_sweep_is_extended_around_a_run_that_fails(swept, tiny, tmp_path):
    """Add an n and a larger budget, while one folder holds a run of another experiment."""
    out = shutil.copytree(swept[0], tmp_path / "easy")
    good, bad = sorted(logs(out))  # n = 2 and n = 4
    path = out / bad / "log.jsonl"
    path.write_text(path.read_text().replace('"lr_base": 1e-06', '"lr_base": 1', 1))
    before = path.read_bytes()
    done = run_sweep(tiny, out, NS="2 4 8", C="96")
    assert "3 runs, 3 to do" in done.stdout and done.returncode not in (0, 130), done
    # the failed run is listed at the end with its last line of output
    listed = done.stdout[done.stdout.rindex("1 runs failed"):]
    assert bad in listed and good not in listed and "lr_base=1 there" in listed, listed
    assert path.read_bytes() == before, done
    # the other runs finished: n = 8 is new, n = 2 was continued
    finished = {run: records for run, records in logs(out).items() if run != bad}
    assert len(finished) == 2
    for run, records in finished.items():
        steps = check_steps(records, 96)
        if run == good:  # the first steps of a continued run are not repeated
            assert steps[:16] == [r for r in logs(swept[0])[run] if r["type"] == "step"]


def stopped_sweep(swept, tiny, tmp_path, how, jobs=2):
    """Copy a sweep, continue it with a larger C and stop it at update 40; return (folder, output).
    With `bash run_sweep.sh easy | tee log`, Ctrl-C ends tee as well. `kill` or a batch system
    signals only the script, and Slurm may signal only a run."""
    out, hold = shutil.copytree(swept[0], tmp_path / "a sweep"), Hold(tmp_path / "h", step_is(40))
    process = run_sweep(tiny, out, C="4000", start=True, JOBS=str(jobs), **hold.env)
    hold.wait(jobs, process)
    if how == "Ctrl-C without a reader":
        process.stdout.close()
    if how.startswith("Ctrl-C"):
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    else:
        os.kill(hold.pids()[0] if how == "SIGTERM to a run" else process.pid, signal.SIGTERM)
    hold.release()
    text = "" if process.stdout.closed else process.communicate(timeout=PATIENCE)[0]
    assert process.wait(PATIENCE) == 130, text
    if how == "Ctrl-C":
        with pytest.raises(ProcessLookupError):
            os.killpg(process.pid, 0)  # no process of the group is left
    return out, text


def test_ctrl_c_stops_everything_and_the_same_command_continues(swept, tiny, tmp_path):
    out, _ = stopped_sweep(swept, tiny, tmp_path, "Ctrl-C")
    stopped = logs(out)
    # the space in the folder's name did no harm
    assert {path.name for path in out.glob("Bp*")} == set(stopped)
    assert not list(out.glob("*/model")), "the models of the smaller budget must go"
    for run, records in stopped.items():
        assert records[-1]["status"] == "stopped", (run, records[-1], len(records))
        assert 64 < records[-1]["rollouts"] < 4000, (run, records[-1], len(records))
    # with a smaller budget, which does not change a run's name
    C = (max(r[-1]["rollouts"] for r in stopped.values()) // 8 + 4) * 8
    done = run_sweep(tiny, out, C=str(C))
    assert done.returncode == 0 and "2 to do (2 continue where they stopped)," in done.stdout, done
    for run, records in logs(out).items():
        old = [r for r in stopped[run] if r["type"] == "step"]
        assert check_steps(records, C)[:len(old)] == old


@pytest.mark.parametrize("how, jobs, ends", [("Ctrl-C without a reader", 2, ["stopped", "stopped"]),
    ("SIGTERM to the script", 2, ["stopped", "stopped"]),
    ("SIGTERM to a run", 1, ["stopped", "budget"])])  # n = 2 has the most updates and starts first
def test_other_ways_to_stop_a_sweep(swept, tiny, tmp_path, how, jobs, ends):
    out, text = stopped_sweep(swept, tiny, tmp_path, how, jobs)
    assert [r[-1].get("status", "") for _, r in sorted(logs(out).items())] == ends
    assert "the same command continues" in text or "without" in how


def test_splits_of_another_model_or_other_settings_are_refused(tmp_path, tiny):
    """All trained models are in folders called `model`, but each model needs its own splits."""
    folder = tmp_path / "data/splits/model"
    folder.mkdir(parents=True)
    (folder / "difficulty.json").write_text('{"model": "runs/a/model", "verifier": "math", "s": 8}')
    (tmp_path / "data/problems.jsonl").write_text(tiny.train.read_text())
    words, easy = [f"--data={tmp_path / 'data'}", "--device=cpu"], folder / "easy_train.jsonl"
    with pytest.raises(BadInput, match="was measured for runs/a/model"):
        prepare("easy", [*words, "--model=runs/b/model"])
    cfg = parse(["--verifier=math", "--s=8"])
    check_splits(True, "runs/a/model/", easy, cfg)
    for key, value, there in ("verifier", "exact", "math"), ("s", 32, 8):
        other = cfg | {key: value}
        with pytest.raises(BadInput, match=f"{value}: .*made with {there}.*remove .*splits/model"):
            check_splits(True, "runs/a/model", easy, other)
        # the split of all problems needs no measurement
        check_splits(True, "runs/a/model", folder / "all_train.jsonl", other)
    prepare("easy", [*words, "--model=runs/b/model", f"--train_set={tiny.train}",
                     f"--val_set={tiny.val}"])
    with_slash, without = (parse([f"--data={tmp_path / 'data'}{end}"]) for end in ("/", ""))
    assert with_slash["train_set"] == without["train_set"]


@pytest.mark.parametrize("words, env, names", [
    ("medium", {}, ["medium", "easy, hard, mixed"]), ("easy n=4", {}, ["n=4", "--key=value"]),
    ("easy -n", {}, ["-n"]),
    ("easy", dict(JOBS="0"), ["JOBS=0"]), ("easy", dict(JOBS="two"), ["JOBS=two"]),
    ("easy --n=7", {}, ["--n=7", "--ns"]), ("easy --seed=1", {}, ["--seed=1", "--seeds"]),
    ("easy --verifier=exakt", {}, ["--verifier=exakt", "nearest is exact"]),
    ("easy --threads=1000000", {}, ["--threads=1000000", "cores"]),
    ("easy", dict(NS="0 4"), ["--ns=0 4", "2 or more"]),
    ("easy", dict(C="10", BPS="8"), ["C=10", "one update"]),
    ("easy", dict(B_MAX="3", BPS="2"), ["B_max=3"]),
    ("easy --train_set=none.jsonl", {}, ["none.jsonl"]),
    ("easy", dict(MODEL="./none"), ["./none"])])
def test_bad_words_of_a_sweep(tmp_path, words, env, names):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/problems.jsonl").write_text('{"id": 1, "prompt": "1+1=", "answer": 2}\n')
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text("{}")
    before = tree(tmp_path)
    folders = dict(OUT=str(tmp_path / "out"), DATA=str(tmp_path / "data"),
                   MODEL=str(tmp_path / "model"))
    env = {**os.environ, **folders, "PYTHON": warm_python(), "NS": "2 4", "BPS": "8", **env}
    for dry in ("", "1"):
        if dry and any("none" in name for name in names):
            continue  # files named in a command need not exist yet
        line = ["bash", str(ROOT / "run_sweep.sh"), *words.split()]
        done = capture(line, tmp_path, env=env | dict(DRY_RUN=dry))
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done
        assert all(name in done.stderr for name in names), done
        assert tree(tmp_path) == before, sorted(tree(tmp_path))


def test_splits_of_other_problems(tiny, tmp_path):
    """problems.jsonl was made again after the splits by difficulty."""
    data, lines = tmp_path / "data", []
    splits, problems = data / "splits/model", data / "problems.jsonl"
    shutil.copytree(tiny.model, data / "model")
    splits.mkdir(parents=True)
    for path in (tiny.train, tiny.val):
        shutil.copy(path, splits / f"easy_{path.name}")
        lines += path.read_text().splitlines(keepends=True)
    (splits / "difficulty.json").write_text(json.dumps(dict(
        model=str(data / "model"), problems=str(problems))))
    words = [f"--data={data}", f"--model={data / 'model'}", "--ns=4", "--bps=8"]
    problems.write_text("".join(lines))
    prepare("easy", words)
    for now in (lines[:9], [line.replace('"answer": "', '"answer": "1') for line in lines]):
        problems.write_text("".join(now))
        with pytest.raises(BadInput, match="easy_train.jsonl: has problems or answers that"):
            prepare("easy", words)


def test_another_task_is_compared_by_prepare(tiny, tmp_path):
    """The task is not part of a run's name, so prepare.py must refuse problems of another task."""
    (tmp_path / "problems.jsonl").write_text(tiny.train.read_text())
    (tmp_path / "prepare.py").write_text("import sys; sys.exit('was made with task=gcd')")
    words = ["easy", *tiny.words, f"--data={tmp_path}", f"--runs={tmp_path / 'runs'}",
             "--ns=2", "--bps=2", "--C=16", "--eval_every=4"]
    env = {"PYTHON": sys.executable}
    assert run_script("core.sweep", "prepare", *words, env=env).code == 0
    done = run_script("core.sweep", "prepare", *words, env=env | dict(TASK="lcm"))
    assert done.code and "was made with task=gcd" in done.stderr, done


def test_the_plain_command_on_guru_is_the_papers_main_sweep():
    """B_p = 32, n doubles from 8 up to B_max, C = 4M, D as in the paper's section 2. Words override
    each value, and another data folder has other values."""
    for recipe, D, largest in (("easy", 6000, 2048), ("hard", 5000, 512)):
        grid = cells(sweep.sweep_config(recipe, ["--data=data/guru_math"]))
        assert sorted(c["n"] for c in grid) == [2 ** i for i in range(3, int(largest).bit_length())]
        assert {(c["B_p"], c["C"], c["D"], c["recipe"]) for c in grid} == {(32, 4e6, D, recipe)}
        assert 32 * largest == grid[0]["B_max"]
    words = ["--data=data/guru_math", "--ns=4", "--C=1e6", "--D=0", "--B_max=128"]
    (cell,) = cells(sweep.sweep_config("hard", words))
    assert (cell["n"], cell["C"], cell["D"]) == (4, 1e6, 0)
    assert sweep.sweep_config("easy", ["--data=data/mine"])["D"] == 0


def test_help_no_preset_and_another_shell(tmp_path):
    words = "--seeds=0", "--ns=4", f"--runs={tmp_path}"
    plans = [capture(["bash", "run_sweep.sh", *preset, *words], env=os.environ | dict(DRY_RUN="1"))
             for preset in ([], ["easy"])]
    assert plans[0].stdout == plans[1].stdout and "train_grpo.py" in plans[0].stdout
    done = capture(["bash", "run_sweep.sh", "--help"])
    assert done.returncode == 0 and "\n  GPUS_PER_RUN " in done.stdout, done
    if shutil.which("dash"):
        done = capture(["dash", "run_sweep.sh", "easy"])
        assert done.returncode == 2 and "bash can" in done.stderr and done.stderr.count("\n") == 1


def test_nohup_still_works():
    for before, after in ((signal.SIG_IGN, signal.SIG_IGN), (signal.SIG_DFL, print)):
        signal.signal(signal.SIGHUP, before)
        pool.handle_signals((signal.SIGHUP, signal.SIGTERM), print)
        assert signal.getsignal(signal.SIGHUP) == after
        assert signal.getsignal(signal.SIGTERM) == print


def test_a_sweep_without_a_report_is_refused_before_the_runs():
    cfg = parse(["--ns=8", "--bps=8", "--C=1024"])
    for every in (128, 960, 0):
        sweep.unfinished(dict(cfg, eval_every=every))
    for every in (961, 16384):
        with pytest.raises(BadInput, match=f"--eval_every={every}: .* needs three"):
            sweep.unfinished(dict(cfg, eval_every=every))


def test_runs_that_the_analysis_leaves_out_are_named_before_the_sweep(swept, tmp_path, capsys):
    """A dry run of another experiment keeps the plan of the runs that are in the folder."""
    out = shutil.copytree(swept[0], tmp_path / "easy")
    cfg, plan = dict(read_plan(out)["config"], runs=str(out)), (out / "sweep.json").read_bytes()
    sweep.write_plan(dict(cfg, kl_coef=0.5), dry_run=True)
    assert "sweep.json is kept" in capsys.readouterr().err
    assert (out / "sweep.json").read_bytes() == plan
    for change, said in ((dict(lr_base=0.5), False), (dict(kl_coef=0.5), True)):
        sweep.write_plan(dict(cfg, **change))
        assert ("also has runs of another experiment" in capsys.readouterr().err) == said
    assert read_plan(out)["config"]["kl_coef"] == 0.5


def test_the_live_lines_show_how_far_each_run_is(tmp_path, capfd, monkeypatch):
    go, seen, last_line = tmp_path / "go", set(), pool.last_line

    def note_line(path):
        seen.add(last_line(path))
        if {"n=2 at 50%", "n=4 at 50%"} <= seen:
            go.touch()  # only now the runs may end
        return last_line(path)
    monkeypatch.setattr(pool, "last_line", note_line)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    wait = f"until [ -e {go} ]; do sleep 0.01; done"
    jobs = [(name, f"bash -c 'printf \"loading\\r{name} at 50%%\"; {wait}{end}'", tmp_path / name)
            for name, end in (("n=2", ""), ("n=4", "; kill -9 $$"))]
    assert pool.pool(jobs, [{}, {}], []) == 1
    said = capfd.readouterr().out
    lines = "".join(f"  {name}  {name} at 50%\033[K\n" for name in ("n=2", "n=4"))
    assert f"{lines}  0 of 2 ended, 0 waiting; " in said and "\033[K\n\033[3A" in said, said
    assert "\033[Jdone  n=2:  n=2 at 50%\n" in said and said.endswith("\033[J"), said
    assert "\033[JFAILED (137)  n=4:  n=4 at 50%\n" in said, said


@pytest.mark.parametrize("text, line", [(None, ""), ("\n\n", ""), ("10%\r20%\n\n", "20%"),
    ("train_grpo.py: --n=1: no\n======\nRoot Cause (first observed)\n===\n",
     "train_grpo.py: --n=1: no"),
    ("0% of 16 [00:00, ?roll/s][rank 1] train_grpo.py: --n=1: no\n[rank1]:\n===\n",
     "[rank 1] train_grpo.py: --n=1: no")])
def test_last_line_of_a_run(tmp_path, text, line):
    if text is not None:
        (tmp_path / "out.txt").write_text(text)
    assert pool.last_line(tmp_path / "out.txt") == line


def test_sweep_json_has_the_latest_request(tmp_path):
    words = ["--ns=2 4", "--bps=8 20", "--seeds=0", "--B_max=48", "--C=1e4", f"--runs={tmp_path}"]
    for more, listed in (([], [(8, 2, 0), (8, 4, 0), (20, 2, 0)]),
                         (["--lrs=1 2", "--ns=2"], [(8, 2, 0)] * 2 + [(20, 2, 0)] * 2)):
        cfg = sweep.sweep_config("easy", [*words, *more])
        sweep.write_plan(cfg)
        plan = read_plan(tmp_path)["config"]
        assert plan == cfg
        assert [(c["B_p"], c["n"], c["seed"]) for c in cells(plan)] == listed


def test_the_folder_of_a_sweep(tmp_path):
    env = os.environ | dict(DRY_RUN="1", PYTHON=warm_python(), NS="2", BPS="8", C="100000",
                            DATA="./data/mine/", MODEL="Qwen/Q")
    done, out = capture(["bash", "run_sweep.sh", "easy"], linked(tmp_path), env=env), "runs/mine_Q"
    assert done.returncode == 0 and (tmp_path / f"{out}_easy/sweep.json").exists(), done
    assert shlex.split(done.stdout)[-1].startswith(f"--out={out}_easy/Bp8_n2_"), done


def test_failed_knows_the_plan_after_an_array(tiny, tmp_path):
    """If one printed command ran, `failed` lists the other runs as missing."""
    def run(line):
        capture(line, shell=True, check=True)
        return run_script("core.sweep", "failed", "easy", f"--runs={out}")
    out = tmp_path / "easy"
    lines = run_sweep(tiny, out, DRY_RUN="1", NS="2 4 8").stdout.splitlines()
    assert len(lines) == 3 and read_plan(out)["config"]["ns"] == "2 4 8"
    failed, (ran,) = run(lines[2]), logs(out)
    assert failed.code == 1 and "2 runs failed or are missing" in failed.stdout
    assert failed.stdout.count(" 0 of 64 rollouts") == 2 and ran not in failed.stdout
    assert [run(line).code for line in lines[:2]] == [1, 0]
    plan = read_plan(out)["config"] | dict(threads=4096)  # of a larger machine
    (out / "sweep.json").write_text(json.dumps(dict(config=plan)))
    assert run("true").code == 0
    (out / "sweep.json").write_text('{"config": 3}')
    assert "sweep.json: expected" in run("true").stderr


HOOK = """
import os, sys
class Find:
    def find_spec(name, *_):
        if name == "torch":
            print(*(os.environ.get(key) for key in
                    ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "TOKENIZERS_PARALLELISM")), flush=True)
            os._exit(0)
sys.meta_path.insert(0, Find)
"""


@pytest.mark.parametrize("name, words, env, threads", [
    ("train_grpo.py", [], {}, "1"), ("sample.py", [], {}, "1"), ("evaluate.py", [], {}, "1"),
    ("sample.py", [], dict(OMP_NUM_THREADS="2", OMP_WAIT_POLICY="active"), "2"),
    ("sample.py", ["--threads=2"], {}, "2")])
def test_a_script_by_hand_has_the_threads_of_a_sweep(tiny, tmp_path, name, words, env, threads):
    """Torch reads the thread variables only once, when it is loaded."""
    (tmp_path / "sitecustomize.py").write_text(HOOK)
    free = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "TOKENIZERS"))}
    run = ["--B_p=2", "--n=4", "--C=16"] if name == "train_grpo.py" else []
    done = capture([sys.executable, name, *tiny.words, *run, *words, f"--out={tmp_path / 'out'}"],
                   env=free | env | dict(PYTHONPATH=str(tmp_path)))
    policy = env.get("OMP_WAIT_POLICY", "passive")
    assert done.stdout == f"{threads} {policy} false\n", done


@pytest.mark.parametrize("make", [
    "python3 -m venv --without-pip .venv", "mkdir -p .venv/bin; ln -s /none .venv/bin/python",
    "touch .venv"])
def test_an_environment_half_made_is_completed_or_named(tmp_path, make):
    """An installation that stopped left a .venv without pip, or whose python does not start."""
    linked(tmp_path)
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHON", "DRY_RUN")}

    def bash(line):
        return capture(["bash", "-c", line], tmp_path,
                       env=env | dict(PIP_NO_INDEX="1", CUDA_VISIBLE_DEVICES=""))
    assert bash(make).returncode == 0
    done = bash("bash run_sweep.sh env")
    assert bash(".venv/bin/python -m pip --version").returncode == 0 or (
        done.returncode == 2 and "rm -r .venv" in done.stderr), done
