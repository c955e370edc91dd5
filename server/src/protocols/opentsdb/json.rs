//! Writes JSON directly as bytes: answers are large and their shape is fixed, so no tree of values is built.

use std::io::Write;

/// A quoted string. By hand, because serde_json writes `\b` and `\f` where this writes `\u0008` and `\u000c`, and leaves
/// U+007F to U+009F as they are.
pub fn string(out: &mut Vec<u8>, text: &str) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    if is_plain(text) {
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
        return;
    }
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c == '"' || c == '\\' || c.is_control()) {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        let Some(special) = rest[at..].chars().next() else { break };
        match special {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            '\n' => out.extend_from_slice(b"\\n"),
            '\r' => out.extend_from_slice(b"\\r"),
            '\t' => out.extend_from_slice(b"\\t"),
            // A Vec takes every write. Control characters lie below U+00A0, within four digits.
            control => drop(write!(out, "\\u{:04x}", u32::from(control))),
        }
        rest = &rest[at + special.len_utf8()..];
    }
    out.extend_from_slice(rest.as_bytes());
    out.push(b'"');
}

/// Whether nothing is to be written otherwise, as in nearly all names. Without an early end, so that many bytes are looked
/// at at once.
fn is_plain(text: &str) -> bool {
    let plain = |byte: u8| (b' '..0x7f).contains(&byte) & (byte != b'"') & (byte != b'\\');
    text.bytes().fold(true, |all, byte| all & plain(byte))
}

pub fn int(out: &mut Vec<u8>, int: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(int).as_bytes());
}

pub fn bool(out: &mut Vec<u8>, value: bool) {
    out.extend_from_slice(if value { b"true" } else { b"false" });
}

/// A finite float with a fraction or an exponent, so that it reads as a float: `5.0`, `1e16`. Every bit comes back.
pub fn float(out: &mut Vec<u8>, float: f64) {
    debug_assert!(float.is_finite());
    if !short_decimal(out, float) {
        out.extend_from_slice(ryu::Buffer::new().format_finite(float).as_bytes());
    }
}

/// Most measured values have up to three decimals, and are written so in a quarter of the time. No two decimals of up
/// to 15 digits are one float, so that which is the float is the shortest there is, as the general way finds it.
fn short_decimal(out: &mut Vec<u8>, float: f64) -> bool {
    let scaled = float * 1e3;
    if scaled.abs() >= 1e14 || float == 0.0 {
        return false;
    }
    let int = (scaled + 0.5_f64.copysign(scaled)) as i64;
    if int as f64 / 1e3 != float {
        return false;
    }
    if int < 0 {
        out.push(b'-');
    }
    let (whole, rest) = (int.unsigned_abs() / 1_000, int.unsigned_abs() % 1_000);
    out.extend_from_slice(itoa::Buffer::new().format(whole).as_bytes());
    let digits = [b'.', (rest / 100) as u8 + b'0', (rest / 10 % 10) as u8 + b'0', (rest % 10) as u8 + b'0'];
    let len = match (rest % 10, rest % 100) {
        (0, 0) => 2,
        (0, _) => 3,
        _ => 4,
    };
    out.extend_from_slice(&digits[..len]);
    true
}

/// Items with commas between them.
pub fn list<T>(out: &mut Vec<u8>, items: impl IntoIterator<Item = T>, mut item: impl FnMut(&mut Vec<u8>, T)) {
    out.push(b'[');
    for (at, value) in items.into_iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        item(out, value);
    }
    out.push(b']');
}

/// An object of strings.
pub fn string_map<'a>(out: &mut Vec<u8>, entries: impl IntoIterator<Item = (&'a str, &'a str)>) {
    out.push(b'{');
    for (at, (key, value)) in entries.into_iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        string(out, key);
        out.push(b':');
        string(out, value);
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests;
