//! Folds the samples of each series into buckets of a fixed step, while they are read.
//!
//! If no other source of the series overlaps a run, the run is folded while its pages are decoded. It is not decoded at
//! all if it lies in one bucket and its summary holds the answer. Where sources overlap, the last write of each time is
//! determined first, as for [`Snapshot::points`]. Stretches of one series come in the order of time, and sums are exact
//! until a bucket is complete ([`crate::exact`]), so the answer does not depend on where the samples are stored.

mod kernel;
mod rises;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::slice;

use crate::error::Result;
use crate::segment::read::{LoadedSegment, Need, Numbers, Piece};
use crate::segment::times::Ticks;
use crate::segment::{Run, Summary, decimal, power_of_ten};
use crate::series::SeriesId;
use crate::snapshot::sources::{Cluster, FoundRun, Sources};
use crate::snapshot::{SeriesPoints, Snapshot};
use crate::time::{Step, TimeRange, Timestamp};
use crate::value::Values;
use kernel::{BucketFold, BucketGrid, KnownValues};
use rises::{RiseGrid, RiseSide};

/// Rows of segments that are read in one go, unless a single series has more. None are held, but for times that only
/// the column tells (8 bytes each).
const READ_ROWS: u64 = 1 << 20;
/// Rows of overlapping sources that are merged in one go, as far as they are spread evenly (48 bytes each).
const MERGE_ROWS: u64 = 256 << 10;
/// Values that become floats at a time: they stay in a near cache.
const FLOATS: usize = 8 << 10;

/// What is made of the values in a bucket. Integers count as floats; NaN is nothing, but to `First` and `Last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Function {
    /// NaN where there is nothing.
    Sum,
    Count,
    /// NaN where there is nothing, and where there are only infinities.
    Min,
    Max,
    Avg,
    First,
    Last,
    /// Population standard deviation by Welford's method.
    Dev,
    /// Of the rises from each sample to the next, a second, the least. NaN where there is none.
    LeastRise(Rising),
    GreatestRise(Rising),
}

/// What rises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rising {
    /// It never falls: where it does it started again, and how much it rose there is unknown.
    Counter,
    /// It may fall, too.
    Gauge,
}

/// What a downsampling reads and makes.
#[derive(Clone, Debug)]
pub struct DownsampleRequest {
    pub series: Vec<SeriesId>,
    /// What is read. A bucket that begins before it is left out: a part of it was not read.
    pub range: TimeRange,
    /// Buckets start at multiples of it, counted from the epoch.
    pub step: Step,
    pub function: Function,
}

/// Several functions of the same values, in one pass over them.
#[derive(Clone, Debug)]
pub struct FoldRequest {
    pub series: Vec<SeriesId>,
    /// As that of a [`DownsampleRequest`].
    pub range: TimeRange,
    pub step: Step,
    pub functions: Vec<Function>,
}

/// The buckets of one series that hold samples, ascending; none when those in the range stand in buckets that are
/// left out.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesBuckets {
    pub series: SeriesId,
    /// Where each bucket starts.
    pub starts: Vec<Timestamp>,
    pub values: Vec<f64>,
}

/// As [`SeriesBuckets`], with the values of each function in the order of the request.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesFolds {
    pub series: SeriesId,
    pub starts: Vec<Timestamp>,
    pub values: Vec<Vec<f64>>,
}

impl Snapshot {
    /// The buckets of every series that has a sample in the range, in the order of the request.
    pub fn downsample(&self, request: DownsampleRequest) -> Downsampled {
        let DownsampleRequest { series, range, step, function } = request;
        Downsampled(self.fold(FoldRequest { series, range, step, functions: vec![function] }))
    }

    /// As [`Snapshot::downsample`], of several functions: samples are found and decoded once.
    pub fn fold(&self, request: FoldRequest) -> SeriesFolding {
        let FoldRequest { series, range, step, functions } = request;
        let admitted = TimeRange::new(step.ceil(range.start), range.end);
        let sources = Sources::new(self, series, range);
        SeriesFolding { sources, admitted, step, functions, ready: VecDeque::new() }
    }
}

