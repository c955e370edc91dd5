//! The join file: everything that an agent must know to belong to a job, as one JSON object.
//!
//! The head writes it with mode 0600, and agents read it again when they look for a head that was restarted. An agent
//! may also read it from its standard input. It never appears on a command line, because it holds the job's token and
//! key.

#[cfg(test)]
mod tests;

use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use url::{Host, Url};

use crate::config::{self, ConfigError};
use crate::private_file::{self, PrivateFileError};
use crate::state::VERSION;

/// Largest join file.
const BYTES_MAX: u64 = 1 << 20;
/// Longest that it may take to come on standard input.
const STDIN_WAIT: Duration = Duration::from_secs(60);
/// Most addresses of a head.
const HEADS_MAX: usize = 64;
/// What the path of standard input is.
const STDIN: &str = "-";
/// How long agents go on without a head, unless the join file says otherwise.
pub const HEAD_GONE_TIMEOUT: Duration = Duration::from_secs(600);

/// The information for an agent.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Join {
    pub job: String,
    /// For `Authorization: Bearer TOKEN`, from agent to head, head to agent, and agent to agent.
    pub token: String,
    /// Where the head is, best first: `https://10.0.0.1:4243`. They are tried in turn.
    pub head: Vec<String>,
    /// The job's own certificate, PEM: head and agents serve it and trust it. `None`: without TLS, on loopback only.
    #[serde(default)]
    pub certificate: Option<String>,
    /// Its private key, PEM.
    #[serde(default)]
    pub key: Option<String>,
    /// The version of telem that wrote this.
    pub version: String,
    /// Highest level of samples to keep.
    pub level: u8,
    /// How often the node is sampled.
    #[serde(with = "seconds")]
    pub interval: Duration,
    /// Where the job is saved, absolute; `None` where it is not.
    #[serde(default)]
    pub save: Option<PathBuf>,
    #[serde(with = "seconds")]
    pub save_interval: Duration,
    /// Longest that saving the rest may take at the end.
    #[serde(with = "seconds")]
    pub save_timeout: Duration,
    /// An agent ends when its head has been gone for so long.
    #[serde(with = "seconds", default = "head_gone_timeout")]
    pub head_gone_timeout: Duration,
    /// The same of an agent whose standard input, over which this came, has ended; `None`: that end says nothing.
    #[serde(with = "maybe_seconds", default, skip_serializing_if = "Option::is_none")]
    pub orphan_timeout: Option<Duration>,
    /// Memory that all queries of an agent share, bytes; `None`: the default of an agent.
    #[serde(default)]
    pub query_memory: Option<u64>,
    /// Programs of Dragon's are to find a server on every node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dragon: Option<DragonJoin>,
}

/// What an agent must know of Dragon's port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DragonJoin {
    /// The port that programs expect.
    pub port: u16,
    /// What the user's YAML says, for that of the node.
    #[serde(default)]
    pub keys: Map<String, Json>,
    /// Below it the live data are.
    #[serde(default)]
    pub data_base: Option<PathBuf>,
}

fn head_gone_timeout() -> Duration {
    HEAD_GONE_TIMEOUT
}

