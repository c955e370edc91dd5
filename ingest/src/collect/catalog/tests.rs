//! The catalog is complete, and the page of metrics agrees with it.

use std::collections::BTreeSet;
use std::fmt::Write;

use expect_test::expect_file;
use telem_engine::{SeriesKey, TagSet};

use super::*;

#[test]
fn every_metric_has_a_name_of_its_own_a_kind_and_help() {
    let mut seen = BTreeSet::new();
    for metric in catalog() {
        assert!(seen.insert(metric.name), "{} stands twice", metric.name);
        SeriesKey::new(metric.name, TagSet::default()).unwrap();
        assert!(!metric.help.is_empty() && !metric.help.ends_with('.'), "{}: '{}'", metric.name, metric.help);
        assert!(!metric.unit.is_empty(), "{}: what does it count?", metric.name);
        let alone = !metric.help.contains("this failed") && !metric.help.contains("that did not");
        assert!(alone, "{}: '{}' says nothing without the row above", metric.name, metric.help);
        assert!((2..=4).contains(&metric.level), "{}", metric.name);
        assert_eq!(describe(metric.name), Some(metric));
    }
    assert_eq!(describe("loss"), None);
}

#[test]
fn names_say_their_unit_and_whether_they_only_grow() {
    // Those are called as the kernel calls them.
    let is_kernels = |name: &str| name.starts_with("node_vmstat_") || name.starts_with("node_netstat_");
    for metric in catalog().iter().filter(|metric| !is_kernels(metric.name)) {
        let total = metric.name.ends_with("_total");
        assert_eq!(total, metric.kind == MetricKind::Counter, "{}", metric.name);
        let unit = metric.name.trim_end_matches("_total").rsplit('_').next().unwrap();
        let units = ["bytes", "seconds", "joules", "watts", "celsius", "hertz"];
        if units.contains(&unit) || units.contains(&metric.unit) {
            // node_exporter's one name with its unit in the middle, and names of others.
            let of_others = [
                "node_disk_io_time_weighted_seconds_total",
                "node_hwmon_power_watt",
                "node_hwmon_power_average_watt",
                "node_hwmon_energy_joule_total",
                "node_thermal_zone_temp",
                "DevicePowerUsage",
            ];
            assert!(of_others.contains(&metric.name) || unit == metric.unit, "{} is in '{}'", metric.name, metric.unit);
        }
    }
}

#[test]
fn the_tags_of_all_metrics_are_known() {
    for known in
        ["host", "mode", "cpu", "device", "port", "mountpoint", "fstype", "pid", "comm", "parent", "rank", "counted"]
            .into_iter()
            .chain(["gpu", "mig", "partition", "clock", "reason", "severity", "xid"])
            .chain(["source", "index", "accel", "chip", "sensor", "zone", "type", "package", "core", "controller"])
            .chain(["fs", "operation", "export", "node"])
    {
        assert!(is_tag_key(known), "{known}");
    }
    assert!(!is_tag_key("ranks") && !is_tag_key("") && !is_tag_key("dev"));
}

#[test]
fn metrics_stand_by_level() {
    assert!(catalog().is_sorted_by_key(|metric| metric.level));
}

/// UPDATE_EXPECT=1 writes it anew.
#[test]
fn the_page_of_metrics_says_what_the_catalog_says() {
    expect_file!["../../../../docs/metrics.md"].assert_eq(&page());
}

const HEAD: &str = "\
# The metrics that telem collects

Every series has the tag `host`. `--level N` collects all rows up to level N. The default of `telem run` is 2; that of
`telem serve` is 1, which means user metrics only. In SQL the table `metrics` lists the same metrics.

* Tags in parentheses exist only at level 3 and above. There the series of the parts replace their sum, so a sum over
  all series of a name is the same at every level.
* Counters only grow while the node runs; query their rate. Whole numbers are stored as integers, times as seconds.
* If a kernel lacks a file (pressure on old kernels, many files inside containers), its metrics are left out. If a file
  is missing that every node has (load average, CPU times, memory, network interfaces, processes), telem warns once.
  Numbers beyond 2⁶³-1 count as damage and are not stored.
* Samples carry the time of their tick, a multiple of `--interval`. A tick that is more than half an interval late is
  skipped and counted (`telem_ingest_ticks_skipped_total`).
