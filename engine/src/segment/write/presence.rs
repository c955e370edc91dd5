//! Which rows of a column have a value, as Parquet's definition levels of one bit.

use crate::segment::varint;

/// Rows that are packed into a byte.
const GROUP: usize = 8;
/// Groups behind one header: with one more the header would have two bytes.
const GROUPS_MAX: usize = 63;

/// Stretches of rows that have a value or have none, by turns.
#[derive(Clone, Debug, Default)]
pub struct RowPresence {
    stretches: Vec<(bool, usize)>,
}

impl RowPresence {
    pub fn push(&mut self, present: bool, rows: usize) {
        match self.stretches.last_mut() {
            _ if rows == 0 => {}
            Some((before, count)) if *before == present => *count += rows,
            _ => self.stretches.push((present, rows)),
        }
    }

    pub fn clear(&mut self) {
        self.stretches.clear();
    }

    /// Appends the levels to `bytes`: eight or more rows alike that begin a group as their number, others packed.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        let mut packed = PackedGroups::default();
        let (mut group, mut len) = (0_u8, 0);
        for (present, rows) in &self.stretches {
            let mut left = *rows;
            let bits = |count: usize, at: usize| if *present { ((1_u16 << count) - 1) << at } else { 0 } as u8;
            if len > 0 {
                let count = left.min(GROUP - len);
                group |= bits(count, len);
                len += count;
                left -= count;
                if len == GROUP {
                    packed.push(group, bytes);
                    (group, len) = (0, 0);
                }
            }
            if left >= GROUP {
                packed.close(bytes);
                put_stretch(*present, left, bytes);
            } else if left > 0 {
                (group, len) = (bits(left, 0), left);
            }
        }
        if len > 0 && packed.groups == 0 && (group == 0 || u16::from(group) + 1 == 1 << len) {
            put_stretch(group != 0, len, bytes);
        } else if len > 0 {
            packed.push(group, bytes);
        }
        packed.close(bytes);
    }
}

fn put_stretch(present: bool, rows: usize, bytes: &mut Vec<u8>) {
    varint::put(bytes, (rows as u64) << 1);
    bytes.push(u8::from(present));
}

/// Groups of rows behind a header that says how many they are.
#[derive(Default)]
struct PackedGroups {
    header: usize,
    groups: usize,
}

impl PackedGroups {
    fn push(&mut self, group: u8, bytes: &mut Vec<u8>) {
        if self.groups == 0 {
            self.header = bytes.len();
            bytes.push(0);
        }
        bytes.push(group);
        self.groups += 1;
        if self.groups == GROUPS_MAX {
            self.close(bytes);
        }
    }

    fn close(&mut self, bytes: &mut [u8]) {
        if self.groups > 0 {
            bytes[self.header] = (self.groups as u8) << 1 | 1;
            self.groups = 0;
        }
    }
}
