use super::*;
use crate::sample::SampleBatch;
use crate::value::Value;

fn windows_of(times: impl IntoIterator<Item = i64>) -> Vec<TimeRange> {
    let memtable = Memtable::default();
    let mut batch = SampleBatch::default();
    for time in times {
        batch.push(SeriesId(0), Timestamp::from_micros(time), Value::Int(0));
    }
    memtable.append(&batch);
    windows(&memtable)
}

#[test]
fn windows_are_as_short_as_their_number_allows() {
    let cases = [(1, HOUR, 1), (48, HOUR, 48), (49, HOUR, 3), (400, DAY, 400), (401, DAY, 2), (401, WIDE, 1)];
    for (samples, step, expected) in cases {
        let found = windows_of((0..samples).map(|at| at * step));
        assert_eq!(found.len(), expected, "{samples} samples {step} us apart");
        assert!(found.windows(2).all(|pair| pair[0].end <= pair[1].start), "sorted and apart");
    }
}

#[test]
fn the_windows_at_the_ends_of_all_time_hold_their_samples() {
    for time in [i64::MIN, i64::MIN + 1, i64::MAX - 1, -1, 0] {
        let found = windows_of([time]);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains(Timestamp::from_micros(time)), "{time} in {:?}", found[0]);
    }
}
