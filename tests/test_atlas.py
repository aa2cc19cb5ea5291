"""results/atlas.py: thinned logs, and the page that one command writes from the committed runs."""
import gzip
import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from core import runs, sweep
from config import BadInput
from conftest import run_script
from simulate import edit, ends_at, simulate

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "results"))
import arms
import atlas
import figures


def test_thinned_logs_keep_what_is_counted(tmp_path):
    """`keep` copies evaluations, pass rates and the end, averages the steps, and skips unfinished
    runs."""
    def step(m):
        return dict(type="step", step=m, rollouts=16 * m, tokens=100 * m, wall_s=0.5 * m,
                    reward=(m % 7) / 7, entropy=1.0, kl=None, loss=3.0,
                    gen_s=0.1 + (m % 11) / 50, train_s=0.2 + (m % 3) / 10)

    def evaluation(m):
        return dict(type="eval", step=m, rollouts=16 * m, set="val", samples=4, correct=[1, 2, 4])
    steps, evals = [step(m) for m in range(1, 501)], [evaluation(m) for m in (0, 250, 500)]
    header, end = (dict(type="header", config=dict(B_p=8, n=2, C=8000), ranks=2),
                   dict(type="end", status="budget", rollouts=8000))
    records = [header, *sorted(steps + evals, key=lambda r: r["step"]), end]
    for name, some in (("a", records), ("b", records[:-1])):
        folder = tmp_path / "runs/arm" / name
        folder.mkdir(parents=True)
        (folder / "log.jsonl").write_text("".join(json.dumps(r) + "\n" for r in some))
    arms.keep(tmp_path / "runs", tmp_path / "kept")
    assert [p.parent.name for p in tmp_path.glob("kept/*/*/log.jsonl.gz")] == ["a"]
    thin = [json.loads(line) for line in gzip.open(tmp_path / "kept/arm/a/log.jsonl.gz")]
    means = [r for r in thin if r["type"] == "step"]
    assert [r for r in thin if r["type"] == "eval"] == evals
    assert thin[0] == header and thin[-1] == end
    assert len(means) == arms.KEPT_STEPS and means[-1]["rollouts"] == 8000
    assert all(r["kl"] is None and "loss" not in r for r in means)
    hours = [runs.read_run(tmp_path / name)["hours"] for name in ("runs/arm/a", "kept/arm/a")]
    assert hours[1] == pytest.approx(hours[0], rel=1e-4)
    assert hours[0] == pytest.approx(sum(r["gen_s"] + r["train_s"] for r in steps) * 2 / 3600)
    whole = np.mean([r["reward"] for r in steps])
    assert np.mean([r["reward"] for r in means]) == pytest.approx(whole, abs=0.01)


def words_and_numbers(text):
    text = re.sub(r"\]\([^)]*\.png\)", "", text)
    number = r"\d+(?:,\d{3})*(?:\.\d+)?"
    numbers = [float(x.replace(",", "")) for x in re.findall(number, text)]
    return re.sub(number, "#", text), numbers


def test_the_page_is_what_the_logs_say(tmp_path):
    """One command draws every figure of results/README.md and writes the rows from the committed
    logs. Last digits may differ."""
    out = tmp_path / "new"
    done = run_script("results/atlas.py", f"--out={out}")
    assert done.code == 0, done.stderr
    old = words_and_numbers((ROOT / "results/README.md").read_text())
    new = words_and_numbers((out / "README.md").read_text())
    assert old[0] == new[0]
    assert np.allclose(old[1], new[1], rtol=0.02, atol=0.11)
    told = json.loads((out / "atlas.json").read_text())
    assert [row["paper"] for row in told] == [paper for study, paper, *_ in atlas.ROWS
                                              if study != "robust"]  # the paper's scale alone
    figures = {path.name for path in (ROOT / "results/atlas").glob("*.png")}
    assert figures and figures == {path.name for path in out.glob("*.png")}
    assert sum(p.stat().st_size for p in (ROOT / "results").rglob("*.gz")) < 20e6


# --------------------------------------------------------------------------------------------------
# Verdicts

def rising(B_p, n, C):
    """Return a reward that rises with log C to the end, a little slower for a larger n."""
    return 0.3 + 0.05 * np.log2(1 + np.maximum(C, 0) / 500) - 0.004 * np.log2(n) * (C > 0)


