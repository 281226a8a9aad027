// Keys, copying, charts and live logs. Every page can be read without this.
"use strict";

document.documentElement.classList.add("js");

const menu = document.querySelector(".side .menu");
if (menu && matchMedia("(max-width: 760px)").matches) menu.open = false;

/* Keys: / searches, g and a letter goes there, ? lists them, Escape closes. */
let going = 0;
const isTyping = (target) => target.closest("input, textarea, select, [contenteditable]") !== null;

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const found = document.getElementById("found");
  if (event.key === "Escape") {
    if (found.contains(event.target)) document.getElementById("find").focus();
    found.replaceChildren();
    document.querySelectorAll(".pop[open]").forEach((one) => { one.open = false; });
    document.getElementById("cell")?.replaceChildren();
    if (isTyping(event.target)) event.target.blur();
    return;
  }
  if (event.target.id === "find" && event.key === "ArrowDown") {
    found.querySelector("a")?.focus();
    return event.preventDefault();
  }
  if (found.contains(event.target) && /^Arrow(Up|Down)$/.test(event.key)) {
    const links = [...found.querySelectorAll("a")];
    const next = links.indexOf(event.target) + (event.key === "ArrowDown" ? 1 : -1);
    (links[next] ?? document.getElementById("find")).focus();
    return event.preventDefault();
  }
  if (isTyping(event.target)) return;
  if (Date.now() - going < 1500) {
    going = 0;
    document.body.classList.remove("going");
    const place = document.querySelector(`[data-go="${CSS.escape(event.key)}"]`);
    if (place) place.click();
  } else if (event.key === "g") {
    going = Date.now();
    document.body.classList.add("going");
    setTimeout(() => document.body.classList.remove("going"), 1500);
  } else {
    const place = document.querySelector(`[data-keys="${CSS.escape(event.key)}"]`);
    if (!place) return;
    event.preventDefault();
    place.matches("input") ? place.focus() : place.click();
  }
});

/* Arrow keys go from cell to cell of a map; a link that is followed keeps the place. */
const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
document.addEventListener("keydown", (event) => {
  const step = STEPS[event.key];
  const from = step && !event.altKey && !event.ctrlKey && !event.metaKey && event.target.closest?.(".map td a");
  if (!from) return;
  const rows = [...from.closest("tbody").rows];
  let [row, column] = [rows.indexOf(from.closest("tr")), from.closest("td").cellIndex];
  for (;;) {
    row += step[0];
    column += step[1];
    const cell = rows[row]?.cells[column];
    if (!cell || cell.tagName === "TH") return;
    const next = cell.querySelector("a");
    if (next) {
      event.preventDefault();
      next.focus();
      return;
    }
  }
});

document.addEventListener("click", (event) => {
  const found = document.getElementById("found");
  if (!event.target.closest(".find")) found.replaceChildren();
  const button = event.target.closest("[data-copy]");
  if (button) copy(button);
  const cell = event.target.closest(".map td a");
  if (cell) {
    document.querySelector(".map td a[aria-current]")?.removeAttribute("aria-current");
    cell.setAttribute("aria-current", "true");
  }
  const close = event.target.closest("[data-close]");
  if (close) {
    document.getElementById(close.dataset.close)?.replaceChildren();
    event.preventDefault();
  }
});

/* A field of one line would join pasted lines: text of several is sent as it is, to be read. */
document.getElementById("find")?.addEventListener("paste", (event) => {
  const text = event.clipboardData?.getData("text/plain") ?? "";
  if (!/\S\s*\n\s*\S/.test(text) && text.length <= event.target.maxLength) return;
  event.preventDefault();
  const form = document.createElement("form");
  form.method = "post";
  form.action = event.target.dataset.paste;
  form.hidden = true;
  const token = document.querySelector("form.theme input[name=form_token]").value;
  for (const [name, value] of [["form_token", token], ["text", text]]) {
    const field = document.createElement("textarea");
    field.name = name;
    field.value = value;
    form.append(field);
  }
  document.body.append(form);
  form.submit();
});

async function copy(button) {
  const text = button.dataset.copy || button.parentElement.querySelector("pre").textContent;
  const label = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    const range = document.createRange(); // without the permission: select it, for the keyboard
    range.selectNodeContents(button.parentElement.querySelector("pre"));
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    button.textContent = "Press Ctrl+C";
  }
  setTimeout(() => { button.textContent = label; }, 1500);
}

/* Charts are drawn from the table beside them: figure[data-chart] with a table of x, y, low, high, and
   more lines. A row may have a shape at its y (data-mark, data-tone), and letters above a line before it.
   The scripts of the chart are loaded by the pages that have one. */

