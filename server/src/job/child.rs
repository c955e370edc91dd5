//! The command of a job as a child process: it is started as if telem were not there, gets the signals that are meant
//! for it, and its end is reported as a shell would.
//!
//! Its standard streams are telem's own, untouched. It stays in telem's process group and keeps the terminal; its life
//! does not depend on telem's. It gets signals only before it was waited for, so they never reach a stranger that got
//! its number.
//!
//! Signals have the same effect on it as on telem when telem was started. Two things would change that. The C library's
//! posix_spawn(3), which the standard library prefers, makes children ignore signals 32 and 33; so the command is
//! started by fork(2). And the standard library gives every child the default for SIGPIPE; if SIGPIPE must be ignored,
//! `env` is started, which ignores it and becomes the command.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, Command, Stdio};
use std::sync::mpsc::Sender;
use std::{fs, io, thread};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitStatus, getegid, getgid, getpgid, getpgrp, kill_process, waitid,
};
use rustix::stdio::{dup2_stdin, dup2_stdout};
use serde::{Deserialize, Serialize};

use super::signals::{self, Caught};

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

    /// Whether it might have started had telem taken less: processes, descriptors, memory.
    pub fn is_scarcity(&self) -> bool {
        let scarce = [Errno::AGAIN, Errno::NOMEM, Errno::MFILE, Errno::NFILE];
        self.source.raw_os_error().is_some_and(|error| scarce.contains(&Errno::from_raw_os_error(error)))
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    Exited(u8),
    Killed { signal: u8 },
}

impl Ending {
    /// `None` for a process that has not ended.
    fn of(status: WaitStatus) -> Option<Self> {
        let byte = |number: i32| u8::try_from(number & 0xff).unwrap_or(u8::MAX);
        match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Some(Self::Exited(byte(code))),
            (None, Some(signal)) => Some(Self::Killed { signal: byte(signal) }),
            (None, None) => None,
        }
    }

    pub fn killed_by(signal: i32) -> Self {
        Self::Killed { signal: u8::try_from(signal).unwrap_or(u8::MAX) }
    }

    /// What a shell would say: the exit code, or 128 and the signal.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Exited(code) => code,
            Self::Killed { signal } => 128_u8.saturating_add(signal),
        }
    }
}

/// Becomes the command, with `environment` added to telem's own. Returns, with what kept it from that, only when it
/// cannot be run.
pub fn replace_this_process(command: &[OsString], environment: &[(String, OsString)]) -> StartError {
    let (program, _) = split(command);
    let source = match ChildPlan::of(command) {
        Ok(plan) => plan.command().envs(environment.iter().map(|(name, value)| (name, value))).exec(),
        Err(error) => error,
    };
    StartError { command: program.to_owned(), source }
}

/// What is executed so that the command runs in the end.
#[derive(Debug, PartialEq, Eq)]
struct ChildPlan<'a> {
    program: &'a OsStr,
    before: Vec<&'a OsStr>,
    arguments: &'a [OsString],
}

