//! Lines of the kernel in, places and numbers out.

use super::path::{parse_mounts, parse_paths};
use super::*;

#[test]
fn the_group_of_a_job_is_the_child_of_the_schedulers_own_whatever_it_is_called() {
    for (path, expected) in [
        ("/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0", "/system.slice/slurmstepd.scope/job_4711"),
        ("/system.slice/slurmstepd.scope/s0ABC1DEF2GHJ3/step_0", "/system.slice/slurmstepd.scope/s0ABC1DEF2GHJ3"),
        ("/system.slice/n1_slurmstepd.scope/job_1", "/system.slice/n1_slurmstepd.scope/job_1"),
        ("/slurm/uid_1000/job_4711/step_0", "/slurm/uid_1000/job_4711"),
        ("/slurm_n1/uid_1000/job_4711/step_batch", "/slurm_n1/uid_1000/job_4711"),
        ("/pbs_jobs.service/jobid/17.pbs/x", "/pbs_jobs.service/jobid/17.pbs"),
        ("/pbspro.slice/pbspro-17.pbs.slice/x", "/pbspro.slice/pbspro-17.pbs.slice"),
        ("/lsf/cluster1/job.17.2048.1790000000/x", "/lsf/cluster1/job.17.2048.1790000000"),
    ] {
        assert_eq!(scheduler_level(path).as_deref(), Some(expected), "{path}");
    }
    for none in [
        "/",
        "",
        "/user.slice/user-1000.slice/user@1000.service/app.slice/run-17.scope",
        "/system.slice/slurmd.service",
        "/system.slice/slurmstepd.scope",
        "/lsf/cluster1",
    ] {
        assert_eq!(scheduler_level(none), None, "{none}");
    }
}

#[test]
fn own_paths_are_those_that_can_be_seen() {
    let text = b"12:cpu,cpuacct:/a\n4:memory:/a:b\n0::/c\n1:name=systemd:/d\n3:pids:/../x\n2:blkio\n";
    let paths: Vec<_> = parse_paths(text).collect();
    assert_eq!(paths, [("cpu,cpuacct", "/a"), ("memory", "/a:b"), ("", "/c"), ("name=systemd", "/d")]);
}

#[test]
fn mounts_of_control_groups_are_found_among_others() {
    let text = b"24 1 0:22 / /proc rw shared:5 - proc proc rw\n\
        35 24 0:30 /docker/17 /sys/fs/cgroup/memory ro,nosuid master:11 - cgroup cgroup rw,memory\n\
        36 24 0:31 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n36 24 0:31 /\n";
    let mounts = parse_mounts(text);
    assert_eq!(mounts.len(), 2);
    assert_eq!((mounts[0].root.as_str(), mounts[0].controllers.join(",")), ("/docker/17", "rw,memory".to_owned()));
    assert_eq!((mounts[1].point.as_path(), mounts[1].controllers.len()), (Path::new("/sys/fs/cgroup"), 0));
}

#[test]
fn cpus_are_counted_from_lists() {
    for (list, count) in [
        ("0-31,64-95\n", Some(64)),
        ("7\n", Some(1)),
        ("\n", None),
        ("", None),
        ("5-3", None),
        ("0-9223372036854775807,0-9223372036854775807", None),
        ("a-b", None),
    ] {
        assert_eq!(count_cpus(list.as_bytes()), count, "{list:?}");
    }
}

#[test]
fn bytes_of_devices_are_found_by_key() {
    let stat = b"259:0 wbytes=8192 rbytes=4096 rios=1 wios=2\n8:0 rbytes=x\n7:1\n\n";
    assert_eq!(parse_io_stat(stat), [(&b"259:0"[..], IoWay::Written, 8_192), (b"259:0", IoWay::Read, 4_096)]);
    let blkio = b"8:0 Read 4096\n8:0 Write 8192\n8:0 Sync 1\n8:0 Total 12288\nTotal 12288\n";
    assert_eq!(parse_blkio(blkio), [(&b"8:0"[..], IoWay::Read, 4_096), (b"8:0", IoWay::Written, 8_192)]);
}

/// For bytes that no kernel wrote.
pub(in crate::collect) fn parse_as_everything(text: &[u8]) {
    parse_paths(text).for_each(|(_, path)| drop(scheduler_level(path)));
    parse_mounts(text);
    parse_keys(text).for_each(drop);
    parse_io_stat(text);
    parse_blkio(text);
    count_cpus(text);
}
