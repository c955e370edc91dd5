//! The connection file: everything that a process of our user needs to reach this server, readable only by that user.
//!
//! It is `connection.json` in the data directory, or the file that `--connection-file` names, with mode 0600. It exists
//! from when the server listens until it has stopped. A file that a killed server left names a `pid` that no longer
//! exists.

#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::private_file;

/// In the data directory.
pub const FILE_NAME: &str = telem_engine::CONNECTION_FILE;

/// The contents of a connection file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// `http://ADDR:PORT`, or `https://` where the service speaks TLS.
    pub url: String,
    /// Path of the Unix socket.
    pub socket: Option<PathBuf>,
    /// For `Authorization: Bearer TOKEN`.
    pub token: String,
    pub pid: u32,
    pub job: String,
    pub node: String,
    /// Samples of a higher level are not kept.
    #[serde(default)]
    pub level: u8,
    /// The data directory.
    pub data: PathBuf,
    /// PEM of the certificate that telem made for the service, which is asked for under the name `telem-job`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
}

impl Connection {
    /// # Errors
    /// When `path` cannot be read or holds something else.
    pub fn read(path: &Path) -> io::Result<Connection> {
        serde_json::from_slice(&fs::read(path)?).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Writes the file whole or not at all; it is removed when what this returns is dropped.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn publish(&self, path: &Path) -> io::Result<ConnectionFile> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        private_file::write(path, &text)?;
        Ok(ConnectionFile { path: path.to_path_buf(), connection: self.clone() })
    }
}

/// A file that goes when this is dropped, unless another server has put its own there.
#[derive(Debug)]
pub struct ConnectionFile {
    path: PathBuf,
    connection: Connection,
}

impl Drop for ConnectionFile {
    fn drop(&mut self) {
        let ours = Connection::read(&self.path).is_ok_and(|found| found == self.connection);
        if ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(%error, path = %self.path.display(), "the connection file stays");
        }
    }
}
