// The job: what ran and how it ended, the program's own metrics, then the hardware.

import { make, put, short } from "./dom.js";
import { json } from "./ask.js";
import { Board } from "./board.js";
import { panelWith, printPanel, tagged } from "./state.js";
import { rises } from "./series.js";
import { moment, span } from "./time.js";
import { amount, count, digits } from "./units.js";
import { lags } from "./lag.js";

const PROGRAM_MOST = 24;

// [title, [[metric, function, by, where], …]]: a panel is there if one of its metrics is.
const HARDWARE = [
  ["CPU", [
    ["CPU in use", [["cpu_percent", "avg", "host"]]],
    ["CPU by mode", [["node_cpu_seconds_total", "sum", "mode", { mode: "user|system|iowait|nice|irq|softirq|steal" }]]],
    ["Load over one minute", [["node_load1", "avg", "host"]]],
    ["CPU of the job's processes", [["job_process_cpu_seconds_total", "sum", "host"]]],
    ["Temperature of the CPUs", [["node_cpu_temperature_celsius", "max", "host"]]],
  ]],
  ["GPUs", [
    ["GPU in use", [["gpu_utilization_percent", "avg", "host,gpu"]]],
    ["GPU memory", [["gpu_memory_used_bytes", "avg", "host,gpu"]]],
    ["GPU power", [["gpu_power_watts", "avg", "host,gpu"]]],
    ["GPU temperature", [["gpu_temperature_celsius", "max", "host,gpu"]]],
  ]],
  ["Memory", [
    ["Memory available", [["node_memory_MemAvailable_bytes", "avg", "host"]]],
    ["Memory in use", [["used_RAM", "avg", "host"]]],
    ["Memory of the job's processes", [["job_process_resident_memory_bytes", "sum", "host"]]],
    ["Page cache and dirty pages", [["node_memory_Cached_bytes", "sum", ""], ["node_memory_Dirty_bytes", "sum", ""]]],
  ]],
  ["Disks and file systems", [
    ["Disks: read and written", [["node_disk_read_bytes_total", "sum", ""], ["node_disk_written_bytes_total", "sum", ""]]],
    ["Disks: time busy", [["node_disk_io_time_seconds_total", "max", "host"]]],
    ["Lustre: read and written", [["lustre_client_read_bytes_total", "sum", ""], ["lustre_client_written_bytes_total", "sum", ""]]],
  ]],
  ["Network", [
    ["Network: received and sent", [["node_network_receive_bytes_total", "sum", ""], ["node_network_transmit_bytes_total", "sum", ""]]],
    ["InfiniBand: received and sent", [["node_infiniband_port_data_received_bytes_total", "sum", ""], ["node_infiniband_port_data_transmitted_bytes_total", "sum", ""]]],
    ["Slingshot: received and sent", [["cxi_received_bytes_total", "sum", ""], ["cxi_transmitted_bytes_total", "sum", ""]]],
    ["MPI: time in calls", [["mpi_seconds_total", "avg", "host"]]],
  ]],
  ["Pressure: time that tasks waited", [
    ["Waiting for CPU", [["node_pressure_cpu_waiting_seconds_total", "max", "host"]]],
    ["Waiting for memory", [["node_pressure_memory_waiting_seconds_total", "max", "host"]]],
    ["Waiting for disks", [["node_pressure_io_waiting_seconds_total", "max", "host"]]],
  ]],
  ["Power", [
    ["Power of the node", [["node_power_watts", "sum", "host"]]],
    ["Power of CPU packages", [["node_rapl_package_joules_total", "sum", "host"]]],
    ["Power of the node (Cray)", [["cray_pm_node_power_watts", "sum", "host"]]],
  ]],
];

/** A query of a row above, fitted to what was recorded. */
function query(app, [name, how, by, where = {}]) {
  const metric = app.metric(name);
  // A group by a tag of one value says nothing.
  const useful = by.split(",").filter((key) => metric.tags.get(key) > 1);
  const order = useful.includes("host") ? "deviation" : "max";
  return { metric: name, function: how, rate: rises(metric), by: useful, where: Object.assign(tagged(), where), order };
}

