//! Traces byte by byte, as Metric Proxy lays them out, and what is said of bytes that are laid out in another way.

use std::io::Cursor;

use proptest::collection::vec;
use proptest::prelude::*;
use telem_ingest::counters::GaugeValue;

use super::frames::TRACE_DESC_BYTES_MAX;
use super::*;

/// One counter and one gauge at 1,700,000,000.5 s.
const VALUES: &[u8] = b"\
    \x08\0\0\0Counters\x02\0\0\0\
    \x02\0\0\0ts\0\0\x20\x40\xfc\x54\xd9\x41\
    \x08\0\0\0counters\x02\0\0\0\
    \x02\0\0\0\x02\0\0\0id\x07\0\0\0\0\0\0\0\
    \x05\0\0\0value\x07\0\0\0Counter\x02\0\0\0\
    \x02\0\0\0ts\x01\0\0\0\0\0\0\0\
    \x05\0\0\0value\0\0\0\0\0\0\x0c\x40\
    \x02\0\0\0\x02\0\0\0id\x08\0\0\0\0\0\0\0\
    \x05\0\0\0value\x05\0\0\0Gauge\x04\0\0\0\
    \x03\0\0\0min\0\0\0\0\0\0\xf0\x3f\
    \x03\0\0\0max\0\0\0\0\0\0\x08\x40\
    \x04\0\0\0hits\0\0\0\0\0\0\0\x40\
    \x05\0\0\0total\0\0\0\0\0\0\x10\x40";

/// What the number 7 is.
const NAMED: &[u8] = b"\
    \x0f\0\0\0CounterMetadata\x02\0\0\0\
    \x02\0\0\0ts\0\0\x20\x40\xfc\x54\xd9\x41\
    \x08\0\0\0metadata\x03\0\0\0\
    \x02\0\0\0id\x07\0\0\0\0\0\0\0\
    \x04\0\0\0name\x0e\0\0\0hits{rank=\"0\"}\
    \x03\0\0\0doc\x01\0\0\0d";

/// A job that began at 1,700,000,000 s.
const DESC: &[u8] = b"\
    \x04\0\0\0Desc\x02\0\0\0\
    \x02\0\0\0ts\0\0\x20\x40\xfc\x54\xd9\x41\
    \x04\0\0\0desc\x09\0\0\0\
    \x05\0\0\0jobid\x02\0\0\0j1\
    \x07\0\0\0command\x05\0\0\0./app\
    \x04\0\0\0size\x04\0\0\0\
    \x08\0\0\0nodelist\x02\0\0\0n7\
    \x09\0\0\0partition\0\0\0\0\
    \x07\0\0\0cluster\0\0\0\0\
    \x07\0\0\0run_dir\x01\0\0\0/\
    \x0a\0\0\0start_time\x00\x68\xe5\xcf\x8b\x01\0\0\
    \x08\0\0\0end_time\0\0\0\0\0\0\0\0";

fn framed(frames: &[&[u8]]) -> Vec<u8> {
    frames.iter().flat_map(|frame| [&(frame.len() as u64).to_le_bytes()[..], frame].concat()).collect()
}

/// The frame with the bytes of `old`, which stand in it once, replaced.
fn with(frame: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    let places: Vec<usize> = (0..frame.len()).filter(|at| frame[*at..].starts_with(old)).collect();
    let [at] = *places else { panic!("{old:?} stands at {places:?}") };
    [&frame[..at], new, &frame[at + old.len()..]].concat()
}

/// Why a frame that begins at byte 8 is not taken.
fn fault(frame: &[u8]) -> String {
    TraceFrame::decode(frame, 8).unwrap_err().to_string()
}

fn half_past() -> Timestamp {
    Timestamp::from_millis(1_700_000_000_500)
}

#[test]
fn a_job_its_counters_and_their_values_are_read_as_they_are_laid_out() {
    let Ok(TraceFrame::Desc { time, desc }) = TraceFrame::decode(DESC, 8) else { panic!("{DESC:?}") };
    let expected = JobDesc {
        jobid: "j1".to_owned(),
        command: "./app".to_owned(),
        size: 4,
        nodelist: "n7".to_owned(),
        run_dir: "/".to_owned(),
        start_time: 1_700_000_000_000,
        ..JobDesc::default()
    };
    assert_eq!((time, desc), (half_past(), expected));
    let Ok(TraceFrame::Named { id, name, doc }) = TraceFrame::decode(NAMED, 8) else { panic!("{NAMED:?}") };
    assert_eq!((id, name, doc), (7, "hits{rank=\"0\"}", "d"));
    let Ok(TraceFrame::Values { time, values }) = TraceFrame::decode(VALUES, 8) else { panic!("{VALUES:?}") };
    let gauge = GaugeValue { min: 1.0, max: 3.0, hits: 2.0, total: 4.0 };
    let expected = [(7, CounterValue::Counter(3.5)), (8, CounterValue::Gauge(gauge))];
    assert_eq!((time, values.collect::<Vec<_>>()), (half_past(), expected.to_vec()));
}

