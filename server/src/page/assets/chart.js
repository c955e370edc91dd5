// A chart on two canvases: one for what was measured, one for cursor and selection. It draws columns that the server made.

import { logTicks, valueTicks } from "./units.js";
import { spanTicks, timeTicks } from "./time.js";

// Okabe and Ito's order, tuned for either background: told apart by colour-blind eyes too.
const LIGHT = ["#0064b0", "#c05000", "#00815c", "#b0478c", "#8a6a00", "#2387b8", "#8c3a1c", "#5a5aa8"];
const DARK = ["#5db1f5", "#f39a4a", "#3fcb9d", "#e58ac4", "#e6c84a", "#8fd3f7", "#e0795a", "#a9a9f5"];

const theme = { dark: false, text: "#000", grid: "#ddd", back: "#fff", faint: "#999", font: "11px sans-serif" };

/** Reads colours of the style sheet: canvases know none. */
export function readTheme() {
  const style = getComputedStyle(document.documentElement);
  theme.dark = style.getPropertyValue("--dark").trim() === "1";
  for (const name of ["text", "grid", "back", "faint"]) theme[name] = style.getPropertyValue(`--${name}`).trim();
  theme.font = `11px ${style.getPropertyValue("--font").trim() || "sans-serif"}`;
}

export const colour = (place) => (theme.dark ? DARK : LIGHT)[place % LIGHT.length];

/** A canvas of this many CSS pixels, sharp on any screen. */
export function sharp(canvas, width, height) {
  const ratio = Math.min(3, window.devicePixelRatio || 1);
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = theme.font;
  return pen;
}

export { theme };

/** Where things are: the plot's rectangle and the two scales. */
export class Frame {
  constructor(width, height, from, to, low, high, log) {
    Object.assign(this, { width, height, from, to, low, high, log });
    this.left = 50;
    this.right = width - 8;
    this.top = 8;
    this.bottom = height - 20;
  }
  x(at) {
    return this.left + ((at - this.from) / (this.to - this.from)) * (this.right - this.left);
  }
  time(x) {
    return this.from + ((x - this.left) / (this.right - this.left)) * (this.to - this.from);
  }
  y(value) {
    if (this.log) {
      if (!(value > 0)) return this.bottom + 4;
      return this.bottom - ((Math.log(value) - Math.log(this.low)) / (Math.log(this.high) - Math.log(this.low))) * (this.bottom - this.top);
    }
    return this.bottom - ((value - this.low) / (this.high - this.low)) * (this.bottom - this.top);
  }
}

/** The least and the greatest of what is shown within a range, with room, and with zero where it is near. */
export function extent(lines, from, to, log, unit) {
  let low = Infinity, high = -Infinity, small = Infinity;
  const take = (value) => {
    if (value === null || !Number.isFinite(value)) return;
    if (value < low) low = value;
    if (value > high) high = value;
    if (value > 0 && value < small) small = value;
  };
  for (const line of lines) {
    for (let i = 0; i < line.times.length; i++) {
      if (line.times[i] < from - line.step || line.times[i] > to) continue;
      take(line.avg[i]);
      if (line.min) take(line.min[i]);
      if (line.max) take(line.max[i]);
    }
  }
  if (log) return small === Infinity ? [0.1, 10] : [small === high ? small / 2 : small / 1.1, high * 1.1];
  if (low === Infinity) return [0, 1];
  // A share is seen against the whole of nothing, and most else too.
  if (low >= 0 && (low < high * 0.5 || (unit === "percent" && high <= 100.5))) low = 0;
  if (high <= 0 && high > low * 0.5) high = 0;
  if (low === high) {
    const pad = Math.abs(low) * 0.1 || 1;
    return low >= 0 && low - pad < 0 ? [0, high + pad] : [low === 0 ? 0 : low - pad, high + pad];
  }
  const pad = (high - low) * 0.06;
  if (unit === "percent" && low === 0 && high > 60 && high <= 100.5) return [0, 101];
  return [low === 0 ? 0 : low - pad, high === 0 ? 0 : high + pad];
}

