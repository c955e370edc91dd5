//! The rules of every page: its prose is at most 120 columns wide, and the glossary explains the terms of the project.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const COLUMNS_MAX: usize = 120;

/// Folders that are not searched for pages: build output, and what git or Python keep.
const SKIPPED: [&str; 5] = [".git", ".venv", ".pytest_cache", "target", "__pycache__"];
/// Pages that are not wrapped here: what a release says of itself, and the page of limits, which a generator makes.
const EXEMPT: [&str; 2] = ["CHANGELOG.md", "limits.md"];

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn pages(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        // Recorded trees have links that lead in circles.
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            if !SKIPPED.contains(&name) {
                pages(&path, found);
            }
        } else if name.ends_with(".md") && !EXEMPT.contains(&name) {
            found.push(path);
        }
    }
}

/// The numbers of the lines of prose that are too wide. Rows of tables, code and comments may be wider, and so may a
/// line of one word, such as a picture.
fn too_wide(text: &str) -> Vec<usize> {
    let (mut fence, mut comment, mut wide) = (None, false, Vec::new());
    for (at, line) in text.lines().enumerate() {
        let line = line.trim_end();
        let inner = line.trim_start();
        if let Some(mark) = fence {
            fence = (!inner.starts_with(mark)).then_some(mark);
            continue;
        }
        fence = ["```", "~~~"].into_iter().find(|mark| inner.starts_with(mark));
        comment |= inner.starts_with("<!--");
        let prose = fence.is_none() && !comment && !inner.starts_with('|');
        comment &= !inner.contains("-->");
        if prose && line.chars().count() > COLUMNS_MAX && inner.contains(' ') {
            wide.push(at + 1);
        }
    }
    wide
}

#[test]
fn prose_of_every_page_is_at_most_120_columns_wide() {
    let mut found = Vec::new();
    pages(root(), &mut found);
    assert!(found.len() > 25, "{} pages", found.len());
    let mut wide = Vec::new();
    for page in found {
        let text = std::fs::read_to_string(&page).unwrap();
        let name = page.strip_prefix(root()).unwrap().display().to_string();
        wide.extend(too_wide(&text).into_iter().map(|line| format!("{name}:{line}")));
    }
    assert!(wide.is_empty(), "tests/pages/wrap.py wraps these:\n{}", wide.join("\n"));
}

#[test]
fn prose_that_is_too_wide_is_seen_between_tables_code_and_comments() {
    let wide = format!("a {}", "b".repeat(COLUMNS_MAX));
    let word = "b".repeat(COLUMNS_MAX + 1);
    let text = format!("| {wide} |\n```sh\n{wide}\n```\n<!-- {wide}\n{wide} -->\n{word}\n* {wide}\nshort\n{wide}\n");
    assert_eq!(too_wide(&text), [8, 10]);
}

/// Words of types and modules that mean here what they mean in every program.
const GENERAL: [&str; 28] = [
    "change",
    "cli",
    "client",
    "clock",
    "column",
    "config",
    "cors",
    "disk",
    "error",
    "functions",
    "http",
    "id",
    "info",
    "net",
    "order",
    "private dir",
    "private file",
    "progress",
    "range",
    "request",
    "result",
    "set",
    "shell",
    "startup",
    "stats",
    "table",
    "time",
    "rows",
];

/// The terms of the glossary, small, without a plural's end.
fn glossary() -> Vec<String> {
    let page = std::fs::read_to_string(root().join("docs/glossary.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| **")?.split("**").next());
    rows.map(str::to_owned).collect()
}

fn singular(term: &str) -> String {
    let term = term.to_lowercase().replace(['_', '-'], " ");
    term.strip_suffix('s').filter(|stem| !stem.ends_with('s')).map_or(term.clone(), str::to_owned)
}

fn explained() -> BTreeSet<String> {
    let terms: Vec<String> =
        glossary().iter().flat_map(|row| row.split(", ").map(singular).collect::<Vec<_>>()).collect();
    terms.into_iter().chain(GENERAL.map(singular)).collect()
}

