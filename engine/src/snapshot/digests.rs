//! What the samples of each series in a stretch of time come to, all in all: one digest a series, in whose place no
//! question about the whole stretch needs a sample.
//!
//! A run that lies in the stretch and overlaps no other source is not decoded where its summary says what is wanted.
//! Of the ends of a series only its first and its last source are looked at.

use std::collections::VecDeque;
use std::slice;

use super::Snapshot;
use super::sources::{Cluster, FoundRun, Sources};
use crate::error::Result;
use crate::exact::ExactSum;
use crate::segment::read::{LoadedSegment, Need, Numbers, Piece};
use crate::segment::times::Ticks;
use crate::segment::{Kind, Run, Sum, Summary, power_of_ten};
use crate::series::SeriesId;
use crate::time::{TimeRange, Timestamp};
use crate::value::Value;

/// Rows of segments that are looked for in one go, unless a single series has more; none are held.
const READ_ROWS: u64 = 1 << 20;
/// Rows of overlapping sources that are merged in one go, as far as they are spread evenly (48 bytes each).
const MERGE_ROWS: u64 = 256 << 10;
/// Values that become floats at a time: they stay in a near cache.
const FLOATS: usize = 8 << 10;
/// Up to here every integer is a float, so that a sum of integers is that of floats.
const INT_EXACT: f64 = (1_u64 << f64::MANTISSA_DIGITS) as f64;

/// A part of a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DigestPart {
    /// How many samples there are.
    Samples,
    First,
    Last,
    /// The least and the greatest value.
    Extremes,
    Sum,
}

/// What is digested.
#[derive(Clone, Debug)]
pub struct DigestRequest {
    pub series: Vec<SeriesId>,
    pub range: TimeRange,
    /// Parts that are not wanted may be anything.
    pub parts: Vec<DigestPart>,
}

/// A series with a sample in the range. Integers count as floats.
#[derive(Clone, Debug)]
pub struct SeriesDigest {
    pub series: SeriesId,
    /// The last write of each time.
    pub samples: u64,
    pub first: (Timestamp, f64),
    pub last: (Timestamp, f64),
    /// Where -0.0 is less than 0.0, and NaN greater than all others.
    pub least: f64,
    pub greatest: f64,
    pub sum: ExactSum,
}

impl Snapshot {
    /// The digest of every series that has a sample in the range, in the order of the request.
    pub fn digests(&self, request: DigestRequest) -> Digests {
        let DigestRequest { series, range, parts } = request;
        let sources = Sources::new(self, series, range);
        Digests { sources, wanted: WantedParts::of(&parts), ready: VecDeque::new() }
    }
}

/// See [`Snapshot::digests`].
#[derive(Debug)]
pub struct Digests {
    sources: Sources,
    wanted: WantedParts,
    ready: VecDeque<SeriesDigest>,
}

impl Iterator for Digests {
    type Item = Result<SeriesDigest>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.ready.is_empty() && !self.sources.is_empty() {
            if let Err(error) = self.read() {
                self.sources.clear();
                return Some(Err(error));
            }
        }
        self.ready.pop_front().map(Ok)
    }
}

#[derive(Clone, Copy, Debug)]
struct WantedParts {
    /// Whether no part needs more than the ends of a series.
    ends_alone: bool,
    first: bool,
    last: bool,
    extremes: bool,
    sum: bool,
}

impl WantedParts {
    fn of(parts: &[DigestPart]) -> Self {
        let has = |part: DigestPart| parts.contains(&part);
        Self {
            ends_alone: parts.iter().all(|part| matches!(part, DigestPart::First | DigestPart::Last)),
            first: has(DigestPart::First),
            last: has(DigestPart::Last),
            extremes: has(DigestPart::Extremes),
            sum: has(DigestPart::Sum),
        }
    }

    /// Whether the number of samples says all that is wanted.
    fn is_number(self) -> bool {
        !(self.first || self.last || self.extremes || self.sum)
    }
}

