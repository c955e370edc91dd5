//! What is between this process and the service: connection, level, counts, flushes, notes, settings.

use std::ffi::CString;
use std::fmt::{self, Display, Formatter};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use crate::ffi;

/// Why something was not done. A program may well ignore it and go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientError {
    reason: String,
}

impl ClientError {
    /// That of this thread's last call.
    pub(crate) fn last() -> Self {
        Self { reason: ffi::reason() }
    }

    /// In words.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl Display for ClientError {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        to.write_str(&self.reason)
    }
}

impl std::error::Error for ClientError {}

fn c_bytes(bytes: &[u8], what: &str) -> Result<CString, ClientError> {
    CString::new(bytes).map_err(|error| ClientError {
        reason: format!(
            "{what} has a zero byte at {}: '{}'; expected a text without one",
            error.nul_position(),
            String::from_utf8_lossy(bytes).escape_debug()
        ),
    })
}

pub(crate) fn c_text(text: &str, what: &str) -> Result<CString, ClientError> {
    c_bytes(text.as_bytes(), what)
}

pub(crate) fn c_path(path: &Path) -> Result<CString, ClientError> {
    c_bytes(path.as_os_str().as_bytes(), "the path of a socket")
}

/// Whole milliseconds: of less than one, one.
pub(crate) fn c_timeout(timeout: Duration) -> u32 {
    u32::try_from(timeout.as_micros().div_ceil(1000)).unwrap_or(u32::MAX)
}

fn done(status: i32) -> Result<(), ClientError> {
    if status == 0 { Ok(()) } else { Err(ClientError::last()) }
}

/// Whether there is a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    /// It is there.
    Connected,
    /// It is looked for.
    Sought,
    /// None is named, or the level is 0: everything is counted as dropped.
    Unnamed,
}

/// Whether there is a service. What is logged before it is there waits.
pub fn connection() -> Connection {
    match ffi::connected() {
        1 => Connection::Connected,
        0 => Connection::Sought,
        _ => Connection::Unnamed,
    }
}

/// The level of the job; `None` while nothing is known of it.
pub fn level() -> Option<u8> {
    u8::try_from(ffi::level()).ok()
}

/// Waits until everything that was taken before this call is stored by the service.
///
/// ```
/// use std::time::Duration;
///
/// if let Err(error) = telem_client::flush(Duration::from_secs(5)) {
///     eprintln!("not all is stored yet: {error}");
/// }
/// ```
///
/// # Errors
/// It took longer, and goes on in the background; or there is no service.
pub fn flush(timeout: Duration) -> Result<(), ClientError> {
    done(ffi::flush(c_timeout(timeout)))
}

/// Flushes, hangs up and ends the thread of the library. Metrics stay, and do nothing from then on. A process that ends
/// by the return of `main` or by [`std::process::exit`] does this by itself.
pub fn stop(timeout: Duration) {
    ffi::stop(c_timeout(timeout));
}

/// What became of the samples of this process. At rest `taken` is the sum of `stored`, `refused`, `above_level` and
/// those that were dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Given to the library.
    pub taken: u64,
    /// Handed to the socket.
    pub sent: u64,
    /// The service has them.
    pub stored: u64,
    /// The service has refused them, with a reason.
    pub refused: u64,
    /// Of a level that the job does not keep.
    pub above_level: u64,
    /// A ring or the queue of unsent batches had no room.
    pub dropped_full: u64,
    /// No service was named, or it was away for too long.
    pub dropped_unserved: u64,
    /// Anything else, such as a time before 1970.
    pub dropped_other: u64,
    /// How often a service was connected.
    pub connections: u64,
}

impl Counts {
    /// All that were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped_full + self.dropped_unserved + self.dropped_other
    }
}

/// What became of the samples of this process so far.
pub fn counts() -> Counts {
    ffi::counts()
}

/// An annotation at this moment: seen in Grafana, SQL and exports. `more` may be empty.
///
/// # Errors
/// There is no service, no room for it, or a text has a zero byte. A program that runs without a service as well does
/// not pass it on.
pub fn note(title: &str, more: &str) -> Result<(), ClientError> {
    done(ffi::note(&c_text(title, "the title of a note")?, &c_text(more, "a note")?))
}

/// A setting of the job, such as `("solver", "cg")`.
///
/// # Errors
/// As of [`note`].
pub fn setting(name: &str, value: impl Display) -> Result<(), ClientError> {
    done(ffi::setting(&c_text(name, "the name of a setting")?, &c_text(&value.to_string(), "a setting")?))
}
