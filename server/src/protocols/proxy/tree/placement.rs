//! The parent of each proxy in the tree, decided in the order in which they came.

use serde::{Deserialize, Serialize};

/// How many children a server has that is no root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TreeShape {
    /// All stand below the server that they ask, which polls each of them itself.
    #[default]
    Flat,
    /// So many stand below each, filled breadth first, as the original does.
    Branches(usize),
}

/// A child that asked for its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeEntry {
    /// As it named itself; it may hold a token.
    pub address: String,
    /// Its parent's host and port; `None` where that is this server.
    pub parent: Option<String>,
    /// It does not answer.
    #[serde(default)]
    pub is_lost: bool,
}

impl TreeEntry {
    /// Its host and port.
    pub fn key(&self) -> &str {
        key_of(&self.address)
    }
}

/// Host and port of an address.
pub fn key_of(address: &str) -> &str {
    address.split('/').next().unwrap_or_default()
}

/// The place of a child that comes, or comes back: its parent's address, or `None` below this server.
pub fn place(entries: &mut Vec<TreeEntry>, address: &str, shape: TreeShape) -> Option<String> {
    let key = key_of(address).to_owned();
    let known = entries.iter().position(|entry| entry.key() == key);
    if let Some(at) = known {
        let parent = entries[at].parent.clone();
        let stands = |parent: &String| entries.iter().any(|entry| entry.key() == parent && !entry.is_lost);
        if parent.as_ref().is_none_or(stands) {
            entries[at] = TreeEntry { address: address.to_owned(), parent: parent.clone(), is_lost: false };
            return address_of(entries, parent.as_deref());
        }
        entries.remove(at);
    }
    let parent = match shape {
        TreeShape::Flat => None,
        TreeShape::Branches(most) => free(entries, &key, most),
    };
    entries.push(TreeEntry { address: address.to_owned(), parent: parent.clone(), is_lost: false });
    address_of(entries, parent.as_deref())
}

/// The first with room for one more; it must not stand below `key` itself.
fn free(entries: &[TreeEntry], key: &str, most: usize) -> Option<String> {
    let has_room = |parent: Option<&str>| {
        entries.iter().filter(|entry| entry.parent.as_deref() == parent && !entry.is_lost).count() < most
    };
    if has_room(None) {
        return None;
    }
    let is_below = |entry: &TreeEntry| {
        let mut above = Some(entry.key().to_owned());
        for _ in 0..=entries.len() {
            let Some(current) = above else { return false };
            if current == key {
                return true;
            }
            above = entries.iter().find(|entry| entry.key() == current).and_then(|entry| entry.parent.clone());
        }
        true
    };
    let mut found = entries.iter().filter(|entry| !entry.is_lost && has_room(Some(entry.key())) && !is_below(entry));
    found.next().map(|entry| entry.key().to_owned())
}

fn address_of(entries: &[TreeEntry], key: Option<&str>) -> Option<String> {
    let key = key?;
    entries.iter().find(|entry| entry.key() == key).map(|entry| entry.address.clone())
}

/// Takes a child away; those below it stand below its parent. Whether it was there.
pub fn remove(entries: &mut Vec<TreeEntry>, key: &str) -> bool {
    let Some(at) = entries.iter().position(|entry| entry.key() == key) else { return false };
    let gone = entries.remove(at);
    for entry in entries.iter_mut().filter(|entry| entry.parent.as_deref() == Some(key)) {
        entry.parent.clone_from(&gone.parent);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(shape: TreeShape, addresses: &[&str]) -> Vec<String> {
        let mut entries = Vec::new();
        let parent = |address: &&str| place(&mut entries, address, shape).unwrap_or_else(|| "R".to_owned());
        addresses.iter().map(parent).collect()
    }

    #[test]
    fn all_children_stand_below_the_server_that_they_ask() {
        assert_eq!(places(TreeShape::Flat, &["a:1", "b:1", "c:1"]), ["R", "R", "R"]);
    }

    #[test]
    fn branches_are_filled_breadth_first_as_the_original_does() {
        let all = ["a:1", "b:1", "c:1", "d:1", "e:1"];
        assert_eq!(places(TreeShape::Branches(2), &all), ["R", "R", "a:1", "a:1", "b:1"]);
    }

    #[test]
    fn who_comes_again_has_the_same_place_once() {
        let mut entries = Vec::new();
        for address in ["a:1/t/x", "b:1", "c:1", "a:1/t/y", "c:1"] {
            place(&mut entries, address, TreeShape::Branches(2));
        }
        assert_eq!(entries.len(), 3);
        assert_eq!(place(&mut entries, "c:1", TreeShape::Branches(2)).as_deref(), Some("a:1/t/y"));
    }

    #[test]
    fn who_stood_below_a_lost_one_gets_another_place_but_never_below_itself() {
        let mut entries = Vec::new();
        for address in ["a:1", "b:1", "c:1", "d:1", "e:1"] {
            place(&mut entries, address, TreeShape::Branches(2));
        }
        entries[0].is_lost = true;
        assert_eq!(place(&mut entries, "c:1", TreeShape::Branches(2)), None, "the lost one leaves its branch");
        assert!(remove(&mut entries, "b:1") && !remove(&mut entries, "b:1"));
        let e = entries.iter().find(|entry| entry.address == "e:1").unwrap();
        assert_eq!(e.parent, None, "who stood below one that left stands below its parent");
    }
}
