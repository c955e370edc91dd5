"""The built-in page in a real Chromium, over a real telem.

Every page that a test opens fails the test on an error of the console, on a violation of the page's policy, and on a
request to any other origin (`chromium.py`): so nothing comes from the internet, and nothing that was recorded becomes
markup.
"""

import gzip
import json
import os
import pathlib
import random
import re
import subprocess
import time

import pyarrow.ipc
import pyarrow.parquet
import pytest
from chromium import MINUTE, PATIENCE_MS, browser, fragment, minutes_ago, needs_chromium, panel, put, sync_api, table_of, visit  # noqa: F401
from conftest import TELEM

pytestmark = needs_chromium
ASSETS = pathlib.Path(__file__).resolve().parents[2] / "server" / "src" / "page" / "assets"
HOSTILE = ["<img src=x onerror=alert(1)>", '"><script>alert(1)</script>', "{{7*7}}", "\u202eabc", "__proto__", "constructor", "x" * 1024]


def test_the_page_weighs_little(served):
    """At most 40 kB for the first view and 60 kB for all, as they are sent."""
    index = (ASSETS / "index.html").read_text()
    first = {"index.html", *re.findall(r"page/\{HASH\}/([\w.]+)", index)}

    def sent(path):
        served.connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
        response = served.connection.getresponse()
        body = response.read()
        assert (response.status, response.getheader("Content-Encoding")) == (200, "gzip"), path
        return body

    folder = re.search(r"page/\w+/", gzip.decompress(sent("/")).decode())[0]
    weigh = lambda names: sum(len(sent("/" if name == "index.html" else f"/{folder}{name}")) for name in names)
    every = {path.name for path in ASSETS.iterdir()}
    assert first < every
    assert weigh(first) <= 40_000, weigh(first)
    assert weigh(every) <= 60_000, weigh(every)
    # What the first view needs is named in the document, so that no chain of imports delays it.
    needed = {"app.js"}
    while True:
        more = {name for one in needed for name in re.findall(r'from "\./([\w.]+)"', (ASSETS / one).read_text())} | needed
        if more == needed:
            break
        needed = more
    assert needed <= first, needed - first


def test_the_numbers_of_a_panel_equal_those_of_sql(served, visit):
    begin = minutes_ago(30)
    draw = random.Random(7)
    values = [round(draw.uniform(0, 9), 3) for _ in range(600)]
    values[300] = 1000.0
    values[400:430] = [None] * 30
    put(served, "loss", values, begin)
    page = visit(served.address, fragment("metrics", **{"from": begin, "to": begin + 10 * MINUTE, "m": "avg:loss"}))
    shown = table_of(page, "loss")
    step = min(b - a for a, b in zip(sorted(shown["loss"]), sorted(shown["loss"])[1:]))
    rows = served.sql(
        f"SELECT CAST(ts AS BIGINT) / {step * 1000} * {step} AS at, avg(value) AS mean, min(value) AS least, max(value) AS most "
        f"FROM loss WHERE ts >= to_timestamp_millis({begin}) AND ts < to_timestamp_millis({begin + 10 * MINUTE}) GROUP BY at"
    )
    assert {row["at"] for row in rows} == set(shown["loss"])
    for row in rows:
        for column, name in (("loss", "mean"), ("least", "least"), ("greatest", "most")):
            if column in shown:
                assert shown[column][row["at"]] == pytest.approx(row[name], rel=1e-6), row
    # A spike of one sample is there, and a gap is a gap.
    assert max(shown.get("greatest", shown["loss"]).values()) == 1000.0
    assert not any(begin + 402_000 <= at < begin + 428_000 for at in shown["loss"])


def test_a_rate_by_host_equals_that_of_sql(served, visit):
    begin = minutes_ago(20)
    for host, rise in (("n1", 3), ("n2", 7)):
        put(served, "work_total", [i * rise for i in range(300)], begin, host=host)
    link = fragment("metrics", **{"from": begin, "to": begin + 5 * MINUTE, "m": "sum:rate:work_total{host=*}"})
    page = visit(served.address, link)
    shown = table_of(page, "work_total")
    for host, rise in (("n1", 3), ("n2", 7)):
        assert shown[host], shown
        assert all(value == pytest.approx(rise) for value in shown[host].values())


