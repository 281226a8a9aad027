// Keys, copying and live logs. Every page can be read without this.
"use strict";

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
  root.querySelectorAll("[data-follow]:not([data-following])").forEach((log) => { log.scrollTop = log.scrollHeight; follow(log); });
}
enliven(document);
document.addEventListener("htmx:afterSettle", (event) => enliven(event.detail.elt.parentElement ?? document));
