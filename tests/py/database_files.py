"""A reader of format 1 written from docs/format alone: Parquet by pyarrow, everything else by struct.

It shares no code with telem, checks every checksum and every promise on its way, and is no tool: it reads all of a
database into memory. `database(directory)` gives the answers of one.
"""

import json
import math
import pathlib
import struct
import zlib

import pyarrow
import pyarrow.parquet

BLOCK = 16 << 10
ALL = 1 << 64
EPOCH_SCALES = range(19)


def signed64(number):
    """A sum modulo 2^64 as a signed number."""
    number %= ALL
    return number - ALL if number >= ALL // 2 else number


def bits(value):
    """What makes two values the same: type and all bits."""
    return ("i", value) if isinstance(value, int) else ("f", struct.unpack("<Q", struct.pack("<d", value))[0])


# --- the manifest -----------------------------------------------------------------------------------------------------


def manifest(directory):
    line, body = (directory / "MANIFEST").read_bytes().split(b"\n", 1)
    magic, version, crc, length = line.split(b" ")
    assert (magic, version) == (b"telem-database", b"1")
    assert len(body) == int(length) and f"{zlib.crc32(body):08x}" == crc.decode()
    found = json.loads(body)
    assert found["format"] == 1
    return found


def named(directory, entry):
    content = (directory / entry["file"]).read_bytes()
    assert len(content) == entry["bytes"] and zlib.crc32(content) == entry["crc32"], entry["file"]
    return content


# --- series -----------------------------------------------------------------------------------------------------------


def series_keys(directory, entries):
    keys = []
    for entry in entries:
        content = named(directory, entry)
        assert entry["first_id"] == len(keys)
        rows = pyarrow.parquet.read_table(pyarrow.BufferReader(content)).to_pylist()
        assert len(rows) == entry["count"]
        for row in rows:
            assert row["id"] == len(keys)
            keys.append((row["metric"], dict(row["tags"])))
    return keys


def canonical(key):
    metric, tags = key
    return metric.encode(), [(name.encode(), value.encode()) for name, value in sorted(tags.items(), key=lambda tag: tag[0].encode())]


# --- the run index ----------------------------------------------------------------------------------------------------


class Body:
    """The numbers of a run index, one after the other."""

    def __init__(self, content):
        self.content, self.at = content, 0

    def byte(self):
        self.at += 1
        return self.content[self.at - 1]

    def unsigned(self):
        number = shift = 0
        while True:
            byte = self.byte()
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    def signed(self):
        number = self.unsigned()
        return number >> 1 if number % 2 == 0 else -(number >> 1) - 1

    def double(self):
        self.at += 8
        return struct.unpack_from("<d", self.content, self.at - 8)[0]


def shared_times(body):
    lists = []
    for _ in range(body.unsigned()):
        count = body.unsigned()
        times, step = [body.signed()], 0
        while len(times) < count:
            change = body.signed()
            again = body.unsigned() if change == 0 else 1
            step = signed64(step + change)
            for _ in range(again):
                times.append(signed64(times[-1] + step))
        assert len(times) == count and times == sorted(set(times))
        lists.append(times)
    return lists


def summary(body, kind, scale, shift, constant):
    if kind == 2:
        values = [body.double() for _ in range(1 if constant else 4)]
        first, last, least, greatest = values * 4 if constant else values
    else:
        first = last = least = greatest = body.signed()
        if not constant:
            last = signed64(first + body.signed())
            least = signed64(first - body.unsigned())
            greatest = signed64(first + body.unsigned())
        if kind == 1:
            first, last, least, greatest = (value / 10.0**scale for value in (first, last, least, greatest))
        first, last, least, greatest = (value << shift if shift else value for value in (first, last, least, greatest))
    total = body.signed() << shift if kind == 0 else body.double()
    return {"first": first, "last": last, "least": least, "greatest": greatest, "sum": total}


def runs(body, lists):
    found = []
    lowest = row_after = first_before = step_before = 0
    for _ in range(body.unsigned()):
        run = {"series": lowest + body.unsigned(), "row": row_after + body.signed(), "rows": body.unsigned()}
        flags = body.byte()
        assert flags < 128
        times, kind = flags & 3, flags >> 2 & 3
        run["kind"], run["constant"], run["scale"] = kind, bool(flags & 16), body.byte() if kind == 1 else None
        run["shift"] = body.byte() if flags & 64 else 0
        assert not run["shift"] or (kind == 0 and run["shift"] <= 62)
        if times == 0:
            first = signed64(first_before + body.signed())
            step = 0
            if run["rows"] > 1:
                step = step_before = signed64(step_before + body.signed())
            run["times"] = [first + at * step for at in range(run["rows"])]
        elif times == 1:
            number, start = body.unsigned(), body.unsigned()
            run["times"] = lists[number][start : start + run["rows"]]
            first = run["times"][0]
        else:
            assert times == 2
            first = signed64(first_before + body.signed())
            run["times"], run["ends"] = None, (first, first + body.unsigned())
        run["summary"] = summary(body, kind, run["scale"], run["shift"], run["constant"]) if flags & 32 else None
        lowest, row_after, first_before = run["series"] + 1, run["row"] + run["rows"], first
        found.append(run)
    assert body.at == len(body.content)
    return sorted(found, key=lambda run: run["row"])


