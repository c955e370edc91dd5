//! The aggregators of time-series queries, with OpenTSDB's names and meaning.
//!
//! One enum serves twice: for the samples of one series in one bucket (downsampling), and for the
//! values that the series of a group have at one time. [`evaluate`] holds the arithmetic.

mod evaluate;
mod side;

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

pub use side::Side;

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

impl Aggregator {
    /// Every aggregator that has a name.
    pub const ALL: [Aggregator; 35] = {
        use Aggregator::{
            Avg, Count, Dev, Diff, First, Last, Max, Median, MimMax, MimMin, Min, Mult, None, PfSum, SquareSum, Sum,
            ZimSum,
        };
        use Estimation::{Legacy, R3, R7};
        [
            Sum,
            Min,
            Max,
            Avg,
            Median,
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
            percentile(500, Legacy),
            percentile(750, Legacy),
            percentile(900, Legacy),
            percentile(950, Legacy),
            percentile(990, Legacy),
            percentile(999, Legacy),
            percentile(500, R3),
            percentile(750, R3),
            percentile(900, R3),
            percentile(950, R3),
            percentile(990, R3),
            percentile(999, R3),
            percentile(500, R7),
            percentile(750, R7),
            percentile(900, R7),
            percentile(950, R7),
            percentile(990, R7),
            percentile(999, R7),
        ]
    };

    pub fn interpolation(self) -> Interpolation {
        match self {
            Aggregator::Sum
            | Aggregator::Min
            | Aggregator::Max
            | Aggregator::Avg
            | Aggregator::Median
            | Aggregator::Mult
            | Aggregator::Dev
            | Aggregator::Diff
            | Aggregator::Percentile(_) => Interpolation::Linear,
            Aggregator::None
            | Aggregator::Count
            | Aggregator::ZimSum
            | Aggregator::First
            | Aggregator::Last
            | Aggregator::SquareSum => Interpolation::Zero,
            Aggregator::MimMin => Interpolation::Max,
            Aggregator::MimMax => Interpolation::Min,
            Aggregator::PfSum => Interpolation::Previous,
        }
    }
}

const fn percentile(per_mille: u16, estimation: Estimation) -> Aggregator {
    Aggregator::Percentile(Percentile { per_mille, estimation })
}

impl fmt::Display for Aggregator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Aggregator::Sum => "sum",
            Aggregator::Min => "min",
            Aggregator::Max => "max",
            Aggregator::Avg => "avg",
            Aggregator::Median => "median",
            Aggregator::None => "none",
            Aggregator::Mult => "mult",
            Aggregator::Dev => "dev",
            Aggregator::Diff => "diff",
            Aggregator::Count => "count",
            Aggregator::ZimSum => "zimsum",
            Aggregator::MimMin => "mimmin",
            Aggregator::MimMax => "mimmax",
            Aggregator::First => "first",
            Aggregator::Last => "last",
            Aggregator::PfSum => "pfsum",
            Aggregator::SquareSum => "squareSum",
            Aggregator::Percentile(Percentile { per_mille, estimation }) => {
                let digits = if per_mille % 10 == 0 { per_mille / 10 } else { *per_mille };
                return match estimation {
                    Estimation::Legacy => write!(f, "p{digits}"),
                    Estimation::R3 => write!(f, "ep{digits}r3"),
                    Estimation::R7 => write!(f, "ep{digits}r7"),
                };
            }
        })
    }
}

/// A name that no aggregator has.
#[derive(Debug, thiserror::Error)]
#[error("aggregator '{name}' is unknown; known are {}", known())]
pub struct UnknownAggregator {
    pub name: String,
}

fn known() -> String {
    Aggregator::ALL.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl FromStr for Aggregator {
    type Err = UnknownAggregator;

    /// Names are case-sensitive.
    fn from_str(name: &str) -> Result<Self, UnknownAggregator> {
        let found = Self::ALL.into_iter().find(|aggregator| aggregator.to_string() == name);
        found.ok_or_else(|| UnknownAggregator { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests;
