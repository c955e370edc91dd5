//! What counters reached since their last samples, in a file beside those of the database: where samples are seldom, a
//! process that is killed would lose much otherwise. `docs/format/counters.md` says what is in it.
//!
//! Values are appended, one write for all that changed; that outlives the process, though not the machine. Once all of
//! them have later samples the file is empty again. While that takes long, the file is written anew when it is long, with
//! the last values alone. The next process makes samples of what it finds.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use telem_engine::{COUNTERS_TAIL, COUNTERS_TAIL_NEW, Db, Durability, SampleBatch, SeriesId, Timestamp, Value, crc32};

use super::changes::KeptPart;

const MAGIC: &[u8; 8] = b"TELEMCTL";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 12;
/// Before each frame: the length of what follows, and its checksum.
const FRAME_HEAD_BYTES: usize = 8;
const TIME_BYTES: usize = 8;
const ENTRY_BYTES: usize = 16;
/// Longest frame that is read.
const FRAME_BYTES_MAX: usize = 256 << 20;
/// Longer, and it is written anew; but never before it is four times as long as it was then.
const TAIL_BYTES_MAX: u64 = 32 << 20;
/// Most samples that are made at once.
const BATCH_SAMPLES_MAX: usize = 65_536;

/// The file.
#[derive(Debug)]
pub struct CounterTail {
    path: PathBuf,
    /// `None` until there is something to keep, and after a failure.
    file: Option<File>,
    bytes: u64,
    /// How long it was when it was written anew.
    whole_bytes: u64,
    /// Checksums of the keys of series, by id; 0 where it was not computed. An id alone might be that of another series
    /// after a power loss.
    sums: Vec<u32>,
    /// The last attempt failed.
    is_failing: bool,
    /// It has what could not be made samples of, and is left to the next process: nothing else is written there.
    is_held: bool,
}

impl CounterTail {
    /// Of a database.
    pub fn of(db: &Db) -> Self {
        match db.info() {
            Ok(info) => Self::at(info.dir.join(COUNTERS_TAIL)),
            Err(error) => {
                tracing::warn!(%error, "a kill would lose what counters reached since their last samples");
                Self { is_held: true, ..Self::at(PathBuf::new()) }
            }
        }
    }

    fn at(path: PathBuf) -> Self {
        Self { path, file: None, bytes: 0, whole_bytes: 0, sums: Vec::new(), is_failing: false, is_held: false }
    }

    pub fn has_values(&self) -> bool {
        self.bytes > HEADER_BYTES as u64
    }

    /// Whether it is to be written anew.
    pub(super) fn is_long(&self) -> bool {
        // Behind what a failure left nothing would be found.
        self.is_failing || self.bytes > TAIL_BYTES_MAX.max(4 * self.whole_bytes)
    }

    /// Keeps values that are these at `time`; `Whole` says that others count no more.
    pub(super) fn keep(&mut self, db: &Db, part: KeptPart, time: Timestamp, values: &[(SeriesId, f64)]) {
        if self.is_held {
            return;
        }
        let frame = self.frame(db, time, values);
        let kept = match part {
            KeptPart::Changed => self.append(&frame),
            KeptPart::Whole => self.replace(&frame),
        };
        match kept {
            Ok(()) => self.is_failing = false,
            Err(error) => {
                (self.file, self.bytes) = (None, 0);
                if !std::mem::replace(&mut self.is_failing, true) {
                    let file = self.path.display();
                    tracing::warn!(%file, %error, "a kill would lose what counters reached since their last samples");
                }
            }
        }
    }

    /// All of it has samples.
    pub fn clear(&mut self) {
        let Some(file) = &self.file else { return };
        if let Err(error) = file.set_len(HEADER_BYTES as u64) {
            // Its values are older than those samples, and count no more.
            tracing::debug!(%error, "what was kept of counters stays");
            return;
        }
        (self.bytes, self.whole_bytes) = (HEADER_BYTES as u64, 0);
    }

    fn frame(&mut self, db: &Db, time: Timestamp, values: &[(SeriesId, f64)]) -> Vec<u8> {
        let length = TIME_BYTES + values.len() * ENTRY_BYTES;
        let mut frame = Vec::with_capacity(FRAME_HEAD_BYTES + length);
        frame.extend_from_slice(&[0; FRAME_HEAD_BYTES]);
        frame.extend_from_slice(&time.micros().to_le_bytes());
        for (series, value) in values {
            frame.extend_from_slice(&series.0.to_le_bytes());
            frame.extend_from_slice(&self.sum(db, *series).to_le_bytes());
            frame.extend_from_slice(&value.to_bits().to_le_bytes());
        }
        let sum = crc32(&frame[FRAME_HEAD_BYTES..]);
        // There are fewer series than four bytes count, and a frame has 16 bytes for each.
        frame[..4].copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
        frame[4..FRAME_HEAD_BYTES].copy_from_slice(&sum.to_le_bytes());
        frame
    }

    fn sum(&mut self, db: &Db, series: SeriesId) -> u32 {
        let at = series.0 as usize;
        if self.sums.len() <= at {
            self.sums.resize(at + 1, 0);
        }
        if self.sums[at] == 0 {
            self.sums[at] = key_sum(db, series).unwrap_or(0);
        }
        self.sums[at]
    }

