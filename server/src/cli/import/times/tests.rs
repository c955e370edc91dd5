//! Dates and numbers as times.

use super::*;

fn micros(cell: Cell<'_>) -> Result<i64, String> {
    TimeCells::new(None).micros(&cell)
}

#[test]
fn dates_are_read_as_people_and_programs_write_them() {
    let midnight = 1_767_225_600_000_000;
    for (text, expected) in [
        ("2026-01-01T00:00:00Z", midnight),
        ("2026-01-01T01:00:00.5+01:00", midnight + 500_000),
        ("2026-01-01 00:00:00.123456789+00:00", midnight + 123_456),
        ("2026-01-01 02:00:00+02", midnight),
        ("2026-01-01 00:00:01", midnight + 1_000_000),
        ("2026-01-01T00:01", midnight + 60_000_000),
        (" 2026-01-01 ", midnight),
        ("1969-12-31T23:59:59.999999Z", -1),
    ] {
        assert_eq!(micros(Cell::Text(text)), Ok(expected), "{text}");
    }
    for text in ["", "now", "2026-13-01", "nan", "1e400", "2026-01-01T00:00:00 sometime"] {
        assert!(micros(Cell::Text(text)).is_err(), "{text}");
    }
}

#[test]
fn numbers_of_other_types_are_times_too() {
    assert_eq!(micros(Cell::Int(1_767_225_600_000)), Ok(1_767_225_600_000_000));
    assert_eq!(micros(Cell::Float(1_767_225_600.25)), Ok(1_767_225_600_250_000));
    assert_eq!(micros(Cell::Time(7)), Ok(7));
    for bad in [Cell::Null, Cell::Other, Cell::TooLarge, Cell::Float(f64::NAN), Cell::Float(f64::INFINITY)] {
        assert!(micros(bad).is_err(), "{bad:?}");
    }
    let mut seconds = TimeCells::new(Some(ImportTimeUnit::S));
    assert!(seconds.micros(&Cell::Int(i64::MAX)).is_err() && seconds.micros(&Cell::Float(1e300)).is_err());
}

#[test]
fn the_first_number_tells_the_unit_of_all_once() {
    let mut times = TimeCells::new(None);
    assert_eq!(
        (times.micros(&Cell::Int(1_767_225_600_000)), times.micros(&Cell::Int(12))),
        (Ok(1_767_225_600_000_000), Ok(12_000))
    );
    assert_eq!((times.guessed(), times.guessed()), (Some(ImportTimeUnit::Ms), None));
}
