//! Saving: a copy of the live database grows in a lasting place while the job runs.
//!
//! A thread of its own steps an engine [`Mirror`] every few seconds, so that a job that is killed leaves a copy that
//! opens and lacks seconds. Once the database is closed the copy is finished. A place that cannot be written is told
//! once and tried again; the job never waits for it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use telem_engine::disk::OsDisk;
use telem_engine::{Db, Mirror, MirrorReport};

use super::Event;
use super::claim::claim;

/// How often, at the least, the copy is brought up to date.
pub const INTERVAL_MAX: Duration = Duration::from_secs(60);
/// How soon after each other the first steps follow: what a job is, and its first samples, are saved at once.
const FIRST_STEPS: [Duration; 2] = [Duration::from_millis(200), Duration::from_millis(800)];
/// How often finishing a copy is tried.
const FINISH_ATTEMPTS: u32 = 3;
/// How long to wait between two of them.
const FINISH_PAUSE: Duration = Duration::from_secs(1);

/// Where a database is saved: the first of `DIR/node`, `DIR/node-2`, ... that nobody has.
#[derive(Debug)]
pub struct Destination {
    parent: PathBuf,
    name: String,
    claimed: Option<PathBuf>,
}

impl Destination {
    pub fn new(parent: PathBuf, node: &str) -> Self {
        Self { parent, name: node.to_owned(), claimed: None }
    }

    /// Makes the directory, unless that was done.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn claim(&mut self) -> io::Result<&Path> {
        if self.claimed.is_none() {
            self.claimed = Some(claim(&self.parent, &self.name)?);
        }
        Ok(self.path())
    }

    /// As [`Destination::claim`], but not waited for longer than `patience`: a file system that hangs is for the saving
    /// thread to wait for, which claims again.
    ///
    /// # Errors
    /// When it cannot be made, and TimedOut.
    pub fn claim_within(&mut self, patience: Duration) -> io::Result<()> {
        let (send, claimed) = channel();
        let mut own = Self { claimed: self.claimed.clone(), parent: self.parent.clone(), name: self.name.clone() };
        let claim = move || {
            let made = own.claim().map(|_| ());
            if let Err(unheard) = send.send((made, own.claimed.clone())) {
                // Nobody waited: what was made at last is nobody's.
                own.claimed = unheard.0.1;
                own.discard();
            }
        };
        thread::Builder::new().name("telem-claim".to_owned()).spawn(claim)?;
        let (made, path) = claimed.recv_timeout(patience).map_err(|_| {
            let why = format!("its file system has not answered for {} s", patience.as_secs_f64());
            io::Error::new(io::ErrorKind::TimedOut, why)
        })?;
        self.claimed = path;
        made
    }

    /// The directory above.
    pub fn parent(&self) -> &Path {
        &self.parent
    }

    /// The directory; while there is none, the one above.
    pub fn path(&self) -> &Path {
        self.claimed.as_deref().unwrap_or(&self.parent)
    }

    /// The id of the database that is saved there.
    pub fn node(&self) -> String {
        let claimed = self.claimed.as_deref().and_then(Path::file_name);
        claimed.map_or_else(|| self.name.clone(), |name| name.to_string_lossy().into_owned())
    }

    /// Lets go of the directory, which others took or removed: the next claim makes another.
    fn give_up(&mut self) {
        self.claimed = None;
    }

    /// Removes what was made, where nothing lies in it.
    pub fn discard(&mut self) {
        if let Some(claimed) = self.claimed.take() {
            // What is not empty, or not there, stays as it is.
            let _ = fs::remove_dir(claimed);
            let _ = fs::remove_dir(&self.parent);
        }
    }
}

enum Command {
    /// It may be the last moment.
    Now,
    /// The database is closed.
    Finish,
}

/// The thread that saves. It ends when this is dropped, or after [`Saver::finish`].
#[derive(Debug)]
pub struct Saver {
    commands: Sender<Command>,
}

