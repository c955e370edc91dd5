// Nodes: all hosts over time as a heat map, the strangest first, beside a table of their numbers.

import { lines } from "./ask.js";
import { choice, make, put, short } from "./dom.js";
import { HeatMap } from "./heat.js";
import { lagOf, lastColumns } from "./lag.js";
import { panelOf } from "./state.js";
import { rises, wire } from "./series.js";
import { amount, count, symbol } from "./units.js";
import { span } from "./time.js";

const MOST = 1000;
const ORDERS = [["deviation", "distance from the median"], ["name", "name"], ["mean", "mean"], ["max", "greatest"], ["last", "last"]];
const USUAL = ["cpu_percent", "node_load1", "gpu_utilization_percent", "load_average"];
const collate = new Intl.Collator("en", { numeric: true });

/** The tag that tells hosts apart: `host`, else what the metric has the most of. */
function tagOf(metric) {
  if (!metric) return "host";
  if (metric.tags.has("host")) return metric.tags.get("host") === 1 && metric.tags.get("rank") > 1 ? "rank" : "host";
  return [...metric.tags].sort((a, b) => b[1] - a[1])[0]?.[0] || "host";
}

export function show(app, root) {
  const states = () => new Map(app.page.nodes.map((node) => [node.name, node]));
  const many = (metric) => metric.tags.get("host") || 0;
  const wanted = () => {
    if (app.state.metric) return app.state.metric;
    // The metric of the most hosts, a usual one where several have as many.
    const there = app.page.metrics.filter(({ series }) => series > 0);
    const most = Math.max(0, ...there.map(many));
    return (USUAL.map((name) => app.metric(name)).find((one) => one && many(one) === most) || there.find((one) => many(one) === most))?.name || "cpu_percent";
  };

  const picks = make("div.row");
  const meta = make("p.meta");
  const word = make("p.word", { role: "status" });
  const body = make("tbody");
  const head = make("tr");
  let tag = "host";
  const nameOf = (row) => {
    const value = row.tags[tag];
    return value === null || value === undefined || value === "" ? `no ${tag}` : String(value);
  };
  const openNode = (name, more = {}) => app.open(app.to("node", { node: name, ...more }));
  const heat = new HeatMap(app, {
    name: nameOf,
    row: (row, time) => {
      const width = app.range().to - app.range().from;
      if (time === null) openNode(nameOf(row));
      else openNode(nameOf(row), { from: Math.round(time - width / 20), to: Math.round(time + width / 20), last: undefined });
    },
    zoom: (from, to) => app.zoom(from, to),
    unzoom: () => app.unzoom(),
  });
  const map = make("div.card", heat.key, heat.element);
  const table = make("div.card", make("div.scroll", make("table.list", make("caption.meta", "Ordered as the map. Choose a host to see it alone."), make("thead", head), body)));
  put(root, make("h1", "Nodes"), picks, meta, word, make("div.sides", map, table));

  let asked = null;
  let step = 1000;
  let running = false;
  async function load() {
    asked?.abort();
    const stop = (asked = new AbortController());
    running = true;
    const name = wanted(), metric = app.metric(name);
    tag = tagOf(metric);
    const [query] = panelOf(name, { rate: rises(metric), by: [tag] }).queries;
    const order = app.state.order || "deviation";
    const range = app.range();
    const columns = Math.max(100, Math.min(800, Math.round((map.clientWidth - 120) / 50) * 50 || 400));
    const question = { ...query, matrix: true, top: MOST, order };
    try {
      await lines("api/panels", { body: JSON.stringify(wire({ ...range, columns, queries: [question] })), signal: stop.signal }, (answer) => {
        if (!stop.signal.aborted) say(answer, range, query, order);
      });
    } catch (error) {
      if (!stop.signal.aborted) put(word, error.message);
    } finally {
      if (asked === stop) running = false;
    }
  }

  function say(answer, range, query, order) {
    if (answer.error || !answer.rows?.length) {
      word.className = answer.error ? "word bad" : "word";
      put(word, answer.error ? answer.error.message : answer.empty || app.whyEmpty());
      map.hidden = table.hidden = true;
      return;
    }
    put(word);
    map.hidden = table.hidden = false;
    step = answer.step;
    const places = answer.rows.map((_, i) => i);
    // Names with numbers in them are ordered by value: n2 before n10.
    if (order === "name") places.sort((a, b) => collate.compare(nameOf(answer.rows[a]), nameOf(answer.rows[b])));
    heat.take(answer, range, places, answer.unit, query.rate);
    const words = [`${query.function}${query.rate ? " of rate" : ""} by ${tag}`, `steps of ${span(answer.step)}`];
    if (symbol(answer.unit, query.rate)) words.push(symbol(answer.unit, query.rate));
    words.push(answer.lines > answer.rows.length ? `${answer.rows.length} of ${count(answer.lines)} hosts` : `${count(answer.lines)} host${answer.lines === 1 ? "" : "s"}`);
    put(meta, words.join(" · "));
    if (answer.missing?.length) meta.append(make("strong.amber", ` did not answer: ${short(answer.missing.map(({ node }) => node).join(", "), 120)}`));
    fillTable(answer, places, query.rate);
  }

  function fillTable(answer, places, rate) {
    put(head, [["", tag], ["mean", "mean"], ["max", "greatest"], ["last", "last"], ["deviation", "from median"]].map(([order, text]) => {
      const button = make("button", { type: "button", onclick: () => app.go({ order: order || "name" }, { replace: true }) }, text);
      const on = (app.state.order || "deviation") === (order || "name");
      return make(order ? "th" : "th.text", { scope: "col", "aria-sort": on ? "descending" : "none" }, button, on && " ▾");
    }), make("th", { scope: "col", title: "How long ago the last column with a sample ended" }, "lag"), make("th.text", { scope: "col" }, "state"));
    const known = states();
    const widest = Math.max(...answer.rows.map(({ stats }) => stats?.deviation || 0)) || 1;
    const now = app.live ? app.now() : app.range().to;
    const ends = lastColumns(answer);
    const cell = (value) => make("td", { title: String(value ?? "") }, amount(value ?? null, answer.unit, rate));
    put(body, places.map((place) => {
      const row = answer.rows[place], name = nameOf(row), stats = row.stats || {};
      const node = known.get(name);
      const bar = make("span.bar");
      bar.style.width = `${Math.round(40 * ((stats.deviation || 0) / widest))}px`;
      return make("tr", make("th", { scope: "row" }, make("a", { href: app.to("node", { node: name }), title: name }, short(name, 32))),
        cell(stats.mean), cell(stats.max), cell(stats.last),
        make("td", { title: String(stats.deviation ?? "") }, bar, " ", amount(stats.deviation ?? null, answer.unit, rate)),
        make("td", ends[place] === null ? "–" : span(lagOf(ends[place], now, answer.step))),
        make(node?.state === "down" ? "td.text.bad" : node?.state === "suspect" ? "td.text.amber" : "td.text", { title: node?.reason || "" }, node?.state || ""));
    }));
  }

  function choose() {
    const names = app.page.metrics.filter((metric) => metric.series > 0 && metric.tags.size).map(({ name }) => [name, name]);
    put(picks, make("label", "Metric", choice("Metric", names, wanted(), (metric) => app.go({ metric }))),
      make("label", "Order by", choice("Order", ORDERS, app.state.order || "deviation", (order) => app.go({ order }, { replace: true }))));
    const down = app.page.nodes.filter(({ state }) => state === "down" || state === "suspect");
    if (down.length) {
      picks.append(make("strong.amber", { title: down.map(({ name, state, reason }) => `${name}: ${state} ${reason || ""}`).join("\n") },
        `${down.length} of ${app.page.nodes.length} nodes silent: ${short(down.slice(0, 4).map(({ name }) => name).join(", "), 80)}`));
    }
  }

  choose();
  const first = load();
  return {
    first,
    update() {
      choose();
      load();
    },
    pace: () => Math.max(2000, Math.min(30000, step)),
    tick: () => (running ? null : load()),
    end() {
      asked?.abort();
      heat.resizes.disconnect();
    },
  };
}
