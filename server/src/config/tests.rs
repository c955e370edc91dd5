//! Names, directories and file systems, from what they are given.

use super::*;

fn env(pairs: &'static [(&'static str, &'static str)]) -> impl Fn(&str) -> Option<String> {
    move |name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
}

#[test]
fn the_job_is_the_one_asked_for_then_slurms_then_local() {
    assert_eq!(job(Some("train-7"), env(&[("SLURM_JOB_ID", "99")])).unwrap(), "train-7");
    assert_eq!(job(None, env(&[("SLURM_JOB_ID", "99")])).unwrap(), "99");
    assert_eq!(job(None, env(&[])).unwrap(), "local");
}

#[test]
fn a_launched_job_is_the_one_asked_for_then_the_schedulers_then_one_of_its_own() {
    let made_up = || "made-up".to_owned();
    let slurm = env(&[("SLURM_JOB_ID", "99"), ("PBS_JOBID", "1")]);
    assert_eq!(launched_job(Some("train-7"), &slurm, made_up).unwrap(), "train-7");
    assert_eq!(launched_job(None, slurm, made_up).unwrap(), "99");
    assert_eq!(
        launched_job(None, env(&[("PBS_JOBID", "123[4].head.example")]), made_up).unwrap(),
        "123-4-.head.example"
    );
    assert_eq!(launched_job(None, env(&[("FLUX_JOB_ID", "ƒ2Jn")]), made_up).unwrap(), "2Jn");
    assert_eq!(launched_job(None, env(&[]), made_up).unwrap(), "made-up");
    assert!(launched_job(Some("a/b"), env(&[]), made_up).is_err());
    let now = Timestamp::from_micros(1_795_271_415_000_000);
    assert_eq!(fresh_job(now, 4711), "20261121-143015-4711");
}

#[test]
fn names_that_become_paths_cannot_leave_their_directory() {
    for bad in ["", "..", ".hidden", "a/b", "a b", "a\0b", "é", &"x".repeat(65)] {
        assert!(job(Some(bad), env(&[])).is_err(), "{bad:?}");
        assert!(node(Some(bad), "host").is_err(), "{bad:?}");
    }
    assert!(job(Some(&"x".repeat(64)), env(&[])).is_ok());
}

#[test]
fn the_node_is_the_short_host_name_in_lower_case() {
    assert_eq!(node(None, "NID001234.cluster.example").unwrap(), "nid001234");
    assert_eq!(node(Some("n1-2"), "other").unwrap(), "n1-2");
}

#[test]
fn live_data_stands_where_the_job_has_its_own_disk_or_else_where_there_is_room() {
    let bases = |pairs| -> Vec<PathBuf> { data_bases(env(pairs)).into_iter().map(|base| base.path).collect() };
    let paths = |paths: &[&str]| -> Vec<PathBuf> { paths.iter().map(PathBuf::from).collect() };
    assert_eq!(bases(&[]), paths(&["/tmp", "/dev/shm"]));
    assert_eq!(bases(&[("TMPDIR", "/scratch")]), paths(&["/scratch", "/tmp", "/dev/shm"]));
    assert_eq!(bases(&[("TMPDIR", "/tmp"), ("SLURM_TMPDIR", "/b")]), paths(&["/b", "/tmp", "/dev/shm"]));
    assert_eq!(bases(&[("SLURM_TMPDIR", "/b"), ("TELEM_DATA", "/c")]), paths(&["/c", "/b", "/tmp", "/dev/shm"]));
    assert_eq!(private_name(1000), "telem-1000");
}

#[test]
fn file_systems_are_told_apart_by_their_magic_numbers() {
    assert_eq!(file_system_of(0x0102_1994), FileSystem::Memory);
    assert_eq!(file_system_of(0x0bd0_0bd0), FileSystem::Shared("Lustre"));
    assert_eq!(file_system_of(0xef53), FileSystem::Local, "ext4");
    assert!(file_system(Path::new("/")).is_ok());
    assert!(file_system(Path::new("/no/such/directory")).is_err());
}

#[test]
fn users_are_found_by_name_and_by_number() {
    assert_eq!(uid_of("472").unwrap(), 472);
    assert_eq!(uid_of("root").unwrap(), 0);
    assert!(uid_of("--help").unwrap_err().to_string().contains("no user '--help'"));
}
