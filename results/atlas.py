"""results/atlas.py: the paper's figures from the logs of labelled arms, each with its claim judged.

    python results/atlas.py                              # our own study: figures, results/README.md
    python results/atlas.py models --data=data/guru_math --runs=runs/guru_math_MODEL_atlas
    python results/atlas.py keep --runs=runs/atlas       # ended runs into results/atlas, thinned

`bash run_sweep.sh STUDY` makes the runs of a study and ends with the second command. ROWS, below,
is the table: where in the paper, its claim in our words, the function that draws and judges it.
Intervals are 90%, over seeds and validation problems (core/stats.py). A verdict is `confirmed` or
`contradicted` if the interval decides, else `underpowered` with the seeds that would decide it, and
`shown` if nothing is judged. Cells with fewer than 150 updates are drawn and not judged.
"""
import math
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "results")]

from config import BadInput, entry, parse  # first: Ctrl-C is one line from here
from core.log import atomic_write, save_json
from arms import DEEP, USED, Atlas, flat, keep, read, updates
from core import sweep
from core.plots import format_si, plural
from core.stats import Missing
from figures import (algo, any_B_p, at_every, baseline, batch, beyond, by_difficulty, difficulty,
                     explodes, extreme, far, forgetting, interference, joint, lr_control, lr_grid,
                     metrics, mixtures, models, not_monotonic, one_problem, ood, overfits, plateau,
                     recipe, record_breaking, rise, sensitivity, size, stable_B_p, tokens, tokens_k,
                     very_easy)

# --------------------------------------------------------------------------------------------------
# The table: (study, where in the paper, its claim in our words, function, its arguments)

