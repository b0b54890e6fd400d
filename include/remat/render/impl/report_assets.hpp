// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <string_view>

#include "remat/core/detail/linkage.hpp"

namespace REMAT_NAMESPACE::detail::report_html {

/// The style sheet of a report.
inline constexpr std::string_view style = R"css(
:root { color-scheme: light dark; --ground: #ffffff; --panel: #f6f7f9; --ink: #1b1f24; --soft: #57606a; --line: #d5d9de;
  --link: #0b57a4; --yes: #0a6b3d; --no: #a3341f; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171b; --panel: #1d2126; --ink: #e8eaed; --soft: #a3abb5;
  --line: #383e46; --link: #7cb7ff; --yes: #62d39a; --no: #ff9b85; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 100rem; padding: 1rem clamp(0.75rem, 3vw, 2.5rem) 2rem; background: var(--ground);
  color: var(--ink); font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", "Noto Sans", sans-serif; }
h1 { font-size: clamp(1.3rem, 4vw, 1.9rem); line-height: 1.2; margin: 0.4rem 0; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 1.6rem 0 0.3rem; }
h3 { font-size: 1rem; margin: 1.2rem 0 0.4rem; }
p { margin: 0.3rem 0 0.7rem; }
a { color: var(--link); }
.lead, .note, footer, section > p { color: var(--soft); }
.note, footer { font-size: 0.875rem; }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(11.5rem, 1fr)); gap: 0.6rem 1.2rem; margin: 1rem 0 0; }
.facts .long { grid-column: 1 / -1; }
.facts dt { color: var(--soft); font-size: 0.8125rem; }
.facts dd { margin: 0; font-weight: 600; overflow-wrap: anywhere; }
.command { margin: 1rem 0 0; padding: 0.5rem 0.8rem; background: var(--panel); border: 1px solid var(--line);
  border-radius: 0.4rem; white-space: pre-wrap; overflow-wrap: anywhere; font-size: 0.8125rem; max-height: 12rem;
  overflow-y: auto; }
