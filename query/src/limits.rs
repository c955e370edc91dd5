//! The limits of queries with their values as they are: rows of docs/limits.md and docs/nodes.md.
//!
//! A field of [`QueryOptions`] that has no row does not compile.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use telem_engine::SystemClock;
use telem_engine::limits::{LimitRow, bytes, count, share, time};

use crate::alarm::ALARM_NAME_BYTES_MAX;
use crate::cluster::members::SERIES_MAX;
use crate::cluster::worker::PLAN_BYTES_MAX;
use crate::functions::{BOUNDS_MAX, BUCKETS_MAX};
use crate::guard::rewrite::CONSTANT_BYTES_MAX;
use crate::guard::scalar::{FIXED_ELEMENTS_MAX, STEPS_MAX};
use crate::guard::{OUTPUT_BYTES_MAX, PLANNED_BYTES_MAX, RowCopies, VALUE_BYTES_MAX};
use crate::leaf::rows::MERGED_MAX;
use crate::model::extrap::REPORT_LINES_MAX;
use crate::model::formula::{FORMULA_BYTES_MAX, FORMULA_DEPTH_MAX};
use crate::options::{QueryOptions, THREADS_MAX};
use crate::question::expression::COMPILED_BYTES_MAX;
use crate::run::ask::ATTEMPTS_MAX;
use crate::run::bounded::TIME_SERIES_SHARE;
use crate::run::sql::{NESTING_MAX, OPERATORS_MAX, SQL_BYTES_MAX, TABLES_MAX};

const ERROR: &str = "an error";

fn defaults() -> QueryOptions {
    QueryOptions::new(Arc::new(SystemClock::new()))
}

