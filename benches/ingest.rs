//! Measures ingest, in CPU-seconds of all threads per million samples: line protocol, and put with and without
//! recognising bodies by their raw bytes.
//!
//! The load is what collectors send: 100 hosts with 50 metrics each, one sample a second, ordered by tick. A third each
//! are counters, percentages with two decimals and, one in 25, floats with all their digits. A body holds 10,000
//! samples as lines, with the fields of one subject together, or 1,000 as data points. Bodies are made before the clock
//! starts.
//!
//! `decode` measures bytes to a batch. `stored` measures everything but HTTP: decoding, the queue, the WAL with its
//! fsync every 100 ms, the memtable, and the flush to Parquet when the database is closed. Then the same lines go through
//! each stage alone, see [`stages`].

#[path = "ingest/memory_disk.rs"]
mod memory_disk;
#[path = "ingest/stages.rs"]
mod stages;

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Duration;

use telem_benches::cpu;
use telem_engine::{Db, Durability, Options, SampleBatch};
use telem_ingest::accept::lines::LineRules;
use telem_ingest::decode::line::LinePrecision;
use telem_ingest::decode::opentsdb::{self, NonFinite, PutRules};
use telem_ingest::default_tags::DefaultTags;
use telem_ingest::writer::{Writer, WriterOptions};

use stages::Stage;

const HOSTS: usize = 100;
/// Subject and number of its fields: 50 in all.
const SUBJECTS: [(&str, usize); 6] = [("cpu", 9), ("mem", 12), ("disk", 8), ("net", 9), ("gpu", 10), ("train", 2)];
const START: i64 = 1_767_322_800;
const RULES: PutRules =
    PutRules { tags_max: TAGS_MAX, precision: opentsdb::Precision::BySize, non_finite: NonFinite::Refuse };
const TAGS_MAX: usize = telem_engine::series::TAGS_MAX;

/// The value of one field at one tick, as text. Integers with the suffix that lines want, if they do.
fn value(out: &mut String, host: usize, field: usize, tick: i64, int: &str) {
    let step = tick * 7 + (host * 50 + field) as i64;
    match field % 25 {
        24 => write!(out, "{}", (step as f64).sin()),
        field if field % 3 == 0 => write!(out, "{}.{:02}", step % 100, (step * 13) % 100),
        _ => write!(out, "{}{int}", step * 1_000),
    }
    .expect("strings take everything");
}

fn fields() -> impl Iterator<Item = (&'static str, usize, usize)> {
    let mut number = 0;
    SUBJECTS.into_iter().map(move |(subject, count)| {
        number += count;
        (subject, number - count, number)
    })
}

fn lines(ticks: i64) -> Vec<Vec<u8>> {
    let mut bodies = vec![String::new()];
    for tick in 0..ticks {
        for host in 0..HOSTS {
            if host == 0 && tick % 2 == 0 && tick > 0 {
                bodies.push(String::new());
            }
            let body = bodies.last_mut().expect("there is one");
            for (subject, first, end) in fields() {
                let _ = write!(body, "{subject},cluster=juno,host=nid{host:04},rack=r{:02} ", host / 16);
                for field in first..end {
                    let comma = if field > first { "," } else { "" };
                    let _ = write!(body, "{comma}metric_{field}=");
                    value(body, host, field, tick, "i");
                }
                let _ = writeln!(body, " {}000000000", START + tick);
            }
        }
    }
    bodies.into_iter().map(String::into_bytes).collect()
}

fn points(ticks: i64) -> Vec<Vec<u8>> {
    let mut bodies = Vec::new();
    for tick in 0..ticks {
        for some in (0..HOSTS).collect::<Vec<_>>().chunks(20) {
            let mut body = String::from("[");
            for host in some {
                for (subject, first, end) in fields() {
                    for field in first..end {
                        let comma = if body.len() > 1 { "," } else { "" };
                        let _ = write!(
                            body,
                            r#"{comma}{{"metric":"{subject}_metric_{field}","timestamp":{},"value":"#,
                            START + tick
                        );
                        value(&mut body, *host, field, tick, "");
                        let _ = write!(
                            body,
                            r#","tags":{{"cluster":"juno","host":"nid{host:04}","rack":"r{:02}"}}}}"#,
                            host / 16
                        );
                    }
                }
            }
            body.push(']');
            bodies.push(body.into_bytes());
        }
    }
    bodies
}

type Decode = fn(&Writer, &[u8]) -> SampleBatch;

fn decode_lines(writer: &Writer, body: &[u8]) -> SampleBatch {
    let accepted =
        writer.accept_lines(&DefaultTags::default(), LineRules { precision: LinePrecision::Nanos, keep: true }, body);
    assert_eq!(accepted.rejected, 0, "{:?}", accepted.rejects.first());
    accepted.batch
}

