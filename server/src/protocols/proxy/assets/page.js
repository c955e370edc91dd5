// The pages at the addresses of Metric Proxy. Every text that a client sent becomes a text node, never markup.

const view = document.getElementById("view");
const note = document.getElementById("note");
const SVG = "http://www.w3.org/2000/svg";

// An element with properties and children; children are nodes or texts.
function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  Object.assign(made, properties);
  made.append(...children);
  return made;
}

function drawing(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  made.append(...children);
  return made;
}

// What a path answers. An error of the server is an Error with its words.
async function ask(path, body) {
  const options = body === undefined
    ? {}
    : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(path, { ...options, signal: AbortSignal.timeout(30_000) });
  const text = await answer.text();
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Error(`${answer.status}: ${text.slice(0, 200)}`);
  }
  if (!answer.ok) throw new Error(value.operation ?? value.error?.message ?? `status ${answer.status}`);
  return value;
}

const withQuery = (path, params) => `${path}?${new URLSearchParams(params)}`;
const parameters = new URLSearchParams(location.search);

function say(error) {
  note.textContent = error === undefined ? "" : String(error.message ?? error);
}

// Does it now and again, but not while the tab is hidden.
function every(seconds, what) {
  const once = async () => {
    if (!document.hidden) {
      try {
        await what();
        say();
      } catch (error) {
        say(error);
      }
    }
    setTimeout(once, seconds * 1000);
  };
  return once();
}

function table(headings, rows) {
  const head = headings.map(([name, kind]) => element("th", { className: kind ?? "", scope: "col" }, name));
  const lines = rows.map((cells) =>
    element("tr", {}, ...cells.map((cell, at) => element("td", { className: headings[at][1] ?? "" }, cell))));
  return element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...lines));
}

function number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "";
  const size = Math.abs(value);
  return size !== 0 && (size >= 1e15 || size < 1e-4) ? value.toExponential(4) : String(Number(value.toPrecision(12)));
}

const time = (ms) => (ms ? new Date(ms).toLocaleString() : "");
const link = (href, text) => element("a", { href }, text);

const DESCRIPTION = [
  ["jobid", "Job"], ["command", "Command"], ["size", "Size"], ["nodelist", "Nodes"], ["partition", "Partition"],
  ["cluster", "Cluster"], ["run_dir", "Run directory"], ["start_time", "Start"], ["end_time", "End"],
];

const shown = (desc, field) => (field.endsWith("_time") ? time(desc[field]) : String(desc[field] ?? ""));

function counterCells({ name, doc, ctype }) {
  if (ctype.Counter) return [name, doc, number(ctype.Counter.value), "", ""];
  const { min, max, hits, total } = ctype.Gauge;
  return hits ? [name, doc, number(total / hits), number(min), number(max)] : [name, doc, "never set", "", ""];
}

const COUNTER_HEADINGS = [["Name"], ["Documentation"], ["Value", "number"], ["Least", "number"], ["Greatest", "number"]];

// A field that filters the rows of the table behind it.
function filtered(make) {
  const field = element("input", { type: "search", placeholder: "part of a name" });
  const place = element("div");
  const show = () => place.replaceChildren(make(field.value.toLowerCase()));
  field.addEventListener("input", show);
  show();
  return { node: element("div", {}, element("form", {}, element("label", {}, "Filter", field)), place), show };
}

// Lines of [x, y] pairs in one chart, and points over them.
function chart({ lines, points = [], x, label }) {
  const all = [...lines.flat(), ...points].filter(([a, b]) => Number.isFinite(a) && Number.isFinite(b));
  const picture = drawing("svg", { viewBox: "0 0 1000 300", role: "img", "aria-label": label });
  if (all.length === 0) {
    picture.append(drawing("text", { x: 20, y: 40 }, "no samples"));
    return picture;
  }
  const reach = (at) => {
    const values = all.map((pair) => pair[at]);
    const [least, greatest] = values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
    return least === greatest ? [least - 0.5, greatest + 0.5] : [least, greatest];
  };
  const [[x0, x1], [y0, y1]] = [reach(0), reach(1)];
  const px = (v) => 90 + ((v - x0) / (x1 - x0)) * 890;
  const py = (v) => 270 - ((v - y0) / (y1 - y0)) * 250;
  picture.append(drawing("path", { class: "axis", d: "M90 20V270H980", fill: "none" }));
  for (const part of [0, 0.5, 1]) {
    const [vx, vy] = [x0 + part * (x1 - x0), y0 + part * (y1 - y0)];
    picture.append(drawing("text", { x: px(vx), y: 290, "text-anchor": part === 1 ? "end" : "middle" }, x(vx)));
    picture.append(drawing("text", { x: 84, y: py(vy) + 4, "text-anchor": "end" }, number(Number(vy.toPrecision(4)))));
  }
  for (const line of lines) {
    let path = "";
    let isOpen = false;
    for (const [a, b] of line) {
      const isThere = Number.isFinite(a) && Number.isFinite(b);
      if (isThere) path += `${isOpen ? "L" : "M"}${px(a).toFixed(1)} ${py(b).toFixed(1)}`;
      isOpen = isThere;
    }
    picture.append(drawing("path", { class: "line", d: path }));
  }
  for (const [a, b] of points) picture.append(drawing("circle", { class: "point", cx: px(a), cy: py(b), r: 4 }));
  return picture;
}