/// The buckets of one series whose samples were read already, as [`Snapshot::fold`] makes them.
pub fn fold_points(points: SeriesPoints, request: &FoldRequest) -> SeriesFolds {
    let mut made = SeriesFunctions::of(&request.functions, request.step);
    let begin = request.step.ceil(request.range.start);
    let from = points.times.partition_point(|time| *time < begin);
    let to = points.times.partition_point(|time| *time < request.range.end).max(from);
    let times: Vec<i64> = points.times[from..to].iter().map(|time| time.micros()).collect();
    let values = points.values.into_f64s();
    let values = &values[from..to];
    made.push(Ticks::List(&times), values, known(values));
    made.finish(points.series)
}

/// See [`Snapshot::downsample`].
#[derive(Debug)]
pub struct Downsampled(SeriesFolding);

impl Iterator for Downsampled {
    type Item = Result<SeriesBuckets>;

    fn next(&mut self) -> Option<Self::Item> {
        let one = |SeriesFolds { series, starts, mut values }| {
            let values = values.pop().unwrap_or_default();
            SeriesBuckets { series, starts, values }
        };
        self.0.next().map(|folds| folds.map(one))
    }
}

/// See [`Snapshot::fold`].
#[derive(Debug)]
pub struct SeriesFolding {
    sources: Sources,
    /// The part of the range that enters buckets.
    admitted: TimeRange,
    step: Step,
    functions: Vec<Function>,
    ready: VecDeque<SeriesFolds>,
}

impl Iterator for SeriesFolding {
    type Item = Result<SeriesFolds>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(buckets) = self.ready.pop_front() {
                return Some(Ok(buckets));
            }
            if self.sources.is_empty() {
                return None;
            }
            if let Err(error) = self.read() {
                self.sources.clear();
                return Some(Err(error));
            }
        }
    }
}

/// A series whose buckets are being made.
struct OpenSeries {
    series: SeriesId,
    clusters: Vec<Cluster>,
    /// The first cluster that is not yet taken in.
    next: usize,
    /// Whether a sample was seen in the range.
    seen: bool,
    buckets: SeriesFunctions,
}

/// The buckets of one series, of each function.
struct SeriesFunctions(Vec<Box<dyn BucketFold>>);

impl SeriesFunctions {
    fn of(functions: &[Function], step: Step) -> Self {
        Self(functions.iter().map(|function| fold_of(*function, step)).collect())
    }

    fn push(&mut self, ticks: Ticks<'_>, values: &[f64], known: KnownValues) {
        for one in &mut self.0 {
            one.push(ticks, values, known);
        }
    }

    /// As [`SeriesFunctions::push`], of integers divided by ten to the power `scale`, which become floats in `floats` where a
    /// function asks for them.
    fn push_ints(&mut self, ticks: Ticks<'_>, ints: &[i64], scale: u8, floats: &mut Vec<f64>) {
        floats.clear();
        for one in &mut self.0 {
            if one.push_ints(ticks, ints, scale) {
                continue;
            }
            if floats.is_empty() {
                floats.resize(ints.len(), 0.0);
                decimal::fill_floats(floats, ints, scale);
            }
            one.push(ticks, floats, KnownValues::Multiples(last_digit(scale)));
        }
    }

    /// Of several functions some may be content with what is known while others are not, so it is tried with one alone.
    fn whole(&mut self, run: &Run, summary: &Summary) -> bool {
        match &mut *self.0 {
            [alone] => alone.whole(run, summary),
            _ => false,
        }
    }

    fn finish(self, series: SeriesId) -> SeriesFolds {
        let (starts, values): (Vec<_>, Vec<_>) = self.0.into_iter().map(|one| one.finish()).unzip();
        SeriesFolds { series, starts: starts.into_iter().next().unwrap_or_default(), values }
    }
}

fn fold_of(function: Function, step: Step) -> Box<dyn BucketFold> {
    match function {
        Function::Sum => Box::new(BucketGrid::<kernel::PlainSum>::new(step)),
        Function::Count => Box::new(BucketGrid::<kernel::Count>::new(step)),
        Function::Min => Box::new(BucketGrid::<kernel::Min>::new(step)),
        Function::Max => Box::new(BucketGrid::<kernel::Max>::new(step)),
        Function::Avg => Box::new(BucketGrid::<kernel::Avg>::new(step)),
        Function::First => Box::new(BucketGrid::<kernel::First>::new(step)),
        Function::Last => Box::new(BucketGrid::<kernel::Last>::new(step)),
        Function::Dev => Box::new(BucketGrid::<kernel::Dev>::new(step)),
        Function::LeastRise(rising) => Box::new(RiseGrid::new(step, RiseSide::Least, rising)),
        Function::GreatestRise(rising) => Box::new(RiseGrid::new(step, RiseSide::Greatest, rising)),
    }
}

