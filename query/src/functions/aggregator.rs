//! The aggregators of time-series queries, with OpenTSDB's names and meaning.

/// How the values of several series at one time become one; also how the samples of one series
/// in one bucket do (any but `None`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Percentile {
    /// Thousandths: 999 is p99.9.
    pub per_mille: u16,
    pub estimation: Estimation,
}

/// Estimation types of percentiles, named as in Hyndman and Fan (1996).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Estimation {
    /// Position `p (n + 1)`.
    Legacy,
    R3,
    R7,
}
