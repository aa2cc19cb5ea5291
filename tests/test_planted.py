"""Logs in the shape of the paper's study, with its claims or their opposites planted."""
import sys
from pathlib import Path

import pytest

from core.log import read_log
from conftest import logs
from core import sweep
import planted
from planted import DATA, plant

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "results"))
import atlas
from arms import Atlas


def test_a_planted_log_has_only_fields_of_a_trained_one(swept, tmp_path):
    def fields(records):
        out = {}
        for r in records:
            kind = r["type"], bool(r.get("fresh"))
            out.setdefault(kind, set()).update(r)
        return out
    folder = plant(tmp_path, "interference", thin=True)["easy"]
    planted = fields(read_log(next(folder.glob("*/log.jsonl"))))
    trained = fields(next(iter(logs(swept[0]).values())))
    fresh = planted.pop(("train_pass", True))
    assert set(planted) == set(trained)
    assert all(planted[kind] <= trained[kind] for kind in planted)
    assert fresh > planted["train_pass", False]


# Rows with other verdicts than the rest: (verdict if the paper's claims are planted, verdict if
# their opposites are planted), None if any verdict will do. The last test of this file and
# test_atlas.py plant what decides these rows
APART = {"Figures 5 and 15": ("shown", "shown"), "Figure 1": ("shown", "shown"),
         # every B_p of the paper's grids is stable from its smallest on; see test_atlas.py
         "section 4.2, the smallest stable B_p": ("underpowered", "underpowered"),
         "section 4.2, Hard": (None, "contradicted"),  # see test_atlas.py
         "ours: Figure 26 at equal updates": ("contradicted", None),
         "section 3, robust, Hard": (None, "contradicted"),  # both terms cost 40% of the gain
         "section 4.1, saturation": ("confirmed", None),  # n = 2,048 is not planted as the best
         "section 5.1, overfitting": ("confirmed", None),
         "section 4.3, B, Easy": ("confirmed", None),
         "section 4.3, B_p, Easy": (None, "contradicted"),
         "Figure 24, k": ("confirmed", None)}
STUDIES = dict.fromkeys(study for study, *_ in atlas.ROWS if study in sweep.presets(DATA))


@pytest.mark.parametrize("claims, verdict", [(1, "confirmed"), (-1, "contradicted")])
@pytest.mark.parametrize("study", STUDIES)
def test_a_page_says_what_was_planted(study, claims, verdict, tmp_path):
    """Each row confirms the paper's claim if it is planted and contradicts it if its opposite is
    planted. Each row has a figure."""
    runs = tmp_path / "runs"
    plant(runs, study, claims, thin=study != "extreme")  # whose rows need the largest n
    rows = atlas.rows_of(Atlas(runs, tmp_path, [f"--data={DATA}", f"--runs={runs}"]), study)
    for row in rows:
        asked = APART.get(row["paper"], (verdict, verdict))[claims < 0] or row["verdict"]
        assert row["verdict"] == asked, f"{row['paper']}: {row['verdict']}: {row['details']}"
        assert row["figures"] or row["paper"].endswith("stable B_p")
        assert all((tmp_path / name).stat().st_size > 15_000 for name in row["figures"])


def at_equal_updates(cfg, level, claims, C, part="val", curve=planted.curve):
    """Return `planted.curve`, changed so that a larger baseline adds nothing per update."""
    return curve(cfg, level, claims, C * (cfg["n_train"] or cfg["n"]) / cfg["n"], part)


QUIET = dict(RUN_SD=0.0005, DRIFT=0.0005, LIKING=0.01)
# on Hard both terms cost a tenth of the gain
CHEAP = dict(TERMS=planted.TERMS | dict(hard=planted.TERMS["hard"] | {(1, 1): 0.1}))


@pytest.mark.parametrize("study, row, claims, thin, constants, verdict", [
    ("main", "section 4.1, saturation", 1, True, dict(EASY=(8.5, 4.75, 5.84, 2.73)),
     "contradicted"),
    ("main", "Figure 24, k", 1, True, QUIET | dict(LONGER=-0.06), "contradicted"),
    ("robust", "section 3, robust, Hard", 1, False, CHEAP, "confirmed"),
    ("models", "section 5.1, overfitting", 1, True, dict(FALLS_FROM=9), "contradicted"),
    ("joint", "section 4.3, B, Easy", -1, True, QUIET | dict(LARGE_BATCH=0), "contradicted"),
    ("joint", "section 4.3, B_p, Easy", 1, False, {}, "confirmed"),
    ("baseline", "ours: Figure 26 at equal updates", 1, True,
     QUIET | dict(curve=at_equal_updates), "confirmed")])
def test_claims_that_the_two_plantings_leave_open(study, row, claims, thin, constants, verdict,
                                                  tmp_path, monkeypatch):
    """Each row of APART gets its missing verdict from other constants in planted.py."""
    for name, value in constants.items():
        monkeypatch.setattr(planted, name, value)
    planted.family.cache_clear()
    monkeypatch.setattr(atlas, "ROWS", [r for r in atlas.ROWS if r[1] == row])
    plant(tmp_path / "runs", study, claims, thin)
    (told,) = atlas.rows_of(Atlas(tmp_path / "runs", tmp_path, [f"--data={DATA}"]), study)
    assert told["verdict"] == verdict, told["details"]
