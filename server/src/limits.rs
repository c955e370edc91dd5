//! The limits of the server with their values as they are: rows of docs/limits.md, and of the pages that tell of a
//! protocol or of jobs.
//!
//! A field of [`ServerLimits`] and of what it is made of that has no row does not compile.

pub mod jobs;
pub mod protocols;
mod proxy;
#[cfg(test)]
mod tests;

use telem_engine::limits::{LimitRow, bytes, count, share, time};
use telem_ingest::accept::frames::FRAME_REJECTS_MAX;
use telem_ingest::decode::frames::BODY_BYTES_MAX as FRAME_BYTES_MAX;
use telem_ingest::writer::{MEMORY_LOOKS_MAX, OTHERS_SHARE, TALLIED_PROCESSES_MAX};

use crate::cli::import::dragon::open::LOCKED_WAIT;
use crate::cli::import::dragon::pages::ROW_BYTES_MAX;
use crate::cli::import::dragon::spread::{ROW_BYTES, ROWS_MAX, SECOND};
use crate::cli::import::trace::frames::{TRACE_DESC_BYTES_MAX, TRACE_FRAME_BYTES_MAX};
use crate::cli::import::trace::{TRACE_COUNTERS_MAX, TRACE_TEXTS_BYTES_MAX};
use crate::cli::info::TERMINAL_METRICS;
use crate::cli::service::MEMORY_BYTES_MAX;
use crate::cli::sql::{COUNT_WAIT, MORE_MAX};
use crate::cli::table::TERMINAL_ROWS;
use crate::http::body::BodyLimits;
use crate::info::ENERGY_TIMEOUT;
use crate::job::reverse::{PAUSE_MAX, PAUSE_MIN, REASONS_MAX};
use crate::net::datagrams::{DATAGRAM_BYTES_MAX, KNOWN_FOR, LAST_DATAGRAMS_MAX, SENDERS_MAX};
use crate::net::owner::TABLE_READERS_MAX;
use crate::net::places::{KEPT_MAX, KEPT_SHARE, STRANGERS_SHARE};
use crate::net::{HANDSHAKE_TIMEOUT, HEAD_BYTES_MAX, KEEP_ALIVE_INTERVAL, PROCESS_TIMEOUT, STREAMS_MAX, UNKNOWN_MAX};
use crate::protocols::client::ClientLimits;
use crate::protocols::client::bounds::{
    ANSWER_BYTES_MAX, DESCRIBED_METRICS_MAX, DESCRIPTION_BYTES_MAX, FAREWELL_TIMEOUT, FIRST_BYTES, HELP_BYTES_MAX,
    LAST_BYTES_MAX, ROWS_BYTES, SILENCE, UNIT_BYTES_MAX,
};
use crate::protocols::dragon::config::FILE_BYTES_MAX;
use crate::protocols::dragon::node;
use crate::protocols::job::BODY_BYTES_MAX;
use crate::protocols::opentsdb::TelnetLimits;
use crate::protocols::page::nodes::NODES_MAX;
use crate::protocols::page::panels::{
    CELLS_MAX, COLUMNS_MAX, KEYS_MAX, LINES_MAX, NAMES_MAX, PANELS_AT_ONCE, PANELS_BYTES_MAX, PANELS_MAX,
    ROWS_MAX as HEAT_ROWS_MAX,
};
use crate::protocols::page::start::{self, METRICS_MAX};
use crate::service::FILES_BESIDE;
use crate::service::parts::HEAD_CONNECTIONS_MAX;
use crate::service::room::{FREE_BYTES_MIN, TRY_ANYWAY_EVERY, TRY_EVERY};
use crate::settings::{SETTING_BYTES_MAX, SETTING_NAME_BYTES_MAX, SETTINGS_BYTES_MAX, SETTINGS_MAX};
use crate::slots::{JOB_ID_BYTES_MAX, LINGER, RETURN_MAX, SLOTS_MAX};
use crate::state::ServerLimits;
use crate::walks::WalkLimits;

pub use self::proxy::proxy;

const BUSY: &str = "503, try again";
const HUNG_UP_ON: &str = "hung up on";

