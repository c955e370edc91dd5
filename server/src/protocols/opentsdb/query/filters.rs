//! Tag filters: their kinds, and the two ways to write one.

use telem_query::expression::{Case, Expression};
use telem_query::tsq::{Matcher, TagFilter};

/// Most values in one filter.
pub(crate) const VALUES_MAX: usize = 10_000;

/// A kind of filter, as `/api/config/filters` tells of it.
#[derive(Debug)]
pub struct FilterKind {
    pub name: &'static str,
    pub examples: &'static str,
    pub description: &'static str,
}

pub const KINDS: [FilterKind; 7] = [
    FilterKind {
        name: "literal_or",
        examples: "host=literal_or(web01|web02)  {\"type\":\"literal_or\",\"tagk\":\"host\",\"filter\":\"web01|web02\",\"groupBy\":false}",
        description: "One of these values, separated by |. Every value must exist.",
    },
    FilterKind {
        name: "iliteral_or",
        examples: "host=iliteral_or(web01|web02)  {\"type\":\"iliteral_or\",\"tagk\":\"host\",\"filter\":\"web01|web02\",\"groupBy\":false}",
        description: "One of these values, separated by |, in upper or lower case.",
    },
    FilterKind {
        name: "not_literal_or",
        examples: "host=not_literal_or(web01|web02)  {\"type\":\"not_literal_or\",\"tagk\":\"host\",\"filter\":\"web01|web02\",\"groupBy\":false}",
        description: "None of these values, separated by |. Series without the tag are left out.",
    },
    FilterKind {
        name: "not_iliteral_or",
        examples: "host=not_iliteral_or(web01|web02)  {\"type\":\"not_iliteral_or\",\"tagk\":\"host\",\"filter\":\"web01|web02\",\"groupBy\":false}",
        description: "None of these values, separated by |, in upper or lower case. Series without the tag are left out.",
    },
    FilterKind {
        name: "wildcard",
        examples: "host=wildcard(web*)  {\"type\":\"wildcard\",\"tagk\":\"host\",\"filter\":\"web*.example.com\",\"groupBy\":false}",
        description: "Values like this one, where * stands for anything; * alone is any value.",
    },
    FilterKind {
        name: "iwildcard",
        examples: "host=iwildcard(web*)  {\"type\":\"iwildcard\",\"tagk\":\"host\",\"filter\":\"web*.example.com\",\"groupBy\":false}",
        description: "Values like this one, in upper or lower case, where * stands for anything; * alone is any value.",
    },
    FilterKind {
        name: "regexp",
        examples: "host=regexp(web[0-9]+)  {\"type\":\"regexp\",\"tagk\":\"host\",\"filter\":\"web[0-9]+\",\"groupBy\":false}",
        description: "Values in which this regular expression is found; anchor it with ^ and $ to match the whole value.",
    },
];

/// Reads a filter from its kind, its tag and its text, or says what is wrong with it.
pub type FilterReader = fn(&str, &str, &str) -> Result<Filter, String>;

/// What a filter is for, besides choosing series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterRole {
    /// Series that differ in its tag fall into different groups.
    Groups,
    Selects,
}

impl FilterRole {
    pub fn of(group_by: bool) -> Self {
        if group_by { Self::Groups } else { Self::Selects }
    }
}

/// One filter as asked, already checked.
#[derive(Clone, Debug)]
pub struct Filter {
    pub kind: &'static str,
    /// What `showQuery` tells of its kind.
    pub shown_kind: &'static str,
    pub key: String,
    pub text: String,
    pub group_by: bool,
    matcher: Matcher,
}

/// The matcher follows from kind and text.
impl PartialEq for Filter {
    fn eq(&self, other: &Self) -> bool {
        self.same_but_grouping(other) && self.group_by == other.group_by
    }
}

impl Filter {
    /// A filter of a kind by its name, which does not group.
    ///
    /// # Errors
    /// Says what is missing or malformed.
    pub fn of_kind(kind: &str, key: &str, text: &str) -> Result<Filter, String> {
        if kind.is_empty() {
            return Err("a filter has no type".to_owned());
        }
        if key.is_empty() {
            return Err("a filter has no tagk".to_owned());
        }
        if text.is_empty() {
            return Err(format!("the filter on '{key}' has no filter text"));
        }
        let kind = KINDS.iter().find(|known| known.name == kind).ok_or_else(|| {
            let names: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
            format!("the filter on '{key}' is of type '{kind}', expected one of {}", names.join(", "))
        })?;
        let matcher = matcher(kind.name, key, text)?;
        Ok(Filter {
            kind: kind.name,
            shown_kind: kind.name,
            key: key.to_owned(),
            text: text.to_owned(),
            group_by: false,
            matcher,
        })
    }

