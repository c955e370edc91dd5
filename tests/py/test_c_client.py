"""The C library against the real service: what programs log is in SQL, whatever becomes of them or of the service."""

import json
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import pytest
from conftest import PATIENCE_S, TELEM

C = pathlib.Path(__file__).resolve().parents[2] / "clients" / "c"
SOURCES = sorted(map(str, (C / "src").glob("*.c")))
STRICT = ["-Wall", "-Wextra", "-pedantic", "-Werror"]
START_US = 1_767_322_800_000_000


def build(*command, cwd=None):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=PATIENCE_S * 4, cwd=cwd)
    assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The library by make, and the programs of clients/c/tests with it."""
    folder = tmp_path_factory.mktemp("c")
    build("make", "-s", "-C", C, f"BUILD={folder}", "-j2", "CFLAGS=-O2 -g -Werror")
    link = [f"-I{C / 'include'}", f"-L{folder}", "-ltelem", f"-Wl,-rpath,{folder}", "-pthread"]
    build("cc", "-std=c11", "-O1", "-g", *STRICT, C / "tests" / "scenario.c", *link, "-o", folder / "scenario")
    build("cc", "-std=c11", *STRICT, C / "tests" / "load.c", "-ldl", "-pthread", "-o", folder / "load")
    for fault in ("clock", "faults"):
        build("cc", "-std=c11", *STRICT, "-shared", "-fPIC", C / "tests" / f"{fault}.c", "-o", folder / f"{fault}.so")
    build("c++", "-std=c++17", *STRICT, C / "tests" / "spans.cpp", *link, "-o", folder / "spans")
    return folder


def sanitized(folder, *flags):
    """The library's sources and the program in one, as a program may build them itself."""
    build("cc", "-std=c11", "-O1", "-g", "-fno-omit-frame-pointer", *flags, C / "tests" / "scenario.c", *SOURCES,
          f"-I{C / 'include'}", "-pthread", "-lm", "-o", folder / "scenario")
    return folder


@pytest.fixture(scope="module")
def thread_sanitized(tmp_path_factory):
    return sanitized(tmp_path_factory.mktemp("tsan"), "-fsanitize=thread")


