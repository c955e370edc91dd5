//! The arithmetic of downsampling: the values of one series, in the order of time, become one value per bucket.
//!
//! The result is the same to the last bit however the samples are cut into pieces: sums are exact until they are
//! complete ([`ExactSum`]), and everything else processes the samples one after the other. It is fast because a regular
//! run fills buckets of equal size. Their bounds need no times, and four of them are computed side by side, so that one
//! addition does not wait for the one before it.

use std::marker::PhantomData;

use multiversion::multiversion;

use crate::exact::{ExactSum, Span, SumCut};
use crate::segment::times::Ticks;
use crate::segment::{Kind, Run, Sum, Summary, decimal};
use crate::time::{Step, Timestamp};
use crate::value::Value;

/// Buckets that are worked on side by side: an addition takes about so many cycles until the next can use it.
const SIDE_BY_SIDE: usize = 4;
/// Integers up to this are floats without loss.
const EXACT: u64 = 1 << 53;

/// Integers of at most [`EXACT`] in magnitude are added up as they are, so many at a time: a sum of them has 62 bits.
const ADDED_AT_ONCE: usize = 256;

/// What is known of values before they are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KnownValues {
    Nothing,
    /// None is NaN.
    Numbers,
    /// None is NaN, and all are multiples of two to this power.
    Multiples(i32),
}

/// One function of the values in a bucket.
pub(super) trait Kernel: Send + Sized {
    type State: Send;
    /// What is worked out of all values that come at once, and helps with each bucket of them.
    type Help: Copy;

    /// Decimals of buckets with fewer of them become floats in any case.
    const DECIMALS_MIN: usize = 0;

    fn empty() -> Self::State;

    /// Of numbers, none of which is NaN.
    fn help(values: &[f64], known: KnownValues) -> Self::Help;

    /// Takes in numbers, none of which is NaN: at least one.
    fn fold(state: &mut Self::State, values: &[f64], help: Self::Help);

    /// Whether the integers, divided by ten to the power `scale`, need not become floats: what is made of them is the
    /// same to the last bit.
    fn takes_ints(_ints: &[i64], _scale: u8) -> bool {
        false
    }

    /// As [`Kernel::fold`], of integers that it takes, divided by ten to the power `scale`.
    fn fold_ints(_state: &mut Self::State, _ints: &[i64], _scale: u8) {}

    /// As [`Kernel::side_by_side`], of integers that it takes, divided by ten to the power `scale`.
    fn ints_side_by_side(ints: &[i64], scale: u8) -> [Self::State; SIDE_BY_SIDE] {
        four_of_ints::<Self>(ints, scale)
    }

    /// Takes in a NaN, which to most functions is nothing.
    fn nan(_state: &mut Self::State) {}

    /// As many empty buckets, each with its equal share of `values`, which are numbers.
    fn side_by_side(values: &[f64], help: Self::Help) -> [Self::State; SIDE_BY_SIDE] {
        let mut states = std::array::from_fn(|_| Self::empty());
        for (state, share) in states.iter_mut().zip(values.chunks_exact(values.len() / SIDE_BY_SIDE)) {
            Self::fold(state, share, help);
        }
        states
    }

    /// Takes in all values of a run, of which this is known; false when that is not enough.
    fn whole(state: &mut Self::State, run: &Run, summary: &Summary) -> bool;

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
#[derive(Debug, Default)]
pub(super) struct Total {
    /// The sum of one -0.0 is 0.0.
    sum: ExactSum,
    count: u64,
}

/// What a [`Total`] comes to.
pub(super) trait TotalOutcome: Send {
    fn of(total: Total) -> f64;
}

pub(super) struct Plain;

impl TotalOutcome for Plain {
    fn of(total: Total) -> f64 {
        total.sum.value()
    }
}

pub(super) struct Mean;

impl TotalOutcome for Mean {
    fn of(total: Total) -> f64 {
        total.sum.value() / total.count as f64
    }
}

pub(super) struct Added<O>(PhantomData<O>);

pub(super) type PlainSum = Added<Plain>;
pub(super) type Avg = Added<Mean>;

impl<O: TotalOutcome> Kernel for Added<O> {
    type State = Total;
    type Help = Span;