/// The types that a crate's front page exports, from `pub use` of its `lib.rs`.
fn exports(krate: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join(krate).join("src/lib.rs")).unwrap();
    let used = text.split("\npub use ").skip(1).flat_map(|rest| {
        let list = rest.split(';').next().unwrap();
        list.split(|c: char| !c.is_alphanumeric() && c != '_').collect::<Vec<_>>()
    });
    let types = used.filter(|name| name.starts_with(|c: char| c.is_uppercase()) && name.contains(char::is_lowercase));
    types.map(str::to_owned).collect()
}

/// `SeriesKey` in words: "series key".
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for char in name.chars() {
        match words.last_mut() {
            Some(word) if !char.is_uppercase() => word.push(char),
            _ => words.push(char.to_lowercase().collect()),
        }
    }
    words
}

#[test]
fn the_glossary_explains_the_types_that_crates_export() {
    let explained = explained();
    let mut missing = Vec::new();
    for krate in ["engine", "ingest", "query"] {
        let exports = exports(krate);
        assert!(exports.len() >= 9, "{krate} exports {} types", exports.len());
        for name in exports {
            let words = words(&name);
            let terms = [name.clone(), words.join(" "), words.last().unwrap().clone()];
            let begins = |term: &String| explained.iter().any(|one| one.starts_with(&singular(term)));
            if !terms.iter().any(begins) {
                missing.push(format!("{krate}: {name}"));
            }
        }
    }
    assert!(missing.is_empty(), "docs/glossary.md explains no word of {}", missing.join(", "));
}

/// The first cells of the tables of ARCHITECTURE, each without its article and what follows a comma: parts, threads and
/// processes; and the modules on the floors, which stand in backticks.
fn architecture_terms() -> BTreeSet<String> {
    let page = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let cells = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    let mut terms = BTreeSet::new();
    for cell in cells.filter(|cell| !HEADINGS.contains(cell)) {
        if cell.starts_with('`') {
            terms.extend(cell.split(", ").map(|module| module.trim_matches('`').to_owned()));
            continue;
        }
        let cell = cell
            .split([',', ' '])
            .next()
            .filter(|word| ARTICLES.contains(word))
            .map_or(cell, |article| cell.strip_prefix(article).unwrap_or(cell).trim_start());
        terms.insert(cell.split(',').next().unwrap().to_owned());
    }
    terms
}

/// First cells of the headings of those tables.
const HEADINGS: [&str; 8] = ["process", "thread", "part", "crate", "engine", "ingest", "query", "server"];
const ARTICLES: [&str; 4] = ["the", "a", "its", "one"];
/// First cells that are no terms: the main thread, the crates, and sentences.
const NO_TERMS: [&str; 5] = ["main", "engine", "ingest", "query", "server"];

#[test]
fn the_glossary_explains_the_parts_and_modules_of_the_architecture() {
    let (explained, terms) = (explained(), architecture_terms());
    assert!(terms.len() > 90, "{} terms", terms.len());
    // A module is called by the beginning of its term: `join` holds the join file, `decode` the decoders.
    let begins = |term: &str| explained.iter().any(|one| one.starts_with(&singular(term)));
    let known = |term: &str| begins(term) || NO_TERMS.contains(&term);
    // "tasks of one node" are tasks, and "errors between nodes" stand as a whole.
    let is_explained = |term: &String| known(term) || term.split_once(" of ").is_some_and(|(noun, _)| known(noun));
    let missing: Vec<&String> = terms.iter().filter(|term| !is_explained(term)).collect();
    assert!(missing.is_empty(), "docs/glossary.md lacks {missing:?}");
}

#[test]
fn the_glossary_is_in_order_and_explains_each_term_once() {
    let rows: Vec<String> = glossary().iter().map(|row| row.to_lowercase()).collect();
    assert!(rows.len() > 100 && rows.is_sorted(), "docs/glossary.md is not in alphabetical order");
    let terms: Vec<&str> = rows.iter().flat_map(|row| row.split(", ")).collect();
    assert_eq!(terms.len(), terms.iter().collect::<BTreeSet<_>>().len());
}
