"""Options of `telem proxy` at the real binary: what they keep, forget, run and record."""

import json
import re
import shlex
import socket
import time
import urllib.parse

import pytest
from original_proxy import Telem, asked, await_value, value
from test_proxy import CASES, get, until

NODE = f"Node: {socket.gethostname()}"
SUMS = ("main", NODE)
LIVES = 3
# More than the jobs whose places wait for them to come back.
CROWD = 40
LOAD = "proxy_cpu_load_average_percent"
# So many take longer than the node needs to be sampled twice.
POINTS = 20


@pytest.fixture
def started(tmp_path):
    """Starts `telem proxy` with options, over one directory, and kills what a test leaves behind."""
    running = []

    def start(*options):
        running.append(Telem(tmp_path, *options))
        return running[-1]

    yield start
    for one in running:
        one.kill()


@pytest.fixture
def client(monkeypatch):
    """Connects to a server's socket as a client of a job that counts `c`."""
    monkeypatch.syspath_prepend(CASES)
    import setup

    def connected(proxy, job):
        one = setup.Client(str(proxy.path), setup.desc(job, "./app", 1))
        one.counter("c", "what was done")
        return one

    return connected


def live(proxy):
    """Ids of jobs that are live, without the sums."""
    return [job["jobid"] for job in get(f"{proxy.base}/job/list") if job["jobid"] not in SUMS]


def profiles(proxy):
    """Ids of jobs that have a profile."""
    return [job["jobid"] for job in get(f"{proxy.base}/profiles?runs=all")]


def ended(proxy, client, job, amount):
    """A whole run of a job that counts so much; gives the last value of its counter."""
    one = client(proxy, job)
    one.add("c", amount)
    until(lambda: (value(proxy.base, job, "c") or 0) >= amount)
    last = value(proxy.base, job, "c")
    one.close()
    until(lambda: job not in live(proxy))
    return last


def going(proxy, client, job, amount):
    """A job that is live, and has counted so much. What ended before it began has been kept."""
    one = client(proxy, job)
    one.add("c", amount)
    until(lambda: (value(proxy.base, job, "c") or 0) >= amount)
    return one


def sampled(proxy):
    """All values that samples of `c` have."""
    return {row["value"] for row in proxy.server.sql("SELECT DISTINCT value FROM samples WHERE metric = 'c'")}


def sums(proxy):
    return [value(proxy.base, scope, "c") for scope in SUMS]


def check_sums(proxy, expected):
    for scope in SUMS:
        await_value(proxy.base, scope, "c", expected)


# ---- no profiles -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_where_profiles_are_inhibited_no_job_has_one_while_it_lives_after_it_ended_and_after_a_restart(started, client, end):
    proxy = started("-i")
    ended(proxy, client, "short", 4)
    rank = going(proxy, client, "long", 10)
    assert (profiles(proxy), live(proxy)) == ([], ["long"])
    until(lambda: {4, 10} <= sampled(proxy))
    getattr(proxy, end)()
    rank.close()
    proxy.start()
    assert (profiles(proxy), live(proxy)) == ([], [])
    for job in ("short", "long"):
        assert asked(f"{proxy.base}/profiles/get?jobid={job}") is None


@pytest.mark.parametrize("ids", ["other jobs", "the same jobs"])
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_where_profiles_are_inhibited_the_sums_have_all_that_was_counted_before_each_restart(started, client, end, ids):
    proxy, sent = started("-i"), 0
    for life in range(LIVES):
        short, long = (f"{name}{life if ids == 'other jobs' else ''}" for name in ("short", "long"))
        # No two values are alike then, whether or not a job goes on where it ended.
        amounts = [amount * 100**life for amount in (4, 7, 10)]
        # It comes back within the minute in which that is the same run.
        last = {ended(proxy, client, short, amount) for amount in amounts[:2]}
        rank = going(proxy, client, long, amounts[2])
        last.add(value(proxy.base, long, "c"))
        sent += sum(amounts)
        check_sums(proxy, sent)
        # Of what was sent a moment ago a kill may lose some.
        until(lambda: last <= sampled(proxy))
        getattr(proxy, end)()
        rank.close()
        proxy.start()
        assert sums(proxy) == [sent, sent], f"after life {life}"


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_where_profiles_are_inhibited_the_sums_have_what_jobs_counted_whose_places_others_took(started, client, end):
    proxy, amounts = started("-i"), range(1, 3 * CROWD + 1)
    for first in amounts[::CROWD]:
        crowd = [client(proxy, f"job{amount}") for amount in range(first, first + CROWD)]
        for amount, one in enumerate(crowd, first):
            one.add("c", amount)
        check_sums(proxy, sum(range(1, first + CROWD)))
        for one in crowd:
            one.close()
        until(lambda: live(proxy) == [])
    until(lambda: set(amounts) <= sampled(proxy))
    places = proxy.server.sql("SELECT count(DISTINCT tags['job.slot']) AS n FROM samples WHERE metric = 'c'")[0]["n"]
    assert CROWD <= places < len(amounts), "some had the place of an earlier one"
    for _ in range(LIVES):
        getattr(proxy, end)()
        proxy.start()
        assert sums(proxy) == [sum(amounts)] * 2
    assert profiles(proxy) == []


