"""README.md and docs/: every command runs, every key, file and link exists.

Commands run unchanged in a sandbox. There, `python` is tests/stand_in.py, and the programs of a
cluster only check their arguments. run_sweep.sh prints its training commands (DRY_RUN=1), and the
tests check these commands in the same way.
"""
import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest
from conftest import PATIENCE, ROOT, executable, linked, run_script

from config import CHOICES, cast, config
from core.log import read_log

PAGES = ["README.md", "results/README.md", "results/gpu.md",
         *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
# a command within a sentence: variables (if any), then one of these programs
INLINE = re.compile(r'`((?:[A-Z_]+=(?:"[^"`]*"|[^\s`]*) )*'
                    r'(?:python|bash|torchrun|\.venv/bin/\w+) [^`]+)`')


def text_of(page):
    return (ROOT / page).read_text()


def commands():
    """Return {command or block of commands: its page}, with commands within a sentence."""
    seen = {}
    for page in PAGES:
        text = text_of(page)
        found = [body for language, body in FENCE.findall(text) if language == "sh"]
        # a command in a sentence may continue on the next line
        found += [" ".join(command.split()) for command in INLINE.findall(FENCE.sub("", text))]
        seen |= {command.replace("STUDY", "mix"): page for command in found}
    return seen


# -------------------------------------------------------------------------------------------------
# Commands

STUBS = dict(
    torchrun='exec .venv/bin/python -m torch.distributed.run "$@"',
    # drop srun's options; run the command as the last of the eight tasks
    srun='while [[ $1 == -* ]]; do shift; done; SLURM_PROCID=7 exec "$@"',
    # run the first and the last task of an array, or the only job
    sbatch='''last=1
for word in "$@"; do case $word in --array=1-*) last=${word#*-*-*-} ;; esac; done
[ "$last" -gt 0 ] || exit 1
for task in $(printf '%s\\n' 1 "$last" | uniq); do
    SLURM_ARRAY_TASK_ID=$task bash -c "${*: -1}" || exit 1
done''',
    scancel='[ "$1" = --signal=TERM ]',
    hf='[ "$1" = download ] && [ $# = 2 ]',
    pip='[ "$1" = install ] && if [ "$2" = -r ]; then [ -f "$3" ]; fi')


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory):
    """Return a folder like a clone with its environment and some finished sweeps."""
    box = linked(tmp_path_factory.mktemp("clone"))
    stand_in = shlex.join(["exec", sys.executable, str(ROOT / "tests/stand_in.py")]) + ' "$@"'
    for name, body in {**STUBS, "python": stand_in}.items():
        executable(box / ".venv/bin" / name, body)
    for name in ("easy", "hard", "bandit", "known", "imported", "slurm"):
        # three runs of a committed sweep are enough to analyse
        for run in sorted((ROOT / "results/grid_easy").glob("Bp32_*"))[:3]:
            shutil.copytree(run, box / "runs" / name / run.name)
    return box


def run_command(command, box, calls):
    """Run `command` with bash in the sandbox `box` and return the result of subprocess.run.

    tests/stand_in.py appends every call of python to the file `calls`.
    """
    env = os.environ | dict(PATH=f"{box}/.venv/bin:{os.environ['PATH']}", DRY_RUN="1",
                            CALLS=str(calls), PYTHON="")
    # write to the sandbox instead of /tmp
    command = command.replace("=/tmp/", f"={box}/tmp/")
    return subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=box, env=env,
                          capture_output=True, text=True, timeout=PATIENCE)


@pytest.mark.parametrize("command, page", commands().items(), ids=lambda text: text[:40])
def test_commands_of_the_pages(sandbox, tmp_path, command, page):
    """Every command of a page ends with exit code 0, and so do the training commands of a sweep."""
    calls = tmp_path / "calls"
    done = run_command(command, sandbox, calls)
    assert done.returncode == 0, (page, command, done.stderr[-2000:])
    if "python " in command or "torchrun" in command or "sbatch" in command:
        assert calls.read_text(), command
    if "run_sweep.sh" in command and " env" not in command and "--help" not in command:
        lines = [line for line in done.stdout.splitlines() if "train_grpo.py" in line]
        if "commands.txt" in command:
            lines = (sandbox / "commands.txt").read_text().splitlines()
            assert "train_grpo.py" in calls.read_text()  # the array job ran lines of the file
        assert lines, (command, done.stdout)
        # the sweep has checked all of its cells; the trainer checks the first and the last
        for line in {lines[0], lines[-1]}:
            again = run_command(line, sandbox, calls)
            assert again.returncode == 0, (line, again.stderr[-2000:])
    for plan in sandbox.glob("runs/*/sweep.json"):  # because the next command plans another sweep
        plan.unlink()


@pytest.mark.parametrize("command, says", [
    ("python train_grpo.py --lr_bse=1", "lr_bse"),
    ("python train_gpro.py --n=4", "no such file"),
    ("python train_grpo.py --n=1", "--n=1"),
    ("python bandit_toy.py sweep --overlapp=0.5", "overlapp"),
    ("torchrun --nproc_per_node=2 -- train_grpo.py --nn=4", "nn=4"),
    ("bash run_sweep.sh meduim", "meduim"),
    (".venv/bin/pip install -r requirements-none.txt", ""),
    ("srun -n8 bash -c 'python sample.py --shard=$SLURM_PROCID/7'", "shard")])
