"""Jobs on the built-in page, in a real Chromium: replayed, over several nodes of which one dies, compared, and examples.
What the page shows is compared with what SQL says."""

import json
import os
import pathlib
import re
import subprocess
import sys
import time
from urllib.parse import quote

import pytest
import test_proxy_pages
from chromium import MINUTE, PATIENCE_MS, browser, fragment, minutes_ago, needs_chromium, panel, put, sync_api, table_of, visit  # noqa: F401

pytestmark = needs_chromium
EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"


def by_host(server, metric, step, begin, end):
    """{host: {ms: average}}, as SQL says."""
    rows = server.sql(
        f"SELECT host, CAST(ts AS BIGINT) / {step * 1000} * {step} AS at, avg(value) AS mean FROM \"{metric}\" "
        f"WHERE ts >= to_timestamp_millis({begin}) AND ts < to_timestamp_millis({end}) GROUP BY host, at"
    )
    found = {}
    for row in rows:
        found.setdefault(row["host"], {})[row["at"]] = row["mean"]
    return found


def assert_shown(page, server, metric, begin, end, hosts):
    shown = table_of(page, metric)
    shown = {host: shown[host] for host in hosts}
    times = sorted({at for column in shown.values() for at in column})
    step = min(b - a for a, b in zip(times, times[1:]))
    wanted = by_host(server, metric, step, begin, end)
    assert set(wanted) == set(hosts)
    for host in hosts:
        assert set(shown[host]) == set(wanted[host]), host
        for at, mean in wanted[host].items():
            assert shown[host][at] == pytest.approx(mean, rel=1e-6), (host, at)


def test_numbers_of_a_replay_equal_those_of_sql(serve, replay, visit, tmp_path):
    begin, end = minutes_ago(10), minutes_ago(0)
    live = serve(tmp_path / "db")
    for number, host in enumerate(("n1", "n2", "n3")):
        put(live, "load", [((i * 7 + number * 13) % 101) / 3 for i in range(300)], begin, host=host)
    live.stop()
    saved = replay(tmp_path / "db")
    page = visit(saved.address, fragment("metrics", **{"from": begin, "to": end, "m": "avg:load{host=*}"}))
    assert_shown(page, saved, "load", begin, end, ["n1", "n2", "n3"])
    # Nothing goes on in what was saved.
    sync_api.expect(page.locator(".live")).to_be_hidden()


def test_over_a_head_the_agent_that_was_killed_is_named_and_all_others_equal_sql(server, visit, tmp_path):
    begin, end = minutes_ago(10), minutes_ago(4)
    join = tmp_path / "join"
    head = server("serve", "--level", "1", "--job", "7", "--node", "head", "--data", tmp_path / "head", "--join-file", join)
    agents = {name: server("node", "--node", name, "--data", tmp_path / name, "--join", join) for name in ("n1", "n2", "n3")}
    for number, (name, agent) in enumerate(agents.items()):
        put(agent, "load", [((i * 7 + number * 13) % 101) / 3 for i in range(300)], begin, host=name)

    def hosts():
        return sorted(by_host(head, "load", MINUTE, begin, end))

    wait_until(lambda: "load" in {row["metric"] for row in head.sql("SELECT metric FROM metrics")} and hosts() == ["n1", "n2", "n3"])
    link = fragment("metrics", **{"from": begin, "to": end, "m": "avg:load{host=*}"}) + "&m=avg:load&m=sum:rate:load{host=*}"
    page = visit(head.address, link)
    assert_shown(page, head, "load", begin, end, ["n1", "n2", "n3"])
    sync_api.expect(page.get_by_text("did not answer")).to_have_count(0)
    agents["n2"].kill()
    wait_until(lambda: hosts() == ["n1", "n3"])
    page.reload()
    # Every panel says so, and none of them waits for ever.
    sync_api.expect(page.locator("article.panel .amber", has_text="n2")).to_have_count(3)
    sync_api.expect(page.locator("article.panel.waiting")).to_have_count(0)
    assert_shown(page, head, "load", begin, end, ["n1", "n3"])
    page.goto(f"http://{head.address}/#/")
    sync_api.expect(page.locator(".facts .amber")).to_contain_text("n2")
    page.goto(f"http://{head.address}/" + fragment("nodes", **{"from": begin, "to": end, "metric": "load"}))
    sync_api.expect(page.locator(".sides tbody tr")).to_have_count(2)
    sync_api.expect(page.locator("main .meta .amber")).to_contain_text("n2")
    page.goto(f"http://{head.address}/" + fragment("compare", a=f"{begin}..{end}", b=f"{begin}..{end}"))
    sync_api.expect(page.locator("main .word .amber")).to_contain_text("n2")


