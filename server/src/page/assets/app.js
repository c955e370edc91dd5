// The page: its state and address, the bar at the top, the live tail. Each view is a module of its own.

import { calm, fill, make, put, short } from "./dom.js";
import { first, isGone, takeToken, told } from "./ask.js";
import { decode, encode } from "./state.js";
import { clock, fieldTime, moment, parseField, parseSpan, span } from "./time.js";
import { readTheme } from "./chart.js";
import { readPage } from "./series.js";
import { Ruler } from "./ruler.js";
import * as job from "./job.js";

const MENU = [["job", "Job"], ["metrics", "Metrics"], ["nodes", "Nodes"], ["compare", "Compare"], ["sql", "SQL"], ["telem", "telem"],
  ["jobs", "Jobs"], ["alarms", "Alarms"], ["profiles", "Profiles"]];
const LATER = {
  metrics: () => import("./metrics.js"),
  nodes: () => import("./nodes.js"),
  node: () => import("./node.js"),
  compare: () => import("./compare.js"),
  sql: () => import("./sql.js"),
  telem: () => import("./self.js"),
};
for (const name of ["jobs", "alarms", "profiles"]) LATER[name] = async () => ({ show: (await import("./records.js"))[name] });
const SPANS = [["1m", "Last minute"], ["5m", "Last 5 minutes"], ["15m", "Last 15 minutes"], ["1h", "Last hour"], ["6h", "Last 6 hours"],
  ["24h", "Last 24 hours"], ["7d", "Last 7 days"], ["all", "All of it"]];
const AGAIN_MS = 10000;

