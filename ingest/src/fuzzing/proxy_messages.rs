//! The fuzz target of what clients of Metric Proxy send.

use crate::counters::{CounterReading, CounterTable, CounterValue, Feed, FeedEvent, GaugeSource, LaneTags};
use crate::decode::proxy::label::FullName;
use crate::decode::proxy::{MESSAGE_BYTES_MAX, MessagePiece, MessageSplitter, ProxyMessage, parse, scan_value};

/// However a stream is cut, the same messages come of it, with the same sums; the scanner and the parser agree; and a
/// name that is taken apart can be put together.
pub fn proxy_messages(stream: &[u8]) {
    let whole = pieces(stream, stream.len().max(1));
    for step in [1, 7, 4_096] {
        assert_eq!(pieces(stream, step), whole, "in steps of {step}");
    }
    for message in whole.iter().flatten() {
        assert!(message.len() <= MESSAGE_BYTES_MAX);
        agree(message);
    }
    let (readings, events) = counted(stream, stream.len().max(1));
    let (in_parts, events_in_parts) = counted(stream, 13);
    assert_eq!(events, events_in_parts);
    assert_eq!(readings.len(), in_parts.len());
    for (one, other) in readings.iter().zip(&in_parts) {
        assert!(
            one.name == other.name && one.doc == other.doc && bits(one.value) == bits(other.value),
            "{one:?} {other:?}"
        );
        let name = FullName::new(&one.name);
        let written = FullName::written(name.base, name.labels.iter().map(|(key, value)| (*key, value)));
        let again = FullName::new(&written);
        assert!(again == name || name.labels.is_empty(), "{name:?} {again:?}");
    }
}

/// Each message, or none where it was too long.
fn pieces(stream: &[u8], step: usize) -> Vec<Option<Vec<u8>>> {
    let (mut splitter, mut found) = (MessageSplitter::default(), Vec::new());
    for part in stream.chunks(step) {
        splitter.split(part, |piece| {
            found.push(match piece {
                MessagePiece::Message(message) => Some(message.to_vec()),
                MessagePiece::TooLong => None,
            });
        });
    }
    found
}

fn agree(message: &[u8]) {
    let Some(scanned) = scan_value(message) else { return };
    match parse(message) {
        Ok(ProxyMessage::Value { kind, value, .. }) => {
            assert_eq!(kind, scanned.kind);
            // The parser's floats may be off by a few of their last bits.
            let is_near = (value - scanned.value).abs() <= value.abs() * (4.0 * f64::EPSILON);
            assert!(is_near || value.is_nan() || value.is_infinite() || scanned.value.is_nan(), "{value} {scanned:?}");
        }
        Ok(other) => panic!("{other:?} was taken for a value"),
        // Only what is between the quotes was not looked at.
        Err(why) => assert!(!why.is_empty()),
    }
}

/// What a table holds after the stream, and how many jobs and refusals there were.
fn counted(stream: &[u8], step: usize) -> (Vec<CounterReading>, (usize, usize)) {
    let table = CounterTable::default();
    let sum = table.open_sum();
    let lane = table.open_lane(LaneTags::default(), GaugeSource::OWN, &[sum]);
    let mut feed = Feed::new(lane);
    let (mut jobs, mut refusals) = (0, 0);
    for part in stream.chunks(step) {
        let mut events = feed.take(part, &table);
        loop {
            for event in events {
                match event {
                    FeedEvent::Job(_) => jobs += 1,
                    FeedEvent::Refused(refusal) => {
                        refusals += 1;
                        assert!(!refusal.to_string().is_empty());
                    }
                }
            }
            if !feed.is_waiting() {
                break;
            }
            events = feed.switch(lane, &table);
        }
    }
    let (of_lane, of_sum) = (table.all(lane), table.all(sum));
    assert!(
        of_lane.iter().zip(&of_sum).all(|(one, other)| one.name == other.name && bits(one.value) == bits(other.value))
    );
    assert_eq!(of_lane.len(), of_sum.len());
    (of_sum, (jobs, refusals))
}

/// All NaNs are one.
fn bits(value: CounterValue) -> [u64; 4] {
    let bits = |value: f64| if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() };
    match value {
        CounterValue::Counter(value) => [bits(value), 0, 0, 0],
        CounterValue::Gauge(gauge) => [gauge.min, gauge.max, gauge.hits, gauge.total].map(bits),
    }
}
