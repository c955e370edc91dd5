//! Databases of Dragon's telemetry: every point of every node once, whatever happened to the files.

use rusqlite::{Connection, params};

use super::*;

const NULL: &str = "null";
/// Three seconds of the metrics that Dragon's own tests insert.
const SAMPLES: [(&str, [f64; 3]); 5] = [
    ("load_average", [0.58, 0.58, 0.62]),
    ("used_RAM", [9.3, 9.3, 9.3]),
    ("cpu_percent", [0.8, 1.6, 0.8]),
    ("num_running_processes", [21.0, 20.0, 23.0]),
    ("def_pool_utilization", [0.003_910_064, 0.000_93, 0.001_234]),
];

type Row<'a> = (&'a str, &'a str, &'a str, &'a str);

/// Makes a table as Dragon does, and rows of metric, time, value (as SQL) and tags.
fn table(path: &Path, name: &str, rows: &[Row<'_>]) {
    let mut db = Connection::open(path).unwrap();
    db.execute_batch(&format!(
        "CREATE TABLE IF NOT EXISTS \"{name}\" (metric varchar(50), timestamp varchar(30), value real, tags json);
         CREATE TABLE IF NOT EXISTS flags (id INTEGER PRIMARY KEY CHECK (id = 1), is_shutdown BLOB)"
    ))
    .unwrap();
    let all = db.transaction().unwrap();
    for (metric, time, value, tags) in rows {
        let text = format!("INSERT INTO \"{name}\" VALUES (?1, ?2, {value}, ?3)");
        all.execute(&text, params![metric, time, tags]).unwrap();
    }
    all.commit().unwrap();
}

fn samples(path: &Path, name: &str) {
    for (metric, values) in SAMPLES {
        for (at, value) in values.iter().enumerate() {
            table(path, name, &[(metric, &(1_722_010_526 + at).to_string(), &value.to_string(), NULL)]);
        }
    }
}

/// A file with so many points of one metric, four a second.
fn many(path: &Path, rows: i64) {
    table(path, "datapoints", &[]);
    let mut db = Connection::open(path).unwrap();
    let all = db.transaction().unwrap();
    for at in 0..rows {
        let time = (1_722_010_526 + at / 4).to_string();
        all.execute("INSERT INTO datapoints VALUES ('m', ?1, ?2, 'null')", params![time, at as f64]).unwrap();
    }
    all.commit().unwrap();
}

/// Lines of an export, without its first and without columns that are empty.
fn points(dir: &Path) -> Vec<String> {
    exported(dir).lines().skip(1).map(|line| line.trim_end_matches(',').replace(",,", ",")).collect()
}

#[test]
fn a_database_of_a_node_comes_with_its_host() {
    let dir = tempfile::tempdir().unwrap();
    let (file, save) = (dir.path().join("ts_alice_n1.db"), dir.path().join("save"));
    samples(&file, "datapoints");
    let done = telem(["import"]).arg(&file).arg("-o").arg(&save).output().unwrap();
    let said = said(&done);
    assert!(said.contains("ts_alice_n1.db: a database of Dragon, node n1 (by its name)"), "{said}");
    assert!(said.contains("15 samples of 5 metrics and 5 series, "), "{said}");
    assert!(!said.contains("left out") && !said.contains("flags"), "{said}");
    assert_eq!(names(&save), ["n1"]);
    for (metric, values) in SAMPLES {
        let rows = sql(&save, &format!("SELECT host, CAST(ts AS BIGINT) AS us, value FROM \"{metric}\" ORDER BY ts"));
        let expected: Vec<Json> = (1_722_010_526_i64..)
            .zip(values)
            .map(|(second, value)| json!({"host": "n1", "us": second * 1_000_000, "value": value}))
            .collect();
        assert_eq!(rows, Json::from(expected), "{metric}");
    }
    let run = telem(["ls", save.to_str().unwrap(), "--json"]).output().unwrap();
    let run: Json = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(run[0]["name"], "ts_alice_n1");
}

#[test]
fn merged_databases_have_a_node_a_table() {
    let dir = tempfile::tempdir().unwrap();
    let (file, save) = (dir.path().join("merged.db"), dir.path().join("save"));
    samples(&file, "node002");
    samples(&file, "node001");
    let done = import([&file], &save, &[]);
    let said = said(&done);
    assert!(
        said.contains("node node001 (by its table)")
            && said.contains("30 samples of 5 metrics and 10 series on 2 nodes")
    );
    assert_eq!(names(&save), ["node001", "node002"]);
    assert_eq!(points(&save.join("node001")).len(), 15);
    let refused = import([&file], &dir.path().join("told"), &["--node", "n1"]);
    assert!(failure(&refused, 2).contains("--node is the name of one node, but there are several"));
    // Dragon's own vector of an offline query.
    let (file, save) = (dir.path().join("offline.db"), dir.path().join("offline"));
    table(&file, "node1", &[("cpu", "1000", "1.0", "{\"host\":\"node1\"}")]);
    super::said(&import([&file], &save, &[]));
    let rows = sql(&save, "SELECT host, CAST(ts AS BIGINT) AS us, value FROM cpu");
    assert_eq!(rows, json!([{"host": "node1", "us": 1_000_000_000, "value": 1.0}]));
}

#[test]
fn points_of_one_second_are_all_kept_in_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let (file, save) = (dir.path().join("ts_alice_n1.db"), dir.path().join("save"));
    table(
        &file,
        "datapoints",
        &[
            ("m", "1722010526", "3", NULL),
            ("m", "1722010526", "1", NULL),
            ("m", "1722010526", "1", NULL),
            ("m", "1722010526.25", "4", NULL),
            ("m", "1722010526500", "5", NULL),
            ("m", "1722010526", "2", NULL),
            ("m", "1722010526", "9", "{\"rank\": 0}"),
            ("m", "-5", "6", NULL),
        ],
    );
    said(&import([&file], &save, &[]));
    let expected = [
        "m,n1,n1,1969-12-31T23:59:55.000000Z,6.0",
        "m,n1,n1,2024-07-26T16:15:26.000000Z,3.0",
        "m,n1,n1,2024-07-26T16:15:26.000001Z,1.0",
        "m,n1,n1,2024-07-26T16:15:26.000002Z,1.0",
        "m,n1,n1,2024-07-26T16:15:26.000003Z,2.0",
        "m,n1,n1,2024-07-26T16:15:26.250000Z,4.0",
        "m,n1,n1,2024-07-26T16:15:26.500000Z,5.0",
        "m,n1,n1,0,2024-07-26T16:15:26.000000Z,9.0",
    ];
    let mut found = points(&save);
    found.sort();
    let mut sorted = expected.map(str::to_owned);
    sorted.sort();
    assert_eq!(found, sorted);
}