.command span { white-space: nowrap; }
.command button { float: right; margin: -0.15rem -0.4rem 0.2rem 0.6rem; background: var(--ground); }
section > p + .command { margin: -0.3rem 0 0.9rem; }
.charts { display: grid; grid-template-columns: minmax(0, 1fr); gap: 0 2rem; }
@media (min-width: 70rem) { .charts { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  .charts section { display: flex; flex-direction: column; } .charts section > p { min-height: 4.6em; }
  .charts .wide { grid-column: 1 / -1; } .charts .wide > p { min-height: 0; } }
.chart { position: relative; height: clamp(20rem, 55vh, 27rem); }
.chart canvas { max-width: 100%; touch-action: pan-y pinch-zoom; }
.mark { position: absolute; display: none; pointer-events: none; border: 1px solid var(--link); opacity: 0.9;
  background: color-mix(in srgb, var(--link) 15%, transparent); }
.tools { display: flex; flex-wrap: wrap; gap: 0.25rem; justify-content: flex-end; margin-bottom: 0.2rem; }
.tools .gap { width: 0.6rem; }
select, button { font: inherit; color: inherit; background: var(--panel); border: 1px solid var(--line);
  border-radius: 0.3rem; padding: 0.15rem 0.3rem; max-width: 100%; }
button { font-size: 0.8125rem; min-width: 2rem; padding: 0.15rem 0.5rem; cursor: pointer; }
button:hover { border-color: var(--soft); }
label { color: var(--ink); }
.scroll { overflow-x: auto; max-width: 100%; }
.wider { display: none; margin: 0 0 0.2rem; }
.wider.shown { display: block; }
.answer b, .answer span { white-space: nowrap; }
.answer { font-size: 1.0625rem; color: var(--ink) !important; }
table { border-collapse: separate; border-spacing: 0; width: 100%; font-size: 0.875rem; }
caption { text-align: left; color: var(--soft); padding: 0.3rem 0; overflow-wrap: anywhere; }
th, td { text-align: left; padding: 0.3rem 0.6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
thead th { font-weight: 600; color: var(--soft); vertical-align: bottom; }
tbody th { font-weight: 600; }
tbody th.solver { white-space: nowrap; }
tbody th.several { min-width: 9rem; }
.scroll[tabindex] tbody th, .scroll[tabindex] thead th:first-child { position: sticky; left: 0; background: var(--ground); }
tbody tr.next > * { border-top: 2px solid var(--soft); }
tr.best > * { background: color-mix(in srgb, var(--yes) 9%, var(--ground)) !important; }
td { font-variant-numeric: tabular-nums; }
.n { text-align: right; white-space: nowrap; }
thead .n { white-space: normal; }
.name { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-weight: 400; font-size: 0.8125rem;
  overflow-wrap: anywhere; min-width: 8rem; }
.pairs thead [colspan] { border-bottom: 0; padding-bottom: 0; }
.scroll[tabindex] { container-type: inline-size; }
tr:has(+ .remarks) > * { border-bottom: 0; padding-bottom: 0.1rem; }
.remarks > td { padding-top: 0; }
.remarks div { position: sticky; left: 0.6rem; max-width: calc(100vw - 3.5rem); max-width: calc(100cqi - 1.2rem);
  overflow-wrap: anywhere; color: var(--soft); }
.remarks div { display: flex; flex-wrap: wrap; gap: 0 1.2rem; align-items: baseline; font-size: 0.8125rem; }
.remarks p { margin: 0; }
.remarks .message, .run[open] { flex-basis: 100%; }
.remarks .message { font-size: 0.875rem; }
.run, .run[open] { background: none; border: 0; margin: 0; padding: 0; }
.run > summary { padding: 0.1rem 0; }
.run > .command { margin: 0.2rem 0 0.4rem; }
.status { white-space: nowrap; }
.yes { color: var(--yes); }
.no { color: var(--no); }
details { background: var(--panel); border: 1px solid var(--line); border-radius: 0.4rem; margin: 0.4rem 0; padding: 0 0.8rem; }
details table th, details caption { background: transparent; }
summary { cursor: pointer; padding: 0.45rem 0; }
.tables { display: grid; grid-template-columns: minmax(0, 1fr); gap: 0 2rem; padding-bottom: 0.8rem; }
@media (min-width: 70rem) { .tables { grid-template-columns: minmax(0, 1.2fr) minmax(0, 1fr) minmax(0, 1fr); } }
.group { background: none; border-width: 0 0 0 2px; border-radius: 0; margin: 0 0 0 0.2rem; padding: 0 0 0 0.8rem; }
.group > summary { padding: 0.15rem 0; }
.group > p, .group > div { margin: 0; font-size: 0.875rem; color: var(--soft); overflow-wrap: anywhere; }
.group .of { color: var(--soft); font-size: 0.875rem; }
.group > div { padding: 0.15rem 0 0.15rem 1rem; }
@media (max-width: 60rem) { table { font-size: 0.78125rem; } th, td { padding: 0.3rem 0.25rem; } }
@media (max-width: 30rem) { th, td { padding: 0.3rem; } details { padding: 0 0.5rem; } .name { min-width: 6rem; } }
#script-errors { color: var(--no); }
@media print { details { break-inside: avoid; } .tools, .command button { display: none; } }
)css";

/// The script of a report: it draws the charts from the JSON in the element `report-data`.
inline constexpr std::string_view script = R"js(
'use strict';
(function () {
  const data = JSON.parse(document.getElementById('report-data').textContent);
  const graph = data.graph;
  const byId = id => document.getElementById(id);
  const dark = window.matchMedia('(prefers-color-scheme: dark)');
  const hues = [
    ['#0b63b5', '#6db3ff'], ['#c2410c', '#ff9a5c'], ['#0a7d55', '#4fd1a0'], ['#9c2f85', '#f08cd8'],
    ['#8a6100', '#f0c14b'], ['#5b3fbf', '#b4a0ff'], ['#007a8a', '#4dd0e1'], ['#8c1d2f', '#ff8296'],
    ['#6b4f3a', '#d2b48c'], ['#5a7300', '#b8d63c'], ['#d6336c', '#ffb3d1'], ['#44546a', '#b9c7d9']];
  const marks = ['circle', 'rect', 'triangle', 'rectRot', 'star', 'crossRot', 'cross'];
  const hue = i => hues[i % hues.length][dark.matches ? 1 : 0];
  const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // ---- words ----
  const bytesText = b => {
    let unit = 0;
    for (; Math.abs(b) >= 1023.5 && unit < 6; ++unit) b /= 1024;
    return (unit === 0 || b >= 100 ? b.toFixed(0) : b.toPrecision(3)) + ' ' + ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'][unit];
  };
  const numberText = x => Math.abs(x) >= 1e4 && Math.abs(x) < 1e7 ? x.toFixed(0) : String(Number(x.toPrecision(4)));
  const timeText = x => numberText(x) + (data.timeUnit ? ' ' + data.timeUnit : '');
  const memoryText = x => bytesText(x * data.byteScale);
  const nameOf = o => graph ? graph.names[graph.name[o]] : 'operation';
  const operationText = o => '#' + o + ' ' + nameOf(o);
  const kindText = { f: 'forward', l: 'loss', b: 'backward', x: 'not needed' };
  const fit = (text, chart) => {
    const half = Math.max(12, Math.floor(chart.width / 20));
    return text.length <= 2 * half ? text : text.slice(0, half) + '…' + text.slice(1 - half);
  };

  // ---- one chart ----
  const charts = {};
  const axis = (text, more) => Object.assign({
    type: 'linear',
    title: { display: true, text: text, color: css('--soft') },
    ticks: { color: css('--soft'), maxRotation: 0, autoSkipPadding: 12, includeBounds: false },
    grid: { color: css('--line'), borderColor: css('--line') } }, more);
  const line = (label, color, points, more) => Object.assign({
    label: label, data: points, borderColor: color, backgroundColor: color, borderWidth: 1.5, pointStyle: 'line',
    pointRadius: 0, pointHoverRadius: 4, clip: 9 }, more);  // what lies on the frame is not cut
  const dots = (label, color, points, more) => line(label, color, points, Object.assign({
    showLine: false, pointStyle: 'circle', pointRadius: 2.5, pointHoverRadius: 5 }, more));
  const aside = { isAside: true, pointRadius: 0, pointHoverRadius: 0, pointHitRadius: 0 };  // no tooltip

  // Draws a chart anew. rows() gives the table for its CSV: the titles, then the rows.
  function draw(id, lines, x, y, tooltip, rows, more) {
    const before = charts[id];
    const hidden = before ? before.data.datasets.filter((set, i) => !before.isDatasetVisible(i)).map(set => set.label) : [];
    if (before) before.destroy();
    lines.forEach(set => { set.hidden = hidden.includes(set.label); });
    const chart = charts[id] = new Chart(byId(id), {
      type: 'line', data: { datasets: lines },
      plugins: (more && more.plugins) || [],
      options: {
        animation: false, maintainAspectRatio: false, normalized: !(more && more.unsorted), parsing: more && more.unsorted ? {} : false,
        interaction: Object.assign({ mode: 'nearest', intersect: false }, more && more.interaction),
        plugins: {
          legend: { position: 'bottom', labels: { color: css('--ink'), usePointStyle: true, boxHeight: 7 } },
          tooltip: { filter: item => !item.dataset.isAside, callbacks: tooltip, itemSort: more && more.itemSort,
            backgroundColor: css('--panel'), borderColor: css('--soft'), borderWidth: 1, titleColor: css('--ink'), bodyColor: css('--ink') } },
        scales: { x: x, y: y } } });
    chart.rows = rows;
    chart.whole = { x: [chart.scales.x.min, chart.scales.x.max], y: [chart.scales.y.min, chart.scales.y.max] };
  }

  // ---- zoom: by buttons, or by dragging over the part to see; charts over time move together ----
  const overTime = ['memory', 'order'];
  function show(id, x, y) {
    for (const other of overTime.includes(id) ? overTime : [id]) {
      const chart = charts[other];
      if (!chart) continue;
      const set = (name, range) => {
        chart.options.scales[name].min = range[0];
        chart.options.scales[name].max = range[1];
      };
      if (x) set('x', x); else if (!y) set('x', chart.whole.x);
      if (y && other === id) set('y', y); else if (!x && !y) set('y', chart.whole.y);
      chart.update();
    }
  }
  function move(id, factor, shift) {
    const chart = charts[id], scale = chart.scales.x, whole = chart.whole.x;
    const size = Math.min((scale.max - scale.min) * factor, whole[1] - whole[0]);
    const from = (scale.min + scale.max - size) / 2 + shift * size;
    const begin = Math.min(Math.max(from, whole[0]), whole[1] - size);
    show(id, [begin, begin + size]);
  }
  function watchDrags(id) {
    const canvas = byId(id), mark = document.createElement('div');
    mark.className = 'mark';
    canvas.parentNode.append(mark);
    let from = null, box = null;
    const place = event => {
      const r = canvas.getBoundingClientRect(), area = charts[id].chartArea;
      const x = event.clientX - r.left, y = event.clientY - r.top;
      return { x: Math.min(Math.max(x, area.left), area.right), y: Math.min(Math.max(y, area.top), area.bottom),
        inside: x >= area.left && x <= area.right && y >= area.top && y <= area.bottom };
    };
    const end = () => { from = box = null; mark.style.display = 'none'; };
    canvas.addEventListener('pointerdown', event => {
      const at = place(event);
      if (event.button !== 0 || !at.inside) return;
      from = at;
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener('pointermove', event => {
      if (!from) return;
      const to = place(event), area = charts[id].chartArea;
      const wide = Math.abs(to.x - from.x) >= 8, tall = Math.abs(to.y - from.y) >= 24;
      box = { wide: wide, tall: tall, left: wide ? Math.min(from.x, to.x) : area.left, right: wide ? Math.max(from.x, to.x) : area.right,
        top: tall ? Math.min(from.y, to.y) : area.top, bottom: tall ? Math.max(from.y, to.y) : area.bottom };
      mark.style.display = wide || tall ? 'block' : 'none';
      mark.style.left = box.left + 'px';
      mark.style.top = box.top + 'px';
      mark.style.width = box.right - box.left + 'px';
      mark.style.height = box.bottom - box.top + 'px';
    });
    canvas.addEventListener('pointerup', () => {
      const scales = charts[id].scales;
      if (box && (box.wide || box.tall))
        show(id, box.wide && [scales.x.getValueForPixel(box.left), scales.x.getValueForPixel(box.right)],
          box.tall && [scales.y.getValueForPixel(box.bottom), scales.y.getValueForPixel(box.top)]);
      end();
    });
    canvas.addEventListener('pointercancel', end);
    canvas.addEventListener('dblclick', () => show(id));
  }

  // ---- downloads ----
  function save(id, ending, blob) {
    const link = document.createElement('a');
    link.href = URL.createObjectURL(blob);
    link.download = (data.name.replace(/[^\w.-]+/g, '-').slice(0, 80) || 'report') + '-' + id + '.' + ending;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  }
  function saveCsv(id) {
    const cell = value => {
      let text = value === null || value === undefined ? '' : String(value);
      if (typeof value === 'string' && /^[=+@\t\r-]/.test(text)) text = "'" + text;  // no formula for spreadsheets
      return /[",\r\n]/.test(text) ? '"' + text.replace(/"/g, '""') + '"' : text;
    };
    const text = charts[id].rows().map(row => row.map(cell).join(',')).join('\r\n') + '\r\n';
    save(id, 'csv', new Blob([text], { type: 'text/csv;charset=utf-8' }));
  }
  function savePng(id) {
    const from = charts[id].canvas, to = document.createElement('canvas');
    to.width = from.width;
    to.height = from.height;
    const pen = to.getContext('2d');
    pen.fillStyle = css('--ground');
    pen.fillRect(0, 0, to.width, to.height);
    pen.drawImage(from, 0, 0);
    to.toBlob(blob => save(id, 'png', blob));
  }
  function addTools(id) {
    const bar = document.createElement('div');
    bar.className = 'tools';
    const button = (text, title, act) => {
      const b = document.createElement('button');
      b.type = 'button';
      b.textContent = text;
      b.title = title;
      b.setAttribute('aria-label', title);
      b.addEventListener('click', act);
      bar.append(b);
    };
    button('−', 'Zoom out', () => move(id, 2, 0));
    button('+', 'Zoom in; or drag over the part to see', () => move(id, 0.5, 0));
    button('‹', 'To the left', () => move(id, 1, -0.5));
    button('›', 'To the right', () => move(id, 1, 0.5));
    button('Whole', 'Show everything; or double-click the chart', () => show(id));
    bar.append(Object.assign(document.createElement('span'), { className: 'gap' }));
    button('CSV', 'Download the numbers of this chart', () => saveCsv(id));
    button('PNG', 'Download this chart as a picture', () => savePng(id));
    byId(id).parentNode.before(bar);
  }

  // ---- the choice of budget and schedule ----
  const pointsOf = flat => {
    const points = [];
    for (let i = 0; i < flat.length; i += 4) points.push({ x: flat[i], y: flat[i + 1], operation: flat[i + 2], run: flat[i + 3] });
    return points;
  };
  const pairsOf = flat => {
    const map = new Map();
    for (let i = 0; i < flat.length; i += 2) map.set(flat[i], flat[i + 1]);
    return map;
  };
  const budgetNow = () => Number(byId('budget').value);
  const solvesNow = () => data.solves.filter(s => s.budget === budgetNow() && s.memory.length);
  const chosen = () => byId('solver') && solvesNow().find(s => s.solver === Number(byId('solver').value));
  function fillSolvers() {
    const select = byId('solver'), before = select.value, solves = solvesNow();
    select.replaceChildren(...solves.map(s => new Option(data.solvers[s.solver], s.solver)));
    const fastest = solves.reduce((a, b) => b.overhead < a.overhead ? b : a, solves[0]);
    const front = solves.find(s => s.solver === data.front);
    select.value = solves.some(s => String(s.solver) === before) ? before : String((front || fastest || { solver: '' }).solver);
  }

  // ---- the charts ----
  const inFront = i => i === data.front;
  function drawFrontier() {
    if (!byId('frontier')) return;
    const pointsOfSolver = i => data.solves.filter(s => s.solver === i && s.overhead !== null)
      .map(s => ({ x: data.budgets[s.budget].percent, y: s.overhead, text: s.text, budget: data.budgets[s.budget].text,
        peak: s.peakPercent }))
      .sort((a, b) => a.x - b.x);
    const single = data.budgets.length === 1;
    // A schedule serves all budgets from its peak on: shown where there is no other budget.
    const fromPeak = p => p.peak !== null && p.peak < p.x ? [Object.assign({}, p, { x: p.peak, budget: 'as small as its peak' }), p] : [p];
    const lines = data.solvers.map((name, i) => line(name, hue(i), single ? pointsOfSolver(i).flatMap(fromPeak) : pointsOfSolver(i), {
      order: inFront(i) ? -1 : i, borderWidth: inFront(i) ? 3.5 : 1.5, pointStyle: marks[i % marks.length],
      pointRadius: inFront(i) ? 5 : 4.5, pointHoverRadius: 7, pointBorderWidth: 2 })).filter(set => set.data.length);
    const bound = data.budgets.filter(b => b.bound !== null)
      .map(b => ({ x: b.percent, y: b.bound, text: 'proven: at least ' + b.bound.toFixed(2) + ' %', budget: b.text }));
    lines.push(line('lower bound', css('--ink'), bound.sort((a, b) => a.x - b.x),
      { order: -2, borderDash: [6, 4], pointHoverRadius: 5, pointRadius: bound.length === 1 ? 9 : 0, pointBorderWidth: 2 }));
    if (data.baselineText !== null && data.solves.length)
      lines.push(dots('baseline', css('--soft'), [{ x: 100, y: 0, text: data.baselineText, budget: '100 %' }],
        { order: 100, pointStyle: 'rectRounded', pointRadius: 4 }));
    const percents = lines.flatMap(set => set.data.map(p => p.x)), lowest = Math.min(...percents);
    const none = data.budgets.filter(b => b.infeasible);
    if (none.length)
      lines.push(dots('proven: no schedule', css('--no'), none.map(b => ({ x: b.percent, y: 0, text: 'proven: no schedule', budget: b.text }))
        .sort((a, b) => a.x - b.x), { order: 99, pointStyle: 'crossRot', pointRadius: 5, pointBorderWidth: 2 }));
    const isNear = x => !percents.length || x >= lowest - Math.max(10, 1.5 * (Math.max(...percents) - lowest));
    const edge = Math.max(...none.map(b => b.percent), data.least && isNear(data.least) ? data.least : -Infinity);
    if (edge > -Infinity) {
      const top = Math.max(1, ...lines.flatMap(set => set.data.map(p => p.y)));
      lines.push(line('no schedule to the left', css('--no'), [{ x: edge, y: 0 }, { x: edge, y: top }],
        Object.assign({ order: 101, borderWidth: 1, borderDash: [2, 3] }, aside)));
    }
    const shade = { id: 'shade', beforeDatasetsDraw: chart => {
      const area = chart.chartArea, pen = chart.ctx, right = Math.min(chart.scales.x.getPixelForValue(edge), area.right);
      if (!(right > area.left)) return;
      pen.save();
      pen.globalAlpha = 0.1;
      pen.fillStyle = css('--no');
      pen.fillRect(area.left, area.top, right - area.left, area.bottom - area.top);
      pen.restore();
    } };
    draw('frontier', lines, axis('Budget (% of the baseline peak)', { grace: '4%' }), axis('Overhead (%)', { beginAtZero: true }), {
      title: items => items.length ? 'Budget ' + items[0].raw.budget : '',
      label: item => item.raw.text
    }, () => [['solver', 'budget_bytes', 'budget_percent', 'status', 'peak_bytes', 'time', 'overhead_percent', 'lower_bound_percent',
      'recomputes', 'seconds']].concat(data.solves.map(s => [data.solvers[s.solver], data.budgets[s.budget].exact,
      data.budgets[s.budget].percent, s.status, s.peak, s.time, s.overhead, s.bound, s.recomputes, s.seconds])),
    { interaction: { axis: 'x' }, itemSort: (a, b) => a.parsed.y - b.parsed.y, plugins: [shade] });
  }

  function drawMemory() {
    const solves = solvesNow();
    const lines = solves.map(s => line(data.solvers[s.solver], hue(s.solver), pointsOf(s.memory), {
      order: inFront(s.solver) ? -1 : s.solver, borderWidth: inFront(s.solver) ? 2.5 : 1.2, stepped: true }));
    if (data.baseline.length)
      lines.push(line('baseline, no budget', css('--soft'), pointsOf(data.baseline), { order: 100, borderWidth: 1, stepped: true }));
    const curves = lines.slice();
    const end = Math.max(0, ...lines.map(set => set.data[set.data.length - 1].x));
    const limit = data.budgets[budgetNow()].bytes;
    lines.push(line('budget', css('--no'), [{ x: 0, y: limit }, { x: end, y: limit }],
      Object.assign({ order: -2, borderDash: [8, 4], borderWidth: 2 }, aside)));
    draw('memory', lines, axis(data.timeName, { min: 0, max: end }), axis('Memory (' + data.byteUnit + ')', { min: 0, grace: '3%' }), {
      title: items => items.length ? 'at ' + timeText(items[0].parsed.x) : '',
      label: item => {
        const p = item.raw, about = [item.dataset.label + ': ' + memoryText(p.y)];
        if (p.operation >= 0) about.push(fit(operationText(p.operation), item.chart) + (p.run > 1 ? ', run ' + p.run : ''));
        return about;
      }
    }, () => [['solver', 'time (' + (data.timeUnit || 'model') + ')', 'memory (' + data.byteUnit + ')', 'operation', 'name', 'run']].concat(
      ...curves.map(set => set.data.map(p => [set.label, p.x, p.y, p.operation < 0 ? null : p.operation,
        p.operation < 0 ? null : nameOf(p.operation), p.run || null]))));
  }

  function drawOrder() {
    const s = chosen();
    if (!s) return;
    const runs = pairsOf(s.reruns), points = pointsOf(s.memory);
    const end = points[points.length - 1].x, last = points.reduce((most, p) => Math.max(most, p.operation), 0);
    const all = points.filter(p => p.operation >= 0).map(p => ({ x: p.x, y: p.operation, run: p.run, memory: p.y }));
    const kind = p => p.run > 1 ? 'again' : graph ? graph.kind[p.y].replace('l', 'f') : 'f';
    const of = which => all.filter(p => kind(p) === which);
    const lines = [dots('forward', hue(0), of('f')), dots('backward', hue(2), of('b')),
      dots('runs again', hue(1), of('again'), { order: -1, pointRadius: 3.5, pointStyle: 'rectRot' }),
      line('in this order', css('--line'), all, Object.assign({ order: 100, borderWidth: 1 }, aside))];
    if (s.turn !== null)
      lines.push(line('backward begins', css('--no'), [{ x: s.turn, y: 0 }, { x: s.turn, y: last }],
        Object.assign({ order: 99, borderDash: [2, 3], borderWidth: 1 }, aside)));
    draw('order', lines, axis(data.timeName, { min: 0, max: end }), axis('Operation', { min: 0, suggestedMax: last }), {
      title: items => items.length ? fit(operationText(items[0].raw.y), items[0].chart) : '',
      label: item => {
        const p = item.raw, count = runs.get(p.y);
        return [(graph ? kindText[graph.kind[p.y]] + ', ' : '') + (count ? 'run ' + p.run + ' of ' + count : p.run > 1 ? 'run ' + p.run : 'runs once'),
          'at ' + timeText(p.x) + (graph ? ', takes ' + timeText(graph.time[p.y]) : '') + ', memory ' + memoryText(p.memory)];
      }
    }, () => [['time (' + (data.timeUnit || 'model') + ')', 'operation', 'name', 'phase', 'run', 'memory (' + data.byteUnit + ')']].concat(
      all.map(p => [p.x, p.y, nameOf(p.y), graph ? kindText[graph.kind[p.y]] : null, p.run, p.memory])));
    const scale = charts.memory.scales.x;
    if (scale.min !== charts.memory.whole.x[0] || scale.max !== charts.memory.whole.x[1]) show('order', [scale.min, scale.max]);
  }

  function drawLayers() {
    const s = chosen();
    if (!s || !byId('layers')) return;
    const runs = pairsOf(s.reruns), kept = pairsOf(s.kept);
    const rows = graph.layers.map((name, i) => ({ x: i, name: name, made: 0, kept: 0, again: 0 }));
    graph.layer.forEach((l, o) => {
      if (graph.kind[o] === 'f' || graph.kind[o] === 'l') rows[l].made += graph.bytes[o] / data.byteScale;
      rows[l].kept += kept.get(o) || 0;
      if (runs.has(o)) rows[l].again += graph.time[o] * (runs.get(o) - 1);
    });
    const bars = (label, color, height, more) => Object.assign({ type: 'bar', label: label, backgroundColor: color, borderColor: color,
      borderWidth: 1, pointStyle: 'rect', barPercentage: 0.9, categoryPercentage: 1, stack: 'layer',
      data: rows.map(r => Object.assign({ y: height(r) }, r)) }, more);
    const shortest = full => cut(full.replace(/(^|: )operations? /, '$1#').replace(' to ', '–'));
    const cut = text => text.length <= 16 ? text : '…' + text.slice(-15);
    const lines = [bars('kept for backward', hue(0), r => r.kept),
      bars('made, not kept', css('--panel'), r => Math.max(r.made - r.kept, 0), { borderColor: hue(0) })];
    draw('layers', lines, axis('', { min: -0.5, max: rows.length - 0.5, stacked: true, grid: { display: false },
      ticks: { color: css('--soft'), autoSkip: true, maxRotation: 60, stepSize: 1, precision: 0, includeBounds: false,
        callback: value => Number.isInteger(value) && rows[value] ? shortest(rows[value].name) : '' } }),
    axis('Memory (' + data.byteUnit + ')', { min: 0, stacked: true }), {
      title: items => items.length ? fit(items[0].raw.name, items[0].chart) : '',
      label: item => item.dataset.label + ': ' + memoryText(item.raw.y) +
        (item.raw.again ? ', runs again for ' + timeText(item.raw.again) : '')
    }, () => [['layer', 'made (' + data.byteUnit + ')', 'kept (' + data.byteUnit + ')', 'again (' + (data.timeUnit || 'model') + ')']].concat(
      rows.map(r => [r.name, r.made, r.kept, r.again])), { interaction: { mode: 'index' }, unsorted: true });
  }

  function drawGraph() {
    if (!byId('graph')) return;
    const s = chosen(), runs = s ? pairsOf(s.reruns) : new Map(), kept = s ? pairsOf(s.kept) : new Map();
    const nodes = [];
    for (let i = 0; i < graph.nodes.length; i += 4)
      nodes.push({ x: graph.nodes[i], y: graph.nodes[i + 1], first: graph.nodes[i + 2], count: graph.nodes[i + 3],
        label: graph.labels[i / 4], time: 0, bytes: 0, again: 0, kept: 0 });
    graph.node.forEach((n, o) => {
      if (n < 0) return;
      nodes[n].time += graph.time[o];
      nodes[n].bytes += graph.bytes[o];
      if (runs.has(o)) ++nodes[n].again;
      if (kept.has(o)) nodes[n].kept += kept.get(o);
    });
    const kind = p => graph.kind[p.first];
    // As large as the columns allow, so that circles grow when a part is shown larger.
    const radius = chart => Math.min(Math.max(0.4 * (chart.scales.x ? chart.scales.x.getPixelForValue(1) - chart.scales.x.getPixelForValue(0) : 3), 1.5), 7);
    const rows = [Math.min(...nodes.map(p => p.y)), Math.max(...nodes.map(p => p.y))], right = Math.max(...nodes.map(p => p.x));
    const inner = [], across = [], gap = { x: NaN, y: NaN };
    let top = rows[1], bottom = rows[0];
    for (let i = 0; i < graph.edges.length; i += 2) {
      const a = nodes[graph.edges[i]], b = nodes[graph.edges[i + 1]], far = Math.abs(a.x - b.x);
      const to = kind(a) !== 'b' && kind(b) === 'b' ? across : inner;
      to.push({ x: a.x, y: a.y });
      if (a.y === b.y && far > 1.5) {  // what passes over other nodes goes round them
        const bend = Math.min(0.5 + far * 0.15, 3) * (kind(a) === 'b' ? -1 : 1);
        top = Math.max(top, a.y + bend);
        bottom = Math.min(bottom, a.y + bend);
        to.push({ x: (a.x + b.x) / 2, y: a.y + bend });
      } else if (a.x === b.x && Math.abs(a.y - b.y) > 1.5 && to === inner) {
        to.push({ x: a.x + 0.3, y: (a.y + b.y) / 2 });
      }
      to.push({ x: b.x, y: b.y }, gap);
    }
    const circle = (label, color, points, more) => dots(label, color, points, Object.assign({
      pointRadius: c => radius(c.chart), pointHoverRadius: c => radius(c.chart) + 2 }, more));
    const hollow = { pointBackgroundColor: css('--ground'), pointBorderWidth: 1.5 };
    const of = which => nodes.filter(p => kind(p) === which);
    const lines = [
      circle('forward, kept for backward', hue(0), of('f').filter(p => p.kept)),
      circle('forward, not kept', hue(0), of('f').filter(p => !p.kept), hollow),
      circle('loss', hue(3), of('l')), circle('backward', hue(2), of('b')),
      dots('runs again', hue(1), nodes.filter(p => p.again), Object.assign({}, aside, {
        pointRadius: c => radius(c.chart) + 2, pointBackgroundColor: 'transparent', pointBorderWidth: 2, order: 1 })),
      line('data', css('--soft'), inner, Object.assign({ order: 98, tension: 0.4, borderWidth: 1 }, aside)),
      line('data from forward to backward', hue(4), across, Object.assign({ order: 99, borderWidth: 0.7 }, aside))];
    // A name is cut to its column, stands on a ground of its own, and is left out where another name or circle is.
    const short = p => p.count > 1 ? p.label.replace(/^.*operations? /, '').replace(' to ', '–') : nameOf(p.first).replace(/^[\w.]+: /, '').replace(/ \(.*\)$/, '').replace(/^aten\./, '').replace(/\.default$/, '');
    const names = { id: 'names', afterDatasetsDraw: chart => {
      const step = chart.scales.x.getPixelForValue(1) - chart.scales.x.getPixelForValue(0), pen = chart.ctx, area = chart.chartArea;
      const lines = chart.scales.y.getPixelForValue(0) - chart.scales.y.getPixelForValue(1), size = radius(chart);
      if (step < 56 || lines < 2 * size + 6) return;
      const circles = nodes.map(p => ({ x: chart.scales.x.getPixelForValue(p.x), y: chart.scales.y.getPixelForValue(p.y) }));
      const placed = [];
      const isFree = (x, y, half) => placed.every(b => Math.abs(b.x - x) >= b.half + half + 4 || Math.abs(b.y - y) >= 12) &&
        circles.every(c => Math.abs(c.x - x) >= half + size || c.y <= y - 10 - size || c.y >= y + 2 + size);
      pen.save();
      pen.beginPath();
      pen.rect(area.left, area.top, area.right - area.left, area.bottom - area.top);
      pen.clip();
      pen.fillStyle = css('--ink');
      pen.strokeStyle = css('--ground');
      pen.lineWidth = 3;
      pen.lineJoin = 'round';
      pen.font = '11px sans-serif';
      pen.textAlign = 'center';
      nodes.forEach((p, i) => {
        let text = short(p);
        const fits = () => pen.measureText(text).width <= step - 8;
        if (!fits()) {
          do text = text.slice(0, -1); while (text.length > 3 && !(pen.measureText(text + '…').width <= step - 8));
          text += '…';
        }
        const half = pen.measureText(text).width / 2, x = circles[i].x;
        const y = [circles[i].y - size - 7, circles[i].y + size + 14].find(at => isFree(x, at, half));
        if (y === undefined) return;
        placed.push({ x: x, y: y, half: half });
        pen.strokeText(text, x, y);
        pen.fillText(text, x, y);
      });
      pen.restore();
    } };
    draw('graph', lines, { type: 'linear', display: false, min: -0.6, max: right + 0.6 },
      { type: 'linear', display: false, min: bottom - 1.1, max: top + 0.8 }, {
        title: items => items.length ? fit(items[0].raw.count > 1 ? items[0].raw.label : operationText(items[0].raw.first), items[0].chart) : '',
        label: item => {
          const p = item.raw, about = [kindText[kind(p)] + (p.count > 1 ? ', ' + p.count + ' operations' : '') + ', takes ' + timeText(p.time) +
            ', makes ' + bytesText(p.bytes)];
          if (p.kept) about.push('kept for backward: ' + memoryText(p.kept));
          if (p.again) about.push(p.count > 1 ? p.again + ' operations run again' : 'runs ' + runs.get(p.first) + ' times');
          return about;
        }
      }, () => [['operation', 'name', 'phase', 'time (' + (data.timeUnit || 'model') + ')', 'bytes made', 'runs', 'kept (' + data.byteUnit + ')']].concat(
        graph.name.map((n, o) => [o, nameOf(o), kindText[graph.kind[o]], graph.time[o], graph.bytes[o],
          s ? graph.kind[o] === 'x' ? null : runs.get(o) || 1 : null, kept.get(o) || 0])),
      { plugins: [names], unsorted: true });
  }

  // ---- commands ----
  for (const command of document.querySelectorAll('.command')) {
    const button = document.createElement('button'), code = command.querySelector('code');
    button.type = 'button';
    button.textContent = 'Copy';
    button.title = 'Copy this command';
    button.addEventListener('click', async () => {
      getSelection().selectAllChildren(code);  // for whoever has to copy it by hand
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = 'Copied';
      } catch (e) {
        button.textContent = document.execCommand('copy') ? 'Copied' : 'Selected';
      }
      setTimeout(() => { button.textContent = 'Copy'; }, 2000);
    });
    command.prepend(button);
  }

  // ---- tables that are wider than the window say so ----
  const wideTables = [...document.querySelectorAll('.scroll')].map(box => {
    const note = document.createElement('p');
    note.className = 'note wider';
    note.textContent = 'The table goes on to the right: scroll it sideways. →';
    box.before(note);
    return () => note.classList.toggle('shown', box.scrollWidth > box.clientWidth + 1);
  });
  const noteWideTables = () => wideTables.forEach(look => look());
  window.addEventListener('resize', noteWideTables);
  document.addEventListener('toggle', noteWideTables, true);
  noteWideTables();

  // ---- together ----
  const select = byId('budget');
  const drawSchedule = () => { drawOrder(); drawLayers(); drawGraph(); };
  const drawBudget = () => { fillSolvers(); drawMemory(); drawSchedule(); };
  const drawAll = () => {
    drawFrontier();
    if (select) drawBudget(); else drawGraph();
  };
  if (select) {
    // Begin with the budget that most solvers meet; of several, with the smallest.
    const met = data.budgets.map((b, i) => data.solves.filter(s => s.budget === i && s.memory.length).length);
    select.value = String(met.lastIndexOf(Math.max(...met)));
    select.addEventListener('change', drawBudget);
    byId('solver').addEventListener('change', drawSchedule);
  }
  drawAll();
  for (const id of Object.keys(charts)) { addTools(id); watchDrags(id); }
  dark.addEventListener('change', drawAll);
  document.documentElement.dataset.report = 'ready';
})();
)js";

}  // namespace REMAT_NAMESPACE::detail::report_html