impl Digests {
    /// Digests the next series.
    fn read(&mut self) -> Result<()> {
        let rows = |_, runs: &[FoundRun]| runs.iter().map(|found| found.rows).sum();
        let batch = self.sources.take(READ_ROWS, rows)?;
        let mut open: Vec<OpenDigest> = Vec::with_capacity(batch.len());
        // Per segment the runs whose values must be seen: those, and the place of their series.
        let mut seen: Vec<Vec<(Run, usize)>> = vec![Vec::new(); self.sources.segments.len()];
        let mut floats = Vec::new();
        for (series, found) in batch {
            let mut digest = OpenDigest { series, made: None };
            let clusters = self.sources.clusters(series, &found);
            if self.wanted.ends_alone {
                self.take_ends(&clusters, &mut digest, &mut floats)?;
            } else {
                for cluster in &clusters {
                    match cluster.alone() {
                        Some((segment, run)) => {
                            let loaded = self.sources.segments[segment].load()?;
                            if !self.take_known(&loaded, &run, &mut digest) {
                                seen[segment].push((run, open.len()));
                            }
                        }
                        None => self.take_samples(cluster, &mut digest, &mut floats)?,
                    }
                }
            }
            open.push(digest);
        }
        for (segment, mut runs) in seen.into_iter().enumerate().filter(|(_, runs)| !runs.is_empty()) {
            // A series may be asked for twice, a run be visited once at a time.
            runs.sort_unstable_by_key(|(run, place)| (run.row, *place));
            let loaded = self.sources.segments[segment].load()?;
            while !runs.is_empty() {
                let mut now: Vec<(Run, usize)> = Vec::with_capacity(runs.len());
                let mut again = Vec::new();
                for one in runs {
                    let is_again = now.last().is_some_and(|(run, _)| run.row == one.0.row);
                    if is_again { again.push(one) } else { now.push(one) }
                }
                self.visit(&loaded, &now, &mut open, &mut floats)?;
                runs = again;
            }
        }
        self.ready.extend(open.into_iter().filter_map(|digest| digest.made));
        Ok(())
    }

    /// The values of runs of which each is there once.
    fn visit(
        &self,
        loaded: &LoadedSegment,
        wanted: &[(Run, usize)],
        open: &mut [OpenDigest],
        floats: &mut Vec<f64>,
    ) -> Result<()> {
        let runs: Vec<Run> = wanted.iter().map(|(run, _)| *run).collect();
        let need = if self.wanted.is_number() { Need::NaN } else { Need::Values };
        loaded.visit(&runs, self.sources.range, need, &mut |at, ticks, numbers| {
            open[wanted[at].1].push(self.wanted, ticks, numbers, floats);
        })
    }

    /// Takes in a run of which the index of its segment says enough; false if its samples must be seen.
    fn take_known(&self, loaded: &LoadedSegment, run: &Run, digest: &mut OpenDigest) -> bool {
        let range = self.sources.range;
        if !range.contains(run.first) || !range.contains(run.last) {
            return false;
        }
        if self.wanted.is_number() {
            let nothing = Value::Float(0.0);
            digest.merge(SeriesDigest { samples: u64::from(run.rows), ..digest.of(run.first, nothing) });
            return true;
        }
        let summary = loaded.summary(run).filter(|summary| self.says_enough(run, summary));
        let Some(Summary { first, last, min, max, sum }) = summary else { return false };
        let mut exact = ExactSum::default();
        if let (true, Sum::Int(sum)) = (self.wanted.sum, sum) {
            exact.add_int(sum);
        }
        digest.merge(SeriesDigest {
            series: digest.series,
            samples: u64::from(run.rows),
            first: (run.first, first.as_f64()),
            last: (run.last, last.as_f64()),
            least: min.as_f64(),
            greatest: max.as_f64(),
            sum: exact,
        });
        true
    }

