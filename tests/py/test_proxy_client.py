"""The client library of Metric Proxy (clients/proxy): what it writes, and that nothing is lost, counted twice or waited
for, whatever becomes of threads, processes and the server."""

import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys

import pytest
from proxy_recorder import PATIENCE_S, Recorder

PROXY = pathlib.Path(__file__).resolve().parents[2] / "clients" / "proxy"
SOURCES = sorted(map(str, (PROXY / "src").glob("*.c")))
STRICT = ["-Wall", "-Wextra", "-pedantic", "-Werror"]
NAMES = {"metric_proxy_init", "metric_proxy_release", "metric_proxy_counter_new", "metric_proxy_gauge_new",
         "metric_proxy_counter_inc", "metric_proxy_gauge_set", "metric_proxy_get_func", "__cyg_profile_func_enter"}


def build(*command, cwd=None):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=PATIENCE_S * 4, cwd=cwd)
    assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The library by make, and the program of clients/proxy/tests with it."""
    folder = tmp_path_factory.mktemp("proxy")
    build("make", "-s", "-C", PROXY, f"BUILD={folder}", "CFLAGS=-O2 -g -Werror", folder / "libproxyclient.so")
    link = [f"-I{PROXY / 'include'}", f"-L{folder}", "-lproxyclient", f"-Wl,-rpath,{folder}", "-pthread"]
    build("cc", "-std=c11", "-O1", "-g", *STRICT, PROXY / "tests" / "scenario.c", *link, "-o", folder / "scenario")
    return folder


def sanitized(folder, *flags):
    build("cc", "-std=c11", "-O1", "-g", "-fno-omit-frame-pointer", *flags, PROXY / "tests" / "scenario.c", *SOURCES,
          f"-I{PROXY / 'include'}", "-pthread", "-o", folder / "scenario")
    return folder


@pytest.fixture(scope="module")
def thread_sanitized(tmp_path_factory):
    return sanitized(tmp_path_factory.mktemp("tsan"), "-fsanitize=thread")


@pytest.fixture(scope="module")
def address_sanitized(tmp_path_factory):
    return sanitized(tmp_path_factory.mktemp("asan"), "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


CROSS = "aarch64-linux-gnu-gcc"
EMULATOR = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")


@pytest.fixture(scope="module")
def aarch64(tmp_path_factory):
    """Library, tracer and program for AArch64, where there is a cross compiler."""
    if shutil.which(CROSS) is None:
        pytest.skip(f"{CROSS} is not installed")
    folder = tmp_path_factory.mktemp("aarch64")
    build("make", "-s", "-C", PROXY, f"BUILD={folder}", f"CC={CROSS}", "CFLAGS=-O2 -g -Werror", "MPICC=no-such-mpicc")
    link = [f"-I{PROXY / 'include'}", f"-L{folder}", "-lproxyclient", f"-Wl,-rpath,{folder}", "-pthread"]
    build(CROSS, "-std=c11", "-O1", "-g", *STRICT, PROXY / "tests" / "scenario.c", *link, "-o", folder / "scenario.aarch64")
    return folder


@pytest.fixture(scope="module")
def emulated(aarch64):
    """The same, whose `scenario` runs on this machine."""
    if EMULATOR is None:
        pytest.skip("qemu-aarch64 is not installed")
    script = aarch64 / "scenario"
    script.write_text(f'#!/bin/sh\nexec {EMULATOR} -L /usr/aarch64-linux-gnu -0 "$0" {aarch64}/scenario.aarch64 "$@"\n')
    script.chmod(0o755)
    return aarch64


@pytest.fixture(params=["built", "emulated"])
def everywhere(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def recorder():
    started = []

    def start(path=None):
        started.append(Recorder(path))
        return started[-1]

    yield start
    for one in started:
        if not one.ends:
            one.go_away()


@pytest.fixture
def server(recorder):
    return recorder()


def environment(path, **more):
    """Of a program that waits for the server at its end as long as it takes, unless a test says otherwise."""
    ours = ("PROXY_", "SLURM_", "OMPI_", "PMI", "METRIC_PROXY_", "TELEM_", "LD_")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**clean, "PROXY_PATH": str(path), "PROXY_PERIOD": "50", "PROXY_EXIT_MS": str(PATIENCE_S * 1000), **more}


def run(program, *arguments, path, code=0, wrapper=(), **more):
    done = subprocess.run([*wrapper, str(program), *map(str, arguments)], env=environment(path, **more),
                          capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-8000:]}"
    return done


class Talking:
    """A scenario that goes on when it is told to."""

    def __init__(self, program, *arguments, path, **more):
        self.process = subprocess.Popen([str(program), *map(str, arguments)], env=environment(path, **more),
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def hear(self):
        return self.process.stdout.readline().strip()

    def say(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self, code=0):
        output, _ = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == code, output
        return output


# ---- what is written -------------------------------------------------------------------------------------------------


def test_a_session_is_written_byte_for_byte_as_the_original_does(server, everywhere):
    run(everywhere / "scenario", "session", path=server.path, PROXY_JOB_ID="my.job.1", PROXY_PERIOD="60000")
    (one,) = server.ended(1)
    messages = [re.sub(r'("ts":|"start_time":)[1-9][0-9]*', r"\1TIME", text) for text in one.messages]
    command = json.dumps(f"{everywhere / 'scenario'} session")
    assert one.bytes.endswith(b"}\0")
    described = (f'{{"JobDesc":{{"jobid":"my.job.1","command":{command},"size":1,"nodelist":"","partition":"",'
                 f'"cluster":"","run_dir":{json.dumps(os.getcwd())},"start_time":TIME,"end_time":0}}}}')
    assert messages[0] == described
    declared = [text for text in messages if text.startswith('{"Desc"')]
    assert declared == [
        '{"Desc":{"name":"has_started","doc":"Number of calls to metric_proxy_init",'
        '"ctype":{"Counter":{"ts":0,"value":0.0}}}}',
        '{"Desc":{"name":"wire_counter","doc":"A \\"quoted\\" doc \\\\ with\\ttabs,\\nlines, \\u0001 and \u00e9",'
        '"ctype":{"Counter":{"ts":0,"value":0.0}}}}',
        '{"Desc":{"name":"wire_gauge{rank=\\"0\\"}","doc":"gauge doc",'
        '"ctype":{"Gauge":{"min":0.0,"max":0.0,"hits":0.0,"total":0.0}}}}',
        '{"Desc":{"name":"has_finished","doc":"Number of calls to metric_proxy_release",'
        '"ctype":{"Counter":{"ts":0,"value":0.0}}}}',
    ]
    values = [text for text in messages if text.startswith('{"Value"')]
    assert {
        '{"Value":{"name":"has_finished","value":{"Counter":{"ts":TIME,"value":1.0}}}}',
        '{"Value":{"name":"wire_gauge{rank=\\"0\\"}","value":{"Gauge":{"min":7.0,"max":7.0,"hits":1.0,"total":7.0}}}}',
    } <= set(values)
    assert len(messages) == 1 + len(declared) + len(values)
    assert one.sums == {"has_started": 1, "wire_counter": 3.5, 'wire_gauge{rank="0"}': 7, "has_finished": 1}
    assert all(abs(value["ts"] / 1e6 - one.job["start_time"] / 1e3) < PATIENCE_S
               for value in (v["value"].get("Counter") for v in one.named("Value")) if value)


def text_of(number):
    """As serde_json prints it: the digits are those of Python, the place of the point is not."""
    sign = "-" if number < 0 else ""
    mantissa, _, exponent = f"{abs(number)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole.lstrip("0")) + int(exponent or 0)
    if not whole.lstrip("0"):
        point -= len(fraction) - len(fraction.lstrip("0"))
    digits = digits.rstrip("0")
    if len(digits) <= point <= 16:
        return f"{sign}{digits.ljust(point, '0')}.0"
    if 0 < point <= 16:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -5 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    return f"{sign}{digits[0]}{'.' if len(digits) > 1 else ''}{digits[1:]}e{point - 1}"


def test_numbers_have_the_shortest_text_that_reads_the_same(server, everywhere):
    import random

    random.seed(20)
    numbers = [1, -1, 0.1, 0.5, -2.25, 12345.678, 1e14, 999999999999999, 1e15, 9999999999999998, 1e16, 1e17, 1e21, 1e22,
               1e300, 1.7976931348623157e308, 5e-324, 2.2250738585072014e-308, 1e-310, 1e-4, 1e-5, 1e-6, 2e-5, 0.00012345,
               3.3333333333333335, 0.1 + 0.2, 2.0**53 + 2, 4503599627370497.5, 123456.7890123, 1 / 3, 100, 2.0**-1074 * 3]
    while len(numbers) < 1000:
        (one,) = struct.unpack("d", random.randbytes(8))
        if one == one and abs(one) != float("inf") and one != 0:
            numbers.append(one)
    numbers += [round(random.uniform(-1e6, 1e6), random.randrange(8)) for _ in range(500)]
    numbers += [random.random() * 10.0 ** random.randrange(-9, 18) for _ in range(500)]
    run(everywhere / "scenario", "numbers", *map(repr, numbers), path=server.path)
    (one,) = server.ended(1)
    found = dict(re.findall(r'"name":"number_(\d+)","value":\{"Counter":\{"ts":\d+,"value":([^}]+)\}', one.bytes.decode()))
    wrong = [(number, found.get(str(at)), text_of(number)) for at, number in enumerate(numbers)
             if number != 0 and found.get(str(at)) != text_of(number)]
    assert wrong == []


def test_what_cannot_be_said_is_refused_and_changes_nothing(server, everywhere):
    run(everywhere / "scenario", "limits", path=server.path)
    (one,) = server.ended(1)
    assert one.sums == {"has_started": 2, "one": 1.7976931348623157e308, "gauge": 0, "has_finished": 2}
    assert b"null" not in one.bytes
    assert set(one.docs) == {"has_started", "one", "gauge", "n" * 1600, "has_finished"}
    assert len(one.docs["n" * 1600].encode()) in (4095, 4096)


# ---- which job -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("variables", "expected"), [
    ({}, ""),
    ({"PROXY_JOB_ID": "my.job.1"}, "my.job.1"),
    ({"PROXY_JOB_ID": "given", "SLURM_JOBID": "77", "SLURM_STEP_ID": "3"}, "given"),
    ({"SLURM_JOBID": "77", "SLURM_STEP_ID": "3"}, "77-3"),
    ({"SLURM_JOBID": "77"}, "77"),
    ({"PMIX_ID": "prte-host-1@1.0"}, "prte-host-1@1"),
    ({"PMIX_ID": "a.0", "METRIC_PROXY_LAUNCHER_PPID": "12"}, "a"),
    ({"METRIC_PROXY_LAUNCHER_PPID": "12"}, "12"),
    ({"METRIC_PROXY_LAUNCHER_PPID": "12", "SLURM_STEP_ID": "3"}, "12"),
])
def test_a_given_id_is_kept_and_only_that_of_pmix_is_cut(server, built, variables, expected):
    run(built / "scenario", "leave", "return", path=server.path, code=7, **variables)
    (one,) = server.ended(1)
    assert one.job["jobid"] == expected


def test_the_description_of_the_job_is_of_its_environment(server, built, tmp_path):
    slurm = {"SLURM_NTASKS": "16", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_JOB_PARTITION": "main",
             "SLURM_CLUSTER_NAME": 'the "cluster"', "OMPI_COMM_WORLD_SIZE": "4"}
    program = built / "scenario"
    subprocess.run([program, "leave", "return", "--foo", "bar", "--", "b c"], cwd=tmp_path, check=False,
                   env=environment(server.path, **slurm), timeout=PATIENCE_S)
    (one,) = server.ended(1)
    assert (one.job["size"], one.job["nodelist"], one.job["partition"], one.job["cluster"]) == \
        (16, "n[1-2]", "main", 'the "cluster"')
    assert one.job["command"] == f"{program} leave return --foo bar -- b c"
    assert one.job["run_dir"] == str(tmp_path)


def test_a_command_of_any_bytes_and_length_is_described(server, built):
    subprocess.run([built / "scenario", "leave", "return", b"\xff\xfe", "\u00e9" * 20000], check=False,
                   env=environment(server.path), timeout=PATIENCE_S)
    (one,) = server.ended(1)
    assert len(one.messages[0]) < 65536
    assert one.job["command"].startswith(f"{built / 'scenario'} leave return ??")


@pytest.mark.parametrize("launcher", ["proxy_run", "proxy_exporter_strace"])
def test_of_a_launcher_what_follows_its_own_dashes_is_the_command(server, built, tmp_path, launcher):
    shutil.copy(built / "scenario", tmp_path / launcher)
    run(tmp_path / launcher, "leave", "return", "--", "./solver", "--", "x", path=server.path, code=7)
    (one,) = server.ended(1)
    assert one.job["command"] == "./solver -- x"


# ---- sums ------------------------------------------------------------------------------------------------------------


def test_sixteen_threads_add_exactly(server, everywhere):
    run(everywhere / "scenario", "threads", 16, 20000, path=server.path, PROXY_PERIOD="1")
    (one,) = server.ended(1)
    expected = {"has_started": 1, "shared": 320_000, "fraction": 16 * 10_000 * 0.25, "has_finished": 1}
    assert one.sums == {**expected, **{f"own_{i}": 40_000 for i in range(16)}}


def test_a_flush_is_one_call_of_the_kernel(server, built, tmp_path):
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    process = Talking("strace", "-f", "-qq", "-e", "trace=sendto", "-o", tmp_path / "calls", built / "scenario", "cost",
                      "10000", path=server.path, PROXY_PERIOD="60000")
    while process.hear() != "declared":
        pass
    # All declarations have come, so none is in the last call.
    server.await_bytes(b'number=\\"9999\\"')
    process.say()
    process.end()
    (one,) = server.ended(1)
    calls = [line for line in (tmp_path / "calls").read_text().splitlines() if "sendto(" in line and "resumed" not in line]
    last = [line for line in calls if "has_finished" in line or 'Value' in line]
    assert len([text for text in one.messages if text.startswith('{"Value"')]) >= 10_000
    assert 1 <= len(last) <= 3, last


def test_sums_that_fall_are_sent(server, everywhere):
    process = Talking(everywhere / "scenario", "steps", path=server.path)
    assert process.hear() == "one"
    server.wait(lambda: server.total("steps") == 1)
    process.say()
    process.hear()
    server.wait(lambda: server.total("steps") == 11)
    process.say()
    process.hear()
    server.wait(lambda: server.total("steps") == -89)
    process.say()
    process.end()
    (one,) = server.ended(1)
    assert one.sums == {"has_started": 1, "steps": -89, "level": 4, "late": 5, "has_finished": 1}


def test_a_declaration_is_sent_at_once(server, built):
    process = Talking(built / "scenario", "steps", path=server.path, PROXY_PERIOD="3600000")
    process.hear()
    server.wait(lambda: any("level" in one.docs for one in server.connections))
    process.process.kill()
    process.process.wait(PATIENCE_S)


# ---- the server comes and goes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("program", ["built", "emulated", "thread_sanitized", "address_sanitized"])
def test_a_server_that_is_started_again_is_told_everything_anew(recorder, request, program):
    first = recorder()
    process = Talking(request.getfixturevalue(program) / "scenario", "steps", path=first.path)
    process.hear()
    first.wait(lambda: first.total("steps") == 1 and first.total("level") == 4)
    first.go_away()
    process.say()
    assert process.hear() == "two"
    again = recorder(first.path)
    again.wait(lambda: again.total("steps") == 10)
    (one,) = again.connections
    assert one.messages[0] == first.connections[0].messages[0], "the same job, from the same time"
    assert list(one.docs) == ["has_started", "steps", "level"]
    assert one.sums["level"] == 4, "a gauge is shown again"
    process.say()
    process.hear()
    process.say()
    process.end()
    again.ended(1)
    assert again.total("steps") == -90 and again.total("late") == 5 and again.total("has_finished") == 1


def test_a_server_that_starts_later_is_told_what_was_counted_before(recorder, built, tmp_path):
    path = tmp_path / "later.socket"
    process = Talking(built / "scenario", "steps", path=path)
    process.hear()
    process.say()
    process.hear()
    server = recorder(str(path))
    server.wait(lambda: server.total("steps") == 11)
    process.say()
    process.hear()
    process.say()
    process.end()


def test_without_a_server_nothing_fails_or_speaks_and_the_end_is_told(built, tmp_path):
    done = run(built / "scenario", "session", path=tmp_path / "nobody", code=1)
    assert done.stdout + done.stderr == ""
    done = run(built / "scenario", "leave", "exit", path=tmp_path / "nobody", code=7)
    assert done.stdout + done.stderr == ""
    done = run(built / "scenario", "leave", "exit", path=tmp_path / "nobody", code=7, TELEM_DEBUG="1")
    assert "no server at" in done.stderr and "nobody" in done.stderr


def test_a_server_that_does_not_read_holds_nobody_up(recorder, built):
    server = recorder()
    process = Talking(built / "scenario", "stalled", 3000, 200, path=server.path, PROXY_PERIOD="20", PROXY_EXIT_MS="300")
    assert process.hear() == "declared"
    server.await_bytes(b"stalled_2999")
    server.pause()
    process.say()
    counted_s, longest_s = map(float, process.hear().split())
    assert process.hear() == "counted"
    process.say()
    failed, waited_s = process.hear().split()
    process.end()
    server.go_on()
    assert failed == "1" and float(waited_s) < 20
    assert counted_s < PATIENCE_S and longest_s < 20


def test_a_server_that_reads_again_gets_everything(recorder, built):
    server = recorder()
    process = Talking(built / "scenario", "stalled", 3000, 50, path=server.path, PROXY_PERIOD="20")
    assert process.hear() == "declared"
    server.await_bytes(b"stalled_2999")
    server.pause()
    process.say()
    process.hear()
    assert process.hear() == "counted"
    server.go_on()
    process.say()
    assert process.hear().split()[0] == "0"
    process.end()
    server.ended(1)
    totals = server.totals()
    assert {totals[f"stalled_{i}"] for i in range(3000)} == {50}


# ---- processes -------------------------------------------------------------------------------------------------------


# The emulator of processes ends with a failed assertion of its own (qemu-user 7.2) where a forked child begins a thread;
# clients/proxy/tests/aarch64/check runs these two on a whole emulated machine.
def test_a_forked_child_counts_its_own_and_has_its_own_connection(server, built):
    run(built / "scenario", "forks", path=server.path, PROXY_PERIOD="60000")
    server.ended(3)
    assert server.total("forked") == 1111 and server.total("of_child") == 7 and server.total("gauge") == 1
    assert sorted(one.sums.get("forked", 0) for one in server.connections) == [1, 100, 1010]
    assert {one.job["start_time"] for one in server.connections} == {server.connections[0].job["start_time"]}


def test_forking_while_other_threads_count_harms_neither(server, built):
    run(built / "scenario", "fork_busy", 20, path=server.path, PROXY_PERIOD="1")
    server.ended(21)
    assert [server.total(f"child_{i}") for i in range(20)] == list(range(1, 21))
    assert server.total("shared") > 0
    assert sorted("shared" in one.sums for one in server.connections) == [False] * 20 + [True]


@pytest.mark.parametrize("how", ["exit", "return"])
def test_what_was_counted_is_sent_at_the_end_of_the_process(server, built, how):
    run(built / "scenario", "leave", how, path=server.path, code=7, PROXY_PERIOD="3600000")
    (one,) = server.ended(1)
    assert one.sums == {"has_started": 1, "left": 3}


def test_a_process_that_ends_by_force_ends_at_once(server, built):
    run(built / "scenario", "leave", "_exit", path=server.path, code=7)


def test_init_after_release_begins_anew(server, everywhere):
    run(everywhere / "scenario", "again", path=server.path)
    assert [one.sums for one in server.ended(3)] == [{"has_started": 1, "again": 1, "has_finished": 1}] * 3


def test_a_program_that_closes_all_files_goes_on_and_its_files_stay_its_own(server, built, tmp_path):
    process = Talking(built / "scenario", "close_all", tmp_path / "file", path=server.path)
    assert process.hear() == "open"
    server.wait(lambda: server.total("closing") == 1)
    process.say()
    process.end()
    server.ended(2)
    assert server.total("closing") == 3 and (tmp_path / "file").read_bytes() == b""


def test_the_library_leaves_signals_as_they_are(server, built, tmp_path):
    (tmp_path / "signals.c").write_text("""
