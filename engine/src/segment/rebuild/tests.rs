use std::path::PathBuf;

use super::*;
use crate::error::ErrorKind;

/// Files at which the reader of Parquet panics: a fuzzer made them, each behind the number of its rows.
fn unbearable() -> Vec<(PathBuf, Bytes)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz/regressions/segment");
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    files.map(|path| (path.clone(), Bytes::from(std::fs::read(&path).unwrap()).slice(4..))).collect()
}

#[test]
fn a_segment_at_which_the_reader_of_parquet_panics_is_corrupt_and_ends_nothing() {
    let mut panics = 0;
    for (path, bytes) in unbearable() {
        let error = match label(&path, &bytes) {
            Ok(label) => rewrite(&path, &bytes, &label).unwrap_err(),
            Err(error) => error,
        };
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        panics += usize::from(error.to_string().contains("what its reader does not expect"));
    }
    assert!(panics > 0, "none of them makes the reader panic any more");
}
