"""The benchmarks beside other databases: where those come from, and that the questions of a dashboard are asked at all."""

import dataclasses
import json
import pathlib
import re
import struct
import subprocess
import sys

import pytest

from conftest import TELEM

BENCHES = pathlib.Path(__file__).resolve().parents[2] / "benches"
sys.path.insert(0, str(BENCHES / "peers"))

from bench import __main__ as run  # noqa: E402
from bench import binaries, questdb, remote_write, report  # noqa: E402
from bench.questdb import QuestDB  # noqa: E402
from bench.questions import TEXT, questions  # noqa: E402
from bench.server import Failed  # noqa: E402

#: A `go` that builds a program which says its package, and notes how it was called.
GO = """#!/bin/sh
echo "$@" >> {calls}
case "$1 $2" in
"mod download") echo '{{"Dir": "{folder}"}}' ;;
"build -C")
    while [ "$1" != -o ]; do shift; done
    printf '#!/bin/sh\\necho %s\\n' "$3" > "$2"
    chmod +x "$2" ;;
"env GOVERSION") printf 'go1.99\\n1\\n' ;;
esac
"""


@pytest.fixture
def go(tmp_path, monkeypatch):
    """Puts a `go` on the path and another cache in place; the text of a script is what `go` is."""
    monkeypatch.setattr(binaries, "CACHE", tmp_path / "cache")
    calls = tmp_path / "calls"

    def script(text):
        path = tmp_path / "go"
        path.write_text(text.format(calls=calls, folder=tmp_path))
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        return calls

    return script


def test_a_database_is_built_once_from_the_release_of_its_module(go):
    calls = go(GO)
    for _ in range(2):
        found = binaries.Binaries()
        program = found.binary("victoria-metrics")
    assert subprocess.run([program], capture_output=True, text=True).stdout == "./app/victoria-metrics\n"
    module = binaries.MODULES["victoria-metrics"]
    assert found.versions == {"victoria-metrics": f"{module.release}, built by go1.99"}
    assert calls.read_text().count("build -C") == 1
    assert f"{module.path}@{module.version}" in calls.read_text()


def test_another_release_is_built_beside_it_and_said(go):
    calls = go(GO)
    found = binaries.Binaries(releases={"prometheus": "v0.313.5"})
    assert found.binary("prometheus") != binaries.Binaries().binary("prometheus")
    assert found.versions == {"prometheus": "v0.313.5, built by go1.99"}
    assert calls.read_text().count("build -C") == 2


def test_a_module_that_cannot_be_had_is_an_error_that_names_it_and_what_else_there_is(go):
    go("#!/bin/sh\necho no such module >&2\nexit 1\n")
    with pytest.raises(Failed, match="prometheus v0.316.0.*--source debian.*no such module"):
        binaries.Binaries().binary("prometheus")