#include <signal.h>
#include <metric_proxy_client.h>
int main(void)
{
    struct sigaction now;
    metric_proxy_release(metric_proxy_init());
    return sigaction(SIGPIPE, NULL, &now) || now.sa_handler != SIG_DFL;
}
""")
    build("cc", tmp_path / "signals.c", f"-I{PROXY / 'include'}", f"-L{built}", "-lproxyclient", f"-Wl,-rpath,{built}", "-o",
          tmp_path / "signals")
    run(tmp_path / "signals", path=server.path)
    (one,) = server.ended(1)
    assert one.sums == {"has_started": 1, "has_finished": 1}


def test_a_library_that_is_preloaded_into_a_shell_says_nothing(server, built):
    done = run("/bin/echo", "word", path=server.path, LD_PRELOAD=str(built / "libproxyclient.so"))
    assert (done.stdout, done.stderr, server.connections) == ("word\n", "", [])


# ---- tools that look for faults --------------------------------------------------------------------------------------

SCENARIOS = [("session",), ("limits",), ("threads", 4, 2000), ("forks",), ("again",)]


def test_thread_sanitizer_finds_nothing(server, thread_sanitized):
    # It takes the thread of a forked child for one of the parent's, so forks are for valgrind.
    for scenario in [one for one in SCENARIOS if one != ("forks",)]:
        done = run(thread_sanitized / "scenario", *scenario, path=server.path, PROXY_PERIOD="1",
                   TSAN_OPTIONS="halt_on_error=1 die_after_fork=0")
        assert "WARNING: ThreadSanitizer" not in done.stderr, done.stderr


def test_address_and_undefined_behaviour_sanitizers_find_nothing(server, address_sanitized):
    # A child of fork() hangs where another thread held the lock of AddressSanitizer's own allocator, which GCC 12 carries
    # over to the child as it is.
    alone = [one for one in SCENARIOS if one != ("forks",)]
    for scenario in [*alone, ("numbers", "1", "0.1", "1e300", "5e-324", "-3.25", "1e-5")]:
        run(address_sanitized / "scenario", *scenario, path=server.path, PROXY_PERIOD="1")
    run(address_sanitized / "scenario", "leave", "exit", path=server.path, code=7)


def test_valgrind_finds_nothing(server, built):
    valgrind = ["valgrind", "-q", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"]
    for scenario in (("session",), ("threads", 2, 100), ("limits",), ("forks",)):
        run(built / "scenario", *scenario, path=server.path, wrapper=valgrind)


def numbers_of_calls(compiler):
    """System calls as the kernel's header has them, by name."""
    found = subprocess.run([compiler, "-E", "-dM", "-include", "asm/unistd.h", "-x", "c", os.devnull], capture_output=True,
                           text=True, check=True).stdout
    known = dict(re.findall(r"^#define (__NR\w+) (\w+)$", found, re.MULTILINE))
    # Some stand for another one.
    known = {name: known.get(number, number) for name, number in known.items()}
    return {name.removeprefix("__NR_"): int(number) for name, number in known.items()
            if name.startswith("__NR_") and number.isdigit()}


