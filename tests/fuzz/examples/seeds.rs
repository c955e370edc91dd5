//! Makes the seeds in `tests/fuzz/corpus` from parts of real databases and from recordings of other systems.
//!
//!   cargo run --manifest-path tests/fuzz/Cargo.toml --example seeds
//!
//! Names say where a seed comes from. The seeds need not be made again when the writer changes: old files must stay
//! readable.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;
use telem_engine::meta::{Annotation, MetaChange, MetricKind, MetricMeta};
use telem_engine::{Db, Durability, Options, SampleBatch, SeriesKey, TagSet, Timestamp, Value};

const HOUR: i64 = 3_600_000_000;
/// 2026-01-01T00:00:00Z.
const START: i64 = 1_767_225_600_000_000;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let corpus = Corpus { dir: root.join("corpus") };
    databases(&corpus);
    lines(&corpus, &root.join("../../fixtures/influx/lines.json"));
    puts(&corpus, &root.join("../../fixtures/opentsdb/12-put.json"));
    numbers(&corpus);
    posts(&corpus);
    frames(&corpus);
    expositions(&corpus);
    sessions(&corpus);
    tables(&corpus, &root.join("../../fixtures/machines/mi300x"));
    kernel_text(&corpus, &root.join("../../fixtures/machines"));
}