impl<'a> ChildPlan<'a> {
    fn of(command: &'a [OsString]) -> io::Result<Self> {
        let (program, arguments) = split(command);
        if !signals::inherited_ignored_pipe() {
            return Ok(Self { program, before: Vec::new(), arguments });
        }
        // The programs before it would report a missing command in their own words.
        if !is_there(program) {
            return Err(Errno::NOENT.into());
        }
        let has_ignoring_env = || {
            let mut env = Command::new("env");
            env.args([IGNORE_PIPE, "true"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            env.status().is_ok_and(|status| status.success())
        };
        Ok(Self::ignoring_pipe(program, arguments, has_ignoring_env))
    }

    /// With `env` of coreutils 8.31 and later, which changes nothing else; else with a shell, which may set PWD.
    fn ignoring_pipe(program: &'a OsStr, arguments: &'a [OsString], has_env: impl Fn() -> bool) -> Self {
        let is_assignment = program.as_encoded_bytes().contains(&b'=');
        if !is_assignment && has_env() {
            return Self { program: OsStr::new("env"), before: vec![OsStr::new(IGNORE_PIPE), program], arguments };
        }
        let before = ["-c", "trap '' PIPE; exec \"$@\"", "sh"].map(OsStr::new);
        Self { program: OsStr::new("/bin/sh"), before: before.into_iter().chain([program]).collect(), arguments }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.program);
        command.args(&self.before).args(self.arguments);
        command
    }
}

/// The option of `env`.
const IGNORE_PIPE: &str = "--ignore-signal=PIPE";

/// Whether execvp(3) would find such a file.
fn is_there(program: &OsStr) -> bool {
    if program.as_encoded_bytes().contains(&b'/') {
        return Path::new(program).exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// Where programs are looked for without PATH, as execvp(3) has it.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Starts what `make` makes by fork(2) and not by posix_spawn(3), where that is possible and wanted.
fn spawn(make: impl Fn() -> Command) -> io::Result<process::Child> {
    // The standard library forks where a process is to get a group id; the one that it has anyway changes nothing.
    let group = getegid();
    if getgid() == group && !signals::inherited_ignored_internal() {
        match make().gid(group.as_raw()).spawn() {
            // Where ids are mapped, as in containers, our own may be one that cannot be asked for.
            Err(error) if is_refused(&error) => {}
            spawned => return spawned,
        }
    }
    make().spawn()
}

fn is_refused(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|error| [Errno::INVAL, Errno::PERM].contains(&Errno::from_raw_os_error(error)))
}

/// Lets go of this process's standard input and output, which the command that was started has too.
///
/// # Errors
/// When there is no `/dev/null`; then nothing has changed.
pub fn leave_it_the_streams() -> io::Result<()> {
    let null = fs::File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    Ok(())
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
    pid: Pid,
    ending: Option<Ending>,
}

impl Child {
    /// Starts `command`, a program and its arguments, with `environment` added to telem's own.
    ///
    /// # Errors
    /// When the program does not exist, or cannot be run.
    pub fn start(command: &[OsString], environment: &[(String, OsString)]) -> Result<Child, StartError> {
        let (program, arguments) = split(command);
        let failed = |source| StartError { command: program.to_owned(), source };
        let environment = || environment.iter().map(|(name, value)| (name, value));
        let plan = ChildPlan::of(command).map_err(failed)?;
        let started = spawn(|| {
            let mut command = plan.command();
            command.envs(environment());
            command
        });
        let started = match started {
            // A script without `#!`: shells run it themselves.
            Err(error) if error.raw_os_error() == Some(Errno::NOEXEC.raw_os_error()) => {
                let shell = || {
                    let mut shell = Command::new("/bin/sh");
                    shell.arg(program).args(arguments).envs(environment());
                    shell
                };
                spawn(shell).map_err(|_| error)
            }
            started => started,
        };
        let process = started.map_err(failed)?;
        Ok(Child { pid: Pid::from_child(&process), ending: None })
    }

    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Sends an event when it ends, also where telem was started with SIGCHLD blocked.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn watch<E: From<Caught> + Send + 'static>(&self, events: Sender<E>) -> io::Result<()> {
        let id = WaitId::Pid(self.pid);
        let wait = move || {
            // It stays to be waited for, so that its number is its own for as long as it may be signalled.
            while matches!(waitid(id.clone(), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT), Err(Errno::INTR)) {}
            let _ = events.send(Caught::Child.into());
        };
        thread::Builder::new().name("telem-command".to_owned()).spawn(wait).map(|_| ())
    }

    /// How it ended, if it has.
    pub fn ending(&self) -> Option<Ending> {
        self.ending
    }

    /// Takes note of what wait(2) said about it.
    pub fn became(&mut self, status: WaitStatus) {
        self.ending = self.ending.or(Ending::of(status));
    }

    /// Records that there is no such child: another process waited for it, which should be impossible.
    pub fn was_lost(&mut self) {
        if self.ending.is_none() {
            tracing::error!("the end of the command was lost");
            self.ending = Some(Ending::Exited(1));
        }
    }

    /// Whether it left telem's process group, so that what is sent to that does not reach it.
    pub fn stands_apart(&self) -> bool {
        self.ending.is_none() && getpgid(Some(self.pid)).is_ok_and(|group| group != getpgrp())
    }

    /// Whether it is stopped.
    pub fn is_stopped(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid.as_raw_nonzero())).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
    }

    /// Gives it the signal of that number, unless it has ended.
    pub fn pass_on(&self, number: i32) {
        if self.ending.is_some() {
            return;
        }
        // It may have ended since; until it is waited for, no other process gets its number.
        let passed = match Signal::from_named_raw(number) {
            Some(signal) => kill_process(self.pid, signal).map_err(io::Error::from),
            // Real-time signals have no names, and a shell knows their numbers.
            None => {
                let kill = format!("kill -{number} {}", self.pid.as_raw_nonzero());
                let mut shell = Command::new("/bin/sh");
                shell.args(["-c", &kill]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                shell.spawn().map(|_| ())
            }
        };
        if let Err(error) = passed {
            tracing::warn!(%error, number, "a signal could not be passed on");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use rustix::process::{WaitOptions, waitpid};

    use super::*;

    #[test]
    fn ends_have_the_codes_that_shells_give_them() {
        let code = |script: &str| {
            let child = Child::start(&["sh".into(), "-c".into(), script.into()], &[]).unwrap();
            let (_, status) = waitpid(Some(child.pid), WaitOptions::empty()).unwrap().unwrap();
            Ending::of(status).unwrap().exit_code()
        };
        assert_eq!(code("exit 0"), 0);
        assert_eq!(code("exit 255"), 255);
        assert_eq!(code("kill -TERM $$"), 143);
        assert_eq!(code("kill -KILL $$"), 137);
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
    fn a_command_that_is_to_ignore_sigpipe_comes_after_what_ignores_it() {
        let arguments = ["-x".into(), "a b".into()];
        let words = |program: &str, has_env: bool| {
            let command = ChildPlan::ignoring_pipe(OsStr::new(program), &arguments, || has_env).command();
            let words = [command.get_program()].into_iter().chain(command.get_args());
            words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join("|")
        };
        assert_eq!(words("app", true), "env|--ignore-signal=PIPE|app|-x|a b");
        let by_shell = "/bin/sh|-c|trap '' PIPE; exec \"$@\"|sh|";
        assert_eq!(words("app", false), format!("{by_shell}app|-x|a b"));
        assert_eq!(words("./a=b", true), format!("{by_shell}./a=b|-x|a b"), "env would take it for a variable");
        assert!(is_there(OsStr::new("sh")) && is_there(OsStr::new("/bin/sh")) && is_there(OsStr::new("/")));
        assert!(!is_there(OsStr::new("no-such-command-of-telem")) && !is_there(OsStr::new("./no/such/file")));
    }

    #[test]
    fn the_end_of_the_command_is_an_event_and_its_code_is_there_then() {
        let mut child = Child::start(&["sh".into(), "-c".into(), "exit 7".into()], &[]).unwrap();
        let (send, events) = channel::<Caught>();
        child.watch(send).unwrap();
        assert_eq!(events.recv_timeout(Duration::from_secs(60)), Ok(Caught::Child));
        let (_, status) = waitpid(Some(child.pid), WaitOptions::NOHANG).unwrap().unwrap();
        child.became(status);
        assert_eq!(child.ending(), Some(Ending::Exited(7)));
    }
}
