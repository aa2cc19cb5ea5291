"""results/atlas.py: every figure of the paper from our own runs, its claim, and our verdict.

    python results/atlas.py                         # draws results/atlas, writes results/README.md
    python results/atlas.py mix --runs=runs/atlas   # one study, from its runs (run_sweep.sh mix)
    python results/atlas.py keep --runs=runs/atlas  # finished runs into results/atlas, logs thinned

ROWS, below, is the table: the paper's claims, and for each the function that names its runs and
contrasts them. Rewards are means over the evaluations in a window of C, by default the last quarter
of the budget. Intervals are 90%, over seeds and validation problems (contrasts.py). A verdict is
`agree` or `disagree` where the interval decides (contrasts.judge), else `undecided` with the effect
that such runs would show in four of five repetitions; `too shallow` where the cell with the fewest
updates has made fewer than DEEP and still rises. Needs config.py, frontier.py,
core/sweep.py and, in this folder, rows.py, early.py and what these are made of, kept.py.
"""
import re
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "results")]

import config
from core import sweep
from config import BadInput, aside, entry, parse
from core.plots import many, si
from early import early_to_late, price_of_n, when_to_stop
from kept import USED, Atlas, fewest_updates, keep, read, right
from contrasts import Missing
from rows import (algo, baseline, by_difficulty, difficulty, each_B_p, epochs_control, extreme_far,
                  far, far_above, fixed_B, forgetting, growing, interference, joint, lr_control,
                  lr_grid, lr_of_a_short_run, lr_rule, many_epochs, metrics, mixtures, models,
                  models_training, none_right_control, one_problem, one_seed_deeper, ood,
                  order_of_crossings, real_curves, real_lr, recipe, records, rise, sensitivity,
                  size, stable_B_p, tokens, very_easy)

# --------------------------------------------------------------------------------------------------
# The table: (study, where in the paper, its claim in our words, function, its arguments)

