//! Files appear as a whole or not at all; tables show the first rows.

use std::fs::{self, File};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use arrow::ipc::reader::{FileReader, StreamReader};
use bytes::Bytes;
use parquet::arrow::arrow_reader::ParquetRecordBatchReader;

use super::*;

fn batch(values: Vec<i64>) -> RecordBatch {
    RecordBatch::try_from_iter([("n", Arc::new(Int64Array::from(values)) as ArrayRef)]).unwrap()
}

fn write(format: OutputFormat, path: &Path, batches: &[RecordBatch]) {
    let mut output = Output::new(format, &batch(vec![]).schema(), Some(path), TableOptions::of_file(Some(3))).unwrap();
    for batch in batches {
        output.batch(batch).unwrap();
    }
    assert!(!path.exists(), "until it is whole it has another name");
    output.finish().unwrap();
}

#[test]
fn each_format_is_written_whole() {
    let dir = tempfile::tempdir().unwrap();
    let two = [batch(vec![1, 2]), batch(vec![3])];
    for (format, name, expected) in [
        (OutputFormat::Csv, "a.csv", "n\n1\n2\n3\n"),
        (OutputFormat::Json, "a.json", "[{\"n\":1},{\"n\":2},{\"n\":3}]\n"),
        (OutputFormat::Ndjson, "a.ndjson", "{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n"),
        (OutputFormat::Table, "a.txt", "+---+\n| n |\n+---+\n| 1 |\n| 2 |\n| 3 |\n+---+\n"),
    ] {
        let path = dir.path().join(name);
        write(format, &path, &two);
        assert_eq!(fs::read_to_string(&path).unwrap(), expected, "{format:?}");
    }
    let path = dir.path().join("a.parquet");
    write(OutputFormat::Parquet, &path, &two);
    let reader = ParquetRecordBatchReader::try_new(Bytes::from(fs::read(&path).unwrap()), 100).unwrap();
    assert_eq!(reader.map(Result::unwrap).collect::<Vec<_>>(), [batch(vec![1, 2, 3])]);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 5, "nothing is left beside them");
}

#[test]
fn an_arrow_file_is_one_by_its_name_or_a_stream() {
    let dir = tempfile::tempdir().unwrap();
    let two = [batch(vec![1, 2]), batch(vec![3])];
    let path = |name: &str| dir.path().join(name);
    for name in ["a.arrow", "a.feather", "a"] {
        write(OutputFormat::Arrow, &path(name), &two);
        let reader = FileReader::try_new(File::open(path(name)).unwrap(), None).unwrap();
        assert_eq!(reader.map(Result::unwrap).collect::<Vec<_>>(), two, "{name}");
    }
    write(OutputFormat::Arrow, &path("a.arrows"), &two);
    let reader = StreamReader::try_new(File::open(path("a.arrows")).unwrap(), None).unwrap();
    assert_eq!(reader.map(Result::unwrap).collect::<Vec<_>>(), two);
}

#[test]
fn text_is_plain_text_in_files_for_other_readers() {
    let dir = tempfile::tempdir().unwrap();
    let text = StringViewArray::from(vec![Some("a"), None, Some("a text of more than twelve bytes")]);
    let views = RecordBatch::try_from_iter([("host", Arc::new(text) as ArrayRef)]).unwrap();
    let write = |format, name: &str| {
        let path = dir.path().join(name);
        let mut output = Output::new(format, &views.schema(), Some(&path), TableOptions::of_file(Some(0))).unwrap();
        output.batch(&views).unwrap();
        output.finish().unwrap();
        path
    };
    let arrow = File::open(write(OutputFormat::Arrow, "a.arrow")).unwrap();
    let arrow = FileReader::try_new(arrow, None).unwrap().next().unwrap().unwrap();
    let parquet = Bytes::from(fs::read(write(OutputFormat::Parquet, "a.parquet")).unwrap());
    let parquet = ParquetRecordBatchReader::try_new(parquet, 100).unwrap().next().unwrap().unwrap();
    for read in [arrow, parquet] {
        assert_eq!(read.schema().field(0).data_type(), &DataType::Utf8);
        assert_eq!(cast(read.column(0), &DataType::Utf8View).unwrap().as_ref(), views.column(0).as_ref());
    }
}

#[test]
fn a_table_takes_no_more_rows_than_it_shows_and_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.txt");
    let mut output =
        Output::new(OutputFormat::Table, &batch(vec![]).schema(), Some(&path), TableOptions::of_file(Some(3))).unwrap();
    output.batch(&batch(vec![1, 2, 3])).unwrap();
    assert_eq!(output.more(), 0, "nobody knows yet whether there are more");
    output.batch(&batch(vec![4])).unwrap();
    assert_eq!(output.more(), 1);
    output.finish().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "+---+\n| n |\n+---+\n| 1 |\n| 2 |\n| 3 |\n+---+\n");
}

#[test]
fn a_file_of_an_answer_that_fails_is_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.csv");
    fs::write(&path, "what was there before").unwrap();
    let mut output =
        Output::new(OutputFormat::Csv, &batch(vec![]).schema(), Some(&path), TableOptions::of_file(Some(3))).unwrap();
    output.batch(&batch(vec![1])).unwrap();
    drop(output);
    assert_eq!(fs::read_to_string(&path).unwrap(), "what was there before");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_link_stays_and_what_it_names_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let (path, link) = (dir.path().join("a.csv"), dir.path().join("link.csv"));
    fs::write(&path, "what was there before").unwrap();
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let table = TableOptions::of_file(Some(3));
    let mut output = Output::new(OutputFormat::Csv, &batch(vec![]).schema(), Some(&link), table).unwrap();
    output.batch(&batch(vec![1])).unwrap();
    output.finish().unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(&path).unwrap(), "n\n1\n");
}

#[test]
fn a_file_name_asks_for_a_format_by_its_end() {
    for (name, expected) in [
        ("a.parquet", Some(OutputFormat::Parquet)),
        ("a.CSV", Some(OutputFormat::Csv)),
        ("a.b.jsonl", Some(OutputFormat::Ndjson)),
        ("a", None),
        ("a.txt", None),
    ] {
        assert_eq!(OutputFormat::of_file(Path::new(name)), expected, "{name}");
    }
}
