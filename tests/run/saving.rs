//! What is saved of a job that ended, of one that was told to end, and of one whose disk was full.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value as Json;
use telem_engine::{Clock, Db, DbInfo, Options, SystemClock};

use super::*;

/// Posts as many samples as its argument says, twenty at a time, printing how many were acknowledged; prints `refused`,
/// and why, and sends no more when one is not. Then waits for the end of its stdin, and exits with its second argument.
pub const POSTER: &str = "
import http.client, json, os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid(), flush=True)
connection = http.client.HTTPConnection(os.environ['TELEM_URL'].split('//')[1])
count, sent = int(sys.argv[1]), 0
while sent < count:
    batch = [{'metric': 'posted', 'timestamp': 1767225600000 + n, 'value': n * 7 % 1009, 'tags': {'host': 'a'}}
             for n in range(sent, min(sent + 20, count))]
    connection.request('POST', '/api/put', json.dumps(batch))
    answer = connection.getresponse()
    said = answer.read()
    if answer.status != 204:
        print('refused', answer.status, said, flush=True)
        break
    sent += len(batch)
    print(sent, flush=True)
print('done', flush=True)
sys.stdin.read()
sys.exit(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
";

/// What is saved so soon after SIGTERM was not saved by a step, where those are a minute apart.
const BEFORE_THE_NEXT_STEP: Duration = Duration::from_secs(30);

/// `--level 1` has nothing but what the command posts.
pub const POSTED_ALONE: [&str; 4] = ["--level", "1", "--node", "n1"];

/// The numbers of the samples that a database holds; each must have its own value.
pub fn posted(dir: &Path) -> Vec<i64> {
    let sql = "SELECT (CAST(ts AS BIGINT) - 1767225600000000) / 1000 AS n, value FROM posted ORDER BY ts";
    let done = asked(&["sql", "--format", "csv"], dir, sql);
    let said = said(&done);
    if said.contains("posted") && !done.status.success() {
        return Vec::new();
    }
    assert!(done.status.success(), "{said}");
    let rows = String::from_utf8(done.stdout).unwrap();
    let sample = |line: &str| {
        let (n, value) = line.split_once(',').unwrap();
        let n: i64 = n.parse().unwrap();
        assert_eq!(value.parse::<f64>().unwrap(), (n * 7 % 1009) as f64, "sample {n} has another value");
        n
    };
    rows.lines().skip(1).map(sample).collect()
}

/// What `telem` with `words`, the directory and perhaps `more` answers.
pub fn asked(words: &[&str], dir: &Path, more: &str) -> Output {
    let mut telem = telem(words);
    telem.arg(dir).args((!more.is_empty()).then_some(more));
    output(telem)
}

/// `telem check` finds nothing wrong.
pub fn assert_sound(dir: &Path, why: &str) {
    let check = asked(&["check"], dir, "");
    assert!(check.status.success(), "{why}: {}", said(&check));
}

pub fn info(dir: &Path) -> Option<DbInfo> {
    Db::open_read_only(dir, Options::default()).ok()?.info().ok()
}

fn job(dir: &Path) -> Json {
    let db = Db::open_read_only(dir, Options::default()).unwrap();
    db.snapshot().meta().job().cloned().unwrap_or_default()
}

fn poster(place: &Place, options: &[&str], count: &str) -> Running {
    let options: Vec<&str> = POSTED_ALONE.iter().chain(options).copied().collect();
    let mut running = Running::start(place.run(&options, &["python3", "-c", POSTER, count]));
    let _command = running.line();
    until_done(&mut running);
    running
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).map(|entries| entries.map(|entry| entry.unwrap().path()).collect());
    entries.unwrap_or_default()
}

