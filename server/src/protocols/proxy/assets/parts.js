// What the pages are made of: elements, questions to the server, numbers, times and tables. Every text that a client
// sent becomes a text node, never markup.

const note = document.getElementById("note");
const DEADLINE_S = 30;
// Rows of a table: a browser is slow with more.
const ROWS_MAX = 2000;

// An element with properties and children; children are nodes or texts.
export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  Object.assign(made, properties);
  made.append(...children);
  return made;
}

// Has a place show these, and leaves alone what is the same already: a selection, the focus, a press that goes on. So
// what an element does must be told by its attributes and text.
export function put(place, ...made) {
  const before = [...place.childNodes];
  if (before.length !== made.length) {
    place.replaceChildren(...made);
    return;
  }
  made.forEach((one, at) => renew(before[at], typeof one === "string" ? new Text(one) : one));
}

function renew(before, made) {
  if (before.isEqualNode(made)) return;
  const [inner, madeInner] = [[...before.childNodes], [...made.childNodes]];
  const isAlike = inner.length > 0 && inner.length === madeInner.length
    && before.cloneNode(false).isEqualNode(made.cloneNode(false));
  if (isAlike) madeInner.forEach((one, at) => renew(inner[at], one));
  else before.replaceWith(made);
}

export const link = (href, text) => element("a", { href }, text);
export const withQuery = (path, params) => `${path}?${new URLSearchParams(params)}`;
export const parameters = new URLSearchParams(location.search);

// What of the choice is in the address, so that it can be sent to others.
export function remember(params) {
  for (const [key, value] of Object.entries(params)) parameters.set(key, value);
  history.replaceState(null, "", `?${parameters}`);
}

// What a path answers. Whatever fails is an Error in words.
export async function ask(path, body) {
  const options = body === undefined
    ? {}
    : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  let answer;
  let text;
  try {
    answer = await fetch(path, { ...options, signal: AbortSignal.timeout(DEADLINE_S * 1000) });
    text = await answer.text();
  } catch (error) {
    throw new Error(error.name === "TimeoutError"
      ? `The server did not answer within ${DEADLINE_S} seconds.`
      : "The server does not answer. Is it still running?");
  }
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Error(`The server answered ${answer.status}: ${text.slice(0, 200)}`);
  }
  if (!answer.ok) throw new Error(value.operation ?? value.error?.message ?? `The server answered ${answer.status}.`);
  return value;
}

// Says what went wrong while the page was brought up to date, or that nothing did any more.
export function say(error) {
  note.textContent = error === undefined ? "" : String(error.message ?? error);
}

// A place beside a form for what came of it: that stays until the form is used again.
export function outcome() {
  const node = element("p", { className: "outcome" });
  node.setAttribute("role", "status");
  const tell = (text, isFailure) => {
    node.textContent = text;
    node.classList.toggle("failure", isFailure);
  };
  // Does something, and says what it gave, or why it failed.
  const of = async (what) => {
    try {
      tell((await what()) ?? "", false);
    } catch (error) {
      tell(String(error.message ?? error), true);
    }
  };
  return { node, of };
}

// Does it now and again until it gives false, but not while the tab is hidden.
export function every(seconds, what) {
  const once = async () => {
    let goesOn = true;
    if (!document.hidden) {
      try {
        goesOn = (await what()) !== false;
        say();
      } catch (error) {
        say(error);
      }
    }
    if (goesOn) setTimeout(once, seconds * 1000);
  };
  return once();
}

// A cell's text is also told its column, for screens where a row is a list.
export function table(headings, rows, kind = "") {
  const head = headings.map(([name, kind]) => {
    const cell = element("th", { className: kind ?? "", scope: "col" }, name);
    cell.setAttribute("role", "columnheader");
    return cell;
  });
  const lines = rows.map((cells) => {
    const row = element("tr", {}, ...cells.map((content, at) => {
      const [name, kind] = headings[at];
      const cell = element("td", { className: kind ?? "" }, ...(content === "" ? [] : [content]));
      cell.setAttribute("role", "cell");
      cell.dataset.column = name;
      return cell;
    }));
    row.setAttribute("role", "row");
    return row;
  });
  const top = element("tr", {}, ...head);
  top.setAttribute("role", "row");
  const made = element("table", { className: kind }, element("thead", {}, top), element("tbody", {}, ...lines));
  made.setAttribute("role", "table");
  return element("div", { className: "wide" }, made);
}