def wait_until(is_so, patience_s=PATIENCE_MS / 1000):
    """What others do is looked at until it was done, or there is no more time."""
    until = time.monotonic() + patience_s
    while not is_so():
        assert time.monotonic() < until, "not in time"


def imported(telem, folder, name, loss, hosts=("n1",)):
    """A saved run of a minute, at the time and on the hosts of every other one."""
    path = folder / f"{name}.csv"
    rows = [f"2026-01-05T10:00:{i:02}Z,{host},{loss},{i % 7}" for i in range(60) for host in hosts]
    path.write_text("\n".join(["ts,host,loss,same", *rows]) + "\n")
    telem("import", path, "--save", folder / name)
    return folder / name


def test_two_saved_runs_of_the_same_hosts_and_times_are_compared(telem, replay, visit, tmp_path):
    runs = [imported(telem, tmp_path, "a", 1.0), imported(telem, tmp_path, "b", 3.0)]
    saved = replay(*runs)
    jobs = [job["id"] for job in json.loads(get(saved, "/api/page"))["jobs"]]
    assert len(jobs) == 2
    page = visit(saved.address, "#/compare")
    rows = page.locator("tbody tr")
    sync_api.expect(rows).to_have_count(2)
    assert rows.first.locator("th").inner_text() == "loss"
    means = sorted(float(text) for text in rows.first.locator("td").all_text_contents()[:2])
    assert means == [1.0, 3.0]
    assert [rows.nth(1).locator("th").inner_text(), rows.nth(1).locator("td").nth(2).inner_text()] == ["same", "0 %"]
    sync_api.expect(page.locator("article.panel h3")).to_have_text("loss")
    # A panel tells them apart by their job, too; without it the later one stands for both.
    link = "#/metrics?m=avg:loss{job=*}" + "".join(f"&m=max:loss{{job={job}}}" for job in jobs)
    page.goto(f"http://{saved.address}/{link}")
    sync_api.expect(page.get_by_role("heading", level=1)).to_have_text("Metrics")
    shown = table_of(page, "loss")
    assert {job: set(shown[job].values()) for job in jobs} == {"a": {1.0}, "b": {3.0}}
    sync_api.expect(page.locator("article.panel .meta", has_text="·")).to_have_count(3)


