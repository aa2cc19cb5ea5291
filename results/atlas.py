"""results/atlas.py: draw the paper's figures from our logs and judge the claim of each figure.

    python results/atlas.py                              # our own study: figures, results/README.md
    python results/atlas.py models --data=data/guru_math --runs=runs/guru_math_MODEL_atlas
    python results/atlas.py keep --runs=runs/atlas       # thin ended runs into results/atlas

`bash run_sweep.sh STUDY` makes the runs of a study and then calls this script for the study. The
table ROWS has a row for each claim: its place in the paper, the claim in our words, and the
function that judges it and draws its figure. results/README.md explains the verdicts.
"""
import math
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "results")]

# imported first, so that Ctrl-C during the slow imports below prints no traceback
from config import BadInput, entry, parse
from core.log import atomic_write, save_json
from arms import DEEP, USED, Atlas, flat, keep, read, updates
from core import sweep
from core.plots import format_si, plural
from core.stats import Missing
from figures import (algo, any_B_p, at_every, baseline, batch, beyond, by_difficulty, difficulty,
                     explodes, extreme, far, forgetting, interference, joint, lr_grid, metrics,
                     mixtures, models, not_monotonic, one_problem, ood, overfits, overview, plateau,
                     recipe, record_breaking, rise, sensitivity, size, stable_B_p, tokens, tokens_k,
                     very_easy)

# --------------------------------------------------------------------------------------------------
# The table: (study, place in the paper, its claim in our words, function, its arguments)