/** Panels of the program's own metrics: those of one group and unit, such as loss and its prediction, stand in one panel. */
function program(app) {
  const own = app.page.metrics.filter(({ name, own, series }) => own && series > 0 && !/(^|[./_])step$/.test(name));
  const panels = [];
  const taken = new Set();
  for (const metric of own) {
    if (taken.has(metric.name)) continue;
    const group = [metric];
    const stem = metric.name.replace(/[._/-]?(actual|measured|true)$/, "");
    for (const other of own) {
      if (other !== metric && other.unit === metric.unit && /(predicted|prediction|forecast|expected)/.test(other.name) &&
        other.name.replace(/[._/-]?(predicted|prediction|forecast|expected)[._/-]?/, "") === stem) group.push(other);
    }
    if (group.length === 1 && /(predicted|prediction|forecast|expected)/.test(metric.name) &&
      own.some((other) => other !== metric && other.name.replace(/[._/-]?(actual|measured|true)$/, "") ===
        metric.name.replace(/[._/-]?(predicted|prediction|forecast|expected)[._/-]?/, ""))) continue;
    group.forEach((one) => taken.add(one.name));
    panels.push({
      title: group.map((one) => one.name).join(" and "),
      queries: group.map((one) => ({
        order: "deviation", metric: one.name, function: "avg", rate: rises(one), where: tagged(),
        by: ["host", "rank", "worker", "phase", "name"].filter((key) => one.tags.get(key) > 1).slice(0, 1),
      })),
    });
  }
  return panels;
}

export function show(app, root) {
  const board = new Board(app);
  const stop = new AbortController();
  const head = make("section.head");
  const body = make("div");
  const notes = make("div");
  put(root, head, body);

  function section(title, panels, hint) {
    if (!panels.length) return null;
    const grid = make("div.grid");
    for (const { title: name, queries } of panels) {
      const spec = panelWith(queries);
      const edit = make("a.quiet", { href: app.to("metrics", { m: [spec] }), title: "Change function, grouping and filter" }, "Edit");
      edit.addEventListener("pointerdown", () => (edit.href = app.to("metrics", { m: [spec] })));
      const help = app.metric(queries[0].metric)?.help;
      const panel = board.add(spec, { title: name, tools: edit });
      if (help) panel.heading.title = `${printPanel(spec)}\n${help}`;
      grid.append(panel.element);
    }
    return make("section", make("h2", title, hint && make("small", ` ${hint}`)), grid);
  }

  let built = "";
  function build() {
    const names = app.page.metrics.filter(({ series }) => series > 0).map(({ name }) => name).join("\n");
    if (names === built) return;
    built = names;
    for (const panel of [...board.panels]) board.remove(panel);
    const own = program(app);
    const sections = [section("The program's own metrics", own.slice(0, PROGRAM_MOST),
      own.length > PROGRAM_MOST ? `${PROGRAM_MOST} of ${own.length}: all are under Metrics` : "")];
    for (const [title, rows] of HARDWARE) {
      const there = rows.map(([name, queries]) => ({ title: name, queries: queries.filter(([metric]) => app.metric(metric)?.series > 0) }))
        .filter(({ queries }) => queries.length)
        .map(({ title: name, queries }) => ({ title: name, queries: queries.map((one) => query(app, one)) }));
      sections.push(section(title, there));
    }
    sections.splice(1, 0, notes);
    put(body, board.panels.length ? sections : [make("p.word", app.whyEmpty()), notes]);
  }

  let late = null;
  let before = null;
  function header() {
    const { page } = app;
    put(head, summary(app, late, costs(page, before)));
    before = page;
    // At the head of a job the samples are those of its own database, and nodes report theirs.
    if (page.live && page.nodes.length > 1) {
      board.first.then(() => json("api/nodes", { signal: stop.signal })).then((nodes) => {
        const all = nodes.reduce((sum, node) => sum + (node.samples || 0), 0);
        if (!stop.signal.aborted) head.querySelector(".samples dd")?.replaceChildren(`${count(all)} on ${nodes.length} nodes`);
      }, () => {});
    }
    // How far behind nodes are is asked of their samples; the rest of the header does not wait for it.
    if (app.page.live) {
      board.first.then(() => lags(app, stop.signal)).then((found) => {
        if (!found || stop.signal.aborted) return;
        late = found;
        head.querySelector(".late")?.replaceWith(lateness(late));
      }, () => {});
    }
  }

  header();
  build();
  return {
    notes,
    update({ ranged, before }) {
      if (ranged) board.refresh();
      else if (before) board.redraw();
    },
    told() {
      header();
      build();
    },
    first: board.first,
    pace: () => board.pace(),
    tick: () => board.tick(),
    end() {
      stop.abort();
      board.end();
    },
  };
}