/// Why a join file is of no use.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error(transparent)]
    File(#[from] PrivateFileError),
    #[error("cannot write the join file {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("no join file came on standard input within {} s; write it there, or name a file with --join FILE", STDIN_WAIT.as_secs())]
    Silent,
    #[error("standard input cannot be read: {0}")]
    Stdin(#[source] io::Error),
    #[error("{from} is not a join file: {why}; the head writes one, or `telem serve --join-file FILE`")]
    NotJoin { from: String, why: String },
    #[error(
        "{from} was written by telem {theirs}, and this is telem {VERSION}; start agents with the binary of their head"
    )]
    Version { from: String, theirs: String },
    #[error("{from} is not a join file: {source}")]
    Name { from: String, source: ConfigError },
    #[error("the join file gives '{url}' as the head, which {why}")]
    BadHead { url: String, why: &'static str },
    #[error("the join file has {0}")]
    Lacks(&'static str),
}

impl Join {
    /// Reads a file, or standard input for `-`.
    ///
    /// # Errors
    /// [`JoinError`]: also where others may read the file, and where it comes from another version.
    pub fn read(path: &Path) -> Result<Join, JoinError> {
        if path == Path::new(STDIN) {
            return Ok(Self::read_by_agent(path)?.0);
        }
        Ok(Self::read_with_text(path)?.0)
    }

    /// Reads a file; also all that it holds, so that it can be put back as it was.
    ///
    /// # Errors
    /// As [`Join::read`].
    pub fn read_with_text(path: &Path) -> Result<(Join, Vec<u8>), JoinError> {
        let from = path.display().to_string();
        let text = private_file::read(path, BYTES_MAX)?;
        let join = serde_json::from_slice(&text);
        Ok((Self::checked(&from, join.map_err(|error| not_join(&from, &text, &error))?)?, text))
    }

    /// As [`Join::read`], for an agent: also what tells of the end of its standard input.
    ///
    /// # Errors
    /// As [`Join::read`].
    pub fn read_by_agent(path: &Path) -> Result<(Join, Lifeline), JoinError> {
        let lifeline = Lifeline::default();
        if path != Path::new(STDIN) {
            return Ok((Self::read(path)?, lifeline));
        }
        Ok((Self::checked("what came on standard input", Self::of_stdin(&lifeline)?)?, lifeline))
    }

    /// One object; what feeds it may stay open, and its end is noted.
    fn of_stdin(lifeline: &Lifeline) -> Result<Join, JoinError> {
        let (send, came) = sync_channel(1);
        let lifeline = lifeline.clone();
        // Reading cannot be given up: the thread ends with the process.
        std::thread::spawn(move || {
            let mut input = io::stdin().lock();
            let _ = send.send(Self::first_of(&mut input));
            // An error is an end, too.
            let _ = io::copy(&mut input, &mut io::sink());
            lifeline.is_cut.store(true, Ordering::Relaxed);
        });
        match came.recv_timeout(STDIN_WAIT) {
            Ok(join) => join,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Err(JoinError::Silent),
        }
    }

    /// The first object of `input`; what follows is not waited for.
    fn first_of(input: impl Read) -> Result<Join, JoinError> {
        let from = "what came on standard input";
        let not_join = |why: &dyn fmt::Display| JoinError::NotJoin { from: from.to_owned(), why: why.to_string() };
        match serde_json::Deserializer::from_reader(input.take(BYTES_MAX)).into_iter::<Join>().next() {
            Some(Ok(join)) => Ok(join),
            Some(Err(error)) if error.is_io() => Err(JoinError::Stdin(error.into())),
            Some(Err(error)) => Err(not_join(&error)),
            None => Err(not_join(&"it is empty")),
        }
    }

    fn checked(from: &str, join: Join) -> Result<Join, JoinError> {
        if !is_compatible(&join.version, VERSION) {
            return Err(JoinError::Version { from: from.to_owned(), theirs: join.version });
        }
        config::checked_name("job", &join.job).map_err(|source| JoinError::Name { from: from.to_owned(), source })?;
        if join.token.is_empty() {
            return Err(JoinError::Lacks("no token"));
        }
        if join.certificate.is_some() != join.key.is_some() {
            return Err(JoinError::Lacks("a certificate without its key, or a key without its certificate"));
        }
        if join.head.is_empty() {
            return Err(JoinError::Lacks("no address of a head"));
        }
        if join.head.len() > HEADS_MAX {
            return Err(JoinError::Lacks("more than 64 addresses of a head"));
        }
        join.heads()?;
        Ok(join)
    }

    /// The addresses of the head.
    ///
    /// # Errors
    /// BadHead, also for one without TLS that is not on loopback: the token would be read on its way.
    pub fn heads(&self) -> Result<Vec<Url>, JoinError> {
        self.head.iter().map(|text| self.head_url(text)).collect()
    }

    fn head_url(&self, text: &str) -> Result<Url, JoinError> {
        let bad = |why| JoinError::BadHead { url: text.to_owned(), why };
        let url = Url::parse(text).map_err(|_| bad("is not a URL"))?;
        match (url.scheme(), self.certificate.is_some()) {
            ("https", true) => Ok(url),
            ("https", false) => Err(bad("needs a certificate, which is missing")),
            ("http", true) => Err(bad("is without TLS although there is a certificate")),
            ("http", false) if is_loopback(&url) => Ok(url),
            ("http", false) => Err(bad("is without TLS and not on loopback")),
            _ => Err(bad("is neither http nor https")),
        }
    }

    /// Writes it whole or not at all, with mode 0600; it is removed when what this returns is dropped.
    ///
    /// # Errors
    /// Write.
    pub fn publish(&self, path: &Path) -> Result<JoinFile, JoinError> {
        let cannot = |source| JoinError::Write { path: path.to_path_buf(), source };
        let text = self.to_json().map_err(|error| cannot(error.into()))?;
        private_file::write(path, &text).map_err(cannot)?;
        Ok(JoinFile { path: path.to_path_buf(), text })
    }

    /// As it is in the file, and is sent to the standard input of an agent.
    ///
    /// # Errors
    /// When a path in it is not UTF-8.
    pub fn to_json(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        Ok(text)
    }
}

fn not_join(from: &str, text: &[u8], error: &serde_json::Error) -> JoinError {
    let why = if text.trim_ascii().is_empty() { "it is empty".to_owned() } else { error.to_string() };
    JoinError::NotJoin { from: from.to_owned(), why }
}

/// The standard input of an agent, behind the join file.
#[derive(Clone, Debug, Default)]
pub struct Lifeline {
    is_cut: Arc<AtomicBool>,
}

impl Lifeline {
    /// It has ended.
    pub fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }
}

