//! Which calls of Metric Proxy's API are about the whole job: an agent hands these on to its head.

#[cfg(test)]
mod tests;

/// What becomes of a call that nobody answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyCall {
    /// It only asks: another answer does as well.
    Asks,
    /// It changes something, and might do so twice.
    Changes,
}

impl ProxyCall {
    /// That of a path; `None` where it is not one of them, such as a page.
    pub fn of(path: &str) -> Option<Self> {
        let mut segments = path.split('/').skip(1);
        let first = segments.next().unwrap_or_default();
        let second = segments.next().unwrap_or_default();
        match (first, second) {
            ("alarms", "add" | "del") => Some(Self::Changes),
            ("join", "list") => Some(Self::Asks),
            ("job" | "joblist" | "metrics" | "alarms" | "trace" | "profiles" | "percmd" | "get", _)
            | ("model" | "queue" | "topo", _) => Some(Self::Asks),
            ("push" | "set" | "accumulate" | "join" | "pivot" | "leave" | "remove" | "disconnect" | "period", _) => {
                Some(Self::Changes)
            }
            _ => None,
        }
    }
}
