//! Programs of others that are asked something, or told something: squeue, Extra-P, FTIO, the command of an alarm.
//!
//! Each has a group of processes of its own and a deadline, and what it says is bounded. One that is late, says too much,
//! or whose answer nobody waits for any more is killed with all that it started.

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rustix::fs::{Access, access};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use telem_engine::Clock;
use tokio::sync::{Semaphore, oneshot};

/// How often it is looked whether a program ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// How much of its complaints is told.
const WORDS_BYTES_MAX: u64 = 4 << 10;
const WORDS_CHARS_MAX: usize = 300;
/// Programs that run at once; further ones wait.
pub const PROGRAMS_MAX: usize = 4;

/// What is run.
#[derive(Clone, Debug)]
pub struct Program {
    pub path: PathBuf,
    pub arguments: Vec<OsString>,
    pub environment: Vec<(&'static str, OsString)>,
    pub input: Vec<u8>,
    /// Longest that it may take.
    pub deadline: Duration,
    /// Most that it may say.
    pub output_bytes_max: u64,
}

/// Why a program gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    #[error("{program} is not on the PATH")]
    Absent { program: String },
    #[error("{program} cannot be run: {source}")]
    Start { program: String, source: io::Error },
    #[error("{program} took longer than {} s", deadline.as_secs_f64())]
    Late { program: String, deadline: Duration },
    #[error("{program} ended with {status}: {words}")]
    Failed { program: String, status: ExitStatus, words: String },
    #[error("{program} said more than {max} bytes")]
    LongOutput { program: String, max: u64 },
    #[error("no request waits for {program} any more")]
    Unwanted { program: String },
}

/// The programs of one server.
#[derive(Debug)]
pub struct Programs {
    clock: Arc<dyn Clock>,
    /// Where programs are looked for, with colons between.
    search_path: OsString,
    places: Semaphore,
}

impl Programs {
    pub fn new(clock: Arc<dyn Clock>, search_path: Option<OsString>) -> Self {
        let search_path = search_path.or_else(|| std::env::var_os("PATH")).unwrap_or_default();
        Self { clock, search_path, places: Semaphore::new(PROGRAMS_MAX) }
    }

    /// Where a program is, as a shell finds it.
    ///
    /// # Errors
    /// Absent.
    pub fn find(&self, name: &str) -> Result<PathBuf, ProgramError> {
        let is_program = |path: &PathBuf| path.is_file() && access(path, Access::EXEC_OK).is_ok();
        let mut places = std::env::split_paths(&self.search_path).filter(|place| place.is_absolute());
        let found = places.find_map(|place| Some(place.join(name)).filter(is_program));
        found.ok_or_else(|| ProgramError::Absent { program: name.to_owned() })
    }

