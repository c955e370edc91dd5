use std::io::Read;
use std::process::{Command, Stdio};

use super::*;

#[test]
fn the_launcher_is_the_first_process_above_that_is_not_of_the_task() {
    // 10 is the launcher, 11 a shell of the task, 12 telem, 13 its recorder.
    let parent = |pid: u32| (pid > 1).then(|| pid - 1);
    assert_eq!(launcher(13, parent, |pid| pid >= 11), Some(10));
    assert_eq!(launcher(12, parent, |pid| pid >= 12), Some(11));
    assert_eq!(launcher(3, parent, |_| true), None, "the task began beyond what can be seen");
    assert_eq!(launcher(200, parent, |pid| pid >= 2), None, "no launcher is so far away");
}

#[test]
fn shells_between_a_launcher_and_its_task_are_known_by_their_environment() {
    let mut child = Command::new("sh");
    child.args(["-c", "echo ready; read -r line; exit 0"]).env("PMI_RANK", "1").env("PMI_FD", "8");
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // The kernel has its environment in place a moment after it has begun.
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    let of_child = OfProcess::read(child.id());
    assert_eq!((of_child.variable("PMI_RANK"), of_child.variable("NO_SUCH")), (Some("1".to_owned()), None));
    assert!(scheduler::is_same_task(&of_child, &of_child));
    assert!(!scheduler::is_same_task(&of_child, &OfProcess::read(std::process::id())));
    assert_eq!(parent(child.id()), Some(std::process::id()));
    drop(child.stdin.take());
    child.wait().unwrap();
}
