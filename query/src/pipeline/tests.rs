use chrono::DateTime;
use chrono_tz::Tz;
use telem_engine::{Timestamp, Value, Values};

use super::calendar::Calendar;
use super::contribution::{Between, Contribution};
use super::rate::{FirstPoint, rate};
use super::trim::trim;
use super::window::window;
use super::{Line, downsample};
use crate::question::aggregator::Interpolation;
use crate::question::tsq::{CalendarUnit, Rate};

fn line(points: &[(i64, Value)]) -> Line {
    let times = points.iter().map(|(time, _)| Timestamp::from_seconds(*time)).collect();
    Line { times, values: points.iter().map(|(_, value)| *value).collect::<Values>() }
}

fn floats(points: &[(i64, f64)]) -> Line {
    line(&points.iter().map(|(time, value)| (*time, Value::Float(*value))).collect::<Vec<_>>())
}

fn seconds(line: &Line) -> Vec<i64> {
    line.times.iter().map(|time| time.seconds()).collect()
}

#[test]
fn the_window_is_whole_hours_around_whole_intervals() {
    let minute = Some(60_000_000);
    for (start, end, interval, expected) in [
        // Without downsampling the hour after the end is always opened.
        ((0, 0), None, (0, 3_600)),
        ((3_599, 3_599), None, (0, 7_200)),
        ((7_210, 7_260), None, (7_200, 10_800)),
        ((7_200, 10_799), None, (7_200, 14_400)),
        // With it, an end that is a whole hour already stays: 10,740 s is followed by the bucket of 10,800 s.
        ((7_200, 10_740), minute, (7_200, 10_800)),
        ((7_200, 10_799), minute, (7_200, 14_400)),
        // The start is moved back to its interval first: 100 minutes.
        ((7_200, 7_200), Some(6_000_000_000), (3_600, 14_400)),
        ((-10, -5), None, (-3_600, 0)),
    ]
    .map(|((start, end), interval, expected)| (start, end, interval, expected))
    {
        let window = window(Timestamp::from_seconds(start), Timestamp::from_seconds(end), interval);
        assert_eq!((window.start.seconds(), window.end.seconds()), expected, "{start} {end} {interval:?}");
    }
}

#[track_caller]
fn check_calendar(count: u32, unit: CalendarUnit, zone: &str, time: &str, anchor: &str, next: &str) {
    let zone: Tz = zone.parse().unwrap();
    let calendar = Calendar { count, unit, zone };
    let read = |text: &str| Timestamp::from_micros(DateTime::parse_from_rfc3339(text).unwrap().timestamp_micros());
    let found = calendar.anchor(read(time));
    assert_eq!(found, read(anchor), "anchor of {time}");
    assert_eq!(calendar.next(found, found), read(next), "interval after {anchor}");
    assert_eq!(calendar.anchor(found), found, "an anchor is its own anchor");
    assert_eq!(calendar.floor(found, read(time)), found);
}

#[test]
fn calendar_intervals_are_counted_from_the_top_of_a_larger_unit() {
    use CalendarUnit::{Day, Hour, Millisecond, Minute, Month, Second, Week, Year};
    let t = "2013-05-16T13:47:21.437Z";
    check_calendar(100, Millisecond, "UTC", t, "2013-05-16T13:47:21.400Z", "2013-05-16T13:47:21.500Z");
    check_calendar(15, Second, "UTC", t, "2013-05-16T13:47:15Z", "2013-05-16T13:47:30Z");
    check_calendar(7, Minute, "UTC", t, "2013-05-16T13:46:00Z", "2013-05-16T13:53:00Z");
    check_calendar(6, Hour, "UTC", t, "2013-05-16T12:00:00Z", "2013-05-16T18:00:00Z");
    // 7 hours do not divide a day: from the first of the month.
    check_calendar(7, Hour, "UTC", t, "2013-05-16T11:00:00Z", "2013-05-16T18:00:00Z");
    check_calendar(1, Day, "UTC", t, "2013-05-16T00:00:00Z", "2013-05-17T00:00:00Z");
    check_calendar(5, Day, "UTC", t, "2013-05-16T00:00:00Z", "2013-05-21T00:00:00Z");
    check_calendar(1, Week, "UTC", t, "2013-05-12T00:00:00Z", "2013-05-19T00:00:00Z");
    check_calendar(5, Week, "UTC", t, "2013-05-12T00:00:00Z", "2013-06-16T00:00:00Z");
    check_calendar(1, Month, "UTC", t, "2013-05-01T00:00:00Z", "2013-06-01T00:00:00Z");
    check_calendar(5, Month, "UTC", t, "2013-01-01T00:00:00Z", "2013-06-01T00:00:00Z");
    check_calendar(2, Year, "UTC", t, "2013-01-01T00:00:00Z", "2015-01-01T00:00:00Z");
}

