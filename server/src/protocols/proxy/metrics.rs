//! `/metrics`: a job's counters as text, for Prometheus.

use std::collections::hash_map::Entry;
use std::fmt::Write;
use std::sync::Arc;

use ahash::AHashMap;
use axum::Router;
use axum::extract::{Request, State as Of};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use telem_ingest::counters::{CounterReading, CounterValue};
use telem_ingest::decode::proxy::CounterKind;
use telem_ingest::decode::proxy::label::{FullName, group_of};

use super::live::ProxyLive;
use super::reply;
use super::tags::MAIN;

/// The text format, version 0.0.4.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// What the original calls its own.
const EXACT: &str = "text/plain; charset=utf-8";

pub fn routes() -> Router<Arc<ProxyLive>> {
    Router::new()
        .route("/metrics", any(metrics))
        .route("/metrics/", any(metrics))
        .route("/metrics/{ignored}", any(metrics))
}

/// How counters are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpositionDialect {
    Prometheus,
    OpenMetrics,
    /// As the original does, which puts a time where others read the value.
    Original,
}

async fn metrics(Of(live): Of<Arc<ProxyLive>>, request: Request) -> Response {
    let params = reply::params(request.uri());
    let id = params.get("job").unwrap_or(MAIN);
    let Some((_, scope)) = live.live_job(id) else { return reply::refused(&format!("No such jobid {id}")) };
    let accepted = request.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let is_exact = params.get("exact").map_or(live.options.is_exact, |exact| matches!(exact, "true" | "1" | ""));
    let (dialect, kind) = match is_exact {
        true => (ExpositionDialect::Original, EXACT),
        false if accepted.contains("application/openmetrics-text") => (ExpositionDialect::OpenMetrics, OPEN_METRICS),
        false => (ExpositionDialect::Prometheus, TEXT),
    };
    let ts = live.now_ms().saturating_mul(1_000);
    // Of many counters that is work for a while.
    let written = tokio::task::spawn_blocking(move || {
        let mut readings = live.table.all(scope);
        for reading in readings.iter_mut().filter(|reading| reading.doc.is_empty()) {
            // A counter that was given a value has none any more, and its group still does.
            reading.doc = live.table.first_doc(&reading.name).unwrap_or_default();
        }
        let beside = live.beside(scope);
        readings.retain(|reading| !beside.has(&reading.name));
        readings.extend(beside.readings);
        exposition(&readings, dialect, ts)
    });
    match written.await {
        Ok(text) => ([(header::CONTENT_TYPE, kind)], text).into_response(),
        Err(panic) => reply::failed(axum::http::StatusCode::INTERNAL_SERVER_ERROR, &panic.to_string()),
    }
}

/// All readings, group by group in the order in which the groups came.
fn exposition(readings: &[CounterReading], dialect: ExpositionDialect, ts: u64) -> String {
    // Most groups are one counter: a chain of places costs no allocation for each.
    const NO_PLACE: u32 = u32::MAX;
    let mut groups: AHashMap<&str, (u32, u32)> = AHashMap::new();
    let mut next = vec![NO_PLACE; readings.len()];
    let mut firsts = Vec::new();
    for (reading, place) in readings.iter().zip(0..NO_PLACE) {
        match groups.entry(group_of(&reading.name)) {
            Entry::Vacant(new) => {
                new.insert((place, place));
                firsts.push(place);
            }
            Entry::Occupied(mut known) => {
                let (_, last) = known.get_mut();
                next[*last as usize] = place;
                *last = place;
            }
        }
    }
    let mut text = String::with_capacity(readings.len() * 96);
    let mut group = Vec::new();
    for first in firsts {
        group.clear();
        let mut place = first;
        while let Some(reading) = readings.get(place as usize) {
            group.push(reading);
            place = next[place as usize];
        }
        write_group(&group, dialect, ts, &mut text);
    }
    if dialect != ExpositionDialect::Prometheus {
        text.push_str("# EOF\n");
    }
    text
}

