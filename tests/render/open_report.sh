#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# Opens reports of remat-plan in a headless browser, light and dark, presses the buttons of the charts, and fails on
# script errors.
#
#     open_report.sh PROGRAM DATA
#
# Skips, with status 77 and a line that says so, without REMAT_LONG, or where the program, its report or a browser is missing.
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

[ -n "${REMAT_LONG:-}" ] || skip "pages are opened for minutes; tests/long.sh does so"
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
  # A script of the test's own presses the buttons of each chart, and notes in the page what it saw.
  cat "$page" - > "$work/$name-pressed.html" << 'HTML'
<script>
const wrong = [];
let saved = [];
URL.createObjectURL = blob => { saved.push(blob); return '#'; };
HTMLAnchorElement.prototype.click = () => {};
const check = (what, holds) => { if (!holds) wrong.push(what); };
async function pressAll() {
  for (const canvas of document.querySelectorAll('canvas')) {
    const id = canvas.id, scale = () => Chart.getChart(id).scales.x, size = () => scale().max - scale().min;
    const press = title => [...canvas.closest('section').querySelectorAll('button')].find(b => b.title.startsWith(title)).click();
    const whole = size();
    press('Zoom in');
    check(id + ': zoom in', Math.abs(size() - whole / 2) < 1e-6 * whole);
    press('To the left');
    press('To the left');
    const left = scale().min;
    press('To the right');
    check(id + ': to the right', scale().min > left);
    if (id === 'memory') check('order moves with memory', Chart.getChart('order').scales.x.max < Chart.getChart('order').whole.x[1]);
    press('Zoom out');
    press('Show everything');
    check(id + ': whole', Math.abs(size() - whole) < 1e-6 * whole);
    saved = [];
    press('Download the numbers');
    const text = saved.length === 1 ? await saved[0].text() : '';
    check(id + ': CSV', text.split('\r\n').length > 2 && !text.includes('undefined') && !text.includes('NaN'));
    saved = [];
    press('Download this chart');
    for (let i = 0; i < 100 && !saved.length; ++i) await new Promise(done => setTimeout(done, 50));
    check(id + ': PNG', saved.length === 1 && saved[0].type === 'image/png' && saved[0].size > 1000);
    // Nothing leaves the canvas, not even the line that a curve bends to.
    const shown = Chart.getChart(id), area = shown.chartArea;
    if (id === 'frontier' || id === 'graph') for (const set of shown.data.datasets)
      for (const p of set.data) {
        if (Number.isNaN(p.x)) continue;
        const x = shown.scales.x.getPixelForValue(p.x), y = shown.scales.y.getPixelForValue(p.y);
        check(id + ': ' + set.label + ' leaves the canvas', x >= area.left - 1 && x <= area.right + 1 && y >= area.top - 1 && y <= area.bottom + 1);
      }
    if (id === 'frontier') {
      const data = JSON.parse(document.getElementById('report-data').textContent), none = data.budgets.filter(b => b.infeasible);
      const bound = shown.data.datasets.find(set => set.label === 'lower bound').data;
      check(id + ': no bound where nothing fits', bound.every(p => none.every(b => p.x > b.percent)));
      check(id + ': what is infeasible is marked', none.length === 0 || shown.data.datasets.some(set => set.label === 'proven: no schedule'));
      check(id + ': more than one dot', shown.data.datasets.reduce((n, set) => n + set.data.length, 0) > 1);
    }
    // Each dot, line and mark has its place, and a text for whoever points at it.
    const chart = Chart.getChart(id);
    chart.data.datasets.forEach((set, d) => {
      if (set.isAside || !set.data.length) return;
      chart.tooltip.setActiveElements([{ datasetIndex: d, index: 0 }], { x: 0, y: 0 });
      chart.update();
      const words = chart.tooltip.title.concat(...chart.tooltip.body.map(b => b.lines)).join(' ');
      check(id + ': words at ' + set.label + ': ' + words, words.length > 3 && !/undefined|NaN|null/.test(words));
    });
  }
  for (const select of document.querySelectorAll('select'))
    for (const option of [...select.options]) {
      select.value = option.value;
      select.dispatchEvent(new Event('change'));
    }
  for (const part of document.querySelectorAll('details')) part.open = true;
  for (const part of document.querySelectorAll('.message, .command')) {
    const box = part.getBoundingClientRect();
    check('not cut off: ' + part.textContent, box.width > 0 && box.right <= document.documentElement.clientWidth + 1);
  }
  for (const command of document.querySelectorAll('.command')) check('can be copied: ' + command.textContent, command.querySelector('button'));
  document.documentElement.dataset.pressed = wrong.length ? 'wrong: ' + wrong.join('; ') : 'well';
}
pressAll().catch(e => { document.documentElement.dataset.pressed = 'wrong: ' + e; });
</script>
HTML
  local width scheme
  for width in 400 1600; do
    scheme=$((width == 400 ? 0 : 1))  # 0 is dark
    local dom=$work/$name-$width.dom log=$work/$name-$width.log
    timeout 120 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
      --user-data-dir="$work/profile" --window-size=$width,1200 --virtual-time-budget=20000 \
      --blink-settings=preferredColorScheme=$scheme --enable-logging=stderr --v=0 --dump-dom \
      "file://$work/$name-pressed.html" > "$dom" 2> "$log" || fail "$name: the browser failed"
    grep -q 'data-report="ready"' "$dom" || fail "$name at $width: the script did not run to its end; $(grep CONSOLE "$log")"
    grep -q '<p id="script-errors" role="alert" hidden="">' "$dom" || fail "$name at $width: $(grep 'id="script-errors"' "$dom")"
    grep -q 'data-pressed="well"' "$dom" || fail "$name at $width: buttons: $(grep -o 'data-pressed="[^"]*"' "$dom")"
    if grep 'CONSOLE' "$log" >&2; then fail "$name at $width: the browser's console is not empty"; fi
    if grep -q 'data-injected' "$dom"; then fail "$name at $width: a name from the graph ran as a script"; fi
    if grep -q '<b id=' "$dom"; then fail "$name at $width: a name from the graph became an element"; fi
    # Chart.js gives every canvas that it draws on a size. A tag may be longer than a line.
    local canvases drawn
    canvases=$(tr '\n' ' ' < "$dom" | { grep -o '<canvas[^>]*>' || true; } | wc -l)
    drawn=$(tr '\n' ' ' < "$dom" | { grep -o '<canvas[^>]*width="[0-9]*"[^>]*>' || true; } | wc -l)
    [ "$canvases" -ge 1 ] && [ "$canvases" -eq "$drawn" ] || fail "$name at $width: $drawn of $canvases charts were drawn"
    echo "$name at $width: $drawn charts, no errors"
  done
}

open graph "$data/graphs/unet5-b16-256.json" --budget 0.9,0.6,0.4 --solver all --seconds 0.2
open nasty "$data/report/nasty-names.json" --budget 1.0,0.9,0.7,1B --solver all --seconds 0.2
open chain "$data/chains/homog-10.json" --budget 1.0,0.5,0.1 --solver all --seconds 0.2
open one "$data/graphs/unet5-b16-256.json" --budget 0.6 --solver evict
open arcs "$data/graphs/rk/gpt2-like-2l.json" --budget 0.6,0.1 --solver evict
open dual "$data/graphs/toy-skip-3.json" --max-overhead 0.5 --solver evict --seconds 0.2
open large "$data/graphs/gpt2-medium-b4-s512.json" --budget 0.8,0.6 --solver evict,chen_sqrt --seconds 0.2
open layers "$data/graphs/gpt2-small-b8-s1024.json" --budget 0.8,0.6 --solver evict
open none "$data/graphs/toy-skip-3.json" --budget 1B --solver evict
