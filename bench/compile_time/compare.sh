#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# compare.sh [--check | --leaves] [COMPILER]: processor seconds to compile, by $CXX or g++ without an argument,
# - each umbrella (syntax only) beside the standard headers that its headers include: a ratio, which travels between machines;
# - each leaf (-O2) in the same way, and its example, which calls it;
# - a program (-O2) that builds a problem and calls no solver, or one: header-only, and in the compiled form.
# Each figure is one run. A compile that fails ends all, with the compiler's message; tests/headers/size.cmake holds the
# umbrellas' size. With --check the exit status is 1 if a program costs more, beside the one without a solver, than the
# script allows for it. With --leaves it measures the leaves alone: each figure is the least of seven runs, that with a call of one.
set -euo pipefail
export LC_ALL=C
check='' leaves='' runs=1
case ${1:-} in
  -h | --help) sed -n '3,10s/^# //p' "$0"; exit 0 ;;
  --check) check=1; shift ;;
  --leaves) leaves=1 runs=7; shift ;;
esac
case ${1:-} in
  -*) echo "compare.sh: $1: expected a compiler (--help says more)" >&2; exit 2 ;;
esac
compiler=${1:-${CXX:-g++}}
root=$(cd "$(dirname "$0")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
TIMEFORMAT='%U %S'

fail() { echo "compare.sh: $*" >&2; exit 1; }
compile() { "$compiler" -std=c++20 "-I$root/include" "$@"; }
# seconds FILE FLAG…: compiles FILE; `taken` becomes the processor time, user and system. It must not run in a subshell,
# which bash lets go on after a command that fails.
seconds() {
  local file=$1
  shift
  : >"$scratch/times"
  for _ in $(seq "$runs"); do
    rm -f "$scratch/out.o"
    { time compile "$@" "$file" 2>&3; } 3>&2 2>"$scratch/time" || fail "$compiler does not compile ${file##*/} with $*"
    case " $* " in *' -c '*) [ -s "$scratch/out.o" ] || fail "$compiler wrote no object file of ${file##*/}" ;; esac
    cat "$scratch/time" >>"$scratch/times"
  done
  taken=$(awk '{ print $1 + $2 }' "$scratch/times" | sort -n | head -1)
  taken=$(printf '%.2f' "$taken")
}
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { if (b > 0) printf "%.2f", a / b; else printf "unknown" }'; }

# beside_standard HEADER FLAG…: compiles the standard headers that the headers of HEADER include, and then HEADER, written to
# $scratch/HEADER.cpp; `standard` and `taken` become their processor times.
beside_standard() {
  local header=$1
  shift
  echo "#include \"remat/$header.hpp\"" >"$scratch/$header.cpp"
  compile -M "$scratch/$header.cpp" >"$scratch/needed" || fail "$compiler does not find the headers of $header.hpp"
  tr ' \\' '\n\n' <"$scratch/needed" | grep "^$root/include/" >"$scratch/headers" || fail "$compiler -M lists no header of remat"
  # Without the name that stops a compiler which the library refuses.
  xargs grep -h '^#include <' <"$scratch/headers" | grep -v 'does-not-exist' | sort -u >"$scratch/standard.cpp"
  seconds "$scratch/standard.cpp" "$@"
  standard=$taken
  seconds "$scratch/$header.cpp" "$@"
}

measure_leaves() {
  for leaf in adjoint arena order; do
    beside_standard "$leaf" -O2 -c -o "$scratch/out.o"
    alone=$taken
    runs=1 seconds "$root/examples/$leaf.cpp" -O2 -c -o "$scratch/out.o"
    echo "$leaf.hpp: $alone s, its standard headers $standard s, ratio $(ratio "$alone" "$standard"); with a call $taken s"
  done
}
if [ -n "$leaves" ]; then
  measure_leaves
  exit 0
fi

for umbrella in remat solvers execute; do
  beside_standard "$umbrella" -fsyntax-only
  for form in '' -DREMAT_SEPARATE_COMPILATION; do
    [ -z "$form" ] || seconds "$scratch/$umbrella.cpp" -fsyntax-only "$form"
    echo "$umbrella.hpp ${form:-header-only}: $taken s, its standard headers $standard s, ratio $(ratio "$taken" "$standard")"
  done
done

# Solvers, and the most that a call may cost, header-only, in programs without one: a fifth more than docs/build-times.md has; in
# the compiled form 1.2 for all.
too_slow=
for row in none=1 evict=3.1 rotor=4.3 exact=4.2 refined=9.7 automatic=22.2; do
  solver=${row%=*}
  {
    [ "$solver" = none ] || echo "#include \"remat/method/$solver.hpp\""
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
    seconds "$scratch/$solver.cpp" -O2 -c -o "$scratch/out.o" $form
    name=none${form:+_compiled}
    if [ "$solver" = none ]; then declare "$name=$taken"; fi
    times=$(ratio "$taken" "${!name}")
    most=${row#*=}
    if [ -n "$form" ]; then most=1.2; fi
    echo "program, solver $solver, ${form:-header-only}: $taken s, $times x the program without a solver (at most $most)"
    if awk -v a="$times" -v b="$most" 'BEGIN { exit !(a > b) }'; then too_slow+=" $solver${form:+ (compiled form)}"; fi
  done
done

measure_leaves
if [ -n "$check" ] && [ -n "$too_slow" ]; then
  fail "too slow to compile:$too_slow"
fi
