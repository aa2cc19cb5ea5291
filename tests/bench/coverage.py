"""Does the analysis keep its promises? Intervals, bias and verdicts over many simulated sweeps
whose truth is planted.

    python tests/bench/coverage.py            # 200 sweeps a row, half an hour
    python tests/bench/coverage.py 50         # fewer sweeps

Curves like the paper's Easy at B_p = 32: avg@4 on 300 problems with 4 samples, n = 8, 32, 128, 512,
2048, 4 million rollouts, 100 evaluations. `paper` has a family of curves that no fitted form has,
and n*(C) is exactly the paper's law (plateau 451); `sigmoids` has the fitted form. Noise: problems
and rollouts, a shift of each run of 0.6 points, a drift of 0.4, and each problem's own liking for
some n. 90% intervals should cover 85 to 97%.
"""
import sys
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[1])]
import fit_sigmoid as fit  # noqa: E402
import frontier  # noqa: E402
from config import config  # noqa: E402
from simulate import constant, crossing, paper, sigmoids, sweep  # noqa: E402

CFG = dict(config, boot=400, B_max=0, seed=0)
CFG["head"] = CFG


def one(draw, truth, **kind):
    """One sweep analysed: (panel of frontier.json, its cells, grid)."""
    runs = sweep(draw, truth, **kind)
    grid, form, _, cells = frontier.curves_of(runs, "avg@4", CFG)
    panel = frontier.panel_of(cells, grid, CFG, "rollouts")
    return frontier.add_points(panel, cells, grid, CFG), cells, grid, form


def intervals(name, truth, seeds, sweeps, plateau=None):
    inside, width, switch, wide, error, closed = ([] for _ in range(6))
    bias, plain, paper_way, found, plat, plat_wide = ([] for _ in range(6))
    forms = {}
    for draw in range(sweeps):
        panel, cells, grid, form = one(draw, truth, seeds=seeds)
        forms[form] = forms.get(form, 0) + 1
        true = np.array([truth(32, c["n"], grid) for c in cells])
        for c, want in zip(cells, true):  # curves, at every budget their runs reached
            ok, half = c["inside"], fit.half_width(c["noise"])
            inside.append((np.abs(c["Y"] - want) <= half)[ok].mean())
            width.append(np.median(2 * half[ok]))
        env = panel["envelope"]
        best = np.where([c["inside"] for c in cells], true, -1).max(0)
        for out, key in ((bias, "reward"), (plain, "highest")):
            out.append(np.mean(env[key] - best))
        paper_way.append(np.mean(panel["records"]["frontier"] - best))
        for s in panel["switches"]:
            want = crossing(truth, 32, s["from"], s["to"], near=s["C"])
            if s["why"] == "crossing" and s["to"] > s["from"] and want:
                switch.append((s["lo"] or 0) <= want <= (s["hi"] or np.inf))
                closed.append(bool(s["lo"] and s["hi"]))
                a, b = (next(c for c in cells if c["n"] == n) for n in (s["from"], s["to"]))
                # the standard error of a crossing: that of the difference over its slope, both
                # where the truth crosses
                gap, sd = b["Y"] - a["Y"], (b["noise"] - a["noise"]).std(0)
                j = np.abs(np.log(grid / s["C"])).argmin()
                lo, hi = max(j - 4, 0), min(j + 4, len(grid) - 1)
                slope = (gap[hi] - gap[lo]) / np.log10(grid[hi] / grid[lo])
                if np.isfinite(slope) and slope > 0:
                    error.append(np.log10(s["C"] / want) * slope / sd[j])
                if closed[-1]:
                    wide.append(np.log10(s["hi"] / s["lo"]))
        if plateau and panel["surface"]:
            p = fit.law_of_surface(panel["surface"], ("plateau",))["plateau"]
            plat.append((p["lo"] or 0) <= plateau <= (p["hi"] or np.inf))
            low, high = panel["ns"][0], panel["ns"][-1]
            plat_wide.append(np.log2((p["hi"] or high) / (p["lo"] or low)))
            found.append(p["lo"] is not None and p["hi"] is not None)
    print(f"{name}, {seeds} seeds, {sweeps} sweeps "
          f"({', '.join(f'{form} in {m}' for form, m in forms.items())})")
    print(f"  curves     cover {100 * np.mean(inside):5.1f}%   median width "
          f"{100 * np.median(width):.1f} points")
    print(f"  switches   cover {100 * np.mean(switch):5.1f}%   median width {np.median(wide):.2f} "
          "decades of C where closed "
          f"({100 * np.mean(closed):.0f}% of {len(switch)})   standardised error: mean "
          f"{np.mean(error):+.2f}, "
          f"spread {np.std(error):.2f}")
    if plat:
        print(f"  plateau    cover {100 * np.mean(plat):5.1f}%   median width "
              f"{np.median(plat_wide):.1f} octaves of n, "
              f"open ends at the grid's (closed in {100 * np.mean(found):.0f}%)")
    print(f"  frontier   bias {100 * np.mean(bias):+.2f} points, highest curve "
          f"{100 * np.mean(plain):+.2f}, record-breaking "
          f"points {100 * np.mean(paper_way):+.2f}", flush=True)


def verdicts(name, truth, seeds, sweeps, **kind):
    said = {"law": 0, "flat": 0, "undetermined": 0}
    for draw in range(sweeps):
        panel = one(10_000 + draw, truth, seeds=seeds, **kind)[0]
        said[fit.verdict_of(panel["surface"], CFG["delta"])["verdict"]] += 1
    shares = ", ".join(f"{key} {100 * m / sweeps:5.1f}%" for key, m in said.items())
    print(f"  {name:44} {seeds} seeds: {shares}", flush=True)


if __name__ == "__main__":
    N = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    for seeds in (3, 8):
        intervals("paper (no fitted form)", paper(), seeds, N, plateau=2 ** (6.09 + 2.73))
        intervals("sigmoids (the fitted form)", sigmoids, seeds, N)
    print("verdicts, delta = 0.01")
    for seeds in (1, 3, 8):
        verdicts("flat: all n equal", constant(size=0), seeds, N)
        verdicts("flat: n = 32 best at every budget", constant(32), seeds, N)
        for size in (0.5, 1, 2):
            verdicts(f"law, a wrong n costs {size} times the paper's", paper(size), seeds, N)
