use super::*;
use crate::disk::OsDisk;

/// A machine as a test wants it.
#[derive(Debug)]
struct Faked(Process, Option<u64>);

impl Machine for Faked {
    fn this_process(&self) -> io::Result<Process> {
        Ok(self.0.clone())
    }

    fn started(&self, _pid: u32) -> Option<u64> {
        self.1
    }
}

fn process(host: &str, pid: u32, boot: &str, started: u64) -> Process {
    Process { host: host.to_owned(), pid, boot: boot.to_owned(), started }
}

#[test]
fn a_lock_is_taken_over_only_from_a_process_that_is_known_to_be_dead() {
    let me = process("a", 7, "boot", 70);
    let cases = [
        (process("a", 5, "boot", 50), Some(50), Judgement::Alive),
        (process("a", 5, "boot", 50), None, Judgement::TakeOver),
        (process("a", 5, "boot", 50), Some(51), Judgement::TakeOver),
        (process("a", 5, "earlier", 50), Some(50), Judgement::TakeOver),
        (process("b", 5, "boot", 50), None, Judgement::Unknown),
        (process("a", 7, "boot", 70), Some(70), Judgement::Alive),
    ];
    for (owner, started, expected) in cases {
        assert_eq!(judge(&owner, &me, started), expected, "{owner:?} {started:?}");
    }
}

#[test]
fn the_next_process_gets_a_lock_that_was_given_back_or_left_by_the_dead() {
    let dir = tempfile::tempdir().unwrap();
    let layout = Layout::new(dir.path());
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let (one, two) = (process("a", 1, "boot", 10), process("a", 2, "boot", 20));
    let acquire = |me: &Process, owner_started, claim| {
        WriterLock::acquire(&disk, &Faked(me.clone(), owner_started), &layout, claim)
    };
    let first = acquire(&one, None, LockClaim::IfFree).unwrap();
    let error = acquire(&two, Some(10), LockClaim::IfFree).unwrap_err();
    assert!(error.to_string().contains("process 1 on a"), "{error}");
    first.release().unwrap();
    let second = acquire(&two, Some(10), LockClaim::IfFree).unwrap();
    assert_eq!(second.taken_over_from, None);
    // The second dies without giving it back.
    let third = acquire(&one, None, LockClaim::IfFree).unwrap();
    assert_eq!(third.taken_over_from.as_deref(), Some("process 2 on a"));
    assert!(matches!(second.check(), Err(Error::Locked { .. })), "the second must notice");
    second.release().unwrap();
    third.check().unwrap();
}

#[test]
fn another_host_and_a_damaged_lock_need_a_persons_word() {
    let dir = tempfile::tempdir().unwrap();
    let layout = Layout::new(dir.path());
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let acquire =
        |host: &str, claim| WriterLock::acquire(&disk, &Faked(process(host, 1, "boot", 1), None), &layout, claim);
    let _left = acquire("a", LockClaim::IfFree).unwrap();
    let error = acquire("b", LockClaim::IfFree).unwrap_err();
    assert!(error.to_string().contains("--take-over"), "{error}");
    acquire("b", LockClaim::TakeOver).unwrap();
    for damage in ["", "{", "{\"host\":1}"] {
        std::fs::write(layout.writer(), damage).unwrap();
        assert!(matches!(acquire("b", LockClaim::IfFree), Err(Error::Locked { .. })), "'{damage}'");
        acquire("b", LockClaim::TakeOver).unwrap();
    }
    let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, [WRITER], "nothing else is left behind");
}

#[test]
fn who_only_looks_sees_a_lock_that_is_free_held_or_left_by_the_dead_and_leaves_it() {
    let dir = tempfile::tempdir().unwrap();
    let layout = Layout::new(dir.path());
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let seen = |host: &str, owner_started| {
        trace(dir.path(), &*disk, &Faked(process(host, 2, "boot", 20), owner_started)).unwrap()
    };
    assert_eq!(seen("a", None), LockTrace::Free);
    let owner = process("a", 1, "boot", 10);
    let lock = WriterLock::acquire(&disk, &Faked(owner.clone(), None), &layout, LockClaim::IfFree).unwrap();
    assert_eq!(seen("a", Some(10)), LockTrace::Held);
    assert_eq!(seen("a", None), LockTrace::Left(owner));
    assert_eq!(seen("b", None), LockTrace::Held, "nobody knows of another host");
    lock.check().unwrap();
    std::fs::write(layout.writer(), "{").unwrap();
    assert_eq!(seen("a", None), LockTrace::Held);
}

#[test]
fn linux_knows_this_process() {
    let me = Linux.this_process().unwrap();
    assert_eq!(me.pid, std::process::id());
    assert_eq!(Linux.started(me.pid), Some(me.started));
    assert_eq!(Linux.started(u32::MAX), None);
}

#[test]
fn a_process_that_only_waits_for_its_parent_to_take_notice_is_dead() {
    let stat = |state: &str| {
        format!(
            "4213 (te) lem) {state} 1 4213 4213 0 -1 4194560 81 0 0 0 0 0 0 0 20 0 1 0 987654 2420736 195 18446744073709551615"
        )
    };
    assert_eq!(start_in(&stat("S")), Some(987_654));
    assert_eq!(start_in(&stat("D")), Some(987_654), "one that hangs in the kernel may still write");
    assert_eq!(start_in(&stat("Z")), None);
    assert_eq!(start_in("4213 (telem) S 1"), None);
}