def test_long_names_and_values_of_markup_are_text(telem, replay, visit, tmp_path):
    # The longest name that a run may have.
    name = ("<img src=x onerror=alert(1)>__proto__" + "y" * 4_096)[:4_096]
    path = tmp_path / "log.csv"
    path.write_text("ts,host,loss\n2026-01-05T10:00:00Z,n1,1\n2026-01-05T10:00:01Z,n1,2\n")
    telem("import", path, "--save", tmp_path / "run", "--name", name)
    page = visit(replay(tmp_path / "run").address)
    heading = page.get_by_role("heading", level=1)
    sync_api.expect(heading).to_contain_text("<img src=x onerror=alert(1)>__proto__")
    assert heading.get_attribute("title") == name
    assert page.locator("main img").count() == 0
    for view in ("Metrics", "Nodes", "Compare", "SQL", "telem"):
        page.get_by_role("navigation").get_by_role("link", name=view, exact=True).click()
        sync_api.expect(page.locator("nav a[aria-current]")).to_have_text(view)
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    page.get_by_role("navigation").get_by_role("link", name="SQL", exact=True).click()
    # Nothing that is constant may be so long.
    page.get_by_label("SQL", exact=True).fill(f"""SELECT replace('{"a" * 3500}', 'a', CASE WHEN metric = '' THEN 'x' ELSE '<b>' END) AS "<i>" FROM metrics LIMIT 1""")
    page.get_by_role("button", name="Run", exact=True).click()
    # A cell shows the begin and the end of it.
    sync_api.expect(page.locator(".virtual tbody td")).to_have_text(re.compile("^(<b>){20}.*….*<b>$"))
    assert page.locator("main b, .virtual i").count() == 0


def get(server, path):
    server.connection.request("GET", path)
    response = server.connection.getresponse()
    text = response.read().decode()
    assert response.status == 200, text
    return text