/** How far behind the clock the nodes are: the usual one, and the last one by name if it is far behind that. */
function lateness(late) {
  const words = late ? [span(late.usual), late.most > 3 * late.usual + 2000 && make("strong.amber", ` ${short(late.name, 32)} ${late.most >= late.window ? "more than " : ""}${span(late.most)}`)] : "–";
  const shown = fact("Behind the clock", words);
  shown.className = "late";
  return shown;
}

/** What telem takes: between this look at it and the one before, or else in all. */
function costs(page, before) {
  const { cost, samples, now } = page;
  const found = { samples: samples === undefined ? null : count(samples), cost: null };
  if (cost) found.cost = `${digits(cost.cpu_seconds, 3)} s of CPU · at most ${amount(cost.memory_bytes_max, "bytes")}`;
  const passed = before && before !== page ? (now - before.now) / 1000 : 0;
  if (passed > 1 && page.live) {
    if (cost && before.cost) found.cost = `${digits(((cost.cpu_seconds - before.cost.cpu_seconds) / passed) * 100, 2)} % of a core · at most ${amount(cost.memory_bytes_max, "bytes")}`;
    if (samples >= before.samples) found.samples = `${count(samples)}, ${digits((samples - before.samples) / passed, 3)}/s`;
  }
  return found;
}

function fact(name, value, kind) {
  return make("div", make("dt", name), make(kind ? `dd.${kind}` : "dd", value));
}

/** The job in a few facts. */
function summary(app, late, { samples, cost }) {
  const { page } = app;
  const one = page.job;
  const facts = [];
  const running = page.live && (!one || !one.end);
  const exit = one?.exit_code;
  const title = one?.name || one?.command || (one?.id && `Job ${one.id}`) || (page.live ? "telem is recording this node" : "A saved recording");
  const kind = running ? "good" : exit === 0 ? "good" : exit === undefined || exit === null ? "" : "bad";
  const how = running ? "running" : exit === undefined || exit === null ? (page.live ? "ended" : "saved") : exit === 0 ? "finished" : `exit code ${exit}`;
  const signalled = !running && one?.signal ? `ended by signal ${one.signal}` : "";
  const begin = one?.begin ?? page.first, end = one?.end ?? (page.live ? app.now() : page.last);
  if (begin) facts.push(fact("Began", moment(begin, app.utc)));
  if (begin && end) facts.push(fact(running ? "Running for" : "Took", span(Math.max(0, Math.round((end - begin) / 1000) * 1000))));
  if (one?.end) facts.push(fact("Ended", moment(one.end, app.utc)));
  const silent = page.nodes.filter(({ state }) => state === "down" || state === "suspect");
  facts.push(fact("Nodes", [count(page.nodes.length + page.nodes_left_out), silent.length > 0 &&
    make("strong.amber", { title: silent.map(({ name, state }) => `${name}: ${state}`).join("\n") }, ` ${silent.length} silent: ${short(silent.slice(0, 3).map(({ name }) => name).join(", "), 48)}`)]));
  facts.push(fact("Metrics", count(page.metrics.length + page.metrics_left_out)));
  if (samples) {
    const shown = fact("Samples", samples);
    shown.className = "samples";
    facts.push(shown);
  }
  if (page.live) facts.push(lateness(late));
  if (cost) facts.push(fact(page.live ? "telem takes" : "This telem took", cost));
  if (page.level) facts.push(fact("Level", String(page.level)));
  return [
    make("div.title", make("h1", { title }, short(title, 120)), make(signalled ? "span.badge.bad" : kind ? `span.badge.${kind}` : "span.badge", signalled || how)),
    one?.command && one.command !== title && make("code.command", { title: one.command }, short(one.command, 200)),
    make("dl.facts", facts),
  ];
}
