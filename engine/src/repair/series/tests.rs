use super::*;
use crate::error::ErrorKind;

fn regressions(target: &str) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz/regressions").join(target);
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    files.map(|path| (path.clone(), std::fs::read(&path).unwrap())).collect()
}

/// What a fuzzer made of segments, each behind four bytes: Parquet all the same, and whoever looks for keys opens it.
#[test]
fn a_series_file_at_which_the_reader_of_parquet_panics_is_corrupt_and_ends_nothing() {
    let mut panics = 0;
    for (path, bytes) in regressions("segment") {
        for error in [read(&path, &bytes[4..]).unwrap_err(), decode(&path, &bytes[4..], 0, 1).unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            panics += usize::from(error.to_string().contains("what its reader does not expect"));
        }
    }
    assert!(panics > 0, "none of them makes the reader panic any more");
}

/// Arrow's reader of it would panic; Parquet's own says what is wrong.
#[test]
fn a_schema_of_arrow_in_a_series_file_is_not_looked_at() {
    for (path, bytes) in regressions("series_file") {
        let error = read(&path, &bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(!error.to_string().contains("what its reader does not expect"), "{error}");
    }
}
