// Compare: two jobs, or two times, laid over each other by the time since each began; all metrics ordered by change.

import { named, quoted, sql } from "./ask.js";
import { choice, make, put, short, toggle } from "./dom.js";
import { Frame, colour, draw, extent } from "./chart.js";
import { amount, digits, symbol } from "./units.js";
import { moment, span } from "./time.js";
import { gapOf, rises } from "./series.js";

const COLUMNS = 240;
const SHOWN = 300;
const NODES_MOST = 200;
const DEADLINE_MS = 60000;
const STEPS = [100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 108e5, 216e5, 432e5, 864e5];

/** A side as it stands in a link: job:ID, node:NAME in the time shown, or from..to in ms. */
function sideOf(app, text) {
  const range = /^(-?\d+)\.\.(-?\d+)$/.exec(text || "");
  if (range && Number(range[1]) < Number(range[2])) {
    const [from, to] = [Number(range[1]), Number(range[2])];
    return { text, from, to, name: `${moment(from, app.utc)} – ${moment(to, app.utc)}` };
  }
  if ((text || "").startsWith("node:")) return { text, ...app.range(), node: text.slice(5), name: text.slice(5) };
  const job = (text || "").startsWith("job:") && app.page.jobs.find(({ id }) => id === text.slice(4));
  if (!job) return null;
  const all = app.extent();
  return { text, from: job.begin ?? all.from, to: (job.end ?? all.to) + 1, job: job.id, name: job.name || job.id };
}

/** What can be compared: every job, nodes, and the two halves of what the page shows. */
function choices(app) {
  const pairs = app.page.jobs.filter(({ begin }) => begin !== null).map((job) => [`job:${job.id}`, `${job.name ? `${job.name} · ` : ""}${job.id} · ${moment(job.begin, app.utc)}`]);
  if (app.page.nodes.length > 1) pairs.push(...app.page.nodes.slice(0, NODES_MOST).map(({ name }) => [`node:${name}`, `node ${name}, in the time shown`]));
  const { from, to } = app.range();
  const mid = Math.round((from + to) / 2);
  const part = (a, b) => `${Math.round(a)}..${Math.round(b)}`;
  pairs.push([part(from, mid), "first half of the time shown"], [part(mid, to), "second half of the time shown"]);
  return pairs;
}

/** The samples of a side, of which NaN is none. */
const where = (side) => `NOT isnan(value) AND ts >= to_timestamp_micros(${Math.round(side.from * 1000)}) AND ts < to_timestamp_micros(${Math.round(side.to * 1000)})` +
  (side.job ? ` AND job = ${quoted(side.job)}` : "") + (side.node === undefined ? "" : ` AND host = ${quoted(side.node)}`);

