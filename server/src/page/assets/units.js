// Numbers as people read them: a prefix that fits, four digits, the unit.

const LARGE = ["", "k", "M", "G", "T", "P", "E"];
const SMALL = ["", "m", "µ", "n", "p"];
const SYMBOLS = {
  bytes: "B", seconds: "s", percent: "%", watts: "W", joules: "J", hertz: "Hz", celsius: "°C", volts: "V",
  amperes: "A", mebibytes: "MiB", ratio: "", none: "", "": "",
};

/** The symbol of a unit, with the "/s" of a rate: CPU seconds a second are plain numbers. */
export function symbol(unit, rate) {
  const one = SYMBOLS[unit || ""] ?? unit;
  if (!rate) return one;
  return unit === "seconds" ? "s/s" : `${one}/s`;
}

/** How values up to `most` are written: divided by `by`, followed by `suffix`; where the unit stands already, by `mark`. */
export function scale(most, unit, rate) {
  const sign = symbol(unit, rate);
  most = Math.abs(most);
  if (unit === "seconds" && !rate && most >= 120) {
    const mark = most < 7200 ? " min" : " h";
    return { by: most < 7200 ? 60 : 3600, suffix: mark, mark };
  }
  const plain = { by: 1, suffix: sign && ` ${sign}`, mark: "" };
  if (!Number.isFinite(most) || most === 0 || unit === "percent" || unit === "celsius" || unit === "mebibytes") {
    return plain;
  }
  let power = Math.floor(Math.log10(most * 1.0000001) / 3);
  // Words ("threads") and bare numbers stay as they are below ten thousand and above a thousandth.
  const word = sign.length > 3 || symbol(unit) === "";
  if (word && most < 10000 && most >= 0.001) power = 0;
  if (unit === "bytes" && power < 0) power = 0;
  const mark = power >= 0 ? LARGE[power] : SMALL[-power];
  // Beyond the prefixes digits() writes powers of ten.
  if (mark === undefined) return plain;
  return { by: 10 ** (3 * power), suffix: word ? mark + (sign && ` ${sign}`) : ` ${mark}${sign}`, mark };
}

/** At most `digits` significant ones, none of them a trailing zero. */
export function digits(value, many = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e15 || size < 1e-6) return value.toExponential(many - 1);
  const places = Math.max(0, many - 1 - Math.floor(Math.log10(size)));
  return String(Number(value.toFixed(Math.min(20, places))));
}

/** One value with its unit. */
export function amount(value, unit, rate) {
  if (value === null || value === undefined || !Number.isFinite(value)) return digits(value);
  const { by, suffix } = scale(value, unit, rate);
  return digits(value / by) + suffix;
}

/** A count with thin spaces between thousands. */
export function count(value) {
  return Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, "\u2009");
}

/** Round ticks from `low` to `high`, about `wanted` of them, with their labels: the unit stands above the chart. */
export function valueTicks(low, high, wanted, unit, rate) {
  const most = Math.max(Math.abs(low), Math.abs(high));
  const { by, mark } = scale(most, unit, rate);
  const rough = (high - low) / by / Math.max(1, wanted);
  const base = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * base).find((s) => s >= rough * 0.999) || base * 10;
  const places = Math.max(0, Math.min(12, -Math.floor(Math.log10(step) + 1e-9) + (step / base === 2.5 ? 1 : 0)));
  const text = (value) => (most / by >= 1e21 || most / by < 1e-12 ? String(Number(value.toPrecision(3))) : value.toFixed(places));
  const ticks = [];
  for (let i = Math.ceil(low / by / step - 1e-9); i * step <= high / by + step * 1e-9 && ticks.length < 50; i++) {
    ticks.push({ at: i * step * by, text: text(i * step) + (i === 0 ? "" : mark) });
  }
  return { ticks, step: step * by };
}

/** Ticks of a logarithmic axis: powers of ten, with 2 and 5 where there is room. */
export function logTicks(low, high, wanted, unit, rate) {
  const first = Math.floor(Math.log10(low));
  const last = Math.ceil(Math.log10(high));
  const every = Math.max(1, Math.ceil((last - first) / Math.max(2, wanted)));
  const ticks = [];
  for (let power = first; power <= last; power += every) {
    for (const m of last - first <= 2 ? [1, 2, 5] : [1]) {
      const at = m * 10 ** power;
      if (at >= low * 0.9999 && at <= high * 1.0001) ticks.push({ at, text: amount(at, unit, rate) });
    }
  }
  return { ticks };
}
