// SQL: ask anything, see rows, a plot where a column is a time, and save them.

import { Refusal, ask, named, sql } from "./ask.js";
import { make, put, save, short } from "./dom.js";
import { extent, Frame, colour, draw } from "./chart.js";
import { digits } from "./units.js";

const ROW = 25;
const HISTORY = "telem-sql";
const DEADLINE_MS = 120000;
const MOST = 100000;
const isTimeText = (value) => typeof value === "string" && /^\d{4}-\d\d-\d\dT[\d:.]+Z?$/.test(value);

function history() {
  try {
    const kept = JSON.parse(localStorage.getItem(HISTORY) || "[]");
    return Array.isArray(kept) ? kept.filter((one) => typeof one === "string").slice(0, 30) : [];
  } catch {
    return [];
  }
}

function remember(text) {
  try {
    localStorage.setItem(HISTORY, JSON.stringify([text, ...history().filter((one) => one !== text)].slice(0, 30)));
  } catch {
    // A browser that keeps nothing has no history.
  }
}

export function show(app, root) {
  const metric = app.metric("cpu_percent") || app.page.metrics[0];
  const usual = metric ? `SELECT * FROM ${named(metric.name)} ORDER BY ts DESC LIMIT 100` : "SELECT * FROM metrics";
  const text = make("textarea", { value: app.state.q ?? usual, spellcheck: false, "aria-label": "SQL" });
  const run = make("button.main", { type: "button", onclick: () => start() }, "Run");
  const stopButton = make("button", { type: "button", disabled: true, onclick: () => stop?.abort() }, "Cancel");
  const told = make("p.meta", { role: "status" });
  const wrong = make("p.word.bad", { role: "alert" });
  const result = make("div");
  const past = make("select", { "aria-label": "Earlier queries" });
  past.addEventListener("change", () => {
    if (past.value) text.value = past.value;
    past.selectedIndex = 0;
  });
  const sayPast = () => put(past, make("option", { value: "" }, "Earlier…"), history().map((one) => make("option", { value: one }, short(one.replace(/\s+/g, " "), 60))));
  const saves = [["CSV", "csv", "csv"], ["Arrow", "arrow", "arrows"], ["Parquet", "parquet", "parquet"]].map(([name, format, end]) =>
    [make("button", { type: "button", onclick: () => download(format, end) }, name), " "]);
  const tables = make("div.tables", ["metrics", "series", "nodes", "jobs", "samples"].map(tableButton),
    app.page.metrics.filter(({ series }) => series > 0).slice(0, 400).map(({ name }) => tableButton(name)));
  const columns = make("p.meta");
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) start();
  });
  put(root, make("h1", "SQL"), make("div.ask", make("div", text, make("div.row", run, stopButton, past, make("span.meta", "Ctrl+Enter runs it"),
    make("span", "Save as ", saves))), make("div.card", make("strong", "Tables"), tables, columns)), wrong, told, result);
  sayPast();

  function tableButton(name) {
    return make("button", {
      type: "button", title: name,
      onclick: async () => {
        text.value = `SELECT * FROM ${/^[a-z_][a-z0-9_]*$/.test(name) ? name : named(name)}${name === "metrics" || name === "nodes" || name === "jobs" ? "" : " LIMIT 100"}`;
        text.focus();
        const found = await sql(`DESCRIBE ${named(name)}`).catch(() => []);
        put(columns, found.map((row) => `${row.column_name} `));
      },
    }, short(name, 44));
  }

  let stop = null;
  async function start() {
    stop?.abort();
    const mine = (stop = new AbortController());
    const question = text.value.trim();
    if (!question) return;
    app.go({ q: question }, { replace: true });
    remember(question);
    sayPast();
    put(wrong);
    put(told, "asking…");
    stopButton.disabled = false;
    const begin = performance.now();
    try {
      const response = await ask("api/sql?format=json", { body: question, type: "text/plain", signal: mine.signal, deadline: DEADLINE_MS });
      const rows = await response.json();
      if (!Array.isArray(rows)) throw new Refusal("the answer is not a table", 0);
      const broken = rows.length && rows[rows.length - 1]?.error?.message;
      if (broken) throw new Refusal(String(broken), 0);
      const missing = response.headers.get("X-Telem-Missing");
      put(told, `${rows.length} rows in ${Math.round(performance.now() - begin)} ms${rows.length > MOST ? `, the first ${MOST} are shown` : ""}`,
        missing && make("strong.amber", ` did not answer: ${short(missing, 200)}`));
      showRows(rows.slice(0, MOST));
    } catch (error) {
      put(told);
      if (mine.signal.aborted) put(told, "cancelled");
      else {
        // What stands there answers another question.
        put(result);
        put(wrong, error.message);
      }
    } finally {
      if (stop === mine) stopButton.disabled = true;
    }
  }

  async function download(format, end) {
    put(wrong);
    try {
      const response = await ask(`api/sql?format=${format}`, { body: text.value, type: "text/plain", deadline: DEADLINE_MS });
      save(`telem.${end}`, await response.blob());
    } catch (error) {
      put(wrong, error.message);
    }
  }

  function showRows(rows) {
    const names = [...new Set(rows.slice(0, 200).flatMap((row) => Object.keys(row)))];
    const parts = [];
    const plot = plotOf(app, rows, names);
    if (plot) parts.push(plot);
    if (rows.length) parts.push(virtual(rows, names));
    put(result, parts);
    plot?.paint();
  }

  if (app.state.q) start();
  return {
    update({ before }) {
      if (app.state.q !== undefined && before.q !== app.state.q && app.state.q !== text.value.trim()) {
        text.value = app.state.q;
        start();
      }
    },
    pace: () => 5000,
    end: () => stop?.abort(),
  };
}