/// What a server adds to the limits of storage.
pub fn storage() -> Vec<LimitRow> {
    vec![
        LimitRow::new(
            "files of a database whose live data lie in memory (`MEMORY_BYTES_MAX`)",
            bytes(MEMORY_BYTES_MAX),
            "refused until there is room",
        )
        .flag("--data-bytes-max"),
        LimitRow::new(
            "between attempts of `telem serve` to open a database whose disk was full (`TRY_EVERY`)",
            format!(
                "{}; {} while less than {} are free (`FREE_BYTES_MIN`)",
                time(TRY_EVERY),
                time(TRY_EVERY * TRY_ANYWAY_EVERY),
                bytes(FREE_BYTES_MIN)
            ),
            "questions are answered meanwhile",
        ),
    ]
}

/// Limits of Dragon's node server and of tunnels.
pub fn dragon() -> Vec<LimitRow> {
    vec![
        LimitRow::new(
            "bytes of a post (`BODY_BYTES_MAX` of `node`)",
            bytes(node::BODY_BYTES_MAX),
            "201, and nothing of it is stored",
        ),
        LimitRow::new(
            "points of a series in a second (`POINTS_PER_SECOND_MAX`)",
            count(node::POINTS_PER_SECOND_MAX),
            "the others are refused",
        ),
        LimitRow::new(
            "pairs of a series and a second whose free microsecond is remembered (`PAIRS_MAX`)",
            format!("{} at the least, twice as many at the most", count(node::PAIRS_MAX)),
            "the database is read",
        ),
        LimitRow::new(
            "wait of points for room in the queue (`QUEUE_WAIT_MAX`)",
            time(node::QUEUE_WAIT_MAX),
            "they are refused",
        ),
        LimitRow::new(
            "reasons in an answer (`ERRORS_LISTED_MAX`), and in the log (`REASONS_MAX` of `refusals`)",
            format!("{}, {}", count(node::ERRORS_LISTED_MAX), count(node::REASONS_MAX)),
            "counted",
        ),
        LimitRow::new(
            "ports that are tried after the wanted one (`PORTS_TRIED_MAX` of `port`)",
            count(node::PORTS_TRIED_MAX),
            "any free one",
        ),
        LimitRow::new(
            "bytes of Dragon's YAML (`FILE_BYTES_MAX` of `config`)",
            bytes(FILE_BYTES_MAX),
            "an error that names the file",
        ),
        LimitRow::new(
            "pause before a tunnel is tried again (`PAUSE_MIN`, `PAUSE_MAX`)",
            format!("{}, twice as long each time, {} at the most", time(PAUSE_MIN), time(PAUSE_MAX)),
            "",
        ),
        LimitRow::new("reasons of a failing tunnel that are told (`REASONS_MAX` of `reverse`)", count(REASONS_MAX), ""),
    ]
}

/// Limits of what the page asks.
pub fn page() -> Vec<LimitRow> {
    vec![
        LimitRow::new("bytes of a question (`PANELS_BYTES_MAX`)", bytes(PANELS_BYTES_MAX), "413"),
        LimitRow::new("panels of a request (`PANELS_MAX`)", count(PANELS_MAX), "400: ask in several"),
        LimitRow::new(
            "of these worked on at once (`PANELS_AT_ONCE`), within the limits of queries",
            count(PANELS_AT_ONCE),
            "the others wait",
        ),
        LimitRow::new("columns of a panel (`COLUMNS_MAX`)", count(COLUMNS_MAX), "400: ask for longer steps"),
        LimitRow::new("lines of a panel that are sent (`LINES_MAX`)", count(LINES_MAX), "among the others"),
        LimitRow::new("rows of a heat map (`ROWS_MAX` of `panels`)", count(HEAT_ROWS_MAX), "left out"),
        LimitRow::new(
            "cells of a panel that are looked at, of all lines (`CELLS_MAX`)",
            count(CELLS_MAX),
            "an error of the panel: fewer columns, or a filter",
        ),
        LimitRow::new("tags that make lines or are filtered by (`KEYS_MAX`)", count(KEYS_MAX), "an error of the panel"),
        LimitRow::new("values of a filter (`NAMES_MAX`)", count(NAMES_MAX), "an error of the panel"),
        LimitRow::new(
            "metrics, nodes and jobs that `/api/page` tells (`METRICS_MAX`, `NODES_MAX`, `JOBS_MAX` of `start`)",
            format!("{}, {}, {}", count(METRICS_MAX), count(NODES_MAX), count(start::JOBS_MAX)),
            "counted; a search finds metrics",
        ),
    ]
}

