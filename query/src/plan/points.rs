//! Groups that the head computes from the points of their series: the union of the times at which any series has a
//! value, and for each time the aggregator over all series that take part.

use arrow::array::cast::AsArray;
use arrow::array::{Array, RecordBatch};
use arrow::datatypes::{Float64Type, Int64Type, TimestampMicrosecondType};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use futures::StreamExt;
use telem_engine::{SeriesKey, Timestamp, Value, Values};

use super::groups::Groups;
use super::{AnswerLines, PlanContext};
use crate::error::{Error, Result};
use crate::pipeline::contribution::Contribution;
use crate::pipeline::{Line, Pipeline};
use crate::question::TsQuery;
use crate::question::tags::decode_tags;
use crate::selection::group_key;

/// Contributions that are worked out before other tasks, or a cancellation, get their turn.
const CONTRIBUTIONS_PER_TURN: usize = 65_536;
/// What one point takes while it waits for its group.
const POINT_BYTES: usize = size_of::<Timestamp>() + size_of::<Value>();

/// Makes final values of the points that leaves sent.
pub(super) async fn finish(
    query: &TsQuery,
    pipeline: &Pipeline,
    rows: SendableRecordBatchStream,
    groups: &Groups,
    mut lines: AnswerLines,
    context: &PlanContext<'_>,
) -> Result<AnswerLines> {
    let points_max = context.options.points_max;
    if pipeline.fill_len_max().saturating_mul(groups.series() as u64) > points_max {
        return Err(Error::TooLarge { what: "points", max: points_max });
    }
    let mut memory = MemoryConsumer::new("points of a time-series query").register(context.task_ctx.memory_pool());
    let collected = collect(query, pipeline, rows, groups, points_max, &mut memory).await?;
    let fill_bytes = usize::try_from(pipeline.fill_len_max()).unwrap_or(usize::MAX).saturating_mul(POINT_BYTES);
    for (group, series) in collected.into_iter().enumerate() {
        let filled = fill_bytes.saturating_mul(series.len());
        memory.try_grow(filled)?;
        let received = series.into_iter().map(|line| pipeline.receive(line));
        let contributions: Vec<Contribution> = received.filter(|contribution| !contribution.is_empty()).collect();
        match &contributions[..] {
            [alone] => one(query, group, alone, &mut lines).await?,
            all => merge(query, group, all, &mut lines).await?,
        }
        memory.shrink(filled);
    }
    Ok(lines)
}

/// The points of every series, by the place of its group and then its own.
async fn collect(
    query: &TsQuery,
    pipeline: &Pipeline,
    mut rows: SendableRecordBatchStream,
    groups: &Groups,
    points_max: u64,
    memory: &mut MemoryReservation,
) -> Result<Vec<Vec<Line>>> {
    let mut collected: Vec<Vec<Line>> = vec![Vec::new(); groups.len()];
    let mut points = 0;
    let mut open = OpenPoints::default();
    while let Some(batch) = rows.next().await {
        let batch = batch?;
        points += batch.num_rows() as u64;
        if points > points_max {
            return Err(Error::TooLarge { what: "points", max: points_max });
        }
        memory.try_grow(batch.num_rows().saturating_mul(POINT_BYTES))?;
        open.read(&batch);
    }
    for (group, lines) in collected.iter_mut().enumerate() {
        // Where buckets are filled, a series whose samples are in no bucket still fills them all.
        lines.resize(groups.series_of(group).len(), Line::default());
    }
    for (tags, mut points) in open.series {
        let series = SeriesKey::new(&query.metric, decode_tags(&tags)?)?;
        let group = groups.find(&group_key(query, &series))?;
        let place = groups.find_series(group, &series)?;
        let shared = groups.shared().contains(&series);
        if shared {
            meet(&mut points);
        }
        let (times, values): (Vec<Timestamp>, Vec<Value>) = points.into_iter().unzip();
        let line = Line { times, values: values.into_iter().collect::<Values>() };
        collected[group][place] = if shared { pipeline.ship(pipeline.downsample(line)) } else { line };
    }
    Ok(collected)
}

