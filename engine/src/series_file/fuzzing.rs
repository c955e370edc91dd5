//! Series files.

use std::path::Path;

use crate::error::{Error, Result};
use crate::series::{SeriesId, SeriesKey};

/// Any bytes are an error or an increment that is read back as it is written.
pub fn series_file(bytes: &[u8]) {
    let mut keys = Vec::new();
    let wrong_count = read(bytes, u32::MAX, &mut keys);
    assert!(wrong_count.is_err(), "no input has that many");
    if matches!(wrong_count, Err(Error::Internal { .. })) {
        panic!("{wrong_count:?}");
    }
    let mut again = Vec::new();
    let count = u32::try_from(keys.len()).expect("no input has that many");
    if read(bytes, count, &mut again).is_err() {
        return;
    }
    assert_eq!(keys, again);
    let plain: Vec<SeriesKey> = keys.iter().map(|(_, key)| key.clone()).collect();
    let written = super::encode(0, &plain).expect("keys that were read can be written");
    let mut written_back = Vec::new();
    read(&written, count, &mut written_back).expect("what was written can be read");
    assert_eq!(written_back, keys);
}

fn read(bytes: &[u8], count: u32, keys: &mut Vec<(SeriesId, SeriesKey)>) -> Result<()> {
    super::decode(Path::new("series/000001.parquet"), bytes.to_vec(), 0, count, |id, key| {
        keys.push((id, key));
        Ok(())
    })
}