    /// So many are added up several at a time.
    const DECIMALS_MIN: usize = 16;

    fn empty() -> Total {
        Total::default()
    }

    fn help(values: &[f64], known: KnownValues) -> Span {
        match known {
            KnownValues::Multiples(unit) => Span::of_multiples(values, unit),
            KnownValues::Numbers | KnownValues::Nothing => Span::of(values),
        }
    }

    fn fold(state: &mut Total, values: &[f64], span: Span) {
        state.sum.add_within(values, span);
        state.count += values.len() as u64;
    }

    fn takes_ints(ints: &[i64], scale: u8) -> bool {
        if scale == 0 { are_exact(ints) } else { decimal::can_sum(ints, scale) }
    }

    /// The floats next to decimals add up to something else than these.
    #[inline(always)]
    fn fold_ints(state: &mut Total, ints: &[i64], scale: u8) {
        if scale == 0 {
            for ints in ints.chunks(ADDED_AT_ONCE) {
                state.sum.add_int(ints.iter().sum::<i64>().into());
            }
        } else {
            for ints in ints.chunks(decimal::ADDED_MAX) {
                let (high, low) = decimal::sum(ints, scale);
                state.sum.add(high);
                state.sum.add(low);
            }
        }
        state.count += ints.len() as u64;
    }

    fn ints_side_by_side(ints: &[i64], scale: u8) -> [Total; SIDE_BY_SIDE] {
        let share = ints.len() / SIDE_BY_SIDE;
        if scale == 0 || share > decimal::ADDED_MAX {
            return four_of_ints::<Self>(ints, scale);
        }
        let total = |(high, low)| Total { sum: ExactSum::of_pair(high, low), count: share as u64 };
        decimal::sums_of_shares(ints, scale).map(total)
    }

    fn side_by_side(values: &[f64], span: Span) -> [Total; SIDE_BY_SIDE] {
        let share = values.len() / SIDE_BY_SIDE;
        let count = share as u64;
        let total = |(high, low)| Total { sum: ExactSum::of_pair(high, low), count };
        match span.cut().filter(|_| share <= SumCut::NUMBERS_MAX) {
            Some(cut) => cut.sums_of_shares(values).map(total),
            None => {
                let mut shares = values.chunks_exact(share);
                std::array::from_fn(|_| {
                    let mut total = Total::default();
                    Self::fold(&mut total, shares.next().unwrap_or_default(), span);
                    total
                })
            }
        }
    }

    /// A sum of floats was rounded after every addition, and counts only where nothing was lost by that.
    fn whole(state: &mut Total, run: &Run, summary: &Summary) -> bool {
        match (summary.sum, summary.min, summary.max) {
            (Sum::Float(_), ..) if run.rows == 1 || run.constant => {
                state.sum.add_times(summary.first.as_f64(), run.rows);
            }
            (Sum::Float(sum), Value::Float(min), Value::Float(max))
                if run.kind == Kind::Scaled(0) && min.abs().max(max.abs()) * f64::from(run.rows) < EXACT as f64 =>
            {
                state.sum.add(sum);
            }
            (Sum::Int(sum), Value::Int(min), Value::Int(max)) => {
                // Larger ones count as the floats next to them.
                if min.unsigned_abs().max(max.unsigned_abs()) > EXACT {
                    return false;
                }
                state.sum.add_int(sum);
            }
            _ => return false,
        }
        state.count += u64::from(run.rows);
        true
    }

    fn finish(state: Total) -> f64 {
        if state.count == 0 { f64::NAN } else { O::of(state) }
    }
}

pub(super) struct Count;

impl Kernel for Count {
    type State = u64;
    type Help = ();

    fn empty() -> u64 {
        0
    }

