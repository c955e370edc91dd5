//! The client protocol, spoken by a client that was written from docs/format/client.md alone, to the real binary.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::{Value as Json, json};
use telem_engine::{Clock, SystemClock};

use crate::launch::started;
use crate::process::{Connection, PATIENCE, Server, poll, telem};
use crate::run::Place;

const OPENING: &[u8] = b"\xF7TLM\x01\x00\x00\x00";
const NO_SERIES: u32 = u32::MAX;

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_le_bytes()[..], text.as_bytes()].concat()
}

fn long(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn wide(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn times(times: &[i64]) -> Vec<u8> {
    times.iter().flat_map(|time| time.to_le_bytes()).collect()
}

fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_le_bytes()[..], &[kind, 0, 0, 0], body].concat()
}

/// Kind, level, metric, unit, help, tags.
type Series<'a> = (u8, u8, &'a str, &'a str, &'a str, &'a [(&'a str, &'a str)]);

fn series(first: u32, all: &[Series<'_>]) -> Vec<u8> {
    let mut body = words(&[first, all.len() as u32]);
    for (kind, level, metric, unit, help, tags) in all {
        body.extend([*kind, *level, tags.len() as u8, 0]);
        body.extend([text(metric), text(unit), text(help)].concat());
        tags.iter().for_each(|(key, value)| body.extend([text(key), text(value)].concat()));
    }
    frame(1, &body)
}

fn gauge<'a>(metric: &'a str, tags: &'a [(&'a str, &'a str)]) -> Series<'a> {
    (0, 1, metric, "", "", tags)
}

fn column(is_int: bool, number: u32, at: &[i64], bits: &[u64]) -> Vec<u8> {
    [vec![0, u8::from(is_int), 0, 0], words(&[number, at.len() as u32, 0]), times(at), wide(bits)].concat()
}

fn row(is_int: bool, at: i64, numbers: &[u32], bits: &[u64]) -> Vec<u8> {
    let padding = vec![0; 4 * (numbers.len() % 2)];
    let head = [vec![1, u8::from(is_int), 0, 0], words(&[numbers.len() as u32]), times(&[at])].concat();
    [head, words(numbers), padding, wide(bits)].concat()
}

fn samples(sequence: u64, blocks: &[Vec<u8>]) -> Vec<u8> {
    frame(2, &[wide(&[sequence]), blocks.concat()].concat())
}

/// What a frame of the service says.
struct Reading<'a>(&'a [u8]);

impl<'a> Reading<'a> {
    fn take(&mut self, bytes: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(bytes);
        self.0 = rest;
        taken
    }

    fn number<const N: usize>(&mut self) -> u64 {
        let mut wide = [0; 8];
        wide[..N].copy_from_slice(self.take(N));
        u64::from_le_bytes(wide)
    }

    fn text(&mut self) -> String {
        let bytes = self.number::<2>() as usize;
        String::from_utf8(self.take(bytes).to_vec()).unwrap()
    }

    fn padded(&mut self, bytes: usize) -> &'a [u8] {
        let taken = self.take(bytes.next_multiple_of(8));
        assert!(taken[bytes..].iter().all(|byte| *byte == 0));
        &taken[..bytes]
    }
}

/// A frame of the service.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Welcome { version: u16, level: u8, series: u32, node: String, job: String },
    Ack { sequence: u64, stored: u64, refused: u64 },
    Refused { sequence: u64, series: u32, samples: u64, code: u16, reason: String },
    Flushed(u64),
    Columns(Vec<(String, String)>),
    Rows(Vec<u8>),
    End { number: u32, how: u8, text: String },
    Goodbye { code: u16, reason: String },
}

/// A value of a row: its bits, or its text.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Cell {
    Null,
    Bits(u64),
    Text(String),
}

struct Client {
    stream: UnixStream,
}

impl Client {
    /// Connected and welcomed.
    fn new(socket: &Path) -> Self {
        let mut client = Self::silent(socket);
        client.send(OPENING);
        let welcome = client.hear();
        assert!(matches!(welcome, Said::Welcome { version: 1, series: 1_000_000, .. }), "{welcome:?}");
        client
    }

