//! The rules of the architecture: which crate may use which, and what the lock file must contain.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// The names in one table of a crate's manifest.
fn dependencies(of: &str, table: &str) -> BTreeSet<String> {
    let manifest = std::fs::read_to_string(root().join(of).join("Cargo.toml")).unwrap();
    let lines = manifest.lines().skip_while(|line| *line != format!("[{table}]")).skip(1);
    let entries = lines.take_while(|line| !line.starts_with('[')).filter(|line| !line.starts_with('#'));
    entries
        .filter_map(|line| line.split(['.', '=', ' ']).next())
        .filter(|name| !name.is_empty())
        .map(Into::into)
        .collect()
}

fn telem_dependencies(of: &str) -> Vec<String> {
    dependencies(of, "dependencies")
        .into_iter()
        .filter_map(|name| name.strip_prefix("telem-").map(Into::into))
        .collect()
}

#[test]
fn engine_knows_nobody_and_ingest_and_query_know_only_engine() {
    assert_eq!(telem_dependencies("engine"), [""; 0]);
    assert_eq!(telem_dependencies("ingest"), ["engine"]);
    assert_eq!(telem_dependencies("query"), ["engine"]);
    assert_eq!(telem_dependencies("server"), ["engine", "ingest", "query"]);
}

#[test]
fn the_rust_client_is_built_of_the_c_library_alone() {
    assert_eq!(dependencies("clients/rust", "dependencies"), BTreeSet::new());
    assert_eq!(dependencies("clients/rust", "build-dependencies"), BTreeSet::from(["cc".to_owned()]));
    assert!(root().join("clients/rust/c/include/telem.h").exists(), "clients/rust/c is a link to clients/c");
}

#[test]
fn unsafe_code_is_allowed_in_two_places_of_the_binary_and_in_one_of_the_rust_client() {
    let crates = ["engine", "ingest", "query", "server", "benches", "clients/rust"];
    let files = crates.iter().flat_map(|of| product_files(&root().join(of)));
    let rust = files.filter(|path| path.extension().is_some_and(|end| end == "rs"));
    let allowed = rust.filter(|path| std::fs::read_to_string(path).unwrap().contains("allow(unsafe_code"));
    let allowed: Vec<String> = allowed.map(|path| path.strip_prefix(root()).unwrap().display().to_string()).collect();
    assert_eq!(allowed, ["server/src/allocator.rs", "server/src/startup.rs", "clients/rust/src/ffi.rs"]);
}

#[test]
fn ingest_and_query_do_not_meet_in_tests_either() {
    assert!(!dependencies("ingest", "dev-dependencies").contains("telem-query"));
    assert!(!dependencies("query", "dev-dependencies").contains("telem-ingest"));
    for of in ["engine", "ingest"] {
        let development = dependencies(of, "dev-dependencies");
        assert!(!development.contains("datafusion"), "a test of {of} would compile DataFusion");
    }
}

#[test]
fn the_engine_compiles_neither_tokio_nor_datafusion_and_ingest_no_http() {
    for (of, absent) in [
        ("telem-engine", ["tokio", "datafusion", "hyper", "axum"].as_slice()),
        ("telem-ingest", &["datafusion", "hyper", "axum"]),
    ] {
        let tree = Command::new(env!("CARGO"))
            .args(["tree", "--locked", "--offline", "--edges", "normal", "--prefix", "none", "--package", of])
            .current_dir(root())
            .output()
            .unwrap();
        assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
        let tree = String::from_utf8(tree.stdout).unwrap();
        let crates: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
        assert!(crates.len() > 10, "cargo tree shows {} crates below {of}", crates.len());
        for name in absent {
            assert!(!crates.contains(name), "{of} compiles {name}");
        }
    }
}

/// What nodes ask each other is gRPC, and its crates compile an HTTP server; query knows it as bytes to other nodes alone.
#[test]
fn query_knows_http_only_as_what_nodes_ask_each_other() {
    let manifest = std::fs::read_to_string(root().join("query/Cargo.toml")).unwrap();
    for name in ["axum", "hyper", "tower-http"] {
        let named = manifest.lines().any(|line| line.starts_with(&format!("{name}.")));
        assert!(!named, "query/Cargo.toml names {name}");
    }
    let mut speaks = BTreeSet::new();
    let source = root().join("query/src");
    for path in product_files(&source) {
        let text = std::fs::read_to_string(&path).unwrap();
        if ["http::", "hyper_util::", "tonic::"].iter().any(|name| text.contains(name)) {
            let module = path.strip_prefix(&source).unwrap().iter().next().unwrap();
            speaks.insert(module.to_string_lossy().into_owned());
        }
    }
    assert_eq!(speaks, BTreeSet::from(["cluster".to_owned()]), "only query/src/cluster speaks HTTP");
}

#[test]
fn a_question_is_plain_data() {
    for path in product_files(&root().join("query/src/question")) {
        let text = std::fs::read_to_string(&path).unwrap();
        let named: Vec<&str> =
            ["datafusion::", "arrow::", "tokio::"].into_iter().filter(|name| text.contains(name)).collect();
        assert!(named.is_empty(), "{} names {named:?}", path.display());
    }
}

/// Public functions that take a bool all the same.
const BOOLS: [&str; 10] = [
    // The bool is the enum as it came: a bit of a file, a flag, a word of JSON.
    "engine/src/value.rs: of_bit",
    "server/src/job/company.rs: of",
    "server/src/protocols/opentsdb/json.rs: bool",
    "server/src/protocols/opentsdb/query/filters.rs: of",
    // One property of the data beside others, inside of their folder.
    "engine/src/segment/summary.rs: put",
    "engine/src/segment/summary.rs: take",
    "engine/src/segment/write/period.rs: ends_group",
    "engine/src/segment/write/presence.rs: push",
    "query/src/leaf/rows/sorted.rs: batches",
    "query/src/leaf/series/buckets.rs: is_cut",
];