    fn help(_: &[f64], _: KnownValues) {}

    fn fold(state: &mut u64, values: &[f64], (): ()) {
        *state += values.len() as u64;
    }

    fn takes_ints(_: &[i64], _: u8) -> bool {
        true
    }

    fn fold_ints(state: &mut u64, ints: &[i64], _: u8) {
        *state += ints.len() as u64;
    }

    fn whole(state: &mut u64, run: &Run, _: &Summary) -> bool {
        *state += u64::from(run.rows);
        true
    }

    fn finish(state: u64) -> f64 {
        state as f64
    }
}

/// Which of two values an [`Extreme`] keeps.
pub(super) trait ExtremeOrder: Send {
    /// What any other value beats.
    const WORST: f64;

    fn beats(value: f64, other: f64) -> bool;

    /// The one that beats all others.
    fn best_int(ints: &[i64]) -> Option<i64>;

    /// The value of a run that beats all others of it.
    fn best(summary: &Summary) -> Value;
}

pub(super) struct Lower;

impl ExtremeOrder for Lower {
    const WORST: f64 = f64::INFINITY;

    fn beats(value: f64, other: f64) -> bool {
        value < other
    }

    #[inline(always)]
    fn best_int(ints: &[i64]) -> Option<i64> {
        ints.iter().copied().min()
    }

    fn best(summary: &Summary) -> Value {
        summary.min
    }
}

pub(super) struct Higher;

impl ExtremeOrder for Higher {
    const WORST: f64 = f64::NEG_INFINITY;

    fn beats(value: f64, other: f64) -> bool {
        value > other
    }

    #[inline(always)]
    fn best_int(ints: &[i64]) -> Option<i64> {
        ints.iter().copied().max()
    }

    fn best(summary: &Summary) -> Value {
        summary.max
    }
}

/// The first of the values that no other beats.
pub(super) struct Extreme<O>(PhantomData<O>);

pub(super) type Min = Extreme<Lower>;
pub(super) type Max = Extreme<Higher>;

impl<O: ExtremeOrder> Kernel for Extreme<O> {
    type State = f64;
    type Help = ();

    fn empty() -> f64 {
        O::WORST
    }

    fn help(_: &[f64], _: KnownValues) {}

    fn fold(state: &mut f64, values: &[f64], (): ()) {
        *state = values.iter().fold(*state, |best, value| if O::beats(*value, best) { *value } else { best });
    }

    /// A greater integer never makes a lesser float.
    fn takes_ints(_: &[i64], _: u8) -> bool {
        true
    }

    #[inline(always)]
    fn fold_ints(state: &mut f64, ints: &[i64], scale: u8) {
        if let Some(best) = O::best_int(ints) {
            Self::fold(state, &[decimal::to_float(best, scale)], ());
        }
    }

    fn side_by_side(values: &[f64], (): ()) -> [f64; SIDE_BY_SIDE] {
        let mut all = [Self::empty(); SIDE_BY_SIDE];
        for values in quarters(values) {
            for (best, value) in all.iter_mut().zip(values) {
                *best = if O::beats(value, *best) { value } else { *best };
            }
        }
        all
    }

