//! The names that a request selects: tests on metrics, nodes and tag values, as plain data.
//!
//! A test runs once for every distinct name, never once per row. It answers as SQL would: a series that lacks the tag
//! passes only [`NameTest::Absent`].

use std::fmt;

use arrow::array::StringArray;
use arrow::compute::{ilike, like};
use serde::{Deserialize, Serialize};

use crate::question::expression::{Case, Expression};

/// What a test looks at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NameSubject {
    Metric,
    Node,
    /// The job whose samples they are.
    Job,
    Tag(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NameTest {
    In {
        names: Vec<String>,
        negated: bool,
    },
    Compare {
        order: Order,
        name: String,
    },
    /// SQL's LIKE: `%`, `_`, and `\` to escape them.
    Like {
        pattern: String,
        case: Case,
        negated: bool,
    },
    /// Found anywhere in the name.
    Regex {
        pattern: String,
        case: Case,
        negated: bool,
    },
    Present,
    Absent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A test that is ready to be asked.
pub type Accepts = Box<dyn Fn(&str) -> bool + Send>;

impl NameTest {
    /// Asks nothing yet; does once what need not be done for every name.
    ///
    /// # Errors
    /// What is wrong with a pattern, as text.
    pub fn accepts(&self) -> Result<Accepts, String> {
        Ok(match self.clone() {
            NameTest::In { names, negated } if names.len() == 1 => Box::new(move |name| (names[0] == name) != negated),
            NameTest::In { mut names, negated } => {
                names.sort_unstable();
                Box::new(move |name| names.binary_search_by(|known| (**known).cmp(name)).is_ok() != negated)
            }
            NameTest::Compare { order, name: bound } => Box::new(move |name| match order {
                Order::Less => name < &*bound,
                Order::LessOrEqual => name <= &*bound,
                Order::Greater => name > &*bound,
                Order::GreaterOrEqual => name >= &*bound,
            }),
            NameTest::Like { pattern, case, negated } => {
                // Arrow's own kernel, so that a pattern means here what it means above the leaf.
                let kernel = match case {
                    Case::Matters => like,
                    Case::Ignored => ilike,
                };
                let pattern = StringArray::new_scalar(pattern);
                kernel(&StringArray::new_scalar(""), &pattern).map_err(|error| error.to_string())?;
                Box::new(move |name| {
                    let matched = kernel(&StringArray::new_scalar(name), &pattern);
                    matched.is_ok_and(|matched| matched.value(0) != negated)
                })
            }
            NameTest::Regex { pattern, case, negated } => {
                let expression = Expression::new(&pattern, case)?;
                Box::new(move |name| expression.is_in(name) != negated)
            }
            NameTest::Present => Box::new(|_| true),
            NameTest::Absent => Box::new(|_| false),
        })
    }
}

impl fmt::Display for NameSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NameSubject::Metric => f.write_str("metric"),
            NameSubject::Node => f.write_str("node"),
            NameSubject::Job => f.write_str("job"),
            NameSubject::Tag(key) => write!(f, "tags[{key}]"),
        }
    }
}

impl fmt::Display for NameTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let not = |negated: &bool| if *negated { "not " } else { "" };
        match self {
            NameTest::In { names, negated } => write!(f, "{}in {names:?}", not(negated)),
            NameTest::Compare { order: Order::Less, name } => write!(f, "< {name:?}"),
            NameTest::Compare { order: Order::LessOrEqual, name } => write!(f, "<= {name:?}"),
            NameTest::Compare { order: Order::Greater, name } => write!(f, "> {name:?}"),
            NameTest::Compare { order: Order::GreaterOrEqual, name } => write!(f, ">= {name:?}"),
            NameTest::Like { pattern, case: Case::Matters, negated } => write!(f, "{}like {pattern:?}", not(negated)),
            NameTest::Like { pattern, case: Case::Ignored, negated } => write!(f, "{}ilike {pattern:?}", not(negated)),
            NameTest::Regex { pattern, case: Case::Matters, negated } => write!(f, "{}~ {pattern:?}", not(negated)),
            NameTest::Regex { pattern, case: Case::Ignored, negated } => write!(f, "{}~* {pattern:?}", not(negated)),
            NameTest::Present => f.write_str("present"),
            NameTest::Absent => f.write_str("absent"),
        }
    }
}
