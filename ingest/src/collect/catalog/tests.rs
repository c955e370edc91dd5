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
    for metric in catalog().iter().filter(|metric| !metric.name.starts_with("node_vmstat_")) {
        let total = metric.name.ends_with("_total");
        assert_eq!(total, metric.kind == MetricKind::Counter, "{}", metric.name);
        let unit = metric.name.trim_end_matches("_total").rsplit('_').next().unwrap();
        if ["bytes", "seconds"].contains(&unit) || ["bytes", "seconds"].contains(&metric.unit) {
            // node_exporter's one name with its unit in the middle.
            let weighted = metric.name == "node_disk_io_time_weighted_seconds_total";
            assert!(weighted || unit == metric.unit, "{} is in '{}'", metric.name, metric.unit);
        }
    }
}

#[test]
fn the_tags_of_all_metrics_are_known() {
    for known in
        ["host", "mode", "cpu", "device", "port", "mountpoint", "fstype", "pid", "comm", "parent", "rank", "counted"]
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

Every series carries the tag `host`. `--level N` collects all rows up to level N; the default of `telem run` is 2, of
`telem serve` 1 (user metrics only). In SQL the same is in the table `metrics`.

* Tags in parentheses stand at level 3 and above only. There the series of the parts take the place of their
  sum, so a sum over all series of a name says the same at every level.
* Counters only grow while the node runs; ask for their rate. Whole numbers are stored as integers, times as
  seconds.
* A file that a kernel does not have (pressure on old ones, much inside containers) leaves its metrics out. What every
  node has (load average, CPU times, memory, network interfaces, processes) is warned of once where it is missing.
  Numbers beyond 2⁶³-1 are damage, and no samples.
* Samples carry the time of their tick, a multiple of `--interval`. A tick that is more than half an interval late
  is skipped and counted (`telem_ingest_ticks_skipped_total`).
* Disks and network interfaces are those of the hardware: no partitions, no loop devices, no bridges, nothing that
  stands on top of others and would count twice. Where no interface is of hardware (containers), all but loopback.
  Loopback never counts, at level 3 neither: it is memory of the node, and each byte would count as sent and received.
* Space is told of each file system on its own at every level: sums over file systems mean little.
* A source that takes more than 5 s to read is warned of and left out until it can be read again; the others go on.
* Of more than 1,000 processes of the user those with the most CPU time have series (among equals, those with the most
  memory); the others are counted (`telem_ingest_processes_skipped`). They are walked over beside the ticks, and
  a process gets series when two walks in a row met it.
* The processes of the job are what the command of `telem run` started, and what those started in turn; on other nodes,
  and where a parent is gone, what stands in their session or process group, has the job's `TELEM_JOB` (else the
  scheduler's job number) in its environment, or runs in the scheduler's control group. (What a batch script runs beside
  the command has a parent of the user, and does not belong.) They are read at every tick and have a sample from the first
  tick that meets them; their CPU time begins with 0 at the tick before.
  * `rank` is what a launcher said (`RANK`, `OMPI_COMM_WORLD_RANK`, `PMIX_RANK`, `PMI_RANK`, `SLURM_PROCID`), `parent` the
    command of the parent.
  * The sum of `job_process_cpu_seconds_total` over all series is the CPU time of the job. `counted=reaped` is what
    processes used after they were seen last, or without ever being seen, as it shows in the account of the parent that
    waited for them; it stands under the command of its children where those that were seen had one, else under the
    parent's. Missing is what a process used after its last tick whose parent did not wait for it: it ignores SIGCHLD, or
    was gone, or is the launcher's own daemon, as of the tasks on other nodes. The kernel tells times to 0.01 s.
  * The 512 processes with the most CPU time have series of their own; the others stand together by command and rank,
    `counted=together`. So do the processes of a command of which 64 had series and lived for less than 5 s: from then on
    one of them has its own after 5 s. Of more than 1,000 commands and ranks the rest is `other`. While the job has more
    than 1,000 processes on a node, they are read every 5 s.
  * `telem run` and agents follow a job; `telem serve`, and a `--sysroot` other than `/`, do not.
* In a container that has the host's root mounted, say at `/host`, `--sysroot /host` samples the host: its files, its
  network, its file systems.
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
