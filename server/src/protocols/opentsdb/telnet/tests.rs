//! Conversations, line by line, with clients that may be slow, silent, half closed or faulty.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use proptest::prelude::*;
use telem_engine::{Db, Options, SeriesId, TimeRange};
use telem_ingest::default_tags::DefaultTags;
use telem_ingest::writer::{Writer, WriterOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::lines::{self, Inbox};
use super::*;
use crate::net::stall::StallGuard;
use crate::protocol::ByteStream;
use crate::testing::Served;

/// As much as a kernel takes without anybody reading.
const SOCKET_BYTES: usize = 64 << 10;

fn telnet(served: &Served, limits: TelnetLimits) -> Telnet {
    Telnet::new(Arc::new(OpenTsdb::new(Arc::clone(&served.state), limits)))
}

fn client_of(stream: impl ByteStream + 'static, first: &[u8], stopping: watch::Receiver<bool>) -> LineClient {
    LineClient { stream: Box::new(stream), first: BytesMut::from(first), tags: DefaultTags::default(), stopping }
}

struct Talk {
    served: Served,
    client: DuplexStream,
    server: JoinHandle<()>,
    stopping: watch::Sender<bool>,
}

impl Talk {
    fn new() -> Self {
        Self::with(|_, _| ())
    }

    fn with(change: impl FnOnce(&mut State, &mut TelnetLimits)) -> Self {
        Self::over(SOCKET_BYTES, change)
    }

    fn over(socket_bytes: usize, change: impl FnOnce(&mut State, &mut TelnetLimits)) -> Self {
        let mut limits = TelnetLimits::default();
        let served = Served::with(|state| change(state, &mut limits));
        let (client, stream) = duplex(socket_bytes);
        let (stopping, stopped) = watch::channel(false);
        let telnet = telnet(&served, limits);
        let stream = StallGuard::new(stream, served.state.limits.write_idle_timeout);
        let server = tokio::spawn(async move { telnet.converse(client_of(stream, b"", stopped)).await });
        Self { served, client, server, stopping }
    }

    async fn send(&mut self, lines: impl AsRef<[u8]>) {
        self.client.write_all(lines.as_ref()).await.unwrap();
    }

    /// The next line of an answer.
    async fn line(&mut self) -> String {
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            line.push(self.client.read_u8().await.unwrap());
        }
        String::from_utf8(line).unwrap()
    }

    /// Everything that is still answered, once nothing more is sent.
    async fn rest(&mut self) -> String {
        self.client.shutdown().await.unwrap();
        let mut answers = String::new();
        self.client.read_to_string(&mut answers).await.unwrap();
        answers
    }

    fn stored(&self) -> Vec<String> {
        let db = &self.served.state.db;
        let ids = (0..db.index().len() as u32).map(SeriesId).collect();
        let mut samples = Vec::new();
        for points in db.snapshot().points(ids, TimeRange::ALL) {
            let points = points.unwrap();
            let key = db.index().key(points.series).unwrap();
            for (at, time) in points.times.iter().enumerate() {
                samples.push(format!("{key} {} {}", time.millis(), points.values.get(at)));
            }
        }
        samples.sort();
        samples
    }
}

fn put(n: usize) -> String {
    format!("put m {} {n} host=a\n", 1_356_998_400 + n)
}

fn puts(count: usize) -> String {
    (0..count).map(put).collect()
}

#[tokio::test]
async fn silence_means_that_all_is_stored() {
    let mut talk = Talk::new();
    talk.send("put m 1356998400 42 host=NID001.example\r\nput m 1356998400.5 4.5 host=a\n").await;
    assert_eq!(talk.rest().await, "");
    assert_eq!(talk.stored(), ["m{host=NID001.example} 1356998400000 42", "m{host=a} 1356998400500 4.5"]);
}

