#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# all.sh PROGRAM OUTDIR [--full] [more arguments of every script]: makes all figures of the papers in OUTDIR, with the
# remat-plan PROGRAM. Finished rows are kept: the same command goes on where it was stopped. docs/papers.md says more.
set -uo pipefail
case ${1:-} in
  -h | --help)
    sed -n '3,4s/^# //p' "${BASH_SOURCE[0]}"
    echo "The other arguments are those of its scripts: ${BASH_SOURCE[0]%/*}/figure.py says which, by --help of any of them."
    exit 0
    ;;
esac
if [ $# -lt 2 ] || [ "${1#-}" != "$1" ]; then
  echo "usage: $0 PROGRAM OUTDIR [--full]" >&2
  exit 2
fi
program=$1
folder=$2
shift 2
here=$(dirname "${BASH_SOURCE[0]}")
make_stack=$(dirname "$program")/../bench/make_stack
status=0
for figure in twremat_peak_vs_depth rotor_makespan_vs_memory hiremate_overhead_vs_budget hiremate_time_vs_size \
  hilp_options; do
  echo "== $figure" >&2
  start=$SECONDS
  python3 -B "$here/$figure.py" "$folder" --program "$program" --make-stack "$make_stack" "$@" || status=1
  echo "== $figure: $((SECONDS - start)) s" >&2
done
exit $status