def test_names_of_any_kind_are_text(served, visit):
    begin = minutes_ago(10)
    # Line protocol takes any character, so it is what brings such names.
    plain = lambda name: re.sub(r"([,= ])", r"\\\1", name)
    lines = [
        f"{plain(metric)},who={plain(who)},host={plain(who)} value={place} {begin + i * 1000}"
        for metric in ("evil", "__proto__", HOSTILE[0])
        for place, who in enumerate(HOSTILE)
        for i in range(60)
    ]
    served.post("/write?precision=ms", "\n".join(lines))
    links = ["avg:evil{who=*}", "avg:__proto__", "avg:%3Cimg%20src%253Dx%20onerror%253Dalert(1)%3E"]
    page = visit(served.address, f"#/metrics?from={begin}&to={begin + MINUTE}" + "".join(f"&m={m}" for m in links))
    entries = panel(page, "evil").locator(".legend li")
    sync_api.expect(entries).to_have_count(len(HOSTILE))
    for name in HOSTILE[:-1]:
        assert name in entries.all_text_contents()
    shown = table_of(page, "evil")
    for place, name in enumerate(HOSTILE[:-1]):
        assert set(shown[name].values()) == {place}
    assert set(table_of(page, "__proto__")["__proto__"].values()) == {(len(HOSTILE) - 1) / 2}
    sync_api.expect(panel(page, HOSTILE[0]).locator(".meta")).to_contain_text("·")
    for view in ("", "nodes?metric=evil&", "telem?"):
        page.goto(f"http://{served.address}/#/{view}from={begin}&to={begin + MINUTE}")
        page.locator("nav a[aria-current]").wait_for()
        if "evil" in view:
            sync_api.expect(page.locator(".sides tbody tr")).to_have_count(len(HOSTILE))
            page.get_by_role("link", name=HOSTILE[0], exact=True).click()
            sync_api.expect(page.get_by_role("heading", level=1)).to_have_text(HOSTILE[0])
            sync_api.expect(panel(page, "evil").locator(".meta")).to_contain_text("·")
    page.goto(f"http://{served.address}/#/sql?q=SELECT DISTINCT who, '<b>' AS \"<i>\" FROM evil")
    sync_api.expect(page.locator(".virtual tbody tr")).to_have_count(len(HOSTILE))
    sync_api.expect(page.locator(".virtual tbody")).to_contain_text(HOSTILE[0])
    assert page.locator("main img, main script, main b, main table i").count() == 0


def test_any_state_survives_its_link(served, visit):
    seed = int(os.environ.get("SEED") or random.randrange(2**32))
    print(f"SEED={seed}")
    draw = random.Random(seed)
    word = lambda: "".join(draw.choice("aZ0_.-/%:{},+=&#|*? \t\u00e4\u4e2d\U0001f600<>\"'\\") for _ in range(draw.randint(1, 12)))

    def one_panel():
        queries = []
        for _ in range(draw.randint(1, 3)):
            keys = list({word() for _ in range(draw.randint(0, 3))})
            split = draw.randint(0, len(keys))
            queries.append({
                "metric": word(), "function": draw.choice(["avg", "sum", "min", "max"]), "rate": draw.random() < 0.5,
                "by": keys[:split], "where": {key: word() for key in keys[split:]},
            })
        below = word() if draw.random() < 0.3 else ""
        return {"queries": queries, "log": draw.random() < 0.5, "smooth": draw.randint(0, 100), "since": draw.random() < 0.5, "x": below}

    def state():
        view = draw.choice(["job", "metrics", "nodes", "node", "compare", "sql", "telem"])
        one = {"view": view}
        if view == "node":
            one["node"] = word()
        if draw.random() < 0.5:
            one["from"] = draw.randint(0, 2**41)
            one["to"] = one["from"] + draw.randint(1, 2**40)
        elif draw.random() < 0.7:
            one["last"] = draw.choice(["all", "15m", "100ms", "7d"])
        if draw.random() < 0.5:
            one["tz"] = "utc"
        if draw.random() < 0.7:
            one["m"] = [one_panel() for _ in range(draw.randint(1, 4))]
        if draw.random() < 0.5:
            one["off"] = [word() for _ in range(draw.randint(1, 3))]
        for name in ("metric", "find", "a", "b", "q"):
            if draw.random() < 0.4:
                one[name] = word()
        if draw.random() < 0.3:
            one["order"] = draw.choice(["deviation", "name", "mean", "max", "last"])
        return one

    page = visit(served.address)
    states = [state() for _ in range(300)]
    returned = page.evaluate(
        """async (states) => {
            const base = document.querySelector('link[rel=modulepreload]').href.replace(/[^/]*$/, '');
            const { encode, decode } = await import(base + 'state.js');
            return states.map((one) => decode(new URL(encode(one), 'http://x/').hash));
        }""",
        states,
    )
    for sent, back in zip(states, returned):
        assert back == sent