* Only disks and network interfaces that are hardware are collected: no partitions, loop devices, bridges, or other
  devices on top of hardware, which would count twice. If no interface is hardware (containers), all interfaces but
  loopback are collected. Loopback never counts, not even at level 3: it is memory of the node, and each byte would
  count as sent and as received.
* Space is reported for each file system separately at every level, because sums over file systems mean little.
* If a source takes more than 5 s to read, telem warns and leaves it out until it can be read again; the other sources
  go on.
* Devices are asked at most once a second, beside the other sources and in groups of their own: fabrics, parallel file
  systems, power meters, counters of energy, sensors, GPUs. A driver that is slow or hangs costs samples of its group
  only; the ticks that a group missed are counted (`telem_ingest_device_ticks_skipped_total`). Devices are looked for
  once a minute. Of those that a node does not have, it has no series; of those that it has and that may not be read,
  telem warns once and says what helps.
* At level 2 a device that cannot be read for a while, that is gone or that counts anew stays in the sums over all
  devices with what it counted last (InfiniBand, memory errors, throttling), so a sum never falls. Of RAPL, Slingshot
  and Lustre the sum is left out until all can be read.
* If `--interval` is longer than 30 s, counters of energy that go around (RAPL) are read every 30 s all the same.
* `cgroup_*` is the control group that the scheduler (Slurm, PBS, LSF) made for the job in which telem runs, with all
  its steps, or that of the container. It is found from telem's own path, never by a name. Outside of a job (a login
  session, a service, a plain virtual machine) and with a `--sysroot` other than `/` of a host there are no such series.
* In SQL the tag `node` of `node_memory_numa_*` is the column `tag_node`.
* If the user has more than 1,000 processes, those with the most CPU time have series (among equals, those with the most
  memory). The others are counted (`telem_ingest_processes_skipped`). Processes are listed between ticks, and a process
  gets series when two lists in a row contain it.
* The processes of the job are those that the command of `telem run` started, and those that they started in turn. On
  other nodes, and if a parent has ended, processes are recognised by their session or process group, by the job's
  `TELEM_JOB` (else the scheduler's job number) in their environment, or by the scheduler's control group. (Processes
  that a batch script runs beside the command have a parent outside of the job, and do not belong to it.) They are read
  at every tick and have a sample from the first tick that finds them; their CPU time begins with 0 at the tick before.
  * `rank` is the launcher's (`RANK`, `OMPI_COMM_WORLD_RANK`, `PMIX_RANK`, `PMI_RANK`, `SLURM_PROCID`). `parent` is the
    command of the parent.
  * The sum of `job_process_cpu_seconds_total` over all series is the CPU time of the job. `counted=reaped` is the CPU
    time of processes after the last tick that saw them, or of processes that no tick saw, taken from the account of the
    parent that waited for them. It is listed under the command of the parent's children if a tick saw such children,
    else under the parent's own command. One part is missing: the CPU time after the last tick of a process whose parent
    did not wait for it. Such a parent ignores SIGCHLD, has ended, or is the launcher's own daemon, as for tasks on
    other nodes. The kernel reports times to 0.01 s.
  * The 512 processes with the most CPU time have series of their own. The others are combined by command and rank,
    `counted=together`. If 64 processes of a command had series and lived for less than 5 s, further processes of that
    command are combined too until they are 5 s old. Beyond 1,000 commands and ranks the rest is `other`. While the job
    has more than 1,000 processes on a node, they are read every 5 s.
  * `telem run` and agents follow a job; `telem serve` does not, nor does any command with a `--sysroot` other than `/`.
* In a container that has the host's root mounted, for example at `/host`, `--sysroot /host` samples the host: its
  files, its network, its file systems.
";

fn page() -> String {
    let mut page = HEAD.to_owned();
    for level in 2..=4 {
        let about = match level {
            2 => "the node",
            3 => "its parts (the tags in parentheses above), and the processes of the job",
            _ => "processes of your user, and telem itself",
        };
        write!(page, "\n## Level {level}: {about}\n").unwrap();
        let rows: Vec<_> = catalog().iter().filter(|metric| metric.level == level).collect();
        if rows.is_empty() {
            continue;
        }
        page.push_str("\n| metric | type | unit | tags | |\n|---|---|---|---|---|\n");
        for metric in rows {
            let kind = format!("{:?}", metric.kind).to_lowercase();
            let Described { name, unit, tags, help, .. } = metric;
            writeln!(page, "| `{name}` | {kind} | {unit} | {tags} | {help} |").unwrap();
        }
    }
    page
}
