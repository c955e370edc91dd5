//! The aggregators of time-series queries, with OpenTSDB's names and meaning.
//!
//! [`TABLE`] holds all properties of each. One enum serves two purposes: the samples of one series in one bucket
//! (downsampling), and the values that the series of a group have at one time. [`evaluate`] holds the arithmetic.

mod evaluate;
mod side;
mod table;

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

pub use side::Side;
pub use table::{Definition, TABLE};

/// How the values of several series at one time become one; also how the samples of one series
/// in one bucket do (any but `None`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Aggregator {
    Sum,
    Min,
    Max,
    Avg,
    Median,
    /// No aggregation: every series is a group.
    None,
    Mult,
    Dev,
    Diff,
    Count,
    ZimSum,
    MimMin,
    MimMax,
    First,
    Last,
    PfSum,
    SquareSum,
    Percentile(Percentile),
}

/// Which percentile, and how it is estimated on integers (floats always use `Legacy`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Percentile {
    /// Thousandths: 999 is p99.9.
    pub per_mille: u16,
    pub estimation: Estimation,
}

/// Estimation types of percentiles, named as in Hyndman and Fan (1996).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Estimation {
    /// Position `p (n + 1)`.
    Legacy,
    R3,
    R7,
}

/// What a series contributes at a time that lies between two of its points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Interpolation {
    /// The straight line between the two.
    Linear,
    /// 0, which counts.
    Zero,
    /// The largest value of its type.
    Max,
    /// The smallest value of its type.
    Min,
    /// The earlier of the two.
    Previous,
}

/// What is made of the values of a group's series where they live, so that it can be added up on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Parts {
    /// Nothing: all points must come together.
    None,
    /// Nothing is added up: every series is a group.
    EachSeries,
    Sum,
    SumOfSquares,
    SumAndCount,
    Count,
    Least,
    Greatest,
}

impl Parts {
    /// What changes nothing when it is added up.
    pub fn identity(self) -> f64 {
        match self {
            Parts::Least => f64::INFINITY,
            Parts::Greatest => f64::NEG_INFINITY,
            _ => 0.0,
        }
    }

    /// Whether a value adds nothing. An infinite minimum counts as missing (see [`Aggregator::of_floats`]).
    pub fn is_nothing(self, value: f64) -> bool {
        match self {
            Parts::EachSeries => false,
            Parts::Least | Parts::Greatest => value.is_nan() || value == self.identity(),
            _ => value.is_nan(),
        }
    }
}

impl Aggregator {
    /// Its line in the table; of a percentile without a name that of another percentile.
    pub fn definition(self) -> &'static Definition {
        let kind = std::mem::discriminant(&self);
        let exact = TABLE.iter().find(|known| known.aggregator == self);
        let found = exact.or_else(|| TABLE.iter().find(|known| std::mem::discriminant(&known.aggregator) == kind));
        found.expect("a test finds a line for every kind of aggregator")
    }

    pub fn interpolation(self) -> Interpolation {
        self.definition().interpolation
    }

    pub fn parts(self) -> Parts {
        self.definition().parts
    }
}

impl fmt::Display for Aggregator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.definition(), self) {
            (known, _) if known.aggregator == *self => f.write_str(known.name),
            (_, Aggregator::Percentile(of)) => write!(f, "percentile of {} per mille", of.per_mille),
            (known, _) => f.write_str(known.name),
        }
    }
}

/// A name that no aggregator has.
#[derive(Debug, thiserror::Error)]
#[error("aggregator '{name}' is unknown; known are {}", known())]
pub struct UnknownAggregator {
    pub name: String,
}

fn known() -> String {
    TABLE.map(|known| known.name).join(", ")
}

impl FromStr for Aggregator {
    type Err = UnknownAggregator;

    /// Names are case-sensitive.
    fn from_str(name: &str) -> Result<Self, UnknownAggregator> {
        let found = TABLE.iter().find(|known| known.name == name);
        found.map(|known| known.aggregator).ok_or_else(|| UnknownAggregator { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests;
