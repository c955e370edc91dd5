"""This machine as the kernel tells of it: CPU time and memory of processes, load, files and the page cache."""

import os
import pathlib
import platform
import socket
import sys
import time

BEGAN = time.monotonic()


def say(text):
    """Progress, on stderr, with the seconds since the start."""
    print(f"[{time.monotonic() - BEGAN:6.1f} s] {text}", file=sys.stderr, flush=True)


def family(pid):
    """The process and all that descend from it and live."""
    yield pid
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:
            continue
        for child in children:
            yield from family(int(child))


def cpu_seconds(pid):
    """User and system time of a process and its children, to the nanosecond: its CPU clock, where /proc/PID/stat has
    the same in hundredths of a second. Children that ended and were waited for stand in /proc/PID/stat only."""
    total = 0.0
    for one in family(pid):
        # The number that clock_getcpuclockid() gives for a process.
        total += time.clock_gettime((~one << 3) | 2)
        fields = pathlib.Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")
    return total


def memory(pid):
    """Resident memory of a process and its children: now, at most, and the part that is not a file. In MB."""
    wanted = {"VmRSS": "now_mb", "VmHWM": "peak_mb", "RssAnon": "anonymous_mb"}
    found = dict.fromkeys(wanted.values(), 0.0)
    for one in family(pid):
        for line in pathlib.Path(f"/proc/{one}/status").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name in wanted:
                found[wanted[name]] += int(rest.split()[0]) * 1024 / 1e6
    return {name: round(value, 1) for name, value in found.items()}


def load_average():
    return float(pathlib.Path("/proc/loadavg").read_text().split()[0])


def facts():
    cpu = {}
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        cpu.setdefault(name.strip(), value.strip())
    memory_kb = int(pathlib.Path("/proc/meminfo").read_text().split()[1])
    return {
        "cpu": cpu.get("model name", platform.machine()),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(memory_kb * 1024 / 1e9, 1),
        "kernel": platform.release(),
        "system": platform.freedesktop_os_release().get("PRETTY_NAME", ""),
    }


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def files(directory):
    """All plain files below, each inode once."""
    seen = set()
    for path in sorted(pathlib.Path(directory).rglob("*")):
        if path.is_file() and not path.is_symlink():
            inode = path.stat().st_ino
            if inode not in seen:
                seen.add(inode)
                yield path


def size(directory):
    """Bytes of the files below a directory, as they are long."""
    return sum(path.stat().st_size for path in files(directory))


def forget(directory):
    """Takes the files below a directory out of the page cache."""
    for path in files(directory):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)