@pytest.mark.parametrize(("compiler", "define"), [("cc", "__x86_64__"), (CROSS, "__aarch64__")])
def test_the_tracer_calls_system_calls_by_their_names(compiler, define, tmp_path):
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    if compiler == "cc" and f"#define {define} 1" not in build("cc", "-E", "-dM", "-x", "c", os.devnull):
        pytest.skip(f"this machine's compiler does not define {define}")
    # The table is the same whoever compiles it: only the one of `define` is kept.
    (tmp_path / "names.c").write_text(
        f"#include <stdio.h>\n#undef __x86_64__\n#undef __aarch64__\n#define {define} 1\n#include \"calls.h\"\n"
        'int main(void) { for (int i = 0; i < CALLS; i++) if (call_names[i]) printf("%d %s\\n", i, call_names[i]); }\n')
    build("cc", "-std=c11", f"-I{PROXY / 'exporters' / 'strace'}", tmp_path / "names.c", "-o", tmp_path / "names")
    ours = dict(line.split() for line in build(tmp_path / "names").splitlines())
    theirs = numbers_of_calls(compiler)
    assert len(theirs) > 250
    wrong = {name: number for name, number in theirs.items()
             if str(number) in ours and name not in (ours[str(number)], "arch_specific_syscall", "syscalls")
             and theirs.get(ours[str(number)]) != number}
    assert wrong == {}
    assert {name for name, number in theirs.items() if str(number) not in ours} <= {"arch_specific_syscall", "syscalls"}