    fn silent(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    fn hear(&mut self) -> Said {
        self.try_hear().expect("the connection is open")
    }

    fn try_hear(&mut self) -> Option<Said> {
        let mut head = [0; 8];
        self.stream.read_exact(&mut head).ok()?;
        assert_eq!(head[5..], [0, 0, 0]);
        let mut body = vec![0; u32::from_le_bytes(head[..4].try_into().unwrap()) as usize];
        self.stream.read_exact(&mut body).unwrap();
        let mut reading = Reading(&body);
        let said = match head[4] {
            128 => {
                let (version, level) = (reading.number::<2>() as u16, reading.number::<1>() as u8);
                assert_eq!(reading.number::<1>(), 0);
                let series = reading.number::<4>() as u32;
                Said::Welcome { version, level, series, node: reading.text(), job: reading.text() }
            }
            129 => {
                let [sequence, stored, refused] = [(); 3].map(|()| reading.number::<8>());
                Said::Ack { sequence, stored, refused }
            }
            130 => {
                let (sequence, series) = (reading.number::<8>(), reading.number::<4>() as u32);
                let (samples, code) = (reading.number::<8>(), reading.number::<2>() as u16);
                Said::Refused { sequence, series, samples, code, reason: reading.text() }
            }
            131 => Said::Flushed(reading.number::<8>()),
            132 => {
                reading.number::<4>();
                let count = reading.number::<4>();
                Said::Columns((0..count).map(|_| (reading.text(), reading.text())).collect())
            }
            133 => Said::Rows(std::mem::take(&mut reading.0).to_vec()),
            134 => {
                let (number, how) = (reading.number::<4>() as u32, reading.number::<1>() as u8);
                let bytes = reading.number::<4>() as usize;
                Said::End { number, how, text: String::from_utf8(reading.take(bytes).to_vec()).unwrap() }
            }
            135 => Said::Goodbye { code: reading.number::<2>() as u16, reason: reading.text() },
            other => panic!("no frame of the service has type {other}"),
        };
        assert!(reading.0.is_empty(), "{said:?} ends");
        Some(said)
    }

    /// Sends samples, and waits for their acknowledgement.
    fn store(&mut self, sequence: u64, blocks: &[Vec<u8>]) -> (u64, u64) {
        self.send(&samples(sequence, blocks));
        match self.hear() {
            Said::Ack { sequence: of, stored, refused } if of == sequence => (stored, refused),
            other => panic!("{other:?} is no acknowledgement of {sequence}"),
        }
    }

    fn goodbye(&mut self) -> (u16, String) {
        loop {
            match self.hear() {
                Said::Goodbye { code, reason } => {
                    assert!(self.try_hear().is_none(), "it hangs up");
                    return (code, reason);
                }
                Said::Refused { .. } | Said::Ack { .. } | Said::Welcome { .. } => {}
                other => panic!("{other:?} is no goodbye"),
            }
        }
    }

    /// The types of the columns, the rows, and how the answer ends.
    fn ask(&mut self, number: u32, sql: &str) -> (Vec<String>, Vec<Vec<Cell>>, (u8, String)) {
        self.send(&frame(7, &[words(&[number, 0]), long(sql)].concat()));
        let (mut types, mut rows) = (Vec::new(), Vec::new());
        loop {
            match self.hear() {
                Said::Columns(columns) => types = columns.into_iter().map(|(_, kind)| kind).collect(),
                Said::Rows(body) => rows.extend(cells(number, &types, &body)),
                Said::End { number: of, how, text } => {
                    assert_eq!(of, number);
                    return (types, rows, (how, text));
                }
                other => panic!("{other:?} is no part of an answer"),
            }
        }
    }
}

fn cells(number: u32, types: &[String], body: &[u8]) -> Vec<Vec<Cell>> {
    let mut reading = Reading(body);
    assert_eq!(reading.number::<4>() as u32, number);
    let rows = reading.number::<4>() as usize;
    let mut all = vec![Vec::new(); rows];
    let bit = |bits: &[u8], at: usize| bits[at / 8] >> (at % 8) & 1 == 1;
    for kind in types {
        let valid = match reading.number::<8>() {
            0 => vec![0xFF; rows.div_ceil(8)],
            1 => reading.padded(rows.div_ceil(8)).to_vec(),
            other => panic!("{other:#x}"),
        };
        let values: Vec<Cell> = match kind.as_str() {
            "b" => {
                let bits = reading.padded(rows.div_ceil(8));
                (0..rows).map(|at| Cell::Bits(u64::from(bit(bits, at)))).collect()
            }
            "l" | "L" | "g" | "tsu:UTC" => (0..rows).map(|_| Cell::Bits(reading.number::<8>())).collect(),
            "u" => {
                let offsets = reading.padded(4 * (rows + 1)).chunks(4);
                let offsets: Vec<usize> =
                    offsets.map(|four| u32::from_le_bytes(four.try_into().unwrap()) as usize).collect();
                let bytes = reading.padded(*offsets.last().unwrap());
                let texts = offsets.windows(2).map(|pair| bytes[pair[0]..pair[1]].to_vec());
                texts.map(|text| Cell::Text(String::from_utf8(text).unwrap())).collect()
            }
            other => panic!("type {other}"),
        };
        for (at, value) in values.into_iter().enumerate() {
            all[at].push(if bit(&valid, at) { value } else { Cell::Null });
        }
    }
    assert!(reading.0.is_empty());
    all
}

fn now() -> i64 {
    SystemClock::new().now().micros()
}

fn served(options: &[&str]) -> (tempfile::TempDir, Server, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::serve(&dir.path().join("db"), options);
    let socket = server.socket();
    (dir, server, socket)
}

fn count(server: &Server, table: &str) -> u64 {
    server.sql(&format!("SELECT count(*) AS n FROM {table}")).json()[0]["n"].as_u64().unwrap_or(0)
}

#[test]
fn every_value_comes_back_bit_by_bit_from_memory_and_from_files() {
    let (dir, server, socket) = served(&["--node", "n1"]);
    let mut client = Client::new(&socket);
    let at = now();
    let floats = [0x7FF0_0000_0000_0001, 0xFFF8_0000_0000_00AB, 1 << 63, f64::MIN_POSITIVE.to_bits(), 1];
    let ints = [i64::MIN, i64::MAX, 0, -1, 9_007_199_254_740_993];
    let of_time: Vec<i64> = (0..5).map(|nth| at + nth).collect();
    client.send(&series(0, &[gauge("f", &[("a", "b")]), (1, 1, "i", "steps", "Steps so far", &[])]));
    let bits: Vec<u64> = ints.iter().map(|int| int.cast_unsigned()).collect();
    let sent = [column(false, 0, &of_time, &floats), column(true, 1, &of_time, &bits)];
    assert_eq!(client.store(3, &sent), (10, 0));
    assert_eq!(client.store(9, &[row(true, at + 9, &[1, 0, 1], &[5, 6, 7])]), (13, 0), "the last of a time counts");
    client.send(&frame(6, &wide(&[77])));
    assert_eq!(client.hear(), Said::Flushed(77));
    let look = |client: &mut Client| {
        let sql = "SELECT ts, value, value_int, metric, tags FROM samples ORDER BY metric, ts";
        let (types, rows, end) = client.ask(1, sql);
        assert_eq!((types.join(" ").as_str(), end), ("tsu:UTC g l u u", (0, String::new())));
        rows
    };
    let rows = look(&mut client);
    let expected = |nth: usize| Cell::Bits(of_time[nth].cast_unsigned());
    for (nth, bits) in floats.iter().enumerate() {
        assert_eq!(rows[nth][..3], [expected(nth), Cell::Bits(*bits), Cell::Null], "{bits:#x}");
    }
    for (nth, bits) in bits.iter().enumerate() {
        assert_eq!((&rows[6 + nth][0], &rows[6 + nth][2]), (&expected(nth), &Cell::Bits(*bits)));
    }
    assert_eq!((&rows[5][2], &rows[11][2], rows.len()), (&Cell::Bits(6), &Cell::Bits(7), 12));
    assert_eq!(rows[0][3..], [Cell::Text("f".to_owned()), Cell::Text(r#"{"a":"b","host":"n1"}"#.to_owned())]);
    let described = server.sql("SELECT metric, type, unit, help FROM metrics WHERE metric = 'i'").json();
    assert_eq!(described, json!([{"metric": "i", "type": "counter", "unit": "steps", "help": "Steps so far"}]));
    assert!(server.terminate().0.success());
    let mut again = Server::serve(&dir.path().join("db"), &["--node", "n1"]);
    assert_eq!(look(&mut Client::new(&again.socket())), rows);
}

#[test]
fn what_is_sent_again_after_a_lost_connection_changes_nothing() {
    let (_dir, server, socket) = served(&[]);
    let at = now();
    let conversation = [
        OPENING.to_vec(),
        series(0, &[gauge("m", &[("k", "v")])]),
        samples(1, &[column(false, 0, &[at, at + 1], &[1, 2])]),
    ];
    for _ in 0..3 {
        let mut client = Client::silent(&socket);
        client.send(&conversation.concat());
        assert!(matches!(client.hear(), Said::Welcome { .. }));
        assert_eq!(client.hear(), Said::Ack { sequence: 1, stored: 2, refused: 0 });
    }
    assert_eq!(count(&server, "samples"), 2);
}

#[test]
fn a_conversation_that_comes_byte_by_byte_is_the_same() {
    let (_dir, server, socket) = served(&[]);
    let at = now();
    let mut client = Client::silent(&socket);
    let parts = [OPENING.to_vec(), series(0, &[gauge("m", &[])]), samples(1, &[row(false, at, &[0], &[7])])];
    for byte in parts.concat() {
        client.send(&[byte]);
    }
    assert!(matches!(client.hear(), Said::Welcome { .. }));
    assert_eq!(client.hear(), Said::Ack { sequence: 1, stored: 1, refused: 0 });
    assert_eq!(count(&server, "m"), 1);
}

#[test]
fn a_connection_that_speaks_nonsense_ends_with_a_reason_and_others_go_on() {
    let (_dir, server, socket) = served(&[]);
    let mut other = Client::new(&socket);
    other.send(&series(0, &[gauge("other", &[])]));
    let at = now();
    let named = series(0, &[gauge("m", &[])]);
    let good = column(false, 0, &[at], &[1]);
    let torn = [wide(&[2]), good[..good.len() - 1].to_vec()].concat();
    let cases: [(&str, Vec<u8>, u16); 15] = [
        ("version 0", b"\xF7TLM\x00\x00\x00\x00".to_vec(), 1),
        ("flags", b"\xF7TLM\x01\x00\x01\x00".to_vec(), 2),
        ("another magic", b"\xF7XXX\x01\x00\x00\x00".to_vec(), 2),
        ("a huge length", [OPENING, &u32::MAX.to_le_bytes(), &[2, 0, 0, 0]].concat(), 2),
        ("one byte too many", [OPENING, &((1_u32 << 20) + 1).to_le_bytes(), &[2, 0, 0, 0]].concat(), 2),
        ("an unknown type", [OPENING, &frame(8, b"")].concat(), 2),
        ("a type of the service", [OPENING, &frame(129, &[0; 24])].concat(), 2),
        ("a torn block", [OPENING, &named, &samples(1, std::slice::from_ref(&good)), &frame(2, &torn)].concat(), 2),
        ("a huge count", [OPENING, &named, &samples(1, &[column(false, 0, &[], &[])[..8].to_vec()])].concat(), 2),
        ("names with a gap", [OPENING, &series(1, &[gauge("m", &[])])].concat(), 2),
        ("more names than bytes", [OPENING, &frame(1, &words(&[0, u32::MAX]))].concat(), 2),
        (
            "more names than may be",
            [OPENING, &frame(1, &[words(&[0, 1_000_001]), vec![0; 1 << 19]].concat())].concat(),
            2,
        ),
        ("sequences that fall", [OPENING, &named, &samples(5, &[]), &samples(5, &[])].concat(), 2),
        ("no such series", [OPENING, &named, &samples(1, &[good.clone(), column(false, 1, &[at], &[1])])].concat(), 6),
        ("bytes behind a flush", [OPENING, &frame(6, &[0; 9])].concat(), 2),
    ];
    for (sequence, (what, bytes, expected)) in (1..).zip(&cases) {
        let mut client = Client::silent(&socket);
        client.send(bytes);
        let (code, reason) = client.goodbye();
        assert_eq!(code, *expected, "{what}: {reason}");
        assert!(!reason.is_empty());
        assert_eq!(other.store(sequence, &[row(false, at + sequence as i64, &[0], &[1])]), (sequence, 0), "{what}");
    }
    assert_eq!(count(&server, "m"), 1, "what came before the torn block, and nothing of a frame that is refused");
}

#[test]
fn what_is_refused_is_told_with_its_reason_and_counted() {
    let (_dir, server, socket) = served(&[]);
    let mut client = Client::new(&socket);
    let at = now();
    let deep: Series<'_> = (0, 3, "deep", "", "", &[]);
    client
        .send(&series(0, &[gauge("good", &[]), gauge("bad\n", &[]), deep, gauge("twice", &[("a", "1"), ("a", "2")])]));
    let mut told = BTreeMap::new();
    for _ in 0..2 {
        match client.hear() {
            Said::Refused { sequence: 0, series, samples: 0, code: 3, reason } => told.insert(series, reason),
            other => panic!("{other:?}"),
        };
    }
    assert!(told[&1].contains("control character") && told[&3].contains("tag 'a' occurs twice"), "{told:?}");
    let far = at + 7_200_000_000;
    let blocks = [row(false, at, &[0, 1, 2, 3], &[1, 2, 3, 4]), column(false, 0, &[at + 1, far, far], &[1, 2, 3])];
    assert_eq!(client.store(1, &blocks), (2, 4), "what is above the level is in neither");
    assert_eq!(client.store(2, &[column(false, 0, &[far], &[1])]), (2, 5));
    match client.hear() {
        Said::Refused { sequence: 2, series: 0, samples: 3, code: 5, reason } => {
            assert!(reason.contains("ahead of this machine's clock"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    // Of the same second, so that they are told together: the names above were told at once.
    assert_eq!(count(&server, "samples"), 2);
}

#[test]
fn notes_settings_and_counts_arrive_where_those_of_http_do() {
    let (_dir, server, socket) = served(&[]);
    let mut client = Client::new(&socket);
    let at = 1_767_225_600_123_000_i64;
    client.send(&frame(4, &[times(&[at]), text("epoch 3"), long("it got better")].concat()));
    client.send(&frame(5, &[text("lr"), long("0.25")].concat()));
    client.send(&frame(5, &[text("model"), long("resnet")].concat()));
    client.send(&frame(3, &wide(&[1_000, 3, 2, 1])));
    client.send(&frame(5, &[text(&"x".repeat(300)), long("1")].concat()));
    match client.hear() {
        Said::Refused { sequence: 0, series: NO_SERIES, samples: 0, code: 10, reason } => {
            assert!(reason.contains("300 bytes"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(server.get("/api/job").json()["settings"], json!({"lr": 0.25, "model": "resnet"}));
    let note = &server.get("/api/annotations?start_time=1767225600&end_time=1767225601").json()[0];
    let found = (&note["startTime"], &note["description"], &note["notes"]);
    assert_eq!(found, (&json!(1_767_225_600_123_i64), &json!("epoch 3"), &json!("it got better")));
    let counts = json!({"taken": 1000, "for_room": 3, "without_service": 2, "otherwise": 1});
    assert_eq!(server.get("/api/info").json()["clients_dropped"], counts);
}

#[test]
fn questions_are_answered_in_columns_while_samples_go_on() {
    let (_dir, _server, socket) = served(&[]);
    let mut client = Client::new(&socket);
    let sql = "SELECT true AS b, NULL AS n, 1::tinyint AS l, 2::int unsigned AS u, 0.5::float AS g, \
               [1, 2] AS list, map(['k'], [1]) AS m, DATE '2026-01-01' AS d, arrow_cast('x', 'Dictionary(Int32, Utf8)') AS t";
    let (types, rows, end) = client.ask(1, sql);
    assert_eq!((types.join(" ").as_str(), &end), ("b u l L g u u tsu:UTC u", &(0, String::new())), "{end:?}");
    let texts = |text: &str| Cell::Text(text.to_owned());
    let expected = [
        Cell::Bits(1),
        Cell::Null,
        Cell::Bits(1),
        Cell::Bits(2),
        Cell::Bits(0.5_f64.to_bits()),
        texts("[1,2]"),
        texts(r#"{"k":1}"#),
        Cell::Bits(1_767_225_600_000_000),
        texts("x"),
    ];
    assert_eq!(rows, [expected.to_vec()]);
    let (types, rows, end) = client.ask(2, "SELECT 1 AS one WHERE false");
    assert_eq!((types, rows.len(), end), (vec!["l".to_owned()], 0, (0, String::new())));
    let wide = "x".repeat(80);
    let many = format!("SELECT value, concat('{wide}', value::text) FROM generate_series(1, 100000)");
    let (_, rows, end) = client.ask(3, &many);
    assert_eq!((rows.len(), &end), (100_000, &(0, String::new())));
    // Several threads answer, so the rows come in any order: each number is there once.
    let numbers: BTreeSet<u64> = rows
        .iter()
        .map(|row| match row[0] {
            Cell::Bits(number) => number,
            ref other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!((numbers.len(), numbers.first(), numbers.last()), (100_000, Some(&1), Some(&100_000)));
    let (_, _, (how, text)) = client.ask(4, "SELEC 1");
    assert_eq!(how, 2);
    assert!(text.contains("Expected: an SQL statement"), "{text}");
    // A deadline of its own, another question meanwhile, and samples beside both.
    let slow = "SELECT count(*) FROM generate_series(1, 3000000) AS a, generate_series(1, 3000000) AS b";
    client.send(&frame(7, &[words(&[5, 3_000]), long(slow)].concat()));
    client.send(&frame(7, &[words(&[6, 0]), long("SELECT 1")].concat()));
    client.send(&series(0, &[gauge("m", &[])]));
    client.send(&samples(1, &[row(false, now(), &[0], &[1])]));
    let mut said = Vec::new();
    for _ in 0..3 {
        said.push(match client.hear() {
            Said::End { number, how, text } => format!("{number} {how} {text}"),
            Said::Ack { stored, .. } => format!("stored {stored}"),
            other => panic!("{other:?}"),
        });
    }
    assert!(said[0].starts_with("6 2 query 5 still runs"), "{said:?}");
    assert_eq!(said[1], "stored 1");
    assert!(said[2].starts_with("5 2 the query took longer than 3"), "{said:?}");
}

#[test]
fn frames_over_tcp_are_refused_with_a_reason() {
    let (_dir, server, _) = served(&[]);
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.write_all(OPENING).unwrap();
    let mut said = Vec::new();
    stream.read_to_end(&mut said).unwrap();
    assert_eq!(said[4..10], [135, 0, 0, 0, 2, 0]);
    assert!(String::from_utf8_lossy(&said).contains("over the Unix socket"));
}

#[test]
fn what_is_saved_takes_no_samples_and_answers_questions() {
    let (dir, server, socket) = served(&[]);
    let mut client = Client::new(&socket);
    client.send(&series(0, &[gauge("m", &[])]));
    assert_eq!(client.store(1, &[row(false, now(), &[0], &[1])]), (1, 0));
    assert!(server.terminate().0.success());
    let mut replayed = Server::replay([dir.path().join("db")], &[]);
    let mut client = Client::new(&replayed.socket());
    client.send(&series(0, &[gauge("m", &[])]));
    client.send(&samples(1, &[column(false, 0, &[now(), now()], &[1, 2])]));
    let mut said = [client.hear(), client.hear()];
    said.sort_by_key(|said| matches!(said, Said::Refused { .. }));
    assert_eq!(said[0], Said::Ack { sequence: 1, stored: 0, refused: 2 });
    assert!(
        matches!(&said[1], Said::Refused { samples: 2, code: 7, reason, .. } if reason.contains("read-only")),
        "{said:?}"
    );
    client.send(&frame(6, &wide(&[4])));
    assert!(matches!(client.hear(), Said::Refused { sequence: 4, code: 7, .. }));
    let (_, rows, _) = client.ask(1, "SELECT count(*) FROM m");
    assert_eq!(rows, [vec![Cell::Bits(1)]]);
}

#[test]
fn at_the_end_of_the_service_what_was_sent_is_stored_and_acknowledged() {
    let (dir, server, socket) = served(&[]);
    let mut client = Client::new(&socket);
    client.send(&series(0, &[gauge("m", &[])]));
    let at = now();
    (1..=200).for_each(|nth| client.send(&samples(nth, &[row(false, at + nth as i64, &[0], &[1])])));
    assert!(server.terminate().0.success());
    let mut acknowledged = 0;
    let code = loop {
        match client.hear() {
            Said::Ack { stored, .. } => acknowledged = stored,
            Said::Goodbye { code, .. } => break code,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((acknowledged, code), (200, 8));
    assert_eq!(count(&Server::serve(&dir.path().join("db"), &[]), "m"), 200);
}

/// What a process holds of memory.
fn resident_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1_024
}

#[test]
fn ten_thousand_connections_that_say_little_cost_little_and_hold_up_nobody() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, rustix::process::Rlimit { current: limit.maximum, ..limit }).unwrap();
    let open = limit.maximum.map_or(10_000, |most| (most / 2).min(10_000)) as usize;
    let (_dir, server, socket) = served(&[]);
    let before = resident_bytes(server.id());
    let mut crowd: Vec<Client> = Vec::with_capacity(open);
    while crowd.len() < open {
        let some: Vec<Client> = (0..64.min(open - crowd.len()))
            .map(|_| {
                let mut client = Client::silent(&socket);
                client.send(OPENING);
                client
            })
            .collect();
        for mut client in some {
            assert!(matches!(client.hear(), Said::Welcome { .. }));
            // Every second one stops in the middle of a frame that would be long.
            if crowd.len().is_multiple_of(2) {
                client.send(&[&(1_u32 << 20).to_le_bytes()[..], &[2, 0, 0, 0], &[0; 100]].concat());
            }
            crowd.push(client);
        }
    }
    let mut client = Client::new(&socket);
    client.send(&series(0, &[gauge("m", &[])]));
    let at = now();
    for nth in 1..=100 {
        let mut of_time: Vec<i64> = (0..60_000).map(|sample| at + nth * 60_000 + sample).collect();
        of_time.truncate(if nth % 10 == 0 { 60_000 } else { 1 });
        client.store(nth as u64, &[column(false, 0, &of_time, &vec![1; of_time.len()])]);
    }
    let each = resident_bytes(server.id()).saturating_sub(before) / open as u64;
    println!("{open} connections, {each} bytes each, what was stored meanwhile included");
    assert!(each < 32 << 10, "{each} bytes");
    assert_eq!(crowd.len(), open);
}

/// Sends one sample as a process of a job, by struct packing of another language.
const IN_A_JOB: &str = r#"
import socket, struct, sys, time
def text(s): return struct.pack("<H", len(s)) + s.encode()
def frame(k, b): return struct.pack("<IBxxx", len(b), k) + b
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(b"\xf7TLM\1\0\0\0" + frame(1, struct.pack("<IIBBH", 0, 1, 0, 1, 0) + text(sys.argv[2]) + text("") + text("")))
for nth in range(int(sys.argv[3])):
    block = struct.pack("<BBHIqI4xd", 1, 0, 0, 1, time.time_ns() // 1000, 0, float(nth))
    s.sendall(frame(2, struct.pack("<Q", nth + 1) + block))
s.sendall(frame(3, struct.pack("<QQQQ", 10, 4, 0, 0)) + frame(6, struct.pack("<Q", 1)))
said = b""
while b"\x83\0\0\0" not in said:
    said += s.recv(4096)
"#;

fn in_a_job(socket: &Path, metric: &str, samples: u32, environment: &[(&str, &str)]) {
    let mut python = std::process::Command::new("python3");
    python.args(["-c", IN_A_JOB]).arg(socket).arg(metric).arg(samples.to_string());
    crate::process::quiet(&mut python);
    let done = python.envs(environment.iter().copied()).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn samples_belong_to_the_job_of_the_process_behind_the_connection() {
    let (_dir, server, socket) = served(&[]);
    in_a_job(&socket, "loss", 2, &[("TELEM_JOB", "first"), ("RANK", "3")]);
    in_a_job(&socket, "loss", 1, &[("TELEM_JOB", "second")]);
    in_a_job(&socket, "loss", 3, &[]);
    let rows = server.sql("SELECT job, count(*) AS n, min(rank) AS r FROM loss GROUP BY job ORDER BY n").json();
    let found: Vec<(&Json, &Json, &Json)> =
        rows.as_array().unwrap().iter().map(|row| (&row["job"], &row["n"], &row["r"])).collect();
    // What no job sent is of the node, and so of both.
    let (first, second) = ((&json!("first"), &json!(5), &json!("3")), (&json!("second"), &json!(4), &Json::Null));
    assert_eq!(found, [second, first], "{rows}");
}

#[test]
fn over_many_nodes_samples_belong_to_the_node_whose_socket_was_used() {
    let place = Place::new();
    let commands = ["sh", "-c", "echo \"$TELEM_SOCKET\"; read -r _ || true"];
    let (running, head) = started(&place, &[], &commands);
    let mut files = Vec::new();
    poll("five services to be found", || {
        files = crate::launch::left(place.path(), "connection.json");
        files.len() == 5
    });
    let connections =
        files.iter().map(|file| -> Json { serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap() });
    let sockets: BTreeMap<String, String> = connections
        .map(|found| (found["node"].as_str().unwrap().to_owned(), found["socket"].as_str().unwrap().to_owned()))
        .collect();
    assert_eq!(sockets.len(), 5, "{sockets:?}");
    for (nth, socket) in (1..).zip(sockets.values()) {
        in_a_job(Path::new(socket), "loss", nth, &[]);
    }
    let ask = "SELECT host, count(*) AS n FROM loss GROUP BY host ORDER BY n";
    let mut expected: Vec<String> = sockets.keys().cloned().collect();
    poll("all nodes to be asked", || {
        // From an agent too, which asks its head.
        let mut client = Client::new(Path::new(sockets.values().next_back().unwrap()));
        let (_, rows, (how, text)) = client.ask(1, ask);
        assert_ne!(how, 2, "{text}");
        let hosts = rows.iter().map(|row| match &row[0] {
            Cell::Text(host) => host.clone(),
            other => panic!("{other:?}"),
        });
        hosts.collect::<Vec<_>>() == expected
    });
    let over_http = Connection::unix(&head).request("POST", "/api/sql", &[], ask.as_bytes()).unwrap().json();
    expected.dedup();
    assert_eq!(over_http.as_array().unwrap().len(), expected.len());
    let (status, said) = running.end();
    assert!(status.success(), "{said}");
    assert!(
        said.contains("20 samples by the programs themselves: 4 for want of room in the program, 16 on other nodes"),
        "{said}"
    );
}

#[test]
fn a_job_whose_programs_dropped_nothing_says_nothing_of_that() {
    let place = Place::new();
    let done = telem(["run", "--", "true"]).current_dir(place.path()).output().unwrap();
    assert!(!String::from_utf8_lossy(&done.stderr).contains("dropped"));
}
