//! Queries and lines that no client would send: seeds, most of them recorded from clients of a real OpenTSDB, are
//! changed at random, and each is sent to a small database through the router that the server uses.
//!
//! Nothing may panic, no answer may be a 500, every answer must be what it claims to be, and telnet must answer the
//! same however its lines are cut. These are not targets of libFuzzer, as the decoders of samples have in `tests/fuzz`:
//! queries run through DataFusion, which would have to be compiled for it. A few hundred inputs are tried in every test
//! run; `TELEM_FUZZ_SECONDS=600 cargo test -p telem-server --lib -- fuzzing --nocapture` runs each target for ten
//! minutes. A finding is printed with the input, which then becomes a line of the seeds.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use bytes::BytesMut;
use telem_engine::{Clock, SystemClock, Value};
use telem_ingest::default_tags::DefaultTags;
use telem_query::{Queries, QueryOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::sync::watch;

use super::OpenTsdb;
use super::telnet::{Telnet, TelnetLimits};
use crate::protocol::{LineClient, LineService as _};
use crate::testing::Served;

const URIS: &str = include_str!("fuzzing/uris.txt");
/// A path, a blank, and what is posted there.
const BODIES: &str = include_str!("fuzzing/bodies.txt");
/// Conversations, `\n` between their lines.
const LINES: &str = include_str!("fuzzing/lines.txt");

/// Inputs that an ordinary test run tries.
const INPUTS: usize = 400;
const INPUT_BYTES_MAX: usize = 4 << 10;
/// Longest that an answer may take, in a debug build on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// What means something somewhere, and what is on the edge of meaning something.
const WORDS: &[&str] = &[
    "sum:",
    "none:",
    "p99:",
    "ep50r3:",
    "mult:",
    "diff:",
    "rate:",
    "rate{counter,",
    "rate{dropcounter}:",
    "1m-avg:",
    "1ms-sum-nan:",
    "0all-sum:",
    "1nc-max-zero:",
    "100y-avg:",
    "explicit_tags:",
    "percentiles[1]:",
    "long.s",
    "float.s",
    "{host=",
    "{}",
    "}",
    "%7B",
    "%7D",
    "%",
    "%00",
    "%ff",
    "&m=",
    "&tsuid=",
    "&start=",
    "&end=",
    "&tz=",
    "&ms",
    "&arrays",
    "&gaps=null",
    "&show_stats",
    "&exact",
    "literal_or(",
    "regexp(",
    "wildcard(*",
    "(((((((((",
    ")",
    "|",
    "*",
    "**",
    "[",
    "]",
    "{",
    "\"",
    "\\",
    "\\u0000",
    "null",
    "true",
    "[]",
    "{}",
    "{\"",
    "\":",
    ",",
    ":",
    "=",
    " ",
    "\n",
    "\r\n",
    "\t",
    "now",
    "1h-ago",
    "0",
    "-1",
    "1",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "99999999999999999999",
    "1e400",
    "1e-400",
    "0.1",
    "NaN",
    "Infinity",
    "2013/01/01-00:00:00",
    "2013/02/30",
    "1356998400.5",
    "Europe/Paris",
    "\"queries\":[",
    "\"filters\":[{\"type\":\"regexp\",\"tagk\":\"host\",\"filter\":\"",
    "\"tags\":{\"host\":\"*\"}",
    "\"start\":0",
    "\"downsample\":\"1ms-sum-nan\"",
    "\"tsuids\":[\"000001\"]",
    "\"delete\":true",
    "put ",
    "put m 1 1 a=b",
    "\nstats\n",
    "\nexit\n",
    "\nhelp",
    "é",
    "\u{fffd}",
    "\u{10ffff}",
];

/// A small generator: what it yields is decided by its seed alone.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn one_of<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }

    /// A seed with some things changed.
    fn input(&mut self, seeds: &[&str]) -> Vec<u8> {
        let mut input = self.one_of(seeds).as_bytes().to_vec();
        for _ in 0..self.below(6) {
            self.change(&mut input, seeds);
        }
        input.truncate(INPUT_BYTES_MAX);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>, seeds: &[&str]) {
        let at = self.below(input.len() + 1);
        let to = (at + self.below(12)).min(input.len());
        match self.below(8) {
            0 => drop(input.drain(at..to)),
            1 => drop(input.splice(at..at, input[at..to].to_vec())),
            2 => input.truncate(at),
            3 if at < input.len() => input[at] ^= 1 << self.below(8),
            4 => {
                let other = self.one_of(seeds).as_bytes();
                let from = self.below(other.len() + 1);
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            5 => drop(input.splice(at..to, self.one_of(WORDS).bytes())),
            6 => {
                // A number for a number.
                let digits = |byte: &u8| byte.is_ascii_digit();
                let Some(from) = input[at..].iter().position(digits).map(|found| at + found) else { return };
                let to = input[from..].iter().position(|byte| !digits(byte)).map_or(input.len(), |end| from + end);
                let number = [self.next().to_string(), self.below(100).to_string(), "-".to_owned()];
                input.splice(from..to, number[self.below(3)].bytes());
            }
            _ => drop(input.splice(at..at, self.one_of(WORDS).bytes())),
        }
    }
}

/// Tries the seeds as they are, then changed ones.
fn try_all(name: &str, seeds: &str, mut target: impl FnMut(&[u8])) {
    let seeds: Vec<&str> = seeds.lines().collect();
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seed = number("TELEM_FUZZ_SEED").unwrap_or_else(|| getrandom::u64().unwrap());
    println!("{name}: TELEM_FUZZ_SEED={seed}");
    let mut random = Random(seed);
    let clock = SystemClock::new();
    let until = number("TELEM_FUZZ_SECONDS").map(|seconds| clock.monotonic() + Duration::from_secs(seconds));
    seeds.iter().for_each(|seed| target(seed.as_bytes()));
    let mut tried = 0;
    while until.map_or(tried < INPUTS, |until| clock.monotonic() < until) {
        target(&random.input(&seeds));
        tried += 1;
    }
    println!("{name}: {tried} inputs");
}

/// A database with some of what the seeds ask for, that answers small questions only.
fn served() -> Served {
    let served = Served::with(|state| {
        let options = QueryOptions {
            deadline: PATIENCE / 2,
            memory_bytes_max: 64 << 20,
            points_max: 500_000,
            answer_values_max: 100_000,
            threads: 2,
            ..state.queries.options().clone()
        };
        state.queries = Queries::new(state.db.clone(), options).unwrap();
    });
    for (host, dc) in [("web01", "lga"), ("web02", "jfk"), ("web03", "lga")] {
        let tags = [("dc", dc), ("host", host)];
        let points = |of: &dyn Fn(i64) -> Value| (0..100).map(|n| (1_356_998_400 + 30 * n, of(n))).collect::<Vec<_>>();
        served.store("long.s", &tags, &points(&Value::Int));
        served.store("float.s", &tags, &points(&|n| Value::Float(n as f64 / 4.0)));
    }
    served
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// As a client would have to write it.
fn encoded(path: &[u8]) -> String {
    let mut uri = String::from(if path.starts_with(b"/") { "" } else { "/" });
    for byte in path {
        match byte {
            b'!'..=b'~' if !b"\"#<>\\^`{|}".contains(byte) => uri.push(char::from(*byte)),
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}

/// Asks, and looks at the answer.
async fn ask(served: &Served, method: &str, path: &[u8], body: &[u8]) {
    let shown = || {
        let [path, body] = [path, body].map(|bytes| bytes.escape_ascii().to_string());
        format!("{method} {path} {body}")
    };
    let uri = encoded(path);
    let Ok(request) = Request::builder().method(method).uri(&uri).body(Body::from(body.to_vec())) else { return };
    let asked = tokio::time::timeout(PATIENCE, served.ask(request)).await;
    let answer = asked.unwrap_or_else(|_| panic!("no answer within {PATIENCE:?}: {}", shown()));
    let text = String::from_utf8_lossy(&answer.body);
    // What the original makes of a wrong request is reproduced where it is asked for.
    let exact = uri.contains("exact");
    let known = [200, 204, 301, 304, 400, 404, 405, 413, 415, 422, 501, 503, 507].contains(&answer.status);
    assert!(known || (exact && answer.status == 500), "{} {text}\n{}", answer.status, shown());
    if answer.header("content-type").starts_with("application/json") {
        let json = serde_json::from_slice::<serde_json::Value>(&answer.body);
        let json = json.unwrap_or_else(|error| panic!("no JSON ({error}): {text}\n{}", shown()));
        if answer.status >= 400 {
            // Each endpoint has a form of its own to say what is wrong.
            assert!(json.as_object().is_some_and(|object| !object.is_empty()), "{} {text}\n{}", answer.status, shown());
        }
    }
}

#[test]
fn no_uri_is_too_much() {
    let (served, runtime) = (served(), runtime());
    try_all("uris", URIS, |input| runtime.block_on(ask(&served, "GET", input, b"")));
}

#[test]
fn no_body_is_too_much() {
    let (served, runtime) = (served(), runtime());
    try_all("bodies", BODIES, |input| {
        let end = input.iter().position(|byte| *byte == b' ').unwrap_or(input.len());
        runtime.block_on(ask(&served, "POST", &input[..end], input.get(end + 1..).unwrap_or_default()));
    });
}

#[test]
fn no_line_is_too_much_however_it_is_cut() {
    let (served, runtime) = (served(), runtime());
    let mut random = Random(getrandom::u64().unwrap());
    try_all("lines", LINES, |input| {
        let input = String::from_utf8_lossy(input).replace("\\n", "\n").into_bytes();
        let cuts: Vec<usize> = (0..random.below(4)).map(|_| random.below(input.len() + 1)).collect();
        runtime.block_on(async {
            let at_once = converse(&served, &input, &[]).await;
            let cut = converse(&served, &input, &cuts).await;
            // These tell what went before.
            if !input.windows(5).any(|word| word == b"stats" || word == b"versi") {
                let shown = input.escape_ascii();
                assert_eq!(at_once, cut, "{shown} cut at {cuts:?}");
            }
        });
    });
}

/// All that is answered to `sent`, which comes in parts.
async fn converse(served: &Served, sent: &[u8], cuts: &[usize]) -> String {
    let (mut client, stream) = duplex(64 << 10);
    let telnet = Telnet::new(Arc::new(OpenTsdb::new(Arc::clone(&served.state), TelnetLimits::default())));
    let (_running, stopped) = watch::channel(false);
    let talk = async move {
        let mut cuts = cuts.to_vec();
        cuts.sort_unstable();
        let mut from = 0;
        for to in cuts.into_iter().chain([sent.len()]) {
            // A client may be left before it has said all.
            if client.write_all(&sent[from..to]).await.is_err() {
                break;
            }
            from = to;
            tokio::task::yield_now().await;
        }
        drop(client.shutdown().await);
        let mut answers = Vec::new();
        client.read_to_end(&mut answers).await.unwrap();
        String::from_utf8(answers).unwrap()
    };
    let (stream, first, tags) = (Box::new(stream), BytesMut::new(), DefaultTags::default());
    let conversation = telnet.converse(LineClient { stream, first, tags, stopping: stopped });
    let both = async { tokio::join!(conversation, talk).1 };
    let answered = tokio::time::timeout(PATIENCE, both).await;
    answered.unwrap_or_else(|_| panic!("the conversation does not end: {}", sent.escape_ascii()))
}
