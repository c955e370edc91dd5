//! Which series of several sub-queries belong together: those with equal tags.

use std::collections::{BTreeMap, BTreeSet};

use telem_engine::TagSet;
use telem_query::TsGroup;
use telem_query::tsq::Fidelity;

/// What becomes of series that only some sub-queries have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JoinKind {
    /// They are filled.
    #[default]
    Union,
    /// They are left out.
    Intersection,
}

/// What makes two series equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct By {
    /// Only the tags that the sub-queries filter count.
    pub query_tags: bool,
    /// The keys of aggregated tags count too.
    pub aggregate_tags: bool,
}

/// The answer of one sub-query.
#[derive(Clone, Debug)]
pub struct JoinSide<'a> {
    pub groups: Vec<&'a TsGroup>,
    /// The tag keys that it filters.
    pub query_keys: BTreeSet<&'a str>,
}

/// Series that belong together: one of each side, or none.
#[derive(Clone, Debug)]
pub struct Row<'a> {
    pub members: Vec<Option<&'a TsGroup>>,
}

impl Row<'_> {
    /// Those of the first side that has a series here. OpenTSDB: those of the first side, if it has one.
    pub fn tags(&self, fidelity: Fidelity) -> TagSet {
        let sides = match fidelity {
            Fidelity::Sensible => self.members.len(),
            Fidelity::OpenTsdb => 1,
        };
        self.members.iter().take(sides).flatten().next().map(|group| group.tags.clone()).unwrap_or_default()
    }

    /// Of all sides, sorted.
    pub fn aggregate_tags(&self) -> Vec<String> {
        let keys: BTreeSet<&String> = self.members.iter().flatten().flat_map(|group| &group.aggregate_tags).collect();
        keys.into_iter().cloned().collect()
    }
}

/// The rows of `sides` in the order of their tags.
///
/// # Errors
/// When there are series, and an intersection leaves none.
pub fn rows<'a>(sides: &[JoinSide<'a>], operator: JoinKind, by: By) -> Result<Vec<Row<'a>>, String> {
    let mut rows: BTreeMap<Vec<&'a str>, Vec<Option<&'a TsGroup>>> = BTreeMap::new();
    for (at, side) in sides.iter().enumerate() {
        for group in &side.groups {
            rows.entry(identity(group, side, by)).or_insert_with(|| vec![None; sides.len()])[at] = Some(group);
        }
    }
    let any = !rows.is_empty();
    if operator == JoinKind::Intersection {
        rows.retain(|_, members| members.iter().all(Option::is_some));
        if any && rows.is_empty() {
            return Err("No intersections found: no series of one query has the tags of one of each other".to_owned());
        }
    }
    Ok(rows.into_values().map(|members| Row { members }).collect())
}

fn identity<'a>(group: &'a TsGroup, side: &JoinSide<'_>, by: By) -> Vec<&'a str> {
    // As in the original, where what has no tags of its own is all one.
    if group.tags.is_empty() {
        return Vec::new();
    }
    let counts = |key: &str| !by.query_tags || side.query_keys.contains(key);
    let tags = group.tags.iter().filter(|(key, _)| counts(key)).flat_map(|(key, value)| [key, value]);
    let aggregated = group.aggregate_tags.iter().filter(|_| by.aggregate_tags).map(String::as_str);
    tags.chain(aggregated).collect()
}
