//! No bytes make a decoder panic, hang or give what is not there.

use std::io::Cursor;

use proptest::collection::vec;
use proptest::prelude::*;

use super::leveldb::{LogReader, LogRecord};
use super::{json, tensorboard, wandb};
use crate::cli::tfrecord::{self, FramedRecord};

/// Bytes among which those of protobuf's keys and lengths are frequent.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let byte =
        prop_oneof![any::<u8>(), 0_u8..8, prop::sample::select(vec![0x0a, 0x09, 0x10, 0x2a, 0x42, 0x1a, 0x08, 0x82])];
    vec(byte, 0..300)
}

/// Text among which that of JSON is frequent.
fn text() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "{",
        "}",
        "\"a\"",
        ":",
        ",",
        "1",
        "NaN",
        "-Infinity",
        "\"",
        "\\",
        "[",
        "]",
        "é",
        " ",
        "1e5",
        "null",
        "\"b\":{",
    ]);
    vec(piece, 0..40).prop_map(|pieces| format!("{{{}", pieces.concat()))
}

proptest! {
    #[test]
    fn records_of_any_bytes_are_read_to_their_end(bytes in bytes(), at in 0_usize..400, flip in 1_u8..) {
        let _ = tensorboard::looked_at(bytes.clone());
        let _ = wandb::looked_at(&bytes);
        let mut framed = Vec::new();
        tfrecord::write(&mut framed, &bytes).unwrap();
        if let Some(byte) = framed.get_mut(at) {
            *byte ^= flip;
        }
        let mut from = Cursor::new(&framed);
        let mut found = 0;
        while matches!(tfrecord::read(&mut from).unwrap(), FramedRecord::Record(_) | FramedRecord::Broken) {
            found += 1;
            prop_assert!(found <= framed.len());
        }
    }

    #[test]
    fn logs_of_any_bytes_are_read_to_their_end(bytes in bytes()) {
        let mut log = b":W&B\xe1\xbe\0".to_vec();
        log.extend_from_slice(&bytes);
        let mut reader = LogReader::new(Cursor::new(&log)).unwrap();
        let mut found = 0;
        while matches!(reader.next().unwrap(), LogRecord::Record(_) | LogRecord::Broken(_)) {
            found += 1;
            prop_assert!(found <= log.len());
        }
    }

    #[test]
    fn lines_of_any_text_are_fields_or_a_reason(text in text()) {
        if let Err(why) = json::looked_at(text.as_bytes()) {
            prop_assert!(!why.is_empty());
        }
    }
}