const app = {
  state: {},
  page: null,
  skew: 0,
  view: null,

  get utc() {
    return this.state.tz === "utc";
  },
  now() {
    return Date.now() + this.skew;
  },
  /** A live tail follows the clock until somebody chose a range. */
  get live() {
    return !!this.page?.live && this.state.from === undefined;
  },

  /** From when on times are counted where they are counted. */
  origin() {
    return this.page.job?.begin ?? this.page.first ?? 0;
  },

  /** From when to when there is anything. */
  extent() {
    const { first, last, live } = this.page || {};
    const to = live ? this.now() : (last ?? this.now()) + 1;
    return { from: Math.min(first ?? to - 60000, to - 1000), to };
  },

  range() {
    const { from, to, last } = this.state;
    if (from !== undefined) return { from, to };
    const all = this.extent();
    const wanted = last || (this.page?.live ? "15m" : "all");
    if (wanted === "all") return all;
    const begin = Math.round(all.to - parseSpan(wanted));
    // A job that began two minutes ago does not fill a quarter of an hour with nothing.
    return { from: last ? begin : Math.max(begin, all.from), to: Math.round(all.to) };
  },

  /** Changes the state, and with it the address and what is shown. */
  go(change, { replace = false, zoom = false } = {}) {
    const next = { ...this.state, ...change };
    for (const name of Object.keys(next)) if (next[name] === undefined) delete next[name];
    const link = encode(next);
    const depth = replace ? history.state?.zoom || 0 : zoom ? (history.state?.zoom || 0) + 1 : 0;
    if (link === encode(this.state)) return;
    history[replace ? "replaceState" : "pushState"]({ zoom: depth }, "", link);
    this.follow();
  },

  /** The state of another view: what belongs to a view stays behind. */
  to(view, more = {}) {
    const { last, from, to, tz, off } = this.state;
    const next = { view, last, from, to, tz, off, ...more };
    for (const name of Object.keys(next)) if (next[name] === undefined) delete next[name];
    return encode(next);
  },

  open(link) {
    history.pushState({ zoom: 0 }, "", link);
    this.follow();
  },

  zoom(from, to) {
    [from, to] = [Math.floor(from), Math.ceil(to)];
    if (to - from < 2) to = from + 2;
    this.go({ from, to, last: undefined }, { zoom: true });
  },

  unzoom() {
    if (history.state?.zoom) history.back();
    else if (this.state.from !== undefined) this.go({ from: undefined, to: undefined });
  },

  hide(name, alone, all) {
    const off = new Set(this.state.off || []);
    if (alone) {
      const others = all.filter((one) => one !== name);
      const isAlone = others.every((one) => off.has(one)) && !off.has(name);
      for (const one of all) off.delete(one);
      if (!isAlone) for (const one of others) off.add(one);
    } else if (!off.delete(name)) off.add(name);
    this.go({ off: off.size ? [...off] : undefined }, { replace: true });
  },

  /** A host has its colour everywhere: that of its place among all nodes. */
  placeOf(line, place, query) {
    const { tags } = line;
    const host = query.by.length === 1 && tags ? tags.host ?? tags.node : undefined;
    const at = host === undefined ? -1 : this.places.get(host) ?? -1;
    return at < 0 ? place : at;
  },
  places: new Map(),

  whyEmpty() {
    const { from, to } = this.range();
    const all = this.extent();
    if (!this.page?.metrics.length) return this.page?.live ? "Nothing was recorded yet: the first samples come within a second or two." : "Nothing was recorded.";
    if (to < all.from || from > all.to) return `No samples here: the recording is from ${moment(all.from, this.utc)} to ${moment(all.to, this.utc)}.`;
    return "No samples in this range.";
  },

  metric(name) {
    return this.byName.get(name);
  },
  byName: new Map(),

  async load() {
    const { page, skew } = readPage(await first());
    this.skew = skew;
    this.page = page;
    this.places = new Map(page.nodes.map((node, i) => [node.name, i]));
    this.byName = new Map(page.metrics.map((metric) => [metric.name, metric]));
    const { job: one } = page;
    document.title = one?.name || one?.command ? `${short(one.name || one.command, 40)} · telem` : "telem";
    sayState();
  },

  /** Shows what the address says. */
  async follow() {
    const before = this.state;
    this.state = decode(location.hash);
    const sameView = this.view && before.view === this.state.view && before.node === this.state.node;
    sayBar();
    if (!this.page) return;
    ruler.show(["job", "metrics", "nodes", "node"].includes(this.state.view));
    if (sameView) {
      const ranged = before.from !== this.state.from || before.to !== this.state.to || before.last !== this.state.last;
      this.view.update?.({ before, ranged, zoned: before.tz !== this.state.tz, hidden: before.off !== this.state.off });
      ruler.paint();
      return;
    }
    this.view?.end?.();
    this.view = null;
    const turn = (this.turn = {});
    let module = job;
    if (LATER[this.state.view]) {
      try {
        module = await LATER[this.state.view]();
      } catch {
        put(main, make("p.word.bad", "This part of the page could not be fetched. ", make("button", { type: "button", onclick: () => location.reload() }, "Load the page again")));
        return;
      }
    }
    if (turn !== this.turn) return;
    put(main);
    window.scrollTo(0, 0);
    this.view = module.show(this, main);
    Promise.resolve(this.view.first).then(() => {
      if (turn !== this.turn) return;
      ruler.load();
      note();
    });
  },
};

const main = document.querySelector("main");
async function note() {
  try {
    const { Notes } = await import("./notes.js");
    await (app.notes ??= new Notes(app)).load();
  } catch {
    // A page without its notes shows all else.
  }
}
const bar = document.querySelector("#bar");
const notice = document.querySelector("#notice");
const ruler = new Ruler(app);

// The bar at the top.
const links = new Map(MENU.map(([view, text]) => [view, make("a", text)]));
const state = make("span.state");
const rangeButton = make("button", { type: "button", title: "Choose a time range", "aria-haspopup": "dialog", onclick: () => openRange() });
const liveButton = make("button.live", { type: "button", title: "Follow the live tail (l)", onclick: () => goLive() });
const zoneButton = make("button", { type: "button", title: "Times in UTC or local (t)", onclick: () => app.go({ tz: app.utc ? undefined : "utc" }, { replace: true }) });
const shareButton = make("button", { type: "button", title: "Copy a link with absolute times (s)", onclick: () => share() }, "Share");
const helpButton = make("button", { type: "button", title: "Keys and hints (?)", "aria-label": "Help", onclick: () => help() }, "?");
fill(bar, make("a.brand", { href: "#/" }, "telem"), make("nav", { "aria-label": "Views" }, [...links.values()]), state,
  make("div.times", liveButton, rangeButton, zoneButton, shareButton, helpButton));
