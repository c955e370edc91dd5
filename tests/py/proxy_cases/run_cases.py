#!/usr/bin/env python3
"""Replays recorded exchanges of Metric Proxy v2 against a server.

usage: run_cases.py BASE_URL SOCKET_PATH [--exact] [--only live,tree,prometheus,after] [--modes MODE,...]
                    [--cases FILE] [--report OUT.json] [--stubs] [--fast] [--verbose] [--root HOST:PORT]

The server must be fresh (no jobs, no profiles), sample once a second, and listen on SOCKET_PATH for clients. `setup.py`
makes the state that the cases expect. `--stubs`: the server was started with the folder stubs/ first on its PATH; cases
that need squeue, extrap or FTIO are skipped otherwise. `--exact`: expect the original's answers also where it misleads or
panics (use it against the original, and against a server in its compatibility mode); without it the sensible answer
that each case names is expected. `--modes` checks only answers that are compared so. `--fast` skips what has to be waited for
longer than 10 s.
`--root` is the server that answers, where the one that is asked hands questions on to it.

Compared: status, media type, and the body by the case's mode. Order inside arrays and objects is random in the original
and ignored unless it is a series; times are only checked to be numbers; values of the machine are only checked to exist.
pass / semantic (same status and meaning, other message text) / fail / skip. Exit code 0 iff nothing failed.
"""
import argparse, json, math, os, re, socket, sys, time, urllib.error, urllib.parse, urllib.request
import setup

HERE = os.path.dirname(os.path.abspath(__file__))
TIMES = {"start_time", "end_time", "lastwrite", "last_scrape", "ts"}


class Differs(Exception):
    pass


class Wording(Exception):
    """Same meaning, other text."""


def need(condition, text):
    if not condition:
        raise Differs(text)


def short(value, n=160):
    text = json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value
    return text if len(text) <= n else text[:n] + "..."


def request(base, case, path, body):
    data = body.encode() if body is not None else None
    headers = {"Content-Type": case["content_type"]} if case.get("content_type") else {}
    asked = urllib.request.Request(base + path, data=data, method=case["method"], headers=headers)
    try:
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return answer.status, answer.headers.get("Content-Type"), answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers.get("Content-Type"), error.read()


def masked(value):
    """Times to 0 where they are numbers; the size of a trace too; arrays as sorted lists."""
    if isinstance(value, dict):
        out = {}
        for key, inner in value.items():
            if key in TIMES or (key == "size" and "lastwrite" in value):
                need(isinstance(inner, (int, float)) and not isinstance(inner, bool), f"{key} is {inner!r}, not a number")
                inner = 0
            out[key] = masked(inner)
        return out
    if isinstance(value, list):
        return sorted((masked(v) for v in value), key=lambda v: json.dumps(v, sort_keys=True))
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def same(want, got, what="answer"):
    a, b = masked(want), masked(got)
    need(json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True), f"{what}: {short(b)} instead of {short(a)}")


def contains(want, got, what):
    need(isinstance(got, list), f"{what} is no array: {short(got)}")
    have = {json.dumps(masked(v), sort_keys=True) for v in got}
    for v in want:
        need(json.dumps(masked(v), sort_keys=True) in have, f"{what} lacks {short(masked(v))}")


def own(name):
    return not name.startswith("proxy_")


def kind(counter):
    need(isinstance(counter["ctype"], dict) and len(counter["ctype"]) == 1, f"ctype {short(counter['ctype'])}")
    return next(iter(counter["ctype"]))


def has_data(counter):
    inner = counter["ctype"][kind(counter)]
    return bool(inner["value"] if kind(counter) == "Counter" else inner["hits"])


def counter_fields(counter):
    need(set(counter) == {"name", "doc", "ctype"}, f"fields of a counter: {sorted(counter)}")
    fields = {"Counter": {"ts", "value"}, "Gauge": {"min", "max", "hits", "total"}}
    need(kind(counter) in fields, f"type {kind(counter)}")
    inner = counter["ctype"][kind(counter)]
    need(set(inner) == fields[kind(counter)], f"fields of {counter['name']}: {sorted(inner)}")


