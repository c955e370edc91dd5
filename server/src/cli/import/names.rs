//! Names of metrics and tags as every way in takes them, and which name became which.

use std::collections::HashMap;

use telem_ingest::decode::opentsdb::check_name;

/// Cleans names and keeps two names apart that would become one.
#[derive(Debug, Default)]
pub struct CleanNames {
    metrics: NameMap,
    keys: NameMap,
}

#[derive(Debug, Default)]
struct NameMap {
    clean: HashMap<String, String>,
    /// By what it became.
    taken: HashMap<String, String>,
}

impl CleanNames {
    /// The name of a metric; what was changed is said by `renamed`, once.
    pub fn metric(&mut self, name: &str, renamed: impl FnOnce(String)) -> String {
        self.metrics.clean("metric", name, renamed)
    }

    /// Keeps the name of a metric for telem's own use.
    pub fn reserve(&mut self, name: &str) {
        if !self.metrics.taken.contains_key(name) {
            self.metrics.taken.insert(name.to_owned(), String::new());
        }
    }

    /// The key of a tag.
    pub fn key(&mut self, name: &str, renamed: impl FnOnce(String)) -> String {
        self.keys.clean("tag", name, renamed)
    }
}

impl NameMap {
    fn clean(&mut self, what: &str, name: &str, renamed: impl FnOnce(String)) -> String {
        if let Some(known) = self.clean.get(name) {
            return known.clone();
        }
        let clean = legal(name);
        let mut free = clean.clone();
        let mut number = 2;
        while self.taken.get(&free).is_some_and(|other| other != name) {
            free = format!("{clean}_{number}");
            number += 1;
        }
        if free != name {
            let why = if clean == name { "its name is taken" } else { "names are letters, digits and -_./" };
            renamed(format!("{what} '{}' becomes {free}: {why}", name.escape_debug()));
        }
        self.taken.insert(free.clone(), name.to_owned());
        self.clean.insert(name.to_owned(), free.clone());
        free
    }
}

/// Letters, digits and `-_./`; every other character becomes `_`, as in the Python client.
fn legal(name: &str) -> String {
    let mut utf8 = [0; 4];
    let legal = |c: char| if check_name(String::new, c.encode_utf8(&mut utf8)).is_ok() { c } else { '_' };
    name.trim().chars().map(legal).collect()
}

#[cfg(test)]
mod tests;