ROWS = [
    ("difficulty", "Figure 2",
     "Problems split by avg@16 of the base model: Easy 0.3 to 0.6, Hard 0 to 0.0625.", difficulty),
    ("recipe", "Figure 3, Easy", "KL and entropy terms together give the best reward on Easy; "
     "without them entropy collapses. (Figure 3 here: the smallest coefficients that clearly "
     "change something, by the exploration in plan.md.)", recipe, "easy", +1),
    ("recipe", "Figure 3, Hard", "On Hard both terms destabilise training, with the filter too; "
     "none is best.", recipe, "hard", -1),
    ("recipe", "Figure 3, mixed", "On a mixed set training is best without either (the "
     "paper: steadiest; judged by the reward).", recipe, "mixed", -1),
    ("recipe", "Figure 4, left", "There is one best base lr at a middle batch: far below it "
     "training is slow, far above it unstable.", lr_grid),
    ("recipe", "Figure 4, right; Table 1", "At a batch 8 times that of the base lr, lr ~ sqrt(B) "
     "beats a constant and a linear lr.", lr_rule),

    ("main", "Figures 1, 6 and 7, Easy", "At one B_p n*(C) rises with C as a sigmoid, and "
     "saturates (n = 8 to 512).", rise, "easy"),
    ("main", "ours: the lr control, Easy", "The same claim when every n has its own best lr.",
     lr_control, "easy"),
    ("main", "Figures 6 and 7, Hard", "At one B_p n*(C) rises with C as a sigmoid, and "
     "saturates (8 to 128). (Not judged: at a smaller n than on Easy, says the paper; the next "
     "rows on difficulty have the reverse.)", rise, "hard"),
    ("main", "ours: the lr control, Hard", "The same claim when every n has its own best lr.",
     lr_control, "hard"),
    ("far", "ours: Hard, four times as far", "Beyond the budget of the row above n*(C) goes from "
     "n = 4 to 16 or 64 (plan.md, before these runs).", far, "far_hard"),
    ("far", "ours: Easy, four times as far", "The same on Easy (plan.md, before these runs).", far,
     "far_easy"),
    ("far", "ours: Unsolved, four times as far", "On Unsolved n = 64, which leads at a quarter of "
     "this budget, stays above n = 4 at the better of two lr (plan.md, before these runs).",
     far_above, "far_mix_hard"),
    ("levels", "ours: the rise by difficulty", "A large n gains more late on the hardest problems "
     "than on the easiest. (Harder sets prefer smaller n, says the paper.)", by_difficulty),
    ("size", "ours: C or C / D", "Where a larger n takes over, for several D.",
     order_of_crossings),
    ("growing", "ours: one run growing n, Unsolved", "A run that raises n where separate runs "
     "cross is as good as the best constant n at every budget.", growing, "grow_mix_hard",
     "mix_hard"),
    ("growing", "ours: growing n early, Unsolved", "The same of a run that goes from n = 4 to 64 "
     "long before they cross (plan.md, before these runs).", growing, "grow_early_mix_hard",
     "mix_hard", "grow_mix_hard"),
    ("growing", "ours: growing n, four times as far", "The same of the first schedule, to four "
     "times its budget (plan.md, before these runs).", growing, "grow_far_mix_hard",
     "far_mix_hard"),
    ("epochs", "ours: many epochs", "Where each of few problems is seen often, n*(C) rises "
     "with C.", many_epochs),
    ("epochs", "ours: many epochs, the lr control", "The same claim when every n has the best of "
     "half the lr and once, small ones of a quarter too.", epochs_control),
    ("main", "ours: the lr of a short run", "Of half, once and double the lr, what is lost at "
     "the end by the one that leads at C/8.", lr_of_a_short_run),
    ("main", "Figures 5 and 15", "Record-breaking points of noisy runs, and a monotone fit to "
     "them, stand for the frontier.", records),
    ("main", "Figure 8, Easy", "On Easy worst@4 wants a larger n than best@4.",
     metrics, "easy", "best@4", "worst@4"),
    ("main", "Figure 8, Hard", "On Hard best@4 wants a larger n than worst@4.",
     metrics, "hard", "worst@4", "best@4"),
    ("joint", "Figure 10, Easy", "A larger n helps, and B_p matters less than n (9.2 and 1.9 "
     "points from end to end). (The prescriptions of section 4.2 say the opposite: comparable on "
     "Easy.)", sensitivity, "easy"),
    ("joint", "Figure 16, Easy", "At every B_p n*(C) rises with C, and saturates.",
     each_B_p, "easy"),
    ("fixed_B", "Figures 9 and 18, Easy", "At a fixed batch B = B_p n, n* rises with M: many "
     "problems first, many rollouts later. (The k printed for B_p*(M) has the wrong sign for its "
     "form.)", fixed_B, "easy"),
    ("joint", "Figures 21 and 22, Easy", "Best over (B_p, n) jointly, n*(C) rises likewise.",
     joint, "easy"),
    ("joint", "section 4.2, the smallest stable B_p", "It is larger on Hard than on Easy.",
     stable_B_p),
    ("joint", "Figure 10, Hard", "A larger n and a larger B_p help about equally (3.1 and 2.2 "
     "points from end to end).", sensitivity, "hard"),
    ("joint", "Figure 17, Hard", "At every B_p n*(C) rises with C, and saturates.",
     each_B_p, "hard"),
    ("fixed_B", "Figures 9 and 19, Hard", "At a fixed batch B = B_p n, n* rises with M "
     "(Figure 19's caption; the text of section 4.2 says that it does not depend on M "
     "monotonically).", fixed_B, "hard"),
    ("joint", "Figures 21 and 22, Hard", "Best over (B_p, n) jointly, n*(C) rises likewise.",
     joint, "hard"),

    ("interference", "Figures 11 and 27, Easy", "At matched n M a larger n leaves fewer training "
     "problems unsolved, and pass rates less polarised.", interference, "easy"),
    ("interference", "Figures 11 and 27, Hard", "At matched n M a larger n leaves fewer training "
     "problems unsolved (coverage); small n sharpens a subset.", interference, "hard"),
    ("models", "Figure 12", "With other base models larger n is better at high C too. "
     "(Consistently, says the text; in the same section validation saturates or degrades at the "
     "largest n on both Easy sets. Here Easy problems alone.)", models),
    ("models", "Figure 12, training", "On training reward the largest n goes on rising where its "
     "validation saturates.", models_training),
    ("size", "Figure 13", "With fewer training problems (500, not 6,000) the best n is smaller; "
     "the largest n overfits. (Section 4.2 blames overfitting on large B_p and prescribes few "
     "problems with large n for many epochs; section 5.2 larger B_p and smaller n.)", size),
    ("mix", "Figure 14, crossover", "Whatever the mixture, the larger n is better at high C on "
     "the levels trained on, but Very Easy.", mixtures),
    ("mix", "Figure 14, forgetting", "Hard problems alone make the model forget Easy and Very "
     "Easy ones; Easy problems in the mix prevent most of it. (Hard here: Unsolved.)",
     forgetting),
    ("mix", "Figure 14, Very Easy", "Very Easy problems in the mixture do not help on Hard or "
     "Easy ones.", very_easy),
    ("extreme", "Figure 20, best@4", "On Unsolved the largest n has the best coverage (best@4).",
     extreme_far, "best@4"),
    ("extreme", "Figure 20, worst@4", "On Unsolved a moderate n has the best worst@4, not the "
     "largest.", extreme_far, "worst@4"),
    ("extreme", "ours: Unsolved", "n*(C) rises with C.", rise, "mix_hard"),
    ("extreme", "ours: the lr control, Unsolved", "The same claim when every n has the "
     "best of half, once and double the lr, small ones of a quarter too.", none_right_control),
    ("ood", "Figure 23", "Larger n is better on another family of problems too (AIME24; here sums "
     "and differences of five digits).", ood),

    ("main", "Figure 24", "The unit, rollouts or tokens, makes no difference to n*(C).", tokens),
    ("algos", "Figure 25, left", "PPO on Easy saturates early (not judged), with little between "
     "large n.", algo, "ppo_easy"),
    ("algos", "Figure 25, middle", "PPO on Hard: larger n is better at matched C.",
     algo, "ppo_hard"),
    ("algos", "Figure 25, right", "CISPO on Easy: larger n becomes better as C grows (here with "
     "two updates a batch; with one it is GRPO). Asked: does it come closer, and is it ahead?",
     algo, "cispo_easy"),
    ("baseline", "Figure 26, at equal updates", "Baseline from many rollouts, loss from few: "
     "(1) all of many > (3) decoupled = (2) few, by the best validation reward, here its mean over "
     "the last quarter of equally many updates.", baseline, "updates"),
    ("baseline", "Figure 26, at equal rollouts", "The same after equally many rollouts, the axis "
     "of the paper's figure.", baseline, "rollouts"),
    ("toy", "Appendix, one problem", "With one problem and a tabular policy, sequential updates "
     "are preferable to a larger n.", one_problem),

    ("smollm", "ours: a real model, curves", "How a real language model learns with n = 4, 16, 64 "
     "(SmolLM2-135M-Instruct on sums).", real_curves, "smollm_curves", "smollm_hard",
     "smollm_easy"),
    ("smollm", "ours: a real model, deeper", "The same at half the lr, to 160 updates of n = 64.",
     real_curves, "smollm_deep", "smollm_hard_half"),
    ("smollm", "ours: a real model, Hard", "n*(C) rises with C for a real language model "
     "(SmolLM2-135M-Instruct on sums), on problems solved at most once in 16.", rise,
     "smollm_hard"),
    ("smollm", "ours: a real model, Easy", "The same on problems solved 30 to 60% of the time.",
     rise, "smollm_easy"),
    ("smollm", "ours: a real model, Easy, deeper", "One seed on Easy goes on: n = 64 at half the "
     "lr, to 160 updates, and n = 4.",
     one_seed_deeper, "smollm_easy_deep", "smollm_easy", "smollm_easy_far", "smollm_easy_on"),
    ("smollm", "ours: a real model, the lr", "How its reward depends on the base lr.", real_lr),
    ("early", "ours: the price of n", "The n with the lowest price, n (1 + B_p / b) + "
     "(n_c n + 2) / (n - 1) by the base model's gradient noise, takes less than 1.25 times the "
     "rollouts of any other cell to the same reward. (The form was found after the runs over n of "
     "`wide`, before those over B_p and the models.)", price_of_n),
    ("early", "ours: when to stop", "At the n that the base model names, the next doubling of C "
     "brings no more than the last.", when_to_stop),
    ("early", "section 6, ours", "Statistics of the base model and of the first updates might "
     "tell where n* saturates (the paper leaves it open).", early_to_late)]