    fn whole(state: &mut f64, _: &Run, summary: &Summary) -> bool {
        Self::fold(state, &[O::best(summary).as_f64()], ());
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
    type Help = ();

    fn empty() -> Option<f64> {
        None
    }

    fn help(_: &[f64], _: KnownValues) {}

    fn fold(state: &mut Option<f64>, values: &[f64], (): ()) {
        state.get_or_insert(values[0]);
    }

    fn takes_ints(_: &[i64], _: u8) -> bool {
        true
    }

    fn fold_ints(state: &mut Option<f64>, ints: &[i64], scale: u8) {
        state.get_or_insert(decimal::to_float(ints[0], scale));
    }

    fn nan(state: &mut Option<f64>) {
        state.get_or_insert(f64::NAN);
    }

    fn whole(state: &mut Option<f64>, _: &Run, summary: &Summary) -> bool {
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
    type Help = ();

    fn empty() -> f64 {
        f64::NAN
    }

    fn help(_: &[f64], _: KnownValues) {}

    fn fold(state: &mut f64, values: &[f64], (): ()) {
        *state = values[values.len() - 1];
    }

    fn takes_ints(_: &[i64], _: u8) -> bool {
        true
    }

    fn fold_ints(state: &mut f64, ints: &[i64], scale: u8) {
        *state = decimal::to_float(ints[ints.len() - 1], scale);
    }

    fn nan(state: &mut f64) {
        *state = f64::NAN;
    }

    fn whole(state: &mut f64, _: &Run, summary: &Summary) -> bool {
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
    type Help = ();

    fn empty() -> Spread {
        Spread::default()
    }

    fn help(_: &[f64], _: KnownValues) {}

    fn fold(state: &mut Spread, values: &[f64], (): ()) {
        let mut values = values.iter();
        if state.count == 0.0
            && let Some(first) = values.next()
        {
            *state = Spread::start(*first);
        }
        values.for_each(|value| state.add(*value));
    }

    fn side_by_side(values: &[f64], (): ()) -> [Spread; SIDE_BY_SIDE] {
        let mut quarters = quarters(values);
        let mut states = quarters.next().unwrap_or_default().map(Spread::start);
        for values in quarters {
            for (state, value) in states.iter_mut().zip(values) {
                state.add(value);
            }
        }
        states
    }

    fn whole(_: &mut Spread, _: &Run, _: &Summary) -> bool {
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
pub(super) trait BucketFold: Send {
    /// Takes in `values`, one at each of `ticks`.
    fn push(&mut self, ticks: Ticks<'_>, values: &[f64], known: KnownValues);

    /// As [`BucketFold::push`], of integers divided by ten to the power `scale`; false when they have to become floats,
    /// and nothing was taken in.
    fn push_ints(&mut self, _ticks: Ticks<'_>, _ints: &[i64], _scale: u8) -> bool {
        false
    }

    /// Takes in a run of which only `summary` is known, if it lies in one bucket and that is enough.
    fn whole(&mut self, run: &Run, summary: &Summary) -> bool;

    /// Starts of the buckets that hold samples, and their values.
    fn finish(self: Box<Self>) -> (Vec<Timestamp>, Vec<f64>);
}

/// Those of buckets that are filled side by side.
type FourStates<K> = [<K as Kernel>::State; SIDE_BY_SIDE];
/// Makes them of values that may be NaN, which nothing does.
type FourOfAny<K> = fn(&[f64]) -> FourStates<K>;

/// Makes buckets of `step`, counted from the epoch.
pub(super) struct BucketGrid<K: Kernel> {
    step: Step,
    /// The bucket that is filled, microseconds, and what is in it.
    open: Option<(i64, K::State)>,
    /// Where it ends.
    end: i64,
    starts: Vec<Timestamp>,
    values: Vec<f64>,
}

impl<K: Kernel> BucketGrid<K> {
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

    /// Fills as many whole buckets as there are values for, each with `share` of them and four at once; gives back how many
    /// values were used. The last one stays open: what comes next may be later than the last tick and yet in its bucket.
    fn fill<T>(
        &mut self,
        start: i64,
        share: usize,
        values: &[T],
        side_by_side: impl Fn(&[T]) -> FourStates<K>,
    ) -> usize {
        let step = self.step.micros();
        let (mut start, mut used) = (start, 0);
        for four in values.chunks_exact(share * SIDE_BY_SIDE) {
            // Not at the end of all time.
            let Some(next) = step.checked_mul(SIDE_BY_SIDE as i64).and_then(|four| start.checked_add(four)) else {
                break;
            };
            for state in side_by_side(four) {
                self.close();
                self.open = Some((start, state));
                start += step;
            }
            self.end = next;
            used += four.len();
        }
        used
    }

    /// Takes in `values`, one at each of `ticks`: of whole buckets four at once, where that is possible.
    fn push_by<T>(
        &mut self,
        ticks: Ticks<'_>,
        values: &[T],
        side_by_side: Option<impl Fn(&[T]) -> FourStates<K>>,
        fold: impl Fn(&mut K::State, &[T]),
    ) {
        let mut at = 0;
        while at < values.len() {
            let time = ticks.time(at);
            let (start, begun) = self.bucket(time);
            let count = ticks.before(at, values.len(), self.end);
            let whole = begun.is_none() && ticks.per_bucket(self.step.micros()) == Some(count);
            if let (true, Some(side_by_side)) = (whole, &side_by_side) {
                let used = self.fill(start, count, &values[at..], side_by_side);
                if used > 0 {
                    at += used;
                    continue;
                }
            }
            let mut state = begun.unwrap_or_else(K::empty);
            fold(&mut state, &values[at..at + count]);
            self.open = Some((start, state));
            at += count;
        }
    }
}

/// Whether all are floats without loss.
#[multiversion(targets("x86_64+avx2+bmi2"))]
fn are_exact(ints: &[i64]) -> bool {
    // Without an early end, so that many are looked at at once. Those in question are the numbers below twice the bound.
    let shifted = |int: &i64| int.wrapping_add(EXACT as i64).cast_unsigned();
    ints.iter().fold(0, |bits, int| bits | shifted(int)) < 2 * EXACT
}

/// As many empty buckets, each with its equal share of `ints`, divided by ten to the power `scale`.
#[multiversion(targets("x86_64+avx2+bmi2"))]
fn four_of_ints<K: Kernel>(ints: &[i64], scale: u8) -> [K::State; SIDE_BY_SIDE] {
    let mut states = std::array::from_fn(|_| K::empty());
    for (state, share) in states.iter_mut().zip(ints.chunks_exact(ints.len() / SIDE_BY_SIDE)) {
        K::fold_ints(state, share, scale);
    }
    states
}

/// Takes in values of which some may be NaN.
fn fold_any<K: Kernel>(state: &mut K::State, values: &[f64]) {
    for value in values {
        let one = std::slice::from_ref(value);
        if value.is_nan() { K::nan(state) } else { K::fold(state, one, K::help(one, KnownValues::Numbers)) }
    }
}

impl<K: Kernel> BucketFold for BucketGrid<K> {
    fn push(&mut self, ticks: Ticks<'_>, values: &[f64], known: KnownValues) {
        if known == KnownValues::Nothing {
            return self.push_by(ticks, values, None::<FourOfAny<K>>, fold_any::<K>);
        }
        let help = K::help(values, known);
        let side_by_side = |values: &[f64]| K::side_by_side(values, help);
        self.push_by(ticks, values, Some(side_by_side), |state, values| K::fold(state, values, help));
    }

    fn push_ints(&mut self, ticks: Ticks<'_>, ints: &[i64], scale: u8) -> bool {
        let few = scale > 0 && ticks.per_bucket(self.step.micros()).is_some_and(|count| count < K::DECIMALS_MIN);
        if few || !K::takes_ints(ints, scale) {
            return false;
        }
        let side_by_side = |ints: &[i64]| K::ints_side_by_side(ints, scale);
        self.push_by(ticks, ints, Some(side_by_side), |state, ints| K::fold_ints(state, ints, scale));
        true
    }

    fn whole(&mut self, run: &Run, summary: &Summary) -> bool {
        if self.step.floor(run.first) != self.step.floor(run.last) {
            return false;
        }
        let (start, begun) = self.bucket(run.first.micros());
        let mut state = begun.unwrap_or_else(K::empty);
        let known = K::whole(&mut state, run, summary);
        // Where that is not enough, the values themselves come next.
        self.open = Some((start, state));
        known
    }

    fn finish(mut self: Box<Self>) -> (Vec<Timestamp>, Vec<f64>) {
        self.close();
        (self.starts, self.values)
    }
}
