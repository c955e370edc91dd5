//! A type is a noun, no two types of a crate share a name, and hardly any two of all crates do: the name of a type says
//! which module it comes from.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Crates whose types all have a name of their own; tests and what fuzz targets do may call theirs as they like. The Rust
/// client is none of them: it is never read together with these, and its names are those that its users expect.
const CRATES: [&str; 4] = ["engine", "ingest", "query", "server"];
/// Types of all crates that share their name with one of another crate: `Error`, `Result` and `Part`, twice each. This
/// may only fall.
const SHARED_MAX: usize = 6;

fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap();
        if ["tests", "crash_tests", "testing", "fuzzing"].contains(&stem) {
            continue;
        }
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// The types that a file declares outside of tests; types of an `impl` or a trait belong to those.
fn types(text: &str) -> Vec<&str> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let declared = code.lines().filter_map(|line| {
        let is_inner = line.starts_with(' ');
        let line = line.trim_start();
        let line = line.strip_prefix("pub").map_or(line, |rest| match rest.strip_prefix('(') {
            Some(rest) => rest.split_once(") ").map_or("", |(_, rest)| rest),
            None => rest.trim_start(),
        });
        let (keyword, rest) = line.split_once(' ')?;
        let is_type = ["struct", "enum", "trait"].contains(&keyword) || keyword == "type" && !is_inner;
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        (is_type && end > 0).then(|| &rest[..end])
    });
    declared.collect()
}

/// Where each name of a type of `krate` is declared.
fn places(krate: &str) -> BTreeMap<String, Vec<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut paths, mut places) = (Vec::new(), BTreeMap::<String, Vec<String>>::new());
    files(&root.join(krate).join("src"), &mut paths);
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        for name in types(&text) {
            let place = path.strip_prefix(&root).unwrap().display().to_string();
            places.entry(name.to_owned()).or_default().push(place);
        }
    }
    assert!(places.len() > 150, "{krate} has {} types", places.len());
    places
}

fn shared(places: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let several = places.iter().filter(|(_, places)| places.len() > 1);
    several.map(|(name, places)| format!("{name} in {}", places.join(", "))).collect()
}

#[test]
fn no_two_types_of_a_crate_share_a_name() {
    let shared: Vec<String> = CRATES.iter().flat_map(|krate| shared(&places(krate))).collect();
    assert!(shared.is_empty(), "{}", shared.join("\n"));
}

#[test]
fn hardly_any_types_of_two_crates_share_a_name() {
    let mut all = BTreeMap::<String, Vec<String>>::new();
    for (name, places) in CRATES.iter().flat_map(|krate| places(krate)) {
        all.entry(name).or_default().extend(places);
    }
    let count: usize = all.values().map(Vec::len).filter(|count| *count > 1).sum();
    assert!(count <= SHARED_MAX, "{count} types share their names:\n{}", shared(&all).join("\n"));
}

#[test]
fn declarations_are_seen_whatever_stands_before_them() {
    let text = "struct A;\npub enum B<T> {}\npub(super) trait C: D {}\ntype E = u8;\nimpl A {\n    type F = u8;\n}\n";
    assert_eq!(types(text), ["A", "B", "C", "E"]);
}
