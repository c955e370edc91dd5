//! The text of a record as it is held in memory: most are written once and read seldom.
//!
//! Long texts repeat themselves, and each other: what a job left is much like what an earlier one left, often but for its
//! [numbers](super::numbers). So some of the last texts are patterns, and of others only what a pattern does not have is
//! held.

use std::sync::{Arc, Weak};

use lz4_flex::block;
use serde::{Serialize, Serializer};

use super::numbers;

/// Shorter texts are held as they are: packing them would save little.
const PACKED_BYTES_MIN: usize = 1 << 10;
/// Longer ones are compressed by themselves and better. Up to here a text and its pattern lie within the 64 KiB over which
/// LZ4 finds again what was there before.
const SHORT_BYTES_MAX: usize = 32 << 10;
/// Most patterns at a time.
const PATTERNS_MAX: usize = 16;
/// Most patterns that are unpacked one after the other to read a text.
const DEPTH_MAX: u8 = 4;

/// See the module.
#[derive(Clone, Debug)]
pub enum RecordText {
    Plain(Arc<str>),
    Packed(Arc<PackedText>),
    Compressed { compressed: Arc<[u8]>, bytes: usize },
}

/// A text without what its pattern has.
#[derive(Debug)]
pub struct PackedText {
    packed: Box<[u8]>,
    bytes: usize,
    pattern: Option<Arc<PackedText>>,
    /// It differs from its pattern in numbers only, and these are what is packed; else LZ4 packs it.
    is_numbers: bool,
    /// How many patterns must be unpacked for it.
    depth: u8,
}

/// What others may repeat.
#[derive(Clone, Debug)]
struct Pattern {
    /// Of all but its numbers: equal ones are looked at.
    sum: u64,
    text: Weak<PackedText>,
}

/// The last ones, of those that a text has or that are held themselves.
#[derive(Clone, Debug, Default)]
pub struct Patterns(Vec<Pattern>);

impl Patterns {
    /// The last one that is the same but for its numbers; else the last one.
    fn of(&self, sum: u64) -> Option<Arc<PackedText>> {
        let living = || self.0.iter().rev().filter_map(|known| Some((known.sum, known.text.upgrade()?)));
        let same = living().find(|(known, _)| *known == sum);
        same.or_else(|| living().find(|(_, text)| text.depth < DEPTH_MAX)).map(|(_, text)| text)
    }

    fn add(&mut self, sum: u64, text: &Arc<PackedText>) {
        self.0.retain(|pattern| pattern.sum != sum && pattern.text.strong_count() > 0);
        if self.0.len() >= PATTERNS_MAX {
            self.0.remove(0);
        }
        self.0.push(Pattern { sum, text: Arc::downgrade(text) });
    }
}

impl PackedText {
    fn new(text: &[u8], patterns: &mut Patterns) -> Arc<Self> {
        let (bytes, sum) = (text.len(), numbers::sum_without(text));
        let alone = |packed: Vec<u8>| Self { packed: packed.into(), bytes, pattern: None, is_numbers: false, depth: 0 };
        let new = match patterns.of(sum) {
            None => alone(block::compress(text)),
            Some(pattern) => {
                let before = pattern.unpacked();
                let depth = pattern.depth.saturating_add(1);
                if let Some(packed) = numbers::changed(&before, text) {
                    // Its pattern is that of the next one, too.
                    let (packed, pattern) = (packed.into(), Some(pattern));
                    return Arc::new(Self { packed, bytes, pattern, is_numbers: true, depth });
                }
                if pattern.depth < DEPTH_MAX {
                    let packed = block::compress_with_dict(text, &before);
                    Self { pattern: Some(pattern), depth, ..alone(packed) }
                } else {
                    alone(block::compress(text))
                }
            }
        };
        let new = Arc::new(new);
        patterns.add(sum, &new);
        new
    }

    fn unpacked(&self) -> Vec<u8> {
        let before = self.pattern.as_ref().map(|pattern| pattern.unpacked());
        let text = match before {
            Some(before) if self.is_numbers => numbers::put(&before, &self.packed, self.bytes),
            Some(before) => block::decompress_with_dict(&self.packed, self.bytes, &before).ok(),
            None => block::decompress(&self.packed, self.bytes).ok(),
        };
        text.expect("this process packed a text of that length")
    }
}

impl RecordText {
    /// A text beside the last ones, of which it may become one.
    pub fn new(text: Arc<str>, patterns: &mut Patterns) -> Self {
        if text.len() < PACKED_BYTES_MIN {
            return Self::Plain(text);
        }
        if text.len() <= SHORT_BYTES_MAX {
            let packed = PackedText::new(text.as_bytes(), patterns);
            return if packed.packed.len() < text.len() { Self::Packed(packed) } else { Self::Plain(text) };
        }
        match zstd::bulk::compress(text.as_bytes(), zstd::DEFAULT_COMPRESSION_LEVEL) {
            Ok(compressed) if compressed.len() < text.len() => {
                Self::Compressed { compressed: compressed.into(), bytes: text.len() }
            }
            _ => Self::Plain(text),
        }
    }

