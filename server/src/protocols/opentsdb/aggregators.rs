//! OpenTSDB's names of the aggregators.

use telem_query::functions::aggregator::{Aggregator, Estimation, Percentile};

/// Every name that a query may use, and what it means. Names are case-sensitive.
pub const NAMES: [(&str, Aggregator); 35] = [
    ("sum", Aggregator::Sum),
    ("min", Aggregator::Min),
    ("max", Aggregator::Max),
    ("avg", Aggregator::Avg),
    ("median", Aggregator::Median),
    ("none", Aggregator::None),
    ("mult", Aggregator::Mult),
    ("dev", Aggregator::Dev),
    ("diff", Aggregator::Diff),
    ("count", Aggregator::Count),
    ("zimsum", Aggregator::ZimSum),
    ("mimmin", Aggregator::MimMin),
    ("mimmax", Aggregator::MimMax),
    ("first", Aggregator::First),
    ("last", Aggregator::Last),
    ("pfsum", Aggregator::PfSum),
    ("squareSum", Aggregator::SquareSum),
    ("p50", percentile(500, Estimation::Legacy)),
    ("p75", percentile(750, Estimation::Legacy)),
    ("p90", percentile(900, Estimation::Legacy)),
    ("p95", percentile(950, Estimation::Legacy)),
    ("p99", percentile(990, Estimation::Legacy)),
    ("p999", percentile(999, Estimation::Legacy)),
    ("ep50r3", percentile(500, Estimation::R3)),
    ("ep75r3", percentile(750, Estimation::R3)),
    ("ep90r3", percentile(900, Estimation::R3)),
    ("ep95r3", percentile(950, Estimation::R3)),
    ("ep99r3", percentile(990, Estimation::R3)),
    ("ep999r3", percentile(999, Estimation::R3)),
    ("ep50r7", percentile(500, Estimation::R7)),
    ("ep75r7", percentile(750, Estimation::R7)),
    ("ep90r7", percentile(900, Estimation::R7)),
    ("ep95r7", percentile(950, Estimation::R7)),
    ("ep99r7", percentile(990, Estimation::R7)),
    ("ep999r7", percentile(999, Estimation::R7)),
];

const fn percentile(per_mille: u16, estimation: Estimation) -> Aggregator {
    Aggregator::Percentile(Percentile { per_mille, estimation })
}

pub fn by_name(name: &str) -> Option<Aggregator> {
    NAMES.iter().find(|(known, _)| *known == name).map(|(_, aggregator)| *aggregator)
}
