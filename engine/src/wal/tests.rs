use std::path::Path;
use std::sync::Arc;

use super::frame::FRAME_HEAD_BYTES;
use super::replay::{End, Replay};
use super::*;
use crate::clock::SystemClock;
use crate::disk::{Disk, OsDisk};
use crate::layout::{Layout, WAL};
use crate::meta::MetaChange;
use crate::sample::SampleBatch;
use crate::series::{SeriesId, SeriesKey, TagSet};
use crate::value::Value;

fn records() -> Vec<Record> {
    let key = SeriesKey::new("cpu.load", TagSet::new([("host", "é"), ("a", "b c")]).unwrap()).unwrap();
    let mut mixed = SampleBatch::default();
    let values = [Value::Int(i64::MIN), Value::Float(f64::from_bits(0x7ff8_0000_0000_0001)), Value::Float(-0.0)];
    for (at, value) in values.into_iter().cycle().take(19).enumerate() {
        mixed.push(SeriesId(at as u32), Timestamp::from_micros(i64::MAX - at as i64), value);
    }
    let mut tick = SampleBatch::default();
    for at in 0..9 {
        tick.push(SeriesId(at), Timestamp::from_micros(i64::MIN), Value::Int(i64::from(at)));
    }
    let mut ticks = SampleBatch::default();
    for at in 0..11 {
        let time = Timestamp::from_micros(i64::from(5 - at / 4));
        ticks.push(SeriesId(at % 4), time, Value::Float(f64::from(at)));
    }
    vec![
        Record::Series { id: SeriesId(3), key },
        Record::Samples(mixed),
        Record::Samples(tick),
        Record::Samples(ticks),
        Record::Samples(SampleBatch::default()),
        Record::Meta(MetaChange::Job(serde_json::json!({"id": "4711"}))),
    ]
}

fn encode(record: &Record) -> Vec<u8> {
    let mut bytes = Vec::new();
    match record {
        Record::Series { id, key } => frame::put_series(&mut bytes, *id, key),
        Record::Samples(batch) => frame::put_samples(&mut bytes, batch),
        Record::Meta(change) => frame::put_meta(&mut bytes, &serde_json::to_vec(change).unwrap()),
    }
    bytes
}

const HEADER: Header = Header { number: 1, series_before: 3, salt: 0x5A17_0001 };

/// A WAL file of all records: its bytes and the offsets at which frames start.
fn file() -> (Vec<u8>, Vec<usize>) {
    let mut bytes = HEADER.encode();
    let mut starts = Vec::new();
    for record in records() {
        starts.push(bytes.len());
        bytes.extend(encode(&record));
    }
    frame::seal(&mut bytes[HEADER_BYTES..], HEADER.salt);
    (bytes, starts)
}

fn replay(bytes: &[u8]) -> (Vec<Record>, End) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("00000001.wal");
    std::fs::write(&path, bytes).unwrap();
    let mut replay = Replay::open(&OsDisk, &path).unwrap();
    let mut found = Vec::new();
    while let Some(record) = replay.next().unwrap() {
        found.push(record);
    }
    let end = replay.end().unwrap();
    (found, end)
}

#[test]
fn every_record_is_read_back_as_written() {
    let (bytes, _) = file();
    assert_eq!(Header::decode(&bytes), Some(HEADER));
    assert_eq!(replay(&bytes), (records(), End::Whole));
}

#[test]
fn times_are_written_in_the_form_that_takes_least() {
    let (head, sample) = (FRAME_HEAD_BYTES + 4 + 4 + 1, 4 + 8);
    // Numbers of samples at one time each, and what their times take.
    for (ticks, times) in
        [(vec![], 0), (vec![1], 8), (vec![7], 8), (vec![1; 9], 72), (vec![1, 2], 24), (vec![8, 8], 28)]
    {
        let mut batch = SampleBatch::default();
        for (tick, samples) in ticks.iter().enumerate() {
            for at in 0..*samples {
                // No series comes twice.
                let series = SeriesId(batch.len() as u32);
                batch.push(series, Timestamp::from_micros(tick as i64), Value::Int(i64::from(at)));
            }
        }
        let bytes = encode(&Record::Samples(batch.clone()));
        assert_eq!(bytes.len(), head + times + sample * batch.len() + batch.len().div_ceil(8), "{ticks:?}");
        assert!(bytes.len() as u64 <= frame::samples_len(&batch), "{ticks:?}");
        let kind = bytes[FRAME_HEAD_BYTES - 1];
        assert_eq!(frame::decode(kind, &bytes[FRAME_HEAD_BYTES..]), Some(Record::Samples(batch)), "{ticks:?}");
    }
}

