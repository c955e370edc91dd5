//! Plans and answers a [`TsQuery`]. Plans are built directly, without SQL and without an optimizer.
//!
//! Every owner names the series that take part ([`groups`]). They make the groups and their tags, even of groups without a
//! value. The values come in one of two ways ([`Route`]). Either owners send the contribution of each series to each
//! bucket, and ordinary aggregates reduce these on their way ([`pushdown`]); or owners send points, and the head does the
//! rest ([`points`]). Series are named first, for many points and buckets; else they come with the buckets ([`OneRound`]).

mod folds;
mod groups;
mod known;
mod points;
mod pushdown;

use std::sync::Arc;

use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::{ExecutionPlan, displayable};
use datafusion_distributed::display_plan_ascii;
use telem_engine::{SeriesId, Timestamp, Value};

use crate::answer::TsAnswer;
use crate::cluster::head::ExecutablePlan;
use crate::error::{Error, Result};
use crate::leaf::series::{STATES_MAX, SeriesRequest, SeriesSplit, Yield, is_added_up, is_cut};
use crate::leaf::{LeafContext, Request};
use crate::options::QueryOptions;
use crate::pipeline::Pipeline;
use crate::question::Aggregator;
use crate::question::TsQuery;
use crate::selection;
use crate::view::View;
pub use folds::fold;
use groups::Groups;
pub(crate) use known::{find, last};

/// Rows that a walk along the grid may make of sparse series before their points are sent
/// instead: what a core makes in a few seconds.
const GRID_ROWS_MAX: u64 = 200_000_000;
/// A leaf is split between threads when each gets at least this many series.
const PART_SERIES_MIN: usize = 64;
/// Groups stay whole when there are so many for each thread that its share of the series is about even.
const GROUPS_OF_PART_MIN: usize = 4;
/// Buckets of all groups that may wait until all groups are known (some 50 bytes each). Where there are more, a round
/// that asks for the groups beforehand is a small part of the work.
const WAITING_BUCKETS_MAX: u64 = 256 << 10;

/// What a query is answered with.
#[derive(Debug)]
pub struct PlanContext<'a> {
    pub view: View,
    /// Carries the [`crate::leaf::LeafContext`] of the same snapshot.
    pub task_ctx: Arc<TaskContext>,
    pub options: &'a QueryOptions,
}

/// How values reach the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    /// As contributions to buckets, aggregated on the way.
    Pushdown,
    /// As points.
    Points,
}

/// Answers `query`. Dropping the future stops the work.
///
/// # Errors
/// Invalid, UnknownName, Infinite, TooLarge, Memory; Engine when samples cannot be read.
pub async fn answer(query: &TsQuery, context: &PlanContext<'_>) -> Result<TsAnswer> {
    let (query, pipeline) = prepare(query, context)?;
    if let Some(one_round) = OneRound::of(&query, &pipeline, context)? {
        return one_round.answer(&query, &pipeline, context).await;
    }
    let groups = read_groups(&query, context).await?;
    let route = route(&query, &pipeline, &groups, context.options);
    answer_by(route, &query, &pipeline, groups, context).await
}

/// Whether rows of the parts of a leaf with this many buckets of a group are those of whole groups.
fn adds_up(steps: u64, query: &TsQuery) -> bool {
    steps <= STATES_MAX && query.aggregator != Aggregator::None
}

/// A question whose groups and buckets are asked for in one round.
struct OneRound {
    selected: Vec<SeriesId>,
    size: LeafSize,
}

impl OneRound {
    /// Where every series that there may be leaves the answer small. Of one node alone, which is asked twice for little
    /// more than once, only where the buckets of all groups may wait.
    ///
    /// # Errors
    /// Engine, for series that are not in the index.
    fn of(query: &TsQuery, pipeline: &Pipeline, context: &PlanContext<'_>) -> Result<Option<Self>> {
        if !pushdown::can(query.aggregator) {
            return Ok(None);
        }
        let Some(steps) = pipeline.steps() else { return Ok(None) };
        let view = &context.view;
        let selected = view.select(query);
        let (small, size) = match view.is_alone() {
            false => (is_small(steps, selected.len(), selected.len(), context.options), LeafSize::of(&selected)),
            true => {
                let size = LeafSize::of_groups(query, view, &selected, steps)?;
                let waiting = steps.saturating_mul(size.groups as u64) <= WAITING_BUCKETS_MAX;
                let at_once = is_of_one_part(selected.len()) && adds_up(steps, query);
                let small = is_small(steps, size.groups, selected.len(), context.options);
                (small && (waiting || at_once), size)
            }
        };
        Ok((small && view.on_several(&selected).is_empty()).then_some(Self { selected, size }))
    }

