// Panels: each shows the answer to one or more queries, says what it shows, and takes part in one cursor and one zoom.

import { put, make, short } from "./dom.js";
import { Frame, colour, draw, extent, nearest, sharp, smoothed, theme } from "./chart.js";
import { amount, digits, symbol } from "./units.js";
import { clock, moment, span } from "./time.js";
import { label, merged, received } from "./series.js";

const ROWS = 12;
const TABLE_ROWS = 2000;
const X_LINES = 256;

export class Panel {
  /** `spec` is a panel of the state; `more`: {title, height, controls, tools} */
  constructor(board, spec, more = {}) {
    Object.assign(this, { board, spec, more });
    this.answers = [];
    this.lines = [];
    this.stale = true;
    this.seen = false;
    this.tabled = false;
    this.shape();
  }

  get utc() {
    return this.board.app.utc;
  }

  /** The queries of this panel as the server takes them. */
  queries() {
    const { queries: [first], x } = this.spec;
    const queries = this.spec.queries.map((query) => ({ top: 8, ...query }));
    // The metric that stands below is asked for like the first one above it, of as many lines as there may be.
    if (x) queries.push({ metric: x, function: "avg", rate: false, by: first.by, where: first.where, top: X_LINES, order: "name" });
    return queries;
  }

  shape() {
    const { more } = this;
    this.heading = make("h3", { title: more.title }, short(more.title, 70));
    this.meta = make("p.meta");
    this.plot = make("canvas.plot", { "aria-hidden": "true" });
    this.over = make("canvas.over", { "aria-hidden": "true" });
    this.tip = make("div.tip", { hidden: true });
    this.word = make("p.word", { role: "status" }, "");
    this.area = make("div.area", { tabIndex: 0, role: "img", "aria-label": more.title },
      this.plot, this.over, this.word, this.tip);
    this.area.style.height = `${more.height || 190}px`;
    this.table = make("div.values", { hidden: true });
    this.legend = make("ul.legend");
    this.switch = make("button.quiet", { type: "button", "aria-pressed": "false", title: "Show the numbers as a table" }, "Show as table");
    this.switch.addEventListener("click", () => this.showTable(!this.tabled));
    this.element = make("article.panel", make("header", this.heading, make("div.tools", more.tools, this.switch)), this.meta, more.controls,
      this.area, this.table, this.legend);
    this.listen();
  }

  showTable(on) {
    this.tabled = on;
    this.switch.setAttribute("aria-pressed", String(on));
    this.switch.textContent = on ? "Show as chart" : "Show as table";
    this.area.hidden = on;
    this.table.hidden = !on;
    this.show();
  }

  /** Takes an answer to the query at `place`; `delta` if it continues the one before. False if it cannot. */
  take(place, answer, delta, range) {
    if (answer.error) {
      if (!delta) this.answers[place] = { error: String(answer.error.message ?? answer.error), lines: [], missing: [] };
      return !delta;
    }
    const now = received(answer);
    if (delta) {
      const whole = merged(this.answers[place], now, range.from);
      if (!whole) return false;
      this.answers[place] = whole;
    } else this.answers[place] = now;
    this.range = range;
    return true;
  }

  /** Lines, legend and words of what was taken; then the picture. */
  show() {
    const many = this.spec.queries.length > 1;
    const off = new Set(this.board.app.state.off || []);
    this.lines = [];
    this.answers.forEach((answer, query) => {
      if (!answer || query >= this.spec.queries.length) return;
      for (const line of answer.lines) {
        line.label = label(line, this.spec.queries[query], many);
        line.place = line.wash ? 7 : this.board.app.placeOf(line, this.lines.length, this.spec.queries[query]);
        line.colour = line.wash ? theme.faint : colour(line.place);
        line.off = off.has(line.label);
        line.query = query;
        this.lines.push(line);
      }
    });
    if (this.spec.x) this.lines = beside(this.lines, this.answers[this.spec.queries.length]?.lines || []);
    const plain = this.lines.filter((line) => !line.wash);
    if (plain.length === 1) plain[0].colour = colour(0);
    else if (new Set(plain.map((line) => line.place % 8)).size < Math.min(8, plain.length)) plain.forEach((line, i) => (line.colour = colour(i)));
    for (const line of plain) {
      line.smooth = this.spec.smooth ? smoothed(line.avg, this.spec.smooth) : null;
      // Bands over bands cannot be told apart: with many lines only the wash of the others stays.
      line.band = plain.length <= 2 && this.lines.length <= 2 && !line.xs;
    }
    this.sayMeta();
    this.sayLegend(plain);
    // A section shows what has something to show first.
    this.element.classList.toggle("nothing", !this.lines.length);
    if (this.tabled) this.fillTable();
    this.paint();
  }

