//! The parameters of a URI, or of a form in a body.

/// The parameters of a URI, decoded, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params(Vec<(String, String)>);

impl Params {
    /// A `+` is a blank. Malformed encodings stay; bytes that are not UTF-8 become U+FFFD.
    pub fn parse(query: &str) -> Params {
        Params(url::form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    /// The same, where the first value of a name counts instead of the last one.
    #[must_use]
    pub fn with_first(mut self) -> Self {
        self.0.reverse();
        self
    }

    /// The last value of `name`; empty for a name without a value.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().rfind(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| &**value)
    }

    /// Whether `name` is present, with any value: `summary` is as good as `summary=true`.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
}
