//! `function(argument,,argument)` as text to a tree. An argument is a function, a query as in `m=`, or a parameter.

/// Deepest that functions may stand in one another.
const DEPTH_MAX: usize = 32;
/// Most queries in the expressions of one request.
pub const QUERIES_MAX: usize = 1_000;

#[derive(Clone, Debug, PartialEq)]
pub struct Tree {
    pub function: Function,
    /// In the order in which they stand.
    pub arguments: Vec<Argument>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    Function(Tree),
    /// The place of a query among those that were read.
    Query(usize),
    Parameter(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
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

impl Function {
    /// Names with their case. OpenTSDB 2.4 has no `firstDiff`, and its `alias` fails.
    fn by_name(name: &str) -> Option<Self> {
        Some(match name {
            "scale" => Function::Scale,
            "absolute" => Function::Absolute,
            "movingAverage" => Function::MovingAverage,
            "firstDiff" => Function::FirstDifference,
            "highestMax" => Function::HighestMax,
            "highestCurrent" => Function::HighestCurrent,
            "shift" | "timeShift" => Function::TimeShift,
            "alias" => Function::Alias,
            "sumSeries" => Function::Sum,
            "diffSeries" => Function::Diff,
            "multiplySeries" => Function::Multiply,
            "divideSeries" => Function::Divide,
            _ => return None,
        })
    }
}

/// Reads one expression. Queries in it are appended to `queries`.
///
/// # Errors
/// Says what is wrong.
pub fn parse(text: &str, queries: &mut Vec<String>) -> Result<Tree, String> {
    function(text, queries, 0)
}

fn function(text: &str, queries: &mut Vec<String>, depth: usize) -> Result<Tree, String> {
    let text = text.trim_start();
    if depth > DEPTH_MAX {
        return Err(format!("functions stand more than {DEPTH_MAX} deep in one another"));
    }
    let invalid = || format!("Invalid Expression: {text}");
    let (name, rest) = text.split_once('(').filter(|(_, rest)| rest.contains(')')).ok_or_else(invalid)?;
    let name = name.trim_end();
    let function = Function::by_name(name).ok_or_else(|| format!("Function {name} has not been implemented"))?;
    let mut arguments = Vec::new();
    let mut rest = rest.trim_start();
    if rest.starts_with(')') {
        return Ok(Tree { function, arguments });
    }
    loop {
        let end = argument_end(rest);
        arguments.push(argument(&rest[..end], queries, depth)?);
        rest = rest[end..].trim_start();
        if rest.starts_with(')') {
            return Ok(Tree { function, arguments });
        }
        rest = rest
            .strip_prefix(",,")
            .ok_or_else(|| format!("expected ,, or ) after an argument of {name}, found '{rest}'"))?
            .trim_start();
    }
}

/// Where the argument ends that `text` begins with: before a bracket that it did not open, before `,,` outside of
/// its own brackets, before a blank.
fn argument_end(text: &str) -> usize {
    let mut open = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' => open += 1,
            ')' if open == 0 => return at,
            ')' => open -= 1,
            ',' if open == 0 && text[at..].starts_with(",,") => return at,
            c if c.is_whitespace() => return at,
            _ => {}
        }
    }
    text.len()
}

fn argument(text: &str, queries: &mut Vec<String>, depth: usize) -> Result<Argument, String> {
    let bracket = text.find('(').unwrap_or(text.len());
    match text.find(':') {
        _ if text.is_empty() => Err("Invalid Parameter in Expression".to_owned()),
        // A colon before any bracket: a query, whose filters may have brackets.
        Some(colon) if colon < bracket => {
            if queries.len() >= QUERIES_MAX {
                return Err(format!("more than {QUERIES_MAX} queries in the expressions of one request"));
            }
            queries.push(text.to_owned());
            Ok(Argument::Query(queries.len() - 1))
        }
        _ if bracket > 0 && bracket < text.len() && text.contains(')') => {
            function(text, queries, depth + 1).map(Argument::Function)
        }
        _ => Ok(Argument::Parameter(text.to_owned())),
    }
}
