// A chart of [x, y] pairs: one line, and points over it. It is drawn as wide as there is room, and says what is below
// the pointer.

import { element, number } from "./proxy_parts.js";

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 320;
const [ABOVE, BELOW, RIGHT] = [12, 28, 16];
// About what a figure of an axis takes, in pixels.
const FIGURE = 7.5;
// Most marks on an axis.
const MARKS_MAX = 100;
// Steps of an axis of seconds.
const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];

function drawing(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  made.append(...children);
  return made;
}

// The step that divides a reach into about so many round parts.
function roundStep(reach, parts) {
  const about = reach / parts;
  const power = 10 ** Math.floor(Math.log10(about));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= about * 0.999);
}

function timeStep(reach, parts) {
  const about = reach / parts;
  return about < 1 ? roundStep(reach, parts)
    : TIME_STEPS.find((step) => step >= about) ?? Math.ceil(about / 86400) * 86400;
}

// Values that are large and almost equal lie closer together than numbers do: there may be none between them.
function marks(from, to, step) {
  const first = Math.ceil(from / step - 1e-9);
  const found = [];
  for (let count = 0; count < MARKS_MAX && (first + count) * step <= to + step * 1e-9; count += 1) {
    found.push((first + count) * step);
  }
  return [...new Set(found)];
}

function axisText(value, step) {
  if (Math.abs(value) < step * 1e-6) return "0";
  const rounded = Number(value.toPrecision(10));
  const size = Math.abs(rounded);
  if (size < 1e7 && size >= 1e-3) return String(rounded);
  return Number(value.toPrecision(6)).toExponential().replace("e+", "e");
}

const isThere = ([x, y]) => Number.isFinite(x) && Number.isFinite(y);

function reach(all, at) {
  const widened = ([a, b], pair) => [Math.min(a, pair[at]), Math.max(b, pair[at])];
  const [least, most] = all.reduce(widened, [Infinity, -Infinity]);
  if (least < most) return [least, most];
  const around = Math.max(Math.abs(least) / 2, 0.5);
  return [least - around, most + around];
}

// Whole steps around what there is; zero is among them where it is near.
function valueReach(all) {
  let [least, most] = reach(all, 1);
  if (all.every(([, y]) => y >= 0) && least <= 0.6 * most) least = 0;
  const step = roundStep(most - least, 5);
  return { step, least: Math.floor(least / step + 1e-9) * step, most: Math.ceil(most / step - 1e-9) * step };
}

// `show` draws { line, points, x, isTime, label, names }: `x` makes a text of an x, `names` says what line and points
// are.
export function chart() {
  const place = element("div", { className: "picture" });
  const legend = element("span", { className: "legend" });
  const readout = element("span", { className: "readout" });
  const node = element("figure", {}, place, element("figcaption", {}, legend, readout));
  let shown;
  let width = 0;
  let pointer;
  let point = () => {};

  const draw = () => {
    if (!shown || !width) return;
    const { line, points = [], x, isTime = false, label, names = [] } = shown;
    const all = [...line, ...points].filter(isThere);
    if (all.length === 0) {
      place.replaceChildren(element("p", { className: "empty" }, "There are no samples."));
      legend.replaceChildren();
      readout.textContent = "";
      point = () => {};
      return;
    }
    const picture = drawing("svg", {
      viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img", "aria-label": label,
    });
    const { step, least, most } = valueReach(all);
    const heights = marks(least, most, step);
    const left = Math.max(...heights.map((value) => axisText(value, step).length)) * FIGURE + 14;
    const [x0, x1] = reach(all, 0);
    const px = (value) => left + ((value - x0) / (x1 - x0)) * (width - left - RIGHT);
    const py = (value) => HEIGHT - BELOW - ((value - least) / (most - least)) * (HEIGHT - BELOW - ABOVE);
    for (const value of heights) {
      picture.append(
        drawing("path", { class: "grid", d: `M${left} ${py(value)}H${width - RIGHT}` }),
        drawing("text", { x: left - 6, y: py(value) + 4, "text-anchor": "end" }, axisText(value, step)));
    }
    const room = Math.max(2, Math.floor((width - left) / (isTime ? 110 : 70)));
    const across = isTime ? timeStep(x1 - x0, room) : roundStep(x1 - x0, room);
    for (const value of marks(x0, x1, across)) {
      const text = x(isTime ? value : Number(value.toPrecision(10)));
      // One that would be cut off stands a little aside.
      const half = (text.length * FIGURE) / 2;
      const at = Math.min(Math.max(px(value), half), width - half);
      picture.append(
        drawing("path", { class: "grid", d: `M${px(value)} ${HEIGHT - BELOW}v5` }),
        drawing("text", { x: at, y: HEIGHT - 6, "text-anchor": "middle" }, text));
    }
    let path = "";
    let isOpen = false;
    for (const pair of line) {
      if (isThere(pair)) path += `${isOpen ? "L" : "M"}${px(pair[0]).toFixed(1)} ${py(pair[1]).toFixed(1)}`;
      isOpen = isThere(pair);
    }
    picture.append(drawing("path", { class: "line", d: path }));
    if (line.filter(isThere).length === 1) {
      const [[a, b]] = line.filter(isThere);
      picture.append(drawing("circle", { class: "only", cx: px(a), cy: py(b), r: 3 }));
    }
    for (const [a, b] of points.filter(isThere)) {
      picture.append(drawing("circle", { class: "point", cx: px(a), cy: py(b), r: 4.5 }));
    }
    const cross = drawing("path", { class: "cross", d: "" });
    picture.append(cross);
    point = (at) => {
      if (at === undefined) {
        cross.setAttribute("d", "");
        readout.textContent = "";
        return;
      }
      const nearest = (pairs) => pairs.filter(isThere).reduce((best, pair) =>
        (best === undefined || Math.abs(px(pair[0]) - at) < Math.abs(px(best[0]) - at) ? pair : best), undefined);
      const told = nearest([...points, ...line]);
      const words = [[line, names[0]], [points, names[1]]].flatMap(([pairs, name]) => {
        const pair = nearest(pairs);
        const isHere = pair !== undefined && Math.abs(px(pair[0]) - px(told[0])) < 4;
        return isHere ? [name === undefined ? number(pair[1]) : `${name} ${number(pair[1])}`] : [];
      });
      cross.setAttribute("d", `M${px(told[0])} ${ABOVE}V${HEIGHT - BELOW}`);
      readout.textContent = `${x(told[0])}: ${words.join(", ")}`;
    };
    const signs = [["of-line", line], ["of-points", points]].filter(([, pairs]) => pairs.length > 0);
    legend.replaceChildren(...(names.length ? signs : []).map(([className]) =>
      element("span", { className }, names[className === "of-line" ? 0 : 1])));
    place.replaceChildren(picture);
    point(pointer);
  };

  place.addEventListener("pointermove", (event) => {
    pointer = event.clientX - place.getBoundingClientRect().left;
    point(pointer);
  });
  place.addEventListener("pointerleave", () => {
    pointer = undefined;
    point(pointer);
  });
  new ResizeObserver(() => {
    const now = Math.floor(place.clientWidth);
    if (now !== width) {
      width = now;
      draw();
    }
  }).observe(place);
  const show = (what) => {
    shown = what;
    draw();
  };
  return { node, show };
}