function resolved(name) {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function drawMarks(plot, rows, line) {
  const { ctx, bbox, data } = plot;
  const tones = {};
  const toneOf = (row) => (tones[row.dataset.tone] ??= resolved(`--${row.dataset.tone === "plain" ? "accent" : row.dataset.tone}`));
  const placeOf = (at) => plot.valToPos(data[0][at], "x", true);
  ctx.save();
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  ctx.font = `${13 * devicePixelRatio}px system-ui`;
  rows.forEach((row, at) => {
    if (row.dataset.letters && at) {
      const x = (placeOf(at - 1) + placeOf(at)) / 2;
      ctx.strokeStyle = ctx.fillStyle = resolved("--muted");
      ctx.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top + 16 * devicePixelRatio);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.fillText(row.dataset.letters, x, bbox.top + 8 * devicePixelRatio);
    }
    if (!row.dataset.mark || data[line][at] == null) return;
    ctx.fillStyle = toneOf(row);
    ctx.fillText(row.dataset.mark, placeOf(at), plot.valToPos(data[line][at], "y", true));
  });
  ctx.restore();
}

function draw(figure) {
  if (figure.dataset.drawn || typeof uPlot === "undefined") return;
  figure.dataset.drawn = "1";
  const rows = [...figure.querySelectorAll("tbody tr")];
  if (!rows.length) return;
  const heads = [...figure.querySelectorAll("thead th")].map((cell) => cell.textContent.trim());
  const places = heads.map((_, i) => i).filter((i) => rows[0].cells[i]?.dataset.value !== undefined);
  const band = figure.dataset.chart === "band" && places.length >= 4;
  if (band) places.push(...places.splice(1, 1)); // drawn last: the band's filling must not hide it
  const columns = places.map((i) => heads[i]); // the others are for reading alone
  const number = (cell) => (cell && cell.dataset.value !== "" ? Number(cell.dataset.value) : null);
  const numbers = places.map((i) => rows.map((row) => number(row.cells[i])));
  const stacked = figure.dataset.chart === "stacked"; // each bar stands on those of later columns
  const above = (i, row) => numbers.slice(i).reduce((sum, column) => sum + column[row], 0);
  const data = stacked ? numbers.map((column, i) => (i ? column.map((_, row) => above(i, row)) : column)) : numbers;
  const half = data[0].length > 1 ? (data[0][1] - data[0][0]) / 2 : 0.5; // room for the outer bars
  const isoOf = (at) => new Date(at * 1000).toISOString();
  const dayOf = (at) => isoOf(at).slice(0, 10);
  const timeOf = (at) => `${isoOf(at).slice(0, 19).replace("T", " ")} UTC`; // as pages write it
  const tickOf = (step) => (at) => (step < 86400 ? isoOf(at).slice(5, 16).replace("T", " ") : isoOf(at).slice(5, 10));
  const room = figure.querySelector(".chart");
  const isTime = figure.dataset.x === "time";
  const bars = stacked || figure.dataset.chart === "bars";
  const steps = figure.dataset.chart === "steps";
  const marked = rows.some((row) => row.dataset.mark);
  const tones = (figure.dataset.tones || "--accent").split(" ").map(resolved);
  const grid = { stroke: resolved("--line"), width: 1 };
  const axis = { stroke: resolved("--muted"), grid, ticks: grid, font: "12px system-ui" };
  const series = columns.slice(1).map((label, i) => ({
    label,
    stroke: tones[i % tones.length],
    width: bars ? 0 : 1.5,
    fill: bars ? tones[i % tones.length] : undefined,
    points: { show: !bars && !steps && !marked && !(band && i < 2), size: 6 },
    paths: bars ? uPlot.paths.bars({ size: [0.7, 40] }) : steps ? uPlot.paths.stepped({ align: 1 }) : undefined,
    spanGaps: true,
    ...(stacked && { value: (_, shown, of, at) => (at == null ? "–" : `${numbers[of][at]}`) }),
  }));
  const options = {
    tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
    width: room.clientWidth || 600,
    height: Number(figure.dataset.height || 180),
    series: [{ label: columns[0], ...(isTime && { value: (_, at) => (at == null ? "–" : stacked ? dayOf(at) : timeOf(at)) }) }, ...series],
    axes: [{ ...axis, ...(isTime && { values: (_, ticks, _axis, _space, step) => ticks.map(tickOf(stacked ? 86400 : step)) }) }, { ...axis, size: 60 }],
    scales: { x: { time: isTime, ...(bars && { range: (_, low, high) => [low - half, high + half] }) }, y: bars ? { range: (_, low, high) => [0, Math.max(high, 1)] } : {} },
    legend: { show: columns.length > 2 && !figure.dataset.quiet },
    cursor: { drag: { x: false, y: false } },
    hooks: marked ? { draw: [(plot) => drawMarks(plot, rows, series.length)] } : {},
    bands: band ? [{ series: [2, 1], fill: resolved("--pass-bg") }] : [],
  };
  const plot = new uPlot(options, data, room);
  plot.over.addEventListener("click", () => {
    const link = plot.cursor.idx != null && rows[plot.cursor.idx].querySelector("a");
    if (link) link.click();
  });
  new ResizeObserver(() => plot.setSize({ width: room.clientWidth, height: options.height })).observe(room);
}

