//! The destination of an export: one file, or a directory with one file per metric; it appears as a whole or not at
//! all.
//!
//! A new directory is filled beside its final name. If the directory exists already, the export is filled in a hidden
//! directory inside it. The directory holds an index ([`INDEX`]), which maps files to metrics. The index also
//! identifies an earlier export, which may be replaced.

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use serde_json::{Value as Json, json};
use telem_engine::{TimeRange, Timestamp};

use super::names::FileNames;
use super::{ExportFormat, NO_TABLE};
use crate::cli::CliFailure;
use crate::cli::output::{Output, OutputFormat};
use crate::info::rfc3339;
use crate::state::VERSION;

/// Which file has which metric. Readers of whole directories pass over names that begin so.
pub const INDEX: &str = "_index.json";
/// An index larger than this was not written by an export.
const INDEX_BYTES_MAX: u64 = 1 << 30;

/// What `-o` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportPlace {
    /// Stdout where there is no path.
    File(Option<PathBuf>),
    Directory(PathBuf),
    /// Of event files.
    Events(PathBuf),
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    pub samples: u64,
    pub metrics: u64,
    pub files: u64,
    /// Where that is known.
    pub bytes: Option<u64>,
    /// Files of an earlier export, of metrics that this one has not.
    pub removed: u64,
}

impl ExportPlace {
    /// The place that `output` names, and the format to write there.
    pub fn of(output: &Path, format: Option<ExportFormat>) -> Result<(Self, ExportFormat), CliFailure> {
        if output.as_os_str().as_bytes().ends_with(b"/") || output.is_dir() {
            return Ok((ExportPlace::Directory(output.to_path_buf()), format.unwrap_or(ExportFormat::Parquet)));
        }
        let of_name = || match OutputFormat::of_file(output) {
            Some(OutputFormat::Parquet) => Some(ExportFormat::Parquet),
            Some(OutputFormat::Csv) => Some(ExportFormat::Csv),
            Some(OutputFormat::Arrow) => Some(ExportFormat::Arrow),
            _ => None,
        };
        let path = output.display();
        let format = format.or_else(of_name).ok_or_else(|| {
            CliFailure::Usage(format!(
                "'{path}' does not tell the format: end it in .parquet, .csv or .arrow, or give --format; {path}/ is a \
                 directory with a file a metric"
            ))
        })?;
        Ok((ExportPlace::File((output != Path::new("-")).then(|| output.to_path_buf())), format))
    }
}

/// The size of a file; `None` for anything else, such as a pipe.
pub fn bytes_of(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|found| found.len())
}

/// What becomes of a directory that holds other files than an earlier export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherFiles {
    /// Nothing is written there.
    Refused,
    /// They stay, beside what is written.
    Left,
}

/// A directory of files that is not whole yet. Dropped before [`Unfinished::keep`], it goes.
#[derive(Debug)]
pub struct Unfinished {
    path: PathBuf,
    until_then: PathBuf,
    /// The files of the earlier export there.
    earlier: Option<Vec<String>>,
    existed: bool,
    format: ExportFormat,
    names: FileNames,
    files: Vec<IndexEntry>,
    kept: bool,
}

/// A line of the index.
#[derive(Debug)]
struct IndexEntry {
    metric: String,
    file: String,
    samples: u64,
    bytes: u64,
}

/// A file of one metric that is not whole yet.
pub struct MetricFile {
    metric: String,
    file: String,
    path: PathBuf,
    output: Output,
    samples: u64,
}

impl MetricFile {
    pub fn batch(&mut self, batch: &RecordBatch) -> Result<(), CliFailure> {
        self.samples += batch.num_rows() as u64;
        self.output.batch(batch)
    }
}