# ---- how long profiles are kept --------------------------------------------------------------------------------------


def test_a_profile_goes_when_it_is_older_than_profiles_are_kept_and_no_earlier(started, client):
    kept_s = 3
    proxy = started("--profiles-keep", f"{kept_s}s")
    ended(proxy, client, "old", 4)
    until(lambda: profiles(proxy) == ["old"])
    profile = asked(f"{proxy.base}/profiles/get?jobid=old")
    until(lambda: profiles(proxy) == [])
    assert time.time() - profile["desc"]["end_time"] / 1000 > kept_s
    assert asked(f"{proxy.base}/profiles/get?jobid=old") is None
    check_sums(proxy, 4)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_profile_that_is_too_old_goes_for_good_and_what_it_counted_stays_in_the_sums(started, client, end):
    proxy = started()
    ended(proxy, client, "old", 4)
    until(lambda: profiles(proxy) == ["old"])
    proxy.stop()
    proxy.options = ["--profiles-keep", "10ms"]
    proxy.start()
    until(lambda: profiles(proxy) == [])
    assert sums(proxy) == [4, 4]
    getattr(proxy, end)()
    proxy.options = []
    proxy.start()
    assert profiles(proxy) == []
    assert sums(proxy) == [4, 4]


# ---- alarms ----------------------------------------------------------------------------------------------------------


def test_the_command_of_on_alarm_runs_when_an_alarm_is_raised_and_when_it_ends(started, client, tmp_path):
    file = tmp_path / "told by alarms"
    words = ("", "_STATE", "_JOB", "_METRIC", "_CONDITION", "_VALUE", "_TIME")
    line = "|".join(f"$TELEM_ALARM{word}" for word in words)
    proxy = started("-S", "50", "--on-alarm", f'echo "{line}" >> {shlex.quote(str(file))}')
    rank = going(proxy, client, "long", 3)
    alarm = {"name": "too much", "target": "long", "metric": "c", "operation": ">", "value": 5}
    added = proxy.server.post("/alarms/add", json.dumps(alarm), {"Content-Type": "application/json"})
    assert json.loads(added) == {"operation": "alarm registered", "success": True}
    told = lambda: file.read_text().splitlines() if file.exists() else []
    for change, said in [(4, "too much|raised|long|c|> 5|7"), (-6, "too much|cleared|long|c|> 5|1")]:
        before = told()
        rank.add("c", change)
        until(lambda: len(told()) > len(before))
        *others, last = told()
        values, when = last.rsplit("|", 1)
        assert (others, values) == (before, said)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", when)


# ---- what is recorded of the node ------------------------------------------------------------------------------------


def traced(proxy, job):
    """Names that a job has traces of."""
    return asked(f"{proxy.base}/trace/metrics?job={urllib.parse.quote(job)}") or []


def plot(proxy, job, name):
    """The points of one of them."""
    return asked(f"{proxy.base}/trace/plot?jobid={urllib.parse.quote(job)}&filter={name}") or []


@pytest.mark.parametrize(("options", "has_interfaces"), [([], False), (["--level", "3"], True)])
def test_what_the_node_was_like_has_traces_by_default_and_interfaces_by_level_3(started, client, options, has_interfaces):
    proxy = started("-S", "100", *options)
    rank = going(proxy, client, "long", 1)
    for scope in ("long", *SUMS):
        until(lambda: {"c", LOAD, "proxy_memory_used_bytes"} <= set(traced(proxy, scope)))
        until(lambda: len(plot(proxy, scope, LOAD)) > POINTS)
        assert all(0 <= percent <= 100 for _, percent in plot(proxy, scope, LOAD))
    interfaces = lambda: [name for name in traced(proxy, NODE) if name.startswith("proxy_network_")]
    if has_interfaces:
        until(interfaces)
        assert all('{interface="' in name for name in interfaces())
    else:
        assert interfaces() == []
    rank.close()


def test_by_level_1_nothing_that_the_node_was_like_has_a_trace(started, client):
    proxy = started("-S", "100", "--level", "1")
    rank = going(proxy, client, "long", 1)
    for scope in ("long", *SUMS):
        until(lambda: len(plot(proxy, scope, "c")) > POINTS)
        assert traced(proxy, scope) == ["c"]
    # What it is like now is told all the same.
    assert LOAD in [one["name"] for one in get(f"{proxy.base}/job?job=long")["counters"]]
    rank.close()
