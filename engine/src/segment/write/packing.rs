//! How hard pages are packed.

/// How much work packing is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// What one flush writes, most of which a merge replaces soon.
    Quick,
    /// What a merge writes, which stays: a hundredth smaller for a seventh more of a merge's time.
    Dense,
}

impl Packing {
    /// Of zstd, as docs/format says.
    pub const fn level(self) -> i32 {
        match self {
            Self::Quick => 1,
            Self::Dense => 4,
        }
    }
}
