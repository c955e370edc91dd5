// What was recorded beside samples: jobs, alarms, and profiles of jobs that are over.

import { json, sql } from "./ask.js";
import { make, put, short } from "./dom.js";
import { panelOf } from "./state.js";
import { digits } from "./units.js";
import { moment, span } from "./time.js";

const MOST = 1000;
const AROUND_MS = 300000;

/** A table of rows, each a list of cells, below a heading. */
function listed(root, title, word, head) {
  const body = make("tbody");
  const told = make("p.word", { role: "status" }, word);
  const card = make("div.card", { hidden: true }, make("div.scroll", make("table.list", make("thead", make("tr",
    head.map((text) => make("th.text", { scope: "col" }, text)))), body)));
  const beside = make("div");
  put(root, make("h1", title), told, card, beside);
  return {
    beside,
    say(rows, empty) {
      put(told, rows.length ? "" : empty);
      card.hidden = !rows.length;
      put(body, rows.slice(0, MOST).map(([first, ...cells]) => make("tr", make("th", { scope: "row" }, first),
        cells.map((cell) => (cell instanceof Node ? make("td.text", cell) : make("td.text", { title: String(cell ?? "") }, short(cell ?? "", 80)))))));
    },
    fail: (error) => put(told, make("span.bad", error.message)),
  };
}

const view = (more) => ({ update: () => {}, pace: () => 5000, end: () => {}, ...more });

export function jobs(app, root) {
  const list = listed(root, "Jobs", "", ["job", "began", "took", "how", "nodes", "command", ""]);
  function say() {
    const all = app.page.jobs.filter(({ id }) => id !== null).toReversed();
    list.say(all.map((job, place) => {
      const { id, name, begin, end, exit_code: code, signal } = job, before = all[place + 1];
      const to = end ?? Math.round(app.now());
      const link = begin === null ? make("span", short(name || id, 60)) : make("a", { href: app.to("job", { from: begin, to: to + 1, last: undefined }), title: id }, short(name || id, 60));
      const how = signal ? `signal ${signal}` : code === null || code === undefined ? (end ? "ended" : app.page.live ? "running" : "") : code === 0 ? "finished" : `exit code ${code}`;
      const compare = before && make("a", { href: app.to("compare", { a: `job:${before.id}`, b: `job:${id}` }) }, "compare with the one before");
      return [link, begin === null ? "" : moment(begin, app.utc), begin === null ? "" : span(Math.round((to - begin) / 1000) * 1000), how, String(job.nodes.length || ""), job.command || "", compare || ""];
    }), "No job is described here.");
    if (app.page.jobs_left_out) list.beside.replaceChildren(make("p.meta", `${app.page.jobs_left_out} more are in the table jobs of SQL.`));
  }
  say();
  return view({ update: say, told: say });
}

export function alarms(app, root) {
  const list = listed(root, "Alarms", "asking…", ["alarm", "raised", "ended", "job", "metric", "condition", "value"]);
  const stop = new AbortController();
  async function load() {
    try {
      const rows = await sql(`SELECT * FROM alarms ORDER BY raised_ts DESC LIMIT ${MOST}`, { signal: stop.signal });
      list.say(rows.map((row) => {
        const [raised, ended] = [row.raised_ts, row.ended_ts].map((text) => (text ? Date.parse(text) : null));
        const m = [panelOf(row.metric.split("{")[0])];
        const link = make("a", { href: app.to("metrics", { m, from: raised - AROUND_MS, to: (ended ?? Math.round(app.now())) + AROUND_MS, last: undefined }) }, short(row.alarm, 60));
        const over = ended === null ? make("strong.amber", "raised") : make("span", { title: row.ended_by || "" }, moment(ended, app.utc));
        return [link, moment(raised, app.utc), over, row.job, row.metric, row.condition, digits(row.value)];
      }), "No alarm was raised.");
    } catch (error) {
      if (!stop.signal.aborted) list.fail(error);
    }
  }
  load();
  return view({ update: load, tick: load, end: () => stop.abort() });
}

export function profiles(app, root) {
  const list = listed(root, "Profiles", "asking…", ["job", "began", "took", "size", "nodes", "command"]);
  const stop = new AbortController();
  async function show(job) {
    const one = await json(`profiles/get?jobid=${encodeURIComponent(job.jobid)}&start=${job.start_time}`, { signal: stop.signal }).catch((error) => {
      if (!stop.signal.aborted) list.fail(error);
    });
    if (!one) return;
    const rows = one.counters.slice(0, MOST).map(({ name, doc, ctype: { Counter: counter, Gauge: gauge } }) => make("tr",
      make("th", { scope: "row", title: doc }, short(name, 80)), make("td", counter ? digits(counter.value) : gauge.hits ? digits(gauge.total / gauge.hits) : "–"),
      make("td", gauge ? `${digits(gauge.min)} … ${digits(gauge.max)}` : "")));
    put(list.beside, make("h2", short(job.jobid, 80)), make("div.card", make("div.scroll", make("table.list",
      make("thead", make("tr", make("th.text", "counter"), make("th", "value, of a gauge the mean"), make("th", "least and greatest"))), make("tbody", rows)))));
  }
  async function load() {
    try {
      const all = await json("profiles?runs=all", { signal: stop.signal });
      list.say(all.toReversed().map((job) => {
        const { start_time: begin, end_time: end } = job;
        const open = make("button.quiet", { type: "button", title: "What it counted", onclick: () => show(job) }, short(job.jobid, 60));
        return [open, begin ? moment(begin, app.utc) : "", begin && end ? span(Math.round((end - begin) / 1000) * 1000) : "", String(job.size || ""), job.nodelist, job.command];
      }), "No job left a profile.");
    } catch (error) {
      if (!stop.signal.aborted) list.fail(error);
    }
  }
  load();
  return view({ update: load, end: () => stop.abort() });
}
