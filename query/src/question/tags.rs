//! Keys of groups and of series as one string, the form in which they are sent.
//!
//! Names contain no control characters, so [`SEPARATOR`] can separate them. It sorts below every character of a name,
//! so the byte order of these strings is the canonical order of the keys.

use telem_engine::TagSet;

pub(crate) const SEPARATOR: char = '\u{1f}';

/// The tags of a series as one string, see [`decode_tags`].
pub(crate) fn encode_tags(tags: &TagSet) -> String {
    let mut encoded = String::new();
    for (at, (key, value)) in tags.iter().enumerate() {
        if at > 0 {
            encoded.push(SEPARATOR);
        }
        encoded.push_str(key);
        encoded.push(SEPARATOR);
        encoded.push_str(value);
    }
    encoded
}

/// What [`encode_tags`] encoded.
///
/// # Errors
/// When it is nothing that `encode_tags` makes.
pub(crate) fn decode_tags(encoded: &str) -> telem_engine::Result<TagSet> {
    if encoded.is_empty() {
        return Ok(TagSet::default());
    }
    let names: Vec<&str> = encoded.split(SEPARATOR).collect();
    let tags = names.chunks(2).map(|tag| (tag[0], tag.get(1).copied().unwrap_or_default()));
    TagSet::new(tags)
}

#[cfg(test)]
mod tests;
