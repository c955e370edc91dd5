// The pages at the addresses of Metric Proxy, by their names.

import { chart } from "./proxy_chart.js";
import {
  ask, box, choice, clock, day, duration, element, every, filtered, link, moment, number, outcome, parameters, put,
  remember, say, table, unitChoice, withQuery,
} from "./proxy_parts.js";

const view = document.getElementById("view");
// Metrics that are offered while somebody types.
const OFFERED_MAX = 5000;
// How many times the largest size a model is projected at most.
const PROJECTION_MAX = 64;
// How long lists of traces and their metrics count, where the samples of one are asked for all the time.
const LISTS_MS = 10_000;
// Places of a model's curve.
const CURVE_POINTS = 200;

const byName = (one, other) => (one < other ? -1 : one > other ? 1 : 0);
const isSum = (id) => id === "main" || id.startsWith("Node: ");

const DESCRIPTION = [
  ["jobid", "Job"], ["command", "Command"], ["size", "Size"], ["nodelist", "Nodes"], ["partition", "Partition"],
  ["cluster", "Cluster"], ["run_dir", "Run directory"], ["start_time", "Start"], ["end_time", "End"],
];

const shown = (desc, field) => (field.endsWith("_time") ? moment(desc[field]) : String(desc[field] ?? ""));
// What a choice of jobs calls one.
const called = (desc) => (desc.command ? `${desc.jobid} : ${desc.command}` : desc.jobid);

function links(...pairs) {
  return element("div", { className: "links" }, ...pairs.map(([href, text]) => link(href, text)));
}

const COUNTERS = {
  headings: [
    ["Name", "long"], ["Documentation", "long"], ["Value", "number"], ["Least", "number"], ["Greatest", "number"],
  ],
  name: (counter) => counter.name,
  none: "This job counts nothing yet.",
  make: ({ name, doc, ctype }) => {
    if (ctype.Counter) return [name, doc, number(ctype.Counter.value), "", ""];
    const { min, max, hits, total } = ctype.Gauge;
    return hits ? [name, doc, number(total / hits), number(min), number(max)] : [name, doc, "never set", "", ""];
  },
};

// What a job is, and what it counts.
function jobParts(list) {
  const [description, heading] = [element("div"), element("h2")];
  const show = ({ desc, counters }) => {
    const rows = DESCRIPTION.map(([field, name]) => [name, shown(desc, field)]);
    if (desc.start_time && desc.end_time) rows.push(["Duration", duration(desc.end_time - desc.start_time)]);
    put(description, table([["Field"], ["Value"]], rows.filter(([, value]) => value !== ""), "pairs"));
    heading.textContent = counters.length === 1 ? "1 counter or gauge" : `${counters.length} counters and gauges`;
    list.show(counters.sort((a, b) => byName(a.name, b.name)));
  };
  return { nodes: [description, heading, list.node], show };
}

async function liveJob(id) {
  const job = jobParts(filtered(COUNTERS));
  const heading = element("h2", {}, id);
  const parts = [heading,
    links([withQuery("metrics", { job: id }), "as text for Prometheus"], [withQuery("job", { job: id }), "as JSON"],
      [withQuery("trace.html", { jobid: id }), "over time"]),
    ...job.nodes];
  const isOver = async () => (await ask("profiles")).some((desc) => desc.jobid === id);
  view.replaceChildren(heading);
  return every(1, async () => {
    try {
      job.show(await ask(withQuery("job", { job: id })));
    } catch (error) {
      if (!(await isOver())) throw error;
      view.replaceChildren(heading, element("p", {}, "This job is over. ",
        link(withQuery("job_view.html", { profile: id }), "What it counted"), " was kept."));
      return false;
    }
    if (!job.nodes[0].isConnected) view.replaceChildren(...parts);
    return true;
  });
}

async function finishedJob(id) {
  const start = parameters.get("start");
  const query = { jobid: id, ...(start === null ? {} : { start }) };
  const [profile, all] = await Promise.all([
    ask(withQuery("profiles/get", query)), ask(withQuery("profiles", { runs: "all" })),
  ]);
  const runs = all.filter((desc) => desc.jobid === id);
  const others = runs.filter((desc) => desc.start_time !== profile.desc.start_time);
  const job = jobParts(filtered(COUNTERS));
  job.show(profile);
  const more = others.length === 0 ? [] : [element("p", {}, "Other runs of this job began at ",
    ...others.flatMap((desc, at) => [
      at ? ", " : "",
      link(withQuery("job_view.html", { profile: id, start: desc.start_time }), moment(desc.start_time) || "no time"),
    ]), ".")];
  view.replaceChildren(element("h2", {}, id),
    links([withQuery("profiles/get", query), "as JSON"], [withQuery("trace.html", { jobid: id }), "over time"],
      [withQuery("model.html", { jobid: id }), "models of its command"]),
    ...more, ...job.nodes);
}

