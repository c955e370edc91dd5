//! Host lists as schedulers write them: `a,b[001,003]`, `n[01-05]-ib`, `rack[0-1]_blade[0-1]`. From text to names and
//! back.
//!
//! The grammar is that of Slurm's `scontrol show hostnames`. Names are separated by commas (here also by white space).
//! A name may have any number of brackets, each with numbers and ranges of numbers. The rightmost bracket counts
//! fastest, and a range is as wide as its first number. Names are counted before they are created, so no text creates
//! more than [`HOSTS_MAX`] names.

#[cfg(test)]
mod tests;

use std::fmt::Write;

/// Most hosts in a list.
pub const HOSTS_MAX: usize = 65_536;
/// Longest list, in bytes.
pub const TEXT_BYTES_MAX: usize = 1 << 20;
/// Longest name of a host, in bytes: the limit of the domain name system.
pub const NAME_BYTES_MAX: usize = 253;
/// Most digits of a number in brackets.
const DIGITS_MAX: usize = 18;
/// How much of a list an error shows on each side of the place that it is about.
const EXCERPT_CHARS: usize = 30;

/// Why a text is not a host list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("host list: {what} at character {} of '{excerpt}'{advice}", at + 1)]
pub struct HostlistError {
    what: String,
    /// The number of characters before the place.
    at: usize,
    /// The list around the place.
    excerpt: String,
    advice: &'static str,
}

const ADVICE: &str = "; write it like a,b[001,003],n[01-05]-ib";

fn wrong(text: &str, at_byte: usize, what: impl Into<String>) -> HostlistError {
    let at = text.get(..at_byte).map_or(0, |before| before.chars().count());
    let first = at.saturating_sub(EXCERPT_CHARS);
    let cut = |from: bool| if from { "..." } else { "" };
    let shown: String = text.chars().skip(first).take(2 * EXCERPT_CHARS).collect();
    let more = text.chars().nth(first + 2 * EXCERPT_CHARS).is_some();
    let excerpt = format!("{}{}{}", cut(first > 0), shown.escape_debug(), cut(more));
    HostlistError { what: what.into(), at, excerpt, advice: ADVICE }
}

/// The names of `text`, in its order; a name that occurs twice is returned twice.
///
/// # Errors
/// When it is malformed, or names more than [`HOSTS_MAX`] hosts; the error gives the place.
pub fn expand(text: &str) -> Result<Vec<String>, HostlistError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(wrong(text, 0, format!("{} bytes are more than {TEXT_BYTES_MAX}", text.len())));
    }
    let mut hosts = Vec::new();
    for (start, element) in elements(text) {
        let parts = parts(text, start, element)?;
        let count = parts.iter().try_fold(1_usize, |count, part| count.checked_mul(part.count()));
        let room = HOSTS_MAX - hosts.len();
        let count = count.filter(|count| *count <= room);
        let count = count.ok_or_else(|| wrong(text, start, format!("there are more than {HOSTS_MAX} hosts")))?;
        let longest: usize = parts.iter().map(NamePart::bytes_max).sum();
        if longest > NAME_BYTES_MAX {
            return Err(wrong(text, start, format!("a name of {longest} bytes is longer than {NAME_BYTES_MAX}")));
        }
        hosts.extend((0..count).map(|nth| name(&parts, nth)));
    }
    Ok(hosts)
}

/// The shortest list like `n[01-05]-ib` that this writes for these names: [`expand`] gives them back.
pub fn fold(hosts: &[String]) -> String {
    let mut list = String::new();
    let mut rest = hosts;
    while let Some((first, after)) = rest.split_first() {
        if !list.is_empty() {
            list.push(',');
        }
        let Some(numbered) = NumberedName::of(first) else {
            list.push_str(first);
            rest = after;
            continue;
        };
        let alike = rest.iter().map_while(|host| NumberedName::of(host).filter(|other| other.is_like(&numbered)));
        let numbers: Vec<NumberedName<'_>> = alike.collect();
        match numbers.as_slice() {
            [_] | [] => list.push_str(first),
            many => {
                let ranges = ranges(many);
                // Writing to a string does not fail.
                let _ = write!(list, "{}[{ranges}]{}", numbered.before, numbered.after);
            }
        }
        rest = &rest[numbers.len().max(1)..];
    }
    list
}

/// `01-03,7` of names that differ in that alone.
fn ranges(names: &[NumberedName<'_>]) -> String {
    let mut text = String::new();
    let mut rest = names;
    while let Some(first) = rest.first() {
        let follows = |(step, name): &(usize, &NumberedName<'_>)| {
            let number = first.number.saturating_add(*step as u64);
            name.number == number && name.digits == format!("{number:0width$}", width = first.digits.len())
        };
        let run = rest.iter().enumerate().take_while(follows).count().max(1);
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(first.digits);
        if run > 1 {
            let _ = write!(text, "-{}", rest[run - 1].digits);
        }
        rest = &rest[run..];
    }
    text
}

/// A name around its last number.
#[derive(Clone, Copy, Debug)]
struct NumberedName<'a> {
    before: &'a str,
    digits: &'a str,
    number: u64,
    after: &'a str,
}

impl<'a> NumberedName<'a> {
    fn of(name: &'a str) -> Option<Self> {
        let end = name.rfind(|c: char| c.is_ascii_digit())? + 1;
        let start = name[..end].rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1);
        let digits = &name[start..end];
        if digits.len() > DIGITS_MAX || !name.is_ascii() {
            return None;
        }
        Some(Self { before: &name[..start], digits, number: digits.parse().ok()?, after: &name[end..] })
    }

    fn is_like(&self, other: &Self) -> bool {
        (self.before, self.after) == (other.before, other.after)
    }
}

