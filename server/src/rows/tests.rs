//! The form of rows in each format.

use std::io::Cursor;

use arrow::array::{
    Array, Float64Array, Int64Array, MapBuilder, StringArray, StringBuilder, TimestampMicrosecondArray,
    TimestampNanosecondArray, UInt64Array,
};
use arrow::compute::concat_batches;
use arrow::ipc::reader::StreamReader;
use bytes::Bytes;
use expect_test::{Expect, expect};
use parquet::arrow::arrow_reader::ParquetRecordBatchReader;

use super::*;

fn batch() -> RecordBatch {
    let mut tags = MapBuilder::new(None, StringBuilder::new(), StringBuilder::new());
    tags.keys().append_value("host");
    tags.values().append_value("a \"b\",c");
    tags.append(true).unwrap();
    tags.append(true).unwrap();
    tags.append(false).unwrap();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("name", Arc::new(StringArray::from(vec![Some("x,y"), Some(""), None]))),
        ("int", Arc::new(Int64Array::from(vec![i64::MAX, i64::MIN, 9_007_199_254_740_993]))),
        ("count", Arc::new(UInt64Array::from(vec![u64::MAX, 0, 1]))),
        ("value", Arc::new(Float64Array::from(vec![0.1, f64::NAN, f64::NEG_INFINITY]))),
        (
            "ts",
            Arc::new(
                TimestampMicrosecondArray::from(vec![1_767_225_600_000_000, 1_767_225_600_500_000, -1])
                    .with_timezone("UTC"),
            ),
        ),
        ("plain", Arc::new(TimestampNanosecondArray::from(vec![1_767_225_600_000_000_000, 1, 1_500_000_000]))),
        ("tags", Arc::new(tags.finish())),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

fn encode(format: Format, batches: &[RecordBatch]) -> Vec<u8> {
    let mut encoder = Encoder::new(format, &batch().schema()).unwrap();
    let mut bytes = Vec::new();
    for batch in batches {
        bytes.extend(encoder.batch(batch).unwrap());
    }
    bytes.extend(encoder.finish().unwrap());
    bytes
}

fn check(format: Format, batches: &[RecordBatch], expected: &Expect) {
    expected.assert_eq(&String::from_utf8(encode(format, batches)).unwrap());
}

#[test]
fn ndjson_is_one_object_a_line_with_exact_integers_and_null_for_what_json_has_not() {
    check(
        Format::Ndjson,
        &[batch()],
        &expect![[r#"
        {"name":"x,y","int":9223372036854775807,"count":18446744073709551615,"value":0.1,"ts":"2026-01-01T00:00:00Z","plain":"2026-01-01T00:00:00Z","tags":{"host":"a \"b\",c"}}
        {"name":"","int":-9223372036854775808,"count":0,"value":null,"ts":"2026-01-01T00:00:00.500Z","plain":"1970-01-01T00:00:00.000000001Z","tags":{}}
        {"name":null,"int":9007199254740993,"count":1,"value":null,"ts":"1969-12-31T23:59:59.999999Z","plain":"1970-01-01T00:00:01.500Z","tags":null}
    "#]],
    );
}

#[test]
fn json_is_one_array_over_all_batches() {
    let two = [batch().slice(0, 1), batch().slice(1, 1)];
    let rows: serde_json::Value = serde_json::from_slice(&encode(Format::Json, &two)).unwrap();
    assert_eq!(rows.as_array().map(Vec::len), Some(2));
    assert_eq!(rows[0]["int"], i64::MAX);
    assert_eq!(rows[1]["value"], serde_json::Value::Null);
    assert_eq!(encode(Format::Json, &[]), b"[]\n");
}

#[test]
fn csv_has_a_line_of_names_and_nested_values_as_json() {
    check(
        Format::Csv,
        &[batch().slice(0, 2), batch().slice(2, 1)],
        &expect![[r#"
        name,int,count,value,ts,plain,tags
        "x,y",9223372036854775807,18446744073709551615,0.1,2026-01-01T00:00:00.000000Z,2026-01-01T00:00:00.000000000Z,"{""host"":""a \""b\"",c""}"
        ,-9223372036854775808,0,NaN,2026-01-01T00:00:00.500000Z,1970-01-01T00:00:00.000000001Z,{}
        ,9007199254740993,1,-inf,1969-12-31T23:59:59.999999Z,1970-01-01T00:00:01.500000000Z,
    "#]],
    );
}

#[test]
fn csv_keeps_the_offset_of_a_time_that_is_not_utc() {
    let ts = TimestampMicrosecondArray::from(vec![1_767_225_600_000_000]).with_timezone("+01:00");
    let batch = RecordBatch::try_from_iter([("ts", Arc::new(ts) as ArrayRef)]).unwrap();
    let mut encoder = Encoder::new(Format::Csv, &batch.schema()).unwrap();
    assert_eq!(encoder.batch(&batch).unwrap(), b"ts\n2026-01-01T01:00:00.000000+01:00\n");
}

#[test]
fn csv_without_rows_still_names_its_columns() {
    assert_eq!(encode(Format::Csv, &[]), b"name,int,count,value,ts,plain,tags\n");
}

#[test]
fn an_arrow_stream_brings_the_same_batches_back() {
    let batches = [batch(), batch().slice(1, 2)];
    let bytes = encode(Format::Arrow, &batches);
    let read: Vec<_> = StreamReader::try_new(Cursor::new(bytes), None).unwrap().map(Result::unwrap).collect();
    assert_eq!(read, batches);
}

#[test]
fn a_parquet_file_that_came_in_pieces_has_the_same_rows() {
    let batches = [batch(), batch().slice(1, 2)];
    let bytes = Bytes::from(encode(Format::Parquet, &batches));
    let read: Vec<_> = ParquetRecordBatchReader::try_new(bytes, 1024).unwrap().map(Result::unwrap).collect();
    let expected: Vec<_> =
        batches.iter().map(|batch| cast_to(batch, &plain_schema(&batch.schema())).unwrap()).collect();
    assert_eq!(
        concat_batches(&read[0].schema(), &read).unwrap().columns(),
        concat_batches(&expected[0].schema(), &expected).unwrap().columns()
    );
}

/// What arrow-json itself writes of these times.
fn written_by_arrow(times: &TimestampMicrosecondArray) -> Vec<String> {
    let field = Arc::new(Field::new("ts", times.data_type().clone(), true));
    let options = EncoderOptions::default();
    let mut encoder = make_encoder(&field, times, &options).unwrap();
    let text = |row| {
        let mut text = Vec::new();
        encoder.encode(row, &mut text);
        format!("{{\"ts\":{}}}\n", String::from_utf8(text).unwrap())
    };
    (0..times.len()).map(text).collect()
}

fn times_are_as_arrow_writes_them(times: Vec<i64>) {
    let times = TimestampMicrosecondArray::from(times).with_timezone("UTC");
    let expected = written_by_arrow(&times).concat();
    let batch = RecordBatch::try_from_iter([("ts", Arc::new(times) as ArrayRef)]).unwrap();
    let mut encoder = Encoder::new(Format::Ndjson, &batch.schema()).unwrap();
    assert_eq!(String::from_utf8(encoder.batch(&batch).unwrap()).unwrap(), expected);
}

#[test]
fn times_of_every_day_of_four_hundred_years_and_beyond_four_digits_are_as_arrow_writes_them() {
    const DAY: i64 = 86_400_000_000;
    times_are_as_arrow_writes_them((0..146_097 + 366).map(|day| day * DAY + day).collect());
    let (first, end) = (-719_528 * DAY, 2_932_897 * DAY);
    times_are_as_arrow_writes_them(vec![first, first + 1, end - 1, end - 1_000, -1, 0, 1, 999, 1_000, 999_999]);
    times_are_as_arrow_writes_them(vec![0, first - 1]);
    times_are_as_arrow_writes_them(vec![0, end]);
}

proptest::proptest! {
    #[test]
    fn any_times_are_as_arrow_writes_them(
        times in proptest::collection::vec(-62_167_219_200_000_000..253_402_300_800_000_000_i64, 1..20),
        unit in proptest::sample::select(vec![1, 1_000, 1_000_000, 60_000_000]),
    ) {
        times_are_as_arrow_writes_them(times.into_iter().map(|time| time / unit * unit).collect());
    }
}
