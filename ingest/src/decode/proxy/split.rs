//! Bytes of a stream, cut into messages at the zero bytes between them.

use bytes_left::UnfinishedMessage;

use super::MESSAGE_BYTES_MAX;

/// What is between two zero bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessagePiece<'a> {
    Message(&'a [u8]),
    /// A message of more than [`MESSAGE_BYTES_MAX`], of which nothing was kept.
    TooLong,
}

/// Cuts a stream that comes in parts of any size. It keeps the beginning of one message at most.
#[derive(Debug, Default)]
pub struct MessageSplitter {
    unfinished: UnfinishedMessage,
}

impl MessageSplitter {
    /// Calls `each` for every message that ends in `bytes`, in order.
    pub fn split(&mut self, mut bytes: &[u8], mut each: impl FnMut(MessagePiece<'_>)) {
        while let Some(end) = memchr::memchr(0, bytes) {
            let (head, rest) = (&bytes[..end], &bytes[end + 1..]);
            match self.unfinished.take(head) {
                Some(whole) => each(if whole.len() > MESSAGE_BYTES_MAX {
                    MessagePiece::TooLong
                } else {
                    MessagePiece::Message(whole)
                }),
                None => each(MessagePiece::TooLong),
            }
            self.unfinished.clear();
            bytes = rest;
        }
        self.unfinished.keep(bytes);
    }

    /// Whether the stream stopped within a message.
    pub fn is_within(&self) -> bool {
        !self.unfinished.is_empty()
    }
}

/// The beginning of a message.
mod bytes_left {
    use super::MESSAGE_BYTES_MAX;

    #[derive(Debug, Default)]
    pub struct UnfinishedMessage {
        bytes: Vec<u8>,
        is_too_long: bool,
    }

    impl UnfinishedMessage {
        /// The whole message whose last part is `end`; `None` if it was too long to be kept.
        pub fn take<'a>(&'a mut self, end: &'a [u8]) -> Option<&'a [u8]> {
            if self.is_too_long {
                return None;
            }
            if self.bytes.is_empty() {
                return Some(end);
            }
            self.bytes.extend_from_slice(end);
            Some(&self.bytes)
        }

        pub fn keep(&mut self, bytes: &[u8]) {
            if self.is_too_long || self.bytes.len() + bytes.len() > MESSAGE_BYTES_MAX {
                self.is_too_long = true;
                self.bytes = Vec::new();
            } else {
                self.bytes.extend_from_slice(bytes);
            }
        }

        pub fn clear(&mut self) {
            self.bytes.clear();
            self.is_too_long = false;
        }

        pub fn is_empty(&self) -> bool {
            self.bytes.is_empty() && !self.is_too_long
        }
    }
}
