//! Writes JSON directly as bytes: answers are large and their shape is fixed, so no tree of values is built.

use std::io::Write;

/// A quoted string.
pub fn string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
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

/// Digit by digit: an answer has one for every point, and formatting costs more than the rest of the point.
pub fn int(out: &mut Vec<u8>, int: i64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = int.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if int < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

pub fn bool(out: &mut Vec<u8>, value: bool) {
    out.extend_from_slice(if value { b"true" } else { b"false" });
}

/// A finite float with a fraction or an exponent, so that it reads as a float: `5.0`, `1e16`. Every bit comes back.
pub fn float(out: &mut Vec<u8>, float: f64) {
    debug_assert!(float.is_finite());
    out.extend_from_slice(ryu::Buffer::new().format_finite(float).as_bytes());
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