#[test]
fn days_follow_the_wall_clock_and_hours_do_not() {
    use CalendarUnit::{Day, Hour, Month};
    let zone = "America/New_York";
    check_calendar(1, Day, zone, "2013-03-10T12:00:00Z", "2013-03-10T05:00:00Z", "2013-03-11T04:00:00Z");
    check_calendar(1, Day, zone, "2013-11-03T12:00:00Z", "2013-11-03T04:00:00Z", "2013-11-04T05:00:00Z");
    check_calendar(1, Month, zone, "2013-03-20T00:00:00Z", "2013-03-01T05:00:00Z", "2013-04-01T04:00:00Z");
    // From midnight EST; the clock then shows 07:00 at its end.
    check_calendar(6, Hour, zone, "2013-03-10T06:00:00Z", "2013-03-10T05:00:00Z", "2013-03-10T11:00:00Z");
    check_calendar(6, Hour, zone, "2013-03-11T05:00:00Z", "2013-03-11T04:00:00Z", "2013-03-11T10:00:00Z");
    check_calendar(1, Hour, "Asia/Kolkata", "2013-05-16T13:47:00Z", "2013-05-16T13:30:00Z", "2013-05-16T14:30:00Z");
    // No midnight on 2013-10-20 in São Paulo: the day begins at 01:00.
    check_calendar(1, Day, "America/Sao_Paulo", "2013-10-20T12:00:00Z", "2013-10-20T03:00:00Z", "2013-10-21T02:00:00Z");
}

#[test]
fn a_calendar_does_not_panic_at_the_ends_of_time() {
    for unit in
        [CalendarUnit::Millisecond, CalendarUnit::Hour, CalendarUnit::Day, CalendarUnit::Week, CalendarUnit::Year]
    {
        for count in [1, 7, u32::MAX] {
            let calendar = Calendar { count, unit, zone: Tz::UTC };
            for time in [Timestamp::MIN, Timestamp::from_micros(0), Timestamp::MAX] {
                let anchor = calendar.anchor(time);
                calendar.next(anchor, calendar.floor(anchor, time));
                calendar.nominal_micros();
            }
        }
    }
}

#[test]
fn rates_of_counters() {
    let ints = |values: &[i64]| {
        line(&values.iter().enumerate().map(|(at, value)| (10 * at as i64, Value::Int(*value))).collect::<Vec<_>>())
    };
    let counter = Rate { counter: true, ..Rate::default() };
    for (values, options, expected) in [
        (&[0, 10, 5][..], Rate::default(), &[1.0, -0.5][..]),
        (&[0, 10, 5], counter, &[1.0, (i64::MAX - 5) as f64 / 10.0]),
        (&[0, 10, 5], Rate { counter_max: Some(20), ..counter }, &[1.0, 1.5]),
        (&[0, 10, 5], Rate { counter_max: Some(20), reset_value: 1, ..counter }, &[1.0, 0.0]),
        (&[0, 10, 5], Rate { counter_max: Some(20), reset_value: 2, ..counter }, &[1.0, 1.5]),
        (&[0, 10, 5, 6], Rate { drop_resets: true, ..counter }, &[1.0, 0.1]),
        // The reset value is looked at after a wrap only.
        (&[0, 100], Rate { reset_value: 1, ..counter }, &[10.0]),
        // Differences wrap, so from the largest to the smallest is one step.
        (&[i64::MAX, i64::MIN], counter, &[0.1]),
        (&[7], Rate::default(), &[]),
    ] {
        let rates = rate(&ints(values), &options, FirstPoint::Nothing);
        assert_eq!(rates.values, Values::Float(expected.to_vec()), "{values:?} {options:?}");
    }
}

#[test]
fn the_first_rate_of_opentsdb_is_against_1970() {
    let rates = rate(&floats(&[(100, 50.0), (110, 60.0)]), &Rate::default(), FirstPoint::Epoch);
    assert_eq!(rates, floats(&[(100, 0.5), (110, 1.0)]));
}