    fn append(&mut self, frame: &[u8]) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let file = self.file.insert(begin(&self.path)?);
                (self.bytes, self.whole_bytes) = (HEADER_BYTES as u64, 0);
                file
            }
        };
        file.write_all(frame)?;
        self.bytes += frame.len() as u64;
        Ok(())
    }

    /// The earlier one counts until the new one is whole.
    fn replace(&mut self, frame: &[u8]) -> io::Result<()> {
        let new = self.new_path();
        let mut file = begin(&new)?;
        file.write_all(frame)?;
        fs::rename(&new, &self.path)?;
        self.bytes = (HEADER_BYTES + frame.len()) as u64;
        self.whole_bytes = self.bytes;
        self.file = Some(file);
        Ok(())
    }

    fn new_path(&self) -> PathBuf {
        self.path.with_file_name(COUNTERS_TAIL_NEW)
    }

    /// Makes samples of what another process kept, and removes the file; how many.
    ///
    /// # Errors
    /// Those of the database; then the file stays, and nothing is kept until another process could read it.
    pub fn recover(&mut self, db: &Db) -> telem_engine::Result<usize> {
        if self.is_held {
            return Ok(0);
        }
        self.make_samples(db).inspect_err(|_| self.is_held = true)
    }

    fn make_samples(&mut self, db: &Db) -> telem_engine::Result<usize> {
        // It died before that came to its place.
        let _ = fs::remove_file(self.new_path());
        let kept = match read(&self.path) {
            Ok(kept) => kept,
            Err(error) => {
                if error.kind() != ErrorKind::NotFound {
                    self.is_held = true;
                    tracing::warn!(%error, file = %self.path.display(), "what was kept of counters cannot be read");
                }
                return Ok(0);
            }
        };
        let (mut batch, mut made) = (SampleBatch::with_capacity(kept.len().min(BATCH_SAMPLES_MAX)), 0);
        for (series, KeptValue { sum, time, value }) in kept {
            // Where its samples cannot be read nothing is known of it, and others are no worse for that.
            let is_later = || db.last(series).is_ok_and(|last| last.is_none_or(|(last, _)| last < time));
            if key_sum(db, series) != Some(sum) || !is_later() {
                continue;
            }
            batch.push(series, time, Value::Float(value));
            made += 1;
            if batch.len() == BATCH_SAMPLES_MAX {
                db.append(&batch, Durability::Buffered)?;
                batch.clear();
            }
        }
        db.append(&batch, Durability::Buffered)?;
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(%error, "a file of counters whose values are samples now stays");
        }
        Ok(made)
    }
}

/// A file without values.
fn begin(path: &Path) -> io::Result<File> {
    // Each write stands at the end, also after it was made empty.
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    file.set_len(0)?;
    let mut header = [0; HEADER_BYTES];
    header[..MAGIC.len()].copy_from_slice(MAGIC);
    header[MAGIC.len()..].copy_from_slice(&VERSION.to_le_bytes());
    file.write_all(&header)?;
    Ok(file)
}

fn key_sum(db: &Db, series: SeriesId) -> Option<u32> {
    db.index().key(series).map(|key| crc32(key.to_string().as_bytes()).max(1))
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct KeptValue {
    sum: u32,
    time: Timestamp,
    value: f64,
}

/// The last value of each series, up to the first frame that is not whole.
fn read(path: &Path) -> io::Result<HashMap<SeriesId, KeptValue>> {
    let mut file = BufReader::new(File::open(path)?);
    let mut kept = HashMap::new();
    let mut header = [0; HEADER_BYTES];
    if !fill(&mut file, &mut header)? {
        // It was made when its writer was killed, and nothing was kept yet.
        return Ok(kept);
    }
    if !header.starts_with(MAGIC) {
        return Err(io::Error::new(ErrorKind::InvalidData, "it does not begin as such a file does"));
    }
    if header[MAGIC.len()..] != VERSION.to_le_bytes() {
        return Err(io::Error::new(ErrorKind::InvalidData, "it is of another version of telem"));
    }
    let mut head = [0; FRAME_HEAD_BYTES];
    let mut frame = Vec::new();
    while fill(&mut file, &mut head)? {
        let (length, sum) = (u32_at(&head, 0) as usize, u32_at(&head, 4));
        if !(TIME_BYTES..=FRAME_BYTES_MAX).contains(&length) {
            break;
        }
        frame.resize(length, 0);
        if !fill(&mut file, &mut frame)? || crc32(&frame) != sum {
            break;
        }
        let (time, entries) = frame.split_at(TIME_BYTES);
        let time = Timestamp::from_micros(u64_at(time, 0).cast_signed());
        for entry in entries.chunks_exact(ENTRY_BYTES) {
            let (series, sum) = (SeriesId(u32_at(entry, 0)), u32_at(entry, 4));
            kept.insert(series, KeptValue { sum, time, value: f64::from_bits(u64_at(entry, 8)) });
        }
    }
    Ok(kept)
}

/// Whether there was as much.
fn fill(file: &mut impl Read, bytes: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |four| u32::from_le_bytes(*four))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |eight| u64::from_le_bytes(*eight))
}

#[cfg(test)]
mod tests;
