//! The order in which OpenTSDB's messages list tags: that of Java's `HashMap`, so that our messages are the same.

#[cfg(test)]
mod tests;

/// A map of this many slots or more is what Java begins with.
const SLOTS_MIN: u32 = 16;

/// Sorts entries of different keys, which Java put into a `HashMap` in the order in which they come, as it lists them.
///
/// It lists slot by slot, and within a slot by arrival. The slot is taken from the lowest bits of the key's hash, into
/// which the highest were mixed; there are so many slots, a power of two, that a quarter of them is free.
pub fn of_hash_map<T>(entries: &mut [T], key: impl Fn(&T) -> &str) {
    let mut slots = SLOTS_MIN;
    while entries.len() > slots as usize / 4 * 3 {
        slots *= 2;
    }
    entries.sort_by_key(|entry| {
        let hash = hash(key(entry));
        (hash ^ (hash >> 16)) & (slots - 1)
    });
}

/// `String.hashCode`.
fn hash(text: &str) -> u32 {
    text.encode_utf16().fold(0, |hash: u32, unit| hash.wrapping_mul(31).wrapping_add(u32::from(unit)))
}
