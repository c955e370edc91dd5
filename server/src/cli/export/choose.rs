//! Selects the metrics to export, and suggests similar ones if none matches.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use telem_query::catalog::edits;

use crate::cli::glob::Glob;
use crate::info::counted;

/// Names that an error shows.
const SHOWN: usize = 5;
/// Comparing with every metric of a big database is for errors only, but even an error is bounded.
const COMPARED_MAX: usize = 10_000;

/// A metric of the source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportMetric {
    pub name: String,
    /// The tag keys of all its series.
    pub keys: BTreeSet<String>,
    pub series: u64,
}

/// The metrics that some glob matches (all, where there is no glob) and none of `excluded`, and the globs of both that
/// match none.
///
/// # Errors
/// A sentence for the user when nothing is chosen: it names metrics that may be meant.
pub fn choose<'a>(
    known: &'a [ExportMetric],
    globs: &'a [Glob],
    excluded: &'a [Glob],
) -> Result<(Vec<&'a ExportMetric>, Vec<&'a Glob>), String> {
    if known.is_empty() {
        return Err("there are no samples yet, so there is nothing to export".to_owned());
    }
    let any = |globs: &[Glob], metric: &ExportMetric| globs.iter().any(|glob| glob.matches(&metric.name));
    let mut chosen: Vec<&ExportMetric> = known.iter().filter(|metric| globs.is_empty() || any(globs, metric)).collect();
    let unmatched: Vec<&Glob> =
        globs.iter().chain(excluded).filter(|glob| !known.iter().any(|metric| glob.matches(&metric.name))).collect();
    if chosen.is_empty() {
        let wanted: Vec<String> = globs.iter().map(|glob| format!("'{glob}'")).collect();
        return Err(format!("no metric matches {}; {}", wanted.join(" or "), hint(known, globs)));
    }
    let found = chosen.len();
    chosen.retain(|metric| !any(excluded, metric));
    if chosen.is_empty() {
        return Err(format!("--exclude leaves none of {}", counted(found as u64, "metric")));
    }
    Ok((chosen, unmatched))
}

fn hint(known: &[ExportMetric], globs: &[Glob]) -> String {
    let mut near: Vec<(usize, &str)> = known
        .iter()
        .take(COMPARED_MAX)
        .filter_map(|metric| {
            let distance = globs.iter().filter_map(|glob| distance(glob, &metric.name)).min()?;
            Some((distance, &*metric.name))
        })
        .collect();
    near.sort_unstable();
    let names = |names: &mut dyn Iterator<Item = &str>| names.take(SHOWN).collect::<Vec<_>>().join(", ");
    if near.is_empty() {
        let some = names(&mut known.iter().map(|metric| &*metric.name));
        let count = known.len();
        return if count > SHOWN {
            format!("there are {count} metrics, such as {some}")
        } else {
            format!("there are: {some}")
        };
    }
    format!("close to it: {}. Names are case-sensitive", names(&mut near.into_iter().map(|(_, name)| name)))
}

/// How far a name is from what a glob asks for; `None` where it is too far to be meant.
fn distance(glob: &Glob, name: &str) -> Option<usize> {
    let name = name.to_lowercase();
    let pieces = glob.pieces();
    if pieces.iter().any(|piece| piece.chars().count() >= 3 && name.contains(&**piece)) {
        return Some(0);
    }
    let edits = edits(&pieces.concat(), &name);
    (edits * 3 <= name.chars().count()).then_some(edits)
}