#[test]
fn dumps_that_overlap_have_every_point_once_in_any_order() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let rows: Vec<(String, String)> =
        (0..60).map(|row| ((1_722_010_526 + row / 6).to_string(), (row % 6 / 2).to_string())).collect();
    let dump = |name: &str, rows: &[(String, String)]| {
        let rows: Vec<Row<'_>> = rows.iter().map(|(time, value)| ("m", &**time, &**value, NULL)).collect();
        table(&at(name), "datapoints", &rows);
        at(name)
    };
    // Both end within a second, and the second begins where retention stopped.
    let first = dump("ts_alice_n1_20240726_161530.db", &rows[..33]);
    let second = dump("ts_alice_n1_20240726_161540.db", &rows[12..57]);
    let last = dump("ts_alice_n1.db", &rows[24..]);
    dump("ts_alice_n1_whole.db", &rows);
    said(&import([&at("ts_alice_n1_whole.db")], &at("whole"), &["--node", "n1"]));
    let expected = exported(&at("whole"));
    assert_eq!(expected.lines().count(), 61);
    for (name, files) in [
        ("a", vec![&first, &second, &last]),
        ("b", vec![&last, &first, &second]),
        ("c", vec![&second, &last, &first, &first]),
    ] {
        let said = said(&import(files, &at(name), &[]));
        assert!(said.contains(" rows are in more than one file and count once"), "{said}");
        assert_eq!(exported(&at(name)), expected, "{name}");
    }
    // Merged by Dragon, twice even, which doubles rows in one table.
    let both = [&rows[..33], &rows[12..], &rows[..33], &rows[12..]].concat();
    let both: Vec<Row<'_>> = both.iter().map(|(time, value)| ("m", &**time, &**value, NULL)).collect();
    table(&at("merged.db"), "n1", &both);
    said(&import([&at("merged.db")], &at("merged"), &[]));
    assert_eq!(exported(&at("merged")), expected);
    // A directory of dumps.
    std::fs::create_dir(at("dumps")).unwrap();
    for dump in [&first, &second, &last] {
        fs::copy(dump, at("dumps").join(dump.file_name().unwrap())).unwrap();
    }
    said(&import([&at("dumps")], &at("d"), &[]));
    assert_eq!(exported(&at("d")), expected);
}

