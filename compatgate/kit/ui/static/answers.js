// Which answer stands beside a question, and where it says what went wrong.
"use strict";

/* Beside a question stands its own answer, or none. The region of a question is what its answer replaces.
   As soon as a question is edited or asked, the answer to the one before leaves the region; a list, which
   follows as one types, stays until then, marked as busy. What went wrong is said in the region as well. */
const LISTS = ".table, #map, #found";
const ASKERS = "form[hx-target], input[hx-target], section[hx-target]";
const answered = new WeakMap(); // a form: its fields as they were asked with
const asked = new WeakMap(); // a request: the fields of its region's form as it was sent
const latest = new WeakMap(); // a region: the newest request for it
const aside = new WeakMap(); // a region: the answer to the question before

const fieldsOf = (form) => [...form.querySelectorAll("input, select, textarea")].map((one) => one.value).join("\n");
function servedFields(form) {
  const copy = form.cloneNode(true);
  copy.reset();
  return fieldsOf(copy);
}
function regionOf(asker) {
  const where = asker.getAttribute("hx-target");
  if (!where.startsWith("next ")) return document.querySelector(where);
  const follows = (one) => asker.compareDocumentPosition(one) & Node.DOCUMENT_POSITION_FOLLOWING;
  return [...document.querySelectorAll(where.slice(5))].find(follows);
}
const formOf = (region) => [...document.querySelectorAll(ASKERS)].find((one) => regionOf(one) === region)?.closest("form");
const isOrder = (elt) => elt.matches("th[aria-sort] a");
const refreshesItself = (request) => request.elt === request.target;

function setAside(region, text) {
  const answers = region.querySelector(".said") !== null; // the palette answers, too
  if (region.matches(LISTS) && !answers) return region.setAttribute("aria-busy", "true");
  const line = document.createElement("p");
  line.className = "panel muted";
  line.setAttribute("role", "status");
  line.textContent = text;
  if (!aside.has(region)) aside.set(region, [...region.childNodes]);
  region.replaceChildren(line);
}
function putBack(region) {
  if (aside.has(region)) region.replaceChildren(...aside.get(region));
  freshen(region);
}
function freshen(region) {
  aside.delete(region);
  region.removeAttribute("aria-busy");
  region.removeAttribute("data-problem");
}
function compareWithAnswer(form, region) {
  if (fieldsOf(form) === (answered.get(form) ?? servedFields(form))) putBack(region);
  else setAside(region, "This question is not answered yet.");
}

function problem(lead, hint) {
  const panel = document.createElement("div");
  panel.className = "panel";
  for (const [name, text] of [["lead", lead], ["muted", hint]]) {
    const line = document.createElement("p");
    line.className = name;
    line.textContent = text;
    panel.append(line);
  }
  return panel;
}
function fail(region, panel, xhr) {
  const held = region.contains(document.activeElement);
  const form = formOf(region);
  if (form) answered.set(form, asked.get(xhr));
  freshen(region);
  region.dataset.problem = "yes";
  panel.removeAttribute("id");
  panel.setAttribute("role", "alert");
  region.replaceChildren(panel);
  if (held) {
    panel.tabIndex = -1;
    panel.focus({ preventScroll: true });
  }
}

document.addEventListener("input", (event) => {
  const asker = event.target.closest(ASKERS);
  const region = asker && regionOf(asker);
  if (region) compareWithAnswer(asker.closest("form"), region);
});
addEventListener("pageshow", () => { // a browser may have filled fields in, as they were left
  for (const asker of document.querySelectorAll(ASKERS)) {
    const region = regionOf(asker);
    if (region) compareWithAnswer(asker.closest("form"), region);
  }
});
/* An order counts as soon as it is asked for: what is typed while it loads asks for it as well, and it asks for
   what the filters say now. Filters that are not those of the list begin at its first page. */
