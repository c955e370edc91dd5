//! The arithmetic: values of one series, in the order of time, to one value a bucket.
//!
//! What comes out equals adding the samples one after the other to the last bit, whatever pieces they come in. It is
//! fast because a run that ticks regularly fills buckets of equal size: their bounds need no times, and four of them
//! are worked on side by side, so that one addition need not wait for the one before it.

use std::marker::PhantomData;

use crate::segment::times::Ticks;
use crate::segment::{Sum as SumOfRun, Summary};
use crate::time::{Step, Timestamp};
use crate::value::Value;

/// Buckets that are worked on side by side: an addition takes about so many cycles until the next can use it.
const SIDE_BY_SIDE: usize = 4;
/// Integers below this, and sums of them, are floats without loss, in whatever order they are added.
const EXACT: i128 = 1 << 53;

/// One function of the values in a bucket.
pub(super) trait Kernel: Send {
    type State: Copy + Send;

    fn empty() -> Self::State;

    /// Takes in numbers, none of which is NaN: at least one.
    fn fold(state: &mut Self::State, values: &[f64]);

    /// Takes in a NaN, which to most functions is nothing.
    fn nan(_state: &mut Self::State) {}

    /// As many empty buckets, each with its equal share of `values`, which are numbers.
    fn side_by_side(values: &[f64]) -> [Self::State; SIDE_BY_SIDE] {
        let mut states = [Self::empty(); SIDE_BY_SIDE];
        for (state, share) in states.iter_mut().zip(values.chunks_exact(values.len() / SIDE_BY_SIDE)) {
            Self::fold(state, share);
        }
        states
    }

    /// Takes in all values of a run, of which this is known; false when that is not enough.
    fn whole(state: &mut Self::State, rows: u32, summary: &Summary) -> bool;

    fn finish(state: Self::State) -> f64;
}

/// Four shares of equal length.
fn quarters(values: &[f64]) -> impl Iterator<Item = [f64; SIDE_BY_SIDE]> + '_ {
    let share = values.len() / SIDE_BY_SIDE;
    let (a, rest) = values.split_at(share);
    let (b, rest) = rest.split_at(share);
    let (c, d) = rest.split_at(share);
    a.iter().zip(b).zip(c).zip(d).map(|(((a, b), c), d)| [*a, *b, *c, *d])
}

/// What is added in a bucket, and how many values that was.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Total {
    /// From 0.0, so that the sum of one -0.0 is 0.0.
    sum: f64,
    count: u64,
}

/// What a [`Total`] comes to.
pub(super) trait Outcome: Send {
    fn of(total: Total) -> f64;
}

pub(super) struct Plain;

impl Outcome for Plain {
    fn of(total: Total) -> f64 {
        total.sum
    }
}

pub(super) struct Mean;

impl Outcome for Mean {
    fn of(total: Total) -> f64 {
        total.sum / total.count as f64
    }
}

pub(super) struct Added<O>(PhantomData<O>);

pub(super) type Sum = Added<Plain>;
pub(super) type Avg = Added<Mean>;

impl<O: Outcome> Kernel for Added<O> {
    type State = Total;

    fn empty() -> Total {
        Total::default()
    }

    fn fold(state: &mut Total, values: &[f64]) {
        state.sum = values.iter().fold(state.sum, |sum, value| sum + value);
        state.count += values.len() as u64;
    }

    fn side_by_side(values: &[f64]) -> [Total; SIDE_BY_SIDE] {
        let mut sums = [0.0; SIDE_BY_SIDE];
        for values in quarters(values) {
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum += value;
            }
        }
        sums.map(|sum| Total { sum, count: (values.len() / SIDE_BY_SIDE) as u64 })
    }

    fn whole(state: &mut Total, rows: u32, summary: &Summary) -> bool {
        match (summary.sum, summary.min, summary.max) {
            (SumOfRun::Float(sum), ..) => state.sum += sum,
            (SumOfRun::Int(sum), Value::Int(min), Value::Int(max)) => {
                // Beyond, rounding depends on the order.
                let largest = i128::from(min.unsigned_abs().max(max.unsigned_abs()));
                if largest * i128::from(rows) >= EXACT {
                    return false;
                }
                state.sum += sum as f64;
            }
            (SumOfRun::Int(_), ..) => return false,
        }
        state.count += u64::from(rows);
        true
    }

    fn finish(state: Total) -> f64 {
        if state.count == 0 { f64::NAN } else { O::of(state) }
    }
}

pub(super) struct Count;

impl Kernel for Count {
    type State = u64;

    fn empty() -> u64 {
        0
    }

    fn fold(state: &mut u64, values: &[f64]) {
        *state += values.len() as u64;
    }