function choice(label, options, chosen, changed) {
  const field = element("select", {}, ...options.map((option) => element("option", { value: option }, option)));
  if (options.includes(chosen)) field.value = chosen;
  field.addEventListener("change", () => changed(field.value));
  return { field, node: element("label", {}, label, field) };
}

// What of the choice is in the address, so that it can be sent to others.
function remember(params) {
  for (const [key, value] of Object.entries(params)) parameters.set(key, value);
  history.replaceState(null, "", `?${parameters}`);
}

const pages = {
  index() {
    return every(5, async () => {
      const [jobs, raised] = await Promise.all([ask("job/list"), ask("alarms")]);
      const alarms = Object.values(raised).flat();
      view.replaceChildren(
        element("p", {}, `${jobs.length} live, sums included. `, link("jobs.html", "Jobs")),
        element("p", { className: alarms.length ? "raised" : "" },
          alarms.length ? `${alarms.length} alarms are raised. ` : "No alarm is raised. ", link("alarms.html", "Alarms")),
        element("ul", {}, ...alarms.map((alarm) => element("li", {}, alarm.pretty))));
    });
  },

  jobs() {
    return every(10, async () => {
      const jobs = await ask("job/list");
      const headings = [["Job"], ["As text"], ["As JSON"], ["Command"], ["Size", "number"], ["Nodes"], ["Partition"],
        ["Cluster"], ["Run directory"], ["Start"]];
      const rows = jobs.map((desc) => [
        link(withQuery("job_view.html", { job: desc.jobid }), desc.jobid),
        link(withQuery("metrics", { job: desc.jobid }), "text"), link(withQuery("job", { job: desc.jobid }), "JSON"),
        ...["command", "size", "nodelist", "partition", "cluster", "run_dir", "start_time"].map((f) => shown(desc, f)),
      ]);
      view.replaceChildren(table(headings, rows));
    });
  },

  job_view() {
    const profile = parameters.get("profile");
    const id = profile ?? parameters.get("job") ?? "main";
    let last;
    let list;
    const read = async () => {
      last = profile === null
        ? await ask(withQuery("job", { job: id }))
        : await ask(withQuery("profiles/get", { jobid: id }));
      last.counters.sort((a, b) => (a.name < b.name ? -1 : 1));
      const desc = table([["Field"], ["Value"]], DESCRIPTION.map(([field, name]) => [name, shown(last.desc, field)]));
      list ??= filtered((part) => table(COUNTER_HEADINGS,
        last.counters.filter((c) => c.name.toLowerCase().includes(part)).slice(0, 5000).map(counterCells)));
      list.show();
      view.replaceChildren(element("h2", {}, id), desc, element("h2", {}, `${last.counters.length} counters and gauges`), list.node);
    };
    return profile === null ? every(1, async () => {
      // Who types a filter keeps the field.
      const isTyping = document.activeElement?.type === "search";
      if (!isTyping || !last) await read();
      else {
        last = await ask(withQuery("job", { job: id }));
        list.show();
      }
    }) : read();
  },

  async alarms() {
    const jobs = await ask("job");
    const byId = new Map(jobs.map((job) => [job.desc.jobid, job.counters.map((c) => c.name).sort()]));
    const metrics = element("datalist", { id: "metrics" });
    const fill = (id) =>
      metrics.replaceChildren(...(byId.get(id) ?? []).slice(0, 5000).map((value) => element("option", { value })));
    const name = element("input", { name: "name", required: true });
    const job = choice("Job", [...byId.keys()], "main", fill);
    const metric = element("input", { name: "metric", required: true });
    metric.setAttribute("list", "metrics");
    const operation = choice("Is", [">", "<", "="], ">", () => {});
    const limit = element("input", { type: "number", step: "any", required: true });
    const held = element("input", { type: "number", step: "any", min: 0, placeholder: "0" });
    const form = element("form", {}, element("label", {}, "Name", name), job.node, element("label", {}, "Metric", metric),
      operation.node, element("label", {}, "Value", limit), element("label", {}, "For (seconds)", held),
      element("button", {}, "Add alarm"), metrics);
    fill(job.field.value);
    const [raisedPlace, allPlace] = [element("div"), element("div")];
    const show = async () => {
      const [raised, all] = await Promise.all([ask("alarms"), ask("alarms/list")]);
      const rows = (lists, more) => Object.entries(lists).flatMap(([id, alarms]) => alarms.map((alarm) => {
        const [[operator, value]] = Object.entries(alarm.operator);
        const sign = { More: ">", Less: "<", Equal: "=" }[operator] ?? operator;
        return [id, alarm.name, alarm.metric, `${sign} ${number(value)}`, number(alarm.current), ...more(id, alarm)];
      }));
      const headings = [["Job"], ["Name"], ["Metric"], ["Raised when"], ["Now", "number"]];
      const remove = (id, alarm) => {
        const button = element("button", { type: "button" }, "Delete");
        button.addEventListener("click", async () => {
          try {
            await ask("alarms/del", { target: id, name: alarm.name });
            await show();
          } catch (error) {
            say(error);
          }
        });
        return [alarm.active ? element("span", { className: "raised" }, "raised") : "", button];
      };
      raisedPlace.replaceChildren(table(headings, rows(raised, () => [])));
      allPlace.replaceChildren(table([...headings, ["State"], [""]], rows(all, remove)));
    };
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      try {
        const seconds = held.value === "" ? {} : { for: Number(held.value) };
        await ask("alarms/add", { name: name.value, target: job.field.value, metric: metric.value,
          operation: operation.field.value, value: Number(limit.value), ...seconds });
        say();
        await show();
      } catch (error) {
        say(error);
      }
    });
    view.replaceChildren(form, element("h2", {}, "Raised"), raisedPlace, element("h2", {}, "All"), allPlace);
    return every(1, show);
  },

  async profiles() {
    const commands = Object.entries(await ask("profiles/percmd")).sort(([a], [b]) => (a < b ? -1 : 1));
    const parts = commands.flatMap(([command, jobs]) => [
      element("h2", {}, command),
      table([["Job"], ["As JSON"], ["Model"], ["Size", "number"], ["Nodes"], ["Start"], ["End"]], jobs.map((desc) => [
        link(withQuery("job_view.html", { profile: desc.jobid }), desc.jobid),
        link(withQuery("profiles/get", { jobid: desc.jobid }), "JSON"),
        link(withQuery("model.html", { jobid: desc.jobid }), "model"),
        String(desc.size), desc.nodelist, time(desc.start_time), time(desc.end_time)])),
    ]);
    view.replaceChildren(...(parts.length ? parts : [element("p", {}, "No job has ended yet.")]));
  },

  async trace() {
    const traces = await ask("trace/list");
    const ids = traces.map((trace) => trace.desc.jobid);
    if (ids.length === 0) return view.replaceChildren(element("p", {}, "Nothing was recorded yet."));
    let id = parameters.get("jobid") ?? ids[0];
    if (!ids.includes(id)) id = ids[0];
    const [place, metricPlace] = [element("div"), element("span")];
    const derive = element("input", { type: "checkbox", checked: parameters.get("derivate") === "true" });
    let filter = parameters.get("filter");
    const show = async () => {
      if (!filter) return place.replaceChildren(element("p", {}, "This job has no metric with data."));
      const line = await ask("trace/plot", { jobid: id, filter, derivate: derive.checked });
      const end = line.length ? line[line.length - 1][0] : 0;
      const x = (at) => (end > 1e9 ? new Date(at * 1000).toLocaleTimeString() : number(at));
      const what = derive.checked ? `${filter} a second` : filter;
      place.replaceChildren(element("h2", {}, what), chart({ lines: [line], x, label: `${what} over time` }));
    };
    const metrics = async () => {
      const names = (await ask(withQuery("trace/metrics", { job: id }))).sort();
      if (!names.includes(filter)) filter = names[0];
      metricPlace.replaceChildren(choice("Metric", names, filter, async (chosen) => {
        filter = chosen;
        remember({ jobid: id, filter });
        await show();
      }).node);
    };
    const jobs = choice("Job", ids, id, async (chosen) => {
      id = chosen;
      try {
        await metrics();
        remember({ jobid: id, filter: filter ?? "" });
        await show();
      } catch (error) {
        say(error);
      }
    });
    derive.addEventListener("change", () => {
      remember({ derivate: String(derive.checked) });
      show().catch(say);
    });
    await metrics();
    view.replaceChildren(element("form", {}, jobs.node, metricPlace,
      element("label", { className: "box" }, derive, "Derive")), place);
    return every(2, show);
  },

  async model() {
    const jobs = await ask("profiles");
    const ids = [...new Set(jobs.map((desc) => desc.jobid))];
    if (ids.length === 0) return view.replaceChildren(element("p", {}, "No job has ended yet."));
    let id = ids.includes(parameters.get("jobid")) ? parameters.get("jobid") : ids[ids.length - 1];
    const [list, place] = [element("div"), element("div")];
    const far = element("input", { type: "range", min: 1, max: 64, value: 2 });
    let metric = parameters.get("metric");
    let points = {};
    const plot = async () => {
      if (!metric) return;
      const measured = points[metric] ?? [];
      const sizes = measured.map(([size]) => size);
      const [start, last] = [Math.min(1, ...sizes), Math.max(1, ...sizes)];
      const end = last * Number(far.value);
      const step = Math.max((end - start) / 200, 1e-9);
      const curve = await ask("model/plot", { jobid: id, metric, start, end: end + step, step }).catch(() => []);
      place.replaceChildren(element("h2", {}, metric),
        element("form", {}, element("label", {}, "How far to project", far)),
        chart({ lines: [curve], points: measured, x: number, label: `${metric} by size` }));
    };
    far.addEventListener("change", () => plot().catch(say));
    const show = async () => {
      const models = await ask(withQuery("model/get", { jobid: id }));
      points = await ask(withQuery("profiles/points", { jobid: id }));
      models.sort(([a], [b]) => (a < b ? -1 : 1));
      if (!models.some(([name]) => name === metric)) metric = models[0]?.[0];
      list.replaceChildren(models.length === 0
        ? element("p", {}, "There is no model: it takes finished jobs of this command with two sizes at least.")
        : table([["Metric"], ["Model"], ["RSS", "number"]], models.map(([name, formula, rss]) => {
          const button = element("button", { type: "button" }, name);
          button.addEventListener("click", () => {
            metric = name;
            remember({ jobid: id, metric });
            plot().catch(say);
          });
          return [button, formula, typeof rss === "number" ? number(rss) : String(rss)];
        })));
      await plot();
    };
    const job = choice("Job", ids, id, (chosen) => {
      id = chosen;
      remember({ jobid: id });
      show().catch(say);
    });
    view.replaceChildren(element("form", {}, job.node, link(withQuery("model/download", { jobid: id }), "Extra-P's input")),
      place, list);
    return show();
  },

  topology() {
    return every(5, async () => {
      const [edges, scrapes] = await Promise.all([ask("topo"), ask("join/list")]);
      const children = new Map();
      for (const [parent, child] of edges) {
        if (parent !== child) children.set(parent, [...(children.get(parent) ?? []), child]);
      }
      const below = new Set(edges.filter(([parent, child]) => parent !== child).map(([, child]) => child));
      const roots = [...new Set(edges.map(([parent]) => parent))].filter((name) => !below.has(name));
      const seen = new Set();
      const branch = (name) => {
        if (seen.has(name)) return element("li", {}, name);
        seen.add(name);
        const own = children.get(name) ?? [];
        const isAddress = /^[\w.-]+:\d+$/.test(name);
        const title = isAddress ? link(`http://${name}/`, name) : name;
        return element("li", {}, title, ...(own.length ? [element("ul", {}, ...own.map(branch))] : []));
      };
      const rows = scrapes.map((scrape) => [scrape.target_url, scrape.ttype, number(scrape.period),
        time(scrape.last_scrape * 1000), scrape.error ?? ""]);
      view.replaceChildren(element("ul", {}, ...roots.map(branch)), element("h2", {}, "What is scraped"),
        table([["Target"], ["Kind"], ["Period (ms)", "number"], ["Last"], ["Error"]], rows));
    });
  },

  doc() {},
  is_admire_proxy() {},
};

const name = document.body.dataset.page;
for (const anchor of document.querySelectorAll("nav a")) {
  if (anchor.getAttribute("href") === `${name}.html`) anchor.setAttribute("aria-current", "page");
}
Promise.resolve(pages[name]?.()).catch(say);
