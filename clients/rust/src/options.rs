//! How the library works, where something shall be set.

use std::path::PathBuf;
use std::time::Duration;

use crate::ffi;
use crate::session::{ClientError, c_path, c_timeout};

/// How the library works. It starts by itself with its first metric, and then the environment says the same
/// (`TELEM_CONNECTION`, `TELEM_RING_SAMPLES`, `TELEM_INTERVAL_MS`, `TELEM_EXIT_MS`, `TELEM_PROCESS_TAG`).
///
/// ```
/// use std::time::Duration;
/// use telem_client::ClientOptions;
///
/// ClientOptions::new().interval(Duration::from_millis(20)).ring_samples(1 << 20).start()?;
/// # Ok::<(), telem_client::ClientError>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "start() sets them"]
pub struct ClientOptions {
    pub(crate) socket: Option<PathBuf>,
    pub(crate) ring_samples: u32,
    pub(crate) interval_ms: u32,
    pub(crate) exit_ms: u32,
    pub(crate) process_tags: i32,
}

/// The tags that every series has for its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessTags {
    /// `rank`, if a launcher set one, and `pid`.
    RankAndPid,
    /// None of them: processes of a node share a series.
    Neither,
}

impl ClientOptions {
    /// Nothing is set.
    pub fn new() -> Self {
        Self::default()
    }

    /// The service's socket; without it `TELEM_CONNECTION`, else `TELEM_SOCKET`.
    pub fn socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.socket = Some(path.into());
        self
    }

    /// Samples that wait in each thread, rounded up to a power of two; without it 65,536.
    pub fn ring_samples(mut self, count: u32) -> Self {
        self.ring_samples = count;
        self
    }

    /// Between two batches; without it 100 ms.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval_ms = c_timeout(interval);
        self
    }

    /// The longest that the end of the process waits for what is not sent; without it 2 s.
    pub fn exit_timeout(mut self, timeout: Duration) -> Self {
        self.exit_ms = c_timeout(timeout);
        self
    }

    /// Which tags say what process a series is of; without it `rank` where a launcher set one, and `pid` where it did not
    /// or ranks are shared.
    pub fn process_tags(mut self, tags: ProcessTags) -> Self {
        self.process_tags = match tags {
            ProcessTags::RankAndPid => 1,
            ProcessTags::Neither => -1,
        };
        self
    }

    /// Starts the library.
    ///
    /// # Errors
    /// It runs already, since a metric was opened, or an option is out of its range.
    pub fn start(self) -> Result<(), ClientError> {
        let socket = self.socket.as_deref().map(c_path).transpose()?;
        if ffi::start(&self, socket.as_deref()) == 0 { Ok(()) } else { Err(ClientError::last()) }
    }
}