ROWS = [
    ("difficulty", "Figure 2",
     "Problems split by avg@16 of the base model: Easy 0.3 to 0.6, Hard 0 to 0.0625.", difficulty),
    ("recipe", "Figure 3, Easy", "KL and entropy terms together give the best reward on Easy.",
     recipe, "rec_easy_", "larger", ("both", "none"), ("small", "none")),
    ("recipe", "Figure 3, Hard", "On Hard both terms destabilise training, with the filter too; "
     "none is best.", recipe, "rec_hard_", "smaller", ("both", "none"), ("filtered", "none"),
     ("selective", "none"), ("policy", "none")),
    ("recipe", "section 3, mixed", "On a mixed set training is steadiest without either (judged by "
     "the reward).", recipe, "rec_mixed_", "smaller", ("both", "none")),
    ("recipe", "section 3, response length", "On Hard KL and entropy terms make the responses "
     "explode in length (by a quarter or more).", explodes, "rec_hard_both", "rec_hard_none"),
    ("recipe", "Figure 4, left", "One base lr is best, a smaller and a larger one are worse.",
     lr_grid),
    ("recipe", "Figure 4, right; Table 1", "At a large batch lr ~ sqrt(B) beats a constant and a "
     "linear lr.", recipe, "scale_", "larger", ("sqrt", "linear"), ("sqrt", "constant")),
    ("main", "Figures 6 and 7, Easy", "At one B_p n*(C) rises with C as a sigmoid, and "
     "saturates (n = 8 to 512).", rise, "easy"),
    ("main", "Figures 6 and 7, Hard", "The same on Hard (8 to 128).", rise, "hard"),
    ("robust", "section 3, robust, Easy", "n*(C) rises on Easy without KL and entropy terms too.",
     rise, "easy_none"),
    ("robust", "section 3, robust, Hard", "n*(C) rises on Hard with both terms too.", rise,
     "hard_both"),
    ("main", "section 4.1, the plateau", "The best n at high C is smaller on Hard than on Easy.",
     plateau, "easy", "hard"),
    ("main", "section 4.1, saturation", "Beyond the plateau a larger n (2,048) does not extend the "
     "frontier.", beyond, "easy"),
    ("main", "Figures 5 and 15", "Record-breaking points of noisy runs, and a monotone fit to "
     "them, stand for the frontier.", record_breaking),
    ("joint", "Figure 8, Easy", "On Easy worst@4 needs a larger n than best@4.",
     metrics, "easy", "best@4", "worst@4"),
    ("joint", "Figure 8, Hard", "On Hard best@4 needs a larger n than worst@4.",
     metrics, "hard", "worst@4", "best@4"),
    ("main", "Figure 24", "The unit, rollouts or tokens, makes no difference to n*(C).", tokens),
    ("main", "Figure 24, k", "The law's k is smaller in tokens than in rollouts.", tokens_k),
    ("joint", "Figure 10, Easy", "A larger n helps, and B_p matters less than n (9.2 and 1.9 "
     "points from end to end).", sensitivity, "easy"),
    ("joint", "Figure 10, Hard", "A larger n and a larger B_p help about equally (3.1 and 2.2 "
     "points from end to end).", sensitivity, "hard"),
    ("joint", "Figure 16, Easy", "At every B_p n*(C) rises with C, and saturates.",
     at_every, "joint", "easy"),
    ("joint", "Figure 17, Hard", "The same on Hard.", at_every, "joint", "hard"),
    ("fixed_B", "Figures 9 and 18, Easy", "At a fixed batch B = B_p n, n* rises with M: many "
     "problems first, many rollouts later.", at_every, "fixed_B", "easy"),
    ("fixed_B", "Figures 9 and 19, Hard", "The same on Hard, noisier.", at_every, "fixed_B",
     "hard"),
    ("fixed_B", "section 4.2, Hard", "At a fixed batch n*(M) is not monotonic on Hard: B_p rises "
     "at intermediate M.", not_monotonic, "hard"),
    ("fixed_B", "Figure 1", "The four findings in one picture.", overview),
    ("joint", "Figures 21 and 22, Easy", "Best over (B_p, n) jointly, n*(C) rises likewise.",
     joint, "easy"),
    ("joint", "Figures 21 and 22, Hard", "The same on Hard.", joint, "hard"),
    ("joint", "section 4.3, B, Easy", "The best total batch B = B_p n rises with C.", batch,
     "easy"),
    ("joint", "section 4.3, B_p, Easy", "One B_p will do at every budget.", any_B_p, "easy"),
    ("joint", "section 4.2, the smallest stable B_p", "It is larger on Hard than on Easy.",
     stable_B_p),
    ("interference", "Figures 11 and 27, Easy", "At matched n M a larger n leaves fewer training "
     "problems unsolved, and pass rates less polarised.", interference, "easy"),
    ("interference", "Figures 11 and 27, Hard", "At matched n M a larger n leaves fewer training "
     "problems unsolved (coverage); small n sharpens a subset.", interference, "hard"),
    ("models", "Figure 12", "With other base models a larger n is better at high C too.", models),
    ("models", "section 5.1, overfitting", "With other base models on Easy the training reward of "
     "the largest n keeps rising where its validation reward saturates or falls.", overfits),
    ("size", "Figure 13", "With fewer training problems (500, not 6,000) the best n is smaller; "
     "the largest n overfits.", size),
    ("mix", "Figure 14, crossover", "Whatever the mixture, the larger n is better at high C on "
     "the levels trained on, but Very Easy.", mixtures),
    ("mix", "Figure 14, forgetting", "Training on Hard problems only (here: Unsolved) makes the "
     "model forget Easy and Very Easy ones; Easy problems in the mix prevent most of it.",
     forgetting),
    ("mix", "Figure 14, Very Easy", "Very Easy problems in the mixture do not help on Hard or "
     "Easy ones.", very_easy),
    ("extreme", "Figure 20, best@4", "On Unsolved the largest n has the best coverage (best@4).",
     extreme, "best@4"),
    ("extreme", "Figure 20, worst@4", "On Unsolved a moderate n has the best worst@4, not the "
     "largest.", extreme, "worst@4"),
    ("ood", "Figure 23", "A larger n is better on another set of problems too (AIME24).", ood),
    ("algos", "Figure 25, left", "PPO on Easy saturates early (not judged), with little between "
     "large n.", algo, "ppo_easy", "alike"),
    ("algos", "Figure 25, middle", "PPO on Hard: a larger n is better at matched C.",
     algo, "ppo_hard"),
    ("algos", "Figure 25, right", "CISPO on Easy: a larger n becomes better as C grows (here with "
     "two updates a batch; with one it is GRPO).", algo, "cispo_easy", "larger", True),
    ("baseline", "Figure 26", "Baseline from many rollouts, loss from few, at equal rollouts: "
     "(1) all of many > (3) decoupled = (2) few.", baseline, "rollouts"),
    ("baseline", "ours: Figure 26 at equal updates", "The same after equally many updates.",
     baseline, "updates"),
    ("toy", "Appendix, one problem", "With one problem and a tabular policy, sequential updates "
     "are preferable to a larger n.", one_problem),

    ("far", "ours: Hard, four times as far", "Beyond the budget of `main` n*(C) goes from n = 4 to "
     "16 or 64.", far, "far_hard", 64),
    ("far", "ours: Easy, four times as far", "The same on Easy.", far, "far_easy", 64),
    ("far", "ours: Unsolved, four times as far", "On Unsolved n = 64, which leads at a quarter of "
     "this budget, stays above n = 4 at the better of two lr.", far, "far_mix_hard",
     64, True),
    ("levels", "ours: the rise by difficulty", "A large n gains more late on the hardest problems "
     "than on the easiest. (Against the paper, where harder sets prefer a smaller n.)",
     by_difficulty, 4, 64, "very_easy", "easy", "hard", "mix_hard"),
    ("smollm", "ours: a real model, Hard", "n*(C) rises with C for SmolLM2-135M-Instruct on Hard "
     "sums.", far, "smollm_hard", 64),
    ("smollm", "ours: a real model, Easy", "The same on Easy sums.", far, "smollm_easy", 64)]

