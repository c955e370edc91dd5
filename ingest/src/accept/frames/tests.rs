//! Blocks are judged as single samples are.

use std::time::Duration;

use super::*;
use crate::decode::frames::{ClientFrame, kind};

const NOW: Timestamp = Timestamp::from_seconds(1_700_000_000);

struct Table(Vec<NumberedSeries>);

impl SeriesTable for Table {
    fn find(&mut self, number: u32) -> Option<NumberedSeries> {
        self.0.get(number as usize).copied()
    }
}

fn column(series: u32, times: &[i64]) -> Vec<u8> {
    let mut block = vec![0, 1, 0, 0];
    [series, times.len() as u32, 0].iter().for_each(|word| block.extend_from_slice(&word.to_le_bytes()));
    times.iter().for_each(|time| block.extend_from_slice(&time.to_le_bytes()));
    (0..times.len() as i64).for_each(|value| block.extend_from_slice(&value.to_le_bytes()));
    block
}

fn row(time: i64, series: &[u32]) -> Vec<u8> {
    let mut block = vec![1, 1, 0, 0];
    block.extend_from_slice(&(series.len() as u32).to_le_bytes());
    block.extend_from_slice(&time.to_le_bytes());
    series.iter().for_each(|number| block.extend_from_slice(&number.to_le_bytes()));
    block.resize(block.len() + 4 * (series.len() % 2), 0);
    (0..series.len() as i64).for_each(|value| block.extend_from_slice(&value.to_le_bytes()));
    block
}

fn accepted(blocks: &[Vec<u8>]) -> Result<AcceptedFrame, BadFrame> {
    let body = [&7_u64.to_le_bytes()[..], &blocks.concat()].concat();
    let ClientFrame::Samples(blocks) = ClientFrame::parse(kind::SAMPLES, &body).unwrap() else { panic!("no samples") };
    let stored = |id| NumberedSeries::Stored(SeriesId(id));
    let mut table = Table(vec![stored(10), NumberedSeries::Refused, NumberedSeries::AboveLevel, stored(13)]);
    let limits = Limits { age_max: Some(Duration::from_secs(3_600)), ..Limits::default() };
    accept(NOW, &limits, &AcceptCounters::default(), &mut table, blocks)
}

fn stored(accepted: &AcceptedFrame) -> Vec<(u32, i64)> {
    accepted.batch.iter().map(|(series, time, _)| (series.0, time.micros() - NOW.micros())).collect()
}

#[test]
fn columns_and_rows_become_samples_of_the_series_behind_their_numbers() {
    let now = NOW.micros();
    let found = accepted(&[column(0, &[now, now + 1]), row(now + 2, &[3, 0]), column(3, &[])]).unwrap();
    assert_eq!(stored(&found), [(10, 0), (10, 1), (13, 2), (10, 2)]);
    assert_eq!((found.refused, found.rejects.len()), (0, 0));
}

#[test]
fn samples_of_refused_series_are_counted_and_those_above_the_level_are_not() {
    let now = NOW.micros();
    let found = accepted(&[column(1, &[now, now]), column(2, &[now]), row(now, &[1, 2, 3])]).unwrap();
    assert_eq!((stored(&found), found.refused, found.rejects.len()), (vec![(13, 0)], 3, 0));
}

#[test]
fn of_a_column_with_bad_times_the_good_ones_are_stored() {
    let hour = 3_600_000_000;
    let at = |offset: i64| NOW.micros() + offset;
    let times = [at(0), at(hour), at(hour + 1), at(-hour), at(-hour - 1), i64::MAX, i64::MIN, at(5)];
    let found = accepted(&[column(0, &times), row(at(hour + 1), &[0, 3]), row(i64::MAX, &[0])]).unwrap();
    assert_eq!(stored(&found), [(10, 0), (10, hour), (10, -hour), (10, 5)]);
    assert_eq!(found.refused, 7);
    let told: Vec<(u32, u64)> = found.rejects.iter().map(|reject| (reject.series, reject.samples)).collect();
    assert_eq!(told, [(0, 5), (3, 1), (0, 1)]);
    assert!(found.rejects[0].reason.to_string().contains("ahead of this machine's clock"), "{:?}", found.rejects[0]);
}

#[test]
fn a_number_that_was_not_named_takes_the_frame_with_it() {
    let error = accepted(&[column(0, &[NOW.micros()]), row(NOW.micros(), &[0, 4])]).unwrap_err();
    assert_eq!(error, BadFrame::Unnamed { number: 4 });
}

#[test]
fn refusals_of_a_frame_are_bounded_and_every_sample_is_counted() {
    let series: Vec<u32> = (0..3_000).map(|at| if at % 2 == 0 { 0 } else { 3 }).collect();
    let found = accepted(&[row(i64::MAX, &series)]).unwrap();
    assert_eq!((found.refused, found.rejects.len()), (3_000, FRAME_REJECTS_MAX));
    assert_eq!(found.rejects.iter().map(|reject| reject.samples).sum::<u64>(), 3_000);
}
