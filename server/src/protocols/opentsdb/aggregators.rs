//! OpenTSDB's aggregators: those of queries, under their wire names.

use telem_query::question::aggregator::{Aggregator, TABLE};

/// Places of the original's table of names, a `HashMap` of Java's.
const PLACES: u32 = 64;

/// Every name that a query may use, in the order in which the original tells them: that of its table, which goes by
/// the hash of names.
pub fn names() -> Vec<&'static str> {
    let mut names = TABLE.map(|known| known.name).to_vec();
    names.sort_by_key(|name| place(name));
    names
}

/// Where Java's `HashMap` puts a name.
fn place(name: &str) -> u32 {
    let hash = name.bytes().fold(0_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    (hash ^ (hash >> 16)) % PLACES
}

/// Names are case-sensitive.
pub fn by_name(name: &str) -> Option<Aggregator> {
    name.parse().ok()
}
