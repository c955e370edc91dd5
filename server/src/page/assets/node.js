// One node: its cores, memory, disks, interfaces and processes, and what its level leaves out.

import { make, put, short } from "./dom.js";
import { Board } from "./board.js";
import { panelWith, tagged } from "./state.js";
import { rises } from "./series.js";

// [title, [[metric, function, by]], the level from which on there is more than one line, what that is]
const PANELS = [
  ["CPU", [["CPU in use", [["cpu_percent", "avg", ""]]], ["CPU by mode", [["node_cpu_seconds_total", "sum", "mode"]], { mode: "user|system|iowait|nice|irq|softirq|steal" }],
    ["Cores in use", [["node_cpu_seconds_total", "sum", "cpu"]], { mode: "user|system|nice" }, 3, "each core"],
    ["Load over one minute", [["node_load1", "avg", ""]]], ["Temperatures", [["node_hwmon_temp_celsius", "max", "chip,sensor"]]]]],
  ["GPUs", [["GPU in use", [["gpu_utilization_percent", "avg", "gpu"]]], ["GPU memory", [["gpu_memory_used_bytes", "avg", "gpu"]]],
    ["GPU power", [["gpu_power_watts", "avg", "gpu"]]], ["GPU temperature", [["gpu_temperature_celsius", "max", "gpu"]]]]],
  ["Memory", [["Memory available", [["node_memory_MemAvailable_bytes", "avg", ""]]], ["Memory in use", [["used_RAM", "avg", ""]]],
    ["Cached, dirty, slab", [["node_memory_Cached_bytes", "avg", ""], ["node_memory_Dirty_bytes", "avg", ""], ["node_memory_Slab_bytes", "avg", ""]]],
    ["Memory by NUMA node", [["node_memory_numa_MemUsed_bytes", "avg", "node"]]]]],
  ["Disks", [["Disks: read", [["node_disk_read_bytes_total", "sum", "device"]], {}, 3, "each disk"],
    ["Disks: written", [["node_disk_written_bytes_total", "sum", "device"]], {}, 3, "each disk"],
    ["Time busy", [["node_disk_io_time_seconds_total", "sum", "device"]]], ["Room left", [["node_filesystem_avail_bytes", "avg", "mountpoint"]]]]],
  ["Network", [["Received", [["node_network_receive_bytes_total", "sum", "device"]], {}, 3, "each interface"],
    ["Sent", [["node_network_transmit_bytes_total", "sum", "device"]], {}, 3, "each interface"],
    ["Dropped", [["node_network_receive_drop_total", "sum", "device"], ["node_network_transmit_drop_total", "sum", "device"]]]]],
  ["Pressure", [["Waiting for CPU", [["node_pressure_cpu_waiting_seconds_total", "max", ""]]],
    ["Waiting for memory", [["node_pressure_memory_waiting_seconds_total", "max", ""]]],
    ["Waiting for disks", [["node_pressure_io_waiting_seconds_total", "max", ""]]]]],
  ["Processes", [["CPU by process", [["process_cpu_seconds_total", "sum", "comm"]], {}, 4, "each process"],
    ["Memory by process", [["process_resident_memory_bytes", "sum", "comm"]], {}, 4, "each process"],
    ["Read by process", [["process_read_bytes_total", "sum", "comm"]]], ["Written by process", [["process_written_bytes_total", "sum", "comm"]]]]],
];

export function show(app, root) {
  const board = new Board(app);
  const name = app.state.node;
  const node = app.page.nodes.find((one) => one.name === name);
  const title = make("div.title", make("h1", { title: name }, short(name, 120)));
  if (node) {
    const kind = node.state === "down" ? "bad" : node.state === "suspect" ? "amber" : "good";
    title.append(make(`span.badge.${kind}`, { title: node.reason || "" }, node.state));
  }
  const parts = [];
  // Keys that have one value on the whole job may have several on a node of another level.
  const build = (queries, where) => queries.filter(([metric]) => app.metric(metric)?.series > 0).map(([metric, how, by]) => {
    const { tags } = app.metric(metric);
    const filters = Object.assign(tagged(), where);
    filters.host = [name];
    return { metric, function: how, rate: rises(app.metric(metric)), by: by.split(",").filter((key) => key && tags.has(key)), where: filters };
  });
  const own = app.page.metrics.filter((metric) => metric.own && metric.series > 0 && metric.tags.has("host")).slice(0, 12);
  const sections = [["The program's own metrics", own.map((metric) => [metric.name, [[metric.name, "avg", metric.tags.get("rank") > 1 ? "rank" : ""]]])], ...PANELS];
  for (const [heading, panels] of sections) {
    const grid = make("div.grid");
    const without = new Set();
    for (const [text, queries, where = {}, level, what] of panels) {
      const built = build(queries, where);
      const lacks = level && (!built.length || built.every(({ by }) => !by.length));
      if (lacks && app.page.level && app.page.level < level) without.add(`${what}: level ${level}`);
      if (!built.length) continue;
      const panel = board.add(panelWith(built), { title: text });
      grid.append(panel.element);
    }
    const hint = without.size ? make("small", ` this was recorded at level ${app.page.level}; ${[...without].join(", ")}`) : null;
    if (grid.childElementCount || hint) parts.push(make("section", make("h2", heading, hint), grid));
  }
  put(root, make("p.meta", make("a", { href: app.to("nodes") }, "Nodes"), " /"), make("section.head", title),
    parts.length ? parts : make("p.word", app.whyEmpty()));
  return {
    update({ ranged }) {
      if (ranged) board.refresh();
      else board.redraw();
    },
    first: board.first,
    pace: () => board.pace(),
    tick: () => board.tick(),
    end: () => board.end(),
  };
}
