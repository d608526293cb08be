// The gateway's page. It reads /stream, one look a second, and /events where a look has new ones. parts.js is before it.
"use strict";

const SHOWN_EVENTS = 100;
const FIRST_CLASSES = 25; // Shown at first, so that the parts below them are not far away.
const SITE_CLASSES = 4; // Columns of the table of gateways.
const SITE_GATEWAYS = 50; // Rows of it.
const GOOD = new Set(["node_up", "node_appeared", "upstream_usable", "shedding_ended", "guarantee_held", "limit_possible"]);
const BAD = new Set(["node_down", "node_ejected", "upstream_unusable", "guarantee_missed", "limit_impossible",
  "shares_minimum", "gateway_fenced"]);

let lastEvent = 0;
let uptime = 0; // Seconds, at the last look.
const rows = new Map();
let order = []; // Classes in the order of their rows.
let all = false; // Whether all of them are shown.

/* Classes */

const className = (c) => (c.key == null ? c.name : `${c.name} · ${c.key}`);
const misses = (c) => c.achieved.throughput_held === false || c.achieved.response_time_held === false;
const promised = (c) => c.guarantee.throughput_per_second != null || c.guarantee.response_time != null;

function newClass(c) {
  const row = make("tr");
  const parts = (row.parts = {});
  const head = make("th");
  head.scope = "row";
  parts.name = make("span", "", className(c));
  parts.state = make("small");
  head.append(parts.name, parts.state);
  row.append(head);
  for (const [name, label] of [["throughput", "throughput: served, sent and guaranteed"], ["response", "response time and limit"]]) {
    const cell = make("td", "wide");
    const grid = make("div", "cell");
    const figures = make("div", "number");
    const part = (parts[name] = { big: make("b"), small: make("small"), chart: newChart(`${className(c)}: ${label}, last five minutes`), bar: make("div", "bar"), fill: make("i"), tick: make("u") });
    part.bar.append(part.fill, part.tick);
    figures.append(part.big, part.small);
    grid.append(figures, part.chart, part.bar);
    cell.append(grid);
    row.append(cell);
  }
  for (const [name, label] of [["refused", "Refused"], ["waiting", "Waiting"], ["flight", "In flight"]]) {
    parts[name] = make("td", "number");
    parts[name].dataset.name = label;
    row.append(parts[name]);
  }
  return row;
}
function showClass(row, c) {
  const { parts } = row;
  const got = c.achieved;
  const whole = c.guarantee.throughput_per_second;
  const floor = c.part_per_second ?? whole; // What this gateway keeps of it.
  const limit = c.guarantee.response_time;
  const text = misses(c) ? "missed" : promised(c) ? "held" : "best effort";
  const share = c.enforced_share ?? 1;
  const mode = share >= 1 ? "" : share > 0 ? `, enforced for ${number(share * 100)} %` : ", only observed";
  say(parts.state, (c.limit_impossible ? `${text}, limit impossible` : text) + mode);
  parts.state.className = misses(c) || c.limit_impossible ? "bad" : promised(c) ? "good" : "soft";
  say(parts.throughput.big, rate(got.served_per_second));
  say(parts.throughput.small, `of ${rate(got.offered_per_second)} sent${floor == null ? "" : `, guaranteed\u00a0${rate(floor)}${c.part_per_second == null ? "" : ` of ${rate(whole)}`}`}`);
  parts.throughput.big.className = got.throughput_held === false ? "bad" : "";
  fill(parts.throughput, got.served_per_second, floor, got.offered_per_second);
  const statistic = limit ? limit.statistic : "p95";
  const response = limit ? got.limited && got.limited.seconds : got.p95_seconds;
  say(parts.response.big, span(response));
  say(parts.response.small, limit ? `${statistic}, limit ${span(limit.seconds)}` : `${statistic}, no limit`);
  parts.response.big.className = got.response_time_held === false ? "bad" : "";
  fill(parts.response, response, limit && limit.seconds, null);
  parts.response.bar.hidden = !limit;
  parts.response.fill.className = got.response_time_held === false ? "over" : "";
  const would = got.would_shed_per_second || 0;
  const refused = got.shed_per_second > 0 ? rate(got.shed_per_second) : would > 0 ? "" : "–";
  say(parts.refused, [refused, would > 0 ? `would: ${rate(would)}` : ""].filter((text) => text).join(", "));
  parts.refused.classList.toggle("warn", got.shed_per_second + would > 0);
  say(parts.waiting, number(c.waiting));
  say(parts.flight, number(c.outstanding));
  const history = remember(c.class, [got.served_per_second, got.offered_per_second, response]);
  if (row.hidden) return;
  draw(parts.throughput.chart, history[0], history[1], floor);
  draw(parts.response.chart, history[2], null, limit && limit.seconds);
}
/* Shows the rows that match the filter, or the first ones if there is none. */
function choose() {
  const wanted = byId("filter").value.toLowerCase();
  order.forEach((c, index) => {
    rows.get(c.class).hidden = wanted ? !className(c).toLowerCase().includes(wanted) : !all && index >= FIRST_CLASSES;
  });
  byId("all").hidden = wanted !== "" || order.length <= FIRST_CLASSES;
  say(byId("all"), all ? `Show the first ${FIRST_CLASSES} classes` : `Show all ${order.length} classes`);
}
function showClasses(look) {
  order = [...look.classes].sort((a, b) => misses(b) - misses(a) || promised(b) - promised(a) || a.class - b.class);
  keep(document.querySelector("#classes tbody"), rows, order, (c) => c.class, newClass, showClass);
  choose();
  byId("left-out").hidden = look.classes_left_out === 0;
  say(byId("left-out"), `Not shown: ${number(look.classes_left_out)} with fewer requests. /snapshot has all of them.`);
}

