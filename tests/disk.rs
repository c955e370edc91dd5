//! Faults of the disk under a server: files that vanish or are replaced, a directory that is removed, a limit on file
//! size, no room at the start. They are reported, and no sample is acknowledged that is not stored.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value as Json, json};
use telem_engine::check::{Severity, check};
use telem_engine::{Db, Options, SeriesId, TimeRange};

use crate::bad_input::mount;
use crate::kill::drawn;
use crate::process::{PATIENCE, Response, Server, poll, telem};
use crate::script::EPOCH_MS;

/// How often something is damaged, unless `TELEM_DAMAGES` says otherwise.
const DAMAGES: u64 = 24;

fn put(server: &Server, path: &str, metric: &str, from: i64, count: i64) -> Response {
    let sample = |n: i64| json!({"metric": metric, "timestamp": EPOCH_MS + n, "value": n, "tags": {"rank": "0"}});
    server.post(path, &Json::from((from..from + count).map(sample).collect::<Vec<_>>()))
}

fn count(server: &Server, metric: &str) -> i64 {
    let sql = format!("SELECT count(*) AS n FROM samples WHERE metric = '{metric}'");
    server.sql(&sql).expect(200).json()[0]["n"].as_i64().unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn ask(words: &[&str], dir: &Path, more: &[&str]) -> Output {
    telem(words).arg(dir).args(more).output().unwrap()
}

/// A database with a flushed part and a part that only the WAL holds, left by a kill.
fn killed(data: &Path) {
    let server = Server::serve(data, &[]);
    put(&server, "/api/put?sync", "flushed", 0, 100).expect(204);
    assert!(server.terminate().0.success());
    let server = Server::serve(data, &[]);
    put(&server, "/api/put?sync", "logged", 0, 50).expect(204);
    server.kill();
}

fn wal(data: &Path) -> PathBuf {
    let mut files = fs::read_dir(data.join("wal")).unwrap().map(|entry| entry.unwrap().path());
    let file = files.next().unwrap();
    assert_eq!(files.next(), None);
    file
}

#[test]
fn a_wal_file_that_is_gone_or_another_is_told_by_every_command_and_repaired() {
    for what in ["gone", "empty", "zeros", "another"] {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("db");
        killed(&data);
        assert!(ask(&["check"], &data, &[]).status.success());
        let file = wal(&data);
        let len = fs::metadata(&file).unwrap().len() as usize;
        match what {
            "gone" => fs::remove_file(&file).unwrap(),
            "empty" => fs::write(&file, "").unwrap(),
            "zeros" => fs::write(&file, vec![0; len]).unwrap(),
            _ => fs::copy("/proc/self/status", &file).map(drop).unwrap(),
        }
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let checked = ask(&["check"], &data, &[]);
        assert_eq!(checked.status.code(), Some(1), "{what}: {}", said(&checked));
        assert!(said(&checked).contains(&name) && said(&checked).contains("DAMAGED"), "{what}: {}", said(&checked));
        assert!(said(&checked).contains("would be lost"), "{what}: {}", said(&checked));
        let sql = ask(&["sql"], &data, &["SELECT count(*) FROM samples"]);
        let out = dir.path().join("out.csv").to_string_lossy().into_owned();
        for done in [sql, ask(&["info"], &data, &[]), ask(&["export"], &data, &["-o", &out])] {
            assert!(String::from_utf8_lossy(&done.stderr).contains(&name), "{what}: {}", said(&done));
        }
        let mut replay = Server::replay([&data], &[]);
        replay.wait_for_line(&name);
        assert_eq!(count(&replay, "flushed"), 100, "{what}");
        drop(replay);
        let repaired = ask(&["check", "--repair"], &data, &[]);
        assert!(said(&repaired).contains("lost: "), "{what}: {}", said(&repaired));
        let again = ask(&["check"], &data, &[]);
        assert!(again.status.success(), "{what}: {}", said(&again));
        assert!(!said(&again).contains("warning"), "{what}: {}", said(&again));
    }
}

#[test]
fn a_server_whose_directory_is_removed_acknowledges_nothing_more_and_answers_on() {
    let dir = tempfile::tempdir().unwrap();
    let (data, aside) = (dir.path().join("db"), dir.path().join("aside"));
    let mut server = Server::serve(&data, &[]);
    put(&server, "/api/put?sync", "kept", 0, 100).expect(204);
    fs::rename(&data, &aside).unwrap();
    let refused = put(&server, "/api/put?sync", "late", 0, 10);
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.text().contains("was removed, moved or replaced"), "{}", refused.text());
    // It is known now, and so nothing is taken that nobody would find.
    let refused = put(&server, "/api/put", "late", 10, 10);
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert_eq!(count(&server, "kept"), 100);
    server.wait_for_line("was removed, moved or replaced");

    fs::rename(&aside, &data).unwrap();
    poll("samples to be taken again", || put(&server, "/api/put?sync", "late", 20, 10).status == 204);
    fs::remove_dir_all(&data).unwrap();
    fs::create_dir(&data).unwrap();
    let refused = put(&server, "/api/put?sync", "late", 30, 10);
    assert_eq!(refused.status, 503, "another directory in its place: {}", refused.text());
    let (status, printed) = server.terminate();
    assert!(!status.success(), "{printed:?}");
    let errors = printed.iter().filter(|line| line.contains("cannot be made durable; trying again")).count();
    assert!(errors <= 2, "each loss is told once: {printed:?}");
}

