//! Slots, the targets of samples: a slot is a series of this node whose id is looked up once.

use telem_engine::{Db, SampleBatch, SeriesId, SeriesKey, TagSet, Timestamp, Value};

use super::catalog::describe;

/// A series that a collector writes to, made known to the database with its first sample.
#[derive(Debug)]
pub struct Slot {
    metric: &'static str,
    tags: Vec<(&'static str, Box<str>)>,
    id: Id,
    /// Of its last sample.
    last: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug)]
enum Id {
    Unasked,
    Known(SeriesId),
    /// The database has no room for it.
    Refused,
}

impl Slot {
    pub fn new(metric: &'static str) -> Self {
        Self::tagged(metric, &[])
    }

    /// The tag `host` comes by itself. Values are cut and cleaned where the engine would refuse them.
    pub fn tagged(metric: &'static str, tags: &[(&'static str, &str)]) -> Self {
        debug_assert!(describe(metric).is_some(), "{metric} is not in the catalog");
        let tags = tags.iter().map(|(key, value)| (*key, clean(value))).collect();
        Self { metric, tags, id: Id::Unasked, last: None }
    }
}

/// What the engine takes as a tag's value.
fn clean(value: &str) -> Box<str> {
    let plain = value.chars().map(|c| if c.is_control() { '_' } else { c });
    let mut cleaned = String::new();
    for c in plain {
        if cleaned.len() + c.len_utf8() > telem_engine::series::TAG_VALUE_BYTES_MAX {
            break;
        }
        cleaned.push(c);
    }
    if cleaned.is_empty() { "_".into() } else { cleaned.into() }
}

/// A time at which samples are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick {
    pub time: Timestamp,
    pub kind: TickKind,
}

impl Tick {
    pub fn regular(time: Timestamp) -> Self {
        Self { time, kind: TickKind::Regular }
    }
}

/// Which tick it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TickKind {
    Regular,
    /// At the end of what is recorded: nothing is read after it.
    Last,
    /// No tick: only what would go around before the next one is read.
    Between,
}

/// The samples of one tick.
#[derive(Debug)]
pub struct Out<'a> {
    db: &'a Db,
    host: &'a str,
    time: Timestamp,
    kind: TickKind,
    /// What the collectors tell of themselves.
    ours: &'a [(&'static str, Value)],
    sampled: TickOutcome,
}

/// What became of a tick.
#[derive(Debug, Default)]
pub struct TickOutcome {
    pub batch: SampleBatch,
    /// Samples that found no room in the database.
    pub refused: u64,
    /// What every node should tell and this one did not.
    pub lacks: Vec<&'static str>,
}

impl<'a> Out<'a> {
    /// `expected`: about how many samples will come.
    pub fn new(db: &'a Db, host: &'a str, time: Timestamp, expected: usize) -> Self {
        let sampled = TickOutcome { batch: SampleBatch::with_capacity(expected), ..TickOutcome::default() };
        Self { db, host, time, kind: TickKind::Regular, ours: &[], sampled }
    }

    pub fn of_kind(self, kind: TickKind) -> Self {
        Self { kind, ..self }
    }

    pub fn telling(self, ours: &'a [(&'static str, Value)]) -> Self {
        Self { ours, ..self }
    }

    pub fn ours(&self) -> &'a [(&'static str, Value)] {
        self.ours
    }

    pub fn time(&self) -> Timestamp {
        self.time
    }

    /// Whether this is the tick at the end of what is recorded.
    pub fn is_last(&self) -> bool {
        self.kind == TickKind::Last
    }

    /// A series has one sample per tick, the first: a damaged file may name it twice.
    pub fn put(&mut self, slot: &mut Slot, value: Value) {
        if slot.last.replace(self.time) == Some(self.time) {
            return;
        }
        match self.id(slot) {
            Some(id) => self.sampled.batch.push(id, self.time, value),
            None => self.sampled.refused += 1,
        }
    }

    /// A number beyond what an integer of the database holds is damage, and no sample.
    pub fn int(&mut self, slot: &mut Slot, value: u64) {
        if let Ok(value) = i64::try_from(value) {
            self.put(slot, Value::Int(value));
        }
    }

    pub fn float(&mut self, slot: &mut Slot, value: f64) {
        self.put(slot, Value::Float(value));
    }

    /// A sample of another time than the tick's.
    pub fn float_at(&mut self, time: Timestamp, slot: &mut Slot, value: f64) {
        match self.id(slot) {
            Some(id) => self.sampled.batch.push(id, time, Value::Float(value)),
            None => self.sampled.refused += 1,
        }
    }

    /// Notes that `what`, which every node has, could not be read.
    pub fn lacks(&mut self, what: &'static str) {
        self.sampled.lacks.push(what);
    }

    pub fn finish(self) -> TickOutcome {
        self.sampled
    }

    fn id(&self, slot: &mut Slot) -> Option<SeriesId> {
        match slot.id {
            Id::Known(id) => return Some(id),
            Id::Refused => return None,
            Id::Unasked => {}
        }
        let own = slot.tags.iter().map(|(key, value)| (*key, &**value));
        let made = TagSet::new(own.chain([("host", self.host)])).and_then(|tags| SeriesKey::new(slot.metric, tags));
        match made.and_then(|key| self.db.series(&key)) {
            Ok(id) => {
                slot.id = Id::Known(id);
                Some(id)
            }
            Err(error) => {
                tracing::debug!(metric = slot.metric, %error, "a series of the collectors was refused");
                slot.id = Id::Refused;
                None
            }
        }
    }
}
