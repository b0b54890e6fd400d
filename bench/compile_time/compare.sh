#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# compare.sh [COMPILER [LIMIT]]: the time to compile remat.hpp (syntax only) against that of the standard headers that
# the core includes. Prints both and their ratio, which travels between machines; exit status 1 where it exceeds LIMIT.
# Each is the best of five runs, taken in turn, so that another load on the machine meets both.
set -euo pipefail
export LC_ALL=C
compiler=${1:-g++}
limit=${2:-2.0}
root=$(cd "$(dirname "$0")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

echo '#include "remat/remat.hpp"' >"$scratch/library.cpp"
# The standard headers of every header of the core that the umbrella names.
sed -n 's|^#include "\(remat/.*\)"|\1|p' "$root/include/remat/remat.hpp" | while read -r header; do
  grep -h '^#include <' "$root/include/$header" || true
done | sort -u >"$scratch/standard.cpp"
[ -s "$scratch/standard.cpp" ] || { echo "no standard headers found" >&2; exit 2; }

# Processor time, not the clock's: the machine may have other work.
TIMEFORMAT='%U %S'
milliseconds() {
  { time "$compiler" -std=c++20 -fsyntax-only "-I$root/include" "$1" 2>&3; } 3>&2 2>&1 | awk '{ printf "%d", ($1 + $2) * 1000 }'
}
best_standard=0
best_library=0
for _ in 1 2 3 4 5; do
  for name in standard library; do
    t=$(milliseconds "$scratch/$name.cpp")
    best=best_$name
    if [ "${!best}" -eq 0 ] || [ "$t" -lt "${!best}" ]; then printf -v "$best" %s "$t"; fi
  done
done
awk -v s="$best_standard" -v l="$best_library" -v limit="$limit" -v n="$(wc -l <"$scratch/standard.cpp")" -v c="$compiler" 'BEGIN {
  printf "%s: %d standard headers %.3f s, remat.hpp %.3f s, ratio %.2f (limit %.1f)\n", c, n, s / 1e3, l / 1e3, l / s, limit
  exit l / s > limit
}'
