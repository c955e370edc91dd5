// A heat map: a row a host, a column a bucket, one byte a cell. Darkness is the value; a hole is a hole.

import { colour, sharp, theme, timeAxis } from "./chart.js";
import { Frame } from "./chart.js";
import { make, short } from "./dom.js";
import { amount } from "./units.js";
import { clock } from "./time.js";

// Viridis-like, dark to light, even to the eye and to colour-blind eyes; on dark backgrounds the other way stays readable.
const STOPS = [[68, 1, 84], [65, 68, 135], [42, 120, 142], [34, 168, 132], [122, 209, 81], [253, 231, 37]];

function ramp() {
  const colours = new Uint8ClampedArray(256 * 4);
  for (let i = 1; i < 256; i++) {
    const at = ((i - 1) / 254) * (STOPS.length - 1), low = Math.min(STOPS.length - 2, Math.floor(at)), part = at - low;
    for (let c = 0; c < 3; c++) colours[i * 4 + c] = STOPS[low][c] + (STOPS[low + 1][c] - STOPS[low][c]) * part;
    colours[i * 4 + 3] = 255;
  }
  return colours;
}
const RAMP = ramp();

/** The bytes of an answer, row by row. */
export function cellsOf(answer) {
  const text = atob(answer.cells);
  return Uint8Array.from(text, (sign) => sign.charCodeAt(0));
}

/**
 * How many columns lie between samples, as a rule: a column may be shorter than the time from one sample to the next, and
 * what lies between nine of ten neighbours is no hole.
 */
export function reachOf(cells, columns) {
  const apart = [];
  let most = 0;
  for (let at = 0, last = -1; at < cells.length; at++) {
    if (at % columns === 0) last = -1;
    if (cells[at] === 0) continue;
    if (last >= 0) {
      apart[at - last] = (apart[at - last] || 0) + 1;
      most++;
    }
    last = at;
  }
  let seen = 0;
  const reach = apart.findIndex((many) => (seen += many || 0) >= most * 0.9);
  return Math.max(1, most ? reach : 1);
}

/** The byte that is shown in a column: its own, or that of the sample whose time reaches there. */
export function shownAt(cells, from, column, reach) {
  for (let back = 0; back < reach && back <= column; back++) if (cells[from + column - back] !== 0) return cells[from + column - back];
  return 0;
}

/** What a cell stands for. */
export const valueOf = (answer, byte) => (byte === 0 ? null : answer.scale.lo + ((byte - 1) / 254) * (answer.scale.hi - answer.scale.lo));

export class HeatMap {
  /** `acts`: {row(name), cell(name, from, to), zoom(from, to), unzoom()}; `name(row)` is what a row is called. */
  constructor(app, acts) {
    Object.assign(this, { app, acts });
    this.plot = make("canvas.plot", { "aria-hidden": "true" });
    this.over = make("canvas.over", { "aria-hidden": "true" });
    this.tip = make("div.tip", { hidden: true });
    this.element = make("div.heat.area", { tabIndex: 0, role: "img", "aria-label": "Heat map of hosts over time; the table beside it has its numbers" },
      this.plot, this.over, this.tip);
    this.ramp = make("canvas", { width: 256, height: 1 });
    this.low = make("span");
    this.high = make("span");
    this.key = make("div.ramp", this.low, this.ramp, this.high);
    const pen = this.ramp.getContext("2d"), strip = pen.createImageData(256, 1);
    strip.data.set(RAMP);
    pen.putImageData(strip, 0, 0);
    this.resizes = new ResizeObserver(() => this.paint());
    this.resizes.observe(this.element);
    this.listen();
  }

  take(answer, range, order, unit, rate) {
    Object.assign(this, { answer, range, order, unit, rate });
    this.cells = cellsOf(answer);
    this.reach = reachOf(this.cells, answer.columns);
    this.low.textContent = amount(answer.scale.lo, unit, rate);
    this.high.textContent = amount(answer.scale.hi, unit, rate);
    // One pixel a cell; the browser enlarges it.
    const { columns } = answer, many = order.length;
    this.picture = make("canvas", { width: Math.max(1, columns), height: Math.max(1, many) });
    const pen = this.picture.getContext("2d"), image = pen.createImageData(Math.max(1, columns), Math.max(1, many));
    const words = new Uint32Array(image.data.buffer), colours = new Uint32Array(RAMP.buffer);
    order.forEach((row, place) => {
      for (let c = 0; c < columns; c++) words[place * columns + c] = colours[shownAt(this.cells, row * columns, c, this.reach)];
    });
    pen.putImageData(image, 0, 0);
    const height = Math.max(130, Math.min(620, many * Math.max(2, Math.min(24, Math.floor(560 / Math.max(1, many)))))) + 28;
    this.element.style.height = `${height}px`;
    this.paint();
  }