def check_profile(want, got, case=None):
    need(isinstance(got, dict) and set(got) == {"desc", "counters"}, f"no profile: {short(got)}")
    same(want["desc"], got["desc"], "desc")
    by_name = {}
    for c in got["counters"]:
        counter_fields(c)
        need(c["name"] not in by_name, f"{c['name']} twice")
        by_name[c["name"]] = c
    for c in want["counters"]:
        need(c["name"] in by_name, f"{c['name']} is missing")
        if c["name"] == "walltime":
            value = by_name[c["name"]]["ctype"]["Counter"]["value"]
            need(0 < value < 1e9, f"walltime {value}")
            continue
        same(c, by_name[c["name"]], c["name"])
    for base, doc, which, labels in (case or {}).get("system", []):
        if base.startswith("proxy_disk_") and not os.path.exists("/sys/block"):
            continue
        found = [c for n, c in by_name.items() if n.split("{")[0] == base]
        need(found, f"no {base}")
        for c in found:
            need(kind(c) == which, f"{base} is a {kind(c)}")
            need(re.findall(r'(\w+)="', c["name"]) == labels, f"labels of {c['name']}")
            if c["doc"] != doc:
                raise Wording(f"{base}: {c['doc']!r}")


def variants(want, got):
    """A time series of the right shape: seconds that grow, values among those that were set."""
    need(isinstance(got, list) and len(got) >= 2, f"{len(got) if isinstance(got, list) else got} points")
    last = -math.inf
    for point in got:
        need(isinstance(point, list) and len(point) == 2, f"point {short(point)}")
        need(point[0] > last, f"time {point[0]} after {last}")
        need(abs(point[0] - time.time()) < 3600, f"time {point[0]} is not in seconds since 1970")
        last = point[0]
    if want and isinstance(want[0][1], dict):
        which = next(iter(want[0][1]))
        for _, value in got:
            counter_fields({"name": "", "doc": "", "ctype": value})
            need(which in value, f"{short(value)} is no {which}")
        if which == "Counter":
            numbers = [v["Counter"]["value"] for _, v in got]
            need(all(x <= y for x, y in zip(numbers, numbers[1:])) and numbers[-1] == 24, f"values {numbers}")
        else:
            numbers = [v["Gauge"]["total"] / v["Gauge"]["hits"] for _, v in got]
            need(set(numbers) <= {11, 15.5, 20} and numbers[-1] == 20, f"values {numbers}")


def lines_of(raw):
    samples, kinds, helps = {}, {}, {}
    for line in raw.decode().splitlines():
        if line.startswith("# HELP "):
            parts = line.split(" ", 3)
            helps[parts[2]] = parts[3] if len(parts) > 3 else ""
        elif line.startswith("# TYPE "):
            _, _, name, which = line.split(" ", 3)
            kinds[name] = which
        elif line and not line.startswith("#"):
            name = line[: line.rindex("}") + 1] if "}" in line else line.split(" ")[0]
            samples[name] = line[len(name):].split()
    return samples, kinds, helps


GAUGES = {"live_gauge", "live_gauge_unset", "my_gauge"}


def check_exposition(case, raw, exact):
    want, _, want_help = lines_of("\n".join(case["answer_lines"]).encode())
    got, kinds, helps = lines_of(raw)
    for name, fields in want.items():
        base = name.split("{")[0]
        gauge = base in GAUGES
        if not exact and fields[-1] == "NaN" and name not in got:
            continue                                     # a gauge that was never set may be left out
        need(name in got, f"no line for {name}")
        found = got[name]
        if exact:
            need(len(found) == len(fields), f"{name}: {found}")
            value = found[-1]
        else:
            need(1 <= len(found) <= 2, f"{name}: {found}")
            value = found[0]                             # NAME VALUE [TIME in ms]
            need(kinds.get(base) == ("gauge" if gauge else "counter"), f"type of {base}: {kinds.get(base)}")
        if fields[-1] == "NaN":
            need(value == "NaN", f"{name} = {value}")
        else:
            need(float(value) == float(fields[-1]), f"{name} = {value} instead of {fields[-1]}")
        if want_help.get(base):
            need(helps.get(base) == want_help[base], f"help of {base}: {helps.get(base)!r}")


