//! The series that a query reads, and the group of each of them.
//!
//! The head and the owners of the series must agree on groups, so both call [`group_key`].

use std::sync::Arc;

use telem_engine::{NameKind, SeriesGroups, SeriesId, SeriesIndex, SeriesKey, Snapshot, TagPredicate};

use crate::error::{Error, Result};
use crate::question::tags::{SEPARATOR, encode_tags};
use crate::question::tsq::{Matcher, TagFilter};
use crate::question::{Aggregator, TsQuery};

/// Checks that some node knows the metric, the tag keys and the literal tag values of a query.
///
/// # Errors
/// UnknownName, for the first that no series of the database carries.
pub(crate) fn check_names(query: &TsQuery, index: &SeriesIndex) -> Result<()> {
    let check = |kind, name: &str| match index.knows(kind, name) {
        true => Ok(()),
        false => Err(Error::UnknownName { kind, name: name.to_owned() }),
    };
    check(NameKind::Metric, &query.metric)?;
    for filter in query.filters.iter().filter(|filter| filter.matcher.needs_tag()) {
        check(NameKind::TagKey, &filter.key)?;
        if let Matcher::LiteralOr(values) = &filter.matcher {
            values.iter().try_for_each(|value| check(NameKind::TagValue, value))?;
        }
    }
    Ok(())
}

/// The series of a node that `query` asks for, in canonical order.
pub(crate) fn select(query: &TsQuery, snapshot: &Snapshot) -> Vec<SeriesId> {
    select_by(query, snapshot.index(), |predicates| snapshot.select(&query.metric, predicates))
}

/// The series of all nodes that `query` asks for, in canonical order.
pub(crate) fn select_named(query: &TsQuery, index: &SeriesIndex) -> Vec<SeriesId> {
    select_by(query, index, |predicates| index.select(&query.metric, predicates))
}

/// How many series [`select_named`] finds at the most, told without a look at any of them.
pub(crate) fn select_bound(query: &TsQuery, index: &SeriesIndex) -> usize {
    with_predicates(query, |predicates| index.select_bound(&query.metric, predicates))
}

