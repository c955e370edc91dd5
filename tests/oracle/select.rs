//! Which series take part, and how they form groups.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;

use super::{Aggregator, Question, Refusal, Series};

/// A condition on one tag. A series without the tag never passes, whatever the condition says.
#[derive(Clone, Debug)]
pub struct Filter {
    pub key: String,
    pub matching: Matching,
    pub group_by: bool,
}

#[derive(Clone, Debug)]
pub enum Matching {
    LiteralOr(Vec<String>),
    ILiteralOr(Vec<String>),
    NotLiteralOr(Vec<String>),
    NotILiteralOr(Vec<String>),
    Wildcard(String),
    IWildcard(String),
    Regexp(Regex),
}

impl Matching {
    pub fn accepts(&self, value: &str) -> bool {
        let listed = |names: &[String]| names.iter().any(|name| name == value);
        let listed_ignoring_case =
            |names: &[String]| names.iter().any(|name| name.to_lowercase() == value.to_lowercase());
        match self {
            Matching::LiteralOr(names) => listed(names),
            Matching::ILiteralOr(names) => listed_ignoring_case(names),
            Matching::NotLiteralOr(names) => !listed(names),
            Matching::NotILiteralOr(names) => !listed_ignoring_case(names),
            Matching::Wildcard(glob) => glob_accepts(glob, value),
            Matching::IWildcard(glob) => glob_accepts(&glob.to_lowercase(), &value.to_lowercase()),
            Matching::Regexp(expression) => expression.is_match(value),
        }
    }
}

/// Looser than a glob, as the original is: a part is looked for from the summed length of the parts before
/// it, not from where they were found, and an end is anchored only when exactly one end has a star.
fn glob_accepts(glob: &str, value: &str) -> bool {
    let inner = glob.trim_matches('*');
    if inner.is_empty() {
        return true;
    }
    let parts: Vec<&str> = inner.split('*').collect();
    let (leading, trailing) = (glob.starts_with('*'), glob.ends_with('*'));
    if leading && !trailing && !value.ends_with(parts[parts.len() - 1]) {
        return false;
    }
    if trailing && !leading && !value.starts_with(parts[0]) {
        return false;
    }
    let value: Vec<char> = value.chars().collect();
    let mut from = 0;
    for part in parts {
        let part: Vec<char> = part.chars().collect();
        let found = part.is_empty()
            || (from < value.len() && value[from..].windows(part.len()).any(|window| window == part.as_slice()));
        if !found {
            return false;
        }
        from += part.len();
    }
    true
}

/// The metric, every filtered key and every literal value must be carried by some series of some metric.
pub fn refuse_unknown_names(all: &[Series], question: &Question) -> Result<(), Refusal> {
    if !all.iter().any(|series| series.metric == question.metric) {
        return Err(Refusal::UnknownName { kind: "metrics", name: question.metric.clone() });
    }
    for filter in &question.filters {
        if !all.iter().any(|series| series.tags.contains_key(&filter.key)) {
            return Err(Refusal::UnknownName { kind: "tagk", name: filter.key.clone() });
        }
        if let Matching::LiteralOr(names) = &filter.matching {
            for name in names {
                if !all.iter().any(|series| series.tags.values().any(|value| value == name)) {
                    return Err(Refusal::UnknownName { kind: "tagv", name: name.clone() });
                }
            }
        }
    }
    Ok(())
}

/// The groups in canonical order; in each, the series that have a point in `from..to`, in canonical order.
pub fn groups<'a>(all: &'a [Series], question: &Question, from: i64, to: i64) -> Vec<Vec<&'a Series>> {
    let mut chosen: Vec<&Series> = Vec::new();
    for series in all {
        let mut passes = series.metric == question.metric && series.points.range(from..to).next().is_some();
        for filter in &question.filters {
            passes &= series.tags.get(&filter.key).is_some_and(|value| filter.matching.accepts(value));
        }
        if question.explicit_tags && !question.filters.is_empty() {
            let asked: BTreeSet<&String> = question.filters.iter().map(|filter| &filter.key).collect();
            passes &= series.tags.keys().collect::<BTreeSet<_>>() == asked;
        }
        passes &= question.only.as_ref().is_none_or(|only| only.contains(&series.tags));
        if passes {
            chosen.push(series);
        }
    }
    chosen.sort_by_key(|series| series.tags.iter().collect::<Vec<_>>());
    if question.aggregator == Aggregator::None {
        return chosen.into_iter().map(|series| vec![series]).collect();
    }
    let keys: BTreeSet<&String> =
        question.filters.iter().filter(|filter| filter.group_by).map(|filter| &filter.key).collect();
    let mut groups: BTreeMap<Vec<&String>, Vec<&Series>> = BTreeMap::new();
    for series in chosen {
        groups.entry(keys.iter().map(|key| &series.tags[*key]).collect()).or_default().push(series);
    }
    groups.into_values().collect()
}

/// The tags on which all series that carry the key agree, and the keys on which they differ.
pub fn common_tags(members: &[&Series]) -> (BTreeMap<String, String>, Vec<String>) {
    let mut values: BTreeMap<&String, BTreeSet<&String>> = BTreeMap::new();
    for member in members {
        for (key, value) in &member.tags {
            values.entry(key).or_default().insert(value);
        }
    }
    let mut tags = BTreeMap::new();
    let mut aggregate_tags = Vec::new();
    for (key, values) in values {
        match values.into_iter().collect::<Vec<_>>()[..] {
            [only] => {
                tags.insert(key.clone(), only.clone());
            }
            _ => aggregate_tags.push(key.clone()),
        }
    }
    (tags, aggregate_tags)
}