/* A log that is still being written: pieces are asked for after the last one that is here. */
async function follow(log) {
  if (log.dataset.following) return;
  log.dataset.following = "yes";
  let after = Number(log.dataset.after);
  while (log.isConnected && log.dataset.follow) {
    await new Promise((resolve) => setTimeout(resolve, 1000));
    if (document.hidden) continue;
    let answer;
    try {
      answer = await fetch(`${log.dataset.follow}?after=${after}`);
    } catch { continue; }
    if (!answer.ok) return;
    const part = await answer.json();
    const atEnd = log.scrollTop + log.clientHeight > log.scrollHeight - 40;
    if (part.text) log.append(document.createTextNode(part.text));
    after = part.after;
    if (atEnd) log.scrollTop = log.scrollHeight;
    if (part.ended) return location.reload();
  }
}

/* What is replaced keeps the focus: on the same link, on the one of the same words (a column that now
   sorts the other way), or, where that is gone (a fix that was applied), on what came of it. It also
   keeps where it was scrolled to. */
let kept = null;
document.addEventListener("htmx:beforeSwap", (event) => {
  const target = event.detail.target;
  const open = target.querySelector(".pop[open]");
  if (open?.contains(document.activeElement)) event.detail.shouldSwap = false; // somebody is choosing
  const held = target.contains(document.activeElement) ? document.activeElement : null;
  kept = { held, left: target.querySelector(".scroll")?.scrollLeft };
});
function refocus(room, held) {
  const links = [...room.querySelectorAll("a[href]")];
  const same = (read) => links.find((one) => read(one) === read(held));
  const next = same((one) => one.getAttribute("href")) ?? same((one) => one.textContent) ?? room.querySelector(".answer, [role=alert]") ?? room;
  if (next.tabIndex < 0) next.tabIndex = -1; // what is no link takes the focus all the same
  next.focus({ preventScroll: true });
}
document.addEventListener("htmx:afterSettle", (event) => {
  const room = event.detail.elt;
  if (room.id !== event.detail.target.id) return; // what came along with the answer
  const isLost = document.activeElement === document.body; // else somebody types elsewhere by now
  if (isLost && kept?.held?.matches("a[href]") && !document.contains(kept.held)) refocus(room, kept.held);
  if (kept?.left && room.querySelector(".scroll")) room.querySelector(".scroll").scrollLeft = kept.left;
  kept = null;
});

/* Tables that fit into their box let the page scroll; wider ones scroll by themselves. */
const boxes = new ResizeObserver((all) => {
  for (const { target } of all) target.classList.toggle("fits", target.firstElementChild.offsetWidth <= target.clientWidth);
});

/* The zone of this browser, for whoever chose to read times in it; the server formats them. */
if (document.querySelector("[data-tells-zone]")) {
  const zone = encodeURIComponent(Intl.DateTimeFormat().resolvedOptions().timeZone);
  document.cookie = `compatgate_zone=${zone}; path=/; max-age=31536000; samesite=lax`;
}

/* What hangs below a button closes when something else is meant. */
document.addEventListener("click", (event) => {
  document.querySelectorAll(".pop[open]").forEach((one) => { if (!one.contains(event.target)) one.open = false; });
});

function enliven(root) {
  root.querySelectorAll(".scroll:not(.tall):has(> table)").forEach((box) => boxes.observe(box));
  root.querySelectorAll("figure[data-chart]").forEach(draw);
  root.querySelectorAll("[data-follow]:not([data-following])").forEach((log) => { log.scrollTop = log.scrollHeight; follow(log); });
}
enliven(document);
document.addEventListener("htmx:afterSettle", (event) => enliven(event.detail.elt.parentElement ?? document));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  document.querySelectorAll("figure[data-drawn]").forEach((figure) => {
    delete figure.dataset.drawn;
    figure.querySelector(".chart").replaceChildren();
    draw(figure);
  });
});
