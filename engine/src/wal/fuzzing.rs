//! The fuzz target of WAL files.

use std::collections::BTreeMap;
use std::path::Path;

use super::frame::{self, FRAME_HEAD_BYTES, Fields};
use super::replay::{End, Replay};
use super::{HEADER_BYTES, Header, Record};
use crate::fuzzing::files::{DIR, Files};
use crate::manifest;
use crate::time::{TimeRange, Timestamp};

const NAME: &str = "wal/00000001.wal";

/// What starts with the magic is a file; anything else is frames without their checksums, `type u8 | length u16 |
/// payload`, which get them here.
pub fn wal_frames(bytes: &[u8]) {
    if bytes.starts_with(super::MAGIC) {
        check_file(bytes);
    } else {
        check_frames(bytes);
    }
}

/// Any bytes are a file that ends somewhere: what stands before is read the same however it goes on, and is written
/// again as it was read.
fn check_file(bytes: &[u8]) -> (Vec<Record>, End) {
    let (records, end, at) = replay(bytes);
    match end {
        End::Whole => assert_eq!(at, bytes.len()),
        End::Torn { at: from } | End::Damaged { at: from } => assert_eq!(from, at as u64),
        End::Headless => assert!(Header::decode(bytes).is_none() && at == 0),
    }
    if Header::decode(bytes).is_some() {
        assert_eq!(Header::decode(bytes).map(Header::encode).as_deref(), bytes.get(..HEADER_BYTES));
        let (before, end, _) = replay(&bytes[..at]);
        assert!(before == records && end == End::Whole, "it is read otherwise when nothing follows: {end:?}");
    } else {
        assert!(records.is_empty() && at == 0);
    }
    for record in &records {
        let written = write(record);
        let again = frame::decode(written[FRAME_HEAD_BYTES - 1], &written[FRAME_HEAD_BYTES..]);
        let again = again.expect("a record that was read can be written");
        assert_eq!(*record, again);
    }
    check_database(bytes, &records);
    (records, end)
}

/// Frames with good checksums are read up to the first that says nothing, which is damage.
fn check_frames(bytes: &[u8]) {
    let header = Header::new(1, 0, Timestamp::from_micros(0));
    let mut file = header.encode();
    let mut input = Fields::new(bytes);
    let mut good = 0;
    let mut bad = None;
    while let Some((kind, payload)) = take_frame(&mut input) {
        match frame::decode(kind, payload) {
            Some(_) if bad.is_none() => good += 1,
            Some(_) => {}
            None => bad = bad.or(Some(file.len() as u64)),
        }
        let len = payload.len() as u32;
        let kind_and_payload = [&[kind], payload].concat();
        file.extend_from_slice(&len.to_le_bytes());
        file.extend_from_slice(&frame::checksum(header.salt, len, &kind_and_payload).to_le_bytes());
        file.extend_from_slice(&kind_and_payload);
    }
    let (records, end) = check_file(&file);
    assert_eq!(records.len(), good);
    match bad {
        None => assert_eq!(end, End::Whole),
        // A frame of unknown type counts as none: it may be torn too.
        Some(at) => assert!(end == End::Damaged { at } || end == End::Torn { at }, "{end:?}, expected {at}"),
    }
}

fn take_frame<'a>(input: &mut Fields<'a>) -> Option<(u8, &'a [u8])> {
    let kind = input.u8()?;
    let len = input.u16()?;
    Some((kind, input.bytes(usize::from(len))?))
}

fn replay(bytes: &[u8]) -> (Vec<Record>, End, usize) {
    let files = Files::new([(NAME, bytes)]);
    let mut replay = Replay::open(&files, &Path::new(DIR).join(NAME)).expect("memory does not fail");
    let mut records = Vec::new();
    let mut before = replay.at();
    while let Some(record) = replay.next().expect("memory does not fail") {
        assert!(replay.at() > before && replay.at() <= bytes.len() as u64);
        before = replay.at();
        records.push(record);
    }
    let end = replay.end().expect("memory does not fail");
    (records, end, replay.at() as usize)
}

fn write(record: &Record) -> Vec<u8> {
    let mut bytes = Vec::new();
    match record {
        Record::Series { id, key } => frame::put_series(&mut bytes, *id, key),
        Record::Samples(batch) => frame::put_samples(&mut bytes, batch),
        Record::Meta(change) => frame::put_meta(&mut bytes, &serde_json::to_vec(change).expect("it came from JSON")),
    }
    bytes
}

/// The database whose WAL this is opens, and holds what its frames say up to the first that cannot be true.
fn check_database(bytes: &[u8], records: &[Record]) {
    let db = Files::new([("MANIFEST", &*manifest::fuzzing::empty()), (NAME, bytes)])
        .database()
        .expect("any WAL can be opened");
    let report = db.recovery();
    let applied = usize::try_from(report.frames).expect("few frames");
    assert!(applied <= records.len());
    let cuts = report.torn.iter().chain(&report.damaged);
    assert!(cuts.map(|cut| cut.at + cut.bytes).all(|end| end == bytes.len() as u64));
    let mut expected: BTreeMap<(u32, Timestamp), (u64, bool)> = BTreeMap::new();
    for record in &records[..applied] {
        if let Record::Samples(batch) = record {
            expected.extend(
                batch.iter().map(|(series, time, value)| ((series.0, time), (value.to_bits(), value.is_int()))),
            );
        }
    }
    let snapshot = db.snapshot();
    let ids = (0..snapshot.index().len() as u32).map(crate::series::SeriesId).collect();
    let mut found = BTreeMap::new();
    for points in snapshot.points(ids, TimeRange::ALL) {
        let points = points.expect("memory does not fail");
        let values = points.values.iter().map(|value| (value.to_bits(), value.is_int()));
        found.extend(points.times.iter().map(|time| (points.series.0, *time)).zip(values));
    }
    assert_eq!(found, expected);
}
