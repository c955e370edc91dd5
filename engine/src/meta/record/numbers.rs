//! Texts that differ in their numbers only, as what two jobs of a program left.
//!
//! What is held of such a text, beside another, are its places that differ. Each is how many bytes are the other's up to
//! there, and what stands there of a number: half a byte a digit, so that a digit and what it costs to say where it
//! stands take a byte or two. Whatever else stands in the text is compared eight bytes at a time and looked at no more.

/// What stands in numbers, by its place in half a byte.
const DIGITS: &[u8; 15] = b"0123456789.-+e:";
/// Stands behind the last digit of a number.
const END: u8 = 15;
/// The number that was put last, again.
const AGAIN: u8 = END << 4;
/// Of a byte that stands in no number.
const NONE: u8 = u8::MAX;
/// The place of each byte in [`DIGITS`].
const PLACES: [u8; 256] = {
    let mut places = [NONE; 256];
    let mut place = 0;
    while place < DIGITS.len() {
        places[DIGITS[place] as usize] = place as u8;
        place += 1;
    }
    places
};

fn is_digit(byte: u8) -> bool {
    PLACES[usize::from(byte)] != NONE
}

/// How much of the beginning of a text stands in numbers.
fn digits(text: &[u8]) -> usize {
    text.iter().take_while(|byte| is_digit(**byte)).count()
}

/// A checksum of a text without its numbers.
pub fn sum_without(text: &[u8]) -> u64 {
    // As of Fletcher and Adler: the second sum knows the order. Who relies on it compares the texts.
    let (mut sum, mut sums) = (0_u64, 0_u64);
    for byte in text.iter().filter(|byte| !is_digit(**byte)) {
        sum = sum.wrapping_add(u64::from(*byte) + 1);
        sums = sums.wrapping_add(sum);
    }
    sums ^ sum.rotate_left(40)
}

/// How long two texts are the same from their beginning.
fn same(one: &[u8], other: &[u8]) -> usize {
    let (ones, others) = (one.as_chunks::<8>().0, other.as_chunks::<8>().0);
    let alike = 8 * ones.iter().zip(others).take_while(|(one, other)| one == other).count();
    alike + one[alike..].iter().zip(&other[alike..]).take_while(|(one, other)| one == other).count()
}

/// The numbers in which `text` differs from `pattern`; `None` if it differs in more, or would take more.
pub fn changed(mut pattern: &[u8], mut text: &[u8]) -> Option<Vec<u8>> {
    let bytes_max = text.len() / 4;
    let (mut packed, mut last): (_, &[u8]) = (Vec::new(), &[]);
    loop {
        let same = same(pattern, text);
        (pattern, text) = (&pattern[same..], &text[same..]);
        if pattern.is_empty() && text.is_empty() {
            return Some(packed);
        }
        let (number, rest) = text.split_at(digits(text));
        let before = digits(pattern);
        if number.is_empty() && before == 0 || packed.len() > bytes_max {
            return None;
        }
        put_count(&mut packed, same);
        if number == last {
            packed.push(AGAIN);
        } else {
            put_number(&mut packed, number);
            last = number;
        }
        (pattern, text) = (&pattern[before..], rest);
    }
}

/// The text that [`changed`] was told of; `None` of anything else.
pub fn put(mut pattern: &[u8], mut packed: &[u8], bytes: usize) -> Option<Vec<u8>> {
    let (mut text, mut last) = (Vec::with_capacity(bytes), 0..0);
    while !packed.is_empty() {
        let (same, rest) = pattern.split_at_checked(take_count(&mut packed)?)?;
        text.extend_from_slice(same);
        let begin = text.len();
        if packed.first() == Some(&AGAIN) {
            packed = &packed[1..];
            text.extend_from_within(last);
        } else {
            take_number(&mut packed, &mut text)?;
        }
        last = begin..text.len();
        pattern = &rest[digits(rest)..];
    }
    text.extend_from_slice(pattern);
    (text.len() == bytes).then_some(text)
}

/// Seven bits a byte, the lowest first; the highest bit says that more follow.
fn put_count(packed: &mut Vec<u8>, mut count: usize) {
    while count >= 128 {
        packed.push((count % 128) as u8 | 128);
        count /= 128;
    }
    packed.push(count as u8);
}

