//! What goes wrong on a simulated disk, and when.

use std::io;

use rustix::io::Errno;

/// The operations that change a disk or make a change durable, and the reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Append,
    Truncate,
    Rename,
    Remove,
    CreateDir,
    Sync,
    SyncDir,
    /// Opening a file to read, reading it, or listing a directory.
    Read,
}

impl Operation {
    pub fn is_read(self) -> bool {
        self == Operation::Read
    }

    pub fn is_sync(self) -> bool {
        matches!(self, Operation::Sync | Operation::SyncDir)
    }

    /// Whether a full disk refuses it.
    pub fn takes_space(self) -> bool {
        matches!(self, Operation::Create | Operation::Append | Operation::CreateDir | Operation::Rename)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// ENOSPC for whatever takes space, an append after some of its bytes, until the disk is healed.
    Full,
    /// EIO for one sync; what it should have made durable may be lost for ever.
    Sync,
    /// EIO for one operation of this sort, which then did nothing, or a part of its bytes.
    Once(Operation),
    /// The process stops in the middle of any operation but a read; nothing it tries later has an effect.
    Death,
}

/// A failure that lies in wait until `after` operations that it could strike have gone well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub failure: Failure,
    pub after: u64,
}

/// The faults of one disk.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    waiting: Vec<Fault>,
    struck: u64,
}

impl Faults {
    pub fn add(&mut self, fault: Fault) {
        self.waiting.push(fault);
    }

    pub fn clear(&mut self) {
        self.waiting.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How often a fault struck.
    pub fn struck(&self) -> u64 {
        self.struck
    }

    /// What befalls this operation.
    pub fn strike(&mut self, operation: Operation) -> Option<Failure> {
        let mut found = None;
        self.waiting.retain_mut(|fault| {
            if found.is_some() || !fault.failure.can_strike(operation) {
                return true;
            }
            if fault.after > 0 {
                fault.after -= 1;
                return true;
            }
            found = Some(fault.failure);
            fault.failure.lasts()
        });
        self.struck += u64::from(found.is_some());
        found
    }
}

impl Failure {
    fn can_strike(self, operation: Operation) -> bool {
        match self {
            Failure::Full => operation.takes_space(),
            Failure::Sync => operation.is_sync(),
            Failure::Once(sort) => operation == sort,
            Failure::Death => !operation.is_read(),
        }
    }

    fn lasts(self) -> bool {
        match self {
            Failure::Full | Failure::Death => true,
            Failure::Sync | Failure::Once(_) => false,
        }
    }

    pub fn error(self) -> io::Error {
        match self {
            Failure::Full => Errno::NOSPC.into(),
            Failure::Sync | Failure::Once(_) | Failure::Death => Errno::IO.into(),
        }
    }
}
