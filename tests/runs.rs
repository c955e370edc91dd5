//! Runs of one script on one node, saved side by side: found again by what they are called and were started with, and
//! kept apart in every question that asks whose samples they are.

use std::path::Path;
use std::process::Stdio;

use serde_json::Value as Json;

use crate::process::{Server, telem};
use crate::run::Place;

/// Sends a loss and ends with `code`.
fn script(loss: &str, code: u8) -> [String; 3] {
    ["sh".to_owned(), "-c".to_owned(), format!("\"$TELEM\" put loss 9 && \"$TELEM\" put loss {loss} && exit {code}")]
}

fn saved_run(place: &Place, save: &str, options: &[&str], loss: &str, code: u8) {
    let options: Vec<&str> = ["--level", "1", "--node", "n1", "--save", save].iter().chain(options).copied().collect();
    let script = script(loss, code);
    let script: Vec<&str> = script.iter().map(String::as_str).collect();
    let mut run = place.run(&options, &script);
    run.env("TELEM", env!("CARGO_BIN_EXE_telem"));
    let ended = run.output().unwrap();
    assert_eq!(ended.status.code(), Some(i32::from(code)), "{}", String::from_utf8_lossy(&ended.stderr));
}

fn answer(place: &Place, words: &[&str]) -> String {
    let mut command = telem(words);
    place.at_home(&mut command);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn runs_of_one_script_are_listed_with_their_settings_and_stay_apart_in_sql() {
    let place = Place::new();
    let config = place.path().join("base.json");
    std::fs::write(&config, r#"{"model": {"depth": 12}, "lr": 1}"#).unwrap();
    let base = config.to_str().unwrap();
    saved_run(&place, "runs/a", &["--name", "large lr", "--config", base, "--config", "lr=0.1"], "2.5", 0);
    saved_run(
        &place,
        "runs/b",
        &["--name", "small lr", "--config", base, "--config", "lr=0.01", "--tag", "sweep=7"],
        "0.5",
        3,
    );

    let listed: Vec<Json> =
        serde_json::from_str(&answer(&place, &["ls", "runs", "--json", "--columns", "loss"])).unwrap();
    let told: Vec<(&str, &str, &Json, &Json, f64)> = listed
        .iter()
        .map(|run| {
            let text = |name: &str| run[name].as_str().unwrap();
            let loss = run["values"]["loss"].as_f64().unwrap();
            (text("name"), text("state"), &run["settings"]["lr"], &run["settings"]["model.depth"], loss)
        })
        .collect();
    // Newest first.
    let (tenth, hundredth, depth) = (Json::from(0.1), Json::from(0.01), Json::from(12));
    assert_eq!(told, [("small lr", "failed", &hundredth, &depth, 0.5), ("large lr", "completed", &tenth, &depth, 2.5)]);
    assert!(listed[0]["dir"].as_str().unwrap().ends_with("runs/b"), "{}", listed[0]["dir"]);

    let mut unread = telem(["ls"]);
    place.at_home(&mut unread);
    let mut unread = unread.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(unread.stdout.take());
    let done = unread.wait_with_output().unwrap();
    assert!(done.status.success() && done.stderr.is_empty(), "a reader who has seen enough is no error: {done:?}");

    let table = answer(&place, &["ls", "--columns", "lr,loss"]);
    for expected in ["runs/a", "large lr", "completed", "0.01", "2.5"] {
        assert!(table.contains(expected), "{table}");
    }
    let filtered = answer(&place, &["ls", "--where", "sweep=7", "--where", "state=fail*"]);
    assert!(filtered.contains("small lr") && !filtered.contains("large lr"), "{filtered}");
    let mut unknown = telem(["ls", "--columns", "lr,lrr"]);
    place.at_home(&mut unknown);
    let said = String::from_utf8(unknown.output().unwrap().stderr).unwrap();
    assert_eq!(said, "no run has a setting, a tag or a metric of this name: lrr\n");
    let both = answer(&place, &["top", "runs", "--once", "--width", "120"]);
    let (title, more) = both.split_once('\n').unwrap();
    assert!(
        title.contains(" (2 jobs) ") && more.lines().next().unwrap().contains("one alone: telem top runs#"),
        "{both}"
    );

    let each = "SELECT name, CAST(settings['lr'] AS DOUBLE) AS lr, count(*) AS samples, min(value) AS best \
                FROM loss JOIN jobs USING (job) GROUP BY 1, 2 ORDER BY 2";
    let rows = answer(&place, &["sql", "--format", "csv", "runs/a", "runs/b", each]);
    let rows_of_each = "name,lr,samples,best\nsmall lr,0.01,2,0.5\nlarge lr,0.1,2,2.5\n";
    assert_eq!(rows, rows_of_each);
    // The folder around the runs stands for all of them.
    assert_eq!(answer(&place, &["sql", "--format", "csv", "runs", each]), rows_of_each);
    let told = answer(&place, &["info", "runs"]);
    assert!(told.contains("small lr") && told.contains("large lr"), "{told}");
    // For whoever knows tags alone.
    let replay = Server::replay(["runs/a", "runs/b"].map(|run| place.path().join(run)), &[]);
    let by_job = replay.get("/api/query?start=1h-ago&m=min:0all-min:loss%7Bjob=*%7D").expect(200).json();
    let least = |run: &Json| run["dps"].as_object().unwrap().values().next().unwrap().as_f64().unwrap();
    let mut each: Vec<f64> = by_job.as_array().unwrap().iter().map(least).collect();
    each.sort_by(f64::total_cmp);
    assert_eq!(each, [0.5, 2.5], "{by_job}");
    // And in files, which say whose a row is; of one run they have no such column.
    answer(&place, &["export", "runs/a", "runs/b", "-o", "both.csv", "--metric", "loss"]);
    let rows = std::fs::read_to_string(place.path().join("both.csv")).unwrap();
    let rows: Vec<Vec<&str>> = rows.lines().map(|row| row.split(',').collect()).collect();
    let (job, value) = (rows[0].iter().position(|name| *name == "job").unwrap(), rows[0].len() - 2);
    assert_eq!(rows[0][value], "value");
    let mut values: Vec<(&str, &str)> = rows[1..].iter().map(|row| (row[job], row[value])).collect();
    values.sort_unstable();
    values.dedup_by_key(|(job, _)| *job);
    assert_eq!((rows.len(), values.len()), (5, 2), "{rows:?}");
    answer(&place, &["export", "runs/a", "-o", "one.csv", "--metric", "loss"]);
    assert!(!std::fs::read_to_string(place.path().join("one.csv")).unwrap().contains("job"));
    let own = "SELECT DISTINCT name FROM jobs";
    assert_eq!(answer(&place, &["sql", "--format", "csv", "runs/a", own]), "name\nlarge lr\n");
}

#[test]
fn a_directory_without_runs_is_said_to_have_none_and_a_broken_run_is_listed_as_that() {
    let place = Place::new();
    let listed = |place: &Place| -> Vec<Json> { serde_json::from_str(&answer(place, &["ls", "--json"])).unwrap() };
    assert!(listed(&place).is_empty());
    saved_run(&place, "runs/a", &[], "1", 0);
    saved_run(&place, "runs/b", &[], "1", 0);
    std::fs::write(place.path().join("runs/b/n1/MANIFEST"), "x".repeat(100)).unwrap();
    let found = listed(&place);
    let states: Vec<&str> = found.iter().map(|run| run["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["completed", "broken"], "{found:?}");
    assert!(Path::new(found[1]["dir"].as_str().unwrap()).ends_with("runs/b/n1") && found[1]["broken"].is_string());
}

#[test]
fn settings_that_are_none_are_refused_before_the_command_runs() {
    let place = Place::new();
    let refused = place.output(&["--config", "nowhere.json"], &["touch", "began"]);
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("nowhere.json is neither KEY=VALUE nor a file"), "{said}");
    assert!(!place.path().join("began").exists());
}

#[test]
fn a_run_is_moved_and_removed_but_never_while_somebody_writes_it() {
    let place = Place::new();
    saved_run(&place, "runs/a", &["--name", "first"], "1", 0);
    std::fs::write(place.path().join("runs/a/notes.txt"), "mine").unwrap();
    std::fs::create_dir(place.path().join("kept")).unwrap();
    let run = |words: &[&str]| {
        let mut command = telem(words);
        place.at_home(&mut command);
        command.output().unwrap()
    };
    let told = |output: &std::process::Output| String::from_utf8_lossy(&output.stderr).into_owned();

    let writer = telem_engine::Db::open(&place.path().join("runs/a/n1"), telem_engine::Options::default()).unwrap();
    for words in [&["rm", "--yes", "runs/a"][..], &["mv", "runs/a", "kept"][..]] {
        let refused = run(words);
        assert!(refused.status.code() == Some(1) && told(&refused).contains("process"), "{}", told(&refused));
    }
    writer.close().unwrap();

    assert!(answer(&place, &["mv", "runs/a", "kept"]).contains("kept/a"));
    assert!(!place.path().join("runs/a").exists() && place.path().join("kept/a/notes.txt").exists());
    assert!(!place.path().join("kept/a/n1/WRITER").exists());
    assert!(answer(&place, &["ls", "kept"]).contains("first"));
    let taken = run(&["mv", "kept/a", "kept"]);
    assert!(told(&taken).contains("is there"), "{}", told(&taken));

    let unasked = run(&["rm", "kept/a"]);
    assert!(unasked.status.code() == Some(2) && told(&unasked).contains("--yes"), "{}", told(&unasked));
    let nothing = run(&["rm", "--yes", "kept"]);
    assert!(told(&nothing).contains("no saved run"), "{}", told(&nothing));
    assert!(answer(&place, &["rm", "--yes", "kept/a"]).contains("other files"));
    let left: Vec<_> =
        std::fs::read_dir(place.path().join("kept/a")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["notes.txt"]);
}

#[test]
fn a_run_is_not_moved_into_another() {
    let place = Place::new();
    for (name, job) in [("runs/a", "1"), ("runs/b", "2"), ("runs/c", "3")] {
        saved_run(&place, name, &[], job, 0);
    }
    let run = |words: &[&str]| {
        let mut command = telem(words);
        place.at_home(&mut command);
        command.output().unwrap()
    };
    // Into a run, into a database of one, and to a name within a run.
    for target in ["runs/b", "runs/b/", "runs/b/n1", "runs/b/n1/segments", "runs/b/new"] {
        let refused = run(&["mv", "runs/a", target]);
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            refused.status.code() == Some(1) && told.contains("name a place that is not there"),
            "{target}: {told}"
        );
        assert!(told.contains("runs/b") && told.contains("is a saved run, and") && told.contains("runs/a"), "{told}");
    }
    assert!(place.path().join("runs/a/n1").is_dir());
    assert_eq!(std::fs::read_dir(place.path().join("runs/b")).unwrap().count(), 1);
    // A database of a run may be moved to those of another, and renamed there.
    std::fs::rename(place.path().join("runs/c/n1"), place.path().join("runs/c/n1-2")).unwrap();
    assert!(answer(&place, &["mv", "runs/c/n1-2", "runs/b"]).contains("runs/b/n1-2"));
    assert!(answer(&place, &["mv", "runs/b/n1-2", "runs/b/n1-3"]).contains("runs/b/n1-3"));
}

#[test]
fn of_two_runs_in_one_directory_the_one_that_is_named_is_removed() {
    let place = Place::new();
    saved_run(&place, "runs/a", &["--name", "good"], "1", 0);
    saved_run(&place, "runs/a", &["--name", "bad"], "2", 3);
    let mut whole = telem(["rm", "--yes", "runs/a"]);
    place.at_home(&mut whole);
    let refused = whole.output().unwrap();
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(1) && why.contains("2 runs were saved into it"), "{why}");

    let failed: Vec<Json> =
        serde_json::from_str(&answer(&place, &["ls", "--json", "--where", "state=failed"])).unwrap();
    let databases: Vec<&str> =
        failed.iter().flat_map(|run| run["databases"].as_array().unwrap()).map(|path| path.as_str().unwrap()).collect();
    assert!(databases.len() == 1 && databases[0].ends_with("runs/a/n1-2"), "{databases:?}");
    answer(&place, &["rm", "--yes", databases[0]]);
    let left: Vec<Json> = serde_json::from_str(&answer(&place, &["ls", "--json"])).unwrap();
    assert_eq!(left.iter().map(|run| run["name"].as_str().unwrap()).collect::<Vec<_>>(), ["good"]);
}
