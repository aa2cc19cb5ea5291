"""README.md and docs/: their commands run, their keys, files and links are there, and the numbers
that a tool prints are those of today.

Commands run as they stand, in a sandbox where `python` is tests/stand_in.py and the programs of a
cluster only check what they were given. run_sweep.sh prints its training commands (DRY_RUN=1),
which are then checked like those of a page.
"""
import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT, run_script

import sample
import verifier
from config import CHOICES, cast, config, parse
from core.log import read_log
from core import cost

PAGES = ["README.md", *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
# commands within a sentence: perhaps variables, then a program of ours
INLINE = re.compile(r'`((?:[A-Z_]+=(?:"[^"`]*"|[^\s`]*) )*'
                    r'(?:python|bash|torchrun|\.venv/bin/\w+) [^`]+)`')


def text_of(page):
    return (ROOT / page).read_text()


def commands():
    """(page, number, bash) of every block and every command within a sentence, each once."""
    seen = {}
    for page in [*PAGES, "results/README.md"]:
        text = text_of(page)
        found = [body for language, body in FENCE.findall(text) if language == "sh"]
        # a sentence may be wrapped within its command
        found += [" ".join(command.split()) for command in INLINE.findall(FENCE.sub("", text))]
        for command in found:
            seen.setdefault(command.replace("STUDY", "mix"), page)
    return [(page, i, command) for i, (command, page) in enumerate(seen.items())]


# -------------------------------------------------------------------------------------------------
# Commands

STUBS = dict(
    torchrun='exec .venv/bin/python -m torch.distributed.run "$@"',
    # options first, then the command of the task; one of the eight is enough
    srun='while [[ $1 == -* ]]; do shift; done; SLURM_PROCID=7 exec "$@"',
    # the first and the last task of an array, or the one job
    sbatch='''last=1
for word in "$@"; do case $word in --array=1-*) last=${word#*-*-*-} ;; esac; done
[ "$last" -gt 0 ] || exit 1
for task in $(printf '%s\\n' 1 "$last" | uniq); do
    SLURM_ARRAY_TASK_ID=$task bash -c "${*: -1}" || exit 1
done''',
    scancel='[ "$1" = --signal=TERM ]',
    hf='[ "$1" = download ] && [ $# = 2 ]',
    pip='[ "$1" = install ] && if [ "$2" = -r ]; then [ -f "$3" ]; fi')


def size_of(folder):
    """Bytes of the log of a run folder: small logs are quick to read."""
    return (folder / "log.jsonl.gz").stat().st_size


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory):
    """A folder that looks like a clone with its environment and a few finished sweeps."""
    box = tmp_path_factory.mktemp("clone")
    for path in ROOT.iterdir():
        if path.name not in (".git", ".venv", "runs") and not path.name.startswith(".pytest"):
            (box / path.name).symlink_to(path)
    (box / ".venv/bin").mkdir(parents=True)
    (box / ".venv/bin/activate").touch()
    stand_in = shlex.join(["exec", sys.executable, str(ROOT / "tests/stand_in.py")]) + ' "$@"'
    for name, body in {**STUBS, "python": stand_in}.items():
        path = box / ".venv/bin" / name
        path.write_text(f"#!/usr/bin/env bash\n{body}\n")
        path.chmod(0o755)
    for name in ("easy", "hard", "bandit", "known", "imported", "slurm"):
        # three runs of the committed sweep: enough to analyse
        for run in sorted((ROOT / "results/grid_easy").glob("Bp32_*"), key=size_of)[:3]:
            shutil.copytree(run, box / "runs" / name / run.name)
    return box


def run_command(command, box, calls):
    """Bash runs the lines of a page in the sandbox -> subprocess's result."""
    own = "NS BPS C B_MAX SEEDS OUT DATA MODEL PYTHON LAUNCH JOBS PRUNE GPUS_PER_RUN".split()
    env = {key: value for key, value in os.environ.items() if key not in own}
    env |= dict(PATH=f"{box}/.venv/bin:{env['PATH']}", DRY_RUN="1", CALLS=str(calls))
    # what a page writes to /tmp stays in the sandbox
    command = command.replace("=/tmp/", f"={box}/tmp/")
    return subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=box, env=env,
                          capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("page, number, command", commands(), ids=lambda x: str(x)[:40])
