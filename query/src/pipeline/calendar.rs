//! Intervals that follow a calendar: days that last 23 hours, months, weeks from Sunday.
//!
//! An interval has no fixed places in time, only an anchor from which it counts. The anchor is OpenTSDB's. For weeks it
//! is the Sunday. For other units it is the top of the minute, hour, day, month or year that holds the time, whichever
//! is the first that the interval divides. Units up to the hour are absolute time, longer ones are wall-clock time.

use chrono::{DateTime, Datelike, Days, LocalResult, Months, NaiveDateTime, NaiveTime, TimeDelta, TimeZone};
use chrono_tz::Tz;
use telem_engine::Timestamp;

use crate::question::tsq::CalendarUnit;

/// `count` times `unit` in the calendar of `zone`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calendar {
    pub count: u32,
    pub unit: CalendarUnit,
    pub zone: Tz,
}

impl Calendar {
    /// Length in microseconds, were a month 30 days and a year 365.
    pub fn nominal_micros(&self) -> i64 {
        let unit = absolute_micros(self.unit).unwrap_or(match self.unit {
            CalendarUnit::Week => 7 * DAY,
            CalendarUnit::Month => 30 * DAY,
            CalendarUnit::Year => 365 * DAY,
            _ => DAY,
        });
        unit.saturating_mul(self.count())
    }

    /// Where the interval that holds `time` starts, were `time` all that is known.
    pub fn anchor(&self, time: Timestamp) -> Timestamp {
        let local = self.local(time);
        let base = self.base(local);
        if let Some(step) = self.absolute_step() {
            let start = self.absolute(base).micros();
            let intervals = time.micros().saturating_sub(start).div_euclid(step);
            return Timestamp::from_micros(start.saturating_add(intervals.saturating_mul(step)));
        }
        self.floor(self.absolute(base), time)
    }

    /// The start of the interval that holds `time`, counted from `anchor`.
    pub fn floor(&self, anchor: Timestamp, time: Timestamp) -> Timestamp {
        if let Some(step) = self.absolute_step() {
            let into = time.micros().saturating_sub(anchor.micros()).rem_euclid(step);
            return time.saturating_add_micros(-into);
        }
        self.add(self.midnight(anchor), self.passed(anchor, time))
    }

    /// The start of the interval after the one that holds `time`, counted from `anchor`.
    pub fn next(&self, anchor: Timestamp, time: Timestamp) -> Timestamp {
        match self.absolute_step() {
            Some(step) => self.floor(anchor, time).saturating_add_micros(step),
            None => self.add(self.midnight(anchor), self.passed(anchor, time) + 1),
        }
    }

    /// How many whole intervals of wall-clock time lie between `anchor` and `time`.
    fn passed(&self, anchor: Timestamp, time: Timestamp) -> i64 {
        let (from, to) = (self.midnight(anchor), self.local(time));
        let (units, length) = match self.months() {
            Some(length) => {
                let years = i64::from(to.year()) - i64::from(from.year());
                (years * 12 + i64::from(to.month0()) - i64::from(from.month0()), i64::from(length))
            }
            None => ((to.date() - from.date()).num_days(), self.days()),
        };
        let intervals = units.div_euclid(length);
        // Where midnight does not exist, the day begins after it.
        if self.add(from, intervals) > time { intervals - 1 } else { intervals }
    }

    /// The place from which intervals are counted to find the one that holds `local`.
    fn base(&self, local: NaiveDateTime) -> NaiveDateTime {
        let count = self.count();
        let truncate = |part: i64| local - TimeDelta::microseconds(micros_of_day(local.time()) % part);
        let midnight = truncate(DAY);
        let month = midnight.with_day(1).unwrap_or(midnight);
        let year = month.with_month(1).unwrap_or(month);
        match self.unit {
            CalendarUnit::Millisecond if 1_000 % count == 0 => truncate(SECOND),
            CalendarUnit::Millisecond => truncate(MINUTE),
            CalendarUnit::Second if 60 % count == 0 => truncate(MINUTE),
            CalendarUnit::Second => truncate(HOUR),
            CalendarUnit::Minute if 60 % count == 0 => truncate(HOUR),
            CalendarUnit::Minute => midnight,
            CalendarUnit::Hour if 24 % count == 0 => midnight,
            CalendarUnit::Hour => month,
            CalendarUnit::Day if count == 1 => midnight,
            CalendarUnit::Week => midnight - Days::new(u64::from(local.weekday().num_days_from_sunday())),
            CalendarUnit::Day | CalendarUnit::Month | CalendarUnit::Year => year,
        }
    }

