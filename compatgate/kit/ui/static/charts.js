// Charts, drawn by uPlot from the table beside each; the pages that have one load this.
"use strict";

/* figure[data-chart]: line, band, steps, bars or stacked. The table has x in its first column, y in those with
   data-value: of a band y, low, high and more lines. data-x says what x is: "time" in seconds, "rows" the place of a
   row, whose first cell names it, else a number. A row may have a shape at its y (data-mark, data-tone) and a name
   above a line before it (data-name). What the pointer is on is said in words, and a click follows the row's link. */
const DAY = 86400;
const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 1e6, 1e7];

function resolved(name) {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}
const isoOf = (at) => new Date(at * 1000).toISOString();
const tickOf = (step) => (at) => (step < DAY ? isoOf(at).slice(5, 16).replace("T", " ") : isoOf(at).slice(5, 10));
const dayOf = (row) => row?.cells[0].textContent.trim().replace(/^\d{4}-(\d\d-\d\d).*/s, "$1") ?? "";
const wordsOf = (row, heads) => [...row.cells].map((cell, i) => `${i ? `${heads[i]} ` : ""}${cell.textContent.trim()}`).filter((text, i) => text !== heads[i] && text.trim()).join(" · ");

/* Names stand in as many lines as there are, so that neighbours do not cover each other. */
function drawMarks(plot, rows, line) {
  const { ctx, bbox, data } = plot;
  const tones = {};
  const toneOf = (row) => (tones[row.dataset.tone] ??= resolved(`--${row.dataset.tone === "plain" ? "accent" : row.dataset.tone}`));
  const placeOf = (at) => plot.valToPos(data[0][at], "x", true);
  const px = devicePixelRatio;
  const ends = []; // where the last name of each line ends
  ctx.save();
  ctx.textBaseline = "middle";
  rows.forEach((row, at) => {
    if (row.dataset.name && at) {
      const x = (placeOf(at - 1) + placeOf(at)) / 2;
      ctx.font = `${11 * px}px system-ui`;
      const width = ctx.measureText(row.dataset.name).width;
      const left = Math.min(x + 3 * px, bbox.left + bbox.width - width);
      let lane = ends.findIndex((end) => end < left);
      if (lane < 0) lane = ends.length;
      ends[lane] = left + width + 6 * px;
      ctx.strokeStyle = ctx.fillStyle = resolved("--muted");
      ctx.setLineDash([2 * px, 3 * px]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.textAlign = "left";
      ctx.fillText(row.dataset.name, left, bbox.top + (8 + 13 * lane) * px);
    }
    if (!row.dataset.mark || data[line][at] == null) return;
    ctx.font = `${13 * px}px system-ui`;
    ctx.textAlign = "center";
    ctx.fillStyle = toneOf(row);
    ctx.fillText(row.dataset.mark, placeOf(at), plot.valToPos(data[line][at], "y", true));
  });
  ctx.restore();
}

/* The columns of a table as the lines of a chart. Of stacked bars, each stands on those of the columns before it: the
   last is drawn first and the tallest. The limits of a band are drawn first: its filling must not hide the line. */
function readTable(figure, kind) {
  const rows = [...figure.querySelectorAll("tbody tr")];
  const heads = [...figure.querySelectorAll("thead th")].map((cell) => cell.textContent.trim());
  const places = heads.map((_, i) => i).filter((i) => rows[0]?.cells[i]?.dataset.value !== undefined);
  const tones = (figure.dataset.tones || "--accent").split(" ");
  const band = kind === "band" && places.length >= 4;
  if (band) places.push(...places.splice(1, 1));
  if (kind === "stacked") {
    places.push(...places.splice(1).reverse());
    tones.reverse();
  }
  const number = (cell) => (cell && cell.dataset.value !== "" ? Number(cell.dataset.value) : null);
  const numbers = places.map((i) => rows.map((row) => number(row.cells[i])));
  const below = (i, row) => numbers.slice(i).reduce((sum, column) => sum + column[row], 0);
  const data = kind === "stacked" ? numbers.map((column, i) => (i ? column.map((_, row) => below(i, row)) : column)) : numbers;
  return { rows, heads, labels: places.map((i) => heads[i]), data, tones: tones.map(resolved), band };
}

function drawChart(figure) {
  if (figure.dataset.drawn || typeof uPlot === "undefined") return;
  figure.dataset.drawn = "1";
  const { chart: kind, x: unit } = figure.dataset;
  const { rows, heads, labels, data, tones, band } = readTable(figure, kind);
  if (!rows.length) return;
  const room = figure.querySelector(".chart");
  const bars = kind === "stacked" || kind === "bars";
  const steps = kind === "steps";
  const marked = rows.some((row) => row.dataset.mark);
  const gap = data[0].length > 1 ? data[0][1] - data[0][0] : 1; // bars need half of it on each side
  const grid = { stroke: resolved("--line"), width: 1 };
  const axis = { stroke: resolved("--muted"), grid, ticks: grid, font: "12px system-ui" };
  const across = {
    time: { values: (_, ticks, _axis, _space, step) => ticks.map(tickOf(bars && gap >= DAY ? DAY : step)), ...(bars && { splits: () => pick(data[0], room.clientWidth) }) },
    rows: { incrs: WHOLE, space: 90, values: (_, ticks) => ticks.map((at) => dayOf(rows[at - 1])) },
  }[unit] ?? {};
  const series = labels.slice(1).map((label, i) => ({
    label,
    stroke: tones[i % tones.length],
    width: bars ? 0 : 1.5,
    fill: bars ? tones[i % tones.length] : undefined,
    points: { show: !bars && !steps && !marked && !(band && i < 2), size: 6 },
    paths: bars ? uPlot.paths.bars({ size: [0.7, 40] }) : steps ? uPlot.paths.stepped({ align: 1 }) : undefined,
    spanGaps: true,
  }));
  const tip = Object.assign(document.createElement("div"), { className: "tip", hidden: true });
  const point = ({ cursor }) => {
    tip.hidden = cursor.idx == null;
    if (tip.hidden) return;
    tip.textContent = wordsOf(rows[cursor.idx], heads);
    tip.style.left = `${Math.min(cursor.left, room.clientWidth - tip.offsetWidth - 70)}px`;
  };
  const options = {
    tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
    width: room.clientWidth || 600,
    height: Number(figure.dataset.height || 180),
    series: [{ label: labels[0] }, ...series],
    axes: [{ ...axis, ...across }, { ...axis, size: 60, ...(bars && { incrs: WHOLE }) }],
    scales: { x: { time: unit === "time", ...(bars && { range: (_, low, high) => [low - gap / 2, high + gap / 2] }) }, y: bars ? { range: (_, low, high) => [0, Math.max(high, 1)] } : {} },
    legend: { show: labels.length > 2 && !figure.dataset.quiet, live: false },
    cursor: { drag: { x: false, y: false }, y: false },
    hooks: { setCursor: [point], ...(marked && { draw: [(plot) => drawMarks(plot, rows, series.length)] }) },
    bands: band ? [{ series: [2, 1], fill: resolved("--pass-bg") }] : [],
  };
  const plot = new uPlot(options, data, room);
  plot.over.append(tip);
  plot.over.addEventListener("click", () => plot.cursor.idx != null && rows[plot.cursor.idx].querySelector("a")?.click());
  new ResizeObserver(() => plot.setSize({ width: room.clientWidth, height: options.height })).observe(room);
}
/* Bars have their tick in their middle, and no more ticks than fit. */
function pick(all, width) {
  const step = Math.ceil(all.length / Math.max(1, Math.floor(width / 90)));
  return all.filter((_, at) => at % step === 0);
}

const drawAll = (root) => root.querySelectorAll("figure[data-chart]").forEach(drawChart);
drawAll(document);
document.addEventListener("htmx:afterSettle", (event) => drawAll(event.detail.elt.parentElement ?? document));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  document.querySelectorAll("figure[data-drawn]").forEach((figure) => {
    delete figure.dataset.drawn;
    figure.querySelector(".chart").replaceChildren();
    drawChart(figure);
  });
});
