//! Slurm, as far as a script can replace it: agents by `srun --overlap`, and `srun telem run -- ./app`.
//! `tests/slurm.sh` runs the same on a real one.

use super::*;
use crate::process::{SOON, telem};
use crate::run::{Running, output, said};

/// Starts a program on the hosts of `--nodelist`, `--ntasks` times in all, as the real one does: what comes in goes to
/// every task, what they say comes out, SIGTERM ends them, and the exit code is the highest.
const SRUN: &str = r#"#!/usr/bin/env python3
import os, re, signal, subprocess, sys, threading
place = os.environ['PLACE']
with open(place + '/asked', 'a') as asked:
    asked.write('srun ' + ' '.join(sys.argv[1:]) + '\n')
end = sys.argv.index('--')
options = dict(word[2:].split('=', 1) for word in sys.argv[1:end] if '=' in word)
first, last = re.fullmatch(r'n(?:\[(\d)-)?(\d)\]?', options['nodelist']).groups()
hosts = ['n%d' % n for n in range(int(first or last), int(last) + 1)]
count = int(options['ntasks'])
tasks = []
for rank in range(count):
    host = hosts[rank * len(hosts) // count]
    run = os.path.join(place, host, 'run')
    os.makedirs(run, mode=0o700, exist_ok=True)
    os.chmod(run, 0o700)
    local = sum(1 for other in range(rank) if hosts[other * len(hosts) // count] == host)
    step = options.get('step', '5')
    env = dict(os.environ, XDG_RUNTIME_DIR=run, TMPDIR=os.path.join(place, host), SLURMD_NODENAME=host,
               SLURM_STEP_ID=step, SLURM_PROCID=str(rank), SLURM_LOCALID=str(local),
               SLURM_STEP_NUM_NODES=str(len(hosts)), SLURM_STEP_NODELIST=options['nodelist'])
    tasks.append(subprocess.Popen(sys.argv[end + 1:], stdin=subprocess.PIPE, env=env))
def feed():
    # Not through a buffer, whose lock would be in the way of the end.
    while some := os.read(0, 1 << 16):
        for task in tasks:
            try:
                task.stdin.write(some)
                task.stdin.flush()
            except OSError:
                pass
    for task in tasks:
        task.stdin.close()
threading.Thread(target=feed, daemon=True).start()
signal.signal(signal.SIGTERM, lambda *_: [task.kill() for task in tasks])
sys.exit(max(task.wait() & 0xff for task in tasks))
"#;

/// In an allocation of three nodes, on the first.
pub(super) fn allocation(place: &Place, command: &mut Command) {
    put_program(place, "srun", SRUN, command);
    command.env("SLURM_JOB_ID", "77").env("SLURM_JOB_NODELIST", "n[1-3]").env("SLURMD_NODENAME", "n1");
    command.env("SLURM_NTASKS", "12").env("SLURM_CPUS_PER_TASK", "4");
}

#[test]
fn in_an_allocation_of_several_nodes_agents_start_by_themselves_on_the_others() {
    let place = Place::new();
    let mut run = telem(["run", "--", "sh", "-c", WAITS, "6"]);
    place.at_home(&mut run);
    allocation(&place, &mut run);
    let mut running = Running::start(run);
    let socket = PathBuf::from(running.line());
    assert_eq!(states(&socket).len(), 3, "{:?}", states(&socket));
    let agents = agents(&socket);
    let (status, said) = running.end();
    assert_eq!(status.code(), Some(6), "{said}");
    assert!(said.contains("on 3 nodes") && !said.contains("warning"), "{said}");
    poll_gone(&agents);
    let asked = std::fs::read_to_string(place.path().join("asked")).unwrap();
    let step = "srun --overlap --mpi=none --cpu-bind=none --mem=0 --gres=none --nodes=2 --ntasks=2 --ntasks-per-node=1 \
                --nodelist=n[2-3] ";
    assert!(asked.starts_with(step) && asked.lines().count() == 1, "{asked}");
    assert!(place.path().join("telem-77").is_dir());
    assert_tidy(&place);
}

#[test]
fn with_no_launcher_or_one_node_nothing_is_started() {
    let place = Place::new();
    for (options, nodes) in [(&["--launcher", "none"][..], "n[1-3]"), (&[], "n1")] {
        let mut run = telem(["run"]);
        run.args(options).args(["--", "true"]);
        place.at_home(&mut run);
        allocation(&place, &mut run);
        run.env("SLURM_JOB_NODELIST", nodes);
        let done = output(run);
        assert!(done.status.success() && !said(&done).contains("nodes"), "{}", said(&done));
    }
    assert!(!place.path().join("asked").exists());
}

/// Each task tells its rank and its socket; the first tells how many nodes its head has once there are two.
const TASK: &str = r#"
echo "$SLURM_PROCID $TELEM_SOCKET $TELEM_JOB"
if [ "$SLURM_PROCID" = 0 ]; then
    until "$TELEM" nodes "unix:$TELEM_SOCKET" --format json > nodes.json && [ "$(grep -oE '"state": *"up"' nodes.json | wc -l)" = 2 ]; do
        sleep 0.1
    done
    : > done
fi
until test -e done; do sleep 0.05; done
exit $((SLURM_PROCID + 1))
"#;

#[test]
fn tasks_of_srun_find_each_other_one_records_each_node_and_exit_codes_are_the_commands() {
    let place = Place::new();
    let mut srun = Command::new("srun");
    srun.args(["--nodelist=n[1-2]", "--ntasks=4", "--", TELEM, "run", "--", "sh", "-c", TASK]);
    place.at_home(&mut srun);
    allocation(&place, &mut srun);
    // The sockets of a job are named after it: no other test has services of this one, nor have these tests where they
    // run a second time on this machine.
    let job = format!("80{:07}", std::process::id());
    srun.env("TELEM", TELEM).env("SLURM_JOB_ID", &job);
    let done = output(srun);
    assert_eq!(done.status.code(), Some(4), "{}", said(&done));
    let stdout = String::from_utf8_lossy(&done.stdout);
    let mut told: Vec<Vec<&str>> = stdout.lines().map(|line| line.split(' ').collect()).collect();
    told.sort();
    assert_eq!(told.len(), 4, "{stdout} {}", said(&done));
    assert!(told.iter().all(|task| task[2] == job), "{stdout}");
    let sockets: Vec<&str> = told.iter().map(|task| task[1]).collect();
    assert!(sockets[0] == sockets[1] && sockets[2] == sockets[3] && sockets[0] != sockets[2], "{stdout}");
    // One recorder a node: each saved what it had.
    let mut saved: Vec<String> = std::fs::read_dir(place.path().join(format!("telem-{job}")))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    saved.sort();
    assert_eq!(saved, [short_host(), format!("{}-2", short_host())], "{}", said(&done));
    assert_tidy(&place);
    assert!(!left(place.path(), "").iter().any(|path| path.to_string_lossy().contains(&format!(".telem-{job}"))));
}

/// One task of a step with one task on each of two nodes, which somebody started early or late.
fn task(place: &Place, rank: u32, command: &[&str]) -> Running {
    let mut run = telem(["run", "--"]);
    run.args(command);
    place.at_home(&mut run);
    run.env("SLURM_JOB_ID", "78").env("SLURM_STEP_ID", "0").env("SLURM_STEP_NODELIST", "n[1-2]");
    run.env("SLURM_STEP_NUM_NODES", "2").env("SLURM_LOCALID", "0").env("SLURM_PROCID", rank.to_string());
    run.env("SLURMD_NODENAME", format!("n{}", rank + 1)).env("TELEM", TELEM);
    Running::start(run)
}

#[test]
fn a_task_whose_head_comes_late_says_what_it_waits_for_and_joins() {
    let place = Place::new();
    let mut second = task(&place, 1, &["sh", "-c", TASK]);
    let said = second.wait_to_hear("for the head of job 78");
    assert!(said.contains("waiting 5") && said.contains("/.telem-78/head"), "{said}");
    let first = task(&place, 0, &["sh", "-c", TASK]);
    // That ends once its head knows two nodes.
    for (task, code) in [(first, 1), (second, 2)] {
        let (status, said) = task.end();
        assert_eq!(status.code(), Some(code), "{said}");
        assert!(!said.contains("alone"), "{said}");
    }
    assert_tidy(&place);
}

#[test]
fn a_task_that_waits_for_its_head_ends_when_it_is_told_to() {
    let place = Place::new();
    let mut alone = task(&place, 1, &["touch", "ran"]);
    alone.wait_to_hear("for the head of job 78");
    alone.signal(rustix::process::Signal::TERM);
    let clock = telem_engine::SystemClock::new();
    let (status, said) = alone.end();
    let took = telem_engine::Clock::monotonic(&clock);
    assert_eq!(status.code(), Some(143), "{said}");
    assert!(took < SOON, "{took:?}");
    assert!(!place.path().join("ran").exists());
    assert_tidy(&place);
}

/// Sends its rank to the recorder of its node, and ends when all four have.
const FOUR: &str = r#"
"$TELEM" put here 1 "rank=$RANK" && : > "put-$RANK"
until test -e put-0 && test -e put-1 && test -e put-2 && test -e put-3; do sleep 0.05; done
"#;

/// One of four tasks, three of them on the first of two nodes, as Open MPI starts them, or something that says of
/// PMIx's variables the rank alone.
fn one_of_four(place: &Place, rank: u32, says_local_rank: bool) -> Running {
    let (node, local_rank, local_size) = if rank < 3 { ("n1", rank, "3") } else { ("n2", 0, "1") };
    let mut run = telem(["run", "--", "sh", "-c", FOUR]);
    place.at_home(&mut run);
    run.env("SLURM_JOB_ID", "79").env("SLURM_JOB_NODELIST", "n[1-2]").env("SLURMD_NODENAME", node);
    run.env("RANK", rank.to_string()).env("TELEM", TELEM);
    if says_local_rank {
        run.env("OMPI_COMM_WORLD_RANK", rank.to_string()).env("OMPI_COMM_WORLD_SIZE", "4");
        run.env("OMPI_COMM_WORLD_LOCAL_RANK", local_rank.to_string()).env("OMPI_COMM_WORLD_LOCAL_SIZE", local_size);
    } else {
        run.env("PMIX_RANK", rank.to_string());
    }
    Running::start(run)
}

#[test]
fn a_head_that_comes_after_other_tasks_of_its_node_records_all_of_them() {
    for says_local_rank in [true, false] {
        let place = Place::new();
        let mut tasks: Vec<Running> = [1, 2, 3].map(|rank| one_of_four(&place, rank, says_local_rank)).into();
        poll("a task to keep the node of the head", || place.path().join(".telem-79/n1.keeper").exists());
        tasks.push(one_of_four(&place, 0, says_local_rank));
        for task in tasks {
            let (status, said) = task.end();
            assert!(status.success() && !said.contains("alone") && !said.contains("warning"), "{said}");
        }
        let saved = place.path().join("telem-79");
        let rows =
            telem(["sql", "--format", "csv"]).arg(&saved).arg("SELECT node, rank FROM here ORDER BY rank").output();
        let (one, two) = (short_host(), format!("{}-2", short_host()));
        let rows = String::from_utf8(rows.unwrap().stdout).unwrap();
        let of = |head: &str, other: &str| format!("node,rank\n{head},0\n{head},1\n{head},2\n{other},3\n");
        assert!(rows == of(&one, &two) || rows == of(&two, &one), "{rows}");
        assert_eq!(std::fs::read_dir(&saved).unwrap().count(), 2);
        assert_tidy(&place);
    }
}
