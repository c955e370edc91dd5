"""The pages at the addresses of Metric Proxy, in a real Chromium: what clients sent is text on them, and nothing comes
from anywhere else."""

import datetime
import json
import re
import socket
import time
import zoneinfo

import pytest
from chromium import browser, needs_chromium, sync_api, visit  # noqa: F401
from test_proxy import CASES, free_port

from conftest import PATIENCE_S, Server

pytestmark = needs_chromium
expect = sync_api.expect
HOSTILE = "<img src=x onerror=alert(1)>"
PAGES = ["index", "jobs", "job_view", "alarms", "profiles", "trace", "model", "topology", "doc", "is_admire_proxy"]
# A zone that is none of UTC's, and a time in it: milliseconds since 1970.
ZONE = "America/New_York"
LONG_AGO_MS = 1_700_152_180_123
REFUSED = "400 (Bad Request)"


class Client:
    def __init__(self, path, job, size, command="solve", start_ms=0, **fields):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        desc = {"jobid": job, "command": command, "size": size, "nodelist": HOSTILE, "partition": "", "cluster": "",
                "run_dir": "/", "start_time": start_ms, "end_time": 0, **fields}
        self.send({"JobDesc": desc})

    def send(self, value):
        self.socket.sendall(json.dumps(value).encode() + b"\0")

    def count(self, name, value):
        self.send({"Desc": {"name": name, "doc": HOSTILE, "ctype": {"Counter": {"ts": 0, "value": 0.0}}}})
        self.send({"Value": {"name": name, "value": {"Counter": {"ts": 1, "value": value}}}})

    def gauge(self, name, *values):
        unset = {"min": 0.0, "max": 0.0, "hits": 0.0, "total": 0.0}
        self.send({"Desc": {"name": name, "doc": "", "ctype": {"Gauge": unset}}})
        for value in values:
            gauge = {"min": value, "max": value, "hits": 1.0, "total": value}
            self.send({"Value": {"name": name, "value": {"Gauge": gauge}}})

    def close(self):
        self.socket.close()


class Proxy(Server):
    """A `telem proxy` of its own port, socket and directory."""

    def __init__(self, directory, *more):
        directory.mkdir(exist_ok=True)
        self.port, self.path = free_port(), directory / "s"
        super().__init__("proxy", "-p", self.port, "-u", self.path, "-t", directory / "data", "-S", "100", *more)
        self.base = f"http://127.0.0.1:{self.port}/"


@pytest.fixture
def proxy(tmp_path):
    server = Proxy(tmp_path / "proxy")
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.stop()


