//! The messages between the two processes of a run: one line of JSON each, over the recorder's stdin and stdout.
//!
//! Neither process waits for the other to read, because the lines are few and short. The end of the stream means that
//! the process that wrote it has ended.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::child::Ending;

/// Longest line. A command's environment is limited to less by the kernel.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// What the supervisor tells the recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
pub enum ToRecorder {
    /// The command runs.
    Started { pid: i32 },
    /// There will be no command: leave no trace.
    NotStarted,
    /// telem was told that the end may be near.
    Farewell,
    /// The command has ended. Hurried, if telem was told to end too.
    Ended {
        ending: Ending,
        hurried: bool,
        /// Processor time of its processes that ended before it and were waited for, in milliseconds.
        cpu_ms: Option<u64>,
    },
    /// What is still to be done must be done soon.
    Hurry,
}

/// What the recorder tells the supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
pub enum ToSupervisor {
    /// The service is ready, and the command may start.
    Ready {
        /// For the command.
        environment: Vec<(String, OsString)>,
        live: OsString,
    },
    /// Another process of the job is waited for before there is a service, no longer than this.
    Seeking { patience: Duration },
    /// The service runs, and waits for this many other nodes: it will be ready a little later.
    Gathering { nodes: usize },
    /// Another process records this node: the command may start, and there is nothing more to be said.
    Elsewhere {
        /// For the command.
        environment: Vec<(String, OsString)>,
    },
    /// What was asked for cannot be done: the command is not to start.
    Refused { why: String },
    /// There is no service, and there will be none.
    Failed { why: String },
    /// Everything is done that can be done.
    Done,
}

/// Says `word`.
///
/// # Errors
/// When the reader is gone.
pub fn tell(mut to: impl Write, word: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(word)?;
    line.push(b'\n');
    // In one write, so that a line is whole or not there.
    to.write_all(&line)?;
    to.flush()
}

/// Calls `hear` with every line until there are no more, or it returns `false`.
pub fn listen<T: DeserializeOwned>(from: impl Read, mut hear: impl FnMut(T) -> bool) {
    let mut from = BufReader::new(from);
    loop {
        let mut line = Vec::new();
        match from.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        }
        match serde_json::from_slice(&line) {
            Ok(word) => {
                if !hear(word) {
                    return;
                }
            }
            // Both are the same program: no line of ours is unknown to it.
            Err(error) => tracing::debug!(%error, "a malformed line"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn heard<T: DeserializeOwned>(lines: &[u8]) -> Vec<T> {
        let mut heard = Vec::new();
        listen(lines, |word| {
            heard.push(word);
            true
        });
        heard
    }

    #[test]
    fn what_is_told_is_heard_whatever_stands_in_a_path() {
        let strange = OsString::from_vec(b"/tmp/\xff \"\n/x".to_vec());
        let words = [
            ToSupervisor::Ready { environment: vec![("TELEM_SOCKET".to_owned(), strange.clone())], live: strange },
            ToSupervisor::Seeking { patience: Duration::from_millis(60_001) },
            ToSupervisor::Failed { why: "no\nway".to_owned() },
            ToSupervisor::Refused { why: "nonsense".to_owned() },
            ToSupervisor::Done,
        ];
        let mut lines = Vec::new();
        words.iter().for_each(|word| tell(&mut lines, word).unwrap());
        assert_eq!(heard::<ToSupervisor>(&lines), words);

        let words = [
            ToRecorder::Started { pid: 7 },
            ToRecorder::Farewell,
            ToRecorder::Ended { ending: Ending::Killed { signal: 9 }, hurried: true, cpu_ms: Some(70) },
        ];
        let mut lines = Vec::new();
        words.iter().for_each(|word| tell(&mut lines, word).unwrap());
        assert_eq!(heard::<ToRecorder>(&lines), words);
    }

    #[test]
    fn a_line_that_is_none_is_passed_over() {
        assert_eq!(heard::<ToSupervisor>(b"hello\n\"Done\"\n\"Do"), [ToSupervisor::Done]);
    }
}
