// The ruler below the bar: the whole recording in small, and a brush that says which part of it is shown.

import { lines } from "./ask.js";
import { make } from "./dom.js";
import { Frame, colour, draw, extent, theme, timeAxis } from "./chart.js";
import { panelOf } from "./state.js";
import { moment } from "./time.js";
import { received, wire } from "./series.js";

const OF = ["cpu_percent", "gpu_utilization_percent", "node_load1", "load_average"];
const GRIP = 7;

export class Ruler {
  constructor(app) {
    this.app = app;
    this.lines = [];
    this.canvas = make("canvas");
    this.element = make("div.ruler", {
      hidden: true, tabIndex: 0, role: "slider", "aria-label": "The part of the recording that is shown",
      "aria-valuemin": "0", "aria-valuemax": "100", "aria-valuenow": "100",
    }, this.canvas);
    new ResizeObserver(() => this.paint()).observe(this.element);
    this.listen();
  }

  show(on) {
    this.element.hidden = !on || !this.app.page;
  }

  /** One line of the whole recording: the first metric that says how busy it was. */
  async load() {
    const { app } = this;
    if (this.element.hidden || this.asking) return;
    const name = OF.find((one) => app.metric(one)) || app.page.metrics[0]?.name;
    if (!name) return;
    this.asking = true;
    const range = app.extent();
    const [query] = panelOf(name).queries;
    try {
      const body = JSON.stringify(wire({ ...range, columns: 300, queries: [query] }));
      await lines("api/panels", { body }, (answer) => {
        if (answer.panel !== 0 || answer.error) return;
        const { lines: one, unit } = received(answer);
        Object.assign(this, { lines: one, unit });
      });
    } catch {
      // A ruler without its line is a ruler still.
    } finally {
      this.asking = false;
    }
    this.paint();
  }

  paint() {
    if (this.element.hidden || !this.app.page) return;
    const width = this.element.clientWidth, height = this.element.clientHeight;
    if (width < 40) return;
    const all = this.app.extent(), range = this.app.range();
    const frame = new Frame(width, height, all.from, Math.max(all.to, all.from + 1), 0, 1, false);
    Object.assign(frame, { left: 12, right: width - 12, top: 4, bottom: height - 18 });
    const lines = this.lines.map((line) => ({ ...line, colour: colour(0), strong: false }));
    [frame.low, frame.high] = extent(lines, all.from, all.to, false, this.unit);
    this.frame = frame;
    draw(this.canvas, frame, lines, { unit: "", utc: this.app.utc, bare: true });
    const pen = this.canvas.getContext("2d");
    timeAxis(pen, frame, this.app.utc);
    const left = Math.max(frame.left, frame.x(range.from)), right = Math.min(frame.right, frame.x(range.to));
    pen.fillStyle = theme.back;
    pen.globalAlpha = 0.66;
    pen.fillRect(frame.left, frame.top, Math.max(0, left - frame.left), frame.bottom - frame.top);
    pen.fillRect(right, frame.top, Math.max(0, frame.right - right), frame.bottom - frame.top);
    pen.globalAlpha = 0.9;
    pen.fillStyle = colour(0);
    for (const x of [left, right]) pen.fillRect(Math.round(x) - 1.5, frame.top, 3, frame.bottom - frame.top);
    pen.globalAlpha = 1;
    pen.strokeStyle = theme.grid;
    pen.strokeRect(frame.left + 0.5, frame.top + 0.5, frame.right - frame.left - 1, frame.bottom - frame.top - 1);
    const share = ((range.to - all.from) / (all.to - all.from)) * 100;
    this.element.setAttribute("aria-valuenow", String(Math.round(Math.max(0, Math.min(100, share)))));
    this.element.setAttribute("aria-valuetext", `${moment(range.from, this.app.utc)} to ${moment(range.to, this.app.utc)}`);
  }

  listen() {
    const { element, app } = this;
    let drag = null;
    const time = (event) => {
      const x = event.clientX - element.getBoundingClientRect().left;
      return this.frame.time(Math.max(this.frame.left, Math.min(this.frame.right, x)));
    };
    const what = (event) => {
      const x = event.clientX - element.getBoundingClientRect().left, range = app.range();
      const left = this.frame.x(range.from), right = this.frame.x(range.to);
      if (Math.abs(x - left) < GRIP) return "left";
      if (Math.abs(x - right) < GRIP) return "right";
      // The whole of it cannot be moved: a drag there chooses a part.
      return x > left && x < right && right - left < (this.frame.right - this.frame.left) * 0.95 ? "move" : "new";
    };
    element.addEventListener("pointerdown", (event) => {
      if (!this.frame || event.button !== 0) return;
      drag = { what: what(event), at: time(event), x: event.clientX, range: app.range() };
      element.setPointerCapture(event.pointerId);
    });
    element.addEventListener("pointermove", (event) => {
      if (!this.frame) return;
      if (!drag) {
        element.style.cursor = { left: "ew-resize", right: "ew-resize", move: "grab", new: "crosshair" }[what(event)];
        return;
      }
      drag.to = this.chosen(drag, time(event));
      const range = app.range;
      app.range = () => drag.to;
      this.paint();
      app.range = range;
    });
    element.addEventListener("pointerup", (event) => {
      const done = drag;
      drag = null;
      if (!done?.to || Math.abs(event.clientX - done.x) < 4) return;
      app.zoom(done.to.from, done.to.to);
    });
    element.addEventListener("dblclick", () => app.unzoom());
    element.addEventListener("keydown", (event) => {
      const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!way) return;
      event.preventDefault();
      const { from, to } = app.range(), by = ((to - from) / 10) * way;
      app.zoom(event.shiftKey ? from : from + by, to + by);
    });
  }

  chosen(drag, at) {
    const { from, to } = drag.range;
    const order = (a, b) => ({ from: Math.min(a, b), to: Math.max(a, b) + 1 });
    if (drag.what === "left") return order(at, to);
    if (drag.what === "right") return order(from, at);
    if (drag.what === "move") return { from: from + at - drag.at, to: to + at - drag.at };
    return order(drag.at, at);
  }
}
