//! The forms of a line: `METRIC VALUE [TAG=VALUE...]`, or as in OpenTSDB's telnet `put METRIC TIME VALUE TAG=VALUE...`.

use telem_engine::Timestamp;

use crate::cli::times::{self, When};

/// A timestamp of OpenTSDB with any of these bits counts milliseconds.
const MILLIS_BITS: i64 = !0xFFFF_FFFF;

#[derive(Clone, Debug, PartialEq)]
pub enum PutLine {
    Sample(PutSample),
    /// It is empty, or a comment.
    Nothing,
}

/// A sample as it was written; whether its names and its value are any is for the server to say.
#[derive(Clone, Debug, PartialEq)]
pub struct PutSample {
    pub metric: String,
    pub value: String,
    pub tags: Vec<(String, String)>,
    pub time: Option<When>,
}

/// # Errors
/// Says what is wrong with the form.
pub fn parse(line: &str) -> Result<PutLine, String> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    if words.first().is_none_or(|word| word.starts_with('#')) {
        return Ok(PutLine::Nothing);
    }
    of_words(&words)
}

/// # Errors
/// Says what is wrong with the form.
pub fn of_words(words: &[&str]) -> Result<PutLine, String> {
    match words {
        [] => Ok(PutLine::Nothing),
        // A metric may be called put too: then a tag, or nothing, is in the place of the value.
        ["put", metric, time, value, tags @ ..] if !value.contains('=') => {
            sample(metric, value, tags, Some(when(time)?))
        }
        [metric, value, tags @ ..] => sample(metric, value, tags, None),
        [metric] => Err(format!("'{metric}' has no value; write METRIC VALUE [TAG=VALUE...]")),
    }
}

fn sample(metric: &str, value: &str, tags: &[&str], time: Option<When>) -> Result<PutLine, String> {
    let mut named: Vec<(String, String)> = Vec::with_capacity(tags.len());
    for tag in tags {
        let (key, value) = tag.split_once('=').ok_or_else(|| format!("'{tag}' is not a tag; write TAG=VALUE"))?;
        match named.iter().find(|(known, _)| known == key) {
            Some((_, first)) if first == value => {}
            Some((_, first)) => return Err(format!("tag '{key}' is given twice, as '{first}' and as '{value}'")),
            None => named.push((key.to_owned(), value.to_owned())),
        }
    }
    Ok(PutLine::Sample(PutSample { metric: metric.to_owned(), value: value.to_owned(), tags: named, time }))
}

/// A number is seconds or milliseconds by its size, as in OpenTSDB; anything else as everywhere on the command line.
fn when(text: &str) -> Result<When, String> {
    match text.parse::<i64>() {
        Ok(millis) if millis > 0 && millis & MILLIS_BITS != 0 => Ok(When::At(Timestamp::from_millis(millis))),
        _ => times::when(text),
    }
}