/**
 * Draws lines: {times, step, avg, min?, max?, colour, faint?, smooth?}. `times` are starts of buckets, and raw points
 * come as step 0. Points join unless more than `gap` ms lie between them; `dots` do not.
 */
export function draw(canvas, frame, lines, { unit, rate, utc, origin, below, shade, bare }) {
  const pen = sharp(canvas, frame.width, frame.height);
  if (!bare) axes(pen, frame, unit, rate, utc, origin, below);
  pen.save();
  pen.beginPath();
  pen.rect(frame.left, frame.top - 4, frame.right - frame.left, frame.bottom - frame.top + 5);
  pen.clip();
  if (shade) between(pen, frame, shade[0], shade[1]);
  for (const line of lines) if (line.min && line.max) band(pen, frame, line);
  for (const line of lines) if (!line.wash) stroke(pen, frame, line);
  pen.restore();
}

function axes(pen, frame, unit, rate, utc, origin, below) {
  const rows = Math.max(2, Math.floor((frame.bottom - frame.top) / 38));
  const values = frame.log ? logTicks(frame.low, frame.high, rows, unit, rate) : valueTicks(frame.low, frame.high, rows, unit, rate);
  pen.lineWidth = 1;
  pen.strokeStyle = theme.grid;
  pen.fillStyle = theme.faint;
  pen.textBaseline = "middle";
  pen.textAlign = "right";
  for (const { at, text } of values.ticks) {
    const y = Math.round(frame.y(at)) + 0.5;
    if (y < frame.top - 1 || y > frame.bottom + 1) continue;
    pen.beginPath();
    pen.moveTo(frame.left, y);
    pen.lineTo(frame.right, y);
    pen.stroke();
    pen.fillText(text, frame.left - 6, y);
  }
  timeAxis(pen, frame, utc, origin, below);
}

/** The axis below: times, or spans since `origin`, or values of a metric with the unit `below`. */
export function timeAxis(pen, frame, utc, origin, below) {
  const many = Math.max(2, Math.floor((frame.right - frame.left) / 84));
  const { from, to } = frame;
  const { ticks } = below !== undefined ? valueTicks(from, to, many, below) : origin !== undefined ? spanTicks(from, to, many, origin) : timeTicks(from, to, many, utc);
  pen.fillStyle = theme.faint;
  pen.strokeStyle = theme.grid;
  pen.textBaseline = "top";
  pen.textAlign = "center";
  for (const { at, text } of ticks) {
    const x = Math.round(frame.x(at)) + 0.5;
    pen.beginPath();
    pen.moveTo(x, frame.bottom);
    pen.lineTo(x, frame.bottom + 4);
    pen.stroke();
    const half = pen.measureText(text).width / 2;
    if (x - half > 2 && x + half < frame.width - 1) pen.fillText(text, x, frame.bottom + 7);
  }
}

/** Calls `part(places)` for each run of points of which no two are further apart than a gap. */
function runs(line, values, part) {
  let run = [];
  for (let i = 0; i < line.times.length; i++) {
    if (values[i] === null || !Number.isFinite(values[i])) continue;
    if (run.length && line.times[i] - line.times[run[run.length - 1]] > line.gap) {
      part(run);
      run = [];
    }
    run.push(i);
  }
  if (run.length) part(run);
}

/** Adds a line through these points of a run to the path. */
function along(pen, frame, line, values, run) {
  for (const i of run) pen[i === run[0] ? "moveTo" : "lineTo"](frame.x(middle(line, i)), frame.y(values[i]));
}

/** A value stands in the middle of its bucket; a raw point at its time. */
const middle = (line, i) => line.times[i] + line.step / 2;

