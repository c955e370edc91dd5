use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use arrow::array::AsArray;
use serde_json::json;
use telem_engine::disk::{Disk, OsDisk, ReadFile, WriteFile};
use telem_engine::{Db, DbGlance, Durability, MetaChange, Options, SampleBatch, SeriesKey, TagSet, Value};

use telem_engine::Timestamp;

use super::*;
use crate::testing::first_column;

const DAY: i64 = 86_400;

#[test]
fn an_empty_list_says_whether_there_are_runs() {
    let args = |filters: &[&str]| LsArgs {
        dirs: vec!["runs".into()],
        depth: 4,
        columns: Vec::new(),
        filters: filters.iter().map(|filter| filter.parse().unwrap()).collect(),
        no_cache: true,
        json: false,
    };
    assert_eq!(nothing(&args(&[]), 0), "no runs below runs (looked 4 directories deep)");
    assert_eq!(nothing(&args(&["lr=3", "state=fail*"]), 1), "none of 1 run below runs has lr=3 and state=fail*");
    assert_eq!(
        nothing(&args(&["state=done"]), 12),
        "none of 12 runs below runs has state=done; a state is one of completed, failed, killed, ended, running, \
         unfinished, broken"
    );
}

#[test]
fn the_page_of_runs_lists_every_state() {
    assert_eq!(first_column("runs.md", "| state |"), STATES);
}

#[test]
fn numbers_of_samples_are_grouped_and_end_below_each_other() {
    let counted = counts([Some(12), None, Some(1_234_567)].into_iter());
    let counted: Vec<Option<&str>> = counted.as_string::<i32>().iter().collect();
    assert_eq!(counted, [Some("       12"), None, Some("1,234,567")]);
}

/// A saved run's part of one node: samples of `loss`, the last of them `last`.
fn saved_run(dir: &Path, node: &str, job: &Json, last: f64) -> telem_engine::DbInfo {
    let db = Db::open(dir, Options { node: node.to_owned(), ..Options::default() }).unwrap();
    let series = db.series(&SeriesKey::new("loss", TagSet::new([("host", node)]).unwrap()).unwrap()).unwrap();
    let mut batch = SampleBatch::default();
    for (at, value) in [(0, 9.0), (1, last)] {
        batch.push(series, Timestamp::from_seconds(DAY + at), Value::Float(value));
    }
    db.append(&batch, Durability::Buffered).unwrap();
    db.put_meta(MetaChange::Job(job.clone()), Durability::Buffered).unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    Db::open_read_only(dir, Options::default()).unwrap().info().unwrap()
}

#[test]
fn the_nodes_of_a_run_are_one_row_and_two_runs_into_one_directory_are_two() {
    let dir = tempfile::tempdir().unwrap();
    let ran = |id: &str| {
        json!({"id": id, "command": ["train"], "start": "1970-01-02T00:00:00Z", "exit_code": 0,
        "end": "1970-01-02T00:00:05Z", "settings": {"lr": 0.1}})
    };
    let out = dir.path().join("out");
    let infos = [
        saved_run(&out.join("n1"), "n1", &ran("1"), 0.5),
        // A node that is not the head knows the job alone.
        saved_run(&out.join("n2"), "n2", &json!({"id": "1"}), 0.5),
        saved_run(&out.join("n1-2"), "n1", &ran("2"), 0.25),
    ];
    for turn in [[0, 1, 2], [1, 0, 2], [2, 1, 0]] {
        let mut rows = RunList::default();
        for at in turn {
            rows.add(RunRow::of(&DbGlance::from(infos[at].clone()), Timestamp::from_seconds(3 * DAY)));
        }
        let mut rows = rows.finish(&[]);
        rows.sort_by(|a, b| a.job.cmp(&b.job));
        let told: Vec<_> = rows.iter().map(|row| (row.job.as_deref().unwrap(), row.nodes.len(), row.samples)).collect();
        assert_eq!(told, [("1", 2, Some(4)), ("2", 1, Some(2))]);
        assert_eq!((&*rows[0].state, rows[0].duration_us, &rows[0].dir), ("completed", Some(5_000_000), &out));
        assert_eq!(rows[0].column("lr"), Some(json!(0.1)));
    }
}

