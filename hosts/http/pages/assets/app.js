// The script of the pages. Everything can be read and sent without it: it keeps pages up to date, shows times as a
// person has chosen, and adds keys. It makes no markup from text but that of pages of this server.

const policy = globalThis.trustedTypes?.createPolicy("holdfast", { createHTML: (text) => text });
const main = document.getElementById("main");
const byId = (id) => document.getElementById(id);
const stored = (name) => { try { return localStorage.getItem(`holdfast.${name}`); } catch { return null; } };
const store = (name, value) => { try { localStorage.setItem(`holdfast.${name}`, value); } catch { /* private mode */ } };

// Times ----------------------------------------------------------------------------------------------------------

const CLOCKS = ["UTC", "local", "relative"];
let clock = CLOCKS.includes(stored("clock")) ? stored("clock") : "UTC";
const local = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
const relative = new Intl.RelativeTimeFormat("en", { numeric: "always" });
const UNITS = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];

function ago(at) {
  const seconds = (at - Date.now()) / 1000;
  const [unit, size] = UNITS.find(([, one]) => Math.abs(seconds) >= one) ?? UNITS[3];
  return relative.format(Math.trunc(seconds / size), unit);
}

function showTimes(inside = document) {
  for (const one of inside.querySelectorAll("time[datetime]")) {
    one.dataset.utc ??= one.textContent;
    const at = new Date(one.dateTime);
    one.title = `${one.dateTime} · ${local.format(at)}`;
    const text = clock === "UTC" ? one.dataset.utc : clock === "local" ? local.format(at) : ago(at);
    if (one.textContent !== text) one.textContent = text;
  }
}

function setClock(next) {
  clock = next;
  store("clock", clock);
  byId("clock").textContent = clock;
  showTimes();
}

// Theme ----------------------------------------------------------------------------------------------------------

function nextTheme() {
  const root = document.documentElement;
  const next = { undefined: "dark", dark: "light", light: undefined }[root.dataset.theme];
  if (next) root.dataset.theme = next; else delete root.dataset.theme;
  const life = next ? 31536000 : 0;
  document.cookie = `holdfast-theme=${next ?? ""}; path=/; max-age=${life}; samesite=lax`;
}

// Saved views ----------------------------------------------------------------------------------------------------

// Filters of the runs by name. Only this browser keeps them (docs/decisions/0109); their addresses need no script.
const NAME_MAX = 60;
const entry = document.querySelector("[data-views]"), naming = byId("view");
const runs = entry?.querySelector("a").pathname; // of this mount and namespace

function savedViews() {
  try {
    const isView = (one) => typeof one?.name === "string" && typeof one.query === "string";
    return JSON.parse(stored(`views:${runs}`)).filter(isView);
  } catch { return []; } // there are none, or something else has written there
}

function showViews() {
  if (!entry) return;
  entry.querySelector("ul")?.remove();
  const list = document.createElement("ul"), views = savedViews(), here = naming?.dataset.view;
  list.className = "views";
  for (const view of views) {
    const item = document.createElement("li"), link = document.createElement("a");
    link.textContent = view.name;
    link.href = `${runs}?${view.query}`;
    if (view.query === here) link.setAttribute("aria-current", "true");
    item.append(link);
    list.append(item);
  }
  if (views.length) entry.append(list);
  if (naming) byId("remove-view").hidden = !views.some((view) => view.query === here);
}

function saveViews(views, said) {
  const wanted = JSON.stringify(views.sort((one, other) => one.name.localeCompare(other.name)));
  store(`views:${runs}`, wanted);
  const isKept = stored(`views:${runs}`) === wanted;
  naming.querySelector("output").textContent = isKept ? said : "This browser keeps nothing. Use a bookmark.";
  showViews();
}

naming?.addEventListener("submit", (event) => {
  event.preventDefault();
  const name = naming.elements.view.value.trim().slice(0, NAME_MAX);
  if (!name) return;
  const others = savedViews().filter((view) => view.name !== name);
  saveViews([...others, { name, query: naming.dataset.view }], "Saved in this browser.");
  naming.reset();
});

function removeView() {
  saveViews(savedViews().filter((view) => view.query !== naming.dataset.view), "Removed.");
}

// Live regions ---------------------------------------------------------------------------------------------------

const live = byId("live");
let source = null, paused = stored("paused") === "yes", due = false, busy = false, last = 0, timer = 0, retry = 0;
const BETWEEN = 1000; // milliseconds between two reads of the page
const STATES = { live: "Live", paused: "Paused", lost: "Connection lost", out: "Signed out" };

