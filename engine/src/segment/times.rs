//! The times of a run's samples, mostly without reading the column of times.
//!
//! Most runs are regular: a first time and a step describe them. Other runs share their times, because one process
//! samples many series at once; such times are stored once, as a list in the run index. All other times are only in the
//! column `ts`.

use std::sync::Arc;

use ahash::AHashMap;

use super::varint::{self, Bytes, Malformed};

/// Times in the lists of a file at most; runs that come later and share none stay in the column.
const HELD_MAX: usize = 2 << 20;
/// SharedTimes that a run is compared with besides those that start with it, the newest first.
const TRIED_MAX: usize = 64;
/// A list pays when it takes at most one byte for this many rows.
const ROWS_PER_BYTE_MIN: u64 = 8;

/// Where the times of a run are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Times {
    /// The first, and then one each `step` microseconds; 0 for a single row.
    Regular { step: i64 },
    /// Those of a list in the run index, from this one on.
    Shared { list: u32, from: u32 },
    /// In the column `ts`.
    Column,
}

impl Times {
    /// Where those from the one at this place on are.
    pub fn from(self, at: usize) -> Self {
        match self {
            Times::Shared { list, from } => Times::Shared { list, from: from + at as u32 },
            other => other,
        }
    }
}

/// When consecutive samples of one series were taken, microseconds.
#[derive(Clone, Copy, Debug)]
pub enum Ticks<'a> {
    /// The first, and then one each `step`; the step of a single sample means nothing.
    Regular { first: i64, step: i64 },
    /// Ascending.
    List(&'a [i64]),
}

impl<'a> Ticks<'a> {
    pub fn time(self, at: usize) -> i64 {
        match self {
            Ticks::Regular { first, .. } if at == 0 => first,
            Ticks::Regular { first, step } => first + at as i64 * step,
            Ticks::List(times) => times[at],
        }
    }

    /// Those from the one at this place on.
    pub fn from(self, at: usize) -> Self {
        match self {
            Ticks::Regular { step, .. } => Ticks::Regular { first: self.time(at), step },
            Ticks::List(times) => Ticks::List(&times[at..]),
        }
    }

    /// How many from `at` on, and before `len`, come before `end`; the one at `at` does.
    pub fn before(self, at: usize, len: usize, end: i64) -> usize {
        match self {
            Ticks::Regular { step, .. } if step > 0 => {
                let after = (i128::from(end) - i128::from(self.time(at)) - 1) / i128::from(step);
                usize::try_from(after).map_or(len - at, |after| (len - at).min(after.saturating_add(1)))
            }
            Ticks::Regular { .. } => 1,
            Ticks::List(times) => {
                // The end is mostly near, seen from here: all before `known` come before it.
                let (mut known, mut reach) = (at, 16);
                while known + reach < len && times[known + reach] < end {
                    known += reach;
                    reach *= 2;
                }
                let to = len.min(known + reach + 1);
                known - at + times[known..to].partition_point(|time| *time < end)
            }
        }
    }

    /// How many fall into every bucket of this width, where it is as many into each.
    pub fn per_bucket(self, width: i64) -> Option<usize> {
        match self {
            Ticks::Regular { step, .. } if step > 0 && width % step == 0 => usize::try_from(width / step).ok(),
            _ => None,
        }
    }
}

/// The step of times that tick regularly: ascending, none missing, and the last not further from the first than a number
/// can say.
pub fn regular_step(times: &[i64]) -> Option<i64> {
    let [first, second, ..] = times else { return Some(0) };
    // Times may lie at both ends of all time.
    times.last()?.checked_sub(*first)?;
    let step = second.checked_sub(*first)?;
    times.windows(2).all(|pair| pair[1].checked_sub(pair[0]) == Some(step)).then_some(step)
}

/// The lists of times of a segment that is being written.
#[derive(Debug, Default)]
pub struct SharedTimes {
    lists: Vec<List>,
    by_first: AHashMap<i64, Vec<u32>>,
    held: usize,
    last: u32,
}

#[derive(Debug)]
struct List {
    times: Vec<i64>,
    /// Rows of the runs that use it.
    rows: u64,
}

impl SharedTimes {
    /// Where these times are in a list, which may be a new one; `None` when there is no room for it.
    pub fn find(&mut self, times: &[i64]) -> Option<Times> {
        if let Some((list, from)) = self.known(times) {
            self.lists[list as usize].rows += times.len() as u64;
            self.last = list;
            return Some(Times::Shared { list, from });
        }
        if self.held + times.len() > HELD_MAX {
            return None;
        }
        self.held += times.len();
        let list = u32::try_from(self.lists.len()).ok()?;
        self.by_first.entry(times[0]).or_default().push(list);
        self.lists.push(List { times: times.to_vec(), rows: times.len() as u64 });
        self.last = list;
        Some(Times::Shared { list, from: 0 })
    }

    /// So many times of a list, from this one on.
    pub fn times(&self, list: u32, from: u32, rows: usize) -> &[i64] {
        &self.lists[list as usize].times[from as usize..][..rows]
    }

    fn known(&self, times: &[i64]) -> Option<(u32, u32)> {
        let first = *times.first()?;
        let newest = (0..self.lists.len() as u32).rev().take(TRIED_MAX);
        let same_start = self.by_first.get(&first).into_iter().flatten().rev().take(TRIED_MAX).copied();
        let last = (!self.lists.is_empty()).then_some(self.last);
        last.into_iter().chain(same_start).chain(newest).find_map(|list| {
            let from = self.lists[list as usize].position(times)?;
            Some((list, from))
        })
    }

