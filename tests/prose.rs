//! The rules of every page: its prose is at most 120 columns wide, and the glossary explains the terms of the project.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const COLUMNS_MAX: usize = 120;

/// Folders that are not searched for pages: build output, and what git or Python keep.
const SKIPPED: [&str; 5] = [".git", ".venv", ".pytest_cache", "target", "__pycache__"];
/// A page that is written by hand at every release, and wrapped there.
const EXEMPT: [&str; 1] = ["CHANGELOG.md"];

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn pages(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
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
