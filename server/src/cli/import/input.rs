//! The files to read, and which format each has.

use std::fs::{self, File};
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use super::file::{EVENTS, ImportFile, ImportFormat, STDIN, cannot};
use super::{dragon, leveldb, profile, trace};
use crate::cli::{CliFailure, tfrecord};

/// What a directory of an export names its files in.
const INDEX: &str = "_index.json";
/// An index larger than this was not written by an export.
const INDEX_BYTES_MAX: u64 = 1 << 30;
/// How deep directories of logs are searched, and for how many files.
const DEPTH_MAX: usize = 16;
const FILES_MAX: usize = 100_000;

/// The files that `named` are or hold.
///
/// # Errors
/// The first that cannot be opened, or whose format is unknown.
pub fn files(named: &[PathBuf], format: Option<ImportFormat>) -> Result<Vec<ImportFile>, CliFailure> {
    let mut found = Vec::new();
    for path in named {
        let name = path.display().to_string();
        if name == STDIN {
            let format = format.ok_or_else(|| CliFailure::usage("stdin does not tell its format: give --format"))?;
            let what = match format {
                ImportFormat::Parquet => Some("Parquet"),
                ImportFormat::Dragon => Some("a database"),
                _ => None,
            };
            if let Some(what) = what {
                return Err(CliFailure::usage(format!("{what} cannot be read from a pipe; name the file")));
            }
            found.push(ImportFile { format, title: "stdin".to_owned(), ..ImportFile::new(path) });
            continue;
        }
        let looked = fs::metadata(path).map_err(|error| cannot("open", &name, &error))?;
        if looked.is_dir() {
            found.extend(of_directory(path, format, named.len())?);
        } else {
            found.push(file(path, format)?);
        }
    }
    let runs = found.iter().filter(|file| file.format == ImportFormat::Wandb).count();
    if runs > 1 || runs == 1 && found.len() > 1 {
        return Err(CliFailure::usage("a file of wandb is a run of its own: import each into a directory of its own"));
    }
    Ok(found)
}

fn file(path: &Path, format: Option<ImportFormat>) -> Result<ImportFile, CliFailure> {
    let mut file = ImportFile::new(path);
    file.bytes = fs::metadata(path).map_err(|error| cannot("open", &file.name, &error))?.len();
    file.format = match format {
        Some(format) => format,
        None => {
            let mut text = file.text()?;
            let start = text.fill_buf().map_err(|error| file.cannot_read(error))?;
            format_of(start).map_err(|why| file.failed(why))?
        }
    };
    Ok(file)
}

/// What the first bytes of a file are the first bytes of.
///
/// # Errors
/// A sentence for the user.
fn format_of(start: &[u8]) -> Result<ImportFormat, &'static str> {
    if start.starts_with(b"PAR1") {
        return Ok(ImportFormat::Parquet);
    }
    if start.starts_with(b"ARROW1") || start.starts_with(&[0xff; 4]) {
        return Ok(ImportFormat::Arrow);
    }
    if start.starts_with(dragon::MAGIC) {
        return Ok(ImportFormat::Dragon);
    }
    if start.starts_with(leveldb::MAGIC) {
        return Ok(ImportFormat::Wandb);
    }
    if tfrecord::is_start(start) {
        return Ok(ImportFormat::Tensorboard);
    }
    if trace::frames::is_start(start) {
        return Ok(ImportFormat::Trace);
    }
    let text = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start);
    match text.iter().find(|byte| !byte.is_ascii_whitespace()) {
        None => Err("the file is empty"),
        Some(b'{') if is_profile(text) => Ok(ImportFormat::Proxy),
        Some(b'{') => Ok(ImportFormat::Jsonl),
        Some(b'[') => Err("is one JSON array; an object a line can be read: jq -c '.[]' makes that of it"),
        Some(_) if text.contains(&0) => Err(
            "is none of the formats that can be read: CSV, Parquet, Arrow, JSON lines, TensorBoard, wandb, Dragon, Metric Proxy",
        ),
        Some(_) => Ok(ImportFormat::Csv),
    }
}

/// Whether a text begins as a profile of Metric Proxy.
fn is_profile(text: &[u8]) -> bool {
    let start = text.iter().filter(|byte| !byte.is_ascii_whitespace()).take(profile::START.len());
    start.eq(profile::START)
}

/// All profiles and traces of Metric Proxy in directories; none where there are no such directories. And why some are left
/// out, which cannot be opened.
///
/// # Errors
/// Failed when a directory cannot be read.
pub fn proxied(left: &[PathBuf]) -> Result<(Vec<ImportFile>, Vec<String>), CliFailure> {
    let mut below = Vec::new();
    for dir in left.iter().filter(|dir| dir.is_dir()) {
        walk(dir, DEPTH_MAX, &mut below)?;
    }
    below.sort();
    let (mut files, mut refused) = (Vec::new(), Vec::new());
    for (path, format) in below.iter().filter_map(|path| Some((path, proxied_format(path)?))) {
        let opened = file(path, Some(format)).and_then(|file| file.text().map(|_| file));
        match opened {
            Ok(file) => files.push(file),
            Err(CliFailure::Failed(why)) => refused.push(why),
            Err(other) => return Err(other),
        }
    }
    Ok((files, refused))
}

