//! Pages of memtables, from which blocks of samples are cut.

/// Entries of a page: 64 KiB.
pub const PAGE: usize = 4 << 10;
/// Those that have room. An allocator that adds a few bytes to what it is asked for would make 80 KiB of 64.
pub const PAGE_ROOM: usize = PAGE - 1;

/// A sample, or the head of a block: see [`ChainEntry::head`].
#[derive(Clone, Copy, Debug, Default)]
pub struct ChainEntry {
    pub bits: u64,
    /// Microseconds from the time in the block's head: 35 minutes both ways.
    pub offset: i32,
    /// With the type of the value in its top bit.
    pub row: u32,
}

impl ChainEntry {
    /// Of a block that starts at this time. Where the next block is and how many samples are in this one stands in
    /// `offset` and `row` once there is a next.
    pub fn head(base: i64) -> Self {
        Self { bits: base.cast_unsigned(), offset: 0, row: 0 }
    }
}

/// Room for [`PAGE_ROOM`] entries.
#[derive(Debug)]
pub struct ChainPage(pub Vec<ChainEntry>);

impl ChainPage {
    pub const BYTES: usize = PAGE_ROOM * size_of::<ChainEntry>();

    pub fn new() -> Self {
        Self(Vec::with_capacity(PAGE_ROOM))
    }

    /// The same room without the entries.
    pub fn emptied(mut self) -> Self {
        self.0.clear();
        self
    }
}
