"""What pages of other sites get of the built-in page and of its data, in a real Chromium: the shell, and nothing else."""

import contextlib
import http.server
import json
import re
import threading
import urllib.error
import urllib.request

import pytest
from chromium import MINUTE, browser, fragment, minutes_ago, needs_chromium, panel, put, sync_api, table_of, visit  # noqa: F401

pytestmark = needs_chromium
# What Chromium says where something is refused.
REFUSED = ("403", "ERR_BLOCKED", "ERR_ABORTED", "Refused to", "refused to connect", "frame-ancestors", "CORS", "Cross-Origin", "Failed to load")


@contextlib.contextmanager
def serving(answer):
    """A server on a port of its own; `answer(method, path, headers, body)` gives (status, headers, body)."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def reply(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, headers, answered = answer(self.command, self.path, self.headers, body)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answered)))
            self.end_headers()
            self.wfile.write(answered)

        do_GET = do_POST = do_HEAD = reply

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def site(html):
    with serving(lambda *_: (200, {"Content-Type": "text/html"}, html.encode())) as port:
        yield port


def module_of(server):
    """The path of one of the page's scripts."""
    return re.search(r'src="(page/[^"]+)"', urllib.request.urlopen(f"http://{server.address}/").read().decode())[1]


def test_a_rebound_name_gets_the_shell_and_no_data(served, visit):
    put(served, "secret_metric", [1.0, 2.0], minutes_ago(5))
    port = served.address.rsplit(":", 1)[1]
    # The name of a stranger's site that leads to this machine: Chromium takes it for one origin.
    page = visit(f"http://rebound.test:{port}/", expected=("403",))
    sync_api.expect(page.locator("main .word.bad")).to_contain_text("rebound.test")
    answers = page.evaluate(
        """async () => {
            const ask = async (path, more) => { const answer = await fetch(path, more); return [answer.status, await answer.text()]; };
            return [
                await ask("api/page"), await ask("api/info"), await ask("api/sql", { method: "POST", body: "SELECT * FROM secret_metric" }),
                await ask("api/panels", { method: "POST", body: "{}" }), await ask("api/put", { method: "POST", body: "[]" }), await ask("q?start=1h-ago"),
            ];
        }"""
    )
    assert [status for status, _ in answers] == [403] * len(answers), answers
    assert not any("secret_metric" in text for _, text in answers)
    assert "secret_metric" not in page.content()


@pytest.mark.parametrize("host", ["evil.test", "localhost"])
def test_foreign_forms_frames_and_scripts_get_nothing(served, visit, host):
    """`localhost` on another port is a page of the same site, as of another user of the machine."""
    begin = minutes_ago(5)
    put(served, "secret_metric", [1.0, 2.0], begin)
    port = served.address.rsplit(":", 1)[1]
    telem = f"http://localhost:{port}"
    stolen = json.dumps([{"metric": "planted", "timestamp": begin, "value": 1, "tags": {"host": "evil"}}])
    # A form of text/plain whose name and value together are JSON.
    name, value = stolen[:-1] + ', {"x": "', '"}]'
    quote = lambda text: text.replace("&", "&amp;").replace('"', "&quot;")
    html = f"""<!doctype html><title>foreign</title>
      <script>window.got = []; window.lost = []; window.stolen = [];</script>
      <form method=post enctype=text/plain target=sink action="{telem}/api/put"><input name="{quote(name)}" value="{quote(value)}"></form>
      <iframe name=sink></iframe>
      <iframe name=shell src="{telem}/"></iframe><iframe name=data src="{telem}/api/page"></iframe>
      <script src="{telem}/api/page" onload="got.push('data')" onerror="lost.push('data')"></script>
      <script type=module src="{telem}/{module_of(served)}" onload="got.push('module')" onerror="lost.push('module')"></script>
      <img src="{telem}/api/info" onload="got.push('image')" onerror="lost.push('image')">
      <link rel=stylesheet href="{telem}/{module_of(served).replace('app.js', 'style.css')}" onload="got.push('style')" onerror="lost.push('style')">"""
    with site(html) as port_of_site:
        page = visit(f"http://{host}:{port_of_site}/", expected=REFUSED, origins=(telem,))
        statuses = {}
        page.on("response", lambda response: statuses.setdefault(response.url, response.status))
        page.locator("form").evaluate("(form) => form.submit()")
        tried = page.evaluate(
            """async ([telem, stolen]) => {
                const attempt = async (path, more) => { try { const answer = await fetch(telem + path, more); return await answer.text(); } catch { return "refused"; } };
                const opaque = { mode: "no-cors", method: "POST", body: stolen };
                return [await attempt("/api/page"), await attempt("/api/page", { mode: "no-cors" }), await attempt("/api/put", opaque),
                  await attempt("/api/put", { method: "POST", body: stolen, headers: { "Content-Type": "application/json" } }), await attempt("/")];
            }""",
            [telem, stolen],
        )
        # An opaque answer has no text, and all others are refused.
        assert set(tried) <= {"refused", ""}, tried
        page.wait_for_function("lost.length + got.length >= 4")
        assert (page.evaluate("got"), sorted(page.evaluate("lost"))) == ([], ["data", "image", "module", "style"])
        for frame in page.frames[1:]:
            assert "secret_metric" not in frame.content() and frame.locator("#bar").count() == 0
        assert statuses.get(f"{telem}/api/put") == 403, statuses
    assert [row["n"] for row in served.sql("SELECT count(*) AS n FROM metrics WHERE metric = 'planted'")] == [0]


def test_a_link_on_another_site_opens_the_page(served, visit):
    begin = minutes_ago(5)
    put(served, "loss", [1.0] * 60, begin)
    telem = f"http://{served.address}/"
    link = telem + fragment("metrics", **{"from": begin, "to": begin + MINUTE, "m": "avg:loss"})
    with site(f'<!doctype html><a href="{link}">the run</a>') as port:
        page = visit(f"http://wiki.test:{port}/", expected=("favicon",), origins=(telem,))
        page.get_by_role("link", name="the run").click()
        assert set(table_of(page, "loss")["loss"].values()) == {1.0}


def test_the_page_works_below_the_path_of_a_proxy(served, visit):
    begin = minutes_ago(5)
    put(served, "loss", [1.0] * 60, begin)
    below = "/rnode/n1/4242/"
    asked = []

    def forward(method, path, headers, body):
        asked.append(path)
        if not path.startswith(below):
            return 404, {}, b""
        kept = {name: headers[name] for name in ("Content-Type", "Accept") if headers[name]}
        request = urllib.request.Request(f"http://{served.address}/{path[len(below):]}", body or None, kept, method=method)
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, {k: v for k, v in answer.headers.items() if k.lower() in ("content-type", "content-security-policy")}, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, {}, error.read()

    with serving(forward) as port:
        page = visit(f"http://127.0.0.1:{port}{below}", fragment("metrics", **{"from": begin, "to": begin + MINUTE, "m": "avg:loss"}))
        assert set(table_of(page, "loss")["loss"].values()) == {1.0}
        for name in ("Nodes", "Compare", "SQL", "telem", "Job"):
            page.get_by_role("navigation").get_by_role("link", name=name, exact=True).click()
            sync_api.expect(page.locator("nav a[aria-current]")).to_have_text(name)
        sync_api.expect(panel(page, "loss").locator(".meta")).to_contain_text("·")
        # What it still asks for is not asked of a proxy that is gone.
        page.close()
    assert all(path.startswith(below) for path in asked), asked
