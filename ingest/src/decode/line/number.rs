//! Parses numbers, booleans and timestamps of line protocol from their bytes.

use telem_engine::Value;

use super::{FieldValue, LineError};
use crate::decode::digits::Decimal;

/// Whether a value may end before this.
pub fn ends(byte: Option<&u8>) -> bool {
    matches!(byte, None | Some(b',' | b' ' | b'\n' | b'\r'))
}

/// Up to what ends a value.
pub fn token_len(rest: &[u8]) -> usize {
    rest.iter().position(|byte| ends(Some(byte))).unwrap_or(rest.len())
}

/// The number that `rest` starts with, and its length. Without a suffix it is a float, with `i` an integer, with `u` an
/// unsigned one.
pub fn read(rest: &[u8]) -> Result<(FieldValue, usize), LineError> {
    let decimal = Decimal::read(rest);
    let len = decimal.len;
    if decimal.digits == 0 {
        return Err(LineError::Number);
    }
    match rest.get(len) {
        Some(b'i') if !decimal.point => {
            let int =
                decimal.int().map_or_else(|| text(&rest[..len])?.parse().map_err(|_| LineError::IntegerRange), Ok)?;
            ended(rest, FieldValue::Number(Value::Int(int)), len + 1)
        }
        Some(b'u') if !decimal.point && !decimal.negative => {
            let int: u64 = text(&rest[..len])?.parse().map_err(|_| LineError::IntegerRange)?;
            let value = i64::try_from(int).map_or(FieldValue::Unsigned, |int| FieldValue::Number(Value::Int(int)));
            ended(rest, value, len + 1)
        }
        Some(b'e' | b'E') => float(rest, len + token_len(&rest[len..])),
        end if ends(end) => match decimal.float() {
            Some(float) => Ok((FieldValue::Number(Value::Float(float)), len)),
            None => float(rest, len),
        },
        _ => Err(LineError::Number),
    }
}

/// The float that the first `len` bytes are, by the general rule.
fn float(rest: &[u8], len: usize) -> Result<(FieldValue, usize), LineError> {
    let token = &rest[..len];
    // Words are not numbers here.
    if !token.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'+' | b'-' | b'e' | b'E')) {
        return Err(LineError::Number);
    }
    let float: f64 = text(token)?.parse().map_err(|_| LineError::Number)?;
    if float.is_finite() { Ok((FieldValue::Number(Value::Float(float)), len)) } else { Err(LineError::FloatRange) }
}

fn ended(rest: &[u8], value: FieldValue, len: usize) -> Result<(FieldValue, usize), LineError> {
    if ends(rest.get(len)) { Ok((value, len)) } else { Err(LineError::Number) }
}

fn text(digits: &[u8]) -> Result<&str, LineError> {
    std::str::from_utf8(digits).map_err(|_| LineError::Number)
}

pub fn truth(token: &[u8]) -> Result<bool, LineError> {
    match token {
        b"t" | b"T" | b"true" | b"True" | b"TRUE" => Ok(true),
        b"f" | b"F" | b"false" | b"False" | b"FALSE" => Ok(false),
        _ => Err(LineError::Boolean),
    }
}

/// The timestamp that `rest` starts with, and its length.
pub fn time(rest: &[u8]) -> Result<(i64, usize), LineError> {
    let decimal = Decimal::read(rest);
    if decimal.digits == 0 || decimal.point {
        return Err(LineError::Timestamp);
    }
    let time = match decimal.int() {
        Some(time) => time,
        // Zeros in front may be many.
        None => text(&rest[..decimal.len])?.parse().map_err(|_| LineError::TimestampRange)?,
    };
    Ok((time, decimal.len))
}
