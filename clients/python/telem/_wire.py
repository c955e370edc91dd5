"""HTTP to the service, over its Unix socket or TCP: one connection, one request at a time.

Imported where a service is named: a process without telem does not pay for ``http.client``.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401: connecting to a host by name would import it, in the thread
import http.client
import os
import socket
from typing import List, NamedTuple, Optional

from . import _process
from ._service import Address, Service

CONNECT_S = 5.0
"""Longest that a connection may take to come about, in seconds."""
ANSWER_BYTES_MAX = 8 << 20
"""Longest answer to a put that is read: the service lists at most 4 MiB of refused points."""

Unreachable = (OSError, http.client.HTTPException)
"""What a request raises when the service is gone, or goes."""
Silent = socket.timeout
"""Which of them means that the service was reached, and then did not answer in time."""


class Away(ConnectionError):
    """Which of them means that nobody can be reached."""


class Answer(NamedTuple):
    status: int
    body: bytes
    headers: http.client.HTTPMessage


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.settimeout(self.timeout)
            self.sock.connect(self._path)
        except BaseException:
            self.close()
            raise


class Wire:
    """A connection to ``service`` that comes about with the first request and again after each failure."""

    def __init__(self, service: Service, timeout_s: float) -> None:
        self._service = service
        self._timeout_s = timeout_s
        self._connection: Optional[http.client.HTTPConnection] = None
        self._address: Optional[Address] = None

    @property
    def is_connected(self) -> bool:
        return self._connection is not None and self._connection.sock is not None

    def post(self, path: str, body: bytes, bytes_max: Optional[int] = ANSWER_BYTES_MAX) -> Answer:
        """Raises one of :data:`Unreachable`; then the next request connects anew."""
        try:
            connection = self._connection or self._connect()
            assert self._address is not None, "set by connecting"
            headers = {"Content-Type": "application/json"}
            if self._address.token:
                headers["Authorization"] = f"Bearer {self._address.token}"
            job = _process.job(os.environ)
            if job is not None:
                headers["X-Telem-Job"] = job
            connection.request("POST", self._address.prefix + path, body, headers)
            response = connection.getresponse()
            read = response.read() if bytes_max is None else response.read(bytes_max)
            if not response.isclosed():
                self.close()
            return Answer(response.status, read, response.headers)
        except BaseException:
            self.close()
            raise

    def _connect(self) -> http.client.HTTPConnection:
        failures: List[str] = []
        for address in self._service.addresses():
            connection = _connection_to(address)
            try:
                connection.connect()
            except OSError as error:
                failures.append(f"{address}: {error}")
                continue
            assert connection.sock is not None, "connected"
            connection.sock.settimeout(self._timeout_s)
            self._connection, self._address = connection, address
            return connection
        hint = "write http://HOST:PORT, unix:PATH or the path of a connection file"
        raise Away("; ".join(failures) or f"it names no service, or none any more; {hint}")

    def close(self) -> None:
        """Closes this process's end; of a connection that a fork shares, the other process keeps its own."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _connection_to(address: Address) -> http.client.HTTPConnection:
    if address.path is not None:
        return _UnixConnection(address.path, CONNECT_S)
    # Never through a proxy: http.client knows of none.
    return http.client.HTTPConnection(address.host, address.port, timeout=CONNECT_S)
