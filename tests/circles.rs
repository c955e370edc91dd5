//! The modules of a folder need each other in no circle: of two of them one can be read without the other. A folder and
//! what is in it may know each other. Tests and the bodies of fuzz targets may use anything.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::floors::{HOUSES, House, code, files, source};

/// The paths in the code that begin with `crate`, `super` or `self`, or in a `use`.
fn paths(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for statement in code.split("use ").skip(1).map(|rest| rest.split(';').next().unwrap()) {
        expand("", &statement.split_whitespace().collect::<String>(), &mut found);
    }
    for root in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(root) {
            let is_inner = code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
            if !is_inner {
                let end = code[at..].find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
                found.push(code[at..at + end.unwrap_or(code.len() - at)].to_owned());
            }
        }
    }
    found
}

/// `a::{b, c::{d}}` as `a::b` and `a::c::d`.
fn expand(before: &str, tree: &str, found: &mut Vec<String>) {
    let Some((head, list)) = tree.split_once('{') else {
        found.push(format!("{before}{tree}"));
        return;
    };
    let (before, mut depth, mut item) = (format!("{before}{head}"), 0, String::new());
    for char in list.chars() {
        match char {
            ',' | '}' if depth == 0 => expand(&before, &std::mem::take(&mut item), found),
            _ => {
                depth += i32::from(char == '{') - i32::from(char == '}');
                item.push(char);
            }
        }
    }
}

/// The path of a module of a crate.
type ModulePath = Vec<String>;

/// The modules of a crate, each with its file.
fn modules(krate: &str) -> BTreeMap<ModulePath, PathBuf> {
    let src = source(krate);
    let module = |(_, path): (String, PathBuf)| {
        let mut module: ModulePath = path
            .strip_prefix(&src)
            .unwrap()
            .with_extension("")
            .iter()
            .map(|name| name.to_str().unwrap().to_owned())
            .collect();
        if module.last().is_some_and(|name| name == "mod") {
            module.pop();
        }
        (module, path)
    };
    files(krate).into_iter().map(module).collect()
}

/// Of each folder which of its modules use which, whatever lies below them. A folder and what is in it may know each
/// other.
fn siblings(krate: &str) -> BTreeMap<ModulePath, BTreeMap<String, BTreeSet<String>>> {
    let modules = modules(krate);
    let mut uses: BTreeMap<ModulePath, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for (module, path) in &modules {
        for named in paths(&code(path)) {
            let mut at = module.clone();
            let mut words = named.split("::").peekable();
            match words.peek().copied() {
                Some("crate") => at.clear(),
                Some("super") => {}
                Some("self") => {}
                Some(word) if modules.contains_key(&[&module[..], &[word.to_owned()]].concat()) => {}
                _ => continue,
            }
            for word in words {
                match word {
                    "crate" | "self" => {}
                    "super" => drop(at.pop()),
                    word => at.push(word.to_owned()),
                }
            }
            // What lies in a module is found there.
            while !at.is_empty() && !modules.contains_key(&at) {
                at.pop();
            }
            let common = module.iter().zip(&at).take_while(|(one, other)| one == other).count();
            if common < module.len() && common < at.len() {
                let folder = uses.entry(module[..common].to_vec()).or_default();
                folder.entry(module[common].clone()).or_default().insert(at[common].clone());
            }
        }
    }
    uses
}

/// What `from` reaches.
fn reached(uses: &BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<String> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![from.to_owned()]);
    while let Some(module) = next.pop() {
        for used in uses.get(&module).into_iter().flatten() {
            if reached.insert(used.clone()) {
                next.push(used.clone());
            }
        }
    }
    reached
}

#[test]
fn modules_of_a_folder_need_each_other_in_no_circle() {
    let mut circles: BTreeSet<(String, Vec<String>)> = BTreeSet::new();
    let mut folders = 0;
    for House { krate, .. } in &HOUSES {
        for (folder, uses) in siblings(krate) {
            folders += 1;
            let place = [&[krate.to_string(), "src".to_owned()], &folder[..]].concat().join("/");
            for module in uses.keys() {
                let around: Vec<String> =
                    reached(&uses, module).into_iter().filter(|other| reached(&uses, other).contains(module)).collect();
                if around.len() > 1 {
                    circles.insert((place.clone(), around));
                }
            }
        }
    }
    assert!(folders > 30, "{folders} folders");
    assert!(circles.is_empty(), "these need each other; move what they share further down: {circles:#?}");
}

#[test]
fn paths_are_seen_in_trees_and_outside_of_use_lines() {
    let code = "use super::a::{self, B, c::{D, E}};\nfn f() -> crate::x::Y { self::z::g(super::super::w()) }";
    let mut found = paths(code);
    found.sort();
    found.dedup();
    let expected = [
        "crate::x::Y",
        "self::z::g",
        "super::a::",
        "super::a::B",
        "super::a::c::D",
        "super::a::c::E",
        "super::a::self",
        "super::super::w",
    ];
    assert_eq!(found, expected);
}