  sayMeta() {
    const [first] = this.answers;
    const words = [];
    const missing = new Set();
    for (const answer of this.answers) for (const node of answer?.missing || []) missing.add(node);
    if (first && !first.error) {
      const { queries } = this.spec;
      const names = [...new Set(queries.map((q) => `${q.function}${q.rate ? " of rate" : ""}`))];
      words.push(names.join(", "));
      const by = [...new Set(queries.flatMap((q) => q.by))];
      if (by.length) words.push(`by ${by.map((key) => short(key, 24)).join(", ")}`);
      for (const [key, filter] of Object.entries(queries[0].where)) words.push(`${short(key, 24)} = ${short(filter, 32)}`);
      words.push(first.raw ? "every sample" : `steps of ${span(first.step)}`);
      const unit = symbol(first.unit, queries[0].rate);
      if (unit) words.push(unit);
      if (this.spec.x) words.push(`over ${short(this.spec.x, 40)}`);
      if (this.spec.since) words.push("time since the job began");
      if (this.spec.log) words.push("logarithmic");
      if (this.spec.smooth) words.push(`smoothed ${this.spec.smooth}`);
      const hidden = this.answers.reduce((sum, answer) => sum + (answer?.others?.count || 0), 0);
      if (hidden) words.push(`${hidden} more in the grey band`);
    }
    put(this.meta, words.join(" · "));
    if (missing.size) {
      const nodes = [...missing];
      this.meta.append(make("strong.amber", { title: nodes.join("\n") },
        ` ${nodes.length === 1 ? "node" : `${nodes.length} nodes`} did not answer: ${short(nodes.slice(0, 4).join(", "), 80)}`));
    }
    const error = this.answers.find((answer) => answer?.error)?.error;
    this.word.className = error ? "word bad" : "word";
    if (error) put(this.word, error);
    else if (!this.answers.some(Boolean)) put(this.word, "");
    else if (!this.lines.some((line) => line.avg.some((v) => v !== null))) put(this.word, this.answers.find((answer) => answer.empty)?.empty || this.board.app.whyEmpty());
    else put(this.word);
  }

  sayLegend(plain) {
    if (plain.length < 2 && !(plain.length === 1 && Object.keys(plain[0].tags || {}).length)) {
      put(this.legend);
      return;
    }
    const made = plain.map((line) => {
      const button = make("button", {
        type: "button", title: `${line.label}\nclick: hide or show · Ctrl-click: alone`, "aria-pressed": String(!line.off),
      }, make("i"), short(line.label, 40));
      button.firstChild.style.background = line.colour;
      button.addEventListener("click", (event) => {
        const all = plain.map((one) => one.label);
        const alone = event.ctrlKey || event.metaKey || event.altKey;
        this.board.app.hide(line.label, alone, all);
      });
      return make("li", button);
    });
    put(this.legend, made);
  }

