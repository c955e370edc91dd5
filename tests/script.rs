//! The `load` lines that `.tsq` and `.slt` scripts share, and the times and series names in them.
//!
//! Times are offsets from 2013-01-01T00:00:00Z, the start of an hour: `90s`, `1h30m`, `-1m`, `500ms`.

use std::collections::BTreeMap;

use crate::oracle::{Number, Series};

/// 2013-01-01T00:00:00Z in milliseconds.
pub const EPOCH_MS: i64 = 1_356_998_400_000;

/// Writes in the order in which a script makes them.
#[derive(Clone, Debug)]
pub struct Load {
    pub metric: String,
    pub tags: BTreeMap<String, String>,
    /// Milliseconds since 1970 to value.
    pub samples: Vec<(i64, Number)>,
}

/// Reads what follows `load`: `METRIC{tags} START STEP VALUE...`.
///
/// A value is `5` (an integer), `5.0` (a float), `_` (nothing), `5*3` (three times), `1..4` (1 2 3 4).
pub fn load(text: &str) -> Result<Load, String> {
    let mut words = text.split_whitespace();
    let (metric, tags) = series(words.next().ok_or("a series is missing")?)?;
    let start = EPOCH_MS + offset(words.next().ok_or("a start is missing")?)?;
    let step = offset(words.next().ok_or("a step is missing")?)?;
    let mut values: Vec<Option<Number>> = Vec::new();
    for word in words {
        if let Some((from, to)) = word.split_once("..") {
            let bound = |text: &str| text.parse::<i64>().map_err(|_| format!("'{word}' is no range of integers"));
            values.extend((bound(from)?..=bound(to)?).map(|int| Some(Number::Int(int))));
            continue;
        }
        let (value, times) = word.split_once('*').unwrap_or((word, "1"));
        let value = if value == "_" { None } else { Some(number(value)?) };
        let times = times.parse().map_err(|_| format!("'{times}' is no count"))?;
        values.extend(std::iter::repeat_n(value, times));
    }
    let times = (0..).map(|at| start + at * step);
    let samples = times.zip(values).filter_map(|(time, value)| Some((time, value?))).collect();
    Ok(Load { metric, tags, samples })
}

/// `metric{key=value,...}`; without braces there are no tags.
pub fn series(text: &str) -> Result<(String, BTreeMap<String, String>), String> {
    let Some((metric, tags)) = text.split_once('{') else { return Ok((text.to_owned(), BTreeMap::new())) };
    let tags = tags.strip_suffix('}').ok_or_else(|| format!("'{text}' does not end with '}}'"))?;
    let pairs = tags.split(',').filter(|pair| !pair.is_empty()).map(|pair| {
        let (key, value) = pair.split_once('=').ok_or_else(|| format!("'{pair}' is not key=value"))?;
        Ok((key.to_owned(), value.to_owned()))
    });
    Ok((metric.to_owned(), pairs.collect::<Result<_, String>>()?))
}

/// An integer if it is written like one, else a float (also `NaN`).
pub fn number(text: &str) -> Result<Number, String> {
    if let Ok(int) = text.parse() {
        return Ok(Number::Int(int));
    }
    text.parse().map(Number::Float).map_err(|_| format!("'{text}' is not a number"))
}

/// Milliseconds: `1h30m`, `-90s`, `500ms`, `0`.
pub fn offset(text: &str) -> Result<i64, String> {
    let (sign, mut rest) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let wrong = || format!("'{text}' is not a time: write it like 1h30m, 90s or 500ms");
    let mut millis = 0;
    while !rest.is_empty() && rest != "0" {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let letters = rest[digits..].find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len() - digits);
        let unit = match &rest[digits..digits + letters] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(wrong()),
        };
        millis += rest[..digits].parse::<i64>().map_err(|_| wrong())? * unit;
        rest = &rest[digits + letters..];
    }
    Ok(sign * millis)
}

/// An offset the way it is written in scripts.
pub fn show_offset(millis: i64) -> String {
    let mut text = String::from(if millis < 0 { "-" } else { "" });
    let mut left = millis.abs();
    for (unit, name) in [(3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")] {
        if left >= unit {
            text.push_str(&format!("{}{name}", left / unit));
            left %= unit;
        }
    }
    if millis == 0 { "0s".into() } else { text }
}

/// What all loads together leave: of two samples of one series and time the later.
pub fn stored(loads: &[Load]) -> Vec<Series> {
    let mut stored: BTreeMap<(String, BTreeMap<String, String>), BTreeMap<i64, Number>> = BTreeMap::new();
    for load in loads {
        stored.entry((load.metric.clone(), load.tags.clone())).or_default().extend(load.samples.iter().copied());
    }
    stored.into_iter().map(|((metric, tags), points)| Series { metric, tags, points }).collect()
}

#[test]
fn times_are_read_and_shown_alike() {
    for text in ["1h30m", "-1m", "500ms", "1h1s1ms", "0s"] {
        assert_eq!(offset(text).map(show_offset), Ok(text.into()));
    }
    assert!(offset("1x").is_err());
    assert!(offset("m").is_err());
}

#[test]
fn a_load_line_names_series_times_and_values() {
    let load = load("cpu{host=a,dc=x} 1m 30s 1 _ 2.5*2 7..8").unwrap();
    assert_eq!(load.tags["dc"], "x");
    let samples: Vec<String> =
        load.samples.iter().map(|(time, value)| format!("{} {value:?}", show_offset(time - EPOCH_MS))).collect();
    assert_eq!(samples, ["1m Int(1)", "2m Float(2.5)", "2m30s Float(2.5)", "3m Int(7)", "3m30s Int(8)"]);
}