/// What Metric Proxy writes under names that end so.
fn proxied_format(path: &Path) -> Option<ImportFormat> {
    match path.extension()?.to_str()? {
        profile::EXTENSION => Some(ImportFormat::Proxy),
        trace::EXTENSION => Some(ImportFormat::Trace),
        _ => None,
    }
}

/// The files of a directory that `telem export`, TensorBoard, wandb, Dragon or Metric Proxy wrote. `named` is how many the user named.
fn of_directory(dir: &Path, format: Option<ImportFormat>, named: usize) -> Result<Vec<ImportFile>, CliFailure> {
    let index = dir.join(INDEX);
    let strange = |why: &str| CliFailure::Failed(format!("{}: {why}", dir.display()));
    let mut text = String::new();
    match File::open(&index) {
        Ok(file) => file
            .take(INDEX_BYTES_MAX)
            .read_to_string(&mut text)
            .map_err(|error| cannot("read", &index.display().to_string(), &error))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return of_logs(dir, named),
        Err(error) => return Err(cannot("open", &index.display().to_string(), &error)),
    };
    let not_ours = || strange("its _index.json is not that of an export; name the files in it");
    let json: Json = serde_json::from_str(&text).map_err(|_| not_ours())?;
    let named = json["files"].as_array().ok_or_else(not_ours)?;
    let mut files = Vec::with_capacity(named.len());
    for one in named {
        let name = one["file"].as_str().filter(|name| !name.contains('/')).ok_or_else(not_ours)?;
        files.push(file(&dir.join(name), format)?);
    }
    Ok(files)
}

/// The event files below a directory, each of the run that its directory is; or the one file of wandb; or all
/// of Dragon; or all profiles and traces of Metric Proxy.
fn of_logs(dir: &Path, named: usize) -> Result<Vec<ImportFile>, CliFailure> {
    let mut below = Vec::new();
    walk(dir, DEPTH_MAX, &mut below)?;
    below.sort();
    let called = |path: &Path, what: &str| path.file_name().is_some_and(|name| name.to_string_lossy().contains(what));
    let whole = std::path::absolute(dir).unwrap_or_else(|_| dir.to_path_buf());
    let title = whole.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut found = Vec::new();
    for path in below.iter().filter(|path| called(path, EVENTS)) {
        let within = path.parent().and_then(|parent| parent.strip_prefix(dir).ok()).unwrap_or(Path::new(""));
        let within = within.to_string_lossy().into_owned();
        // Several directories may have runs of equal names.
        let run = match (named, within.is_empty()) {
            (1, _) => within,
            (_, true) => title.clone(),
            (_, false) => format!("{title}/{within}"),
        };
        found.push(ImportFile { run, title: title.clone(), ..file(path, Some(ImportFormat::Tensorboard))? });
    }
    if !found.is_empty() {
        return Ok(found);
    }
    let runs: Vec<&PathBuf> = below.iter().filter(|path| path.extension().is_some_and(|end| end == "wandb")).collect();
    let dragons =
        below.iter().filter(|path| path.file_name().is_some_and(|name| dragon::is_called_so(&name.to_string_lossy())));
    let proxied = below.iter().filter_map(|path| Some((path, proxied_format(path)?)));
    match &*runs {
        [] if dragons.clone().next().is_some() => dragons.map(|path| file(path, Some(ImportFormat::Dragon))).collect(),
        [] if proxied.clone().next().is_some() => proxied.map(|(path, format)| file(path, Some(format))).collect(),
        [] => Err(CliFailure::Failed(format!(
            "{} is a directory without files of telem export, TensorBoard, wandb, Dragon or Metric Proxy; name the files in it",
            dir.display()
        ))),
        [one] => Ok(vec![file(one, Some(ImportFormat::Wandb))?]),
        [one, ..] => Err(CliFailure::Failed(format!(
            "{} holds {} runs of wandb; import each into a directory of its own, such as {}",
            dir.display(),
            runs.len(),
            one.display()
        ))),
    }
}

/// The files below a directory; links to directories are not followed.
fn walk(dir: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), CliFailure> {
    let failed = |error: io::Error| cannot("list", &dir.display().to_string(), &error);
    for entry in fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let kind = entry.file_type().map_err(failed)?;
        if !kind.is_dir() {
            found.push(entry.path());
        } else if depth > 0 {
            walk(&entry.path(), depth - 1, found)?;
        }
        if found.len() > FILES_MAX {
            return Err(CliFailure::Failed(format!("more than {FILES_MAX} files below {}", dir.display())));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
