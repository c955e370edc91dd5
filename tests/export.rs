//! `telem export`, and `telem sql` into files, as processes: their messages, and what they leave when they are
//! interrupted.
//!
//! `tests/py/test_export.py` shows that other tools read the files.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, ListArray, StringArray};
use arrow::ipc::writer::StreamWriter;
use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use parquet::arrow::arrow_reader::ParquetRecordBatchReader;
use telem_engine::{Db, Durability, Options, SampleBatch, SeriesKey, TagSet, Timestamp, Value};

use crate::process::{poll, telem};

/// A database with `metrics`, each of `samples` a second apart on each of two hosts.
fn saved(dir: &Path, metrics: &[&str], samples: i64) {
    let db = Db::open(dir, Options { node: "n1".to_owned(), ..Options::default() }).unwrap();
    for metric in metrics {
        for host in ["a", "b"] {
            let series = db.series(&SeriesKey::new(metric, TagSet::new([("host", host)]).unwrap()).unwrap()).unwrap();
            let mut batch = SampleBatch::default();
            for at in 0..samples {
                batch.push(series, Timestamp::from_seconds(1_704_067_200 + at), Value::Int(at));
            }
            db.append(&batch, Durability::Buffered).unwrap();
        }
    }
    db.close().unwrap();
}

fn export(from: &Path, out: &str, more: &[&str]) -> Output {
    telem(["export", from.to_str().unwrap(), "-o", out]).args(more).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn parquet_rows(path: &Path) -> usize {
    let file = Bytes::from(fs::read(path).unwrap());
    ParquetRecordBatchReader::try_new(file, 8_192).unwrap().map(|batch| batch.unwrap().num_rows()).sum()
}

#[test]
fn one_file_or_a_file_a_metric_and_one_line_that_sums_up() {
    let dir = tempfile::tempdir().unwrap();
    let (db, out) = (dir.path().join("db"), dir.path().join("out"));
    saved(&db, &["load", "disk/read"], 1_000);
    fs::create_dir(&out).unwrap();

    let done = export(&db, out.join("all.parquet").to_str().unwrap(), &[]);
    assert!(done.status.success() && done.stdout.is_empty(), "{done:?}");
    assert!(stderr(&done).starts_with("4,000 samples of 2 metrics in 1 file, "), "{}", stderr(&done));
    assert_eq!(parquet_rows(&out.join("all.parquet")), 4_000);

    let each = format!("{}/each/", out.display());
    let done = export(&db, &each, &["--metric", "l*", "--end", "2024-01-01T00:00:10Z", "-q"]);
    assert!(done.status.success() && done.stderr.is_empty(), "{done:?}");
    assert_eq!(names(&out.join("each")), ["_index.json", "load.parquet"]);
    assert_eq!(parquet_rows(&out.join("each/load.parquet")), 20);
    let done = export(&db, &each, &[]);
    assert!(done.status.success(), "{done:?}");
    assert_eq!(names(&out.join("each")), ["_index.json", "disk%2Fread.parquet", "load.parquet"]);
    let done = export(&db, &each, &["--exclude", "load"]);
    assert!(stderr(&done).contains("removed 1 file of an earlier export"), "{}", stderr(&done));
    assert_eq!(names(&out.join("each")), ["_index.json", "disk%2Fread.parquet"]);

    let done = export(&db, "-", &["--format", "csv", "--metric", "load", "--end", "1704067202"]);
    assert_eq!(
        String::from_utf8(done.stdout).unwrap(),
        "metric,host,node,ts,value,value_int\n\
         load,a,n1,2024-01-01T00:00:00.000000Z,0.0,0\nload,a,n1,2024-01-01T00:00:01.000000Z,1.0,1\n\
         load,b,n1,2024-01-01T00:00:00.000000Z,0.0,0\nload,b,n1,2024-01-01T00:00:01.000000Z,1.0,1\n"
    );
    assert_eq!(names(&out), ["all.parquet", "each"], "nothing else is left");
}

#[test]
fn relative_times_of_a_saved_database_count_from_its_last_sample() {
    let dir = tempfile::tempdir().unwrap();
    saved(&dir.path().join("db"), &["loss"], 100);
    let rows = |more: &[&str]| {
        let out = dir.path().join("out.parquet");
        let exported = export(&dir.path().join("db"), out.to_str().unwrap(), more);
        assert!(exported.status.success(), "{}", stderr(&exported));
        parquet_rows(&out)
    };
    // Two hosts, a sample a second, the last at second 99; --end is not part of it.
    assert_eq!(rows(&["--start", "9s-ago"]), 20);
    assert_eq!(rows(&["--start", "19s-ago", "--end", "9s-ago"]), 20);
    assert_eq!(rows(&["--start", "1704067200", "--end", "now"]), 198);
    let empty = export(&dir.path().join("db"), "none.csv", &["--start", "1s-ago", "--end", "5s-ago"]);
    assert_eq!(empty.status.code(), Some(2));
    assert!(stderr(&empty).contains("--end is not after --start"), "{}", stderr(&empty));
}

#[test]
fn what_cannot_be_exported_is_told_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (db, out) = (dir.path().join("db"), dir.path().join("out"));
    saved(&db, &["node_load1", "node_load5"], 10);
    fs::create_dir(&out).unwrap();
    fs::write(out.join("mine.txt"), "").unwrap();
    let file = format!("{}/x.parquet", out.display());
    let directory = format!("{}/", out.display());
    for (from, out, more, code, expected) in [
        (&db, &file, &["--metric", "node_laod1"][..], 1, "close to it: node_load1, node_load5"),
        (&db, &file, &["--start", "2025-01-01T00:00:00Z"], 1, "no samples from 2025-01-01T00:00:00Z on"),
        (&db, &file, &["--start", "2", "--end", "1"], 2, "--end is not after --start"),
        (&db, &file, &["--end", "tomorrow"], 2, "'tomorrow' is not a time"),
        (&db, &format!("{file}.xlsx"), &[], 2, "does not tell the format"),
        (&db, &directory, &[], 1, "holds files and no earlier export"),
        (&db, &format!("{}/no/such/x.csv", dir.path().display()), &[], 1, "there is no directory"),
        (&db, &format!("{}/mine.txt/", out.display()), &[], 1, "is a file; name a directory"),
        (&dir.path().join("nowhere"), &file, &[], 1, "nowhere"),
        (&"http://127.0.0.1:1".into(), &file, &[], 1, "is the server running?"),
    ] {
        let done = export(from, out, more);
        assert_eq!(done.status.code(), Some(code), "{done:?}");
        assert!(stderr(&done).contains(expected), "{expected}: {}", stderr(&done));
    }
    let both = telem(["export", db.to_str().unwrap(), "http://127.0.0.1:1", "-o", &file]).output().unwrap();
    assert_eq!(both.status.code(), Some(2), "{both:?}");
    assert_eq!(names(&out), ["mine.txt"]);
}

