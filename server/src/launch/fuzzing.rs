//! The fuzz target of this folder's parsers, and the properties that must hold for all of them.

use super::hostlist::{self, HOSTS_MAX};

/// The name of a corpus, and the reader that gets it.
type Target = (&'static str, fn(&[u8]));

/// The readers of this folder.
pub const TARGETS: [Target; 1] = [("hostlist", hostlist)];

/// A host list: its names are bounded in number and valid, and come back from the list that is written for them.
///
/// # Panics
/// When that does not hold.
pub fn hostlist(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let hosts = match hostlist::expand(text) {
        Ok(hosts) => hosts,
        Err(error) => {
            let said = error.to_string();
            assert!(said.len() < 1_000, "an error as long as what it is about: {said}");
            return;
        }
    };
    assert!(hosts.len() <= HOSTS_MAX);
    let plain = |host: &String| !host.is_empty() && !host.starts_with('-') && host.is_ascii();
    assert!(hosts.iter().all(plain), "{text:?} has a name that is none");
    let folded = hostlist::fold(&hosts);
    assert!(folded.len() <= hosts.iter().map(|host| host.len() + 3).sum(), "{folded:?} is longer than its names");
    assert_eq!(hostlist::expand(&folded).as_ref(), Ok(&hosts), "{folded:?}");
}

#[cfg(test)]
#[path = "../../../tests/fuzz/replay.rs"]
mod replay;
