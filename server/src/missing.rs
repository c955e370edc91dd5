//! The nodes that are missing from an answer, as every protocol reports them: a header.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use axum::http::HeaderValue;
use telem_query::MissingNode;

/// Names the nodes that did not answer: `node=reason, ...`.
pub const NAME: &str = "x-telem-missing";
/// Longer lists are cut.
const BYTES_MAX: usize = 4 << 10;

/// The nodes that are missing from several answers, each once and with the first reason that was reported.
#[derive(Debug, Default)]
pub struct Lacking {
    nodes: BTreeMap<String, String>,
    /// How many one answer left unnamed, at the most.
    unnamed: u64,
}

impl Lacking {
    /// Adds those of one answer, in the words of [`header`].
    pub fn add(&mut self, list: &str) {
        let mut last: Option<&str> = None;
        for part in list.split(", ") {
            let more = part.strip_prefix("and ").and_then(|part| part.strip_suffix(" more")?.parse::<u64>().ok());
            match (part.split_once('='), more) {
                (Some((node, reason)), _) => {
                    let is_new = !self.nodes.contains_key(node);
                    last = is_new.then_some(node);
                    if is_new {
                        self.nodes.insert(node.to_owned(), reason.to_owned());
                    }
                }
                (None, Some(more)) => self.unnamed = self.unnamed.max(more),
                // A reason with a comma in it, which only a database of this process tells.
                (None, None) => {
                    if let Some(reason) = last.and_then(|node| self.nodes.get_mut(node)) {
                        reason.push_str(", ");
                        reason.push_str(part);
                    }
                }
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

impl fmt::Display for Lacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named: Vec<String> = self.nodes.iter().map(|(node, reason)| format!("{node}={reason}")).collect();
        f.write_str(&named.join(", "))?;
        if self.unnamed > 0 { write!(f, ", and up to {} more", self.unnamed) } else { Ok(()) }
    }
}

/// `None` if no node is missing. Header values are visible ASCII; `,` and `=` are ours.
pub fn header(missing: &[MissingNode]) -> Option<HeaderValue> {
    let plain = |text: &str| -> String {
        text.chars().map(|c| if c.is_ascii_graphic() && c != ',' && c != '=' || c == ' ' { c } else { '?' }).collect()
    };
    let mut list = missing.iter().map(|MissingNode { node, reason }| format!("{}={}", plain(node), plain(reason)));
    let mut text = list.next()?;
    for (at, one) in list.enumerate() {
        if text.len() + one.len() > BYTES_MAX {
            text.push_str(&format!(", and {} more", missing.len() - at - 1));
            break;
        }
        text.push_str(", ");
        text.push_str(&one);
    }
    HeaderValue::from_str(&text).ok()
}