/// Whether processes of these versions may form a job: major and minor are the same.
pub fn is_compatible(one: &str, other: &str) -> bool {
    let minor = |version: &str| -> Option<(u64, u64)> {
        let mut parts = version.split('.');
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    };
    minor(one).is_some_and(|one| minor(other) == Some(one))
}

/// Whether a URL means this machine alone.
pub fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.to_canonical().is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

/// Without its secrets, so that no log shows them.
impl fmt::Debug for Join {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Join")
            .field("job", &self.job)
            .field("head", &self.head)
            .field("tls", &self.certificate.is_some())
            .field("version", &self.version)
            .field("level", &self.level)
            .field("interval", &self.interval)
            .field("save", &self.save)
            .finish_non_exhaustive()
    }
}

/// A join file that goes when this is dropped, unless another head has put its own there.
pub struct JoinFile {
    path: PathBuf,
    text: Vec<u8>,
}

impl JoinFile {
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts `text` of another head there instead of removing it.
    pub fn leave_to(self, text: &[u8]) {
        if !self.is_ours() {
            return;
        }
        // The file there is not ours any more then, and stays when this is dropped.
        if let Err(error) = private_file::write(&self.path, text) {
            tracing::warn!(%error, path = %self.path.display(), "the join file of the other head is not put back");
        }
    }

    fn is_ours(&self) -> bool {
        private_file::read(&self.path, BYTES_MAX).is_ok_and(|found| found == self.text)
    }
}

impl fmt::Debug for JoinFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Drop for JoinFile {
    fn drop(&mut self) {
        if self.is_ours()
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(%error, path = %self.path.display(), "the join file stays");
        }
    }
}

/// A time as a number of seconds, as people write it.
mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de};

    pub fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(time.as_secs_f64())
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Duration, D::Error> {
        let seconds = f64::deserialize(from)?;
        Duration::try_from_secs_f64(seconds)
            .map_err(|_| de::Error::custom(format_args!("{seconds} is not a time in seconds")))
    }
}

/// The same of a time that may not be said.
mod maybe_seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    use super::seconds;

    #[derive(Deserialize)]
    struct Seconds(#[serde(with = "seconds")] Duration);

    pub fn serialize<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => seconds::serialize(time, to),
            None => to.serialize_none(),
        }
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<Seconds>::deserialize(from)?.map(|Seconds(time)| time))
    }
}
