//! Names with stars, as a shell has them.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

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
    pub fn pieces(&self) -> Vec<String> {
        let pieces = self.0.split(['*', '?']).filter(|piece| !piece.is_empty());
        pieces.map(str::to_lowercase).collect()
    }
}
