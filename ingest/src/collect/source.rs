//! Files of `/proc` and `/sys`, kept open and read again from their start, and the tree that holds them.
//!
//! A file that does not exist or cannot be read is not an error, because kernels and containers differ. It is logged
//! once and tried again at the next tick.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The longest file that is read; the rest of a longer one is left out. The interrupt table of a node
/// with 1,024 CPUs has about a megabyte.
pub const FILE_BYTES_MAX: usize = 8 << 20;

/// Where `proc` and `sys` stand: `/`, or a recording of them.
#[derive(Clone, Debug)]
pub struct Tree {
    root: PathBuf,
}

impl Tree {
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_path_buf() }
    }

    /// `path` is relative to the root: `proc/stat`.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join(path)
    }

    pub fn file(&self, path: impl AsRef<Path>) -> Source {
        Source::new(self.path(path))
    }

    /// A file of `proc` that differs by the process that reads it: `mounts`, `net/dev`. Of ourselves below `/`. Below
    /// another root, where we may be in a container and see the host's `proc`, of the host's first process.
    pub fn file_of_view(&self, name: &str) -> Source {
        let of_first = Path::new("proc/1").join(name);
        let elsewhere = self.root != Path::new("/") && self.path(&of_first).is_file();
        self.file(if elsewhere { of_first } else { Path::new("proc").join(name) })
    }
}

/// One file that is read again and again.
#[derive(Debug)]
pub struct Source {
    path: PathBuf,
    file: Option<File>,
    buffer: Vec<u8>,
    absence_told: bool,
}

impl Source {
    pub fn new(path: PathBuf) -> Self {
        Self { path, file: None, buffer: Vec::new(), absence_told: false }
    }

    /// Everything in the file as it is now; `None` when it cannot be read.
    pub fn read(&mut self) -> Option<&[u8]> {
        self.read_or_why().ok()
    }

    /// As [`Source::read`].
    ///
    /// # Errors
    /// With the path, those of opening and reading.
    pub fn read_or_why(&mut self) -> Result<&[u8], (&Path, std::io::Error)> {
        match self.try_read() {
            Ok(bytes) => Ok(&self.buffer[..bytes]),
            Err(error) => {
                self.file = None;
                if !std::mem::replace(&mut self.absence_told, true) {
                    tracing::debug!(path = %self.path.display(), %error, "a file of the system cannot be read");
                }
                Err((&self.path, error))
            }
        }
    }

    fn try_read(&mut self) -> std::io::Result<usize> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(File::open(&self.path)?),
        };
        if self.buffer.is_empty() {
            self.buffer.resize(4 << 10, 0);
        }
        let mut filled = 0;
        loop {
            if filled == self.buffer.len() {
                if filled >= FILE_BYTES_MAX {
                    return Ok(filled);
                }
                self.buffer.resize(filled * 2, 0);
            }
            match file.read_at(&mut self.buffer[filled..], filled as u64) {
                Ok(0) => return Ok(filled),
                Ok(bytes) => filled += bytes,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
