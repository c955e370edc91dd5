//! `telem run --tunnel`: an `ssh -NR` that lets clients on another host ask here, kept alive while the job runs.
//!
//! The thread of it is asked to stop and never waited for by the command. Between telem and `ssh` stands a shell that
//! reads its standard input, which ends with telem however that ends: then it ends `ssh`. Who comes through the tunnel
//! is not known here, as all connections are those of `ssh`; so they arrive at a port where everybody needs the token.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use telem_engine::Clock;

use super::notes::Notes;
use crate::launch::agents::command::SSH_CONNECT_SECONDS;

/// How long the first attempt after a failure waits; the next one twice as long.
pub(crate) const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Longest wait before an attempt.
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(60);
/// A tunnel that stood for so long is mended as if it had never failed.
const STOOD: Duration = Duration::from_secs(60);
/// How often it is looked whether `ssh` runs.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// How long `ssh` may take to end.
const END_TIMEOUT: Duration = Duration::from_millis(500);
/// How long what it said last may take to come after its end.
const WORDS_TIMEOUT: Duration = Duration::from_millis(300);
/// Most of what it said that is kept.
const WORDS_BYTES_MAX: usize = 4 << 10;
/// Longest reason that is told, in characters.
const WHY_CHARS_MAX: usize = 300;
/// Most reasons that are told.
pub(crate) const REASONS_MAX: usize = 16;

/// Runs its arguments until its standard input ends, and ends as they do.
const UNTIL_INPUT_ENDS: &str = r#"exec 3<&0 </dev/null
"$@" 3<&- &
ssh=$!
{ cat <&3; kill "$ssh"; } >/dev/null 2>&1 &
watch=$!
exec 3<&-
wait "$ssh"
code=$?
kill "$watch" 2>/dev/null
exit "$code""#;

/// A tunnel that is kept. It ends with this.
#[derive(Debug)]
pub struct ReverseTunnel {
    /// Dropped, it tells the thread to end.
    _stop: Sender<()>,
    ended: Receiver<()>,
}

/// From where to where it leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelRoute {
    /// The host whose clients are let in.
    pub node: String,
    /// Where they ask there.
    pub far_port: u16,
    /// The port here that they come to.
    pub near_port: u16,
}

impl TunnelRoute {
    fn command(&self) -> Command {
        let Self { node, far_port, near_port } = self;
        let mut command = Command::new("/bin/sh");
        command.args(["-c", UNTIL_INPUT_ENDS, "telem-tunnel", "ssh"]);
        command.args(["-o", "BatchMode=yes", "-o", "ExitOnForwardFailure=yes", "-o", "ForwardAgent=no"]);
        command.args(["-o", "ForwardX11=no", "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=3"]);
        command.args(["-o", &format!("ConnectTimeout={SSH_CONNECT_SECONDS}")]);
        command.args(["-NR", &format!("localhost:{far_port}:127.0.0.1:{near_port}"), "--", node]);
        command
    }
}

impl ReverseTunnel {
    /// Starts it on a thread of its own.
    ///
    /// # Errors
    /// When there is no thread.
    pub fn start(route: TunnelRoute, notes: Notes, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let (stop, stopped) = channel();
        let (tell, ended) = channel();
        let keep = move || {
            TunnelKeeper { route, notes, clock, stopped, told: BTreeSet::new() }.keep();
            drop(tell);
        };
        thread::Builder::new().name("telem-tunnel".to_owned()).spawn(keep)?;
        Ok(Self { _stop: stop, ended })
    }

    /// Ends it, and waits a moment for that.
    pub fn end(self) {
        let Self { _stop: stop, ended } = self;
        drop(stop);
        // It ends when the thread does.
        let _ = ended.recv_timeout(END_TIMEOUT * 3);
    }
}

struct TunnelKeeper {
    route: TunnelRoute,
    notes: Notes,
    clock: Arc<dyn Clock>,
    /// Nothing comes: it ends.
    stopped: Receiver<()>,
    told: BTreeSet<String>,
}

