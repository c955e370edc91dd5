//! One connection's way into the table: messages in, numbers changed, with as little work for each as possible.

use ahash::AHashMap;

use super::{CounterRefusal, CounterRows, CounterTable, SCOPES_ABOVE_MAX, ScopeId};
use crate::decode::proxy::{
    CounterKind, DescribedJob, MessagePiece, MessageSplitter, ProxyMessage, ScannedValue, parse, scan_value,
};

/// Most raw names that a connection remembers; others are looked up every time.
const RAW_NAMES_MAX: usize = 200_000;

/// What a chunk of bytes brought beside values.
#[derive(Clone, Debug, PartialEq)]
pub enum FeedEvent {
    /// The connection is of this job from here on: what follows is taken once [`Feed::switch`] said which lane that is.
    Job(Box<DescribedJob>),
    Refused(CounterRefusal),
}

/// The state of one connection.
#[derive(Debug)]
pub struct Feed {
    lane: ScopeId,
    splitter: MessageSplitter,
    /// Rows by the raw bytes of a name, of the lane and the scopes above it in order.
    rows: AHashMap<Box<[u8]>, RowSet>,
    /// The lane's edition that `rows` are of.
    edition: u32,
    /// Bytes behind a job's description, until it is known which lane that is.
    waiting: Vec<u8>,
    is_waiting: bool,
    /// Messages that were taken.
    taken: u64,
}

#[derive(Clone, Copy, Debug)]
struct RowSet {
    kind: CounterKind,
    rows: [u32; 1 + SCOPES_ABOVE_MAX],
}

impl Feed {
    /// Of a connection whose values go to `lane`.
    pub fn new(lane: ScopeId) -> Self {
        Self {
            lane,
            splitter: MessageSplitter::default(),
            rows: AHashMap::default(),
            edition: 0,
            waiting: Vec::new(),
            is_waiting: false,
            taken: 0,
        }
    }

    pub fn lane(&self) -> ScopeId {
        self.lane
    }

    /// Whether it waits for [`Feed::switch`].
    pub fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// Messages that were taken so far.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Values go to `lane` from now on; what waited for that is taken. More events may come of it.
    pub fn switch(&mut self, lane: ScopeId, table: &CounterTable) -> Vec<FeedEvent> {
        if lane != self.lane {
            self.lane = lane;
            self.rows = AHashMap::default();
        }
        self.is_waiting = false;
        let waiting = std::mem::take(&mut self.waiting);
        self.split(&mut MessageSplitter::default(), &waiting, table)
    }

    /// Takes the bytes that came. Behind a job's description messages wait for [`Feed::switch`], so call that first.
    pub fn take(&mut self, bytes: &[u8], table: &CounterTable) -> Vec<FeedEvent> {
        let mut splitter = std::mem::take(&mut self.splitter);
        let events = self.split(&mut splitter, bytes, table);
        self.splitter = splitter;
        events
    }

    fn split(&mut self, splitter: &mut MessageSplitter, bytes: &[u8], table: &CounterTable) -> Vec<FeedEvent> {
        let mut events = Vec::new();
        let mut table = table.lock();
        splitter.split(bytes, |piece| match piece {
            MessagePiece::Message(message) if self.is_waiting => {
                self.waiting.extend_from_slice(message);
                self.waiting.push(0);
            }
            MessagePiece::Message(message) => match self.message(message, &mut table) {
                Ok(None) => self.taken += 1,
                Ok(Some(job)) => {
                    self.is_waiting = true;
                    self.taken += 1;
                    events.push(FeedEvent::Job(job));
                }
                Err(refusal) => events.push(FeedEvent::Refused(refusal)),
            },
            MessagePiece::TooLong => events.push(FeedEvent::Refused(CounterRefusal::LongMessage)),
        });
        events
    }

    fn message(
        &mut self,
        message: &[u8],
        table: &mut CounterRows,
    ) -> Result<Option<Box<DescribedJob>>, CounterRefusal> {
        let scanned = scan_value(message);
        if let Some(scanned) = &scanned
            && self.add(scanned, table)
        {
            return Ok(None);
        }
        match parse(message).map_err(CounterRefusal::Malformed)? {
            ProxyMessage::Job(job) => return Ok(Some(job)),
            ProxyMessage::Declaration { name, doc, kind, value } => {
                table.declare(self.lane, &name, &doc, kind, value)?
            }
            ProxyMessage::Value { name, kind, value } => {
                // The parser's floats may be off by their last bit.
                table.update(self.lane, &name, kind, scanned.map_or(value, |scanned| scanned.value))?;
                if let Some(scanned) = scanned {
                    self.remember(scanned.raw_name, &name, kind, table);
                }
            }
        }
        Ok(None)
    }

    /// Adds a value whose rows are known; false if they are not.
    #[inline]
    fn add(&mut self, scanned: &ScannedValue<'_>, table: &mut CounterRows) -> bool {
        let Some(RowSet { kind, rows }) = self.rows.get(scanned.raw_name).copied() else { return false };
        let Some(lane) = table.scope_mut(self.lane) else { return false };
        if kind != scanned.kind {
            return false;
        }
        if lane.edition != self.edition {
            self.rows.clear();
            return false;
        }
        let (source, above) = (lane.source, lane.above.len());
        lane.change(rows[0], |number| number.take(source, scanned.value));
        for at in 0..above {
            let id = table.scopes[self.lane.0 as usize].as_ref().map_or(self.lane, |lane| lane.above[at]);
            if let Some(scope) = table.scope_mut(id) {
                scope.change(rows[at + 1], |number| number.take(source, scanned.value));
            }
        }
        true
    }

    fn remember(&mut self, raw_name: &[u8], name: &str, kind: CounterKind, table: &CounterRows) {
        let Some(lane) = table.scope(self.lane) else { return };
        if lane.edition != self.edition {
            self.rows.clear();
            self.edition = lane.edition;
        }
        if self.rows.len() >= RAW_NAMES_MAX {
            return;
        }
        let Some(number) = table.numbers.get(name) else { return };
        let mut rows = [0; 1 + SCOPES_ABOVE_MAX];
        for (row, scope) in rows.iter_mut().zip(std::iter::once(self.lane).chain(lane.above.iter().copied())) {
            let Some(found) = table.scope(scope).and_then(|scope| scope.rows.get(number)) else { return };
            *row = *found;
        }
        self.rows.insert(raw_name.into(), RowSet { kind, rows });
    }
}