# verdicts of the shallow runs, where n = 64 had made 32 to 64 updates, and why they do not stand
BEFORE = {
    "Figure 3, Hard": ("undecided", "coefficients at which the terms do something, 0.3 for 0.001"),
    "Figures 6 and 7, Hard": ("disagree", "four times the budget: n = 16 comes level with 4"),
    "ours: many epochs": ("agree", "a base lr that is better for all n, at which n = 64 has made "
                          "64 updates and may still rise"),
    "ours: many epochs, the lr control": ("undecided", "64 updates of n = 64, which may still rise "
                                          "at one of its lr"),
    "ours: one run growing n, Unsolved": ("undecided", "the problems where n* rises, four times "
                                          "the budget; it was on Easy, where nothing crosses"),
    "Figure 10, Easy": ("agree", "five times the budget; and the sign counts: the paper's n helps"),
    "Figure 16, Easy": ("disagree", "five times the budget, where one B_p has three n that are "
                        "deep"),
    "Figures 9 and 19, Hard": ("disagree", "five times the budget"),
    "Figures 11 and 27, Hard": ("disagree", "four times the budget, a pair chosen beforehand, and "
                                "\"small n sharpens\" is part of it"),
    "Figure 12": ("disagree", "160 updates and three lr, of which n = 64 may want a higher one"),
    "Figure 13": ("disagree", "160 updates; the lr was not tuned there"),
    "Figure 14, forgetting": ("agree", "eight times the budget: Easy is learnt again"),
    "Figure 23": ("disagree", "160 updates"),
    "Figure 20, best@4": ("agree", "four times the budget, where n = 256 is deep and not best"),
    "Figure 20, worst@4": ("undecided", "four times the budget, where n = 256 is deep"),
    "Figure 25, left": ("disagree", "160 updates and three lr"),
    "Figure 25, right": ("disagree", "n = 64 comes closer as C grows, and may want a lower lr than "
                         "the three tried"),
    "Figure 26, at equal updates": ("disagree", "at equal updates, not at equal rollouts, which "
                                  "have a row of their own; five seeds"),
    "ours: when to stop": ("agree", "deeper runs, and a base model that gained more by its last "
                           "doubling"),
    "section 6, ours": ("disagree", "deeper runs"),
}

