//! What is a frame, and what is none, byte by byte from the page of the format.

use proptest::prelude::*;

use super::*;
use crate::fuzzing;

fn text(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u16).to_le_bytes()[..], text].concat()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn wide(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn blocks(body: &[u8]) -> Result<Vec<SampleBlock<'_>>, FrameError> {
    let ClientFrame::Samples(blocks) = ClientFrame::parse(kind::SAMPLES, body)? else { panic!("not samples") };
    blocks.collect()
}

fn names(body: &[u8]) -> Result<Vec<NamedSeries<'_>>, FrameError> {
    let ClientFrame::Series(names) = ClientFrame::parse(kind::SERIES, body)? else { panic!("not names") };
    names.collect()
}

#[test]
fn an_opening_agrees_on_the_highest_version_that_both_speak() {
    assert_eq!(opening(*b"\xF7TLM\x01\x00\x00\x00"), Ok(1));
    assert_eq!(opening(*b"\xF7TLM\x07\x01\x00\x00"), Ok(1));
    assert_eq!(opening(*b"\xF7TLM\x00\x00\x00\x00"), Err(FrameError::Version { found: 0 }));
    assert_eq!(opening(*b"\xF7TLM\x01\x00\x00\x80"), Err(FrameError::Flags { found: 0x8000 }));
    assert!(matches!(opening(*b"\xF7TLX\x01\x00\x00\x00"), Err(FrameError::Magic { .. })));
}

#[test]
fn a_head_tells_type_and_length_and_nothing_else() {
    let head = |body: u32, rest: [u8; 4]| {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..4].copy_from_slice(&body.to_le_bytes());
        bytes[4..].copy_from_slice(&rest);
        FrameHead::parse(bytes)
    };
    assert_eq!(head(1 << 20, [2, 0, 0, 0]), Ok(FrameHead { kind: 2, body: 1 << 20 }));
    assert_eq!(head((1 << 20) + 1, [2, 0, 0, 0]), Err(FrameError::TooLong { kind: 2, found: (1 << 20) + 1 }));
    assert_eq!(head(u32::MAX, [2, 0, 0, 0]), Err(FrameError::TooLong { kind: 2, found: u32::MAX }));
    for kind in [0, 8, 128, 255] {
        assert_eq!(head(0, [kind, 0, 0, 0]), Err(FrameError::UnknownType { found: kind }));
    }
    assert_eq!(head(0, [6, 0, 1, 0]), Err(FrameError::NotZero { kind: 6, at: 6 }));
}

#[test]
fn a_series_has_kind_level_names_and_tags_in_their_order() {
    let body = [
        words(&[5, 2]),
        vec![1, 3, 2, 0],
        [text(b"steps"), text(b"1"), text(b"so far")].concat(),
        [text(b"z"), text(b"1"), text(b"a"), text(b"\xff")].concat(),
        vec![2, 0, 0, 0],
        [text(b"h"), text(b""), text(b"")].concat(),
    ]
    .concat();
    let found = names(&body).unwrap();
    assert_eq!((found[0].kind, found[0].level, found[0].metric), (MetricKind::Counter, 3, &b"steps"[..]));
    assert_eq!((found[0].unit, found[0].help), (&b"1"[..], &b"so far"[..]));
    assert_eq!(found[0].tags, [(&b"z"[..], &b"1"[..]), (b"a", b"\xff")]);
    assert_eq!((found[1].kind, found[1].metric, found[1].tags.len()), (MetricKind::Histogram, &b"h"[..], 0));
    assert_eq!(NamedSeries::parse(found[0].bytes).unwrap(), found[0]);
    let ClientFrame::Series(frame) = ClientFrame::parse(kind::SERIES, &body).unwrap() else { panic!("not names") };
    assert_eq!((frame.first, frame.left()), (5, 2));
}

#[test]
fn names_that_break_their_shape_are_refused() {
    let series = |kind, level| [vec![kind, level, 0, 0], text(b"m"), text(b""), text(b"")].concat();
    let frame = |count, bytes: &[u8]| [words(&[0, count]), bytes.to_vec()].concat();
    assert_eq!(names(&frame(1, &series(3, 0))), Err(FrameError::SeriesKind { found: 3 }));
    assert_eq!(names(&frame(1, &series(0, 5))), Err(FrameError::Level { found: 5 }));
    assert!(matches!(names(&frame(u32::MAX, &series(0, 1))), Err(FrameError::ManySeries { count: u32::MAX, .. })));
    assert!(matches!(names(&frame(1, &series(0, 1)[..10])), Err(FrameError::Short { .. })));
    assert_eq!(names(&frame(0, &series(0, 1))), Err(FrameError::Long { kind: 1, rest: 11 }));
    // Tags that are counted and not there take no memory.
    let many = [vec![0, 1, 0xFF, 0xFF], text(b"m"), text(b""), text(b"")].concat();
    assert!(matches!(names(&frame(1, &many)), Err(FrameError::Short { .. })));
}

