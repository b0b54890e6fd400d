#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# pack_set.sh SET SCRATCH: bench/set/pack.sh puts the unpacked benchmark set SET into a checkout, from which it is unpacked
# again; a schedule that is new comes along, and a folder that is no set is refused.
set -euo pipefail
set_folder=$1
scratch=$2
sources=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../bench/set" && pwd)
fail() {
  echo "FAILED: $1" >&2
  exit 1
}
rm -rf "$scratch"
mkdir -p "$scratch/checkout" "$scratch/again"
cp "$sources/pack.sh" "$scratch/checkout"
cp -r "$set_folder" "$scratch/set"
echo '{}' >"$scratch/set/schedules/new.json"
bash "$scratch/checkout/pack.sh" "$scratch/set"
cmp "$scratch/checkout/best_known.csv" "$sources/best_known.csv"
tar -C "$scratch/again" -xJf "$scratch/checkout/schedules.tar.xz"
diff -r "$scratch/again/schedules" "$scratch/set/schedules"
[ "$(find "$scratch/again" -name '*.json' | wc -l)" -gt 100 ] || fail "the set has few schedules"
status=0
bash "$scratch/checkout/pack.sh" "$scratch" 2>"$scratch/err" || status=$?
[ "$status" -eq 2 ] || fail "a folder that is no set ends with status $status"
grep -q "^usage: " "$scratch/err" || fail "no usage line"