/* The rest */

function showVerdict(look) {
  const bad = look.classes.filter(misses);
  const withPromise = look.classes.filter(promised);
  const down = [...new Set(look.engine.nodes.map((n) => n.pool))].filter((pool) => look.engine.nodes.every((n) => n.pool !== pool || n.state !== "up"));
  let text = withPromise.length ? "All guarantees are held." : "No class has a guarantee.";
  let kind = "good";
  if (bad.length) {
    const names = bad.slice(0, 4).map(className).join(", ") + (bad.length > 4 ? ` and ${bad.length - 4} more` : "");
    text = `Guarantees are missed: ${names}.`;
    kind = "bad";
  }
  if (down.length) {
    text = `No node of ${down.join(", ")} is usable. ${bad.length ? text : ""}`;
    kind = "bad";
  }
  const { demanded_capacity: demanded, usable_capacity: usable } = look.engine;
  if (kind === "good" && demanded > usable) {
    text += " But the guarantees need more than the usable nodes have.";
    kind = "warn";
  }
  if (look.phase !== "ready") {
    text = `This process is ${look.phase}. ${text}`;
    if (kind === "good") kind = "warn";
  }
  const box = byId("verdict");
  say(box.firstElementChild, text);
  state(box, kind);
  document.title = `${kind === "bad" ? "✘" : kind === "warn" ? "!" : "✔"} Weirgate`;
}
function showFigures(look) {
  const sum = (of) => look.classes.reduce((total, c) => total + of(c.achieved), 0);
  const up = look.engine.nodes.filter((n) => n.state === "up").length;
  const { engine } = look;
  const would = sum((a) => a.would_shed_per_second || 0);
  const boxes = [
    ["Served", rate(sum((a) => a.served_per_second)), `of ${rate(sum((a) => a.offered_per_second))} sent`],
    ["Refused", rate(sum((a) => a.shed_per_second)), would > 0 ? `would refuse ${rate(would)} more` : ""],
    ["Waiting", number(engine.waiting), ""],
    ["In flight", number(engine.outstanding), engine.window == null ? "no limit" : `window ${number(engine.window)}`],
    ["Usable nodes", `${up}`, `of ${engine.nodes.length}`],
  ];
  if (engine.demanded_capacity != null && engine.usable_capacity != null) {
    boxes.push(["Guarantees need", `${number((engine.demanded_capacity / engine.usable_capacity) * 100)} %`, "of usable capacity"]);
  }
  const { site } = look; // Absent if this gateway keeps all guarantees alone.
  if (site) {
    const divides = site.coordinator == null ? "none is elected" : site.coordinator === site.gateway ? "divides the guarantees" : `${site.coordinator} divides the guarantees`;
    boxes.push([`Shares of ${site.gateway}`, site.stage, [divides, site.error ?? site.etcd_error].filter((text) => text).join(": ")]);
    if (site.in_flight_of_others != null) boxes.push(["In flight elsewhere", site.in_flight_of_others.toFixed(1), "at the other gateways"]);
  }
  showBoxes(boxes);
}

