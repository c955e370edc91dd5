//! The series that a connection has named: a table from their numbers to the ids of the database.
//!
//! Where the tags of the sender may change, with the slot of its job, the names are kept and looked up again.

use telem_engine::{Db, ErrorKind, MetricMeta, SeriesKey};
use telem_ingest::accept::Reason;
use telem_ingest::accept::frames::{NumberedSeries, SeriesTable};
use telem_ingest::decode::frames::SentSeries;
use telem_ingest::default_tags::DefaultTags;

use super::RefusalCode;
use super::describe::SaidOfMetric;
use crate::memory::{MemoryBudget, MemoryCharge, MemoryTaken};

/// What a name costs beside its bytes.
const NAME_BYTES: usize = size_of::<usize>();

/// Why a series has a number and no place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedName {
    pub number: u32,
    pub code: RefusalCode,
    pub reason: String,
}

/// What a server allows the series of a connection.
#[derive(Clone, Copy, Debug)]
pub struct SeriesRules {
    pub tags_max: usize,
    /// Series of a higher level are not stored.
    pub level: u8,
    pub later_tags: LaterTags,
}

/// Whether the tags that a connection adds may be others later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaterTags {
    TheSame,
    /// So the names of series are kept.
    MayDiffer,
}

#[derive(Debug)]
pub struct ConnectionSeries {
    db: Db,
    tags_max: usize,
    /// Series of a higher level are not stored.
    level: u8,
    /// What is added to the tags that were sent.
    tags: DefaultTags,
    numbers: Vec<NumberedSeries>,
    /// Kept where the tags may change.
    names: Option<KeptNames>,
    /// Refused when they were looked up, and not told yet.
    pub refused: Vec<RefusedName>,
    budget: MemoryBudget,
    charge: MemoryCharge,
}

/// One name behind another.
#[derive(Debug, Default)]
struct KeptNames {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl KeptNames {
    fn get(&self, number: usize) -> Option<SentSeries<'_>> {
        let begin = if number == 0 { 0 } else { *self.ends.get(number - 1)? };
        SentSeries::parse(self.bytes.get(begin..*self.ends.get(number)?)?).ok()
    }
}

impl ConnectionSeries {
    pub fn new(db: Db, rules: SeriesRules, tags: DefaultTags, budget: MemoryBudget) -> Self {
        let SeriesRules { tags_max, level, later_tags } = rules;
        let names = (later_tags == LaterTags::MayDiffer).then(KeptNames::default);
        let (numbers, refused, charge) = Default::default();
        Self { db, tags_max, level, tags, numbers, names, refused, budget, charge }
    }

    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Gives the next number to a series.
    ///
    /// # Errors
    /// When others leave too little memory for one more.
    pub fn add(&mut self, series: &SentSeries<'_>) -> Result<(), MemoryTaken> {
        let number = u32::try_from(self.numbers.len()).map_err(|_| MemoryTaken)?;
        let kept = self.names.as_ref().map_or(0, |names| names.bytes.len() + series.bytes.len());
        let of_each = size_of::<NumberedSeries>() + if self.names.is_some() { NAME_BYTES } else { 0 };
        // Vectors have up to twice the room that they need.
        let needed = 2 * (kept + (self.numbers.len() + 1) * of_each);
        self.budget.grow(&mut self.charge, needed)?;
        if let Some(names) = &mut self.names {
            names.bytes.extend_from_slice(series.bytes);
            names.ends.push(names.bytes.len());
        }
        let found = match self.names {
            // Its place is made by its first sample: with that its job begins.
            Some(_) => check(series, &self.tags, self.tags_max).map(|_| NumberedSeries::Unresolved),
            None => place(&self.db, series, &self.tags, self.tags_max, self.level),
        };
        let is_above = series.level.max(1) > self.level;
        let found = found.map(|place| if is_above { NumberedSeries::AboveLevel } else { place });
        let found = found.unwrap_or_else(|(code, reason)| {
            self.refused.push(RefusedName { number, code, reason });
            NumberedSeries::Refused
        });
        self.numbers.push(found);
        Ok(())
    }

