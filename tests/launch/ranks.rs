//! Processes of one launcher on one node, without a scheduler: `mpirun -np 4 telem run -- ./app`.

use super::*;
use crate::process::{quiet, telem};
use crate::run::{output, said};

/// Starts four processes as launchers do that have no scheduler: as what is asked for, `openmpi`, `hydra` (every other
/// one by a shell) or `pmix`. Prints how each of them ended.
const LAUNCHER: &str = r#"
import os, subprocess, sys
kind, name, command = sys.argv[1], sys.argv[2], sys.argv[3:]
tasks = []
for rank in range(4):
    said = {
        'openmpi': {'OMPI_COMM_WORLD_RANK': rank, 'OMPI_COMM_WORLD_SIZE': 4, 'OMPI_COMM_WORLD_LOCAL_RANK': rank,
                    'OMPI_COMM_WORLD_LOCAL_SIZE': 4, 'PMIX_RANK': rank, 'PMIX_NAMESPACE': name},
        'hydra': {'PMI_RANK': rank, 'PMI_SIZE': 4, 'MPI_LOCALRANKID': rank, 'MPI_LOCALNRANKS': 4, 'PMI_FD': 6 + rank},
        'spread': {'PMI_RANK': rank, 'PMI_SIZE': 8, 'MPI_LOCALRANKID': rank, 'MPI_LOCALNRANKS': 4},
        'pmix': {'PMIX_RANK': rank, 'PMIX_NAMESPACE': name},
    }[kind]
    environment = dict(os.environ, RANK=str(rank), **{key: str(value) for key, value in said.items()})
    between = ['sh', '-c', '"$@"; exit $?', 'sh'] if kind == 'hydra' and rank % 2 else []
    tasks.append(subprocess.Popen(between + command, env=environment))
print('codes', *[task.wait() for task in tasks])
"#;

/// Sends its rank to the recorder of its node, ends when all four have, and with a code of its own.
const RANK: &str = r#"
rank="${RANK:-${OMPI_COMM_WORLD_RANK:-$PMI_RANK}}"
"$TELEM" put here 1 "rank=$rank" && : > "put-$rank"
echo "$TELEM_JOB $TELEM_SOCKET"
until test -e put-0 && test -e put-1 && test -e put-2 && test -e put-3; do sleep 0.05; done
test -z "$RANK" || exit $((rank + 3))
"#;

/// What a launcher of that kind does with `telem run` and `options`.
fn launched(place: &Place, kind: &str, options: &[&str]) -> (String, String) {
    let mut launcher = Command::new("python3");
    // Other tests have launches of their own at the same time.
    let name = format!("{kind}-{}", place.path().file_name().unwrap().to_string_lossy());
    launcher.args(["-c", LAUNCHER, kind, &name, TELEM, "run"]).args(options).args(["--", "sh", "-c", RANK]);
    quiet(&mut launcher);
    place.at_home(&mut launcher);
    launcher.env("TELEM", TELEM);
    let done = output(launcher);
    (String::from_utf8_lossy(&done.stdout).into_owned(), said(&done))
}

/// What was saved: one database, of one node, with the metrics of all four ranks.
#[track_caller]
fn assert_one_database(place: &Place, said: &str) {
    let saved = left(place.path(), "MANIFEST");
    assert_eq!(saved.len(), 1, "{saved:?} {said}");
    let mut asked = telem(["sql", "--format", "csv"]);
    asked.arg(saved[0].parent().unwrap()).arg("SELECT node, rank FROM here ORDER BY rank");
    let rows = String::from_utf8(asked.output().unwrap().stdout).unwrap();
    let node = short_host();
    assert_eq!(rows, format!("node,rank\n{node},0\n{node},1\n{node},2\n{node},3\n"), "{said}");
    assert_tidy(place);
}

#[test]
fn processes_of_one_launcher_on_one_node_have_one_recorder_and_the_exit_codes_of_their_commands() {
    for kind in ["openmpi", "hydra", "pmix"] {
        let place = Place::new();
        let (printed, said) = launched(&place, kind, &[]);
        assert!(printed.ends_with("codes 3 4 5 6\n"), "{kind}: {printed} {said}");
        let mut told: Vec<&str> = printed.lines().filter(|line| !line.starts_with("codes")).collect();
        told.dedup();
        assert_eq!(told.len(), 1, "all are told of one job and one socket: {printed}");
        assert!(!said.contains("warning"), "{kind}: {said}");
        assert_one_database(&place, &said);
    }
}

#[test]
fn a_node_of_a_launch_on_several_nodes_that_share_no_name_is_a_job_of_its_own_and_that_is_said_once() {
    let place = Place::new();
    let (printed, said) = launched(&place, "spread", &[]);
    assert!(printed.ends_with("codes 3 4 5 6\n"), "{printed} {said}");
    assert_eq!(said.matches("is recorded as a job of its own").count(), 1, "{said}");
    assert!(said.contains("telem run --hostfile FILE -- mpirun"), "{said}");
    assert_one_database(&place, &said);
}

#[test]
fn with_no_launcher_every_process_is_a_job_of_its_own() {
    let place = Place::new();
    let (printed, said) = launched(&place, "hydra", &["--launcher", "none"]);
    assert!(printed.ends_with("codes 3 4 5 6\n"), "{printed} {said}");
    assert_eq!(left(place.path(), "MANIFEST").len(), 4);
}

#[test]
fn four_processes_of_the_mpirun_that_is_installed_are_recorded_once() {
    for (mpirun, options) in [("mpirun.openmpi", &["--oversubscribe"][..]), ("mpirun.mpich", &[])] {
        if !Command::new(mpirun).arg("--version").output().is_ok_and(|version| version.status.success()) {
            println!("skipped: there is no {mpirun} here");
            continue;
        }
        let place = Place::new();
        let mut run = Command::new(mpirun);
        run.args(options).args(["-np", "4", TELEM, "run", "--", "sh", "-c", RANK]);
        quiet(&mut run);
        place.at_home(&mut run);
        run.env("TELEM", TELEM).env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        let done = output(run);
        let said = said(&done);
        assert!(done.status.success() && !said.contains("warning"), "{mpirun}: {said}");
        assert_one_database(&place, &said);
    }
}