#[test]
fn times_are_seconds_as_floats_or_as_earlier_versions_wrote_them() {
    let time = |bits: u64| {
        let head = b"\x08\0\0\0Counters\x02\0\0\0\x02\0\0\0ts";
        let frame = [&head[..], &bits.to_le_bytes(), b"\x08\0\0\0counters\0\0\0\0"].concat();
        match TraceFrame::decode(&frame, 0) {
            Ok(TraceFrame::Values { time, .. }) => Ok(time.micros()),
            other => Err(format!("{other:?}")),
        }
    };
    assert_eq!(time(1_700_000_000.25_f64.to_bits()), Ok(1_700_000_000_250_000));
    assert_eq!(time(1_700_000_000_250_f64.to_bits()), Ok(1_700_000_000_250_000), "milliseconds");
    assert_eq!(time(1_700_000_000_250_001_f64.to_bits()), Ok(1_700_000_000_250_001), "microseconds");
    assert_eq!(time(1_700_000_000_250), Ok(1_700_000_000_250_000), "an integer");
    for none in [0.0, -5.0, f64::NAN, f64::INFINITY, 1e300] {
        let told = time(none.to_bits()).unwrap_err();
        assert!(told.contains("Time") && told.contains(&none.to_string()), "{told}");
    }
}

#[test]
fn a_frame_of_another_layout_is_refused_with_what_was_expected_and_found_and_where() {
    for (frame, expected) in [
        (b"".to_vec(), "byte 8: expected the kind of a frame, found the end of the frame"),
        (b"\x04\0\0\0Dusk".to_vec(), "byte 8: expected Desc, CounterMetadata or Counters, found 'Dusk'"),
        (with(NAMED, b"doc", b"dog"), "byte 101: expected the field doc, found 'dog'"),
        (with(NAMED, b"metadata\x03", b"metadata\x04"), "byte 57: expected 3 fields, found 4"),
        (with(NAMED, b"\x0e\0\0\0hits", b"\xff\xff\xff\xffhits"), "found 4,294,967,295"),
        (with(NAMED, b"hits{", b"hit\xff{"), "byte 83: name is not UTF-8"),
        (with(VALUES, b"Gauge", b"Guage"), "expected Counter or Gauge, found 'Guage'"),
        (
            with(VALUES, b"counters\x02\0", b"counters\x03\0"),
            "expected at most 2 counters, for which the frame has room",
        ),
        (with(VALUES, b"counters\x02\0", b"counters\x01\0"), "expected no byte behind the frame's value, found 103"),
        (VALUES[..VALUES.len() - 1].to_vec(), "expected a number of 8 bytes, found the end of the frame"),
        (
            with(DESC, b"\x02\0\0\0j1", b"\x03\0\0\0j1"),
            "byte 62: expected the name of a field of at most 135 bytes, which the frame has, found 1,660,944,384",
        ),
    ] {
        assert!(fault(&frame).contains(expected), "{expected}: {}", fault(&frame));
    }
    let long = |bytes: usize| {
        let command = vec![b'x'; bytes];
        with(DESC, b"\x05\0\0\0./app", &[&(bytes as u32).to_le_bytes()[..], &command].concat())
    };
    let before = b"\x04\0\0\0Desc\x02\0\0\0\x02\0\0\0ts12345678\x04\0\0\0desc./app".len();
    let around = TRACE_DESC_BYTES_MAX - (DESC.len() - before);
    assert!(TraceFrame::decode(&long(around), 8).is_ok());
    assert!(fault(&long(around + 1)).contains("expected a description of at most 65,536 bytes, found 65,537"));
}

#[test]
fn frames_are_read_to_the_last_whole_one() {
    let file = framed(&[DESC, NAMED]);
    let first_end = 8 + DESC.len() as u64;
    for (length, last) in [
        (file.len(), FrameFound::End),
        (first_end as usize, FrameFound::End),
        (first_end as usize + 3, FrameFound::CutOff { at: first_end, expected: 8, found: 3 }),
        (
            file.len() - 1,
            FrameFound::CutOff { at: first_end, expected: 8 + NAMED.len() as u64, found: 7 + NAMED.len() as u64 },
        ),
    ] {
        let mut frames = TraceFrames::new(Cursor::new(&file[..length]));
        let first = frames.read().unwrap();
        assert_eq!(first, FrameFound::Frame { at: 8, bytes: DESC });
        let mut next = frames.read().unwrap();
        if length == file.len() {
            assert_eq!(next, FrameFound::Frame { at: first_end + 8, bytes: NAMED });
            next = frames.read().unwrap();
        }
        assert_eq!(next, last);
    }
}

