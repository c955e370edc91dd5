//! Limits of Metric Proxy's API and socket.

use telem_engine::limits::{LimitRow, bytes, count, time};
use telem_ingest::counters::COUNTER_NAMES_MAX;
use telem_ingest::decode::proxy::{COUNTER_DOC_BYTES_MAX, COUNTER_NAME_BYTES_MAX, MESSAGE_BYTES_MAX};

use crate::protocols::proxy::alarms::{ALARMS_MAX, COMMAND_DEADLINE, COMMANDS_MAX, RISES_MAX};
use crate::protocols::proxy::ftio::{FTIO_DEADLINE, FTIO_JOBS_MAX};
use crate::protocols::proxy::models::{COMMANDS_KEPT_MAX, EXTRAP_DEADLINE, PLOT_POINTS_MAX};
use crate::protocols::proxy::program::PROGRAMS_MAX;
use crate::protocols::proxy::queue::{SQUEUE_DEADLINE, SQUEUE_OUTPUT_MAX};
use crate::protocols::proxy::socket::{CONNECTIONS_MAX, REFUSALS_MAX};
use crate::protocols::proxy::traces::{TRACE_POINTS_MAX, TRACE_VALUES_MAX};
use crate::protocols::proxy::{ProxyOptions, reply, runs, scrapes, targets, tree};

/// What clients of Metric Proxy may send and ask.
pub fn proxy() -> Vec<LimitRow> {
    let refused = "the message is refused and counted; the connection stays";
    let not_taken = "told in /join/list, and tried again after a pause";
    vec![
        LimitRow::new("connections to its socket (`CONNECTIONS_MAX`)", count(CONNECTIONS_MAX), "hung up on"),
        LimitRow::new("bytes of a message (`MESSAGE_BYTES_MAX`)", bytes(MESSAGE_BYTES_MAX), refused),
        LimitRow::new(
            "bytes of a counter's name with its labels (`COUNTER_NAME_BYTES_MAX`)",
            count(COUNTER_NAME_BYTES_MAX),
            refused,
        ),
        LimitRow::new("bytes of its documentation (`COUNTER_DOC_BYTES_MAX`)", bytes(COUNTER_DOC_BYTES_MAX), refused),
        LimitRow::new("names of counters (`COUNTER_NAMES_MAX`)", count(COUNTER_NAMES_MAX), refused),
        LimitRow::new("messages refused in a row (`REFUSALS_MAX`)", count(REFUSALS_MAX), "hung up on"),
        LimitRow::new(
            "after a job's last connection, for another one to go on with it (`RETURN_MAX`)",
            time(runs::RETURN_MAX),
            "another run begins",
        ),
        LimitRow::new(
            "jobs that wait for that while no proxy polls the server (`RETURNING_MAX`)",
            count(runs::RETURNING_MAX),
            "those that ended first do not go on",
        ),
        LimitRow::new(
            "counters of these together (`RETURNING_COUNTERS_MAX`), unless they are so few jobs (`RETURNING_MIN`)",
            format!("{}, {}", count(runs::RETURNING_COUNTERS_MAX), count(runs::RETURNING_MIN)),
            "the same",
        ),
        LimitRow::new("targets that are polled (`TARGETS_MAX`)", count(targets::TARGETS_MAX), "400"),
        LimitRow::new("jobs of a child (`CHILD_JOBS_MAX`)", count(scrapes::CHILD_JOBS_MAX), not_taken),
        LimitRow::new(
            "bytes of a child's answer (`PROXY_BYTES_MAX`)",
            bytes(targets::fetch::PROXY_BYTES_MAX),
            not_taken,
        ),
        LimitRow::new(
            "bytes of the profile of a child's job that went (`PROFILE_BYTES_MAX`), and of those of one poll \
             (`PROFILES_BYTES_MAX`)",
            format!("{}, {}", bytes(targets::fetch::PROFILE_BYTES_MAX), bytes(scrapes::PROFILES_BYTES_MAX)),
            "what the job counted after the last poll is not in its profile here",
        ),
        LimitRow::new("for these to come (`PROFILES_MAX`)", time(scrapes::PROFILES_MAX), "the same"),
        LimitRow::new(
            "bytes of an exporter's answer (`EXPORTER_BYTES_MAX`)",
            bytes(targets::fetch::EXPORTER_BYTES_MAX),
            not_taken,
        ),
        LimitRow::new(
            "for an answer of a target to be whole (`ANSWER_MAX`)",
            time(targets::fetch::ANSWER_MAX),
            not_taken,
        ),
        LimitRow::new("proxies that asked for a parent (`CHILDREN_MAX`)", count(tree::CHILDREN_MAX), "400"),
        LimitRow::new("bytes of a request (`BODY_BYTES_MAX` of `reply`)", bytes(reply::BODY_BYTES_MAX), "400"),
        LimitRow::new(
            "age of a profile (`ProxyOptions::profiles_keep`)",
            time(ProxyOptions::default().profiles_keep),
            "forgotten; what it counted stays in the sums",
        )
        .flag("--profiles-keep"),
        LimitRow::new("alarms (`ALARMS_MAX`)", count(ALARMS_MAX), "400"),
        LimitRow::new("times that alarms were raised, kept (`RISES_MAX`)", count(RISES_MAX), "the oldest is forgotten"),
        LimitRow::new(
            "commands of alarms at once (`COMMANDS_MAX`), and how long one may run (`COMMAND_DEADLINE`)",
            format!("{}, {}", count(COMMANDS_MAX), time(COMMAND_DEADLINE)),
            "left out and told in the log; killed with all that it started",
        ),
        LimitRow::new(
            "points of a metric in a trace, and of all its metrics (`TRACE_POINTS_MAX`, `TRACE_VALUES_MAX`)",
            format!("{}, {}", count(TRACE_POINTS_MAX), count(TRACE_VALUES_MAX)),
            "the step is doubled",
        ),
        LimitRow::new("points of a plot of a model (`PLOT_POINTS_MAX`)", count(PLOT_POINTS_MAX), "400"),
        LimitRow::new("models kept, by command (`COMMANDS_KEPT_MAX`)", count(COMMANDS_KEPT_MAX), "fitted anew"),
        LimitRow::new("analyses of FTIO kept, by job (`FTIO_JOBS_MAX`)", count(FTIO_JOBS_MAX), "forgotten"),
        LimitRow::new("programs of others that run at once (`PROGRAMS_MAX`)", count(PROGRAMS_MAX), "one more waits"),
        LimitRow::new(
            "time of squeue, Extra-P and FTIO (`SQUEUE_DEADLINE`, `EXTRAP_DEADLINE`, `FTIO_DEADLINE`)",
            [time(SQUEUE_DEADLINE), time(EXTRAP_DEADLINE), time(FTIO_DEADLINE)].join(", "),
            "killed with all that it started",
        ),
        LimitRow::new("bytes that they say (`SQUEUE_OUTPUT_MAX`)", bytes(SQUEUE_OUTPUT_MAX), "killed"),
    ]
}