const gateways = new Map();
const live = (m) => m.phase === "live";
/* Fills the cells of a row after its first one, each with a figure and a note. */
function fillCells(row, cells) {
  while (row.children.length > cells.length + 1) row.lastElementChild.remove();
  cells.forEach(([figure, note], index) => {
    let cell = row.children[index + 1];
    if (!cell) {
      cell = make(row.dataset.cell ?? "td", "number");
      if (row.dataset.cell) cell.scope = "col";
      cell.append(make("b"), make("small"));
      row.append(cell);
    }
    say(cell.firstElementChild, figure);
    say(cell.lastElementChild, note);
  });
}
/* Shows each gateway if this one is elected, and otherwise the one that does. */
function showSite(look) {
  const { site } = look;
  const section = byId("site");
  section.hidden = site?.coordinator == null;
  if (section.hidden) return;
  const elected = site.members.some((m) => m.phase != null);
  section.querySelector("table").hidden = !elected;
  const note = section.querySelector("p");
  const host = site.members.find((m) => m.name === site.coordinator)?.address.match(/^(?!unix:)(.+):/)?.[1];
  say(note, elected ? "" : `${site.coordinator} divides the guarantees, and its page shows each gateway.${host ? ` Its host is ${host}.` : ""}`);
  if (!elected) return;
  const wanted = byId("filter").value.toLowerCase();
  const missed = new Set(look.classes.filter(misses).map((c) => c.name));
  const all = (site.members[0].shares ?? []).map((share) => share.class);
  const chosen = all.filter((name) => name.toLowerCase().includes(wanted)).sort((a, b) => missed.has(b) - missed.has(a)).slice(0, SITE_CLASSES);
  const left = site.classes.length - chosen.length;
  say(note, left > 0 ? `Not shown: ${number(left)} more ${left === 1 ? "class" : "classes"} with a guarantee. To choose, filter the classes above by name.` : "");
  const whole = chosen.map((name) => site.classes.find((c) => c.class === name));
  fillCells(section.querySelector("thead tr"), [["State", ""], ["Last report", ""], ["In flight", ""], ...whole.map((c) => [c.class, `holds, of ${rate(c.guaranteed_per_second)} guaranteed`])]);
  const perSecond = (value) => (value == null ? "–" : rate(value));
  const of = (held, demand) => [perSecond(held), demand == null ? "no lease" : `demand ${rate(demand)}`];
  const demand = (m) => m.shares?.[0]?.demand_per_second ?? 0;
  // Those without a lease first, because something is wrong with them.
  const rows = [...site.members].sort((a, b) => live(a) - live(b) || demand(b) - demand(a)).slice(0, SITE_GATEWAYS).sort((a, b) => (a.name < b.name ? -1 : 1));
  const create = (m) => { const row = make("tr"); const head = make("th", "", m.name); head.scope = "row"; row.append(head); return row; };
  const update = (row, m) => {
    const shares = chosen.map((name) => m.shares.find((share) => share.class === name));
    fillCells(row, [[m.phase, ""], [m.age_seconds == null ? "–" : `${m.age_seconds.toFixed(1)} s ago`, ""], [m.in_flight == null ? "–" : m.in_flight.toFixed(1), ""],
      ...shares.map((share) => of(share.held_per_second, share.demand_per_second))]);
    row.children[1].classList.toggle("warn", !live(m));
  };
  keep(section.querySelector("tbody"), gateways, rows, (m) => `g${m.name}`, create, update);
  const flight = site.members.reduce((sum, m) => sum + (m.in_flight ?? 0), 0);
  const sums = whole.map((c) => [perSecond(c.held_per_second), `demand ${perSecond(c.site_demand_per_second)}${c.unstated_per_second == null ? "" : `, ${rate(c.unstated_per_second)} not stated yet`}`]);
  const name = rows.length < site.members.length ? `All ${site.members.length}` : "All";
  say(section.querySelector("tfoot th"), name);
  fillCells(section.querySelector("tfoot tr"), [[`${site.members.filter(live).length} of ${site.members.length} live`, ""], ["", ""], [flight.toFixed(1), ""], ...sums]);
}

