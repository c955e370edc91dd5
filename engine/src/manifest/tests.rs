use super::*;

fn manifest() -> Manifest {
    let mut manifest = Manifest::new("0a1b".to_owned(), "nid001".to_owned());
    let file = |file: &str| FileEntry { file: file.to_owned(), bytes: 12, crc32: 7 };
    manifest.series.push(SeriesEntry { file: file("series/000001.parquet"), first_id: 0, count: 3 });
    manifest.segments.push(SegmentEntry {
        file: file("segments/a.parquet"),
        rows: 5,
        window_start: i64::MIN,
        window_end: i64::MAX,
        first: i64::MIN,
        last: i64::MAX - 1,
        sequence_min: 1,
        sequence_max: 1,
        tail: 0,
        tail_crc32: 0,
    });
    manifest
}

#[test]
fn a_manifest_is_read_back_as_written_with_times_at_the_ends() {
    let manifest = manifest();
    let bytes = manifest.encode().unwrap();
    assert_eq!(Manifest::decode(Path::new("MANIFEST"), &bytes).unwrap(), manifest);
    assert_eq!(manifest.files().count(), 2);
    assert_eq!(manifest.series_count(), 3);
}

#[test]
fn a_flipped_bit_anywhere_in_a_manifest_is_an_error_and_never_a_manifest() {
    let bytes = manifest().encode().unwrap();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            // A letter of the checksum in the other case says the same.
            if flipped[at].eq_ignore_ascii_case(&bytes[at]) && at < 32 {
                continue;
            }
            assert!(Manifest::decode(Path::new("MANIFEST"), &flipped).is_err(), "byte {at} bit {bit}");
        }
    }
}

#[test]
fn a_manifest_cut_short_is_an_error() {
    let bytes = manifest().encode().unwrap();
    for len in 0..bytes.len() {
        assert!(Manifest::decode(Path::new("MANIFEST"), &bytes[..len]).is_err(), "{len} bytes");
    }
}

#[test]
fn a_manifest_of_a_newer_format_names_both_formats() {
    let text = String::from_utf8(manifest().encode().unwrap()).unwrap();
    let newer = text.replacen("telem-database 1 ", "telem-database 2 ", 1);
    let error = Manifest::decode(Path::new("/db/MANIFEST"), newer.as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "/db/MANIFEST has format 2 and this telem reads up to 1; use a newer telem");
}

#[test]
fn a_manifest_from_before_format_1_was_final_says_what_to_do() {
    let text = String::from_utf8(manifest().encode().unwrap()).unwrap();
    let old = text.replacen("telem-database", "telem-manifest", 1);
    let error = Manifest::decode(Path::new("/db/MANIFEST"), old.as_bytes()).unwrap_err().to_string();
    assert!(error.starts_with("/db/MANIFEST was written before format 1 was final"), "{error}");
    assert!(error.contains("export it with the telem that wrote it"), "{error}");
}

/// A merge removes the files that it replaces, and a mirror writes those that it copies, wherever a manifest says that
/// they are: `../../precious` was such a place.
#[test]
fn a_manifest_that_names_a_file_outside_of_its_folders_is_refused() {
    for name in
        ["../x.parquet", "segments/../../x", "/etc/x", "segments/a/b", "series/a.parquet", "segments/", "segments/.x"]
    {
        let mut manifest = manifest();
        manifest.segments[0].file.file = name.to_owned();
        let error = Manifest::decode(Path::new("MANIFEST"), &manifest.encode().unwrap()).unwrap_err().to_string();
        assert!(error.starts_with("MANIFEST: a file's name: found '"), "{name}: {error}");
    }
}

#[test]
fn a_manifest_whose_counters_are_at_their_end_is_refused() {
    for counter in [COUNTER_MAX, COUNTER_MAX + 1, u64::MAX] {
        let manifest = Manifest { next_sequence: counter, ..manifest() };
        let read = Manifest::decode(Path::new("MANIFEST"), &manifest.encode().unwrap());
        assert_eq!(read.is_ok(), counter <= COUNTER_MAX, "{counter}");
    }
}

/// The reader of JSON quotes what it found, however long that is.
#[test]
fn an_error_about_the_json_of_a_manifest_is_short_and_says_where() {
    let body = format!("{{\"format\": \"{}\"}}", "x".repeat(1 << 20));
    let head = format!("{MAGIC} {FORMAT} {:08x} {}\n", crc32fast::hash(body.as_bytes()), body.len());
    let error = Manifest::decode(Path::new("MANIFEST"), (head + &body).as_bytes()).unwrap_err().to_string();
    assert!(error.len() < 400, "{} bytes", error.len());
    assert!(error.contains("at line 1 column 1048"), "{error}");
}
