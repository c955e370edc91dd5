//! Every sample is printed once.

use super::*;

fn sample(metric: &str, micros: i64, value: f64) -> TailSample {
    TailSample { micros, metric: metric.to_owned(), tags: Vec::new(), value, whole: None }
}

#[test]
fn a_sample_that_is_late_or_read_again_is_printed_once() {
    let mut cursor = TailCursor::new(i64::MIN, 10, 100);
    let times = |samples: Vec<TailSample>| samples.iter().map(|one| one.micros).collect::<Vec<_>>();
    assert_eq!(times(cursor.unseen(vec![sample("a", 20, 1.0), sample("a", 15, 1.0)], 100)), [15, 20]);
    assert_eq!(cursor.from_us(), 10);
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