#[test]
fn who_names_a_directory_of_databases_is_told_which_were_found() {
    let dir = tempfile::tempdir().unwrap();
    let saves = dir.path().join("saves");
    saved(&saves.join("n1"), &["load"], 2);
    saved(&saves.join("n2"), &["loss"], 2);
    let out = dir.path().join("all.csv");
    let done = export(&saves, out.to_str().unwrap(), &[]);
    let told = format!("2 databases read as one: {0}/n1, {0}/n2\n8 samples of 2 metrics", saves.display());
    assert!(stderr(&done).starts_with(&told), "{}", stderr(&done));
}

#[test]
fn a_metric_with_too_many_tags_is_named_before_anything_is_written_and_can_be_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let (db, out) = (dir.path().join("db"), format!("{}/out/", dir.path().display()));
    saved(&db, &["load"], 1);
    let open = Db::open(&db, Options { node: "n1".to_owned(), ..Options::default() }).unwrap();
    for at in 0..=1_000 {
        let tags = TagSet::new([(&*format!("k{at}"), "v")]).unwrap();
        let series = open.series(&SeriesKey::new("wide", tags).unwrap()).unwrap();
        let mut batch = SampleBatch::default();
        batch.push(series, Timestamp::from_seconds(1), Value::Int(at));
        open.append(&batch, Durability::Buffered).unwrap();
    }
    open.close().unwrap();
    for out in [out.clone(), format!("{}/out.csv", dir.path().display())] {
        let done = export(&db, &out, &[]);
        assert_eq!(done.status.code(), Some(1), "{done:?}");
        assert!(stderr(&done).contains("metric wide has 1001 tags"), "{}", stderr(&done));
    }
    assert_eq!(names(dir.path()), ["db"]);
    let done = export(&db, &out, &["--exclude", "wide"]);
    assert!(done.status.success(), "{done:?}");
    assert_eq!(names(&dir.path().join("out")), ["_index.json", "load.parquet"]);
}

fn sql(from: &str, out: &Path, more: &[&str]) -> std::process::Command {
    let mut command = telem(["sql", from, "SELECT * FROM load", "-o", out.to_str().unwrap()]);
    command.args(more);
    command
}

#[test]
fn sql_writes_no_table_into_a_file_whose_name_tells_no_format() {
    let dir = tempfile::tempdir().unwrap();
    let (db, out) = (dir.path().join("db"), dir.path().join("rows.txt"));
    saved(&db, &["load"], 2_000);
    let done = sql(db.to_str().unwrap(), &out, &[]).output().unwrap();
    assert_eq!(done.status.code(), Some(2), "{done:?}");
    assert!(stderr(&done).contains("rows.txt' does not tell the format: end it in .csv"), "{}", stderr(&done));
    assert_eq!(names(dir.path()), ["db"]);

    let done = sql(db.to_str().unwrap(), &out, &["--format", "csv"]).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    assert_eq!(fs::read_to_string(&out).unwrap().lines().count(), 4_001);
    let table = dir.path().join("table.txt");
    let done = sql(db.to_str().unwrap(), &table, &["--format", "table"]).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    assert!(fs::read_to_string(&table).unwrap().lines().count() > 4_000, "a file has every row");
}

