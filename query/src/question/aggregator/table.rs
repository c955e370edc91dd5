//! The one table of aggregators: one line each, with all of its properties but the arithmetic (`evaluate.rs`).

use telem_engine::downsample::Function;

use super::{Aggregator, Estimation, Interpolation, Parts, Percentile};

/// One aggregator.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    pub aggregator: Aggregator,
    /// How questions write it; case matters.
    pub name: &'static str,
    pub interpolation: Interpolation,
    pub parts: Parts,
    /// What folds the samples of a bucket to the same value while the engine decodes them.
    pub engine: Option<Function>,
}

/// Every aggregator that has a name, in the order in which they are listed.
#[rustfmt::skip]
pub const TABLE: [Definition; 35] = {
    use Aggregator as A;
    use Estimation::{Legacy, R3, R7};
    use Interpolation::{Linear, Max, Min, Previous, Zero};
    [
        row(A::Sum,       "sum",       Linear,   Parts::Sum,          Some(Function::Sum)),
        row(A::Min,       "min",       Linear,   Parts::Least,        Some(Function::Min)),
        row(A::Max,       "max",       Linear,   Parts::Greatest,     Some(Function::Max)),
        row(A::Avg,       "avg",       Linear,   Parts::SumAndCount,  Some(Function::Avg)),
        row(A::Median,    "median",    Linear,   Parts::None,         None),
        row(A::None,      "none",      Zero,     Parts::EachSeries,   None),
        row(A::Mult,      "mult",      Linear,   Parts::None,         None),
        row(A::Dev,       "dev",       Linear,   Parts::None,         Some(Function::Dev)),
        row(A::Diff,      "diff",      Linear,   Parts::None,         None),
        row(A::Count,     "count",     Zero,     Parts::Count,        Some(Function::Count)),
        row(A::ZimSum,    "zimsum",    Zero,     Parts::Sum,          Some(Function::Sum)),
        row(A::MimMin,    "mimmin",    Max,      Parts::Least,        Some(Function::Min)),
        row(A::MimMax,    "mimmax",    Min,      Parts::Greatest,     Some(Function::Max)),
        row(A::First,     "first",     Zero,     Parts::None,         Some(Function::First)),
        row(A::Last,      "last",      Zero,     Parts::None,         Some(Function::Last)),
        row(A::PfSum,     "pfsum",     Previous, Parts::Sum,          Some(Function::Sum)),
        row(A::SquareSum, "squareSum", Zero,     Parts::SumOfSquares, None),
        percentile("p50", 500, Legacy),
        percentile("p75", 750, Legacy),
        percentile("p90", 900, Legacy),
        percentile("p95", 950, Legacy),
        percentile("p99", 990, Legacy),
        percentile("p999", 999, Legacy),
        percentile("ep50r3", 500, R3),
        percentile("ep75r3", 750, R3),
        percentile("ep90r3", 900, R3),
        percentile("ep95r3", 950, R3),
        percentile("ep99r3", 990, R3),
        percentile("ep999r3", 999, R3),
        percentile("ep50r7", 500, R7),
        percentile("ep75r7", 750, R7),
        percentile("ep90r7", 900, R7),
        percentile("ep95r7", 950, R7),
        percentile("ep99r7", 990, R7),
        percentile("ep999r7", 999, R7),
    ]
};

const fn row(
    aggregator: Aggregator,
    name: &'static str,
    interpolation: Interpolation,
    parts: Parts,
    engine: Option<Function>,
) -> Definition {
    Definition { aggregator, name, interpolation, parts, engine }
}

const fn percentile(name: &'static str, per_mille: u16, estimation: Estimation) -> Definition {
    let aggregator = Aggregator::Percentile(Percentile { per_mille, estimation });
    row(aggregator, name, Interpolation::Linear, Parts::None, None)
}