#[test]
fn a_job_that_ended_is_saved_whole_and_its_live_data_are_gone() {
    let place = Place::new();
    let running = poster(&place, &["--job", "j1"], "1000");
    let (status, said) = running.end();
    assert!(status.success(), "{said}");
    let saved = place.path().join("telem-j1/n1");
    assert!(said.contains("1,000 samples in 1 series, "), "{said}");
    assert!(said.contains(&format!("saved in {}", saved.display())) && said.contains("s of CPU"), "{said}");
    assert_eq!(posted(&saved), (0..1000).collect::<Vec<_>>());
    assert_sound(&saved, "after a clean end");
    for gone in ["WRITER", "connection.json"] {
        assert!(!saved.join(gone).exists(), "{gone}");
    }
    assert_eq!(info(&saved).unwrap().wal_bytes, 0, "a closed database has no WAL");
    let live = files(&place.path().join("live")).pop().unwrap();
    assert!(files(&live).is_empty(), "{:?}", files(&live));
}

#[test]
fn a_clean_end_merges_what_the_flushes_of_the_job_left() {
    let place = Place::new();
    // A WAL of a quarter of this is flushed.
    let options = ["--save", "out", "--save-interval", "100ms", "--data-bytes-max", "200k"];
    let running = poster(&place, &options, "12000");
    let copy = place.path().join("out/n1");
    poll("a flush to be saved", || info(&copy).is_some_and(|info| info.segment_files.len() > 1));
    let (status, said) = running.end();
    assert!(status.success(), "{said}");
    let found = info(&copy).unwrap();
    assert_eq!((found.segment_files.len(), found.series_files.len(), found.wal_bytes), (1, 1, 0), "{said}");
    assert_eq!(posted(&copy), (0..12_000).collect::<Vec<_>>());
    assert_eq!(files(&copy.join("segments")).len(), 1, "what was merged is gone");
    assert_sound(&copy, "after a merge");
}

#[test]
fn the_saved_database_says_which_job_it_was_and_how_it_ended() {
    let place = Place::new();
    let mut run = place.run(&["--save", "out", "--node", "n1", "--level", "1"], &["sh", "-c", "exit 3"]);
    run.env("SLURM_JOB_ID", "77").env("SLURM_JOB_NAME", "train").env("SECRET_KEY", "hush");
    assert_eq!(output(run).status.code(), Some(3));
    let job = job(&place.path().join("out/n1"));
    assert_eq!((&job["id"], &job["command"]), (&"77".into(), &serde_json::json!(["sh", "-c", "exit 3"])));
    assert_eq!((&job["exit_code"], &job["scheduler"]["SLURM_JOB_NAME"]), (&3.into(), &"train".into()));
    assert!(
        job["host"]["cores"].as_u64().unwrap() > 0 && job["start"].as_str().unwrap() < job["end"].as_str().unwrap()
    );
    assert!(!job.to_string().contains("hush"));
}

#[test]
fn a_second_run_into_the_same_place_has_a_name_of_its_own() {
    let place = Place::new();
    for (count, node) in [("40", "n1"), ("60", "n1-2"), ("20", "n1-3")] {
        let (status, said) = poster(&place, &["--save", "out"], count).end();
        assert!(status.success(), "{said}");
        let saved = place.path().join("out").join(node);
        assert_eq!(posted(&saved).len(), count.parse::<usize>().unwrap());
        assert_eq!(info(&saved).unwrap().node, node);
    }
}

#[test]
fn two_runs_of_one_job_at_once_do_not_meet() {
    let place = Place::new();
    let options = ["--save", "out", "--job", "j1"];
    let one = poster(&place, &options, "40");
    let two = poster(&place, &options, "60");
    assert!(one.end().0.success() && two.end().0.success());
    let found = ["n1", "n1-2"].map(|node| posted(&place.path().join("out").join(node)).len());
    assert_eq!(found, [40, 60]);
}

#[test]
fn the_nodes_metrics_are_saved_at_level_2() {
    let place = Place::new();
    let options = ["--save", "out", "--node", "n1", "--interval", "100ms", "--save-interval", "100ms"];
    let running = Running::start(place.run(&options, &["cat"]));
    let copy = place.path().join("out/n1");
    // There is something to read while the job runs.
    poll("the copy to hold samples", || info(&copy).is_some_and(|info| info.samples > 0));
    let (status, said) = running.end();
    assert!(status.success(), "{said}");
    let sql = "SELECT count(DISTINCT metric) AS n FROM samples WHERE host = 'n1'";
    let done = asked(&["sql", "--format", "csv"], &copy, sql);
    let metrics: u64 = String::from_utf8(done.stdout).unwrap().lines().nth(1).unwrap().parse().unwrap();
    assert!(metrics > 10, "{metrics} metrics, {said}");
}

