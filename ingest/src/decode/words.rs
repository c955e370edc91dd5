//! Compares short texts, such as names and timestamps, a word at a time. The library's comparison of slices is a call,
//! which takes longer than comparing what most of them have.

/// Whether `rest` starts with `text`.
#[inline]
pub fn starts_with(rest: &[u8], text: &[u8]) -> bool {
    let Some(head) = rest.get(..text.len()) else { return false };
    // Two words that may overlap are all of it.
    match text.len() {
        4..8 => same_ends::<4>(head, text),
        8..16 => same_ends::<8>(head, text),
        16..=32 => same_ends::<16>(head, text),
        _ => head == text,
    }
}

/// Whether the first and the last bytes are the same.
#[inline]
fn same_ends<const BYTES: usize>(one: &[u8], other: &[u8]) -> bool {
    one.first_chunk::<BYTES>() == other.first_chunk::<BYTES>()
        && one.last_chunk::<BYTES>() == other.last_chunk::<BYTES>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_any_length_is_compared_byte_by_byte() {
        let text: Vec<u8> = (0..40).collect();
        for len in 0..text.len() {
            let (name, rest) = text.split_at(len);
            assert!(starts_with(&text, name) && starts_with(name, name));
            assert!(rest.is_empty() || !starts_with(name, &text[..len + 1]), "{len}");
            for at in 0..len {
                let mut other = text.clone();
                other[at] ^= 1;
                assert!(!starts_with(&other, name), "byte {at} of {len}");
            }
        }
    }
}