// A field that filters what a table is made of; `make` gives the rows of what is left.
export function filtered({ headings, name, make, none }) {
  const field = element("input", { type: "search", placeholder: "part of a name" });
  const place = element("div");
  let all = [];
  const draw = () => {
    const part = field.value.toLowerCase();
    const wanted = all.filter((item) => name(item).toLowerCase().includes(part));
    const parts = [wanted.length ? table(headings, wanted.slice(0, ROWS_MAX).map(make))
      : element("p", {}, all.length ? "No name has this in it." : none)];
    if (wanted.length > ROWS_MAX) {
      parts.push(element("p", {}, `The first ${ROWS_MAX} of ${wanted.length} are shown; the filter finds the others.`));
    }
    put(place, ...parts);
  };
  field.addEventListener("input", draw);
  const show = (items) => {
    all = items;
    draw();
  };
  const form = element("form", {}, element("label", {}, "Filter", field));
  form.addEventListener("submit", (event) => event.preventDefault());
  return { node: element("div", {}, form, place), show };
}

// A list to choose from; options are [value, text]. New options leave the choice as it is, where it is still there.
export function choice(label, options, chosen, changed) {
  const field = element("select");
  let known;
  const offer = (offered) => {
    // A list that is open stays open.
    if (JSON.stringify(offered) === known) return;
    known = JSON.stringify(offered);
    const before = field.options.length ? field.value : chosen;
    field.replaceChildren(...offered.map(([value, text]) => element("option", { value }, text ?? value)));
    if (offered.some(([value]) => value === before)) field.value = before;
  };
  offer(options);
  field.addEventListener("change", () => changed(field.value));
  return { field, offer, node: element("label", {}, label, field) };
}

export function box(label, isChecked, changed) {
  const field = element("input", { type: "checkbox", checked: isChecked });
  field.addEventListener("change", () => changed(field.checked));
  return { field, node: element("label", { className: "box" }, field, label) };
}

export function number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "";
  const size = Math.abs(value);
  return size !== 0 && (size >= 1e15 || size < 1e-4) ? value.toExponential(4) : String(Number(value.toPrecision(12)));
}

// In which unit bytes are shown. What Metric Proxy calls MB is MiB.
const UNITS = [
  ["1", "as counted", 1], ["kB", "kB (1,000)", 1e3], ["MB", "MB (1,000²)", 1e6], ["GB", "GB (1,000³)", 1e9],
  ["KiB", "KiB (1,024)", 2 ** 10], ["MiB", "MiB (1,024²)", 2 ** 20], ["GiB", "GiB (1,024³)", 2 ** 30],
];

export function unitChoice(changed) {
  const known = choice("Bytes as", UNITS.map(([name, text]) => [name, text]), parameters.get("unit") ?? "1", (unit) => {
    remember({ unit });
    changed();
  });
  const current = () => UNITS.find(([name]) => name === known.field.value) ?? UNITS[0];
  return {
    node: known.node,
    scaled: (pairs) => pairs.map(([x, y]) => [x, y / current()[2]]),
    // A name with its unit.
    named: (name) => (current()[0] === "1" ? name : `${name} in ${current()[0]}`),
  };
}

const two = (part) => String(part).padStart(2, "0");
export const day = (at) => `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
export const clock = (at) => `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;

// A time in milliseconds since 1970 by the reader's own clock; pointed at, it says the same in UTC. 0 is unknown.
export function moment(ms) {
  if (!ms) return "";
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return String(ms);
  return element("time", { dateTime: at.toISOString(), title: at.toISOString() }, `${day(at)} ${clock(at)}`);
}

// How long something took, in words.
export function duration(ms) {
  if (ms < 60_000) return `${number(ms / 1000)} s`;
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 60) return `${minutes} min ${Math.floor((ms % 60_000) / 1000)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}