/// Limits of requests and of connections.
pub fn http() -> Vec<LimitRow> {
    let ServerLimits {
        bodies: BodyLimits { bytes_max, budget, large, idle_timeout },
        question_bytes_max,
        answers,
        answer_values_waiting,
        // Made of `WalkLimits`.
        walks: _,
        connections_max,
        header_timeout,
        write_idle_timeout,
        shutdown_timeout,
    } = ServerLimits::default();
    let WalkLimits { running_max, waiting_max, wait_max, deadline, renders_max } = WalkLimits::default();
    vec![
        LimitRow::new("bytes of a body, as sent and decompressed (`BodyLimits::bytes_max`)", bytes(bytes_max), "413")
            .flag("--body-bytes-max"),
        LimitRow::new("bytes of a change of the job's description (`BODY_BYTES_MAX`)", bytes(BODY_BYTES_MAX), "413"),
        LimitRow::new(
            "settings, and tags, of a run (`SETTINGS_MAX`)",
            format!(
                "{}; a name {} (`SETTING_NAME_BYTES_MAX`), a value {} (`SETTING_BYTES_MAX`), all together {} \
                 (`SETTINGS_BYTES_MAX`)",
                count(SETTINGS_MAX),
                bytes(SETTING_NAME_BYTES_MAX),
                bytes(SETTING_BYTES_MAX),
                bytes(SETTINGS_BYTES_MAX)
            ),
            "400; `telem run` does not start the command",
        ),
        LimitRow::new("bytes of a question (`question_bytes_max`)", bytes(question_bytes_max), "413"),
        LimitRow::new("bodies of all requests together (`BodyLimits::budget`)", bytes(budget.bytes_max()), BUSY)
            .flag("--bodies-bytes-max"),
        LimitRow::new("answers to OpenTSDB's queries together (`answers`)", bytes(answers.bytes_max()), BUSY),
        LimitRow::new(
            "values of a request's answers that wait for the last of them (`answer_values_waiting`)",
            count(answer_values_waiting),
            "the answer begins, and a later error cuts it off",
        ),
        LimitRow::new(
            "large bodies decompressed and decoded at once (`BodyLimits::large`), and how long one more waits",
            format!("{}, {}", count(large.places()), time(large.wait_max())),
            BUSY,
        ),
        LimitRow::new(
            "requests that look through the names of all series at once (`WalkLimits::running_max`), one of a \
             connection",
            count(running_max),
            "one more waits",
        ),
        LimitRow::new(
            "such requests that wait (`WalkLimits::waiting_max`), and how long (`WalkLimits::wait_max`)",
            format!("{}, {}", count(waiting_max), time(wait_max)),
            BUSY,
        ),
        LimitRow::new(
            "time of such a request (`WalkLimits::deadline`), which ends with its client",
            time(deadline),
            "503",
        ),
        LimitRow::new(
            "large answers written at once (`WalkLimits::renders_max`)",
            count(renders_max),
            "one more waits",
        ),
        LimitRow::new(
            "connections (`connections_max`)",
            format!(
                "{}; {} at least at the head of a job (`HEAD_CONNECTIONS_MAX`)",
                count(connections_max),
                count(HEAD_CONNECTIONS_MAX)
            ),
            "503",
        )
        .flag("--connections-max"),
        LimitRow::new(
            "of these for clients that need the token and have not shown it yet (`STRANGERS_SHARE`)",
            format!("{0}; of that {0} for each user of this machine and each address", share(STRANGERS_SHARE)),
            "503",
        ),
        LimitRow::new(
            "of these kept for the owner and root (`KEPT_SHARE`, `KEPT_MAX`)",
            format!("{}, {} at most, half of them for the Unix socket alone", share(KEPT_SHARE), count(KEPT_MAX)),
            "",
        ),
        LimitRow::new(
            "connections over TCP of which it is not known yet whose they are (`UNKNOWN_MAX`)",
            count(UNKNOWN_MAX),
            "one more waits in the kernel's queue",
        ),
        LimitRow::new(
            "readers of `/proc/net/tcp`, where the kernel does not answer over netlink (`TABLE_READERS_MAX`)",
            count(TABLE_READERS_MAX),
            "one more waits",
        ),
        LimitRow::new(
            "bytes of a datagram, at a protocol's own port (`DATAGRAM_BYTES_MAX`)",
            format!("{}, the most that UDP has", bytes(DATAGRAM_BYTES_MAX)),
            "",
        ),
        LimitRow::new(
            "datagrams that are still taken at the end (`LAST_DATAGRAMS_MAX`)",
            count(LAST_DATAGRAMS_MAX),
            "dropped by the kernel",
        ),
        LimitRow::new(
            "senders of datagrams that are remembered (`SENDERS_MAX`), and how long (`KNOWN_FOR`)",
            format!("{}, {}", count(SENDERS_MAX), time(KNOWN_FOR)),
            "asked about again",
        ),
        LimitRow::new("wait for the head of a request (`header_timeout`)", time(header_timeout), HUNG_UP_ON),
        LimitRow::new("bytes of a head over HTTP/2 (`HEAD_BYTES_MAX`)", bytes(HEAD_BYTES_MAX), "431"),
        LimitRow::new(
            "wait to know the process at the other end of the socket (`PROCESS_TIMEOUT`)",
            time(PROCESS_TIMEOUT),
            "its samples get no rank and belong to no job",
        ),
        LimitRow::new("jobs at once that share a server (`SLOTS_MAX`)", count(SLOTS_MAX), "samples belong to no job"),
        LimitRow::new("bytes of the id of a job (`JOB_ID_BYTES_MAX`)", count(JOB_ID_BYTES_MAX as u64), "400"),
        LimitRow::new("silence after which a job has an end (`LINGER`)", time(LINGER), "that is its last word"),
        LimitRow::new(
            "silence after which a job does not go on (`RETURN_MAX`)",
            time(RETURN_MAX),
            "another run of the same id begins",
        ),
        LimitRow::new("silence within a body (`BodyLimits::idle_timeout`)", time(idle_timeout), "408"),
        LimitRow::new(
            "silence of a reader (`write_idle_timeout`)",
            time(write_idle_timeout),
            "hung up on; over HTTP/2 that answer is given up",
        ),
        LimitRow::new("wait for running requests at the end (`shutdown_timeout`)", time(shutdown_timeout), "cut off"),
        LimitRow::new(
            "computing the energy of jobs for `telem info` (`ENERGY_TIMEOUT`)",
            time(ENERGY_TIMEOUT),
            "said so; the table `job_energy` has it",
        ),
        LimitRow::new("agreeing on TLS (`HANDSHAKE_TIMEOUT`)", time(HANDSHAKE_TIMEOUT), HUNG_UP_ON),
        LimitRow::new(
            "requests at once over one connection of HTTP/2 (`STREAMS_MAX`)",
            count(STREAMS_MAX),
            "one more waits",
        ),
        LimitRow::new(
            "sign of life of such a connection (`KEEP_ALIVE_INTERVAL`)",
            format!("asked for every {0}, {0} to answer", time(KEEP_ALIVE_INTERVAL)),
            HUNG_UP_ON,
        ),
    ]
}