def test_library_and_tracer_compile_for_aarch64(aarch64):
    for name in ("libproxyclient.so", "proxy_exporter_strace"):
        # The machine stands in the head of an ELF file: 183 is AArch64.
        assert struct.unpack_from("<H", (aarch64 / name).read_bytes(), 18) == (183,)


# ---- how it is built -------------------------------------------------------------------------------------------------


def test_the_header_is_clean_in_c99_c11_and_cpp(tmp_path):
    twice = '#include "metric_proxy_client.h"\n#include "metric_proxy_client.h"\n'
    (tmp_path / "one.c").write_text(twice + "int main(void) { return metric_proxy_release(0) * 0; }\n")
    for standard in ("c99", "c11", "c17"):
        build("cc", f"-std={standard}", *STRICT, f"-I{PROXY / 'include'}", "-fsyntax-only", tmp_path / "one.c")
    for standard in ("c++11", "c++17"):
        build("c++", f"-std={standard}", *STRICT, f"-I{PROXY / 'include'}", "-fsyntax-only", "-x", "c++", tmp_path / "one.c")


def test_the_library_shows_the_names_of_the_original_and_needs_the_c_library_alone(built):
    shown = {line.split()[-1] for line in build("nm", "-D", "--defined-only", built / "libproxyclient.so").splitlines()}
    assert shown == NAMES
    dynamic = build("readelf", "-d", built / "libproxyclient.so")
    assert "soname: [libproxyclient.so]" in dynamic
    needed = [line.split("[")[1].split(".so")[0] for line in dynamic.splitlines() if "(NEEDED)" in line]
    assert set(needed) <= {"libc", "libpthread", "ld-linux-x86-64", "ld-linux-aarch64"}


