// Parts of the pages of gateway and coordinator: words and numbers, elements, charts, the token, and the state of the
// connection. A page is a script of its own, loaded after this one.
//
// Texts from a server enter the page as text and never as HTML. The history of the charts is what this page has seen.
// Elements of a list are made once and then changed, so that a screen reader and a selection survive a look.
"use strict";

const KEPT = 300; // Looks in the charts: five minutes.
const LOST = 5000; // Milliseconds without a look after which the page says so.

const byId = (id) => document.getElementById(id);

let lastLook = 0;
const histories = new Map();

/* Words and numbers */

function number(value) {
  if (value == null) return "–";
  const digits = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  const text = value.toFixed(digits);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text.replace(/\B(?=(\d{3})+$)/g, "\u202f");
}
const rate = (value) => `${number(value)}/s`;
function span(seconds) {
  if (seconds == null) return "–";
  if (seconds >= 86400) return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
  if (seconds >= 3600) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  if (seconds >= 120) return `${number(seconds / 60)} min`;
  if (seconds >= 1 || seconds === 0) return `${number(seconds)} s`;
  return seconds >= 1e-3 ? `${number(seconds * 1e3)} ms` : `${number(seconds * 1e6)} µs`;
}
const count = (n, word) => `${number(n)} ${word}${n === 1 ? "" : "s"}`;
const clock = (unix) => new Date(unix * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });

/* Elements */

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text != null) element.textContent = text;
  return element;
}
function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
function state(element, name) {
  element.classList.toggle("bad-state", name === "bad");
  element.classList.toggle("warn-state", name === "warn");
}
function svg(tag, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}
function newChart(label) {
  const chart = svg("svg", { class: "chart", viewBox: `0 0 ${KEPT} 40`, preserveAspectRatio: "none", role: "img", "aria-label": label });
  chart.paths = {};
  for (const name of ["limit", "other", "main"]) {
    chart.paths[name] = svg("path", { class: name });
    chart.append(chart.paths[name]);
  }
  return chart;
}

/* Draws points over time. A gap stays a gap. */
function draw(chart, main, other, limit) {
  const values = [...main, ...(other || []), limit].filter((v) => v != null);
  const top = Math.max(...values, 1e-9) * 1.05;
  const y = (value) => (40 - (value / top) * 38).toFixed(1);
  const path = (points) => {
    let text = "";
    let open = false;
    points.forEach((value, index) => {
      if (value == null) { open = false; return; }
      text += `${open ? "L" : "M"}${KEPT - points.length + index} ${y(value)}`;
      open = true;
    });
    return text;
  };
  chart.paths.main.setAttribute("d", path(main));
  chart.paths.other.setAttribute("d", other ? path(other) : "");
  chart.paths.limit.setAttribute("d", limit == null ? "" : `M0 ${y(limit)}L${KEPT} ${y(limit)}`);
}
function remember(key, values) {
  let history = histories.get(key);
  if (!history) histories.set(key, (history = values.map(() => [])));
  values.forEach((value, index) => {
    history[index].push(value);
    if (history[index].length > KEPT) history[index].shift();
  });
  return history;
}

/* Keeps one element for each item, in the order of the items. */
function keep(list, known, items, key, create, update) {
  const present = new Set();
  let after = null;
  for (const item of items) {
    const name = key(item);
    present.add(name);
    let element = known.get(name);
    if (!element) known.set(name, (element = create(item)));
    update(element, item);
    if (element.previousElementSibling !== after || element.parentNode !== list) {
      if (after) after.after(element); else list.prepend(element);
    }
    after = element;
  }
  for (const [name, element] of known) {
    if (!present.has(name)) { element.remove(); known.delete(name); histories.delete(name); }
  }
}

/* Fills a bar up to a value, with a mark at a limit. */
function fill(part, value, limit, all) {
  const top = Math.max(value || 0, limit || 0, all || 0, 1e-9);
  part.fill.style.width = `${((value || 0) / top) * 100}%`;
  part.tick.hidden = limit == null;
  if (limit != null) part.tick.style.left = `calc(${(limit / top) * 100}% - 3px)`;
}

/* Shows name, value and note of the figures of the whole. */
function showBoxes(boxes) {
  const list = byId("figures");
  boxes.forEach(([name, value, note], index) => {
    let box = list.children[index];
    if (!box) {
      box = make("div");
      const big = make("dd");
      big.append(make("span"), " ", make("small"));
      box.append(make("dt"), big);
      list.append(box);
    }
    say(box.firstElementChild, name);
    say(box.querySelector("span"), value);
    say(box.querySelector("small"), note);
  });
  while (list.children.length > boxes.length) list.lastElementChild.remove();
}

/* The connection */

const secret = { get: () => sessionStorage.getItem("weirgate-token"), set: (value) => sessionStorage.setItem("weirgate-token", value) };
const headers = () => (secret.get() ? { Authorization: `Bearer ${secret.get()}` } : {});

/* Asks the reader for the token, and returns when there is one. */
async function askToken() {
  byId("token").hidden = false;
  say(byId("link"), secret.get() ? "the token is wrong" : "waiting for the token");
  await new Promise((entered) => byId("token").addEventListener("submit", (event) => {
    event.preventDefault();
    secret.set(byId("secret").value);
    entered();
  }, { once: true }));
}

/* Notes that a look has come. */
function looked() {
  lastLook = Date.now();
  byId("token").hidden = true;
  byId("link").classList.remove("lost");
  say(byId("link"), "live");
}
setInterval(() => {
  if (!lastLook || Date.now() - lastLook < LOST) return;
  byId("link").classList.add("lost");
  say(byId("link"), `no answer for ${span(Math.round((Date.now() - lastLook) / 1000))}: the figures are old`);
}, 1000);

/* Calls `follow` for ever. It pauses for a second after each failure. */
async function connect(follow) {
  for (;;) {
    try {
      await follow();
    } catch (error) {
      if (!(error instanceof TypeError)) console.error(error);
      await pause(1000);
    }
  }
}
const pause = (milliseconds) => new Promise((later) => setTimeout(later, milliseconds));
