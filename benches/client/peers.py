"""The same calls as calls.c, of prometheus_client and OpenTelemetry's SDK for Python: peers.py THREADS BATCHES."""

import json
import sys
import threading
import time

CALLS = 1000


def measure(peer, call, threads, batches, act):
    found = []

    def work():
        for _ in range(batches):
            began = time.perf_counter_ns()
            for number in range(CALLS):
                act(number)
            found.append((time.perf_counter_ns() - began) / CALLS)
            time.sleep(0.002)

    running = [threading.Thread(target=work) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    found.sort()
    print(json.dumps({"peer": peer, "call": call, "threads": threads, "median_ns": found[len(found) // 2],
                      "p90_ns": found[len(found) * 9 // 10]}), flush=True)


def main():
    threads, batches = map(int, sys.argv[1:3])
    measure("Python", "empty loop", threads, batches, lambda number: None)

    import prometheus_client as prometheus

    gauge = prometheus.Gauge("bench_gauge", "a gauge")
    counter = prometheus.Counter("bench_counter", "a counter")
    histogram = prometheus.Histogram("bench_histogram", "a histogram", buckets=(1, 2, 4, 8, 16))
    measure("prometheus_client (Python)", "gauge", threads, batches, lambda number: gauge.set(number * 0.5))
    measure("prometheus_client (Python)", "counter", threads, batches, lambda number: counter.inc())
    measure("prometheus_client (Python)", "histogram", threads, batches, lambda number: histogram.observe(number & 15))

    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    meter = MeterProvider(metric_readers=[InMemoryMetricReader()]).get_meter("bench")
    gauge = meter.create_gauge("bench_gauge")
    counter = meter.create_counter("bench_counter")
    histogram = meter.create_histogram("bench_histogram", explicit_bucket_boundaries_advisory=[1, 2, 4, 8, 16])
    measure("OpenTelemetry SDK (Python)", "gauge", threads, batches, lambda number: gauge.set(number * 0.5))
    measure("OpenTelemetry SDK (Python)", "counter", threads, batches, lambda number: counter.add(1))
    measure("OpenTelemetry SDK (Python)", "histogram", threads, batches, lambda number: histogram.record(number & 15))


if __name__ == "__main__":
    main()
