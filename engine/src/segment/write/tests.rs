//! Parquet's own reader and writer are what the pages written here are held against.

use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::{ColumnChunkMetaData, PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::page_index::offset_index::PageLocation;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use proptest::collection::vec;
use proptest::prelude::*;

use std::sync::Arc;

use super::*;
use crate::segment::{PAGE_ROWS, ROW_GROUP_ROWS, schema};

type Samples = Vec<(Timestamp, Value)>;

/// As one flush writes it.
fn encoded(runs: &[Samples]) -> EncodedSegment {
    encoded_of((3, 3), runs)
}

fn encoded_of((sequence_min, sequence_max): (u64, u64), runs: &[Samples]) -> EncodedSegment {
    let mut writer = SegmentWriter::new("nid001", TimeRange::ALL, sequence_min, sequence_max).unwrap();
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

/// All rows of a segment as Parquet reads them.
fn all_rows(bytes: &Bytes) -> RecordBatch {
    let builder = ParquetRecordBatchReaderBuilder::try_new(bytes.clone()).unwrap();
    let batches: Vec<RecordBatch> = builder.build().unwrap().map(|batch| batch.unwrap()).collect();
    arrow::compute::concat_batches(&batches[0].schema(), &batches).unwrap()
}

/// One column of `rows`, written by Parquet: pages of this many rows, encoded as we chose.
fn written_by_parquet(rows: &RecordBatch, column: usize, encoding: Encoding, page_rows: usize) -> Bytes {
    let properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1).unwrap()))
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_dictionary_enabled(encoding == Encoding::RLE_DICTIONARY)
        .set_data_page_row_count_limit(page_rows)
        .set_data_page_size_limit(usize::MAX)
        .set_max_row_group_row_count(Some(usize::MAX));
    let properties = match encoding {
        Encoding::RLE_DICTIONARY => properties,
        encoding => properties.set_encoding(encoding),
    };
    let schema = Arc::new(schema().project(&[column]).unwrap());
    let rows = RecordBatch::try_new(schema.clone(), vec![rows.column(column).clone()]).unwrap();
    let mut file = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut file, schema, Some(properties.build())).unwrap();
    for from in (0..rows.num_rows()).step_by(page_rows.min(PAGE_ROWS)) {
        writer.write(&rows.slice(from, (rows.num_rows() - from).min(page_rows).min(PAGE_ROWS))).unwrap();
    }
    writer.close().unwrap();
    file.into()
}

/// Each page, and all that Parquet says of it, is the same, whoever writes it. Of dictionaries it is only what is said.
fn check(runs: &[Samples]) {
    let ours = Bytes::from(encoded(runs).bytes);
    let (rows, here) = (all_rows(&ours), metadata(&ours));
    let expected: Vec<(u32, i64, Value)> = runs
        .iter()
        .enumerate()
        .flat_map(|(series, samples)| samples.iter().map(move |(time, value)| (series as u32, time.micros(), *value)))
        .collect();
    let series: &arrow::array::UInt32Array = rows.column(0).as_any().downcast_ref().unwrap();
    let times: &arrow::array::TimestampMicrosecondArray = rows.column(1).as_any().downcast_ref().unwrap();
    let values = crate::segment::read::ValueColumns::of(std::path::Path::new("a segment"), &rows).unwrap();
    let found = (0..rows.num_rows()).map(|row| (series.value(row), times.value(row), values.value(row).unwrap().0));
    assert!(found.eq(expected), "each row comes back");
    let mut first = 0;
    for (at, group) in here.row_groups().iter().enumerate() {
        let rows = rows.slice(first, group.num_rows() as usize);
        for column in 0..5 {
            check_column(&ours, &here, (at, column), &rows);
        }
        first += group.num_rows() as usize;
    }
}