function condition(alarm) {
  const [[operator, limit]] = Object.entries(alarm.operator);
  const sign = { More: ">", Less: "<", Equal: "=" }[operator] ?? operator;
  const held = alarm.for ? ` for ${number(alarm.for)} s` : "";
  const clear = alarm.clear === undefined ? "" : `, until ${number(alarm.clear)}`;
  return `${sign} ${number(limit)}${held}${clear}`;
}

const pages = {
  index() {
    const place = element("div");
    view.replaceChildren(
      element("p", {},
        "This server takes what clients of Metric Proxy count, keeps it, and answers at Metric Proxy's addresses. ",
        link("doc.html", "The API documentation"), " names them all."),
      place);
    return every(5, async () => {
      const paths = ["job/list", "alarms", "profiles", "topo"];
      const [jobs, raised, over, edges] = await Promise.all(paths.map((path) => ask(path)));
      const alarms = Object.values(raised).flat();
      const children = edges.filter(([parent, child]) => parent !== child);
      const lost = children.filter((edge) => edge[2] === "lost").length;
      put(place,
        table([["What"], ["How many", "number"], [""]], [
          ["Live jobs", String(jobs.filter(({ jobid }) => !isSum(jobid)).length), link("jobs.html", "Jobs")],
          ["Finished jobs", String(over.length), link("profiles.html", "Profiles")],
          ["Raised alarms", element("span", { className: alarms.length ? "raised" : "" }, String(alarms.length)),
            link("alarms.html", "Alarms")],
          ["Proxies below this one", lost ? element("span", { className: "raised" }, `${children.length}, ${lost} lost`)
            : String(children.length), link("topology.html", "Proxy Topology")],
        ], "pairs"),
        element("ul", {}, ...alarms.map((alarm) => element("li", {}, alarm.pretty))));
    });
  },

  jobs() {
    return every(10, async () => {
      const jobs = await ask("job/list");
      // The sums first, then the youngest.
      jobs.sort((a, b) => isSum(b.jobid) - isSum(a.jobid) || b.start_time - a.start_time || byName(b.jobid, a.jobid));
      const headings = [["Job", "name"], ["Also as"], ["Command", "long"], ["Size", "number"], ["Nodes"], ["Partition"],
        ["Cluster"], ["Run directory", "long"], ["Start", "time"]];
      const rows = jobs.map((desc) => [
        link(withQuery("job_view.html", { job: desc.jobid }), desc.jobid),
        links([withQuery("metrics", { job: desc.jobid }), "text"], [withQuery("job", { job: desc.jobid }), "JSON"]),
        ...["command", "size", "nodelist", "partition", "cluster", "run_dir", "start_time"].map((f) => shown(desc, f)),
      ]);
      put(view, table(headings, rows));
    });
  },

  job_view() {
    const profile = parameters.get("profile");
    return profile === null ? liveJob(parameters.get("job") ?? "main") : finishedJob(profile);
  },

  alarms() {
    const offered = element("datalist", { id: "metrics" });
    // What may be watched: a counter that is still 0, too.
    const offer = async (id) => {
      const { counters } = await ask(withQuery("job", { job: id }));
      const names = counters.map((counter) => counter.name).sort();
      offered.replaceChildren(...names.slice(0, OFFERED_MAX).map((value) => element("option", { value })));
    };
    const field = (label, properties) => {
      const input = element("input", properties);
      return { input, node: element("label", {}, label, input) };
    };
    const figure = { type: "number", step: "any" };
    const name = field("Name", { required: true });
    const job = choice("Job", [["main"]], "main", (id) => came.of(() => offer(id)));
    const metric = field("Metric", { required: true, className: "long" });
    metric.input.setAttribute("list", "metrics");
    const signs = [[">", "> more than"], ["<", "< less than"], ["=", "= equal to"]];
    const operation = choice("Is", signs, ">", () => {});
    const limit = field("Value", { ...figure, required: true });
    const held = field("For (seconds)", { ...figure, min: 0, placeholder: "0" });
    const clear = field("Ends at", { ...figure, placeholder: "the same" });
    const came = outcome();
    const form = element("form", {},
      name.node, job.node, metric.node, operation.node, limit.node, held.node, clear.node,
      element("button", {}, "Add alarm"), offered);
    const [raisedPlace, allPlace] = [element("div"), element("div")];
    const headings = [["Job", "name"], ["Name", "long"], ["Metric", "long"], ["Raised when"], ["Now", "number"]];
    const show = async () => {
      const [raised, all] = await Promise.all([ask("alarms"), ask("alarms/list")]);
      job.offer(Object.keys(all).sort((a, b) => isSum(b) - isSum(a) || byName(a, b)).map((id) => [id]));
      const rows = (lists, more) => Object.entries(lists).flatMap(([id, alarms]) => alarms.map((alarm) =>
        [id, alarm.name, alarm.metric, condition(alarm), number(alarm.current), ...more(id, alarm)]));
      const remove = (id, alarm) => {
        const button = element("button", { type: "button" }, "Delete");
        button.dataset.alarm = JSON.stringify([id, alarm.name]);
        button.addEventListener("click", () => came.of(async () => {
          const { operation: done } = await ask("alarms/del", { target: id, name: alarm.name });
          await show();
          return done;
        }));
        return [alarm.active ? element("span", { className: "raised" }, "raised") : "not raised", button];
      };
      const list = (place, heads, cells, none) =>
        put(place, cells.length ? table(heads, cells) : element("p", {}, none));
      list(raisedPlace, headings, rows(raised, () => []), "No alarm is raised.");
      list(allPlace, [...headings, ["State", "short"], ["", "short"]], rows(all, remove), "There is no alarm.");
    };
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const optional = (key, { input }) => (input.value === "" ? {} : { [key]: Number(input.value) });
      came.of(async () => {
        const { operation: done } = await ask("alarms/add", {
          name: name.input.value, target: job.field.value, metric: metric.input.value, operation: operation.field.value,
          value: Number(limit.input.value), ...optional("for", held), ...optional("clear", clear),
        });
        for (const { input } of [name, metric, limit, held, clear]) input.value = "";
        await show();
        return done;
      });
    });
    view.replaceChildren(form, came.node, element("h2", {}, "Raised"), raisedPlace, element("h2", {}, "All"), allPlace);
    came.of(() => offer("main"));
    return every(1, show);
  },

  profiles() {
    const place = element("div");
    const isAll = () => parameters.get("runs") === "all";
    const show = async () => {
      const commands = Object.entries(await ask(isAll() ? "profiles/percmd?runs=all" : "profiles/percmd"));
      const headings = [["Job", "name"], ["Also as"], ["Size", "number"], ["Nodes"], ["Partition"], ["Cluster"],
        ["Run directory", "long"], ["Start", "time"], ["End", "time"]];
      const fields = ["size", "nodelist", "partition", "cluster", "run_dir", "start_time", "end_time"];
      const parts = commands.sort(([a], [b]) => byName(a, b)).flatMap(([command, jobs]) => [
        element("h2", {}, command || "Without a command"),
        table(headings, jobs.map((desc) => {
          const start = isAll() ? { start: desc.start_time } : {};
          return [
            link(withQuery("job_view.html", { profile: desc.jobid, ...start }), desc.jobid),
            links([withQuery("profiles/get", { jobid: desc.jobid, ...start }), "JSON"],
              [withQuery("model.html", { jobid: desc.jobid }), "model"],
              [withQuery("trace.html", { jobid: desc.jobid }), "trace"]),
            ...fields.map((field) => shown(desc, field)),
          ];
        })),
      ]);
      put(place, ...(parts.length ? parts : [element("p", {}, "No job has ended yet.")]));
    };
    const all = box("Earlier runs of a job, too", isAll(), (isWanted) => {
      remember({ runs: isWanted ? "all" : "latest" });
      show().catch(say);
    });
    view.replaceChildren(element("form", {}, all.node), place);
    return every(10, show);
  },

  trace() {
    const picture = chart();
    const [heading, about] = [element("h2"), element("p", { className: "links" })];
    let asked = 0;
    let listedAt = -Infinity;
    let traces = [];
    let names = [];
    let id = parameters.get("jobid");
    let filter = parameters.get("filter");
    const derived = () => derive.field.checked;
    const redraw = () => show().catch(say);
    const flag = (key) => (isOn) => {
      remember({ [key]: String(isOn) });
      redraw();
    };
    const jobs = choice("Job", [], id, (chosen) => {
      id = chosen;
      listedAt = -Infinity;
      remember({ jobid: id });
      redraw();
    });
    const metrics = choice("Metric", [], filter, (chosen) => {
      filter = chosen;
      remember({ jobid: id, filter });
      redraw();
    });
    const derive = box("Derive (change a second)", parameters.get("derivate") === "true", flag("derivate"));
    const relative = box("Seconds since the start", parameters.get("relative") === "true", flag("relative"));
    const unit = unitChoice(redraw);
    const form = element("form", {}, jobs.node, metrics.node, unit.node, derive.node, relative.node);
    const show = async () => {
      // Of several questions that are under way the last one counts.
      asked += 1;
      const turn = asked;
      if (performance.now() - listedAt > LISTS_MS) {
        const listed = await ask("trace/list");
        if (turn !== asked) return;
        traces = listed.sort((a, b) => byName(a.desc.jobid, b.desc.jobid));
        jobs.offer(traces.map(({ desc }) => [desc.jobid, called(desc)]));
        if (!traces.some(({ desc }) => desc.jobid === id)) id = jobs.field.value;
        const told = await ask(withQuery("trace/metrics", { job: id }));
        if (turn !== asked) return;
        names = told.sort();
        metrics.offer(names.map((name) => [name]));
        listedAt = names.length ? performance.now() : -Infinity;
      }
      const { size, lastwrite } = traces.find(({ desc }) => desc.jobid === id);
      filter = names.includes(filter) ? filter : names[0];
      if (filter === undefined) {
        heading.textContent = "";
        about.replaceChildren("This job has no metric with data yet.");
        picture.show({ line: [], label: id });
        return;
      }
      metrics.field.value = filter;
      const line = await ask("trace/plot", { jobid: id, filter, derivate: derived() });
      if (turn !== asked) return;
      const begin = line.length ? line[0][0] : 0;
      const end = line.length ? line[line.length - 1][0] : 0;
      const isRelative = relative.field.checked;
      const isLong = end - begin > 86400;
      const x = (at) => {
        if (isRelative) return `${number(Number(at.toPrecision(6)))} s`;
        const date = new Date(at * 1000);
        return isLong ? `${day(date).slice(5)} ${clock(date).slice(0, 5)}` : clock(date);
      };
      const what = unit.named(derived() ? `${filter} a second` : filter);
      heading.textContent = what;
      picture.show({
        line: unit.scaled(line.map(([at, value]) => [isRelative ? at - begin : at, value])),
        x, isTime: true, label: `${what} over time`,
      });
      put(about,
        element("span", {}, `about ${number(Number((size / 1000).toPrecision(3)))} kB of samples`),
        ...(lastwrite ? [element("span", {}, "the last one at ", moment(lastwrite * 1000))] : []),
        link(withQuery("trace/plot", { jobid: id, filter, derivate: String(derived()) }), "these samples as JSON"),
        link(withQuery("trace/json", { jobid: id }), "the whole trace as JSON"));
    };
    view.replaceChildren(form, heading, picture.node, about);
    return every(1, show);
  },

  async model() {
    const jobs = await ask("profiles");
    const known = new Map(jobs.map((desc) => [desc.jobid, called(desc)]));
    if (known.size === 0) return view.replaceChildren(element("p", {}, "No job has ended yet."));
    const ids = [...known.keys()];
    let id = known.has(parameters.get("jobid")) ? parameters.get("jobid") : ids[ids.length - 1];
    let metric = parameters.get("metric");
    let points = {};
    let asked = 0;
    const heading = element("h2");
    const picture = chart();
    const came = outcome();
    const redraw = () => came.of(plot);
    const far = element("input", { type: "range", min: 1, max: PROJECTION_MAX, value: parameters.get("far") ?? 2 });
    const reach = element("output");
    const model = box("Show the model", true, redraw);
    const unit = unitChoice(redraw);
    const plot = async () => {
      asked += 1;
      const turn = asked;
      const measured = points[metric] ?? [];
      const sizes = measured.map(([size]) => size);
      const [start, largest] = [Math.min(1, ...sizes), Math.max(1, ...sizes)];
      const end = largest * Number(far.value);
      reach.textContent = `size ${number(end)}`;
      if (metric === undefined) return;
      const step = Math.max((end - start) / CURVE_POINTS, 1e-9);
      const curve = model.field.checked
        ? await ask("model/plot", { jobid: id, metric, start, end: end + step / 2, step }) : [];
      if (turn !== asked) return;
      heading.textContent = unit.named(metric);
      picture.show({
        line: unit.scaled(curve), points: unit.scaled(measured), x: number, label: `${metric} by size`,
        names: ["model", "measured"],
      });
    };
    far.addEventListener("input", () => {
      remember({ far: far.value });
      redraw();
    });
    const list = filtered({
      headings: [["Metric", "long"], ["Model", "long"], ["RSS", "number"]],
      name: ([name]) => name,
      none: "There is no model: it takes finished jobs of this command with two sizes at least.",
      make: ([name, formula, rss]) => {
        const button = element("button", { type: "button", className: "quiet" }, name);
        button.dataset.metric = name;
        button.addEventListener("click", () => {
          metric = name;
          remember({ jobid: id, metric });
          redraw();
        });
        return [button, formula, typeof rss === "number" ? number(rss) : String(rss)];
      },
    });
    const input = link("", "Extra-P's input");
    const drawn = element("div", {}, heading,
      element("form", {},
        element("label", {}, "How far to project", element("span", {}, far, reach)), unit.node, model.node),
      picture.node);
    const show = async () => {
      input.href = withQuery("model/download", { jobid: id });
      const [models, measured] = await Promise.all([
        ask(withQuery("model/get", { jobid: id })), ask(withQuery("profiles/points", { jobid: id })),
      ]);
      points = measured;
      models.sort(([a], [b]) => byName(a, b));
      if (!models.some(([name]) => name === metric)) metric = models[0]?.[0];
      drawn.hidden = metric === undefined;
      list.show(models);
      await plot();
    };
    const job = choice("Job", [...known], id, (chosen) => {
      id = chosen;
      remember({ jobid: id });
      came.of(show);
    });
    view.replaceChildren(element("form", {}, job.node), element("p", { className: "links" }, input), came.node, drawn,
      element("h2", {}, "All models of this command"), list.node);
    return came.of(show);
  },

  topology() {
    return every(5, async () => {
      const [edges, scrapes] = await Promise.all([ask("topo"), ask("join/list")]);
      // A server without children stands there as its own.
      const pairs = edges.filter(([parent, child]) => parent !== child);
      const childrenOf = (name) => pairs.filter(([parent]) => parent === name).map(([, child]) => child);
      const below = new Set(pairs.map(([, child]) => child));
      const lost = new Set(pairs.filter((edge) => edge[2] === "lost").map(([, child]) => child));
      const seen = new Set();
      const branch = (name) => {
        seen.add(name);
        const own = childrenOf(name).filter((child) => !seen.has(child)).sort();
        const isAddress = /^[\w.-]+:\d+$/.test(name);
        const title = element("span", { className: lost.has(name) ? "server lost" : "server" },
          isAddress ? link(`http://${name}/`, name) : name,
          ...(lost.has(name) ? [element("span", { className: "raised" }, " lost: it does not answer")] : []));
        return element("li", {}, title, ...(own.length ? [element("ul", {}, ...own.map(branch))] : []));
      };
      const all = [...new Set(edges.flatMap(([parent, child]) => [parent, child]))];
      // Whoever stands below nobody; and of a ring, one of it.
      const roots = all.filter((name) => !below.has(name)).map(branch);
      for (const name of all) if (!seen.has(name)) roots.push(branch(name));
      const headings = [
        ["Target", "long"], ["Kind"], ["Period (ms)", "number"], ["Last", "time"], ["Failures", "number"],
        ["Error", "long"],
      ];
      const rows = scrapes.map((scrape) => [
        scrape.target_url, scrape.ttype, number(scrape.period), moment(scrape.last_scrape * 1000) || "never",
        scrape.failures ? element("span", { className: "raised" }, String(scrape.failures)) : "0", scrape.error ?? "",
      ]);
      put(view,
        ...(pairs.length ? [] : [element("p", {}, "No proxy stands below this one.")]),
        element("ul", { className: "tree" }, ...roots),
        element("h2", {}, "What is scraped"), table(headings, rows));
    });
  },

  doc() {},
  is_admire_proxy() {},
};

const name = document.body.dataset.page;
for (const anchor of document.querySelectorAll("nav a")) {
  if (anchor.getAttribute("href") === `${name}.html`) anchor.setAttribute("aria-current", "page");
}
if (["jobs", "job_view", "profiles", "trace", "topology"].includes(name)) {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  document.getElementById("zone").textContent = `Times are those of this browser's clock (${zone}).`;
}
Promise.resolve(pages[name]?.()).catch(say);
