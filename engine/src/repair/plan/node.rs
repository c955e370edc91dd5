//! The node of a database, as its segments name it.

use bytes::Bytes;

use super::FILE_BYTES_MAX;
use crate::disk::{self, Disk};
use crate::layout::Layout;
use crate::manifest::SegmentEntry;
use crate::segment::rebuild;

pub(super) fn node_of(disk: &dyn Disk, layout: &Layout, entry: &SegmentEntry) -> Option<String> {
    let path = layout.named(&entry.file.file);
    let bytes = disk::read_file(disk, &path, FILE_BYTES_MAX).ok()?;
    rebuild::label(&path, &Bytes::from(bytes)).ok().map(|label| label.node)
}

pub(super) fn is_node_name(text: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !text.is_empty() && text.len() <= 255 && text.bytes().all(good)
}
