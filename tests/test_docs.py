"""README.md and docs/: every command runs, every key, file and link exists, the answer is printed.

Commands run unchanged in a sandbox. There, `python` is tests/stand_in.py, and the programs of a
cluster only check their arguments. run_sweep.sh prints its training commands (DRY_RUN=1), and the
tests check these commands in the same way.
"""
import os
import re
import shlex
import shutil
import sys

import pytest
from conftest import ROOT, capture, executable, linked, run_script

from config import CHOICES, cast, config
from core.log import read_log

PAGES = ["README.md", "results/README.md", "results/gpu.md",
         *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/*.md"))]
TEXTS = {page: (ROOT / page).read_text() for page in PAGES}
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
PROSE = {page: FENCE.sub("", text) for page, text in TEXTS.items()}
# a command within a sentence: variables (if any), then one of these programs
INLINE = re.compile(r'`((?:[A-Z_]+=(?:"[^"`]*"|[^\s`]*) )*'
                    r'(?:python|bash|torchrun|\.venv/bin/\w+) [^`]+)`')
COMMANDS = {body: page for page, text in TEXTS.items()
            for language, body in FENCE.findall(text) if language == "sh"}
COMMANDS |= {" ".join(command.split()): page for page, text in PROSE.items()
             for command in INLINE.findall(text) if "STUDY" not in command}
STUBS = dict(
    torchrun='exec .venv/bin/python -m torch.distributed.run "$@"',
    # drop srun's options; run the command as the last of the eight tasks
    srun='while [[ $1 == -* ]]; do shift; done; SLURM_PROCID=7 exec "$@"',
    # run the first and the last task of an array, or the only job
    sbatch='''last=1
for word in "$@"; do case $word in --array=1-*) last=${word#*-*-*-} ;; esac; done
[ "$last" -gt 0 ] || exit 1
for SLURM_ARRAY_TASK_ID in 1 "$last"; do
    export SLURM_ARRAY_TASK_ID; bash -c "${*: -1}" || exit 1
done''',
    scancel='[ "$1" = --signal=TERM ]', hf='[ "$1" = download ] && [ $# = 2 ]',
    pip='[ "$1" = install ] && if [ "$2" = -r ]; then [ -f "$3" ]; fi')


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory):
    """Return a folder like a clone with its environment and some finished sweeps."""
    box = linked(tmp_path_factory.mktemp("clone"))
    stand_in = shlex.join(["exec", sys.executable, str(ROOT / "tests/stand_in.py")]) + ' "$@"'
    for name, body in {**STUBS, "python": stand_in}.items():
        executable(box / ".venv/bin" / name, body)
    for name in set(re.findall(r"runs/(\w+)", "".join(TEXTS.values()))):
        shutil.copytree(ROOT / "results/easy", box / "runs" / name,
                        ignore=shutil.ignore_patterns("sweep.json"))
    return box


def run_command(command, box, calls):
    """Run `command` in the sandbox; tests/stand_in.py appends every call of python to `calls`."""
    env = os.environ | dict(PATH=f"{box}/.venv/bin:{os.environ['PATH']}", DRY_RUN="1",
                            CALLS=str(calls), PYTHON="")
    command = command.replace("=/tmp/", f"={box}/tmp/")
    return capture(["bash", "-euo", "pipefail", "-c", command], box, env=env)


@pytest.mark.parametrize("command, page", COMMANDS.items(), ids=lambda text: text[:40])
def test_commands_of_the_pages(sandbox, tmp_path, command, page):
    """Every command of a page ends with code 0, and so do the training commands of a sweep."""
    calls = tmp_path / "calls"
    done = run_command(command, sandbox, calls)
    assert done.returncode == 0, (page, command, done.stderr[-2000:])
    if re.search("python |torchrun|sbatch", command):
        assert calls.read_text(), command
    if "run_sweep.sh" in command and " env" not in command and "--help" not in command:
        lines = done.stdout.splitlines()
        if "commands.txt" in command:
            lines = (sandbox / "commands.txt").read_text().splitlines()
            assert "train_grpo.py" in calls.read_text()  # the array job ran lines of the file
        lines = [line for line in lines if "train_grpo.py" in line]
        for line in {lines[0], lines[-1]}:  # the sweep has checked all of its cells
            again = run_command(line, sandbox, calls)
            assert again.returncode == 0, (line, again.stderr[-2000:])
    for plan in sandbox.glob("runs/*/sweep.json"):  # because the next command plans another sweep
        plan.unlink()


@pytest.mark.parametrize("command, says", [
    ("python train_grpo.py --lr_bse=1", "lr_bse"), ("python train_gpro.py --n=4", "no such file"),
    ("torchrun --nproc_per_node=2 -- train_grpo.py --nn=4", "nn=4"),
    ("bash run_sweep.sh meduim", "meduim")])
def test_a_wrong_command_fails(sandbox, tmp_path, command, says):
    done = run_command(command, sandbox, tmp_path / "calls")
    assert done.returncode != 0 and says in done.stderr, done


def ticked(text):
    """Return all texts between backticks."""
    return re.findall(r"`([^`\n]+)`", text)


def anchors(text):
    """Return the anchors that GitHub gives to the headings of a page."""
    heads = re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.M)
    return {re.sub(r"[^\w\- ]", "", head).strip().lower().replace(" ", "-") for head in heads}


