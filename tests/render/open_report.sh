#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# Opens reports of remat-plan in a headless browser and fails on script errors.
#
#     open_report.sh PROGRAM DATA
#
# Skips, with status 77 and a line that says so, where the program, its report or a browser is missing.
set -euo pipefail

program=$1
data=$2

skip() {
  echo "skipped: $1"
  exit 77
}
fail() {
  echo "FAILED: $1" >&2
  exit 1
}

[ -x "$program" ] || skip "$program is not built"
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
[ -n "$browser" ] || skip "no Chromium (Debian: chromium)"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# open NAME GRAPH ARGUMENT…: makes a report, opens it at two widths, looks at what the page became.
open() {
  local name=$1 graph=$2
  shift 2
  local page=$work/$name.html status=0
  "$program" "$graph" --report "$page" "$@" > "$work/$name.txt" 2> "$work/$name.err" || status=$?
  if grep -q 'built without' "$work/$name.err"; then skip "the program was built without the report"; fi
  [ "$status" -le 1 ] || fail "$name: the program ended with $status: $(cat "$work/$name.err")"
  [ -s "$page" ] || fail "$name: there is no report"
  local width
  for width in 400 1600; do
    local dom=$work/$name-$width.dom log=$work/$name-$width.log
    timeout 120 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
      --user-data-dir="$work/profile" --window-size=$width,1200 --virtual-time-budget=5000 \
      --enable-logging=stderr --v=0 --dump-dom "file://$page" > "$dom" 2> "$log" || fail "$name: the browser failed"
    grep -q 'data-report="ready"' "$dom" || fail "$name at $width: the script did not run to its end; $(grep CONSOLE "$log")"
    grep -q '<p id="script-errors" role="alert" hidden="">' "$dom" || fail "$name at $width: $(grep 'id="script-errors"' "$dom")"
    if grep 'CONSOLE' "$log" >&2; then fail "$name at $width: the browser's console is not empty"; fi
    if grep -q 'data-injected' "$dom"; then fail "$name at $width: a name from the graph ran as a script"; fi
    if grep -q '<b id=' "$dom"; then fail "$name at $width: a name from the graph became an element"; fi
    # Chart.js gives every canvas that it draws on a size.
    local canvases drawn
    canvases=$(grep -o '<canvas[^>]*>' "$dom" | wc -l)
    drawn=$(grep -o '<canvas[^>]*width="[0-9]*"[^>]*>' "$dom" | wc -l)
    [ "$canvases" -ge 1 ] && [ "$canvases" -eq "$drawn" ] || fail "$name at $width: $drawn of $canvases charts were drawn"
    echo "$name at $width: $drawn charts, no errors"
  done
}

open graph "$data/graphs/unet5-b16-256.json" --budget 0.9,0.6,0.4 --solver all --seconds 0.2
open nasty "$data/report/nasty-names.json" --budget 1.0,0.9,0.7,1B --solver all --seconds 0.2
open chain "$data/chains/homog-10.json" --budget 1.0,0.5,0.1 --solver all --seconds 0.2
open dual "$data/graphs/toy-skip-3.json" --max-overhead 0.5 --solver evict --seconds 0.2
