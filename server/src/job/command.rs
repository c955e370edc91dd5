//! The process of a command that we cannot wait for: whether it still runs, as far as `/proc` tells.

use std::fs;

use rustix::process::{Pid, test_kill_process};

/// The process of a command that is not ours to wait for.
#[derive(Debug)]
pub struct CommandProcess {
    pid: Pid,
    /// When it began, in ticks: its number may become another's.
    began: Option<String>,
}

impl CommandProcess {
    pub fn find(pid: i32) -> Option<Self> {
        let pid = Pid::from_raw(pid)?;
        Some(Self { pid, began: stat_of(pid).map(|(_, began)| began) })
    }

    pub fn has_ended(&self) -> bool {
        match stat_of(self.pid) {
            // It has ended, and was not waited for.
            Some((state, _)) if state == "Z" || state == "X" => true,
            Some((_, began)) => self.began.as_ref().is_some_and(|first| *first != began),
            None => test_kill_process(self.pid).is_err(),
        }
    }
}

/// The state of a process and when it began: fields 3 and 22 of proc_pid_stat(5).
fn stat_of(pid: Pid) -> Option<(String, String)> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    Some((fields.next()?.to_owned(), fields.nth(18)?.to_owned()))
}

#[cfg(test)]
mod tests {
    use rustix::process::getpid;

    use super::*;

    #[test]
    fn a_process_has_ended_when_it_is_gone_and_when_its_number_is_anothers() {
        let me = getpid().as_raw_nonzero().get();
        assert!(!CommandProcess::find(me).unwrap().has_ended());
        let another = CommandProcess { began: Some("1".to_owned()), ..CommandProcess::find(me).unwrap() };
        assert!(another.has_ended());
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let found = CommandProcess::find(child.id().try_into().unwrap()).unwrap();
        child.wait().unwrap();
        assert!(found.has_ended());
    }
}