def rows_of(page, head):
    """Return the rows of the table of `page` that has the heading `head`, as lists of cells."""
    table = TEXTS[page].split(f"\n{head}\n")[1].split("\n\n")[0]
    return [re.split(r"(?<!\\)\|", line)[1:-1] for line in table.splitlines()[1:]]


@pytest.mark.parametrize("page", PAGES)
def test_links_files_and_keys_exist(page):
    """Links have targets, named scripts and files exist, and `key=value` names the default."""
    here, named = (ROOT / page).parent, ticked(PROSE[page])
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", PROSE[page]):
        path, _, anchor = link.partition("#")
        target = here / path if path else ROOT / page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target.read_text()), link
    for name in named:
        if re.fullmatch(r"[\w./-]+\.(py|sh)|(results|tests)/[\w./-]+\.\w+", name):
            homes = (ROOT, ROOT / "tests/bench", ROOT / "results", here)
            assert any((home / name).exists() for home in homes), name
        pair = re.fullmatch(r"([a-z_]+)=([\w.-]+)", name)
        assert not pair or config[pair[1]] == cast(pair[1], pair[2]), name
    keys = {re.match(r"--([\w-]+)", name)[1] for name in named if name.startswith("--")}
    assert keys <= {*config, "help", "key", "shutdown-timeout"}  # the last is an option of torchrun


def test_every_logged_field_is_explained():
    known = {field for row in rows_of("docs/log.md", "| record | field | meaning |")
             for field in ticked(row[1])}
    for path in (ROOT / "results/easy").glob("*/log.jsonl.gz"):
        for record in read_log(path):
            assert {re.sub(r"@\d+$", "@k", field) for field in record} <= known, path


def test_table_of_objectives():
    for names, values, _ in rows_of("docs/log.md", "| key | values | what it does |"):
        key = ticked(names)[0] if ticked(names) else key  # a key may have several rows
        assert set(ticked(values)) <= set(CHOICES.get(key, ticked(values))), key


def test_the_log_of_the_page_can_be_analysed(tmp_path):
    (log,) = [body for language, body in FENCE.findall(TEXTS["docs/log.md"]) if language == "json"]
    (tmp_path / "a_run").mkdir()
    (tmp_path / "a_run/log.jsonl").write_text(log)
    assert run_script("fit_sigmoid.py", f"--runs={tmp_path}").code == 0


def test_the_default_sweep_prints_what_the_readme_shows(tmp_path):
    words = f"--runs={ROOT / 'results/easy'}", f"--out={tmp_path}"
    printed = run_script("frontier.py", *words).stdout + run_script("fit_sigmoid.py", *words).stdout
    (block,) = [body for language, body in FENCE.findall(TEXTS["README.md"]) if language == "text"]
    for line in block.splitlines():
        assert line.strip() in printed, line
