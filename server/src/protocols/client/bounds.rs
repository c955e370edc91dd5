//! The limits of the client protocol.

use std::time::Duration;

/// Limits of connections that speak in frames.
#[derive(Clone, Debug)]
pub struct ClientLimits {
    /// Most open connections that speak it, beside those of the server; one more is told so. 16,384 by default: a node has
    /// a few processes for each of its cores.
    pub connections_max: usize,
    /// Most series that a connection may name. 1 million by default.
    pub series_max: u32,
    /// Memory for the names and numbers of all connections. 512 MiB by default: 8 bytes a series, and its name where
    /// several jobs share the server.
    pub names_bytes_max: usize,
    /// Memory for frames on their way in, of all connections; more wait in their clients. 256 MiB by default. The first
    /// bytes of a frame do not count: see [`FIRST_BYTES`].
    pub frames_bytes_max: usize,
    /// Longest that the opening may take, and a frame from its first byte to its last. 30 s by default.
    pub frame_timeout: Duration,
    /// The same without a byte, while others wait for the memory that it holds. 1 s by default.
    pub frame_idle_when_short: Duration,
    /// Most batches of a connection that wait to be appended; with more nothing is read. 8 by default.
    pub batches_waiting_max: usize,
    /// Answers that a client did not take yet: with more, nothing more is read of what it sends. 1 MiB by default; a frame
    /// comes on top.
    pub answers_bytes_max: usize,
    /// Longest that a flush may take to be durable. 60 s by default.
    pub flush_timeout: Duration,
    /// Longest that a note or a setting may take. 10 s by default.
    pub request_timeout: Duration,
    /// Between refusals of one series for one reason; the samples of those between add up. 1 s by default.
    pub refused_interval: Duration,
    /// Most refusals that wait for that; more of a reason are told together. 1,000 by default.
    pub refusals_max: usize,
}

/// What every frame gets without waiting for memory, so that one that stands still holds up no other.
pub const FIRST_BYTES: usize = 4 << 10;
/// Most metrics of a database that clients describe; more have no unit and no help.
pub const DESCRIBED_METRICS_MAX: usize = 100_000;
/// Longest body that describes metrics over HTTP.
pub const DESCRIPTION_BYTES_MAX: usize = 4 << 20;
/// Longest unit in it, in bytes.
pub const UNIT_BYTES_MAX: usize = 256;
/// Longest help in it, in bytes.
pub const HELP_BYTES_MAX: usize = 4 << 10;
/// Longest frame to a client.
pub const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Rows are sent in frames of about this size.
pub const ROWS_BYTES: usize = 1 << 20;
/// At the end of the server nothing more is on its way once nothing came for this long.
pub const SILENCE: Duration = Duration::from_millis(50);
/// Most bytes of a connection that are still read then: more than the kernel holds for one by default.
pub const LAST_BYTES_MAX: usize = 8 << 20;
/// How long a client on which we hang up may take to read what was said last.
pub const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            connections_max: 16_384,
            series_max: 1_000_000,
            names_bytes_max: 512 << 20,
            frames_bytes_max: 256 << 20,
            frame_timeout: Duration::from_secs(30),
            frame_idle_when_short: Duration::from_secs(1),
            batches_waiting_max: 8,
            answers_bytes_max: 1 << 20,
            flush_timeout: Duration::from_secs(60),
            request_timeout: Duration::from_secs(10),
            refused_interval: Duration::from_secs(1),
            refusals_max: 1_000,
        }
    }
}
