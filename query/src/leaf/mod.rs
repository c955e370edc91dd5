//! The one leaf of every plan: a request to the node that owns the data, and its answer as batches.
//!
//! What a leaf is asked for is plain data ([`Request`]), so that one day it can cross a network;
//! the snapshot it reads is found where it is executed, in the session ([`LeafContext`]).
//! The head fixes the schema when it plans, and the owner answers exactly that schema.

mod exec;

use telem_engine::Snapshot;

/// What a session carries for the leaves that are executed in it: one snapshot a query, so that
/// all leaves of one query see the same samples.
#[derive(Clone, Debug)]
pub struct LeafContext {
    pub snapshot: Snapshot,
}