    fn whole(state: &mut u64, rows: u32, _: &Summary) -> bool {
        *state += u64::from(rows);
        true
    }

    fn finish(state: u64) -> f64 {
        state as f64
    }
}

/// Which of two values an [`Extreme`] keeps.
pub(super) trait Order: Send {
    /// What any other value beats.
    const WORST: f64;

    fn beats(value: f64, other: f64) -> bool;

    /// The value of a run that beats all others of it.
    fn best(summary: &Summary) -> Value;
}

pub(super) struct Lower;

impl Order for Lower {
    const WORST: f64 = f64::INFINITY;

    fn beats(value: f64, other: f64) -> bool {
        value < other
    }

    fn best(summary: &Summary) -> Value {
        summary.min
    }
}

pub(super) struct Higher;

impl Order for Higher {
    const WORST: f64 = f64::NEG_INFINITY;

    fn beats(value: f64, other: f64) -> bool {
        value > other
    }

    fn best(summary: &Summary) -> Value {
        summary.max
    }
}

/// The first of the values that no other beats.
pub(super) struct Extreme<O>(PhantomData<O>);

pub(super) type Min = Extreme<Lower>;
pub(super) type Max = Extreme<Higher>;

impl<O: Order> Kernel for Extreme<O> {
    type State = f64;

    fn empty() -> f64 {
        O::WORST
    }

    fn fold(state: &mut f64, values: &[f64]) {
        *state = values.iter().fold(*state, |best, value| if O::beats(*value, best) { *value } else { best });
    }

    fn side_by_side(values: &[f64]) -> [f64; SIDE_BY_SIDE] {
        let mut all = [Self::empty(); SIDE_BY_SIDE];
        for values in quarters(values) {
            for (best, value) in all.iter_mut().zip(values) {
                *best = if O::beats(value, *best) { value } else { *best };
            }
        }
        all
    }

    fn whole(state: &mut f64, _: u32, summary: &Summary) -> bool {
        Self::fold(state, &[O::best(summary).as_f64()]);
        true
    }

    /// Nothing at all and nothing but infinities look alike.
    fn finish(state: f64) -> f64 {
        if state == O::WORST { f64::NAN } else { state }
    }
}

/// NaN passes: the first is the first.
pub(super) struct First;

impl Kernel for First {
    type State = Option<f64>;

    fn empty() -> Option<f64> {
        None
    }

    fn fold(state: &mut Option<f64>, values: &[f64]) {
        state.get_or_insert(values[0]);
    }

    fn nan(state: &mut Option<f64>) {
        state.get_or_insert(f64::NAN);
    }

    fn whole(state: &mut Option<f64>, _: u32, summary: &Summary) -> bool {
        state.get_or_insert(summary.first.as_f64());
        true
    }

    fn finish(state: Option<f64>) -> f64 {
        state.unwrap_or(f64::NAN)
    }
}

/// NaN passes: the last is the last.
pub(super) struct Last;

impl Kernel for Last {
    type State = f64;

    fn empty() -> f64 {
        f64::NAN
    }

    fn fold(state: &mut f64, values: &[f64]) {
        *state = values[values.len() - 1];
    }

    fn nan(state: &mut f64) {
        *state = f64::NAN;
    }

    fn whole(state: &mut f64, _: u32, summary: &Summary) -> bool {
        *state = summary.last.as_f64();
        true
    }

    fn finish(state: f64) -> f64 {
        state
    }
}

/// Population standard deviation by Welford's method.
pub(super) struct Dev;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spread {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Spread {
    fn start(value: f64) -> Self {
        Self { count: 1.0, mean: value, squares: 0.0 }
    }

    fn add(&mut self, value: f64) {
        self.count += 1.0;
        let next = self.mean + (value - self.mean) / self.count;
        self.squares += (value - self.mean) * (value - next);
        self.mean = next;
    }
}

impl Kernel for Dev {
    type State = Spread;

    fn empty() -> Spread {
        Spread::default()
    }

    fn fold(state: &mut Spread, values: &[f64]) {
        let mut values = values.iter();
        if state.count == 0.0
            && let Some(first) = values.next()
        {
            *state = Spread::start(*first);
        }
        values.for_each(|value| state.add(*value));
    }

    fn side_by_side(values: &[f64]) -> [Spread; SIDE_BY_SIDE] {
        let mut quarters = quarters(values);
        let mut states = quarters.next().unwrap_or_default().map(Spread::start);
        for values in quarters {
            for (state, value) in states.iter_mut().zip(values) {
                state.add(value);
            }
        }
        states
    }

