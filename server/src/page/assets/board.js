// A board: the panels of a view, one request for all that are seen, one cursor, one zoom, and the live tail.

import { lines } from "./ask.js";
import { calm } from "./dom.js";
import { Panel } from "./panel.js";
import { wire } from "./series.js";

const PATIENCE_MS = 60000;
// Panels so close to what is in sight are asked for, too.
const MARGIN = 160;
const CALM_MS = 200;
const FIRST_MS = 3000;

export class Board {
  /** `range()` gives what is shown, {from, to}; without one it is the range of the page. */
  constructor(app, { range, zoom } = {}) {
    this.app = app;
    app.board = this;
    this.range = range || (() => app.range());
    this.zooms = zoom;
    this.panels = [];
    this.cursor = null;
    this.drag = null;
    this.over = null;
    this.pointerY = null;
    this.asked = null;
    this.ticking = null;
    this.ended = false;
    this.soon = calm(20, () => this.load());
    this.begun = false;
    this.refreshed = -Infinity;
    // Fulfilled with the first panel that was drawn: what costs as much and says less waits for it, but not for ever.
    this.first = new Promise((done) => {
      this.drawn = done;
      setTimeout(done, FIRST_MS);
    });
    // Panels that nobody has scrolled to cost nothing.
    this.watcher = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        const panel = entry.target.panel;
        panel.seen = entry.isIntersecting;
        if (panel.seen && panel.frame) panel.paint();
      }
      if (this.panels.some((panel) => panel.seen && panel.stale)) this.soon();
    }, { rootMargin: `${MARGIN}px` });
    this.resizes = new ResizeObserver(calm(60, () => this.panels.forEach((panel) => panel.paint())));
  }

  add(spec, more) {
    const panel = new Panel(this, spec, more);
    panel.element.panel = panel;
    this.panels.push(panel);
    this.watcher.observe(panel.element);
    this.resizes.observe(panel.area);
    // The watcher speaks when a frame was painted; what is asked for need not wait for that.
    if (!this.begun) queueMicrotask(() => this.begin());
    this.begun = true;
    return panel;
  }

  /** Asks for those of the panels that were just added which are in sight. */
  begin() {
    this.begun = false;
    for (const panel of this.panels) {
      if (panel.seen || !panel.element.isConnected) continue;
      const { top, bottom } = panel.element.getBoundingClientRect();
      panel.seen = top < window.innerHeight + MARGIN && bottom > -MARGIN;
    }
    this.load();
  }

  remove(panel) {
    this.panels = this.panels.filter((one) => one !== panel);
    this.watcher.unobserve(panel.element);
    panel.element.remove();
  }

  /** Another range, or another question: everything is asked for anew, what is seen at once. */
  refresh() {
    this.asked?.abort();
    this.ticking?.abort();
    this.ticking = null;
    for (const panel of this.panels) panel.stale = true;
    // One change is answered at once, and of a row of them the last.
    const now = performance.now();
    if (now - this.refreshed > CALM_MS) this.load();
    else this.soon();
    this.refreshed = now;
  }

  columns() {
    const widths = this.panels.filter((panel) => panel.seen).map((panel) => panel.area.clientWidth - 58);
    return Math.max(100, Math.min(1200, Math.round(Math.max(400, ...widths) / 50) * 50));
  }

  async load() {
    const wanted = this.panels.filter((panel) => panel.seen && panel.stale);
    if (!wanted.length || this.ended || !this.app.page) return;
    const range = this.range();
    const stop = new AbortController();
    this.asked = stop;
    for (const panel of wanted) {
      panel.stale = false;
      panel.element.classList.add("waiting");
    }
    try {
      const asked = this.ask(wanted, range, stop.signal, null);
      // What is there is drawn over the new range at once; columns that fit it follow.
      for (const panel of wanted) panel.stretch(range);
      await asked;
    } catch (error) {
      if (stop.signal.aborted) return;
      for (const panel of wanted) {
        if (!panel.element.classList.contains("waiting")) continue;
        // What was drawn stays while the server is away; it is asked for again when it is back.
        panel.stale = error.status === 0;
        if (!panel.answers.some(Boolean) || error.status !== 0) {
          panel.answers = panel.spec.queries.map(() => ({ error: error.message, lines: [], missing: [] }));
          panel.show();
        }
      }
    } finally {
      for (const panel of wanted) panel.element.classList.remove("waiting");
    }
  }

  async ask(panels, range, signal, since, step) {
    const places = [];
    for (const panel of panels) {
      panel.pending = panel.queries().length;
      panel.queries().forEach((query, place) => {
        const keep = since === null ? undefined : panel.answers[place]?.lines.filter((line) => !line.wash).map(({ tags }) => tags);
        places.push({ panel, place, query: { ...query, keep }, series: this.app.metric(query.metric)?.series || 0 });
      });
    }
    // The server works on few at once: those of few series come first, so that something is seen early.
    places.sort((a, b) => a.series - b.series);
    const queries = places.map(({ query }) => query);
    const columns = this.columns();
    const body = JSON.stringify({ ...wire({ ...range, columns, since, step, queries }), as_ready: true });
    let whole = true;
    await lines("api/panels", { body, signal, deadline: PATIENCE_MS }, (answer) => {
      const found = places[answer.panel];
      if (!found || signal.aborted) return;
      const { panel, place } = found;
      if (!panel.take(place, answer, since !== null, range)) {
        panel.stale = true;
        whole = false;
      }
      if (--panel.pending === 0 && !panel.stale) {
        panel.element.classList.remove("waiting");
        panel.show();
        panel.describe();
        this.drawn();
      }
    });
    if (!whole) this.soon();
  }

  /** One more look at a live job: only buckets that are new, or were not whole. */
  async tick() {
    if (this.ticking || this.drag || this.ended) return;
    if (this.panels.some((panel) => panel.seen && panel.stale)) {
      this.soon();
      return;
    }
    const shown = this.panels.filter((panel) => panel.seen && panel.answers.some((answer) => answer && !answer.error));
    for (const panel of this.panels) if (!panel.seen) panel.stale = true;
    if (!shown.length) return;
    const range = this.range();
    // Few samples come whole each time; of buckets those that are new.
    const raw = shown.filter((panel) => panel.answers.some((answer) => answer?.raw || !answer?.lines.length));
    const grids = shown.filter((panel) => !raw.includes(panel));
    const step = grids[0]?.answers[0].step;
    if (step && ((range.to - range.from) / step > this.columns() * 1.1 || grids.some((panel) => panel.answers[0].step !== step))) {
      this.refresh();
      return;
    }
    const stop = new AbortController();
    this.ticking = stop;
    try {
      if (raw.length) await this.ask(raw, range, stop.signal, null);
      if (grids.length) await this.ask(grids, range, stop.signal, Math.min(...grids.map((panel) => lastTime(panel, range))), step);
    } catch {
      // The bar at the top says that the server is away; the next tick tries again.
    } finally {
      if (this.ticking === stop) this.ticking = null;
    }
  }

  /** How long the page waits between two looks, in ms: a step of what it shows, at least a second. */
  pace() {
    const steps = this.panels.filter((panel) => panel.seen && panel.answers[0]?.step).map((panel) => panel.answers[0].step);
    return Math.max(1000, Math.min(30000, ...steps.length ? steps : [1000]));
  }

  point(at, panel) {
    this.cursor = at;
    this.over = panel;
    this.repaint();
  }

  repaint() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      for (const panel of this.panels) if (panel.seen) panel.paintCursor();
    });
  }

  redraw() {
    for (const panel of this.panels) if (panel.answers.length) panel.show();
  }

  zoom(from, to) {
    this.cursor = null;
    if (this.zooms) this.zooms(from, to);
    else this.app.zoom(from, to);
  }

  unzoom() {
    this.app.unzoom();
  }

  end() {
    this.ended = true;
    this.asked?.abort();
    this.ticking?.abort();
    this.watcher.disconnect();
    this.resizes.disconnect();
  }
}

/** The start of the last bucket that a panel has: it is asked for again, because it was not whole. */
function lastTime(panel, range) {
  let last = Infinity;
  for (const answer of panel.answers) {
    if (!answer || answer.error) continue;
    const end = Math.max(range.from, ...answer.lines.map((line) => line.times[line.times.length - 1] ?? range.from));
    last = Math.min(last, end);
  }
  return Number.isFinite(last) ? last : range.from;
}
