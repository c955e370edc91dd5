"""QuestDB: line protocol over HTTP in, SQL by its REST interface out.

A measurement is a table there, its tags are symbols and its fields columns. So a metric of ours is a column, and the last
value of every series is a query of all tables.
"""

import functools
import json
import time
import urllib.parse

from . import machine
from .server import Failed, Server

APPLY_S = 240
PURGE_S = 120

#: What differs from the defaults beside places and ports: nothing is reported to anybody, and other protocols are off.
CONFIG = """
http.bind.to=127.0.0.1:{port}
http.min.enabled=false
pg.enabled=false
line.tcp.enabled=false
telemetry.enabled=false
"""
#: Where it is to become small: what is applied leaves the WAL after a second, by default after 30.
PURGE_SOON = "cairo.wal.purge.interval=1000\n"
#: What it says of each request is not kept.
LOG = "writers=stdout\nw.stdout.class=io.questdb.log.LogConsoleWriter\nw.stdout.level=ERROR\n"


class QuestDB(Server):
    name = "questdb"
    note = "its WAL is not synced; q6 is approximate, to 5 digits"
    refuses = {"recording": "a column cannot be called `Active(anon)`, as a line of /proc/meminfo is"}

    purges_soon = False

    @classmethod
    def binaries(cls):
        return [cls.name, "java"]

    def command(self):
        conf = self.directory / "conf"
        conf.mkdir(exist_ok=True)
        (conf / "server.conf").write_text(CONFIG.format(port=self.port) + (PURGE_SOON if self.purges_soon else ""))
        (conf / "log.conf").write_text(LOG)
        jar = self.tools.binary(self.name)
        return [self.tools.binary("java"), "-p", jar, "-m", "io.questdb/io.questdb.ServerMain", "-d", self.directory]

    def environment(self):
        # Java says it on stderr when it takes options from there.
        return {"JAVA_TOOL_OPTIONS": ""}

    def ready(self):
        return self.answers("/ping")

    def version(self):
        return f"{self.tools.versions[self.name]} on {self.tools.versions['java']}"

    def write_target(self, protocol):
        return self.port, "/write", ""

    def end_of_load(self):
        self._apply()
        return {"flushed": self.stop()}

    def prepare_to_merge(self):
        self.purges_soon = True

    def end_merged(self):
        """What connections wrote their WAL to stays until they are gone: it is purged after another start."""
        self._apply()
        self.stop()
        self.start()
        until = time.monotonic() + PURGE_S
        while any(machine.size(wal) for wal in (self.directory / "db").glob("*/wal*")):
            if time.monotonic() > until:
                raise Failed(f"{self.name} purges its WAL for more than {PURGE_S} s")
            time.sleep(0.2)
        self.process.settle()
        self.stop()

    def _apply(self):
        """Waits until all that is in WALs is in tables."""
        until = time.monotonic() + APPLY_S
        while waiting := self.rows("SELECT name, suspended FROM wal_tables() WHERE writerTxn < sequencerTxn"):
            if stopped := [name for name, suspended in waiting if suspended]:
                raise Failed(f"{self.name} does not go on with {', '.join(stopped)}: {self.process.tail()}")
            if time.monotonic() > until:
                raise Failed(f"{self.name} applies its WAL for more than {APPLY_S} s")
            time.sleep(0.02)

    def rows(self, sql):
        status, said = self.get(path(sql))
        if status != 200:
            raise Failed(f"{self.name}: {sql[:200]}: {status} {said[:500]!r}")
        return json.loads(said)["dataset"]

    def sizes(self):
        # Its configuration and its web console are no part of the data.
        return {"all": machine.size(self.directory / "db")}

    @functools.cache
    def tables(self):
        """Tags and fields of each table."""
        tables = {}
        for (table,) in self.rows("SELECT table_name FROM tables() ORDER BY table_name"):
            columns = self.rows(f"SELECT \"column\", type FROM table_columns('{table}')")
            tags = sorted(name for name, kind in columns if kind == "SYMBOL")
            tables[table] = tags, [name for name, kind in columns if kind in ("DOUBLE", "LONG")]
        return tables

    def request(self, question):
        table, _, field = question.metric.partition("_")
        within = f"timestamp >= {question.start_ms * 1_000} AND timestamp < {question.end_ms * 1_000}"
        at = "timestamp::long / 1000"
        averages = ", ".join(f'avg("{metric.partition("_")[2]}")' for metric in question.metrics)
        sql = {
            "q1": lambda: f"SELECT {at}, \"{field}\" FROM {table} WHERE host = '{question.host}' AND {within}",
            "q2": lambda: f'SELECT {at}, avg("{field}") FROM {table} WHERE {within} SAMPLE BY 1m',
            "q3": lambda: f'SELECT host, {at}, max("{field}") FROM {table} WHERE {within} SAMPLE BY 5m',
            "q4": lambda: f"SELECT {at}, {averages} FROM {table} WHERE {within} SAMPLE BY 1m",
            "q5": lambda: last_values(self.tables()),
            "q6": lambda: f'SELECT approx_percentile("{field}", 0.99, 5) FROM {table}',
            "q7": lambda: f'SELECT host, {at}, "{field}" FROM {table} WHERE "{field}" > 90',
            "q8": lambda: f'SELECT host, {at}, avg("{field}") FROM {table} WHERE {within} SAMPLE BY 1m',
        }[question.name]()
        return "GET", path(sql), None, {}

    def answer(self, question, body):
        rows = json.loads(body)["dataset"]
        match question.name:
            case "q1" | "q2":
                return dict(rows)
            case "q3" | "q7" | "q8":
                return {(host, at): value for host, at, value in rows}
            case "q4":
                metrics = question.metrics
                return {(metric, at): value for at, *values in rows for metric, value in zip(metrics, values)}
            case "q5":
                return last_answer(self.tables(), rows)
            case "q6":
                return {"p99": rows[0][0]}


def path(sql):
    return "/exec?" + urllib.parse.urlencode({"query": sql})


def last_values(tables):
    """The last row of each set of tags, of all tables: as wide as the widest of them."""
    width = [max(len(kind) for kind in kinds) for kinds in zip(*tables.values())]
    parts = []
    for table, (tags, fields) in tables.items():
        named = [*(f'"{tag}"' for tag in tags), *["null::symbol"] * (width[0] - len(tags))]
        valued = [*(f'"{field}"::double' for field in fields), *["null::double"] * (width[1] - len(fields))]
        latest = f"{table} LATEST ON timestamp PARTITION BY {', '.join(named[: len(tags)])}"
        parts.append(f"SELECT '{table}', {', '.join([*named, *valued])} FROM ({latest})")
    return " UNION ALL ".join(parts)


def last_answer(tables, rows):
    tags_most = max(len(tags) for tags, _ in tables.values())
    found = {}
    for table, *columns in rows:
        tags, fields = tables[table]
        pairs = [(tag, value) for tag, value in zip(tags, columns) if value is not None]
        for field, value in zip(fields, columns[tags_most:]):
            if value is not None:
                found[(f"{table}_{field}", *pairs)] = value
    return found