@pytest.fixture(scope="module")
def address_sanitized(tmp_path_factory):
    return sanitized(tmp_path_factory.mktemp("asan"), "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def environment(server=None, **more):
    ours = ("TELEM_", "SLURM_", "OMPI_", "PMI", "RANK")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    if server is not None:
        # One that answers is waited for at the end, however busy the machine is.
        clean |= {"TELEM_CONNECTION": server.connection_file, "TELEM_EXIT_MS": str(PATIENCE_S * 1000)}
    return {**clean, **more}


def run(program, *arguments, server=None, wrapper=(), **more):
    done = subprocess.run(
        [*wrapper, str(program), *map(str, arguments)],
        env=environment(server, **more),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, f"{program} {arguments}: {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-8000:]}"
    return done


def counts(output):
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def check_balance(one):
    """Each sample that was taken is somewhere."""
    dropped = one["dropped_full"] + one["dropped_unserved"] + one["dropped_other"]
    assert one["taken"] == one["stored"] + one["refused"] + one["above_level"] + dropped, one
    return one


def all_stored(output):
    """Those of the only process, nothing of which was lost."""
    (one,) = counts(output)
    assert check_balance(one)["taken"] == one["stored"], one
    return one["taken"]


def number(server, what, metric, where="TRUE"):
    return server.sql(f"SELECT {what} AS n FROM samples WHERE metric = '{metric}' AND {where}")[0]["n"]


def eventually(condition, what):
    """Polls until it is so: for what the service does by itself."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        select_s = 0.02
        signal.sigtimedwait([], select_s)


# ---- what is stored --------------------------------------------------------------------------------------------------


def test_values_names_times_and_totals_are_stored_exactly(serve, tmp_path, built):
    served = serve(tmp_path / "db")
    done = run(built / "scenario", "values", server=served)
    (one,) = counts(done.stdout)
    check_balance(one)
    assert one["above_level"] == 10 and one["dropped_other"] == 2 and one["refused"] == 0
    rows = served.sql("SELECT CAST(ts AS BIGINT) AS us, value, value_int FROM gauge ORDER BY ts")
    assert [row["us"] - START_US for row in rows] == list(range(7))
    assert rows[0]["value"] == 0.1 and rows[1]["value"] == -1e300 and rows[6]["value"] == 5e-324
    assert [row["value_int"] for row in rows[2:4]] == [2**63 - 1, -(2**63)]
    tags = served.sql("SELECT DISTINCT model, z, pid FROM gauge")
    assert tags == [{"model": "a_b", "z": "\u00fc", "pid": str(one["pid"])}]
    rows = served.sql("SELECT CAST(ts AS BIGINT) AS us, value_int FROM twice ORDER BY ts")
    assert [(row["us"] - START_US, row["value_int"]) for row in rows] == [(i, i) for i in range(6)]
    rows = served.sql("SELECT CAST(ts AS BIGINT) AS us, value_int FROM back ORDER BY ts")
    assert [(row["us"] - START_US, row["value_int"]) for row in rows] == [(i, i) for i in range(1000)]
    rows = served.sql("SELECT step, loss FROM loss ORDER BY ts")
    assert [(row["step"], row["loss"]) for row in rows] == [(i, i * 0.5) for i in range(10)] + [(10, 99.0)]
    rows = served.sql("SELECT CAST(ts AS BIGINT) AS us, step, rate FROM rate ORDER BY ts")
    assert [(row["us"] - START_US, row["step"], row["rate"]) for row in rows] == [(i, i, i * 2) for i in range(10)]
    assert number(served, "count(*)", "a_name__with_all__") == 1
    assert number(served, "max(value_int)", "counter") == 4950
    rows = served.sql(
        "SELECT tags['le'] AS le, max(value_int) AS n FROM samples WHERE metric = 'seconds_bucket' GROUP BY 1"
    )
    assert {row["le"]: row["n"] for row in rows} == {"0.1": 1, "1": 3, "10": 3, "1000000": 4, "+Inf": 6}
    assert number(served, "max(value_int)", "seconds_count") == 6
    assert number(served, "max(value)", "seconds_sum") == 0.1 + 0.5 + 0.5 + 11 + 1e9
    assert number(served, "max(value)", "span") == float(done.stdout.splitlines()[-1])
    assert number(served, "count(*)", "fine") == 0


def microseconds_off(server, output):
    """By how much each sample of `times` lies outside of its call, in their order."""
    all_stored(output)
    calls = [tuple(map(int, line.split())) for line in output.splitlines() if not line.startswith("{")]
    rows = server.sql("SELECT CAST(ts AS BIGINT) AS us, value_int FROM timed ORDER BY value_int")
    assert len(rows) == len(calls) == 300
    return [max(before - row["us"], row["us"] - after, 0) for row, (_, before, after) in zip(rows, calls)]


@pytest.mark.parametrize("slew_ppm", [None, 500, -500])
def test_the_time_of_a_sample_is_that_of_its_call_also_where_the_clock_is_slewed(served, built, slew_ppm):
    more = {"LD_PRELOAD": str(built / "clock.so"), "CLOCK_SLEW_PPM": str(slew_ppm)} if slew_ppm else {}
    off = microseconds_off(served, run(built / "scenario", "times", server=served, **more).stdout)
    # A machine that stops this process in the middle of reading its clocks shows it once or twice.
    assert sorted(off)[-3] <= 10, sorted(off)[-10:]


@pytest.mark.parametrize("step_ms", [10_000, -10_000])
def test_times_follow_a_clock_that_is_set(served, built, step_ms):
    more = {"LD_PRELOAD": str(built / "clock.so"), "CLOCK_STEP_MS": str(step_ms)}
    off = microseconds_off(served, run(built / "scenario", "times", server=served, **more).stdout)
    # Those of the batch during which it was set have the new time.
    wrong = [at for at, us in enumerate(off) if us > 10]
    assert wrong and all(off[at] > 9_000_000 for at in wrong[1:-1]), off
    assert wrong[-1] - wrong[0] < 150 and len(wrong) < 150, off


def test_settings_and_notes_are_of_the_job(serve, tmp_path, built):
    served = serve(tmp_path / "db")
    run(built / "scenario", "values", server=served)
    served.connection.request("GET", "/api/annotations?start_time=1h-ago")
    (note,) = json.loads(served.connection.getresponse().read())
    assert (note["description"], note["notes"]) == ("begins", "a note")
    (job,) = served.sql("SELECT description FROM jobs")
    assert json.loads(job["description"])["settings"] == {"solver": "cg"}


def test_ranks_and_pids_tell_processes_apart(served, built):
    for variables in ({}, {"SLURM_PROCID": "3"}, {"SLURM_PROCID": "4", "SLURM_STEP_ID": "0"},
                      {"RANK": "5", "SLURM_PROCID": "9", "SLURM_STEP_ID": "0"},
                      {"RANK": "6", "TELEM_PROCESS_TAG": "0"}):
        run(built / "scenario", "leave", "stop", server=served, **variables)
    rows = served.sql(
        "SELECT DISTINCT tags['rank'] AS rank, tags['pid'] IS NULL AS no_pid FROM samples WHERE metric = 'left'"
    )
    found = {(row["rank"], row["no_pid"]) for row in rows}
    assert {(None, False), ("3", False), ("4", True), ("5", True)} <= found


# ---- threads and signals ---------------------------------------------------------------------------------------------


def test_threads_that_come_and_go_lose_nothing(served, built):
    all_stored(run(built / "scenario", "threads", 4, 500, server=served).stdout)
    assert number(served, "max(value_int)", "adds") == 4000
    assert number(served, "max(value_int)", "spread_count") == 4000
    for metric in ("own", "shared", "spans"):
        assert number(served, "count(*)", metric) == 4000, metric
    disordered = served.sql(
        "SELECT count(*) AS n FROM "
        "(SELECT value_int - lag(value_int) OVER (PARTITION BY thread ORDER BY ts) AS d FROM own) WHERE d <> 1"
    )
    assert disordered == [{"n": 0}]


def test_a_counter_is_exact_under_concurrent_additions(served, built):
    all_stored(run(built / "scenario", "adds", 4, 500_000, server=served).stdout)
    assert number(served, "max(value_int)", "adds") == 6_000_000


def test_a_signal_handler_may_log_in_the_middle_of_logging(served, built):
    done = run(built / "scenario", "signals", server=served)
    (one,) = map(check_balance, counts(done.stdout))
    made = int(done.stdout.splitlines()[0])
    assert number(served, "max(value_int)", "adds") == made
    assert number(served, "count(*)", "shared") == made - one["dropped_other"] - one["dropped_full"]


# ---- ends and beginnings ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["exit", "return", "flush_exit", "stop"])
def test_what_was_logged_is_stored_at_the_end_of_the_process(served, built, how):
    run(built / "scenario", "leave", how, server=served)
    assert number(served, "count(*)", "left") == 1000
    assert number(served, "max(value_int)", "lived") == 1000


def test_a_process_that_ends_by_force_ends_at_once(served, built):
    run(built / "scenario", "leave", "_exit", server=served)
    assert number(served, "count(*)", "left") <= 1000


def test_a_forked_child_logs_its_own_samples_only(served, built):
    done = run(built / "scenario", "fork", server=served)
    ones = [check_balance(one) for one in counts(done.stdout)]
    assert sorted(one["taken"] for one in ones) == [0, 11, 101, 102, 103, 1001]
    assert all(one["stored"] == one["taken"] for one in ones)
    assert [one["connections"] for one in ones if one["taken"] == 0] == [0]
    rows = served.sql("SELECT pid, count(*) AS n FROM forked GROUP BY pid")
    assert sorted(row["n"] for row in rows) == [10, 100, 101, 102, 1000]


def test_forking_while_other_threads_log_harms_neither(served, built):
    done = run(built / "scenario", "fork_busy", server=served)
    all_stored(done.stdout)
    assert number(served, "count(DISTINCT tags['pid'])", "shared") == 21


def test_children_of_a_rank_that_are_forked_before_the_first_metric_stay_apart(served, built):
    done = run(built / "scenario", "fork_first", server=served, RANK="3")
    assert [check_balance(one)["stored"] for one in counts(done.stdout)] == [11, 11]
    rows = served.sql("SELECT rank, pid, count(*) AS n FROM forked_first GROUP BY rank, pid")
    assert [(row["rank"], row["n"]) for row in rows] == [("3", 10)] * 2, rows


def test_a_child_that_no_handler_of_fork_knows_of_ends_as_it_wishes(served, built):
    """Formerly its exit waited for ever, for a thread that only its parent has."""
    done = run(built / "scenario", "fork_bare", server=served)
    assert all_stored(done.stdout) == 202
    assert number(served, "count(*)", "forked_bare") == 200


def test_a_process_whose_main_ended_ends_with_its_last_thread(served, built):
    """Formerly the thread of the library kept it alive for ever, deaf to all signals but SIGKILL."""
    run(built / "scenario", "main_ends", server=served)
    assert number(served, "count(*)", "outlived") == 200
    assert number(served, "max(value_int)", "lived") == 200


def test_what_threads_log_at_their_end_and_in_destructors_is_stored(served, built):
    assert all_stored(run(built / "scenario", "thread_ends", 100, server=served).stdout) == 200
    assert number(served, "sum(value_int)", "ended") == 300


def test_a_thread_that_is_cancelled_in_a_sample_costs_the_next_one_nothing(served, built):
    """Formerly the next thread with its ring was taken for a signal handler, and all it logged was dropped."""
    check_balance(counts(run(built / "scenario", "cancel", server=served).stdout)[0])
    assert number(served, "count(*)", "after_cancel") == 4000


def test_a_handler_may_end_the_process_whatever_it_interrupted(served, built):
    """Formerly its exit waited for the lock that its own thread had."""
    for _ in range(5):
        run(built / "scenario", "handler_exits", server=served, TELEM_EXIT_MS="100")


def test_exec_begins_anew(served, built):
    run(built / "scenario", "exec", server=served)
    assert number(served, "count(*)", "before_exec") == 500
    assert number(served, "count(*)", "left") == 1000


def test_a_program_that_closes_all_files_goes_on_and_its_files_stay_its_own(served, built, tmp_path):
    done = run(built / "scenario", "close_all", tmp_path / "file", server=served)
    (one,) = map(check_balance, counts(done.stdout))
    assert one["connections"] == 2
    assert number(served, "count(*)", "closing") == 200


def test_a_daemon_goes_on_logging(served, built, tmp_path):
    told = tmp_path / "told"
    run(built / "scenario", "daemon", told, server=served)
    eventually(lambda: told.exists() and told.read_text().endswith("\n"), "the daemon's word")
    assert all_stored(told.read_text()) == 51
    eventually(lambda: number(served, "count(*)", "daemon") == 50, "the daemon's samples")


def test_a_ring_that_is_full_drops_and_counts(served, built):
    (one,) = map(check_balance, counts(run(built / "scenario", "overrun", server=served).stdout))
    assert one["dropped_full"] > 0 and one["taken"] == 200_000
    assert number(served, "count(*)", "overrun") == one["stored"]


def test_the_library_may_be_loaded_unloaded_and_preloaded(served, built):
    run(built / "load", built / "libtelem.so", server=served)
    assert number(served, "count(*)", "loaded") == 400
    done = run(shutil.which("echo"), "word", server=served, LD_PRELOAD=str(built / "libtelem.so"))
    assert (done.stdout, done.stderr) == ("word\n", "")


# ---- the service comes and goes --------------------------------------------------------------------------------------


def test_without_a_service_calls_are_counted_and_nothing_waits_or_speaks(built, tmp_path):
    done = run(built / "scenario", "alone")
    (one,) = map(check_balance, counts(done.stdout))
    assert one["dropped_unserved"] == 1000 and done.stderr == ""
    assert "no service is named" in done.stdout
    assert run(built / "scenario", "threads_of_process").stdout.split() == ["1"]
    done = run(built / "scenario", "alone", TELEM_SOCKET=str(tmp_path / "nobody"))
    (one,) = map(check_balance, counts(done.stdout))
    assert one["dropped_unserved"] == 1001 and done.stderr == ""
    failed, connected, waited_us, why = done.stdout.splitlines()[0].split(" ", 3)
    assert (failed, connected) == ("-1", "0") and int(waited_us) < 20_000_000 and "nobody" in why


class Running:
    """A program that logs until it is told to end."""

    def __init__(self, folder, connection_file):
        self.process = subprocess.Popen(
            [str(folder / "scenario"), "run"],
            env=environment(TELEM_CONNECTION=str(connection_file)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout.readline() == "runs\n"

    def end(self):
        output, _ = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0
        (one,) = map(check_balance, counts(output))
        flushed, connected, total = map(int, output.splitlines()[-1].split())
        assert (flushed, connected) == (0, 1)
        return one, total


def test_a_service_that_starts_later_gets_what_was_logged_before(serve, tmp_path, built):
    running = Running(built, tmp_path / "db" / "connection.json")
    served = serve(tmp_path / "db")
    eventually(lambda: number(served, "count(*)", "run") > 0, "the first samples")
    one, total = running.end()
    assert one["stored"] == one["taken"]
    assert number(served, "count(*)", "run") == number(served, "max(value_int) + 1", "run") == total


@pytest.mark.parametrize(("how", "program"), [("stop", "built"), ("kill", "built"), ("kill", "thread_sanitized"),
                                              ("stop", "address_sanitized")])
def test_a_service_that_is_started_again_gets_everything(serve, tmp_path, request, how, program):
    served = serve(tmp_path / "db")
    running = Running(request.getfixturevalue(program), served.connection_file)
    eventually(lambda: number(served, "count(*)", "run") > 0, "the first samples")
    if how == "stop":
        served.stop()
    else:
        served.process.send_signal(signal.SIGKILL)
        served.process.wait(PATIENCE_S)
    again = serve(tmp_path / "db")
    before = number(again, "count(*)", "run")
    eventually(lambda: number(again, "count(*)", "run") > before, "samples after the restart")
    one, total = running.end()
    assert one["connections"] == 2
    assert one["stored"] == one["taken"]
    assert number(again, "count(*)", "run") == number(again, "max(value_int) + 1", "run") == total
    assert number(again, "max(value_int)", "runs") == total


def test_a_service_that_stands_still_costs_what_does_not_fit_and_that_is_counted(serve, tmp_path, built):
    served = serve(tmp_path / "db")
    process = subprocess.Popen([str(built / "scenario"), "stalled", "1000000"], env=environment(served),
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    served.process.send_signal(signal.SIGSTOP)
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "logged\n"
    served.process.send_signal(signal.SIGCONT)
    output, _ = process.communicate(timeout=PATIENCE_S)
    (one,) = map(check_balance, counts(output))
    assert one["taken"] == 1_000_000 and one["dropped_full"] > 0 and one["stored"] > 500_000
    assert number(served, "count(*)", "stalled") == one["stored"]
    # What was kept is in the order in which it was logged.
    rows = served.sql(
        "SELECT count(*) AS n FROM "
        "(SELECT value_int - lag(value_int) OVER (ORDER BY ts) AS d FROM stalled) WHERE d <= 0"
    )
    assert rows == [{"n": 0}]


def test_what_the_service_refuses_is_counted_with_its_reason(serve, replay, tmp_path, built):
    served = serve(tmp_path / "db")
    done = run(built / "scenario", "refused", server=served)
    (one,) = map(check_balance, counts(done.stdout))
    assert (one["taken"], one["stored"], one["refused"]) == (11, 1, 10)
    assert "ahead" in done.stdout.splitlines()[-1] or "time" in done.stdout.splitlines()[-1], done.stdout
    served.stop()
    # One that only replays takes nothing.
    done = run(built / "scenario", "refused", server=replay(tmp_path / "db"))
    (one,) = map(check_balance, counts(done.stdout))
    assert one["taken"] == one["refused"] + one["above_level"] == 11, done.stdout
    assert "read-only" in done.stdout.splitlines()[-1]


def test_a_full_disk_costs_samples_that_are_counted_and_told_and_no_program_notices(built, tmp_path):
    """Files that may not grow: what a disk without room is to the service, and needs no file system of its own."""
    limited = ["bash", "-c", 'ulimit -f 64; exec "$0" "$@"', TELEM, "run", "--listen", "127.0.0.1:0", "--level", "1",
               "--save", str(tmp_path / "saved"), "--data", str(tmp_path / "live"), "--node", "n1", "--"]
    command = [str(built / "scenario"), "steady", "50000", "2000", "7"]
    done = subprocess.run([*limited, *command], capture_output=True, text=True, timeout=PATIENCE_S,
                          env=environment(XDG_RUNTIME_DIR=str(tmp_path)))
    assert done.returncode == 7, done.stdout + done.stderr
    (one,) = map(check_balance, counts(done.stdout))
    assert one["taken"] >= 100_000 and one["stored"] > 0 and one["refused"] > 0, one
    assert one["stored"] + one["refused"] == one["taken"], one
    assert "samples cannot be written: " in done.stderr and "File too large" in done.stderr, done.stderr
    assert f"{one['refused']:,} samples of clients were refused" in done.stderr, done.stderr
    asked = [TELEM, "sql", "--format", "csv", str(tmp_path / "saved"), "SELECT count(*) FROM samples"]
    stored = subprocess.run(asked, capture_output=True, text=True, timeout=PATIENCE_S)
    assert stored.stdout.split()[-1] == str(one["stored"]), stored.stdout + stored.stderr


def test_a_disk_that_has_room_again_takes_samples_again(serve, tmp_path, built):
    served = serve(tmp_path / "db")
    running = Running(built, served.connection_file)
    eventually(lambda: number(served, "count(*)", "run") > 0, "the first samples")
    soft, hard = resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    posted = '[{"metric": "beside", "timestamp": 1767322800, "value": 1, "tags": {"of": "test"}}]'

    def status():
        served.connection.request("POST", "/api/put?sync", posted)
        answer = served.connection.getresponse()
        answer.read()
        return answer.status

    eventually(lambda: status() == 503, "the disk to be full")
    full = number(served, "max(value_int)", "run")
    resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (soft, hard))
    eventually(lambda: status() != 503, "room")
    eventually(lambda: number(served, "max(value_int)", "run") > full, "samples to be taken again")
    one, total = running.end()
    assert one["connections"] == 1 and one["stored"] + one["refused"] == one["taken"], one
    assert number(served, "count(*)", "run") + number(served, "count(*)", "runs") == one["stored"]
    assert number(served, "max(value_int)", "runs") == total


class Impostor:
    """A service that says what it is told: `answer` gets the type of a frame and its body, and gives frames, or None
    for an end of the connection. It listens from the start, and takes connections from `begin` on."""

    OPENING = 8

    def __init__(self, folder, answer):
        self.path, self.answer, self.connections = folder / "impostor.sock", answer, 0
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.path))
        self.listener.listen(0)

    def begin(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def _accept(self):
        while True:
            try:
                taken, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._converse, args=(taken,), daemon=True).start()

    def _converse(self, taken):
        with taken, taken.makefile("rb") as said:
            said.read(self.OPENING)
            self._say(taken, frame(128, struct.pack("<HBBIHH", 1, 1, 0, 1000, 0, 0)))
            while head := said.read(8):
                length, kind = struct.unpack("<II", head)
                if not self._say(taken, self.answer(kind, said.read(length))):
                    return

    def _say(self, to, frames):
        try:
            to.sendall(frames or b"")
        except OSError:
            return False
        return frames is not None

    def end(self):
        self.listener.close()
        self.path.unlink()


def frame(kind, body):
    return struct.pack("<II", len(body), kind) + body


def samples_of(body):
    """How many samples a frame has."""
    at, count = 8, 0
    while at < len(body):
        shape, _, _, first, second = struct.unpack_from("<BBHII", body, at)
        many = first if shape else second
        at += 16 + (4 * (many + many % 2) + 8 * many if shape else 16 * many)
        count += many
    return count


class Taker:
    """Answers as a service does that stores everything, and has no answer to questions."""

    def __init__(self):
        self.stored = 0

    def __call__(self, kind, body):
        if kind == 2:
            self.stored += samples_of(body)
            return frame(129, body[:8] + struct.pack("<QQ", self.stored, 0))
        return frame(131, body) if kind == 6 else b""


def test_who_ends_waits_for_a_service_that_has_no_time_for_it_yet(built, tmp_path):
    """Formerly one whose queue of connections was full was taken for one that is not there."""
    taker = Taker()
    busy = Impostor(tmp_path, taker)
    first = socket.socket(socket.AF_UNIX)
    first.connect(str(busy.path))
    process = subprocess.Popen([str(built / "scenario"), "leave", "return"], stderr=subprocess.PIPE, text=True,
                               env=environment(TELEM_SOCKET=str(busy.path), TELEM_EXIT_MS="60000", TELEM_DEBUG="1"))
    line = process.stderr.readline()
    assert "it is there" in line, line
    busy.begin()
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0 and taker.stored == 1001
    busy.end()
    first.close()


def test_a_service_that_is_waited_for_is_tried_often(built, tmp_path):
    """Formerly ever more seldom, though a flush, or the end of the process, waits for it."""
    refusing = Impostor(tmp_path, lambda kind, body: None).begin()
    run(built / "scenario", "last_words", TELEM_SOCKET=str(refusing.path))
    assert refusing.connections > 6, refusing.connections
    refusing.end()


def test_the_last_words_of_a_service_are_heard(built, tmp_path):
    """Formerly they were lost where it hung up while something was sent to it."""
    goodbye = "because of the test"

    def answer(kind, body):
        """Names are taken; before the numbers come it hangs up."""
        said.append(kind)
        if kind != 1:
            return b""
        impostor.end()
        connection_ends.set()
        return None

    class Ending(Impostor):
        def _say(self, to, frames):
            if frames is not None:
                return super()._say(to, frames)
            super()._say(to, frame(135, struct.pack("<HH", 8, len(goodbye)) + goodbye.encode()))
            return False

    said, connection_ends = [], threading.Event()
    impostor = Ending(tmp_path, answer).begin()
    done = run(built / "scenario", "last_words", TELEM_SOCKET=str(impostor.path), FAULT="hang_up",
               LD_PRELOAD=str(built / "faults.so"))
    assert connection_ends.is_set() and said == [1]
    assert "no service at" in done.stdout.splitlines()[0], done.stdout
    assert done.stdout.splitlines()[1] == goodbye


def test_the_newest_word_is_that_of_the_service_or_of_the_last_call(served, built):
    rows = run(built / "scenario", "words", server=served).stdout.splitlines()
    assert [row.split(" ms is ")[0] for row in rows[::2]] == ["timestamp 7258118400000", "timestamp 7258118401000"]
    assert all("is empty" in row for row in rows[1::2]), rows


def test_a_child_has_no_part_in_the_questions_of_its_parent(built, tmp_path):
    """Formerly it kept their connections open."""
    asked = threading.Event()
    taker = Taker()

    def answer(kind, body):
        if kind == 7:
            asked.set()
        return taker(kind, body)

    silent = Impostor(tmp_path, answer).begin()
    process = subprocess.Popen([str(built / "scenario"), "fork_asking"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               text=True, env=environment(TELEM_SOCKET=str(silent.path)))
    assert asked.wait(PATIENCE_S)
    output, _ = process.communicate("\n", timeout=PATIENCE_S)
    assert output == "0\n"
    silent.end()


def test_a_file_system_that_hangs_holds_up_no_fork_no_flush_and_no_end(built, tmp_path):
    """Formerly each of them waited for the thread that reads where the service is."""
    file = str(tmp_path / "connection.json")
    begin = time.monotonic()
    done = run(built / "scenario", "hang", TELEM_CONNECTION=file, HANG=file, FAULT="hang", TELEM_EXIT_MS="100",
               LD_PRELOAD=str(built / "faults.so"))
    assert counts(done.stdout)[0]["taken"] == 100 and time.monotonic() - begin < 30


def test_a_socket_of_the_program_never_gets_what_the_library_sends(served, built):
    """Also where it opened it under the number of the library's between two of its calls."""
    done = run(built / "scenario", "steal", server=served, FAULT="steal", LD_PRELOAD=str(built / "faults.so"))
    assert all_stored(done.stdout) == 112
    assert counts(done.stdout)[0]["connections"] == 2


def test_nobody_reads_what_the_library_says_and_the_program_goes_on(served, built):
    reader, writer = os.pipe()
    os.close(reader)
    variables = environment(served, TELEM_DEBUG="1", TELEM_RING_SAMPLES="none")
    done = subprocess.run([str(built / "scenario"), "leave", "return"], stderr=writer, env=variables,
                          timeout=PATIENCE_S)
    os.close(writer)
    assert done.returncode == 0
    assert number(served, "count(*)", "left") == 1000


def test_totals_of_an_outage_are_said_when_it_is_over(serve, tmp_path, built):
    """Formerly one that did not change any more was missing, where the queue had had no room for its last word."""
    process = subprocess.Popen([str(built / "scenario"), "outage", "1200000"], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True,
                               env=environment(TELEM_CONNECTION=str(tmp_path / "db" / "connection.json")))
    assert process.stdout.readline() == "logged\n"
    served = serve(tmp_path / "db")
    output, _ = process.communicate(timeout=PATIENCE_S)
    (one,) = map(check_balance, counts(output))
    assert one["dropped_unserved"] > 100_000, one
    assert number(served, "max(value_int)", "total_of_outage") == 1000
    assert number(served, "max(value_int)", "spread_of_outage_count") == 1
    assert number(served, "count(*)", "outage") > 300_000


@pytest.mark.parametrize("service", ["stays", "is killed"])
def test_many_processes_lose_nothing_that_is_not_counted(serve, tmp_path, built, service):
    """64 at 10,000 a second each."""
    served = serve(tmp_path / "db")
    processes = [
        subprocess.Popen([str(built / "scenario"), "steady", "10000", "1000"], env=environment(served),
                         stdout=subprocess.PIPE, text=True)
        for _ in range(64)
    ]
    if service == "is killed":
        eventually(lambda: number(served, "count(*)", "steady") > 10_000, "the first samples")
        served.process.send_signal(signal.SIGKILL)
        served.process.wait(PATIENCE_S)
        served = serve(tmp_path / "db")
    outputs = [process.communicate(timeout=PATIENCE_S * 2)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * 64
    ones = [check_balance(one) for output in outputs for one in counts(output)]
    steady = number(served, "count(*)", "steady")
    lost = sum(one["dropped_full"] + one["dropped_unserved"] + one["dropped_other"] + one["refused"] for one in ones)
    assert len(ones) == 64 and steady + lost == 64 * 10_000
    rows = served.sql("SELECT max(value_int) AS n FROM samples WHERE metric = 'steadies' GROUP BY tags")
    assert [row["n"] for row in rows] == [10_000] * 64


def test_many_processes_that_begin_and_end_at_once_leave_the_cpu_to_the_service(serve, tmp_path, built):
    """Those that wait for it would otherwise be served one after the other, and many too late."""
    served = serve(tmp_path / "db")
    variables = environment(served, TELEM_EXIT_MS="60000")
    processes = [subprocess.Popen([str(built / "scenario"), "leave", "return"], env=variables) for _ in range(200)]
    assert [process.wait(PATIENCE_S) for process in processes] == [0] * 200
    assert served.sql("SELECT count(*) AS n, count(DISTINCT pid) AS pids FROM left") == [{"n": 200_000, "pids": 200}]


# ---- questions -------------------------------------------------------------------------------------------------------


def test_questions_are_answered_row_by_row(served, built):
    question = (
        "SELECT count(*) AS n, avg(value) AS mean, max(name) AS name, CAST(NULL AS BIGINT) AS nothing, 1 > 0 AS so, "
        "max(ts) AS at FROM asked"
    )
    done = run(built / "scenario", "ask", question, server=served)
    rows = done.stdout.splitlines()
    assert rows[0] == f"n=3 mean=1.5 name='x'1 nothing=NULL so=true at=@{START_US + 2}"
    assert rows[1] == "1 rows"
    assert "SELECT * FROM" in rows[2] or "expected" in rows[2].lower(), rows[2]


def test_answers_are_arrow(served, built):
    run(built / "scenario", "values", server=served)
    script = """
import ctypes, sys
import pyarrow as pa
library = ctypes.CDLL(sys.argv[1])
library.telem_error.restype = ctypes.c_char_p
stream = (ctypes.c_char * 64)()
def ask(sql):
    assert library.telem_sql(sql.encode(), 60000, stream) == 0, library.telem_error()
    return pa.RecordBatchReader._import_from_c(ctypes.addressof(stream)).read_all()
table = ask("SELECT CAST(ts AS BIGINT) AS us, ts, value_int, metric, value > 5 AS more FROM samples "
            "WHERE metric = 'back' ORDER BY ts")
table.validate(full=True)
assert table.num_rows == 1000, table
assert table["value_int"].to_pylist() == list(range(1000))
assert table["us"].to_pylist() == table["ts"].cast(pa.int64()).to_pylist()
assert table["more"].to_pylist() == [False] * 6 + [True] * 994
assert set(table["metric"].to_pylist()) == {"back"}
assert table.schema.field("ts").type == pa.timestamp("us", "UTC")
nulls = ask("SELECT CASE WHEN value_int % 2 = 0 THEN value_int END AS even, "
            "CASE WHEN value_int % 3 = 0 THEN 'x' END AS t FROM samples WHERE metric = 'back' ORDER BY ts")
nulls.validate(full=True)
assert nulls["even"].null_count == 500 and nulls["t"].to_pylist()[:4] == ["x", None, None, "x"]
empty = ask("SELECT value, metric FROM samples WHERE metric = 'nobody'")
assert empty.num_rows == 0 and empty.schema.names == ["value", "metric"]
print(pa.total_allocated_bytes())
"""
    run(sys.executable, "-c", script, built / "libtelem.so", server=served)


def test_cpp_has_spans_and_answers(served, built):
    rows = run(built / "spans", server=served).stdout.splitlines()
    assert rows == ["cpp_counter 1", "cpp_gauge 5", "cpp_histogram_bucket 4", "cpp_histogram_count 1",
                    "cpp_histogram_sum 1", "cpp_span 4", "refused"]
    assert number(served, "max(value)", "cpp_gauge") == 2.0**63


# ---- tools that look for faults --------------------------------------------------------------------------------------

SCENARIOS = [("values",), ("threads", 3, 300), ("adds", 2, 20_000), ("signals",), ("fork",), ("fork_first",),
             ("overrun",), ("thread_ends", 20), ("words",)]


def test_thread_sanitizer_finds_nothing(served, thread_sanitized):
    for scenario in [*SCENARIOS, ("fork_busy",), ("ask", "SELECT * FROM asked")]:
        done = run(thread_sanitized / "scenario", *scenario, server=served,
                   TSAN_OPTIONS="halt_on_error=1 die_after_fork=0")
        assert "WARNING: ThreadSanitizer" not in done.stderr, done.stderr


def test_address_and_undefined_behaviour_sanitizers_find_nothing(served, address_sanitized):
    # A child of fork() hangs where another thread held the lock of AddressSanitizer's own allocator, which GCC 12 carries
    # over to the child as it is. valgrind looks at forks instead.
    alone = [scenario for scenario in SCENARIOS if not scenario[0].startswith("fork")]
    for scenario in [*alone, ("ask", "SELECT * FROM asked"), ("leave", "exit"), ("alone",)]:
        run(address_sanitized / "scenario", *scenario, server=served)


def test_valgrind_finds_nothing(served, built):
    valgrind = ["valgrind", "-q", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"]
    for scenario in (("values",), ("threads", 2, 100), ("ask", "SELECT * FROM asked"), ("leave", "return"), ("fork",)):
        run(built / "scenario", *scenario, server=served, wrapper=valgrind)


# ---- how it is built -------------------------------------------------------------------------------------------------


def test_the_headers_are_clean_in_c99_c11_and_cpp17(tmp_path):
    twice = '#include "telem.h"\n#include "telem.h"\n'
    (tmp_path / "one.c").write_text(twice + "int main(void) { return telem_level() * 0; }\n")
    (tmp_path / "one.cpp").write_text('#include "telem.hpp"\n#include "telem.h"\nint main() { return 0; }\n')
    for standard in ("c99", "c11", "c17"):
        build("cc", f"-std={standard}", *STRICT, f"-I{C / 'include'}", "-fsyntax-only", tmp_path / "one.c")
    build("c++", "-std=c++17", *STRICT, f"-I{C / 'include'}", "-fsyntax-only", tmp_path / "one.cpp")
    build("c++", "-std=c++11", *STRICT, f"-I{C / 'include'}", "-fsyntax-only", "-x", "c++", C / "include" / "telem.h")


def test_the_library_shows_its_interface_and_nothing_else(built):
    shown = [line.split()[-1] for line in build("nm", "-D", "--defined-only", built / "libtelem.so").splitlines()]
    functions = {name.split("@@")[0] for name in shown if name != "TELEM_1.0"}
    assert all(name.endswith("@@TELEM_1.0") for name in shown if name != "TELEM_1.0"), shown
    header = (C / "include" / "telem.h").read_text()
    assert functions and all(f"{name}(" in header for name in functions)
    declared = {word.split("(")[0].strip("*") for line in header.splitlines() if line.startswith("TELEM_API")
                for word in line.split() if "(" in word}
    assert functions == declared
    dynamic = build("readelf", "-d", built / "libtelem.so")
    assert "libtelem.so.1]" in dynamic
    needed = [line.split("[")[1].split(".so")[0] for line in dynamic.splitlines() if "(NEEDED)" in line]
    assert set(needed) <= {"libc", "libpthread", "libm", "ld-linux-x86-64", "ld-linux-aarch64"}


def test_it_is_one_line_to_compile(tmp_path):
    build("cc", "-O1", "-shared", "-fPIC", *SOURCES, f"-I{C / 'include'}", "-pthread", "-lm", "-o",
          tmp_path / "libtelem.so")
    shown = build("nm", "-D", "--defined-only", tmp_path / "libtelem.so").splitlines()
    assert {line.split()[-1].startswith("telem_") for line in shown} == {True}
    assert not [line for line in shown if "telem__" in line]


def test_projects_find_it_by_cmake_and_by_pkg_config(served, built, tmp_path):
    for step in (["-S", C, "-B", tmp_path / "build", "-DCMAKE_BUILD_TYPE=Debug"], ["--build", tmp_path / "build"],
                 ["--install", tmp_path / "build", "--prefix", tmp_path / "to"]):
        build("cmake", *step)
    consumer = C / "tests" / "consumer"
    build("cmake", "-S", consumer, "-B", tmp_path / "consumer", f"-DCMAKE_PREFIX_PATH={tmp_path / 'to'}")
    build("cmake", "--build", tmp_path / "consumer")
    programs = [tmp_path / "consumer" / name for name in ("by_shared", "by_static")]
    (pc,) = (tmp_path / "to").rglob("telem.pc")
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "telem"], capture_output=True, text=True, check=True,
                           env={**os.environ, "PKG_CONFIG_PATH": str(pc.parent)}).stdout.split()
    programs.append(tmp_path / "by_pkg_config")
    build("cc", consumer / "main.c", *flags, f"-Wl,-rpath,{pc.parent.parent}", "-o", programs[-1])
    for program in programs:
        run(program, server=served)
    assert number(served, "count(DISTINCT tags['pid'])", "consumed") == len(programs)
    build("make", "-s", "-C", C, f"BUILD={built}", "CFLAGS=-O2 -g -Werror", "install", f"PREFIX={tmp_path / 'by_make'}")
    made = {path.name for path in (tmp_path / "by_make" / "lib").iterdir()}
    assert {"libtelem.a", "libtelem.so", "libtelem.so.1", "pkgconfig"} <= made


def test_the_examples_of_the_guide_compile_and_run(served, built, tmp_path):
    pages = [C / "README.md", C.parents[1] / "docs" / "moving.md"]
    blocks = [block for page in pages for block in re.findall(r"```(c|cpp)\n(.*?)```", page.read_text(), re.DOTALL)]
    assert len(blocks) >= 5
    for at, (language, text) in enumerate(blocks):
        whole = text if "int main" in text else f"#include <telem.h>\nint main(void)\n{{\n{text}\nreturn 0;\n}}\n"
        source = tmp_path / f"example{at}.{language}"
        source.write_text(whole)
        compiler = ["cc", "-std=c11"] if language == "c" else ["c++", "-std=c++17"]
        build(*compiler, *STRICT, source, f"-I{C / 'include'}", f"-L{built}", "-ltelem", f"-Wl,-rpath,{built}", "-o",
              tmp_path / f"example{at}")
        run(tmp_path / f"example{at}", server=served)
    assert number(served, "count(*)", "loss") == 1000
    assert number(served, "max(value_int)", "steps") == 1
    assert number(served, "max(value_int)", "cells") == 4096
    assert number(served, "count(*)", "solver_residual") == 100
