// How far behind the clock nodes are: when the last column with a sample of theirs ended.

import { lines } from "./ask.js";
import { panelOf } from "./state.js";
import { wire } from "./series.js";

const WINDOW_MS = 60000;
// Seconds of a few nodes; of a thousand a byte for every second of each would be too much to ask every ten seconds.
const COLUMNS = 60, FEW = 64, COLUMNS_OF_MANY = 12;
const USUAL = ["cpu_percent", "node_load1", "load_average"];

/** Of each row of a heat map where its last column with a sample ends, in ms; null where there is none. */
export function lastColumns({ rows, cells, columns, start, step }) {
  const bytes = atob(cells);
  return rows.map((_, row) => {
    for (let column = columns - 1; column >= 0; column--) {
      if (bytes.charCodeAt(row * columns + column) !== 0) return start + (column + 1) * step;
    }
    return null;
  });
}

/** A sample may stand anywhere in its column: on average in the middle. */
export const lagOf = (end, now, step) => Math.max(0, Math.round((now - end + step / 2) / 100) * 100);

/** {usual, most, name, window} of all nodes that were heard of, or null. */
export async function lags(app, signal) {
  const hosts = (metric) => (metric?.series > 0 && metric.tags.get("host")) || 0;
  const there = [...USUAL.map((name) => app.metric(name)), ...app.page.metrics];
  const most = Math.max(0, ...there.map(hosts));
  const metric = there.find((one) => hosts(one) === most);
  if (!most || !metric) return null;
  const now = app.now();
  const [query] = panelOf(metric.name, { by: ["host"] }).queries;
  let found = null;
  const body = JSON.stringify(wire({ from: now - WINDOW_MS, to: now, columns: most > FEW ? COLUMNS_OF_MANY : COLUMNS, queries: [{ ...query, matrix: true, top: 2000, order: "name" }] }));
  await lines("api/panels", { body, signal }, (answer) => {
    if (answer.error || !answer.rows?.length) return;
    const late = lastColumns(answer).map((end, row) => ({ name: String(answer.rows[row].tags.host ?? "no host"), by: lagOf(end ?? now - WINDOW_MS, now, answer.step) }));
    late.sort((a, b) => a.by - b.by);
    // A host without any sample in this time is no row, and the last of all.
    const known = new Set(late.map(({ name }) => name));
    const silent = app.page.nodes.find(({ name, state }) => state !== "down" && !known.has(name) && late.length < most);
    const last = silent ? { name: silent.name, by: WINDOW_MS } : late[late.length - 1];
    found = { usual: late[late.length >> 1].by, most: last.by, name: last.name, window: WINDOW_MS };
  });
  return found;
}