    /// Runs a program and answers with what it said. If the answer is not waited for any more the program ends.
    ///
    /// # Errors
    /// Everything but success.
    pub async fn ask(&self, program: Program) -> Result<Vec<u8>, ProgramError> {
        let name = name_of(&program.path);
        let unwanted = || ProgramError::Unwanted { program: name.clone() };
        let _place = self.places.acquire().await.map_err(|_| unwanted())?;
        let (answer, answered) = oneshot::channel();
        let clock = Arc::clone(&self.clock);
        let asking = move || {
            let said = run(&program, &*clock, &|| answer.is_closed());
            // Whoever asked may be gone.
            let _ = answer.send(said);
        };
        // A thread of its own: the runtime waits for its own ones when it ends.
        let started = thread::Builder::new().name("telem-program".to_owned()).spawn(asking);
        started.map_err(|source| ProgramError::Start { program: name.clone(), source })?;
        answered.await.map_err(|_| unwanted())?
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

fn run(program: &Program, clock: &dyn Clock, is_unwanted: &dyn Fn() -> bool) -> Result<Vec<u8>, ProgramError> {
    let cannot = |source| ProgramError::Start { program: name_of(&program.path), source };
    let until = clock.monotonic().saturating_add(program.deadline);
    let mut command = Command::new(&program.path);
    command.args(&program.arguments).envs(program.environment.iter().map(|(key, value)| (key, value)));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(cannot)?;
    let talk = ProgramTalk::begin(&mut child, program).map_err(cannot);
    let heard = talk.and_then(|talk| {
        let is_over = || clock.monotonic() >= until;
        talk.listen(program, || has_ended(&child).map_err(cannot), is_over, is_unwanted)
    });
    if heard.is_err() {
        // It was not waited for, so its number is its own.
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
    }
    let status = child.wait().map_err(cannot)?;
    let (said, complained) = heard?;
    match status.success() {
        true => Ok(said),
        false => {
            let (program, words) = (name_of(&program.path), words(&complained));
            Err(ProgramError::Failed { program, status, words })
        }
    }
}

/// Whether a process is over; its number stays its own.
fn has_ended(child: &Child) -> io::Result<bool> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Ok(waitid(WaitId::Pid(Pid::from_child(child)), options)?.is_some())
}

/// Takes what a thread has read, once it has, or waits for a moment.
fn wait_for(from: &Receiver<Vec<u8>>, to: &mut Option<Vec<u8>>) {
    if to.is_some() {
        thread::park_timeout(LOOK_INTERVAL / 2);
        return;
    }
    match from.recv_timeout(LOOK_INTERVAL / 2) {
        Ok(read) => *to = Some(read),
        Err(RecvTimeoutError::Timeout) => {}
        Err(RecvTimeoutError::Disconnected) => *to = Some(Vec::new()),
    }
}

/// The threads that write to a program and read from it.
struct ProgramTalk {
    said: Receiver<Vec<u8>>,
    complained: Receiver<Vec<u8>>,
}

impl ProgramTalk {
    fn begin(child: &mut Child, program: &Program) -> io::Result<Self> {
        let thread = |name: &str, work: Box<dyn FnOnce() + Send>| {
            thread::Builder::new().name(name.to_owned()).spawn(work).map(|_| ())
        };
        if let Some(mut stdin) = child.stdin.take()
            && !program.input.is_empty()
        {
            let input = program.input.clone();
            // It may end without reading all of it.
            thread("telem-tell", Box::new(move || drop(stdin.write_all(&input))))?;
        }
        let (say, said) = mpsc::channel();
        if let Some(stdout) = child.stdout.take() {
            let max = program.output_bytes_max;
            thread("telem-hear", Box::new(move || drop(say.send(read_up_to(stdout, max + 1)))))?;
        }
        let (complain, complained) = mpsc::channel();
        if let Some(mut stderr) = child.stderr.take() {
            let hear = move || {
                let words = read_up_to(&mut stderr, WORDS_BYTES_MAX);
                // Whoever complains more is not stopped by a pipe that is full.
                let _ = io::copy(&mut stderr, &mut io::sink());
                let _ = complain.send(words);
            };
            thread("telem-hear", Box::new(hear))?;
        }
        Ok(Self { said, complained })
    }

    /// What it says and what it complains of, both to their ends: what it started may still speak when it is over.
    fn listen(
        &self,
        program: &Program,
        has_ended: impl Fn() -> Result<bool, ProgramError>,
        is_late: impl Fn() -> bool,
        is_unwanted: &dyn Fn() -> bool,
    ) -> Result<(Vec<u8>, Vec<u8>), ProgramError> {
        let name = || name_of(&program.path);
        let (mut said, mut complained): (Option<Vec<u8>>, Option<Vec<u8>>) = (None, None);
        loop {
            wait_for(&self.said, &mut said);
            wait_for(&self.complained, &mut complained);
            let max = program.output_bytes_max;
            if said.as_ref().is_some_and(|said| said.len() as u64 > max) {
                return Err(ProgramError::LongOutput { program: name(), max });
            }
            if said.is_some() && complained.is_some() && has_ended()? {
                return Ok((said.unwrap_or_default(), complained.unwrap_or_default()));
            }
            if is_unwanted() {
                return Err(ProgramError::Unwanted { program: name() });
            }
            if is_late() {
                return Err(ProgramError::Late { program: name(), deadline: program.deadline });
            }
        }
    }
}

fn read_up_to(from: impl Read, max: u64) -> Vec<u8> {
    let mut read = Vec::new();
    // What was read before an error counts.
    let _ = from.take(max).read_to_end(&mut read);
    read
}

/// The end of a complaint, as one line.
fn words(complained: &[u8]) -> String {
    let text = String::from_utf8_lossy(complained);
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    let skipped = line.chars().count().saturating_sub(WORDS_CHARS_MAX);
    line.chars().skip(skipped).collect()
}
