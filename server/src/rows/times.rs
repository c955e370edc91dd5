//! Writes times in microseconds as JSON, digit by digit. arrow-json uses chrono's formatting, which takes half of the
//! time of an answer with times. Both write the same text.

use arrow::array::{Array, TimestampMicrosecondArray};
use arrow::datatypes::FieldRef;
use arrow::error::ArrowError;
use arrow::json::writer::{Encoder, EncoderFactory, EncoderOptions, NullableEncoder};
use chrono::{Datelike, NaiveDate};

const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;
/// From here on, and as long as years have four digits: 0000-01-01 to 9999-12-31, in microseconds since 1970.
const FIRST: i64 = -719_528 * DAY;
const END: i64 = 2_932_897 * DAY;

/// Takes over columns of times in UTC that all have years of four digits.
#[derive(Debug)]
pub struct TimeTexts;

impl EncoderFactory for TimeTexts {
    fn make_default_encoder<'a>(
        &self,
        _: &'a FieldRef,
        array: &'a dyn Array,
        _: &'a EncoderOptions,
    ) -> Result<Option<NullableEncoder<'a>>, ArrowError> {
        let Some(times) = array.as_any().downcast_ref::<TimestampMicrosecondArray>() else { return Ok(None) };
        let is_utc = times.timezone().is_some_and(super::is_utc);
        // The value in the place of a NULL does not matter, and rarely does harm.
        if !is_utc || !times.values().iter().all(|time| (FIRST..END).contains(time)) {
            return Ok(None);
        }
        let writing = Writing { times, day: i64::MIN, date: [0; 10] };
        Ok(Some(NullableEncoder::new(Box::new(writing), times.nulls().cloned())))
    }
}

struct Writing<'a> {
    times: &'a TimestampMicrosecondArray,
    /// The last one, in days since 1970, and how it is written: most times are of the day of the one before.
    day: i64,
    date: [u8; 10],
}

impl Encoder for Writing<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        let time = self.times.value(row);
        let (day, of_day) = (time.div_euclid(DAY), time.rem_euclid(DAY));
        if day != self.day {
            (self.day, self.date) = (day, date(day));
        }
        let (second, micros) = (of_day / SECOND, of_day % SECOND);
        out.push(b'"');
        out.extend_from_slice(&self.date);
        for (before, part) in [(b'T', second / 3_600), (b':', second / 60 % 60), (b':', second % 60)] {
            out.push(before);
            digits(out, part, 2);
        }
        if micros % 1_000 != 0 {
            out.push(b'.');
            digits(out, micros, 6);
        } else if micros != 0 {
            out.push(b'.');
            digits(out, micros / 1_000, 3);
        }
        out.extend_from_slice(b"Z\"");
    }
}

fn digits(out: &mut Vec<u8>, number: i64, count: u32) {
    for place in (0..count).rev() {
        out.push(b'0' + (number / 10_i64.pow(place) % 10) as u8);
    }
}

/// `YYYY-MM-DD` of a day since 1970, in the Gregorian calendar also before it was used.
fn date(day: i64) -> [u8; 10] {
    let date = i32::try_from(day).ok().and_then(NaiveDate::from_epoch_days).unwrap_or(NaiveDate::MIN);
    let mut text = Vec::with_capacity(10);
    digits(&mut text, date.year().into(), 4);
    text.push(b'-');
    digits(&mut text, date.month().into(), 2);
    text.push(b'-');
    digits(&mut text, date.day().into(), 2);
    text.try_into().unwrap_or([b'0'; 10])
}