ORDER = "confirmed", "contradicted", "underpowered", "shown", "not run"


def rows_of(atlas, study=""):
    """Return the rows of the table as dicts.

    study: return only the rows of this study. A row whose runs are missing has the verdict
    "not run".
    """
    known = {"difficulty", "toy", *sweep.presets(parse(atlas.words)["data"])}
    rows = [row_of(atlas, *row) for row in ROWS if row[0] in known and study in ("", row[0])]
    if atlas.own:
        return rows
    # outside the committed study, leave out the rows of our own questions that have no runs
    asked = [r for r in rows if r["verdict"] != "not run" or not r["paper"].startswith("ours")]
    return asked or rows


def row_of(atlas, study, paper, claim, function, *words):
    """Call a function of figures.py and return its table row as a dict.

    The dict also has the seeds, budget and number of the runs that were used. The function's
    verdict becomes underpowered if the runs make too few updates or, in our own study, if the lr
    was not tuned for each n.
    """
    USED.clear()
    try:
        found = function(atlas, *words)
    except (Missing, BadInput) as e:
        found = dict(verdict="not run", number="", details=f"waits for {e}")
        USED.clear()
    compared = {run["path"] for run in flat(found.get("compared", {}))}
    used = {path: USED[path] for path in USED if path in compared} or USED
    M = min((updates(run, C) for run, C in used.values()), default=0)
    verdict, details, needs = found["verdict"] or "shown", found["details"], ""
    if verdict in ORDER[:3] and M < DEEP and ("compared" not in found or compared):
        needs = f"the largest batch makes {M} updates, {DEEP} are needed"
        details += f". By these runs: {verdict}"
    elif verdict in ORDER[:2] and not found.get("tuned", True):
        if atlas.own:
            needs = "would need the lr tuned for each n"
            details += f". By these runs, at an lr that was not tuned for each n: {verdict}"
        else:
            details += ". At one lr for all n, as in the paper"
    elif verdict == "underpowered":
        cells = Counter((Path(path).parent, run["B_p"], run["n"], run["lr"])
                        for path, (run, _) in used.items())
        needs = found.get("needs") or seeds_text(found.get("times"), min(cells.values()))
    died = sum(run["status"] == "diverged" for run, _ in USED.values())
    if died:
        details += (f". {died} of {plural(len(USED), 'run')} diverged; each counts with its last "
                 "evaluation")
    seeds = sorted({run["config"]["seed"] for run, _ in USED.values()})
    if len(seeds) == 1:
        details += ". One seed: intervals are over problems only"
    figures = found.get("figure") or []
    return dict(
        study=study, paper=paper, claim=claim, verdict="underpowered" if needs else verdict,
        needs=needs, number=found["number"], details=details, M=M, seeds=seeds,
        table=found.get("table"), figures=[figures] if isinstance(figures, str) else figures,
        runs=len(USED),
        rollouts=int(sum(min(C, run["rollouts"][-1]) for run, C in USED.values())),
        C=min((C for _, C in used.values()), default=0))


def seeds_text(times, seeds):
    """Return how many seeds would decide a row, as text: `times` multiplied by `seeds`, the seeds
    that the row has."""
    X = max(math.ceil(times * seeds), seeds + 1)
    return f"would need {X} seeds" if X <= 100 else "would need more than 100 seeds"


