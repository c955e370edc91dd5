#!/usr/bin/env python3
"""A training job that watches itself: several processes learn sin(x), and ask telem how they are doing.

Each process trains a small network on random points of sin(x). In every iteration it logs what it predicted for one
point, what is actual there, and the difference; every so often it asks, in SQL, how its own loss has gone lately:

* the loss still falls: go on;
* the loss stalls: make new data, where the network was worst;
* the loss is good: stop.

    telem run --save ./trial -- python examples/ai_in_the_loop.py
    telem sql ./trial "SELECT worker, last(value, ts) AS loss FROM loss GROUP BY worker"

Needs no package; without telem it trains all the same and decides by a short memory of its own.
"""

import argparse
import collections
import math
import multiprocessing
import os
import pathlib
import random
import sys
import time

try:
    from telem import Telemetry
except ImportError:  # a checkout, where the client is not installed
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "clients" / "python"))
    from telem import Telemetry

# What the loss of one process did lately: the mean of its newest rows, and of as many before them.
RECENT = """
SELECT avg(CASE WHEN age <= {n} THEN value END) AS recent,
       avg(CASE WHEN age > {n} THEN value END) AS before,
       count(*) AS rows
FROM (SELECT value, row_number() OVER (ORDER BY ts DESC) AS age
      FROM samples WHERE metric = 'loss' AND tags['worker'] = '{worker}' AND tags['run'] = '{run}')
WHERE age <= 2 * {n}
"""


class Network:
    """One input, one hidden layer of tanh, one output; trained by stochastic gradient descent."""

    def __init__(self, hidden, rng):
        self.first = [rng.uniform(-2.0, 2.0) for _ in range(hidden)]
        self.bias = [rng.uniform(-3.0, 3.0) for _ in range(hidden)]
        self.second = [rng.uniform(-0.3, 0.3) for _ in range(hidden)]
        self.shift = 0.0

    def layer(self, x):
        return [math.tanh(w * x + b) for w, b in zip(self.first, self.bias)]

    def predict(self, x):
        return self.shift + sum(w * h for w, h in zip(self.second, self.layer(x)))

    def learn(self, x, actual, rate):
        """One step towards ``actual``; the squared error before it."""
        hidden = self.layer(x)
        error = self.shift + sum(w * h for w, h in zip(self.second, hidden)) - actual
        self.shift -= rate * error
        for i, h in enumerate(hidden):
            slope = rate * error * self.second[i] * (1.0 - h * h)
            self.second[i] -= rate * error * h
            self.first[i] -= slope * x
            self.bias[i] -= slope
        return error * error


def new_data(network, size, rng):
    """Points of sin(x): half of them anywhere, half where ``network`` was worst of many tried."""
    anywhere = [rng.uniform(-math.pi, math.pi) for _ in range(size // 2)]
    tried = [rng.uniform(-math.pi, math.pi) for _ in range(4 * size)]
    worst = sorted(tried, key=lambda x: -abs(network.predict(x) - math.sin(x)))[: size - len(anywhere)]
    return anywhere + worst


def recent_loss(telemetry, memory, worker, run, rows):
    """The mean loss of the last ``rows`` iterations and of those before them; ``None`` until there are as many."""
    answer = telemetry.sql(RECENT.format(n=rows, worker=worker, run=run))
    if answer:
        return (answer[0]["recent"], answer[0]["before"]) if answer[0]["rows"] == 2 * rows else None
    if len(memory) < 2 * rows:  # no telem: what this process remembers
        return None
    newest = list(memory)
    return sum(newest[rows:]) / rows, sum(newest[:rows]) / rows


def say(line):
    """Prints in one write, so that lines of several processes stay apart also where nothing is buffered."""
    print(f"{line}\n", end="", flush=True)


def train(worker, run, options):
    """One process, from a random network to a good one, or to the end of its time."""
    rng = random.Random(options.seed + worker)
    telemetry = Telemetry(tags={"worker": worker, "run": run})
    network = Network(options.hidden, rng)
    data = new_data(network, options.points, rng)
    memory = collections.deque(maxlen=2 * options.window)
    began, renewed, iteration, verdict = time.monotonic(), 0, 0, "out of time"
    while time.monotonic() - began < options.seconds:
        iteration += 1
        loss = sum(network.learn(x, math.sin(x), options.rate) for x in rng.sample(data, options.batch)) / options.batch
        memory.append(loss)
        x = rng.uniform(-math.pi, math.pi)
        predicted, actual = network.predict(x), math.sin(x)
        point = {"predicted": predicted, "actual": actual, "difference": predicted - actual, "loss": loss}
        telemetry.log(point, step=iteration)
        time.sleep(options.pause)
        if iteration % options.window:
            continue

        found = recent_loss(telemetry, memory, worker, run, options.window)
        if found is None:
            continue
        recent, before = found
        if recent <= options.good:
            verdict = "good"
            break
        if recent > 0.9 * before:
            data = new_data(network, options.points, rng)
            renewed += 1
            telemetry.add_data("new_data", renewed)
        if iteration % (5 * options.window) == 0:
            say(f"worker {worker}: iteration {iteration:5}, loss {recent:.5f}, new data {renewed} times")
    test = [-math.pi + 2 * math.pi * i / 100 for i in range(101)]
    worst = max(abs(network.predict(x) - math.sin(x)) for x in test)
    telemetry.log({"worst": worst, "iterations": iteration})
    telemetry.finalize()
    lost = f", {telemetry.dropped} points lost" if telemetry.dropped else ""
    say(f"worker {worker}: {verdict} after {iteration} iterations, off by {worst:.3f} at most{lost}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--workers", type=int, default=4, help="processes that learn [%(default)s]")
    parser.add_argument("--seconds", type=float, default=60.0, help="longest that they learn [%(default)s]")
    parser.add_argument("--good", type=float, default=3e-5, help="the mean loss at which to stop [%(default)s]")
    parser.add_argument("--seed", type=int, default=7, help="of the random numbers [%(default)s]")
    parser.add_argument("--quick", action="store_true", help="two processes, five seconds at most")
    options = parser.parse_args()
    options.hidden, options.points, options.batch, options.rate = 24, 64, 16, 0.05
    options.window, options.pause = 100, 0.01
    if options.quick:
        options.workers, options.seconds, options.good = min(options.workers, 2), min(options.seconds, 4.0), 1e-3

    run = str(os.getpid())
    workers = [multiprocessing.Process(target=train, args=(n, run, options)) for n in range(options.workers)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return 1 if any(worker.exitcode for worker in workers) else 0


if __name__ == "__main__":
    sys.exit(main())
