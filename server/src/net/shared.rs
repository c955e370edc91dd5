//! A stream that can tell, beside its reader and writer, whether its client is still connected.
//!
//! A reader of HTTP/1 reads on only when it wants the next request. While a request that was sent ahead waits, the
//! reader does not notice that the client is gone.

use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BufMut;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};
use tokio::net::{TcpStream, UnixStream};

use crate::http::asker::Presence;

/// Most bytes of one read. A server of HTTP/1 makes room for twice as much as a read that filled the room before, up to
/// 400 KiB for each connection, also for those that rest: so it stays at 64 KiB.
const READ_BYTES_MAX: usize = 48 << 10;
/// Between two looks at a client that sends urgent data, which nothing here takes.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// What streams of both kinds can do without being borrowed for it alone.
pub trait Socketed: Debug + Send + Sync + Sized + 'static {
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    fn try_read(&self, buf: &mut ReadBuf<'_>) -> io::Result<usize>;
    fn try_write(&self, bufs: &[io::IoSlice<'_>]) -> io::Result<usize>;
    fn ready(&self, interest: Interest) -> impl Future<Output = io::Result<Ready>> + Send;
    fn shut_down(&self) -> io::Result<()>;
}

macro_rules! socketed {
    ($stream:ty) => {
        impl Socketed for $stream {
            fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                <$stream>::poll_read_ready(self, cx)
            }

            fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                <$stream>::poll_write_ready(self, cx)
            }

            fn try_read(&self, buf: &mut ReadBuf<'_>) -> io::Result<usize> {
                self.try_read_buf(&mut buf.limit(READ_BYTES_MAX))
            }

            fn try_write(&self, bufs: &[io::IoSlice<'_>]) -> io::Result<usize> {
                self.try_write_vectored(bufs)
            }

            fn ready(&self, interest: Interest) -> impl Future<Output = io::Result<Ready>> + Send {
                <$stream>::ready(self, interest)
            }

            fn shut_down(&self) -> io::Result<()> {
                SockRef::from(self).shutdown(Shutdown::Write)
            }
        }
    };
}

socketed!(TcpStream);
socketed!(UnixStream);

/// See the module.
#[derive(Debug)]
pub struct SharedStream<S>(Arc<S>);

impl<S: Socketed> SharedStream<S> {
    pub fn new(stream: S) -> Self {
        Self(Arc::new(stream))
    }

    /// Whether its client is there, for as long as this exists.
    pub fn presence(&self) -> Arc<dyn Presence> {
        Arc::new(PeerPresence(Arc::clone(&self.0)))
    }
}

#[derive(Debug)]
struct PeerPresence<S>(Arc<S>);

impl<S: Socketed> Presence for PeerPresence<S> {
    fn gone(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            // Of all that can be waited for, this comes when the client closes and not when it sends.
            while let Ok(ready) = self.0.ready(Interest::PRIORITY).await {
                if ready.is_read_closed() {
                    return;
                }
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
        })
    }
}

impl<S: Socketed> AsyncRead for SharedStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            match self.0.try_read(buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read.map(|_| ())),
            }
        }
    }
}

impl<S: Socketed> AsyncWrite for SharedStream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            match self.0.try_write(bufs) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.0.shut_down())
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn one_read_takes_a_part_of_a_long_body_and_all_of_it_comes() {
        let (mut client, server) = UnixStream::pair().unwrap();
        let mut server = SharedStream::new(server);
        let sent: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
        let body = sent.clone();
        let sending = tokio::spawn(async move { client.write_all(&body).await });
        let (mut room, mut received) = (vec![0; 400 << 10], Vec::new());
        loop {
            let bytes = server.read(&mut room).await.unwrap();
            assert!(bytes <= READ_BYTES_MAX);
            if bytes == 0 {
                break;
            }
            received.extend_from_slice(&room[..bytes]);
        }
        sending.await.unwrap().unwrap();
        assert!(received == sent);
    }
}
