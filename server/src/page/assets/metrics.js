// Metrics: search as one types, and a panel of any metric with its function, rate, grouping, filter, scale and smoothing.

import { calm, choice, make, put, short, toggle } from "./dom.js";
import { Board } from "./board.js";
import { json } from "./ask.js";
import { FUNCTIONS, panelOf, printPanel, tagged } from "./state.js";
import { rises } from "./series.js";
import { Sparks } from "./spark.js";
import { symbol } from "./units.js";

const SHOWN = 200;

/** How a metric is shown at first: a counter by its rate, by host where there are several. */
function first(metric) {
  const by = ["host", "rank"].filter((key) => metric.tags.get(key) > 1).slice(0, 1);
  return panelOf(metric.name, { rate: rises(metric), by });
}

export function show(app, root) {
  const board = new Board(app);
  const grid = make("div.grid");
  const find = make("input", { type: "search", placeholder: "Search by name, unit or help ( / )", value: app.state.find || "", "aria-label": "Search metrics" });
  const told = make("p.meta");
  const list = make("tbody");
  const sparks = new Sparks(app);
  const names = make("datalist", { id: "metric-names" });
  let found = app.page.metrics;

  put(root, make("h1", "Metrics"), grid, make("div.row", find), told, names,
    make("div.card", make("div.scroll", make("table.list", make("thead", make("tr",
      ["metric", "time shown", "kind", "unit", "series", "what it is"].map((text, i) => make(i === 4 ? "th" : "th.text", { scope: "col" }, text)))), list))));

  function change(place, panel) {
    const panels = [...(app.state.m || [])];
    if (panel) panels[place] = panel;
    else panels.splice(place, 1);
    app.go({ m: panels.length ? panels : undefined }, { replace: true });
  }

  function open(metric) {
    app.go({ m: [...(app.state.m || []), first(metric)] });
    window.scrollTo({ top: 0 });
  }

  function say() {
    const words = find.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    const fits = found.filter(({ name, unit, help }) => {
      const text = `${name} ${unit} ${help}`.toLowerCase();
      return words.every((word) => text.includes(word));
    });
    const row = (metric) => {
      const link = make("a", { href: "#", title: metric.name }, short(metric.name, 80));
      link.addEventListener("click", (event) => {
        event.preventDefault();
        open(metric);
      });
      return make("tr", make("th", { scope: "row" }, link), make("td.text", sparks.of(metric)), make("td.text", metric.kind), make("td.text", symbol(metric.unit)),
        make("td", String(metric.series)), make("td.help", { title: metric.help }, short(metric.help, 160)));
    };
    sparks.clear();
    put(list, fits.slice(0, SHOWN).map(row));
    const left = found === app.page.metrics ? app.page.metrics_left_out : 0;
    put(told, `${fits.length} of ${found.length} metrics${fits.length > SHOWN ? `, the first ${SHOWN} are shown` : ""}` +
      `${left ? `; ${left} more are found by a search` : ""}. Choose one to see it as a panel.`);
    put(names, found.slice(0, 1000).map(({ name }) => make("option", { value: name })));
  }

  const search = calm(150, async () => {
    app.go({ find: find.value || undefined }, { replace: true });
    if (app.page.metrics_left_out && find.value.trim()) {
      const more = await json(`api/page?search=${encodeURIComponent(find.value.trim())}`).catch(() => null);
      if (more) {
        found = more.metrics.map((one) => ({ ...one, unit: one.unit || "", help: one.help || "", tags: new Map(Object.entries(one.tags)) }));
        for (const one of found) app.byName.set(one.name, one);
      }
    } else found = app.page.metrics;
    say();
  });
  find.addEventListener("input", search);

  function controls(spec, place) {
    const [query, second] = spec.queries;
    const metric = app.metric(query.metric);
    const set = (more) => change(place, { ...spec, ...more });
    const ask = (more) => set({ queries: spec.queries.map((one) => ({ ...one, ...more })) });
    const keys = [...(metric?.tags.keys() || [])];
    const groups = [["", "one line"], ...keys.map((key) => [key, `by ${key} (${metric.tags.get(key)})`])];
    if (keys.length > 1) groups.push([keys.join("\n"), "by all tags"]);
    const filter = Object.entries(query.where).map(([key, value]) => `${key}=${value}`).join(", ");
    const filterField = make("input", { value: filter, size: 16, placeholder: keys.length ? `filter: ${keys[0]}=a|b*` : "filter: tag=value", "aria-label": "Filter: tag=value, * for anything" });
    filterField.addEventListener("change", () => {
      const where = tagged();
      for (const part of filterField.value.split(",")) {
        const at = part.indexOf("=");
        if (at > 0 && part.slice(at + 1).trim()) where[part.slice(0, at).trim()] = part.slice(at + 1).trim();
      }
      ask({ where });
    });
    const more = make("input", { value: second?.metric || "", size: 18, placeholder: "and metric…", "aria-label": "Second metric in this panel" });
    more.setAttribute("list", "metric-names");
    more.addEventListener("change", () => {
      const other = app.metric(more.value);
      const queries = [query];
      if (more.value) queries.push({ ...query, metric: more.value, rate: other ? rises(other) : query.rate });
      set({ queries });
    });
    const steps = ({ name }) => /(^|[./_])step$/.test(name);
    const own = app.page.metrics.filter((one) => one.own && one.series > 0).sort((a, b) => Number(steps(b)) - Number(steps(a))).slice(0, 60);
    const axes = [["", "over time"], ["since", "over time since the job began"], ...own.map(({ name }) => [`x=${name}`, `over ${name}`])];
    const axis = choice("What stands below", axes, spec.x ? `x=${spec.x}` : spec.since ? "since" : "", (value) => set({ since: value === "since", x: value.startsWith("x=") ? value.slice(2) : "" }));
    const smooth = make("input", { type: "range", min: "0", max: "100", value: String(spec.smooth), "aria-label": "Smoothing", title: "Smoothing" });
    smooth.addEventListener("change", () => set({ smooth: Number(smooth.value) }));
    return make("div.controls",
      choice("Function", FUNCTIONS.map((name) => [name, name]), query.function, (name) => ask({ function: name })),
      toggle("rate", "Change a second", query.rate, (rate) => ask({ rate })),
      choice("Group by", groups, query.by.join("\n"), (by) => ask({ by: by ? by.split("\n") : [] })),
      filterField, toggle("log", "Logarithmic axis", spec.log, (log) => set({ log })),
      make("label", "smooth", smooth), more, axis);
  }

  let built = null;
  function build() {
    const wanted = (app.state.m || []).map(printPanel).join("&");
    if (wanted === built) return;
    built = wanted;
    const old = new Map(board.panels.map((panel) => [printPanel(panel.spec), panel]));
    const panels = (app.state.m || []).map((spec, place) => {
      const key = printPanel(spec);
      const close = make("button.quiet", { type: "button", title: "Take this panel away", "aria-label": "Take this panel away" }, "✕");
      close.addEventListener("click", () => change(place));
      const kept = old.get(key);
      // Controls know the place of their panel, so only one that stays where it was is kept.
      if (kept && kept.place === place) {
        old.delete(key);
        return kept;
      }
      const panel = board.add(spec, {
        title: spec.queries.map(({ metric }) => metric).join(" and "), tools: close, controls: controls(spec, place), height: 230,
      });
      panel.place = place;
      return panel;
    });
    for (const panel of old.values()) board.remove(panel);
    put(grid, panels.map(({ element }) => element));
    grid.className = panels.length < 3 ? "grid large" : "grid";
  }

  build();
  say();
  return {
    update({ ranged }) {
      build();
      if (ranged) {
        board.refresh();
        sparks.refresh();
      } else {
        board.redraw();
        sparks.soon();
      }
    },
    told() {
      if (!find.value) {
        found = app.page.metrics;
        say();
      }
    },
    first: board.first,
    pace: () => board.pace(),
    tick: () => board.tick(),
    end() {
      board.end();
      sparks.end();
    },
  };
}