#[test]
fn states_say_how_a_run_ended_or_that_nothing_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let state = |at: usize, job: Json, now: i64| {
        let info = saved_run(&dir.path().join(at.to_string()), "n", &job, 0.5);
        RunRow::of(&DbGlance::from(info.clone()), Timestamp::from_seconds(now)).state
    };
    let start = "1970-01-02T00:00:00Z";
    assert_eq!(state(0, json!({"id": "0", "start": start, "exit_code": 3, "end": start}), 9 * DAY), "failed");
    assert_eq!(state(1, json!({"id": "0", "start": start, "signal": 9, "end": start}), 9 * DAY), "killed");
    assert_eq!(state(2, json!({"id": "0", "start": start, "end": start}), 9 * DAY), "ended");
    assert_eq!(state(3, json!({"id": "0", "start": start}), DAY + 30), "running");
    assert_eq!(state(4, json!({"id": "0", "start": start}), DAY + 200), "unfinished");
}

#[test]
fn runs_are_found_to_the_depth_that_is_asked_for_and_filtered_by_what_they_say() {
    let dir = tempfile::tempdir().unwrap();
    let job = |lr: &str| json!({"id": lr, "name": format!("with {lr}"), "settings": {"lr": lr}});
    let info = saved_run(&dir.path().join("a/b/telem-1/n"), "n", &job("0.1"), 0.5);
    saved_run(&dir.path().join("telem-2/n"), "n", &job("0.01"), 0.25);
    saved_run(&dir.path().join(".hidden/n"), "n", &job("1"), 0.25);
    let found = |depth| find::databases(&[dir.path().to_path_buf()], depth).unwrap().len();
    assert_eq!([found(1), found(2), found(3), found(4)], [0, 1, 1, 2]);
    assert!(find::databases(&[dir.path().join("nowhere")], 4).unwrap_err().to_string().contains("nowhere"));

    let row = RunRow::of(&DbGlance::from(info.clone()), Timestamp::from_seconds(DAY));
    let passes = |filter: &str| filter.parse::<RunFilter>().unwrap().passes(&row);
    assert!(passes("lr=0.1") && passes("name=with*") && passes("job=0.1") && !passes("lr=0.01") && !passes("x=*"));
    assert!("lr".parse::<RunFilter>().unwrap_err().contains("KEY=VALUE"));
    let db = Db::open_read_only(&dir.path().join("a/b/telem-1/n"), Options::default()).unwrap();
    let values = row::last_values(&db.snapshot(), &["loss".to_owned(), "gone".to_owned()]).unwrap();
    let newest = (DAY + 1) * 1_000_000;
    assert_eq!(
        values.into_iter().collect::<Vec<_>>(),
        [("gone".to_owned(), None), ("loss".to_owned(), Some((newest, 0.5)))]
    );
}

/// What `ls --columns COLUMNS` of `dir` says.
fn listed(dir: &Path, columns: &[&str], cache: &RunCache) -> Vec<RunRow> {
    listed_from(&(Arc::new(OsDisk) as Arc<dyn Disk>), dir, columns, cache)
}

fn listed_from(disk: &Arc<dyn Disk>, dir: &Path, columns: &[&str], cache: &RunCache) -> Vec<RunRow> {
    let columns: Vec<String> = columns.iter().map(|name| (*name).to_owned()).collect();
    let places = find::databases(&[dir.to_path_buf()], 4).unwrap();
    let mut rows = RunList::default();
    for row in read::rows(&places, &columns, Timestamp::from_seconds(DAY + 100), cache, disk) {
        rows.add(row);
    }
    rows.finish(&columns)
}

#[test]
fn each_run_has_the_last_values_of_its_own_samples_with_or_without_an_id() {
    let dir = tempfile::tempdir().unwrap();
    saved_run(&dir.path().join("a/n1"), "n1", &json!({"id": "7", "start": "1970-01-02T00:00:00Z"}), 0.5);
    saved_run(&dir.path().join("b/n1"), "n1", &json!({"id": "7", "start": "1970-01-02T00:00:00Z"}), 0.25);
    saved_run(&dir.path().join("c/n1"), "n1", &json!({"name": "none"}), 0.125);
    let rows = listed(dir.path(), &["loss"], &RunCache::none());
    let losses: Vec<f64> = rows.iter().map(|row| row.values["loss"]).collect();
    assert_eq!(losses, [0.5, 0.25, 0.125]);
}

#[test]
fn samples_of_any_node_say_that_a_run_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let head = saved_run(
        &dir.path().join("n1"),
        "n1",
        &json!({"id": "7", "command": ["x"], "start": "1970-01-01T00:00:00Z"}),
        0.5,
    );
    let agent = saved_run(&dir.path().join("n2"), "n2", &json!({"id": "7"}), 0.5);
    // The head's samples are old.
    let head = || RunRow {
        state: "unfinished".to_owned(),
        ..RunRow::of(&DbGlance::from(head.clone()), Timestamp::from_seconds(DAY + 9))
    };
    let agent = || RunRow::of(&DbGlance::from(agent.clone()), Timestamp::from_seconds(DAY + 9));
    assert_eq!(agent().state, "running");
    for turn in [[head(), agent()], [agent(), head()]] {
        let mut rows = RunList::default();
        turn.into_iter().for_each(|row| rows.add(row));
        let rows = rows.finish(&[]);
        assert_eq!(rows.iter().map(|row| &*row.state).collect::<Vec<_>>(), ["running"]);
    }
}