document.addEventListener("htmx:configRequest", ({ detail }) => {
  const form = document.getElementById("filters");
  if (!form || !isOrder(detail.elt)) return;
  const url = new URL(detail.path, location.href);
  const given = url.searchParams;
  let order = form.elements.namedItem("sort");
  if (!order) {
    order = Object.assign(document.createElement("input"), { type: "hidden", name: "sort" });
    order.setAttribute("form", form.id);
    detail.target.append(order); // gone with the list that it belongs to
  }
  order.value = given.get("sort");
  for (const [name, value] of new FormData(form)) {
    if ((given.get(name) ?? "") === value) continue;
    value ? given.set(name, value) : given.delete(name);
    given.delete("cursor");
  }
  detail.path = `${url.pathname}${url.search}`;
});
document.addEventListener("htmx:beforeRequest", (event) => {
  const { xhr, requestConfig: request } = event.detail;
  const region = request.target;
  if (refreshesItself(request)) return;
  const asks = request.elt.matches(ASKERS);
  if (!asks && !isOrder(request.elt) && request.elt.closest("[aria-busy]")) return event.preventDefault(); // a link of an earlier answer
  const form = formOf(region);
  if (form) asked.set(xhr, fieldsOf(form));
  latest.set(region, xhr);
  if (region.contains(request.elt)) region.setAttribute("aria-busy", "true");
  else setAside(region, "Asking…");
});
document.addEventListener("htmx:beforeSwap", (event) => {
  const { detail } = event;
  const { xhr, requestConfig: request } = detail;
  const region = request.target;
  if (refreshesItself(request)) {
    if (region.matches("[aria-busy], [data-problem]")) detail.shouldSwap = false; // it knows the earlier question
    return;
  }
  detail.isError = detail.shouldSwap = false;
  const form = formOf(region);
  if (latest.get(region) !== xhr || (form && asked.get(xhr) !== fieldsOf(form))) return; // of an earlier question
  const page = new DOMParser().parseFromString(detail.serverResponse, "text/html");
  const [place] = request.elt.closest("[hx-select]").getAttribute("hx-select").split(" ");
  const other = xhr.status < 400 ? "The server answered with another page." : `The server answered ${xhr.status}.`;
  const hint = "The question is not answered. Ask again, or reload the page.";
  if (page.querySelector(place)) detail.shouldSwap = true;
  else fail(region, page.querySelector("#problem") ?? problem(other, hint), xhr);
});
document.addEventListener("htmx:afterSwap", (event) => {
  const { xhr, requestConfig: request } = event.detail;
  if (refreshesItself(request)) return;
  freshen(request.target);
  const form = asked.has(xhr) && formOf(event.detail.elt);
  if (form) answered.set(form, fieldsOf(form)); // an answer may bring fields of its own
});
document.addEventListener("htmx:beforeHistoryUpdate", ({ detail: { history } }) => {
  if (new URL(history.path, location.href).href === location.href) history.type = "replace"; // asked twice: one step back
});
for (const name of ["htmx:sendError", "htmx:timeout"]) {
  document.addEventListener(name, ({ detail: { xhr, requestConfig: request } }) => {
    if (refreshesItself(request)) return toast("The server cannot be reached.");
    if (latest.get(request.target) !== xhr) return;
    fail(request.target, problem("The server cannot be reached.", "The question is not answered. Ask again when the server is back."), xhr);
  });
}

/* What refreshes itself stays as it was when that fails, and says so. */
function toast(text) {
  if ([...document.querySelectorAll("#toasts p")].some((one) => one.textContent === text)) return; // said already
  const line = document.createElement("p");
  line.textContent = text;
  document.getElementById("toasts").append(line);
  setTimeout(() => line.remove(), 8000);
}
document.addEventListener("htmx:responseError", (event) => {
  const answer = new DOMParser().parseFromString(event.detail.xhr.responseText, "text/html");
  const said = answer.querySelector("#problem .lead");
  toast(said ? said.textContent : `The server answered ${event.detail.xhr.status}.`);
});