COMMANDS = dict(toy="python bandit_toy.py one", difficulty="python sample.py",
                growing="growing, of commit 295b272",
                early="python results/pilot.py all --runs=runs/atlas")  # else run_sweep.sh STUDY


def tell(atlas, study=""):
    """The rows (of one study) as dicts, in order; a row whose runs are not there says so."""
    out = []
    for name, paper, claim, function, *words in ROWS:
        if study and name != study:
            continue
        USED.clear()
        try:
            found = function(atlas, *words)
        except (Missing, BadInput) as e:
            found = dict(verdict="not run", says=f"waits for {e}")
            USED.clear()
        used = USED.copy()
        if "compared" in found:  # runs that only chose the lr need not be deep
            own = {run["path"] for runs in found["compared"].values() for run in runs.values()}
            used = {path: USED[path] for path in USED if path in own}
        M, deep, rises = fewest_updates(used) if used else (0, True, None)
        verdict, says = found["verdict"] or "shown", found["says"]
        if verdict in ("agree", "disagree", "undecided") and not deep:
            how = "" if rises is None else f" and may rise by {100 * rises:.1f} a quarter"
            says += f". Deeper runs may say otherwise: the largest batch makes {M} updates{how}"
            says += f". By these runs alone: {verdict}"
            verdict = "too shallow"
        elif verdict in ("agree", "disagree") and not found.get("tuned", True):
            says += (". At lr_base that were not tuned, or whose best may lie beyond those tried. "
                     f"By these alone: {verdict}")
            verdict = "undecided"
        runs, spent = [run for run, _ in USED.values()], [C for _, C in USED.values()]
        share = [C / run["budget"] for run, C in USED.values()]
        figures = found.get("figure") or []
        figures = [figures] if isinstance(figures, str) else figures
        out.append(dict(
            study=name, paper=paper, claim=claim, verdict=verdict, says=says, M=M,
            sees=found.get("sees"), table=found.get("table"), figures=figures,
            more=found.get("more"),
            runs=len(runs), seeds=sorted({r["config"]["seed"] for r in runs}),
            C=min((C for _, C in used.values()), default=0), rollouts=sum(spent),
            minutes=sum(x * r["seconds"] for x, r in zip(share, runs)) / 120))  # two at a time
    return out