  fillTable() {
    const plain = this.lines.filter((line) => !line.off && !line.wash);
    const times = [...new Set(plain.flatMap((line) => line.times))].sort((a, b) => a - b).slice(-TABLE_ROWS);
    const head = [];
    for (const line of plain) {
      if (line.xs) head.push(make("th", { scope: "col" }, short(plain.length > 1 ? `${this.spec.x} of ${line.label}` : this.spec.x, 40)));
      head.push(make("th", { scope: "col", title: line.label }, short(line.label, 40)));
      if (line.min && line.max) head.push(make("th", { scope: "col" }, "least"), make("th", { scope: "col" }, "greatest"));
    }
    const at = plain.map((line) => new Map(line.times.map((time, i) => [time, i])));
    const cell = (value) => make("td", value === null || value === undefined ? "" : String(value));
    const rows = times.reverse().map((time) => {
      const iso = new Date(time).toISOString();
      const row = make("tr", make("th", { scope: "row" }, make("time", { dateTime: iso }, moment(time, this.utc, this.answers[0]?.step || 1))));
      plain.forEach((line, k) => {
        const i = at[k].get(time);
        if (line.xs) row.append(cell(line.xs[i]));
        row.append(cell(line.avg[i]));
        if (line.min && line.max) row.append(cell(line.min[i]), cell(line.max[i]));
      });
      return row;
    });
    put(this.table, make("table", make("caption", this.more.title),
      make("thead", make("tr", make("th", { scope: "col" }, this.utc ? "time (UTC)" : "time"), head)), make("tbody", rows)));
  }

  /** Draws what is there over another range. */
  stretch(range) {
    if (!this.frame || !this.lines.length) return;
    this.range = range;
    this.paint();
  }

  /** Draws what is there. */
  paint() {
    if (this.tabled || !this.seen) return;
    const width = this.area.clientWidth, height = this.area.clientHeight;
    if (width < 40) return;
    const shown = this.lines.filter((line) => !line.off).map((line) => (line.wash || line.band ? line : { ...line, min: null, max: null }));
    const range = this.range || this.board.range();
    const { spec } = this;
    const unit = this.answers[0]?.unit, rate = spec.queries[0].rate;
    const { notes } = this.board.app;
    if (spec.x) {
      const over = shown.map((line) => ({ ...line, times: line.xs, step: 0, gap: Infinity, smooth: null }));
      const [from, to] = extent(over.map(({ xs }) => ({ times: xs, avg: xs, step: 0 })), -Infinity, Infinity, false, "");
      const [low, high] = extent(over, from, to, spec.log, rate ? "" : unit);
      this.frame = new Frame(width, height, from, to, low, high, spec.log);
      draw(this.plot, this.frame, over, { unit, rate, below: this.answers[spec.queries.length]?.unit || "" });
    } else {
      const [low, high] = extent(shown, range.from, range.to, spec.log, rate ? "" : unit);
      this.frame = new Frame(width, height, range.from, range.to, low, high, spec.log);
      draw(this.plot, this.frame, shown, { unit, rate, utc: this.utc, origin: spec.since ? this.board.app.origin() : undefined });
      notes?.draw(this.plot.getContext("2d"), this.frame);
    }
    this.paintCursor();
  }

  paintCursor() {
    if (!this.frame || this.tabled || !this.seen) return;
    const { frame, board } = this;
    const pen = sharp(this.over, frame.width, frame.height);
    if (board.drag && !this.spec.x) {
      const [a, b] = [board.drag.from, board.drag.to].sort((p, q) => p - q);
      const left = Math.max(frame.left, frame.x(a)), right = Math.min(frame.right, frame.x(b));
      pen.fillStyle = colour(0);
      pen.globalAlpha = 0.16;
      pen.fillRect(left, frame.top, right - left, frame.bottom - frame.top);
      pen.globalAlpha = 1;
    }
    const at = board.cursor;
    const over = this.spec.x;
    if (at === null || (!over && (at < frame.from || at > frame.to))) {
      this.tip.hidden = true;
      return;
    }
    let x = Math.round(frame.x(at)) + 0.5;
    if (!over) {
      pen.strokeStyle = theme.faint;
      pen.lineWidth = 1;
      pen.setLineDash([3, 3]);
      pen.beginPath();
      pen.moveTo(x, frame.top);
      pen.lineTo(x, frame.bottom);
      pen.stroke();
      pen.setLineDash([]);
    }
    const found = [];
    for (const line of this.lines) {
      if (line.off || line.wash) continue;
      const i = nearest(line, at);
      if (i < 0 || line.avg[i] === null) continue;
      const y = frame.y((line.smooth || line.avg)[i]);
      pen.fillStyle = line.colour;
      pen.beginPath();
      if (over) x = frame.x(line.xs[i]);
      pen.arc(over ? x : frame.x(line.times[i] + line.step / 2), y, 3, 0, 7);
      pen.fill();
      found.push({ line, i, y });
    }
    if (board.over === this) this.sayTip(found, x, at);
    else {
      this.tip.hidden = true;
      this.inscribe(pen, found, x);
    }
  }

