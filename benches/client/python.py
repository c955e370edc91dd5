#!/usr/bin/env python3
"""What a call costs a Python program: telem with its compiled core and without, prometheus_client, OpenTelemetry's SDK.

    benches/client/python.py [--telem target/release/telem] [--processes 64]

Needs the packages prometheus_client and opentelemetry-sdk, and a C compiler with Python's headers. Everything in one run: each
library and number of processes in turn, all processes of one at the same time. A figure is CPU nanoseconds of the calling
thread, the median over 15 rounds of 200 calls, of many processes the median over them; an empty loop is taken off.
telem sends to a real server meanwhile; prometheus_client waits to be scraped and OpenTelemetry to be read, and nobody comes.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile

CLIENT = pathlib.Path(__file__).resolve().parents[2] / "clients" / "python"
ROUNDS, CALLS = 15, 200
ROWS = {
    "add": "one value of a metric with one tag (`add_data`; labelled gauge; gauge with an attribute)",
    "gauge": "a gauge that is held (`Gauge.set`; `.set` of a child)",
    "counter": "a counter that is held (`Counter.inc`; `.inc` of a child)",
    "histogram": "a histogram that is held, 16 bounds (`observe`)",
    "span": "a timed `with` (`span`; `Histogram.time`; a clock and `record`)",
    "log": "two values and a step of one moment (`log`; three gauges)",
}


def telem_calls():
    import telem

    tags = {"phase": "train"}
    telemetry = telem.Telemetry()
    gauge, counter, histogram = (make("b_" + kind, tags=tags) for make, kind in [
        (telemetry.gauge, "g"), (telemetry.counter, "c"), (telemetry.histogram, "h")])

    def span():
        with telemetry.span("b_span", tags):
            pass

    calls = {
        "add": lambda: telemetry.add_data("b_add", 0.5, tags={"phase": "train"}),
        "gauge": lambda: gauge.set(0.5),
        "counter": lambda: counter.inc(),
        "histogram": lambda: histogram.observe(0.5),
        "span": span,
        "log": lambda: telemetry.log({"b_loss": 0.5, "b_lr": 0.1}, step=7),
    }
    return calls, lambda: telemetry.flush(300), telemetry.stats


def prometheus_calls():
    import prometheus_client as prometheus

    bounds = [10**n * m for n in range(-3, 2) for m in (1, 2.5, 5)] + [100]
    add, gauge, counter = (make("b_" + kind, "help", ["phase"]) for make, kind in [
        (prometheus.Gauge, "a"), (prometheus.Gauge, "g"), (prometheus.Counter, "c")])
    histogram = prometheus.Histogram("b_h", "help", ["phase"], buckets=bounds).labels(phase="train")
    gauges = [prometheus.Gauge(f"b_{name}", "help") for name in ("loss", "lr", "step")]
    gauge, counter = gauge.labels(phase="train"), counter.labels(phase="train")

    def span():
        with histogram.time():
            pass

    def log():
        for one, value in zip(gauges, (0.5, 0.1, 7)):
            one.set(value)

    calls = {
        "add": lambda: add.labels(phase="train").set(0.5),
        "gauge": lambda: gauge.set(0.5),
        "counter": lambda: counter.inc(),
        "histogram": lambda: histogram.observe(0.5),
        "span": span,
        "log": log,
    }
    return calls, lambda: None, dict


def opentelemetry_calls():
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    meter = MeterProvider(metric_readers=[InMemoryMetricReader()]).get_meter("bench")
    tags = {"phase": "train"}
    gauge, counter, histogram = meter.create_gauge("b_g"), meter.create_counter("b_c"), meter.create_histogram("b_h")
    gauges = [meter.create_gauge(f"b_{name}") for name in ("loss", "lr", "step")]

    def span():
        began = time.perf_counter()
        histogram.record(time.perf_counter() - began, tags)

    def log():
        for one, value in zip(gauges, (0.5, 0.1, 7)):
            one.set(value)

    calls = {
        "add": lambda: gauge.set(0.5, {"phase": "train"}),
        "gauge": lambda: gauge.set(0.5, tags),
        "counter": lambda: counter.add(1, tags),
        "histogram": lambda: histogram.record(0.5, tags),
        "span": span,
        "log": log,
    }
    return calls, lambda: None, dict


LIBRARIES = {
    "telem, compiled": telem_calls,
    "telem, pure": telem_calls,
    "prometheus_client": prometheus_calls,
    "OpenTelemetry": opentelemetry_calls,
}


def median_ns(call):
    rounds = []
    for _ in range(ROUNDS):
        began = time.thread_time_ns()
        for _ in range(CALLS):
            call()
        rounds.append((time.thread_time_ns() - began) / CALLS)
    return statistics.median(rounds)


def work(library):
    """One process: waits for the word, and says its figures."""
    calls, flush, stats = LIBRARIES[library]()
    for call in calls.values():
        call()
    flush()
    print("ready", flush=True)
    sys.stdin.readline()
    empty = median_ns(lambda: None)
    figures = {}
    for name, call in calls.items():
        figures[name] = median_ns(call) - empty
        # So that no figure has the queue of the one before.
        flush()
    print(json.dumps({"figures": figures, "dropped": stats().get("dropped", 0), "sent": stats().get("sent", 0)}), flush=True)


def measure(library, processes, environment):
    command = [sys.executable, __file__, "--work", library]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    crowd = [subprocess.Popen(command, env=environment, **pipes) for _ in range(processes)]
    for one in crowd:
        assert one.stdout.readline() == "ready\n", "a process of the bench did not begin"
    for one in crowd:
        one.stdin.write("go\n")
        one.stdin.flush()
    said = [json.loads(one.communicate()[0]) for one in crowd]
    figures = {name: statistics.median(one["figures"][name] for one in said) for name in ROWS}
    return figures, sum(one["dropped"] for one in said), sum(one["sent"] for one in said)


def compiled(scratch):
    sys.path.insert(0, str(CLIENT / "backend"))
    import build_wheel

    wheel = build_wheel.build_wheel(scratch)
    assert "abi3" in wheel, "the core could not be compiled here; the line above says why"
    with zipfile.ZipFile(pathlib.Path(scratch) / wheel) as archive:
        archive.extractall(pathlib.Path(scratch) / "site")
    return str(pathlib.Path(scratch) / "site")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--telem", default=os.environ.get("TELEM", "target/release/telem"), help="the binary [%(default)s]")
    parser.add_argument("--processes", type=int, default=64, help="that call at once [%(default)s]")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work)
        return
    with tempfile.TemporaryDirectory() as scratch:
        site, data = compiled(scratch), pathlib.Path(scratch) / "db"
        clean = {k: v for k, v in os.environ.items() if not k.startswith("TELEM_")}
        command = [options.telem, "serve", "--data", str(data), "--listen", "127.0.0.1:0", "--level", "1"]
        server = subprocess.Popen(command, env={**clean, "XDG_RUNTIME_DIR": scratch}, stderr=subprocess.PIPE, text=True)
        try:
            while "listening on" not in server.stderr.readline():
                assert server.poll() is None, "telem ended"
            named = {**clean, "TELEM_CONNECTION": str(data / "connection.json")}
            environments = {
                "telem, compiled": {**named, "PYTHONPATH": site},
                "telem, pure": {**named, "PYTHONPATH": site, "TELEM_PURE": "1"},
                "prometheus_client": clean,
                "OpenTelemetry": clean,
            }
            crowds = sorted({1, options.processes})
            figures = {(library, n): measure(library, n, environments[library]) for n in crowds for library in LIBRARIES}
        finally:
            server.terminate()
            server.wait()
    print(f"| ns a call | {' | '.join(f'{library}, {n}' for n in crowds for library in LIBRARIES)} |")
    print(f"|---|{'---|' * len(figures)}")
    for name, what in ROWS.items():
        print(f"| {what} | {' | '.join(f'{figures[library, n][0][name]:,.0f}' for n in crowds for library in LIBRARIES)} |")
    for n in crowds:
        for library in list(LIBRARIES)[:2]:
            _, dropped, sent = figures[library, n]
            print(f"{library}, {n} processes: {sent} points sent, {dropped} dropped")


if __name__ == "__main__":
    main()