#[test]
fn a_job_at_level_0_keeps_nothing() {
    let place = Place::new();
    let run = place.run(&["--level", "0", "--node", "n1", "--save", "out"], &["python3", "-c", POSTER, "20"]);
    let done = output(run);
    assert!(done.status.success() && String::from_utf8_lossy(&done.stdout).contains("20\n"), "{}", said(&done));
    assert_eq!(info(&place.path().join("out/n1")).unwrap().samples, 0);
}

#[test]
fn without_saving_the_live_data_stay_and_are_named() {
    let place = Place::new();
    let (_, said) = poster(&place, &["--no-save", "--job", "j1"], "40").end();
    let live = said.split("live data in ").nth(1).unwrap().split_whitespace().next().unwrap();
    assert!(live.ends_with("/j1/n1"), "{said}");
    assert_eq!(posted(Path::new(live)).len(), 40);
    assert!(!place.path().join("telem-j1").exists());
}

#[test]
fn data_that_were_asked_for_stay_beside_the_copy() {
    let place = Place::new();
    let (_, said) = poster(&place, &["--data", "kept", "--save", "out"], "40").end();
    assert_eq!(posted(&place.path().join("kept")).len(), 40, "{said}");
    assert_eq!(posted(&place.path().join("out/n1")).len(), 40);
}

#[test]
fn a_command_that_cannot_run_leaves_nothing_behind() {
    let place = Place::new();
    let done = place.output(&["--save", "out"], &["no-such-command-of-telem"]);
    assert_eq!(done.status.code(), Some(127));
    assert!(!place.path().join("out").exists());
    let live = files(&place.path().join("live")).pop().unwrap();
    assert!(files(&live).is_empty(), "{:?}", files(&live));
}

#[test]
fn sigterm_saves_at_once_and_telem_serves_on_until_the_command_has_ended() {
    let place = Place::new();
    // Only the signal can have saved them: the next step is a minute away.
    let mut running = poster(&place, &["--save", "out", "--save-interval", "60s"], "500");
    let copy = place.path().join("out/n1");
    poll("the first step", || info(&copy).is_some());
    let flushed = |found: DbInfo| found.samples - found.samples_unflushed;
    assert_eq!(info(&copy).map(flushed), Some(0));
    let clock = SystemClock::new();
    running.signal(Signal::TERM);
    poll("the samples to be flushed", || info(&copy).is_some_and(|info| flushed(info) >= 500));
    assert!(clock.monotonic() < BEFORE_THE_NEXT_STEP, "the samples were flushed by a step");
    assert_eq!(posted(&copy).len(), 500);
    assert!(running.telem.try_wait().unwrap().is_none(), "the command ignores the signal, and so telem is there");
    running.stdin.take().unwrap().write_all(b"end").unwrap();
    let (status, said) = running.end();
    assert!(status.success(), "{said}");
    assert_eq!(posted(&copy).len(), 500);
    assert!(!copy.join("WRITER").exists(), "{said}");
}

#[test]
fn a_place_that_cannot_be_written_is_told_once_and_the_live_data_stay() {
    let place = Place::new();
    std::fs::write(place.path().join("file"), "in the way").unwrap();
    let (status, said) = poster(&place, &["--save", "file/out", "--save-interval", "100ms", "--job", "j1"], "40").end();
    assert!(status.success(), "{said}");
    assert_eq!(said.matches("cannot save").count(), 1, "{said}");
    assert!(said.contains("NOTHING saved in"), "{said}");
    let live = said.split("live data in ").last().unwrap().split_whitespace().next().unwrap();
    assert_eq!(posted(Path::new(live)).len(), 40, "{said}");

    let strict = place.output(&["--save", "file/out", "--strict"], &["echo", "ran"]);
    assert_eq!((strict.status.code(), strict.stdout.len()), (Some(1), 0), "{}", super::said(&strict));
    assert!(super::said(&strict).contains("cannot save in"), "{}", super::said(&strict));
}

