//! Agents as processes of their head: how they are started, watched and ended.
//!
//! An agent is `telem node --join -`: it reads everything that it must know from its standard input, never from a
//! command line. That input stays open, so that the agent notices the end of its head, however it ended. `ssh` and
//! `srun` start agents on other hosts and run as long as the agent does, so its end and its last output are known here.
//! No function here waits: each checks the current state and returns it.

pub(crate) mod command;
#[cfg(test)]
mod tests;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use super::hostlist;
use super::plan::Fleet;

/// How much of what an agent said last is looked at for the reason of its end.
const LAST_WORDS_BYTES: u64 = 4 << 10;
/// How long an agent elsewhere goes on without a head when its standard input has ended: by then it is the head that is
/// gone, and not a connection that is about to be mended.
pub(crate) const ORPHAN_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest reason that is reported.
const WHY_CHARS_MAX: usize = 300;

/// What is to be started, and with what.
#[derive(Clone, Debug)]
pub struct AgentsOptions {
    pub fleet: Fleet,
    /// This program, as other hosts find it too.
    pub binary: PathBuf,
    /// The short name of this host, for the names of agents on it.
    pub host: String,
    /// Below it local agents keep their data, each in a directory of its own; `None`: where they do by themselves.
    pub data: Option<PathBuf>,
    /// Made for what the agents say: a file each.
    pub logs: PathBuf,
    /// See [`orphan_timeout`]; `None`: they do not heed the end of their standard input.
    pub orphan_timeout: Option<Duration>,
}

/// How long agents go on without a head once their standard input has ended, which it does with the head that started
/// them. Such a head does not return. On this machine there is no other reason for that end.
pub fn orphan_timeout(fleet: &Fleet) -> Duration {
    if fleet.is_local() { Duration::ZERO } else { ORPHAN_TIMEOUT }
}

/// The agents of a head. Those that run when this is dropped are left to themselves.
#[derive(Debug)]
pub struct Agents {
    processes: Vec<AgentProcess>,
    logs: PathBuf,
    /// They are processes of this machine, and a signal is theirs.
    are_here: bool,
}

#[derive(Debug)]
struct AgentProcess {
    /// The hosts that it is for.
    hosts: Vec<String>,
    log: PathBuf,
    state: AgentState,
}

#[derive(Debug)]
enum AgentState {
    Running(Child),
    NotStarted(io::Error),
    Ended(ExitStatus),
    /// It has ended, and that was reported.
    Told,
}

/// Some agents that have ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// As a host list.
    pub hosts: String,
    pub why: String,
    /// It ended in the way of an agent that was told to.
    pub in_order: bool,
}

impl Agents {
    /// Starts all of them; each gets `join`.
    ///
    /// # Errors
    /// When there is no place for their output.
    pub fn start(options: &AgentsOptions, join: &[u8]) -> io::Result<Agents> {
        let agents = Self::of(command::of_fleet(options), &options.logs, join)?;
        Ok(Agents { are_here: options.fleet.is_local(), ..agents })
    }

    /// Starts commands, each for some hosts.
    pub(super) fn of(commands: Vec<(Vec<String>, Command)>, logs: &Path, join: &[u8]) -> io::Result<Agents> {
        DirBuilder::new().recursive(true).mode(0o700).create(logs)?;
        let start = |(hosts, command): (Vec<String>, Command)| {
            let log = logs.join(format!("{}.log", log_name(&hosts)));
            let state = spawn(command, &log, join).map_or_else(AgentState::NotStarted, AgentState::Running);
            AgentProcess { hosts, log, state }
        };
        Ok(Agents { processes: commands.into_iter().map(start).collect(), logs: logs.to_path_buf(), are_here: true })
    }

    /// Those that ended since this was last asked.
    pub fn ended(&mut self) -> Vec<Ended> {
        self.processes.iter_mut().filter_map(AgentProcess::look).collect()
    }

    /// How many of the processes run.
    pub fn running(&self) -> usize {
        self.processes.iter().filter(|process| matches!(process.state, AgentState::Running(_))).count()
    }

    /// Whether a signal reaches the agents themselves, and not only what carries their words.
    pub fn are_here(&self) -> bool {
        self.are_here
    }

    /// Tells those that run to end.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Ends those that run.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// To their groups, so that what `ssh` and `srun` started beside them gets it too.
    fn signal(&self, signal: Signal) {
        for process in &self.processes {
            if let AgentState::Running(child) = &process.state {
                // It was not waited for, so its number is its own.
                let _ = kill_process_group(Pid::from_child(child), signal);
            }
        }
    }

    /// Where what they said is.
    pub fn logs(&self) -> &Path {
        &self.logs
    }

    /// Removes what they said.
    pub fn remove_logs(&self) {
        for process in &self.processes {
            let _ = fs::remove_file(&process.log);
        }
        // Something else may lie there.
        let _ = fs::remove_dir(&self.logs);
    }
}

impl AgentProcess {
    /// Its end, once.
    fn look(&mut self) -> Option<Ended> {
        if let AgentState::Running(child) = &mut self.state {
            match child.try_wait() {
                Ok(Some(status)) => self.state = AgentState::Ended(status),
                Ok(None) => return None,
                // Nothing else waits for it.
                Err(error) => self.state = AgentState::NotStarted(error),
            }
        }
        let (why, in_order) = match std::mem::replace(&mut self.state, AgentState::Told) {
            AgentState::NotStarted(error) => (format!("it cannot be started: {error}"), false),
            AgentState::Ended(status) => (self.why(status), status.success()),
            AgentState::Running(_) | AgentState::Told => return None,
        };
        Some(Ended { hosts: hostlist::fold(&self.hosts), why, in_order })
    }

    fn why(&self, status: ExitStatus) -> String {
        let how = match (status.code(), status.signal()) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => status.to_string(),
        };
        match last_words(&self.log) {
            Ok(Some(words)) => format!("{how}: {words}"),
            Ok(None) | Err(_) => how,
        }
    }
}

/// A process in a group of its own, which writes its output into `log` and gets `join`.
fn spawn(mut command: Command, log: &Path, join: &[u8]) -> io::Result<Child> {
    let log: File = OpenOptions::new().create(true).append(true).mode(0o600).open(log)?;
    command.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log).process_group(0);
    let mut child = command.spawn().map_err(|error| {
        let program = command.get_program().to_string_lossy();
        io::Error::new(error.kind(), format!("{program}: {error}"))
    })?;
    if let Some(to) = &mut child.stdin {
        // Less than a pipe holds, so the write cannot block. An agent that reads nothing ends, and that is reported.
        let _ = to.write_all(join);
    }
    Ok(child)
}

/// A name for a file: hosts are letters, digits and little else, and may be many.
fn log_name(hosts: &[String]) -> String {
    match hosts {
        [host] => host.replace(':', "_"),
        _ => "agents".to_owned(),
    }
}

/// The last line of a file that is not empty.
fn last_words(path: &Path) -> io::Result<Option<String>> {
    let mut file = File::open(path)?;
    let bytes = file.metadata()?.len();
    file.seek(SeekFrom::Start(bytes.saturating_sub(LAST_WORDS_BYTES)))?;
    let mut text = Vec::new();
    file.take(LAST_WORDS_BYTES).read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
    Ok(line.map(|line| line.chars().filter(|c| !c.is_control()).take(WHY_CHARS_MAX).collect()))
}
