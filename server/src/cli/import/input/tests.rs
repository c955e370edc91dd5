//! Formats by their first bytes, and names of runs.

use super::*;
use crate::cli::import::file::title;

#[test]
fn formats_are_told_by_the_first_bytes() {
    let mut event = Vec::new();
    tfrecord::write(&mut event, b"event").unwrap();
    for (start, expected) in [
        (&b"PAR1\x15"[..], ImportFormat::Parquet),
        (b"ARROW1\0\0", ImportFormat::Arrow),
        (b"\xff\xff\xff\xff\x10", ImportFormat::Arrow),
        (b":W&B\xe1\xbe\0", ImportFormat::Wandb),
        (&event, ImportFormat::Tensorboard),
        (b"\x99\0\0\0\0\0\0\0\x04\0\0\0Desc\x02\0\0\0", ImportFormat::Trace),
        (b"\xef\xbb\xbf\n {\"a\": 1}", ImportFormat::Jsonl),
        (b"ts,x\n", ImportFormat::Csv),
    ] {
        assert_eq!(format_of(start), Ok(expected), "{start:?}");
    }
    for start in [&b""[..], b" \n", b"[1]", b"\x7fELF\0\0"] {
        assert!(format_of(start).is_err(), "{start:?}");
    }
}

#[test]
fn a_run_is_called_by_its_file_or_by_the_directory_of_its_logs() {
    for (path, expected) in [
        ("/a/train.csv", "train"),
        ("/a/train.v2.csv.gz", "train.v2"),
        ("/a/.csv", ".csv"),
        ("/a/b/events.out.tfevents.1.host.0", "b"),
        ("/a/log", "log"),
    ] {
        assert_eq!(title(Path::new(path)), expected);
    }
}
