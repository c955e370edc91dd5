"""The address of this job's service, from the environment that ``telem run`` gives to the job, or from the caller.

Finding it costs a look into the environment and into one small file; nothing is connected here.
"""

from __future__ import annotations

import json
import os
import socket
import urllib.parse
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple


class Address(NamedTuple):
    """One way to the service."""

    path: Optional[str]
    """Of its Unix socket; ``None`` for TCP."""
    host: str
    port: int
    prefix: str
    """The part before ``/api/...`` in its URL."""
    token: Optional[str]

    def __str__(self) -> str:
        return f"unix:{self.path}" if self.path else f"http://{self.host}:{self.port}{self.prefix}"


class Service:
    """A service as it was named. Its addresses are looked up anew for each connection: a service that was started
    again may have another port and another token."""

    def __init__(self, given: Optional[str], environment: Mapping[str, str]) -> None:
        names = ("TELEM_CONNECTION", "TELEM_SOCKET", "TELEM_URL", "TELEM_TOKEN")
        said: Dict[str, Optional[str]] = {name: environment.get(name) or None for name in names}
        if given is not None:
            said.update(TELEM_CONNECTION=None, TELEM_SOCKET=None, TELEM_URL=None)
            if given.startswith("unix:"):
                said["TELEM_SOCKET"] = given[len("unix:") :]
            elif "://" in given:
                said["TELEM_URL"] = given
            else:
                said["TELEM_CONNECTION"] = given
        self._file = _absolute_path(said["TELEM_CONNECTION"])
        self._socket = _absolute_path(said["TELEM_SOCKET"])
        self._url = said["TELEM_URL"]
        self._token = said["TELEM_TOKEN"]

    @property
    def key(self) -> Tuple[Optional[str], ...]:
        """Equal for the same service."""
        return (self._file, self._socket, self._url, self._token)

    @property
    def is_named(self) -> bool:
        return any((self._file, self._socket, self._url))

    def addresses(self) -> List[Address]:
        """The ways to try, best first: the socket, for which the kernel vouches, then TCP with the token."""
        file = self._read()
        found = []
        for path in (file.get("socket"), self._socket):
            if isinstance(path, str) and path:
                found.append(Address(path, "localhost", 0, "", None))
        for url in (file.get("url"), self._url):
            # A token goes to nobody but the service it belongs to.
            token = self._token or (file.get("token") if url == file.get("url") else None)
            address = _of_url(url, token)
            if address is not None:
                found.append(address)
        return list(dict.fromkeys(found))

    def node(self) -> str:
        """The node's name, as the service has it: else the short host name."""
        node = self._read().get("node")
        return node if isinstance(node, str) and node else socket.gethostname().split(".")[0].lower() or "localhost"

    def _read(self) -> Dict[str, Any]:
        """The connection file; empty if it does not exist or cannot be read."""
        if self._file is None:
            return {}
        try:
            with open(self._file, encoding="utf-8") as file:
                read = json.load(file)
        except (OSError, ValueError):
            return {}
        return read if isinstance(read, dict) else {}

    def __str__(self) -> str:
        return self._file or (f"unix:{self._socket}" if self._socket else str(self._url))


def of_environment(given: Optional[str]) -> Service:
    return Service(given, os.environ)


def absolute(given: str) -> str:
    """``given`` so that it means the same wherever the process goes."""
    if given.startswith("unix:"):
        return f"unix:{_absolute_path(given[len('unix:') :])}"
    return given if "://" in given else _absolute_path(given) or given


def _absolute_path(path: Optional[str]) -> Optional[str]:
    try:
        return os.path.abspath(path) if path else path
    except OSError:
        # The directory where the process is has been removed.
        return path


def _of_url(url: object, token: Optional[str]) -> Optional[Address]:
    if not isinstance(url, str):
        return None
    try:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            return None
        return Address(None, parts.hostname, parts.port or 80, parts.path.rstrip("/"), token)
    except ValueError:
        return None
