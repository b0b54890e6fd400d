#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# What is too long for every change, run by hand before a release: the exhaustive comparisons on 20,000 random graphs up
# to 8 operations; reports opened in a browser, if there is one; every test, the slow ones included, under the address and
# undefined-behaviour sanitizers, and those with threads under the thread sanitizer; and all gates, each header alone under
# g++ and clang++ among them. An hour or more on two cores.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash .ci/install-packages ci
jobs=${JOBS:-$(nproc)}
cmake --preset release
cmake --build --preset release --parallel "$jobs"
cmake --preset dev -DREMAT_CUDA_PROGRAMS=ON
cmake --build --preset dev --parallel "$jobs"
REMAT_LONG=1 ctest --preset dev --parallel "$jobs" --timeout 7200 --no-label-summary -R '^(bound|chain|treewidth|hierarchy|mip|refine|render|solver|method|laws|memory)\.|^execute\.sweep'
ctest --preset gates --parallel "$jobs" --no-label-summary
for preset in asan-full tsan; do
  cmake --preset "$preset"
  cmake --build --preset "$preset" --parallel "$jobs"
done
ctest --test-dir build/asan-full --parallel "$jobs" --timeout 7200 --output-on-failure
ctest --test-dir build/tsan --parallel "$jobs" --timeout 7200 --output-on-failure -L threads
