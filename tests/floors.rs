//! Every dependency points down: the modules of a crate stand on floors, and a module uses only those below its own.
//!
//! A module is a file or a folder directly below `src`; `circles.rs` looks into it. Tests and the bodies of fuzz targets
//! may use anything.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The floors of one crate, the ground floor first.
pub struct House {
    pub krate: &'static str,
    floors: &'static [&'static [&'static str]],
}

pub const HOUSES: [House; 4] = [
    House {
        krate: "engine",
        floors: &[
            &["exact", "paged", "progress", "quantity", "time", "value"],
            &["clock", "error"],
            &["disk", "guarded", "series"],
            &["index", "layout", "meta", "sample"],
            &["last", "lock", "manifest", "memtable", "wal"],
            &["retention", "segment"],
            &["held", "info", "options", "series_file", "snapshot"],
            &["downsample", "flush", "recover"],
            &["check", "claim", "compact", "glance", "repair", "together"],
            &["db"],
            &["mirror"],
            &["limits"],
        ],
    },
    House {
        krate: "ingest",
        floors: &[
            &["decode", "default_tags", "own_thread", "rank", "schedule"],
            &["known"],
            &["accept"],
            &["writer"],
            &["collect", "counters"],
            &["limits"],
        ],
    },
    House {
        krate: "query",
        floors: &[
            &["alarm", "answer", "energy", "model", "operator", "question"],
            &["error", "options", "pipeline"],
            &["guard", "relative", "selection"],
            &["lanes", "leaf"],
            &["cluster", "functions", "jobs"],
            &["view"],
            &["plan"],
            &["table"],
            &["catalog"],
            &["session"],
            &["run"],
            &["limits"],
        ],
    },
    House {
        krate: "server",
        floors: &[
            &[
                "allocator",
                "config",
                "cors",
                "footprint",
                "memory",
                "missing",
                "private_dir",
                "rows",
                "self_metrics",
                "settings",
                "shell",
                "startup",
            ],
            &["http", "private_file", "protocol", "tls", "token"],
            &["answers", "connection", "launch", "page", "walks"],
            &["client", "info"],
            &["slots"],
            &["state"],
            &["join", "net", "protocols", "saving"],
            &["membership"],
            &["service"],
            &["agent"],
            &["job"],
            &["cli"],
            &["limits"],
        ],
    },
];

/// Modules that only tests compile, or that are bodies of fuzz targets.
const UNMEASURED: [&str; 3] = ["crash_tests", "fuzzing", "testing"];

pub fn source(krate: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(krate).join("src").canonicalize().unwrap()
}

/// The files of one crate that are neither tests nor its front page, each with the module that it belongs to.
pub fn files(krate: &str) -> Vec<(String, PathBuf)> {
    let src = source(krate);
    let (mut found, mut dirs) = (Vec::new(), vec![src.clone()]);
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
            if stem == "tests" || UNMEASURED.contains(&&*stem) {
                continue;
            }
            if path.is_dir() {
                dirs.push(path);
                continue;
            }
            let below = path.strip_prefix(&src).unwrap();
            let module = below.with_extension("");
            let module = module.iter().next().unwrap().to_str().unwrap().to_owned();
            if path.extension().is_some_and(|end| end == "rs") && !["lib", "main"].contains(&&*module) {
                found.push((module, path));
            }
        }
    }
    found.sort();
    found
}

/// The text without comments.
pub fn code(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// The first names after every `crate::`, those in braces included.
fn named(code: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for rest in code.split("crate::").skip(1) {
        let name = |text: &str| -> String {
            text.trim_start().chars().take_while(|char| char.is_alphanumeric() || *char == '_').collect()
        };
        let Some(list) = rest.strip_prefix('{') else {
            names.insert(name(rest));
            continue;
        };
        let (mut depth, mut item) = (1, String::new());
        for char in list.chars() {
            match char {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 1 => names.extend([name(&std::mem::take(&mut item))]),
                _ => item.push(char),
            }
            if depth == 0 {
                break;
            }
        }
        names.insert(name(&item));
    }
    names
}

/// What `lib.rs` hands on under a shorter name, and the module that it comes from.
fn handed_on(krate: &str) -> BTreeMap<String, String> {
    let lib = code(&source(krate).join("lib.rs"));
    let mut from = BTreeMap::new();
    for item in lib.split("pub use ").skip(1) {
        let item = item.split(';').next().unwrap();
        let module = item.split("::").next().unwrap().to_owned();
        let words = item.split(|char: char| !char.is_alphanumeric() && char != '_').filter(|word| !word.is_empty());
        from.extend(words.skip(1).map(|word| (word.to_owned(), module.clone())));
    }
    from
}

impl House {
    fn floor_of(&self, module: &str) -> Option<usize> {
        self.floors.iter().position(|floor| floor.contains(&module))
    }

    /// What breaks the rule, a line each.
    fn faults(&self) -> Vec<String> {
        let (handed_on, files) = (handed_on(self.krate), files(self.krate));
        let mut faults = Vec::new();
        let modules: BTreeSet<&str> = files.iter().map(|(module, _)| &**module).collect();
        for floor in self.floors.iter().flat_map(|floor| floor.iter()) {
            if !modules.contains(floor) {
                faults.push(format!("{}: `{floor}` has a floor and no file", self.krate));
            }
        }
        for (module, path) in &files {
            let file = path.strip_prefix(source(self.krate)).unwrap().display().to_string();
            let Some(floor) = self.floor_of(module) else {
                faults.push(format!("{}/src/{file}: `{module}` has no floor in tests/floors.rs", self.krate));
                continue;
            };
            for name in named(&code(path)) {
                let used = handed_on.get(&name).unwrap_or(&name);
                match self.floor_of(used) {
                    Some(below) if used != module && below >= floor => faults.push(format!(
                        "{}/src/{file}: `{module}` (floor {}) uses `{used}` (floor {}): move what it uses further down",
                        self.krate,
                        floor + 1,
                        below + 1
                    )),
                    _ => {}
                }
            }
        }
        faults
    }
}

#[test]
fn no_module_uses_one_on_its_own_floor_or_above() {
    let faults: Vec<String> = HOUSES.iter().flat_map(House::faults).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn arrows_are_seen_in_lists_behind_aliases_and_outside_of_use_lines() {
    let code = "use crate::{db::Db, time};\nuse crate::wal::{self, frame::Frame};\nfn f() -> crate::index::Nodes { }";
    let found: Vec<String> = named(code).into_iter().collect();
    assert_eq!(found, ["db", "index", "time", "wal"]);
    assert_eq!(handed_on("engine")["Timestamp"], "time");
    let turned = House { krate: "engine", floors: &[&["db"], &["time", "value"]] };
    let faults = turned.faults();
    assert!(faults.iter().any(|fault| fault.contains("`db` (floor 1) uses `time` (floor 2)")), "{faults:?}");
    assert!(faults.iter().any(|fault| fault.contains("`wal` has no floor")), "{faults:?}");
}
