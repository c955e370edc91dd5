"""Records this machine's /proc at 10 Hz: what a collector at the highest level would see.

python3 benches/record_proc.py OUT [SECONDS]

One line a sample: milliseconds since the epoch, the metric, tags as key=value with commas between, the value as it is
printed there; tabs between. All samples of one round carry the time at which it began, as a collector's would.
"""

import os
import socket
import sys
import time


def counters(host):
    """Yields (metric, tags, value) of one round."""
    own = f"host={host}"
    with open("/proc/stat") as file:
        for line in file:
            name, *values = line.split()
            if name.startswith("cpu"):
                modes = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice")
                for mode, value in zip(modes, values):
                    yield f"cpu_{mode}", f"cpu={name},{own}", value
            elif name != "intr" and name != "softirq":
                yield f"stat_{name}", own, values[0]
    with open("/proc/loadavg") as file:
        for name, value in zip(("load1", "load5", "load15"), file.read().split()):
            yield name, own, value
    for name in ("meminfo", "vmstat"):
        with open(f"/proc/{name}") as file:
            for line in file:
                key, value, *_ = line.replace(":", " ").split()
                yield f"{name}_{key}", own, value
    with open("/proc/net/dev") as file:
        for line in file.readlines()[2:]:
            iface, rest = line.split(":")
            names = ("rx_bytes", "rx_packets", "rx_errors", "rx_dropped", *"....", "tx_bytes", "tx_packets")
            for field, value in zip(names, rest.split()):
                if field != ".":
                    yield f"net_{field}", f"{own},iface={iface.strip()}", value
    with open("/proc/diskstats") as file:
        for line in file:
            _, _, disk, *values = line.split()
            for at, value in enumerate(values[:11]):
                yield f"disk_{at}", f"disk={disk},{own}", value
    for pid in os.listdir("/proc"):
        if pid.isdigit():
            try:
                with open(f"/proc/{pid}/stat") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:
                continue
            tags = f"{own},pid={pid}"
            for name, at in (("minflt", 7), ("majflt", 9), ("utime", 11), ("stime", 12), ("threads", 17), ("rss", 21)):
                yield f"process_{name}", tags, fields[at]


def main(out, seconds):
    host = socket.gethostname()
    start = time.monotonic()
    with open(out, "w") as file:
        for tick in range(seconds * 10):
            wait = start + tick / 10 - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            now = time.time_ns() // 1_000_000
            file.writelines(f"{now}\t{metric}\t{tags}\t{value}\n" for metric, tags, value in counters(host))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 190)
