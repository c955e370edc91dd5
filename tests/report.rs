//! `telem report` on a job that runs and on what it leaves, as a process.

use std::path::PathBuf;

use serde_json::{Value as Json, json};

use crate::process::{Server, poll, telem};
use crate::run::{Place, Running};

/// Sends a metric of two ranks, tells where its socket is, and waits for the end of its stdin.
const WORKS: &str =
    "for rank in 0 1; do \"$TELEM\" put step_seconds 0.5 rank=$rank; done; echo \"$TELEM_SOCKET\"; read -r _; exit 3";

fn report(place: &Place, words: &[&str]) -> (Option<i32>, String) {
    let mut command = telem([&["report"], words].concat());
    place.at_home(&mut command);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), String::from_utf8(output.stdout).unwrap() + &said)
}

#[test]
fn a_job_is_reported_while_it_runs_and_when_it_is_over() {
    let place = Place::new();
    let mut run = place.run(&["--save", "saved", "--name", "trial", "--config", "lr=0.1"], &["sh", "-c", WORKS]);
    run.env("TELEM", env!("CARGO_BIN_EXE_telem"));
    let mut running = Running::start(run);
    let socket = format!("unix:{}", PathBuf::from(running.line()).display());
    let live = || report(&place, &[&socket]).1;
    poll("the node to be sampled twice", || live().contains("Nodes: cores and memory"));
    let (code, text) = report(&place, &[&socket, "--fail-on-warning"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.starts_with("trial: running\n") && text.contains("No warnings"), "{text}");
    let (status, said) = running.end();
    assert_eq!(status.code(), Some(3), "{said}");

    let (code, text) = report(&place, &["saved", "--html", "report.html"]);
    assert_eq!(code, Some(0), "{text}");
    for expected in ["trial: failed, exit code 3", "settings  lr=0.1", "step_seconds", "Nodes: disks and network"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let page = std::fs::read_to_string(place.path().join("report.html")).unwrap();
    assert!(page.contains("CPU in use (%)") && page.ends_with("</body></html>\n"), "{page}");
    let json: Json = serde_json::from_str(&report(&place, &["saved", "--json"]).1).unwrap();
    assert_eq!(
        (&json["job"]["exit_code"], &json["job"]["description"]["settings"]["lr"]),
        (&Json::from(3), &Json::from(0.1))
    );
    assert_eq!(json["views"]["report_rank_metrics"].as_array().unwrap().len(), 2);
    let (_, markdown) = report(&place, &["saved", "--markdown"]);
    assert!(markdown.starts_with("# trial: failed, exit code 3\n"), "{markdown}");

    // What it prints as its views is what it asks.
    let (_, views) = report(&place, &["--sql"]);
    std::fs::write(place.path().join("mine.sql"), views).unwrap();
    let (code, again) = report(&place, &["saved", "--views", "mine.sql"]);
    assert!(code == Some(0) && again == text, "{again}");
    let (code, why) = report(&place, &["nowhere"]);
    assert!(code == Some(1) && why.contains("cannot report on 'nowhere'"), "{why}");
}

#[test]
fn notes_of_the_run_are_in_its_report() {
    let place = Place::new();
    let data = place.path().join("db");
    let server = Server::serve(&data, &[]);
    let put = json!({"metric": "loss", "timestamp": 1_767_225_600, "value": 0.5, "tags": {"rank": "0"}});
    server.post("/api/put", &put).expect(204);
    let note = |second: i64, text: &str| {
        let note = json!({"startTime": second, "description": text, "notes": "by hand", "custom": {"epoch": "3"}});
        server.post("/api/annotation", &note).expect(200);
    };
    note(1_767_225_610, "learning rate halved");
    note(1_767_229_200, "of another hour");
    assert!(server.terminate().0.success());
    let (code, text) = report(&place, &[data.to_str().unwrap()]);
    let notes = text.split("\nNotes\n").nth(1).unwrap_or_default();
    assert!(code == Some(0) && notes.contains("2026-01-01T00:00:10Z  learning rate halved: by hand\n"), "{text}");
    assert!(!text.contains("of another hour"), "{text}");
}

#[test]
fn warnings_have_an_exit_code_of_their_own() {
    let place = Place::new();
    let second =
        |at: i64| (0..5).map(move |rank| format!("{},{rank},{}\n", 1_767_225_600 + at, 1 + i64::from(rank == 3)));
    let rows: String = (0..60).flat_map(second).collect();
    std::fs::write(place.path().join("steps.csv"), format!("ts,rank,step_seconds\n{rows}")).unwrap();
    let mut import = telem(["import", "steps.csv", "--tags", "rank", "--save", "imported"]);
    place.at_home(&mut import);
    assert!(import.output().unwrap().status.success());
    let (code, text) = report(&place, &["imported", "--fail-on-warning"]);
    assert!(code == Some(3) && text.contains("straggler"), "{code:?}: {text}");
    assert_eq!(report(&place, &["imported"]).0, Some(0));
    assert_eq!(report(&place, &["nowhere", "--fail-on-warning"]).0, Some(1));
    assert_eq!(report(&place, &["--fail-on-warning"]).0, Some(2));
}