    async fn answer(&self, query: &Arc<TsQuery>, pipeline: &Pipeline, context: &PlanContext<'_>) -> Result<TsAnswer> {
        let rows = execute(self.plan(query, context)?, context).await?;
        let mut memory = MemoryConsumer::new("buckets of a time-series query").register(context.task_ctx.memory_pool());
        let (groups, waiting) = pushdown::finish_named(query, rows, &context.view, &mut memory).await?;
        let mut lines = AnswerLines::new(&groups, pipeline, context);
        for batch in waiting {
            pushdown::add(query.aggregator, &batch, &groups, &mut lines)?;
        }
        Ok(TsAnswer { groups: groups.with_lines(lines.finish()?), missing: context.view.missing() })
    }

    fn plan(&self, query: &Arc<TsQuery>, context: &PlanContext<'_>) -> Result<Arc<dyn ExecutionPlan>> {
        buckets_plan(query, Yield::NamedBuckets, &self.selected, self.size, context)
    }
}

/// Without an operator above the leaf where nothing is left to be put together.
fn buckets_plan(
    query: &Arc<TsQuery>,
    yields: Yield,
    selected: &[SeriesId],
    size: LeafSize,
    context: &PlanContext<'_>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let leaf = leaf(query, yields, selected, size, context);
    let parts = leaf.properties().partitioning.partition_count();
    let whole = parts == 1 || size.split(parts, context) == SeriesSplit::ByGroup;
    let nothing_left = adds_up(size.steps, query) && whole && context.view.is_alone();
    if nothing_left { Ok(leaf) } else { pushdown::plan(query, leaf) }
}

/// The plans of `query` as text, as [`answer`] would execute them.
///
/// # Errors
/// As [`answer`].
pub async fn explain(query: &TsQuery, context: &PlanContext<'_>) -> Result<String> {
    let (query, pipeline) = prepare(query, context)?;
    if let Some(one_round) = OneRound::of(&query, &pipeline, context)? {
        return Ok(shown(&context.view.distribute(one_round.plan(&query, context)?).await?));
    }
    let groups = read_groups(&query, context).await?;
    let plan = match route(&query, &pipeline, &groups, context.options) {
        Route::Pushdown => pushdown_plan(&query, &pipeline, &groups, context)?,
        Route::Points => points_leaf(&query, &groups, context),
    };
    let selected = context.view.select(&query);
    let groups = context.view.distribute(leaf(&query, Yield::Groups, &selected, LeafSize::default(), context)).await?;
    let plan = context.view.distribute(plan).await?;
    Ok(format!("{}{}", shown(&groups), shown(&plan)))
}

/// That `query` can be answered at all.
///
/// # Errors
/// Invalid, UnknownName.
pub(crate) fn check(query: &TsQuery, view: &View) -> Result<()> {
    if query.end < query.start {
        let (start, end) = (query.start.millis(), query.end.millis());
        return Err(Error::Invalid(format!("the query ends at {end} ms, before its start at {start} ms")));
    }
    if query.downsample.as_ref().is_some_and(|downsample| downsample.function == Aggregator::None) {
        return Err(Error::Invalid("'none' cannot downsample: it makes no one value of several".to_owned()));
    }
    selection::check_names(query, view.index())
}

fn prepare(query: &TsQuery, context: &PlanContext<'_>) -> Result<(Arc<TsQuery>, Pipeline)> {
    check(query, &context.view)?;
    Ok((Arc::new(query.clone()), Pipeline::new(query)))
}

async fn read_groups(query: &Arc<TsQuery>, context: &PlanContext<'_>) -> Result<Groups> {
    let selected = context.view.select(query);
    let shared = context.view.on_several(&selected);
    let plan = leaf(query, Yield::Groups, &selected, LeafSize::of(&selected), context);
    let mut groups = groups::read(query, execute(plan, context).await?, &context.view).await?;
    groups.share(shared.into_iter().filter_map(|id| context.view.index().key(id)).collect());
    groups.select(selected);
    Ok(groups)
}