def run_index(content, start):
    """The runs of a segment, by row; every block of the data before the index is checked."""
    head = struct.Struct("<8sIQIII")
    magic, version, data_bytes, blocks, body_bytes, packed_bytes = head.unpack_from(content, start)
    assert (magic, data_bytes, blocks) == (b"TELEMRUN", start, -(-start // BLOCK))
    at = start + head.size
    checksums = struct.unpack_from(f"<{blocks}I", content, at)
    for block, expected in enumerate(checksums):
        assert zlib.crc32(content[block * BLOCK : min(start, (block + 1) * BLOCK)]) == expected
    at += 4 * blocks
    packed = content[at : at + packed_bytes]
    at += packed_bytes
    assert struct.unpack_from("<I", content, at)[0] == zlib.crc32(content[start:at])
    body = Body(pyarrow.decompress(packed, decompressed_size=body_bytes, codec="zstd", asbytes=True))
    found = runs(body, shared_times(body))
    assert version == (2 if any(run["shift"] for run in found) else 1)
    return found, at + 4 - start


# --- segments ---------------------------------------------------------------------------------------------------------


def value_of(number, scale, double):
    if double is not None:
        return double, 2
    if scale is None:
        return number, 0
    if scale < 0:
        assert scale >= -62 and -(1 << 63) <= number << -scale < 1 << 63
        return number << -scale, 0
    assert scale in EPOCH_SCALES
    return number / 10.0**scale, 1


def summary_of(values):
    """As docs/format says: sums in the order of rows, of equal values the first."""
    least = greatest = values[0]
    total = values[0]
    for value in values[1:]:
        total += value
        least = value if value < least else least
        greatest = value if value > greatest else greatest
    return {"first": values[0], "last": values[-1], "least": least, "greatest": greatest, "sum": total}


def check_run(run, rows, keys):
    """Holds a run of the index against its rows in the columns; gives back its samples."""
    assert {series for series, *_ in rows} == {run["series"]} and run["series"] < len(keys)
    times = [time for _, time, *_ in rows]
    assert times == sorted(set(times))
    if run["times"] is None:
        assert (times[0], times[-1]) == run["ends"]
    else:
        assert times == run["times"]
    values, kinds = zip(*(value_of(*row[2:]) for row in rows))
    scales = {row[3] for row in rows}
    if run["kind"] == 3:
        assert len(set(kinds)) > 1 or len(scales) > 1
    else:
        assert set(kinds) == {run["kind"]} and (run["kind"] != 1 or scales == {run["scale"]})
        assert run["kind"] != 0 or scales == ({-run["shift"]} if run["shift"] else {None})
    has_nan = any(math.isnan(value) for value in values if isinstance(value, float))
    assert (run["summary"] is None) == (run["kind"] == 3 or has_nan)
    if run["summary"] is not None:
        expected = summary_of(values)
        assert {name: bits(value) for name, value in run["summary"].items()} == {name: bits(value) for name, value in expected.items()}
        assert run["constant"] == (len({bits(value) for value in values}) == 1)
    return [(time, value) for time, value in zip(times, values)]


def segment(directory, entry, found, keys):
    content = named(directory, entry)
    assert zlib.crc32(content[entry["tail"] :]) == entry["tail_crc32"]
    file = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(content))
    label = {name.decode(): text.decode() for name, text in file.metadata.metadata.items()}
    index, index_bytes = run_index(content, entry["tail"])
    shifts = any(run["shift"] for run in index)
    assert label["telem.format"] == ("2" if shifts else "1") and label["telem.node"] == found["node"]
    assert label["telem.sequence"] == f"{entry['sequence_min']}-{entry['sequence_max']}"
    assert label["telem.window"] == f"{entry['window_start']}..{entry['window_end']}"
    assert label["telem.rows"] == str(entry["rows"])
    assert label["telem.runs"] == f"{entry['tail']}+{index_bytes}"
    table = file.read()
    assert table.schema.field("ts").type == pyarrow.timestamp("us", tz="UTC")
    columns = [table.column("series"), table.column("ts").cast(pyarrow.int64()), *(table.column(name) for name in ("int", "scale", "float"))]
    rows = list(zip(*(column.to_pylist() for column in columns)))
    assert len(rows) == entry["rows"] == sum(run["rows"] for run in index)
    times = [row[1] for row in rows]
    assert (min(times), max(times)) == (entry["first"], entry["last"])
    assert entry["window_start"] <= min(times) and max(times) < entry["window_end"]
    order = [canonical(keys[run["series"]]) for run in index]
    assert order == sorted(order)
    at = 0
    for run in index:
        assert run["row"] == at
        at += run["rows"]
        yield run["series"], check_run(run, rows[run["row"] : at], keys)


# --- the WAL ----------------------------------------------------------------------------------------------------------


class Fields:
    def __init__(self, payload):
        self.payload, self.at = payload, 0

    def take(self, layout):
        found = struct.unpack_from("<" + layout, self.payload, self.at)
        self.at += struct.calcsize("<" + layout)
        return found

    def text(self):
        (length,) = self.take("H")
        self.at += length
        return self.payload[self.at - length : self.at].decode()

    def ended(self):
        return self.at == len(self.payload)


def frames(path, number, known):
    """Type and payload of every whole frame."""
    content = path.read_bytes()
    magic, version, found, salt, before, crc = struct.unpack_from("<8sIIIII", content)
    # In version 1 the number is longer, and the upper half of a small one is 0.
    assert (magic, found) == (b"TELEMWAL", number) and version == (2 if salt else 1)
    assert crc == zlib.crc32(content[:24]) and before <= known
    at = 28
    while at < len(content):
        length, crc, kind = struct.unpack_from("<IIB", content, at)
        payload = content[at + 9 : at + 9 + length]
        assert crc == zlib.crc32(struct.pack("<IB", length, kind) + payload, salt)
        at += 9 + length
        yield kind, payload


def logged_samples(kind, payload):
    fields = Fields(payload)
    (count,) = fields.take("I")
    (period,) = fields.take("I") if kind == 4 else (count,)
    series = fields.take(f"{period}I")
    (form,) = fields.take("B")
    assert period <= count and form in (0, 1, 2)
    if form == 2:
        ticks = [fields.take("Iq") for _ in range(*fields.take("I"))]
        times = [time for samples, time in ticks for _ in range(samples)]
    else:
        times = fields.take(f"{count}q") if form == 0 else fields.take("q") * count
    assert len(times) == count
    patterns = fields.take(f"{count}Q")
    types = fields.take(f"{-(-count // 8)}B")
    assert fields.ended()
    for at in range(count):
        is_int = types[at // 8] >> (at % 8) & 1
        raw = struct.pack("<Q", patterns[at])
        yield series[at % period], times[at], struct.unpack("<q" if is_int else "<d", raw)[0]


def change_meta(meta, change):
    (kind, what), *rest = change.items()
    assert not rest
    if kind == "metric":
        meta["metrics"][what["name"]] = what["meta"]
    elif kind == "job":
        meta["job"] = what
    elif kind == "job_interval":
        place = (what["begin"], what["slot"])
        others = [one for one in meta.get("job_intervals", []) if (one["begin"], one["slot"]) != place]
        meta["job_intervals"] = sorted([*others, what], key=lambda one: (one["begin"], one["slot"]))
    else:
        place = (what["start"], what["tsuid"])
        meta["annotations"] = [note for note in meta["annotations"] if (note["start"], note["tsuid"]) != place]
        if kind == "annotate":
            meta["annotations"].append(what)
            meta["annotations"].sort(key=lambda note: (note["start"], note["tsuid"] or ""))


# --- all of it --------------------------------------------------------------------------------------------------------


def database(directory):
    """Keys by id, samples by id and time, and metadata."""
    directory = pathlib.Path(directory)
    found = manifest(directory)
    keys = series_keys(directory, found["series"])
    meta = {"annotations": [], "job": None, "metrics": {}}
    if found["meta"]:
        meta = json.loads(named(directory, found["meta"]))
    samples = {}
    for entry in sorted(found["segments"], key=lambda entry: entry["sequence_max"]):
        for series, run in segment(directory, entry, found, keys):
            samples.setdefault(series, {}).update(run)
    for path in sorted((directory / "wal").glob("*.wal")):
        number = int(path.stem)
        if number < found["first_wal"]:
            continue
        for kind, payload in frames(path, number, len(keys)):
            if kind == 1:
                fields = Fields(payload)
                (number_of_series,) = fields.take("I")
                metric = fields.text()
                (tags,) = fields.take("H")
                key = metric, {fields.text(): fields.text() for _ in range(tags)}
                assert fields.ended() and number_of_series == len(keys)
                keys.append(key)
            elif kind in (2, 4):
                for series, time, value in logged_samples(kind, payload):
                    assert series < len(keys)
                    samples.setdefault(series, {})[time] = value
            else:
                assert kind == 3
                change_meta(meta, json.loads(payload))
    return keys, samples, meta


def answers(directory):
    """The lines of `fixtures/db/v1/*.answers`, but for the last, and the metadata."""
    keys, samples, meta = database(directory)
    named_keys = {}
    for series, (metric, tags) in enumerate(keys):
        key = {"id": series, "metric": metric, "tags": tags}
        named_keys[json.dumps(key, ensure_ascii=False, sort_keys=True, separators=(",", ":"))] = series
    lines = []
    for key in sorted(named_keys, key=str.encode):
        lines.append(key)
        before, last, count = 0, None, 0
        for time, value in [*sorted(samples.get(named_keys[key], {}).items()), (None, None)]:
            line = None
            if time is not None:
                kind, number = bits(value)
                line = f"{time - before} {kind}{number if kind == 'i' else format(number, '016x')}"
                before = time
            if line == last:
                count += 1
                continue
            if last is not None:
                lines.append(last if count == 1 else f"{last} x{count}")
            last, count = line, 1
    return lines, meta