def test_a_straggler_among_many_hosts_is_the_first_row(served, visit):
    begin = minutes_ago(15)
    draw = random.Random(3)
    samples = []
    for host in range(1000):
        for i in range(12):
            value = 0.8 + draw.gauss(0, 0.02) + (0.3 if host == 617 and i > 5 else 0)
            samples.append({"metric": "step_seconds", "timestamp": begin + i * 10_000, "value": value, "tags": {"host": f"nid{host:05}"}})
    for at in range(0, len(samples), 4000):
        served.put(samples[at : at + 4000], "?sync")
    page = visit(served.address, fragment("nodes", **{"from": begin, "to": begin + 2 * MINUTE, "metric": "step_seconds"}))
    rows = page.locator(".sides tbody tr")
    sync_api.expect(rows).to_have_count(1000)
    assert rows.first.locator("th").inner_text() == "nid00617"
    page.get_by_label("Order", exact=True).select_option("name")
    sync_api.expect(rows.first.locator("th")).to_have_text("nid00000")
    rows.nth(617).get_by_role("link").click()
    sync_api.expect(page.get_by_role("heading", name="nid00617")).to_be_visible()
    assert set(table_of(page, "step_seconds")["step_seconds"]) <= set(range(begin, begin + 2 * MINUTE))


def test_a_heat_map_of_columns_shorter_than_the_time_between_samples_has_no_stripes(served, visit):
    page = visit(served.address)
    # A sample in every second column, and a hole of nine.
    row = ([7, 0] * 20 + [0] * 8 + [9, 0] * 20) * 2
    reach, shown = page.evaluate(
        """async ([cells, columns]) => {
            const base = document.querySelector('link[rel=modulepreload]').href.replace(/[^/]*$/, '');
            const { reachOf, shownAt } = await import(base + 'heat.js');
            const reach = reachOf(cells, columns);
            return [reach, cells.map((_, at) => shownAt(cells, at - at % columns, at % columns, reach))];
        }""",
        [row, len(row) // 2],
    )
    assert reach == 2
    assert shown == ([7] * 40 + [0] * 8 + [9] * 40) * 2


def test_a_drag_zooms_and_back_returns(served, visit):
    begin = minutes_ago(30)
    put(served, "loss", [float(i) for i in range(600)], begin)
    link = fragment("metrics", **{"from": begin, "to": begin + 10 * MINUTE, "m": "avg:loss"})
    page = visit(served.address, link)
    area = panel(page, "loss").locator(".area")
    sync_api.expect(panel(page, "loss").locator(".meta")).to_contain_text("steps")
    whole = page.evaluate("location.hash")

    def drag():
        box = area.bounding_box()
        y = box["y"] + 60
        page.mouse.move(box["x"] + box["width"] * 0.4, y)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.5, y)
        page.mouse.move(box["x"] + box["width"] * 0.6, y)
        page.mouse.up()

    for back in ("Escape", "dblclick", "history"):
        drag()
        page.wait_for_url(lambda url: whole not in url)
        start, end = (int(re.search(rf"{name}=(\d+)", page.url)[1]) for name in ("from", "to"))
        assert begin + 3 * MINUTE < start < begin + 5 * MINUTE < end < begin + 7 * MINUTE
        if back == "Escape":
            page.keyboard.press("Escape")
        elif back == "dblclick":
            area.dblclick(position={"x": 200, "y": 60})
        else:
            page.go_back()
        page.wait_for_url(lambda url: url.endswith(whole))


