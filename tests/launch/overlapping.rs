//! Jobs that share a node and its hours: each sample of a program belongs to its job, those of the node to all that ran
//! there, and a question for one job reads nothing of the others.

use super::tasks::allocation;
use super::*;
use crate::run::Running;

/// Sends the value of its job, tells where its socket is, and waits for the end of its stdin.
const WORKS: &str = "\"$TELEM\" put work $0 && echo \"$TELEM_SOCKET\" && read -r _; exit 0";

/// A job that has sent its value.
struct Job {
    running: Running,
    socket: PathBuf,
}

/// Starts a job; `surroundings` make it one of a scheduler.
fn started(place: &Place, options: &[&str], value: &str, surroundings: impl FnOnce(&mut Command)) -> Job {
    let mut run = place.run(options, &["sh", "-c", WORKS, value]);
    run.env("TELEM", TELEM);
    surroundings(&mut run);
    let mut running = Running::start(run);
    let socket = PathBuf::from(running.line());
    Job { running, socket }
}

/// The rows of an answer, without its header.
fn rows(place: &Place, from: &[&str], sql: &str) -> Result<Vec<String>, String> {
    let mut command = telem(["sql", "--format", "csv"]);
    command.args(from).arg(sql);
    place.at_home(&mut command);
    let answer = command.output().unwrap();
    match answer.status.success() {
        true => Ok(String::from_utf8(answer.stdout).unwrap().lines().skip(1).map(str::to_owned).collect()),
        false => Err(String::from_utf8_lossy(&answer.stderr).into_owned()),
    }
}

#[test]
fn samples_of_jobs_that_share_a_node_belong_to_each_of_them_and_are_read_alone() {
    let place = Place::new();
    let alone = |id: &str| {
        let id = id.to_owned();
        move |run: &mut Command| {
            run.env("SLURM_JOB_ID", id);
        }
    };
    let plain = |save: &'static str, id: &'static str| ["--save", save, "--job", id];
    let jobs = [
        (started(&place, &plain("a", "plain-a"), "1", |_| {}), 1),
        (started(&place, &plain("b", "plain-b"), "2", |_| {}), 1),
        (started(&place, &["--save", "c"], "3", alone("91")), 1),
        (
            started(&place, &["--save", "d"], "4", |run| {
                allocation(&place, run);
                run.env("SLURM_JOB_ID", "92");
            }),
            3,
        ),
    ];
    // All four run, and have sampled every node of theirs.
    for (job, nodes) in &jobs {
        let socket = format!("unix:{}", job.socket.display());
        let sampled = || rows(&place, &[&socket], "SELECT DISTINCT node FROM node_load1").unwrap_or_default();
        poll("every node to be sampled", || sampled().len() == *nodes);
    }
    for (job, _) in jobs {
        let (status, said) = job.running.end();
        assert!(status.success(), "{said}");
    }

    let all = ["a", "b", "c", "d"];
    let own = "SELECT job, min(work), max(work), count(*) FROM work GROUP BY job ORDER BY job";
    assert_eq!(
        rows(&place, &all, own).unwrap(),
        ["91,3.0,3.0,1", "92,4.0,4.0,1", "plain-a,1.0,1.0,1", "plain-b,2.0,2.0,1"]
    );
    let hardware = "SELECT DISTINCT job, node FROM node_load1 ORDER BY job, node";
    // All are processes of this machine, which is the first node of each.
    let first = short_host();
    let nodes = ["", "-2", "-3"].map(|nth| format!("{first}{nth}"));
    let mut expected = nodes.each_ref().map(|node| format!("92,{node}")).to_vec();
    expected.extend(["91", "plain-a", "plain-b"].map(|job| format!("{job},{first}")));
    expected.sort();
    assert_eq!(rows(&place, &all, hardware).unwrap(), expected);

    // What a question reads that asks for one job: nothing is left to be read of the others.
    for other in ["a", "b", "c"] {
        for segment in left(&place.path().join(other), ".parquet")
            .iter()
            .filter(|path| path.to_string_lossy().contains("segments"))
        {
            std::fs::remove_file(segment).unwrap();
        }
    }
    let one = "SELECT DISTINCT node FROM node_load1 WHERE job = '92' ORDER BY node";
    assert_eq!(rows(&place, &all, one).unwrap(), nodes);
    let why = rows(&place, &all, hardware).unwrap_err();
    assert!(why.contains("is missing"), "{why}");
}
