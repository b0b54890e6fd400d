#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# tests/fuzz.sh [SECONDS] [TARGET…]: libFuzzer on each target of tests/fuzz/targets.hpp for so many seconds (default: an
# hour), from the corpus in tests/data/fuzz/ and what earlier runs have left in build/fuzz. By hand, with clang 14.
#
# FUZZ_BUILD=fast leaves out the address sanitizer, which gives five to ten times as many executions. An input that breaks a
# promise is written to build/fuzz/TARGET.found/; once it is mended, it becomes a line of tests/data/fuzz/TARGET.txt. Ends
# with the number of executions of each target; exit status 1 if something was found.
#
#     bash tests/fuzz.sh 60 graph chain
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

all=(graph chain schedule intervals pace hlo solution mip command_line executor copies)
clang=$(command -v clang++-14 || command -v clang++) || { echo "clang++ is missing (Debian: clang-14)" >&2; exit 2; }
build=${FUZZ_BUILD:-address}
case $build in
  address) flags=(-O1 -fsanitize=fuzzer,address,undefined) ;;
  fast) flags=(-O2 -fsanitize=fuzzer,undefined) ;;
  *) echo "FUZZ_BUILD is $build; expected address or fast" >&2; exit 2 ;;
esac
mkdir -p build/fuzz
program=build/fuzz/$build
echo "building $program (some minutes)"
"$clang" -std=c++20 -g1 -fno-omit-frame-pointer -fno-sanitize-recover=all "${flags[@]}" -Iinclude -Itests -Iexamples \
  tests/fuzz/fuzzer.cpp -o "$program"

# unpack TARGET: each line of the corpus as a file of its own.
unpack() {
  local line n=0
  mkdir -p "build/fuzz/$1.corpus"
  while IFS= read -r line; do
    n=$((n + 1))
    printf '%b' "$line" >"build/fuzz/$1.corpus/$n"
  done <"tests/data/fuzz/$1.txt"
}

seconds=${1:-3600}
shift || true
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=("${all[@]}")
status=0
for target in "${targets[@]}"; do
  unpack "$target"
  mkdir -p "build/fuzz/$target" "build/fuzz/$target.found"
  REMAT_FUZZ_TARGET=$target "$program" -max_total_time="$seconds" -timeout=1 -rss_limit_mb=3000 -max_len=2000 \
    -print_final_stats=1 -artifact_prefix="build/fuzz/$target.found/" "build/fuzz/$target" "build/fuzz/$target.corpus" \
    >"build/fuzz/$target.log" 2>&1 && found=nothing || { found="see build/fuzz/$target.log"; status=1; }
  echo "$target: $(sed -n 's/^stat::number_of_executed_units: *//p' "build/fuzz/$target.log") executions; found: $found"
done
exit $status