ROWS = [
    ("difficulty", "Figure 2",
     "Problems split by avg@16 of the base model: Easy 0.3 to 0.6, Hard 0 to 0.0625.", difficulty),
    ("recipe", "Figure 3, Easy", "KL and entropy terms together give the best reward on Easy.",
     recipe, "rec_easy_", +1, ("both", "none"), ("small", "none")),
    ("recipe", "Figure 3, Hard", "On Hard both terms destabilise training, with the filter too; "
     "none is best.", recipe, "rec_hard_", -1, ("both", "none"), ("filtered", "none"),
     ("selective", "none"), ("policy", "none")),
    ("recipe", "section 3, mixed", "On a mixed set training is steadiest without either (judged by "
     "the reward).", recipe, "rec_mixed_", -1, ("both", "none")),
    ("recipe", "section 3, response length", "On Hard KL and entropy terms make the responses "
     "explode in length (by a quarter or more).", explodes, "rec_hard_both", "rec_hard_none"),
    ("recipe", "Figure 4, left", "One base lr is best, a smaller and a larger one are worse.",
     lr_grid),
    ("recipe", "Figure 4, right; Table 1", "At a large batch lr ~ sqrt(B) beats a constant and a "
     "linear lr.", recipe, "scale_", +1, ("sqrt", "linear"), ("sqrt", "constant")),
    ("main", "Figures 1, 6 and 7, Easy", "At one B_p n*(C) rises with C as a sigmoid, and "
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
    ("main", "ours: the lr control, Easy", "n*(C) rises when every n has its own best lr.",
     lr_control, "easy"),
    ("main", "ours: the lr control, Hard", "The same on Hard.", lr_control, "hard"),
    ("main", "Figures 5 and 15", "Record-breaking points of noisy runs, and a monotone fit to "
     "them, stand for the frontier.", record_breaking),
    ("joint", "Figure 8, Easy", "On Easy worst@4 wants a larger n than best@4.",
     metrics, "easy", "best@4", "worst@4"),
    ("joint", "Figure 8, Hard", "On Hard best@4 wants a larger n than worst@4.",
     metrics, "hard", "worst@4", "best@4"),
    ("main", "Figure 24", "The unit, rollouts or tokens, makes no difference to n*(C).", tokens),
    ("main", "Figure 24, k", "The law's k is smaller in tokens than in rollouts.", tokens_k),
    ("joint", "Figure 10, Easy", "A larger n helps, and B_p matters less than n (9.2 and 1.9 "
     "points from end to end).", sensitivity, "easy"),
    ("joint", "Figure 10, Hard", "A larger n and a larger B_p help about equally (3.1 and 2.2 "
     "points from end to end).", sensitivity, "hard"),
    ("joint", "Figure 16, Easy", "At every B_p n*(C) rises with C, and saturates.",
     at_every, "fixed_Bp", "easy"),
    ("joint", "Figure 17, Hard", "The same on Hard.", at_every, "fixed_Bp",
     "hard"),
    ("fixed_B", "Figures 9 and 18, Easy", "At a fixed batch B = B_p n, n* rises with M: many "
     "problems first, many rollouts later.", at_every, "fixed_B", "easy"),
    ("fixed_B", "Figures 9 and 19, Hard", "The same on Hard, noisier.", at_every,
     "fixed_B", "hard"),
    ("fixed_B", "section 4.2, Hard", "At a fixed batch n*(M) is not monotonic on Hard: B_p rises "
     "at intermediate M.", not_monotonic, "hard"),
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
    ("mix", "Figure 14, forgetting", "Hard problems alone (here: Unsolved) make the model forget "
     "Easy and Very Easy ones; Easy problems in the mix prevent most of it.", forgetting),
    ("mix", "Figure 14, Very Easy", "Very Easy problems in the mixture do not help on Hard or "
     "Easy ones.", very_easy),
    ("extreme", "Figure 20, best@4", "On Unsolved the largest n has the best coverage (best@4).",
     extreme, "best@4"),
    ("extreme", "Figure 20, worst@4", "On Unsolved a moderate n has the best worst@4, not the "
     "largest.", extreme, "worst@4"),
    ("extreme", "ours: Unsolved", "n*(C) rises with C on Unsolved.", rise, "mix_hard"),
    ("extreme", "ours: the lr control, Unsolved", "The same when every n has its own best lr.",
     lr_control, "mix_hard"),
    ("ood", "Figure 23", "A larger n is better on another set of problems too (AIME24).", ood),
    ("algos", "Figure 25, left", "PPO on Easy saturates early (not judged), with little between "
     "large n.", algo, "ppo_easy", 0),
    ("algos", "Figure 25, middle", "PPO on Hard: a larger n is better at matched C.",
     algo, "ppo_hard"),
    ("algos", "Figure 25, right", "CISPO on Easy: a larger n becomes better as C grows (here with "
     "two updates a batch; with one it is GRPO).", algo, "cispo_easy", +1, True),
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

PICTURES = "Figures 1, 6 and 7, Easy", "ours: Unsolved, four times as far"  # on the page

ORDER = "confirmed", "contradicted", "underpowered", "shown", "not run"


def tell(atlas, study=""):
    """Return the rows (of one study) as dicts, in order; a row whose runs are missing says so."""
    out, known = [], {"difficulty", "toy", *sweep.presets(parse(atlas.words)["data"])}
    for name, paper, claim, function, *words in ROWS:
        if name not in known or study not in ("", name):
            continue
        USED.clear()
        try:
            found = function(atlas, *words)
        except (Missing, BadInput) as e:
            found = dict(verdict="not run", number="", says=f"waits for {e}")
            USED.clear()
        used = USED.copy()
        if "compared" in found:  # the others need not be deep
            own = {run["path"] for run in flat(found["compared"])}
            used = {path: USED[path] for path in USED if path in own}
        M = min((updates(run, C) for run, C in (used or USED).values()), default=0)
        verdict, says = found["verdict"] or "shown", found["says"]
        seeds = sorted({run["config"]["seed"] for run, _ in USED.values()})
        wants = ""
        if verdict in ORDER[:3] and used and M < DEEP:
            wants = f"the largest batch makes {M} updates, {DEEP} are needed"
            says += f". By these runs: {verdict}"
        elif verdict in ORDER[:2] and not found.get("tuned", True):
            if atlas.own:
                wants = "would need the lr tuned for each n"
                says += f". By these runs, at an lr that was not tuned for each n: {verdict}"
            else:
                says += ". At one lr for all n, as in the paper"
        elif verdict == "underpowered":
            cells = Counter((Path(path).parent, run["B_p"], run["n"], run["lr"])
                            for path, (run, _) in (used or USED).items())
            wants = found.get("wants") or needed(found.get("times"), min(cells.values()))
        verdict = "underpowered" if wants else verdict
        died = sum(run["status"] == "diverged" for run, _ in USED.values())
        if died:
            says += f". {died} of {plural(len(USED), 'run')} diverged and count as what they got"
        if len(seeds) == 1:
            says += ". One seed: intervals are over problems only"
        figures = found.get("figure") or []
        out.append(dict(
            study=name, paper=paper, claim=claim, verdict=verdict, wants=wants,
            number=found["number"], says=says, M=M, seeds=seeds,
            table=found.get("table"), figures=[figures] if isinstance(figures, str) else figures,
            runs=len(USED),
            rollouts=int(sum(min(C, run["rollouts"][-1]) for run, C in USED.values())),
            C=min((C for _, C in (used or USED).values()), default=0)))
    if atlas.own:
        return out
    # of other data a question of ours that nobody made runs for is no gap
    asked = [r for r in out if r["verdict"] != "not run" or not r["paper"].startswith("ours")]
    return asked or out


def needed(times, seeds):
    """Return how many seeds would decide a row, as text. times: as many as its `seeds`."""
    X = max(math.ceil(times * seeds), seeds + 1)
    return f"would need {X} seeds" if X <= 100 else "would need more than 100 seeds"


# --------------------------------------------------------------------------------------------------
# The page

INTRO = """# The paper on a laptop

The paper's figures on a tiny transformer that adds and subtracts ([the scale](#the-scale)): its
claims in our words, our verdicts, one number each. `python results/atlas.py` draws every figure
from the logs in `results/atlas` and writes this page and [atlas.json](atlas.json), which has all
other numbers. `bash run_sweep.sh STUDY` makes the runs of a study. Our own claims were written
before the runs (commit 16822a5, results/plan.md).

- *confirmed*: the 90% interval is on the claim's side.
- *contradicted*: it excludes an effect on that side of 3% of what training gained (one point if it
  gained 33). "No difference" means within twice that.
- *underpowered*: neither. The row says how many seeds would decide it. A row that compares n at an
  lr that was not tuned for each n, or at fewer than 150 updates, is underpowered too. The paper's
  frontier goes to a larger n after 155 to 264 updates.
- *shown*: a figure without a claim.

The base model solves Very Easy problems in 60 to 90% of its tries, Easy ones in 30 to 60%, Hard
ones at most once in 16, and Unsolved ones never in 128.
"""

READING = """
## How to read the numbers

- Differences are in points, 100 times the reward, of means over the last quarter of the budget C
  that all runs of a row have; "early" is 1/16 to 1/8 of it. The ± is half of a 90% interval over
  seeds and validation problems. Of so many intervals one in ten misses the truth.
- A rise of n* is tested by `core/stats.verdict_of`. The number is the n that comes closest to one n
  for all budgets, and by how much another n beats it where a rise would show.
- A best n is chosen on some seeds and problems and scored on others.
- lr = lr_base sqrt(B / 1024), lr_base = 2e-4 if no other is named. If a claim was made on seeds 0
  to 2, later seeds decide its row.
- "Would need X seeds": the interval shrinks with the root of the seeds, and the effect stays as it
  is. Seeds do not shrink the part of the validation problems.
- The paper does not print B_p of its PPO, CISPO, mixture and Unsolved runs, nor the set of its
  baseline ablation. data/guru_math/presets.json assumes B_p = 32 and Easy.
"""

SCALE = """
## The scale

| | paper | here |
|---|---|---|
| model | Qwen2.5-7B-Instruct and others | 2 layers, 190,000 parameters, trained on slipping texts |
| problems | Guru-Math, D = 6,000 Easy, 5,000 Hard | sums and differences, D = 200 (140 Unsolved) |
| B_p | 32 to 1,024 | 16 (4, 16, 64 in `joint`) |
| n | 8 to 2,048 | 2 to 256 |
| budget C | about 4 million | 262,144 (1,048,576 in `far`) |
| updates M of a large n | 155 to 264 where it takes over | 256 at n = 64 (1,024 in `far`) |
| C / D, rollouts a problem | about 700 | 1311 |
| KL and entropy coefficients | 0.001 | 0.3, the smallest that clearly change something |

The real model of `smollm` has 135 million parameters, B_p = 4, C = 40,960 at most, and D = 1,906
Hard and 463 Easy sums: C / D is 21 and 88 at most.
"""

TRIED = """
## Tried, and decided nothing

At commit c01f57e, with its rows, logs and figures: a run that raises n from 4 to 16 to 64 on
Unsolved (6.2 ± 4.6 points below n = 64 throughout, at one lr, to a million rollouts); many epochs
of 50 problems (n = 64 made 64 updates); whether C or C / D says where a larger n takes over (it
took over for D = 50 and 100 alone); the lr that leads at C/8 (it loses up to 3.5 points at the
end); when to stop, and statistics of the base model that forecast the best n (three groups of
sweeps); SmolLM2 on Easy sums with one seed to 40,960 rollouts (n = 64 comes to 1.6 ± 2.3 below n =
4) and its lr; the verdicts of shallow runs, 20 of which changed with depth. At commit 16822a5:
SmolLM2 by one lr (n = 64 18.7 ± 6.7 points below n = 4 on Hard); what training unlearns (hardly a
problem more than by chance); mixtures by n and to 262,144. At seed 900, which no row uses: a higher
lr and fewer problems, which set lr_base = 2e-4 and D = 200. Not run: n = 256 beyond 64 updates on
Easy and Hard, n = 16 of Very Easy, third seeds of `joint`, `mix`, `models`, `algos`, `recipe`,
`size`. At commit ac49ba5, with its row, scripts and logs: the price of n, a forecast of the best n
from the gradient noise of the base model (a pilot in place of a sweep). Over 7 worlds its n took
0.89 (0.79 to 0.99) times the rollouts of the best other cell, and n = 4 for all of them 0.92 (0.80
to 1.05), so the forecast cannot be told from "always 4". It is undefined if nothing is solved.
"""


def table_text(rows, figures):
    """Return rows as a table in Markdown, a line each."""
    lines = ["| row | claim | verdict | number | figures |", "|---|---|---|---|---|"]
    for r in rows:
        links = " ".join(f"[{Path(name).stem}]({figures}{name})" for name in r["figures"])
        verdict = f"**{r['verdict']}**" + f": {r['wants']}" * bool(r["wants"])
        number = r["number"] or r["says"]
        lines.append(f"| {r['paper']} | {r['claim']} | {verdict} | {number} | {links} |")
    return "\n".join(lines)


def tally(rows):
    """Return how many rows have each verdict as text: "9 confirmed, 5 contradicted, ..."."""
    count = Counter(r["verdict"] for r in rows)
    return ", ".join(f"{count[verdict]} {verdict}" for verdict in ORDER if count[verdict])


def page(rows, folder, figures):
    """Return the text of README.md."""
    ours = [r for r in rows if r["paper"].startswith("ours")]
    found = [read(str(path.parent)) for path in folder.glob("[!.]*/*/log.jsonl*")]
    hours = sum(run["hours"] or 0 for run in found if isinstance(run, dict))
    theirs = [r for r in rows if r not in ours]
    counted = (f"Of {len(theirs)} claims and figures of the paper: {tally(theirs)}. Of {len(ours)} "
               f"of our own: {tally(ours)}. {len(found)} runs, {hours:.0f} hours of training on "
               "one core.\n")
    shown = [f"![{r['paper']}]({figures}{r['figures'][0]})\n" for r in rows
             if r["paper"] in PICTURES]
    return "\n".join([INTRO, counted, "## The paper's claims\n", table_text(theirs, figures),
                      "\n## Our own\n", table_text(ours, figures), "", *shown, READING, SCALE,
                      TRIED])


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
            return print(f"{verb}: no row of the page is about this study alone; its figures: "
                         f"python frontier.py --runs={folder}/ARM --view=all")
        raise BadInput(f"{verb}: no such study; keep, {', '.join(known)}")
    out = Path(cfg["out"] or folder)
    at_home = folder.resolve() == own.resolve()
    rows = tell(Atlas(folder, out, words, at_home), verb)
    for r in rows:
        says = "\n    ".join([r["says"], *(r["table"] or "").splitlines()])
        wants = f", {r['wants']}" * bool(r["wants"])
        number = f"    {r['number']}\n" * bool(r["number"])
        print(f"{r['paper']}: {r['verdict']}{wants}\n  claim: {r['claim']}\n{number}    {says}\n"
              f"  {plural(r['runs'], 'run')}, seeds {', '.join(map(str, r['seeds']))}, "
              f"{format_si(r['rollouts'])} rollouts"
              + "".join(f"; figure: {out / name}" for name in r["figures"]))
    if not verb and at_home:
        here = not cfg["out"]  # then the page is above its figures
        place = ROOT / "results" if here else out
        with atomic_write(place / "README.md") as part:
            part.write_text(page(rows, folder, "atlas/" if here else ""))
        save_json(place / "atlas.json", rows, indent=1)


if __name__ == "__main__":
    entry(main)
