"""A server of Metric Proxy's socket that keeps every byte, for the tests of its clients."""

import json
import os
import pathlib
import selectors
import socket
import tempfile
import threading

PATIENCE_S = 120


class Connection:
    def __init__(self, stream):
        self.stream, self.bytes, self.is_open = stream, b"", True

    @property
    def messages(self):
        """Whole messages as they came."""
        return [part.decode() for part in self.bytes.split(b"\0")[:-1]]

    @property
    def job(self):
        return json.loads(self.messages[0])["JobDesc"]

    def named(self, kind):
        return [json.loads(text)[kind] for text in self.messages if text.startswith('{"%s"' % kind)]

    @property
    def sums(self):
        """What the counters of the connection add up to, and gauges were last."""
        found = {}
        for one in self.named("Value"):
            ((kind, value),) = one["value"].items()
            found[one["name"]] = value["total"] if kind == "Gauge" else found.get(one["name"], 0) + value["value"]
        return found

    @property
    def docs(self):
        return {one["name"]: one["doc"] for one in self.named("Desc")}


class Recorder:
    """Listens at a path of its own; `pause` stops it reading, `go_away` is a server that is killed."""

    def __init__(self, path=None):
        self.folder = None if path else tempfile.TemporaryDirectory(prefix="proxy")
        self.path = path or os.path.join(self.folder.name, "proxy.socket")
        self.connections, self.unread, self.changed = [], [], threading.Condition()
        self.is_paused, self.ends = False, False
        self.listener = socket.socket(socket.AF_UNIX)
        pathlib.Path(self.path).unlink(missing_ok=True)
        self.listener.bind(self.path)
        self.listener.listen(128)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.wake_in, self.wake_out = os.pipe()
        self.selector.register(self.wake_in, selectors.EVENT_READ)
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self):
        while True:
            for key, _ in self.selector.select():
                if key.fd == self.wake_in:
                    os.read(self.wake_in, 1)
                    if self.ends:
                        return
                    for one in self.unread:
                        self.selector.register(one.stream, selectors.EVENT_READ, one)
                    self.unread.clear()
                elif key.fileobj is self.listener:
                    stream, _ = self.listener.accept()
                    one = Connection(stream)
                    with self.changed:
                        self.connections.append(one)
                        self.changed.notify_all()
                    self.selector.register(stream, selectors.EVENT_READ, one)
                elif self.is_paused:
                    self.selector.unregister(key.fileobj)
                    self.unread.append(key.data)
                else:
                    self._read(key.data)

    def _read(self, one):
        try:
            more = one.stream.recv(1 << 20)
        except ConnectionError:
            more = b""
        with self.changed:
            one.bytes += more
            if not more:
                one.is_open = False
                self.selector.unregister(one.stream)
                one.stream.close()
            self.changed.notify_all()

    def pause(self):
        """Stops reading. A message that arrives meanwhile wakes the thread once, and not again."""
        self.is_paused = True

    def go_on(self):
        self.is_paused = False
        os.write(self.wake_out, b"x")

    def go_away(self):
        self.ends = True
        os.write(self.wake_out, b"x")
        self.thread.join(PATIENCE_S)
        for one in self.connections:
            one.stream.close()
        self.listener.close()
        self.selector.close()

    def wait(self, condition, what="what was to come"):
        """Until `condition()` of what was recorded."""
        with self.changed:
            assert self.changed.wait_for(condition, PATIENCE_S), f"{what}: {[c.messages[-5:] for c in self.connections]}"

    def ended(self, count):
        """So many connections, when all of them have come and gone."""
        self.wait(lambda: len(self.connections) >= count and not any(one.is_open for one in self.connections))
        assert len(self.connections) == count, [one.messages[:2] for one in self.connections]
        return self.connections

    def await_bytes(self, text):
        self.wait(lambda: any(text in one.bytes for one in self.connections), text)

    def totals(self):
        found = {}
        for one in self.connections:
            for name, value in one.sums.items():
                found[name] = found.get(name, 0) + value
        return found

    def total(self, name):
        return self.totals().get(name, 0)
