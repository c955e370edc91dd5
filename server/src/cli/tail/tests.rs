//! Every sample is printed once.

use proptest::prelude::*;

use super::*;

fn sample(metric: &str, micros: i64, value: f64) -> TailSample {
    TailSample { micros, metric: metric.to_owned(), tags: Vec::new(), value, whole: None }
}

#[test]
fn a_sample_that_is_late_or_read_again_is_printed_once() {
    let mut cursor = TailCursor::new(i64::MIN, 10, 100);
    let times = |samples: Vec<TailSample>| samples.iter().map(|one| one.micros).collect::<Vec<_>>();
    assert_eq!(times(cursor.unseen(vec![sample("a", 20, 1.0), sample("a", 15, 1.0)], 100)), [15, 20]);
    assert_eq!(cursor.floor_us(), 10);
    let again = vec![sample("a", 15, 1.0), sample("a", 20, 1.0), sample("b", 20, 1.0), sample("a", 12, 1.0)];
    assert_eq!(times(cursor.unseen(again, 100)), [12, 20]);
    assert_eq!(times(cursor.unseen(vec![sample("a", 12, 1.0), sample("a", 9, 1.0)], 100)), [0_i64; 0]);
}

#[test]
fn a_line_has_time_metric_tags_and_all_digits() {
    let tags = vec![("host".to_owned(), "n1".to_owned()), ("rank".to_owned(), "0".to_owned())];
    let one = TailSample { tags, ..sample("loss", 1_767_225_600_250_000, 0.1 + 0.2) };
    assert_eq!(as_text(&one), "2026-01-01T00:00:00.250Z loss{host=n1,rank=0} 0.30000000000000004");
    let large = TailSample { whole: Some(i64::MAX), ..sample("n", 1_767_225_600_000_001, 9.2e18) };
    assert_eq!(as_text(&large), "2026-01-01T00:00:00.000001Z n 9223372036854775807");
    assert_eq!(as_text(&sample("x", 0, 5e-324)), "1970-01-01T00:00:00.000Z x 5e-324");
    assert_eq!(as_text(&sample("x", 0, f64::NAN)), "1970-01-01T00:00:00.000Z x NaN");
    let json: Json = serde_json::from_str(&as_json(&one)).unwrap();
    assert_eq!(json["tags"], json!({"host": "n1", "rank": "0"}));
    assert_eq!((&json["metric"], json["value"].as_f64()), (&json!("loss"), Some(0.1 + 0.2)));
}

proptest! {
    /// Batches of a sender that repeats itself and is late by less than the limit.
    #[test]
    fn each_sample_is_printed_once_whatever_comes_late_or_again(
        writes in prop::collection::vec((0_i64..20, 0_i64..30, 0_usize..3), 1..200),
        polls in prop::collection::vec(0_usize..10, 1..100),
    ) {
        const LATE: i64 = 30;
        let mut cursor = TailCursor::new(i64::MIN, LATE, SEEN_MAX);
        let mut stored: BTreeSet<(i64, usize)> = BTreeSet::new();
        let mut printed: Vec<(i64, usize)> = Vec::new();
        let (mut now, mut rest) = (1_000, &*writes);
        for count in polls.into_iter().chain([usize::MAX]) {
            let (some, later) = rest.split_at(count.min(rest.len()));
            rest = later;
            for (step, late, series) in some {
                // Nothing is written later than that after the newest.
                now += step;
                stored.insert((now - late, *series));
            }
            let from = cursor.floor_us();
            let read = stored.iter().filter(|(time, _)| *time >= from);
            let read = read.map(|(time, series)| sample(&series.to_string(), *time, 0.0)).collect();
            let new = cursor.unseen(read, now);
            prop_assert!(new.is_sorted_by_key(|one| one.micros));
            printed.extend(new.into_iter().map(|one| (one.micros, one.metric.parse::<usize>().unwrap())));
        }
        printed.sort_unstable();
        prop_assert_eq!(printed, stored.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn so_many_samples_are_remembered_and_none_is_printed_again() {
    let mut cursor = TailCursor::new(i64::MIN, 1_000_000, 10);
    let all: Vec<TailSample> = (0..30).map(|n| sample(&(n % 3).to_string(), n / 3, 0.0)).collect();
    assert_eq!(cursor.unseen(all.clone(), i64::MAX).len(), 30);
    assert_eq!(cursor.floor_us(), 7, "the last three times have nine samples");
    assert_eq!(cursor.unseen(all, i64::MAX), []);
    // Neither are series that came and went.
    let others = (0..30).map(|n| sample(&format!("other{n}"), 100 + n, 0.0)).collect();
    assert_eq!(cursor.unseen(others, i64::MAX).len(), 30);
    assert!(format!("{cursor:?}").matches("other").count() <= 10, "{cursor:?}");
}

#[test]
fn a_sample_from_the_future_does_not_make_those_of_now_old() {
    let mut cursor = TailCursor::new(i64::MIN, 10, 100);
    assert_eq!(cursor.unseen(vec![sample("a", 9_000, 1.0)], 100).len(), 1);
    assert_eq!(cursor.unseen(vec![sample("a", 95, 1.0), sample("a", 9_000, 1.0)], 100).len(), 1);
}