/// Limits of the queries of one process.
pub fn queries() -> Vec<LimitRow> {
    let QueryOptions {
        queries_max,
        queries_waiting_max,
        queue_wait,
        deadline,
        memory_bytes_max,
        points_max,
        answer_values_max,
        left_behind_max,
        // Of this machine; told by `THREADS_MAX`.
        threads: _,
        // Told by `nodes`.
        flat_max: _,
        tasks_max: _,
        // No limits.
        one_thread_rows_max: _,
        strict: _,
        absent: _,
        clock: _,
    } = defaults();
    let repeated = [RowCopies::Joined, RowCopies::Unnested].map(|copies| match copies.bounds() {
        Some((value_bytes_max, _)) => bytes(value_bytes_max),
        None => "none".to_owned(),
    });
    vec![
        LimitRow::new("queries at once (`queries_max`)", count(queries_max), "one more waits").flag("--queries-max"),
        LimitRow::new(
            "queries that wait (`queries_waiting_max`), and how long (`queue_wait`)",
            format!("{}, {}", count(queries_waiting_max), time(queue_wait)),
            "503, try again",
        ),
        LimitRow::new("time of the queries of a request (`deadline`)", time(deadline), ERROR).flag("--query-deadline"),
        LimitRow::new("memory of all queries (`memory_bytes_max`)", bytes(memory_bytes_max), ERROR)
            .flag("--query-memory"),
        LimitRow::new("samples brought to the head (`points_max`)", count(points_max), ERROR),
        LimitRow::new("values of an answer (`answer_values_max`)", count(answer_values_max), ERROR),
        LimitRow::new(
            "a regular expression, compiled (`COMPILED_BYTES_MAX`)",
            bytes(COMPILED_BYTES_MAX),
            "an error that names it",
        ),
        LimitRow::new(
            "queries at once in SQL (`TIME_SERIES_SHARE`)",
            format!("all but {} of `queries_max`", share(TIME_SERIES_SHARE)),
            "one more waits; time series have the others",
        ),
        LimitRow::new(
            "SQL that goes on after its time, because its code does not come to an end (`left_behind_max`)",
            count(left_behind_max),
            "no more SQL is taken until one ends; 503 says so",
        ),
        LimitRow::new(
            "bytes of a value that a function makes (`VALUE_BYTES_MAX`)",
            format!("{}; of a list of `array_agg` {}", bytes(VALUE_BYTES_MAX), bytes(OUTPUT_BYTES_MAX)),
            ERROR,
        ),
        LimitRow::new(
            "the same, in a query with a join or `unnest`, which repeat it in many rows (`RowCopies::bounds`)",
            repeated.join(", "),
            ERROR,
        ),
        LimitRow::new(
            "the same of a constant that is worked out while the query is planned (`PLANNED_BYTES_MAX`)",
            bytes(PLANNED_BYTES_MAX),
            ERROR,
        ),
        LimitRow::new(
            "bytes that a function makes of one batch, or over one window (`OUTPUT_BYTES_MAX`)",
            bytes(OUTPUT_BYTES_MAX),
            ERROR,
        ),
        LimitRow::new(
            "bytes of constants that a query puts into each row (`CONSTANT_BYTES_MAX`)",
            bytes(CONSTANT_BYTES_MAX),
            ERROR,
        ),
        LimitRow::new(
            "elements of a value of a fixed size in a cast (`FIXED_ELEMENTS_MAX`)",
            count(FIXED_ELEMENTS_MAX),
            ERROR,
        ),
        LimitRow::new("buckets of `histogram` (`BUCKETS_MAX`)", count(BUCKETS_MAX), ERROR),
        LimitRow::new("buckets of `histogram_quantile` (`BOUNDS_MAX`)", count(BOUNDS_MAX), ERROR),
        LimitRow::new(
            "series with equal tags that `asof` merges as it reads (`MERGED_MAX`)",
            count(MERGED_MAX),
            "samples of more are sorted in the memory of queries",
        ),
        LimitRow::new("steps to compare two texts by `levenshtein` (`STEPS_MAX`)", count(STEPS_MAX), ERROR),
        LimitRow::new(
            "bytes, operators, tables and nesting of SQL (`SQL_BYTES_MAX`, `OPERATORS_MAX`, `TABLES_MAX`, `NESTING_MAX`)",
            [bytes(SQL_BYTES_MAX), count(OPERATORS_MAX), count(TABLES_MAX), count(NESTING_MAX)].join(", "),
            ERROR,
        ),
        LimitRow::new(
            "bytes and nesting of the formula of a model (`FORMULA_BYTES_MAX`, `FORMULA_DEPTH_MAX`)",
            [bytes(FORMULA_BYTES_MAX), count(FORMULA_DEPTH_MAX)].join(", "),
            ERROR,
        ),
        LimitRow::new(
            "lines of a report of Extra-P (`REPORT_LINES_MAX`)",
            count(REPORT_LINES_MAX),
            "the rest is not looked at",
        ),
        LimitRow::new("bytes of the name of an alarm (`ALARM_NAME_BYTES_MAX`)", bytes(ALARM_NAME_BYTES_MAX), ERROR),
        LimitRow::new(
            "threads of time series together, and of each query in SQL (`threads`)",
            format!("the machine's, {} at most (`THREADS_MAX`)", count(THREADS_MAX)),
            "",
        ),
    ]
}

/// Limits of queries over many nodes.
pub fn nodes() -> Vec<LimitRow> {
    let QueryOptions { flat_max, tasks_max, .. } = defaults();
    vec![
        LimitRow::new(
            "names of series that a head knows (`SERIES_MAX`)",
            count(SERIES_MAX),
            "a node with more is always asked; so many take some 150 MB",
        ),
        LimitRow::new("a message with a plan (`PLAN_BYTES_MAX`)", bytes(PLAN_BYTES_MAX), ERROR),
        LimitRow::new("nodes that send straight to the head (`flat_max`)", count(flat_max), "a tree of nodes"),
        LimitRow::new(
            "tasks that run on nodes at once, of all questions together (`tasks_max`)",
            count(tasks_max),
            "a question waits for its turn, for half of its time at most: then 503",
        ),
        LimitRow::new(
            "times that a question is asked, each without the nodes that were lost (`ATTEMPTS_MAX`)",
            count(ATTEMPTS_MAX),
            ERROR,
        ),
    ]
}