def test_commands_of_the_pages(sandbox, tmp_path, page, number, command):
    calls = tmp_path / "calls"
    done = run_command(command, sandbox, calls)
    assert done.returncode == 0, (page, command, done.stderr[-2000:])
    if "python " in command or "torchrun" in command or "sbatch" in command:
        assert calls.read_text(), command
    if "run_sweep.sh" in command and " env" not in command and "--help" not in command:
        lines = [line for line in done.stdout.splitlines() if "train_grpo.py" in line]
        if "commands.txt" in command:
            lines = (sandbox / "commands.txt").read_text().splitlines()
            assert "train_grpo.py" in calls.read_text()  # the array job started what the file says
        assert lines, (command, done.stdout)
        # all keys are checked by DRY_RUN itself; the first and the last as the trainer would
        for line in {lines[0], lines[-1]}:
            again = run_command(line, sandbox, calls)
            assert again.returncode == 0, (line, again.stderr[-2000:])
    for plan in sandbox.glob("runs/*/sweep.json"):  # the runs that lie there are of other sweeps
        plan.unlink()


@pytest.mark.parametrize("command, says", [
    ("python train_grpo.py --lr_bse=1", "lr_bse"),
    ("python train_gpro.py --n=4", "no such file"),
    ("python train_grpo.py --n=1", "--n=1"),
    ("python train_grpo.py --B_p=8 --n=64 --C=100", "one update"),
    ("python sample.py --recipe=esay", "esay"),
    ("python bandit_toy.py sweep --overlapp=0.5", "overlapp"),
    ("torchrun --nproc_per_node=2 -- train_grpo.py --nn=4", "nn=4"),
    ("bash run_sweep.sh meduim", "meduim"),
    ("NS=2,4 bash run_sweep.sh easy", "2,4"),
    (".venv/bin/pip install -r requirements-none.txt", ""),
    ("srun -n8 bash -c 'python sample.py --shard=$SLURM_PROCID/7'", "shard")])
def test_a_wrong_command_would_be_seen(sandbox, tmp_path, command, says):
    done = run_command(command, sandbox, tmp_path / "calls")
    assert done.returncode != 0 and says in done.stderr, done


# -------------------------------------------------------------------------------------------------
# Links, names of files, what is listed

def anchors(text):
    """The anchors that GitHub gives to a page's headings."""
    heads = re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.M)
    plain = [re.sub(r"[^\w\- ]", "", head) for head in heads]
    return {head.strip().lower().replace(" ", "-") for head in plain}


@pytest.mark.parametrize("page", [*PAGES, "results/README.md", "results/gpu.md"])
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", text_of(page)))
    for link in links:
        if re.match("https?:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), (page, link)
        assert not anchor or anchor in anchors(target.read_text()), (page, link)


@pytest.mark.parametrize("page", [*PAGES, "results/README.md", "results/gpu.md"])
def test_files_that_are_named_are_there(page):
    """`tests/bench/views.py`: scripts anywhere, and whatever lies in results, tests or data."""
    names = re.findall(r"`([\w./-]+\.\w+)`", text_of(page))
    for name in names:
        if not (name.endswith((".py", ".sh")) or name.startswith(("results/", "tests/"))):
            continue
        homes = (ROOT, ROOT / "tests/bench", ROOT / "results", (ROOT / page).parent)
        assert any((home / name).exists() for home in homes), (page, name)


def rows_of(page, head):
    """The rows of a page's table under the heading row `head`, as lists of cells."""
    table = text_of(page).split(f"\n{head}\n")[1].split("\n\n")[0]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            for line in table.splitlines()[1:]]


def ticked(text):
    return re.findall(r"`([^`\n]+)`", text)


def test_every_logged_field_is_explained():
    """The fields of committed logs are in the table of docs/log.md; those that it has are code."""
    told = {field for row in rows_of("docs/log.md", "| record | field | meaning |")
            for field in ticked(row[1])}
    paths = [path for folder in ("easy/*", "atlas/[ps]*/*")
             for path in (ROOT / "results").glob(f"{folder}/log.jsonl.gz")]
    assert len(paths) > 10
    for path in paths:
        for record in read_log(path):
            fields = {re.sub(r"@\d+$", "@k", field) for field in record}
            assert fields <= told, (path, fields - told)
    names = "train_grpo.py evaluate.py verifier.py bandit_toy.py data/logs/prepare.py"
    code = "".join(text_of(name) for name in names.split())
    for field in told:
        name = re.escape(field.removesuffix("@k"))
        assert re.search(rf"\b{name}\s*=[^=]|[\"'{{]{name}[@\"'}}]", code), field


