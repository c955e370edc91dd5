//! Limits of jobs, of launching them and of their nodes.

use std::time::Duration;

use telem_engine::limits::{LimitRow, bytes, count, time};

use crate::agent::member::{NEWS_INTERVAL, REPORT_INTERVAL};
use crate::cli::node::JOIN_FILE_WAIT;
use crate::cli::service::NODE_QUERY_MEMORY;
use crate::job::company::{HURRIED_AGENTS_TIMEOUT, OTHERS_TIMEOUT};
use crate::job::recorder::threads::THREADS_MIN;
use crate::job::{STOP_TIMEOUT, mpi_profile, usage};
use crate::join::HEAD_GONE_TIMEOUT;
use crate::launch::agents::ORPHAN_TIMEOUT;
use crate::launch::agents::command::SSH_CONNECT_SECONDS;
use crate::launch::crew::{JOIN_TIMEOUT, TERM_TIME};
use crate::launch::hostlist::{HOSTS_MAX, NAME_BYTES_MAX, TEXT_BYTES_MAX};
use crate::launch::launcher::DEPTH_MAX;
use crate::launch::plan::LOCAL_MAX;
use crate::launch::scheduler::{FILE_BYTES_MAX, FILE_HOSTS_MAX};
use crate::launch::task::{HANDOVER_TIMEOUT, HEAD_TIMEOUT, KEEPER_TIMEOUT, LAUNCH_BYTES_MAX};
use crate::membership::link::{ANSWER_TIMEOUT, CONNECT_TIMEOUT};
use crate::membership::registry::{NODES_MAX, SUSPECT_AFTER};
use crate::saving::save::destination;
use crate::{private_dir, private_file};

const ENDS: &str = "it ends in order";

/// Limits of a job on one node.
pub fn job() -> Vec<LimitRow> {
    let names_max = [private_dir::NAMES_MAX, destination::NAMES_MAX, private_file::NAMES_MAX];
    let (least, most) = names_max.iter().fold((u32::MAX, 0), |(least, most), max| (least.min(*max), most.max(*max)));
    vec![
        LimitRow::new(
            "names that are tried for a directory of ours where anybody may write, for `telem-JOB` that is saved to, \
             and for a file that is not whole yet (`NAMES_MAX` of `private_dir`, `destination`, `private_file`)",
            if least == most { count(least) } else { names_max.map(count).join(", ") },
            "the next place; without one an error that says who is in the way of the first",
        ),
        LimitRow::new(
            "bytes of a launch's name that tell it from others (`LAUNCH_BYTES_MAX`)",
            format!("{}, the last ones", count(LAUNCH_BYTES_MAX)),
            "",
        ),
        LimitRow::new(
            "shells and scripts between a launcher and its task (`DEPTH_MAX`)",
            count(DEPTH_MAX),
            "recorded alone",
        ),
        LimitRow::new(
            "looks at what the command's processes take (`INTERVAL_MAX`, `REST`)",
            format!(
                "every {}, and no more often than after {} times what a look takes",
                time(usage::INTERVAL_MAX),
                count(usage::REST)
            ),
            "short processes are in the sum alone, which is the kernel's",
        ),
        LimitRow::new("processes in such a look (`PROCESSES_MAX`)", count(usage::PROCESSES_MAX), "not seen"),
        LimitRow::new(
            "names of processes that are told apart (`NAMES_MAX` of `usage`)",
            count(usage::NAMES_MAX),
            "`others`",
        ),
        LimitRow::new(
            "threads that the recorder must be able to have (`THREADS_MIN`)",
            count(THREADS_MIN),
            "the command runs and is not recorded, which is said",
        ),
        LimitRow::new(
            "building the library that counts calls of MPI (`BUILD_TIMEOUT`)",
            time(mpi_profile::BUILD_TIMEOUT),
            "the command runs, and calls are not counted, which is said",
        ),
    ]
}