  /** On panels that the pointer is not over, the first values stand beside the cursor. */
  inscribe(pen, found, x) {
    pen.textBaseline = "top";
    const { frame } = this;
    const right = x < (frame.left + frame.right) / 2;
    pen.textAlign = right ? "left" : "right";
    found.slice(0, 3).forEach(({ line, i }, row) => {
      const text = amount(line.avg[i], this.answers[line.query].unit, this.spec.queries[line.query].rate);
      const wide = pen.measureText(text).width, y = frame.top + row * 14, from = right ? x + 5 : x - 5;
      pen.fillStyle = theme.back;
      pen.globalAlpha = 0.8;
      pen.fillRect(right ? from - 2 : from - wide - 2, y - 1, wide + 4, 14);
      pen.globalAlpha = 1;
      pen.fillStyle = line.colour;
      pen.fillText(text, from, y);
    });
  }

  sayTip(found, x, at) {
    const { frame } = this;
    const y = this.board.pointerY ?? frame.top;
    found.sort((a, b) => Math.abs(a.y - y) - Math.abs(b.y - y));
    const step = this.answers[0]?.step || 1;
    const time = found[0] ? found[0].line.times[found[0].i] : at;
    const { app } = this.board;
    const when = this.spec.x && found[0] ? `${short(this.spec.x, 30)} ${digits(found[0].line.xs[found[0].i])}` : this.spec.since ? span(time - app.origin()) : clock(time, this.utc, step);
    const noted = this.spec.x ? [] : app.notes?.at(frame, x) || [];
    const rows = found.slice(0, ROWS).map(({ line, i }) => {
      const { unit } = this.answers[line.query], { rate } = this.spec.queries[line.query];
      const mark = make("i");
      mark.style.background = line.colour;
      const band = line.min && line.max && line.max[i] !== line.min[i];
      return make("tr", make("th", { scope: "row" }, mark, short(line.label, 34)), make("td", amount(line.avg[i], unit, rate)),
        band && make("td.range", `${amount(line.min[i], unit, rate)} … ${amount(line.max[i], unit, rate)}`));
    });
    const more = found.length - rows.length;
    put(this.tip, make("b", when), noted.map((text) => make("div.note", text)), make("table", rows), more > 0 && make("small", `${more} more`));
    this.tip.hidden = !found.length && !noted.length;
    if (this.tip.hidden) return;
    const wide = this.tip.offsetWidth, left = x > frame.width / 2 ? x - wide - 12 : x + 12;
    this.tip.style.left = `${Math.round(Math.max(-8, Math.min(frame.width - wide + 8, left)))}px`;
  }

  /** When the point was measured that is nearest to a place of the picture. */
  timeAt(x) {
    let time = null, least = Infinity;
    for (const line of this.lines) {
      if (line.off) continue;
      line.xs.forEach((value, i) => {
        const away = value === null || line.avg[i] === null ? Infinity : Math.hypot(this.frame.x(value) - x, this.frame.y(line.avg[i]) - this.board.pointerY);
        if (away < least) [time, least] = [line.times[i] + line.step / 2, away];
      });
    }
    return time;
  }