/// The functions of a file: whether each is public, its name, and its arguments.
fn functions(text: &str) -> Vec<(bool, &str, &str)> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("fn ") {
        let line = text[..at].rsplit('\n').next().unwrap().trim_start();
        let rest = &text[at + 3..];
        let name = &rest[..rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())];
        let Some(open) = rest.find('(').filter(|_| !name.is_empty() && !line.starts_with("//")) else { continue };
        let (mut depth, mut end) = (0, open);
        for (place, byte) in rest.bytes().enumerate().skip(open) {
            depth += i32::from(byte == b'(') - i32::from(byte == b')');
            end = place;
            if depth == 0 {
                break;
            }
        }
        found.push((line.starts_with("pub"), name, &rest[open + 1..end]));
    }
    found
}

/// What a reader of `f(true, false)` cannot know stands at the call where it is a word of an enum.
#[test]
fn no_public_function_takes_a_bool_and_no_function_takes_two() {
    let mut found = BTreeSet::new();
    for of in ["engine", "ingest", "query", "server", "clients/rust"] {
        for path in product_files(&root().join(of).join("src")) {
            let of_tests = ["tests", "testing", "fuzzing", "crash_tests"];
            let is_product =
                !path.iter().any(|part| of_tests.iter().any(|name| part.to_string_lossy().starts_with(name)));
            if !is_product || path.extension().is_none_or(|end| end != "rs") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            for (is_public, name, arguments) in functions(text) {
                let is_bool = |argument: &&str| argument.trim().split_once(": ").is_some_and(|(_, of)| of == "bool");
                let bools = arguments.split(',').filter(is_bool).count();
                if bools > usize::from(!is_public) {
                    found.insert(format!("{}: {name}", path.strip_prefix(root()).unwrap().display()));
                }
            }
        }
    }
    assert_eq!(found, BOOLS.map(str::to_owned).into());
}

/// Files of all crates, tests aside, that name an aggregator.
fn files_that_name(aggregator: &str) -> Vec<String> {
    let crates = ["engine", "ingest", "query", "server"].map(|name| root().join(name).join("src"));
    let files = crates.iter().flat_map(|source| product_files(source));
    let product = files.filter(|path| !path.iter().any(|part| part == "tests" || part == "tests.rs"));
    let named = product.filter(|path| {
        let text = std::fs::read_to_string(path).unwrap();
        text.split(|char: char| !char.is_alphanumeric()).any(|word| word == aggregator)
    });
    let named: BTreeSet<String> = named.map(|path| path.strip_prefix(root()).unwrap().display().to_string()).collect();
    named.into_iter().collect()
}

#[test]
fn an_aggregator_is_added_where_the_page_says() {
    let places = ["", "/evaluate", "/table"].map(|file| format!("query/src/question/aggregator{file}.rs"));
    for aggregator in ["PfSum", "ZimSum", "MimMin", "MimMax", "SquareSum"] {
        assert_eq!(files_that_name(aggregator), places, "{aggregator}");
    }
    let page = std::fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let (_, section) = page.split_once("\n### An aggregator\n").unwrap();
    let section = section.split("\n##").next().unwrap();
    for place in places.iter().map(String::as_str).chain(["query/src/plan/pushdown.rs", "tests/oracle/reduce.rs"]) {
        assert!(section.contains(place) && root().join(place).exists(), "{place}");
    }
}

#[test]
fn the_lock_file_holds_one_version_of_arrow_parquet_and_datafusion() {
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let lines: Vec<&str> = lock.lines().collect();
    for pair in lines.windows(2) {
        let quoted =
            |line: &'static str, text| <str>::strip_prefix(text, line).map(|rest: &str| rest.trim_end_matches('"'));
        if let (Some(name), Some(version)) = (quoted("name = \"", pair[0]), quoted("version = \"", pair[1])) {
            versions.entry(name).or_default().push(version);
        }
    }
    for (name, versions) in &versions {
        if name.starts_with("arrow") || name.starts_with("datafusion") || *name == "parquet" {
            assert_eq!(versions.len(), 1, "{name}: {versions:?}");
        }
    }
    assert_eq!(versions["arrow"], versions["parquet"]);
}

#[test]
fn dependency_versions_stand_in_the_workspace_only() {
    for of in ["engine", "ingest", "query", "server", "benches", "clients/rust"] {
        let manifest = std::fs::read_to_string(root().join(of).join("Cargo.toml")).unwrap();
        for table in ["dependencies", "dev-dependencies", "build-dependencies"] {
            for name in dependencies(of, table) {
                let own = manifest.lines().any(|line| line.starts_with(&format!("{name} = \"")));
                assert!(!own, "{of}/Cargo.toml gives {name} a version of its own");
            }
        }
    }
}

#[test]
fn the_product_names_no_place_of_its_making_and_leaves_nothing_undone() {
    // In pieces, so that this file may be searched too.
    let words = [
        concat!("..", "/shared"),
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("hel", "per"),
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
    ];
    let mut found = Vec::new();
    for file in product_files(&root()) {
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        for (at, line) in text.lines().enumerate() {
            if let Some(word) = words.iter().find(|word| line.contains(**word)) {
                found.push(format!("{}:{}: {word}", file.display(), at + 1));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

fn product_files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let skipped = [".git", "target", "fixtures", "Cargo.lock", "LICENSE", ".venv", "__pycache__", ".pytest_cache"];
        if skipped.contains(&name) {
            continue;
        }
        if path.is_dir() { files.extend(product_files(&path)) } else { files.push(path) }
    }
    files
}