#[test]
fn a_length_that_was_never_written_takes_no_memory() {
    for length in [TRACE_FRAME_BYTES_MAX + 1, u64::MAX] {
        let bytes = [&length.to_le_bytes()[..], b"xyz"].concat();
        let mut frames = TraceFrames::new(Cursor::new(&bytes));
        assert_eq!(frames.read().unwrap(), FrameFound::TooLong { at: 0, length });
    }
    let bytes = [&TRACE_FRAME_BYTES_MAX.to_le_bytes()[..], b"xyz"].concat();
    let mut frames = TraceFrames::new(Cursor::new(&bytes));
    let cut = FrameFound::CutOff { at: 0, expected: 8 + TRACE_FRAME_BYTES_MAX, found: 11 };
    assert_eq!(frames.read().unwrap(), cut, "as large as a frame may be, and the file is not");
}

#[test]
fn a_trace_is_known_by_its_first_bytes() {
    assert!(frames::is_start(&framed(&[DESC])));
    assert!(frames::is_start(&framed(&[DESC])[..16]));
    for other in [&framed(&[NAMED])[..], &framed(&[DESC])[..15], &[&[0xff; 8][..], DESC].concat(), b""] {
        assert!(!frames::is_start(other), "{other:?}");
    }
}

#[test]
fn counters_beyond_what_a_trace_may_have_are_refused_with_the_limit() {
    let name = |bytes: usize| refusal(7, &"n".repeat(bytes), "", 0, 0);
    assert_eq!(name(COUNTER_NAME_BYTES_MAX), None);
    let told = name(COUNTER_NAME_BYTES_MAX + 1).unwrap();
    assert_eq!(told, "the name of counter 7 has 1,601 bytes; expected at most 1,600");
    let doc = |bytes: usize| refusal(7, "n", &"d".repeat(bytes), 0, 0);
    assert_eq!(doc(COUNTER_DOC_BYTES_MAX), None);
    assert!(doc(COUNTER_DOC_BYTES_MAX + 1).unwrap().starts_with("the documentation of counter 7 has 4,097 bytes"));
    assert_eq!(refusal(7, "n", "", TRACE_COUNTERS_MAX - 1, 0), None);
    assert!(refusal(7, "n", "", TRACE_COUNTERS_MAX, 0).unwrap().contains("at most 1,000,000"));
    assert_eq!(refusal(7, "n", "", 0, TRACE_TEXTS_BYTES_MAX), None);
    assert!(refusal(7, "n", "", 0, TRACE_TEXTS_BYTES_MAX + 1).unwrap().contains("at most 67,108,864 bytes"));
}

/// Bytes of a trace of which some are others, fewer or more.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let frames = vec(prop::sample::select(std::vec![DESC, NAMED, VALUES]), 0..4);
    let wounds = vec((0_usize..1200, any::<u8>(), 0_u8..3), 0..4);
    (frames, wounds).prop_map(|(frames, wounds)| {
        let mut bytes = framed(&frames);
        for (at, byte, kind) in wounds.into_iter().filter(|_| !frames.is_empty()) {
            let at = at % bytes.len().max(1);
            match kind {
                0 if at < bytes.len() => bytes[at] = byte,
                1 => bytes.truncate(at),
                _ => bytes.insert(at, byte),
            }
        }
        bytes
    })
}

proptest! {
    #[test]
    fn any_bytes_are_read_to_their_end(bytes in prop_oneof![damaged(), vec(any::<u8>(), 0..300)]) {
        let _ = frames::is_start(&bytes);
        let mut frames = TraceFrames::new(Cursor::new(&bytes));
        let mut read = 0;
        while let FrameFound::Frame { at, bytes: frame } = frames.read().unwrap() {
            read += 8 + frame.len();
            prop_assert_eq!(at as usize + frame.len(), read);
            prop_assert!(read <= bytes.len());
            match TraceFrame::decode(frame, at) {
                Ok(TraceFrame::Values { values, .. }) => prop_assert!(values.count() * 73 <= frame.len()),
                Ok(_) => {}
                Err(fault) => prop_assert!(fault.to_string().starts_with("byte ")),
            }
        }
        let _ = TraceFrame::decode(&bytes, 8);
    }
}