main.before(ruler.element);

function sayBar() {
  for (const [view, link] of links) {
    link.href = app.to(view);
    // What a server has no endpoint for is not offered.
    link.hidden = app.page?.endpoints[view] === false;
    const here = view === app.state.view || (view === "nodes" && app.state.view === "node");
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  bar.querySelector(".brand").href = app.to("job");
  zoneButton.textContent = app.utc ? "UTC" : "Local";
  zoneButton.setAttribute("aria-pressed", String(app.utc));
  sayState();
}

function sayState() {
  const { from, to, last } = app.state;
  const wanted = last || (app.page?.live ? "15m" : "all");
  if (from !== undefined) {
    const step = to - from < 10000 ? 1 : 1000;
    const sameDay = moment(from, app.utc).slice(0, 10) === moment(to, app.utc).slice(0, 10);
    put(rangeButton, `${moment(from, app.utc, step)} – ${sameDay ? clock(to, app.utc, step) : moment(to, app.utc, step)}`);
  } else put(rangeButton, SPANS.find(([one]) => one === wanted)?.[1] || `Last ${span(parseSpan(wanted))}`);
  liveButton.hidden = !app.page?.live;
  liveButton.className = app.live ? (isGone() ? "live away" : "live on") : "live";
  liveButton.setAttribute("aria-pressed", String(app.live));
  put(liveButton, make("i"), app.live ? "Live" : "Paused");
}

function goLive() {
  if (app.live) {
    const { from, to } = app.range();
    app.go({ from: Math.round(from), to: Math.round(to), last: undefined });
  } else app.go({ from: undefined, to: undefined });
}

async function share() {
  const { from, to } = app.range();
  const link = new URL(encode({ ...app.state, from: Math.round(from), to: Math.round(to), last: undefined }), location.href).href;
  try {
    await navigator.clipboard.writeText(link);
    say("A link with absolute times is in the clipboard.");
  } catch {
    const field = make("input", { value: link, readOnly: true, size: 60, "aria-label": "Link" });
    dialog("A link with absolute times", field);
    field.select();
  }
}

const silence = calm(4000, () => put(notice));
function say(words, kind = "") {
  notice.className = kind;
  put(notice, words);
  if (kind === "") silence();
}

function dialog(title, ...content) {
  const box = make("dialog", { "aria-label": title }, make("h2", title), content,
    make("form", { method: "dialog" }, make("button", "Close")));
  box.addEventListener("close", () => box.remove());
  box.addEventListener("click", (event) => event.target === box && box.close());
  document.body.append(box);
  box.showModal();
  return box;
}

function openRange() {
  const range = app.range();
  const from = make("input", { type: "datetime-local", step: "0.001", value: fieldTime(range.from, app.utc) });
  const to = make("input", { type: "datetime-local", step: "0.001", value: fieldTime(range.to, app.utc) });
  const wrong = make("p.word.bad", { role: "alert" });
  const use = () => {
    const [a, b] = [parseField(from.value, app.utc), parseField(to.value, app.utc)];
    if (a === null || b === null || a >= b) {
      put(wrong, "The range must begin before it ends.");
      return;
    }
    box.close();
    app.zoom(a, b);
  };
  const spans = SPANS.map(([last, text]) => make("button", {
    type: "button",
    onclick: () => {
      box.close();
      app.go({ last, from: undefined, to: undefined });
    },
  }, text));
  const box = dialog("Time range", make("div.spans", spans),
    make("label", `From (${app.utc ? "UTC" : "local"}) `, from), make("label", "To ", to), wrong,
    make("p", make("button.main", { type: "button", onclick: use }, "Show this range")));
}

function help() {
  const rows = [
    ["drag", "zoom all panels to that time"], ["Shift + drag", "move along the time"], ["Ctrl + wheel", "zoom around the pointer"],
    ["double click, Esc, back", "undo the zoom"], ["click on a name", "hide or show the line"],
    ["Ctrl + click on a name", "that line alone"], ["Tab, ← →", "choose a panel, move its cursor"], ["Shift + ← →, Enter", "zoom by keyboard"],
    ["+ −", "zoom in and out"], ["l", "live or paused"], ["t", "UTC or local time"], ["s", "copy a link"], ["/", "search"],
    ["1 … 9", "the views"], ["?", "this help"],
  ];
  dialog("Keys", make("table.keys", rows.map(([key, what]) => make("tr", make("th", { scope: "row" }, make("kbd", key)), make("td", what)))),
    make("p.meta", app.page ? `telem ${app.page.version}` : "telem"));
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog")) return;
  if (event.target.closest("input, textarea, select")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const menu = MENU[Number(event.key) - 1];
  if (event.key === "Escape") app.unzoom();
  else if (event.key === "l") goLive();
  else if (event.key === "t") zoneButton.click();
  else if (event.key === "s") share();
  else if (event.key === "?") help();
  else if (event.key === "/") {
    const field = document.querySelector("input[type=search]");
    if (field) field.focus();
    else app.open(app.to("metrics"));
  } else if (menu) app.open(app.to(menu[0]));
  else return;
  event.preventDefault();
});

// Whether the server is there.
told.gone = (since) => {
  say(`The server has not answered since ${clock(since, app.utc)}. What you see is from before; the page goes on when it is back.`, "bad");
  sayState();
};
told.back = () => {
  say("The server is back.");
  sayState();
  if (app.page) {
    app.load().then(() => {
      app.view?.update?.({ before: app.state, ranged: true });
      ruler.load();
    }, () => {});
  }
};

/** Asks for the token, and where it stands. */
told.token = (refused) => new Promise((done) => {
  const field = make("input", { type: "password", name: "token", autocomplete: "off", spellcheck: false, required: true, "aria-label": "Token" });
  const form = make("form", make("p", field, " ", make("button.main", "Open")));
  const card = make("section.card.token", make("h2", "This telem wants its token"),
    refused && make("p.word.bad", "The token that this tab has was refused."),
    make("p", "Its owner finds the token in the connection file that telem names when it starts (", make("code", "connection.json"),
      "), and ", make("code", "telem open"), " prints a link that contains it. The token stays in this tab."), form);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const typed = field.value.trim();
    if (!typed) return;
    card.remove();
    done(typed);
  });
  main.before(card);
  field.focus();
});

