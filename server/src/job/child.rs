//! The command of a job as a child process: started as if telem were not there, told what is meant for it,
//! and its end in the words of a shell.
//!
//! Its standard streams are telem's own, untouched; it stays in telem's process group and keeps the terminal;
//! nothing ties its life to telem's. It is signalled only before it was waited for, so never a stranger that
//! got its number.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::sync::mpsc::Sender;
use std::thread;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::Event;

/// The code of a command that is not there, as shells have it.
const NOT_FOUND: u8 = 127;
/// The code of a command that cannot be run.
const NOT_EXECUTABLE: u8 = 126;

#[derive(Debug, thiserror::Error)]
#[error("cannot run '{}': {source}", command.display())]
pub struct StartError {
    command: OsString,
    source: io::Error,
}

impl StartError {
    /// What telem exits with.
    pub fn exit_code(&self) -> u8 {
        if self.source.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE }
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Exited(u8),
    Killed { signal: u8 },
}

impl Ending {
    fn of(status: ExitStatus) -> Self {
        let byte = |number: i32| u8::try_from(number & 0xff).unwrap_or(u8::MAX);
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Exited(byte(code)),
            (None, signal) => Self::Killed { signal: byte(signal.unwrap_or(0)) },
        }
    }

    pub fn killed_by(signal: Signal) -> Self {
        Self::Killed { signal: u8::try_from(signal.as_raw()).unwrap_or(u8::MAX) }
    }

    /// What a shell would say: the exit code, or 128 and the signal.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Exited(code) => code,
            Self::Killed { signal } => 128_u8.saturating_add(signal),
        }
    }
}

/// Becomes the command. Returns, with the code to exit with, only when that cannot be run.
pub fn replace_this_process(command: &[OsString]) -> u8 {
    let (program, arguments) = split(command);
    let source = Command::new(program).args(arguments).exec();
    let error = StartError { command: program.to_owned(), source };
    tracing::error!("{error}");
    error.exit_code()
}

fn split(command: &[OsString]) -> (&OsStr, &[OsString]) {
    match command {
        [program, arguments @ ..] => (program, arguments),
        // The command line asks for one.
        [] => (OsStr::new(""), &[]),
    }
}

#[derive(Debug)]
pub struct Child {
    process: std::process::Child,
    ending: Option<Ending>,
}

impl Child {
    /// Starts `command`, a program and its arguments, with `environment` added to telem's own.
    ///
    /// # Errors
    /// When there is no such program, or it cannot be run.
    pub fn start(command: &[OsString], environment: &[(&str, OsString)]) -> Result<Child, StartError> {
        let (program, arguments) = split(command);
        let spawn = |mut command: Command| command.envs(environment.iter().map(|(name, value)| (name, value))).spawn();
        let with_arguments = |mut command: Command| {
            command.args(arguments);
            command
        };
        let started = spawn(with_arguments(Command::new(program)));
        let started = match started {
            // A script without `#!`: shells run it themselves.
            Err(error) if error.raw_os_error() == Some(Errno::NOEXEC.raw_os_error()) => {
                let mut shell = Command::new("/bin/sh");
                shell.arg(program);
                spawn(with_arguments(shell)).map_err(|_| error)
            }
            started => started,
        };
        let process = started.map_err(|source| StartError { command: program.to_owned(), source })?;
        Ok(Child { process, ending: None })
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Sends an event when it ends, also where telem was started with SIGCHLD blocked.
    ///
    /// # Errors
    /// When there is no thread for that.
    pub fn watch(&self, events: Sender<Event>) -> io::Result<()> {
        let id = WaitId::Pid(Pid::from_child(&self.process));
        let wait = move || {
            // It stays to be waited for, so that its number is its own for as long as it may be signalled.
            while matches!(waitid(id.clone(), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT), Err(Errno::INTR)) {}
            let _ = events.send(Event::ChildChanged);
        };
        thread::Builder::new().name("telem-command".to_owned()).spawn(wait).map(|_| ())
    }

    /// How it ended, if it has.
    pub fn ending(&mut self) -> Option<Ending> {
        if self.ending.is_none() {
            match self.process.try_wait() {
                Ok(status) => self.ending = status.map(Ending::of),
                Err(error) => {
                    // Somebody else waited for it, which nobody can: its fate is unknown, and it is over.
                    tracing::error!(%error, "the end of the command was lost");
                    self.ending = Some(Ending::Exited(1));
                }
            }
        }
        self.ending
    }

    /// Gives it `signal`, unless it has ended.
    pub fn pass_on(&mut self, signal: Signal) {
        if self.ending().is_some() {
            return;
        }
        // It may have ended since; until it is waited for, its number is nobody else's.
        if let Err(error) = kill_process(Pid::from_child(&self.process), signal) {
            tracing::warn!(%error, ?signal, "a signal could not be passed on");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    #[test]
    fn ends_have_the_codes_that_shells_give_them() {
        assert_eq!(Ending::of(ExitStatus::from_raw(0)).exit_code(), 0);
        assert_eq!(Ending::of(ExitStatus::from_raw(3 << 8)).exit_code(), 3);
        assert_eq!(Ending::of(ExitStatus::from_raw(255 << 8)).exit_code(), 255);
        assert_eq!(Ending::of(ExitStatus::from_raw(15)), Ending::Killed { signal: 15 });
        assert_eq!(Ending::of(ExitStatus::from_raw(9)).exit_code(), 137);
        assert_eq!(Ending::of(ExitStatus::from_raw(11 | 0x80)).exit_code(), 139, "with a core dump");
    }

    #[test]
    fn what_cannot_be_run_has_the_codes_that_shells_give_it() {
        let code = |command: &str| Child::start(&[command.into()], &[]).unwrap_err().exit_code();
        assert_eq!(code("no-such-command-of-telem"), 127);
        assert_eq!(code("/no/such/command"), 127);
        assert_eq!(code("/etc/passwd"), 126);
        assert_eq!(code("/"), 126);
    }

    #[test]
    fn the_end_of_the_command_is_an_event_and_its_code_is_there_then() {
        let mut child = Child::start(&["sh".into(), "-c".into(), "exit 7".into()], &[]).unwrap();
        let (send, events) = channel();
        child.watch(send).unwrap();
        assert!(matches!(events.recv_timeout(Duration::from_secs(60)), Ok(Event::ChildChanged)));
        assert_eq!(child.ending(), Some(Ending::Exited(7)));
    }
}
