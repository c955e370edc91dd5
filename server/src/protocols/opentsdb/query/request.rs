//! A request to `/api/query` as plain data, whichever way it was sent.

use super::filters::Filter;
use super::gaps::Gaps;
use crate::protocols::opentsdb::call::Call;
use crate::protocols::opentsdb::errors::OpenTsdbError;

/// The order of the lines of a sub-query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineOrder {
    /// That in which their names were first seen.
    #[default]
    FirstSeen,
    /// By the values of their tags, `host` before others.
    Hosts,
}

/// A request to `/api/query`, from JSON or from a URI.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueryRequest {
    pub start: Option<String>,
    pub end: Option<String>,
    pub timezone: Option<String>,
    pub use_calendar: bool,
    /// Times in the answer are milliseconds.
    pub ms_resolution: bool,
    pub show_query: bool,
    pub show_tsuids: bool,
    /// Every group is followed by what its sub-query took.
    pub show_stats: bool,
    /// The groups are followed by what the request took.
    pub show_summary: bool,
    /// No notes are delivered.
    pub no_annotations: bool,
    /// Notes on no single series are delivered too.
    pub global_annotations: bool,
    /// Points are `[time, value]` pairs instead of an object.
    pub arrays: bool,
    pub delete: bool,
    /// Whether it says in which resolution it wants times, as browsers do that show a Grafana.
    pub by_browser: bool,
    /// How gaps are shown.
    pub gaps: Gaps,
    pub order: LineOrder,
    /// Every one once, unless a view keeps them as they were sent.
    pub subs: Vec<Sub>,
}

/// Sub-queries and filters of a question that is answered like a panel's.
const LIGHT_SUBS_MAX: usize = 32;
const LIGHT_FILTERS_MAX: usize = 64;

impl QueryRequest {
    /// How `call` wants gaps shown: by its parameter `gaps`, or else by its path.
    ///
    /// # Errors
    /// 400 for an unknown word.
    pub fn requested_gaps(&self, call: &Call) -> Result<Gaps, OpenTsdbError> {
        match call.params.get("gaps") {
            Some("fill") => Ok(Gaps::AsFilled),
            Some("null") => Ok(Gaps::Null),
            Some("none") => Ok(Gaps::LeftOut),
            Some(other) => Err(OpenTsdbError::bad_request(format!("gaps '{other}' does not exist"))
                .details("there are fill, as the fill policy says, null, and none, for a point less")),
            None if !call.of_grafana => Ok(Gaps::AsFilled),
            None if self.by_browser => Ok(Gaps::Null),
            None => Ok(Gaps::LeftOut),
        }
    }

    /// Whether it takes no more than some microseconds to find out which series it is about.
    pub fn is_light(&self) -> bool {
        let filters = || self.subs.iter().flat_map(|sub| &sub.filters);
        self.subs.len() <= LIGHT_SUBS_MAX
            && self.subs.iter().all(|sub| sub.tsuids.is_empty())
            && filters().count() <= LIGHT_FILTERS_MAX
            && filters().all(|filter| filter.kind != "regexp")
    }
}

/// One sub-query as asked. What is missing, null or empty is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sub {
    pub aggregator: Option<String>,
    pub metric: Option<String>,
    pub tsuids: Vec<String>,
    pub downsample: Option<String>,
    pub rate: bool,
    pub rate_options: Option<RateOptions>,
    pub filters: Vec<Filter>,
    pub explicit_tags: bool,
    /// Asks for histograms: their percentiles, or `Some` of none for their buckets.
    pub histogram: Option<Vec<f32>>,
    /// Asks for what was aggregated when it was written.
    pub pre_aggregate: bool,
    /// The JSON object in which it came, without an `index` of its own, where a view shows that.
    pub sent: Option<String>,
}

impl Sub {
    pub fn but_filters(&self) -> impl PartialEq + '_ {
        let (metric, aggregator, downsample) = (&self.metric, &self.aggregator, &self.downsample);
        let kinds = (self.explicit_tags, self.pre_aggregate, &self.histogram);
        (metric, aggregator, &self.tsuids, downsample, self.rate, self.rate_options, kinds)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateOptions {
    pub counter: bool,
    pub counter_max: i64,
    pub reset_value: i64,
    pub drop_resets: bool,
}

impl Default for RateOptions {
    fn default() -> Self {
        Self { counter: false, counter_max: i64::MAX, reset_value: 0, drop_resets: false }
    }
}
