// Sparklines: the course of a metric in the size of a word. A row that nobody scrolls to asks for nothing.

import { lines } from "./ask.js";
import { colour, sharp } from "./chart.js";
import { calm, make } from "./dom.js";
import { panelOf } from "./state.js";
import { received, rises, wire } from "./series.js";

const WIDTH = 120, HEIGHT = 22;
const COLUMNS = 60;
const AT_ONCE = 32;

export class Sparks {
  constructor(app) {
    this.app = app;
    this.kept = new Map();
    this.seen = new Set();
    this.asked = null;
    this.soon = calm(120, () => this.load());
    this.watcher = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        if (isIntersecting) this.seen.add(target);
        else this.seen.delete(target);
      }
      this.soon();
    }, { rootMargin: "120px" });
  }

  of(metric) {
    const canvas = make("canvas.spark", { role: "img", "aria-label": `${metric.name} over the time shown` });
    canvas.metric = metric;
    this.watcher.observe(canvas);
    return canvas;
  }

  /** The rows are others now. */
  clear() {
    this.watcher.disconnect();
    this.seen.clear();
  }

  /** The range is another: what is seen is asked for again. */
  refresh() {
    this.asked?.abort();
    this.kept.clear();
    this.soon();
  }

  async load() {
    for (const canvas of this.seen) if (this.kept.has(canvas.metric.name)) this.paint(canvas);
    const wanted = [...this.seen].filter(({ metric }) => !this.kept.has(metric.name) && metric.series > 0).slice(0, AT_ONCE);
    if (!wanted.length || (this.asked && !this.asked.signal.aborted)) return;
    const stop = (this.asked = new AbortController());
    const queries = wanted.map(({ metric }) => panelOf(metric.name, { rate: rises(metric) }).queries[0]);
    try {
      const body = JSON.stringify(wire({ ...this.app.range(), columns: COLUMNS, queries }));
      await lines("api/panels", { body, signal: stop.signal }, (answer) => {
        const canvas = wanted[answer.panel];
        if (!canvas || stop.signal.aborted) return;
        this.kept.set(canvas.metric.name, answer.error ? null : received(answer).lines[0] || null);
        this.paint(canvas);
      });
      if (!stop.signal.aborted) this.soon();
    } catch {
      // The bar at the top says whether the server is away; rows do without.
    } finally {
      if (this.asked === stop) this.asked = null;
    }
  }

  paint(canvas) {
    const line = this.kept.get(canvas.metric.name);
    const pen = sharp(canvas, WIDTH, HEIGHT);
    const values = line?.avg.filter((value) => value !== null && Number.isFinite(value)) || [];
    canvas.classList.toggle("empty", !values.length);
    if (!values.length) return;
    const { from, to } = this.app.range();
    const low = values.reduce((a, b) => Math.min(a, b)), high = values.reduce((a, b) => Math.max(a, b));
    const x = (at) => 1 + ((at - from) / (to - from)) * (WIDTH - 2);
    const y = (value) => (high > low ? HEIGHT - 3 - ((value - low) / (high - low)) * (HEIGHT - 6) : HEIGHT / 2);
    pen.strokeStyle = pen.fillStyle = colour(0);
    pen.lineWidth = 1.25;
    pen.beginPath();
    let before = -Infinity;
    line.times.forEach((time, i) => {
      const value = line.avg[i], at = time + line.step / 2;
      if (value === null || !Number.isFinite(value)) return;
      if (time - before > line.gap) pen.fillRect(x(at) - 0.75, y(value) - 0.75, 1.5, 1.5);
      pen[time - before > line.gap ? "moveTo" : "lineTo"](x(at), y(value));
      before = time;
    });
    pen.stroke();
  }

  end() {
    this.asked?.abort();
    this.clear();
  }
}