#[test]
fn hosts_are_told_by_rows_names_and_the_user() {
    let dir = tempfile::tempdir().unwrap();
    let one = |name: &str, tags: &str| {
        let path = dir.path().join(name);
        table(&path, "datapoints", &[("m", "1", "1", NULL), ("m", "2", "2", tags)]);
        path
    };
    for (case, file, tags, more, nodes) in [
        ("a", "ts_jane_doe_n1.db", NULL, &[][..], &["n1"][..]),
        ("b", "ts_jane_doe_my_host.db", "{\"host\": \"my_host\"}", &[], &["my_host"]),
        ("c", "ts_jane_doe_n3.db", "{\"host\": \"other\"}", &[], &["n3", "other"]),
        ("d", "copy.db", NULL, &["--node", "n4"], &["n4"]),
        ("e", "copy2.db", "{\"host\": \"n5\"}", &[], &["n5"]),
        ("f", "copy3.db", NULL, &[], &["imported"]),
        ("g", "ts_alice_n7.db", "{\"host\": \"a/b\"}", &[], &["n7"]),
    ] {
        let save = dir.path().join(case);
        let said = said(&import([one(file, tags)], &save, more));
        assert_eq!(names(&save), nodes, "{file}: {said}");
        let untagged = sql(&save, "SELECT count(*) AS n FROM samples WHERE host IS NULL");
        assert_eq!(untagged, json!([{"n": 0}]), "{file}");
    }
    let both = [dir.path().join("ts_jane_doe_n1.db"), dir.path().join("ts_jane_doe_n3.db")];
    let refused = import(both, &dir.path().join("no"), &["--node", "n9"]);
    assert!(failure(&refused, 2).contains("n1, n3"));
}

#[test]
fn what_is_no_sample_is_named_with_its_row() {
    let dir = tempfile::tempdir().unwrap();
    let (file, save) = (dir.path().join("ts_alice_n1.db"), dir.path().join("save"));
    let rows = [
        ("good", "1722010526", "'1.5'", NULL),
        ("good", "1722010527", "'abc'", NULL),
        ("good", "1722010528", "NULL", NULL),
        ("good", "1722010529", "x'8004'", NULL),
        ("good", "soon", "1", NULL),
        ("good", "1722010531", "1", "{\"a\": [1]}"),
        ("gpu id", "1722010532", "1", "{\"gpu id\": \"cuda:0\"}"),
        ("", "1722010533", "1", NULL),
        ("good", "1722010534", "9e999", ""),
    ];
    table(&file, "datapoints", &rows);
    Connection::open(&file).unwrap().execute("INSERT INTO datapoints VALUES (NULL, 1, 1, NULL)", []).unwrap();
    let said = said(&import([&file], &save, &[]));
    for expected in [
        "row 2: good is 'abc', no number",
        "row 3: good is null, no number",
        "row 4: good is 2 bytes, no number",
        "row 5: 'soon' is not a time",
        "row 6: the tag 'a' is a list, no text",
        "metric 'gpu id' becomes gpu_id",
        "row 10: the name of the metric is null",
        "3 samples of 2 metrics",
        "left out: 1 row without a good time, 3 values that are no numbers, 3 bad names",
    ] {
        assert!(said.contains(expected), "{expected}\n{said}");
    }
    assert_eq!(sql(&save, "SELECT DISTINCT gpu_id FROM gpu_id"), json!([{"gpu_id": "cuda:0"}]));
    let strict = import([&file], &dir.path().join("strict"), &["--strict"]);
    assert!(failure(&strict, 1).contains("row 2: good is 'abc', no number (--strict)"));
    let some = import([&file], &dir.path().join("some"), &["--metrics", "gpu*"]);
    assert!(super::said(&some).contains("1 sample of 1 metric"));
}

