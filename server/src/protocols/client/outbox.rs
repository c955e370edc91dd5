//! The frames of the service, as bytes on their way to the client.

use bytes::BytesMut;

use super::{Farewell, RefusalCode};

/// Types of frames of the service.
pub mod kind {
    pub const WELCOME: u8 = 128;
    pub const ACK: u8 = 129;
    pub const REFUSED: u8 = 130;
    pub const FLUSHED: u8 = 131;
    pub const COLUMNS: u8 = 132;
    pub const ROWS: u8 = 133;
    pub const END: u8 = 134;
    pub const GOODBYE: u8 = 135;
}

/// How the answer to a query ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerEnd {
    Whole = 0,
    WithoutNodes = 1,
    Error = 2,
}

/// What stands in place of the number of a series where there is none.
pub const NO_SERIES: u32 = u32::MAX;

/// What a client is welcomed with.
#[derive(Clone, Copy, Debug)]
pub struct Welcome<'a> {
    pub version: u16,
    pub level: u8,
    pub series_max: u32,
    pub node: &'a str,
    pub job: &'a str,
}

/// Frames that were not sent yet.
#[derive(Debug, Default)]
pub struct Outbox {
    pub bytes: BytesMut,
}

impl Outbox {
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Gives back the room of what was sent.
    pub fn tidy(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = BytesMut::new();
        }
    }

    /// A frame that is whole.
    pub fn frame(&mut self, frame: &[u8]) {
        self.bytes.extend_from_slice(frame);
    }

    pub fn welcome(&mut self, welcome: Welcome<'_>) {
        let mut body = Vec::new();
        body.extend_from_slice(&welcome.version.to_le_bytes());
        body.extend_from_slice(&[welcome.level, 0]);
        body.extend_from_slice(&welcome.series_max.to_le_bytes());
        put_text(&mut body, welcome.node);
        put_text(&mut body, welcome.job);
        self.put(kind::WELCOME, &body);
    }

    pub fn ack(&mut self, sequence: u64, stored: u64, refused: u64) {
        let mut body = [0; 24];
        body[..8].copy_from_slice(&sequence.to_le_bytes());
        body[8..16].copy_from_slice(&stored.to_le_bytes());
        body[16..].copy_from_slice(&refused.to_le_bytes());
        self.put(kind::ACK, &body);
    }

    pub fn refused(&mut self, sequence: u64, series: u32, samples: u64, code: RefusalCode, reason: &str) {
        let mut body = Vec::new();
        body.extend_from_slice(&sequence.to_le_bytes());
        body.extend_from_slice(&series.to_le_bytes());
        body.extend_from_slice(&samples.to_le_bytes());
        body.extend_from_slice(&(code as u16).to_le_bytes());
        put_text(&mut body, reason);
        self.put(kind::REFUSED, &body);
    }

    pub fn flushed(&mut self, number: u64) {
        self.put(kind::FLUSHED, &number.to_le_bytes());
    }

    pub fn end(&mut self, number: u32, end: AnswerEnd, text: &str) {
        self.frame(&end_frame(number, end, text));
    }

    pub fn goodbye(&mut self, farewell: &Farewell) {
        let mut body = (farewell.code as u16).to_le_bytes().to_vec();
        put_text(&mut body, &farewell.reason);
        self.put(kind::GOODBYE, &body);
    }

    fn put(&mut self, kind: u8, body: &[u8]) {
        self.bytes.extend_from_slice(&head(kind, body.len()));
        self.bytes.extend_from_slice(body);
    }
}

/// The end of an answer.
pub fn end_frame(number: u32, end: AnswerEnd, text: &str) -> Vec<u8> {
    let text = shortened(text, super::limits::ROWS_BYTES);
    let mut frame = head(kind::END, 4 + 1 + 4 + text.len()).to_vec();
    frame.extend_from_slice(&number.to_le_bytes());
    frame.push(end as u8);
    frame.extend_from_slice(&length(text.len()).to_le_bytes());
    frame.extend_from_slice(text.as_bytes());
    frame
}

/// The head of a frame; callers keep to the longest that there may be.
pub fn head(kind: u8, body: usize) -> [u8; 8] {
    let mut head = [0; 8];
    head[..4].copy_from_slice(&length(body).to_le_bytes());
    head[4] = kind;
    head
}

fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// A text, cut where it is longer than its length can say.
pub fn put_text(out: &mut Vec<u8>, text: &str) {
    let text = shortened(text, usize::from(u16::MAX));
    out.extend_from_slice(&(text.len() as u16).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn shortened(text: &str, bytes_max: usize) -> &str {
    if text.len() <= bytes_max {
        return text;
    }
    let end = (0..=bytes_max).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}
