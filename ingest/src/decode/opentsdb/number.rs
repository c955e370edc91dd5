//! The numbers that OpenTSDB accepts, parsed from their text: what looks like an integer is one.

use telem_engine::Value;

use super::NonFinite;

/// Why a text is not a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberError {
    NotANumber,
    /// The text is a number beyond what 64 bits of float can hold.
    NotFinite {
        text: &'static str,
    },
}

/// A text without `.`, `e` and `E` is an integer and must fit into 64 bits, sign included;
/// any other is a float as Java writes it: blanks around it and a suffix `f` or `d` are fine.
///
/// # Errors
/// See [`NumberError`]. Hexadecimal digits are not numbers, and words (`NaN`, `Infinity`) are numbers only where
/// `non_finite` says so. Digits beyond what a float can hold never turn into an infinity.
pub fn parse(text: &str, non_finite: NonFinite) -> Result<Value, NumberError> {
    if !text.bytes().any(|byte| matches!(byte, b'.' | b'e' | b'E')) {
        let word = || if non_finite == NonFinite::Keep { word(text) } else { None };
        return text.parse().map(Value::Int).ok().or_else(word).ok_or(NumberError::NotANumber);
    }
    let text = text.trim_matches(|c| c <= ' ');
    let digits = text.strip_suffix(['f', 'F', 'd', 'D']).unwrap_or(text);
    let float: f64 = digits.parse().map_err(|_| NumberError::NotANumber)?;
    if float.is_finite() {
        Ok(Value::Float(float))
    } else {
        Err(NumberError::NotFinite { text: if float > 0.0 { "Infinity" } else { "-Infinity" } })
    }
}

/// `NaN`, `inf` or `Infinity`, in any case, with or without a sign.
fn word(text: &str) -> Option<Value> {
    let starts_as_one = text.trim_start_matches(['+', '-']).starts_with(['n', 'N', 'i', 'I']);
    if starts_as_one { text.parse().map(Value::Float).ok() } else { None }
}

/// How OpenTSDB shows a value in the message about its timestamp: the bytes it would store, big
/// end first and as short as they can be, and the flags that tell their length and type.
pub fn stored_bytes(value: Value) -> String {
    let (bytes, flags): (Vec<u8>, u8) = match value {
        Value::Int(int) => {
            let len = match int {
                -0x80..=0x7F => 1,
                -0x8000..=0x7FFF => 2,
                -0x8000_0000..=0x7FFF_FFFF => 4,
                _ => 8,
            };
            (int.to_be_bytes()[8 - len..].to_vec(), len as u8 - 1)
        }
        Value::Float(float) if f64::from(float as f32) == float => ((float as f32).to_be_bytes().to_vec(), 0x8 | 3),
        Value::Float(float) => (float.to_be_bytes().to_vec(), 0x8 | 7),
    };
    let signed: Vec<String> = bytes.iter().map(|byte| byte.cast_signed().to_string()).collect();
    format!("[{}]/{flags}", signed.join(", "))
}
