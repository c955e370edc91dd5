//! One connection: it reads input and writes answers, and is careful not to lose samples.
//!
//! Reading and writing go on side by side, so that a client may send all its lines before it reads an answer. Lines are
//! stored before more are read, which slows down a client that is too fast. If a client disconnects or reads no answer,
//! the lines that are already in the socket are still stored before the connection ends.

use std::io;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use telem_ingest::default_tags::DefaultTags;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, timeout};

use super::commands::{self, AfterCommand};
use super::lines::{self, Inbox};
use super::{Telnet, TelnetLimits, puts};
use crate::protocol::{ByteStream, LineClient};

/// At the end of a connection nothing more is on its way once nothing came for this long.
const SILENCE: Duration = Duration::from_millis(50);
/// Most bytes that are still read at the end of a connection: more than the kernel holds for one by default.
const LAST_BYTES_MAX: usize = 8 << 20;
/// How long a client on which we hang up may take to read what was said last.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);

/// Speaks with a client until one of both has enough.
pub async fn hold(telnet: &Telnet, client: LineClient) {
    let LineClient { stream, first, tags, mut stopping } = client;
    let limits = telnet.limits();
    let Some(_place) = telnet.place() else {
        let what = format!(
            "{} connections speak telnet, the most that may; close some or try again soon",
            limits.connections_max
        );
        return refuse(telnet, stream, &what).await;
    };
    let _open = telnet.counters().open();
    let (reader, writer) = tokio::io::split(stream);
    let mut conversation = Conversation {
        telnet,
        tags: &tags,
        limits,
        reader,
        writer,
        inbox: Inbox::new(first, limits.line_bytes_max),
        answers: BytesMut::new(),
        end: None,
        deaf: false,
        alarm: Box::pin(tokio::time::sleep(limits.idle_timeout)),
    };
    if let Err(error) = conversation.run(&mut stopping).await {
        tracing::debug!(%error, "a telnet client takes no more answers");
        conversation.deaf = true;
        conversation.read_the_last().await;
    }
}

/// Says in a line why, and hangs up.
pub async fn refuse(telnet: &Telnet, mut stream: Box<dyn ByteStream>, reason: &str) {
    if telnet.counters().connections_refused.fetch_add(1, Ordering::Relaxed) == 0 {
        // It may be gone already, and then nobody else says that its samples are lost.
        tracing::warn!(reason, "a telnet client was refused; `stats` counts further ones");
    }
    let line = format!("refused: {reason}\n");
    let told = async {
        stream.write_all(line.as_bytes()).await?;
        stream.shutdown().await?;
        wait_for_eof(&mut stream).await
    };
    if let Ok(Err(error)) = timeout(FAREWELL_TIMEOUT, told).await {
        tracing::debug!(%error, "a telnet client that was refused was already gone");
    }
}

/// Returns once the server stops.
async fn stop(stopping: &mut watch::Receiver<bool>) {
    // An error says that it is gone already.
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

/// A connection that is closed while there is something to read takes with it what was said last.
async fn wait_for_eof(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
    let mut unread = [0; 4 << 10];
    for _ in 0..LAST_BYTES_MAX / unread.len() {
        if stream.read(&mut unread).await? == 0 {
            break;
        }
    }
    Ok(())
}

/// Why no more is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConversationEnd {
    /// The client has sent everything.
    Eof,
    /// The client said `exit`: what it said after that counts for nothing.
    Exit,
    /// We end it.
    Ours,
}

struct Conversation<'a> {
    telnet: &'a Telnet,
    /// What its samples get where they lack it.
    tags: &'a DefaultTags,
    limits: &'a TelnetLimits,
    reader: ReadHalf<Box<dyn ByteStream>>,
    writer: WriteHalf<Box<dyn ByteStream>>,
    inbox: Inbox,
    /// What the client did not take yet.
    answers: BytesMut,
    end: Option<ConversationEnd>,
    /// Whether nobody takes answers any more.
    deaf: bool,
    /// Rings when nothing came for too long.
    alarm: Pin<Box<Sleep>>,
}