fn select_by(
    query: &TsQuery,
    index: &SeriesIndex,
    of_metric: impl FnOnce(&[TagPredicate<'_>]) -> Vec<SeriesId>,
) -> Vec<SeriesId> {
    let mut selected = with_predicates(query, of_metric);
    if query.explicit_tags && !query.filters.is_empty() {
        let keys = sorted_keys(query.filters.iter());
        // The key of every filter that needs one is there, so that only others are looked for.
        let explicit = |key: SeriesKey| key.tags().iter().all(|(tag, _)| keys.binary_search(&tag).is_ok());
        selected.retain(|id| index.key(*id).is_some_and(explicit));
    }
    if let Some(series) = &query.series {
        let wanted: Vec<SeriesId> = series.iter().filter_map(|key| index.id(key)).collect();
        selected.retain(|id| wanted.contains(id));
    }
    selected
}

/// Asks with what the filters of `query` that need their tag demand.
fn with_predicates<T>(query: &TsQuery, ask: impl FnOnce(&[TagPredicate<'_>]) -> T) -> T {
    let choosing = || query.filters.iter().filter(|filter| filter.matcher.needs_tag());
    let tests: Vec<_> = choosing().map(|filter| |value: &str| filter.matcher.accepts(value)).collect();
    let predicates: Vec<TagPredicate<'_>> =
        choosing().zip(&tests).map(|(filter, accepts)| predicate(filter, accepts)).collect();
    ask(&predicates)
}

fn predicate<'a>(filter: &'a TagFilter, accepts: &'a dyn Fn(&str) -> bool) -> TagPredicate<'a> {
    let among = match &filter.matcher {
        Matcher::LiteralOr(values) => Some(values.as_slice()),
        _ => None,
    };
    TagPredicate { key: &filter.key, accepts, among }
}

/// Names the group that a series falls into.
pub(crate) fn group_key(query: &TsQuery, series: &SeriesKey) -> String {
    if query.aggregator == Aggregator::None {
        return encode_tags(series.tags());
    }
    let keys = group_keys(query);
    // No value is empty, so that a tag that is not there differs from all that are.
    let values: Vec<&str> = keys.iter().map(|key| series.tags().get(key).unwrap_or_default()).collect();
    values.join(&SEPARATOR.to_string())
}

/// The groups of some series.
pub(crate) struct GroupsOfSeries {
    /// Of each series the place of its group.
    pub of_series: Vec<u32>,
    /// As [`group_key`] names them, in the order in which series are the first of their group.
    pub names: Vec<String>,
}

/// As [`group_key`] for each of `series`, by the numbers of its tags.
///
/// # Errors
/// NotFound, for a series that the index does not know.
pub(crate) fn group(query: &TsQuery, index: &SeriesIndex, series: &[SeriesId]) -> telem_engine::Result<GroupsOfSeries> {
    if query.aggregator == Aggregator::None {
        let name = |id: &SeriesId| {
            let key = index.key(*id).ok_or(telem_engine::Error::UnknownSeries { id: id.0 })?;
            Ok(encode_tags(key.tags()))
        };
        let of_series = (0..u32::try_from(series.len()).unwrap_or(u32::MAX)).collect();
        return Ok(GroupsOfSeries { of_series, names: series.iter().map(name).collect::<telem_engine::Result<_>>()? });
    }
    let SeriesGroups { of_series, values } = index.group(series, &group_keys(query))?;
    let name = |values: &Vec<Option<Arc<str>>>| {
        let values: Vec<&str> = values.iter().map(|value| value.as_deref().unwrap_or_default()).collect();
        values.join(&SEPARATOR.to_string())
    };
    Ok(GroupsOfSeries { of_series, names: values.iter().map(name).collect() })
}

/// The tags that make groups, in the order in which [`group_key`] has their values.
pub(crate) fn group_keys(query: &TsQuery) -> Vec<&str> {
    sorted_keys(query.filters.iter().filter(|filter| filter.group_by))
}

fn sorted_keys<'a>(filters: impl Iterator<Item = &'a TagFilter>) -> Vec<&'a str> {
    let mut keys: Vec<&str> = filters.map(|filter| filter.key.as_str()).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

impl Matcher {
    /// Whether a series without the tag is left out.
    pub fn needs_tag(&self) -> bool {
        !matches!(self, Matcher::AnyOrNone)
    }

    /// Whether the values that pass are known without a look at each that there is.
    pub(crate) fn is_by_name(&self) -> bool {
        match self {
            Matcher::LiteralOr(_) | Matcher::AnyOrNone => true,
            // All of them.
            Matcher::Wildcard(pattern) | Matcher::IWildcard(pattern) => {
                !pattern.is_empty() && pattern.bytes().all(|byte| byte == b'*')
            }
            _ => false,
        }
    }

    /// Whether a series with this value of the tag passes.
    pub fn accepts(&self, value: &str) -> bool {
        let among = |values: &[String]| values.iter().any(|one| one == value);
        let among_ignoring_case = |values: &[String]| {
            let value = value.to_lowercase();
            values.iter().any(|one| one.to_lowercase() == value)
        };
        match self {
            Matcher::LiteralOr(values) => among(values),
            Matcher::NotLiteralOr(values) => !among(values),
            Matcher::ILiteralOr(values) => among_ignoring_case(values),
            Matcher::NotILiteralOr(values) => !among_ignoring_case(values),
            Matcher::Wildcard(pattern) => glob(pattern, value),
            Matcher::IWildcard(pattern) => glob(&pattern.to_lowercase(), &value.to_lowercase()),
            Matcher::Regexp(expression) => expression.is_in(value),
            Matcher::AnyOrNone => true,
        }
    }
}

/// OpenTSDB's globs, looser than a shell's: an end is anchored only when the other end has a `*`
/// and it has none; each part between the `*` must occur somewhere after as many characters
/// as all parts before it have, not after the place where they were found.
fn glob(pattern: &str, value: &str) -> bool {
    let parts = pattern.trim_matches('*');
    if parts.is_empty() {
        return pattern.contains('*') || value.is_empty();
    }
    let (open_start, open_end) = (pattern.starts_with('*'), pattern.ends_with('*'));
    let parts: Vec<&str> = parts.split('*').collect();
    if open_start && !open_end && !value.ends_with(parts[parts.len() - 1]) {
        return false;
    }
    if open_end && !open_start && !value.starts_with(parts[0]) {
        return false;
    }
    let mut skipped = 0;
    parts.iter().all(|part| {
        let rest = value.char_indices().nth(skipped).map_or("", |(at, _)| &value[at..]);
        skipped += part.chars().count();
        rest.contains(part)
    })
}

#[cfg(test)]
mod tests;
