// PAGE: follows a run and sends a person's commands. What agents wrote is only ever set as textContent.
"use strict";

const KEPT = 2000; // events in the document; older ones are asked for again
const SILENT_MS = 15000; // the gateway says something every five seconds: past this the connection is dead
const ORDERS = {
  pause: "The session holds after its current step. The time is not charged; the wall limit goes on.",
  unpause: "The session goes on.",
  say: "The Worker reads this before its next step.",
  extend: "More time, more money, or both. The gateway's cap rises with it.",
  finish: "The session writes its report and ends. A running command gets five seconds more.",
  stop: "The session is sealed at once. What runs is ended; the report is built from the record.",
};

const by = (id) => document.getElementById(id);
const seen = { last: 0, first: 0, ids: new Set() };
let csrf = "", source = null, heardAt = 0, order = null, key = "", following = true, retry = 0;

function el(tag, text, ...classes) {
  const made = document.createElement(tag);
  if (text !== undefined && text !== null) made.textContent = String(text);
  made.classList.add(...classes.filter(Boolean));
  return made;
}

async function call(path, body) {
  const options = { credentials: "same-origin", cache: "no-store" };
  if (body !== undefined) {
    options.method = "POST";
    options.body = JSON.stringify(body);
    options.headers = { "Content-Type": "application/json", "X-Lab-CSRF": csrf };
  }
  const answer = await fetch(path, options);
  const facts = await answer.json().catch(() => ({}));
  if (answer.status === 401) showLogin(path === "/login" ? facts.error : "");
  if (!answer.ok) throw new Error(facts.error || `the gateway answered ${answer.status}`);
  return facts;
}

// Log in

function showLogin(error) {
  hangUp();
  by("run").hidden = true;
  by("login").hidden = false;
  by("login-error").textContent = error || "";
}

async function logIn(token) {
  try {
    await call("/login", { token: token.trim(), name: by("name").value.trim() });
    by("token").value = "";
    await begin();
  } catch (error) {
    by("login-error").textContent = error.message;
  }
}

async function begin() {
  let facts;
  try {
    facts = await call("/state");
  } catch (error) {
    if (by("login").hidden) again(error.message);
    return;
  }
  csrf = facts.csrf;
  by("login").hidden = true;
  by("run").hidden = false;
  showState(facts.state);
  showFiles(facts.files);
  if (!seen.last) {
    for (const row of facts.verdicts) by("verdict-list").append(item(row));
    seen.last = Math.max(0, facts.state.events - 300);
    seen.first = seen.last;
    showEarlier();
  }
  follow();
}

// The stream. A browser that was away asks for what lies behind the last place it has.

function follow() {
  hangUp();
  heardAt = Date.now();
  source = new EventSource(`/events?after=${seen.last}`);
  source.onopen = () => { heardAt = Date.now(); retry = 0; by("link").textContent = "live"; };
  source.onerror = () => { if (source && source.readyState === EventSource.CLOSED) again("the gateway does not answer"); else by("link").textContent = "not connected, trying again"; };
  source.addEventListener("row", (message) => { heardAt = Date.now(); addRow(JSON.parse(message.data)); });
  source.addEventListener("files", (message) => { heardAt = Date.now(); showFiles(JSON.parse(message.data)); });
  source.addEventListener("state", (message) => { heardAt = Date.now(); by("link").textContent = "live"; showState(JSON.parse(message.data)); });
}

function hangUp() {
  if (source) source.close();
  source = null;
}

function again(why) {
  hangUp();
  by("link").textContent = `${why}; trying again`;
  retry = Math.min(retry + 1, 5);
  setTimeout(begin, 1000 * retry);
}

setInterval(() => {
  if (source && Date.now() - heardAt > SILENT_MS) again("nothing was heard for a while");
}, 3000);

// Events

function item(row) {
  const line = el("li");
  line.dataset.n = row.n;
  const head = el("div", null, "head");
  head.append(el("span", row.at), el("span", `step ${row.step ?? 0}`), el("b", row.event), el("span", row.tool));
  if (row.status) head.append(el("span", row.status, row.status === "BLOCK" || row.status === "ALLOW" ? row.status : ""));
  line.append(head);
  if (row.input) line.append(el("div", row.input, "text", "input"));
  if (row.text) line.append(el("div", row.text, "text"));
  if (row.reason) line.append(el("div", row.reason, "text"));
  if (row.cut || (row.text || "").length + (row.input || "").length > 400) {
    const more = el("button", "whole", "more");
    more.type = "button";
    more.addEventListener("click", () => openRow(row.n));
    line.append(more);
  }
  return line;
}

function addRow(row) {
  if (seen.ids.has(row.n)) return;
  seen.ids.add(row.n);
  seen.last = Math.max(seen.last, row.n);
  const list = by("event-list");
  list.append(item(row));
  while (list.children.length > KEPT) {
    seen.first = Number(list.firstChild.dataset.n);
    seen.ids.delete(seen.first);
    list.firstChild.remove();
    showEarlier();
  }
  if (row.event === "INSPECTOR_DECISION" && !by("verdict-list").querySelector(`[data-n="${Number(row.n)}"]`)) {
    by("verdict-list").append(item(row));
  }
  if (following && !by("events").hidden) window.scrollTo(0, document.body.scrollHeight);
}

function showEarlier() {
  by("earlier").hidden = seen.first <= 0;
}

