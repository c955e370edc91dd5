"""A real Chromium for tests of the page: what it opens is watched."""

import datetime
import os
import shutil
import time

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright needs Python 3.10 or newer")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(not CHROMIUM, reason="no chromium is installed (Debian: apt install chromium; or CHROMIUM=)")
PATIENCE_MS = 120_000
MINUTE = 60_000


sync_api.expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--host-resolver-rules=MAP *.test 127.0.0.1"])
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser):
    """Opens an address and watches what the page does there; `expected` are words of errors that a test provokes, and
    `origins` are others that its pages may ask. With `clock` the test may make its time pass."""
    wrong = []
    contexts = []

    def open_page(address, link="", expected=(), origins=(), clock=False, **options):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, "timezone_id": "UTC", **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        origin = address if "://" in address else f"http://{address}/"

        def complain(text):
            if not any(word in text for word in expected):
                wrong.append(text)

        page.on("console", lambda message: message.type == "error" and complain(f"console: {message.text}"))
        page.on("pageerror", lambda error: complain(f"error: {error}"))
        page.on("request", lambda request: request.url.startswith((origin, "data:", "blob:", *origins)) or complain(f"foreign: {request.url}"))
        page.on("dialog", lambda dialog: (complain(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.add_init_script(
            "addEventListener('securitypolicyviolation', (e) => console.error(`policy: ${e.violatedDirective} ${e.blockedURI}`))"
        )
        if clock:
            page.clock.install()
        page.goto(origin + link)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not wrong, wrong


def put(server, metric, values, begin, step=1000, **tags):
    samples = [
        {"metric": metric, "timestamp": begin + i * step, "value": value, "tags": tags or {"host": "n1"}}
        for i, value in enumerate(values)
        if value is not None
    ]
    for at in range(0, len(samples), 5000):
        server.put(samples[at : at + 5000], "?sync")


def minutes_ago(many):
    """A whole minute in the past, in ms."""
    return (int(time.time()) // 60 - many) * MINUTE


def panel(page, title):
    return page.locator("article.panel").filter(has=page.get_by_role("heading", name=title, exact=True)).first


def table_of(page, title):
    """The numbers of *Show as table*: {column: {ms: text}}."""
    one = panel(page, title)
    one.scroll_into_view_if_needed()
    sync_api.expect(one.locator(".meta")).to_contain_text("·")
    one.get_by_role("button", name="Show as table").click()
    sync_api.expect(one.locator("tbody tr").first).to_be_visible()
    heads = one.locator("thead th").all_text_contents()[1:]
    found = {head: {} for head in heads}
    rows = one.locator("tbody tr").evaluate_all(
        "(rows) => rows.map((row) => [row.querySelector('time').dateTime, [...row.querySelectorAll('td')].map((cell) => cell.textContent)])"
    )
    for time_of, cells in rows:
        at = datetime.datetime.fromisoformat(time_of.replace("Z", "+00:00"))
        for head, cell in zip(heads, cells):
            if cell:
                found[head][round(at.timestamp() * 1000)] = float(cell)
    return found


def fragment(view="", **pairs):
    return f"#/{view}?" + "&".join(f"{name}={value}" for name, value in pairs.items())
