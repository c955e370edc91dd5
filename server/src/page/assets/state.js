// What the page shows, as a link: everything that a person chose stands in the fragment, and nothing else does.
// State is plain data; `encode` and `decode` are each other's inverse.

export const VIEWS = ["job", "metrics", "nodes", "node", "compare", "sql", "telem", "jobs", "alarms", "profiles"];
export const FUNCTIONS = ["avg", "sum", "min", "max"];
const ORDERS = ["deviation", "name", "mean", "max", "last"];

const text = { parse: (all) => all[0], print: (value) => [value] };
const word = (allowed) => ({ parse: (all) => (allowed.includes(all[0]) ? all[0] : undefined), print: (value) => [value] });
const time = {
  parse: (all) => (/^-?\d{1,15}$/.test(all[0]) ? Number(all[0]) : undefined),
  print: (value) => [String(value)],
};
const texts = { parse: (all) => all, print: (value) => value };

/** Every parameter of a link, in the order in which it is written. */
const PARAMETERS = {
  last: { parse: (all) => (/^(all|\d{1,9}(ms|s|m|h|d|w))$/.test(all[0]) ? all[0] : undefined), print: (value) => [value] },
  from: time,
  to: time,
  tz: word(["utc"]),
  m: {
    parse: (all) => {
      const panels = all.map(parsePanel).filter(Boolean);
      return panels.length ? panels : undefined;
    },
    print: (value) => value.map(printPanel),
  },
  metric: text,
  order: word(ORDERS),
  find: text,
  a: text,
  b: text,
  off: texts,
  q: text,
};

