"""OpenTSDB's telnet protocol: plain sockets, netcat and collectd, writing to a running telem."""

import pathlib
import shutil
import socket
import subprocess
import threading
import time

import pytest

EPOCH = 1_700_000_000
PATIENCE_S = 120


def connect(served):
    host, port = served.address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=PATIENCE_S)


def talk(server, sent):
    """Sends everything, then its end; gives all that is answered until the connection ends."""
    with connect(server) as connection:
        sender = threading.Thread(target=lambda: (connection.sendall(sent), connection.shutdown(socket.SHUT_WR)))
        sender.start()
        answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        sender.join()
    return answer.decode()


def count(server, metric):
    return server.sql(f"SELECT count(*) AS n, sum(value) AS sum FROM samples WHERE metric = '{metric}'")[0]


def lines(metric, host, numbers):
    return "".join(f"put {metric} {EPOCH + n} {n} host={host} job=17\n" for n in numbers).encode()


def test_of_a_hundred_thousand_pipelined_puts_every_one_is_stored(served):
    sent = lines("many", "a", range(100_000))
    began = time.monotonic()
    assert talk(served, sent) == ""
    print(f"100,000 puts over one connection: {time.monotonic() - began:.2f} s")
    assert count(served, "many") == {"n": 100_000, "sum": sum(range(100_000))}


def test_many_clients_at_once_lose_nothing(served):
    clients = [
        threading.Thread(target=talk, args=(served, lines("many", f"n{client}", range(5_000)))) for client in range(20)
    ]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert count(served, "many")["n"] == 100_000


def test_every_bad_line_among_many_is_told_in_order(served):
    sent = b"".join(
        f"put m {EPOCH + n} {n if n % 10 else 'x' + str(n)} host=a\n".encode() for n in range(100_000)
    )
    told = talk(served, sent).splitlines()
    assert told == [f"put: invalid value: Invalid character 'x' in x{n}" for n in range(0, 100_000, 10)]
    assert count(served, "m")["n"] == 90_000


def test_a_slow_client_is_understood(served):
    with connect(served) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in lines("slow", "a", range(3)) + b"version\n":
            connection.send(bytes([byte]))
        assert connection.recv(1_000).startswith(b"net.opentsdb.tools 2.4.1")
    assert count(served, "slow")["n"] == 3


def test_a_request_that_comes_byte_by_byte_stays_a_request(served):
    with connect(served) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in b"GET /api/version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n":
            connection.send(bytes([byte]))
        answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    assert answer.startswith(b"HTTP/1.1 200 OK") and b"2.4.1" in answer


def test_lines_beyond_the_limit_and_garbage_cost_nothing_else(served):
    noise = bytes(byte for byte in range(32, 256)) * 100
    sent = b"x" * 1_000_000 + b"\n" + lines("m", "a", [1]) + noise + b"\n" + lines("m", "a", [2])
    told = talk(served, sent).splitlines()
    assert told == ["illegal argument: a line of more than 8192 bytes was not looked at"] * 2
    assert count(served, "m")["n"] == 2


def test_what_was_sent_before_the_end_is_stored(serve, tmp_path):
    served = serve(tmp_path / "db")
    with connect(served) as connection:
        # A client that is served: one that the server has not met yet when it is told to stop is not.
        connection.sendall(b"version\n")
        assert connection.recv(1 << 16)
        connection.sendall(lines("last", "a", range(10_000)))
        served.stop()
    assert count(serve(tmp_path / "db"), "last")["n"] == 10_000


@pytest.fixture(scope="module")
def debian(tmp_path_factory):
    """Brings programs of Debian packages, without installing them."""
    root = tmp_path_factory.mktemp("debian")

    def bring(*packages):
        if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
            pytest.skip("this is no Debian")
        for package in packages:
            fetched = subprocess.run(
                ["apt-get", "download", package], cwd=root, capture_output=True, text=True, timeout=PATIENCE_S
            )
            if fetched.returncode != 0:
                pytest.skip(f"{package} cannot be fetched: {fetched.stderr.strip()[-200:]}")
            (archive,) = root.glob(f"{package}_*.deb")
            subprocess.run(["dpkg-deb", "-x", archive, root / "files"], check=True)
        return root / "files"

    return bring


def netcat(debian, package, program):
    """As it is installed, else as Debian has it."""
    return shutil.which(f"nc.{program}") or debian(package) / "bin" / f"nc.{program}"


@pytest.mark.parametrize("program, options", [("openbsd", ["-N"]), ("traditional", ["-q", "2"])])
def test_netcat_writes_and_reads(served, debian, program, options):
    nc = netcat(debian, f"netcat-{program}", program)
    host, port = served.address.rsplit(":", 1)
    sent = lines("nc", "nid001", range(1_000)) + b"put nc\nversion\n"
    done = subprocess.run([nc, *options, host, port], input=sent, capture_output=True, timeout=PATIENCE_S)
    if done.returncode == 127:
        pytest.skip(f"it does not run here: {done.stderr.decode()}")
    assert done.stdout.startswith(
        b"put: illegal argument: not enough arguments (need least 4, got 1)\nnet.opentsdb.tools 2.4.1"
    ), done
    assert count(served, "nc")["n"] == 1_000


COLLECTD = """
Hostname "NID001.example"
FQDNLookup false
BaseDir "{place}"
PIDFile "{place}/pid"
PluginDir "{files}/usr/lib/collectd"
TypesDB "{files}/usr/share/collectd/types.db"
Interval 0.2
LoadPlugin load
LoadPlugin memory
LoadPlugin cpu
LoadPlugin write_tsdb
<Plugin write_tsdb>
  <Node>
    Host "{host}"
    Port "{port}"
    HostTags "job=17"
  </Node>
</Plugin>
"""


def test_collectd_writes_with_write_tsdb(served, debian, tmp_path):
    files = debian("collectd-core")
    host, port = served.address.rsplit(":", 1)
    config = tmp_path / "collectd.conf"
    config.write_text(COLLECTD.format(place=tmp_path, files=files, host=host, port=port))
    log = pathlib.Path(tmp_path / "log").open("w+")
    daemon = subprocess.Popen([files / "usr/sbin/collectd", "-f", "-C", config], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + PATIENCE_S
        found = []
        while len(found) < 20 and daemon.poll() is None and time.monotonic() < deadline:
            found = served.sql(
                "SELECT metric, count(*) AS n, min(tags['fqdn']) AS fqdn, min(tags['job']) AS job FROM samples GROUP BY metric"
            )
    finally:
        daemon.terminate()
        daemon.wait(PATIENCE_S)
        log.seek(0)
        said = log.read()
    if daemon.returncode == 127:
        pytest.skip(f"it does not run here: {said}")
    found = {row["metric"]: row for row in found}
    assert len(found) >= 20 and {"load.load.shortterm", "cpu.0.cpu.user", "memory.used.memory"} <= set(found), said
    assert {(row["fqdn"], row["job"]) for row in found.values()} == {("NID001.example", "17")}
    assert not any(word in said for word in ["failed", "error"]), said
