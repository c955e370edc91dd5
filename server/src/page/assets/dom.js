// Makes elements. Text goes in as text nodes only: names of metrics, tags and hosts come from anybody.

/** make("button.quiet", {title: "…", onclick: f}, child, …): null and false children are left out. */
export function make(what, ...rest) {
  const [tag, ...classes] = what.split(".");
  const element = document.createElement(tag || "div");
  if (classes.length) element.className = classes.join(" ");
  return fill(element, ...rest);
}

/** Sets properties and attributes of an element and appends children. */
export function fill(element, ...rest) {
  for (const one of rest.flat(Infinity)) {
    if (one === null || one === undefined || one === false) continue;
    if (one instanceof Node) element.append(one);
    else if (typeof one === "object") {
      for (const [name, value] of Object.entries(one)) {
        if (value === null || value === undefined || value === false) continue;
        if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
        else if (name in element && !name.startsWith("aria") && name !== "list") element[name] = value;
        else element.setAttribute(name, value === true ? "" : value);
      }
    } else element.append(String(one));
  }
  return element;
}

/** Puts these children in place of all others. */
export function put(element, ...children) {
  element.replaceChildren();
  return fill(element, ...children);
}

/** A long name shown short, whole in its title. */
export function short(text, most = 60) {
  text = String(text);
  return text.length <= most ? text : text.slice(0, most - 9) + "…" + text.slice(-8);
}

/** A choice among [value, label] pairs. */
export function choice(label, pairs, value, onchange) {
  const select = make("select", { "aria-label": label, title: label });
  for (const [one, text] of pairs) select.append(make("option", { value: one, selected: one === value }, short(text, 48)));
  if (!pairs.some(([one]) => one === value)) select.prepend(make("option", { value, selected: true }, short(value, 48)));
  select.addEventListener("change", () => onchange(select.value));
  return select;
}

/** A button that is either on or off. */
export function toggle(text, title, on, onchange) {
  const button = make("button.toggle", { type: "button", title, "aria-pressed": String(!!on) }, text);
  button.addEventListener("click", () => onchange(button.getAttribute("aria-pressed") !== "true"));
  return button;
}

/** Hands a file to the person. */
export function save(name, blob) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** Calls `then` once, `ms` after the last call. */
export function calm(ms, then) {
  let timer = 0;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => then(...args), ms);
  };
}