def planted(tmp_path, C, ns=(4, 16, 64), seeds=(0, 1, 2), truth=rising, **more):
    return simulate(tmp_path / "arms/model_narrow", ns=ns, seeds=seeds, B_ps=(16,), C=C, evals=32,
                    truth=truth, **more)


def test_a_row_of_shallow_runs_is_no_verdict(tmp_path):
    """For the same curves 32 updates of n = 64 decide nothing. 256 updates decide if the lr was
    tuned. The lr was not tuned if n = 64 is best at the largest lr."""
    three, told = (1e-4, 2e-4, 4e-4), []
    for C, lrs, best in ((32_768, (2e-4,), 2e-4), (262_144, (2e-4,), 2e-4),
                         (262_144, three, 4e-4), (262_144, three, 2e-4)):
        folder = tmp_path / str(len(told))
        for lr in lrs:
            planted(folder, C, words=(f"--lr_base={lr}",),
                    truth=lambda B_p, n, C: rising(B_p, n, C) - 0.05 * (lr != best) * (C > 0))
        here = arms.Atlas(folder / "arms", folder, own=True)
        told.append(next(r for r in atlas.rows_of(here, "models") if r["paper"] == "Figure 12"))
    shallow, untuned, edge, deep = told
    for row in (untuned, edge):
        assert row["verdict"] == "underpowered" and "lr tuned for each n" in row["needs"], row
        assert row["details"].endswith("not tuned for each n: contradicted")
    assert "n = 16 has its best, 0.0004, at the edge" in edge["details"]
    assert "each at its best lr_base (n = " in deep["details"] and deep["runs"] == 27
    assert "at the edge" not in deep["details"]
    assert (shallow["M"], deep["M"]) == (32, 256)
    assert shallow["verdict"] == "underpowered" and "makes 32 updates" in shallow["needs"]
    assert shallow["details"].endswith("By these runs: contradicted")
    assert deep["verdict"] == "contradicted" and not deep["needs"]
    # for other runs than ours the paper's single lr is enough, and the row mentions it
    elsewhere = arms.Atlas(tmp_path / "1/arms", tmp_path)
    row = next(r for r in atlas.rows_of(elsewhere, "models") if r["paper"] == "Figure 12")
    assert row["verdict"] == "contradicted" and row["details"].endswith("as in the paper")


def test_every_study_has_rows_or_a_command_that_draws_it(tmp_path, capsys):
    for study in sweep.presets("data/arithmetic"):
        assert not atlas.main([study, f"--runs={tmp_path}"])
        said = capsys.readouterr().out
        assert ("--view=all" if study in ("grid", "wide") else "not run") in said, said
    with pytest.raises(BadInput, match="nonsense: no such study; keep, difficulty"):
        atlas.main(["nonsense"])


def test_a_row_counts_the_runs_that_it_uses(tmp_path):
    """A seed that only one n has is not counted. Rollouts beyond the budget of all runs are not
    counted."""
    planted(tmp_path, 262_144)
    planted(tmp_path, 524_288, ns=(4,), seeds=(3,))
    row = atlas.rows_of(arms.Atlas(tmp_path / "arms", tmp_path), "models")[0]
    assert (row["runs"], row["seeds"], row["C"]) == (9, [0, 1, 2], 262_144)
    assert row["rollouts"] == 9 * 262_144


def test_the_lr_that_is_best_for_all_n_and_cells_that_are_deep(tmp_path):
    """n* is compared at one lr, and n = 256, with 64 updates, is drawn but not judged."""
    loss = {1e-4: 0.03, 2e-4: 0.0, 4e-4: 0.02}
    for lr in loss:
        simulate(tmp_path / "arms/easy", ns=(4, 16, 64, 256), seeds=(0, 1), B_ps=(16,),
                 C=262_144, evals=32, words=(f"--lr_base={lr}",),
                 truth=lambda B_p, n, C: rising(B_p, n, C) - loss[lr] * (C > 0))
    simulate(tmp_path / "arms/easy", ns=(16,), seeds=(7,), B_ps=(16,), C=262_144, evals=32,
             truth=rising)  # a cell with one seed does not count, because others have two
    simulate(tmp_path / "arms/easy", ns=(64,), seeds=(0, 1), B_ps=(16,), C=262_144, evals=32,
             words=("--lr_base=8e-4",), truth=rising)  # an lr_base that only one n has
    here = arms.Atlas(tmp_path / "arms", tmp_path)
    lr, whole, deep, left = figures.at_one_lr(here, "easy")
    assert lr == 2e-4 and list(whole) == [4, 16, 64, 256] and list(deep) == [4, 16, 64]
    (row,) = (r for r in atlas.rows_of(here, "main") if r["paper"] == "Figures 6 and 7, Easy")
    assert row["M"] == 256 and "updates are needed" not in row["needs"], row
    assert (tmp_path / row["figures"][0]).exists() and "fewer than 150 updates: n = 256" in left


