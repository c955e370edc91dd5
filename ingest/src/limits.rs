//! The limits of the way in with their values as they are: rows of docs/limits.md.
//!
//! A field of [`Limits`] or [`WriterOptions`] that has no row does not compile.

#[cfg(test)]
mod tests;

use telem_engine::limits::{LimitRow, bytes, count, time};

use crate::accept::lines::LINES_TOLD_MAX;
use crate::accept::{Limits, REJECTS_TOLD_MAX};
use crate::collect::cores::CPU_DIRECTORIES_MAX;
use crate::collect::cpu::CPUS_MAX;
use crate::collect::devices::DEVICES_MAX;
use crate::collect::energy::{ACCELERATORS_MAX, ZONES_MAX};
use crate::collect::fabric::infiniband::PORTS_MAX;
use crate::collect::gpu::GPUS_MAX;
use crate::collect::gpu::clients::{CLIENT_FILES_MAX, CLIENT_PROCESSES_MAX, CLIENTS_MAX};
use crate::collect::gpu::drm::DRM_CARDS_MAX;
use crate::collect::gpu::nvidia::limits::{ANSWER_WAIT, CALL_DEADLINE, CARD_PROCESSES_MAX, CARDS_MAX};
use crate::collect::inventory::INVENTORY_MAX;
use crate::collect::job::JOB_EVERY_TICK_MAX;
use crate::collect::job::members::NAMES_MAX;
use crate::collect::job::series::{GROUPS_MAX, JOB_PROCESSES_MAX, SETTLED_AFTER, SHORT_ALL_MAX, SHORT_MAX};
use crate::collect::lustre::LUSTRE_MAX;
use crate::collect::memory_errors::CONTROLLERS_MAX;
use crate::collect::mounts::FILE_SYSTEMS_MAX;
use crate::collect::nfs::NFS_MOUNTS_MAX;
use crate::collect::processes::{PROCESSES_MAX, WALK_INTERVAL};
use crate::collect::sensors::FIGURES_MAX;
use crate::collect::source::FILE_BYTES_MAX;
use crate::collect::space::{HUNG_MAX, SPACE_DEADLINE};
use crate::collect::threads::HANG_AFTER;
use crate::decode::exposition::ExpositionLimits;
use crate::decode::line::{FIELDS_MAX, LINE_BYTES_MAX};
use crate::decode::opentsdb;
use crate::known::SENDERS_MAX;
use crate::rank::ENVIRONMENT_BYTES_MAX;
use crate::schedule::{INTERVAL_MAX, INTERVAL_MIN};
use crate::writer::WriterOptions;
use crate::writer::kept::STEADY;

const REJECTED: &str = "the sample is rejected";
const LINE_REJECTED: &str = "the line is rejected";
const BUSY: &str = "503, try again";
const LEFT_OUT: &str = "left out";

