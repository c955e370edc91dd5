#!/usr/bin/env bash
# The scripts of examples/slurm on a real Slurm: three nodes on this machine, each a slurmd of its own.
#
#   tests/slurm.sh [TELEM]        the binary, by default that of the debug build
#
# Needs root, and slurmctld, slurmd, srun and munged (Debian: apt-get install slurmctld slurmd slurm-client munge); says
# why and exits with 77 where it cannot run. Everything stands in a directory of its own, listens on free ports of
# loopback, and is gone at the end. Not part of ./test, because it needs root.
set -euo pipefail
cd "$(dirname "$0")/.."

skip() {
    echo "skipped: $*"
    exit 77
}
[[ $(id -u) == 0 ]] || skip "slurmd starts tasks for others, and needs root"
for program in slurmctld slurmd srun sbatch munged python3; do
    command -v "$program" >/dev/null || skip "there is no $program; apt-get install slurmctld slurmd slurm-client munge"
done
binary="$(realpath "${1:-${CARGO_TARGET_DIR:-target}/debug/telem}")"
[[ -x $binary ]] || skip "there is no $binary; build it, or name another"

# Short, for the paths of sockets.
dir="$(mktemp -d /tmp/ts.XXXX)"
# Under a name that no other process of telem has.
export TELEM="$dir/telem"
ln "$binary" "$TELEM" 2>/dev/null || cp "$binary" "$TELEM"
pids=()
finish() {
    local status=$?
    if ((status != 0)); then
        tail -n 30 "$dir"/log/* "$dir"/*.out 2>/dev/null || true
    fi
    # Those that were started last end first.
    for ((at = ${#pids[@]} - 1; at >= 0; at--)); do
        kill "${pids[at]}" 2>/dev/null || true
    done
    wait 2>/dev/null || true
    rm -rf "$dir"
    exit "$status"
}
trap finish EXIT
fail() {
    echo "FAILED: $*" >&2
    exit 1
}

mkdir -p "$dir"/{state,log,run}
host="$(hostname -s)"
read -r ctld n1 n2 n3 <<<"$(python3 - <<'PORTS'
import socket
held = [socket.socket() for _ in range(4)]
for one in held:
    one.bind(('127.0.0.1', 0))
print(*(one.getsockname()[1] for one in held))
PORTS
)"
dd if=/dev/urandom of="$dir/munge.key" bs=32 count=32 status=none
chmod 400 "$dir/munge.key"
# What tells nodes of one machine apart: directories of their own, as every real node has them.
cat >"$dir/prolog" <<'PROLOG'
#!/bin/sh
mkdir -p -m 700 "$TELEM_TEST/$SLURMD_NODENAME"
echo "export TMPDIR=$TELEM_TEST/$SLURMD_NODENAME"
PROLOG
chmod +x "$dir/prolog"
export TELEM_TEST="$dir"
cat >"$dir/slurm.conf" <<CONF
ClusterName=telem
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$ctld
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/run/munge
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool.%n
SlurmctldPidFile=$dir/run/ctld.pid
SlurmdPidFile=$dir/run/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
TaskProlog=$dir/prolog
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
KillWait=5
SlurmdParameters=config_overrides
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$n1 CPUs=4 State=UNKNOWN
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=$n2 CPUs=4 State=UNKNOWN
NodeName=n3 NodeHostname=$host NodeAddr=127.0.0.1 Port=$n3 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=n[1-3] Default=YES MaxTime=10:00 State=UP
CONF
export SLURM_CONF="$dir/slurm.conf"
start() { # start NAME COMMAND...
    local name="$1"
    shift
    "$@" >"$dir/log/$name" 2>&1 </dev/null &
    pids+=($!)
}
until_true() { # until_true WHAT COMMAND...
    local what="$1"
    shift
    for _ in {1..300}; do
        if "$@" >/dev/null 2>&1; then return; fi
        sleep 0.1
    done
    fail "waited 30 s in vain for $what"
}
start munged munged --foreground --force --key-file="$dir/munge.key" --socket="$dir/run/munge" \
    --pid-file="$dir/run/munged.pid" --log-file="$dir/log/munged.log" --seed-file="$dir/run/seed"
until_true "munged" test -S "$dir/run/munge"
start slurmctld slurmctld -D -c
until_true "slurmctld" scontrol ping
for node in n1 n2 n3; do
    # A Slurm without support for several daemons of one machine takes no -N.
    mkdir "$dir/spool.$node"
    start "$node" slurmd -D -N "$node"
done
idle() { [[ "$(sinfo --noheader --states=idle --format=%D)" == 3 ]]; }
until_true "three idle nodes" idle
echo "Slurm $(srun --version | cut -d' ' -f2) with three nodes runs"

cp examples/slurm/*.sh "$dir/"
cd "$dir"
job() { # job SCRIPT: runs it to its end; $out is what it said, $id its number
    local script="$1" code
    shift
    code=0
    id="$(sbatch --parsable --wait --output="$dir/%j.out" "$@" "$script")" || code=$?
    out="$(cat "$dir/$id.out")"
    echo "-- $script, job $id, exit code $code"
    sed 's/^/   /' <<<"$out"
    return "$code"
}
said() { grep -qE -- "$1" <<<"$out" || fail "not said: $1"; }
not_said() { ! grep -qE -- "$1" <<<"$out" || fail "said: $1"; }
samples() { "$TELEM" -q sql "$dir/telem-$id" "$1" --format csv | tail -n +2; }
nothing_left() {
    local rest
    rest="$(pgrep -af "$TELEM (run|record|node)" || true)"
    [[ -z $rest ]] || fail "still there: $rest"
    rest="$(find "$dir" -name '.telem-*' -o -name '*.join' -o -name '*.agents')"
    [[ -z $rest ]] || fail "left behind: $rest"
}

job job.sh --nodes=3
not_said warning
said 'on 3 nodes'
[[ "$(samples "SELECT count(*) FROM samples WHERE metric = 'example_progress'")" == 60 ]] || fail "not all progress is there"
nothing_left

job tasks.sh --nodes=2
not_said warning
[[ "$(samples "SELECT count(*) FROM samples WHERE metric = 'example_progress'")" == 40 ]] || fail "not all progress is there"
nothing_left

# Exit codes are the program's.
code=0
PROGRAM=/bin/false job job.sh --nodes=2 || code=$?
((code == 1)) || fail "exit code $code"
nothing_left

# A job that is cancelled ends within seconds, and what was there is saved.
id="$(PAUSE=60 sbatch --parsable --nodes=2 --output="$dir/%j.out" job.sh)"
until_true "the job to be recorded" grep -q 'listening on' "$dir/$id.out"
scancel "$id"
over() { [[ -z "$(squeue --noheader)" ]]; }
until_true "the end of the job" over
gone() { ! pgrep -f "$TELEM (run|record|node)"; }
until_true "the end of telem" gone
"$TELEM" -q check "$dir/telem-$id" || fail "what a cancelled job left is not sound"
echo "passed"
