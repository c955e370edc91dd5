// Times: ticks down to a millisecond, labels in UTC or local time, spans such as 15m. Times are milliseconds.

const S = 1000, M = 60 * S, H = 60 * M, D = 24 * H;
const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, S, 2 * S, 5 * S, 10 * S, 15 * S, 30 * S, M, 2 * M, 5 * M, 10 * M, 15 * M,
  30 * M, H, 2 * H, 3 * H, 6 * H, 12 * H, D, 2 * D, 7 * D, 14 * D, 28 * D, 91 * D, 364 * D];
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const UNITS = { ms: 1, s: S, m: M, h: H, d: D, w: 7 * D };

const two = (n) => String(n).padStart(2, "0");
/** How far local time is ahead of UTC at this time. */
const ahead = (ms, utc) => (utc ? 0 : -new Date(ms).getTimezoneOffset() * M);

function parts(ms, utc) {
  const d = new Date(ms + ahead(ms, utc));
  return {
    year: d.getUTCFullYear(), month: d.getUTCMonth(), day: d.getUTCDate(),
    clock: `${two(d.getUTCHours())}:${two(d.getUTCMinutes())}`,
    second: two(d.getUTCSeconds()), milli: String(d.getUTCMilliseconds()).padStart(3, "0"),
  };
}

const EARLIEST = -62e12, LATEST = 253e12;
export const isTime = (ms) => Number.isFinite(ms) && ms > EARLIEST && ms < LATEST;

/** The clock, as exact as a step of `step` ms needs. */
export function clock(ms, utc, step = S) {
  if (!isTime(ms)) return "–";
  const p = parts(Math.round(ms), utc);
  return p.clock + (step < M ? `:${p.second}` : "") + (step < S ? `.${p.milli}` : "");
}

/** Date and clock: 2026-11-24 08:15:30. */
export function moment(ms, utc, step = S) {
  if (!isTime(ms)) return "–";
  const p = parts(Math.round(ms), utc);
  return `${p.year}-${two(p.month + 1)}-${two(p.day)} ${clock(ms, utc, step)}`;
}

/** What a field of type datetime-local holds. */
export const fieldTime = (ms, utc) => moment(ms, utc, 1).replace(" ", "T");
export function parseField(text, utc) {
  const ms = Date.parse(utc ? `${text}Z` : text);
  return Number.isFinite(ms) ? ms : null;
}

/** The least step that is round and not below `rough`; beyond a year, years. */
function stepOf(rough) {
  const longest = STEPS[STEPS.length - 1];
  return STEPS.find((step) => step >= rough) || Math.ceil(rough / longest) * longest;
}

/** Ticks at round times of the zone. */
export function timeTicks(from, to, wanted, utc) {
  const rough = (to - from) / Math.max(1, wanted);
  const step = stepOf(rough);
  const shift = ahead(from, utc);
  const ticks = [];
  for (let at = Math.ceil((from + shift) / step) * step - shift; at <= to && ticks.length < 100; at += step) {
    const p = parts(at, utc);
    const midnight = p.clock === "00:00" && p.second === "00" && p.milli === "000";
    let text;
    if (step >= D || midnight) text = step >= 28 * D ? `${MONTHS[p.month]} ${p.year}` : `${p.day} ${MONTHS[p.month]}`;
    else if (step < S) text = `${p.second}.${p.milli}`;
    else text = clock(at, utc, step);
    ticks.push({ at, text });
  }
  return { ticks, step };
}

/** Ticks of the time since `origin`. */
export function spanTicks(from, to, wanted, origin = 0) {
  const rough = (to - from) / Math.max(1, wanted);
  const step = stepOf(rough);
  const ticks = [];
  for (let at = Math.ceil((from - origin) / step) * step; at <= to - origin && ticks.length < 100; at += step) ticks.push({ at: at + origin, text: span(at) });
  return { ticks, step };
}

/** A length of time in at most two units: 1 h 5 min, 250 ms. */
export function span(ms) {
  if (!Number.isFinite(ms)) return "–";
  const sign = ms < 0 ? "−" : "";
  ms = Math.abs(ms);
  if (ms === 0) return "0 s";
  if (ms < S) return `${sign}${Number(ms.toPrecision(3))} ms`;
  if (ms < M) return `${sign}${Number((ms / S).toFixed(ms < 10 * S ? 2 : 1))} s`;
  const [big, name, small, next] = ms < H ? [M, "min", S, "s"] : ms < D ? [H, "h", M, "min"] : [D, "d", H, "h"];
  let many = Math.floor(ms / big), rest = Math.round((ms - many * big) / small);
  if (rest * small >= big) [many, rest] = [many + 1, 0];
  return `${sign}${many} ${name}${rest ? ` ${rest} ${next}` : ""}`;
}

/** "15m" in milliseconds, else null. */
export function parseSpan(text) {
  const found = /^(\d{1,9})(ms|s|m|h|d|w)$/.exec(text || "");
  return found && Number(found[1]) > 0 ? Number(found[1]) * UNITS[found[2]] : null;
}
