#!/usr/bin/env bash
# run_sweep.sh: from a fresh clone to a prescription.
#
#   bash run_sweep.sh easy                   # everything: environment, problems, base model, the grid of runs, figures, the answer
#   bash run_sweep.sh hard --lr_base=1e-3    # any --key=value of config.py goes on to every stage
#   MODEL=Qwen/Qwen2.5-7B-Instruct DATA=data/mine NS="8 32 128 512" BPS="32" C=1e6 bash run_sweep.sh easy
#   DRY_RUN=1 bash run_sweep.sh easy | xargs -d '\n' -n 1 -P 8 bash -c    # only the training commands, one a line
#   PRUNE=1 bash run_sweep.sh easy           # in rungs, from C/8 to C: half of the rollouts, for the cells that may still be on top
#   bash run_sweep.sh env                    # only the environment
#
# Presets: easy, hard, mixed (the recipe and the split of problems), and the studies of the paper that --help lists, each one or more
# sweeps ("arms") in folders below runs/atlas, shared where two studies have an arm in common. The same command goes on where it was
# stopped; finished runs are skipped on the `end` record of their log. More NS, BPS or SEEDS add cells to a finished sweep, a larger C
# continues its runs.
#
# Environment variables, empty = what config.py and the data folder's defaults.json say:
#   NS      values of n, "2 4 8"              MODEL   base model: hub name or transformers folder
#   BPS     values of B_p, "8 32"             DATA    data folder (default data/arithmetic)
#   SEEDS   seeds, "0 1 2"                    OUT     folder (default runs/PRESET, of a study runs/atlas)
#   C       rollouts a run                    JOBS    runs side by side (default: one a GPU, without GPUs one a core)
#   B_MAX   largest B_p n of a cell           PYTHON  an interpreter that has the requirements (default: .venv, made if missing)
#   DRY_RUN 1 = print the commands and do nothing else; with PRUNE=1 those of the first rung
#   PRUNE   1 = end runs that cannot reach the frontier, at most half of the full grid's rollouts: see frontier.py, "Pruned sweeps"
#   GPUS_PER_RUN  GPUs of a run, which no other run gets (default 1; 0 = the CPU); with 2 or more torchrun starts the run
#   LAUNCH        words before each training command, as in "srun -N1 --gpus=1 apptainer exec --nv image.sif"
# Small models: GPUS_PER_RUN=0 runs one on each core; JOBS above the number of GPUs shares them, with --gpu_memory= as small a part.
# The GPUs are those of CUDA_VISIBLE_DEVICES where it is set, else those that nvidia-smi lists.
set -euo pipefail
cd "$(dirname "$0")"
die() { echo "run_sweep.sh: $*" >&2; exit 2; }

preset=${1:---help}
[ $# -gt 0 ] && shift
PY=${PYTHON:-.venv/bin/python}
command -v "$PY" > /dev/null || PY=python3
for word in "$@"; do
    [[ $word == --?*=* ]] || die "$word: write it as --key=value"
    [[ $word != --data=* ]] || DATA=${word#--data=}
done
case $preset in
    -h|--help)
        sed -n '2,/^set -e/{/^#/!d;s/^# \{0,1\}//p}' "$0"
        echo "Studies, all seeds and learning rates; SEEDS=0 NS=... make them smaller:"
        "$PY" config.py presets ${DATA:+--data="$DATA"}
        exit 0 ;;
    env|easy|hard|mixed) ;;
    *) studies=$("$PY" config.py presets ${DATA:+--data="$DATA"}) || die "the studies of ${DATA:-data/arithmetic} cannot be listed, see above"
        [[ $'\n'$studies == *$'\n'"  $preset "* ]] || die "$preset: no such preset; env, easy, hard, mixed or a study (--help)"
        [ "${PRUNE:-}" != 1 ] || die "PRUNE=1: for easy, hard and mixed; the figures of a study need all of its runs" ;;
esac
[[ ${JOBS:-1} =~ ^[1-9][0-9]*$ ]] || die "JOBS=$JOBS: expected a whole number above 0"
[[ ${GPUS_PER_RUN:-0} =~ ^(0|[1-9][0-9]{0,3})$ ]] || die "GPUS_PER_RUN=$GPUS_PER_RUN: expected a whole number"
if [[ ${LAUNCH:-} == *$'\n'* ]] || ! bash -nc "words=(${LAUNCH:-})" 2> /dev/null; then die "LAUNCH=${LAUNCH@Q}: not the words of one command"; fi

# ---- GPUs -----------------------------------------------------------------------------------------------------------
cores=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)  # which would else count as its answer
gpus=() jobs=${JOBS:-$cores} each=${GPUS_PER_RUN:-1} threads=1  # on a CPU two runs of one thread each beat two threads in one run
if [ "$each" = 0 ]; then
    export CUDA_VISIBLE_DEVICES=
