//! What a sample costs stage by stage, from its bytes on a socket to its file, beside the limit of each stage: what a
//! machine needs for the same bytes if nothing is done but what cannot be left out. Both in one round, by one thread.
//!
//! Some stages are differences of two measurements of the same samples: names are what accepting takes beyond reading
//! numbers, a frame is what an append takes beyond the memtable where the WAL's bytes are dropped, and a write is what it
//! takes beyond that on the disk of the machine. So a small stage can come out as less than nothing.

use std::collections::HashMap;
use std::fs::{self, File};
use std::hint::black_box;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use parquet::column::page::{Page, PageReader};
use parquet::file::reader::{FileReader, SerializedFileReader};
use telem_benches::cpu;
use telem_engine::disk::OsDisk;
use telem_engine::{Clock, Db, Durability, Options, SampleBatch, SeriesId, SeriesKey, SystemClock, crc32};
use telem_ingest::decode::line::{Blind, Lines};
use telem_ingest::writer::{Writer, WriterOptions};

use crate::memory_disk::MemoryDisk;

/// Batches between two fsyncs: 100,000 samples, which a busy server takes in 100 ms.
const BATCHES_A_SYNC: usize = 10;
/// What a sample takes in a batch: number of its series, time, value with its type.
const BATCH_BYTES: usize = 4 + 8 + 16;
/// And in the memtable.
const MEMTABLE_BYTES: usize = 17;
/// As segments are compressed.
const ZSTD_LEVEL: i32 = 1;

/// One stage, measured once. Times are nanoseconds a sample.
pub struct Stage {
    pub name: &'static str,
    pub ns: f64,
    /// Bytes a sample that the stage reads or writes.
    pub bytes: f64,
    pub limit: &'static str,
    pub limit_ns: f64,
    /// Whether it is time of the clock: a disk is waited for.
    pub is_wall: bool,
}

/// All stages, in the order in which a sample passes them.
pub fn measure(bodies: &[Vec<u8>], decode: fn(&Writer, &[u8]) -> SampleBatch) -> Vec<Stage> {
    let (batches, keys) = batches(bodies, decode);
    let samples = batches.iter().map(SampleBatch::len).sum();
    let text: usize = bodies.iter().map(Vec::len).sum();
    let mut stages = Stages { samples, stages: Vec::new() };

    let copied = copy(bodies.iter().map(Vec::as_slice));
    stages.add("receive: HTTP's head and body, an answer", receive(bodies), text, "copy", copied);
    let read = thread_time(|| bodies.iter().for_each(|body| read_blindly(body)));
    stages.add("decode: names scanned, numbers read", read, text, "copy", copied);
    let accepted = accept(bodies, decode);
    let looked_up = look_up(bodies, &batches);
    stages.add("names to ids, into a batch", accepted - read, samples * BATCH_BYTES, "hash, probe, store", looked_up);
    append_and_flush(&mut stages, &batches, &keys);
    stages.stages
}

struct Stages {
    samples: usize,
    stages: Vec<Stage>,
}

impl Stages {
    fn add(&mut self, name: &'static str, took: f64, bytes: usize, limit: &'static str, limit_took: f64) {
        let of = |all: f64| all / self.samples as f64;
        let (ns, limit_ns) = (of(took), of(limit_took));
        self.stages.push(Stage { name, ns, bytes: of(bytes as f64), limit, limit_ns, is_wall: false });
    }
}

/// CPU of this thread.
fn thread_time<T>(what: impl FnOnce() -> T) -> f64 {
    let before = cpu::of_thread();
    black_box(what());
    nanos(cpu::of_thread() - before)
}

fn nanos(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e9
}

/// Copies each of `parts` into room that is there.
fn copy<'a>(parts: impl Iterator<Item = &'a [u8]> + Clone) -> f64 {
    let mut room = vec![1; parts.clone().map(<[u8]>::len).max().unwrap_or(0)];
    thread_time(|| {
        for part in parts {
            room[..part.len()].copy_from_slice(part);
            black_box(&mut room);
        }
    })
}

/// The batches of all bodies, and the keys of their series by number.
fn batches(bodies: &[Vec<u8>], decode: fn(&Writer, &[u8]) -> SampleBatch) -> (Vec<SampleBatch>, Vec<SeriesKey>) {
    let (_dir, writer, db) = writer();
    let batches = bodies.iter().map(|body| decode(&writer, body)).collect();
    let keys = (0..db.index().len() as u32).map(|id| db.index().key(SeriesId(id)).expect("ids have no gaps")).collect();
    (batches, keys)
}

fn writer() -> (tempfile::TempDir, Writer, Db) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = Db::open(dir.path(), Options::default()).expect("a new database");
    (dir, Writer::start(db.clone(), WriterOptions::default()).expect("threads"), db)
}

