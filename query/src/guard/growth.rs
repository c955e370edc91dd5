//! How much memory a function may need for given arguments, known before it is called.

use std::ops::Range;

use arrow::array::ArrayRef;
use datafusion::logical_expr::ColumnarValue;

use super::size;

/// What a function makes of its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Growth {
    /// At most this many bytes for each byte of its arguments.
    Proportional(u64),
    /// Text with parts of the first argument replaced by the third.
    Replaced,
    /// The same, with parts of what was found in the replacement.
    ReplacedByPattern,
    /// Text with characters replaced by those of the third argument.
    Translated,
    /// A time, written as the second argument says.
    Formatted,
    /// All arguments but the first, with the first between them.
    Separated,
    /// The values of a list, with the second argument between them and the third for those that are missing.
    Joined,
    /// A list with values replaced by the third argument.
    ElementsReplaced,
    /// A list of the parts of a text.
    Split,
    /// A list of what the groups of a pattern found.
    Matched,
    /// No more than a number, after as many steps as its two arguments have bytes, multiplied.
    Compared,
}

/// A character of a format becomes at most this many characters of a time: `%c` for 24, `%+` for 35.
const FORMATTED_BYTES: u64 = 20;
/// A formatted number takes at most this many bytes for each of its own.
const WRITTEN_BYTES: u64 = 4;
/// Bytes of a text that becomes a list of its characters, each.
const SPLIT_BYTES: u64 = 17;

impl Growth {
    /// That of the function of this name. What none is known of makes no more than a few times what it took.
    pub fn of(function: &str) -> Self {
        match function {
            "replace" => Self::Replaced,
            "regexp_replace" => Self::ReplacedByPattern,
            "translate" => Self::Translated,
            "to_char" => Self::Formatted,
            "concat_ws" => Self::Separated,
            "array_to_string" => Self::Joined,
            "array_replace" | "array_replace_n" | "array_replace_all" => Self::ElementsReplaced,
            "string_to_array" => Self::Split,
            "regexp_match" => Self::Matched,
            "levenshtein" => Self::Compared,
            "concat" | "concat_operator" | "array_concat" | "array_append" | "array_prepend" | "make_array"
            | "coalesce" | "overlay" => Self::Proportional(1),
            _ => Self::Proportional(3),
        }
    }

    /// Most bytes that come of these rows.
    pub fn most(self, given: &ArgumentBytes<'_>, rows: Range<usize>) -> u64 {
        let count = rows.len() as u64;
        let all = |at: usize| given.bytes(at, rows.clone());
        let each = |at: usize| given.each(at, rows.clone());
        let product = |a: u64, b: u64| a.saturating_mul(b);
        match self {
            Self::Proportional(times) => product(given.all(rows), times),
            Self::Replaced => match given.replaced(&rows) {
                Some(exactly) => exactly,
                None => product(all(0) + count, each(2) + 1),
            },
            Self::ReplacedByPattern => product(product(all(0) + count, each(2) + 1), 2),
            Self::Translated => product(all(0), each(2).clamp(1, if given.is_ascii(2) { 2 } else { u64::MAX })),
            Self::Formatted => product(count, product(each(1), FORMATTED_BYTES) + 64),
            Self::Separated => {
                let separators = product(count, product(each(0), given.count() as u64));
                (1..given.count()).map(all).fold(separators, u64::saturating_add)
            }
            Self::Joined => {
                let between = product(given.elements(0, rows.clone()), each(1) + each(2));
                product(all(0), WRITTEN_BYTES).saturating_add(between)
            }
            Self::ElementsReplaced => {
                let replaced = product(given.elements(0, rows.clone()) + count, each(2));
                all(0).saturating_add(replaced)
            }
            Self::Split => product(all(0) + count, SPLIT_BYTES),
            Self::Matched => product(all(0) + count, given.groups(1, &rows) + 1),
            Self::Compared => 8 * count,
        }
    }