def test_projects_find_it_by_pkg_config_after_make_and_cmake(server, built, tmp_path):
    build("make", "-s", "-C", PROXY, f"BUILD={tmp_path / 'made'}", "MPICC=no-such-mpicc", "install",
          f"PREFIX={tmp_path / 'by_make'}")
    # The exporter of MPI takes longer than all of the rest; tests/py/test_proxy_exporters.py builds it.
    for step in (["-S", PROXY, "-B", tmp_path / "build", "-DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON"], ["--build", tmp_path / "build"],
                 ["--install", tmp_path / "build", "--prefix", tmp_path / "by_cmake"]):
        build("cmake", *step)
    for way in ("by_make", "by_cmake"):
        (pc,) = (tmp_path / way).rglob("proxyclient.pc")
        flags = subprocess.run(["pkg-config", "--cflags", "--libs", "proxyclient"], capture_output=True, text=True,
                               check=True, env={**os.environ, "PKG_CONFIG_PATH": str(pc.parent)}).stdout.split()
        build("cc", PROXY / "tests" / "scenario.c", *flags, "-pthread", "-o", tmp_path / way / "scenario")
        run(tmp_path / way / "scenario", "session", path=server.path)
        assert (tmp_path / way / "bin" / "proxy_exporter_strace").exists()
    server.wait(lambda: server.total("wire_counter") == 7)


def test_the_example_of_the_page_compiles_and_runs(server, built, tmp_path):
    page = (PROXY.parents[1] / "docs" / "proxy-client.md").read_text()
    (text,) = re.findall(r"```c\n(.*?)```", page, re.DOTALL)
    (tmp_path / "example.c").write_text(text)
    build("cc", "-std=c11", *STRICT, tmp_path / "example.c", f"-I{PROXY / 'include'}", f"-L{built}", "-lproxyclient",
          f"-Wl,-rpath,{built}", "-o", tmp_path / "example")
    run(tmp_path / "example", path=server.path)
    (one,) = server.ended(1)
    assert one.sums == {"has_started": 1, 'steps_total{phase="solve"}': 1000, "residual": 0.001, "has_finished": 1}