fn decode_points(writer: &Writer, body: &[u8]) -> SampleBatch {
    writer.accept_points(&DefaultTags::default(), &RULES, body).expect("good points")
}

/// As it was before there was another way, and is for bodies with anything unusual.
fn decode_points_thoroughly(writer: &Writer, body: &[u8]) -> SampleBatch {
    let accepted = opentsdb::with_points(body, usize::MAX, |points| {
        writer.accept(
            &DefaultTags::default(),
            points.kept.iter().enumerate().filter_map(|(at, point)| Some((at, point.sample(&RULES).ok()?))),
        )
    })
    .expect("JSON");
    assert_eq!(accepted.rejected, 0);
    accepted.batch
}

struct Measured {
    samples: usize,
    decode: Duration,
    stored: Duration,
}

fn measure(bodies: &[Vec<u8>], decode: Decode) -> Measured {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = Db::open(dir.path(), Options::default()).expect("a new database");
    let writer = Writer::start(db, WriterOptions::default()).expect("threads");
    // Once to learn the names, as a server that runs has.
    for body in &bodies[..bodies.len().min(6)] {
        decode(&writer, body);
    }
    let began = cpu::of_thread();
    let samples = bodies.iter().map(|body| black_box(decode(&writer, body)).len()).sum();
    let decoded = cpu::of_thread() - began;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let began = cpu::of_process();
    runtime.block_on(async {
        for body in bodies {
            writer.submit(decode(&writer, body), Durability::Buffered).await.expect("room");
        }
        writer.shutdown(Duration::from_secs(600)).await.expect("a clean end");
    });
    Measured { samples, decode: decoded, stored: cpu::of_process() - began }
}

fn main() {
    // `cargo bench -- --test` only checks that it runs.
    let test = std::env::args().any(|argument| argument == "--test");
    let (ticks, rounds) = if test { (2, 1) } else { (200, 5) };
    assert_eq!(SUBJECTS.iter().map(|(_, count)| count).sum::<usize>(), 50);
    let (lines, points) = (lines(ticks), points(ticks));
    let ways: [(&str, &[Vec<u8>], Decode); 3] = [
        ("line protocol", &lines, decode_lines),
        ("put, by raw bytes", &points, decode_points),
        ("put, thoroughly", &points, decode_points_thoroughly),
    ];
    println!("CPU-seconds a million samples; rounds are interleaved");
    let mut all: [Vec<Measured>; 3] = Default::default();
    for _ in 0..rounds {
        for (at, (_, bodies, decode)) in ways.iter().enumerate() {
            all[at].push(measure(bodies, *decode));
        }
    }
    for ((name, bodies, _), measured) in ways.iter().zip(&all) {
        let samples = measured[0].samples;
        let bytes: usize = bodies.iter().map(Vec::len).sum();
        let each = |of: fn(&Measured) -> Duration| {
            let mut seconds: Vec<f64> =
                measured.iter().map(|one| of(one).as_secs_f64() / one.samples as f64 * 1e6).collect();
            seconds.sort_by(f64::total_cmp);
            format!("{:.3} ({:.3} to {:.3})", seconds[seconds.len() / 2], seconds[0], seconds[seconds.len() - 1])
        };
        println!(
            "{name:18} {samples:8} samples, {:5.1} bytes each: decode {}, stored {}",
            bytes as f64 / samples as f64,
            each(|one| one.decode),
            each(|one| one.stored)
        );
    }
    print_stages((0..rounds).map(|_| stages::measure(&lines, decode_lines)).collect());
}

/// The medians of the rounds.
fn print_stages(rounds: Vec<Vec<Stage>>) {
    println!("\nline protocol by stages; ns and bytes a sample; CPU of one thread, fsync by the clock");
    println!("{:40} {:>8} {:>8}   limit", "", "ns", "bytes");
    let (mut sum, mut limits) = (0.0, 0.0);
    for at in 0..rounds[0].len() {
        let median = |of: fn(&Stage) -> f64| {
            let mut all: Vec<f64> = rounds.iter().map(|round| of(&round[at])).collect();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        let (ns, limit_ns, stage) = (median(|stage| stage.ns), median(|stage| stage.limit_ns), &rounds[0][at]);
        println!("{:40} {ns:8.1} {:8.2}   {:18} {limit_ns:6.2}", stage.name, stage.bytes, stage.limit);
        if !stage.is_wall {
            sum += ns;
            limits += limit_ns;
        }
    }
    println!("{:40} {sum:8.1} {:8}   {:18} {limits:6.2}", "all but the fsync", "", "");
}