function written(value) {
  if (value === null || value === undefined) return "";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** A table of which only the rows in sight exist. */
function virtual(rows, names) {
  const body = make("tbody");
  const table = make("table.list", { "aria-rowcount": String(rows.length) },
    make("thead", make("tr", names.map((name) => make("th.text", { scope: "col", title: name }, short(name, 40))))), body);
  const box = make("div.virtual", { tabIndex: 0 }, table);
  let first = -1;
  const gap = (many) => {
    const row = make("tr", { "aria-hidden": "true" }, make("td", { colSpan: names.length || 1 }));
    row.firstChild.style.height = `${many * ROW}px`;
    row.firstChild.style.padding = "0";
    return row;
  };
  function fillIn() {
    const begin = Math.max(0, Math.floor(box.scrollTop / ROW) - 20);
    if (first >= 0 && Math.abs(begin - first) < 10) return;
    first = begin;
    const end = Math.min(rows.length, begin + 100);
    const shown = rows.slice(begin, end).map((row, i) => make("tr", { "aria-rowindex": String(begin + i + 1) },
      names.map((name) => make(typeof row[name] === "number" ? "td" : "td.text", { title: written(row[name]).slice(0, 2000) }, short(written(row[name]), 400)))));
    put(body, begin > 0 && gap(begin), shown, end < rows.length && gap(rows.length - end));
  }
  box.addEventListener("scroll", fillIn);
  fillIn();
  return box;
}

/** A chart, where one column is a time and another a number; texts make lines. */
function plotOf(app, rows, names) {
  const time = names.find((name) => rows.slice(0, 50).every((row) => isTimeText(row[name])));
  if (!time || rows.length < 2) return null;
  const numbers = names.filter((name) => rows.some((row) => typeof row[name] === "number") && name !== "value_int" && name !== "step").slice(0, 8);
  if (!numbers.length) return null;
  const keys = names.filter((name) => name !== time && rows.slice(0, 500).every((row) => typeof row[name] === "string" || row[name] === null));
  const groups = new Map();
  for (const row of rows) {
    for (const name of numbers) {
      const key = `${numbers.length > 1 ? `${name} ` : ""}${keys.map((one) => row[one]).filter(Boolean).join(" ")}` || name;
      if (!groups.has(key) && groups.size >= 8) continue;
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push([Date.parse(row[time].endsWith("Z") ? row[time] : `${row[time]}Z`), row[name] ?? null]);
    }
  }
  const made = [...groups].map(([key, points], i) => {
    points.sort((a, b) => a[0] - b[0]);
    return { label: key, times: points.map(([at]) => at), avg: points.map(([, value]) => value), step: 0, gap: Infinity, place: i };
  });
  const canvas = make("canvas.plot");
  const area = make("div.area", { role: "img", "aria-label": "The rows as a chart" }, canvas);
  area.style.height = "220px";
  const legend = make("ul.legend", made.map((line) => {
    const mark = make("i");
    mark.style.background = colour(line.place);
    return make("li", mark, short(line.label, 60), ` ${digits(line.avg[line.avg.length - 1])} `);
  }));
  const card = make("div.card", area, legend);
  card.paint = () => {
    const from = Math.min(...made.map(({ times }) => times[0])), to = Math.max(from + 1, ...made.map(({ times }) => times[times.length - 1]));
    for (const line of made) line.colour = colour(line.place);
    const [low, high] = extent(made, from, to, false, "");
    draw(canvas, new Frame(area.clientWidth, area.clientHeight, from, to, low, high, false), made, { unit: "", utc: app.utc });
  };
  return card;
}