/// Limits of OpenTSDB's telnet protocol.
pub fn telnet() -> Vec<LimitRow> {
    let TelnetLimits { connections_max, line_bytes_max, answers_bytes_max, idle_timeout, busy_timeout } =
        TelnetLimits::default();
    vec![
        LimitRow::new(
            "connections that speak it, of those of the server (`connections_max`)",
            count(connections_max),
            "told so and hung up on",
        ),
        LimitRow::new(
            "bytes of a line (`line_bytes_max`)",
            bytes(line_bytes_max),
            "the line is passed over, and that is told",
        ),
        LimitRow::new(
            "answers that a client did not take (`answers_bytes_max`)",
            bytes(answers_bytes_max),
            "nothing more is read of what it sends",
        ),
        LimitRow::new("silence of a client (`idle_timeout`)", time(idle_timeout), HUNG_UP_ON),
        LimitRow::new(
            "wait of samples for room in the writer's queue (`busy_timeout`)",
            time(busy_timeout),
            "told that they are not stored",
        ),
    ]
}

/// Limits of the client protocol.
pub fn clients() -> Vec<LimitRow> {
    let ClientLimits {
        connections_max,
        series_max,
        names_bytes_max,
        frames_bytes_max,
        frame_timeout,
        frame_idle_when_short,
        batches_waiting_max,
        answers_bytes_max,
        flush_timeout,
        request_timeout,
        refused_interval,
        refusals_max,
    } = ClientLimits::default();
    const GOODBYE: &str = "the connection ends with a GOODBYE that says so";
    vec![
        LimitRow::new(
            "connections that speak it, beside those of the server (`connections_max`)",
            count(connections_max),
            "told so and hung up on",
        ),
        LimitRow::new(
            "open files, as far as the limit of the process may be raised (`FILES_BESIDE`)",
            format!("one for each connection, and {}", count(FILES_BESIDE)),
            "connections wait",
        ),
        LimitRow::new(
            "bytes of a frame from a client (`frames::BODY_BYTES_MAX`), and to one (`ANSWER_BYTES_MAX`)",
            format!("{}, {}", bytes(FRAME_BYTES_MAX), bytes(ANSWER_BYTES_MAX)),
            GOODBYE,
        ),
        LimitRow::new("series that a connection names (`series_max`)", count(series_max), GOODBYE),
        LimitRow::new(
            "memory for names and numbers of series, of all connections (`names_bytes_max`)",
            bytes(names_bytes_max),
            GOODBYE,
        ),
        LimitRow::new(
            "memory for frames on their way in, of all connections (`frames_bytes_max`)",
            format!(
                "{}; the first {} of a frame do not count (`FIRST_BYTES`)",
                bytes(frames_bytes_max),
                bytes(FIRST_BYTES)
            ),
            "clients wait",
        ),
        LimitRow::new(
            "from the first byte of a frame to its last (`frame_timeout`)",
            format!(
                "{}; {} of silence while others wait for its memory (`frame_idle_when_short`)",
                time(frame_timeout),
                time(frame_idle_when_short)
            ),
            GOODBYE,
        ),
        LimitRow::new(
            "batches of a connection that wait to be appended (`batches_waiting_max`)",
            count(batches_waiting_max),
            "its client waits",
        ),
        LimitRow::new(
            "of the writer's queue, what clients that wait leave to those that do not (`OTHERS_SHARE`)",
            share(OTHERS_SHARE),
            "they wait",
        ),
        LimitRow::new(
            "looks whether there is room in a full memory (`MEMORY_LOOKS_MAX`), a flush or `flush_wait_max` between two",
            count(MEMORY_LOOKS_MAX),
            "samples are refused, and counted",
        ),
        LimitRow::new(
            "answers that a client did not take (`answers_bytes_max`), in frames of rows of about `ROWS_BYTES`",
            format!("{}; {}", bytes(answers_bytes_max), bytes(ROWS_BYTES)),
            "nothing more is read of what it sends",
        ),
        LimitRow::new("until a flush is durable (`flush_timeout`)", time(flush_timeout), "refused"),
        LimitRow::new(
            "until a note or a setting is written (`request_timeout`)",
            time(request_timeout),
            "refused; it may be there all the same",
        ),
        LimitRow::new(
            "between refusals of one series for one reason (`refused_interval`), and how many wait (`refusals_max`)",
            format!("{}, {}", time(refused_interval), count(refusals_max)),
            "counted together",
        ),
        LimitRow::new(
            "kinds of refused samples of a frame (`FRAME_REJECTS_MAX`)",
            count(FRAME_REJECTS_MAX),
            "counted with the last",
        ),
        LimitRow::new(
            "metrics that clients describe (`DESCRIBED_METRICS_MAX`)",
            count(DESCRIBED_METRICS_MAX),
            "no type, unit and help",
        ),
        LimitRow::new("body of `/api/describe` (`DESCRIPTION_BYTES_MAX`)", bytes(DESCRIPTION_BYTES_MAX), "413"),
        LimitRow::new(
            "a unit (`UNIT_BYTES_MAX`), a help (`HELP_BYTES_MAX`) in it",
            format!("{}; {}", bytes(UNIT_BYTES_MAX), bytes(HELP_BYTES_MAX)),
            "400, nothing of the body is kept",
        ),
        LimitRow::new(
            "processes whose counts are told apart (`TALLIED_PROCESSES_MAX`)",
            count(TALLIED_PROCESSES_MAX),
            "added up; one that counts on is counted again",
        ),
        LimitRow::new(
            "what is still read when the server stops (`SILENCE`, `LAST_BYTES_MAX`)",
            format!("until nothing came for {}, {} at most", time(SILENCE), bytes(LAST_BYTES_MAX)),
            "not acknowledged",
        ),
        LimitRow::new(
            "until a client took what was said last (`FAREWELL_TIMEOUT`)",
            time(FAREWELL_TIMEOUT),
            HUNG_UP_ON,
        ),
    ]
}