export function show(app, root) {
  const pairs = choices(app);
  const jobs = app.page.jobs.length > 1 ? app.page.jobs.slice(-2).map(({ id }) => `job:${id}`) : null;
  const half = pairs.slice(-2).map(([value]) => value);
  const [usualA, usualB] = jobs || half;
  const picks = make("div.row");
  const word = make("p.word", { role: "status" });
  const canvas = make("canvas.plot");
  const title = make("h3");
  const meta = make("p.meta");
  const area = make("div.area", { role: "img", "aria-label": "Both, by the time since each began" }, canvas);
  area.style.height = "260px";
  const legend = make("ul.legend");
  const values = make("div.values", { hidden: true });
  const asTable = toggle("Show as table", "Show the numbers as a table", false, (on) => {
    asTable.setAttribute("aria-pressed", String(on));
    asTable.textContent = on ? "Show as chart" : "Show as table";
    area.hidden = on;
    values.hidden = !on;
    paint();
  });
  asTable.className = "quiet";
  const card = make("article.panel", { hidden: true }, make("header", title, make("div.tools", asTable)), meta, area, values, legend);
  const body = make("tbody");
  const table = make("div.card", { hidden: true }, make("div.scroll", make("table.list", make("thead", make("tr",
    ["metric", "mean of A", "mean of B", "change", "p95 of A", "p95 of B", "greatest of A", "greatest of B"].map((text, i) =>
      make(i ? "th" : "th.text", { scope: "col" }, text)))), body)));
  put(root, make("h1", "Compare"), picks, word, card, table);

  let asked = null;
  let drawn = null;

  async function load() {
    asked?.abort();
    const stop = (asked = new AbortController());
    const a = sideOf(app, app.state.a ?? usualA), b = sideOf(app, app.state.b ?? usualB);
    put(picks, make("label", "A", choice("A", pairs, app.state.a ?? usualA, (value) => app.go({ a: value }, { replace: true }))),
      make("label", "B", choice("B", pairs, app.state.b ?? usualB, (value) => app.go({ b: value }, { replace: true }))),
      make("span.meta", "Choose a metric below to see both laid over each other."));
    if (!a || !b) {
      put(word, "Choose two jobs or times: one of those in this link is not here.");
      return;
    }
    put(word, "asking for all metrics of both…");
    try {
      const missing = new Set();
      const [left, right] = await Promise.all([numbers(app, a, stop.signal, missing), numbers(app, b, stop.signal, missing)]);
      if (stop.signal.aborted) return;
      const rows = compared(left, right);
      put(word, `A: ${span(a.to - a.from)}, ${left.size} metrics · B: ${span(b.to - b.from)}, ${right.size} metrics · counters by their rate`,
        missing.size > 0 && make("strong.amber", ` did not answer: ${short([...missing].join(", "), 200)}`));
      say(rows, a, b);
      table.hidden = false;
      const chosen = app.state.metric || rows[0]?.name;
      if (chosen) lay(chosen, a, b, stop.signal);
    } catch (error) {
      if (!stop.signal.aborted) put(word, error.message);
    }
  }

  function say(rows, a, b) {
    put(body, rows.slice(0, SHOWN).map(({ name, left, right, change, whole }) => {
      const metric = app.metric(name), rate = rises(metric), unit = metric?.unit;
      const link = make("a", { href: "#", title: metric?.help || name }, short(name, 60));
      link.addEventListener("click", (event) => {
        event.preventDefault();
        app.go({ metric: name }, { replace: true });
        lay(name, a, b, asked.signal);
        window.scrollTo({ top: 0 });
      });
      const cell = (value) => make("td", { title: String(value ?? "") }, amount(value ?? null, unit, rate));
      return make("tr", make("th", { scope: "row" }, link), cell(left?.mean), cell(right?.mean),
        make(Math.abs(change) > 0.2 ? "td.amber" : "td", changeText(left, right, change, whole)),
        cell(left?.p95), cell(right?.p95), cell(left?.most), cell(right?.most));
    }));
  }

  async function lay(name, a, b, signal) {
    const metric = app.metric(name), rate = rises(metric);
    const longest = Math.max(a.to - a.from, b.to - b.from);
    let step, lines;
    // A column has a rate where it has two samples: where they are few, columns are wider.
    for (const columns of rate ? [COLUMNS, COLUMNS / 6, COLUMNS / 24] : [COLUMNS]) {
      step = STEPS.find((one) => longest / one <= columns) || Math.ceil(longest / columns);
      lines = await Promise.all([a, b].map((side) => course(name, side, step, rate, signal))).catch((error) => {
        if (!signal.aborted) put(word, error.message);
      });
      if (!lines || lines.some(({ avg }) => avg.filter((value) => value !== null).length > avg.length / 2)) break;
    }
    if (!lines || signal.aborted) return;
    card.hidden = false;
    put(title, { title: name }, short(name, 80));
    put(meta, `${rate ? "sum of rates" : "avg"} · steps of ${span(step)} · by the time since each began${symbol(metric?.unit, rate) ? ` · ${symbol(metric.unit, rate)}` : ""}`);
    put(legend, ["A", "B"].map((letter, i) => {
      const mark = make("i");
      mark.style.background = colour(i);
      return make("li", mark, `${letter}: ${short([a, b][i].name, 60)} `);
    }));
    drawn = { lines, longest, unit: metric?.unit, rate };
    paint();
  }

  function paint() {
    if (!drawn) return;
    const { lines, longest, unit, rate } = drawn;
    if (!values.hidden) {
      const cell = (value) => make("td", value === null || value === undefined ? "" : String(value));
      const times = lines.reduce((long, { times }) => (times.length > long.length ? times : long), []);
      put(values, make("table", make("thead", make("tr", ["time since the begin", "A", "B"].map((text) => make("th", { scope: "col" }, text)))),
        make("tbody", times.map((at, i) => make("tr", make("th", { scope: "row" }, span(at)), lines.map(({ avg }) => cell(avg[i])))))));
    }
    if (area.clientWidth < 40) return;
    lines.forEach((line, i) => (line.colour = colour(i)));
    const [low, high] = extent(lines, 0, longest, false, rate ? "" : unit);
    draw(canvas, new Frame(area.clientWidth, area.clientHeight, 0, longest, low, high, false), lines, { unit, rate, origin: 0, utc: app.utc, shade: lines });
  }

  const resizes = new ResizeObserver(paint);
  resizes.observe(area);
  load();
  return {
    update({ before, themed }) {
      if (themed) paint();
      else if (before.a !== app.state.a || before.b !== app.state.b || before.tz !== app.state.tz) load();
    },
    pace: () => 10000,
    end() {
      asked?.abort();
      resizes.disconnect();
    },
  };
}

