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

/// From here on floats are written with an exponent.
const EXPONENT_MIN: f64 = 1e16;

/// A finite float with a fraction or an exponent, so that it reads as a float: `5.0`, `1e16`. Every bit comes back.
pub fn float(out: &mut Vec<u8>, float: f64) {
    debug_assert!(float.is_finite());
    let mut buffer = zmij::Buffer::new();
    let text = buffer.format_finite(float);
    if float.abs() < EXPONENT_MIN {
        out.extend_from_slice(text.as_bytes());
        return;
    }
    // `1e+16` there.
    for part in text.split('+') {
        out.extend_from_slice(part.as_bytes());
    }
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