    /// `from` plus a number of intervals, for units of wall-clock time.
    fn add(&self, from: NaiveDateTime, intervals: i64) -> Timestamp {
        let months = |count: i64| Months::new(u32::try_from(count).unwrap_or(u32::MAX));
        let days = |count: i64| Days::new(u64::try_from(count).unwrap_or(u64::MAX));
        let moved = match self.months() {
            Some(length) => {
                let count = i64::from(length).saturating_mul(intervals);
                if count < 0 { from.checked_sub_months(months(-count)) } else { from.checked_add_months(months(count)) }
            }
            None => {
                let count = self.days().saturating_mul(intervals);
                if count < 0 { from.checked_sub_days(days(-count)) } else { from.checked_add_days(days(count)) }
            }
        };
        match moved {
            Some(moved) => self.absolute(moved),
            // Past the ends of the calendar there is nothing more to count.
            None if intervals < 0 => Timestamp::MIN,
            None => Timestamp::MAX,
        }
    }

    /// Where wall-clock time is counted from: all such anchors are midnights, or the end of the gap
    /// that took the midnight away.
    fn midnight(&self, anchor: Timestamp) -> NaiveDateTime {
        self.local(anchor).date().and_time(NaiveTime::MIN)
    }

    fn count(&self) -> i64 {
        i64::from(self.count.max(1))
    }

    fn absolute_step(&self) -> Option<i64> {
        absolute_micros(self.unit).map(|unit| unit.saturating_mul(self.count()))
    }

    fn months(&self) -> Option<u32> {
        match self.unit {
            CalendarUnit::Month => Some(self.count.max(1)),
            CalendarUnit::Year => Some(self.count.max(1).saturating_mul(12)),
            _ => None,
        }
    }

    fn days(&self) -> i64 {
        if self.unit == CalendarUnit::Week { 7 * self.count() } else { self.count() }
    }

    /// Wall-clock time; times beyond the calendar become its ends.
    fn local(&self, time: Timestamp) -> NaiveDateTime {
        let clamped = time.micros().clamp(FIRST_MICROS, LAST_MICROS);
        let utc = DateTime::from_timestamp_micros(clamped).unwrap_or(DateTime::UNIX_EPOCH);
        utc.with_timezone(&self.zone).naive_local()
    }

    /// The later of two moments that share a wall-clock time, and the end of the gap for one that does not exist.
    fn absolute(&self, local: NaiveDateTime) -> Timestamp {
        let found = match self.zone.from_local_datetime(&local) {
            LocalResult::Single(time) | LocalResult::Ambiguous(_, time) => time.timestamp_micros(),
            LocalResult::None => {
                // No gap is longer than a day, and the offset before it moves the time past it.
                let before = self.zone.from_local_datetime(&(local - TimeDelta::days(1)));
                let offset = before
                    .latest()
                    .map_or(0, |time| (time.naive_local() - time.naive_utc()).num_microseconds().unwrap_or(0));
                local.and_utc().timestamp_micros() - offset
            }
        };
        Timestamp::from_micros(found)
    }
}

const SECOND: i64 = 1_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
/// 200,000 years around the epoch: what chrono can express, with room to count on from.
const LAST_MICROS: i64 = 100_000 * 365 * DAY;
const FIRST_MICROS: i64 = -LAST_MICROS;

fn absolute_micros(unit: CalendarUnit) -> Option<i64> {
    match unit {
        CalendarUnit::Millisecond => Some(1_000),
        CalendarUnit::Second => Some(SECOND),
        CalendarUnit::Minute => Some(MINUTE),
        CalendarUnit::Hour => Some(HOUR),
        CalendarUnit::Day | CalendarUnit::Week | CalendarUnit::Month | CalendarUnit::Year => None,
    }
}

fn micros_of_day(time: NaiveTime) -> i64 {
    (time - NaiveTime::MIN).num_microseconds().unwrap_or(0)
}
