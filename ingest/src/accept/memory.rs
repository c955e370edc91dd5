//! The memories of the decoders whose formats repeat names.

use super::lines::LineSeries;
use super::points::PointSeries;
use crate::default_tags::DefaultTags;
use crate::known::Keys;

/// What one decoder remembers, for each format.
#[derive(Debug)]
pub struct DecoderMemory {
    pub lines: Keys<LineSeries>,
    /// Also of `put` lines: the key of a point begins with a quote, which no metric may hold.
    pub points: Keys<PointSeries>,
}

impl DecoderMemory {
    /// Takes about `bytes_max` at most for each format.
    pub fn new(bytes_max: usize) -> Self {
        Self { lines: Keys::new(bytes_max), points: Keys::new(bytes_max) }
    }

    /// About what it takes in memory.
    pub fn bytes(&self) -> usize {
        self.lines.bytes() + self.points.bytes()
    }

    /// What comes now is of a sender whose samples get `tags` where they lack them.
    pub fn serve(&mut self, tags: &DefaultTags) {
        self.lines.serve(tags);
        self.points.serve(tags);
    }
}