def test_a_zoom_is_seen_before_its_answer_is_there(served, visit):
    begin = minutes_ago(30)
    put(served, "loss", [float(i % 50) for i in range(600)], begin)
    page = visit(served.address, fragment("metrics", **{"from": begin, "to": begin + 10 * MINUTE, "m": "avg:loss"}))
    one = panel(page, "loss")
    sync_api.expect(one.locator(".meta")).to_contain_text("·")
    picture = lambda: one.locator("canvas.plot").evaluate("(canvas) => canvas.toDataURL()")
    whole, held = picture(), []
    page.route("**/api/panels", lambda route: held.append(route))
    box = one.locator(".area").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 60, steps=2)
    with page.expect_request("**/api/panels"):
        page.mouse.up()
    sync_api.expect(one).to_have_class(re.compile("waiting"))
    stretched = picture()
    assert stretched != whole
    for route in held:
        route.continue_()
    sync_api.expect(one).not_to_have_class(re.compile("waiting"))
    assert picture() not in (whole, stretched)


def test_the_brush_on_the_ruler_chooses_moves_and_widens_the_range(served, visit):
    begin = minutes_ago(30)
    put(served, "loss", [float(i) for i in range(600)], begin)
    page = visit(served.address, "#/?last=all")
    brush = page.get_by_role("slider")
    sync_api.expect(panel(page, "loss").locator(".meta")).to_contain_text("·")
    sync_api.expect(brush).to_have_attribute("aria-valuetext", re.compile("to"))
    box = brush.bounding_box()
    # The recording lies between the margins of the ruler.
    left, wide, y = box["x"] + 12, box["width"] - 24, box["y"] + 15

    def drag(start, end):
        before = page.url
        page.mouse.move(left + wide * start, y)
        page.mouse.down()
        page.mouse.move(left + wide * (start + end) / 2, y)
        page.mouse.move(left + wide * end, y)
        page.mouse.up()
        page.wait_for_url(lambda url: url != before)
        return [int(re.search(rf"{name}=(\d+)", page.url)[1]) for name in ("from", "to")]

    whole = int(time.time() * 1000) - begin
    share = lambda at: (at - begin) / whole
    start, end = drag(0.2, 0.4)
    assert share(start) == pytest.approx(0.2, abs=0.02) and share(end) == pytest.approx(0.4, abs=0.02)
    moved = drag(0.3, 0.5)
    assert [share(at) for at in moved] == pytest.approx([0.4, 0.6], abs=0.02)
    assert moved[1] - moved[0] == pytest.approx(end - start, abs=2)
    widened = drag(share(moved[1]), 0.8)
    assert [share(at) for at in widened] == pytest.approx([0.4, 0.8], abs=0.02)
    brush.focus()
    page.keyboard.press("ArrowLeft")
    page.wait_for_url(lambda url: str(widened[0]) not in url)
    page.keyboard.press("Escape")
    page.wait_for_url(lambda url: str(widened[0]) in url)


def test_the_keyboard_alone_zooms_and_moves_between_views(served, visit):
    begin = minutes_ago(30)
    put(served, "loss", [float(i) for i in range(600)], begin)
    page = visit(served.address, fragment("metrics", **{"from": begin, "to": begin + 10 * MINUTE, "m": "avg:loss"}))
    sync_api.expect(panel(page, "loss").locator(".meta")).to_contain_text("steps")
    whole = page.evaluate("location.hash")
    panel(page, "loss").locator(".area").focus()
    page.keyboard.press("ArrowRight")
    sync_api.expect(panel(page, "loss").locator(".tip")).to_be_visible()
    for _ in range(5):
        page.keyboard.press("Shift+PageDown")
    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: whole not in url)
    page.keyboard.press("Escape")
    page.wait_for_url(lambda url: url.endswith(whole))
    page.keyboard.press("3")
    sync_api.expect(page.get_by_role("heading", name="Nodes", exact=True)).to_be_visible()
    page.keyboard.press("?")
    sync_api.expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    sync_api.expect(page.get_by_role("dialog")).to_have_count(0)