impl Unfinished {
    /// Begins the directory `path`.
    ///
    /// # Errors
    /// Failed when it holds other things than an earlier export, which nobody said to write among, or cannot be written.
    pub fn create(path: &Path, format: ExportFormat, others: OtherFiles) -> Result<Self, CliFailure> {
        let mut existed = true;
        let mut entries = match fs::read_dir(path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                existed = false;
                let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
                fs::create_dir_all(parent).map_err(failed("create", parent))?;
                fs::read_dir(parent).map_err(failed("list", parent))?
            }
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return Err(CliFailure::Failed(format!(
                    "{} is a file; name a directory, or leave out the slash for one file",
                    path.display()
                )));
            }
            Err(error) => return Err(failed("list", path)(error)),
        };
        let earlier = if existed { earlier_files(path)? } else { None };
        if existed && earlier.is_none() && others == OtherFiles::Refused && entries.next().is_some() {
            return Err(CliFailure::Failed(format!(
                "{} holds files and no earlier export; name another directory, or --force to write among them",
                path.display()
            )));
        }
        let name = format!(".telem-export.{}.part", std::process::id());
        let until_then = if existed { path.join(name) } else { beside(path, &name) };
        fs::create_dir(&until_then).map_err(failed("create", &until_then))?;
        Ok(Self {
            path: path.to_path_buf(),
            until_then,
            earlier,
            existed,
            format,
            names: FileNames::default(),
            files: Vec::new(),
            kept: false,
        })
    }

    /// Begins the file of a metric.
    pub fn file(&mut self, metric: &str, schema: &SchemaRef) -> Result<MetricFile, CliFailure> {
        let file = format!("{}.{}", self.names.name(metric), self.format.name());
        let path = self.until_then.join(&file);
        let output = Output::new(self.format.output(), schema, Some(&path), NO_TABLE)?;
        Ok(MetricFile { metric: metric.to_owned(), file, path, output, samples: 0 })
    }

    /// Ends the file of a metric.
    pub fn add(&mut self, file: MetricFile) -> Result<(), CliFailure> {
        let MetricFile { metric, file, path, output, samples } = file;
        output.finish()?;
        self.files.push(IndexEntry { metric, file, samples, bytes: bytes_of(&path).unwrap_or(0) });
        Ok(())
    }

    pub fn written(&self) -> Written {
        Written {
            samples: self.files.iter().map(|file| file.samples).sum(),
            metrics: self.files.len() as u64,
            files: self.files.len() as u64,
            bytes: Some(self.files.iter().map(|file| file.bytes).sum()),
            removed: 0,
        }
    }

    /// Puts everything in its place. Files of an earlier export that this one has not are removed.
    pub fn keep(mut self, from: &[String], range: TimeRange) -> Result<Written, CliFailure> {
        let index = self.until_then.join(INDEX);
        fs::write(&index, self.index(from, range)).map_err(failed("write", &index))?;
        let mut written = self.written();
        if self.existed {
            for name in self.files.iter().map(|file| &*file.file) {
                self.put(name)?;
            }
            let new: HashSet<&str> = self.files.iter().map(|file| &*file.file).collect();
            for old in self.earlier.iter().flatten().filter(|old| !new.contains(&***old)) {
                let old = self.path.join(old);
                match fs::remove_file(&old) {
                    Ok(()) => written.removed += 1,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(failed("remove", &old)(error)),
                }
            }
            self.put(INDEX)?;
            fs::remove_dir(&self.until_then).map_err(failed("remove", &self.until_then))?;
        } else {
            fs::rename(&self.until_then, &self.path).map_err(failed("create", &self.path))?;
        }
        self.kept = true;
        Ok(written)
    }

    fn put(&self, name: &str) -> Result<(), CliFailure> {
        let to = self.path.join(name);
        fs::rename(self.until_then.join(name), &to).map_err(failed("write", &to))
    }

    fn index(&self, from: &[String], range: TimeRange) -> String {
        let bound = |time: Timestamp, open: Timestamp| (time != open).then(|| rfc3339(time));
        let files = self.files.iter().map(|IndexEntry { metric, file, samples, bytes }| {
            json!({"metric": metric, "file": file, "samples": samples, "bytes": bytes})
        });
        let index = json!({
            "written_by": format!("telem {VERSION}"),
            "from": from,
            "start": bound(range.start, TimeRange::ALL.start),
            "end": bound(range.end, TimeRange::ALL.end),
            "format": self.format.name(),
            "files": files.collect::<Vec<_>>(),
        });
        format!("{index:#}\n")
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.kept {
            // The failure that leads here is the one to report.
            fs::remove_dir_all(&self.until_then).unwrap_or_default();
        }
    }
}

/// A hidden name next to `path`, on the same file system.
pub fn beside(path: &Path, name: &str) -> PathBuf {
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(path.file_name().unwrap_or_default());
    hidden.push(name);
    path.with_file_name(hidden)
}

/// The files that the index in `path` names, if there is an index.
fn earlier_files(path: &Path) -> Result<Option<Vec<String>>, CliFailure> {
    let index = path.join(INDEX);
    let found = match fs::metadata(&index) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("read", &index)(error)),
    };
    let strange = || {
        CliFailure::Failed(format!(
            "{} is not an index of an export, so it is unknown which files may be replaced; remove it, or name another directory",
            index.display()
        ))
    };
    if found.len() > INDEX_BYTES_MAX {
        return Err(strange());
    }
    let text = fs::read(&index).map_err(failed("read", &index))?;
    let json: Json = serde_json::from_slice(&text).map_err(|_| strange())?;
    let files = json["files"].as_array().ok_or_else(strange)?;
    let names = files.iter().map(|file| file["file"].as_str().filter(|name| is_plain(name)).map(str::to_owned));
    names.collect::<Option<Vec<_>>>().map(Some).ok_or_else(strange)
}

/// Whether `name` is a plain file name in its directory.
fn is_plain(name: &str) -> bool {
    let mut components = Path::new(name).components();
    matches!((components.next(), components.next()), (Some(Component::Normal(only)), None) if only == name)
}

fn failed<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> CliFailure + use<'a> {
    move |error| CliFailure::Failed(format!("cannot {action} {}: {error}", path.display()))
}
