//! Which lines a query has, as Dragon draws them: hosts and values of tags are never added up unasked.
//!
//! * `host` always makes lines, and so does every tag that is filtered, whatever `groupBy` says. A series without `host`
//!   takes part.
//! * A query that filters no tag but `host` has a line for each series.
//! * Of series that fall into one line all the same, the aggregator of the query makes one value; `sum`, which all panels
//!   of Dragon say and none means, is their mean.
//! * A `*` in a list of literal values stands for anything, as it does in a wildcard.
//!
//! Times are those of OpenTSDB, with two additions for whole seconds, which are all that Dragon knows: an `end` in
//! seconds includes that second, and where times are told in seconds, a bucket is a second or longer, so that no bucket
//! hides another.

use telem_engine::Step;
use telem_ingest::default_tags::HOST;
use telem_query::question::Aggregator;
use telem_query::tsq::{Fidelity, Interval, Matcher, TagFilter, TsQuery};

use crate::protocols::opentsdb::query::filters::Filter;
use crate::protocols::opentsdb::query::manner::Manner;
use crate::protocols::opentsdb::query::request::{LineOrder, QueryRequest};
use crate::protocols::opentsdb::query::resolve::{ResolvedQuery, SubQuerySource};

/// Longest number that is a time in seconds; longer ones are milliseconds.
const SECONDS_DIGITS_MAX: usize = 10;
const SECOND_MICROS: i64 = 1_000_000;

/// Dragon's manner.
pub(super) const MANNER: Manner = Manner {
    fidelity: Some(Fidelity::Sensible),
    filter,
    as_sent: true,
    nothing_is_an_answer: true,
    order: LineOrder::Hosts,
    times,
    lines,
};

/// A filter; in one of literal values a `*` stands for anything.
///
/// # Errors
/// Says what is missing or malformed.
fn filter(kind: &str, key: &str, text: &str) -> Result<Filter, String> {
    let wildcard = match kind {
        "literal_or" => "wildcard",
        "iliteral_or" => "iwildcard",
        "regexp" if ["*", ".*"].contains(&text) => return Filter::of_kind("wildcard", key, "*"),
        _ => return Filter::of_kind(kind, key, text),
    };
    let mut values = text.split('|').filter(|value| !value.is_empty());
    if values.clone().any(is_anything) {
        return Filter::of_kind("wildcard", key, "*");
    }
    match (values.next(), values.next()) {
        _ if !text.contains('*') => Filter::of_kind(kind, key, text),
        (Some(only), None) => Filter::of_kind(wildcard, key, only),
        _ => Filter::of_kind("regexp", key, &choice(text, kind == "iliteral_or")),
    }
}

fn is_anything(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte == b'*')
}

/// The expression for one of the values of `text`.
fn choice(text: &str, any_case: bool) -> String {
    let values: Vec<String> = text.split('|').filter(|value| !value.is_empty()).map(expression).collect();
    format!("{}^(?:{})$", if any_case { "(?i)" } else { "" }, values.join("|"))
}

/// The expression for a value in which `*` stands for anything.
fn expression(value: &str) -> String {
    let mut expression = String::with_capacity(value.len() + 8);
    for c in value.chars() {
        match c {
            '*' => expression.push_str(".*"),
            c if c.is_ascii_punctuation() => expression.extend(['\\', c]),
            c => expression.push(c),
        }
    }
    expression
}

/// Lets an `end` in seconds include that second.
fn times(asked: &mut QueryRequest) {
    if let Some(end) = &mut asked.end
        && end.len() <= SECONDS_DIGITS_MAX
        && end.bytes().all(|byte| byte.is_ascii_digit())
    {
        end.push_str("999ms");
    }
}

fn lines(asked: &QueryRequest, question: &mut [ResolvedQuery]) {
    let in_seconds = !asked.ms_resolution && !asked.arrays;
    for sub in question {
        let SubQuerySource::Query(query) = &mut sub.source else { continue };
        if query.series.is_none() {
            make_lines(query);
        }
        if in_seconds {
            lengthen_buckets(query);
        }
    }
}

fn make_lines(query: &mut TsQuery) {
    // Without filters it has no effect, and there is one from here on.
    query.explicit_tags &= !query.filters.is_empty();
    for filter in &mut query.filters {
        filter.group_by = true;
        let every = matches!(&filter.matcher, Matcher::Wildcard(text) | Matcher::IWildcard(text) if is_anything(text));
        if filter.key == HOST && every {
            filter.matcher = Matcher::AnyOrNone;
        }
    }
    if query.filters.iter().all(|filter| filter.key == HOST) {
        query.aggregator = Aggregator::None;
    } else if query.aggregator == Aggregator::Sum {
        query.aggregator = Aggregator::Avg;
    }
    if !query.filters.iter().any(|filter| filter.key == HOST) {
        query.filters.push(TagFilter { key: HOST.to_owned(), matcher: Matcher::AnyOrNone, group_by: true });
    }
}

fn lengthen_buckets(query: &mut TsQuery) {
    if let Some(downsample) = &mut query.downsample
        && let Interval::Fixed(step) = downsample.interval
        && step.micros() < SECOND_MICROS
        && let Some(second) = Step::from_micros(SECOND_MICROS)
    {
        downsample.interval = Interval::Fixed(second);
    }
}
