//! Sums and rates: each series is folded by itself first, by the pipeline of time series.
//!
//! A rate is that between the last samples of columns, so nothing that a counter rose by is lost. Its least and greatest
//! are those from a sample to the next, so a burst between two samples is seen in a column of hours. Of a sum three values
//! are made: of the averages of its series, of their least, of their greatest.

use telem_engine::{MetricKind, Timestamp};
use telem_ingest::collect;
use telem_query::run::Round;
use telem_query::tsq::{Downsample, Fill, Interval, Matcher, Rate, TagFilter};
use telem_query::{Aggregator, FoldSink, FoldedRows, TsQuery};

use super::grid::PanelGrid;
use super::lines::{LineName, LinePart, PanelLines};
use super::question::{PanelFilters, TagWish};
use super::{LineFunction, PanelTask};
use crate::http::ApiError;
use crate::protocols::page::nodes::AbsentNode;

/// How long before the first column a sample may be that a rate begins with.
const LOOK_BACK_MICROS: i64 = 60_000_000;

/// # Errors
/// Those of the query; those of [`PanelLines::place`].
pub async fn fill(task: &PanelTask, filters: &PanelFilters, mut lines: PanelLines) -> Result<PanelLines, ApiError> {
    let round = task.state.queries.round();
    if task.panel.rate {
        take(task, filters, &round, &mut lines, LinePart::Avg, Aggregator::Last).await?;
        return rises(task, filters, lines).await;
    }
    for (part, function) in
        [(LinePart::Avg, Aggregator::Avg), (LinePart::Min, Aggregator::Min), (LinePart::Max, Aggregator::Max)]
    {
        take(task, filters, &round, &mut lines, part, function).await?;
    }
    Ok(lines)
}

/// The least and the greatest of rates, of lines that are there.
async fn rises(task: &PanelTask, filters: &PanelFilters, lines: PanelLines) -> Result<PanelLines, ApiError> {
    let query = query(task, filters, lines.grid, Aggregator::Last);
    let adds = task.panel.function == LineFunction::Sum;
    let sink = RisenLines { keys: task.panel.by.clone(), adds, lines };
    let (sink, missing) = task.state.queries.fold(query, sink).await?;
    let mut lines = sink.lines;
    lines.lack(missing.iter().map(AbsentNode::from));
    for line in &mut lines.lines {
        for ((avg, min), max) in line.avg.iter().zip(&mut line.min).zip(&mut line.max) {
            // A rate is that of a whole column, and what rose in a part of it may all have been slower or faster.
            (*min, *max) = if avg.is_nan() { (f64::NAN, f64::NAN) } else { (min.min(*avg), max.max(*avg)) };
        }
    }
    Ok(lines)
}

/// Lines that wait for their least and greatest.
struct RisenLines {
    keys: Vec<String>,
    /// Whether those of the series of a line are added up.
    adds: bool,
    lines: PanelLines,
}

impl FoldSink for RisenLines {
    fn clear(&mut self) {
        for line in &mut self.lines.lines {
            line.min.fill(f64::NAN);
            line.max.fill(f64::NAN);
        }
    }

    fn take(&mut self, rows: &FoldedRows<'_>) -> bool {
        let value = |key: &String| rows.tags.iter().find(|(known, _)| known == key).and_then(|(_, value)| *value);
        let name: LineName = self.keys.iter().map(|key| value(key).map(str::to_owned)).collect();
        // One that came meanwhile, or that has no rate, is not there.
        let Some(place) = self.lines.known(&name) else { return true };
        let grid = self.lines.grid;
        let line = &mut self.lines.lines[place];
        for (row, time) in rows.times.iter().enumerate() {
            let Some(column) = grid.column(*time) else { continue };
            let both = [(&mut line.min[column], rows.least[row]), (&mut line.max[column], rows.greatest[row])];
            for (at, (value, new)) in both.into_iter().enumerate() {
                *value = match (self.adds, value.is_nan() || new.is_nan()) {
                    (true, false) => *value + new,
                    _ if at == 0 => value.min(new),
                    _ => value.max(new),
                };
            }
        }
        true
    }
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
    let answer = round.timeseries(query(task, filters, lines.grid, function)).await?;
    lines.lack(answer.missing.iter().map(AbsentNode::from));
    for group in answer.groups {
        if group.points.is_empty() {
            continue;
        }
        let name: LineName = task.panel.by.iter().map(|key| group.tags.get(key).map(str::to_owned)).collect();
        let place = lines.place(&name)?;
        for (time, value) in group.points {
            lines.set(place, part, time, value.as_f64());
        }
    }
    Ok(())
}

/// The samples of a panel, those of each series by `function`.
pub fn query(task: &PanelTask, filters: &PanelFilters, grid: PanelGrid, function: Aggregator) -> TsQuery {
    let panel = &task.panel;
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