#[tokio::test]
async fn faults_are_a_line_each_in_order_and_the_good_lines_around_them_are_stored() {
    let mut talk = Talk::new();
    let ahead = format!("put m {} 1 host=a\n", talk.served.state.clock.now().seconds() + 7_200);
    talk.send(format!("put\n{}put m x 1 host=a\n{ahead}{}frob\nput m 1 1 host\n\nput m 1 1 host=a", put(1), put(2)))
        .await;
    let told = talk.rest().await;
    let mut told = told.lines();
    let mut next = || told.next().unwrap_or_default();
    assert_eq!(next(), "put: illegal argument: not enough arguments (need least 4, got 0)");
    assert_eq!(next(), "put: invalid value: Invalid character 'x' in x");
    let line = next();
    assert!(
        line.starts_with("put: illegal argument: timestamp ") && line.contains("ahead of this machine's"),
        "{line}"
    );
    assert_eq!(next(), "unknown command: frob.  Try `help'.");
    assert_eq!(next(), "put: illegal argument: invalid tag: host");
    assert_eq!(next(), "unknown command: .  Try `help'.");
    assert_eq!(next(), "illegal argument: the last line does not end (in a line feed) and was not looked at");
    assert_eq!(next(), "");
    assert_eq!(talk.stored(), ["m{host=a} 1356998401000 1", "m{host=a} 1356998402000 2"]);
}

#[tokio::test]
async fn an_answer_to_a_command_says_that_the_puts_before_it_are_stored() {
    let mut talk = Talk::new();
    for n in 0..5 {
        talk.send(format!("{}version\n", put(n))).await;
        assert!(talk.line().await.starts_with("net.opentsdb.tools 2.4.1 built at revision telem-"));
        assert_eq!(talk.stored().len(), n + 1);
    }
}

#[tokio::test]
async fn every_command_is_answered_or_refused() {
    let mut talk = Talk::new();
    for (command, expected) in [
        ("help", "available commands: put version stats help dropcaches exit\n"),
        ("dropcaches", "Caches dropped.\n"),
        ("dropcaches now", "Caches dropped.\n"),
        ("rollup 1h-sum m 1 1 host=a", "rollup: illegal argument: No rollup or aggregations were configured\n"),
        ("diediedie", "diediedie: illegal argument: a client does not stop this server; send SIGTERM to its process\n"),
        (" put m 1 1 host=a", "unknown command: .  Try `help'.\n"),
        ("puts m 1 1 host=a", "unknown command: puts.  Try `help'.\n"),
    ] {
        talk.send(format!("{command}\n")).await;
        assert_eq!(talk.line().await, expected, "{command}");
    }
    talk.send(format!("{}put\nstats\n", put(1))).await;
    talk.line().await;
    let stats = talk.rest().await;
    let value = |start: &str| {
        let line =
            stats.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("no {start} in {stats}"));
        (line.split(' ').nth(2).unwrap().to_owned(), line.split_once("type=").map_or("", |(_, kind)| kind).to_owned())
    };
    assert_eq!(value("tsd.connectionmgr.connections "), ("1".to_owned(), "open host=n1".to_owned()));
    assert_eq!(value("tsd.rpc.requests "), ("2".to_owned(), "put host=n1".to_owned()));
    assert_eq!(value("tsd.rpc.errors "), ("1".to_owned(), "illegal_arguments host=n1".to_owned()));
    assert_eq!(value("telem_ingest_samples_accepted_total ").0, "1");
}

#[tokio::test]
async fn exit_ends_the_connection_and_what_follows_counts_for_nothing() {
    let mut talk = Talk::new();
    talk.send(format!("{}version\nexit\n{}version\n", put(1), put(2))).await;
    assert!(talk.line().await.starts_with("net.opentsdb.tools"));
    assert_eq!(talk.rest().await, "");
    talk.server.await.unwrap();
}