#[test]
fn a_place_that_comes_back_is_used() {
    let place = Place::new();
    let way = place.path().join("file");
    std::fs::write(&way, "in the way").unwrap();
    let running = poster(&place, &["--save", "file/out", "--save-interval", "100ms"], "40");
    std::fs::remove_file(&way).unwrap();
    let copy = place.path().join("file/out/n1");
    poll("saving to work", || info(&copy).is_some_and(|info| info.samples == 40));
    let (status, said) = running.end();
    assert!(status.success() && said.contains("saving works again"), "{said}");
    assert_eq!(posted(&copy).len(), 40);
}

#[test]
fn a_full_disk_below_the_copy_or_the_live_data_never_reaches_the_command() {
    let place = Place::new();
    let small = place.path().join("small");
    std::fs::create_dir(&small).unwrap();
    let Some(_mounted) = crate::bad_input::mount(&small, "size=300k") else {
        println!("skipped: this process may not mount a tmpfs");
        return;
    };
    // More than fits; what was refused is the poster's own business.
    let (status, said) = poster(&place, &["--save", "small/out", "--save-interval", "100ms"], "60000").end();
    assert!(status.success() && said.contains("NOT all saved in"), "{said}");
    let live = said.split("live data in ").last().unwrap().split_whitespace().next().unwrap();
    assert_eq!(posted(Path::new(live)).len(), 60_000);

    std::fs::remove_dir_all(small.join("out")).unwrap();
    let mut running = Running::start(place.run(
        &["--level", "1", "--node", "n1", "--data", "small/live", "--save", "out"],
        &["python3", "-c", POSTER, "60000"],
    ));
    let _command = running.line();
    let acknowledged = until_done(&mut running);
    let (status, said) = running.end();
    assert!(status.success(), "{said}");
    assert!(acknowledged < 60_000, "the disk was not full");
    let kept = posted(&small.join("live"));
    assert!(kept.len() >= acknowledged, "{} of {acknowledged}: {said}", kept.len());
}

#[test]
fn files_that_may_not_grow_or_not_be_written_never_reach_the_command() {
    let limited = |place: &Place, kibibytes: &str| {
        let mut bash = Command::new("bash");
        bash.args(["-c", "ulimit -f \"$0\"; exec \"$@\"", kibibytes, env!("CARGO_BIN_EXE_telem"), "run"]);
        bash.args(["--listen", "127.0.0.1:0"]).args(POSTED_ALONE).args(["--save", "out"]);
        place.at_home(&mut bash);
        bash
    };
    // Nothing at all can be written, and so there is no service.
    let place = Place::new();
    let mut run = limited(&place, "0");
    run.args(["--", "sh", "-c", "echo \"out $TELEM_URL\"; exit 6"]);
    let done = output(run);
    assert_eq!((done.status.code(), done.stdout.as_slice()), (Some(6), b"out \n".as_slice()), "{}", said(&done));
    assert!(said(&done).contains("telem does not record it"), "{}", said(&done));

    // No file may grow beyond 16 KiB, and so the WAL ends soon.
    let place = Place::new();
    let mut run = limited(&place, "16");
    run.args(["--", "python3", "-c", POSTER, "60000", "5"]);
    let mut running = Running::start(run);
    let _command = running.line();
    let acknowledged = until_done(&mut running);
    assert!(acknowledged < 60_000, "no limit was met");
    let (status, said) = running.end();
    assert_eq!(status.code(), Some(5), "{said}");
    let copy = place.path().join("out/n1");
    let kept = match said.contains("NOT all saved in") {
        true => posted(Path::new(said.split("live data in ").last().unwrap().split_whitespace().next().unwrap())),
        false => posted(&copy),
    };
    assert!(kept.len() >= acknowledged, "{} of {acknowledged}: {said}", kept.len());
    assert_sound(&copy, &said);
}

