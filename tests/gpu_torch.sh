#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# Planned PyTorch steps in CUDA graphs, on a machine with a GPU and PyTorch.
#
#   bash tests/gpu_torch.sh build      on a machine with a compiler: remat-plan into build/gpu-programs
#   bash tests/gpu_torch.sh            on the machine with the GPU: tests (2 minutes at most), then rows (1.5 minutes at most)
#
# Needs this folder and build/gpu-programs/remat-plan (or REMAT_PLAN). Variables: PYTHON (python3), OUT (build/gpu). Exit status 1 if
# anything failed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
programs=build/gpu-programs

if [ "${1:-}" = build ]; then
  cmake --preset portable -DREMAT_CUDA_PROGRAMS=OFF || exit 1
  cmake --build --preset portable --target remat-plan --parallel "${JOBS:-1}" || exit 1
  mkdir -p "$programs" && cp build/portable/examples/remat-plan "$programs" || exit 1
  exit 0
fi

python=${PYTHON:-python3}
out=${OUT:-build/gpu}
mkdir -p "$out"
REMAT_PLAN=${REMAT_PLAN:-$(realpath "$programs/remat-plan")}
export REMAT_PLAN
failed=0

timeout 120 "$python" -m pytest -q -m gpu --tb=short --show-capture=no -p no:cacheprovider examples/pytorch/tests/test_graphs_gpu.py 2>&1 |
  tee "$out/graphs_tests.txt" || failed=1
timeout 40 "$python" bench/pytorch/gpu_graphs.py --size small --budgets 1,0.7 --seconds 1 2>"$out/graphs_small.err" |
  tee "$out/graphs_small.csv" || failed=1
timeout 60 "$python" bench/pytorch/gpu_graphs.py --size full --budgets 1,0.6 --seconds 1 --steps 6 2>"$out/graphs_full.err" |
  tee "$out/graphs_full.csv" || failed=1
tail -n 3 "$out"/graphs_*.err
exit $failed
