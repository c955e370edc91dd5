//! What is asked, and how an export goes on behind what came before.

use arrow::array::{Float64Array, Int64Array, StringViewArray, TimestampMicrosecondArray};
use expect_test::expect;

use super::*;

fn metric(keys: &[&str]) -> Metric {
    Metric { name: "m".to_owned(), keys: keys.iter().map(|key| (*key).to_owned()).collect(), series: 1 }
}

/// Rows of a metric with the tags `a` and `b`.
fn rows(rows: &[(Option<&str>, Option<&str>, i64)]) -> RecordBatch {
    let count = rows.len();
    let tag = |tags: Vec<Option<&str>>| Arc::new(StringViewArray::from(tags)) as ArrayRef;
    let ts = TimestampMicrosecondArray::from_iter_values(rows.iter().map(|row| row.2)).with_timezone("UTC");
    let columns: Vec<ArrayRef> = vec![
        Arc::new(ts),
        Arc::new(Float64Array::from(vec![0.0; count])),
        Arc::new(Int64Array::from(vec![None; count])),
        tag(vec![Some("n1"); count]),
        tag(rows.iter().map(|row| row.0).collect()),
        tag(rows.iter().map(|row| row.1).collect()),
    ];
    RecordBatch::try_new(answer_schema(&metric(&["a", "b"])), columns).unwrap()
}

fn range(start: i64, end: i64) -> TimeRange {
    TimeRange::new(Timestamp::from_micros(start), Timestamp::from_micros(end))
}

#[test]
fn the_question_is_sql_that_a_leaf_answers_alone() {
    let metric = Metric { name: "sys.\"cpu\"".to_owned(), ..metric(&["host"]) };
    expect![[r#"SELECT "ts", "value", "value_int", "node", "host" FROM metric."sys.""cpu""""#]]
        .assert_eq(&question(&metric, TimeRange::ALL));
    expect![[
        r#"SELECT "ts", "value", "value_int", "node", "host" FROM metric."sys.""cpu""" WHERE ts >= arrow_cast(-5, 'Timestamp(Microsecond, Some("UTC"))') AND ts < arrow_cast(7, 'Timestamp(Microsecond, Some("UTC"))')"#
    ]]
    .assert_eq(&question(&metric, range(-5, 7)));
    let end = TimeRange::new(TimeRange::ALL.start, Timestamp::from_micros(7));
    assert!(question(&metric, end).ends_with(r#"WHERE ts < arrow_cast(7, 'Timestamp(Microsecond, Some("UTC"))')"#));
}

/// The canonical order: a series with fewer tags comes before those that have more, whatever a missing tag would
/// sort as in a column.
const ORDERED: [(Option<&str>, Option<&str>, i64); 7] = [
    (None, None, 9),
    (Some("1"), None, 3),
    (Some("1"), None, 5),
    (Some("1"), Some("x"), 1),
    (Some("2"), Some("x"), 1),
    (None, Some("x"), 1),
    (None, Some("y"), 0),
];

#[test]
fn what_came_before_is_left_out_wherever_it_was_cut() {
    let all = rows(&ORDERED);
    for (at, row) in ORDERED.iter().enumerate() {
        let rest = rows_after(&all, &Position::of(&all, at));
        assert_eq!(rest, all.slice(at + 1, ORDERED.len() - at - 1), "behind {row:?}");
    }
    let between = Position { tags: vec![Some("1".to_owned()), None], ts: 4 };
    assert_eq!(rows_after(&all, &between).num_rows(), 5, "a row that came is gone, or one came late");
}

#[test]
fn series_are_counted_where_they_begin() {
    let all = rows(&ORDERED);
    assert_eq!(series_begun(&all, None).unwrap(), 6);
    let first = all.slice(0, 2);
    assert_eq!(series_begun(&first, None).unwrap(), 2);
    assert_eq!(series_begun(&all.slice(2, 5), Some(&Position::of(&first, 1))).unwrap(), 4);
}

#[test]
fn a_stretch_is_halved_where_there_are_samples() {
    let bounds = (Timestamp::from_micros(100), Timestamp::from_micros(199));
    let end = TimeRange::ALL.end;
    let middle = Timestamp::from_micros(150);
    let both = halves(TimeRange::ALL, bounds);
    assert_eq!(both, Some((TimeRange::new(TimeRange::ALL.start, middle), TimeRange::new(middle, end))));
    assert_eq!(halves(range(100, 110), bounds), Some((range(100, 105), range(105, 110))));
    assert_eq!(halves(range(198, 200), bounds), Some((range(198, 199), range(199, 200))));
    assert_eq!(halves(range(199, 200), bounds), None, "a microsecond cannot be halved");
    assert_eq!(halves(range(300, 400), bounds), None, "nothing is there");
    let everything = (Timestamp::MIN, Timestamp::from_micros(i64::MAX - 1));
    assert_eq!(halves(TimeRange::ALL, everything), None, "more microseconds than can be counted");
}

#[test]
fn an_answer_of_another_shape_is_an_error() {
    let batch = rows(&ORDERED);
    assert!(typed(&batch, &metric(&["a"])).is_err());
    assert!(typed(&batch, &metric(&["a", "b"])).is_ok());
    let text = RecordBatch::try_from_iter([("ts", Arc::clone(batch.column(4)))]).unwrap();
    assert!(typed(&text, &metric(&[])).is_err());
}
