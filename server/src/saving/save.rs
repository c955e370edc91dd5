//! Saves a job: a copy of the live database grows in a lasting place while the job runs.
//!
//! A dedicated thread steps an engine [`Mirror`] every few seconds. So a job that is killed leaves a copy that opens
//! and lacks only seconds. The copy is finished once the database is closed. A place that cannot be written is reported
//! once and retried; the job never waits for it.
//!
//! The head of a job and the agents on its nodes save in the same way: only the [`CopyPlace`] differs.

pub(crate) mod destination;
pub mod note;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use telem_engine::disk::OsDisk;
use telem_engine::{Db, Error, Mirror, MirrorReport};

pub use self::destination::{Destination, Naming};
pub use self::note::SaveNote;
use crate::saving::upload::{NodePlace, UploadProgress};

/// How often, at the least, the copy is brought up to date.
pub const INTERVAL_MAX: Duration = Duration::from_secs(60);
/// How soon after each other the first steps follow: what a job is, and its first samples, are saved at once.
const FIRST_STEPS: [Duration; 2] = [Duration::from_millis(200), Duration::from_millis(800)];
/// How often finishing a copy is tried.
const FINISH_ATTEMPTS: u32 = 3;
/// How long to wait between two of them.
const FINISH_PAUSE: Duration = Duration::from_secs(1);
/// How often a node reports its progress to the head, besides changes in kind.
const TOLD_EVERY: Duration = Duration::from_secs(15);
/// How many directories are tried in a row: one may be another process's, or hold something else.
const PLACES_TRIED: u32 = 3;

/// Where a database is saved.
#[derive(Debug)]
pub enum CopyPlace {
    /// In a directory that we make.
    Own(Destination),
    /// Where the head of our job says.
    OfNode(NodePlace),
}

impl From<Destination> for CopyPlace {
    fn from(destination: Destination) -> Self {
        Self::Own(destination)
    }
}

impl From<NodePlace> for CopyPlace {
    fn from(place: NodePlace) -> Self {
        Self::OfNode(place)
    }
}

impl CopyPlace {
    fn dir(&self) -> &Path {
        match self {
            Self::Own(destination) => destination.path(),
            Self::OfNode(place) => place.dir(),
        }
    }

    /// Others took the directory, or removed it: the next is another.
    fn give_up(&mut self) {
        match self {
            Self::Own(destination) => destination.give_up(),
            Self::OfNode(place) => place.avoid(),
        }
    }

    fn interval(&self, interval: Duration) -> Duration {
        match self {
            Self::Own(_) => interval,
            Self::OfNode(place) => place.interval(interval),
        }
    }

    fn tell(&self, progress: &UploadProgress) {
        if let Self::OfNode(place) = self {
            place.tell(progress);
        }
    }
}

enum SaveCommand {
    /// It may be the last moment.
    Now,
    /// The database is closed.
    Finish,
}

/// The thread that saves. It ends when this is dropped, or after [`Saver::finish`].
#[derive(Debug)]
pub struct Saver {
    commands: Sender<SaveCommand>,
}

impl Saver {
    /// Starts saving `db`. Every `interval` the copy is brought up to date: that much it may lack when everything is
    /// killed, besides what was not yet synced. A node that sends its files does it every ten seconds at the most.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub fn start<E: From<Saved> + Send + 'static>(
        db: Db,
        place: impl Into<CopyPlace>,
        interval: Duration,
        events: Sender<E>,
    ) -> io::Result<Saver> {
        let (commands, wanted) = channel();
        let info = db.info().map_err(io::Error::other)?;
        let saving = CopyThread {
            db,
            database: info.database,
            live: info.dir,
            place: place.into(),
            mirror: None,
            failing: false,
            removed: false,
            stepped: false,
            copied: 0,
            untold: Duration::MAX,
        };
        let run = move || saving.run(interval, &wanted, &events);
        thread::Builder::new().name("telem-save".to_owned()).spawn(run)?;
        Ok(Saver { commands })
    }

    /// Brings the copy up to date soon. It is not waited for.
    pub fn save_now(&self) {
        // A thread that is gone has said why.
        let _ = self.commands.send(SaveCommand::Now);
    }

    /// Makes the last step, of a database that is closed or will never be; [`Saved`] follows.
    pub fn finish(&self) {
        let _ = self.commands.send(SaveCommand::Finish);
    }
}