impl Conversation<'_> {
    /// # Errors
    /// When the client takes no more answers.
    async fn run(&mut self, stopping: &mut watch::Receiver<bool>) -> io::Result<()> {
        loop {
            self.handle().await;
            let more = self.inbox.has_more() && self.end != Some(ConversationEnd::Exit);
            if self.end.is_some() && !more {
                return self.close().await;
            }
            // Not before all is stored that came, and there is room for answers.
            let listen = !more && self.answers.len() < self.limits.answers_bytes_max;
            tokio::select! {
                biased;
                () = stop(stopping) => {
                    self.read_the_last().await;
                    self.end = self.end.or(Some(ConversationEnd::Ours));
                }
                written = self.writer.write_buf(&mut self.answers), if !self.answers.is_empty() => {
                    if written? == 0 {
                        return Err(io::ErrorKind::WriteZero.into());
                    }
                }
                read = self.reader.read_buf(self.inbox.room()), if listen => self.hear(read),
                () = &mut self.alarm, if listen => {
                    let idle = self.limits.idle_timeout.as_secs_f64();
                    self.answers.extend_from_slice(format!("closed: nothing came for {idle} s\n").as_bytes());
                    self.end = Some(ConversationEnd::Ours);
                }
            }
        }
    }

    fn hear(&mut self, read: io::Result<usize>) {
        match read {
            Ok(0) => self.end = Some(ConversationEnd::Eof),
            Ok(_) => {
                self.inbox.arrange();
                return self.alarm.as_mut().reset(Instant::now() + self.limits.idle_timeout);
            }
            Err(error) => {
                tracing::debug!(%error, "a telnet connection broke off");
                self.end = Some(ConversationEnd::Eof);
            }
        }
        if self.inbox.is_torn() {
            // Half a number is another number.
            let what = b"illegal argument: the last line does not end (in a line feed) and was not looked at\n";
            self.answers.extend_from_slice(what);
        }
    }

    /// Stores and answers lines, until there is no more or too many answers wait.
    async fn handle(&mut self) {
        let mut lines = self.inbox.take();
        while !lines.is_empty()
            && self.answers.len() < self.limits.answers_bytes_max
            && self.end != Some(ConversationEnd::Exit)
        {
            let run = puts::run(&lines, self.limits.line_bytes_max);
            let taken = if run > 0 {
                puts::store(self.telnet, self.tags, &lines[..run], &mut self.answers).await;
                run
            } else {
                let (line, others) = lines::first(&lines);
                self.answer(line);
                lines.len() - others.len()
            };
            lines.advance(taken);
        }
        if lines.is_empty() && self.inbox.passed_over() {
            self.too_long();
        }
        self.inbox.give_back(lines);
        if self.deaf {
            self.answers.clear();
        }
    }

    fn answer(&mut self, line: &[u8]) {
        self.telnet.counters().lines.fetch_add(1, Ordering::Relaxed);
        if line.len() > self.limits.line_bytes_max {
            self.too_long();
        } else if commands::answer(self.telnet, line, &mut self.answers) == AfterCommand::HangUp {
            self.end = Some(ConversationEnd::Exit);
        }
    }

    fn too_long(&mut self) {
        let max = self.limits.line_bytes_max;
        let what = format!("illegal argument: a line of more than {max} bytes was not looked at\n");
        self.answers.extend_from_slice(what.as_bytes());
    }

    /// Stores what the client sent before now. Answers beyond their limit are lost then.
    async fn read_the_last(&mut self) {
        let mut left = LAST_BYTES_MAX;
        loop {
            while self.inbox.has_more() && self.end != Some(ConversationEnd::Exit) {
                self.handle().await;
                if self.answers.len() >= self.limits.answers_bytes_max {
                    self.deaf = true;
                    self.answers.clear();
                }
            }
            if left == 0 || matches!(self.end, Some(ConversationEnd::Exit | ConversationEnd::Eof)) {
                return;
            }
            match timeout(SILENCE, self.reader.read_buf(self.inbox.room())).await {
                Ok(read) => {
                    left = left.saturating_sub(*read.as_ref().unwrap_or(&0));
                    self.hear(read);
                }
                Err(_) => return,
            }
        }
    }

    /// # Errors
    /// When the client takes no more answers.
    async fn close(&mut self) -> io::Result<()> {
        self.writer.write_all_buf(&mut self.answers).await?;
        self.writer.shutdown().await?;
        if self.end == Some(ConversationEnd::Exit) {
            // What it sent after that would take the last answers with it.
            let _ = timeout(FAREWELL_TIMEOUT, wait_for_eof(&mut self.reader)).await;
        }
        Ok(())
    }
}
