//! The times of rows: numbers since 1970 in a unit that their size tells, or dates.

use clap::ValueEnum;

use super::cell::Cell;
use crate::cli::times::date;

/// Numbers below the first are seconds (to the year 5138), below the second milliseconds, and so on.
const SECONDS_END: f64 = 1e11;
const MILLIS_END: f64 = 1e14;
const MICROS_END: f64 = 1e17;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ImportTimeUnit {
    S,
    Ms,
    Us,
    Ns,
}

impl ImportTimeUnit {
    fn by_size(number: f64) -> Self {
        match number.abs() {
            size if size < SECONDS_END => Self::S,
            size if size < MILLIS_END => Self::Ms,
            size if size < MICROS_END => Self::Us,
            _ => Self::Ns,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::S => "seconds",
            Self::Ms => "milliseconds",
            Self::Us => "microseconds",
            Self::Ns => "nanoseconds",
        }
    }

    /// How many digits behind the point a microsecond needs, and what makes microseconds of the whole part.
    fn scale(self) -> (usize, i64) {
        match self {
            Self::S => (6, 1_000_000),
            Self::Ms => (3, 1_000),
            Self::Us | Self::Ns => (0, 1),
        }
    }

    fn micros_of_int(self, number: i64) -> Option<i64> {
        match self {
            Self::Ns => Some(number.div_euclid(1_000)),
            unit => number.checked_mul(unit.scale().1),
        }
    }

    /// To the nearest microsecond: a float of today's seconds has no finer one.
    fn micros_of_float(self, number: f64) -> Option<i64> {
        let micros = match self {
            Self::Ns => number / 1e3,
            unit => number * unit.scale().1 as f64,
        };
        // 2^63: every float below it in size fits.
        (micros.abs() < 9_223_372_036_854_775_808.0).then_some(micros.round() as i64)
    }
}

/// Reads the column of times of one file.
#[derive(Debug)]
pub struct TimeCells {
    unit: Option<ImportTimeUnit>,
    is_guessed: bool,
}

impl TimeCells {
    pub fn new(unit: Option<ImportTimeUnit>) -> Self {
        Self { unit, is_guessed: false }
    }

    /// The unit that the first number told, once.
    pub fn guessed(&mut self) -> Option<ImportTimeUnit> {
        std::mem::take(&mut self.is_guessed).then_some(self.unit)?
    }

    /// Microseconds since 1970; what is finer is cut off.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn micros(&mut self, cell: &Cell<'_>) -> Result<i64, String> {
        let beyond = || "the time lies beyond what 64 bits of microseconds hold".to_owned();
        match *cell {
            Cell::Null => Err("the row has no time".to_owned()),
            Cell::Time(micros) => Ok(micros),
            Cell::Int(int) => self.unit(int as f64).micros_of_int(int).ok_or_else(beyond),
            Cell::Float(float) if !float.is_finite() => Err(format!("the time is {float}")),
            Cell::Float(float) => self.unit(float).micros_of_float(float).ok_or_else(beyond),
            Cell::Text(text) => {
                let text = text.trim();
                match text.parse::<f64>() {
                    Ok(number) if number.is_finite() => {
                        let unit = self.unit(number);
                        decimal(text, unit).or_else(|| unit.micros_of_float(number)).ok_or_else(beyond)
                    }
                    _ if text.is_empty() => Err("the row has no time".to_owned()),
                    _ => date(text).ok_or_else(|| {
                        format!("'{}' is not a time: expected RFC 3339 or a number since 1970", shown(text))
                    }),
                }
            }
            Cell::TooLarge | Cell::Other => Err("the time is neither a number nor a date".to_owned()),
        }
    }

    fn unit(&mut self, number: f64) -> ImportTimeUnit {
        *self.unit.get_or_insert_with(|| {
            self.is_guessed = true;
            ImportTimeUnit::by_size(number)
        })
    }
}

/// A decimal number without an exponent, exactly.
fn decimal(text: &str, unit: ImportTimeUnit) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    if fraction.is_empty() {
        return unit.micros_of_int(sign * whole);
    }
    let (digits, _) = unit.scale();
    let micros = unit.micros_of_int(whole)?;
    let behind: i64 = if digits == 0 { 0 } else { format!("{fraction:0<digits$}")[..digits].parse().ok()? };
    Some(sign * micros.checked_add(behind)?)
}

/// So much of a text as a message needs.
pub fn shown(text: &str) -> String {
    const SHOWN: usize = 60;
    let cut: String = text.chars().take(SHOWN).collect();
    let dots = if text.chars().count() > SHOWN { "..." } else { "" };
    format!("{}{dots}", cut.escape_debug())
}

#[cfg(test)]
mod tests;
