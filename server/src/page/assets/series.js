// Between the server's words and the page's: questions as it takes them, answers as lines that can be drawn.

import { tagged } from "./state.js";

/** The body of a request for panels. */
export function wire({ from, to, columns, step, since, queries }) {
  const body = { start: Math.floor(from), end: Math.ceil(to), columns };
  if (step) body.step = step;
  if (since !== null && since !== undefined) body.since = since;
  body.panels = queries.map(({ metric, function: how, by, where, rate, top, order, keep, matrix }) => {
    const one = { metric, function: how, by, rate, where: tagged() };
    for (const [key, filter] of Object.entries(where)) one.where[key] = filtered(filter);
    if (matrix) one.matrix = true;
    if (top) one.top = { count: top, order: order || "max" };
    if (keep?.length) one.keep = keep;
    return one;
  });
  return body;
}

/** A filter as a person writes it: a value, a|b, or with * for anything. */
function filtered(filter) {
  if (Array.isArray(filter) || filter.includes("*")) return filter;
  return filter.split("|");
}

/** What the page starts from, in its own words; and how far the server's clock is ahead of ours: `told` came `at` that time. */
export function readPage({ told, at }) {
  const metrics = (told.metrics).map((m) => ({
    ...m, unit: m.unit || "", help: m.help || "", tags: new Map(Object.entries(m.tags || {})),
  }));
  // The program's own first; then by name.
  metrics.sort((a, b) => Number(b.own) - Number(a.own) || (a.name < b.name ? -1 : 1));
  // Of several jobs the last that runs, or else the last.
  const running = told.live ? told.jobs.findLast(({ begin, end }) => begin !== null && !end) : null;
  const page = { ...told, metrics, job: running || told.jobs[told.jobs.length - 1] };
  return { page, skew: told.live ? told.now - at : 0 };
}

/** Lines of an answer. `step` is 0 where every sample came, each at its own time. */
export function received(answer) {
  const step = answer.raw ? 0 : answer.step || 0;
  const lines = [];
  const grid = (many) => Array.from({ length: many }, (_, i) => answer.start + i * answer.step);
  for (const one of answer.series || []) {
    const tags = Object.assign(tagged(), one.tags);
    const avg = one.values || one.avg;
    const times = one.times || grid(avg.length);
    lines.push(line({ tags, key: keyOf(tags), times, avg, min: one.min || null, max: one.max || null, step, stats: one.stats }));
  }
  const { others } = answer;
  if (others?.count && others.avg) {
    const least = others.min || others.avg, most = others.max || others.avg;
    lines.push(line({
      tags: tagged(), key: "others", times: grid(others.avg.length), avg: others.avg, min: least, max: most,
      step: answer.step, wash: true,
    }));
  }
  const missing = (answer.missing || []).map(({ node, reason }) => (reason ? `${node} (${reason})` : node));
  return { lines, step, grid: answer.step, raw: !!answer.raw, unit: answer.unit || "", empty: answer.empty, others: others || null, missing };
}

const line = (one) => ({ ...one, gap: gapOf(one) });

/** How far apart two points of a line may be and still be joined, in ms. */
export function gapOf({ times, avg, step }) {
  const there = times.filter((_, i) => avg[i] !== null);
  const apart = there.slice(1).map((time, i) => time - there[i]).sort((a, b) => a - b);
  // Buckets may be shorter than the time from sample to sample: what lies between nine of ten neighbours is no gap.
  // Where more than a few are twice as far apart, the program is not on time: a bucket that it missed is no gap either.
  const at = (share) => apart[Math.floor(apart.length * share)] ?? step;
  const usual = step ? (at(0.98) <= 2 * at(0.9) ? at(0.98) : at(0.9)) : (apart[apart.length >> 1] ?? 1) * 2;
  return Math.max(step, usual, 1) * 1.5;
}

const keyOf = (tags) => JSON.stringify(Object.entries(tags).sort(([a], [b]) => (a < b ? -1 : 1)));

/** Continues an answer by a newer part of it; null if both do not stand on one grid. */
export function merged(old, now, from) {
  if (!old || old.error || old.step !== now.step || old.raw !== now.raw) return null;
  const fresh = new Map(now.lines.map((one) => [one.key, one]));
  const begins = Math.min(...now.lines.map((one) => one.times[0] ?? Infinity));
  const lines = old.lines.map((one) => {
    const next = fresh.get(one.key);
    fresh.delete(one.key);
    let first = 0, end = one.times.length;
    while (first < end && one.times[first] < from - one.step) first++;
    while (end > first && one.times[end - 1] >= (next?.times[0] ?? begins)) end--;
    const join = (a, b) => (a ? [...a.slice(first, end), ...(b || [])] : null);
    return line({ ...one, times: join(one.times, next?.times), avg: join(one.avg, next?.avg), min: join(one.min, next?.min), max: join(one.max, next?.max) });
  });
  // The lines that stand out may be others by now: then all is asked for anew.
  if (fresh.size && old.others?.count) return null;
  return { ...old, lines: [...lines, ...fresh.values()], missing: now.missing, others: now.others || old.others };
}

/** What a line is called: the values of its tags, with their keys where there are several. */
export function label(one, query, withMetric) {
  const tags = Object.entries(one.tags);
  let name = "";
  if (one.wash) name = "all others";
  else if (tags.length === 1) name = tags[0][1] ? String(tags[0][1]) : `no ${tags[0][0]}`;
  else if (tags.length) name = tags.filter(([, value]) => value !== null).map(([key, value]) => `${key}=${value}`).join(" ");
  if (!name) return query.metric;
  return withMetric ? `${query.metric} ${name}` : name;
}

/** A metric that only rises is shown by how fast. */
export const rises = (metric) => metric?.kind === "counter" || (metric?.kind === "unknown" && /_total$/.test(metric.name));