    /// Steps that these rows take, where that is far from the bytes they have.
    pub fn steps(self, given: &ArgumentBytes<'_>, rows: Range<usize>) -> u64 {
        match self {
            Self::Compared => given.each(0, rows.clone()).saturating_mul(given.each(1, rows)),
            _ => 0,
        }
    }
}

/// What a function is called with.
pub(super) struct ArgumentBytes<'a> {
    values: &'a [ColumnarValue],
    /// Bytes of those that are constants.
    constants: Vec<Option<u64>>,
}

impl<'a> ArgumentBytes<'a> {
    pub fn new(values: &'a [ColumnarValue]) -> Self {
        let constant = |value: &ColumnarValue| match value {
            ColumnarValue::Scalar(scalar) => Some(size::of_scalar(scalar)),
            ColumnarValue::Array(_) => None,
        };
        Self { values, constants: values.iter().map(constant).collect() }
    }

    pub fn count(&self) -> usize {
        self.values.len()
    }

    /// Bytes of all arguments in these rows; constants count in each.
    pub fn all(&self, rows: Range<usize>) -> u64 {
        (0..self.count()).map(|at| self.bytes(at, rows.clone())).fold(0, u64::saturating_add)
    }

    fn bytes(&self, at: usize, rows: Range<usize>) -> u64 {
        match (self.constants.get(at), self.column(at)) {
            (Some(Some(bytes)), _) => bytes.saturating_mul(rows.len() as u64),
            (_, Some(column)) => size::bytes(column, rows),
            _ => 0,
        }
    }

    /// Bytes that one row may have.
    fn each(&self, at: usize, rows: Range<usize>) -> u64 {
        match (self.constants.get(at), self.column(at)) {
            (Some(Some(bytes)), _) => *bytes,
            (_, Some(column)) => size::bytes(column, rows),
            _ => 0,
        }
    }

    fn elements(&self, at: usize, rows: Range<usize>) -> u64 {
        match self.values.get(at) {
            Some(ColumnarValue::Array(column)) => size::elements(column, rows),
            Some(ColumnarValue::Scalar(scalar)) => size::elements_of_scalar(scalar) * rows.len() as u64,
            None => 0,
        }
    }

    fn column(&self, at: usize) -> Option<&ArrayRef> {
        match self.values.get(at) {
            Some(ColumnarValue::Array(column)) => Some(column),
            _ => None,
        }
    }

    /// The text of one row.
    fn text(&self, at: usize, row: usize) -> Option<String> {
        match self.values.get(at)? {
            ColumnarValue::Scalar(scalar) => scalar.try_as_str().flatten().map(str::to_owned),
            ColumnarValue::Array(column) => {
                let scalar = datafusion::common::ScalarValue::try_from_array(column, row).ok()?;
                scalar.try_as_str().flatten().map(str::to_owned)
            }
        }
    }

    fn is_ascii(&self, at: usize) -> bool {
        match self.values.get(at) {
            Some(ColumnarValue::Scalar(scalar)) => scalar.try_as_str().flatten().is_none_or(str::is_ascii),
            _ => false,
        }
    }

    /// Groups of a pattern, at the most.
    fn groups(&self, at: usize, rows: &Range<usize>) -> u64 {
        match self.values.get(at) {
            Some(ColumnarValue::Scalar(scalar)) => {
                let pattern = scalar.try_as_str().flatten().unwrap_or_default();
                pattern.bytes().filter(|byte| *byte == b'(').count() as u64 + 1
            }
            _ => self.each(at, rows.clone()) + 1,
        }
    }

    /// What `replace` makes of one row, exactly.
    fn replaced(&self, rows: &Range<usize>) -> Option<u64> {
        if rows.len() != 1 {
            return None;
        }
        let (text, from, to) = (self.text(0, rows.start)?, self.text(1, rows.start)?, self.text(2, rows.start)?);
        let found = if from.is_empty() { text.chars().count() + 1 } else { text.matches(from.as_str()).count() };
        let (text, from, to) = (text.len() as u64, from.len() as u64, to.len() as u64);
        let found = found as u64;
        Some((text - (found * from).min(text)).saturating_add(found.saturating_mul(to)))
    }
}
