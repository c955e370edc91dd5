//! A page's claims about itself are checked before it is decompressed.

use std::io::Write;

use bytes::Bytes;

use super::{joined, unpack};

fn page(levels: &[u8], packed: &[u8]) -> Bytes {
    [levels, packed].concat().into()
}

#[test]
fn levels_are_not_packed_and_values_are() {
    let values: Vec<u8> = (0..60_000_u32).flat_map(u32::to_le_bytes).collect();
    let packed = zstd::bulk::compress(&values, 1).unwrap();
    assert_eq!(unpack(&page(b"levels", &packed), 6, 0).unwrap(), [b"levels", &*values].concat());
    assert_eq!(unpack(&page(b"", &packed), 0, 0).unwrap(), values);
}

#[test]
fn a_page_without_values_is_its_levels() {
    assert_eq!(unpack(&page(b"levels", b""), 6, 0).unwrap(), &b"levels"[..]);
    let nothing = zstd::bulk::compress(b"", 1).unwrap();
    assert_eq!(unpack(&page(b"levels", &nothing), 6, 0).unwrap(), &b"levels"[..]);
}

#[test]
fn what_was_packed_without_its_size_is_unpacked() {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    encoder.write_all(&[7; 100_000]).unwrap();
    let packed = encoder.finish().unwrap();
    assert_eq!(zstd::zstd_safe::get_frame_content_size(&packed).unwrap(), None);
    assert_eq!(unpack(&page(b"x", &packed), 1, 0).unwrap(), [&b"x"[..], &[7; 100_000]].concat());
}

#[test]
fn a_page_that_says_it_is_larger_than_its_bytes_can_be_is_an_error_and_takes_no_memory() {
    // A frame with a content size of eight bytes, and a last block that is raw and empty.
    let mut packed = vec![0x28, 0xb5, 0x2f, 0xfd, 0b1110_0000];
    packed.extend_from_slice(&(1_u64 << 60).to_le_bytes());
    packed.extend_from_slice(&[1, 0, 0]);
    assert_eq!(zstd::zstd_safe::get_frame_content_size(&packed).unwrap(), Some(1 << 60));
    assert!(unpack(&page(b"", &packed), 0, 0).is_err());
}

#[test]
fn levels_that_are_longer_than_their_page_and_torn_values_are_errors() {
    assert!(unpack(&page(b"levels", b""), 7, 0).unwrap_err().to_string().contains("levels of 7 bytes in a page of 6"));
    let packed = zstd::bulk::compress(&[7; 1_000], 1).unwrap();
    for len in 1..packed.len() {
        assert!(unpack(&page(b"", &packed[..len]), 0, 0).is_err(), "{len}");
    }
    assert!(unpack(&page(b"", b"no frame at all"), 0, 0).is_err());
}

#[test]
fn a_thread_goes_on_unpacking_after_an_error() {
    let packed = zstd::bulk::compress(&[7; 1_000], 1).unwrap();
    assert!(unpack(&page(b"", &packed[..packed.len() - 1]), 0, 0).is_err());
    assert_eq!(unpack(&page(b"", &packed), 0, 0).unwrap(), vec![7; 1_000]);
}

#[test]
fn rows_that_follow_each_other_are_read_in_one_go() {
    assert_eq!(joined(&[0..3, 3..5, 6..7, 7..9, 12..13]), [0..5, 6..9, 12..13]);
}
