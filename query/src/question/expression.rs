//! Regular expressions of queries: the text, and the options that give it the same meaning wherever it is compiled
//! again, because a request to a leaf is plain data.

use regex::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};

/// Largest compiled expression; larger ones come from mistakes or from malice.
pub const COMPILED_BYTES_MAX: usize = 1 << 20;

/// Whether upper and lower case differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Case {
    Matters,
    Ignored,
}

/// An expression that is ready to be asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(into = "(String, Case)", try_from = "(String, Case)")]
pub struct Expression {
    pattern: String,
    case: Case,
    compiled: Regex,
}

impl Expression {
    /// # Errors
    /// What is wrong with `pattern`, as text.
    pub fn new(pattern: &str, case: Case) -> Result<Self, String> {
        let compiled = RegexBuilder::new(pattern)
            .case_insensitive(case == Case::Ignored)
            .size_limit(COMPILED_BYTES_MAX)
            .build()
            .map_err(|error| what_is_wrong(&error))?;
        Ok(Self { pattern: pattern.to_owned(), case, compiled })
    }

    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    pub fn case(&self) -> Case {
        self.case
    }

    /// Whether it is found anywhere in `text`.
    pub fn is_in(&self, text: &str) -> bool {
        self.compiled.is_match(text)
    }
}

/// What an expression must not be, in one line.
fn what_is_wrong(error: &regex::Error) -> String {
    match error {
        regex::Error::CompiledTooBig(max) => format!(
            "it is too large: compiled it takes more than {} KiB, the most that is allowed; shorten it, above all \
             repetitions such as {{1000}}",
            max >> 10
        ),
        // The library points at the place in lines of its own; the last one says what is wrong there.
        other => {
            let text = other.to_string();
            let last = text.lines().last().unwrap_or_default().trim();
            last.strip_prefix("error: ").unwrap_or(last).to_owned()
        }
    }
}

impl From<Expression> for (String, Case) {
    fn from(expression: Expression) -> Self {
        (expression.pattern, expression.case)
    }
}

impl TryFrom<(String, Case)> for Expression {
    type Error = String;

    fn try_from((pattern, case): (String, Case)) -> Result<Self, String> {
        Expression::new(&pattern, case)
    }
}
