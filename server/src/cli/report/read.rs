//! Asks a run for its description and its views.

use std::collections::BTreeSet;

use arrow::array::{Array, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use serde::Serialize;
use serde_json::Value as Json;
use telem_engine::{Clock, SystemClock};
use telem_ingest::collect::catalog;

use super::view::{ReportTable, ReportView, ViewAnswers, ViewAuthor};
use super::warnings::ReportWarning;
use crate::cli::CliFailure;
use crate::cli::ls::RUNNING_MAX_US;
use crate::cli::source::RunSource;

/// Views whose rows are metrics of the program alone.
const OF_PROGRAM: [&str; 2] = ["report_metrics", "report_rank_metrics"];
/// The metric of steps, which counts and says nothing itself.
const STEP: &str = "step";
const JOBS: &str = "SELECT job, name, state, exit_code, signal, user, command, CAST(\"begin\" AS BIGINT) AS begin_us, \
                    CAST(\"end\" AS BIGINT) AS end_us, description FROM jobs";
const BOUNDS: &str =
    "SELECT CAST(min(first_ts) AS BIGINT), CAST(max(last_ts) AS BIGINT), count(DISTINCT node) FROM series";

/// What ran, and how it ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ReportJob {
    pub job: Option<String>,
    pub name: Option<String>,
    pub state: Option<String>,
    pub exit_code: Option<i64>,
    pub signal: Option<i64>,
    pub user: Option<String>,
    pub command: Option<String>,
    /// Microseconds since the epoch; of what nobody described those of its samples.
    pub begin_us: i64,
    pub duration_us: i64,
    pub nodes: i64,
    pub description: Json,
}

/// # Errors
/// Failed where the run has no samples, or cannot be asked.
pub async fn job(source: &mut RunSource) -> Result<ReportJob, CliFailure> {
    let (mut first, mut last, mut nodes) = (None, None, 0);
    for batch in source.ask(BOUNDS).await? {
        let whole = |column: usize| cast(batch.column(column), &DataType::Int64).map_err(CliFailure::failed);
        let value = |column: &dyn Array| {
            let values = column.as_primitive::<Int64Type>();
            (!values.is_empty() && values.is_valid(0)).then(|| values.value(0))
        };
        (first, last) = (value(&whole(0)?), value(&whole(1)?));
        nodes = value(&whole(2)?).unwrap_or(0);
    }
    let (Some(first), Some(last)) = (first, last) else { return Err(CliFailure::Failed(source.run().empty())) };
    let described = ReportTable::of(&source.ask(JOBS).await?).map_err(CliFailure::failed)?;
    let mut rows: Vec<_> = described.rows().collect();
    let jobs: BTreeSet<&str> = rows.iter().filter_map(|row| row.text("job")).collect();
    if jobs.len() > 1 {
        let jobs: Vec<&str> = jobs.into_iter().collect();
        return Err(CliFailure::Failed(source.run().several(&jobs)));
    }
    // The head's, which knows most.
    rows.sort_by_key(|row| {
        (row.text("command").is_none(), row.number("begin_us").map_or(i64::MAX, |begin| begin as i64))
    });
    let Some(row) = rows.first() else { return Err(CliFailure::failed("it says nothing of its jobs")) };
    let text = |column: &str| row.text(column).map(str::to_owned);
    let whole = |column: &str| row.number(column).map(|number| number as i64);
    let begin = whole("begin_us").filter(|begin| *begin <= last).unwrap_or(first);
    let end = whole("end_us").filter(|end| *end >= begin).unwrap_or(last);
    let is_fresh = SystemClock::new().now().micros().saturating_sub(last) < RUNNING_MAX_US;
    // In SQL nobody knows which of the two it is.
    let state = text("state").map(|state| if state == "unfinished" && is_fresh { "running".to_owned() } else { state });
    Ok(ReportJob {
        job: text("job"),
        name: text("name"),
        state,
        exit_code: whole("exit_code"),
        signal: whole("signal"),
        user: text("user"),
        command: text("command"),
        begin_us: begin,
        duration_us: end.saturating_sub(begin),
        nodes,
        description: row.text("description").and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default(),
    })
}

/// The answers to all views, and what is to be said of those of telem that have none: on a very large run one may pass
/// the deadline, and the others are worth having.
///
/// # Errors
/// Failed where a view of the user cannot be answered: names it.
pub async fn answers(
    source: &mut RunSource,
    views: &[ReportView],
) -> Result<(ViewAnswers, Vec<ReportWarning>), CliFailure> {
    let (mut answers, mut unanswered) = (ViewAnswers::new(), Vec::new());
    for view in views {
        let batches = match source.ask(&view.sql).await {
            Ok(batches) => batches,
            Err(failure) if view.author == ViewAuthor::Telem => {
                unanswered.push(ReportWarning::not_answered(&view.title, &failure.into_message()));
                continue;
            }
            Err(failure) => {
                return Err(CliFailure::Failed(format!("the view {}: {}", view.name, failure.into_message())));
            }
        };
        let mut table = ReportTable::of(&batches).map_err(CliFailure::failed)?;
        if OF_PROGRAM.contains(&&*view.name) {
            keep_program(&mut table);
        }
        answers.insert(view.name.clone(), table);
    }
    Ok((answers, unanswered))
}

fn keep_program(table: &mut ReportTable) {
    let Some(at) = table.columns.iter().position(|name| name == "metric") else { return };
    let is_own = |metric: &str| metric != STEP && catalog::describe(metric).is_none();
    table.rows.retain(|row| row[at].as_str().is_some_and(is_own));
}