/// Pushdown needs a grid that all series share and an aggregate that can be made of parts, and it
/// must not make far more rows than there are points.
fn route(query: &TsQuery, pipeline: &Pipeline, groups: &Groups, options: &QueryOptions) -> Route {
    // Series on several nodes must be combined before anything is computed from them.
    if !groups.shared().is_empty() {
        return Route::Points;
    }
    let Some(steps) = pipeline.steps() else { return Route::Points };
    let small = is_small(steps, groups.len(), groups.series(), options);
    if small && pushdown::can(query.aggregator) { Route::Pushdown } else { Route::Points }
}

fn is_small(steps: u64, groups: usize, series: usize, options: &QueryOptions) -> bool {
    let times = |count: usize| steps.saturating_mul(count as u64);
    times(groups) <= options.answer_values_max && times(series) <= GRID_ROWS_MAX
}

async fn answer_by(
    route: Route,
    query: &Arc<TsQuery>,
    pipeline: &Pipeline,
    groups: Groups,
    context: &PlanContext<'_>,
) -> Result<TsAnswer> {
    let lines = AnswerLines::new(&groups, pipeline, context);
    let lines = match route {
        Route::Pushdown => {
            let rows = execute(pushdown_plan(query, pipeline, &groups, context)?, context).await?;
            pushdown::finish(query.aggregator, rows, &groups, lines).await?
        }
        Route::Points => {
            let rows = execute(points_leaf(query, &groups, context), context).await?;
            points::finish(query, pipeline, rows, &groups, lines, context).await?
        }
    };
    Ok(TsAnswer { groups: groups.with_lines(lines.finish()?), missing: context.view.missing() })
}

fn pushdown_plan(
    query: &Arc<TsQuery>,
    pipeline: &Pipeline,
    groups: &Groups,
    context: &PlanContext<'_>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let steps = pipeline.steps().unwrap_or(u64::MAX);
    let size = LeafSize::of_groups(query, &context.view, groups.selected(), steps)?;
    buckets_plan(query, Yield::Buckets, groups.selected(), LeafSize { series: groups.series(), ..size }, context)
}

fn points_leaf(query: &Arc<TsQuery>, groups: &Groups, context: &PlanContext<'_>) -> Arc<dyn ExecutionPlan> {
    let yields = Yield::Points { points_max: context.options.points_max, raw: groups.shared().to_vec() };
    leaf(query, yields, groups.selected(), LeafSize { series: groups.series(), ..LeafSize::default() }, context)
}

/// What a leaf is expected to read.
#[derive(Clone, Copy, Debug, Default)]
struct LeafSize {
    series: usize,
    /// 0 where that is not known, or is of no use.
    groups: usize,
    /// Whether series that follow each other are of one group, until the next group begins.
    together: bool,
    /// Buckets of a group.
    steps: u64,
}

impl LeafSize {
    fn of(selected: &[SeriesId]) -> Self {
        Self { series: selected.len(), ..Self::default() }
    }

    /// # Errors
    /// Engine, for series that are not in the index.
    fn of_groups(query: &TsQuery, view: &View, selected: &[SeriesId], steps: u64) -> Result<Self> {
        let groups = selection::group(query, view.index(), selected)?;
        // Groups are numbered as they come.
        let together = groups.of_series.is_sorted();
        Ok(Self { series: selected.len(), groups: groups.names.len(), together, steps })
    }

    /// How the series are divided among `parts`. Of several nodes each may have all of one group alone. And groups may
    /// cut across what lies together, such as those by the mode of a processor, so that every part reads all of it: that
    /// pays where there is much to be put together above.
    fn split(self, parts: usize, context: &PlanContext<'_>) -> SeriesSplit {
        let is_much = self.steps.saturating_mul(self.groups as u64) > STATES_MAX;
        let is_even = self.groups >= GROUPS_OF_PART_MIN * parts;
        match parts > 1 && (is_much || self.together) && is_even && context.view.is_alone() {
            true => SeriesSplit::ByGroup,
            false => SeriesSplit::Evenly,
        }
    }
}

/// In how many parts each node answers for its share of so many series.
fn parts(series: usize, context: &PlanContext<'_>) -> usize {
    (series / context.view.nodes() / PART_SERIES_MIN).clamp(1, context.options.threads.max(1))
}