#[test]
fn rates_of_whole_milliseconds_are_divided_as_milliseconds() {
    let times = [0, 3_000].map(Timestamp::from_micros).to_vec();
    let samples = Line { times, values: Values::Float(vec![0.0, 0.1]) };
    assert_eq!(
        rate(&samples, &Rate::default(), FirstPoint::Nothing).values,
        Values::Float(vec![0.1 / (3.0 / 1_000.0)])
    );
    let times = [0, 1].map(Timestamp::from_micros).to_vec();
    let samples = Line { times, values: Values::Int(vec![0, 1]) };
    assert_eq!(rate(&samples, &Rate::default(), FirstPoint::Nothing).values, Values::Float(vec![1e6]));
}

#[test]
fn a_trimmed_series_keeps_a_neighbour_on_either_side() {
    let whole = || floats(&[(0, 0.0), (10, 1.0), (20, 2.0), (30, 3.0), (40, 4.0)]);
    for (start, end, least, expected) in [
        (15, 25, 1, &[10, 20, 30][..]),
        (10, 30, 1, &[0, 10, 20, 30, 40]),
        (12, 14, 1, &[10, 20]),
        (-9, -5, 1, &[0]),
        (-9, -5, 2, &[0, 10]),
        (50, 60, 1, &[40]),
        (50, 60, 2, &[30, 40]),
        (-9, 99, 1, &[0, 10, 20, 30, 40]),
    ] {
        let trimmed = trim(whole(), Timestamp::from_seconds(start), Timestamp::from_seconds(end), least);
        assert_eq!(seconds(&trimmed), expected, "{start} {end} {least}");
        assert_eq!(trimmed.values.len(), expected.len());
        assert_eq!(trimmed.values.get(0).as_f64() as i64 * 10, expected[0]);
    }
    assert!(trim(Line::default(), Timestamp::MIN, Timestamp::MAX, 2).is_empty());
}

#[test]
fn how_many_buckets_a_range_has() {
    let step = telem_engine::Step::from_micros(10_000_000).unwrap();
    let steps = |from, to| downsample::steps(step, Timestamp::from_seconds(from), Timestamp::from_seconds(to));
    assert_eq!(steps(0, 0), 1);
    assert_eq!(steps(1, 9), 0);
    assert_eq!(steps(1, 10), 1);
    assert_eq!(steps(0, 100), 11);
    assert_eq!(steps(-20, -1), 2);
}

#[test]
fn a_contribution_between_two_points() {
    let at = |between, time: i64| {
        let contribution = Contribution::new(floats(&[(10, 1.0), (20, 3.0)]), between);
        let time = Timestamp::from_seconds(time);
        contribution.float(contribution.pass(0, time), time)
    };
    for (interpolation, expected) in [
        (Interpolation::Linear, 2.0),
        (Interpolation::Zero, 0.0),
        (Interpolation::Previous, 1.0),
        (Interpolation::Max, f64::MAX),
        (Interpolation::Min, -f64::MAX),
    ] {
        assert_eq!(at(Between::Interpolate(interpolation), 15), expected);
        assert_eq!(at(Between::Interpolate(interpolation), 10), 1.0);
        assert_eq!(at(Between::Interpolate(interpolation), 20), 3.0);
    }
    assert_eq!(at(Between::Hold, 15), 1.0);
    assert_eq!(at(Between::HoldFromStart, 5), 1.0);
}

#[test]
fn who_is_alive_and_what_is_real() {
    let points = || floats(&[(10, 1.0), (20, 3.0)]);
    let alive = |contribution: &Contribution| contribution.alive().map(|(from, to)| (from.seconds(), to.seconds()));
    let plain = Contribution::new(points(), Between::Interpolate(Interpolation::Linear));
    assert_eq!(alive(&plain), Some((10, 20)));
    assert_eq!(plain.next_real(0), Some(Timestamp::from_seconds(10)));
    let rated = Contribution::new(points(), Between::HoldFromStart);
    assert_eq!(alive(&rated), Some((Timestamp::MIN.seconds(), 20)));
    assert_eq!(rated.next_real(0), Some(Timestamp::from_seconds(20)));
    assert!(!rated.is_real(1, Timestamp::from_seconds(10)));
    // A single rate was measured against 1970, and brings nothing.
    assert!(Contribution::new(floats(&[(10, 1.0)]), Between::HoldFromStart).is_empty());
    assert!(!Contribution::new(floats(&[(10, 1.0)]), Between::Hold).is_empty());
}