    pub fn text(&self) -> Arc<str> {
        let bytes = match self {
            Self::Plain(text) => return Arc::clone(text),
            Self::Packed(packed) => Some(packed.unpacked()),
            Self::Compressed { compressed, bytes } => zstd::bulk::decompress(compressed, *bytes).ok(),
        };
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        text.expect("this process compressed a text of that length").into()
    }

    pub fn len(&self) -> usize {
        match self {
            Self::Plain(text) => text.len(),
            Self::Packed(packed) => packed.bytes,
            Self::Compressed { bytes, .. } => *bytes,
        }
    }

    /// What it takes in memory, without its pattern.
    pub fn held_bytes(&self) -> usize {
        let of_text = match self {
            Self::Plain(text) => text.len(),
            Self::Packed(packed) => size_of::<PackedText>() + packed.packed.len(),
            Self::Compressed { compressed, .. } => compressed.len(),
        };
        size_of::<Self>() + of_text
    }
}

/// However they are held.
impl PartialEq for RecordText {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.text() == other.text()
    }
}

impl Serialize for RecordText {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.text().serialize(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a job's counters are written.
    fn counters(name: &str, factor: usize) -> Arc<str> {
        let one = |number: usize| {
            let value = number * factor % 1_009;
            format!("{{\"name\":\"{name}_{number}_total\",\"doc\":\"a counter\",\"value\":{value}.0}},")
        };
        (0..100).map(one).collect::<String>().into()
    }

    #[test]
    fn short_and_long_texts_come_back() {
        let mut patterns = Patterns::default();
        for lines in [100, 400, 4_000] {
            let line = |number: usize| format!("counter {number} has {}\n", number * 7 % 13);
            let text: Arc<str> = (0..lines).map(line).collect::<String>().into();
            let packed = RecordText::new(Arc::clone(&text), &mut patterns);
            assert!(packed.held_bytes() < text.len(), "{lines} lines");
            assert_eq!(packed.text(), text, "{lines} lines");
        }
    }

    #[test]
    fn a_text_that_is_like_an_earlier_one_takes_little_beside_it_and_outlives_it() {
        let mut patterns = Patterns::default();
        let first = RecordText::new(counters("alike", 1), &mut patterns);
        let second: Arc<str> = counters("alike", 1).replace("alike_50", "other_50").into();
        let third = counters("alike", 7);
        let held = [&second, &third].map(|text| RecordText::new(Arc::clone(text), &mut patterns));
        assert!(first.held_bytes() < first.len() / 3, "{} of {}", first.held_bytes(), first.len());
        let [of_second, of_third] = held.each_ref().map(RecordText::held_bytes);
        assert!(of_second < first.held_bytes() / 4, "another name: {of_second} after {}", first.held_bytes());
        assert!(of_third < first.held_bytes() / 2, "other numbers: {of_third} after {}", first.held_bytes());
        drop(first);
        assert_eq!((held[0].text(), held[1].text()), (second, third));
    }

    #[test]
    fn jobs_of_several_programs_in_turns_are_like_their_own() {
        let mut patterns = Patterns::default();
        let mut held = |program: usize| RecordText::new(counters(&"x".repeat(program + 1), 1), &mut patterns);
        let firsts: Vec<RecordText> = (0..PATTERNS_MAX).map(&mut held).collect();
        for turn in 0..10 {
            for (program, first) in firsts.iter().enumerate() {
                let again = held(program);
                let nothing = size_of::<RecordText>() + size_of::<PackedText>();
                assert_eq!(again.held_bytes(), nothing, "{program} in turn {turn}");
                assert_eq!(again.text(), first.text(), "{program} in turn {turn}");
            }
        }
    }

    #[test]
    fn texts_that_are_each_unlike_the_one_before_come_back() {
        let mut patterns = Patterns::default();
        let texts = (0..3 * usize::from(DEPTH_MAX)).map(|number| counters(&"x".repeat(number), number));
        let held: Vec<_> = texts.map(|text| (RecordText::new(Arc::clone(&text), &mut patterns), text)).collect();
        for (held, text) in held {
            assert_eq!(held.text(), text);
        }
    }

    #[test]
    fn a_text_that_cannot_be_packed_is_held_as_it_is() {
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            char::from(b' ' + (state >> 33) as u8 % 95)
        };
        for bytes in [PACKED_BYTES_MIN - 1, PACKED_BYTES_MIN, SHORT_BYTES_MAX, SHORT_BYTES_MAX + 1] {
            let text: Arc<str> = (0..bytes).map(|_| next()).collect::<String>().into();
            let held = RecordText::new(Arc::clone(&text), &mut Patterns::default());
            assert_eq!((held.text(), held.len()), (text, bytes));
            assert!(held.held_bytes() <= bytes + size_of::<RecordText>() + size_of::<PackedText>());
        }
    }
}