/// The parts between commas and white space outside of brackets, with the byte at which each starts; none is empty.
fn elements(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut inside = false;
    let between = move |c: char| {
        match c {
            '[' => inside = true,
            ']' => inside = false,
            _ => {}
        }
        !inside && (c == ',' || c.is_ascii_whitespace())
    };
    let origin = text.as_ptr() as usize;
    text.split(between)
        .filter(|element| !element.is_empty())
        .map(move |element| (element.as_ptr() as usize - origin, element))
}

/// A part of a name.
#[derive(Debug)]
enum NamePart<'a> {
    Plain(&'a str),
    /// What a bracket holds: never nothing.
    Numbers(Vec<HostRange>),
}

/// Numbers from one to another, both of them included.
#[derive(Clone, Copy, Debug)]
struct HostRange {
    first: u64,
    last: u64,
    width: usize,
}

impl HostRange {
    fn count(self) -> usize {
        usize::try_from(self.last - self.first).map_or(usize::MAX, |more| more.saturating_add(1))
    }
}

impl NamePart<'_> {
    fn count(&self) -> usize {
        match self {
            Self::Plain(_) => 1,
            Self::Numbers(ranges) => {
                ranges.iter().fold(0_usize, |count, range| count.saturating_add(HostRange::count(*range)))
            }
        }
    }

    fn bytes_max(&self) -> usize {
        let of = |range: &HostRange| range.width.max(range.last.checked_ilog10().unwrap_or(0) as usize + 1);
        match self {
            Self::Plain(text) => text.len(),
            Self::Numbers(ranges) => ranges.iter().map(of).max().unwrap_or(0),
        }
    }

    fn push_nth(&self, name: &mut String, mut nth: usize) {
        let ranges = match self {
            Self::Plain(text) => return name.push_str(text),
            Self::Numbers(ranges) => ranges,
        };
        for range in ranges {
            if nth < range.count() {
                let HostRange { first, width, .. } = *range;
                let _ = write!(name, "{:0width$}", first + nth as u64);
                return;
            }
            nth -= range.count();
        }
    }
}

/// The name with that number among all names of `parts`.
fn name(parts: &[NamePart<'_>], nth: usize) -> String {
    // The rightmost part counts fastest.
    let mut places = vec![0; parts.len()];
    let mut rest = nth;
    for (place, part) in places.iter_mut().zip(parts).rev() {
        *place = rest % part.count();
        rest /= part.count();
    }
    let mut name = String::new();
    parts.iter().zip(places).for_each(|(part, place)| part.push_nth(&mut name, place));
    name
}

/// The parts of the name that starts at byte `start` of `text`.
fn parts<'a>(text: &str, start: usize, element: &'a str) -> Result<Vec<NamePart<'a>>, HostlistError> {
    let mut parts = Vec::new();
    let mut at = 0;
    while at < element.len() {
        let rest = &element[at..];
        let here = start + at;
        if let Some(inner) = rest.strip_prefix('[') {
            let end = inner.find(']').ok_or_else(|| wrong(text, here, "this '[' is never closed,"))?;
            parts.push(NamePart::Numbers(numbers(text, here + 1, &inner[..end])?));
            at += end + 2;
            continue;
        }
        let plain = &rest[..rest.find('[').unwrap_or(rest.len())];
        if let Some((bad, c)) = plain.char_indices().find(|(_, c)| !is_plain(*c)) {
            return Err(wrong(text, here + bad, format!("{c:?} is not part of a name,")));
        }
        parts.push(NamePart::Plain(plain));
        at += plain.len();
    }
    if let Some(NamePart::Plain(first)) = parts.first()
        && first.starts_with('-')
    {
        // Programs would take it for an option.
        return Err(wrong(text, start, "a name does not start with '-',"));
    }
    Ok(parts)
}

/// What names and addresses of hosts are made of.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':')
}

/// The contents of a bracket, which starts at byte `start` of `text`.
fn numbers(text: &str, start: usize, inner: &str) -> Result<Vec<HostRange>, HostlistError> {
    let mut ranges = Vec::new();
    let mut at = start;
    for item in inner.split(',') {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let last_at = if item.len() > first.len() { at + first.len() + 1 } else { at };
        let range =
            HostRange { first: number(text, at, first)?, last: number(text, last_at, last)?, width: first.len() };
        if range.first > range.last {
            return Err(wrong(text, at, format!("the range {item} runs backwards,")));
        }
        if last.starts_with('0') && last.len() > range.width {
            return Err(wrong(text, at, format!("{first} and {last} are not of one width,")));
        }
        ranges.push(range);
        at += item.len() + 1;
    }
    Ok(ranges)
}

fn number(text: &str, at: usize, digits: &str) -> Result<u64, HostlistError> {
    if digits.is_empty() {
        return Err(wrong(text, at, "a number is missing"));
    }
    if let Some((bad, c)) = digits.char_indices().find(|(_, c)| !c.is_ascii_digit()) {
        return Err(wrong(text, at + bad, format!("{c:?} is not a digit,")));
    }
    if digits.len() > DIGITS_MAX {
        return Err(wrong(text, at, format!("a number of {} digits is too long,", digits.len())));
    }
    digits.parse().map_err(|_| wrong(text, at, "this is not a number,"))
}