function band(pen, frame, line) {
  pen.fillStyle = line.colour;
  pen.globalAlpha = line.wash ? 0.13 : 0.16;
  runs(line, line.max, (run) => {
    pen.beginPath();
    if (run.length === 1) {
      const top = frame.y(line.max[run[0]]), x = frame.x(line.times[run[0]]);
      const wide = Math.max(1, frame.x(line.times[run[0]] + line.step) - x);
      pen.rect(x, top, wide, Math.max(1, frame.y(line.min[run[0]]) - top));
    } else {
      for (const i of run) pen.lineTo(frame.x(middle(line, i)), frame.y(line.max[i]));
      for (const i of run.toReversed()) pen.lineTo(frame.x(middle(line, i)), frame.y(line.min[i]));
      pen.closePath();
    }
    pen.fill();
  });
  // A spike of one sample is a fraction of a pixel of the wash: its outline shows it.
  pen.globalAlpha = line.wash ? 0.3 : 0.42;
  pen.strokeStyle = line.colour;
  pen.lineWidth = 0.75;
  for (const edge of [line.max, line.min]) {
    pen.beginPath();
    runs(line, edge, (run) => along(pen, frame, line, edge, run));
    pen.stroke();
  }
  pen.globalAlpha = 1;
}

function stroke(pen, frame, line) {
  pen.strokeStyle = pen.fillStyle = line.colour;
  pen.lineJoin = "round";
  const path = (values) => {
    pen.beginPath();
    const alone = [];
    runs(line, values, (run) => {
      if (run.length === 1) alone.push(run[0]);
      along(pen, frame, line, values, run);
    });
    if (line.dots) line.times.forEach((_, i) => values[i] !== null && alone.push(i));
    else pen.stroke();
    for (const i of alone) pen.fillRect(frame.x(middle(line, i)) - 1.5, frame.y(values[i]) - 1.5, 3, 3);
  };
  if (line.smooth) {
    pen.globalAlpha = 0.3;
    pen.lineWidth = 1;
    path(line.avg);
    pen.globalAlpha = 1;
    pen.lineWidth = 1.75;
    path(line.smooth);
  } else {
    pen.lineWidth = line.strong ? 2.25 : 1.4;
    pen.setLineDash(line.dash || []);
    path(line.avg);
    pen.setLineDash([]);
  }
}

/** Shades what lies between two lines of one grid. */
function between(pen, frame, one, other) {
  pen.fillStyle = theme.text;
  pen.globalAlpha = 0.07;
  const many = Math.min(one.times.length, other.times.length);
  for (let i = 0; i < many; i++) {
    if (one.avg[i] === null || other.avg[i] === null) continue;
    const x = frame.x(one.times[i]), wide = Math.max(1, frame.x(one.times[i] + one.step) - x);
    const top = Math.min(frame.y(one.avg[i]), frame.y(other.avg[i]));
    pen.fillRect(x, top, wide, Math.abs(frame.y(one.avg[i]) - frame.y(other.avg[i])));
  }
  pen.globalAlpha = 1;
}

/** The place of the point nearest to a time, or -1 where a gap is. */
export function nearest(line, at) {
  const { times } = line;
  let low = 0, high = times.length - 1;
  if (high < 0) return -1;
  while (low < high) {
    const mid = (low + high + 1) >> 1;
    if (times[mid] <= at) low = mid;
    else high = mid - 1;
  }
  if (line.step === 0 && low + 1 < times.length && times[low + 1] - at < at - times[low]) low++;
  if (line.step > 0 && line.avg[low] === null && line.gap > 2 * line.step) return nearestThere(line, at, low);
  const far = line.step > 0 ? at < times[low] || at >= times[low] + line.step : Math.abs(times[low] - at) > line.gap;
  return far ? -1 : low;
}

/** The same where buckets are shorter than the time from sample to sample: most have no value. */
function nearestThere(line, at, low) {
  let before = low, after = low;
  while (before >= 0 && line.avg[before] === null) before--;
  while (after < line.times.length && line.avg[after] === null) after++;
  const away = (i) => (i >= 0 && i < line.times.length ? Math.abs(middle(line, i) - at) : Infinity);
  const near = away(before) <= away(after) ? before : after;
  return away(near) <= line.gap / 2 ? near : -1;
}

/** A moving average over `many` points, exponential as trainers know it; gaps stay gaps. */
export function smoothed(values, percent) {
  const keep = Math.min(99.9, percent) / 100;
  let state = null, weight = 0;
  return values.map((value) => {
    if (value === null || !Number.isFinite(value)) return null;
    state = state === null ? value * (1 - keep) : state * keep + value * (1 - keep);
    weight = weight * keep + (1 - keep);
    return state / weight;
  });
}