def until(what):
    deadline = time.monotonic() + PATIENCE_S
    while not (found := what()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def get(server, path):
    server.connection.request("GET", path)
    answer = server.connection.getresponse()
    text = answer.read().decode()
    return json.loads(text) if answer.status == 200 else None


def finish(server, job, size, *, command="solve", start_ms=0, **counters):
    """A whole run of a job, and its profile."""
    client = Client(server.path, job, size, command, start_ms)
    for name, value in counters.items():
        client.count(name, value)
    until(lambda: get(server, f"/job?job={job}"))
    client.close()
    return until(lambda: get(server, f"/profiles/get?jobid={job}"))


def local(seconds, shape="%Y-%m-%d %H:%M:%S"):
    """How the pages say a time, in the zone of these tests."""
    return datetime.datetime.fromtimestamp(seconds, zoneinfo.ZoneInfo(ZONE)).strftime(shape)


def read_at(page, part):
    """What a chart says below the pointer, at a part of its width."""
    picture = page.locator(".picture")
    expect(picture.locator("svg")).to_be_visible()
    box = picture.bounding_box()
    page.mouse.move(box["x"] + box["width"] * part, box["y"] + box["height"] / 2)
    return page.locator(".readout")


def behind(page, name):
    """What a link of a page leads to."""
    answer = page.request.get(page.get_by_role("link", name=name).evaluate("(link) => link.href"))
    assert answer.ok
    return answer.text()


def test_live_jobs_and_their_counters_are_text(proxy, visit):
    client = Client(proxy.path, HOSTILE, 4)
    client.count("plain", 12.5)
    client.count(f"odd {HOSTILE}", 1.0)
    page = visit(proxy.base, "index.html", expected=[REFUSED])
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
    client.count("odd too", 1.0)
    expect(page.get_by_role("row", name="odd too")).to_be_visible()
    assert page.locator("img").count() == 0
    # Who looks at a job when it ends is told where it went.
    client.close()
    expect(page.get_by_text("This job is over.")).to_be_visible()
    page.get_by_role("link", name="What it counted").click()
    expect(page.get_by_role("row", name="plain")).to_contain_text("13.5")


def test_a_job_that_never_was_is_told_in_words(proxy, visit):
    page = visit(proxy.base, "job_view.html?job=nobody", expected=[REFUSED])
    expect(page.locator("#note")).to_have_text("No such Job ID")
    page.goto(proxy.base + "job_view.html?profile=nobody")
    expect(page.locator("#note")).to_have_text("Failed to get nobody")


def test_a_server_that_is_gone_is_told_in_words(proxy, visit):
    page = visit(proxy.base, "jobs.html?", expected=["Failed to load resource"], clock=True)
    expect(page.get_by_role("link", name="main")).to_be_visible()
    proxy.stop()
    page.clock.run_for(10_000)
    expect(page.locator("#note")).to_have_text("The server does not answer. Is it still running?")
    expect(page.get_by_role("link", name="main")).to_be_visible()


def test_the_profile_of_a_finished_job_is_shown_with_its_times(proxy, visit):
    client = Client(proxy.path, "over", 4, "./app --fast", LONG_AGO_MS, partition="batch", cluster="west")
    client.count("plain", 12.5)
    client.gauge("heat", 3.25)
    until(lambda: get(proxy, "/job?job=over"))
    client.close()
    profile = until(lambda: get(proxy, "/profiles/get?jobid=over"))
    begin, end = profile["desc"]["start_time"], profile["desc"]["end_time"]
    assert begin == LONG_AGO_MS and abs(end / 1000 - time.time()) < PATIENCE_S, "milliseconds"
    page = visit(proxy.base, "job_view.html?profile=over", timezone_id=ZONE)
    for field, value in [("Command", "./app --fast"), ("Size", "4"), ("Partition", "batch"), ("Cluster", "west"),
                         ("Start", local(begin / 1000)), ("End", local(end / 1000))]:
        expect(page.get_by_role("row", name=f"{field} {value}", exact=True)).to_be_visible()
    assert local(begin / 1000) == "2023-11-16 11:29:40"
    expect(page.get_by_role("row", name="plain")).to_contain_text("12.5")
    expect(page.get_by_role("row", name="heat").get_by_role("cell").nth(2)).to_have_text("3.25")
    walltime = next(counter for counter in profile["counters"] if counter["name"] == "walltime")
    expect(page.get_by_role("row", name="walltime")).to_contain_text(f"{walltime['ctype']['Counter']['value']:.12g}")
    expect(page.get_by_text(ZONE)).to_be_visible()
    assert json.loads(behind(page, "as JSON")) == profile


def test_times_are_those_of_the_readers_clock_on_every_page(proxy, visit):
    client = Client(proxy.path, "live", 1, start_ms=LONG_AGO_MS)
    finish(proxy, "over", 1, start_ms=LONG_AGO_MS, c=1.0)
    # One of an old client, which says seconds.
    finish(proxy, "old", 1, start_ms=LONG_AGO_MS // 1000, c=1.0)
    page = visit(proxy.base, "jobs.html", timezone_id=ZONE)
    expect(page.get_by_role("row", name="live")).to_contain_text("2023-11-16 11:29:40")
    stamp = page.get_by_role("row", name="live").locator("time")
    expect(stamp).to_have_attribute("datetime", "2023-11-16T16:29:40.123Z")
    # Sums begin at no time.
    expect(page.get_by_role("row", name="main").locator("time")).to_have_count(0)
    page.goto(proxy.base + "profiles.html")
    end = next(desc for desc in get(proxy, "/profiles") if desc["jobid"] == "over")["end_time"]
    expect(page.get_by_role("row", name="over")).to_contain_text(f"2023-11-16 11:29:40{local(end / 1000)}")
    expect(page.get_by_role("row", name="old")).to_contain_text("2023-11-16 11:29:40")
    page.goto(proxy.base + "topology.html")
    asked_at = page.get_by_role("row", name="/system").locator("time").get_attribute("datetime")
    asked_at = datetime.datetime.fromisoformat(asked_at.replace("Z", "+00:00")).timestamp()
    assert abs(asked_at - time.time()) < PATIENCE_S
    expect(page.get_by_role("row", name="/system")).to_contain_text(local(asked_at, "%Y-%m-%d %H:"))
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


def test_an_alarm_waits_as_long_as_it_is_told_to_and_ends_where_it_is_told_to(proxy, visit):
    client = Client(proxy.path, "j", 1)
    client.gauge("heat", 5.0)
    until(lambda: get(proxy, "/job?job=j"))
    page = visit(proxy.base, "alarms.html", expected=[REFUSED])

    def add(name, **more):
        for label, value in {"Name": name, "Metric": "heat", "Value": "4", **more}.items():
            page.get_by_label(label).fill(value)
        page.get_by_label("Job").select_option("j")
        page.get_by_role("button", name="Add alarm").click()

    add("patient", **{"For (seconds)": "3600"})
    expect(page.get_by_text("alarm registered")).to_be_visible()
    expect(page.get_by_role("row", name="patient")).to_contain_text("> 4 for 3600 s")
    add("soon", **{"For (seconds)": "0.2", "Ends at": "1"})
    row = page.get_by_role("row", name="soon").last
    expect(row).to_contain_text("> 4 for 0.2 s, until 1")
    expect(row.get_by_text("raised", exact=True)).to_be_visible()
    expect(page.get_by_role("row", name="patient").get_by_text("not raised")).to_be_visible()
    # A refusal stays to be read while the lists go on.
    add("soon")
    failure = page.get_by_text("Alarm soon is already defined")
    expect(failure).to_be_visible()
    client.gauge("heat", 2.0)
    expect(row.get_by_role("cell", name="2", exact=True)).to_be_visible()
    expect(row.get_by_text("raised", exact=True)).to_be_visible()
    expect(failure).to_be_visible()
    client.gauge("heat", 1.0)
    expect(row.get_by_text("not raised")).to_be_visible()
    # Each button is that of its own alarm, also where rows moved up.
    page.get_by_role("row", name="patient").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("row", name="patient")).to_have_count(0)
    expect(page.get_by_text("Deleted patient from j")).to_be_visible()
    page.get_by_role("row", name="soon").get_by_role("button", name="Delete").click()
    expect(page.get_by_text("There is no alarm.")).to_be_visible()
    client.close()


def test_finished_jobs_have_profiles_models_and_traces(proxy, visit):
    for size in [1, 2, 4, 8, 16]:
        finish(proxy, f"size{size}", size, work=1.5 + 2 * size)
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


def test_earlier_runs_of_a_job_are_found(proxy, visit):
    finish(proxy, "again", 1, start_ms=LONG_AGO_MS, steps=1.0)
    # After so many other jobs it is another run.
    for number in range(33):
        finish(proxy, f"other{number}", 1, command="other", steps=1.0)
    client = Client(proxy.path, "again", 2, start_ms=LONG_AGO_MS + 60_000)
    client.count("steps", 5.0)
    until(lambda: get(proxy, "/job?job=again"))
    client.close()
    until(lambda: len([run for run in get(proxy, "/profiles?runs=all") if run["jobid"] == "again"]) == 2)
    page = visit(proxy.base, "profiles.html", timezone_id=ZONE)
    rows = page.get_by_role("row", name="again")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("2023-11-16 11:30:40")
    page.get_by_label("Earlier runs").check()
    expect(rows).to_have_count(2)
    page.get_by_role("row", name="2023-11-16 11:29:40").get_by_role("link", name="again").click()
    expect(page.get_by_role("row", name="steps")).to_contain_text("1")
    expect(page.get_by_role("row", name="Size 1", exact=True)).to_be_visible()
    page.get_by_role("link", name="2023-11-16 11:30:40").click()
    expect(page.get_by_role("row", name="steps")).to_contain_text("5")
    expect(page.get_by_role("row", name="Size 2", exact=True)).to_be_visible()


def test_a_model_is_projected_and_bytes_are_shown_in_a_unit(proxy, visit):
    mebi = 1 << 20
    for size in [1, 2, 4, 8, 16]:
        finish(proxy, f"size{size}", size, written=3 * mebi * size, work=1.5 + 2 * size)
    page = visit(proxy.base, "model.html?jobid=size4&metric=written")
    expect(page.get_by_role("heading", name="written", exact=True)).to_be_visible()
    expect(page.get_by_label("Job")).to_have_value("size4")
    expect(page.get_by_label("Job").locator("option:checked")).to_have_text("size4 : solve")
    expect(read_at(page, 0)).to_have_text(f"1: model {3 * mebi}, measured {3 * mebi}")
    # As Metric Proxy's page, which calls it MB.
    page.get_by_label("Bytes as").select_option("MiB")
    expect(page.get_by_role("heading", name="written in MiB")).to_be_visible()
    expect(read_at(page, 0)).to_have_text("1: model 3, measured 3")
    expect(page.get_by_role("img", name="written by size")).to_contain_text("100")
    page.get_by_label("Bytes as").select_option("MB")
    expect(read_at(page, 0)).to_have_text("1: model 3.145728, measured 3.145728")
    page.get_by_label("Bytes as").select_option("MiB")
    expect(page.get_by_text("size 32", exact=True)).to_be_visible()
    expect(read_at(page, 0.999)).to_have_text("32: model 96")
    page.get_by_label("How far to project").fill("8")
    expect(page.get_by_text("size 128", exact=True)).to_be_visible()
    expect(read_at(page, 0.999)).to_have_text("128: model 384")
    page.get_by_label("Show the model").uncheck()
    expect(page.locator("svg path.line")).to_have_attribute("d", "")
    expect(read_at(page, 0.999)).to_have_text("16: measured 48")
    # The choice is in the address.
    page.reload()
    expect(page.get_by_role("heading", name="written in MiB")).to_be_visible()
    expect(page.get_by_text("size 128", exact=True)).to_be_visible()
    page.get_by_label("Job").select_option("size16")
    assert page.get_by_role("link", name="Extra-P's input").get_attribute("href").endswith("?jobid=size16")
    assert '"callpath":"written"' in behind(page, "Extra-P's input")


def test_a_row_of_another_command_draws_the_metric_that_it_names(proxy, visit):
    for command, names in [("./one", ("a_one", "a_two")), ("./other", ("b_one", "b_two"))]:
        for size in [1, 2, 4]:
            finish(proxy, f"{command[2:]}{size}", size, command=command, **dict.fromkeys(names, float(size)))
    page = visit(proxy.base, "model.html?jobid=one4&metric=a_one")
    expect(page.get_by_role("button", name="a_two", exact=True)).to_be_visible()
    page.get_by_label("Job").select_option("other4")
    page.get_by_role("button", name="b_two", exact=True).click()
    expect(page.get_by_role("heading", name="b_two", exact=True)).to_be_visible()
    expect(page.locator("svg circle")).to_have_count(3)


def test_large_values_that_are_almost_equal_are_drawn(proxy, visit):
    client = Client(proxy.path, "large", 1)
    client.count("work", 1e17)
    until(lambda: len(get(proxy, "/trace/plot?jobid=large&filter=work") or []) > 2)
    client.count("work", 16.0)
    until(lambda: get(proxy, "/trace/plot?jobid=large&filter=work")[-2][1] == 1e17 + 16)
    page = visit(proxy.base, "trace.html?jobid=large&filter=work")
    expect(page.get_by_role("heading", name="work", exact=True)).to_be_visible()
    expect(page.locator("svg path.line")).to_have_attribute("d", re.compile("^M.*"))
    client.close()


def test_a_trace_is_derived_and_shown_in_time(proxy, visit):
    client = Client(proxy.path, "traced", 1)
    client.count("work", 1.0)
    until(lambda: len(get(proxy, "/trace/plot?jobid=traced&filter=work") or []) > 2)
    client.count("work", 2048.0)
    until(lambda: get(proxy, "/trace/plot?jobid=traced&filter=work")[-2][1] == 2049.0)
    client.close()
    until(lambda: get(proxy, "/profiles/get?jobid=traced"))
    plot = get(proxy, "/trace/plot?jobid=traced&filter=work")
    derived = get(proxy, "/trace/plot?jobid=traced&filter=work&derivate=true")
    begin, end = plot[0][0], plot[-1][0]
    page = visit(proxy.base, "trace.html?jobid=traced&filter=work", timezone_id=ZONE)
    expect(page.get_by_role("heading", name="work", exact=True)).to_be_visible()
    expect(read_at(page, 0)).to_have_text(f"{local(begin, '%H:%M:%S')}: 1")
    expect(read_at(page, 0.999)).to_have_text(f"{local(end, '%H:%M:%S')}: 2049")
    page.get_by_label("Bytes as").select_option("KiB")
    expect(read_at(page, 0.999)).to_have_text(f"{local(end, '%H:%M:%S')}: 2.0009765625")
    page.get_by_label("Bytes as").select_option("as counted")
    page.get_by_label("Derive").check()
    expect(page.get_by_role("heading", name="work a second")).to_be_visible()
    expect(read_at(page, 0)).to_have_text(f"{local(begin, '%H:%M:%S')}: 0")
    assert max(rate for _, rate in derived) > 0
    page.get_by_label("Seconds since the start").check()
    expect(read_at(page, 0)).to_have_text("0 s: 0")
    expect(read_at(page, 0.999)).to_have_text(re.compile(rf"^{end - begin:.6g}0* s: 0$"))
    # The choice is in the address.
    page.reload()
    expect(page.get_by_role("heading", name="work a second")).to_be_visible()
    expect(page.get_by_label("Derive")).to_be_checked()
    assert json.loads(behind(page, "these samples as JSON")) == derived


def test_a_child_that_dies_is_shown_as_lost(proxy, visit, tmp_path):
    child = Proxy(tmp_path / "child", "-r", f"127.0.0.1:{proxy.port}@100")
    try:
        page = visit(proxy.base, "topology.html", clock=True, expected=[REFUSED])
        until(lambda: any(edge[1].endswith(f":{child.port}") for edge in get(proxy, "/topo")))
        page.clock.run_for(5_000)
        node = page.locator(".server").filter(has_text=f":{child.port}")
        expect(node).to_be_visible()
        expect(page.locator(".lost")).to_have_count(0)
        # It hangs below its parent.
        expect(page.locator("ul.tree > li > ul > li").filter(has=node)).to_have_count(1)
        row = page.get_by_role("row", name=f":{child.port}/job")
        expect(row).to_contain_text("Proxy")
    finally:
        child.kill()
    until(lambda: any(edge[2:] == ["lost"] for edge in get(proxy, "/topo")))
    page.clock.run_for(5_000)
    expect(page.locator(".lost")).to_have_text(re.compile(f":{child.port} lost: it does not answer$"))
    failures = int(row.get_by_role("cell").nth(4).inner_text())
    assert failures > 0
    expect(row.get_by_role("cell").nth(5)).not_to_have_text("")
    page.goto(proxy.base + "index.html")
    expect(page.get_by_text("1, 1 lost")).to_be_visible()


def test_the_documentation_names_what_there_is(tmp_path, visit, monkeypatch):
    monkeypatch.setenv("PATH", f"{CASES / 'stubs'}:/usr/bin:/bin")
    server = Proxy(tmp_path / "proxy")
    try:
        page = visit(server.base, "doc.html")
        links = page.locator("main a").evaluate_all("(links) => links.map((link) => link.getAttribute('href'))")
        assert len(links) > 15
        for link in links:
            server.connection.request("GET", f"/{link}")
            answer = server.connection.getresponse()
            assert answer.status == 200, (link, answer.read())
            answer.read()
        for name in ["/join/multiple", "/leave", "/remove", "/disconnect", "/trace/size", "/model/ftio", "COMMENT"]:
            expect(page.locator("main")).to_contain_text(name)
    finally:
        server.stop()


@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_is_wider_than_its_window(proxy, visit, width, scheme):
    long = "a_metric_with_a_very_long_name_" * 5
    clients = [Client(proxy.path, f"job-{'x' * 60}", 4, f"./{'y' * 90}", LONG_AGO_MS, run_dir=f"/home/{'z' * 90}")]
    clients[0].count(f'{long}{{kind="{"k" * 40}"}}', 1e9)
    for size in [1, 2, 4]:
        finish(proxy, f"size{size}", size, command=f"./{'y' * 90}", **{long: 3e9 * size})
    alarm = {"name": long, "target": "main", "metric": long, "operation": ">", "value": 1, "for": 30}
    proxy.connection.request("POST", "/alarms/add", json.dumps(alarm), {"Content-Type": "application/json"})
    assert proxy.connection.getresponse().read() == b'{"operation":"alarm registered","success":true}'
    page = visit(proxy.base, viewport={"width": width, "height": 900}, color_scheme=scheme)
    for name in [*(f"{page}.html" for page in PAGES), "job_view.html?profile=size4"]:
        page.goto(proxy.base + name)
        expect(page.locator("h1")).to_be_visible()
        if name.startswith(("trace", "model")):
            expect(page.get_by_role("img")).to_be_visible()
        elif name.startswith(("job", "alarms", "profiles", "topology")):
            expect(page.get_by_role("table").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        cut = "(tables) => tables.filter((table) => table.scrollWidth > table.clientWidth).length"
        assert page.locator(".wide").evaluate_all(cut) == 0, f"{name}: a table is cut off"
    for client in clients:
        client.close()
