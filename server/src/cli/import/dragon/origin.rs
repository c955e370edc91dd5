//! Which node a file of Dragon is of.
//!
//! Dragon calls it `ts_USER_HOST.db`, and a copy `ts_USER_HOST_DATE_TIME.db`; its documentation has `ts_HOST.db`. User
//! and host may have `_` in them. The host is then, in this order: one that rows have as their tag; what is behind the
//! longest user that is known from other files, a directory or the environment; the last part, for names of hosts
//! have no `_` by their standard.

use std::collections::BTreeSet;
use std::path::Path;

use super::{PREFIX, SUFFIX};

/// Digits of the date and of the time of a copy.
const DATE_DIGITS: usize = 8;
const TIME_DIGITS: usize = 6;

/// The parts of a file's name, without the time of its copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DragonName {
    parts: Vec<String>,
}

/// Users that may be the users of files.
#[derive(Clone, Debug, Default)]
pub struct KnownUsers(BTreeSet<String>);

impl DragonName {
    /// `None` for a name that Dragon gives no file.
    pub fn of(file: &str) -> Option<Self> {
        let bare = file.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
        let mut parts: Vec<String> = bare.split('_').map(str::to_owned).collect();
        let is_number = |part: &str, digits: usize| part.len() == digits && part.bytes().all(|b| b.is_ascii_digit());
        if let [_, .., date, time] = &*parts
            && is_number(date, DATE_DIGITS)
            && is_number(time, TIME_DIGITS)
        {
            parts.truncate(parts.len() - 2);
        }
        parts.iter().all(|part| !part.is_empty()).then_some(Self { parts })
    }

    /// Every user and host that the name may be made of, the longest user last.
    fn readings(&self) -> impl DoubleEndedIterator<Item = (String, String)> {
        (0..self.parts.len()).map(|at| (self.parts[..at].join("_"), self.parts[at..].join("_")))
    }

    /// The node, and how it is known. `hosts` are those that rows tell.
    pub fn node(&self, hosts: &[String], users: &KnownUsers) -> (String, String) {
        let last = || self.parts.last().cloned().unwrap_or_default();
        if self.parts.len() <= 2 && !hosts.contains(&self.parts.join("_")) {
            return (last(), "by its name".to_owned());
        }
        if let Some((_, host)) = self.readings().find(|(_, host)| hosts.contains(host)) {
            return (host, "by its name and the tag host of its rows".to_owned());
        }
        match self.readings().rev().find(|(user, _)| users.0.contains(user)) {
            Some((user, host)) => (host, format!("by its name, user {user}")),
            None => (last(), "by the last part of its name; else tell it with --node".to_owned()),
        }
    }

    /// The user of a name that can be read in one way.
    fn user(&self) -> Option<&str> {
        match &*self.parts {
            [user, _] => Some(user),
            _ => None,
        }
    }
}

impl KnownUsers {
    pub fn of<'a>(names: impl IntoIterator<Item = &'a DragonName>, paths: impl IntoIterator<Item = &'a Path>) -> Self {
        let mut users: BTreeSet<String> = names.into_iter().filter_map(DragonName::user).map(str::to_owned).collect();
        for path in paths {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
            let dirs = path.ancestors().skip(1).filter_map(Path::file_name);
            users.extend(dirs.map(|dir| dir.to_string_lossy().into_owned()));
        }
        users.extend(["USER", "LOGNAME"].into_iter().filter_map(|name| std::env::var(name).ok()));
        users.remove("");
        Self(users)
    }
}

/// What to call a run that is made of several files: what their names begin with.
pub fn run_name(names: &[Option<DragonName>]) -> Option<String> {
    let [Some(first), more @ ..] = names else { return None };
    let mut same = first.parts.len();
    for name in more {
        let name = name.as_ref()?;
        same = same.min(name.parts.iter().zip(&first.parts).take_while(|(one, other)| one == other).count());
    }
    (same > 0).then(|| format!("{PREFIX}{}", first.parts[..same].join("_")))
}

#[cfg(test)]
mod tests;
