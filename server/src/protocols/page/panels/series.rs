//! Sums and rates: each series is folded by itself first, by the pipeline of time series.
//!
//! A rate is that between the last samples of columns, so nothing that a counter rose by is lost. Of a sum three
//! values are made: of the averages of its series, of their least, of their greatest samples.

use telem_engine::{MetricKind, Timestamp};
use telem_ingest::collect;
use telem_query::run::Round;
use telem_query::tsq::{Downsample, Fill, Interval, Matcher, Rate, TagFilter};
use telem_query::{Aggregator, TsQuery};

use super::lines::{LineName, LinePart, PanelLines};
use super::question::{PanelFilters, TagWish};
use super::{LineFunction, PanelTask};
use crate::http::ApiError;
use crate::protocols::page::start::AbsentNode;

/// How long before the first column a sample may be that a rate begins with.
const LOOK_BACK_MICROS: i64 = 60_000_000;

/// # Errors
/// Those of the query; those of [`PanelLines::place`].
pub async fn fill(task: &PanelTask, filters: &PanelFilters, lines: &mut PanelLines) -> Result<(), ApiError> {
    let round = task.state.queries.round();
    if task.panel.rate {
        return take(task, filters, &round, lines, LinePart::Avg, Aggregator::Last).await;
    }
    for (part, function) in
        [(LinePart::Avg, Aggregator::Avg), (LinePart::Min, Aggregator::Min), (LinePart::Max, Aggregator::Max)]
    {
        take(task, filters, &round, lines, part, function).await?;
    }
    Ok(())
}

/// One value of each column: what `function` makes of the samples of each series.
async fn take(
    task: &PanelTask,
    filters: &PanelFilters,
    round: &Round,
    lines: &mut PanelLines,
    part: LinePart,
    function: Aggregator,
) -> Result<(), ApiError> {
    let answer = round.timeseries(query(task, filters, lines, function)).await?;
    lines.lack(answer.missing.iter().map(AbsentNode::from));
    for group in answer.groups {
        if group.points.is_empty() {
            continue;
        }
        let name: LineName = task.panel.by.iter().map(|key| group.tags.get(key).cloned()).collect();
        let place = lines.place(&name)?;
        for (time, value) in group.points {
            lines.set(place, part, time, value.as_f64());
        }
    }
    Ok(())
}

fn query(task: &PanelTask, filters: &PanelFilters, lines: &PanelLines, function: Aggregator) -> TsQuery {
    let (panel, grid) = (&task.panel, lines.grid);
    let aggregator = match panel.function {
        LineFunction::Avg => Aggregator::Avg,
        LineFunction::Min => Aggregator::Min,
        LineFunction::Max => Aggregator::Max,
        LineFunction::Sum => Aggregator::Sum,
    };
    let back = if panel.rate { LOOK_BACK_MICROS.max(2 * grid.step.micros()) } else { 0 };
    let start = grid.step.floor(grid.start.saturating_add_micros(-back));
    let end = Timestamp::from_micros(grid.end().micros() - 1_000);
    let filtered = filters.iter().map(|(key, wish)| TagFilter {
        key: key.clone(),
        matcher: match wish {
            TagWish::Any => Matcher::Wildcard("*".to_owned()),
            TagWish::OneOf(values) => Matcher::LiteralOr(values.clone()),
        },
        group_by: panel.by.contains(key),
    });
    let others = panel.by.iter().filter(|key| !filters.iter().any(|(filtered, _)| filtered == *key));
    let grouped = others.map(|key| TagFilter { key: key.clone(), matcher: Matcher::AnyOrNone, group_by: true });
    TsQuery {
        filters: filtered.chain(grouped).collect(),
        downsample: Some(Downsample { interval: Interval::Fixed(grid.step), function, fill: Fill::None }),
        rate: panel.rate.then(|| rate(task)),
        ..TsQuery::new(&panel.metric, aggregator, start, end)
    }
}

/// Of what is no counter every change counts, also one downwards.
fn rate(task: &PanelTask) -> Rate {
    let metric = &*task.panel.metric;
    let snapshot = task.state.db.snapshot();
    let told = snapshot.meta().metric(metric).map(|meta| meta.kind);
    let kind = told.or_else(|| collect::describe(metric).map(|described| described.kind));
    match kind {
        Some(MetricKind::Gauge) => Rate::default(),
        _ => Rate { counter: true, drop_resets: true, ..Rate::default() },
    }
}