def lines_of(r):
    """What our runs say, a line a sentence, long ones in their parts; where they decide nothing,
    also the effect that they would often miss."""
    says = []
    for sentence in re.split(r"(?<=[\w)\]])\. (?=[A-Z])", r["says"]):
        says += re.split(r"; (?![^()]*\))", sentence) if len(sentence) > 140 else [sentence]
    if r["verdict"] == "undecided" and r["sees"]:
        says.append(f"An effect below {100 * r['sees']:.1f} points would often be missed")
    return says


def table_text(rows):
    """The verdicts as a table; each row links to its section."""
    lines = ["| row | its claim | verdict | C | M | seeds |", "|---|---|---|---|---|---|"]
    for r in rows:
        anchor = re.sub(r"[^\w -]", "", r["paper"].lower()).replace(" ", "-")  # as GitHub makes it
        spent = f"{si(r['C'])} | {r['M']} | {len(r['seeds'])}" if r["runs"] else "| |"
        lines.append(f"| [{r['paper']}](#{anchor}) | {r['claim']} | **{r['verdict']}** | {spent} |")
    return "\n".join(lines)


def sections(rows, figures=""):
    """A section for each row: the claim, what our runs say, what they took, the figures, each shown
    once. `figures` is the folder of the figures as the page names it."""
    parts, shown = [], set()
    for r in rows:
        lines = [f"### {r['paper']}", "", r["claim"], "", f"**{r['verdict']}**", "",
                 *(f"- {line}" for line in lines_of(r)), ""]
        lines += [r["table"], ""] * bool(r["table"])
        how = f"`{COMMANDS.get(r['study'], 'bash run_sweep.sh ' + r['study'])}`"
        if r["runs"]:
            how += (f": {many(r['runs'], 'run')}, {many(len(r['seeds']), 'seed')}, "
                    f"C = {si(r['C'])}, M = {r['M']}, {si(r['rollouts'])} rollouts, "
                    f"{r['minutes']:.0f} minutes")
        lines.append(how)
        for name in r["figures"]:
            again = name in shown
            lines += ["", f"{'' if again else '!'}[{'figure' if again else name}]({figures}{name})"]
            shown.add(name)
        parts.append("\n".join(lines + ["", r["more"]] * bool(r["more"]) + [""]))
    return "\n".join(parts)


# --------------------------------------------------------------------------------------------------
# The page

INTRO = """# The paper on a laptop

Every figure and table of the paper that our tools can check, checked on a tiny transformer that
adds and subtracts ([the scale](#the-scale)): the paper's claim in our words, our verdict with its
numbers, and the command. What our runs say comes from the logs in `results/atlas` alone. `python
results/atlas.py` draws all figures from them again and writes this page. `bash run_sweep.sh STUDY`
makes the runs, one command a row. It skips finished runs, so studies that share runs make them
once. The runs go on by a [plan](plan.md) that was written before the first long one: rows that wait
for some say so.

A verdict is one of these:

- *agree*: the 90% interval lies on the claim's side.
- *disagree*: it excludes an effect on that side of 3% of what training gained (one point where it
  gained 33); "no difference" means within twice that.
- *undecided*: inconclusive. The row's section says how small an effect such runs would miss in more
  than one of five repetitions.
- *too shallow*: the cell with the fewest updates has made fewer than 150, and may still rise: the
  last quarter of its budget less the quarter before has an interval that ends above one point.
  The paper's frontier goes to a larger n where that has made 155 to 264.
- *shown*: numbers without a verdict, because nothing is claimed or the row does not test it.

C is the budget of a run in rollouts, M the updates of the cell that made the fewest, of those that
a row compares, D the training problems.
Very Easy, Easy, Hard and Unsolved are problems that the base model solves in 60 to 90% of its
tries, in 30 to 60%, at most once in 16, and in none of 128.
"""

