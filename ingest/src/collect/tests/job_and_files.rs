//! The job's control group, fabrics and file systems where something is missing, refused, gone or hanging.

use super::*;
use crate::collect::sampler::Part;
use crate::collect::subject::SourceState;

const SCOPE: &str = "system.slice/slurmstepd.scope";

fn group(world: &World, path: &str) {
    world.write(&format!("sys/fs/cgroup/{path}/memory.current"), "4096\n");
    world.write(&format!("sys/fs/cgroup/{path}/cgroup.type"), "domain\n");
}

fn found(world: &World, part: Part, of: &str) -> Vec<SourceState> {
    world.sampler.found(part).into_iter().find(|(name, _)| *name == of).unwrap().1
}

#[test]
fn a_process_that_is_in_no_job_is_told_nothing_of_its_control_group() {
    for path in ["/user.slice/user-1000.slice/user@1000.service/app.slice/run-17.scope", "/system.slice/slurmd.service"]
    {
        let mut world = World::empty(3);
        world.write("proc/self/cgroup", format!("0::{path}\n"));
        group(&world, path);
        assert_eq!(world.tick(1), BTreeMap::new(), "{path}");
    }
    let mut on_the_host = World::empty(3);
    on_the_host.write("proc/self/cgroup", "0::/\n");
    on_the_host.write("sys/fs/cgroup/cpu.stat", "user_usec 1\n");
    assert_eq!(on_the_host.tick(1), BTreeMap::new(), "the root of all groups has no type");
}

#[test]
fn a_container_is_told_of_by_what_is_mounted_in_it() {
    let mut with_a_namespace = World::empty(2);
    with_a_namespace.write("proc/self/cgroup", "0::/\n");
    group(&with_a_namespace, "");
    assert_eq!(text(&[with_a_namespace.tick(1)]), "tick 1\ncgroup_memory_used_bytes 4096\n");

    let mut of_version_1 = World::empty(2);
    of_version_1.write("proc/self/cgroup", "4:memory:/docker/17\n");
    of_version_1.write(
        "proc/self/mountinfo",
        "35 24 0:30 /docker/17 /sys/fs/cgroup/memory ro,nosuid master:11 - cgroup cgroup rw,memory\n",
    );
    of_version_1.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "8192\n");
    assert_eq!(text(&[of_version_1.tick(1)]), "tick 1\ncgroup_memory_used_bytes 8192\n");
}

#[test]
fn a_control_group_that_a_namespace_hides_is_told_once_with_what_helps() {
    let mut world = World::empty(2);
    world.write("proc/self/cgroup", format!("0::/{SCOPE}/job_1/step_0\n"));
    world.write("sys/fs/cgroup/cgroup.controllers", "\n");
    assert_eq!(world.tick(1), BTreeMap::new());
    let refusals = world.sampler.take_refusals();
    assert_eq!(refusals.len(), 1);
    assert!(refusals[0].starts_with("the job's control group cannot be read"), "{refusals:?}");
    world.tick(61);
    assert_eq!(world.sampler.take_refusals(), [""; 0]);
}

#[test]
fn a_job_whose_control_group_is_mounted_elsewhere_is_found() {
    let mut world = World::empty(2);
    world.write("proc/self/cgroup", format!("0::/{SCOPE}/job_1/step_0\n"));
    world.write("proc/self/mountinfo", "36 24 0:31 / /cgroup2 rw - cgroup2 cgroup2 rw\n");
    world.write(&format!("cgroup2/{SCOPE}/job_1/memory.current"), "5\n");
    assert_eq!(text(&[world.tick(1)]), "tick 1\ncgroup_memory_used_bytes 5\n");
}

/// A container that has the host's root elsewhere reads of the host; the own path is not one of that tree.
#[test]
fn below_another_root_the_control_group_is_that_of_its_first_process() {
    let tree = tempfile::tempdir().unwrap();
    for (of, text) in [("proc/1", "0::/init.scope\n".to_owned()), ("proc/self", format!("0::/{SCOPE}/job_1\n"))] {
        fs::create_dir_all(tree.path().join(of)).unwrap();
        fs::write(tree.path().join(of).join("cgroup"), text).unwrap();
    }
    let mut world = World::over(2, tree, tempfile::tempdir().unwrap());
    group(&world, &format!("{SCOPE}/job_1"));
    assert!(!world.tick(1).keys().any(|series| series.starts_with("cgroup_")));
}

#[test]
fn a_job_that_ends_and_a_device_that_goes_end_no_sum() {
    let mut world = World::empty(2);
    world.write("proc/self/cgroup", format!("0::/{SCOPE}/job_1/step_0\n"));
    let io = format!("sys/fs/cgroup/{SCOPE}/job_1/io.stat");
    world.write(&io, "8:0 rbytes=10 wbytes=1\n8:16 rbytes=5 wbytes=1\n");
    assert_eq!(world.tick(1)["cgroup_io_read_bytes_total"], Value::Int(15));
    world.write(&io, "8:0 rbytes=12 wbytes=1\n");
    assert_eq!(world.tick(2)["cgroup_io_read_bytes_total"], Value::Int(17), "what it had is kept");
    fs::remove_dir_all(world.tree.path().join("sys/fs/cgroup")).unwrap();
    world.tick(61);
    assert_eq!(world.tick(62), BTreeMap::new());
}