function liveState(state) {
  if (!live || live.dataset.state === state) return;
  live.dataset.state = state;
  live.textContent = STATES[state];
  live.title = state === "paused" ? "Go on" : "Pause";
}

// The first event comes at once. It is not skipped: the page may be older than the stream.
function connect() {
  clearTimeout(retry);
  if (!live || source || paused || document.hidden) return;
  const opened = source = new EventSource(main.dataset.watch);
  opened.onopen = () => { liveState("live"); };
  opened.addEventListener("changed", refreshSoon);
  opened.onerror = () => {
    liveState("lost");
    if (opened.readyState !== EventSource.CLOSED) return; // the browser connects again
    disconnect();
    refreshSoon(); // the answer says whether the session has ended
    retry = setTimeout(connect, 5000);
  };
}

function disconnect() {
  clearTimeout(retry);
  source?.close();
  source = null;
}

function refreshSoon() {
  due = true;
  if (busy || timer) return;
  timer = setTimeout(refresh, Math.max(0, last + BETWEEN - Date.now()));
}

async function refresh() {
  timer = 0; due = false; busy = true; last = Date.now();
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" }, redirect: "manual" });
    if (answer.type === "opaqueredirect" || answer.status === 401) { // to the page for signing in
      disconnect();
      liveState("out");
    } else if (answer.ok) {
      const text = await answer.text();
      replaceRegions(new DOMParser().parseFromString(policy ? policy.createHTML(text) : text, "text/html"));
    } else if (answer.status !== 404) throw new Error(String(answer.status));
  } catch {
    liveState("lost");
    if (source) setTimeout(refreshSoon, 5000);
  }
  busy = false;
  if (due) refreshSoon();
}

function isInUse(region) {
  const active = document.activeElement;
  if (region.contains(active) && active.matches("input, textarea, select")) return true;
  return region.querySelector("details[open].action, input[type=checkbox]:checked") !== null;
}

function replaceRegions(page) {
  for (const region of document.querySelectorAll("[data-region]")) {
    const name = region.dataset.region;
    const next = page.querySelector(`[data-region="${CSS.escape(name)}"]`);
    if (!next) continue;
    if (region.dataset.list !== undefined) { replaceRows(region, next); continue; }
    if (isInUse(region)) continue;
    const open = new Set([...region.querySelectorAll("details[open]")].map(placeOf));
    for (const one of next.querySelectorAll("details")) one.open ||= open.has(placeOf(one));
    showTimes(next);
    revealCopies(next);
    if (next.innerHTML === region.innerHTML) continue;
    const focused = region.contains(document.activeElement) ? document.activeElement : null;
    region.replaceChildren(...next.childNodes);
    if (focused) sameAs(focused, region)?.focus({ preventScroll: true });
  }
}

// What a person has opened stays open: it is known by its row and its summary.
function placeOf(details) {
  const row = details.closest("tr")?.cells[0]?.textContent ?? "";
  return JSON.stringify([details.id, row, details.querySelector("summary")?.textContent]);
}

// What had the focus keeps it, although it is another element now.
function sameAs(focused, region) {
  const has = (name) => focused.getAttribute(name);
  const name = ["id", "href", "aria-label"].find((one) => has(one));
  return name ? region.querySelector(`[${name}="${CSS.escape(has(name))}"]`)
    : [...region.querySelectorAll(focused.localName)].find((one) => one.textContent === focused.textContent);
}

// Rows of a list change in their places. New ones are only counted: nothing moves under the mouse.
function replaceRows(region, next) {
  const known = new Map([...region.querySelectorAll("tr[data-key]")].map((row) => [row.dataset.key, row]));
  const rows = [...next.querySelectorAll("tr[data-key]")];
  if (known.size === 0) { showTimes(next); revealCopies(next); region.replaceChildren(...next.childNodes); return; }
  for (const row of rows) {
    const mine = known.get(row.dataset.key);
    if (!mine) continue;
    showTimes(row);
    revealCopies(row);
    if (mine.innerHTML === row.innerHTML) continue;
    mine.classList.add("fresh");
    // Only the cells that have changed, so that what is selected, or has the focus, stays so.
    for (const [at, cell] of [...row.cells].entries()) {
      if (mine.cells[at].innerHTML !== cell.innerHTML) mine.cells[at].replaceWith(cell);
    }
  }
  const firstKnown = rows.findIndex((row) => known.has(row.dataset.key));
  const number = firstKnown < 0 ? rows.length : firstKnown;
  const button = byId("newer");
  if (button && number > 0) {
    button.hidden = false;
    button.textContent = `${number}${firstKnown < 0 ? "+" : ""} new`;
  }
}

