//! Messages there and back, and broken ones.

use super::*;

#[test]
fn what_is_written_is_read() {
    let mut inner = ProtoWriter::default();
    inner.int(1, -1);
    let mut message = ProtoWriter::default();
    message.int(1, 300);
    message.double(2, 0.1);
    message.bytes(3, b"text");
    message.message(2_000, inner);
    let bytes = message.into_bytes();
    let fields: Vec<(u32, ProtoValue<'_>)> = ProtoFields::of(&bytes).map(Result::unwrap).collect();
    assert_eq!(fields.len(), 4);
    assert_eq!((fields[0], fields[0].1.int()), ((1, ProtoValue::Varint(300)), 300));
    assert_eq!((fields[1].0, fields[1].1.float()), (2, 0.1));
    assert_eq!((fields[2].0, fields[2].1.text()), (3, "text".to_owned()));
    let inner = ProtoFields::of(fields[3].1.bytes()).next().unwrap().unwrap();
    assert_eq!((fields[3].0, inner.1.int()), (2_000, -1));
}

#[test]
fn a_message_that_is_cut_anywhere_is_noticed_or_ends_between_fields() {
    let mut message = ProtoWriter::default();
    message.bytes(1, b"abc");
    message.double(2, 1.0);
    let bytes = message.into_bytes();
    for cut in 0..bytes.len() {
        let read: Result<Vec<_>, _> = ProtoFields::of(&bytes[..cut]).collect();
        assert_eq!(read.is_ok(), cut == 0 || cut == 5, "{cut}");
    }
    for broken in [&[0x0b][..], &[0x80; 12], &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]] {
        assert_eq!(ProtoFields::of(broken).collect::<Vec<_>>(), [Err(NoMessage)]);
    }
}
