//! A second parser for lines that were accepted, which goes step by step and uses the standard library's numbers.
//!
//! It does not know what makes a line bad, and need not be fast; it only says what a good line means.

use telem_engine::Value;

use crate::decode::line::FieldValue;

/// What a line says; names without escapes.
#[derive(Debug, PartialEq)]
pub struct Plain {
    pub measurement: Vec<u8>,
    /// `None` where one has no value: whether tags are good is seen later than the rest of a line.
    pub tags: Option<Vec<(Vec<u8>, Vec<u8>)>>,
    pub fields: Vec<(Vec<u8>, FieldValue)>,
    pub time: Option<i64>,
}

/// What `line`, without its break, means; `None` where this reading finds no sense in it.
pub fn read(line: &[u8]) -> Option<Plain> {
    let (series, rest) = line.split_at(find(line, b" ")?);
    let mut names = split(series, b',').into_iter();
    let measurement = unescape(names.next()?);
    let tag = |tag: &[u8]| {
        let (key, value) = tag.split_at(find(tag, b"=")?);
        Some((unescape(key), unescape(&value[1..])))
    };
    let tags = names.map(tag).collect();
    let mut rest = trim_blanks(rest);
    let mut fields = Vec::new();
    loop {
        let (key, after) = rest.split_at(find(rest, b"=")?);
        let value = &after[1..];
        let len = if value.starts_with(b"\"") { string(value)? } else { token(value) };
        fields.push((unescape(key), field(&value[..len])?));
        rest = &value[len..];
        match rest.strip_prefix(b",") {
            Some(next) => rest = next,
            None => break,
        }
    }
    let time = std::str::from_utf8(rest).ok()?.trim_matches([' ', '\r']);
    let time = if time.is_empty() { None } else { Some(time.parse().ok()?) };
    Some(Plain { measurement, tags, fields, time })
}

/// Where the first of `ends` is that has no backslash before it.
fn find(text: &[u8], ends: &[u8]) -> Option<usize> {
    (0..text.len()).find(|at| ends.contains(&text[*at]) && (*at == 0 || text[at - 1] != b'\\'))
}

fn split(mut text: &[u8], at: u8) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    while let Some(end) = find(text, &[at]) {
        parts.push(&text[..end]);
        text = &text[end + 1..];
    }
    parts.push(text);
    parts
}

fn unescape(name: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    for (at, byte) in name.iter().enumerate() {
        if *byte != b'\\' || !matches!(name.get(at + 1), Some(b' ' | b',' | b'=')) {
            plain.push(*byte);
        }
    }
    plain
}

fn trim_blanks(text: &[u8]) -> &[u8] {
    &text[text.iter().take_while(|byte| **byte == b' ').count()..]
}

fn token(text: &[u8]) -> usize {
    text.iter().position(|byte| matches!(byte, b',' | b' ' | b'\r' | b'\n')).unwrap_or(text.len())
}

fn string(text: &[u8]) -> Option<usize> {
    let mut escaped = false;
    for (at, byte) in text.iter().enumerate().skip(1) {
        match byte {
            b'"' if !escaped => return Some(at + 1),
            b'\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    None
}

/// What the text of a field's value means.
pub fn field(text: &[u8]) -> Option<FieldValue> {
    // The contents of a string are not read.
    if text.starts_with(b"\"") {
        return Some(FieldValue::Text);
    }
    let text = std::str::from_utf8(text).ok()?;
    let number = |value| Some(FieldValue::Number(value));
    match text {
        "t" | "T" | "true" | "True" | "TRUE" => return number(Value::Int(1)),
        "f" | "F" | "false" | "False" | "FALSE" => return number(Value::Int(0)),
        _ => {}
    }
    let is_digits = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(digits) = text.strip_suffix('i') {
        let good = is_digits(digits.strip_prefix('-').unwrap_or(digits));
        return good.then(|| digits.parse().ok().map(|int| FieldValue::Number(Value::Int(int))))?;
    }
    if let Some(digits) = text.strip_suffix('u') {
        let int: u64 = is_digits(digits).then(|| digits.parse().ok())??;
        return Some(i64::try_from(int).map_or(FieldValue::Unsigned, |int| FieldValue::Number(Value::Int(int))));
    }
    let is_number = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-');
    if text.starts_with('+') || !text.bytes().all(is_number) {
        return None;
    }
    let float: f64 = text.parse().ok()?;
    float.is_finite().then_some(FieldValue::Number(Value::Float(float)))
}
