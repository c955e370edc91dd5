"""Dragon's YAML: one mapping of names to plain values."""

from __future__ import annotations

import os
import re
from importlib import import_module
from typing import Any, Dict

from ._telemetry import CONFIG

_LINE = re.compile(r"(?P<key>[A-Za-z_][A-Za-z0-9_.\-]*|\"[^\"]*\"|'[^']*')[ \t]*:(?:[ \t]+(?P<value>.*))?\Z")
_QUOTED = re.compile(r"\"(?P<double>[^\"\\]*)\"|'(?P<single>(?:[^']|'')*)'")
_EMPTY = ("", "~", "null", "Null", "NULL")


def load() -> Dict[str, Any]:
    """What the file that DRAGON_TELEMETRY_CONFIG names says; empty where it names none.

    Raises ``RuntimeError`` for a file that is not there or that is no such mapping.
    """
    path = os.environ.get(CONFIG)
    if path is None:
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        return parsed(text)
    except (OSError, ValueError) as error:
        raise RuntimeError(f"Failed to load telemetry config from {path}: {error}") from error


def parsed(text: str) -> Dict[str, Any]:
    """With PyYAML where it is installed, else what such a file needs of YAML: a name and a plain value on each line.

    Raises ``ValueError``.
    """
    try:
        yaml: Any = import_module("yaml")
    except ImportError:
        return _plain(text)
    try:
        read = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
    return _mapping(read)


def _mapping(read: Any) -> Dict[str, Any]:
    if read is None:
        return {}
    if not isinstance(read, dict):
        raise ValueError(f"expected names with values, such as `dump_dir: /scratch`, found a {type(read).__name__}")
    return read


def _plain(text: str) -> Dict[str, Any]:
    found: Dict[str, Any] = {}
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.rstrip()
        if not bare or bare.lstrip().startswith("#") or bare in ("---", "..."):
            continue
        matched = _LINE.match(bare)
        if matched is None:
            raise ValueError(f"line {number}: expected `name: value`, found {bare!r}; more of YAML needs PyYAML")
        key = matched["key"].strip("\"'")
        if key in found:
            raise ValueError(f"line {number}: {key!r} is there twice")
        found[key] = _value(matched["value"] or "", number)
    return found


def _value(given: str, line: int) -> Any:
    given = given.strip()
    quoted = _QUOTED.match(given)
    if quoted is not None and re.fullmatch(r"(?:\s+#.*)?", given[quoted.end() :]):
        return quoted["double"] if quoted["double"] is not None else quoted["single"].replace("''", "'")
    plain = re.split(r"(?:^|\s)#", given, maxsplit=1)[0].strip()
    if plain in _EMPTY:
        return None
    if plain[0] in "[]{}&*!|>%@`\"'," or ": " in plain or plain.endswith(":") or plain.startswith("- "):
        raise ValueError(f"line {line}: expected a plain value, found {plain!r}; more of YAML needs PyYAML")
    if plain in ("true", "True", "TRUE", "false", "False", "FALSE"):
        return plain.lower() == "true"
    for kind in (int, float):
        try:
            return kind(plain)
        except ValueError:
            continue
    return plain
