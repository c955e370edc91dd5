//! Intervals of a calendar, computed step by step as in the original: from the top of some larger unit, one interval
//! after another, until the time is passed.

use chrono::{DateTime, Datelike, Days, Months, NaiveDateTime, TimeZone, Timelike};
use chrono_tz::Tz;

/// `count` times `unit` in the calendar of `zone`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calendar {
    pub count: u32,
    pub unit: Unit,
    pub zone: Tz,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Year,
}

impl Calendar {
    /// The start of the interval that holds `time`, were nothing else known.
    pub fn previous(&self, time: i64) -> i64 {
        let mut start = self.absolute(self.top(self.local(time)));
        loop {
            let next = self.next(start);
            if next > time {
                return start;
            }
            start = next;
        }
    }

    /// One interval on.
    pub fn next(&self, start: i64) -> i64 {
        let days = |days: u64| self.local(start).checked_add_days(Days::new(days)).unwrap();
        let months = |months: u32| self.local(start).checked_add_months(Months::new(months)).unwrap();
        let count = i64::from(self.count);
        match self.unit {
            Unit::Millisecond => start + count,
            Unit::Second => start + count * 1_000,
            Unit::Minute => start + count * 60_000,
            Unit::Hour => start + count * 3_600_000,
            Unit::Day => self.absolute(days(self.count.into())),
            Unit::Week => self.absolute(days(7 * u64::from(self.count))),
            Unit::Month => self.absolute(months(self.count)),
            Unit::Year => self.absolute(months(12 * self.count)),
        }
    }

    /// Length in milliseconds, were all days 24 hours, all months 30 days and all years 365.
    pub fn nominal_millis(&self) -> i64 {
        let day = 86_400_000;
        i64::from(self.count)
            * match self.unit {
                Unit::Millisecond => 1,
                Unit::Second => 1_000,
                Unit::Minute => 60_000,
                Unit::Hour => 3_600_000,
                Unit::Day => day,
                Unit::Week => 7 * day,
                Unit::Month => 30 * day,
                Unit::Year => 365 * day,
            }
    }

    /// The top of the unit that this interval divides, or of a still larger one.
    fn top(&self, time: NaiveDateTime) -> NaiveDateTime {
        let second = time.with_nanosecond(0).unwrap();
        let minute = second.with_second(0).unwrap();
        let hour = minute.with_minute(0).unwrap();
        let day = hour.with_hour(0).unwrap();
        let month = day.with_day(1).unwrap();
        let year = month.with_month(1).unwrap();
        let divides = |whole: u32| whole.is_multiple_of(self.count);
        let either = |whole: u32, top, larger| if divides(whole) { top } else { larger };
        match self.unit {
            Unit::Millisecond => either(1_000, second, minute),
            Unit::Second => either(60, minute, hour),
            Unit::Minute => either(60, hour, day),
            Unit::Hour => either(24, day, month),
            Unit::Day if self.count == 1 => month,
            Unit::Week => day - Days::new(day.weekday().num_days_from_sunday().into()),
            Unit::Day | Unit::Month | Unit::Year => year,
        }
    }

    fn local(&self, time: i64) -> NaiveDateTime {
        DateTime::from_timestamp_millis(time).unwrap().with_timezone(&self.zone).naive_local()
    }

    /// Of two moments with one wall-clock time the later; a time that the clocks skipped is not asked for.
    fn absolute(&self, local: NaiveDateTime) -> i64 {
        self.zone.from_local_datetime(&local).latest().expect("a midnight that exists").timestamp_millis()
    }
}
