//! The steps that are applied to each series by itself, before series are combined: window, downsample, fill, rate,
//! contribution.
//!
//! The module is pure and synchronous. Each step is one small file and one function; [`Pipeline`] is a query's choice
//! of steps, made once. The steps run where the series is stored, or are split between there ([`Pipeline::ship`]) and
//! the head ([`Pipeline::receive`]). Both ways give the same [`Contribution`].

pub mod calendar;
pub mod contribution;
pub mod downsample;
pub mod grid;
pub mod rate;
pub mod trim;
pub mod window;

use telem_engine::downsample::Function;
use telem_engine::{Step, TimeRange, Timestamp, Values};

use crate::question::Aggregator;
use crate::question::tsq::{Fidelity, Fill, Rate, TsQuery};
use contribution::{Between, Contribution};
use grid::Grid;

/// Times, ascending, and the value at each.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    pub times: Vec<Timestamp>,
    pub values: Values,
}

impl Line {
    pub fn len(&self) -> usize {
        self.times.len()
    }

    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Adds what comes later.
    pub fn append(&mut self, later: Line) {
        self.times.extend(later.times);
        self.values.append(later.values);
    }
}

impl Default for Line {
    fn default() -> Self {
        Self { times: Vec::new(), values: Values::Float(Vec::new()) }
    }
}

/// The steps of one query.
#[derive(Clone, Copy, Debug)]
pub struct Pipeline {
    /// First and last time of the answer, both inclusive.
    pub start: Timestamp,
    pub end: Timestamp,
    /// What is read.
    pub window: TimeRange,
    pub buckets: Option<Buckets>,
    rate: Option<Rate>,
    between: Between,
}

/// How a series is downsampled.
#[derive(Clone, Copy, Debug)]
pub struct Buckets {
    pub grid: Grid,
    pub function: Aggregator,
    filled: Option<Filled>,
}

/// Which buckets are filled, and with what.
#[derive(Clone, Copy, Debug)]
struct Filled {
    range: TimeRange,
    filler: f64,
    len_max: u64,
}

impl Pipeline {
    pub fn new(query: &TsQuery) -> Self {
        let interval = query.downsample.as_ref().map(|downsample| downsample.interval);
        let window = window::window(query.start, query.end, interval.and_then(Grid::nominal_micros));
        let buckets = query.downsample.as_ref().map(|downsample| {
            let grid = Grid::new(downsample.interval, query.start, query.end, window, query.fidelity);
            let filler = match downsample.fill {
                Fill::None => None,
                Fill::Nan | Fill::Null => Some(f64::NAN),
                Fill::Zero => Some(0.0),
            };
            let filled = filler.zip(grid.filled(window)).map(|(filler, range)| {
                let range = needed(range, grid, query);
                let nominal = Grid::nominal_micros(downsample.interval).unwrap_or(i64::MAX);
                Filled { range, filler, len_max: downsample::fill_len(nominal, range) }
            });
            Buckets { grid, function: downsample.function, filled }
        });
        let between = match (query.rate, query.fidelity) {
            (None, _) => Between::Interpolate(query.aggregator.interpolation()),
            (Some(_), Fidelity::Sensible) => Between::Hold,
            (Some(_), Fidelity::OpenTsdb) => Between::HoldFromStart,
        };
        Self { start: query.start, end: query.end, window, buckets, rate: query.rate, between }
    }

    /// The same steps where only this is read.
    #[must_use]
    pub fn of_window(self, window: TimeRange) -> Self {
        Self { window, ..self }
    }

    /// The first step, from the samples of a series in [`Pipeline::window`].
    pub fn downsample(&self, samples: Line) -> Line {
        match self.buckets {
            Some(buckets) => downsample::downsample(samples, buckets.grid, self.window, buckets.function),
            None => samples,
        }
    }

    /// The first step as the engine makes it, from all samples in [`Pipeline::window`]; `None` where it cannot.
    /// [`Pipeline::downsample`] gives the same.
    pub fn in_engine(&self) -> Option<(Step, Function)> {
        let Buckets { grid: Grid::Fixed(step), function, .. } = self.buckets? else { return None };
        Some((step, function.definition().engine?))
    }

    /// The rest, from a series that is downsampled if it is to be.
    pub fn contribution(&self, line: Line) -> Contribution {
        Contribution::new(self.rate(self.fill(line)), self.between)
    }

    /// What is sent of a series that is downsampled if it is to be. Buckets are filled where they arrive.
    pub fn ship(&self, line: Line) -> Line {
        if self.fill_len_max() > 0 {
            return line;
        }
        let least = if self.rate.is_some() { 2 } else { 1 };
        trim::trim(self.rate(line), self.start, self.end, least)
    }

    /// The rest of the work on what [`Pipeline::ship`] made.
    pub fn receive(&self, shipped: Line) -> Contribution {
        let line = if self.fill_len_max() > 0 { self.rate(self.fill(shipped)) } else { shipped };
        Contribution::new(line, self.between)
    }

    /// How many buckets of a grid that all series share lie between start and end; `None` without such a grid.
    pub fn steps(&self) -> Option<u64> {
        match self.buckets?.grid {
            Grid::Fixed(step) => Some(downsample::steps(step, self.start, self.end)),
            Grid::All { .. } => Some(1),
            Grid::Calendar { .. } => None,
        }
    }

    /// How many points a fill policy gives to every series, at most; 0 without one.
    pub fn fill_len_max(&self) -> u64 {
        self.buckets.and_then(|buckets| buckets.filled).map_or(0, |filled| filled.len_max)
    }

    fn fill(&self, line: Line) -> Line {
        match self.buckets {
            Some(Buckets { grid, filled: Some(filled), .. }) => {
                downsample::fill(&line, grid, filled.range, filled.filler)
            }
            _ => line,
        }
    }

    /// The last step in time also drops what lies outside of the window: buckets filled before its start.
    fn rate(&self, line: Line) -> Line {
        let line = match &self.rate {
            None => line,
            Some(options) if self.between == Between::HoldFromStart => {
                rate::rate(&line, options, rate::FirstPoint::Epoch)
            }
            Some(options) => rate::rate(&line, options, rate::FirstPoint::Nothing),
        };
        let inside = |time: &Timestamp| self.window.start <= *time && *time <= self.window.end;
        if line.times.iter().all(inside) {
            return line;
        }
        let kept = line.times.iter().enumerate().filter(|(_, time)| inside(time));
        let (at, times): (Vec<usize>, Vec<Timestamp>) = kept.map(|(at, time)| (at, *time)).unzip();
        Line { times, values: at.into_iter().map(|at| line.values.get(at)).collect() }
    }
}

/// Of the buckets that a fill policy fills, those that show in the answer: a fine grid has many more in
/// its window of hours. Before the start two more, for the rate at the start. Where rates can be left out
/// the one that is held may come from anywhere, and a calendar is counted from where its range starts.
fn needed(range: TimeRange, grid: Grid, query: &TsQuery) -> TimeRange {
    let Grid::Fixed(step) = grid else { return range };
    if query.rate.is_some_and(|rate| rate.drop_resets) {
        return range;
    }
    let two = step.micros().saturating_mul(2);
    let start = step.floor(query.start).saturating_add_micros(-two);
    let end = step.floor(query.end).saturating_add_micros(two);
    range.intersect(TimeRange::new(start, end))
}

#[cfg(test)]
mod tests;
