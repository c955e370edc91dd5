//! The limits of telnet connections.

use std::time::Duration;

/// Limits of OpenTSDB's telnet protocol.
#[derive(Clone, Debug)]
pub struct TelnetLimits {
    /// Most open connections that speak it, out of those of the server; one more gets a refusal. 256 by default.
    pub connections_max: usize,
    /// Longest line, without what ends it; a longer one is skipped, and that is reported. 8 KiB by default, where
    /// OpenTSDB takes 1 KiB.
    pub line_bytes_max: usize,
    /// Answers that a client did not take yet: with more, nothing more is read of what it sends. 256 KiB by default; what
    /// is answered to one read of 32 KiB comes on top.
    pub answers_bytes_max: usize,
    /// Longest silence of a client. 10 minutes by default: what sends every minute is not to connect every minute.
    pub idle_timeout: Duration,
    /// Longest that samples wait for room in the writer's queue, and their client with them. 10 s by default.
    pub busy_timeout: Duration,
}

impl Default for TelnetLimits {
    fn default() -> Self {
        Self {
            connections_max: 256,
            line_bytes_max: 8 << 10,
            answers_bytes_max: 256 << 10,
            idle_timeout: Duration::from_secs(600),
            busy_timeout: Duration::from_secs(10),
        }
    }
}