  paint() {
    if (!this.answer) return;
    const width = this.element.clientWidth, height = this.element.clientHeight;
    if (width < 40) return;
    const frame = new Frame(width, height, this.range.from, this.range.to, 0, this.order.length, false);
    const names = this.order.map((row) => this.acts.name(this.answer.rows[row]));
    const pen = sharp(this.plot, width, height);
    const tall = (frame.bottom - frame.top) / Math.max(1, names.length);
    const every = Math.max(1, Math.ceil(13 / tall));
    frame.left = Math.min(150, 14 + Math.max(20, ...names.filter((_, i) => i % every === 0).slice(0, 80).map((name) => pen.measureText(short(name, 18)).width)));
    this.frame = frame;
    const { start, step, columns } = this.answer;
    pen.save();
    pen.beginPath();
    pen.rect(frame.left, frame.top, frame.right - frame.left, frame.bottom - frame.top);
    pen.clip();
    pen.fillStyle = theme.grid;
    pen.fillRect(frame.left, frame.top, frame.right - frame.left, frame.bottom - frame.top);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(this.picture, frame.x(start), frame.top, frame.x(start + step * columns) - frame.x(start), frame.bottom - frame.top);
    pen.restore();
    pen.fillStyle = theme.faint;
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (let i = 0; i < names.length; i += every) pen.fillText(short(names[i], 18), frame.left - 6, frame.top + (i + 0.5) * tall);
    timeAxis(pen, frame, this.app.utc);
    sharp(this.over, width, height);
  }

  at(event) {
    const box = this.element.getBoundingClientRect(), { frame } = this;
    const x = event.clientX - box.left, y = event.clientY - box.top;
    const place = Math.floor(((y - frame.top) / (frame.bottom - frame.top)) * this.order.length);
    return { x, y, place, time: Math.max(frame.from, Math.min(frame.to, frame.time(x))), inside: x >= frame.left && place >= 0 && place < this.order.length };
  }

  listen() {
    const { element } = this;
    let drag = null;
    element.addEventListener("pointermove", (event) => {
      if (!this.frame) return;
      const here = this.at(event), { frame } = this;
      const pen = sharp(this.over, frame.width, frame.height);
      if (drag) {
        pen.fillStyle = colour(0);
        pen.globalAlpha = 0.25;
        const [a, b] = [frame.x(drag.time), frame.x(here.time)].sort((p, q) => p - q);
        pen.fillRect(a, frame.top, b - a, frame.bottom - frame.top);
        this.tip.hidden = true;
        return;
      }
      this.point(pen, here);
    });
    element.addEventListener("pointerleave", () => this.frame && (sharp(this.over, this.frame.width, this.frame.height), (this.tip.hidden = true)));
    element.addEventListener("pointerdown", (event) => {
      if (!this.frame || event.button !== 0) return;
      drag = this.at(event);
      element.setPointerCapture(event.pointerId);
    });
    element.addEventListener("pointerup", (event) => {
      const begun = drag;
      drag = null;
      if (!begun) return;
      const here = this.at(event);
      if (Math.abs(here.x - begun.x) > 5) this.acts.zoom(Math.min(begun.time, here.time), Math.max(begun.time, here.time));
      else if (here.place >= 0 && here.place < this.order.length) this.acts.row(this.answer.rows[this.order[here.place]], here.inside ? here.time : null);
    });
    element.addEventListener("dblclick", () => this.acts.unzoom());
  }

  point(pen, here) {
    const { frame, answer } = this;
    this.tip.hidden = !here.inside;
    if (!here.inside) return;
    const tall = (frame.bottom - frame.top) / this.order.length;
    pen.strokeStyle = theme.text;
    pen.lineWidth = 1;
    pen.strokeRect(frame.left + 0.5, frame.top + here.place * tall - 0.5, frame.right - frame.left - 1, Math.max(3, tall) + 1);
    const column = Math.floor((here.time - answer.start) / answer.step), row = this.order[here.place];
    const byte = column >= 0 && column < answer.columns ? shownAt(this.cells, row * answer.columns, column, this.reach) : 0;
    const value = valueOf(answer, byte);
    const { name } = this.acts;
    this.tip.replaceChildren(make("b", short(name(answer.rows[row]), 60)), make("div", clock(answer.start + column * answer.step, this.app.utc, answer.step)),
      make("div", value === null ? "no sample" : `about ${amount(value, this.unit, this.rate)}`));
    const left = here.x > frame.width / 2;
    this.tip.style.left = left ? "" : `${Math.round(here.x + 14)}px`;
    this.tip.style.right = left ? `${Math.round(frame.width - here.x + 14)}px` : "";
    this.tip.style.top = `${Math.round(Math.min(here.y, frame.bottom - 60))}px`;
  }
}
