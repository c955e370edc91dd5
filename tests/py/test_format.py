"""Saved databases of format 1, read by somebody who knows docs/format and nothing else, answer what telem answers."""

import json
import pathlib

import format_v1
import pytest

FIXTURES = pathlib.Path(__file__).parents[2] / "fixtures" / "db" / "v1"


@pytest.mark.parametrize("name", ["killed", "closed", "described", "gpus", "gpus-killed"])
def test_a_reader_written_from_the_description_finds_every_bit(name):
    *expected, expected_meta = (FIXTURES / f"{name}.answers").read_text(encoding="utf-8").splitlines()
    lines, meta = format_v1.answers(FIXTURES / name)
    for at, (found, line) in enumerate(zip(lines, expected), start=1):
        assert found == line, f"line {at}"
    assert len(lines) == len(expected)
    assert meta == json.loads(expected_meta)


def test_the_fixtures_have_what_is_hard_to_read():
    runs = []
    for name in ("killed", "closed"):
        directory = FIXTURES / name
        for entry in format_v1.manifest(directory)["segments"]:
            content = (directory / entry["file"]).read_bytes()
            found, _ = format_v1.run_index(content, entry["tail"])
            runs += [(name, run) for run in found]
    assert {run["kind"] for _, run in runs} == {0, 1, 2, 3}
    assert {run["scale"] for _, run in runs} >= {None, 0, 1, 2, 3, 9}
    assert any(run["times"] is None for _, run in runs)
    assert any(run["constant"] and run["rows"] > 16 << 10 for _, run in runs)
    assert any(run["summary"] is None and run["kind"] == 2 for _, run in runs)