#[test]
fn a_server_whose_files_may_not_grow_refuses_samples_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("db");
    let mut bash = Command::new("bash");
    bash.args(["-c", "ulimit -f 64; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_telem"), "serve", "--level", "1"]);
    bash.args(["--listen", "127.0.0.1:0", "--data"]).arg(&data);
    let mut server = Server::start(bash);
    let mut acknowledged = 0;
    let refused = loop {
        let answer = put(&server, "/api/put?sync", "limited", acknowledged, 500);
        if answer.status != 204 {
            break answer;
        }
        acknowledged += 500;
        assert!(acknowledged < 100_000, "no limit was met");
    };
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.text().contains("File too large") && refused.text().contains("ulimit -f"), "{}", refused.text());
    server.wait_for_line("samples cannot be written");
    assert_eq!(count(&server, "limited"), acknowledged);
    let _ = server.terminate();
    let server = Server::serve(&data, &[]);
    assert_eq!(count(&server, "limited"), acknowledged);
}

#[test]
fn a_server_that_starts_on_a_full_disk_answers_and_takes_samples_once_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let small = dir.path().join("small");
    fs::create_dir(&small).unwrap();
    let Some(_mounted) = mount(&small, "size=1m") else {
        println!("skipped: this process may not mount a tmpfs");
        return;
    };
    let data = small.join("db");
    killed(&data);
    // The lock of the dead server takes room that its successor would find.
    fs::remove_file(data.join("WRITER")).unwrap();
    let fill = small.join("fill");
    let mut file = fs::File::create(&fill).unwrap();
    while std::io::Write::write_all(&mut file, &[0; 4_096]).is_ok() {}
    drop(file);

    let mut server = Server::serve(&data, &[]);
    server.wait_for_line("questions are answered from what is stored");
    assert_eq!((count(&server, "flushed"), count(&server, "logged")), (100, 50));
    let refused = put(&server, "/api/put", "late", 0, 1);
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.text().contains("disk of this database is full"), "{}", refused.text());
    fs::remove_file(&fill).unwrap();
    server.wait_for_line("there is room again");
    let request = || {
        let body = json!([{"metric": "late", "timestamp": EPOCH_MS, "value": 1, "tags": {"rank": "0"}}]).to_string();
        server.connect().request("POST", "/api/put?sync", &[], body.as_bytes())
    };
    poll("samples to be taken", || request().is_ok_and(|answer| answer.status == 204));
    assert_eq!((count(&server, "late"), count(&server, "logged")), (1, 50));
    let (status, printed) = server.terminate();
    assert!(status.success(), "{printed:?}");
    assert!(ask(&["check"], &data, &[]).status.success());
    let _ = PATIENCE;
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