let rounds = 0;
let refreshed = 0;
/** The live tail: never two looks at once, none in a hidden tab. */
async function look() {
  const round = ++rounds;
  const wait = Math.max(app.view?.pace?.() || 1000, slow);
  await new Promise((done) => setTimeout(done, wait));
  if (round !== rounds) return;
  const begin = performance.now();
  if (!document.hidden) {
    try {
      if (isGone() || !app.page) await start();
      else if (app.live) {
        if (Date.now() - refreshed > AGAIN_MS) {
          refreshed = Date.now();
          await app.load();
          app.view?.told?.();
          ruler.load();
          note();
        }
        await app.view?.tick?.();
        ruler.paint();
      }
    } catch {
      // The notice says it; the next round tries again.
    }
  }
  // A server that takes long is asked seldom.
  slow = Math.min(30000, 2 * (performance.now() - begin));
  look();
}
let slow = 0;

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && (app.live || isGone())) {
    app.view?.tick?.();
    look();
  }
});

async function start() {
  await app.load();
  refreshed = Date.now();
  if (!app.view) await app.follow();
}

readTheme();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  readTheme();
  app.view?.update?.({ before: app.state, themed: true });
  ruler.paint();
});
window.addEventListener("popstate", () => app.follow());
window.addEventListener("hashchange", () => {
  const link = location.hash;
  takeToken();
  if (link !== location.hash || encode(decode(link)) !== encode(app.state)) app.follow();
});

takeToken();
app.state = decode(location.hash);
sayBar();
start().catch((error) => {
  if (!isGone()) put(main, make("p.word.bad", error.message));
}).finally(look);