// Keys -----------------------------------------------------------------------------------------------------------

const PLACES = { o: 0, r: 1, w: 2, s: 3, q: 4, k: 5, e: 6 };
const KEYS = [["/", "first field of the filter"], ["g o", "overview"], ["g r", "runs"], ["g w", "workflows"],
  ["g s", "schedules"], ["g q", "queues"], ["g k", "workers"], ["g e", "events"], ["j, k", "next, previous row"],
  ["x", "select the row"], ["Enter", "open the row"], ["c", "how times are shown"], ["t", "theme"], ["?", "this list"]];
let going = 0;

function moveRow(step) {
  const rows = [...main.querySelectorAll("tbody tr")];
  if (!rows.length) return;
  const at = rows.findIndex((row) => row.contains(document.activeElement));
  const row = rows[Math.min(rows.length - 1, Math.max(0, at + step))];
  row.tabIndex = -1;
  (row.querySelector("a") ?? row).focus();
  row.scrollIntoView({ block: "nearest" });
}

function showHelp() {
  let dialog = byId("keys");
  if (!dialog) {
    dialog = document.createElement("dialog");
    dialog.id = "keys";
    const title = document.createElement("h2");
    title.textContent = "Keys";
    const list = document.createElement("dl");
    list.className = "facts";
    for (const [key, text] of KEYS) {
      const row = document.createElement("div"), term = document.createElement("dt"), what = document.createElement("dd");
      term.textContent = key; what.textContent = text;
      row.append(term, what); list.append(row);
    }
    const form = document.createElement("form");
    form.method = "dialog";
    const close = document.createElement("button");
    close.textContent = "Close";
    form.append(close);
    dialog.append(title, list, form);
    document.body.append(dialog);
  }
  dialog.showModal();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea, select")) return;
  const isGoing = Date.now() - going < 1500;
  going = 0;
  if (isGoing && event.key in PLACES) {
    document.querySelectorAll(".top nav > ul:first-child > li > a")[PLACES[event.key]]?.click();
  } else if (event.key === "g") going = Date.now();
  else if (event.key === "/") document.querySelector("form.filter :is(input:not([type=hidden]), select)")?.focus();
  else if (event.key === "j") moveRow(1);
  else if (event.key === "k") moveRow(-1);
  else if (event.key === "x") document.activeElement.closest("tr")?.querySelector("input[type=checkbox]")?.click();
  else if (event.key === "c") byId("clock")?.click();
  else if (event.key === "t") nextTheme();
  else if (event.key === "?") showHelp();
  else return;
  event.preventDefault();
});

// Buttons that need the script -----------------------------------------------------------------------------------

function revealCopies(inside = document) {
  for (const one of inside.querySelectorAll("button.copy")) one.hidden = !navigator.clipboard;
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.classList.contains("copy")) {
    await navigator.clipboard.writeText(button.dataset.copy);
    const label = button.textContent;
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = label; }, 1200);
  } else if (button.id === "remove-view") removeView();
  else if (button.id === "clock") setClock(CLOCKS[(CLOCKS.indexOf(clock) + 1) % 3]);
  else if (button.id === "theme") nextTheme();
  else if (button.id === "help") showHelp();
  else if (button.id === "newer") location.reload();
  else if (button.id === "live") {
    paused = !paused;
    store("paused", paused ? "yes" : "no");
    if (paused) { disconnect(); liveState("paused"); } else connect();
  }
});

for (const id of ["clock", "theme", "help"]) if (byId(id)) byId(id).hidden = false;
if (byId("clock")) setClock(clock);
if (naming) naming.hidden = false;
showViews();
globalThis.addEventListener("storage", showViews); // another tab has saved or removed one
revealCopies();
setInterval(() => { if (clock === "relative" && !document.hidden) showTimes(); }, 5000);
if (live) {
  live.hidden = false;
  liveState(paused ? "paused" : "live");
  connect();
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) disconnect(); else connect();
  });
  globalThis.addEventListener("pagehide", disconnect);
  globalThis.addEventListener("pageshow", connect);
}