/// What Dragon's class posts, and what else its server took.
fn posts(corpus: &Corpus) {
    let posts = [
        ("class", r#"{"dps": [{"metric": "loss", "value": 0.1}], "timestamp": 1733466126}"#),
        ("tags", r#"{"dps": [{"metric": "m", "value": 3, "tags": {"rank": 3, "gpu id": "cuda:0", "on": true, "x": null}}]}"#),
        ("values", r#"{"dps": [{"metric": "a", "value": null}, {"metric": "b", "value": " 1e3 "}, {"metric": "c", "value": true}, {"metric": "d"}], "timestamp": 1733466126.25}"#),
        ("strange", r#"{"dps": [7, [], {"metric": 5, "value": 1}, {"metric": "m", "value": 1e999, "tags": []}], "timestamp": "1733466126250"}"#),
    ];
    for (name, post) in posts {
        corpus.put("dragon_points", name, post.as_bytes());
    }
}

/// What exporters show: each kind of family in both formats, and lines that are broken.
fn expositions(corpus: &Corpus) {
    let expositions = [
        ("counter", "# HELP a_total The \\\\ and \\n.\n# TYPE a_total counter\na_total{m=\"post\",c=\"200\"} 1027 1395066363000\n"),
        ("gauge", "# TYPE g gauge\ng{p=\"C:\\\\D\",e=\"\\n\\\"x\\\"\"} -1.5e9\ng NaN\ng +Inf -3982045\n"),
        ("histogram", "# TYPE h histogram\nh_bucket{le=\"0.05\"} 24054\nh_bucket{le=\"+Inf\"} 144320\nh_sum 53423\nh_count 144320\n"),
        ("summary", "# TYPE s summary\ns{quantile=\"0.5\"} 4773\ns_sum 1.7560473e+07\ns_count 2693\nother 5\n"),
        ("open", "# TYPE f counter\n# UNIT f seconds\nf_total 17.0 1520879607.789 # {t=\"K\"} 0.67\nf_created 1.5e9\n# EOF\n"),
        ("others", "# TYPE q gaugehistogram\nq_gcount 4\n# TYPE b info\nb_info{v=\"1\"} 1\n# TYPE o stateset\no{o=\"on\"} 1\n# EOF\n"),
        ("quoted", "# TYPE \"my.metric\" gauge\n{\"my.metric\",\"a b\"=\"x\",c=\"y\",} 1\r\n"),
        ("broken", "a{b} 1\na{b=\"c 1\na 1 2 3\n1a 5\na{b=\"1\",b=\"2\"} 1\n# TYPE a thing\na 1\n# EOF\na 2\n"),
    ];
    for (name, text) in expositions {
        corpus.put("exposition_text", name, text.as_bytes());
    }
}

/// What clients of Metric Proxy send: a session, a gauge, other spellings, what is broken, several jobs.
fn sessions(corpus: &Corpus) {
    let sessions = [
        ("session", "{\"JobDesc\":{\"jobid\":\"x\",\"command\":\"a b\",\"size\":4,\"nodelist\":\"\",\"partition\":\"\",\"cluster\":\"\",\"run_dir\":\"/\",\"start_time\":1795248958639,\"end_time\":0}}\0{\"Desc\":{\"name\":\"wire_counter\",\"doc\":\"A \\\"quoted\\\" doc\",\"ctype\":{\"Counter\":{\"ts\":0,\"value\":0.0}}}}\0{\"Value\":{\"name\":\"wire_counter\",\"value\":{\"Counter\":{\"ts\":1795248958639409,\"value\":3.5}}}}\0{\"Value\":{\"name\":\"wire_counter\",\"value\":{\"Counter\":{\"ts\":1795248958639409,\"value\":-1e3}}}}\0"),
        ("gauge", "{\"Desc\":{\"name\":\"g{rank=\\\"0\\\",op=\\\"read\\\"}\",\"doc\":\"gauge doc\",\"ctype\":{\"Gauge\":{\"min\":0.0,\"max\":0.0,\"hits\":0.0,\"total\":0.0}}}}\0{\"Value\":{\"name\":\"g{rank=\\\"0\\\",op=\\\"read\\\"}\",\"value\":{\"Gauge\":{\"min\":7.0,\"max\":7.0,\"hits\":1.0,\"total\":7.0}}}}\0{\"Value\":{\"name\":\"g{rank=\\\"0\\\",op=\\\"read\\\"}\",\"value\":{\"Gauge\":{\"min\":null,\"max\":null,\"hits\":1.0,\"total\":null}}}}\0"),
        ("other", " {\"Desc\" : {\"ctype\":{\"Counter\":{\"value\":2}}, \"name\":\"a{b=1\"}} \0{\"Value\":{\"value\":{\"Counter\":{\"value\":3,\"extra\":[1]}}, \"name\":\"a{b=1\"}}\0{\"Value\":{\"name\":\"a{b=1\",\"value\":{\"Counter\":{\"ts\":1,\"value\":0.1}}}}\0"),
        ("broken", "\0{}\0null\0{\"Value\":{\"name\":\"never\",\"value\":{\"Counter\":{\"ts\":1,\"value\":1.0}}}}\0{\"Value\":{\"name\":\"x\\\0{\"Desc\":{\"name\":\"\",\"doc\":\"\",\"ctype\":{\"Counter\":{\"ts\":0,\"value\":1e999}}}}\0rest\0"),
        ("jobs", "{\"JobDesc\":{\"jobid\":\"x\"}}\0{\"JobDesc\":{\"jobid\":\"y\",\"start_time\":5}}\0{\"Desc\":{\"name\":\"c\",\"ctype\":{\"Counter\":{\"value\":1.5}}}}\0{\"JobDesc\":{\"jobid\":\"\"}}\0"),
    ];
    for (name, stream) in sessions {
        corpus.put("proxy_messages", name, stream.as_bytes());
    }
}

/// Frames of the client protocol: the type, then the body.
fn frames(corpus: &Corpus) {
    let text = |text: &str| [&(text.len() as u16).to_le_bytes()[..], text.as_bytes()].concat();
    let long = |text: &str| [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
    let numbers = |numbers: &[u32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    let wide = |numbers: &[u64]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    let time = START.cast_unsigned();
    let series = [
        numbers(&[0, 2]),
        vec![0, 1, 1, 0],
        [text("loss"), text("1"), text("of the model"), text("rank"), text("3")].concat(),
        vec![1, 4, 0, 0],
        [text("steps"), text(""), text("")].concat(),
    ];
    let columns = [
        wide(&[1]),
        vec![0, 0, 0, 0],
        numbers(&[0, 2, 0]),
        wide(&[time, time + 1, f64::NAN.to_bits(), (-0.0_f64).to_bits()]),
        vec![0, 1, 0, 0],
        numbers(&[3, 1, 0]),
        wide(&[time, i64::MIN.cast_unsigned()]),
    ];
    let row = [wide(&[u64::MAX]), vec![1, 1, 0, 0], numbers(&[3]), wide(&[time]), numbers(&[0, 1, 2, 0]), wide(&[1, 2, 3])];
    let seeds: [(&str, u8, Vec<u8>); 9] = [
        ("series", 1, series.concat()),
        ("no_series", 1, numbers(&[0, 0])),
        ("columns", 2, columns.concat()),
        ("row", 2, row.concat()),
        ("tally", 3, wide(&[100, 3, 2, 1])),
        ("note", 4, [wide(&[time]), text("epoch 3"), long("it got better")].concat()),
        ("setting", 5, [text("lr"), long("0.25")].concat()),
        ("flush", 6, wide(&[77])),
        ("query", 7, [numbers(&[1, 500]), long("SELECT 1")].concat()),
    ];
    for (name, kind, body) in seeds {
        corpus.put("client_frames", name, &[&[kind][..], &body].concat());
    }
}

struct Corpus {
    dir: PathBuf,
}

impl Corpus {
    fn put(&self, target: &str, name: &str, bytes: &[u8]) {
        let dir = self.dir.join(target);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(name), bytes).unwrap();
    }
}

/// A database with every kind of run, before and after flushes and a merge.
fn databases(corpus: &Corpus) {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("db");
    let db = Db::open(&dir, Options { node: "nid001".to_owned(), ..Options::default() }).unwrap();
    corpus.put("manifest", "new", &fs::read(dir.join("MANIFEST")).unwrap());
    describe(&db);
    for flush in 0..3 {
        append(&db, flush);
        take_wal(corpus, &dir, &format!("flush-{flush}"));
        db.flush().unwrap();
        take_files(corpus, &dir, &format!("flush-{flush}"));
    }
    db.compact().unwrap();
    take_files(corpus, &dir, "merged");
    let id = db.series(&key("last", &[])).unwrap();
    let mut extremes = SampleBatch::default();
    for (time, value) in [(i64::MIN, Value::Float(f64::MAX)), (i64::MAX - 1, Value::Int(i64::MIN))] {
        extremes.push(id, Timestamp::from_micros(time), value);
    }
    db.append(&extremes, Durability::Synced).unwrap();
    take_wal(corpus, &dir, "extremes");
    db.close().unwrap();
    take_files(corpus, &dir, "closed");
}

fn key(metric: &str, tags: &[(&str, &str)]) -> SeriesKey {
    SeriesKey::new(metric, TagSet::new(tags.iter().copied()).unwrap()).unwrap()
}

fn describe(db: &Db) {
    let meta = MetricMeta { kind: MetricKind::Gauge, unit: "celsius".to_owned(), help: "of the die".to_owned() };
    let changes = [
        MetaChange::Metric { name: "gpu.temp".into(), meta },
        MetaChange::Annotate(Annotation {
            start: Timestamp::from_micros(START),
            description: "epoch 1 \u{e4}\n".to_owned(),
            ..Annotation::default()
        }),
        MetaChange::RemoveAnnotation { tsuid: Some("000001".to_owned()), start: Timestamp::from_micros(START) },
        MetaChange::Job(serde_json::json!({"id": "4711", "nodes": ["nid001"], "limit_s": 3600, "share": 0.5})),
    ];
    for change in changes {
        db.put_meta(change, Durability::Buffered).unwrap();
    }
}

/// Every kind of times and of values, the later flushes partly over the earlier.
fn append(db: &Db, flush: i64) {
    let mut batch = SampleBatch::default();
    let start = START + flush * HOUR / 2;
    for series in 0..12_i64 {
        let name = ["gpu.temp", "cpu.load", "energy \u{e9}"][(series % 3) as usize];
        let (host, core) = (format!("nid{:03}", series / 6), series.to_string());
        let id = db.series(&key(name, &[("host", &*host), ("core", &*core)][..(series % 3) as usize])).unwrap();
        for at in 0..[1, 2, 40, 60][(series % 4) as usize] {
            let jitter = if series % 5 == 0 { at * at * 13 % 997 } else { 0 };
            let shared = if series > 5 { at / 7 * 250_000 } else { 0 };
            let value = match (series % 7, at) {
                (0, _) => Value::Int(at * 1_000 - 5_000),
                (1, _) => Value::Float((at * 25) as f64 / 100.0),
                (2, _) => Value::Float(1.0 / (at + 1) as f64),
                (3, _) => Value::Int(7),
                (4, 3) => Value::Float(f64::NAN),
                (4, _) => Value::Float(f64::INFINITY),
                (5, _) if at % 2 == 0 => Value::Int(i64::MAX - at),
                (5, _) => Value::Float(-0.0),
                _ => Value::Float(20.5),
            };
            batch.push(id, Timestamp::from_micros(start + at * 1_000_000 + jitter + shared), value);
        }
    }
    db.append(&batch, Durability::Buffered).unwrap();
    let mut tick = SampleBatch::default();
    for core in 0..4 {
        let id = db.series(&key("tick", &[("core", &core.to_string())])).unwrap();
        tick.push(id, Timestamp::from_micros(start), Value::Int(core));
    }
    db.append(&tick, Durability::Buffered).unwrap();
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// WAL files as they are, and their frames without checksums.
fn take_wal(corpus: &Corpus, dir: &Path, name: &str) {
    for (at, path) in files(&dir.join("wal")).iter().enumerate() {
        let bytes = fs::read(path).unwrap();
        corpus.put("wal_frames", &format!("{name}-{at}.wal"), &bytes);
        let mut frames = Vec::new();
        let mut rest = &bytes[28..];
        while !rest.is_empty() {
            let len = u32::from_le_bytes(rest[..4].try_into().unwrap()) as usize;
            frames.push(rest[8]);
            frames.extend_from_slice(&u16::try_from(len).unwrap().to_le_bytes());
            frames.extend_from_slice(&rest[9..9 + len]);
            rest = &rest[9 + len..];
        }
        corpus.put("wal_frames", &format!("{name}-{at}.frames"), &frames);
    }
}

/// The manifest, as it is and without its first line; the files that it names.
fn take_files(corpus: &Corpus, dir: &Path, name: &str) {
    let manifest = fs::read(dir.join("MANIFEST")).unwrap();
    corpus.put("manifest", name, &manifest);
    let json = &manifest[manifest.iter().position(|byte| *byte == b'\n').unwrap() + 1..];
    corpus.put("manifest", &format!("{name}.json"), json);
    let json: Json = serde_json::from_slice(json).unwrap();
    for (at, series) in json["series"].as_array().unwrap().iter().enumerate() {
        if series["first_id"] == 0 {
            let bytes = fs::read(dir.join(series["file"].as_str().unwrap())).unwrap();
            corpus.put("series_file", &format!("{name}-{at}.parquet"), &bytes);
        }
    }
    for (at, segment) in json["segments"].as_array().unwrap().iter().enumerate() {
        let bytes = fs::read(dir.join(segment["file"].as_str().unwrap())).unwrap();
        let rows = u32::try_from(segment["rows"].as_u64().unwrap()).unwrap().to_le_bytes();
        let tail = &bytes[segment["tail"].as_u64().unwrap() as usize..];
        corpus.put("segment", &format!("{name}-{at}.parquet"), &[&rows, &*bytes].concat());
        let size = |at: usize| u32::from_le_bytes(tail[at..at + 4].try_into().unwrap()) as usize;
        let packed = 32 + size(20) * 4;
        let end = packed + size(28);
        corpus.put("run_index", &format!("{name}-{at}"), &[&rows, &tail[..end + 4]].concat());
        let body = zstd::bulk::decompress(&tail[packed..end], size(24)).unwrap();
        corpus.put("run_index", &format!("{name}-{at}.body"), &[&rows, &*body].concat());
    }
}

/// Lines whose answers were recorded from InfluxDB, fifty a body.
fn lines(corpus: &Corpus, path: &Path) {
    let recorded: Vec<Json> = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let bodies: Vec<&str> = recorded.iter().map(|one| one["body"].as_str().unwrap()).collect();
    for (at, fifty) in bodies.chunks(50).enumerate() {
        corpus.put("line_protocol", &format!("recorded-{at:02}"), fifty.join("\n").as_bytes());
    }
    let telegraf = "cpu,cpu=cpu0,host=nid001 usage_user=1.25,usage_idle=98.5,procs=12i 1767225600000000000\n".repeat(3);
    corpus.put("line_protocol", "three-ticks", telegraf.as_bytes());
    corpus.put("line_protocol", "comments", b"# one\n\n  m v=1\r\n#two\nm,a=b v=t,w=\"x\ny\" -1\n");
}

/// Bodies whose answers were recorded from OpenTSDB.
fn puts(corpus: &Corpus, path: &Path) {
    let recorded: Vec<Json> = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    for one in &recorded {
        let request = &one["request"];
        let body = match (&request["body"], &request["body_text"]) {
            (Json::Null, Json::String(raw)) => raw.clone(),
            (Json::Null, _) => continue,
            (body, _) => body.to_string(),
        };
        corpus.put("put_json", &format!("recorded-{}", one["id"].as_str().unwrap()), body.as_bytes());
    }
    let point = |value: &str| {
        format!("{{\"metric\":\"m\",\"timestamp\":1767225600,\"value\":{value},\"tags\":{{\"a\":\"b\"}}}}")
    };
    let usual = format!("[{}]", ["1", "2.5", "-3e2", "\"4\""].map(point).join(",\n "));
    corpus.put("put_json", "usual", usual.as_bytes());
    let bare = format!("[{}]", ["NaN", "-Infinity", "INF"].map(point).join(","));
    corpus.put("put_json", "bare-words", bare.as_bytes());
}

/// Where numbers end, and what only looks like one.
fn numbers(corpus: &Corpus) {
    let texts = [
        "0",
        "-0",
        "007",
        "-9223372036854775808",
        "9223372036854775807",
        "9223372036854775808",
        "42i",
        "-42i",
        "18446744073709551615u",
        "1.",
        ".5",
        "-.5",
        "1.5e300",
        "1e400",
        "-1E-400",
        "0.1",
        "9007199254740993",
        "0.30000000000000004",
        "1e",
        "1e+",
        "+1",
        "--1",
        "t",
        "TRUE",
        "false",
        "NaN",
        "inf",
        "-Infinity",
        "0x10",
        "1_000",
        "1.7976931348623157e308",
        "5e-324",
        "2.2250738585072014e-308",
        "123456789012345678901234567890",
        "0.000000000000000000000000000001",
        "1.5f",
        "1d",
        "12.345678901234567890123",
    ];
    for (at, text) in texts.iter().enumerate() {
        corpus.put("numbers", &format!("{at:02}"), text.as_bytes());
    }
}

/// The tables of a machine's GPUs at its first tick.
fn tables(corpus: &Corpus, machine: &Path) {
    for bus in ["05", "15", "95", "e5", "f5"] {
        let table = machine.join(format!("sys/devices/pci0000:00/0000:{bus}:00.0/gpu_metrics"));
        corpus.put("gpu_metrics", &format!("mi300x-{bus}"), &fs::read(table).unwrap());
    }
}

/// What kernels and drivers of the machines say at their first tick.
fn kernel_text(corpus: &Corpus, machines: &Path) {
    for (machine, file) in [
        ("crayex", "sys/cray/pm_counters/power"),
        ("lustre", "sys/kernel/debug/lustre/llite/scratch-ffff8a1234567800/stats"),
        ("lustre", "sys/kernel/debug/lustre/mdc/scratch-MDT0000-mdc-ffff8a1234567800/md_stats"),
        ("lustre", "proc/self/mountstats"),
        ("lustre", "sys/devices/system/node/node0/numastat"),
        ("lustre", "sys/devices/system/node/node0/meminfo"),
        ("slurm-v2", "sys/fs/cgroup/system.slice/slurmstepd.scope/job_4711/io.stat"),
        ("slurm-v1", "sys/fs/cgroup/blkio/slurm/uid_1000/job_4711/blkio.throttle.io_service_bytes_recursive"),
    ] {
        let path = machines.join(machine).join(file);
        let name = path.file_name().unwrap().to_str().unwrap();
        corpus.put("kernel_text", &format!("{machine}-{name}"), &fs::read(&path).unwrap());
    }
}