@pytest.mark.parametrize("page", [*PAGES, "results/README.md"])
def test_keys_that_are_named_are_there(page):
    """`--key` and `--key=value` in a sentence: keys of config.py. `key=value`: its default."""
    named = ticked(FENCE.sub("", text_of(page)))
    keys = {re.match(r"--([\w-]+)", text)[1] for text in named if text.startswith("--")}
    assert keys <= {*config, "help", "key", "shutdown-timeout"}  # the last is torchrun's
    for text in named:
        said = re.fullmatch(r"([a-z_]+)=([\w.-]+)", text)
        assert not said or config[said[1]] == cast(said[1], said[2]), text


def test_tables_of_keys():
    """Views, objectives, verifiers, splits: the tables have the values that the code takes."""
    names = {name for row in rows_of("docs/analysis.md", "| `--view=` | what |")
             for name in ticked(row[0])}
    assert names == set(CHOICES["view"])
    key = None
    for cells in rows_of("docs/log.md", "| key | values | what it does |"):
        names, values = ticked(cells[0]), ticked(cells[1])
        if names:  # else the row above goes on
            (key,), seen = names, []
            assert config[key] == cast(key, values[0]), key
        seen += values
        assert set(seen) <= set(CHOICES.get(key, seen)), key
    told = [ticked(row[0]) for row in rows_of("docs/problems.md", "| `--verifier=` | solved |")]
    assert {name for (name,) in told} <= set(verifier.REWARDS)  # a reward of one's own is no fault
    said = dict(**{"never": (0, 0), "at most 1 in 16": (0, 1 / 16), "30 to 60%": (0.3, 0.6),
                   "60 to 90%": (0.6, 0.9)})
    rows = rows_of("docs/problems.md", "| split | solved | | level | solved |")
    assert {ticked(row[0])[0]: said[row[1]] for row in rows} == sample.BANDS
    assert {ticked(row[3])[0]: said[row[4]] for row in rows} == sample.LEVELS


def test_the_limits_of_the_math_verifier():
    """accepts `answer` for `gold`, refuses `answer` for `gold`: each as docs/problems.md says."""
    rows = rows_of("docs/problems.md", "| limit | example |")
    said = [(verb, *pair) for row in rows for verb, pairs in re.findall(
        r"(accepts|refuses) ([^;]+)", row[1]) for pair in re.findall(r"`([^`]+)` for `([^`]+)`",
                                                                     pairs)]
    assert len(said) >= 7
    for verb, answer, gold in said:
        reward = verifier.REWARDS["math"](dict(answer=f"${gold}$"), rf"\boxed{{{answer}}}",
                                          parse(["--verifier=math", "--verify_s=20"]))
        assert reward == (verb == "accepts"), (verb, answer, gold)


# -------------------------------------------------------------------------------------------------
# Numbers

def told_by_the_page():
    """{row of results/README.md: its verdict, all that results/atlas.json has of it}."""
    told = {}
    for line in re.findall(r"^\| .* \|$", text_of("results/README.md"), re.M):
        cells = line.strip("| ").split(" | ")
        if len(cells) > 3 and cells[2].startswith("**"):
            told[cells[0]] = cells[2].split("**")[1]
    rows = {row["paper"]: row for row in json.loads(text_of("results/atlas.json"))}
    assert len(told) > 40 and set(told) == set(rows)
    return {row: (verdict, " ".join([rows[row]["number"], rows[row]["details"],
                                     rows[row]["table"] or "", *rows[row]["figures"]]))
            for row, verdict in told.items()}


def numbers(text):
    return set(re.findall(r"\d+(?:\.\d+)?", text))