def test_without_go_databases_are_debians_packages(go, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert binaries.Binaries().source == "debian"
    with pytest.raises(Failed, match="there is no `go`"):
        binaries.Binaries(source="go").binary("prometheus")


@pytest.mark.parametrize("given", [{"releases": {"mysql": "v1"}}, {"paths": {"mysql": "/bin/true"}}])
def test_an_unknown_database_is_an_error_that_names_those_there_are(given):
    with pytest.raises(Failed, match="mysql.*victoria-metrics, prometheus.*questdb"):
        binaries.Binaries(**given)


#: An `mvn` that writes a jar which says what was asked for, and notes how it was called; and a `java` of some version.
MVN = """#!/bin/sh
echo "$@" >> {calls}
for option; do case "$option" in -Dartifact=*) artifact=${{option#*=}} ;; -DoutputDirectory=*) out=${{option#*=}} ;; esac; done
echo "$artifact" > "$out/questdb-${{artifact##*:}}.jar"
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Puts programs on the path, which has nothing else but the shell's; the cache is another one."""
    monkeypatch.setattr(binaries, "CACHE", tmp_path / "cache")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()

    def write(name, text):
        path = tmp_path / "bin" / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    return write


def test_a_jar_is_fetched_once_at_its_release_and_another_is_said(program, tmp_path):
    calls = tmp_path / "calls"
    program("mvn", MVN.format(calls=calls))
    jar = binaries.JARS["questdb"]
    for _ in range(2):
        found = binaries.Binaries()
        assert found.binary("questdb").read_text() == f"{jar.artifact}:{jar.version}\n"
    assert found.versions == {"questdb": jar.release}
    assert len(calls.read_text().splitlines()) == 1
    other = binaries.Binaries(releases={"questdb": "9.3.3"})
    assert other.binary("questdb").read_text() == f"{jar.artifact}:9.3.3\n"
    assert other.versions == {"questdb": "9.3.3"}


def test_without_maven_a_jar_is_an_error_that_says_how_it_can_be_had(program):
    with pytest.raises(Failed, match="questdb 9.*no `mvn`.*--binary NAME=JAR"):
        binaries.Binaries().binary("questdb")


def test_a_jar_of_ones_own_is_taken_as_it_is(tmp_path):
    jar = tmp_path / "mine.jar"
    jar.write_text("a jar")
    assert binaries.Binaries(paths={"questdb": jar}).binary("questdb") == jar
    with pytest.raises(Failed, match="no jar"):
        binaries.Binaries(paths={"questdb": tmp_path}).binary("questdb")


def test_java_is_the_one_that_is_there_if_it_is_new_enough_and_debians_otherwise(program):
    java = program("java", "#!/bin/sh\necho 'openjdk version \"21.0.2\" 2024-01-16' >&2\n")
    found = binaries.Binaries()
    assert (found.binary("java"), found.versions) == (java, {"java": "Java 21"})
    program("java", "#!/bin/sh\necho 'java version \"1.8.0_402\"' >&2\n")
    program("apt-get", f"#!/bin/sh\necho \"$2 $3\" >&2\nexit 1\n")
    with pytest.raises(Failed, match="openjdk-17-jre-headless"):
        binaries.Binaries().binary("java")


def test_links_of_an_unpacked_package_lead_to_its_own_files(tmp_path):
    (tmp_path / "etc/java").mkdir(parents=True)
    (tmp_path / "etc/java/security").write_text("its own")
    (tmp_path / "usr/lib").mkdir(parents=True)
    (tmp_path / "usr/lib/conf").symlink_to("/etc/java")
    (tmp_path / "usr/lib/other").symlink_to("/nowhere/else")
    binaries.within(tmp_path)
    assert (tmp_path / "usr/lib/conf/security").read_text() == "its own"
    assert (tmp_path / "usr/lib/other").readlink() == pathlib.Path("/nowhere/else")


def test_a_database_that_cannot_be_had_is_left_out_and_said_unless_it_was_asked_for(program):
    servers, libraries = run.chosen(None)
    assert (QuestDB in servers, libraries) == (True, ["clickhouse"])
    servers, libraries = run.chosen("questdb")
    assert (servers, libraries) == ([QuestDB], [])
    with pytest.raises(Failed, match="mysql.*clickhouse.*questdb"):
        run.chosen("questdb,mysql")
    found, missing = run.there(servers, binaries.Binaries(source="debian"), all_wanted=False)
    assert (found, [one["peer"] for one in missing]) == ([], ["questdb"])
    with pytest.raises(Failed, match="no `mvn`"):
        run.there(servers, binaries.Binaries(source="debian"), all_wanted=True)


TABLES = {"cpu": (["host"], ["user", "system"]), "gpu": (["gpu", "host"], ["watts"])}


def test_questdb_is_asked_for_the_last_row_of_each_set_of_tags_of_all_tables_at_once():
    sql = questdb.last_values(TABLES)
    assert sql == (
        "SELECT 'cpu', \"host\", null::symbol, \"user\"::double, \"system\"::double "
        "FROM (cpu LATEST ON timestamp PARTITION BY \"host\") UNION ALL "
        "SELECT 'gpu', \"gpu\", \"host\", \"watts\"::double, null::double "
        "FROM (gpu LATEST ON timestamp PARTITION BY \"gpu\", \"host\")"
    )
    rows = [["cpu", "nid0", None, 1.5, None], ["gpu", "3", "nid0", 300.0, None]]
    assert questdb.last_answer(TABLES, rows) == {
        ("cpu_user", ("host", "nid0")): 1.5,
        ("gpu_watts", ("gpu", "3"), ("host", "nid0")): 300.0,
    }


@dataclasses.dataclass
class Said:
    """What QuestDB says to a question of the benchmark, and its normal form."""

    rows: list
    normal: dict


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("q1", Said([[1_000, 2.5]], {1_000: 2.5})),
        ("q3", Said([["nid0", 60_000, 9.0]], {("nid0", 60_000): 9.0})),
        ("q4", Said([[60_000, 1.0, 2.0, 3.0, 4.0, 5.0]], {("cpu_user", 60_000): 1.0, ("cpu_irq", 60_000): 5.0})),
        ("q6", Said([[99.5]], {"p99": 99.5})),
    ],
)
def test_answers_of_questdb_take_the_normal_form(name, said, tmp_path):
    server = QuestDB(None, tmp_path / "questdb")
    question = next(one for one in questions(20, 300) if one.name == name)
    found = server.answer(question, json.dumps({"dataset": said.rows}))
    assert {key: found[key] for key in said.normal} == said.normal


def test_every_question_is_one_request_to_questdb(tmp_path, monkeypatch):
    monkeypatch.setattr(QuestDB, "tables", lambda self: TABLES)
    server = QuestDB(None, tmp_path / "questdb")
    paths = [server.request(question)[1] for question in questions(20, 300)]
    assert len(set(paths)) == len(TEXT)
    assert all(path.startswith("/exec?query=SELECT") for path in paths)