#[tokio::test]
async fn a_client_that_sends_byte_by_byte_is_understood() {
    let mut talk = Talk::new();
    for byte in format!("{}frob\r\n{}", put(1), put(2)).bytes() {
        talk.send([byte]).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(talk.rest().await, "unknown command: frob.  Try `help'.\n");
    assert_eq!(talk.stored().len(), 2);
}

#[tokio::test]
async fn a_line_may_be_as_long_as_the_limit_and_a_longer_one_is_passed_over() {
    let limit = TelnetLimits { line_bytes_max: 100, ..TelnetLimits::default() };
    let line = |bytes: usize| format!("put m 1356998400 1 host={}", "a".repeat(bytes - 24));
    let told = "illegal argument: a line of more than 100 bytes was not looked at\n";
    for (sent, expected, stored) in [
        (format!("{}\n{}\r\n", line(100), line(99)), String::new(), 2),
        (format!("{}\n{}", line(101), put(1)), told.to_owned(), 1),
        (format!("{}{}\n{}", put(1), "x".repeat(1 << 20), put(2)), told.to_owned(), 2),
        (format!("{}{}", put(1), "x".repeat(1 << 20)), told.to_owned(), 1),
    ] {
        let limits = limit.clone();
        let mut talk = Talk::with(|_, telnet| *telnet = limits);
        talk.send(sent).await;
        assert_eq!(talk.rest().await, expected);
        assert_eq!(talk.stored().len(), stored);
    }
}

#[tokio::test]
async fn bytes_that_are_no_text_are_answered_line_by_line() {
    let mut talk = Talk::new();
    talk.send(b"\xff\xfe\x00\nput m 1356998400 1 host=\xff\n\x16\x03\x01\n".as_slice()).await;
    talk.send(put(1)).await;
    let told = talk.rest().await;
    assert_eq!(told.lines().count(), 3, "{told}");
    assert!(
        told.contains("put: illegal argument: Invalid tag value with key [host] (\"\u{FFFD}\"): illegal"),
        "{told}"
    );
    assert_eq!(talk.stored().len(), 1);
}

#[tokio::test]
async fn a_client_may_send_everything_before_it_reads_an_answer() {
    let mut talk = Talk::over(64, |_, _| ());
    // More than the socket takes, and less than waits here.
    talk.send("frob\n".repeat(5_000)).await;
    let told = talk.rest().await;
    assert_eq!(told.lines().filter(|line| *line == "unknown command: frob.  Try `help'.").count(), 5_000);
}

#[tokio::test]
async fn a_client_that_takes_no_answers_is_held_back_and_then_left_but_what_it_sent_is_stored() {
    let mut talk = Talk::over(1 << 20, |state, telnet| {
        state.limits.write_idle_timeout = Duration::from_millis(30);
        telnet.answers_bytes_max = 1 << 10;
    });
    // The answers are some 3 MB.
    talk.send(format!("{}{}", "frob\n".repeat(100_000), puts(1_000))).await;
    (&mut talk.server).await.unwrap();
    assert_eq!(talk.stored().len(), 1_000);
}

#[tokio::test]
async fn a_client_that_went_away_has_sent_what_it_sent() {
    let mut talk = Talk::new();
    talk.send(format!("put\nversion\n{}", puts(1_000))).await;
    // Also its reading end.
    let (other, _) = duplex(1);
    drop(std::mem::replace(&mut talk.client, other));
    (&mut talk.server).await.unwrap();
    assert_eq!(talk.stored().len(), 1_000);
}

#[tokio::test]
async fn a_client_that_says_nothing_for_too_long_is_told_and_left() {
    let mut talk = Talk::with(|_, telnet| telnet.idle_timeout = Duration::from_millis(500));
    talk.send("version\nput m 13569984").await;
    assert!(talk.line().await.starts_with("net.opentsdb.tools"));
    assert_eq!(talk.line().await, "closed: nothing came for 0.5 s\n");
    talk.server.await.unwrap();
}

#[tokio::test]
async fn when_the_server_stops_what_came_is_stored_and_answered() {
    let mut talk = Talk::new();
    talk.send(format!("{}frob\n", puts(1_000))).await;
    talk.stopping.send(true).unwrap();
    assert_eq!(talk.line().await, "unknown command: frob.  Try `help'.\n");
    (&mut talk.server).await.unwrap();
    assert_eq!(talk.stored().len(), 1_000);
}

#[tokio::test]
async fn samples_that_find_no_room_in_the_queue_for_too_long_are_told_and_the_client_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(&dir.path().join("full"), Options::default()).unwrap();
    let options = WriterOptions { queue_batches_max: 0, ..WriterOptions::default() };
    let mut talk = Talk::with(|state, telnet| {
        state.writer = Some(Writer::start(db, options).unwrap());
        telnet.busy_timeout = Duration::from_millis(30);
    });
    talk.send(puts(2)).await;
    let told = talk.line().await;
    assert!(told.starts_with("put: storage error: 2 data points of the last lines are not stored: "), "{told}");
    assert!(told.contains("queue_batches_max"), "{told}");
    talk.send("version\n").await;
    assert!(talk.rest().await.starts_with("net.opentsdb.tools"));
}