pub fn copy(from: &Path, to: &Path) {
    for file in files(from) {
        let target = to.join(file.strip_prefix(from).unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(&file, target).unwrap();
    }
}

/// Every sample: series, time and bits. An error where any cannot be read.
fn content(dir: &Path) -> Result<Vec<(String, i64, String)>, String> {
    let db = Db::open_read_only(dir, Options::default()).map_err(|error| error.to_string())?;
    let mut all = Vec::new();
    for id in (0..db.index().len() as u32).map(SeriesId) {
        let key = db.index().key(id).unwrap().to_string();
        for points in db.snapshot().points(vec![id], TimeRange::ALL) {
            let points = points.map_err(|error| error.to_string())?;
            let values = points.times.iter().zip(points.values.iter());
            all.extend(values.map(|(time, value)| (key.clone(), time.micros(), format!("{value:?}"))));
        }
    }
    Ok(all)
}

/// Files of every kind, damaged in every way: the check finds it, or it is harmless; what is still read was written.
#[test]
fn a_damaged_file_of_any_kind_is_found_or_harmless() {
    let rounds = std::env::var("TELEM_DAMAGES").map_or(DAMAGES, |rounds| rounds.parse().unwrap());
    let seed: u64 = std::env::var("TELEM_SEED").map_or(20_260_101, |seed| seed.parse().unwrap());
    println!("seed {seed}, {rounds} rounds (TELEM_SEED, TELEM_DAMAGES)");
    let dir = tempfile::tempdir().unwrap();
    let (data, other) = (dir.path().join("db"), dir.path().join("other"));
    for (place, shift) in [(&data, 0), (&other, 7)] {
        let server = Server::serve(place, &[]);
        for part in 0..3 {
            put(&server, "/api/put?sync", "flushed", part * 500 + shift, 400).expect(204);
        }
        assert!(server.terminate().0.success());
        for part in 0..2 {
            let server = Server::serve(place, &[]);
            put(&server, "/api/put?sync", &format!("logged{part}"), part * 300 + shift, 200).expect(204);
            put(&server, "/api/put?sync", "flushed", 5_000 + part * 300 + shift, 200).expect(204);
            server.kill();
        }
    }
    let whole = content(&data).unwrap();
    let all: Vec<PathBuf> = files(&data).into_iter().filter(|file| !file.ends_with("connection.json")).collect();
    let (mut found, mut harmless) = (0, 0);
    for round in 0..rounds {
        let copied = dir.path().join("copy");
        copy(&data, &copied);
        let draw = |what: u64| drawn(seed ^ (what << 32), round) as usize;
        let relative = all[draw(1) % all.len()].strip_prefix(&data).unwrap();
        let file = copied.join(relative);
        let mut bytes = fs::read(&file).unwrap();
        let at = draw(2) % bytes.len();
        let len = (draw(3) % 300 + 1).min(bytes.len() - at);
        let how = match draw(4) % 8 {
            0 => {
                bytes[at] ^= 1 << (draw(5) % 8);
                "a flipped bit"
            }
            1 => {
                bytes[at..at + len].fill(0);
                "a stretch of zeros"
            }
            2 => {
                for (n, byte) in bytes[at..at + len].iter_mut().enumerate() {
                    *byte = drawn(seed + n as u64, round) as u8;
                }
                "a stretch of garbage"
            }
            3 => {
                bytes.truncate(at);
                "cut"
            }
            4 => {
                bytes.fill(0);
                "all zeros"
            }
            5 => {
                bytes = fs::read(&all[draw(5) % all.len()]).unwrap();
                "another file"
            }
            6 => {
                bytes = fs::read(other.join(relative)).unwrap_or_default();
                "that of another database"
            }
            _ => {
                bytes.clear();
                "gone"
            }
        };
        let what = format!("round {round}: {} {how} (at {at}, {len} bytes)", relative.display());
        if how == "gone" {
            fs::remove_file(&file).unwrap()
        } else {
            fs::write(&file, &bytes).unwrap()
        }
        let report = check(&copied, &Options::default(), &mut |_| {});
        let is_found = report.as_ref().map_or(true, |report| !report.findings.is_empty());
        let is_damage = report
            .as_ref()
            .map_or(true, |report| report.findings.iter().any(|finding| finding.severity == Severity::Error));
        match content(&copied) {
            Ok(read) if read == whole => harmless += u32::from(!is_found),
            Ok(read) => {
                // Less than all, which a WAL that ends early is; and nothing else than was written.
                let last_wal = all.iter().rfind(|file| file.extension().is_some_and(|is| is == "wal")).unwrap();
                // Its last frame may be torn by a power loss, which is a warning; cut behind a frame it is whole. A file
                // that is gone, empty of frames or another one is always damage.
                let is_torn =
                    is_found && ["a flipped bit", "a stretch of zeros", "a stretch of garbage"].contains(&how);
                let ends_early = last_wal.ends_with(relative) && (is_torn || how == "cut");
                assert!(is_damage || ends_early, "{what}: not all is read, without a word");
                let strange: Vec<_> = read.iter().filter(|sample| !whole.contains(sample)).collect();
                assert!(strange.is_empty(), "{what}: data of nobody: {strange:?}");
            }
            Err(why) => assert!(is_found, "{what}: {why}, and the check finds nothing"),
        }
        found += u32::from(is_found);
        fs::remove_dir_all(&copied).unwrap();
    }
    println!("{rounds} damaged files: {found} found, {harmless} harmless");
    assert!(found > 0);
}
