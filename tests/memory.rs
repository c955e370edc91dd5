//! `telem info` of a server tells what it holds in memory, part by part, against a load that is known.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use crate::process::{Server, telem};

/// So many series, each with so many samples.
const SERIES: usize = 4_000;
const SAMPLES: usize = 5;
/// What a sample takes at least in the memtable: its value, its time and its row.
const SAMPLE_BYTES: usize = 16;
/// What a series takes at least in the index: the numbers of its metric and of its tag, twice.
const SERIES_BYTES: usize = 24;

/// The parts by name, and what is resident.
fn held(server: &Server) -> (BTreeMap<String, u64>, u64) {
    let info = server.get("/api/info?memory=true").expect(200).json();
    let parts = info["memory"]["parts"].as_array().unwrap();
    let part = |part: &Json| (part["part"].as_str().unwrap().to_owned(), part["bytes"].as_u64().unwrap());
    (parts.iter().map(part).collect(), info["memory"]["resident_bytes"].as_u64().unwrap())
}

fn put(server: &Server, tick: usize) {
    let sample = |number: usize| {
        json!({"metric": "memory_test", "timestamp": 1_767_225_600 + tick, "value": number as f64 + 0.5,
               "tags": {"a_series": format!("number_{number}")}})
    };
    for first in (0..SERIES).step_by(1_000) {
        server.post("/api/put", &Json::from((first..first + 1_000).map(sample).collect::<Vec<_>>())).expect(204);
    }
}

#[test]
fn parts_grow_with_what_is_in_them_and_add_up_to_what_is_resident() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::serve(dir.path(), &[]);
    let (before, _) = held(&server);
    (0..SAMPLES).for_each(|tick| put(&server, tick));
    let (after, resident) = held(&server);
    let of = |parts: &BTreeMap<String, u64>, part: &str| parts.get(part).copied().unwrap_or(0);
    let grown = |part: &str| (of(&after, part) - of(&before, part)) as usize;
    for (part, least, most) in [
        ("memtables", SERIES * SAMPLES * SAMPLE_BYTES, SERIES * SAMPLES * 4 * SAMPLE_BYTES),
        ("index", SERIES * SERIES_BYTES, SERIES * 10 * SERIES_BYTES),
        ("names", SERIES * "number_1".len(), SERIES * 100),
        ("last_values", SERIES * 16, SERIES * 40),
        ("known_names", SERIES * "number_1".len(), SERIES * 1_000),
    ] {
        assert!((least..most).contains(&grown(part)), "{part}: {} in {least}..{most}: {after:?}", grown(part));
    }
    assert!(of(&after, "files") > 1 << 20 && of(&after, "stacks") > 0 && of(&after, "other") > 0, "{after:?}");
    let sum: u64 = after.values().sum();
    assert_eq!(sum, resident, "{after:?}");
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let kibibytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")).unwrap();
    let now = kibibytes.parse::<u64>().unwrap() << 10;
    assert!(resident.abs_diff(now) < now / 4, "{resident} bytes, the kernel says {now} a moment later");
}

#[test]
fn the_command_shows_a_server_s_memory_in_a_table_and_a_directory_has_none() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::serve(dir.path(), &[]);
    put(&server, 0);
    let url = format!("http://{}", server.address);
    let printed = |words: &[&str]| {
        let output = telem([&["info"], words].concat()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap() + &said)
    };
    let (ended_well, text) = printed(&[&url, "--memory"]);
    assert!(ended_well, "{text}");
    for expected in [" MB resident\n", "\n  files ", "  memtables ", "%  samples that are in no segment yet"] {
        assert!(text.contains(expected), "no '{expected}' in\n{text}");
    }
    let (ended_well, text) = printed(&[&url]);
    assert!(ended_well && text.contains("resident; --memory tells its parts"), "{text}");
    let (ended_well, text) = printed(&[dir.path().to_str().unwrap(), "--memory"]);
    assert!(!ended_well && text.contains("name one, such as"), "{text}");
}