/// Limits of what senders bring, and of what waits to be written.
pub fn samples() -> Vec<LimitRow> {
    let WriterOptions {
        limits: Limits { ahead_max, age_max, batch_samples_max, tags_max },
        queue_samples_max,
        queue_batches_max,
        kept_samples_max,
        known_bytes_max,
        sync_interval,
        flush_wait_max,
        flush_retry_first,
        flush_retry_max,
        // No limits.
        give_back: _,
        when_removed: _,
        clock: _,
    } = WriterOptions::default();
    vec![
        LimitRow::new("ahead of the clock (`Limits::ahead_max`)", time(ahead_max), REJECTED),
        LimitRow::new(
            "behind the clock (`Limits::age_max`)",
            format!("{}; the age of the retention, where there is one", age_max.map_or("none".to_owned(), time)),
            REJECTED,
        )
        .flag("--retention-age"),
        LimitRow::new(
            "samples of a request (`Limits::batch_samples_max`)",
            count(batch_samples_max),
            "the rest is rejected",
        ),
        LimitRow::new(
            "tags of a sample (`Limits::tags_max`)",
            format!("{}; {} for puts with `--opentsdb-exact`", count(tags_max), count(opentsdb::TAGS_MAX)),
            REJECTED,
        ),
        LimitRow::new("bytes of a line (`LINE_BYTES_MAX`)", bytes(LINE_BYTES_MAX), LINE_REJECTED),
        LimitRow::new("fields of a line (`FIELDS_MAX`)", count(FIELDS_MAX), LINE_REJECTED),
        LimitRow::new(
            "rejects told with their reasons (`REJECTS_TOLD_MAX`, `LINES_TOLD_MAX`)",
            format!("{} points, {} lines", count(REJECTS_TOLD_MAX), count(LINES_TOLD_MAX)),
            "counted only",
        ),
        LimitRow::new(
            "samples that wait to be appended (`WriterOptions::queue_samples_max`)",
            count(queue_samples_max),
            BUSY,
        )
        .flag("--queue-samples-max"),
        LimitRow::new("batches that wait (`WriterOptions::queue_batches_max`)", count(queue_batches_max), BUSY)
            .flag("--queue-batches-max"),
        LimitRow::new(
            "collected samples kept while the disk is full (`WriterOptions::kept_samples_max`)",
            count(kept_samples_max),
            "the oldest are lost and counted",
        ),
        LimitRow::new("after a refusal, until samples count as written again (`STEADY`)", time(STEADY), ""),
        LimitRow::new(
            "memory for names that senders repeat (`WriterOptions::known_bytes_max`)",
            format!("{} for each of line protocol and put", bytes(known_bytes_max)),
            "names beyond are parsed each time",
        ),
        LimitRow::new(
            "kinds of senders whose names are told apart, by the tags that they get (`SENDERS_MAX`)",
            count(SENDERS_MAX),
            "names are learned anew",
        ),
        LimitRow::new(
            "bytes of an environment in which a rank is looked for (`ENVIRONMENT_BYTES_MAX`)",
            bytes(ENVIRONMENT_BYTES_MAX),
            "the rest is not looked at",
        ),
        LimitRow::new("wait for an fsync (`WriterOptions::sync_interval`)", time(sync_interval), ""),
        LimitRow::new(
            "a batch, for a flush when memtables, or the WAL where `--data-bytes-max` is set, hold twice what makes one due \
             (`WriterOptions::flush_wait_max`)",
            time(flush_wait_max),
            "it goes on; memory fills, up to `memtable_bytes_max`",
        ),
        LimitRow::new(
            "between attempts to flush (`WriterOptions::flush_retry_first`, `flush_retry_max`)",
            format!("{}, doubled up to {}", time(flush_retry_first), time(flush_retry_max)),
            "",
        ),
    ]
}

/// Limits of what is read from other exporters at once.
pub fn scraped() -> Vec<LimitRow> {
    let ExpositionLimits { line_bytes_max, samples_max, families_max, labels_max, refused_told_max } =
        ExpositionLimits::default();
    vec![
        LimitRow::new(
            "bytes of a line of an exporter (`ExpositionLimits::line_bytes_max`)",
            bytes(line_bytes_max),
            LINE_REJECTED,
        ),
        LimitRow::new("its samples (`ExpositionLimits::samples_max`)", count(samples_max), "the rest is rejected"),
        LimitRow::new(
            "its families (`ExpositionLimits::families_max`)",
            count(families_max),
            "samples of the others have no type",
        ),
        LimitRow::new("labels of one of its samples (`ExpositionLimits::labels_max`)", count(labels_max), REJECTED),
        LimitRow::new(
            "its refused lines told with their reasons (`ExpositionLimits::refused_told_max`)",
            count(refused_told_max),
            "counted only",
        ),
    ]
}

