// telem itself: what recording and answering cost.

import { make, put } from "./dom.js";
import { Board } from "./board.js";
import { panelWith, tagged } from "./state.js";
import { rises } from "./series.js";
import { amount, digits } from "./units.js";

const PANELS = [
  ["Cost", [
    ["CPU of telem", ["telem_server_cpu_seconds_total"]], ["Memory of telem", ["telem_server_resident_memory_bytes"]],
    ["Time of a collector's tick", ["telem_ingest_tick_seconds"]], ["Threads and open files", ["telem_server_threads", "telem_server_open_fds"]],
  ]],
  ["Samples in", [
    ["Accepted and written", ["telem_ingest_samples_accepted_total", "telem_ingest_samples_written_total"]],
    ["Rejected and lost", ["telem_ingest_samples_rejected_total", "telem_ingest_samples_lost_total"]],
    ["Waiting in the queue", ["telem_ingest_queue_samples"]], ["Ticks skipped", ["telem_ingest_ticks_skipped_total"]],
  ]],
  ["Questions", [
    ["Queries", ["telem_query_queries_total", "telem_query_queries_refused_total"]], ["Queries running", ["telem_query_queries_running"]],
  ]],
  ["Storage", [
    ["On disk and in the log", ["telem_engine_disk_bytes", "telem_engine_wal_bytes"]], ["Samples stored", ["telem_engine_samples", "telem_engine_samples_unflushed"]],
    ["Series", ["telem_engine_series"]], ["Files", ["telem_engine_segments"]], ["Syncs and flushes", ["telem_ingest_syncs_total", "telem_ingest_flushes_total"]],
  ]],
];

// Below it telem records nothing of itself.
const LEVEL = 4;

/** What is known without its metrics. */
function sofar({ page }) {
  const { cost, level } = page;
  const words = page.live && level < LEVEL ? `Its metrics are recorded from level ${LEVEL} on.` : "telem's own metrics were not recorded here.";
  return make("p.word", words, cost && ` ${page.live ? "So far it" : "To answer it"} took ${digits(cost.cpu_seconds, 3)} s of CPU and at most ${amount(cost.memory_bytes_max, "bytes")} of memory.`);
}

export function show(app, root) {
  const board = new Board(app);
  const parts = [];
  for (const [heading, panels] of PANELS) {
    const grid = make("div.grid");
    for (const [title, names] of panels) {
      const there = names.map((name) => app.metric(name)).filter((metric) => metric?.series > 0);
      if (!there.length) continue;
      const queries = there.map((metric) => ({
        metric: metric.name, function: "avg", rate: rises(metric), where: tagged(), order: "deviation",
        by: there.length === 1 && metric.tags.get("host") > 1 ? ["host"] : [],
      }));
      grid.append(board.add(panelWith(queries), { title }).element);
    }
    if (grid.childElementCount) parts.push(make("section", make("h2", heading), grid));
  }
  put(root, make("h1", "telem"), make("p.meta", `What it costs to record and to answer. Version ${app.page.version}${app.page.level ? `, level ${app.page.level}` : ""}.`),
    parts.length ? parts : sofar(app));
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
