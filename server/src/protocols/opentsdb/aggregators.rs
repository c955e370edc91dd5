//! OpenTSDB's names of the aggregators.

use telem_query::question::aggregator::{Aggregator, Estimation, Percentile};

/// Every name that a query may use, and what it means. Names are case-sensitive; they stand in the
/// order in which the original tells them.
pub const NAMES: [(&str, Aggregator); 35] = [
    ("mult", Aggregator::Mult),
    ("p90", percentile(900, Estimation::Legacy)),
    ("zimsum", Aggregator::ZimSum),
    ("mimmax", Aggregator::MimMax),
    ("sum", Aggregator::Sum),
    ("p50", percentile(500, Estimation::Legacy)),
    ("none", Aggregator::None),
    ("p95", percentile(950, Estimation::Legacy)),
    ("ep99r7", percentile(990, Estimation::R7)),
    ("pfsum", Aggregator::PfSum),
    ("p75", percentile(750, Estimation::Legacy)),
    ("p99", percentile(990, Estimation::Legacy)),
    ("ep99r3", percentile(990, Estimation::R3)),
    ("ep95r7", percentile(950, Estimation::R7)),
    ("min", Aggregator::Min),
    ("avg", Aggregator::Avg),
    ("ep75r7", percentile(750, Estimation::R7)),
    ("dev", Aggregator::Dev),
    ("ep95r3", percentile(950, Estimation::R3)),
    ("ep75r3", percentile(750, Estimation::R3)),
    ("ep50r7", percentile(500, Estimation::R7)),
    ("ep90r7", percentile(900, Estimation::R7)),
    ("mimmin", Aggregator::MimMin),
    ("p999", percentile(999, Estimation::Legacy)),
    ("ep50r3", percentile(500, Estimation::R3)),
    ("ep90r3", percentile(900, Estimation::R3)),
    ("ep999r7", percentile(999, Estimation::R7)),
    ("last", Aggregator::Last),
    ("max", Aggregator::Max),
    ("count", Aggregator::Count),
    ("diff", Aggregator::Diff),
    ("median", Aggregator::Median),
    ("squareSum", Aggregator::SquareSum),
    ("ep999r3", percentile(999, Estimation::R3)),
    ("first", Aggregator::First),
];

const fn percentile(per_mille: u16, estimation: Estimation) -> Aggregator {
    Aggregator::Percentile(Percentile { per_mille, estimation })
}

pub fn by_name(name: &str) -> Option<Aggregator> {
    NAMES.iter().find(|(known, _)| *known == name).map(|(_, aggregator)| *aggregator)
}
