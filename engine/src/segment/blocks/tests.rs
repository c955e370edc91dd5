//! What is read along, and that it is the same bytes.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::disk::InMemory;

/// A file that counts how often it is read.
#[derive(Debug)]
struct CountingFile {
    file: InMemory<Vec<u8>>,
    reads: AtomicUsize,
}

impl ReadFile for CountingFile {
    fn len(&self) -> u64 {
        self.file.len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.file.read_at(offset, buffer)
    }
}

/// Data of so many blocks and no footer.
fn file(blocks: usize) -> (Vec<u8>, Arc<CountingFile>, Blocks) {
    let data: Vec<u8> = (0..blocks * BLOCK_BYTES).map(|at| (at * 31 / 7) as u8).collect();
    let file = Arc::new(CountingFile { file: InMemory(data.clone()), reads: AtomicUsize::new(0) });
    let (held, sums) = (Arc::clone(&file) as Arc<dyn ReadFile>, checksums(&data));
    let blocks = Blocks::new(PathBuf::from("a segment"), held, sums, data.len() as u64, Bytes::new());
    (data, file, blocks)
}

#[test]
fn pages_up_to_where_all_will_be_asked_for_come_in_one_read() {
    let (data, file, blocks) = file(8);
    let ahead = ReadAhead::new(blocks);
    ahead.until(5 * 10_000);
    for at in (0..50_000).step_by(10_000) {
        assert_eq!(ahead.get_bytes(at as u64, 10_000).unwrap(), data[at..at + 10_000]);
    }
    assert_eq!(file.reads.load(Ordering::Relaxed), 1);
    assert_eq!(ahead.get_bytes(60_000, 10_000).unwrap(), data[60_000..70_000]);
    assert_eq!(file.reads.load(Ordering::Relaxed), 2, "nobody said that it would be asked for");
}

#[test]
fn no_more_is_read_along_than_may_be_held() {
    let (data, file, blocks) = file(40);
    let ahead = ReadAhead::new(blocks);
    ahead.until(data.len() as u64);
    for at in (0..data.len()).step_by(BLOCK_BYTES) {
        assert_eq!(ahead.get_bytes(at as u64, BLOCK_BYTES).unwrap(), data[at..at + BLOCK_BYTES]);
    }
    assert_eq!(file.reads.load(Ordering::Relaxed), data.len().div_ceil(AHEAD_BYTES_MAX as usize));
}

#[test]
fn what_is_longer_than_what_was_announced_comes_whole() {
    let (data, _, blocks) = file(4);
    let ahead = ReadAhead::new(blocks);
    ahead.until(100);
    assert_eq!(ahead.get_bytes(0, 40_000).unwrap(), data[..40_000]);
}