#[test]
fn series_that_come_again_in_the_same_order_are_written_once() {
    let fixed = FRAME_HEAD_BYTES + 4 + 4 + 1 + 8;
    for (series, written) in [(&[4, 4, 4][..], 1), (&[1, 2, 3, 1, 2, 3, 1], 3), (&[1, 2, 1, 3, 1], 5)] {
        let mut batch = SampleBatch::default();
        for (at, id) in series.iter().enumerate() {
            batch.push(SeriesId(*id), Timestamp::from_micros(7), Value::Int(at as i64));
        }
        let bytes = encode(&Record::Samples(batch.clone()));
        assert_eq!(bytes.len(), fixed + 4 * written + 8 * series.len() + 1, "{series:?}");
        let kind = bytes[FRAME_HEAD_BYTES - 1];
        assert_eq!(frame::decode(kind, &bytes[FRAME_HEAD_BYTES..]), Some(Record::Samples(batch)), "{series:?}");
    }
}

#[test]
fn numbers_of_series_that_cannot_be_say_nothing() {
    let payload = |count: u32, period: u32| {
        let ids = (0..period.min(9)).flat_map(u32::to_le_bytes);
        let values = [0; 9].repeat(count.min(9) as usize);
        let fields = count.to_le_bytes().into_iter().chain(period.to_le_bytes()).chain(ids);
        fields.chain([1]).chain([7; 8]).chain(values).collect::<Vec<u8>>()
    };
    assert!(frame::decode(4, &payload(1, 1)).is_some());
    // More than there are samples, none, and so many samples that no memory would do.
    for (count, period) in [(1, 2), (1, 0), (u32::MAX, 1), (u32::MAX, u32::MAX)] {
        assert_eq!(frame::decode(4, &payload(count, period)), None, "{count} samples, {period} series");
    }
}

#[test]
fn samples_of_earlier_versions_are_read_each_with_its_series() {
    let mut payload = 2_u32.to_le_bytes().to_vec();
    payload.extend([5_u32, 6].into_iter().flat_map(u32::to_le_bytes));
    payload.push(1);
    payload.extend(9_i64.to_le_bytes());
    payload.extend([1.5_f64.to_bits(), 2].into_iter().flat_map(u64::to_le_bytes));
    payload.push(0b10);
    let mut batch = SampleBatch::default();
    batch.push(SeriesId(5), Timestamp::from_micros(9), Value::Float(1.5));
    batch.push(SeriesId(6), Timestamp::from_micros(9), Value::Int(2));
    assert_eq!(frame::decode(2, &payload), Some(Record::Samples(batch)));
}

#[test]
fn ticks_that_are_not_all_samples_say_nothing() {
    let payload = |ticks: &[u32]| {
        let mut payload = [2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2].to_vec();
        payload.extend((ticks.len() as u32).to_le_bytes());
        for samples in ticks {
            payload.extend(samples.to_le_bytes());
            payload.extend([7; 8]);
        }
        payload.extend([0; 2 * 8 + 1]);
        payload
    };
    for good in [&[2][..], &[1, 1]] {
        assert!(frame::decode(2, &payload(good)).is_some(), "{good:?}");
    }
    for bad in [&[][..], &[1], &[3], &[1, 2], &[2, 0], &[u32::MAX, 3]] {
        assert_eq!(frame::decode(2, &payload(bad)), None, "{bad:?}");
    }
}

#[test]
fn a_file_cut_anywhere_ends_with_its_last_whole_frame() {
    let (bytes, starts) = file();
    for len in 0..bytes.len() {
        let (found, end) = replay(&bytes[..len]);
        let whole = starts.iter().skip(1).chain([&bytes.len()]).filter(|next| **next <= len).count();
        assert_eq!(found, records()[..whole], "{len} bytes");
        let frame_start = starts.contains(&len);
        if frame_start {
            assert_eq!(end, End::Whole);
        } else {
            let at = if len < HEADER_BYTES { 0 } else { starts[whole] as u64 };
            assert_eq!(end, End::Torn { at }, "{len} bytes");
        }
    }
}

/// A power loss may leave blocks of a file that was removed where a new one grew.
#[test]
fn frames_of_another_file_are_not_read_and_do_not_count_as_whole() {
    let (bytes, starts) = file();
    let now = Timestamp::from_seconds(7);
    let salts = [HEADER.salt, Header::new(1, 3, now).salt, Header::new(2, 3, now).salt, 0];
    for (at, salt) in salts.into_iter().enumerate() {
        assert!(!salts[..at].contains(&salt), "{salts:?}");
        let mut stale = bytes.clone();
        frame::seal(&mut stale[starts[1]..], salt);
        let expected = match at {
            0 => (records(), End::Whole),
            _ => (records()[..1].to_vec(), End::Torn { at: starts[1] as u64 }),
        };
        assert_eq!(replay(&stale), expected, "salt {salt:#x}");
    }
}