# --------------------------------------------------------------------------------------------------
# results/README.md: atlas.py writes the part between the lines BEGIN and END

BEGIN, END = "<!-- rows: results/atlas.py writes them -->\n", "<!-- end of rows -->\n"


def table_text(rows, figures):
    """Return rows as a table in Markdown."""
    lines = ["| row | claim | verdict | number | figures |", "|---|---|---|---|---|"]
    for r in rows:
        links = " ".join(f"[{Path(name).stem}]({figures}{name})" for name in r["figures"])
        verdict = f"**{r['verdict']}**" + f": {r['needs']}" * bool(r["needs"])
        number = r["number"] or r["details"]
        lines.append(f"| {r['paper']} | {r['claim']} | {verdict} | {number} | {links} |")
    return "\n".join(lines) + "\n"


def tally(rows):
    """Return how many rows have each verdict as text: "9 confirmed, 5 contradicted, ..."."""
    count = Counter(r["verdict"] for r in rows)
    return ", ".join(f"{count[verdict]} {verdict}" for verdict in ORDER if count[verdict])


def page(rows, folder, figures):
    """Return the text of results/README.md with its rows replaced by `rows`."""
    ours = [r for r in rows if r["paper"].startswith("ours")]
    theirs = [r for r in rows if r not in ours]
    runs = [read(str(path.parent)) for path in folder.glob("[!.]*/*/log.jsonl*")]
    hours = sum(run["hours"] or 0 for run in runs if run)
    head, rest = (ROOT / "results/README.md").read_text().split(BEGIN)
    counted = (f"The verdicts on {len(theirs)} claims and figures of the paper: {tally(theirs)}. "
               f"The verdicts on {len(ours)} claims of our own: {tally(ours)}. The {len(runs)} "
               f"runs took {hours:.0f} hours of training on one core.\n")
    return head + "\n".join([
        BEGIN, counted, "## The paper's claims\n", table_text(theirs, figures),
        "## Our own claims\n", table_text(ours, figures), END]) + rest.split(END)[1]


def row_text(r, out):
    """Return a row as lines of text for the terminal. out: the folder of the row's figures."""
    needs = f", {r['needs']}" * bool(r["needs"])
    runs = (f"{plural(r['runs'], 'run')}, seeds {', '.join(map(str, r['seeds']))}, "
            f"{format_si(r['rollouts'])} rollouts")
    lines = [r["number"], r["details"], *(r["table"] or "").splitlines()]
    return "\n".join([f"{r['paper']}: {r['verdict']}{needs}", f"  claim: {r['claim']}",
                      *(f"    {line}" for line in lines if line),
                      "; figure: ".join([f"  {runs}", *(str(out / x) for x in r["figures"])])])


def main(argv):
    verb = argv[0] if argv and not argv[0].startswith("-") else ""
    words = argv[1:] if verb else argv
    cfg = parse(words, __doc__)
    own = ROOT / "results/atlas"
    others = any(word.startswith(("--runs=", "--data=", "--model=")) for word in words)
    folder = Path(sweep.sweep_folder(verb, words)) if others else own
    if not folder.is_dir():
        raise BadInput(f"--runs={folder}: no such folder")
    if verb == "keep":
        return keep(folder, Path(cfg["out"] or own))
    known = dict.fromkeys(name for name, *_ in ROWS)
    if verb and verb not in known:
        if verb in sweep.presets(cfg["data"]):
            return print(f"{verb}: no row of the page is about this study only; its figures: "
                         f"python frontier.py --runs={folder}/ARM --view=all")
        raise BadInput(f"{verb}: no such study; keep, {', '.join(known)}")
    out = Path(cfg["out"] or folder)
    out.mkdir(parents=True, exist_ok=True)
    at_home = folder.resolve() == own.resolve()
    rows = rows_of(Atlas(folder, out, words, at_home), verb)
    for r in rows:
        print(row_text(r, out))
    if not verb and at_home:
        # if --out is given, write a page in that folder. Otherwise write results/README.md
        here = not cfg["out"]
        place = ROOT / "results" if here else out
        with atomic_write(place / "README.md") as part:
            part.write_text(page(rows, folder, "atlas/" if here else ""))
        save_json(place / "atlas.json", rows, indent=1)


if __name__ == "__main__":
    entry(main)
