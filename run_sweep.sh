#!/usr/bin/env bash
# run_sweep.sh: from a fresh clone to an answer: which n to train with, at each budget.
#
#   bash run_sweep.sh easy                   # everything, from the environment to the answer
#   bash run_sweep.sh hard --lr_base=1e-3    # any --key=value of config.py, for every stage
#   MODEL=Qwen/Qwen2.5-7B-Instruct DATA=data/mine NS="8 32 128" BPS=32 C=1e6 bash run_sweep.sh easy
#   DRY_RUN=1 bash run_sweep.sh easy | xargs -d '\n' -n 1 -P 8 bash -c    # the training commands
#   PRUNE=1 bash run_sweep.sh easy           # two thirds of the rollouts: the worst cells end early
#   bash run_sweep.sh env                    # only the environment
#
# The presets easy, hard and mixed are recipes, each with its split of problems. The other presets
# are the studies of the paper, which --help lists with their cost. A study is one or more sweeps
# ("arms") in folders below runs/atlas. Two studies with the same arm share the runs of the arm.
#
# Ctrl-C stops a sweep; the same command continues it. Finished runs are not repeated. More values
# in NS, BPS or SEEDS add runs to a finished sweep, and a larger C continues its runs. With
# DATA=data/guru_math, easy and hard are the paper's main sweeps: B_p = 32, n = 8 to 2,048 on easy
# and 8 to 512 on hard, C = 4M, on 6,000 and 5,000 problems.
#
# Environment variables; empty = the value of config.py or of the data folder's defaults.json:
#   NS      values of n, "2 4 8"              MODEL   base model: hub name or transformers folder
#   BPS     values of B_p, "8 32"             DATA    data folder (default data/arithmetic)
#   SEEDS   seeds, "0 1 2"                    OUT     folder of the sweep (default: `runs` in
#   LRS     values of lr_base, "1e-4 2e-4"            config.py)
#   C       rollouts per run                  JOBS    runs at a time (default: one per GPU or core)
#   B_MAX   largest B_p n of a run            PYTHON  interpreter with the requirements (.venv)
#   TASK    with DATA=data/reasoning_gym: the task whose problems prepare.py makes
#   DRY_RUN 1 = only write the plan and print the commands. With PRUNE=1 it prints the commands up
#             to the next of the three budgets, after ending the worst cells at the budgets before
#   PRUNE   1 = end a third of the cells at each of the budgets C/8, C/4 and C/2 ("Pruned sweeps"
#             in core/sweep.py)
#   GPUS_PER_RUN  GPUs for each run (default 1; 0 = the CPU); torchrun starts a run on 2 or more.
#                 python -m core.cost prints how many a model needs
#   LAUNCH        words before each training command: "apptainer exec --nv image.sif", "A=1 nice";
#                 srun does not pass SIGTERM on, see docs/gpu.md
# GPUS_PER_RUN=0 trains small models on the CPU, one run per core. vLLM needs a GPU to itself. With
# --engine=hf, several runs share a GPU if JOBS is above the number of GPUs. The GPUs are those in
# CUDA_VISIBLE_DEVICES if it is set, else those that nvidia-smi lists.
set -euo pipefail
cd "$(dirname "$0")"
[ -f core/sweep.py ] || cd "$SLURM_SUBMIT_DIR"  # sbatch starts a copy of this file
preset=${1:---help}
[ $# -gt 0 ] && shift
PY=${PYTHON:-.venv/bin/python}
"$PY" -c "" 2> /dev/null || PY=python3  # planning needs only the standard library

# ---- the words of every stage -------------------------------------------------------------------
args=()
for pair in DATA:data MODEL:model NS:ns BPS:bps SEEDS:seeds LRS:lrs C:C B_MAX:B_max OUT:runs \
            TASK:task; do
    name=${pair%:*}
    [ -n "${!name:-}" ] && args+=("--${pair#*:}=${!name}")
done
# the embedded model uses the CPU (defaults.json) unless the user asks for GPUs
[[ $preset = env || ${GPUS_PER_RUN:-0} != 0 ]] && args+=(--device=auto)
args+=("$@")

if [[ " $preset $* " =~ " "(-h|--help)" " ]]; then
    sed -n '2,/^set -e/{/^#/!d;s/^# \{0,1\}//p}' "$0"
    echo "Cost with the variables and keys of this command. GPU-hours are estimates (core/cost.py)."
    echo "If a sweep's folder has logs of runs on a GPU, the estimates are scaled to their hours:"
    words=()
    for word in "${args[@]}"; do [[ $word =~ ^(-h|--help)$ ]] || words+=("$word"); done
    exec "$PY" -m core.sweep price "${words[@]}"
fi

# ---- environment: .venv, updated when its requirements change; with vLLM if there are GPUs ------
if [ "${DRY_RUN:-}" != 1 ]; then
    if [ -z "${PYTHON:-}" ]; then
        "$PY" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
            { echo "run_sweep.sh: $PY is older than 3.11; remove an old .venv" >&2; exit 2; }
        files=$("$PY" -m core.sweep requirements "${args[@]}")
        made=.venv/${files##* }
        whole() { .venv/bin/python -m pip --version > /dev/null 2>&1; }
        if ! whole; then  # missing, or an installation that was stopped
            rm -f .venv/*.done
            python3 -m venv .venv && whole ||
                { echo "run_sweep.sh: .venv is incomplete; rm -r .venv and retry" >&2; exit 2; }
        fi
        if ! cat $files | cmp -s - "${made%.txt}.done"; then
            echo "making .venv and installing $files (a few minutes, once)"
            .venv/bin/python -m pip install --quiet --disable-pip-version-check \
                $(printf -- '-r %s ' $files)
            cat $files > "${made%.txt}.done"
        fi
    fi
    PY=${PYTHON:-.venv/bin/python}
fi
[ "$preset" = env ] && exit 0

# ---- only the commands ---------------------------------------------------------------------------
runs=$("$PY" -m core.sweep folder "$preset" "${args[@]}")
args+=(--runs="$runs")
if [ "${DRY_RUN:-}" = 1 ]; then
    exec "$PY" -m core.sweep commands "$preset" "${args[@]}"
fi

# ---- problems, base models, difficulty: prepare.py of the data folder, sample.py -----------------
"$PY" -m core.prepare "$preset" "${args[@]}"

# ---- the runs: train_grpo.py for every cell ------------------------------------------------------
# in the background, so that the trap can pass SIGTERM on at once; core.sweep then stops the runs
trap 'kill -TERM "$sweep" 2> /dev/null || true' INT TERM HUP
code=0
"$PY" -m core.sweep run "$preset" "${args[@]}" & sweep=$!
wait "$sweep" || code=$?
while kill -0 "$sweep" 2> /dev/null; do code=0; wait "$sweep" || code=$?; done
trap - INT TERM HUP
[ $code = 0 ] || exit $code

# ---- the analysis --------------------------------------------------------------------------------
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
analysis=0
echo "all runs have ended; analysing them (half a minute)"
case $preset in
    easy|hard|mixed)
        # --view=all draws every figure
        "$PY" frontier.py --recipe="$preset" "${args[@]}" > "$runs/report.txt" &&
            "$PY" fit_sigmoid.py --recipe="$preset" "${args[@]}" || analysis=$? ;;
    *) "$PY" results/atlas.py "$preset" "${args[@]}" || analysis=$? ;;
esac
"$PY" -m core.sweep failed "$preset" "${args[@]}"  # if runs have failed, lists them and exits
exit $analysis