#[test]
fn lustre_that_only_root_may_read_is_told_with_what_remains() {
    let mut world = World::empty(2);
    world.write("sys/fs/lustre/llite/scratch-ffff8a1234567800/fstype", "lustre\n");
    let stats = world.tree.path().join("sys/kernel/debug/lustre/llite/scratch-ffff8a1234567800/stats");
    fs::create_dir_all(&stats).unwrap();
    assert_eq!(world.tick(1), BTreeMap::new());
    let [told] = &world.sampler.take_refusals()[..] else { panic!("told once") };
    assert!(told.contains("process_io_read_chars_total") && told.contains("Is a directory"), "{told}");
    // Somebody opened it.
    fs::remove_dir(&stats).unwrap();
    fs::write(&stats, "open 3 samples [regs]\n").unwrap();
    assert_eq!(text(&[world.tick(61)]), "tick 1\nlustre_client_operations_total{fs=scratch} 3\n");
    assert_eq!(found(&world, Part::FileSystems, "Lustre"), [SourceState::Present]);
}

#[test]
fn lustre_statistics_that_were_cleared_begin_anew() {
    let mut world = World::empty(2);
    let path = "proc/fs/lustre/llite/work-ffff880012345678/stats";
    world.write(path, "read_bytes 5 samples [bytes] 4096 4096 20480\n");
    assert_eq!(world.tick(1)["lustre_client_read_bytes_total{fs=work}"], Value::Int(20_480));
    world.write(path, "read_bytes 1 samples [bytes] 4096 4096 4096\n");
    assert_eq!(world.tick(2)["lustre_client_read_bytes_total{fs=work}"], Value::Int(4_096));
    world.write(path, "snapshot_time 1 secs\n");
    assert_eq!(world.tick(3), BTreeMap::new());
}

#[test]
fn an_nfs_mount_that_comes_is_found_within_a_minute_and_one_that_goes_ends_its_series() {
    let mut world = World::empty(2);
    let mount = "device srv:/home mounted on /home with fstype nfs4 statvers=1.1\n\tbytes:\t0 0 0 0 7 8 0 0\n";
    world.write("proc/self/mountstats", "device proc mounted on /proc with fstype proc\n");
    world.tick(1);
    world.write("proc/self/mountstats", mount);
    assert_eq!(world.tick(2), BTreeMap::new());
    let read = "node_mountstats_nfs_total_read_bytes_total{export=srv:/home,mountpoint=/home}";
    assert_eq!(world.tick(61)[read], Value::Int(7));
    world.write("proc/self/mountstats", "device proc mounted on /proc with fstype proc\n");
    assert_eq!(world.tick(62), BTreeMap::new());
}

#[test]
fn a_slingshot_card_whose_items_cannot_be_read_is_told_and_the_others_go_on() {
    let mut world = World::empty(2);
    world.write("sys/class/cxi/cxi0/device/telemetry/hni_sts_tx_ok_octets/folder", "");
    world.write("sys/class/cxi/cxi1/device/telemetry/hni_sts_tx_ok_octets", "7@1790000000.1\n");
    world.write("sys/class/cxi/cxi2/device/uevent", "");
    assert_eq!(text(&[world.tick(1)]), "tick 1\ncxi_transmitted_bytes_total{device=cxi1} 7\n");
    let found = found(&world, Part::Fabrics, "Slingshot");
    let refused = |found: &SourceState| matches!(found, SourceState::Refused { .. });
    assert_eq!(found.iter().map(refused).collect::<Vec<_>>(), [true, false, true], "{found:?}");
}

#[test]
fn a_port_that_stops_at_32_bits_grows_no_more_and_one_without_a_count_has_no_sample() {
    let mut world = World::empty(2);
    let port = "sys/class/infiniband/mthca0/ports/1/counters";
    world.write(&format!("{port}/port_rcv_data"), "4294967295\n");
    world.write(&format!("{port}/port_xmit_data"), "N/A (no PMA)\n");
    let expected = "tick 1\nnode_infiniband_port_data_received_bytes_total 17179869180\n";
    assert_eq!(text(&[world.tick(1)]), expected);
    assert_eq!(text(&[world.tick(2)]), expected);
}

#[test]
fn a_card_that_goes_ends_its_series_with_the_next_search() {
    let mut world = World::empty(2);
    for card in ["cxi0", "cxi1"] {
        world.write(&format!("sys/class/cxi/{card}/device/telemetry/hni_sts_rx_ok_octets"), "7@1790000000.1\n");
    }
    assert_eq!(world.tick(1).len(), 2);
    fs::remove_dir_all(world.tree.path().join("sys/class/cxi/cxi0")).unwrap();
    assert_eq!(text(&[world.tick(61)]), "tick 1\ncxi_received_bytes_total{device=cxi1} 7\n");
}