    /// Whether a summary has every part that is wanted, to the last bit.
    fn says_enough(&self, run: &Run, Summary { min, max, sum, .. }: &Summary) -> bool {
        let (least, greatest) = (min.as_f64(), max.as_f64());
        // Of zeros it does not say which.
        let extremes = run.kind != Kind::Float || (least != 0.0 && greatest != 0.0);
        let is_exact = matches!(sum, Sum::Int(_)) && least >= -INT_EXACT && greatest <= INT_EXACT;
        (extremes || !self.wanted.extremes) && (is_exact || !self.wanted.sum)
    }

    /// The first and the last sample of a series that lies in `clusters`, as far as they are wanted.
    fn take_ends(&self, clusters: &[Cluster], digest: &mut OpenDigest, floats: &mut Vec<f64>) -> Result<()> {
        if self.wanted.last || !self.wanted.first {
            for cluster in clusters.iter().rev() {
                self.take_last(cluster, digest, floats)?;
                if digest.made.is_some() {
                    break;
                }
            }
        }
        if !self.wanted.first || (digest.made.is_none() && self.wanted.last) {
            return Ok(());
        }
        // The last sample alone would count as the first one.
        let last = digest.made.take();
        for cluster in clusters {
            self.take_first(cluster, digest, floats)?;
            if digest.made.is_some() {
                break;
            }
        }
        if let Some(last) = last {
            digest.merge(last);
        }
        Ok(())
    }

    fn take_last(&self, cluster: &Cluster, digest: &mut OpenDigest, floats: &mut Vec<f64>) -> Result<()> {
        if let Some((segment, run)) = cluster.alone()
            && self.sources.range.contains(run.last)
        {
            let last = self.sources.segments[segment].load()?.last(&run)?;
            if let Some((time, value)) = last {
                digest.merge(digest.of(time, value));
            }
            return Ok(());
        }
        self.take_samples(cluster, digest, floats)
    }

    fn take_first(&self, cluster: &Cluster, digest: &mut OpenDigest, floats: &mut Vec<f64>) -> Result<()> {
        if let Some((segment, run)) = cluster.alone()
            && self.sources.range.contains(run.first)
        {
            let loaded = self.sources.segments[segment].load()?;
            let first = match loaded.summary(&run) {
                Some(summary) => Some(summary.first),
                None => loaded.read_rows(&run, 0..1, TimeRange::ALL)?.values.iter().next(),
            };
            if let Some(value) = first {
                digest.merge(digest.of(run.first, value));
            }
            return Ok(());
        }
        self.take_samples(cluster, digest, floats)
    }

    /// Takes in all samples of a cluster, after its sources were merged.
    fn take_samples(&self, cluster: &Cluster, digest: &mut OpenDigest, floats: &mut Vec<f64>) -> Result<()> {
        if let Some((segment, run)) = cluster.alone() {
            let loaded = self.sources.segments[segment].load()?;
            return loaded.visit(slice::from_ref(&run), self.sources.range, Need::Values, &mut |_, ticks, numbers| {
                digest.push(self.wanted, ticks, numbers, floats);
            });
        }
        for span in self.sources.spans(cluster, MERGE_ROWS) {
            if let Some(Piece { times, values }) = self.sources.read(digest.series, cluster, span)? {
                digest.push_floats(self.wanted, Ticks::List(&times), &values.into_f64s());
            }
        }
        Ok(())
    }
}

/// A series that is being digested.
struct OpenDigest {
    series: SeriesId,
    /// `None` until a sample was seen.
    made: Option<SeriesDigest>,
}

impl OpenDigest {
    /// The digest of one sample, without its sum.
    fn of(&self, time: Timestamp, value: Value) -> SeriesDigest {
        let value = value.as_f64();
        let end = (time, value);
        let (series, sum) = (self.series, ExactSum::default());
        SeriesDigest { series, samples: 1, first: end, last: end, least: value, greatest: value, sum }
    }

