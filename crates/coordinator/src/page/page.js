// The coordinator's page. It reads /reserves once a second. parts.js is before it.
"use strict";

const EVERY = 1000; // Milliseconds between two looks. People do not read faster.
const SHOWN_NODES = 100; // More are not read. /reserves has all of them.

const rows = new Map();
const cards = new Map();
const runs = new Map();
let uptime = 0; // Seconds, at the last look.

const percent = (value) => (value == null ? "–" : `${number(value)} %`);
const isUp = (node) => node.state === "up";

/* The mean of a figure of a class over the nodes that are up. */
function mean(look, name, figure) {
  const up = look.nodes.filter(isUp);
  if (up.length === 0) return null;
  const here = up.flatMap((node) => node.classes).filter((c) => c.name === name);
  return here.reduce((sum, c) => sum + (c[figure] ?? 0), 0) / up.length;
}

function showVerdict(look) {
  const up = look.nodes.filter(isUp).length;
  const all = up === look.nodes.length;
  const kind = look.failure || up === 0 ? "bad" : all ? "good" : "warn";
  let text = all ? `All ${count(up, "node")} ${up === 1 ? "is" : "are"} up.` : `${up} of ${look.nodes.length} nodes are up.`;
  if (up === 0) text = "No node is up. The agent of each node, weirgate agent, connects to this coordinator.";
  if (look.failure) text += ` The last run failed: ${look.failure}. The earlier shares stay in force.`;
  const box = byId("verdict");
  say(box.firstElementChild, text);
  state(box, kind);
  document.title = `${kind === "bad" ? "✘" : kind === "warn" ? "!" : "✔"} Weirgate reserves`;
}

function showFigures(look) {
  const up = look.nodes.filter(isUp);
  const cpu = up.filter((node) => node.run != null).map((node) => node.figures.cpu);
  const done = Object.values(look.runs.done).reduce((sum, n) => sum + n, 0);
  showBoxes([
    ["Nodes up", `${up.length}`, `of ${look.nodes.length}`],
    ["CPU in use", percent(cpu.length ? cpu.reduce((sum, n) => sum + n, 0) / cpu.length : null), "mean of the nodes that are up"],
    ["Promised", percent(look.classes.reduce((sum, c) => sum + c.share_percent, 0)), "of the cluster"],
    ["Runs", number(done), look.runs.failed > 0 ? `${number(look.runs.failed)} failed` : ""],
    ["Refused connections", number(look.refused), "not of an agent"],
  ]);
}

function newClass(c) {
  const row = make("tr");
  const parts = (row.parts = { bar: make("div", "bar"), fill: make("i"), tick: make("u"), big: make("b"), small: make("small"), full: make("td", "number") });
  const head = make("th", "", c.name);
  head.scope = "row";
  const cell = make("td", "wide");
  const grid = make("div", "cell");
  const texts = make("div", "number");
  parts.chart = newChart(`${c.name}: CPU used, share in force and promised, last five minutes`);
  parts.bar.append(parts.fill, parts.tick);
  texts.append(parts.big, parts.small);
  grid.append(texts, parts.chart, parts.bar);
  cell.append(grid);
  parts.full.dataset.name = "Uses all of its share on";
  row.append(head, cell, parts.full);
  return row;
}
function showClasses(look) {
  const up = look.nodes.filter(isUp);
  const update = (row, c) => {
    const { parts } = row;
    const used = mean(look, c.name, "usage_percent");
    const share = mean(look, c.name, "share_percent");
    say(parts.big, percent(used));
    say(parts.small, `${share == null ? "" : `of ${percent(share)} in force, `}promised ${percent(c.share_percent)}`);
    fill(parts, used, c.share_percent, share);
    const full = up.filter((node) => node.classes.some((here) => here.name === c.name && here.sink)).length;
    say(parts.full, full === 0 ? "–" : count(full, "node"));
    const [first, second] = remember(c.name, [used, share]);
    draw(parts.chart, first, second, c.share_percent);
  };
  keep(document.querySelector("#classes tbody"), rows, look.classes, (c) => c.name, newClass, update);
}