impl SeriesFolding {
    fn read(&mut self) -> Result<()> {
        let batch =
            self.sources.take(READ_ROWS, |_, runs| runs.iter().map(|found: &FoundRun| found.rows).sum::<u64>())?;
        let mut open: Vec<OpenSeries> = Vec::with_capacity(batch.len());
        // Per segment the runs without overlap: the series and the cluster of each.
        let mut alone: Vec<Vec<(usize, usize)>> = vec![Vec::new(); self.sources.segments.len()];
        for (series, found) in batch {
            let clusters = self.sources.clusters(series, &found);
            for (at, cluster) in clusters.iter().enumerate() {
                if let Some((segment, _)) = cluster.alone() {
                    alone[segment].push((open.len(), at));
                }
            }
            open.push(OpenSeries {
                series,
                clusters,
                next: 0,
                seen: false,
                buckets: SeriesFunctions::of(&self.functions, self.step),
            });
        }
        // Mostly the order of time, so that most runs are taken in with all others of their segment.
        let mut order: Vec<usize> = (0..alone.len()).filter(|at| !alone[*at].is_empty()).collect();
        order.sort_by_key(|at| alone[*at].iter().map(|(series, cluster)| open[*series].clusters[*cluster].first).min());
        let mut floats = Vec::new();
        for segment in order {
            self.segment(segment, &alone[segment], &mut open, &mut floats)?;
        }
        for one in &mut open {
            self.drain(one, usize::MAX, &mut floats)?;
        }
        for one in open.into_iter().filter(|one| one.seen) {
            self.ready.push_back(one.buckets.finish(one.series));
        }
        Ok(())
    }

    fn need(&self) -> Need {
        let counts = self.functions.iter().all(|function| *function == Function::Count);
        if counts { Need::NaN } else { Need::Values }
    }

    /// Folds the runs of a segment that have no overlap.
    fn segment(
        &self,
        segment: usize,
        alone: &[(usize, usize)],
        open: &mut [OpenSeries],
        floats: &mut Vec<f64>,
    ) -> Result<()> {
        let loaded = self.sources.segments[segment].load()?;
        let mut wanted: Vec<(Run, usize)> = Vec::with_capacity(alone.len());
        for (place, cluster) in alone {
            let one = &mut open[*place];
            if *cluster < one.next {
                continue;
            }
            self.drain(one, *cluster, floats)?;
            one.next = cluster + 1;
            if let Some((_, run)) = one.clusters[*cluster].alone()
                && !self.known(&loaded, &run, one)?
            {
                wanted.push((run, *place));
            }
        }
        // A series may be asked for twice, a run be visited once at a time.
        wanted.sort_unstable_by_key(|(run, place)| (run.row, *place));
        while !wanted.is_empty() {
            let mut again = Vec::new();
            let mut now: Vec<(Run, usize)> = Vec::with_capacity(wanted.len());
            for one in wanted {
                let seen = now.last().is_some_and(|(run, _)| run.row == one.0.row);
                if seen { again.push(one) } else { now.push(one) }
            }
            let runs: Vec<Run> = now.iter().map(|(run, _)| *run).collect();
            loaded.visit(&runs, self.admitted, self.need(), &mut |at, ticks, numbers| {
                open[now[at].1].push(ticks, numbers, floats);
            })?;
            wanted = again;
        }
        Ok(())
    }

    /// Whether no value of a run need be looked at: it has no row in the range, or its summary says enough.
    fn known(&self, loaded: &LoadedSegment, run: &Run, one: &mut OpenSeries) -> Result<bool> {
        // A step may be longer than the range, and the next bucket begin after its end.
        let range = self.sources.range;
        let refused = TimeRange::new(range.start, self.admitted.start.min(range.end));
        one.seen = one.seen || !refused.is_empty() && loaded.has_row(run, refused)?;
        let whole = self.admitted.contains(run.first) && self.admitted.contains(run.last);
        // A summary is read only where it may help: nearly all runs are longer than a bucket.
        let one_bucket = whole && self.step.floor(run.first) == self.step.floor(run.last);
        let summary = if one_bucket { loaded.summary(run) } else { None };
        let known = summary.is_some_and(|summary| one.buckets.whole(run, &summary));
        one.seen |= known;
        Ok(known)
    }

