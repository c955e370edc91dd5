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