fn check_column(ours: &Bytes, here: &ParquetMetaData, (group, column): (usize, usize), rows: &RecordBatch) {
    let chunk = here.row_group(group).column(column);
    let encoding = chunk.encodings().find(|encoding| ![Encoding::RLE, Encoding::PLAIN].contains(encoding)).unwrap();
    let whole = metadata(&written_by_parquet(rows, column, encoding, usize::MAX));
    let theirs = whole.row_group(0).column(0);
    let said = |chunk: &ColumnChunkMetaData| {
        let statistics = (chunk.statistics().cloned(), chunk.definition_level_histogram().cloned());
        let encodings = (*chunk.encodings_mask(), chunk.page_encoding_stats_mask().copied());
        (chunk.num_values(), chunk.compression(), encodings, statistics)
    };
    assert_eq!(said(chunk), said(theirs));
    let pages = here.offset_index().unwrap()[group][column].page_locations();
    if encoding == Encoding::RLE_DICTIONARY {
        return assert_eq!(here.column_index().unwrap()[group][column], whole.column_index().unwrap()[0][0]);
    }
    let mut unpacked = 0;
    for (at, page) in pages.iter().enumerate() {
        let first = page.first_row_index as usize;
        let end = pages.get(at + 1).map_or(rows.num_rows(), |next| next.first_row_index as usize);
        if column == 2 {
            // Integers are packed tighter than Parquet's writer does: what comes back tells.
            continue;
        }
        let theirs = written_by_parquet(&rows.slice(first, end - first), column, encoding, usize::MAX);
        let (their_chunk, start) = (metadata(&theirs).row_group(0).column(0).clone(), page.offset as usize);
        let (from, len) = their_chunk.byte_range();
        let theirs = &theirs[from as usize..(from + len) as usize];
        assert!(ours[start..start + page.compressed_page_size as usize] == *theirs, "a page is the same byte for byte");
        unpacked += their_chunk.uncompressed_size();
    }
    assert!(column == 2 || chunk.uncompressed_size() == unpacked);
    // Where Parquet cuts its pages at the same rows, its indexes are the same too.
    let cut = metadata(&written_by_parquet(rows, column, encoding, PAGE_ROWS));
    let firsts = |pages: &[PageLocation]| pages.iter().map(|page| page.first_row_index).collect::<Vec<_>>();
    if firsts(pages) == firsts(cut.offset_index().unwrap()[0][0].page_locations()) {
        assert_eq!(here.column_index().unwrap()[group][column], cut.column_index().unwrap()[0][0]);
    }
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
fn what_a_merge_writes_is_packed_more_densely_and_has_the_same_rows() {
    // Losses that fall slowly, with all their digits.
    let loss = |series: i64| {
        let mut state = series as u64;
        let mut noise = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        let loss = move |n| Value::Float(2.5 * 0.9999_f64.powi(n) * (1.0 + 0.1 * (noise() - 0.5)));
        (0..8_000).map(|n| Timestamp::from_micros(i64::from(n) * 1_000_000)).zip((0..8_000).map(loss)).collect()
    };
    let runs: Vec<Samples> = (0..3).map(loss).collect();
    let [flushed, merged] = [(3, 3), (1, 3)].map(|sequence| Bytes::from(encoded_of(sequence, &runs).bytes));
    assert_eq!(all_rows(&flushed), all_rows(&merged));
    assert!(merged.len() < flushed.len(), "{} bytes of a merge, {} of a flush", merged.len(), flushed.len());
}

#[test]
fn a_merge_packs_counters_that_rest_mostly_in_whole_bytes() {
    // Steps of few sizes, at moments that say nothing of the next one.
    let counter = |series: i64| {
        let mut count = 0;
        at(0..1_900, |_| Value::Int(0)).into_iter().map(|(time, _)| time).enumerate().map(move |(n, time)| {
            let draw = (n as u64 + 7_919 * series as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            count += if draw % 23 < 2 { [13, 40, 57, 180][draw as usize / 64 % 4] } else { 0 };
            (time, Value::Int(count))
        })
    };
    let runs: Vec<Samples> = (0..30).map(|series| counter(series).collect()).collect();
    let [flushed, merged] = [(3, 3), (1, 3)].map(|sequence| Bytes::from(encoded_of(sequence, &runs).bytes));
    assert_eq!(all_rows(&flushed), all_rows(&merged));
    let [flushed, merged] = [flushed, merged].map(|bytes| metadata(&bytes).row_group(0).column(2).clone());
    assert!(merged.uncompressed_size() > flushed.uncompressed_size(), "whole bytes are more than bits");
    let (before, after) = (flushed.compressed_size(), merged.compressed_size());
    assert!(after * 4 < before * 3, "{after} bytes of a merge, {before} of a flush");
}

#[test]
fn many_rows_without_a_value_are_one_page() {
    let runs = [
        at(0..20_000, Value::Int),
        at(0..100_000, |at| Value::Float((at as f64).sin())),
        at(0..10_000, Value::Int),
        at(0..10, |at| Value::Float((at as f64).sin())),
        at(0..10_000, Value::Int),
    ];
    check(&runs);
    let bytes = Bytes::from(encoded(&runs).bytes);
    let pages = |column: usize| {
        let metadata = metadata(&bytes);
        let pages = metadata.offset_index().unwrap()[0][column].page_locations().clone();
        pages.iter().map(|page| page.first_row_index).collect::<Vec<_>>()
    };
    assert_eq!((pages(0), pages(3)), (vec![0], vec![0]), "series and scales are one page each");
    assert_eq!(pages(2), [0, 16_384, 20_000, 120_000, 136_394], "floats are a page, or a few rows within one");
    assert_eq!(pages(4)[..2], [0, 20_000]);
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
    let noise = |time: i64| Value::Int(time.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64.cast_signed()) >> 44);
    let runs: Vec<Samples> = (0..3).flat_map(|_| (0..40).map(move |node| at(late(node), noise))).collect();
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

/// Times of a node whose clock is never on time.
fn late(node: i64) -> impl Iterator<Item = i64> {
    (0..4_000).map(move |tick| tick * 1_000_000 + node * 7_000 + tick * tick * 7_919 % 5_000)
}

#[test]
fn each_row_group_lies_in_the_file_by_its_middle_too() {
    let runs: Vec<Samples> =
        (0..5).flat_map(|metric| (0..40).map(move |node| at(late(node), move |_| Value::Int(metric)))).collect();
    let bytes = Bytes::from(encoded(&runs).bytes);
    let metadata = metadata(&bytes);
    let times: Vec<u64> = metadata.row_groups().iter().map(|group| group.column(1).byte_range().0).collect();
    assert_eq!(times[..4], [times[0]; 4], "all but the last name one chunk of times");
    for group in metadata.row_groups() {
        let middle = group.column(0).byte_range().0 + group.compressed_size() as u64 / 2;
        assert!(middle < bytes.len() as u64, "{middle} of {}", bytes.len());
    }
    for (group, index) in metadata.offset_index().unwrap().iter().enumerate() {
        assert_eq!(index[1].page_locations[0].offset, times[group] as i64, "pages are where their chunk is");
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