def check_scraped(case, raw, exact):
    got, kinds, _ = lines_of(raw)
    if exact:
        value = float(got['my_total{a="b",c="d""}'][-1])
        need(value >= 200 and value % 100 == 0, f"my_total {value}")
        need(float(got["my_gauge"][-1]) == 42, "my_gauge")
        return
    for name, value in {'my_total{a="b",c="d"}': 100, "plain_total": 10, "my_gauge": 42}.items():
        need(name in got, f"no {name}")
        need(float(got[name][0]) == value, f"{name} = {got[name][0]} instead of {value}")
    need(kinds.get("my_gauge") == "gauge" and kinds.get("my_total") == "counter", f"types {kinds}")


def pretty(text):
    text = re.sub(r"= \d+ (\S+) COUNTER", r"= T \1 COUNTER", text)
    return re.sub(r"(proxy_\S+ \([^)]*\) = )[-\d.]+ \(Min: [-\d.]+, Max : [-\d.]+, Hits: [-\d.]+, Total : [-\d.]+\)",
                  r"\1V", text)


def check_alarms(want, got):
    need(isinstance(got, dict) and set(want) <= set(got), f"jobs {sorted(got)} instead of {sorted(want)}")
    wording = None
    for job, alarms in want.items():
        mine = {a["name"]: a for a in got[job]}
        need(set(mine) == {a["name"] for a in alarms}, f"alarms of {job}: {sorted(mine)}")
        for a in alarms:
            b = mine[a["name"]]
            need(set(b) == set(a), f"fields {sorted(b)}")
            for key in ("metric", "operator", "active"):
                same(a[key], b[key], f"{key} of {a['name']}")
            need(isinstance(b["current"], (int, float)), f"current {b['current']!r}")
            if own(a["metric"]):
                same(a["current"], b["current"], "current")
            if pretty(a["pretty"]) != pretty(b["pretty"]):
                wording = b["pretty"]
    if wording:
        raise Wording(wording)


def check_ack(case, want, got, exact):
    need(isinstance(got, dict) and set(got) == {"operation", "success"}, f"no acknowledgement: {short(got)}")
    need(got["success"] is want["success"], f"success {got['success']}")
    if case.get("text") == "free":                       # the original prints its own data structures here
        return need(isinstance(got["operation"], str) and got["operation"], "no text")
    clean = lambda s: re.sub(r"ts: \d+", "ts: T", s)
    if clean(got["operation"]) != clean(want["operation"]):
        need(not want["success"], f"{got['operation']!r} instead of {want['operation']!r}")
        raise Wording(got["operation"])


def check_series(want, got, derived=False):
    variants([[0, 0]], got)
    if derived:
        need(got[0][1] == 0.0, f"first {got[0]}")
        need(all(0 <= v <= 10 for _, v in got) and any(v > 2 for _, v in got), f"rates {short(got)}")
    else:
        numbers = [v for _, v in got]
        need(all(x <= y for x, y in zip(numbers, numbers[1:])) and numbers[-1] == 24, f"values {numbers}")