def test_a_job_of_the_examples_shows_its_loss_and_what_it_predicts(serve, visit, tmp_path):
    server = serve(tmp_path / "db")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("TELEM_", "DRAGON_")) and k != "PYTHONPATH"}
    clean["TELEM_CONNECTION"] = str(tmp_path / "db" / "connection.json")
    done = subprocess.run([sys.executable, EXAMPLES / "ai_in_the_loop.py", "--quick"], env=clean, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    [row] = server.sql("SELECT min(value) AS least, max(value) AS most, min(CAST(ts AS BIGINT)) AS first, max(CAST(ts AS BIGINT)) AS last FROM loss")
    span = {"from": row["first"] // 1000, "to": row["last"] // 1000 + 1}
    page = visit(server.address, fragment("", **span))
    loss = panel(page, "loss")
    loss.scroll_into_view_if_needed()
    sync_api.expect(loss.locator(".legend li")).to_have_count(2)
    sync_api.expect(loss.locator(".meta")).to_contain_text("by worker")
    # Predicted and actual stand in one panel, above each other.
    both = panel(page, "actual and predicted")
    both.scroll_into_view_if_needed()
    sync_api.expect(both.locator(".meta")).to_contain_text("·")
    names = both.locator(".legend li").all_text_contents()
    assert {"actual", "predicted"} <= {word for name in names for word in name.split()}, names
    page.goto(f"http://{server.address}/" + fragment("metrics", **span, m="avg:loss"))
    sync_api.expect(page.get_by_role("heading", level=1)).to_have_text("Metrics")
    shown = table_of(page, "loss")
    assert min(shown.get("least", shown["loss"]).values()) == pytest.approx(row["least"], rel=1e-6)
    assert max(shown.get("greatest", shown["loss"]).values()) == pytest.approx(row["most"], rel=1e-6)


def test_the_header_says_how_much_there_is_how_late_it_is_and_what_it_costs(served, visit):
    now = int(time.time() * 1000)
    for host in ("n1", "n2"):
        put(served, "node_load1", [1.0], now, host=host)
    put(served, "node_load1", [1.0], now - 40_000, host="n3")
    page = visit(served.address)
    facts = page.locator(".facts div")
    sync_api.expect(facts.filter(has_text="telem takes")).to_contain_text("at most")
    sync_api.expect(facts.filter(has_text="Samples")).to_contain_text(re.compile(r"\d"))
    sync_api.expect(facts.filter(has_text="Behind the clock")).to_contain_text("n3")


def test_metrics_have_their_course_beside_their_names(served, visit):
    begin = minutes_ago(10)
    for number in range(60):
        put(served, f"metric_{number:02}", [float(i * number % 17) for i in range(60)], begin)
    page = visit(served.address, fragment("metrics", **{"from": begin, "to": begin + MINUTE, "find": "metric_"}))
    rows = page.locator("table.list tbody tr")
    sync_api.expect(rows).to_have_count(60)
    painted = """(canvas) => {
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        const columns = new Set();
        for (let i = 3; i < data.length; i += 4) if (data[i]) columns.add(((i - 3) / 4) % canvas.width);
        return columns.size;
    }"""
    for place in (0, 59):
        curve = rows.nth(place).locator("canvas.spark")
        curve.scroll_into_view_if_needed()
        # A curve from one side to the other.
        wait_until(lambda: curve.evaluate(painted) > 90)


def test_a_hidden_tab_and_a_zoom_ask_for_nothing(served, visit):
    now = int(time.time() * 1000)
    put(served, "loss", [1.0] * 60, now - 60_000)
    page = visit(served.address, fragment("metrics", last="1m", m="avg:loss"), clock=True)
    asked = []
    page.on("request", lambda request: "/api/panels" in request.url and asked.append(request.url))
    look = lambda: page.clock.run_for(3_000)
    with page.expect_request("**/api/panels"):
        look()  # It is live: it asks by itself.
    page.evaluate("""() => {
        window.tab = { hidden: true };
        Object.defineProperty(document, "hidden", { get: () => window.tab.hidden });
    }""")
    page.wait_for_load_state("networkidle")
    asked.clear()
    for _ in range(10):
        look()
    assert asked == []
    with page.expect_request("**/api/panels"):
        page.evaluate("() => { window.tab.hidden = false; document.dispatchEvent(new Event('visibilitychange')); }")
    # A chosen range pauses it, too.
    page.get_by_role("button", name="Live").click()
    sync_api.expect(page.locator(".live")).to_have_text("Paused")
    # What the range shows is asked for once more.
    look()
    page.wait_for_load_state("networkidle")
    asked.clear()
    for _ in range(10):
        look()
    assert asked == []


def test_a_panel_is_made_of_clicks_and_all_of_it_is_in_the_link(served, visit):
    begin = minutes_ago(10)
    for host in ("n1", "n2"):
        put(served, "actual", [float(i % 9 + 1) for i in range(120)], begin, host=host)
        put(served, "predicted", [float(i % 7 + 1) for i in range(120)], begin, host=host)
    page = visit(served.address, fragment("metrics", **{"from": begin, "to": begin + 2 * MINUTE}))
    page.get_by_role("searchbox").fill("actual")
    page.get_by_role("link", name="actual", exact=True).click()
    one = page.locator("article.panel")
    sync_api.expect(one.locator(".meta")).to_contain_text("by host")
    page.get_by_label("Function", exact=True).select_option("max")
    sync_api.expect(one.locator(".meta")).to_contain_text("max")
    page.get_by_label("Group by", exact=True).select_option("")
    sync_api.expect(one.locator(".meta")).not_to_contain_text("by host")
    for label, value in (("Filter: tag=value, * for anything", "host=n1"), ("Second metric in this panel", "predicted")):
        field = page.get_by_label(label, exact=True)
        field.fill(value)
        field.press("Enter")
        field.blur()
    sync_api.expect(one.get_by_role("heading")).to_have_text("actual and predicted")
    page.get_by_role("button", name="log", exact=True).click()
    sync_api.expect(one.locator(".meta")).to_contain_text("host = n1")
    sync_api.expect(one.locator(".meta")).to_contain_text("logarithmic")
    page.get_by_label("Smoothing", exact=True).fill("60")
    sync_api.expect(one.locator(".meta")).to_contain_text("smoothed 60")
    sync_api.expect(one.locator(".legend li")).to_have_count(2)
    # Whoever opens the link sees the same.
    again = visit(served.address, page.evaluate("location.hash"))
    sync_api.expect(again.locator("article.panel .meta")).to_have_text(one.locator(".meta").inner_text())


def test_times_are_local_or_utc_and_a_shared_link_has_absolute_ones(served, visit):
    begin = minutes_ago(3)
    put(served, "loss", [1.0] * 120, begin)
    page = visit(served.address, "#/?last=5m", timezone_id="Asia/Kolkata", permissions=["clipboard-read", "clipboard-write"])
    began = page.locator(".facts div", has_text="Began").locator("dd")
    local = began.inner_text()
    page.keyboard.press("t")
    sync_api.expect(page.get_by_role("button", name="UTC", exact=True)).to_be_visible()
    page.reload()
    sync_api.expect(began).not_to_have_text(local)
    parse = lambda text: time.mktime(time.strptime(text, "%Y-%m-%d %H:%M:%S"))
    assert parse(local) - parse(began.inner_text()) == 5.5 * 3600
    page.get_by_role("button", name="Share", exact=True).click()
    sync_api.expect(page.locator("#notice")).to_contain_text("in the clipboard")
    link = page.evaluate("navigator.clipboard.readText()")
    start, end = (int(re.search(rf"{name}=(\d+)", link)[1]) for name in ("from", "to"))
    assert abs(end - start - 5 * MINUTE) < 2 and "last=" not in link and "tz=utc" in link


def test_alarms_that_were_raised_are_in_the_menu(served, visit):
    told = {"Content-Type": "application/json"}
    name = "<b>many</b> errors"
    served.post("/push", json.dumps({"key": "errors_total", "value": "0", "doc": "errors"}), told)
    served.post("/accumulate", json.dumps({"key": "errors_total", "value": "7"}), told)
    alarm = {"name": name, "target": "main", "metric": "errors_total", "operation": ">", "value": 5}
    served.post("/alarms/add", json.dumps(alarm), told)
    wait_until(lambda: served.sql("SELECT alarm FROM alarms") == [{"alarm": name}])
    page = visit(served.address)
    page.get_by_role("navigation").get_by_role("link", name="Alarms", exact=True).click()
    row = page.locator("tbody tr")
    sync_api.expect(row).to_have_count(1)
    # The view before has a table of one row, too: its notes.
    sync_api.expect(row.locator("th")).to_have_text(name)
    assert page.locator("main b").count() == 0
    assert row.locator("td").all_text_contents()[1:] == ["raised", "main", "errors_total", "> 5", "7"]
    # Its link leads to the metric at that time.
    row.get_by_role("link").click()
    sync_api.expect(page.locator("article.panel h3")).to_have_text("errors_total")
    page.get_by_role("navigation").get_by_role("link", name="Profiles", exact=True).click()
    sync_api.expect(page.get_by_role("status").filter(has_text="No job left a profile.")).to_be_visible()


def test_jobs_are_listed_the_newest_first_and_compared(telem, replay, visit, tmp_path):
    saved = replay(*[imported(telem, tmp_path, name, loss) for name, loss in (("a", 1.0), ("b", 3.0))])
    page = visit(saved.address, "#/jobs")
    rows = page.locator("tbody tr")
    sync_api.expect(rows).to_have_count(2)
    assert rows.locator("th").all_text_contents() == ["b", "a"]
    rows.first.get_by_role("link", name="compare with the one before").click()
    sync_api.expect(page.locator("tbody tr").first.locator("th")).to_have_text("loss")
    assert page.locator("tbody tr").first.locator("td").all_text_contents()[:3] == ["1", "3", "+200 %"]


def test_profiles_show_what_jobs_of_clients_counted(served, visit):
    path = json.loads(pathlib.Path(served.connection_file).read_text())["socket"]
    name = "<b>trial</b>"

    def profiles():
        return json.loads(get(served, "/profiles?runs=all"))

    # A job that comes back within a minute goes on, so each has an id of its own.
    for size, work in ((2, 12.5), (4, 1e6)):
        client = test_proxy_pages.Client(path, f"{name} {size}", size)
        client.count("work", work)
        client.send({"Desc": {"name": "load", "doc": "of the cores", "ctype": {"Gauge": {"min": 0, "max": 0, "hits": 0, "total": 0}}}})
        client.send({"Value": {"name": "load", "value": {"Gauge": {"min": 1.0, "max": 5.0, "hits": 4.0, "total": 10.0}}}})
        wait_until(lambda: '"load"' in json.dumps(test_proxy_pages.get(served, f"/job?job={quote(f'{name} {size}')}")))
        client.close()
        wait_until(lambda: len(profiles()) == size // 2)
    page = visit(served.address)
    page.get_by_role("navigation").get_by_role("link", name="Profiles", exact=True).click()
    rows = page.locator("main table").first.locator("tbody tr")
    sync_api.expect(rows).to_have_count(2)
    # The newest first, with what its client told.
    assert rows.locator("th").all_text_contents() == [f"{name} 4", f"{name} 2"]
    began, _, size, nodes, command = rows.first.locator("td").all_text_contents()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", began), began
    assert (size, nodes, command) == ("4", test_proxy_pages.HOSTILE, "solve")
    counters = page.locator("main table").nth(1).locator("tbody tr")
    # Each button opens a profile of its own, with the numbers that Metric Proxy's clients get.
    for place, size in ((1, 2), (0, 4)):
        rows.nth(place).get_by_role("button", name=f"{name} {size}").click()
        sync_api.expect(page.get_by_role("heading", level=2)).to_have_text(f"{name} {size}")
        wanted = {}
        for counter in json.loads(get(served, f"/profiles/get?jobid={quote(f'{name} {size}')}"))["counters"]:
            [(kind, of)] = counter["ctype"].items()
            wanted[counter["name"]] = [of["value"]] if kind == "Counter" else [of["total"] / of["hits"], of["min"], of["max"]]
        assert wanted["work"] == [12.5 if size == 2 else 1e6] and wanted["load"][0] == 2.5 and "walltime" in wanted
        sync_api.expect(counters).to_have_count(len(wanted))
        for row, (counter, numbers) in zip(counters.all(), wanted.items()):
            assert row.locator("th").inner_text()[:40] == counter[:40]
            cells = " ".join(row.locator("td").all_text_contents()).replace("…", " ").split()
            assert [float(cell) for cell in cells] == pytest.approx(numbers, rel=1e-3), counter
        load = counters.filter(has=page.get_by_role("rowheader", name="load", exact=True))
        assert load.locator("th").get_attribute("title") == "of the cores"
    assert page.locator("main b, main img").count() == 0


def test_the_header_is_that_of_the_job_that_runs(served, visit):
    def tell(job, path, what):
        served.post(path, json.dumps(what), {"Content-Type": "application/json", "X-Telem-Job": job})

    tell("long", "/api/job", {"name": "a long one"})
    tell("short", "/api/job", {"name": "a short one"})
    tell("short", "/api/job/end", {})
    page = visit(served.address)
    heading, badge = page.get_by_role("heading", level=1), page.locator("main .badge")
    sync_api.expect(heading).to_have_text("a long one")
    sync_api.expect(badge).to_have_text("running")
    tell("long", "/api/job/end", {"exit_code": 3})
    page.reload()
    # Of those that are over the one that began last; nobody said how it ended.
    sync_api.expect(heading).to_have_text("a short one")
    sync_api.expect(badge).to_have_text("ended")
    page.get_by_role("navigation").get_by_role("link", name="Jobs", exact=True).click()
    rows = page.locator("tbody tr")
    sync_api.expect(rows).to_have_count(2)
    assert [row.locator("td").nth(2).inner_text() for row in rows.all()] == ["ended", "exit code 3"]


def test_the_job_of_a_head_is_asked_for_like_a_tag(server, visit, tmp_path):
    begin, end = minutes_ago(10), minutes_ago(4)
    join = tmp_path / "join"
    head = server("serve", "--level", "1", "--node", "head", "--data", tmp_path / "head", "--join-file", join)
    agent = server("node", "--node", "n1", "--data", tmp_path / "n1", "--join", join)
    for number, (host, of) in enumerate((("n1", agent), ("head", head))):
        put(of, "load", [float((i * 7 + number) % 101) for i in range(300)], begin, host=host)
    wait_until(lambda: sorted(by_host(head, "load", MINUTE, begin, end)) == ["head", "n1"])
    queries = ["avg:load", "avg:load{job=*}", "avg:load{job=local}", "sum:rate:load", "sum:rate:load{job=local}", "avg:load{job=8}"]
    page = visit(head.address, fragment("metrics", **{"from": begin, "to": end}) + "".join(f"&m={query}" for query in queries))
    panels = page.locator("article.panel")
    sync_api.expect(panels).to_have_count(len(queries))

    def numbers(place):
        one = panels.nth(place)
        one.scroll_into_view_if_needed()
        one.get_by_role("button", name="Show as table").click()
        sync_api.expect(one.locator("tbody tr").first).to_be_visible()
        return one.locator("thead th").nth(1).inner_text(), one.locator("tbody").inner_text()

    (_, all_of_it), (name, of_each), (_, of_local), (_, rates), (_, rates_of_local) = map(numbers, range(5))
    assert name == "local" and all_of_it == of_each == of_local and rates == rates_of_local != all_of_it
    panels.nth(5).scroll_into_view_if_needed()
    sync_api.expect(panels.nth(5).locator(".word")).to_contain_text("no series of 'load' has these tags")


def test_jobs_that_send_to_a_head_are_told_apart(server, visit, tmp_path):
    begin, join = int(time.time() * 1000), tmp_path / "join"
    head = server("serve", "--level", "1", "--node", "head", "--data", tmp_path / "head", "--join-file", join)
    agent = server("node", "--node", "n1", "--data", tmp_path / "n1", "--join", join)
    put(agent, "load", [1.0], begin)
    losses = {"a": 1.0, "b": 3.0}
    for job, loss in losses.items():
        told = {"Content-Type": "application/json", "X-Telem-Job": job}
        head.post("/api/job", "{}", told)
        # Of the same host and at the same times.
        samples = [{"metric": "loss", "timestamp": begin + MINUTE + i, "value": loss, "tags": {"host": "n1"}} for i in range(40)]
        head.post("/api/put?sync", json.dumps(samples), told)
    wait_until(lambda: {row["metric"] for row in head.sql("SELECT metric FROM metrics")} >= {"load", "loss"})
    counted = head.sql("SELECT job, count(*) AS samples FROM loss GROUP BY job ORDER BY job")
    assert counted == [{"job": job, "samples": 40} for job in losses]
    queries = ["avg:loss{job=*}", "max:loss{job=b}", "sum:rate:loss{job=b}"]
    link = fragment("metrics", **{"from": begin + MINUTE, "to": begin + MINUTE + 40})
    page = visit(head.address, link + "".join(f"&m={query}" for query in queries))
    shown = table_of(page, "loss")
    assert {job: set(shown[job].values()) for job in losses} == {job: {loss} for job, loss in losses.items()}
    assert all(len(shown[job]) == 40 for job in losses)
    panels = page.locator("article.panel")
    panels.nth(1).scroll_into_view_if_needed()
    panels.nth(1).get_by_role("button", name="Show as table").click()
    sync_api.expect(panels.nth(1).locator("tbody tr").first).to_be_visible()
    assert {float(cell) for cell in panels.nth(1).locator("tbody tr td:first-of-type").all_text_contents()} == {3.0}
    panels.nth(2).scroll_into_view_if_needed()
    sync_api.expect(panels.nth(2).locator(".word")).to_contain_text("sums and rates by job are not told")
