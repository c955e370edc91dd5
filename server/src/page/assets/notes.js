// Notes that programs left, and where jobs begin and end: marks on every panel, and a list.

import { json } from "./ask.js";
import { make, put, short } from "./dom.js";
import { colour, theme } from "./chart.js";
import { moment } from "./time.js";

const MOST = 500;
const LISTED = 100;
// Of more jobs than these the marks would say nothing.
const JOBS_MOST = 12;
const NEAR = 5;
/** Whole seconds, or milliseconds. */
const millis = (time) => (Math.abs(time) < 1e11 ? time * 1000 : time);

export class Notes {
  constructor(app) {
    this.app = app;
    this.held = new Map();
    this.marks = [];
    this.from = null;
    this.list = make("section", { hidden: true });
  }

  /** Asks for the notes of the whole recording, and then for those that came since. */
  async load() {
    const { app } = this;
    const { from, to } = app.extent();
    const wanted = this.from ?? from;
    const told = await json(`api/annotations?start_time=${Math.max(1, Math.floor(wanted))}&end_time=${Math.ceil(to) + 1000}`).catch(() => []);
    for (const { startTime, endTime, description, notes, custom } of told) {
      const begin = millis(startTime);
      // Of an alarm the description says all of it.
      const fields = custom?.alarm ? [] : Object.entries(custom || {}).map(([key, value]) => `${key} = ${value}`);
      const text = [description || notes, fields.join(", ")].filter(Boolean).join(" · ");
      this.held.set(begin, { from: begin, to: endTime ? millis(endTime) : begin, text, more: description ? notes : "" });
    }
    const last = Math.max(...this.held.keys());
    if (Number.isFinite(last)) this.from = last;
    const jobs = app.page.jobs.length > 1 && app.page.jobs.length <= JOBS_MOST ? app.page.jobs : [];
    const ends = jobs.flatMap(({ id, name, begin, end }) => [[begin, "begins"], [end, "ends"]].filter(([at]) => at)
      .map(([at, word]) => ({ from: at, to: at, text: `${name || id} ${word}`, job: true })));
    this.marks = [...this.held.values()].sort((a, b) => a.from - b.from).slice(-MOST).concat(ends);
    const written = JSON.stringify([this.marks, app.utc]);
    app.view?.notes?.replaceChildren(this.list);
    if (written === this.written) return;
    this.written = written;
    this.say();
    app.board?.redraw();
  }

  say() {
    const { app, list } = this;
    const notes = this.marks.filter(({ job }) => !job).reverse();
    list.hidden = !notes.length;
    const row = ({ from, text, more }) => {
      const near = (app.extent().to - app.extent().from) / 20;
      const link = make("a", { href: app.to(app.state.view, { from: Math.floor(from - near), to: Math.ceil(from + near), last: undefined }), title: "Show the time around it" }, moment(from, app.utc));
      return make("tr", make("th", { scope: "row" }, link), make("td.help", { title: more || text }, short(text, 300)));
    };
    put(list, make("h2", "Notes", notes.length > LISTED && make("small", ` the last ${LISTED} of ${notes.length}`)),
      make("div.card", make("div.scroll", make("table.list", make("tbody", notes.slice(0, LISTED).map(row))))));
  }

  /** A line at each note, and a wash over those that last. */
  draw(pen, frame) {
    for (const { from, to, job } of this.marks) {
      if (to < frame.from || from > frame.to) continue;
      const x = Math.round(frame.x(from)) + 0.5;
      pen.strokeStyle = pen.fillStyle = job ? theme.faint : colour(1);
      if (to > from) {
        const left = Math.max(frame.left, x);
        pen.globalAlpha = 0.08;
        pen.fillRect(left, frame.top, Math.min(frame.right, frame.x(to)) - left, frame.bottom - frame.top);
      }
      if (from < frame.from) continue;
      pen.globalAlpha = 0.8;
      pen.lineWidth = 1;
      pen.setLineDash([2, 3]);
      pen.beginPath();
      pen.moveTo(x, frame.top);
      pen.lineTo(x, frame.bottom);
      pen.stroke();
      pen.setLineDash([]);
      pen.beginPath();
      pen.moveTo(x - 4, frame.top - 4);
      pen.lineTo(x + 4, frame.top - 4);
      pen.lineTo(x, frame.top + 2);
      pen.fill();
    }
    pen.globalAlpha = 1;
  }

  /** What the marks under the pointer say. */
  at(frame, x) {
    return this.marks.filter(({ from, to }) => frame.x(from) - NEAR <= x && x <= frame.x(to) + NEAR).slice(-3).map(({ text }) => short(text, 120));
  }
}