/// What the thread of a connection takes that reads requests from a socket, keeps nothing and answers 204.
fn receive(bodies: &[Vec<u8>]) -> f64 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = listener.local_addr().expect("it has one");
    thread::scope(|scope| {
        scope.spawn(move || send(bodies, &TcpStream::connect(to).expect("a server that listens")));
        let (stream, _) = listener.accept().expect("the client of above");
        stream.set_nodelay(true).expect("a socket");
        thread_time(|| take(stream))
    })
}

fn send(bodies: &[Vec<u8>], stream: &TcpStream) {
    stream.set_nodelay(true).expect("a socket");
    let mut answers = BufReader::new(stream);
    let (mut request, mut line) = (Vec::new(), String::new());
    for body in bodies {
        request.clear();
        write!(request, "POST /write HTTP/1.1\r\nHost: here\r\nContent-Length: {}\r\n\r\n", body.len())
            .expect("memory");
        request.extend_from_slice(body);
        let mut to = stream;
        to.write_all(&request).expect("a server that reads");
        for _ in 0..2 {
            line.clear();
            answers.read_line(&mut line).expect("an answer");
        }
    }
}

fn take(stream: TcpStream) {
    let mut answers = stream.try_clone().expect("a socket");
    let mut requests = BufReader::with_capacity(256 << 10, stream);
    let (mut line, mut body) = (String::new(), Vec::new());
    loop {
        let mut length = 0;
        loop {
            line.clear();
            if requests.read_line(&mut line).expect("a request") == 0 {
                return;
            }
            if let Some(said) = line.strip_prefix("Content-Length: ") {
                length = said.trim().parse().expect("a length");
            }
            if line == "\r\n" {
                break;
            }
        }
        body.resize(length, 0);
        requests.read_exact(&mut body).expect("a body");
        black_box(&body);
        answers.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").expect("a client that reads");
    }
}

fn read_blindly(body: &[u8]) {
    let (mut lines, mut fields) = (Lines::new(body), Vec::new());
    while let Some(line) = lines.read(&mut Blind, &mut fields) {
        black_box((line.expect("a good line"), &fields));
    }
}

/// Reading with the names of before, as a server does it: a batch with ids comes out.
fn accept(bodies: &[Vec<u8>], decode: fn(&Writer, &[u8]) -> SampleBatch) -> f64 {
    let (_dir, writer, _db) = writer();
    bodies.iter().take(BATCHES_A_SYNC).for_each(|body| drop(decode(&writer, body)));
    thread_time(|| bodies.iter().for_each(|body| drop(black_box(decode(&writer, body)))))
}

/// A hash and a probe of a map for measurement and tags of each line, and samples put into a batch.
fn look_up(bodies: &[Vec<u8>], batches: &[SampleBatch]) -> f64 {
    let mut known: HashMap<&[u8], u32, ahash::RandomState> = HashMap::default();
    let mut lines: Vec<&[u8]> = Vec::new();
    for body in bodies {
        for line in body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let key = line.split(|byte| *byte == b' ').next().unwrap_or_default();
            let next = known.len() as u32;
            known.entry(key).or_insert(next);
            lines.push(key);
        }
    }
    thread_time(|| {
        for line in &lines {
            black_box(known.get(line));
        }
        for batch in batches {
            let mut made = SampleBatch::with_capacity(batch.len());
            batch.iter().for_each(|(series, time, value)| made.push(series, time, value));
            black_box(&made);
        }
    })
}