function showNodes(look) {
  const create = (node) => {
    const item = make("li");
    item.append(make("b", "", node.name), make("small"), make("small"), make("div"));
    return item;
  };
  const update = (item, node) => {
    const [, status, cpu, list] = item.children;
    say(status, node.state === "silent" ? "silent: no report for a second" : node.state === "up" ? "up" : "down: its agent is not connected");
    say(cpu, node.run == null ? "" : `CPU ${percent(node.figures.cpu)}, shares of run ${number(node.run)}`);
    const lines = node.classes.filter((c) => c.usage_percent != null && c.share_percent != null).map((c) => {
      const next = c.allocation_percent != null && Math.abs(c.allocation_percent - c.share_percent) >= 0.05 ? ` → ${percent(c.allocation_percent)}` : "";
      return `${c.name}: ${percent(c.usage_percent)} of ${percent(c.share_percent)}${next}${c.sink ? ", all of it" : ""}`;
    });
    while (list.children.length > lines.length) list.lastElementChild.remove();
    while (list.children.length < lines.length) list.append(make("small"));
    lines.forEach((line, index) => say(list.children[index], line));
    state(item, isUp(node) ? "good" : node.state === "silent" ? "warn" : "bad");
  };
  const shown = look.nodes.slice(0, SHOWN_NODES);
  keep(document.querySelector("#nodes ul"), cards, shown, (node) => `n${node.name}`, create, update);
  byId("left-out").hidden = shown.length === look.nodes.length;
  say(byId("left-out"), `The first ${shown.length} of ${look.nodes.length} nodes. /reserves has all of them.`);
}

function cause(run) {
  switch (run.cause) {
    case "sink_began": return `${run.node}: ${run.class} began to use all of its share`;
    case "sink_ended": return `${run.node}: ${run.class} no longer uses all of its share`;
    case "fell": return `${run.node}: ${run.class} uses less`;
    case "joined": return `${run.node} came up`;
    case "left": return `${run.node} went down`;
    default: return "timer";
  }
}
function showRuns(look) {
  const create = () => { const item = make("li"); item.append(make("span", "when"), make("span"), make("small", "soft")); return item; };
  const update = (item, run) => {
    const [when, what, figures] = item.children;
    say(when, `${span(Math.round(run.seconds_ago))} ago`);
    say(what, `${cause(run)} `);
    const unused = run.deviation_percent >= 0.05 ? `, ${percent(run.deviation_percent)} cannot be used` : "";
    say(figures, `run ${number(run.number)}: ${percent(run.moved_percent)} moved${unused}, ${count(run.nodes, "node")}, took ${span(run.solve_seconds)}`);
  };
  keep(document.querySelector("#events ol"), runs, look.last_runs, (run) => `r${run.number}`, create, update);
}

function show(look) {
  // After a restart everything begins anew.
  if (look.now_seconds < uptime) histories.clear();
  uptime = look.now_seconds;
  const every = look.every_seconds == null ? "" : `every ${span(look.every_seconds)}`;
  const when = [every, look.on_demand ? "on demand" : ""].filter(Boolean).join(" and ");
  say(byId("about"), `new shares ${when}, up ${span(Math.floor(uptime))}`);
  for (const id of ["verdict", "figures", "classes", "nodes"]) byId(id).hidden = false;
  byId("events").hidden = look.last_runs.length === 0;
  showVerdict(look);
  showFigures(look);
  showClasses(look);
  showNodes(look);
  showRuns(look);
}

async function follow() {
  const answer = await fetch("reserves", { headers: headers() });
  if (answer.status === 401) return askToken();
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  const look = await answer.json();
  looked();
  show(look);
  await pause(EVERY);
}
connect(follow);