/// Limits of tables on a terminal.
pub fn tables() -> Vec<LimitRow> {
    vec![
        LimitRow::new(
            "rows of a table of `telem sql` (`TERMINAL_ROWS`)",
            count(TERMINAL_ROWS),
            "the number of rows is told",
        )
        .flag("--rows-max"),
        LimitRow::new(
            "rows that are counted beyond those (`MORE_MAX`), and for how long (`COUNT_WAIT`)",
            format!("{}, {}", count(MORE_MAX), time(COUNT_WAIT)),
            "\"more than\" so many rows",
        ),
        LimitRow::new(
            "metrics that `telem info` lists (`TERMINAL_METRICS`)",
            count(TERMINAL_METRICS),
            "the number of the others is told",
        ),
    ]
}

/// Limits of imports of databases and traces.
pub fn imports() -> Vec<LimitRow> {
    vec![
        LimitRow::new(
            "wait for a database that another process has locked (`LOCKED_WAIT`)",
            time(LOCKED_WAIT),
            "the import fails; nothing is saved",
        ),
        LimitRow::new("bytes of a row (`ROW_BYTES_MAX`)", bytes(ROW_BYTES_MAX), "the row is left out, and named"),
        LimitRow::new(
            "bytes of rows that are sorted in memory (`ROWS_MAX`)",
            bytes((ROWS_MAX * ROW_BYTES) as u64),
            "sorted on disk, beside the new directory",
        ),
        LimitRow::new(
            "points of a series in a second (`SECOND`)",
            count(SECOND.unsigned_abs()),
            "the row is left out, and named",
        ),
        LimitRow::new(
            "bytes of a frame of Metric Proxy's trace (`TRACE_FRAME_BYTES_MAX`)",
            bytes(TRACE_FRAME_BYTES_MAX),
            "the rest of the file is left out, which is said",
        ),
        LimitRow::new(
            "bytes of a trace's description of its job (`TRACE_DESC_BYTES_MAX`)",
            bytes(TRACE_DESC_BYTES_MAX as u64),
            "the file is left out, and named",
        ),
        LimitRow::new(
            "counters of a trace (`TRACE_COUNTERS_MAX`)",
            count(TRACE_COUNTERS_MAX),
            "further ones are left out, and named",
        ),
        LimitRow::new(
            "bytes of their names and documentation (`TRACE_TEXTS_BYTES_MAX`)",
            bytes(TRACE_TEXTS_BYTES_MAX as u64),
            "further ones are left out, and named",
        ),
    ]
}
