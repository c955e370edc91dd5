//! Databases with Dragon's schema, whole and damaged; cells and tags of rows; garbage.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proptest::collection::vec;
use proptest::prelude::*;
use rusqlite::{Connection, params};

use super::pages::{self, DragonPages, LeftRows};
use super::*;

const PAGE: usize = 4_096;

/// A node's file as Dragon makes it, with so many rows, and what its header says of where its rows begin.
fn database(dir: &Path, rows: i64) -> PathBuf {
    let path = dir.join("ts_alice_n1.db");
    let mut db = Connection::open(&path).unwrap();
    db.execute_batch(
        "CREATE TABLE datapoints (metric varchar(50), timestamp varchar(30), value real, tags json);
         CREATE TABLE flags (id INTEGER PRIMARY KEY CHECK (id = 1), is_shutdown BLOB);
         INSERT INTO flags VALUES (1, x'80049503')",
    )
    .unwrap();
    let all = db.transaction().unwrap();
    for at in 0..rows {
        let second = (1_722_010_526 + at / 4).to_string();
        let tags = if at % 3 == 0 { "null".to_owned() } else { format!("{{\"gpu\": {}}}", at % 4) };
        all.execute("INSERT INTO datapoints VALUES (?1, ?2, ?3, ?4)", params!["load_average", second, at as f64, tags])
            .unwrap();
    }
    all.commit().unwrap();
    path
}

/// The rows that are left behind `after`, with their values, and those that are not.
fn left(path: &Path, after: i64) -> (BTreeMap<i64, f64>, Vec<String>) {
    let pages = DragonPages::open(path).unwrap();
    let mut left = LeftRows::of(pages, 2, [Some(0), Some(1), Some(2), Some(3)], after, Some(&vec![1, 2, 3]));
    let (mut found, mut lost) = (BTreeMap::new(), Vec::new());
    loop {
        let end = left.next_page(|row| {
            let ValueRef::Real(value) = row.value else { panic!("{row:?}") };
            assert!(matches!(row.metric, ValueRef::Text(b"load_average")));
            assert!(found.insert(row.rowid, value).is_none());
            Ok(())
        });
        match end.unwrap() {
            LeftEnd::More => {}
            LeftEnd::Lost(rows) => lost.push(rows.to_string()),
            LeftEnd::End => return (found, lost),
        }
    }
}