#[test]
fn files_that_are_none_of_dragon_are_refused_with_what_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let other = Connection::open(at("other.db")).unwrap();
    other.execute_batch("CREATE TABLE runs (id, name); CREATE VIEW datapoints AS SELECT 1 AS metric").unwrap();
    fs::write(at("text.db"), "ts,loss\n1,2\n").unwrap();
    fs::write(at("empty.db"), "").unwrap();
    let mut encrypted = b"SQLite format 3\0".to_vec();
    encrypted.extend((0..8_192_u32).map(|at| (at * 31 + 7) as u8));
    fs::write(at("garbage.db"), encrypted).unwrap();
    for (name, more, why) in [
        (
            "other.db",
            &[][..],
            "but none of Dragon: expected a table datapoints, or one a host, with the columns metric, \
                               timestamp, value and tags; there is runs (id, name)",
        ),
        ("text.db", &["--format", "dragon"], "is no SQLite database, or an encrypted one"),
        ("empty.db", &["--format", "dragon"], "is an SQLite database, but none of Dragon"),
        ("garbage.db", &[], "is no SQLite database, or an encrypted one"),
    ] {
        let said = failure(&import([at(name)], &at("save"), more), 1);
        assert!(said.contains(why) && said.contains(name), "{name}: {said}");
        assert!(!at("save").exists());
    }
    let mut piped = telem(["import", "-", "--format", "dragon", "-o"]);
    let piped = piped.arg(at("save")).output().unwrap();
    assert!(failure(&piped, 2).contains("a database cannot be read from a pipe"));
    // Other tables are named, other columns do not matter, and tags may be missing.
    let db = Connection::open(at("ts_alice_n1.db")).unwrap();
    db.execute_batch(
        "CREATE TABLE notes (text); CREATE TABLE ids (metric, timestamp, value, id PRIMARY KEY) WITHOUT ROWID;
         CREATE TABLE metrics (id INTEGER PRIMARY KEY, value REAL, unit, Timestamp, Metric);
         INSERT INTO metrics VALUES (5, 0.5, '%', 1722010526, 'm')",
    )
    .unwrap();
    let said = said(&import([at("ts_alice_n1.db")], &at("save"), &[]));
    assert!(said.contains("left out the table notes (text)") && said.contains("left out the table ids: "), "{said}");
    assert!(said.contains("1 sample of 1 metric and 1 series, "), "{said}");
}

#[test]
fn a_file_that_was_cut_off_or_damaged_gives_what_is_left_and_says_what_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let file = at("ts_alice_n1.db");
    many(&file, 50_000);
    let whole = fs::read(&file).unwrap();
    said(&import([&file], &at("whole"), &[]));
    let all = points(&at("whole"));
    assert_eq!(all.len(), 50_000);
    let pages = whole.len() / 4_096;

    fs::write(&file, &whole[..whole.len() / 2 + 100]).unwrap();
    let cut = said(&import([&file], &at("cut"), &[]));
    let found = points(&at("cut"));
    assert!(found.len() > 23_000 && found[..] == all[..found.len()], "{}", found.len());
    let first = found.len() + 1;
    let grouped = format!("{},{:03}", first / 1_000, first % 1_000);
    assert!(cut.contains(&format!("row {first}: the rows from {grouped} on are not there")), "{cut}");
    assert!(cut.contains("left out: 1 part that cannot be read"), "{cut}");

    let mut damaged = whole.clone();
    damaged[pages / 2 * 4_096..(pages / 2 + 1) * 4_096].fill(0xa5);
    fs::write(&file, &damaged).unwrap();
    let said = said(&import([&file], &at("damaged"), &[]));
    assert!(said.contains("cannot be read: the file is damaged there"), "{said}");
    let found = points(&at("damaged"));
    assert!((49_800..50_000).contains(&found.len()), "{}", found.len());
    // Another dump fills the gap.
    fs::write(at("ts_alice_n1_20240726_161540.db"), &whole).unwrap();
    super::said(&import([file, at("ts_alice_n1_20240726_161540.db")], &at("both"), &[]));
    assert_eq!(points(&at("both")), all);
}