def test_the_tooltip_has_the_nearest_line_first_and_all_panels_follow_the_cursor(served, visit):
    begin = minutes_ago(20)
    for host, value in (("n1", 1.0), ("n2", 5.0), ("n3", 9.0)):
        put(served, "temp", [value] * 120, begin, host=host)
        put(served, "fan", [value] * 120, begin, host=host)
    link = fragment("metrics", **{"from": begin, "to": begin + 2 * MINUTE, "m": "avg:temp{host=*}"}) + "&m=avg:fan{host=*}"
    page = visit(served.address, link)
    over, other = panel(page, "temp"), panel(page, "fan")
    for one in (over, other):
        sync_api.expect(one.locator(".meta")).to_contain_text("·")
    painted = """(canvas) => canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.some((byte) => byte > 0)"""
    assert not other.locator("canvas.over").evaluate(painted)
    box = over.locator(".area").bounding_box()
    # Zero is below, and the greatest above.
    for part, order in ((0.12, ["n3", "n2", "n1"]), (0.75, ["n1", "n2", "n3"])):
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] * part)
        sync_api.expect(over.locator(".tip tr th")).to_have_text(order)
    sync_api.expect(over.locator(".tip tr td").first).to_have_text("1")
    sync_api.expect(other.locator(".tip")).to_be_hidden()
    assert other.locator("canvas.over").evaluate(painted)


def test_a_panel_over_another_metric_has_the_values_of_the_same_time(served, visit):
    begin = minutes_ago(30)
    steps = [float(i * 10) for i in range(120)]
    losses = [round(3.0 / (i + 1), 4) for i in range(120)]
    for host, more in (("n1", 0.0), ("n2", 1.0)):
        put(served, "step", [step + more for step in steps], begin, host=host)
        put(served, "loss", [loss + more for loss in losses], begin, host=host)
    page = visit(served.address, fragment("metrics", **{"from": begin, "to": begin + 2 * MINUTE, "m": "avg:loss{host=*}"}))
    one = panel(page, "loss")
    sync_api.expect(one.locator(".meta")).to_contain_text("by host")
    one.get_by_label("What stands below", exact=True).select_option(label="over step")
    sync_api.expect(one.locator(".meta")).to_contain_text("over step")
    assert "x=step" in page.url
    box = one.locator(".area").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    sync_api.expect(one.locator(".tip b")).to_contain_text(re.compile(r"^step \d+"))
    # It is no time that one could zoom to.
    whole = page.url
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + box["height"] / 2)
    page.mouse.up()
    assert page.url == whole
    shown = table_of(page, "loss")
    rows = served.sql(f"SELECT CAST(ts AS BIGINT) / 1000 AS at, host, step, loss FROM loss WHERE ts >= to_timestamp_millis({begin})")
    assert len(rows) == 240
    for row in rows:
        assert shown[row["host"]][row["at"]] == pytest.approx(row["loss"]), row
        assert shown[f"step of {row['host']}"][row["at"]] == row["step"]
    # The time since the job began is another way to count.
    one.get_by_label("What stands below", exact=True).select_option("since")
    sync_api.expect(one.locator(".meta")).to_contain_text("time since the job began")
    assert "x=step" not in page.url