// What has a meaning in a panel, or in a fragment, is written as %XX.
const special = /[%:{},+=&#|\x00-\x20]/g;
const guard = (part) =>
  part.replace(special, (sign) => `%${sign.charCodeAt(0).toString(16).padStart(2, "0").toUpperCase()}`);
function unguard(part) {
  return part.replace(/%([0-9A-F]{2})/g, (_, code) => String.fromCharCode(parseInt(code, 16)));
}

/** A panel as text: avg:rate:node_cpu_seconds_total{host=*,mode=user}+max:loss, with options before the metric. */
export function printPanel(panel) {
  return panel.queries
    .map((query, place) => {
      const words = [query.function];
      if (query.rate) words.push("rate");
      if (place === 0 && panel.log) words.push("log");
      if (place === 0 && panel.smooth) words.push(`smooth${panel.smooth}`);
      if (place === 0 && panel.since) words.push("since");
      if (place === 0 && panel.x) words.push(`x=${guard(panel.x)}`);
      const tags = [...query.by.map((key) => `${guard(key)}=*`),
        ...Object.entries(query.where).map(([key, filter]) => `${guard(key)}=${filter === "*" ? "%2A" : guard(filter)}`)];
      return `${words.join(":")}:${guard(query.metric)}${tags.length ? `{${tags.join(",")}}` : ""}`;
    })
    .join("+");
}

/** The panel that a text means, or null. */
export function parsePanel(written) {
  const panel = { queries: [], log: false, smooth: 0, since: false, x: "" };
  for (const one of written.split("+")) {
    const found = /^([^{]*):([^:{]+)(?:\{([^{}]*)\})?$/s.exec(one);
    if (!found) return null;
    const [name, ...words] = found[1].split(":");
    if (!FUNCTIONS.includes(name)) return null;
    const query = { metric: unguard(found[2]), function: name, rate: words.includes("rate"), by: [], where: tagged() };
    if (panel.queries.length === 0) {
      panel.log = words.includes("log");
      panel.since = words.includes("since");
      panel.x = unguard(words.find((w) => w.startsWith("x="))?.slice(2) || "");
      panel.smooth = Math.min(100, Number(words.find((w) => /^smooth\d{1,3}$/.test(w))?.slice(6) || 0));
    }
    for (const tag of (found[3] || "").split(",").filter(Boolean)) {
      const at = tag.indexOf("=");
      if (at < 1) return null;
      const key = unguard(tag.slice(0, at)), filter = tag.slice(at + 1);
      if (filter === "*") query.by.push(key);
      else query.where[key] = unguard(filter);
    }
    panel.queries.push(query);
  }
  return panel;
}

/** An object in which any name is only a name, `__proto__` too. */
export const tagged = () => Object.create(null);

const put = (part) => encodeURIComponent(part).replace(/%(3A|2C|2F|7B|7D|3D|2B|24|40|3B)/g, (sign) => decodeURIComponent(sign));

/** The fragment of a state: #/nodes?last=15m&metric=cpu_percent */
export function encode(state) {
  const path = state.view === "job" ? "#/" : `#/${state.view}${state.view === "node" ? `/${encodeURIComponent(state.node)}` : ""}`;
  const pairs = [];
  for (const [name, kind] of Object.entries(PARAMETERS)) {
    if (state[name] === undefined) continue;
    for (const value of kind.print(state[name])) pairs.push(`${name}=${put(value)}`);
  }
  return pairs.length ? `${path}?${pairs.join("&")}` : path;
}

/** The state of a fragment. What cannot be read is left out: an old link shows what it still can. */
export function decode(fragment) {
  const hash = fragment.replace(/^#/, "");
  if (!hash.startsWith("/")) return foreign(hash);
  const [path, search = ""] = hash.split(/\?(.*)/s);
  const [, view, ...rest] = path.split("/");
  const state = { view: VIEWS.includes(view) ? view : "job" };
  if (state.view === "node") {
    const node = plain(rest.join("/"));
    if (!node) state.view = "nodes";
    else state.node = node;
  }
  const all = pairs(search);
  for (const [name, kind] of Object.entries(PARAMETERS)) {
    if (!all.has(name)) continue;
    const value = kind.parse(all.get(name));
    if (value !== undefined) state[name] = value;
  }
  return tidy(state);
}

/** A range is either live (`last`) or from one time to another. */
function tidy(state) {
  const whole = state.from !== undefined && state.to !== undefined && state.to > state.from;
  if (!whole) {
    delete state.from;
    delete state.to;
  } else delete state.last;
  return state;
}

function plain(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function pairs(search) {
  const all = new Map();
  for (const pair of search.split("&").filter(Boolean)) {
    const at = pair.indexOf("=");
    const name = plain(at < 0 ? pair : pair.slice(0, at)), value = at < 0 ? "" : plain(pair.slice(at + 1));
    all.set(name, [...(all.get(name) || []), value]);
  }
  return all;
}

/** OpenTSDB's own links: #start=15m-ago&m=sum:rate:sys.cpu{host=*} */
function foreign(hash) {
  const all = pairs(hash);
  const state = { view: "job" };
  const start = all.get("start")?.[0], end = all.get("end")?.[0];
  const at = (word) => (/^\d{13}$/.test(word) ? Number(word) : /^\d{9,10}$/.test(word) ? Number(word) * 1000 : undefined);
  const ago = /^(\d{1,9}(?:ms|s|m|h|d|w))-ago$/.exec(start || "");
  if (ago) state.last = ago[1];
  else if (at(start) !== undefined) [state.from, state.to] = [at(start), at(end) ?? Date.now()];
  const panels = (all.get("m") || []).map((m) => {
    const found = /^(\w+):((?:[^:{]*(?:\{[^{}]*\})?:)*)([^:{]+)(?:\{([^{}]*)\})?/s.exec(m);
    if (!found) return null;
    const name = FUNCTIONS.includes(found[1]) ? found[1] : "avg";
    return parsePanel(`${name}${/(^|:)rate[:{]/.test(found[2]) ? ":rate" : ""}:${found[3]}${found[4] ? `{${found[4]}}` : ""}`);
  });
  if (panels.some(Boolean)) Object.assign(state, { view: "metrics", m: panels.filter(Boolean) });
  return tidy(state);
}

/** A panel of these queries, as it is shown unless a person says otherwise: `x` is the metric that stands below, "" is the time. */
export const panelWith = (queries) => ({ queries, log: false, smooth: 0, since: false, x: "" });

/** A panel of one metric. */
export function panelOf(metric, more = {}) {
  return panelWith([{ metric, function: "avg", rate: false, by: [], where: tagged(), ...more }]);
}