def loaded(peer, cpu_s):
    """What `load_embedded` measures of a library."""
    load = {"samples": 1_000_000, "cpu_s": cpu_s, "seconds": 1.0}
    sizes = {"arrived": 3_000_000, "sorted": 1_500_000}
    memory = {"now_mb": 10, "peak_mb": 20}
    merge = {"cpu_s": 0.1, "seconds": 0.1}
    return {peer: {"load": load, "merge": merge, "memory": memory, "bytes": sizes, "lossless": {"same": True}}}


@pytest.mark.parametrize(("ours", "met"), [(0.05, "yes"), (0.09, "**no**")])
def test_arrays_in_process_stand_in_one_table_and_the_aim_is_beside_duckdb(ours, met):
    embedded = loaded("telem", ours) | loaded("duckdb", 0.1) | loaded("clickhouse", 0.04)
    # SQLite keeps nothing sorted: its bytes are one number.
    embedded |= {"sqlite": loaded("sqlite", 1)["sqlite"] | {"bytes": 66_000_000}}
    del embedded["sqlite"]["merge"]
    embedded["sqlite"]["asked"] = {"cpu_s": 0.1, "walls": [0.1], "values": 1}
    figures = {"ingest": [], "sizes": [], "asked": [], "cold": [], "client": {}, "answers": {}, "embedded": embedded}
    rows, lost = report.summary(figures)
    row = next(line for line in rows.splitlines() if line.startswith("| arrays in process"))
    assert "0.040 (ClickHouse (chDB))" in row
    assert row.endswith(f"| <= 0.6x DuckDB | {met} |")
    assert len(lost) == 1
    table = "\n".join(report.taking_in(figures, report.Figures(figures)))
    taken = re.findall(r"^\| ([^|]+) \| arrays, in process \| ([\d.]+) \|", table, re.MULTILINE)
    assert taken == [("telem", f"{ours:.3f}"), ("DuckDB", "0.10"), ("ClickHouse (chDB)", "0.040")]
    sizes = "\n".join(report.on_disk(figures, report.Figures(figures)))
    assert "| telem, floats appended in process, merged (flushed) | 1.50 (3.00) |" in sizes
    assert "| SQLite, Dragon's schema | 66.0 |" in sizes


def fields(message):
    """A protobuf message: numbers of fields with their bytes, or numbers."""
    at, found = 0, []

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            found.append((key >> 3, varint()))
        else:
            length = 8 if key & 7 == 1 else varint()
            found.append((key >> 3, message[at : at + length]))
            at += length
    return found


def literals(packed):
    """What Snappy packed in nothing but literals."""
    at, out = 0, b""
    while packed[at] >= 0x80:
        at += 1
    at += 1
    while at < len(packed):
        assert packed[at] == 61 << 2, "a literal with its length in two bytes"
        (length,) = struct.unpack_from("<H", packed, at + 1)
        out += packed[at + 3 : at + 4 + length]
        at += 4 + length
    return out


def test_remote_write_says_labels_in_order_values_and_times():
    labels = remote_write.labels({"host": "a", "__name__": "cpu"})
    many = 5_000
    series = remote_write.series(labels, [remote_write.sample(at / 4, 1_451_606_400_000 + at) for at in range(many)])
    ((number, message),) = fields(literals(remote_write.body(series)))
    parts = fields(message)
    assert number == 1
    assert [fields(part) for kind, part in parts if kind == 1] == [[(1, b"__name__"), (2, b"cpu")], [(1, b"host"), (2, b"a")]]
    samples = [dict(fields(part)) for kind, part in parts if kind == 2]
    assert [(struct.unpack("<d", one[1])[0], one[2]) for one in samples] == [
        (at / 4, 1_451_606_400_000 + at) for at in range(many)
    ]


def test_the_questions_of_a_dashboard_are_asked_and_their_answers_are_the_same_of_two_binaries():
    command = [sys.executable, BENCHES / "dashboard.py", TELEM, TELEM, "--hosts", "9", "--questions", "5", "--rounds", "1"]
    done = subprocess.run([*map(str, command), "--clients", "2", "--seconds", "0.1"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [line.split("|")[1].strip() for line in done.stdout.splitlines() if line.startswith("| `")]
    assert rows[:3] == ["`single-groupby-1-1-1`", "`single-groupby-5-8-1`", "`cpu-max-all-8`"]
    assert {"`lastpoint`", "`high-cpu-1`", "`double-groupby-all`"} <= set(rows)
    assert "| questions a second |" in done.stdout


def test_the_questions_of_a_dashboard_are_asked_while_samples_come_in():
    command = [sys.executable, BENCHES / "dashboard.py", TELEM, "--hosts", "9", "--questions", "5", "--rounds", "1"]
    command += ["--writing", "2000", "--cores", "1", "--clients", "2", "--seconds", "0.1"]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [line.split("|")[1].strip() for line in done.stdout.splitlines() if line.startswith("| `")]
    assert len(rows) == 8
    assert not any("last" in row for row in rows)
    assert "| questions a second |" in done.stdout


def test_what_a_release_is_optimised_for_works(tmp_path):
    """./release measures telem with it."""
    command = [BENCHES / "train.py", TELEM, "--quick"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []
