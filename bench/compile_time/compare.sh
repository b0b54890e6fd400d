#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# compare.sh [COMPILER]: processor seconds to compile
# - each umbrella (syntax only) beside the standard headers that its headers include: a ratio, which travels between machines;
# - a program (-O2) that builds a problem and calls no solver, evict, or auto: header-only, and in the compiled form.
# Each figure is the least of three runs. Nothing here passes or fails; tests/headers/size.cmake holds the umbrellas' size.
set -euo pipefail
export LC_ALL=C
compiler=${1:-g++}
root=$(cd "$(dirname "$0")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
TIMEFORMAT='%U %S'

seconds() {  # FILE FLAGS…: least processor time of three runs
  local file=$1 best=
  shift
  for _ in 1 2 3; do
    local t
    t=$({ time "$compiler" -std=c++20 "-I$root/include" "$@" "$file" 2>&3; } 3>&2 2>&1 | awk '{ printf "%.2f", $1 + $2 }')
    if [ -z "$best" ] || awk -v a="$t" -v b="$best" 'BEGIN { exit !(a < b) }'; then best=$t; fi
  done
  echo "$best"
}
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", a / b }'; }

for umbrella in remat solvers execute; do
  echo "#include \"remat/$umbrella.hpp\"" >"$scratch/$umbrella.cpp"
  "$compiler" -std=c++20 "-I$root/include" -M "$scratch/$umbrella.cpp" | tr ' \\' '\n\n' | grep "$root/include" |
    xargs grep -h '^#include <' | sort -u >"$scratch/standard.cpp"
  standard=$(seconds "$scratch/standard.cpp" -fsyntax-only)
  for form in '' -DREMAT_SEPARATE_COMPILATION; do
    library=$(seconds "$scratch/$umbrella.cpp" -fsyntax-only $form)
    echo "$umbrella.hpp ${form:-header-only}: $library s, its standard headers $standard s, ratio $(ratio "$library" "$standard")"
  done
done

for solver in none evict automatic; do
  {
    [ "$solver" = none ] || echo "#include \"remat/solver/$solver.hpp\""
    cat <<'PROGRAM'
#include "remat/remat.hpp"
int main() {
  remat::training_graph g("layers");
  remat::tensor_id last = g.add_tensor({.bytes = 8, .kind = remat::tensor_kind::input});
  for (int i = 0; i < 8; ++i) {
    const remat::tensor_id next = g.add_tensor({.bytes = 8});
    g.add_operation({.name = "layer", .inputs = {last}, .outputs = {next}});
    last = next;
  }
  g.add_final_output(last);
  const remat::problem p(g, remat::unit_cost{}, 64);
PROGRAM
    [ "$solver" = none ] || echo "  return static_cast<int>(remat::$solver(p).peak_bytes);"
    [ "$solver" != none ] || echo "  return static_cast<int>(p.graph().baseline_peak);"
    echo "}"
  } >"$scratch/$solver.cpp"
  for form in '' -DREMAT_SEPARATE_COMPILATION; do
    t=$(seconds "$scratch/$solver.cpp" -O2 -c -o "$scratch/out.o" $form)
    declare "time_$solver${form:+_compiled}=$t"
    echo "program, solver $solver, ${form:-header-only}: $t s"
  done
done
echo "compiled form, evict / none: $(ratio "$time_evict_compiled" "$time_none_compiled"), auto / none: $(ratio "$time_automatic_compiled" "$time_none_compiled")"