def crossing_late(folder, half):
    """n = 64 overtakes n = 4 and 16 late; n = 4 at half the lr_base is `half` better throughout."""
    def crossing(B_p, n, C):
        early, late = {4: (4e3, 0.2), 16: (6e4, 0.25), 64: (2e5, 0.45)}[n]
        return 0.1 + late * (C > 0) * np.maximum(C, 1) / (np.maximum(C, 1) + early)
    for lr, ns, more in ((2e-4, (4, 16, 64), 0), (1e-4, (4,), half)):
        simulate(folder, ns=ns, seeds=(3, 4), B_ps=(16,), C=1_048_576, evals=64,
                 words=(f"--lr_base={lr}",),
                 truth=lambda B_p, n, C: crossing(B_p, n, C) + more * (C > 0))


@pytest.mark.parametrize("half, verdict", [(0.05, "confirmed"), (0.3, "contradicted")])
def test_a_large_n_is_compared_with_the_best_lr_of_the_small_one(half, verdict, tmp_path):
    """n = 64 is compared with n = 4 at the better lr_base of n = 4, not at its own lr_base. A rise
    that begins late is confirmed on fresh seeds."""
    crossing_late(tmp_path / "arms/far_mix_hard", half)
    shutil.copytree(tmp_path / "arms/far_mix_hard", tmp_path / "arms/far_hard")
    hard, unsolved = atlas.rows_of(arms.Atlas(tmp_path / "arms", tmp_path), "far")
    assert unsolved["paper"] == "ours: Unsolved, four times as far"
    assert unsolved["verdict"] == verdict, unsolved["details"]
    assert hard["verdict"] == "confirmed" and hard["runs"] == 8 and hard["seeds"] == [3, 4], hard
    assert re.search("best n 4.*, 64 to C?", hard["details"])
    assert "On all seeds" not in hard["details"]
    gap = float(re.search(r"\(n = 64: 0.0002\): ([+-][\d.]+)", hard["details"])[1])
    assert gap == pytest.approx(100 * (0.47 - 0.30 - half), abs=2.5), hard["details"]
    assert [name for name in hard["figures"] if (tmp_path / name).exists()] == hard["figures"]


def test_a_grid_is_at_one_lr_and_one_budget(tmp_path):
    """A grid over B_p uses the one lr_base that both arms have, up to the budget of both. Without a
    named lr_base an arm is taken at its most frequent one."""
    def plant(arm, C, B_ps, lr, ns=(4, 16, 64)):
        simulate(tmp_path / "arms" / arm, ns=ns, seeds=(0, 1), B_ps=B_ps, C=C, evals=16,
                 words=(f"--lr_base={lr}",), truth=rising)
    plant("easy", 262_144, (16,), 1e-4)
    plant("easy", 262_144, (16,), 2e-4)
    plant("easy", 262_144, (16,), 4e-4, ns=(2, 4, 16, 64))
    plant("joint_easy", 163_840, (4, 64), 2e-4)
    here = arms.Atlas(tmp_path / "arms", tmp_path)
    for cells, C, lr in ((figures.grid_parts(here, "joint", "easy")[1], 163_840, 2e-4),
                         (here.cells("easy"), 262_144, 4e-4)):
        every = [run for runs in cells.values() for run in runs.values()]
        assert {(run["budget"], run["config"]["lr_base"]) for run in every} == {(C, lr)}
    # (64, 64) makes 40 updates: it is drawn and not judged
    whole, deep, left = figures.grid_parts(here, "joint", "easy")
    assert len(whole) == 9 and set(whole) - set(deep) == {(64, 64)} and left.endswith("(64, 64)")
    assert len(here.cells("easy")) == 4