    /// A filter as a tag's value: `type(text)`, `*`, a text with `*`, or values with `|` between them. `read` reads what
    /// names its type.
    ///
    /// # Errors
    /// Says what is missing or malformed.
    pub fn from_tag(key: &str, value: &str, read: FilterReader) -> Result<Filter, String> {
        if let Some((kind, text)) = value.split_once('(') {
            let text = text
                .strip_suffix(')')
                .ok_or_else(|| format!("the filter '{value}' on '{key}' does not end with a parenthesis"))?;
            return read(&kind.to_lowercase(), key, text);
        }
        match value.contains('*') {
            // Letters of either case match, which OpenTSDB does not tell.
            true => Ok(Filter { shown_kind: "wildcard", ..Filter::of_kind("iwildcard", key, value)? }),
            false => Filter::of_kind("literal_or", key, value),
        }
    }

    /// The same filter, with this role.
    pub fn with_role(self, role: FilterRole) -> Filter {
        Filter { group_by: role == FilterRole::Groups, ..self }
    }

    pub fn to_tag_filter(&self) -> TagFilter {
        TagFilter { key: self.key.clone(), matcher: self.matcher.clone(), group_by: self.group_by }
    }

    /// The values of a `literal_or`; none of any other kind.
    pub fn literals(&self) -> &[String] {
        if let Matcher::LiteralOr(values) = &self.matcher { values } else { &[] }
    }

    /// Whether both select the same series, whatever they group.
    pub fn same_but_grouping(&self, other: &Filter) -> bool {
        (self.kind, &self.key, &self.text) == (other.kind, &other.key, &other.text)
    }

    /// The literal values of both, if both are literals of one key.
    fn union(&self, other: &Filter) -> Option<Result<Filter, String>> {
        let literals = self.kind == "literal_or" && other.kind == "literal_or" && self.key == other.key;
        if !literals || self.group_by != other.group_by {
            return None;
        }
        let both = Filter::of_kind(self.kind, &self.key, &format!("{}|{}", self.text, other.text));
        Some(both.map(|both| Filter { group_by: self.group_by, ..both }))
    }
}

/// Adds a filter that was written as a tag. If it exists already, this only makes it group, and of literal values of
/// one key any may match: several values of one tag are a choice.
///
/// # Errors
/// Says so when the choice holds too many values.
pub fn add(filters: &mut Vec<Filter>, filter: Filter) -> Result<(), String> {
    if let Some(known) = filters.iter_mut().find(|known| known.same_but_grouping(&filter)) {
        known.group_by |= filter.group_by;
        return Ok(());
    }
    for known in filters.iter_mut() {
        if let Some(both) = known.union(&filter) {
            *known = both?;
            return Ok(());
        }
    }
    filters.push(filter);
    Ok(())
}

/// What OpenTSDB makes of filters that share a key, which is not what they say. Keys are looked at in the order in
/// which they were first seen (`place`). Of the first key literal values are one choice, whichever filters they stand
/// in. Of any other key the literal values of a filter that another follows are forgotten.
pub fn as_opentsdb(filters: &[Filter], place: impl Fn(&str) -> Option<u32>) -> Vec<TagFilter> {
    let mut sorted: Vec<&Filter> = filters.iter().collect();
    sorted.sort_by_key(|filter| place(&filter.key));
    let mut meant = Vec::new();
    for (at, same_key) in sorted.chunk_by(|a, b| a.key == b.key).enumerate() {
        let group_by = same_key.iter().any(|filter| filter.group_by);
        let choice: Vec<String> = match at {
            0 => same_key.iter().flat_map(|filter| filter.literals()).cloned().collect(),
            _ => same_key.last().map_or(&[][..], |last| last.literals()).to_vec(),
        };
        let kept = same_key.iter().filter(|filter| filter.literals().is_empty()).map(|filter| filter.matcher.clone());
        let choice = (!choice.is_empty()).then_some(Matcher::LiteralOr(choice));
        let key = &same_key[0].key;
        meant.extend(choice.into_iter().chain(kept).map(|matcher| TagFilter { key: key.clone(), matcher, group_by }));
    }
    meant
}

fn matcher(kind: &str, key: &str, text: &str) -> Result<Matcher, String> {
    let values = || -> Result<Vec<String>, String> {
        let values = text.trim_end_matches('|');
        if values.is_empty() {
            return Err(format!("the filter '{text}' on '{key}' holds no value"));
        }
        // Every value of the tag is held against each of these.
        if values.split('|').count() > VALUES_MAX {
            return Err(format!("a filter on '{key}' holds more than {VALUES_MAX} values"));
        }
        Ok(values.split('|').map(str::to_owned).collect())
    };
    let pattern = || {
        let found = text.contains('*').then(|| text.to_owned());
        found.ok_or_else(|| format!("the filter '{text}' on '{key}' has no *, expected one in a wildcard"))
    };
    match kind {
        "literal_or" => Ok(Matcher::LiteralOr(values()?)),
        "iliteral_or" => Ok(Matcher::ILiteralOr(values()?)),
        "not_literal_or" => Ok(Matcher::NotLiteralOr(values()?)),
        "not_iliteral_or" => Ok(Matcher::NotILiteralOr(values()?)),
        "wildcard" => Ok(Matcher::Wildcard(pattern()?)),
        "iwildcard" => Ok(Matcher::IWildcard(pattern()?)),
        _ => {
            let expression = Expression::new(text, Case::Matters);
            expression.map(Matcher::Regexp).map_err(|error| format!("the filter '{text}' on '{key}': {error}"))
        }
    }
}