impl Saver {
    /// Starts saving `db`. Every `interval` the copy is brought up to date: that much it may lack when everything is
    /// killed, besides what was not yet synced.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub fn start(db: Db, destination: Destination, interval: Duration, events: Sender<Event>) -> io::Result<Saver> {
        let (commands, wanted) = channel();
        let live = db.info().map(|info| info.dir).map_err(io::Error::other)?;
        let saving = Saving { db, live, destination, mirror: None, failing: false, removed: false, stepped: false };
        let run = move || saving.run(interval, &wanted, &events);
        thread::Builder::new().name("telem-save".to_owned()).spawn(run)?;
        Ok(Saver { commands })
    }

    /// Brings the copy up to date soon. It is not waited for.
    pub fn save_now(&self) {
        // A thread that is gone has said why.
        let _ = self.commands.send(Command::Now);
    }

    /// Makes the last step; [`Event::Saved`] follows.
    pub fn finish(&self) {
        let _ = self.commands.send(Command::Finish);
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

struct Saving {
    db: Db,
    /// Its directory.
    live: PathBuf,
    destination: Destination,
    mirror: Option<Mirror>,
    /// The last attempt failed, and that was told.
    failing: bool,
    /// The live data are gone, and that was told.
    removed: bool,
    /// A step has succeeded: there is something to open.
    stepped: bool,
}

impl Saving {
    fn run(mut self, interval: Duration, commands: &Receiver<Command>, events: &Sender<Event>) {
        // At once, so that there is something to open however soon the end comes.
        self.step();
        let mut first_steps = FIRST_STEPS.into_iter();
        loop {
            let pause = first_steps.next().map_or(interval, |pause| pause.min(interval));
            match commands.recv_timeout(pause) {
                Err(RecvTimeoutError::Timeout) => self.step(),
                Ok(Command::Now) => self.save_now(),
                Ok(Command::Finish) => break,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
        let failed = self.finish(commands).err();
        let dir = self.destination.path().to_path_buf();
        let nothing = failed.is_some() && !self.stepped;
        if nothing && self.mirror.take().is_some() {
            // No database: what there is of one is nothing to anybody.
            let _ = fs::remove_dir_all(&dir);
            let _ = fs::remove_dir(&self.destination.parent);
        }
        // Nobody listens when the process is about to end anyway.
        let _ = events.send(Event::Saved(Saved { dir, failed, nothing }));
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
        // Nobody else does that for a description of the job. A disk that fails was told by the writer.
        if let Err(error) = self.db.sync() {
            tracing::debug!(%error, "the last samples could not be made durable");
        }
        match self.try_to(Mirror::step) {
            Ok(report) => {
                tracing::debug!(?report, "saved");
                self.stepped = true;
                if std::mem::take(&mut self.failing) {
                    tracing::warn!(dir = %self.destination.path().display(), "saving works again");
                }
            }
            Err(error) if !self.failing => {
                self.failing = true;
                if !self.removed {
                    tracing::warn!(
                        "cannot save in {}: {error}. It is tried again every few seconds; give another --save DIR \
                         that you may write if this stays so",
                        self.destination.path().display()
                    );
                }
            }
            Err(error) => tracing::debug!(error, "still cannot save"),
        }
    }

    /// Says once that somebody removed the live data.
    fn watch_live(&mut self) {
        // A disk that does not answer has not lost them.
        let gone =
            !self.removed && fs::metadata(&self.live).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        if gone {
            self.removed = true;
            tracing::error!(
                "the live data in {} were removed by somebody: what comes in now is in memory alone, and is saved in {} \
                 at the end; choose a --data DIR that nobody tidies",
                self.live.display(),
                self.destination.path().display()
            );
        }
    }

    fn finish(&mut self, commands: &Receiver<Command>) -> Result<(), String> {
        self.watch_live();
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

    /// A step of the mirror. One whose copy was removed or taken is begun anew, in a directory of its own.
    fn try_to(
        &mut self,
        step: impl Fn(&mut Mirror) -> telem_engine::Result<MirrorReport>,
    ) -> Result<MirrorReport, String> {
        let done = step(self.mirror()?);
        if done.is_ok() || !self.mirror.as_ref().is_some_and(Mirror::is_lost) {
            return done.map_err(|error| error.to_string());
        }
        let lost = self.destination.path().to_path_buf();
        self.mirror = None;
        self.destination.give_up();
        let report = step(self.mirror()?).map_err(|error| error.to_string())?;
        tracing::warn!(
            "the copy in {} was removed by somebody; all samples are saved anew in {}",
            lost.display(),
            self.destination.path().display()
        );
        Ok(report)
    }

    /// The mirror, begun if it is not.
    fn mirror(&mut self) -> Result<&mut Mirror, String> {
        if self.mirror.is_none() {
            let dir = self.destination.claim().map_err(|error| error.to_string())?.to_path_buf();
            let begun = Mirror::begin(&self.db, &dir, Arc::new(OsDisk)).map_err(|error| error.to_string());
            if begun.is_err() {
                // Half made, it would not be empty at the next attempt. It is ours alone.
                let _ = fs::remove_dir_all(dir);
                self.destination.claimed = None;
            }
            self.mirror = Some(begun?);
        }
        self.mirror.as_mut().ok_or_else(String::new)
    }
}
