#!/usr/bin/env bash
# tests/gpu_report.sh: fill results/gpu.md in on a machine with a GPU, in about half an hour:
#   bash tests/gpu_report.sh
# The page has versions, the check before a sweep, tests/test_gpu.py, the speed and memory of an
# update, and the speed of generation. It compares ten updates of two cells of docs/gpu.md's sweep
# for one evening with core/cost.py. MODEL= names another model. The output of each step is in
# runs/gpu_report/. The page reports a step that fails.
set -euo pipefail
cd "$(dirname "$0")/.."
out=runs/gpu_report
mkdir -p "$out"
bash run_sweep.sh env
py=${PYTHON:-.venv/bin/python}
model=${MODEL:-Qwen/Qwen2.5-0.5B-Instruct}
step() {  # the name of a step and its command; its output goes to NAME.txt
    echo "$1"
    "${@:2}" > "$out/$1.txt" 2>&1 || echo "FAILED ($?)" >> "$out/$1.txt"
    tail -n 1 "$out/$1.txt"
}
step card nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader
step probe "$py" core/probe.py triton
"$py" -c "import pytest" 2> /dev/null || "$py" -m pip install --quiet -r requirements-test.txt
step tests "$py" -m pytest -q tests/test_gpu.py
step speed "$py" tests/bench/gpu.py 0.5B 1.5B
step generation "$py" tests/bench/gpu.py vllm 0.5B
step problems "$py" data/gsm8k/prepare.py --model="$model"
# every problem, so that no difficulty has to be measured
words=(--data=data/gsm8k --model="$model" --split=all --runs="$out")
step split "$py" sample.py "${words[@]}"
for n in 4 64; do
    line=$(NS=$n SEEDS=0 C=$((10 * 8 * n)) DRY_RUN=1 bash run_sweep.sh easy "${words[@]}" \
        --eval_every=0 2> /dev/null)
    rm -rf "$out/n$n"
    step "n$n" bash -c "exec env $line --out=$out/n$n"
done
"$py" tests/gpu_report.py "$out"