READING = """
## How to read the numbers

- Differences are in points, 100 times the reward, of means over the last quarter of the budget C
  that all runs of a row have. "Early" is 1/16 to 1/8 of that budget. The ± is half of a 90%
  interval over seeds and validation problems. Of so many intervals one in ten misses the truth.
  The noise of seeds is pooled over the cells that a row compares, so one difference can have
  another ± in another row.
- Runs, seeds, C and rollouts are those that the row uses, each up to the budget that it uses, and
  those that chose its lr.
- lr = lr_base sqrt(B / 1024). Where no other lr is named runs have lr_base = 2e-4. Of half, once
  and double it is the best for all n together on Easy, on Hard and on Unsolved, to
  262,144 rollouts (Figure 4's grid is shorter, and has double in the lead). Other base models, PPO,
  CISPO and a run that grows n have these three too; for other D and mixtures it was not tuned. A
  row that compares n where the lr was not tuned, or where the n that is behind has its best lr at
  the edge of those tried, is *undecided*, and says what its runs alone would have decided. Rows
  over B_p follow the rule lr ~ sqrt(B), as the paper does; those on the recipe and the baseline
  compare at one lr, as it does.
- "Each at its best lr_base": for each seed the one that is best on the other seeds. With two or
  three seeds that is at times the worse one, so the row also says what the one that is best on all
  seeds gives.
- "Best n early 2, at the end 8/2/8": for each of three seeds, the n that is best on the other two;
  one number where all seeds have the same. "The latter less the former": the reward of the n chosen
  for the end less that of the n chosen early, on the seed itself, once early and once at the end.
  "Keeping n = 2 costs at most": the upper end of what any other n is better, early or late. Where
  the smallest n of a grid leads throughout, a rise below it would not show, so that is undecided.
- "By the best so far of each run" is what fit_sigmoid.py says of the same runs: *law* (n* rises),
  *flat* (one n will do) or *undetermined*. It looks at the best reward so far, not at the last
  quarter, so its numbers differ. It does not decide the row.
- "n = 4 is best": the highest of these runs.
- What is fresh: four runs of Easy (n = 4, 16, 64 of seed 0, n = 64 of seed 1) were seen before the
  plan, and a first look, not kept, at Hard and at other lr. Where a claim was made on seeds 0 to 2
  and later seeds have run, on Easy, on Hard and on Unsolved, those alone decide the row on n*(C);
  other rows take all seeds that they have.
- Names such as `size_800` are folders of results/atlas: `wide_*` many n to 65,536 rollouts,
  `mix_hard*` Unsolved, `size_D` and `epochs_D` D training problems, `model_*` other base models.
  `toy` is bandit_toy.py, which has no language model.
- Figures of a sweep over B_p, of the lr and of best@4 beside worst@4 show means over all seeds; in
  all others each seed is a thin line.
- Minutes are of our runs on this machine, one thread a run and two runs side by side.
"""


