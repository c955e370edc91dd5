//! The part of HTTP/1.1 that this client and sink need: keep-alive, and bodies with a length or in chunks.

use std::io::{BufRead, Read};

use crate::Failed;

/// Most bytes of a head, and of an answer that is kept to be shown.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// First line and what the headers say about the body.
#[derive(Debug, Default)]
pub struct Head {
    pub first: String,
    pub length: Option<u64>,
    pub chunked: bool,
    pub close: bool,
    pub expects: bool,
}

/// The head of a request or an answer; `None` when the other side is done.
///
/// # Errors
/// When the connection fails, or what comes is no HTTP.
pub fn head(from: &mut dyn BufRead) -> Result<Option<Head>, Failed> {
    let mut head = Head::default();
    let mut line = String::new();
    let mut bytes = 0;
    loop {
        line.clear();
        let got = from.read_line(&mut line)?;
        bytes += got;
        if got == 0 && bytes == 0 {
            return Ok(None);
        }
        if got == 0 || bytes > HEAD_BYTES_MAX {
            return Err(format!("a head that ends after {bytes} bytes: {:?}", head.first).into());
        }
        let text = line.trim_end();
        if head.first.is_empty() {
            text.clone_into(&mut head.first);
        } else if text.is_empty() {
            return Ok(Some(head));
        } else if let Some((name, value)) = text.split_once(':') {
            let value = value.trim();
            match &*name.to_ascii_lowercase() {
                "content-length" => head.length = Some(value.parse()?),
                "transfer-encoding" => head.chunked = value.eq_ignore_ascii_case("chunked"),
                "connection" => head.close = value.eq_ignore_ascii_case("close"),
                "expect" => head.expects = true,
                _ => {}
            }
        }
    }
}

/// Reads the body that belongs to `head` into `into`, which is emptied first.
///
/// # Errors
/// When the connection fails, or what comes is no body.
pub fn body(from: &mut dyn BufRead, head: &Head, into: &mut Vec<u8>) -> Result<(), Failed> {
    into.clear();
    if !head.chunked {
        from.take(head.length.unwrap_or(0)).read_to_end(into)?;
        return Ok(());
    }
    let mut line = String::new();
    loop {
        line.clear();
        from.read_line(&mut line)?;
        let size = u64::from_str_radix(line.trim().split(';').next().unwrap_or(""), 16)
            .map_err(|_| format!("no size of a chunk: {line:?}"))?;
        from.take(size).read_to_end(into)?;
        line.clear();
        from.read_line(&mut line)?;
        if size == 0 {
            return Ok(());
        }
    }
}