/// Most series of one node over which a leaf is not split between threads.
pub(crate) const ONE_PART_SERIES_MAX: usize = 2 * PART_SERIES_MIN - 1;

/// Whether a leaf over so many series of one node is not split between threads.
pub(crate) fn is_of_one_part(series: usize) -> bool {
    series <= ONE_PART_SERIES_MAX
}

/// Whether a leaf of one part is read by as many threads as are spare: then nothing is put together above it, and no
/// thread is taken from other questions.
fn is_in_pieces(query: &TsQuery, yields: &Yield, size: LeafSize, context: &PlanContext<'_>) -> bool {
    let in_buckets = matches!(yields, Yield::Buckets | Yield::NamedBuckets);
    let of_jobs = || {
        let leaf = context.task_ctx.session_config().get_extension::<LeafContext>();
        leaf.is_none_or(|leaf| leaf.by_job.is_some())
    };
    let is_cut = || is_cut(size.groups, size.together, size.steps, context.options.threads.max(1));
    in_buckets && context.view.is_alone() && is_added_up(query) && is_cut() && !of_jobs()
}

/// Asks which nodes the `selected` series concern.
fn leaf(
    query: &Arc<TsQuery>,
    yields: Yield,
    selected: &[SeriesId],
    size: LeafSize,
    context: &PlanContext<'_>,
) -> Arc<dyn ExecutionPlan> {
    let parts = match is_in_pieces(query, &yields, size, context) {
        true => 1,
        false => parts(size.series, context),
    };
    let request = SeriesRequest { query: Arc::clone(query), yields, split: size.split(parts, context) };
    let schema = request.schema();
    let leaf = context.view.leaf(Request::Series(request), schema, Some(selected), &|_| true);
    Arc::new(leaf.with_partitions(parts))
}

async fn execute(plan: Arc<dyn ExecutionPlan>, context: &PlanContext<'_>) -> Result<SendableRecordBatchStream> {
    context.view.execute(plan, Arc::clone(&context.task_ctx)).await
}

fn shown(planned: &ExecutablePlan) -> String {
    match planned.is_distributed() {
        true => format!("{}\n", display_plan_ascii(&*planned.plan, false)),
        false => displayable(&*planned.plan).indent(false).to_string(),
    }
}

/// The values of the answer while they come in, group by group.
struct AnswerLines {
    start: Timestamp,
    end: Timestamp,
    values: u64,
    values_max: u64,
    memory: MemoryReservation,
    of_groups: Vec<Vec<(Timestamp, Value)>>,
}

/// Values whose memory is reserved at once.
const VALUES_RESERVED: u64 = 1_024;

impl AnswerLines {
    fn new(groups: &Groups, pipeline: &Pipeline, context: &PlanContext<'_>) -> Self {
        Self {
            start: pipeline.start,
            end: pipeline.end,
            values: 0,
            values_max: context.options.answer_values_max,
            memory: MemoryConsumer::new("answer of a time-series query").register(context.task_ctx.memory_pool()),
            of_groups: vec![Vec::new(); groups.len()],
        }
    }

    /// Takes the final value of a group at a time, every time once.
    ///
    /// # Errors
    /// TooLarge, past the most values of an answer; Memory.
    fn push(&mut self, group: usize, time: Timestamp, value: Value) -> Result<()> {
        if time < self.start || time > self.end {
            return Ok(());
        }
        if self.values == self.values_max {
            return Err(Error::TooLarge { what: "values", max: self.values_max });
        }
        if self.values.is_multiple_of(VALUES_RESERVED) {
            self.memory.try_grow(VALUES_RESERVED as usize * size_of::<(Timestamp, Value)>())?;
        }
        self.values += 1;
        self.of_groups[group].push((time, value));
        Ok(())
    }

    /// The values of every group, ascending in time.
    ///
    /// # Errors
    /// Infinite, when one is.
    fn finish(mut self) -> Result<Vec<Vec<(Timestamp, Value)>>> {
        for line in &mut self.of_groups {
            line.sort_unstable_by_key(|(time, _)| *time);
            let infinite =
                line.iter().map(|(time, value)| (time, value.as_f64())).find(|(_, value)| value.is_infinite());
            if let Some((time, value)) = infinite {
                return Err(Error::Infinite { at_millis: time.millis(), value });
            }
        }
        Ok(self.of_groups)
    }
}

#[cfg(test)]
mod tests;