    /// From here on samples get these tags.
    pub fn move_to(&mut self, tags: DefaultTags) {
        if self.tags == tags {
            return;
        }
        self.tags = tags;
        for number in &mut self.numbers {
            if matches!(number, NumberedSeries::Stored(_)) {
                *number = NumberedSeries::Unresolved;
            }
        }
    }

    #[cold]
    fn resolve(&mut self, number: u32) -> NumberedSeries {
        let series = self.names.as_ref().and_then(|names| names.get(usize::try_from(number).ok()?));
        let Some(series) = series else { return NumberedSeries::Refused };
        place(&self.db, &series, &self.tags, self.tags_max, self.level).unwrap_or_else(|(code, reason)| {
            self.refused.push(RefusedName { number, code, reason });
            NumberedSeries::Refused
        })
    }

    /// What `series` says of its metric, if that adds anything to what is known.
    pub fn described(&self, series: &SentSeries<'_>, known: Option<&MetricMeta>) -> Option<SaidOfMetric> {
        let place = self.numbers.last()?;
        if matches!(place, NumberedSeries::Refused | NumberedSeries::AboveLevel) {
            return None;
        }
        let text = |bytes| std::str::from_utf8(bytes).ok();
        let (name, unit, help) = (text(series.metric)?, text(series.unit)?, text(series.help)?);
        let meta = MetricMeta { kind: series.kind, unit: unit.to_owned(), help: help.to_owned() };
        let adds = known.is_none_or(|known| known.completed(&meta) != *known);
        adds.then(|| SaidOfMetric { name: name.to_owned(), meta })
    }
}

impl SeriesTable for ConnectionSeries {
    #[inline]
    fn find(&mut self, number: u32) -> Option<NumberedSeries> {
        let at = usize::try_from(number).ok()?;
        let found = *self.numbers.get(at)?;
        if found != NumberedSeries::Unresolved {
            return Some(found);
        }
        let resolved = self.resolve(number);
        self.numbers[at] = resolved;
        Some(resolved)
    }
}

/// The key of a series with the tags of its sender.
fn check(series: &SentSeries<'_>, tags: &DefaultTags, tags_max: usize) -> Result<SeriesKey, (RefusalCode, String)> {
    let bad = |reason: String| (RefusalCode::Name, reason);
    let text = |what: &str, bytes| {
        std::str::from_utf8(bytes).map_err(|error| bad(format!("the {what} of a series is not UTF-8: {error}")))
    };
    let metric = text("metric", series.metric)?;
    text("unit", series.unit)?;
    text("help", series.help)?;
    if series.tags.len() > tags_max {
        return Err(bad(Reason::TooManyTags { found: series.tags.len(), max: tags_max }.to_string()));
    }
    let mut sent = Vec::with_capacity(series.tags.len());
    for (key, value) in &series.tags {
        sent.push((text("key of a tag", key)?, text("value of a tag", value)?));
    }
    let tags = tags.complete(&sent, tags_max).map_err(|error| bad(error.to_string()))?;
    SeriesKey::new(metric, tags).map_err(|error| bad(error.to_string()))
}

fn place(
    db: &Db,
    series: &SentSeries<'_>,
    tags: &DefaultTags,
    tags_max: usize,
    level: u8,
) -> Result<NumberedSeries, (RefusalCode, String)> {
    let key = check(series, tags, tags_max)?;
    if series.level.max(1) > level {
        return Ok(NumberedSeries::AboveLevel);
    }
    db.series(&key).map(NumberedSeries::Stored).map_err(|error| {
        let code = match error.kind() {
            ErrorKind::Invalid => RefusalCode::Name,
            _ => RefusalCode::ManySeries,
        };
        (code, error.to_string())
    })
}