/// How many samples the poster had acknowledged when it was done.
fn until_done(running: &mut Running) -> usize {
    let mut acknowledged = 0;
    loop {
        match running.line().as_str() {
            "done" => return acknowledged,
            refused if refused.starts_with("refused ") => println!("after {acknowledged} samples {refused}"),
            count => acknowledged = count.parse().unwrap_or_else(|_| panic!("it ended: '{count}'")),
        }
    }
}

#[test]
fn a_job_shorter_than_the_interval_has_samples_of_the_node() {
    let place = Place::new();
    let done = place.output(&["--node", "n1", "--interval", "1h", "--save", "out"], &["sleep", "0.3"]);
    assert!(done.status.success(), "{}", said(&done));
    let found = info(&place.path().join("out/n1")).unwrap();
    assert!(found.samples > found.series, "at the start and at the end: {}", said(&done));
}

#[test]
fn a_job_whose_directory_for_live_data_is_not_there_is_recorded_elsewhere() {
    let place = Place::new();
    let mut run = place.run(&["--level", "1", "--node", "n1", "--save", "out"], &["python3", "-c", POSTER, "40"]);
    run.env("SLURM_TMPDIR", place.path().join("absent"));
    let done = output(run);
    assert!(done.status.success(), "{}", said(&done));
    assert!(said(&done).contains("because they cannot be where they should: "), "{}", said(&done));
    assert!(said(&done).contains("absent (SLURM_TMPDIR): No such file"), "{}", said(&done));
    assert_eq!(posted(&place.path().join("out/n1")).len(), 40);
    assert!(!place.path().join("absent").exists());
}

#[test]
fn live_data_of_a_job_that_was_killed_are_named_to_the_next() {
    let place = Place::new();
    let mut killed = poster(&place, &["--job", "j1", "--save", "out"], "40");
    killed.kill_telem(&place);
    poll("telem to be dead", || killed.telem.try_wait().unwrap().is_some());
    let next = Running::start(place.run(&["--job", "j2", "--no-save"], &["sleep", "1"]));
    let (status, said) = next.end();
    assert!(status.success(), "{said}");
    assert!(
        said.contains("jobs that were killed left live data") && said.contains("/j1/n1; `telem recover`"),
        "{said}"
    );
}

#[test]
fn live_data_of_a_job_that_was_killed_are_saved_where_its_copy_is() {
    let place = Place::new();
    let mut killed = poster(&place, &["--job", "j1", "--save", "out", "--save-interval", "60s"], "400");
    let copy = place.path().join("out/n1");
    poll("a copy to be begun", || info(&copy).is_some());
    let listed = recover(&place, &["--list"]);
    assert!(printed(&listed).contains("no killed job left live data here"), "it still runs: {}", printed(&listed));
    killed.kill_telem(&place);
    poll("telem to be dead", || killed.telem.try_wait().unwrap().is_some());
    let listed = printed(&recover(&place, &["--list"]));
    assert!(listed.contains("400 samples of 1 series") && listed.contains(&copy.display().to_string()), "{listed}");

    let done = recover(&place, &[]);
    assert!(done.status.success(), "{}", printed(&done));
    assert!(printed(&done).contains(&format!("saved in {}", copy.display())), "{}", printed(&done));
    assert_eq!(posted(&copy), (0..400).collect::<Vec<_>>());
    assert_sound(&copy, "after a recovery");
    assert!(files(&place.path().join("out")) == [copy], "nothing else was made");
    assert!(printed(&recover(&place, &[])).contains("no killed job left live data here"));
    let next = place.output(&["--job", "j2", "--no-save"], &["true"]);
    assert!(!printed(&next).contains("were killed"), "{}", printed(&next));
}

#[test]
fn live_data_never_overwrite_what_stands_where_they_are_saved() {
    let place = Place::new();
    let mut killed = poster(&place, &["--job", "j1", "--save", "out"], "40");
    killed.kill_telem(&place);
    poll("telem to be dead", || killed.telem.try_wait().unwrap().is_some());
    let copy = place.path().join("out/n1");
    std::fs::remove_dir_all(&copy).unwrap();
    let (status, _) = poster(&place, &["--job", "j2", "--save", "out"], "60").end();
    assert!(status.success());
    assert_eq!(posted(&copy).len(), 60);
    let done = recover(&place, &[]);
    assert!(done.status.success(), "{}", printed(&done));
    assert_eq!((posted(&copy).len(), posted(&place.path().join("out/n1-2")).len()), (60, 40));
}

