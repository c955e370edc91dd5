//! Which protocol a client speaks, decided by the first byte that it sends.
//!
//! HTTP requests begin with the name of a method, in capitals; commands of OpenTSDB's telnet do not. That one byte
//! decides, as in OpenTSDB, so a request that arrives byte by byte is recognised as well. The client protocol begins with
//! a byte that no text has, and Metric Proxy's clients send JSON values, which begin with a brace. Other input that does not begin as text is refused by HTTP at once; otherwise a client that tries TLS where there is none would wait for ever for an
//! answer to a line without end. HTTP/2 is distinguished from HTTP/1 by its preface.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use telem_ingest::decode::frames::MAGIC;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// Most bytes that are read before their protocol is known.
const FIRST_BYTES_MAX: usize = 4 << 10;

/// What every client of HTTP/2 sends first (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The type of the record that begins a handshake (RFC 8446 §5.1).
const TLS_HANDSHAKE: u8 = 0x16;
/// The first byte of the client protocol, which begins no text of UTF-8.
const FRAMES: u8 = MAGIC[0];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstByte {
    Http,
    /// Lines of text.
    Lines,
    /// Frames of the client protocol.
    Frames,
    /// JSON values.
    Values,
}

/// What a client speaks whose first byte is `first`.
pub fn first_byte(first: u8) -> FirstByte {
    match first {
        b'\r' | b'\n' => FirstByte::Lines,
        b'A'..=b'Z' | 0..=0x1F => FirstByte::Http,
        FRAMES => FirstByte::Frames,
        b'{' => FirstByte::Values,
        _ => FirstByte::Lines,
    }
}

/// The first bytes that come, whatever they are; none when the client has nothing to say.
///
/// # Errors
/// Those of the connection.
pub async fn first_bytes(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<BytesMut> {
    let mut first = BytesMut::with_capacity(FIRST_BYTES_MAX);
    stream.read_buf(&mut first).await?;
    Ok(first)
}

/// Whether a client wants TLS whose first byte is `first`.
pub fn is_tls(first: u8) -> bool {
    first == TLS_HANDSHAKE
}

/// Whether a client of HTTP speaks version 2; reads on into `first` until that is plain.
///
/// # Errors
/// Those of the connection.
pub async fn is_http2(stream: &mut (impl AsyncRead + Unpin), first: &mut BytesMut) -> io::Result<bool> {
    while first.len() < PREFACE.len() && PREFACE.starts_with(first) {
        if stream.read_buf(first).await? == 0 {
            return Ok(false);
        }
    }
    Ok(first.starts_with(PREFACE))
}

/// A stream of which the first bytes were taken, and are there again.
#[derive(Debug)]
pub struct Whole<S> {
    first: BytesMut,
    rest: S,
}

impl<S> Whole<S> {
    pub fn new(first: BytesMut, rest: S) -> Self {
        Self { first, rest }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Whole<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.first.is_empty() {
            return Pin::new(&mut self.rest).poll_read(cx, buf);
        }
        let bytes = self.first.len().min(buf.remaining());
        buf.put_slice(&self.first[..bytes]);
        self.first.advance(bytes);
        if self.first.is_empty() {
            // Their room, which is small only as long as few connections are open.
            self.first = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Whole<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.rest).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.rest).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.rest.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.rest).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.rest).poll_shutdown(cx)
    }
}
