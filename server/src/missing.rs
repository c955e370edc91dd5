//! The nodes that an answer lacks, as every protocol tells them: a header.

#[cfg(test)]
mod tests;

use axum::http::HeaderValue;
use telem_query::MissingNode;

/// Names the nodes that did not answer: `node=reason, ...`.
pub const NAME: &str = "x-telem-missing";
/// Longer lists are cut.
const BYTES_MAX: usize = 4 << 10;

/// `None` of nobody. Header values are visible ASCII; `,` and `=` are ours.
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
