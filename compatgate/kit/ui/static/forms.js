// Forms: what is typed is kept in this tab until it is stored, and it is sent once.
"use strict";

const FORMS = "main form[method=post]";
const FIELDS = "input:not([type=hidden], [type=file], [type=password], [name=token]), select, textarea";
const LOOKS = /^(check|read|effects|backtest)$/; // buttons that store nothing
const SENDING_MS = 10_000;
const sending = new Map(); // a form: the button that sent it
const reached = new WeakSet(); // forms whose server has just answered

function nameOf(form) {
  const action = form.getAttribute("action");
  const same = [...document.querySelectorAll(FORMS)].filter((one) => one.getAttribute("action") === action);
  return `draft ${location.pathname} ${action} ${same.indexOf(form)}`;
}
const fieldsIn = (form) => [...form.querySelectorAll(FIELDS)].filter((one) => one.name);
const stateOf = (field) => (/checkbox|radio/.test(field.type) ? field.checked : field.value);
function say(form, role, text) {
  form.querySelector(":scope > .form-note")?.remove();
  const line = Object.assign(document.createElement("p"), { className: `form-note ${role === "alert" ? "degraded" : "done"}`, textContent: text });
  line.setAttribute("role", role);
  form.prepend(line);
  return line;
}

function keep(form) {
  const fields = fieldsIn(form).map((one) => [one.name, stateOf(one)]);
  const draft = { revision: form.elements.revision?.value, fields };
  try {
    sessionStorage.setItem(nameOf(form), JSON.stringify(draft));
  } catch { /* full, or refused: the form works without */ }
}
function restore(form) {
  const draft = JSON.parse(sessionStorage.getItem(nameOf(form)) ?? "null");
  if (!draft) return;
  const left = fieldsIn(form);
  let changed = null;
  for (const [name, value] of draft.fields) {
    const at = left.findIndex((one) => one.name === name);
    if (at < 0) continue;
    const [field] = left.splice(at, 1);
    if (stateOf(field) === value) continue;
    if (typeof value === "boolean") field.checked = value;
    else field.value = value;
    changed ??= field;
  }
  if (!changed) return;
  if (form.elements.revision) form.elements.revision.value = draft.revision; // what it was a change of
  const line = say(form, "status", "What you typed here before is back. ");
  const button = Object.assign(document.createElement("button"), { type: "button", className: "small", textContent: "Discard it" });
  button.addEventListener("click", () => {
    sessionStorage.removeItem(nameOf(form));
    location.reload();
  });
  line.append(button);
  changed.dispatchEvent(new Event("input", { bubbles: true })); // which has it checked
}

document.addEventListener("input", ({ target }) => {
  if (target.form?.matches(FORMS) && target.matches(FIELDS)) keep(target.form);
});
{
  const sent = JSON.parse(sessionStorage.getItem("sent") ?? "null");
  sessionStorage.removeItem("sent");
  const refused = document.querySelector("main #problem") !== null;
  if (sent && !sent.looks && !refused) sessionStorage.removeItem(sent.name);
  for (const form of document.querySelectorAll(FORMS)) {
    if (sent?.name === nameOf(form) && (sent.looks || refused)) keep(form); // the server gave it back
    else restore(form);
  }
}

/* A form on its way is not sent again: on a slow server a second press would do everything twice. Where no server
   answers, the page stays as it is and says so. */
function settle(form) {
  sending.get(form)?.removeAttribute("data-sending");
  sending.delete(form);
}
async function send(form, button) {
  try {
    await fetch(document.querySelector("link[rel=icon]").href, { method: "HEAD", cache: "no-store" });
  } catch {
    settle(form);
    return say(form, "alert", "The server cannot be reached. Nothing was sent; your input stays here. Try again when the server is back.");
  }
  reached.add(form);
  settle(form);
  form.requestSubmit(button?.isConnected ? button : null);
}
document.addEventListener("submit", (event) => {
  const { target: form, submitter } = event;
  if (form.method !== "post" || event.defaultPrevented) return;
  if (sending.has(form)) return event.preventDefault();
  sending.set(form, submitter);
  submitter?.setAttribute("data-sending", "yes");
  if (form.matches(FORMS) && !reached.delete(form)) {
    event.preventDefault();
    send(form, submitter);
    return;
  }
  if (form.matches(FORMS)) sessionStorage.setItem("sent", JSON.stringify({ name: nameOf(form), looks: LOOKS.test(submitter?.value ?? "") }));
  setTimeout(settle, SENDING_MS, form);
});
addEventListener("pageshow", () => [...sending.keys()].forEach(settle)); // back from the page that followed