def check(case, status, media, raw, names, exact):
    mode = case["compare"]
    want_status = case["status"]
    if mode == "panic" and not exact:
        want_status = 400
    need(status == want_status, f"status {status} instead of {want_status}: {raw[:160]!r}")
    if mode == "status" or (mode == "panic" and exact):
        return
    got_media = media.split(";")[0] if media else None
    want_media = "application/json" if mode == "panic" else case["answer_type"]
    need(got_media == want_media, f"media type {got_media} instead of {want_media}")
    if mode == "page":
        marker = b"<html>" if "is_admire" in case["path"] else b"<html"
        need(marker in raw.lower() if marker == b"<html" else marker in raw, f"no {marker.decode()} in the page")
        return
    if mode == "exposition":
        return check_exposition(case, raw, exact)
    if mode == "scraped":
        return check_scraped(case, raw, exact)
    if mode == "jsonl":
        rows = [json.loads(l) for l in raw.decode().splitlines()]
        need(rows, "empty")
        for row in rows:
            need(set(row) == {"params", "metric", "callpath", "value"} and set(row["params"]) == {"size"}, short(row))
        contains([r for r in case["answer_lines"] if r["callpath"] not in ("walltime",)], rows, "the model's input")
        return
    got = json.loads(raw)
    want = case.get("answer")
    if mode == "panic":
        need(got.get("success") is False and got.get("operation"), short(got))
    elif mode == "ack":
        check_ack(case, want, got, exact)
    elif mode == "json":
        same(want, got)
    elif mode == "alarms":
        check_alarms(want, got)
    elif mode == "list-of-jobs":
        contains(want, got, "the list")
        need(len({d["jobid"] for d in got}) == len(got), "a job twice")
    elif mode == "profile":
        check_profile(want, got, case)
    elif mode == "profiles":
        for p in got:
            for c in p["counters"]:
                counter_fields(c)
                need(has_data(c), f"{c['name']} of {p['desc']['jobid']} has no data")
        for p in want:
            mine = [q for q in got if q["desc"]["jobid"] == p["desc"]["jobid"]]
            need(len(mine) == 1, f"{len(mine)} jobs {p['desc']['jobid']}")
            check_profile(p, mine[0])
        need({"main", names["Node"]} <= {p["desc"]["jobid"] for p in got}, "main or the node's own job is missing")
    elif mode == "traces":
        contains([t for t in want if t["desc"]["jobid"] in ("main", "livejob") or t["desc"]["jobid"].startswith("Node")],
                 got, "the traces")
    elif mode == "names":
        need(set(want) - {"live_zero", "live_gauge_unset"} <= set(got), f"{sorted(n for n in got if own(n))}")
    elif mode == "traceread":
        need(set(got) == {"info", "time_serie"} and set(got["info"]) == {"desc", "size", "lastwrite"}, short(got))
        same(want["info"]["desc"], got["info"]["desc"], "desc")
        if want["time_serie"]:
            variants(want["time_serie"], got["time_serie"])
        else:
            need(got["time_serie"] == [], short(got["time_serie"]))
    elif mode in ("series", "deriv"):
        check_series(want, got, mode == "deriv")
    elif mode == "tracejson":
        need(set(got) == {"infos", "metrics"}, f"{sorted(got)}")
        same(want["infos"]["desc"], got["infos"]["desc"], "desc")
        need(set(want["metrics"]) <= set(got["metrics"]), "metrics")
        for name, points in got["metrics"].items():
            times = [p[0] for p in points]
            need(times == sorted(times) and 0 <= times[0] < 60, f"{name}: times {times[:3]}")
        need(got["metrics"]["deriv__live_counter"][0][1] == 0.0, "the first derivative")
    elif mode == "percmd":
        for command, jobs in want.items():
            need(command in got, f"no command {command!r} among {sorted(got)[:5]}")
            contains(jobs, got[command], command)
    elif mode == "points":
        for name, points in want.items():
            need(name in got, f"no {name}")
            if name == "walltime":
                need([p[0] for p in points] == [p[0] for p in got[name]], f"sizes {got[name]}")
            else:
                need(points == got[name], f"{name}: {short(got[name])} instead of {short(points)}")
    elif mode == "models":
        contains(want, got, "the models")
    elif mode == "points-exact":
        need(len(want) == len(got), short(got))
        for a, b in zip(want, got):
            need(a[0] == b[0] and math.isclose(a[1], b[1], rel_tol=1e-12), f"{b} instead of {a}")
    elif mode == "ftio":
        need(got.get("models"), "no model yet")
        fields = set(next(iter(want["models"].values())))
        for name, model in got["models"].items():
            need(fields <= set(model) and model["metric"] == name, f"fields {sorted(model)}")
    elif mode == "scrapes":
        for entry in got:
            need(set(entry) == {"target_url", "ttype", "period", "last_scrape"}, f"fields {sorted(entry)}")
        for entry in want:
            mine = [e for e in got if e["target_url"] == entry["target_url"]]
            need(mine, f"no {entry['target_url']} among {[e['target_url'] for e in got]}")
            need(mine[0]["ttype"] == entry["ttype"] and mine[0]["period"] == entry["period"], short(mine[0]))
            need(abs(mine[0]["last_scrape"] - time.time()) < 3600, f"last_scrape {mine[0]['last_scrape']}")
    elif mode == "topo":
        named = sorted([names.get(a, a), names.get(b, b)] for a, b in got)
        flat = [["ROOT", f"C{i}"] for i in range(1, 6)]
        need(named == sorted(want if exact else flat), f"{named}")
    elif mode == "treejob":
        need(set(got) == {"desc", "counters"}, short(got))
        same(want["desc"], got["desc"], "desc")
        by_name = {c["name"]: c["ctype"] for c in got["counters"]}
        work, temp = by_name["work"]["Counter"]["value"], by_name["temp"]["Gauge"]
        if exact:                                        # the first value that a parent sees counts twice
            need(work == 20, f"work {work}")
        else:
            need(work == 15, f"work {work} instead of 8 + 7")
            need(temp["hits"] >= 1 and temp["total"] / temp["hits"] == 100, f"temp {temp}")
            need(temp["min"] == 100 and temp["max"] == 100, f"temp {temp}")
    else:
        raise Differs(f"unknown mode {mode}")


