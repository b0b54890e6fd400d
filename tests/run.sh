#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# Installs what is missing, builds everything with debug information and runs every test. JOBS (default: the number of
# processors) says how many compilers and tests run at a time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash .ci/install-packages test
jobs=${JOBS:-$(nproc)}
if command -v ccache >/dev/null; then export CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER-ccache}; fi

# What runs on a GPU is compiled where there is one; elsewhere continuous integration compiles it.
gpu=OFF
if [ -e /dev/nvidiactl ]; then gpu=ON; else echo "no NVIDIA GPU: what runs on one is left out"; fi

cmake --preset dev -DREMAT_CUDA_PROGRAMS="$gpu"
cmake --build --preset dev --parallel "$jobs"
ctest --preset dev --parallel "$jobs" --no-label-summary