    fn whole(_: &mut Spread, _: u32, _: &Summary) -> bool {
        false
    }

    fn finish(state: Spread) -> f64 {
        match state.count {
            0.0 => f64::NAN,
            1.0 => 0.0,
            count => (state.squares / count).sqrt(),
        }
    }
}

/// The buckets of one series: stretches come in the order of time.
pub(super) trait Buckets: Send {
    /// Takes in `values`, one at each of `ticks`; `numbers` says that none is NaN.
    fn push(&mut self, ticks: Ticks<'_>, values: &[f64], numbers: bool);

    /// Takes in a run of which only `summary` is known, if it lies in one bucket and that is enough.
    fn whole(&mut self, first: Timestamp, last: Timestamp, rows: u32, summary: &Summary) -> bool;

    /// Starts of the buckets that hold samples, and their values.
    fn finish(self: Box<Self>) -> (Vec<Timestamp>, Vec<f64>);
}

/// Makes buckets of `step`, counted from the epoch.
pub(super) struct Grid<K: Kernel> {
    step: Step,
    /// The bucket that is filled, microseconds, and what is in it.
    open: Option<(i64, K::State)>,
    /// Where it ends.
    end: i64,
    starts: Vec<Timestamp>,
    values: Vec<f64>,
}

impl<K: Kernel> Grid<K> {
    pub(super) fn new(step: Step) -> Self {
        Self { step, open: None, end: i64::MIN, starts: Vec::new(), values: Vec::new() }
    }

    fn close(&mut self) {
        if let Some((start, state)) = self.open.take() {
            self.emit(start, state);
        }
    }

    fn emit(&mut self, start: i64, state: K::State) {
        self.starts.push(Timestamp::from_micros(start));
        self.values.push(K::finish(state));
    }

    /// The bucket of `time`, which is not before any that came, and what is in it; `None` for a new one.
    fn bucket(&mut self, time: i64) -> (i64, Option<K::State>) {
        if time >= self.end {
            self.close();
        }
        match self.open.take() {
            Some((start, state)) => (start, Some(state)),
            None => {
                let start = self.step.floor(Timestamp::from_micros(time)).micros();
                self.end = start.saturating_add(self.step.micros());
                (start, None)
            }
        }
    }

    /// Fills as many whole buckets as there are values for, each with `share` of them; gives back how many were used.
    /// The last one stays open: what comes next may be later than the last tick and yet in its bucket.
    fn fill(&mut self, start: i64, share: usize, values: &[f64]) -> usize {
        let step = self.step.micros();
        let (mut start, mut used) = (start, 0);
        for four in values.chunks_exact(share * SIDE_BY_SIDE) {
            // Not at the end of all time.
            let Some(next) = step.checked_mul(SIDE_BY_SIDE as i64).and_then(|four| start.checked_add(four)) else {
                break;
            };
            for state in K::side_by_side(four) {
                self.close();
                self.open = Some((start, state));
                start += step;
            }
            self.end = next;
            used += four.len();
        }
        used
    }
}

fn fold<K: Kernel>(state: &mut K::State, values: &[f64], numbers: bool) {
    if numbers {
        K::fold(state, values);
        return;
    }
    for value in values {
        if value.is_nan() { K::nan(state) } else { K::fold(state, std::slice::from_ref(value)) }
    }
}

impl<K: Kernel> Buckets for Grid<K> {
    fn push(&mut self, ticks: Ticks<'_>, values: &[f64], numbers: bool) {
        let mut at = 0;
        while at < values.len() {
            let time = ticks.time(at);
            let (start, begun) = self.bucket(time);
            let count = ticks.before(at, values.len(), self.end);
            let whole = numbers && begun.is_none() && ticks.per_bucket(self.step.micros()) == Some(count);
            let used = if whole { self.fill(start, count, &values[at..]) } else { 0 };
            if used == 0 {
                let mut state = begun.unwrap_or_else(K::empty);
                fold::<K>(&mut state, &values[at..at + count], numbers);
                self.open = Some((start, state));
            }
            at += if used == 0 { count } else { used };
        }
    }

    fn whole(&mut self, first: Timestamp, last: Timestamp, rows: u32, summary: &Summary) -> bool {
        if self.step.floor(first) != self.step.floor(last) {
            return false;
        }
        let (start, begun) = self.bucket(first.micros());
        let mut state = begun.unwrap_or_else(K::empty);
        let known = K::whole(&mut state, rows, summary);
        // Where that is not enough, the values themselves come next.
        self.open = Some((start, state));
        known
    }

    fn finish(mut self: Box<Self>) -> (Vec<Timestamp>, Vec<f64>) {
        self.close();
        (self.starts, self.values)
    }
}
