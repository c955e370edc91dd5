// Requests: the token, deadlines, and whether the server is there at all. Everything goes to this page's own origin.

const KEY = "telem-token";
const DEADLINE_MS = 30000;
let token = null;

function kept() {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null; // A browser that keeps nothing: the token lives as long as the page.
  }
}

function keep(value) {
  token = value;
  try {
    sessionStorage.setItem(KEY, value);
  } catch {
    // As above.
  }
}

/** Takes a token out of the address at once: #token=…, or &token=… behind a view. */
export function takeToken() {
  token = kept();
  const found = /(^#|[?&])token=([^&]*)&?/.exec(location.hash);
  if (!found) return;
  let value = found[2];
  try {
    value = decodeURIComponent(value);
  } catch {
    // As it stands.
  }
  if (value) keep(value);
  const rest = location.hash.replace(found[0], found[1]).replace(/[?&#]+$/, "");
  history.replaceState(null, "", `${location.pathname}${location.search}${rest}`);
}

/** A word of the server, or the lack of one. */
export class Refusal extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** Who wants to know: `gone(since)`, `back()`, `token()` which gives a promise of a token that was typed in. */
export const told = { gone: () => {}, back: () => {}, token: async () => null };
let goneSince = null;
let typing = null;

export const isGone = () => goneSince !== null;

function lost() {
  goneSince ??= Date.now();
  told.gone(goneSince);
}

function found() {
  if (goneSince === null) return;
  goneSince = null;
  told.back();
}

/** Sends one request and gives the response; 401 asks for a token and tries again. */
export async function ask(path, { body, type = "application/json", accept, signal, deadline = DEADLINE_MS } = {}) {
  for (;;) {
    const headers = {};
    if (body !== undefined) headers["Content-Type"] = type;
    if (accept) headers.Accept = accept;
    if (token) headers.Authorization = `Bearer ${token}`;
    const ends = AbortSignal.timeout(deadline);
    let response;
    try {
      response = await fetch(path, {
        method: body === undefined ? "GET" : "POST", body, headers, cache: "no-store", credentials: "omit", redirect: "error",
        signal: signal ? AbortSignal.any([signal, ends]) : ends,
      });
    } catch (error) {
      if (signal?.aborted) throw error;
      if (ends.aborted) throw new Refusal(`no answer within ${deadline / 1000} s`, 0);
      lost();
      throw new Refusal("the server does not answer", 0);
    }
    found();
    if (response.status === 401) {
      await response.body?.cancel();
      typing ??= told.token(token !== null).finally(() => (typing = null));
      const typed = await typing;
      if (signal?.aborted) throw signal.reason;
      if (typed) {
        keep(typed);
        continue;
      }
    }
    if (!response.ok) throw new Refusal(await reason(response), response.status);
    return response;
  }
}

async function reason(response) {
  const said = await response.text().catch(() => "");
  try {
    const told = JSON.parse(said);
    return String(told.error?.message ?? told.error ?? told.message ?? said);
  } catch {
    return said.slice(0, 2000) || `${response.status} ${response.statusText}`;
  }
}

export async function json(path, more) {
  return (await ask(path, more)).json();
}

/** Asks for what the page starts from before anybody wants it: the other scripts are on their way meanwhile. */
async function ahead() {
  takeToken();
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const response = await fetch("api/page", { headers, cache: "no-store", credentials: "omit", redirect: "error" });
  return response.ok ? { told: await response.json(), at: Date.now() } : null;
}
let early = ahead().catch(() => null);

/** What the page starts from, and when it came. What was asked for ahead is given once; where that failed, this says so. */
export async function first() {
  const came = await early;
  early = null;
  if (came) return came;
  const told = await json("api/page");
  return { told, at: Date.now() };
}

/** Rows of an SQL query; what of the nodes did not answer goes into `missing`, a set. */
export async function sql(text, { missing, ...more } = {}) {
  const response = await ask("api/sql", { body: text, type: "text/plain", ...more });
  const silent = response.headers.get("X-Telem-Missing");
  if (silent) missing?.add(silent);
  return response.json();
}

/** Calls `each` with every line of JSON, as it comes. */
export async function lines(path, { signal, ...more }, each) {
  const response = await ask(path, { signal, ...more });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      rest += value;
      let end;
      while ((end = rest.indexOf("\n")) >= 0) {
        const line = rest.slice(0, end);
        rest = rest.slice(end + 1);
        if (line.trim()) each(JSON.parse(line));
      }
    }
  } catch (error) {
    if (signal?.aborted) throw error;
    if (error instanceof SyntaxError) throw new Refusal("the answer cannot be read", 0);
    lost();
    throw new Refusal("the answer broke off", 0);
  }
  if (rest.trim()) each(JSON.parse(rest));
}

/** Quotes of SQL: a text, and a name. */
export const quoted = (text) => `'${String(text).replaceAll("'", "''")}'`;
export const named = (name) => `"${String(name).replaceAll('"', '""')}"`;