#[test]
fn live_data_that_do_not_say_where_they_belong_are_saved_where_somebody_says() {
    let place = Place::new();
    let mut killed = poster(&place, &["--job", "j1", "--no-save"], "40");
    killed.kill_telem(&place);
    poll("telem to be dead", || killed.telem.try_wait().unwrap().is_some());
    let done = recover(&place, &[]);
    assert_eq!(done.status.code(), Some(1));
    assert!(printed(&done).contains("name a directory with --save DIR"), "{}", printed(&done));
    let done = recover(&place, &["--save", "rescued"]);
    assert!(done.status.success(), "{}", printed(&done));
    assert_eq!(posted(&place.path().join("rescued/n1")).len(), 40);
}

#[test]
fn of_live_data_that_cannot_be_saved_it_is_said_how_to_save_them_elsewhere() {
    let place = Place::new();
    let mut killed = poster(&place, &["--job", "j1", "--save", "out"], "40");
    killed.kill_telem(&place);
    poll("telem to be dead", || killed.telem.try_wait().unwrap().is_some());
    let out = place.path().join("out");
    std::fs::remove_dir_all(&out).unwrap();
    std::fs::write(&out, "").unwrap();
    let done = recover(&place, &[]);
    assert_eq!(done.status.code(), Some(1));
    let said = printed(&done);
    assert!(said.contains("cannot save in") && said.contains("; name another directory with --save DIR"), "{said}");
    let done = recover(&place, &["--save", "rescued"]);
    assert!(done.status.success(), "{}", printed(&done));
}

#[test]
fn live_data_are_removed_for_good_only_when_somebody_agrees() {
    let place = Place::new();
    let mut killed = poster(&place, &["--job", "j1", "--save", "out"], "40");
    killed.kill_telem(&place);
    poll("telem to be dead", || killed.telem.try_wait().unwrap().is_some());
    let asked = recover(&place, &["--discard"]);
    assert_eq!(asked.status.code(), Some(2), "{}", printed(&asked));
    assert!(printed(&asked).contains("40 samples") && printed(&asked).contains("--yes"), "{}", printed(&asked));
    let done = recover(&place, &["--discard", "--yes"]);
    assert!(done.status.success() && printed(&done).contains("removed"), "{}", printed(&done));
    assert!(printed(&recover(&place, &["--list"])).contains("no killed job left live data here"));
}

/// What a program said, on both streams.
fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// `telem recover` where the jobs of `place` put their live data, and nowhere else on this machine.
fn recover(place: &Place, words: &[&str]) -> Output {
    let mut telem = telem(["recover"]);
    let uid = rustix::process::getuid().as_raw();
    telem.arg(format!("live/telem-{uid}")).args(words);
    place.at_home(&mut telem);
    output(telem)
}

/// The command `cat` at level 2, ten samples of every series a second, saved in `out` rarely.
fn sampled(place: &Place, options: &[&str]) -> Running {
    let always = ["--node", "n1", "--interval", "100ms", "--save", "out"];
    let options: Vec<&str> = always.iter().chain(options).copied().collect();
    Running::start(place.run(&options, &["cat"]))
}

#[test]
fn what_the_job_is_and_its_first_samples_are_saved_within_seconds_however_rarely_it_is_saved() {
    let place = Place::new();
    let running = sampled(&place, &["--save-interval", "60s"]);
    let copy = place.path().join("out/n1");
    poll("the first samples to be saved", || info(&copy).is_some_and(|info| info.samples > 0));
    // Samples may be there a step before: neither waits for the other.
    poll("the job to be described", || job(&copy)["command"] == serde_json::json!(["cat"]));
    assert!(running.end().0.success());
}

