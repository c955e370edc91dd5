"""The pages at the addresses of Metric Proxy, in a real Chromium: what clients sent is text on them, and nothing comes
from anywhere else."""

import json
import re
import socket
import time

import pytest
from chromium import browser, needs_chromium, sync_api, visit  # noqa: F401
from test_proxy import free_port

from conftest import PATIENCE_S, Server

pytestmark = needs_chromium
expect = sync_api.expect
HOSTILE = "<img src=x onerror=alert(1)>"


class Client:
    def __init__(self, path, job, size, command="solve"):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self.send({"JobDesc": {"jobid": job, "command": command, "size": size, "nodelist": HOSTILE, "partition": "",
                               "cluster": "", "run_dir": "/", "start_time": 0, "end_time": 0}})

    def send(self, value):
        self.socket.sendall(json.dumps(value).encode() + b"\0")

    def count(self, name, value):
        self.send({"Desc": {"name": name, "doc": HOSTILE, "ctype": {"Counter": {"ts": 0, "value": 0.0}}}})
        self.send({"Value": {"name": name, "value": {"Counter": {"ts": 1, "value": value}}}})

    def close(self):
        self.socket.close()


@pytest.fixture
def proxy(tmp_path):
    port, path = free_port(), tmp_path / "s"
    server = Server("proxy", "-p", port, "-u", path, "-t", tmp_path / "data", "-S", "100")
    server.base = f"http://127.0.0.1:{port}/"
    server.path = path
    try:
        yield server
    finally:
        server.stop()


def until(what):
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def get(server, path):
    server.connection.request("GET", path)
    answer = server.connection.getresponse()
    text = answer.read().decode()
    return json.loads(text) if answer.status == 200 else None


def test_live_jobs_and_their_counters_are_text(proxy, visit):
    client = Client(proxy.path, HOSTILE, 4)
    client.count("plain", 12.5)
    client.count(f"odd {HOSTILE}", 1.0)
    page = visit(proxy.base, "index.html")
    page.get_by_role("link", name="Jobs").first.click()
    page.get_by_role("link", name=HOSTILE).click()
    row = page.get_by_role("row", name="plain")
    expect(row).to_contain_text("12.5")
    expect(row).to_contain_text(HOSTILE)
    client.send({"Value": {"name": "plain", "value": {"Counter": {"ts": 1, "value": 1.0}}}})
    expect(page.get_by_role("row", name="plain")).to_contain_text("13.5")
    page.get_by_placeholder("part of a name").fill("odd")
    expect(page.get_by_role("row", name=f"odd {HOSTILE}")).to_be_visible()
    expect(page.get_by_role("row", name="plain")).to_have_count(0)
    assert page.locator("img").count() == 0
    client.close()


def test_an_alarm_is_made_raised_and_removed(proxy, visit):
    client = Client(proxy.path, "j", 1)
    client.count("load", 5.0)
    until(lambda: get(proxy, "/job?job=j"))
    page = visit(proxy.base, "alarms.html")
    page.get_by_label("Name").fill(HOSTILE)
    page.get_by_label("Job").select_option("j")
    page.get_by_label("Metric").fill("load")
    page.get_by_label("Value").fill("4")
    page.get_by_role("button", name="Add alarm").click()
    expect(page.get_by_text("raised", exact=True)).to_be_visible()
    expect(page.get_by_role("cell", name=HOSTILE).first).to_be_visible()
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("button", name="Delete")).to_have_count(0)
    client.close()


def test_finished_jobs_have_profiles_models_and_traces(proxy, visit):
    for size in [1, 2, 4, 8, 16]:
        client = Client(proxy.path, f"size{size}", size)
        client.count("work", 1.5 + 2 * size)
        until(lambda: get(proxy, f"/job?job=size{size}") is not None)
        client.close()
        until(lambda: get(proxy, f"/profiles/get?jobid=size{size}"))
    page = visit(proxy.base, "profiles.html")
    expect(page.get_by_role("heading", name="solve")).to_be_visible()
    page.get_by_role("row", name="size8").get_by_role("link", name="model").click()
    page.get_by_role("button", name="work", exact=True).click()
    expect(page.locator("svg circle")).to_have_count(5)
    expect(page.locator("svg path.line")).to_have_attribute("d", re.compile("^M.*L"))
    page.get_by_role("link", name="Trace").click()
    expect(page.locator("form select").first).to_be_visible()
    page.get_by_label("Job").select_option("size8")
    expect(page.get_by_role("img")).to_be_visible()
    for name in ["topology.html", "doc.html", "is_admire_proxy.html"]:
        page.goto(proxy.base + name)
        expect(page.locator("h1")).to_be_visible()


