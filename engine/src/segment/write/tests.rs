//! Parquet's own reader and writer are what the pages written here are held against.

use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::schema::types::ColumnPath;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::segment::{PAGE_ROWS, ROW_GROUP_ROWS};

type Samples = Vec<(Timestamp, Value)>;

fn encoded(runs: &[Samples]) -> Encoded {
    let mut writer = SegmentWriter::new("nid001", TimeRange::ALL, 3, 3).unwrap();
    for (series, samples) in runs.iter().enumerate() {
        writer.push(SeriesId(series as u32), samples).unwrap();
    }
    writer.finish().unwrap().unwrap()
}

fn metadata(bytes: &Bytes) -> ParquetMetaData {
    let mut reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Required);
    reader.try_parse(bytes).unwrap();
    reader.finish().unwrap()
}

/// The rows of a segment as Parquet reads them, written by Parquet with what we chose.
fn written_by_parquet(bytes: &Bytes) -> Bytes {
    let builder = ParquetRecordBatchReaderBuilder::try_new(bytes.clone()).unwrap();
    let times = metadata(bytes).row_group(0).column(1).encodings().find(|encoding| *encoding != Encoding::RLE).unwrap();
    let whole = times == Encoding::BYTE_STREAM_SPLIT;
    let mut properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1).unwrap()))
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_dictionary_enabled(false)
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_data_page_size_limit(usize::MAX)
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS));
    let delta = Encoding::DELTA_BINARY_PACKED;
    for (column, encoding) in
        [("series", delta), ("ts", times), ("int", delta), ("scale", delta), ("float", Encoding::BYTE_STREAM_SPLIT)]
    {
        properties = properties.set_column_encoding(ColumnPath::from(column), encoding);
    }
    assert!(!whole || builder.metadata().file_metadata().num_rows() <= PAGE_ROWS as i64, "one page holds all times");
    let batches = builder.with_batch_size(PAGE_ROWS).build().unwrap();
    let mut file = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut file, schema(), Some(properties.build())).unwrap();
    for batch in batches {
        let batch = batch.unwrap();
        writer.write(&RecordBatch::try_new(schema(), batch.columns().to_vec()).unwrap()).unwrap();
    }
    writer.close().unwrap();
    file.into()
}

/// Data and all that Parquet says of it are the same, whoever writes them.
fn check(runs: &[Samples]) {
    let ours = encoded(runs);
    let (tail, ours) = (ours.tail as usize, Bytes::from(ours.bytes));
    let theirs = written_by_parquet(&ours);
    let (here, there) = (metadata(&ours), metadata(&theirs));
    assert_eq!(here.column_index(), there.column_index());
    assert_eq!(here.offset_index(), there.offset_index());
    for (group, theirs) in here.row_groups().iter().zip(there.row_groups()) {
        assert_eq!((group.num_rows(), group.total_byte_size()), (theirs.num_rows(), theirs.total_byte_size()));
        for (column, theirs) in group.columns().iter().zip(theirs.columns()) {
            let without_places = |column: &parquet::file::metadata::ColumnChunkMetaData| {
                let builder = column.clone().into_builder();
                let builder = builder.set_column_index_offset(None).set_offset_index_offset(None);
                builder.set_column_index_length(None).set_offset_index_length(None).build().unwrap()
            };
            assert_eq!(without_places(column), without_places(theirs));
        }
    }
    assert_eq!(here.num_row_groups(), there.num_row_groups());
    assert!(ours[..tail] == theirs[..tail], "pages are the same byte for byte");
}

fn at(times: impl Iterator<Item = i64>, value: impl Fn(i64) -> Value) -> Samples {
    times.map(|time| (Timestamp::from_micros(time), value(time))).collect()
}

#[test]
fn pages_are_those_that_parquet_writes() {
    let noise = |at: i64| (at as f64).sin();
    check(&[at(0..1, Value::Int)]);
    check(&[at(0..2, |_| Value::Float(f64::NAN))]);
    check(&[at(0..9, |_| Value::Float(-0.0)), at(0..3, |at| Value::Float(at as f64))]);
    // Several pages: decimals, then integers, then floats, then values of all kinds by turns.
    check(&[
        at(0..40_000, |at| Value::Float((at * 13 % 1_000) as f64 / 100.0)),
        at(0..257, Value::Int),
        at(0..20_000, |at| Value::Int(at * at * 4_096)),
        at(0..30_000, |at| Value::Float(noise(at))),
        at(0..5_000, |at| match at % 7 {
            0 | 1 => Value::Int(at),
            2 => Value::Float(noise(at)),
            _ => Value::Float(at as f64 / 10.0),
        }),
    ]);
    // More than one row group, and integers of all widths.
    let wide = |at: i64| Value::Int(at.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64.cast_signed()) >> (at / 1_024 % 64));
    check(&[at(0..ROW_GROUP_ROWS as i64 + 5, wide)]);
}