#[test]
fn pages_of_a_whole_file_have_all_rows() {
    let dir = tempfile::tempdir().unwrap();
    for rows in [0, 1, 100, 20_000] {
        let path = database(dir.path(), rows);
        let (found, lost) = left(&path, 0);
        assert_eq!(found, (1..=rows).map(|row| (row, (row - 1) as f64)).collect(), "{rows}");
        assert!(lost.is_empty(), "{lost:?}");
        assert_eq!(left(&path, 15_000).0.len(), usize::try_from((rows - 15_000).max(0)).unwrap());
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn a_file_that_was_cut_off_anywhere_has_the_rows_of_the_pages_that_are_left() {
    let dir = tempfile::tempdir().unwrap();
    let path = database(dir.path(), 20_000);
    let whole = std::fs::read(&path).unwrap();
    let pages = whole.len() / PAGE;
    let mut before = 0;
    for kept in [3, 4, 5, 50, pages / 2, pages - 50, pages - 2, pages - 1] {
        // Never at the end of a page.
        std::fs::write(&path, &whole[..kept * PAGE + kept]).unwrap();
        let (found, lost) = left(&path, 0);
        assert!(found.iter().all(|(row, value)| *value == (row - 1) as f64), "{kept}");
        assert!(found.len() >= before && found.len() >= (kept - 3) * 60, "{kept} pages have {} rows", found.len());
        before = found.len();
        let last = found.keys().last().map_or(0, |last| last + 1).max(1);
        let expected =
            format!("the rows from {} on are not there: the file is cut off or damaged", grouped(last.unsigned_abs()));
        assert_eq!(lost.last(), Some(&expected), "{kept}: {lost:?}");
    }
}

#[test]
fn a_garbage_page_costs_its_own_rows_only() {
    let dir = tempfile::tempdir().unwrap();
    let path = database(dir.path(), 20_000);
    let whole = std::fs::read(&path).unwrap();
    let mut kinds = BTreeMap::<u8, u32>::new();
    for page in (3..whole.len() / PAGE).step_by(7) {
        *kinds.entry(whole[page * PAGE]).or_default() += 1;
        let mut damaged = whole.clone();
        for (at, byte) in damaged[page * PAGE..(page + 1) * PAGE].iter_mut().enumerate() {
            *byte = (at * 37 + 0xa5) as u8;
        }
        std::fs::write(&path, &damaged).unwrap();
        let (found, lost) = left(&path, 0);
        let gone = 20_000 - found.len();
        assert!(found.iter().all(|(row, value)| *value == (row - 1) as f64));
        // An inner page has no rows: the leaves below it are found without it.
        match whole[page * PAGE] {
            0x0d => assert!((60..200).contains(&gone) && lost.len() == 1, "page {page}: {gone} {lost:?}"),
            _ => assert!(gone == 0, "page {page}: {gone} {lost:?}"),
        }
        if let [one] = &*lost {
            let first = (1..).find(|row| !found.contains_key(row)).unwrap();
            let until = match found.keys().next_back() {
                Some(last) if *last > first => format!(" to {} ", grouped((first + gone as i64 - 1).unsigned_abs())),
                _ => " on ".to_owned(),
            };
            assert!(one.contains(&grouped(first.unsigned_abs())) && one.contains(&until), "{one} {first} {gone}");
        }
    }
    assert!(kinds[&0x0d] > 20, "{kinds:?}");
}

#[test]
fn long_rows_are_read_over_several_pages() {
    let dir = tempfile::tempdir().unwrap();
    let path = database(dir.path(), 10);
    let long = format!("{{\"why\": \"{}\"}}", "x".repeat(50_000));
    let db = Connection::open(&path).unwrap();
    db.execute("INSERT INTO datapoints VALUES ('load_average', '5', 10.0, ?1)", [&long]).unwrap();
    drop(db);
    let pages = DragonPages::open(&path).unwrap();
    let mut rows = LeftRows::of(pages, 2, [Some(0), Some(1), Some(2), Some(3)], 10, None);
    let mut found = Vec::new();
    while rows
        .next_page(|row| {
            found.push(text(row.tags).unwrap().to_owned());
            Ok(())
        })
        .unwrap()
        != LeftEnd::End
    {}
    assert_eq!(found, [long]);
}

#[test]
fn tags_are_texts_and_numbers_and_nothing_else() {
    let tags = |json: &str| tags_of(json.as_bytes());
    let pairs = |pairs: &[(&str, &str)]| Ok(pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect());
    for none in ["null", "{}", "", " ", "{\"a\": null}", "{\"a\": \"\"}"] {
        assert_eq!(tags(none), pairs(&[]), "{none}");
    }
    let found = tags(r#"{"gpu": 0, "share": 0.5, "ok": true, "host": "n1", "gpu id": "cuda:0"}"#);
    assert_eq!(found, pairs(&[("gpu", "0"), ("share", "0.5"), ("ok", "true"), ("host", "n1"), ("gpu id", "cuda:0")]));
    for (bad, why) in [
        (r#"{"a": [1]}"#, "the tag 'a' is a list, no text"),
        (r#"{"a": {"b": 1}}"#, "the tag 'a' is an object, no text"),
        ("[1]", "the tags are '[1]', no JSON object"),
        ("{'a': 1}", "the tags are '{'a': 1}', no JSON object"),
        ("7", "the tags are '7', no JSON object"),
    ] {
        assert_eq!(tags(bad).unwrap_err().replace("\\'", "'"), why);
    }
}

#[test]
fn values_are_numbers_and_texts_of_numbers() {
    for (value, expected) in [
        (ValueRef::Real(0.5), Ok(Value::Float(0.5))),
        (ValueRef::Integer(7), Ok(Value::Int(7))),
        (ValueRef::Text(b" 1.5 "), Ok(Value::Float(1.5))),
        (ValueRef::Text(b"-3"), Ok(Value::Int(-3))),
        (ValueRef::Text(b"abc"), Err("'abc', no number")),
        (ValueRef::Text(b""), Err("an empty text, no number")),
        (ValueRef::Text(b"\xff"), Err("'\u{fffd}', no number")),
        (ValueRef::Null, Err("null, no number")),
        (ValueRef::Blob(b"\x80\x04"), Err("2 bytes, no number")),
    ] {
        assert_eq!(number(value), expected.map_err(str::to_owned), "{value:?}");
    }
}

proptest! {
    #[test]
    fn rows_of_any_bytes_are_values_or_none(bytes in vec(any::<u8>(), 0..200)) {
        prop_assert!(pages::looked_at(&bytes) <= bytes.len());
        if let Err(why) = tags_of(&bytes) {
            prop_assert!(!why.is_empty());
        }
    }

    #[test]
    fn files_with_any_garbage_are_read_to_their_end(
        changes in vec((0_usize..400_000, vec(any::<u8>(), 1..40)), 1..12),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ts_alice_n1.db");
        let mut bytes = whole();
        for (at, change) in changes {
            // The header says how large pages are.
            let at = 100 + at % (bytes.len() - 200);
            bytes[at..at + change.len()].copy_from_slice(&change);
        }
        std::fs::write(&path, &bytes).unwrap();
        if let Some(pages) = DragonPages::open(&path) {
            let mut left = LeftRows::of(pages, 2, [Some(0), Some(1), Some(2), Some(3)], 0, Some(&vec![1, 2, 3]));
            let mut steps = 0;
            let mut last = 0;
            while left
                .next_page(|row| {
                    assert!(row.rowid > last);
                    last = row.rowid;
                    Ok(())
                })
                .unwrap()
                != LeftEnd::End
            {
                steps += 1;
                prop_assert!(steps < 100_000);
            }
        }
    }
}

/// A file of 5,000 rows, made once.
fn whole() -> Vec<u8> {
    static WHOLE: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    let make = || {
        let dir = tempfile::tempdir().unwrap();
        std::fs::read(database(dir.path(), 5_000)).unwrap()
    };
    WHOLE.get_or_init(make).clone()
}