#[test]
fn a_job_without_a_sample_has_its_description_saved_at_once() {
    let place = Place::new();
    let options = ["--level", "1", "--node", "n1", "--save", "out", "--save-interval", "60s"];
    let running = Running::start(place.run(&options, &["cat"]));
    let copy = place.path().join("out/n1");
    poll("the description to be saved", || info(&copy).is_some() && job(&copy)["command"][0] == "cat");
    assert!(running.end().0.success());
}

#[test]
fn a_copy_that_is_removed_while_the_job_runs_is_made_anew_and_whole() {
    let place = Place::new();
    let running = poster(&place, &["--save", "out", "--save-interval", "100ms"], "500");
    let copy = place.path().join("out/n1");
    poll("the samples to be saved", || info(&copy).is_some_and(|info| info.samples == 500));
    std::fs::remove_dir_all(place.path().join("out")).unwrap();
    let (status, said) = running.end();
    assert!(status.success() && !said.contains("NOT all saved"), "{said}");
    assert_eq!(posted(&copy).len(), 500, "{said}");
    assert_sound(&copy, &said);
}

#[test]
fn live_data_that_are_removed_while_the_job_runs_are_saved_from_memory() {
    let place = Place::new();
    let running = poster(&place, &["--save", "out", "--save-interval", "100ms", "--data", "gone"], "500");
    std::fs::remove_dir_all(place.path().join("gone")).unwrap();
    let (status, said) = running.end();
    assert!(status.success(), "{said}");
    assert!(said.contains("saved in") && !said.contains("NOT all saved"), "{said}");
    assert!(
        !said.contains("recovers everything") && said.contains("was removed: new samples are only in memory"),
        "{said}"
    );
    let copy = place.path().join("out/n1");
    assert_eq!(posted(&copy).len(), 500, "{said}");
    assert_sound(&copy, &said);
}

#[test]
fn what_is_sampled_while_the_live_disk_is_full_waits_and_is_written_when_there_is_room() {
    let place = Place::new();
    let Some((_mounted, running, copy)) = with_a_full_disk(&place) else { return };
    let before = info(&copy).unwrap().samples;
    std::fs::remove_file(place.path().join("small/fill")).unwrap();
    poll("new samples to be saved", || info(&copy).is_some_and(|info| info.samples > before + 3_000));
    let (status, said) = running.end();
    assert!(status.success(), "{said}");
    assert!(said.contains("samples cannot be written: ") && said.contains("samples are written again"), "{said}");
    assert!(said.contains("0 were lost meanwhile") && !said.contains("NOT all saved"), "{said}");
    assert!(longest_gap(&copy) < HOLE, "{} µs: {said}", longest_gap(&copy));
}

#[test]
fn what_is_sampled_while_the_live_disk_is_full_to_the_end_is_saved_from_memory() {
    let place = Place::new();
    let Some((_mounted, running, copy)) = with_a_full_disk(&place) else { return };
    let (status, said) = running.end();
    assert!(status.success(), "{said}");
    assert!(said.contains("samples cannot be written: ") && said.contains("No space left"), "{said}");
    assert!(
        said.contains("saved in") && !said.contains("NOT all saved") && !said.contains("not closed in time"),
        "{said}"
    );
    assert!(longest_gap(&copy) < HOLE, "{} µs: {said}", longest_gap(&copy));
    assert_eq!(job(&copy)["exit_code"], 0, "how it ended is saved too");
    assert_sound(&copy, &said);
}

/// A job that is sampled ten times a second, where it is saved, and its live disk, which has been full for some seconds.
fn with_a_full_disk(place: &Place) -> Option<(impl Drop, Running, PathBuf)> {
    let (small, mounted) = small_disk(place)?;
    let running = sampled(place, &["--data", "small/live", "--save-interval", "100ms"]);
    let copy = place.path().join("out/n1");
    poll("samples to be saved", || info(&copy).is_some_and(|info| info.samples > 0));
    fill(&small.join("fill"));
    let full = SystemClock::new();
    // Long enough for more ticks than fit in what was left.
    poll("some time with a full disk", || full.monotonic() > Duration::from_secs(4));
    Some((mounted, running, copy))
}

/// Half as long as a disk is full here, in microseconds; a busy machine skips a few ticks, and not so many.
const HOLE: i64 = 2_000_000;

