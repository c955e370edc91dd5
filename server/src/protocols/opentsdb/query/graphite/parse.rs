//! Parses `function(argument,argument)` into a tree. An argument is a function, a query as in `m=`, or a parameter.

use telem_query::tsq::Fidelity;

/// Deepest nesting of functions.
pub(crate) const DEPTH_MAX: usize = 32;
/// Most queries in the expressions of one request.
pub const QUERIES_MAX: usize = 1_000;

#[derive(Clone, Debug, PartialEq)]
pub struct GraphiteTree {
    pub function: GraphiteFunction,
    /// In the order in which they stand.
    pub arguments: Vec<Argument>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    Function(GraphiteTree),
    /// The place of a query among those that were read.
    Query(usize),
    Parameter(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraphiteFunction {
    Scale,
    Absolute,
    MovingAverage,
    FirstDifference,
    HighestMax,
    HighestCurrent,
    TimeShift,
    Alias,
    Sum,
    Diff,
    Multiply,
    Divide,
}

impl GraphiteFunction {
    /// Names with their case. OpenTSDB 2.4 has no `firstDiff`.
    fn by_name(name: &str, fidelity: Fidelity) -> Option<Self> {
        Some(match name {
            "scale" => GraphiteFunction::Scale,
            "absolute" => GraphiteFunction::Absolute,
            "movingAverage" => GraphiteFunction::MovingAverage,
            "firstDiff" if fidelity == Fidelity::Sensible => GraphiteFunction::FirstDifference,
            "highestMax" => GraphiteFunction::HighestMax,
            "highestCurrent" => GraphiteFunction::HighestCurrent,
            "shift" | "timeShift" => GraphiteFunction::TimeShift,
            "alias" => GraphiteFunction::Alias,
            "sum" | "sumSeries" => GraphiteFunction::Sum,
            "difference" | "diffSeries" => GraphiteFunction::Diff,
            "multiply" | "multiplySeries" => GraphiteFunction::Multiply,
            "divide" | "divideSeries" => GraphiteFunction::Divide,
            _ => return None,
        })
    }
}

/// Reads one expression. Queries in it are appended to `queries`. Text behind its last bracket is not looked at, as in
/// the original.
///
/// # Errors
/// Says what is wrong.
pub fn parse(text: &str, queries: &mut Vec<String>, fidelity: Fidelity) -> Result<GraphiteTree, String> {
    let mut reader = GraphiteReader { text, queries, fidelity };
    let end = text.find('(').and_then(|open| closing(&text[open + 1..]).map(|close| open + 1 + close + 1));
    reader.function(&text[..end.ok_or_else(|| reader.malformed())?], 0)
}

struct GraphiteReader<'a> {
    text: &'a str,
    queries: &'a mut Vec<String>,
    fidelity: Fidelity,
}

impl GraphiteReader<'_> {
    fn malformed(&self) -> String {
        format!("Failed to parse {}", self.text)
    }

    /// `name(argument,argument)`
    fn function(&mut self, text: &str, depth: usize) -> Result<GraphiteTree, String> {
        if depth > DEPTH_MAX {
            return Err(format!("functions are nested more than {DEPTH_MAX} deep"));
        }
        let (name, inner) =
            text.trim_end().strip_suffix(')').and_then(|text| text.split_once('(')).ok_or_else(|| self.malformed())?;
        let name = name.trim();
        if !is_name(name) {
            return Err(self.malformed());
        }
        let function = GraphiteFunction::by_name(name, self.fidelity)
            .ok_or_else(|| format!("Function {name} has not been implemented"))?;
        let arguments = split(inner).into_iter().map(|text| self.argument(text.trim(), depth));
        Ok(GraphiteTree { function, arguments: arguments.collect::<Result<_, _>>()? })
    }

    /// A bracket before any colon begins a function, a colon before any bracket a query, whose filters may have
    /// brackets.
    fn argument(&mut self, text: &str, depth: usize) -> Result<Argument, String> {
        let exact = self.fidelity == Fidelity::OpenTsdb;
        match text.find(['(', ':', '{']).map(|at| text.as_bytes()[at]) {
            _ if text.is_empty() => Err(self.malformed()),
            Some(b'(') => self.function(text, depth + 1).map(Argument::Function),
            Some(b':') => {
                if self.queries.len() >= QUERIES_MAX {
                    return Err(format!("more than {QUERIES_MAX} queries in the expressions of one request"));
                }
                let query = if exact { plain_query(text).ok_or_else(|| self.malformed())? } else { text.to_owned() };
                self.queries.push(query);
                Ok(Argument::Query(self.queries.len() - 1))
            }
            _ if exact && !is_name(text) => Err(self.malformed()),
            _ => Ok(Argument::Parameter(text.to_owned())),
        }
    }
}

/// Where the bracket is closed behind which `text` begins.
fn closing(text: &str) -> Option<usize> {
    let mut open = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' | '{' => open += 1,
            ')' if open == 0 => return Some(at),
            ')' | '}' => open = open.checked_sub(1)?,
            _ => {}
        }
    }
    None
}

/// The parts between commas that are not in brackets of their own.
fn split(text: &str) -> Vec<&str> {
    let mut open = 0_usize;
    text.split(|c| {
        match c {
            '(' | '{' => open += 1,
            ')' | '}' => open = open.saturating_sub(1),
            _ => {}
        }
        c == ',' && open == 0
    })
    .collect()
}

/// What OpenTSDB's reader of expressions takes for a word.
fn is_name(text: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric() || "#$'-./@[]_|".contains(c);
    text == "*" || !text.is_empty() && text.chars().all(letter)
}

/// A query as OpenTSDB's expressions can hold one, without its blanks: two to four words with colons between, and
/// tags that are words. No kinds of filters, no options of a rate.
fn plain_query(text: &str) -> Option<String> {
    let (path, tags) = match text.split_once('{') {
        Some((path, tags)) => (path, Some(tags.strip_suffix('}')?)),
        None => (text, None),
    };
    let words = |text: &str, between: char| {
        let words: Vec<String> = text.split(between).map(|word| word.trim().to_owned()).collect();
        words.iter().all(|word| is_name(word)).then_some(words)
    };
    let path = words(path, ':').filter(|words| (2..=4).contains(&words.len()))?.join(":");
    let Some(tags) = tags else { return Some(path) };
    let tags: Option<Vec<String>> = tags
        .split(',')
        .map(|tag| words(tag, '=').filter(|words| words.len() == 2).map(|words| words.join("=")))
        .collect();
    Some(format!("{path}{{{}}}", tags?.join(",")))
}
