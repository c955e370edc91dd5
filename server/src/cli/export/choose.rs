//! Selects the metrics to export, and suggests similar ones if none matches.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use telem_query::catalog::edits;

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

/// A name in which `*` stands for any text and `?` for one character. Case counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob(String);

impl FromStr for Glob {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Glob {
    pub fn matches(&self, name: &str) -> bool {
        let (mut pattern, mut rest) = (self.0.chars(), name.chars());
        // Where to go on when what follows the last star does not fit: that star takes one character more.
        let mut retry = None;
        loop {
            match (pattern.clone().next(), rest.clone().next()) {
                (None, None) => return true,
                (Some('*'), _) => {
                    pattern.next();
                    retry = Some((pattern.clone(), rest.clone()));
                }
                (Some(wanted), Some(found)) if wanted == '?' || wanted == found => {
                    pattern.next();
                    rest.next();
                }
                _ => {
                    let Some((after_star, from)) = &mut retry else { return false };
                    if from.next().is_none() {
                        return false;
                    }
                    (pattern, rest) = (after_star.clone(), from.clone());
                }
            }
        }
    }

    /// The texts between its wildcards, in lower case.
    fn pieces(&self) -> Vec<String> {
        let pieces = self.0.split(['*', '?']).filter(|piece| !piece.is_empty());
        pieces.map(str::to_lowercase).collect()
    }
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
        return Err(format!("--exclude leaves none of {found} metrics"));
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
