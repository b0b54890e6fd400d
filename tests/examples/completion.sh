#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# completion.sh PROGRAM GRAPH: what bash and zsh complete for remat-plan, without a terminal. zsh is left out, visibly, if it
# is missing.
set -euo pipefail
program=$1
graph=$2
folder=$(dirname "${BASH_SOURCE[0]}")/../../examples/remat_plan/completion
fail() {
  echo "FAILED: $1" >&2
  echo "expected: $2" >&2
  echo "found:    $3" >&2
  exit 1
}
expect() { [ "$2" = "$3" ] || fail "$1" "$2" "$3"; }

options_of() { "$program" "$@" --help | grep -oE '^  (-h,)?--[a-z-]+' | sed 's/.*--/--/' | sort | tr '\n' ' '; }
options=$(options_of)
solvers=$({ "$program" "$graph" --budget 0.5 --solver nobody 2>&1 || true; } |
  sed 's/.*expected //; s/ or /, /; s/,//g' | tr ' ' '\n' | sort | tr '\n' ' ')
also() { case $solvers in *$1*) ;; *) solvers=$(echo "$solvers $1" | tr -s ' ' '\n' | sort | tr '\n' ' ' | sed 's/^ //') ;; esac }
also offload # with --link
also pofo # with --link
case $("$program" "$graph" --budget 1.0 --link latency=0 --solver nobody 2>&1 || true) in *offload*) ;; *) fail "a solver" offload none ;; esac

# shellcheck source=/dev/null
source "$folder/remat-plan.bash"
in_bash() {  # WORD…: the completions of the last word
  COMP_WORDS=("$program" "$@")
  COMP_CWORD=$#
  COMPREPLY=()
  _remat_plan "$program" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
  printf '%s\n' "${COMPREPLY[@]}" | sort | tr '\n' ' '
}
expect "options" "$options" "$(in_bash --)"
expect "an option" "--list-options " "$(in_bash --list-o)"
expect "options of sweep" "$(options_of sweep)" "$(in_bash sweep "$graph" --)"
expect "options of merge" "$(options_of merge)" "$(in_bash merge --)"
expect "an option of sweep" "--schedules " "$(in_bash sweep --sch)"
expect "solvers of sweep" "evict " "$(in_bash sweep "$graph" --solver ev)"
expect "a command" "sweep " "$(in_bash swee)"
expect "no command" "" "$(in_bash "$graph" swee | tr -d ' ')"
expect "three options" "--link --list-options --list-solvers " "$(in_bash --li)"
expect "solvers" "$solvers" "$(in_bash --solver "")"
expect "a list of solvers" "evict,rockmate evict,rotor " "$(in_bash --solver evict,ro)"
expect "after =" "evict " "$(in_bash --solver = ev)"
expect "presets" "balanced fast paper " "$(in_bash --preset "")"
expect "an option of a solver" "rotor.slots= " "$(in_bash --option rotor.sl)"
expect "a number" " " "$(in_bash --budget "")"
expect "files" "$graph " "$(in_bash "${graph%.json}")"
for cost in $(in_bash --cost ""); do
  case $("$program" "$graph" --budget 1 --cost "$cost" 2>&1 >/dev/null || true) in
    *"no such model"*) fail "a cost model" "one that the program knows" "$cost" ;;
  esac
done
echo "bash completes"

if ! command -v zsh >/dev/null; then
  echo "zsh is missing: left out"
  exit 0
fi
in_zsh() {  # PREFIX WORD…: as the completion system would call it, with its functions replaced by ones that print
  PROGRAM=$program FOLDER=$folder zsh -f -c '
    compset() { PREFIX=${PREFIX#*=}; }
    compadd() { while [[ $1 != -a ]]; do shift; done; print -l -- ${(P)2}; }
    _values() { while [[ $1 == -* ]]; do shift 2; done; shift; print -l -- "$@"; }
    _files() { print files; }
    _message() { print message; }
    complete_word() { source $FOLDER/_remat-plan; }
    PREFIX=$1; shift
    words=($PROGRAM "$@" "$PREFIX"); CURRENT=${#words}
    complete_word' zsh "$@" | sort | tr '\n' ' '
}
expect "zsh: options" "$options" "$(in_zsh --)"
expect "zsh: options of sweep" "$(options_of sweep)" "$(in_zsh -- sweep "$graph")"
expect "zsh: options of merge" "$(options_of merge)" "$(in_zsh -- merge)"
expect "zsh: commands" "diff files merge sweep " "$(in_zsh "")"
expect "zsh: solvers" "$solvers" "$(in_zsh "" --solver)"
expect "zsh: after =" "$solvers" "$(in_zsh --solver=ev)"
expect "zsh: files" "files " "$(in_zsh x "$graph")"
expect "zsh: a number" "message " "$(in_zsh "" --budget)"
case " $(in_zsh "" --option)" in *" rotor.slots= "*) ;; *) fail "zsh: options of solvers" rotor.slots= "$(in_zsh "" --option)" ;; esac
echo "zsh completes"
