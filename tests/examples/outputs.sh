#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# outputs.sh PROGRAMS DATA: arena-plan, hierarchy and treewidth, built in the folder PROGRAMS, refuse to write onto their input,
# by whatever path, and write to standard output, and nothing else there, if the output is -. arena-plan obeys rules of buffers.
set -euo pipefail
programs=$1
data=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "FAILED: $1" >&2
  exit 1
}

printf 'id,lower,upper,size\na,0,4,512\nb,2,6,256\n' > "$work/arena-plan.in"
cp "$data/graphs/toy-skip-3.json" "$work/hierarchy.in"
printf 'p tw 3 2\n1 2\n2 3\n' > "$work/treewidth.in"

# check PROGRAM OPTION FIRST_LINE: a run with the output -, which begins with that line, and runs that are refused.
check() {
  local name=$1 option=$2 first=$3
  local program=$programs/$name in=$work/$name.in out status path
  if [ ! -x "$program" ]; then
    echo "$name is not built: left out"
    return
  fi
  cp "$in" "$work/before"
  ln -s "$name.in" "$work/$name.symbolic"
  ln "$in" "$work/$name.hard"
  for path in "$in" "$work/./$name.in" "$work/$name.symbolic" "$work/$name.hard"; do
    status=0
    "$program" "$in" "$option" "$path" > "$work/out" 2> "$work/err" || status=$?
    [ "$status" -eq 2 ] || fail "$name $option $path: exit status $status"
    [ ! -s "$work/out" ] || fail "$name $option $path: prints $(cat "$work/out")"
    [ "$(cat "$work/err")" = "$name: $option $path: is the input $in, which would be overwritten; expected the name of another file" ] ||
      fail "$name $option $path: $(cat "$work/err")"
    cmp -s "$in" "$work/before" || fail "$name $option $path: the input is overwritten"
  done
  "$program" "$in" "$option" "$work/$name.out" > "$work/summary"
  [ -s "$work/summary" ] || fail "$name prints nothing beside its file"
  out=$("$program" "$in" "$option" -)
  [ "${out%%$'\n'*}" = "$first" ] || fail "$name $option -: $out"
  [ "$out" = "$(cat "$work/$name.out")" ] || fail "$name $option -: $out"
  echo "$name $option"
}
check arena-plan --out 'id,lower,upper,size,offset'
check hierarchy --dot 'digraph step {'
check treewidth --out 's td 2 2 3'

# arena-plan with a rule for each buffer, and with banks.
if [ -x "$programs/arena-plan" ]; then
  printf 'id,lower,upper,size,alignment\na,0,6,128,128\nb,1,3,56,1\nc,2,7,128,128\nd,4,8,64,128\ne,5,9,64,256\n' > "$work/rules.csv"
  out=$("$programs/arena-plan" "$work/rules.csv")
  [[ $out == *'448 bytes, load 384 bytes, proven the best'* ]] || fail "arena-plan with alignments: $out"
  printf 'id,lower,upper,size,banks,given,in_place_of\nx,0,2,100,1,,\ny,1,3,100,,,x\nw,0,3,64,0,0,\n' > "$work/rules.csv"
  out=$("$programs/arena-plan" "$work/rules.csv" --alignment 1 --bank 64 --bank any --out -)
  [ "$out" = $'id,lower,upper,size,offset,bank\nx,0,2,100,0,1\ny,1,3,100,0,1\nw,0,3,64,0,0' ] || fail "arena-plan with banks: $out"
  status=0
  out=$("$programs/arena-plan" "$work/rules.csv" --alignment 1 --bank 64 --bank 99) || status=$?
  [ "$status" -eq 1 ] || fail "arena-plan with banks that are too small: exit status $status"
  [[ $out == *'buffer 0 is larger than every bank and block where it may lie'* ]] || fail "arena-plan with banks that are too small: $out"
  for wrong in 'id,lower,upper,size,align' 'id,lower,upper,alignment'; do
    printf '%s\na,0,1,1,1\n' "$wrong" > "$work/rules.csv"
    status=0
    "$programs/arena-plan" "$work/rules.csv" > "$work/out" 2> "$work/err" || status=$?
    [ "$status" -eq 2 ] || fail "arena-plan with the columns $wrong: exit status $status"
    [ "$(wc -l < "$work/err")" -eq 1 ] || fail "arena-plan with the columns $wrong: $(cat "$work/err")"
  done
  printf 'id,lower,upper,size,alias_of\na,0,1,40,\nb,2,3,20,\nc,4,5,40,a\n' > "$work/gap.csv"
  out=$("$programs/arena-plan" "$work/gap.csv")
  [[ $out == *'40 bytes, load 40 bytes, proven the best'* ]] || fail "arena-plan with bytes that are free between two uses: $out"
  printf 'id,lower,upper,size,in_place_of\na,0,9,40,\nb,1,10,40,a\n' > "$work/shared.csv"
  out=$("$programs/arena-plan" "$work/shared.csv")
  [[ $out == *'sharing   b is in place of a, and both are in use for 8 units of time'* ]] || fail "arena-plan in place: $out"
  echo "arena-plan with rules"
fi