/// Limits of what is collected.
pub fn collected() -> Vec<LimitRow> {
    vec![
        LimitRow::new(
            "between ticks (`INTERVAL_MIN`, `INTERVAL_MAX`)",
            format!("{} to {}", time(INTERVAL_MIN), time(INTERVAL_MAX)),
            "telem does not start",
        ),
        LimitRow::new(
            "reading of a source (`HANG_AFTER`)",
            time(HANG_AFTER),
            "warned of, and left out until it can be read again",
        ),
        LimitRow::new("bytes of a file that is read (`FILE_BYTES_MAX`)", bytes(FILE_BYTES_MAX), "the rest is left out"),
        LimitRow::new("CPUs with series of their own at level 3 (`CPUS_MAX`)", count(CPUS_MAX), LEFT_OUT),
        LimitRow::new("devices of a kind (`DEVICES_MAX`)", count(DEVICES_MAX), LEFT_OUT),
        LimitRow::new("devices of a node in the inventory (`INVENTORY_MAX`)", count(INVENTORY_MAX), LEFT_OUT),
        LimitRow::new("ports of InfiniBand (`PORTS_MAX`)", count(PORTS_MAX), LEFT_OUT),
        LimitRow::new(
            "mounts of Lustre (`LUSTRE_MAX`) and of NFS (`NFS_MOUNTS_MAX`)",
            format!("{}, {}", count(LUSTRE_MAX), count(NFS_MOUNTS_MAX)),
            LEFT_OUT,
        ),
        LimitRow::new(
            "file systems that are asked for their space (`FILE_SYSTEMS_MAX`)",
            format!("{}, local ones first", count(FILE_SYSTEMS_MAX)),
            LEFT_OUT,
        ),
        LimitRow::new(
            "wait for the space of a file system (`SPACE_DEADLINE`), and threads that wait (`HUNG_MAX`)",
            format!("{}, {}", time(SPACE_DEADLINE), count(HUNG_MAX)),
            "the others are asked without it; none while so many wait",
        ),
        LimitRow::new("zones of RAPL (`ZONES_MAX`)", count(ZONES_MAX), LEFT_OUT),
        LimitRow::new("accelerators of Cray's counters (`ACCELERATORS_MAX`)", count(ACCELERATORS_MAX), LEFT_OUT),
        LimitRow::new("sensors, and their figures (`SENSORS_MAX`, `FIGURES_MAX`)", count(FIGURES_MAX), LEFT_OUT),
        LimitRow::new(
            "CPUs whose clocks and throttling are read (`CPU_DIRECTORIES_MAX`)",
            count(CPU_DIRECTORIES_MAX),
            LEFT_OUT,
        ),
        LimitRow::new("controllers of memory (`CONTROLLERS_MAX`)", count(CONTROLLERS_MAX), LEFT_OUT),
        LimitRow::new("GPUs with series (`GPUS_MAX`), those that went included", count(GPUS_MAX), LEFT_OUT),
        LimitRow::new("GPUs of AMD, and of Intel (`DRM_CARDS_MAX`)", count(DRM_CARDS_MAX), LEFT_OUT),
        LimitRow::new(
            "processes, open files of each, and handles of all that are looked through for memory of GPUs \
             (`CLIENT_PROCESSES_MAX`, `CLIENT_FILES_MAX`, `CLIENTS_MAX`)",
            format!("{}; {}; {}", count(CLIENT_PROCESSES_MAX), count(CLIENT_FILES_MAX), count(CLIENTS_MAX)),
            LEFT_OUT,
        ),
        LimitRow::new("GPUs of NVIDIA (`CARDS_MAX`)", count(CARDS_MAX), LEFT_OUT),
        LimitRow::new("processes of a GPU of NVIDIA (`CARD_PROCESSES_MAX`)", count(CARD_PROCESSES_MAX), LEFT_OUT),
        LimitRow::new(
            "wait for an answer about GPUs at a tick (`ANSWER_WAIT`)",
            time(ANSWER_WAIT),
            "it is taken at a later tick",
        ),
        LimitRow::new(
            "time of one call of a vendor's library (`CALL_DEADLINE`)",
            time(CALL_DEADLINE),
            "the process that made it is killed, and its GPU left out at first",
        ),
        LimitRow::new(
            "processes of the job with series of their own at a tick (`JOB_PROCESSES_MAX`)",
            format!("{}, the dearest", count(JOB_PROCESSES_MAX)),
            "together, by command and rank",
        ),
        LimitRow::new(
            "processes of the job that are read at every tick (`JOB_EVERY_TICK_MAX`)",
            count(JOB_EVERY_TICK_MAX),
            format!("all are read every {}", time(WALK_INTERVAL)),
        ),
        LimitRow::new(
            "short processes of a command, and of all, with series (`SHORT_MAX`, `SHORT_ALL_MAX`)",
            format!("{}; {}", count(SHORT_MAX), count(SHORT_ALL_MAX)),
            format!("together, until they are {} old (`SETTLED_AFTER`)", time(SETTLED_AFTER)),
        ),
        LimitRow::new(
            "commands and ranks that stand together under their own name (`GROUPS_MAX`)",
            count(GROUPS_MAX),
            "as `other`",
        ),
        LimitRow::new("names of one process (`NAMES_MAX`)", format!("{} changes", NAMES_MAX), "it keeps the last"),
        LimitRow::new(
            "processes of the user with series at level 4 (`PROCESSES_MAX`)",
            format!("{}, the dearest", count(PROCESSES_MAX)),
            "counted",
        ),
    ]
}
