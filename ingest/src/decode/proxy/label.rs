//! Full names as Metric Proxy's clients write them, `base{key="value",…}`, by the grammar of Prometheus' text format.

use std::borrow::Cow;

/// A full name, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FullName<'a> {
    pub base: &'a str,
    /// In the order in which they were written.
    pub labels: Vec<(&'a str, Cow<'a, str>)>,
}

impl<'a> FullName<'a> {
    /// A text that does not follow the grammar is a base as it stands.
    pub fn new(text: &'a str) -> Self {
        Self::parse(text).unwrap_or(Self { base: text, labels: Vec::new() })
    }

    fn parse(text: &'a str) -> Option<Self> {
        let Some(open) = text.find('{') else { return Some(Self { base: text, labels: Vec::new() }) };
        let base = &text[..open];
        let mut rest = text[open + 1..].trim_start();
        let mut labels: Vec<(&str, Cow<'_, str>)> = Vec::new();
        while !rest.starts_with('}') {
            let (key, behind) = rest.split_once('=')?;
            let key = key.trim();
            let is_known = labels.iter().any(|(known, _)| *known == key);
            if key.is_empty()
                || is_known
                || !key.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | ':' | '-'))
            {
                return None;
            }
            let (value, behind) = quoted(behind.trim_start())?;
            if value.is_empty() {
                return None;
            }
            labels.push((key, value));
            rest = behind.trim_start();
            match rest.strip_prefix(',') {
                Some(more) => rest = more.trim_start(),
                None if rest.starts_with('}') => {}
                None => return None,
            }
        }
        (rest == "}" && !base.is_empty()).then_some(Self { base, labels })
    }

    /// The full name of these in the plainest spelling.
    pub fn written<K: AsRef<str>, V: AsRef<str>>(base: &str, labels: impl IntoIterator<Item = (K, V)>) -> String {
        let mut text = base.to_owned();
        let mut separator = '{';
        for (key, value) in labels {
            text.push(separator);
            text.push_str(key.as_ref());
            text.push_str("=\"");
            escape(value.as_ref(), &mut text);
            text.push('"');
            separator = ',';
        }
        if separator == ',' {
            text.push('}');
        }
        text
    }
}

/// What stands before the first brace: counters of one group have it in common.
pub fn group_of(name: &str) -> &str {
    name.split_once('{').map_or(name, |(base, _)| base)
}

/// Writes the value of a label as the text format escapes it.
pub fn escape(value: &str, to: &mut String) {
    for c in value.chars() {
        match c {
            '\\' => to.push_str("\\\\"),
            '"' => to.push_str("\\\""),
            '\n' => to.push_str("\\n"),
            other => to.push(other),
        }
    }
}

/// The text between two quotes, unescaped, and what comes behind it.
fn quoted(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let text = text.strip_prefix('"')?;
    let mut owned: Option<String> = None;
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => {
                let value = owned.map_or(Cow::Borrowed(&text[..at]), Cow::Owned);
                return Some((value, &text[at + 1..]));
            }
            '\\' => {
                let value = owned.get_or_insert_with(|| text[..at].to_owned());
                match chars.next()?.1 {
                    'n' => value.push('\n'),
                    c @ ('"' | '\\') => value.push(c),
                    other => {
                        value.push('\\');
                        value.push(other);
                    }
                }
            }
            other => {
                if let Some(value) = &mut owned {
                    value.push(other);
                }
            }
        }
    }
    None
}
