//! Records there and back, cut and damaged.

use super::*;

fn records(mut bytes: &[u8]) -> Vec<FramedRecord> {
    let mut found = Vec::new();
    loop {
        let record = read(&mut bytes).unwrap();
        let is_last = !matches!(record, FramedRecord::Record(_) | FramedRecord::Broken);
        found.push(record);
        if is_last {
            return found;
        }
    }
}

#[test]
fn the_checksum_is_that_of_castagnoli() {
    // The check value of the catalogue of CRCs, and RFC 3720's of 32 zeros.
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
}

#[test]
fn a_record_that_is_cut_or_damaged_is_named_and_those_before_it_are_read() {
    let mut bytes = Vec::new();
    for data in [&b"first"[..], b"", b"third"] {
        write(&mut bytes, data).unwrap();
    }
    let good = |data: &[u8]| FramedRecord::Record(data.to_vec());
    assert_eq!(records(&bytes), [good(b"first"), good(b""), good(b"third"), FramedRecord::End]);
    for cut in 38..bytes.len() {
        assert_eq!(records(&bytes[..cut]), [good(b"first"), good(b""), FramedRecord::CutOff], "{cut}");
    }
    let damaged = |at: usize| {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1;
        records(&bytes)
    };
    assert_eq!(damaged(12), [FramedRecord::Broken, good(b""), good(b"third"), FramedRecord::End]);
    assert_eq!(damaged(18), [FramedRecord::Broken, good(b""), good(b"third"), FramedRecord::End]);
    assert_eq!(damaged(3), [FramedRecord::Lost]);
    assert_eq!(damaged(24), [good(b"first"), FramedRecord::Lost]);
}