elif [ "${DRY_RUN:-}" != 1 ] && [ "$preset" != env ]; then  # these two may be called where there are no GPUs
    IFS=', ' read -ra gpus <<< "${CUDA_VISIBLE_DEVICES-$(nvidia-smi -L 2> /dev/null | sed -n 's/^GPU \([0-9]*\):.*/\1/p' | tr '\n' ,)}"
    if [[ ${gpus[0]:-} =~ ^(-1|NoDevFiles)$ ]]; then gpus=(); fi  # how CUDA and Slurm write none
    slots=$((${#gpus[@]} / each))
    [ $slots -gt 0 ] || [ -z "${GPUS_PER_RUN:-}" ] || die "GPUS_PER_RUN=$each: there are ${#gpus[@]} GPUs here"
    if [ $slots -gt 0 ]; then
        jobs=${JOBS:-$slots} threads=$((1 + (cores - 1) / ${#gpus[@]}))  # of a process, and a GPU has one
        [ "$jobs" -le $slots ] || [ "$each" = 1 ] || die "JOBS=$jobs: ${#gpus[@]} GPUs have room for $slots runs of $each"
    fi
fi

# ---- environment ----------------------------------------------------------------------------------------------------
make_env() {  # .venv with the pinned requirements; made again only when requirements.txt changes
    [ -n "${PYTHON:-}" ] && return
    cmp -s requirements.txt .venv/requirements.done && return
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || die "needs python3 of version 3.11 or later"
    echo "making .venv and installing requirements.txt (a few minutes, once)"
    [ -x .venv/bin/python ] || python3 -m venv .venv
    .venv/bin/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
    cp requirements.txt .venv/requirements.done
}
if [ "${DRY_RUN:-}" != 1 ]; then
    PY=${PYTHON:-.venv/bin/python}
    make_env
fi
[ "$preset" = env ] && exit 0

# ---- what will run --------------------------------------------------------------------------------------------------
study=atlas
case $preset in easy|hard|mixed) study=$preset ;; esac
out=${OUT:-runs/$study}
DATA=${DATA:-}
while [[ $DATA == */ ]]; do DATA=${DATA%/}; done
DATA=${DATA#./}
args=(--runs="$out")
[ -n "${DATA:-}" ] && args+=(--data="$DATA")
[ -n "${MODEL:-}" ] && args+=(--model="$MODEL")
[ -n "${NS:-}" ] && args+=(--ns="$NS")
[ -n "${BPS:-}" ] && args+=(--bps="$BPS")
[ -n "${SEEDS:-}" ] && args+=(--seeds="$SEEDS")
[ -n "${C:-}" ] && args+=(--C="$C")
[ -n "${B_MAX:-}" ] && args+=(--B_max="$B_MAX")
args+=("$@")
given=()  # for prepare.py and sample.py: all but the seed, which is that of the runs
for word in "$@"; do [[ $word == --seed=* ]] || given+=("$word"); done

if [ "${DRY_RUN:-}" = 1 ]; then
    exec "$PY" config.py commands "$preset" "${args[@]}"
fi
"$PY" config.py commands "$preset" "${args[@]}" > /dev/null  # ends here on a bad key or value, with nothing written

# ---- problems, base models, difficulty ------------------------------------------------------------------------------
# passive waiting keeps runs from starving each other; after SIGTERM torchrun's 30 s are too few for an update and a checkpoint
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$threads} OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive} TOKENIZERS_PARALLELISM=false
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=${TORCH_ELASTIC_SHUTDOWN_TIMEOUT:-600}
measure() {  # data model levels...: the splits of a model, with a share of the problems on each GPU; the bar is that of the first
    local shards=() broken=0 i file words=("$PY" sample.py --data="$1" --model="$2" "${@:3}" "${given[@]}")
    if [ ${#gpus[@]} -gt 1 ]; then
        mkdir -p "$out"
        trap 'kill -TERM "${shards[@]}" 2> /dev/null; exit 130' INT TERM HUP
        for i in "${!gpus[@]}"; do
            file=$out/difficulty.$i.txt
            [ "$i" != 0 ] || file=/dev/stderr
            CUDA_VISIBLE_DEVICES=${gpus[$i]} "${words[@]}" --shard="$i/${#gpus[@]}" >> "$file" 2>&1 < /dev/null &
            shards+=($!)
        done
        for i in "${!shards[@]}"; do
            wait "${shards[$i]}" || { broken=1; echo "FAILED  GPU ${gpus[$i]}: $(tail -n 1 "$out/difficulty.$i.txt" 2> /dev/null)" >&2; }
        done
        trap - INT TERM HUP
        [ $broken = 0 ] || exit 1
    fi
    "${words[@]}"
}
mapfile -t needs < <("$PY" config.py needs "$preset" "${args[@]}")
for need in "${needs[@]}"; do
    IFS=$'\t' read -r data model s_zero file <<< "$need"
    own=${file%/*}  # the folder of another data set, such as AIME24's, makes its own file
    if [ ! -f "$file" ] && [[ $file != "$data"/* && -f $own/prepare.py ]]; then "$PY" "$own/prepare.py" --data="$own"; fi
    if [ ! -f "$file" ] && [[ $file != "$data"/* ]]; then die "$file: no such problem file"; fi
    if [ -f "$data/prepare.py" ] && { [ ! -f "$data/problems.jsonl" ] || [[ $model == "$data"/* && ! -d $model ]] ||
            [[ ${file%/*} == "$data" && ! -f $file ]]; }; then
        echo "problems and base model: $data/prepare.py"
        "$PY" "$data/prepare.py" --data="$data" --model="$model" "${given[@]}"
    fi
    levels=()  # a study measures the levels of `mix` first of all: what they hold out to validate on is trained on by none
    [ "$study" = atlas ] || s_zero=0
    if [ "$s_zero" = 0 ] || [[ $file != "$data"/splits/* ]] || grep -qs '"s_zero": [1-9]' "${file%/*}/difficulty.json"; then
        [ ! -f "$file" ] || continue
    fi
    case ${file##*/} in
        easy_*|hard_*|very_easy_*|mixed_*) [ "$s_zero" != 0 ] || levels=(--s_zero=0) ;;
        extreme_*|level_easy_*|level_very_easy_*) ;;
        mix_*) [[ ${file##*/} =~ _D[0-9]+_seed[0-9]+_ ]] || die "$file: no such file; a mixture is mix_NAME_D140_seed0_train.jsonl" ;;
        *) die "$file: no such file; sample.py makes splits, data/guru_math/prepare.py mix mixtures of them" ;;
    esac
    if [[ ${file##*/} != mix_* ]] || ! grep -qs '"s_zero": [1-9]' "${file%/*}/difficulty.json"; then
        echo "difficulty of the problems for $model: sample.py"
        [ ! -f "$file" ] || echo "the levels hold out more problems: ${file%/*} is written anew, and sweeps on the splits of before cannot go on"
        measure "$data" "$model" "${levels[@]}"
    fi
    if [ ! -f "$file" ] && [[ ${file##*/} =~ ^mix_.*_D([0-9]+)_seed([0-9]+)_ ]]; then
        "$PY" data/guru_math/prepare.py mix --data="$data" --model="$model" --D="${BASH_REMATCH[1]}" --seed="${BASH_REMATCH[2]}"
    fi
    [ -f "$file" ] || die "$file: no problem of $data is of that difficulty for $model"
done
lines=$("$PY" config.py begin "$preset" "${args[@]}")
mapfile -t sweeps <<< "$lines"  # their folders

# ---- the runs: start, watch, collect --------------------------------------------------------------------------------
pids=() folders=() failed=() started=0 total=0 left="?"
stop_all() {  # shellcheck disable=SC2317
    trap "" INT TERM HUP PIPE  # who reads the output (tee, a terminal) may be gone
    set +e
    kill -TERM "${pids[@]}" 2> /dev/null  # a run saves a checkpoint at its next update and ends
    { echo; echo "stopping ${#pids[@]} runs; the same command goes on from here"; } 2> /dev/null
    wait
    exit 130
}
trap stop_all INT TERM HUP PIPE
trap 'kill -TERM "${pids[@]}" 2> /dev/null || true' EXIT  # an error of this script must not leave runs behind

clock() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }
last_line() {  # of a run's output; where torchrun's table stands behind it, the error of the run itself
    tail -c 9000 "$1/out.txt" 2> /dev/null | tr '\r' '\n' |
        awk 'NF {line = $0} /^(train_grpo.py|\[rank[0-9]+\]): [^ ]/ {said = $0} END {print said ? said : line}'
}
estimate() {  # reads the plan: runs in all, runs to do, rollouts in all, seconds of work to do
    read -r runs todo rollouts work < <("$PY" config.py plan "$preset" "${args[@]}") || return 0
    left=$(clock $((work / (todo < jobs ? (todo > 0 ? todo : 1) : jobs))))
}

show() {  # one live line a run and the time left; without a terminal, the same once a minute
    local folder lines=1
    if [ -t 1 ]; then
        for folder in "${folders[@]}"; do printf '  %.110s\033[K\n' "$(last_line "$folder")"; lines=$((lines + 1)); done
        printf '  %d of %d runs ended, about %s left\033[K\n\033[%dA' $((started - ${#pids[@]})) "$total" "$left" "$lines"
    elif [ $((ticks % 60)) = 59 ]; then
        for folder in "${folders[@]}"; do printf '  %.110s\n' "$(last_line "$folder")"; done
        echo "  $((started - ${#pids[@]})) of $total runs ended, about $left left"
    fi
}

reap() {  # take ended runs off the list, say how they ended, remember those that failed
    local i code line
    for i in "${!pids[@]}"; do
        kill -0 "${pids[$i]}" 2> /dev/null && continue
        code=0
        wait "${pids[$i]}" || code=$?
        line=$(last_line "${folders[$i]}")
        [ $code = 0 ] || failed+=("${folders[$i]} (exit $code): $line")
        [ ! -t 1 ] || printf '\033[J'
        if [ $code = 0 ]; then echo "done  $line"; else echo "FAILED ($code)  $line"; fi
        unset "pids[$i]" "folders[$i]"
    done
}

run_all() {  # run the given commands, $jobs of them side by side, each on its slot's GPUs, with its output in its run's folder
    local command folder words slot visible ticks=0
    started=0 total=$#
    while [ $started -lt "$total" ] || [ ${#pids[@]} -gt 0 ]; do
        while [ ${#pids[@]} -lt "$jobs" ] && [ $started -lt "$total" ]; do
            started=$((started + 1))
            command=${!started}
            eval "words=($command)"  # quoted by config.py; --out= comes last
            folder=${words[-1]#--out=}
            mkdir -p "$folder"
            for ((slot = 0; slot < jobs; slot++)); do [ -n "${pids[$slot]:-}" ] || break; done
            visible=
            if [ ${#gpus[@]} -gt 0 ]; then visible=$(IFS=,; echo "${gpus[*]:slot * each % ${#gpus[@]}:each}"); fi
            # setsid: Ctrl-C must not reach torchrun or srun, which would pass it on; stop_all asks the runs to stop
            env ${visible:+CUDA_VISIBLE_DEVICES="$visible"} setsid bash -c "exec $command" > "$folder/out.txt" 2>&1 < /dev/null &
            pids[slot]=$! folders[slot]=$folder
        done
        if [ $((ticks % 15)) = 10 ]; then estimate; fi
        show
        ticks=$((ticks + 1))
        sleep 1
        reap
    done
    [ ! -t 1 ] || printf '\033[J'
}

mapfile -t short < <("$PY" config.py calibrate "$preset" "${args[@]}")
if [ ${#short[@]} -gt 0 ]; then
    echo "calibration: ${#short[@]} short runs"
    run_all "${short[@]}"
    if [ ${#failed[@]} = ${#short[@]} ]; then
        echo "run_sweep.sh: no short run worked; the last: ${failed[-1]}" >&2
        exit 1
    fi
fi
estimate
disk=$(du -smc "$out"/.calibration/*/ckpt "$out"/.calibration/*/model 2> /dev/null | tail -n 1 | cut -f 1) || true  # nothing there is 0
# of each run stay two checkpoints and the model; each run of the calibration has one of both
calibrated=("$out"/.calibration/*/)
disk=$((2 * ${disk:-0} / ${#calibrated[@]}))
most=
[ "${PRUNE:-}" != 1 ] || most=" less what is pruned, half or more of it"
echo "sweep $out: $runs runs, $todo to do, $rollouts rollouts in all, about $left with $jobs side by side, about $((runs * disk)) MB of disk$most"
next_rung() {  # the commands of the next rung of every sweep that has one
    local folder
    for folder in "${sweeps[@]}"; do "$PY" frontier.py --view=next "${args[@]}" --runs="$folder" || return; done
}
broken=${#failed[@]}  # of the calibration
while true; do
    if [ "${PRUNE:-}" = 1 ]; then lines=$(next_rung); else lines=$("$PY" config.py commands "$preset" "${args[@]}"); fi
    [ -n "$lines" ] || break
    mapfile -t commands <<< "$lines"
    run_all "${commands[@]}"
    if [ "${PRUNE:-}" != 1 ] || [ ${#failed[@]} -gt "$broken" ]; then break; fi
done
trap - INT TERM HUP PIPE EXIT

# ---- the analysis ---------------------------------------------------------------------------------------------------
analysis=0
if [ "$study" = atlas ]; then
    "$PY" results/atlas.py "$preset" "${args[@]}" || analysis=$?
else
    "$PY" frontier.py --view=all --recipe="$preset" "${args[@]}" && "$PY" fit_sigmoid.py --recipe="$preset" "${args[@]}" || analysis=$?
fi
if [ ${#failed[@]} -gt 0 ]; then
    echo; echo "${#failed[@]} runs failed; the same command tries them again:"
    printf '  %s\n' "${failed[@]}"
    exit 1
fi
exit $analysis