    /// Takes in samples at other times.
    fn merge(&mut self, other: SeriesDigest) {
        let Some(made) = &mut self.made else {
            self.made = Some(other);
            return;
        };
        made.samples += other.samples;
        if other.first.0 < made.first.0 {
            made.first = other.first;
        }
        if other.last.0 > made.last.0 {
            made.last = other.last;
        }
        if is_less(other.least, made.least) {
            made.least = other.least;
        }
        if is_less(made.greatest, other.greatest) {
            made.greatest = other.greatest;
        }
        made.sum.merge(&other.sum);
    }

    fn push(&mut self, wanted: WantedParts, ticks: Ticks<'_>, numbers: Numbers<'_>, floats: &mut Vec<f64>) {
        match numbers {
            Numbers::Floats(values) => self.push_floats(wanted, ticks, values),
            Numbers::Ints(ints) => self.push_as_floats(wanted, ticks, ints, floats, |int| *int as f64),
            Numbers::Scaled(ints, scale) => {
                let power = power_of_ten(scale);
                self.push_as_floats(wanted, ticks, ints, floats, |int| *int as f64 / power);
            }
            Numbers::Mixed(values) => self.push_as_floats(wanted, ticks, values, floats, |value| value.as_f64()),
            Numbers::Same(value, count) => {
                floats.clear();
                floats.resize(count.min(FLOATS), value.as_f64());
                for from in (0..count).step_by(FLOATS) {
                    self.push_floats(wanted, ticks.from(from), &floats[..FLOATS.min(count - from)]);
                }
            }
        }
    }

    fn push_as_floats<T>(
        &mut self,
        wanted: WantedParts,
        ticks: Ticks<'_>,
        values: &[T],
        floats: &mut Vec<f64>,
        float: impl Fn(&T) -> f64,
    ) {
        for (part, values) in values.chunks(FLOATS).enumerate() {
            floats.clear();
            floats.extend(values.iter().map(&float));
            self.push_floats(wanted, ticks.from(part * FLOATS), floats);
        }
    }

    /// Takes in samples one after the other.
    fn push_floats(&mut self, wanted: WantedParts, ticks: Ticks<'_>, values: &[f64]) {
        let (Some(first), Some(last)) = (values.first(), values.last()) else { return };
        let time = |at: usize| Timestamp::from_micros(ticks.time(at));
        let mut sum = ExactSum::default();
        if wanted.sum {
            sum.add_all(values);
        }
        let (least, greatest) = if wanted.extremes { extremes(values) } else { (*first, *first) };
        self.merge(SeriesDigest {
            series: self.series,
            samples: values.len() as u64,
            first: (time(0), *first),
            last: (time(values.len() - 1), *last),
            least,
            greatest,
            sum,
        });
    }
}

/// Whether `a` comes before `b`, where -0.0 comes before 0.0, and NaN of any sign last.
fn is_less(a: f64, b: f64) -> bool {
    match (a.is_nan(), b.is_nan()) {
        (true, _) => false,
        (false, true) => true,
        (false, false) => a.total_cmp(&b).is_lt(),
    }
}

/// The least and the greatest of some values, at least one.
fn extremes(values: &[f64]) -> (f64, f64) {
    let (mut least, mut greatest, mut is_plain) = (f64::INFINITY, f64::NEG_INFINITY, true);
    for value in values {
        least = least.min(*value);
        greatest = greatest.max(*value);
        is_plain &= *value != 0.0 && !value.is_nan();
    }
    if is_plain {
        return (least, greatest);
    }
    // With zeros of both signs or with NaN the order of all of them decides.
    let mut ends = (values[0], values[0]);
    for value in values {
        if is_less(*value, ends.0) {
            ends.0 = *value;
        }
        if is_less(ends.1, *value) {
            ends.1 = *value;
        }
    }
    ends
}

#[cfg(test)]
mod tests;