fn write_group(group: &[&CounterReading], dialect: ExpositionDialect, ts: u64, to: &mut String) {
    let Some(first) = group.first() else { return };
    let base = group_of(&first.name);
    if dialect == ExpositionDialect::Original {
        let _ = writeln!(to, "# HELP {base} {}\n# TYPE {base} counter", first.doc);
        for reading in group {
            let _ = match reading.value {
                CounterValue::Counter(value) => writeln!(to, "{} {ts} {value}", reading.name),
                CounterValue::Gauge(gauge) => writeln!(to, "{} {}", reading.name, gauge.average()),
            };
        }
        return;
    }
    // A gauge that was never set has no value to tell.
    let is_told =
        |reading: &&&CounterReading| !matches!(reading.value, CounterValue::Gauge(gauge) if gauge.hits == 0.0);
    let mut told = group.iter().filter(is_told).peekable();
    if told.peek().is_none() {
        return;
    }
    let kind = first.value.kind();
    let mut name = String::with_capacity(base.len());
    write_base(base, &mut name);
    // OpenMetrics has no counters but those whose samples end so.
    let (family, type_name) = match (dialect, kind, name.strip_suffix("_total")) {
        (ExpositionDialect::OpenMetrics, CounterKind::Counter, Some(family)) => (family, "counter"),
        (ExpositionDialect::OpenMetrics, CounterKind::Counter, None) => (&*name, "unknown"),
        _ => (&*name, kind.name()),
    };
    for part in ["# HELP ", family, " "] {
        to.push_str(part);
    }
    write_help(&first.doc, dialect, to);
    for part in ["\n# TYPE ", family, " ", type_name, "\n"] {
        to.push_str(part);
    }
    for reading in told {
        to.push_str(&name);
        write_labels(&reading.name, base.len(), to);
        to.push(' ');
        write_number(
            match reading.value {
                CounterValue::Counter(value) => value,
                CounterValue::Gauge(gauge) => gauge.average(),
            },
            to,
        );
        to.push('\n');
    }
}

/// A name of the format: what it does not allow becomes an underscore.
fn write_base(base: &str, to: &mut String) {
    let is_plain = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    if base.bytes().next().is_some_and(is_plain) && base.bytes().all(|byte| is_plain(byte) || byte.is_ascii_digit()) {
        to.push_str(base);
        return;
    }
    for (at, c) in base.chars().enumerate() {
        let is_allowed = c.is_ascii_alphabetic() || c == '_' || c == ':' || (at > 0 && c.is_ascii_digit());
        to.push(if is_allowed { c } else { '_' });
    }
    if base.is_empty() {
        to.push('_');
    }
}

/// The labels as their client wrote them, unless nobody could read them.
fn write_labels(name: &str, base_length: usize, to: &mut String) {
    if name.len() == base_length {
        return;
    }
    let parsed = FullName::new(name);
    if parsed.base.len() != base_length {
        // It does not follow the grammar: what it says is kept in a label.
        to.push_str("{name=\"");
        telem_ingest::decode::proxy::label::escape(name, to);
        to.push_str("\"}");
        return;
    }
    let is_plain = |key: &str| {
        key.chars().enumerate().all(|(at, c)| c.is_ascii_alphabetic() || c == '_' || (at > 0 && c.is_ascii_digit()))
    };
    if parsed.labels.iter().all(|(key, _)| is_plain(key)) && !name.contains('\n') {
        to.push_str(&name[base_length..]);
        return;
    }
    let labels = parsed.labels.iter().map(|(key, value)| {
        let mut plain = String::new();
        write_base(&key.replace(':', "_"), &mut plain);
        (plain, value)
    });
    to.push_str(&FullName::written("", labels));
}

fn write_help(doc: &str, dialect: ExpositionDialect, to: &mut String) {
    if !doc.bytes().any(|byte| matches!(byte, b'\\' | b'\n' | b'"')) {
        to.push_str(doc);
        return;
    }
    for c in doc.chars() {
        match c {
            '\\' => to.push_str("\\\\"),
            '\n' => to.push_str("\\n"),
            '"' if dialect == ExpositionDialect::OpenMetrics => to.push_str("\\\""),
            other => to.push(other),
        }
    }
}