def test_linked_numbers_are_those_of_the_figure():
    """[+2.9 ± 1.3](results/atlas/X.png): a row of results/atlas.json with that figure says so."""
    links = re.findall(r"(?<!!)\[([^\]]+)\]\(results/atlas/(\w+\.png)\)", text_of("README.md"))
    assert len(links) >= 5
    for says, figure in links:
        rows = [told for _, told in told_by_the_page().values() if figure in told]
        want = numbers(says.replace("best@4", ""))  # the metric, not a number
        assert any(want <= numbers(told) for told in rows), (says, figure)


def test_the_findings_have_the_pages_intervals():
    """Every a ± b of README and of what our runs found is in results/README.md or atlas.json."""
    found = text_of("docs/analysis.md").split("\n## What our runs found")[1].split("\n## ")[0]
    found += text_of("README.md")
    interval = r"(\d+\.\d+)\s+±\s+(\d+\.\d+)"
    said, page = re.findall(interval, found), re.findall(
        interval, text_of("results/README.md") + " ".join(
            told for _, told in told_by_the_page().values()))
    assert len(said) >= 8 and not set(said) - set(page), set(said) - set(page)


@pytest.mark.parametrize("words", [('--ns=8 32 128', "--C=1e6"), ()])
def test_the_hours_of_the_readmes_sweep(words):
    """Of its GPU command, and of that without NS and C, by core/cost.py."""
    done = run_script("core.sweep", "price", "--data=data/guru_math",
                      "--model=Qwen/Qwen2.5-7B-Instruct", *words)
    hours = re.search(r"^ +easy .* about ([\d,]+) \(of H100\)", done.stdout, re.M)[1]
    assert re.search(rf"\b{hours} (GPU-)?hours", text_of("README.md")), done.stdout


def test_the_hours_of_the_docs():
    """docs/gpu.md: the row of the 7B model, by core/cost.py, which tests/bench/tail.py agrees
    with within 10%."""
    head, *rows = [line.strip("| ").split(" | ") for line in text_of("docs/gpu.md").splitlines()
                   if re.match(r"\| (\| n = 8 |7B on 4)", line)]
    (row,) = rows
    name = "Qwen/Qwen2.5-7B-Instruct"
    s, cfg = cost.sizes(cost.SHAPES[name]), parse([f"--model={name}"])
    for n, told in zip(head, row[1:]):
        B = 32 * int(n.removeprefix("n = "))
        seconds = (cost.generation_s(s, cfg, B, 4) + cost.update_s(s, cfg, B, 4) + cost.UPDATE_S)
        assert int(told) == pytest.approx(1e6 / B * seconds / 3600, rel=0.1), (n, told)


def test_the_default_sweep_printed_what_the_readme_shows(tmp_path):
    """The block of the first screen, line by line, from the committed logs of that sweep."""
    part = text_of("README.md").split("<!-- default sweep")[1].split("<!-- end of default sweep")[0]
    (block,) = [body for language, body in FENCE.findall(part) if language == "text"]
    said = ""
    for name in ("frontier.py", "fit_sigmoid.py"):
        done = run_script(name, f"--runs={ROOT / 'results/easy'}", f"--out={tmp_path}")
        assert done.code == 0, done.stderr
        said += done.stdout
    said += "".join(path.read_text() for path in tmp_path.glob("report.txt"))
    base = re.search(r"the base model has (0\.\d+)", part)[1]
    # what docs/takehome.md explains of the page
    rows = rows_of("docs/takehome.md", "| the report ([an example](../README.md)) | what it says |")
    words = [row[0].removesuffix(", GPU-h") for row in rows if not row[0].startswith("a row")]
    absent = "caution", "cheapest of the tied, smallest B_p"  # not in this report
    words = [word for word in words if word not in absent]
    assert len(words) == 6
    for line in [*block.splitlines(), f"base model {base};", *words]:
        assert line.strip() in said, line


def test_the_prescription_of_the_default_sweep_is_that_of_its_logs(tmp_path):
    """results/easy/prescription.csv, to which docs/takehome.md links."""
    for name in ("frontier.py", "fit_sigmoid.py"):
        done = run_script(name, f"--runs={ROOT / 'results/easy'}", f"--out={tmp_path}")
        assert done.code == 0, done.stderr
    ours, new = ((folder / "prescription.csv").read_text().splitlines()
                 for folder in (ROOT / "results/easy", tmp_path))
    assert len(ours) == len(new) == 19
    for a, b in zip(ours, new):
        assert a.split(",")[:6] == b.split(",")[:6]
