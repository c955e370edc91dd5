"""Dragon's ``OfflineTelemetry``: dumped databases, read and shown by the program ``telem``."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time
from typing import Any, Dict, List, Optional, Tuple

from .. import _program
from .._sql import TelemetryError
from . import _config
from ._telemetry import CONFIG

REQUIRED = ("dump_node", "dump_dir")
FOLDER = "telemetry"
"""Where Dragon puts dumps, below ``dump_dir``."""
MERGED = "offline_ts_"
"""How the names of merged databases begin, Dragon's and ours."""
PORT = 4242
"""Of Dragon's aggregator, unless ``aggregator_port`` says another."""
STOP_S = 20.0
"""How long a server may take to end, in seconds."""


class OfflineTelemetry:
    """Dumps of a job that has ended, in Grafana again.

    Reads the YAML that DRAGON_TELEMETRY_CONFIG names. Raises ``RuntimeError`` where that cannot be read, ``ValueError``
    without ``dump_node`` and ``dump_dir``, and ``FileNotFoundError``, ``NotADirectoryError`` or ``PermissionError`` where
    ``dump_dir`` is no directory that can be written.
    """

    def __init__(self) -> None:
        self.telemetry_cfg: Dict[str, Any] = _config.load()
        self._validate_config()

    def _validate_config(self) -> None:
        missing = [key for key in REQUIRED if not self.telemetry_cfg.get(key)]
        if missing:
            why = f"name them in the YAML file that {CONFIG} names"
            raise ValueError(f"Missing required telemetry configuration keys: {', '.join(missing)}. Please {why}.")
        folder = str(self.telemetry_cfg["dump_dir"])
        if not os.path.exists(folder):
            raise FileNotFoundError(f"Configured dump_dir does not exist: {folder}")
        if not os.path.isdir(folder):
            raise NotADirectoryError(f"Configured dump_dir is not a directory: {folder}")
        if not os.access(folder, os.W_OK):
            raise PermissionError(f"No write permission for dump_dir: {folder}")

    def merge_ts_dbs(self) -> Tuple[List[str], str]:
        """Reads all dumps of ``dump_dir`` with ``telem import``: the hosts that they are of, and the name of the saved
        database, a directory beside them. A second call makes it anew, so nothing is counted twice.

        Raises :class:`telem.TelemetryError`, a ``RuntimeError``, with what ``telem import`` says.
        """
        folder = pathlib.Path(self.telemetry_cfg["dump_dir"]) / FOLDER
        name = f"{MERGED}{os.environ.get('USER') or os.getuid()}_{socket.gethostname()}"
        dumps = sorted(
            path for path in folder.glob("*.db") if path.is_file() and not path.name.startswith(MERGED)
        ) if folder.is_dir() else []
        if not dumps:
            return [], name
        program = _program.find("OfflineTelemetry.merge_ts_dbs()")
        merged = folder / name
        fresh = folder / f"{name}.{os.getpid()}"
        try:
            _remove(fresh)
            command = [program, "-q", "import", *map(str, dumps), "-o", str(fresh)]
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
            if done.returncode != 0:
                raise TelemetryError(f"telem import ended with {done.returncode}: {_last(done.stderr)}")
            for line in done.stderr.splitlines():
                print(line, file=sys.stderr)
            _remove(merged)
            fresh.rename(merged)
        finally:
            _remove(fresh)
        return _hosts(program, merged), name

    def start_offline_telemetry(self, table_list: List[str], mt_db_name: str) -> None:
        """Shows the merged database as ``telem replay`` does, for Grafana and SQL, until it is interrupted."""
        _serve(self.telemetry_cfg, table_list, mt_db_name)


def start_offline_telemetry(table_list: List[str], mt_db_name: str) -> None:
    """As :meth:`OfflineTelemetry.start_offline_telemetry`, where Dragon has it."""
    OfflineTelemetry().start_offline_telemetry(table_list, mt_db_name)


def _serve(config: Dict[str, Any], hosts: List[str], name: str) -> None:
    if not hosts:
        raise TelemetryError(f"there are no dumps in {pathlib.Path(config['dump_dir']) / FOLDER}, so nothing to show")
    program = _program.find("start_offline_telemetry()")
    merged = pathlib.Path(config["dump_dir"]) / FOLDER / name
    port = config.get("aggregator_port") or PORT
    # In a group of its own: one Ctrl-C reaches it once, through us.
    process = subprocess.Popen([program, "replay", str(merged), "--listen", f"127.0.0.1:{port}"], start_new_session=True)
    handlers: Dict[int, Any] = {}
    try:
        for number in (int(signal.SIGTERM), int(signal.SIGHUP)):
            try:
                handlers[number] = signal.signal(number, lambda *_: process.terminate())
            except ValueError:
                # Not the main thread: the caller decides what signals do.
                break
        code = process.wait()
    except KeyboardInterrupt:
        code = 0
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        _end(process)
    if code not in (0, -signal.SIGTERM):
        raise TelemetryError(f"telem replay of {merged} ended with {code}")


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _hosts(program: str, merged: pathlib.Path) -> List[str]:
    text = "SELECT DISTINCT coalesce(host, node) AS host FROM samples ORDER BY host"
    command = [program, "-q", "sql", str(merged), text, "--format", "json"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        raise TelemetryError(f"telem sql ended with {done.returncode}: {_last(done.stderr)}")
    return [row["host"] for row in json.loads(done.stdout)]


def _last(said: str) -> str:
    return " ".join(said.strip().splitlines()[-3:]) or "it said nothing"


def _remove(folder: pathlib.Path) -> None:
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder)


def main(arguments: Optional[List[str]] = None) -> int:
    """What ``dragon-offline-telemetry`` does: merges the dumps and shows them."""
    parser = argparse.ArgumentParser(description="Shows dumps of Dragon's telemetry with telem.")
    parser.add_argument("-N", "--nodes", type=int, default=1, help="taken for Dragon's sake: one process shows all nodes")
    parser.parse_known_args(arguments)
    try:
        offline = OfflineTelemetry()
        began = time.monotonic()
        hosts, name = offline.merge_ts_dbs()
        print(f"merged {len(hosts)} hosts in {time.monotonic() - began:.1f} s: {', '.join(hosts)}", flush=True)
        offline.start_offline_telemetry(hosts, name)
    except (RuntimeError, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
