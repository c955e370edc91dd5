//! A file to read, and the formats that it may have.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use flate2::bufread::MultiGzDecoder;

use crate::cli::CliFailure;

/// What names standard input.
pub const STDIN: &str = "-";
/// What every event file of TensorBoard has in its name.
pub const EVENTS: &str = "tfevents";
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// What is read ahead of a text: room for its first line.
const READ_BYTES: usize = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ImportFormat {
    /// Text with a header line; commas, semicolons, tabs or bars between, also gzipped
    Csv,
    /// Columns, compressed in any of its ways
    Parquet,
    /// An Arrow IPC file or stream (Feather)
    Arrow,
    /// A JSON object a line, also gzipped
    Jsonl,
    /// Event files of TensorBoard
    Tensorboard,
    /// The file of an offline run of wandb
    Wandb,
    /// Databases of Dragon's telemetry, in SQLite
    Dragon,
    /// Profiles of jobs that Metric Proxy v2 left
    Proxy,
    /// Traces of jobs that Metric Proxy v2 left
    Trace,
}

/// A file that can be opened.
#[derive(Clone, Debug)]
pub struct ImportFile {
    /// As it was named.
    pub name: String,
    pub format: ImportFormat,
    /// Of the file, however it is packed; 0 of a pipe.
    pub bytes: u64,
    /// Below a directory of logs the directory that it lies in, which is a run; else empty.
    pub run: String,
    /// What to call a run that is made of it.
    pub title: String,
    pub(super) path: PathBuf,
}

impl ImportFile {
    /// Its format and its size are found out later.
    pub fn new(path: &Path) -> Self {
        let title = title(path);
        let name = path.display().to_string();
        Self { name, format: ImportFormat::Csv, bytes: 0, run: String::new(), title, path: path.to_path_buf() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its name without the directories before it.
    pub fn file_name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// For a reader that seeks.
    pub fn open(&self) -> Result<File, CliFailure> {
        File::open(&self.path).map_err(|error| cannot("open", &self.name, &error))
    }

    /// Its text, unpacked where it is gzipped.
    pub fn text(&self) -> Result<Box<dyn BufRead>, CliFailure> {
        let mut packed: Box<dyn BufRead> = match &*self.name {
            STDIN => Box::new(BufReader::with_capacity(READ_BYTES, io::stdin())),
            _ => Box::new(BufReader::with_capacity(READ_BYTES, self.open()?)),
        };
        let start = packed.fill_buf().map_err(|error| cannot("read", &self.name, &error))?;
        Ok(match start.starts_with(&GZIP) {
            true => Box::new(BufReader::with_capacity(READ_BYTES, MultiGzDecoder::new(packed))),
            false => packed,
        })
    }

    pub fn cannot_read(&self, error: impl std::fmt::Display) -> CliFailure {
        cannot("read", &self.name, &error)
    }

    pub fn failed(&self, what: impl std::fmt::Display) -> CliFailure {
        CliFailure::Failed(format!("{}: {what}", self.name))
    }
}

/// The name of a file without what tells its format; of one in a directory of logs that of the directory.
pub fn title(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    if name.contains(EVENTS)
        && let Some(dir) = path.parent().and_then(Path::file_name)
    {
        return dir.to_string_lossy().into_owned();
    }
    let bare = name.strip_suffix(".gz").unwrap_or(&name);
    let stem = bare.rsplit_once('.').map_or(bare, |(stem, _)| stem);
    if stem.is_empty() { name.into_owned() } else { stem.to_owned() }
}

pub fn cannot(action: &str, name: &str, error: &dyn std::fmt::Display) -> CliFailure {
    CliFailure::Failed(format!("cannot {action} {name}: {error}"))
}
