#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# Line and branch coverage of include/ (without .cuh) by all tests, with clang 14 and its llvm-cov. By hand; half an hour on
# two cores. Writes the report of each header to build/coverage/report.txt, and every line that no test reaches to
# build/coverage/missed.txt; prints the totals.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

for tool in clang++-14 llvm-profdata-14 llvm-cov-14; do
  command -v $tool >/dev/null || { echo "$tool is missing (Debian: clang-14, llvm-14)" >&2; exit 2; }
done
build=build/coverage
jobs=${JOBS:-$(nproc)}
cmake -S . -B $build -G Ninja -DCMAKE_CXX_COMPILER=clang++-14 -DCMAKE_BUILD_TYPE=Debug -DREMAT_BUILD_TESTS=ON \
  -DREMAT_BUILD_EXAMPLES=ON -DREMAT_CUDA_PROGRAMS=OFF -DCMAKE_CXX_EXTENSIONS=OFF \
  -DCMAKE_CXX_FLAGS="-fprofile-instr-generate -fcoverage-mapping" -DCMAKE_CXX_FLAGS_DEBUG=-O1 >/dev/null
cmake --build $build --parallel "$jobs" -- -k 0 || echo "going on without what clang 14 does not take"
rm -rf $build/raw && mkdir -p $build/raw
# One profile for each program, merged while it runs: child processes and threads included.
LLVM_PROFILE_FILE="$PWD/$build/raw/%m.profraw" ctest --test-dir $build --parallel "$jobs" -LE gate --no-label-summary |
  tail -n 20 || echo "going on with what the other tests reach"
llvm-profdata-14 merge -sparse $build/raw/*.profraw -o $build/all.profdata
mapfile -t programs < <(find $build/tests $build/examples -maxdepth 1 -type f -executable ! -name '*.so')
objects=()
for program in "${programs[@]:1}"; do objects+=(-object "$program"); done
common=("${programs[0]}" "${objects[@]}" -instr-profile=$build/all.profdata)
mapfile -t headers < <(find include -name '*.hpp')
llvm-cov-14 report "${common[@]}" "${headers[@]}" >$build/report.txt 2>/dev/null
llvm-cov-14 show "${common[@]}" "${headers[@]}" -show-branches=count 2>/dev/null |
  grep -E '^(/|.*\|      0\|)' >$build/missed.txt || true
# The report names the tests and examples, too.
awk '$1 ~ /^include\/remat/ { lines += $8; missed += $9; branches += $11; not_taken += $12 }
     END { printf "include/: %d lines, %.1f %% reached; %d branches, %.1f %% taken\n",
                  lines, 100 * (1 - missed / lines), branches, 100 * (1 - not_taken / branches) }' $build/report.txt
