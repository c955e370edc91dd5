//! The input of a connection, cut into lines; a line that is too long is skipped, however long it is.

use bytes::{Buf, Bytes, BytesMut};

/// Most bytes that are asked for at once, and so what one batch of samples is made of.
const READ_BYTES_MAX: usize = 32 << 10;
/// Where there is room for fewer, more is made.
const READ_BYTES_MIN: usize = 4 << 10;

/// Bytes that came: lines that are complete, and the beginning of one that is not.
#[derive(Debug)]
pub struct Inbox {
    line_bytes_max: usize,
    /// Whole lines, the last line feed included, and nothing else.
    complete: Bytes,
    /// What came after them.
    rest: BytesMut,
    /// After the complete lines one is too long: what comes of it is thrown away.
    skipping: bool,
    /// It was not reported yet.
    untold: bool,
}

impl Inbox {
    pub fn new(first: BytesMut, line_bytes_max: usize) -> Self {
        let (complete, rest) = (Bytes::new(), first);
        let mut inbox = Self { line_bytes_max, complete, rest, skipping: false, untold: false };
        inbox.arrange();
        inbox
    }

    /// Where to put what comes next, once all lines were taken.
    pub fn room(&mut self) -> &mut BytesMut {
        if self.rest.capacity() - self.rest.len() < READ_BYTES_MIN {
            self.rest.reserve(READ_BYTES_MAX);
        }
        &mut self.rest
    }

    /// Finds the lines in what came.
    pub fn arrange(&mut self) {
        if self.skipping {
            let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') else { return self.rest.clear() };
            self.rest.advance(end + 1);
            self.skipping = false;
        }
        if let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') {
            self.complete = self.rest.split_to(end + 1).freeze();
        }
        // A carriage return may yet turn out to end the line.
        if self.rest.len() > self.line_bytes_max + 1 {
            self.rest.clear();
            (self.skipping, self.untold) = (true, true);
        }
    }

    /// The complete lines. Those that are not used come back by [`Inbox::give_back`].
    pub fn take(&mut self) -> Bytes {
        std::mem::take(&mut self.complete)
    }

    pub fn give_back(&mut self, lines: Bytes) {
        self.complete = lines;
    }

    /// Whether there is something to answer.
    pub fn has_more(&self) -> bool {
        !self.complete.is_empty() || self.untold
    }

    /// Whether a line that is too long follows the ones that were taken; true once.
    pub fn passed_over(&mut self) -> bool {
        std::mem::take(&mut self.untold)
    }

    /// Whether the last line never ended.
    pub fn is_torn(&self) -> bool {
        !self.skipping && !self.rest.is_empty()
    }
}

/// The first of some complete lines, without what ends it, and the others.
pub fn first(lines: &[u8]) -> (&[u8], &[u8]) {
    let end = lines.iter().position(|byte| *byte == b'\n').unwrap_or(lines.len());
    let (line, others) = (&lines[..end], lines.get(end + 1..).unwrap_or_default());
    (line.strip_suffix(b"\r").unwrap_or(line), others)
}

/// The word that a line begins with.
pub fn command(line: &[u8]) -> &[u8] {
    line.split(|byte| *byte == b' ').next().unwrap_or_default()
}