def test_a_wrong_command_fails(sandbox, tmp_path, command, says):
    """Wrong commands fail in the sandbox, so the test above finds them on a page."""
    done = run_command(command, sandbox, tmp_path / "calls")
    assert done.returncode != 0 and says in done.stderr, done


# -------------------------------------------------------------------------------------------------
# Links, names of files, fields, keys

def anchors(text):
    """Return the anchors that GitHub gives to the headings of a page."""
    heads = re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.M)
    plain = [re.sub(r"[^\w\- ]", "", head) for head in heads]
    return {head.strip().lower().replace(" ", "-") for head in plain}


@pytest.mark.parametrize("page", PAGES)
def test_links_and_named_files_exist(page):
    """Every link has a target. Every script that is named exists, and so does every file of
    results/ and tests/.
    """
    text, here = text_of(page), (ROOT / page).parent
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", FENCE.sub("", text)):
        path, _, anchor = link.partition("#")
        target = here / path if path else ROOT / page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target.read_text()), link
    for name in re.findall(r"`([\w./-]+\.\w+)`", text):
        if name.endswith((".py", ".sh")) or name.startswith(("results/", "tests/")):
            homes = (ROOT, ROOT / "tests/bench", ROOT / "results", here)
            assert any((home / name).exists() for home in homes), name


def rows_of(page, head):
    """Return the rows of the table of `page` that has the heading `head`, as lists of cells."""
    table = text_of(page).split(f"\n{head}\n")[1].split("\n\n")[0]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            for line in table.splitlines()[1:]]


def ticked(text):
    """Return all texts between backticks."""
    return re.findall(r"`([^`\n]+)`", text)


def test_every_logged_field_is_explained():
    """The table of docs/log.md has every field of the committed logs."""
    known = {field for row in rows_of("docs/log.md", "| record | field | meaning |")
            for field in ticked(row[1])}
    paths = [path for folder in ("easy/*", "atlas/[ps]*/*")
             for path in (ROOT / "results").glob(f"{folder}/log.jsonl.gz")]
    assert len(paths) > 10
    for path in paths:
        for record in read_log(path):
            fields = {re.sub(r"@\d+$", "@k", field) for field in record}
            assert fields <= known, (path, fields - known)


def test_a_log_with_only_the_documented_fields_can_be_analysed(tmp_path):
    """The log in docs/log.md is enough for the report, and its own field is drawn."""
    (log,) = [body for language, body in FENCE.findall(text_of("docs/log.md"))
              if language == "json"]
    (tmp_path / "a_run").mkdir()
    (tmp_path / "a_run/log.jsonl").write_text(log)
    drawn = run_script("frontier.py", f"--runs={tmp_path}", "--view=training")
    report = run_script("fit_sigmoid.py", f"--runs={tmp_path}")
    assert "my_field at the end: n = 16 1.6" in drawn.stdout, drawn
    assert "the runs are my trainer's" in report.stdout, report


@pytest.mark.parametrize("page", PAGES)
def test_keys_that_are_named_exist(page):
    """The key of `--key` or `--key=value` in a sentence is in config.py, and the value of
    `key=value` is its default.
    """
    named = ticked(FENCE.sub("", text_of(page)))
    keys = {re.match(r"--([\w-]+)", text)[1] for text in named if text.startswith("--")}
    assert keys <= {*config, "help", "key", "shutdown-timeout"}  # the last is an option of torchrun
    for text in named:
        pair = re.fullmatch(r"([a-z_]+)=([\w.-]+)", text)
        assert not pair or config[pair[1]] == cast(pair[1], pair[2]), text


def test_tables_of_keys():
    """The values in the tables of views and of objectives are values that config.py allows."""
    names = {name for row in rows_of("docs/analysis.md", "| `--view=` | what |")
             for name in ticked(row[0])}
    assert names <= set(CHOICES["view"])
    key = None
    for cells in rows_of("docs/log.md", "| key | values | what it does |"):
        names, values = ticked(cells[0]), ticked(cells[1])
        if names:  # without a name, a row has more values of the key above
            (key,), seen = names, []
            assert config[key] == cast(key, values[0]), key
        seen += values
        assert set(seen) <= set(CHOICES.get(key, seen)), key


# -------------------------------------------------------------------------------------------------
# The printed answer in README

def test_the_default_sweep_prints_what_the_readme_shows(tmp_path):
    """The committed logs of the default sweep give the text in README and the table in
    results/easy.
    """
    part = text_of("README.md").split("<!-- default sweep")[1].split("<!-- end of default sweep")[0]
    (block,) = [body for language, body in FENCE.findall(part) if language == "text"]
    printed = ""
    for name in ("frontier.py", "fit_sigmoid.py"):
        done = run_script(name, f"--runs={ROOT / 'results/easy'}", f"--out={tmp_path}")
        assert done.code == 0, done.stderr
        printed += done.stdout
    for line in block.splitlines():
        assert line.strip() in printed, line
    committed, new = ([line.split(",")[:6] for line in (folder / "prescription.csv").open()]
                      for folder in (ROOT / "results/easy", tmp_path))
    assert committed == new
