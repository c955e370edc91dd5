//! Times of points, and rows that are in several files.

use proptest::prelude::*;

use super::*;

/// Rows of one series as (source, microseconds, value).
fn placed(rows: &[(u32, i64, i64)]) -> Vec<SpreadPlace> {
    let mut second = SpreadSecond::default();
    let row = |(source, micros, value): &(u32, i64, i64)| SpreadRow::new(0, *source, *micros, Value::Int(*value));
    rows.iter().map(row).map(|row| second.place(&row)).collect()
}

#[test]
fn points_of_a_second_move_to_the_next_free_microsecond_in_order_of_arrival() {
    use SpreadPlace::At;
    let places =
        placed(&[(1, 5_000_000, 1), (1, 5_000_000, 2), (1, 5_000_000, 2), (1, 5_250_000, 3), (1, 5_000_000, 4)]);
    assert_eq!(places, [At(5_000_000), At(5_000_001), At(5_000_002), At(5_250_000), At(5_000_003)]);
    // A time that another point was moved to, and the last of a second.
    let places = placed(&[(1, -1, 1), (1, -1, 2), (1, -1_000_000, 3), (1, -999_999, 4), (1, 0, 5)]);
    assert_eq!(places, [At(-1), At(-1_000_000), At(-999_999), At(-999_998), At(0)]);
    assert_eq!(placed(&[(1, i64::MIN, 1), (1, i64::MIN, 2)]), [At(i64::MIN), At(i64::MIN + 1)]);
}

#[test]
fn a_row_that_another_file_has_is_the_same_point_as_often_as_that_file_has_it() {
    use SpreadPlace::{Again, At};
    let places =
        placed(&[(1, 0, 7), (1, 0, 7), (1, 0, 8), (2, 0, 7), (2, 0, 7), (2, 0, 7), (2, 0, 9), (3, 0, 9), (3, 1, 9)]);
    assert_eq!(places, [At(0), At(1), At(2), Again, Again, At(3), At(4), Again, At(5)]);
}

#[test]
fn the_file_with_most_rows_of_a_second_says_their_order() {
    // The first lost what came first.
    let rows = [(1, 0, 3), (2, 0, 1), (2, 0, 2), (2, 0, 3), (3, 0, 1), (3, 0, 4)];
    let mut rows: Vec<SpreadRow> = (0..)
        .zip(rows)
        .map(|(order, (source, micros, value))| SpreadRow {
            order,
            ..SpreadRow::new(0, source, micros, Value::Int(value))
        })
        .collect();
    fullest_first(&mut rows);
    let values: Vec<(u32, u64)> = rows.iter().map(|row| (row.source, row.bits)).collect();
    assert_eq!(values, [(2, 1), (2, 2), (2, 3), (3, 1), (3, 4), (1, 3)]);
}

#[test]
fn a_second_has_room_for_a_million_points() {
    let mut second = SpreadSecond::default();
    for value in 0..SECOND {
        let at = SpreadPlace::At(7 * SECOND + value);
        assert_eq!(second.place(&SpreadRow::new(0, 1, 7 * SECOND, Value::Int(value))), at);
    }
    assert_eq!(second.place(&SpreadRow::new(0, 1, 7 * SECOND, Value::Int(-1))), SpreadPlace::Full);
    assert_eq!(second.place(&SpreadRow::new(0, 2, 7 * SECOND, Value::Int(5))), SpreadPlace::Again);
    assert_eq!(second.place(&SpreadRow::new(0, 1, 8 * SECOND, Value::Int(-1))), SpreadPlace::At(8 * SECOND));
}

proptest! {
    #[test]
    fn rows_are_sorted_on_disk_as_in_memory(
        rows in proptest::collection::vec((0_u32..4, 1_u32..3, -3_000_000_i64..3_000_000, any::<f64>()), 0..200),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let sorted = |rows_max: usize| {
            let mut sorter = SpreadSorter::of(dir.path(), rows_max);
            for (series, source, micros, value) in &rows {
                sorter.push(SpreadRow::new(*series, *source, *micros, Value::Float(*value))).unwrap();
            }
            let mut all = Vec::new();
            sorter.sorted(|row| {
                all.push(row);
                Ok(())
            })
            .unwrap();
            all
        };
        let in_memory = sorted(usize::MAX);
        prop_assert!(in_memory.is_sorted());
        prop_assert_eq!(in_memory.len(), rows.len());
        prop_assert_eq!(&sorted(7), &in_memory);
        prop_assert_eq!(&sorted(1), &in_memory);
        prop_assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
