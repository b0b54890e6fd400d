#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# What needs a GPU, run by hand on a machine that has one: the tests with the label gpu, the same under compute-sanitizer,
# training with and without rematerialization, a thousand replays of a captured step, and the same network in PyTorch
# where that is installed. SIZES and STEPS choose the network; what is printed is kept in build/cuda/gpu-report.txt, to be
# copied to docs/figures.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L | grep -q '^GPU'; then
  echo "skipped: no GPU"
  exit 77
fi
jobs=${JOBS:-$(nproc)}
sizes=${SIZES:---layers 12 --width 768 --heads 12 --context 1024 --batch 8 --vocabulary 50304}
steps=${STEPS:-30}
build=build/cuda
failed=0

cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES=native
cmake --build --preset cuda --parallel "$jobs" --target gpu_programs

report() { tee -a "$build/gpu-report.txt"; }
part() {  # TITLE COMMAND…
  local status=0
  printf '\n## %s\n\n' "$1" | report
  shift
  echo "$*" | report
  "$@" 2>&1 | report || status=$?
  if [ "$status" -ne 0 ]; then
    echo "exit status $status" | report
    failed=1
  fi
}

: >"$build/gpu-report.txt"
{
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv
  nvcc --version | tail -n 2
  git describe --always --dirty
} | report

part "Tests" ctest --test-dir "$build" -L gpu --no-tests=error --output-on-failure

if command -v compute-sanitizer >/dev/null; then
  # Without what depends on time.
  quick='--test-case-exclude=*makespan*,*times of the launches*,*before its work has ended*,*thousand*'
  for tool in memcheck racecheck synccheck initcheck; do
    part "compute-sanitizer, $tool" compute-sanitizer --tool "$tool" --error-exitcode 1 \
      $([ "$tool" = memcheck ] && echo "--report-api-errors no") "$build/tests/gpu.execute.cuda_test" "$quick"
    [ "$tool" = initcheck ] || part "compute-sanitizer, $tool, training" compute-sanitizer --tool "$tool" \
      --error-exitcode 1 "$build/examples/train-gpt-gpu" --layers 2 --width 64 --heads 4 --context 64 --batch 2 \
      --steps 3 --budget 0.6 --seconds 0.5 --streams 2
  done
else
  echo "skipped: compute-sanitizer is not found" | report
fi

part "A thousand replays" "$build/examples/train-gpt-gpu" --layers 4 --width 256 --heads 4 --context 128 --batch 8 \
  --steps 1001 --budget 0.6 --streams 2 --graph
for how in "" --graph "--streams 2" "--streams 2 --graph"; do
  # shellcheck disable=SC2086
  part "Training${how:+, $how}" "$build/examples/train-gpt-gpu" $sizes --steps "$steps" \
    --budget 1.0,0.9,0.8,0.7,0.6,0.5,0.4 $how
done

if python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
  # shellcheck disable=SC2086
  part "PyTorch" python3 examples/torch_gpt_checkpoint.py $sizes --steps "$steps"
else
  echo "skipped: PyTorch with CUDA is not found" | report
fi
exit "$failed"
