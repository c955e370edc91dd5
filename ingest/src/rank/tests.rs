use std::io::{Read as _, Write as _};
use std::process::Stdio;

use super::*;

fn rank(environment: &[&str]) -> Option<u32> {
    of_environment(environment.join("\0").as_bytes())
}

#[test]
fn the_innermost_launcher_says_the_rank() {
    assert_eq!(rank(&["HOME=/", "PMI_RANK=3"]), Some(3));
    assert_eq!(rank(&["SLURM_PROCID=1", "SLURM_STEP_ID=0", "RANK=9"]), Some(9));
    assert_eq!(rank(&["SLURM_PROCID=1", "SLURM_STEP_ID=0", "OMPI_COMM_WORLD_RANK=2"]), Some(2));
    assert_eq!(rank(&["PMI_RANK=3", "PMI_RANK=4"]), Some(3), "as getenv has it");
}

#[test]
fn what_is_no_rank_is_none() {
    assert_eq!(rank(&[]), None);
    assert_eq!(rank(&["PMI_RANK=", "RANKS=4", "MY_RANK=5"]), None);
    assert_eq!(rank(&["RANK=-1"]), None);
    assert_eq!(rank(&["RANK=+1"]), None);
    assert_eq!(rank(&["RANK=99999999999", "PMI_RANK=7"]), Some(7));
    assert_eq!(rank(&["RANK=\u{663}"]), None);
    assert_eq!(rank(&["SLURM_PROCID=0"]), None, "everything in a batch script has this");
    assert_eq!(rank(&["SLURM_PROCID=0", "SLURM_STEP_ID="]), None);
}

#[test]
fn the_environment_of_a_process_is_that_of_its_start() {
    let mut echo = std::process::Command::new("cat");
    echo.env_clear().env("PMIX_RANK", "12").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = echo.spawn().unwrap();
    // A spawned process may not have its environment yet: Linux lets the parent go on earlier. What answers has it.
    child.stdin.as_mut().unwrap().write_all(b"?").unwrap();
    let mut answer = [0];
    child.stdout.as_mut().unwrap().read_exact(&mut answer).unwrap();
    let found = environment_of(child.id()).and_then(|environment| of_environment(&environment));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(found, Some(12));
    assert_eq!(environment_of(u32::MAX), None);
}