impl TunnelKeeper {
    fn keep(mut self) {
        let mut pause = PAUSE_MIN;
        loop {
            let begun = self.clock.monotonic();
            match self.once() {
                None => return,
                Some(why) => self.tell(why),
            }
            if self.clock.monotonic().saturating_sub(begun) >= STOOD {
                pause = PAUSE_MIN;
            }
            if self.is_stopped(pause) {
                return;
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Waits. Whether all is over.
    fn is_stopped(&self, patience: Duration) -> bool {
        self.stopped.recv_timeout(patience) != Err(RecvTimeoutError::Timeout)
    }

    fn tell(&mut self, why: String) {
        if self.told.len() >= REASONS_MAX || !self.told.insert(why.clone()) {
            return;
        }
        let TunnelRoute { node, .. } = &self.route;
        self.notes.warn(format_args!(
            "there is no tunnel to {node}: {why}; it is tried again, at least every {} s",
            PAUSE_MAX.as_secs()
        ));
    }

    /// Lets `ssh` run. Why it ended; `None` once all is over.
    fn once(&self) -> Option<String> {
        let mut command = self.route.command();
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return Some(format!("ssh cannot be started: {error}")),
        };
        let words = child.stderr.take().and_then(listen);
        loop {
            match child.try_wait() {
                Ok(None) => {}
                Ok(Some(status)) => return Some(reason(status, words)),
                Err(error) => return Some(error.to_string()),
            }
            if self.is_stopped(LOOK_INTERVAL) {
                self.end(&mut child);
                return None;
            }
        }
    }

    fn end(&self, child: &mut Child) {
        // It was not waited for, so its number is its own.
        let _ = kill_process_group(Pid::from_child(child), Signal::TERM);
        let deadline = self.clock.monotonic() + END_TIMEOUT;
        while self.clock.monotonic() < deadline {
            if !matches!(child.try_wait(), Ok(None)) {
                return;
            }
            thread::park_timeout(Duration::from_millis(5));
        }
        let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
        let _ = child.wait();
    }
}

/// What comes from `stderr`, at its end.
fn listen(mut stderr: ChildStderr) -> Option<Receiver<Vec<u8>>> {
    let (tell, said) = channel();
    let read = move || {
        let (mut words, mut block) = (Vec::new(), [0; 512]);
        while let Ok(bytes @ 1..) = stderr.read(&mut block) {
            words.extend_from_slice(&block[..bytes]);
            let beyond = words.len().saturating_sub(WORDS_BYTES_MAX);
            words.drain(..beyond);
        }
        let _ = tell.send(words);
    };
    thread::Builder::new().name("telem-tunnel-err".to_owned()).spawn(read).ok().map(|_| said)
}

/// The last line that `ssh` said, or else how it ended.
fn reason(status: ExitStatus, words: Option<Receiver<Vec<u8>>>) -> String {
    let words = words.and_then(|words| words.recv_timeout(WORDS_TIMEOUT).ok()).unwrap_or_default();
    let words = String::from_utf8_lossy(&words);
    match words.lines().rev().map(str::trim).find(|line| !line.is_empty()) {
        Some(line) => line.chars().filter(|c| !c.is_control()).take(WHY_CHARS_MAX).collect(),
        None => format!("ssh ended with {status}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_asks_nothing_and_forwards_one_port() {
        let route = TunnelRoute { node: "ada@login1".to_owned(), far_port: 4242, near_port: 40_001 };
        let command = route.command();
        let words: Vec<_> = command.get_args().skip(3).map(|word| word.to_string_lossy().into_owned()).collect();
        assert_eq!(words[0], "ssh");
        assert!(words.join(" ").contains("-o BatchMode=yes -o ExitOnForwardFailure=yes"));
        assert!(words.join(" ").ends_with("-NR localhost:4242:127.0.0.1:40001 -- ada@login1"));
    }

    #[test]
    fn what_runs_behind_the_shell_ends_with_its_input_and_gives_it_its_code() {
        let shell = |script: &str| {
            let mut shell = Command::new("/bin/sh");
            shell.args(["-c", UNTIL_INPUT_ENDS, "telem-tunnel", "/bin/sh", "-c", script]);
            shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
            shell.spawn().unwrap()
        };
        let mut ends = shell("exit 7");
        let input = ends.stdin.take();
        assert_eq!(ends.wait().unwrap().code(), Some(7));
        drop(input);
        let mut sleeps = shell("exec sleep 1000");
        drop(sleeps.stdin.take());
        assert_eq!(sleeps.wait().unwrap().code(), Some(143), "as one that was told to end");
    }
}
