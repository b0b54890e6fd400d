#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# bash bench/set/pack.sh [FOLDER]: puts the benchmark set of FOLDER, by default of the preset `release`, as
# `benchmark_set take` left it, into the checkout: best_known.csv, and schedules.tar.xz. The same schedules give the same
# bytes.
set -euo pipefail
case ${1-} in
  -h | --help) sed -n '3,5s/^# //p' "$0"; exit 0 ;;
  -*) echo "pack.sh: $1: expected a folder (--help says more)" >&2; exit 2 ;;
esac
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
from=${1-$here/../../build/release/bench/set}
if [ $# -gt 1 ] || [ ! -f "$from/best_known.csv" ] || [ ! -d "$from/schedules" ]; then
  echo "usage: bash bench/set/pack.sh [FOLDER], which has best_known.csv and schedules/" >&2
  exit 2
fi
tar -C "$from" --sort=name --mtime='2026-01-01 00:00Z' --owner=0 --group=0 --numeric-owner --mode='u=rwX,go=rX' -cf - schedules |
  xz -9e >"$here/schedules.tar.xz.new"
mv "$here/schedules.tar.xz.new" "$here/schedules.tar.xz"
cp "$from/best_known.csv" "$here/best_known.csv"