/// A file system of 400 KiB at `small`; `None` where this process may not mount one.
fn small_disk(place: &Place) -> Option<(PathBuf, impl Drop)> {
    let small = place.path().join("small");
    std::fs::create_dir(&small).unwrap();
    let mounted = crate::bad_input::mount(&small, "size=400k");
    if mounted.is_none() {
        println!("skipped: this process may not mount a tmpfs");
    }
    Some((small, mounted?))
}

/// Takes all the space that is left.
fn fill(path: &Path) {
    let mut file = std::fs::File::create(path).unwrap();
    while file.write_all(&[0; 4_096]).is_ok() {}
}

/// The longest time between two samples of the load, in microseconds.
fn longest_gap(dir: &Path) -> i64 {
    let sql = "SELECT CAST(ts AS BIGINT) AS t FROM node_load1 ORDER BY ts";
    let done = asked(&["sql", "--format", "csv"], dir, sql);
    let rows = String::from_utf8(done.stdout).unwrap();
    let times: Vec<i64> = rows.lines().skip(1).map(|line| line.parse().unwrap()).collect();
    assert!(times.len() > 20, "{} ticks", times.len());
    times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap()
}

#[test]
fn the_end_of_a_run_tells_what_the_command_did_and_what_to_type_next() {
    let place = Place::new();
    let busy = "import subprocess; subprocess.run(['sh', '-c', 'i=0; while [ $i -lt 600000 ]; do i=$((i+1)); done']); \
                exit(3)";
    let done = place.output(&["--save", "out", "--node", "n1"], &["python3", "-c", busy]);
    let said = said(&done);
    assert_eq!(done.status.code(), Some(3), "{said}");
    let line = |label: &str| {
        let start = format!("telem: {label:<9} ");
        let found: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix(&start)).collect();
        assert_eq!(found.len(), 1, "{label}: {said}");
        found[0].to_owned()
    };
    let command = regex::Regex::new(
        r"^ran [\d.]+ s, exit code 3 · [\d.]+ s of CPU( \(\d\.\d cores\))?( · peak memory [\d.]+ [kM]B)?$",
    );
    assert!(command.unwrap().is_match(&line("command")), "{said}");
    // A machine that is busy looks less often, and may not have seen it.
    let most = line("most CPU");
    assert!(most.contains("sh ") || most.contains(" in processes that ended unseen"), "{said}");
    assert!(line("recorded").contains(" samples in ") && line("recorded").ends_with("/out/n1"), "{said}");
    let own = regex::Regex::new(r"^took \d+\.\d\d s of CPU and at most [\d.]+ MB$").unwrap();
    assert!(own.is_match(&line("telem")), "nobody asked anything: {said}");
    let next = line("next");
    assert_eq!(next, "telem info out/n1 · telem replay out/n1");
    let info = telem(["info", "out/n1"]).current_dir(place.path()).output().unwrap();
    assert!(info.status.success());

    let killed = place.output(&["--no-save"], &["sh", "-c", "kill -9 $$"]);
    let said = super::said(&killed);
    assert!(said.contains(", killed by SIGKILL (signal 9) · "), "{said}");
    assert!(said.contains("telem: next      telem info live/telem-"), "what stays is the live data: {said}");
}

#[test]
fn what_queries_of_a_job_took_is_told_apart() {
    let place = Place::new();
    // It takes as long whatever was recorded until then.
    let sql = "SELECT sum(a.value * b.value % 7) FROM generate_series(1, 2000) AS a, generate_series(1, 2000) AS b";
    let ask = format!("\"$TELEM\" sql \"$TELEM_URL\" '{sql}' > /dev/null");
    let mut run = place.run(&["--save", "out"], &["sh", "-c", &ask]);
    run.env("TELEM", env!("CARGO_BIN_EXE_telem"));
    let done = output(run);
    let said = said(&done);
    assert!(done.status.success(), "{said}");
    let apart =
        regex::Regex::new(r"took \d+\.\d\d s of CPU to record, \d+\.\d\d s to answer queries, and at most").unwrap();
    assert!(apart.is_match(&said), "{said}");
}