    /// Writes the lists that pay, and says where those of `runs` are then.
    pub fn finish(self, runs: &mut [&mut Times], rows_of: &[u32], bytes: &mut Vec<u8>) {
        let encoded: Vec<Vec<u8>> = self.lists.iter().map(List::encode).collect();
        let mut rows: Vec<u64> = self.lists.iter().map(|list| list.rows).collect();
        let pays = |list: usize, rows: &[u64]| encoded[list].len() as u64 * ROWS_PER_BYTE_MIN <= rows[list];
        // A list that does not pay may be a part of one that does, which came later.
        let mut moved: Vec<Option<(u32, u32)>> = vec![None; self.lists.len()];
        let paying: Vec<usize> = (0..self.lists.len()).filter(|list| pays(*list, &rows)).take(TRIED_MAX).collect();
        for list in 0..self.lists.len() {
            if !pays(list, &rows) {
                let times = &self.lists[list].times;
                let other = paying.iter().find_map(|other| Some((*other as u32, self.lists[*other].position(times)?)));
                if let Some((other, _)) = other {
                    rows[other as usize] += std::mem::take(&mut rows[list]);
                }
                moved[list] = other;
            }
        }
        let mut numbers: Vec<Option<u32>> = vec![None; self.lists.len()];
        let mut kept = 0;
        for (list, number) in numbers.iter_mut().enumerate() {
            if pays(list, &rows) && rows[list] > 0 {
                *number = Some(kept);
                kept += 1;
            }
        }
        for (times, rows) in runs.iter_mut().zip(rows_of) {
            let Times::Shared { list, from } = **times else { continue };
            let (list, from) = moved[list as usize].map_or((list, from), |(other, at)| (other, at + from));
            debug_assert!(from as usize + *rows as usize <= self.lists[list as usize].times.len());
            **times = numbers[list as usize].map_or(Times::Column, |list| Times::Shared { list, from });
        }
        varint::put(bytes, u64::from(kept));
        for (list, encoded) in encoded.iter().enumerate() {
            if numbers[list].is_some() {
                bytes.extend_from_slice(encoded);
            }
        }
    }
}

impl List {
    /// Where `times` start in it, if it has all of them without a gap.
    fn position(&self, times: &[i64]) -> Option<u32> {
        let from = self.times.binary_search(times.first()?).ok()?;
        let same = self.times.get(from..from + times.len())? == times;
        same.then(|| u32::try_from(from).ok()).flatten()
    }

    /// Count, first time, and by how much each step differs from the one before; equal steps are counted.
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        varint::put(&mut bytes, self.times.len() as u64);
        varint::put_signed(&mut bytes, self.times[0]);
        let mut step_before = 0_i64;
        let mut equal: u64 = 0;
        for pair in self.times.windows(2) {
            // Modulo 2^64, as the reader adds.
            let step = pair[1].wrapping_sub(pair[0]);
            let change = step.wrapping_sub(step_before);
            step_before = step;
            if change == 0 {
                equal += 1;
                continue;
            }
            put_equal(&mut bytes, &mut equal);
            varint::put_signed(&mut bytes, change);
        }
        put_equal(&mut bytes, &mut equal);
        bytes
    }
}

/// A change of 0 and how often the step stays.
fn put_equal(bytes: &mut Vec<u8>, equal: &mut u64) {
    if *equal > 0 {
        bytes.push(0);
        varint::put(bytes, std::mem::take(equal));
    }
}

/// Reads the lists of times of a segment; they have at most `rows_max` times together, and never more than writers
/// write: few bytes may represent many times.
pub fn decode(bytes: &mut Bytes<'_>, rows_max: u64) -> Result<Vec<Arc<[i64]>>, Malformed> {
    let count = bytes.small()?;
    let mut lists = Vec::new();
    let mut left = rows_max.min(HELD_MAX as u64);
    for _ in 0..count {
        let len = bytes.number()?;
        if len == 0 || len > left {
            return Err(bytes.malformed(format!("a list of {len} times"), format!("1 to {left}")));
        }
        left -= len;
        lists.push(decode_one(bytes, len as usize)?);
    }
    Ok(lists)
}

fn decode_one(bytes: &mut Bytes<'_>, len: usize) -> Result<Arc<[i64]>, Malformed> {
    let mut times = Vec::with_capacity(len);
    let mut time = bytes.signed()?;
    times.push(time);
    let mut step = 0_i64;
    while times.len() < len {
        let change = bytes.signed()?;
        let count = if change == 0 { bytes.number()? } else { 1 };
        step = step.wrapping_add(change);
        if count == 0 || count > (len - times.len()) as u64 {
            let expected = format!("1 to {}", len - times.len());
            return Err(bytes.malformed(format!("{count} more times of a list"), expected));
        }
        for _ in 0..count {
            let next = time.wrapping_add(step);
            if next <= time {
                return Err(bytes.malformed(format!("{next} after {time} in a list"), "ascending times"));
            }
            time = next;
            times.push(time);
        }
    }
    Ok(times.into())
}

#[cfg(test)]
mod tests;