fn take_count(packed: &mut &[u8]) -> Option<usize> {
    let (mut count, mut shift) = (0, 0_u32);
    loop {
        let byte = take(packed)?;
        count |= usize::from(byte & 127).checked_shl(shift)?;
        if byte < 128 {
            return Some(count);
        }
        shift += 7;
    }
}

/// Two digits a byte.
fn put_number(packed: &mut Vec<u8>, number: &[u8]) {
    let place = |digit: &u8| PLACES[usize::from(*digit)];
    let (pairs, odd) = number.as_chunks::<2>();
    packed.extend(pairs.iter().map(|[high, low]| place(high) << 4 | place(low)));
    packed.push(odd.first().map_or(END, place) << 4 | END);
}

/// Adds the next number to `text`.
fn take_number(packed: &mut &[u8], text: &mut Vec<u8>) -> Option<()> {
    loop {
        let pair = take(packed)?;
        for place in [pair >> 4, pair & 15] {
            match DIGITS.get(usize::from(place)) {
                Some(digit) => text.push(*digit),
                None => return Some(()),
            }
        }
    }
}

fn take(packed: &mut &[u8]) -> Option<u8> {
    let (byte, rest) = packed.split_first()?;
    *packed = rest;
    Some(*byte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn assert_back(pattern: &str, text: &str, bytes: usize) {
        let packed = changed(pattern.as_bytes(), text.as_bytes()).unwrap();
        assert_eq!(packed.len(), bytes, "{packed:?}");
        assert_eq!(put(pattern.as_bytes(), &packed, text.len()).as_deref(), Some(text.as_bytes()));
        assert_eq!(sum_without(pattern.as_bytes()), sum_without(text.as_bytes()));
    }

    #[test]
    fn numbers_that_differ_are_put_in_the_places_of_others() {
        let pattern = r#"{"name":"c1_total","min":1.0,"max":1.0,"total":1.0,"hits":17}, and more, and more, and more"#;
        assert_back(pattern, pattern, 0);
        assert_back(pattern, &pattern.replace("17", "-3.5e-7"), 1 + 4);
        // What is the same at its beginning is not put.
        assert_back(pattern, &pattern.replace("17", "1700.5"), 1 + 3);
        assert_back(pattern, &pattern.replace("17", "1"), 1 + 1);
        // The same number again takes two bytes each time.
        assert_back(pattern, &pattern.replace("1.0", "2.25"), 1 + 3 + 2 + 2);
        assert_eq!(changed(pattern.as_bytes(), pattern.replace("min", "mid").as_bytes()), None);
        assert_eq!(changed(pattern.as_bytes(), pattern.replace("17", "null").as_bytes()), None);
        assert_eq!(changed(pattern.as_bytes(), &pattern.as_bytes()[..40]), None);
        assert_eq!(changed(&pattern.as_bytes()[..40], pattern.as_bytes()), None);
    }

    #[test]
    fn a_long_number_far_away_comes_back() {
        let pattern = format!("{}1", "x".repeat(4_000));
        assert_back(&pattern, &format!("{}{}", "x".repeat(4_000), "7".repeat(255)), 2 + 128);
    }

    #[test]
    fn words_in_another_order_have_another_sum() {
        assert_ne!(sum_without(b"calls 1, bytes 2"), sum_without(b"bytes 1, calls 2"));
        assert_ne!(sum_without(b"calls 1"), sum_without(b"call 1"));
    }

    const NUMBER: &str = "[0-9]{0,3}([.][0-9]{1,2})?";

    proptest! {
        #[test]
        fn whatever_differs_comes_back_or_is_refused(
            pieces in prop::collection::vec(("[a-z,:+.eE -]{0,3}", NUMBER, NUMBER), 0..40),
            packed in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let all = |of: &dyn Fn(&(String, String, String)) -> String| pieces.iter().map(of).collect::<String>();
            let pattern = all(&|(word, one, _)| format!("some words before {word}{one}"));
            let text = all(&|(word, _, other)| format!("some words before {word}{other}"));
            if let Some(packed) = changed(pattern.as_bytes(), text.as_bytes()) {
                prop_assert_eq!(put(pattern.as_bytes(), &packed, text.len()), Some(text.clone().into_bytes()));
                prop_assert_eq!(sum_without(pattern.as_bytes()), sum_without(text.as_bytes()));
            }
            // Nothing panics.
            let _ = put(pattern.as_bytes(), &packed, text.len());
        }
    }
}