#[test]
fn samples_keep_all_their_bits() {
    let odd = [0x7FF0_0000_0000_0001, 0xFFF8_0000_0000_00AB, 1 << 63];
    let body = [
        wide(&[9]),
        vec![0, 0, 0, 0],
        words(&[4, 3, 0]),
        wide(&[i64::MIN.cast_unsigned(), 0, i64::MAX.cast_unsigned()]),
        wide(&odd),
        vec![1, 1, 0, 0],
        words(&[3]),
        wide(&[7]),
        words(&[2, 1, 0, 0]),
        wide(&[i64::MIN.cast_unsigned(), u64::MAX, i64::MAX.cast_unsigned()]),
    ]
    .concat();
    let found = blocks(&body).unwrap();
    let SampleBlock::Column { series: 4, times, values } = found[0] else { panic!("{found:?}") };
    assert_eq!(times.iter().map(Timestamp::micros).collect::<Vec<_>>(), [i64::MIN, 0, i64::MAX]);
    assert_eq!(values.iter().map(Value::to_bits).collect::<Vec<_>>(), odd);
    let SampleBlock::Row { time, series, values } = found[1] else { panic!("{found:?}") };
    assert_eq!((time.micros(), series.iter().collect::<Vec<_>>()), (7, vec![2, 1, 0]));
    assert_eq!(values.iter().collect::<Vec<_>>(), [Value::Int(i64::MIN), Value::Int(-1), Value::Int(i64::MAX)]);
}

#[test]
fn blocks_that_break_their_shape_are_refused() {
    let block =
        |head: [u8; 4], count, rest: &[u8]| [wide(&[1]), head.to_vec(), words(&[0, count, 0]), rest.to_vec()].concat();
    assert_eq!(blocks(&block([2, 0, 0, 0], 0, b"")), Err(FrameError::Shape { found: 2 }));
    assert_eq!(blocks(&block([0, 2, 0, 0], 0, b"")), Err(FrameError::ValueType { found: 2 }));
    assert_eq!(blocks(&block([0, 0, 0, 1], 0, b"")), Err(FrameError::NotZero { kind: 2, at: 10 }));
    for count in [1, 1 << 28, u32::MAX] {
        assert!(matches!(blocks(&block([0, 0, 0, 0], count, b"")), Err(FrameError::Short { .. })));
    }
    assert_eq!(blocks(&block([0, 0, 0, 0], 0, b"")).map(|blocks| blocks.len()), Ok(1), "a column of nothing");
    assert!(matches!(blocks(&[0; 7]), Err(FrameError::Short { .. })));
    let row = [wide(&[1]), vec![1, 0, 0, 0], words(&[1]), wide(&[7]), words(&[0, 9]), wide(&[0])].concat();
    assert_eq!(blocks(&row), Err(FrameError::NotZero { kind: 2, at: 28 }));
}

#[test]
fn other_frames_end_where_they_end() {
    let tally = ClientFrame::parse(kind::TALLY, &wide(&[9, 1, 2, 3])).unwrap();
    let ClientFrame::Tally(tally) = tally else { panic!("{tally:?}") };
    assert_eq!((tally.taken, tally.dropped()), (9, 6));
    for (kind, length) in [(kind::TALLY, 32), (kind::FLUSH, 8), (kind::NOTE, 14), (kind::SETTING, 6), (kind::QUERY, 12)]
    {
        assert!(ClientFrame::parse(kind, &vec![0; length]).is_ok(), "{kind}");
        assert!(matches!(ClientFrame::parse(kind, &vec![0; length - 1]), Err(FrameError::Short { .. })), "{kind}");
        assert_eq!(
            ClientFrame::parse(kind, &vec![0; length + 3]).unwrap_err(),
            FrameError::Long { kind, rest: 3 },
            "{kind}"
        );
    }
    let long = [wide(&[0]), text(b"t"), words(&[u32::MAX])].concat();
    assert!(matches!(ClientFrame::parse(kind::NOTE, &long), Err(FrameError::Short { .. })));
}

proptest! {
    #[test]
    fn any_bytes_are_a_frame_or_an_error(kind in 0_u8..10, body in prop::collection::vec(any::<u8>(), 0..200)) {
        fuzzing::client_frames(&[&[kind][..], &body].concat());
    }

    #[test]
    fn a_frame_with_a_changed_byte_is_a_frame_or_an_error(at in 0_usize..200, byte: u8, count in 0_u32..6, ints: bool) {
        let mut body = [wide(&[1]), vec![0, u8::from(ints), 0, 0], words(&[0, count, 0])].concat();
        body.extend(wide(&vec![1_767_225_600_000_000; 2 * count as usize]));
        body.extend([vec![1, 0, 0, 0], words(&[count]), wide(&[7]), words(&vec![3; count as usize])].concat());
        body.extend(words(&vec![0; count as usize % 2]));
        body.extend(wide(&vec![9; count as usize]));
        assert_eq!(blocks(&body).unwrap().len(), 2);
        let at = at % body.len();
        body[at] = byte;
        fuzzing::client_frames(&[&[kind::SAMPLES][..], &body].concat());
    }
}