#[test]
fn what_stands_in_the_place_of_a_manifest_is_a_broken_run_and_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("pipe")).unwrap();
    let pipe = dir.path().join("pipe/MANIFEST");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    saved_run(&dir.path().join("lost/n1"), "n1", &json!({"id": "7"}), 0.5);
    std::fs::remove_file(dir.path().join("lost/n1/MANIFEST")).unwrap();
    // Not ours.
    std::fs::create_dir_all(dir.path().join("other/wal")).unwrap();
    std::fs::write(dir.path().join("other/wal/1.wal"), "").unwrap();
    let rows = listed(dir.path(), &[], &RunCache::none());
    let broken: Vec<&str> =
        rows.iter().map(|row| row.dir.strip_prefix(dir.path()).unwrap().to_str().unwrap()).collect();
    assert_eq!(broken, ["pipe", "lost/n1"]);
    assert!(rows.iter().all(|row| row.state == "broken" && row.broken.is_some()), "{rows:?}");
}

#[test]
fn a_cache_answers_for_runs_that_are_over_until_somebody_writes_into_them() {
    let dir = tempfile::tempdir().unwrap();
    let runs = dir.path().join("runs");
    let ended = json!({"id": "7", "start": "1970-01-02T00:00:00Z", "end": "1970-01-02T00:00:05Z", "exit_code": 0});
    saved_run(&runs.join("a"), "n1", &ended, 0.5);
    saved_run(&runs.join("b"), "n1", &json!({"id": "8", "start": "1970-01-02T00:00:00Z"}), 0.25);
    let open = || RunCache::at(dir.path().join("cache/runs.json"));
    let first = open();
    let rows = listed(&runs, &["loss"], &first);
    first.save();

    let known = |cache: &RunCache, run: &str, metric: &str| cache.get(&runs.join(run), &[metric.to_owned()]);
    let cache = open();
    assert!(known(&cache, "a", "loss").is_some());
    assert!(known(&cache, "b", "loss").is_none(), "it may go on");
    assert!(known(&cache, "a", "lr").is_none(), "nobody looked for it yet");
    assert_eq!(listed(&runs, &["loss"], &cache), rows);

    let db = Db::open(&runs.join("a"), Options { node: "n1".to_owned(), ..Options::default() }).unwrap();
    db.put_meta(MetaChange::Job(json!({"id": "7", "exit_code": 3})), Durability::Buffered).unwrap();
    db.close().unwrap();
    assert!(known(&cache, "a", "loss").is_none());
    assert_eq!(listed(&runs, &[], &cache)[0].state, "failed");

    for damaged in ["", "{", r#"{"version": 99, "runs": {}}"#] {
        std::fs::write(dir.path().join("cache/runs.json"), damaged).unwrap();
        assert!(known(&open(), "a", "loss").is_none());
    }
}

#[test]
fn a_cache_keeps_values_that_json_has_not_and_what_may_change_unseen_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let over = json!({"id": "7", "command": ["x"], "start": "1970-01-02T00:00:00Z", "exit_code": 0});
    let runs = dir.path().join("runs");
    saved_run(&runs.join("nan/n1"), "n1", &over, f64::NAN);
    saved_run(&runs.join("infinite/n1"), "n1", &over, f64::NEG_INFINITY);
    let strange = std::os::unix::ffi::OsStrExt::from_bytes(b"caf\xe9");
    saved_run(&runs.join::<&std::ffi::OsStr>(strange).join("n1"), "n1", &over, 0.25);
    saved_run(&runs.join("crashed/n1"), "n1", &over, 0.5);
    std::fs::write(runs.join("crashed/n1/wal/00000009.wal"), "").unwrap();
    let file = dir.path().join("cache/runs.json");
    let lasts = |cache: &RunCache| -> Vec<u64> {
        listed(&runs, &["loss"], cache).iter().map(|row| row.lasts["loss"].unwrap().1.to_bits()).collect()
    };
    let cold = RunCache::at(file.clone());
    let found = lasts(&cold);
    cold.save();
    let kept: Json = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let kept: std::collections::BTreeSet<&str> =
        kept["runs"].as_object().unwrap().keys().map(|path| path.rsplit('/').nth(1).unwrap()).collect();
    assert_eq!(kept.into_iter().collect::<Vec<_>>(), ["infinite", "nan"]);
    let warm = RunCache::at(file);
    assert!(warm.get(&runs.join("nan/n1"), &["loss".to_owned()]).is_some());
    assert_eq!(lasts(&warm), found);
    // No list fails over a name.
    assert!(serde_json::to_string(&listed(&runs, &[], &RunCache::none())).unwrap().contains("caf\u{fffd}"));
}