def test_notes_stand_at_their_time_on_every_panel_and_in_a_list(served, visit):
    begin = minutes_ago(10)
    put(served, "loss", [1.0] * 120, begin)
    told = {"Content-Type": "application/json"}
    hostile = "<img src=x onerror=alert(1)>"
    notes = [{"startTime": begin // 1000 + 60, "description": f"halved {hostile}", "custom": {"epoch": "3"}},
             {"startTime": begin // 1000 + 90, "description": "checkpoint"}]
    for note in notes:
        served.post("/api/annotation", json.dumps(note), told)
    page = visit(served.address, fragment("", **{"from": begin, "to": begin + 2 * MINUTE}))
    rows = page.locator("section", has=page.get_by_role("heading", name="Notes")).locator("tbody tr")
    sync_api.expect(rows.locator("td")).to_have_text(["checkpoint", f"halved {hostile} · epoch = 3"])
    one = panel(page, "loss")
    sync_api.expect(one.locator(".meta")).to_contain_text("·")
    box = one.locator(".area").bounding_box()
    # The plot begins behind the numbers of its axis and ends before the edge.
    page.mouse.move(box["x"] + 50 + (box["width"] - 58) / 2, box["y"] + box["height"] / 2)
    sync_api.expect(one.locator(".tip .note")).to_have_text(f"halved {hostile} · epoch = 3")
    page.mouse.move(box["x"] + 50 + (box["width"] - 58) / 4, box["y"] + box["height"] / 2)
    sync_api.expect(one.locator(".tip .note")).to_have_count(0)
    assert page.locator("main img").count() == 0
    # A click shows the time around it.
    rows.nth(1).get_by_role("link").click()
    page.wait_for_url(lambda url: f"from={begin}" not in url)
    start, end = (int(re.search(rf"{name}=(\d+)", page.url)[1]) for name in ("from", "to"))
    assert start < begin + MINUTE < end


def test_what_is_light_is_asked_for_first_and_the_ruler_after_it(served, visit):
    begin = minutes_ago(10)
    for metric, hosts in (("a_heavy", 30), ("b_light", 1), ("c_middle", 5)):
        for host in range(hosts):
            put(served, metric, [1.0, 2.0], begin, host=f"n{host}")
    page = visit(served.address, fragment("", **{"from": begin, "to": begin + MINUTE}))
    page.wait_for_load_state("networkidle")
    asked = []
    page.on("request", lambda request: "/api/" in request.url and asked.append(request))
    page.reload()
    page.wait_for_load_state("networkidle")
    names = [request.url.split("/api/")[1].split("?")[0] for request in asked]
    assert names[:2] == ["page", "panels"] and names.count("page") == 1 and "annotations" in names, names
    metrics = lambda request: [one["metric"] for one in json.loads(request.post_data)["panels"]]
    assert metrics(asked[1])[:3] == ["b_light", "c_middle", "a_heavy"]
    whole = [request for request in asked[2:] if "panels" in request.url and json.loads(request.post_data)["columns"] == 300]
    assert len(whole) == 1


def test_the_legend_hides_and_shows_alone(served, visit):
    begin = minutes_ago(20)
    for host in ("n1", "n2", "n3"):
        put(served, "temp", [1.0] * 120, begin, host=host)
    page = visit(served.address, fragment("metrics", **{"from": begin, "to": begin + 2 * MINUTE, "m": "avg:temp{host=*}"}))
    entry = lambda name: panel(page, "temp").get_by_role("button", name=name, exact=True)
    entry("n2").click()
    sync_api.expect(entry("n2")).to_have_attribute("aria-pressed", "false")
    assert set(table_of(page, "temp")) & {"n1", "n2", "n3"} == {"n1", "n3"}
    entry("n1").click(modifiers=["Control"])
    for name, shown in (("n1", "true"), ("n2", "false"), ("n3", "false")):
        sync_api.expect(entry(name)).to_have_attribute("aria-pressed", shown)
    assert "off=n2" in page.url


def test_a_sample_that_is_put_appears(served, visit):
    now = lambda: int(time.time() * 1000)
    put(served, "loss", [1.0], now())
    page = visit(served.address, fragment("metrics", last="1m", m="avg:loss"))
    one = panel(page, "loss")
    one.get_by_role("button", name="Show as table").click()
    sync_api.expect(one.locator("tbody")).to_contain_text("1")
    put(served, "loss", [4711.0], now())
    sync_api.expect(one.locator("tbody")).to_contain_text("4711")


def test_a_server_that_goes_and_comes_back_is_told_of(serve, visit, tmp_path):
    first = serve(tmp_path / "db")
    begin = minutes_ago(5)
    put(first, "loss", [1.0] * 60, begin)
    gone = ("ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE", "ERR_INCOMPLETE_CHUNKED_ENCODING")
    page = visit(first.address, expected=gone)
    sync_api.expect(panel(page, "loss").locator(".meta")).to_contain_text("·")
    first.stop()
    sync_api.expect(page.locator("#notice")).to_contain_text("has not answered since")
    second = serve(tmp_path / "db", "--listen", first.address)
    sync_api.expect(page.locator("#notice")).not_to_contain_text("has not answered", timeout=PATIENCE_MS)
    assert second.address == first.address
    sync_api.expect(panel(page, "loss").locator(".meta")).to_contain_text("·")


def test_a_stranger_gets_the_shell_and_a_field_for_the_token(serve, visit, tmp_path):
    server = serve(tmp_path / "db", "--require-token")
    token = json.loads(pathlib.Path(server.connection_file).read_text())["token"]
    page = visit(server.address, expected=("401",))
    field = page.get_by_label("Token", exact=True)
    sync_api.expect(field).to_be_visible()
    assert page.locator("article.panel").count() == 0
    field.fill("wrong")
    page.get_by_role("button", name="Open", exact=True).click()
    sync_api.expect(page.get_by_text("was refused")).to_be_visible()
    page.get_by_label("Token", exact=True).fill(token)
    page.get_by_role("button", name="Open", exact=True).click()
    sync_api.expect(page.locator("h1")).to_be_visible()
    # A link with the token opens at once, and the token leaves the address.
    page = visit(server.address, f"#token={token}")
    sync_api.expect(page.locator("h1")).to_be_visible()
    assert token not in page.url
    assert token not in page.evaluate("document.cookie + history.state?.toString()")


def test_sql_shows_rows_and_errors_where_they_stand(served, visit):
    begin = minutes_ago(10)
    put(served, "loss", [0.5, 0.25], begin)
    page = visit(served.address, "#/sql", expected=("400",))
    page.get_by_label("SQL", exact=True).fill("SELECT value FROM loss ORDER BY ts")
    page.get_by_role("button", name="Run", exact=True).click()
    sync_api.expect(page.locator(".virtual tbody tr")).to_have_text(["0.5", "0.25"])
    read = {
        "CSV": lambda path: [float(line) for line in path.read_text().split()[1:]],
        "Arrow": lambda path: pyarrow.ipc.open_stream(path.read_bytes()).read_all()["value"].to_pylist(),
        "Parquet": lambda path: pyarrow.parquet.read_table(path)["value"].to_pylist(),
    }
    for name, values in read.items():
        with page.expect_download() as download:
            page.get_by_role("button", name=name, exact=True).click()
        assert values(pathlib.Path(download.value.path())) == [0.5, 0.25], name
    page.get_by_label("SQL", exact=True).fill("SELECT nonsense FROM loss")
    page.get_by_role("button", name="Run", exact=True).click()
    sync_api.expect(page.get_by_role("alert")).to_contain_text("nonsense")
    # The rows of another question are not its answer.
    sync_api.expect(page.locator(".virtual")).to_have_count(0)


def test_two_times_compare_with_what_changed_first(served, visit):
    begin = minutes_ago(30)
    put(served, "same", [5.0] * 600, begin)
    put(served, "changed", [1.0] * 300 + [3.0] * 300, begin)
    half = begin + 5 * MINUTE
    page = visit(served.address, fragment("compare", a=f"{begin}..{half}", b=f"{half}..{begin + 10 * MINUTE}"))
    rows = page.locator("tbody tr")
    sync_api.expect(rows.first.locator("th")).to_have_text("changed")
    assert rows.first.locator("td").all_text_contents()[:3] == ["1", "3", "+200 %"]
    # The picture has its numbers, too.
    one = page.locator("article.panel")
    one.get_by_role("button", name="Show as table").click()
    cells = [row.locator("td").all_text_contents() for row in one.locator("tbody tr").all()]
    assert len(cells) > 100 and {tuple(row) for row in cells} <= {("1", "3"), ("1", ""), ("", "3"), ("", "")} and ["1", "3"] in cells
    one.get_by_role("button", name="Show as chart").click()
    sync_api.expect(one.locator("canvas")).to_be_visible()


def test_compare_takes_nan_for_no_sample_and_tags_of_any_name(served, visit):
    begin = minutes_ago(30)
    nan = [[1.0, "NaN"][i % 2] for i in range(300)] + [[3.0, "NaN"][i % 2] for i in range(300)]
    lines = [f"put changed {begin // 1000 + i} {value} b=1 v=2" for i, value in enumerate(nan)]
    lines += [f"put grown {begin // 1000 + i} {[1.0, 'inf'][i >= 300]} b=1" for i in range(600)]
    subprocess.run([TELEM, "put", "-", "--url", f"http://{served.address}"], input="\n".join(lines), text=True, check=True)
    half = begin + 5 * MINUTE
    page = visit(served.address, fragment("compare", a=f"{begin}..{half}", b=f"{half}..{begin + 10 * MINUTE}"))
    rows = page.locator("tbody tr")
    sync_api.expect(rows.first.locator("th")).to_have_text("changed")
    assert rows.first.locator("td").all_text_contents()[:3] == ["1", "3", "+200 %"]
    assert rows.nth(1).locator("td").all_text_contents()[:3] == ["1", "–", "–"]
    sync_api.expect(page.locator("article.panel")).to_be_visible()
    one = page.locator("article.panel")
    one.get_by_role("button", name="Show as table").click()
    cells = [row.locator("td").all_text_contents() for row in one.locator("tbody tr").all()]
    assert ["1", "3"] in cells


def test_numbers_on_an_axis_have_the_prefix_of_their_unit(served, visit):
    page = visit(served.address)
    ask = """async ([file, call, args]) => {
        const from = new URL(file, document.querySelector("script[src]").src);
        return (await import(from))[call](...args).ticks.map(({ text }) => text);
    }"""
    ticks = lambda file, call, *args: page.evaluate(ask, [file, call, args])
    assert ticks("units.js", "valueTicks", 7e9, 13e9, 3, "bytes") == ["8G", "10G", "12G"]
    assert ticks("units.js", "valueTicks", 0, 2.5e6, 3, "bytes", True) == ["0", "1M", "2M"]
    assert ticks("units.js", "valueTicks", 0, 6e4, 3, "") == ["0", "20k", "40k", "60k"]
    assert ticks("units.js", "valueTicks", 0, 14400, 2, "seconds") == ["0", "2 h", "4 h"]
    assert ticks("units.js", "valueTicks", 0, 100, 2, "percent") == ["0", "50", "100"]
    assert ticks("units.js", "valueTicks", 0, 2e307, 2, "") == ["0", "1e+307", "2e+307"]
    assert ticks("units.js", "valueTicks", 0, 2e-300, 2, "") == ["0", "1e-300", "2e-300"]
    year = 365 * 24 * 3600 * 1000
    assert len(ticks("time.js", "timeTicks", 0, 56 * year, 10, True)) <= 11
    assert page.evaluate("""async () => {
        const units = await import(new URL("units.js", document.querySelector("script[src]").src));
        return [3e23, 12.5e9].map((value) => units.amount(value, "bytes"));
    }""") == ["3.000e+23 B", "12.5 GB"]


def test_two_nodes_compare_and_few_samples_of_a_counter_have_a_course(served, visit):
    begin = minutes_ago(30)
    for host, rise in (("n1", 2.0), ("n2", 6.0)):
        put(served, "work_total", [i * rise for i in range(60)], begin, step=5000, host=host)
        put(served, "same", [4.0] * 60, begin, step=5000, host=host)
    link = fragment("compare", **{"from": begin, "to": begin + 5 * MINUTE, "a": "node:n1", "b": "node:n2"})
    page = visit(served.address, link)
    rows = page.locator("tbody tr")
    sync_api.expect(rows.first.locator("th")).to_have_text("work_total")
    assert rows.first.locator("td").all_text_contents()[:3] == ["0.4 /s", "1.2 /s", "+200 %"]
    one = page.locator("article.panel")
    one.get_by_role("button", name="Show as table").click()
    cells = [row.locator("td").all_text_contents() for row in one.locator("tbody tr").all()]
    full = [(float(a), float(b)) for a, b in cells if a and b]
    assert len(full) > len(cells) / 2 and all((a, b) == pytest.approx((0.4, 1.2)) for a, b in full), cells


def test_all_views_open_in_either_theme(served, visit):
    begin = minutes_ago(3)
    put(served, "loss", [1.0] * 120, begin)
    for scheme in ("light", "dark"):
        page = visit(served.address, color_scheme=scheme)
        for name in ("Metrics", "Nodes", "Compare", "SQL", "telem"):
            page.get_by_role("navigation").get_by_role("link", name=name, exact=True).click()
            sync_api.expect(page.get_by_role("heading", level=1)).to_contain_text(name)
    page.set_viewport_size({"width": 360, "height": 700})
    page.goto(f"http://{served.address}/#/")
    sync_api.expect(panel(page, "loss")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    for name in ("Metrics", "Nodes", "Compare", "SQL", "telem", "Jobs", "Alarms", "Profiles"):
        page.get_by_role("navigation").get_by_role("link", name=name, exact=True).click()
        sync_api.expect(page.get_by_role("heading", level=1)).to_contain_text(name)
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, name
