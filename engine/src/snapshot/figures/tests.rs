use crate::{Db, Durability, Options, SampleBatch, SeriesKey, TagSet, Timestamp};

use super::*;

#[test]
fn figures_cover_segments_and_memtables_and_leave_nan_out_of_the_range() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options::default()).unwrap();
    let series = |name: &str| db.series(&SeriesKey::new(name, TagSet::default()).unwrap()).unwrap();
    let (ints, floats, nans, empty) = (series("ints"), series("floats"), series("nans"), series("empty"));
    let put = |from: i64, samples: &[(SeriesId, Value)]| {
        let mut batch = SampleBatch::default();
        for (at, (series, value)) in (from..).zip(samples) {
            batch.push(*series, Timestamp::from_seconds(at), *value);
        }
        db.append(&batch, Durability::Buffered).unwrap();
    };
    let (nan, int, float) = (Value::Float(f64::NAN), Value::Int, Value::Float);
    put(0, &[(ints, int(7)), (ints, int(-3)), (floats, float(2.5)), (floats, nan), (nans, nan), (floats, int(9))]);
    db.flush().unwrap();
    put(100, &[(ints, int(8)), (floats, float(-0.5)), (nans, nan)]);
    let found = db.snapshot().figures(&[ints, floats, nans, empty]).unwrap();
    let figures = |samples, range| ValueFigures { samples, range };
    assert_eq!(
        found,
        [figures(3, Some((-3.0, 8.0))), figures(4, Some((-0.5, 9.0))), figures(2, None), figures(0, None)]
    );
}

#[test]
fn the_most_samples_of_a_range_are_known_without_reading_them() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options::default()).unwrap();
    let series = |name: &str| db.series(&SeriesKey::new(name, TagSet::default()).unwrap()).unwrap();
    let (every_second, seldom) = (series("every_second"), series("seldom"));
    let put = |seconds: std::ops::Range<i64>| {
        let mut batch = SampleBatch::default();
        for at in seconds {
            batch.push(every_second, Timestamp::from_seconds(at), Value::Int(at));
            if at % 50 == 0 {
                batch.push(seldom, Timestamp::from_seconds(at), Value::Int(at));
            }
        }
        db.append(&batch, Durability::Buffered).unwrap();
    };
    put(0..100);
    db.flush().unwrap();
    put(90..110);
    let most = |series: &[SeriesId], from: i64, to: i64| {
        let range = TimeRange::new(Timestamp::from_seconds(from), Timestamp::from_seconds(to));
        db.snapshot().samples_max(series.to_vec(), range).unwrap()
    };
    // Those of the memtable count wherever they are.
    assert_eq!(most(&[every_second], 10, 30), 20 + 20);
    assert_eq!(most(&[every_second, seldom], 0, 200), 100 + 20 + 2 + 1);
    assert_eq!(most(&[seldom], 200, 300), 1);
    assert_eq!(most(&[], 0, 100), 0);
}
