//! A machine whose processes and boots are numbers, for the writer lock.

use std::io;

use crate::lock::{Machine, Process};

/// Only the newest process lives.
#[derive(Clone, Debug)]
pub struct SimMachine {
    boot: u32,
    pid: u32,
}

impl Default for SimMachine {
    fn default() -> Self {
        Self { boot: 1, pid: 100 }
    }
}

impl SimMachine {
    pub fn next_process(&mut self) {
        self.pid += 1;
    }

    pub fn next_boot(&mut self) {
        self.boot += 1;
        self.pid = 100;
    }
}

impl Machine for SimMachine {
    fn this_process(&self) -> io::Result<Process> {
        let (boot, started) = (format!("boot-{}", self.boot), u64::from(self.pid));
        Ok(Process { host: "simulated".to_owned(), pid: self.pid, boot, started })
    }

    fn started(&self, pid: u32) -> Option<u64> {
        (pid == self.pid).then_some(u64::from(pid))
    }
}