#[tokio::test]
async fn one_connection_more_than_the_limit_is_told() {
    let served = Served::new();
    let telnet = Arc::new(telnet(&served, TelnetLimits { connections_max: 1, ..TelnetLimits::default() }));
    let (_stopping, stopped) = watch::channel(false);
    let connect = || {
        let (client, stream) = duplex(SOCKET_BYTES);
        let (telnet, stopped) = (Arc::clone(&telnet), stopped.clone());
        (client, tokio::spawn(async move { telnet.converse(client_of(stream, b"version\n", stopped)).await }))
    };
    let (mut first, _held) = connect();
    assert!(first.read(&mut [0; 1_024]).await.unwrap() > 0, "the first has its place");
    let (mut second, left) = connect();
    let mut told = vec![0; 1_024];
    let bytes = second.read(&mut told).await.unwrap();
    let told = String::from_utf8_lossy(&told[..bytes]);
    assert_eq!(told, "refused: 1 connections speak telnet, the most that may; close some or try again soon\n");
    drop(second);
    left.await.unwrap();
}

#[tokio::test]
async fn a_server_of_level_0_checks_and_keeps_nothing_and_a_saved_database_takes_nothing() {
    let mut talk = Talk::with(|state, _| state.level = 0);
    talk.send(format!("{}put\n", put(1))).await;
    assert_eq!(talk.rest().await, "put: illegal argument: not enough arguments (need least 4, got 0)\n");
    assert_eq!(talk.stored(), [""; 0]);

    let mut talk = Talk::with(|state, _| state.writer = None);
    talk.send(format!("{}version\n", puts(2))).await;
    let told = talk.rest().await;
    assert_eq!(told.matches("put: illegal argument: this database is served read-only").count(), 2, "{told}");
}

/// The lines of `bytes`, `None` for one that is too long.
fn cut(bytes: &[u8], line_bytes_max: usize) -> Vec<Option<Vec<u8>>> {
    let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') else { return Vec::new() };
    let line = |line: &[u8]| line.strip_suffix(b"\r").unwrap_or(line).to_vec();
    let lines = bytes[..end].split(|byte| *byte == b'\n').map(line);
    lines.map(|line| Some(line).filter(|line| line.len() <= line_bytes_max)).collect()
}

proptest! {
    #[test]
    fn lines_are_the_same_in_whatever_pieces_they_come(
        text in "[ab\r\n]{0,60}",
        pieces in proptest::collection::vec(1_usize..20, 1..60),
        line_bytes_max in 1_usize..8,
    ) {
        let mut bytes = text.clone().into_bytes();
        // What is torn is too long as soon as it cannot become a line.
        bytes.push(b'\n');
        let mut inbox = Inbox::new(BytesMut::new(), line_bytes_max);
        let mut found = Vec::new();
        let (mut rest, mut pieces) = (&bytes[..], pieces.into_iter().cycle());
        while !rest.is_empty() {
            let (piece, others) = rest.split_at(pieces.next().unwrap_or(1).min(rest.len()));
            rest = others;
            inbox.room().extend_from_slice(piece);
            inbox.arrange();
            let complete = inbox.take();
            let mut lines = &complete[..];
            while !lines.is_empty() {
                let (line, others) = lines::first(lines);
                found.push(Some(line.to_vec()).filter(|line| line.len() <= line_bytes_max));
                lines = others;
            }
            if inbox.passed_over() {
                found.push(None);
            }
        }
        prop_assert!(!inbox.is_torn());
        prop_assert_eq!(found, cut(&bytes, line_bytes_max));
    }
}