#[test]
fn a_node_that_knows_the_id_alone_is_of_the_run_that_went_on_when_its_samples_began() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    // The job was put back into the queue and began again a day later.
    let ran = |start: &str| json!({"id": "7", "command": ["train"], "start": start, "exit_code": 0});
    let infos = [
        saved_run(&out.join("n1"), "n1", &ran("1970-01-02T00:00:00Z"), 0.5),
        saved_run(&out.join("n2"), "n2", &json!({"id": "7"}), 0.5),
        saved_run(&out.join("n1-2"), "n1", &ran("1970-01-03T00:00:00Z"), 0.25),
        saved_run(&out.join("n2-2"), "n2", &json!({"id": "7"}), 0.25),
    ];
    let mut rows = RunList::default();
    for at in [3, 1, 2, 0] {
        let mut row = RunRow::of(&DbGlance::from(infos[at].clone()), Timestamp::from_seconds(9 * DAY));
        if at == 3 {
            // The samples of these tests are all of one day.
            row.begin = row.begin.map(|begin| begin + DAY * 1_000_000);
        }
        rows.add(row);
    }
    let mut found: Vec<Vec<String>> = rows
        .finish(&[])
        .iter()
        .map(|row| row.databases.iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect())
        .collect();
    found.sort();
    assert_eq!(found, [["n1", "n2"], ["n1-2", "n2-2"]]);
}

/// The file system, which remembers what was asked of it.
#[derive(Debug, Default)]
struct WatchedDisk {
    opened: Mutex<Vec<PathBuf>>,
    listed: Mutex<Vec<PathBuf>>,
}

impl Disk for WatchedDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        OsDisk.create(path)
    }

    fn reopen(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        OsDisk.reopen(path)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        self.opened.lock().unwrap().push(path.to_path_buf());
        OsDisk.open(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        OsDisk.remove(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        self.listed.lock().unwrap().push(dir.to_path_buf());
        OsDisk.list(dir)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        OsDisk.create_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        OsDisk.sync_dir(dir)
    }
}

#[test]
fn of_each_run_that_is_over_one_file_is_opened_once() {
    let dir = tempfile::tempdir().unwrap();
    let ended = |id: usize| {
        json!({"id": id.to_string(), "name": format!("run {id}"), "command": ["train"], "settings": {"lr": 0.1 + id as f64},
        "start": "1970-01-02T00:00:00Z", "end": "1970-01-02T00:00:05Z", "exit_code": 0})
    };
    let runs: Vec<PathBuf> = (0..3).map(|run| dir.path().join(format!("run-{run}/n1"))).collect();
    for (id, run) in runs.iter().enumerate() {
        saved_run(run, "n1", &ended(id), 0.5);
    }
    let disk = Arc::new(WatchedDisk::default());
    let seam: Arc<dyn Disk> = Arc::clone(&disk) as Arc<dyn Disk>;
    for columns in [&[][..], &["lr"][..]] {
        let rows = listed_from(&seam, dir.path(), columns, &RunCache::none());
        assert_eq!(
            rows.iter().map(|row| row.column("lr")).collect::<Vec<_>>(),
            [0.1, 1.1, 2.1].map(|lr| Some(json!(lr)))
        );
        let taken = |what: &Mutex<Vec<PathBuf>>| {
            let mut taken = std::mem::take(&mut *what.lock().unwrap());
            taken.sort();
            taken
        };
        assert_eq!(taken(&disk.opened), runs.iter().map(|run| run.join("MANIFEST")).collect::<Vec<_>>());
        assert_eq!(taken(&disk.listed), runs.iter().map(|run| run.join("wal")).collect::<Vec<_>>());
    }
    // The value of a metric is in the samples alone.
    assert_eq!(listed_from(&seam, dir.path(), &["loss"], &RunCache::none())[0].values["loss"], 0.5);
    assert!(disk.opened.lock().unwrap().iter().any(|path| path.starts_with(runs[0].join("segments"))));
}
