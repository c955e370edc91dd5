//! The fuzz target of manifests.

use std::path::Path;

use super::{FORMAT, MAGIC, Manifest};
use crate::error::Error;
use crate::fuzzing::files::Files;

/// What starts as a first line does is a whole manifest; anything else is the JSON of one, which gets its first line
/// here. Any bytes are an error or a manifest that is read back as it is written; a database may be opened on it.
pub fn manifest(bytes: &[u8]) {
    let sealed;
    let bytes = if bytes.starts_with(b"telem-") {
        bytes
    } else {
        let head = format!("{MAGIC} {FORMAT} {:08x} {}\n", crc32fast::hash(bytes), bytes.len());
        sealed = [head.as_bytes(), bytes].concat();
        &sealed
    };
    let path = Path::new("MANIFEST");
    let read = match Manifest::decode(path, bytes) {
        Ok(manifest) => {
            let written = manifest.encode().expect("what was read can be written");
            let again = Manifest::decode(path, &written).expect("what was written can be read");
            assert_eq!(again, manifest);
            assert_eq!(again.encode().ok(), Some(written));
            Some(manifest)
        }
        Err(error) => {
            check_error(&error, bytes);
            None
        }
    };
    match Files::new([("MANIFEST", bytes)]).database() {
        Ok(db) => {
            let manifest = read.expect("a database opens on a manifest");
            assert!(manifest.series.is_empty() && manifest.meta.is_none(), "there are no such files");
            assert!(db.info().is_ok() && db.snapshot().index().is_empty());
        }
        Err(Error::Internal { what }) => panic!("{what}"),
        Err(_) => {}
    }
}

/// The manifest of a database without files.
pub fn empty() -> Vec<u8> {
    let manifest = Manifest::new("fuzz".to_owned(), "fuzz".to_owned());
    manifest.encode().expect("a manifest is JSON")
}

/// It says what is wrong with which file; where the JSON is wrong, at a line and column that are there.
fn check_error(error: &Error, bytes: &[u8]) {
    let text = error.to_string();
    assert!(text.starts_with("MANIFEST ") || text.starts_with("MANIFEST:"), "{text}");
    assert!(text.len() < 2_048, "an error of {} bytes", text.len());
    let Error::Corrupt { what, found, .. } = error else {
        assert!(matches!(error, Error::Format { .. } | Error::Unfinished { .. }), "{error:?}");
        return;
    };
    let place = found.rsplit_once(" at line ").and_then(|(_, place)| place.split_once(" column "));
    if let (true, Some((line, column))) = (what == "its JSON", place) {
        let (line, column): (usize, usize) = (line.parse().expect("a number"), column.parse().expect("a number"));
        // The first line of the file precedes the JSON.
        let found = bytes.split(|byte| *byte == b'\n').nth(line).expect("the line is there");
        assert!(column <= found.len() + 1, "column {column} of {}: {text}", found.len());
    }
}
