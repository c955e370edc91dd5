"""Saved databases of all formats, read by somebody who knows docs/format and nothing else, answer what telem answers."""

import json
import pathlib

import database_files
import pytest

FIXTURES = pathlib.Path(__file__).parents[2] / "fixtures" / "db"


SAVED = ["v1/killed", "v1/closed", "v1/described", "v1/gpus", "v1/gpus-killed", "v2/shifted"]
#: As they are written now, and whose answers they have.
LATEST = {
    "latest/killed": "v1/killed",
    "latest/closed": "v1/closed",
    "latest/described": "v1/described",
    "latest/shifted": "v2/shifted",
}


@pytest.mark.parametrize("name", [*SAVED, *LATEST])
def test_a_reader_written_from_the_description_finds_every_bit(name):
    answers = FIXTURES / f"{LATEST.get(name, name)}.answers"
    *expected, expected_meta = answers.read_text(encoding="utf-8").splitlines()
    lines, meta = database_files.answers(FIXTURES / name)
    for at, (found, line) in enumerate(zip(lines, expected), start=1):
        assert found == line, f"line {at}"
    assert len(lines) == len(expected)
    assert meta == json.loads(expected_meta)


def test_the_fixtures_have_what_is_hard_to_read():
    runs = []
    for name in ("v1/killed", "v1/closed", "v2/shifted"):
        directory = FIXTURES / name
        for entry in database_files.manifest(directory)["segments"]:
            content = (directory / entry["file"]).read_bytes()
            found, _ = database_files.run_index(content, entry["tail"])
            runs += [(name, run) for run in found]
    assert {run["kind"] for _, run in runs} == {0, 1, 2, 3}
    assert {run["scale"] for _, run in runs} >= {None, 0, 1, 2, 3, 9}
    assert {run["shift"] for _, run in runs} >= {0, 4, 8, 9, 11, 62}
    assert any(run["times"] is None for _, run in runs)
    assert any(run["constant"] and run["rows"] > 16 << 10 for _, run in runs)
    assert any(run["summary"] is None and run["kind"] == 2 for _, run in runs)