@pytest.mark.parametrize("late, verdict", [(4, "confirmed"), (64, "contradicted")])
def test_a_best_n_that_rises_and_falls_at_a_fixed_batch(tmp_path, late, verdict):
    """n = 4 leads early and n = 64 in the middle; late, n = 4 leads again or n = 64 still leads."""
    def leads(B_p, n, C):
        best = np.where(C < 12_000, 4, np.where(C < 60_000, 64, late))
        return rising(B_p, 4, C) + 0.1 * ((n == best) & (C > 0))
    for arm, B_ps in (("hard", (16,)), ("joint_hard", (4, 64))):
        simulate(tmp_path / "arms" / arm, ns=(4, 16, 64), seeds=(0, 1), B_ps=B_ps, C=163_840,
                 evals=32, truth=leads, words=(f"--data={tmp_path}",))
    found = figures.not_monotonic(arms.Atlas(tmp_path / "arms", tmp_path), "hard")
    assert found["verdict"] == verdict, found["details"]


@pytest.mark.parametrize("task, fallen, verdict", [
    ("easy", (1,), "underpowered"), ("easy", (0, 1, 2, 3), "contradicted"),
    ("hard", (0, 1, 2, 3), "confirmed")])
def test_the_smallest_stable_B_p_needs_more_than_one_fall(tmp_path, task, fallen, verdict):
    """One run or all four runs of one task lose half of their reward at B_p = 4."""
    def falling(B_p, n, C):
        return rising(B_p, n, C) * np.where(C > 80_000, 0.5, 1)

    for name in ("easy", "hard"):
        for arm, B_ps in ((name, (16,)), (f"joint_{name}", (4, 64))):
            for seed in range(4):
                falls = arm == f"joint_{task}" and seed in fallen
                for B_p in B_ps:
                    simulate(tmp_path / "arms" / arm, ns=(4, 16)[:1 + (B_p > 4)], seeds=(seed,),
                             B_ps=(B_p,), C=163_840, evals=10, draw=seed,
                             words=(f"--data={tmp_path}",),
                             truth=falling if falls and B_p == 4 else rising)
    found = figures.stable_B_p(arms.Atlas(tmp_path / "arms", tmp_path))
    assert found["verdict"] == verdict, found["details"]
    assert f"{task.title()}: {len(fallen)} of 4 with B_p = 4" in found["details"]
    assert "the smallest stable one is 16" in found["details"]
    assert "0 of 4 with B_p = 4" in found["details"]


def test_rows_with_a_single_n_are_not_judged(tmp_path):
    for arm in ("model_narrow", "size_50", "size_800", "ood", "mix_hard", "mix_dual", "mix_tri",
                "easy", "hard", "ppo_easy"):
        simulate(tmp_path / "arms" / arm, ns=(64,), seeds=(0,), B_ps=(16,), C=262_144, evals=16,
                 truth=rising)
    for row in atlas.rows_of(arms.Atlas(tmp_path / "arms", tmp_path, ["--ns=64"])):
        assert row["verdict"] in ("not run", "shown"), row


def test_runs_that_cannot_be_compared_are_left_out(tmp_path):
    """If n = 8 has another seed than all other n, the row waits. Without n = 8 the row is judged.
    n = 64 diverged before its first evaluation and is left out. n = 32 diverged later: it counts
    with its last evaluation, and the row mentions the divergence."""
    for ns, seed in (((4, 16, 32, 64), 0), ((8,), 1)):
        simulate(tmp_path / "arms/easy", ns=ns, seeds=(seed,), B_ps=(16,), C=262_144, evals=16,
                 truth=rising)
    for run, rollouts in (("Bp16_n64_*", 0), ("Bp16_n32_*", 212_992)):
        (log,) = tmp_path.glob(f"arms/easy/{run}/log.jsonl")
        edit(log, ends_at(rollouts, "diverged"))
    rows = {r["paper"]: r for r in atlas.rows_of(arms.Atlas(tmp_path / "arms", tmp_path), "main")}
    assert "waits for a seed that all of" in rows["Figures 6 and 7, Easy"]["details"]
    for path in tmp_path.glob("arms/easy/Bp16_n8_*"):
        shutil.rmtree(path)
    arms.read.cache_clear()
    rows = {r["paper"]: r for r in atlas.rows_of(arms.Atlas(tmp_path / "arms", tmp_path), "main")}
    row = rows["Figures 6 and 7, Easy"]
    assert "1 of 3 runs diverged" in row["details"] and row["figures"], row
    # the row on Hard has no runs, and without runs our own rows are not shown
    assert rows["Figures 6 and 7, Hard"]["verdict"] == "not run"
    assert not any(paper.startswith("ours") for paper in rows)