/// From batches to files: the memtable, the WAL, and a segment.
fn append_and_flush(stages: &mut Stages, batches: &[SampleBatch], keys: &[SeriesKey]) {
    let samples = stages.samples;
    let open = |dir: &Path, options| with_series(Db::open(dir, options).expect("a new database"), keys);
    let in_memory = || Options { disk: Arc::new(MemoryDisk::default()), ..Options::default() };
    let home = Path::new("/memory");

    let db = open(home, in_memory());
    let kept = thread_time(|| batches.iter().for_each(|batch| db.append_in_memory(batch).expect("room")));
    let rows = vec![0; MEMTABLE_BYTES * batches.iter().map(SampleBatch::len).max().unwrap_or(0)];
    let copied = copy(batches.iter().map(|batch| &rows[..MEMTABLE_BYTES * batch.len()]));
    stages.add("append to the memtable", kept, samples * MEMTABLE_BYTES, "copy", copied);

    let disk = Arc::new(MemoryDisk::default());
    let db = open(home, Options { disk: Arc::clone(&disk) as _, ..Options::default() });
    let framed = thread_time(|| append(&db, batches));
    let wal = db.info().expect("an open database").wal_bytes as usize;
    let frames = vec![7; wal / batches.len()];
    let checked = thread_time(|| {
        let mut room = vec![0; frames.len()];
        for _ in batches {
            room.copy_from_slice(&frames);
            black_box(crc32(black_box(&room)));
        }
    });
    stages.add("frame of the WAL, checksum", framed - kept, wal, "copy, CRC-32", checked);

    let dir = tempfile::tempdir().expect("a temporary directory");
    let clock = SystemClock::new();
    let on_disk = open(&dir.path().join("db"), Options { disk: Arc::new(OsDisk), ..Options::default() });
    let (mut synced, mut written) = (Duration::ZERO, 0.0);
    for some in batches.chunks(BATCHES_A_SYNC) {
        written += thread_time(|| append(&on_disk, some));
        let began = clock.monotonic();
        on_disk.sync().expect("a disk");
        synced += clock.monotonic() - began;
    }
    let (plain, plain_synced) = write(&dir.path().join("plain"), &frames, batches.len(), &clock);
    stages.add("write of the WAL", written - framed, wal, "write", plain);
    stages.add("fsync of the WAL", nanos(synced), wal, "fsync", nanos(plain_synced));
    stages.stages.last_mut().expect("it was just added").is_wall = true;

    let flushed = thread_time(|| db.flush().expect("room"));
    let files = disk.contents(&home.join("segments"));
    let bytes: usize = files.iter().map(Vec::len).sum();
    let pages: Vec<Vec<u8>> = files.into_iter().flat_map(pages).collect();
    let raw: usize = pages.iter().map(Vec::len).sum();
    let compressed = compress(&pages);
    stages.add("sort, encode pages, index", flushed - compressed, raw, "copy", copied);
    stages.add("zstd of the pages", compressed, bytes, "zstd alone", compressed);

    let flushed_to_disk = thread_time(|| on_disk.flush().expect("space"));
    let segment = vec![7; bytes];
    let (plain, _) = write(&dir.path().join("segment"), &segment, 1, &clock);
    stages.add("write of the segment and its manifest", flushed_to_disk - flushed, bytes, "write, fsync", plain);
}

fn with_series(db: Db, keys: &[SeriesKey]) -> Db {
    for (id, key) in keys.iter().enumerate() {
        let given = db.series(key).expect("room for it");
        assert_eq!(given, SeriesId(id as u32), "ids are given in order, and batches name these");
    }
    db
}

fn append(db: &Db, batches: &[SampleBatch]) {
    batches.iter().for_each(|batch| db.append(batch, Durability::Buffered).expect("room"));
}

/// Writes `bytes` that often, with the same fsyncs as the WAL: CPU of the writes, time of the fsyncs.
fn write(path: &Path, bytes: &[u8], times: usize, clock: &SystemClock) -> (f64, Duration) {
    let mut file = File::create(path).expect("a new file");
    let (mut written, mut synced) = (0.0, Duration::ZERO);
    for at in 1..=times {
        written += thread_time(|| file.write_all(bytes).expect("space"));
        if at % BATCHES_A_SYNC == 0 || at == times {
            let began = clock.monotonic();
            let cpu = thread_time(|| file.sync_data().expect("a disk"));
            synced += clock.monotonic() - began;
            // A flush waits for its own fsync; what that computes belongs to it.
            written += if times == 1 { cpu } else { 0.0 };
        }
    }
    fs::remove_file(path).expect("it was just made");
    (written, synced)
}

/// The pages of a segment as they were before they were compressed.
fn pages(file: Vec<u8>) -> Vec<Vec<u8>> {
    let file = SerializedFileReader::new(Bytes::from(file)).expect("a segment is Parquet");
    let mut pages = Vec::new();
    for group in 0..file.num_row_groups() {
        let group = file.get_row_group(group).expect("it is there");
        for column in 0..group.num_columns() {
            let mut reader = group.get_column_page_reader(column).expect("it is there");
            while let Some(page) = PageReader::get_next_page(&mut *reader).expect("a good page") {
                let levels = match &page {
                    Page::DataPageV2 { def_levels_byte_len, rep_levels_byte_len, .. } => {
                        (def_levels_byte_len + rep_levels_byte_len) as usize
                    }
                    _ => 0,
                };
                pages.push(page.buffer()[levels..].to_vec());
            }
        }
    }
    pages
}

fn compress(pages: &[Vec<u8>]) -> f64 {
    let mut compressor = zstd::bulk::Compressor::new(ZSTD_LEVEL).expect("a level that there is");
    let most = pages.iter().map(|page| zstd::zstd_safe::compress_bound(page.len())).max().unwrap_or(0);
    let mut room = vec![0; most];
    thread_time(|| {
        for page in pages {
            black_box(compressor.compress_to_buffer(page, &mut room).expect("room for it"));
        }
    })
}
