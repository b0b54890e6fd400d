# SPDX-License-Identifier: BSL-1.0
# Completion of remat-plan in bash. The program itself names its options.

_remat_plan() {
  local program=$1 current=$2 previous=$3 words= before= command=
  case ${COMP_WORDS[1]} in sweep | merge | diff) [[ $COMP_CWORD -gt 1 ]] && command=${COMP_WORDS[1]} ;; esac
  if [[ $previous == = ]]; then previous=${COMP_WORDS[COMP_CWORD - 2]}; fi # --solver=evict is three words
  case $previous in
    --solver) words="all $("$program" --list-solvers 2>/dev/null | sed -n '3,$s/^\([a-z_]*\)  .*/\1/p')" ;;
    --bind) words="peak arena" ;;
    --preset) words="fast balanced paper" ;;
    --cost) words="measured roofline flops linear unit" ;;
    --option)
      words=$("$program" --list-options 2>/dev/null | sed -n 's/^\([a-z_]*\.[a-z_]*\) .*/\1=/p')
      compopt -o nospace 2>/dev/null
      ;;
    --budget | --seconds | --threads | --max-overhead | --link | --host-budget | --alignment | --slots | --gap | --streams | --seed | --work | --shard | --shards | --piece) return ;;
    *)
      if [[ $current == -* ]]; then
        words=$("$program" ${command:+"$command"} --help 2>/dev/null | sed -n 's/^  \(-h,\)\{0,1\}\(--[a-z-]*\).*/\2/p')
      else
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <({ if [[ $COMP_CWORD -eq 1 ]]; then compgen -W "sweep merge diff" -- "$current"; fi; compgen -f -- "$current"; })
        return
      fi
      ;;
  esac
  if [[ $previous == --solver && $current == *,* ]]; then # a list
    before=${current%,*},
    current=${current##*,}
  fi
  mapfile -t COMPREPLY < <(compgen -P "$before" -W "$words" -- "$current")
}
complete -F _remat_plan remat-plan