#[test]
fn times_in_one_page_are_those_that_parquet_writes() {
    let late = |series: i64| (0..200).map(move |tick| tick * 1_000_000 + tick * tick * 7_919 % 1_000 + series % 2);
    let runs: Vec<Samples> = (0..60).map(|series| at(late(series), Value::Int)).collect();
    check(&runs);
}

#[test]
fn regular_times_before_irregular_ones_are_written_with_them() {
    let mut runs: Vec<Samples> = (0..3).map(|_| at((0..10_000).map(|tick| tick * 1_000), Value::Int)).collect();
    let late: Vec<i64> = (0..10_000).map(|tick| tick * 1_000_000 + tick * tick * 7_919 % 100_000).collect();
    runs.extend((0..20).map(|_| at(late.iter().copied(), |_| Value::Int(7))));
    let bytes = Bytes::from(encoded(&runs).bytes);
    let read = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap().build().unwrap();
    let times = read.flat_map(|batch| {
        let batch = batch.unwrap();
        let times: &arrow::array::TimestampMicrosecondArray = batch.column(1).as_any().downcast_ref().unwrap();
        times.values().to_vec()
    });
    let expected: Vec<i64> = runs.iter().flatten().map(|(time, _)| time.micros()).collect();
    assert!(times.eq(expected), "each row has its time");
}

#[test]
fn row_groups_with_the_same_times_state_them_once() {
    let late = |node: i64| (0..4_000).map(move |tick| tick * 1_000_000 + node * 7_000 + tick * tick * 7_919 % 5_000);
    let runs: Vec<Samples> = (0..3)
        .flat_map(|metric| (0..40).map(move |node| at(late(node), move |_| Value::Int(metric * 100 + node))))
        .collect();
    let encoded = encoded(&runs);
    let bytes = Bytes::from(encoded.bytes);
    let metadata = metadata(&bytes);
    let groups = metadata.row_groups();
    let places = |column: usize| groups.iter().map(|group| group.column(column).byte_range().0).collect::<Vec<_>>();
    assert_eq!(groups.iter().map(|group| group.num_rows()).collect::<Vec<_>>(), [160_000; 3]);
    assert_eq!(places(1), [places(1)[0]; 3], "all row groups name one chunk of times");
    assert!(places(2).is_sorted_by(|a, b| a < b), "and each its own values");
    for (group, index) in metadata.offset_index().unwrap().iter().enumerate() {
        let first = index[1].page_locations[0].offset;
        assert_eq!(first, places(1)[group] as i64, "pages are where their chunk is");
    }
    let expected = runs.iter().flatten().map(|(time, value)| (time.micros(), *value));
    assert!(rows(&bytes).into_iter().eq(expected), "each row has its time and value");
}

/// The time and the integer of each row, as Parquet reads them.
fn rows(bytes: &Bytes) -> Vec<(i64, Value)> {
    let read = ParquetRecordBatchReaderBuilder::try_new(bytes.clone()).unwrap().build().unwrap();
    let mut rows = Vec::new();
    for batch in read {
        let batch = batch.unwrap();
        let times: &arrow::array::TimestampMicrosecondArray = batch.column(1).as_any().downcast_ref().unwrap();
        let ints: &arrow::array::Int64Array = batch.column(2).as_any().downcast_ref().unwrap();
        rows.extend(times.values().iter().zip(ints.values()).map(|(time, int)| (*time, Value::Int(*int))));
    }
    rows
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<i64>().prop_map(Value::Int),
        (-3_i64..3).prop_map(Value::Int),
        any::<f64>().prop_map(Value::Float),
        (-500_i32..500).prop_map(|cents| Value::Float(f64::from(cents) / 100.0)),
    ]
}

proptest! {
    #[test]
    fn pages_of_any_values_are_those_that_parquet_writes(runs in vec(vec((any_value(), 1_usize..40), 1..40), 1..8)) {
        // A value is repeated, so that there are stretches of all lengths.
        let runs: Vec<Samples> = runs
            .into_iter()
            .map(|run| {
                let values = run.into_iter().flat_map(|(value, times)| std::iter::repeat_n(value, times));
                values.enumerate().map(|(at, value)| (Timestamp::from_micros(at as i64), value)).collect()
            })
            .collect();
        check(&runs);
    }
}
