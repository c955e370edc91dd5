//! What a server and its database count of their memory.

use telem_engine::DbFootprint;
use telem_ingest::writer::{WAITING_SAMPLE_BYTES, Writer};

use crate::footprint::Resident;
use crate::info::ServerMemory;
use crate::protocol::PartName;
use crate::state::State;

const MEMTABLES: PartName = ("memtables", "samples that are in no segment yet, and room for the next");
const NAMES: PartName = ("names", "names of metrics, of tags and of their values");
const INDEX: PartName = ("index", "the index between names and series");
const LAST_VALUES: PartName = ("last_values", "the last value of each series");
const METADATA: PartName = ("metadata", "descriptions, jobs, notes, records");
const FOOTERS: PartName = ("footers", "footers and run indexes of segments");
const PAGES: PartName = ("pages", "pages of segments that were asked for before");
const WAL_BUFFER: PartName = ("wal_buffer", "room for frames of the WAL");
const QUEUE: PartName = ("queue", "samples that wait to be stored");
const KNOWN_NAMES: PartName = ("known_names", "raw names that senders repeat");
const QUERIES: PartName = ("queries", "queries that run");
const REQUESTS: PartName = ("requests", "requests and answers on their way");

/// What this process holds. `others` are parts that protocols count. `None` where the kernel does not say what is resident.
pub(super) fn held(state: &State, others: impl IntoIterator<Item = (PartName, u64)>) -> Option<ServerMemory> {
    Some(ServerMemory::new(Resident::now()?, counted(state).into_iter().chain(others).collect()))
}

/// What every server counts.
pub(super) fn counted(state: &State) -> [(PartName, u64); 12] {
    let DbFootprint { memtables, names, index, last_values, metadata, footers, pages, wal_buffer } = state.db.held();
    let limits = &state.limits;
    let (answers, bodies) = (limits.answers.bytes_taken(), limits.bodies.budget.bytes_taken());
    let waiting = |writer: &Writer| {
        let stats = writer.stats();
        (stats.waiting + stats.kept) * WAITING_SAMPLE_BYTES
    };
    let writer = state.writer.as_ref();
    [
        (MEMTABLES, memtables),
        (NAMES, names),
        (INDEX, index),
        (LAST_VALUES, last_values),
        (METADATA, metadata),
        (FOOTERS, footers),
        (PAGES, pages),
        (WAL_BUFFER, wal_buffer),
        (QUEUE, writer.map_or(0, waiting)),
        (KNOWN_NAMES, writer.map_or(0, |writer| writer.known_bytes() as u64)),
        (QUERIES, state.queries.memory_reserved() as u64),
        (REQUESTS, (answers + bodies) as u64),
    ]
}