/// What came of saving.
#[derive(Debug)]
pub struct Saved {
    pub dir: PathBuf,
    /// Why the copy is not complete.
    pub failed: Option<String>,
    /// There is no copy at all.
    pub nothing: bool,
}

impl Saved {
    pub fn not_in_time(dir: PathBuf) -> Self {
        Self { dir, failed: Some("it took too long".to_owned()), nothing: false }
    }
}

struct CopyThread {
    db: Db,
    /// Its id.
    database: String,
    /// Its directory.
    live: PathBuf,
    place: CopyPlace,
    mirror: Option<Mirror>,
    /// The last attempt failed, and that was reported.
    failing: bool,
    /// The live data is gone, and that was reported.
    removed: bool,
    /// A step has succeeded: there is something to open.
    stepped: bool,
    /// Bytes so far.
    copied: u64,
    /// The time since the last report of our progress.
    untold: Duration,
}

impl CopyThread {
    fn run<E: From<Saved>>(mut self, interval: Duration, commands: &Receiver<SaveCommand>, events: &Sender<E>) {
        self.note();
        // At once, so that there is something to open however soon the end comes.
        self.step();
        let mut first_steps = FIRST_STEPS.into_iter();
        loop {
            let interval = self.place.interval(interval);
            let pause = first_steps.next().map_or(interval, |pause| pause.min(interval));
            self.untold = self.untold.saturating_add(pause);
            match commands.recv_timeout(pause) {
                Err(RecvTimeoutError::Timeout) => self.step(),
                Ok(SaveCommand::Now) => self.save_now(),
                Ok(SaveCommand::Finish) => break,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
        let failed = self.finish(commands).err();
        if failed.is_none() {
            SaveNote::remove(&self.live);
        }
        let dir = self.place.dir().to_path_buf();
        let nothing = failed.is_some() && !self.stepped;
        if let CopyPlace::Own(destination) = &self.place
            && nothing
            && self.mirror.take().is_some()
        {
            // No database: what there is of one is nothing to anybody.
            let _ = fs::remove_dir_all(&dir);
            let _ = fs::remove_dir(destination.parent());
        }
        self.place.tell(&UploadProgress {
            bytes: self.copied,
            lacking: 0,
            done: failed.is_none(),
            failed: failed.clone(),
        });
        // Nobody listens when the process is about to end anyway.
        let _ = events.send(E::from(Saved { dir, failed, nothing }));
    }

    /// First what is quick, then what makes the copy small and quick to open.
    fn save_now(&mut self) {
        self.step();
        match self.db.flush() {
            Ok(_) => self.step(),
            // Told by the writer, which tries again.
            Err(error) => tracing::debug!(%error, "no flush before the end"),
        }
    }

    fn step(&mut self) {
        self.watch_live();
        // Nothing else does that for a description of the job. A disk failure was reported by the writer.
        if let Err(error) = self.db.sync() {
            tracing::debug!(%error, "the last samples could not be made durable");
        }
        match self.try_to(Mirror::step) {
            Ok(report) => {
                tracing::debug!(?report, "saved");
                let first = !std::mem::replace(&mut self.stepped, true);
                if std::mem::take(&mut self.failing) {
                    tracing::warn!(dir = %self.place.dir().display(), "saving works again");
                }
                if first || self.untold >= TOLD_EVERY {
                    self.tell_progress();
                }
            }
            Err(error) if !self.failing => {
                self.failing = true;
                if !self.removed {
                    tracing::warn!(
                        "cannot save in {}: {error}. It is tried again every few seconds; give another --save DIR \
                         that you may write if this stays so",
                        self.place.dir().display()
                    );
                }
            }
            Err(error) => tracing::debug!(error, "still cannot save"),
        }
    }

    fn tell_progress(&mut self) {
        self.untold = Duration::ZERO;
        let lacking = self.mirror.as_ref().and_then(|mirror| mirror.lacking().ok()).unwrap_or(0);
        self.place.tell(&UploadProgress { bytes: self.copied, lacking, ..UploadProgress::default() });
    }

    /// Says once that somebody removed the live data.
    fn watch_live(&mut self) {
        // A disk that does not answer has not lost them.
        let gone =
            !self.removed && fs::metadata(&self.live).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        if gone {
            self.removed = true;
            tracing::error!(
                "the live data in {} was removed: new samples are only in memory, and are saved in {} at the end; choose \
                 a --data DIR that is not cleaned up",
                self.live.display(),
                self.place.dir().display()
            );
        }
    }

    fn finish(&mut self, commands: &Receiver<SaveCommand>) -> Result<(), String> {
        self.watch_live();
        self.tell_progress();
        let mut attempt = 1;
        loop {
            // What could not be closed may still be had from memory.
            let last = if self.db.is_closed() { Mirror::finish } else { Mirror::rescue };
            match self.try_to(last) {
                Ok(_) => return Ok(()),
                Err(error) if attempt >= FINISH_ATTEMPTS => return Err(error),
                Err(error) => tracing::debug!(error, attempt, "the copy could not be finished"),
            }
            attempt += 1;
            // Nothing is asked for any more but to end.
            if let Err(RecvTimeoutError::Disconnected) = commands.recv_timeout(FINISH_PAUSE) {
                return Err("telem ended".to_owned());
            }
        }
    }

    /// A step of the mirror. If its copy was removed or replaced, it begins anew in a directory of its own.
    fn try_to(
        &mut self,
        step: impl Fn(&mut Mirror) -> telem_engine::Result<MirrorReport>,
    ) -> Result<MirrorReport, String> {
        let done = step(self.mirror()?);
        if done.is_ok() || !self.mirror.as_ref().is_some_and(Mirror::is_lost) {
            if done.is_err() {
                self.find_again();
            }
            return done.map(|report| self.count(report)).map_err(|error| error.to_string());
        }
        let lost = self.place.dir().to_path_buf();
        self.mirror = None;
        self.place.give_up();
        let report = step(self.mirror()?).map_err(|error| error.to_string())?;
        tracing::warn!(
            "the copy in {} was removed or replaced; all samples are saved anew in {}",
            lost.display(),
            self.place.dir().display()
        );
        Ok(self.count(report))
    }

    fn count(&mut self, report: MirrorReport) -> MirrorReport {
        self.copied += report.bytes + report.wal_bytes;
        report
    }

    /// After an error: a restarted head must be asked again, and may give another directory.
    fn find_again(&mut self) {
        let CopyPlace::OfNode(place) = &mut self.place else { return };
        place.ask_again();
        if let Ok(found) = place.find(&self.database)
            && self.mirror.as_ref().is_some_and(|mirror| mirror.dir() != found.dir)
        {
            self.mirror = None;
        }
    }

    /// The mirror, begun if it is not.
    fn mirror(&mut self) -> Result<&mut Mirror, String> {
        if self.mirror.is_none() {
            self.mirror = Some(self.begin()?);
            self.note();
        }
        self.mirror.as_mut().ok_or_else(String::new)
    }

    /// Says in the live data where they are saved, for whoever finds them when the job was killed.
    fn note(&self) {
        let note = match &self.place {
            CopyPlace::Own(destination) => {
                let copy = self.mirror.is_some().then(|| destination.path().to_path_buf());
                SaveNote::new(Some(destination.parent().to_path_buf()), copy)
            }
            CopyPlace::OfNode(place) => SaveNote::new(place.save().map(Path::to_path_buf), place.seen_from_here()),
        };
        if let Err(error) = note.and_then(|note| note.write(&self.live)) {
            tracing::debug!(%error, "the note on where the live data is saved cannot be written");
        }
    }

    fn begin(&mut self) -> Result<Mirror, String> {
        match &mut self.place {
            CopyPlace::Own(destination) => {
                let dir = destination.claim().map_err(|error| error.to_string())?.to_path_buf();
                Mirror::begin(&self.db, &dir, Arc::new(OsDisk)).map_err(|error| {
                    // Half made, it would not be empty at the next attempt. It is ours alone.
                    let _ = fs::remove_dir_all(dir);
                    destination.give_up();
                    error.to_string()
                })
            }
            CopyPlace::OfNode(place) => {
                let mut failed = String::new();
                for _ in 0..PLACES_TRIED {
                    let found = place.find(&self.database).map_err(|error| error.to_string())?;
                    let error = match Mirror::resume(&self.db, &found.dir, found.disk) {
                        Ok(mirror) => return Ok(mirror),
                        Err(error) => error,
                    };
                    failed = error.to_string();
                    match error {
                        Error::Locked { .. } | Error::NotEmpty { .. } => place.avoid(),
                        _ if place.send_instead() => {}
                        _ => {
                            place.ask_again();
                            break;
                        }
                    }
                }
                Err(failed)
            }
        }
    }
}
