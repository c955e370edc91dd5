//! Limits of each protocol, as its page tells of them.

use telem_engine::limits::{LimitRow, bytes, count, time};
use telem_engine::meta::TEXT_BYTES_MAX;
use telem_engine::series::{METRIC_BYTES_MAX, TAG_KEY_BYTES_MAX, TAG_VALUE_BYTES_MAX};
use telem_ingest::accept::Limits;
use telem_ingest::decode::line::{FIELDS_MAX, LINE_BYTES_MAX};
use telem_ingest::writer::WriterOptions;

use crate::cors::ORIGINS_MAX;
use crate::protocols::influx;
use crate::protocols::opentsdb::names::NOTED_MAX;
use crate::protocols::opentsdb::query::expression;
use crate::protocols::opentsdb::query::expression::arithmetic;
use crate::protocols::opentsdb::query::filters::VALUES_MAX;
use crate::protocols::opentsdb::query::graphite::parse as graphite;
use crate::protocols::opentsdb::query::parse::{FILTERS_MAX, REGEXPS_MAX, SUBS_MAX, TSUIDS_MAX};
use crate::protocols::opentsdb::{annotation, asked, last, lookup, put, stats, suggest, uid};
use crate::state::ServerLimits;

/// The largest body, and the option that sets it.
fn body() -> String {
    format!("{} (`--body-bytes-max`)", bytes(ServerLimits::default().bodies.bytes_max))
}

/// Limits of OpenTSDB's HTTP.
pub fn opentsdb() -> Vec<LimitRow> {
    let limits = ServerLimits::default();
    let points = Limits::default().batch_samples_max;
    vec![
        LimitRow::new("body of a put, as sent and decompressed", body(), "413"),
        LimitRow::new(
            "points in a put",
            count(points),
            "the first are stored; the others count as failed, and `details` says so",
        ),
        LimitRow::new(
            "bad points listed by `details`",
            format!("{}, and {}", count(put::LISTED_MAX), bytes(put::LISTED_BYTES_MAX)),
            "`errors_listed` is the number of listed points, `failed` that of all bad points",
        ),
        LimitRow::new("body of any other request", bytes(limits.question_bytes_max), "413"),
        LimitRow::new(
            "an expression",
            format!(
                "{} parts, brackets {} deep; in `/api/query/gexp` functions {} deep, and {} queries; {} million values in \
                 `/api/query/exp`",
                count(arithmetic::PARTS_MAX),
                arithmetic::DEPTH_MAX,
                graphite::DEPTH_MAX,
                count(graphite::QUERIES_MAX),
                expression::VALUES_MAX / 1_000_000
            ),
            "400",
        ),
        LimitRow::new(
            "in a query",
            format!(
                "{} sub-queries; {} filters in each, of {} values; {} regular expressions and {} TSUIDs together",
                count(SUBS_MAX),
                FILTERS_MAX,
                count(VALUES_MAX),
                REGEXPS_MAX,
                TSUIDS_MAX
            ),
            "400",
        ),
        LimitRow::new(
            "unread answers to queries, together",
            bytes(limits.answers.bytes_max()),
            "503; 400 for a single answer that is larger",
        ),
        LimitRow::new(
            "values of all answers of a request that wait for its last sub-query",
            count(limits.answer_values_waiting),
            "the answer begins",
        ),
        LimitRow::new("tags of a search", count(lookup::TAGS_MAX), "400"),
        LimitRow::new(
            "names of a kind in `/api/uid/assign`",
            format!(
                "{} in a request; {} that are assigned or described, in a database",
                count(uid::NAMES_MAX),
                count(NOTED_MAX)
            ),
            "400, with the name among the errors; 507 for a description",
        ),
        LimitRow::new("series of `/api/uid/tsmeta`", count(uid::SERIES_MAX), "400"),
        LimitRow::new(
            "queries that `/api/stats/query` remembers",
            format!("{}, and {} of each", count(asked::ENDED_MAX), bytes(asked::TEXT_BYTES_MAX)),
            "the oldest go",
        ),
        LimitRow::new("threads of `/api/stats/threads`", count(stats::THREADS_MAX), "left out"),
        LimitRow::new("origins of `--cors-domains`", count(ORIGINS_MAX), "telem does not start"),
        LimitRow::new(
            "series of `/api/query/last`",
            format!("{}; {} TSUIDs", count(last::SERIES_MAX), TSUIDS_MAX),
            "400",
        ),
        LimitRow::new(
            "annotations",
            format!(
                "{} in a request, {} in a database, {} a text",
                count(annotation::NOTES_MAX),
                count(annotation::HELD_MAX),
                bytes(TEXT_BYTES_MAX)
            ),
            "400, 507",
        ),
        LimitRow::new(
            "names of `/api/suggest`",
            format!("`max` (default {}), never more than {}", suggest::MAX_DEFAULT, count(suggest::MAX_MAX)),
            "left out",
        ),
        LimitRow::new(
            "series of `/api/search/lookup`",
            format!("`limit` (default {}), never more than {}", lookup::LIMIT_DEFAULT, count(lookup::LIMIT_MAX)),
            "400",
        ),
    ]
}

/// Limits of InfluxDB's line protocol.
pub fn influx() -> Vec<LimitRow> {
    let WriterOptions { limits, known_bytes_max, .. } = WriterOptions::default();
    vec![
        LimitRow::new("body, as sent and decompressed", body(), "413"),
        LimitRow::new(
            "samples in a body",
            count(limits.batch_samples_max),
            "the first lines are stored, and the answer names the line where it stopped",
        ),
        LimitRow::new(
            "a line",
            format!("{}, {} fields", bytes(LINE_BYTES_MAX), count(FIELDS_MAX)),
            "that line is refused",
        ),
        LimitRow::new(
            "tags of a line; names",
            format!(
                "{}; metric {} bytes, tag key {}, tag value {}",
                count(limits.tags_max),
                count(METRIC_BYTES_MAX),
                count(TAG_KEY_BYTES_MAX),
                count(TAG_VALUE_BYTES_MAX)
            ),
            "that line, or that field, is refused",
        ),
        LimitRow::new("bad lines listed", count(influx::write::LISTED_MAX), "`and N more`, or how many there are"),
        LimitRow::new("ahead of the clock", time(limits.ahead_max), "that line is refused"),
        LimitRow::new(
            "memory for names that are sent again and again",
            bytes(known_bytes_max),
            "the others cost some microseconds each",
        ),
    ]
}
