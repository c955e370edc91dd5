#!/usr/bin/env python3
"""Makes two saved runs that nobody ran, for the pictures of the page.

    python3 docs/pictures/page_runs.py TELEM DIR
    TELEM replay DIR/first DIR/second --listen 127.0.0.1:4243 &
    python3 docs/pictures/page.py http://127.0.0.1:4243 '#/?tz=utc' -o docs/pictures/page-job.png --height 580
    python3 docs/pictures/page.py http://127.0.0.1:4243 '#/nodes?metric=step_seconds&tz=utc' --dark \\
        -o docs/pictures/page-nodes.png --height 620
    python3 docs/pictures/page.py http://127.0.0.1:4243 '#/compare?metric=loss&tz=utc' -o docs/pictures/page-compare.png --height 640

A training on 48 hosts for half an hour, twice: the second begins an hour later, with another learning rate. On host n31
the steps take longer from a third of the time on, and all others wait for it. `telem import` makes the runs of CSV.
"""

import argparse
import datetime
import math
import random
import subprocess
import sys
from pathlib import Path

HOSTS, MINUTES, STEP_S = 48, 30, 10
SLOW, SLOW_FROM = 31, 0.35
COLUMNS = ["ts", "host", "loss", "reward_actual", "reward_predicted", "step_seconds", "cpu_percent", "used_RAM",
           "node_memory_MemAvailable_bytes", "node_network_receive_bytes_total", "node_network_transmit_bytes_total",
           "node_disk_read_bytes_total", "node_disk_written_bytes_total"]


def rows(begin, rate, seed):
    draw = random.Random(seed)
    sums = {host: [0.0] * 4 for host in range(HOSTS)}
    bias = {host: draw.gauss(0, 1) for host in range(HOSTS)}
    for tick in range(MINUTES * 60 // STEP_S):
        at, part = begin + datetime.timedelta(seconds=tick * STEP_S), tick / (MINUTES * 60 / STEP_S)
        saving = tick % 30 < 2
        slow = part > SLOW_FROM
        # The slowest one decides how long everybody's step takes.
        whole = 0.78 + (0.34 + 0.05 * math.sin(tick / 9) if slow else 0) + draw.gauss(0, 0.008)
        for host in range(HOSTS):
            own = whole if host == SLOW else 0.78 + 0.012 * bias[host] + draw.gauss(0, 0.012)
            busy = (97 if host == SLOW else 97 * own / whole) - (45 if saving else 0) + draw.gauss(0, 1.2)
            flow = 0 if saving else 1.8e8 / whole
            for place, more in enumerate((flow, flow * 0.97, 4e6 + 1e6 * draw.random(), 2.4e8 if saving else 2e6 * draw.random())):
                sums[host][place] += more * STEP_S * (1 + draw.gauss(0, 0.04))
            reward = 3 / (1 + math.exp(-6 * (part - 0.4))) + 0.25 * math.sin(tick / 5)
            program = ["", "", ""]
            if host == 0:
                program = [f"{2.2 * math.exp(-rate * part) + 0.35 + draw.gauss(0, 0.03):.4f}", f"{reward + draw.gauss(0, 0.05):.4f}",
                           f"{reward * (0.4 + 0.6 * min(1, 2 * part)) + draw.gauss(0, 0.08):.4f}"]
            ram = 61 + 3 * part + bias[host]
            yield [at.isoformat(), f"n{host:02}", *program, f"{own:.4f}", f"{min(100, max(0, busy)):.1f}", f"{ram:.2f}",
                   f"{(100 - ram) * 5.12e9:.0f}", *(f"{value:.0f}" for value in sums[host])]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("telem")
    parser.add_argument("dir", type=Path)
    wanted = parser.parse_args()
    wanted.dir.mkdir(parents=True)
    begin = datetime.datetime(2026, 1, 5, 9, 30, tzinfo=datetime.timezone.utc)
    for number, (name, lr, rate) in enumerate((("first", "3e-4", 2.6), ("second", "1e-3", 4.4))):
        table = wanted.dir / f"{name}.csv"
        start = begin + datetime.timedelta(hours=number)
        table.write_text("\n".join(",".join(row) for row in [COLUMNS, *rows(start, rate, number)]) + "\n")
        done = subprocess.run([wanted.telem, "import", table, "--save", wanted.dir / name, "--name", f"llm-7b, lr {lr}"])
        if done.returncode:
            sys.exit(done.returncode)


if __name__ == "__main__":
    main()