def scale_table():
    """What the embedded world has in place of the paper's, from presets.json."""
    data = ["--data=data/arithmetic"]
    cfg, far, wide, extreme = (sweep.arms(study, data)[0]
                               for study in ("main", "far", "wide", "extreme"))
    sizes = sorted({int(b) for arm in sweep.arms("joint", data) for b in arm["bps"].split()})
    ns = sorted(int(n) for one in (cfg, wide) for n in one["ns"].split())
    few = sweep.arms("size", data)
    D = min(c["D"] for c in few)
    epochs = max(c["C"] / c["D"] for c in few)
    none_right = int(re.search(r"_D(\d+)_", extreme["train_set"])[1])
    return f"""
## The scale

| | paper | here |
|---|---|---|
| model | Qwen2.5-7B-Instruct and others | 2 layers, 190,000 parameters, trained on slipping texts |
| problems | Guru-Math, D = 6,000 Easy, 5,000 Hard | \
sums and differences of 2 to 4 digits, D = {cfg['D']} |
| B_p | 32 to 1,024 | {cfg['bps']} ({', '.join(map(str, sizes))} in `joint`) |
| n | 8 to 2,048 | {ns[0]} to {ns[-1]} |
| budget C | about 4 million | {cfg['C']:,} ({far['C']:,} in `far`, {wide['C']:,} in `wide`) |
| updates M of a large n | 155 to 264 where its frontier goes to it | \
{cfg['C'] // int(cfg['bps']) // 64} at n = 64 ({far['C'] // int(far['bps']) // 64:,} in `far`) |
| C / D, rollouts a problem | about 700 | {cfg['C'] / cfg['D']:.0f} \
({epochs:,.0f} in `size`, with D = {D}, \
{extreme['C'] / none_right:,.0f} in `extreme`, with {none_right}) |
| lr at B = 1,024 | 1e-6 | {cfg['lr_base']:g} |

The real model of `smollm` has 135 million parameters, B_p = 4, n = 4 to 64, C = 40,960 at most, and
D = 1,906 Hard and 463 Easy sums: C / D is 21 and 88 at most.
"""


BUDGET = """
The first plan had every study at the C of `wide` or half of it, where n = 64 had made 64 updates or
fewer. So [a second plan](plan.md) took most of them to 160 updates or more of their largest n.
Changes that came after results were seen, before that:

- `models` got a base model trained longer, instead of one trained less, which had no Easy problems.
- `extreme` was continued twice, to the C of `wide`, because at half of it n = 16 had caught up, and
  then to four times that, because n = 64 had. Because n* rose, it also got the lr control and three
  fresh seeds.
- `epochs` came because n* rose with 50 problems. As that had been seen on the first three seeds, it
  got three fresh seeds twice.

The table is the plan, its minutes estimates from the first runs; several studies took longer. The
{runs} runs that are made took {hours:.1f} hours, two at a time; some of them are seeds beyond the
plan. Not made, though the studies name it: n = 256 at other lr, or beyond 64 updates on Easy and
Hard; n = 16 and a third seed on Very Easy; half the lr in `far` but for n = 4 on Hard and Unsolved;
third seeds of `joint`, `mix`, `models`, `algos`, `recipe`, `size`, and of `smollm` but for Hard at
6e-5 and Easy at 3e-5; n = 16 of PPO on Hard and of CISPO at other lr; the real model's n = 16, and
second seed of n = 4, on Easy at 1.5e-5."""


def budget_table(folder):
    """Runs, rollouts and minutes of each study, from presets.json, and what the runs of a folder
    took.

    In the sum, runs that studies share count once.
    """
    data = "data/arithmetic"
    lines = ["| study | asks | runs | rollouts | minutes |", "|---|---|---|---|---|"]
    seen, minutes = {}, 0.0  # rollouts of each run so far, and minutes of what no earlier study has
    for name, study in sweep.presets(data).items():
        runs = {}
        for arm in sweep.arms(name, [f"--data={data}"]):
            for c in sweep.cells(arm):
                rollouts = config.rollouts_after(config.derive(c)["M"], c)
                runs[arm["runs"], config.run_name(c)] = rollouts
        total = sum(runs.values())
        new = sum(max(rollouts - seen.get(run, 0), 0) for run, rollouts in runs.items())
        minutes += study["minutes"] * new / total
        for run, rollouts in runs.items():
            seen[run] = max(rollouts, seen.get(run, 0))
        lines.append(f"| `{name}` | {study['about']} | {len(runs)} | {si(total)} | "
                     f"{study['minutes']} |")
    lines.append(f"| all, shared runs once | | {len(seen)} | {si(sum(seen.values()))} | "
                 f"{minutes / 60:.1f} hours |")
    runs = [run for path in folder.glob("[!.]*/*/log.jsonl*") if (run := read(path))]
    hours = sum(run["seconds"] for run in runs) / 7200  # two runs at a time
    return "\n".join(lines) + "\n" + BUDGET.format(runs=len(runs), hours=hours)


