#!/usr/bin/env bash
# run_sweep.sh: from a fresh clone to an answer: which n to train with, at each budget.
#
#   bash run_sweep.sh easy                   # everything, from the environment to the answer
#   bash run_sweep.sh hard --lr_base=1e-3    # any --key=value of config.py, for every stage
#   MODEL=Qwen/Qwen2.5-7B-Instruct DATA=data/mine NS="8 32 128" BPS=32 C=1e6 bash run_sweep.sh easy
#   DRY_RUN=1 bash run_sweep.sh easy | xargs -d '\n' -n 1 -P 8 bash -c    # train 8 runs at a time
#   bash run_sweep.sh env                    # only make the environment
#
# The presets easy, hard and mixed are recipes. Each recipe has its own split of problems.
# Ctrl-C stops a sweep, and the same command continues it. Finished runs are not repeated.
# More values in NS, BPS or SEEDS add runs to a finished sweep. A larger C continues its runs.
# With DATA=data/guru_math, easy and hard are the paper's main sweeps.
#
# Environment variables. Empty = as in the data folder's presets.json, defaults.json or config.py
#   NS            values of n, as in "2 4 8"
#   BPS           values of B_p, as in "8 32"
#   SEEDS         random seeds, as in "0 1 2"
#   LRS           values of lr_base, as in "1e-4 2e-4"
#   C             budget of each run, in rollouts
#   B_MAX         largest B_p n of a run; larger cells are left out
#   MODEL         base model: hub name or transformers folder
#   DATA          data folder (default data/arithmetic)
#   TASK          with DATA=data/reasoning_gym: the task whose problems prepare.py makes
#   OUT           folder of the sweep (default: see the key `runs` in config.py)
#   PYTHON        interpreter in which the requirements are installed (default: make and use .venv)
#   JOBS          how many runs train at a time (default: one per GPU or core). Twice the number of
#                 GPUs: two runs share a GPU and its memory, which small n leave idle
#   GPUS_PER_RUN  GPUs for each run (default 1; 0 = one CPU core); torchrun starts one on 2 or more.
#                 From CUDA_VISIBLE_DEVICES, else all. `python -m core.cost` prints how many.
#   LAUNCH        words before each training command: "apptainer exec --nv image.sif", "A=1 nice".
#                 Before you use srun, see docs/node.md, because srun does not pass SIGTERM on.
#   DRY_RUN       1 = only write the plan and print the training commands. Before you run them,
#                 `bash run_sweep.sh env` makes the environment, and
#                 `.venv/bin/python -m core.sweep prepare easy --data=... --model=...` the splits.
fail() { echo "run_sweep.sh: $1" >&2; exit 2; }
[ -n "${BASH_VERSION:-}" ] || fail "sh cannot run this script, bash can: bash $0"
set -euo pipefail
cd "$(dirname "$0")"
[ -f core/sweep.py ] || cd "${SLURM_SUBMIT_DIR:-.}"  # sbatch starts a copy of this file
dry=${DRY_RUN:-0}
[[ $dry = [01] ]] || fail "DRY_RUN=$dry: expected 1 or 0"
[ $# -gt 0 ] || set -- --help
preset=easy
[[ $1 = -* ]] || { preset=$1; shift; }
python=${PYTHON:-.venv/bin/python}
PY=$python
"$PY" -c "" 2> /dev/null || PY=python3  # planning needs only the standard library

# ---- command-line words for all stages ----------------------------------------------------------
args=()
for pair in DATA:data MODEL:model NS:ns BPS:bps SEEDS:seeds LRS:lrs C:C B_MAX:B_max OUT:runs; do
    name=${pair%:*}
    [ -n "${!name:-}" ] && args+=("--${pair#*:}=${!name}")
done
# defaults.json puts the embedded model on the CPU; GPUS_PER_RUN above 0 overrides that
[[ $preset = env || ${GPUS_PER_RUN:-0} != 0 ]] && args+=(--device=auto)
args+=("$@")

if [[ " $preset $* " =~ " "(-h|--help)" " ]]; then
    sed -n '2,/^set -e/{/^#/!d;s/^# \{0,1\}//p}' "$0"
    exit 0
fi

# ---- environment: .venv, updated when its requirements change; with vLLM if there are GPUs ------
if [[ $dry = 0 && -z ${PYTHON:-} ]]; then
    "$PY" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "$PY is older than 3.11; remove an old .venv"
    files=$("$PY" -m core.sweep requirements "$preset" "${args[@]}")
    made=.venv/${files##* }
    whole() { $python -m pip --version > /dev/null 2>&1; }
    if ! whole; then  # missing, or an installation that was stopped
        rm -f .venv/*.done
        python3 -m venv .venv && whole || fail ".venv is incomplete; rm -r .venv and retry"
    fi
    if ! cat $files | cmp -s - "${made%.txt}.done"; then
        echo "making .venv and installing $files (a few minutes, once)"
        $python -m pip install --quiet --disable-pip-version-check $(printf -- '-r %s ' $files)
        cat $files > "${made%.txt}.done"
    fi
fi
[ "$preset" = env ] && exit 0

# ---- problems, difficulty, runs, figures; with DRY_RUN=1 only the training commands -------------
verb=run
if [ $dry = 1 ]; then verb=commands; else PY=$python; fi
exec "$PY" -m core.sweep $verb "$preset" "${args[@]}"