def placed(case, host, port, exporter):
    """A case with what stands for the machine's own names."""
    text = json.dumps(case)
    for place, value in (("@HOST@", host), ("@PORT@", str(port)), ("@EXPORTER@", exporter)):
        text = text.replace(place, value)
    return json.loads(text)


def main():
    options = argparse.ArgumentParser(usage=__doc__)
    options.add_argument("base")
    options.add_argument("socket")
    options.add_argument("--exact", action="store_true")
    options.add_argument("--only", default="live,tree,prometheus,after")
    options.add_argument("--modes")
    options.add_argument("--cases", default=os.path.join(HERE, "..", "..", "..", "fixtures", "proxy", "cases.jsonl"))
    options.add_argument("--report")
    options.add_argument("--stubs", action="store_true")
    options.add_argument("--fast", action="store_true")
    options.add_argument("--verbose", action="store_true")
    options.add_argument("--root")
    options.add_argument("--host", default=socket.gethostname())
    a = options.parse_args()
    base = a.base.rstrip("/")
    root = a.root or urllib.parse.urlsplit(base).netloc
    port = int(root.rsplit(":", 1)[1])
    cases = [json.loads(line) for line in open(a.cases)]
    wanted = a.only.split(",")
    names = {"Node": f"Node: {a.host}"}
    done, counts = [], {"pass": 0, "semantic": 0, "fail": 0, "skip": 0}
    live = exporter = None
    for scenario in ("live", "after", "tree", "prometheus"):
        mine = [c for c in cases if c["scenario"] == scenario and scenario in wanted]
        if not mine:
            continue
        began = time.monotonic()
        try:
            if scenario == "live" or (scenario == "after" and live is None):
                live = setup.Live(base, a.socket)
            if scenario == "after":
                live.end(base)
            if scenario == "tree":
                tree = setup.Tree(base)
                names.update(tree.names)
                names.update({f"{a.host}:{port}": "ROOT", root: "ROOT", urllib.parse.urlsplit(base).netloc: "ROOT"})
            if scenario == "prometheus":
                exporter = setup.Exporter()
        except Exception as error:                       # what does not need the state is still worth asking
            print(f"setup of '{scenario}' failed: {type(error).__name__}: {error}")
        for case in mine:
            case = placed(case, a.host, port, exporter.address if exporter else "")
            verdict, why = "pass", ""
            if case.get("needs") and not a.stubs:
                verdict, why = "skip", f"needs {case['needs']}"
            elif case.get("wait_s") and a.fast:
                verdict, why = "skip", "takes long"
            elif a.modes and case["compare"] not in a.modes.split(","):
                request(base, case, case["path"], case.get("body"))
                verdict, why = "skip", "is compared otherwise"
            else:
                deadline = time.monotonic() + case.get("wait_s", 4 if scenario != "live" else 0)
                while True:
                    try:
                        check(case, *request(base, case, case["path"], case.get("body")), names, a.exact)
                        verdict, why = "pass", ""
                    except Wording as other:
                        verdict, why = "semantic", f"text: {str(other)[:160]}"
                    except (Differs, AssertionError) as other:
                        verdict, why = "fail", str(other)[:400]
                    except Exception as other:
                        verdict, why = "fail", f"{type(other).__name__}: {other}"[:400]
                    if verdict != "fail" or time.monotonic() > deadline:
                        break
                    time.sleep(0.5)
            counts[verdict] += 1
            done.append({"id": case["id"], "verdict": verdict, "why": why})
            if verdict != "pass" and (a.verbose or verdict == "fail"):
                print(f"{verdict:8} {case['id']}: {why}")
        if a.verbose:
            print(f"-- {scenario}: {len(mine)} cases, {time.monotonic() - began:.1f} s")
    print(" ".join(f"{k} {v}" for k, v in counts.items()))
    if a.report:
        json.dump(done, open(a.report, "w"), indent=1)
    return 1 if counts["fail"] else 0


if __name__ == "__main__":
    sys.exit(main())