    /// Takes in the clusters of a series before the one at `end`.
    fn drain(&self, one: &mut OpenSeries, end: usize, floats: &mut Vec<f64>) -> Result<()> {
        while one.next < end.min(one.clusters.len()) {
            let cluster = std::mem::take(&mut one.clusters[one.next]);
            one.next += 1;
            match cluster.alone() {
                Some((segment, run)) => {
                    let loaded = self.sources.segments[segment].load()?;
                    if !self.known(&loaded, &run, one)? {
                        let runs = slice::from_ref(&run);
                        loaded.visit(runs, self.admitted, self.need(), &mut |_, ticks, numbers| {
                            one.push(ticks, numbers, floats);
                        })?;
                    }
                }
                None => self.merged(one, &cluster, floats)?,
            }
        }
        Ok(())
    }

    /// Takes in sources that overlap, or a memtable: part after part of their time.
    fn merged(&self, one: &mut OpenSeries, cluster: &Cluster, floats: &mut Vec<f64>) -> Result<()> {
        for span in self.sources.spans(cluster, MERGE_ROWS) {
            let Some(Piece { times, values }) = self.sources.read(one.series, cluster, span)? else { continue };
            one.seen |= !times.is_empty();
            let from = times.partition_point(|time| *time < self.admitted.start.micros());
            let ticks = Ticks::List(&times[from..]);
            match values {
                Values::Int(ints) => one.buckets.push_ints(ticks, &ints[from..], 0, floats),
                values => {
                    let values = values.into_f64s();
                    one.buckets.push(ticks, &values[from..], known(&values));
                }
            }
        }
        Ok(())
    }
}

impl OpenSeries {
    /// Takes in values, as floats.
    fn push(&mut self, ticks: Ticks<'_>, numbers: Numbers<'_>, floats: &mut Vec<f64>) {
        // A run may begin before the range and end after it, and have nothing within.
        self.seen |= numbers.count() > 0;
        match numbers {
            Numbers::Floats(values) => {
                for (part, values) in values.chunks(FLOATS).enumerate() {
                    self.buckets.push(ticks.from(part * FLOATS), values, known(values));
                }
            }
            Numbers::Ints(ints) => self.push_ints(ticks, ints, 0, floats),
            Numbers::Scaled(ints, scale) => self.push_ints(ticks, ints, scale, floats),
            Numbers::Mixed(values) => {
                for (part, values) in values.chunks(FLOATS).enumerate() {
                    floats.clear();
                    floats.extend(values.iter().map(|value| value.as_f64()));
                    self.buckets.push(ticks.from(part * FLOATS), floats, known(floats));
                }
            }
            Numbers::Same(value, count) => {
                floats.clear();
                floats.resize(count.min(FLOATS), value.as_f64());
                for from in (0..count).step_by(FLOATS) {
                    self.buckets.push(ticks.from(from), &floats[..FLOATS.min(count - from)], KnownValues::Numbers);
                }
            }
        }
    }

    /// Takes in integers over ten to this power.
    fn push_ints(&mut self, ticks: Ticks<'_>, ints: &[i64], scale: u8, floats: &mut Vec<f64>) {
        for (part, ints) in ints.chunks(FLOATS).enumerate() {
            self.buckets.push_ints(ticks.from(part * FLOATS), ints, scale, floats);
        }
    }
}

/// Two to this power is what the last digit stands for of the least decimal of this scale that is not zero. Integers that
/// had to be rounded to floats are multiples of larger powers yet.
fn last_digit(scale: u8) -> i32 {
    match scale {
        0 => 0,
        _ => -1 - (power_of_ten(scale) as u64).ilog2() as i32 - 52,
    }
}

fn known(values: &[f64]) -> KnownValues {
    // Without an early end, so that many are looked at at once.
    let has_nan = values.iter().fold(false, |found, value| found | value.is_nan());
    if has_nan { KnownValues::Nothing } else { KnownValues::Numbers }
}