fn write_number(value: f64, to: &mut String) {
    // Most are whole, and below this every whole number is a float.
    if value.abs() < 9e15 && value as i64 as f64 == value && (value != 0.0 || value.is_sign_positive()) {
        to.push_str(itoa::Buffer::new().format(value as i64));
        return;
    }
    let _ = match value {
        value if value.is_nan() => write!(to, "NaN"),
        f64::INFINITY => write!(to, "+Inf"),
        f64::NEG_INFINITY => write!(to, "-Inf"),
        value => write!(to, "{value}"),
    };
}

#[cfg(test)]
mod tests {
    use telem_ingest::counters::GaugeValue;

    use super::*;

    fn reading(name: &str, doc: &str, value: CounterValue) -> CounterReading {
        CounterReading { name: name.into(), doc: doc.into(), value }
    }

    fn readings() -> Vec<CounterReading> {
        vec![
            reading(r#"a{rank="0",op="read"}"#, "first \\ \"doc\"\nsecond", CounterValue::Counter(12.0)),
            reading("g", "set", CounterValue::Gauge(GaugeValue::of(f64::INFINITY))),
            reading(r#"a{rank="1",op="read"}"#, "other", CounterValue::Counter(0.0)),
            reading("unset", "", CounterValue::Gauge(GaugeValue::default())),
            reading("line\nbreak", "", CounterValue::Counter(1.5)),
            reading("b_total{odd", "", CounterValue::Counter(f64::NAN)),
        ]
    }

    #[test]
    fn each_group_has_one_help_and_type_and_every_value_its_place() {
        let text = exposition(&readings(), ExpositionDialect::Prometheus, 7);
        let expected = "# HELP a first \\\\ \"doc\"\\nsecond\n# TYPE a counter\na{rank=\"0\",op=\"read\"} 12\n\
             a{rank=\"1\",op=\"read\"} 0\n# HELP g set\n# TYPE g gauge\ng +Inf\n# HELP line_break \n\
             # TYPE line_break counter\nline_break 1.5\n# HELP b_total \n# TYPE b_total counter\n\
             b_total{name=\"b_total{odd\"} NaN\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn numbers_are_written_as_rust_shows_them() {
        for value in [0.0, -0.0, 1.0, -17.0, 0.1, 1e15, 9.1e15, -9.1e15, 1e300, 1e-300, f64::MAX, f64::MIN_POSITIVE] {
            let mut text = String::new();
            write_number(value, &mut text);
            assert_eq!(text, format!("{value}"));
        }
    }

    #[test]
    fn groups_keep_their_order_and_the_order_within() {
        let names = ["b{n=\"1\"}", "a", "b", "c{n=\"1\"}", "b{n=\"2\"}", "c"];
        let readings = names.map(|name| reading(name, "", CounterValue::Counter(1.0)));
        let text = exposition(&readings, ExpositionDialect::Prometheus, 7);
        let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(lines, ["b{n=\"1\"} 1", "b 1", "b{n=\"2\"} 1", "a 1", "c{n=\"1\"} 1", "c 1"]);
    }

    #[test]
    fn open_metrics_has_counters_by_their_suffix_and_an_end() {
        let text = exposition(&readings(), ExpositionDialect::OpenMetrics, 7);
        assert!(text.contains("# TYPE a unknown\n") && text.contains("# TYPE b counter\nb_total{"), "{text}");
        assert!(text.contains("first \\\\ \\\"doc\\\"\\nsecond") && text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn the_original_puts_a_time_before_values_and_calls_everything_a_counter() {
        let text = exposition(&readings(), ExpositionDialect::Original, 7);
        assert!(
            text.contains("a{rank=\"0\",op=\"read\"} 7 12\n") && text.contains("# TYPE g counter\ng inf\n"),
            "{text}"
        );
        assert!(text.contains("unset NaN\n") && text.ends_with("# EOF\n"), "{text}");
    }
}