async function loadEarlier() {
  const first = by("event-list").firstChild;
  const before = first ? Number(first.dataset.n) : seen.first + 1;
  const { rows } = await call(`/rows?before=${before}`);
  for (const row of rows) seen.ids.add(row.n);
  by("event-list").prepend(...rows.map(item));
  seen.first = rows.length ? rows[0].n - 1 : 0;
  showEarlier();
}

function showFiles(files) {
  const list = by("file-list");
  const known = new Set([...list.children].map((line) => Number(line.dataset.n)));
  for (const file of files) {
    if (known.has(file.n)) continue;
    const line = el("li"), open = el("button", file.name);
    line.dataset.n = file.n;
    open.type = "button";
    open.addEventListener("click", () => openFile(file.n));
    line.append(open, el("div", `${file.kind}, step ${file.step ?? 0}`, "head"));
    list.prepend(line);
  }
}

async function openRow(n) {
  const row = await call(`/row/${n}`);
  read(`${row.event} ${row.tool}, step ${row.step ?? 0}`, [row.input, row.text, row.reason].filter(Boolean).join("\n\n"));
}

async function openFile(n) {
  const file = await call(`/file/${n}`);
  read(file.name, file.content);
}

function read(title, text) {
  by("reader-title").textContent = title;
  by("reader-text").textContent = text;
  by("reader").showModal();
}

// The state

function clock(seconds) {
  const whole = Math.max(0, Math.floor(seconds)), two = (n) => String(n).padStart(2, "0");
  const hours = Math.floor(whole / 3600), minutes = Math.floor(whole / 60) % 60;
  return hours ? `${hours}:${two(minutes)}:${two(whole % 60)}` : `${minutes}:${two(whole % 60)}`;
}

function showState(state) {
  const word = state.sealed ? `sealed: ${state.sealed}` : state.paused ? "paused" : state.phase || "not started";
  document.title = `${word}, step ${state.step}: ${state.run}`;
  by("title").textContent = `run ${state.run}`;
  by("phase").textContent = word;
  by("network").textContent = state.network ? `network ${state.network}` : "";
  by("step").textContent = `step ${state.step}, ${state.events} events, ${state.reviews} reviews, ${state.blocks} blocked`;
  by("time").textContent = `${clock(state.elapsed)} of ${clock(state.length)}`;
  by("time-bar").value = state.length ? Math.min(1, state.elapsed / state.length) : 0;
  by("money").textContent = `$${state.cost.toFixed(4)} of $${state.budget.toFixed(2)}`;
  by("money-bar").value = state.budget ? Math.min(1, state.cost / state.budget) : 0;
  by("doing").textContent = state.doing || state.thought;
  const waits = state.paused ? "paused on request" : `no event for ${clock(state.quiet)}: waiting for ${state.waits_for}`;
  by("waits").textContent = state.sealed || (!state.paused && state.quiet < 10) ? "" : waits;
  by("alarm").hidden = !state.alarm;
  by("alarm").textContent = state.alarm ? state.alarm.text : "";
  by("asked").replaceChildren(...state.commands.slice(-5).map((one) =>
    el("li", `${one.id}. ${one.name} ${one.args} · ${one.state} · ${one.by}${one.why ? ` · ${one.why}` : ""}`)));
  for (const button of by("orders").children) button.disabled = Boolean(state.sealed);
  document.querySelector('[data-order="pause"]').hidden = state.paused;
  document.querySelector('[data-order="unpause"]').hidden = !state.paused;
}

// Commands. A request whose answer was lost is repeated under the same key and stays one command.

function openOrder(name) {
  order = name;
  key = [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  by("ask-title").textContent = name;
  by("ask-what").textContent = ORDERS[name];
  by("ask-text").hidden = name !== "say";
  by("ask-minutes").hidden = by("ask-budget").hidden = name !== "extend";
  for (const id of ["say-text", "minutes", "budget", "why"]) by(id).value = "";
  by("ask-error").textContent = "";
  by("ask").showModal();
}

async function sendOrder() {
  const args = {};
  if (order === "say") args.text = by("say-text").value;
  if (order === "extend" && by("minutes").value) args.minutes = Number(by("minutes").value);
  if (order === "extend" && by("budget").value) args.budget_usd = Number(by("budget").value);
  try {
    await call("/command", { name: order, args, why: by("why").value, key });
    by("ask").close();
  } catch (error) {
    by("ask-error").textContent = error.message;
  }
}

// Wiring

for (const button of by("orders").children) button.addEventListener("click", () => openOrder(button.dataset.order));
for (const tab of by("tabs").children) {
  tab.addEventListener("click", () => {
    for (const other of by("tabs").children) {
      other.setAttribute("aria-pressed", String(other === tab));
      by(other.dataset.tab).hidden = other !== tab;
    }
  });
}
by("ask-no").addEventListener("click", () => by("ask").close());
by("ask-yes").addEventListener("click", sendOrder);
by("reader-close").addEventListener("click", () => by("reader").close());
by("earlier").addEventListener("click", loadEarlier);
by("enter").addEventListener("click", () => logIn(by("token").value));
by("token").addEventListener("keydown", (pressed) => { if (pressed.key === "Enter") logIn(by("token").value); });
by("newest").addEventListener("click", () => { following = true; window.scrollTo(0, document.body.scrollHeight); });
window.addEventListener("scroll", () => {
  following = window.innerHeight + window.scrollY > document.body.scrollHeight - 120;
  by("newest").hidden = following;
});

const given = decodeURIComponent(location.hash.slice(1));
if (given) {
  history.replaceState(null, "", "/"); // the token leaves the address bar
  logIn(given);
} else {
  begin();
}
