//! Texts that differ in their numbers only, as what two jobs of a program left.

use crate::crc32;

/// Digits of numbers, by their place in half a byte.
const DIGITS: &[u8; 16] = b"0123456789.-+eE:";
/// Stands for the number that was put last.
const AGAIN: u8 = 0;

/// Splits a text into what stands before its first number, that number, and the rest. A number has a digit, a sign before
/// it, and behind it what may stand in a number.
fn split(text: &[u8]) -> (&[u8], &[u8], &[u8]) {
    let digit = text.iter().position(u8::is_ascii_digit).unwrap_or(text.len());
    let sign = usize::from(digit < text.len() && text[..digit].ends_with(b"-"));
    let (before, rest) = text.split_at(digit - sign);
    let length = rest.iter().take_while(|byte| DIGITS.contains(byte)).count();
    let (number, rest) = rest.split_at(length);
    (before, number, rest)
}

/// A checksum of a text without its numbers.
pub fn sum_without(mut text: &[u8]) -> u32 {
    let mut without = Vec::with_capacity(text.len());
    while !text.is_empty() {
        let (before, number, rest) = split(text);
        without.extend_from_slice(before);
        if !number.is_empty() {
            without.push(0);
        }
        text = rest;
    }
    crc32(&without)
}

/// The numbers in which `text` differs from `pattern`; `None` if it differs in more, or would take more.
pub fn changed(mut pattern: &[u8], mut text: &[u8]) -> Option<Vec<u8>> {
    let (mut packed, mut same, mut last): (_, usize, &[u8]) = (Vec::new(), 0, &[]);
    let bytes_max = text.len() / 4;
    while !text.is_empty() {
        let ((before, number, rest), (text_before, text_number, text_rest)) = (split(pattern), split(text));
        if before != text_before || number.is_empty() != text_number.is_empty() || packed.len() > bytes_max {
            return None;
        }
        if number == text_number {
            same += 1;
        } else {
            put_count(&mut packed, same);
            same = 0;
            if text_number == last {
                packed.push(AGAIN);
            } else {
                put_number(&mut packed, text_number)?;
                last = text_number;
            }
        }
        (pattern, text) = (rest, text_rest);
    }
    pattern.is_empty().then_some(packed)
}

/// The text that [`changed`] was told of; `None` of anything else.
pub fn put(mut pattern: &[u8], mut packed: &[u8], bytes: usize) -> Option<Vec<u8>> {
    let (mut text, mut last) = (Vec::with_capacity(bytes), Vec::new());
    let mut same = take_count(&mut packed)?;
    while !pattern.is_empty() {
        let (before, number, rest) = split(pattern);
        text.extend_from_slice(before);
        if same == Some(0) && !number.is_empty() {
            take_number(&mut packed, &mut last)?;
            text.extend_from_slice(&last);
            same = take_count(&mut packed)?;
        } else {
            text.extend_from_slice(number);
            same = same.map(|same| same.saturating_sub(1));
        }
        pattern = rest;
    }
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

/// `Some(None)` behind the last.
fn take_count(packed: &mut &[u8]) -> Option<Option<usize>> {
    if packed.is_empty() {
        return Some(None);
    }
    let (mut count, mut shift) = (0, 0_u32);
    loop {
        let byte = take(packed)?;
        count |= usize::from(byte & 127).checked_shl(shift)?;
        if byte < 128 {
            return Some(Some(count));
        }
        shift += 7;
    }
}

/// Its length, and two digits a byte.
fn put_number(packed: &mut Vec<u8>, number: &[u8]) -> Option<()> {
    packed.push(u8::try_from(number.len()).ok()?);
    for pair in number.chunks(2) {
        let digit = |byte: &u8| DIGITS.iter().position(|digit| digit == byte);
        let (high, low) = (digit(&pair[0])?, pair.get(1).map_or(Some(0), digit)?);
        packed.push((high << 4 | low) as u8);
    }
    Some(())
}

fn take_number(packed: &mut &[u8], number: &mut Vec<u8>) -> Option<()> {
    let digits = usize::from(take(packed)?);
    if digits == usize::from(AGAIN) {
        return Some(());
    }
    number.clear();
    for _ in 0..digits.div_ceil(2) {
        let pair = take(packed)?;
        number.extend([DIGITS[usize::from(pair >> 4)], DIGITS[usize::from(pair & 15)]]);
    }
    number.truncate(digits);
    Some(())
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
    }

    #[test]
    fn numbers_that_differ_are_put_in_the_places_of_others() {
        let pattern = r#"{"name":"c1_total","min":1.0,"max":1.0,"total":1.0,"hits":17}, and more, and more, and more"#;
        assert_back(pattern, pattern, 0);
        assert_back(pattern, &pattern.replace("17", "-3.5e-7"), 2 + 4);
        // The same number again takes two bytes each time.
        assert_back(pattern, &pattern.replace("1.0", "2.25"), 2 + 2 + 2 + 2);
        assert_eq!(changed(pattern.as_bytes(), pattern.replace("min", "mid").as_bytes()), None);
        assert_eq!(changed(pattern.as_bytes(), pattern.replace("17", "null").as_bytes()), None);
        assert_eq!(changed(pattern.as_bytes(), &pattern.as_bytes()[..40]), None);
        assert_eq!(changed(&pattern.as_bytes()[..40], pattern.as_bytes()), None);
    }

    #[test]
    fn a_number_too_long_for_that_is_none() {
        let pattern = format!("{}1", "x".repeat(4_000));
        assert_back(&pattern, &format!("{}{}", "x".repeat(4_000), "7".repeat(255)), 1 + 1 + 128);
        assert_eq!(changed(pattern.as_bytes(), format!("{}{}", "x".repeat(4_000), "7".repeat(256)).as_bytes()), None);
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