/// Limits of how a job gets its nodes.
pub fn launching() -> Vec<LimitRow> {
    vec![
        LimitRow::new(
            "hosts of a list (`HOSTS_MAX`), its bytes (`TEXT_BYTES_MAX`), a name (`NAME_BYTES_MAX`)",
            [count(HOSTS_MAX), bytes(TEXT_BYTES_MAX), bytes(NAME_BYTES_MAX)].join("; "),
            "an error that names the place",
        ),
        LimitRow::new(
            "a file of hosts (`FILE_BYTES_MAX`), hosts it names with repetitions (`FILE_HOSTS_MAX`)",
            format!("{}; {}", bytes(FILE_BYTES_MAX), count(FILE_HOSTS_MAX)),
            "an error",
        ),
        LimitRow::new("agents on one machine (`LOCAL_MAX`)", count(LOCAL_MAX), "an error"),
        LimitRow::new(
            "wait for agents to join (`JOIN_TIMEOUT`)",
            time(JOIN_TIMEOUT),
            "the command starts without them",
        ),
        LimitRow::new(
            "wait of `ssh` for a host (`SSH_CONNECT_SECONDS`)",
            time(Duration::from_secs(SSH_CONNECT_SECONDS.into())),
            "a warning",
        ),
        LimitRow::new(
            "end of agents (`STOP_TIMEOUT`)",
            format!(
                "{} and `--save-timeout`; {} when it is urgent (`HURRIED_AGENTS_TIMEOUT`)",
                time(STOP_TIMEOUT),
                time(HURRIED_AGENTS_TIMEOUT)
            ),
            format!("SIGTERM, {} later SIGKILL", time(TERM_TIME)),
        ),
        LimitRow::new(
            "wait for other tasks of the node, and of a head for nodes with commands of their own (`OTHERS_TIMEOUT`)",
            format!("{}, none where its command failed", time(OTHERS_TIMEOUT)),
            "it ends",
        ),
        LimitRow::new(
            "wait of a recorder for the head (`HEAD_TIMEOUT`), of the other tasks for their node's recorder \
             (`KEEPER_TIMEOUT`)",
            format!("{}; {} while it lives", time(HEAD_TIMEOUT), time(KEEPER_TIMEOUT)),
            "alone; no other recorder records it",
        ),
        LimitRow::new(
            "wait of the head for a task that keeps its node to give it up (`HANDOVER_TIMEOUT`)",
            time(HANDOVER_TIMEOUT),
            "both record, one of them the node",
        ),
        LimitRow::new(
            "life of an agent without its head, its standard input open (`HEAD_GONE_TIMEOUT`)",
            time(HEAD_GONE_TIMEOUT),
            ENDS,
        )
        .flag("--head-gone-timeout"),
        LimitRow::new(
            "the same once its standard input has ended (`ORPHAN_TIMEOUT`)",
            format!("none on the head's machine, {} elsewhere", time(ORPHAN_TIMEOUT)),
            ENDS,
        ),
    ]
}

/// Limits of what the nodes of a job say to each other.
pub fn nodes() -> Vec<LimitRow> {
    vec![
        LimitRow::new("nodes of a job (`NODES_MAX`)", count(NODES_MAX), "refused"),
        LimitRow::new(
            "between reports (`REPORT_INTERVAL`, `NEWS_INTERVAL`)",
            format!(
                "{}; {} when series come up that the head does not know",
                time(REPORT_INTERVAL),
                time(NEWS_INTERVAL)
            ),
            "",
        ),
        LimitRow::new("silence of a node (`SUSPECT_AFTER`)", time(SUSPECT_AFTER), "it is suspect"),
        LimitRow::new(
            "a connection to the head, and its answer (`CONNECT_TIMEOUT`, `ANSWER_TIMEOUT`)",
            format!("{}, {}", time(CONNECT_TIMEOUT), time(ANSWER_TIMEOUT)),
            "tried again",
        ),
        LimitRow::new(
            "wait of an agent for its join file (`JOIN_FILE_WAIT`)",
            time(JOIN_FILE_WAIT),
            "it ends with an error",
        ),
        LimitRow::new("memory of the queries of an agent (`NODE_QUERY_MEMORY`)", bytes(NODE_QUERY_MEMORY), "an error")
            .flag("--query-memory"),
    ]
}