/** Mean, p95 and greatest of every metric of a side; of counters their rate, summed over the series. */
async function numbers(app, side, signal, missing) {
  const counters = app.page.metrics.filter((metric) => rises(metric) && !metric.name.startsWith("process_")).map(({ name }) => name);
  const found = new Map();
  const more = { signal, deadline: DEADLINE_MS, missing };
  const [plain, rates] = await Promise.all([
    sql(`SELECT metric, avg(value) AS mean, approx_percentile_cont(value, 0.95) AS p95, max(value) AS most FROM samples WHERE ${where(side)} GROUP BY metric`, more),
    counters.length ? sql(`SELECT metric, sum(r) AS mean FROM (SELECT metric, tags, rate(value, ts) AS r FROM samples WHERE metric IN (${counters.map(quoted).join(", ")}) AND ${where(side)} GROUP BY metric, tags) GROUP BY metric`, more) : [],
  ]);
  for (const { metric, ...rest } of plain) if (!rises(app.metric(metric))) found.set(metric, rest);
  for (const { metric, mean } of rates) found.set(metric, { mean });
  return found;
}

/** The metrics of both, those first that changed most; telem's own cost, and what only one of them has, come last. */
function compared(left, right) {
  const rows = [...new Set([...left.keys(), ...right.keys()])].map((name) => {
    const [a, b] = [left.get(name), right.get(name)];
    const whole = Number.isFinite(a?.mean) && Number.isFinite(b?.mean);
    const size = whole ? Math.max(Math.abs(a.mean), Math.abs(b.mean)) : 0;
    return { name, left: a, right: b, change: whole ? (size ? (b.mean - a.mean) / size : 0) : 0, whole };
  });
  const own = ({ name }) => name.startsWith("telem_");
  return rows.sort((p, q) => Number(q.whole) - Number(p.whole) || Number(own(p)) - Number(own(q)) || Math.abs(q.change) - Math.abs(p.change) || (p.name < q.name ? -1 : 1));
}

function changeText(left, right, change, whole) {
  if (!left) return "only in B";
  if (!right) return "only in A";
  if (!whole) return "–";
  if (!change) return "0 %";
  if (!left.mean) return "from 0";
  const share = (right.mean - left.mean) / Math.abs(left.mean);
  if (Math.abs(share) >= 10) return `× ${digits(right.mean / left.mean, 3)}`;
  return `${share > 0 ? "+" : "−"}${digits(Math.abs(share) * 100, 3)} %`;
}

/** One metric of one side, by the time since it began. */
async function course(name, side, step, rate, signal) {
  const bucket = `CAST(floor((CAST(ts AS BIGINT) / 1000.0 - ${side.from}) / ${step}) AS BIGINT)`;
  const more = { signal, deadline: DEADLINE_MS };
  const rows = rate
    ? await sql(`SELECT b, sum(r) AS v FROM (SELECT ${bucket} AS b, tags, rate(value, ts) AS r FROM samples WHERE metric = ${quoted(name)} AND ${where(side)} GROUP BY 1, tags) GROUP BY b`, more)
    : await sql(`SELECT ${bucket} AS b, avg(value) AS v FROM ${named(name)} WHERE ${where(side)} GROUP BY 1`, more);
  const many = Math.ceil((side.to - side.from) / step);
  const avg = Array(many).fill(null);
  for (const { b, v } of rows) if (b >= 0 && b < many) avg[b] = v;
  const line = { times: avg.map((_, i) => i * step), avg, step };
  return { ...line, gap: gapOf(line) };
}
