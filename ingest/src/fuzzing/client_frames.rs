//! The fuzz target of frames of the client protocol: a byte with the type, then the body.

use telem_engine::{SeriesId, Value};

use crate::accept::frames::{NumberedSeries, SeriesTable, accept};
use crate::accept::{AcceptCounters, Limits};
use crate::decode::frames::{BODY_BYTES_MAX, ClientFrame, FrameHead, NamedSeries, SampleBlock, kind};

/// The series that were named: every kind of place.
const PLACES: [NumberedSeries; 4] = [
    NumberedSeries::Stored(SeriesId(7)),
    NumberedSeries::Refused,
    NumberedSeries::AboveLevel,
    NumberedSeries::Stored(SeriesId(8)),
];

struct Places;

impl SeriesTable for Places {
    fn find(&mut self, number: u32) -> Option<NumberedSeries> {
        PLACES.get(usize::try_from(number).ok()?).copied()
    }
}

/// A frame that was read is written again byte by byte, and every sample of it has one fate.
pub fn client_frames(bytes: &[u8]) {
    let Some((kind, body)) = bytes.split_first() else { return };
    let mut head = [0; 8];
    head[..4].copy_from_slice(&u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes());
    head[4] = *kind;
    match FrameHead::parse(head) {
        Ok(head) => assert!(head.body == body.len() && body.len() <= BODY_BYTES_MAX),
        Err(error) => return assert!(!error.to_string().is_empty()),
    }
    let frame = match ClientFrame::parse(*kind, body) {
        Ok(frame) => frame,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    if let Some(again) = written(&frame) {
        assert_eq!(again, body);
    }
    if let ClientFrame::Samples(blocks) = frame {
        let sent: Option<usize> = blocks.clone().map(|block| Some(count(&block.ok()?))).sum();
        let (counters, limits) = (AcceptCounters::default(), Limits::default());
        match accept(super::NOW, &limits, &counters, &mut Places, blocks.clone()) {
            Ok(accepted) => {
                let fates = accepted.batch.len() as u64 + accepted.refused;
                assert_eq!(Some(fates), sent.map(|sent| sent as u64));
                let told: u64 = accepted.rejects.iter().map(|reject| reject.samples).sum();
                assert!(told <= accepted.refused);
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

/// The samples that are not passed over.
fn count(block: &SampleBlock<'_>) -> usize {
    let is_counted = |number: u32| Places.find(number) != Some(NumberedSeries::AboveLevel);
    match block {
        SampleBlock::Column { series, values, .. } => usize::from(is_counted(*series)) * values.len(),
        SampleBlock::Row { series, .. } => series.iter().filter(|number| is_counted(*number)).count(),
    }
}

/// The body of a frame as the page of the format has it; `None` where a part of it is broken.
fn written(frame: &ClientFrame<'_>) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    match frame {
        ClientFrame::Series(names) => {
            out.extend_from_slice(&names.first.to_le_bytes());
            out.extend_from_slice(&names.left().to_le_bytes());
            for series in names.clone() {
                let series = series.ok()?;
                assert_eq!(NamedSeries::parse(series.bytes).expect("its own bytes"), series);
                out.extend_from_slice(series.bytes);
            }
        }
        ClientFrame::Samples(blocks) => {
            out.extend_from_slice(&blocks.sequence.to_le_bytes());
            for block in blocks.clone() {
                put_block(&mut out, block.ok()?);
            }
        }
        ClientFrame::Tally(tally) => {
            for count in [tally.taken, tally.dropped_full, tally.dropped_alone, tally.dropped_else] {
                out.extend_from_slice(&count.to_le_bytes());
            }
        }
        ClientFrame::Note { time, title, description } => {
            out.extend_from_slice(&time.map_or(0, |time| time.micros()).to_le_bytes());
            put_short(&mut out, title);
            put_long(&mut out, description);
        }
        ClientFrame::Setting { name, value } => {
            put_short(&mut out, name);
            put_long(&mut out, value);
        }
        ClientFrame::Flush { number } => out.extend_from_slice(&number.to_le_bytes()),
        ClientFrame::Query { number, deadline_ms, sql } => {
            out.extend_from_slice(&number.to_le_bytes());
            out.extend_from_slice(&deadline_ms.to_le_bytes());
            put_long(&mut out, sql);
        }
    }
    Some(out)
}

fn put_block(out: &mut Vec<u8>, block: SampleBlock<'_>) {
    let (SampleBlock::Column { values, .. } | SampleBlock::Row { values, .. }) = block;
    let (count, is_row) = (values.len() as u32, matches!(block, SampleBlock::Row { .. }));
    out.extend_from_slice(&[u8::from(is_row), u8::from(values.are_ints()), 0, 0]);
    match block {
        SampleBlock::Column { series, times, .. } => {
            for number in [series, count, 0] {
                out.extend_from_slice(&number.to_le_bytes());
            }
            times.iter().for_each(|time| out.extend_from_slice(&time.micros().to_le_bytes()));
        }
        SampleBlock::Row { time, series, .. } => {
            out.extend_from_slice(&count.to_le_bytes());
            out.extend_from_slice(&time.micros().to_le_bytes());
            series.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
            out.resize(out.len() + 4 * (series.iter().len() % 2), 0);
        }
    }
    values.iter().map(Value::to_bits).for_each(|bits| out.extend_from_slice(&bits.to_le_bytes()));
}

fn put_short(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(&(text.len() as u16).to_le_bytes());
    out.extend_from_slice(text);
}

fn put_long(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(text);
}

const _: () = assert!(kind::SERIES == 1 && kind::QUERY == 7, "seeds begin with these bytes");