#[test]
fn a_query_into_a_file_that_is_interrupted_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("rows.csv");
    // A server that begins an answer and then falls silent.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let rows = RecordBatch::try_from_iter([("n", Arc::new(Int64Array::from(vec![1])) as ArrayRef)]).unwrap();
        let mut body = StreamWriter::try_new(Vec::new(), &rows.schema()).unwrap();
        body.write(&rows).unwrap();
        let (stream, _) = listener.accept().unwrap();
        read_request(&mut BufReader::new(&stream));
        (&stream).write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n").unwrap();
        (&stream).write_all(body.get_ref()).unwrap();
        // Until the query hangs up.
        (&stream).read_to_end(&mut Vec::new()).unwrap_or_default();
    });
    let child = sql(&url, &out, &[]).stderr(Stdio::piped()).spawn().unwrap();
    poll("the unfinished file", || names(dir.path()).len() == 1);
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let done = child.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    assert!(stderr(&done).contains("interrupted; nothing was written"), "{}", stderr(&done));
    assert!(names(dir.path()).is_empty());
    server.join().unwrap();
}

#[test]
fn an_export_asks_a_busy_server_again() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("all.csv");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let (busy, _) = listener.accept().unwrap();
        read_request(&mut BufReader::new(&busy));
        (&busy).write_all(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy").unwrap();
        drop(busy);
        let (stream, _) = listener.accept().unwrap();
        read_request(&mut BufReader::new(&stream));
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("metric", Arc::new(StringArray::from(Vec::<&str>::new()))),
            ("keys", Arc::new(strings(&["host"]).slice(0, 0))),
            ("series", Arc::new(Int64Array::from(Vec::<i64>::new()))),
        ];
        (&stream).write_all(&arrow_answer(&RecordBatch::try_from_iter(columns).unwrap())).unwrap();
    });
    let done = telem(["export", &url, "-o", out.to_str().unwrap()]).output().unwrap();
    assert!(stderr(&done).contains("there are no samples yet"), "it came to an answer: {}", stderr(&done));
    server.join().unwrap();
}

/// One HTTP answer: an Arrow stream of `batch`.
fn arrow_answer(batch: &RecordBatch) -> Vec<u8> {
    let mut body = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    body.write(batch).unwrap();
    let body = body.into_inner().unwrap();
    let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
    answer.extend(body);
    answer
}

/// Reads one request to the end of its body.
fn read_request(stream: &mut BufReader<&std::net::TcpStream>) {
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        if let Some(found) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = found.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
    }
    stream.read_exact(&mut vec![0; length]).unwrap();
}

#[test]
fn an_export_that_is_stopped_leaves_what_was_there() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("all.csv");
    fs::write(&out, "what was there before").unwrap();
    // A server that knows a metric and then falls silent.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("metric", Arc::new(StringArray::from(vec!["load"]))),
            ("keys", Arc::new(strings(&["host"]))),
            ("series", Arc::new(Int64Array::from(vec![1]))),
        ];
        let (stream, _) = listener.accept().unwrap();
        read_request(&mut BufReader::new(&stream));
        (&stream).write_all(&arrow_answer(&RecordBatch::try_from_iter(columns).unwrap())).unwrap();
        let (stream, _) = listener.accept().unwrap();
        read_request(&mut BufReader::new(&stream));
        let jobs = RecordBatch::try_from_iter([("job", Arc::new(StringArray::from(vec!["7"])) as ArrayRef)]).unwrap();
        (&stream).write_all(&arrow_answer(&jobs)).unwrap();
        let (silent, _) = listener.accept().unwrap();
        read_request(&mut BufReader::new(&silent));
        // Until the export hangs up.
        (&silent).read_to_end(&mut Vec::new()).unwrap_or_default();
    });
    let mut command = telem(["export", &url, "-o", out.to_str().unwrap()]);
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    poll("the unfinished file", || names(dir.path()).len() == 2);
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let done = child.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    assert!(stderr(&done).contains("terminated; nothing was written"), "{}", stderr(&done));
    assert_eq!(names(dir.path()), ["all.csv"]);
    assert_eq!(fs::read_to_string(&out).unwrap(), "what was there before");
    server.join().unwrap();
}

/// One list of texts.
fn strings(texts: &[&str]) -> ListArray {
    let values = StringArray::from(texts.to_vec());
    let field = arrow::datatypes::Field::new_list_field(arrow::datatypes::DataType::Utf8, true);
    let offsets = arrow::buffer::OffsetBuffer::<i32>::from_lengths([texts.len()]);
    ListArray::new(Arc::new(field), offsets, Arc::new(values), None)
}