/// The samples of one series from several nodes, as those of one: of two at one time the greater value counts, because
/// it is unknown which of them was written last.
fn meet(points: &mut Vec<(Timestamp, Value)>) {
    // Of equal ones the integer, of integers that are one float the greater: never the one that came first.
    let rank = |value: Value| match value {
        Value::Int(int) => (true, int),
        Value::Float(_) => (false, 0),
    };
    points.sort_by(|(a_time, a), (b_time, b)| {
        a_time.cmp(b_time).then(b.as_f64().total_cmp(&a.as_f64())).then(rank(*b).cmp(&rank(*a)))
    });
    points.dedup_by_key(|(time, _)| *time);
}

/// Series whose points are coming in; batches of several leaves may take turns.
#[derive(Default)]
struct OpenPoints {
    series: ahash::AHashMap<String, Vec<(Timestamp, Value)>>,
}

impl OpenPoints {
    fn read(&mut self, batch: &RecordBatch) {
        let names = batch.column(0).as_string_view();
        let times = batch.column(1).as_primitive::<TimestampMicrosecondType>();
        let ints = batch.column(2).as_primitive::<Int64Type>();
        let floats = batch.column(3).as_primitive::<Float64Type>();
        let mut row = 0;
        while row < batch.num_rows() {
            let name = names.value(row);
            if !self.series.contains_key(name) {
                self.series.insert(name.to_owned(), Vec::new());
            }
            let Some(points) = self.series.get_mut(name) else { return };
            while row < batch.num_rows() && names.value(row) == name {
                let value =
                    if ints.is_null(row) { Value::Float(floats.value(row)) } else { Value::Int(ints.value(row)) };
                points.push((Timestamp::from_micros(times.value(row)), value));
                row += 1;
            }
        }
    }
}

/// As [`merge`], of a group of one series: it alone decides the times, and no value is needed between them.
async fn one(query: &TsQuery, group: usize, series: &Contribution, lines: &mut AnswerLines) -> Result<()> {
    let typed = query.downsample.is_none() && query.rate.is_none();
    let mut passed = series.before(query.start);
    let (mut scratch, mut worked) = (Vec::new(), 0);
    while let Some(time) = series.next_real(passed).filter(|time| *time <= query.end) {
        passed = series.pass(passed, time);
        let value = if typed && series.is_int(passed) {
            Value::Int(query.aggregator.of_ints(&[series.int(passed, time)], &mut scratch))
        } else {
            Value::Float(query.aggregator.of_floats(&[series.float(passed, time)], &mut scratch))
        };
        lines.push(group, time, value)?;
        worked += 1;
        if worked == CONTRIBUTIONS_PER_TURN {
            worked = 0;
            tokio::task::yield_now().await;
        }
    }
    Ok(())
}

/// One group: at every time at which a series really has a value, one value of all that are alive.
async fn merge(query: &TsQuery, group: usize, series: &[Contribution], lines: &mut AnswerLines) -> Result<()> {
    let typed = query.downsample.is_none() && query.rate.is_none();
    let mut passed: Vec<usize> = series.iter().map(|series| series.before(query.start)).collect();
    let (mut floats, mut ints, mut scratch) = (Vec::new(), Vec::new(), Vec::new());
    let mut worked = 0;
    loop {
        let next = series.iter().zip(&passed).filter_map(|(series, passed)| series.next_real(*passed)).min();
        let Some(time) = next.filter(|time| *time <= query.end) else { return Ok(()) };
        let mut all_int = typed;
        for (series, passed) in series.iter().zip(&mut passed) {
            *passed = series.pass(*passed, time);
            let over = series.alive().is_none_or(|(_, last)| last < time);
            all_int &= over || series.is_int(*passed);
        }
        let taking_part = series
            .iter()
            .zip(&passed)
            .filter(|(series, _)| series.alive().is_some_and(|(first, last)| first <= time && time <= last));
        let value = if all_int {
            ints.clear();
            ints.extend(taking_part.map(|(series, passed)| series.int(*passed, time)));
            Value::Int(query.aggregator.of_ints(&ints, &mut scratch))
        } else {
            floats.clear();
            floats.extend(taking_part.map(|(series, passed)| series.float(*passed, time)));
            Value::Float(query.aggregator.of_floats(&floats, &mut scratch))
        };
        lines.push(group, time, value)?;
        worked += series.len();
        if worked >= CONTRIBUTIONS_PER_TURN {
            worked = 0;
            tokio::task::yield_now().await;
        }
    }
}