const refusals = new Map();
function showRefusals(look) {
  byId("refusals").hidden = look.refusals.length === 0;
  const create = () => { const item = make("li"); item.append(make("b"), make("span"), make("small", "soft")); return item; };
  const update = (item, r) => {
    const [name, what, when] = item.children;
    say(name, `${r.class} `);
    say(what, `${count(r.count, "request")} refused, of ${number(Math.max(r.offered, r.count))} that arrived: ${r.why}.`);
    const ago = look.engine.now_seconds - r.to_seconds;
    say(when, ` ${r.reason}, ${r.lasts ? `for ${span(Math.max(1, Math.round(look.engine.now_seconds - r.from_seconds)))} until now` : `${span(Math.round(ago))} ago`}`);
    name.className = r.lasts ? "warn" : "";
  };
  keep(document.querySelector("#refusals ul"), refusals, look.refusals, (r) => `r${r.class}@${r.from_seconds}`, create, update);
}

const certificates = new Map();
function showCertificates(look) {
  // Absent without an authority.
  const failing = (look.acme ?? []).filter((c) => c.error != null);
  byId("certificates").hidden = failing.length === 0;
  const create = () => { const item = make("li"); item.append(make("b", "warn"), make("span"), make("small", "soft")); return item; };
  const update = (item, c) => {
    const [name, what, when] = item.children;
    say(name, `${c.names.join(", ")} `);
    say(what, `${c.error}.`);
    const end = c.not_after_seconds == null ? "none is in force" : `the old one ends ${new Date(c.not_after_seconds * 1000).toISOString().slice(0, 10)}`;
    say(when, ` ${count(c.failures, "failed attempt")}, ${end}, next attempt in ${span(Math.max(1, Math.round(c.next_order_in_seconds)))}`);
  };
  keep(document.querySelector("#certificates ul"), certificates, failing, (c) => `c${c.file}`, create, update);
}

const CONTENTION = {
  unseen: "requests were not seen to wait for one another on the nodes",
  trial: "response times have changed: more requests are let in on trial",
  seen: "requests wait for one another on the nodes: their number is bounded",
};
const windows = new Map();
function showWindows(look) {
  const groups = look.engine.machine_groups;
  const name = (g) => g.pools.join(", ") + (g.resource ? `, ${g.resource}` : "");
  const create = (g) => {
    const item = make("li");
    const grid = make("div", "cell");
    const figures = make("div", "number");
    item.parts = { big: make("b"), small: make("small"), chart: newChart(`${name(g)}: requests in flight and window, last five minutes`), why: make("small", "soft") };
    figures.append(make("div", "", name(g)), item.parts.big, item.parts.small);
    grid.append(figures, item.parts.chart);
    item.append(grid, item.parts.why);
    return item;
  };
  const update = (item, g) => {
    const { parts } = item;
    say(parts.big, number(g.outstanding));
    say(parts.small, g.window == null ? "no limit" : `window ${number(g.window)}`);
    const lines = [g.contention && CONTENTION[g.contention.state], g.window != null && `${span(Math.round(look.engine.now_seconds - g.moved.at_seconds))} ago: ${g.moved.why}`];
    say(parts.why, lines.filter(Boolean).join(". "));
    const history = remember(`w${name(g)}`, [g.outstanding, g.window]);
    draw(parts.chart, history[0], history[1], null);
  };
  keep(document.querySelector("#windows ul"), windows, groups, (g) => `w${name(g)}`, create, update);
}