#[test]
fn files_of_format_1_are_read_without_a_salt() {
    let header = Header { number: u64::MAX - 1, series_before: 3, salt: 0 };
    let mut bytes = header.encode();
    assert_eq!((bytes[8], Header::decode(&bytes)), (1, Some(header)));
    bytes.extend_from_slice(&file().0[HEADER_BYTES..]);
    frame::seal(&mut bytes[HEADER_BYTES..], 0);
    assert_eq!(replay(&bytes), (records(), End::Whole));
    assert_eq!(HEADER.encode()[8], 2);
    // Its salt would have no room.
    assert_eq!(Header::new(u64::MAX - 1, 3, Timestamp::from_seconds(7)), header);
}

#[test]
fn a_tail_of_zeros_is_torn() {
    let (mut bytes, _) = file();
    let at = bytes.len() as u64;
    bytes.extend([0; 4_096]);
    assert_eq!(replay(&bytes), (records(), End::Torn { at }));
}

#[test]
fn a_flipped_bit_is_damage_before_other_frames_and_torn_in_the_last() {
    let (bytes, starts) = file();
    let last = starts[starts.len() - 1];
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 4;
        let (found, end) = replay(&flipped);
        let frames = starts.iter().filter(|start| **start <= at).count();
        let (whole, from) = if frames == 0 { (0, 0) } else { (frames - 1, starts[frames - 1] as u64) };
        assert_eq!(found, records()[..whole], "byte {at}");
        let expected = match at {
            _ if at < HEADER_BYTES => End::Headless,
            _ if at < last => End::Damaged { at: from },
            _ => End::Torn { at: from },
        };
        assert_eq!(end, expected, "byte {at}");
    }
}

#[test]
fn payloads_that_say_nothing_are_refused_without_a_panic() {
    for record in records() {
        let bytes = encode(&record);
        let (kind, payload) = (bytes[8], &bytes[frame::FRAME_HEAD_BYTES..]);
        assert_eq!(frame::decode(kind, payload), Some(record));
        for len in 0..payload.len() {
            assert_eq!(frame::decode(kind, &payload[..len]), None, "type {kind}, {len} bytes");
        }
        assert_eq!(frame::decode(kind, &[payload, &[0]].concat()), None, "type {kind}, a byte too many");
    }
    let many = [u32::MAX.to_le_bytes().as_slice(), &[0; 64]].concat();
    assert_eq!(frame::decode(2, &many), None);
    assert_eq!(frame::decode(0, &[]), None);
    assert_eq!(frame::decode(9, &[]), None);
}

#[test]
fn the_writer_makes_a_new_file_after_each_close_and_counts_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let layout = Layout::new(dir.path());
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    disk.create_dir(&layout.sub(WAL)).unwrap();
    let mut wal = Wal::new(Arc::clone(&disk), Arc::new(SystemClock::default()), layout.clone(), 4, Vec::new());
    assert!(wal.sync_target().unwrap().is_none());
    let mut frame = encode(&records()[4]);
    wal.append(&mut frame, 0).unwrap();
    wal.append(&mut frame, 0).unwrap();
    let expected = Position { number: 4, end: (HEADER_BYTES + 2 * frame.len()) as u64 };
    assert_eq!(wal.sync_target().unwrap().unwrap().position, expected);
    assert_eq!(wal.finish(), 5);
    wal.append(&mut frame, 0).unwrap();
    assert_eq!(wal.bytes(), expected.end + (HEADER_BYTES + frame.len()) as u64);
    wal.covered(5);
    assert_eq!(wal.bytes(), (HEADER_BYTES + frame.len()) as u64);
    let names: Vec<u64> = layout.wal_files(&*disk).unwrap().into_iter().map(|(number, _)| number).collect();
    assert_eq!(names, [4, 5]);
    assert!(Path::new(&layout.wal(5)).is_file());
}

#[test]
fn the_longest_series_that_may_be_is_read_back_and_one_tag_more_is_refused() {
    use crate::series::{METRIC_BYTES_MAX, TAG_KEY_BYTES_MAX, TAG_VALUE_BYTES_MAX, TAGS_MAX};
    let tags = (0..TAGS_MAX).map(|at| (format!("{at:0TAG_KEY_BYTES_MAX$}"), "v".repeat(TAG_VALUE_BYTES_MAX)));
    let key = SeriesKey::new(&"m".repeat(METRIC_BYTES_MAX), TagSet::new(tags).unwrap()).unwrap();
    let record = Record::Series { id: SeriesId(u32::MAX), key };
    let bytes = encode(&record);
    let payload = &bytes[frame::FRAME_HEAD_BYTES..];
    assert_eq!(frame::decode(bytes[8], payload), Some(record));
    let mut more = payload.to_vec();
    let count_at = 4 + 2 + METRIC_BYTES_MAX;
    assert_eq!(more[count_at..count_at + 2], [TAGS_MAX as u8, 0]);
    more[count_at] += 1;
    more.extend_from_slice(b"\x01\0k\x01\0v");
    assert_eq!(frame::decode(bytes[8], &more), None);
}
