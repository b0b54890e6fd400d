#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# Planned PyTorch steps in CUDA graphs, on a machine with a GPU and PyTorch. tests/gpu.sh calls it.
#
#   bash tests/gpu_torch.sh build             on a machine with a compiler: remat-plan into build/gpu-programs
#   bash tests/gpu_torch.sh tests             on the machine with the GPU: the tests of the package with pytest's mark gpu
#   bash tests/gpu_torch.sh rows SIZE FILE    times beside eager steps, of GPT-2 small or full: to FILE, each row when it is measured
#
# Needs this folder and build/gpu-programs/remat-plan (or REMAT_PLAN). PYTHON: python3. Exit status 1 if anything failed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
programs=build/gpu-programs
python=${PYTHON:-python3}

case "${1:-}" in
  build)
    cmake --preset portable -DREMAT_CUDA_PROGRAMS=OFF || exit 1
    cmake --build --preset portable --target remat-plan --parallel "${JOBS:-1}" || exit 1
    mkdir -p "$programs" && cp build/portable/examples/remat-plan "$programs" || exit 1
    exit 0
    ;;
  tests | rows) ;;
  --help | -h) sed -n '3,/^set -uo/{/^#/s/^# \{0,1\}//p}' tests/gpu_torch.sh && exit 0 ;;
  *) echo "gpu_torch.sh: expected build, tests, or rows SIZE FILE" >&2 && exit 2 ;;
esac

REMAT_PLAN=${REMAT_PLAN:-$(realpath "$programs/remat-plan")}
export REMAT_PLAN PYTHONDONTWRITEBYTECODE=1
if [ "$1" = tests ]; then
  # The other files may import packages that are not there.
  mapfile -t files < <(grep -l 'mark\.gpu' examples/pytorch/tests/test_*.py)
  exec "$python" -m pytest -q -m gpu --tb=short --show-capture=no -p no:cacheprovider "${files[@]}"
fi
budgets=1,0.7 more=()
[ "${2:?SIZE is missing}" = small ] || { budgets=1,0.6 && more=(--steps 6); }
"$python" bench/pytorch/gpu_graphs.py --size "$2" --budgets "$budgets" --seconds 1 "${more[@]}" | tee "${3:?FILE is missing}"
