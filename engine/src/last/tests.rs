use proptest::prelude::*;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_seconds(second)
}

fn update(last: &LastValues, series: u32, second: i64) {
    let mut batch = SampleBatch::default();
    batch.push(SeriesId(series), at(second), Value::Int(second));
    last.update(&batch);
}

fn known(second: i64) -> Result<Newest, Unread> {
    Ok(Some((at(second), Value::Int(second))))
}

#[test]
fn segments_are_asked_again_where_the_newest_sample_may_have_been_dropped() {
    let last = LastValues::new(1);
    let unread = last.get(SeriesId(0)).unwrap_err();
    last.fill(SeriesId(0), unread, Some((at(5), Value::Int(5))));
    update(&last, 1, 6);
    update(&last, 2, 9);
    last.forget_until(at(6));
    let unread = last.get(SeriesId(0)).unwrap_err();
    assert!(last.get(SeriesId(1)).is_err());
    assert_eq!(last.get(SeriesId(2)), known(9));
    assert_eq!(last.get(SeriesId(3)), Ok(None), "it came later");
    assert_eq!(last.fill(SeriesId(0), unread, None), None);
    assert_eq!(last.get(SeriesId(0)), Ok(None));
}

#[test]
fn what_was_found_before_something_was_dropped_is_not_kept() {
    let last = LastValues::new(1);
    let unread = last.get(SeriesId(0)).unwrap_err();
    last.forget_until(at(9));
    let found = Some((at(5), Value::Int(5)));
    assert_eq!(last.fill(SeriesId(0), unread, found), found);
    assert!(last.get(SeriesId(0)).is_err());
}

#[test]
fn a_late_sample_after_that_does_not_hide_what_segments_have() {
    let last = LastValues::new(0);
    update(&last, 0, 5);
    last.forget_until(at(5));
    update(&last, 0, 3);
    let unread = last.get(SeriesId(0)).unwrap_err();
    assert_eq!(last.fill(SeriesId(0), unread, Some((at(4), Value::Int(4)))), Some((at(4), Value::Int(4))));
    assert_eq!(last.get(SeriesId(0)), known(4));
}

proptest! {
    #[test]
    fn a_batch_leaves_what_its_samples_leave_one_by_one(
        steps in prop::collection::vec((0_u32..6, 0_i64..3), 0..80),
        disorder in 0_usize..80,
        before in prop::option::of(0_i64..40),
    ) {
        let (together, one_by_one) = (LastValues::new(0), LastValues::new(0));
        let mut time = 0;
        let mut samples = Vec::new();
        for (series, step) in steps {
            time += step;
            samples.push((SeriesId(series), at(time), Value::Int(samples.len() as i64)));
        }
        // Most batches are in order of time, all in one go.
        let places = samples.len();
        if disorder + 1 < places {
            samples.swap(disorder, disorder + 1);
        }
        if let Some(before) = before {
            update(&together, 2, before);
            update(&one_by_one, 2, before);
        }
        let mut batch = SampleBatch::default();
        for (series, time, value) in samples {
            batch.push(series, time, value);
            let mut alone = SampleBatch::default();
            alone.push(series, time, value);
            one_by_one.update(&alone);
        }
        together.update(&batch);
        for series in (0..6).map(SeriesId) {
            prop_assert_eq!(together.get(series), one_by_one.get(series));
        }
    }
}