#[test]
fn a_write_that_was_not_completed_is_undone_in_a_copy() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let file = at("ts_alice_n1.db");
    many(&file, 5_000);
    said(&import([&file], &at("before"), &[]));
    // What a kill leaves: pages of a transaction are in the file, and what they were in the journal.
    fs::create_dir(at("killed")).unwrap();
    let db = Connection::open(&file).unwrap();
    db.execute_batch("PRAGMA cache_size = 5; BEGIN; UPDATE datapoints SET value = -1").unwrap();
    for name in ["ts_alice_n1.db", "ts_alice_n1.db-journal"] {
        fs::copy(at(name), at("killed").join(name)).unwrap();
    }
    let killed = at("killed/ts_alice_n1.db");
    let before = [fs::read(&killed).unwrap(), fs::read(at("killed/ts_alice_n1.db-journal")).unwrap()];
    assert_ne!(before[0].len(), 0);
    let said = said(&import([&killed], &at("save"), &[]));
    assert!(said.contains("a write to it was not completed: it is read in a copy"), "{said}");
    assert_eq!(exported(&at("save")), exported(&at("before")));
    assert_eq!(names(&at("save")), ["n1"]);
    // The files are as they were.
    assert_eq!(before, [fs::read(&killed).unwrap(), fs::read(at("killed/ts_alice_n1.db-journal")).unwrap()]);
    assert_eq!(names(&at("killed")).len(), 2);
}

#[test]
fn a_file_that_is_being_written_is_read_and_one_that_stays_locked_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (file, save) = (dir.path().join("ts_alice_n1.db"), dir.path().join("save"));
    many(&file, 100);
    let db = Connection::open(&file).unwrap();
    db.execute_batch("BEGIN IMMEDIATE; INSERT INTO datapoints VALUES ('late', '1', 1, NULL)").unwrap();
    assert!(said(&import([&file], &save, &[])).contains("100 samples of 1 metric"));
    db.execute_batch("COMMIT; BEGIN EXCLUSIVE").unwrap();
    let said = failure(&import([&file], &dir.path().join("locked"), &[]), 1);
    assert!(said.contains("another process writes to it and has had it locked for 5 s"), "{said}");
    assert!(!dir.path().join("locked").exists());
}

#[test]
fn a_replay_shows_what_was_imported() {
    let dir = tempfile::tempdir().unwrap();
    let (file, save) = (dir.path().join("ts_alice_n1.db"), dir.path().join("save"));
    samples(&file, "datapoints");
    said(&import([&file], &save, &[]));
    let mut command = telem(["replay", "--listen", "127.0.0.1:0"]);
    command.arg(&save);
    let server = crate::process::Server::start(command);
    let question = json!({
        "start": 1_722_010_526, "end": 1_722_010_528,
        "queries": [{"metric": "load_average", "aggregator": "sum", "filters": [
            {"type": "wildcard", "tagk": "host", "filter": "*", "groupBy": true}]}],
    });
    let answer = server.post("/api/query", &question).expect(200).json();
    assert_eq!(answer[0]["tags"], json!({"host": "n1"}));
    assert_eq!(answer[0]["dps"], json!({"1722010526": 0.58, "1722010527": 0.58, "1722010528": 0.62}));
}