def tried_table(folder):
    """Validation avg@4 of the exploratory runs (results/tried) at some budgets."""
    budgets = (8192, 16384, 32768, 65536, 98304)
    heads = " | ".join(f"C = {si(C)}" for C in budgets)
    lines = [f"| world | n | {heads} | best@4 at its end |",
             "|---|---|" + "---|" * (len(budgets) + 1)]
    paths = folder.glob("*/*/log.jsonl.gz")
    for path in sorted(paths, key=lambda p: (p.parts[-3], read(p)["config"]["n"])):
        run = read(path)
        e = run["evals"]["val"]
        values = []
        for C in budgets:
            near_C = (e["C"] > 0.85 * C) & (e["C"] <= C)
            reached = e["C"][-1] >= 0.95 * C and near_C.any()
            values.append(f"{e['counts'][near_C].mean() / e['samples']:.3f}" if reached else "")
        best = right(e, "best@4", slice(-2, None)).mean()
        lines.append(f"| {path.parts[-3]} | {run['config']['n']} | {' | '.join(values)} | "
                     f"{best:.3f} |")
    return "\n".join(lines)


TRIED = """
## What was tried before

Exploratory runs at seed 900, which no reported run uses, with B_p = 8. `old` is an earlier base
model (other weak spots, no five-digit texts), `add` has additions alone and 200 skills, `idle4` has
four idle letters a column instead of two, `new` is the world of the reports. What they decided:

- The lr went from 5e-4 to 2e-4. At 5e-4, n = 64 loses coverage (best@4) from the start and n = 4
  declines.
- Skills and idle letters stayed. With fewer skills or more idle letters everything is mended
  everywhere within a quarter of the budget, and small n leads throughout.
- D stayed. With fewer problems every n ends on one plateau of overfitting.

None of these variants had a larger n in the lead at the end, and none was looked for further.
`epochs` and `extreme`, made later, have one.
"""


def changes(rows):
    """The rows whose verdict is another than that of the shallow runs, as a table."""
    lines = ["## What deeper runs changed\n", "| row | shallow | now | why |", "|---|---|---|---|"]
    moved = 0
    for r in rows:
        old, why = BEFORE.get(r["paper"], (r["verdict"], ""))
        if old != r["verdict"]:
            moved += 1
            lines.append(f"| {r['paper']} | {old} | {r['verdict']} | {why} |")
    lines.insert(1, f"The verdicts of {moved} rows are others than those of the first runs, where "
                 "n = 64 had made 32 to 64 updates.\n")
    return "\n".join(lines) + "\n"


def page(rows, folder, figures):
    """The text of README.md."""
    count = Counter(r["verdict"] for r in rows)
    order = ("agree", "disagree", "undecided", "too shallow", "shown", "not run")
    in_all = ", ".join(f"{count[verdict]} {verdict}" for verdict in order if count[verdict])
    parts = [INTRO, f"In all: {in_all}.\n", table_text(rows), READING, "## Row by row\n",
             sections(rows, figures), changes(rows), scale_table(), "## The budget\n",
             budget_table(folder), TRIED, tried_table(ROOT / "results/tried")]
    return "\n".join(parts) + "\n"


def main(argv):
    verb = argv[0] if argv and not argv[0].startswith("-") else ""
    words = argv[1:] if verb else argv
    cfg = parse(words, __doc__)
    own = ROOT / "results/atlas"
    folder = Path(cfg["runs"]) if any(word.startswith("--runs=") for word in words) else own
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
    rows = tell(Atlas(folder, out), verb)
    for r in rows:
        says = "\n    ".join(lines_of(r) + (r["table"] or "").splitlines())
        print(f"{r['paper']}: {r['verdict']}\n  claim: {r['claim']}\n    {says}\n"
              f"  {r['runs']} runs, seeds {', '.join(map(str, r['seeds']))}, "
              f"{si(r['rollouts'])} rollouts"
              + "".join(f"; figure: {out / name}" for name in r["figures"]))
    if not verb:
        at_home = folder == own and not cfg["out"]  # then the page lies above its figures
        with aside((ROOT / "results" if at_home else out) / "README.md") as part:
            part.write_text(page(rows, folder, "atlas/" if at_home else ""))


if __name__ == "__main__":
    entry(main)