const nodes = new Map();
const NODE = { up: "usable", down: "down: health checks fail", draining: "drained", ejected: "ejected: requests failed" };
function showNodes(look) {
  const create = (n) => {
    const item = make("li");
    item.append(make("b", "", n.name), make("small"), make("small"));
    item.title = n.pool;
    return item;
  };
  const update = (item, n) => {
    const [, status, figures] = item.children;
    const bad = n.state === "down" || n.state === "ejected";
    const slow = n.share == null ? "" : `, slow start ${number(n.share * 100)} %`;
    const until = n.state === "ejected" && n.ejected_until_seconds != null ? `, ${span(Math.max(0, Math.round(n.ejected_until_seconds - look.engine.now_seconds)))} more` : "";
    say(status, `${n.pool}: ${NODE[n.state]}${until}${slow}`);
    const [served] = remember(`n${n.pool}/${n.name}`, [n.served]);
    const before = served.length > 10 ? served[served.length - 11] : served[0];
    const perSecond = (n.served - before) / Math.max(1, Math.min(10, served.length - 1));
    const workers = n.workers == null ? "" : ` on ${count(n.workers, "worker")}`;
    say(figures, `${number(n.outstanding)} in flight${workers}, ${rate(Math.max(0, perSecond))}, ${count(n.failed, "failure")}`);
    state(item, bad ? "bad" : n.state === "draining" || n.share != null ? "warn" : "good");
  };
  keep(document.querySelector("#nodes ul"), nodes, look.engine.nodes, (n) => `n${n.pool}/${n.name}`, create, update);
}

function showEvents(events) {
  const list = document.querySelector("#events ol");
  for (const event of events) {
    lastEvent = Math.max(lastEvent, event.number);
    const item = make("li");
    const time = make("time", "", clock(event.unix_seconds));
    time.dateTime = new Date(event.unix_seconds * 1000).toISOString();
    item.append(time, " ", make("span", GOOD.has(event.kind) ? "good" : BAD.has(event.kind) ? "bad" : "", event.text));
    list.prepend(item);
  }
  while (list.children.length > SHOWN_EVENTS) list.lastElementChild.remove();
  byId("events").hidden = list.children.length === 0;
}

function show(look) {
  // After a restart everything begins anew.
  if (look.engine.now_seconds < uptime) {
    lastEvent = 0;
    histories.clear();
    document.querySelector("#events ol").replaceChildren();
  }
  uptime = look.engine.now_seconds;
  say(byId("about"), `discipline ${look.engine.discipline}, configuration ${look.version}, up ${span(Math.floor(uptime))}`);
  for (const id of ["verdict", "figures", "classes", "windows", "nodes"]) byId(id).hidden = false;
  showVerdict(look);
  showFigures(look);
  showClasses(look);
  showSite(look);
  showRefusals(look);
  showCertificates(look);
  showWindows(look);
  showNodes(look);
  if (look.last_event > lastEvent) fetchEvents();
}

/* The connection */

let asking = false;
async function fetchEvents() {
  if (asking) return;
  asking = true;
  try {
    const answer = await fetch(`events?after=${lastEvent}`, { headers: headers() });
    if (answer.ok) showEvents((await answer.json()).events);
  } catch {
    // The stream says that the connection is lost.
  } finally {
    asking = false;
  }
}

/* Reads one response of the stream to its end. */
async function follow() {
  const answer = await fetch("stream", { headers: headers() });
  if (answer.status === 401) return askToken();
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const messages = text.split("\n\n");
    text = messages.pop();
    const last = messages.pop();
    if (last == null) continue;
    const data = last.split("\n").find((line) => line.startsWith("data: "));
    if (!data) continue;
    looked();
    show(JSON.parse(data.slice(6)));
  }
}
byId("filter").addEventListener("input", choose);
byId("all").addEventListener("click", () => { all = !all; choose(); });
connect(follow);