  /** Pointer and keys on the picture. */
  listen() {
    const { area, board } = this;
    const at = (event) => {
      const box = area.getBoundingClientRect();
      board.pointerY = event.clientY - box.top;
      if (this.spec.x) return this.timeAt(event.clientX - box.left);
      return Math.max(this.frame.from, Math.min(this.frame.to, this.frame.time(event.clientX - box.left)));
    };
    area.addEventListener("pointermove", (event) => {
      if (!this.frame) return;
      const time = at(event);
      if (board.drag && board.drag.panel === this) {
        board.drag.to = time;
        if (board.drag.pan) board.drag.moved = event.clientX - board.drag.x;
      }
      board.point(time, this);
    });
    area.addEventListener("pointerdown", (event) => {
      // What stands below may be no time.
      if (!this.frame || event.button !== 0 || this.spec.x) return;
      const time = at(event);
      board.drag = { panel: this, from: time, to: time, x: event.clientX, pan: event.shiftKey };
      try {
        area.setPointerCapture(event.pointerId);
      } catch {
        // The pointer is gone already.
      }
    });
    area.addEventListener("pointerup", (event) => {
      const { drag } = board;
      board.drag = null;
      if (!drag || drag.panel !== this) return;
      if (Math.abs(event.clientX - drag.x) > 5) {
        const { from, to } = this.frame;
        if (drag.pan) board.zoom(from + drag.from - drag.to, to + drag.from - drag.to);
        else board.zoom(Math.min(drag.from, drag.to), Math.max(drag.from, drag.to));
      }
      board.repaint();
    });
    area.addEventListener("pointercancel", () => {
      board.drag = null;
      board.repaint();
    });
    area.addEventListener("pointerleave", () => board.drag || board.point(null, null));
    area.addEventListener("dblclick", () => board.unzoom());
    area.addEventListener("wheel", (event) => {
      if (!event.ctrlKey || !this.frame || this.spec.x) return;
      event.preventDefault();
      const time = at(event), by = event.deltaY > 0 ? 1.5 : 1 / 1.5;
      board.zoom(time - (time - this.frame.from) * by, time + (this.frame.to - time) * by);
    }, { passive: false });
    area.addEventListener("keydown", (event) => this.key(event));
    area.addEventListener("blur", () => board.over === this && board.point(null, null));
  }

  key(event) {
    const { board, frame } = this;
    if (!frame || event.ctrlKey || event.metaKey || event.altKey) return;
    const move = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
    if (move) {
      const range = this.spec.x ? board.range() : frame;
      const step = this.answers[0]?.step || (range.to - range.from) / 100;
      const from = board.cursor ?? (range.from + range.to) / 2;
      const to = Math.max(range.from, Math.min(range.to, from + move * step));
      if (event.shiftKey && !this.spec.x) board.drag = { panel: this, from: board.drag?.from ?? from, to, x: 0 };
      else board.drag = null;
      board.pointerY = null;
      board.point(to, this);
    } else if (event.key === "Enter" && board.drag) {
      const { from, to } = board.drag;
      board.drag = null;
      board.zoom(Math.min(from, to), Math.max(from, to));
    } else if ((event.key === "+" || event.key === "-") && !this.spec.x) {
      const centre = board.cursor ?? (frame.from + frame.to) / 2, by = event.key === "-" ? 2 : 0.5;
      board.zoom(centre - (centre - frame.from) * by, centre + (frame.to - centre) * by);
    } else return;
    event.preventDefault();
  }

  /** What the panel says in words, for those who do not see it. */
  describe() {
    const said = this.lines.filter((line) => !line.wash).slice(0, 8).map((line) => {
      const last = line.avg.findLast((value) => value !== null);
      return `${line.label} ${digits(last ?? null)}`;
    });
    this.area.setAttribute("aria-label", short(`${this.more.title}. Last: ${said.join(", ")}`, 600));
  }
}

/** Lines with the values that stand below their own: those of the line with the same tags, or of the only one there is. */
function beside(lines, below) {
  const of = new Map(below.filter(({ wash }) => !wash).map((line) => [line.key, line]));
  return lines.filter(({ wash }) => !wash).flatMap((line) => {
    const one = of.get(line.key) || (of.size === 1 && !Object.keys(below[0].tags).length ? below[0] : null);
    if (!one) return [];
    const xs = line.times.map((time) => {
      const i = nearest(one, time + line.step / 2);
      return i < 0 ? null : one.avg[i];
    });
    const avg = line.avg.map((value, i) => (xs[i] === null ? null : value));
    // What goes forth and back is no line.
    const known = xs.filter((x) => x !== null);
    return [{ ...line, avg, xs, dots: known.some((x, i) => i > 0 && x < known[i - 1]) }];
  });
}
