//! One connection's way into the table: messages in, numbers changed, with as little work for each as possible.

use super::{CounterRefusal, CounterRows, CounterTable, ScopeId};
use crate::decode::proxy::{
    CounterKind, DescribedJob, MessagePiece, MessageSplitter, ProxyMessage, ScannedValue, parse, scan_value, unescape,
};

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
    /// The row behind that of the last value: clients send their values in the order in which they declared them.
    next: u32,
    /// Room for a name without its escapes.
    name: Vec<u8>,
    /// Bytes behind a job's description, until it is known which lane that is.
    waiting: Vec<u8>,
    is_waiting: bool,
    /// Messages that were taken.
    taken: u64,
}

impl Feed {
    /// Of a connection whose values go to `lane`.
    pub fn new(lane: ScopeId) -> Self {
        Self {
            lane,
            splitter: MessageSplitter::default(),
            next: 0,
            name: Vec::new(),
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
        (self.lane, self.next) = (lane, 0);
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
                if self.waiting.is_empty() {
                    // In one piece: what grows leaves behind as much as it takes.
                    self.waiting.reserve_exact(bytes.len());
                }
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
            }
        }
        Ok(None)
    }

    /// Adds a value of which nothing is unusual; false where something is.
    #[inline]
    fn add(&mut self, scanned: &ScannedValue<'_>, table: &mut CounterRows) -> bool {
        let Some(name) = unescape(scanned.raw_name, &mut self.name) else { return false };
        let Some(lane) = table.scope(self.lane) else { return false };
        let is_it = |row: u32| {
            let cell = lane.cells.get(row as usize)?;
            (table.names.text(cell.name).as_bytes() == name).then_some((row, cell.name))
        };
        let found = is_it(self.next).or_else(|| {
            let number = table.names.find(name)?;
            Some((lane.row(number)?, number))
        });
        let Some((row, number)) = found else { return false };
        if table.names.entry(number).kind != scanned.kind {
            return false;
        }
        if scanned.kind == CounterKind::Counter && !scanned.value.is_finite() {
            return false;
        }
        self.next = row + 1;
        table.take(self.lane, row, scanned.value);
        true
    }
}
